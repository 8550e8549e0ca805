"""Best-first growth of one tree that knows what a feature costs and that it is paid once.

Every open leaf keeps the best *raw* gain of every feature. The next split is

    argmax over leaves and features of   raw gain - gamma * price * unbought

and it is made only if that net gain is positive. When a split buys a group, its charge becomes zero and
every leaf chooses again from the raw gains: recomputed, never patched.

Two new leaves are examined as one *job*. The histogram of the smaller is built from its rows and that of the larger is
what remains of their parent's; if the parent's was not kept, both are built. Only leaves whose children will be
examined keep a histogram, as long as there are slots; sums are exact, so either way gives the same bits.

Work that cannot pay is skipped. What a leaf's rows could gain if each had its own value bounds the gain of any split;
if that is below the charge of every feature still to be bought, only the free features are examined, from a copy of
their columns. If one that was skipped is bought in another leaf later, it is examined then. In a leaf of few rows most
bins are empty, and those are passed over. The trees are the same, bit for bit, as without skipping.

*Rows.* The rows of a leaf are one stretch of an array of row numbers, with their packed gradients beside them, so that
a histogram reads gradients in sequence. There are two such arrays, for leaves of even and of odd depth: a split copies
from one to the other, left rows in order and right rows in reverse, which is as good to the memory.

Rows without gradient and hessian, such as those that a tree is not grown on, come last: they go the way of the others,
to be scored, and are in no histogram.

*Levels.* Of levels sorted by gradient over hessian, the best of all sets is one that the order cuts in two (Fisher,
1958): as many sums are looked at as a column has levels. Levels of few rows come first and last by chance, so that
hessians are smoothed in that order, and a set must gain with a larger ``l2`` than a threshold; both as LightGBM does.

Trees over columns of levels are compiled apart from those over numbers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int32s, Int64s, Words
from thrifty.engine.trees.binning import LEVEL_SET, BinnedTable
from thrifty.jit import Number, Record, lean, lean_kernel
from thrifty.learners.trees.split import (
    BYTE,
    CARRIED_FROM,
    CHUNK,
    MAX_CARRIED,
    ROW,
    can_pay,
    choose,
    examine,
    examine_rows,
    fill,
    is_heavier,
    lanes_score,
    leaf_offset,
    may_split,
    subtract,
)
from thrifty.learners.trees.workspace import Limits, Workspace

TINY, HUGE = 2.0**-400, 2.0**400  # units of gradients between these have squares that are numbers


@lean
def next_job(ws: Workspace) -> Number:
    """Grow until histograms are needed, those of a job, or the tree is finished: then False."""
    tree = ws.tree[0]
    if tree.n_leaves == 0:
        begin(ws)
    elif tree.small >= 0:
        end_job(ws)
    while not (review(ws) or plan_job(ws)):
        if not split(ws):
            return False
    return True


@lean
def run_job(ws: Workspace) -> None:
    """Build and search the histograms of the job, of one integer a cell."""
    tree = ws.tree[0]
    words, places, n_carried = ws.free_words, ws.places[1], tree.n_carried
    if tree.is_whole:
        words, places, n_carried = ws.words, ws.places[0], np.int64(0)
    if tree.is_few:
        for leaf in (tree.small, tree.big):
            if leaf >= 0:
                examine_rows(ws, leaf, words, places, tree.first, tree.last)
        return
    for start in range(tree.first, tree.last, CHUNK):
        stop = start + CHUNK if start + CHUNK < tree.last else tree.last
        for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
            if leaf < 0:
                continue
            at, hist = ws.leaves[leaf], ws.hist[slot]
            if leaf == tree.big and tree.from_parent:
                for place in range(start, stop):
                    subtract(hist[places[place]], ws.hist[tree.small_slot, places[place]])
            else:
                rows, packed = ws.rows[at.depth % 2], ws.packed[at.depth % 2]
                fill(words, places, start, stop, rows, packed, at.start, at.stop, n_carried, ws.tile, hist)
            if may_split(ws, leaf):
                examine(ws, leaf, places, start, stop, hist)


@lean
def begin(ws: Workspace) -> None:
    """Begin a tree: one leaf with every row."""
    tree, leaf, n_kept = ws.tree[0], ws.leaves[0], ws.hist.shape[0] - 2
    tree.n_leaves, tree.n_splits, tree.n_cells, tree.parent_slot = 1, 0, 0, -1
    tree.skips = ws.limits.skip_hopeless
    for output in range(len(ws.units)):
        for k in range(2):  # bounds that overflow, or come to nothing, prove nothing
            if not TINY < ws.units[output, k] < HUGE:
                tree.skips = 0
    for i in range(n_kept):
        ws.free_slots[i] = i
    tree.n_free_slots = n_kept
    leaf.depth, leaf.parent, leaf.slot, leaf.net_gain = 0, -1, -1, -np.inf
    tree.left, tree.right, tree.review = 0, -1, 1
    copy_free_columns(ws)
    n_used = number_rows(ws)
    leaf.start, leaf.stop, leaf.idle_start, leaf.idle_stop = 0, n_used, n_used, ws.rows.shape[1]


@lean
def n_rows(leaf: Record) -> Number:
    """Rows of a leaf."""
    return leaf.stop - leaf.start


# -- a job -------------------------------------------------------------------------------------


@lean
def plan_job(ws: Workspace) -> Number:
    """Decide which histograms the children of the last split need, or the root; False if they will not be split."""
    tree, leaves, limits, free_slots = ws.tree[0], ws.leaves, ws.limits, ws.free_slots
    left, right, parent_slot = tree.left, tree.right, tree.parent_slot
    tree.left = -1
    if left < 0:
        return False
    left_open, right_open = may_split(ws, left), right >= 0 and may_split(ws, right)
    if tree.n_leaves == limits.max_leaves or not (left_open or right_open):
        release_slot(tree, free_slots, parent_slot)
        return False
    is_whole = (left_open and can_pay(ws, left)) or (right_open and can_pay(ws, right))
    # A free column's histogram is in every kept slot; a priced one's only in those of leaves examined whole.
    from_parent = parent_slot >= 0 and (tree.parent_is_whole or not is_whole)
    n_both = n_rows(leaves[left]) + (n_rows(leaves[right]) if right >= 0 else 0)
    tree.is_few = n_both <= limits.few_rows and ws.lanes.n_lanes == 1 and len(ws.sets) == 0
    if tree.is_few:
        from_parent = False
    small, big, big_open = left, right, right_open
    if right >= 0 and n_rows(leaves[right]) < n_rows(leaves[left]):
        small, big, big_open = right, left, left_open
    if not big_open:
        big = np.int64(-1)
    elif not from_parent and not may_split(ws, small):
        small, big = big, np.int64(-1)
    if big < 0 or not from_parent:
        release_slot(tree, free_slots, parent_slot)
        from_parent = False
    tree.small, tree.big, tree.from_parent, tree.is_whole = small, big, from_parent, is_whole
    tree.first, tree.last = 0, len(ws.charges) if is_whole else tree.n_free
    tree.small_slot = tree.big_slot = -1
    if not tree.is_few:
        tree.small_slot = take_slot(tree, free_slots, leaves[small], limits, np.int64(0))
    tree.n_cells += tree.last * n_rows(leaves[small])
    if from_parent:
        tree.big_slot = parent_slot
    elif big >= 0:
        if not tree.is_few:
            tree.big_slot = take_slot(tree, free_slots, leaves[big], limits, np.int64(1))
        tree.n_cells += tree.last * n_rows(leaves[big])
    for leaf in (small, big):
        if leaf >= 0:
            leaves[leaf].net_gain, leaves[leaf].is_whole = -np.inf, is_whole
            for f in range(len(ws.charges)):
                ws.candidates[leaf, f].gain = -np.inf
    return True


@lean
def take_slot(tree: Record, free_slots: Int64s, leaf: Record, limits: Limits, scratch: Number) -> Number:
    """Slot for the histogram of a leaf: kept if its children will be examined, else scratch."""
    if leaf.depth + 1 >= limits.max_depth or tree.n_free_slots == 0:
        return len(free_slots) - 1 - scratch
    tree.n_free_slots -= 1
    return free_slots[tree.n_free_slots]


@lean
def release_slot(tree: Record, free_slots: Int64s, slot: Number) -> None:
    """Give a kept slot back; scratch slots and none are left alone."""
    if 0 <= slot < len(free_slots) - 2:
        free_slots[tree.n_free_slots] = slot
        tree.n_free_slots += 1


@lean
def end_job(ws: Workspace) -> None:
    """Choose the splits of the leaves of a finished job, and keep the histograms that their children need."""
    tree = ws.tree[0]
    for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
        if leaf < 0:
            continue
        at = ws.leaves[leaf]
        choose(at, ws.candidates[leaf], ws.charges, ws.order)
        is_kept = may_split(ws, leaf) and at.depth + 1 < ws.limits.max_depth
        at.slot = slot if is_kept and slot < ws.hist.shape[0] - 2 else -1
        if not is_kept:
            release_slot(tree, ws.free_slots, slot)
    tree.small = -1


# -- a split -----------------------------------------------------------------------------------


@lean
def split(ws: Workspace) -> Number:
    """Split the leaf that gains most, paying for what that uses; False if none should be split.

    The left child takes its number, the right child is a new leaf.
    """
    tree, leaves, splits = ws.tree[0], ws.leaves, ws.splits
    leaf: Number = np.int64(0)
    new = tree.n_leaves
    for i in range(1, new):
        if leaves[i].net_gain > leaves[leaf].net_gain:
            leaf = i
    if new == ws.limits.max_leaves or not leaves[leaf].net_gain > 0.0:
        return False
    f, node, parent, depth = leaves[leaf].best, tree.n_splits, leaves[leaf].parent, leaves[leaf].depth + 1
    if parent >= 0 and splits[parent].left == ~leaf:
        splits[parent].left = node
    elif parent >= 0:
        splits[parent].right = node
    found, made = ws.candidates[leaf, f], splits[node]
    made.feature, made.left, made.right = f, ~leaf, ~new
    made.last_left, made.missing_left = found.last_left, found.missing_left
    made.gain, made.charge = found.gain, ws.charges[f]
    tree.n_leaves, tree.n_splits = new + 1, node + 1
    tree.parent_slot, tree.parent_is_whole = leaves[leaf].slot, leaves[leaf].is_whole
    tree.left, tree.right = leaf, new
    divide(ws, leaf, new, depth == ws.limits.max_depth)
    for child in (leaf, new):
        at = leaves[child]
        at.depth, at.parent, at.slot, at.is_whole, at.net_gain = depth, node, -1, 1, -np.inf
    if made.charge > 0.0:
        buy(ws, f)
    return True


@lean
def buy(ws: Workspace, f: Number) -> None:
    """Pay for the group of ``f``: its columns are free from now on, and every leaf is to be reviewed."""
    tree, features = ws.tree[0], ws.features
    ws.bought[features[f].group] = True
    for other in range(len(features)):
        if features[other].group == features[f].group:
            ws.charges[other] = 0.0
    if not tree.parent_is_whole:  # the group's other columns are free now, but not in this histogram
        release_slot(tree, ws.free_slots, tree.parent_slot)
        tree.parent_slot = -1
    tree.fresh, tree.review = tree.n_free // 8 * 8, 0
    copy_free_columns(ws)


@lean
def review(ws: Workspace) -> Number:
    """After a purchase let every leaf choose again; True if one that skipped its columns must examine them first."""
    tree, leaves, is_whole = ws.tree[0], ws.leaves, ws.tree[0].copy_is_used == 0
    while tree.review < tree.n_leaves:
        leaf = tree.review
        at = leaves[leaf]
        tree.review += 1
        if not at.is_whole and may_split(ws, leaf):
            tree.small, tree.big, tree.from_parent, tree.is_whole = leaf, -1, 0, is_whole
            tree.is_few = 0
            tree.small_slot = at.slot if at.slot >= 0 else len(ws.hist) - 1
            tree.first, tree.last = (0, len(ws.charges)) if is_whole else (tree.fresh, tree.n_free)
            tree.n_cells += (tree.last - tree.first) * n_rows(at)
            at.is_whole = is_whole
            return True
        if at.net_gain > -np.inf:
            choose(at, ws.candidates[leaf], ws.charges, ws.order)
    return False


# -- rows of a leaf --------------------------------------------------------------------------------


@lean
def copy_free_columns(ws: Workspace) -> None:
    """Copy the columns that became free since the last look beside those that were free before, if they fit."""
    tree, words, copy, n_rows = ws.tree[0], ws.words, ws.free_words, ws.rows.shape[1]
    n_words, n_copied = len(words) // n_rows, len(copy) // n_rows
    for f in range(len(ws.charges)):
        if ws.charges[f] > 0.0 or ws.features[f].place >= 0:
            continue
        place = tree.n_free
        if not tree.copy_is_used or place == 8 * n_copied:
            tree.copy_is_used = 0
            return
        source, from_bit = f // 8, np.uint64(8 * (f % 8))
        target, to_bit = place // 8, np.uint64(8 * (place % 8))
        for i in range(n_rows):
            code = (words[i * n_words + source] >> from_bit) & BYTE
            at = i * n_copied + target
            copy[at] = (copy[at] & ~(BYTE << to_bit)) | (code << to_bit)
        ws.places[1, place], ws.features[f].place = f, place
        tree.n_free = place + 1


@lean
def number_rows(ws: Workspace) -> Number:
    """Put every row in its place, with the codes of the first free columns; returns how many rows count.

    The others come behind those.
    """
    tree, rows, packed, words = ws.tree[0], ws.rows[0], ws.packed[0], ws.free_words
    n_words, up, last = len(words) // len(rows), np.uint64(8 * CARRIED_FROM), len(rows) - 1
    n_used: Number = 0
    tree.n_carried = 0
    if tree.skips and tree.copy_is_used:
        tree.n_carried = tree.n_free if tree.n_free < MAX_CARRIED else MAX_CARRIED
    if ws.lanes.n_lanes > 1:
        n_used = len(rows)
        for i in range(len(rows)):
            rows[i] = i
    else:
        for i in range(len(rows)):
            value = packed[i]
            packed[n_used] = value
            is_idle = -np.int64(value == 0)
            rows[np.uint64(n_used + ((last - i) & is_idle))] = i
            n_used += is_idle + 1
    if tree.n_carried > 0:
        for i in range(len(rows)):
            rows[i] |= words[rows[i] * n_words] << up
    return n_used


@lean
def left_of(code: Number, add: Number, limit: Number) -> Number:
    """All bits set if a code goes left. A choice by bits, not a branch to guess wrong."""
    return (((np.int64(code) + add) & 255) - limit) >> 63


@lean
def split_rows(
    codes: NDArray[np.uint8],
    step: Number,
    add: Number,
    limit: Number,
    rows: Words,
    packed: Int64s,
    n_lanes: Number,
    start: Number,
    stop: Number,
    new_rows: Words,
    new_packed: Int64s,
) -> Number:
    """Copy the rows that go left to the front of the stretch, the others to its back; returns where right begins.

    The code of row ``i`` of the table is ``codes[i * step]``. Without lanes, rows have no gradients.
    """
    left, gap, taken = np.int64(start), np.int64(stop - 1 - start), rows[start:stop]
    for i in range(len(taken)):
        is_right = ~left_of(codes[(taken[i] & ROW) * step], add, limit)
        target = np.uint64(left + ((gap - i) & is_right))  # i rows on, the ends are so much nearer
        new_rows[target] = taken[i]
        if n_lanes == 1:
            new_packed[target] = packed[start + i]
        else:
            for lane in range(n_lanes):
                new_packed[np.int64(target) * n_lanes + lane] = packed[(start + i) * n_lanes + lane]
        left += is_right + 1
    return left


@lean
def send_rows(
    codes: NDArray[np.uint8],
    step: Number,
    add: Number,
    limit: Number,
    rows: Words,
    left: Number,
    right: Number,
    leaf_of: Int32s,
) -> None:
    """Write the leaf, ``left`` or ``right``, of every row of a leaf whose children will not be split."""
    either = np.int64(left ^ right)
    for row in rows:
        leaf_of[row & ROW] = right ^ (either & left_of(codes[(row & ROW) * step], add, limit))


@lean
def mark_right(ws: Workspace, leaf: Number, rows: Words) -> Number:
    """Write to a column of its own where the best set of a leaf sends its rows, 0 is left; returns its number."""
    f, last, node = ws.leaves[leaf].best, ws.sets.shape[1] - 1, ws.tree[0].n_splits - 1
    bits, codes, sides = ws.sets[leaf, f], ws.codes[f * ws.column_step :], ws.codes[last * ws.column_step :]
    for word in range(len(bits)):
        ws.sets[node, last, word] = bits[word]
    for row in rows:
        code = codes[row & ROW]
        sides[row & ROW] = 1 - ((bits[code >> 6] >> np.uint64(code & 63)) & np.uint64(1))
    return last


@lean
def divide(ws: Workspace, leaf: Number, new: Number, is_last: Number) -> None:
    """Send the rows of ``leaf`` to it and to ``new`` by its best split; after a last split, to their leaf at once."""
    leaves, n_lanes, f = ws.leaves, ws.lanes.n_lanes, ws.leaves[leaf].best
    found, start, stop, side = (
        ws.candidates[leaf, f],
        leaves[leaf].start,
        leaves[leaf].stop,
        leaves[leaf].depth % 2,
    )
    # A split asks whether a code plus ``add``, without what exceeds a byte, is below ``limit``. The code of missing
    # values comes after all others: where they go left, codes are turned around the byte until it is zero.
    add = 256 - ws.features[f].n_bins if found.missing_left else np.int64(0)
    limit = np.int64(found.last_left) + 1 + add
    rows, packed, column = ws.rows, ws.packed, f
    if found.last_left == LEVEL_SET:
        mark_right(ws, leaf, rows[side][leaves[leaf].idle_start : leaves[leaf].idle_stop])
        column, add, limit = mark_right(ws, leaf, rows[side][start:stop]), np.int64(0), np.int64(1)
    codes, step = ws.codes[column * ws.column_step :], np.uint64(ws.row_step)
    for is_idle in range(2):
        if is_idle:
            start, stop, n_lanes = leaves[leaf].idle_start, leaves[leaf].idle_stop, 0
        middle = start
        if is_last:
            send_rows(codes, step, add, limit, rows[side][start:stop], leaf, new, ws.leaf_of)
            stop = start  # no rows are left to look at
        else:
            middle = split_rows(
                codes,
                step,
                add,
                limit,
                rows[side],
                packed[side],
                n_lanes,
                start,
                stop,
                rows[1 - side],
                packed[1 - side],
            )
        if is_idle:
            leaves[leaf].idle_stop, leaves[new].idle_start, leaves[new].idle_stop = middle, middle, stop
        else:
            leaves[leaf].stop, leaves[new].start, leaves[new].stop = middle, middle, stop
    for lane in range(ws.lanes.n_lanes):
        ws.totals[new, lane] = ws.totals[leaf, lane] - ws.left_totals[leaf, f, lane]
        ws.totals[leaf, lane] = ws.left_totals[leaf, f, lane]


# -- sets of levels --------------------------------------------------------------------------------


SMOOTHING = 10.0
"""Added to hessians where levels are ordered, and to ``l2`` where sets are compared."""
MIN_LEVEL_HESSIAN = 2.5
"""Smallest hessian of a level in a leaf that may be in a set; smaller levels go with those in no set."""


class LevelSearch(NamedTuple):
    """Memory of the search for sets, besides the workspace.

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


