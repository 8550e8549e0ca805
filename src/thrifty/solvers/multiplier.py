"""The price of one coupling constraint: the smallest multiplier at which the spend fits the limit.

    min { eta >= 0 : spend(eta) <= limit },   spend non-increasing in eta

Every q-step is separable once ``eta`` is fixed, so all that is left of the constraint is this search
in one variable. The spend may be flat over long stretches (saturated shares), change over many orders
of magnitude (prices of very different size) and jump (rows with two equally good shares), so the
search brackets first, interpolates while that pays, and otherwise halves the *exponent* of the bracket.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["EPS", "ROUNDING", "Bracket", "smallest_multiplier"]

EPS = sys.float_info.epsilon
# A sum of n shares carries about this relative error; a limit missed by less is met.
ROUNDING = 16 * EPS
# A multiplier below this moves no log-odds by a unit in the last place of 1 (prices are at most 1).
FLOOR = EPS / 4


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


class _Overspend:
    """``log(spend(eta) / limit)``, with the exact sign of ``spend - limit``; counts its calls.

    In the logarithm both tails are straight: shares fall like ``exp(-eta)`` under the KL distance
    and like ``1 / eta`` under the squared one.
    """

    def __init__(self, spend: Callable[[float], float], limit: float) -> None:
        self.spend = spend
        self.limit = limit
        self.n_calls = 0

    def __call__(self, eta: float) -> _Point:
        self.n_calls += 1
        difference = (self.spend(eta) - self.limit) / self.limit
        if -0.5 < difference < 1.0:
            return _Point(eta, math.log1p(difference))
        return _Point(eta, math.log(min(max(1.0 + difference, 1e-300), 1e300)))


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
    over = _Overspend(spend, limit)
    low, high = _enclose(over, max(guess, FLOOR), ratio)
    if math.isfinite(high.eta) and low.eta > 0.0:
        low, high = _narrow(over, low, high)
    return Bracket(low.eta, high.eta, 1 + over.n_calls)


def _enclose(over: _Overspend, guess: float, factor: float) -> tuple[_Point, _Point]:
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


def _narrow(over: _Overspend, low: _Point, high: _Point) -> tuple[_Point, _Point]:
    """Chandrupatla's method: inverse quadratic interpolation where it is safe, else a midpoint."""
    new, old = high, low
    third: _Point | None = None
    while True:
        low, high = (old, new) if new.over <= 0.0 else (new, old)
        width = high.eta - low.eta
        if width <= 4 * EPS * high.eta:
            return low, high
        fraction = None if third is None else _interpolate(new, old, third)
        if fraction is None:
            eta = _midpoint(low.eta, high.eta)
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
    """Where in [new, old] the inverse parabola through three points vanishes; None if it bends too far."""
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


def _midpoint(low: float, high: float) -> float:
    """Arithmetic inside two octaves, geometric across more: 60 halvings cover the whole range of floats."""
    if high > 4.0 * low:
        return math.sqrt(low) * math.sqrt(high)
    return low + 0.5 * (high - low)
