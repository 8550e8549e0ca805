"""Shares of the squared q-step: each row exactly, all rows as a function of the multiplier, and jumps settled.

For a multiplier ``eta`` of the spending limit each row minimises its part of the Lagrangian,

    t(eta) = argmin_t  h(t) = (t - g)^2 - a expit(t),   a = excess - eta w,

which never rises with ``eta``. It can jump, where a row has two equally good shares; the spend then
jumps with it and may pass the limit without ever being equal to it. Either of the tied shares is as
good for the Lagrangian, so tied rows are told which *side* to take and the multiplier moves a little,
down or up, until the other rows make up the difference: what that loses is of second order.

A row, a parabola minus a sigmoid, is not convex once ``|a| > 12 sqrt(3)``. For ``a < 0`` mirror everything
(t -> -t, g -> -g). For ``a > 0`` the derivative ``h' = 2 (t - g) - a s'(t)``, with ``s = expit``, has these
properties, which the code relies on:

* every stationary point lies in ``[g, g + a / 8]``, since ``0 < s' <= 1/4``;
* ``h'' = 2 - a s''(t)`` is negative only between two inflection points ``t1 < t2 < 0``, so there is at
  most one minimum on the *low* side of ``t1`` and one on the *high* side of ``t2``;
* ``h'`` is concave left of ``t1``, convex from ``t2`` to ``c = log(2 + sqrt(3))`` and concave right of ``c``
  (``s'''`` vanishes at ``-c`` and ``c`` only), so Newton's method started at ``g`` for the low minimum and at
  ``max(c, g)`` for the high one moves in one direction only and cannot leave its piece.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from thrifty.arrays import Bools, Floats, Ints
from thrifty.dynamod.spending_limit import EPS, ROUNDING, SpendingProblem, smallest_multiplier

__all__ = ["Crossing", "Point", "find_crossing", "minimise_tilted", "minimise_tilted_between", "settle_jumps"]

Sides = NDArray[np.int8]
# Between neighbouring multipliers a share changes by rounding, or it jumps.
JUMP = 1e-6
# A second jump is rare, and every one that follows is worth less.
MAX_JUMPS = 4
# The largest s'' is 1 / (6 sqrt(3)), at -c; above this tilt, h'' = 2 - a s'' changes sign.
CRITICAL_TILT = float(12.0 * np.sqrt(3.0))
# Where s'' is largest in size: c and -c.
PEAK = float(np.log(2.0 + np.sqrt(3.0)))
# Minimisers this close have the one between them on a straight line, to the square of it.
CLOSE = 1e-9
# Quadratic convergence takes about 6 steps; only a row at the point where two minima merge takes more.
MAX_NEWTON = 100


@dataclass(frozen=True)
class Point:
    """A multiplier and the log-odds there."""

    eta: float
    t: Floats


@dataclass(frozen=True)
class Crossing:
    """Where the spend passes the limit.

    Attributes
    ----------
    problem : SpendingProblem
        The rows and the limit.
    side : ndarray of shape (n_samples,)
        Which share a row with two takes: the better (0), the smaller (-1) or the larger (1).
    below : Point or None
        Largest multiplier that exceeds the limit; None if the constraint does not bind.
    above : Point
        Smallest multiplier that meets the limit, next to ``below``; infinite if no finite one does.
    n_evaluations : int
        How often all rows were computed.
    """

    problem: SpendingProblem
    side: Sides
    below: Point | None
    above: Point
    n_evaluations: int


class _Path:
    """``t(eta)`` during a search, computed from the nearest answers yet on either side of the limit.

    Since ``t`` never rises with ``eta``, they bound the answer of every multiplier in between.
    """

    def __init__(self, problem: SpendingProblem, side: Sides) -> None:
        self.problem = problem
        self.side = side
        self.below: Point | None = None
        self.above: Point | None = None
        self.n_evaluations = 0

    def at(self, eta: float) -> Point:
        problem, below, above = self.problem, self.below, self.above
        self.n_evaluations += 1
        if math.isinf(eta):
            free = minimise_tilted(problem.excess, problem.g, self.side)
            return Point(eta, np.where(problem.price > 0.0, -np.inf, free))
        a = problem.excess - eta * problem.price
        if below is None or above is None:
            return Point(eta, minimise_tilted(a, problem.g, self.side))
        start = below.t + (eta - below.eta) / (above.eta - below.eta) * (above.t - below.t)
        return Point(eta, minimise_tilted_between(a, problem.g, self.side, above.t, below.t, start))

    def spend(self, eta: float) -> float:
        point = self.at(eta)
        spend = self.problem.spend(point.t)
        if spend > self.problem.limit * (1.0 + ROUNDING):
            self.below = point
        else:
            self.above = point
        return spend


def find_crossing(problem: SpendingProblem, side: Sides, guess: float, ratio: float = 4.0) -> Crossing:
    """Search for the smallest multiplier that meets the limit, starting at ``guess``."""
    path = _Path(problem, side)
    bracket = smallest_multiplier(path.spend, problem.limit, guess=guess, ratio=ratio)
    above = path.above if path.above is not None else path.at(bracket.above)
    return Crossing(problem, side, path.below, above, path.n_evaluations)


def settle_jumps(crossing: Crossing, gap: float, tol: float) -> tuple[Floats, float, int]:
    """Best answer found when tied rows are sent to one side or the other, jump after jump.

    Starts from a ``crossing`` found with no side given to any row and the duality ``gap`` of its ``above.t``, and
    stops at a gap of ``tol``. Returns log-odds that meet the limit, ``above.t`` itself if there is no jump; their
    duality gap; and how often all rows were computed, from the first search on.
    """
    start, best, first_gap = crossing.above.t, crossing.above.t, gap
    n_evaluations = crossing.n_evaluations
    for _ in range(MAX_JUMPS):
        options: list[tuple[float, Crossing]] = []
        for side in _sides_at_jump(crossing):
            if gap <= tol:
                break
            option = find_crossing(crossing.problem, side, crossing.above.eta, ratio=1.01)
            n_evaluations += option.n_evaluations
            # A row told to keep its larger share may do so whatever it costs: then there is no answer.
            if math.isfinite(option.above.eta):
                t = _use_room(option)
                options.append((first_gap + _objective_change(option.problem, t, start), option))
                if options[-1][0] < gap:
                    gap, best = options[-1][0], t
        if not options:
            break
        crossing = min(options, key=lambda option: option[0])[1]
    return best, max(gap, 0.0), n_evaluations


def _objective_change(problem: SpendingProblem, t: Floats, start: Floats) -> float:
    """Objective at ``t`` minus objective at ``start``, row by row and factored, so that it does not cancel."""
    squares = (t - start) * (t + start - 2.0 * problem.g)
    return float(np.sum(problem.weight * (squares - problem.excess * (expit(t) - expit(start)))))


def _use_room(crossing: Crossing) -> Floats:
    """Log-odds that meet the limit; what a jump leaves over goes to the row that jumps most, if that pays."""
    problem, t = crossing.problem, crossing.above.t
    room = problem.limit - problem.spend(t)
    if crossing.below is None or room <= ROUNDING * problem.limit:
        return t
    parts = problem.weight * problem.price * (expit(crossing.below.t) - expit(t))
    row = int(np.argmax(parts))
    if parts[row] <= room:
        return t
    share = expit(t[row]) + room / (problem.weight[row] * problem.price[row])
    filled = t.copy()
    filled[row] = min(logit(share), crossing.below.t[row])
    return filled if _objective_change(problem, filled, t) < 0.0 else t


def _sides_at_jump(crossing: Crossing) -> list[Sides]:
    """Sides to send tied rows to: as many as fit to their larger share, or one more than fit.

    Nothing if the limit did not fall inside a jump, or only of rows that were told their side before.
    """
    if crossing.below is None or math.isinf(crossing.above.eta):
        return []
    problem = crossing.problem
    rise = np.where(crossing.side == 0, expit(crossing.below.t) - expit(crossing.above.t), 0.0)
    tied = np.flatnonzero(rise > JUMP)
    if tied.size == 0:
        return []
    parts = (problem.weight * problem.price * rise)[tied]
    room = problem.limit * (1.0 + ROUNDING) - problem.spend(crossing.above.t)
    # The running sum of n parts may be wrong by n units in the last place.
    fits = _fitting(parts, room * (1.0 - tied.size * EPS))
    within = crossing.side.copy()
    within[tied] = -1
    within[tied[fits]] = 1
    left_out = np.delete(np.arange(tied.size), fits)
    if left_out.size == 0:
        return [within]
    beyond = within.copy()
    beyond[tied[left_out[np.argmin(parts[left_out])]]] = 1
    return [within, beyond]


def _fitting(parts: Floats, room: float) -> Ints:
    """Indices of ``parts`` chosen greedily, largest first, so that their sum stays within ``room``.

    Each turn takes the longest run that fits and skips what no longer does, which at least halves the
    room left: some fifty turns at most, one or two as a rule.
    """
    order = np.argsort(-parts, kind="stable")
    taken = [order[:0]]
    while order.size:
        order = order[np.searchsorted(-parts[order], -room) :]
        total = np.cumsum(parts[order])
        count = int(np.searchsorted(total, room, side="right"))
        if count == 0:
            break
        taken.append(order[:count])
        room -= float(total[count - 1])
        order = order[count:]
    return np.concatenate(taken)


def minimise_tilted(a: Floats, g: Floats, side: Sides) -> Floats:
    """Minimiser of ``(t - g)^2 - a expit(t)`` for each row, global unless a side is asked for.

    Parameters
    ----------
    a, g : ndarray of shape (n_samples,)
        Finite, of any sign and size.
    side : ndarray of shape (n_samples,)
        Which one to take where there are two local minima: the better (0), the one with the smaller
        share (-1) or with the larger share (1).

    Returns
    -------
    ndarray of shape (n_samples,)
        Accurate to rounding, except where two minima are about to merge and ``t`` itself is
        ill-conditioned; non-decreasing in ``a``.
    """
    sign = np.where(a < 0.0, -1.0, 1.0)
    tilt, g, side = np.abs(a), sign * g, sign * side
    low_end, high_end = _inflections(tilt)
    has_low = (g < low_end) & (_derivative(low_end, tilt, g) > 0.0)
    has_high = ~has_low | (_derivative(high_end, tilt, g) < 0.0)
    t = g.copy()
    rows = np.flatnonzero(has_high)
    t[rows] = _high_minimum(tilt[rows], g[rows], high_end[rows])
    rows = np.flatnonzero(has_low)
    low, high = _newton(g[rows], tilt[rows], g[rows], g[rows], low_end[rows]), t[rows]
    # h(high) - h(low), factored: the squares alone would lose the difference at scores of 1e4.
    rise = (high - low) * (high + low - 2.0 * g[rows]) - tilt[rows] * (expit(high) - expit(low))
    takes_low = np.where(side[rows] == 0.0, rise > 0.0, side[rows] < 0.0)
    t[rows] = np.where(takes_low | ~has_high[rows], low, high)
    return sign * t


def minimise_tilted_between(
    a: Floats, g: Floats, side: Sides, lower: Floats, upper: Floats, start: Floats
) -> Floats:
    """What ``minimise_tilted`` finds, where that is known to lie in ``[lower, upper]``.

    The bounds are answers for a smaller and a larger ``a``, and ``start`` is interpolated between the two. It is taken
    as it is where they are so close that its error, of the order of their squared distance, is rounding. Where
    ``h`` is convex on the whole interval, the only stationary point there is the answer, and a Newton step or two
    from ``start`` find it; elsewhere the row is solved from nothing.
    """
    t = np.clip(start, lower, upper)
    wide = np.flatnonzero(upper - lower > CLOSE)
    convex = _is_convex_between(a[wide], lower[wide], upper[wide])
    rows = wide[~convex]
    t[rows] = minimise_tilted(a[rows], g[rows], side[rows])
    rows = wide[convex]
    t[rows] = _newton(t[rows], a[rows], g[rows], lower[rows], upper[rows])
    return t


def _sigmoid_derivatives(t: Floats) -> tuple[Floats, Floats]:
    """First and second derivative of ``expit``, exact in both tails, from one exponential."""
    small = np.exp(-np.abs(t))
    share = 1.0 / (1.0 + small)
    first = small * share * share
    return first, -np.sign(t) * first * (1.0 - small) * share


def _derivative(t: Floats, a: Floats, g: Floats) -> Floats:
    """``h'(t)``."""
    return 2.0 * (t - g) - a * _sigmoid_derivatives(t)[0]


