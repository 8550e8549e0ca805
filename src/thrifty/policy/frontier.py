"""The efficient points among many: those that no cheaper point matches in score.

A frontier is *chosen* on one set of rows and may then be scored on others (``on``). The points stay as chosen, and so
does the answer to "what do I get for this budget": asking by the numbers of the new rows would choose on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.exceptions import InvalidInputError
from thrifty.policy.averages import Means
from thrifty.policy.operating_point import OperatingPoint
from thrifty.policy.outcomes import Outcomes

__all__ = ["Frontier", "best_within", "efficient"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# A mean over rows may miss a round number by its last digit.
_SLACK = 1e-12


def efficient(cost: ArrayLike, score: ArrayLike) -> Ints:
    """Indices of the efficient points, by rising cost; each scores higher than every cheaper one.

    One sort and one running maximum: n log n for n points.
    """
    cost, score = np.asarray(cost, dtype=np.float64), np.asarray(score, dtype=np.float64)
    order = np.lexsort((-score, cost))
    best_before = np.r_[-np.inf, np.maximum.accumulate(score[order])[:-1]]
    kept: Ints = order[score[order] > best_before]
    return kept


def best_within(cost: ArrayLike, score: ArrayLike, budget: float) -> int | None:
    """Index of the best-scoring point that costs at most ``budget``; the cheapest of equals; None if there is none."""
    cost, score = np.asarray(cost, dtype=np.float64), np.asarray(score, dtype=np.float64)
    affordable = np.flatnonzero(cost <= budget * (1 + _SLACK))
    if affordable.size == 0:
        return None
    return int(affordable[np.lexsort((cost[affordable], -score[affordable]))[0]])


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
        held_out = not any(sources[place].is_same_measurement(self.outcomes[place]) for place in used)
        return replace(self, outcomes=sources, means=means, held_out=held_out)

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
        cheap, dear = self[int(np.argmin(self.cost))], self[int(np.argmax(self.cost))]
        return (
            f"Frontier({points} of {len(self.outcomes)} systems on {rows}: "
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
