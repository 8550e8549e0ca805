"""What a row pays: the sum over the *distinct* purchases made on its route.

A feature belongs to exactly one purchase (its *group*); a group has one price and delivers all its
columns. Within one route a purchase is paid once, whoever needs it first: the gate, the cheap model
or the full model. A row that reaches the full model pays for everything, plus ``full_cost`` for the call.

Purchases may share a *discount*: blood is drawn once, so that every blood test after the first costs less (Turney,
1995). What a row pays does not depend on the order in which it bought: of its purchases that share a discount, all but
one are cheaper by the saving.

The price of a purchase may differ *by row*: a free column of the table holds it, or a function makes it of the free
columns. What is listed for such a purchase stands for the price of a row that is not known yet, in orders of purchases
and rules; a row pays its own price.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.prices.row_prices import RowPrices

__all__ = ["Discounts", "PriceList", "check_amount"]


@dataclass(frozen=True)
class Discounts:
    """Purchases of which all but the first cost less.

    Attributes
    ----------
    of : ndarray of shape (n_groups,)
        The discount that each purchase shares with others; -1 is none.
    savings : ndarray of shape (n_discounts,)
        By how much every purchase after the first is cheaper.
    """

    of: Ints
    savings: Floats

    def saved(self, bought: Bools) -> Floats:
        """What rows save that made some purchases, a mask of shape (..., n_groups)."""
        saved = np.zeros(bought.shape[:-1])
        for discount, saving in enumerate(self.savings):
            saved += saving * np.maximum(bought[..., self.of == discount].sum(axis=-1) - 1, 0)
        return saved

    def saving_on_next(self, bought: Bools) -> Floats:
        """By how much each purchase would be cheaper for somebody who made some purchases, shape (n_groups,)."""
        has_begun = np.zeros(len(self.savings) + 1, dtype=bool)
        has_begun[self.of[bought]] = True
        has_begun[-1] = False  # where -1, no discount, is noted
        saving: Floats = np.where(has_begun[self.of], np.append(self.savings, 0.0)[self.of], 0.0)
        return saving

    def is_same(self, other: "Discounts | None") -> bool:
        """Whether another has the same discounts."""
        return (
            other is not None
            and np.array_equal(self.of, other.of)
            and np.array_equal(self.savings, other.savings)
        )


@dataclass(frozen=True)
class PriceList:
    """Prices of purchases, the purchase each column belongs to, and the price of one call of the full model.

    Attributes
    ----------
    prices : ndarray of shape (n_groups,)
        Price of each purchase.
    group_of : ndarray of shape (n_features,)
        The purchase that delivers each column.
    full_cost : float
        Extra price of one call of the full model, on top of the features it reads.
    full_columns : ndarray of int, optional
        The columns that the full model reads; None is all of them.
    discounts : Discounts, optional
        Purchases of which all but the first cost less.
    by_row : RowPrices, optional
        Purchases whose price differs by row; ``prices`` has what is listed for them.
    """

    prices: Floats
    group_of: Ints
    full_cost: float = 0.0
    full_columns: Ints | None = None
    discounts: Discounts | None = None
    by_row: RowPrices | None = None

    @property
    def n_features(self) -> int:
        """Number of columns of the table."""
        return len(self.group_of)

    @property
    def read_by_full(self) -> Ints:
        """The columns that the full model reads."""
        return np.arange(self.n_features) if self.full_columns is None else self.full_columns

    @property
    def cost_of_full(self) -> float:
        """What a row pays that is sent straight to the full model: what it reads, and the call."""
        if self.full_columns is None:
            return self.cost_of_everything
        return self.cost_of(self.full_columns) + self.full_cost

    @property
    def cost_of_everything(self) -> float:
        """What a row pays that makes every purchase and reaches the full model."""
        saved = (
            0.0 if self.discounts is None else float(self.discounts.saved(np.ones(len(self.prices), bool)))
        )
        return float(self.prices.sum()) - saved + self.full_cost

    def is_same(self, other: "PriceList") -> bool:
        """Whether another list has the same purchases at the same prices; of those by row, who tells them."""
        if self.by_row is not None or other.by_row is not None:
            if self.by_row is None or not self.by_row.is_same(other.by_row):
                return False
            return self._without_row_prices.is_same(other._without_row_prices)
        return (
            np.array_equal(self.group_of, other.group_of)
            and np.array_equal(self.prices, other.prices)
            and self.full_cost == other.full_cost
            and np.array_equal(self.read_by_full, other.read_by_full)
            and (
                other.discounts is None if self.discounts is None else self.discounts.is_same(other.discounts)
            )
        )

    @cached_property
    def _without_row_prices(self) -> "PriceList":
        """The list in which the purchases whose price differs by row cost nothing."""
        if self.by_row is None:
            return self
        prices = self.prices.copy()
        prices[self.by_row.purchases] = 0.0
        return replace(self, prices=prices, by_row=None)

    def with_row_prices(self, columns: Ints) -> Ints:
        """Some columns, and those that tell the prices of the purchases that deliver them; rising."""
        if self.by_row is None or not len(columns):
            return columns
        made = np.flatnonzero(np.isin(self.by_row.purchases, self.group_of[columns]))
        return np.union1d(columns, self.by_row.take(made).columns) if len(made) else columns

    def prices_after(self, bought: Bools) -> Floats:
        """What each purchase costs somebody who made some purchases, a mask; nothing where it is among them."""
        now = np.where(bought, 0.0, self.prices)
        return now if self.discounts is None else np.maximum(now - self.discounts.saving_on_next(bought), 0.0)

    def bought_groups(self, columns: ArrayLike) -> Bools:
        """Mask of the purchases that deliver ``columns`` (indices, or a mask over the columns)."""
        bought = np.zeros(len(self.prices), dtype=bool)
        bought[self.group_of[np.asarray(columns)]] = True
        return bought

    def cost_of(self, columns: ArrayLike) -> float:
        """Price of the distinct purchases that deliver ``columns``."""
        bought = self.bought_groups(columns)
        saved = 0.0 if self.discounts is None else float(self.discounts.saved(bought))
        return float(self.prices[bought].sum()) - saved

    def cost_of_route(self, columns: Ints) -> float:
        """What a row pays that holds ``columns`` and then reaches the full model."""
        if self.full_columns is None:
            return self.cost_of_everything
        return self.cost_of(np.union1d(columns, self.full_columns)) + self.full_cost

    def cost_of_rows(self, used: Bools, reaches_full: Bools, amounts: Floats | None = None) -> Floats:
        """What each row pays, given the columns it used and whether it called the full model.

        Parameters
        ----------
        used : ndarray of shape (n_samples, n_features), bool
            Columns that the row bought on its route, those that the full model reads included if it got there.
        reaches_full : ndarray of shape (n_samples,), bool
            Rows answered by the full model, which pay for the call.
        amounts : ndarray of shape (n_samples, n_row_prices), optional
            What each row pays for the purchases whose price differs by row; without it, what is listed.
        """
        if amounts is not None and self.by_row is not None:
            cost = self._without_row_prices.cost_of_rows(used, reaches_full)
            for amount, purchase in zip(amounts.T, self.by_row.purchases, strict=True):
                cost = cost + np.where(used[:, self.group_of == purchase].any(axis=1), amount, 0.0)
            return cost
        bought = np.zeros((len(used), len(self.prices)), dtype=bool)
        for column, group in enumerate(self.group_of):
            bought[:, group] |= used[:, column]
        everything = reaches_full & bought.all(axis=1)
        called = np.where(reaches_full, self.full_cost, 0.0)
        # A plain sum for rows that buy everything, so that all places that name their cost agree to the last digit.
        paid = (
            bought @ self.prices
            if self.discounts is None
            else bought @ self.prices - self.discounts.saved(bought)
        )
        return np.where(everything, self.cost_of_everything, paid + called)

    def mean_cost(self, shares: Floats, sent: float) -> float:
        """Mean cost of rows that buy in one order, from the shares that make each purchase and ask the full model.

        In one order, the rows that make some purchase of a discount are those that make its most frequent one.
        """
        cost = float(self.prices @ shares) + self.full_cost * sent
        if self.discounts is not None:
            for discount, saving in enumerate(self.discounts.savings):
                those = shares[self.discounts.of == discount]
                cost -= float(saving * (those.sum() - those.max()))
        return cost


def check_amount(name: str, value: object, *, rule: str = "a finite number >= 0") -> float:
    """Check a single price, budget or weight and return it as a float; a refusal names it."""
    try:
        # Text that reads as a number is a slip that would go unnoticed until the text is another one.
        amount = np.nan if isinstance(value, str | bytes | bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be {rule}; got {value!r}.") from None
    if not np.isfinite(amount) or amount < 0:
        raise InvalidInputError(f"{name} must be {rule}; got {value!r}.")
    return amount
