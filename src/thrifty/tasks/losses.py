"""The logistic loss of a score, its second derivative, and the loss added by answering cheaply.

The paper uses one loss throughout: ``loss(y, f) = log(1 + exp(-y f))`` with ``y`` in {-1, +1}.
A *soft* label ``target`` in [0, 1] mixes the two: it is what the gate is fitted to, whose
"label" is the share ``q`` of a row that should be sent on.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats

__all__ = [
    "excess_loss",
    "log_loss_of_probability",
    "logistic_hessian",
    "logistic_loss",
    "soft_logistic_loss",
    "softplus",
]


def softplus(score: ArrayLike) -> Floats:
    """``log(1 + exp(score))`` without overflow: it grows like ``score`` and decays to exactly 0."""
    return np.logaddexp(0.0, score, dtype=np.float64)


def logistic_loss(y: ArrayLike, score: ArrayLike) -> Floats:
    """``log(1 + exp(-y score))`` for labels ``y`` in {-1, +1}."""
    return softplus(-np.multiply(y, score))


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
