"""Everything a tree needs while it grows, allocated once and reused for every tree.

Compiled code takes it as one tuple. Few arrays, with named places in them, because every array in the tuple
lengthens the compilation of every function that takes it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.binning import WORD, BinnedTable
from thrifty.trees.pairs import Pairs

__all__ = ["Workspace", "make_workspace", "narrow_copy", "with_pairs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Rows of ``features``. WHOLE and NARROW name the feature at each place of the table and of its narrow copy,
# PLACE is where a feature sits in the narrow copy (-1: not there), ORDER is the choice between equal gains, N_COARSE
# and HIDES describe its coarse bins, WORK counts the rows added to its histograms (to those of its pair, if even).
# SURVIVED counts those of a priced feature that coarse sums could not rule out, in all trees.
N_BINS, GROUP, ORDER, WHOLE, NARROW, PLACE, N_COARSE, HIDES, WORK, SURVIVED = range(10)
# Columns of ``leaf``. IS_WHOLE: every feature was examined, not only the free ones. BEST: feature of the best net gain.
# HAS_PAIRS: the slot also holds the sums of pairs.
START, STOP, DEPTH, PARENT, SLOT, IS_WHOLE, BEST, HAS_PAIRS = range(8)
# Columns of ``node_int`` and ``node_float``.
FEATURE, LAST_LEFT, MISSING_LEFT, LEFT, RIGHT = range(5)
RAW, CHARGE = range(2)
# Places in ``state``; the job is the pair of histograms to build next; FREE_SLOTS is where the list of them begins.
N_LEAVES, N_SPLITS, N_NARROW, NARROW_FITS, N_FREE_SLOTS, SCREENS = range(6)
SMALL, BIG, PHASE, NEEDS_PRICED, PARENT_IS_WHOLE, PARENT_HAS_PAIRS, FROM_PARENT, SMALL_SLOT, BIG_SLOT = range(
    6, 15
)
# MEMORY is the remembered root nearest to this tree's, -1 if there is none.
IS_DONE, MEMORY, FREE_SLOTS = range(15, 18)
# What a job examines in a phase: columns free to use; those with a price that may pay, as
# coarse sums or a remembered root tell; every column.
NO_JOB, FREE_COLUMNS, PROMISING_COLUMNS, REMEMBERED_COLUMNS, ALL_COLUMNS = range(5)

HISTOGRAM_BYTES = 24 * 2**20


class Workspace(NamedTuple):
    """Arrays of one grower.

    Attributes
    ----------
    words, narrow : uint64
        The table, eight codes to a word, and a narrow copy of the columns that are free to use.
    pairs : uint64
        Coarse codes of the table, if they are used.
    features : int64, (10, n_features)
    charges : float64, (n_features,)
        What a split on each feature would pay now: gamma times price, or zero.
    bought : bool, (n_groups,)
    rows, packed : (2, ...)
        Rows of every leaf, one stretch each, with their gradients: first leaves of even depth, then of odd.
    hist : int64, (n_slots, n_cells)
        Histograms of open leaves; the last two slots are scratch.
    pair_hist : int64, (n_slots, n_pairs * 256)
        Sums of pairs of coarse codes, in the same slots.
    scale : float64
        What the fields of those sums mean in this tree.
    pair_values : int64, (256,)
        What a row adds to them, by its rounded gradient.
    memory : float64, (2, 1 + n_features + n_rows)
        Two roots examined before: whether it is there, the square root of twice each feature's gain, the gradients.
    leaf : int64, (max_leaves, 8)
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
    pairs: NDArray[np.uint64]
    features: Ints
    charges: Floats
    bought: NDArray[np.bool_]
    rows: NDArray[np.uint32]
    packed: Ints
    hist: Ints
    pair_hist: Ints
    scale: Floats
    pair_values: Ints
    memory: Floats
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
    n_slots = 2 + max(1, min(wanted, HISTOGRAM_BYTES // (12 * n_cells)))
    places = np.arange(p)
    zeros = np.zeros(p, np.int64)
    return Workspace(
        words=table.words,
        narrow=narrow_copy(n, 0),
        pairs=np.empty((0, 0), np.uint64),
        features=np.stack([table.thresholds.n_bins, group_of, order, places, zeros, zeros - 1, *[zeros] * 4]),
        charges=np.zeros(p),
        bought=np.zeros(n_groups, bool),
        rows=np.empty((2, n), np.uint32),
        packed=np.empty((2, n * n_lanes), np.int64),
        hist=np.empty((n_slots, n_cells), np.int64),
        pair_hist=np.empty((n_slots, 0), np.int64),
        scale=np.zeros(6),
        pair_values=np.zeros(256, np.int64),
        memory=np.zeros((2, 0)),
        leaf=np.zeros((max_leaves, 8), np.int64),
        totals=np.zeros((max_leaves, n_lanes), np.int64),
        raw=np.zeros((max_leaves, p + 1)),
        choice=np.zeros((max_leaves, p), np.int32),
        left_totals=np.zeros((max_leaves, p, n_lanes), np.int64),
        node_int=np.zeros((max_leaves, 5), np.int64),
        node_float=np.zeros((max_leaves, 2)),
        state=np.zeros(FREE_SLOTS + n_slots, np.int64),
    )


def with_pairs(ws: Workspace, pairs: Pairs) -> Workspace:
    """The same workspace, with coarse codes and room for their sums."""
    n_features = len(ws.charges)
    ws.features[N_COARSE], ws.features[HIDES] = pairs.n_coarse, pairs.hides
    room = np.empty((len(ws.hist), -(-n_features // 2) * 256), np.int64)
    memory = np.zeros((2, 1 + n_features + len(pairs.words)))
    return ws._replace(pairs=pairs.words, pair_hist=room, memory=memory)


def narrow_copy(n_rows: int, n_columns: int) -> NDArray[np.uint64]:
    """Room for a copy of ``n_columns`` columns."""
    return np.zeros((n_rows, max(1, -(-n_columns // WORD))), np.uint64)
