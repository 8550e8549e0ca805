"""Results of solvers: the answer, and a certificate of how good it is."""

import warnings
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sklearn.exceptions import ConvergenceWarning

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
    multiplier : float
        Multiplier of the constraint, where there is one: what a unit more of its limit would save.
    """

    value: Value
    residual: float
    n_iter: int
    converged: bool
    multiplier: float = 0.0


def warn_unless_converged(run: Solution[Any], tol: float) -> None:
    """Warn that an alternation did not converge within its rounds, with its residual."""
    if run.converged:
        return
    warnings.warn(
        f"alternate did not reach tol={tol:g} in {run.n_iter} rounds (last change {run.residual:.0e}). "
        f"Raise `max_iter` or `tol` of the options.",
        ConvergenceWarning,
        # This function, the method that reports, _learn, fit of the base class, and then the user.
        stacklevel=5,
    )
