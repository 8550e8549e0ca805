"""Ranking: queries and their documents, metrics (average precision, NDCG), losses of orders, and the task.

*Metrics.* Average precision at k, with documents relevant or not, is

    AP@k  =  sum over places i <= k of  relevant(i) * precision(i)  /  min(k, number of relevant documents)

and 1 for every order that puts relevant documents first. Average precision takes a grade of at least 1 as relevant. The
gain of a document in NDCG is ``2**grade - 1``, as usual in ranking; in scikit-learn it is the grade itself.

*Equal scores.* Trees give many documents the same score. Keeping the order of the file would reward files that are
sorted by relevance, so a metric is its exact expectation over all orders of the tied documents (McSherry and Najork,
2008). With r relevant documents among m tied ones, the j-th of their places holds a relevant document with probability
r / m, and (j - 1) (r - 1) / (m - 1) more of them are expected before it.

*A query without relevant documents.* No order of it is better than another: its metric is NaN, and ``np.nanmean``
leaves it out of the mean.

*Losses* are summed over the documents of a query, with gains g and scores s.

    pairwise    log(1 + exp(s_j - s_i))   over the pairs of documents with  g_i > g_j    (RankNet; Burges et al. 2005)
    listwise    - sum_i  g_i / sum(g)  log softmax(s)_i                                  (ListNet; Cao et al. 2007)

Pairs and lists are weighted such that a query counts by the number of its documents. A query whose documents are all
equally relevant has no pairs, and one without relevant documents has no list.

*The task.* There is one score per document: its expected gain, in units of the spread of the gains of the fit, so that
documents that stopped at different stages can be compared. The trees of the stages follow the gradients of its squared
error, or of pairs or lists of documents. An encoded target is one number for the query and the grade of a document,
``32 * query + grade``, so that code that takes a subset of the rows need not know about queries.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from thrifty.arrays import Floats, Ints, Labels, check_unmasked
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.tasks.regression import RegressionTask, SquaredLoss
from thrifty.engine.tasks.task import Loss, Task
from thrifty.errors import InvalidInputError


class Queries:
    """Assignment of rows to queries; the order and the names of queries have no meaning.

    Parameters
    ----------
    qid : array-like of shape (n_documents,)
        Query of each document; documents of one query must follow each other. A query that comes back after another one
        is refused: mostly it is a mistake in shuffled or joined files, and two queries of one name would be ranked as
        one.

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
        qid = np.asarray(qid)
        if qid.ndim != 1 or not len(qid):
            raise InvalidInputError(
                f"qid must hold one query per document, at least one; got shape {qid.shape}."
            )
        self.start = np.flatnonzero(np.r_[True, qid[1:] != qid[:-1]])
        self.ids = qid[self.start]
        names, first = np.unique(self.ids, return_index=True)
        if len(names) < len(self.ids):
            again = int(np.setdiff1d(np.arange(len(self.ids)), first)[0])
            raise InvalidInputError(
                f"documents of one query must follow each other; query {self.ids[again]} comes back in row "
                f"{int(self.start[again])}. Sort the rows by query, all arrays alike."
            )
        self.size = np.diff(np.r_[self.start, len(qid)])
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
        """Sum of a value per document over each query, such as the total cost of a query."""
        spread = np.broadcast_to(np.asarray(values, dtype=np.float64), (self.n_documents,))
        return np.add.reduceat(spread, self.start)

    def __repr__(self) -> str:
        return f"Queries({self.n_queries:,} queries, {self.n_documents:,} documents)"


def as_queries(queries: "Queries | ArrayLike", n_documents: int) -> Queries:
    """``Queries`` from query ids, checked to cover so many documents."""
    queries = queries if isinstance(queries, Queries) else Queries(queries)
    if queries.n_documents != n_documents:
        raise InvalidInputError(
            f"queries must cover the documents one by one; got {queries.n_documents} for {n_documents} documents."
        )
    return queries


def average_precision_at(y: ArrayLike, score: ArrayLike, queries: Queries | ArrayLike, k: int = 5) -> Floats:
    """Average precision of the first ``k`` documents of each query, ordered by falling score; NaN if none is relevant.

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

    Examples
    --------
    >>> average_precision_at([0, 1, 0, 1, 0], [5.0, 4.0, 3.0, 2.0, 1.0], [7, 7, 7, 7, 8])
    array([0.5, nan])
    """
    grades = check_grades(y)
    queries = as_queries(queries, len(grades))
    relevant = (grades >= 1).astype(np.float64)
    places = _Places(check_scores(score, len(grades)), queries, k)
    chance, before = places.hits(relevant)
    precision = np.where(places.counts, chance * before / places.rank, 0.0)
    best = np.minimum(queries.total(relevant), k)
    return _ratio(np.add.reduceat(precision, queries.start), best)


