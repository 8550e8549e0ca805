"""How far the gate's log-odds ``g`` are from the wanted share ``q`` of rows sent on.

Both distances are written in the *log-odds* of ``q``, ``t = log(q / (1 - q))``, because a share
that rounds to 0 or 1 still has well-defined log-odds: at ``t = -1e4`` the share is exactly 0.0 in
floating point, and the squared distance would be infinite if it were computed from ``q``.

    KL       D(q, g) = q log(q / expit(g)) + (1 - q) log((1 - q) / expit(-g))
    squared  D(q, g) = (t - g)^2
"""

from typing import Literal, Protocol

import numpy as np
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.tasks.losses import soft_logistic_loss, softplus

__all__ = ["DISTANCES", "KL", "NEVER", "Distance", "Squared", "check_distance", "entropy_of_log_odds"]

NEVER = -40.0
"""Log-odds that stand for "never": expit(-40) = 4e-18 is invisible next to 1, and still finite."""

DistanceName = Literal["kl", "squared"]


class Distance(Protocol):
    """A distance between a share, given by its log-odds ``t``, and a gate score ``g``."""

    def value(self, t: Floats, g: Floats) -> Floats:
        """Distance of each row."""

    def grad_gate(self, t: Floats, g: Floats) -> Floats:
        """Derivative of each row's distance in the gate score ``g``."""

    def grad_log_odds(self, t: Floats, g: Floats) -> Floats:
        """Derivative of each row's distance in the log-odds ``t``."""


def entropy_of_log_odds(t: Floats) -> Floats:
    """Entropy ``H(q)`` of a share with log-odds ``t``, exact in both tails, 0 at infinite odds."""
    t = np.abs(t)
    # H = softplus(t) - q t; with s = expit(-t) the small side, H = s t + log1p(exp(-t)).
    with np.errstate(invalid="ignore"):
        tail = np.where(np.isinf(t), 0.0, expit(-t) * t)
    return np.asarray(tail + softplus(-t), dtype=np.float64)


class KL:
    """``KL(q || expit(g))``: the paper's distance for DynaMod-Lin and DynaMod-Gbrt."""

    def value(self, t: Floats, g: Floats) -> Floats:
        """KL divergence per row; a share of exactly 0 or 1 is allowed."""
        return soft_logistic_loss(expit(t), g) - entropy_of_log_odds(t)

    def grad_gate(self, t: Floats, g: Floats) -> Floats:
        """Derivative in the gate score, ``expit(g) - q``."""
        return np.asarray(expit(g) - expit(t), dtype=np.float64)

    def grad_log_odds(self, t: Floats, g: Floats) -> Floats:
        """Derivative in the log-odds, ``(t - g) q (1 - q)``."""
        return np.asarray((t - g) * expit(t) * expit(-t), dtype=np.float64)


class Squared:
    """``(log-odds of q - g)^2``: the paper's symmetrised distance (appendix, DynaMod-Lstsq)."""

    def value(self, t: Floats, g: Floats) -> Floats:
        """Squared difference of log-odds per row."""
        return np.square(t - g)

    def grad_gate(self, t: Floats, g: Floats) -> Floats:
        """Derivative in the gate score, ``2 (g - t)``."""
        return 2.0 * (g - t)

    def grad_log_odds(self, t: Floats, g: Floats) -> Floats:
        """Derivative in the log-odds, ``2 (t - g)``."""
        return 2.0 * (t - g)


DISTANCES: dict[DistanceName, Distance] = {"kl": KL(), "squared": Squared()}


def check_distance(name: str) -> DistanceName:
    """Return ``name`` if it is that of a distance, else say which ones there are."""
    if name not in DISTANCES:
        known = " or ".join(repr(known) for known in DISTANCES)
        raise InvalidInputError(f"distance must be {known}; got {name!r}.")
    return name
