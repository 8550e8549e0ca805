"""Histograms, sums of packed gradients per bin, and the best split of a leaf by them.

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

Histograms of several integers (*lanes*) a cell, for several outputs or where rows are counted beside their hessians,
are compiled apart from the growth of a tree, which leaves this work to its caller: most fits do without.

*Histograms* take most of the time of growing a tree. Cell ``(f, b)`` of a histogram is the sum, over the rows of a
leaf, of the packed gradient of those whose code in column ``f`` is ``b``. Adding to a cell is one load, one addition
and one store that land anywhere in the histogram, so two things decide the speed. Rows are copied tile by tile into a
buffer that holds eight columns per word and one word after the other, so that a cache line of the table is fetched once
and all its codes are used. Eight columns are then summed together: their cells (16 KB) stay in the nearest cache, and
eight independent additions hide each other's latency.

Where few columns are bought, even that copy is too much: every row brings along the codes of the first four.
"""

import math
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Int64s, Words
from thrifty.jit import Number, Record, inner, lean, lean_kernel
from thrifty.learners.trees.gradients import Lanes
from thrifty.learners.trees.workspace import TILE, Limits, Workspace

ONE = np.uint64(1)
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
"""Its products with the powers of two differ in their first six bits, which tells the place of a bit."""
PLACE = np.zeros(64, np.uint8)
for _place in range(64):
    PLACE[(int(DE_BRUIJN) << _place) % 2**64 >> 58] = _place


@lean
def may_split(ws: Workspace, leaf: Number) -> Number:
    """True if depth, number of rows and hessian allow a split; the hessian of several lanes is checked later."""
    at, limits = ws.leaves[leaf], ws.limits
    n = at.stop - at.start
    if at.depth >= limits.max_depth or n < 2 * limits.min_child_samples or n < 2:
        return False
    return ws.lanes.n_lanes > 1 or (ws.totals[leaf, 0] & ws.lanes.fields[0, 3]) >= 2 * least_hessian(ws)


