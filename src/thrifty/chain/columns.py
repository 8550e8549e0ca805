"""Tables and their columns: names, types, levels and dates, as numbers for the stages and as the frame of the fit.

*Names.* A table with the columns of a fit in another order is put into that order, where names allow it. Any other
difference is refused: a missing column cannot be guessed, and a surplus one may be the missing one under another name.
Where only one side has names, there is a warning, as everywhere in scikit-learn.

*Levels and dates.* A column of text or categories becomes the number of its level: its place among the texts that the
fit saw, sorted. No label is looked at. A text that the fit did not see is missing. Dates become days since the first of
January 1970, and durations days.

*Types.* The full model is given a data frame whose columns are declared as at the fit, whatever the cells come from.
"""

import datetime as dt
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names

from thrifty.arrays import Floats, Ints, unmasked
from thrifty.errors import InvalidInputError

__all__ = [
    "DAY",
    "HOLDS",
    "ColumnType",
    "FrameOfFit",
    "Levels",
    "as_numbers",
    "column_at",
    "column_types",
    "dates_as_days",
    "day_of",
    "declared_as",
    "declared_types",
    "describe_bad_column",
    "dtype_of",
    "find_column",
    "has_dates",
    "is_date",
    "is_known_type",
    "is_missing",
    "is_text",
    "kind_of_table",
    "learn_levels",
    "level_numbers",
    "level_text",
    "places_of_fit",
    "plain_frame",
    "plain_table",
    "refuse_series",
    "split_row_keys",
    "table_of_fit",
    "truth_of",
]

_NAMES_SHOWN = 5


# -- names -----------------------------------------------------------------------------------------


def refuse_series(X: Any) -> None:
    """Refuse a Series in the place of a table: a row, or a column, that was taken out of its data frame."""
    kind = kind_of_table(X) if len(getattr(X, "shape", ())) == 1 else None
    if kind is not None:
        row = "X.iloc[[0]]" if kind == "pandas" else "X[[0]]"
        raise InvalidInputError(
            f"Expected 2D array, got 1D array instead: X is a {kind} Series of {len(X)} values. Give a data frame, "
            f"also for a single row: `{row}` is the first row of X as one, and `X[['name']]` a single column."
        )


def table_of_fit(X: Any, names: Sequence[str] | None) -> Any:
    """A table with its columns in the order of a fit.

    Parameters
    ----------
    X : array, CSR, data frame or list of rows
        The table, which comes back as it is wherever nothing is to be done.
    names : sequence of str or None
        Names of the columns of the fit; None where it saw none.
    """
    refuse_series(X)
    try:
        given = _get_feature_names(X)
    except (TypeError, ValueError) as error:  # names of several types, or the same one twice
        raise InvalidInputError(f"the columns of X must have names that tell them apart: {error}") from error
    if given is None or names is None:
        if names is not None:
            _warn("X does not have valid feature names, but the system was fitted with feature names")
        elif given is not None:
            _warn("X has feature names, but the system was fitted without feature names")
        return X
    places = places_of_fit(given.tolist(), names, "X")
    if places is None:
        return X
    return _safe_indexing(X if kind_of_table(X) else as_numbers(X), places, axis=1)


def places_of_fit(given: Sequence[str], names: Sequence[str], what: str) -> Ints | None:
    """Where the columns of a fit stand among those given; None if each stands in its place."""
    if list(given) == list(names):
        return None
    place = {name: number for number, name in enumerate(given)}
    if len(place) == len(given) == len(names) and place.keys() == set(names):
        return np.array([place[name] for name in names], dtype=np.intp)
    found = {
        "lacks": [name for name in names if name not in place],
        "has, unknown to the fit,": [name for name in given if name not in set(names)],
        "has more than once": [name for name in place if list(given).count(name) > 1],
    }
    wrong = "; it ".join(f"{what_about} {_listed(some)}" for what_about, some in found.items() if some)
    raise InvalidInputError(
        f"{what} must have the columns of the fit, {_listed(names)}; it {wrong or f'has {len(given)} columns'}. Rename "
        f"columns that changed their names, leave out those that the fit did not know, and add those that are lacking."
    )


