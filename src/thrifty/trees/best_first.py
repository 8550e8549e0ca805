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
their columns. If one that was skipped is bought in another leaf later, it is examined then. The trees are the same,
bit for bit, as without skipping.
"""

import numpy as np

from thrifty.arrays import Floats
from thrifty.trees.compiled import Number, inlined, lean, lean_kernel
from thrifty.trees.histogram import fill, subtract
from thrifty.trees.partition import copy_free_columns, divide, number_rows
from thrifty.trees.split import choose, examine, gain_can_reach
from thrifty.trees.workspace import ALL_COLUMNS, FREE_COLUMNS, NO_JOB, Workspace

__all__ = ["FINISHED", "advance"]

FINISHED = 0
CHUNK = 256  # columns examined together, so that their histograms are still near when they are searched


@lean_kernel
def advance(ws: Workspace, first: Number, last: Number) -> Number:
    """Grow until the tree is finished (0) or a large histogram over so many places waits for the caller's threads.

    For that, each of them calls again with places ``first .. last``: its part of the waiting job, and nothing more.
    Parts are independent, and all are done before the tree is grown on, with ``last`` zero. (One function for both, so
    that it is compiled once.)
    """
    tree, leaves, limits, is_part = ws.tree[0], ws.leaves, ws.limits, last > 0
    # Numbers of one type, so that what they are passed to is compiled once.
    leaf: Number = np.int64(0)
    other, slot, was_whole = np.int64(-1), np.int64(-1), False
    is_new = tree.n_leaves == 0 and not is_part
    if is_new:
        begin(ws)
    while True:
        if is_new:
            plan_job(ws, leaf, other, slot, was_whole)
        if tree.columns != NO_JOB:
            if is_part or not tree.is_done:
                if not is_part:
                    tree.is_done, last = 1, n_places(ws)
                    if last * n_rows(ws, tree.small) >= limits.shared_cells:
                        return last
                run_job(ws, first, last)
                if is_part:
                    return FINISHED
            end_job(ws)
        if tree.n_leaves == limits.max_leaves:
            return FINISHED
        leaf = np.int64(0)
        for i in range(1, tree.n_leaves):
            if leaves[i].net_gain > leaves[leaf].net_gain:
                leaf = i
        if not leaves[leaf].net_gain > 0.0:
            return FINISHED
        other, slot, was_whole = split(ws, leaf)
        is_new = True


@inlined
def begin(ws: Workspace) -> None:
    """Begin a tree: one leaf with every row."""
    tree, leaf, n_kept = ws.tree[0], ws.leaves[0], ws.hist.shape[0] - 2
    tree.n_leaves, tree.n_splits, tree.n_cells = 1, 0, 0
    tree.skips = ws.limits.skips and are_ordinary(ws.units)
    for i in range(n_kept):
        ws.free_slots[i] = i
    tree.n_free_slots = n_kept
    leaf.start, leaf.stop, leaf.depth, leaf.parent, leaf.slot = 0, ws.rows.shape[1], 0, -1, -1
    leaf.net_gain = -np.inf
    copy_free_columns(ws)
    number_rows(ws)


@lean
def are_ordinary(units: Floats) -> Number:
    """Whether squares of gradients are numbers: bounds that overflow, or come to nothing, prove nothing."""
    for output in range(len(units)):
        for unit in units[output]:
            if not 2.0**-400 < unit < 2.0**400:
                return False
    return True


# -- leaves ------------------------------------------------------------------------------------


@inlined
def n_rows(ws: Workspace, leaf: Number) -> Number:
    """Rows of a leaf."""
    return ws.leaves[leaf].stop - ws.leaves[leaf].start


@inlined
def may_split(ws: Workspace, leaf: Number) -> Number:
    """Whether depth and number of rows allow a split."""
    n = n_rows(ws, leaf)
    return ws.leaves[leaf].depth < ws.limits.max_depth and n >= 2 * ws.limits.min_child_samples and n > 1


@inlined
def n_places(ws: Workspace) -> Number:
    """Columns the job covers."""
    return ws.tree[0].n_free if ws.tree[0].columns == FREE_COLUMNS else len(ws.charges)


@inlined
def can_skip(ws: Workspace, leaf: Number) -> Number:
    """Whether no feature with a price can return it in this leaf."""
    if not ws.tree[0].skips or not ws.tree[0].copy_is_used:
        return False
    cheapest, at = np.inf, ws.leaves[leaf]
    for charge in ws.charges:
        if charge > 0.0:
            cheapest = min(cheapest, charge)
    packed, total = ws.packed[at.depth % 2], ws.totals[leaf]
    return not gain_can_reach(cheapest, packed, at.start, at.stop, total, ws.lanes, ws.units, ws.limits.l2)


@inlined
def take_slot(ws: Workspace, leaf: Number, scratch: Number) -> Number:
    """Slot for the histogram of a leaf: kept if its children will be examined, else scratch."""
    tree = ws.tree[0]
    if ws.leaves[leaf].depth + 1 >= ws.limits.max_depth or tree.n_free_slots == 0:
        return ws.hist.shape[0] - 1 - scratch
    tree.n_free_slots -= 1
    return ws.free_slots[tree.n_free_slots]


@inlined
def release_slot(ws: Workspace, slot: Number) -> None:
    """Give a kept slot back; scratch slots and none are left alone."""
    tree = ws.tree[0]
    if 0 <= slot < ws.hist.shape[0] - 2:
        ws.free_slots[tree.n_free_slots] = slot
        tree.n_free_slots += 1


@inlined
def fill_leaf(
    ws: Workspace, leaf: Number, slot: Number, is_whole: Number, first: Number, last: Number
) -> None:
    """Histogram of one leaf over places ``first .. last`` of the table or of the free columns."""
    at, n_lanes = ws.leaves[leaf], ws.lanes.n_lanes
    fill(
        ws.words if is_whole else ws.free_words,
        ws.places[0 if is_whole else 1],
        first,
        last,
        ws.rows[at.depth % 2],
        ws.packed[at.depth % 2],
        at.start,
        at.stop,
        n_lanes,
        ws.hist.shape[1] // (len(ws.charges) * n_lanes),
        0 if is_whole else ws.tree[0].n_carried,
        ws.hist[slot],
    )


# -- a job -------------------------------------------------------------------------------------


@inlined
def plan_job(ws: Workspace, left: Number, right: Number, slot: Number, was_whole: Number) -> None:
    """Decide which histograms two new leaves need; ``slot`` holds their parent's, -1 if it was not kept."""
    tree = ws.tree[0]
    tree.columns = NO_JOB
    left_open, right_open = may_split(ws, left), right >= 0 and may_split(ws, right)
    if tree.n_leaves == ws.limits.max_leaves or not (left_open or right_open):
        release_slot(ws, slot)
        return
    is_whole = False
    for leaf, is_open in ((left, left_open), (right, right_open)):
        if is_open and not is_whole:
            is_whole = not can_skip(ws, leaf)
    small, big = left, right
    if right >= 0 and n_rows(ws, right) < n_rows(ws, left):
        small, big = right, left
    # A free column's histogram is in every kept slot; a priced one's only in those of leaves examined whole.
    from_parent = slot >= 0 and (was_whole or not is_whole)
    if big >= 0 and not may_split(ws, big):
        big = np.int64(-1)
    elif big >= 0 and not from_parent and not may_split(ws, small):
        small, big = big, np.int64(-1)
    if big < 0 or not from_parent:
        release_slot(ws, slot)
        from_parent = False
    tree.small, tree.big, tree.from_parent, tree.is_done = small, big, from_parent, 0
    tree.columns = ALL_COLUMNS if is_whole else FREE_COLUMNS
    tree.small_slot, tree.big_slot = take_slot(ws, small, 0), -1
    if big >= 0:
        tree.big_slot = slot if from_parent else take_slot(ws, big, 1)
    for leaf in (small, big):
        if leaf >= 0:
            ws.leaves[leaf].net_gain, ws.leaves[leaf].is_whole = -np.inf, is_whole
            for f in range(len(ws.charges)):
                ws.candidates[leaf, f].gain = -np.inf
    tree.n_cells += n_places(ws) * n_rows(ws, small)
    if big >= 0 and not from_parent:
        tree.n_cells += n_places(ws) * n_rows(ws, big)


