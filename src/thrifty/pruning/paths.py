"""Where rows go in a forest: what every node would get wrong, and where each row first needs each purchase."""

from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.trees.compiled import kernel
from thrifty.trees.traversal import Walk

__all__ = ["node_losses", "visit_first_uses"]


@kernel
def node_losses(
    X: Any, walk: Walk, code: Any, weight: Floats, inner_loss: Floats, leaf_loss: Floats
) -> tuple[Floats, Floats]:
    """Weighted loss of the rows at every split and every leaf, were it to answer them.

    ``weight`` has shape (n_trees, n_rows), or (1, n_rows) where it is the same in every tree; losses are per class.
    """
    roots, feature, threshold, missing_left, children = walk
    at_split, at_leaf = np.zeros(len(inner_loss)), np.zeros(len(leaf_loss))
    for t in range(len(roots)):
        own = weight[t if len(weight) > 1 else 0]
        for i in range(len(X)):
            if own[i] == 0.0:
                continue
            node = roots[t]
            while node >= 0:
                at_split[node] += own[i] * inner_loss[node, code[i]]
                value, limit = X[i, feature[node]], threshold[node]
                goes_left = not value > limit if missing_left[node] else value <= limit
                node = children[node, 0] if goes_left else children[node, 1]
            at_leaf[~node] += own[i] * leaf_loss[~node, code[i]]
    return at_split, at_leaf


@kernel
def visit_first_uses(
    X: Any, walk: Walk, is_open: Any, group_of: Any, paid: Any, position: Any, need: Any
) -> None:
    """Step ``position`` of a split for every row that first needs some purchase there; note which in ``need``.

    A purchase of a row is the number ``group * n_rows + row``. With an empty ``need`` this only counts. Walks end at
    splits that are not open, and purchases that cost nothing are not noted.
    """
    roots, feature, threshold, missing_left, children = walk
    last = np.full(len(paid), -1, np.int64)
    stamp = 0
    for root in roots:
        for i in range(len(X)):
            stamp += 1
            node = root
            while node >= 0 and is_open[node]:
                group = group_of[feature[node]]
                if paid[group] and last[group] != stamp:
                    last[group] = stamp
                    if len(need):
                        need[position[node]] = group * len(X) + i
                    position[node] += 1
                value, limit = X[i, feature[node]], threshold[node]
                goes_left = not value > limit if missing_left[node] else value <= limit
                node = children[node, 0] if goes_left else children[node, 1]
