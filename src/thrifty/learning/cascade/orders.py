"""In which order to buy: candidate orders of purchases, and where along them a row may stop.

A good order puts first what earns most per unit of price *together with what is bought before it*. That is a search
over all orders, so there are three cheap guesses, and whoever asks compares them on rows they were not made on:

``by_gain``
    What all splits on a purchase's columns gained in one ensemble that reads everything, per unit of its price.
``by_elimination``
    From the back: the ensemble is grown on what is left, and what gained least per unit of price goes. Two
    purchases that say the same share their gain in the first list; here one of them goes and the other inherits it.
``by_falling_price``
    Splits pay ``gamma`` times the price of what they buy, and gamma falls from tree to tree.

A purchase is a group of columns with one price. Columns that cost nothing are held from the start, and in no order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.learning.cascade.staged import total_gains
from thrifty.learning.pairs.boosted import Boosting
from thrifty.objective.costs import PriceList
from thrifty.tasks.task import Loss
from thrifty.trees import BinnedTable

__all__ = [
    "ORDERS",
    "Learner",
    "by_elimination",
    "by_falling_price",
    "by_gain",
    "nested_sets",
    "stopping_places",
]


DROPPED_SHARE = 0.12
"""Share of the purchases that one round of elimination drops, at least one: rounds grow with the logarithm."""

GAMMA_RANGE = 1e-5
"""Last gamma of a falling price, as a share of the first."""

EVERY_PLACE = 7
"""Where purchases are many, each of the first so many may be the last; then come steps of a quarter."""


@dataclass(frozen=True)
class Learner:
    """The rows that an order is made from, and how trees are grown on them."""

    table: BinnedTable
    loss: Loss
    counts: Floats
    price_list: PriceList
    boosting: Boosting

    @property
    def priced(self) -> Ints:
        """Purchases that cost something."""
        return np.flatnonzero(self.price_list.prices > 0)

    def columns_with(self, purchases: Ints) -> Ints:
        """Columns that are free or delivered by one of these purchases."""
        held = self.price_list.prices == 0
        held[purchases] = True
        return np.flatnonzero(held[self.price_list.group_of])

    def gain_per_price(self, purchases: Ints) -> Floats:
        """What each of these purchases gains per unit of price in an ensemble that holds them and what is free."""
        gains = total_gains(self.table, self.loss, self.counts, self.columns_with(purchases), self.boosting)
        n_purchases = len(self.price_list.prices)
        per_purchase = np.bincount(self.price_list.group_of, weights=gains, minlength=n_purchases)
        worth: Floats = per_purchase[purchases] / self.price_list.prices[purchases]
        return worth


def by_gain(learner: Learner) -> Ints:
    """Purchases by falling gain per unit of price in one ensemble that reads everything."""
    purchases = learner.priced
    return purchases[np.argsort(-learner.gain_per_price(purchases), kind="stable")]


def by_elimination(learner: Learner) -> Ints:
    """Purchases in the opposite order of their elimination, the least gain per unit of price first."""
    left = learner.priced
    dropped: list[int] = []
    while len(left):
        rising = np.argsort(learner.gain_per_price(left), kind="stable")
        n_out = max(1, int(DROPPED_SHARE * len(left)))
        dropped.extend(int(left[place]) for place in rising[:n_out])
        left = np.sort(left[rising[n_out:]])
    return np.array(dropped[::-1], dtype=np.intp)


def by_falling_price(learner: Learner) -> Ints:
    """Purchases in the order in which trees buy them while gamma falls; what is never bought comes by gain."""
    start = learner.gain_per_price(learner.priced)
    by_worth = learner.priced[np.argsort(-start, kind="stable")]
    highest = float(start.max()) if len(start) else 0.0
    if highest <= 0.0:
        return by_worth
    boosting, loss = learner.boosting, learner.loss
    grower = boosting.grower(learner.table, learner.price_list)
    score = np.tile(loss.base(learner.counts), (learner.table.n_rows, 1))
    bought: list[int] = []
    rank = {int(purchase): place for place, purchase in enumerate(by_worth)}
    for gamma in np.geomspace(highest, highest * GAMMA_RANGE, boosting.n_trees):
        grower.reset(gamma=float(gamma))
        grown = boosting.grow_tree(grower, *loss.derivatives(score), learner.counts)
        grown.add_to(score)
        new = [int(purchase) for purchase in grown.bought_groups if int(purchase) in rank]
        bought.extend(sorted(new, key=rank.__getitem__))
    rest = [int(purchase) for purchase in by_worth if int(purchase) not in set(bought)]
    return np.array(bought + rest, dtype=np.intp)


ORDERS: dict[str, Callable[[Learner], Ints]] = {
    "elimination": by_elimination,
    "gain": by_gain,
    "falling price": by_falling_price,
}
"""Every way to make an order, by name; the first is the one to begin with."""


def stopping_places(n_purchases: int, most: int) -> Ints:
    """After how many purchases a row may stop: each if they are few, else the first, some others and the last.

    Where these would be more than ``most``, some are left out evenly; the first and the last stay.
    """
    if n_purchases <= most:
        return np.arange(1, n_purchases + 1, dtype=np.intp)
    places = list(range(1, min(n_purchases, EVERY_PLACE) + 1))
    while places and places[-1] < n_purchases:
        step = max(1, round(places[-1] / 4))
        places.append(min(n_purchases, places[-1] + step))
    if len(places) > most:
        kept = np.unique(np.round(np.linspace(0, len(places) - 1, most)).astype(int))
        places = [places[place] for place in kept] if most > 1 else [places[-1]]
    return np.array(places, dtype=np.intp)


def nested_sets(order: Ints, places: Sequence[int] | Ints, price_list: PriceList) -> tuple[Ints, ...]:
    """Columns of each stage: what is free, then the columns of the first purchases, in their order.

    Where something is free, there is a stage in front that holds only that.
    """
    group_of = price_list.group_of
    free = np.flatnonzero(price_list.prices[group_of] == 0)
    in_order = [np.flatnonzero(group_of == purchase) for purchase in order]
    sets = [np.concatenate([free, *in_order[:place]]).astype(np.intp) for place in places]
    return (free, *sets) if len(free) else tuple(sets)
