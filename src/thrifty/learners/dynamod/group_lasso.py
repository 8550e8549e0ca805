"""The group lasso of (OPT4): linear heads of a gate and a cheap model that pay every purchase once; proximal Newton.

    argmin_{B, b0}  sum_k fit_k(X B_k + b0_k) + gamma sum_G price_G ||B_G||_F + (l2 / 2) ||B||_F^2

Head ``k`` is one score per row: the gate and f1, in the paper; f1 of several classes has a head for each of them, which
share one fit. ``B_G`` holds the coefficients, in all heads, of the columns that purchase ``G`` delivers: they are zero
together or not at all. Intercepts and purchases of price 0 are free. Arrays are head-first, shape (n_heads, ...), so
that the rows of one head are contiguous in memory.

Each proximal Newton step minimises the second-order model of the fits plus the exact norms, then moves towards that
minimiser as far as the objective falls. Steps reuse the last Hessian while it still serves: on tall tables a Hessian
costs several times everything else.

*Working sets.* At the optimum most groups are zero, and a group that stays zero need only be checked, once a round, by
its gradient. Steps and Hessians are computed for the groups in use alone; then the others are checked, and those that
would lower the objective join, until none would.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints
from thrifty.learners.dynamod.group_quadratic import (
    Gradient,
    Hessian,
    JointHessian,
    Table,
    group_norms,
    group_residuals,
)
from thrifty.learners.dynamod.objective import AnyFit, SoftmaxFit, Solution


@dataclass(frozen=True)
class Iterate:
    """Coefficients, and what follows from them.

    Attributes
    ----------
    coef : ndarray of shape (n_heads, n_columns)
    intercept : ndarray of shape (n_heads,)
    scores : ndarray of shape (n_heads, n_samples)
    pulls : ndarray of shape (n_heads, n_samples)
        Derivative of each fit in the score of each row.
    value : float
        ``F``.
    """

    coef: Floats
    intercept: Floats
    scores: Floats
    pulls: Floats
    value: float


@dataclass(frozen=True)
class LinearHeads:
    """The function ``F`` on the columns of ``X``, taken group after group.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    fits : sequence of LogisticFit, SquaredFit or SoftmaxFit
        In the order of the heads.
    columns : ndarray of shape (n_columns,), or None
        Columns of ``X`` in the order of the coefficients; None if that is their own order.
    first : ndarray of shape (n_groups + 1,)
        Group ``G`` holds the coefficients ``first[G]`` to ``first[G + 1] - 1``.
    penalties : ndarray of shape (n_groups,)
        ``gamma * price`` of each group.
    l2 : float
        Weight of the squared norm.
    """

    X: Table
    fits: Sequence[AnyFit]
    columns: Ints | None
    first: Ints
    penalties: Floats
    l2: float

    def columns_of(self, groups: Bools) -> Ints:
        """Positions of the coefficients of the chosen groups."""
        return np.flatnonzero(np.repeat(groups, np.diff(self.first)))

    def restrict(self, groups: Bools) -> "LinearHeads":
        """The function ``F`` of the chosen groups alone, the others being zero."""
        chosen = self.columns_of(groups)
        columns = chosen if self.columns is None else self.columns[chosen]
        whole = np.array_equal(columns, np.arange(self.X.shape[1]))
        first = np.concatenate([[0], np.cumsum(np.diff(self.first)[groups])])
        X = self.X if whole else self.X[:, columns]
        return replace(self, X=X, columns=None, first=first, penalties=self.penalties[groups])

    def at(self, coef: Floats, intercept: Floats) -> Iterate:
        """The point with these coefficients."""
        # A start may be absurd; what overflows is worse than anything else and is never kept.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.with_scores(coef, intercept, self.scores(coef) + intercept[:, None])

    def with_scores(self, coef: Floats, intercept: Floats, scores: Floats) -> Iterate:
        """The point with these coefficients, whose scores are known."""
        pulls = np.empty_like(scores)
        for fit, heads in self._by_fit():
            pulls[heads] = fit.gradient(scores[heads])
        return Iterate(coef, intercept, scores, pulls, self.value(coef, scores))

    def _by_fit(self) -> Iterator[tuple[AnyFit, int | slice]]:
        """Every fit with the place of its heads: one, or one for each class."""
        first = 0
        for fit in self.fits:
            yield fit, first if fit.n_heads == 1 else slice(first, first + fit.n_heads)
            first += fit.n_heads

    def scores(self, coef: Floats) -> Floats:
        """``X B`` per head, without the intercept; shape (n_heads, n_samples)."""
        if self.columns is not None:
            coef = coef[:, np.argsort(self.columns)]
        if sparse.issparse(self.X):
            return np.ascontiguousarray((self.X @ coef.T).T)
        return np.asarray(coef @ self.X.T)

    def value(self, coef: Floats, scores: Floats) -> float:
        """``F`` at coefficients whose scores are known."""
        fit = sum(fit.value(scores[heads]) for fit, heads in self._by_fit())
        return fit + 0.5 * self.l2 * float(np.sum(coef * coef)) + self.price(coef)

    def price(self, coef: Floats) -> float:
        """``sum_G penalty_G ||B_G||_F``."""
        return float(self.penalties @ group_norms(coef, self.first))

    def gradient(self, point: Iterate) -> Gradient:
        """Gradient of the smooth part of ``F``."""
        pulls = point.pulls
        coef = (self.X.T @ pulls.T).T if sparse.issparse(self.X) else pulls @ self.X
        coef = coef if self.columns is None else coef[:, self.columns]
        return Gradient(coef + self.l2 * point.coef, pulls.sum(axis=1))

    def residuals(self, point: Iterate, gradient: Gradient) -> Floats:
        """Distance of each group from optimality, shape (n_groups,)."""
        return group_residuals(point.coef, gradient.coef, self.first, self.penalties)

    def residual(self, point: Iterate, gradient: Gradient) -> float:
        """Distance of the worst group or intercept from optimality."""
        worst = self.residuals(point, gradient).max(initial=0.0)
        return float(max(worst, np.abs(gradient.intercept).max(initial=0.0)))

    def hessian(self, point: Iterate, *, majorise: bool = False) -> Hessian | JointHessian:
        """Second derivatives of the fits at ``point``, or those of parabolas that lie above them everywhere."""
        scores = point.scores
        curvatures = [
            fit.majorant(scores[heads]) if majorise else fit.hessian(scores[heads])
            for fit, heads in self._by_fit()
        ]
        if any(isinstance(fit, SoftmaxFit) for fit in self.fits):
            return JointHessian.of(self.X, curvatures)
        return Hessian.of(self.X, np.array(curvatures))


SUFFICIENT = 1e-4  # share of the decrease promised by the gradient that a step must deliver
STEP_LENGTHS = tuple(0.5**halvings for halvings in range(13))
GOOD_LENGTH = 0.125  # a shorter step shows that the model does not hold as far as it reaches
STALE_ABOVE = 0.1  # a step that leaves more than this share of the residual asks for a new Hessian
MODEL_ACCURACY = 1e-2  # residual of the model's minimiser, relative to that of the point
ROUNDING = 8.0 * float(np.finfo(np.float64).eps)
MIN_NEWCOMERS = 10
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
    """Result of a descent: its last point, KKT residual, steps, and the working set to continue from."""

    point: Iterate
    residual: float
    n_iter: int
    last: WorkingSet | None = None


def descend(
    heads: LinearHeads, point: Iterate, tol: float, max_iter: int, last: WorkingSet | None = None
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
        descent = descend_on(WorkingSet.of(heads, groups, last), heads, point, goal, max_iter - n_iter)
        if descent.n_iter == 0:
            break  # only rounding is left
        point, last, n_iter = descent.point, descent.last, n_iter + descent.n_iter
    return Descent(point, residual, n_iter, last)


def descend_on(work: WorkingSet, heads: LinearHeads, point: Iterate, tol: float, max_iter: int) -> Descent:
    """``argmin F`` over the groups of a working set; the other groups of ``point`` must be zero."""
    columns = heads.columns_of(work.groups)
    part = replace(point, coef=np.ascontiguousarray(point.coef[:, columns]))
    descent = proximal_newton(work, part, tol, max_iter)
    coef = np.zeros_like(point.coef)
    coef[:, columns] = descent.point.coef
    return replace(descent, point=replace(descent.point, coef=coef))


def _worth_solving(heads: LinearHeads, point: Iterate, gradient: Gradient, tol: float) -> Bools:
    """Groups in use or free, and the worst of those that are zero but should not be."""
    inside = (group_norms(point.coef, heads.first) > 0.0) | (heads.penalties == 0.0)
    excess = np.where(inside, 0.0, heads.residuals(point, gradient))
    order = np.argsort(-excess / np.where(inside, 1.0, heads.penalties), kind="stable")
    newcomers = order[: max(MIN_NEWCOMERS, 2 * int(inside.sum()))]
    inside[newcomers[excess[newcomers] > tol]] = True
    return np.asarray(inside)


def proximal_newton(work: WorkingSet, point: Iterate, tol: float, max_iter: int) -> Descent:
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
        following = _follow(
            heads, point, gradient, residual, hessian if residual <= STALE_ABOVE * previous else None
        )
        if following is None:
            break
        previous, n_iter = residual, n_iter + 1
        point, hessian = following
    return Descent(point, residual, n_iter, replace(work, hessian=hessian))


def _follow(
    heads: LinearHeads,
    point: Iterate,
    gradient: Gradient,
    residual: float,
    last: Hessian | JointHessian | None,
) -> tuple[Iterate, Hessian | JointHessian] | None:
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
    heads: LinearHeads, point: Iterate, gradient: Gradient, hessian: Hessian | JointHessian, residual: float
) -> tuple[Iterate, float] | None:
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
        # The objective is down to rounding; the residual still decides.
        level = full.value <= point.value + rounding
        return (full, 1.0) if level and heads.residual(full, heads.gradient(full)) <= 0.5 * residual else None
    for length in STEP_LENGTHS:
        following = full if length == 1.0 else _walk(heads, point, coef, drift, path, length)
        if promised < 0.0 and following.value <= point.value + SUFFICIENT * length * promised:
            return following, length
    return None


def _walk(
    heads: LinearHeads, point: Iterate, coef: Floats, drift: Floats, path: Floats, length: float
) -> Iterate:
    """The point ``length`` of the way to ``coef``; a whole step keeps its exact zeros."""
    coef = coef if length == 1.0 else point.coef + length * (coef - point.coef)
    return heads.with_scores(coef, point.intercept + length * drift, point.scores + length * path)


NULL_TOL = 1e-10  # accuracy of the model without purchases, from which a fit starts


@dataclass(frozen=True)
class LinearCoefficients:
    """Linear scores ``X @ coef + intercept``.

    Attributes
    ----------
    coef : ndarray of shape (n_features, n_heads)
    intercept : ndarray of shape (n_heads,)
    """

    coef: Floats
    intercept: Floats

    def scores(self, X: Any) -> Floats:
        """Score of each row and head, shape (n_samples, n_heads)."""
        return np.asarray(X @ self.coef + self.intercept)


def group_lasso(
    X: Any,
    fits: Sequence[AnyFit],
    group_of: ArrayLike,
    prices: ArrayLike,
    gamma: float,
    *,
    l2: float = 0.0,
    start: LinearCoefficients | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
) -> Solution[LinearCoefficients]:
    """Fit linear heads that share what they buy: paper (OPT4).

        argmin_{B, b0}  sum_k fit_k(X B_k + b0_k) + gamma sum_G price_G ||B_G||_F + (l2 / 2) ||B||_F^2

    Purchases that do not pay are exactly zero in all heads. The objective never rises above that of
    ``start``. Equal input gives equal output, bit by bit.

    A head whose fit needs no coefficients is settled beforehand. If all its targets are 0, or all are 1, its
    infimum is at an infinite intercept, which no finite answer attains and which would drag the coefficients
    along: it gets coefficients of exactly 0 and the fit's farthest intercept, where its loss is below 1e-17
    (for any ``start``). If no row counts, coefficients and intercept are 0.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Any scale; columns need not be standardised. A sparse table is never made dense.
    fits : sequence of LogisticFit, SquaredFit or SoftmaxFit
        One per head, or one for the heads of all classes; their weights already contain ``1 / N``.
    group_of : array-like of shape (n_features,)
        The purchase that delivers each column, an index into ``prices``.
    prices : array-like of shape (n_groups,)
        Price of each purchase; 0 leaves it free.
    gamma : float
        Weight of the prices.
    l2 : float
        Weight of the squared norm of all coefficients.
    start : LinearCoefficients, optional
        Where to begin, such as the answer for a nearby ``gamma``.
    tol : float
        Largest KKT residual of an answer called converged.
    max_iter : int
        Most Newton steps. If free purchases separate the classes, coefficients grow without end and
        the steps run out (or the residual falls below ``tol`` on the way).

    Returns
    -------
    Solution of LinearCoefficients
        ``residual`` is the KKT residual: with ``D`` the gradient of the smooth terms, the largest of
        ``||D_G + gamma price_G B_G / ||B_G|| ||_F`` over purchases in use,
        ``||D_G||_F - gamma price_G`` over purchases not in use, and ``|D_b0|`` over intercepts.
    """
    live = np.array([not fit.needs_no_coefficients for fit in fits for _ in range(fit.n_heads)], dtype=bool)
    priced = _linear_heads(X, [fit for fit in fits if not fit.needs_no_coefficients], group_of, prices, l2)
    columns = np.arange(priced.first[-1]) if priced.columns is None else priced.columns
    intercept, free = _best_intercepts(priced.fits), priced.penalties == 0.0
    scores = np.repeat(intercept[:, None], priced.X.shape[0], axis=1)
    nothing = priced.with_scores(np.zeros((len(intercept), len(columns))), intercept, scores)
    descent = Descent(nothing, np.inf, 0)
    if start is not None:
        coef = np.ascontiguousarray(start.coef[columns][:, live].T)
        descent = Descent(priced.at(coef, start.intercept[live]), np.inf, 0)
    elif free.any():  # the best model that pays for nothing
        descent = descend_on(WorkingSet.of(priced, free), priced, nothing, NULL_TOL, max_iter)
    heads, spent = replace(priced, penalties=gamma * priced.penalties), descent.n_iter
    descent = descend(heads, _better(heads, descent.point, nothing), tol, max_iter - spent, descent.last)
    # The answer for all heads, in the order of the columns of X.
    coef, intercept = np.zeros((len(columns), len(live))), _best_intercepts(fits)
    coef[np.ix_(columns, live)], intercept[live] = descent.point.coef.T, descent.point.intercept
    value = LinearCoefficients(coef, intercept)
    return Solution(value, descent.residual, descent.n_iter + spent, bool(descent.residual <= tol))


def _best_intercepts(fits: Sequence[AnyFit]) -> Floats:
    return np.array([one for fit in fits for one in np.atleast_1d(fit.best_intercept())], dtype=np.float64)


def _better(heads: LinearHeads, point: Iterate, nothing: Iterate) -> Iterate:
    """``point`` at the prices of ``heads``, unless buying nothing is better or ``point`` has overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = heads.value(point.coef, point.scores)
    return replace(point, value=value) if value <= nothing.value else nothing


def _linear_heads(
    X: Any, fits: Sequence[AnyFit], group_of: ArrayLike, prices: ArrayLike, l2: float
) -> LinearHeads:
    """The objective at ``gamma = 1``, its coefficients sorted by group; ``X`` is copied only if it must be."""
    if not sparse.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    elif not (X := X.tocsr().astype(np.float64, copy=False)).has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    group, price = np.asarray(group_of, dtype=np.intp), np.asarray(prices, dtype=np.float64)
    order = np.argsort(group, kind="stable")
    present, sizes = np.unique(group, return_counts=True)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
    in_order = np.array_equal(order, np.arange(len(order)))
    return LinearHeads(X, tuple(fits), None if in_order else order, first, price[present], l2)
