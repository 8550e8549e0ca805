"""Best-first growth of one tree that knows what a feature costs and that it is paid once.

Every open leaf keeps the best *raw* gain of every feature. The next split is

    argmax over leaves and features of   raw gain - gamma * price * unbought

and it is made only if that net gain is positive. When a split buys a group, its charge becomes zero and
every leaf is scored again from the raw gains: recomputed, never patched.

Work that cannot pay is skipped. Free features are examined first, from a narrow copy of their columns. What a leaf's
rows could gain if each had its own value bounds the gain of any split; if that is below the charge of every
feature still to be bought, none of them can be used in the leaf.
If one that was skipped is bought in another leaf later, it is examined then. The trees are the same, bit for bit, as
without skipping.
"""

from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.trees.histogram import CARRIED_FROM, MOST_CARRIED
from thrifty.trees.kernel import Number, inlined, lean, lean_kernel
from thrifty.trees.leaf_job import (
    Limits,
    end_job,
    examine,
    fill_leaf,
    is_large,
    may_split,
    n_places,
    plan_job,
    release_slot,
    run_job,
    score,
)
from thrifty.trees.partition import send_rows, split_rows
from thrifty.trees.quantise import Lanes
from thrifty.trees.workspace import (
    BEST,
    CHARGE,
    COLUMNS,
    DEPTH,
    FEATURE,
    FREE_SLOTS,
    GROUP,
    IS_DONE,
    IS_WHOLE,
    LAST_LEFT,
    LEFT,
    MISSING_LEFT,
    N_BINS,
    N_CARRIED,
    N_FREE_SLOTS,
    N_LEAVES,
    N_NARROW,
    N_SPLITS,
    NARROW,
    NARROW_FITS,
    NO_JOB,
    PARENT,
    PLACE,
    RAW,
    RIGHT,
    SKIPS,
    SLOT,
    START,
    STOP,
    WORK,
    Workspace,
)

__all__ = ["FINISHED", "advance"]

FINISHED = 0


@inlined
def plant(ws: Workspace, units: Floats, limits: Limits) -> None:
    """Begin a tree: one leaf with every row."""
    n = ws.rows.shape[1]
    state, leaf = ws.state, ws.leaf[0]
    state[N_LEAVES], state[N_SPLITS] = 1, 0
    state[SKIPS] = limits.skips and are_ordinary(units)
    ws.features[WORK] = 0
    n_kept = ws.hist.shape[0] - 2
    for i in range(n_kept):
        state[FREE_SLOTS + i] = i
    state[N_FREE_SLOTS] = n_kept
    leaf[START], leaf[STOP], leaf[DEPTH], leaf[PARENT], leaf[SLOT] = 0, n, 0, -1, -1
    ws.raw[0, -1] = -np.inf
    collect_free(ws)
    number_rows(ws)


@inlined
def number_rows(ws: Workspace) -> None:
    """Put every row in its place, with the codes of the first columns of the narrow table."""
    rows, narrow, n_words, state = ws.rows[0], ws.narrow, ws.narrow.shape[1], ws.state
    state[N_CARRIED] = min(MOST_CARRIED, state[N_NARROW]) if state[SKIPS] and state[NARROW_FITS] else 0
    if state[N_CARRIED] == 0:
        for i in range(len(rows)):
            rows[i] = i
        return
    words, up = narrow.reshape(narrow.size), np.uint64(8 * CARRIED_FROM)
    if n_words == 1:  # several rows at once
        for i in range(len(rows)):
            rows[i] = np.uint64(i) | (words[i] << up)
        return
    for i in range(len(rows)):
        rows[i] = np.uint64(i) | (words[i * n_words] << up)


@lean
def are_ordinary(units: Floats) -> Number:
    """Whether squares of gradients are numbers: bounds that overflow, or come to nothing, prove nothing."""
    for output in range(len(units)):
        for unit in units[output, :2]:
            if not 2.0**-400 < unit < 2.0**400:
                return False
    return True


@inlined
def collect_free(ws: Workspace) -> None:
    """Copy the columns that became free since the last look to the narrow table, if they fit."""
    state = ws.state
    for f in range(len(ws.charges)):
        if ws.charges[f] > 0.0 or ws.features[PLACE, f] >= 0:
            continue
        if not state[NARROW_FITS] or state[N_NARROW] == 8 * ws.narrow.shape[1]:
            state[NARROW_FITS] = 0
            return
        copy_to_narrow(ws, f)


@inlined
def copy_to_narrow(ws: Workspace, f: Number) -> None:
    """Give a column the next place of the narrow table."""
    byte, place = np.uint64(255), ws.state[N_NARROW]
    source, from_bit = f // 8, np.uint64(8 * (f % 8))
    target, to_bit = place // 8, np.uint64(8 * (place % 8))
    for i in range(ws.words.shape[0]):
        code = (ws.words[i, source] >> from_bit) & byte
        ws.narrow[i, target] = (ws.narrow[i, target] & ~(byte << to_bit)) | (code << to_bit)
    ws.features[NARROW, place], ws.features[PLACE, f] = f, place
    ws.state[N_NARROW] = place + 1


