"""A finished tree out of the workspace it was grown in, in one compiled call: small trees are many."""

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.kernel import Number, inner, kernel
from thrifty.trees.quantise import Lanes
from thrifty.trees.workspace import (
    DEPTH,
    FEATURE,
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

__all__ = ["Harvest", "harvest"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
# Column, threshold, last left bin, side of missing values and children of every node; gains and charges; values of
# leaves; leaf of every row; cells added to histograms.
Harvest = tuple[
    Ints, Floats, NDArray[np.uint8], NDArray[np.bool_], Ints, Floats, Floats, Floats, Ints, Number
]


@kernel
def harvest(
    ws: Workspace,
    ends: Floats,
    offsets: NDArray[np.int64],
    lanes: Lanes,
    units: Floats,
    l2: Number,
    learning_rate: Number,
) -> Harvest:
    """Copy nodes and leaves; ``ends`` and ``offsets`` are the thresholds of all columns."""
    n_leaves, n_splits = ws.state[N_LEAVES], ws.state[N_SPLITS]
    feature, threshold = np.empty(n_splits, np.int32), np.empty(n_splits)
    last_left, missing_left = np.empty(n_splits, np.uint8), np.empty(n_splits, np.bool_)
    children, raw, charge = np.empty((n_splits, 2), np.int32), np.empty(n_splits), np.empty(n_splits)
    for node in range(n_splits):
        f, code = ws.node_int[node, FEATURE], ws.node_int[node, LAST_LEFT]
        feature[node], last_left[node], missing_left[node] = f, code, ws.node_int[node, MISSING_LEFT] == 1
        position = offsets[f] + code
        threshold[node] = ends[position] if position < offsets[f + 1] else np.inf
        children[node, 0], children[node, 1] = ws.node_int[node, LEFT], ws.node_int[node, RIGHT]
        raw[node], charge[node] = ws.node_float[node, 0], ws.node_float[node, 1]
    leaf_of_row = ws.leaf_of.copy()  # with the rows of last splits
    for leaf in range(n_leaves):
        rows = ws.rows[ws.leaf[leaf, DEPTH] % 2]
        for i in range(ws.leaf[leaf, START], ws.leaf[leaf, STOP]):
            leaf_of_row[rows[i]] = leaf
    values = leaf_values(ws.totals, n_leaves, lanes, units, l2, learning_rate)
    n_cells = ws.features[WORK].sum()
    return feature, threshold, last_left, missing_left, children, raw, charge, values, leaf_of_row, n_cells


@inner
def leaf_values(
    totals: NDArray[np.int64],
    n_leaves: Number,
    lanes: Lanes,
    units: Floats,
    l2: Number,
    learning_rate: Number,
) -> Floats:
    """Best value of every leaf and output, ``-G / (H + l2)``; zero where there is nothing to divide by."""
    values = np.zeros((n_leaves, len(units)))
    for leaf in range(n_leaves):
        for k in range(len(units)):
            g_lane, shift, h_lane, mask = lanes.fields[k]
            G = (totals[leaf, g_lane] >> shift) * units[k, 0]
            H = (totals[leaf, h_lane] & mask) * units[k, 1] + l2
            if H > 0.0 and G != 0.0:
                values[leaf, k] = -G / H * learning_rate
    return values
