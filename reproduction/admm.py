"""ADMM for the q-step under the squared distance: the paper's own solver of (OPT5), appendix (Boyd et al., 2011).

``thrifty.learners.dynamod.q_step_squared`` solves the same problem exactly and faster by orders of
magnitude; the two are compared in the tests.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import Solution
from thrifty.learners.dynamod.qstep import SpendingProblem, check_spending, q_step_kl

__all__ = ["q_step_squared_admm"]

# Beyond 40 the derivative of expit is below 1e-17: a minimum there is the parabola's own, at g.
GRID = np.linspace(-40.0, 40.0, 321)
SPACING = GRID[1] - GRID[0]
# Halvings of one grid step down to rounding; Newton's method takes about five.
MAX_NEWTON = 50


def q_step_squared_admm(
    excess: ArrayLike,
    g: ArrayLike,
    limit: float,
    *,
    extra_cost: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    rho: float = 30.0,
    max_iter: int = 5000,
    tol: float = 1e-9,
) -> Solution[Floats]:
    """Share of each row sent to the full model, squared distance, by ADMM: paper (OPT5), appendix.

        argmin_q  mean_s[(1 - q) excess + (logit(q) - g)^2]   subject to   mean_s[w q] <= limit

    The limit is moved to a copy ``z`` of the shares; ``u`` is the scaled multiplier of ``q = z``:

        q <- argmin_q  -excess q + (logit(q) - g)^2 + (rho / 2) (q - z + u)^2      row by row
        z <- nearest point to q + u with mean_s[w z] <= limit                      closed form
        u <- u + q - z

    Meant for small problems: every iteration searches a grid of 321 points per row. Where a row is not
    convex (its tilt ``|excess - eta w|`` above 21) ADMM may end in a local optimum or not settle at all.

    Parameters
    ----------
    excess, g, limit, extra_cost, sample_weight
        As in ``q_step_squared``.
    rho : float
        Weight of the penalty on ``q - z``.
    max_iter : int
        Most rounds of the three updates.
    tol : float
        Bound on ``residual``.

    Returns
    -------
    Solution
        ``value``: log-odds of ``q``. The last ``q`` meets the constraint only up to ``tol``, so it is moved to
        the nearest shares, in KL divergence, that meet it exactly (``t - delta w``).
        ``residual``: the larger of the root mean squares of ``q - z`` and of ``rho`` times the last
        change of ``z``. ``n_iter``: rounds. ``converged``: residual at most ``tol``.
    """
    if not (rho > 0.0 and tol > 0.0 and max_iter >= 1):
        raise InvalidInputError(
            f"rho, tol and max_iter must be positive; got rho={rho!r}, tol={tol!r}, max_iter={max_iter!r}."
        )
    problem = check_spending(excess, g, limit, extra_cost, sample_weight)
    z, u = expit(problem.g), np.zeros_like(problem.g)
    n_iter, residual = 0, np.inf
    while residual > tol and n_iter < max_iter:
        n_iter += 1
        t = _update_q(problem, z - u, rho)
        q = expit(t)
        z, z_old = _project(problem, q + u), z
        u = u + q - z
        residual = max(_root_mean_square(problem, q - z), rho * _root_mean_square(problem, z - z_old))
    nearest = q_step_kl(np.zeros_like(t), t, limit, extra_cost=extra_cost, sample_weight=sample_weight)
    return Solution(nearest.value, residual, n_iter, residual <= tol)


def _root_mean_square(problem: SpendingProblem, values: Floats) -> float:
    return float(np.sqrt(np.sum(problem.weight * values * values)))


def _project(problem: SpendingProblem, values: Floats) -> Floats:
    """Nearest point, in the weighted mean square, of the half-space ``mean_s[w z] <= limit``."""
    over = float(np.sum(problem.weight * problem.price * values)) - problem.limit
    if over <= 0.0:
        return values
    return values - over / float(np.sum(problem.weight * problem.price**2)) * problem.price


def _update_q(problem: SpendingProblem, target: Floats, rho: float) -> Floats:
    """Log-odds minimising ``-excess q + (t - g)^2 + (rho / 2) (q - target)^2`` per row: grid, then Newton."""
    excess, g = problem.excess[:, None], problem.g[:, None]
    points = np.hstack([np.broadcast_to(GRID, (g.size, GRID.size)), g])
    share = expit(points)
    value = (points - g) ** 2 - excess * share + 0.5 * rho * (share - target[:, None]) ** 2
    best = np.take_along_axis(points, np.argmin(value, axis=1)[:, None], axis=1)[:, 0]
    return _refine(problem, target, rho, best)


def _refine(problem: SpendingProblem, target: Floats, rho: float, t: Floats) -> Floats:
    """Minimum within one grid step of ``t``: Newton's method on the derivative, halving where it leads out."""
    lower, upper = t - SPACING, t + SPACING
    for _ in range(MAX_NEWTON):
        share = expit(t)
        first = share * expit(-t)
        second = first * (1.0 - 2.0 * share)
        pull = problem.excess - rho * (share - target)
        gradient = 2.0 * (t - problem.g) - pull * first
        hessian = 2.0 - pull * second + rho * first * first
        lower, upper = np.where(gradient < 0.0, t, lower), np.where(gradient > 0.0, t, upper)
        there = t - gradient / np.where(hessian > 0.0, hessian, np.inf)
        inside = (hessian > 0.0) & (there > lower) & (there < upper)
        t, old = np.where(inside, there, 0.5 * (lower + upper)), t
        if np.all(np.abs(t - old) <= 1e-12 * np.maximum(1.0, np.abs(t))):
            break
    return t
