"""Whether what is remembered of a leaf decides about its priced columns, and what to remember of it."""

import numpy as np

from thrifty.arrays import Floats
from thrifty.trees.kernel import Number, inlined, lean
from thrifty.trees.memory import (
    DISTANCE,
    N_ROOTS,
    Gradients,
    begin_entry,
    choose_root,
    find_entry,
    measure,
    place_of,
)
from thrifty.trees.quantise import Lanes
from thrifty.trees.screen import DROPPED_BITS
from thrifty.trees.workspace import (
    BIG,
    DEPTH,
    ENTRY,
    HEAD,
    PLACE,
    ROOT,
    SMALL,
    START,
    STEPS,
    STOP,
    Workspace,
)

__all__ = ["best_free", "gradients_of", "may_pay", "recall", "remember"]

FEW = 16  # one column in so many may be left by what is remembered, to be examined one by one


@lean
def best_free(raw: Floats, charges: Floats) -> Number:
    """Best gain of the free columns of a leaf, at least zero: what a priced one must beat."""
    best = 0.0
    for f in range(len(charges)):
        if charges[f] == 0.0:
            best = max(best, raw[f])
    return best


@lean
def may_pay(known: Number, distance: Number, charge: Number, best: Number) -> Number:
    """Whether a priced column might, in a remembered leaf, gain its charge more than ``best``; False is certain."""
    reach = known + distance
    return charge < np.inf and reach * reach * (1.0 + 1e-6) >= 2.0 * (charge + best)


@inlined
def speaks(ws: Workspace, leaf: Number, entry: Number) -> Number:
    """Whether what is remembered of a leaf rules out enough of its priced columns to look at the others one by one."""
    best, n_left, n_columns = best_free(ws.raw[leaf], ws.charges), 0, len(ws.charges)
    places, charges, known = ws.features[PLACE], ws.charges, ws.known[entry]
    distance = known[DISTANCE]
    for f in range(n_columns):
        if places[f] < 0:
            n_left += may_pay(known[f], distance, charges[f], best)
    return n_left <= 1 + n_columns // FEW


@inlined
def gradients_of(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats) -> Gradients:
    """Gradients of the rows of a leaf."""
    packed = ws.packed[ws.leaf[leaf, DEPTH] % 2, ws.leaf[leaf, START] : ws.leaf[leaf, STOP]]
    return Gradients(packed, lanes.fields[0, 1], units[0, 0], np.int64(ws.scale[DROPPED_BITS]))


@inlined
def recall(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats) -> Number:
    """Entry of a leaf that speaks of its priced columns, -1 if there is none."""
    entry, leaf_depth = ws.state[ROOT], ws.leaf[leaf, DEPTH]
    if leaf_depth > 0:
        first = N_ROOTS * ws.rows.shape[1]
        room = len(ws.past) - first
        entry = find_entry(ws.entries, ws.leaf[leaf, STEPS:], leaf_depth, ws.state[HEAD], room)
        if entry >= 0:
            now = gradients_of(ws, leaf, lanes, units)
            measure(ws.entries, ws.past, ws.known, entry, first, room, now)
    return entry if entry >= 0 and speaks(ws, leaf, entry) else np.int64(-1)


@inlined
def remember(ws: Workspace, leaf: Number, lanes: Lanes, units: Floats) -> None:
    """Begin an entry for a leaf whose priced columns are about to be examined or bounded."""
    state, n, leaf_depth, path = ws.state, ws.rows.shape[1], ws.leaf[leaf, DEPTH], ws.leaf[leaf, STEPS:]
    now = gradients_of(ws, leaf, lanes, units)
    if leaf_depth == 0:
        entry = choose_root(ws.entries, ws.past, ws.known, state[ROOT], n)
        state[ROOT] = path[0] = entry  # paths of this tree's leaves begin with it
        begin, position = entry * n, np.int64(0)
    else:
        room, entry = len(ws.past) - N_ROOTS * n, place_of(path, leaf_depth, len(ws.entries))
        if leaf == state[BIG] and entry == ws.leaf[state[SMALL], ENTRY]:
            ws.leaf[leaf, ENTRY] = -1  # no room for both
            return
        position = state[HEAD]
        if position % room + len(now.packed) > room:  # gradients of a leaf stay together
            position += room - position % room
        begin, state[HEAD] = N_ROOTS * n + position % room, position + len(now.packed)
    begin_entry(ws.entries, ws.past, ws.known, entry, begin, position, path, leaf_depth, now)
    ws.leaf[leaf, ENTRY] = entry
