"""Tiny forests, and every way to prune them."""

from itertools import product

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from reproduction.pruning.forest import flatten_forest
from reproduction.pruning.node_costs import PruningRows
from thrifty import Prices
from thrifty.engine.prices.prices import check_price_list


class TinyCase:
    """A forest of a few splits, rows that decide, prices with groups and zeros, all drawn from one seed."""

    def __init__(self, seed, n_trees=2, max_leaf_nodes=5, n_rows=40, n_classes=2):
        chance = np.random.default_rng(seed)
        X = chance.normal(size=(n_rows, 4)).round(1)
        y = (X[:, 0] * X[:, 1] + X[:, 2] + chance.normal(size=n_rows) > 0).astype(int)
        if n_classes > 2:
            y += (X[:, 3] > 0.5).astype(int)
        self.sk_forest = RandomForestClassifier(
            n_trees, max_leaf_nodes=max_leaf_nodes, max_features=2, random_state=seed
        ).fit(X, y)
        self.forest = flatten_forest([tree.tree_ for tree in self.sk_forest.estimators_], 4)
        self.X = chance.normal(size=(n_rows, 4)).round(1)
        code = np.minimum((self.X[:, 0] * self.X[:, 1] + self.X[:, 2] > 0).astype(int), n_classes - 1)
        self.rows = PruningRows(self.X, code, chance.integers(1, 4, n_rows).astype(float))
        costs = chance.choice([0.0, 0.5, 1.0, 2.5], size=3)[[0, 0, 1, 2]]
        self.prices = check_price_list(Prices(costs, groups=["a", "a", "b", "c"]), 4)

    def objective(self, kept, gamma, error):
        """Error plus gamma times spend, from the pruned trees alone, without any of the solvers' arrays."""
        pruned = self.forest.pruned(kept)
        weight = self.rows.weight / self.rows.weight.sum()
        shares = pruned.values[pruned.apply(self.X)]  # rows, trees, classes
        rows = np.arange(len(self.X))[:, None], np.arange(pruned.n_trees)
        if error == "probability":
            wrong = 1.0 - shares[(*rows, self.rows.code[:, None])]
        else:
            wrong = shares.argmax(axis=2) != self.rows.code[:, None]
        spend = self.prices.cost_of_rows(pruned.touched(self.X), np.zeros(len(self.X), bool))
        return float(weight @ wrong.mean(axis=1)), float(weight @ spend)

    def prunings(self):
        """Every mask over the splits that holds what stands above what it holds."""
        parents = self.forest.parents
        inner = np.flatnonzero(parents >= 0)
        for mask in product([False, True], repeat=self.forest.n_splits):
            kept = np.array(mask, dtype=bool)
            if np.all(~kept[inner] | kept[parents[inner]]):
                yield kept

    def table(self, error):
        """Loss and spend of every pruning."""
        return np.array([self.objective(kept, 0.0, error) for kept in self.prunings()])


@pytest.fixture(scope="session")
def tiny_case():
    return TinyCase
