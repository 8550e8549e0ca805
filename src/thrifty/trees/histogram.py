"""Sums of packed gradients per bin: where the time of growing a tree goes.

Cell ``(f, b)`` of a histogram is the sum, over the rows of a leaf, of the packed gradient of those whose
code in column ``f`` is ``b``. Adding to a cell is one load, one addition and one store that land anywhere
in the histogram, so two things decide the speed. Rows are copied tile by tile into a buffer that holds
eight columns per word and one word after the other, so that a cache line of the table is fetched once and
all its codes are used. Eight columns are then summed together: their cells (16 KB) stay in the nearest
cache, and eight independent additions hide each other's latency.

Where few columns are bought, even that copy is too much: every row brings along the codes of the first four.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Int64s
from thrifty.compiled import Number, inner, lean

__all__ = [
    "BYTE",
    "CARRIED_FROM",
    "MOST_CARRIED",
    "ROW",
    "add_eight",
    "fill",
    "subtract",
]

TILE = 512
BYTE = np.uint64(255)
# A row is a number of 64 bits: which row of the table, and the codes of up to four columns.
ROW, CARRIED_FROM, MOST_CARRIED = np.uint64(2**32 - 1), 4, 4
LINE = 8  # words in a cache line


@lean
def flat_words(words: NDArray[np.uint64]) -> tuple[Any, Number]:
    """All words one after the other, and words a row.

    Unsigned, so that no sign is tested, and known to fit into 32 bits, as rows are: their products are cheaper.
    """
    return words.reshape(words.size), np.uint64(np.uint32(words.shape[1]))


@lean
def gather(
    words: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    start: Number,
    stop: Number,
    first: Number,
    last: Number,
    tile: Any,
) -> None:
    """Copy words ``first .. last`` of some rows, word by word instead of row by row."""
    flat, n_words = flat_words(words)
    taken = rows[start:stop]
    if last - first > LINE:
        for i in range(len(taken)):
            at = (taken[i] & ROW) * n_words + np.uint64(first)
            for j in range(last - first):
                tile[j, i] = flat[at + np.uint64(j)]
        return
    # Rows within a cache line or two stay near from one pass to the next.
    j = first
    while j + 4 <= last:
        a, b, c, d = tile[j - first], tile[j - first + 1], tile[j - first + 2], tile[j - first + 3]
        for i in range(len(taken)):
            at = (taken[i] & ROW) * n_words + np.uint64(j)
            a[i], b[i] = flat[at], flat[at + np.uint64(1)]
            c[i], d[i] = flat[at + np.uint64(2)], flat[at + np.uint64(3)]
        j += 4
    while j < last:
        a = tile[j - first]
        for i in range(len(taken)):
            a[i] = flat[(taken[i] & ROW) * n_words + np.uint64(j)]
        j += 1


@lean
def add_eight(codes: NDArray[np.uint64], packed: Int64s, n_rows: Number, hist: Int64s, cells: Int64s) -> None:
    """Add rows to the cells of eight columns; ``cells`` says where each column's histogram starts."""
    h0, h1, h2, h3 = hist[cells[0] :], hist[cells[1] :], hist[cells[2] :], hist[cells[3] :]
    h4, h5, h6, h7 = hist[cells[4] :], hist[cells[5] :], hist[cells[6] :], hist[cells[7] :]
    for i in range(n_rows):
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
    codes: NDArray[np.uint64],
    packed: Int64s,
    n_rows: Number,
    hist: Int64s,
    cells: Int64s,
    n_columns: Number,
    first_byte: Number,
) -> None:
    """Add rows to the cells of fewer than eight columns, those of the bytes of a word from ``first_byte`` on."""
    k = np.int64(0)
    while k < n_columns:
        shift, left = np.uint64(8 * (first_byte + k)), n_columns - k
        if left >= 4:
            add_four(codes, packed, n_rows, hist, cells[k:], shift)
            k += 4
        elif left >= 2:
            add_two(codes, packed, n_rows, hist, cells[k:], shift)
            k += 2
        else:
            add_one(codes, packed, n_rows, hist, cells[k:], shift)
            k += 1


