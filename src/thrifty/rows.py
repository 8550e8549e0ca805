"""Decisions that must be random across rows yet a fixed function of each row.

Two things here need chance: which fold a training row falls into, and whom the uniform gate sends
on. Drawn from a generator, both would depend on the order and on the repetition of rows. Drawn from
a *fingerprint of the row's content* they do not: two equal rows share their fate, so a row with
weight 2 is the same as that row given twice, no exact duplicate leaks from a fold into the
model that is judged on it, and ``route(X)`` agrees with ``predict(X)``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Words
from thrifty.exceptions import InvalidInputError

__all__ = ["content_folds", "fingerprints", "uniforms"]


# Odd multipliers of the splitmix64 generator (Steele, Lea and Flood, 2014): they spread one changed
# input bit over all 64 output bits.
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def fingerprints(X: object, seed: int = 0) -> Words:
    """A 64-bit fingerprint per row of a dense or CSR table; equal rows and seeds give equal ones."""
    # A sum over the cells that are not zero, so that dense, sparse and explicitly stored zeros agree.
    state = np.full(X.shape[0], _mix(np.array([seed], dtype=np.uint64))[0])  # type: ignore[attr-defined]
    if sparse.issparse(X):
        coo = sparse.coo_array(X)
        np.add.at(state, coo.row, _cells(coo.data, coo.col.astype(np.uint64)))
        return _mix(state)
    for number, column in enumerate(np.asarray(X, dtype=np.float64).T):
        state += _cells(column, np.uint64(number))
    return _mix(state)


def _cells(values: NDArray[np.float64], columns: Any) -> Words:
    """A word per cell that depends on its value and its column; nothing for a zero."""
    mixed = _mix(_words(values) ^ _mix(np.atleast_1d(columns) + np.uint64(1)))
    mixed[values == 0] = 0
    return mixed


def uniforms(X: object, seed: int = 0) -> NDArray[np.float64]:
    """One number in (0, 1) per row, uniform over rows and fixed by the row's content and the seed."""
    top = (fingerprints(X, seed) >> np.uint64(11)).astype(np.float64)
    return (top + 0.5) / 2.0**53


def content_folds(X: object, strata: NDArray[Any], n_folds: int, seed: int = 0) -> NDArray[np.intp]:
    """Fold of each row: stratified, equal rows together, whatever their order or number.

    Distinct rows of each stratum are ordered by fingerprint and dealt to the folds in turn.
    """
    if n_folds < 2:
        raise InvalidInputError(f"cv must be at least 2 folds; got {n_folds!r}.")
    keys = fingerprints(X, seed)
    fold = np.zeros(len(keys), dtype=np.intp)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        _, rank = np.unique(keys[members], return_inverse=True)
        fold[members] = rank % n_folds
    return fold


def _words(values: NDArray[np.float64]) -> Words:
    # Adding 0.0 turns -0.0 into 0.0: numbers that compare equal must hash equal.
    return (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)


def _mix(word: Words) -> Words:
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))