def ndcg_at(y: ArrayLike, score: ArrayLike, queries: Queries | ArrayLike, k: int = 5) -> Floats:
    """Normalised discounted cumulative gain (NDCG) of the first ``k`` documents of each query, as an array.

    The document at place i adds its gain, ``2**grade - 1``, divided by ``log2(i + 1)``.

    Parameters
    ----------
    y, score, queries, k
        As in ``average_precision_at``.
    """
    grades = check_grades(y)
    queries = as_queries(queries, len(grades))
    gains = np.exp2(grades) - 1.0
    score = check_scores(score, len(grades))
    reached, best = (_Places(by, queries, k).discounted(gains) for by in (score, gains))
    return _ratio(np.add.reduceat(reached, queries.start), np.add.reduceat(best, queries.start))


def check_scores(score: ArrayLike, n_documents: int, name: str = "score") -> Floats:
    """Check scores, one per document and none of them NaN, and return them as floats."""
    scores = np.asarray(score, dtype=np.float64)
    if scores.shape != (n_documents,) or np.isnan(scores).any():
        raise InvalidInputError(
            f"{name} must hold one number per document, {n_documents} in all; got shape {scores.shape} with "
            f"{int(np.isnan(scores).sum())} missing."
        )
    return scores


class _Places:
    """All documents by query and falling score; documents with equal scores share their places."""

    def __init__(self, score: Floats, queries: Queries, k: int) -> None:
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise InvalidInputError(
                f"k must be a whole number of at least 1, the places that count; got {k!r}."
            )
        self.order: Ints = np.lexsort((-score, queries.number))
        self.queries = queries
        ordered = score[self.order]
        n = len(ordered)
        is_new = np.r_[True, ordered[1:] != ordered[:-1]]
        is_new[queries.start] = True
        self.tie_start: Ints = np.flatnonzero(is_new)
        self.tie_size: Ints = np.diff(np.r_[self.tie_start, n])
        self.rank: Ints = np.arange(n) - queries.start[queries.number] + 1
        self.counts = self.rank <= k

    def spread(self, per_tie: NDArray[Any]) -> NDArray[Any]:
        """A value per group of ties as a value per place."""
        return np.repeat(per_tie, self.tie_size)

    def discounted(self, gains: Floats) -> Floats:
        """Expected gain at each place that counts, divided by ``log2(place + 1)``."""
        expected = self.spread(np.add.reduceat(gains[self.order], self.tie_start) / self.tie_size)
        return np.where(self.counts, expected / np.log2(self.rank + 1.0), 0.0)

    def hits(self, relevant: Floats) -> tuple[Floats, Floats]:
        """Chance of a relevant document at each place, and the expected number up to it if there is one."""
        in_tie = np.add.reduceat(relevant[self.order], self.tie_start)
        all_before = np.cumsum(in_tie) - in_tie
        query = self.queries.number[self.tie_start]
        first_tie = np.searchsorted(self.tie_start, self.queries.start)
        before = all_before - all_before[first_tie][query]
        others = np.maximum(self.tie_size - 1, 1)
        place_in_tie = np.arange(len(self.order)) - self.spread(self.tie_start)
        more = place_in_tie * self.spread((in_tie - 1) / others)
        return self.spread(in_tie / self.tie_size), self.spread(before) + 1.0 + more


def _ratio(reached: Floats, best: Floats) -> Floats:
    value = np.full(len(reached), np.nan)
    np.divide(reached, best, out=value, where=best > 0)
    return value


MIN_HESSIAN = 1e-3
"""Lower bound of the hessian: steps stay finite where a query has no information."""


class _QueryLoss:
    """Base class of losses that compare the documents of a query."""

    _target: Floats

    def base(self, weight: Floats) -> Floats:
        """The mean: a constant leaves every order as it is."""
        return np.array([np.average(self._target, weights=weight)])


class PairwiseLoss(_QueryLoss):
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
        hessian = np.maximum(self._of_rows(bend, bend), MIN_HESSIAN)
        return self._of_rows(-slope, slope)[:, None], hessian[:, None]

    def _lead(self, scores: Floats) -> Floats:
        return scores[self._better, 0] - scores[self._worse, 0]

    def _of_rows(self, better: Floats, worse: Floats) -> Floats:
        sums = np.zeros(len(self._target))
        np.add.at(sums, self._better, better)
        np.add.at(sums, self._worse, worse)
        return sums


