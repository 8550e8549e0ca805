"""Proximal Newton steps for linear heads under a group norm, on a growing working set of groups.

Each step minimises the second-order model of the fits plus the exact norms, then walks towards that
minimiser as far as the objective falls. Steps reuse the last Hessian while it still serves: on tall
tables a Hessian costs several times everything else.

At the optimum most groups are zero, and a group that stays zero need only be looked at, once a round, through
its gradient. Steps, and their Hessians, are taken on the others alone: solve for the groups that matter, check the
rest, let in those that would help.
"""

from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Bools, Floats
from thrifty.dynamod.group_quadratic import group_norms
from thrifty.dynamod.hessians import Gradient, Hessian, JointHessian
from thrifty.dynamod.linear_heads import LinearHeads, Point

__all__ = ["Descent", "WorkingSet", "descend", "descend_on", "proximal_newton"]

SUFFICIENT = 1e-4  # share of the decrease promised by the gradient that a step must deliver
STEP_LENGTHS = tuple(0.5**halvings for halvings in range(13))
GOOD_LENGTH = 0.125  # a shorter step shows that the model does not hold as far as it reaches
STALE_ABOVE = 0.1  # a step that leaves more than this share of the residual asks for a new Hessian
MODEL_ACCURACY = 1e-2  # residual of the model's minimiser, relative to that of the point
ROUNDING = 8.0 * float(np.finfo(np.float64).eps)
FEWEST_NEWCOMERS = 10
LOOSE = 0.1  # accuracy of a working set that may still grow, relative to the residual of all groups


@dataclass(frozen=True)
class WorkingSet:
    """The groups being solved for, the problem restricted to them, and the last Hessian there."""

    groups: Bools
    heads: LinearHeads
    hessian: Hessian | JointHessian | None = None

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
        gradient = heads.gradient(point)
        residual = heads.residual(point, gradient)
        if residual <= tol or n_iter >= max_iter:
            break
        groups = groups | _worth_solving(heads, point, gradient, tol)
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
    found = proximal_newton(work, part, tol, max_iter)
    coef = np.zeros_like(point.coef)
    coef[:, columns] = found.point.coef
    return replace(found, point=replace(found.point, coef=coef))


def _worth_solving(heads: LinearHeads, point: Point, gradient: Gradient, tol: float) -> Bools:
    """Groups in use or free, and the worst of those that are zero but should not be."""
    inside = (group_norms(point.coef, heads.first) > 0.0) | (heads.penalties == 0.0)
    excess = np.where(inside, 0.0, heads.residuals(point, gradient))
    order = np.argsort(-excess / np.where(inside, 1.0, heads.penalties), kind="stable")
    newcomers = order[: max(FEWEST_NEWCOMERS, 2 * int(inside.sum()))]
    inside[newcomers[excess[newcomers] > tol]] = True
    return np.asarray(inside)


def proximal_newton(work: WorkingSet, point: Point, tol: float, max_iter: int) -> Descent:
    """``argmin F`` of a working set, from a ``point`` that holds its groups alone; the objective never rises.

    Stops when no group or intercept is farther than ``tol`` from optimal, when ``max_iter`` steps are
    spent, or when no step helps any more because only rounding is left.
    """
    heads, hessian = work.heads, work.hessian
    previous, n_iter = np.inf, 0
    while True:
        gradient = heads.gradient(point)
        residual = heads.residual(point, gradient)
        if residual <= tol or n_iter == max_iter:
            break
        found = _follow(
            heads, point, gradient, residual, hessian if residual <= STALE_ABOVE * previous else None
        )
        if found is None:
            break
        previous, n_iter = residual, n_iter + 1
        point, hessian = found
    return Descent(point, residual, n_iter, replace(work, hessian=hessian))


def _follow(
    heads: LinearHeads, point: Point, gradient: Gradient, residual: float, last: Hessian | JointHessian | None
) -> tuple[Point, Hessian | JointHessian] | None:
    """The next point and the Hessian that led there: the last one if it serves, else a new one.

    Far from the optimum, where the logistic Hessian has died out, Newton's step is far too long. Then it is
    compared with the minimiser of parabolas that lie above the fits, which cannot be worse than ``point``.
    """
    if last is not None:
        step = _step(heads, point, gradient, last, residual)
        if step is not None and step[1] >= GOOD_LENGTH:
            return step[0], last
    new = heads.hessian(point)
    step = _step(heads, point, gradient, new, residual)
    if step is not None and step[1] >= GOOD_LENGTH:
        return step[0], new
    above = heads.hessian(point, majorise=True)
    other = _step(heads, point, gradient, above, residual)
    if step is None or (other is not None and other[0].value < step[0].value):
        return None if other is None else (other[0], above)
    return step[0], new


# A step that is far too long may overflow: it is then refused like any other that does not help.
@np.errstate(over="ignore", invalid="ignore")
def _step(
    heads: LinearHeads, point: Point, gradient: Gradient, hessian: Hessian | JointHessian, residual: float
) -> tuple[Point, float] | None:
    """A lower point towards the model's minimiser and how far it is on the way, or None if there is none."""
    accuracy = MODEL_ACCURACY * residual
    coef, drift = hessian.minimiser(gradient, point.coef, heads.first, heads.penalties, heads.l2, accuracy)
    move = coef - point.coef
    promised = float(np.sum(gradient.coef * move) + gradient.intercept @ drift)
    promised += heads.price(coef) - heads.price(point.coef)
    if not np.isfinite(promised):
        return None
    path = heads.scores(move) + drift[:, None]
    full = _walk(heads, point, coef, drift, path, 1.0)
    rounding = ROUNDING * (abs(point.value) + float(np.abs(point.pulls * point.scores).sum()))
    if abs(promised) <= rounding:
        # The objective no longer tells better from worse; the residual does.
        level = full.value <= point.value + rounding
        return (full, 1.0) if level and heads.residual(full, heads.gradient(full)) <= 0.5 * residual else None
    for length in STEP_LENGTHS:
        following = full if length == 1.0 else _walk(heads, point, coef, drift, path, length)
        if promised < 0.0 and following.value <= point.value + SUFFICIENT * length * promised:
            return following, length
    return None


def _walk(
    heads: LinearHeads, point: Point, coef: Floats, drift: Floats, path: Floats, length: float
) -> Point:
    """The point ``length`` of the way to ``coef``; a whole step keeps its exact zeros."""
    coef = coef if length == 1.0 else point.coef + length * (coef - point.coef)
    return heads.with_scores(coef, point.intercept + length * drift, point.scores + length * path)
