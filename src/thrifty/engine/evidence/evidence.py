"""Evidence: scores, costs and qualities of held-out rows at every stage, from which operating points are computed.

For each row and each stage it holds the gate's score, the cost of a row that stops there, and the quality of its
answer; the last column is the full model, or the chain behind the stages. That determines what any thresholds do with
the rows, so operating points are found, compared and certified on arrays, without calling a model again.

The evidence of a ranking (``QueryEvidence``) has queries as its rows. Documents of one query stop at different stages,
so the metric of the order belongs to no single document or stage; means, bootstrap and tests count queries, which are
independent of each other, as documents of one query are not.

A bootstrap needs the means of operating points under a thousand weightings of the rows; ``GateAverages`` and
``RouteAverages`` keep what does not depend on the weights.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from thrifty.arrays import Bools, Codes, Floats, Ints, Numbers, Words
from thrifty.engine.tasks.ranking import RankingTask, queries_of
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError
from thrifty.rows import query_keys

__all__ = [
    "Answers",
    "Averages",
    "Evidence",
    "GateAverages",
    "Means",
    "QueryEvidence",
    "RouteAverages",
    "check_threshold",
    "distinct_thresholds",
    "finite_numbers",
    "means_at",
    "plain_settings",
    "route_by",
]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Held-out rows at every stage of one system.

    Attributes
    ----------
    gate : ndarray of shape (n_rows, n_stages)
        Gate scores; a row goes on from a stage iff its score is larger than the threshold.
    quality : ndarray of shape (n_rows, n_stages + 1), bool or float
        How good the answer of each stage is and, last, the answer behind all of them; bool where it is right or wrong.
    cost : ndarray of shape (n_stages + 1,) or (n_rows, n_stages + 1)
        Total cost of a row that is answered there; per row where that differs.
    full_quality : ndarray of shape (n_rows,), optional
        Quality of the full model's own answer; required for comparisons with the full model.
    points : ndarray of shape (n_points, n_stages), optional
        Thresholds of the operating points; None, for a single gate, is every threshold.
    weight : ndarray of shape (n_rows,), optional
        Sample weights, for stopping rules; frontiers and certificates count every row once.
    features : tuple of int
        Columns that the stages buy.
    settings : dict
        Parameters of the fit, as JSON keeps them.
    target, scores : ndarray of shape (n_rows,) and (n_rows, n_stages + 1, n_scores), optional
        Targets as the task encodes them, and scores of the answer at each place, for measures such as recall and AUC;
        a fitted estimator and a file do without them.
    full_scores : ndarray of shape (n_rows, n_scores), optional
        Scores of the full model's own answers.
    is_fixed : bool
        Whether this is one operating point as it is, which no threshold describes: see ``of_point``.
    rows : ndarray of shape (n_rows, 2), optional
        Fingerprints of the cells of each row, and of cells and label: a certificate counts no row twice.
    seen : ndarray of shape (n_seen,), optional
        Fingerprints of the cells of other rows that the system was fitted on: a certificate does not count them.
    strata : ndarray of shape (n_rows,), optional
        Number of the class of each row, for recall by class.
    right : ndarray of shape (n_rows, n_stages + 1), optional
        Whether the answer at each place is the true class, where ``quality`` is not that.
    tolerance : float
        Difference in quality to the full model up to which an answer does not count as worse; 0 where answers are right
        or wrong.
    task : Task, optional
        The task, for the labels of classes and the largest loss of an answer.
    optimism : ndarray of shape (n_points, 2), optional
        By how much the mean quality at each of ``points`` exceeds that to expect of new rows, because the rows had a
        say in what is judged on them, and the standard error of that; means of operating points are corrected by it.
        None is zero.
    """

    gate: Floats
    quality: Numbers
    cost: Floats
    full_quality: Numbers | None = None
    points: Floats | None = None
    weight: Floats | None = None
    features: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    is_fixed: bool = False
    target: Floats | None = None
    scores: Floats | None = None
    full_scores: Floats | None = None
    rows: Words | None = None
    seen: Words | None = None
    strata: Codes | None = None
    right: Bools | None = None
    tolerance: float = 0.0
    task: Task | None = None
    optimism: Floats | None = None

    unit: ClassVar[str | None] = None  # name of what is counted, where that is not rows

    def __post_init__(self) -> None:
        gate = finite_numbers("gate", np.asarray(self.gate), (None, None))
        n_rows, n_stages = gate.shape
        checked: dict[str, Any] = {
            "gate": gate,
            "quality": check_quality("quality", self.quality, (n_rows, n_stages + 1)),
            "cost": finite_numbers(
                "cost", self.cost, (n_rows, n_stages + 1) if np.ndim(self.cost) == 2 else (n_stages + 1,)
            ),
            "features": tuple(int(column) for column in np.ravel(np.asarray(self.features, dtype=np.intp))),
            "settings": plain_settings(self.settings),
        }
        if self.full_quality is not None:
            checked["full_quality"] = check_quality("full_quality", self.full_quality, (n_rows,))
        if self.points is not None:
            points = np.asarray(self.points, dtype=np.float64)
            if points.ndim != 2 or points.shape[1] != n_stages or np.isnan(points).any() or not len(points):
                raise InvalidInputError(
                    f"points must hold at least one point with a threshold for each of {n_stages} stages; got shape "
                    f"{points.shape}."
                )
            checked["points"] = points
        if self.optimism is not None:
            n_points = 0 if self.points is None else len(self.points)
            checked["optimism"] = finite_numbers("optimism", self.optimism, (n_points, 2))
        if self.rows is not None:
            checked["rows"] = _check_fingerprints("rows", self.rows, (self.n_rows, 2))
        if self.seen is not None:
            checked["seen"] = _check_fingerprints("seen", self.seen, (None,))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_gate(
        cls,
        g: ArrayLike,
        *,
        stop_cost: ArrayLike,
        go_cost: ArrayLike,
        stop_quality: ArrayLike,
        go_quality: ArrayLike,
        full_quality: ArrayLike | None = None,
        threshold: float | None = None,
        **known: Any,
    ) -> Self:
        """Evidence of a single gate between a cheap and a full answer; ``threshold``, if given, is its only point.

        Costs are one number for all rows, or one per row; qualities one per row. Without ``full_quality``, rows are
        sent straight to the full model, so that it is ``go_quality``.
        """
        gate = finite_numbers("g", np.asarray(g), (None,))[:, None]
        stop, go = np.asarray(stop_quality), np.asarray(go_quality)
        both = [_per_row("stop_cost", stop_cost, len(gate)), _per_row("go_cost", go_cost, len(gate))]
        per_row = np.ndim(stop_cost) > 0 or np.ndim(go_cost) > 0
        return cls(
            gate,
            _columns("stop_quality and go_quality", stop, go, len(gate)),
            np.column_stack(both) if per_row else np.array([both[0][0], both[1][0]]),
            full_quality=go if full_quality is None else np.asarray(full_quality),
            points=None if threshold is None else np.array([[check_threshold(threshold)]]),
            **known,
        )

    @classmethod
    def of_point(cls, cost: ArrayLike, quality: ArrayLike, sent: ArrayLike, **known: Any) -> Self:
        """One operating point of any system: cost and quality of each row, and whether it got to the full model.

        Several points of one system differ in their settings: put there what tells them apart.
        """
        answered = np.asarray(quality)
        # A gate at 1/2 on top of "was sent" is this very point.
        gate = finite_numbers("sent", np.asarray(sent, dtype=np.float64), answered.shape)[:, None]
        paid = _per_row("cost", cost, len(gate))
        both = _columns("quality", answered, answered, len(gate))
        return cls(
            gate, both, np.column_stack([paid, paid]), points=np.array([[0.5]]), is_fixed=True, **known
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.gate)

    @property
    def n_stages(self) -> int:
        """Number of stages, which is the place behind them."""
        return int(self.gate.shape[1])

    @property
    def weights(self) -> Floats:
        """Weights of the rows, one each where none were given."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    @property
    def classes(self) -> list[Any]:
        """Labels of the classes that ``strata`` numbers, as the user wrote them; empty where they are not known."""
        return [] if self.task is None else self.task.classes.tolist()

    @property
    def known_rows(self) -> tuple[Words, ...]:
        """Fingerprints of all rows that the system was fitted on or judged on, as far as they are known."""
        own = () if self.rows is None else (self.rows[:, 0],)
        return own if self.seen is None else (*own, self.seen)

    @property
    def sends_to_full(self) -> bool:
        """Whether a row that passes every stage gets the full model's own answer."""
        return self.full_quality is not None and np.array_equal(self.quality[:, -1], self.full_quality)

    @property
    def identity(self) -> str:
        """Text that is equal for the same system on other rows."""
        points = "every threshold"
        if self.points is not None:
            digest = hashlib.sha256(np.ascontiguousarray(self.points).tobytes()).hexdigest()[:12]
            points = "as it is" if self.is_fixed else f"{len(self.points)} points {digest}"
        return json.dumps([points, list(self.features), self.settings], sort_keys=True)

    def is_same_measurement(self, other: "Evidence") -> bool:
        """Whether both hold the same numbers row by row, as only the same rows give."""
        return np.array_equal(self.gate, other.gate) and np.array_equal(self.quality, other.quality)

    def cost_at(self, place: int) -> Floats:
        """What rows pay that are answered at a place: one number, or one per row."""
        return self.cost[..., place]

    def score_at(self, place: int) -> float:
        """Mean quality where every row is answered at a place."""
        return float(np.mean(self.quality[:, place]))

    @property
    def full_score(self) -> float:
        """Mean quality of the full model's own answers."""
        return float(np.mean(np.asarray(self.full_quality)))

    def take(self, rows: Ints) -> "Evidence":
        """Some of the rows."""
        names = (
            "gate",
            "quality",
            "full_quality",
            "weight",
            "target",
            "scores",
            "full_scores",
            "rows",
            "strata",
            "right",
        )
        per_row = {name: getattr(self, name) for name in names}
        if self.cost.ndim == 2:
            per_row["cost"] = self.cost
        taken: dict[str, Any] = {name: None if one is None else one[rows] for name, one in per_row.items()}
        return replace(self, **taken)

    def without_scores(self) -> "Evidence":
        """All that operating points are found, compared and proved with, in half of the memory.

        Targets and scores, which only measures such as recall and AUC ask for, are left out, and weights that are all
        one, which need not be written down.
        """
        weight = None if self.weight is None or np.all(self.weight == 1.0) else self.weight
        return replace(self, weight=weight, target=None, scores=None, full_scores=None)

    def keep_stages(self, kept: list[int], points: Floats, cost: Floats) -> "Evidence":
        """Evidence of a chain with some of the stages, other points and other costs."""
        return replace(
            self,
            gate=self.gate[:, kept],
            quality=self.quality[:, [*kept, self.n_stages]],
            cost=cost,
            points=points,
            scores=None if self.scores is None else self.scores[:, [*kept, self.n_stages]],
            right=None if self.right is None else self.right[:, [*kept, self.n_stages]],
        )

    # -- operating points --------------------------------------------------------------------------

    def every_point(self) -> "tuple[Floats, Means]":
        """Thresholds of every operating point, shape (n_points, n_stages), and their means.

        Sums are taken before they are divided: counts of right answers are exact, so that points that are equally good
        compare as equal.
        """
        if self.points is None and self.n_stages != 1:
            raise InvalidInputError(
                f"every threshold can be tried for a single gate only; here are {self.n_stages} stages. Give `points`."
            )
        points = distinct_thresholds(self.gate[:, 0])[:, None] if self.points is None else self.points
        return points, self.averages(points).under()

    def averages(self, points: Floats) -> "Averages":
        """Means at some points, shape (n_points, n_stages), for any weights of the rows."""
        if self.optimism is not None:
            plain = replace(self, optimism=None).averages(points)
            return CorrectedAverages(plain, self.optimism_at(points)[:, 0])
        if self.n_stages == 1:
            return GateAverages(self.gate[:, 0], self.cost, self.quality, points[:, 0])
        route, cost, quality = zip(*(self.at_point(point) for point in points), strict=True)
        return RouteAverages(np.array(cost), np.array(route) == self.n_stages, np.array(quality))

    def with_full_alone(self) -> "Evidence":
        """The full model's own answers behind the stages, in the place of those blended with the last stage."""
        if self.full_quality is None:
            return self
        quality, scores = self.quality.copy(), self.scores
        quality[:, -1] = self.full_quality
        if scores is not None and self.full_scores is not None:
            scores = np.concatenate([scores[:, :-1], self.full_scores[:, None]], axis=1)
        return replace(self, quality=quality, scores=scores)

    def optimism_at(self, points: Floats) -> Floats:
        """Optimism at some points, shape (n_points, 2): that of the point of the same mean cost, or between two."""
        if self.optimism is None or self.points is None:
            return np.zeros((len(points), 2))
        known, asked = (
            np.array([np.average(self.at_point(point)[1], weights=self.weights) for point in some])
            for some in (self.points, points)
        )
        rising = np.argsort(known, kind="stable")
        found = [np.interp(asked, known[rising], one) for one in self.optimism[rising].T]
        # Where all rows go to the full model no order matters.
        return np.where(np.isneginf(points).all(axis=1), 0.0, found).T

    def against_full(self) -> "Evidence":
        """The evidence with "not worse than the full model on this row" in the place of quality."""
        if self.full_quality is None:
            raise InvalidInputError(
                f"this evidence (settings {self.settings}) does not say how good the full model's answers are, "
                f"so it cannot be held against it. Give full_quality."
            )
        full = self.full_quality
        return replace(
            self,
            quality=self.quality >= (full if full.dtype == bool else full - self.tolerance)[:, None],
            # The full model is never worse than itself; where its answer is the last one, that must stay visible.
            full_quality=np.ones(len(full), dtype=bool) if self.sends_to_full else full,
            optimism=None,
        )

    def excess(self, largest: float) -> Floats:
        """What each answer loses more than the full model's, shape of ``quality``, as a share of ``largest``.

        Losses are clipped at ``largest``, so that an excess is in [-1, 1].
        """
        self.against_full()  # refuses where nothing is known of the full model
        best = 1.0 if self.task is None else self.task.best_quality
        lost, by_full = (
            np.minimum(best - np.asarray(one, dtype=np.float64), largest) / largest
            for one in (self.quality, self.full_quality)
        )
        excess: Floats = lost - by_full[:, None]
        return excess

    def at_point(self, point: Floats) -> tuple[Ints, Floats, Numbers]:
        """Place, cost and quality of each row at one point."""
        route = route_by(self.gate, point)
        rows = np.arange(len(route))
        cost = self.cost[route] if self.cost.ndim == 1 else self.cost[rows, route]
        return route, cost, self.quality[rows, route]

    def answers_at(self, point: Floats) -> "Answers":
        """Place of each row at one point, whether its answer is right, and its scores, as far as they are known."""
        route = route_by(self.gate, point)
        rows = np.arange(len(route))
        right = self.quality if self.right is None else self.right
        return Answers(
            route,
            np.asarray(right[rows, route], dtype=bool) if right.dtype == bool else None,
            None if self.scores is None else self.scores[rows, route],
        )


