"""Binning: columns of numbers become columns of one-byte codes, on which trees are grown.

A column becomes at most 255 bins of values and one bin for missing values. Bin ``b`` holds the
values in ``(thresholds[b - 1], thresholds[b]]``, so "code <= b" and "value <= thresholds[b]" are the
same question, and a tree grown on bins predicts the same from raw numbers and from bins. A column
with few distinct values gets one bin each, with thresholds half-way; otherwise bins hold about
equally many rows. Fit once: every fit of a sweep may share the table, from any thread.

*Levels.* A level is the number of a category, from zero; the numbers have no order. A column of up to 253
levels is one column of bytes. One of more is several, which are bought together: each holds some of the levels, the
frequent ones first, and one code for all others. Where there are so many, levels of fewer than five rows have no code
of their own. A node that looks at such a column sends a set of levels left and all other levels right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int32s, Ints, Words
from thrifty.errors import InvalidInputError
from thrifty.jit import Number, lean_kernel
from thrifty.rows import mix

MAX_BINS = 255
WORD = 8  # codes are read eight at a time, so rows are padded to whole words

MANY_BINS = 200  # from which on a column is taken for one of numbers, not of codes

NEAR = 2**14  # cells hashed at once
ONE = np.uint64(1)


@dataclass(frozen=True)
class Thresholds:
    """Upper ends of the bins of every column.

    Attributes
    ----------
    values : ndarray
        Upper ends of all bins but the last of each column, ascending, columns one after the other.
    offsets : ndarray of shape (n_features + 1,)
        ``values[offsets[f]:offsets[f + 1]]`` belongs to column ``f``.
    """

    values: Floats
    offsets: NDArray[np.int64]

    @property
    def n_bins(self) -> NDArray[np.int64]:
        """Bins of values per column, missing not counted; also the code of a missing value."""
        return np.diff(self.offsets) + 1

    def of(self, feature: int) -> Floats:
        """Thresholds of one column."""
        return self.values[self.offsets[feature] : self.offsets[feature + 1]]

    @cached_property
    def hashes(self) -> Words:
        """Hash of the thresholds of each column."""
        ends = (self.of(f).tobytes() for f in range(len(self.offsets) - 1))
        return np.array([hash_bytes(one) for one in ends], dtype=np.uint64)

    def take(self, features: Ints) -> "Thresholds":
        """Thresholds of some columns, whose hashes are not computed again."""
        ends = [self.of(int(feature)) for feature in features]
        offsets = np.cumsum([0] + [len(values) for values in ends]).astype(np.int64)
        taken = Thresholds(np.concatenate([np.empty(0), *ends]), offsets)
        vars(taken)["hashes"] = self.hashes[features]
        return taken


@dataclass(frozen=True)
class BinnedTable:
    """Rows of one-byte codes, and what the codes mean.

    Attributes
    ----------
    padded : ndarray of shape (n_rows, n_padded), uint8
        Row-major codes; columns past ``n_features`` only fill the last word of a row.
    thresholds : Thresholds
        Shared by every table of one binner.
    categories : Categories, optional
        Which columns of bytes belong to which column; None where all hold numbers, and are one column of bytes each.
    """

    padded: NDArray[np.uint8]
    thresholds: Thresholds
    categories: "Categories | None" = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.padded)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.n_codes if self.categories is None else int(self.categories.feature_of[-1]) + 1

    @property
    def n_codes(self) -> int:
        """Number of columns of bytes: several for a column of many levels, else one."""
        return len(self.thresholds.offsets) - 1

    def places(self, columns: Ints) -> Ints:
        """Columns of bytes of some columns, in their order."""
        if self.categories is None:
            return columns
        owner = self.categories.feature_of
        return np.concatenate([np.empty(0, np.intp), *(np.flatnonzero(owner == one) for one in columns)])

    @property
    def codes(self) -> NDArray[np.uint8]:
        """Codes of shape (n_rows, n_codes), a view."""
        return self.padded[:, : self.n_codes]

    @property
    def words(self) -> NDArray[np.uint64]:
        """Codes read eight to a number, a view of ``padded``, shape (n_rows, n_padded / 8)."""
        return self.padded.view(np.uint64)

    @property
    def n_bytes(self) -> int:
        """Memory held by the codes."""
        return int(self.padded.nbytes)

    @cached_property
    def column_keys(self) -> NDArray[np.uint64]:
        """A number per column that depends on its contents, not on its place nor on the order or number of rows.

        Used to break exact ties between columns, so that permuting columns or rows, or giving a row twice in
        place of weighting it by two, changes no tree. Only columns that no content can tell apart share a key.
        """
        salts = self.thresholds.hashes
        # Which rows are equal is asked with salts that differ from place to place: with equal salts, two rows
        # that hold the same codes in other columns would look alike.
        places = mix(np.arange(1, self.n_codes + 1, dtype=np.uint64))
        _, distinct = np.unique(row_identities(self.codes, salts ^ places), return_index=True)
        codes = self.codes[distinct]
        return column_keys(codes, salts, row_identities(codes, salts))

    @cached_property
    def columns(self) -> NDArray[np.uint8]:
        """Codes kept one column after the other, shape (n_codes, n_rows); made when first asked for."""
        return np.ascontiguousarray(self.codes.T)

    @cached_property
    def narrowed(self) -> "dict[bytes, BinnedTable]":
        """Tables of some of the columns, by these."""
        return {}

    def with_merged_bins(self, max_bins: int) -> "BinnedTable":
        """Table of the same rows with at most ``max_bins`` bins for each column of numbers that has very many.

        Columns of fewer distinct values keep a bin for each, as these may be codes.
        """
        n_bins, padded, ends = self.thresholds.n_bins, self.padded.copy(), []
        is_many = n_bins > max(max_bins, MANY_BINS)
        if self.categories is not None:
            is_many &= ~self.categories.is_set
        if not is_many.any():
            return self
        for place, n in enumerate(n_bins.tolist()):
            own = self.thresholds.of(place)
            if is_many[place]:
                merged = np.append(np.arange(n) * max_bins // n, max_bins).astype(np.uint8)
                padded[:, place] = merged[padded[:, place]]
                own = own[np.flatnonzero(np.diff(merged[:-1]))]
            ends.append(own)
        offsets = np.cumsum([0] + [len(one) for one in ends]).astype(np.int64)
        return replace(
            self, padded=padded, thresholds=Thresholds(np.concatenate([np.empty(0), *ends]), offsets)
        )

    def take(self, rows: NDArray[Any]) -> "BinnedTable":
        """Table of some rows (indices or a mask), with the same bins."""
        return replace(self, padded=np.ascontiguousarray(self.padded[rows]))


def bin_columns(
    X: NDArray[Any], weight: Floats | None = None, categorical: Sequence[int] = (), max_bins: int = MAX_BINS
) -> BinnedTable:
    """Choose the bins of every column, and code the rows.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Finite numbers; NaN means missing.
    weight : ndarray of shape (n_rows,), optional
        A row of weight 2 counts as that row given twice.
    categorical : sequence of int
        Columns that hold levels, whole numbers from zero without an order.
    max_bins : int, default=255
        Most bins of values per column, between 2 and 255; missing values have one more.
    """
    if not 2 <= max_bins <= MAX_BINS:
        raise InvalidInputError(
            f"max_bins must lie in [2, {MAX_BINS}]; got {max_bins!r}. "
            "A code is one byte and one code is kept for missing values."
        )
    of_levels = weight  # which have a code of their own where they have enough rows: two of them are not one
    if weight is not None and np.all(weight == weight[0]):
        weight = None  # rows that count alike are counted, which is exact
    columns, feature_of, levels = [], [], []
    for f in range(X.shape[1]):
        parts: list[Any] = own_levels(X[:, f], of_levels) if f in categorical else [None]
        for part in parts:
            columns.append(find_thresholds(X[:, f], max_bins, weight) if part is None else part + 0.5)
            feature_of.append(f)
            levels.append(part)
    categories = Categories(np.array(feature_of), tuple(levels)) if len(categorical) else None
    offsets = np.cumsum([0] + [len(column) for column in columns]).astype(np.int64)
    thresholds = Thresholds(np.concatenate([np.empty(0), *columns]), offsets)
    padded = np.zeros((len(X), -(-len(columns) // WORD) * WORD), dtype=np.uint8)
    encode(X, thresholds, categories, padded)
    return BinnedTable(padded, thresholds, categories)


def find_thresholds(column: NDArray[Any], max_bins: int, weight: Floats | None = None) -> Floats:
    """Upper ends of the bins of one column, all but the last.

    One bin per distinct value when they are few. Otherwise a value frequent enough to fill a bin
    has one of its own and the others share the bins left in about equal numbers of rows.
    """
    ordered = np.sort(np.asarray(column, np.float64))
    ordered = ordered[: np.searchsorted(ordered, np.nan)]  # missing values come last
    stops = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(ordered))[: len(ordered)]
    distinct, counts = ordered[stops - 1], np.diff(stops, prepend=0)
    if weight is not None:
        is_there = ~np.isnan(column)
        counts = np.bincount(np.searchsorted(distinct, column[is_there]), weight[is_there])
    few = len(distinct) <= max_bins
    ends = np.arange(len(distinct) - 1) if few else quantile_ends(counts, max_bins)
    low, high = distinct[ends], distinct[ends + 1]
    middle = low / 2 + high / 2
    # Neighbouring floats have no number between them: the middle rounds to one of the two.
    return np.where((middle >= low) & (middle < high), middle, low)


def quantile_ends(counts: NDArray[Any], max_bins: int) -> NDArray[Any]:
    """Positions of the distinct values that end a bin, all but the last bin."""
    frequent = np.flatnonzero(counts >= counts.sum() / max_bins)
    # Each stretch between frequent values may leave one bin part-filled.
    n_shared = max_bins - 2 * len(frequent) - 1
    if len(frequent) == 0 or n_shared < 1:
        frequent, n_shared = frequent[:0], max_bins
    ends_bin = np.zeros(len(counts), dtype=bool)
    ends_bin[frequent] = True
    rest, stretch = np.flatnonzero(~ends_bin), np.cumsum(ends_bin)[~ends_bin]
    if len(rest):
        total, is_first = np.cumsum(counts[rest]), np.diff(stretch, prepend=-1) > 0
        first, last = np.flatnonzero(is_first), np.append(np.flatnonzero(is_first)[1:], len(rest)) - 1
        before = (total - counts[rest])[first]
        n_rows, own = total[last] - before, np.cumsum(is_first) - 1
        n_bins = np.maximum((n_rows / (total[-1] / n_shared) + 1e-9).astype(np.intp), 1)
        # The number of bins that are full with each value; the first with which a bin is full ends it.
        n_full = ((total - before[own]) * (n_bins / n_rows)[own] + 1e-9).astype(np.intp)
        ends_bin[rest] = n_full > np.where(is_first, 0, np.append(0, n_full[:-1]))
        ends_bin[rest[last]] = True
    every = np.flatnonzero(ends_bin)
    return every[every < len(counts) - 1][: max_bins - 1]


@lru_cache(maxsize=1024)
def hash_bytes(content: bytes) -> int:
    """64-bit FNV hash of numbers, equal on every machine; every grower over the same bins asks for the same ones."""
    state = 0xCBF29CE484222325
    for word in np.frombuffer(content, dtype=np.uint64).tolist():
        state = ((state ^ word) * 0x100000001B3) % 2**64
    return state


def encode(
    values: NDArray[Any], thresholds: Thresholds, categories: "Categories | None", codes: NDArray[np.uint8]
) -> None:
    """Write, for every value, how many thresholds lie below it; a missing value gets the code after the last.

    A level gets its place among those of its column of bytes; a level of none of them, the code before the last.
    """
    ends = np.empty(MAX_BINS)
    for place, n_bins in enumerate(thresholds.n_bins.tolist()):
        f, levels = (
            (place, None) if categories is None else (categories.feature_of[place], categories.levels[place])
        )
        column = np.ascontiguousarray(values[:, f], np.float64)
        ends[: n_bins - 1], ends[n_bins - 1 :] = thresholds.of(place), np.inf
        write_codes(column, ends, n_bins, codes[:, place])
        if levels is not None:
            codes[~(np.isin(column, levels) | np.isnan(column)), place] = n_bins - 1


@lean_kernel
def write_codes(column: Floats, ends: Floats, n_bins: Number, codes: NDArray[np.uint8]) -> None:
    """Write how many of 255 ``ends`` lie below each value, without a branch; ``n_bins`` where it is missing."""
    for i in range(len(column)):
        below = np.uint64(0)
        for half in (128, 64, 32, 16, 8, 4, 2, 1):
            below += np.uint64(half) * np.uint64(ends[below + np.uint64(half - 1)] < column[i])
        codes[i] = below if column[i] == column[i] else n_bins


def row_identities(codes: NDArray[np.uint8], salts: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash of every row; a sum, so that no order of columns matters."""
    identities = np.empty(len(codes), np.uint64)
    for block in blocks(codes.shape):
        identities[block] = mix(salts ^ (codes[block] + ONE)).sum(axis=1)
    return identities


