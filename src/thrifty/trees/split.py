r"""The best split of a leaf.

For a child with gradient sum ``G`` and hessian sum ``H`` the best value is ``-G / (H + l2)``. A split of a
leaf into L and R lowers the second-order loss by its raw gain (Xu et al., GreedyMiser; paper, impurity of
DynaMod-Gbrt, with the factor 1/2 it carries)

    gain = 1/2 [ GL^2 / (HL + l2) + GR^2 / (HR + l2) - G^2 / (H + l2) ]

With hessians of one this is the drop of the paper's impurity, least squares on the gradient; with hessians
equal to weights, of weighted least squares; with second derivatives, the Newton gain. Write ``a = HL + l2``,
``b = HR + l2``; then, without cancellation, and exactly zero when both sides have the same mean,

    2 gain = (GL b - GR a)^2 / (a b (H + 2 l2)) - l2 G^2 / ((H + 2 l2) (H + l2))

whose second term is the same for every split of the leaf, and ``GL b - GR a = GL (a + b) - G a``. Several outputs
add their gains. Thresholds are tried from low to high and the first of equals wins, with missing values
right, then left. Where the leaf has no missing value, later ones follow the heavier child.
"""

import math
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Int64s
from thrifty.jit import Number, Record, lean
from thrifty.trees.gradients import Lanes
from thrifty.trees.workspace import Workspace

__all__ = ["can_pay", "choose", "examine", "leaf_offset", "search"]


@lean
def leaf_offset(total: Int64s, lanes: Lanes, units: Floats, l2: Number) -> Number:
    """Sum over outputs of ``l2 G^2 / ((H + 2 l2) (H + l2))``."""
    offset = 0.0
    if l2 == 0.0:
        return offset
    for k in range(units.shape[0]):
        G = (total[lanes.fields[k, 0]] >> lanes.fields[k, 1]) * units[k, 0]
        H = (total[lanes.fields[k, 2]] & lanes.fields[k, 3]) * units[k, 1]
        offset += l2 * G * G / ((H + 2 * l2) * (H + l2))
    return offset


@lean
def search(
    cells: Int64s,
    n_bins: Number,
    total: Number,
    shift: Number,
    unit_g: Number,
    unit_h: Number,
    l2: Number,
    least: Number,
) -> tuple[Number, Number, Number, Number]:
    """Largest ``(GL b - GR a)^2 / (a b)`` over the splits of one column, for one output in one lane.

    The cell of missing values comes after those of all bins; a child must hold at least ``least`` hessian units.
    Returns the score, the last bin of the left child (-1 if no split is allowed), whether missing values go left, and
    the sum of the left child.
    """
    mask, missing = (np.int64(1) << shift) - 1, cells[n_bins]
    all_g, all_h = np.float64(total >> shift), total & mask
    extra = l2 / unit_h  # in units, as everything here
    both = all_h + 2 * extra
    best, best_bin, best_left, best_sum = 0.0, -1, False, np.int64(0)
    for side in range(2 if missing != 0 else 1):
        left = missing if side == 1 else np.int64(0)
        first, last, again = np.int64(0), np.int64(n_bins - 1), False
        right = missing - left
        while last >= 0 and (right & mask) < least:
            right += cells[last]
            last -= 1
        while first <= last and ((left + cells[first]) & mask) < least:
            left += cells[first]
            first += 1
        for b in range(first, last + 1):
            cell = cells[np.uint64(b)]
            if cell == 0:  # the split before it again; in small leaves of large trees most cells are empty
                if again:
                    best_bin = b
                continue
            left += cell
            a = np.float64(left & mask) + extra
            cross = np.float64(left >> shift) * both - all_g * a
            cross *= cross
            sizes = a * (both - a)
            again = False
            if cross > best * sizes:  # a division only where it will be kept
                best, best_bin, best_left, best_sum = cross / sizes, b, side == 1, left
                # The quotient is rounded: where it is too small, the same split would win over itself.
                again = cross > best * sizes
    if missing == 0:
        best_left = 2 * (best_sum & mask) >= all_h
    return best * unit_g * unit_g, best_bin, best_left, best_sum


