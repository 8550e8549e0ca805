"""Columns of levels: how they become bytes, and the sets of levels that nodes ask for.

A level is a number from zero that stands for a category; the numbers have no order. A column of up to 253 levels is
one column of bytes. One of more is several, which are bought together: each holds some of the levels, the frequent
ones first, and one code for all others. Where there are so many, levels of fewer than five rows have no code of their
own. A node that looks at such a column sends a set of levels left and all other levels right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int32s, Ints, Words

__all__ = ["A_SET", "Categories", "LevelSets", "own_levels"]

MOST_LEVELS = 253  # two codes of a byte are for other levels and for missing values
FEWEST_ROWS = 5  # of a level with a code of its own, where there are more levels than codes
A_SET = 255
"""In the place of the last bin of the left child: a node asks for a set. No column has that many bins."""


@dataclass(frozen=True)
class Categories:
    """How the columns of a table are laid out in bytes.

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
    if len(levels) > MOST_LEVELS:
        levels = levels[np.argsort(-count[levels], kind="stable")]
        n_own = max(MOST_LEVELS, int((count >= FEWEST_ROWS).sum()))
        levels = levels[:n_own]
    parts = range(0, max(len(levels), 1), MOST_LEVELS)
    return [np.sort(levels[start : start + MOST_LEVELS]) for start in parts]


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
        """First reason why these are no sets of so many nodes, or None."""
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