class ListwiseLoss(_QueryLoss):
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
        softmax = np.exp(self._log_softmax(scores))
        gradient = self._of_rows(self._counts * (softmax - self._share))
        hessian = np.maximum(self._of_rows(self._counts * softmax * (1.0 - softmax)), MIN_HESSIAN)
        return gradient[:, None], hessian[:, None]

    def _log_softmax(self, scores: Floats) -> Floats:
        """Logarithms of the softmax within each query, by query."""
        ordered: Floats = scores[:, 0][self._order]
        ordered = ordered - np.repeat(np.maximum.reduceat(ordered, self._starts), self._sizes)
        total = np.add.reduceat(np.exp(ordered), self._starts)
        return ordered - np.repeat(np.log(total), self._sizes)

    def _of_rows(self, ordered: Floats) -> Floats:
        of_rows = np.empty_like(ordered)
        of_rows[self._order] = ordered
        return of_rows


def rows_by_query(query: Ints) -> tuple[Ints, Ints, Ints]:
    """Rows by query, where each query starts among them, and how many it has."""
    order = np.argsort(query, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(query[order]) != 0])
    return order, starts, np.diff(np.r_[starts, len(query)])


GRADES = 32
"""Grades are smaller than this: the gain of a larger one would dominate all others."""

GRADIENTS, MEASURES = ("pointwise", "pairwise", "listwise"), ("ndcg", "ap")


def grades_of(y: Floats) -> Floats:
    """Grades of encoded targets."""
    return np.mod(y, GRADES)


def queries_of(y: Floats) -> Ints:
    """Numbers of the queries of encoded targets."""
    return np.floor_divide(y, GRADES).astype(np.intp)


def with_queries(relevance: Any, qid: Any) -> Labels:
    """Targets of documents as every function takes them: relevance and number of the query, shape (n_rows, 2)."""
    if qid is None:
        raise InvalidInputError(
            "qid must say which query each document belongs to; got None. Give one id per row, documents of one "
            "query one after the other."
        )
    for name, values in (("y", relevance), ("qid", qid)):
        check_unmasked(name, values)
    grades, queries = check_grades(relevance), Queries(_check_ids(qid))
    if len(grades) != queries.n_documents:
        raise InvalidInputError(
            f"qid must hold one query for each of the {len(grades):,} documents; got {queries.n_documents:,}."
        )
    return np.column_stack([grades, queries.number])


def _check_ids(qid: Any) -> Labels:
    ids = np.asarray(qid)
    missing = ids != ids
    if ids.ndim == 1 and np.any(missing):
        raise InvalidInputError(
            f"qid must hold a query for each document; it is missing in row {int(np.flatnonzero(missing)[0])}. Leave "
            f"such rows out."
        )
    return ids


