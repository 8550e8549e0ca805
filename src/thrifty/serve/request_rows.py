"""Rows as requests carry them: numbers, known text and nulls by the names of columns, and nothing that only looks so.

A number is a JSON number; null is a missing value. Text such as "1.5" and truth values are refused where a number
belongs, whatever could be made of them. A column that a request leaves out, or text that the fit has not seen, is
refused only where a row's route reads it.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.exceptions import InvalidInputError
from thrifty.serve.config import meant
from thrifty.tables.formats import listed
from thrifty.tables.reader import Cells, Unreadable
from thrifty.tables.schema import Schema

__all__ = ["RequestRows"]

_NUMBERS = {float, int, type(None)}
_TEXT = {str, type(None)}
_ABSENT: Any = object()
"""Stands where a row has no such column."""


class RequestRows:
    """How rows of requests are read.

    Parameters
    ----------
    schema : Schema
        Columns, and the text that they may hold.
    unseen_is_missing : bool
        Whether text that the fit has not seen counts as missing.
    most_rows : int
        Requests of more rows are refused.
    """

    def __init__(self, schema: Schema, *, unseen_is_missing: bool, most_rows: int) -> None:
        self.names = schema.names
        self._known = {name: place for place, name in enumerate(schema.names)}
        self._codes = {
            self._known[name]: {text: float(code) for code, text in enumerate(texts)}
            for name, texts in schema.categories.items()
        }
        self._dates = schema.dates
        self._unseen_is_missing = unseen_is_missing
        self._most_rows = most_rows

    @property
    def is_numeric(self) -> bool:
        """Whether no column holds text."""
        return not self._codes

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        return self._known[name] in self._codes

    def check_count(self, n_rows: int) -> None:
        """Refuse more rows than a request may have."""
        if n_rows > self._most_rows:
            raise InvalidInputError(
                f"a request must have at most {self._most_rows:,} rows; got {n_rows:,}. Send fewer at a time."
            )

    def place_of(self, name: Any) -> int:
        """Place of a column, or a refusal of a name that is not known."""
        if not isinstance(name, str) or name not in self._known:
            raise InvalidInputError(
                f"{_shown(name)} is no column of the model.{meant(str(name)[:100], self._known)}"
            )
        return self._known[name]

    def from_records(self, records: Any) -> Cells:
        """Rows that are JSON objects, from names of columns to values."""
        if not isinstance(records, list) or not records:
            raise InvalidInputError(
                f"rows must be a list of at least one object, from names of columns to values; got {_shown(records)}."
            )
        self.check_count(len(records))
        names, rows = self.names, []
        for number, record in enumerate(records, 1):
            if not isinstance(record, dict):
                raise InvalidInputError(
                    f"a row must be an object, from names of columns to values; row {number} is {_shown(record)}."
                )
            row = [record.get(name, _ABSENT) for name in names]
            if len(record) + row.count(_ABSENT) != len(names):
                self.place_of(next(name for name in record if name not in self._known))
            rows.append(row)
        if self.is_numeric and _ABSENT not in chain.from_iterable(rows):
            return self.from_table(list(chain.from_iterable(rows)), len(rows))
        columns = dict(enumerate(zip(*rows, strict=True)))
        return self.from_columns(columns, len(rows))

    def from_table(self, values: Sequence[Any] | Floats, n_rows: int) -> Cells:
        """Rows of numbers in the order of the columns, one after the other in one list or array."""
        self.check_count(n_rows)
        if not self.is_numeric:
            text = [name for name in self.names if self.is_text(name)]
            raise InvalidInputError(
                f"a table of numbers cannot hold the text of {listed(text)}. Send one tensor for each column."
            )
        if not isinstance(values, np.ndarray) and not set(map(type, values)) <= _NUMBERS:
            place = next(place for place, value in enumerate(values) if type(value) not in _NUMBERS)
            self._refuse_number(place % len(self.names), values[place], place // len(self.names) + 1)
        numbers = np.array(values, dtype=np.float64).reshape(n_rows, len(self.names))
        return Cells(self.names, numbers, np.arange(1, n_rows + 1))

    def from_columns(self, columns: Mapping[int, Any], n_rows: int) -> Cells:
        """Columns by their places, each a list, tuple or array of as many values as there are rows."""
        numbers = np.full((n_rows, len(self.names)), np.nan)
        unreadable = {}
        for place in range(len(self.names)):
            values = columns.get(place, (_ABSENT,) * n_rows)
            if isinstance(values, np.ndarray):
                if place in self._codes:
                    self._refuse_text(place, float(values[0]), 1)
                numbers[:, place] = values
                continue
            is_absent = np.array([value is _ABSENT for value in values])
            given = values if not is_absent.any() else [None if one is _ABSENT else one for one in values]
            if is_absent.any():
                unreadable[place] = Unreadable(is_absent, np.full(n_rows, None), self._why_absent(place))
            if place in self._codes:
                numbers[:, place], unseen = self._coded(place, given)
                if unseen is not None:
                    unreadable[place] = _either(unreadable.get(place), unseen)
            else:
                numbers[:, place] = self._numbers(place, given)
        return Cells(self.names, numbers, np.arange(1, n_rows + 1), unreadable)

    def as_frame(self, cells: Cells) -> Any:
        """The rows as a data frame, with text in the columns of text, and dates, which come as days since 1970."""
        import pandas as pd

        frame = pd.DataFrame(cells.numbers, columns=list(self.names))
        for name in self._dates:
            frame[name] = pd.to_datetime(frame[name], unit="D")
        for place, codes in self._codes.items():
            texts = dict(enumerate(codes))
            column = [None if np.isnan(code) else texts[int(code)] for code in cells.numbers[:, place]]
            frame[self.names[place]] = pd.Series(column, dtype=object)
        return frame

    def _numbers(self, place: int, values: Sequence[Any]) -> Floats:
        if not set(map(type, values)) <= _NUMBERS:
            row = next(row for row, value in enumerate(values) if type(value) not in _NUMBERS)
            self._refuse_number(place, values[row], row + 1)
        return np.array(values, dtype=np.float64)

    def _coded(self, place: int, values: Sequence[Any]) -> tuple[Floats, Unreadable | None]:
        if not set(map(type, values)) <= _TEXT:
            row = next(row for row, value in enumerate(values) if type(value) not in _TEXT)
            self._refuse_text(place, values[row], row + 1)
        codes = self._codes[place]
        numbers = np.array([codes.get(value, np.nan) for value in values])
        unseen = np.array([value is not None and value not in codes for value in values])
        if self._unseen_is_missing or not unseen.any():
            return numbers, None
        return numbers, Unreadable(unseen, np.array(values, dtype=object), self._why_unseen(place))

    def _refuse_number(self, place: int, value: Any, row: int) -> None:
        raise InvalidInputError(
            f"column {self.names[place]!r} must hold numbers, or null where one is missing; got {_shown(value)} in row "
            f"{row}. Write it as a plain JSON number."
        )

    def _refuse_text(self, place: int, value: Any, row: int) -> None:
        raise InvalidInputError(
            f"column {self.names[place]!r} must hold text, or null where it is missing; got {_shown(value)} in row "
            f"{row}. Known are {listed(list(self._codes[place]))}."
        )

    def _why_absent(self, place: int) -> Any:
        return lambda _, row: (
            f"row {row} has no column {self.names[place]!r}, which its route reads. Send it, or null if it is missing."
        )

    def _why_unseen(self, place: int) -> Any:
        return lambda value, row: (
            f"column {self.names[place]!r} holds {_shown(value)} in row {row}, which was not there when the model was "
            f"fitted. Known are {listed(list(self._codes[place]))}. Correct it, or send null."
        )


def _either(one: Unreadable | None, other: Unreadable) -> Unreadable:
    """Cells of a column that cannot be read for either of two reasons."""
    if one is None:
        return other
    why = {True: one.why, False: other.why}
    return Unreadable(
        one.rows | other.rows,
        other.values,
        lambda value, row: why[bool(one.rows[row - 1])](value, row),
    )


def _shown(value: Any) -> str:
    """A value of a request, cut where it is long."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
