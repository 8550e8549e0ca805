"""What pruning on a budget minimises, as a closure problem (Nan, Wang and Saligrama, NIPS 2016).

Let ``x_h`` say whether split h is kept and ``w_ik`` whether row i pays for purchase k. Were the node h a leaf, the rows
that come there would lose ``E(h)`` in all; keeping its split takes ``b_h = E(h) - E(left) - E(right)`` off that. A row
pays once for a purchase, however many trees need it, so with shares ``v_i`` of the rows and prices ``c_k``

    min_{x, w}   E(roots) - sum_h b_h x_h  +  gamma sum_ik v_i c_k w_ik
    such that    x_h <= x_parent(h)                                       a split needs the splits above it
                 x_h <= w_ik   where row i first needs k at split h       and the purchases of the rows it looks at
                 0 <= x, w <= 1.

"First" is enough: whatever needs k further down the row's way in this tree needs that split above it. The paper
writes the integer program with one variable per node that says "h is a leaf"; those are differences of these. It
shows that the linear relaxation is exact, which here is plain: every constraint is ``a <= b`` for two variables, its
matrix is that of a directed graph, hence totally unimodular, and the vertices of the relaxation are 0 / 1.
Choosing a set that holds all that its members point to is a maximum closure. Its dual lets the trees share each price,

    max_{u >= 0}   E(roots) - sum_trees max(0, V_u(root))      such that   sum_h u_hik <= gamma v_i c_k,
    V_u(h) = b_h - sum_ik u_hik + max(0, V_u(left)) + max(0, V_u(right)),

and each tree prunes itself at its shares u by one pass from the leaves up. Any such u gives a lower bound: the u of
a solver certifies its pruning, whatever the solver.

What makes the problem small: purchases needed at the very same splits are one purchase of the summed price; one
that is needed at a single split is that split's own price; and a split that would not pay even if everything that
it shares with others were free is cut at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s, Int64s, Ints, Words

__all__ = ["Closure", "Pruning"]

# Prices are summed in the order of rows; with this many bits the sums do not remember it.
_BITS = 40
_WORTH_CUTTING = 0.9


@dataclass(frozen=True)
class Pruning:
    """A pruning of a forest and the certificate of how good it is.

    Attributes
    ----------
    kept : ndarray of shape (n_splits,), bool
        The splits that stay.
    objective : float
        ``loss + gamma * spend``.
    bound : float
        No pruning of this forest has a smaller objective.
    loss : float
        Mean loss of the trees' own answers on the rows that decided.
    spend : float
        Mean price of the purchases that those rows need.
    """

    kept: Bools
    objective: float
    bound: float
    loss: float
    spend: float

    @property
    def gap(self) -> float:
        """How far from optimal this pruning can be at most."""
        return self.objective - self.bound


@dataclass(frozen=True)
class Closure:
    """The problem: what each split takes off the loss, and the purchases it needs; splits come after their parents.

    Attributes
    ----------
    loss : float
        Loss of the forest in which every root is a leaf.
    splits : ndarray of shape (n,)
        Which split of the forest each of these is.
    parent : ndarray of shape (n,)
        The split above, -1 for a root.
    benefit : ndarray of shape (n,)
        What keeping the split takes off the loss; may be negative.
    own : ndarray of shape (n,)
        Price of the purchases that this split alone needs.
    start : ndarray of shape (n + 1,)
        Where each split's arcs begin.
    need : ndarray of shape (n_arcs,)
        The purchase at the end of each arc.
    price : ndarray of shape (n_purchases,)
        Price of each purchase.
    group : ndarray of shape (n_purchases,)
        What is bought: a split's purchases are all of one group, and groups stand one after the other, so that a
        solver that goes through them stays in a small part of the memory.
    """

    loss: float
    splits: Ints
    parent: Int32s
    benefit: Floats
    own: Floats
    start: Int64s
    need: NDArray[np.integer[Any]]
    price: Floats
    group: Int32s

    @property
    def n_splits(self) -> int:
        """Number of splits that may be kept."""
        return len(self.parent)

    @property
    def n_arcs(self) -> int:
        """Number of pairs of a split and a purchase it needs."""
        return len(self.need)

    @cached_property
    def tail(self) -> Int32s:
        """The split at the beginning of each arc."""
        return np.repeat(np.arange(self.n_splits, dtype=np.int32), np.diff(self.start))

    def gain(self, gamma: float) -> Floats:
        """What keeping each split is worth before any shared purchase is paid."""
        return self.benefit - gamma * self.own

    def evaluate(self, kept: Bools) -> tuple[float, float]:
        """Loss and spend of a pruning, given as a mask over these splits."""
        bought = np.zeros(len(self.price), dtype=bool)
        bought[self.need[kept[self.tail]]] = True
        loss = self.loss - float(self.benefit[kept].sum())
        return loss, float(self.own[kept].sum() + self.price[bought].sum())

    def bound(self, shares: Floats, gamma: float) -> float:
        """Lower bound on the objective from what each arc is to pay; shares that ask too much are scaled down."""
        shares = np.maximum(shares, 0.0)
        asked = np.bincount(self.need, weights=shares, minlength=len(self.price))
        scale = np.minimum(1.0, gamma * self.price / np.where(asked > 0, asked, 1.0))
        charge = np.bincount(self.tail, weights=shares * scale[self.need], minlength=self.n_splits)
        worth = best_worth(self.parent, self.gain(gamma) - charge)
        return self.loss - float(np.maximum(worth[self.parent < 0], 0.0).sum())

    def certified(self, kept: Bools, bound: float, gamma: float) -> Pruning:
        """Pruning with its loss, spend and bound; a bound that passes the objective by a rounding is the objective."""
        loss, spend = self.evaluate(kept)
        objective = loss + gamma * spend
        return Pruning(kept, objective, min(bound, objective), loss, spend)

    def only(self, kept: Bools) -> "Closure":
        """Problem in which all splits but these are cut; purchases are joined anew."""
        number = (np.cumsum(kept) - 1).astype(np.int32)
        parent = self.parent[kept]
        return _joined(
            replace(
                self,
                splits=self.splits[kept],
                parent=np.where(parent >= 0, number[np.maximum(parent, 0)], -1).astype(np.int32),
                benefit=self.benefit[kept],
                own=self.own[kept],
                start=_starts(np.diff(self.start)[kept]),
                need=self.need[kept[self.tail]],
            )
        )

    def narrowed(self, gamma: float) -> "Closure":
        """Problem without the splits that cannot be worth keeping at this gamma or a larger one."""
        closure = self
        while True:
            is_open = worthwhile(closure.parent, closure.gain(gamma))
            # Joining purchases anew takes longer than a few rounds of a solver on splits that will be cut anyway.
            if np.count_nonzero(is_open) >= _WORTH_CUTTING * len(is_open):
                return closure
            closure = closure.only(is_open)


def _joined(closure: Closure) -> Closure:
    """Join purchases that the same splits need, and make those that one split needs its own price."""
    n_needs = np.bincount(closure.need, minlength=len(closure.price))
    signature = np.zeros(len(closure.price), dtype=np.uint64)
    np.add.at(signature, closure.need, _mixed(closure.tail))
    used = np.flatnonzero(n_needs)
    _, first, same = np.unique(signature[used], return_index=True, return_inverse=True)
    order = np.argsort(closure.group[used[first]], kind="stable")
    first, same = first[order], np.argsort(order)[same]
    price = _rounded(np.bincount(same, weights=closure.price[used], minlength=len(first)))
    # One purchase speaks for all that are needed at the same splits; the arcs of the others go.
    spokesman = np.full(len(closure.price), -1, dtype=np.int64)
    spokesman[used[first]] = np.arange(len(first))
    speaks_for = spokesman[closure.need]
    arcs = np.flatnonzero(speaks_for >= 0)
    tail, need = closure.tail[arcs], speaks_for[arcs]
    alone = n_needs[used[first]] == 1
    single = alone[need]
    own = np.bincount(tail[single], weights=price[need[single]], minlength=closure.n_splits)
    tail, need = tail[~single], need[~single]
    return replace(
        closure,
        own=_rounded(closure.own + own),
        start=_starts(np.bincount(tail, minlength=closure.n_splits)),
        need=_sorted_within(tail, (np.cumsum(~alone) - 1)[need], int((~alone).sum())),
        price=price[~alone],
        group=closure.group[used[first]][~alone],
    )


def _sorted_within(tail: Int32s, need: Int64s, n_purchases: int) -> Int32s:
    """Each split's purchases in their order, which does not depend on the order of the rows."""
    key = tail.astype(np.int64) * n_purchases + need
    key.sort()
    return (key % max(n_purchases, 1)).astype(np.int32)


