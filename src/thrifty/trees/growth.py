"""Best-first growth of one tree that knows what a feature costs and that it is paid once.

Every open leaf keeps the best *raw* gain of every feature. The next split is

    argmax over leaves and features of   raw gain - gamma * price * unbought

and it is made only if that net gain is positive. When a split buys a group, its charge becomes zero and
every leaf is scored again from the raw gains: recomputed, never patched.

Work that cannot pay is skipped. What a leaf's rows could gain if each had its own value bounds the gain of any
split; if that is below the charge of every feature still to be bought, none of them can be used in the leaf, and
only the free features are examined, from a narrow copy of their columns. If one of them is bought in another leaf
later, it is examined then. The trees are the same, bit for bit, as without skipping.
"""

from typing import NamedTuple

import numpy as np

from thrifty.trees.histogram import fill, subtract
from thrifty.trees.kernel import Number, inner, kernel
from thrifty.trees.partition import gain_can_reach, leaf_total, split_rows
from thrifty.trees.quantise import Lanes
from thrifty.trees.split_search import leaf_offset, search, search_lanes
from thrifty.trees.workspace import (
    BEST,
    BIG,
    BIG_SLOT,
    CHARGE,
    DEPTH,
    FEATURE,
    FREE_SLOTS,
    FROM_PARENT,
    GROUP,
    IS_DONE,
    IS_WHOLE,
    JOB_IS_WHOLE,
    LAST_LEFT,
    LEFT,
    MISSING_LEFT,
    N_BINS,
    N_CELLS,
    N_FREE_SLOTS,
    N_LEAVES,
    N_NARROW,
    N_SPLITS,
    NARROW,
    NARROW_FITS,
    ORDER,
    PARENT,
    PLACE,
    RAW,
    RIGHT,
    SLOT,
    SMALL,
    SMALL_SLOT,
    START,
    STOP,
    WHOLE,
    Floats,
    Workspace,
)

__all__ = ["FINISHED", "Limits", "advance", "run_job"]

FINISHED = 0
CHUNK = 256  # columns examined together, so that their histograms are still near when they are searched


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


@inner
def plant(ws: Workspace, lanes: Lanes) -> None:
    """Begin a tree: one leaf with every row."""
    n = ws.rows.shape[1]
    rows, state, leaf = ws.rows[0], ws.state, ws.leaf[0]
    for i in range(n):
        rows[i] = i
    state[N_LEAVES] = 1
    n_kept = ws.hist.shape[0] - 2
    for i in range(n_kept):
        state[FREE_SLOTS + i] = i
    state[N_FREE_SLOTS] = n_kept
    leaf[START], leaf[STOP], leaf[DEPTH], leaf[PARENT], leaf[SLOT] = 0, n, 0, -1, -1
    ws.raw[0, -1] = -np.inf
    leaf_total(ws.packed[0], lanes.n_lanes, 0, n, ws.totals[0])
    collect_free(ws)


@inner
def collect_free(ws: Workspace) -> None:
    """Copy the columns that became free since the last look to the narrow table, if they fit."""
    state, features = ws.state, ws.features
    byte = np.uint64(255)
    for f in range(len(ws.charges)):
        if ws.charges[f] > 0.0 or features[PLACE, f] >= 0:
            continue
        place = state[N_NARROW]
        if not state[NARROW_FITS] or place == 8 * ws.narrow.shape[1]:
            state[NARROW_FITS] = 0
            return
        source, from_bit = f // 8, np.uint64(8 * (f % 8))
        target, to_bit = place // 8, np.uint64(8 * (place % 8))
        for i in range(ws.words.shape[0]):
            code = (ws.words[i, source] >> from_bit) & byte
            ws.narrow[i, target] = (ws.narrow[i, target] & ~(byte << to_bit)) | (code << to_bit)
        features[NARROW, place], features[PLACE, f] = f, place
        state[N_NARROW] = place + 1


@inner
def n_rows(ws: Workspace, leaf: Number) -> Number:
    """Rows of a leaf."""
    return ws.leaf[leaf, STOP] - ws.leaf[leaf, START]


@inner
def may_split(ws: Workspace, leaf: Number, limits: Limits) -> Number:
    """Whether depth and number of rows allow a split."""
    n = n_rows(ws, leaf)
    return ws.leaf[leaf, DEPTH] < limits.max_depth and n >= 2 * limits.min_child_samples and n > 1


@inner
def can_skip(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats, limits: Limits) -> Number:
    """Whether no feature with a price can return it in this leaf."""
    if not limits.skips or not ws.state[NARROW_FITS]:
        return False
    cheapest = np.inf
    for charge in ws.charges:
        if charge > 0.0:
            cheapest = min(cheapest, charge)
    start, stop = ws.leaf[leaf, START], ws.leaf[leaf, STOP]
    packed = ws.packed[ws.leaf[leaf, DEPTH] % 2]
    return not gain_can_reach(cheapest, packed, start, stop, ws.totals[leaf], lanes, units, limits.l2)


