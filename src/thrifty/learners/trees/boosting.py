"""Boosting: each tree is grown against the derivatives of a loss at the scores of the trees before it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.trees.binning import BinnedTable
from thrifty.learners.trees.gradients import (
    CURVATURE_BITS,
    GRADIENT_BITS,
    WIDE_ROWS,
    add_squares,
    by_output,
    derivatives_along,
    round_alone,
    round_outputs,
)
from thrifty.learners.trees.grow import EnsembleBuilder, Step, TreeGrower
from thrifty.learners.trees.workspace import Limits

MAX_SUMMED = 2
"""Outputs of a tree whose gains are summed over outputs; with more, a tree is split along a random direction."""

MAX_STEP = 2.0
"""Largest value of a leaf of many outputs, before the learning rate."""


@dataclass(frozen=True)
class Boosting:
    """Settings of boosted trees.

    Attributes
    ----------
    n_trees : int
        Trees of each model.
    max_depth, learning_rate, l2, min_child_weight, min_child_samples, max_leaves
        Limits of each tree; without ``max_leaves`` only the depth limits it.
    step : {"gradient", "newton"}
        Least squares on the gradient, as in the paper, or leaves that divide by the curvature.
    """

    n_trees: int = 100
    max_depth: int = 4
    learning_rate: float = 0.1
    step: Step = "newton"
    l2: float = 1.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_leaves: int | None = None

    def grower(
        self, table: BinnedTable, price_list: PriceList | None = None, gamma: float = 0.0
    ) -> TreeGrower:
        """A grower with these limits; without a price list everything is free."""
        limits = Limits(
            self.max_depth,
            self.max_leaves or 2**self.max_depth,
            # Least squares on the gradient has unit weights, so a ridge of l2 would count rows, not curvature.
            float(self.l2) if self.step == "newton" else 0.0,
            float(self.min_child_weight),
            self.min_child_samples,
        )
        return TreeGrower(table, limits, price_list, gamma)

    def add_trees(
        self,
        grower: TreeGrower,
        builder: EnsembleBuilder,
        loss: Any,
        counts: Floats,
        score: Floats,
        n_trees: int,
        drawn: Bools | None = None,
    ) -> None:
        """Grow several trees, each from the scores that the last one left, and keep them in ``builder``.

        Parameters
        ----------
        loss : Loss or GateLoss
            Whose derivatives are followed; in one compiled call where that knows them.
        counts : ndarray of shape (n_rows,)
            Weights.
        score : ndarray of shape (n_rows, n_scores)
            Scores, which are updated in place.
        drawn : ndarray of bool of shape (n_trees, n_rows), optional
            Rows that each tree is grown on.
        """
        formula = getattr(loss, "formula", None)
        constant = self.step == "gradient" and drawn is None and bool(np.all(counts == 1.0))
        if formula is not None and grower.takes_formulas(constant=constant):
            grower.add_trees(
                builder,
                score,
                formula,
                counts,
                n_trees=n_trees,
                drawn=drawn,
                step=self.step,
                learning_rate=self.learning_rate,
            )
            return
        for tree in range(n_trees):
            used = counts if drawn is None else counts * drawn[tree]
            self.add_tree(grower, builder, loss.derivatives(score), used, score)

    def add_tree(
        self,
        grower: TreeGrower,
        builder: EnsembleBuilder,
        derivatives: tuple[Floats, Floats],
        counts: Floats,
        score: Floats,
    ) -> None:
        """Grow one tree, keep it in ``builder`` and add it to the scores in place.

        ``derivatives`` are those of the unweighted loss, each of shape (n_rows,) or (n_rows, n_outputs).
        """
        grad, hess = self._weighted(*derivatives, counts)
        if builder.n_outputs <= MAX_SUMMED:
            grower.add_tree(builder, score, grad, hess, learning_rate=self.learning_rate)
            return
        direction = _direction(grad, counts, seed=[builder.n_features, builder.n_trees])
        rate = {"learning_rate": self.learning_rate, "max_step": MAX_STEP}
        one_grad, one_hess = derivatives_along(direction, grad, hess)
        if not np.all(counts == 1.0):
            one_grad = _rounded_alone(one_grad, counts, GRADIENT_BITS)
            one_hess = None if one_hess is None else _rounded_alone(one_hess, counts, CURVATURE_BITS)
        grower.add_tree_along((one_grad, one_hess), builder, score, grad, hess, **rate)

    def _weighted(self, grad: Floats, curvature: Floats, counts: Floats) -> tuple[Floats, Floats | None]:
        grad = weighted_on_grid(grad, counts, GRADIENT_BITS)
        if self.step == "newton":
            return grad, weighted_on_grid(curvature, counts, CURVATURE_BITS)
        if np.all(counts == 1.0):
            return grad, None
        return grad, np.broadcast_to(counts.reshape(-1, *([1] * (grad.ndim - 1))), grad.shape)


def _direction(grad: Floats, counts: Floats, seed: list[int]) -> Floats:
    """A random direction of the outputs, of length one, that goes far in those with large gradients.

    Classes that are separated already, and rare ones, would otherwise take as many splits as the others.
    """
    squares = np.zeros(grad.shape[1])
    add_squares(by_output(grad), counts, squares)
    # To a quarter of a power of two: the last digits of a sum depend on the order of the rows, and no tree should.
    with np.errstate(divide="ignore"):
        size = np.exp2(np.round(2 * np.log2(squares)) / 4)
    direction = _normals(*seed, len(size)) * size
    length = float(np.sqrt(np.square(direction).sum()))
    return direction / length if length > 0 else np.full(len(size), len(size) ** -0.5)


@lru_cache(maxsize=4096)
def _normals(n_features: int, n_trees: int, n_outputs: int) -> Floats:
    """Normal numbers of one tree, which are the same in every stage and fold."""
    return np.random.default_rng([n_features, n_trees]).normal(size=n_outputs)


def weighted_on_grid(values: Floats, counts: Floats, bits: int) -> Floats:
    """Values, weighted, rounded before to a power of two so coarse that the grower can sum them without more rounding.

    The grower rounds each row's weighted derivative. These roundings would break ties of equal splits, and
    a row of weight two would round otherwise than two rows of weight one; rounded before they are
    weighted, they do not.
    """
    if len(values) > WIDE_ROWS:
        return (counts * values.T).T
    # By output, each in one piece: so the grower takes them as they are.
    weighted = np.empty(values.shape, order="F")
    flat = values.T.reshape(-1, len(values))
    round_outputs(np.ascontiguousarray(flat), counts, bits - 2, weighted.T.reshape(-1, len(values)))
    return weighted


def _rounded_alone(values: Floats, counts: Floats, bits: int) -> Floats:
    """Weighted derivatives of one output, rounded as the grower rounds those of a row of weight one, times the weight.

    Combinations of rounded derivatives are not round, and the grower would round them weight and all.
    """
    if len(counts) > WIDE_ROWS:
        return values
    unit = np.ldexp(1.0, int(np.frexp(np.abs(values).sum())[1]) + 1 - bits)
    weighted = np.empty(len(values))
    round_alone(values, counts, unit, bits == CURVATURE_BITS, weighted)
    return weighted


def counts_of(weight: Floats, total: float) -> Floats:
    """Weights that sum to ``total``; exactly one each where they are all alike and as many as that."""
    if total == len(weight) and np.all(weight == weight[0]):
        return np.ones(len(weight))
    counts: Floats = weight * (total / weight.sum())
    return counts
