"""The design matrix of a linear model over the leaves of trees, held as the leaf each row reaches.

``phi(x)`` has a one for the leaf that ``x`` reaches in each tree and zeros elsewhere, so a product with it is a
look-up and a sum. A few dense columns (the margin, the constant) may stand beside it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from thrifty.arrays import Floats, Int32s

__all__ = ["LeafDesign"]


@dataclass(frozen=True)
class LeafDesign:
    """Rows as the leaves they reach.

    Attributes
    ----------
    leaves : ndarray of shape (n_rows, n_trees)
        Leaf of every row in every tree, numbered over all trees.
    n_leaves : int
        Leaves of all trees.
    """

    leaves: Int32s
    n_leaves: int

    @cached_property
    def indicators(self) -> sparse.csr_array:
        """``phi`` of every row, shape (n_rows, n_leaves)."""
        n_rows, n_trees = self.leaves.shape
        ones = np.ones(n_rows * n_trees)
        starts = np.arange(0, n_rows * n_trees + 1, n_trees)
        return sparse.csr_array((ones, self.leaves.reshape(-1), starts), shape=(n_rows, self.n_leaves))

    def dot(self, values: Floats) -> Floats:
        """``phi @ values``, tree after tree as prediction adds them."""
        total = np.zeros(len(self.leaves))
        for tree in self.leaves.T:
            total += values[tree]
        return total

    def totals(self, per_row: Floats) -> Floats:
        """``phi.T @ per_row``."""
        n_trees = self.leaves.shape[1]
        total = np.bincount(self.leaves.reshape(-1), np.repeat(per_row, n_trees), minlength=self.n_leaves)
        return np.asarray(total, dtype=np.float64)

    def gram(self, weight: Floats) -> Floats:
        """``phi.T @ diag(weight) @ phi``, dense: a few hundred leaves on a side. Linear in rows, square in trees."""
        weighted = self.indicators * weight[:, None]
        return np.asarray((self.indicators.T @ weighted).toarray(), dtype=np.float64)
