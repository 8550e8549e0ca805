"""The best pruning where the linear program is too large: trees share the prices and prune themselves.

    max_{u >= 0}   E(roots) - sum_trees max(0, V_u(root))      such that   sum_h u_hk = gamma price_k

is the dual of the closure problem: purchase k is shared out among the splits that need it, and given the shares every
tree is pruned on its own by one pass. Where a tree keeps a split, the split can afford more; where it cuts it, it
could not afford its share. So the shares follow

    u_hk  <-  u_hk exp(step [h is kept]),   scaled so that the shares of k sum to its price again,

which is mirror ascent with the entropy, the natural distance for a price that is split up. Every round has shares
that sum to the price and thus a valid bound. Prunings come from the mean of the rounds: it is a point of the
relaxation, and since the relaxation is exact the best of its level sets is at least as good as that point. Splits
that no pruning as good as the best one can keep are cut on the way, after which rounds are short.

Chosen by measurement (``benchmarks/budget_prune.py`` of version 0.3, 40 trees, processor seconds of one thread, to a
gap below 1e-6).
MiniBooNE, 0.46 million arcs, five gammas: 10 to 57 rounds, 0.02 to 0.18 s; a minimum cut by
``scipy.sparse.csgraph.maximum_flow`` takes 0.08 to 0.68 s, HiGHS 0.16 to 1.03 s where at most 82,000 arcs are left.
Forest, 15 million arcs, two gammas: 15 and 39 rounds, 3.3 and 4.9 s; the minimum cut takes 23 and 26 s and, since its
capacities are whole numbers, misses the optimum by up to 7e-6.
"""

from typing import Any

import numpy as np

from reproduction.pruning.closure import Closure, Pruning, choose_worthwhile, collect_worth, compiled
from thrifty.arrays import Bools, Floats
from thrifty.learners.dynamod.objective import Solution

__all__ = ["ascend"]


_FIRST_STEP = 3.0
_LEVELS = 256
_LOOK_EVERY = 5
_RESCALE_EVERY = 500
_SAFE = 1e-12


def ascend(closure: Closure, gamma: float, *, tol: float, max_iter: int) -> tuple[Solution[Pruning], Bools]:
    """Best pruning by mirror ascent on the shares, and a mask of the splits that an optimal pruning may keep.

    ``residual`` is the gap between objective and bound. No pruning that keeps a split outside of the mask is as good as
    the one returned.
    """
    ascent = _Ascent(closure, gamma)
    n_iter = 0
    while n_iter < max_iter and ascent.objective - ascent.bound > tol:
        n_iter += 1
        ascent.prune(2.0 / (n_iter + 1.0))
        if n_iter % _LOOK_EVERY == 1 or n_iter == max_iter:
            ascent.look()
        if n_iter % _RESCALE_EVERY == 0:
            ascent.rescale()
        ascent.reshare(float(np.exp(_FIRST_STEP / np.sqrt(n_iter))))
    pruning = closure.certified(ascent.best, ascent.bound, gamma)
    return Solution(pruning, pruning.gap, n_iter, pruning.gap <= tol), ascent.alive | ascent.best


class _Ascent:
    """Shares as they stand, the best pruning and the best bound so far.

    ``share`` holds weights: what purchase k asks of an arc is its cost times the arc's part of ``total[k]``.
    """

    def __init__(self, closure: Closure, gamma: float) -> None:
        self.closure = closure
        self.cost, self.gain = gamma * closure.price, closure.gain(gamma)
        self.share = np.ones(closure.n_arcs)
        self.total = np.bincount(closure.need, minlength=len(self.cost)).astype(np.float64)
        self.alive = np.ones(closure.n_splits, bool)
        self.kept = np.zeros(closure.n_splits, bool)
        self.mean = np.zeros(closure.n_splits)
        self.worth = np.zeros(closure.n_splits)
        # Cutting everything is a pruning; nothing is known of the others yet.
        self.best, self.objective = self.kept.copy(), closure.loss
        self.bound = self.newest_bound = -np.inf

    def prune(self, newest: float) -> None:
        """Prune every tree at its shares; ``newest`` is the weight of this round in the mean of all."""
        closure = self.closure
        gained = prune_trees(
            closure.start,
            closure.need,
            closure.parent,
            self.share,
            self.cost / self.total,
            self.gain,
            self.alive,
            self.worth,
            self.kept,
        )
        self.newest_bound = closure.loss - gained
        self.bound = max(self.bound, self.newest_bound)
        self.mean += (self.kept - self.mean) * newest

    def look(self) -> None:
        """Make a pruning of the mean, and cut for good all splits that no pruning as good as the best one keeps."""
        level = np.ceil(self.mean * _LEVELS).astype(np.int64)
        needed = levels_needed(
            self.closure.start, self.closure.need, self.closure.parent, level, len(self.cost)
        )
        worth = np.bincount(level, weights=self.gain, minlength=_LEVELS + 2)
        worth -= np.bincount(needed, weights=self.cost, minlength=_LEVELS + 2)
        above = np.cumsum(worth[::-1])[::-1]
        cut = 1 + int(np.argmax(above[1:]))
        if self.closure.loss - above[cut] < self.objective:
            self.best, self.objective = level >= cut, self.closure.loss - float(above[cut])
        gap = self.objective - self.newest_bound + _SAFE
        if cut_hopeless(self.closure.parent, self.worth, gap, self.alive):
            self.mean[~self.alive] = 0.0
            self.rescale()

    def rescale(self) -> None:
        """Scale the shares to sum to one again, over the arcs of splits that may still be kept."""
        self.total = np.zeros(len(self.cost))
        rescale_shares(self.closure.start, self.closure.need, self.alive, self.share, self.total)

    def reshare(self, factor: float) -> None:
        """Let kept splits pay more, and by that the others less."""
        raise_shares(self.closure.start, self.closure.need, self.kept, factor, self.share, self.total)


