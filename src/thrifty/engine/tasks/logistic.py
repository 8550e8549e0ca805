"""Logistic loss of labels and of soft labels, its derivatives, and calibration by logistic regression.

The paper uses one loss throughout, ``loss(y, f) = log(1 + exp(-y f))`` with ``y`` in {-1, +1}. A *soft* label q in
[0, 1] mixes the losses of both labels; gates are fitted to such labels, the share of a row that should be sent on:

    loss(q, s) = q log(1 + exp(-s)) + (1 - q) log(1 + exp(s)),     d loss / ds = expit(s) - q

Calibration is a logistic regression on a few scores, by Newton's method:

    argmin over (a, b)   sum_i w_i log(1 + exp(-y_i (a + b . s_i)))  +  ridge / 2 |b|^2      (s in units of its spread)

With one score this is Platt's sigmoid; with two it blends two models. The small ridge keeps the solution finite where
the scores separate the classes.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.engine.tasks.derivatives import write_derivatives


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
