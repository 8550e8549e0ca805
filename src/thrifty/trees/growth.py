"""Best-first growth of one tree that knows what a feature costs and that it is paid once.

Every open leaf keeps the best *raw* gain of every feature. The next split is

    argmax over leaves and features of   raw gain - gamma * price * unbought

and it is made only if that net gain is positive. When a split buys a group, its charge becomes zero and
every leaf is scored again from the raw gains: recomputed, never patched.

Work that cannot pay is skipped. No split of a leaf gains more than ``largest_gain``; if that is below the
charge of every feature still to be bought, none of them can be used in the leaf, and only the free features
are examined, from a narrow copy of their columns. If one of them is bought in another leaf later, it is
examined then. The trees are the same, bit for bit, as without skipping.
"""

from typing import NamedTuple

import numpy as np

from thrifty.trees.histogram import fill, subtract
from thrifty.trees.kernel import kernel
from thrifty.trees.partition import largest_gain, leaf_total, split_rows
from thrifty.trees.quantise import Lanes
from thrifty.trees.split_search import leaf_offset, search, search_lanes
from thrifty.trees.workspace import (
    BIG,
    BIG_SLOT,
    FROM_PARENT,
    IS_DONE,
    IS_WHOLE,
    N_CELLS,
    N_FREE_SLOTS,
    N_LEAVES,
    N_NARROW,
    N_SPLITS,
    NARROW_FITS,
    SMALL,
    SMALL_SLOT,
    Floats,
    Workspace,
)

__all__ = ["FINISHED", "Limits", "advance", "plant", "run_job"]

FINISHED, WAITING = 0, 1
CHUNK = 64  # columns examined together: one cache line of codes per row


class Limits(NamedTuple):
    """What a tree may become.

    Attributes
    ----------
    max_depth, max_leaves : int
    l2, min_child_weight : float
    min_child_samples : int
    skips : bool
        Whether features that cannot pay are left unexamined.
    shared_cells : int
        Histograms of at least so many (row, column) cells are left to the caller's threads.
    """

    max_depth: int
    max_leaves: int
    l2: float
    min_child_weight: float
    min_child_samples: int
    skips: bool
    shared_cells: int


