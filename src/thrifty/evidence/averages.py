"""Averages over rows as a function of the rows' weights: what a bootstrap asks for a thousand times.

An operating point pays ``cost`` and scores ``score`` on every row. The thresholds of one gate differ only in
the rows they send on, and a lower threshold sends on all that a higher one does. So a statistic at the
j-th highest threshold is what it is with nobody sent, plus the gains of the rows that are first sent at
one of the thresholds 1..j: a sparse product with one entry per row, and a running sum.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Floats

__all__ = ["Averages", "Means", "Statistic"]


@dataclass(frozen=True)
class Means:
    """Mean spend, share of rows sent on and mean score of some operating points.

    Attributes
    ----------
    cost, share, score : ndarray of shape (n_points,) or (n_points, n_weightings)
        One row per point; one column per weighting where several were given.
    """

    cost: Floats
    share: Floats
    score: Floats


@dataclass(frozen=True)
class Statistic:
    """A number per row that depends on whether the row is sent on; either side may be the same for all rows."""

    stop: NDArray[np.generic] | float
    go: NDArray[np.generic] | float

    @property
    def is_constant(self) -> bool:
        """Whether neither side depends on the row."""
        return np.ndim(self.stop) == 0 and np.ndim(self.go) == 0

    def gain(self, n_rows: int) -> Floats:
        """What sending adds, for each row."""
        stop, go = np.asarray(self.stop, dtype=np.float64), np.asarray(self.go, dtype=np.float64)
        return np.broadcast_to(go - stop, (n_rows,))


class Averages:
    """Means of the operating points that some thresholds of one gate are, for any weights of the rows.

    Parameters
    ----------
    g : ndarray of shape (n_samples,)
        Gate scores; a row is sent on where ``g > threshold``.
    cost, score : Statistic
        What is averaged.
    thresholds : ndarray of shape (n_points,)
        In any order.
    """

    def __init__(self, g: Floats, cost: Statistic, score: Statistic, thresholds: Floats) -> None:
        self._n_rows, self._n_points = len(g), len(thresholds)
        falling = np.argsort(-thresholds, kind="stable")
        self._place_of = np.empty(len(thresholds), dtype=np.intp)
        self._place_of[falling] = np.arange(len(thresholds))
        # The place of the highest threshold that sends the row on; the number of thresholds if none does.
        self._first = np.searchsorted(-thresholds[falling], -g, side="right")
        self._statistics = {"share": Statistic(0.0, 1.0), "cost": cost, "score": score}
        self._steps: dict[str, sparse.csr_array] = {}

    def under(self, weights: Floats | None = None) -> Means:
        """Means under weights of shape (n_samples, n_weightings); every row once, and flat answers, if None."""
        total = float(self._n_rows) if weights is None else weights.sum(axis=0)
        sent, price = self._sums("share", weights), self._statistics["cost"]
        if price.is_constant:
            # Two exact products, so that "everybody" costs the same whatever the rows that stop would have paid.
            cost = float(price.stop) * (total - sent) + float(price.go) * sent
        else:
            cost = self._sums("cost", weights)
        return Means(cost / total, sent / total, self._sums("score", weights) / total)

    def _sums(self, name: str, weights: Floats | None) -> Floats:
        """The sum with nobody sent, plus the gains of the rows that each threshold is the first to send, summed up."""
        statistic = self._statistics[name]
        stop = np.broadcast_to(np.asarray(statistic.stop, dtype=np.float64), (self._n_rows,))
        if weights is None:
            gains = np.bincount(self._first, statistic.gain(self._n_rows), self._n_points + 1)[:-1]
            sums: Floats = stop.sum() + np.cumsum(gains)
        else:
            sums = stop @ weights + np.cumsum(self._steps_of(name) @ weights, axis=0)
        return sums[self._place_of]

    def _steps_of(self, name: str) -> sparse.csr_array:
        """Gains, each in the line of the threshold at which its row is first sent on; made once."""
        if name not in self._steps:
            gain = self._statistics[name].gain(self._n_rows)
            rows = np.flatnonzero((self._first < self._n_points) & (gain != 0))
            shape = (self._n_points, self._n_rows)
            self._steps[name] = sparse.csr_array((gain[rows], (self._first[rows], rows)), shape=shape)
        return self._steps[name]
