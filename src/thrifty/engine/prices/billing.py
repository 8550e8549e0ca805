"""Bills: what rows pay, the sum over the *distinct* purchases made on their routes.

A feature belongs to exactly one purchase (its *group*); a group has one price and delivers all its columns. Within one
route a purchase is paid once, whichever model needs it first: the gate, the cheap model or the full model. A row that
reaches the full model pays for all columns that the full model reads, and for the call.

Purchases may share a *discount*: blood is drawn once, so every blood test after the first costs less (Turney, 1995).
The bill does not depend on the order of the purchases: of those that share a discount, all but one are cheaper by the
saving.

The price of a purchase may differ *by row*: a free column of the table holds it, or a function computes it from the
free columns, before anything is bought. Orders of purchases and stopping rules use the listed price of such a purchase;
a row pays its own price.

Where purchases cost several *resources*, such as dollars and minutes, there is a price list of each; the one that a fit
works with is their sum at exchange rates, and rows are billed by resource.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError, InvalidParameterError

MIN_PRICE, MAX_PRICE = 1e-100, 1e100
"""Bounds of a price that is not zero: products and ratios of two prices within them are numbers, neither 0 nor inf."""

PriceFunction = Callable[[Any], Any]
Reads = Callable[[Ints], Any]


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
    resources : Resources, optional
        Prices of each resource, where there are several; all prices above are their sums at exchange rates.
    """

    prices: Floats
    group_of: Ints
    full_cost: float = 0.0
    full_columns: Ints | None = None
    discounts: "Discounts | None" = None
    by_row: "RowPrices | None" = None
    resources: "Resources | None" = None

    def validate(self) -> "PriceList":
        """Refuse arrays that do not fit together. Returns itself."""
        n_groups, n_features = len(self.prices), len(self.group_of)
        with np.errstate(over="ignore"):
            total = self.prices.sum() + self.full_cost
        full = np.arange(0) if self.full_columns is None else self.full_columns
        rules = {
            "prices must be numbers of at least 0": self.prices.ndim == 1 and np.all(self.prices >= 0),
            "full_cost must be at least 0, and all prices have a finite sum": self.full_cost >= 0
            and bool(np.isfinite(total)),
            f"group_of must name purchases in [0, {n_groups})": self.group_of.ndim == 1
            and n_features > 0
            and bool(np.all((self.group_of >= 0) & (self.group_of < n_groups))),
            f"full_columns must be distinct columns in [0, {n_features})": are_columns(full, n_features),
        }
        broken = next((rule for rule, holds in rules.items() if not holds), None)
        broken = broken or (None if self.discounts is None else self.discounts.problem(self.prices))
        broken = broken or (None if self.by_row is None else self.by_row.problem(self))
        broken = broken or (None if self.resources is None else self.resources.problem(self))
        if broken:
            raise InvalidInputError(f"{broken}.")
        return self

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
        """Cost of a row that is sent straight to the full model: the columns it reads, and the call."""
        if self.full_columns is None:
            return self.cost_of_everything
        return self.cost_of(self.full_columns) + self.full_cost

    @property
    def cost_of_everything(self) -> float:
        """Cost of a row that makes every purchase and reaches the full model."""
        saved = (
            0.0 if self.discounts is None else float(self.discounts.saved(np.ones(len(self.prices), bool)))
        )
        return float(self.prices.sum()) - saved + self.full_cost

    def is_same(self, other: "PriceList") -> bool:
        """True if another list has the same purchases at the same prices; by row, the same columns or functions."""
        lists, others = (
            [each] if each.resources is None else list(each.resources.lists) for each in (self, other)
        )
        names, other_names = (
            each.resources and (each.resources.names, each.resources.delays) for each in (self, other)
        )
        return names == other_names and all(
            all(map(np.array_equal, mine._facts, theirs._facts))
            for mine, theirs in zip(lists, others, strict=True)
        )

    @property
    def _facts(self) -> list[Any]:
        """All that two lists with the same prices have in common; None where there is nothing."""
        discounts, by_row = self.discounts, self.by_row
        return [
            self.group_of,
            self._without_row_prices.prices,
            self.full_cost,
            self.read_by_full,
            *((None, None) if discounts is None else (discounts.of, discounts.savings)),
            *((None,) * 3 if by_row is None else (by_row.purchases, by_row.price_column, by_row.functions)),
        ]

    @property
    def by_resource(self) -> "tuple[PriceList, ...]":
        """The prices of each of several resources; none where there is one."""
        return () if self.resources is None else self.resources.lists

    def refuse_resources(self, what: str) -> None:
        """Raise an error where prices are in several resources, for what takes one."""
        if self.resources is not None:
            raise InvalidInputError(
                f"{what} takes prices in one resource; these are in {', '.join(self.resources.names)}. Give one price "
                f"for each purchase, in one of them or in their sum at an exchange rate."
            )

    def costs_of_rows(self, used: Bools, reaches_full: Bools) -> Floats:
        """Cost of each row in each resource, shape (n_samples, n_resources); arguments as of ``cost_of_rows``."""
        assert self.resources is not None  # asked for only where there are several
        return np.column_stack([each.cost_of_rows(used, reaches_full) for each in self.resources.lists])

    @cached_property
    def _without_row_prices(self) -> "PriceList":
        """The list in which the purchases whose price differs by row cost nothing."""
        if self.by_row is None:
            return self
        prices = self.prices.copy()
        prices[self.by_row.purchases] = 0.0
        return replace(self, prices=prices, by_row=None)

    def with_row_prices(self, columns: Ints) -> Ints:
        """Some columns and the columns that hold their prices by row, in increasing order."""
        if self.by_row is None or not len(columns):
            return columns
        made = np.flatnonzero(np.isin(self.by_row.purchases, self.group_of[columns]))
        return np.union1d(columns, self.by_row.take(made).columns) if len(made) else columns

    def prices_after(self, bought: Bools) -> Floats:
        """Price of each purchase for a row that made the purchases in a mask; 0 for those."""
        now, discounts = np.where(bought, 0.0, self.prices), self.discounts
        if discounts is None:
            return now
        has_begun = np.isin(discounts.of, discounts.of[bought]) & (discounts.of >= 0)
        return np.where(has_begun, np.maximum(now - discounts.savings[discounts.of], 0.0), now)

    def bought_groups(self, columns: ArrayLike) -> Bools:
        """Mask of the purchases that deliver ``columns`` (indices, or a mask over the columns)."""
        bought = np.zeros(len(self.prices), dtype=bool)
        bought[self.group_of[np.asarray(columns)]] = True
        return bought

    def bought_by_rows(self, used: Bools) -> Bools:
        """Masks of the purchases that deliver the columns in masks, along the last axis."""
        bought = np.zeros((*used.shape[:-1], len(self.prices)), dtype=bool)
        for column, group in enumerate(self.group_of):
            bought[..., group] |= used[..., column]
        return bought

    def cost_of(self, columns: ArrayLike) -> float:
        """Price of the distinct purchases that deliver ``columns``."""
        bought = self.bought_groups(columns)
        saved = 0.0 if self.discounts is None else float(self.discounts.saved(bought))
        return float(self.prices[bought].sum()) - saved

    def cost_of_route(self, columns: Ints) -> float:
        """Cost of a row that has bought ``columns`` and then reaches the full model."""
        if self.full_columns is None:
            return self.cost_of_everything
        return self.cost_of(np.union1d(columns, self.full_columns)) + self.full_cost

    def cost_of_rows(self, used: Bools, reaches_full: Bools, amounts: Floats | None = None) -> Floats:
        """Cost of each row, given the columns it used and whether it called the full model.

        Parameters
        ----------
        used : ndarray of shape (n_samples, n_features), bool
            Columns that the row bought on its route, those that the full model reads included if it got there.
        reaches_full : ndarray of shape (n_samples,), bool
            Rows answered by the full model, which pay for the call.
        amounts : ndarray of shape (n_samples, n_row_prices), optional
            Price of each row for the purchases whose price differs by row; the listed ones by default.
        """
        if amounts is not None and self.by_row is not None:
            cost = self._without_row_prices.cost_of_rows(used, reaches_full)
            for amount, purchase in zip(amounts.T, self.by_row.purchases, strict=True):
                cost = cost + np.where(used[:, self.group_of == purchase].any(axis=1), amount, 0.0)
            return cost
        bought = self.bought_by_rows(used)
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

    def problem(self, prices: Floats) -> str | None:
        """Reason why these cannot be discounts on purchases of such prices, or None."""
        if self.of.shape != prices.shape or self.savings.ndim != 1:
            return "discounts must be known for each purchase"
        if np.any((self.of < -1) | (self.of >= len(self.savings))):
            return f"a purchase must share a discount in [0, {len(self.savings)}), or -1"
        shared = self.of >= 0
        if np.any(self.savings < 0) or np.any(prices[shared] < self.savings[self.of[shared]]):
            return "savings must lie between 0 and the price of each purchase"
        return None

    def saved(self, bought: Bools) -> Floats:
        """Total savings of rows, given the mask of their purchases, shape (..., n_groups)."""
        saved = np.zeros(bought.shape[:-1])
        for discount, saving in enumerate(self.savings):
            saved += saving * np.maximum(bought[..., self.of == discount].sum(axis=-1) - 1, 0)
        return saved


