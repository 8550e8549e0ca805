"""A quadratic plus group norms, the model that each proximal Newton step minimises.

    argmin_b  sum_k [ gradient_k . (b_k - a_k) + (b_k - a_k)' H_k (b_k - a_k) / 2 ] + sum_G penalty_G ||b_G||_F

``b`` has shape (n_heads, n_columns); a group is a run of neighbouring columns, of all heads. The heads meet
only in the norms. Blocks are minimised exactly, one group after the other. Nearly collinear columns make
that crawl. Away from zero a norm is smooth, so one Newton step on the groups in use usually finishes;
where groups still have to leave or enter, norms are smoothed first, as in an interior point method, and
the smoothing is taken back by degrees.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from thrifty.arrays import Bools, Floats, Ints
from thrifty.jit import kernel

__all__ = ["GroupModel", "apply", "group_norms", "group_residuals", "minimise_model"]

SWEEPS_PER_ROUND = 20
MOST_ROUNDS = 50
PATIENCE = 3  # rounds of sweeps and Newton steps before the norms are smoothed
LARGEST_SYSTEM = 3000  # unknowns; beyond, factoring costs more than it saves
STEP_LENGTHS = 0.5 ** np.arange(12)
LEAST_SMOOTHING = 1e-10
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
    """How far each group is from optimal: ``dist(-gradient_G, penalty_G * subdifferential of ||b_G||)``.

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
    for round_ in range(MOST_ROUNDS):
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
        while model.smoothing > LEAST_SMOOTHING * residual:
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

        A group that would turn round has no business beyond zero, where its norm has a kink: it stops there.
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
    hessian: Floats, gradient: Floats, b: Floats, first: Ints, penalties: Floats, tol: float, most: int
) -> None:
    """Minimise group after group, in place, keeping ``gradient`` current, until no gradient moves by ``tol``."""
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
