"""Everything a tree needs while it grows, allocated once and reused for every tree.

Compiled code takes it as one tuple. Few arrays, with named places in them, because every array in the tuple
lengthens the compilation of every function that takes it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.binning import WORD, BinnedTable

__all__ = ["Workspace", "make_workspace", "narrow_copy"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Rows of ``features``. WHOLE and NARROW name the feature at each place of the table and of its narrow copy,
# PLACE is where a feature sits in the narrow copy (-1: not there), ORDER is the choice between equal gains.
N_BINS, GROUP, ORDER, WHOLE, NARROW, PLACE = range(6)
# Columns of ``leaf``. IS_WHOLE: every feature was examined, not only the free ones. BEST: feature of the best net gain.
START, STOP, DEPTH, PARENT, SLOT, IS_WHOLE, BEST = range(7)
# Columns of ``node_int`` and ``node_float``.
FEATURE, LAST_LEFT, MISSING_LEFT, LEFT, RIGHT = range(5)
RAW, CHARGE = range(2)
# Places in ``state``; the job is the pair of histograms to build next; FREE_SLOTS is where the list of them begins.
N_LEAVES, N_SPLITS, N_NARROW, NARROW_FITS, N_FREE_SLOTS, N_CELLS = range(6)
SMALL, BIG, JOB_IS_WHOLE, FROM_PARENT, SMALL_SLOT, BIG_SLOT, IS_DONE, FREE_SLOTS = range(6, 14)

HISTOGRAM_BYTES = 24 * 2**20


class Workspace(NamedTuple):
    """Arrays of one grower.

    Attributes
    ----------
    words, narrow : uint64
        The table, eight codes to a word, and a narrow copy of the columns that are free to use.
    features : int64, (6, n_features)
    charges : float64, (n_features,)
        What a split on each feature would pay now: gamma times price, or zero.
    bought : bool, (n_groups,)
    rows, packed : (2, ...)
        Rows of every leaf, one stretch each, with their gradients: first leaves of even depth, then of odd.
    hist : int64, (n_slots, n_cells)
        Histograms of open leaves; the last two slots are scratch.
    leaf : int64, (max_leaves, 7)
    totals : int64, (max_leaves, n_lanes)
    raw : float64, (max_leaves, n_features + 1)
        Best gain of every feature before any charge; in the last column, the best net gain.
    choice : int32, (max_leaves, n_features)
        The split it belongs to: twice the last left bin, plus one if missing values go left.
    left_totals : int64, (max_leaves, n_features, n_lanes)
        Sums of its left child.
    node_int, node_float : per split
    state : int64
        Numbers that change.
    """

    words: NDArray[np.uint64]
    narrow: NDArray[np.uint64]
    features: Ints
    charges: Floats
    bought: NDArray[np.bool_]
    rows: NDArray[np.uint32]
    packed: Ints
    hist: Ints
    leaf: Ints
    totals: Ints
    raw: Floats
    choice: NDArray[np.int32]
    left_totals: Ints
    node_int: Ints
    node_float: Floats
    state: Ints


def make_workspace(
    table: BinnedTable,
    group_of: Ints,
    order: Ints,
    n_groups: int,
    max_depth: int,
    max_leaves: int,
    n_lanes: int,
) -> Workspace:
    """Allocate for trees of at most ``max_leaves`` leaves over ``table``."""
    n, p = table.n_rows, table.n_features
    n_cells = p * (int(table.thresholds.n_bins.max()) + 1) * n_lanes
    # Only leaves that may have grandchildren keep their histogram for subtraction.
    wanted = min(2 ** max(max_depth - 2, 0), max_leaves)
    n_slots = 2 + max(1, min(wanted, HISTOGRAM_BYTES // (8 * n_cells)))
    places = np.arange(p)
    return Workspace(
        words=table.words,
        narrow=narrow_copy(n, 0),
        features=np.stack([table.thresholds.n_bins, group_of, order, places, places * 0, places * 0 - 1]),
        charges=np.zeros(p),
        bought=np.zeros(n_groups, bool),
        rows=np.empty((2, n), np.uint32),
        packed=np.empty((2, n * n_lanes), np.int64),
        hist=np.empty((n_slots, n_cells), np.int64),
        leaf=np.zeros((max_leaves, 7), np.int64),
        totals=np.zeros((max_leaves, n_lanes), np.int64),
        raw=np.zeros((max_leaves, p + 1)),
        choice=np.zeros((max_leaves, p), np.int32),
        left_totals=np.zeros((max_leaves, p, n_lanes), np.int64),
        node_int=np.zeros((max_leaves, 5), np.int64),
        node_float=np.zeros((max_leaves, 2)),
        state=np.zeros(FREE_SLOTS + n_slots, np.int64),
    )


def narrow_copy(n_rows: int, n_columns: int) -> NDArray[np.uint64]:
    """Room for a copy of ``n_columns`` columns."""
    return np.zeros((n_rows, max(1, -(-n_columns // WORD))), np.uint64)
