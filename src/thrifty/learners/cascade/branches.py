"""Branches: the values of the first purchases decide in which order a row makes the others.

A column may be worth little by itself and still say which columns are worth buying. So a first purchase is valued by
what the next ones can do after it. Its column is cut into a few bins, and in each of them every further purchase has a
held-out gain: the squared error of the label (0 or 1 for each class) or number that its own bins explain, means of one
half of the rows evaluated on the other half. A split is worth the gain of its purchase and, in each group of bins, the
gain of the purchases that one half finds best there; a line takes those that are best for all bins together. Where a
split is clearly ahead of every line, rows part, and each group is searched again. Each group that is left buys in an
order of its own, found from its own rows.

Nodes form a tree: rows share the trees of a stage until they part, and continue them on rows of their own afterwards
(``thrifty.learners.cascade.nodes``). What serves are thresholds on a bought column, and no training rows.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Ints
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.stage import CascadeStage, ForkStage, Stage, TurnByValue
from thrifty.learners.cascade.nodes import NodeTrees
from thrifty.learners.cascade.orders import Learner, by_elimination, merged_table
from thrifty.learners.cascade.problem import EVERY_PLACE, CascadeProblem, Plan, TrainingSet
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import uniforms

BINS = 6
"""Bins of a column, without that of missing values."""

MAX_ROWS = 6_000
"""Rows that splits are searched on."""

MAX_COLUMNS = 48
"""Columns among which splits and purchases behind them are searched: the first of the line's order."""

AHEAD, DISCOUNT = 8, 0.9
"""Purchases behind a split by which it is valued, and the factor on the gain of each: part of it is known by then."""

DISCOUNTS = DISCOUNT ** np.arange(2 * AHEAD)

PULL = 10.0
"""Rows, with the mean of their group, that are added to each bin."""

MIN_GAIN = 0.08
"""Share of the value of the best line by which a split must be ahead of it."""

MIN_PART = 0.01
"""Share of its value that a split may lose by one group less."""

MIN_Z = 3.0
"""z-score that both must have: on few rows, groups that differ by chance would part."""

MAX_DEPTH, MAX_BRANCHES, MIN_ROWS = 3, 16, 80
"""Purchases after which rows part at most, most groups of rows, and least searched rows of a group."""

ORDERING, DROPPED_SHARE = Boosting(n_trees=40, max_depth=6), 0.25
"""Trees from which the order of a group is made, and share of its purchases that a round of elimination drops."""

SPLIT_SEED = 7

UNIT = 256.0
"""Weights are rounded to whole numbers of parts of one: sums of whole numbers do not depend on their order."""


@dataclass(frozen=True, eq=False)
class Split:
    """Groups of rows by the values of a column.

    Attributes
    ----------
    column : int
        The column.
    ends : ndarray
        Upper ends of all bins but the last.
    group : ndarray of shape (n_bins + 1,)
        Group of each bin and, last, of missing values.
    """

    column: int
    ends: Floats
    group: Ints


@dataclass(frozen=True, eq=False)
class Leaf:
    """A group of rows that buy in one order.

    Attributes
    ----------
    rows : ndarray
        The rows.
    splits : tuple of (int, Split, int)
        After how many purchases rows part, how, and the group of these rows.
    order : ndarray
        The purchases.
    """

    rows: Ints
    splits: tuple[tuple[int, Split, int], ...]
    order: Ints


