r"""The root has the same rows in every tree: what its columns could gain once bounds what they can gain now.

With hessians of one and ``l2 = 0`` the square root of twice a column's gain is

    s(g) = max over splits of |<u, g>|,     u of norm one, set by the rows on either side

so ``s(g) <= s(g') + |g - g'|``: gradients that moved little cannot have made a column worth much. Trees of two scores
are grown in turn, so two roots are remembered, each with its gradients, and the nearer one speaks. Nothing need be said
of which score a tree belongs to, and a root of an earlier fit is as good as any.
"""

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.kernel import Number, inner

__all__ = ["find_nearest", "remember"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
FAR = 0.5  # a root this far, as a share of its gradients' norm, is that of another score


@inner
def find_nearest(
    memory: Floats, n_features: Number, packed: Ints, shift: Number, unit: Number
) -> tuple[Number, Number]:
    """Which remembered root has the nearest gradients (-1: none), and how far they are."""
    nearest, least = np.int64(-1), np.inf
    for m in range(len(memory)):
        if memory[m, 0] == 1.0:
            squared = squared_distance(memory[m, 1 + n_features :], packed, shift, unit)
            if squared < least:
                nearest, least = np.int64(m), squared
    return nearest, np.sqrt(least) * (1.0 + 1e-9)


@inner
def squared_distance(then: Floats, packed: Ints, shift: Number, unit: Number) -> Number:
    """Sum of squared differences, in four parts that do not wait for each other."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    n = len(packed)
    for i in range(0, n - 3, 4):
        x = then[i] - (packed[i] >> shift) * unit
        y = then[i + 1] - (packed[i + 1] >> shift) * unit
        z = then[i + 2] - (packed[i + 2] >> shift) * unit
        w = then[i + 3] - (packed[i + 3] >> shift) * unit
        a += x * x
        b += y * y
        c += z * z
        d += w * w
    for i in range(n - n % 4, n):
        x = then[i] - (packed[i] >> shift) * unit
        a += x * x
    return a + b + c + d


@inner
def remember(
    memory: Floats, nearest: Number, distance: Number, raw: Floats, packed: Ints, shift: Number, unit: Number
) -> None:
    """Keep a root whose columns were all examined, in place of the nearest or, if that is far, of an empty one."""
    n_features = len(raw) - 1
    m = max(nearest, 0)
    if nearest >= 0 and memory[1 - m, 0] == 0.0:
        squares = 0.0
        for g in memory[m, 1 + n_features :]:
            squares += g * g
        if distance > FAR * np.sqrt(squares):
            m = 1 - m
    memory[m, 0] = 1.0
    for f in range(n_features):
        memory[m, 1 + f] = np.sqrt(max(2.0 * raw[f], 0.0))
    for i in range(len(packed)):
        memory[m, 1 + n_features + i] = (packed[i] >> shift) * unit
