"""Which operating points a page shows, and their numbers with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Numbers
from thrifty.errors import InvalidInputError
from thrifty.evidence.bootstrap import check_bootstrap, resampled, tails
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.evidence.frontier import Frontier, OperatingPoint

__all__ = ["Intervals", "Shown", "evenly", "intervals_of", "nearly_best", "shown_points"]


_NEARLY = 0.005
"""The point shown first may be this much less accurate than the best: most of the saving lies just below the top."""


@dataclass(frozen=True)
class Shown:
    """Points by rising budget.

    Attributes
    ----------
    source, budget : ndarray of shape (n_points,)
        System, and mean cost on the rows of the choice.
    thresholds : ndarray of shape (n_points, n_stages)
        Thresholds, as the frontier has them.
    efficient : ndarray of shape (n_points,), bool
        Whether the point is one of the frontier.
    """

    source: Ints
    thresholds: Floats
    budget: Floats
    efficient: Bools

    def place_of(self, point: OperatingPoint) -> int | None:
        """Where a point is, if it is shown."""
        same = (self.source == point.source) & _same_thresholds(self.thresholds, point)
        return int(same.argmax()) if same.any() else None

    def with_point(self, point: OperatingPoint, efficient: bool) -> "Shown":
        """Add a point in the order of the budgets."""
        at = int(np.searchsorted(self.budget, point.chosen_cost))
        return Shown(
            np.insert(self.source, at, point.source),
            np.insert(self.thresholds, at, _padded(point, self.thresholds.shape[1]), axis=0),
            np.insert(self.budget, at, point.chosen_cost),
            np.insert(self.efficient, at, efficient),
        )


@dataclass(frozen=True)
class Intervals:
    """Ends of bootstrap intervals of scores, of leads over the full model (None if unknown), of cost minus score."""

    low: Floats
    high: Floats
    lead_low: Floats | None
    lead_high: Floats | None
    total_low: Floats
    total_high: Floats


def evenly(frontier: Frontier, most: int) -> Ints:
    """At most ``most`` points: those that evenly spaced budgets lead to, the cheapest and the dearest included."""
    if len(frontier) <= most:
        return np.arange(len(frontier))
    cost = frontier.chosen.cost
    kept = np.array([0, len(cost) - 1])
    # Where points lie close together several budgets lead to one and the same; more budgets then find more points.
    for n_budgets in most * 2 ** np.arange(8):
        finer = np.unique(frontier.within(np.linspace(cost[0], cost[-1], n_budgets)))
        if len(finer) > most:
            break
        kept = finer
    return kept


def shown_points(frontier: Frontier, most: int, marked: Mapping[str, OperatingPoint | None]) -> Shown:
    """Thin the frontier, and add the points that are marked (deployed, certified) if they are not left in it."""
    if most < 2:
        raise InvalidInputError(f"max_points must be at least 2, the cheapest and the dearest; got {most!r}.")
    kept = evenly(frontier, most)
    shown = Shown(
        frontier.source[kept],
        frontier.thresholds[kept],
        frontier.chosen.cost[kept],
        np.ones(len(kept), dtype=bool),
    )
    for mark, point in marked.items():
        if point is None:
            continue
        _check_same_system(frontier, mark, point)
        if shown.place_of(point) is None:
            chosen = (frontier.source == point.source) & _same_thresholds(frontier.thresholds, point)
            shown = shown.with_point(point, efficient=bool(chosen.any()))
    return shown


def nearly_best(frontier: Frontier, shown: Shown) -> int:
    """The cheapest shown point that is nearly as good as the best, by the numbers of the rows of the choice."""
    good = frontier.chosen.score >= frontier.chosen.score[-1] - _NEARLY
    return int(np.argmax(shown.budget >= frontier.chosen.cost[good][0]))


def intervals_of(frontier: Frontier, shown: Shown, *, level: float, n_boot: int, seed: int) -> Intervals:
    """Percentile intervals over the rows; leads are paired, both answers being averaged over the same draws."""
    check_bootstrap(level, n_boot)
    full = next((one.full_quality for one in frontier.evidence if one.full_quality is not None), None)
    evidence, source, thresholds = frontier.evidence, shown.source, shown.thresholds
    if full is not None:
        # The full model by itself is one more system, with a single point.
        alone = _alone(frontier.evidence, full)
        source = np.r_[source, len(evidence)]
        thresholds = np.vstack([thresholds, np.full(thresholds.shape[1], 0.5)])
        evidence = (*evidence, alone)
    cost, score = resampled(evidence, source, thresholds, n_boot=n_boot, seed=seed)
    lead_low = lead_high = None
    if full is not None:
        lead_low, lead_high = tails(score[:-1] - score[-1], level)
        cost, score = cost[:-1], score[:-1]
    low, high = tails(score, level)
    return Intervals(low, high, lead_low, lead_high, *tails(cost - score, level))


def _alone(evidence: tuple[Evidence, ...], full: Numbers) -> Evidence:
    """The full model as a system; of documents, judged by the orders that its scores give."""
    alone = Evidence.of_point(np.zeros(len(full)), full, np.ones(len(full)))
    ranked = next((one for one in evidence if isinstance(one, QueryEvidence)), None)
    if ranked is None or ranked.task is None:
        return alone
    scores = np.column_stack([full, full]).astype(np.float64)
    return QueryEvidence.of_documents(alone, ranked.task, ranked.targets, scores)


def _same_thresholds(thresholds: Floats, point: OperatingPoint) -> Bools:
    wanted = _padded(point, thresholds.shape[1])
    same: Bools = ((thresholds == wanted) | (np.isnan(thresholds) & np.isnan(wanted))).all(axis=1)
    return same


def _padded(point: OperatingPoint, width: int) -> Floats:
    """The point's thresholds as a frontier holds them; a system as it is has a gate at 1/2 on top of "was sent"."""
    own = point.thresholds
    if not own:
        own = (0.5,) if point.threshold is None else (point.threshold,)
    padded: Floats = np.r_[own, np.full(width - len(own), np.nan)]
    return padded


def _check_same_system(frontier: Frontier, mark: str, point: OperatingPoint) -> None:
    known = 0 <= point.source < len(frontier.evidence)
    if not known or frontier.evidence[point.source].settings != point.settings:
        raise InvalidInputError(
            f"the {mark} point is of system {point.source} with settings {point.settings}, which is not the "
            f"frontier's. Give a point of the same systems in the same order."
        )
