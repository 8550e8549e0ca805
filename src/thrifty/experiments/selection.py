"""Choose on validation rows, report on test rows: the rule every experiment follows.

An experiment fits many settings, each reduced to its scores on validation and test rows. Every threshold of every
candidate is an operating point; for a budget the point with the best validation accuracy among those the budget
affords *on validation rows* is taken, and only then looked at on the test rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Bools
from thrifty.evidence.frontier import best_within
from thrifty.experiments.candidates import AnyCandidate, Candidate, FullAnswers, PointCandidate
from thrifty.report.tradeoff import Curve

__all__ = [
    "Candidate",
    "Chosen",
    "FullAnswers",
    "PointCandidate",
    "by_budget",
    "choose",
    "curve_of",
    "gap",
    "numbers_of",
    "sentences_of",
    "share_budgets",
]

Pairs = Sequence[tuple[str, str]]


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


def choose(candidates: Sequence[AnyCandidate], full: FullAnswers, budgets: Iterable[float]) -> list[Chosen]:
    """Best operating point on validation rows for each budget that any point affords, scored on test rows."""
    found = [candidate.outcomes(full)[0].every_point() for candidate in candidates]
    owner = np.repeat(np.arange(len(found)), [len(threshold) for threshold, _ in found])
    threshold = np.concatenate([cuts for cuts, _ in found])
    cost = np.concatenate([means.cost for _, means in found])
    accuracy = np.concatenate([means.score for _, means in found])
    chosen = []
    for budget in budgets:
        best = best_within(cost, accuracy, budget)
        if best is not None:
            cut = float(threshold[best])
            right, paid, sent = candidates[owner[best]].on_test(full, cut)
            chosen.append(
                Chosen(
                    budget=float(budget),
                    settings=candidates[owner[best]].settings,
                    threshold=cut,
                    val_accuracy=float(accuracy[best]),
                    val_cost=float(cost[best]),
                    accuracy=float(right.mean()),
                    cost=float(paid.mean()),
                    share=float(sent.mean()),
                    right=right,
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


def share_budgets(ours: Sequence[Chosen], theirs: Sequence[Chosen]) -> bool:
    """Whether there is a budget that both can spend."""
    return not {point.budget for point in ours}.isdisjoint(point.budget for point in theirs)


def _gaps(chosen: Mapping[str, Sequence[Chosen]], pairs: Pairs) -> list[tuple[str, str, tuple[float, float]]]:
    return [
        (a, b, gap(chosen[a], chosen[b]))
        for a, b in pairs
        if a in chosen and b in chosen and share_budgets(chosen[a], chosen[b])
    ]


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
