"""What can be bought, in the order a reader looks for it: the most bought first, the never bought together."""

from collections.abc import Sequence

import numpy as np

from thrifty.arrays import Ints
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import PriceList
from thrifty.report.facts import Purchase

__all__ = ["MOST_UNBOUGHT", "arrange", "names_of", "unpriced"]


MOST_UNBOUGHT = 30
"""Purchases that only the full model makes and that get a line of their own; more are shown together."""


def names_of(
    prices: PriceList, feature_names: Sequence[str] | None, purchase_names: Sequence[str] | None
) -> list[str]:
    """A name per purchase: as given, or those of its columns."""
    n_features, n_purchases = prices.n_features, len(prices.prices)
    if purchase_names is not None:
        return _checked("purchase_names", purchase_names, n_purchases, "purchase")
    columns = [f"feature {column}" for column in range(n_features)]
    if feature_names is not None:
        columns = _checked("feature_names", feature_names, n_features, "column")
    return [
        _joined([columns[column] for column in np.flatnonzero(prices.group_of == group)])
        for group in range(n_purchases)
    ]


def unpriced(n_features: int) -> PriceList:
    """Every column a purchase of its own, for systems whose prices are not known."""
    return PriceList(np.zeros(n_features), np.arange(n_features))


def arrange(
    prices: PriceList, names: Sequence[str], firsts: Sequence[Ints], n_stages: Sequence[int], priced: bool
) -> tuple[tuple[Purchase, ...], list[tuple[int, ...]]]:
    """Purchases in the order of the page, and where each system first makes them.

    Parameters
    ----------
    prices, names : PriceList and sequence of str
        What is bought.
    firsts : sequence of ndarray of shape (n_purchases,)
        For each system, the place at which it first buys each purchase.
    n_stages : sequence of int
        For each system, the place of the full model.
    priced : bool
        Whether the prices mean anything.
    """
    cheap = np.array([first < last for first, last in zip(firsts, n_stages, strict=True)])
    popularity = cheap.sum(axis=0)
    order = np.lexsort((prices.prices, -popularity))
    bought = int((popularity > 0).sum())
    n_columns = np.bincount(prices.group_of, minlength=len(prices.prices))

    def entry(group: int) -> Purchase:
        return Purchase(names[group], float(prices.prices[group]) if priced else None, int(n_columns[group]))

    alone, together = order, order[:0]
    if len(order) - bought > MOST_UNBOUGHT:
        alone, together = order[:bought], order[bought:]
    purchases = [entry(int(group)) for group in alone]
    if len(together):
        price = float(prices.prices[together].sum()) if priced else None
        name = f"{len(together)} others, read by the full model only"
        purchases.append(Purchase(name, price, int(n_columns[together].sum())))
    places = [
        (*first[alone].tolist(), *([last] if len(together) else []))
        for first, last in zip(firsts, n_stages, strict=True)
    ]
    return tuple(purchases), places


def _checked(argument: str, given: Sequence[str], n_wanted: int, thing: str) -> list[str]:
    names = [str(name) for name in given]
    if len(names) != n_wanted:
        raise InvalidInputError(
            f"{argument} must hold one name per {thing}, {n_wanted} in all; got {len(names)}."
        )
    return names


def _joined(names: list[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
