"""Everything a tree needs while it grows, allocated once and reused for every tree.

Compiled code takes it as one tuple of arrays. Numbers that change sit in the small arrays ``state`` and
``job``, at the places named below.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.binning import WORD, BinnedTable

__all__ = ["Workspace", "make_workspace", "narrow_copy"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# Places in ``state``.
N_LEAVES, N_SPLITS, N_NARROW, NARROW_FITS, N_FREE_SLOTS, N_CELLS = range(6)
# Places in ``job``: the histograms to build next.
SMALL, BIG, IS_WHOLE, FROM_PARENT, SMALL_SLOT, BIG_SLOT, IS_DONE = range(7)

HISTOGRAM_BYTES = 24 * 2**20


class Workspace(NamedTuple):
    """Arrays of one grower.

    Attributes
    ----------
    words, codes : the table, as words and as bytes
    narrow_words, narrow_codes : a narrow copy of the columns that are free to use
    whole_columns, narrow_columns : the feature at each place of the table and of the narrow copy
    n_bins, group_of : per feature
    order : features from first to last choice when gains are exactly equal
    charges : what a split on each feature would pay now: gamma times price, or zero
    bought : per group
    rows, packed, spare_rows, spare_packed : rows of every leaf, one stretch each, and room to move them
    hist, free_slots : histograms of open leaves (the last two slots are scratch), and unused ones
    bounds, depth, parent, slot, is_whole, net, best : per leaf. ``is_whole`` says whether every feature
        was examined or only the free ones; ``net`` is the best net gain, of feature ``best``
    totals : per leaf, lanes
    raw, bins, missing_left : per leaf and feature: its best split before any charge
    node_int : per split: feature, last left bin, missing left, left child, right child
    node_float : per split: raw gain, charge
    state, job : numbers that change, see the names above
    """

    words: NDArray[np.uint64]
    codes: Bytes
    narrow_words: NDArray[np.uint64]
    narrow_codes: Bytes
    whole_columns: Ints
    narrow_columns: Ints
    n_bins: Ints
    group_of: Ints
    order: Ints
    charges: Floats
    bought: NDArray[np.bool_]
    rows: NDArray[np.uint32]
    packed: Ints
    spare_rows: NDArray[np.uint32]
    spare_packed: Ints
    hist: NDArray[np.int64]
    free_slots: Ints
    bounds: Ints
    depth: Ints
    parent: Ints
    slot: Ints
    is_whole: Bytes
    net: Floats
    best: Ints
    totals: NDArray[np.int64]
    raw: Floats
    bins: NDArray[np.int16]
    missing_left: Bytes
    node_int: Ints
    node_float: Floats
    state: Ints
    job: Ints


def make_workspace(
    table: BinnedTable, group_of: Ints, order: Ints, n_groups: int, max_depth: int, max_leaves: int, n_lanes: int
) -> Workspace:
    """Allocate for trees of at most ``max_leaves`` leaves over ``table``."""
    n, p = table.n_rows, table.n_features
    width = int(table.thresholds.n_bins.max()) + 1
    slot_bytes = 8 * p * width * n_lanes
    # Only leaves that may have grandchildren keep their histogram for subtraction.
    wanted = min(2 ** max(max_depth - 2, 0), max_leaves)
    n_slots = 2 + max(1, min(wanted, HISTOGRAM_BYTES // slot_bytes))
    narrow = narrow_copy(n, 0)
    leaves, splits = max_leaves, max(max_leaves - 1, 1)
    return Workspace(
        table.words,
        table.padded,
        narrow.view(np.uint64),
        narrow,
        np.arange(p),
        np.zeros(p, np.int64),
        table.thresholds.n_bins,
        group_of,
        order,
        np.zeros(p),
        np.zeros(n_groups, bool),
        np.empty(n, np.uint32),
        np.empty(n * n_lanes, np.int64),
        np.empty(n, np.uint32),
        np.empty(n * n_lanes, np.int64),
        np.empty((n_slots, p * width * n_lanes), np.int64),
        np.zeros(n_slots, np.int64),
        np.zeros((leaves, 2), np.int64),
        np.zeros(leaves, np.int64),
        np.zeros(leaves, np.int64),
        np.zeros(leaves, np.int64),
        np.zeros(leaves, np.uint8),
        np.zeros(leaves),
        np.zeros(leaves, np.int64),
        np.zeros((leaves, n_lanes), np.int64),
        np.zeros((leaves, p)),
        np.zeros((leaves, p), np.int16),
        np.zeros((leaves, p), np.uint8),
        np.zeros((splits, 5), np.int64),
        np.zeros((splits, 2)),
        np.zeros(8, np.int64),
        np.zeros(8, np.int64),
    )


def narrow_copy(n_rows: int, n_columns: int) -> Bytes:
    """Room for a copy of ``n_columns`` columns, whole words."""
    return np.zeros((n_rows, max(1, -(-n_columns // WORD)) * WORD), np.uint8)
