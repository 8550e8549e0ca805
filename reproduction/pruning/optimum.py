"""The best pruning at one gamma or at many: which solver, and what one solution says about the next.

The linear program, by HiGHS, is for problems of up to some ten thousand arcs; beyond, minutes pass. Its bound does not
come from HiGHS but from its multipliers, by way of the trees.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from reproduction.pruning.closure import Closure, Pruning
from reproduction.pruning.mirror_ascent import ascend
from thrifty.arrays import Ints
from thrifty.errors import ThriftyError
from thrifty.learners.dynamod.objective import Solution

__all__ = ["SOLVERS", "Solver", "prune_along", "solve", "solve_linear_program"]

Solver = Literal["auto", "lp", "decomposed"]
SOLVERS = ("auto", "lp", "decomposed")

_MODERATE = 200_000
"""Arcs that the linear program takes some seconds for."""


def solve(
    closure: Closure, gamma: float, solver: Solver = "auto", *, tol: float = 1e-6, max_iter: int = 1000
) -> Solution[Pruning]:
    """Best pruning at one gamma, as a mask over the closure's splits.

    ``"auto"`` shares prices among trees, which is the faster way at every size that was measured, and turns to the
    linear program where that did not reach ``tol`` and few enough splits are left in question.
    """
    if solver == "lp":
        small = closure.narrowed(gamma)
        return _widened(solve_linear_program(small, gamma, tol=tol), small, closure)
    found, alive = ascend(closure, gamma, tol=tol, max_iter=max_iter)
    if solver == "decomposed" or found.converged:
        return found
    small = closure.only(alive)
    if small.n_arcs > _MODERATE:
        return found
    return _widened(solve_linear_program(small, gamma, tol=tol), small, closure)


def prune_along(
    closure: Closure,
    gammas: Sequence[float],
    n_splits: int,
    solver: Solver = "auto",
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> list[Solution[Pruning]]:
    """Best prunings at several gammas, in the order given, as masks over all ``n_splits`` splits of the forest.

    Optimal prunings are nested: what is cut at one gamma is cut at every larger one. So gammas are solved from the
    smallest up, and once fewer than half of the splits are kept, the next ones are solved among these. A solution that
    is off by ``e`` can spoil those after it by at most ``e``, which is added to their gap; so ``tol`` holds for all.
    """
    solutions: dict[float, Solution[Pruning]] = {}
    inside, slack = closure, 0.0
    for gamma in sorted(set(gammas)):
        found = solve(inside, gamma, solver, tol=tol - slack, max_iter=max_iter)
        pruning = replace(found.value, bound=found.value.bound - slack)
        kept = np.zeros(n_splits, bool)
        kept[inside.splits[pruning.kept]] = True
        solutions[gamma] = replace(found, value=replace(pruning, kept=kept), residual=pruning.gap)
        # What is off by much would leave the others little to be off by, and small cuts do not repay the joining.
        if pruning.gap <= 0.5 * tol and 2 * np.count_nonzero(pruning.kept) < inside.n_splits:
            inside, slack = inside.only(pruning.kept), pruning.gap
    return [solutions[gamma] for gamma in gammas]


def _widened(found: Solution[Pruning], small: Closure, closure: Closure) -> Solution[Pruning]:
    """Solution of the whole problem from that of a part of it."""
    kept = np.zeros(closure.n_splits, bool)
    kept[np.searchsorted(closure.splits, small.splits[found.value.kept])] = True
    return replace(found, value=replace(found.value, kept=kept))


def solve_linear_program(closure: Closure, gamma: float, *, tol: float = 1e-6) -> Solution[Pruning]:
    """Best pruning by the linear program, as a vertex of the relaxation.

        min_{0 <= x, w <= 1}   gamma price'w - gain'x   such that   x_h <= x_parent(h),   x_h <= w_k for arcs (h, k)

    ``residual`` is the gap between the objective of the rounded vertex and the bound from its multipliers.
    """
    n_splits, n_purchases = closure.n_splits, len(closure.price)
    if not n_splits:
        return Solution(closure.certified(np.zeros(0, bool), closure.loss, gamma), 0.0, 0, True)
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
    pruning = closure.certified(kept, bound, gamma)
    return Solution(pruning, pruning.gap, int(found.nit), pruning.gap <= tol)


def _at_most(lower: Ints, upper: Ints, n_variables: int) -> csr_array:
    """Matrix of the constraints ``lower <= upper``: one line per pair, the first minus the second."""
    n_lines = len(lower)
    values = np.tile([1.0, -1.0], n_lines)
    columns = np.column_stack([lower, upper]).ravel()
    return csr_array((values, columns, np.arange(0, 2 * n_lines + 1, 2)), shape=(n_lines, n_variables))
