r"""Slope and bend of the logistic loss at every row, in one compiled pass.

    loss(q, s) = q log(1 + exp(-s)) + (1 - q) log(1 + exp(s)),     d loss / ds = expit(s) - q,     q in [0, 1]

Boosting asks for both at every tree, and a tree over 12,000 rows takes half a millisecond (docs/benchmarks.md). As
array expressions, with three exponentials a row, they would take about as long. So the exponential is written out, for
several rows at once:

    exp(t) = 2^k exp(r),     k = round(t / log 2),     |r| <= log(2) / 2,     exp(r) by its series to r^13

Only ``t = -|s|`` is needed: with ``e = exp(t)`` the two sides are ``1 / (1 + e)`` and ``e / (1 + e)``, neither of them
one minus the other. Errors stay below four units in the last place down to ``s = -708``, where ``e`` ends.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.trees.compiled import Number, fused_kernel, lean_kernel

__all__ = ["LogisticLoss", "logistic_derivatives", "round_to"]


BLOCK = 256  # rows whose numbers stay in the nearest cache from one loop to the next
LOWEST = -708.0  # where exp leaves the normal numbers
PER_LOG_2 = 1.0 / math.log(2.0)
# log 2 in two parts, the first with room for an exact multiple.
LOG_2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LOG_2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
ROUNDS = 1.5 * 2.0**52  # added and taken away again, it leaves a whole number
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1.0 / math.factorial(k) for k in range(2, 14))


class LogisticLoss:
    """The loss of scores against one target for each row.

    Parameters
    ----------
    target : ndarray of shape (n_rows,)
        Probability of class +1, or share sent on; 0 and 1 for labels.
    """

    def __init__(self, target: ArrayLike) -> None:
        self._target = np.ascontiguousarray(target, dtype=np.float64)

    def derivatives(self, score: Floats) -> tuple[Floats, Floats]:
        """First and second derivative by the score."""
        grad, curvature = np.empty(len(score)), np.empty(len(score))
        logistic_derivatives(self._target, score, grad, curvature)
        return grad, curvature


@fused_kernel
def logistic_derivatives(target: Floats, score: Floats, grad: Floats, curvature: Floats) -> None:
    """Write ``expit(score) - target`` and ``expit(score) expit(-score)``."""
    bits = np.empty(BLOCK, np.int64)
    power = bits.view(np.float64)
    for begin in range(0, len(score), BLOCK):
        s, q = score[begin : begin + BLOCK], target[begin : begin + BLOCK]
        slope, bend = grad[begin : begin + BLOCK], curvature[begin : begin + BLOCK]
        for i in range(len(s)):
            t = max(-abs(s[i]), LOWEST)
            k = (t * PER_LOG_2 + ROUNDS) - ROUNDS
            r = (t - k * LOG_2_HIGH) - k * LOG_2_LOW
            r2 = r * r
            r4 = r2 * r2
            low = ((1.0 + r) + (C2 + r * C3) * r2) + ((C4 + r * C5) + (C6 + r * C7) * r2) * r4
            high = ((C8 + r * C9) + (C10 + r * C11) * r2) + (C12 + r * C13) * r4
            bend[i] = low + high * (r4 * r4)
            bits[i] = (np.int64(k) + 1023) << 52  # of the number 2^k
        for i in range(len(s)):
            e = bend[i] * power[i]
            large = 1.0 / (1.0 + e)
            small = e * large
            bend[i] = small * large
            up, down = (large, small) if s[i] >= 0.0 else (small, large)
            slope[i] = -down if q[i] == 1.0 else up - q[i]


@lean_kernel
def round_to(values: Floats, counts: Floats, bits: Number, out: Floats) -> None:
    """Round to a power of two that makes the sum of weighted magnitudes, rounded up likewise, ``2^bits`` of them."""
    total = 0.0
    for i in range(len(values)):
        total += counts[i] * abs(values[i])
    exponent = max(np.ceil(np.log2(total)), -900.0) - bits  # both powers are numbers
    unit, per_unit = 2.0**exponent, 2.0**-exponent
    for i in range(len(values)):
        out[i] = np.rint(values[i] * per_unit) * unit
