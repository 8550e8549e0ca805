"""One tree at a time, with what it gained and paid."""

from dataclasses import dataclass, replace

import numpy as np

from thrifty.engine.prices.billing import PriceList
from thrifty.engine.trees import TreeEnsemble
from thrifty.learners.trees import EnsembleBuilder, TreeGrower
from thrifty.learners.trees.workspace import Limits


@dataclass(frozen=True)
class Grown:
    """A tree; gains and charges of its splits; leaf and score of each training row; cells added to histograms."""

    tree: TreeEnsemble
    raw_gain: np.ndarray
    charge: np.ndarray
    leaf_of_row: np.ndarray
    row_values: np.ndarray
    n_cells: int

    @property
    def n_leaves(self):
        return len(self.tree.values)


def make_grower(table, *, gamma=0.0, prices=None, group_of=None, **limits):
    group_of = np.arange(table.n_features) if group_of is None else np.asarray(group_of)
    prices = np.ones(group_of.max() + 1) if prices is None else np.asarray(prices, dtype=float)
    return TreeGrower(table, Limits(**limits), PriceList(prices, group_of), float(gamma))


def grow(grower, grad, hess=None, learning_rate=1.0):
    n_outputs = 1 if np.ndim(grad) == 1 else np.shape(grad)[1]
    builder = EnsembleBuilder(grower.table.n_features, n_outputs)
    scores = np.zeros((grower.table.n_rows, n_outputs))
    n_cells = grower.add_tree(builder, scores, grad, hess, learning_rate=learning_rate)
    tree = builder.ensemble()
    numbered = replace(tree, values=np.arange(len(tree.values), dtype=float)[:, None])
    leaf_of_row = numbered.predict_binned(grower.table)[:, 0].astype(int)
    return Grown(tree, builder.gains, builder.charges, leaf_of_row, scores, n_cells)