@inlined
def run_job(ws: Workspace, first: Number, last: Number) -> None:
    """Build and search the histograms of the job over places ``first .. last``, ``first`` a multiple of eight."""
    tree = ws.tree[0]
    is_whole, width = tree.columns == ALL_COLUMNS, ws.hist.shape[1] // len(ws.charges)
    places = ws.places[0 if is_whole else 1]
    for start in range(first, last, CHUNK):
        stop = min(last, start + CHUNK)
        for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
            if leaf >= 0 and (leaf == tree.small or not tree.from_parent):
                fill_leaf(ws, leaf, slot, is_whole, start, stop)
        if tree.from_parent:
            parent, child = ws.hist[tree.big_slot], ws.hist[tree.small_slot]
            for place in range(start, stop):
                subtract(parent, child, places[place] * width, width)
        for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
            if leaf >= 0 and may_split(ws, leaf):
                examine(ws, leaf, slot, is_whole, start, stop)


@inlined
def end_job(ws: Workspace) -> None:
    """Choose the splits of the leaves of a finished job, and keep the histograms that their children need."""
    tree = ws.tree[0]
    for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
        if leaf < 0:
            continue
        choose(ws, leaf)
        is_kept = may_split(ws, leaf) and ws.leaves[leaf].depth + 1 < ws.limits.max_depth
        ws.leaves[leaf].slot = slot if is_kept and slot < ws.hist.shape[0] - 2 else -1
        if not is_kept:
            release_slot(ws, slot)
    tree.columns = NO_JOB