def _is_convex_between(a: Floats, lower: Floats, upper: Floats) -> Bools:
    """Whether ``h'' > 0`` on all of ``[lower, upper]``.

    ``a s''`` peaks at ``-c sign(a)`` and falls off on both sides while it is positive: the point nearest to the
    peak decides.
    """
    convex: Bools = np.abs(a) < CRITICAL_TILT
    rows = np.flatnonzero(~convex)
    nearest = np.clip(-PEAK * np.sign(a[rows]), lower[rows], upper[rows])
    convex[rows] = a[rows] * _sigmoid_derivatives(nearest)[1] < 2.0
    return convex


def _inflections(tilt: Floats) -> tuple[Floats, Floats]:
    """Where ``h''`` changes sign, ``t1 <= t2 < 0``; both ``-c``, where it is smallest, if it never does.

    With ``u = expit(t) - 1/2``, ``h'' = 0`` reads ``u^3 - u / 4 = 1 / a``: three real roots, by cosines.
    """
    t1, t2 = np.full_like(tilt, -PEAK), np.full_like(tilt, -PEAK)
    rows = np.flatnonzero(tilt > CRITICAL_TILT)
    angle = np.arccos(CRITICAL_TILT / tilt[rows]) / 3.0
    outer = 0.5 + np.cos(angle) / np.sqrt(3.0)
    upper = np.cos(angle - 2.0 * np.pi / 3.0) / np.sqrt(3.0)
    # The product of the three roots in expit(t) is 1 / a; 1/2 + u itself would cancel for large a.
    lower = 1.0 / (tilt[rows] * outer * (0.5 + upper))
    t1[rows] = np.log(lower) - np.log1p(-lower)
    t2[rows] = 2.0 * np.arctanh(2.0 * upper)
    return np.minimum(t1, t2), t2