@kernel
def plant(ws: Workspace, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Begin a tree: one leaf with every row."""
    n = len(ws.rows)
    ws.rows[:] = np.arange(n).astype(np.uint32)
    state = ws.state
    state[N_LEAVES], state[N_SPLITS], state[N_CELLS] = 1, 0, 0
    n_kept = ws.hist.shape[0] - 2
    ws.free_slots[:n_kept] = np.arange(n_kept)
    state[N_FREE_SLOTS] = n_kept
    ws.bounds[0, 0], ws.bounds[0, 1] = 0, n
    ws.depth[0], ws.parent[0], ws.slot[0], ws.net[0] = 0, -1, -1, -np.inf
    leaf_total(ws.packed, lanes.n_lanes, 0, n, ws.totals[0])
    collect_free(ws)
    plan_job(ws, 0, -1, -1, False, lanes, units, limits)


@kernel
def collect_free(ws: Workspace) -> None:
    """Copy the columns that became free since the last look to the narrow table, if they fit."""
    state = ws.state
    known = np.zeros(len(ws.charges), np.bool_)
    for place in range(state[N_NARROW]):
        known[ws.narrow_columns[place]] = True
    for f in range(len(ws.charges)):
        if ws.charges[f] > 0.0 or known[f]:
            continue
        if not state[NARROW_FITS] or state[N_NARROW] == ws.narrow_codes.shape[1]:
            state[NARROW_FITS] = 0
            return
        place = state[N_NARROW]
        ws.narrow_codes[:, place] = ws.codes[:, f]
        ws.narrow_columns[place] = f
        state[N_NARROW] += 1


@kernel
def may_split(ws: Workspace, leaf: int, limits: Limits) -> bool:
    """Whether depth and number of rows allow a split."""
    n_rows = ws.bounds[leaf, 1] - ws.bounds[leaf, 0]
    return ws.depth[leaf] < limits.max_depth and n_rows >= 2 * limits.min_child_samples and n_rows > 1


@kernel
def can_skip(ws: Workspace, leaf: int, lanes: Lanes, units: Floats, limits: Limits) -> bool:
    """Whether no feature with a price can return it in this leaf."""
    if not limits.skips or not ws.state[NARROW_FITS]:
        return False
    cheapest = np.inf
    for f in range(len(ws.charges)):
        if ws.charges[f] > 0.0:
            cheapest = min(cheapest, ws.charges[f])
    start, stop = ws.bounds[leaf]
    return largest_gain(ws.packed, start, stop, ws.totals[leaf], lanes, units, limits.l2) < cheapest


@kernel
def take_slot(ws: Workspace, leaf: int, scratch: int, limits: Limits) -> int:
    """Slot for the histogram of a leaf: kept if its children will be examined, else scratch."""
    if ws.depth[leaf] + 1 >= limits.max_depth or ws.state[N_FREE_SLOTS] == 0:
        return ws.hist.shape[0] - 1 - scratch
    ws.state[N_FREE_SLOTS] -= 1
    return ws.free_slots[ws.state[N_FREE_SLOTS]]


@kernel
def release_slot(ws: Workspace, slot: int) -> None:
    """Give a kept slot back; scratch slots and none are left alone."""
    if 0 <= slot < ws.hist.shape[0] - 2:
        ws.free_slots[ws.state[N_FREE_SLOTS]] = slot
        ws.state[N_FREE_SLOTS] += 1


@kernel
def plan_job(
    ws: Workspace, left: int, right: int, slot: int, was_whole: bool, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Decide which histograms two new leaves need; ``slot`` holds their parent's, -1 if it was not kept."""
    job = ws.job
    job[SMALL] = -1
    left_open, right_open = may_split(ws, left, limits), right >= 0 and may_split(ws, right, limits)
    if not left_open and not right_open:
        release_slot(ws, slot)
        return
    whole = left_open and not can_skip(ws, left, lanes, units, limits)
    whole = whole or (right_open and not can_skip(ws, right, lanes, units, limits))
    small, big = left, right
    if right >= 0 and ws.bounds[right, 1] - ws.bounds[right, 0] < ws.bounds[left, 1] - ws.bounds[left, 0]:
        small, big = right, left
    from_parent = slot >= 0 and (was_whole or not whole)
    if not from_parent:
        release_slot(ws, slot)
        if big >= 0 and not may_split(ws, small, limits):
            small, big = big, -1
    if big >= 0 and not may_split(ws, big, limits):
        release_slot(ws, slot)
        big, from_parent = -1, False
    job[SMALL], job[BIG], job[IS_WHOLE], job[FROM_PARENT], job[IS_DONE] = small, big, whole, from_parent, 0
    job[SMALL_SLOT] = take_slot(ws, small, 0, limits)
    job[BIG_SLOT] = -1
    if big >= 0:
        job[BIG_SLOT] = slot if from_parent else take_slot(ws, big, 1, limits)
    for leaf in (small, big):
        if leaf >= 0:
            ws.raw[leaf] = -np.inf
            ws.is_whole[leaf] = whole


@kernel
def n_places(ws: Workspace) -> int:
    """Columns the planned job covers."""
    return len(ws.whole_columns) if ws.job[IS_WHOLE] else ws.state[N_NARROW]


@kernel
def fill_leaf(ws: Workspace, leaf: int, slot: int, whole: bool, first: int, last: int, n_lanes: int) -> None:
    """Histogram of one leaf over places ``first .. last`` of the whole or of the narrow table."""
    start, stop = ws.bounds[leaf]
    width = ws.hist.shape[1] // (len(ws.charges) * n_lanes)
    hist = ws.hist[slot]
    if whole:
        fill(ws.words, ws.whole_columns, first, last, ws.rows, ws.packed, start, stop, n_lanes, width, hist)
    else:
        fill(ws.narrow_words, ws.narrow_columns, first, last, ws.rows, ws.packed, start, stop, n_lanes, width, hist)


@kernel
def examine(ws: Workspace, leaf: int, slot: int, f: int, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Best raw gain of one feature in one leaf."""
    n_lanes = lanes.n_lanes
    width = ws.hist.shape[1] // len(ws.charges)
    hist = ws.hist[slot, f * width : (f + 1) * width]
    total = ws.totals[leaf]
    if n_lanes == 1:
        least = max(1, np.int64(np.ceil(limits.min_child_weight / units[0, 1])))
        if lanes.constant:
            least = max(least, limits.min_child_samples)
        shift = lanes.gradient[0, 1]
        score, last, left = search(
            hist, ws.n_bins[f], total[0], shift, units[0, 0], units[0, 1], limits.l2, np.int64(least)
        )
        score /= (total[0] & lanes.hessian[0, 1]) * units[0, 1] + 2 * limits.l2 if last >= 0 else 1.0
    else:
        least_sizes = np.array([limits.min_child_weight, np.float64(limits.min_child_samples)])
        score, last, left = search_lanes(hist, ws.n_bins[f], total, lanes, units, limits.l2, least_sizes)
    if last < 0:
        ws.raw[leaf, f] = -np.inf
        return
    ws.raw[leaf, f] = 0.5 * (score - leaf_offset(total, lanes, units, limits.l2))
    ws.bins[leaf, f] = last
    ws.missing_left[leaf, f] = left


@kernel
def run_job(ws: Workspace, first: int, last: int, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Build and search the planned histograms over places ``first .. last`` (``first`` a multiple of 8).

    Places are independent of each other: threads may take disjoint stretches of them.
    """
    job = ws.job
    small, big, whole = job[SMALL], job[BIG], job[IS_WHOLE] == 1
    small_slot, big_slot = job[SMALL_SLOT], job[BIG_SLOT]
    n_lanes = lanes.n_lanes
    columns = ws.whole_columns if whole else ws.narrow_columns
    n_cells = ws.hist.shape[1] // len(ws.charges)
    small_open = may_split(ws, small, limits)
    for begin in range(first, last, CHUNK):
        end = min(last, begin + CHUNK)
        fill_leaf(ws, small, small_slot, whole, begin, end, n_lanes)
        if big >= 0 and not job[FROM_PARENT]:
            fill_leaf(ws, big, big_slot, whole, begin, end, n_lanes)
        for place in range(begin, end):
            f = columns[place]
            if small_open:
                examine(ws, small, small_slot, f, lanes, units, limits)
            if big >= 0:
                if job[FROM_PARENT]:
                    subtract(ws.hist[big_slot], ws.hist[small_slot], f * n_cells, n_cells)
                examine(ws, big, big_slot, f, lanes, units, limits)


@kernel
def score(ws: Workspace, leaf: int) -> None:
    """Best net gain of a leaf, from its raw gains and today's charges."""
    best, best_feature = -np.inf, -1
    for f in ws.order:
        net = ws.raw[leaf, f] - ws.charges[f]
        if net > best:
            best, best_feature = net, f
    ws.net[leaf], ws.best[leaf] = best, best_feature


@kernel
def finish_job(ws: Workspace, limits: Limits) -> None:
    """Score the leaves just examined and keep only the histograms their children can use."""
    job = ws.job
    for leaf, slot in ((job[SMALL], job[SMALL_SLOT]), (job[BIG], job[BIG_SLOT])):
        if leaf < 0:
            continue
        if may_split(ws, leaf, limits):
            score(ws, leaf)
        is_kept = ws.depth[leaf] + 1 < limits.max_depth and slot < ws.hist.shape[0] - 2 and ws.net[leaf] > -np.inf
        ws.slot[leaf] = slot if is_kept else -1
        if not is_kept:
            release_slot(ws, slot)
    job[SMALL] = -1


@kernel
def buy(ws: Workspace, f: int, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Pay for the group of ``f``; examine its columns where they were skipped; score every leaf again."""
    group = ws.group_of[f]
    ws.bought[group] = True
    for other in range(len(ws.charges)):
        if ws.group_of[other] == group:
            ws.charges[other] = 0.0
    n_before = ws.state[N_NARROW]
    collect_free(ws)
    for leaf in range(ws.state[N_LEAVES]):
        if ws.net[leaf] == -np.inf and ws.is_whole[leaf]:
            continue  # closed, or nothing in it can be split
        if not ws.is_whole[leaf] and may_split(ws, leaf, limits):
            catch_up(ws, leaf, n_before, lanes, units, limits)
        score(ws, leaf)


@kernel
def catch_up(ws: Workspace, leaf: int, n_before: int, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Examine, in a leaf that skipped them, the columns that have just become free."""
    slot = ws.slot[leaf] if ws.slot[leaf] >= 0 else ws.hist.shape[0] - 1
    whole = not ws.state[NARROW_FITS]
    first, last = (0, len(ws.whole_columns)) if whole else (n_before // 8 * 8, ws.state[N_NARROW])
    fill_leaf(ws, leaf, slot, whole, first, last, lanes.n_lanes)
    columns = ws.whole_columns if whole else ws.narrow_columns
    for place in range(first, last):
        examine(ws, leaf, slot, columns[place], lanes, units, limits)
    ws.is_whole[leaf] = whole


@kernel
def split(ws: Workspace, leaf: int, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Make the best split of a leaf: the left child takes its number, the right child a new one."""
    state = ws.state
    f, new, node = ws.best[leaf], state[N_LEAVES], state[N_SPLITS]
    raw, charge, last = ws.raw[leaf, f], ws.charges[f], ws.bins[leaf, f]
    missing_left, slot, was_whole = ws.missing_left[leaf, f], ws.slot[leaf], ws.is_whole[leaf] == 1
    if ws.parent[leaf] >= 0:
        side = 3 if ws.node_int[ws.parent[leaf], 3] == ~leaf else 4
        ws.node_int[ws.parent[leaf], side] = node
    ws.node_int[node, 0], ws.node_int[node, 1], ws.node_int[node, 2] = f, last, missing_left
    ws.node_int[node, 3], ws.node_int[node, 4] = ~leaf, ~new
    ws.node_float[node, 0], ws.node_float[node, 1] = raw, charge
    start, stop = ws.bounds[leaf]
    middle = split_rows(
        ws.codes, f, last, ws.n_bins[f], missing_left == 1, ws.rows, ws.packed, lanes.n_lanes, start, stop,
        ws.spare_rows, ws.spare_packed,
    )  # fmt: skip
    state[N_LEAVES], state[N_SPLITS] = new + 1, node + 1
    ws.bounds[leaf, 1], ws.bounds[new, 0], ws.bounds[new, 1] = middle, middle, stop
    ws.depth[leaf] += 1
    ws.depth[new] = ws.depth[leaf]
    leaf_total(ws.packed, lanes.n_lanes, start, middle, ws.totals[new])
    for lane in range(lanes.n_lanes):
        left_total = ws.totals[new, lane]
        ws.totals[new, lane] = ws.totals[leaf, lane] - left_total
        ws.totals[leaf, lane] = left_total
    for child in (leaf, new):
        ws.parent[child], ws.slot[child], ws.net[child], ws.is_whole[child] = node, -1, -np.inf, 1
    if charge > 0.0:
        buy(ws, f, lanes, units, limits)
    plan_job(ws, leaf, new, slot, was_whole, lanes, units, limits)


@kernel
def advance(ws: Workspace, lanes: Lanes, units: Floats, limits: Limits) -> int:
    """Grow until the tree is finished, or until a large histogram waits for the caller's threads."""
    job, state = ws.job, ws.state
    while True:
        if job[SMALL] >= 0:
            if not job[IS_DONE]:
                n_rows = ws.bounds[job[SMALL], 1] - ws.bounds[job[SMALL], 0]
                if job[BIG] >= 0 and not job[FROM_PARENT]:
                    n_rows += ws.bounds[job[BIG], 1] - ws.bounds[job[BIG], 0]
                state[N_CELLS] += n_rows * n_places(ws)
                job[IS_DONE] = 1
                if n_rows * n_places(ws) >= limits.shared_cells:
                    return WAITING
                run_job(ws, 0, n_places(ws), lanes, units, limits)
            finish_job(ws, limits)
        if state[N_LEAVES] == limits.max_leaves:
            return FINISHED
        chosen = 0
        for leaf in range(1, state[N_LEAVES]):
            if ws.net[leaf] > ws.net[chosen]:
                chosen = leaf
        if not ws.net[chosen] > 0.0:
            return FINISHED
        split(ws, chosen, lanes, units, limits)