def _rounded(amount: NDArray[Any]) -> Floats:
    mantissa, exponent = np.frexp(amount)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS), dtype=np.float64)


def _starts(counts: Ints) -> Int64s:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _mixed(numbers: Int32s) -> Words:
    """Spread over 64 bits (splitmix64), so that sums over different sets of splits differ."""
    word = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function when it is first called, and keep what was compiled on disk."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


@compiled
def collect_worth(parent: Any, worth: Floats) -> None:
    """Add to each split what the best pruning below it is worth; children stand behind their parents."""
    for h in range(len(parent) - 1, -1, -1):
        if parent[h] >= 0 and worth[h] > 0.0:
            worth[parent[h]] += worth[h]


@compiled
def choose_worthwhile(parent: Any, worth: Floats, kept: Bools) -> None:
    """Keep what is worth more than nothing and has everything above it kept."""
    for h in range(len(parent)):
        kept[h] = worth[h] > 0.0 and (parent[h] < 0 or kept[parent[h]])


@compiled
def best_worth(parent: Any, gain: Floats) -> Floats:
    """What each split and the best pruning below it are worth, if the split is kept."""
    worth = gain.copy()
    collect_worth(parent, worth)
    return worth


@compiled
def worthwhile(parent: Any, gain: Floats) -> Bools:
    """The smallest pruning of largest worth."""
    worth = gain.copy()
    collect_worth(parent, worth)
    kept = np.zeros(len(parent), np.bool_)
    choose_worthwhile(parent, worth, kept)
    return kept
