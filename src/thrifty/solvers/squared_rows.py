"""One row of the squared q-step: a parabola minus a sigmoid, minimised exactly.

    argmin_t  h(t) = (t - g)^2 - a expit(t)

Not convex once ``|a| > 12 sqrt(3)``. For ``a < 0`` mirror everything (t -> -t, g -> -g). For ``a > 0``
the slope ``h' = 2 (t - g) - a s'(t)``, with ``s = expit``, has these properties, which the code relies on:

* every stationary point lies in ``[g, g + a / 8]``, since ``0 < s' <= 1/4``;
* ``h'' = 2 - a s''(t)`` is negative only between two inflection points ``t1 < t2 < 0``, so there is at
  most one minimum on the *low* side of ``t1`` and one on the *high* side of ``t2``;
* ``h'`` is concave left of ``t1``, convex from ``t2`` to ``c = log(2 + sqrt(3))`` and concave right of ``c``
  (``s'''`` vanishes at ``-c`` and ``c`` only), so Newton's method started at ``g`` for the low minimum and at
  ``max(c, g)`` for the high one moves in one direction only and cannot leave its piece.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from thrifty.arrays import Floats

__all__ = ["minimise_tilted", "minimise_tilted_between"]

Sides = NDArray[np.int8]
EPS = float(np.finfo(np.float64).eps)
# The largest s'' is 1 / (6 sqrt(3)), at -c; above this tilt, h'' = 2 - a s'' changes sign.
CRITICAL_TILT = float(12.0 * np.sqrt(3.0))
BEND = float(np.log(2.0 + np.sqrt(3.0)))
# Minimisers this close have the one between them on a straight line, to the square of it.
CLOSE = 1e-9
# Quadratic convergence takes about 6 steps; only a row at the point where two minima merge takes more.
MAX_NEWTON = 100


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
    has_low = (g < low_end) & (_slope(low_end, tilt, g) > 0.0)
    has_high = ~has_low | (_slope(high_end, tilt, g) < 0.0)
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
    """``minimise_tilted`` where the answer is known to lie in ``[lower, upper]``.

    Where ``h`` is convex on the whole interval, the only stationary point there is the answer, and a Newton
    step or two from ``start`` find it; elsewhere the row is solved from nothing.

    Parameters
    ----------
    a, g, side : ndarray of shape (n_samples,)
        As for ``minimise_tilted``.
    lower, upper : ndarray of shape (n_samples,)
        Answers for a smaller and a larger ``a``.
    start : ndarray of shape (n_samples,)
        Interpolated between the two; taken as it is where they are so close that the error, of the
        order of their squared distance, is rounding.

    Returns
    -------
    ndarray of shape (n_samples,)
        The same minimisers.
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


def _slope(t: Floats, a: Floats, g: Floats) -> Floats:
    """``h'(t)``."""
    return 2.0 * (t - g) - a * _sigmoid_derivatives(t)[0]


def _is_convex_between(a: Floats, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
    """Whether ``h'' > 0`` on all of ``[lower, upper]``.

    ``a s''`` peaks at ``-c sign(a)`` and falls off on both sides while it is positive: the point nearest to the
    peak decides.
    """
    convex: NDArray[np.bool_] = np.abs(a) < CRITICAL_TILT
    rows = np.flatnonzero(~convex)
    nearest = np.clip(-BEND * np.sign(a[rows]), lower[rows], upper[rows])
    convex[rows] = a[rows] * _sigmoid_derivatives(nearest)[1] < 2.0
    return convex


def _inflections(tilt: Floats) -> tuple[Floats, Floats]:
    """Where ``h''`` changes sign, ``t1 <= t2 < 0``; both ``-c``, where it is smallest, if it never does.

    With ``u = expit(t) - 1/2``, ``h'' = 0`` reads ``u^3 - u / 4 = 1 / a``: three real roots, by cosines.
    """
    t1, t2 = np.full_like(tilt, -BEND), np.full_like(tilt, -BEND)
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
    start = np.maximum(np.maximum(BEND, g), log_tilt - np.log(np.maximum(log_tilt - g, 1.0)))
    rising = _slope(start, tilt, g) < 0.0
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
        slope = 2.0 * (t - g) - pull
        # A curvature that rounds to 0 belongs to an inflection point; the bracket catches the step.
        curvature = np.maximum(2.0 - a * second, EPS)
        step = slope / curvature
        size, unit = np.minimum(np.abs(step), 1.0), EPS * np.maximum(1.0, np.abs(t))
        settled = (size <= 0.5) & (np.abs(pull) * size * size <= unit * curvature) | (size <= unit)
        lower, upper = np.where(slope < 0.0, t, lower), np.where(slope > 0.0, t, upper)
        there = np.clip(t - step, lower, upper)
        t = np.where(settled | (there == t - step), there, 0.5 * (lower + upper))
        if 2 * np.count_nonzero(settled) >= t.size:
            answer[rows] = t
            keep = np.flatnonzero(~settled)
            rows, t, a, g, lower, upper = rows[keep], t[keep], a[keep], g[keep], lower[keep], upper[keep]
    answer[rows] = t
    return answer
