"""Documents of queries, and how good an order of them is: average precision and discounted gain of its first k.

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

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import InvalidInputError

__all__ = ["PerQuery", "Queries", "Ties", "as_queries", "average_precision_at", "ndcg_at"]

Ties = Literal["average", "worst"]


class Queries:
    """Which rows are documents of which query; the order of queries, and their names, mean nothing.

    Parameters
    ----------
    qid : array-like of shape (n_documents,)
        Query of each document; documents of one query stand together. A query that comes back after another one is
        refused: in files that were shuffled or joined it is mostly a mistake, and two queries of one name would be
        ranked as one.

    Attributes
    ----------
    ids : ndarray of shape (n_queries,)
        Names of the queries, in the order of the rows.
    start, size : ndarray of shape (n_queries,)
        First row of each query, and its number of rows.
    number : ndarray of shape (n_documents,)
        Number of each row's query, from 0.
    """

    ids: Labels
    start: Ints
    size: Ints
    number: Ints

    def __init__(self, qid: ArrayLike) -> None:
        given = np.asarray(qid)
        if given.ndim != 1 or not len(given):
            raise InvalidInputError(
                f"qid must hold one query per document, at least one; got shape {given.shape}."
            )
        self.start = np.flatnonzero(np.r_[True, given[1:] != given[:-1]])
        self.ids = given[self.start]
        names, first = np.unique(self.ids, return_index=True)
        if len(names) < len(self.ids):
            again = int(np.setdiff1d(np.arange(len(self.ids)), first)[0])
            raise InvalidInputError(
                f"documents of one query must stand together; query {self.ids[again]} comes back in row "
                f"{int(self.start[again])}. Sort the rows by query, all arrays alike."
            )
        self.size = np.diff(np.r_[self.start, len(given)])
        self.number = np.repeat(np.arange(len(self.ids)), self.size)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.ids)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.number)

    def total(self, values: ArrayLike) -> Floats:
        """Sum a value per document over each query: of costs, what a query's documents paid together."""
        spread = np.broadcast_to(np.asarray(values, dtype=np.float64), (self.n_documents,))
        return np.add.reduceat(spread, self.start)

    def folds(self, n_folds: int, seed: int = 0) -> Ints:
        """Deal documents to folds, whole queries at a time, so that folds hold nearly equally many queries."""
        if not 2 <= n_folds <= self.n_queries:
            raise InvalidInputError(
                f"n_folds must lie between 2 and the number of queries, {self.n_queries}; got {n_folds!r}."
            )
        dealt = np.random.default_rng(seed).permutation(self.n_queries) % n_folds
        return np.asarray(dealt[self.number], dtype=np.intp)

    def __repr__(self) -> str:
        return f"Queries({self.n_queries:,} queries, {self.n_documents:,} documents)"


def as_queries(queries: "Queries | ArrayLike", n_documents: int) -> Queries:
    """Make ``Queries`` of query ids, or check that those given cover so many documents."""
    found = queries if isinstance(queries, Queries) else Queries(queries)
    if found.n_documents != n_documents:
        raise InvalidInputError(
            f"queries must cover the documents one by one; got {found.n_documents} for {n_documents} documents."
        )
    return found


@dataclass(frozen=True, eq=False)
class PerQuery:
    """A measure of the order of each query's documents.

    Attributes
    ----------
    value : ndarray of shape (n_queries,)
        The measure of each query; NaN where it is not defined: nothing relevant is there to be found.
    """

    value: Floats

    @property
    def mean(self) -> float:
        """Mean over the queries for which the measure is defined; NaN if there are none."""
        return float(self.value[self.is_defined].mean()) if self.is_defined.any() else float("nan")

    @property
    def is_defined(self) -> Bools:
        """Whether a query has a relevant document."""
        return ~np.isnan(self.value)

    @property
    def n_undefined(self) -> int:
        """Number of queries that are left out of the mean."""
        return int(np.isnan(self.value).sum())


def average_precision_at(
    y: ArrayLike, score: ArrayLike, queries: Queries | ArrayLike, k: int = 5, *, ties: Ties = "average"
) -> PerQuery:
    """Average precision of the first ``k`` documents of each query, ordered by falling score.

    Parameters
    ----------
    y : array-like of shape (n_documents,)
        Grades of relevance; a document of grade 1 or more is relevant.
    score : array-like of shape (n_documents,)
        Scores by which documents are ordered, the highest first.
    queries : Queries, or query ids of shape (n_documents,)
        Which documents belong together.
    k : int, default=5
        Number of first places that count.
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
    """Discounted cumulative gain of the first ``k`` documents of each query, as a share of the best there is (NDCG).

    The document at place i adds its gain, divided by ``log2(i + 1)``.

    Parameters
    ----------
    y, score, queries, k, ties
        As in ``average_precision_at``.
    gain : {"exponential", "linear"}, default="exponential"
        Gain of a document: ``2**grade - 1``, or its grade.
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
    """Check grades, one per document, finite and at least 0, and return them as floats."""
    grades = np.asarray(y, dtype=np.float64)
    if grades.ndim != 1 or not np.all(np.isfinite(grades)) or np.any(grades < 0):
        raise InvalidInputError(
            f"y must hold one finite grade of at least 0 per document; got shape {grades.shape}"
            + (f" and {grades.min()!r} as the least." if grades.size else ".")
        )
    return grades


def check_scores(score: ArrayLike, n_documents: int, name: str = "score") -> Floats:
    """Check scores, one per document and none of them NaN, and return them as floats."""
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