# -- a split -----------------------------------------------------------------------------------


@inlined
def split(ws: Workspace, leaf: Number) -> tuple[Number, Number, Number]:
    """Make the best split of a leaf: the left child takes its number, the right child a new one.

    Returns that, the slot with the leaf's histogram, and whether every column is in it.
    """
    tree, leaves, splits = ws.tree[0], ws.leaves, ws.splits
    f, new, node, parent = leaves[leaf].best, tree.n_leaves, tree.n_splits, leaves[leaf].parent
    slot, was_whole, charge, made = (
        leaves[leaf].slot,
        leaves[leaf].is_whole == 1,
        ws.charges[f],
        ws.splits[node],
    )
    if parent >= 0 and splits[parent].left == ~leaf:
        splits[parent].left = node
    elif parent >= 0:
        splits[parent].right = node
    made.feature, made.left, made.right = f, ~leaf, ~new
    found = ws.candidates[leaf, f]
    made.last_left, made.missing_left = found.last_left, found.missing_left
    made.gain, made.charge = found.gain, charge
    tree.n_leaves, tree.n_splits = new + 1, node + 1
    depth = leaves[leaf].depth + 1
    divide(ws, leaf, new, depth == ws.limits.max_depth)
    for child in (leaf, new):
        at = leaves[child]
        at.depth, at.parent, at.slot, at.is_whole, at.net_gain = depth, node, -1, 1, -np.inf
    if charge > 0.0:
        if slot >= 0 and not was_whole:  # the group's other columns are free now, but not in this histogram
            release_slot(ws, slot)
            slot = np.int64(-1)
        buy(ws, f)
    return new, slot, was_whole


@inlined
def buy(ws: Workspace, f: Number) -> None:
    """Pay for the group of ``f``; examine its columns where they were skipped; let every leaf choose again."""
    tree, features, group = ws.tree[0], ws.features, ws.features[f].group
    ws.bought[group] = True
    for other in range(len(features)):
        if features[other].group == group:
            ws.charges[other] = 0.0
    n_before = tree.n_free
    copy_free_columns(ws)
    for leaf in range(tree.n_leaves):
        at = ws.leaves[leaf]
        if not at.is_whole and may_split(ws, leaf):
            catch_up(ws, leaf, n_before)
        if at.net_gain > -np.inf or not at.is_whole:
            choose(ws, leaf)


@inlined
def catch_up(ws: Workspace, leaf: Number, n_before: Number) -> None:
    """Examine, in a leaf that skipped them, the columns that have just become free."""
    tree, at = ws.tree[0], ws.leaves[leaf]
    slot = at.slot if at.slot >= 0 else np.int64(ws.hist.shape[0] - 1)
    is_whole = tree.copy_is_used == 0
    first, last = n_before // 8 * 8, tree.n_free
    if is_whole:
        first, last = np.int64(0), np.int64(len(ws.charges))
        at.is_whole, at.net_gain = 1, 0.0  # marks the leaf as open, to choose again
    tree.n_cells += (last - first) * n_rows(ws, leaf)
    fill_leaf(ws, leaf, slot, is_whole, first, last)
    examine(ws, leaf, slot, is_whole, first, last)
