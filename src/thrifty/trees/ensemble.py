"""Grown trees as flat arrays: what serves, and what is saved.

The score of a row is the sum, over trees, of the value of the leaf it reaches; there is no other state. Nodes and
leaves of all trees lie one after the other, children are absolute, and a child comes after its parent, so the
first ``k`` trees are the first parts of the same arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s
from thrifty.errors import InvalidInputError
from thrifty.trees.binning import BinnedTable
from thrifty.trees.categories import LevelSets
from thrifty.trees.level_walks import add_from_coded_levels, walk_levels
from thrifty.trees.traversal import (
    SIDE_BY_SIDE,
    Walk,
    add_from_codes,
    add_from_values,
    find_leaves,
    mark_touched,
    score_row,
)

__all__ = ["TreeEnsemble"]

_NOTHING = np.empty((0, 0))


@dataclass(frozen=True)
class TreeEnsemble:
    """Trees over one set of columns, each leaf with one value per output.

    Attributes
    ----------
    n_features : int
        Columns of the tables it reads.
    feature : ndarray of shape (n_nodes,), int32
        Column each node looks at.
    threshold : ndarray of shape (n_nodes,)
        A number at most this goes left; infinity lets every number go left.
    last_left : ndarray of shape (n_nodes,), uint8
        A code at most this goes left: the question that ``threshold`` asks, on binned tables.
    missing_left : ndarray of shape (n_nodes,), bool
        Whether a missing value goes left.
    children : ndarray of shape (n_nodes, 2), int32
        Left and right: a node if >= 0, else leaf ``~child``.
    values : ndarray of shape (n_leaves, n_outputs)
        What a leaf adds to the score.
    node_offsets, leaf_offsets : ndarray of shape (n_trees + 1,), int32
        Where each tree's nodes and leaves begin.
    sets : LevelSets, optional
        Sets of levels that some nodes send left, in the place of a threshold; None where all compare numbers.
    """

    n_features: int
    feature: Int32s
    threshold: Floats
    last_left: NDArray[np.uint8]
    missing_left: Bools
    children: Int32s
    values: Floats
    node_offsets: Int32s
    leaf_offsets: Int32s
    sets: LevelSets | None = None

    @cached_property
    def roots(self) -> Int32s:
        """First node of each tree, or ``~leaf`` of a tree without splits, shape (n_trees,)."""
        nodes, leaves = self.node_offsets, self.leaf_offsets
        return np.where(nodes[1:] > nodes[:-1], nodes[:-1], ~leaves[:-1])

    @cached_property
    def _walk(self) -> Walk:
        return Walk(self.roots, self.feature, self.threshold, self.missing_left, self.children)

    @cached_property
    def _set_of(self) -> Int32s:
        n_nodes = len(self.feature)
        return np.full(n_nodes, -1, np.int32) if self.sets is None else self.sets.of_node(n_nodes)

    @classmethod
    def empty(cls, n_features: int, n_outputs: int = 1) -> "TreeEnsemble":
        """Ensemble of no trees: every score is zero."""
        return cls(
            n_features,
            np.empty(0, np.int32),
            np.empty(0),
            np.empty(0, np.uint8),
            np.empty(0, bool),
            np.empty((0, 2), np.int32),
            np.empty((0, n_outputs)),
            np.zeros(1, np.int32),
            np.zeros(1, np.int32),
        )

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.node_offsets) - 1

    @property
    def n_outputs(self) -> int:
        """Scores per row."""
        return int(self.values.shape[1])

    @property
    def n_bytes(self) -> int:
        """Memory of what prediction on raw numbers needs; ``last_left`` only serves training."""
        arrays = (*self._walk, self.values)
        return sum(array.nbytes for array in arrays)

    @property
    def features_used(self) -> Bools:
        """Columns that any row could be asked for, shape (n_features,)."""
        used = np.zeros(self.n_features, bool)
        used[self.feature] = True
        return used

    def predict(self, X: Any, start: float = 0.0) -> Floats:
        """Scores of shape (n_rows, n_outputs), the leaf values added to ``start``; NaN means missing."""
        X = self._check(X)
        out = np.full((len(X), self.n_outputs), start)
        if self.sets is not None:
            self._walk_levels(X, out=out)
            return out
        nodes = np.empty(SIDE_BY_SIDE, np.int32)
        add_from_values(X, self._walk, self.values, nodes, out)
        return out

    def predict_one(self, row: Any) -> Floats:
        """Scores of shape (n_outputs,) of one row of raw numbers, in microseconds."""
        X = np.asarray(row).reshape(1, -1)
        if X.shape[1] != self.n_features or X.dtype.kind != "f":
            X = self._check(X)
        if self.sets is not None:
            one: Floats = self.predict(X)[0]
            return one
        scores: Floats = score_row(X, self._walk, self.values)
        return scores

    def predict_binned(self, table: BinnedTable, out: Floats | None = None) -> Floats:
        """Scores from a table coded by the binner the trees were grown on, added to ``out`` if given."""
        if out is None:
            out = np.zeros((table.n_rows, self.n_outputs))
        if table.categories is not None:
            place, bits = table.categories.coded(self.sets, self.feature)
            add_from_coded_levels(
                table.padded,
                self._walk,
                self._set_of,
                place,
                bits,
                self.last_left,
                table.thresholds.n_bins,
                self.values,
                out,
            )
            return out
        add_from_codes(table.padded, self._walk, self.last_left, table.thresholds.n_bins, self.values, out)
        return out

    def apply(self, X: Any) -> Int32s:
        """Leaf of every row in every tree, shape (n_rows, n_trees), numbered over all trees."""
        X = self._check(X)
        leaves = np.empty((len(X), self.n_trees), np.int32)
        if self.sets is not None:
            self._walk_levels(X, leaves=leaves)
            return leaves
        find_leaves(X, self._walk, leaves)
        return leaves

    def touched(self, X: Any) -> Bools:
        """Columns each row is really asked for on its way down, shape (n_rows, n_features)."""
        X = self._check(X)
        touched = np.zeros((len(X), self.n_features), bool)
        if self.sets is not None:
            self._walk_levels(X, touched=touched)
            return touched
        mark_touched(X, self._walk, touched)
        return touched

    def first(self, n_trees: int) -> "TreeEnsemble":
        """Ensemble of the first ``n_trees`` trees."""
        if not 0 <= n_trees <= self.n_trees:
            raise InvalidInputError(
                f"n_trees must lie in [0, {self.n_trees}]; got {n_trees!r}. This ensemble has {self.n_trees} trees."
            )
        nodes, leaves = self.node_offsets[n_trees], self.leaf_offsets[n_trees]
        return TreeEnsemble(
            self.n_features,
            self.feature[:nodes],
            self.threshold[:nodes],
            self.last_left[:nodes],
            self.missing_left[:nodes],
            self.children[:nodes],
            self.values[:leaves],
            self.node_offsets[: n_trees + 1],
            self.leaf_offsets[: n_trees + 1],
            None if self.sets is None else self.sets.between(0, nodes),
        )

    def over_columns(self, columns: NDArray[np.intp]) -> "TreeEnsemble":
        """Renumber the splits for a table that holds only ``columns``, which include all they look at."""
        position = np.full(self.n_features, -1, dtype=np.int32)
        position[columns] = np.arange(len(columns), dtype=np.int32)
        return replace(self, n_features=len(columns), feature=position[self.feature])

    @classmethod
    def concatenate(cls, parts: "Sequence[TreeEnsemble]") -> "TreeEnsemble":
        """One ensemble of the trees of all ``parts``, in order."""
        if not parts:
            raise InvalidInputError(
                "parts must hold at least one ensemble; got none. Use TreeEnsemble.empty."
            )
        shapes = {(part.n_features, part.n_outputs) for part in parts}
        if len(shapes) > 1:
            raise InvalidInputError(
                f"parts must agree in (n_features, n_outputs); got {sorted(shapes)}. "
                "Concatenate trees grown on one table for the same outputs."
            )
        nodes = np.cumsum([0] + [len(part.feature) for part in parts])
        leaves = np.cumsum([0] + [len(part.values) for part in parts])
        children = [
            np.where(part.children >= 0, part.children + node, part.children - leaf)
            for part, node, leaf in zip(parts, nodes, leaves, strict=False)
        ]
        return cls(
            parts[0].n_features,
            np.concatenate([part.feature for part in parts]),
            np.concatenate([part.threshold for part in parts]),
            np.concatenate([part.last_left for part in parts]),
            np.concatenate([part.missing_left for part in parts]),
            np.concatenate(children).astype(np.int32),
            np.concatenate([part.values for part in parts]),
            join_offsets([part.node_offsets for part in parts]),
            join_offsets([part.leaf_offsets for part in parts]),
            LevelSets.concatenate([part.sets for part in parts], nodes.tolist()),
        )

    def validate(self) -> "TreeEnsemble":
        """Refuse arrays that are not trees: out of range, cyclic, shared or unreachable parts. Returns itself."""
        problem = find_problem(self)
        if problem:
            raise InvalidInputError(
                f"A tree ensemble must be made of proper trees; {problem}. The arrays are damaged."
            )
        return self

    def _walk_levels(
        self, X: Any, out: Floats = _NOTHING, leaves: Any = _NOTHING, touched: Any = _NOTHING
    ) -> None:
        """Send rows down trees that ask for sets, and write what is asked for."""
        assert self.sets is not None
        walk_levels(
            X,
            self._walk,
            self._set_of,
            self.sets.offsets,
            self.sets.levels,
            self.values,
            out,
            leaves.astype(np.int32) if leaves is _NOTHING else leaves,
            touched.astype(bool) if touched is _NOTHING else touched,
        )

    def _check(self, X: Any) -> NDArray[Any]:
        X = np.asarray(X)
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise InvalidInputError(
                f"X must have shape (n_rows, {self.n_features}); got {X.shape}. "
                "Pass the columns the trees were grown on, in the same order."
            )
        return np.ascontiguousarray(X)


def join_offsets(parts: Sequence[Int32s]) -> Int32s:
    """Offsets of sequences laid one after the other."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))]).astype(
        np.int32
    )


