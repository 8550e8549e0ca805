"""Which operating points a page shows, and their numbers with intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Ints
from thrifty.evidence.bootstrap import check_bootstrap, resampled, tails
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.exceptions import InvalidInputError

__all__ = ["Intervals", "Shown", "evenly", "intervals_of", "shown_points"]


_NEARLY = 0.005
"""The point shown first may be this much less accurate than the best: most of the saving lies just below the top."""


@dataclass(frozen=True)
class Shown:
    """Points by rising budget.

    Attributes
    ----------
    source, threshold, budget : ndarray of shape (n_points,)
        System, threshold, and mean cost on the rows of the choice.
    efficient : ndarray of shape (n_points,), bool
        Whether the point is one of the frontier.
    start : int
        The point to show first: the certified one, else the cheapest that is nearly as good as the best. Decided by
        the numbers of the rows of the choice.
    certified : int or None
        The certified point.
    """

    source: Ints
    threshold: Floats
    budget: Floats
    efficient: NDArray[np.bool_]
    start: int
    certified: int | None


@dataclass(frozen=True)
class Intervals:
    """Ends of bootstrap intervals: of the accuracies, and of their leads over the full model (None if unknown)."""

    low: Floats
    high: Floats
    lead_low: Floats | None
    lead_high: Floats | None


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


def shown_points(frontier: Frontier, most: int, certificate: Certificate | None) -> Shown:
    """Thin the frontier, and add the certified point if it is not among what is left."""
    if most < 2:
        raise InvalidInputError(f"max_points must be at least 2, the cheapest and the dearest; got {most!r}.")
    kept = evenly(frontier, most)
    source, threshold = frontier.source[kept], frontier.threshold[kept]
    budget, efficient = frontier.chosen.cost[kept], np.ones(len(kept), dtype=bool)
    score = frontier.chosen.score[kept]
    start, certified = int(np.argmax(score >= score[-1] - _NEARLY)), None
    point = None if certificate is None else certificate.point
    if point is not None:
        _check_same_system(frontier, certificate)
        wanted = np.nan if point.threshold is None else point.threshold
        same = (source == point.source) & ((threshold == wanted) | (np.isnan(threshold) & np.isnan(wanted)))
        if same.any():
            certified = int(same.argmax())
        else:
            certified = int(np.searchsorted(budget, point.chosen_cost))
            source = np.insert(source, certified, point.source)
            threshold = np.insert(threshold, certified, wanted)
            budget = np.insert(budget, certified, point.chosen_cost)
            efficient = np.insert(efficient, certified, False)
        start = certified
    return Shown(source, threshold, budget, efficient, start, certified)


def intervals_of(frontier: Frontier, shown: Shown, *, level: float, n_boot: int, seed: int) -> Intervals:
    """Percentile intervals over the rows; leads are paired, both answers being averaged over the same draws."""
    check_bootstrap(level, n_boot)
    direct = [
        place
        for place, one in enumerate(frontier.outcomes)
        if isinstance(one, RowOutcomes) and one.sends_to_full
    ][:1]
    # A gate that stands right before the full model and is wide open is the full model.
    source = np.r_[shown.source, np.array(direct, dtype=np.intp)]
    threshold = np.r_[shown.threshold, np.full(len(direct), -np.inf)]
    _, score = resampled(frontier.outcomes, source, threshold, n_boot=n_boot, seed=seed)
    lead_low = lead_high = None
    if direct:
        lead_low, lead_high = tails(score[:-1] - score[-1], level)
        score = score[:-1]
    low, high = tails(score, level)
    return Intervals(low, high, lead_low, lead_high)


def _check_same_system(frontier: Frontier, certificate: Certificate | None) -> None:
    point = None if certificate is None else certificate.point
    if point is None:
        return
    known = 0 <= point.source < len(frontier.outcomes)
    if not known or frontier.outcomes[point.source].settings != point.settings:
        raise InvalidInputError(
            f"the certificate is for system {point.source} with settings {point.settings}, which is not the "
            f"frontier's. Certify a frontier made from the outcomes of the same systems in the same order."
        )