@compiled
def prune_trees(
    start: Any,
    need: Any,
    parent: Any,
    share: Floats,
    rate: Floats,
    gain: Floats,
    alive: Bools,
    worth: Floats,
    kept: Bools,
) -> float:
    """Charge every split its shares, prune every tree; returns what all trees together are worth."""
    for h in range(len(parent)):
        worth[h] = -np.inf
        if alive[h]:
            charge = 0.0
            for a in range(start[h], start[h + 1]):
                charge += share[a] * rate[need[a]]
            worth[h] = gain[h] - charge
    collect_worth(parent, worth)
    choose_worthwhile(parent, worth, kept)
    total = 0.0
    for h in range(len(parent)):
        if parent[h] < 0 and worth[h] > 0.0:
            total += worth[h]
    return total


@compiled
def raise_shares(start: Any, need: Any, kept: Bools, factor: float, share: Floats, total: Floats) -> None:
    """Multiply the shares of kept splits."""
    for h in range(len(kept)):
        if kept[h]:
            for a in range(start[h], start[h + 1]):
                more = share[a] * (factor - 1.0)
                share[a] += more
                total[need[a]] += more


@compiled
def rescale_shares(start: Any, need: Any, alive: Bools, share: Floats, total: Floats) -> None:
    """Divide shares by their sum over the arcs of splits that are alive."""
    for h in range(len(alive)):
        if alive[h]:
            for a in range(start[h], start[h + 1]):
                total[need[a]] += share[a]
    for h in range(len(alive)):
        if alive[h]:
            for a in range(start[h], start[h + 1]):
                # A share too small to matter must not become too small to compute with: it may have to grow again.
                share[a] = max(share[a] / total[need[a]], 1e-30)
    total[:] = 0.0
    for h in range(len(alive)):
        if alive[h]:
            for a in range(start[h], start[h + 1]):
                total[need[a]] += share[a]
    for k in range(len(total)):
        if total[k] == 0.0:
            total[k] = 1.0


@compiled
def cut_hopeless(parent: Any, worth: Floats, gap: float, alive: Bools) -> bool:
    """Cut splits that no pruning as good as the best one keeps; says whether a tenth of those alive were cut.

    To keep a split at these shares, all splits above it must be kept too, and each that is worth less than nothing
    costs what it lacks. Where that is more than the gap between the best objective and this round's bound, it is lost.
    """
    before = after = 0
    lacking = np.zeros(len(parent))
    for h in range(len(parent)):
        above = lacking[parent[h]] if parent[h] >= 0 else 0.0
        lacking[h] = above + max(0.0, -worth[h])
        if alive[h]:
            before += 1
            if lacking[h] <= gap:
                after += 1
    if after > 0.9 * before:
        return False
    for h in range(len(parent)):
        alive[h] = alive[h] and lacking[h] <= gap
    return True


@compiled
def levels_needed(start: Any, need: Any, parent: Any, level: Any, n_purchases: int) -> Any:
    """The highest level of a split that needs each purchase, once no split stands above its parent."""
    highest = np.zeros(n_purchases, np.int64)
    for h in range(len(level)):
        if parent[h] >= 0:
            level[h] = min(level[h], level[parent[h]])
        if level[h] > 0:
            for a in range(start[h], start[h + 1]):
                highest[need[a]] = max(highest[need[a]], level[h])
    return highest
