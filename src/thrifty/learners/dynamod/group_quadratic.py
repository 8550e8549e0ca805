"""The quadratic model of a group lasso: Hessians of independent heads and of a softmax, and its minimiser.

    argmin_b  sum_k [ gradient_k . (b_k - a_k) + (b_k - a_k)' H_k (b_k - a_k) / 2 ] + sum_G penalty_G ||b_G||_F

is what each proximal Newton step solves. ``b`` has shape (n_heads, n_columns); a group is a run of neighbouring
columns, of all heads.

*Hessians.* The Hessian of a head is a weighted Gram matrix, with the intercept eliminated. ``X' diag(weight) X`` is the
dearest operation of a second-order method on a tall table, so a Hessian of independent heads remembers the row
weights it was made with and can be carried over to a slightly different set of columns at the price of the new ones
only. The scores of a softmax are coupled: row ``i`` has a matrix ``W_i = diag(d_i) - u_i u_i'`` instead of a weight,
and the Hessian a block for every pair of heads.

*Minimiser.* The heads are coupled only by the norms. Blocks are minimised exactly, one group after the other, which is
slow for nearly collinear columns. Away from zero a norm is smooth, so one Newton step on the groups in use usually
finishes; where groups still have to leave or enter, norms are smoothed first, as in an interior point method, and the
smoothing is reduced by degrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh

from thrifty.arrays import Bools, Floats, Ints
from thrifty.jit import kernel

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
        """Schur complement of the intercepts (Hessian of the coefficients when intercepts follow), plus ``l2``."""
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
        minimiser = minimise_model(centred, followed[None], flat, n_heads * first, penalties, tol)
        drift = -inverse @ gradient.intercept - means @ (minimiser - flat)[0]
        return np.ascontiguousarray(minimiser.reshape(n_columns, n_heads).T), np.asarray(drift)


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


SWEEPS_PER_ROUND = 20
MAX_ROUNDS = 50
PATIENCE = 3  # rounds of sweeps and Newton steps before the norms are smoothed
LARGEST_SYSTEM = 3000  # unknowns; beyond, factoring costs more than it saves
STEP_LENGTHS = 0.5 ** np.arange(12)
MIN_SMOOTHING = 1e-10
STEPS_PER_SMOOTHING = 8


def group_norms(values: Floats, first: Ints) -> Floats:
    """Frobenius norm of each group of ``values``, shape (n_heads, n_columns).

    Group ``G`` holds the columns ``first[G]`` to ``first[G + 1] - 1``, in all heads.
    """
    squares = np.einsum("kj,kj->j", values, values)
    return np.sqrt(np.add.reduceat(squares, first[:-1])) if len(squares) else np.zeros(0)


def apply(matrices: Floats, vectors: Floats) -> Floats:
    """``matrices[k] @ vectors[k]`` for each head ``k``."""
    return np.asarray(np.matmul(matrices, vectors[:, :, None])[:, :, 0])


def group_residuals(b: Floats, gradient: Floats, first: Ints, penalties: Floats) -> Floats:
    """Distance of each group from optimality: ``dist(-gradient_G, penalty_G * subdifferential of ||b_G||)``.

    That is ``||gradient_G + penalty_G b_G / ||b_G|| ||`` where the group is not zero, and
    ``max(0, ||gradient_G|| - penalty_G)`` where it is.
    """
    norms = group_norms(b, first)
    zero = norms == 0.0
    pull = np.repeat(penalties / np.where(zero, 1.0, norms), np.diff(first))
    return np.where(
        zero,
        np.maximum(group_norms(gradient, first) - penalties, 0.0),
        group_norms(gradient + pull * b, first),
    )


def minimise_model(
    hessian: Floats, gradient: Floats, start: Floats, first: Ints, penalties: Floats, tol: float
) -> Floats:
    """Minimise the quadratic model plus group norms; every group is either exactly zero or optimal.

    Parameters
    ----------
    hessian : ndarray of shape (n_heads, n_columns, n_columns)
        Positive semi-definite, one per head.
    gradient : ndarray of shape (n_heads, n_columns)
        Gradient of the quadratic at ``start``.
    start : ndarray of shape (n_heads, n_columns)
        The point ``a``; the answer is never worse.
    first : ndarray of shape (n_groups + 1,)
        Group ``G`` holds the columns ``first[G]`` to ``first[G + 1] - 1``.
    penalties : ndarray of shape (n_groups,)
        Weight of each norm; 0 leaves a group free.
    tol : float
        Largest distance from optimality of any group at which to stop.
    """
    first, penalties = _single_if_free(first, penalties)
    hessian, basis = _diagonal_blocks(hessian, first)
    origin = start if basis is None else _rotate(basis, start)
    gradient_at_origin = gradient if basis is None else _rotate(basis, gradient)
    b, gradient = origin.copy(), gradient_at_origin.copy()
    for round_ in range(MAX_ROUNDS):
        _sweep_blocks(hessian, gradient, b, first, penalties, 0.2 * tol, SWEEPS_PER_ROUND)
        if not np.isfinite(b).all():
            return start  # a Hessian that rounding has made indefinite has no minimiser
        residual = group_residuals(b, gradient, first, penalties).max(initial=0.0)
        if residual <= tol:
            break
        model = GroupModel(hessian, gradient, b, first, penalties)
        b = model.smoothed_newton(residual) if round_ % (PATIENCE + 1) == PATIENCE else model.newton()
        # Afresh, so that rounding does not add up over the rounds.
        gradient = gradient_at_origin + apply(hessian, b - origin)
    return b if basis is None else _rotate(basis.transpose(0, 2, 1), b)


def _rotate(basis: Floats, vectors: Floats) -> Floats:
    """Coordinates of ``vectors`` in the columns of ``basis``; exact zeros stay exact zeros."""
    return apply(basis.transpose(0, 2, 1), vectors)


def _single_if_free(first: Ints, penalties: Floats) -> tuple[Ints, Floats]:
    """Groups and penalties with each column of a free group on its own.

    No norm holds them together, and a block that is singular, without a norm, has no unique optimum.
    """
    sizes = np.diff(first)
    pieces = np.where(penalties == 0.0, sizes, 1)
    first = np.concatenate([[0], np.cumsum(np.repeat(sizes // pieces, pieces))])
    return first.astype(np.intp), np.repeat(penalties, pieces)


def _diagonal_blocks(hessian: Floats, first: Ints) -> tuple[Floats, Floats | None]:
    """Rotate every group with several columns to the axes of its own block of each Hessian.

    Norms do not notice, and a block whose Hessian is diagonal has a closed form up to one scalar.
    """
    wide = np.flatnonzero(np.diff(first) > 1)
    if not wide.size:
        return hessian, None
    basis = np.zeros_like(hessian)
    basis[:, np.arange(hessian.shape[1]), np.arange(hessian.shape[1])] = 1.0
    for group in wide:
        block = slice(first[group], first[group + 1])
        basis[:, block, block] = np.linalg.eigh(hessian[:, block, block])[1]
    rotated = np.matmul(basis.transpose(0, 2, 1), np.matmul(hessian, basis))
    return np.ascontiguousarray(0.5 * (rotated + rotated.transpose(0, 2, 1))), basis


@dataclass(frozen=True)
class GroupModel:
    """``gradient . (x - b) + (x - b)' H (x - b) / 2 + sum_G penalty_G ||x_G||_F`` as a function of ``x``.

    With ``smoothing`` m > 0, ``penalty ||x_G||`` is replaced by ``min_t penalty t - m log(t^2 - ||x_G||^2)``,
    the barrier of the cone ``||x_G|| <= t``. Its minimiser is ``penalty t = m + sqrt(m^2 + (penalty ||x_G||)^2)``
    and its gradient ``penalty x_G / t``; at m = 0 both are those of the norm.

    Attributes
    ----------
    hessian : ndarray of shape (n_heads, n_columns, n_columns)
    gradient : ndarray of shape (n_heads, n_columns)
    b : ndarray of shape (n_heads, n_columns)
    first : ndarray of shape (n_groups + 1,)
    penalties : ndarray of shape (n_groups,)
    smoothing : float
    """

    hessian: Floats
    gradient: Floats
    b: Floats
    first: Ints
    penalties: Floats
    smoothing: float = 0.0

    def newton(self) -> Floats:
        """``b`` after one damped Newton step on the groups in use; never worse than ``b``."""
        return self._step((group_norms(self.b, self.first) > 0.0) | (self.penalties == 0.0))

    def smoothed_newton(self, residual: float) -> Floats:
        """``b`` after Newton's method on norms ever less smooth; never worse than ``b``."""
        everything = np.ones(len(self.penalties), dtype=bool)
        model = replace(self, smoothing=residual * float(group_norms(self.b, self.first).max(initial=0.0)))
        while model.smoothing > MIN_SMOOTHING * residual:
            for _ in range(STEPS_PER_SMOOTHING):
                b = model._step(everything)
                gain = -model.change(b)
                model = replace(model, b=b, gradient=model.gradient + apply(self.hessian, b - model.b))
                if gain <= 0.1 * model.smoothing:
                    break
            model = replace(model, smoothing=0.1 * model.smoothing)
        return model.b if self.change(model.b) < 0.0 else self.b

    def change(self, x: Floats) -> float:
        """The model at ``x`` less the model at ``b``."""
        move = x - self.b
        here, there = (self._norm_terms(group_norms(at, self.first)) for at in (self.b, x))
        quadratic = np.sum(move * (self.gradient + 0.5 * apply(self.hessian, move)))
        return float(quadratic + (there - here).sum())

    def _reach(self, norms: Floats) -> Floats:
        """``t`` of each group, where the barrier is least."""
        if self.smoothing == 0.0:
            return norms
        priced = self.penalties > 0.0
        reach = self.smoothing + np.hypot(self.smoothing, self.penalties * norms)
        return np.divide(reach, self.penalties, out=np.ones_like(reach), where=priced)

    def _norm_terms(self, norms: Floats) -> Floats:
        """The (smoothed) norm of each group times its penalty, up to a constant."""
        reach = self._reach(norms)
        if self.smoothing == 0.0:
            return self.penalties * reach
        return np.where(self.penalties > 0.0, self.penalties * reach - self.smoothing * np.log(reach), 0.0)

    def _step(self, inside: Bools) -> Floats:
        """The best of some lengths of the Newton step on the groups ``inside``."""
        columns = np.flatnonzero(np.repeat(inside, np.diff(self.first)))
        if not 0 < len(self.b) * columns.size <= LARGEST_SYSTEM:
            return self.b
        system, target = self._system(columns)
        # A coordinate without curvature, which has no optimum of its own, gets scale 0 and stays.
        diagonal = np.diagonal(system)
        scale = np.sqrt(np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0))
        solved = scale * _solve_damped(scale[:, None] * system * scale, scale * target)
        direction = np.zeros_like(self.b)
        direction[:, columns] = solved.reshape(len(self.b), -1)
        return self._downhill(direction)

    def _system(self, columns: Ints) -> tuple[Floats, Floats]:
        """Hessian and negative gradient in the chosen columns of all heads, head after head."""
        n_heads, n = len(self.b), columns.size
        norms = group_norms(self.b, self.first)
        reach = self._reach(norms)
        # The norm's own Hessian is pull (I - radial u u') with u = b / ||b||, where radial = 1 if not smoothed.
        pull = np.divide(self.penalties, reach, out=np.zeros_like(norms), where=reach > 0.0)
        root = reach * np.hypot(self.smoothing, self.penalties * norms)
        radial = np.divide(self.penalties, root, out=np.zeros_like(norms), where=root > 0.0)
        group_of = np.repeat(np.arange(len(norms)), np.diff(self.first))[columns]
        group_of, values = np.tile(group_of, n_heads), self.b[:, columns].ravel()
        same = group_of[:, None] == group_of
        system = np.where(same, np.outer(values, -(pull * radial)[group_of] * values), 0.0)
        for k in range(n_heads):
            head = slice(k * n, (k + 1) * n)
            system[head, head] += self.hessian[k][np.ix_(columns, columns)]
        system[np.diag_indices(values.size)] += pull[group_of]
        return system, -(self.gradient[:, columns].ravel() + pull[group_of] * values)

    def _downhill(self, direction: Floats) -> Floats:
        """The best of some steps along ``direction``, or none if none lowers the model.

        A group whose sign would flip stops at zero, where its norm has a kink.
        """
        ahead = np.add.reduceat((self.b * direction).sum(axis=0), self.first[:-1])
        here = np.square(group_norms(self.b, self.first))
        kinked = (ahead < 0.0) & (self.penalties > 0.0) & (self.smoothing == 0.0)
        turns = np.divide(-here, ahead, out=np.full_like(here, np.inf), where=kinked)
        best, lowest = self.b, 0.0
        for length in STEP_LENGTHS:
            moved = self.b + length * direction
            moved[:, np.repeat(turns <= length, np.diff(self.first))] = 0.0
            change = self.change(moved)
            if change < lowest:
                best, lowest = moved, change
            elif lowest < 0.0:
                break
        return best