def _high_minimum(tilt: Floats, g: Floats, high_end: Floats) -> Floats:
    """Minimum right of ``t2``, from ``max(c, g)`` or, for a large tilt, from a closer point on its left.

    Right of 0, ``s' >= exp(-t) / 4``, so the root lies right of that of ``2 (t - g) = a exp(-t) / 4``, which
    is ``g + W(exp(L))``, ``L = log(a / 8) - g``; and Lambert's ``W(exp(L)) >= L - log(L)`` for ``L >= 1``.
    """
    log_tilt = np.log(np.maximum(tilt, np.finfo(np.float64).tiny) / 8.0)
    start = np.maximum(np.maximum(PEAK, g), log_tilt - np.log(np.maximum(log_tilt - g, 1.0)))
    rising = _derivative(start, tilt, g) < 0.0
    lower = np.where(rising, start, np.maximum(high_end, g))
    return _newton(start, tilt, g, lower, np.where(rising, g + tilt / 8.0, start))


def _newton(t: Floats, a: Floats, g: Floats, lower: Floats, upper: Floats) -> Floats:
    """Root of ``h'`` in ``[lower, upper]``, where it increases: Newton's method, halving if a step leads out.

    No derivative of expit is larger than the first, so a short step ``d`` leaves an error of at most about
    ``|a| s' d^2 / (2 h'')``; a row is settled when that is rounding. Settled rows are dropped in bulk only:
    copying costs as much as a step.
    """
    answer, rows = t.copy(), np.arange(t.size)
    for _ in range(MAX_NEWTON):
        if rows.size == 0:
            break
        first, second = _sigmoid_derivatives(t)
        pull = a * first
        gradient = 2.0 * (t - g) - pull
        # A hessian that rounds to 0 belongs to an inflection point; the bracket catches the step.
        hessian = np.maximum(2.0 - a * second, EPS)
        step = gradient / hessian
        size, unit = np.minimum(np.abs(step), 1.0), EPS * np.maximum(1.0, np.abs(t))
        settled = (size <= 0.5) & (np.abs(pull) * size * size <= unit * hessian) | (size <= unit)
        lower, upper = np.where(gradient < 0.0, t, lower), np.where(gradient > 0.0, t, upper)
        there = np.clip(t - step, lower, upper)
        t = np.where(settled | (there == t - step), there, 0.5 * (lower + upper))
        if 2 * np.count_nonzero(settled) >= t.size:
            answer[rows] = t
            keep = np.flatnonzero(~settled)
            rows, t, a, g, lower, upper = rows[keep], t[keep], a[keep], g[keep], lower[keep], upper[keep]
    answer[rows] = t
    return answer
