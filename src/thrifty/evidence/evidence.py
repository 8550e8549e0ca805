"""What a chain does with rows that it has not learned from, at every stage: all that choosing operating points needs.

For each row and each stage there is the gate's score, what the row has paid that stops there, and how good its answer
is; last comes what is behind the stages. That is enough to say what any thresholds would have done with the rows, so
operating points are found, compared and certified on arrays, and no model is asked again.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Codes, Floats, Ints, Numbers, Words
from thrifty.errors import InvalidInputError
from thrifty.evidence.averages import Averages, GateAverages, Means, RouteAverages, route_by
from thrifty.evidence.cuts import cuts_of
from thrifty.evidence.inputs import (
    as_text,
    check_cost,
    check_quality,
    check_threshold,
    check_words,
    column_numbers,
    finite_numbers,
    plain_settings,
)
from thrifty.tasks.task import Task

__all__ = ["Evidence"]


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
        What a row has paid that is answered there; per row where that differs.
    full_quality : ndarray of shape (n_rows,), optional
        How good the full model's own answer is; without it nothing can be said against the full model.
    points : ndarray of shape (n_points, n_stages), optional
        Thresholds of the operating points there are; None, for a single gate, is every threshold.
    weight : ndarray of shape (n_rows,), optional
        Weights, for rules of stopping; frontiers and certificates count every row once.
    features : tuple of int
        Columns that the stages buy.
    stage_columns : tuple of tuple of int
        Columns that a row holds at each stage; empty where there is one stage, which holds ``features``.
    settings : dict
        What the system was fitted with; kept as JSON keeps it.
    target, scores : ndarray of shape (n_rows,) and (n_rows, n_stages + 1, n_scores), optional
        Targets as the task encodes them, and scores of the answer at each place, for measures such as recall and AUC;
        a fitted estimator and a file do without them.
    full_scores : ndarray of shape (n_rows, n_scores), optional
        Scores of the full model's own answers.
    is_fixed : bool
        Whether this is one operating point as it is, which no threshold describes: see ``of_point``.
    rows : ndarray of shape (n_rows, 2), optional
        Fingerprints of what each row holds, and of that together with its label: a certificate counts no row twice.
    seen : ndarray of shape (n_seen,), optional
        Fingerprints of what other rows hold that the system was fitted on: a certificate does not count them.
    strata : ndarray of shape (n_rows,), optional
        Number of the class of each row, for recall by class.
    right : ndarray of shape (n_rows, n_stages + 1), optional
        Whether the answer at each place is the true class, where ``quality`` says something else.
    tolerance : float
        How much less good than the full model's an answer may be before it counts as worse; nothing, where answers are
        right or wrong.
    task : Task, optional
        What an answer is, which tells the labels of classes and how much an answer can lose.
    """

    gate: Floats
    quality: Numbers
    cost: Floats
    full_quality: Numbers | None = None
    points: Floats | None = None
    weight: Floats | None = None
    features: tuple[int, ...] = ()
    stage_columns: tuple[tuple[int, ...], ...] = ()
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

    unit: ClassVar[str | None] = None  # what a row is, where it is none

    def __post_init__(self) -> None:
        gate = finite_numbers("gate", np.asarray(self.gate), (None, None))
        n_rows, n_stages = gate.shape
        checked: dict[str, Any] = {
            "gate": gate,
            "quality": check_quality("quality", self.quality, (n_rows, n_stages + 1)),
            "cost": check_cost(self.cost, n_rows, n_stages + 1),
            "features": column_numbers(self.features),
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
        if self.rows is not None:
            checked["rows"] = check_words("rows", self.rows, (n_rows, 2))
        if self.seen is not None:
            checked["seen"] = check_words("seen", self.seen, (None,))
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
        """One gate and what stands on both sides of it; ``threshold`` is the only one allowed, if given.

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
        """One operating point, whatever made it: what each row paid and got, and whether it got to the full model.

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
            told = hashlib.sha256(np.ascontiguousarray(self.points).tobytes()).hexdigest()[:12]
            points = "as it is" if self.is_fixed else f"{len(self.points)} points {told}"
        return as_text([points, list(self.features), self.settings])

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
        return replace(
            self,
            gate=self.gate[rows],
            quality=self.quality[rows],
            cost=self.cost if self.cost.ndim == 1 else self.cost[rows],
            full_quality=None if self.full_quality is None else self.full_quality[rows],
            weight=None if self.weight is None else self.weight[rows],
            target=None if self.target is None else self.target[rows],
            scores=None if self.scores is None else self.scores[rows],
            full_scores=None if self.full_scores is None else self.full_scores[rows],
            rows=None if self.rows is None else self.rows[rows],
            strata=None if self.strata is None else self.strata[rows],
            right=None if self.right is None else self.right[rows],
        )

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
            stage_columns=tuple(self.stage_columns[place] for place in kept) if self.stage_columns else (),
        )

    def columns_at(self, place: int) -> Ints:
        """Columns that a row holds at a stage."""
        held = self.stage_columns[place] if self.stage_columns else self.features
        return np.asarray(held, dtype=np.intp)

    # -- operating points --------------------------------------------------------------------------

    def every_point(self) -> tuple[Floats, Means]:
        """Thresholds of every operating point, shape (n_points, n_stages), and their means.

        Sums are taken before they are divided: counts of right answers are exact, so that points that are equally good
        compare as equal.
        """
        if self.points is None and self.n_stages != 1:
            raise InvalidInputError(
                f"every threshold can be tried for a single gate only; here are {self.n_stages} stages. Give `points`."
            )
        points = cuts_of(self.gate[:, 0]).threshold[:, None] if self.points is None else self.points
        return points, self.averages(points).under()

    def averages(self, points: Floats) -> Averages:
        """Means at some points, shape (n_points, n_stages), for any weights of the rows."""
        if self.n_stages == 1:
            return GateAverages(self.gate[:, 0], self.cost, self.quality, points[:, 0])
        return RouteAverages([self.at_point(point) for point in points], self.n_stages)

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
            # The full model is never worse than itself; where its answer stands last, that must stay visible.
            full_quality=np.ones(len(full), dtype=bool) if self.sends_to_full else full,
        )

    def excess(self, largest: float) -> Floats:
        """What each answer loses more than the full model's, shape of ``quality``, as a share of ``largest``.

        Losses are clipped at ``largest``, so that an excess lies in [-1, 1].
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
        rows = np.arange(self.n_rows)
        cost = self.cost[route] if self.cost.ndim == 1 else self.cost[rows, route]
        return route, cost, self.quality[rows, route]


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
