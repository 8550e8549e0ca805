"""One gamma, or many: which solver, and what one solution says about the next."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from thrifty.pruning.closure import Closure
from thrifty.pruning.decomposed import ascend
from thrifty.pruning.exact import solve_linear_program
from thrifty.pruning.pruning import Pruning
from thrifty.solvers.solution import Solution

__all__ = ["SOLVERS", "Solver", "prune_along", "solve"]

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
        solutions[gamma] = replace(
            found,
            value=replace(pruning, kept=kept),
            residual=pruning.gap,
        )
        # What is off by much would leave the others little to be off by, and small cuts do not repay the joining.
        if pruning.gap <= 0.5 * tol and 2 * np.count_nonzero(pruning.kept) < inside.n_splits:
            inside, slack = inside.only(pruning.kept), pruning.gap
    return [solutions[gamma] for gamma in gammas]


def _widened(found: Solution[Pruning], small: Closure, closure: Closure) -> Solution[Pruning]:
    """The solution of a part of the problem as one of the whole."""
    kept = np.zeros(closure.n_splits, bool)
    kept[np.searchsorted(closure.splits, small.splits[found.value.kept])] = True
    return replace(found, value=replace(found.value, kept=kept))
