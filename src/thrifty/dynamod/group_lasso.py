"""The gate and the cheap model fitted together, every purchase paid once: paper (OPT4), (OPT6), (OPT7).

    argmin_{B, b0}  sum_k fit_k(X B_k + b0_k) + gamma sum_G price_G ||B_G||_F + (l2 / 2) ||B||_F^2

Head ``k`` is one score per row: the gate and f1, in the paper; f1 of several classes has a head for each of them, which
share one fit. ``B_G`` holds the coefficients, in all heads, of the columns that purchase ``G`` delivers: they are zero
together or not at all. Intercepts and purchases of price 0 are free.

Working sets: the problem is solved by proximal Newton steps on the purchases that are in use, the
others are checked, those that would lower the objective join, until none would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from thrifty.arrays import Bools, Floats
from thrifty.dynamod.datafits import AnyFit
from thrifty.dynamod.group_quadratic import group_norms
from thrifty.dynamod.linear_heads import LinearHeads, Point
from thrifty.dynamod.proximal_newton import Descent, WorkingSet, descend, descend_on
from thrifty.dynamod.solution import Solution
from thrifty.errors import InvalidInputError
from thrifty.prices.costs import check_amount

__all__ = ["LinearScores", "gamma_max", "group_lasso", "group_lasso_path", "kkt_residual", "objective"]


# The model without purchases is found to the same accuracy by all who need it, so that they agree
# on which gamma is just enough to buy nothing.
NULL_TOL = 1e-10


@dataclass(frozen=True)
class LinearScores:
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
    start: LinearScores | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
) -> Solution[LinearScores]:
    """Fit linear heads that share what they buy: paper (OPT4).

        argmin_{B, b0}  sum_k fit_k(X B_k + b0_k) + gamma sum_G price_G ||B_G||_F + (l2 / 2) ||B||_F^2

    Purchases that do not pay are exactly zero in all heads. The objective never rises above that of
    ``start``. Equal input gives equal output, bit by bit.

    A head whose fit needs no coefficients is settled beforehand. If all its targets are 0, or all are 1, its
    infimum is at an infinite intercept, which no finite answer attains and which would drag the coefficients
    along: it gets coefficients of exactly 0 and the fit's farthest intercept, where its loss is below 1e-17
    (whatever ``start`` says). If no row counts, coefficients and intercept are 0.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Any scale; columns need not be standardised. A sparse table is never made dense.
    fits : sequence of DataFit or SoftmaxFit
        One per head, or one for the heads of all classes; their weights already contain ``1 / N``.
    group_of : array-like of shape (n_features,)
        The purchase that delivers each column, an index into ``prices``.
    prices : array-like of shape (n_groups,)
        Price of each purchase; 0 leaves it free.
    gamma : float
        Weight of the prices.
    l2 : float
        Weight of the squared norm of all coefficients.
    start : LinearScores, optional
        Where to begin, such as the answer for a nearby ``gamma``.
    tol : float
        Largest KKT residual of an answer called converged.
    max_iter : int
        Most Newton steps. If free purchases separate the classes, coefficients grow without end and
        the steps run out (or the residual falls below ``tol`` on the way).

    Returns
    -------
    Solution of LinearScores
        ``residual`` is the KKT residual: with ``D`` the gradient of the smooth terms, the largest of
        ``||D_G + gamma price_G B_G / ||B_G|| ||_F`` over purchases in use,
        ``||D_G||_F - gamma price_G`` over purchases not in use, and ``|D_b0|`` over intercepts.
    """
    return group_lasso_path(
        X, fits, group_of, prices, [gamma], l2=l2, start=start, tol=tol, max_iter=max_iter
    )[0]


def group_lasso_path(
    X: Any,
    fits: Sequence[AnyFit],
    group_of: ArrayLike,
    prices: ArrayLike,
    gammas: Sequence[float],
    *,
    l2: float = 0.0,
    start: LinearScores | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
) -> list[Solution[LinearScores]]:
    """Fit linear heads at each of ``gammas``, in the order given: paper (OPT4).

    Solved from the largest ``gamma`` down, each from the answer before. Other parameters as for one
    ``gamma``; ``max_iter`` counts the steps of each.
    """
    gammas = [check_amount("gamma", gamma) for gamma in gammas]
    everything = _linear_heads(X, fits, group_of, prices, l2)
    live = np.array([not fit.needs_no_coefficients for fit in fits for _ in range(fit.n_heads)], dtype=bool)
    priced = replace(everything, fits=_live(fits))
    nothing = _intercepts_only(priced)
    if start is None:
        found = _null(priced, nothing, max_iter)
    else:
        found = Descent(_point_of(priced, _check_start(start, everything), live), np.inf, 0)
    answers: dict[float, Solution[LinearScores]] = {}
    spent = found.n_iter
    for gamma in sorted(set(gammas), reverse=True):
        heads = replace(priced, penalties=gamma * priced.penalties)
        found = descend(heads, _better(heads, found.point, nothing), tol, max_iter - spent, found.last)
        value = _scores_of(heads, found.point, fits, live)
        answers[gamma] = Solution(value, found.residual, found.n_iter + spent, bool(found.residual <= tol))
        spent = 0
    return [answers[gamma] for gamma in gammas]


def gamma_max(
    X: Any, fits: Sequence[AnyFit], group_of: ArrayLike, prices: ArrayLike, *, l2: float = 0.0
) -> float:
    """Smallest ``gamma`` at which nothing that has a price is bought.

        min gamma  such that  ||D_G||_F <= gamma price_G  for every G with price_G > 0

    ``D`` is the gradient at the best model of intercepts and free purchases. 0 if nothing has a price.
    """
    heads = _linear_heads(X, _live(fits), group_of, prices, l2)
    point = _null(heads, _intercepts_only(heads), max_iter=200).point
    priced = heads.penalties > 0.0
    norms = group_norms(heads.gradient(point).coef, heads.first)
    return float((norms[priced] / heads.penalties[priced]).max(initial=0.0))


def objective(
    X: Any,
    fits: Sequence[AnyFit],
    group_of: ArrayLike,
    prices: ArrayLike,
    gamma: float,
    scores: LinearScores,
    *,
    l2: float = 0.0,
) -> float:
    """Objective that ``group_lasso`` minimises, at ``scores``: paper (OPT4)."""
    heads = _linear_heads(X, fits, group_of, gamma * np.asarray(prices, dtype=np.float64), l2)
    return _point_of(heads, scores).value


def kkt_residual(
    X: Any,
    fits: Sequence[AnyFit],
    group_of: ArrayLike,
    prices: ArrayLike,
    gamma: float,
    scores: LinearScores,
    *,
    l2: float = 0.0,
) -> float:
    """How far ``scores`` are from optimal: the ``residual`` of ``group_lasso``, 0 exactly at an optimum."""
    heads = _linear_heads(X, fits, group_of, gamma * np.asarray(prices, dtype=np.float64), l2)
    point = _point_of(heads, scores)
    return heads.residual(point, heads.gradient(point))


def _live(fits: Sequence[AnyFit]) -> list[AnyFit]:
    return [fit for fit in fits if not fit.needs_no_coefficients]


def _null(heads: LinearHeads, nothing: Point, max_iter: int) -> Descent:
    """The best model that pays for nothing: intercepts, and the purchases whose price is 0."""
    free = heads.penalties == 0.0
    if not free.any():
        return Descent(nothing, np.inf, 0)
    return descend_on(WorkingSet.of(heads, free), heads, nothing, NULL_TOL, max_iter)


def _intercepts_only(heads: LinearHeads) -> Point:
    intercept = _best_intercepts(heads.fits)
    scores = np.repeat(intercept[:, None], heads.X.shape[0], axis=1)
    return heads.with_scores(np.zeros((len(intercept), heads.first[-1])), intercept, scores)


def _best_intercepts(fits: Sequence[AnyFit]) -> Floats:
    return np.array([one for fit in fits for one in np.atleast_1d(fit.best_intercept())], dtype=np.float64)


def _better(heads: LinearHeads, point: Point, nothing: Point) -> Point:
    """``point`` at the prices of ``heads``, unless buying nothing is better or ``point`` has overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = heads.value(point.coef, point.scores)
    return replace(point, value=value) if value <= nothing.value else nothing


