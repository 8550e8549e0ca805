"""Queries as units of the evidence of a ranking: sums and measures of their documents.

Documents of one query stop at different stages, so the measure of an order belongs to no single document or stage.
Means, bootstrap and tests count queries, which are independent of each other, as documents of one query are not.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Numbers
from thrifty.engine.tasks.ranking import RankingTask, queries_of
from thrifty.errors import InvalidInputError

__all__ = ["RankedQueries"]


@dataclass(frozen=True, eq=False)
class RankedQueries:
    """Queries whose documents, the rows of some evidence, are ranked by the scores of their answers.

    Attributes
    ----------
    target : ndarray of shape (n_documents,)
        Queries and grades, as the task encodes them.
    task : RankingTask
        Measure of an order.
    against_full : bool
        Whether a query counts as 1 if its order is not worse than the full model's, else 0.
    """

    target: Floats
    task: RankingTask
    against_full: bool = False

    name: ClassVar[str] = "queries"

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def _number(self) -> Ints:
        """Number of the query of each document."""
        return np.unique(queries_of(self.target), return_inverse=True)[1]

    @cached_property
    def size(self) -> Floats:
        """Number of documents of each query."""
        return np.bincount(self._number).astype(np.float64)

    @cached_property
    def is_known(self) -> Bools:
        """Mask of the queries for which the measure is defined: those with a relevant document."""
        return ~np.isnan(self.measure(np.zeros(len(self.target))))

    def documents_of(self, queries: Ints) -> Bools:
        """Mask of the documents of some queries."""
        return np.isin(self._number, np.arange(len(self))[queries])

    def sums(self, values: Numbers) -> Floats:
        """Sums of a number per document over each query."""
        sums: Floats = np.bincount(self._number, values, len(self)).astype(np.float64)
        return sums

    def measure(self, scores: Numbers) -> Floats:
        """Measure of each query where its documents are ranked by some scores; NaN where it is not defined."""
        return self.task.value_of_queries(self.target, np.asarray(scores, dtype=np.float64))

    def quality(self, scores: Numbers, full_scores: Numbers | None, tolerance: float) -> Floats:
        """Measure of each query, or whether it is not worse than by the full model's scores."""
        measure = self.measure(scores)
        if not self.against_full or full_scores is None:
            return measure
        return (measure >= self.measure(full_scores) - tolerance - 1e-12).astype(np.float64)

    def spread(self, paid: Floats, measure: Floats) -> tuple[Floats, Floats]:
        """Cost and quality of each query, whose plain means are the cost per document and the mean known measure.

        Queries differ in their number of documents, and in some of them no order is better than another. So a mean
        is a ratio of two sums, and what a query adds to it is measured around that mean: averages over queries are the
        ratio, and their spread is that of the ratio.
        """
        size, is_known = self.size, ~np.isnan(measure)
        mean = paid.sum() / size.sum()
        cost = mean + (paid - mean * size) / size.mean()
        if not is_known.any():
            return cost, np.zeros(len(measure))
        score = measure[is_known].mean()
        return cost, score + np.where(is_known, measure - score, 0.0) / is_known.mean()

    def validate(self) -> "RankedQueries":
        """Refuse targets that are not queries and grades, and return the queries."""
        if np.any(self.target < 0) or np.any(self.target != np.round(self.target)):
            raise InvalidInputError("targets of documents must be whole numbers of at least 0.")
        return self
