"""Histograms: sums of packed gradients per bin, which take most of the time of growing a tree.

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
from thrifty.jit import Number, lean

TILE = 512
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
