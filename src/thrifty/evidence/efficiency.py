"""Plain arrays of costs and scores: which points are efficient, and which is the best within a budget."""

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Ints

__all__ = ["SLACK", "best_within", "efficient"]


SLACK = 1e-12
"""Relative: a mean over rows may miss a round number by its last digit."""


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
    affordable = np.flatnonzero(cost <= budget * (1 + SLACK))
    if affordable.size == 0:
        return None
    return int(affordable[np.lexsort((cost[affordable], -score[affordable]))[0]])
