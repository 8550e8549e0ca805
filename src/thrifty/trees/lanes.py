"""Histograms of several integers a cell: for several outputs, or where rows are counted beside their hessians.

Compiled apart from the growth of a tree, which leaves this work to its caller: most fits do without.
"""

import numpy as np

from thrifty.arrays import Floats, Int64s
from thrifty.jit import Number, Record, inner, lean, lean_kernel
from thrifty.trees.gradients import Lanes
from thrifty.trees.histogram import BYTE, CHUNK, TILE, gather, subtract
from thrifty.trees.split import leaf_offset
from thrifty.trees.workspace import Limits, Workspace

__all__ = ["run_lanes"]


@lean_kernel
def run_lanes(ws: Workspace, first: Number, last: Number) -> None:
    """Build and search the histograms of the job over places ``first .. last``, ``first`` a multiple of eight."""
    tree, limits = ws.tree[0], ws.limits
    places = ws.places[0] if tree.is_whole else ws.places[1]
    for start in range(first, last, CHUNK):
        stop = min(last, start + CHUNK)
        for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
            if leaf < 0:
                continue
            at, hist = ws.leaves[leaf], ws.hist[slot]
            if leaf == tree.big and tree.from_parent:
                for place in range(start, stop):
                    subtract(hist[places[place]], ws.hist[tree.small_slot, places[place]])
            else:
                fill_lanes(ws, at, places, start, stop, hist)
            n_rows = at.stop - at.start
            if at.depth < limits.max_depth and n_rows >= 2 * limits.min_child_samples and n_rows > 1:
                examine_lanes(ws, leaf, places[start:stop], hist)


@lean
def fill_lanes(
    ws: Workspace, leaf: Record, places: Int64s, first: Number, last: Number, hist: Int64s
) -> None:
    """Histogram of the rows of a leaf over the columns at places ``first .. last``."""
    for place in range(first, last):
        cells = hist[places[place]]
        for i in range(len(cells)):
            cells[i] = 0
    words = ws.words if ws.tree[0].is_whole else ws.free_words
    n_lanes, rows, packed = ws.lanes.n_lanes, ws.rows[leaf.depth % 2], ws.packed[leaf.depth % 2]
    for begin in range(leaf.start, leaf.stop, TILE):
        end = min(leaf.stop, begin + TILE)
        gather(words, rows, begin, end, first // 8, (last + 7) // 8, ws.tile)
        for place in range(first, last):
            codes, shift, cells = ws.tile[place // 8], np.uint64(8 * (place % 8)), hist[places[place]]
            for i in range(begin, end):
                base = np.int64((codes[i - begin] >> shift) & BYTE) * n_lanes
                for lane in range(n_lanes):
                    cells[base + lane] += packed[i * n_lanes + lane]


@lean
def examine_lanes(ws: Workspace, leaf: Number, columns: Int64s, hist: Int64s) -> None:
    """Best split of one leaf, whose histogram is given, on each of ``columns``; written to the candidates."""
    total, limits = ws.totals[leaf], ws.limits
    offset = leaf_offset(total, ws.lanes, ws.units, limits.l2)
    for f in columns:
        sums, found = ws.left_totals[leaf, f], ws.candidates[leaf, f]
        score, end, left = search_lanes(
            hist[f], ws.features[f].n_bins, total, ws.lanes, ws.units, limits, sums
        )
        if end >= 0:
            found.gain, found.last_left, found.missing_left = 0.5 * (score - offset), end, left


@lean
def lanes_score(
    left: Int64s,
    total: Int64s,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
) -> Number:
    """Sum over outputs of ``(GL b - GR a)^2 / (a b (H + 2 l2))``; negative if a child is too small."""
    score, left_sum, right_sum = 0.0, 0.0, 0.0
    n_outputs = units.shape[0]
    for k in range(n_outputs):
        lane, shift, h_lane, mask = lanes.fields[k]
        HL = (left[h_lane] & mask) * units[k, 1]
        HR = ((total[h_lane] - left[h_lane]) & mask) * units[k, 1]
        left_sum += HL
        right_sum += HR
        GL = (left[lane] >> shift) * units[k, 0]
        GR = ((total[lane] - left[lane]) >> shift) * units[k, 0]
        a, b = HL + limits.l2, HR + limits.l2
        if a > 0.0 and b > 0.0:
            cross = GL * b - GR * a
            score += cross * cross / (a * b * (a + b))
    if not (
        min(left_sum, right_sum) > 0.0 and min(left_sum, right_sum) >= limits.min_child_weight * n_outputs
    ):
        return -1.0
    lane, mask = lanes.fields[n_outputs, 0], lanes.fields[n_outputs, 1]
    if lane >= 0:
        n_left, n_right = left[lane] & mask, (total[lane] - left[lane]) & mask
        if min(n_left, n_right) < limits.min_child_samples:
            return -1.0
    return score


@inner
def search_lanes(
    hist: Int64s,
    n_bins: Number,
    total: Int64s,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
    sums: Int64s,
) -> tuple[Number, Number, Number]:
    """Best split of one column, for any number of outputs and any layout of lanes; ``sums`` takes the left child's."""
    n_lanes = lanes.n_lanes
    missing = hist[n_bins * n_lanes : (n_bins + 1) * n_lanes]
    any_missing = False
    for lane in range(n_lanes):
        any_missing |= missing[lane] != 0
    best, best_bin, best_left = 0.0, -1, False
    left = np.zeros(n_lanes, np.int64)
    for side in range(2 if any_missing else 1):
        for lane in range(n_lanes):
            left[lane] = missing[lane] if side == 1 else 0
        for b in range(n_bins):
            occupied = False
            for lane in range(n_lanes):
                cell = hist[b * n_lanes + lane]
                occupied |= cell != 0
                left[lane] += cell
            if not occupied:
                continue
            score = lanes_score(left, total, lanes, units, limits)
            if score > best:
                best, best_bin, best_left = score, b, side == 1
                for lane in range(n_lanes):
                    sums[lane] = left[lane]
    if not any_missing and best_bin >= 0:
        left_sum, all_sum = 0.0, 0.0
        for k in range(units.shape[0]):
            lane, mask = lanes.fields[k, 2], lanes.fields[k, 3]
            left_sum += (sums[lane] & mask) * units[k, 1]
            all_sum += (total[lane] & mask) * units[k, 1]
        best_left = 2 * left_sum >= all_sum
    return best, best_bin, best_left