class Answers(NamedTuple):
    """Rows at one operating point: place, whether the answer is right, and its scores; None where unknown."""

    place: Ints
    right: Bools | None
    scores: Floats | None


def _per_row(name: str, cost: ArrayLike, n_rows: int) -> Floats:
    """One cost per row, from that or from one for all."""
    return finite_numbers(name, np.broadcast_to(cost, n_rows) if np.ndim(cost) == 0 else cost, (n_rows,))


def _columns(name: str, stop: Any, go: Any, n_rows: int) -> Numbers:
    if stop.shape != (n_rows,) or go.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} must hold one number per row, shape ({n_rows},); got shapes {stop.shape} and {go.shape}."
        )
    both: Numbers = np.column_stack([stop, go])
    return both


# -- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
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

    task: RankingTask
    document_targets: Floats
    against: bool = False

    unit: ClassVar[str | None] = "queries"

    def __post_init__(self) -> None:
        if self.document_targets.shape != (len(self.gate),):
            raise InvalidInputError("evidence of queries needs a target for each document.")
        super().__post_init__()

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
        return len(self._size)

    @cached_property
    def _number(self) -> Ints:
        """Number of the query of each document."""
        return np.unique(queries_of(self.document_targets), return_inverse=True)[1]

    @cached_property
    def _size(self) -> Floats:
        """Number of documents of each query."""
        return np.bincount(self._number).astype(np.float64)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.gate)

    def take(self, rows: Ints) -> "QueryEvidence":
        """Some of the queries."""
        kept = np.isin(self._number, np.arange(self.n_rows)[rows])
        return replace(
            self,
            gate=self.gate[kept],
            quality=self.quality[kept],
            cost=self.cost if self.cost.ndim == 1 else self.cost[kept],
            full_quality=None if self.full_quality is None else self.full_quality[kept],
            rows=None if self.rows is None else self.rows[rows],
            document_targets=self.document_targets[kept],
        )

    def value(self, scores: Floats) -> Floats:
        """The measure of each query where its documents are ranked by some scores; NaN where it is not defined."""
        return self.task.value_of_queries(self.document_targets, scores)

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
        sums: Floats = np.bincount(self._number, values, self.n_rows).astype(np.float64)
        return sums

    def averages(self, points: Floats) -> "Averages":
        """Means at some points, shape (n_points, n_stages), for any weights of the queries."""
        route, paid, value = zip(*(self.judged_at(point) for point in points), strict=True)
        sent = [self.of_queries(one == self.n_stages) for one in route]
        is_known = ~np.isnan(value[0])
        return RouteAverages(np.array(paid), np.array(sent), np.nan_to_num(value), self._size, is_known)

    def judged_at(self, point: Floats) -> tuple[Ints, Floats, Floats]:
        """Place of each document, what the documents of each query pay together, and the measure of each query."""
        route, paid, scores = super().at_point(point)
        value = self.value(np.asarray(scores, dtype=np.float64))
        if self.against and self.full_quality is not None:
            least = self.value(np.asarray(self.full_quality, dtype=np.float64)) - self.tolerance
            value = (value >= least - 1e-12).astype(np.float64)
        return route, self.of_queries(paid), value

    def at_point(self, point: Floats) -> tuple[Ints, Floats, Numbers]:
        """Place of each document; cost and quality of each query, with means per document and over known queries.

        Queries differ in their number of documents, and in some of them no order is better than another. So a mean
        is a ratio of two sums, and what a query adds to it is measured around that mean: averages over queries are the
        ratio, and their spread is that of the ratio.
        """
        route, paid, value = self.judged_at(point)
        size, is_known = self._size, ~np.isnan(value)
        mean = paid.sum() / size.sum()
        cost = mean + (paid - mean * size) / size.mean()
        if not is_known.any():
            return route, cost, np.zeros(len(value))
        score = value[is_known].mean()
        return route, cost, score + np.where(is_known, value - score, 0.0) / is_known.mean()


