"""Trees whose nodes are numbered level by level: where their children are follows from which of them are leaves.

A tree's nodes are counted from its root on, level by level and from left to right, and its leaves likewise. Then the
next child that is a node is always the next node, and a child takes one bit in place of a number.
"""

from dataclasses import replace

import numpy as np

from thrifty.arrays import Bools, Int32s, Ints
from thrifty.trees.ensemble import TreeEnsemble

__all__ = ["children_of", "in_level_order"]


def children_of(is_leaf: Bools, node_offsets: Int32s) -> Int32s:
    """Children of nodes in level order, from which of them are leaves; both of shape (n_nodes, 2)."""
    n_splits = np.diff(node_offsets)
    tree = np.repeat(np.arange(len(n_splits)), n_splits)[:, None]
    # A tree without splits is one leaf, which is nobody's child.
    stumps = np.cumsum(n_splits == 0) - (n_splits == 0)
    grown = np.arange(len(n_splits)) - stumps
    leaves_before: Ints = np.cumsum(is_leaf.ravel()).reshape(is_leaf.shape) - is_leaf
    nodes_before: Ints = np.cumsum(~is_leaf.ravel()).reshape(is_leaf.shape) - ~is_leaf
    children: Int32s = np.where(
        is_leaf, ~(leaves_before + stumps[tree]), nodes_before + 1 + grown[tree]
    ).astype(np.int32)
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
