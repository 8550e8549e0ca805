"""The contract every family of pairs (g, f1) fulfils."""

from typing import Any, Protocol, Self

from thrifty.arrays import Floats

__all__ = ["Pair"]


class Pair(Protocol):
    """A gate and a cheap model that share what they buy, while they are being fitted."""

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Fit to labels ``y`` in {-1, +1}, soft ones between, and to shares sent on, given by their log-odds.

        ``weight`` sums to 1. May start from its last state.
        """

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)``, each of shape (n_samples,)."""

    def penalty(self) -> float:
        """What is paid for complexity, the paper's Omega(f1, g) times gamma."""
