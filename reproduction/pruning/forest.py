"""A random forest in which any split may become a leaf: how it is grown, what is pruned, and what serves.

A forest answers with the mean over its trees of the class shares in the leaf that a row reaches. A *pruning* keeps, in
every tree, some splits, and with each of them all splits above it; a split that is cut becomes a leaf and answers
with the class shares of the training rows that came there. So every split needs an answer of its own, which an
ensemble that only predicts does not store.

A forest draws rows with repetition for every tree. Drawn from a generator, the draw depends on the order and on the
repetition of rows; drawn from the content of a row it does not: each tree counts a row 0, 1, 2, ... times with the
probabilities of Poisson(1), which is what drawing many rows with repetition comes to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import poisson
from sklearn.tree import DecisionTreeClassifier

from thrifty.arrays import Bools, Floats, Int32s, Int64s, Ints, Labels
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.trees import TreeEnsemble
from thrifty.errors import InvalidInputError
from thrifty.rows import uniforms

__all__ = ["GrownForest", "PrunableForest", "PrunedForest", "flatten_forest", "grow_forest"]

_CUMULATIVE = poisson.cdf(np.arange(20), 1.0)


@dataclass(frozen=True)
class GrownForest:
    """Trees of scikit-learn and the rows that each of them was not fitted on.

    Attributes
    ----------
    trees : list of ``sklearn.tree._tree.Tree``
        The ``tree_`` of each fitted tree.
    left_out : ndarray of shape (n_trees, n_rows), bool
        Rows that a tree has not seen.
    """

    trees: list[Any]
    left_out: Bools


def grow_forest(
    X: Any,
    code: Ints,
    weight: Floats,
    *,
    n_trees: int,
    max_depth: int | None = None,
    min_samples_leaf: int = 1,
    seed: int = 0,
    n_jobs: int | None = None,
) -> GrownForest:
    """Grow trees on draws of the rows, each split on the best of sqrt(n_features) columns drawn for it."""
    seeds = np.random.default_rng(seed).integers(2**31 - 1, size=n_trees)
    drawn = np.array([_draw(X, weight, int(number)) for number in seeds])

    def grow(number: int, count: Floats) -> Any:
        tree = DecisionTreeClassifier(
            max_features="sqrt", max_depth=max_depth, min_samples_leaf=min_samples_leaf, random_state=number
        )
        return tree.fit(X, code, sample_weight=count * weight).tree_

    trees = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(grow)(int(number), count) for number, count in zip(seeds, drawn, strict=True)
    )
    return GrownForest(trees, drawn == 0)


def _draw(X: Any, weight: Floats, seed: int) -> Floats:
    """How often a tree counts each row; a draw that leaves nothing takes everything."""
    count = np.searchsorted(_CUMULATIVE, uniforms(X, seed), side="right").astype(np.float64)
    return count if np.any(count * weight > 0) else np.ones(len(count))


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
        parents = np.full(self.n_splits, -1, dtype=np.int32)
        for child in self.trees.children.T:
            inside = np.flatnonzero(child >= 0)
            parents[child[inside]] = inside
        return parents

    def pruned(self, kept: Bools) -> TreeEnsemble:
        """Trees with only the splits in the mask ``kept``, which holds every split above one that it holds."""
        trees = self.trees
        if kept.shape != (self.n_splits,) or np.any(kept[1:] & ~_above(kept, self.parents)[1:]):
            raise InvalidInputError(
                f"kept must be a mask over the {self.n_splits} splits that holds every split above one it holds."
            )
        splits = np.flatnonzero(kept)
        number = np.cumsum(kept) - 1
        child = trees.children[splits]
        stays = (child >= 0) & kept[np.maximum(child, 0)]
        counts = np.add.reduceat(np.append(kept, False), trees.node_offsets[:-1])
        counts *= np.diff(trees.node_offsets) > 0
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
        """Class shares that splits (>= 0) and leaves (``~leaf``) answer with."""
        # A leaf is a negative number: counted from the end, leaves stand in reverse behind the splits.
        return np.concatenate([self.inner, self.trees.values[::-1]])[nodes]


@dataclass(frozen=True)
class PrunedForest:
    """A pruned forest that answers alone; a row pays for what its own ways through the trees ask of it.

    Attributes
    ----------
    trees : TreeEnsemble
        Trees over all columns; leaf values are class shares.
    price_list : PriceList
        What purchases cost.
    classes : ndarray of shape (n_classes,)
        The user's labels, in the order of the class shares.
    names : tuple of str, optional
        Names of the columns.
    """

    trees: TreeEnsemble
    price_list: PriceList
    classes: Labels
    names: tuple[str, ...] | None = None

    def probability(self, X: Any) -> Floats:
        """Mean of the trees' class shares, shape (n_rows, n_classes)."""
        total = self.trees.predict(X)
        return np.asarray(total / total.sum(axis=1, keepdims=True))

    def bought(self, X: Any) -> Bools:
        """Columns that each row is asked for, shape (n_rows, n_features)."""
        return self.trees.touched(X)

    def cost(self, X: Any) -> Floats:
        """Price of each row's distinct purchases."""
        bought = self.bought(X)
        return self.price_list.cost_of_rows(bought, np.zeros(len(bought), bool))


def flatten_forest(trees: Sequence[Any], n_features: int) -> PrunableForest:
    """Turn fitted classification trees of scikit-learn into one forest that can be pruned.

    Parameters
    ----------
    trees : sequence of ``sklearn.tree._tree.Tree``
        The ``tree_`` of each fitted tree, of one output.
    n_features : int
        Columns of the table they were fitted on.
    """
    if not trees:
        raise InvalidInputError("a forest must have at least one tree; got none.")
    parts = [_flatten_tree(tree, n_features) for tree in trees]
    whole = TreeEnsemble.concatenate([part.trees for part in parts])
    return PrunableForest(whole.validate(), np.concatenate([part.inner for part in parts]))


def _flatten_tree(tree: Any, n_features: int) -> PrunableForest:
    """A forest of one tree: splits and leaves apart, every number sent where scikit-learn sends it."""
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


def _on_doubles(threshold: Floats) -> Floats:
    """Thresholds that send doubles where scikit-learn does, which rounds rows, but not thresholds, to singles."""
    single = threshold.astype(np.float32)
    too_high = single > threshold
    single[too_high] = np.nextafter(single[too_high], np.float32(-np.inf))
    middle = (single.astype(np.float64) + np.nextafter(single, np.float32(np.inf))) / 2.0
    return np.where(middle.astype(np.float32) == single, middle, np.nextafter(middle, -np.inf))


def _above(kept: Bools, parents: Int32s) -> Bools:
    """Whether the split above each split is kept; there is nothing above a root that could be missing."""
    return (parents < 0) | kept[np.maximum(parents, 0)] if len(kept) else kept


def _slots(node_offsets: Int32s, leaf_offsets: Int32s, leaves_per_split: Ints) -> Int64s:
    """First leaf number below each kept split, counted within its tree."""
    before = np.concatenate([[0], np.cumsum(leaves_per_split)])
    tree = np.repeat(np.arange(len(node_offsets) - 1), np.diff(node_offsets))
    return np.asarray(leaf_offsets[tree] + before[:-1] - before[node_offsets[tree]], dtype=np.int64)
