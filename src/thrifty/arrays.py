"""Types of numpy arrays, and checks of masked arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.errors import InvalidInputError

__all__ = [
    "Bools",
    "Codes",
    "Floats",
    "Int32s",
    "Int64s",
    "Ints",
    "Labels",
    "Numbers",
    "Words",
    "check_unmasked",
    "unmasked",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
Codes = NDArray[np.unsignedinteger[Any]]
"""Numbers of classes, as small as their count allows."""
Numbers = NDArray[np.float64] | NDArray[np.bool_]
"""Quality of answers: bool where an answer is right or wrong."""
Labels = NDArray[Any]
"""Labels of the user: numbers, booleans or text."""


def unmasked(values: Any) -> Any:
    """Return the values with NaN where numpy's mask is set: other functions would read the hidden values."""
    return np.ma.filled(values.astype(np.float64), np.nan) if np.ma.isMaskedArray(values) else values


def check_unmasked(name: str, values: Any) -> None:
    """Refuse a masked array that hides values which must be there."""
    if np.ma.is_masked(values):
        place = int(np.argwhere(np.ma.getmaskarray(values))[0][0])
        raise InvalidInputError(
            f"{name} must hold a value everywhere; it is masked at place {place}, counted from 0. Leave out what is "
            f"masked, or fill it."
        )
