r"""Gradients and hessians of losses, as integers that are packed so that one addition sums both.

Sums of integers do not depend on the order of the terms: with any number of threads and any order
of the rows, every histogram, gain and leaf value is the same, bit for bit. Real value = integer
times a power of two, chosen from the data so that no sum can overflow.

A row is ``n_lanes`` integers of 64 bits. With constant hessians (``hess=None``) lane 0 is
``gradient << shift | 1``: its low field counts rows and takes ``bit_length(n)`` bits, the gradient has
the rest (45 bits for the sum of 150,000 rows, 28 for a row of average size). With hessians given the low
field has 29 bits and the gradient 33 (16 to 17 bits for a row of average size at 150,000 rows). Past
2**20 rows that is too coarse, so gradients and hessians take a lane each, of 52 bits. Rounding moves the
gradient of a row by at most half a unit.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats
from thrifty.errors import InvalidInputError
from thrifty.jit import Number, lean, lean_kernel

HESSIAN_BITS = 29
GRADIENT_BITS, CURVATURE_BITS = 62 - HESSIAN_BITS, HESSIAN_BITS
"""Bits in which derivatives of up to ``WIDE_ROWS`` rows are summed; there are more for larger tables."""
EXACT_BITS = 52  # integers below 2**53 convert to float64 without rounding
WIDE_ROWS = 2**20
MAGNITUDE, INFINITE, FRACTION = 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFFFFFFFFFFFF  # bits of a float64


class Lanes(NamedTuple):
    """Layout of the gradients and hessians of all outputs in the lanes of a row.

    Attributes
    ----------
    n_lanes : int
        Integers per row and per histogram cell.
    constant : bool
        Whether every hessian is one.
    fields : ndarray of shape (n_outputs + 1, 4)
        Per output: lane and right shift of the gradient, lane and bit mask of the hessian. In the last row:
        lane and bit mask of the number of rows (lane -1 if it is not kept), and the powers of two that bound
        the sums of gradients and of hessians.
    """

    n_lanes: int
    constant: bool
    fields: NDArray[np.int64]


@lru_cache(maxsize=64)
def choose_lanes(n_rows: int, n_outputs: int, *, constant: bool, keep_count: bool) -> Lanes:
    """Tightest layout that cannot overflow for ``n_rows`` rows; shared, not to be written to."""
    fields = np.zeros((n_outputs + 1, 4), np.int64)
    outputs = np.arange(n_outputs)
    fields[:-1, 0] = outputs
    if constant:
        shift = n_rows.bit_length()
        fields[0, 1] = shift
        fields[:-1, 3] = (1 << shift) - 1
        fields[-1] = 0, (1 << shift) - 1, min(62 - shift, EXACT_BITS), shift
        return Lanes(n_outputs, True, fields)
    if n_rows > WIDE_ROWS:
        n_lanes, bits = 2 * n_outputs, (EXACT_BITS, EXACT_BITS)
        fields[:-1, 2], fields[:-1, 3] = n_outputs + outputs, -1
    else:
        n_lanes, bits = n_outputs, (GRADIENT_BITS, CURVATURE_BITS)
        fields[:-1, 1] = HESSIAN_BITS
        fields[:-1, 2], fields[:-1, 3] = outputs, (1 << HESSIAN_BITS) - 1
    fields[-1] = n_lanes if keep_count else -1, -1, *bits
    return Lanes(n_lanes + keep_count, False, fields)


def pack(
    grad: Sequence[NDArray[np.float64]],
    hess: Sequence[NDArray[np.float64]] | None,
    lanes: Lanes,
    out: NDArray[np.int64],
    units: NDArray[np.float64],
    totals: NDArray[np.int64],
) -> None:
    """Round gradients and hessians to integers and pack them.

    Parameters
    ----------
    grad, hess : sequence of ndarray of shape (n_rows,)
        Per output, float64, contiguous and writable: what compiled code knows them by.
    out : ndarray of shape (n_rows * n_lanes,)
        Takes the lanes of row 0, then of row 1, ...
    units : ndarray of shape (n_outputs, 2)
        Takes the real value of one unit of gradient and of hessian, powers of two; ones to begin with.
    totals : ndarray of shape (n_lanes,)
        Takes the sum of every lane.
    """
    n_outputs, count = len(lanes.fields) - 1, lanes.fields[-1, 0]
    by_lane = out[None] if lanes.n_lanes == 1 else np.zeros((lanes.n_lanes, len(grad[0])), np.int64)
    problem = 0
    for output, g in enumerate(grad):
        h = g if hess is None else hess[output]
        lanes_of = by_lane[lanes.fields[output, 0]], by_lane[lanes.fields[output, 2]]
        bits = g.view(np.int64), h.view(np.int64)
        problem = problem or pack_output(g, h, *bits, lanes, output, *lanes_of, units[output], totals)
    if lanes.n_lanes > 1:
        if count >= n_outputs:
            by_lane[count], totals[count] = 1, len(grad[0])
        out.reshape(-1, lanes.n_lanes)[:] = by_lane.T
    if problem:
        raise describe_problem(problem, grad, hess)


def describe_problem(
    problem: int, grad: Sequence[NDArray[np.float64]], hess: Sequence[NDArray[np.float64]] | None
) -> InvalidInputError:
    """Error about the first gradient (1) or hessian (2) that is not allowed."""
    name = "grad" if problem == 1 else "hess"
    rule = "finite" if problem == 1 else "finite and not negative"
    values = np.column_stack(grad if problem == 1 or hess is None else hess)
    wrong = ~np.isfinite(values) | (values < 0 if problem == 2 else False)
    row, output = np.argwhere(wrong)[0]
    return InvalidInputError(
        f"{name} must be {rule}; row {row}, output {output} is {float(values[row, output])!r}. "
        "Check the scores and weights it was computed from."
    )


@lean
def unit_scale(values: NDArray[np.float64], as_bits: NDArray[np.int64], n_bits: Number) -> Number:
    """Largest power of two that keeps the sum of magnitudes of integers below ``2**n_bits``; 0 if it is not finite.

    Bits of magnitudes are in the order of magnitudes. The sum is taken in integers: a float sum would depend on the
    order of the rows.
    """
    top, n_rows, precision = np.int64(0), len(values), 61
    for row in range(n_rows):
        magnitude = as_bits[row] & MAGNITUDE
        if magnitude > top:
            top = magnitude
    if top >= INFINITE:
        return 0.0
    if top == 0:
        return 1.0
    while n_rows > 0:
        n_rows >>= 1
        precision -= 1
    exponent: Number = (
        (top >> 52) - 1022 + (top & FRACTION > 0)
    )  # one more than that of the next power of two
    if exponent < -900:  # keeps the factor finite
        exponent = np.int64(-900)
    factor, total = math.ldexp(1.0, precision - exponent), np.int64(0)
    for row in range(len(values)):
        total += np.int64(abs(values[row]) * factor) + 1
    found = n_bits - 1 + precision - exponent
    while total > 0:
        total >>= 1
        found -= 1
    return math.ldexp(1.0, found if found < 1000 else 1000)


def fill_output(
    grad: NDArray[np.float64],
    hess: NDArray[np.float64],
    grad_bits: NDArray[np.int64],
    hess_bits: NDArray[np.int64],
    lanes: Lanes,
    output: Number,
    out: NDArray[np.int64],
    hess_out: NDArray[np.int64],
    units: NDArray[np.float64],
    totals: NDArray[np.int64],
) -> Number:
    """Fill the lanes of one output, which may be one; returns 1 or 2 when a gradient or a hessian is not allowed.

    Gradients are rounded half away from zero, so that a gradient and its opposite round alike. A hessian is at least
    one unit where there is any: a child without hessian must mean a child without rows.
    """
    last, shift = len(lanes.fields) - 1, lanes.fields[output, 1]
    scale = unit_scale(grad, grad_bits, lanes.fields[last, 2])
    if scale == 0.0:
        return 1
    units[0], counted, total = 1.0 / scale, np.int64(lanes.constant and output == 0), np.int64(0)
    for row in range(len(grad)):
        value = grad[row] * scale
        rounded = (np.int64(value + math.copysign(0.5, value)) << shift) + counted
        total += rounded
        out[row] = rounded
    totals[lanes.fields[output, 0]] = total
    if lanes.constant:
        return 0
    scale = unit_scale(hess, hess_bits, lanes.fields[last, 3])
    if scale == 0.0:
        return 2
    units[1], is_negative, total = 1.0 / scale, False, np.int64(0)
    for row in range(len(hess)):
        value = hess[row]
        is_negative |= value < 0.0
        rounded = np.int64(value * scale + 0.5)
        if rounded < 1:
            rounded = np.int64(value > 0.0)
        total += rounded
        hess_out[row] += rounded
    if lanes.fields[output, 2] == lanes.fields[output, 0]:
        total += totals[lanes.fields[output, 0]]
    totals[lanes.fields[output, 2]] = total
    return 2 if is_negative else 0


# Compiled twice: inlined where a tree is begun, and callable from Python to pack several outputs.
pack_one, pack_output = lean(fill_output), lean_kernel(fill_output)


@lean
def round_to(values: Floats, counts: Floats, bits: Number, out: Floats) -> None:
    """Weigh values that are rounded to a power of two, of which the sum of weighted magnitudes holds ``2^bits``."""
    total = 0.0
    for i in range(len(values)):
        total += counts[i] * abs(values[i])
    exponent = max(np.ceil(np.log2(total)), -900.0) - bits  # both powers are numbers
    unit, per_unit = 2.0**exponent, 2.0**-exponent
    for i in range(len(values)):
        out[i] = counts[i] * (np.rint(values[i] * per_unit) * unit)


@lean_kernel
def round_outputs(values: Floats, counts: Floats, bits: Number, out: Floats) -> None:
    """Weigh the values of each output, rounded as in ``round_to``; arrays of shape (n_outputs, n_rows)."""
    for k in range(len(values)):
        round_to(values[k], counts, bits, out[k])


@lean_kernel
def round_alone(values: Floats, counts: Floats, unit: Number, is_hessian: Number, out: Floats) -> None:
    """Round weighted values, without their weights, half away from zero to units; a row with any hessian has a unit."""
    for i in range(len(values)):
        alone = values[i] / (counts[i] if counts[i] > 0.0 else 1.0) / unit
        whole = np.trunc(alone + math.copysign(0.5, alone))
        if is_hessian and alone > 0.0 and whole < 1.0:
            whole = 1.0
        out[i] = whole * unit * counts[i]


@lean_kernel
def add_squares(grad: Floats, counts: Floats, sums: Floats) -> None:
    """Add the squares of weighted gradients, each weighted once, so that a row of weight two is two rows."""
    for k in range(len(grad)):
        total = 0.0
        for i in range(len(counts)):
            total += grad[k, i] * grad[k, i] / (counts[i] if counts[i] > 0.0 else 1.0)
        sums[k] += total


def derivatives_along(direction: Floats, grad: Floats, hess: Floats | None) -> tuple[Floats, Floats | None]:
    """Derivatives of many outputs along one direction of them.

        scores + t direction:    d/dt = grad . direction,    d2/dt2 = hess . direction^2   (hess is a diagonal)

    Parameters
    ----------
    direction : ndarray of shape (n_outputs,)
        Of length one, so that ``l2`` means the same; gains are scaled by ``n_outputs``, to be those of all outputs on
        average over directions.
    grad, hess : ndarray of shape (n_rows, n_outputs)
        Derivatives of each output; without ``hess``, all second ones are one.
    """
    one_grad, one_hess = np.zeros((2, len(grad)))
    add_outputs(by_output(grad), direction * np.sqrt(len(direction)), one_grad)
    if hess is None:
        return one_grad, None
    add_outputs(by_output(hess), direction**2, one_hess)
    return one_grad, one_hess


def by_output(values: Floats) -> Floats:
    """Values of shape (n_rows, n_outputs), an output after the other."""
    return np.ascontiguousarray(values.T)


@lean_kernel
def add_outputs(values: Floats, factors: Floats, total: Floats) -> None:
    """Add outputs, each with its factor, one after the other: the sum of a row depends on that row only."""
    for k in range(len(values)):
        factor, own = factors[k], values[k]
        for i in range(len(total)):
            total[i] += factor * own[i]
