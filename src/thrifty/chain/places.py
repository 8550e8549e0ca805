"""The places at which rows are answered: what a row holds there, and what it has paid.

Places are the nodes of the stages, one after the other, then those of a chain behind them; the last is the full model.
What a row holds is a function of its place. So is what it pays, unless prices differ by row, or the full model does not
read the same columns of every row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.chain.fork import nodes_of
from thrifty.chain.sources import Reader, amounts_of
from thrifty.chain.walk import Walk, Walker
from thrifty.full.model import BuysByRow, EstimatorFull, FullModel
from thrifty.prices.billing import PriceList

__all__ = ["Places"]


@dataclass(frozen=True, eq=False)
class Places:
    """The places of a chain.

    Attributes
    ----------
    walker : Walker
        Sends rows through the stages of the chain.
    price_list : PriceList
        What purchases cost, and what the full model reads.
    names : tuple of str or None
        Names of the columns, for refusals.
    model : FullModel
        The model at the end of all chains.
    behind : Places or None
        Those of a chain in the place of the full model.
    """

    walker: Walker
    price_list: PriceList
    names: tuple[str, ...] | None
    model: FullModel
    behind: "Places | None"

    @cached_property
    def n_stages(self) -> int:
        """Number of stages in front of the full model, which is also its place in a route."""
        return len(self.walker.stages) + (self.behind.n_stages if self.behind else 0)

    @cached_property
    def has_forks(self) -> bool:
        """Whether what a row holds at a stage may differ from row to row, here or in a chain behind."""
        return self.walker.has_forks or (self.behind is not None and self.behind.has_forks)

    @property
    def buys_by_row(self) -> bool:
        """Whether the model at the end does not read the same columns of every row."""
        return isinstance(self._asked, BuysByRow)

    @property
    def _asked(self) -> Any:
        """Whoever answers at the end: an estimator, or the model itself."""
        return self.model.estimator if isinstance(self.model, EstimatorFull) else self.model

    @cached_property
    def _first(self) -> Ints:
        """Number of the first node of each own stage and, last, of whatever stands behind them."""
        return np.cumsum([0, *(len(nodes_of(stage)) for stage in self.walker.stages)])

    def of(self, walk: Walk) -> Ints:
        """Where each row was answered; the route where there are no forks."""
        if not self.has_forks:
            return walk.route
        first, n_own = self._first, len(self.walker.stages)
        place: Ints = first[np.minimum(walk.route, n_own)] + np.maximum(walk.route - n_own, 0)
        if walk.node is not None:
            place += np.where(walk.route < n_own, walk.node, 0)
        if self.behind and walk.behind is not None:
            sent = np.flatnonzero(walk.route >= n_own)
            inner = walk.behind.take(np.flatnonzero(np.isin(walk.behind.rows, walk.rows[sent])))
            place[sent] = first[-1] + self.behind.of(inner)
        place[walk.route < 0] = -1
        return place

    @cached_property
    def bought(self) -> Bools:
        """Columns a row holds that was answered at each place: (n_places, n_features)."""
        n_own, first, prices = len(self.walker.stages), self._first, self.price_list
        inner = None if self.behind is None else self.behind.bought
        n_behind = 1 if inner is None else len(inner)
        bought = np.zeros((first[-1] + n_behind, prices.n_features), dtype=bool)
        for number, stage in enumerate(self.walker.stages):
            for node, one in enumerate(nodes_of(stage)):
                bought[first[number] + node, one.columns] = True
        # What was bought before is held; in a graph a node holds the columns of every node that leads to it.
        for number in range(1, n_own):
            if first[number + 1] - first[number] == 1 and first[number] - first[number - 1] == 1:
                bought[first[number]] |= bought[first[number] - 1]
        if n_own:
            bought[first[-1] :] |= bought[first[-1] - 1]
        if inner is None:
            bought[-1, prices.read_by_full] = True
        else:
            bought[first[-1] :] |= inner
        for held in bought if prices.by_row is not None else ():
            held[prices.with_row_prices(np.flatnonzero(held))] = True
        return bought

    @cached_property
    def cost(self) -> Floats:
        """What a row pays that was answered at each place, by the listed prices: (n_places,)."""
        bought = self.bought
        return self.price_list.cost_of_rows(bought, np.arange(len(bought)) == len(bought) - 1)

    # -- rows ------------------------------------------------------------------------------------

    def spent(self, reader: Reader, walk: Walk) -> Floats:
        """What each row of a walk pays."""
        prices, amounts = self.price_list, None
        if prices.by_row is None:
            cost = self.cost[self.of(walk)]
        else:
            used = self.bought[self.of(walk)]
            amounts = amounts_of(prices, reader, walk.rows, used, self.names)
            cost = prices.cost_of_rows(used, walk.route == self.n_stages, amounts)
        sent = np.flatnonzero(walk.route == self.n_stages)
        if sent.size and self.buys_by_row:
            used = np.zeros((len(sent), prices.n_features), dtype=bool)
            if self.n_stages:
                used |= self.bought[-2]
            asked = reader.table(walk.rows[sent], prices.full_columns)
            used[:, prices.read_by_full] |= self._asked.bought(asked)
            some = None if amounts is None else amounts[sent]
            cost[sent] = prices.cost_of_rows(used, np.ones(len(sent), dtype=bool), some)
        return cost

    def walks_to(self, reader: Reader, routes: Sequence[int]) -> list[Walk]:
        """The walks of rows that all get to a route, for each of some; what they score on the way is left out."""
        nodes = self._nodes(reader)
        return [self._walk_to(reader, route, nodes) for route in routes]

    def _nodes(self, reader: Reader) -> list[Ints | None]:
        """Where each row would stand at each stage of all chains; None where there are no forks."""
        if not self.has_forks:
            return [None] * self.n_stages
        seen = self.walker.visit_all(reader).node
        own = [None if seen is None else seen[:, place] for place in range(len(self.walker.stages))]
        return [*own, *(self.behind._nodes(reader) if self.behind else [])]

    def _walk_to(self, reader: Reader, route: int, nodes: Sequence[Ints | None]) -> Walk:
        rows, n_own, inner = np.arange(reader.n_samples), len(self.walker.stages), None
        if self.has_forks and self.behind and route >= n_own:
            inner = self.behind._walk_to(reader, route - n_own, nodes[n_own:])
        everyone, nothing = np.full(len(rows), route), np.empty((len(rows), 0))
        return Walk(rows, everyone, nothing, inner, nodes[route] if route < n_own else None)
