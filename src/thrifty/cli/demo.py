"""``thrifty demo``: accuracy against mean cost on scikit-learn's digits.

Each pixel costs 1; the full model is an RBF-SVM that reads all 64. ``BudgetedClassifier`` is compared with what a user
would write by hand around the same SVM: two stages, of which the first reads the best pixels and the second all of them
where it is unsure; and a line of SVMs on more and more pixels, with one threshold. Numbers of pixels and thresholds are
chosen for each budget. Every method is fitted and chosen on the same rows, out of fold; the table shows test rows.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.cli.console import print_table, print_text
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.plots import draw_tradeoff, new_figure, save_figure
from thrifty.learners.cascade.estimators import BudgetedClassifier
from thrifty.learners.dynamod.confidence import ConfidenceRouter
from thrifty.progress import Progress, silent
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of
from thrifty.reporting.words import results_table

BUDGETS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
LEVEL = 0.005
"""Largest loss of accuracy of the deployed budget against the full model, on the rows of the fit."""
N_PIXELS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Pixels that the first of two stages, or an SVM in the line, reads."""

TITLE = "Digits, 5 or more? 64 pixels at 1 each, full model = RBF-SVM"
CASCADE, TWO_STAGES, THRESHOLDS = "BudgetedClassifier", "best pixels, then all", "SVMs with a threshold"

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
    trees = ExtraTreesClassifier(500, random_state=0).fit(X_fit, y_fit)
    best = np.argsort(-trees.feature_importances_, kind="stable")
    rival = _two_stages(full, best, X_fit, y_fit, X_test, y_test, progress)
    clf = BudgetedClassifier(full, n_jobs=2, random_state=0).fit(X_fit, y_fit, progress=progress)
    enough = clf.evidence_.full_score - LEVEL
    level = (budget for budget in BUDGETS if clf.at(budget=budget).expected_score_ >= enough)
    budget = next(level, BUDGETS[-1])
    deployed = clf.at(budget=budget)
    facts = measure(deployed, X_test, y_test, rivals={TWO_STAGES: rival})
    facts = replace(facts, title="Digits: is it 5 or more?", full_name="an RBF-SVM")
    systems = [clf.at(budget=budget) for budget in BUDGETS]
    points: dict[str, list[Point | None]] = {
        CASCADE: [(float(system.cost(X_test).mean()), system.score(X_test, y_test)) for system in systems]
    }
    found = [rival.best(budget=most) if most >= rival.chosen.cost[0] else None for most in BUDGETS]
    points[TWO_STAGES] = [None if point is None else (point.cost, point.score) for point in found]
    points[THRESHOLDS] = _thresholds(full, best, X_fit, y_fit, X_test, y_test)
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


def _two_stages(
    full: Any, best: Any, X: Any, y: Any, X_test: Any, y_test: Any, progress: Progress
) -> Frontier:
    """Efficient points of the best pixels before all pixels, chosen out of fold and measured on test rows."""
    chosen, measured = [], []
    for done, n_pixels in enumerate(N_PIXELS):
        progress("fitting two stages", done, len(N_PIXELS))
        cheap = CalibratedClassifierCV(full, ensemble=False)  # probabilities, whose margin is the gate
        router = ConfidenceRouter(full, cheap, features=best[:n_pixels], random_state=0).fit(X, y)
        chosen.append(router.evidence_)
        measured.append(evidence_of(router, X_test, y_test))
    progress("fitting two stages", len(N_PIXELS), len(N_PIXELS))
    return Frontier.from_evidence(chosen).on(measured)


def _thresholds(full: Any, best: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> list[Point | None]:
    """Points of SVMs on more and more pixels, each asked unless the one before is sure enough; chosen out of fold."""
    sizes = np.array([*N_PIXELS, X.shape[1]])
    out_of_fold, on_test = [], []
    for n_pixels in sizes:
        model, pixels = CalibratedClassifierCV(full, ensemble=False), best[:n_pixels]
        out_of_fold.append(cross_val_predict(model, X.iloc[:, pixels], y, method="predict_proba"))
        on_test.append(model.fit(X.iloc[:, pixels], y).predict_proba(X_test.iloc[:, pixels]))

    def point(probabilities: Any, labels: Any, threshold: float) -> Point:
        is_sure = np.max(probabilities, axis=2) >= threshold
        is_sure[-1] = True
        stop = np.argmax(is_sure, axis=0)
        answer = np.argmax(probabilities, axis=2)[stop, np.arange(len(labels))]
        return float(sizes[stop].mean()), float(np.mean(answer == labels))

    levels = np.linspace(0.5, 1.0, 201)
    known = [point(out_of_fold, y, level) for level in levels]
    points: list[Point | None] = []
    for budget in BUDGETS:
        within = [place for place, (cost, _) in enumerate(known) if cost <= budget]
        chosen = max(within, key=lambda place: known[place][1], default=None)
        points.append(None if chosen is None else point(on_test, y_test, levels[chosen]))
    return points


def _picture(points: dict[str, list[Point | None]], full: float | None) -> Any:
    figure, (ax,) = new_figure(width=7.2, height=4.4)
    curves = {
        name: tuple(zip(*(point for point in some if point is not None), strict=True))
        for name, some in points.items()
    }
    title = "digits: 5 or more? 64 pixels at 1 each"
    draw_tradeoff(ax, curves, full=None if full is None else (64.0, full), title=title, flagship=CASCADE)  # type: ignore[arg-type]  # a dict is invariant
    return figure
