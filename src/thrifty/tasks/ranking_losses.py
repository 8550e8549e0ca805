"""Losses of the order of documents, summed over those of a query, with gains g and scores s.

    pairwise    log(1 + exp(s_j - s_i))   over the pairs of documents with  g_i > g_j    (RankNet; Burges et al. 2005)
    listwise    - sum_i  g_i / sum(g)  log softmax(s)_i                                  (ListNet; Cao et al. 2007)

Pairs and lists have weights such that a query counts by the number of its documents. One in which all documents are
equally relevant says nothing about order: it has no pairs, and no list where nothing is relevant.
"""

import numpy as np
from scipy.special import expit

from thrifty.arrays import Floats, Ints

__all__ = ["ListwiseLoss", "PairwiseLoss", "rows_by_query"]

LEAST_HESSIAN = 1e-3
"""A step must stay finite where a query says nothing."""


class PairwiseLoss:
    """The logistic loss of pairs of documents of one query, of which one is more relevant; half of it for each.

    Parameters
    ----------
    query : ndarray of shape (n_rows,)
        Query of each document.
    target : ndarray of shape (n_rows,)
        Gains in units of their spread.
    """

    def __init__(self, query: Ints, target: Floats) -> None:
        self._target = target
        order, starts, sizes = rows_by_query(query)
        better, worse, weight = [], [], []
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            rows = order[start : start + size]
            above, below = np.nonzero(target[rows][:, None] > target[rows][None, :])
            better.append(rows[above])
            worse.append(rows[below])
            weight.append(np.full(len(above), size / max(len(above), 1)))
        self._better, self._worse = np.concatenate(better), np.concatenate(worse)
        self._weight = np.concatenate(weight)

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        half = 0.5 * self._weight * np.logaddexp(0.0, -self._lead(scores))
        return self._of_rows(half, half)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and diagonal of the hessian of the sum over all rows, each of shape (n_rows, 1)."""
        wrong = expit(-self._lead(scores))
        slope = self._weight * wrong
        bend = slope * (1.0 - wrong)
        hessian = np.maximum(self._of_rows(bend, bend), LEAST_HESSIAN)
        return self._of_rows(-slope, slope)[:, None], hessian[:, None]

    def base(self, weight: Floats) -> Floats:
        """The mean: a constant leaves every order as it is."""
        return np.array([np.average(self._target, weights=weight)])

    def _lead(self, scores: Floats) -> Floats:
        lead: Floats = scores[self._better, 0] - scores[self._worse, 0]
        return lead

    def _of_rows(self, better: Floats, worse: Floats) -> Floats:
        found = np.zeros(len(self._target))
        np.add.at(found, self._better, better)
        np.add.at(found, self._worse, worse)
        return found


class ListwiseLoss:
    """The cross-entropy between shares of the gain of a query and the softmax of the scores of its documents.

    Parameters
    ----------
    query, target
        As of ``PairwiseLoss``.
    gain : ndarray of shape (n_rows,)
        Gains as they are, of at least 0.
    """

    def __init__(self, query: Ints, target: Floats, gain: Floats) -> None:
        self._target = target
        self._order, self._starts, self._sizes = rows_by_query(query)
        total = np.add.reduceat(gain[self._order], self._starts)
        # Where nothing is relevant there is no list to be like.
        self._counts = np.repeat(np.where(total > 0, self._sizes, 0.0), self._sizes)
        self._share = gain[self._order] / np.repeat(np.where(total > 0, total, 1.0), self._sizes)

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return self._of_rows(-self._counts * self._share * self._log_softmax(scores))

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and diagonal of the hessian of the sum over all rows, each of shape (n_rows, 1)."""
        said = np.exp(self._log_softmax(scores))
        gradient = self._of_rows(self._counts * (said - self._share))
        hessian = np.maximum(self._of_rows(self._counts * said * (1.0 - said)), LEAST_HESSIAN)
        return gradient[:, None], hessian[:, None]

    def base(self, weight: Floats) -> Floats:
        """The mean: a constant leaves every order as it is."""
        return np.array([np.average(self._target, weights=weight)])

    def _log_softmax(self, scores: Floats) -> Floats:
        """Logarithms of the softmax within each query, by query."""
        ordered: Floats = scores[:, 0][self._order]
        ordered = ordered - np.repeat(np.maximum.reduceat(ordered, self._starts), self._sizes)
        total = np.add.reduceat(np.exp(ordered), self._starts)
        logs: Floats = ordered - np.repeat(np.log(total), self._sizes)
        return logs

    def _of_rows(self, ordered: Floats) -> Floats:
        found = np.empty_like(ordered)
        found[self._order] = ordered
        return found


def rows_by_query(query: Ints) -> tuple[Ints, Ints, Ints]:
    """Rows by query, where each query starts among them, and how many it has."""
    order = np.argsort(query, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(query[order]) != 0])
    return order, starts, np.diff(np.r_[starts, len(query)])
