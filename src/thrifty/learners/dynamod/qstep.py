"""The q-step: the share of each row sent to the full model, exactly for both distances: (OPT3), (OPT5), (OPT1).

    argmin_q  mean_s[(1 - q) excess + D(q, g)]   subject to   mean_s[w q] <= limit

``w`` is the extra cost of sending a row on, ``c(f0, x) - c(f1)``, and ``limit`` what may be spent on top of the cheap
model: the budget of (OPT1). With ``w = 1`` the limit is ``p_full``, the cap on the mean share of (OPT2), (OPT3) and
(OPT5). ``mean_s`` is the mean weighted by ``sample_weight``. Answers are log-odds ``t = logit(q)``, which a share that
rounds to 0 or 1 still has. The paper solves (OPT5) by the alternating direction method of multipliers (Boyd et al.,
2011); the exact search is faster by orders of magnitude.

*The multiplier.* The rows separate once the multiplier ``eta`` of the constraint is fixed, so that one monotone search
remains:

    min { eta >= 0 : spend(eta) <= limit },   spend non-increasing in eta.

Prices ``w`` are divided by the largest one (and the limit with them), which changes neither the answer nor the duality
gap ``eta * (limit - spend)``. The spend may be flat over long stretches (saturated shares), change over many orders of
magnitude (prices of very different size) and jump (rows with two equally good shares), so the search brackets first,
interpolates while that pays, and otherwise halves the *exponent* of the bracket.

*Jumps.* Under the squared distance each row minimises its part of the Lagrangian,

    t(eta) = argmin_t  h(t) = (t - g)^2 - a expit(t),   a = excess - eta w,

which never rises with ``eta``. It can jump, where a row has two equally good shares; the spend then jumps with it and
may pass the limit without ever being equal to it. Either of the tied shares is as good for the Lagrangian, so tied rows
are assigned a *side* and the multiplier moves a little, down or up, until the other rows make up the difference: what
that loses is of second order.

*One row.* A parabola minus a sigmoid is not convex once ``|a| > 12 sqrt(3)``. For ``a < 0`` mirror everything
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
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import Solution

EPS = sys.float_info.epsilon
# A sum of n shares carries about this relative error; a limit missed by less is met.
ROUNDING = 16 * EPS
# A multiplier below this moves no log-odds by a unit in the last place of 1 (prices are at most 1).
FLOOR = EPS / 4


@dataclass(frozen=True)
class SpendingProblem:
    """One q-step in normalised units.

    Attributes
    ----------
    excess, g : ndarray of shape (n_samples,)
        Loss added by answering cheaply; log-odds the gate would give.
    price : ndarray of shape (n_samples,)
        ``w``, the extra cost of sending a row on, divided by its maximum.
    weight : ndarray of shape (n_samples,)
        Sample weights, summing to one.
    limit : float
        Largest mean cost, in the units of ``price``.
    largest : float
        The largest ``w``; multipliers of the problem are larger by it than those of the prices as they are.
    """

    excess: Floats
    g: Floats
    price: Floats
    weight: Floats
    limit: float
    largest: float = 1.0

    def spend(self, t: Floats) -> float:
        """``mean_s[w expit(t)]``; summed pairwise, so the error does not grow with the number of rows."""
        return float(np.sum(self.weight * self.price * expit(t)))

    def unit(self) -> float:
        """Reciprocal of a typical price, ``mean_s[w] / mean_s[w^2]``: the natural unit of the multiplier."""
        square = float(np.sum(self.weight * self.price * self.price))
        return float(np.sum(self.weight * self.price)) / square if square > 0.0 else 1.0

    def charge(self, eta: float) -> Floats:
        """``eta * w`` per row; an infinite multiplier leaves the rows that cost nothing alone."""
        if math.isinf(eta):
            return np.where(self.price > 0.0, np.inf, 0.0)
        return eta * self.price


def check_spending(
    excess: ArrayLike,
    g: ArrayLike,
    limit: object,
    extra_cost: ArrayLike | None,
    sample_weight: ArrayLike | None,
) -> SpendingProblem:
    """Check every argument of a q-step and divide prices and limit by the largest price."""
    if not isinstance(limit, Real) or not 0.0 <= float(limit) < math.inf:
        raise InvalidInputError(
            f"limit must be a finite number >= 0; got {limit!r}. It is the largest mean of extra_cost * q, "
            "or p_full when extra_cost is not given."
        )
    excess = np.asarray(excess, dtype=np.float64)
    if excess.ndim != 1 or excess.size == 0:
        raise InvalidInputError(
            f"excess must hold one number per row, at least one; got shape {excess.shape}."
        )
    ones = np.ones_like(excess)
    price, weight = (ones if one is None else one for one in (extra_cost, sample_weight))
    excess = _check_rows("excess", excess, excess)
    g = _check_rows("g", g, excess)
    price = _check_rows("extra_cost", price, excess, least=0.0)
    weight = _check_rows("sample_weight", weight, excess, least=0.0)
    total = float(weight.sum())
    if total == 0.0:
        raise InvalidInputError(
            "sample_weight must have a positive sum; got zeros only. Leave it out to count all rows alike."
        )
    largest = float(price.max()) or 1.0
    return SpendingProblem(excess, g, price / largest, weight / total, float(limit) / largest, largest)


def _check_rows(name: str, values: ArrayLike, excess: Floats, least: float = -math.inf) -> Floats:
    """One finite number per row of ``excess``, as float64."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != excess.shape:
        raise InvalidInputError(f"{name} must be as long as excess, {excess.size}; got shape {array.shape}.")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= least)))
    if bad.size:
        rule = "finite" if math.isinf(least) else "finite and >= 0"
        raise InvalidInputError(f"{name} must be {rule}; got {array[bad[0]]} in row {bad[0]}.")
    return array