# -- means of operating points ---------------------------------------------------------------------


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

    def under(self, weights: Floats | None = None) -> "Means":
        """Means under weights of shape (n_rows, n_weightings); every row once, and flat answers, if None."""


def route_by(gate: Floats, thresholds: Floats) -> Ints:
    """Stage at which each row stops, shape (n_rows,); the number of stages means that it goes beyond them."""
    stops = gate <= thresholds
    route: Ints = np.where(stops.any(axis=1), np.argmax(stops, axis=1), gate.shape[1]).astype(np.intp)
    return route


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
        """Means under some weightings of the rows."""
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
        What each row adds; of a query, the sums over its documents, and the measure of its order.
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
        given = np.ones((self._cost.shape[1], 1)) if weights is None else weights
        size = known = given.sum(axis=0)
        if self._size is not None and self._is_known is not None:
            size, known = self._size @ given, np.maximum(self._is_known @ given, 1e-300)
        found = self._cost @ given / size, self._share @ given / size, self._score @ given / known
        return Means(*(one[:, 0] if weights is None else one for one in found))


@dataclass(frozen=True)
class CorrectedAverages:
    """Means of operating points whose scores are too high by a known amount each."""

    plain: Averages
    optimism: Floats

    def under(self, weights: Floats | None = None) -> "Means":
        """Means under some weightings of the rows."""
        means = self.plain.under(weights)
        return replace(
            means, score=means.score - (self.optimism if weights is None else self.optimism[:, None])
        )


