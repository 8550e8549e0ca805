"""A random forest whose chance is a fixed function of each row.

A forest draws rows with repetition for every tree. Drawn from a generator, the draw depends on the order and on the
repetition of rows; drawn from the content of a row it does not: each tree counts a row 0, 1, 2, ... times with the
probabilities of Poisson(1), which is what drawing many rows with repetition comes to.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import poisson
from sklearn.tree import DecisionTreeClassifier

from thrifty.arrays import Floats
from thrifty.rows import uniforms

__all__ = ["GrownForest", "grow_forest"]


_CUMULATIVE = poisson.cdf(np.arange(20), 1.0)


@dataclass(frozen=True)
class GrownForest:
    """Trees of scikit-learn and the rows that each of them was not fitted on.

    Attributes
    ----------
    trees : list of ``sklearn.tree._tree.Tree``
        The trees.
    left_out : ndarray of shape (n_trees, n_rows), bool
        Rows that a tree has not seen.
    """

    trees: list[Any]
    left_out: NDArray[np.bool_]


def grow_forest(
    X: Any,
    code: NDArray[np.intp],
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
