"""The terms of (OPT2): distances between shares and gates, and data fits of linear models.

*Distances* between the gate's log-odds ``g`` and the wanted share ``q`` of a row sent on:

    KL       D(q, g) = q log(q / expit(g)) + (1 - q) log((1 - q) / expit(-g))
    squared  D(q, g) = (t - g)^2

Both are written in the *log-odds* of ``q``, ``t = log(q / (1 - q))``, because a share that rounds to 0 or 1 still has
well-defined log-odds: at ``t = -1e4`` the share is exactly 0.0 in floating point, and the squared distance would be
infinite if it were computed from ``q``.

*Data fits* are the smooth terms of (OPT4), (OPT6) and (OPT7): convex functions of one score per row, or of one for each
class. A fit carries its own ``weight`` per row, which already contains the ``1 / N`` of the paper's means, so nothing
here divides by the number of rows. With sample weights ``s`` that sum to 1 (``1 / N`` each when rows count alike):

    gate, KL distance        LogisticFit(target=q,           weight=s)
    gate, squared distance   SquaredFit(target=log-odds q,   weight=s)
    cheap model              LogisticFit(target=(y + 1) / 2, weight=s * (1 - q))
    ... of several classes   SoftmaxFit(target=[y = k],      weight=s * (1 - q))

Each has its value and derivatives at some scores; ``majorant``, the second derivative, per row, of a parabola that
touches the fit there and lies above it; ``best_intercept``, the constant score that fits best; and
``needs_no_coefficients``, whether that is a global optimum already, so that no coefficient can earn its price.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from scipy.special import expit, logsumexp, softmax

from thrifty.arrays import Floats
from thrifty.engine.tasks.logistic import logistic_hessian, soft_logistic_loss, softplus
from thrifty.errors import InvalidInputError

NEVER = -40.0
"""Log-odds of a share of practically 0: expit(-40) = 4e-18 is below rounding next to 1, and still finite."""

DistanceName = Literal["kl", "squared"]


Distance = Callable[[Floats, Floats], Floats]
"""Distance of each row between a share, given by its log-odds ``t``, and a gate score ``g``: ``distance(t, g)``."""


def entropy_of_log_odds(t: Floats) -> Floats:
    """Entropy ``H(q)`` of a share with log-odds ``t``, exact in both tails, 0 at infinite odds."""
    t = np.abs(t)
    # H = softplus(t) - q t; with s = expit(-t) the small side, H = s t + log1p(exp(-t)).
    with np.errstate(invalid="ignore"):
        tail = np.where(np.isinf(t), 0.0, expit(-t) * t)
    return np.asarray(tail + softplus(-t), dtype=np.float64)


def kl_divergence(t: Floats, g: Floats) -> Floats:
    """``KL(q || expit(g))`` per row: the paper's distance for DynaMod-Lin and DynaMod-Gbrt; q may be exactly 0 or 1."""
    return soft_logistic_loss(expit(t), g) - entropy_of_log_odds(t)


def squared_distance(t: Floats, g: Floats) -> Floats:
    """``(log-odds of q - g)^2`` per row: the paper's symmetrised distance (appendix, DynaMod-Lstsq)."""
    return np.square(t - g)


DISTANCES: dict[DistanceName, Distance] = {"kl": kl_divergence, "squared": squared_distance}


def check_distance(name: str) -> DistanceName:
    """Return ``name`` if it is that of a distance, else raise an error that lists them."""
    if name not in DISTANCES:
        raise InvalidInputError(f"distance must be {' or '.join(map(repr, DISTANCES))}; got {name!r}.")
    return name


# Log-odds at which the logistic loss of a certain target, exp(-40) = 4e-18, no longer registers
# beside 1 in double precision. A fit whose best constant lies farther out is stopped here.
FARTHEST_INTERCEPT = -NEVER


@dataclass(frozen=True)
class _SingleFit:
    """Base class of the fits of one head.

    Attributes
    ----------
    target : ndarray of shape (n_samples,)
        The wanted score, or the wanted probability of a positive one, in [0, 1].
    weight : ndarray of shape (n_samples,)
        What each row counts, ``1 / N`` included.
    """

    target: Floats
    weight: Floats

    n_heads: ClassVar[int] = 1


class LogisticFit(_SingleFit):
    """Logistic loss: ``sum_i weight_i [target_i log(1 + exp(-s_i)) + (1 - target_i) log(1 + exp(s_i))]``."""

    @property
    def needs_no_coefficients(self) -> bool:
        """True if every row that counts wants the same certain answer, or no row counts.

        The infimum, 0, is then at an infinite intercept for any coefficients; at the farthest
        intercept with coefficients of exactly 0 the fit is within 1e-17 of it and pays for nothing.
        """
        return self.weight.sum() == 0.0 or abs(self.best_intercept()) == FARTHEST_INTERCEPT

    def value(self, score: Floats) -> float:
        """The weighted logistic loss, finite at every finite score."""
        # One exp and one log1p serve both sides: softplus(s) = log1p(exp(-|s|)) + max(s, 0). Nothing is
        # subtracted, so no digits are lost at large scores.
        loss = np.log1p(np.exp(-np.abs(score)))
        loss += self.target * np.maximum(-score, 0.0)
        loss += (1.0 - self.target) * np.maximum(score, 0.0)
        return float(self.weight @ loss)

    def gradient(self, score: Floats) -> Floats:
        """Derivative in the score of each row, ``weight (expit(s) - target)``."""
        return np.asarray(self.weight * (expit(score) - self.target), dtype=np.float64)

    def hessian(self, score: Floats) -> Floats:
        """Second derivative in the score of each row, ``weight expit(s) expit(-s)``."""
        return self.weight * logistic_hessian(score)

    def majorant(self, score: Floats) -> Floats:
        """``weight tanh(s / 2) / (2 s)``: the bound of Jaakkola and Jordan, ``weight / 4`` at s = 0.

        Unlike the second derivative it decays only like ``1 / |s|``, so a step from a score of 1e4 on the
        wrong side is long enough and never too long.
        """
        size = np.abs(score)
        small = size < 1e-3
        far = np.where(small, 1.0, size)
        ratio = np.where(
            small, 0.25 - np.square(np.minimum(size, 1e-3)) / 48.0, np.tanh(0.5 * far) / (2.0 * far)
        )
        return np.asarray(self.weight * ratio, dtype=np.float64)

    def best_intercept(self) -> float:
        """Log-odds of the weighted mean target, kept within the farthest intercept; 0 if no row counts."""
        ones, zeros = float(self.weight @ self.target), float(self.weight @ (1.0 - self.target))
        if ones == 0.0 and zeros == 0.0:
            return 0.0
        with np.errstate(divide="ignore"):
            log_odds = np.log(ones) - np.log(zeros)
        return float(np.clip(log_odds, -FARTHEST_INTERCEPT, FARTHEST_INTERCEPT))


