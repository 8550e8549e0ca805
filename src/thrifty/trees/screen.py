r"""Which columns cannot pay in a leaf, from coarse sums: a proof at half the price of a histogram.

Only for hessians of one and one output. With ``l2 = 0`` a split of ``n`` rows, ``a`` of them left, gains ``1/2 s^2``,

    s = |D| sqrt(n / (a (n - a))),     D = sum over the left rows of (g_i - mean)

Let a coarse bin hold ``w`` rows with centred sum of squares ``S``, with ``a`` rows before it and ``a' = a + w`` up to
its end. A split inside it, ``y`` rows in, has ``D`` on the straight line between its ends, plus a rest that by Cauchy
and Schwarz is at most ``sqrt(S y (w - y) / w)``. The line's part of ``s^2`` is a convex function of ``y``: at most the
larger of its ends. The rest's part is largest in closed form, so

    s(inside) <= max(s(a), s(a')) + sqrt(n S w) / (sqrt(a' (n - a)) + sqrt(a (n - a')))

Gradients are rounded to a few bits for this, so that one integer sums rows, gradients and squares. As ``s`` is a
maximum of inner products with unit vectors, rounding moves it by at most the norm of the errors, ``sqrt(n) / 2`` units.
With ``l2`` a leaf gains at most ``G^2 l2 / (2 n (n + l2))`` more than without.
"""

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int64s
from thrifty.trees.histogram import TILE, add_eight, add_some, gather
from thrifty.trees.kernel import Number, inner, lean
from thrifty.trees.memory import coarsen

__all__ = [
    "DROPPED_BITS",
    "FACTOR",
    "MEAN_SQUARE",
    "bound_column",
    "fill_pairs",
    "has_room",
    "marginals",
    "set_scale",
]

LEAST_SPARE_BITS = 7
# Places in ``scale``: what the three fields of a summed word mean; bits that the memory drops.
COUNT_BITS, GRADIENT_BITS, FACTOR, SQUARE, MEAN_SQUARE, DROPPED_BITS = range(6)


def has_room(n_rows: int) -> bool:
    """Whether rows, gradients and squares of so many rows fit into one integer."""
    return 64 - 3 * n_rows.bit_length() >= LEAST_SPARE_BITS


