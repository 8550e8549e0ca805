"""Columns of text, categories and dates as numbers, found at a fit and kept with what serves.

A column of text or categories becomes the number of its level: its place among the texts that the fit saw, sorted. No
label is looked at. What is missing, and a text that the fit did not see, is missing. Dates become days since the first
of January 1970, and durations days.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.sources import as_numbers, kind_of_table, table_like
from thrifty.exceptions import InvalidInputError

__all__ = ["Levels", "has_dates", "learn_levels", "level_numbers", "plain_table"]

_TEXT_TYPES = ("category", "string", "str", "categorical", "enum", "utf8")
_DATE_TYPES = ("date", "datetime", "duration", "timedelta")
_DAY = 86_400_000_000.0  # microseconds


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
        table = X if kind_of_table(X) else np.asarray(X, dtype=object)
        if len(table.shape) != 2:
            raise InvalidInputError(f"X must be a table of rows and columns; got shape {np.shape(table)}.")
        wanted = np.arange(table.shape[1]) if columns is None else columns
        found = [_numbers_of(table, place, self.of_column.get(int(one))) for place, one in enumerate(wanted)]
        return np.column_stack(found) if found else np.empty(table.shape)


def learn_levels(X: Any) -> Levels | None:
    """Levels of the columns of a data frame that hold text or categories; None where none does."""
    if kind_of_table(X) is None:
        return None
    found = {}
    for place in range(X.shape[1]):
        column = _column(X, place)
        if _is_text(column):
            texts = {level_text(value) for value in column.to_list() if not _is_missing(value)}
            found[place] = tuple(sorted(texts))
    return Levels(found) if found else None


def plain_table(X: Any, levels: Levels | None) -> Any:
    """A table of the same kind and names that holds numbers only; as it is where it has nothing else."""
    kind = kind_of_table(X)
    if levels is None and not has_dates(X):
        return X
    numbers = (levels or Levels({})).numbers(X)
    return table_like(kind, None if kind is None else list(X.columns))(numbers, np.arange(numbers.shape[1]))


def has_dates(X: Any) -> bool:
    """Whether a data frame holds a column of dates or durations."""
    return kind_of_table(X) is not None and any(_is_date(_column(X, place)) for place in range(X.shape[1]))


def level_numbers(texts: Sequence[str | None], levels: Sequence[str]) -> Floats:
    """Number of each text among some levels; NaN for None, and for what is not among them."""
    place = {level: float(number) for number, level in enumerate(levels)}
    return np.array([np.nan if text is None else place.get(text, np.nan) for text in texts])


def level_text(value: Any) -> str:
    """What a level is called: a whole number is written without decimals, whatever its type."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _numbers_of(table: Any, place: int, levels: tuple[str, ...] | None) -> Floats:
    """Numbers of one column of a data frame or of an array of objects."""
    if not kind_of_table(table):
        values = table[:, place].tolist()
        if levels is None:
            return np.asarray(as_numbers(np.array(values, dtype=object)[:, None]))[:, 0]
        return level_numbers([None if _is_missing(one) else level_text(one) for one in values], levels)
    column = _column(table, place)
    if levels is not None:
        values = column.to_list()
        return level_numbers([None if _is_missing(one) else level_text(one) for one in values], levels)
    if _is_date(column):
        return _days(column)
    return np.asarray(as_numbers(table[[table.columns[place]]]))[:, 0]


def _days(column: Any) -> Floats:
    """Dates as days since the first of January 1970, durations as days."""
    is_span = str(column.dtype).lower().startswith(("duration", "timedelta"))
    if hasattr(column, "dt") and getattr(getattr(column, "dtype", None), "tz", None) is not None:
        column = column.dt.tz_convert(None)
    times = np.asarray(column.to_numpy(), dtype="timedelta64[us]" if is_span else "datetime64[us]")
    days = times.astype(np.int64) / _DAY
    days[np.isnat(times)] = np.nan
    return days


def _column(X: Any, place: int) -> Any:
    return X.iloc[:, place] if kind_of_table(X) == "pandas" else X.to_series(place)


def _is_text(column: Any) -> bool:
    declared = str(column.dtype).lower()
    if declared == "object":
        return any(isinstance(value, str) for value in column.to_list())
    return declared.startswith(_TEXT_TYPES)


def _is_date(column: Any) -> bool:
    declared = str(column.dtype).lower()
    if declared == "object":
        there = [value for value in column.to_list() if not _is_missing(value)]
        return bool(there) and all(isinstance(value, dt.date) for value in there)
    return declared.startswith(_DATE_TYPES)


def _is_missing(value: Any) -> bool:
    # pandas has values of its own for what is missing; NaN differs from itself.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value
