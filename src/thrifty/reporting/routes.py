"""Where each row of a report went, whether its answer was right, and what was bought on the way.

A row visits the stages of its system in order and stops at its *place*; the last place is the full model. A purchase
belongs to the first stage that reads it, and every row that gets there pays for it. So the share of rows that buy
something is the share of rows that get to its stage, unless a model reads other columns of other rows and says which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence, yes_or_no
from thrifty.evidence.observe import chain_of
from thrifty.prices.billing import PriceList
from thrifty.reporting.facts import Purchase, System

__all__ = ["Routes", "purchases_of", "routes_of"]


@dataclass(frozen=True)
class Routes:
    """Places and answers of one system's rows.

    Attributes
    ----------
    evidence : Evidence
        What the frontier holds about the system.
    behind : ndarray of shape (n_samples,)
        The place of each row once it is beyond the stages of the evidence.
    columns : tuple of ndarray
        Columns that a row holds at each place before the full model; those that some row does, where rows differ.
    asked : ndarray of shape (n_samples, n_features), optional
        Columns that a model reads of each row, where it does not read the same ones of all.
    asked_at : int
        The place of that model.
    held : tuple of ndarray of shape (n_samples, n_features), optional
        Columns that each row holds at each place, where that differs from row to row.
    """

    evidence: Evidence
    behind: Ints
    columns: tuple[Ints, ...]
    asked: Bools | None = None
    asked_at: int = 0
    held: tuple[Bools, ...] | None = None

    @property
    def differs_by_row(self) -> bool:
        """Whether rows at one place do not all buy the same."""
        return self.asked is not None or self.held is not None

    @property
    def n_stages(self) -> int:
        """Cheap stages, which is also the place of the full model."""
        return len(self.columns)

    def place(self, point: Floats) -> Ints:
        """Where each row stops."""
        route, _, _ = self.evidence.at_point(point)
        return np.where(route == self.evidence.n_stages, self.behind, route)

    def right(self, point: Floats) -> Bools:
        """Whether each row is answered correctly."""
        route, _, quality = self.evidence.at_point(point)
        if self.evidence.right is None:
            return yes_or_no("quality", quality)
        right: Bools = self.evidence.right[np.arange(len(route)), route]
        return right

    def scores(self, point: Floats) -> Floats | None:
        """Score of each row's answer, where that is known."""
        if self.evidence.scores is None:
            return None
        route, _, _ = self.evidence.at_point(point)
        scores: Floats = self.evidence.scores[np.arange(len(route)), route]
        return scores

    def first_bought(self, prices: PriceList) -> Ints:
        """Place at which each purchase is first bought; what nobody reads comes behind the full model."""
        first = np.full(len(prices.prices), self.n_stages + 1, dtype=np.intp)
        first[prices.bought_groups(prices.read_by_full)] = self.n_stages
        for place, columns in reversed(list(enumerate(self.columns))):
            first[prices.bought_groups(columns)] = place
        return first

    def reach(self, point: Floats) -> Floats:
        """Share of the rows that get to each place."""
        stopped = np.bincount(self.place(point), minlength=self.n_stages + 1)
        return stopped[::-1].cumsum()[::-1] / len(self.behind)

    def shares(self, point: Floats, prices: PriceList) -> Floats:
        """Share of the rows that make each purchase."""
        shares: Floats
        if self.held is not None:
            return self._shares_of_held(self.held, point, prices)
        if self.asked is None:
            shares = np.r_[self.reach(point), 0.0][self.first_bought(prices)]
            return shares
        place = self.place(point)
        bought = np.zeros((len(place), len(prices.prices)), dtype=bool)
        for stage, columns in enumerate(self.columns):
            if stage != self.asked_at:
                bought[place >= stage] |= prices.bought_groups(columns)
        here = np.flatnonzero(place == self.asked_at)
        for column, group in enumerate(prices.group_of):
            bought[here, group] |= self.asked[here, column]
        shares = bought.mean(axis=0)
        return shares

    def _shares_of_held(self, held: tuple[Bools, ...], point: Floats, prices: PriceList) -> Floats:
        """Shares where rows at one place hold different columns."""
        place, rows = self.place(point), np.arange(len(self.behind))
        last = held[-1].copy()
        last[:, prices.read_by_full] = True
        used = np.stack([*held, last])[place, rows]
        bought = np.zeros((len(rows), len(prices.prices)), dtype=bool)
        for column, group in enumerate(prices.group_of):
            bought[:, group] |= used[:, column]
        shares: Floats = bought.mean(axis=0)
        return shares


