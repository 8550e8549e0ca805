"""``Schema``: reads cells of any form as the numbers that stages use, and rebuilds the data frame of the fit from them.

Only cells that a row's route reads are checked. ``Cells`` keep an unreadable cell with the reason, and refuse it by
column, row and value when a stage or the full model reads it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.engine.table.columns import (
    ColumnType,
    Levels,
    column_types,
    dates_as_days,
    day_of,
    declared_as,
    dtype_of,
    is_date,
    is_missing,
    learn_levels,
    truth_of,
)
from thrifty.engine.table.table import Table, frame_of, is_number, joined_frames, plain_frame
from thrifty.errors import InvalidInputError, listed
from thrifty.rows import key_words


@dataclass(frozen=True)
class Unreadable:
    """Cells of one column that cannot be read.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,), bool
        Whether the cell of each row is unreadable.
    values : ndarray of shape (n_rows,)
        Values of the column.
    why : callable
        ``why(value, row)`` is the error message for the cell; rows of a file count from 1, and None names no row.
    """

    rows: Bools
    values: Labels
    why: Callable[[Any, int | None], str]


@dataclass(frozen=True, eq=False)
class Cells:
    """The columns of a schema in some rows.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    numbers : ndarray of shape (n_rows, n_columns)
        Values; NaN where a cell is missing or cannot be read.
    row_numbers : ndarray of shape (n_rows,)
        Number of each row in its file, from 1.
    row_keys : ndarray of shape (n_rows,)
        Keys of the rows as 64-bit words.
    unreadable : dict of int to Unreadable
        Columns with cells that cannot be read.
    texts : dict of int to ndarray of shape (n_rows,)
        Columns of text and categories unchanged, for the full model, which may accept levels that the fit has not seen.
    """

    names: tuple[str, ...]
    numbers: Floats
    row_numbers: Ints
    row_keys: Words
    unreadable: Mapping[int, Unreadable] = field(default_factory=dict)
    texts: Mapping[int, Labels] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Ints) -> "Cells":
        """Some of the rows, which keep their numbers."""
        return replace(
            self,
            numbers=self.numbers[rows],
            row_numbers=self.row_numbers[rows],
            row_keys=self.row_keys[rows],
            unreadable={
                column: replace(cells, rows=cells.rows[rows], values=cells.values[rows])
                for column, cells in self.unreadable.items()
            },
            texts={column: values[rows] for column, values in self.texts.items()},
        )

    def refuse_unreadable(self, rows: Ints | None = None, columns: Ints | None = None) -> None:
        """Refuse the first of these cells that cannot be read; None is all of them."""
        first: tuple[int, Unreadable] | None = None
        for column in self.unreadable if columns is None else columns:
            cells = self.unreadable.get(int(column))
            if cells is None:
                continue
            bad = np.flatnonzero(cells.rows) if rows is None else rows[cells.rows[rows]]
            if len(bad) and (first is None or bad[0] < first[0]):
                first = int(bad[0]), cells
        if first is not None:
            row, cells = first
            raise InvalidInputError(cells.why(cells.values[row], int(self.row_numbers[row])))

    def refuse_missing(self, rows: Ints, columns: Ints, who: str) -> None:
        """Refuse the first of these cells that is missing; ``who`` is the model that needs it."""
        missing = np.argwhere(np.isnan(self.numbers[np.ix_(rows, columns)]))
        if len(missing):
            row, column = missing[0]
            raise InvalidInputError(
                f"column {self.names[columns[column]]!r} is missing in row {self.row_numbers[rows[row]]}, and {who} "
                f"reads no missing values. Fill it in, or fit with --full forest or --full boosting."
            )


_SCALARS = (str, bool, int, float, Decimal, np.number, np.bool_)
_DATES = {
    "time": "dates such as 2026-01-31 or 2026-01-31T12:30, or days since 1970-01-01",
    "day": "dates such as 2026-01-31, or days since 1970-01-01",
    "span": "durations, or numbers of days",
}


@dataclass(frozen=True, eq=False)
class Schema:
    """Names, types and levels of the columns of a fit.

    Attributes
    ----------
    kind : {"pandas", "polars"}, optional
        Library of the data frame; None for an array.
    names : tuple of str
        Names of the columns; x0, x1, ... for an array.
    types : tuple of ColumnType, optional
        Types of the columns; None where they are not known.
    levels : Levels, optional
        Levels of the columns of text or categories.
    """

    kind: str | None
    names: tuple[str, ...]
    types: tuple[ColumnType, ...] | None = None
    levels: Levels | None = None

    @classmethod
    def of(cls, table: Table) -> "Schema":
        """Schema of a table, whose text and categories become levels."""
        return cls(table.kind, tuple(map(str, table.columns)), column_types(table), learn_levels(table))

    def type_of(self, column: int) -> ColumnType:
        """Type of a column."""
        if self.types is not None:
            return self.types[column]
        return ColumnType("mixed" if self.is_level(column) else "number")

    def is_number(self, column: int) -> bool:
        """True if a column held plain numbers."""
        return not self.is_level(column) and self.type_of(column).holds == "number"

    def is_level(self, column: int) -> bool:
        """True if a column held text or categories."""
        return self.levels is not None and column in self.levels.of_column

    @cached_property
    def reads_numbers(self) -> bool:
        """True if every column held plain numbers."""
        return all(map(self.is_number, range(len(self.names))))

    @property
    def _library(self) -> str:
        return self.kind or "pandas"

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of the columns of text or categories, which must be read from a file as text."""
        return () if self.levels is None else tuple(self.names[column] for column in self.levels.columns)

    # -- cells as numbers --------------------------------------------------------------------------

    def cells(
        self,
        table: Any,
        *,
        unseen_is_missing: bool = False,
        row_key: str | None = None,
        row_keys: Words | None = None,
    ) -> Cells:
        """Read the columns of a data frame, in any order; unreadable cells are kept as such.

        Parameters
        ----------
        table : data frame
            Rows; a column that it lacks cannot be read in any of them.
        unseen_is_missing : bool, default=False
            Whether text that the fit has not seen counts as missing, and not as a cell that cannot be read.
        row_key : str, optional
            Column that holds the keys of the rows; without it they are the index of a pandas data frame.
        row_keys : ndarray of shape (n_rows,), optional
            Keys of the rows as words, where the table does not hold them.
        """
        table = Table.of(table)
        n_rows = len(table)
        numbers = np.full((n_rows, len(self.names)), np.nan)
        unreadable, texts, place_of = {}, {}, {str(name): at for at, name in enumerate(table.columns)}
        for column, name in enumerate(self.names):
            if name not in place_of:
                unreadable[column] = Unreadable(
                    np.ones(n_rows, bool), np.full(n_rows, None), _lacking(name, place_of)
                )
                continue
            place = place_of[name]
            numbers[:, column], bad = self._read_column(column, table, place, unseen_is_missing)
            if bad is not None:
                unreadable[column] = bad
            if self.is_level(column):
                texts[column] = table.cells(place)
        keys = keys_of(table, row_key) if row_keys is None else row_keys
        return Cells(self.names, numbers, np.arange(1, n_rows + 1), keys, unreadable, texts)

    def read(
        self, cells: Any, columns: Ints, *, unseen_is_missing: bool = True
    ) -> tuple[Any, dict[int, Unreadable]]:
        """Numbers of the cells of some columns, in any form; and unreadable cells, by their place in ``columns``.

        A truth value of Python among objects, ``true`` in JSON, is no number.
        """
        table = Table.of(cells)
        if sparse.issparse(table.native) or (self.reads_numbers and not _truths(table.native).any()):
            return table.as_numbers("what a source answers"), {}
        if not isinstance(table.native, np.ndarray):
            table = table.as_objects()
        shape = table.native.shape
        if len(shape) != 2 or shape[1] != len(columns):
            return np.empty(shape), {}  # the caller refuses it, with the shape that was expected
        numbers, unreadable = np.empty(shape), {}
        for place, column in enumerate(columns.tolist()):
            numbers[:, place], bad = self._read_column(column, table, place, unseen_is_missing)
            if self.is_number(column) and (truths := _truths(table.column(place))).any():
                bad = Unreadable(truths, table.cells(place), _why_no_number(self.names[column]))
            if bad is not None:
                unreadable[place] = bad
        return numbers, unreadable

    def _read_column(
        self, column: int, table: Table, place: int, unseen_is_missing: bool
    ) -> tuple[Floats, Unreadable | None]:
        """Numbers of one column, which is at some place of a table, and its unreadable cells."""
        name, holds = self.names[column], self.type_of(column).holds
        if self.is_level(column):
            assert self.levels is not None  # a level is one of them
            cells = table.cells(place)
            numbers, levels = self.levels.codes(column, cells), self.levels.of_column[column]
            bad = np.isnan(numbers) & ~_missing(cells)
            rule = (
                f"which was not there when the system was fitted; known are {listed(levels)}. Correct it, or have it "
                f"read as missing with --unseen missing."
            )
            if unseen_is_missing or not bad.any():
                return numbers, None
            return numbers, Unreadable(
                bad, cells, lambda value, row: f"column {name!r} holds {value!r}{_in_row(row)}, {rule}"
            )
        if holds in _DATES:
            if table.kind and is_date(table, place):
                return dates_as_days(table.column(place)), None
            return _read_each(name, table.cells(place), day_of, _DATES[holds])
        if holds == "truth":
            return _read_each(name, table.cells(place), truth_of, "True or False, or 1 or 0")
        return _read_numbers(name, table, place)

    # -- the frame of the fit ----------------------------------------------------------------------

    def table_of(self, cells: Cells) -> Table:
        """Cells as a table of the kind that the full model was fitted on; those that cannot be read are missing."""
        native = self.table(cells.numbers, np.arange(len(self.names)), cells.texts)
        return Table(cells.numbers, native, cells.row_numbers, cells.row_keys)

    def table(self, numbers: Floats, columns: Ints, raw: Any = None) -> Any:
        """The frame of the fit with some columns, from the numbers that stages read; an array where it was one.

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
        if self.kind is None:
            return numbers
        numbered = [int(column) for column in columns]
        names = [self.names[column] for column in numbered]
        blocks, rest = self._blocks(numbers, numbered)
        values: dict[str, Any] = {}
        for place in rest:
            column = numbered[place]
            cells: Any = numbers[:, place]
            if self.is_level(column):
                texts = None if raw is None else raw.get(column)
                cells = self._texts(column, cells) if texts is None else texts
            values[self.names[column]] = self._declared(cells, column)
        if not blocks:
            return frame_of(self.kind, values)
        if len(blocks) == 1 and not values:
            return blocks[0]
        frames = [*blocks, frame_of(self.kind, values)] if values else blocks
        return joined_frames(self.kind, frames, names)

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
                blocks.append(
                    plain_frame(self._library, [self.names[columns[place]] for place in places], block)
                )
            else:
                rest += places
        return blocks, rest

    @cached_property
    def _together(self) -> list[Any]:
        """Type of numbers by which columns are declared together; None for those declared alone."""
        types: list[Any] = []
        for column, dtype in enumerate(self._dtypes):
            kind = self.type_of(column)
            is_plain = kind.dtype in ("", "Float64" if self.kind == "polars" else "float64")
            is_numpy = isinstance(dtype, np.dtype) and dtype.kind in "biuf"
            if self.is_level(column) or kind.holds not in ("number", "truth") or kind.categories is not None:
                types.append(None)
            else:
                types.append("plain" if is_plain else dtype if is_numpy else None)
        return types

    def conformed(self, table: Table, columns: Ints | None = None) -> Any:
        """A table of the user's for the full model, with the types of the fit; as it is where it has them already.

        Parameters
        ----------
        table : Table
            Some columns of the table; an array holds the numbers that stages read.
        columns : ndarray of int, optional
            Which they are; None is all.
        """
        columns = np.arange(len(self.names)) if columns is None else columns
        native = table.native
        if isinstance(native, np.ndarray):
            return self.table(native, columns) if native.dtype.kind in "biuf" else native
        if table.kind is None or self.kind is None or self.types is None:
            return native
        dtypes = list(native.dtypes) if table.kind == self.kind else [None] * len(columns)
        wanted = [self._dtypes[column] for column in columns.tolist()]
        # Equal for pandas are types with the same categories in any order; models count them in order.
        check, is_same = enumerate(columns.tolist()), dtypes == wanted
        places = [at for at, column in check if not is_same or self.type_of(column).categories is not None]
        other = [place for place in places if not _fits(dtypes[place], wanted[place])]
        if not other:
            return native
        changed = {}
        for place in other:
            column, values = int(columns[place]), table.column(place)
            if not self.is_level(column):
                values, bad = self._read_column(column, table, place, unseen_is_missing=True)
                if bad is not None:
                    raise InvalidInputError(bad.why(bad.values[int(bad.rows.argmax())], None))
            changed[self.names[column]] = self._declared(values, column)
        return table.with_values(self.kind, changed)

    @cached_property
    def _dtypes(self) -> list[Any]:
        """Types of the columns, None where any will do."""
        return [dtype_of(self._library, self.type_of(column)) for column in range(len(self.names))]

    def _texts(self, column: int, numbers: Floats) -> list[str | None]:
        """Text of the levels with some numbers."""
        assert self.levels is not None  # asked for only of columns that have levels
        texts = self.levels.of_column[column]
        return [None if np.isnan(number) else texts[int(number)] for number in numbers.tolist()]

    def _declared(self, values: Any, column: int) -> Any:
        """A column with the type of the fit: of numbers, or of text and categories as they came."""
        return declared_as(self._library, values, self.type_of(column), self._dtypes[column])


# -- reading columns -------------------------------------------------------------------------------


def _read_numbers(name: str, table: Table, place: int) -> tuple[Floats, Unreadable | None]:
    """A column of numbers, also where they are written as text."""
    cells: Any = table.numeric(place)
    if cells is None:
        cells = table.cells(place)
        try:
            numbers, bad = np.asarray(cells, dtype=np.float64), np.zeros(len(cells), dtype=bool)
        except (TypeError, ValueError, OverflowError):  # cells without a number, or missing ones of pandas
            numbers, bad = np.full(len(cells), np.nan), ~_missing(cells)
            for row in np.flatnonzero(bad):
                if isinstance(cells[row], _SCALARS) and is_number(cells[row]):
                    numbers[row], bad[row] = float(cells[row]), False
    else:
        numbers, bad = cells, np.zeros(len(cells), dtype=bool)
    infinite = np.isinf(numbers)
    bad = bad | infinite
    if not bad.any():
        return numbers, None

    bad_cells = Unreadable(bad, np.asarray(cells, dtype=object), _why_no_number(name))
    return np.where(infinite, np.nan, numbers), bad_cells


def _why_no_number(name: str) -> Callable[[Any, int | None], str]:
    """Error messages for cells of a column of numbers."""

    def why(value: Any, row: int | None) -> str:
        if isinstance(value, str) or np.isscalar(value):
            is_finite = isinstance(value, bool) or not is_number(value)
            return (
                f"column {name!r} must hold {'numbers' if is_finite else 'finite numbers'}; got {value!r}"
                f"{_in_row(row)}. Correct it, or leave the cell empty."
            )
        return (
            f"column {name!r} must hold numbers or text; it holds {type(value).__name__} values. Leave it out with "
            f"--ignore, or write it as numbers."
        )

    return why


def _truths(cells: Any) -> Bools:
    """Mask of the truth values of Python among objects; False where other cells are stored."""
    if getattr(getattr(cells, "dtype", None), "kind", "") != "O":
        return np.zeros(1, dtype=bool)
    return np.frompyfunc(lambda cell: isinstance(cell, bool), 1, 1)(np.asarray(cells)).astype(bool)


def _read_each(
    name: str, cells: Labels, read: Callable[[Any], float], rule: str
) -> tuple[Floats, Unreadable | None]:
    """A column whose cells are read one by one; ``rule`` is what they may hold, in words."""
    numbers, bad = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    for row, cell in enumerate(cells.tolist()):
        try:
            numbers[row] = read(cell)
        except (TypeError, ValueError, OverflowError):
            bad[row] = True
    bad |= np.isinf(numbers)
    numbers[bad] = np.nan
    if not bad.any():
        return numbers, None
    return numbers, Unreadable(
        bad,
        cells,
        lambda value, row: (
            f"column {name!r} must hold {rule}; got {value!r}{_in_row(row)}. Correct it, or leave the cell empty."
        ),
    )


def _missing(cells: Labels) -> Bools:
    return np.fromiter(map(is_missing, cells), dtype=bool, count=len(cells))


def _in_row(row: int | None) -> str:
    return "" if row is None else f" in row {row}"


def _lacking(name: str, columns: Mapping[str, int]) -> Callable[[Any, int | None], str]:
    return lambda _, row: (
        f"the table lacks column {name!r}, which is read{_in_row(row)}. Its columns are {listed(columns)}."
    )


def keys_of(frame: Any, row_key: str | None) -> Words:
    """Keys of the rows of a data frame: those in a column, else its index or the numbers of its rows."""
    table = Table.of(frame)
    if row_key is None:
        return table.keys(np.arange(len(table)))
    if row_key not in table.columns:
        raise InvalidInputError(
            f"the table lacks column {row_key!r}, which holds the keys of its rows. Its columns are "
            f"{listed(table.columns)}."
        )
    return key_words(table.values(table.columns.index(row_key)), f"column {row_key!r}")


def _fits(dtype: Any, wanted: Any) -> bool:
    """True if a column has the type of the fit; None, for a frame of another library, matches any type."""
    if dtype is None or wanted is None or dtype != wanted:
        return dtype is not None and wanted is None
    return str(wanted) != "category" or bool(dtype.categories.equals(wanted.categories))