@dataclass(frozen=True)
class Bracket:
    """Two neighbouring multipliers with the answer between them.

    Attributes
    ----------
    below : float
        Here the limit is still exceeded; equal to ``above`` if the constraint does not bind.
    above : float
        Here the limit is met. Zero if the constraint does not bind, infinite if no finite
        multiplier meets it.
    n_evaluations : int
        How often the spend was computed.
    """

    below: float
    above: float
    n_evaluations: int


@dataclass(frozen=True)
class _Point:
    """A multiplier and the logarithm of spend / limit there: positive means too much is spent."""

    eta: float
    over: float


def smallest_multiplier(
    spend: Callable[[float], float], limit: float, *, guess: float = 1.0, ratio: float = 4.0
) -> Bracket:
    """Bracket the smallest ``eta >= 0`` with ``spend(eta) <= limit`` down to neighbouring numbers.

    Parameters
    ----------
    spend : callable
        Non-increasing, continuous or not, in units in which the largest price is 1. It may be wrong
        by a relative ``ROUNDING``, which the limit is widened by.
    limit : float
        Non-negative and finite, or infinite.
    guess : float
        Where to start looking, positive: the unit of ``eta``. A factor of ten more or less costs one
        or two evaluations.
    ratio : float
        How far off the guess may well be: the first factor of the gallop away from it.

    Returns
    -------
    Bracket
        ``spend(above) <= limit < spend(below)`` up to ``ROUNDING``, and the two differ by at most four
        units in the last place. A smooth spend takes 10 to 20 evaluations, a jump about 50.
    """
    limit *= 1.0 + ROUNDING
    if spend(0.0) <= limit:
        return Bracket(0.0, 0.0, 1)
    if limit == 0.0:
        return Bracket(math.inf, math.inf, 1)
    n_calls = 0

    def over(eta: float) -> _Point:
        # In the logarithm both tails are straight: shares fall like exp(-eta) under the KL distance and like 1 / eta
        # under the squared one. The sign is exactly that of spend - limit.
        nonlocal n_calls
        n_calls += 1
        difference = (spend(eta) - limit) / limit
        if -0.5 < difference < 1.0:
            return _Point(eta, math.log1p(difference))
        return _Point(eta, math.log(min(max(1.0 + difference, 1e-300), 1e300)))

    low, high = _enclose(over, max(guess, FLOOR), ratio)
    if math.isfinite(high.eta) and low.eta > 0.0:
        low, high = _narrow(over, low, high)
    return Bracket(low.eta, high.eta, 1 + n_calls)


