"""Evidence of documents that are ranked: its rows are queries, each with the order that an operating point gives it.

Documents of one query stop at different stages, so the measure of its order belongs to no document and to no stage. A
row of this evidence is a query, whose documents walk by gates and costs of their own; whatever averages, resamples or
proves then counts queries, which are independent of each other as documents of one query are not.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from thrifty.arrays import Floats, Ints, Numbers
from thrifty.errors import InvalidInputError
from thrifty.evidence.averages import Averages, Means, route_by
from thrifty.evidence.evidence import Evidence
from thrifty.rows import query_keys
from thrifty.tasks.ranking import RankingTask, queries_of

__all__ = ["QueryEvidence"]


@dataclass(frozen=True, eq=False)
class QueryEvidence(Evidence):
    """Held-out documents at every stage of one system; ``quality`` and ``full_quality`` are scores to rank them by.

    Attributes
    ----------
    gate, quality, cost, full_quality
        As of ``Evidence``, with a line for each document.
    rows
        Fingerprints of queries.
    task : RankingTask
        How good an order is.
    document_targets : ndarray of shape (n_documents,)
        Queries and grades, as the task encodes them.
    against : bool
        Whether a query is judged by whether its order is not worse than the full model's.
    """

    task: RankingTask | None = None
    document_targets: Floats | None = None
    against: bool = False

    unit: ClassVar[str | None] = "queries"

    def __post_init__(self) -> None:
        rows = self.rows
        object.__setattr__(self, "rows", None)
        super().__post_init__()
        object.__setattr__(self, "rows", rows)
        if (
            self.task is None
            or self.document_targets is None
            or self.document_targets.shape != (len(self.gate),)
        ):
            raise InvalidInputError("evidence of queries needs the task and a target for each document.")
        names, number = np.unique(queries_of(self.document_targets), return_inverse=True)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_size", np.bincount(number).astype(np.float64))
        object.__setattr__(self, "_n_queries", len(names))

    @classmethod
    def of_documents(
        cls, evidence: Evidence, task: RankingTask, target: Floats, scores: Floats
    ) -> "QueryEvidence":
        """Evidence of queries, from that of their documents and the scores by which places rank them."""
        keys = None if evidence.rows is None else query_keys(evidence.rows, queries_of(target))
        changed = dict.fromkeys(("target", "scores", "full_scores", "weight")) | {
            "quality": scores,
            "rows": keys,
            "task": task,
        }
        known = {one.name: getattr(evidence, one.name) for one in fields(evidence)} | changed
        return cls(**known, document_targets=target)

    @property
    def n_rows(self) -> int:
        """Number of queries."""
        return self._n_queries  # type: ignore[attr-defined,no-any-return]

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.gate)

    def take(self, rows: Ints) -> "QueryEvidence":
        """Some of the queries."""
        kept = np.isin(self._number, np.arange(self.n_rows)[rows])  # type: ignore[attr-defined]
        return replace(
            self,
            gate=self.gate[kept],
            quality=self.quality[kept],
            cost=self.cost if self.cost.ndim == 1 else self.cost[kept],
            full_quality=None if self.full_quality is None else self.full_quality[kept],
            rows=None if self.rows is None else self.rows[rows],
            document_targets=self.targets[kept],
        )

    @property
    def targets(self) -> Floats:
        """Queries and grades of the documents."""
        assert self.document_targets is not None  # checked when it was made
        return self.document_targets

    def value(self, scores: Floats) -> Floats:
        """The measure of each query where its documents are ranked by some scores; NaN where it is not defined."""
        assert self.task is not None  # checked when it was made
        return self.task.value_of_queries(self.targets, scores)

    def of_places(self, full_scores: Floats) -> tuple[Floats, Floats]:
        """The measure of the queries that have one: by the full model's scores, and at each stage in a column."""
        places = [
            self.value(np.asarray(self.quality[:, place], dtype=np.float64)) for place in range(self.n_stages)
        ]
        full, stages = self.value(full_scores[:, 0]), np.column_stack(places)
        is_known = ~np.isnan(full)
        return full[is_known], stages[is_known]

    def score_at(self, place: int) -> float:
        """Mean measure where every document is scored at a place."""
        return float(np.nanmean(self.value(np.asarray(self.quality[:, place], dtype=np.float64))))

    @property
    def full_score(self) -> float:
        """Mean measure of the full model's own orders."""
        return float(np.nanmean(self.value(np.asarray(self.full_quality, dtype=np.float64))))

    def against_full(self) -> "QueryEvidence":
        """The queries with a relevant document, judged by whether the order is not worse than the full model's."""
        if self.full_quality is None:
            super().against_full()  # refuses
        if self.against:
            return self
        known = np.flatnonzero(~np.isnan(self.value(np.zeros(self.n_documents))))
        if not len(known):
            raise InvalidInputError(
                "no query has a relevant document, so that no order is worse than another."
            )
        return replace(self.take(known), against=True)

    def of_queries(self, values: Numbers) -> Floats:
        """Sums of a number per document over each query."""
        sums: Floats = np.bincount(self._number, values, self.n_rows).astype(np.float64)  # type: ignore[attr-defined]
        return sums

    def averages(self, points: Floats) -> Averages:
        """Means at some points, shape (n_points, n_stages), for any weights of the queries."""
        return _QueryAverages(self, points)

    def judged_at(self, point: Floats) -> tuple[Ints, Floats, Floats]:
        """Place of each document, what the documents of each query pay together, and the measure of each query."""
        route = route_by(self.gate, point)
        rows = np.arange(self.n_documents)
        paid = self.cost[route] if self.cost.ndim == 1 else self.cost[rows, route]
        value = self.value(np.asarray(self.quality[rows, route], dtype=np.float64))
        if self.against and self.full_quality is not None:
            least = self.value(np.asarray(self.full_quality, dtype=np.float64)) - self.tolerance
            value = (value >= least - 1e-12).astype(np.float64)
        return route, self.of_queries(paid), value

    def at_point(self, point: Floats) -> tuple[Ints, Floats, Numbers]:
        """Place of each document; cost and quality of each query, with means per document and over known queries.

        Queries differ in their number of documents, and in some of them no order is better than another. So a mean
        is a ratio of two sums, and what a query adds to it is told around that mean: averages over queries are the
        ratio, and their spread is that of the ratio.
        """
        route, paid, value = self.judged_at(point)
        size: Floats = self._size  # type: ignore[attr-defined]
        is_known = ~np.isnan(value)
        mean = paid.sum() / size.sum()
        cost = mean + (paid - mean * size) / size.mean()
        if not is_known.any():
            return route, cost, np.zeros(len(value))
        score = value[is_known].mean()
        return route, cost, score + np.where(is_known, value - score, 0.0) / is_known.mean()


class _QueryAverages:
    """Means at some points: cost and share per document, and the measure over the queries that have one."""

    def __init__(self, evidence: QueryEvidence, points: Floats) -> None:
        seen = [evidence.judged_at(point) for point in points]
        self._size: Floats = evidence._size  # type: ignore[attr-defined]
        self._cost = np.array([paid for _, paid, _ in seen])
        self._share = np.array([evidence.of_queries(route == evidence.n_stages) for route, _, _ in seen])
        value = np.array([one for _, _, one in seen])
        self._is_known = (~np.isnan(value[0])).astype(np.float64)
        self._score = np.nan_to_num(value)

    def under(self, weights: Floats | None = None) -> Means:
        """Means under some weightings of the queries."""
        given = np.ones((len(self._size), 1)) if weights is None else weights
        size, known = self._size @ given, np.maximum(self._is_known @ given, 1e-300)
        found = Means(self._cost @ given / size, self._share @ given / size, self._score @ given / known)
        if weights is not None:
            return found
        return Means(found.cost[:, 0], found.share[:, 0], found.score[:, 0])
