"""Ensembles of trees as flat arrays, for prediction and for files.

The score of a row is the sum, over trees, of the value of the leaf it reaches; there is no other state. Nodes and
leaves of all trees follow one another, children are absolute, and a child comes after its parent, so the
first ``k`` trees are the first parts of the same arrays.

Rows walk down trees from raw numbers or from codes, in batches or alone. A child >= 0 is a node, a child < 0 is leaf
``~child``. A number goes left if it is at most the threshold; a missing one goes where the node says.

Sums over trees that compare numbers only, by far the most, are compiled apart from walks that may ask for sets of
levels.

In *level order* a tree's nodes are numbered from its root on, level by level and from left to right, and its leaves
likewise. Then the next child that is a node is always the next node, and a child takes one bit instead of a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s, Ints, Words
from thrifty.engine.trees.binning import BinnedTable, LevelSets
from thrifty.errors import InvalidInputError
from thrifty.jit import Number, lean, lean_kernel

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
        Sets of levels that some nodes send left, instead of a threshold; None where all compare numbers.
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
    def _walk(self) -> "NodeArrays":
        return NodeArrays(self.roots, self.feature, self.threshold, self.missing_left, self.children)

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

    def predict_binned(self, table: BinnedTable, out: Floats | None = None) -> Floats:
        """Scores from a table coded by the binner the trees were grown on, added to ``out`` if given."""
        if out is None:
            out = np.zeros((table.n_rows, self.n_outputs))
        place, bits = self.feature, np.empty((0, 4), np.uint64)
        if table.categories is not None:
            place, bits = table.categories.coded(self.sets, self.feature)
        missing_code, walk = table.thresholds.n_bins, self._walk
        add_from_codes(
            table.padded, walk, self._set_of, place, bits, self.last_left, missing_code, self.values, out
        )
        return out

    def apply(self, X: Any) -> Int32s:
        """Leaf of every row in every tree, shape (n_rows, n_trees), numbered over all trees."""
        X = self._check(X)
        leaves = np.empty((len(X), self.n_trees), np.int32)
        self._walk_levels(X, leaves=leaves)
        return leaves

    def touched(self, X: Any) -> Bools:
        """Mask of the columns that each row reads on its way down, shape (n_rows, n_features)."""
        X = self._check(X)
        touched = np.zeros((len(X), self.n_features), bool)
        self._walk_levels(X, touched=touched)
        return touched

    def first(self, n_trees: int) -> "TreeEnsemble":
        """Ensemble of the first ``n_trees`` trees."""
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
        """Send rows down trees that may ask for sets, and write what is asked for."""
        nothing = np.empty(0, np.int32)
        offsets, levels = (nothing, nothing) if self.sets is None else (self.sets.offsets, self.sets.levels)
        walk_levels(
            X,
            self._walk,
            self._set_of,
            offsets,
            levels,
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
    flat = ("feature", "threshold", "last_left", "missing_left", "node_offsets", "leaf_offsets")
    if any(getattr(ensemble, name).ndim != 1 for name in flat) or ensemble.values.ndim != 2:
        return "an array has the wrong number of dimensions"
    n_nodes, n_leaves = len(ensemble.feature), len(ensemble.values)
    lengths = {
        len(ensemble.threshold),
        len(ensemble.last_left),
        len(ensemble.missing_left),
        len(ensemble.children),
    }
    if lengths != {n_nodes} or ensemble.children.shape != (n_nodes, 2):
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
    nodes, leaves, child = ensemble.node_offsets, ensemble.leaf_offsets, ensemble.children
    n_splits = np.diff(nodes)
    end, first_leaf, leaf_end = (
        np.repeat(offsets, n_splits)[:, None] for offsets in (nodes[1:], leaves[:-1], leaves[1:])
    )
    is_leaf, own = child < 0, np.arange(len(child), dtype=child.dtype)[:, None]
    # A child after its parent rules out cycles; each part met exactly once makes it a tree.
    if np.any(((child <= own) | (child >= end)) > is_leaf):
        return "a child node does not come after its parent in the same tree"
    if np.any(((~child < first_leaf) | (~child >= leaf_end)) & is_leaf):
        return "a leaf lies outside its tree"
    n_leaves = len(ensemble.values)
    met = np.bincount(child.ravel() + n_leaves, minlength=n_leaves + len(child))
    met[n_leaves + nodes[:-1][n_splits > 0]] += 1
    met[n_leaves + ~leaves[:-1][n_splits == 0]] += 1
    if np.any(met != 1):
        return "a node or leaf has no parent or several"
    return None


class NodeArrays(NamedTuple):
    """Arrays that a row reads on its way down: roots per tree; the others per node.

    Compiled code takes it apart at once: passing it on would count references at every step.
    """

    roots: Int32s
    feature: Int32s
    threshold: Floats
    missing_left: NDArray[np.bool_]
    children: Int32s


# -- walks down trees ------------------------------------------------------------------------------


SIDE_BY_SIDE = 256  # rows that go down a tree together
BLOCK = 64  # rows whose numbers stay in the nearest cache while every tree looks at them


@lean_kernel
def add_from_values(X: Any, walk: NodeArrays, values: Floats, nodes: Int32s, out: Floats) -> None:
    """Add every tree's leaf values to ``out``, rows in blocks so that trees and rows stay in cache.

    The rows of a block, as many as there are ``nodes`` to note where they are, go down a tree side by side, a level at
    a time: their steps do not wait for each other, and the side to take is looked up instead of guessed.
    """
    roots, feature, threshold, missing_left, children = walk
    n_outputs = values.shape[1]
    for begin in range(0, len(X), len(nodes)):
        n_rows = len(nodes) if begin + len(nodes) < len(X) else len(X) - begin
        for root in roots:
            for i in range(n_rows):
                nodes[i] = root
            under_way = root >= 0
            while under_way:
                under_way = False
                for i in range(n_rows):
                    node = nodes[i]
                    if node >= 0:
                        value = X[begin + i, feature[node]]
                        goes_right = not value <= threshold[node]
                        if value != value and missing_left[node]:  # only NaN differs from itself
                            goes_right = False
                        node = children[node, np.int64(goes_right)]
                        nodes[i] = node
                        under_way |= node >= 0
            for i in range(n_rows):
                for k in range(n_outputs):
                    out[begin + i, k] += values[~nodes[i], k]


@lean_kernel
def add_from_codes(
    codes: NDArray[np.uint8],
    walk: NodeArrays,
    set_of: Int32s,
    place: Int32s,
    bits: Words,
    last_left: Any,
    missing_code: Any,
    values: Floats,
    out: Floats,
) -> None:
    """Add every tree's leaf values to ``out``, from binned rows; the code of a node is at ``place`` of a row."""
    roots, _, _, missing_left, children = walk
    n_outputs = values.shape[1]
    for begin in range(0, len(codes), BLOCK):
        end = begin + BLOCK if begin + BLOCK < len(codes) else len(codes)
        for root in roots:
            for i in range(begin, end):
                node = root
                while node >= 0:
                    at = place[node]
                    code = codes[i, at]
                    if code == missing_code[at]:
                        goes_left = missing_left[node]
                    elif set_of[node] < 0:
                        goes_left = code <= last_left[node]
                    else:
                        goes_left = (bits[node, code >> 6] >> np.uint64(code & 63)) & np.uint64(1) == 1
                    node = children[node, 0] if goes_left else children[node, 1]
                for k in range(n_outputs):
                    out[i, k] += values[~node, k]