def _enclose(over: Callable[[float], _Point], guess: float, factor: float) -> tuple[_Point, _Point]:
    """Gallop from ``guess`` by factors that are squared each time (4, 16, 256, ...) until the sign changes."""
    here = over(guess)
    if here.over > 0.0:
        while here.over > 0.0:
            if here.eta == sys.float_info.max:
                return here, _Point(math.inf, -math.inf)
            low, here = here, over(min(here.eta * factor, sys.float_info.max))
            factor *= factor
        return low, here
    while here.over <= 0.0:
        if here.eta <= FLOOR:
            return _Point(0.0, math.inf), here
        high, here = here, over(max(here.eta / factor, FLOOR))
        factor *= factor
    return here, high


def _narrow(over: Callable[[float], _Point], low: _Point, high: _Point) -> tuple[_Point, _Point]:
    """Chandrupatla's method: inverse quadratic interpolation where it is safe, else a midpoint."""
    new, old = high, low
    third: _Point | None = None
    while True:
        low, high = (old, new) if new.over <= 0.0 else (new, old)
        width = high.eta - low.eta
        if width <= 4 * EPS * high.eta:
            return low, high
        fraction = None if third is None else _interpolate(new, old, third)
        if fraction is None and high.eta > 4.0 * low.eta:
            # Geometric across more than two octaves: 60 halvings cover the whole range of floats.
            eta = math.sqrt(low.eta) * math.sqrt(high.eta)
        elif fraction is None:
            eta = low.eta + 0.5 * (high.eta - low.eta)
        else:
            # At least two units away from either end, so that the last step closes the bracket.
            eta = new.eta + fraction * (old.eta - new.eta)
            eta = min(max(eta, low.eta + 2 * EPS * high.eta), high.eta - 2 * EPS * high.eta)
        point = over(eta)
        if (point.over > 0.0) == (new.over > 0.0):
            third = new
        else:
            third, old = old, new
        new = point


def _interpolate(new: _Point, old: _Point, third: _Point) -> float | None:
    """Root in [new, old] of the inverse parabola through three points; None if it is too curved."""
    if old.over == third.over or new.over == third.over:
        return None
    xi = (new.eta - old.eta) / (third.eta - old.eta)
    phi = (new.over - old.over) / (third.over - old.over)
    if not (phi * phi < xi and (1.0 - phi) ** 2 < 1.0 - xi):
        return None
    alpha = (third.eta - new.eta) / (old.eta - new.eta)
    return new.over / (old.over - new.over) * third.over / (old.over - third.over) + alpha * new.over / (
        third.over - new.over
    ) * old.over / (third.over - old.over)


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
MAX_NEWTON_SQUARED = 100


@dataclass(frozen=True)
class Point:
    """A multiplier and the log-odds there."""

    eta: float
    t: Floats