class SquaredFit(_SingleFit):
    """Squared loss: ``sum_i weight_i (target_i - s_i)^2``."""

    @property
    def needs_no_coefficients(self) -> bool:
        """True if no row counts."""
        return bool(self.weight.sum() == 0.0)

    def value(self, score: Floats) -> float:
        """The weighted sum of squared differences."""
        return float(self.weight @ np.square(self.target - score))

    def gradient(self, score: Floats) -> Floats:
        """Derivative in the score of each row, ``2 weight (s - target)``."""
        return 2.0 * self.weight * (score - self.target)

    def hessian(self, score: Floats) -> Floats:
        """Second derivative in the score of each row, ``2 weight`` everywhere."""
        return 2.0 * self.weight + np.zeros_like(score)

    def majorant(self, score: Floats) -> Floats:
        """The second derivative itself: the fit is a parabola."""
        return self.hessian(score)

    def best_intercept(self) -> float:
        """The weighted mean target; 0 if no row counts."""
        total = float(self.weight.sum())
        return float(self.weight @ self.target) / total if total > 0.0 else 0.0


@dataclass(frozen=True)
class SoftmaxFit:
    """Logarithmic loss of a softmax: ``sum_i weight_i [log sum_k exp(s_ki) - sum_k target_ki s_ki]``.

    A common shift of the scores of a row changes nothing, so that the second derivative has a direction of zeros.

    Attributes
    ----------
    target : ndarray of shape (n_classes, n_samples)
        The wanted probability of each class; those of a row sum to 1.
    weight : ndarray of shape (n_samples,)
        What each row counts, ``1 / N`` included.
    """

    target: Floats
    weight: Floats

    @property
    def n_heads(self) -> int:
        """Scores per row, one for each class."""
        return len(self.target)

    @property
    def needs_no_coefficients(self) -> bool:
        """True if every row that counts is of one class for certain, or no row counts."""
        return int(np.count_nonzero(self.target @ self.weight)) <= 1

    def value(self, score: Floats) -> float:
        """The weighted loss at scores of shape (n_classes, n_samples)."""
        loss = logsumexp(score, axis=0) - np.einsum("ki,ki->i", self.target, score)
        return float(self.weight @ loss)

    def gradient(self, score: Floats) -> Floats:
        """Derivative in every score, ``weight (p - target)``, shape (n_classes, n_samples)."""
        return np.asarray(self.weight * (softmax(score, axis=0) - self.target), dtype=np.float64)

    def hessian(self, score: Floats) -> tuple[Floats, Floats]:
        """Second derivative ``diag(d_i) - u_i u_i'`` of each row: ``d = weight p`` and ``u = sqrt(weight) p``."""
        p = np.asarray(softmax(score, axis=0))
        return self.weight * p, np.sqrt(self.weight) * p

    def majorant(self, score: Floats) -> tuple[Floats, Floats]:
        """``weight / 2 (I - 1 1' / n_classes)``, the bound of Boehning, in the same form."""
        flat = np.ones_like(score)
        return 0.5 * self.weight * flat, np.sqrt(0.5 * self.weight / len(score)) * flat

    def best_intercept(self) -> Floats:
        """Log-shares of the classes, with mean 0, none farther from the largest than ``FARTHEST_INTERCEPT``."""
        total = self.target @ self.weight
        if not total.any():
            return np.zeros(len(total))
        log_share = np.log(np.maximum(total / total.max(), np.exp(-FARTHEST_INTERCEPT)))
        return np.asarray(log_share - log_share.mean())


AnyFit = LogisticFit | SquaredFit | SoftmaxFit


Value = TypeVar("Value")


@dataclass(frozen=True)
class Solution(Generic[Value]):
    """An answer, its residual, and whether the solver converged.

    Attributes
    ----------
    value : object
        The minimiser.
    residual : float
        How far from optimal it can be at most, in the solver's own measure: a KKT residual,
        a duality gap or a last change. The solver's docstring says which.
    n_iter : int
        Iterations spent.
    converged : bool
        Whether ``residual`` fell below the tolerance asked for. Solvers never warn; estimators do.
    multiplier : float, or ndarray of shape (n_resources,)
        Multiplier of the constraint, where there is one: what a unit more of its limit would save.
    """

    value: Value
    residual: float
    n_iter: int
    converged: bool
    multiplier: Any = 0.0
