"""What every solver hands back: the answer, and a certificate of how good it is."""

from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Solution"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Solution(Generic[Value]):
    """An answer and what is known about it.

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
    """

    value: Value
    residual: float
    n_iter: int
    converged: bool
