"""Rows of a leaf, kept together: sent left or right, and measured.

The rows of a leaf are one stretch of an array of row numbers, with their packed gradients beside them, so that a
histogram reads gradients in sequence. There are two such arrays, for leaves of even and of odd depth: a split copies
from one to the other, left rows in order and right rows in reverse, which is as good to the memory.
"""

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int64s
from thrifty.trees.histogram import ROW
from thrifty.trees.kernel import Number, lean
from thrifty.trees.quantise import Lanes

__all__ = ["gain_can_reach", "send_rows", "split_rows"]


@lean
def left_of(code: Number, add: Number, limit: Number) -> Number:
    """All bits set if a code goes left. A choice by bits, not a branch to guess wrong."""
    return (((np.int64(code) + add) & 255) - limit) >> 63


@lean
def question(last_left: Number, missing_code: Number, missing_left: Number) -> tuple[Number, Number]:
    """What a split asks: whether a code plus ``add``, without what exceeds a byte, is below ``limit``.

    The code of missing values comes after all others. Where they go left, codes are turned around the byte until it is
    zero and the others follow in order.
    """
    add = 256 - missing_code if missing_left else np.int64(0)
    return add, last_left + 1 + add


@lean
def split_rows(
    codes: NDArray[np.uint8],
    last_left: Number,
    missing_code: Number,
    missing_left: Number,
    rows: NDArray[np.uint64],
    packed: Int64s,
    n_lanes: Number,
    start: Number,
    stop: Number,
    new_rows: NDArray[np.uint64],
    new_packed: Int64s,
) -> Number:
    """Copy the rows that go left to the front of the stretch, the others to its back; returns where right begins.

    ``codes`` are those of all rows of the table.
    """
    add, limit = question(last_left, missing_code, missing_left)
    left, gap, taken = np.int64(start), np.int64(stop - 1 - start), rows[start:stop]
    for i in range(len(taken)):
        is_right = ~left_of(codes[taken[i] & ROW], add, limit)
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
    last_left: Number,
    missing_code: Number,
    missing_left: Number,
    rows: NDArray[np.uint64],
    left: Number,
    right: Number,
    leaf_of: NDArray[np.int32],
) -> None:
    """Write the leaf, ``left`` or ``right``, of every row of a leaf whose children will not be split."""
    add, limit = question(last_left, missing_code, missing_left)
    either = np.int64(left ^ right)
    for row in rows:
        leaf_of[row & ROW] = right ^ (either & left_of(codes[row & ROW], add, limit))


@lean
def gain_can_reach(
    amount: Number,
    packed: Int64s,
    start: Number,
    stop: Number,
    total: Int64s,
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