def find_column(column: Any, names: Sequence[str] | None, n_features: int, what: str) -> int:
    """Number of a column given by name, or by number where the fit knew no names; ``what`` is named in errors."""
    if names is not None and column in names:
        return list(names).index(column)
    if names is None and isinstance(column, int | np.integer) and 0 <= column < n_features:
        return int(column)
    near = get_close_matches(str(column), names, n=1) if names is not None else []
    known = (
        f"the columns are {_listed(names)}"
        if names is not None
        else (f"the fit knew no names, so columns are numbers from 0 to {n_features - 1}")
    )
    hint = f" did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{what} names {column!r}, not a column of the fit;{hint or ' ' + known + '.'}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)


# -- levels and dates ------------------------------------------------------------------------------


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


# -- types as they were declared -------------------------------------------------------------------


HOLDS = ("number", "truth", "text", "mixed", "time", "day", "span")
"""What a column holds: numbers, truth values, text, text among other values, times, days of a calendar, durations."""

_KNOWN_TYPES = re.compile(
    r"object|bool|boolean|Boolean|str|string|String|category|Categorical|Enum|Date"
    r"|(float|Float|int|Int|uint|UInt)(8|16|32|64)"
    r"|(datetime64|timedelta64|Datetime|Duration)\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,60})?\]"
    r"|(double|float|halffloat|u?int(8|16|32|64)|bool|string|large_string|date32\[day\])\[pyarrow\]"
)
"""Types that columns are declared as again; of any other, cells stay as they came."""


@dataclass(frozen=True)
class ColumnType:
    """How a column of the fit was declared.

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
        What stands for a missing value in a column of objects.
    """

    holds: str
    dtype: str = ""
    categories: tuple[Any, ...] | None = None
    ordered: bool = False
    missing: str = "nan"


def column_types(X: Any) -> tuple[ColumnType, ...] | None:
    """How the columns of a data frame are declared; None for a table without names."""
    kind = kind_of_table(X)
    if kind is None:
        return None
    declared = declared_types(X)
    return tuple(_type_of(column_at(X, place), declared[place], X, place) for place in range(len(declared)))


def _type_of(column: Any, declared: str, X: Any, place: int) -> ColumnType:
    dtype, categories, ordered, missing = _name_of(column.dtype), None, False, "nan"
    if declared.startswith(("category", "categorical", "enum")):
        categories, ordered = _categories_of(column)
        dtype = dtype if declared == "category" else dtype.partition("(")[0]
    holds = "number"
    if is_text(declared, X, place):
        holds = "text"
        if declared == "object":
            there = column.dropna()
            holds = "text" if all(isinstance(value, str) for value in there) else "mixed"
            missing = _missing_of(column)
    elif is_date(declared, X, place):
        is_day = declared in ("date", "date32[day][pyarrow]") or (
            declared == "object" and not any(isinstance(value, dt.datetime) for value in column)
        )
        holds = "span" if declared.startswith(("duration", "timedelta")) else "day" if is_day else "time"
    elif declared.startswith("bool"):
        holds = "truth"
    elif declared == "object":
        there = column.dropna()
        if len(there) and all(isinstance(value, bool | np.bool_) for value in there):
            holds, missing = "truth", _missing_of(column)
    return ColumnType(holds, dtype if is_known_type(dtype) else "", categories, ordered, missing)


def is_known_type(dtype: str) -> bool:
    """Whether columns are declared as this type again."""
    return _KNOWN_TYPES.fullmatch(dtype) is not None


def _name_of(dtype: Any) -> str:
    """Name of a type; one of polars with its unit and zone as pandas writes them."""
    unit = getattr(dtype, "time_unit", None)
    if unit is None:
        return str(dtype)
    zone = getattr(dtype, "time_zone", None)
    return f"{type(dtype).__name__}[{unit}{f', {zone}' if zone else ''}]"


def _categories_of(column: Any) -> tuple[tuple[Any, ...], bool]:
    if kind_of_table(column) == "pandas":
        return tuple(column.cat.categories.tolist()), bool(column.cat.ordered)
    if str(column.dtype).startswith("Enum"):
        return tuple(column.dtype.categories.to_list()), True
    # Of a Categorical polars counts the categories as they come.
    return tuple(column.drop_nulls().unique().cast(str).sort().to_list()), False


