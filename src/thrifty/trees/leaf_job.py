"""What is known of a leaf: its histograms and the best raw gain of every feature.

Two new leaves are examined as one *job*. The histogram of the smaller is built from its rows and that of the larger is
what remains of their parent's; if the parent's was not kept, both are built. Only leaves whose children will be
examined keep a histogram, as long as there are slots; sums are exact, so either way gives the same bits.
"""

from typing import NamedTuple

import numpy as np

from thrifty.arrays import Floats, Int64s
from thrifty.trees.histogram import fill, subtract
from thrifty.trees.kernel import Number, inlined, lean
from thrifty.trees.partition import gain_can_reach
from thrifty.trees.quantise import Lanes
from thrifty.trees.split_search import leaf_offset, search, search_lanes
from thrifty.trees.workspace import (
    ALL_COLUMNS,
    BEST,
    BIG,
    BIG_SLOT,
    COLUMNS,
    DEPTH,
    FREE_COLUMNS,
    FREE_SLOTS,
    FROM_PARENT,
    IS_DONE,
    IS_WHOLE,
    N_BINS,
    N_CARRIED,
    N_FREE_SLOTS,
    N_LEAVES,
    N_NARROW,
    NARROW,
    NARROW_FITS,
    NO_JOB,
    ORDER,
    SKIPS,
    SLOT,
    SMALL,
    SMALL_SLOT,
    START,
    STOP,
    WHOLE,
    WORK,
    Workspace,
)

__all__ = [
    "Limits",
    "end_job",
    "examine",
    "fill_leaf",
    "is_large",
    "may_split",
    "n_places",
    "n_rows",
    "plan_job",
    "release_slot",
    "run_job",
    "score",
]


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


@lean
def n_rows(leaves: Int64s, leaf: Number) -> Number:
    """Rows of a leaf."""
    return leaves[leaf, STOP] - leaves[leaf, START]


@lean
def may_split(leaves: Int64s, leaf: Number, limits: Limits) -> Number:
    """Whether depth and number of rows allow a split."""
    n = n_rows(leaves, leaf)
    return leaves[leaf, DEPTH] < limits.max_depth and n >= 2 * limits.min_child_samples and n > 1


@inlined
def can_skip(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats, limits: Limits) -> Number:
    """Whether no feature with a price can return it in this leaf."""
    if not ws.state[SKIPS] or not ws.state[NARROW_FITS]:
        return False
    cheapest = np.inf
    for charge in ws.charges:
        if charge > 0.0:
            cheapest = min(cheapest, charge)
    start, stop = ws.leaf[leaf, START], ws.leaf[leaf, STOP]
    packed = ws.packed[ws.leaf[leaf, DEPTH] % 2]
    return not gain_can_reach(cheapest, packed, start, stop, ws.totals[leaf], lanes, units, limits.l2)


@inlined
def take_slot(ws: Workspace, leaf: Number, scratch: Number, limits: Limits) -> Number:
    """Slot for the histogram of a leaf: kept if its children will be examined, else scratch."""
    state = ws.state
    if ws.leaf[leaf, DEPTH] + 1 >= limits.max_depth or state[N_FREE_SLOTS] == 0:
        return ws.hist.shape[0] - 1 - scratch
    state[N_FREE_SLOTS] -= 1
    return state[FREE_SLOTS + state[N_FREE_SLOTS]]


@inlined
def release_slot(ws: Workspace, slot: Number) -> None:
    """Give a kept slot back; scratch slots and none are left alone."""
    if 0 <= slot < ws.hist.shape[0] - 2:
        ws.state[FREE_SLOTS + ws.state[N_FREE_SLOTS]] = slot
        ws.state[N_FREE_SLOTS] += 1


