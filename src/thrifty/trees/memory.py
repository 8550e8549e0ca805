r"""Leaves come back from tree to tree: what their columns could gain once bounds what they can gain now.

With hessians of one and ``l2 = 0`` the square root of twice a column's gain in a leaf is

    s(g) = max over splits of |<u, g>|,     u of norm one and sum zero, set by the rows on either side

so ``s(g) <= s(g') + |d - mean of d|``, ``d = g - g'``: gradients that moved little, or all alike, cannot have made a
column worth much. The root has the same
rows in every tree. Below it, few columns are bought and a learning rate is small, so the same splits are made again and
again (nine roots in ten of ``benchmarks/engine.py`` are split as one before); a leaf that is reached by the same splits
has the same rows, in the same order.

A leaf is looked up by its *path*, splits and sides, which is compared in full: a wrong leaf is never taken for another.
Trees of two scores are grown in turn, so two roots are remembered and the nearer one speaks; a path begins with its
number. Nothing need be said of which score a tree belongs to, and a leaf of an earlier fit is as good as any. Gradients
of leaves lie in a ring, where new ones overwrite the oldest.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int64s
from thrifty.trees.kernel import Number, lean

__all__ = [
    "DISTANCE",
    "N_ROOTS",
    "PATH",
    "Gradients",
    "begin_entry",
    "choose_root",
    "coarsen",
    "find_entry",
    "find_root",
    "measure",
    "note_gains",
    "place_of",
]

Past = NDArray[np.int16]

N_ROOTS = 2
FAR = 0.5  # a root this far, as a share of its gradients' norm, is that of another score
STRETCH = 1024  # rows between two looks at whether a root is already further than the other
# Columns of ``entries``: where its gradients begin, counted in all that was ever written, how many there are (0: it is
# empty), how deep its leaf is, and the path.
POSITION, LENGTH, ENTRY_DEPTH, PATH = range(4)
# Last places of ``known``, after the columns: the unit its gradients are rounded down to; how far they are now.
STEP, DISTANCE = -2, -1


class Gradients(NamedTuple):
    """Gradients of some rows as a tree packs them.

    Attributes
    ----------
    packed : int64
    shift : int
        Bits below the gradient.
    unit : float
        What one of the gradient's integers means.
    bits : int
        Bits to drop so that any gradient of this tree fits into two bytes.
    """

    packed: Int64s
    shift: Number
    unit: Number
    bits: Number


@lean
def moves(then: Past, packed: Int64s, shift: Number) -> tuple[Number, Number]:
    """Sums of differences and of their squares, in steps of what was remembered: whole numbers, several at once."""
    total, squares = np.int64(0), np.int64(0)
    for i in range(len(then)):
        moved = (packed[i] >> shift) - then[i]
        half = np.int64(
            np.int32(moved)
        )  # all of it fits into four bytes, of which more are multiplied at once
        total += moved
        squares += half * half
    return total, squares


@lean
def centred(total: Number, squares: Number, n_rows: Number) -> Number:
    """Norm of differences from their mean, at least: what cancels may leave a rounding error of the squares."""
    return np.sqrt(max(squares - total * total / n_rows, 0.0) + 1e-12 * squares)


@lean
def shift_to_steps(step: Number, now: Gradients) -> Number:
    """Bits to drop from packed gradients to count them in ``step``; -1 if they are too large for that.

    Steps and units are powers of two. With up to six bits less dropped than this tree would drop, the squares of as
    many rows as are ever screened (``screen.has_room``, fewer than 2^19) add up to less than 2^63.
    """
    dropped = np.int64(np.rint(np.log2(step / now.unit)))
    if dropped < max(now.bits - 6, 0) or now.shift + dropped >= 64:
        return np.int64(-1)
    return now.shift + dropped


@lean
def coarsen(largest: Number) -> Number:
    """Bits to drop from gradients of at most this magnitude, so that they fit into two bytes."""
    bits = np.int64(0)
    while (largest >> bits) >= 2**15 - 1:
        bits += 1
    return bits


@lean
def find_root(entries: Int64s, past: Past, known: Floats, last: Number, now: Gradients) -> Number:
    """The remembered root with the nearest gradients, -1 if there is none.

    ``last`` is what the tree before found: scores take turns, so the other is tried first and is near.
    """
    nearest, least, distance, n = np.int64(-1), np.inf, np.inf, len(now.packed)
    for turn in range(N_ROOTS):
        root = (last + 1 + turn) % N_ROOTS
        if entries[root, LENGTH] == 0:
            continue
        step, total, squares = known[root, STEP], 0.0, 0.0
        dropped, then = shift_to_steps(step, now), past[root * n : (root + 1) * n]
        if dropped < 0:
            continue
        for begin in range(0, n, STRETCH):
            end = min(n, begin + STRETCH)
            part, part_squares = moves(then[begin:end], now.packed[begin:end], dropped)
            total += part
            squares += part_squares
            if squares * (step * step) >= least:
                break
        if squares * (step * step) < least:
            nearest, least = np.int64(root), squares * (step * step)
            distance = centred(total, squares, n) * step
    if nearest >= 0:
        set_distance(known[nearest], distance, n)
    return nearest


@lean
def choose_root(entries: Int64s, past: Past, known: Floats, nearest: Number, n_rows: Number) -> Number:
    """Which root to forget for a new one: the nearest or, if that is far, an empty one."""
    if nearest < 0:
        return np.int64(0)
    if entries[1 - nearest, LENGTH] == 0:
        squares = 0.0
        for g in past[nearest * n_rows : (nearest + 1) * n_rows]:
            squares += (g + 0.5) ** 2
        if known[nearest, DISTANCE] > FAR * np.sqrt(squares) * known[nearest, STEP]:
            return 1 - nearest
    return nearest


@lean
def set_distance(known: Floats, distance: Number, n_rows: Number) -> None:
    """Keep how far the gradients of an entry are now: as far as they seem, and a step a row for rounding down."""
    known[DISTANCE] = (distance + known[STEP] * np.sqrt(n_rows)) * (1.0 + 1e-9)


@lean
def place_of(path: Int64s, depth: Number, n_entries: Number) -> Number:
    """The only entry, after those of the roots, where a path may be."""
    mixed = np.uint64(depth)
    for i in range(depth + 1):
        mixed = (mixed ^ np.uint64(path[i])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return N_ROOTS + np.int64(mixed % np.uint64(n_entries - N_ROOTS))


@lean
def find_entry(entries: Int64s, path: Int64s, depth: Number, head: Number, room: Number) -> Number:
    """Entry of the leaf with this path, -1 if it is not remembered; ``head`` and ``room`` are the ring's."""
    entry = place_of(path, depth, len(entries))
    if entries[entry, LENGTH] == 0 or entries[entry, ENTRY_DEPTH] != depth:
        return np.int64(-1)
    if head - entries[entry, POSITION] > room:
        return np.int64(-1)
    for i in range(depth + 1):
        if entries[entry, PATH + i] != path[i]:
            return np.int64(-1)
    return entry


