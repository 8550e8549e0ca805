"""A softmax over leaves, held near a centre: (OPT7) for several classes, by Newton steps that conjugate gradients find.

    min_V  sum_i w_i [log sum_k exp(s_ik) - sum_k target_ik s_ik] + ridge/2 ||V - V0||^2     with   s_i = base + phi_i V

``V`` has a line for each leaf and a column for each class: too many numbers for their Hessian, of which only products
are needed. Its bound by Boehning, ``phi' diag(w / 2) phi + ridge`` in every column, is the same in all rounds of an
alternation but for the shares that stay; factored once, it makes the steps few.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp, softmax

from thrifty.arrays import Floats
from thrifty.dynamod.ridge import LeafDesign
from thrifty.dynamod.solution import Solution

__all__ = ["LeafSoftmax"]

_HALVINGS = 30
_INNER = 200
_FORCING = 0.03
_SMALLEST = 1e-9
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
        floor = _SMALLEST * max(float(np.trace(bound)) / max(len(bound), 1), 1e-300)
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
