"""Prices from a file, for the columns of a table."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from thrifty.errors import InvalidInputError
from thrifty.prices.prices import Prices, did_you_mean
from thrifty.tables.files import read_rows
from thrifty.tables.frames import listed

__all__ = ["read_prices"]


def read_prices(
    path: str | os.PathLike[str] | None, names: Sequence[str], *, known: Sequence[str] = ()
) -> Prices:
    """Prices of some columns; every one of them must be priced.

    Parameters
    ----------
    path : path, optional
        Lines ``feature, cost`` or ``feature, cost, group``, with or without a line of names, or anything else that
        ``Prices.read`` reads; parquet as well. None is 1 each.
    names : sequence of str
        The features.
    known : sequence of str
        Columns that may have a price though they are no features here.
    """
    if path is None:
        return Prices(default=1.0)
    given = _read(path)
    unknown = [name for name in (*given.costs, *given.by_row) if name not in {*names, *known}]
    if unknown:
        raise InvalidInputError(
            f"{path} gives a price for {listed(unknown)}, not a feature of the table, which has {listed(names)}."
            f"{did_you_mean(unknown[0], names)}"
        )
    told = {*given.by_row, *given.by_row.values()}
    missing = [name for name in names if name not in given.costs and name not in told]
    if missing and given.default is None:
        raise InvalidInputError(
            f"{path} gives no price for {listed(missing)}. Every feature needs one; 0 is a feature that is at "
            f"hand, and the feature * prices all that are not named."
        )
    return replace(
        given,
        costs={name: cost for name, cost in given.costs.items() if name in names},
        groups={name: group for name, group in (given.groups or {}).items() if name in names} or None,
        discounts=_of_features(given, names),
        by_row={name: column for name, column in given.by_row.items() if name in names},
    )


def _read(path: str | os.PathLike[str]) -> Prices:
    if Path(path).suffix.lower() == ".json":
        return Prices.read(path)
    rows = read_rows(path)
    try:
        return Prices.from_rows(rows)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None


def _of_features(given: Prices, names: Sequence[str]) -> dict[str, tuple[list[str], float]]:
    """Discounts among the features of this table: what one feature alone would have saved is no discount."""
    kept = {
        label: ([name for name in columns if name in names], saving)
        for label, (columns, saving) in given.discounts.items()
    }
    return {label: content for label, content in kept.items() if len(content[0]) > 1}
