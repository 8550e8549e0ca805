"""The order of a query's documents as the answer: one score per document, by which those of a query are ranked.

A score is the gain that a document is expected to have, in units of how far the gains of the fit spread, so that scores
of documents that stopped at different stages can be compared. The trees of the stages follow the gradients of
its squared error, or of pairs or lists of documents (``ranking_losses``).

An encoded target is one number for the query and the grade of a document, ``32 * query + grade``: whoever takes some of
the rows takes what belongs to them, and need not know that there are queries.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import has_fit_parameter

from thrifty.arrays import Floats, Ints, Labels, check_unmasked
from thrifty.errors import InvalidInputError
from thrifty.tasks.queries import Queries, average_precision_at, ndcg_at
from thrifty.tasks.ranking_losses import ListwiseLoss, PairwiseLoss, rows_by_query
from thrifty.tasks.regression import RegressionTask
from thrifty.tasks.regression_losses import SquaredLoss, linear_weights
from thrifty.trees.boosting import Loss

__all__ = [
    "GRADES",
    "GRADIENTS",
    "MEASURES",
    "RankingTask",
    "grades_of",
    "queries_of",
    "ranking_of",
    "with_queries",
]

GRADES = 32
"""Grades lie below this: the gain of a larger one would drown all others."""

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
    grades, queries = _check_grades("y", relevance), Queries(_check_ids(qid))
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


def _check_grades(name: str, relevance: Any) -> Floats:
    try:
        grades = np.asarray(relevance, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must hold grades of relevance: {error}") from error
    if grades.ndim != 1:
        raise InvalidInputError(
            f"{name} must hold one grade of relevance per document; got shape {grades.shape}."
        )
    wrong = ~((grades >= 0) & (grades < GRADES) & (grades == np.round(grades)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"{name} must hold grades of relevance, whole numbers from 0 to {GRADES - 1}; got {float(grades[row])!r} "
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

    @property
    def lost_in_words(self) -> str | None:
        """What the order of a query loses."""
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
        given = np.asarray(labels)
        if given.ndim != 2 or given.shape[1] != 2:
            raise InvalidInputError(
                f"{name} must hold the relevance of each document and its query, shape (n, 2), to judge an order; got "
                f"shape {given.shape}. Give np.column_stack([relevance, qid]), or qid where a method takes it."
            )
        both = with_queries(given[:, 0], given[:, 1])
        if len(both) != n_rows:
            raise InvalidInputError(
                f"{name} must hold a target for each of the {n_rows} rows; got {len(both)}."
            )
        return GRADES * both[:, 1] + both[:, 0]

    def decode(self, y: Floats) -> Labels:
        """Relevance and number of the query, shape (n_rows, 2)."""
        return np.column_stack([grades_of(y), queries_of(y)])

    def lesson(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:
        """Grades, and the queries in the form in which a ranker of another library takes them."""
        grades, query = grades_of(y), queries_of(y)
        if has_fit_parameter(model, "group"):
            return grades, {"group": rows_by_query(query)[2]}
        return grades, {"qid": query} if has_fit_parameter(model, "qid") else {}

    def query_of(self, y: Floats) -> Ints | None:
        """Number of the query of each row."""
        return queries_of(y)

    def strata(self, y: Floats) -> Ints:
        """Whether a document is relevant."""
        return (grades_of(y) > 0).astype(np.intp)

    def gains(self, y: Floats) -> Floats:
        """Gains of documents, as the measure counts them."""
        grades = grades_of(y)
        gains: Floats = np.exp2(grades) - 1.0 if self.measure == "ndcg" else (grades > 0).astype(np.float64)
        return gains

    def targets(self, y: Floats) -> Floats:
        """Gains in units of their spread."""
        targets: Floats = (self.gains(y) - self.centre) / self.spread
        return targets

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> Loss:
        """The loss of scores against encoded targets."""
        if self.gradients == "pairwise":
            return PairwiseLoss(queries_of(y), self.targets(y))
        if self.gradients == "listwise":
            return ListwiseLoss(queries_of(y), self.targets(y), self.gains(y))
        return SquaredLoss(self.targets(y))

    def loss_of_outputs(self, y: Floats, outputs: Floats) -> Floats:
        """Squared error of each row."""
        return SquaredLoss(self.targets(y)).values(self.scores(outputs))

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Expected gains, shape (n_rows, 1)."""
        outputs: Floats = self.centre + self.spread * scores
        return outputs

    def decision(self, scores: Floats) -> Floats:
        """Expected gains, shape (n_rows,)."""
        return self.outputs(scores)[:, 0]

    # -- judging -------------------------------------------------------------------------------

    def quality_of_scores(self, y: Floats, scores: Floats) -> Floats:
        """One, minus the squared error of the gain: what a document by itself is judged by."""
        return super().quality_of_scores(self.targets(y), scores)

    def errors(self, y: Floats, scores: Floats) -> Floats | None:  # noqa: ARG002 - part of the contract
        """None: an order has no error per document."""
        return None

    def score(self, y: Floats, quality: Any) -> Any:  # noqa: ARG002 - part of the contract
        """The mean over queries, as it is."""
        return quality

    def value_of_queries(self, y: Floats, scores: Floats) -> Floats:
        """The measure of each query in rising order of their numbers; NaN where no document is relevant."""
        order, _, _ = rows_by_query(queries_of(y))
        known = (grades_of(y)[order], scores[order], queries_of(y)[order])
        return (ndcg_at if self.measure == "ndcg" else average_precision_at)(*known, k=self.k).value

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope, never negative, and intercept."""
        intercept, slope = linear_weights(scores, self.targets(y), weight, self.kind)
        if slope > 0:
            return np.array([slope, intercept])
        return np.array([0.0, float(np.average(self.targets(y), weights=weight))])

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """Intercept and the weights of both models, by linear regression."""
        return super().blend_weights(last, full, self.targets(y), weight)

    # -- models of others ------------------------------------------------------------------------

    def check_recipe(self, model: Any, name: str) -> None:
        """Refuse an unfitted model that neither ranks nor predicts numbers."""
        if not (has_fit_parameter(model, "group") or has_fit_parameter(model, "qid")):
            super().check_recipe(model, name)

    def is_calibrated(self, model: Any) -> bool:  # noqa: ARG002 - part of the contract
        """Never: what others rank by has a scale of its own."""
        return False


def ranking_of(y: Any, gradients: Any, measure: Any, k: Any, tolerance: Any) -> RankingTask:
    """The task that relevance and queries pose, in two columns; where no order is better than another it is refused."""
    for name, value, known in (
        ("loss", gradients, GRADIENTS),
        ("metric", measure, MEASURES),
    ):
        if value not in known:
            raise InvalidInputError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInputError(f"k must be a whole number of at least 1, the places that count; got {k!r}.")
    if not (isinstance(tolerance, int | float | np.number) and 0.0 <= float(tolerance) < np.inf):
        raise InvalidInputError(
            f"tolerance must be a number of at least 0; got {tolerance!r}. It is how much lower than the full model's "
            f"the {measure} of a query may be."
        )
    words: dict[str, Any] = {"gradients": gradients, "measure": measure, "k": int(k)}
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