@dataclass(frozen=True, eq=False)
class Branches:
    """Nodes of every stage, and the trees that predict there.

    Attributes
    ----------
    sets : list of list of ndarray
        Columns of the nodes of each stage; the last has one.
    turns : list of list of TurnByValue
        Where rows of each node go on to; none behind the last stage.
    trees : NodeTrees, optional
        Trees of the nodes.
    """

    sets: list[list[Ints]]
    turns: list[list[TurnByValue | None]]
    trees: NodeTrees | None = None

    @property
    def base(self) -> Floats:
        """Scores before any tree."""
        assert self.trees is not None
        return self.trees.base

    def stages(
        self,
        task: Task,
        calibrations: Sequence[Floats],
        gates: Sequence[Sequence[TreeEnsemble]] | None = None,
    ) -> tuple[Stage, ...]:
        """Stages that serve; ``gates`` are the learned gates of the nodes of each stage."""
        assert self.trees is not None
        found: list[Stage] = []
        for place, (sets, turns, trees) in enumerate(
            zip(self.sets, self.turns, self.trees.trees, strict=True)
        ):
            learned = [None] * len(sets) if gates is None else gates[place]
            nodes = tuple(
                CascadeStage(columns, part.over_columns(columns), calibrations[place], task, gate, turn)
                for columns, turn, part, gate in zip(sets, turns, trees, learned, strict=True)
            )
            found.append(nodes[0] if len(nodes) == 1 else ForkStage(nodes))
        return tuple(found)


def find_branches(problem: CascadeProblem, plan: Plan) -> tuple[Branches, Ints] | None:
    """Branches without trees and the node of each row at each stage, or None where no split is clearly ahead."""
    leaves = _Search(problem, plan).leaves()
    if len(leaves) == 1:
        return None
    prices, places = problem.price_list, problem.places
    free = np.flatnonzero(prices.prices[prices.group_of] == 0)
    numbers, sets = [], list[list[Ints]]()
    # Nodes are many: behind the first purchases rows stop at half as many places as on a line.
    some = [place for number, place in enumerate(places[::-1]) if place <= EVERY_PLACE or number % 2 == 0]
    held = [*([0] if len(free) else []), *(int(place) for place in some[::-1])]
    for n_bought in held:
        # Rows that have parted by what they held before their last purchase are at nodes of their own.
        keys = [
            ()
            if n_bought == held[-1]
            else tuple((at, group) for at, _, group in leaf.splits if at < n_bought)
            for leaf in leaves
        ]
        known = list(dict.fromkeys(keys))
        numbers.append([known.index(key) for key in keys])
        of_node = [leaves[keys.index(key)] for key in known]
        sets.append([_columns(problem, free, leaf.order[:n_bought]) for leaf in of_node])
    turns = list[list[TurnByValue | None]]()
    for place, (n_bought, (now, then)) in enumerate(zip(held, pairwise(numbers), strict=False)):
        turns.append([])
        for number, columns in enumerate(sets[place]):
            here = [one for one in range(len(leaves)) if now[one] == number]
            turns[-1].append(
                _turn([leaves[one] for one in here], [then[one] for one in here], n_bought, columns)
            )
    node = np.zeros((len(problem.y), len(held)), dtype=np.intp)
    for leaf, at in zip(leaves, np.array(numbers).T, strict=True):
        node[leaf.rows] = at
    return Branches(sets, [*turns, [None]]), node


def _columns(problem: CascadeProblem, free: Ints, bought: Ints) -> Ints:
    delivered = [np.flatnonzero(problem.price_list.group_of == one) for one in bought]
    return np.concatenate([free, *delivered]).astype(np.intp)


def _turn(leaves: Sequence[Leaf], nodes: Sequence[int], n_bought: int, columns: Ints) -> TurnByValue:
    """The turn of a node whose rows belong to some leaves, each with its node of the next stage."""
    splits = [split for leaf in leaves[:1] for at, split, _ in leaf.splits if at == n_bought]
    if len(set(nodes)) == 1 or not splits:
        return TurnByValue(0, np.empty(0), np.array([nodes[0], nodes[0]]))
    split, node_of = splits[0], dict[int, int]()
    for leaf, node in zip(leaves, nodes, strict=True):
        node_of |= {group: node for at, _, group in leaf.splits if at == n_bought}
    place = int(np.flatnonzero(columns == split.column)[0])
    return TurnByValue(place, split.ends, np.array([node_of[group] for group in split.group.tolist()]))


