"""The cells of a table as models read them: numbers, missing ones, and those that cannot be read.

A row is judged by what it reads. Whether a cell is there, holds known text or a number matters only on the routes that
ask for it: cells that cannot be read are kept with the reason, and refused by column, row and value when a stage or the
full model asks for them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Labels, Words
from thrifty.chain.columns import FrameOfFit
from thrifty.chain.sources import TableReader
from thrifty.errors import InvalidInputError

__all__ = ["CellReader", "Cells", "Unreadable"]


@dataclass(frozen=True)
class Unreadable:
    """Cells of one column that cannot be read.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,), bool
        Where they are.
    values : ndarray of shape (n_rows,)
        What stands in the column.
    why : callable
        ``why(value, row)`` is the sentence that refuses the cell; rows of a file count from 1.
    """

    rows: Bools
    values: Labels
    why: Callable[[Any, int], str]


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
    unreadable : dict of int to Unreadable
        Columns with cells that cannot be read.
    row_keys : ndarray of shape (n_rows,)
        Keys of the rows as words.
    raw : pandas data frame, optional
        The columns as they came, where the full model reads text; None where it reads numbers.
    """

    names: tuple[str, ...]
    numbers: Floats
    row_numbers: Ints
    row_keys: Words
    unreadable: dict[int, Unreadable] = field(default_factory=dict)
    raw: Any = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Ints) -> "Cells":
        """Some of the rows, which keep their numbers."""
        parts = {
            column: replace(one, rows=one.rows[rows], values=one.values[rows])
            for column, one in self.unreadable.items()
        }
        raw = None if self.raw is None else self.raw.iloc[rows]
        numbers, row_numbers, row_keys = self.numbers[rows], self.row_numbers[rows], self.row_keys[rows]
        return replace(
            self, numbers=numbers, row_numbers=row_numbers, row_keys=row_keys, unreadable=parts, raw=raw
        )

    def table(self, frame: FrameOfFit | None) -> Any:
        """What the full model reads: the data frame that it was fitted on, or an array where that was none."""
        if frame is None:
            return self.numbers if self.raw is None else self.raw
        if self.raw is not None:
            return frame.conformed(self.raw)
        return frame.table(self.numbers, np.arange(len(self.names)))

    def refuse_unreadable(self, rows: Ints | None = None, columns: Ints | None = None) -> None:
        """Refuse the first of these cells that cannot be read; None is all of them."""
        found: tuple[int, int] | None = None
        for column in self.unreadable if columns is None else columns:
            one = self.unreadable.get(int(column))
            if one is None:
                continue
            bad = np.flatnonzero(one.rows) if rows is None else rows[one.rows[rows]]
            if len(bad) and (found is None or bad[0] < found[0]):
                found = int(bad[0]), int(column)
        if found is not None:
            row, column = found
            one = self.unreadable[column]
            raise InvalidInputError(one.why(one.values[row], int(self.row_numbers[row])))

    def refuse_missing(self, rows: Ints, columns: Ints, who: str) -> None:
        """Refuse the first of these cells that is missing: ``who`` cannot do without it."""
        missing = np.argwhere(np.isnan(self.numbers[np.ix_(rows, columns)]))
        if len(missing):
            row, column = missing[0]
            raise InvalidInputError(
                f"column {self.names[columns[column]]!r} is missing in row {self.row_numbers[rows[row]]}, and {who} "
                f"reads no missing values. Fill it in, or fit with --full forest or --full boosting."
            )


class CellReader(TableReader):
    """Reads cells for a chain, and refuses those that cannot be read when they are asked for.

    Parameters
    ----------
    cells : Cells
        The table.
    frame : FrameOfFit or None
        The data frame that the full model reads; None is an array.
    full_needs : str, optional
        What the full model is called, where it reads no missing values.
    """

    # Only cells that a row needs must be readable.
    is_at_hand = False

    def __init__(self, cells: Cells, frame: FrameOfFit | None, full_needs: str | None = None) -> None:
        super().__init__(cells.numbers, cells.table(frame), cells.row_numbers, cells.row_keys)
        self._cells = cells
        self._full_needs = full_needs

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Numbers of these cells, if they can be read."""
        self._cells.refuse_unreadable(rows, columns)
        return super().block(rows, columns)

    def table(self, rows: Ints, columns: Ints | None = None) -> Any:
        """Rows for the full model, if they can be read and none is missing that it needs."""
        wanted = np.arange(len(self._cells.names)) if columns is None else columns
        self._cells.refuse_unreadable(rows, wanted)
        if self._full_needs is not None:
            self._cells.refuse_missing(rows, wanted, self._full_needs)
        return super().table(rows, columns)