def make_search(table: BinnedTable, limits: Limits, n_lanes: int) -> LevelSearch:
    """Allocate for the search for sets of ``table`` within the limits of a tree."""
    assert table.categories is not None  # called for tables with columns of levels
    n_codes = np.where(table.categories.is_set, table.thresholds.n_bins, 0)
    strict, max_levels = limits._replace(l2=limits.l2 + SMOOTHING), int(n_codes.max())
    return LevelSearch(
        strict,
        n_codes,
        np.empty(max_levels, np.int64),
        np.empty(max_levels),
        np.empty((2, n_lanes), np.int64),
    )


@lean_kernel
def examine_levels(ws: Workspace, levels: LevelSearch) -> None:
    """Best set of levels of the leaves of the job, on each column of levels."""
    tree, best = ws.tree[0], levels.sums[1]
    places = ws.places[0] if tree.is_whole else ws.places[1]
    for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
        if leaf < 0 or not may_split(ws, leaf):
            continue
        offset = leaf_offset(ws.totals[leaf], ws.lanes, ws.units, levels.limits.l2)
        for place in range(tree.first, tree.last):
            f = places[place]
            if levels.n_codes[f] == 0:
                continue
            found = ws.candidates[leaf, f]
            score, missing_left = search_levels(ws, levels, leaf, f, ws.hist[slot, f], ws.sets[leaf, f])
            found.gain, found.last_left, found.missing_left = -np.inf, LEVEL_SET, missing_left
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
        max_levels = (n_there + 1) // 2  # a set, or what it leaves, has no more levels than that
        for from_high in range(2):
            for side in range(2 if any_missing else 1):
                for lane in range(n_lanes):
                    left[lane] = missing[lane] if side == 1 else 0
                n_best = 0
                for at in range(max_levels):
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
        best_side = is_heavier(best, total, ws.lanes, ws.units)
    if best_side:
        bits[n_codes >> 6] |= np.uint64(1) << np.uint64(n_codes & 63)
    return highest, best_side


@lean
def sort_levels(ws: Workspace, levels: LevelSearch, output: Number, n_codes: Number, cells: Int64s) -> Number:
    """Put the levels that a leaf has enough of in the order of gradient over smoothed hessian; returns their number.

    Of equals the lower code is first. The last code before that of missing values is shared by levels without a code of
    their own.
    """
    order, keys, n_lanes = levels.order, levels.keys, ws.lanes.n_lanes
    lane, shift, h_lane, mask = ws.lanes.fields[output]
    n_there = 0
    for code in range(n_codes - 1):
        H = (cells[code * n_lanes + h_lane] & mask) * ws.units[output, 1]
        if H >= MIN_LEVEL_HESSIAN:
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
