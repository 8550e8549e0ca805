"""Several linear scores of one table, their fit and their price: what the group lasso evaluates.

    F(B, b0) = sum_k fit_k(X B_k + b0_k) + (l2 / 2) ||B||^2 + sum_G penalty_G ||B_G||_F

Arrays are head-first here, shape (n_heads, ...), so that the rows of one head lie together in memory. A fit has one
head, or one for each class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints
from thrifty.dynamod.datafits import AnyFit, SoftmaxFit
from thrifty.dynamod.group_quadratic import group_norms, group_residuals
from thrifty.dynamod.hessians import Gradient, Hessian, JointHessian, Table

__all__ = ["LinearHeads", "Point"]


@dataclass(frozen=True)
class Point:
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
    fits : sequence of DataFit or SoftmaxFit
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

    def at(self, coef: Floats, intercept: Floats) -> Point:
        """The point with these coefficients."""
        # A start may be absurd; what overflows is worse than anything else and is never kept.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.with_scores(coef, intercept, self.scores(coef) + intercept[:, None])

    def with_scores(self, coef: Floats, intercept: Floats, scores: Floats) -> Point:
        """The point with these coefficients, whose scores are known."""
        pulls = np.empty_like(scores)
        for fit, heads in self._by_fit():
            pulls[heads] = fit.gradient(scores[heads])
        return Point(coef, intercept, scores, pulls, self.value(coef, scores))

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

    def gradient(self, point: Point) -> Gradient:
        """Gradient of the smooth part of ``F``."""
        pulls = point.pulls
        coef = (self.X.T @ pulls.T).T if sparse.issparse(self.X) else pulls @ self.X
        coef = coef if self.columns is None else coef[:, self.columns]
        return Gradient(coef + self.l2 * point.coef, pulls.sum(axis=1))

    def residuals(self, point: Point, gradient: Gradient) -> Floats:
        """How far each group is from optimal, shape (n_groups,)."""
        return group_residuals(point.coef, gradient.coef, self.first, self.penalties)

    def residual(self, point: Point, gradient: Gradient) -> float:
        """How far the worst group or intercept is from optimal."""
        worst = self.residuals(point, gradient).max(initial=0.0)
        return float(max(worst, np.abs(gradient.intercept).max(initial=0.0)))

    def hessian(self, point: Point, *, majorise: bool = False) -> Hessian | JointHessian:
        """Second derivatives of the fits at ``point``, or those of parabolas that lie above them everywhere."""
        scores = point.scores
        found = [
            fit.majorant(scores[heads]) if majorise else fit.hessian(scores[heads])
            for fit, heads in self._by_fit()
        ]
        if any(isinstance(fit, SoftmaxFit) for fit in self.fits):
            return JointHessian.of(self.X, found)
        return Hessian.of(self.X, np.array(found))
