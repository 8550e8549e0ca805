"""Column types: levels of text and categories, dates, booleans, and the dtypes that a data frame declares.

A column of text or categories becomes the number of its level: its place among the sorted texts of the fit. Labels are
not used. Dates become days since 1970-01-01, durations days, booleans 1 and 0.

The full model gets a data frame with the dtypes of the fit, from any form of cells.
"""

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.engine.table.table import Table, is_number
from thrifty.errors import InvalidInputError

# -- levels and dates ------------------------------------------------------------------------------


_TEXT_TYPES = ("category", "string", "str", "categorical", "enum", "utf8")
_DATE_TYPES = ("date", "datetime", "duration", "timedelta")
_EPOCH = dt.date(1970, 1, 1)
DAY = 86_400_000_000.0
"""Microseconds in a day."""


@dataclass(frozen=True)
class Levels:
    """The levels of each column of text or categories.

    Attributes
    ----------
    of_column : dict of int to tuple of str
        By the number of the column: its levels in order; the number of a level is its place.
    """

    of_column: Mapping[int, tuple[str, ...]]

    def validate(self) -> "Levels":
        """Refuse levels that are not distinct. Returns itself."""
        if any(len(set(texts)) < len(texts) for texts in self.of_column.values()):
            raise InvalidInputError("levels of a column must be distinct.")
        return self

    @property
    def columns(self) -> tuple[int, ...]:
        """Columns of text or categories, rising."""
        return tuple(sorted(self.of_column))

    def codes(self, column: int, cells: Iterable[Any]) -> Floats:
        """Number of the level in each cell of a column; NaN where it is missing, or was not in the fit."""
        number_of = self._number_of[column]
        return np.array([number_of.get(_text_of(cell), np.nan) for cell in cells], dtype=np.float64)

    def numbers(self, table: Table) -> Floats:
        """Numbers of a table that holds the columns of the fit."""
        table = table.as_objects()
        shape = np.shape(table.native)
        if len(shape) != 2:
            raise InvalidInputError(f"X must be a table of rows and columns; got shape {shape}.")
        numbers, plain = np.empty(shape), []
        for place in range(shape[1]):
            if place in self._number_of:
                numbers[:, place] = self.codes(place, table.values(place))
            elif is_date(table, place):
                numbers[:, place] = dates_as_days(table.column(place))
            else:
                plain.append(place)
        if plain:
            numbers[:, plain] = table.with_columns(plain).as_numbers()
        return numbers

    @cached_property
    def _number_of(self) -> dict[int, dict[str | None, float]]:
        """Number of each level, by column."""
        return {
            column: {level: float(number) for number, level in enumerate(levels)}
            for column, levels in self.of_column.items()
        }


def learn_levels(table: Table) -> Levels | None:
    """Levels of the columns of a data frame that hold text or categories; None where none does."""
    levels = {}
    for place in range(len(table.types)) if table.kind else ():
        if is_text(table, place):
            texts = {_text_of(value) for value in table.values(place)}
            levels[place] = tuple(sorted(text for text in texts if text is not None))
    return Levels(levels) if levels else None


def plain_table(table: Table, levels: Levels | None) -> Table:
    """Table of the same kind with numbers instead of text, dates and booleans; unchanged if it has none."""
    if levels is None and not has_dates(table):
        return table
    return table.with_frame_of((levels or Levels({})).numbers(table))


def has_dates(table: Table) -> bool:
    """True if a data frame holds a column of dates or durations."""
    return table.kind is not None and any(is_date(table, place) for place in range(len(table.types)))


def level_text(value: Any) -> str:
    """Name of a level: a whole number of any type is written without decimals."""
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


_TRUTHS = {"true": 1.0, "false": 0.0}


def truth_of(value: Any) -> float:
    """Boolean as 1 or 0, also from words such as "true"; a number is unchanged, and None is missing.

    Raises ValueError or TypeError for what is neither.
    """
    if is_missing(value):
        return np.nan
    if isinstance(value, str):
        truth = _TRUTHS.get(value.strip().lower())
        return float(value) if truth is None else truth
    return float(value)


def is_text(table: Table, place: int) -> bool:
    """True if a column of a data frame holds text or categories."""
    declared = table.types[place]
    if declared == "object":
        return any(isinstance(value, str) for value in table.values(place))
    return declared.startswith(_TEXT_TYPES)


