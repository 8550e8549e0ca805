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
from thrifty.evidence.outcomes import Outcomes, PointOutcomes, RowOutcomes
from thrifty.evidence.row_checks import yes_or_no
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
    outcomes : RowOutcomes or PointOutcomes
        What the frontier holds about the system.
    behind : ndarray of shape (n_samples,)
        The place of each row once it is sent on; of a single point, its place.
    columns : tuple of ndarray
        Columns that each stage reads, by stage.
    """

    outcomes: RowOutcomes | PointOutcomes
    behind: Ints
    columns: tuple[Ints, ...]

    @property
    def n_stages(self) -> int:
        """Cheap stages, which is also the place of the full model."""
        return len(self.columns)

    def place(self, threshold: float) -> Ints:
        """Where each row stops."""
        if isinstance(self.outcomes, PointOutcomes):
            return self.behind
        return np.where(self.outcomes.g > threshold, self.behind, 0)

    def right(self, threshold: float) -> Bools:
        """Whether each row is answered correctly."""
        one = self.outcomes
        if isinstance(one, PointOutcomes):
            return yes_or_no("right", one.right)
        return np.where(
            one.g > threshold, yes_or_no("go_right", one.go_right), yes_or_no("stop_right", one.stop_right)
        )

    @property
    def full_right(self) -> Bools | None:
        """Whether the full model is right on each row, where that is known."""
        one = self.outcomes
        if one.full_right is None and isinstance(one, RowOutcomes):
            return yes_or_no("go_right", one.go_right)
        return None if one.full_right is None else yes_or_no("full_right", one.full_right)

    def first_bought(self, prices: PriceList) -> Ints:
        """Place at which each purchase is first bought; the full model reads everything."""
        first = np.full(len(prices.prices), self.n_stages, dtype=np.intp)
        for place, columns in reversed(list(enumerate(self.columns))):
            first[prices.bought_groups(columns)] = place
        return first

    def reach(self, threshold: float) -> Floats:
        """Share of the rows that get to each place."""
        stopped = np.bincount(self.place(threshold), minlength=self.n_stages + 1)
        return stopped[::-1].cumsum()[::-1] / len(self.behind)


def routes_of(
    outcomes: Sequence[Outcomes], used: Sequence[int], estimators: Sequence[Any] | None, X: Any
) -> dict[int, Routes]:
    """Routes of the systems that a frontier uses, by their place in it."""
    if estimators is not None and len(estimators) != len(outcomes):
        raise InvalidInputError(
            f"estimators must be those of the frontier's {len(outcomes)} systems, in the same order; "
            f"got {len(estimators)}."
        )
    return {
        place: _routes(outcomes[place], None if estimators is None else estimators[place], X, place)
        for place in used
    }


def _routes(one: Outcomes, estimator: Any, X: Any, place: int) -> Routes:
    cheap = np.asarray(one.features, dtype=np.intp)
    if isinstance(one, RowOutcomes) and one.sends_to_full:
        return Routes(one, np.ones(one.n_rows, dtype=np.intp), (cheap,))
    if isinstance(one, PointOutcomes) and (estimator is None or X is None):
        return Routes(one, one.sent.astype(np.intp), (cheap,))
    if not isinstance(one, RowOutcomes | PointOutcomes):
        raise InvalidInputError(
            f"outcomes[{place}] must be RowOutcomes or PointOutcomes; got {type(one).__name__}."
        )
    if estimator is None or X is None:
        raise InvalidInputError(
            f"outcomes[{place}] are of a chain of several stages, and do not say where each row stops. "
            f"Give `estimators` and `X`."
        )
    system = estimator.system_
    columns = tuple(np.asarray(stage.scorer.columns, dtype=np.intp) for stage in system.stages)
    if isinstance(one, PointOutcomes):
        behind = np.asarray(system.route(X), dtype=np.intp)
        fits = len(behind) == one.n_rows and np.array_equal(behind == len(columns), one.sent.astype(bool))
    else:
        behind = 1 + np.asarray(replace(system, stages=system.stages[1:]).route(X), dtype=np.intp)
        fits = len(behind) == one.n_rows
    if not fits:
        raise InvalidInputError(
            f"estimators[{place}] does not send the rows X where outcomes[{place}] say they went. Give the rows of the "
            f"frontier, and the estimators it was made from, in the same order."
        )
    return Routes(one, behind, columns)


def check_prices_explain(prices: PriceList, first: Ints, reach: Floats, cost: float, place: int) -> None:
    """Refuse prices that do not add up to what the rows paid."""
    explained = float(prices.prices @ reach[first]) + prices.full_cost * float(reach[-1])
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
