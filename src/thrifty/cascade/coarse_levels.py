"""Columns in a few levels, and where these lie: how far apart two values are, for neighbours."""

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats, Ints
from thrifty.trees.binning import BinnedTable

__all__ = ["MOST_LEVELS", "coarse_levels"]

MOST_LEVELS = 24
"""Levels of a column; more values are cut into as many parts of equally many rows."""

UNEVEN = 1.5
"""How much larger than the smallest step between values the largest may be, if they are to lie where they are."""


def coarse_levels(
    table: BinnedTable, columns: Ints, weight: Floats
) -> tuple[NDArray[np.uint8], Floats, NDArray[np.int64], Floats]:
    """Columns in at most ``MOST_LEVELS`` levels: codes, ends, offsets, and positions with a standard deviation of one.

    Few values at about even steps, such as counts, lie where they are; all others at their ranks, and where they are
    many, they are cut into levels of equally many rows.
    """
    codes = np.empty((table.n_rows, len(columns)), dtype=np.uint8)
    ends, positions, offsets = [], [], [0]
    for number, column in enumerate(columns):
        own, cuts = table.codes[:, column], table.thresholds.of(int(column))
        n_bins = len(cuts) + 1
        is_there = own < n_bins
        mass = np.bincount(own[is_there], weight[is_there], minlength=n_bins)
        level_of, gaps = np.arange(n_bins), np.diff(cuts)
        if n_bins > MOST_LEVELS:
            middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
            level_of = np.minimum((middle * MOST_LEVELS).astype(int), MOST_LEVELS - 1)
            level_of = np.unique(level_of, return_inverse=True)[1]
        if n_bins <= MOST_LEVELS and len(gaps) > 1 and gaps.max() <= UNEVEN * gaps.min():
            # Cuts lie half-way between values.
            place = np.r_[cuts[0] - gaps[0] / 2, (cuts[1:] + cuts[:-1]) / 2, cuts[-1] + gaps[-1] / 2]
        else:
            shares = np.bincount(level_of, mass)
            place = (np.cumsum(shares) - shares / 2) / max(shares.sum(), 1e-300)
        last_of = np.flatnonzero(np.diff(level_of))  # the last bin of every level but the last
        ends.append(cuts[last_of])
        shares = np.bincount(level_of, mass)
        mean = float(place @ shares) / max(float(shares.sum()), 1e-300)
        spread = float(np.sqrt(np.square(place - mean) @ shares / max(float(shares.sum()), 1e-300)))
        positions.append((place - mean) / (spread or 1.0))
        codes[:, number] = np.where(is_there, level_of[np.minimum(own, n_bins - 1)], len(place))
        offsets.append(offsets[-1] + len(last_of))
    flat = np.concatenate([np.empty(0), *ends]), np.concatenate([np.empty(0), *positions])
    return codes, flat[0], np.array(offsets, dtype=np.int64), flat[1]
