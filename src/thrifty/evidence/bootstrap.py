"""Bootstrap bands of operating points, and paired comparisons of frontiers.

Rows are drawn with replacement, and every point is averaged over the same draws: two points that are right on
mostly the same rows differ by far less than each of them varies, and a *paired* bootstrap sees that. A draw is
how often each row was taken, so all points of one system are averaged with one product. Draws come in
blocks, always the same for the same seed and number of rows; memory is bounded by a block of draws and one of points.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.prices.billing import check_amount

__all__ = [
    "Band",
    "Comparison",
    "Scored",
    "bands_of",
    "check_bootstrap",
    "compare_within",
    "draws_of",
    "resampled",
    "tails",
]

_CELLS = 2**18
"""Rows x draws in one block: 2 MB of counts, which stay in a processor's cache."""

_POINTS = 1024
"""Points whose resampled means are held at once."""


@dataclass(frozen=True)
class Band:
    """Percentile intervals of each point of a frontier, point by point.

    Attributes
    ----------
    level : float
        Share of the resamples that an interval holds.
    score_low, score_high, cost_low, cost_high : ndarray of shape (n_points,)
        Ends of the intervals.
    """

    level: float
    score_low: Floats
    score_high: Floats
    cost_low: Floats
    cost_high: Floats


def check_bootstrap(level: float, n_boot: int) -> None:
    """Refuse a level outside (0, 1), and draws too few to show the tails that the level asks for."""
    if not 0 < level < 1:
        raise InvalidInputError(
            f"level must lie between 0 and 1; got {level!r}. It is the share a band holds."
        )
    fewest = int(np.ceil(2 / (1 - level)))
    if n_boot < fewest:
        raise InvalidInputError(
            f"n_boot must be at least {fewest} for a band of level {level:g}: with fewer draws none falls outside it; "
            f"got {n_boot!r}."
        )


