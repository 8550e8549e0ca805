"""Coarse codes, two columns to a byte: half the work of a histogram, enough to see that a column cannot pay.

A column is cut into at most sixteen coarse bins, runs of its own bins (missing values apart). The byte of a pair of
columns counts both at once: one addition to one of 256 cells, from which either column's coarse sums follow exactly.
Coarse bins are narrow at the ends of a column and wide in its middle, evenly in ``arcsin(sqrt(share of rows below))``:
a split hidden inside any of them could then gain about equally much.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.trees.kernel import kernel

__all__ = ["N_COARSE_CODES", "Pairs", "make_pairs"]

N_COARSE_CODES = 16
WORD = 8


class Pairs(NamedTuple):
    """Coarse codes of a table.

    Attributes
    ----------
    words : ndarray of shape (n_rows, n_words), uint64
        Eight bytes to a word; byte ``j`` of a row holds columns ``2 j`` (low half) and ``2 j + 1``.
    n_coarse : ndarray of shape (n_features,)
        Coarse bins of values; also the coarse code of missing values.
    hides : ndarray of shape (n_features,)
        Bit ``k`` is set if coarse bin ``k`` is several bins, between which a split may hide.
    """

    words: NDArray[np.uint64]
    n_coarse: NDArray[np.int64]
    hides: NDArray[np.int64]


def make_pairs(codes: NDArray[np.uint8], n_bins: NDArray[np.int64]) -> Pairs:
    """Choose coarse bins by the rows of the table, and code them."""
    n_rows, n_features = codes.shape
    counts = np.zeros((n_features, 256), np.int64)
    count_codes(codes, counts)
    coarse = np.zeros((n_features, 256), np.uint8)
    n_coarse, hides = np.zeros(n_features, np.int64), np.zeros(n_features, np.int64)
    for f in range(n_features):
        ends = coarse_bins(counts[f, : n_bins[f]], N_COARSE_CODES - int(counts[f, n_bins[f]] > 0))
        coarse[f, : n_bins[f]] = ends
        n_coarse[f] = int(ends[-1]) + 1
        coarse[f, n_bins[f]] = n_coarse[f] % N_COARSE_CODES  # never met if there was no room for it
        several = np.bincount(ends) > 1
        hides[f] = int(np.sum(several << np.arange(len(several))))
    n_words = -(-n_features // (2 * WORD))
    pairs = np.zeros((n_rows, n_words * WORD), np.uint8)
    encode_pairs(codes, coarse, pairs)
    return Pairs(pairs.view(np.uint64), n_coarse, hides)


def coarse_bins(counts: NDArray[np.int64], n_codes: int) -> NDArray[np.int64]:
    """Coarse bin of every bin: its own if there are few, else by the share of rows below its middle."""
    if len(counts) <= n_codes:
        return np.arange(len(counts))
    middle = np.clip((np.cumsum(counts) - counts / 2) / max(counts.sum(), 1), 0.0, 1.0)
    angle = np.arcsin(np.sqrt(middle)) / (np.pi / 2)
    wanted = np.minimum((angle * n_codes).astype(np.int64), n_codes - 1)
    return np.cumsum(np.diff(wanted, prepend=wanted[0]) > 0)


@kernel
def count_codes(codes: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
    """Rows of every code of every column."""
    for row in range(codes.shape[0]):
        for f in range(codes.shape[1]):
            counts[f, codes[row, f]] += 1


@kernel
def encode_pairs(codes: NDArray[np.uint8], coarse: NDArray[np.uint8], pairs: NDArray[np.uint8]) -> None:
    """Write the coarse codes of two columns into each byte."""
    for row in range(codes.shape[0]):
        for f in range(codes.shape[1]):
            pairs[row, f // 2] |= coarse[f, codes[row, f]] << np.uint8(4 * (f % 2))
