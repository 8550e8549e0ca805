"""What a fitted system did on a set of rows, reduced to arrays: all that choosing operating points needs.

There are two kinds. ``RowOutcomes`` is one cheap stage in front of something dearer: the gate's scores and what a row
pays and gets if it stops and if it is sent on, so every threshold is an operating point. ``PointOutcomes``
is a single operating point, whatever made it (a cascade with many thresholds, a rule, a system as it is): what each
row paid and got. Both fulfil ``Outcomes``, the only thing a frontier knows about.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from thrifty.arrays import Bools, Floats, Numbers
from thrifty.evidence.averages import Averages, Means, Statistic
from thrifty.evidence.row_checks import (
    as_text,
    check_cost,
    check_right,
    check_threshold,
    column_numbers,
    numbers_per_row,
    plain_settings,
    yes_or_no,
)
from thrifty.evidence.threshold import cuts_of
from thrifty.exceptions import InvalidInputError

__all__ = ["Outcomes", "PointOutcomes", "RowOutcomes"]


class Outcomes(Protocol):
    """One source of operating points on one set of rows."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def features(self) -> tuple[int, ...]:
        """Columns that the cheap part buys."""

    @property
    def settings(self) -> dict[str, Any]:
        """What it was fitted with."""

    @property
    def identity(self) -> str:
        """Text that is equal for the same system on other rows."""

    def is_same_measurement(self, other: "Outcomes") -> bool:
        """Whether both hold the same numbers row by row, as only the same rows give."""

    def every_point(self) -> tuple[Floats, Means]:
        """Thresholds (NaN: the point is not a threshold) and means of every operating point."""

    def averages(self, thresholds: Floats) -> Averages:
        """Means at some thresholds, for any weights of the rows."""

    def against_full(self) -> "Outcomes":
        """The same, with "not worse than f0 on this row" in the place of "right"."""


@dataclass(frozen=True, eq=False)
class RowOutcomes:
    """One gate and what stands on both sides of it: every threshold is an operating point.

    Attributes
    ----------
    g : ndarray of shape (n_samples,)
        Gate scores; a row with ``g > threshold`` is sent on.
    stop_cost, go_cost : float or ndarray of shape (n_samples,)
        What a row pays if it stops here, and if it is sent on.
    stop_right, go_right : ndarray of shape (n_samples,), bool or float
        What is averaged into the score in each case; bool where an answer is right or wrong.
    features : tuple of int
        Columns that the cheap part buys.
    settings : dict
        What it was fitted with; kept as JSON keeps it.
    threshold : float, optional
        The only threshold allowed; None allows all of them.
    full_right : ndarray of shape (n_samples,), bool, optional
        Whether f0 is right; None says that rows are sent straight to f0, so that it is ``go_right``.

    Notes
    -----
    Every row counts once: there are no sample weights here. A row that stands for two is given twice.
    """

    g: Floats
    stop_cost: Floats | float
    go_cost: Floats | float
    stop_right: Numbers
    go_right: Numbers
    features: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    full_right: Bools | None = None

    def __post_init__(self) -> None:
        g = numbers_per_row("g", self.g, None)
        n_rows = len(g)
        _store(self, g=g, features=column_numbers(self.features), settings=plain_settings(self.settings))
        _store(
            self, **{name: check_cost(name, getattr(self, name), n_rows) for name in ("stop_cost", "go_cost")}
        )
        _store(
            self,
            **{name: check_right(name, getattr(self, name), n_rows) for name in ("stop_right", "go_right")},
        )
        if self.full_right is not None:
            _store(self, full_right=check_right("full_right", self.full_right, n_rows))
        if self.threshold is not None:
            _store(self, threshold=check_threshold(self.threshold))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.g)

    @property
    def identity(self) -> str:
        """Text that is equal for the same system on other rows."""
        return as_text(["thresholds", self.threshold, list(self.features), self.settings])

    @property
    def sends_to_full(self) -> bool:
        """Whether a row that is sent on gets f0's own answer."""
        return self.full_right is None

    def is_same_measurement(self, other: Outcomes) -> bool:
        """Whether both hold the same numbers row by row, as only the same rows give."""
        return isinstance(other, RowOutcomes) and _equal(self, other, "g", "stop_right", "go_right")

    def every_point(self) -> tuple[Floats, Means]:
        """Thresholds and means of every distinct cut of these rows; of the only one, where only one is allowed.

        One sort. Sums are taken before they are divided: counts of right answers are exact, so that
        points that are equally good compare as equal.
        """
        if self.threshold is not None:
            only = np.array([self.threshold])
            return only, self.averages(only).under()
        cuts, n_rows = cuts_of(self.g), self.n_rows
        sent = cuts.n_sent.astype(np.float64)

        def running(statistic: Statistic) -> Floats:
            nobody = np.broadcast_to(np.asarray(statistic.stop, dtype=np.float64), (n_rows,)).sum()
            total: Floats = nobody + np.r_[0.0, np.cumsum(statistic.gain(n_rows)[cuts.order])][cuts.n_sent]
            return total / n_rows

        stop, go = self.stop_cost, self.go_cost
        if isinstance(stop, float) and isinstance(go, float):
            cost: Floats = (stop * (n_rows - sent) + go * sent) / n_rows
        else:
            cost = running(Statistic(stop, go))
        return cuts.threshold, Means(cost, sent / n_rows, running(Statistic(self.stop_right, self.go_right)))

    def averages(self, thresholds: Floats) -> Averages:
        """Means at some thresholds, for any weights of the rows."""
        cost = Statistic(self.stop_cost, self.go_cost)
        return Averages(self.g, cost, Statistic(self.stop_right, self.go_right), thresholds)

    def against_full(self) -> Self:
        """The same, with "not worse than f0 on this row" in the place of "right"."""
        full = yes_or_no("full_right", self.go_right if self.full_right is None else self.full_right)
        return replace(
            self,
            stop_right=~full | yes_or_no("stop_right", self.stop_right),
            go_right=~full | yes_or_no("go_right", self.go_right),
        )


