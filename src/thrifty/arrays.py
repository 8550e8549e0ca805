"""Types of numpy arrays, checks of what they hold, and settings as JSON keeps them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.errors import InvalidInputError

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


def finite_numbers(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    """Finite float64 numbers of a shape, None being any length, with at least one row."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must hold numbers; got {type(values).__name__}.") from None
    if not has_shape(numbers, shape) or len(numbers) == 0:
        wanted = str(shape).replace("None", "any")
        raise InvalidInputError(
            f"{name} must hold numbers for at least one row, shape {wanted}; got shape {numbers.shape}."
        )
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        value = float(numbers[bad][0])
        raise InvalidInputError(f"{name} must hold finite numbers; got {value!r} in row {row}.")
    return numbers


def has_shape(values: Any, shape: tuple[int | None, ...]) -> bool:
    """True if an array has a shape, None being any length."""
    return values.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, values.shape, strict=True))


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON would give them back: arrays and tuples become lists, dataclasses dicts."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(settings), default=_plain))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"settings must be a dict of what JSON can hold: numbers, text, lists, dicts, None; "
            f"got {settings!r} ({error})."
        ) from None
    return plain


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
