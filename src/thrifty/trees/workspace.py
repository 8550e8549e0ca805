"""Everything a tree needs while it grows, allocated once and reused for every tree.

Compiled code takes it as one tuple. Few arrays, with named places in them, because every array in the tuple
lengthens the compilation of every function that takes it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int64s
from thrifty.trees.binning import WORD, BinnedTable

__all__ = ["Workspace", "make_workspace", "narrow_copy"]


# Rows of ``features``. WHOLE and NARROW name the feature at each place of the table and of its narrow copy,
# PLACE is where a feature sits in the narrow copy (-1: not there), ORDER is the choice between equal gains, WORK counts
# the rows added to its histograms.
N_BINS, GROUP, ORDER, WHOLE, NARROW, PLACE, WORK = range(7)
# Columns of ``leaf``. IS_WHOLE: every feature was examined, not only the free ones. BEST: feature of the best net gain.
START, STOP, DEPTH, PARENT, SLOT, IS_WHOLE, BEST = range(7)
# Columns of ``node_int`` and ``node_float``.
FEATURE, LAST_LEFT, MISSING_LEFT, LEFT, RIGHT = range(5)
RAW, CHARGE = range(2)
# Places in ``state``; the job is the pair of histograms to build next; FREE_SLOTS is where the list of them begins.
N_LEAVES, N_SPLITS, N_NARROW, NARROW_FITS, N_FREE_SLOTS = range(5)
SMALL, BIG, COLUMNS, FROM_PARENT, SMALL_SLOT, BIG_SLOT = range(5, 11)
# SKIPS is whether what cannot pay is left out in this tree; N_CARRIED is how many columns of the narrow table its rows
# carry.
IS_DONE, SKIPS, N_CARRIED, FREE_SLOTS = range(11, 15)
# What a job examines: columns free to use, or every column.
NO_JOB, FREE_COLUMNS, ALL_COLUMNS = range(3)

HISTOGRAM_BYTES = 24 * 2**20  # most that histograms and what is kept per leaf take, where that is possible
COLUMN_BYTES = 8 * 2**20  # a table up to this size is kept by columns too: a split reads one column


class Workspace(NamedTuple):
    """Arrays of one grower.

    Attributes
    ----------
    words, narrow : uint64
        The table, eight codes to a word, and a narrow copy of the columns that are free to use.
    columns : uint8, (n_features, n_rows)
        The table again, one column after the other, if it is small enough.
    features : int64, (7, n_features)
    charges : float64, (n_features,)
        What a split on each feature would pay now: gamma times price, or zero.
    bought : bool, (n_groups,)
    rows, packed : (2, ...)
        Rows of every leaf (``histogram.ROW``), one stretch each, with their gradients: first leaves of even depth, then
        of odd.
    leaf_of : int32, (n_rows,)
        Leaf of every row whose way ended with a last split.
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
    columns: NDArray[np.uint8]
    features: Int64s
    charges: Floats
    bought: NDArray[np.bool_]
    rows: NDArray[np.uint64]
    packed: Int64s
    leaf_of: NDArray[np.int32]
    hist: Int64s
    leaf: Int64s
    totals: Int64s
    raw: Floats
    choice: NDArray[np.int32]
    left_totals: Int64s
    node_int: Int64s
    node_float: Floats
    state: Int64s


def make_workspace(
    table: BinnedTable,
    group_of: Int64s,
    order: Int64s,
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
    leaf_bytes = max_leaves * p * (12 + 8 * n_lanes)
    n_slots = 2 + max(1, min(wanted, (HISTOGRAM_BYTES - leaf_bytes) // (12 * n_cells)))
    places = np.arange(p)
    zeros = np.zeros(p, np.int64)
    return Workspace(
        words=table.words,
        narrow=narrow_copy(n, 0),
        columns=table.columns if table.n_bytes <= COLUMN_BYTES else np.empty((0, 0), np.uint8),
        features=np.stack([table.thresholds.n_bins, group_of, order, places, zeros, zeros - 1, zeros]),
        charges=np.zeros(p),
        bought=np.zeros(n_groups, bool),
        rows=np.empty((2, n), np.uint64),
        packed=np.empty((2, n * n_lanes), np.int64),
        leaf_of=np.zeros(n, np.int32),
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