def means_at(
    evidence: Sequence[Evidence], source: Ints, thresholds: Floats, rows: Bools | None = None
) -> Means:
    """Means of operating points of several systems, over all rows or some.

    Parameters
    ----------
    evidence : sequence of Evidence
        The systems, on the same rows.
    source : ndarray of shape (n_points,)
        The system of each point.
    thresholds : ndarray of shape (n_points, n_stages)
        A line per point, as long as the system with the most stages needs.
    rows : ndarray of shape (n_rows,), bool, optional
        Rows to average over.
    """
    weights = None if rows is None else rows.astype(np.float64)[:, None]
    cost, share, score = np.empty((3, len(source)))
    for place in np.unique(source):
        at = source == place
        means = evidence[place].averages(thresholds[at, : evidence[place].n_stages]).under(weights)
        cost[at], share[at], score[at] = np.ravel(means.cost), np.ravel(means.share), np.ravel(means.score)
    return Means(cost, share, score)


# -- thresholds of one gate ------------------------------------------------------------------------


def distinct_thresholds(g: Floats) -> Floats:
    """Every threshold that sends on another set of the rows with these gate scores, falling from "send no row".

    They are midway between neighbouring scores; "no row" and "all rows" are infinite, so that they hold for other rows
    too.
    """
    # Rows with equal scores go together.
    falling = np.unique(g)[::-1]
    above, below = np.r_[np.inf, falling], np.r_[falling, -np.inf]
    with np.errstate(invalid="ignore"):
        middle = below + (above - below) / 2.0
    # Midpoints that overflow or round onto the upper score fall back to the lower one, which is not sent.
    cut: Floats = np.where(np.isfinite(middle) & (middle < above), middle, below)
    cut[0] = np.inf
    return cut


