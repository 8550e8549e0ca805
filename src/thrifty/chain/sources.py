"""The one place where features are read: from a table at hand, or bought from a source.

A system asks its reader for blocks, rows x columns. A ``TableReader`` slices a table that is there anyway.
A ``PurchaseReader`` asks a *source*, and keeps what it got, so that no cell is ever asked for
twice and no cell is asked for before a row's route needs it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import _safe_indexing

from thrifty.arrays import Bools, Floats, Ints, unmasked
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import PriceList

__all__ = [
    "FeatureSource",
    "PurchaseReader",
    "Reader",
    "TableReader",
    "as_numbers",
    "describe_bad_column",
    "kind_of_table",
    "table_like",
]


@runtime_checkable
class FeatureSource(Protocol):
    """Something that can be asked for features: a database, a lab, a paid service.

    It may also say what its columns are called, in a list of text named ``columns``. They are then compared with those
    of the fit, and asked for by the numbers that they have in that list.
    """

    def __len__(self) -> int:
        """Return the number of rows that can be asked about."""

    def fetch(self, rows: Ints, columns: Ints) -> ArrayLike:
        """Values of ``columns`` for ``rows``, shape ``(len(rows), len(columns))``."""


class Reader(Protocol):
    """Where a system reads its features from."""

    is_at_hand: bool
    """Whether any cell may be read, at no price."""

    @property
    def n_samples(self) -> int:
        """Rows in the batch."""

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Numbers, ``(len(rows), len(columns))``, dense or CSR."""

    def table(self, rows: Ints, columns: Ints | None = None) -> Any:
        """Rows in the form the full model was fitted on; None is every column."""

    def numbers_of(self, rows: Ints) -> Ints:
        """Numbers by which the user knows these rows."""

    def identity(self, rows: Ints, held: Ints | None) -> Any:
        """What chance is drawn from: the place of each row in the batch, and what it holds; None is the whole row."""


class TableReader:
    """Reads from a table that is at hand; ``numbers`` is its numeric form, ``raw`` what the full model reads.

    Where the table is a part of another, ``row_numbers`` are the numbers that its rows have there.
    """

    is_at_hand = True

    def __init__(self, numbers: Any, raw: Any, row_numbers: Ints | None = None) -> None:
        self._numbers = numbers
        self._raw = raw
        self._row_numbers = row_numbers
        self.n_samples = int(numbers.shape[0])

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

    def identity(self, rows: Ints, held: Ints | None) -> Any:
        """The place of each row in the table and what it holds, or the whole row."""
        return self._numbers[rows] if held is None else _identity(rows, self.block(rows, held))


@dataclass(frozen=True)
class Delivery:
    """What a source answered to one question: values of some columns, for some rows, both in rising order.

    ``raw`` is the answer as it came, where columns hold text or categories.
    """

    rows: Ints
    columns: Ints
    values: Floats
    raw: Any


