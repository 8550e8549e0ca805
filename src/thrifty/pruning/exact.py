"""The linear program of pruning, by HiGHS.

Exact, for problems of up to some ten thousand arcs; beyond, minutes pass. The bound does not come from HiGHS but from
its multipliers, by way of the trees.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from thrifty.exceptions import ThriftyError
from thrifty.pruning.closure import Closure
from thrifty.pruning.pruning import Pruning, certified
from thrifty.solvers.solution import Solution

__all__ = ["solve_linear_program"]


def solve_linear_program(closure: Closure, gamma: float, *, tol: float = 1e-6) -> Solution[Pruning]:
    """Best pruning as a vertex of the relaxation.

        min_{0 <= x, w <= 1}   gamma price'w - gain'x   such that   x_h <= x_parent(h),   x_h <= w_k for arcs (h, k)

    ``residual`` is the gap between the objective of the rounded vertex and the bound from its multipliers.
    """
    n_splits, n_purchases = closure.n_splits, len(closure.price)
    if not n_splits:
        return Solution(certified(closure, np.zeros(0, bool), closure.loss, gamma), 0.0, 0, True)
    child = np.flatnonzero(closure.parent >= 0)
    lower = np.concatenate([child, closure.tail])
    upper = np.concatenate([closure.parent[child], n_splits + closure.need])
    found = linprog(
        np.concatenate([-closure.gain(gamma), gamma * closure.price]),
        A_ub=_at_most(lower, upper, n_splits + n_purchases),
        b_ub=np.zeros(len(lower)),
        bounds=(0.0, 1.0),
        method="highs",
    )
    if found.x is None:
        raise ThriftyError(f"HiGHS found no pruning: {found.message} Use solver='decomposed'.")
    kept = found.x[:n_splits] > 0.5
    bound = closure.bound(-found.ineqlin.marginals[len(child) :], gamma)
    pruning = certified(closure, kept, bound, gamma)
    return Solution(pruning, pruning.gap, int(found.nit), pruning.gap <= tol)


def _at_most(lower: NDArray[np.intp], upper: NDArray[np.intp], n_variables: int) -> csr_array:
    """One line per pair: the first minus the second."""
    n_lines = len(lower)
    values = np.tile([1.0, -1.0], n_lines)
    columns = np.column_stack([lower, upper]).ravel()
    return csr_array((values, columns, np.arange(0, 2 * n_lines + 1, 2)), shape=(n_lines, n_variables))
