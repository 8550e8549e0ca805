"""Second derivatives of linear heads: weighted Gram matrices, with the intercept eliminated.

Forming ``X' diag(weight) X`` is the dearest thing a second-order method does with a tall table, so a
Hessian remembers the row weights it was made with and can be carried over to a slightly different
set of columns at the price of the new ones only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from thrifty.arrays import Bools, Floats, Ints

__all__ = ["Hessian", "Table"]

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
    """Second derivatives per head.

    Attributes
    ----------
    weights : ndarray of shape (n_heads, n_samples)
        Curvature of each fit at each row.
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
        """The Hessian of the columns of ``X`` under these row weights."""
        squares = np.array([_weighted_gram(X, weight) for weight in weights])
        return cls(weights, squares, _sums(X, weights))

    def carried(self, X: Table, kept: Bools, known: Bools) -> "Hessian | None":
        """The same row weights on other columns, or None if that would save little.

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
        """Curvature in each intercept, shape (n_heads,)."""
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


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]  # numba has no stubs
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
