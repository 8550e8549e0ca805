"""Evidence: scores, costs and qualities of held-out rows at every stage, from which operating points are computed.

For each row and each stage it holds the gate's score, the cost of a row that stops there, and the quality of its
answer; the last column is the full model, or the chain behind the stages. That determines what any thresholds do with
the rows, so operating points are found, compared and certified on arrays, without calling a model again.

``GateAverages`` and ``RouteAverages`` keep what means of operating points under any weights of the rows, such as the
counts of a bootstrap, have in common.

Means, bootstrap and tests count *units*: rows, or, of a ranking, queries.

A router has no gates: its places are rules, and a point is the number of a rule that all rows follow (``of_rules``).

Documents of one query stop at different stages, so the measure of an order belongs to no single document or stage, and
documents of one query are not independent: ``RankedQueries`` has their sums and measures.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from thrifty.arrays import (
    Bools,
    Codes,
    Floats,
    Ints,
    Numbers,
    Words,
    finite_numbers,
    has_shape,
    plain_settings,
)
from thrifty.engine.prices.billing import costs_in_rounds
from thrifty.engine.tasks.ranking import RankingTask, queries_of
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.policy import (
    Policy,
    check_threshold,
    distinct_thresholds,
    later_places,
    route_by,
)
from thrifty.errors import InvalidInputError
from thrifty.rows import query_keys


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
            if (
                name not in self._steps
            ):  # gains, each in the line of the threshold that first sends its row on
                gain, shape = self._gain[name], (self._n_points, self._n_rows)
                rows = np.flatnonzero((self._first < self._n_points) & (gain != 0))
                self._steps[name] = sparse.csr_array((gain[rows], (self._first[rows], rows)), shape=shape)
            sums = self._stop[name] @ weights + np.cumsum(self._steps[name] @ weights, axis=0)
        return sums[self._place_of]


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
    def number(self) -> Ints:
        """Number of the query of each document."""
        return np.unique(queries_of(self.target), return_inverse=True)[1]

    @cached_property
    def size(self) -> Floats:
        """Number of documents of each query."""
        return np.bincount(self.number).astype(np.float64)

    @cached_property
    def is_known(self) -> Bools:
        """Mask of the queries for which the measure is defined: those with a relevant document."""
        return ~np.isnan(self.measure(np.zeros(len(self.target))))

    def sums(self, values: Numbers) -> Floats:
        """Sums of a number per document over each query."""
        sums: Floats = np.bincount(self.number, values, len(self)).astype(np.float64)
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


@dataclass(frozen=True, eq=False)
class Evidence:
    """Held-out rows at every stage of one system.

    Attributes
    ----------
    gate : ndarray of shape (n_rows, n_stages)
        Gate scores; a row goes on from a stage iff its score is larger than the threshold. Without columns, places
        are rules, and a point is the number of one.
    quality : ndarray of shape (n_rows, n_places), bool or float
        Quality of the answer of each stage and, last, of the one behind all of them; bool where it is right or wrong.
        Of documents, scores to rank them by.
    cost : ndarray of shape (n_places,) or (n_rows, n_places)
        Total cost of a row that is answered there; per row where that differs.
    full_quality : ndarray of shape (n_rows,), optional
        Quality of the full model's own answer, or its scores; required for comparisons with the full model.
    points : ndarray of shape (n_points, n_stages), or (n_points, 1) of rules, optional
        Thresholds of the operating points, or numbers of rules; None, for a single gate, is every threshold, and every
        rule where places are rules.
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
    rows : ndarray of shape (n_units, 2), optional
        Fingerprints of the cells of each unit, and of cells and label: a certificate counts no unit twice.
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
        Excess of the mean quality at each of ``points`` over that to expect of new rows, because the rows influenced
        what is evaluated on them, and its standard error; means of operating points are corrected by it.
        None is zero.
    unit : RankedQueries, optional
        Unit of means and tests, where that is not rows: the queries whose documents the rows are.
    costs : ndarray of shape (n_places, n_resources) or (n_rows, n_places, n_resources), optional
        Total cost in each resource of a row that is answered there, where there are several; ``cost`` is then their sum
        at exchange rates.
    rounds : ndarray of shape (n_places, n_places, n_resources), optional
        Cost of making the purchases of some places together, by the first and the last one, where a resource is a
        delay: what a row pays then depends on the stages at which an operating point lets rows stop.
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
    unit: RankedQueries | None = None
    costs: Floats | None = None
    rounds: Floats | None = None

    def __post_init__(self) -> None:
        gate = finite_numbers("gate", np.asarray(self.gate), (None, None))
        n_rows, n_stages = gate.shape
        if self.unit is not None and self.unit.target.shape != (n_rows,):
            raise InvalidInputError("evidence of queries needs a target for each document.")
        checked: dict[str, Any] = {
            "gate": gate,
            "quality": _check_quality("quality", self.quality, (n_rows, n_stages + 1 if n_stages else None)),
            "features": tuple(int(column) for column in np.ravel(np.asarray(self.features, dtype=np.intp))),
            "settings": plain_settings(self.settings),
        }
        n_places = checked["quality"].shape[1]
        checked["cost"] = finite_numbers(
            "cost", self.cost, (n_rows, n_places) if np.ndim(self.cost) == 2 else (n_places,)
        )
        if self.costs is not None:
            shape = (n_rows, n_places, None) if np.ndim(self.costs) == 3 else (n_places, None)
            checked["costs"] = finite_numbers("costs", self.costs, shape)
        if self.rounds is not None:
            checked["rounds"] = finite_numbers("rounds", self.rounds, (n_places, n_places, None))
        if self.full_quality is not None:
            checked["full_quality"] = _check_quality("full_quality", self.full_quality, (n_rows,))
        if self.points is not None:
            points = np.asarray(self.points, dtype=np.float64)
            width = n_stages or 1
            if points.ndim != 2 or points.shape[1] != width or np.isnan(points).any() or not len(points):
                raise InvalidInputError(
                    f"points must hold at least one point with a threshold for each of {n_stages} stages; got shape "
                    f"{points.shape}."
                )
            if not n_stages and not np.isin(points, np.arange(n_places)).all():
                raise InvalidInputError(f"points must be numbers of {n_places} rules, counted from 0.")
            checked["points"] = points
        if self.optimism is not None:
            n_points = 0 if self.points is None else len(self.points)
            checked["optimism"] = finite_numbers("optimism", self.optimism, (n_points, 2))
        if self.rows is not None:
            checked["rows"] = _check_fingerprints(
                "rows", self.rows, (n_rows if self.unit is None else len(self.unit), 2)
            )
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
        **fields: Any,
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
            **fields,
        )

    @classmethod
    def of_point(cls, cost: ArrayLike, quality: ArrayLike, sent: ArrayLike, **fields: Any) -> Self:
        """One operating point of any system: cost and quality of each row, and whether it got to the full model.

        Several points of one system differ in their settings: put there the parameters that distinguish them.
        """
        answered = np.asarray(quality)
        # A gate at 1/2 on top of "was sent" is this very point.
        gate = finite_numbers("sent", np.asarray(sent, dtype=np.float64), answered.shape)[:, None]
        paid = _per_row("cost", cost, len(gate))
        both = _columns("quality", answered, answered, len(gate))
        return cls(
            gate, both, np.column_stack([paid, paid]), points=np.array([[0.5]]), is_fixed=True, **fields
        )

    @classmethod
    def of_rules(cls, cost: ArrayLike, quality: ArrayLike, **fields: Any) -> Self:
        """Rules that all rows follow, as those of a router: cost and quality of each row under each rule."""
        return cls(np.empty((len(np.asarray(quality)), 0)), np.asarray(quality), np.asarray(cost), **fields)

    def __repr__(self) -> str:
        what = f"Evidence({self.n_rows:,} rows"
        if not self.is_fixed or self.points is None or len(self.points) != 1:
            return f"{what}, {self.n_stages} stages)" if self.n_stages else f"{what}, rules)"
        _, cost, quality = self.at_point(self.points[0])
        return f"{what}: mean cost {np.mean(cost):.4g}, mean quality {np.mean(quality):.4g})"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.gate)

    @property
    def n_units(self) -> int:
        """Number of units: of rows, or of queries."""
        return self.n_rows if self.unit is None else len(self.unit)

    @property
    def unit_name(self) -> str:
        """Name of the unit, in the plural."""
        return "rows" if self.unit is None else self.unit.name

    @property
    def n_stages(self) -> int:
        """Number of stages, which is the place behind them; 0 where places are rules."""
        return int(self.gate.shape[1])

    @property
    def n_parameters(self) -> int:
        """Length of a point: a threshold for each stage, or the number of a rule."""
        return self.n_stages or 1

    @property
    def weights(self) -> Floats:
        """Weights of the units, one each where none were given."""
        return np.ones(self.n_units) if self.weight is None else self.weight

    @property
    def classes(self) -> list[Any]:
        """Labels of the classes that ``strata`` numbers, as the user wrote them; empty where they are not known."""
        return [] if self.task is None else self.task.classes.tolist()

    @property
    def known_rows(self) -> tuple[Words, ...]:
        """Fingerprints of all rows that the system was fitted or evaluated on, as far as they are known."""
        rows = () if self.rows is None else (self.rows[:, 0],)
        return rows if self.seen is None else (*rows, self.seen)

    @property
    def sends_to_full(self) -> bool:
        """True if a row that passes every stage gets the full model's own answer."""
        return self.full_quality is not None and np.array_equal(self.quality[:, -1], self.full_quality)

    @property
    def identity(self) -> str:
        """Text that is equal for the same system on other rows."""
        points = "every threshold"
        if self.points is not None:
            digest = hashlib.sha256(np.ascontiguousarray(self.points).tobytes()).hexdigest()[:12]
            points = "as it is" if self.is_fixed else f"{len(self.points)} points {digest}"
        return json.dumps([points, list(self.features), self.settings], sort_keys=True)

    def cost_at(self, place: int) -> Floats:
        """Cost of rows that are answered at a place: one number, or one per row."""
        return self.cost[..., place]

    def quality_at(self, place: int) -> Floats:
        """Quality of each unit where every row is answered at a place; NaN where it is not defined."""
        return self._quality_of_units(self.quality[:, place])

    def _quality_of_units(self, quality: Numbers) -> Floats:
        return np.asarray(quality, dtype=np.float64) if self.unit is None else self.unit.measure(quality)

    @property
    def full_score(self) -> float:
        """Mean quality of the full model's own answers."""
        return float(np.nanmean(self._quality_of_units(np.asarray(self.full_quality))))

    def lead_over_full(self, point: Floats) -> tuple[float, float]:
        """Mean score of a point minus that of the full model, less its optimism, and the standard error, by units."""
        if self.full_quality is None:
            raise InvalidInputError(
                "a loss is measured against the full model, whose answers this evidence does not have, as that of a "
                "router. Choose a budget, or prove a loss against one model on new rows: certified(..., max_loss=...)."
            )
        full = self._quality_of_units(self.full_quality)
        full = full if self.unit is None else self.unit.spread(np.zeros(len(full)), full)[1]
        lead, share = self.at_point(point)[2] - full, self.weights / self.weights.sum()
        mean, (optimism, error) = float((share * lead).sum()), self.optimism_at(point[None])[0]
        return mean - float(optimism), float(np.sqrt(np.square(share * (lead - mean)).sum() + error**2))

    def of_queries(self, task: RankingTask, target: Floats, scores: Floats) -> "Evidence":
        """The same answers as scores of documents, with their queries as units."""
        rows = None if self.rows is None else query_keys(self.rows, queries_of(target))
        left_out: dict[str, Any] = dict.fromkeys(("target", "scores", "full_scores", "weight"))
        unit = RankedQueries(target, task)
        return replace(self, **left_out, quality=scores, rows=rows, task=task, unit=unit)

    def take(self, units: Ints) -> "Evidence":
        """Some of the rows, or of the queries with all of their documents."""
        unit, rows, fingerprints = self.unit, units, None if self.rows is None else self.rows[units]
        if unit is not None:
            of_queries = np.isin(unit.number, np.arange(len(unit))[units])
            unit, rows = replace(unit, target=unit.target[of_queries]), np.flatnonzero(of_queries)
        names = (
            "gate",
            "quality",
            "full_quality",
            "weight",
            "target",
            "scores",
            "full_scores",
            "strata",
            "right",
        )
        per_row = {name: getattr(self, name) for name in names}
        if self.cost.ndim == 2:
            per_row["cost"] = self.cost
        if self.costs is not None and self.costs.ndim == 3:
            per_row["costs"] = self.costs
        taken: dict[str, Any] = {
            name: None if array is None else array[rows] for name, array in per_row.items()
        }
        return replace(self, **taken, rows=fingerprints, unit=unit)

    def without_scores(self) -> "Evidence":
        """The evidence as operating points are chosen, compared and certified with it, in half of the memory.

        Targets and scores, which only measures such as recall and AUC need, are left out, and so are weights that are
        all one.
        """
        weight = None if self.weight is None or np.all(self.weight == 1.0) else self.weight
        return replace(self, weight=weight, target=None, scores=None, full_scores=None)

    def keep_stages(
        self,
        kept: list[int],
        points: Floats | None,
        cost: Floats,
        costs: Floats | None = None,
        rounds: Floats | None = None,
    ) -> "Evidence":
        """Evidence of a chain with some of the stages, other points and other costs."""
        return replace(
            self,
            costs=costs,
            rounds=rounds,
            gate=self.gate[:, kept],
            quality=self.quality[:, [*kept, self.n_stages]],
            cost=cost,
            points=points,
            scores=None if self.scores is None else self.scores[:, [*kept, self.n_stages]],
            right=None if self.right is None else self.right[:, [*kept, self.n_stages]],
        )

    # -- operating points --------------------------------------------------------------------------

    def every_point(self) -> "tuple[Floats, Means]":
        """Every operating point, shape (n_points, n_parameters), and their means.

        Sums are taken before they are divided: counts of right answers are exact, so that points that are equally good
        compare as equal.
        """
        points = self.points
        if points is None and self.n_stages > 1:
            raise InvalidInputError(
                f"every threshold can be tried for a single gate only; here are {self.n_stages} stages. Give `points`."
            )
        if points is None and self.n_stages:
            points = distinct_thresholds(self.gate[:, 0])[:, None]
        elif points is None:
            points = np.arange(self.quality.shape[1], dtype=np.float64)[:, None]
        return points, self.averages(points).under()

    def averages(self, points: Floats) -> GateAverages | RouteAverages | CorrectedAverages:
        """Means at some points, shape (n_points, n_parameters), for any weights of the units."""
        if self.optimism is not None:
            plain = replace(self, optimism=None).averages(points)
            return CorrectedAverages(plain, self.optimism_at(points)[:, 0])
        if (unit := self.unit) is not None:
            # Over documents, and over queries with a relevant document, from sums over each query.
            place, paid, measure = zip(*(self._sums_at(unit, point) for point in points), strict=True)
            sent = np.array([unit.sums(places == self.n_stages) for places in place])
            is_known = ~np.isnan(measure[0])
            return RouteAverages(np.array(paid), sent, np.nan_to_num(measure), unit.size, is_known)
        if self.n_stages == 1:
            return GateAverages(self.gate[:, 0], self.cost, self.quality, points[:, 0])
        place, cost, quality = zip(*(self.at_point(point) for point in points), strict=True)
        # With rules, the share sent on is not defined.
        sent = np.array(place) == self.n_stages if self.n_stages else np.full(np.shape(cost), np.nan)
        return RouteAverages(np.array(cost), sent, np.array(quality))

    def with_full_alone(self) -> "Evidence":
        """The full model's own answers behind the stages, instead of those blended with the last stage."""
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
        of_points, wanted = (self.weighted_means(each)[0] for each in (self.points, points))
        rising = np.argsort(of_points, kind="stable")
        optimism = [np.interp(wanted, of_points[rising], column) for column in self.optimism[rising].T]
        # Where all rows go to the full model no order matters.
        return np.where(np.isneginf(points).all(axis=1), 0.0, optimism).T

    def against_full(self) -> "Evidence":
        """The evidence with "not worse than the full model" as quality; of queries, those with a relevant document."""
        if self.full_quality is None:
            raise InvalidInputError(
                f"this evidence (settings {self.settings}) does not say how good the full model's answers are, "
                f"so it cannot be held against it. Give full_quality."
            )
        if self.unit is not None:
            if self.unit.against_full:
                return self
            if not self.unit.is_known.any():
                raise InvalidInputError(
                    "no query has a relevant document, so that no order is worse than another."
                )
            relevant = self.take(np.flatnonzero(self.unit.is_known))
            assert relevant.unit is not None  # as of these
            return replace(relevant, unit=replace(relevant.unit, against_full=True))
        full = self.full_quality
        return replace(
            self,
            quality=self.quality >= (full if full.dtype == bool else full - self.tolerance)[:, None],
            # The full model is never worse than itself; where its answer is the last one, that must stay visible.
            full_quality=np.ones(len(full), dtype=bool) if self.sends_to_full else full,
            optimism=None,
        )

    def excess(self, largest: float) -> Floats:
        """Excess loss of each answer over the full model's, shape of ``quality``, as a share of ``largest``.

        Losses are clipped at ``largest``, so that an excess is in [-1, 1].
        """
        if self.unit is not None:
            raise InvalidInputError(
                f"{self.unit_name} have no loss whose mean can be bounded; count those that are worse instead."
            )
        self.against_full()  # refuses evidence without the quality of the full model
        best = 1.0 if self.task is None else self.task.best_quality
        lost, by_full = (
            np.minimum(best - np.asarray(quality, dtype=np.float64), largest) / largest
            for quality in (self.quality, self.full_quality)
        )
        excess: Floats = lost - by_full[:, None]
        return excess

    def explored(self, share: float) -> "Evidence":
        """The evidence with the cost and quality to expect of rows of which a share goes on beyond its stop.

        Measures of orders are those without it: an order has no place.
        """
        if not share:
            return self
        to = later_places(share, self.n_stages + 1)

        def mean(values: Any) -> Any:  # place by place: a BLAS sums in an order of its own
            return sum(values[..., [place]] * to[:, place] for place in range(len(to)))

        right: Any = self.quality if self.right is None and self.quality.dtype == bool else self.right
        quality = self.quality if self.unit is not None else mean(self.quality)
        costs = None if self.costs is None else np.moveaxis(mean(np.moveaxis(self.costs, -2, -1)), -1, -2)
        return replace(self, cost=mean(self.cost), quality=quality, right=right, costs=costs)

    def weighted_means(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean cost and mean quality of the units at each of some points, by the weights of the rows."""
        weight, results = self.weights, (self.at_point(point) for point in points)
        means = [
            (np.average(paid, weights=weight), np.average(np.asarray(quality, np.float64), weights=weight))
            for _, paid, quality in results
        ]
        cost, score = np.array(means).T
        return cost, score

    def costs_at(self, point: Floats) -> Floats:
        """Cost of each row at one point in each of several resources, shape (n_rows, n_resources)."""
        assert self.costs is not None  # asked for only where there are several
        place = self._places_at(point)
        if self.rounds is not None:
            return costs_in_rounds(self.rounds, point)[place]
        costs: Floats = (
            self.costs[place] if self.costs.ndim == 2 else self.costs[np.arange(len(place)), place]
        )
        return costs

    def mean_costs(self, points: Floats) -> Floats:
        """Mean cost at each of some points in each of several resources, shape (n_points, n_resources)."""
        return np.array([np.average(self.costs_at(point), axis=0, weights=self.weight) for point in points])

    def of_resource(self, number: int) -> "Evidence":
        """The evidence with the costs in one of several resources."""
        assert self.costs is not None  # asked for only where there are several
        rounds = None if self.rounds is None else self.rounds[..., [number]]
        return replace(self, cost=self.costs[..., number], costs=None, rounds=rounds)

    def at_point(self, point: Floats) -> tuple[Ints, Floats, Numbers]:
        """Place of each row at one point, and cost and quality of each unit.

        Plain means over queries are the mean cost of documents and the mean measure of queries that have one.
        """
        if self.unit is not None:
            place, paid, measure = self._sums_at(self.unit, point)
            return place, *self.unit.spread(paid, measure)
        return self._rows_at(point)

    def _sums_at(self, unit: RankedQueries, point: Floats) -> tuple[Ints, Floats, Floats]:
        """Place of each document, what the documents of each query pay together, and the quality of each query."""
        place, paid, scores = self._rows_at(point)
        return place, unit.sums(paid), unit.quality(scores, self.full_quality, self.tolerance)

    def _places_at(self, point: Floats) -> Ints:
        """Place of each row at one point."""
        return route_by(self.gate, point) if self.n_stages else np.full(self.n_rows, int(point[0]))

    def _rows_at(self, point: Floats) -> tuple[Ints, Floats, Numbers]:
        """Place, cost and quality, or score, of each row at one point."""
        place = self._places_at(point)
        rows = np.arange(len(place))
        if self.rounds is not None and self.costs is None:  # of one resource
            return place, costs_in_rounds(self.rounds, point)[place, 0], self.quality[rows, place]
        cost = self.cost[place] if self.cost.ndim == 1 else self.cost[rows, place]
        return place, cost, self.quality[rows, place]

    def share_by_lot(self, policy: Policy) -> float:
        """Share of the rows that two mixed points route differently, by rules at other costs: their keys decide."""
        points = [point for share, point in policy.in_force if share > 0.0]
        first, *others = (self.at_point(policy.thresholds[point]) for point in points)
        what = 0 if self.n_stages else 1
        differs = [first[what] != other[what] for other in others]
        return float(np.mean(np.any(differs, axis=0))) if differs else 0.0

    def answers_at(self, point: Floats) -> "PointAnswers":
        """Place of each row at one point, whether its answer is right, and its scores, as far as they are known."""
        route = self._places_at(point)
        rows = np.arange(len(route))
        right = self.quality if self.right is None else self.right
        return PointAnswers(
            route,
            np.asarray(right[rows, route], dtype=bool) if right.dtype == bool else None,
            None if self.scores is None else self.scores[rows, route],
        )


class PointAnswers(NamedTuple):
    """Rows at one operating point: place, whether the answer is right, and its scores; None where unknown."""

    place: Ints
    right: Bools | None
    scores: Floats | None


def means_at(
    evidence: Sequence[Evidence], source: Ints, thresholds: Floats, rows: Bools | Floats | None = None
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
    rows : ndarray of shape (n_rows,), bool or float, optional
        Rows to average over, or weights of the rows.
    """
    weights = None if rows is None else rows.astype(np.float64)[:, None]
    cost, share, score = np.empty((3, len(source)))
    for place in np.unique(source):
        at = source == place
        means = evidence[place].averages(thresholds[at, : evidence[place].n_parameters]).under(weights)
        cost[at], share[at], score[at] = np.ravel(means.cost), np.ravel(means.share), np.ravel(means.score)
    return Means(cost, share, score)


# -- checks ----------------------------------------------------------------------------------------


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


def _check_quality(name: str, quality: ArrayLike, shape: tuple[int | None, ...]) -> Numbers:
    """Numbers of a shape; bool stays bool, in an eighth of the memory."""
    numbers = finite_numbers(name, quality, shape)
    return np.asarray(quality) if np.asarray(quality).dtype == bool else numbers


def _check_fingerprints(name: str, values: Any, shape: tuple[int | None, ...]) -> Words:
    """Fingerprints, 64 bits each, of a shape, None being any length."""
    words = np.asarray(values)
    if words.dtype != np.uint64 or not has_shape(words, shape):
        raise InvalidInputError(
            f"{name} must hold fingerprints of rows, of type uint64 and shape {str(shape).replace('None', 'any')}; got "
            f"{words.dtype} and {words.shape}."
        )
    return words