def _solve_damped(system: Floats, target: Floats) -> Floats:
    """Solve a system with unit diagonal, adding to the diagonal what it takes to be positive definite."""
    for ridge in (1e-12, 1e-10, 1e-8, 1e-6, 1e-4):
        np.fill_diagonal(system, 1.0 + ridge)
        try:
            return np.asarray(cho_solve(cho_factor(system), target))
        except LinAlgError:
            continue
    return np.zeros_like(target)


@kernel
def _block_norm(curvature: Floats, linear: Floats, penalty: float, guess: float) -> float:
    """Norm of ``argmin_b  b' diag(curvature) b / 2 - linear . b + penalty ||b||`` given it is not zero.

    ``b_i = r linear_i / (r curvature_i + penalty)`` with ``r = ||b||`` the root of ``h(r) = 1``, where
    ``h(r) = (sum_i linear_i^2 / (r curvature_i + penalty)^2)^(-1/2)`` is increasing and concave (a power
    mean of lines). Tangents of a concave function lie above it, so Newton's method started left
    of the root stays left and climbs; from the right its first step lands on the left.
    """
    r = guess
    for _ in range(100):
        total, fall = 0.0, 0.0
        for i in range(linear.size):
            inverse = 1.0 / (r * curvature[i] + penalty)
            square = (linear[i] * inverse) ** 2
            total += square
            fall += square * inverse * curvature[i]
        if fall == 0.0:
            return r
        # 1 / sqrt(total) is h, and h^3 * fall its derivative.
        step = (np.sqrt(total) - 1.0) * total / fall
        if r + step <= 0.0:
            r = 0.0
            continue
        r += step
        if abs(np.sqrt(total) - 1.0) <= 4e-16:
            break
    return r


