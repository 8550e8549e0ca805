"""Linear models over leaves, held near a centre: least squares by one factorisation, logistic by Newton.

(OPT6)   min_{b, c}  sum_i w_i (t_i - phi_i b - d_i c)^2 + ridge/2 (||b||^2 + sum_k p_k (c_k - c0_k)^2)
(OPT7)   min_{b, c}  sum_i w_i loss(target_i, offset_i + phi_i b + d_i c) + ridge/2 (||b - b0||^2 + ...)

``phi`` has a one for the leaf that a row reaches in each tree and zeros elsewhere, so a product with it is a look-up
and a sum; ``d`` are a few dense columns (the margin, the constant) beside it. In (OPT6) rows, weights and leaves stay
while an alternation runs, and only ``t`` and ``d`` move: the large block is factored once, and each solve borders it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from thrifty.arrays import Floats, Int32s
from thrifty.dynamod.solution import Solution
from thrifty.tasks.losses import logistic_hessian, soft_logistic_loss

__all__ = ["LeafDesign", "LeafLeastSquares", "LeafWeights", "ridge_logistic"]


# Least ridge, relative to the mean diagonal: leaves of one tree sum to a constant, so without it nothing is unique.
_SMALLEST = 1e-12
_HALVINGS = 30


@dataclass(frozen=True)
class LeafDesign:
    """Design matrix of a linear model over the leaves of trees, held as the leaf each row reaches.

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
        """``phi @ values``, tree after tree as prediction adds them; values of several scores side by side."""
        total = np.zeros((len(self.leaves), *values.shape[1:]))
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


@dataclass(frozen=True)
class LeafWeights:
    """Weights of a linear model over leaves: ``b``, one per leaf, and ``c``, one per dense column."""

    leaf: Floats
    dense: Floats

    def scores(self, design: LeafDesign, dense: Floats) -> Floats:
        """``phi b + d c`` for every row."""
        return design.dot(self.leaf) + dense @ self.dense


class LeafLeastSquares:
    """Solves (OPT6) for many targets over the same rows, weights and leaves.

    Parameters
    ----------
    design : LeafDesign
        The leaf that each row reaches in each tree.
    weight : ndarray of shape (n_rows,)
        Weights of the squares.
    ridge : float
        Strength of the pull towards zero, and of each dense column's weight towards its centre.
    """

    def __init__(self, design: LeafDesign, weight: Floats, ridge: float) -> None:
        self._design = design
        self._weight = weight
        self._ridge = 0.5 * ridge
        gram = design.gram(weight)
        floor = _SMALLEST * max(float(np.trace(gram)) / max(len(gram), 1), 1e-300)
        gram[np.diag_indices_from(gram)] += max(self._ridge, floor)
        self._factor = cho_factor(gram, lower=True)

    def solve(self, target: Floats, dense: Floats, centre: Floats, pulled: Floats) -> Solution[LeafWeights]:
        """Minimise (OPT6) for this target and these dense columns.

        ``pulled`` is 1 for a dense column whose weight is pulled towards ``centre`` and 0 for a free one.
        ``residual`` is the largest entry of the gradient at the answer.
        """
        design, weight = self._design, self._weight
        pull = self._ridge * pulled
        onto_leaves = design.totals(weight * target)
        border = np.column_stack([design.totals(weight * column) for column in dense.T])
        corner = dense.T @ (weight[:, None] * dense) + np.diag(pull)
        right = dense.T @ (weight * target) + pull * centre
        solved = cho_solve(self._factor, np.column_stack([border, onto_leaves]))
        schur = corner - border.T @ solved[:, :-1]
        # A dense column that the leaves can express leaves nothing to solve for: the shortest answer then.
        c = np.linalg.lstsq(schur, right - border.T @ solved[:, -1], rcond=1e-13)[0]
        b = solved[:, -1] - solved[:, :-1] @ c
        answer = LeafWeights(b, c)
        left = weight * (answer.scores(design, dense) - target)
        gradient = np.r_[
            design.totals(left) + self._ridge * b,
            dense.T @ left + pull * (c - centre),
        ]
        residual = float(np.abs(gradient).max(initial=0.0))
        return Solution(
            answer, residual, 1, residual <= 1e-8 * (1.0 + float(np.abs(target).max(initial=0.0)))
        )