def is_date(table: Table, place: int) -> bool:
    """True if a column of a data frame holds dates or durations."""
    declared = table.types[place]
    if declared == "object":
        cells = [value for value in table.values(place) if not is_missing(value)]
        return bool(cells) and all(isinstance(value, dt.date) for value in cells)
    return declared.startswith(_DATE_TYPES)


def is_missing(value: Any) -> bool:
    """True for a missing cell."""
    # pandas has values of its own for what is missing; NaN differs from itself.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


MAX_CATEGORIES = 255
"""Text columns with more distinct values than this hold names or notes, unless the values are repeated."""
ROWS_PER_CATEGORY = 5

_DRESSED = re.compile(
    r"[+-]?[$€£¥]?\s?[+-]?(\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+,\d+|\d+([.,]\d+)?)\s?[%$€£¥]?"
)
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-.]\d{1,2}[-.]\d{4}|\d{1,2}/\d{1,2}/(\d{2}|\d{4}))([T ]\d{1,2}:\d{2}.*)?"
)
_DISGUISES = (
    (_DRESSED, "numbers with separators or units", "Write them plainly, with a point before the decimals"),
    (_DATE, "dates", "Write them as 2026-01-31, or with a time as 2026-01-31 12:30"),
)


def categories_problem(name: Any, cells: Sequence[Any], first_row: int) -> str | None:
    """What is wrong with a column of text that does not hold categories, but notes, or numbers or dates as text.

    Parameters
    ----------
    name : str
        Name of the column.
    cells : sequence
        Its cells.
    first_row : int
        Number of the first row in messages.
    """
    rows = {level_text(cell): row for row, cell in reversed([*enumerate(cells)]) if not is_missing(cell)}
    texts, n_cells = sorted(rows), sum(not is_missing(cell) for cell in cells)
    odd = [text for text in texts if not is_number(text)]
    if 0 < len(odd) < len(texts) / 2:
        return (
            f"column {name!r} holds numbers, but {odd[0]!r} in row {first_row + rows[odd[0]]}. Correct it, or leave "
            f"the cell empty."
        )
    for pattern, called, way_out in _DISGUISES:
        alike = [text for text in odd if pattern.fullmatch(text.strip())]
        if len(alike) > len(texts) / 2:
            return (
                f"column {name!r} holds {called} such as {alike[0]!r}, which would be read as names of "
                f"categories. {way_out}, or ignore the column."
            )
    if len(texts) > max(MAX_CATEGORIES, n_cells / ROWS_PER_CATEGORY):
        return (
            f"column {name!r} holds text with {len(texts):,} different values in {len(cells):,} rows; more "
            f"than {MAX_CATEGORIES} must be there {ROWS_PER_CATEGORY} times each on average. Ignore the "
            f"column, or group its values."
        )
    return None


# -- types as they were declared -------------------------------------------------------------------


HOLDS = ("number", "truth", "text", "mixed", "time", "day", "span")
"""Kinds of columns: numbers, booleans, text, text among other values, timestamps, dates, durations."""

_KNOWN_TYPES = re.compile(
    r"object|bool|boolean|Boolean|str|string|String|category|Categorical|Enum|Date"
    r"|(float|Float|int|Int|uint|UInt)(8|16|32|64)"
    r"|(datetime64|timedelta64|Datetime|Duration)\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,60})?\]"
    r"|(double|float|halffloat|u?int(8|16|32|64)|bool|string|large_string|date32\[day\])\[pyarrow\]"
)
"""Dtypes that are restored; cells of columns with any other stay unchanged."""


@dataclass(frozen=True)
class ColumnType:
    """Type of a column of the fit.

    Attributes
    ----------
    holds : str
        What it holds, one of ``HOLDS``.
    dtype : str
        Name of its type, as its library writes it; empty where it is none of those that are declared again.
    categories : tuple, optional
        Categories in the order of the fit; None for other types.
    ordered : bool
        Whether that order means something.
    missing : {"nan", "None"}
        Missing value in a column of objects.
    """

    holds: str
    dtype: str = ""
    categories: tuple[Any, ...] | None = None
    ordered: bool = False
    missing: str = "nan"

    def validate(self) -> "ColumnType":
        """Refuse a declaration that no column has. Returns itself."""
        if self.holds not in HOLDS or self.missing not in ("nan", "None"):
            raise InvalidInputError(
                f"holds must be one of {', '.join(HOLDS)}, and missing nan or None; got {self.holds!r}, "
                f"{self.missing!r}."
            )
        if self.dtype and not _KNOWN_TYPES.fullmatch(self.dtype):
            raise InvalidInputError(f"dtype must be a type of columns; got {self.dtype[:100]!r}.")
        names = self.categories or ()
        if len(set(names)) < len(names) or not all(type(name) in (str, bool, int, float) for name in names):
            raise InvalidInputError("categories must be distinct texts, numbers or truth values.")
        return self


