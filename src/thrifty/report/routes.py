"""Where each row of a report went, whether its answer was right, and what was bought on the way.

A row visits the stages of its system in order and stops at its *place*; the last place is the full model. A purchase
belongs to the first stage that reads it, and every row that gets there pays for it. So the share of rows that buy
something is the share of rows that get to its stage, and prices times shares add up to the mean cost. They are made
to: facts about purchases that do not explain what the rows paid are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.evidence.checks import yes_or_no
from thrifty.evidence.evidence import Evidence
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import PriceList
from thrifty.report.facts import Purchase

__all__ = ["MOST_UNBOUGHT", "Routes", "arrange", "check_prices_explain", "names_of", "routes_of", "unpriced"]

MOST_UNBOUGHT = 30
"""Purchases that only the full model makes and that get a line of their own; more are shown together."""


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
        Columns that a row holds at each place before the full model.
    """

    evidence: Evidence
    behind: Ints
    columns: tuple[Ints, ...]

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
        return yes_or_no("quality", self.evidence.at_point(point)[2])

    def scores(self, point: Floats) -> Floats | None:
        """Score of each row's answer, where that is known."""
        if self.evidence.scores is None:
            return None
        route, _, _ = self.evidence.at_point(point)
        scores: Floats = self.evidence.scores[np.arange(len(route)), route]
        return scores

    @property
    def full_right(self) -> Bools | None:
        """Whether the full model is right on each row, where that is known."""
        full = self.evidence.full_quality
        return None if full is None else yes_or_no("full_quality", full)

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
    chain = getattr(estimator, "chain_", estimator)
    n_own, n_rows = one.n_stages, one.n_rows
    columns = tuple(one.columns_at(stage) for stage in range(n_own))
    inner = getattr(chain, "behind", None)
    if one.is_fixed and X is not None and hasattr(chain, "stages"):
        return _as_it_is(one, chain, X, place)
    if inner is None or X is None or one.is_fixed:
        if not one.is_fixed and one.cost.ndim == 2 and estimator is None:
            raise InvalidInputError(
                f"evidence[{place}] is of a chain in front of another one, and does not say where each row stops "
                f"there. Give `estimators` and `X`."
            )
        return Routes(one, np.full(n_rows, n_own, dtype=np.intp), columns)
    route = np.asarray(inner.route(X), dtype=np.intp)
    _check_rows(len(route) == n_rows, place)
    bought = inner.bought_by_route
    held = tuple(np.union1d(columns[-1], np.flatnonzero(bought[stage])) for stage in range(inner.n_stages))
    return Routes(one, n_own + route, (*columns, *held))


def _as_it_is(one: Evidence, chain: Any, X: Any, place: int) -> Routes:
    """A point as it is: its gate says only who got to the full model, so the chain says where the others stopped."""
    route = np.asarray(chain.route(X), dtype=np.intp)
    sent = one.gate[:, 0] > 0.5
    _check_rows(len(route) == one.n_rows and np.array_equal(route == chain.n_stages, sent), place)
    bought = chain.bought_by_route
    columns = tuple(np.flatnonzero(bought[stage]) for stage in range(chain.n_stages))
    return Routes(replace(one, gate=np.ones((one.n_rows, 1))), route, columns)


def _check_rows(fits: bool, place: int) -> None:
    if not fits:
        raise InvalidInputError(
            f"estimators[{place}] does not send the rows X where evidence[{place}] says they went. Give the rows of "
            f"the frontier, and the estimators it was made from, in the same order."
        )


def check_prices_explain(prices: PriceList, first: Ints, reach: Floats, cost: float, place: int) -> None:
    """Refuse prices that do not add up to what the rows paid."""
    explained = float(prices.prices @ np.r_[reach, 0.0][first]) + prices.full_cost * float(reach[-1])
    if abs(explained - cost) > 1e-6 * max(1.0, abs(cost)):
        raise InvalidInputError(
            f"prices explain a mean cost of {explained:.6g} per row for system {place}, but its rows paid {cost:.6g}. "
            f"Give the price list of the frontier's systems; for a system of several stages also `estimators` and `X`."
        )


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
