"""Tables of every kind: arrays, sparse matrices and data frames, by name and as numbers.

Data frames of pandas and polars are kept as they are, because the full model is given them, and read by their own
methods: through narwhals, a column of a request of one row takes five times as long. Other data frames are converted by
narwhals.

A table with the columns of a fit in another order is put into that order, where names allow it. Any other difference is
refused: a missing column cannot be guessed, and an extra one may be the missing one under another name. Where only one
side has names, a warning is given, as in scikit-learn.
"""

import warnings
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names

from thrifty.arrays import Ints, unmasked
from thrifty.errors import InvalidInputError, InvalidParameterError


def kind_of_table(table: Any) -> str | None:
    """Library of a data frame, ``"pandas"`` or ``"polars"``; None for a table without column names."""
    # Subclasses count too.
    packages = (kind.__module__.split(".")[0] for kind in type(table).__mro__)
    return next((package for package in packages if package in ("pandas", "polars")), None)


def as_known_table(X: Any) -> Any:
    """A data frame of another library that narwhals reads, such as a pyarrow table, as one of pandas.

    Arrays, sparse matrices, lists and data frames of pandas and polars come back as they are.
    """
    if isinstance(X, np.ndarray | list) or sparse.issparse(X) or kind_of_table(X) is not None:
        return X
    if not nw.dependencies.is_into_dataframe(X):
        return X
    return nw.from_native(X, eager_only=True).to_pandas()


def column_at(X: Any, place: int) -> Any:
    """A column of a data frame."""
    return X.iloc[:, place] if kind_of_table(X) == "pandas" else X.to_series(place)


def declared_types(X: Any) -> list[str]:
    """Type of each column of a data frame, in small letters."""
    return [str(one).lower() for one in X.dtypes]


def listed(names: Iterable[Any], max_names: int = 5) -> str:
    """First few names, joined for a message."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


def refuse_unknown(what: str, names: Iterable[str], columns: Iterable[Any]) -> None:
    """Refuse names that are not columns of a table; ``what`` is the parameter or file that names them."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise InvalidParameterError(
            what, f"names {listed(unknown)}, not a column of the table, which has {listed(columns)}."
        )


def is_number(value: Any) -> bool:
    """Whether a value is a number, or text that can be read as one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def refuse_series(X: Any) -> None:
    """Refuse a Series, a row or column taken out of its data frame, where a table is expected."""
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
    """Places of the columns of a fit among those given; None if the order is the same."""
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
    wrong = "; it ".join(f"{what_about} {listed(some)}" for what_about, some in found.items() if some)
    raise InvalidInputError(
        f"{what} must have the columns of the fit, {listed(names)}; it {wrong or f'has {len(given)} columns'}. Rename "
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
        f"the columns are {listed(names)}"
        if names is not None
        else (f"the fit knew no names, so columns are numbers from 0 to {n_features - 1}")
    )
    hint = f" did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{what} names {column!r}, not a column of the fit;{hint or ' ' + known + '.'}")


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)


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
    X = as_known_table(X)
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
    """Table as float64, dense or CSR; errors name the column, and masked cells are missing."""
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
    """Type of a column without numbers, as its library names it."""
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
