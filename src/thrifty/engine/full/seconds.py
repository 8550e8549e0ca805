"""Seconds that calls of a model take on this machine: medians, warm."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thrifty.arrays import Ints

N_REPEATS = 5
"""Calls of which the median is the time of a model."""


@dataclass(frozen=True)
class Seconds:
    """Seconds that one call of a model takes: a part per call, and a part per row."""

    per_call: float
    per_row: float

    def of_row(self, batch_size: int) -> float:
        """Seconds of one row in a batch."""
        return self.per_row + self.per_call / batch_size


def measure_seconds(ask: Callable[[Ints], Any], n_rows: int) -> Seconds:
    """Measure calls with one row and with all rows, after a call that warms up."""
    ask(np.arange(min(n_rows, 1)))
    one, many = (median_seconds(partial(ask, rows)) for rows in (np.arange(1), np.arange(n_rows)))
    per_row = max(many - one, 0.05 * many) / max(n_rows - 1, 1)
    return Seconds(max(one - per_row, 0.0), per_row)


def median_seconds(call: Callable[[], Any], n_repeats: int = N_REPEATS, n_warm: int = 0) -> float:
    """Median seconds of some calls, after others that warm up."""
    taken = []
    for _ in range(n_warm + n_repeats):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[n_warm:]))