@inner
def take_slot(ws: Workspace, leaf: Number, scratch: Number, limits: Limits) -> Number:
    """Slot for the histogram of a leaf: kept if its children will be examined, else scratch."""
    state = ws.state
    if ws.leaf[leaf, DEPTH] + 1 >= limits.max_depth or state[N_FREE_SLOTS] == 0:
        return ws.hist.shape[0] - 1 - scratch
    state[N_FREE_SLOTS] -= 1
    return state[FREE_SLOTS + state[N_FREE_SLOTS]]


@inner
def release_slot(ws: Workspace, slot: Number) -> None:
    """Give a kept slot back; scratch slots and none are left alone."""
    if 0 <= slot < ws.hist.shape[0] - 2:
        ws.state[FREE_SLOTS + ws.state[N_FREE_SLOTS]] = slot
        ws.state[N_FREE_SLOTS] += 1


@inner
def plan_job(
    ws: Workspace,
    left: Number,
    right: Number,
    slot: Number,
    was_whole: Number,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
) -> None:
    """Decide which histograms two new leaves need; ``slot`` holds their parent's, -1 if it was not kept."""
    state = ws.state
    state[SMALL] = -1
    left_open, right_open = may_split(ws, left, limits), right >= 0 and may_split(ws, right, limits)
    if state[N_LEAVES] == limits.max_leaves or not (left_open or right_open):
        release_slot(ws, slot)
        return
    whole = False
    for leaf, is_open in ((left, left_open), (right, right_open)):
        if is_open and not whole:
            whole = not can_skip(ws, leaf, lanes, units, limits)
    small, big = left, right
    if right >= 0 and n_rows(ws, right) < n_rows(ws, left):
        small, big = right, left
    from_parent = slot >= 0 and (was_whole or not whole)
    if big >= 0 and not may_split(ws, big, limits):
        big = np.int64(-1)
    elif big >= 0 and not from_parent and not may_split(ws, small, limits):
        small, big = big, np.int64(-1)
    if big < 0 or not from_parent:
        release_slot(ws, slot)
        from_parent = False
    state[SMALL], state[BIG], state[IS_DONE] = small, big, 0
    state[JOB_IS_WHOLE], state[FROM_PARENT] = whole, from_parent
    state[SMALL_SLOT], state[BIG_SLOT] = take_slot(ws, small, 0, limits), -1
    if big >= 0:
        state[BIG_SLOT] = slot if from_parent else take_slot(ws, big, 1, limits)
    for leaf in (small, big):
        if leaf >= 0:
            ws.raw[leaf] = -np.inf
            ws.leaf[leaf, IS_WHOLE] = whole


@inner
def fill_leaf(
    ws: Workspace, leaf: Number, slot: Number, whole: Number, first: Number, last: Number, n_lanes: Number
) -> None:
    """Histogram of one leaf over places ``first .. last`` of the whole or of the narrow table."""
    fill(
        ws.words if whole else ws.narrow,
        ws.features[WHOLE if whole else NARROW],
        first,
        last,
        ws.rows[ws.leaf[leaf, DEPTH] % 2],
        ws.packed[ws.leaf[leaf, DEPTH] % 2],
        ws.leaf[leaf, START],
        ws.leaf[leaf, STOP],
        n_lanes,
        ws.hist.shape[1] // (len(ws.charges) * n_lanes),
        ws.hist[slot],
    )


@inner
def examine(
    ws: Workspace,
    leaf: Number,
    slot: Number,
    whole: Number,
    first: Number,
    last: Number,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
) -> None:
    """Best raw gain in one leaf of every feature at places ``first .. last``."""
    # Taken out once: reaching into the workspace for every feature would count references each time.
    hist, total, raw, choice = ws.hist[slot], ws.totals[leaf], ws.raw[leaf], ws.choice[leaf]
    columns, n_bins, left_totals = (
        ws.features[WHOLE if whole else NARROW],
        ws.features[N_BINS],
        ws.left_totals[leaf],
    )
    width = len(hist) // len(ws.charges)
    offset, l2 = leaf_offset(total, lanes, units, limits.l2), limits.l2
    if lanes.n_lanes == 1:
        least: Number = max(np.int64(1), np.int64(np.ceil(limits.min_child_weight / units[0, 1])))
        if lanes.constant:
            least = max(least, limits.min_child_samples)
        unit_g, unit_h, shift, only = units[0, 0], units[0, 1], lanes.fields[0, 1], total[0]
        both = (only & lanes.fields[0, 3]) * unit_h + 2 * l2
        for place in range(first, last):
            f = columns[place]
            score, end, left, left_sum = search(
                hist, f * width, n_bins[f], only, shift, unit_g, unit_h, l2, least
            )
            if end >= 0:
                raw[f], choice[f], left_totals[f, 0] = 0.5 * (score / both - offset), 2 * end + left, left_sum
        return
    weight, n = limits.min_child_weight, limits.min_child_samples
    for place in range(first, last):
        f = columns[place]
        cells, sums = hist[f * width : (f + 1) * width], left_totals[f]
        score, end, left = search_lanes(cells, n_bins[f], total, lanes, units, l2, weight, n, sums)
        if end >= 0:
            raw[f], choice[f] = 0.5 * (score - offset), 2 * end + left


