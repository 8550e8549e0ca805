"""Growing of price-aware trees: one from given derivatives, or several from a loss that compiled code knows.

    argmin over trees of   sum_i [ g_i v(x_i) + 1/2 h_i v(x_i)^2 ] + l2/2 sum_leaf v^2 + gamma * price of new groups

greedily: paper, impurity of DynaMod-Gbrt. Without ``hess`` every ``h_i`` is one and the sum is, up to a constant,
the paper's ``1/2 sum_i (-g_i - v(x_i))^2``. A group is paid once: by the first split on one of its columns, in
this tree or in any earlier one.

*Rounds of boosting* are one compiled call: derivatives, a tree, its values added to the scores, and again. A tree over
a few hundred rows takes a tenth of a millisecond, and a call from Python that looks at all the arrays of a workspace a
fifth of that, so there is one call for several trees, and one for all that a tree needs. All compiled functions of a
tree are inlined into it.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.arrays import Bools, Floats, Int32s, Int64s
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.logistic import LOGISTIC, Formula, write_derivatives
from thrifty.engine.trees.binning import LEVEL_SET, BinnedTable, LevelSets, Thresholds
from thrifty.engine.trees.ensemble import TreeEnsemble, add_leaf_values
from thrifty.errors import InvalidInputError
from thrifty.jit import Number, lean, lean_kernel
from thrifty.learners.trees.best_first import LevelSearch, examine_levels, make_search, next_job, run_job
from thrifty.learners.trees.gradients import (
    CURVATURE_BITS,
    GRADIENT_BITS,
    WIDE_ROWS,
    Lanes,
    by_output,
    choose_lanes,
    describe_problem,
    pack,
    pack_one,
    round_to,
)
from thrifty.learners.trees.split import ROW, run_lanes
from thrifty.learners.trees.workspace import Limits, Workspace, fit_free_copy, make_workspace
from thrifty.threads import check_stopped

Step = Literal["gradient", "newton"]

ROWS_AT_ONCE = 2**18
"""Rows times trees of one compiled call, for less than a tenth of a second: an interrupt waits for its end."""


class TreeGrower:
    """Grows trees over one table and remembers what has been bought.

    Parameters
    ----------
    table : BinnedTable
        Training rows.
    limits : Limits, optional
        Limits of a tree.
    price_list : PriceList, optional
        Prices of the purchases, and the columns of each; by default each column costs one. A tree pays by what was
        bought before it was begun. A purchase of price zero is free, but counts as bought only once used.
    gamma : float, default=0.0
        Gain that one unit of price must bring.
    """

    def __init__(
        self,
        table: BinnedTable,
        limits: Limits | None = None,
        price_list: PriceList | None = None,
        gamma: float = 0.0,
    ) -> None:
        self.table = table
        limits = Limits() if limits is None else limits
        n_leaves = min(2**limits.max_depth, max(table.n_rows, 2), limits.max_leaves)
        self._limits = limits._replace(max_leaves=n_leaves)
        each = np.arange(table.n_features)
        self._price_list = PriceList(np.ones(len(each)), each) if price_list is None else price_list
        self._places_of = (
            np.arange(table.n_codes) if table.categories is None else table.categories.feature_of
        )
        self._group_of = self._price_list.group_of[self._places_of]
        self._order = choice_order(table, self._group_of, self._price_list.prices)
        self._bought = np.zeros(len(self._price_list.prices), bool)
        self._gamma = float(gamma)
        # Columns with more than one code; a column of one value may still be split from its missing rows.
        self._can_split = table.thresholds.n_bins > 1
        for f in np.flatnonzero(~self._can_split):
            self._can_split[f] = np.any(table.codes[:, f] != table.codes[0, f])
        self._ws: Workspace | None = None
        self._levels: LevelSearch | None = None
        self._is_stale = True  # whether charges have changed since the workspace learned of them

    @property
    def gamma(self) -> float:
        """Gain that one unit of price must bring."""
        return self._gamma

    @gamma.setter
    def gamma(self, gamma: float) -> None:
        self._gamma, self._is_stale = float(gamma), True

    @property
    def bought(self) -> Bools:
        """Groups that some split has used, shape (n_groups,), a copy."""
        return self._bought.copy()

    @property
    def bought_columns(self) -> Bools:
        """Columns of the bought groups, shape (n_features,)."""
        return self._bought[self._price_list.group_of]

    def reset(self) -> None:
        """Forget what was bought, and keep the memory for the next fit."""
        self._bought = np.zeros_like(self._bought)
        self._is_stale = True

    def add_tree(
        self,
        builder: "EnsembleBuilder",
        scores: Floats,
        grad: ArrayLike,
        hess: ArrayLike | None = None,
        *,
        learning_rate: float = 1.0,
    ) -> int:
        """Grow one tree against ``grad``, buying what pays; keep it in ``builder`` and add it to ``scores``, in place.

        Parameters
        ----------
        builder : "EnsembleBuilder"
            Made for as many columns and outputs.
        scores : ndarray of shape (n_rows,) or (n_rows, n_outputs), float64, C-contiguous
            Scores of the training rows.
        grad : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Derivative of the loss by each row's score, weights included.
        hess : array-like of the same shape, optional
            Second derivatives (Newton), or weights (weighted least squares). None: all one, the paper's impurity.
        learning_rate : float, default=1.0
            Factor on the values of the leaves.

        Returns
        -------
        n_cells : int
            (row, column) cells added to histograms: the work done.
        """
        table = scores.reshape(-1, builder.n_outputs)
        gradients, hessians = self._derivatives(grad, hess)
        out = builder.room_for(1, self._limits.max_leaves - 1)
        ws, sets = self._grow_one(gradients, hessians, learning_rate, out, builder.n_trees, table)
        builder.add(1, sets)
        return int(ws.tree[0]["n_cells"])

    def takes_formulas(self, *, constant: bool) -> bool:
        """True if ``add_trees`` can grow on this table: a row's gradient and hessian, if not one, fit in 64 bits."""
        keeps_count = self._limits.min_child_samples > 1 and not constant
        return not keeps_count and self.table.n_rows <= WIDE_ROWS

    def add_trees(
        self,
        builder: "EnsembleBuilder",
        scores: Floats,
        formula: Formula,
        counts: Floats,
        *,
        n_trees: int = 1,
        drawn: Bools | None = None,
        step: Step = "newton",
        learning_rate: float = 1.0,
    ) -> None:
        """Grow several trees against a loss that compiled code knows, each at the scores that the last one left.

        Derivatives are rounded so coarsely, before they are weighted, that sums of them are exact.

        Parameters
        ----------
        builder, scores, learning_rate
            As in ``add_tree``.
        formula : Formula
            The loss, of one score.
        counts : ndarray of shape (n_rows,)
            Weights.
        n_trees : int, default=1
            Number of trees.
        drawn : ndarray of bool of shape (n_trees, n_rows), optional
            Rows that each tree is grown on; the others count for nothing, and are scored all the same.
        step : {"newton", "gradient"}
            Whether leaves divide by the hessian, or by the weight.
        """
        table = scores.reshape(-1, 1)
        constant = step == "gradient" and drawn is None and bool(np.all(counts == 1.0))
        # What a tree buys changes what the next one pays, and sets of levels are taken out of every tree.
        is_alone = self._gamma > 0.0 or self.table.categories is not None
        at_once = 1 if is_alone else max(min(n_trees, ROWS_AT_ONCE // max(self.table.n_rows, 1)), 1)
        for first in range(0, n_trees, at_once):
            n_more = min(at_once, n_trees - first)
            here = None if drawn is None else drawn[first : first + n_more]
            ws = self._prepare(1, constant)
            rounds = rounds_by(
                formula, table.reshape(-1), counts, here, n_more, step == "newton", learning_rate
            )
            out = builder.room_for(n_more, self._limits.max_leaves - 1)
            try:
                sets = self._grow(ws, rounds, out, builder.n_trees, table)
            except InvalidInputError:
                builder.add(int(ws.tree[0]["n_grown"]))
                raise
            builder.add(n_more, sets)

    def add_tree_along(
        self,
        along: tuple[Floats, Floats | None],
        builder: "EnsembleBuilder",
        scores: Floats,
        grad: Floats,
        hess: Floats | None,
        *,
        learning_rate: float = 1.0,
        max_step: float = np.inf,
    ) -> None:
        """Grow one tree of many outputs by the splits of one: the step along a direction of theirs.

        A split costs as much as that of a tree of one output. Every leaf then has the best value of each output, not
        only along the direction. Random directions, another one for each tree, meet every difference between outputs
        sooner or later (Iosipoi and Vakhrushev, 2022, call it a sketch of the outputs).

        Parameters
        ----------
        along : tuple of ndarray of shape (n_rows,)
            What ``derivatives_along`` makes of ``grad`` and ``hess``.
        max_step : float, optional
            Largest value of a leaf before ``learning_rate``: where a class has been held impossible, the hessian says
            nothing about how far to go.
        builder, scores, grad, hess, learning_rate
            As in ``add_tree``; ``grad`` and ``hess`` of shape (n_rows, n_outputs).
        """
        table = scores.reshape(-1, builder.n_outputs)
        out = builder.room_for(1, self._limits.max_leaves - 1)
        one = self._derivatives(*along)
        # Leaves have room for a value of each output, of which the tree along the direction writes the first.
        ws, sets = self._grow_one(*one, learning_rate, out, builder.n_trees, np.empty((0, 1)))
        first, n_splits = int(out.leaf_offsets[builder.n_trees]), int(ws.tree[0]["n_splits"])
        values = out.values[first : first + n_splits + 1]
        by_row = np.ones(grad.shape) if hess is None else hess
        sums = np.zeros((*values.shape, 2))
        limits = self._limits.l2, float(max_step), learning_rate
        write_steps(ws.leaf_of, by_output(grad), by_output(by_row), sums, *limits, values, table)
        builder.add(1, sets)

    def _derivatives(
        self, grad: ArrayLike, hess: ArrayLike | None
    ) -> tuple[list[Floats], list[Floats] | None]:
        """Gradients and hessians, one array for each output."""
        gradients = self._columns("grad", grad)
        hessians = None if hess is None else self._columns("hess", hess)
        if hessians is not None and len(hessians) != len(gradients):
            raise InvalidInputError(
                f"hess must have the shape of grad, {np.shape(grad)}; got {np.asarray(hess).shape}. "
                "Give one hessian per gradient, or None for ones."
            )
        return gradients, hessians

    def _grow_one(
        self,
        grad: list[Floats],
        hess: list[Floats] | None,
        learning_rate: float,
        out: "TreeArrays",
        number: int,
        scores: Floats,
    ) -> tuple[Workspace, LevelSets | None]:
        """Grow one tree against derivatives, write it to ``out`` and add it to ``scores``; returns where it grew."""
        ws = self._prepare(len(grad), hess is None)
        if ws.lanes.n_lanes > 1:
            pack(grad, hess, ws.lanes, ws.packed[0], ws.units, ws.totals[0])
            rounds = rounds_of(PACKED, np.empty(0), np.empty(0), learning_rate)
        else:
            rounds = rounds_of(GIVEN, grad[0], (grad if hess is None else hess)[0], learning_rate)
        return ws, self._grow(ws, rounds, out, number, scores)

    def _grow(
        self, ws: Workspace, rounds: "Rounds", out: "TreeArrays", number: int, scores: Floats
    ) -> LevelSets | None:
        """Grow trees, and note what they bought; returns the sets of levels of the first."""
        try:
            left = run_rounds(ws, self._levels, rounds, self.table.thresholds, out, number, scores)
        except BaseException:
            self._is_stale = True  # what an unfinished tree bought is not bought
            raise
        if np.any(ws.bought != self._bought):
            self._bought, self._is_stale = ws.bought.copy(), True
        if left < 0:
            raise describe_problem(-left, [rounds.grad], [rounds.hess])
        return self._take_sets(ws, out, number)

    def _prepare(self, n_outputs: int, constant: bool) -> Workspace:
        """Arrays for trees of one kind, with today's charges."""
        check_stopped()
        ws = self._ws
        if ws is not None and (len(ws.units), ws.lanes.constant) != (n_outputs, constant):
            ws = None
        if ws is None:
            keep_count = self._limits.min_child_samples > 1
            lanes = choose_lanes(self.table.n_rows, n_outputs, constant=constant, keep_count=keep_count)
            n_groups = len(self._bought)
            ws = make_workspace(self.table, self._group_of, self._order, n_groups, self._limits, lanes)
            if self.table.categories is not None:
                self._levels = make_search(self.table, self._limits, lanes.n_lanes)
            self._is_stale = True
        if self._is_stale:
            ws.bought[:] = self._bought
            charges = self._gamma * self._price_list.prices_after(self._bought)[self._group_of]
            ws.charges[:] = np.where(
                self._can_split | (charges == 0.0), charges, np.inf
            )  # no split is possible
            ws = fit_free_copy(ws)
            self._is_stale = False
        self._ws = ws
        return ws

    def _take_sets(self, ws: Workspace, out: "TreeArrays", number: int) -> LevelSets | None:
        """Sets of levels of the nodes of a finished tree, whose columns are renumbered to those of the table."""
        categories = self.table.categories
        if categories is None:
            return None
        nodes = slice(out.node_offsets[number], out.node_offsets[number + 1])
        place, asks = out.feature[nodes].copy(), np.flatnonzero(out.last_left[nodes] == LEVEL_SET)
        out.feature[nodes] = categories.feature_of[place]
        bits = np.unpackbits(ws.sets[asks, -1].view(np.uint8), axis=1, bitorder="little")
        sets = []
        for node, one in zip(asks, bits, strict=True):
            levels = categories.levels[place[node]]
            assert levels is not None  # only a column of levels is split by sets
            sets.append(levels[np.flatnonzero(one[: len(levels)])])
        return LevelSets.of(asks, sets)

    def _columns(self, name: str, values: ArrayLike) -> list[Floats]:
        """One array for each output, in the form that ``pack`` wants."""
        rows, n_rows = np.asarray(values, dtype=np.float64), self.table.n_rows
        if rows.ndim in (1, 2) and len(rows) == rows.size == n_rows and rows.flags.carray:
            return [rows.reshape(-1)]
        columns = [rows] if rows.ndim == 1 else list(rows.T)
        if rows.ndim not in (1, 2) or len(rows) != n_rows or not columns:
            raise InvalidInputError(
                f"{name} must have shape ({n_rows},) or ({n_rows}, n_outputs), one entry per row of the table; "
                f"got {np.shape(values)}."
            )
        return [column if column.flags.carray else column.copy() for column in columns]


def choice_order(table: BinnedTable, group_of: NDArray[np.int64], prices: Floats) -> NDArray[np.int64]:
    """Columns in the order of preference between exactly equal gains: by contents, the place only as last resort.

    Ties of equal contents are broken by the contents and price of their group, so that a permutation
    of the columns changes nothing but their names.
    """
    keys = table.column_keys
    group_keys = np.zeros(len(prices), np.uint64)
    np.add.at(group_keys, group_of, keys)
    return np.lexsort((np.arange(len(keys)), prices[group_of], group_keys[group_of], keys))


class TreeArrays(NamedTuple):
    """Arrays that finished trees are copied to, one after the other: returning them would cost more than passing them.

    Attributes
    ----------
    feature, threshold, last_left, missing_left, children : per split
    gain, charge : per split
        What it gained and what it paid.
    values : ndarray of shape (n_leaves, n_outputs)
    node_offsets, leaf_offsets : ndarray of shape (n_trees + 1,)
        Where the splits and leaves of each tree begin.
    """

    feature: Int32s
    threshold: Floats
    last_left: NDArray[np.uint8]
    missing_left: Bools
    children: Int32s
    gain: Floats
    charge: Floats
    values: Floats
    node_offsets: Int32s
    leaf_offsets: Int32s


def make_arrays(n_trees: int, n_splits: int, n_outputs: int) -> TreeArrays:
    """Allocate for so many trees with so many splits in all; the first will begin at zero."""
    node_offsets, leaf_offsets = np.empty(n_trees + 1, np.int32), np.empty(n_trees + 1, np.int32)
    node_offsets[0] = leaf_offsets[0] = 0
    return TreeArrays(
        np.empty(n_splits, np.int32),
        np.empty(n_splits),
        np.empty(n_splits, np.uint8),
        np.empty(n_splits, np.bool_),
        np.empty((n_splits, 2), np.int32),
        np.empty(n_splits),
        np.empty(n_splits),
        np.empty((n_splits + n_trees, n_outputs)),
        node_offsets,
        leaf_offsets,
    )


class EnsembleBuilder:
    """Collects the trees of ``TreeGrower.add_tree``, one after the other, in arrays that have room for more.

    Parameters
    ----------
    n_features : int
        Columns of the table they are grown on.
    n_outputs : int, default=1
        Values of a leaf.
    """

    def __init__(self, n_features: int, n_outputs: int = 1) -> None:
        self.n_features = n_features
        self.n_outputs = n_outputs
        self.n_trees = self.n_splits = 0
        self._arrays = make_arrays(16, 256, n_outputs)
        self._sets: list[tuple[LevelSets, int]] = []

    def room_for(self, n_trees: int, n_splits: int) -> TreeArrays:
        """Arrays with room for more trees of so many splits each; twice as long as before if they were full."""
        kept, trees, splits = self._arrays, self.n_trees + n_trees, self.n_splits + n_trees * n_splits
        max_trees, max_splits = len(kept.node_offsets) - 1, len(kept.feature)
        if trees > max_trees or splits > max_splits:
            larger = make_arrays(
                max(2 * max_trees, trees) if trees > max_trees else max_trees,
                max(2 * max_splits, splits) if splits > max_splits else max_splits,
                self.n_outputs,
            )
            for name in kept._fields:
                old: NDArray[Any] = getattr(kept, name)
                getattr(larger, name)[: len(old)] = old
            self._arrays = larger
        return self._arrays

    def add(self, n_trees: int, sets: LevelSets | None = None) -> None:
        """Count more trees, which are in the arrays already, with the sets that nodes of the first ask for."""
        if sets is not None:
            self._sets.append((sets, self.n_splits))
        self.n_trees += n_trees
        self.n_splits = int(self._arrays.node_offsets[self.n_trees])

    def ensemble(self, first: int = 0) -> TreeEnsemble:
        """Copy of the trees so far, from one on."""
        arrays, n_trees = self._arrays, self.n_trees
        node, leaf = arrays.node_offsets[first], arrays.leaf_offsets[first]
        nodes, leaves = slice(node, arrays.node_offsets[n_trees]), slice(leaf, arrays.leaf_offsets[n_trees])
        children = arrays.children[nodes]
        new = [(sets, start - node) for sets, start in self._sets if start >= node]
        return TreeEnsemble(
            self.n_features,
            arrays.feature[nodes].copy(),
            arrays.threshold[nodes].copy(),
            arrays.last_left[nodes].copy(),
            arrays.missing_left[nodes].copy(),
            np.where(children >= 0, children - node, children + leaf),
            arrays.values[leaves].copy(),
            arrays.node_offsets[first : n_trees + 1] - node,
            arrays.leaf_offsets[first : n_trees + 1] - leaf,
            LevelSets.concatenate([sets for sets, _ in new], [start for _, start in new]),
        )

    @property
    def gains(self) -> Floats:
        """Raw gain of each split, before charges."""
        return self._arrays.gain[: self.n_splits].copy()

    @property
    def charges(self) -> Floats:
        """Charge of each split."""
        return self._arrays.charge[: self.n_splits].copy()


@lean
def write_tree(
    ws: Workspace,
    ends: Floats,
    offsets: Int64s,
    learning_rate: Number,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> None:
    """Copy the finished tree to ``out``, as its tree ``number``, and add it to ``scores``, which may be of no rows.

    ``ends`` and ``offsets`` are the thresholds of all columns. Afterwards ``ws.leaf_of`` is the leaf of every row, and
    ``ws.bought`` has the groups that it uses: one that is free to use counts as bought once it is used.
    """
    n_leaves, n_splits = ws.tree[0].n_leaves, ws.tree[0].n_splits
    first_node, first_leaf = out.node_offsets[number], out.leaf_offsets[number]
    out.node_offsets[number + 1], out.leaf_offsets[number + 1] = first_node + n_splits, first_leaf + n_leaves
    for i in range(n_splits):
        split, node = ws.splits[i], first_node + i
        f = split.feature
        out.feature[node], out.last_left[node], out.missing_left[node] = (
            f,
            split.last_left,
            split.missing_left == 1,
        )
        ws.bought[ws.features[f].group] = True
        position = offsets[f] + split.last_left
        out.threshold[node] = ends[position] if position < offsets[f + 1] else np.inf
        for side, child in ((0, split.left), (1, split.right)):
            out.children[node, side] = child + first_node if child >= 0 else child - first_leaf
        out.gain[node], out.charge[node] = split.gain, split.charge
    leaf_of = ws.leaf_of  # the rows of last splits are there already
    for leaf in range(n_leaves):
        rows = ws.rows[ws.leaves[leaf].depth % 2]
        for i in range(ws.leaves[leaf].start, ws.leaves[leaf].stop):
            leaf_of[rows[i] & ROW] = leaf
        for i in range(ws.leaves[leaf].idle_start, ws.leaves[leaf].idle_stop):
            leaf_of[rows[i] & ROW] = leaf
    values = out.values[first_leaf : first_leaf + n_leaves]
    write_values(ws.totals, ws.lanes, ws.units, ws.limits.l2, learning_rate, values)
    add_leaf_values(values, leaf_of, scores)


@lean
def write_values(
    totals: Int64s, lanes: Lanes, units: Floats, l2: Number, learning_rate: Number, values: Floats
) -> None:
    """Best value of every leaf and output, ``-G / (H + l2)``; zero where there is nothing to divide by."""
    for leaf in range(len(values)):
        for k in range(len(units)):
            G = (totals[leaf, lanes.fields[k, 0]] >> lanes.fields[k, 1]) * units[k, 0]
            H = (totals[leaf, lanes.fields[k, 2]] & lanes.fields[k, 3]) * units[k, 1] + l2
            values[leaf, k] = -G / H * learning_rate if H > 0.0 and G != 0.0 else 0.0


@lean_kernel
def write_steps(
    leaf_of: Int32s,
    grad: Floats,
    hess: Floats,
    sums: Floats,
    l2: Number,
    max_step: Number,
    learning_rate: Number,
    values: Floats,
    scores: Floats,
) -> None:
    """Best value of every leaf and output, at most ``max_step``, added to the scores of its rows.

    ``grad`` and ``hess`` have the shape (n_outputs, n_rows); ``sums`` are zeros of shape (n_leaves, n_outputs, 2).
    """
    n_leaves, n_outputs = values.shape
    for i in range(len(leaf_of)):
        leaf = leaf_of[i]
        for k in range(n_outputs):
            sums[leaf, k, 0] += grad[k, i]
            sums[leaf, k, 1] += hess[k, i]
    for leaf in range(n_leaves):
        for k in range(n_outputs):
            G, H = sums[leaf, k]
            step = -G / (H + l2) if G != 0.0 else 0.0
            values[leaf, k] = learning_rate * min(max(step, -max_step), max_step)
    add_leaf_values(values, leaf_of, scores)


GIVEN, PACKED = 0, 1
"""Where derivatives come from: the caller, or the caller packed them already; other kinds are formulas."""
JOB = 1
"""Returned where the histograms of a job have several lanes, which are compiled apart."""
EVERY_ROW = np.empty((0, 0), dtype=bool)


class Rounds(NamedTuple):
    """Targets of successive trees: given derivatives, or a loss formula and the scores.

    Attributes
    ----------
    n_trees : int
    learning_rate : float
    kind : int
        Where derivatives come from.
    is_newton : bool
        Whether a formula's hessian is that of its loss; else it is the weight.
    target, counts : float64, (n_rows,)
        Targets of a formula, and weights.
    drawn : bool, (n_trees, n_rows)
        Rows that each tree is grown on; of no trees where each is grown on all.
    used : float64, (n_rows,)
        Takes the weights of the rows of one tree.
    grad, hess : float64, (n_rows,)
        Weighted derivatives, or where those of a formula are put.
    grad_bits, hess_bits : int64, (n_rows,)
        Their bits.
    score : float64, (n_rows,)
        Scores that a formula is computed at.
    """

    n_trees: int
    learning_rate: float
    kind: int
    is_newton: bool
    target: Floats
    counts: Floats
    drawn: Bools
    used: Floats
    grad: Floats
    hess: Floats
    grad_bits: Int64s
    hess_bits: Int64s
    score: Floats


def rounds_of(kind: int, grad: Floats, hess: Floats, learning_rate: float) -> Rounds:
    """One tree against weighted derivatives of one output, or against those in the workspace (``PACKED``)."""
    bits = grad.view(np.int64), hess.view(np.int64)
    return Rounds(1, learning_rate, kind, True, grad, grad, EVERY_ROW, grad, grad, hess, *bits, grad)


def rounds_by(
    formula: Formula,
    score: Floats,
    counts: Floats,
    drawn: Bools | None,
    n_trees: int,
    is_newton: bool,
    learning_rate: float,
) -> Rounds:
    """Some trees against a formula at the scores, each on the rows drawn for it."""
    used, grad, hess = np.empty((3, len(score)))
    return Rounds(
        n_trees,
        learning_rate,
        formula.kind,
        is_newton,
        _plain(formula.target),
        _plain(counts),
        EVERY_ROW if drawn is None else drawn,
        used,
        grad,
        hess,
        grad.view(np.int64),
        hess.view(np.int64),
        score,
    )


def _plain(values: Floats) -> Floats:
    """Values in the one form that is compiled for, which is that of most arrays."""
    is_plain = values.flags.carray and values.dtype == np.float64
    return values if is_plain else np.array(values, dtype=np.float64, order="C")


def run_rounds(
    ws: Workspace,
    levels: LevelSearch | None,
    rounds: Rounds,
    ends: Thresholds,
    out: TreeArrays,
    number: int,
    scores: Floats,
) -> int:
    """Grow trees, write them to ``out`` from ``number`` on, and add them to ``scores``, which may be of no rows.

    Returns 0, or -1 or -2 if a gradient or a hessian is not allowed.
    """
    ws.tree[0]["n_leaves"] = ws.tree[0]["n_grown"] = 0
    rest = (rounds, ends.values, ends.offsets, out, number, scores)
    if levels is not None and ws.lanes.n_lanes == 1:
        return int(grow_level_tree(ws, levels, *rest))
    while (left := int(grow_trees(ws, *rest))) == JOB:
        run_lanes(ws)
        if levels is not None:
            examine_levels(ws, levels)
    return left


@lean_kernel
def grow_trees(
    ws: Workspace,
    rounds: Rounds,
    ends: Floats,
    offsets: Int64s,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> Number:
    """Grow trees over numbers, as ``run_rounds`` does; returns 1 where a job of several lanes is left to the caller."""
    tree = ws.tree[0]
    while True:
        if tree.n_leaves == 0:
            if tree.n_grown == rounds.n_trees:
                return 0
            problem = pack_next(ws, rounds)
            if problem != 0:
                return -problem
        while next_job(ws):
            if ws.lanes.n_lanes > 1:
                return JOB
            run_job(ws)
        write_tree(ws, ends, offsets, rounds.learning_rate, out, number + tree.n_grown, scores)
        tree.n_leaves, tree.n_grown = 0, tree.n_grown + 1


@lean_kernel
def grow_level_tree(
    ws: Workspace,
    levels: LevelSearch,
    rounds: Rounds,
    ends: Floats,
    offsets: Int64s,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> Number:
    """Grow one tree over a table with columns of levels, as ``run_rounds`` does."""
    tree = ws.tree[0]
    problem = pack_next(ws, rounds)
    if problem != 0:
        return -problem
    while next_job(ws):
        run_job(ws)
        examine_levels(ws, levels)
    write_tree(ws, ends, offsets, rounds.learning_rate, out, number, scores)
    tree.n_leaves, tree.n_grown = 0, 1
    return 0


@lean
def pack_next(ws: Workspace, rounds: Rounds) -> Number:
    """Pack the derivatives of the next tree into the workspace; returns 1 or 2 if one is not allowed."""
    if rounds.kind == PACKED:
        return 0
    if rounds.kind != GIVEN:
        derive(rounds, ws.tree[0].n_grown, ws.lanes.constant)
    hess, hess_bits = rounds.hess, rounds.hess_bits
    packed, units, totals = ws.packed[0], ws.units[0], ws.totals[0]
    return pack_one(
        rounds.grad, hess, rounds.grad_bits, hess_bits, ws.lanes, 0, packed, packed, units, totals
    )


@lean
def derive(rounds: Rounds, tree: Number, constant: Number) -> None:
    """Write the weighted derivatives of a formula, rounded before they are weighted."""
    target, score, used, grad, hess = rounds.target, rounds.score, rounds.used, rounds.grad, rounds.hess
    if rounds.kind == LOGISTIC:
        write_derivatives(target, score, rounds.grad_bits, grad, hess)
    else:
        for i in range(len(score)):
            grad[i], hess[i] = score[i] - target[i], 1.0
    for i in range(len(score)):
        used[i] = rounds.counts[i]
    if len(rounds.drawn) > 0:
        drawn = rounds.drawn[tree]
        for i in range(len(score)):
            used[i] *= drawn[i]
    round_to(grad, used, GRADIENT_BITS - 2, grad)
    if rounds.is_newton:
        round_to(hess, used, CURVATURE_BITS - 2, hess)
    elif not constant:
        for i in range(len(score)):
            hess[i] = used[i]
