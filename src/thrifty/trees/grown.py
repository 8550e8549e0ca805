"""One tree and how it came about: what it gained and paid, and where it sent the training rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats
from thrifty.trees.ensemble import TreeEnsemble
from thrifty.trees.traversal import add_leaf_values

__all__ = ["GrownTree"]


@dataclass(frozen=True)
class GrownTree:
    """One tree and how it came about.

    Attributes
    ----------
    tree : TreeEnsemble
        An ensemble of this one tree.
    raw_gain, charge : ndarray of shape (n_splits,)
        Per split, in the order they were made (node ``s`` is split ``s``): what it gained and what it paid.
    leaf_of_row : ndarray of shape (n_rows,), int32
        Leaf of every training row.
    bought_groups : ndarray of int
        Groups that this tree bought.
    n_cells : int
        (row, column) cells added to histograms: the work done.
    """

    tree: TreeEnsemble
    raw_gain: Floats
    charge: Floats
    leaf_of_row: NDArray[np.int32]
    bought_groups: NDArray[np.intp]
    n_cells: int

    @property
    def net_gain(self) -> Floats:
        """Raw gain minus charge of every split, all positive."""
        return self.raw_gain - self.charge

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.tree.values)

    def row_values(self) -> Floats:
        """What the tree adds to the scores of the training rows, shape (n_rows, n_outputs)."""
        return self.tree.values[self.leaf_of_row]

    def add_to(self, scores: Floats) -> None:
        """Add the tree to the training rows' scores, in place; shape (n_rows,) or (n_rows, n_outputs)."""
        add_leaf_values(self.tree.values, self.leaf_of_row, scores.reshape(len(scores), -1))
