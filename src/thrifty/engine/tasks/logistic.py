"""Logistic loss of labels and of soft labels, its derivatives, and calibration by logistic regression.

The paper uses one loss throughout, ``loss(y, f) = log(1 + exp(-y f))`` with ``y`` in {-1, +1}. A *soft* label q in
[0, 1] mixes the losses of both labels; gates are fitted to such labels, the share of a row that should be sent on:

    loss(q, s) = q log(1 + exp(-s)) + (1 - q) log(1 + exp(s)),     d loss / ds = expit(s) - q

Calibration is a logistic regression on a few scores, by Newton's method:

    argmin over (a, b)   sum_i w_i log(1 + exp(-y_i (a + b . s_i)))  +  ridge / 2 |b|^2      (s in units of its spread)

With one score this is Platt's sigmoid; with two it blends two models. The small ridge keeps the solution finite where
the scores separate the classes.

Compiled code computes the derivatives of two losses itself, weighted and rounded, where trees grow: those of the
logistic one, and of the squared one, ``loss(q, s) = 1/2 (s - q)^2``. Boosting asks for the gradient and the hessian at
every tree, and a tree over 12,000 rows takes less than a millisecond (`python benchmarks/engine.py`). As array
expressions, with three exponentials a row, they would take about as long. So the exponential is written out, for
several rows at once:

    exp(t) = 2^k exp(r),     k = round(t / log 2),     |r| <= log(2) / 2,     exp(r) by its series to r^13

Only ``t = -|s|`` is needed: with ``e = exp(t)`` the two sides are ``1 / (1 + e)`` and ``e / (1 + e)``, neither of them
one minus the other. Errors stay below four units in the last place down to ``s = -708``, where ``e`` ends.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats, Int64s
from thrifty.jit import Number, fused, fused_kernel

LOGISTIC, SQUARED = 2, 3
BLOCK = 256  # rows whose numbers stay in the nearest cache from one loop to the next
LOWEST = -708.0  # where exp leaves the normal numbers
PER_LOG_2 = 1.0 / math.log(2.0)
# log 2 in two parts, the first with room for an exact multiple.
LOG_2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LOG_2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
ROUNDS = 1.5 * 2.0**52  # added and taken away again, it leaves a whole number
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1.0 / math.factorial(k) for k in range(2, 14))


class Formula(NamedTuple):
    """A loss of one score that is computed where trees grow: nothing but its name and its targets is needed.

    Attributes
    ----------
    kind : int
        ``LOGISTIC`` or ``SQUARED``.
    target : ndarray of shape (n_rows,)
        Probability of class +1, or the number to be met.
    """

    kind: int
    target: Floats


@fused
def exponential(t: Number) -> tuple[Number, Number]:
    """``exp(t)`` for ``t <= 0`` as two factors: the second is a power of two, given by the bits of that number."""
    t = LOWEST if t < LOWEST else t
    k = (t * PER_LOG_2 + ROUNDS) - ROUNDS
    r = (t - k * LOG_2_HIGH) - k * LOG_2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = ((1.0 + r) + (C2 + r * C3) * r2) + ((C4 + r * C5) + (C6 + r * C7) * r2) * r4
    high = ((C8 + r * C9) + (C10 + r * C11) * r2) + (C12 + r * C13) * r4
    return low + high * (r4 * r4), (np.int64(k) + 1023) << 52


@fused_kernel
def write_derivatives(target: Floats, score: Floats, bits: Int64s, grad: Floats, curvature: Floats) -> None:
    """Write both derivatives; ``bits`` are those of ``grad``, where numbers 2^k are put together on the way."""
    for begin in range(0, len(score), BLOCK):
        s, q, power = score[begin : begin + BLOCK], target[begin : begin + BLOCK], bits[begin : begin + BLOCK]
        gradient, hessian = grad[begin : begin + BLOCK], curvature[begin : begin + BLOCK]
        for i in range(len(s)):
            hessian[i], power[i] = exponential(-abs(s[i]))
        for i in range(len(s)):
            e = hessian[i] * gradient[i]
            large = 1.0 / (1.0 + e)
            small = e * large
            hessian[i] = small * large
            up, down = (large, small) if s[i] >= 0.0 else (small, large)
            gradient[i] = -down if q[i] == 1.0 else up - q[i]


# -- losses and calibration ------------------------------------------------------------------------


def softplus(score: ArrayLike) -> Floats:
    """``log(1 + exp(score))`` without overflow: it grows like ``score`` and decays to exactly 0."""
    return np.logaddexp(0.0, score, dtype=np.float64)


def logistic_hessian(score: ArrayLike) -> Floats:
    """Second derivative of the logistic loss in the score; it does not depend on the label."""
    return np.asarray(expit(score) * expit(np.negative(score)), dtype=np.float64)


def soft_logistic_loss(target: ArrayLike, score: ArrayLike) -> Floats:
    """``target * log(1 + exp(-score)) + (1 - target) * log(1 + exp(score))``, target in [0, 1].

    With ``target = (y + 1) / 2`` this is the logistic loss of ``y``. Written as
    ``softplus(score) - target * score`` it would subtract two large numbers at extreme
    scores, so it is not.
    """
    target = np.asarray(target, dtype=np.float64)
    return target * softplus(np.negative(score)) + (1.0 - target) * softplus(score)


def log_loss_of_probability(y: ArrayLike, probability: ArrayLike) -> Floats:
    """``-log p(y)`` where ``probability`` is that of class +1; the caller has clipped it away from 0 and 1."""
    probability = np.asarray(probability, dtype=np.float64)
    return -np.log(np.where(np.asarray(y) > 0, probability, 1.0 - probability))


def excess_loss(cheap_loss: ArrayLike, full_loss: ArrayLike) -> Floats:
    """Loss added by answering cheaply, ``l(f1) - l(f0)`` per row; negative where f1 does better."""
    return np.subtract(cheap_loss, full_loss, dtype=np.float64)


def logistic_derivatives(target: Floats, score: Floats) -> tuple[Floats, Floats]:
    """``expit(score) - target`` and ``expit(score) expit(-score)``, for targets in [0, 1]."""
    grad, curvature = np.empty(len(score)), np.empty(len(score))
    write_derivatives(target, score, grad.view(np.int64), grad, curvature)
    return grad, curvature


RIDGE = 0.1
_STEPS, _SMALL = 50, 1e-12


def logistic_weights(scores: Floats, y: Floats, weight: Floats) -> Floats:
    """Intercept and slopes, shape (1 + n_scores,), of the regression of labels -1 / +1 on some scores."""
    middle = np.average(scores, axis=0, weights=weight)
    spread = np.sqrt(np.average(np.square(scores - middle), axis=0, weights=weight))
    scale = np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(y)), (scores - middle) / scale])
    ridge = np.diag([1e-9, *np.full(scores.shape[1], RIDGE)])
    solution = _newton(design, (y > 0).astype(np.float64), weight, ridge)
    slopes = solution[1:] / scale
    return np.r_[solution[0] - slopes @ middle, slopes]


def platt(score: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Slope and intercept of the sigmoid that makes log-odds of one score; the slope is never negative."""
    intercept, slope = logistic_weights(score[:, None], y, weight)
    if slope > 0:
        return float(slope), float(intercept)
    share = float(np.average(y > 0, weights=weight))
    return 0.0, float(np.log(share) - np.log1p(-share)) if 0 < share < 1 else 0.0


