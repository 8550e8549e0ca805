"""A job in phases: first the columns that are free, then those with a price that might still be the best.

The best free gain is known before any priced column is looked at. A priced column is chosen only if it gains its charge
more than that, so whatever bounds its gain below is enough to leave it: what is remembered of the leaf from an earlier
tree, else coarse sums. Where these can prove little, because the leaf is large and its best free gain small, every
column is examined instead.
"""

import numpy as np

from thrifty.arrays import Floats, Int64s
from thrifty.trees.histogram import fill_column, subtract
from thrifty.trees.kernel import Number, inlined, inner
from thrifty.trees.leaf_job import (
    Limits,
    examine,
    fill_leaf,
    may_split,
    n_rows,
    release_slot,
    score,
)
from thrifty.trees.leaf_memory import best_free, may_pay, recall, remember
from thrifty.trees.memory import DISTANCE, note_gains
from thrifty.trees.quantise import Lanes
from thrifty.trees.screen import FACTOR, MEAN_SQUARE, bound_column, fill_pairs, marginals
from thrifty.trees.workspace import (
    ALL_COLUMNS,
    BIG,
    BIG_SLOT,
    DEPTH,
    ENTRY,
    FREE_COLUMNS,
    FROM_PARENT,
    HAS_PAIRS,
    HIDES,
    IS_DONE,
    IS_WHOLE,
    N_COARSE,
    NARROW,
    NEEDS_PRICED,
    NO_JOB,
    PARENT_HAS_PAIRS,
    PARENT_IS_WHOLE,
    PHASE,
    PLACE,
    PROMISING_COLUMNS,
    REMEMBERED_COLUMNS,
    SLOT,
    SMALL,
    SMALL_SLOT,
    START,
    STOP,
    SURVIVED,
    WHOLE,
    WORK,
    Workspace,
)

__all__ = ["end_phase", "run_phase"]

MANY = 4  # survivors among the eight columns of a word, from which all eight are summed together
CHUNK = 256  # columns examined together, so that their histograms are still near when they are searched
# Coarse sums are tried where a price is more than this of a leaf's standard deviation: a coarse bin typically hides
# sin(pi / 32) of it, and what is remembered must still speak when gradients have moved. It decides only the speed.
HIDDEN = 0.16