@lean
def set_scale(packed: Int64s, shift: Number, largest: Number, scale: Floats, values: Int64s) -> None:
    """Choose the fields for one tree and tabulate the word of every rounded gradient, at most ``largest``."""
    spare = 64 - 3 * shift
    square_bits = min(6, max(2, spare - 7))
    bits = min(8, spare - square_bits)
    largest = max(largest, 1.0)
    top = (1 << (bits - 1)) - 1
    scale[COUNT_BITS], scale[GRADIENT_BITS] = shift, shift + bits
    scale[FACTOR], scale[DROPPED_BITS] = top / largest, coarsen(np.int64(largest))
    steps = np.float64((1 << square_bits) - 1) / (top * top)
    scale[SQUARE] = 1.0 / steps
    for q in range(-top, top + 1):
        square = np.int64(np.ceil(q * q * steps - 1e-9))
        values[q + 128] = (square << (2 * shift + bits)) + (np.int64(q) << shift) + 1
    squares = 0.0
    for i in range(0, len(packed), 16):  # a sample: it only decides whether to try
        g = (packed[i] >> shift) * scale[FACTOR]
        squares += g * g
    scale[MEAN_SQUARE] = squares / ((len(packed) + 15) // 16) + 0.5 * scale[SQUARE]


@inner
def fill_pairs(
    words: NDArray[np.uint64],
    first: Number,
    last: Number,
    rows: NDArray[np.uint64],
    packed: Int64s,
    start: Number,
    stop: Number,
    scale: Floats,
    values: Int64s,
    hist: Int64s,
) -> None:
    """Sums over rows ``start .. stop`` in the 256 cells of each of the pairs ``first .. last``."""
    hist[256 * first : 256 * last] = 0
    shift, factor = np.int64(scale[COUNT_BITS]), scale[FACTOR]
    first_word, last_word = first // 8, (last + 7) // 8
    tile = np.empty((last_word - first_word, TILE + 8), np.uint64)
    added = np.empty(TILE, np.int64)
    cells = np.empty(8, np.int64)
    for begin in range(start, stop, TILE):
        end = min(stop, begin + TILE)
        gather(words, rows, begin, end, first_word, last_word, tile)
        part = packed[begin:end]
        for i in range(len(part)):
            added[i] = np.int64((part[i] >> shift) * factor + 128.5)
        for i in range(len(part)):
            added[i] = values[np.uint64(added[i])]
        for j in range(last_word - first_word):
            pair = 8 * (first_word + j)
            n_pairs = min(8, last - pair)
            for k in range(n_pairs):
                cells[k] = 256 * (pair + k)
            if n_pairs == 8:
                add_eight(tile[j], added, end - begin, hist, cells)
            else:
                add_some(tile[j], added, end - begin, hist, cells, n_pairs, 0)


@lean
def marginals(hist: Int64s, pair: Number, sums: Int64s) -> None:
    """Coarse sums of both columns of a pair, into ``sums[:16]`` and ``sums[16:]``."""
    cells = hist[256 * pair : 256 * pair + 256]
    low, high = sums[:16], sums[16:]
    low[:] = 0
    for i in range(16):
        total = np.int64(0)
        for j in range(16):
            cell = cells[16 * i + j]
            low[j] += cell
            total += cell
        high[i] = total


@lean
def bound_column(
    sums: Int64s, n_coarse: Number, hides: Number, scale: Floats, limit: Number, room: Floats
) -> Number:
    """What ``s`` is at most (in rounded units) over the splits of the column; infinite if that may be ``limit``.

    ``room`` takes 3 x 17 numbers.
    """
    shift, top_shift = np.int64(scale[COUNT_BITS]), np.int64(scale[GRADIENT_BITS])
    count_mask, g_bits, unit = (np.int64(1) << shift) - 1, top_shift, scale[SQUARE]
    square_mask = (np.int64(1) << (64 - shift - top_shift)) - 1
    counts, grads, squares = room[0], room[1], room[2]
    counts[16] = 0.0
    n, G = 0.0, 0.0
    for k in range(min(n_coarse + 1, 16)):
        word = sums[k]
        count = word & count_mask
        rest = word >> shift
        g = (rest << (64 - g_bits)) >> (64 - g_bits)
        squares[k] = np.float64(((rest - g) >> g_bits) & square_mask) * unit
        counts[k], grads[k] = count, g
        n += counts[k]
        G += grads[k]
    mean = G / n
    missing, largest = n_coarse if n_coarse < 16 else 16, 0.0
    for side in range(2 if counts[missing] > 0.0 else 1):
        a = counts[missing] if side == 1 else 0.0
        D = grads[missing] - mean * a if side == 1 else 0.0
        left, right = np.sqrt(a), np.sqrt(n - a)
        s = abs(D) / (left * right) if a > 0.0 and a < n else 0.0
        for k in range(n_coarse):
            w = counts[k]
            if w == 0.0:
                continue
            a += w
            D += grads[k] - mean * w
            new_left, new_right = np.sqrt(a), np.sqrt(max(n - a, 0.0))
            new_s = abs(D) / (new_left * new_right) if a < n else 0.0
            inside = 0.0
            if (hides >> k) & 1 and w > 1.0:
                inside = np.sqrt(max(squares[k] * w - grads[k] * grads[k], 0.0)) / (
                    new_left * right + left * new_right
                )
            largest = max(largest, max(s, new_s) + inside)
            if largest * np.sqrt(n) >= limit:
                return np.inf
            left, right, s = new_left, new_right, new_s
    return largest * np.sqrt(n)
