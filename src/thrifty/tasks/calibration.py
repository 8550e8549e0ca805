"""From scores to log-odds that mean what they say: logistic regression on a few scores, by Newton's method.

    argmin over (a, b)   sum_i w_i log(1 + exp(-y_i (a + b . s_i)))  +  ridge / 2 |b|^2      (s in units of its spread)

With one score this is Platt's sigmoid; with two it blends two models. The little ridge keeps the answer finite where
the scores separate the classes.
"""

import numpy as np
from scipy.special import expit

from thrifty.arrays import Floats

__all__ = ["logistic_weights", "platt"]


RIDGE = 0.1
_STEPS, _SMALL = 50, 1e-12


def logistic_weights(scores: Floats, y: Floats, weight: Floats) -> Floats:
    """Intercept and slopes, shape (1 + n_scores,), of the regression of labels -1 / +1 on some scores."""
    middle = np.average(scores, axis=0, weights=weight)
    spread = np.sqrt(np.average(np.square(scores - middle), axis=0, weights=weight))
    scale = np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(y)), (scores - middle) / scale])
    ridge = np.diag([1e-9, *np.full(scores.shape[1], RIDGE)])
    found = _newton(design, (y > 0).astype(np.float64), weight, ridge)
    slopes = found[1:] / scale
    weights: Floats = np.r_[found[0] - slopes @ middle, slopes]
    return weights


def platt(score: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Slope and intercept of the sigmoid that makes log-odds of one score; the slope is never negative."""
    intercept, slope = logistic_weights(score[:, None], y, weight)
    if slope > 0:
        return float(slope), float(intercept)
    share = float(np.average(y > 0, weights=weight))
    return 0.0, float(np.log(share) - np.log1p(-share)) if 0 < share < 1 else 0.0


def _newton(design: Floats, target: Floats, weight: Floats, ridge: Floats) -> Floats:
    """Newton steps, halved until the loss falls."""
    now = np.zeros(design.shape[1])
    value = _value(design, target, weight, ridge, now)
    for _ in range(_STEPS):
        share = expit(design @ now)
        gradient = design.T @ (weight * (share - target)) + ridge @ now
        curvature = (design * (weight * share * (1 - share))[:, None]).T @ design + ridge
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while size > _SMALL and _value(design, target, weight, ridge, now - size * step) > value:
            size /= 2
        now = now - size * step
        before, value = value, _value(design, target, weight, ridge, now)
        if before - value <= _SMALL * max(abs(value), 1.0):
            break
    return now


def _value(design: Floats, target: Floats, weight: Floats, ridge: Floats, at: Floats) -> float:
    score = design @ at
    return float(weight @ (np.logaddexp(0.0, score) - target * score) + at @ ridge @ at / 2)
