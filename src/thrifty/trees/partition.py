"""Rows of a leaf, kept together and sent left or right.

The rows of a leaf are one stretch of an array of row numbers, with their packed gradients beside them, so that a
histogram reads gradients in sequence. There are two such arrays, for leaves of even and of odd depth: a split copies
from one to the other, left rows in order and right rows in reverse, which is as good to the memory.
"""

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Int32s, Int64s, Words
from thrifty.jit import Number, lean
from thrifty.trees.categories import A_SET
from thrifty.trees.histogram import BYTE, CARRIED_FROM, MOST_CARRIED, ROW
from thrifty.trees.workspace import Workspace

__all__ = ["copy_free_columns", "divide", "number_rows"]


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
def number_rows(ws: Workspace) -> None:
    """Put every row in its place, with the codes of the first free columns."""
    tree, rows, words = ws.tree[0], ws.rows[0], ws.free_words
    n_words, up = len(words) // len(rows), np.uint64(8 * CARRIED_FROM)
    tree.n_carried = 0
    if tree.skips and tree.copy_is_used:
        tree.n_carried = tree.n_free if tree.n_free < MOST_CARRIED else MOST_CARRIED
    if tree.n_carried == 0:
        for i in range(len(rows)):
            rows[i] = i
    elif n_words == 1:  # several rows at once
        for i in range(len(rows)):
            rows[i] = np.uint64(i) | (words[i] << up)
    else:
        for i in range(len(rows)):
            rows[i] = np.uint64(i) | (words[i * n_words] << up)


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

    The code of row ``i`` of the table is ``codes[i * step]``.
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
    if found.last_left == A_SET:
        column, add, limit = mark_right(ws, leaf, rows[side][start:stop]), np.int64(0), np.int64(1)
    codes, step = ws.codes[column * ws.column_step :], np.uint64(ws.row_step)
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
    leaves[leaf].stop, leaves[new].start, leaves[new].stop = middle, middle, stop
    for lane in range(n_lanes):
        ws.totals[new, lane] = ws.totals[leaf, lane] - ws.left_totals[leaf, f, lane]
        ws.totals[leaf, lane] = ws.left_totals[leaf, f, lane]
