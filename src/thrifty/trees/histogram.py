"""Sums of packed gradients per bin: where the time of growing a tree goes.

Cell ``(f, b)`` of a histogram is the sum, over the rows of a leaf, of the packed gradient of those whose
code in column ``f`` is ``b``. Adding to a cell is one load, one addition and one store that land anywhere
in the histogram, so two things decide the speed. Rows are copied tile by tile into a buffer that holds
eight columns per word and one word after the other, so that a cache line of the table is fetched once and
all its codes are used. Eight columns are then summed together: their cells (16 KB) stay in the nearest
cache, and eight independent additions hide each other's latency.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.kernel import Number, inner, lean

__all__ = ["BYTE", "TILE", "add_eight", "add_some", "fill", "fill_column", "gather", "subtract"]

Ints = NDArray[np.int64]
TILE = 512
BYTE = np.uint64(255)
LINE = 8  # words in a cache line
FEW = 3  # columns that are summed without a tile


@lean
def flat_words(words: NDArray[np.uint64]) -> tuple[Any, Number]:
    """All words one after the other, and words a row.

    Unsigned, so that no sign is tested; and known to fit into 32 bits, of which products are cheaper.
    """
    return words.reshape(words.size), np.uint64(np.uint32(words.shape[1]))


@lean
def gather(
    words: NDArray[np.uint64],
    rows: NDArray[np.uint32],
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
            at = np.uint64(taken[i]) * n_words + np.uint64(first)
            for j in range(last - first):
                tile[j, i] = flat[at + np.uint64(j)]
        return
    # Rows within a cache line or two stay near from one pass to the next.
    j = first
    while j + 4 <= last:
        a, b, c, d = tile[j - first], tile[j - first + 1], tile[j - first + 2], tile[j - first + 3]
        for i in range(len(taken)):
            at = np.uint64(taken[i]) * n_words + np.uint64(j)
            a[i], b[i] = flat[at], flat[at + np.uint64(1)]
            c[i], d[i] = flat[at + np.uint64(2)], flat[at + np.uint64(3)]
        j += 4
    while j < last:
        a = tile[j - first]
        for i in range(len(taken)):
            a[i] = flat[np.uint64(taken[i]) * n_words + np.uint64(j)]
        j += 1


@lean
def add_eight(codes: NDArray[np.uint64], packed: Ints, n_rows: Number, hist: Ints, cells: Ints) -> None:
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
def add_four(
    codes: NDArray[np.uint64], packed: Ints, n_rows: Number, hist: Ints, cells: Ints, first: Number
) -> None:
    """Add rows to the cells of four columns of a word, from place ``first`` on."""
    h0, h1, h2, h3 = (
        hist[cells[first] :],
        hist[cells[first + 1] :],
        hist[cells[first + 2] :],
        hist[cells[first + 3] :],
    )
    shift = np.uint64(8 * first)
    for i in range(n_rows):
        word, value = codes[i] >> shift, packed[i]
        h0[word & BYTE] += value
        h1[(word >> np.uint64(8)) & BYTE] += value
        h2[(word >> np.uint64(16)) & BYTE] += value
        h3[(word >> np.uint64(24)) & BYTE] += value


@lean
def add_some(
    codes: NDArray[np.uint64], packed: Ints, n_rows: Number, hist: Ints, cells: Ints, n_columns: Number
) -> None:
    """Add rows to the cells of the first columns of a word, fewer than eight."""
    first = np.int64(0)
    if n_columns >= 4:
        add_four(codes, packed, n_rows, hist, cells, first)
        first += 4
    for k in range(first, n_columns):
        add_one(codes, packed, n_rows, hist, cells[k], np.uint64(8 * k))


@lean
def add_one(
    codes: NDArray[np.uint64], packed: Ints, n_rows: Number, hist: Ints, cell: Number, shift: Number
) -> None:
    """Add rows to the cells of one column."""
    column = hist[cell:]
    for i in range(n_rows):
        column[(codes[i] >> shift) & BYTE] += packed[i]


@lean
def add_few(
    words: NDArray[np.uint64],
    word: Number,
    rows: NDArray[np.uint32],
    packed: Ints,
    hist: Ints,
    cells: Ints,
    n_columns: Number,
) -> None:
    """Add rows to the cells of the first one, two or three columns of a word, straight from the table.

    So few additions a row do not pay for a copy to the tile: a third more time for three columns.
    """
    flat, n_words = flat_words(words)
    h0 = hist[cells[0] :]
    if n_columns == 1:
        for i in range(len(rows)):
            h0[flat[np.uint64(rows[i]) * n_words + word] & BYTE] += packed[i]
        return
    h1 = hist[cells[1] :]
    if n_columns == 2:
        for i in range(len(rows)):
            codes, value = flat[np.uint64(rows[i]) * n_words + word], packed[i]
            h0[codes & BYTE] += value
            h1[(codes >> np.uint64(8)) & BYTE] += value
        return
    h2 = hist[cells[2] :]
    for i in range(len(rows)):
        codes, value = flat[np.uint64(rows[i]) * n_words + word], packed[i]
        h0[codes & BYTE] += value
        h1[(codes >> np.uint64(8)) & BYTE] += value
        h2[(codes >> np.uint64(16)) & BYTE] += value


@lean
def add_lanes(
    codes: NDArray[np.uint64],
    packed: Ints,
    n_rows: Number,
    n_lanes: Number,
    hist: Ints,
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
    columns: Ints,
    first: Number,
    last: Number,
    rows: NDArray[np.uint32],
    packed: Ints,
    start: Number,
    stop: Number,
    n_lanes: Number,
    width: Number,
    hist: Ints,
) -> None:
    """Histogram of rows ``start .. stop`` over the columns at places ``first .. last`` of ``words``.

    ``columns`` names the feature at each place: the histogram is laid out by feature whether the words
    are the whole table or a narrow copy of some columns. ``first`` is a multiple of eight.
    """
    if first == last:
        return
    for place in range(first, last):
        cell = columns[place] * width * n_lanes
        hist[cell : cell + width * n_lanes] = 0
    first_word, last_word = first // 8, (last + 7) // 8
    cells = np.empty(8, np.int64)
    if n_lanes == 1 and last - first <= FEW:
        for k in range(last - first):
            cells[k] = columns[first + k] * width
        word, n_columns = np.uint64(first_word), last - first
        add_few(words, word, rows[start:stop], packed[start:stop], hist, cells, n_columns)
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
                add_some(tile[j], values, end - begin, hist, cells, n_columns)
                continue
            for k in range(n_columns):
                add_lanes(tile[j], values, end - begin, n_lanes, hist, cells[k], np.uint64(8 * k))


@lean
def fill_column(
    words: NDArray[np.uint64],
    f: Number,
    rows: NDArray[np.uint32],
    packed: Ints,
    start: Number,
    stop: Number,
    hist: Ints,
) -> None:
    """Histogram of rows ``start .. stop`` over one column, one lane."""
    hist[:] = 0
    flat, n_words = flat_words(words)
    word, shift = np.uint64(f // 8), np.uint64(8 * (f % 8))
    taken, values = rows[start:stop], packed[start:stop]
    for i in range(len(taken)):
        hist[(flat[np.uint64(taken[i]) * n_words + word] >> shift) & BYTE] += values[i]


@lean
def subtract(parent: Ints, child: Ints, cell: Number, n_cells: Number) -> None:
    """Turn the parent's histogram of one column into the other child's: exact, since sums are integers."""
    for i in range(cell, cell + n_cells):
        parent[i] -= child[i]