@inlined
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
        if not ws.leaf[leaf, IS_WHOLE] and may_split(ws.leaf, leaf, limits):
            catch_up(ws, leaf, n_before, lanes, units, limits)
        if ws.raw[leaf, -1] > -np.inf or not ws.leaf[leaf, IS_WHOLE]:
            score(ws, leaf)


@inlined
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


@inlined
def send(
    ws: Workspace,
    codes: Any,
    leaf: Number,
    new: Number,
    f: Number,
    choice: Number,
    n_lanes: Number,
    is_last: Number,
) -> None:
    """Send the rows of ``leaf`` to it and to ``new``; ``codes`` are those of column ``f``."""
    start, stop, new_side = ws.leaf[leaf, START], ws.leaf[leaf, STOP], ws.leaf[leaf, DEPTH] % 2
    last_left, missing_left, missing_code = choice // 2, choice % 2, ws.features[N_BINS, f]
    rows = ws.rows[1 - new_side]
    if is_last:
        send_rows(codes, last_left, missing_code, missing_left, rows[start:stop], leaf, new, ws.leaf_of)
        middle = stop = start  # no rows are left to look at
    else:
        middle = split_rows(
            codes,
            last_left,
            missing_code,
            missing_left,
            rows,
            ws.packed[1 - new_side],
            n_lanes,
            start,
            stop,
            ws.rows[new_side],
            ws.packed[new_side],
        )
    ws.leaf[leaf, STOP], ws.leaf[new, START], ws.leaf[new, STOP] = middle, middle, stop


@inlined
def divide(
    ws: Workspace, leaf: Number, new: Number, f: Number, choice: Number, n_lanes: Number, is_last: Number
) -> None:
    """Send the rows of ``leaf`` to it and to ``new``, with their totals; after a last split, to their leaf at once."""
    place = ws.features[PLACE, f]
    if ws.columns.size > 0:
        send(ws, ws.columns[f], leaf, new, f, choice, n_lanes, is_last)
    elif place < 0:
        send(ws, ws.words.view(np.uint8)[:, f], leaf, new, f, choice, n_lanes, is_last)
    else:
        send(ws, ws.narrow.view(np.uint8)[:, place], leaf, new, f, choice, n_lanes, is_last)
    for lane in range(n_lanes):
        ws.totals[new, lane] = ws.totals[leaf, lane] - ws.left_totals[leaf, f, lane]
        ws.totals[leaf, lane] = ws.left_totals[leaf, f, lane]


@inlined
def split(
    ws: Workspace, leaf: Number, lanes: Lanes, units: Floats, limits: Limits
) -> tuple[Number, Number, Number]:
    """Make the best split of a leaf: the left child takes its number, the right child a new one.

    Returns that, the slot with the leaf's histogram, and whether every column is in it.
    """
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
        if slot >= 0 and not was_whole:  # the group's other columns are free now, but not in this histogram
            release_slot(ws, slot)
            slot = np.int64(-1)
        buy(ws, f, lanes, units, limits)
    return new, slot, was_whole


@lean_kernel
def advance(
    ws: Workspace, lanes: Lanes, units: Floats, limits: Limits, first: Number, last: Number
) -> Number:
    """Grow until the tree is finished (0) or a large histogram over so many places waits for the caller's threads.

    For that, each of them calls again with places ``first .. last``: its part of the waiting job, and nothing more.
    Parts are independent, and all are done before the tree is grown on, with ``last`` zero. (One function for both, so
    that it is compiled once.)
    """
    state, is_part = ws.state, last > 0
    # Numbers of one type, so that what they are passed to is compiled once.
    leaf: Number = np.int64(0)
    other, slot, was_whole = np.int64(-1), np.int64(-1), False
    is_new = state[N_LEAVES] == 0 and not is_part
    if is_new:
        plant(ws, units, limits)
    while True:
        if is_new:
            plan_job(ws, leaf, other, slot, was_whole, lanes, units, limits)
        if state[COLUMNS] != NO_JOB:
            if is_part or not state[IS_DONE]:
                if not is_part:
                    state[IS_DONE], last = 1, n_places(ws)
                    if is_large(ws, limits):
                        return last
                run_job(ws, first, last, lanes, units, limits)
                if is_part:
                    return FINISHED
            end_job(ws, limits)
        if state[N_LEAVES] == limits.max_leaves:
            return FINISHED
        leaf = np.int64(0)
        for i in range(1, state[N_LEAVES]):
            if ws.raw[i, -1] > ws.raw[leaf, -1]:
                leaf = i
        if not ws.raw[leaf, -1] > 0.0:
            return FINISHED
        other, slot, was_whole = split(ws, leaf, lanes, units, limits)
        is_new = True
