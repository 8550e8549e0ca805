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
"""

import numpy as np

from thrifty.arrays import Int64s
from thrifty.jit import Number, Record, lean
from thrifty.trees.histogram import CHUNK, fill, subtract
from thrifty.trees.partition import copy_free_columns, divide, number_rows
from thrifty.trees.split import can_pay, choose, examine
from thrifty.trees.workspace import Limits, Workspace

__all__ = ["FINISHED", "advance"]

FINISHED = 0
TINY, HUGE = 2.0**-400, 2.0**400  # units of gradients between these have squares that are numbers


@lean
def advance(ws: Workspace, first: Number, last: Number) -> Number:
    """Grow until the tree is finished (0) or a job over places up to a positive number is left to the caller.

    Large jobs are left to its threads: each calls again with places ``first .. last``, its part of the job, and nothing
    more. Parts are independent, and all are done before the tree is grown on, with ``last`` zero. (One function for
    both, so that it is compiled once.)
    """
    tree, is_part = ws.tree[0], last > 0
    while True:
        if not is_part:
            if tree.n_leaves == 0:
                begin(ws)
            elif tree.small >= 0:
                end_job(ws)
            while not (review(ws) or plan_job(ws)):
                if not split(ws):
                    return FINISHED
            first, last = tree.first, tree.last
            if last > first and (last - first) * n_rows(ws.leaves[tree.small]) >= ws.limits.shared_cells:
                return last
        words, places, n_carried = ws.free_words, ws.places[1], tree.n_carried
        if tree.is_whole:
            words, places, n_carried = ws.words, ws.places[0], np.int64(0)
        for start in range(first, last, CHUNK):
            stop = start + CHUNK if start + CHUNK < last else last
            for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
                if leaf < 0:
                    continue
                at, hist = ws.leaves[leaf], ws.hist[slot]
                if leaf == tree.big and tree.from_parent:
                    for place in range(start, stop):
                        subtract(hist[places[place]], ws.hist[tree.small_slot, places[place]])
                else:
                    rows, packed = ws.rows[at.depth % 2], ws.packed[at.depth % 2]
                    fill(
                        words, places, start, stop, rows, packed, at.start, at.stop, n_carried, ws.tile, hist
                    )
                if may_split(at, ws.limits):
                    examine(ws, leaf, places, start, stop, hist)
        if is_part:
            return FINISHED


@lean
def begin(ws: Workspace) -> None:
    """Begin a tree: one leaf with every row."""
    tree, leaf, n_kept = ws.tree[0], ws.leaves[0], ws.hist.shape[0] - 2
    tree.n_leaves, tree.n_splits, tree.n_cells, tree.parent_slot = 1, 0, 0, -1
    tree.skips = ws.limits.skips
    for output in range(len(ws.units)):
        for k in range(2):  # bounds that overflow, or come to nothing, prove nothing
            if not TINY < ws.units[output, k] < HUGE:
                tree.skips = 0
    for i in range(n_kept):
        ws.free_slots[i] = i
    tree.n_free_slots = n_kept
    leaf.start, leaf.stop, leaf.depth, leaf.parent, leaf.slot = 0, ws.rows.shape[1], 0, -1, -1
    leaf.net_gain = -np.inf
    tree.left, tree.right, tree.review = 0, -1, 1
    copy_free_columns(ws)
    number_rows(ws)


@lean
def n_rows(leaf: Record) -> Number:
    """Rows of a leaf."""
    return leaf.stop - leaf.start


@lean
def may_split(leaf: Record, limits: Limits) -> Number:
    """Whether depth and number of rows allow a split."""
    n = leaf.stop - leaf.start
    return leaf.depth < limits.max_depth and n >= 2 * limits.min_child_samples and n > 1


# -- a job -------------------------------------------------------------------------------------


@lean
def plan_job(ws: Workspace) -> Number:
    """Decide which histograms the children of the last split need, or the root; False if they will not be split."""
    tree, leaves, limits, free_slots = ws.tree[0], ws.leaves, ws.limits, ws.free_slots
    left, right, parent_slot = tree.left, tree.right, tree.parent_slot
    tree.left = -1
    if left < 0:
        return False
    left_open, right_open = may_split(leaves[left], limits), right >= 0 and may_split(leaves[right], limits)
    if tree.n_leaves == limits.max_leaves or not (left_open or right_open):
        release_slot(tree, free_slots, parent_slot)
        return False
    is_whole = (left_open and can_pay(ws, left)) or (right_open and can_pay(ws, right))
    # A free column's histogram is in every kept slot; a priced one's only in those of leaves examined whole.
    from_parent = parent_slot >= 0 and (tree.parent_is_whole or not is_whole)
    small, big, big_open = left, right, right_open
    if right >= 0 and n_rows(leaves[right]) < n_rows(leaves[left]):
        small, big, big_open = right, left, left_open
    if not big_open:
        big = np.int64(-1)
    elif not from_parent and not may_split(leaves[small], limits):
        small, big = big, np.int64(-1)
    if big < 0 or not from_parent:
        release_slot(tree, free_slots, parent_slot)
        from_parent = False
    tree.small, tree.big, tree.from_parent, tree.is_whole = small, big, from_parent, is_whole
    tree.first, tree.last = 0, len(ws.charges) if is_whole else tree.n_free
    tree.small_slot, tree.big_slot = take_slot(tree, free_slots, leaves[small], limits, np.int64(0)), -1
    tree.n_cells += tree.last * n_rows(leaves[small])
    if from_parent:
        tree.big_slot = parent_slot
    elif big >= 0:
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
        is_kept = may_split(at, ws.limits) and at.depth + 1 < ws.limits.max_depth
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
        if not at.is_whole and may_split(at, ws.limits):
            tree.small, tree.big, tree.from_parent, tree.is_whole = leaf, -1, 0, is_whole
            tree.small_slot = at.slot if at.slot >= 0 else len(ws.hist) - 1
            tree.first, tree.last = (0, len(ws.charges)) if is_whole else (tree.fresh, tree.n_free)
            tree.n_cells += (tree.last - tree.first) * n_rows(at)
            at.is_whole = is_whole
            return True
        if at.net_gain > -np.inf:
            choose(at, ws.candidates[leaf], ws.charges, ws.order)
    return False
