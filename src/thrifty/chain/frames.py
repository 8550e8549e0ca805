"""The data frame of a fit, made of any cells again.

The full model is a model of the user's, and reads the frame that it was fitted on: categories with their levels in the
order of the fit, dates, truth values, the types of the columns. Cells come in other forms (text of a file, values of a
database, JSON), and stages read numbers. Here they are read, and the frame of the fit is made of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from thrifty.arrays import Floats, Ints
from thrifty.chain.column_types import ColumnType, declared_as, dtype_of
from thrifty.chain.levels import Levels, column_at, dates_as_days, day_of, is_date, is_missing
from thrifty.chain.sources import as_numbers, kind_of_table, plain_frame
from thrifty.errors import InvalidInputError

__all__ = ["FrameOfFit", "truth_of"]

_TRUTHS = {"true": 1.0, "false": 0.0}


# -- cells ---------------------------------------------------------------------------------------


def truth_of(value: Any) -> float:
    """A truth value as 1 or 0, also where it is written in words; a number stays, and None is missing.

    Raises ValueError or TypeError for what is neither.
    """
    if is_missing(value):
        return np.nan
    if isinstance(value, str):
        truth = _TRUTHS.get(value.strip().lower())
        return float(value) if truth is None else truth
    return float(value)


_READ = {"time": day_of, "day": day_of, "span": day_of, "truth": truth_of}
_CALLED = {
    "time": "dates such as 2026-01-31 or 2026-01-31T12:30, or days since 1970-01-01",
    "day": "dates such as 2026-01-31, or days since 1970-01-01",
    "span": "durations, or numbers of days",
    "truth": "True or False, or 1 or 0",
}


@dataclass(frozen=True, eq=False)
class FrameOfFit:
    """The data frame that a full model was fitted on.

    Attributes
    ----------
    kind : {"pandas", "polars"}
        Whose frame it was.
    names : tuple of str
        Names of the columns.
    types : tuple of ColumnType, or None
        How they were declared; None where a file does not tell.
    levels : Levels, optional
        Levels of the columns of text or categories.
    """

    kind: str
    names: tuple[str, ...]
    types: tuple[ColumnType, ...] | None
    levels: Levels | None

    def type_of(self, column: int) -> ColumnType:
        """How a column was declared."""
        if self.types is not None:
            return self.types[column]
        return ColumnType("mixed" if self._is_level(column) else "number")

    def is_number(self, column: int) -> bool:
        """Whether a column held plain numbers."""
        return not self._is_level(column) and self.type_of(column).holds == "number"

    @cached_property
    def reads_numbers(self) -> bool:
        """Whether every column held plain numbers."""
        return all(map(self.is_number, range(len(self.names))))

    def _is_level(self, column: int) -> bool:
        return self.levels is not None and column in self.levels.of_column

    # -- cells as numbers --------------------------------------------------------------------------

    def numbers(self, cells: Any, columns: Ints) -> Any:
        """Numbers of cells of some columns, in whatever form they come: what stages read."""
        if self.reads_numbers or sparse.issparse(cells):
            return as_numbers(cells, "what a source answers")
        kind = kind_of_table(cells)
        table: Any = cells if kind else np.asarray(cells)
        if kind is None:
            has_levels = any(self._is_level(column) for column in columns.tolist())
            if table.dtype.kind in "biuf" and not has_levels:
                return as_numbers(table)
            table = table.astype(object)
        if len(table.shape) != 2 or table.shape[1] != len(columns):
            return np.empty(table.shape)  # refused by whoever asked, who knows what was asked for
        numbers = (self.levels or Levels({})).numbers(_without(table, self._read_here(columns)), columns)
        for place in self._read_here(columns):
            numbers[:, place] = self._read(_cells_of(table, place), int(columns[place]))
        return numbers

    def _read_here(self, columns: Ints) -> list[int]:
        """Places of columns of dates and truth values."""
        return [
            place
            for place, column in enumerate(columns.tolist())
            if not self._is_level(column) and self.type_of(column).holds in _READ
        ]

    def _read(self, values: Any, column: int) -> Floats:
        """Numbers of a column of dates or truth values."""
        holds = self.type_of(column).holds
        if kind_of_table(values) and is_date(str(values.dtype).lower(), values.to_frame(), 0):
            return dates_as_days(values)
        cells = values.to_list() if kind_of_table(values) else values.tolist()
        numbers = np.empty(len(cells))
        for place, value in enumerate(cells):
            try:
                numbers[place] = _READ[holds](value)
            except (TypeError, ValueError, OverflowError):
                raise InvalidInputError(
                    f"column {self.names[column]!r} must hold {_CALLED[holds]}, as it did at the fit; got {value!r}. "
                    f"Where a value is missing, give None or NaN."
                ) from None
        return numbers

    # -- the frame of the fit ----------------------------------------------------------------------

    def table(self, numbers: Floats, columns: Ints, raw: Any = None) -> Any:
        """The frame of the fit with some columns, from the numbers that stages read.

        Parameters
        ----------
        numbers : ndarray of shape (n_rows, n_columns)
            Numbers.
        columns : ndarray of int
            The columns that they are of.
        raw : mapping of int to sequence, optional
            Values of columns of text and categories as they came, by the number of the column; of the others, the
            levels are taken.
        """
        numbered = [int(column) for column in columns]
        names = [self.names[column] for column in numbered]
        blocks, rest = self._blocks(numbers, numbered)
        values: dict[str, Any] = {}
        for place in rest:
            column, one = numbered[place], numbers[:, place]
            cells: Any = one
            if self._is_level(column):
                given = None if raw is None else raw.get(column)
                cells = self._texts(column, one) if given is None else given
            values[self.names[column]] = self._declared(cells, column)
        if not blocks:
            return _frame(self.kind, values)
        return blocks[0] if len(blocks) == 1 and not values else _joined(blocks, values, self.kind, names)

    def _blocks(self, numbers: Floats, columns: list[int]) -> tuple[list[Any], list[int]]:
        """Frames of columns that are declared together, such as thousands of pixels, and places of the others."""
        places_of: dict[Any, list[int]] = {}
        for place, column in enumerate(columns):
            places_of.setdefault(self._together[column], []).append(place)
        blocks, rest = [], places_of.pop(None, [])
        for together, places in places_of.items():
            block = numbers[:, places] if len(places) < len(columns) else numbers
            block = block if together == "plain" else self._declared(block, columns[places[0]])
            if together in ("plain", block.dtype):
                blocks.append(plain_frame(self.kind, [self.names[columns[place]] for place in places], block))
            else:
                rest += places
        return blocks, rest

    @cached_property
    def _together(self) -> list[Any]:
        """What columns have in common that are declared together: their type of numbers; None are declared alone."""
        found: list[Any] = []
        for column, dtype in enumerate(self._dtypes):
            kind = self.type_of(column)
            is_plain = kind.dtype in ("", "Float64" if self.kind == "polars" else "float64")
            is_numpy = isinstance(dtype, np.dtype) and dtype.kind in "biuf"
            if self._is_level(column) or kind.holds not in ("number", "truth") or kind.categories is not None:
                found.append(None)
            else:
                found.append("plain" if is_plain else dtype if is_numpy else None)
        return found

    def conformed(self, table: Any, columns: Ints | None = None) -> Any:
        """A table that somebody gave with the types of the fit; as it is where it has them already.

        Parameters
        ----------
        table : data frame or ndarray
            Some columns of the table; an array holds the numbers that stages read.
        columns : ndarray of int, optional
            Which they are; None is all.
        """
        columns = np.arange(len(self.names)) if columns is None else columns
        if isinstance(table, np.ndarray):
            return self.table(table, columns) if table.dtype.kind in "biuf" else table
        if kind_of_table(table) is None or self.types is None:
            return table
        found = list(table.dtypes) if kind_of_table(table) == self.kind else [None] * len(columns)
        wanted = [self._dtypes[column] for column in columns.tolist()]
        # Equal for pandas are types with the same categories in any order; models count them in order.
        check = range(len(found)) if found != wanted else self._places_of_categories(columns)
        other = [place for place in check if not _fits(found[place], wanted[place])]
        if not other:
            return table
        changed = {}
        for place in other:
            column, values = int(columns[place]), column_at(table, place)
            if not self._is_level(column):
                values = self.numbers(values.to_frame(), columns[[place]])[:, 0]
            changed[self.names[column]] = self._declared(values, column)
        return _with_columns(table, self.kind, changed)

    @cached_property
    def _dtypes(self) -> list[Any]:
        """Types of the columns, None where any will do."""
        return [dtype_of(self.kind, self.type_of(column)) for column in range(len(self.names))]

    def _places_of_categories(self, columns: Ints) -> list[int]:
        return [
            place
            for place, column in enumerate(columns.tolist())
            if self.type_of(column).categories is not None
        ]

    def _texts(self, column: int, numbers: Floats) -> list[str | None]:
        """Text of the levels that some numbers stand for."""
        assert self.levels is not None  # asked for only of columns that have levels
        texts = self.levels.of_column[column]
        return [None if np.isnan(number) else texts[int(number)] for number in numbers.tolist()]

    def _declared(self, values: Any, column: int) -> Any:
        """A column with the type of the fit: of numbers, or of text and categories as they came."""
        return declared_as(self.kind, values, self.type_of(column), self._dtypes[column])


def _fits(found: Any, wanted: Any) -> bool:
    """Whether a column of one type is as the fit had it; None is a frame of another library, and any type."""
    if found is None or wanted is None or found != wanted:
        return found is not None and wanted is None
    return str(wanted) != "category" or bool(found.categories.equals(wanted.categories))


def _joined(blocks: list[Any], values: Mapping[str, Any], kind: str, names: list[str]) -> Any:
    """Frames and columns side by side, in the order of some names."""
    parts = [*blocks, *([_frame(kind, values)] if values else [])]
    if kind == "polars":
        import polars as pl

        return pl.concat(parts, how="horizontal").select(names)
    import pandas as pd

    return pd.concat(parts, axis=1)[names]


def _cells_of(table: Any, place: int) -> Any:
    return column_at(table, place) if kind_of_table(table) else table[:, place]


def _without(table: Any, places: list[int]) -> Any:
    """A table with zeros in some columns, which are read elsewhere."""
    kind = kind_of_table(table)
    if not places:
        return table
    if kind is None:
        other = table.copy()
        other[:, places] = 0.0
        return other
    return _with_columns(table, kind, {table.columns[place]: np.zeros(len(table)) for place in places})


def _frame(kind: str, columns: Mapping[str, Any]) -> Any:
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(columns)
    import pandas as pd

    return pd.DataFrame(columns)


def _with_columns(table: Any, kind: str, changed: Mapping[str, Any]) -> Any:
    """A frame of a kind with other values in some columns."""
    if kind_of_table(table) != kind:
        names = list(table.columns)
        return _frame(kind, {name: changed.get(name, table[name].to_list()) for name in names})
    if kind == "polars":
        import polars as pl

        return table.with_columns([pl.Series(name, values) for name, values in changed.items()])
    other = table.copy(deep=False)
    for name, values in changed.items():
        # Without the index of its rows, which is not that of the table.
        other[name] = getattr(values, "array", values)
    return other
