"""``Table``: rows with columns, made once where a user gives them.

**A table is asked once which library it comes from.** ``Table.of`` makes one of an array, a CSR matrix, a data frame or
a list of rows; everything behind it takes a ``Table``, or its numbers. This module alone knows the libraries.

A table has two forms. ``native`` is what the user gave: the full model reads it. ``numbers`` is what the stages read.
Data frames of pandas and polars are read by their own methods: through narwhals, a column of a request of one row takes
five times as long. Other data frames, such as those of pyarrow, become frames of pandas by narwhals.

Names of columns are matched with those of a fit here, looked up, and listed in errors.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Self

import narwhals as nw
import numpy as np
from scipy import sparse

from thrifty.arrays import Floats, Ints, Labels, Words, unmasked
from thrifty.errors import InvalidInputError, InvalidParameterError, InvalidTypeError, listed
from thrifty.rows import key_words


def refuse_unknown(what: str, names: Iterable[str], columns: Iterable[Any]) -> None:
    """Refuse names that are not columns of a table; ``what`` is the parameter or file that names them."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise InvalidParameterError(
            what, f"names {listed(unknown)}, not a column of the table, which has {listed(columns)}."
        )


def is_number(value: Any) -> bool:
    """True for a number, and for text that can be read as one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def places_of_fit(columns: Sequence[str], names: Sequence[str], what: str) -> Ints | None:
    """Places, among some columns, of those of a fit; None if the order is the same."""
    if list(columns) == list(names):
        return None
    place = {name: number for number, name in enumerate(columns)}
    if len(place) == len(columns) == len(names) and place.keys() == set(names):
        return np.array([place[name] for name in names], dtype=np.intp)
    differences = {
        "lacks": [name for name in names if name not in place],
        "has, unknown to the fit,": [name for name in columns if name not in set(names)],
        "has more than once": [name for name in place if list(columns).count(name) > 1],
    }
    wrong = "; it ".join(f"{verb} {listed(some)}" for verb, some in differences.items() if some)
    raise InvalidInputError(
        f"{what} must have the columns of the fit, {listed(names)}; it {wrong or f'has {len(columns)} columns'}. "
        f"Rename columns that changed their names, leave out those that the fit did not know, and add those that are "
        f"lacking."
    )


def find_column(column: Any, names: Sequence[str] | None, n_features: int, what: str) -> int:
    """Number of a column given by name, or by number where the fit knew no names; ``what`` is named in errors."""
    if names is not None and column in names:
        return list(names).index(column)
    if names is None and isinstance(column, int | np.integer) and 0 <= column < n_features:
        return int(column)
    hint = f"the fit knew no names, so columns are numbers from 0 to {n_features - 1}."
    if names is not None:
        near = get_close_matches(str(column), names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the columns are {listed(names)}."
    raise InvalidInputError(f"{what} names {column!r}, not a column of the fit; {hint}")


# -- the table -------------------------------------------------------------------------------------


class Table:
    """Rows with columns of any library, and a ``Reader`` of them: every cell is at hand, at no price.

    Parameters
    ----------
    numbers : ndarray or CSR of shape (n_rows, n_columns), or None
        The table as the stages read it; NaN is missing. None until it is checked.
    native : array, CSR, data frame or list of rows, optional
        The table as the full model reads it; None is ``numbers``.
    row_numbers : ndarray of shape (n_rows,), optional
        Numbers of the rows in the user's table, of which this one is a part.
    row_keys : array-like of shape (n_rows,), optional
        Keys of the rows; without them, their places.

    Attributes
    ----------
    kind : {"pandas", "polars"} or None
        Library of the data frame; None for a table without column names.
    """

    is_at_hand = True
    ledger: Any = None
    visited: dict[int, Any] | None = None

    def __init__(
        self, numbers: Any, native: Any = None, row_numbers: Ints | None = None, row_keys: Any = None
    ) -> None:
        self.numbers = numbers
        self.native = numbers if native is None else native
        self.kind = None if native is None or type(native) is np.ndarray else _library_of(native)
        self.row_numbers = row_numbers
        self.n_samples = -1 if numbers is None else int(numbers.shape[0])
        # Turned into words only where two operating points are mixed.
        self._row_keys = row_keys
        self._key_words: Words | None = None

    @classmethod
    def of(cls, X: Any, row_key: Any = None, features: Sequence[str] | None = None) -> "Table":
        """Make a table of what a user gives, as it is; a ``Table`` is returned unchanged.

        Parameters
        ----------
        X : array, CSR, data frame or list of rows
            The table. A data frame of a library other than pandas and polars becomes one of pandas.
        row_key : str, array-like of shape (n_rows,) or None
            Column of a data frame with the keys of the rows, which is split off, or the keys; None takes the index of a
            pandas data frame.
        features : sequence of str, optional
            Names of the columns of the fit: a key that is one of them stays in the table.
        """
        if isinstance(X, Table):
            return X
        if isinstance(X, list) and X and isinstance(X[0], Mapping):
            raise InvalidTypeError(
                "X must be a table of rows and columns; got a list of dicts. Make a data frame of them: "
                "pandas.DataFrame(X)."
            )
        table = cls(None, X)
        if table.kind is not None:
            table._refuse_series()
        elif not isinstance(X, np.ndarray | list) and nw.dependencies.is_into_dataframe(X):
            table.native, table.kind = nw.from_native(X, eager_only=True).to_pandas(), "pandas"
        if row_key is not None:
            return table._with_keys(row_key, features)
        if table.kind == "pandas":
            table._row_keys = table.native.index
        return table

    def with_numbers(self, numbers: Any) -> "Table":
        """The table with its checked numbers, which the full model reads too where there are no column names."""
        other = self._of_native(numbers if self.kind is None else self.native, numbers)
        other.row_numbers, other._row_keys = self.row_numbers, self._row_keys
        return other

    def for_fit(self, numbers: Any) -> "Table":
        """The table with its checked numbers, of which a fit knows the rows by their places."""
        table = self.with_numbers(numbers)
        table._row_keys = None
        return table

    def __len__(self) -> int:
        return int(np.shape(self.native)[0])

    # -- some rows, some columns -------------------------------------------------------------------

    def take(self, rows: Ints) -> "Table":
        """Some of the rows, which keep their numbers; without keys they are known by their new places."""
        numbers = None if self.numbers is None else self.numbers[rows]
        native = numbers if self.native is self.numbers else self.native_rows(rows)
        other = self._of_native(native, numbers)
        other.row_numbers = self.numbers_of(rows)
        other._row_keys = None if self._row_keys is None else self.keys(rows)
        return other

    def with_cells_of(self, rows: Ints) -> "Table":
        """Rows whose cells are those of other rows, one for each column; shape (n_new_rows, n_columns)."""
        numbers, places = self.numbers, range(rows.shape[1])
        numbers = np.column_stack([numbers[rows[:, place], place] for place in places])
        native = numbers
        if self.kind == "pandas":
            columns = [self.native.iloc[:, place].take(rows[:, place]) for place in places]
            columns = [column.reset_index(drop=True) for column in columns]
            native = type(self.native)(dict(enumerate(columns)))
            native.columns = self.native.columns
        elif self.kind == "polars":
            native = type(self.native)([self.native.to_series(place)[rows[:, place]] for place in places])
        elif self.native is not self.numbers:
            native = np.take_along_axis(np.asarray(self.native), rows, axis=0)
        other = self._of_native(native, numbers)
        other.row_numbers = self.numbers_of(np.arange(len(self)))[np.arange(len(rows)) % len(self)]
        return other

    def with_columns(self, columns: Ints | Sequence[int]) -> "Table":
        """All rows with some of the columns."""
        numbers = None if self.numbers is None else self.numbers[:, columns]
        other = self._of_native(_columns(self.native, self.kind, columns), numbers)
        other.row_numbers, other._row_keys = self.row_numbers, self._row_keys
        return other

    def native_rows(self, rows: Ints) -> Any:
        """Some rows as the full model reads them: a copy, because a model may write into what it is fitted on."""
        # ``take`` of pandas copies: after ``iloc`` a model that writes into its table would be warned.
        return self.native.take(rows, axis=0) if self.kind == "pandas" else self.native[rows]

    def part(self, rows: Ints, columns: Ints | None = None) -> "Table":
        """Some rows and columns for the full model, without numbers; None is every column."""
        native = self.native if self._is_everyone(rows) else self.native_rows(rows)
        return self._of_native(native if columns is None else _columns(native, self.kind, columns))

    def in_numbers(self) -> "Table":
        """The same rows, of which the full model reads the numbers too."""
        return Table(self.numbers, None, self.row_numbers, self._row_keys)

    def in_order_of(self, names: Sequence[str] | None) -> "Table":
        """The table with its columns in the order of a fit, where names allow it.

        Any other difference is refused: a missing column cannot be guessed, and an extra one may be the missing one
        under another name. Where only one side has names, a warning is given, as in scikit-learn.

        Parameters
        ----------
        names : sequence of str or None
            Names of the columns of the fit; None where it saw none.
        """
        columns = self.feature_names
        if columns is None or names is None:
            if names is not None:
                _warn("X does not have valid feature names, but the system was fitted with feature names")
            elif columns is not None:
                _warn("X has feature names, but the system was fitted without feature names")
            return self
        places = places_of_fit(columns, names, "X")
        return self if places is None else self.with_columns(places)

    # -- a reader ----------------------------------------------------------------------------------

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Numbers of some cells, ``(len(rows), len(columns))``, dense or CSR."""
        numbers, everyone = self.numbers, self._is_everyone(rows)
        if isinstance(numbers, np.ndarray):
            return numbers.take(columns, axis=1) if everyone else numbers[np.ix_(rows, columns)]
        return (numbers if everyone else numbers[rows])[:, columns]

    def numbers_of(self, rows: Ints) -> Ints:
        """Numbers of some rows in the user's table."""
        return rows if self.row_numbers is None else self.row_numbers[rows]

    def keys(self, rows: Ints) -> Words:
        """Keys of some rows as words."""
        if self._key_words is None:
            keys = range(len(self)) if self._row_keys is None else self._row_keys
            self._key_words = key_words(keys)
        return self._key_words[rows]

    def _is_everyone(self, rows: Ints) -> bool:
        n_samples = self.n_samples
        return len(rows) == n_samples and (n_samples == 1 or np.array_equal(rows, np.arange(n_samples)))

    # -- columns -----------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> list[Any]:
        """Names of the columns of a data frame, else their numbers."""
        if self.kind is None:
            return list(range(np.shape(self.native)[1]))
        return self.native.columns.tolist() if self.kind == "pandas" else self.native.columns

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns, as scikit-learn takes them: None unless all of them are text."""
        if self.kind is None or not self.columns:
            return None
        types = {type(name) for name in self.columns}
        if str in types and len(types) > 1:
            kinds = sorted(kind.__qualname__ for kind in types)
            raise InvalidInputError(
                f"the columns of X must have names that tell them apart: feature names are only supported if all input "
                f"features have string names; got names of the types {kinds}. Write X.columns = X.columns.astype(str)."
            )
        return self.columns if types == {str} else None

    @cached_property
    def types(self) -> list[str]:
        """Type of each column as its library names it, in small letters; empty where there are no names."""
        if self.kind is None:
            return [""] * len(self.columns)
        return [str(dtype).lower() for dtype in self.native.dtypes]

    def column(self, place: int) -> Any:
        """A column: a Series of a data frame, else an array."""
        if self.kind is None:
            return self.native[:, place]
        return self.native.iloc[:, place] if self.kind == "pandas" else self.native.to_series(place)

    def values(self, place: int) -> list[Any]:
        """Cells of a column as Python objects, unchanged."""
        column = self.column(place)
        return column.tolist() if self.kind is None else column.to_list()

    def cells(self, place: int) -> Labels:
        """Cells of a column as an array of objects, unchanged."""
        values = self.values(place)
        cells = np.empty(len(values), dtype=object)
        cells[:] = values
        return cells

    def numeric(self, place: int) -> Floats | None:
        """A column of numbers or truth values as float64; None where it holds anything else."""
        column = self.column(place)
        if self.kind == "polars":
            is_plain = column.dtype.is_numeric() or str(column.dtype) == "Boolean"
            return np.array(column.cast(float).to_numpy(), dtype=np.float64) if is_plain else None
        if getattr(column.dtype, "kind", "O") not in "biuf":
            return None
        if self.kind == "pandas":
            return column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        return np.array(column, dtype=np.float64)

    def as_objects(self) -> "Table":
        """A list of rows, or an array, as an array of objects; a data frame is unchanged."""
        return self if self.kind else self._of_native(np.asarray(self.native, dtype=object))

    # -- the whole as numbers ----------------------------------------------------------------------

    def as_numbers(self, name: str = "X") -> Any:
        """The table as float64, dense or CSR; errors name the column, and masked cells are missing."""
        X = self.native
        dtypes = X.dtypes if self.kind else [getattr(X, "dtype", None)]
        kinds = {getattr(dtype, "kind", None) for dtype in dtypes}
        if kinds & set("cmM"):
            way_out = " Give its parts apart." if "c" in kinds else ""
            raise InvalidInputError(f"{name} must hold real numbers.{self.describe_bad_column()}{way_out}")
        if sparse.issparse(X):
            return sparse.csr_array(X, dtype=np.float64)
        try:
            if self.kind == "pandas" and "O" not in kinds:
                numbers = X.to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                cells = X.to_numpy(dtype=object) if self.kind == "pandas" else unmasked(X)
                numbers = np.asarray(_without_na(cells), dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"{name} must hold numbers: {error}.{self.describe_bad_column()}"
            ) from error
        if numbers.ndim != 2:
            raise InvalidInputError(f"{name} must be a table of rows and columns; got shape {numbers.shape}.")
        return numbers

    def describe_bad_column(self, *, allow_missing: bool = True) -> str:
        """A sentence that names the first column that is not made of (finite) numbers; empty if there is none."""
        X = self.native
        try:
            is_table = not sparse.issparse(X) and np.ndim(X) == 2
        except ValueError:
            return " Its rows have different lengths."
        if not is_table:
            return ""
        for number, name in enumerate(self.columns):
            column = np.asarray(X[name] if self.kind else [row[number] for row in X])
            if column.dtype.kind == "c":
                return f" Column {name!r} holds complex numbers."
            if column.dtype.kind in "mM":
                return f" Column {name!r} holds dates or times; turn them into numbers (days since some day, say)."
            try:
                values = column.astype(np.float64)
            except (TypeError, ValueError, OverflowError):
                return f" Column {name!r} holds {self._contents(name, column)}; encode it as numbers or leave it out."
            if np.isinf(values).any():
                return f" Column {name!r} holds an infinite value in row {int(np.isinf(values).argmax())}."
            if not allow_missing and np.isnan(values).any():
                return f" Column {name!r} is missing (NaN) in row {int(np.isnan(values).argmax())}; impute it first."
        return ""

    def _contents(self, name: Any, column: Any) -> str:
        """Contents of a column without numbers, as its library names them."""
        declared = str(getattr(self.native[name], "dtype", "")).lower() if self.kind else ""
        if declared.startswith(("category", "categorical", "enum")):
            return "categories"
        texts = [value for value in column.tolist() if isinstance(value, str)]
        return f"text such as {texts[0]!r}" if texts else f"{column.dtype.name} values"

    # -- the same with other cells -----------------------------------------------------------------

    def with_frame_of(self, numbers: Floats) -> "Table":
        """Numbers under the names of the columns, in a data frame of the same library; an array without names."""
        return self._of_native(
            numbers if self.kind is None else plain_frame(self.kind, self.columns, numbers)
        )

    def with_values(self, kind: str, changed: Mapping[str, Any]) -> Any:
        """A data frame of a library with other values in some columns."""
        if self.kind != kind:
            names = self.columns
            return frame_of(kind, {name: changed.get(name, self.native[name].to_list()) for name in names})
        if kind == "polars":
            import polars as pl

            return self.native.with_columns([pl.Series(name, values) for name, values in changed.items()])
        other = self.native.copy(deep=False)
        for name, values in changed.items():
            # Without the index of its rows, which is not that of the table.
            other[name] = getattr(values, "array", values)
        return other

    def with_zeros(self, columns: Ints) -> "Table":
        """A copy with zeros in some columns."""
        if self.kind == "polars":
            zeros = dict.fromkeys([self.columns[column] for column in columns], 0.0)
            return self._of_native(self.native.with_columns(**zeros))
        filled = self.native.copy()
        if self.kind == "pandas":  # by number, because names may be there twice
            for column in columns:
                filled.isetitem(int(column), 0.0)
        else:
            filled[:, columns] = 0.0
        return self._of_native(filled)

    def with_repeated(self, columns: Sequence[int], row_of: Callable[[Any], int]) -> "Table":
        """A copy in which all rows of some columns hold the cell of one row, ``row_of(values)``."""
        if self.kind is None:
            other = self.native.copy()
            for column in columns:
                other[:, column] = self.native[row_of(self.native[:, column]), column]
            return self._of_native(other)
        frame = nw.from_native(self.native, eager_only=True)
        cells = [frame[:, column][[row_of(frame[:, column].to_numpy())] * len(self)] for column in columns]
        return self._of_native(frame.with_columns(*cells).to_native())

    # -- inside ------------------------------------------------------------------------------------

    def _of_native(self, native: Any, numbers: Any = None) -> "Table":
        """Another table of the same library."""
        other = Table(numbers)
        other.native, other.kind = native, self.kind
        return other

    def _with_keys(self, row_key: Any, features: Sequence[str] | None) -> Self:
        """The table with given keys, or without the column that holds them."""
        if not isinstance(row_key, str):
            n_keys, n_rows = len(row_key), len(self)
            if n_keys != n_rows:
                raise InvalidInputError(
                    f"row_key must have a key for each of the {n_rows} rows of X; got {n_keys}."
                )
            self._row_keys = row_key
            return self
        X = self.native
        if self.kind is None:
            raise InvalidInputError(
                f"row_key={row_key!r} names a column, and X is {type(X).__name__} without names. Give a data frame, or "
                f"the keys themselves."
            )
        if row_key not in X.columns:
            raise InvalidInputError(
                f"row_key={row_key!r} must be a column of X; it has {', '.join(map(str, X.columns[:20]))}."
            )
        self._row_keys = X[row_key].to_list()
        if features is None or row_key not in features:
            self.native = X.drop(columns=row_key) if self.kind == "pandas" else X.drop(row_key)
        return self

    def _refuse_series(self) -> None:
        """Refuse a Series, a row or column taken out of its data frame, where a table is expected."""
        if len(getattr(self.native, "shape", ())) == 1:
            row = "X.iloc[[0]]" if self.kind == "pandas" else "X[[0]]"
            raise InvalidInputError(
                f"Expected 2D array, got 1D array instead: X is a {self.kind} Series of {len(self)} values. Give a "
                f"data frame, also for a single row: `{row}` is the first row of X as one, and `X[['name']]` a single "
                f"column."
            )


def as_array(values: Any) -> Any:
    """Values that a source answers with, an array, Series or data frame, as an array."""
    return np.asarray(values.to_numpy() if _library_of(values) else values)


def plain_frame(kind: str, names: Sequence[str], numbers: Any) -> Any:
    """Numbers as a data frame."""
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(numbers, schema=list(names), orient="row")
    import pandas as pd

    return pd.DataFrame(numbers, columns=list(names))


def frame_of(kind: str, columns: Mapping[str, Any]) -> Any:
    """Columns by name as a data frame."""
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(columns)
    import pandas as pd

    return pd.DataFrame(columns)


def joined_frames(kind: str, frames: Sequence[Any], names: list[str]) -> Any:
    """Data frames of a library as one, with its columns in the order of some names."""
    if kind == "polars":
        import polars as pl

        return pl.concat(frames, how="horizontal").select(names)
    import pandas as pd

    return pd.concat(frames, axis=1)[names]


def _library_of(table: Any) -> str | None:
    """Library of a data frame or Series, ``"pandas"`` or ``"polars"``; None for anything else."""
    # Subclasses count too.
    for kind in type(table).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in ("pandas", "polars"):
            return package
    return None


def _columns(native: Any, kind: str | None, columns: Ints | Sequence[int]) -> Any:
    if kind == "pandas":
        return native.take(columns, axis=1)
    return native[:, np.asarray(columns).tolist() if kind == "polars" else columns]


def _without_na(X: Any) -> Any:
    """Cells with NaN where pandas has a value of its own for what is missing."""
    if not isinstance(X, np.ndarray) or X.dtype != object:
        return X
    is_na = np.array([type(cell).__name__ == "NAType" for cell in X.flat], dtype=bool).reshape(X.shape)
    return np.where(is_na, np.nan, X) if is_na.any() else X


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)
