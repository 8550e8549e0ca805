"""The best split of a leaf by a set of levels.

Sorted by gradient over hessian, the best of all sets is one that the order cuts in two (Fisher, 1958): as many sums
are looked at as a column has levels. Levels of few rows come first and last by chance, so that hessians are smoothed in
that order, and a set must gain with a larger ``l2`` than a threshold; both as LightGBM does.

Compiled apart from the growth of a tree, which leaves jobs to its caller where a table has columns of levels.
"""

from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Int64s, Words
from thrifty.compiled import Number, inner, kernel, lean
from thrifty.trees.best_first import may_split
from thrifty.trees.categories import A_SET
from thrifty.trees.lanes import lanes_score
from thrifty.trees.split import leaf_offset
from thrifty.trees.workspace import Limits, Workspace

__all__ = ["SMOOTHING", "examine_levels"]

SMOOTHING = 10.0
"""Added to hessians where levels are ordered, and to ``l2`` where sets are compared."""
FEWEST = 2.5
"""Least hessian of a level in a leaf that sets are made of; levels of less follow those that are in no set."""


@kernel
def examine_levels(ws: Workspace, is_set: Bools, strict: Limits, first: Number, last: Number) -> None:
    """Best set of levels of the leaves of a job, on each column of levels at places ``first .. last``.

    ``strict`` are the limits of a tree with the ``l2`` of sets.
    """
    tree = ws.tree[0]
    places = ws.places[0] if tree.is_whole else ws.places[1]
    best = np.zeros(ws.lanes.n_lanes, np.int64)
    for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
        if leaf < 0 or not may_split(ws.leaves[leaf], ws.limits):
            continue
        total = ws.totals[leaf]
        offset = leaf_offset(total, ws.lanes, ws.units, strict.l2)
        for place in range(first, last):
            f = places[place]
            if not is_set[f]:
                continue
            cells, n_bins, found = ws.hist[slot, f], ws.features[f].n_bins, ws.candidates[leaf, f]
            score, missing_left = search_levels(cells, n_bins, total, ws, strict, best, ws.sets[leaf, f])
            found.gain, found.last_left, found.missing_left = -np.inf, A_SET, missing_left
            if score > 0.0:
                found.gain = 0.5 * (score - offset)
                for lane in range(len(best)):
                    ws.left_totals[leaf, f, lane] = best[lane]


@inner
def search_levels(
    cells: Int64s, n_bins: Number, total: Int64s, ws: Workspace, strict: Limits, best: Int64s, bits: Words
) -> tuple[Number, Number]:
    """Score of the best set and whether missing values go left; ``best`` and ``bits`` take its sums and codes.

    The set is from the low or from the high end of the order. Several outputs are tried in the order of each.
    """
    n_lanes, missing = ws.lanes.n_lanes, cells[n_bins * ws.lanes.n_lanes :]
    left, order, keys = np.zeros(n_lanes, np.int64), np.empty(n_bins, np.int64), np.empty(n_bins)
    any_missing, highest, best_side = False, 0.0, False
    for lane in range(n_lanes):
        any_missing |= missing[lane] != 0
    for k in range(ws.units.shape[0]):
        n_there = sort_levels(cells, n_bins, ws, k, order, keys)
        most = (n_there + 1) // 2  # a set, or what it leaves, has no more levels than that
        for from_high in range(2):
            for side in range(2 if any_missing else 1):
                for lane in range(n_lanes):
                    left[lane] = missing[lane] if side == 1 else 0
                n_best = 0
                for at in range(most):
                    code = order[n_there - 1 - at] if from_high else order[at]
                    for lane in range(n_lanes):
                        left[lane] += cells[code * n_lanes + lane]
                    score = lanes_score(left, total, ws.lanes, ws.units, strict)
                    if score > highest:
                        highest, best_side, n_best = score, side == 1, at + 1
                        for lane in range(n_lanes):
                            best[lane] = left[lane]
                if n_best:
                    bits[:] = 0
                for at in range(n_best):
                    code = order[n_there - 1 - at] if from_high else order[at]
                    bits[code >> 6] |= np.uint64(1) << np.uint64(code & 63)
    if highest > 0.0 and not any_missing:
        best_side = is_heavier(best, total, ws)
    if best_side:
        bits[n_bins >> 6] |= np.uint64(1) << np.uint64(n_bins & 63)
    return highest, best_side


@lean
def is_heavier(left: Int64s, total: Int64s, ws: Any) -> Number:
    """Whether the left child has at least half of the hessians."""
    left_sum, all_sum = 0.0, 0.0
    for k in range(ws.units.shape[0]):
        lane, mask = ws.lanes.fields[k, 2], ws.lanes.fields[k, 3]
        left_sum += (left[lane] & mask) * ws.units[k, 1]
        all_sum += (total[lane] & mask) * ws.units[k, 1]
    return 2 * left_sum >= all_sum


@inner
def sort_levels(
    cells: Int64s, n_bins: Number, ws: Any, output: Number, order: Int64s, keys: Floats
) -> Number:
    """Put the levels that a leaf has enough of in the order of gradient over smoothed hessian; returns their number.

    Of equals the lower code is first. The last code before that of missing values stands for levels without one.
    """
    lane, shift = ws.lanes.fields[output, 0], ws.lanes.fields[output, 1]
    h_lane, mask, n_lanes = ws.lanes.fields[output, 2], ws.lanes.fields[output, 3], ws.lanes.n_lanes
    n_there = 0
    for b in range(n_bins - 1):
        H = (cells[b * n_lanes + h_lane] & mask) * ws.units[output, 1]
        if H >= FEWEST:
            G = (cells[b * n_lanes + lane] >> shift) * ws.units[output, 0]
            keys[n_there], order[n_there] = G / (H + SMOOTHING), b
            n_there += 1
    order[:n_there] = order[:n_there][np.argsort(keys[:n_there], kind="mergesort")]
    return n_there
