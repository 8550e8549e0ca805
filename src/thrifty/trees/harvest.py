"""A finished tree out of the workspace it was grown in, in one compiled call: small trees are many."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int32s
from thrifty.trees.histogram import ROW
from thrifty.trees.kernel import Number, lean, lean_kernel
from thrifty.trees.quantise import Lanes
from thrifty.trees.workspace import (
    DEPTH,
    FEATURE,
    GROUP,
    LAST_LEFT,
    LEFT,
    MISSING_LEFT,
    N_LEAVES,
    N_SPLITS,
    RIGHT,
    START,
    STOP,
    WORK,
    Workspace,
)

__all__ = ["Harvest", "harvest", "make_harvest"]


class Harvest(NamedTuple):
    """Arrays that finished trees are copied to, one after the other: returning them would cost more than passing them.

    Attributes
    ----------
    feature, threshold, last_left, missing_left, children : per split
    raw, charge : per split
        What it gained and what it paid.
    values : ndarray of shape (n_leaves, n_outputs)
    node_offsets, leaf_offsets : ndarray of shape (n_trees + 1,)
        Where the splits and leaves of each tree begin.
    """

    feature: Int32s
    threshold: Floats
    last_left: NDArray[np.uint8]
    missing_left: NDArray[np.bool_]
    children: Int32s
    raw: Floats
    charge: Floats
    values: Floats
    node_offsets: Int32s
    leaf_offsets: Int32s


def make_harvest(n_trees: int, n_splits: int, n_outputs: int) -> Harvest:
    """Allocate for so many trees with so many splits in all; the first will begin at zero."""
    node_offsets, leaf_offsets = np.empty(n_trees + 1, np.int32), np.empty(n_trees + 1, np.int32)
    node_offsets[0] = leaf_offsets[0] = 0
    return Harvest(
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


@lean_kernel
def harvest(
    ws: Workspace,
    ends: Floats,
    offsets: NDArray[np.int64],
    lanes: Lanes,
    units: Floats,
    l2: Number,
    learning_rate: Number,
    before: NDArray[np.bool_],
    out: Harvest,
    tree: Number,
    scores: Floats,
) -> tuple[Number, Number]:
    """Copy the finished tree to ``out``, as its number ``tree``, and add it to ``scores``, which may be of no rows.

    ``ends`` and ``offsets`` are the thresholds of all columns. Afterwards ``ws.leaf_of`` is the leaf of every row.
    Returns the number of cells added to histograms, and of groups used that were not in use ``before``: a group that is
    free to use counts as bought once it is used.
    """
    n_leaves, n_splits = ws.state[N_LEAVES], ws.state[N_SPLITS]
    first_node, first_leaf = out.node_offsets[tree], out.leaf_offsets[tree]
    out.node_offsets[tree + 1], out.leaf_offsets[tree + 1] = first_node + n_splits, first_leaf + n_leaves
    for split in range(n_splits):
        node = first_node + split
        f, code = ws.node_int[split, FEATURE], ws.node_int[split, LAST_LEFT]
        out.feature[node], out.last_left[node] = f, code
        ws.bought[ws.features[GROUP, f]] = True
        out.missing_left[node] = ws.node_int[split, MISSING_LEFT] == 1
        position = offsets[f] + code
        out.threshold[node] = ends[position] if position < offsets[f + 1] else np.inf
        for side, child in ((0, ws.node_int[split, LEFT]), (1, ws.node_int[split, RIGHT])):
            out.children[node, side] = child + first_node if child >= 0 else child - first_leaf
        out.raw[node], out.charge[node] = ws.node_float[split, 0], ws.node_float[split, 1]
    leaf_of = ws.leaf_of  # the rows of last splits are there already
    for leaf in range(n_leaves):
        rows = ws.rows[ws.leaf[leaf, DEPTH] % 2]
        for i in range(ws.leaf[leaf, START], ws.leaf[leaf, STOP]):
            leaf_of[rows[i] & ROW] = leaf
    values = out.values[first_leaf : first_leaf + n_leaves]
    leaf_values(ws.totals, lanes, units, l2, learning_rate, values)
    add_values(values, leaf_of, scores)
    n_new = 0
    for group in range(len(before)):
        n_new += ws.bought[group] != before[group]
    return ws.features[WORK].sum(), n_new


@lean
def add_values(values: Floats, leaf_of: Int32s, scores: Floats) -> None:
    """Add to the scores of each of their rows the values of its leaf."""
    n_rows, n_outputs = scores.shape
    if n_outputs == 1:  # arrays of one dimension, so that no place is multiplied out
        only, score = values.reshape(values.size), scores.reshape(scores.size)
        for i in range(n_rows):
            score[i] += only[np.uint64(leaf_of[i])]
        return
    for i in range(n_rows):
        for k in range(n_outputs):
            scores[i, k] += values[leaf_of[i], k]


@lean
def leaf_values(
    totals: NDArray[np.int64], lanes: Lanes, units: Floats, l2: Number, learning_rate: Number, values: Floats
) -> None:
    """Best value of every leaf and output, ``-G / (H + l2)``; zero where there is nothing to divide by."""
    for leaf in range(len(values)):
        for k in range(len(units)):
            g_lane, shift, h_lane, mask = lanes.fields[k]
            G = (totals[leaf, g_lane] >> shift) * units[k, 0]
            H = (totals[leaf, h_lane] & mask) * units[k, 1] + l2
            values[leaf, k] = -G / H * learning_rate if H > 0.0 and G != 0.0 else 0.0