def find_problem(ensemble: TreeEnsemble) -> str | None:
    """First reason why the arrays are not trees, or None."""
    n_nodes, n_leaves = len(ensemble.feature), len(ensemble.values)
    lengths = {
        len(ensemble.threshold),
        len(ensemble.last_left),
        len(ensemble.missing_left),
        len(ensemble.children),
    }
    if lengths != {n_nodes} or ensemble.children.shape != (n_nodes, 2) or ensemble.values.ndim != 2:
        return "node arrays differ in length"
    nodes, leaves = ensemble.node_offsets, ensemble.leaf_offsets
    if len(nodes) != len(leaves) or not len(nodes) or nodes[0] != 0 or leaves[0] != 0:
        return "tree offsets do not start at zero or differ in length"
    if nodes[-1] != n_nodes or leaves[-1] != n_leaves or np.any(np.diff(leaves) != np.diff(nodes) + 1):
        return "a tree of s splits must have s + 1 leaves and offsets must end at the last"
    if np.any(np.diff(nodes) < 0):
        return "tree offsets decrease"
    if np.any((ensemble.feature < 0) | (ensemble.feature >= ensemble.n_features)):
        return f"a node looks at a column outside 0 .. {ensemble.n_features - 1}"
    if np.any(np.isnan(ensemble.threshold)) or not np.all(np.isfinite(ensemble.values)):
        return "a threshold is missing or a leaf value is not finite"
    if ensemble.sets is not None and ensemble.sets.problem(n_nodes) is not None:
        return ensemble.sets.problem(n_nodes)
    return find_child_problem(ensemble)


