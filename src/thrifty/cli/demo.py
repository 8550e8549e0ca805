"""``thrifty demo``: accuracy against mean cost on scikit-learn's digits.

Each pixel costs 1; the full model is an RBF-SVM that reads all 64. ``BudgetedClassifier`` is compared with two systems
with one gate each: the paper's (DynaMod-Gbrt), which is learned together with the cheap model, and the confidence of
boosted trees on the columns that the paper's cheap model bought. Every method is fitted and chosen on the same rows;
the table shows results on test rows.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.cli.console import print_table, print_text
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.plots import draw_tradeoff, new_figure, save_figure
from thrifty.learners.cascade.estimators import BudgetedClassifier
from thrifty.learners.dynamod import BoostedOptions
from thrifty.learners.dynamod.boosted import DynaModGbrtClassifier
from thrifty.learners.dynamod.confidence import ConfidenceRouter
from thrifty.progress import Progress, silent
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of
from thrifty.reporting.words import results_table

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
    """Fit, choose, print the table; write the picture and the report."""
    digits = load_digits(as_frame=True)
    order = np.random.default_rng(0).permutation(len(digits.target))
    # Data frames: explanations and the report call pixels by their names.
    X, y = digits.data.iloc[order].reset_index(drop=True), (digits.target.to_numpy()[order] >= 5).astype(int)
    X_fit, y_fit, X_test, y_test = X[:1350], y[:1350], X[1350:], y[1350:]
    full = make_pipeline(StandardScaler(), SVC(C=10.0, random_state=0))
    rivals = _rivals(full, X_fit, y_fit, X_test, y_test, progress)
    clf = BudgetedClassifier(full, n_jobs=2, random_state=0).fit(X_fit, y_fit, progress=progress)
    enough = clf.evidence_.full_score - LEVEL
    level = (budget for budget in BUDGETS if clf.at(budget=budget).expected_score_ >= enough)
    budget = next(level, BUDGETS[-1])
    deployed = clf.at(budget=budget)
    facts = measure(deployed, X_test, y_test, rivals=rivals)
    facts = replace(facts, title="Digits: is it 5 or more?", full_name="an RBF-SVM")
    systems = [clf.at(budget=budget) for budget in BUDGETS]
    points: dict[str, list[Point | None]] = {
        CASCADE: [(float(system.cost(X_test).mean()), system.score(X_test, y_test)) for system in systems]
    }
    for name, frontier in rivals.items():
        found = [frontier.best(budget=most) if most >= frontier.chosen.cost[0] else None for most in BUDGETS]
        points[name] = [None if point is None else (point.cost, point.score) for point in found]
    out.mkdir(parents=True, exist_ok=True)
    picture = save_figure(_picture(points, facts.score.full), out / "tradeoff.png")
    report = out / "report.html"
    report.write_text(page_of(facts), encoding="utf-8")
    print_text(f"{TITLE}: accuracy @ mean cost per row, on {facts.n_rows} test rows")
    lines = [
        [f"{budget:g}", *("-" if point is None else f"{point[1]:.3f} @ {point[0]:.1f}" for point in row)]
        for budget, *row in zip(BUDGETS, *points.values(), strict=True)
    ]
    print_table([["budget", *points], *lines])
    lost = 100 * float(deployed.evidence_.full_score - deployed.expected_score_)
    print_text(
        f"Deployed is the budget of {budget:g}, the least of these that loses at most {100 * LEVEL:g} points against "
        f"the full model on the rows of the fit, out of fold ({lost:.1f}). On test rows it has:"
    )
    print_table(results_table(facts, facts.start))
    for line in str(deployed.explain(X_test[:1])[0]).splitlines():
        print_text(line)
    print_text(f"wrote {picture}, {report}")


def _rivals(full: Any, X: Any, y: Any, X_test: Any, y_test: Any, progress: Progress) -> dict[str, Frontier]:
    """Systems with one gate: fitted on two thirds of the rows, chosen on the others, measured on test rows."""
    chosen: dict[str, list[Any]] = {GATE: [], CONFIDENCE: []}
    measured: dict[str, list[Any]] = {GATE: [], CONFIDENCE: []}
    for done, gamma in enumerate(GAMMAS):
        progress("fitting rivals with one gate", done, len(GAMMAS))
        pair = DynaModGbrtClassifier(
            full, gamma=float(gamma), options=BoostedOptions(max_iter=3), random_state=0
        )
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


def _picture(points: dict[str, list[Point | None]], full: float | None) -> Any:
    figure, (ax,) = new_figure(width=7.2, height=4.4)
    curves = {
        name: tuple(zip(*(point for point in some if point is not None), strict=True))
        for name, some in points.items()
    }
    title = "digits: 5 or more? 64 pixels at 1 each"
    draw_tradeoff(ax, curves, full=None if full is None else (64.0, full), title=title, flagship=CASCADE)  # type: ignore[arg-type]  # a dict is invariant
    return figure
