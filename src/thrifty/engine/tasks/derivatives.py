r"""Derivatives of losses in compiled code, which computes them where trees grow.

Of two losses, compiled code computes the derivatives itself, weighted and rounded:

    logistic   loss(q, s) = q log(1 + exp(-s)) + (1 - q) log(1 + exp(s)),    d loss / ds = expit(s) - q,    q in [0, 1]
    squared    loss(q, s) = 1/2 (s - q)^2,                                   d loss / ds = s - q

Boosting asks for the gradient and the hessian at every tree, and a tree over 12,000 rows takes less than a millisecond
(`python benchmarks/engine.py`). As array expressions, with three exponentials a row, they would take about as long. So
the exponential is written out, for several rows at once:

    exp(t) = 2^k exp(r),     k = round(t / log 2),     |r| <= log(2) / 2,     exp(r) by its series to r^13

Only ``t = -|s|`` is needed: with ``e = exp(t)`` the two sides are ``1 / (1 + e)`` and ``e / (1 + e)``, neither of them
one minus the other. Errors stay below four units in the last place down to ``s = -708``, where ``e`` ends.
"""

import math
from typing import NamedTuple

import numpy as np

from thrifty.arrays import Floats, Int64s
from thrifty.jit import Number, fused, fused_kernel

LOGISTIC, SQUARED = 2, 3
BLOCK = 256  # rows whose numbers stay in the nearest cache from one loop to the next
LOWEST = -708.0  # where exp leaves the normal numbers
PER_LOG_2 = 1.0 / math.log(2.0)
# log 2 in two parts, the first with room for an exact multiple.
LOG_2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LOG_2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
ROUNDS = 1.5 * 2.0**52  # added and taken away again, it leaves a whole number
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1.0 / math.factorial(k) for k in range(2, 14))


class Formula(NamedTuple):
    """A loss of one score that is computed where trees grow: nothing but its name and its targets is needed.

    Attributes
    ----------
    kind : int
        ``LOGISTIC`` or ``SQUARED``.
    target : ndarray of shape (n_rows,)
        Probability of class +1, or the number to be met.
    """

    kind: int
    target: Floats


@fused
def exponential(t: Number) -> tuple[Number, Number]:
    """``exp(t)`` for ``t <= 0`` as two factors: the second is a power of two, given by the bits of that number."""
    t = LOWEST if t < LOWEST else t
    k = (t * PER_LOG_2 + ROUNDS) - ROUNDS
    r = (t - k * LOG_2_HIGH) - k * LOG_2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = ((1.0 + r) + (C2 + r * C3) * r2) + ((C4 + r * C5) + (C6 + r * C7) * r2) * r4
    high = ((C8 + r * C9) + (C10 + r * C11) * r2) + (C12 + r * C13) * r4
    return low + high * (r4 * r4), (np.int64(k) + 1023) << 52


@fused_kernel
def write_derivatives(target: Floats, score: Floats, bits: Int64s, grad: Floats, curvature: Floats) -> None:
    """Write both derivatives; ``bits`` are those of ``grad``, where numbers 2^k are put together on the way."""
    for begin in range(0, len(score), BLOCK):
        s, q, power = score[begin : begin + BLOCK], target[begin : begin + BLOCK], bits[begin : begin + BLOCK]
        gradient, hessian = grad[begin : begin + BLOCK], curvature[begin : begin + BLOCK]
        for i in range(len(s)):
            hessian[i], power[i] = exponential(-abs(s[i]))
        for i in range(len(s)):
            e = hessian[i] * gradient[i]
            large = 1.0 / (1.0 + e)
            small = e * large
            hessian[i] = small * large
            up, down = (large, small) if s[i] >= 0.0 else (small, large)
            gradient[i] = -down if q[i] == 1.0 else up - q[i]
