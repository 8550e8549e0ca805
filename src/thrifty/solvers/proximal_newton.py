"""Proximal Newton steps for linear heads under a group norm.

Each step minimises the second-order model of the fits plus the exact norms, then walks towards that
minimiser as far as the objective falls. Steps reuse the last Hessian while it still serves: on tall
tables a Hessian costs several times everything else.
"""

from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Floats
from thrifty.solvers.block_descent import minimise_model
from thrifty.solvers.curvature import Hessian
from thrifty.solvers.linear_heads import LinearHeads, Point, Slope

__all__ = ["Progress", "proximal_newton"]


SUFFICIENT = 1e-4  # share of the decrease promised by the slope that a step must deliver
STEP_LENGTHS = tuple(0.5**halvings for halvings in range(13))
GOOD_LENGTH = 0.125  # a shorter step shows that the model does not hold as far as it reaches
STALE_ABOVE = 0.1  # a step that leaves more than this share of the residual asks for a new Hessian
MODEL_ACCURACY = 1e-2  # residual of the model's minimiser, relative to that of the point
ROUNDING = 8.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Progress:
    """Where the steps ended, how many there were, and the last Hessian used."""

    point: Point
    residual: float
    n_iter: int
    hessian: Hessian | None


def proximal_newton(
    heads: LinearHeads, point: Point, tol: float, max_iter: int, hessian: Hessian | None = None
) -> Progress:
    """``argmin F``, from ``point``; the objective never rises.

    Stops when no group or intercept is farther than ``tol`` from optimal, when ``max_iter`` steps are
    spent, or when no step helps any more because only rounding is left.
    """
    previous, n_iter = np.inf, 0
    while True:
        slope = heads.slope(point)
        residual = heads.residual(point, slope)
        if residual <= tol or n_iter == max_iter:
            break
        found = _follow(
            heads, point, slope, residual, hessian if residual <= STALE_ABOVE * previous else None
        )
        if found is None:
            break
        previous, n_iter = residual, n_iter + 1
        point, hessian = found
    return Progress(point, residual, n_iter, hessian)


def _follow(
    heads: LinearHeads, point: Point, slope: Slope, residual: float, last: Hessian | None
) -> tuple[Point, Hessian] | None:
    """The next point and the Hessian that led there: the last one if it serves, else a new one.

    Far from the optimum, where logistic curvature has died out, Newton's step is far too long. Then it is
    compared with the minimiser of parabolas that lie above the fits, which cannot be worse than ``point``.
    """
    if last is not None:
        step = _step(heads, point, slope, last, residual)
        if step is not None and step[1] >= GOOD_LENGTH:
            return step[0], last
    new = heads.hessian(point)
    step = _step(heads, point, slope, new, residual)
    if step is not None and step[1] >= GOOD_LENGTH:
        return step[0], new
    above = heads.hessian(point, majorise=True)
    other = _step(heads, point, slope, above, residual)
    if step is None or (other is not None and other[0].value < step[0].value):
        return None if other is None else (other[0], above)
    return step[0], new


# A step that is far too long may overflow: it is then refused like any other that does not help.
@np.errstate(over="ignore", invalid="ignore")
def _step(
    heads: LinearHeads, point: Point, slope: Slope, hessian: Hessian, residual: float
) -> tuple[Point, float] | None:
    """A lower point towards the model's minimiser and how far it is on the way, or None if there is none."""
    coef, drift = _model_minimiser(heads, point, slope, hessian, MODEL_ACCURACY * residual)
    move = coef - point.coef
    promised = float(np.sum(slope.coef * move) + slope.intercept @ drift)
    promised += heads.price(coef) - heads.price(point.coef)
    if not np.isfinite(promised):
        return None
    path = heads.scores(move) + drift[:, None]
    full = _walk(heads, point, coef, drift, path, 1.0)
    rounding = ROUNDING * (abs(point.value) + float(np.abs(point.pulls * point.scores).sum()))
    if abs(promised) <= rounding:
        # The objective no longer tells better from worse; the residual does.
        level = full.value <= point.value + rounding
        return (full, 1.0) if level and heads.residual(full, heads.slope(full)) <= 0.5 * residual else None
    for length in STEP_LENGTHS:
        following = full if length == 1.0 else _walk(heads, point, coef, drift, path, length)
        if promised < 0.0 and following.value <= point.value + SUFFICIENT * length * promised:
            return following, length
    return None


def _model_minimiser(
    heads: LinearHeads, point: Point, slope: Slope, hessian: Hessian, tol: float
) -> tuple[Floats, Floats]:
    """Coefficients where the model is least, and the move of the intercepts that goes with them."""
    means, totals = hessian.means, hessian.totals
    followed = slope.coef - means * slope.intercept[:, None]
    centred = hessian.centred(heads.l2)
    coef = minimise_model(centred, followed, point.coef, heads.first, heads.penalties, tol)
    own = np.divide(slope.intercept, totals, out=np.zeros_like(totals), where=totals > 0.0)
    return coef, -own - np.sum(means * (coef - point.coef), axis=1)


def _walk(
    heads: LinearHeads, point: Point, coef: Floats, drift: Floats, path: Floats, length: float
) -> Point:
    """The point ``length`` of the way to ``coef``; a whole step keeps its exact zeros."""
    coef = coef if length == 1.0 else point.coef + length * (coef - point.coef)
    return heads.with_scores(coef, point.intercept + length * drift, point.scores + length * path)