def ridge_logistic(
    design: LeafDesign,
    target: Floats,
    weight: Floats,
    ridge: float,
    *,
    offset: float = 0.0,
    dense: Floats | None = None,
    pulled: Floats | None = None,
    centre: LeafWeights,
    start: LeafWeights,
    tol: float = 1e-9,
    max_iter: int = 50,
) -> Solution[LeafWeights]:
    """Minimise (OPT7) by Newton steps, halved while they do not descend.

    Parameters
    ----------
    target : ndarray of shape (n_rows,)
        Soft labels in [0, 1].
    pulled : ndarray, optional
        1 for a dense column whose weight is pulled to its centre, 0 for a free one; default all.
    centre, start : LeafWeights
        Where the ridge pulls to, and where to begin.

    Returns
    -------
    Solution
        ``residual``: largest entry of the gradient.
    """
    problem = _Logistic(design, target, weight, ridge, offset, dense, pulled, centre)
    at = np.r_[start.leaf, start.dense]
    value = problem.value(at)
    residual = np.inf
    steps = 0
    while True:
        gradient, hessian = problem.derivatives(at)
        residual = float(np.abs(gradient).max(initial=0.0))
        if residual <= tol or steps == max_iter:
            break
        step = _newton_step(hessian, gradient)
        length, trial, lower = 1.0, at - step, problem.value(at - step)
        for _ in range(_HALVINGS):
            if lower <= value - 1e-4 * length * float(gradient @ step):
                break
            length *= 0.5
            trial, lower = at - length * step, problem.value(at - length * step)
        if not lower < value:
            break  # rounding: no shorter step descends either
        at, value = trial, lower
        steps += 1
    n_leaves = design.n_leaves
    return Solution(LeafWeights(at[:n_leaves], at[n_leaves:]), residual, steps, residual <= max(tol, 1e-8))


def _newton_step(hessian: Floats, gradient: Floats) -> Floats:
    try:
        return np.asarray(cho_solve(cho_factor(hessian, lower=True), gradient), dtype=np.float64)
    except LinAlgError:  # without a ridge, leaves of one tree sum to what leaves of another sum to
        return np.asarray(np.linalg.lstsq(hessian, gradient, rcond=1e-13)[0], dtype=np.float64)


class _Logistic:
    """Value and derivatives of (OPT7) at one stacked vector of weights."""

    def __init__(
        self,
        design: LeafDesign,
        target: Floats,
        weight: Floats,
        ridge: float,
        offset: float,
        dense: Floats | None,
        pulled: Floats | None,
        centre: LeafWeights,
    ) -> None:
        self._design, self._target, self._weight, self._offset = design, target, weight, offset
        self._dense = np.empty((len(target), 0)) if dense is None else dense
        free = np.ones(self._dense.shape[1]) if pulled is None else pulled
        self._ridge = ridge * np.r_[np.ones(design.n_leaves), free]
        self._centre = np.r_[centre.leaf, centre.dense]

    def _score(self, at: Floats) -> Floats:
        n_leaves = self._design.n_leaves
        return self._offset + self._design.dot(at[:n_leaves]) + self._dense @ at[n_leaves:]

    def value(self, at: Floats) -> float:
        away = at - self._centre
        loss = self._weight @ soft_logistic_loss(self._target, self._score(at))
        return float(loss + 0.5 * (self._ridge * away) @ away)

    def derivatives(self, at: Floats) -> tuple[Floats, Floats]:
        score = self._score(at)
        pull = self._weight * (expit(score) - self._target)
        gradient = np.r_[self._design.totals(pull), self._dense.T @ pull]
        hessian = self._hessian(self._weight * logistic_hessian(score))
        return gradient + self._ridge * (at - self._centre), hessian

    def _hessian(self, weight: Floats) -> Floats:
        n_leaves, n_all = self._design.n_leaves, len(self._ridge)
        hessian = np.empty((n_all, n_all))
        hessian[:n_leaves, :n_leaves] = self._design.gram(weight)
        hessian[n_leaves:, n_leaves:] = self._dense.T @ (weight[:, None] * self._dense)
        for number, column in enumerate(self._dense.T):
            border = self._design.totals(weight * column)
            hessian[:n_leaves, n_leaves + number] = border
            hessian[n_leaves + number, :n_leaves] = border
        hessian[np.diag_indices_from(hessian)] += self._ridge
        return hessian
