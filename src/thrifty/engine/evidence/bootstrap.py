"""Paired bootstrap of operating points: resamples of rows, and the means of every point under them.

Rows are drawn with replacement, and all points are averaged over the same draws: two points that are right on mostly
the same rows differ by far less than each of them varies. A draw is the number of times each row was taken, so all
points of a system are averaged with one matrix product. Draws come in blocks, the same for the same seed and number of
rows, so memory is bounded.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.evidence import Evidence
from thrifty.errors import InvalidInputError

__all__ = ["check_bootstrap", "draws_of", "resampled", "tails"]

_CELLS = 2**18
"""Rows times draws in one block: 2 MB of counts, which fit into a processor's cache."""


def check_bootstrap(level: float, n_boot: int) -> None:
    """Check that the level is in (0, 1), and that there are enough draws for its tails."""
    if not 0 < level < 1:
        raise InvalidInputError(
            f"level must lie between 0 and 1; got {level!r}. It is the share a band holds."
        )
    min_boot = int(np.ceil(2 / (1 - level)))
    if n_boot < min_boot:
        raise InvalidInputError(
            f"n_boot must be at least {min_boot} for a band of level {level:g}: with fewer draws none falls outside "
            f"it; got {n_boot!r}."
        )


def tails(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Percentile interval of the draws along the last axis; reorders the draws in place."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=-1, overwrite_input=True)
    return low, high


def resampled(
    evidence: Sequence[Evidence], source: Ints, thresholds: Floats, *, n_boot: int, seed: int
) -> tuple[Floats, Floats]:
    """Mean cost and mean score of each point under each draw, each of shape (n_points, n_boot).

    ``thresholds`` has one line per point, as long as the system with the most stages needs.
    """
    averages = []
    for place in np.unique(source):
        points = np.flatnonzero(source == place)
        system = evidence[place]
        averages.append((points, system.averages(thresholds[points, : system.n_parameters])))
    cost, score = np.empty((2, len(source), n_boot))
    for draws, counts in draws_of(evidence[0].n_units, n_boot, seed):
        for points, average in averages:
            means = average.under(counts)
            cost[points, draws], score[points, draws] = means.cost, means.score
    return cost, score


def draws_of(n_rows: int, n_boot: int, seed: int) -> Iterator[tuple[slice, Floats]]:
    """Counts of each row in each draw, of shape (n_rows, draws in the block), and the place of the block."""
    rng = np.random.default_rng(seed)
    size = max(1, _CELLS // n_rows)
    for start in range(0, n_boot, size):
        width = min(size, n_boot - start)
        taken = rng.integers(0, n_rows, size=(n_rows, width))
        taken *= width
        taken += np.arange(width)
        counts = np.bincount(taken.reshape(-1), minlength=n_rows * width)
        yield slice(start, start + width), counts.reshape(n_rows, width).astype(np.float64)
