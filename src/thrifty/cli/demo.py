"""The demonstration: how much of a strong model's accuracy can be had for less, on data everyone has.

Pixels of scikit-learn's digits cost 1 each; the full model is an RBF-SVM that reads all 64. ``BudgetedClassifier``
stands against two systems with one gate each: the paper's (DynaMod-Gbrt), which is learned together with the cheap
model, and the confidence of boosted trees that read the columns which the paper's cheap model bought. Every method is
fitted and chosen on the same rows; the table reports test rows.
"""

import json
import warnings
from dataclasses import dataclass, replace
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
from thrifty.reporting.measure import measure
from thrifty.reporting.page import write_page
from thrifty.routing.confidence import ConfidenceRouter

__all__ = ["run"]

BUDGETS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
LEVEL = 0.005
"""Accuracy that the deployed budget may lose against the full model on the rows of the fit."""
GAMMAS = np.logspace(0.3, 2.3, 7)
"""Weights of the prices that the systems with one gate are fitted with."""

TITLE = "Digits, 5 or more? 64 pixels at 1 each, full model = RBF-SVM"
CASCADE, GATE, CONFIDENCE = "BudgetedClassifier", "the paper's single gate", "confidence gate"


@dataclass(frozen=True)
class _Point:
    """Accuracy and mean cost on the test rows."""

    accuracy: float
    cost: float

    def __str__(self) -> str:
        return f"{self.accuracy:.3f} @ {self.cost:.1f}"


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
    points = {CASCADE: _points_of_cascade(clf, X_test, y_test)}
    points |= {name: _points_of_frontier(frontier) for name, frontier in rivals.items()}
    budget = _level_budget(clf)
    deployed = clf.at(budget=budget)
    full_answers = clf.chain_.innermost.outputs(X_test, X_test.to_numpy())
    full_accuracy = float(np.mean(clf.chain_.task.answers(full_answers) == y_test))

    out.mkdir(parents=True, exist_ok=True)
    files = [save_figure(_picture(points, full_accuracy), out / "tradeoff.png")]
    facts = replace(
        measure(deployed, X_test, y_test, rivals=rivals),
        title="Digits: is it 5 or more?",
        full_name="an RBF-SVM",
        notes=(("rows of the fit", f"{clf.evidence_.n_rows:,}"),),
    )
    files += write_page(out / "report.html", facts, picture=False)
    numbers, notes = _deployed(deployed, budget, full_accuracy, X_test, y_test)
    numbers |= {
        "budgets": list(BUDGETS),
        "points": {
            name: [None if one is None else [one.cost, one.accuracy] for one in some]
            for name, some in points.items()
        },
    }
    files.append(out / "demo.json")
    files[-1].write_text(json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    _show(points, notes, files)


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
    """The least budget that is level with the full model, out of fold; the largest one where none is."""
    enough = clf.evidence_.full_score - LEVEL
    level = (budget for budget in BUDGETS if clf.at(budget=budget).expected_score_ >= enough)
    return next(level, BUDGETS[-1])


def _points_of_cascade(clf: BudgetedClassifier, X: Any, y: Any) -> list[_Point | None]:
    systems = [clf.at(budget=budget) for budget in BUDGETS]
    return [_Point(float(np.mean(one.predict(X) == y)), float(one.cost(X).mean())) for one in systems]


def _points_of_frontier(frontier: Frontier) -> list[_Point | None]:
    """The point of each budget; None where the frontier has none so cheap."""
    cheapest = frontier.chosen.cost[0]
    found = [frontier.best(budget=budget) if budget >= cheapest else None for budget in BUDGETS]
    return [None if one is None else _Point(one.score, one.cost) for one in found]


def _deployed(
    deployed: BudgetedClassifier, budget: float, full_accuracy: float, X: Any, y: Any
) -> tuple[dict[str, Any], list[str]]:
    """Numbers and sentences about the system that is level with the full model."""
    majority = float(max(np.mean(y), 1 - np.mean(y)))
    predicted, cost = deployed.predict(X), float(deployed.cost(X).mean())
    right, lost = float(np.mean(predicted == y)), deployed.evidence_.full_score - deployed.expected_score_
    recall = [float(np.mean(predicted[y == label] == label)) for label in deployed.classes_]
    chosen = (
        f"Deployed is the budget of {budget:g}, the least of these that loses at most {100 * LEVEL:g} points "
        f"against the full model on the rows of the fit, out of fold ({100 * lost:.1f}). On test rows it is right on "
        f"{right:.3f} for {cost:.1f} per row, {100 * (full_accuracy - right):.1f} points below the full model, with a "
        f"recall of {recall[0]:.3f} of digits below 5 and {recall[1]:.3f} of the others."
    )
    notes = [
        f"Full model for every row: {full_accuracy:.3f} at 64. Always answering with the larger class: {majority:.3f}.",
        "Accuracy @ mean cost per row, on test rows.",
        chosen,
        str(deployed.explain(X[:1])[0]),
    ]
    numbers = {
        "full_accuracy": full_accuracy,
        "majority": majority,
        "recall": recall,
        "deployed": [cost, right],
    }
    return numbers, notes


def _picture(points: dict[str, list[_Point | None]], full_accuracy: float) -> Any:
    figure, (ax,) = new_figure(width=7.2, height=4.4)
    drawn = {name: [one for one in some if one is not None] for name, some in points.items()}
    curves = {
        name: Curve([one.cost for one in some], [one.accuracy for one in some])
        for name, some in drawn.items()
    }
    title = "digits: 5 or more? 64 pixels at 1 each"
    draw_tradeoff(ax, curves, full=(64.0, full_accuracy), title=title, flagship=CASCADE)
    return figure


def _show(points: dict[str, list[_Point | None]], notes: list[str], files: list[Path]) -> None:
    console = Console()
    table = Table(title=TITLE, title_justify="left")
    table.add_column("budget")
    for name in points:
        table.add_column(name, justify="right")
    for budget, *row in zip(BUDGETS, *points.values(), strict=True):
        table.add_row(f"{budget:g}", *("-" if one is None else str(one) for one in row))
    console.print(table)
    for note in notes:
        console.print(note, soft_wrap=True)
    console.print("wrote " + ", ".join(str(path) for path in files), soft_wrap=True, highlight=False)
