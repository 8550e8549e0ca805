"""Rows to learn from, to choose with, and to report on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats

__all__ = ["Split", "in_order"]


@dataclass(frozen=True)
class Split:
    """Rows to learn from, to choose with, and to report on, in that order; labels are 0 / 1."""

    X_train: Floats
    y_train: NDArray[np.intp]
    X_val: Floats
    y_val: NDArray[np.intp]
    X_test: Floats
    y_test: NDArray[np.intp]
    feature_names: tuple[str, ...]


def in_order(X: Floats, y: NDArray[np.intp], train_end: int, val_end: int, names: tuple[str, ...]) -> Split:
    """Cut rows that already stand in the order in which they are to be used."""
    train, val, test = slice(train_end), slice(train_end, val_end), slice(val_end, None)
    return Split(X[train], y[train], X[val], y[val], X[test], y[test], names)