def _missing_of(column: Any) -> str:
    there = column[column.isna()]
    return "None" if len(there) and there.iloc[0] is None else "nan"


def dtype_of(kind: str, declared: ColumnType) -> Any:
    """The type of a column in its library; None where it is not declared again."""
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
    """A column of a frame of pandas or polars, declared as one of the fit was.

    Parameters
    ----------
    kind : {"pandas", "polars"}
        Whose column it is to be.
    values : sequence
        Cells of text and categories as they came; numbers of every other column, those of dates in days since 1970.
    declared : ColumnType
        How it was declared.
    dtype : object
        What ``dtype_of`` makes of that.
    """
    if declared.holds in ("text", "mixed") or declared.categories is not None:
        cells = values.to_list() if kind_of_table(values) else list(values)
        if declared.categories is not None:
            return _as_categories(kind, cells, declared.categories, dtype)
        return _as_texts(kind, cells, declared, dtype)
    if declared.holds in ("time", "day", "span"):
        return _as_dates(kind, np.asarray(values, dtype=np.float64), declared, dtype)
    return _as_type(kind, np.asarray(values, dtype=np.float64), declared, dtype)


def _as_categories(kind: str, cells: list[Any], categories: tuple[Any, ...], dtype: Any) -> Any:
    """Cells as categories of the fit; one that it has not seen is missing."""
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
    """Cells as text; in a column of other values too, as they came."""
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
        cells = [None if lost[place] else one.to_pydatetime() for place, one in enumerate(column)]
        if declared.holds == "day":
            cells = [None if one is None else one.date() for one in cells]
        return pd.Series(cells, dtype=object)
    if getattr(dtype, "tz", None) is not None:
        return column.dt.tz_localize("UTC").astype(dtype)
    return column.astype(dtype)


def _as_type(kind: str, numbers: Floats, declared: ColumnType, dtype: Any) -> Any:
    """Numbers as a type of numbers or truth values; as they are where that type cannot hold them."""
    lost, is_truth = np.isnan(numbers), declared.holds == "truth"
    there = numbers[~lost]
    is_whole = is_truth or "int" in declared.dtype.lower()
    if dtype is None or (is_whole and not np.array_equal(there, np.round(there))):
        return numbers
    if is_truth and not np.isin(there, (0.0, 1.0)).all():
        return numbers
    if kind == "polars":
        import polars as pl

        if not is_whole:
            return pl.Series(numbers, dtype=dtype)
        cells = [None if gone else number for number, gone in zip(numbers.tolist(), lost, strict=True)]
        return pl.Series(cells, dtype=pl.Float64).cast(dtype, strict=False)
    import pandas as pd

    if declared.dtype == "object":
        missing = None if declared.missing == "None" else np.nan
        cells = [missing if np.isnan(one) else bool(one) if is_truth else one for one in numbers.tolist()]
        return pd.Series(cells, dtype=object)
    if isinstance(dtype, np.dtype):
        if is_whole and lost.any():
            return numbers
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        if limits is not None and len(there) and (there.min() < limits.min or there.max() > limits.max):
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


