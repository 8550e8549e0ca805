"""What serves after pruning: trees of plain arrays, their prices and labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats
from thrifty.objective.costs import PriceList
from thrifty.trees import TreeEnsemble

__all__ = ["PrunedForest"]


@dataclass(frozen=True)
class PrunedForest:
    """A forest that answers alone; a row pays for what its own ways through the trees ask of it.

    Attributes
    ----------
    trees : TreeEnsemble
        Trees over all columns; leaf values are class shares.
    price_list : PriceList
        What purchases cost.
    classes : ndarray of shape (n_classes,)
        Labels.
    names : tuple of str, optional
        Names of the columns.
    """

    trees: TreeEnsemble
    price_list: PriceList
    classes: NDArray[Any]
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
