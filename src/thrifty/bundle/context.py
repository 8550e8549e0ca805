"""What writing and reading know besides the part at hand: the table's columns, the task, the full model (f0) to use."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from thrifty.arrays import Ints
from thrifty.bundle.fields import Fields, Packer
from thrifty.errors import InvalidInputError
from thrifty.tables.columns import ColumnType, Levels
from thrifty.tasks.task import Task

__all__ = ["Columns", "FullMode", "Reading", "Writing"]

FullMode = Literal["inside", "reference", "absent"]

_MOST_LEVELS = 8


@dataclass(frozen=True)
class Columns:
    """The tables that a model reads: how many columns, their names, and the data frame if they have names."""

    n_features: int = 0
    names: tuple[str, ...] | None = None
    kind: str | None = None
    types: tuple[ColumnType, ...] | None = None
    levels: Levels | None = None

    def take(self, columns: Ints) -> "Columns":
        """Some of the columns."""
        levels = {} if self.levels is None else self.levels.of_column
        kept = {place: levels[column] for place, column in enumerate(columns.tolist()) if column in levels}
        return Columns(
            len(columns),
            None if self.names is None else tuple(self.names[column] for column in columns),
            self.kind,
            None if self.types is None else tuple(self.types[column] for column in columns),
            Levels(kept) if kept else None,
        )


@dataclass(frozen=True)
class Writing:
    """How an object is written.

    Attributes
    ----------
    packer : Packer
        Collects the arrays.
    full : {"inside", "reference", "absent"}
        What becomes of the full model (f0).
    pack_object : callable
        Writes a chain or an estimator of ours that stands inside another.
    columns : Columns
        Of the tables that the full model reads.
    level : int
        Objects that this one stands in.
    evidence : bool
        Whether the rows that operating points were judged on are written too.
    """

    packer: Packer
    full: FullMode
    pack_object: Callable[[Any, "Writing"], dict[str, Any]]
    columns: Columns = Columns()
    level: int = 0
    evidence: bool = True

    def one_level_in(self) -> "Writing":
        """How an object inside this one is written."""
        _check_level(self.level)
        return replace(self, level=self.level + 1)

    def for_cheap_model(self, n_columns: int) -> "Writing":
        """How a cheap model is written: it is part of what serves, so it is always inside."""
        return replace(self, full="inside", columns=Columns(n_columns))


@dataclass(frozen=True)
class Reading:
    """How an object is read.

    Attributes
    ----------
    unpack_object : callable
        Reads a chain or an estimator of ours that stands inside another.
    full : object, optional
        The full model as the caller gave it.
    trusted : tuple of str
        Types a foreign model may be made of, besides those that skops trusts anyway.
    max_bytes : int
        What a foreign model may unpack to.
    columns : Columns
        Of the tables that the full model reads.
    task : Task, optional
        What is answered.
    level : int
        Objects that this one stands in.
    """

    unpack_object: Callable[[Fields, "Reading"], Any]
    full: Any
    trusted: tuple[str, ...]
    max_bytes: int
    columns: Columns = Columns()
    task: Task | None = None
    level: int = 0

    def one_level_in(self) -> "Reading":
        """How an object inside this one is read."""
        _check_level(self.level)
        return replace(self, level=self.level + 1)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.columns.n_features

    @property
    def answers(self) -> Task:
        """What is answered, where that is known."""
        if self.task is None:
            raise InvalidInputError("the bundle holds a model in a place where nothing is to be answered.")
        return self.task

    def for_cheap_model(self, n_columns: int) -> "Reading":
        """How a cheap model is read: on its own columns, and never replaced by what the caller gave."""
        return replace(self, full=None, columns=Columns(n_columns))


def _check_level(level: int) -> None:
    # Chains that stand in one another answer by recursion, which must not exhaust the interpreter.
    if level >= _MOST_LEVELS:
        raise InvalidInputError(
            f"a bundle holds at most {_MOST_LEVELS} chains and estimators within one another; here are more. "
            f"Make them one chain of stages."
        )