class _Search:
    """Search for splits and for the orders behind them."""

    def __init__(self, problem: CascadeProblem, plan: Plan) -> None:
        self.problem, prices = problem, problem.price_list
        self.merged = merged_table(problem.table)
        # By content, so that equal rows are all used or not at all.
        self.searched = uniforms(problem.table.codes, 1) < MAX_ROWS / len(problem.y)
        self.half = (uniforms(problem.table.codes, SPLIT_SEED) < 0.5).astype(np.intp)
        self.free = np.flatnonzero(prices.prices[prices.group_of] == 0)
        bought = [np.flatnonzero(prices.group_of == purchase) for purchase in plan.order]
        columns, table = np.concatenate([self.free, *bought]).astype(np.intp), problem.table
        # Levels of a category count in the order of their numbers; one of many levels has several columns of bytes.
        self.columns = columns[[len(table.places(columns[[one]])) == 1 for one in range(len(columns))]]
        self.columns = self.columns[:MAX_COLUMNS]
        self.purchase = prices.group_of[self.columns]
        # A first purchase that is dearer than the line's would leave small budgets without an answer.
        self.max_price = np.inf if len(self.free) else float(prices.prices[plan.order[0]])
        self.bins, self.ends = self._binned()
        self.target, self.squares = self._target()
        # A held-out gain g is a sum over rows of products with a target: its variance is about 4 g times the target's.
        total = self.target.sum(axis=0)
        mean = total[:-1] / total[-1]
        of_label = mean * (1 - mean)
        spread = of_label.max() if len(mean) > 1 else self.squares.sum() / total[-1] - mean[0] ** 2
        self.noise = MIN_Z**2 * 4.0 * float(spread)
        # Stages behind each of the first purchases, at which rows can part.
        self.max_depth = min(MAX_DEPTH, int((problem.places == np.arange(1, len(problem.places) + 1)).sum()))

    def _binned(self) -> tuple[NDArray[np.uint8], list[Floats]]:
        """Bin of each row in each column, and upper ends of all bins but the last."""
        table, weight = self.problem.table, self.problem.weight
        bins, ends = np.empty((table.n_rows, len(self.columns)), dtype=np.uint8), []
        for place, column in enumerate(table.places(self.columns)):
            own, cuts = table.codes[:, column], table.thresholds.of(int(column))
            is_known = own <= len(cuts)
            mass = np.bincount(own[is_known], weight[is_known], minlength=len(cuts) + 1)
            bin_of = np.arange(len(mass))
            if len(mass) > BINS:
                middle = (np.cumsum(mass) - mass / 2) / max(float(mass.sum()), 1e-300)
                bin_of = np.unique((middle * BINS).astype(int), return_inverse=True)[1]
            ends.append(cuts[np.flatnonzero(np.diff(bin_of))])
            bins[:, place] = np.where(is_known, bin_of[np.minimum(own, len(cuts))], BINS)
        return bins, ends

    def _target(self) -> tuple[Floats, Floats]:
        """Weighted targets and, last, weights; and weighted squares of targets."""
        task, y, weight = self.problem.task, self.problem.y, np.round(self.problem.weight * UNIT)
        if len(task.classes) > 1:
            by_name = np.argsort(task.classes)
            label = by_name[np.searchsorted(task.classes, task.decode(y), sorter=by_name)]
            target = (label[:, None] == np.arange(len(task.classes))).astype(np.float64)
        else:
            target = np.round(y[:, None] * UNIT) / UNIT
        return np.column_stack([target * weight[:, None], weight]), np.square(target).sum(axis=1) * weight

    def leaves(self) -> list[Leaf]:
        """Groups of rows that buy in orders of their own."""
        todo: list[tuple[Ints, tuple[tuple[int, Split, int], ...], list[int]]] = [
            (np.arange(len(self.problem.y)), (), [])
        ]
        n_leaves, ends = 1, list[tuple[Ints, tuple[tuple[int, Split, int], ...], list[int]]]()
        while todo:
            rows, splits, bought = todo.pop(0)
            is_root = not splits
            found = None
            if len(bought) < self.max_depth and n_leaves < MAX_BRANCHES:
                found = self._split(rows[self.searched[rows]], bought, is_root=is_root)
            if found is None:
                ends.append((rows, splits, bought))
                continue
            place, groups = found
            split = self._as_split(place, groups)
            own = int(self.purchase[place])
            after = bought if self.columns[place] in self.free else [*bought, own]
            n_leaves += len(groups) - 1
            for number, members in enumerate(groups):
                some = rows[np.isin(self.bins[rows, place], members)]
                todo.append((some, (*splits, (len(after), split, number)), after))
        if len(ends) == 1:
            return [Leaf(ends[0][0], (), np.array([], dtype=np.intp))]
        with ThreadPoolExecutor(self.problem.n_threads) as pool:
            orders = pool.map(self._order, [rows for rows, _, _ in ends], [bought for _, _, bought in ends])
            return [Leaf(*end[:2], order) for end, order in zip(ends, orders, strict=True)]

    def _as_split(self, place: int, groups: list[list[int]]) -> Split:
        ends = self.ends[place]
        group = np.zeros(len(ends) + 2, dtype=np.intp)
        for number, members in enumerate(groups):
            for one in members:
                group[one if one < BINS else -1] = number
        return Split(int(self.columns[place]), ends, group)

    def _order(self, rows: Ints, bought: list[int]) -> Ints:
        """Purchases of some rows: those made, then the opposite order of elimination."""
        problem, prices = self.problem, self.problem.price_list.prices.copy()
        prices[bought] = 0.0
        price_list = replace(problem.price_list, prices=prices)
        some = TrainingSet(problem.task, self.merged.take(rows), problem.y[rows], problem.weight[rows])
        learner = Learner(some, price_list, ORDERING)
        behind = learner.chance_last(by_elimination(learner, DROPPED_SHARE))
        return np.concatenate([np.array(bought, dtype=np.intp), behind])

    # -- splits ------------------------------------------------------------------------------------

    def _split(
        self, rows: Ints, bought: Sequence[int], *, is_root: bool
    ) -> tuple[int, list[list[int]]] | None:
        """Place of the column by which rows part and groups of its bins, or None."""
        price_list = self.problem.price_list
        has = price_list.prices == 0
        has[list(bought)] = True
        prices = np.maximum(price_list.prices_after(has), 1e-12)
        left = np.unique(self.purchase[~has[self.purchase]])
        if len(left) < 3 or len(rows) < 2 * MIN_ROWS:
            return None
        unit = float(np.median(prices[left]))
        cells = np.zeros((len(rows), len(self.columns), BINS + 1))
        np.put_along_axis(cells, self.bins[rows][:, :, None].astype(np.intp), 1.0, axis=2)
        one_hot: Floats = cells.reshape(len(rows), -1)
        alone = self._gains(rows, one_hot, None)[1, :, 0].mean(axis=0)
        best, of_line = None, 0.0
        for place, purchase in enumerate(self.purchase):
            price = 0.0 if has[purchase] else float(prices[purchase])
            if (has[purchase] and not (is_root and len(self.free))) or (is_root and price > self.max_price):
                continue
            others = left[left != purchase]
            # Where all is bought, the order no longer matters.
            ahead = np.arange(1.0, min(AHEAD, len(others) - 1) + 1)
            budgets: Floats = unit * ahead + (unit - price if price else 0.0)
            if budgets[0] <= 0:
                continue
            gained = float(alone[place]) if price else 0.0
            after = self._by_purchase(self._gains(rows, one_hot, place), others)
            of_line = max(of_line, gained + _worths([after.sum(axis=2)], prices[others], budgets)[0])
            groups, worth = self._groups(after, prices[others], budgets, place, rows)
            if len(groups) > 1 and (best is None or gained + worth > best[0]):
                best = gained + worth, place, groups
        if best is None or round(best[0], 6) <= round(of_line * (1 + MIN_GAIN) + self.noise, 6):
            return None
        return best[1], best[2]

    def _gains(self, rows: Ints, one_hot: Floats, place: int | None) -> Floats:
        """Gain of each column in each bin of one: by which a half chooses, and held out: (2, 2, n_bins, n_columns)."""
        own = np.zeros(len(rows), dtype=np.intp) if place is None else self.bins[rows, place].astype(np.intp)
        n_bins, n_columns, half = (1 if place is None else BINS + 1), len(self.columns), self.half[rows]
        sums = np.zeros((2, n_bins, n_columns, BINS + 1, self.target.shape[1]))
        for which in (0, 1):
            for number in range(n_bins):
                some = np.flatnonzero((half == which) & (own == number))
                # Sums of whole numbers: any order of summation gives the same bits.
                found = one_hot[some].T @ self.target[rows[some]]
                sums[which, number] = found.reshape(n_columns, BINS + 1, -1)
        sums /= UNIT
        weight, sums = sums[..., -1], sums[..., :-1]
        total = weight.sum(axis=3)
        mean = sums.sum(axis=3, keepdims=True) / np.maximum(total, 1e-9)[..., None, None]
        means = (sums + PULL * mean) / (weight + PULL)[..., None]
        inside, held_out = (
            (2 * (means - mean) * one - (np.square(means) - np.square(mean)) * n[..., None]).sum(axis=(3, 4))
            for one, n in ((sums, weight), (sums[::-1], weight[::-1]))
        )
        square = np.stack(
            [np.bincount(own[half == one], self.squares[rows][half == one], n_bins) for one in (0, 1)]
        )
        n_used = (weight > 0).sum(axis=3)
        left = square[:, :, None] / UNIT - np.square(mean).sum(axis=(3, 4)) * total - inside
        noise = np.maximum(left, 0.0) / np.maximum(total - n_used, 1.0) * (n_used - 1)
        return np.stack([inside - noise, held_out])

    def _by_purchase(self, gains: Floats, purchases: Ints) -> Floats:
        """Gain of each purchase: that of its best column."""
        return np.stack([gains[..., self.purchase == one].max(axis=-1) for one in purchases], axis=-1)

    def _groups(
        self, after: Floats, prices: Floats, budgets: Floats, place: int, rows: Ints
    ) -> tuple[list[list[int]], float]:
        """Groups of neighbouring bins in which different purchases are best, and what they gain together."""
        n_rows = np.bincount(self.bins[rows, place], minlength=BINS + 1)
        groups = [[one] for one in np.flatnonzero(n_rows).tolist()]

        def worths_of(some: list[list[int]]) -> list[float]:
            return _worths([after[:, :, members].sum(axis=2) for members in some], prices, budgets)

        both = worths_of([*groups, *(one + other for one, other in pairwise(groups))])
        worth, joined = both[: len(groups)], both[len(groups) :]
        max_lost = max(MIN_PART * sum(worth), self.noise)
        while len(groups) > 1:
            lost = np.array([sum(pair) for pair in pairwise(worth)]) - joined
            is_small = np.array(
                [min(n_rows[pair[0]].sum(), n_rows[pair[1]].sum()) < MIN_ROWS for pair in pairwise(groups)]
            )
            k = int(np.argmin(np.where(is_small, lost, np.inf) if is_small.any() else lost))
            if not is_small.any() and lost[k] > max_lost:
                break
            groups[k : k + 2], worth[k : k + 2] = [groups[k] + groups[k + 1]], [joined[k]]
            first, last = max(k - 1, 0), k + 2  # only pairs with the new group are new
            joined[first:last] = worths_of([one + other for one, other in pairwise(groups[first:last])])
        return groups, sum(worth)


def _worths(gains: Sequence[Floats], prices: Floats, budgets: Floats) -> list[float]:
    """Mean held-out gain over budgets of the purchases that gain most for their price, as each half chooses them.

    ``gains`` are those of several groups of rows, each of shape (2, 2, n_purchases).
    """
    if not gains:
        return []
    several = np.stack(gains)
    orders = np.argsort(-np.round(several[:, 0] / prices, 9), axis=-1, kind="stable")
    worths = []
    for (chosen, held_out), order in zip(several, orders, strict=True):
        found = 0.0
        for half in range(2):
            best = order[half][chosen[half][order[half]] > 0][: 2 * AHEAD]
            paid, gained = np.zeros((2, len(best) + 1))
            np.cumsum(prices[best], out=paid[1:])
            np.cumsum(held_out[half][best] * DISCOUNTS[: len(best)], out=gained[1:])
            found += float(np.interp(budgets, paid, gained).mean())
        worths.append(found / 2)
    return worths
