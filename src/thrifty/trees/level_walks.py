"""Walks down trees of which some nodes ask for sets of levels: from raw numbers and from codes.

Compiled apart from the walks down trees that compare numbers only: most tables have no categories.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Int32s, Words
from thrifty.jit import Number, lean, lean_kernel
from thrifty.trees.traversal import Walk

__all__ = ["add_from_coded_levels", "holds", "walk_levels"]


@lean
def holds(levels: Int32s, first: Number, end: Number, level: Number) -> Number:
    """Whether a level is among ``levels[first:end]``, which rise."""
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
    walk: Walk,
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


@lean_kernel
def add_from_coded_levels(
    codes: NDArray[np.uint8],
    walk: Walk,
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
    for i in range(len(codes)):
        for root in roots:
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
            for k in range(values.shape[1]):
                out[i, k] += values[~node, k]
