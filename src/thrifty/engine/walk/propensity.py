"""Probabilities of the purchases that rows made, which receipts keep: a later fit learns from what was bought.

**Whether a row makes a purchase depends on what it has bought before, and on chance that is known:** which of two mixed
operating points its key follows, and whether it explores (``Policy.explore``). So the probability of getting to a place
is known from the gate scores up to there, and that of a purchase, given those before it, is the ratio of two of them.
"""

from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.purchases.receipts import PurchaseReader
from thrifty.engine.walk.stage import nodes_of
from thrifty.engine.walk.walk import Walk


def purchases_of(
    chain: Any, reader: PurchaseReader, walk: Walk, held: Bools | None = None, to_full: Floats | None = None
) -> tuple[Ints, Floats]:
    """Number of the purchase that brought each column, and its probability given those before; (n_rows, n_features).

    ``reader`` has the visits of the walk, before rows fell back to an earlier stage. Purchases count from 1, 0 is a
    column that was not bought; those that come together share a probability: it is that of the first, and the others
    have 1. Columns without a price count as held from the start, and so do cells that are ``held``. ``to_full`` has the
    probability with which each row is sent through all stages of the chain, whatever its gates say.
    """
    n_rows = len(walk.rows)
    made, to_full = _Made(chain, n_rows, held), np.zeros(n_rows) if to_full is None else to_full
    _follow(chain, reader, walk, made, np.arange(n_rows), np.ones(n_rows), to_full)
    return made.number, made.chance


class _Made:
    """Purchases of rows so far, and the probability of having made them."""

    def __init__(self, chain: Any, n_rows: int, held: Bools | None) -> None:
        prices = chain.price_list
        self.group_of = prices.group_of
        self.is_free: Bools = prices.prices[prices.group_of] == 0.0
        self.number = np.zeros((n_rows, prices.n_features), dtype=np.int32)
        self.chance = np.ones((n_rows, prices.n_features))
        if held is not None:
            self.number[held] = 1
        self._n_made = self.number.max(axis=1, initial=0)
        self._so_far = np.ones(n_rows)

    def buy(self, rows: Ints, columns: Ints, chance: Floats) -> None:
        """Add the purchases of some columns by rows that got where they are read with some probability."""
        brings = np.flatnonzero(np.isin(self.group_of, self.group_of[columns]))
        lacks = self.number[np.ix_(rows, brings)] == 0
        for free in (True, False):
            for group in dict.fromkeys(self.group_of[brings].tolist()):
                of_group = brings[self.group_of[brings] == group]
                if self.is_free[of_group[0]] != free:
                    continue
                new = lacks[:, self.group_of[brings] == group].any(axis=1)
                self._n_made[rows[new]] += 1
                self.number[np.ix_(rows[new], of_group)] = self._n_made[rows[new], None]
                if not free:
                    given = chance[new] / self._so_far[rows[new]]
                    self.chance[np.ix_(rows[new], of_group)] = given[:, None]
                    self._so_far[rows[new]] = chance[new]


def _follow(
    chain: Any, reader: PurchaseReader, walk: Walk, made: _Made, rows: Ints, start: Floats, to_full: Floats
) -> None:
    """Add the purchases of rows on their way through one chain, and through those behind it.

    ``rows`` are the places of the rows of ``walk`` among all, ``start`` their probabilities of getting to this chain.
    """
    policy, n_own = chain.policy, chain.n_own_stages

    def reached(place: int, visitors: Ints) -> Floats:
        by_gates: Floats = policy.reached(place, stops[visitors])
        return start[visitors] * (to_full[visitors] + (1.0 - to_full[visitors]) * by_gates)

    in_force = [point for _, point in policy.in_force]
    stops = np.full((len(rows), len(in_force)), n_own)
    node = np.zeros(len(rows), dtype=np.intp)
    for place, stage in enumerate(chain.stages):
        visitors: Ints = np.flatnonzero(walk.route >= place)
        if not len(visitors):
            return
        chance = reached(place, visitors)
        of_stage = nodes_of(stage)
        for number, one in enumerate(of_stage):
            here = np.flatnonzero(node[visitors] == number) if len(of_stage) > 1 else np.arange(len(visitors))
            made.buy(rows[visitors[here]], one.columns, chance[here])
        visit, gate = (reader.visited or {})[id(stage)]
        node[visitors] = 0 if visit.turn is None else visit.turn
        for point, threshold in enumerate(policy.thresholds[in_force, place]):
            stays = visitors[(stops[visitors, point] == n_own) & (gate <= threshold)]
            stops[stays, point] = place
    inner = None if chain.behind is None else walk.behind
    # Of a row that failed at the first stage of a chain behind, the route ends before it.
    sent = np.flatnonzero(walk.route >= n_own if inner is None else np.isin(walk.rows, inner.rows))
    chance = reached(n_own, sent)
    if inner is not None:
        _follow(chain.behind, reader, inner, made, rows[sent], chance, np.zeros(len(sent)))
    elif len(sent):
        made.buy(rows[sent], chain.price_list.read_by_full, chance)
