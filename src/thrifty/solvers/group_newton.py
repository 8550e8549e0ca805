"""Newton steps for a quadratic plus group norms, where minimising one group after the other is slow.

Nearly collinear columns make block descent crawl. Away from zero a norm is smooth, so one Newton step
on the groups in use usually finishes; where groups still have to leave or enter, norms are
smoothed first, as in an interior point method, and the smoothing is taken back by degrees.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from thrifty.arrays import Bools, Floats, Ints

__all__ = ["GroupModel", "apply", "group_norms"]


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


@dataclass(frozen=True)
class GroupModel:
    """``slope . (x - b) + (x - b)' H (x - b) / 2 + sum_G penalty_G ||x_G||_F`` as a function of ``x``.

    With ``smoothing`` m > 0, ``penalty ||x_G||`` is replaced by ``min_t penalty t - m log(t^2 - ||x_G||^2)``,
    the barrier of the cone ``||x_G|| <= t``. Its minimiser is ``penalty t = m + sqrt(m^2 + (penalty ||x_G||)^2)``
    and its gradient ``penalty x_G / t``; at m = 0 both are those of the norm.

    Attributes
    ----------
    hessian : ndarray of shape (n_heads, n_columns, n_columns)
    slope : ndarray of shape (n_heads, n_columns)
    b : ndarray of shape (n_heads, n_columns)
    first : ndarray of shape (n_groups + 1,)
    penalties : ndarray of shape (n_groups,)
    smoothing : float
    """

    hessian: Floats
    slope: Floats
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
                model = replace(model, b=b, slope=model.slope + apply(self.hessian, b - model.b))
                if gain <= 0.1 * model.smoothing:
                    break
            model = replace(model, smoothing=0.1 * model.smoothing)
        return model.b if self.change(model.b) < 0.0 else self.b

    def change(self, x: Floats) -> float:
        """The model at ``x`` less the model at ``b``."""
        move = x - self.b
        here, there = (self._norm_terms(group_norms(at, self.first)) for at in (self.b, x))
        quadratic = np.sum(move * (self.slope + 0.5 * apply(self.hessian, move)))
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
        # The norm's own curvature is pull (I - bend u u') with u = b / ||b||, where bend = 1 if not smoothed.
        pull = np.divide(self.penalties, reach, out=np.zeros_like(norms), where=reach > 0.0)
        root = reach * np.hypot(self.smoothing, self.penalties * norms)
        bend = np.divide(self.penalties, root, out=np.zeros_like(norms), where=root > 0.0)
        group_of = np.repeat(np.arange(len(norms)), np.diff(self.first))[columns]
        group_of, values = np.tile(group_of, n_heads), self.b[:, columns].ravel()
        same = group_of[:, None] == group_of
        system = np.where(same, np.outer(values, -(pull * bend)[group_of] * values), 0.0)
        for k in range(n_heads):
            head = slice(k * n, (k + 1) * n)
            system[head, head] += self.hessian[k][np.ix_(columns, columns)]
        system[np.diag_indices(values.size)] += pull[group_of]
        return system, -(self.slope[:, columns].ravel() + pull[group_of] * values)

    def _downhill(self, direction: Floats) -> Floats:
        """The best of some steps along ``direction``, or none if none lowers the model.

        A group that would turn round has no business beyond zero, where its norm bends: it stops there.
        """
        ahead = np.add.reduceat((self.b * direction).sum(axis=0), self.first[:-1])
        here = np.square(group_norms(self.b, self.first))
        bends = (ahead < 0.0) & (self.penalties > 0.0) & (self.smoothing == 0.0)
        turns = np.divide(-here, ahead, out=np.full_like(here, np.inf), where=bends)
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
