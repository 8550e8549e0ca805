"""``thrifty demo``: accuracy against mean cost on scikit-learn's digits.

Each pixel costs 1; the full model is an RBF-SVM that reads all 64. ``BudgetedClassifier`` is compared with two systems
with one gate each: the paper's (DynaMod-Gbrt), which is learned together with the cheap model, and the confidence of
boosted trees on the columns that the paper's cheap model bought. Every method is fitted and chosen on the same rows;
the table shows results on test rows.
"""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.cascade.estimators import BudgetedClassifier
from thrifty.dynamod.gbrt_estimators import DynaModGbrtClassifier
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import evidence_of
from thrifty.plots import Curve, draw_tradeoff, new_figure, save_figure
from thrifty.progress import Progress, silent
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of
from thrifty.routing.confidence import ConfidenceRouter

__all__ = ["run"]

BUDGETS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
LEVEL = 0.005
"""Largest loss of accuracy of the deployed budget against the full model, on the rows of the fit."""
GAMMAS = np.logspace(0.3, 2.3, 7)
"""Weights of the prices that the systems with one gate are fitted with."""

TITLE = "Digits, 5 or more? 64 pixels at 1 each, full model = RBF-SVM"
CASCADE, GATE, CONFIDENCE = "BudgetedClassifier", "the paper's single gate", "confidence gate"


Point = tuple[float, float]
"""Mean cost and accuracy on the test rows."""


