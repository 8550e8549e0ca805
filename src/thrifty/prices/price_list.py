"""From what a user writes about prices to a price list, checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.prices.by_column import (
    A_PRICE,
    FeatureCosts,
    FeatureGroups,
    column_number,
    costs_per_column,
    group_per_column,
    name_of,
)
from thrifty.prices.costs import Discounts, PriceList, check_amount
from thrifty.prices.prices import Prices
from thrifty.prices.row_prices import RowPrices, RowsOfFit, free_columns, is_price

__all__ = ["check_price_list", "with_prices"]


def check_price_list(
    feature_costs: FeatureCosts,
    feature_groups: FeatureGroups,
    full_cost: float,
    n_features: int,
    feature_names: Sequence[str] | None = None,
    full_columns: Ints | None = None,
    rows: RowsOfFit | None = None,
) -> PriceList:
    """Turn what a user writes about prices into a ``PriceList``.

    Parameters
    ----------
    feature_costs : array-like of shape (n_features,), number, dict by column name, Series, Prices, path or None
        Price per column; a number is the price of every column, None means 1 each. With groups, the price of
        a group is written at each of its columns and must be the same at all of them. A path is read with
        ``Prices.read``.
    feature_groups : array-like of shape (n_features,), dict by column name, or None
        A label per column; columns with the same label are one purchase. In a dict, columns that
        are not named are purchases of their own.
    full_cost : float
        Extra price of one call of the full model.
    n_features : int
        Number of columns.
    feature_names : sequence of str, optional
        Names of the columns, needed to read a dict.
    full_columns : ndarray of int, optional
        Columns that the full model reads; None is all of them.
    rows : RowsOfFit, optional
        The rows of the fit: prices that differ by row must be there.
    """
    names = [str(name) for name in feature_names] if feature_names is not None else None
    if isinstance(feature_costs, str | os.PathLike):
        feature_costs = Prices.read(feature_costs)
    given = feature_costs if isinstance(feature_costs, Prices) else Prices(feature_costs)
    if given.groups is not None:
        if feature_groups is not None:
            raise InvalidInputError(
                "feature_groups is given twice, by itself and in the Prices of feature_costs. Give it in one place."
            )
        feature_groups = given.groups
    group_of = group_per_column(feature_groups, n_features, names)
    prices, by_row = _prices(given, group_of, names, rows)
    amount = check_amount("full_cost", full_cost)
    if not is_price(amount):
        raise InvalidInputError(f"full_cost must be {A_PRICE}; got {amount:g}. Write prices in another unit.")
    discounts = _discounts(given.discounts, prices, group_of, names)
    if by_row is not None:
        by_row = _in_force(by_row, prices, group_of, discounts, names)
        if rows is not None:
            rows.amounts(by_row, names)
    return PriceList(prices, group_of, amount, _partial(full_columns, n_features), discounts, by_row)


def with_prices(price_list: PriceList, by_row: Any, feature_names: Sequence[str] | None) -> PriceList:
    """A price list in which columns or functions tell some prices of each row, as in ``Prices``; the others stay."""
    names = None if feature_names is None else [str(name) for name in feature_names]
    group_of = price_list.group_of
    told = {group_of[column]: one for column, one in Prices.of(price_list).by_row.items()}
    told |= _told_by_rows(by_row, group_of, names)
    found = _row_prices(told, price_list.prices, group_of, names)
    if found is None:
        return price_list
    return replace(
        price_list, by_row=_in_force(found, price_list.prices, group_of, price_list.discounts, names)
    )


def _prices(
    given: Prices, group_of: Ints, names: list[str] | None, rows: RowsOfFit | None
) -> tuple[Floats, RowPrices | None]:
    """The price of each purchase, and who tells those that differ by row."""
    told = _told_by_rows(given.by_row, group_of, names)
    # Nothing need be listed for a column of prices, which is free, nor for what it prices: any price will do until the
    # free columns are known, and with them the mean over the rows.
    known = dict.fromkeys((column for column in told.values() if not callable(column)), 0.0)
    listed = {str(one) for one in given.costs} if isinstance(given.costs, Mapping) else set()
    unlisted = {}
    for purchase in told:
        columns = np.flatnonzero(group_of == purchase).tolist()
        if names is None or listed.isdisjoint(names[column] for column in columns):
            unlisted[purchase] = columns
            known |= dict.fromkeys(columns, 1.0) if rows is not None else {}
    prices = _per_purchase(given, group_of, names, known)
    by_row = _row_prices(told, prices, group_of, names)
    if by_row is None or rows is None:
        return prices, by_row
    means = np.average(rows.amounts(by_row, names), axis=0, weights=rows.weight)
    for purchase, mean in zip(by_row.purchases.tolist(), means, strict=True):
        known |= dict.fromkeys(unlisted.get(purchase, ()), float(mean))
    return _per_purchase(given, group_of, names, known), by_row


def _per_purchase(
    given: Prices, group_of: Ints, names: list[str] | None, known: Mapping[int, float]
) -> Floats:
    """The price of each purchase, which must be the same at all of its columns."""
    costs = costs_per_column(given.costs, given.default, len(group_of), names, known)
    prices = np.zeros(int(group_of.max()) + 1 if len(group_of) else 0)
    prices[group_of] = costs
    differs = np.flatnonzero(prices[group_of] != costs)
    if differs.size:
        column = int(differs[0])
        raise InvalidInputError(
            f"feature_costs must be the same for all columns of one group, which are one purchase; "
            f"{name_of(column, names)} costs {costs[column]:g} but another column of its group costs "
            f"{prices[group_of[column]]:g}."
        )
    return prices


def _partial(columns: Ints | None, n_features: int) -> Ints | None:
    """Columns that are not all of them; None if they are."""
    return None if columns is None or np.array_equal(columns, np.arange(n_features)) else columns


def _told_by_rows(given: Any, group_of: Ints, names: list[str] | None) -> dict[int, Any]:
    """Purchases whose price differs by row: the column that holds it, or the function that tells it."""
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"by_row must be a dict {{column: column of prices, or function of rows}}; got {given!r}."
        )
    found: dict[int, Any] = {}
    for bought, teller in given.items():
        column = column_number(bought, names, len(group_of), "by_row")
        told = teller if callable(teller) else column_number(teller, names, len(group_of), "by_row")
        before: Any = found.setdefault(int(group_of[column]), told)
        if before != told:
            both = " and ".join(
                "a function" if callable(one) else name_of(one, names) for one in [before, told]
            )
            raise InvalidInputError(
                f"by_row names two columns of prices, {both}, for the purchase that delivers {name_of(column, names)}. "
                f"Keep one of them."
            )
    return found


def _row_prices(
    told: Mapping[int, Any], prices: Floats, group_of: Ints, names: list[str] | None
) -> RowPrices | None:
    """Prices by row, with the columns that are looked at for each."""
    if not told:
        return None
    purchases = np.array(sorted(told), dtype=np.intp)
    free = free_columns(prices, group_of, purchases)
    reads, functions = [], []
    for purchase in purchases.tolist():
        teller = told[purchase]
        if callable(teller) and not len(free):
            column = int(np.flatnonzero(group_of == purchase)[0])
            raise InvalidInputError(
                f"by_row has a function for {name_of(column, names)}, which is given the columns that are free, and "
                f"none is. Give the price 0 to the columns that are at hand."
            )
        reads.append(free if callable(teller) else np.array([teller], dtype=np.intp))
        functions.append(teller if callable(teller) else None)
    return RowPrices(purchases, tuple(reads), np.zeros(len(purchases)), tuple(functions))


def _in_force(
    by_row: RowPrices, prices: Floats, group_of: Ints, discounts: Discounts | None, names: list[str] | None
) -> RowPrices:
    """Prices by row next to the others: columns of prices are free, and no discount saves more than a row pays."""
    for column in by_row.told_by[by_row.told_by >= 0].tolist():
        group = int(group_of[column])
        if prices[group] > 0 or group in by_row.purchases:
            told = "is priced by row itself" if group in by_row.purchases else f"costs {prices[group]:g}"
            raise InvalidInputError(
                f"by_row reads prices from {name_of(column, names)}, which must be free, since a price is looked at "
                f"before anything is bought; it {told}. Give it the price 0."
            )
    free = by_row.purchases[prices[by_row.purchases] == 0]
    if len(free):
        column = int(np.flatnonzero(group_of == free[0])[0])
        raise InvalidInputError(
            f"{name_of(column, names)} has a price in each row, and 0 is listed for it, which is a feature that is at "
            f"hand. List what it costs on average, or leave its price out: the mean over the rows of the fit is taken."
        )
    if discounts is None:
        return by_row
    of = discounts.of[by_row.purchases]
    return replace(by_row, least=np.where(of >= 0, discounts.savings[of], 0.0))


def _discounts(given: Any, prices: Floats, group_of: Ints, names: list[str] | None) -> Discounts | None:
    """Discounts by purchase; each purchase shares at most one, and no price falls below zero."""
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"discounts must be a dict {{label: (columns, saving)}}; got {given!r}.")
    of, savings = np.full(len(prices), -1, dtype=np.intp), []
    for number, (label, content) in enumerate(given.items()):
        try:
            columns, saving = content
            columns = list(columns)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"discounts[{label!r}] must be (columns, saving); got {content!r}."
            ) from None
        columns = [column_number(column, names, len(group_of), "discounts") for column in columns]
        amount = check_amount(f"the saving of discounts[{label!r}]", saving)
        purchases = np.unique(group_of[columns]) if columns else np.empty(0, dtype=np.intp)
        if len(purchases) < 2:
            raise InvalidInputError(
                f"discounts[{label!r}] must name at least two purchases, since all but the first are cheaper; got "
                f"{len(purchases)}. Name the columns that share it, or leave the discount out."
            )
        taken = purchases[of[purchases] >= 0]
        if len(taken):
            column = int(np.flatnonzero(group_of == taken[0])[0])
            raise InvalidInputError(
                f"{name_of(column, names)} is in two discounts; a purchase shares at most one."
            )
        dear = purchases[prices[purchases] < amount]
        if len(dear):
            column = int(np.flatnonzero(group_of == dear[0])[0])
            raise InvalidInputError(
                f"discounts[{label!r}] saves {amount:g} on {name_of(column, names)}, which costs "
                f"{prices[dear[0]]:g}: no price may fall below 0. Lower the saving, or raise the price."
            )
        of[purchases] = number
        savings.append(amount)
    return Discounts(of, np.array(savings))
