"""The demonstration: how much of a strong model's accuracy can be had for less, on data everyone has.

Pixels of scikit-learn's digits cost 1 each; the full model (f0) is an RBF-SVM that reads all 64. ``BudgetedClassifier``
stands against the paper's single gate (DynaMod-Gbrt) and against the same kind of cheap model gated by its own
confidence. Every method is fitted and chosen on the same rows; the table reports test rows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.arrays import Labels
from thrifty.cascade.estimators import BudgetedClassifier
from thrifty.datasets import Split, load_digits_at_least_five
from thrifty.dynamod.gbrt_estimators import DynaModGbrtClassifier
from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observe import evidence_of
from thrifty.experiments.experiment import Outcome, Progress, silent
from thrifty.experiments.fits import Fit, FullScores, fit_all, judge_on_split
from thrifty.experiments.selection import Candidate, FullAnswers, choose
from thrifty.plots import Curve, draw_tradeoff, new_figure, save_figure
from thrifty.reporting.facts import Facts
from thrifty.reporting.measure import measure
from thrifty.reporting.page import write_page

__all__ = ["run"]

BUDGETS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
LEVEL = 0.005
"""Accuracy that the deployed budget may lose against the full model on the rows of the fit."""
GAMMAS = np.logspace(0.3, 2.3, 7)

CASCADE, GATE, CONFIDENCE = "BudgetedClassifier", "the paper's single gate", "confidence gate"


@dataclass(frozen=True)
class _Point:
    """Accuracy and mean cost on the test rows."""

    accuracy: float
    cost: float

    def __str__(self) -> str:
        return f"{self.accuracy:.3f} @ {self.cost:.1f}"


def run(out: Path, *, progress: Progress = silent) -> Outcome:
    """Fit, choose, report; write the picture, the numbers and the page."""
    split = load_digits_at_least_five()
    full_model = make_pipeline(StandardScaler(), SVC(C=10.0, random_state=0))
    scores = judge_on_split(full_model, split, progress=progress)
    full = scores.answers(split, cost=64.0)
    rivals = _rivals(split, scores, progress)
    X, y = np.vstack([split.X_train, split.X_val]), np.r_[split.y_train, split.y_val]
    # A data frame: explanations and report call pixels by their names.
    table, test = (pd.DataFrame(rows, columns=split.feature_names) for rows in (X, split.X_test))
    clf = BudgetedClassifier(full_model, n_jobs=2, random_state=0).fit(table, y, progress=progress)
    budget = _level(clf)
    points = {CASCADE: _on_budgets(clf, test, split.y_test)} | {
        name: [_Point(one.accuracy, one.cost) for one in choose(found, full, BUDGETS)]
        for name, found in rivals.items()
    }
    outcome = _outcome(points, clf, budget, test, split.y_test)
    outcome.files.append(save_figure(_picture(points, full, outcome.numbers), out / "tradeoff.png"))
    outcome.write(out)
    page = _facts(clf, budget, test, split.y_test, rivals, full)
    outcome.files += write_page(out / "report.html", page, picture=False)
    return outcome


def _rivals(split: Split, scores: FullScores, progress: Progress) -> dict[str, list[Candidate]]:
    """The two families with a single gate, fitted on the training rows; every threshold may be chosen."""
    cells: list[dict[str, Any]] = [{"gamma": float(gamma)} for gamma in GAMMAS]
    gated = [
        Fit(cell, {"estimator": DynaModGbrtClassifier(scores.train, max_iter=3, random_state=0, **cell)})
        for cell in cells
    ]
    alone = [Fit(cell, {"estimator": GreedyMiserClassifier(random_state=0, **cell)}) for cell in cells]
    found = fit_all(
        {GATE: gated, CONFIDENCE: alone}, split, progress=progress, what="fitting rivals with one gate"
    )
    return {
        name: [one.at_any_threshold() for one in some if isinstance(one, Candidate)]
        for name, some in found.items()
    }


def _level(clf: BudgetedClassifier) -> float:
    """The least budget that is level with the full model, out of fold; the largest one where none is."""
    enough = clf.evidence_.full_score - LEVEL
    level = (budget for budget in BUDGETS if clf.at(budget=budget).expected_score_ >= enough)
    return next(level, BUDGETS[-1])


def _on_budgets(clf: BudgetedClassifier, test: Any, y: Labels) -> list[_Point]:
    found = []
    for budget in BUDGETS:
        there = clf.at(budget=budget)
        found.append(_Point(float(np.mean(there.predict(test) == y)), float(there.cost(test).mean())))
    return found


def _outcome(
    points: dict[str, list[_Point]],
    clf: BudgetedClassifier,
    budget: float,
    test: Any,
    y: Labels,
) -> Outcome:
    majority = float(max(np.mean(y), 1 - np.mean(y)))
    outputs = clf.chain_.innermost.outputs(test, test.to_numpy())
    accuracy = float(np.mean(clf.chain_.task.answers(outputs) == y))
    rows = [
        [f"{one:g}", *(str(some[place]) if place < len(some) else "-" for some in points.values())]
        for place, one in enumerate(BUDGETS)
    ]
    deployed = clf.at(budget=budget)
    predicted, cost = deployed.predict(test), float(deployed.cost(test).mean())
    right, lost = float(np.mean(predicted == y)), clf.evidence_.full_score - deployed.expected_score_
    recall = [float(np.mean(predicted[y == label] == label)) for label in clf.classes_]
    chosen = (
        f"Deployed is the budget of {budget:g}, the least of these that loses at most {100 * LEVEL:g} points against "
        f"the full model on the rows of the fit, out of fold ({100 * lost:.1f}). On test rows it is right on "
        f"{right:.3f} for {cost:.1f} per row, {100 * (accuracy - right):.1f} points below the full model, with a "
        f"recall of {recall[0]:.3f} of digits below 5 and {recall[1]:.3f} of the others."
    )
    notes = [
        f"Full model for every row: {accuracy:.3f} at 64. Always answering with the larger class: {majority:.3f}.",
        "Accuracy @ mean cost per row, on test rows.",
        chosen,
        str(deployed.explain(test[:1])[0]),
    ]
    numbers = {
        "full_accuracy": accuracy,
        "majority": majority,
        "recall": recall,
        "deployed": [cost, right],
        "budgets": list(BUDGETS),
        "points": {name: [[one.cost, one.accuracy] for one in some] for name, some in points.items()},
    }
    return Outcome(
        "demo",
        "Digits, 5 or more? 64 pixels at 1 each, full model = RBF-SVM",
        ["budget", *points],
        rows,
        numbers,
        notes,
    )


def _picture(points: dict[str, list[_Point]], full: FullAnswers, numbers: dict[str, Any]) -> Any:
    figure, (ax,) = new_figure(width=7.2, height=4.4)
    curves = {
        name: Curve([one.cost for one in some], [one.accuracy for one in some])
        for name, some in points.items()
    }
    draw_tradeoff(
        ax,
        curves,
        full=(full.cost, numbers["full_accuracy"]),
        title="digits: 5 or more? 64 pixels at 1 each",
        flagship=CASCADE,
    )
    return figure


def _facts(
    clf: BudgetedClassifier,
    budget: float,
    test: Any,
    y: Labels,
    rivals: dict[str, list[Candidate]],
    full: FullAnswers,
) -> Facts:
    """What the page says: points chosen on the rows of the fit, measured on test rows."""
    frontier = clf.frontier_
    others = {}
    for name, found in rivals.items():
        chosen, measured = zip(*(candidate.evidence(full) for candidate in found), strict=True)
        others[name] = Frontier.from_evidence(chosen).on(measured)
    return measure(
        frontier.on([evidence_of(clf, test, y)]),
        y,
        chosen=frontier,
        estimators=[clf],
        feature_names=list(test.columns),
        rivals=others,
        deployed=clf.at(budget=budget),
        X=test,
        title="Digits: is it 5 or more?",
        method=CASCADE,
        full_name="an RBF-SVM",
        notes={"rows of the fit": f"{clf.evidence_.n_rows:,}"},
    )