@inlined
def run_phase(
    ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Examine places ``first .. last`` (``first`` a multiple of 16) in the leaves of the planned job."""
    if ws.state[PHASE] == PROMISING_COLUMNS:
        examine_promising(ws, first, last, lanes, units, limits)
    elif ws.state[PHASE] == REMEMBERED_COLUMNS:
        examine_remembered(ws, first, last, lanes, units, limits)
    else:
        examine_all(ws, first, last, lanes, units, limits)


@inlined
def examine_all(
    ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Build and search histograms over places of the whole or of the narrow table."""
    state = ws.state
    small, big, whole = state[SMALL], state[BIG], state[PHASE] == ALL_COLUMNS
    small_slot, big_slot = state[SMALL_SLOT], state[BIG_SLOT]
    from_parent = state[FROM_PARENT] == 1 and (state[PARENT_IS_WHOLE] == 1 or not whole)
    n_cells = ws.hist.shape[1] // len(ws.charges)
    columns = ws.features[WHOLE if whole else NARROW]
    again = (
        whole and state[FROM_PARENT] == 1 and state[NEEDS_PRICED] == 2
    )  # free columns are subtracted already
    for begin in range(first, last, CHUNK):
        end = min(last, begin + CHUNK)
        for leaf, slot in ((small, small_slot), (big, big_slot)):
            if leaf >= 0 and (leaf == small or not from_parent):
                fill_leaf(ws, leaf, slot, whole, begin, end, lanes.n_lanes)
        if big >= 0 and from_parent:
            parent, child = ws.hist[big_slot], ws.hist[small_slot]
            for place in range(begin, end):
                f = columns[place]
                if not (again and ws.features[PLACE, f] >= 0):
                    subtract(parent, child, f * n_cells, n_cells)
        for leaf, slot in ((small, small_slot), (big, big_slot)):
            if leaf >= 0 and may_split(ws.leaf, leaf, limits):
                examine(ws, leaf, slot, whole, begin, end, lanes, units, limits)


@inlined
def fill_leaf_pairs(ws: Workspace, leaf: Number, slot: Number, first: Number, last: Number) -> None:
    """Coarse sums of one leaf over pairs ``first .. last``."""
    side, start, stop = ws.leaf[leaf, DEPTH] % 2, ws.leaf[leaf, START], ws.leaf[leaf, STOP]
    work = ws.features[WORK]
    for pair in range(first, last):
        work[2 * pair] += stop - start
    fill_pairs(
        ws.pairs,
        first,
        last,
        ws.rows[side],
        ws.packed[side],
        start,
        stop,
        ws.scale,
        ws.pair_values,
        ws.pair_hist[slot],
    )


@inner
def examine_promising(
    ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Coarse sums of pairs; then histograms of the priced columns that they do not rule out."""
    state = ws.state
    small, big, small_slot, big_slot = state[SMALL], state[BIG], state[SMALL_SLOT], state[BIG_SLOT]
    from_parent = state[PARENT_HAS_PAIRS] == 1
    first_pair, last_pair = first // 2, (last + 1) // 2
    sums, room, survivors = np.empty(32, np.int64), np.empty((3, 17)), np.empty(8, np.int64)
    fill_leaf_pairs(ws, small, small_slot, first_pair, last_pair)
    if big >= 0 and from_parent:
        subtract(
            ws.pair_hist[big_slot], ws.pair_hist[small_slot], 256 * first_pair, 256 * (last_pair - first_pair)
        )
    elif big >= 0:
        fill_leaf_pairs(ws, big, big_slot, first_pair, last_pair)
    for leaf, slot in ((small, small_slot), (big, big_slot)):
        if leaf >= 0 and may_split(ws.leaf, leaf, limits):
            screen_leaf(ws, leaf, slot, first, last, lanes, units, limits, sums, room, survivors)


@inlined
def screen_leaf(
    ws: Workspace,
    leaf: Number,
    slot: Number,
    first: Number,
    last: Number,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
    sums: Int64s,
    room: Floats,
    survivors: Int64s,
) -> None:
    """Examine in one leaf the priced columns that its coarse sums do not rule out; the last three are room to work."""
    hist, charges, n_coarse, hides = ws.pair_hist[slot], ws.charges, ws.features[N_COARSE], ws.features[HIDES]
    places, best, last_charge, limit = ws.features[PLACE], best_free(ws.raw[leaf], ws.charges), -1.0, 0.0
    n_survivors, entry = 0, ws.leaf[leaf, ENTRY]
    unit, hidden = units[0, 0] / ws.scale[FACTOR] * (1.0 + 1e-6), rounding_hides(ws, leaf)
    for pair in range(first // 2, (last + 1) // 2):
        is_ready = False
        for f in range(2 * pair, min(2 * pair + 2, last)):
            if places[f] >= 0 or charges[f] == np.inf:
                continue
            if not is_ready:
                marginals(hist, pair, sums)
                is_ready = True
            if charges[f] != last_charge:
                last_charge = charges[f]
                limit = screen_limit(ws, leaf, last_charge + best, lanes, units, limits)
            half = sums[:16] if f == 2 * pair else sums[16:]
            bound = bound_column(half, n_coarse[f], hides[f], ws.scale, limit, room)
            if bound == np.inf:
                survivors[n_survivors] = f
                n_survivors += 1
            elif entry >= 0:
                ws.known[entry, f] = (bound + hidden) * unit
        if pair % 4 == 3 or 2 * pair + 2 >= last:  # the end of a word of the table
            if n_survivors >= MANY:
                word = survivors[0] // 8 * 8
                fill_leaf(ws, leaf, slot, True, word, min(word + 8, last), lanes.n_lanes)
            for i in range(n_survivors):
                examine_one(ws, leaf, slot, survivors[i], n_survivors >= MANY, lanes, units, limits)
            n_survivors = 0


@inlined
def examine_remembered(
    ws: Workspace, first: Number, last: Number, lanes: Lanes, units: Floats, limits: Limits
) -> None:
    """Examine the priced columns that what is remembered of a leaf does not rule out."""
    state, places, charges = ws.state, ws.features[PLACE], ws.charges
    for leaf, slot in ((state[SMALL], state[SMALL_SLOT]), (state[BIG], state[BIG_SLOT])):
        if leaf < 0 or not may_split(ws.leaf, leaf, limits):
            continue
        known, best = ws.known[ws.leaf[leaf, ENTRY]], best_free(ws.raw[leaf], charges)
        distance = known[DISTANCE]
        for f in range(first, last):
            if places[f] < 0 and may_pay(known[f], distance, charges[f], best):
                examine_one(ws, leaf, slot, f, False, lanes, units, limits)


@inlined
def choose_phase(ws: Workspace, lanes: Lanes, units: Floats, limits: Limits) -> Number:
    """How to look at the priced columns."""
    state, has_memory = ws.state, limits.l2 == 0.0
    # A root that is remembered is examined whole, never bounded: every later tree has use for exact gains.
    is_known, is_hopeful = has_memory, ws.leaf[state[SMALL], DEPTH] > 0 or not has_memory
    for leaf in (state[SMALL], state[BIG]):
        if leaf >= 0 and may_split(ws.leaf, leaf, limits):
            if is_known:
                ws.leaf[leaf, ENTRY] = recall(ws, leaf, lanes, units)
                is_known = ws.leaf[leaf, ENTRY] >= 0
            is_hopeful = is_hopeful and is_promising(ws, leaf, lanes, units, limits)
    if is_known:
        return REMEMBERED_COLUMNS
    for leaf in (state[SMALL], state[BIG]):
        if has_memory and leaf >= 0 and may_split(ws.leaf, leaf, limits):
            remember(ws, leaf, lanes, units)
    return PROMISING_COLUMNS if is_hopeful else ALL_COLUMNS


@inlined
def examine_one(
    ws: Workspace,
    leaf: Number,
    slot: Number,
    f: Number,
    is_filled: Number,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
) -> None:
    """Search one column of the whole table, and build its histogram first if it is not there."""
    side, start, stop = ws.leaf[leaf, DEPTH] % 2, ws.leaf[leaf, START], ws.leaf[leaf, STOP]
    if not is_filled:
        width = ws.hist.shape[1] // len(ws.charges)
        cells = ws.hist[slot, f * width : (f + 1) * width]
        fill_column(ws.words, f, ws.rows[side], ws.packed[side], start, stop, cells)
        ws.features[WORK, f] += stop - start
    ws.features[SURVIVED, f] += stop - start
    examine(ws, leaf, slot, True, f, f + 1, lanes, units, limits)


@inlined
def screen_limit(
    ws: Workspace, leaf: Number, amount: Number, lanes: Lanes, units: Floats, limits: Limits
) -> Number:
    """What ``s`` must reach, in rounded units, for a gain of ``amount``; less what rounding may hide."""
    n = np.float64(n_rows(ws.leaf, leaf))
    G = np.float64(ws.totals[leaf, 0] >> lanes.fields[0, 1]) * units[0, 0]
    squared = 2.0 * amount - G * G * limits.l2 / (n * (n + limits.l2))
    if squared <= 0.0:
        return 0.0
    return np.sqrt(squared) * (1.0 - 1e-6) * ws.scale[FACTOR] / units[0, 0] - rounding_hides(ws, leaf)


@inlined
def rounding_hides(ws: Workspace, leaf: Number) -> Number:
    """What rounding gradients may hide of ``s``, in rounded units."""
    return 0.5001 * np.sqrt(np.float64(n_rows(ws.leaf, leaf)))


@inlined
def is_promising(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats, limits: Limits) -> Number:
    """Whether coarse sums are likely to rule out the cheapest column, were it noise."""
    cheapest = np.inf
    for charge in ws.charges:
        if charge > 0.0:
            cheapest = min(cheapest, charge)
    limit = screen_limit(ws, leaf, cheapest + best_free(ws.raw[leaf], ws.charges), lanes, units, limits)
    return limit > HIDDEN * np.sqrt(ws.scale[MEAN_SQUARE] * n_rows(ws.leaf, leaf))


@inlined
def end_phase(ws: Workspace, lanes: Lanes, units: Floats, limits: Limits) -> None:
    """Go on to the priced columns if they are needed; else finish the job."""
    state = ws.state
    if state[PHASE] == FREE_COLUMNS and state[NEEDS_PRICED]:
        state[IS_DONE], state[PHASE] = 0, choose_phase(ws, lanes, units, limits)
        if state[PHASE] == ALL_COLUMNS:
            state[NEEDS_PRICED] = 2
        for leaf in (state[SMALL], state[BIG]):
            if leaf >= 0:
                ws.leaf[leaf, IS_WHOLE] = state[PHASE] == ALL_COLUMNS
                ws.leaf[leaf, HAS_PAIRS] = state[PHASE] == PROMISING_COLUMNS
        return
    for leaf, slot in ((state[SMALL], state[SMALL_SLOT]), (state[BIG], state[BIG_SLOT])):
        if leaf < 0:
            continue
        if ws.leaf[leaf, ENTRY] >= 0 and state[PHASE] != REMEMBERED_COLUMNS:
            note_gains(ws.known[ws.leaf[leaf, ENTRY]], ws.raw[leaf], state[PHASE] == ALL_COLUMNS)
        score(ws, leaf)
        is_kept = may_split(ws.leaf, leaf, limits) and ws.leaf[leaf, DEPTH] + 1 < limits.max_depth
        ws.leaf[leaf, SLOT] = slot if is_kept and slot < ws.hist.shape[0] - 2 else -1
        if not is_kept:
            release_slot(ws, slot)
    state[PHASE] = NO_JOB
