"""Sums of packed gradients per bin: where the time of growing a tree goes.

Cell ``(f, b)`` of a histogram is the sum, over the rows of a leaf, of the packed gradient of those whose
code in column ``f`` is ``b``. Adding to a cell is one load, one addition and one store that land anywhere
in the histogram, so two things decide the speed. Rows are copied tile by tile into a buffer that holds
eight columns per word and one word after the other, so that a cache line of the table is fetched once and
all its codes are used. Eight columns are then summed together: their cells (16 KB) stay in the nearest
cache, and eight independent additions hide each other's latency.

Where few columns are bought, even that copy is too much: every row brings along the codes of the first four.
"""

import numpy as np

from thrifty.arrays import Int64s, Words
from thrifty.compiled import Number, lean

__all__ = [
    "BYTE",
    "CARRIED_FROM",
    "CHUNK",
    "MOST_CARRIED",
    "ROW",
    "TILE",
    "add_eight",
    "fill",
    "gather",
    "subtract",
]

TILE = 512
CHUNK = 256  # columns examined together, so that their histograms are still near when they are searched
BYTE = np.uint64(255)
# A row is a number of 64 bits: which row of the table, and the codes of up to four columns.
ROW, CARRIED_FROM, MOST_CARRIED = np.uint64(2**32 - 1), 4, 4
LINE = 8  # words in a cache line


@lean
def gather(
    words: Words,
    n_words: Number,
    rows: Words,
    start: Number,
    stop: Number,
    first: Number,
    last: Number,
    tile: Words,
) -> None:
    """Copy words ``first .. last`` of some rows to those of ``tile``, word by word instead of row by row.

    There are ``n_words`` a row: unsigned, so that no sign is tested, and known to fit into 32 bits, as rows are: their
    products are cheaper.
    """
    taken, step = rows[start:stop], np.uint64(np.uint32(n_words))
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
def add_eight(codes: Words, packed: Int64s, hist: Int64s, columns: Int64s, width: Number) -> None:
    """Add rows to the cells of eight columns, ``width`` for each feature."""
    h0, h1, h2, h3 = (
        hist[columns[0] * width :],
        hist[columns[1] * width :],
        hist[columns[2] * width :],
        hist[columns[3] * width :],
    )
    h4, h5, h6, h7 = (
        hist[columns[4] * width :],
        hist[columns[5] * width :],
        hist[columns[6] * width :],
        hist[columns[7] * width :],
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
    codes: Words,
    packed: Int64s,
    hist: Int64s,
    columns: Int64s,
    n_columns: Number,
    width: Number,
    first_byte: Number,
) -> None:
    """Add rows to the cells of fewer than eight columns, those of the bytes of a word from ``first_byte`` on."""
    k = 0
    while k + 4 <= n_columns:
        add_four(codes, packed, hist, columns[k:], width, np.uint64(8 * (first_byte + k)))
        k += 4
    while k < n_columns:
        shift, h0 = np.uint64(8 * (first_byte + k)), hist[columns[k] * width :]
        if k + 2 <= n_columns:
            h1 = hist[columns[k + 1] * width :]
            for i in range(len(packed)):
                word, value = codes[i] >> shift, packed[i]
                h0[word & BYTE] += value
                h1[(word >> np.uint64(8)) & BYTE] += value
        else:
            for i in range(len(packed)):
                h0[(codes[i] >> shift) & BYTE] += packed[i]
        k += 2


@lean
def add_four(
    codes: Words, packed: Int64s, hist: Int64s, columns: Int64s, width: Number, shift: Number
) -> None:
    """Add rows to the cells of four columns, whose codes begin ``shift`` bits up."""
    h0, h1 = hist[columns[0] * width :], hist[columns[1] * width :]
    h2, h3 = hist[columns[2] * width :], hist[columns[3] * width :]
    for i in range(len(packed)):
        word, value = codes[i] >> shift, packed[i]
        h0[word & BYTE] += value
        h1[(word >> np.uint64(8)) & BYTE] += value
        h2[(word >> np.uint64(16)) & BYTE] += value
        h3[(word >> np.uint64(24)) & BYTE] += value


@lean
def fill(
    words: Words,
    n_words: Number,
    columns: Int64s,
    first: Number,
    last: Number,
    rows: Words,
    packed: Int64s,
    start: Number,
    stop: Number,
    width: Number,
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
        cells = hist[columns[place] * width :]
        for i in range(width):
            cells[i] = 0
    if first == 0 and last <= n_carried:  # the rows bring their codes along
        add_some(rows[start:stop], packed[start:stop], hist, columns, last, width, CARRIED_FROM)
        return
    first_word, last_word = first // 8, (last + 7) // 8
    for begin in range(start, stop, TILE):
        end = begin + TILE if begin + TILE < stop else stop
        gather(words, n_words, rows, begin, end, first_word, last_word, tile)
        values = packed[begin:end]
        for j in range(first_word, last_word):
            place = 8 * j
            if last - place >= 8:
                add_eight(tile[j], values, hist, columns[place:], width)
            else:
                add_some(tile[j], values, hist, columns[place:], last - place, width, 0)


@lean
def subtract(parent: Int64s, child: Int64s, cell: Number, n_cells: Number) -> None:
    """Turn the parent's histogram of one column into the other child's: exact, since sums are integers."""
    for i in range(cell, cell + n_cells):
        parent[i] -= child[i]
