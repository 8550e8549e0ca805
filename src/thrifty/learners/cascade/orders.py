"""Candidate orders of purchases.

A good order puts first what gains most per unit of price *together with what is bought before it*. The best order
would take a search over all of them, so there are a few cheap candidates, compared by ``cascade/plan.py`` on held-out
rows:

``by_gain``
    Total gain of the splits on a purchase's columns in one ensemble that reads everything, per unit of its price.
``by_elimination``
    Backward elimination: the ensemble is grown on what is left, and what gained least per unit of price goes. Two
    redundant purchases share their gain in ``by_gain``; here one of them goes and the other inherits it.
``by_falling_price``
    Splits pay ``gamma`` times the price of what they buy, and gamma falls from tree to tree.
``by_forward_selection``
    Forward selection: next comes the purchase that lowers the held-out loss most, per unit of price, when a few trees
    may use it. In-sample gains mislead where classes are many and some of them rare, so that this is tried there; it
    takes longer than the others together.
``by_code_effects``
    The pair of purchases with the largest held-out gain, then one more at a time, by the mean target of every code of a
    column. Where two columns together say what one of many codes says (coordinates and a zip code), trees over all
    columns prefer the two, and the other orders come to the one late; a small budget buys only one. A candidate where
    its first purchases promise clearly more than those of every other order (``benchmarks/small_budgets.py houses
    --asked 2``: R2 .787 with it and .681 without, means of three splits).

A purchase is a group of columns with one price. Columns that cost nothing are held from the start, and in no order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.trees import BinnedTable
from thrifty.learners.cascade.problem import COMPARISON_ROWS, SEARCH_ROWS, TrainingSet
from thrifty.learners.cascade.stages import grow_more, held_out_gains, total_gains
from thrifty.learners.trees import EnsembleBuilder
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import uniforms

MERGED_BINS = 64
"""Bins of a column of numbers where orders are found and compared, from ``COMPARISON_ROWS`` rows on
(benchmarks.md of 0.3: the decisions of 255 in less time)."""

DROPPED_SHARE = 0.12
"""Share of the purchases that one round of elimination drops, at least one: rounds grow with the logarithm
(no command chose it)."""

GAMMA_RANGE = 1e-5
"""Last gamma of a falling price, as a share of the first: then trees buy what gains a hundred-thousandth as much."""

FORWARD, FORWARD_FLOOR = Boosting(n_trees=6, max_depth=6, learning_rate=0.4), 1e-3
"""Trees that a trial of forward selection adds, and the least gain of a purchase, as a share of the loss
(no command chose them)."""

FORWARD_STEPS, FORWARD_CANDIDATES = 24, 16
"""Purchases that forward selection orders, and those it tries for each; the others follow by gain
(no command chose them)."""

FORWARD_TRIALS = 2
"""Purchases that forward selection tries at least before each, by what they were worth before
(``benchmarks/small_budgets.py satimage context``)."""

MIN_ROWS = 50
"""With fewer rows to grow on or to evaluate on, forward selection would follow chance (no command chose it)."""

EFFECT_PULL, MIN_LEAD = 5.0, 0.05
"""Rows without an effect that are added to those of each code, and the share of the gain of every other order by which
one by effects of codes must be ahead to be a candidate (``benchmarks/small_budgets.py houses --asked 2``)."""

EFFECT_STEPS, EFFECT_CANDIDATES, EFFECT_PAIRED = 4, 48, 8
"""Purchases ordered by effects of codes, the best by themselves that are candidates, and those paired with each
(``benchmarks/small_budgets.py houses --asked 2``)."""


def merged_table(table: BinnedTable) -> BinnedTable:
    """The table in which orders are found and compared: with fewer bins, unless rows are few and a fit is short."""
    return table if table.n_rows < COMPARISON_ROWS else table.with_merged_bins(MERGED_BINS)


@dataclass(frozen=True)
class Learner:
    """Training rows and tree settings from which an order is made."""

    rows: TrainingSet
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
        """Gain per unit of price of these purchases in an ensemble over them and the free columns."""
        gains = total_gains(self.rows, self.columns_with(purchases), self.boosting)
        n_purchases = len(self.price_list.prices)
        per_purchase = np.bincount(self.price_list.group_of, weights=gains, minlength=n_purchases)
        return per_purchase[purchases] / self.price_list.prices[purchases]

    def chance_last(self, order: Ints) -> Ints:
        """The order with purchases that gain nothing on held-out rows at its end; unchanged where rows are few.

        Gains on the rows that trees are grown on favour columns of many values, even where they are chance.
        """
        if self.rows.n_rows < COMPARISON_ROWS:
            return order
        gain = self._held_out_gain_of_all[order]
        behind = np.flatnonzero(gain <= 0.0)
        behind = behind[np.argsort(-gain[behind], kind="stable")]
        return np.concatenate([order[gain > 0.0], order[behind]])

    @cached_property
    def _held_out_gain_of_all(self) -> Floats:
        return self.held_out_gain(self.priced)

    def held_out_gain(self, purchases: Ints) -> Floats:
        """Gain on held-out rows of every purchase, in an ensemble over some of them and the free columns.

        Rounded, as its sign decides.
        """
        gains = held_out_gains(self.rows, self.columns_with(purchases), self.boosting)
        n_purchases = len(self.price_list.prices)
        summed = np.bincount(self.price_list.group_of, weights=gains, minlength=n_purchases)
        return np.round(summed, 6).astype(np.float64)

    @cached_property
    def gain_per_price_of_all(self) -> Floats:
        """Gain per unit of price of each purchase in an ensemble over all columns; most orders begin with it."""
        return self.gain_per_price(self.priced)


def by_gain(learner: Learner) -> Ints:
    """Purchases by falling gain per unit of price in one ensemble that reads everything."""
    purchases, price_list = learner.priced, learner.price_list
    worth = learner.gain_per_price_of_all
    if price_list.discounts is None:
        return purchases[np.argsort(-worth, kind="stable")]
    # A purchase makes those that share its discount cheaper, and then they may be worth more than others.
    gains, bought = worth * price_list.prices[purchases], np.zeros(len(price_list.prices), dtype=bool)
    order: list[int] = []
    while len(order) < len(purchases):
        left = ~bought[purchases]
        per_price = np.where(left, _per_price(gains, price_list.prices_after(bought)[purchases]), -np.inf)
        order.append(int(purchases[np.argmax(per_price)]))
        bought[order[-1]] = True
    return np.array(order, dtype=np.intp)


def _per_price(gains: Floats, prices: Floats) -> Floats:
    """Gain per unit of price; what has become free comes first."""
    return np.where(prices > 0, gains / np.where(prices > 0, prices, 1.0), np.inf)


def by_elimination(learner: Learner, dropped_share: float = DROPPED_SHARE) -> Ints:
    """Purchases in the opposite order of their elimination, the least gain per unit of price first."""
    left, worth = learner.priced, learner.gain_per_price_of_all
    dropped: list[int] = []
    while len(left) > 1:
        rising = np.argsort(worth, kind="stable")
        # Without purchases that no tree uses, the trees would be the same.
        n_out = max(1, int(dropped_share * len(left)), int((worth == 0.0).sum()))
        dropped.extend(int(left[place]) for place in rising[:n_out])
        left = np.sort(left[rising[n_out:]])
        if len(left) > 1:  # the last one left needs no trees
            worth = learner.gain_per_price(left)
    return np.array([*left, *dropped[::-1]], dtype=np.intp)


def by_falling_price(learner: Learner) -> Ints:
    """Purchases in the order in which trees buy them while gamma falls; what is never bought comes by gain."""
    start = learner.gain_per_price_of_all
    by_worth = learner.priced[np.argsort(-start, kind="stable")]
    highest = float(start.max()) if len(start) else 0.0
    if highest <= 0.0:
        return by_worth
    boosting, rows, loss = learner.boosting, learner.rows, learner.rows.loss
    grower = boosting.grower(rows.table, learner.price_list)
    score = np.tile(loss.base(rows.weight), (rows.n_rows, 1))
    builder = EnsembleBuilder(rows.table.n_features, score.shape[1])
    bought: list[int] = []
    rank = {int(purchase): place for place, purchase in enumerate(by_worth)}
    for gamma in np.geomspace(highest, highest * GAMMA_RANGE, boosting.n_trees):
        grower.gamma = float(gamma)
        before = grower.bought
        boosting.add_trees(grower, builder, loss, rows.weight, score, n_trees=1)
        new = [int(purchase) for purchase in np.flatnonzero(grower.bought & ~before) if int(purchase) in rank]
        bought.extend(sorted(new, key=rank.__getitem__))
    rest = [int(purchase) for purchase in by_worth if int(purchase) not in set(bought)]
    return np.array(bought + rest, dtype=np.intp)


def by_forward_selection(learner: Learner) -> Ints:
    """Purchases by what each lowers the held-out loss per unit of price, together with those before it."""
    by_worth = by_gain(learner)
    # Trees are grown on two thirds of some rows, a third is held out.
    chance, share = uniforms(learner.rows.table.codes, 2), min(1.0, SEARCH_ROWS / learner.rows.n_rows)
    grown_on = np.flatnonzero(chance < 2 / 3 * share)
    held_out = np.flatnonzero((chance >= 2 / 3 * share) & (chance < share))
    if min(len(grown_on), len(held_out)) < MIN_ROWS:
        return by_worth
    rows, others, price_list = learner.rows.take(grown_on), learner.rows.take(held_out), learner.price_list

    def mean_loss(scores: Floats) -> float:
        return float(np.average(others.loss.values(scores), weights=others.weight))

    def trial(purchase: int) -> tuple[tuple[Floats, Floats], float]:
        """Scores of both kinds of rows after a few more trees that may use one more purchase, and the loss then."""
        own, of_others = scores[0].copy(), scores[1].copy()
        stage = grow_more(rows, learner.columns_with(np.array([*order, purchase])), FORWARD, own)
        stage.trees().predict_binned(others.table, of_others)
        return (own, of_others), mean_loss(of_others)

    base, order = rows.loss.base(rows.weight), list[int]()
    scores = np.tile(base, (len(grown_on), 1)), np.tile(base, (len(held_out), 1))
    loss, bought = mean_loss(scores[1]), np.zeros(len(price_list.prices), dtype=bool)
    left, worth = [int(purchase) for purchase in by_worth], dict[int, float]()
    while left and len(order) < FORWARD_STEPS:
        tried = sorted(left[:FORWARD_CANDIDATES], key=lambda purchase: -worth.get(purchase, np.inf))
        prices, best, after = price_list.prices_after(bought), tried[0], (scores, loss)
        for number, purchase in enumerate(tried):
            # A purchase is worth less the more is bought before it, mostly: the rest need no trial.
            if number >= FORWARD_TRIALS and worth.get(purchase, np.inf) <= worth[best]:
                break
            tried_scores, lost = trial(purchase)
            # A purchase without a gain of its own may help later ones; then the cheaper one is better.
            gain = np.array(max(loss - lost, FORWARD_FLOOR * loss))
            worth[purchase] = float(_per_price(gain, prices[purchase]))
            if number == 0 or worth[purchase] > worth[best]:
                best, after = purchase, (tried_scores, lost)
        scores, loss = after
        order.append(best)
        bought[best] = True
        left.remove(best)
    return np.array(order + left, dtype=np.intp)


def by_code_effects(learner: Learner, others: Sequence[Ints], budget: float | None = None) -> Ints | None:
    """The best first purchases by effects of codes, then the first of the other orders; None without a clear lead."""
    effects = _CodeEffects(learner, budget)
    first = effects.search()
    order = np.array(
        [*first, *(purchase for purchase in others[0].tolist() if purchase not in first)], dtype=np.intp
    )
    reach = float(learner.price_list.prices[first].sum())
    of_others = max(effects.gain_along(other, reach) for other in others)
    return order if effects.gain_along(order, reach) > (1 + MIN_LEAD) * of_others else None


class _CodeEffects:
    """Held-out gains of purchases where the target is a sum of effects, one for each code of each column that is held.

    Effects are means of one half of the rows, evaluated on the other half, and the other way round. Residuals have
    shape (2, n_rows, n_scores): those of the effects of each half.
    """

    def __init__(self, learner: Learner, budget: float | None) -> None:
        table, self._prices = learner.rows.table, learner.price_list.prices
        self._affordable = np.inf if budget is None else budget
        # By content, so that equal rows are all used or not at all.
        rows = learner.rows.take(np.flatnonzero(uniforms(table.codes, 1) < SEARCH_ROWS / table.n_rows))
        codes, weight, loss = rows.table.codes, rows.weight, rows.loss
        purchases = range(len(self._prices))
        columns = [np.flatnonzero(learner.price_list.group_of == purchase) for purchase in purchases]
        self._codes = [codes[:, table.places(delivered)].T for delivered in columns]
        is_first = uniforms(codes, 11) < 0.5
        self._weights = weight * is_first, weight * ~is_first
        residual = -loss.derivatives(np.tile(loss.base(weight), (rows.n_rows, 1)))[0]
        self._start = np.stack([residual, residual])
        for free in np.flatnonzero(self._prices == 0):
            self._start = self._after(self._start, int(free))
        self._unexplained = max(self._held_out(self._start), 1e-300)

    def _after(self, residuals: Floats, purchase: int) -> Floats:
        """Residuals after the effects of a purchase, column by column."""
        left, n_scores = residuals.copy(), residuals.shape[2]
        for codes in self._codes[purchase]:
            cell = (codes.astype(np.intp)[:, None] * n_scores + np.arange(n_scores)).ravel()
            for of_half, weight in zip(left, self._weights, strict=True):
                n_rows = np.bincount(codes, weight, 256) + EFFECT_PULL
                sums = np.bincount(cell, (of_half * weight[:, None]).ravel(), 256 * n_scores)
                of_half -= (sums.reshape(256, n_scores) / n_rows[:, None])[codes]
        return left

    def _held_out(self, residuals: Floats) -> float:
        """Sum of squares of the rows that the effects are not means of."""
        squares = np.square(residuals).sum(axis=2)
        return float(squares[0] @ self._weights[1] + squares[1] @ self._weights[0])

    def _gain(self, residuals: Floats) -> float:
        """Share of the target that is explained; rounded, since sums depend on the order of the rows."""
        return round(1.0 - self._held_out(residuals) / self._unexplained, 9)

    def search(self) -> list[int]:
        """First purchases: the pair of most gain per price, or within the budget, and the best ones behind it."""
        prices, has_budget = self._prices, np.isfinite(self._affordable)
        left = np.flatnonzero((prices > 0) & (prices <= self._affordable)).tolist()
        alone = {bought: self._gain(self._after(self._start, bought)) / prices[bought] for bought in left}
        left = sorted(left, key=lambda bought: -alone[bought])[:EFFECT_CANDIDATES]
        order, best = left[:1], -np.inf
        if has_budget and left:  # a dear purchase may be better than two cheap ones
            order = [max(left, key=lambda bought: alone[bought] * prices[bought])]
            best = alone[order[0]] * prices[order[0]]
        for first in left[:EFFECT_PAIRED]:
            after = self._after(self._start, first)
            for second in left:
                price = prices[first] + prices[second]
                if first == second or price > self._affordable:
                    continue
                worth = self._gain(self._after(after, second)) / (1.0 if has_budget else price)
                if worth > best:
                    order, best = sorted([first, second], key=lambda bought: -alone[bought]), worth
        state = self._start
        for bought in order:
            state = self._after(state, bought)
        while len(order) < EFFECT_STEPS:
            room, gained = self._affordable - prices[order].sum(), self._gain(state)
            rest = [bought for bought in left if bought not in order and prices[bought] <= room]
            worths = [(self._gain(self._after(state, bought)) - gained) / prices[bought] for bought in rest]
            if not worths or max(worths) <= 0.0:
                break
            order.append(rest[int(np.argmax(worths))])
            state = self._after(state, order[-1])
        return order

    def gain_along(self, order: Ints, reach: float) -> float:
        """Mean gain of the purchases of an order that mean costs up to ``reach`` pay for."""
        cost, gain, state = [0.0], [0.0], self._start
        for purchase in order:
            if cost[-1] >= reach:
                break
            state = self._after(state, int(purchase))
            cost.append(cost[-1] + float(self._prices[purchase]))
            gain.append(max(gain[-1], self._gain(state)))
        return float(np.interp(np.linspace(0.0, reach, 4 * EFFECT_STEPS + 1)[1:], cost, gain).mean())


ORDERS: dict[str, Callable[[Learner], Ints]] = {
    "elimination": by_elimination,
    "gain": by_gain,
    "falling price": by_falling_price,
}
"""Functions that make a candidate order, by name; sizes are compared with the first."""

ORDERS_OF_SEVERAL: dict[str, Callable[[Learner], Ints]] = ORDERS | {"forward selection": by_forward_selection}
"""Functions for tasks of several scores."""