def tails(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Both ends of the middle ``level`` of the draws, along the last axis; the draws are left in another order."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=-1, overwrite_input=True)
    return low, high


def bands_of(
    evidence: Sequence[Evidence], source: Ints, thresholds: Floats, *, level: float, n_boot: int, seed: int
) -> Band:
    """Percentile intervals of the cost and the score of some operating points."""
    check_bootstrap(level, n_boot)
    ends = np.empty((4, len(source)))
    # Points of one system stay together: each block of them pays for a pass over the system's rows.
    order = np.argsort(source, kind="stable")
    for start in range(0, len(order), _POINTS):
        block = order[start : start + _POINTS]
        cost, score = resampled(evidence, source[block], thresholds[block], n_boot=n_boot, seed=seed)
        ends[:2, block] = tails(score, level)
        ends[2:, block] = tails(cost, level)
    return Band(level, *ends)


def resampled(
    evidence: Sequence[Evidence], source: Ints, thresholds: Floats, *, n_boot: int, seed: int
) -> tuple[Floats, Floats]:
    """Mean cost and mean score of each point under each draw, each of shape (n_points, n_boot).

    ``thresholds`` has one line per point, as long as the system with the most stages needs.
    """
    averages = [
        (at, evidence[place].averages(thresholds[at, : evidence[place].n_stages]))
        for place, at in ((place, np.flatnonzero(source == place)) for place in np.unique(source))
    ]
    cost, score = np.empty((2, len(source), n_boot))
    for draws, counts in draws_of(evidence[0].n_rows, n_boot, seed):
        for at, average in averages:
            means = average.under(counts)
            cost[at, draws], score[at, draws] = means.cost, means.score
    return cost, score


def draws_of(n_rows: int, n_boot: int, seed: int) -> Iterator[tuple[slice, Floats]]:
    """How often each draw took each row, of shape (n_rows, draws in the block); the block's place among all draws."""
    rng = np.random.default_rng(seed)
    size = max(1, _CELLS // n_rows)
    for start in range(0, n_boot, size):
        width = min(size, n_boot - start)
        taken = rng.integers(0, n_rows, size=(n_rows, width))
        taken *= width
        taken += np.arange(width)
        counts = np.bincount(taken.reshape(-1), minlength=n_rows * width)
        yield slice(start, start + width), counts.reshape(n_rows, width).astype(np.float64)


class Scored(Protocol):
    """Operating points on some rows, as a frontier has them."""

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The systems."""

    @property
    def source(self) -> Ints:
        """The system of each point."""

    @property
    def thresholds(self) -> Floats:
        """Thresholds of each point."""

    @property
    def cost(self) -> Floats:
        """Mean cost of each point."""

    @property
    def score(self) -> Floats:
        """Mean quality of each point."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def within(self, budgets: Floats) -> Ints:
        """Place of the point for each budget."""


@dataclass(frozen=True)
class Comparison:
    """Score of one frontier minus that of another at the same budgets, on the same rows.

    Attributes
    ----------
    budgets : ndarray of shape (n_budgets,)
        What both may spend, by the rows their points were chosen on.
    difference, low, high : ndarray of shape (n_budgets,)
        Difference of the scores, and the ends of its paired bootstrap interval at each budget.
    cost_difference : ndarray of shape (n_budgets,)
        What the first really spends more than the second on these rows: a better score may have been paid for.
    mean, mean_low, mean_high : float
        Mean difference over the budgets, and the ends of its interval.
    level : float
        Share of the resamples that an interval holds.
    """

    budgets: Floats
    difference: Floats
    low: Floats
    high: Floats
    cost_difference: Floats
    mean: float
    mean_low: float
    mean_high: float
    level: float

    def __str__(self) -> str:
        return (
            f"mean difference over {len(self.budgets)} budgets {self.mean:+.4f} "
            f"({100 * self.level:g} % interval {self.mean_low:+.4f} to {self.mean_high:+.4f})"
        )


def compare_within(
    ours: Scored,
    others: Mapping[str, Scored],
    budgets: ArrayLike,
    *,
    level: float,
    n_boot: int,
    seed: int,
) -> dict[str, Comparison]:
    """Compare one frontier with each of the others; the same draws of rows for all of them."""
    check_bootstrap(level, n_boot)
    asked = np.array([check_amount("budgets", budget) for budget in np.ravel(np.asarray(budgets))])
    if asked.size == 0:
        raise InvalidInputError("budgets must hold at least one budget; got none.")
    sizes = {name: other.n_rows for name, other in others.items() if other.n_rows != ours.n_rows}
    if sizes:
        raise InvalidInputError(
            f"frontiers must be compared on the same rows; this one has {ours.n_rows}, the others {sizes}."
        )
    places = ours.within(asked)
    drawn = _drawn(ours, places, n_boot, seed)
    found = {}
    for name, other in others.items():
        try:
            theirs = other.within(asked)
        except InvalidInputError as error:
            raise InvalidInputError(f"others[{name!r}]: {error}") from None
        difference = ours.score[places] - other.score[theirs]
        cost_difference = ours.cost[places] - other.cost[theirs]
        draws = drawn - _drawn(other, theirs, n_boot, seed)
        found[name] = _comparison(asked, difference, cost_difference, draws, level)
    return found


def _drawn(frontier: Scored, places: Ints, n_boot: int, seed: int) -> Floats:
    """Score at each place under each draw; a point that serves several budgets is averaged once."""
    points, of_budget = np.unique(places, return_inverse=True)
    source, thresholds = frontier.source[points], frontier.thresholds[points]
    _, score = resampled(frontier.evidence, source, thresholds, n_boot=n_boot, seed=seed)
    return score[of_budget]


def _comparison(
    budgets: Floats, difference: Floats, cost_difference: Floats, draws: Floats, level: float
) -> Comparison:
    mean_low, mean_high = tails(draws.mean(axis=0), level)
    low, high = tails(draws, level)
    return Comparison(
        budgets=budgets,
        difference=difference,
        low=low,
        high=high,
        cost_difference=cost_difference,
        mean=float(difference.mean()),
        mean_low=float(mean_low),
        mean_high=float(mean_high),
        level=level,
    )
