"""Second derivatives of linear heads, and where the model that they make is least.

The Hessian of a head is a weighted Gram matrix, with the intercept eliminated. Forming ``X' diag(weight) X`` is the
dearest thing a second-order method does with a tall table, so a Hessian of independent heads remembers the row weights
it was made with and can be carried over to a slightly different set of columns at the price of the new ones only.

The scores of a softmax are coupled: row ``i`` has a matrix ``W_i = diag(d_i) - u_i u_i'`` in place of a weight, and the
Hessian a block for every pair of heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import pinvh

from thrifty.arrays import Bools, Floats, Ints
from thrifty.dynamod.group_quadratic import minimise_model
from thrifty.jit import kernel

__all__ = ["Gradient", "Hessian", "JointHessian", "Table"]

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
class Gradient:
    """Gradient of the smooth part: ``coef`` of shape (n_heads, n_columns), ``intercept`` of (n_heads,)."""

    coef: Floats
    intercept: Floats


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
        return _anchored(centred, self.squares, l2)

    def minimiser(
        self, gradient: Gradient, start: Floats, first: Ints, penalties: Floats, l2: float, tol: float
    ) -> tuple[Floats, Floats]:
        """Coefficients where the second-order model plus norms is least, and the move of the intercepts with them."""
        means, totals = self.means, self.totals
        followed = gradient.coef - means * gradient.intercept[:, None]
        coef = minimise_model(self.centred(l2), followed, start, first, penalties, tol)
        own = np.divide(gradient.intercept, totals, out=np.zeros_like(totals), where=totals > 0.0)
        return coef, -own - np.sum(means * (coef - start), axis=1)


@dataclass(frozen=True)
class JointHessian:
    """Second derivatives where the heads of a softmax are coupled, intercepts included.

    Attributes
    ----------
    squares : ndarray of shape (1 + n_columns, n_heads, 1 + n_columns, n_heads)
        ``sum_i W_i[k, l] z_ij z_im`` at ``[j, k, m, l]``, where ``z_i`` is ``1`` and then row ``i`` of the table.
    shifts : ndarray of shape (n_heads, n_heads)
        Curvature that a common shift of all intercepts of a softmax, which changes nothing, is lent.
    """

    squares: Floats
    shifts: Floats

    @classmethod
    def of(cls, X: Table, curvatures: Sequence[Any]) -> "JointHessian":
        """Hessian of the columns of ``X``; of each fit ``weights``, or ``(d, u)`` for ``diag(d_i) - u_i u_i'``."""
        ones = np.ones((X.shape[0], 1))
        Z = sparse.csr_array(sparse.hstack([ones, X])) if sparse.issparse(X) else np.hstack([ones, X])
        sizes = [len(one[0]) if isinstance(one, tuple) else 1 for one in curvatures]
        squares = np.zeros((Z.shape[1], sum(sizes), Z.shape[1], sum(sizes)))
        shifts = np.zeros((sum(sizes), sum(sizes)))
        for last, size, one in zip(np.cumsum(sizes), sizes, curvatures, strict=True):
            diagonal, outer = one if isinstance(one, tuple) else (one[None], None)
            heads = np.arange(last - size, last)
            for head, weight in zip(heads, diagonal, strict=True):
                squares[:, head, :, head] += _weighted_gram(Z, weight)
            if outer is not None:
                squares[:, heads[0] : last, :, heads[0] : last] -= _outer_gram(Z, outer)
                shifts[heads[0] : last, heads[0] : last] = diagonal.sum() / size**2
        return cls(squares, shifts)

    def carried(self, X: Table, kept: Bools, known: Bools) -> None:
        """None: with every pair of classes coupled, row weights are too many to keep."""

    def minimiser(
        self, gradient: Gradient, start: Floats, first: Ints, penalties: Floats, l2: float, tol: float
    ) -> tuple[Floats, Floats]:
        """Coefficients where the second-order model plus norms is least, and the move of the intercepts with them.

        The heads become columns of a single one, all heads of a column side by side, so that a group is a run of
        neighbours as before.
        """
        n_heads, n_columns = start.shape
        squares = self.squares[1:, :, 1:].reshape(n_heads * n_columns, -1)
        # No gradient points along a common shift, so that what is lent to it changes no answer, but what rounding
        # leaves of its curvature must not be divided by.
        inverse = pinvh(self.squares[0, :, 0] + self.shifts)
        crossed = self.squares[0, :, 1:].reshape(n_heads, -1)
        means = inverse @ crossed
        centred = _anchored((squares - crossed.T @ means)[None], squares[None], l2)
        followed = gradient.coef.T.ravel() - gradient.intercept @ means
        flat = np.ascontiguousarray(start.T).reshape(1, -1)
        found = minimise_model(centred, followed[None], flat, n_heads * first, penalties, tol)
        drift = -inverse @ gradient.intercept - means @ (found - flat)[0]
        return np.ascontiguousarray(found.reshape(n_columns, n_heads).T), np.asarray(drift)


def _anchored(centred: Floats, squares: Floats, l2: float) -> Floats:
    """Hessians without intercepts, made safe against rounding in place, plus ``l2``."""
    diagonal = np.arange(centred.shape[1])
    raw, left = squares[:, diagonal, diagonal], centred[:, diagonal, diagonal]
    head, column = np.nonzero(left <= CONSTANT * raw)
    centred[head, column, :] = 0.0
    centred[head, :, column] = 0.0
    anchor = ANCHOR * left + NOISE * diagonal.size * raw
    centred[:, diagonal, diagonal] += np.where(left <= CONSTANT * raw, 0.0, anchor) + l2
    return np.asarray(centred)


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


def _outer_gram(Z: Table, outer: Floats) -> Floats:
    """``sum_i u_i[k] u_i[l] z_ij z_im`` at ``[j, k, m, l]``."""
    n_heads, (n_rows, n_columns) = len(outer), Z.shape
    shape = (n_columns, n_heads, n_columns, n_heads)
    if sparse.issparse(Z):
        wide = sparse.csr_array(sparse.hstack([sparse.diags_array(u) @ Z for u in outer]))
        square = (wide.T @ wide).toarray().reshape(n_heads, n_columns, n_heads, n_columns)
        return np.asarray(square.transpose(1, 0, 3, 2))
    total = np.zeros((n_columns * n_heads, n_columns * n_heads))
    at_once = max(1, ROWS_AT_ONCE // n_heads)
    for start in range(0, n_rows, at_once):
        rows = slice(start, start + at_once)
        wide = (Z[rows, :, None] * outer[:, rows].T[:, None, :]).reshape(-1, n_columns * n_heads)
        total += wide.T @ wide
    return total.reshape(shape)


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
