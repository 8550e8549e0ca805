"""Deciles of each training column, kept in the file to detect drift of new rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Int64s
from thrifty.errors import InvalidInputError

N_BINS = 10
"""Bins of each column; with fewer different values, those with a share of their own."""

MAX_ROWS = 100_000
"""Rows that are looked at, spread evenly over the table: shares of tenths need no more."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Bins of every column, and the share of the training rows in each.

    Attributes
    ----------
    edges : ndarray of shape (n_columns, N_BINS - 1)
        Upper edges of all bins but the last, which belong to their bins; rising, and infinite where there are fewer.
    shares : ndarray of shape (n_columns, N_BINS)
        Shares of the values that are not missing; all zero in a column without any.
    """

    edges: Floats
    shares: Floats

    @classmethod
    def of(cls, numbers: Floats) -> "Spread":
        """Deciles of the columns of a table, shape (n_rows, n_columns); NaN is missing."""
        numbers = numbers[:: max(len(numbers) // MAX_ROWS, 1)]
        edges = np.full((numbers.shape[1], N_BINS - 1), np.inf)
        for column, values in enumerate(numbers.T):
            values = values[~np.isnan(values)]
            if values.size:
                tenths = np.linspace(0, 1, N_BINS + 1)[1:-1]
                deciles = np.unique(np.quantile(values, tenths, method="inverted_cdf"))
                edges[column, : len(deciles)] = deciles
        counts = cls(edges, np.zeros((len(edges), N_BINS))).counts(numbers)
        return cls(edges, counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))

    @classmethod
    def of_system(cls, system: Any) -> "Spread | None":
        """Spread in the ``record_`` of a fit from a table; None where there is none."""
        spread = getattr(getattr(system, "record_", None), "spread", None)
        return spread if isinstance(spread, cls) else None

    def validate(self) -> "Spread":
        """Refuse edges that do not rise, and shares that do not sum to 1. Returns itself."""
        edges, shares = np.asarray(self.edges), np.asarray(self.shares)
        is_whole = (
            edges.shape == (len(edges), N_BINS - 1)
            and shares.shape == (len(edges), N_BINS)
            and edges.dtype == shares.dtype == np.float64
            and bool(np.all(edges[:, :-1] <= edges[:, 1:]))
            and bool(np.all(shares >= 0))
            and bool(np.all(np.isclose(shares.sum(axis=1), 1) | (shares == 0).all(axis=1)))
        )
        if not is_whole:
            raise InvalidInputError(
                "a spread must hold edges that rise and shares that sum to 1 in every column. Fit the system again."
            )
        return self

    def counts(self, numbers: Floats) -> Int64s:
        """Number of values of each column in each bin, shape (n_columns, N_BINS); missing ones are in none."""
        counts = np.zeros((len(self.edges), N_BINS), dtype=np.int64)
        for column, (edges, values) in enumerate(zip(self.edges, numbers.T, strict=True)):
            bins = np.searchsorted(edges, values[~np.isnan(values)])
            counts[column] = np.bincount(bins, minlength=N_BINS)
        return counts
