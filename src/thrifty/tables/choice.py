"""Which system, and where to cut its gate: for a budget, or for a loss against f0 that must be proved.

For a budget, every system is cut where it spends just that; where scores tie, a share of the tied rows is sent on, and
a row counts as right with the probability that it is. Several are usually as good as the best one, as far as the
rows can tell; among those within a standard error of it the *steadiest* is taken, the one whose cost varies least from
row to row, because its bill is the easiest to foresee. Spending everything is no aim in itself: if a cheaper point of
the frontier is better by more than two standard errors, the rest of the budget stays unspent. Two, because that point
is the best of thousands on these very rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.chain.system import Tie
from thrifty.evidence.certificate import Certificate, certify
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.evidence.threshold import threshold_curve

__all__ = ["Choice", "chance_sent", "choose_for_budget", "choose_for_loss"]


_EQUAL = 1.0  # standard errors within which two systems count as equally good


@dataclass(frozen=True)
class Choice:
    """A system and a threshold of its gate.

    Attributes
    ----------
    source : int
        Place of the system in the list of outcomes.
    threshold : float
        Rows with ``g > threshold`` go to f0.
    tie : Tie, optional
        Rows of which a share goes to f0.
    spends_all : bool
        Whether the threshold is there to spend a budget, and may be moved so that it does so more exactly.
    certificate : Certificate, optional
        What was proved.
    """

    source: int
    threshold: float
    spends_all: bool = False
    certificate: Certificate | None = None
    tie: Tie | None = None


@dataclass(frozen=True)
class _Cut:
    source: int
    threshold: float
    tie: Tie | None
    right: Floats
    spread: float

    @property
    def score(self) -> float:
        return float(self.right.mean())


def choose_for_budget(outcomes: Sequence[RowOutcomes], frontier: Frontier, budget: float) -> Choice:
    """The steadiest of the systems that are as good as the best one at this mean cost."""
    thrifty_point = frontier.best(budget=budget)
    cuts = [
        _spending(one, place, budget) for place, one in enumerate(outcomes) if np.min(one.stop_cost) <= budget
    ]
    best = max(cuts, key=lambda cut: cut.score)
    cheaper = _cut(
        outcomes[thrifty_point.source], thrifty_point.source, float(thrifty_point.threshold or 0.0)
    )
    if cheaper.score - best.score > 2 * _standard_error(cheaper.right, best.right):
        return Choice(cheaper.source, cheaper.threshold)
    equals = [
        cut for cut in cuts if best.score - cut.score <= _EQUAL * _standard_error(cut.right, best.right)
    ]
    # The steadiest; of equally steady ones the best.
    chosen = min(equals, key=lambda cut: (round(cut.spread, 9), -cut.score))
    return Choice(chosen.source, chosen.threshold, spends_all=True, tie=chosen.tie)


def choose_for_loss(
    outcomes: Sequence[RowOutcomes], proving: Sequence[RowOutcomes], max_loss: float, confidence: float
) -> Choice:
    """The cheapest point that is proved, on rows of its own, to lose at most so much against f0."""
    candidates = Frontier.from_outcomes(outcomes, against_full=True).on(proving)
    certificate = certify(candidates, max_loss=max_loss, confidence=confidence)
    point = certificate.point
    if point is None or point.threshold is None:  # every gate here can be opened wide, so there is a point
        return Choice(0, float("-inf"), certificate=certificate)
    # The score of that frontier is "not worse than f0"; people want to read an accuracy.
    right = _cut(proving[point.source], point.source, point.threshold)
    chosen = _cut(outcomes[point.source], point.source, point.threshold)
    told = replace(point, score=right.score, chosen_score=chosen.score)
    return Choice(point.source, point.threshold, certificate=replace(certificate, point=told))


def chance_sent(g: Floats, threshold: float, tie: Tie | None = None) -> Floats:
    """Probability that a row with each of these scores is sent on, over the chance that settles ties."""
    sent: Floats = (g > threshold).astype(np.float64)
    if tie is not None:
        sent[(g > tie.lower) & (g <= threshold)] = tie.share
    return sent


def _spending(outcomes: RowOutcomes, source: int, budget: float) -> _Cut:
    curve = threshold_curve(outcomes.g, outcomes.stop_cost, outcomes.go_cost)
    place, share = curve.mixing(budget)
    tie = Tie(float(curve.threshold[place + 1]), share) if share else None
    return _cut(outcomes, source, float(curve.threshold[place]), tie)


def _cut(outcomes: RowOutcomes, source: int, threshold: float, tie: Tie | None = None) -> _Cut:
    sent = chance_sent(outcomes.g, threshold, tie)

    def expected(stop: Any, go: Any) -> Floats:
        found: Floats = sent * go + (1.0 - sent) * stop
        return found

    stop, go = np.asarray(outcomes.stop_cost), np.asarray(outcomes.go_cost)
    mean = expected(stop, go).mean()
    spread = np.sqrt(expected((stop - mean) ** 2, (go - mean) ** 2).mean())
    return _Cut(source, threshold, tie, expected(outcomes.stop_right, outcomes.go_right), float(spread))


def _standard_error(one: Floats, other: Floats) -> float:
    """Of the difference of two accuracies on the same rows."""
    difference = one - other
    return float(difference.std() / np.sqrt(len(difference)))
