"""Ridge regressions over leaves, pulled towards a centre: least squares (OPT6), logistic and softmax (OPT7).

(OPT6)   min_{b, c}  sum_i w_i (t_i - phi_i b - d_i c)^2 + ridge/2 (||b||^2 + sum_k p_k (c_k - c0_k)^2)
(OPT7)   min_{b, c}  sum_i w_i loss(target_i, offset_i + phi_i b + d_i c) + ridge/2 (||b - b0||^2 + ...)

``phi`` has a one for the leaf that a row reaches in each tree and zeros elsewhere, so a product with it is a look-up
and a sum; ``d`` are a few dense columns (the margin, the constant) beside it. In (OPT6) rows, weights and leaves stay
while an alternation runs, and only ``t`` and ``d`` move: the large block is factored once, and each solve borders it.
Logistic (OPT7) is solved by Newton steps.

(OPT7) for several classes is a softmax,

    min_V  sum_i w_i [log sum_k exp(s_ik) - sum_k target_ik s_ik] + ridge/2 ||V - V0||^2     with   s_i = base + phi_i V

where ``V`` has a line for each leaf and a column for each class: too many numbers for their Hessian. Newton steps are
found by conjugate gradients, which need only products with it, preconditioned by Boehning's bound
``phi' diag(w / 2) phi + ridge`` in every column. The bound is the same in all rounds of an alternation but for the
shares that stay, and is factored once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit, logsumexp, softmax

from thrifty.arrays import Floats, Int32s
from thrifty.engine.tasks.logistic import logistic_hessian, soft_logistic_loss
from thrifty.learners.dynamod.objective import Solution

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
    dense = np.empty((len(target), 0)) if dense is None else dense
    free = np.ones(dense.shape[1]) if pulled is None else pulled
    n_leaves, pull = design.n_leaves, ridge * np.r_[np.ones(design.n_leaves), free]
    middle = np.r_[centre.leaf, centre.dense]

    def scores_at(at: Floats) -> Floats:
        return offset + design.dot(at[:n_leaves]) + dense @ at[n_leaves:]

    def value_at(at: Floats) -> float:
        away = at - middle
        return float(weight @ soft_logistic_loss(target, scores_at(at)) + 0.5 * (pull * away) @ away)

    at = np.r_[start.leaf, start.dense]
    value = value_at(at)
    steps = 0
    while True:
        score = scores_at(at)
        off = weight * (expit(score) - target)
        gradient = np.r_[design.totals(off), dense.T @ off] + pull * (at - middle)
        curvature = weight * logistic_hessian(score)
        hessian = np.empty((len(at), len(at)))
        hessian[:n_leaves, :n_leaves] = design.gram(curvature)
        hessian[n_leaves:, n_leaves:] = dense.T @ (curvature[:, None] * dense)
        for place, column in enumerate(dense.T, start=n_leaves):
            hessian[:n_leaves, place] = hessian[place, :n_leaves] = design.totals(curvature * column)
        hessian[np.diag_indices_from(hessian)] += pull
        residual = float(np.abs(gradient).max(initial=0.0))
        if residual <= tol or steps == max_iter:
            break
        try:
            step = cho_solve(cho_factor(hessian, lower=True), gradient)
        except LinAlgError:  # without a ridge, leaves of one tree sum to what leaves of another sum to
            step = np.linalg.lstsq(hessian, gradient, rcond=1e-13)[0]
        length, trial, lower = 1.0, at - step, value_at(at - step)
        for _ in range(_HALVINGS):
            if lower <= value - 1e-4 * length * float(gradient @ step):
                break
            length *= 0.5
            trial, lower = at - length * step, value_at(at - length * step)
        if not lower < value:
            break  # rounding: no shorter step descends either
        at, value = trial, lower
        steps += 1
    return Solution(LeafWeights(at[:n_leaves], at[n_leaves:]), residual, steps, residual <= max(tol, 1e-8))


_INNER = 200
_FORCING = 0.03
_SMALLEST_STEP = 1e-9
_ROUNDING = 1e-14


class LeafSoftmax:
    """Solves (OPT7) of several classes for many targets and shares over the same rows and leaves.

    Parameters
    ----------
    design : LeafDesign
        The leaf that each row reaches in each tree.
    weight : ndarray of shape (n_rows,)
        Weights of the rows; those of a solve are at most these.
    ridge : float
        Strength of the pull towards the centre.
    base : ndarray of shape (n_classes,)
        Scores before any tree.
    centre : ndarray of shape (n_leaves, n_classes)
        Where the ridge pulls to.
    """

    def __init__(
        self, design: LeafDesign, weight: Floats, ridge: float, base: Floats, centre: Floats
    ) -> None:
        self._phi, self._ridge, self._base, self._centre = design.indicators, ridge, base, centre
        bound = design.gram(0.5 * weight)
        floor = _SMALLEST_STEP * max(float(np.trace(bound)) / max(len(bound), 1), 1e-300)
        bound[np.diag_indices_from(bound)] += max(ridge, floor)
        self._factor = cho_factor(bound, lower=True)

    def solve(
        self, target: Floats, weight: Floats, start: Floats, *, tol: float = 1e-9, max_iter: int = 100
    ) -> Solution[Floats]:
        """Minimise for wanted probabilities and weights of shapes (n_rows, n_classes) and (n_rows,).

        ``residual`` is the largest entry of the gradient at the answer.
        """
        at, scores = start, self._base + self._phi @ start
        value = self._value(at, scores, target, weight)
        steps, residual, slope = 0, np.inf, np.inf
        slack = _ROUNDING * (1.0 + abs(value))
        while True:
            p = np.asarray(softmax(scores, axis=1))
            gradient = self._phi.T @ (weight[:, None] * (p - target)) + self._ridge * (at - self._centre)
            last, residual = residual, float(np.abs(gradient).max(initial=0.0))
            # Where the value no longer shows a descent, the gradient must.
            if residual <= tol or steps == max_iter or (slope <= slack and residual > 0.5 * last):
                break
            step = self._newton_step(p, weight, gradient)
            along, slope, length = self._phi @ step, float(np.sum(gradient * step)), 1.0
            for _ in range(_HALVINGS):
                lower = self._value(at - length * step, scores - length * along, target, weight)
                if lower <= value - 1e-4 * length * slope + slack:
                    break
                length *= 0.5
            if lower > value + slack:
                break
            at, scores, value = at - length * step, scores - length * along, lower
            steps += 1
        return Solution(at, residual, steps, residual <= max(tol, 1e-8))

    def _value(self, at: Floats, scores: Floats, target: Floats, weight: Floats) -> float:
        loss = logsumexp(scores, axis=1) - np.sum(target * scores, axis=1)
        return float(weight @ loss) + 0.5 * self._ridge * float(np.sum(np.square(at - self._centre)))

    def _newton_step(self, p: Floats, weight: Floats, gradient: Floats) -> Floats:
        """Solve ``Hessian step = gradient`` by preconditioned conjugate gradients, as far as a Newton step needs."""
        step, left = np.zeros_like(gradient), gradient
        pulled = np.asarray(cho_solve(self._factor, left))
        direction, size = pulled, float(np.sum(left * pulled))
        enough = _FORCING**2 * size
        for _ in range(_INNER):
            moved = self._phi @ direction
            moved = weight[:, None] * p * (moved - np.sum(p * moved, axis=1, keepdims=True))
            curved = self._phi.T @ moved + self._ridge * direction
            curvature = float(np.sum(direction * curved))
            if curvature <= 0.0:  # without a ridge, a common shift of all classes changes nothing
                break
            step = step + size / curvature * direction
            left = left - size / curvature * curved
            pulled = np.asarray(cho_solve(self._factor, left))
            last, size = size, float(np.sum(left * pulled))
            if size <= enough:
                break
            direction = pulled + size / last * direction
        return step