@lean
def least_hessian(ws: Workspace) -> Number:
    """Least units of hessian of a child, of one lane."""
    limits, unit_h, least = ws.limits, ws.units[0, 1], np.int64(1)
    if limits.min_child_weight > unit_h:
        least = np.int64(math.ceil(limits.min_child_weight / unit_h))
    if ws.lanes.constant and limits.min_child_samples > least:
        least = np.int64(limits.min_child_samples)
    return least


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
    min_hessian: Number,
) -> tuple[Number, Number, Number, Number]:
    """Largest ``(GL b - GR a)^2 / (a b)`` over the splits of one column, for one output in one lane.

    The cell of missing values comes after those of all bins; a child must hold at least ``min_hessian`` hessian units.
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
        first, last = np.int64(0), np.int64(n_bins - 1)
        right = missing - left
        while last >= 0 and (right & mask) < min_hessian:
            right += cells[last]
            last -= 1
        while first <= last and ((left + cells[first]) & mask) < min_hessian:
            left += cells[first]
            first += 1
        for b in range(first, last + 1):
            left += cells[np.uint64(b)]
            a = np.float64(left & mask) + extra
            cross = np.float64(left >> shift) * both - all_g * a
            cross *= cross
            sizes = a * (both - a)
            if cross > best * sizes:  # a division only where it will be kept
                best, best_bin, best_left, best_sum = cross / sizes, b, side == 1, left
    if missing == 0:
        best_left = 2 * (best_sum & mask) >= all_h
    return best * unit_g * unit_g, best_bin, best_left, best_sum


@lean
def examine(ws: Workspace, leaf: Number, columns: Int64s, first: Number, last: Number, hist: Int64s) -> None:
    """Best split of a leaf, whose histogram is given, on each column at places ``first .. last``: its candidates."""
    total, shift, least, offset = (
        ws.totals[leaf, 0],
        ws.lanes.fields[0, 1],
        least_hessian(ws),
        own_offset(ws, leaf),
    )
    l2, unit_g, unit_h = ws.limits.l2, ws.units[0, 0], ws.units[0, 1]
    for place in range(first, last):
        f = columns[place]
        n_bins = ws.features[f].n_bins
        keep(ws, leaf, f, offset, search(hist[f], n_bins, total, shift, unit_g, unit_h, l2, least))


@lean
def examine_rows(
    ws: Workspace, leaf: Number, words: Words, columns: Int64s, first: Number, last: Number
) -> None:
    """As ``examine`` for a leaf of at most ``TILE`` rows, by the bins that its rows are in: most others are empty."""
    at, total, shift, least, offset = (
        ws.leaves[leaf],
        ws.totals[leaf, 0],
        ws.lanes.fields[0, 1],
        least_hessian(ws),
        own_offset(ws, leaf),
    )
    l2, unit_g, unit_h = ws.limits.l2, ws.units[0, 0], ws.units[0, 1]
    gather(words, ws.rows[at.depth % 2], at.start, at.stop, first // 8, (last + 7) // 8, ws.tile)
    values, cells, marks = (
        ws.packed[at.depth % 2][at.start : at.stop],
        ws.hist[ws.hist.shape[0] - 1, 0],
        ws.tile[0, TILE:],
    )
    for place in range(first, last):
        f, codes, down = columns[place], ws.tile[place // 8], np.uint64(8 * (place % 8))
        n_bins = ws.features[f].n_bins
        for b in range(n_bins + 1):
            cells[b] = 0
        for word in range(4):
            marks[word] = 0
        for i in range(len(values)):
            code = (codes[i] >> down) & BYTE
            cells[code] += values[i]
            marks[code >> np.uint64(6)] |= ONE << (code & np.uint64(63))
        keep(
            ws,
            leaf,
            f,
            offset,
            search_marked(cells, marks, n_bins, total, shift, unit_g, unit_h, l2, least),
        )


@lean
def own_offset(ws: Workspace, leaf: Number) -> Number:
    """``leaf_offset`` of a leaf."""
    return leaf_offset(ws.totals[leaf], ws.lanes, ws.units, ws.limits.l2)


@lean
def keep(
    ws: Workspace, leaf: Number, f: Number, offset: Number, found: tuple[Number, Number, Number, Number]
) -> None:
    """Write what ``search`` found on a column to the candidates of a leaf."""
    score, end, left, left_sum = found
    if end >= 0:
        both = (ws.totals[leaf, 0] & ws.lanes.fields[0, 3]) * ws.units[0, 1] + 2 * ws.limits.l2
        kept = ws.candidates[leaf, f]
        kept.gain, kept.last_left, kept.missing_left = 0.5 * (score / both - offset), end, left
        ws.left_totals[leaf, f, 0] = left_sum


@lean
def search_marked(
    cells: Int64s,
    marks: Words,
    n_bins: Number,
    total: Number,
    shift: Number,
    unit_g: Number,
    unit_h: Number,
    l2: Number,
    min_hessian: Number,
) -> tuple[Number, Number, Number, Number]:
    """As ``search``, over the cells that are marked by a bit each: no other is looked at."""
    mask, missing = (np.int64(1) << shift) - 1, cells[n_bins]
    marks[n_bins >> 6] &= ~(ONE << np.uint64(n_bins & 63))
    all_g, all_h = np.float64(total >> shift), total & mask
    extra = l2 / unit_h
    both = all_h + 2 * extra
    best, best_bin, best_left, best_sum = 0.0, np.int64(-1), False, np.int64(0)
    for side in range(2 if missing != 0 else 1):
        left, again = missing if side == 1 else np.int64(0), False
        for word in range(4):
            todo = marks[word]
            while todo != 0:
                b = 64 * word + np.int64(PLACE[((todo & (~todo + ONE)) * DE_BRUIJN) >> np.uint64(58)])
                todo &= todo - ONE
                if again:  # the split before the empty cells again
                    best_bin = b - 1
                left += cells[b]
                again = False
                if (left & mask) < min_hessian or all_h - (left & mask) < min_hessian:
                    continue
                a = np.float64(left & mask) + extra
                cross = np.float64(left >> shift) * both - all_g * a
                cross *= cross
                sizes = a * (both - a)
                if cross > best * sizes:
                    best, best_bin, best_left, best_sum = cross / sizes, b, side == 1, left
                    # The quotient is rounded: where it is too small, the same split wins over itself.
                    again = cross > best * sizes
        if again:
            best_bin = n_bins - 1
    if missing == 0:
        best_left = 2 * (best_sum & mask) >= all_h
    return best * unit_g * unit_g, best_bin, best_left, best_sum


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
    """True if a split of a leaf, on a column that has a price, might return it; False is certain.

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


