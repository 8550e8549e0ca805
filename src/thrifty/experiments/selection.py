"""Choose on validation rows, report on test rows: the rule every experiment follows.

An experiment fits many settings. Each fitted setting is reduced to a ``Candidate``: its scores on the
validation and test rows. Every threshold of every candidate is an operating point; for a budget
the point with the best validation accuracy among those the budget affords *on validation rows* is
taken, and only then looked at on the test rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.policy.frontier import best_within
from thrifty.policy.outcomes import RowOutcomes
from thrifty.policy.threshold import threshold_curve
from thrifty.report.tradeoff import Curve

__all__ = [
    "Candidate",
    "Chosen",
    "FullAnswers",
    "by_budget",
    "choose",
    "curve_of",
    "gap",
    "numbers_of",
    "sentences_of",
]

Floats = NDArray[np.float64]
Pairs = Sequence[tuple[str, str]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class FullAnswers:
    """Whether f0 is right on each row, the labels, and what a row pays that reaches f0."""

    y_val: NDArray[np.intp]
    right_val: Bools
    y_test: NDArray[np.intp]
    right_test: Bools
    cost: float


@dataclass(frozen=True)
class Candidate:
    """One fitted setting, reduced to its scores.

    Attributes
    ----------
    settings : dict
        What it was fitted with.
    cost : float
        What a row pays that stays with it.
    g_val, f1_val, g_test, f1_test : ndarray
        Scores of gate and cheap model.
    threshold : float or None
        The only threshold allowed; None allows all of them.
    features : tuple of int
        Columns it buys, where somebody asks.
    """

    settings: dict[str, Any]
    cost: float
    g_val: Floats
    f1_val: Floats
    g_test: Floats
    f1_test: Floats
    threshold: float | None = None
    features: tuple[int, ...] = ()

    def at_any_threshold(self) -> "Candidate":
        """The same scores, free to be cut anywhere."""
        return replace(self, threshold=None)

    def gated_by_confidence(self) -> "Candidate":
        """The same f1, gated by its own margin in place of g."""
        return replace(self, g_val=-np.abs(self.f1_val), g_test=-np.abs(self.f1_test), threshold=None)

    def outcomes(self, full: FullAnswers) -> tuple[RowOutcomes, RowOutcomes]:
        """What every row of the validation and of the test rows pays and gets, at any threshold."""
        val, test = (
            RowOutcomes(
                g,
                self.cost,
                full.cost,
                (f1 > 0) == (y == 1),
                full_right,
                features=self.features,
                settings=self.settings,
                threshold=self.threshold,
            )
            for g, f1, y, full_right in (
                (self.g_val, self.f1_val, full.y_val, full.right_val),
                (self.g_test, self.f1_test, full.y_test, full.right_test),
            )
        )
        return val, test


@dataclass(frozen=True)
class Chosen:
    """The operating point taken for one budget, and what it does on the test rows."""

    budget: float
    settings: dict[str, Any]
    threshold: float
    val_accuracy: float
    val_cost: float
    accuracy: float
    cost: float
    share: float
    right: Bools

    def as_numbers(self) -> dict[str, Any]:
        """Everything but the per-row answers, ready for a JSON file, which knows no infinite numbers."""
        numbers = {name: value for name, value in self.__dict__.items() if name != "right"}
        return numbers | ({} if np.isfinite(self.threshold) else {"threshold": str(self.threshold)})


def choose(candidates: Sequence[Candidate], full: FullAnswers, budgets: Iterable[float]) -> list[Chosen]:
    """Best operating point on validation rows for each budget that any point affords, scored on test rows."""
    points = [_validation_points(candidate, full) for candidate in candidates]
    owner = np.repeat(np.arange(len(points)), [len(point[0]) for point in points])
    threshold, cost, accuracy = (np.concatenate(parts) for parts in zip(*points, strict=True))
    chosen = []
    for budget in budgets:
        best = best_within(cost, accuracy, budget)
        if best is not None:
            candidate = candidates[owner[best]]
            chosen.append(
                _on_test(
                    candidate,
                    full,
                    float(budget),
                    float(threshold[best]),
                    float(accuracy[best]),
                    float(cost[best]),
                )
            )
    return chosen


def gap(ours: Sequence[Chosen], theirs: Sequence[Chosen]) -> tuple[float, float]:
    """Mean difference of test accuracy over the budgets both have, and its standard error over test rows."""
    pairs = [(a, b) for a in ours for b in theirs if a.budget == b.budget]
    per_row = np.mean([a.right.astype(float) - b.right.astype(float) for a, b in pairs], axis=0)
    return float(per_row.mean()), float(per_row.std(ddof=1) / np.sqrt(len(per_row)))


def numbers_of(full: FullAnswers, chosen: Mapping[str, Sequence[Chosen]], pairs: Pairs) -> dict[str, Any]:
    """Everything measured with one f0, for the JSON file."""
    return {
        "f0_accuracy": float(full.right_test.mean()),
        "chosen": {method: [point.as_numbers() for point in points] for method, points in chosen.items()},
        "gaps": [
            {"ours": ours, "theirs": theirs, "mean": mean, "standard_error": error}
            for ours, theirs, (mean, error) in _gaps(chosen, pairs)
        ],
    }


def sentences_of(chosen: Mapping[str, Sequence[Chosen]], pairs: Pairs) -> list[str]:
    """One sentence per pair of methods."""
    return [
        f"{ours} minus {theirs}, mean over budgets: {mean:+.4f} (standard error {error:.4f})."
        for ours, theirs, (mean, error) in _gaps(chosen, pairs)
    ]


def _gaps(chosen: Mapping[str, Sequence[Chosen]], pairs: Pairs) -> list[tuple[str, str, tuple[float, float]]]:
    return [(a, b, gap(chosen[a], chosen[b])) for a, b in pairs if a in chosen and b in chosen]


def by_budget(
    chosen: Mapping[str, Sequence[Chosen]], budgets: Iterable[float], methods: Sequence[str]
) -> list[list[str]]:
    """A table of test accuracies: one row per budget, one column per method, a dash where there is none."""
    found = [{point.budget: point.accuracy for point in chosen.get(method, ())} for method in methods]
    return [
        [f"{budget:g}", *(f"{one[budget]:.3f}" if budget in one else "-" for one in found)]
        for budget in budgets
    ]


def curve_of(points: Sequence[Chosen]) -> Curve:
    """The test points of one method, to be drawn."""
    return Curve([point.cost for point in points], [point.accuracy for point in points])


def _validation_points(candidate: Candidate, full: FullAnswers) -> tuple[Floats, Floats, Floats]:
    right = (candidate.f1_val > 0) == (full.y_val == 1)
    if candidate.threshold is not None:
        sent = candidate.g_val > candidate.threshold
        accuracy = np.where(sent, full.right_val, right).mean()
        cost = np.where(sent, full.cost, candidate.cost).mean()
        return np.array([candidate.threshold]), np.array([cost]), np.array([accuracy])
    curve = threshold_curve(
        candidate.g_val, candidate.cost, full.cost, right.astype(float), full.right_val.astype(float)
    )
    return curve.threshold, curve.cost, curve.score


def _on_test(
    candidate: Candidate,
    full: FullAnswers,
    budget: float,
    threshold: float,
    val_accuracy: float,
    val_cost: float,
) -> Chosen:
    sent = candidate.g_test > threshold
    right = np.where(sent, full.right_test, (candidate.f1_test > 0) == (full.y_test == 1))
    cost = float(np.where(sent, full.cost, candidate.cost).mean())
    return Chosen(
        budget=budget,
        settings=candidate.settings,
        threshold=threshold,
        val_accuracy=val_accuracy,
        val_cost=val_cost,
        accuracy=float(right.mean()),
        cost=cost,
        share=float(sent.mean()),
        right=right,
    )
