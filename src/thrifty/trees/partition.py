"""Rows of a leaf, kept together: sent left or right, and measured.

The rows of a leaf are one stretch of an array of row numbers, with their packed gradients beside them, so that a
histogram reads gradients in sequence. There are two such arrays, for leaves of even and of odd depth: a split copies
from one to the other, left rows in order and right rows in reverse, which is as good to the memory.
"""

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.kernel import Number, lean
from thrifty.trees.quantise import Lanes

__all__ = ["gain_can_reach", "leaf_total", "send_rows", "split_rows"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@lean
def answer(
    last_left: Number, missing_code: Number, missing_left: Number, yes: Number, no: Number, said: Ints
) -> None:
    """What a split says to each of 256 codes: ``yes`` to those that go left."""
    said[:] = no
    said[: last_left + 1] = yes
    said[missing_code] = yes if missing_left else no


@lean
def split_rows(
    codes: NDArray[np.uint8],
    last_left: Number,
    missing_code: Number,
    missing_left: Number,
    rows: NDArray[np.uint32],
    packed: Ints,
    n_lanes: Number,
    start: Number,
    stop: Number,
    new_rows: NDArray[np.uint32],
    new_packed: Ints,
    goes_left: Ints,
) -> Number:
    """Copy the rows that go left to the front of the stretch, the others to its back; returns where right begins.

    ``codes`` are those of all rows of the table; ``goes_left`` has room for 256 numbers.
    """
    answer(last_left, missing_code, missing_left, -1, 0, goes_left)  # all bits set if it does
    left, right = np.int64(start), np.int64(stop - 1)
    taken = rows[start:stop]
    for i in range(len(taken)):
        row = taken[i]
        is_left = goes_left[codes[np.uint64(row)]]  # unsigned: no sign is tested
        # A choice by bits, not a branch to guess wrong.
        target = np.uint64(right ^ ((left ^ right) & is_left))
        new_rows[target] = row
        if n_lanes == 1:
            new_packed[target] = packed[start + i]
        else:
            for lane in range(n_lanes):
                new_packed[np.int64(target) * n_lanes + lane] = packed[(start + i) * n_lanes + lane]
        left -= is_left
        right -= is_left + 1
    return left


@lean
def send_rows(
    codes: NDArray[np.uint8],
    last_left: Number,
    missing_code: Number,
    missing_left: Number,
    rows: NDArray[np.uint32],
    left: Number,
    right: Number,
    leaf_of: NDArray[np.int32],
    leaf_of_code: Ints,
) -> None:
    """Write the leaf, ``left`` or ``right``, of every row of a leaf whose children will not be split."""
    answer(last_left, missing_code, missing_left, left, right, leaf_of_code)
    for row in rows:
        leaf_of[np.uint64(row)] = leaf_of_code[codes[np.uint64(row)]]


@lean
def leaf_total(packed: Ints, n_lanes: Number, start: Number, stop: Number, out: Ints) -> None:
    """Sum of every lane over the rows of a leaf."""
    if n_lanes == 1:  # several rows at once
        total = np.int64(0)
        for value in packed[start:stop]:
            total += value
        out[0] = total
        return
    for lane in range(n_lanes):
        total = np.int64(0)
        for i in range(start, stop):
            total += packed[i * n_lanes + lane]
        out[lane] = total


@lean
def gain_can_reach(
    amount: Number,
    packed: Ints,
    start: Number,
    stop: Number,
    total: Ints,
    lanes: Lanes,
    units: Floats,
    l2: Number,
) -> Number:
    """Whether some split of these rows, on a column yet unseen, might gain ``amount``; False is certain.

    By Cauchy and Schwarz ``GL^2 / (HL + l2) <= GL^2 / HL <= sum over L of g_i^2 / h_i``, so a split gains
    at most ``1/2 [ sum_i g_i^2 / h_i - G^2 / (H + l2) ]``: what is left once every row has its own value.
    A thousandth of a millionth is added for rounding. The sum only grows: it stops when it has enough.
    """
    n_lanes = lanes.n_lanes
    bound = -2.0 * amount
    for k in range(units.shape[0]):
        g_lane, shift, h_lane, mask = lanes.fields[k]
        G = (total[g_lane] >> shift) * units[k, 0]
        H = (total[h_lane] & mask) * units[k, 1]
        bound -= G * G / (H + l2) if H + l2 > 0.0 else 0.0
    for begin in range(start, stop, 256):
        for k in range(units.shape[0]):
            g_lane, shift, h_lane, mask = lanes.fields[k]
            squares = 0.0
            for i in range(begin, min(stop, begin + 256)):
                g = np.float64(packed[i * n_lanes + g_lane] >> shift)
                h = 1.0 if lanes.constant else np.float64(packed[i * n_lanes + h_lane] & mask)
                squares += g * g / h if h > 0.0 else (np.inf if g != 0.0 else 0.0)
            bound += squares * (units[k, 0] * units[k, 0] / units[k, 1]) * (1 + 1e-9)
        if bound >= 0.0:
            return True
    return False