@kernel
def _minimise_block(curvature: Floats, linear: Floats, penalty: float, b: Floats) -> None:
    """Overwrite ``b`` with ``argmin_b  b' diag(curvature) b / 2 - linear . b + penalty ||b||``.

    A coordinate whose curvature is 0 has no finite optimum of its own and stays.
    """
    if penalty == 0.0:
        for i in range(b.size):
            if curvature[i] > 0.0:
                b[i] = linear[i] / curvature[i]
        return
    if np.sqrt(np.sum(linear * linear)) <= penalty:
        b[:] = 0.0
        return
    if np.max(curvature) <= 0.0:
        return
    r = _block_norm(curvature, linear, penalty, np.sqrt(np.sum(b * b)))
    for i in range(b.size):
        b[i] = r * linear[i] / (r * curvature[i] + penalty)


@kernel
def _sweep_blocks(
    hessian: Floats, gradient: Floats, b: Floats, first: Ints, penalties: Floats, tol: float, max_sweeps: int
) -> None:
    """Minimise group after group, in place, keeping ``gradient`` current, until no gradient moves by ``tol``."""
    n_heads, n_columns = b.shape
    widest = 0
    for group in range(penalties.size):
        widest = max(widest, first[group + 1] - first[group])
    curvature, linear = np.empty(n_heads * widest), np.empty(n_heads * widest)
    block = np.empty(n_heads * widest)
    for _ in range(max_sweeps):
        largest = 0.0
        for group in range(penalties.size):
            size = 0
            for k in range(n_heads):
                for j in range(first[group], first[group + 1]):
                    # A singular block's smallest eigenvalues may round to either side of 0.
                    curvature[size] = max(hessian[k, j, j], 0.0)
                    block[size] = b[k, j]
                    linear[size] = curvature[size] * block[size] - gradient[k, j]
                    size += 1
            _minimise_block(curvature[:size], linear[:size], penalties[group], block[:size])
            size = 0
            for k in range(n_heads):
                for j in range(first[group], first[group + 1]):
                    move = block[size] - b[k, j]
                    size += 1
                    if move != 0.0:
                        b[k, j] = block[size - 1]
                        largest = max(largest, abs(move) * hessian[k, j, j])
                        for i in range(n_columns):
                            gradient[k, i] += move * hessian[k, j, i]
        if largest <= tol:
            return