def routes_of(
    evidence: Sequence[Evidence], used: Sequence[int], estimators: Sequence[Any] | None, X: Any
) -> dict[int, Routes]:
    """Routes of the systems that a frontier uses, by their place in it."""
    if estimators is not None and len(estimators) != len(evidence):
        raise InvalidInputError(
            f"estimators must be those of the frontier's {len(evidence)} systems, in the same order; "
            f"got {len(estimators)}."
        )
    return {
        place: _routes(evidence[place], None if estimators is None else estimators[place], X, place)
        for place in used
    }


def _routes(one: Evidence, estimator: Any, X: Any, place: int) -> Routes:
    is_known = estimator is not None and X is not None
    if is_known and not one.is_fixed:
        return _in_front(one, chain_of(estimator), X, place)
    chain = getattr(estimator, "chain_", estimator)
    if is_known and hasattr(chain, "stages"):
        return _as_it_is(one, chain, X, place)
    if _differs_by_row(one):
        raise InvalidInputError(
            f"evidence[{place}] is of a chain in front of another one, or of a system whose rows do not all buy the "
            f"same, and does not say what each row buys. Give `estimators` and `X`."
        )
    columns = tuple(one.columns_at(stage) for stage in range(one.n_stages))
    return Routes(one, np.full(len(one.gate), one.n_stages, dtype=np.intp), columns)


def _differs_by_row(one: Evidence) -> bool:
    """Whether rows that are answered at the same place paid different prices."""
    if not one.is_fixed:
        return one.cost.ndim == 2
    sent = one.gate[:, 0] > 0.5
    paid = [one.cost[sent == side, 0] for side in (False, True)]
    return any(bool(np.ptp(cost) > 1e-9 * max(1.0, cost.max())) for cost in paid if cost.size)


def _in_front(one: Evidence, chain: Any, X: Any, place: int) -> Routes:
    """Stages of the evidence, and where each row stops in a chain behind them, if there is one."""
    n_own, inner = one.n_stages, chain.behind
    route = np.zeros(len(one.gate), dtype=np.intp) if inner is None else inner.route(X)
    _check_rows(len(route) == len(one.gate) and set(one.features) == set(chain.columns.tolist()), place)
    return Routes(one, n_own + route, *_columns(chain, X))


def _as_it_is(one: Evidence, chain: Any, X: Any, place: int) -> Routes:
    """A point as it is: its gate says only who got to the full model, so the chain says where the others stopped."""
    route = chain.route(X)
    sent = one.gate[:, 0] > 0.5
    _check_rows(len(route) == len(one.gate) and np.array_equal(route == chain.n_stages, sent), place)
    return Routes(replace(one, gate=np.ones((len(one.gate), 1))), route, *_columns(chain, X))


def _columns(chain: Any, X: Any) -> tuple[tuple[Ints, ...], Bools | None, int, tuple[Bools, ...] | None]:
    """Columns held at each place, and those that the full model reads of each row, if that differs."""
    bought = chain.bought_by_place
    if chain.has_forks:
        by_row = chain.held_by_stage(chain.reader(X))
        some = tuple(np.flatnonzero(rows.any(axis=0)) for rows in by_row)
        return some, None, chain.n_stages, by_row
    held = tuple(np.flatnonzero(bought[stage]) for stage in range(chain.n_stages))
    return held, None, chain.n_stages, None


def _check_rows(fits: bool, place: int) -> None:
    if not fits:
        raise InvalidInputError(
            f"estimators[{place}] does not send the rows X where evidence[{place}] says they went. Give the rows of "
            f"the frontier, and the estimators it was made from, in the same order."
        )


# -- purchases ----------------------------------------------------------------------------------


_MOST_UNBOUGHT = 30
"""Purchases that no stage makes and that get a line of their own; more are shown together."""


def purchases_of(
    prices: PriceList | None,
    feature_names: Sequence[str] | None,
    routes: Mapping[int, Routes],
    at: Sequence[tuple[Routes, Floats]],
    cost: Floats,
) -> tuple[tuple[Purchase, ...], tuple[System, ...], tuple[tuple[float, ...], ...]]:
    """What is bought, where each system first buys it, and what its places do not tell about who does.

    All of that is checked against what the rows paid.
    """
    listed = _price_list(prices, feature_names, routes)
    names = _names(listed, feature_names)
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


def _names(prices: PriceList, feature_names: Sequence[str] | None) -> list[str]:
    """A name per purchase: those of its columns."""
    n_features = prices.n_features
    columns = [f"feature {column}" for column in range(n_features)]
    if feature_names is not None:
        columns = [str(name) for name in feature_names]
    if len(columns) != n_features:
        raise InvalidInputError(
            f"feature_names must hold one name per column, {n_features} in all; got {len(columns)}."
        )
    return [
        _joined([columns[column] for column in np.flatnonzero(prices.group_of == group)])
        for group in range(len(prices.prices))
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


def _joined(names: list[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _in_words(settings: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )
