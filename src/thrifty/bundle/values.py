"""Plain values as JSON: what JSON has no word for is tagged, and arrays are referred to by number.

Numbers come back bit by bit: finite ones are written with as many digits as tell them apart, the others by name. What
is not plain, such as a model or a splitter, has no form here; whoever asks is told so and decides.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.container import is_storable
from thrifty.exceptions import InvalidInputError

__all__ = ["NotPlainError", "Packer", "Unpacker"]

_NUMBERS_BY_NAME = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MOST_LEVELS = 40


class NotPlainError(InvalidInputError):
    """A value is not made of numbers, text, truth values, None, arrays and collections of them."""


class Packer:
    """Turns values into JSON and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []

    def array(self, array: NDArray[Any]) -> dict[str, int]:
        """Refer to an array by its number."""
        if not is_storable(array):
            raise NotPlainError(f"arrays of type {array.dtype} with {array.ndim} dimensions are not stored.")
        self.arrays.append(array)
        return {"$array": len(self.arrays) - 1}

    def floats(self, array: Any) -> dict[str, int]:
        """Refer to an array of numbers, which is read back as float64."""
        return self.array(np.asarray(array, dtype=np.float64))

    def value(self, value: Any, level: int = 0) -> Any:
        """The value as JSON; refuses what is not plain."""
        if level > _MOST_LEVELS:
            raise NotPlainError(f"values nested more than {_MOST_LEVELS} deep are not stored.")
        # Exact types: a subclass, numpy's numbers among them, would come back as something else.
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if kind is list:
            return [self.value(item, level + 1) for item in value]
        if kind is tuple:
            return {"$tuple": [self.value(item, level + 1) for item in value]}
        if kind is dict:
            return {"$dict": [[self.value(k, level + 1), self.value(v, level + 1)] for k, v in value.items()]}
        if isinstance(value, np.generic):
            return {"$scalar": self.array(np.asarray(value))["$array"]}
        if kind is np.ndarray and value.dtype == object and value.ndim == 1:
            return {"$objects": [self.value(item, level + 1) for item in value.tolist()]}
        if kind is np.ndarray:
            return self.array(value)
        raise NotPlainError(f"a {kind.__name__} is not plain data and is not stored.")


class Unpacker:
    """Turns JSON back into values."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = list(arrays)

    def array(self, number: Any) -> NDArray[Any]:
        """The array of that number."""
        if type(number) is not int or not 0 <= number < len(self._arrays):
            raise InvalidInputError(
                f"the bundle refers to array {str(number)[:30]} and holds {len(self._arrays)} of them."
            )
        array: NDArray[Any] = self._arrays[number]
        return array

    def value(self, value: Any) -> Any:
        """The value that was packed."""
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) != 1:
            raise _bad_value(value)
        (tag, content), *_ = value.items()
        if tag == "$float" and isinstance(content, str) and content in _NUMBERS_BY_NAME:
            return _NUMBERS_BY_NAME[content]
        if tag == "$array":
            return self.array(content)
        if tag == "$scalar":
            return self._scalar(content)
        if tag == "$tuple" and isinstance(content, list):
            return tuple(self.value(content))
        if tag == "$objects" and isinstance(content, list):
            return _objects(self.value(content))
        if tag == "$dict" and isinstance(content, list):
            return self._dict(content)
        raise _bad_value(value)

    def _scalar(self, number: Any) -> Any:
        array = self.array(number)
        if array.ndim:
            raise InvalidInputError(f"a number of the bundle is an array of shape {array.shape}.")
        return array[()]

    def _dict(self, pairs: list[Any]) -> dict[Any, Any]:
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise _bad_value(pairs)
        try:
            return {self.value(key): self.value(value) for key, value in pairs}
        except TypeError:
            raise _bad_value(pairs) from None


def _objects(items: list[Any]) -> NDArray[Any]:
    # Filled item by item: numpy would make a table of items that are lists.
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


def _bad_value(value: Any) -> InvalidInputError:
    return InvalidInputError(f"the bundle holds a value in a form it must not have: {str(value)[:60]}.")