# -- checks ----------------------------------------------------------------------------------------


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON would give them back: arrays and tuples become lists, dataclasses dicts."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(settings), default=_plain))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"settings must be a dict of what JSON can hold: numbers, text, lists, dicts, None; "
            f"got {settings!r} ({error})."
        ) from None
    return plain


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def check_quality(name: str, quality: ArrayLike, shape: tuple[int | None, ...]) -> Numbers:
    """Numbers of a shape; what was bool stays bool, in an eighth of the memory."""
    numbers = finite_numbers(name, quality, shape)
    return np.asarray(quality) if np.asarray(quality).dtype == bool else numbers


def check_threshold(threshold: object) -> float:
    """A threshold of a gate; infinite ones send no row or all rows."""
    try:
        number = float(threshold)  # type: ignore[arg-type]  # anything may arrive; what cannot convert is refused
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number):
        raise InvalidInputError(
            f"threshold must be a number, infinite ones included; got {threshold!r}. Rows with g > threshold go on."
        )
    return number


def finite_numbers(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    """Finite float64 numbers of a shape, None being any length, with at least one row."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must hold numbers; got {type(values).__name__}.") from None
    if not _has_shape(numbers, shape) or len(numbers) == 0:
        wanted = str(shape).replace("None", "any")
        raise InvalidInputError(
            f"{name} must hold numbers for at least one row, shape {wanted}; got shape {numbers.shape}."
        )
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        value = float(numbers[bad][0])
        raise InvalidInputError(f"{name} must hold finite numbers; got {value!r} in row {row}.")
    return numbers


def _check_fingerprints(name: str, values: Any, shape: tuple[int | None, ...]) -> Words:
    """Fingerprints, 64 bits each, of a shape, None being any length."""
    words = np.asarray(values)
    if words.dtype != np.uint64 or not _has_shape(words, shape):
        raise InvalidInputError(
            f"{name} must hold fingerprints of rows, of type uint64 and shape {str(shape).replace('None', 'any')}; got "
            f"{words.dtype} and {words.shape}."
        )
    return words


def _has_shape(values: Any, shape: tuple[int | None, ...]) -> bool:
    return values.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, values.shape, strict=True))
