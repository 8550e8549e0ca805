"""The limit that ties the rows of a q-step together: its data, checked, and the search for its multiplier.

    minimise over q   mean_s[(1 - q) excess + D(q, g)]   subject to   mean_s[w q] <= limit

``mean_s`` is the mean weighted by ``sample_weight``. Prices ``w`` are divided by the largest one (and
the limit with them), which changes neither the answer nor the duality gap ``eta * (limit - spend)``.
Every q-step is separable once the multiplier ``eta`` is fixed, so all that is left of the limit is a
search in one variable,

    min { eta >= 0 : spend(eta) <= limit },   spend non-increasing in eta.

The spend may be flat over long stretches (saturated shares), change over many orders of magnitude
(prices of very different size) and jump (rows with two equally good shares), so the search brackets
first, interpolates while that pays, and otherwise halves the *exponent* of the bracket.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError

__all__ = ["EPS", "ROUNDING", "Bracket", "SpendingProblem", "check_spending", "smallest_multiplier"]

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
        Largest mean spend, in the units of ``price``.
    """

    excess: Floats
    g: Floats
    price: Floats
    weight: Floats
    limit: float

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
    excess = _check_rows("excess", excess, None)
    g = _check_rows("g", g, excess.size)
    price = np.ones_like(excess) if extra_cost is None else _check_rows("extra_cost", extra_cost, excess.size)
    _check_not_negative("extra_cost", price, "Use 0 for a row that may be sent on for free.")
    weight = (
        np.ones_like(excess)
        if sample_weight is None
        else _check_rows("sample_weight", sample_weight, excess.size)
    )
    _check_not_negative("sample_weight", weight, "Use 0 for a row that should not count.")
    total = float(weight.sum())
    if total == 0.0:
        raise InvalidInputError(
            "sample_weight must have a positive sum; got zeros only. Leave it out to count all rows alike."
        )
    largest = float(price.max()) or 1.0
    return SpendingProblem(excess, g, price / largest, weight / total, float(limit) / largest)


def _check_rows(name: str, values: ArrayLike, n_samples: int | None) -> Floats:
    """One finite number per row, as float64."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInputError(
            f"{name} must hold one number per row, at least one row; got shape {array.shape}. Pass a 1-D array."
        )
    if n_samples is not None and array.size != n_samples:
        raise InvalidInputError(
            f"{name} must be as long as excess, {n_samples}; got {array.size}. Pass the same rows to both."
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise InvalidInputError(
            f"{name} must be finite; got {array[bad[0]]} in row {bad[0]} ({bad.size} such rows). "
            "Clip probabilities away from 0 and 1 before taking logarithms."
        )
    return array


def _check_not_negative(name: str, array: Floats, way_out: str) -> None:
    bad = np.flatnonzero(array < 0.0)
    if bad.size:
        raise InvalidInputError(f"{name} must be >= 0; got {array[bad[0]]} in row {bad[0]}. {way_out}")


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
    """Where in [new, old] the inverse parabola through three points vanishes; None if it is too curved."""
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
