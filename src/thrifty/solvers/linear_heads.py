"""Several linear scores of one table, their fit and their price: what the group lasso evaluates.

    F(B, b0) = sum_k fit_k(X B_k + b0_k) + (l2 / 2) ||B||^2 + sum_G penalty_G ||B_G||_F

Arrays are head-first here, shape (n_heads, ...), so that the rows of one head lie together in memory. The Hessian
of a head is a weighted Gram matrix, with the intercept eliminated. Forming ``X' diag(weight) X`` is the dearest thing a
second-order method does with a tall table, so a Hessian remembers the row weights it was made with and can
be carried over to a slightly different set of columns at the price of the new ones only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints
from thrifty.compiled import kernel
from thrifty.objective.datafits import DataFit
from thrifty.solvers.group_quadratic import group_norms, group_residuals

__all__ = ["Gradient", "Hessian", "LinearHeads", "Point", "Table"]

Table = Any  # a float64 ndarray or a scipy CSR matrix, (n_samples, n_columns)

ROWS_AT_ONCE = 4096
# Variance, relative to the mean square, below which a column is constant up to rounding: what is left
# of it beside the intercept is noise, and a step along noise has any length.
CONSTANT = 1e-13
# Weight, relative to a column's variance, of the squared distance to the present point. Along
# directions in which columns cancel it keeps steps short; elsewhere it is not felt.
ANCHOR = 1e-10
# Rounding error, relative to a column's mean square and per column, of what centring leaves. As part of
# that weight it keeps the Hessian of columns far from 0 positive semi-definite.
NOISE = 4.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Hessian:
    """Second derivatives of the fits in the coefficients of each head.

    Attributes
    ----------
    weights : ndarray of shape (n_heads, n_samples)
        Second derivative of each fit in the score of each row.
    squares : ndarray of shape (n_heads, n_columns, n_columns)
        ``X' diag(weights_k) X``.
    sums : ndarray of shape (n_heads, n_columns)
        ``X' weights_k``.
    """

    weights: Floats
    squares: Floats
    sums: Floats

    @classmethod
    def of(cls, X: Table, weights: Floats) -> "Hessian":
        """Hessian of the columns of ``X`` under these row weights."""
        squares = np.array([_weighted_gram(X, weight) for weight in weights])
        return cls(weights, squares, _sums(X, weights))

    def carried(self, X: Table, kept: Bools, known: Bools) -> "Hessian | None":
        """Hessian of other columns under the row weights of this one, or None if that would save little.

        The columns ``kept`` of the old ones are the columns ``known`` of ``X``, in the same order.
        """
        fresh = np.flatnonzero(~known)
        if 3 * fresh.size > known.size:
            return None
        squares = np.empty((len(self.weights), known.size, known.size))
        old, new = np.flatnonzero(kept), np.flatnonzero(known)
        for square, last, weight in zip(squares, self.squares, self.weights, strict=True):
            square[np.ix_(new, new)] = last[np.ix_(old, old)]
            square[:, fresh] = _weighted_product(X, weight, fresh)
            square[fresh] = square[:, fresh].T
        return Hessian(self.weights, squares, _sums(X, self.weights))

    @property
    def totals(self) -> Floats:
        """Second derivative in each intercept, shape (n_heads,)."""
        return np.asarray(self.weights.sum(axis=1))

    @property
    def means(self) -> Floats:
        """Column means under the row weights: what the intercept gives up when a coefficient grows by 1."""
        totals = self.totals[:, None]
        return np.divide(self.sums, totals, out=np.zeros_like(self.sums), where=totals > 0.0)

    def centred(self, l2: float) -> Floats:
        """What the coefficients feel when the intercepts follow them (Schur complement), plus ``l2``."""
        means = self.means
        centred = self.squares - np.einsum("k,ki,kj->kij", self.totals, means, means, optimize=True)
        diagonal = np.arange(means.shape[1])
        raw, left = self.squares[:, diagonal, diagonal], centred[:, diagonal, diagonal]
        head, column = np.nonzero(left <= CONSTANT * raw)
        centred[head, column, :] = 0.0
        centred[head, :, column] = 0.0
        anchor = ANCHOR * left + NOISE * diagonal.size * raw
        centred[:, diagonal, diagonal] += np.where(left <= CONSTANT * raw, 0.0, anchor) + l2
        return np.asarray(centred)


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
class Gradient:
    """Gradient of the smooth part: ``coef`` of shape (n_heads, n_columns), ``intercept`` of (n_heads,)."""

    coef: Floats
    intercept: Floats


@dataclass(frozen=True)
class LinearHeads:
    """The function ``F`` on the columns of ``X``, taken group after group.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    fits : sequence of DataFit
        One per head.
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
    fits: Sequence[DataFit]
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
        pulls = np.array([fit.gradient(score) for fit, score in zip(self.fits, scores, strict=True)])
        return Point(coef, intercept, scores, pulls.reshape(scores.shape), self.value(coef, scores))

    def scores(self, coef: Floats) -> Floats:
        """``X B`` per head, without the intercept; shape (n_heads, n_samples)."""
        if self.columns is not None:
            coef = coef[:, np.argsort(self.columns)]
        if sparse.issparse(self.X):
            return np.ascontiguousarray((self.X @ coef.T).T)
        return np.asarray(coef @ self.X.T)

    def value(self, coef: Floats, scores: Floats) -> float:
        """``F`` at coefficients whose scores are known."""
        fit = sum(fit.value(score) for fit, score in zip(self.fits, scores, strict=True))
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

    def hessian(self, point: Point, *, majorise: bool = False) -> Hessian:
        """Second derivatives of the fits at ``point``, or those of parabolas that lie above them everywhere."""
        weights = [
            fit.majorant(score) if majorise else fit.hessian(score)
            for fit, score in zip(self.fits, point.scores, strict=True)
        ]
        return Hessian.of(self.X, np.array(weights))


def _sums(X: Table, weights: Floats) -> Floats:
    return np.ascontiguousarray((X.T @ weights.T).T) if sparse.issparse(X) else np.asarray(weights @ X)


def _weighted_gram(X: Table, weight: Floats) -> Floats:
    """``X' diag(weight) X``."""
    if sparse.issparse(X):
        return np.asarray(_gram_of_rows(X.indptr, X.indices, X.data, weight, X.shape[1]))
    square, root = np.zeros((X.shape[1], X.shape[1])), np.sqrt(weight)
    # In slices that stay in cache; Z' Z is recognised as symmetric and costs half a product.
    for start in range(0, len(X), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        Z = X[rows] * root[rows, None]
        square += Z.T @ Z
    return square


def _weighted_product(X: Table, weight: Floats, columns: Ints) -> Floats:
    """The given columns of ``X' diag(weight) X``."""
    if sparse.issparse(X):
        return np.asarray((X.T @ (sparse.diags_array(weight) @ X[:, columns])).toarray())
    product = np.zeros((X.shape[1], columns.size))
    for start in range(0, len(X), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        product += X[rows].T @ (X[rows][:, columns] * weight[rows, None])
    return product


@kernel
def _gram_of_rows(indptr: Ints, indices: Ints, data: Floats, weight: Floats, n_columns: int) -> Floats:
    """``X' diag(weight) X`` of a CSR matrix without duplicates, in the order of its rows."""
    square = np.zeros((n_columns, n_columns))
    for i in range(weight.size):
        if weight[i] == 0.0:
            continue
        for a in range(indptr[i], indptr[i + 1]):
            scaled, row = weight[i] * data[a], indices[a]
            for b in range(indptr[i], indptr[i + 1]):
                square[row, indices[b]] += scaled * data[b]
    return square