def run(out: Path, *, progress: Progress = silent) -> None:
    """Fit, choose, print the table; write the picture, the numbers and the report."""
    digits = load_digits(as_frame=True)
    order = np.random.default_rng(0).permutation(len(digits.target))
    # Data frames: explanations and the report call pixels by their names.
    X, y = digits.data.iloc[order].reset_index(drop=True), (digits.target.to_numpy()[order] >= 5).astype(int)
    X_fit, y_fit, X_test, y_test = X[:1350], y[:1350], X[1350:], y[1350:]
    full = make_pipeline(StandardScaler(), SVC(C=10.0, random_state=0))
    rivals = _rivals(full, X_fit, y_fit, X_test, y_test, progress)
    clf = BudgetedClassifier(full, n_jobs=2, random_state=0).fit(X_fit, y_fit, progress=progress)
    budget = _level_budget(clf)
    deployed = clf.at(budget=budget)
    facts = replace(
        measure(deployed, X_test, y_test, rivals=rivals),
        title="Digits: is it 5 or more?",
        full_name="an RBF-SVM",
        notes=(("rows of the fit", f"{clf.evidence_.n_rows:,}"),),
    )
    numbers = _numbers(facts) | {"budget": budget, "budgets": list(BUDGETS)}
    numbers["lost_out_of_fold"] = float(deployed.evidence_.full_score - deployed.expected_score_)
    numbers["points"] = {CASCADE: _points_of_cascade(clf, X_test, y_test)} | {
        name: _points_of_frontier(frontier) for name, frontier in rivals.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    files = [save_figure(_picture(numbers), out / "tradeoff.png")]
    for name, text in {
        "report.html": page_of(facts),
        "demo.json": json.dumps(numbers, indent=1) + "\n",
    }.items():
        files.append(out / name)
        files[-1].write_text(text, encoding="utf-8")
    _show(numbers, str(deployed.explain(X_test[:1])[0]), files)


def _rivals(full: Any, X: Any, y: Any, X_test: Any, y_test: Any, progress: Progress) -> dict[str, Frontier]:
    """Systems with one gate: fitted on two thirds of the rows, chosen on the others, measured on test rows."""
    chosen: dict[str, list[Any]] = {GATE: [], CONFIDENCE: []}
    measured: dict[str, list[Any]] = {GATE: [], CONFIDENCE: []}
    for done, gamma in enumerate(GAMMAS):
        progress("fitting rivals with one gate", done, len(GAMMAS))
        pair = DynaModGbrtClassifier(full, gamma=float(gamma), max_iter=3, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # three rounds are enough for a demonstration
            pair.fit(X[:900], y[:900])
        systems = {GATE: pair}
        if len(pair.features_):
            trees = HistGradientBoostingClassifier(random_state=0)
            router = ConfidenceRouter(full, trees, features=pair.features_, random_state=0)
            systems[CONFIDENCE] = router.fit(X[:900], y[:900])
        for name, fitted in systems.items():
            chosen[name].append(evidence_of(fitted, X[900:], y[900:]))
            measured[name].append(evidence_of(fitted, X_test, y_test))
    progress("fitting rivals with one gate", len(GAMMAS), len(GAMMAS))
    return {name: Frontier.from_evidence(some).on(measured[name]) for name, some in chosen.items()}


def _level_budget(clf: BudgetedClassifier) -> float:
    """Smallest budget with the accuracy of the full model up to ``LEVEL``, out of fold; else the largest budget."""
    enough = clf.evidence_.full_score - LEVEL
    level = (budget for budget in BUDGETS if clf.at(budget=budget).expected_score_ >= enough)
    return next(level, BUDGETS[-1])


def _points_of_cascade(clf: BudgetedClassifier, X: Any, y: Any) -> list[Point]:
    systems = [clf.at(budget=budget) for budget in BUDGETS]
    return [(float(one.cost(X).mean()), float(np.mean(one.predict(X) == y))) for one in systems]


def _points_of_frontier(frontier: Frontier) -> list[Point | None]:
    """The point of each budget; None for budgets below the cheapest point."""
    cheapest = frontier.chosen.cost[0]
    found = [frontier.best(budget=budget) if budget >= cheapest else None for budget in BUDGETS]
    return [None if one is None else (one.cost, one.score) for one in found]


def _numbers(facts: Facts) -> dict[str, Any]:
    """Results of the deployed point, the full model and the larger class in the report."""
    place, classes = facts.start, facts.groupings[0]
    return {
        "full_accuracy": facts.score.full,
        "majority": facts.score.constant,
        "recall": [right / n for right, n in zip(classes.sums[place], classes.n_rows, strict=True)],
        "deployed": [facts.cost.value[place], facts.score.value[place]],
    }


def _picture(numbers: dict[str, Any]) -> Any:
    figure, (ax,) = new_figure(width=7.2, height=4.4)
    curves = {}
    for name, points in numbers["points"].items():
        cost, accuracy = zip(*(one for one in points if one is not None), strict=True)
        curves[name] = Curve(cost, accuracy)
    title = "digits: 5 or more? 64 pixels at 1 each"
    draw_tradeoff(ax, curves, full=(64.0, numbers["full_accuracy"]), title=title, flagship=CASCADE)
    return figure


def _show(numbers: dict[str, Any], explanation: str, files: list[Path]) -> None:
    """Print the table, the deployed point, the route of one row, and the files written."""
    console, points = Console(), numbers["points"]
    table = Table(title=TITLE, title_justify="left")
    table.add_column("budget")
    for name in points:
        table.add_column(name, justify="right")
    for budget, *row in zip(numbers["budgets"], *points.values(), strict=True):
        table.add_row(f"{budget:g}", *("-" if one is None else f"{one[1]:.3f} @ {one[0]:.1f}" for one in row))
    console.print(table)
    (cost, right), recall, full = numbers["deployed"], numbers["recall"], numbers["full_accuracy"]
    lost = 100 * numbers["lost_out_of_fold"]
    chosen = (
        f"Deployed is the budget of {numbers['budget']:g}, the least of these that loses at most {100 * LEVEL:g} "
        f"points against the full model on the rows of the fit, out of fold ({lost:.1f}). On test rows it is right on "
        f"{right:.3f} for {cost:.1f} per row, {100 * (full - right):.1f} points below the full model, with a recall "
        f"of {recall[0]:.3f} of digits below 5 and {recall[1]:.3f} of the others."
    )
    others = f"Always answering with the larger class: {numbers['majority']:.3f}."
    for line in (
        f"Full model for every row: {full:.3f} at 64. {others}",
        "Accuracy @ mean cost per row, on test rows.",
        chosen,
        explanation,
    ):
        console.print(line, soft_wrap=True)
    console.print("wrote " + ", ".join(str(path) for path in files), soft_wrap=True, highlight=False)
