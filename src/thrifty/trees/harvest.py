"""A finished tree out of the workspace it was grown in, in one compiled call: small trees are many."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


class Harvest(NamedTuple):
    """Arrays that a finished tree is copied to, allocated by the caller: returning them costs more than passing them.

    Attributes
    ----------
    feature, threshold, last_left, missing_left, children : per split
    raw, charge : per split
        What it gained and what it paid.
    values : ndarray of shape (n_leaves, n_outputs)
    node_offsets, leaf_offsets : ndarray of shape (2,)
        Where its nodes and leaves begin and end.
    leaf_of_row : ndarray of shape (n_rows,)
    """

    feature: Ints
    threshold: Floats
    last_left: NDArray[np.uint8]
    missing_left: NDArray[np.bool_]
    children: Ints
    raw: Floats
    charge: Floats
    values: Floats
    node_offsets: Ints
    leaf_offsets: Ints
    leaf_of_row: Ints


def make_harvest(n_splits: int, n_leaves: int, n_outputs: int, n_rows: int) -> Harvest:
    """Allocate for a tree of this size."""
    return Harvest(
        np.empty(n_splits, np.int32),
        np.empty(n_splits),
        np.empty(n_splits, np.uint8),
        np.empty(n_splits, np.bool_),
        np.empty((n_splits, 2), np.int32),
        np.empty(n_splits),
        np.empty(n_splits),
        np.empty((n_leaves, n_outputs)),
        np.empty(2, np.int32),
        np.empty(2, np.int32),
        np.empty(n_rows, np.int32),
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
) -> tuple[Number, Number]:
    """Copy nodes and leaves to ``out``; ``ends`` and ``offsets`` are the thresholds of all columns.

    Returns the number of cells added to histograms, and of groups used that were not in use ``before``: a group that is
    free to use counts as bought once it is used.
    """
    n_leaves, n_splits = ws.state[N_LEAVES], ws.state[N_SPLITS]
    out.node_offsets[0], out.node_offsets[1] = 0, n_splits
    out.leaf_offsets[0], out.leaf_offsets[1] = 0, n_leaves
    for node in range(n_splits):
        f, code = ws.node_int[node, FEATURE], ws.node_int[node, LAST_LEFT]
        out.feature[node], out.last_left[node] = f, code
        ws.bought[ws.features[GROUP, f]] = True
        out.missing_left[node] = ws.node_int[node, MISSING_LEFT] == 1
        position = offsets[f] + code
        out.threshold[node] = ends[position] if position < offsets[f + 1] else np.inf
        out.children[node, 0], out.children[node, 1] = ws.node_int[node, LEFT], ws.node_int[node, RIGHT]
        out.raw[node], out.charge[node] = ws.node_float[node, 0], ws.node_float[node, 1]
    leaf_of_row, leaf_of = out.leaf_of_row, ws.leaf_of
    for i in range(len(leaf_of)):  # with the rows of last splits
        leaf_of_row[i] = leaf_of[i]
    for leaf in range(n_leaves):
        rows = ws.rows[ws.leaf[leaf, DEPTH] % 2]
        for i in range(ws.leaf[leaf, START], ws.leaf[leaf, STOP]):
            leaf_of_row[rows[i]] = leaf
    leaf_values(ws.totals, lanes, units, l2, learning_rate, out.values)
    n_new = 0
    for group in range(len(before)):
        n_new += ws.bought[group] != before[group]
    return ws.features[WORK].sum(), n_new


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
