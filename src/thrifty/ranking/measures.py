"""How good an order of a query's documents is: average precision and discounted gain of its first k.

Average precision at k, with documents relevant or not, is

    AP@k  =  sum over places i <= k of  relevant(i) * precision(i)  /  min(k, number of relevant documents)

and 1 for every order that puts relevant documents first. Three things need a rule.

*Equal scores.* Trees give many documents the same score. Keeping the order of the file would reward files that are
sorted by relevance, so a measure is by default its exact expectation over all orders of the tied documents
(McSherry and Najork, 2008). With r relevant ones among m tied, b of the relevant before them, a relevant document
stands at the j-th of their places with probability r / m, and has then (j - 1) (r - 1) / (m - 1) more of them before it
in the mean. ``ties="worst"`` puts the irrelevant ones first instead.

*A query without relevant documents.* No order of it is better than another: its value is NaN, it is left out of the
mean, and ``n_undefined`` counts such queries.

*Grades.* Average precision takes a grade of at least 1 as relevant. The gain of a document is ``2**grade - 1``, as
usual in ranking, or the grade itself (``gain="linear"``), as in scikit-learn.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.arrays import Floats, Ints
from thrifty.exceptions import InvalidInputError
from thrifty.ranking.queries import Queries, as_queries

__all__ = ["PerQuery", "Ties", "average_precision_at", "check_grades", "check_scores", "ndcg_at"]

Ties = Literal["average", "worst"]


@dataclass(frozen=True, eq=False)
class PerQuery:
    """A measure of each query's order.

    Attributes
    ----------
    value : ndarray of shape (n_queries,)
        NaN where the measure is not defined: nothing relevant is there to be found.
    """

    value: Floats

    @property
    def mean(self) -> float:
        """Mean over the queries for which the measure is defined; NaN if there are none."""
        return float(self.value[self.is_defined].mean()) if self.is_defined.any() else float("nan")

    @property
    def is_defined(self) -> NDArray[np.bool_]:
        """Whether a query has a relevant document."""
        return ~np.isnan(self.value)

    @property
    def n_undefined(self) -> int:
        """Queries that are left out of the mean."""
        return int(np.isnan(self.value).sum())


def average_precision_at(
    y: ArrayLike, score: ArrayLike, queries: Queries | ArrayLike, k: int = 5, *, ties: Ties = "average"
) -> PerQuery:
    """Average precision of the first ``k`` documents of each query, ordered by falling score.

    Parameters
    ----------
    y : array-like of shape (n_documents,)
        Grades; at least 1 is relevant.
    score : array-like of shape (n_documents,)
        A higher score is a place further up.
    queries : Queries, or query ids of shape (n_documents,)
        Which documents belong together.
    k : int, default=5
        Places that count.
    ties : {"average", "worst"}, default="average"
        Expectation over all orders of documents with equal scores, or the worst of these orders.

    Examples
    --------
    >>> average_precision_at([0, 1, 0, 1], [4.0, 3.0, 2.0, 1.0], [7, 7, 7, 7]).mean
    0.5
    >>> average_precision_at([1, 0, 0], [3.0, 2.0, 1.0], [1, 1, 2]).n_undefined
    1
    """
    grades = check_grades(y)
    queries = as_queries(queries, len(grades))
    relevant = (grades >= 1).astype(np.float64)
    places = _Places(check_scores(score, len(grades)), queries, relevant, _check_k(k), _check_ties(ties))
    hits = places.hits(relevant)
    found = np.where(places.counts, hits.chance * hits.before / places.rank, 0.0)
    best = np.minimum(queries.total(relevant), k)
    return PerQuery(_ratio(np.add.reduceat(found, queries.start), best))


def ndcg_at(
    y: ArrayLike,
    score: ArrayLike,
    queries: Queries | ArrayLike,
    k: int = 5,
    *,
    gain: Literal["exponential", "linear"] = "exponential",
    ties: Ties = "average",
) -> PerQuery:
    """Discounted gain of the first ``k`` documents of each query, as a share of the best there is.

    The document at place i adds its gain, divided by ``log2(i + 1)``.

    Parameters
    ----------
    y, score, queries, k, ties
        As in ``average_precision_at``.
    gain : {"exponential", "linear"}, default="exponential"
        ``2**grade - 1``, or the grade.
    """
    if gain not in ("exponential", "linear"):
        raise InvalidInputError(f"gain must be 'exponential' or 'linear'; got {gain!r}.")
    grades = check_grades(y)
    queries = as_queries(queries, len(grades))
    gains = np.exp2(grades) - 1.0 if gain == "exponential" else grades
    score = check_scores(score, len(grades))
    reached, best = (
        _discounted(_Places(by, queries, gains, _check_k(k), _check_ties(ties)), gains)
        for by in (score, gains)
    )
    return PerQuery(_ratio(np.add.reduceat(reached, queries.start), np.add.reduceat(best, queries.start)))


def check_grades(y: ArrayLike) -> Floats:
    """Grades as floats: finite, at least 0, one per document."""
    grades = np.asarray(y, dtype=np.float64)
    if grades.ndim != 1 or not np.all(np.isfinite(grades)) or np.any(grades < 0):
        raise InvalidInputError(
            f"y must hold one finite grade of at least 0 per document; got shape {grades.shape}"
            + (f" and {grades.min()!r} as the least." if grades.size else ".")
        )
    return grades


def check_scores(score: ArrayLike, n_documents: int, name: str = "score") -> Floats:
    """Scores as floats: one per document, none of them NaN."""
    scores = np.asarray(score, dtype=np.float64)
    if scores.shape != (n_documents,) or np.isnan(scores).any():
        raise InvalidInputError(
            f"{name} must hold one number per document, {n_documents} in all; got shape {scores.shape} with "
            f"{int(np.isnan(scores).sum())} missing."
        )
    return scores


@dataclass(frozen=True)
class _Hits:
    """Per place: the chance that it holds a relevant document, and how many are then among the places up to it."""

    chance: Floats
    before: Floats


class _Places:
    """All documents by query and falling score; documents with equal scores share their places."""

    def __init__(self, score: Floats, queries: Queries, value: Floats, k: int, ties: Ties) -> None:
        keys = (-score, queries.number) if ties == "average" else (value, -score, queries.number)
        self.order: Ints = np.lexsort(keys)
        self.queries = queries
        ordered = score[self.order]
        n = len(ordered)
        is_new = np.ones(n, dtype=bool)
        if ties == "average":
            is_new[1:] = ordered[1:] != ordered[:-1]
            is_new[queries.start] = True
        self.tie_start: Ints = np.flatnonzero(is_new)
        self.tie_size: Ints = np.diff(np.r_[self.tie_start, n])
        self.rank: Ints = np.arange(n) - queries.start[queries.number] + 1
        self.counts = self.rank <= k

    def spread(self, per_tie: NDArray[Any]) -> NDArray[Any]:
        """A value per group of ties as a value per place."""
        return np.repeat(per_tie, self.tie_size)

    def mean_in_ties(self, value: Floats) -> Floats:
        """Expected value at each place."""
        return self.spread(np.add.reduceat(value[self.order], self.tie_start) / self.tie_size)

    def hits(self, relevant: Floats) -> _Hits:
        """Chance of a relevant document at each place, and the expected number up to it if there is one."""
        in_tie = np.add.reduceat(relevant[self.order], self.tie_start)
        all_before = np.cumsum(in_tie) - in_tie
        query = self.queries.number[self.tie_start]
        first_tie = np.searchsorted(self.tie_start, self.queries.start)
        before = all_before - all_before[first_tie][query]
        others = np.maximum(self.tie_size - 1, 1)
        place_in_tie = np.arange(len(self.order)) - self.spread(self.tie_start)
        more = place_in_tie * self.spread((in_tie - 1) / others)
        return _Hits(self.spread(in_tie / self.tie_size), self.spread(before) + 1.0 + more)


def _discounted(places: _Places, gains: Floats) -> Floats:
    return np.where(places.counts, places.mean_in_ties(gains) / np.log2(places.rank + 1.0), 0.0)


def _ratio(found: Floats, best: Floats) -> Floats:
    value = np.full(len(found), np.nan)
    np.divide(found, best, out=value, where=best > 0)
    return value


def _check_k(k: int) -> int:
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise InvalidInputError(f"k must be a whole number of at least 1, the places that count; got {k!r}.")
    return int(k)


def _check_ties(ties: Ties) -> Ties:
    if ties not in ("average", "worst"):
        raise InvalidInputError(f"ties must be 'average' or 'worst'; got {ties!r}.")
    return ties
