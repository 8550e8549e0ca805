"""Prices from a file of two or three columns: feature, cost and, where one purchase delivers several, group."""

import math
import os
from collections.abc import Sequence

from thrifty.arrays import Ints
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import PriceList, check_price_list
from thrifty.tables.formats import listed, read_rows

__all__ = ["read_prices"]


def read_prices(
    path: str | os.PathLike[str] | None,
    names: Sequence[str],
    *,
    known: Sequence[str] = (),
    full_cost: float = 0.0,
    full_columns: Ints | None = None,
) -> PriceList:
    """The price list of some columns; every one of them must be priced.

    Parameters
    ----------
    path : path, optional
        Lines ``feature, cost`` or ``feature, cost, group``, with or without a line of names; None is 1 each.
    names : sequence of str
        The features.
    known : sequence of str
        Columns that may have a price though they are no features here.
    full_cost : float
        Price of one call of the full model, on top of what it reads.
    full_columns : ndarray of int, optional
        Numbers of the columns that the full model reads; None is all of them.
    """
    if path is None:
        return check_price_list(None, None, full_cost, len(names), names, full_columns)
    costs, groups = _lines_of(path)
    unknown = [name for name in costs if name not in {*names, *known}]
    if unknown:
        raise InvalidInputError(
            f"{path} gives a price for {listed(unknown)}, not a feature of the table, which has {listed(names)}."
        )
    missing = [name for name in names if name not in costs]
    if missing:
        raise InvalidInputError(
            f"{path} gives no price for {listed(missing)}. Every feature needs one; 0 is a feature that is at hand."
        )
    try:
        return check_price_list(
            {name: costs[name] for name in names},
            {name: group for name, group in groups.items() if name in names} or None,
            full_cost,
            len(names),
            names,
            full_columns,
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None


def _lines_of(path: str | os.PathLike[str]) -> tuple[dict[str, float], dict[str, str]]:
    """Cost by feature, and group by feature where there is one."""
    rows = read_rows(path)
    most = 3
    if rows and len(rows[0]) in (2, 3) and _number(rows[0][1]) is None:
        most, rows = len(rows[0]), rows[1:]  # the line of names
    if not rows:
        raise InvalidInputError(
            f"{path} gives no prices. Write lines of feature, cost and, if need be, group."
        )
    costs: dict[str, float] = {}
    groups: dict[str, str] = {}
    for row in rows:
        if len(row) not in (2, 3):
            raise InvalidInputError(
                f"{path} must have two columns, feature and cost, or a third, group; got {len(row)} in {row[0]!r}."
            )
        if len(row) > most:
            raise InvalidInputError(
                f"{path} names two columns, feature and cost, and has three cells in the line of {row[0]!r}. Write "
                f"decimals with a point, and name a third column, group, if there are groups."
            )
        name, cost = row[0], _number(row[1])
        if cost is None:
            raise InvalidInputError(f"{path} must give a number as the cost of {name!r}; got {row[1]!r}.")
        if not 0.0 <= cost < math.inf:
            raise InvalidInputError(
                f"{path} must give a finite cost of at least 0 to {name!r}; got {row[1]}. "
                f"0 is a feature that is at hand."
            )
        if name in costs:
            raise InvalidInputError(f"{path} gives two prices for {name!r}. Keep one of them.")
        costs[name] = cost
        if len(row) == 3 and row[2] not in ("", "None", "nan"):
            groups[name] = row[2]
    return costs, groups


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