@lean_kernel
def add_leaf_values(values: Floats, leaf_of_row: Int32s, scores: Any) -> None:
    """Add to the scores of each of their rows the values of its leaf."""
    if values.shape[1] == 1:
        only, score = values[:, 0], scores[:, 0]
        for i in range(len(score)):
            score[i] += only[np.uint64(leaf_of_row[i])]
        return
    for i in range(len(scores)):
        for k in range(values.shape[1]):
            scores[i, k] += values[leaf_of_row[i], k]


# -- walks with sets of levels ---------------------------------------------------------------------


@lean
def holds(levels: Int32s, first: Number, end: Number, level: Number) -> Number:
    """True if a level is among ``levels[first:end]``, which rise."""
    while first < end:
        middle = (first + end) // 2
        if levels[middle] == level:
            return True
        if levels[middle] < level:
            first = middle + 1
        else:
            end = middle
    return False


@lean_kernel
def walk_levels(
    X: Any,
    walk: NodeArrays,
    set_of: Int32s,
    offsets: Int32s,
    levels: Int32s,
    values: Floats,
    out: Floats,
    leaves: Int32s,
    touched: Bools,
) -> None:
    """Add leaf values to ``out``, note leaves and mark the columns met; arrays of no rows are left alone."""
    roots, feature, threshold, missing_left, children = walk
    for i in range(len(X)):
        for t in range(len(roots)):
            node = roots[t]
            while node >= 0:
                f = feature[node]
                value, number = X[i, f], set_of[node]
                if value != value:  # only NaN differs from itself
                    goes_left = missing_left[node]
                elif number < 0:
                    goes_left = value <= threshold[node]
                else:
                    goes_left = holds(levels, offsets[number], offsets[number + 1], np.int64(value))
                if len(touched):
                    touched[i, f] = True
                node = children[node, 0] if goes_left else children[node, 1]
            if len(leaves):
                leaves[i, t] = ~node
            if len(out):
                for k in range(values.shape[1]):
                    out[i, k] += values[~node, k]


# -- level order -----------------------------------------------------------------------------------


def children_of(is_leaf: Bools, node_offsets: Int32s) -> Int32s:
    """Children of nodes in level order, from which of them are leaves; both of shape (n_nodes, 2)."""
    n_splits = np.diff(node_offsets)
    # A tree without splits is one leaf, which is the child of no node.
    is_stump = n_splits == 0
    stumps: Int32s = np.repeat(np.cumsum(is_stump, dtype=np.int32) - is_stump, n_splits)[:, None]
    grown: Int32s = np.repeat(np.cumsum(~is_stump, dtype=np.int32), n_splits)[:, None]
    leaves_before: Int32s = np.cumsum(is_leaf, dtype=np.int32).reshape(is_leaf.shape) - is_leaf
    nodes_before: Int32s = np.arange(is_leaf.size, dtype=np.int32).reshape(is_leaf.shape) - leaves_before
    children: Int32s = np.where(is_leaf, ~(leaves_before + stumps), nodes_before + grown)
    return children


def in_level_order(trees: TreeEnsemble) -> TreeEnsemble:
    """The same trees with nodes and leaves counted level by level; trees that ask for sets stay as they are."""
    if trees.sets is not None:
        return trees
    order = _order(trees)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    child = trees.children[order]
    is_leaf = child < 0
    # Leaves, too, in the order in which their parents come; those of trees without splits keep their places.
    leaves = np.arange(len(trees.values))
    children = children_of(is_leaf, trees.node_offsets)
    leaves[~children[is_leaf]] = ~child[is_leaf]
    return replace(
        trees,
        feature=trees.feature[order],
        threshold=trees.threshold[order],
        last_left=trees.last_left[order],
        missing_left=trees.missing_left[order],
        children=children,
        values=trees.values[leaves],
    )


def _order(trees: TreeEnsemble) -> Ints:
    """Nodes of all trees, each tree's level by level."""
    tree = np.repeat(np.arange(trees.n_trees), np.diff(trees.node_offsets))
    level = trees.node_offsets[:-1][np.diff(trees.node_offsets) > 0].astype(np.int64)
    levels = []
    while len(level):
        levels.append(level)
        below = trees.children[level].ravel()
        level = below[below >= 0].astype(np.int64)
    nodes = np.concatenate([np.empty(0, np.int64), *levels])
    # Levels come one after the other, so a stable sort by tree keeps them in order.
    return nodes[np.argsort(tree[nodes], kind="stable")]
