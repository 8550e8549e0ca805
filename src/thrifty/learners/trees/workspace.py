"""Memory of a growing tree, allocated once and reused for every tree.

Compiled code takes it as one tuple. What is known of a leaf, of a split or of the tree is a record, not an array for
each number: every array in the tuple lengthens the compilation of every function that takes it.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s, Int64s, Words
from thrifty.engine.trees.binning import WORD, BinnedTable
from thrifty.learners.trees.gradients import Lanes

Records: TypeAlias = Any  # array of records, whose fields are attributes in compiled code

FEATURE = np.dtype(
    [
        ("n_bins", np.int64),  # zero for a column of levels
        ("group", np.int64),
        ("place", np.int64),  # in the copy of free columns; -1: not there
    ]
)
LEAF = np.dtype(
    [
        ("start", np.int64),  # its rows are a stretch of ``rows[depth % 2]``
        ("stop", np.int64),
        ("idle_start", np.int64),  # and these are its rows that count for nothing in this tree
        ("idle_stop", np.int64),
        ("depth", np.int64),
        ("parent", np.int64),  # the split it is a child of, -1 for the root
        ("slot", np.int64),  # where its histogram is kept, -1 if it is not
        ("is_whole", np.int64),  # every feature was examined, not only the free ones
        ("best", np.int64),  # feature of the best net gain
        ("net_gain", np.float64),  # minus infinity if the leaf is not to be split
    ]
)
CANDIDATE = np.dtype(
    [
        ("gain", np.float64),  # of the best split of one feature in one leaf, before any charge
        ("last_left", np.int32),
        ("missing_left", np.int32),
    ]
)
SPLIT = np.dtype(
    [
        ("feature", np.int64),
        ("last_left", np.int64),
        ("missing_left", np.int64),
        ("left", np.int64),  # a split if >= 0, else leaf ``~left``
        ("right", np.int64),
        ("gain", np.float64),
        ("charge", np.float64),
    ]
)
TREE = np.dtype(
    [
        ("n_leaves", np.int64),  # zero: no tree is under way
        ("n_splits", np.int64),
        ("n_cells", np.int64),  # (row, column) cells added to histograms
        ("n_grown", np.int64),  # trees that this call, or the calls that it goes on with, have finished
        ("skips", np.int64),  # whether what cannot pay is left out in this tree
        ("n_free", np.int64),  # columns in the copy of free columns
        ("copy_is_used", np.int64),  # whether that copy holds every free column
        ("n_carried", np.int64),  # columns of that copy whose codes the rows bring along
        ("n_free_slots", np.int64),
        ("parent_slot", np.int64),  # where the histogram of the leaf split last is kept, -1 if it is not
        ("parent_is_whole", np.int64),  # whether it is of every column
        # What is to be examined: leaves that a purchase concerns, from ``review`` on; then the children of a split.
        ("review", np.int64),
        ("fresh", np.int64),  # from which place of the copy on the columns were bought last
        ("left", np.int64),  # -1: there are none
        ("right", np.int64),
        # The job: leaves whose histograms are to be built next, over some places.
        ("first", np.int64),
        ("last", np.int64),
        ("is_whole", np.int64),  # whether these are places of the table, not of the copy of free columns
        ("is_few", np.int64),  # whether leaves are examined from their rows, without histograms
        ("small", np.int64),  # -1: there is no job
        ("big", np.int64),  # -1 if there is only one
        ("small_slot", np.int64),
        ("big_slot", np.int64),
        ("from_parent", np.int64),  # whether the histogram of ``big`` is what remains of their parent's
    ]
)
TILE = 512  # rows that are copied together while a histogram is built
HISTOGRAM_BYTES = 24 * 2**20  # most that histograms and what is kept per leaf take, where that is possible
COLUMN_BYTES = 8 * 2**20  # a table up to this size is kept by columns too: a split reads one column


class Limits(NamedTuple):
    """Limits of the growth of a tree.

    Attributes
    ----------
    max_depth, max_leaves : int
        Most splits on a way down, between 1 and 12, and most leaves, at least 2.
    l2 : float
        Added to the hessian of every leaf.
    min_child_weight : float
        Least sum of hessians of a leaf (of weights or rows, without hessians); mean over outputs.
    min_child_samples : int
        Least rows of a leaf. More than one together with hessians makes histograms twice as wide.
    skip_hopeless : bool
        Whether features that cannot pay are left unexamined. The trees do not depend on it.
    few_rows : int
        Rows of a split leaf, at most ``TILE``, up to which its children are examined without histograms. The trees do
        not depend on it.
    """

    max_depth: int = 4
    max_leaves: int = 2**12
    l2: float = 0.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    skip_hopeless: bool = True
    few_rows: int = 400


class Workspace(NamedTuple):
    """Arrays of one grower.

    Attributes
    ----------
    limits : Limits
    lanes : Lanes
        How gradients are packed.
    units : float64, (n_outputs, 2)
        Real value of one unit of each output's gradient and hessian.
    words, free_words : uint64
        The table, eight codes to a word, row after row, and a copy of the columns that are free to use.
    tile : uint64, (n_words, ...)
        Words of some rows, copied here while a histogram is built.
    codes : uint8
        The table again, flat: by columns if it is small enough, else by rows.
    column_step, row_step : int
        How far apart, in ``codes``, neighbouring columns and rows are.
    features : FEATURE, (n_features,)
    places : int64, (2, n_features)
        The feature at each place of the table, and of the copy of free columns.
    order : int64, (n_features,)
        Features in the order of choice between equal gains.
    charges : float64, (n_features,)
        What a split on each feature would pay now: gamma times price, or zero.
    bought : bool, (n_groups,)
    rows, packed : (2, ...)
        Rows of every leaf (``split.ROW``), one stretch each, with their gradients: first leaves of even depth, then
        of odd. Behind them, without gradients, a stretch of each leaf's rows that the tree is not grown on.
    leaf_of : int32, (n_rows,)
        Leaf of every row whose way ended with a last split.
    hist : int64, (n_slots, n_features, n_cells)
        Histograms of open leaves; the last two slots are scratch.
    free_slots : int64, (n_slots,)
        Slots that are not in use.
    leaves : LEAF, (max_leaves,)
    totals : int64, (max_leaves, n_lanes)
    candidates : CANDIDATE, (max_leaves, n_features)
    left_totals : int64, (max_leaves, n_features, n_lanes)
        Sums of the left child of each candidate.
    splits : SPLIT, (max_leaves,)
    tree : TREE, (1,)
        What is known of the tree as a whole.
    sets : uint64, (max_leaves, n_features + 1, 4)
        Where a column holds levels: codes of the left child of each candidate, a bit each, and of each split in the
        last place. Of no leaves where all columns hold numbers.
    """

    limits: Limits
    lanes: Lanes
    units: Floats
    words: Words
    free_words: Words
    tile: Words
    codes: NDArray[np.uint8]
    column_step: int
    row_step: int
    features: Records
    places: Int64s
    order: Int64s
    charges: Floats
    bought: Bools
    rows: Words
    packed: Int64s
    leaf_of: Int32s
    hist: Int64s
    free_slots: Int64s
    leaves: Records
    totals: Int64s
    candidates: Records
    left_totals: Int64s
    splits: Records
    tree: Records
    sets: Words


def make_workspace(
    table: BinnedTable,
    group_of: Int64s,
    order: Int64s,
    n_groups: int,
    limits: Limits,
    lanes: Lanes,
) -> Workspace:
    """Allocate for trees within ``limits`` over ``table``."""
    n, p, max_leaves, n_lanes = table.n_rows, table.n_codes, limits.max_leaves, lanes.n_lanes
    width = (int(table.thresholds.n_bins.max()) + 1) * n_lanes
    # Only leaves that may have grandchildren keep their histogram for subtraction.
    wanted = min(2 ** max(limits.max_depth - 2, 0), max_leaves)
    leaf_bytes = max_leaves * p * (CANDIDATE.itemsize + 8 * n_lanes)
    n_slots = 2 + max(1, min(wanted, (HISTOGRAM_BYTES - leaf_bytes) // (8 * p * width)))
    features = np.zeros(p, FEATURE)
    features["n_bins"], features["group"], features["place"] = table.thresholds.n_bins, group_of, -1
    has_levels = table.categories is not None
    if table.categories is not None:  # no threshold is looked for among levels
        features["n_bins"][table.categories.is_set] = 0
    by_columns = has_levels or table.n_bytes <= COLUMN_BYTES
    codes = table.columns if by_columns else table.padded
    if has_levels:  # a further column, for the rows of a leaf that a set sends left
        codes = np.vstack([codes, np.zeros((1, n), np.uint8)])
    return Workspace(
        limits=limits,
        lanes=lanes,
        units=np.ones((len(lanes.fields) - 1, 2)),
        words=table.words.reshape(-1),
        free_words=free_copy(n, 0),
        # Eight numbers more than a tile: at a stride of a whole page, words of a row would evict each other.
        tile=np.empty((-(-p // WORD), TILE + 8), np.uint64),
        codes=codes.reshape(-1),
        column_step=n if by_columns else 1,
        row_step=1 if by_columns else table.padded.shape[1],
        features=features,
        places=np.stack([np.arange(p), np.zeros(p, np.int64)]),
        order=order,
        charges=np.zeros(p),
        bought=np.zeros(n_groups, bool),
        rows=np.empty((2, n), np.uint64),
        packed=np.empty((2, n * n_lanes), np.int64),
        leaf_of=np.zeros(n, np.int32),
        hist=np.empty((n_slots, p, width), np.int64),
        free_slots=np.zeros(n_slots, np.int64),
        leaves=np.zeros(max_leaves, LEAF),
        totals=np.zeros((max_leaves, n_lanes), np.int64),
        candidates=np.zeros((max_leaves, p), CANDIDATE),
        left_totals=np.zeros((max_leaves, p, n_lanes), np.int64),
        splits=np.zeros(max_leaves, SPLIT),
        tree=np.zeros(1, TREE),
        sets=np.zeros((max_leaves if has_levels else 0, p + 1, 4), np.uint64),
    )


def fit_free_copy(ws: Workspace) -> Workspace:
    """Empty the copy of free columns if prices changed; enlarge it, up to a quarter of the table, to hold them all."""
    tree = ws.tree[0]
    n_free, max_free = int((ws.charges == 0.0).sum()), max(8, len(ws.charges) // 4)
    tree["copy_is_used"] = ws.limits.skip_hopeless and n_free <= max_free
    is_small = 8 * len(ws.free_words) // ws.rows.shape[1] < min(n_free + 4, max_free)
    is_stale = np.any(ws.charges[ws.places[1, : tree["n_free"]]] > 0.0)
    if not tree["copy_is_used"] or is_small or is_stale:
        tree["n_free"] = 0
        ws.features["place"] = -1
    if tree["copy_is_used"] and is_small:
        ws = ws._replace(free_words=free_copy(ws.rows.shape[1], min(2 * n_free + 8, max_free)))
    return ws


def free_copy(n_rows: int, n_columns: int) -> Words:
    """Room for a copy of ``n_columns`` columns."""
    return np.zeros(n_rows * max(1, -(-n_columns // WORD)), np.uint64)