def _newton(design: Floats, target: Floats, weight: Floats, ridge: Floats) -> Floats:
    """Weights of a logistic regression with a ridge."""

    def value(at: Floats) -> float:
        score = design @ at
        return float(weight @ (np.logaddexp(0.0, score) - target * score) + at @ ridge @ at / 2)

    def step(at: Floats) -> Floats:
        share = expit(design @ at)
        gradient = design.T @ (weight * (share - target)) + ridge @ at
        curvature = (design * (weight * share * (1 - share))[:, None]).T @ design + ridge
        return newton_step(curvature, gradient)

    return newton_minimum(value, step, np.zeros(design.shape[1]))


def newton_minimum(
    value: Callable[[Floats], float], step: Callable[[Floats], Floats], start: Floats
) -> Floats:
    """Newton's method: steps are halved until the value falls."""
    now, best = start, value(start)
    for _ in range(_STEPS):
        change, size = step(now), 1.0
        while size > _SMALL and value(now - size * change) > best:
            size /= 2
        now = now - size * change
        before, best = best, value(now)
        if before - best <= _SMALL * max(abs(best), 1.0):
            break
    return now


def newton_step(hessian: Floats, gradient: Floats) -> Floats:
    """Solve for a Newton step; the shortest one where weights are so large that the ridge is lost beside them."""
    try:
        return np.asarray(np.linalg.solve(hessian, gradient), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(hessian, gradient)[0], dtype=np.float64)