@inner
def examine_job(
    ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Build and search the planned histograms over places ``first .. last`` (``first`` a multiple of 8)."""
    state = ws.state
    small, big, whole = state[SMALL], state[BIG], state[JOB_IS_WHOLE] == 1
    small_slot, big_slot, from_parent = state[SMALL_SLOT], state[BIG_SLOT], state[FROM_PARENT] == 1
    n_cells = ws.hist.shape[1] // len(ws.charges)
    columns = ws.features[WHOLE if whole else NARROW]
    for begin in range(first, last, CHUNK):
        end = min(last, begin + CHUNK)
        for leaf, slot in ((small, small_slot), (big, big_slot)):
            if leaf >= 0 and (leaf == small or not from_parent):
                fill_leaf(ws, leaf, slot, whole, begin, end, lanes.n_lanes)
        if big >= 0 and from_parent:
            parent, child = ws.hist[big_slot], ws.hist[small_slot]
            for place in range(begin, end):
                subtract(parent, child, columns[place] * n_cells, n_cells)
        for leaf, slot in ((small, small_slot), (big, big_slot)):
            if leaf >= 0 and may_split(ws, leaf, limits):
                examine(ws, leaf, slot, whole, begin, end, lanes, units, limits)


@inner
def score(ws: Workspace, leaf: Number) -> None:
    """Best net gain of a leaf, from its raw gains and today's charges."""
    best, best_feature = -np.inf, np.int64(-1)
    raw, charges, order = ws.raw[leaf], ws.charges, ws.features[ORDER]
    for i in range(len(order)):
        f = order[i]
        net = raw[f] - charges[f]
        if net > best:
            best, best_feature = net, f
    ws.raw[leaf, -1], ws.leaf[leaf, BEST] = best, best_feature


@inner
def finish_job(ws: Workspace, limits: Limits) -> None:
    """Score the leaves just examined and keep only the histograms their children can use."""
    state = ws.state
    for leaf, slot in ((state[SMALL], state[SMALL_SLOT]), (state[BIG], state[BIG_SLOT])):
        if leaf < 0:
            continue
        score(ws, leaf)
        is_kept = may_split(ws, leaf, limits) and ws.leaf[leaf, DEPTH] + 1 < limits.max_depth
        ws.leaf[leaf, SLOT] = slot if is_kept and slot < ws.hist.shape[0] - 2 else -1
        if not is_kept:
            release_slot(ws, slot)
    state[SMALL] = -1


@inner
def buy(ws: Workspace, f: Number, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Pay for the group of ``f``; examine its columns where they were skipped; score every leaf again."""
    group = ws.features[GROUP, f]
    ws.bought[group] = True
    for other in range(len(ws.charges)):
        if ws.features[GROUP, other] == group:
            ws.charges[other] = 0.0
    n_before = ws.state[N_NARROW]
    collect_free(ws)
    for leaf in range(ws.state[N_LEAVES]):
        if not ws.leaf[leaf, IS_WHOLE] and may_split(ws, leaf, limits):
            catch_up(ws, leaf, n_before, lanes, units, limits)
        if ws.raw[leaf, -1] > -np.inf or not ws.leaf[leaf, IS_WHOLE]:
            score(ws, leaf)


@inner
def catch_up(
    ws: Workspace, leaf: Number, n_before: Number, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Examine, in a leaf that skipped them, the columns that have just become free."""
    slot = ws.leaf[leaf, SLOT]
    if slot < 0:
        slot = np.int64(ws.hist.shape[0] - 1)
    whole = ws.state[NARROW_FITS] == 0
    first, last = n_before // 8 * 8, ws.state[N_NARROW]
    if whole:
        first, last = np.int64(0), np.int64(len(ws.charges))
        ws.leaf[leaf, IS_WHOLE] = 1
        ws.raw[leaf, -1] = 0.0  # marks the leaf as open, to be scored
    fill_leaf(ws, leaf, slot, whole, first, last, lanes.n_lanes)
    examine(ws, leaf, slot, whole, first, last, lanes, units, limits)


@inner
def divide(
    ws: Workspace, leaf: Number, new: Number, f: Number, choice: Number, n_lanes: Number, is_last: Number
) -> None:
    """Send the rows of ``leaf`` to it and to ``new``, with their totals."""
    start, stop = ws.leaf[leaf, START], ws.leaf[leaf, STOP]
    place, new_side = ws.features[PLACE, f], ws.leaf[leaf, DEPTH] % 2
    middle = split_rows(
        ws.words if place < 0 else ws.narrow,
        f if place < 0 else place,
        choice // 2,
        ws.features[N_BINS, f],
        choice % 2,
        ws.rows[1 - new_side],
        ws.packed[1 - new_side],
        n_lanes,
        start,
        stop,
        ws.rows[new_side],
        ws.packed[new_side],
        is_last,
    )
    ws.leaf[leaf, STOP], ws.leaf[new, START], ws.leaf[new, STOP] = middle, middle, stop
    for lane in range(n_lanes):
        ws.totals[new, lane] = ws.totals[leaf, lane] - ws.left_totals[leaf, f, lane]
        ws.totals[leaf, lane] = ws.left_totals[leaf, f, lane]


@inner
def split(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Make the best split of a leaf: the left child takes its number, the right child a new one."""
    state = ws.state
    f, new, node, parent = ws.leaf[leaf, BEST], state[N_LEAVES], state[N_SPLITS], ws.leaf[leaf, PARENT]
    charge, choice = ws.charges[f], np.int64(ws.choice[leaf, f])
    slot, was_whole = ws.leaf[leaf, SLOT], ws.leaf[leaf, IS_WHOLE] == 1
    if parent >= 0:
        ws.node_int[parent, LEFT if ws.node_int[parent, LEFT] == ~leaf else RIGHT] = node
    ws.node_int[node, FEATURE], ws.node_int[node, LAST_LEFT], ws.node_int[node, MISSING_LEFT] = (
        f,
        choice // 2,
        choice % 2,
    )
    ws.node_int[node, LEFT], ws.node_int[node, RIGHT] = ~leaf, ~new
    ws.node_float[node, RAW], ws.node_float[node, CHARGE] = ws.raw[leaf, f], charge
    state[N_LEAVES], state[N_SPLITS] = new + 1, node + 1
    ws.leaf[new, DEPTH] = ws.leaf[leaf, DEPTH] = ws.leaf[leaf, DEPTH] + 1
    divide(ws, leaf, new, f, choice, lanes.n_lanes, ws.leaf[leaf, DEPTH] == limits.max_depth)
    for child in (leaf, new):
        ws.leaf[child, PARENT], ws.leaf[child, SLOT], ws.leaf[child, IS_WHOLE] = node, -1, 1
        ws.raw[child, -1] = -np.inf
    if charge > 0.0:
        buy(ws, f, lanes, units, limits)
    plan_job(ws, leaf, new, slot, was_whole, lanes, units, limits)


@inner
def n_places(ws: Workspace) -> Number:
    """Columns the planned job covers."""
    return len(ws.charges) if ws.state[JOB_IS_WHOLE] else ws.state[N_NARROW]


@inner
def is_shared(ws: Workspace, limits: Limits) -> Number:
    """Count the work of the planned job; whether it is large enough for several threads."""
    state = ws.state
    rows = n_rows(ws, state[SMALL])
    if state[BIG] >= 0 and not state[FROM_PARENT]:
        rows += n_rows(ws, state[BIG])
    n_cells = rows * n_places(ws)
    state[N_CELLS] += n_cells
    return n_cells >= limits.shared_cells


@kernel
def advance(ws: Workspace, lanes: Lanes, units: Floats, limits: Limits) -> Number:
    """Grow until the tree is finished (0) or a large histogram over so many places waits for the caller's threads."""
    state = ws.state
    # Numbers of one type, so that what they are passed to is compiled once.
    leaf: Number = np.int64(0)
    other, slot = np.int64(-1), np.int64(-1)
    if state[N_LEAVES] == 0:
        plant(ws, lanes)
        plan_job(ws, leaf, other, slot, slot >= 0, lanes, units, limits)
    while True:
        if state[SMALL] >= 0:
            if not state[IS_DONE]:
                state[IS_DONE] = 1
                if is_shared(ws, limits):
                    return n_places(ws)
                examine_job(ws, 0, n_places(ws), lanes, units, limits)
            finish_job(ws, limits)
        if state[N_LEAVES] == limits.max_leaves:
            return FINISHED
        leaf = np.int64(0)
        for i in range(1, state[N_LEAVES]):
            if ws.raw[i, -1] > ws.raw[leaf, -1]:
                leaf = i
        if not ws.raw[leaf, -1] > 0.0:
            return FINISHED
        split(ws, leaf, lanes, units, limits)


@kernel
def run_job(ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """A thread's part of the waiting job. Places are independent: threads take disjoint stretches of them."""
    examine_job(ws, first, last, lanes, units, limits)
