"""Means of operating points under any weights of the rows, such as the counts of a bootstrap.

``GateAverages`` and ``RouteAverages`` keep what does not depend on the weights.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from thrifty.arrays import Bools, Floats, Numbers


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


class GateAverages:
    """Means at thresholds of one gate, from costs and qualities of stopping and of going on.

    A lower threshold sends on all rows that a higher one does. So a statistic at the j-th highest threshold is what
    it is with no row sent, plus the gains of the rows that are first sent at one of the thresholds 1..j: a sparse
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

    def under(self, weights: Floats | None = None) -> "Means":
        """Means under weights of shape (n_rows, n_weightings); every row once, and flat means, if None."""
        total = float(self._n_rows) if weights is None else weights.sum(axis=0)
        sent = self._sums("share", weights)
        if self._flat_cost is not None:
            # Two exact products, so that sending all rows costs the same for any cost of stopping.
            stop, go = self._flat_cost
            cost = float(stop) * (total - sent) + float(go) * sent
        else:
            cost = self._sums("cost", weights)
        return Means(cost / total, sent / total, self._sums("score", weights) / total)

    def _sums(self, name: str, weights: Floats | None) -> Floats:
        """The sum with no row sent, plus the gains of the rows that each threshold is the first to send, summed up."""
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
    """Means at thresholds of several stages, from the cost, share sent and quality of each row at every point.

    Parameters
    ----------
    cost, share, score : ndarray of shape (n_points, n_rows)
        Summands of each row; of a query, the sums over its documents, and the measure of its order.
    size, is_known : ndarray of shape (n_rows,), optional
        Documents of each query, which cost and share are means over, and the queries whose order has a measure.
    """

    def __init__(
        self,
        cost: Floats,
        share: Any,
        score: Any,
        size: Floats | None = None,
        is_known: Bools | None = None,
    ) -> None:
        self._cost, self._share, self._score = cost, share.astype(np.float64), score.astype(np.float64)
        self._size, self._is_known = size, is_known

    def under(self, weights: Floats | None = None) -> "Means":
        """Means under some weightings of the rows."""
        if weights is None and self._size is None:
            return Means(self._cost.mean(axis=1), self._share.mean(axis=1), self._score.mean(axis=1))
        counts = np.ones((self._cost.shape[1], 1)) if weights is None else weights
        size = n_known = counts.sum(axis=0)
        if self._size is not None and self._is_known is not None:
            size, n_known = self._size @ counts, np.maximum(self._is_known @ counts, 1e-300)
        means = self._cost @ counts / size, self._share @ counts / size, self._score @ counts / n_known
        return Means(*(mean[:, 0] if weights is None else mean for mean in means))


@dataclass(frozen=True)
class CorrectedAverages:
    """Means of operating points whose scores are too high by a known amount each."""

    plain: "GateAverages | RouteAverages | CorrectedAverages"
    optimism: Floats

    def under(self, weights: Floats | None = None) -> "Means":
        """Means under some weightings of the rows."""
        means = self.plain.under(weights)
        return replace(
            means, score=means.score - (self.optimism if weights is None else self.optimism[:, None])
        )
