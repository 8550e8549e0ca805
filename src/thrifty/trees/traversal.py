"""Walks down trees: from raw numbers and from codes, in batches and for one row.

Node arrays are flat over all trees. A child >= 0 is a node, a child < 0 is leaf ``~child``. A number goes left
if it is at most the threshold; a missing one goes where the node says.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Int32s
from thrifty.jit import Number, kernel, lean, lean_kernel

__all__ = [
    "SIDE_BY_SIDE",
    "Walk",
    "add_from_codes",
    "add_from_values",
    "add_leaf_values",
    "find_leaves",
    "mark_touched",
    "score_row",
]


class Walk(NamedTuple):
    """What a row needs on its way down: roots per tree; the other arrays per node.

    Compiled code takes it apart at once: passing it on would count references at every step.
    """

    roots: Int32s
    feature: Int32s
    threshold: Floats
    missing_left: NDArray[np.bool_]
    children: Int32s


SIDE_BY_SIDE = 256  # rows that go down a tree together
BLOCK = 64  # rows whose numbers stay in the nearest cache while every tree looks at them


@lean
def descend(
    X: Any, i: Number, node: Number, feature: Int32s, threshold: Floats, missing_left: Any, children: Int32s
) -> Number:
    """Leaf that row ``i`` of raw numbers reaches from ``node``."""
    while node >= 0:
        value, limit = X[i, feature[node]], threshold[node]
        # Missing compares false with everything: "not above" sends it left, "at most" sends it right.
        goes_left = not value > limit if missing_left[node] else value <= limit
        node = children[node, 0] if goes_left else children[node, 1]
    return ~node


@lean_kernel
def add_from_values(X: Any, walk: Walk, values: Floats, nodes: Int32s, out: Floats) -> None:
    """Add every tree's leaf values to ``out``, rows in blocks so that trees and rows stay in cache.

    The rows of a block, as many as there are ``nodes`` to note where they are, go down a tree side by side, a level at
    a time: their steps do not wait for each other, and the side to take is looked up in place of guessed.
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
    codes: NDArray[np.uint8], walk: Walk, last_left: Any, missing_code: Any, values: Floats, out: Floats
) -> None:
    """Add every tree's leaf values to ``out``, from binned rows."""
    roots, feature, _, missing_left, children = walk
    n_outputs = values.shape[1]
    for begin in range(0, len(codes), BLOCK):
        end = begin + BLOCK if begin + BLOCK < len(codes) else len(codes)
        for root in roots:
            for i in range(begin, end):
                node = root
                while node >= 0:
                    f = feature[node]
                    code = codes[i, f]
                    goes_left = missing_left[node] if code == missing_code[f] else code <= last_left[node]
                    node = children[node, 0] if goes_left else children[node, 1]
                for k in range(n_outputs):
                    out[i, k] += values[~node, k]


@kernel
def score_row(X: Any, walk: Walk, values: Floats) -> Floats:
    """Sum of leaf values of the first row, added in the same order as in a batch."""
    roots, feature, threshold, missing_left, children = walk
    out = np.zeros(values.shape[1])
    for root in roots:
        leaf = descend(X, 0, root, feature, threshold, missing_left, children)
        for k in range(values.shape[1]):
            out[k] += values[leaf, k]
    return out


@lean_kernel
def find_leaves(X: Any, walk: Walk, out: Int32s) -> None:
    """Leaf of every row in every tree."""
    roots, feature, threshold, missing_left, children = walk
    for i in range(len(X)):
        for t in range(len(roots)):
            out[i, t] = descend(X, i, roots[t], feature, threshold, missing_left, children)


@lean_kernel
def mark_touched(X: Any, walk: Walk, out: NDArray[np.bool_]) -> None:
    """Set ``out[i, f]`` where row ``i`` meets a split on feature ``f``."""
    roots, feature, threshold, missing_left, children = walk
    for i in range(len(X)):
        for root in roots:
            node = root
            while node >= 0:
                f = feature[node]
                out[i, f] = True
                value, limit = X[i, f], threshold[node]
                goes_left = not value > limit if missing_left[node] else value <= limit
                node = children[node, 0] if goes_left else children[node, 1]


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
