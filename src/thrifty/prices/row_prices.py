"""Prices that differ by row: where the price of a purchase is found, and what is a price at all.

A free column holds the price, or a function makes it of the columns that are free. Either is looked at before anything
is bought, so that nothing is bought at a price that is not known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError

__all__ = [
    "LEAST_PRICE",
    "MOST_PRICE",
    "ForgottenFunction",
    "RowPrices",
    "RowsOfFit",
    "free_columns",
    "is_price",
]

LEAST_PRICE, MOST_PRICE = 1e-100, 1e100
"""Bounds of a price that is not zero: products and ratios of two prices within them are numbers, neither 0 nor inf."""

PriceFunction = Callable[[Any], Any]
Reads = Callable[[Ints], Any]


def is_price(amount: Any) -> Any:
    """Whether each amount is a price that can be reckoned with."""
    return (amount == 0) | ((amount >= LEAST_PRICE) & (amount <= MOST_PRICE))


def free_columns(prices: Floats, group_of: Ints, priced_by_row: Ints) -> Ints:
    """Columns that cost no row anything: what a function of prices is given."""
    return np.flatnonzero((prices[group_of] == 0) & ~np.isin(group_of, priced_by_row))


@dataclass(frozen=True)
class ForgottenFunction:
    """Stands for a function of prices that a file does not keep, and says so when it is asked.

    Attributes
    ----------
    column : str or int
        What the function priced.
    """

    column: Any

    def __call__(self, rows: Any) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise InvalidInputError(
            f"the price of column {self.column!r} is told by a function, and files keep no functions. Give it again, "
            f"with_prices({{{self.column!r}: function}}). Commands and the gateway read prices from a column of the "
            f"table: fit with by_row={{{self.column!r}: column}} for them."
        )


@dataclass(frozen=True)
class RowPrices:
    """Purchases whose price differs by row, and where it is found.

    Attributes
    ----------
    purchases : ndarray of shape (n_row_prices,)
        Each purchase, rising.
    reads : tuple of ndarray of int
        For each of them, the free columns that are looked at: the one that holds the price, or all that its function
        is given.
    least : ndarray of shape (n_row_prices,)
        What a row must pay at least: the saving of the discount that the purchase shares, or 0.
    functions : tuple of callable or None
        What makes a price of the columns that are read; None where the one column holds it.
    """

    purchases: Ints
    reads: tuple[Ints, ...]
    least: Floats
    functions: tuple[PriceFunction | None, ...]

    def __len__(self) -> int:
        return len(self.purchases)

    @cached_property
    def columns(self) -> Ints:
        """Every column that is looked at, rising."""
        return np.unique(np.concatenate(self.reads))

    @property
    def told_by(self) -> Ints:
        """The column that holds each price; -1 where a function tells it."""
        pairs = zip(self.reads, self.functions, strict=True)
        return np.array([-1 if function else int(read[0]) for read, function in pairs], dtype=np.intp)

    def is_same(self, other: "RowPrices | None") -> bool:
        """Whether another finds the same prices in the same columns, or by the same functions."""
        return (
            other is not None
            and np.array_equal(self.purchases, other.purchases)
            and np.array_equal(self.told_by, other.told_by)
            and self.functions == other.functions
        )

    def take(self, places: Sequence[int] | Ints) -> "RowPrices":
        """Some of the purchases."""
        some = [int(place) for place in places]
        reads, functions = tuple(self.reads[one] for one in some), tuple(self.functions[one] for one in some)
        return RowPrices(self.purchases[some], reads, self.least[some], functions)

    def amounts(self, n_rows: int, numbers: Reads, table: Reads) -> Floats:
        """What some rows pay for each of the purchases, unchecked, shape (n_rows, n_row_prices).

        Parameters
        ----------
        n_rows : int
            Number of rows.
        numbers, table : callable
            Some columns of these rows, as numbers and as the full model reads them.
        """
        found = np.empty((n_rows, len(self)))
        for place, (read, function) in enumerate(zip(self.reads, self.functions, strict=True)):
            if function is None:
                block = numbers(read)
                found[:, place] = (block.toarray() if sparse.issparse(block) else block)[:, 0]
            elif n_rows:
                found[:, place] = _told(function, table(read), n_rows)
        return found

    def is_priced(self, amounts: Floats) -> Bools:
        """Which rows have a price for every one of these purchases, from their amounts."""
        priced: Bools = np.all(is_price(amounts) & (amounts >= self.least), axis=1)
        return priced

    def refusal(self, amounts: Floats, row: int, names: Sequence[str] | None) -> InvalidInputError:
        """What to say about a row without a price: its amounts, its number, and names of the columns."""
        places = range(len(amounts))
        place = next(one for one in places if not self.take([one]).is_priced(amounts[None, [one]])[0])
        amount, column = float(amounts[place]), int(self.told_by[place])
        called = f"column {column}" if names is None else f"column {str(names[column])!r}"
        rule, least = "holds prices and must have one in every row that pays it", float(self.least[place])
        if column < 0:
            called, rule = _name_of(self.functions[place]), "tells prices and must tell one of every row"
        if 0.0 <= amount < least:
            return InvalidInputError(
                f"{called} {rule}; row {row} has {amount:g}, and a discount saves {least:g}: no price may fall below "
                f"0. Lower the saving, or raise the price."
            )
        return InvalidInputError(
            f"{called} {rule}, 0 or a number between {LEAST_PRICE:g} and {MOST_PRICE:g}; row {row} has {amount:g}. "
            f"Fill it in; 0 is a purchase that costs this row nothing."
        )

    def checked(self, amounts: Floats, rows: Ints, names: Sequence[str] | None) -> Floats:
        """The amounts, shape (n_rows, n_row_prices), if each of the rows so numbered has its prices."""
        is_priced = self.is_priced(amounts)
        if not is_priced.all():
            first = int(is_priced.argmin())
            raise self.refusal(amounts[first], int(rows[first]), names)
        return amounts


@dataclass(frozen=True, eq=False)
class RowsOfFit:
    """The rows of a fit, where prices that differ by row are found.

    Attributes
    ----------
    X : array or CSR of shape (n_rows, n_features)
        The rows as numbers.
    weight, numbers : ndarray of shape (n_rows,), optional
        Their weights, and the numbers by which the user knows them; None is one each, counted from 0.
    table : table of shape (n_rows, n_features), optional
        The rows as they came, which functions of prices are given; None is ``X``.
    """

    X: Any
    weight: Floats | None = None
    numbers: Ints | None = None
    table: Any = None

    def amounts(self, by_row: RowPrices, names: Sequence[str] | None) -> Floats:
        """What each row pays for the purchases whose price differs by row, or a refusal."""
        n_rows, table = self.X.shape[0], self.X if self.table is None else self.table
        found = by_row.amounts(
            n_rows, lambda columns: self.X[:, columns], lambda columns: _safe_indexing(table, columns, axis=1)
        )
        return by_row.checked(found, np.arange(n_rows) if self.numbers is None else self.numbers, names)


def _told(function: PriceFunction, rows: Any, n_rows: int) -> Floats:
    """What a function of somebody else says of some rows, if it is a number for each of them."""
    said = function(rows)
    try:
        amounts = np.asarray(said, dtype=np.float64)
    except (TypeError, ValueError):
        amounts = np.empty((0, 0))
    if amounts.shape != (n_rows,):
        raise InvalidInputError(
            f"{_name_of(function)} tells prices; it was given {n_rows} rows and must answer with as many numbers; got "
            f"{type(said).__name__} of shape {np.shape(said)}."
        )
    return amounts


def _name_of(function: Any) -> str:
    return f"the function {getattr(function, '__name__', type(function).__name__)!r}"