@dataclass(frozen=True, eq=False)
class PointOutcomes:
    """One operating point, whatever made it.

    Attributes
    ----------
    cost : float or ndarray of shape (n_samples,)
        What each row paid.
    right : ndarray of shape (n_samples,), bool or float
        What is averaged into the score.
    sent : ndarray of shape (n_samples,), bool
        Whether the row was answered by f0.
    features, settings, full_right
        As in ``RowOutcomes``; without ``full_right`` nothing can be said against f0. Several points of one system
        differ in their settings: put there what tells them apart.
    """

    cost: Floats | float
    right: Numbers
    sent: Bools
    features: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    full_right: Bools | None = None

    def __post_init__(self) -> None:
        right = check_right("right", self.right, None)
        _store(
            self, right=right, features=column_numbers(self.features), settings=plain_settings(self.settings)
        )
        _store(
            self,
            cost=check_cost("cost", self.cost, len(right)),
            sent=check_right("sent", self.sent, len(right)),
        )
        if self.full_right is not None:
            _store(self, full_right=check_right("full_right", self.full_right, len(right)))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.right)

    @property
    def identity(self) -> str:
        """Text that is equal for the same system on other rows."""
        return as_text(["point", list(self.features), self.settings])

    def is_same_measurement(self, other: Outcomes) -> bool:
        """Whether both hold the same numbers row by row, as only the same rows give."""
        return isinstance(other, PointOutcomes) and _equal(self, other, "cost", "right", "sent")

    def every_point(self) -> tuple[Floats, Means]:
        """NaN, since the point is not a threshold, and its means."""
        none = np.array([np.nan])
        return none, self.averages(none).under()

    def averages(self, thresholds: Floats) -> Averages:
        """Means of the point, once per threshold asked for, for any weights of the rows."""
        # A gate at 1/2 on top of "was sent" is this very point.
        cost, right = Statistic(self.cost, self.cost), Statistic(self.right, self.right)
        gate = np.asarray(self.sent, dtype=np.float64)
        return Averages(gate, cost, right, np.full(len(thresholds), 0.5))

    def against_full(self) -> Self:
        """The same, with "not worse than f0 on this row" in the place of "right"."""
        if self.full_right is None:
            raise InvalidInputError(
                f"these PointOutcomes (settings {self.settings}) do not say on which rows f0 is right, "
                f"so they cannot be held against it. Give full_right."
            )
        full = yes_or_no("full_right", self.full_right)
        return replace(self, right=~full | yes_or_no("right", self.right))


def _store(outcomes: object, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(outcomes, name, value)


def _equal(one: object, other: object, *names: str) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