def check_grades(relevance: Any) -> Floats:
    """Check grades of relevance, one whole number per document, and return them as floats."""
    try:
        grades = np.asarray(relevance, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must hold grades of relevance: {error}") from error
    if grades.ndim != 1:
        raise InvalidInputError(f"y must hold one grade of relevance per document; got shape {grades.shape}.")
    wrong = ~((grades >= 0) & (grades < GRADES) & (grades == np.round(grades)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"y must hold grades of relevance, whole numbers from 0 to {GRADES - 1}; got {float(grades[row])!r} "
            f"in row {row}. The gain of a grade is 2**grade - 1: make grades of finer numbers; leave out rows without."
        )
    return grades


@dataclass(frozen=True)
class RankingTask(RegressionTask):
    """Answers with a number by which the documents of a query are ranked, the largest first.

    Attributes
    ----------
    kind, centre, spread, tolerance
        As of ``RegressionTask``, of gains; the tolerance is in units of the measure of a query.
    gradients : {"pointwise", "pairwise", "listwise"}
        The loss that trees lower.
    measure : {"ndcg", "ap"}
        How good the order of a query is: NDCG@k or average precision at k.
    k : int
        Number of first places that count.
    """

    gradients: str = "pointwise"
    measure: str = "ndcg"
    k: int = 10

    def validate(self) -> Self:
        """Refuse words and numbers that make no task. Returns itself."""
        if self.gradients not in GRADIENTS or self.measure not in MEASURES or self.k < 1:
            raise InvalidInputError(
                f"gradients must be one of {', '.join(GRADIENTS)}, measure one of {', '.join(MEASURES)}, and k at "
                f"least 1; got {self.gradients!r}, {self.measure!r}, {self.k}."
            )
        return super().validate()

    @property
    def loss_unit(self) -> str | None:
        """Unit of the loss of an order, in words."""
        return f"shortfall of {self.quality_name}"

    @property
    def loss_name(self) -> str:
        """Mean squared error of gains, in units of their spread."""
        return "mean squared error of the gain (in units of its spread)"

    @property
    def quality_name(self) -> str:
        """The measure of a query's order."""
        return f"{'NDCG' if self.measure == 'ndcg' else 'AP'}@{self.k}"

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """Targets of documents, from relevance and query in two columns."""
        labels = np.asarray(labels)
        if labels.ndim != 2 or labels.shape[1] != 2:
            raise InvalidInputError(
                f"{name} must hold the relevance of each document and its query, shape (n, 2), to evaluate an order; "
                f"got shape {labels.shape}. Give np.column_stack([relevance, qid]), or qid where a method takes it."
            )
        both = with_queries(labels[:, 0], labels[:, 1])
        if len(both) != n_rows:
            raise InvalidInputError(
                f"{name} must hold a target for each of the {n_rows} rows; got {len(both)}."
            )
        return GRADES * both[:, 1] + both[:, 0]

    def decode(self, y: Floats) -> Labels:
        """Relevance and number of the query, shape (n_rows, 2)."""
        return np.column_stack([grades_of(y), queries_of(y)])

    def query_of(self, y: Floats) -> Ints | None:
        """Number of the query of each row."""
        return queries_of(y)

    def strata(self, y: Floats) -> Ints:
        """Relevance of each document: 1 if its grade is positive."""
        return (grades_of(y) > 0).astype(np.intp)

    def gains(self, y: Floats) -> Floats:
        """Gains of documents, as the measure counts them."""
        grades = grades_of(y)
        return np.exp2(grades) - 1.0 if self.measure == "ndcg" else (grades > 0).astype(np.float64)

    def targets(self, y: Floats) -> Floats:
        """Gains in units of their spread."""
        return (self.gains(y) - self.centre) / self.spread

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> Loss:
        """The loss of scores against encoded targets."""
        if self.gradients == "pairwise":
            return PairwiseLoss(queries_of(y), self.targets(y))
        if self.gradients == "listwise":
            return ListwiseLoss(queries_of(y), self.targets(y), self.gains(y))
        return SquaredLoss(self.targets(y))

    # -- quality -------------------------------------------------------------------------------

    # An order has no error per document, and its score is a mean over queries.
    errors, score = Task.errors, Task.score

    def value_of_queries(self, y: Floats, scores: Floats) -> Floats:
        """The measure of each query in rising order of their numbers; NaN where no document is relevant."""
        order, _, _ = rows_by_query(queries_of(y))
        measure = ndcg_at if self.measure == "ndcg" else average_precision_at
        return measure(grades_of(y)[order], scores[order], queries_of(y)[order], k=self.k)


def check_metric(metric: Any) -> tuple[str, int]:
    """Measure and number of places of a metric such as "ndcg@10"."""
    measure, _, places = metric.partition("@") if isinstance(metric, str) else ("", "", "")
    if measure not in MEASURES or not (places.isascii() and places.isdigit() and int(places) >= 1):
        allowed = " or ".join(f'"{name}@k"' for name in MEASURES)
        raise InvalidInputError(f"metric must be {allowed}, where k first places count; got {metric!r}.")
    return measure, int(places)


def ranking_of(y: Any, gradients: Any, metric: Any, tolerance: Any) -> RankingTask:
    """Ranking task for relevance and queries in two columns; refused where no order is better than another."""
    if gradients not in GRADIENTS:
        raise InvalidInputError(f"loss must be one of {', '.join(GRADIENTS)}; got {gradients!r}.")
    measure, k = check_metric(metric)
    check_amount("tolerance", tolerance)
    words: dict[str, Any] = {"gradients": gradients, "measure": measure, "k": k}
    task = RankingTask("squared", 0.0, 1.0, float(tolerance), **words)
    code = task.encode("y", y, len(y))
    grades, (order, starts, _) = grades_of(code), rows_by_query(queries_of(code))
    ranked = np.minimum(grades[order], GRADES if measure == "ndcg" else 1)
    differs = np.maximum.reduceat(ranked, starts) > np.minimum.reduceat(ranked, starts)
    if not differs.any():
        raise InvalidInputError(
            f"y must hold a query with documents of different relevance; in each of the {len(starts):,} queries "
            f"(n_samples={len(y)}) all documents are equally relevant, or there is just one, and there is no order to "
            f"learn. Give queries whose documents differ."
        )
    gains = task.gains(code)
    return RankingTask("squared", float(gains.mean()), float(gains.std()), float(tolerance), **words)
