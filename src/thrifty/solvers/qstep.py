"""The share of each row sent to the full model, exactly, for both distances: (OPT3), (OPT5), (OPT1).

    argmin_q  mean_s[(1 - q) excess + D(q, g)]   subject to   mean_s[w q] <= limit

``w`` is the extra cost of sending a row on, ``c(f0, x) - c(f1)``, and ``limit`` what may be spent on top of
the cheap model: the budget of (OPT1). With ``w = 1`` the limit is ``p_full``, the cap on the mean share of
(OPT2), (OPT3) and (OPT5). For a fixed multiplier ``eta`` of the constraint the rows separate; what remains
is one monotone search for ``eta``. Answers are log-odds ``t = logit(q)``: a share that rounds to 0 or 1
still has them.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.solvers.multiplier import smallest_multiplier
from thrifty.solvers.solution import Solution
from thrifty.solvers.spending import SpendingProblem, check_spending
from thrifty.solvers.squared_path import find_crossing, settle_jumps

__all__ = ["q_step_kl", "q_step_squared"]

GAP_TOL = 1e-7


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


def _slack_value(problem: SpendingProblem, t: Floats, eta: float) -> float:
    """``eta * (limit - spend)``: the duality gap of the minimisers of the Lagrangian at ``eta``."""
    slack = max(problem.limit - problem.spend(t), 0.0)
    return eta * slack if eta > 0.0 and slack > 0.0 else 0.0


def _gap_tolerance(problem: SpendingProblem, eta: float) -> float:
    """A gap below this is rounding; 1 is the unit of a log-loss, ``eta * limit`` what the limit is worth."""
    return GAP_TOL * max(1.0, eta * problem.limit if math.isfinite(eta) else 0.0)