def find_child_problem(ensemble: TreeEnsemble) -> str | None:
    """First reason why the children do not form trees, or None."""
    tree = np.repeat(np.arange(ensemble.n_trees), np.diff(ensemble.node_offsets))[:, None]
    child = ensemble.children.astype(np.int64)
    is_node = child >= 0
    own = np.arange(len(child))[:, None]
    # A child after its parent rules out cycles; each part met exactly once makes it a tree.
    if np.any(is_node & ((child <= own) | (child >= ensemble.node_offsets[tree + 1]))):
        return "a child node does not come after its parent in the same tree"
    if np.any(
        ~is_node & ((~child < ensemble.leaf_offsets[tree]) | (~child >= ensemble.leaf_offsets[tree + 1]))
    ):
        return "a leaf lies outside its tree"
    met = np.bincount(child[is_node], minlength=len(child))
    roots = ensemble.node_offsets[:-1][np.diff(ensemble.node_offsets) > 0]
    met[roots] += 1
    met_leaves = np.bincount(~child[~is_node], minlength=len(ensemble.values))
    met_leaves[ensemble.leaf_offsets[:-1][np.diff(ensemble.node_offsets) == 0]] += 1
    if np.any(met != 1) or np.any(met_leaves != 1):
        return "a node or leaf has no parent or several"
    return None
