"""The q-step, the share of each row sent to the full model, exactly for both distances: (OPT3), (OPT5), (OPT1).

    argmin_q  mean_s[(1 - q) excess + D(q, g)]   subject to   mean_s[w q] <= limit

``w`` is the extra cost of sending a row on, ``c(f0, x) - c(f1)``, and ``limit`` what may be spent on top of
the cheap model: the budget of (OPT1). With ``w = 1`` the limit is ``p_full``, the cap on the mean share of
(OPT2), (OPT3) and (OPT5). For a fixed multiplier ``eta`` of the constraint the rows separate; what remains
is one monotone search for ``eta``. Answers are log-odds ``t = logit(q)``: a share that rounds to 0 or 1
still has them.

The paper solves (OPT5) by the alternating direction method of multipliers (Boyd et al., 2011), which is
kept as an independent check of the exact search; that is faster by orders of magnitude.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.dynamod.qstep_squared import find_crossing, settle_jumps
from thrifty.dynamod.solution import Solution
from thrifty.dynamod.spending_limit import SpendingProblem, check_spending, smallest_multiplier
from thrifty.errors import InvalidInputError

__all__ = ["q_step_kl", "q_step_squared", "q_step_squared_admm"]

GAP_TOL = 1e-7
# ADMM searches a grid. Beyond 40 the derivative of expit is below 1e-17: a minimum there is the parabola's own, at g.
GRID = np.linspace(-40.0, 40.0, 321)
SPACING = GRID[1] - GRID[0]
# Halvings of one grid step down to rounding; Newton's method takes about five.
MAX_NEWTON = 50


def q_step_kl(
    excess: ArrayLike,
    g: ArrayLike,
    limit: float,
    *,
    extra_cost: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Solution[Floats]:
    """Share of each row sent to the full model, KL distance: paper (OPT3), with (OPT1)'s spending limit.

        argmin_q  mean_s[(1 - q) excess + KL(q || expit(g))]   subject to   mean_s[w q] <= limit

    (OPT3)'s ``A - B`` is ``excess + g``, so the answer is ``t = excess + g - eta w`` with the smallest
    ``eta >= 0`` that meets the constraint; ``w = 1`` and ``limit = p_full`` give (OPT3) itself.

    Parameters
    ----------
    excess : array-like of shape (n_samples,)
        Loss added by answering cheaply, ``l(f1) - l(f0)``.
    g : array-like of shape (n_samples,)
        Gate scores: log-odds of "send on".
    limit : float
        Largest mean of ``extra_cost * q``; ``p_full`` if ``extra_cost`` is not given.
    extra_cost : array-like of shape (n_samples,), optional
        ``w >= 0``; 1 for every row if not given. A row with ``w = 0`` is not constrained.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative; a row of weight 2 counts like two equal rows.

    Returns
    -------
    Solution
        ``value``: log-odds of ``q``, ``-inf`` where ``limit == 0`` forbids a row. ``residual``: duality gap;
        since each share minimises its row of the Lagrangian in closed form, it is
        ``eta * (limit - spend)``. ``n_iter``: evaluations of the spend, O(n_samples) each, 10 to 20 as a
        rule. ``converged``: gap at most ``1e-7 max(1, eta * limit)``.
    """
    problem = check_spending(excess, g, limit, extra_cost, sample_weight)
    free = problem.excess + problem.g

    def log_odds(eta: float) -> Floats:
        return free - problem.charge(eta)

    # Small shares fall like exp(-eta w), so the reciprocal of a price is the size to start from.
    bracket = smallest_multiplier(
        lambda eta: problem.spend(log_odds(eta)), problem.limit, guess=problem.unit()
    )
    t = log_odds(bracket.above)
    gap = _slack_value(problem, t, bracket.above)
    return Solution(t, gap, bracket.n_evaluations, gap <= _gap_tolerance(problem, bracket.above))


def q_step_squared(
    excess: ArrayLike,
    g: ArrayLike,
    limit: float,
    *,
    extra_cost: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Solution[Floats]:
    """Share of each row sent to the full model, squared distance: paper (OPT5), with (OPT1)'s spending limit.

        argmin_q  mean_s[(1 - q) excess + (logit(q) - g)^2]   subject to   mean_s[w q] <= limit

    For a fixed multiplier each row is ``argmin_t (t - g)^2 - (excess - eta w) expit(t)``, solved globally.
    That is monotone in ``eta`` but jumps where a row has two equally good shares. If the limit falls
    inside a jump, as many tied rows as fit take their larger share, or one more, and the multiplier moves
    down or up to suit; the better of the two is kept.

    Parameters
    ----------
    excess : array-like of shape (n_samples,)
        Loss added by answering cheaply, ``l(f1) - l(f0)``.
    g : array-like of shape (n_samples,)
        Gate scores: log-odds of "send on".
    limit : float
        Largest mean of ``extra_cost * q``; ``p_full`` if ``extra_cost`` is not given.
    extra_cost : array-like of shape (n_samples,), optional
        ``w >= 0``; 1 for every row if not given. A row with ``w = 0`` is not constrained.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative; a row of weight 2 counts like two equal rows, except that a jump moves it whole.

    Returns
    -------
    Solution
        ``value``: log-odds of ``q``, ``-inf`` where ``limit == 0`` forbids a row. ``residual``: duality gap,
        rounding if the limit falls in no jump, else at most ``eta`` times one tied row's part of the
        limit, and far less when there are other rows to make up the difference. ``n_iter``: evaluations of all rows.
        ``converged``: gap at most ``1e-7 max(1, eta * limit)``. False means that a jump was met: the answer
        satisfies the constraint and is within ``residual`` of the optimum, and more iterations would not help.
    """
    problem = check_spending(excess, g, limit, extra_cost, sample_weight)
    crossing = find_crossing(problem, np.zeros(problem.g.size, dtype=np.int8), problem.unit())
    tol = _gap_tolerance(problem, crossing.above.eta)
    gap = _slack_value(problem, crossing.above.t, crossing.above.eta)
    t, gap, n_evaluations = settle_jumps(crossing, gap, tol)
    return Solution(t, gap, n_evaluations, gap <= tol)


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


def _slack_value(problem: SpendingProblem, t: Floats, eta: float) -> float:
    """``eta * (limit - spend)``: the duality gap of the minimisers of the Lagrangian at ``eta``."""
    slack = max(problem.limit - problem.spend(t), 0.0)
    return eta * slack if eta > 0.0 and slack > 0.0 else 0.0


def _gap_tolerance(problem: SpendingProblem, eta: float) -> float:
    """A gap below this is rounding; 1 is the unit of a log-loss, ``eta * limit`` what the limit is worth."""
    return GAP_TOL * max(1.0, eta * problem.limit if math.isfinite(eta) else 0.0)


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