# -- the data frame of the fit ---------------------------------------------------------------------


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
        """Cells of some columns, of any form, as the numbers that stages read."""
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
            return np.empty(table.shape)  # refused by the caller, who knows what was asked for
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
        """A table of the user's, with the types of the fit; as it is where it has them already.

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


# -- tables of every kind ---------------------------------------------------------------------------


def split_row_keys(X: Any, row_key: Any, features: Sequence[str] | None = None) -> tuple[Any, Any]:
    """A table without its column of row keys, and the keys; None where rows are known by their number.

    Parameters
    ----------
    X : table
        Array, CSR or data frame.
    row_key : str, array-like of shape (n_rows,) or None
        Name of a column of a data frame, or the keys; None takes the index of a pandas data frame.
    features : sequence of str, optional
        Names of the columns of the fit: a key that is one of them stays in the table.
    """
    kind = kind_of_table(X)
    if row_key is None:
        return X, X.index if kind == "pandas" else None
    if not isinstance(row_key, str):
        given, n_rows = len(row_key), np.shape(X)[0]
        if given != n_rows:
            raise InvalidInputError(
                f"row_key must have a key for each of the {n_rows} rows of X; got {given}."
            )
        return X, row_key
    if kind is None:
        raise InvalidInputError(
            f"row_key={row_key!r} names a column, and X is {type(X).__name__} without names. Give a data frame, or the "
            f"keys themselves."
        )
    if row_key not in X.columns:
        raise InvalidInputError(
            f"row_key={row_key!r} must be a column of X; it has {', '.join(map(str, X.columns[:20]))}."
        )
    keys = X[row_key].to_list()
    if features is not None and row_key in features:
        return X, keys
    return (X.drop(columns=row_key) if kind == "pandas" else X.drop(row_key)), keys


def as_numbers(X: Any, name: str = "X") -> Any:
    """The table as float64 numbers, dense or CSR, or a refusal that names the column; what is masked is missing."""
    dtypes = X.dtypes if kind_of_table(X) else [getattr(X, "dtype", None)]
    kinds = {getattr(dtype, "kind", None) for dtype in dtypes}
    if kinds & set("cmM"):
        way_out = " Give its parts apart." if "c" in kinds else ""
        raise InvalidInputError(f"{name} must hold real numbers.{describe_bad_column(X)}{way_out}")
    if sparse.issparse(X):
        return sparse.csr_array(X, dtype=np.float64)
    try:
        if kind_of_table(X) == "pandas" and "O" not in kinds:
            numbers = X.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            cells = X.to_numpy(dtype=object) if kind_of_table(X) == "pandas" else unmasked(X)
            numbers = np.asarray(_without_na(cells), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must hold numbers: {error}.{describe_bad_column(X)}") from error
    if numbers.ndim != 2:
        raise InvalidInputError(f"{name} must be a table of rows and columns; got shape {numbers.shape}.")
    return numbers


def _without_na(X: Any) -> Any:
    """Cells with NaN where pandas has a value of its own for what is missing."""
    if not isinstance(X, np.ndarray) or X.dtype != object:
        return X
    is_na = np.array([type(cell).__name__ == "NAType" for cell in X.flat], dtype=bool).reshape(X.shape)
    return np.where(is_na, np.nan, X) if is_na.any() else X


def describe_bad_column(X: Any, *, allow_missing: bool = True) -> str:
    """A sentence that names the first column that is not made of (finite) numbers; empty if there is none."""
    try:
        is_table = not sparse.issparse(X) and np.ndim(X) == 2
    except ValueError:
        return " Its rows have different lengths."
    if not is_table:
        return ""
    names = list(getattr(X, "columns", range(np.shape(X)[1])))
    for number, name in enumerate(names):
        column = np.asarray(X[name] if kind_of_table(X) else [row[number] for row in X])
        if column.dtype.kind == "c":
            return f" Column {name!r} holds complex numbers."
        if column.dtype.kind in "mM":
            return (
                f" Column {name!r} holds dates or times; turn them into numbers (days since some day, say)."
            )
        try:
            values = column.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            return f" Column {name!r} holds {_what_it_holds(X, name, column)}; encode it as numbers or leave it out."
        if np.isinf(values).any():
            return f" Column {name!r} holds an infinite value in row {int(np.isinf(values).argmax())}."
        if not allow_missing and np.isnan(values).any():
            return (
                f" Column {name!r} is missing (NaN) in row {int(np.isnan(values).argmax())}; impute it first."
            )
    return ""


def _what_it_holds(X: Any, name: Any, column: Any) -> str:
    """What a column holds that has no numbers, in the words of its library."""
    declared = str(getattr(X[name], "dtype", "")).lower() if kind_of_table(X) else ""
    if declared.startswith(("category", "categorical", "enum")):
        return "categories"
    texts = [value for value in column.tolist() if isinstance(value, str)]
    return f"text such as {texts[0]!r}" if texts else f"{column.dtype.name} values"


def plain_frame(kind: str, names: Sequence[str], numbers: Any) -> Any:
    """Numbers as a data frame."""
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(numbers, schema=list(names), orient="row")
    import pandas as pd

    return pd.DataFrame(numbers, columns=list(names))


def kind_of_table(table: Any) -> str | None:
    """``"pandas"``, ``"polars"`` or None for what has no column names."""
    # Subclasses count too.
    packages = (kind.__module__.split(".")[0] for kind in type(table).__mro__)
    return next((package for package in packages if package in ("pandas", "polars")), None)
