"""Which rows are learned from, which are chosen on, and which prove: drawn by their content, equal rows together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Ints
from thrifty.exceptions import InvalidInputError
from thrifty.rows import content_folds, fingerprints

__all__ = ["Parts", "split_rows"]


_FOLDS = 10
_FEWEST = 30  # distinct rows of each class: three in every tenth


@dataclass(frozen=True)
class Parts:
    """Positions of the rows of each part; nobody is in two of them.

    Attributes
    ----------
    learn : ndarray
        f0, gates and cheap models are fitted on these.
    choose : ndarray
        Operating points are chosen on these.
    prove : ndarray
        A certificate is issued on these; empty where none was asked for.
    """

    learn: Ints
    choose: Ints
    prove: Ints


def split_rows(X: Any, y: NDArray[Any], *, prove: bool, seed: int) -> Parts:
    """Seven tenths to learn and three to choose; with ``prove`` five to learn, two to choose and three to prove."""
    numbers = np.asarray(X, dtype=np.float64)
    for label in np.unique(y):
        distinct = len(np.unique(fingerprints(numbers[y == label], seed)))
        if distinct < _FEWEST:
            raise InvalidInputError(
                f"the table must have at least {_FEWEST} different rows of each class, to learn from some and to "
                f"choose on others; {np.asarray(label).item()!r} has {distinct}. Give more rows."
            )
    fold = content_folds(numbers, y, _FOLDS, seed)
    n_choose, n_prove = (2, 3) if prove else (3, 0)
    return Parts(
        learn=np.flatnonzero(fold >= n_choose + n_prove),
        choose=np.flatnonzero(fold < n_choose),
        prove=np.flatnonzero((fold >= n_choose) & (fold < n_choose + n_prove)),
    )
