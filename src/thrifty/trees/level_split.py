"""The best split of a leaf by a set of levels.

Sorted by gradient over hessian, the best of all sets is one that the order cuts in two (Fisher, 1958): as many sums
are looked at as a column has levels. Levels of few rows come first and last by chance, so that hessians are smoothed in
that order, and a set must gain with a larger ``l2`` than a threshold; both as LightGBM does.

Compiled apart from the growth of a tree, which leaves jobs to its caller where a table has columns of levels.
"""

from typing import NamedTuple

import numpy as np

from thrifty.arrays import Floats, Int64s, Words
from thrifty.jit import Number, lean, lean_kernel
from thrifty.trees.best_first import FINISHED, advance, may_split, n_rows
from thrifty.trees.binning import BinnedTable
from thrifty.trees.categories import A_SET
from thrifty.trees.lanes import lanes_score
from thrifty.trees.split import leaf_offset
from thrifty.trees.workspace import Limits, Workspace

__all__ = ["SMOOTHING", "LevelSearch", "advance_levels", "examine_levels", "make_search"]

SMOOTHING = 10.0
"""Added to hessians where levels are ordered, and to ``l2`` where sets are compared."""
FEWEST = 2.5
"""Least hessian of a level in a leaf that sets are made of; levels of less follow those that are in no set."""


class LevelSearch(NamedTuple):
    """What the search for sets needs besides a workspace; each thread has its own.

    Attributes
    ----------
    limits : Limits
        Limits of a tree, with the ``l2`` of sets.
    n_codes : int64, (n_features,)
        Codes of each column of levels, that of missing values not counted; zero where a column holds numbers.
    order : int64, (n_cells,)
        Codes of the levels of one leaf and column, in the order of ``keys``.
    keys : float64, (n_cells,)
    sums : int64, (2, n_lanes)
        Sums of the set that is looked at, and of the best one.
    """

    limits: Limits
    n_codes: Int64s
    order: Int64s
    keys: Floats
    sums: Int64s

    def for_thread(self) -> "LevelSearch":
        """The same search, with memory of its own."""
        return self._replace(order=self.order.copy(), keys=self.keys.copy(), sums=self.sums.copy())


def make_search(table: BinnedTable, limits: Limits, n_lanes: int) -> LevelSearch:
    """Allocate for the search for sets of ``table`` within the limits of a tree."""
    assert table.categories is not None  # who has no columns of levels does not search them
    n_codes = np.where(table.categories.is_set, table.thresholds.n_bins, 0)
    strict, most = limits._replace(l2=limits.l2 + SMOOTHING), int(n_codes.max())
    return LevelSearch(
        strict, n_codes, np.empty(most, np.int64), np.empty(most), np.empty((2, n_lanes), np.int64)
    )


@lean
def advance_levels(ws: Workspace, levels: LevelSearch, first: Number, last: Number) -> Number:
    """Grow until the tree is finished (0) or a job over places up to a positive number is left to the caller.

    With ``last`` above zero only a part of the job is done, as in ``advance``.
    """
    tree, is_part = ws.tree[0], last > 0
    while True:
        left = advance(ws, first, last)
        if last > 0:
            examine_levels(ws, levels, first, last)
            if is_part:
                return FINISHED
            first, last = 0, 0
        elif left == FINISHED or (left - tree.first) * n_rows(ws.leaves[tree.small]) >= (
            levels.limits.shared_cells
        ):
            return left
        else:
            first, last = tree.first, left


@lean_kernel
def examine_levels(ws: Workspace, levels: LevelSearch, first: Number, last: Number) -> None:
    """Best set of levels of the leaves of a job, on each column of levels at places ``first .. last``."""
    tree, best = ws.tree[0], levels.sums[1]
    places = ws.places[0] if tree.is_whole else ws.places[1]
    for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
        if leaf < 0 or not may_split(ws.leaves[leaf], ws.limits):
            continue
        offset = leaf_offset(ws.totals[leaf], ws.lanes, ws.units, levels.limits.l2)
        for place in range(first, last):
            f = places[place]
            if levels.n_codes[f] == 0:
                continue
            found = ws.candidates[leaf, f]
            score, missing_left = search_levels(ws, levels, leaf, f, ws.hist[slot, f], ws.sets[leaf, f])
            found.gain, found.last_left, found.missing_left = -np.inf, A_SET, missing_left
            if score > 0.0:
                found.gain = 0.5 * (score - offset)
                for lane in range(len(best)):
                    ws.left_totals[leaf, f, lane] = best[lane]


@lean
def search_levels(
    ws: Workspace, levels: LevelSearch, leaf: Number, f: Number, cells: Int64s, bits: Words
) -> tuple[Number, Number]:
    """Score of the best set and whether missing values go left; ``bits`` takes its codes, ``levels`` its sums.

    The set is from the low or from the high end of the order. Several outputs are tried in the order of each.
    """
    n_lanes, n_codes, total = ws.lanes.n_lanes, levels.n_codes[f], ws.totals[leaf]
    missing, order, left, best = cells[n_codes * n_lanes :], levels.order, levels.sums[0], levels.sums[1]
    any_missing, highest, best_side = False, 0.0, False
    for lane in range(n_lanes):
        any_missing |= missing[lane] != 0
    for k in range(ws.units.shape[0]):
        n_there = sort_levels(ws, levels, k, n_codes, cells)
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
                    score = lanes_score(left, total, ws.lanes, ws.units, levels.limits)
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
        bits[n_codes >> 6] |= np.uint64(1) << np.uint64(n_codes & 63)
    return highest, best_side


@lean
def is_heavier(left: Int64s, total: Int64s, ws: Workspace) -> Number:
    """Whether the left child has at least half of the hessians."""
    left_sum, all_sum = 0.0, 0.0
    for k in range(ws.units.shape[0]):
        lane, mask = ws.lanes.fields[k, 2], ws.lanes.fields[k, 3]
        left_sum += (left[lane] & mask) * ws.units[k, 1]
        all_sum += (total[lane] & mask) * ws.units[k, 1]
    return 2 * left_sum >= all_sum


@lean
def sort_levels(ws: Workspace, levels: LevelSearch, output: Number, n_codes: Number, cells: Int64s) -> Number:
    """Put the levels that a leaf has enough of in the order of gradient over smoothed hessian; returns their number.

    Of equals the lower code is first. The last code before that of missing values stands for levels without one.
    """
    order, keys, n_lanes = levels.order, levels.keys, ws.lanes.n_lanes
    lane, shift, h_lane, mask = ws.lanes.fields[output]
    n_there = 0
    for code in range(n_codes - 1):
        H = (cells[code * n_lanes + h_lane] & mask) * ws.units[output, 1]
        if H >= FEWEST:
            G = (cells[code * n_lanes + lane] >> shift) * ws.units[output, 0]
            keys[n_there], order[n_there] = G / (H + SMOOTHING), code
            n_there += 1
    sort(keys[:n_there], order)
    return n_there


@lean
def sort(keys: Floats, order: Int64s) -> None:
    """Sort codes by their keys, equals by code, in place (Shell, 1959): most leaves have but few levels."""
    for gap in (132, 57, 23, 10, 4, 1):
        for i in range(gap, len(keys)):
            key, code, at = keys[i], order[i], i
            while at >= gap and (keys[at - gap] > key or (keys[at - gap] == key and order[at - gap] > code)):
                keys[at], order[at] = keys[at - gap], order[at - gap]
                at -= gap
            keys[at], order[at] = key, code