@lean
def examine(ws: Workspace, leaf: Number, columns: Int64s, first: Number, last: Number, hist: Int64s) -> None:
    """Best split of a leaf, whose histogram is given, on each column at places ``first .. last``: its candidates."""
    limits, fields, total = ws.limits, ws.lanes.fields, ws.totals[leaf, 0]
    least: Number = np.int64(1)
    l2, unit_g, unit_h, shift = limits.l2, ws.units[0, 0], ws.units[0, 1], fields[0, 1]
    if limits.min_child_weight > unit_h:
        least = np.int64(math.ceil(limits.min_child_weight / unit_h))
    if ws.lanes.constant and limits.min_child_samples > least:
        least = limits.min_child_samples
    both = (total & fields[0, 3]) * unit_h + 2 * l2
    offset = leaf_offset(ws.totals[leaf], ws.lanes, ws.units, l2)
    for place in range(first, last):
        f = columns[place]
        score, end, left, left_sum = search(
            hist[f], ws.features[f].n_bins, total, shift, unit_g, unit_h, l2, least
        )
        if end >= 0:
            found = ws.candidates[leaf, f]
            found.gain, found.last_left, found.missing_left = 0.5 * (score / both - offset), end, left
            ws.left_totals[leaf, f, 0] = left_sum


@lean
def choose(leaf: Record, found: Any, charges: Floats, order: Int64s) -> None:
    """Feature of the best net gain of a leaf, from what was ``found`` and today's charges."""
    net_gain, best = -np.inf, np.int64(-1)
    for f in order:
        net = found[f].gain - charges[f]
        if net > net_gain:
            net_gain, best = net, f
    leaf.net_gain, leaf.best = net_gain, best


@lean
def can_pay(ws: Workspace, leaf: Number) -> Number:
    """Whether some split of a leaf, on a column that has a price, might return it; False is certain.

    By Cauchy and Schwarz ``GL^2 / (HL + l2) <= GL^2 / HL <= sum over L of g_i^2 / h_i``, so a split gains
    at most ``1/2 [ sum_i g_i^2 / h_i - G^2 / (H + l2) ]``: what is left once every row has its own value.
    A thousandth of a millionth is added for rounding. The sum only grows: it stops when it has enough.
    """
    if not ws.tree[0].skips or not ws.tree[0].copy_is_used:
        return True
    at, lanes, units, total, cheapest = ws.leaves[leaf], ws.lanes, ws.units, ws.totals[leaf], np.inf
    for f in range(len(ws.charges)):
        if 0.0 < ws.charges[f] < cheapest:
            cheapest = ws.charges[f]
    packed, n_lanes, bound = ws.packed[at.depth % 2], lanes.n_lanes, -2.0 * cheapest
    for k in range(len(units)):
        G = (total[lanes.fields[k, 0]] >> lanes.fields[k, 1]) * units[k, 0]
        H = (total[lanes.fields[k, 2]] & lanes.fields[k, 3]) * units[k, 1] + ws.limits.l2
        bound -= G * G / H if H > 0.0 else 0.0
    for begin in range(at.start, at.stop, 256):
        end = begin + 256 if begin + 256 < at.stop else at.stop
        for k in range(len(units)):
            g_lane, shift = lanes.fields[k, 0], lanes.fields[k, 1]
            h_lane, mask = lanes.fields[k, 2], lanes.fields[k, 3]
            squares = 0.0
            for i in range(begin, end):
                g = np.float64(packed[i * n_lanes + g_lane] >> shift)
                h = 1.0 if lanes.constant else np.float64(packed[i * n_lanes + h_lane] & mask)
                squares += g * g / h if h > 0.0 else (np.inf if g != 0.0 else 0.0)
            bound += squares * (units[k, 0] * units[k, 0] / units[k, 1]) * (1 + 1e-9)
        if bound >= 0.0:
            return True
    return False
