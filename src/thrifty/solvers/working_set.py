"""Working sets: solve for the groups that matter, check the rest, let in those that would help.

At the optimum most groups are zero, and a group that stays zero need only be looked at, once a round,
through its gradient. Newton steps, and their Hessians, are taken on the others alone.
"""

from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Bools
from thrifty.solvers.curvature import Hessian
from thrifty.solvers.group_newton import group_norms
from thrifty.solvers.linear_heads import LinearHeads, Point, Slope
from thrifty.solvers.proximal_newton import proximal_newton

__all__ = ["Descent", "WorkingSet", "descend", "descend_on"]


FEWEST_NEWCOMERS = 10
LOOSE = 0.1  # accuracy of a working set that may still grow, relative to the residual of all groups


@dataclass(frozen=True)
class WorkingSet:
    """The groups being solved for, the problem restricted to them, and the last Hessian there."""

    groups: Bools
    heads: LinearHeads
    hessian: Hessian | None = None

    @classmethod
    def of(cls, heads: LinearHeads, groups: Bools, last: "WorkingSet | None" = None) -> "WorkingSet":
        """The problem on ``groups``, with as much of the ``last`` one's work as still serves."""
        if last is None or last.hessian is None:
            return cls(groups, heads.restrict(groups))
        if np.array_equal(groups, last.groups):
            return cls(groups, replace(last.heads, penalties=heads.penalties[groups]), last.hessian)
        inner, sizes = heads.restrict(groups), np.diff(heads.first)
        old, new = np.repeat(last.groups, sizes), np.repeat(groups, sizes)
        return cls(groups, inner, last.hessian.carried(inner.X, kept=new[old], known=old[new]))


@dataclass(frozen=True)
class Descent:
    """Where a descent ended, its KKT residual, its steps, and the working set to go on from."""

    point: Point
    residual: float
    n_iter: int
    last: WorkingSet | None = None


def descend(
    heads: LinearHeads, point: Point, tol: float, max_iter: int, last: WorkingSet | None = None
) -> Descent:
    """``argmin F``, from ``point``: Newton steps on a growing set of groups, until those left out agree."""
    n_iter, groups = 0, np.zeros(len(heads.penalties), dtype=bool)
    while True:
        slope = heads.slope(point)
        residual = heads.residual(point, slope)
        if residual <= tol or n_iter >= max_iter:
            break
        groups = groups | _worth_solving(heads, point, slope, tol)
        goal = 0.9 * tol if groups.all() else max(0.9 * tol, LOOSE * residual)
        found = descend_on(WorkingSet.of(heads, groups, last), heads, point, goal, max_iter - n_iter)
        if found.n_iter == 0:
            break  # only rounding is left
        point, last, n_iter = found.point, found.last, n_iter + found.n_iter
    return Descent(point, residual, n_iter, last)


def descend_on(work: WorkingSet, heads: LinearHeads, point: Point, tol: float, max_iter: int) -> Descent:
    """``argmin F`` over the groups of a working set; the other groups of ``point`` must be zero."""
    columns = heads.columns_of(work.groups)
    part = replace(point, coef=np.ascontiguousarray(point.coef[:, columns]))
    progress = proximal_newton(work.heads, part, tol, max_iter, work.hessian)
    coef = np.zeros_like(point.coef)
    coef[:, columns] = progress.point.coef
    return Descent(
        replace(progress.point, coef=coef),
        progress.residual,
        progress.n_iter,
        replace(work, hessian=progress.hessian),
    )


def _worth_solving(heads: LinearHeads, point: Point, slope: Slope, tol: float) -> Bools:
    """Groups in use or free, and the worst of those that are zero but should not be."""
    inside = (group_norms(point.coef, heads.first) > 0.0) | (heads.penalties == 0.0)
    excess = np.where(inside, 0.0, heads.residuals(point, slope))
    order = np.argsort(-excess / np.where(inside, 1.0, heads.penalties), kind="stable")
    newcomers = order[: max(FEWEST_NEWCOMERS, 2 * int(inside.sum()))]
    inside[newcomers[excess[newcomers] > tol]] = True
    return np.asarray(inside)