# -- several resources -----------------------------------------------------------------------------


UNLIMITED = 0.01
"""Weight of a resource without a budget beside those that have one (no command chose it)."""


@dataclass(frozen=True, eq=False)
class Resources:
    """Prices of the same purchases in several resources.

    Attributes
    ----------
    names : tuple of str
        The resources, such as dollars and minutes.
    lists : tuple of PriceList
        Prices in each of them; empty where models are priced, and not columns.
    rates : ndarray of shape (n_resources,)
        What one unit of each costs in the price list that is their sum.
    delays : tuple of str
        Resources that are delays: of purchases that are made together the longest one counts.
    """

    names: tuple[str, ...]
    lists: tuple[PriceList, ...]
    rates: Floats
    delays: tuple[str, ...] = ()

    def problem(self, summed: PriceList) -> str | None:
        """Reason why these cannot be the resources of a price list, or None."""
        if not self.names or not len(self.names) == len(self.lists) == len(self.rates):
            return "each resource must have a name, prices and an exchange rate"
        if len(set(self.names)) < len(self.names) or not np.all(self.rates > 0):
            return "resources must have different names, and exchange rates above 0"
        if not set(self.delays) <= set(self.names):
            return "delays must be some of the resources"
        if any(each.resources is not None or each.by_row is not None for each in self.lists):
            return "the price list of a resource must be plain"
        is_alike = (np.array_equal(each.group_of, summed.group_of) for each in self.lists)
        return None if all(is_alike) else "all resources must have the same purchases"

    def summed(self) -> PriceList:
        """The price list of the sums at the exchange rates."""
        first = self.lists[0]
        discounts = first.discounts
        if discounts is not None:
            savings = [each.discounts.savings for each in self.lists if each.discounts is not None]
            discounts = replace(discounts, savings=self.rates @ np.array(savings))
        return replace(
            first,
            prices=self.rates @ np.array([each.prices for each in self.lists]),
            full_cost=float(self.rates @ np.array([each.full_cost for each in self.lists])),
            discounts=discounts,
            resources=self,
        )

    def at_rates(self, rates: Floats) -> PriceList:
        """The price list of the sums at other exchange rates."""
        return replace(self, rates=rates).summed()

    def rates_for(self, limits: Floats, weights: Floats) -> Floats:
        """Exchange rates at which a budget costs about 1; without any limits, all purchases together do.

        Parameters
        ----------
        limits : ndarray of shape (n_resources,)
            Budget of each resource; infinite where it has none.
        weights : ndarray of shape (n_resources,)
            By how much each resource counts more than others.
        """
        totals = np.array([each.cost_of_everything or 1.0 for each in self.lists])
        is_limited = np.isfinite(limits)
        if len(totals) == 1:
            return np.ones(1)
        if not is_limited.any():
            return weights / weights.sum() / totals
        shares = weights / weights[is_limited].sum()
        scale = np.where(is_limited, np.maximum(limits, 1e-3 * totals), totals / UNLIMITED)
        rates: Floats = shares / scale
        return rates

    def rounds(self, held: Bools) -> Floats | None:
        """Cost of making the purchases of several places together, in each resource; None where none is a delay.

        Parameters
        ----------
        held : ndarray of shape (n_places, n_features), bool
            Columns that a row holds at each place; the last is the full model.

        Returns
        -------
        ndarray of shape (n_places, n_places, n_resources)
            By the first and the last place of a round; 0 below the diagonal.
        """
        if not self.delays:
            return None
        n_places, rounds = len(held), np.zeros((len(held), len(held), len(self.names)))
        asks_full = np.arange(n_places) == n_places - 1
        for k, (name, prices) in enumerate(zip(self.names, self.lists, strict=True)):
            made, paid = prices.bought_by_rows(held), prices.cost_of_rows(held, asks_full)
            for first in range(n_places):
                before = made[first - 1] if first else np.zeros(made.shape[1], dtype=bool)
                if name in self.delays:
                    longest = np.where(made[first:] & ~before, prices.prices, 0.0).max(axis=1)
                    rounds[first, first:, k] = longest + prices.full_cost * asks_full[first:]
                else:
                    rounds[first, first:, k] = paid[first:] - (paid[first - 1] if first else 0.0)
        return rounds

    def named(self, costs: Floats) -> Any:
        """Costs of rows as a pandas data frame with one column per resource; those of one row as a dict."""
        if costs.ndim == 1:
            return dict(zip(self.names, costs.tolist(), strict=True))
        import pandas as pd

        return pd.DataFrame(costs, columns=list(self.names))

    def columns(self, costs: Any) -> dict[str, Floats]:
        """Columns of a table of answers: the sum at the exchange rates, and the cost in each resource."""
        costs = np.asarray(costs)
        named = {f"cost_{name}": paid for name, paid in zip(self.names, costs.T, strict=True)}
        return {"cost": (costs * self.rates).sum(axis=-1), **named}

    def check_budget(self, name: str, budget: Any) -> dict[str, float]:
        """Check a budget, or a cap, of some resources, such as ``{"dollars": 12, "minutes": 15}``."""
        if not isinstance(budget, Mapping):
            if len(self.names) == 1:
                return {self.names[0]: check_amount(name, budget)}
            raise InvalidParameterError(
                name,
                f"must name its resources, since prices are in {', '.join(self.names)}; got {budget!r}. Write "
                f"{name}={{{self.names[0]!r}: ...}}.",
            )
        unknown = [resource for resource in budget if resource not in self.names]
        if unknown or not budget:
            raise InvalidParameterError(
                name,
                f"must be of {', '.join(self.names)}, the resources of the prices; got {dict(budget)!r}.",
            )
        return {
            resource: check_amount(f"{name}[{resource!r}]", budget[resource])
            for resource in self.names
            if resource in budget
        }

    def limits(self, budget: Mapping[str, float], default: float = np.inf) -> Floats:
        """A checked budget as an array, infinite for resources that it does not name; a cost, with 0 as default."""
        return np.array([budget.get(resource, default) for resource in self.names])


