"""Where each row of a report went, whether its answer was right, and what was bought on the way.

A row visits the stages of its system in order and stops at its *place*; the last place is the full model. A purchase
belongs to the first stage that reads it, and every row that gets there pays for it. So the share of rows that buy
something is the share of rows that get to its stage, unless a model reads other columns of other rows and says which.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence, yes_or_no
from thrifty.evidence.observe import chain_of, table_for
from thrifty.prices.billing import PriceList

__all__ = ["Routes", "routes_of"]


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
    if is_known and hasattr(estimator, "bought"):
        asked = estimator.bought(table_for(estimator, X))
        _check_rows(len(asked) == len(one.gate) and not one.gate.any(), place)
        return Routes(one, np.ones(len(one.gate), dtype=np.intp), (one.columns_at(0),), asked)
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
    bought, prices = chain.bought_by_place, chain.price_list
    if chain.has_forks:
        by_row = chain.held_by_stage(chain.reader(X))
        some = tuple(np.flatnonzero(rows.any(axis=0)) for rows in by_row)
        return some, None, chain.n_stages, by_row
    held = tuple(np.flatnonzero(bought[stage]) for stage in range(chain.n_stages))
    if not chain.buys_by_row:
        return held, None, chain.n_stages, None
    reader = chain.reader(X)
    asked = np.zeros((reader.n_samples, prices.n_features), dtype=bool)
    model = getattr(chain.innermost, "estimator", chain.innermost)
    asked[:, prices.read_by_full] = model.bought(
        reader.table(np.arange(reader.n_samples), prices.full_columns)
    )
    return held, asked, chain.n_stages, None


def _check_rows(fits: bool, place: int) -> None:
    if not fits:
        raise InvalidInputError(
            f"estimators[{place}] does not send the rows X where evidence[{place}] says they went. Give the rows of "
            f"the frontier, and the estimators it was made from, in the same order."
        )
