"""A pruning of a forest, and what is known about how good it is."""

from dataclasses import dataclass

from thrifty.arrays import Bools
from thrifty.pruning.closure import Closure

__all__ = ["Pruning", "certified"]


@dataclass(frozen=True)
class Pruning:
    """A pruning and its certificate.

    Attributes
    ----------
    kept : ndarray of shape (n_splits,), bool
        The splits that stay.
    objective : float
        ``loss + gamma * spend``.
    bound : float
        No pruning of this forest has a smaller objective.
    loss : float
        Mean loss of the trees' own answers on the rows that decided.
    spend : float
        Mean price of the purchases that those rows need.
    """

    kept: Bools
    objective: float
    bound: float
    loss: float
    spend: float

    @property
    def gap(self) -> float:
        """How far from optimal this pruning can be at most."""
        return self.objective - self.bound


def certified(closure: Closure, kept: Bools, bound: float, gamma: float) -> Pruning:
    """The pruning with its loss and spend; a bound that passes the objective by a rounding is the objective."""
    loss, spend = closure.evaluate(kept)
    objective = loss + gamma * spend
    return Pruning(kept, objective, min(bound, objective), loss, spend)