def costs_in_rounds(rounds: Floats, thresholds: Floats) -> Floats:
    """Cost of a row at each place by the rounds of one operating point, shape (n_places, n_resources).

    Purchases of a stage at which no row stops, which has a threshold of minus infinity, are made together with those of
    the next stage.
    """
    costs, first, so_far = np.empty((len(rounds), rounds.shape[2])), 0, np.zeros(rounds.shape[2])
    for place in range(len(rounds)):
        costs[place] = so_far + rounds[first, place]
        if place < len(thresholds) and not np.isneginf(thresholds[place]):
            first, so_far = place + 1, costs[place]
    return costs


def costs_text(costs: Mapping[str, float]) -> str:
    """Amounts of several resources in words, such as "30 dollars and 20 minutes"."""
    *first, last = (f"{amount:.6g} {name}" for name, amount in costs.items())
    return f"{', '.join(first)} and {last}" if first else last


def amount_text(amount: float | Mapping[str, float], unit: str = "", digits: int = 4) -> str:
    """An amount of one resource, or of several, in words."""
    if isinstance(amount, Mapping):
        return costs_text({name: float(f"{of_one:.{digits}g}") for name, of_one in amount.items()})
    return f"{amount:.{digits}g}{unit}"


# -- prices by row ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForgottenFunction:
    """Placeholder for a price function, which files do not keep; raises an error when called.

    Attributes
    ----------
    column : str or int
        The column that the function priced.
    """

    column: Any

    def __call__(self, rows: Any) -> NoReturn:  # noqa: ARG002 - refuses every row
        """Raise an error that asks for the function."""
        raise InvalidInputError(
            f"the price of column {self.column!r} is computed by a function, and files keep no functions. Give it "
            f"again: with_prices({{{self.column!r}: function}}). Commands and the gateway read prices from a column of "
            f"the table: fit with by_row={{{self.column!r}: column}} for them."
        )