@inlined
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
    state[COLUMNS] = NO_JOB
    left_open, right_open = may_split(ws.leaf, left, limits), right >= 0 and may_split(ws.leaf, right, limits)
    if state[N_LEAVES] == limits.max_leaves or not (left_open or right_open):
        release_slot(ws, slot)
        return
    needs_priced = False
    for leaf, is_open in ((left, left_open), (right, right_open)):
        if is_open and not needs_priced:
            needs_priced = not can_skip(ws, leaf, lanes, units, limits)
    small, big = left, right
    if right >= 0 and n_rows(ws.leaf, right) < n_rows(ws.leaf, left):
        small, big = right, left
    # A free column's histogram is in every kept slot; a priced one's only in those of leaves examined whole.
    fits = state[SKIPS] == 1 and state[NARROW_FITS] == 1
    whole_only = not fits or needs_priced
    from_parent = slot >= 0 and (was_whole or not whole_only)
    if big >= 0 and not may_split(ws.leaf, big, limits):
        big = np.int64(-1)
    elif big >= 0 and not from_parent and not may_split(ws.leaf, small, limits):
        small, big = big, np.int64(-1)
    if big < 0 or not from_parent:
        release_slot(ws, slot)
        from_parent = False
    state[SMALL], state[BIG], state[IS_DONE] = small, big, 0
    state[COLUMNS] = ALL_COLUMNS if whole_only else FREE_COLUMNS
    state[FROM_PARENT] = from_parent
    state[SMALL_SLOT], state[BIG_SLOT] = take_slot(ws, small, 0, limits), -1
    if big >= 0:
        state[BIG_SLOT] = slot if from_parent else take_slot(ws, big, 1, limits)
    for leaf in (small, big):
        if leaf >= 0:
            ws.raw[leaf] = -np.inf
            ws.leaf[leaf, IS_WHOLE] = whole_only


@inlined
def fill_leaf(
    ws: Workspace, leaf: Number, slot: Number, whole: Number, first: Number, last: Number, n_lanes: Number
) -> None:
    """Histogram of one leaf over places ``first .. last`` of the whole or of the narrow table."""
    columns, work, rows = ws.features[WHOLE if whole else NARROW], ws.features[WORK], n_rows(ws.leaf, leaf)
    for place in range(first, last):
        work[columns[place]] += rows
    fill(
        ws.words if whole else ws.narrow,
        columns,
        first,
        last,
        ws.rows[ws.leaf[leaf, DEPTH] % 2],
        ws.packed[ws.leaf[leaf, DEPTH] % 2],
        ws.leaf[leaf, START],
        ws.leaf[leaf, STOP],
        n_lanes,
        ws.hist.shape[1] // (len(ws.charges) * n_lanes),
        0 if whole else ws.state[N_CARRIED],
        ws.hist[slot],
    )


@inlined
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


@inlined
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


@inlined
def n_places(ws: Workspace) -> Number:
    """Columns the job covers."""
    return ws.state[N_NARROW] if ws.state[COLUMNS] == FREE_COLUMNS else len(ws.charges)


@inlined
def is_large(ws: Workspace, limits: Limits) -> Number:
    """Whether the job is worth several threads."""
    rows = n_rows(ws.leaf, ws.state[SMALL])
    return rows * n_places(ws) >= limits.shared_cells


@inlined
def run_job(ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Build and search the histograms of the planned job over places ``first .. last``, ``first`` a multiple of 8."""
    state = ws.state
    small, big, whole = state[SMALL], state[BIG], state[COLUMNS] == ALL_COLUMNS
    small_slot, big_slot = state[SMALL_SLOT], state[BIG_SLOT]
    from_parent = state[FROM_PARENT] == 1
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
            if leaf >= 0 and may_split(ws.leaf, leaf, limits):
                examine(ws, leaf, slot, whole, begin, end, lanes, units, limits)


@inlined
def end_job(ws: Workspace, limits: Limits) -> None:
    """Score the leaves of a finished job, and keep the histograms that their children need."""
    state = ws.state
    for leaf, slot in ((state[SMALL], state[SMALL_SLOT]), (state[BIG], state[BIG_SLOT])):
        if leaf < 0:
            continue
        score(ws, leaf)
        is_kept = may_split(ws.leaf, leaf, limits) and ws.leaf[leaf, DEPTH] + 1 < limits.max_depth
        ws.leaf[leaf, SLOT] = slot if is_kept and slot < ws.hist.shape[0] - 2 else -1
        if not is_kept:
            release_slot(ws, slot)
    state[COLUMNS] = NO_JOB
