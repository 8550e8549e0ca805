"""The efficient points among many: those that no cheaper point matches in score.

A frontier is *chosen* on one set of rows and may then be scored on others (``on``). The points stay as chosen, and so
does the answer to "what do I get for this budget": asking by the numbers of the new rows would choose on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Ints
from thrifty.evidence.averages import Means
from thrifty.evidence.bootstrap import Band, bands_of
from thrifty.evidence.comparison import Comparison, compare_within
from thrifty.evidence.efficiency import SLACK, best_within, efficient
from thrifty.evidence.operating_point import OperatingPoint
from thrifty.evidence.outcomes import Outcomes
from thrifty.evidence.views import draw, frame
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import check_amount

__all__ = ["Frontier", "best_within", "efficient"]


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """Efficient operating points of many systems, by rising cost; make one with ``from_outcomes``.

    Attributes
    ----------
    outcomes : tuple of Outcomes
        The systems, on the rows that ``means`` are about.
    source : ndarray of shape (n_points,)
        The system each point belongs to.
    threshold : ndarray of shape (n_points,)
        The gate's threshold; NaN marks a point that is not a threshold of one gate.
    means : Means
        Cost, share sent and score of each point on these rows; also as ``cost``, ``share`` and ``score``.
    chosen : Means
        The same on the rows the points were chosen on: cost and score rise from point to point.
    held_out : bool
        Whether these rows are others than those the points were chosen on.
    compares_with_full : bool
        Whether the score is "not worse than f0" in place of "right".
    """

    outcomes: tuple[Outcomes, ...]
    source: Ints
    threshold: Floats
    means: Means
    chosen: Means
    held_out: bool = False
    compares_with_full: bool = False

    @classmethod
    def from_outcomes(cls, outcomes: Sequence[Outcomes], *, against_full: bool = False) -> "Frontier":
        """Keep the efficient ones among all operating points of some systems on the same rows.

        Parameters
        ----------
        outcomes : sequence of RowOutcomes or PointOutcomes
            One per fitted system (or point of a cascade).
        against_full : bool, default=False
            Score a row by whether the answer is not worse than f0's, in place of whether it is right: the frontier a
            certificate of "loses at most so much against f0" walks along.
        """
        sources = _sources(outcomes, against_full)
        points = [one.every_point() for one in sources]
        source = np.repeat(np.arange(len(points)), [len(threshold) for threshold, _ in points])
        threshold = np.concatenate([threshold for threshold, _ in points])
        means = Means(
            np.concatenate([one.cost for _, one in points]),
            np.concatenate([one.share for _, one in points]),
            np.concatenate([one.score for _, one in points]),
        )
        # Costs that differ in their last digits only are equal; counts of right answers are exact as they are.
        scale = float(np.abs(means.cost).max()) or 1.0
        kept = efficient(np.round(means.cost / scale, 12), means.score)
        means = Means(means.cost[kept], means.share[kept], means.score[kept])
        return cls(sources, source[kept], threshold[kept], means, means, compares_with_full=against_full)

    def on(self, outcomes: Sequence[Outcomes]) -> "Frontier":
        """The very same points, same system and same threshold, on other rows.

        They may not be efficient there; they are kept as chosen, in the same order.

        Parameters
        ----------
        outcomes : sequence of RowOutcomes or PointOutcomes
            The same systems in the same order as this frontier was made from.
        """
        sources = _sources(outcomes, self.compares_with_full)
        if len(sources) != len(self.outcomes):
            raise InvalidInputError(
                f"the frontier was made from {len(self.outcomes)} systems; got the outcomes of {len(sources)}. "
                f"Give those of the same systems, in the same order."
            )
        used = np.unique(self.source)
        for place in used:
            if sources[place].identity != self.outcomes[place].identity:
                raise InvalidInputError(
                    f"outcomes[{place}] must be of the same system as the frontier's; expected "
                    f"{self.outcomes[place].identity}, got {sources[place].identity}. Keep the order of the systems."
                )
        means = _means_at(sources, self.source, self.threshold)
        held_out = not all(sources[place].is_same_measurement(self.outcomes[place]) for place in used)
        return replace(self, outcomes=sources, means=means, held_out=held_out)

    # -- questions -----------------------------------------------------------------------------

    def best(self, *, budget: float) -> OperatingPoint:
        """The point for a mean spend of at most ``budget``: the best-scoring one on the rows it was chosen on."""
        return self[int(self.within(np.array([check_amount("budget", budget)]))[0])]

    def cheapest(self, *, score: float) -> OperatingPoint:
        """The cheapest point whose score, on the rows it was chosen on, is at least ``score``."""
        place = int(np.searchsorted(self.chosen.score, float(score) - SLACK * abs(score)))
        if place < len(self):
            return self[place]
        dearest = (
            f"the best point scores {self.chosen.score[-1]:.6g}, at a mean cost of {self.chosen.cost[-1]:.6g}"
        )
        raise InvalidInputError(
            f"no point reaches a score of {score!r}: {dearest}. Ask for less, or add systems."
        )

    def area(
        self, low: float | None = None, high: float | None = None, *, below: float | None = None
    ) -> float:
        """Mean score over all budgets from ``low`` to ``high``.

        For a budget between two points the cheaper one is used, so the score is a step function of the budget. Beyond
        the dearest point nothing more can be bought, and the score stays; below the cheapest there is no score.

        Parameters
        ----------
        low, high : float, optional
            Ends of the range; by default the costs of the cheapest and the dearest point.
        below : float, optional
            Score for budgets that no point affords (that of a constant answer, say); without it they are refused.
        """
        low = float(self.chosen.cost[0]) if low is None else check_amount("low", low)
        high = max(float(self.chosen.cost[-1]), low) if high is None else check_amount("high", high)
        if high < low:
            raise InvalidInputError(f"high must be at least low; got low={low!r} and high={high!r}.")
        if below is None and self.chosen.cost[0] > low * (1 + SLACK):
            raise InvalidInputError(
                f"low must be at least {self.chosen.cost[0]:.6g}, the mean cost of the cheapest point; got {low!r}. "
                f"Raise it, or say with `below` what a smaller budget scores."
            )
        return _mean_of_steps(self.chosen.cost, self.score, low, high, below)

    def band(self, level: float = 0.95, *, n_boot: int = 1000, seed: int = 0) -> Band:
        """Bootstrap intervals over rows of each point's score and cost; see ``policy.bootstrap``.

        The points are held as they are. On the rows they were chosen on their scores are too good, and the band
        does not correct that: ask for the band of ``frontier.on(other_rows)``.
        """
        return bands_of(self.outcomes, self.source, self.threshold, level=level, n_boot=n_boot, seed=seed)

    def compare(
        self,
        others: Mapping[str, "Frontier"],
        budgets: ArrayLike,
        *,
        level: float = 0.95,
        n_boot: int = 1000,
        seed: int = 0,
    ) -> dict[str, Comparison]:
        """Score of this frontier minus that of each other one at the same budgets, with paired bootstrap bands.

        Parameters
        ----------
        others : dict of str to Frontier
            Frontiers on the same rows, in the same order of rows.
        budgets : array-like of shape (n_budgets,)
            Every frontier uses, for each budget, the point that ``best`` gives.
        level, n_boot, seed
            Share of the draws an interval holds, number of draws, and their seed.
        """
        return compare_within(self, others, budgets, level=level, n_boot=n_boot, seed=seed)

    def losses_against_full(self) -> Ints:
        """On how many of these rows f0 is right and the point is wrong, for each point."""
        if self.compares_with_full:
            score = self.score
        else:
            used = set(self.source.tolist())
            judged = [one.against_full() if place in used else one for place, one in enumerate(self.outcomes)]
            score = _means_at(judged, self.source, self.threshold).score
        return np.rint(self.n_rows * (1.0 - score)).astype(np.intp)

    def plot(self, ax: Any = None, **line: Any) -> Any:
        """Draw score against mean cost on matplotlib axes and return them; ``line`` goes to ``ax.plot``."""
        return draw(self, ax, **line)

    def to_frame(self) -> Any:
        """Return a pandas data frame with one line per point."""
        return frame(self)

    def within(self, budgets: Floats) -> Ints:
        """Place of the point for each budget: the dearest it affords on the rows the points were chosen on."""
        place = np.searchsorted(self.chosen.cost, budgets * (1 + SLACK), side="right") - 1
        if (place < 0).any():
            cheapest = f"{self.chosen.cost[0]:.6g}, the mean cost of the cheapest point"
            raise InvalidInputError(
                f"budget must be at least {cheapest} (its score is {self.chosen.score[0]:.6g}); "
                f"got {float(budgets.min())!r}. Raise the budget, or add systems that buy less."
            )
        return place

    # -- numbers -------------------------------------------------------------------------------

    @property
    def cost(self) -> Floats:
        """Mean spend per row of each point, on these rows."""
        return self.means.cost

    @property
    def score(self) -> Floats:
        """Mean score of each point, on these rows."""
        return self.means.score

    @property
    def share(self) -> Floats:
        """Share of rows that each point sends on, on these rows."""
        return self.means.share

    @property
    def n_rows(self) -> int:
        """Rows that the numbers are means over."""
        return self.outcomes[0].n_rows

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[OperatingPoint]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: int) -> OperatingPoint:
        source, threshold = int(self.source[place]), float(self.threshold[place])
        return OperatingPoint(
            cost=float(self.means.cost[place]),
            score=float(self.means.score[place]),
            share=float(self.means.share[place]),
            threshold=None if np.isnan(threshold) else threshold,
            source=source,
            features=self.outcomes[source].features,
            settings=dict(self.outcomes[source].settings),
            chosen_cost=float(self.chosen.cost[place]),
            chosen_score=float(self.chosen.score[place]),
        )

    def __repr__(self) -> str:
        rows = f"{self.n_rows:,} {'other ' if self.held_out else ''}rows"
        points = f"{len(self):,} point{'' if len(self) == 1 else 's'}"
        systems = f"{len(self.outcomes):,} system{'' if len(self.outcomes) == 1 else 's'}"
        cheap, dear = self[int(np.argmin(self.cost))], self[int(np.argmax(self.cost))]
        return (
            f"Frontier({points} of {systems} on {rows}: "
            f"score {cheap.score:.4f} at cost {cheap.cost:.4g} to {dear.score:.4f} at {dear.cost:.4g})"
        )


def _sources(outcomes: Sequence[Outcomes], against_full: bool) -> tuple[Outcomes, ...]:
    sources = tuple(outcomes)
    if not sources:
        raise InvalidInputError("a frontier needs the outcomes of at least one system; got none.")
    sizes = sorted({one.n_rows for one in sources})
    if len(sizes) > 1:
        raise InvalidInputError(
            f"the systems of a frontier must be judged on the same rows; got outcomes of {sizes} rows."
        )
    return tuple(one.against_full() for one in sources) if against_full else sources


def _means_at(outcomes: Sequence[Outcomes], source: Ints, threshold: Floats) -> Means:
    cost, share, score = np.empty((3, len(source)))
    for place in np.unique(source):
        at = source == place
        means = outcomes[place].averages(threshold[at]).under()
        cost[at], share[at], score[at] = means.cost, means.share, means.score
    return Means(cost, share, score)


def _mean_of_steps(cost: Floats, score: Floats, low: float, high: float, below: float | None) -> float:
    """Mean over [low, high] of the score of the last point whose cost is reached; ``below`` before the first."""
    edges = np.unique(np.clip(np.r_[low, cost, high], low, high))
    n_reached = np.searchsorted(cost, edges * (1 + SLACK), side="right")
    steps = score[np.maximum(n_reached - 1, 0)]
    if below is not None:
        steps = np.where(n_reached == 0, below, steps)
    return float(steps[0] if low == high else steps[:-1] @ np.diff(edges) / (high - low))
