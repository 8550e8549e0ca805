"""Types of arrays, named once for the whole house."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Codes", "Floats", "Int32s", "Int64s", "Ints", "Labels", "Numbers", "Words"]

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
"""What a user calls the answers: numbers, truth values or text."""