@lean
def measure(
    entries: Int64s,
    past: Past,
    known: Floats,
    entry: Number,
    first: Number,
    room: Number,
    now: Gradients,
) -> None:
    """How far the gradients of a leaf are from what they were; the ring is ``room`` numbers from ``first`` on."""
    begin = first + entries[entry, POSITION] % room
    then = past[begin : begin + entries[entry, LENGTH]]
    step, distance = known[entry, STEP], np.inf
    dropped = shift_to_steps(step, now)
    if dropped >= 0:
        total, squares = moves(then, now.packed, dropped)
        distance = centred(np.float64(total), np.float64(squares), np.float64(len(then))) * step
    set_distance(known[entry], distance, len(now.packed))


@lean
def begin_entry(
    entries: Int64s,
    past: Past,
    known: Floats,
    entry: Number,
    begin: Number,
    position: Number,
    path: Int64s,
    depth: Number,
    now: Gradients,
) -> None:
    """Write path and gradients of a leaf, these from ``past[begin]`` on. Nothing is known of its columns yet."""
    n_rows = len(now.packed)
    entries[entry, POSITION], entries[entry, LENGTH], entries[entry, ENTRY_DEPTH] = position, n_rows, depth
    for i in range(depth + 1):
        entries[entry, PATH + i] = path[i]
    known[entry] = np.inf
    then, dropped = past[begin : begin + n_rows], now.shift + now.bits
    for i in range(n_rows):
        then[i] = now.packed[i] >> dropped
    known[entry, STEP] = now.unit * 2.0**now.bits


@lean
def note_gains(known: Floats, raw: Floats, is_whole: Number) -> None:
    """Put the gains of the columns that were examined in place of what was known of them.

    In a leaf examined whole, a column without a gain has no split that gains, or none that is allowed.
    """
    for f in range(len(known) - 2):
        if is_whole or raw[f] > -np.inf:
            known[f] = np.sqrt(max(2.0 * raw[f], 0.0))