# -- several integers a cell -----------------------------------------------------------------------


@lean_kernel
def run_lanes(ws: Workspace) -> None:
    """Build and search the histograms of the job, of several integers a cell."""
    tree = ws.tree[0]
    places = ws.places[0] if tree.is_whole else ws.places[1]
    for start in range(tree.first, tree.last, CHUNK):
        stop = min(tree.last, start + CHUNK)
        for leaf, slot in ((tree.small, tree.small_slot), (tree.big, tree.big_slot)):
            if leaf < 0:
                continue
            at, hist = ws.leaves[leaf], ws.hist[slot]
            if leaf == tree.big and tree.from_parent:
                for place in range(start, stop):
                    subtract(hist[places[place]], ws.hist[tree.small_slot, places[place]])
            else:
                fill_lanes(ws, at, places, start, stop, hist)
            if may_split(ws, leaf):
                examine_lanes(ws, leaf, places[start:stop], hist)


@lean
def fill_lanes(
    ws: Workspace, leaf: Record, places: Int64s, first: Number, last: Number, hist: Int64s
) -> None:
    """Histogram of the rows of a leaf over the columns at places ``first .. last``."""
    for place in range(first, last):
        cells = hist[places[place]]
        for i in range(len(cells)):
            cells[i] = 0
    words = ws.words if ws.tree[0].is_whole else ws.free_words
    n_lanes, rows, packed = ws.lanes.n_lanes, ws.rows[leaf.depth % 2], ws.packed[leaf.depth % 2]
    for begin in range(leaf.start, leaf.stop, TILE):
        end = min(leaf.stop, begin + TILE)
        gather(words, rows, begin, end, first // 8, (last + 7) // 8, ws.tile)
        for place in range(first, last):
            codes, shift, cells = ws.tile[place // 8], np.uint64(8 * (place % 8)), hist[places[place]]
            for i in range(begin, end):
                base = np.int64((codes[i - begin] >> shift) & BYTE) * n_lanes
                for lane in range(n_lanes):
                    cells[base + lane] += packed[i * n_lanes + lane]


@lean
def examine_lanes(ws: Workspace, leaf: Number, columns: Int64s, hist: Int64s) -> None:
    """Best split of one leaf, whose histogram is given, on each of ``columns``; written to the candidates."""
    total, limits = ws.totals[leaf], ws.limits
    offset = leaf_offset(total, ws.lanes, ws.units, limits.l2)
    for f in columns:
        sums, found = ws.left_totals[leaf, f], ws.candidates[leaf, f]
        score, end, left = search_lanes(
            hist[f], ws.features[f].n_bins, total, ws.lanes, ws.units, limits, sums
        )
        if end >= 0:
            found.gain, found.last_left, found.missing_left = 0.5 * (score - offset), end, left


@lean
def lanes_score(
    left: Int64s,
    total: Int64s,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
) -> Number:
    """Sum over outputs of ``(GL b - GR a)^2 / (a b (H + 2 l2))``; negative if a child is too small."""
    score, left_sum, right_sum = 0.0, 0.0, 0.0
    n_outputs = units.shape[0]
    for k in range(n_outputs):
        lane, shift, h_lane, mask = lanes.fields[k]
        HL = (left[h_lane] & mask) * units[k, 1]
        HR = ((total[h_lane] - left[h_lane]) & mask) * units[k, 1]
        left_sum += HL
        right_sum += HR
        GL = (left[lane] >> shift) * units[k, 0]
        GR = ((total[lane] - left[lane]) >> shift) * units[k, 0]
        a, b = HL + limits.l2, HR + limits.l2
        if a > 0.0 and b > 0.0:
            cross = GL * b - GR * a
            score += cross * cross / (a * b * (a + b))
    if not (
        min(left_sum, right_sum) > 0.0 and min(left_sum, right_sum) >= limits.min_child_weight * n_outputs
    ):
        return -1.0
    lane, mask = lanes.fields[n_outputs, 0], lanes.fields[n_outputs, 1]
    if lane >= 0:
        n_left, n_right = left[lane] & mask, (total[lane] - left[lane]) & mask
        if min(n_left, n_right) < limits.min_child_samples:
            return -1.0
    return score


@lean
def is_heavier(left: Int64s, total: Int64s, lanes: Lanes, units: Floats) -> Number:
    """True if the left child has at least half of the hessians."""
    left_sum, all_sum = 0.0, 0.0
    for k in range(units.shape[0]):
        lane, mask = lanes.fields[k, 2], lanes.fields[k, 3]
        left_sum += (left[lane] & mask) * units[k, 1]
        all_sum += (total[lane] & mask) * units[k, 1]
    return 2 * left_sum >= all_sum


@inner
def search_lanes(
    hist: Int64s,
    n_bins: Number,
    total: Int64s,
    lanes: Lanes,
    units: Floats,
    limits: Limits,
    sums: Int64s,
) -> tuple[Number, Number, Number]:
    """Best split of one column, for any number of outputs and any layout of lanes; ``sums`` takes the left child's."""
    n_lanes = lanes.n_lanes
    missing = hist[n_bins * n_lanes : (n_bins + 1) * n_lanes]
    any_missing = False
    for lane in range(n_lanes):
        any_missing |= missing[lane] != 0
    best, best_bin, best_left = 0.0, -1, False
    left = np.zeros(n_lanes, np.int64)
    for side in range(2 if any_missing else 1):
        for lane in range(n_lanes):
            left[lane] = missing[lane] if side == 1 else 0
        for b in range(n_bins):
            occupied = False
            for lane in range(n_lanes):
                cell = hist[b * n_lanes + lane]
                occupied |= cell != 0
                left[lane] += cell
            if not occupied:
                continue
            score = lanes_score(left, total, lanes, units, limits)
            if score > best:
                best, best_bin, best_left = score, b, side == 1
                for lane in range(n_lanes):
                    sums[lane] = left[lane]
    if not any_missing and best_bin >= 0:
        best_left = is_heavier(sums, total, lanes, units)
    return best, best_bin, best_left


CHUNK = 256  # columns examined together, so that their histograms are still near when they are searched
BYTE = np.uint64(255)
# A row is a number of 64 bits: which row of the table, and the codes of up to four columns.
ROW, CARRIED_FROM, MAX_CARRIED = np.uint64(2**32 - 1), 4, 4
LINE = 8  # words in a cache line


@lean
def gather(
    words: Words, rows: Words, start: Number, stop: Number, first: Number, last: Number, tile: Words
) -> None:
    """Copy words ``first .. last`` of some rows to those of ``tile``, word by word instead of row by row.

    ``step``, the words of a row, is unsigned, so that no sign is tested, and known to fit into 32 bits, as rows are:
    their products are cheaper.
    """
    taken, step = rows[start:stop], np.uint64(np.uint32(len(words) // len(rows)))
    if last - first > LINE:
        for i in range(len(taken)):
            at = (taken[i] & ROW) * step
            for j in range(first, last):
                tile[j, i] = words[at + np.uint64(j)]
        return
    # Rows within a cache line or two stay near from one pass to the next.
    j = first
    while j + 4 <= last:
        a, b, c, d = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
        for i in range(len(taken)):
            at = (taken[i] & ROW) * step + np.uint64(j)
            a[i], b[i] = words[at], words[at + np.uint64(1)]
            c[i], d[i] = words[at + np.uint64(2)], words[at + np.uint64(3)]
        j += 4
    while j < last:
        a = tile[j]
        for i in range(len(taken)):
            a[i] = words[(taken[i] & ROW) * step + np.uint64(j)]
        j += 1


@lean
def add_eight(codes: Words, packed: Int64s, hist: Int64s, columns: Int64s, at: Number) -> None:
    """Add rows to the cells of the eight columns from place ``at`` on."""
    h0, h1, h2, h3 = hist[columns[at]], hist[columns[at + 1]], hist[columns[at + 2]], hist[columns[at + 3]]
    h4, h5, h6, h7 = (
        hist[columns[at + 4]],
        hist[columns[at + 5]],
        hist[columns[at + 6]],
        hist[columns[at + 7]],
    )
    for i in range(len(packed)):
        word, value = codes[i], packed[i]
        h0[word & BYTE] += value
        h1[(word >> np.uint64(8)) & BYTE] += value
        h2[(word >> np.uint64(16)) & BYTE] += value
        h3[(word >> np.uint64(24)) & BYTE] += value
        h4[(word >> np.uint64(32)) & BYTE] += value
        h5[(word >> np.uint64(40)) & BYTE] += value
        h6[(word >> np.uint64(48)) & BYTE] += value
        h7[word >> np.uint64(56)] += value


@lean
def add_some(
    codes: Words, packed: Int64s, hist: Int64s, columns: Int64s, at: Number, last: Number, shift: Number
) -> None:
    """Add rows to the cells of some columns, at places ``at .. last``, whose codes begin ``shift`` bits up."""
    while at + 4 <= last:
        h0, h1, h2, h3 = (
            hist[columns[at]],
            hist[columns[at + 1]],
            hist[columns[at + 2]],
            hist[columns[at + 3]],
        )
        for i in range(len(packed)):
            word, value = codes[i] >> shift, packed[i]
            h0[word & BYTE] += value
            h1[(word >> np.uint64(8)) & BYTE] += value
            h2[(word >> np.uint64(16)) & BYTE] += value
            h3[(word >> np.uint64(24)) & BYTE] += value
        at, shift = at + 4, shift + np.uint64(32)
    if at + 2 <= last:
        h0, h1 = hist[columns[at]], hist[columns[at + 1]]
        for i in range(len(packed)):
            word, value = codes[i] >> shift, packed[i]
            h0[word & BYTE] += value
            h1[(word >> np.uint64(8)) & BYTE] += value
        at, shift = at + 2, shift + np.uint64(16)
    if at < last:
        h0 = hist[columns[at]]
        for i in range(len(packed)):
            h0[(codes[i] >> shift) & BYTE] += packed[i]


@lean
def fill(
    words: Words,
    columns: Int64s,
    first: Number,
    last: Number,
    rows: Words,
    packed: Int64s,
    start: Number,
    stop: Number,
    n_carried: Number,
    tile: Words,
    hist: Int64s,
) -> None:
    """Histogram of rows ``start .. stop`` over the columns at places ``first .. last`` of ``words``.

    ``columns`` names the feature at each place: the histogram is laid out by feature whether the words
    are the whole table or a narrow copy of some columns. ``first`` is a multiple of eight. The first ``n_carried``
    places are in the rows themselves.
    """
    for place in range(first, last):
        cells = hist[columns[place]]
        for i in range(len(cells)):
            cells[i] = 0
    if first == 0 and last <= n_carried:  # the rows bring their codes along
        add_some(
            rows[start:stop], packed[start:stop], hist, columns, first, last, np.uint64(8 * CARRIED_FROM)
        )
        return
    for begin in range(start, stop, TILE):
        end = begin + TILE if begin + TILE < stop else stop
        gather(words, rows, begin, end, first // 8, (last + 7) // 8, tile)
        values = packed[begin:end]
        for place in range(first, last, 8):
            if place + 8 <= last:
                add_eight(tile[place // 8], values, hist, columns, place)
            else:
                add_some(tile[place // 8], values, hist, columns, place, last, np.uint64(0))


@lean
def subtract(parent: Int64s, child: Int64s) -> None:
    """Turn the parent's histogram of one column into the other child's: exact, since sums are integers."""
    for i in range(len(parent)):
        parent[i] -= child[i]