@lean
def add_four(
    codes: NDArray[np.uint64], packed: Int64s, n_rows: Number, hist: Int64s, cells: Int64s, shift: Number
) -> None:
    """Add rows to the cells of four columns, whose codes begin ``shift`` bits up."""
    h0, h1, h2, h3 = hist[cells[0] :], hist[cells[1] :], hist[cells[2] :], hist[cells[3] :]
    for i in range(n_rows):
        word, value = codes[i] >> shift, packed[i]
        h0[word & BYTE] += value
        h1[(word >> np.uint64(8)) & BYTE] += value
        h2[(word >> np.uint64(16)) & BYTE] += value
        h3[(word >> np.uint64(24)) & BYTE] += value


@lean
def add_two(
    codes: NDArray[np.uint64], packed: Int64s, n_rows: Number, hist: Int64s, cells: Int64s, shift: Number
) -> None:
    """Add rows to the cells of two columns."""
    h0, h1 = hist[cells[0] :], hist[cells[1] :]
    for i in range(n_rows):
        word, value = codes[i] >> shift, packed[i]
        h0[word & BYTE] += value
        h1[(word >> np.uint64(8)) & BYTE] += value


@lean
def add_one(
    codes: NDArray[np.uint64], packed: Int64s, n_rows: Number, hist: Int64s, cells: Int64s, shift: Number
) -> None:
    """Add rows to the cells of one column."""
    h0 = hist[cells[0] :]
    for i in range(n_rows):
        h0[(codes[i] >> shift) & BYTE] += packed[i]


@lean
def add_lanes(
    codes: NDArray[np.uint64],
    packed: Int64s,
    n_rows: Number,
    n_lanes: Number,
    hist: Int64s,
    cell: Number,
    shift: Number,
) -> None:
    """Add rows of several lanes to the cells of one column."""
    for i in range(n_rows):
        base = cell + np.int64((codes[i] >> shift) & BYTE) * n_lanes
        for lane in range(n_lanes):
            hist[base + lane] += packed[i * n_lanes + lane]


@inner
def fill(
    words: NDArray[np.uint64],
    columns: Int64s,
    first: Number,
    last: Number,
    rows: NDArray[np.uint64],
    packed: Int64s,
    start: Number,
    stop: Number,
    n_lanes: Number,
    width: Number,
    n_carried: Number,
    hist: Int64s,
) -> None:
    """Histogram of rows ``start .. stop`` over the columns at places ``first .. last`` of ``words``.

    ``columns`` names the feature at each place: the histogram is laid out by feature whether the words
    are the whole table or a narrow copy of some columns. ``first`` is a multiple of eight. The first ``n_carried``
    places are in the rows themselves.
    """
    if first == last:
        return
    for place in range(first, last):
        cell = columns[place] * width * n_lanes
        hist[cell : cell + width * n_lanes] = 0
    first_word, last_word = first // 8, (last + 7) // 8
    cells = np.empty(8, np.int64)
    if n_lanes == 1 and first == 0 and last <= n_carried:  # the rows bring their codes along
        for k in range(last):
            cells[k] = columns[k] * width
        add_some(
            rows[start:stop], packed[start:stop], stop - start, hist, cells, last, np.int64(CARRIED_FROM)
        )
        return
    # Eight numbers more than a tile: at a stride of a whole page, words of a row would evict each other.
    tile = np.empty((last_word - first_word, TILE + 8), np.uint64)
    for begin in range(start, stop, TILE):
        end = min(stop, begin + TILE)
        gather(words, rows, begin, end, first_word, last_word, tile)
        values = packed[begin * n_lanes : end * n_lanes]
        for j in range(last_word - first_word):
            place = 8 * (first_word + j)
            n_columns = min(8, last - place)
            for k in range(n_columns):
                cells[k] = columns[place + k] * width * n_lanes
            if n_lanes == 1 and n_columns == 8:
                add_eight(tile[j], values, end - begin, hist, cells)
                continue
            if n_lanes == 1:
                add_some(tile[j], values, end - begin, hist, cells, n_columns, np.int64(0))
                continue
            for k in range(n_columns):
                add_lanes(tile[j], values, end - begin, n_lanes, hist, cells[k], np.uint64(8 * k))


@lean
def subtract(parent: Int64s, child: Int64s, cell: Number, n_cells: Number) -> None:
    """Turn the parent's histogram of one column into the other child's: exact, since sums are integers."""
    for i in range(cell, cell + n_cells):
        parent[i] -= child[i]
