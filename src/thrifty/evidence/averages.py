"""Means of operating points over rows: where rows go, what they pay there and how good their answers are.

A bootstrap asks for them under a thousand weightings of the rows, so what does not depend on weights is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from thrifty.arrays import Floats, Ints, Numbers

__all__ = ["Averages", "GateAverages", "Means", "RouteAverages", "route_by"]


@dataclass(frozen=True)
class Means:
    """Mean cost, share of rows that go beyond the stages, and mean quality of some operating points.

    Attributes
    ----------
    cost, share, score : ndarray of shape (n_points,) or (n_points, n_weightings)
        One row per point; one column per weighting where several were given.
    """

    cost: Floats
    share: Floats
    score: Floats


class Averages(Protocol):
    """Means of some operating points as a function of the rows' weights: what a bootstrap asks a thousand times."""

    def under(self, weights: Floats | None = None) -> Means:
        """Means under weights of shape (n_rows, n_weightings); every row once, and flat answers, if None."""


def route_by(gate: Floats, thresholds: Floats) -> Ints:
    """Stage at which each row stops, shape (n_rows,); the number of stages means that it goes beyond them."""
    stops = gate <= thresholds
    route: Ints = np.where(stops.any(axis=1), np.argmax(stops, axis=1), gate.shape[1]).astype(np.intp)
    return route


class GateAverages:
    """Means at thresholds of one gate, from costs and qualities of stopping and of going on.

    A lower threshold sends on all rows that a higher one does. So a statistic at the j-th highest threshold is what
    it is with nobody sent, plus the gains of the rows that are first sent at one of the thresholds 1..j: a sparse
    product with one entry per row, and a running sum.
    """

    def __init__(self, gate: Floats, cost: Floats, quality: Numbers, thresholds: Floats) -> None:
        self._n_rows, self._n_points = len(gate), len(thresholds)
        falling = np.argsort(-thresholds, kind="stable")
        self._place_of = np.empty(len(thresholds), dtype=np.intp)
        self._place_of[falling] = np.arange(len(thresholds))
        # The place of the highest threshold that sends the row on; the number of thresholds if none does.
        self._first = np.searchsorted(-thresholds[falling], -gate, side="right")
        self._flat_cost = cost if cost.ndim == 1 else None
        paid = np.broadcast_to(cost, (len(gate), 2))
        good = np.asarray(quality, dtype=np.float64)
        self._stop = {"share": np.zeros(len(gate)), "cost": paid[:, 0], "score": good[:, 0]}
        self._gain = {
            "share": np.ones(len(gate)),
            "cost": paid[:, 1] - paid[:, 0],
            "score": good[:, 1] - good[:, 0],
        }
        self._steps: dict[str, sparse.csr_array] = {}

    def under(self, weights: Floats | None = None) -> Means:
        """Means under some weightings of the rows."""
        total = float(self._n_rows) if weights is None else weights.sum(axis=0)
        sent = self._sums("share", weights)
        if self._flat_cost is not None:
            # Two exact products, so that "everybody" costs the same whatever the rows that stop would have paid.
            stop, go = self._flat_cost
            cost = float(stop) * (total - sent) + float(go) * sent
        else:
            cost = self._sums("cost", weights)
        return Means(cost / total, sent / total, self._sums("score", weights) / total)

    def _sums(self, name: str, weights: Floats | None) -> Floats:
        """The sum with nobody sent, plus the gains of the rows that each threshold is the first to send, summed up."""
        if weights is None:
            gains = np.bincount(self._first, self._gain[name], self._n_points + 1)[:-1]
            sums: Floats = self._stop[name].sum() + np.cumsum(gains)
        else:
            sums = self._stop[name] @ weights + np.cumsum(self._steps_of(name) @ weights, axis=0)
        return sums[self._place_of]

    def _steps_of(self, name: str) -> sparse.csr_array:
        """Gains, each in the line of the threshold at which its row is first sent on; made once."""
        if name not in self._steps:
            gain = self._gain[name]
            rows = np.flatnonzero((self._first < self._n_points) & (gain != 0))
            shape = (self._n_points, self._n_rows)
            self._steps[name] = sparse.csr_array((gain[rows], (self._first[rows], rows)), shape=shape)
        return self._steps[name]


class RouteAverages:
    """Means at thresholds of several stages, from the place, cost and quality of each row at every point."""

    def __init__(self, seen: Sequence[tuple[Ints, Floats, Numbers]], n_stages: int) -> None:
        self._cost = np.array([cost for _, cost, _ in seen])
        self._share = np.array([route == n_stages for route, _, _ in seen], dtype=np.float64)
        self._score = np.array([quality for _, _, quality in seen], dtype=np.float64)

    def under(self, weights: Floats | None = None) -> Means:
        """Means under some weightings of the rows."""
        if weights is None:
            return Means(self._cost.mean(axis=1), self._share.mean(axis=1), self._score.mean(axis=1))
        total = weights.sum(axis=0)
        return Means(*(one @ weights / total for one in (self._cost, self._share, self._score)))