def column_types(table: Table) -> tuple[ColumnType, ...] | None:
    """Types of the columns of a data frame; None for a table without names."""
    if table.kind is None:
        return None
    return tuple(_type_of(table, place) for place in range(len(table.types)))


def _type_of(table: Table, place: int) -> ColumnType:
    column, declared = table.column(place), table.types[place]
    dtype, categories, ordered, missing = _name_of(column.dtype), None, False, "nan"
    if declared.startswith(("category", "categorical", "enum")):
        categories, ordered = _categories_of(table.kind, column)
        dtype = dtype if declared == "category" else dtype.partition("(")[0]
    holds = "number"
    if is_text(table, place):
        holds = "text"
        if declared == "object":
            holds = "text" if all(isinstance(value, str) for value in column.dropna()) else "mixed"
            missing = _missing_of(column)
    elif is_date(table, place):
        is_day = declared in ("date", "date32[day][pyarrow]") or (
            declared == "object" and not any(isinstance(value, dt.datetime) for value in column)
        )
        holds = "span" if declared.startswith(("duration", "timedelta")) else "day" if is_day else "time"
    elif declared.startswith("bool"):
        holds = "truth"
    elif declared == "object":
        values = column.dropna()
        if len(values) and all(isinstance(value, bool | np.bool_) for value in values):
            holds, missing = "truth", _missing_of(column)
    return ColumnType(holds, dtype if _KNOWN_TYPES.fullmatch(dtype) else "", categories, ordered, missing)


def _name_of(dtype: Any) -> str:
    """Name of a type; one of polars with its unit and zone as pandas writes them."""
    unit = getattr(dtype, "time_unit", None)
    if unit is None:
        return str(dtype)
    zone = getattr(dtype, "time_zone", None)
    return f"{type(dtype).__name__}[{unit}{f', {zone}' if zone else ''}]"


def _categories_of(kind: str | None, column: Any) -> tuple[tuple[Any, ...], bool]:
    if kind == "pandas":
        return tuple(column.cat.categories.tolist()), bool(column.cat.ordered)
    if str(column.dtype).startswith("Enum"):
        return tuple(column.dtype.categories.to_list()), True
    # Of a Categorical polars counts the categories as they come.
    return tuple(column.drop_nulls().unique().cast(str).sort().to_list()), False


def _missing_of(column: Any) -> str:
    missing = column[column.isna()]
    return "None" if len(missing) and missing.iloc[0] is None else "nan"


def dtype_of(kind: str, declared: ColumnType) -> Any:
    """Dtype of a column in its library; None where it is not restored."""
    if not declared.dtype:
        return None
    if kind == "polars":
        import polars as pl

        name, _, rest = declared.dtype.partition("[")
        if rest:
            unit, _, zone = rest.rstrip("]").partition(", ")
            return pl.Datetime(unit, zone or None) if name == "Datetime" else pl.Duration(unit)
        return pl.Enum(list(declared.categories or ())) if name == "Enum" else getattr(pl, name)
    import pandas as pd

    try:
        if declared.dtype == "category":
            return pd.CategoricalDtype(list(declared.categories or ()), ordered=declared.ordered)
        return pd.api.types.pandas_dtype(declared.dtype)
    except (TypeError, ValueError, ImportError):  # a type of a library that is not installed here
        return None


def declared_as(kind: str, values: Any, declared: ColumnType, dtype: Any) -> Any:
    """Column for a frame of pandas or polars with the dtype of the fit.

    Parameters
    ----------
    kind : {"pandas", "polars"}
        Library of the column.
    values : sequence
        Cells of text and categories as they came; numbers of every other column, those of dates in days since 1970.
    declared : ColumnType
        Type of the column in the fit.
    dtype : object
        What ``dtype_of`` makes of that.
    """
    if declared.holds in ("text", "mixed") or declared.categories is not None:
        cells = list(values)
        if declared.categories is not None:
            return _as_categories(kind, cells, declared.categories, dtype)
        return _as_texts(kind, cells, declared, dtype)
    if declared.holds in ("time", "day", "span"):
        return _as_dates(kind, np.asarray(values, dtype=np.float64), declared, dtype)
    return _as_type(kind, np.asarray(values, dtype=np.float64), declared, dtype)