@dataclass(frozen=True)
class RowPrices:
    """Purchases whose price differs by row, and the columns or functions that hold or compute it.

    Attributes
    ----------
    purchases : ndarray of shape (n_row_prices,)
        Each purchase, rising.
    reads : tuple of ndarray of int
        For each of them, the free columns read: the one that holds the price, or all that its function gets.
    least : ndarray of shape (n_row_prices,)
        Smallest price of a row: the saving of the discount that the purchase shares, or 0.
    functions : tuple of callable or None
        Function that computes the price from the columns read; None where the one column holds it.
    """

    purchases: Ints
    reads: tuple[Ints, ...]
    least: Floats
    functions: tuple[PriceFunction | None, ...]

    def problem(self, listed: PriceList) -> str | None:
        """Reason why these cannot be prices of the purchases of a list, or None."""
        n_prices = len(self.purchases)
        if not are_columns(self.purchases, len(listed.prices)) or np.any(np.diff(self.purchases) <= 0):
            return "purchases priced by row must be named once and rising"
        if not n_prices or not len(self.reads) == len(self.functions) == n_prices == len(self.least):
            return "each purchase priced by row must have columns, a function or None, and a least price"
        free = free_columns(listed.prices, listed.group_of, self.purchases)
        for read, function in zip(self.reads, self.functions, strict=True):
            is_one = (function is None and len(read) == 1) or isinstance(function, ForgottenFunction)
            if not is_one or read.ndim != 1 or not np.isin(read, free).all():
                return "a price by row must be held by one free column, or computed by a function of them"
        return None if np.all(self.least >= 0) else "least prices must be at least 0"

    def __len__(self) -> int:
        return len(self.purchases)

    @cached_property
    def columns(self) -> Ints:
        """All columns read, in increasing order."""
        return np.unique(np.concatenate(self.reads))

    @property
    def price_column(self) -> Ints:
        """Column that holds each price; -1 where a function computes it."""
        pairs = zip(self.reads, self.functions, strict=True)
        return np.array([-1 if function else int(read[0]) for read, function in pairs], dtype=np.intp)

    def take(self, places: Sequence[int] | Ints) -> "RowPrices":
        """Some of the purchases."""
        some = [int(place) for place in places]
        reads, functions = (
            tuple(self.reads[place] for place in some),
            tuple(self.functions[place] for place in some),
        )
        return RowPrices(self.purchases[some], reads, self.least[some], functions)

    def amounts(self, n_rows: int, numbers: Reads, table: Reads) -> Floats:
        """Price of each of these purchases for some rows, unchecked, shape (n_rows, n_row_prices).

        Parameters
        ----------
        n_rows : int
            Number of rows.
        numbers, table : callable
            Some columns of these rows, as numbers and as the full model reads them.
        """
        amounts = np.empty((n_rows, len(self)))
        for place, (read, function) in enumerate(zip(self.reads, self.functions, strict=True)):
            if function is None:
                block = numbers(read)
                amounts[:, place] = (block.toarray() if sparse.issparse(block) else block)[:, 0]
            elif n_rows:
                amounts[:, place] = _call_price_function(function, table(read), n_rows)
        return amounts

    def of_rows(self, reader: Any, rows: Ints, names: Sequence[str] | None) -> Floats:
        """Checked price of each of these purchases for some rows of a reader, shape (n_rows, n_row_prices)."""
        amounts = self.amounts(
            len(rows), partial(reader.block, rows), lambda columns: reader.part(rows, columns).native
        )
        is_priced = self.is_priced(amounts)
        if not is_priced.all():
            first = int(is_priced.argmin())
            raise self.refusal(amounts[first], int(reader.numbers_of(rows)[first]), names)
        return amounts

    def is_priced(self, amounts: Floats) -> Bools:
        """Mask of the rows with a valid price for every one of these purchases, from their amounts."""
        return np.all(is_price(amounts) & (amounts >= self.least), axis=1)

    def refusal(self, amounts: Floats, row: int, names: Sequence[str] | None) -> InvalidInputError:
        """The error for a row without a price, from its amounts, its number and the names of the columns."""
        place = int(np.argmin(is_price(amounts) & (amounts >= self.least)))
        amount, column = float(amounts[place]), int(self.price_column[place])
        called = f"column {column}" if names is None else f"column {str(names[column])!r}"
        rule, least = "holds prices and must have one in every row that pays it", float(self.least[place])
        if column < 0:
            called, rule = _function_name(self.functions[place]), "must return a price for every row"
        if 0.0 <= amount < least:
            return InvalidInputError(
                f"{called} {rule}; row {row} has {amount:g}, and a discount saves {least:g}: no price may fall below "
                f"0. Lower the saving, or raise the price."
            )
        return InvalidInputError(
            f"{called} {rule}, 0 or a number between {MIN_PRICE:g} and {MAX_PRICE:g}; row {row} has {amount:g}. "
            f"Fill it in; 0 is a purchase that costs this row nothing."
        )


