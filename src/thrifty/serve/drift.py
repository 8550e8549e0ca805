"""Whether the rows that come are spread like those of the fit, column by column.

The population-stability index of a column compares the share p of its new values in each bin with the share q of the
training values:

    sum over bins of (p - q) log(p / q)

It is 0 where they agree. By custom, less than 0.1 is no drift, and more than 0.25 is one that models should be fitted
again for.
"""

import numpy as np

from thrifty.arrays import Floats
from thrifty.tables.spread import Spread

__all__ = ["Drift", "stability_index"]

LEAST_VALUES = 500
"""With fewer new values chance alone moves the index by more than 0.02."""

FLOOR = 1e-4
"""The least share of a bin: the logarithm of an empty one would be infinite."""


def stability_index(new: Floats, training: Floats) -> Floats:
    """Population-stability index of some columns, from shares of bins of shape (n_columns, n_bins)."""
    p, q = np.maximum(new, FLOOR), np.maximum(training, FLOOR)
    index: Floats = ((p - q) * np.log(p / q)).sum(axis=1)
    return index


class Drift:
    """Compares the latest rows with those of the fit.

    Missing values have no say: a request carries what is at hand, and what it lacks says nothing about the rest.

    Parameters
    ----------
    spread : Spread
        How the columns were spread in the fit.
    window : int
        About how many of the latest rows count: at least so many, and at most twice as many.
    """

    def __init__(self, spread: Spread, window: int = 10_000) -> None:
        self._spread, self._window = spread, window
        self._n_new = 0
        self._old = self._new = np.zeros(spread.shares.shape, dtype=np.int64)

    def saw(self, numbers: Floats) -> None:
        """Take note of some rows, shape (n_rows, n_columns); NaN is missing."""
        self._new = self._new + self._spread.counts(numbers)
        self._n_new += len(numbers)
        if self._n_new >= self._window:
            self._old, self._new, self._n_new = self._new, np.zeros_like(self._new), 0

    def by_column(self) -> Floats:
        """Population-stability index of each column; NaN where too few values have come, or the fit had none."""
        counts = self._old + self._new
        n_values = counts.sum(axis=1)
        index = stability_index(counts / np.maximum(n_values, 1)[:, None], self._spread.shares)
        index[(n_values < LEAST_VALUES) | (self._spread.shares.sum(axis=1) == 0)] = np.nan
        return index