def _point_of(heads: LinearHeads, scores: LinearScores, live: Bools | slice = slice(None)) -> Point:
    coef = scores.coef if heads.columns is None else scores.coef[heads.columns]
    return heads.at(np.ascontiguousarray(coef[:, live].T), scores.intercept[live])


def _scores_of(heads: LinearHeads, point: Point, fits: Sequence[AnyFit], live: Bools) -> LinearScores:
    """The answer for all heads, in the order of the columns of ``X``."""
    columns = np.arange(heads.first[-1]) if heads.columns is None else heads.columns
    coef = np.zeros((len(columns), len(live)))
    coef[np.ix_(columns, live)] = point.coef.T
    intercept = _best_intercepts(fits)
    intercept[live] = point.intercept
    return LinearScores(coef, intercept)


def _linear_heads(
    X: Any, fits: Sequence[AnyFit], group_of: ArrayLike, prices: ArrayLike, l2: float
) -> LinearHeads:
    """The objective at ``gamma = 1``, its coefficients sorted by group."""
    table = _check_table(X)
    group, price = np.asarray(group_of, dtype=np.intp), np.asarray(prices, dtype=np.float64)
    if group.shape != (table.shape[1],):
        raise InvalidInputError(
            f"group_of must name one group per column, {table.shape[1]} in all; got shape {group.shape}."
        )
    if group.size and not (group.min() >= 0 and group.max() < len(price)):
        raise InvalidInputError(
            f"group_of must index the {len(price)} prices; it spans [{group.min()}, {group.max()}]."
        )
    if not (np.isfinite(price).all() and (price >= 0.0).all()):
        raise InvalidInputError("prices must be finite and >= 0; 0 is a purchase that is free.")
    rows = {len(fit.weight) for fit in fits}
    if rows - {table.shape[0]}:
        raise InvalidInputError(
            f"fits must have one target per row of X, {table.shape[0]}; got {sorted(rows)}."
        )
    order = np.argsort(group, kind="stable")
    present, sizes = np.unique(group, return_counts=True)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
    in_order = np.array_equal(order, np.arange(len(order)))
    return LinearHeads(
        table, tuple(fits), None if in_order else order, first, price[present], check_amount("l2", l2)
    )


def _check_table(X: Any) -> Any:
    """``X`` as float64, dense or CSR without duplicates; copied only if it is neither."""
    if not sparse.issparse(X):
        return np.asarray(X, dtype=np.float64)
    table = X.tocsr().astype(np.float64, copy=False)
    if not table.has_canonical_format:
        table = table.copy()
        table.sum_duplicates()
    return table


def _check_start(start: LinearScores, heads: LinearHeads) -> LinearScores:
    n_features, n_heads = heads.X.shape[1], sum(fit.n_heads for fit in heads.fits)
    if start.coef.shape != (n_features, n_heads) or start.intercept.shape != (n_heads,):
        raise InvalidInputError(
            f"start must have coef of shape {(n_features, n_heads)} and intercept of shape {(n_heads,)}; "
            f"got {start.coef.shape} and {start.intercept.shape}."
        )
    return start