def are_columns(columns: Ints, n_columns: int) -> bool:
    """True if these are distinct numbers of so many columns."""
    inside = columns.ndim == 1 and np.all((columns >= 0) & (columns < n_columns))
    return bool(inside and len(np.unique(columns)) == len(columns))


def free_columns(prices: Floats, group_of: Ints, priced_by_row: Ints) -> Ints:
    """Columns that are free for every row: the input of price functions."""
    return np.flatnonzero((prices[group_of] == 0) & ~np.isin(group_of, priced_by_row))


def _call_price_function(function: PriceFunction, rows: Any, n_rows: int) -> Floats:
    """Prices that a user's function returns for some rows, checked to be one number per row."""
    result = function(rows)
    try:
        amounts = np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        amounts = np.empty((0, 0))
    if amounts.shape != (n_rows,):
        raise InvalidInputError(
            f"{_function_name(function)} computes prices and must return one number for each of {n_rows} rows; "
            f"got {type(result).__name__} of shape {np.shape(result)}."
        )
    return amounts


def _function_name(function: Any) -> str:
    return f"the function {getattr(function, '__name__', type(function).__name__)!r}"


def times(factor: float, cost: Any) -> Any:
    """A cost, in one resource or by resource, times a factor."""
    if isinstance(cost, Mapping):
        return {name: factor * of_one for name, of_one in cost.items()}
    return factor * cost


def check_amount(name: str, value: object, *, rule: str = "a finite number >= 0") -> float:
    """Check a single price, budget or weight and return it as a float; a refusal names it."""
    try:
        # Text that reads as a number is a slip that would go unnoticed until the text is another one.
        amount = np.nan if isinstance(value, str | bytes | bool) else float(value)  # type: ignore[arg-type]  # anything may arrive
    except (TypeError, ValueError):
        raise InvalidParameterError(name, f"must be {rule}; got {value!r}.") from None
    if not np.isfinite(amount) or amount < 0:
        raise InvalidParameterError(name, f"must be {rule}; got {value!r}.")
    return amount


def is_price(amount: Any) -> Any:
    """Mask of the amounts that are valid prices: 0, or within [MIN_PRICE, MAX_PRICE]."""
    return (amount == 0) | ((amount >= MIN_PRICE) & (amount <= MAX_PRICE))
