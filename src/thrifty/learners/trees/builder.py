"""Finished trees, copied out of the workspace."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s, Int64s
from thrifty.engine.trees.binning import LevelSets
from thrifty.engine.trees.ensemble import TreeEnsemble, add_leaf_values
from thrifty.jit import Number, lean
from thrifty.learners.trees.gradients import Lanes
from thrifty.learners.trees.histogram import ROW
from thrifty.learners.trees.workspace import Workspace


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
