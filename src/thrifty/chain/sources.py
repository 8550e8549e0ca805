"""The one place where features are read: from a table at hand, or bought from a source.

A system asks its reader for blocks, rows x columns. A ``TableReader`` slices a table that is there anyway. A *source*
is asked for what a row's route needs, when it needs it, by the reader of ``thrifty.chain.purchase_reader``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import _safe_indexing

from thrifty.arrays import Bools, Floats, Ints, Words, unmasked
from thrifty.chain.ledger import Ledger
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import PriceList
from thrifty.rows import key_words

__all__ = [
    "Delivery",
    "FeatureSource",
    "Reader",
    "TableReader",
    "amounts_of",
    "as_numbers",
    "describe_bad_column",
    "kind_of_table",
    "plain_frame",
]


@dataclass(frozen=True)
class Delivery:
    """What a source answers that can tell more than values.

    Attributes
    ----------
    values : array-like of shape (n_rows, n_columns)
        What was asked for; NaN is a value that is missing, and is billed like any other.
    failed : dict of int to str
        Rows that could not be delivered, by the numbers that they were asked for with, and why. Their values are
        ignored, and they are not billed.
    paid : array-like of shape (n_rows, n_columns), bool, optional
        Cells that cost something; None is all of them. Those that a source had in stock cost nothing.
    """

    values: Any
    failed: Mapping[int, str] = field(default_factory=dict)
    paid: Any = None


@runtime_checkable
class FeatureSource(Protocol):
    """Something that can be asked for features: a database, a lab, a paid service.

    The name of the second parameter of ``fetch`` says what it is given: ``columns`` are numbers of columns, ``names``
    a list of their names, and ``group`` a tuple of the names that come in one purchase; the source is then asked for
    one purchase at a time. Where the fit knew no names, all of them are numbers.

    A source that is asked by number may also say what its columns are called, in a list of text named ``columns``. They
    are then compared with those of the fit, and asked for by the numbers that they have in that list.
    """

    def __len__(self) -> int:
        """Return the number of rows that can be asked about."""

    def fetch(self, rows: Ints, columns: Ints) -> ArrayLike | Delivery:
        """Values of ``columns`` for ``rows``, shape ``(len(rows), len(columns))``."""


class Reader(Protocol):
    """Where a system reads its features from."""

    is_at_hand: bool
    """Whether any cell may be read, at no price."""

    ledger: Ledger | None
    """Keeps what fails and lets the other rows go on; None lets every error pass."""

    visited: dict[int, Any] | None
    """What stages said before, by their identity, where one row walks again and again; None remembers nothing."""

    @property
    def n_samples(self) -> int:
        """Rows in the batch."""

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Numbers, ``(len(rows), len(columns))``, dense or CSR."""

    def table(self, rows: Ints, columns: Ints | None = None) -> Any:
        """Rows in the form the full model was fitted on; None is every column."""

    def numbers_of(self, rows: Ints) -> Ints:
        """Numbers by which the user knows these rows."""

    def keys(self, rows: Ints) -> Words:
        """Keys of these rows as words, which decide between two operating points."""


class TableReader:
    """Reads from a table that is at hand; ``numbers`` is its numeric form, ``raw`` what the full model reads.

    Where the table is a part of another, ``row_numbers`` are the numbers that its rows have there. ``row_keys`` are the
    keys of the rows; their places in the table, unless given.
    """

    is_at_hand = True
    ledger: Ledger | None = None
    visited: dict[int, Any] | None = None

    def __init__(self, numbers: Any, raw: Any, row_numbers: Ints | None = None, row_keys: Any = None) -> None:
        self._numbers = numbers
        self._raw = raw
        self._row_numbers = row_numbers
        self.n_samples = int(numbers.shape[0])
        # Turned into words only where two operating points are mixed.
        self._row_keys: Any = range(self.n_samples) if row_keys is None else row_keys
        self._key_words: Words | None = None

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Slice of the numeric table."""
        numbers, everyone = self._numbers, self._is_everyone(rows)
        if isinstance(numbers, np.ndarray):
            return numbers.take(columns, axis=1) if everyone else numbers[np.ix_(rows, columns)]
        return (numbers if everyone else numbers[rows])[:, columns]

    def table(self, rows: Ints, columns: Ints | None = None) -> Any:
        """Slice of the raw table."""
        whole = self._raw if self._is_everyone(rows) else _safe_indexing(self._raw, rows)
        return whole if columns is None else _safe_indexing(whole, columns, axis=1)

    def numbers_of(self, rows: Ints) -> Ints:
        """Places in the table, or in the one that it is a part of."""
        return rows if self._row_numbers is None else self._row_numbers[rows]

    def _is_everyone(self, rows: Ints) -> bool:
        n_samples = self.n_samples
        return len(rows) == n_samples and (n_samples == 1 or np.array_equal(rows, np.arange(n_samples)))

    def keys(self, rows: Ints) -> Words:
        """Keys of these rows as words."""
        if self._key_words is None:
            self._key_words = key_words(self._row_keys)
        return self._key_words[rows]


def amounts_of(
    price_list: PriceList, reader: Reader, rows: Ints, used: Bools, names: Sequence[str] | None
) -> Floats | None:
    """What rows pay for the purchases whose price differs by row; None where no price does.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,)
        Positions of the rows in their reader.
    used : ndarray of shape (n_rows, n_features), bool
        Columns that each row buys: a price is looked at, and must be there, where the row makes the purchase.
    names : sequence of str or None
        Names of the columns, for a refusal.
    """
    by_row = price_list.by_row
    if by_row is None:
        return None
    amounts = np.zeros((len(rows), len(by_row)))
    for place, purchase in enumerate(by_row.purchases):
        buys = np.flatnonzero(used[:, price_list.group_of == purchase].any(axis=1))
        if len(buys):
            one, there = by_row.take([place]), rows[buys]
            found = one.amounts(len(there), partial(reader.block, there), partial(reader.table, there))
            amounts[buys, place] = one.checked(found, reader.numbers_of(there), names)[:, 0]
    return amounts


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


def plain_frame(kind: str, names: Sequence[str], numbers: Any) -> Any:
    """Numbers as a data frame."""
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(numbers, schema=list(names), orient="row")
    import pandas as pd

    return pd.DataFrame(numbers, columns=list(names))


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
    """What a column of no numbers holds, in the words of whoever made the table."""
    declared = str(getattr(X[name], "dtype", "")).lower() if kind_of_table(X) else ""
    if declared.startswith(("category", "categorical", "enum")):
        return "categories"
    texts = [value for value in column.tolist() if isinstance(value, str)]
    return f"text such as {texts[0]!r}" if texts else f"{column.dtype.name} values"


def kind_of_table(table: Any) -> str | None:
    """``"pandas"``, ``"polars"`` or None for what has no column names."""
    # A class of somebody's own that is made from theirs is one of them.
    packages = (kind.__module__.split(".")[0] for kind in type(table).__mro__)
    return next((package for package in packages if package in ("pandas", "polars")), None)
