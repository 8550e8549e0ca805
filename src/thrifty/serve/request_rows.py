"""Rows as requests carry them: numbers, known text and nulls by the names of columns, and nothing that only looks so.

A number is a JSON number; null is a missing value. Text such as "1.5" and truth values are refused where a number
belongs, whatever could be made of them. Columns that held dates or truth values at the fit take those, in JSON or in
words, besides the numbers that they are read as. A column that a request leaves out, or text that the fit has not seen,
is refused only where a row's route reads it.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Words
from thrifty.chain.columns import FrameOfFit, day_of, level_text, truth_of
from thrifty.errors import InvalidInputError
from thrifty.rows import key_words
from thrifty.serve.config import meant
from thrifty.tables.formats import listed
from thrifty.tables.reader import Cells, Unreadable
from thrifty.tables.schema import Schema

__all__ = ["RequestCells", "RequestRows"]

_NUMBERS = {float, int, type(None)}
_ABSENT: Any = object()
"""Stands where a row has no such column."""


@dataclass(frozen=True)
class _Special:
    """Columns that hold what JSON, or its users, write in another way than as the number that is read.

    Attributes
    ----------
    held, called : str
        What they held at the fit, and what they may hold in requests, for refusals.
    json_types : tuple of str
        The same as types of JSON.
    read : callable
        Number of a value; raises TypeError or ValueError for what is none.
    """

    held: str
    called: str
    json_types: tuple[str, ...]
    read: Callable[[Any], float]

    def number(self, value: Any) -> float:
        """Number of a value; NaN for what cannot be read."""
        try:
            number = self.read(value)
        except (TypeError, ValueError, OverflowError):
            return np.nan
        return number if np.isfinite(number) else np.nan


_DATES = _Special(
    "dates",
    'dates such as "2026-01-31" or "2026-01-31T12:30", or days since 1970-01-01 as numbers',
    ("string", "number"),
    day_of,
)
_TRUTHS = _Special("truth values", "true or false, or 1 or 0", ("boolean", "number", "string"), truth_of)


@dataclass(frozen=True, eq=False)
class RequestCells(Cells):
    """The columns of a schema in the rows of a request.

    Attributes
    ----------
    absent : dict of int to ndarray of shape (n_rows,), bool
        Rows that a column did not come with, for the columns of which there are such rows.
    keys : dict of str to sequence
        By the names of keys that came: what providers know each row by; None where a row has no such key.
    texts : dict of int to sequence
        Values of columns that hold text which the fit has not seen: for the full model, which may make something of it.
    """

    absent: Mapping[int, Bools] = field(default_factory=dict)
    keys: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    texts: Mapping[int, Sequence[Any]] = field(default_factory=dict)

    def table(self, frame: FrameOfFit | None) -> Any:
        """What the full model reads."""
        if frame is None:
            return self.numbers
        return frame.table(self.numbers, np.arange(len(self.names)), self.texts)


class RequestRows:
    """How rows of requests are read.

    Parameters
    ----------
    schema : Schema
        Columns, and the text that they may hold.
    unseen_is_missing : bool
        Whether text that the fit has not seen counts as missing.
    max_rows : int
        Requests of more rows are refused.
    keys : collection of str
        Names by which requests carry what providers know rows by; some may be names of columns too.
    """

    def __init__(
        self, schema: Schema, *, unseen_is_missing: bool, max_rows: int, keys: Collection[str] = ()
    ) -> None:
        self.names = schema.names
        self.row_key = schema.row_key
        self.keys = tuple(dict.fromkeys((*keys, *((schema.row_key,) if schema.row_key else ()))))
        self._known = {name: place for place, name in enumerate(schema.names)}
        self._codes = {
            self._known[name]: {text: float(code) for code, text in enumerate(texts)}
            for name, texts in schema.categories.items()
        }
        self._special = {self._known[name]: _DATES for name in schema.dates}
        self._special |= {self._known[name]: _TRUTHS for name in schema.truths}
        self._unseen_is_missing = unseen_is_missing
        self._max_rows = max_rows

    @property
    def is_numeric(self) -> bool:
        """Whether no column holds text."""
        return not self._codes

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        return self._known[name] in self._codes

    def json_types(self, name: str) -> list[str]:
        """Types of JSON that a column may hold."""
        special = self._special.get(self._known[name])
        return ["string" if self.is_text(name) else "number"] if special is None else list(special.json_types)

    def check_count(self, n_rows: int) -> None:
        """Refuse more rows than a request may have."""
        if n_rows > self._max_rows:
            raise InvalidInputError(
                f"a request must have at most {self._max_rows:,} rows; got {n_rows:,}. Send fewer at a time."
            )

    def place_of(self, name: Any) -> int:
        """Place of a column, or a refusal of a name that is not known."""
        if not isinstance(name, str) or name not in self._known:
            known = {*self._known, *self.keys}
            raise InvalidInputError(
                f"{_shown(name)} is no column of the model.{meant(str(name)[:100], known)}"
            )
        return self._known[name]

    def from_records(self, records: Any) -> RequestCells:
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
                for name in record:
                    if name not in self._known and name not in self.keys:
                        self.place_of(name)
            rows.append(row)
        is_plain = self.is_numeric and not self._special and not self.row_key
        if is_plain and _ABSENT not in chain.from_iterable(rows):
            return self.from_table(list(chain.from_iterable(rows)), len(rows))
        columns = dict(enumerate(zip(*rows, strict=True)))
        keys = {key: [record.get(key) for record in records] for key in self.keys}
        return self.from_columns(columns, len(rows), keys)

    def from_table(self, values: Sequence[Any] | Floats, n_rows: int) -> RequestCells:
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
        return RequestCells(self.names, numbers, np.arange(1, n_rows + 1), _drawn_keys(n_rows))

    def from_columns(
        self, columns: Mapping[int, Any], n_rows: int, keys: Mapping[str, Sequence[Any]] | None = None
    ) -> RequestCells:
        """Columns by their places, each a list, tuple or array of as many values as there are rows, and keys."""
        numbers = np.full((n_rows, len(self.names)), np.nan)
        unreadable, absent, texts = {}, {}, {}
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
                absent[place] = is_absent
                unreadable[place] = Unreadable(is_absent, np.full(n_rows, None), self._why_absent(place))
            if place in self._codes:
                numbers[:, place], unseen = self._coded(place, given)
                if unseen is not None and self._unseen_is_missing:
                    texts[place] = given
                elif unseen is not None:
                    unreadable[place] = _either(unreadable.get(place), unseen)
            else:
                numbers[:, place] = self._numbers(place, given)
        known = {key: [_key(key, one) for one in values] for key, values in (keys or {}).items()}
        row_keys = _drawn_keys(n_rows)
        if self.row_key:
            row_keys = key_words(
                known.get(self.row_key, [None] * n_rows), f"{self.row_key!r}, the key of a row,"
            )
        return RequestCells(
            self.names,
            numbers,
            np.arange(1, n_rows + 1),
            row_keys,
            unreadable,
            absent=absent,
            keys=known,
            texts=texts,
        )

    def with_request_id(self, cells: RequestCells, request_id: str | None) -> RequestCells:
        """The rows known by the id of their request, and by their place in it where there are several.

        Without an id, and without keys of their own, rows keep keys that were drawn: were they the same for all
        requests, all would follow the same of two operating points, and spend another budget.
        """
        if request_id is None or self.row_key:
            return cells
        ids = [request_id] if len(cells) == 1 else [(request_id, place) for place in range(len(cells))]
        return replace(cells, row_keys=key_words(ids))

    def values_of(self, place: int, numbers: Floats) -> list[Any]:
        """What some numbers of a column stand for: the text of its levels, or the numbers themselves."""
        if place not in self._codes:
            return list(numbers.tolist())
        texts = dict(enumerate(self._codes[place]))
        return [None if np.isnan(code) else texts[int(code)] for code in numbers]

    def from_provider(self, place: int, value: Any) -> tuple[float, str | None]:
        """The number of a value that was bought, or why it cannot be read; NaN and null are missing."""
        if value is None or (isinstance(value, float) and np.isnan(value)):
            return np.nan, None
        if place in self._codes:
            number = self._code(place, value)
            is_unseen = isinstance(value, str) and self._unseen_is_missing
            return (np.nan if number is None else number), (
                None if number is not None or is_unseen else "what came is no text that the fit has seen"
            )
        if place in self._special:
            number = self._special[place].number(value)
            return number, None if np.isfinite(number) else f"what came is not {self._special[place].called}"
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        return (float(value), None) if is_number else (np.nan, "what came is no finite number")

    def _numbers(self, place: int, values: Sequence[Any]) -> Floats:
        if not set(map(type, values)) <= _NUMBERS:
            if place in self._special:
                return self._special_numbers(place, values)
            row = next(row for row, value in enumerate(values) if type(value) not in _NUMBERS)
            self._refuse_number(place, values[row], row + 1)
        return np.array(values, dtype=np.float64)

    def _special_numbers(self, place: int, values: Sequence[Any]) -> Floats:
        """Numbers of a column of dates or truth values."""
        special, numbers = self._special[place], np.full(len(values), np.nan)
        for row, value in enumerate(values):
            if value is None:
                continue
            numbers[row] = special.number(value)
            if np.isnan(numbers[row]):
                raise InvalidInputError(
                    f"column {self.names[place]!r} must hold {special.called}, or null where one is missing; got "
                    f"{_shown(value)} in row {row + 1}. It held {special.held} at the fit."
                )
        return numbers

    def _code(self, place: int, value: Any) -> float | None:
        """Number of a level; one that is a number or a truth value at the fit is written as such, too."""
        if type(value) in (bool, int, float):
            value = level_text(value)
        return self._codes[place].get(value) if isinstance(value, str) else None

    def _coded(self, place: int, values: Sequence[Any]) -> tuple[Floats, Unreadable | None]:
        found = [self._code(place, value) for value in values]
        unseen = np.array(
            [one is None and value is not None for one, value in zip(found, values, strict=True)]
        )
        numbers = np.array([np.nan if one is None else one for one in found])
        for row in np.flatnonzero(unseen).tolist():
            if type(values[row]) is not str:
                self._refuse_text(place, values[row], row + 1)
        if not unseen.any():
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


def _drawn_keys(n_rows: int) -> Words:
    return np.frombuffer(os.urandom(8 * n_rows), dtype=np.uint64)


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


def _key(name: str, value: Any) -> Any:
    """A key as providers are asked with it: text or a whole number; None where a row has none."""
    if type(value) is float and value.is_integer():
        return int(value)
    if value is not None and type(value) not in (str, int):
        raise InvalidInputError(
            f"{name!r}, by which columns are bought, must be text or a whole number; got {_shown(value)}."
        )
    return value


def _shown(value: Any) -> str:
    """A value of a request, cut where it is long."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
