r"""Losses of numbers, and the linear functions of scores that lower them most.

    squared    loss(y, s) = (y - s)^2 / 2,    derivatives   s - y        and   1
    absolute   loss(y, s) = |y - s|,          derivatives   sign(s - y)  and   1 / max(|y - s|, SMOOTH)

The second derivative of the absolute error is that of the parabola which touches it from above, so that a step
minimises a weighted sum of squares, and steps that are repeated end at the median.
"""

from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Floats
from thrifty.trees.derivatives import SQUARED, Formula

__all__ = ["SMOOTH", "AbsoluteLoss", "SquaredLoss", "linear_weights"]

SMOOTH = 0.02
"""Errors below this, in units of the spread, count as this large when absolute errors are weighed."""

RIDGE = 1e-6
_ROUNDS = 25
_ROUNDS_OF_QUANTILES = 100


@dataclass(frozen=True)
class SquaredLoss:
    """Half of the squared error."""

    y: Floats

    @property
    def formula(self) -> Formula:
        """What trees need to know of it."""
        return Formula(SQUARED, self.y)

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        losses: Floats = 0.5 * np.square(scores[:, 0] - self.y)
        return losses

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian, each of shape (n_rows, 1)."""
        return scores - self.y[:, None], np.ones_like(scores)

    def base(self, weight: Floats) -> Floats:
        """The mean."""
        return np.array([np.average(self.y, weights=weight)])


@dataclass(frozen=True)
class AbsoluteLoss:
    """The absolute error."""

    y: Floats

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        losses: Floats = np.abs(scores[:, 0] - self.y)
        return losses

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian of the parabola that touches the loss from above, each of shape (n_rows, 1)."""
        error = scores - self.y[:, None]
        hessian: Floats = 1.0 / np.maximum(np.abs(error), SMOOTH)
        return error * hessian, hessian

    def base(self, weight: Floats) -> Floats:
        """The weighted median."""
        order = np.argsort(self.y, kind="stable")
        passed = np.cumsum(weight[order])
        return self.y[order][[np.searchsorted(passed, passed[-1] / 2)]]


def linear_weights(scores: Floats, y: Floats, weight: Floats, kind: str, quantile: float = 0.5) -> Floats:
    """Intercept and slopes, shape (1 + n_scores,), with the least squared or absolute error, or pinball loss.

    The absolute error is minimised by weighted least squares, each row weighted by one over the error it had before.
    The pinball loss is half of that and a part that is linear in the error, a constant pull towards the dearer side.
    """
    middle = np.average(scores, axis=0, weights=weight)
    spread = np.sqrt(np.average(np.square(scores - middle), axis=0, weights=weight))
    scale = np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(y)), (scores - middle) / scale])
    ridge = RIDGE * weight.sum() * np.diag([0.0, *np.ones(scores.shape[1])])
    each, found = weight, np.zeros(design.shape[1])
    rounds = {"squared": 1, "absolute": _ROUNDS, "pinball": _ROUNDS_OF_QUANTILES}[kind]
    # Rows are weighted as for the absolute error, twice the pinball loss of the median, hence twice the pull.
    pull = (2.0 * quantile - 1.0) * (weight @ design) if kind == "pinball" else 0.0
    for _ in range(rounds):
        weighted = each[:, None] * design
        found = np.linalg.solve(design.T @ weighted + ridge, weighted.T @ y + pull)
        each = weight / np.maximum(np.abs(y - design @ found), SMOOTH)
    slopes = found[1:] / scale
    weights: Floats = np.r_[found[0] - slopes @ middle, slopes]
    return weights