class Crossing:
    """Search for the crossing of the spend with the limit, and where it ended.

    Since ``t`` never rises with ``eta``, the nearest answers yet on either side of the limit bound the answer of every
    multiplier in between.

    Parameters
    ----------
    problem : SpendingProblem
        The rows and the limit.
    side : ndarray of shape (n_samples,)
        Which share a row with two takes: the better (0), the smaller (-1) or the larger (1).
    guess, ratio : float
        Where the search begins; see ``smallest_multiplier``.

    Attributes
    ----------
    below : Point or None
        Largest multiplier that exceeds the limit; None if the constraint does not bind.
    above : Point
        Smallest multiplier that meets the limit, next to ``below``; infinite if no finite one does.
    n_evaluations : int
        How often all rows were computed.
    """

    def __init__(self, problem: SpendingProblem, side: Sides, guess: float, ratio: float = 4.0) -> None:
        self.problem, self.side = problem, side
        self.below: Point | None = None
        self._met: Point | None = None
        self.n_evaluations = 0
        bracket = smallest_multiplier(self._spend, problem.limit, guess=guess, ratio=ratio)
        self.above = self._met or self._at(bracket.above)

    def _at(self, eta: float) -> Point:
        problem, below, above = self.problem, self.below, self._met
        self.n_evaluations += 1
        if math.isinf(eta):
            free = minimise_tilted(problem.excess, problem.g, self.side)
            return Point(eta, np.where(problem.price > 0.0, -np.inf, free))
        a = problem.excess - eta * problem.price
        if below is None or above is None:
            return Point(eta, minimise_tilted(a, problem.g, self.side))
        start = below.t + (eta - below.eta) / (above.eta - below.eta) * (above.t - below.t)
        return Point(eta, minimise_tilted_between(a, problem.g, self.side, above.t, below.t, start))

    def _spend(self, eta: float) -> float:
        point = self._at(eta)
        spend = self.problem.spend(point.t)
        if spend > self.problem.limit * (1.0 + ROUNDING):
            self.below = point
        else:
            self._met = point
        return spend


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
            option = Crossing(crossing.problem, side, crossing.above.eta, ratio=1.01)
            n_evaluations += option.n_evaluations
            # Rows assigned their larger share may exceed the limit at any multiplier: then there is no answer.
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

    An empty list if the limit is not inside a jump, or only inside jumps of rows that have a side already.
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
    """``minimise_tilted`` for minimisers that are known to lie in ``[lower, upper]``.

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
    """True if ``h'' > 0`` on all of ``[lower, upper]``.

    ``a s''`` peaks at ``-c sign(a)`` and falls off on both sides while it is positive: the point nearest to the
    peak decides.
    """
    convex: Bools = np.abs(a) < CRITICAL_TILT
    rows = np.flatnonzero(~convex)
    nearest = np.clip(-PEAK * np.sign(a[rows]), lower[rows], upper[rows])
    convex[rows] = a[rows] * _sigmoid_derivatives(nearest)[1] < 2.0
    return convex


def _inflections(tilt: Floats) -> tuple[Floats, Floats]:
    """Places where ``h''`` changes sign, ``t1 <= t2 < 0``; both ``-c``, where it is smallest, if it never does.

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
    for _ in range(MAX_NEWTON_SQUARED):
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
    limit : float, or array-like of shape (n_resources,)
        Largest mean of ``extra_cost * q``; ``p_full`` if ``extra_cost`` is not given.
    extra_cost : array-like of shape (n_samples,) or (n_samples, n_resources), optional
        ``w >= 0``; 1 for every row if not given. A row with ``w = 0`` is not constrained. With several resources there
        is a limit, and a multiplier, of each.
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
    if extra_cost is not None and np.ndim(extra_cost) == 2:
        return _several(q_step_kl, excess, g, limit, extra_cost, sample_weight)
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
    is_small = gap <= _gap_tolerance(problem, bracket.above)
    return Solution(t, gap, bracket.n_evaluations, is_small, bracket.above / problem.largest)


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
    excess, g, limit, extra_cost, sample_weight
        As in ``q_step_kl``, except that a jump moves a row of weight 2 whole.

    Returns
    -------
    Solution
        ``value``: log-odds of ``q``, ``-inf`` where ``limit == 0`` forbids a row. ``residual``: duality gap,
        rounding if the limit falls in no jump, else at most ``eta`` times one tied row's part of the
        limit, and far less when there are other rows to make up the difference. ``n_iter``: evaluations of all rows.
        ``converged``: gap at most ``1e-7 max(1, eta * limit)``. False means that a jump was met: the answer
        satisfies the constraint and is within ``residual`` of the optimum, and more iterations would not help.
    """
    if extra_cost is not None and np.ndim(extra_cost) == 2:
        return _several(q_step_squared, excess, g, limit, extra_cost, sample_weight)
    problem = check_spending(excess, g, limit, extra_cost, sample_weight)
    crossing = Crossing(problem, np.zeros(problem.g.size, dtype=np.int8), problem.unit())
    tol = _gap_tolerance(problem, crossing.above.eta)
    gap = _slack_value(problem, crossing.above.t, crossing.above.eta)
    t, gap, n_evaluations = settle_jumps(crossing, gap, tol)
    return Solution(t, gap, n_evaluations, gap <= tol, crossing.above.eta / problem.largest)


def _several(
    q_step: Callable[..., Solution[Floats]],
    excess: ArrayLike,
    g: ArrayLike,
    limits: Any,
    extra_costs: Any,
    sample_weight: ArrayLike | None,
) -> Solution[Floats]:
    """A q-step with a limit in each of several resources; ``multiplier`` is that of each.

    Where all rows cost alike, the tightest limit is the only one. Otherwise the dual is a concave function of the
    multipliers, which Newton's method maximises over those that are not 0; under the squared distance rows jump, and it
    is not smooth.
    """
    limits, prices = np.asarray(limits, dtype=np.float64), np.asarray(extra_costs, dtype=np.float64)
    multipliers, most = np.zeros(len(limits)), prices.max(axis=0)
    if (np.ptp(prices, axis=0) <= 1e-12 * most).all():
        shares = np.where(most > 0.0, limits / np.maximum(most, 1e-300), np.inf)
        tightest = int(np.argmin(shares))
        limit = float(min(limits[tightest], most[tightest]))
        step = q_step(excess, g, limit, extra_cost=prices[:, tightest], sample_weight=sample_weight)
        multipliers[tightest] = step.multiplier
        return replace(step, multiplier=multipliers)
    if q_step is q_step_squared:
        raise InvalidInputError(
            "budgets of several resources, in front of a chain whose rows cost differently, take distance='kl'."
        )
    problem = check_spending(excess, g, 1.0, None, sample_weight)
    scale = np.where(most > 0.0, most, 1.0)
    price, limit_of = prices / scale, np.minimum(limits / scale, 1.0)
    if np.any(limit_of <= 0.0):
        raise InvalidInputError(f"limits of several resources must be above 0; got {limits.tolist()!r}.")
    free, eta, n_steps = problem.excess + problem.g, np.zeros(len(limits)), 0

    def dual(eta: Floats) -> float:
        # The minimum of each row of the Lagrangian, up to a constant.
        return float(-(problem.weight * np.logaddexp(0.0, free - price @ eta)).sum() - eta @ limit_of)

    while (n_steps := n_steps + 1) <= MAX_NEWTON_SEVERAL:
        q = expit(free - price @ eta)
        slope = (problem.weight * q) @ price - limit_of
        moves = (eta > 0.0) | (slope > 0.0)
        if np.all(np.abs(slope[eta > 0.0]) <= 1e-10 * limit_of[eta > 0.0]) and np.all(
            slope <= 1e-10 * limit_of
        ):
            break
        curvature = (price[:, moves].T * (problem.weight * q * (1.0 - q))) @ price[:, moves]
        step_to, ahead = np.zeros(len(eta)), np.eye(int(moves.sum())) * (1e-12 + 1e-9 * np.trace(curvature))
        step_to[moves] = np.linalg.solve(curvature + ahead, slope[moves])
        share, value = 1.0, dual(eta)
        while share > 1e-12:
            trial = np.maximum(eta + share * step_to, 0.0)
            if dual(trial) >= value + 1e-4 * float(slope @ (trial - eta)) - ROUNDING * max(1.0, abs(value)):
                break
            share /= 2.0
        eta = trial
    t = free - price @ eta
    for _ in range(MAX_JUMPS):  # rounding may leave a limit exceeded by its last digits
        over = float(np.max((problem.weight * expit(t)) @ price / limit_of))
        if over <= 1.0:
            break
        t = t - 2.0 * (over - 1.0)
    slack = np.maximum(limit_of - (problem.weight * expit(t)) @ price, 0.0)
    gap = float(eta @ slack)
    return Solution(t, gap, n_steps, gap <= GAP_TOL * max(1.0, float(eta @ limit_of)), eta / scale)


MAX_NEWTON_SEVERAL = 200
"""Most steps for the multipliers of several resources; about 10 are needed."""


def _slack_value(problem: SpendingProblem, t: Floats, eta: float) -> float:
    """``eta * (limit - spend)``: the duality gap of the minimisers of the Lagrangian at ``eta``."""
    slack = max(problem.limit - problem.spend(t), 0.0)
    return eta * slack if eta > 0.0 and slack > 0.0 else 0.0


def _gap_tolerance(problem: SpendingProblem, eta: float) -> float:
    """A gap below this is rounding; 1 is the unit of a log-loss, ``eta * limit`` what the limit is worth."""
    return GAP_TOL * max(1.0, eta * problem.limit if math.isfinite(eta) else 0.0)