def column_keys(
    codes: NDArray[np.uint8], salts: NDArray[np.uint64], identities: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Hash of every column in the light of the rows; a sum, so that their order does not matter."""
    keys, of_code = salts.copy(), mix(np.arange(1, 257, dtype=np.uint64))
    for block in blocks(codes.shape):
        keys += mix(identities[block, None] ^ of_code[codes[block]]).sum(axis=0)
    return keys


def blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Stretches of rows whose hashes stay in a near cache."""
    step = max(1, NEAR // shape[1])
    return (slice(start, start + step) for start in range(0, shape[0], step))


# -- levels ----------------------------------------------------------------------------------------


MAX_LEVELS = 253  # two codes of a byte are for other levels and for missing values
MIN_ROWS = 5  # of a level with a code of its own, where there are more levels than codes
LEVEL_SET = 255
"""Marks a node that splits by a set of levels, instead of the last bin that goes left; never a number of a bin."""


@dataclass(frozen=True)
class Categories:
    """Layout of columns of levels in columns of bytes.

    Attributes
    ----------
    feature_of : ndarray of shape (n_codes,)
        Column of the table that each column of bytes belongs to.
    levels : tuple of ndarray or None, one for each column of bytes
        Level of each code, rising; None where the column holds numbers.
    """

    feature_of: Ints
    levels: tuple[Ints | None, ...]

    @property
    def is_set(self) -> NDArray[np.bool_]:
        """Columns of bytes that hold levels."""
        return np.array([levels is not None for levels in self.levels])

    def narrow(self, places: Ints, columns: Ints) -> "Categories":
        """Layout of a table of some columns, whose bytes are at ``places``."""
        position = {int(column): number for number, column in enumerate(columns)}
        feature_of = np.array([position[int(self.feature_of[place])] for place in places], np.intp)
        return Categories(feature_of, tuple(self.levels[place] for place in places))

    def with_numbers(self, n_columns: int) -> "Categories":
        """Layout of a table with so many further columns of numbers."""
        last = self.feature_of[-1] + 1 + np.arange(n_columns)
        return Categories(np.r_[self.feature_of, last], (*self.levels, *[None] * n_columns))

    @cached_property
    def _known(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Column of bytes and code of every level, by column of the table and level."""
        return {
            (int(self.feature_of[place]), level): (place, code)
            for place, levels in enumerate(self.levels)
            if levels is not None
            for code, level in enumerate(levels.tolist())
        }

    def coded(self, sets: "LevelSets | None", feature: Int32s) -> tuple[Int32s, Words]:
        """For nodes that look at these columns: their columns of bytes, and the codes that go left as 256 bits."""
        first = np.zeros(int(self.feature_of[-1]) + 1, np.int32)
        first[self.feature_of[::-1]] = np.arange(len(self.feature_of))[::-1]
        place, bits = first[feature], np.zeros((len(feature), 4), np.uint64)
        if sets is None:
            return place, bits
        starts = sets.offsets.tolist()
        for number, node in enumerate(sets.nodes.tolist()):
            column = int(feature[node])
            for level in sets.levels[starts[number] : starts[number + 1]].tolist():
                place[node], code = self._known[column, level]
                bits[node, code >> 6] |= np.uint64(1) << np.uint64(code & 63)
        return place, bits


def own_levels(column: Floats, weight: Floats | None) -> list[Ints]:
    """Levels of each column of bytes that a column of levels becomes."""
    there = ~np.isnan(column)
    weights = None if weight is None else weight[there]
    count = np.bincount(column[there].astype(np.intp), weights=weights)
    levels = np.flatnonzero(count)
    if len(levels) > MAX_LEVELS:
        levels = levels[np.argsort(-count[levels], kind="stable")]
        n_own = max(MAX_LEVELS, int((count >= MIN_ROWS).sum()))
        levels = levels[:n_own]
    parts = range(0, max(len(levels), 1), MAX_LEVELS)
    return [np.sort(levels[start : start + MAX_LEVELS]) for start in parts]


@dataclass(frozen=True)
class LevelSets:
    """Sets of levels that nodes send left.

    Attributes
    ----------
    nodes : ndarray of shape (n_sets,), int32
        Nodes that ask for a set, rising.
    offsets : ndarray of shape (n_sets + 1,), int32
        ``levels[offsets[s]:offsets[s + 1]]`` is the set of ``nodes[s]``.
    levels : ndarray, int32
        Levels, rising within a set.
    """

    nodes: Int32s
    offsets: Int32s
    levels: Int32s

    @classmethod
    def of(cls, nodes: Ints, sets: Sequence[Ints]) -> "LevelSets | None":
        """Sets of some nodes; None where there are none."""
        if not len(nodes):
            return None
        offsets = np.cumsum([0] + [len(one) for one in sets])
        levels = np.concatenate([np.empty(0, np.int32), *sets])
        return cls(np.asarray(nodes, np.int32), offsets.astype(np.int32), levels.astype(np.int32))

    def between(self, first: int, end: int) -> "LevelSets | None":
        """Sets of the nodes from ``first`` to before ``end``, which count from zero there."""
        low, high = np.searchsorted(self.nodes, [first, end])
        if low == high:
            return None
        offsets = self.offsets[low : high + 1]
        return LevelSets(
            self.nodes[low:high] - np.int32(first),
            offsets - offsets[0],
            self.levels[offsets[0] : offsets[-1]],
        )

    @classmethod
    def concatenate(cls, parts: Sequence["LevelSets | None"], n_nodes: Sequence[int]) -> "LevelSets | None":
        """Sets of ensembles laid one after the other, where the nodes of each begin at ``n_nodes``."""
        some = [(part, start) for part, start in zip(parts, n_nodes, strict=False) if part is not None]
        if not some:
            return None
        lengths = np.concatenate([np.diff(part.offsets) for part, _ in some])
        return cls(
            np.concatenate([part.nodes + start for part, start in some]).astype(np.int32),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            np.concatenate([part.levels for part, _ in some]),
        )

    def of_node(self, n_nodes: int) -> Int32s:
        """Number of the set of each node, -1 where it compares numbers."""
        number = np.full(n_nodes, -1, np.int32)
        number[self.nodes] = np.arange(len(self.nodes))
        return number

    def problem(self, n_nodes: int) -> str | None:
        """First reason why these are not valid sets of ``n_nodes`` nodes, or None."""
        nodes, offsets = self.nodes.astype(np.int64), self.offsets.astype(np.int64)
        if len(offsets) != len(nodes) + 1 or offsets[0] != 0 or offsets[-1] != len(self.levels):
            return "sets of levels do not begin at zero and end at the last level"
        if np.any(np.diff(offsets) < 0) or np.any(np.diff(nodes) <= 0):
            return "sets of levels are not in the order of their nodes"
        if len(nodes) and (nodes[0] < 0 or nodes[-1] >= n_nodes):
            return "a set of levels belongs to no node"
        inside = np.ones(max(len(self.levels) - 1, 0), bool)
        inside[offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(self.levels))] - 1] = False
        if np.any(self.levels < 0) or np.any(np.diff(self.levels.astype(np.int64))[inside] <= 0):
            return "levels of a set do not rise from zero"
        return None
