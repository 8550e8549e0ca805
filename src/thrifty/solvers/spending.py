"""The data of one q-step, checked: what each row gains, what it costs, and how much may be spent.

    minimise over q   mean_s[(1 - q) excess + D(q, g)]   subject to   mean_s[w q] <= limit

``mean_s`` is the mean weighted by ``sample_weight``. Prices ``w`` are divided by the largest one (and
the limit with them), which changes neither the answer nor the duality gap ``eta * (limit - spend)``.
"""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from thrifty.arrays import Floats
from thrifty.exceptions import InvalidInputError

__all__ = ["SpendingProblem", "check_spending"]


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
    """Check every argument of a q-step and normalise the prices."""
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