class PurchaseReader:
    """Buys from a source what a route needs, when it needs it, once.

    A purchase delivers all columns of its group, so the source is asked for all of them together. Memory is taken for
    what was delivered, not for the whole table.

    Parameters
    ----------
    source : FeatureSource
        What is asked.
    price_list : PriceList
        Which columns come in one purchase.
    wrap : callable
        Turns an array and the numbers of its columns into the kind of table the full model was fitted on.
    names : sequence of str, optional
        Names of the columns, by which a data frame is read that a source answers with.
    encode : callable, optional
        Turns an answer and the numbers of its columns into numbers, where columns hold text or categories; the full
        model is then given what the source answered.
    """

    is_at_hand = False

    def __init__(
        self,
        source: FeatureSource,
        price_list: PriceList,
        wrap: Callable[[Any, Ints], Any],
        names: Sequence[str] | None = None,
        encode: Callable[[Any, Ints], Floats] | None = None,
    ) -> None:
        if not isinstance(source, FeatureSource):
            raise InvalidInputError(
                f"a source must have __len__ and fetch(rows, columns); got {type(source).__name__}. "
                f"For a table that is at hand use predict."
            )
        self._source = source
        self._group_of = price_list.group_of
        self._wrap = wrap
        self._names = names
        self._encode = encode
        self._deliveries: list[Delivery] = []
        self.n_samples = len(source)

    def block(self, rows: Ints, columns: Ints) -> Any:
        """Buy what is lacking of these cells, then return them."""
        if len(rows) and len(columns):
            self._buy(rows, np.flatnonzero(np.isin(self._group_of, self._group_of[columns])))
        return self._delivered(rows, columns)[0]

    def table(self, rows: Ints, columns: Ints | None = None) -> Any:
        """Buy what is lacking of these columns and return them as the kind of table the full model reads."""
        columns = np.arange(len(self._group_of)) if columns is None else columns
        numbers = self.block(rows, columns)
        if self._encode is None:
            return self._wrap(numbers, columns)
        raw = np.full(numbers.shape, None, dtype=object)
        for delivery, cells, there in self._found(rows, columns):
            raw[cells] = delivery.raw[there]
        return self._wrap(raw, columns)

    def numbers_of(self, rows: Ints) -> Ints:
        """Places in the source."""
        return rows

    def identity(self, rows: Ints, held: Ints | None) -> Any:
        """The place of each row in the source and what it holds, or all that was bought of it so far."""
        if held is None:
            return _identity(rows, self._delivered(rows, np.arange(len(self._group_of)))[0])
        return _identity(rows, self.block(rows, held))

    def _delivered(self, rows: Ints, columns: Ints) -> tuple[Floats, Bools]:
        """Values of some cells, NaN where nothing was bought, and which were bought."""
        values = np.full((len(rows), len(columns)), np.nan)
        bought = np.zeros(values.shape, dtype=bool)
        for delivery, cells, there in self._found(rows, columns):
            values[cells] = delivery.values[there]
            bought[cells] = True
        return values, bought

    def _found(self, rows: Ints, columns: Ints) -> Iterator[tuple[Delivery, Any, Any]]:
        """Deliveries that hold some of these cells: which of them, and where they are in the delivery."""
        for delivery in self._deliveries:
            row, row_there = _places(delivery.rows, rows)
            column, column_there = _places(delivery.columns, columns)
            if row.size and column.size:
                yield delivery, np.ix_(row, column), np.ix_(row_there, column_there)

    def _buy(self, rows: Ints, columns: Ints) -> None:
        lacking = ~self._delivered(rows, columns)[1]
        if (lacking == lacking[0]).all():  # in a chain always, and cheaper than to sort the rows
            patterns, pattern_of = lacking[:1], np.zeros(len(rows), dtype=np.intp)
        else:
            patterns, pattern_of = np.unique(lacking, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            if pattern.any():
                self._fetch(rows[pattern_of.reshape(-1) == number], columns[pattern])

    def _fetch(self, rows: Ints, columns: Ints) -> None:
        # Copies: a source may use the arrays that it is given as it likes, and the one that it answers with again.
        answer = self._source.fetch(rows.copy(), columns.copy())
        answer, raw = self._in_order(answer, columns), None
        if self._encode is None:
            numbers = as_numbers(answer, "what a source answers")
        else:
            numbers, raw = self._encode(answer, columns), np.array(answer, dtype=object)
        values = numbers.toarray() if sparse.issparse(numbers) else np.array(numbers)
        if values.shape != (len(rows), len(columns)):
            raise InvalidInputError(
                f"the source was asked for {len(rows)} rows of {len(columns)} features and must answer with an array "
                f"of that shape; got {values.shape}."
            )
        infinite = np.argwhere(np.isinf(values))
        if len(infinite):
            row, column = infinite[0]
            raise InvalidInputError(
                f"the source must answer with finite numbers; got {values[row, column]} for row {rows[row]} of "
                f"{self._name(columns[column])}. Where a value is missing, answer with NaN."
            )
        rising = np.argsort(rows, kind="stable")
        self._deliveries.append(
            Delivery(rows[rising], columns, values[rising], None if raw is None else raw[rising])
        )

    def _in_order(self, answer: Any, columns: Ints) -> Any:
        """The answer with its columns in the order asked for, if they have names that can tell."""
        given = list(answer.columns) if kind_of_table(answer) else []
        if self._names is None or not given or not all(isinstance(name, str) for name in given):
            return answer
        asked = [self._names[column] for column in columns]
        if sorted(given) != sorted(asked):
            raise InvalidInputError(
                f"the source was asked for the columns {asked[:5]} and answered with a data frame of the columns "
                f"{given[:5]}; both must be the same. Answer with those columns, or with an array in the order asked "
                f"for."
            )
        return answer[asked]

    def _name(self, column: int) -> str:
        return f"column {column}" if self._names is None else f"column {self._names[column]!r}"


def _places(known: Ints, wanted: Ints) -> tuple[Ints, Ints]:
    """Places in ``wanted`` of what is among ``known``, which rises, and the places that it has there."""
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found = np.flatnonzero(known[place] == wanted)
    return found, place[found]


def _identity(rows: Ints, block: Any) -> Any:
    place = rows[:, None].astype(np.float64)
    return (
        sparse.csr_array(sparse.hstack([place, block]))
        if sparse.issparse(block)
        else np.hstack([place, block])
    )


def table_like(template: str | None, names: Sequence[str] | None) -> Callable[[Any, Ints], Any]:
    """Return how to turn an array and the numbers of its columns back into the kind of table of a fit."""
    if template is None or names is None:
        return lambda rows, columns: rows  # noqa: ARG005
    if template == "polars":
        import polars as pl

        return lambda rows, columns: pl.DataFrame(
            rows.tolist() if rows.dtype == object else rows,
            schema=[names[column] for column in columns],
            orient="row",
        )
    import pandas as pd

    return lambda rows, columns: pd.DataFrame(
        rows, columns=[names[column] for column in columns]
    ).infer_objects()


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
        if kind_of_table(X) == "pandas":
            numbers = X.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            numbers = np.asarray(unmasked(X), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name} must hold numbers: {error}.{describe_bad_column(X)}") from error
    if numbers.ndim != 2:
        raise InvalidInputError(f"{name} must be a table of rows and columns; got shape {numbers.shape}.")
    return numbers


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
