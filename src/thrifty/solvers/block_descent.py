"""A quadratic plus group norms, the model that each proximal Newton step minimises.

    argmin_b  sum_k [ slope_k . (b_k - a_k) + (b_k - a_k)' H_k (b_k - a_k) / 2 ] + sum_G penalty_G ||b_G||_F

``b`` has shape (n_heads, n_columns); a group is a run of neighbouring columns, of all heads. The
heads meet only in the norms. Blocks are minimised exactly, one group after the other; when that is
slow, because columns are nearly collinear, Newton steps on several groups at once take turns with it.
"""

import numpy as np
from numba import njit

from thrifty.arrays import Floats, Ints
from thrifty.solvers.group_newton import GroupModel, apply, group_norms

__all__ = ["group_residuals", "minimise_model"]


SWEEPS_PER_ROUND = 20
MOST_ROUNDS = 50
PATIENCE = 3  # rounds of sweeps and Newton steps before the norms are smoothed


def group_residuals(b: Floats, slope: Floats, first: Ints, penalties: Floats) -> Floats:
    """How far each group is from optimal: ``dist(-slope_G, penalty_G * subdifferential of ||b_G||)``.

    That is ``||slope_G + penalty_G b_G / ||b_G|| ||`` where the group is not zero, and
    ``max(0, ||slope_G|| - penalty_G)`` where it is.
    """
    norms = group_norms(b, first)
    zero = norms == 0.0
    pull = np.repeat(penalties / np.where(zero, 1.0, norms), np.diff(first))
    return np.where(
        zero,
        np.maximum(group_norms(slope, first) - penalties, 0.0),
        group_norms(slope + pull * b, first),
    )


def minimise_model(
    hessian: Floats, slope: Floats, start: Floats, first: Ints, penalties: Floats, tol: float
) -> Floats:
    """Minimise the quadratic model plus group norms; every group is either exactly zero or optimal.

    Parameters
    ----------
    hessian : ndarray of shape (n_heads, n_columns, n_columns)
        Positive semi-definite, one per head.
    slope : ndarray of shape (n_heads, n_columns)
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
    slope_at_origin = slope if basis is None else _rotate(basis, slope)
    b, slope = origin.copy(), slope_at_origin.copy()
    for round_ in range(MOST_ROUNDS):
        _sweep_blocks(hessian, slope, b, first, penalties, 0.2 * tol, SWEEPS_PER_ROUND)
        if not np.isfinite(b).all():
            return start  # a Hessian that rounding has made indefinite has no minimiser
        residual = group_residuals(b, slope, first, penalties).max(initial=0.0)
        if residual <= tol:
            break
        model = GroupModel(hessian, slope, b, first, penalties)
        b = model.smoothed_newton(residual) if round_ % (PATIENCE + 1) == PATIENCE else model.newton()
        # Afresh, so that rounding does not add up over the rounds.
        slope = slope_at_origin + apply(hessian, b - origin)
    return b if basis is None else _rotate(basis.transpose(0, 2, 1), b)


def _rotate(basis: Floats, vectors: Floats) -> Floats:
    """Coordinates of ``vectors`` in the columns of ``basis``; exact zeros stay exact zeros."""
    return apply(basis.transpose(0, 2, 1), vectors)


def _single_if_free(first: Ints, penalties: Floats) -> tuple[Ints, Floats]:
    """The same problem with the columns of free groups on their own.

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


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]  # numba has no stubs
def _block_norm(curvature: Floats, linear: Floats, penalty: float, guess: float) -> float:
    """Norm of ``argmin_b  b' diag(curvature) b / 2 - linear . b + penalty ||b||`` given it is not zero.

    ``b_i = r linear_i / (r curvature_i + penalty)`` with ``r = ||b||`` the root of ``h(r) = 1``, where
    ``h(r) = (sum_i linear_i^2 / (r curvature_i + penalty)^2)^(-1/2)`` is increasing and concave (a power
    mean of lines). Tangents of a concave function lie above it, so Newton's method started left
    of the root stays left and climbs; from the right its first step lands on the left.
    """
    r = guess
    for _ in range(100):
        total, tilt = 0.0, 0.0
        for i in range(linear.size):
            inverse = 1.0 / (r * curvature[i] + penalty)
            square = (linear[i] * inverse) ** 2
            total += square
            tilt += square * inverse * curvature[i]
        if tilt == 0.0:
            return r
        # 1 / sqrt(total) is h, and h^3 * tilt its derivative.
        step = (np.sqrt(total) - 1.0) * total / tilt
        if r + step <= 0.0:
            r = 0.0
            continue
        r += step
        if abs(np.sqrt(total) - 1.0) <= 4e-16:
            break
    return r


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]  # numba has no stubs
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


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]  # numba has no stubs
def _sweep_blocks(
    hessian: Floats, slope: Floats, b: Floats, first: Ints, penalties: Floats, tol: float, most: int
) -> None:
    """Minimise group after group, in place, keeping ``slope`` current, until no slope moves by ``tol``."""
    n_heads, n_columns = b.shape
    widest = 0
    for group in range(penalties.size):
        widest = max(widest, first[group + 1] - first[group])
    curvature, linear = np.empty(n_heads * widest), np.empty(n_heads * widest)
    block = np.empty(n_heads * widest)
    for _ in range(most):
        largest = 0.0
        for group in range(penalties.size):
            size = 0
            for k in range(n_heads):
                for j in range(first[group], first[group + 1]):
                    # A singular block's smallest eigenvalues may round to either side of 0.
                    curvature[size] = max(hessian[k, j, j], 0.0)
                    block[size] = b[k, j]
                    linear[size] = curvature[size] * block[size] - slope[k, j]
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
                            slope[k, i] += move * hessian[k, j, i]
        if largest <= tol:
            return
