"""Columns of text, categories and dates as numbers, found at a fit and kept with what serves.

A column of text or categories becomes the number of its level: its place among the texts that the fit saw, sorted. No
label is looked at. What is missing, and a text that the fit did not see, is missing. Dates become days since the first
of January 1970, and durations days.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.sources import as_numbers, kind_of_table, plain_frame
from thrifty.errors import InvalidInputError

__all__ = [
    "DAY",
    "Levels",
    "column_at",
    "dates_as_days",
    "day_of",
    "declared_types",
    "has_dates",
    "is_date",
    "is_missing",
    "is_text",
    "learn_levels",
    "level_numbers",
    "level_text",
    "plain_table",
]

_TEXT_TYPES = ("category", "string", "str", "categorical", "enum", "utf8")
_DATE_TYPES = ("date", "datetime", "duration", "timedelta")
_EPOCH = dt.date(1970, 1, 1)
DAY = 86_400_000_000.0
"""Microseconds of a day."""


@dataclass(frozen=True)
class Levels:
    """The levels of each column of text or categories.

    Attributes
    ----------
    of_column : dict of int to tuple of str
        By the number of the column: its levels in order; the number of a level is its place.
    """

    of_column: Mapping[int, tuple[str, ...]]

    @property
    def columns(self) -> tuple[int, ...]:
        """Columns of text or categories, rising."""
        return tuple(sorted(self.of_column))

    def numbers(self, X: Any, columns: Ints | None = None) -> Floats:
        """Numbers of a table that holds the columns of the fit, or those numbered in ``columns``."""
        kind = kind_of_table(X)
        table: Any = X if kind else np.asarray(X, dtype=object)
        if len(table.shape) != 2:
            raise InvalidInputError(f"X must be a table of rows and columns; got shape {np.shape(table)}.")
        numbers = np.empty(table.shape)
        wanted = range(table.shape[1]) if columns is None else columns.tolist()
        types = declared_types(table) if kind else [""] * len(wanted)
        plain = []
        for place, column in enumerate(wanted):
            if column in self._number_of:
                values = column_at(table, place).to_list() if kind else table[:, place].tolist()
                number_of = self._number_of[column]
                numbers[:, place] = [number_of.get(_text_of(value), np.nan) for value in values]
            elif is_date(types[place], table, place):
                numbers[:, place] = dates_as_days(column_at(table, place))
            else:
                plain.append(place)
        if plain:
            part = table.iloc[:, plain] if kind == "pandas" else table[:, plain]
            numbers[:, plain] = as_numbers(part)
        return numbers

    @cached_property
    def _number_of(self) -> dict[int, dict[str | None, float]]:
        """Number of each level, by column."""
        return {
            column: {level: float(number) for number, level in enumerate(levels)}
            for column, levels in self.of_column.items()
        }


def learn_levels(X: Any) -> Levels | None:
    """Levels of the columns of a data frame that hold text or categories; None where none does."""
    if kind_of_table(X) is None:
        return None
    found = {}
    for place, declared in enumerate(declared_types(X)):
        if is_text(declared, X, place):
            texts = {_text_of(value) for value in column_at(X, place).to_list()}
            found[place] = tuple(sorted(text for text in texts if text is not None))
    return Levels(found) if found else None


def plain_table(X: Any, levels: Levels | None) -> Any:
    """A table of the same kind and names that holds numbers only; as it is where it has nothing else."""
    kind = kind_of_table(X)
    if levels is None and not has_dates(X):
        return X
    numbers = (levels or Levels({})).numbers(X)
    return numbers if kind is None else plain_frame(kind, list(X.columns), numbers)


def has_dates(X: Any) -> bool:
    """Whether a data frame holds a column of dates or durations."""
    declared = enumerate(declared_types(X)) if kind_of_table(X) else ()
    return any(is_date(one, X, place) for place, one in declared)


def level_numbers(texts: Sequence[str | None], levels: Sequence[str]) -> Floats:
    """Number of each text among some levels; NaN for None, and for what is not among them."""
    place = {level: float(number) for number, level in enumerate(levels)}
    return np.array([np.nan if text is None else place.get(text, np.nan) for text in texts])


def level_text(value: Any) -> str:
    """What a level is called: a whole number is written without decimals, whatever its type."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _text_of(value: Any) -> str | None:
    return None if is_missing(value) else level_text(value)


def dates_as_days(column: Any) -> Floats:
    """Dates as days since the first of January 1970, durations as days."""
    is_span = str(column.dtype).lower().startswith(("duration", "timedelta"))
    if hasattr(column, "dt") and getattr(getattr(column, "dtype", None), "tz", None) is not None:
        column = column.dt.tz_convert(None)
    cells = column.to_numpy()
    if cells.dtype == object:
        return np.array([day_of(cell) for cell in cells], dtype=np.float64)
    times = np.asarray(cells, dtype="timedelta64[us]" if is_span else "datetime64[us]")
    days = times.astype(np.int64) / DAY
    days[np.isnat(times)] = np.nan
    return days


def day_of(value: Any) -> float:
    """A date as days since the first of January 1970, in UTC; a number is such days, and None is missing.

    Raises ValueError or TypeError for what is no date.
    """
    if is_missing(value):
        return np.nan
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value.strip())
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.UTC).replace(tzinfo=None)
        return float(np.datetime64(value, "us").astype(np.int64) / DAY)
    if isinstance(value, dt.date):
        return float((value - _EPOCH).days)
    if isinstance(value, dt.timedelta):
        return value / dt.timedelta(days=1)
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit = "datetime64[us]" if isinstance(value, np.datetime64) else "timedelta64[us]"
        return float(value.astype(unit).astype(np.int64) / DAY)
    if isinstance(value, bool | np.bool_):
        raise TypeError("a truth value is no date")
    return float(value)


def column_at(X: Any, place: int) -> Any:
    """A column of a data frame."""
    return X.iloc[:, place] if kind_of_table(X) == "pandas" else X.to_series(place)


def declared_types(X: Any) -> list[str]:
    """Type of each column of a data frame, in small letters."""
    return [str(one).lower() for one in X.dtypes]


def is_text(declared: str, X: Any, place: int) -> bool:
    """Whether a column of a data frame holds text or categories."""
    if declared == "object":
        return any(isinstance(value, str) for value in column_at(X, place).to_list())
    return declared.startswith(_TEXT_TYPES)


def is_date(declared: str, X: Any, place: int) -> bool:
    """Whether a column of a data frame holds dates or durations."""
    if declared == "object":
        there = [value for value in column_at(X, place).to_list() if not is_missing(value)]
        return bool(there) and all(isinstance(value, dt.date) for value in there)
    return declared.startswith(_DATE_TYPES)


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing."""
    # pandas has values of its own for what is missing; NaN differs from itself.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value
