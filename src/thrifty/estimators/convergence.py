"""The one warning of every alternation that was cut off."""

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from thrifty.solvers.solution import Solution

__all__ = ["warn_unless_converged"]


def warn_unless_converged(run: Solution[Any], tol: float) -> None:
    """Tell the caller of ``fit`` that the rounds ran out, and how far from done they were."""
    if run.converged:
        return
    warnings.warn(
        f"alternate did not reach tol={tol:g} in {run.n_iter} rounds (last change {run.residual:.0e}). "
        f"Raise `max_iter` or `tol`.",
        ConvergenceWarning,
        # This function, the method that reports, _learn, fit of the base class, and then the user.
        stacklevel=5,
    )
