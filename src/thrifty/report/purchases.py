"""What is bought, by how many rows, and whether that explains what they paid.

Prices times shares add up to the mean cost, and are made to: purchases that do not explain what the rows paid are
refused.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.prices.billing import PriceList
from thrifty.report.facts import Purchase, System
from thrifty.report.routes import Routes

__all__ = ["purchases_of"]

_MOST_UNBOUGHT = 30
"""Purchases that no stage makes and that get a line of their own; more are shown together."""


def purchases_of(
    prices: PriceList | None,
    feature_names: Sequence[str] | None,
    purchase_names: Sequence[str] | None,
    routes: Mapping[int, Routes],
    at: Sequence[tuple[Routes, Floats]],
    cost: Floats,
) -> tuple[tuple[Purchase, ...], tuple[System, ...], tuple[tuple[float, ...], ...]]:
    """What is bought, where each system first buys it, and what its places do not tell about who does.

    All of that is checked against what the rows paid.
    """
    listed = _price_list(prices, feature_names, routes)
    names = _names(listed, feature_names, purchase_names)
    shares = [one.shares(point, listed) for one, point in at]
    if prices is not None:
        number = {id(one): place for place, one in routes.items()}
        for (one, point), bought, paid in zip(at, shares, cost, strict=True):
            _check_prices_explain(prices, bought, one.reach(point)[-1], float(paid), number[id(one)])
    first = [one.first_bought(listed) for one in routes.values()]
    last = [one.n_stages for one in routes.values()]
    lines = _arranged(first, last, listed)
    purchases = tuple(
        _purchase(line, listed, names, prices is not None, is_read=first[0][line[0]] <= last[0])
        for line in lines
    )
    systems = tuple(
        System(_in_words(one.evidence.settings), tuple(int(places[line[0]]) for line in lines))
        for one, places in zip(routes.values(), first, strict=True)
    )
    if not any(one.differs_by_row for one in routes.values()):
        return purchases, systems, ()
    by_row = tuple(
        () if not one.differs_by_row else tuple(_share(line, listed, bought) for line in lines)
        for (one, _), bought in zip(at, shares, strict=True)
    )
    return purchases, systems, by_row


def _price_list(
    prices: PriceList | None, feature_names: Sequence[str] | None, routes: Mapping[int, Routes]
) -> PriceList:
    """The price list, or one that knows no prices, with all the columns that the systems read."""
    n_read = 1 + max((int(c) for one in routes.values() for stage in one.columns for c in stage), default=-1)
    n_named = n_read if feature_names is None else len(feature_names)
    n_features = n_named if prices is None else prices.n_features
    if n_read > n_features:
        raise InvalidInputError(
            f"the frontier's systems read column {n_read - 1}, and there are only {n_features} columns "
            f"{'with a name' if prices is None else 'in the price list'}. Give those of the frontier's systems."
        )
    return PriceList(np.zeros(n_features), np.arange(n_features)) if prices is None else prices


def _check_prices_explain(prices: PriceList, shares: Floats, sent: float, cost: float, place: int) -> None:
    """Refuse prices that do not add up to what the rows paid."""
    explained = prices.mean_cost(shares, sent)
    if abs(explained - cost) > 1e-6 * max(1.0, abs(cost)):
        raise InvalidInputError(
            f"prices explain a mean cost of {explained:.6g} per row for system {place}, but its rows paid {cost:.6g}. "
            f"Give the price list of the frontier's systems."
        )


def _names(
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


def _arranged(firsts: Sequence[Ints], n_stages: Sequence[int], prices: PriceList) -> list[Ints]:
    """Lines of the page, in its order: the numbers of the purchases that each shows.

    What most systems buy comes first, then what they buy first. Of purchases that no stage makes, many share a line:
    those that the full model reads, and those that nobody does.

    Parameters
    ----------
    firsts : sequence of ndarray of shape (n_purchases,)
        For each system, the place at which it first buys each purchase.
    n_stages : sequence of int
        For each system, the place of the full model.
    prices : PriceList
        What purchases cost: of those that are bought at one place, the cheapest comes first.
    """
    first, last = np.array(firsts), np.array(n_stages)[:, None]
    popularity = (first < last).sum(axis=0)
    is_unread: Bools = np.all(first > last, axis=0)
    stage = np.where(first < last, first, 0).sum(axis=0) / np.maximum(popularity, 1)
    order = np.lexsort((prices.prices, is_unread, stage, -popularity))
    n_bought = int((popularity > 0).sum())
    if len(order) - n_bought <= _MOST_UNBOUGHT:
        return [np.array([group]) for group in order]
    rest = order[n_bought:]
    together = (rest[~is_unread[rest]], rest[is_unread[rest]])
    return [*(np.array([group]) for group in order[:n_bought]), *(some for some in together if len(some))]


def _purchase(
    line: Ints, prices: PriceList, names: Sequence[str], is_priced: bool, is_read: bool
) -> Purchase:
    """What a line of the page says about its purchases."""
    n_columns = int(np.isin(prices.group_of, line).sum())
    price = float(prices.prices[line].sum()) if is_priced else None
    if len(line) == 1:
        return Purchase(names[line[0]], price, n_columns)
    who = "the full model only" if is_read else "nobody"
    return Purchase(f"{len(line)} others, read by {who}", price, n_columns)


def _share(line: Ints, prices: PriceList, shares: Floats) -> float:
    """Share of the rows that pay for a line; where that differs among its purchases, of the money it costs."""
    weight = prices.prices[line] if prices.prices[line].any() else np.ones(len(line))
    return float(np.average(shares[line], weights=weight))


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


def _in_words(settings: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )
