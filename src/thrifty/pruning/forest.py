"""A random forest as flat arrays in which any split may become a leaf.

A forest answers with the mean over its trees of the class shares in the leaf that a row reaches. A *pruning* keeps, in
every tree, some splits, and with each of them all splits above it; a split that is cut becomes a leaf and answers
with the class shares of the training rows that came there. So every split needs an answer of its own, which an
ensemble that only predicts does not store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s
from thrifty.exceptions import InvalidInputError
from thrifty.trees import TreeEnsemble

__all__ = ["PrunableForest", "flatten_forest", "split_arrays"]


@dataclass(frozen=True)
class PrunableForest:
    """Trees, and what each of their splits would answer if it were a leaf.

    Attributes
    ----------
    trees : TreeEnsemble
        The forest as it was grown; leaf values are class shares.
    inner : ndarray of shape (n_splits, n_classes)
        Class shares of the training rows at every split.
    """

    trees: TreeEnsemble
    inner: Floats

    @property
    def n_splits(self) -> int:
        """Number of splits of all trees."""
        return len(self.inner)

    @cached_property
    def parents(self) -> Int32s:
        """The split above each split, -1 for a root; parents come before their children."""
        return parents_of(self.trees.children, self.n_splits)

    def pruned(self, kept: Bools) -> TreeEnsemble:
        """The trees with only the splits in ``kept``, which holds every split above one that it holds."""
        trees = self.trees
        if kept.shape != (self.n_splits,) or np.any(kept[1:] & ~_above(kept, self.parents)[1:]):
            raise InvalidInputError(
                f"kept must be a mask over the {self.n_splits} splits that holds every split above one it holds."
            )
        splits = np.flatnonzero(kept)
        number = np.cumsum(kept) - 1
        child = trees.children[splits]
        stays = (child >= 0) & kept[np.maximum(child, 0)]
        counts = np.add.reduceat(np.append(kept, False), trees.node_offsets[:-1]) * _has_splits(trees)
        node_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        leaf_offsets = (node_offsets + np.arange(trees.n_trees + 1)).astype(np.int32)
        # Leaves are numbered in the order of the slots they fill; a tree without splits is one leaf.
        slots = _slots(node_offsets, leaf_offsets, (~stays).sum(axis=1))
        leaf = slots[:, None] + np.column_stack([np.zeros(len(splits), np.int64), ~stays[:, 0]])
        values = np.empty((int(leaf_offsets[-1]), self.inner.shape[1]))
        values[leaf[~stays]] = self._answers(child[~stays])
        bare = np.flatnonzero(counts == 0)
        values[leaf_offsets[bare]] = self._answers(trees.roots[bare])
        return TreeEnsemble(
            trees.n_features,
            trees.feature[splits],
            trees.threshold[splits],
            trees.last_left[splits],
            trees.missing_left[splits],
            np.where(stays, number[np.maximum(child, 0)], ~leaf).astype(np.int32),
            values,
            node_offsets,
            leaf_offsets,
        )

    def _answers(self, nodes: Int32s) -> Floats:
        """What splits (>= 0) and leaves (``~leaf``) answer."""
        # A leaf is a negative number: counted from the end, leaves stand in reverse behind the splits.
        return np.concatenate([self.inner, self.trees.values[::-1]])[nodes]


def flatten_forest(trees: Sequence[Any], n_features: int) -> PrunableForest:
    """Fitted classification trees of scikit-learn as one forest.

    Parameters
    ----------
    trees : sequence of ``sklearn.tree._tree.Tree``
        The ``tree_`` of each fitted tree, of one output.
    n_features : int
        Columns of the table they were fitted on.
    """
    if not trees:
        raise InvalidInputError("a forest must have at least one tree; got none.")
    parts = [split_arrays(tree, n_features) for tree in trees]
    whole = TreeEnsemble.concatenate([part.trees for part in parts])
    return PrunableForest(whole.validate(), np.concatenate([part.inner for part in parts]))


def split_arrays(tree: Any, n_features: int) -> PrunableForest:
    """One tree of scikit-learn: splits and leaves apart, every number sent where scikit-learn sends it."""
    left, right = np.asarray(tree.children_left), np.asarray(tree.children_right)
    is_split = left >= 0
    number = np.where(is_split, np.cumsum(is_split) - 1, ~(np.cumsum(~is_split) - 1))
    shares = np.asarray(tree.value, dtype=np.float64)[:, 0, :]
    shares = shares / shares.sum(axis=1, keepdims=True)
    n_splits = int(is_split.sum())
    return PrunableForest(
        TreeEnsemble(
            n_features,
            np.asarray(tree.feature)[is_split].astype(np.int32),
            _on_doubles(np.asarray(tree.threshold)[is_split]),
            np.zeros(n_splits, np.uint8),
            np.asarray(tree.missing_go_to_left)[is_split].astype(bool),
            np.column_stack([number[left[is_split]], number[right[is_split]]]).astype(np.int32),
            shares[~is_split],
            np.array([0, n_splits], np.int32),
            np.array([0, n_splits + 1], np.int32),
        ),
        shares[is_split],
    )


def parents_of(children: Int32s, n_splits: int) -> Int32s:
    """The split above each split, -1 for a root."""
    parents = np.full(n_splits, -1, dtype=np.int32)
    for side in (0, 1):
        child = children[:, side]
        inside = np.flatnonzero(child >= 0)
        parents[child[inside]] = inside
    return parents


def _on_doubles(threshold: Floats) -> Floats:
    """The same question asked of doubles: scikit-learn rounds rows, but not thresholds, to single precision."""
    single = threshold.astype(np.float32)
    too_high = single > threshold
    single[too_high] = np.nextafter(single[too_high], np.float32(-np.inf))
    middle = (single.astype(np.float64) + np.nextafter(single, np.float32(np.inf))) / 2.0
    return np.where(middle.astype(np.float32) == single, middle, np.nextafter(middle, -np.inf))


def _above(kept: Bools, parents: Int32s) -> Bools:
    """Whether the split above each split is kept; there is nothing above a root that could be missing."""
    return (parents < 0) | kept[np.maximum(parents, 0)] if len(kept) else kept


def _has_splits(trees: TreeEnsemble) -> Bools:
    return np.diff(trees.node_offsets) > 0


def _slots(
    node_offsets: Int32s, leaf_offsets: Int32s, leaves_per_split: NDArray[np.intp]
) -> NDArray[np.int64]:
    """First leaf number below each kept split, counted within its tree."""
    before = np.concatenate([[0], np.cumsum(leaves_per_split)])
    tree = np.repeat(np.arange(len(node_offsets) - 1), np.diff(node_offsets))
    return np.asarray(leaf_offsets[tree] + before[:-1] - before[node_offsets[tree]], dtype=np.int64)
