"""Arrays with one entry per row, checked: what is wrong is named with its row, nothing turns into NaN unseen."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Numbers, Words
from thrifty.errors import InvalidInputError

__all__ = [
    "as_text",
    "check_cost",
    "check_quality",
    "check_threshold",
    "check_words",
    "column_numbers",
    "finite_numbers",
    "plain_settings",
    "yes_or_no",
]


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON would give them back: numpy numbers and arrays become plain ones, tuples lists."""
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
    raise TypeError(f"{type(value).__name__} is not JSON")


def check_words(name: str, values: Any, shape: tuple[int | None, ...]) -> Words:
    """Fingerprints, 64 bits each, of a shape, None being any length."""
    words = np.asarray(values)
    fits = words.ndim == len(shape) and all(
        one in (None, n) for one, n in zip(shape, words.shape, strict=True)
    )
    if words.dtype != np.uint64 or not fits:
        raise InvalidInputError(
            f"{name} must hold fingerprints of rows, of type uint64 and shape {str(shape).replace('None', 'any')}; got "
            f"{words.dtype} and {words.shape}."
        )
    return words


def as_text(parts: list[Any]) -> str:
    """Text that is equal for equal parts."""
    return json.dumps(parts, sort_keys=True)


def finite_numbers(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    """Finite float64 numbers of a shape, None being any length, with at least one row."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must hold numbers; got {type(values).__name__}.") from None
    fits = numbers.ndim == len(shape) and all(
        one in (None, n) for one, n in zip(shape, numbers.shape, strict=True)
    )
    if not fits or len(numbers) == 0:
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


def check_cost(cost: ArrayLike, n_rows: int, n_places: int) -> Floats:
    """One number per place for all rows, or one per row and place."""
    per_row = np.ndim(cost) == 2
    return finite_numbers("cost", cost, (n_rows, n_places) if per_row else (n_places,))


def check_quality(name: str, quality: ArrayLike, shape: tuple[int | None, ...]) -> Numbers:
    """Numbers of a shape; what was bool stays bool, in an eighth of the memory."""
    numbers = finite_numbers(name, quality, shape)
    return np.asarray(quality) if np.asarray(quality).dtype == bool else numbers


def yes_or_no(name: str, quality: Numbers) -> Bools:
    """Right or wrong everywhere, or a refusal."""
    if quality.dtype == bool or np.isin(quality, (0.0, 1.0)).all():
        return quality.astype(bool)
    raise InvalidInputError(
        f"{name} must be right or wrong (bool, or 0 and 1) on every row to be held against the full model; it holds "
        f"other numbers. Losses against the full model are counted, not averaged."
    )


def column_numbers(features: Any) -> tuple[int, ...]:
    """Column numbers as plain integers."""
    return tuple(int(column) for column in np.asarray(features, dtype=np.intp).reshape(-1))


def check_threshold(threshold: object) -> float:
    """A threshold of a gate; infinite ones send nobody or everybody."""
    try:
        number = float(threshold)  # type: ignore[arg-type]  # anything may arrive; what cannot convert is refused
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number):
        raise InvalidInputError(
            f"threshold must be a number, infinite ones included; got {threshold!r}. Rows with g > threshold go on."
        )
    return number