def _as_categories(kind: str, cells: list[Any], categories: tuple[Any, ...], dtype: Any) -> Any:
    """Cells as categories of the fit; unknown ones are missing."""
    texts = [None if is_missing(cell) else level_text(cell) for cell in cells]
    place_of: dict[str | None, int] = {}
    for place, category in enumerate(categories):
        place_of.setdefault(level_text(category), place)
    if kind == "polars":
        import polars as pl

        return pl.Series([text if text in place_of else None for text in texts], dtype=dtype)
    import pandas as pd

    return pd.Categorical.from_codes([place_of.get(text, -1) for text in texts], dtype=dtype)


def _as_texts(kind: str, cells: list[Any], declared: ColumnType, dtype: Any) -> Any:
    """Cells as text; in a mixed column they are unchanged."""
    is_plain = declared.holds == "text"
    missing = None if kind == "polars" or declared.missing == "None" else np.nan
    values = [
        missing if is_missing(cell) else level_text(cell) if is_plain and not isinstance(cell, str) else cell
        for cell in cells
    ]
    if kind == "polars":
        import polars as pl

        return pl.Series(values, dtype=dtype, strict=False)
    import pandas as pd

    column = pd.Series(values, dtype=object)
    return column.infer_objects() if dtype is None else column.astype(dtype)


def _as_dates(kind: str, days: Floats, declared: ColumnType, dtype: Any) -> Any:
    """Days since 1970 as dates, or as durations."""
    unit = "timedelta64[us]" if declared.holds == "span" else "datetime64[us]"
    lost = ~np.isfinite(days)
    times = np.round(np.where(lost, 0.0, days) * DAY).astype(np.int64).astype(unit)
    times[lost] = np.array("NaT", dtype=unit)
    if kind == "polars":
        import polars as pl

        column = pl.Series(times)
        if getattr(dtype, "time_zone", None) is not None:
            column = column.dt.replace_time_zone("UTC")
        return column if dtype is None else column.cast(dtype)
    import pandas as pd

    column = pd.Series(times)
    if dtype is None:
        return column
    if declared.dtype == "object":
        cells = [None if lost[place] else time.to_pydatetime() for place, time in enumerate(column)]
        if declared.holds == "day":
            cells = [None if time is None else time.date() for time in cells]
        return pd.Series(cells, dtype=object)
    if getattr(dtype, "tz", None) is not None:
        return column.dt.tz_localize("UTC").astype(dtype)
    return column.astype(dtype)


def _as_type(kind: str, numbers: Floats, declared: ColumnType, dtype: Any) -> Any:
    """Numbers with a numeric or boolean dtype; unchanged where it cannot hold them."""
    lost, is_truth = np.isnan(numbers), declared.holds == "truth"
    values = numbers[~lost]
    is_whole = is_truth or "int" in declared.dtype.lower()
    if dtype is None or (is_whole and not np.array_equal(values, np.round(values))):
        return numbers
    if is_truth and not np.isin(values, (0.0, 1.0)).all():
        return numbers
    if kind == "polars":
        import polars as pl

        if not is_whole:
            return pl.Series(numbers, dtype=dtype)
        cells = [None if np.isnan(number) else number for number in numbers.tolist()]
        return pl.Series(cells, dtype=pl.Float64).cast(dtype, strict=False)
    import pandas as pd

    if declared.dtype == "object":
        missing = None if declared.missing == "None" else np.nan
        read = bool if is_truth else float
        cells = [missing if np.isnan(number) else read(number) for number in numbers.tolist()]
        return pd.Series(cells, dtype=object)
    if isinstance(dtype, np.dtype):
        if is_whole and lost.any():
            return numbers
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        if limits is not None and len(values) and (values.min() < limits.min or values.max() > limits.max):
            return numbers
        with np.errstate(over="ignore"):
            return numbers.astype(dtype)
    # Types of pandas with a value of their own for what is missing.
    cells = pd.Series(numbers, dtype="Float64")
    cells[lost] = pd.NA
    try:
        return cells.astype(dtype)
    except (TypeError, ValueError):
        return numbers
