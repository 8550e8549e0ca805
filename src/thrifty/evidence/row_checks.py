"""Arrays with one entry per row, checked: what is wrong is named with its row, nothing turns into NaN unseen."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.arrays import Bools, Floats, Numbers
from thrifty.exceptions import InvalidInputError

__all__ = [
    "as_text",
    "check_cost",
    "check_right",
    "check_threshold",
    "column_numbers",
    "known_labels",
    "numbers_per_row",
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


def as_text(parts: list[Any]) -> str:
    """Text that is equal for equal parts."""
    return json.dumps(parts, sort_keys=True)


def numbers_per_row(name: str, values: ArrayLike, n_rows: int | None) -> Floats:
    """Finite float64 numbers, one per row, at least one row."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{name} must hold one number per row; got {type(values).__name__}."
        ) from None
    wanted = "(n_samples,)" if n_rows is None else f"({n_rows},)"
    if numbers.ndim != 1 or n_rows not in (None, len(numbers)) or len(numbers) == 0:
        raise InvalidInputError(
            f"{name} must hold one number per row, shape {wanted}; got shape {numbers.shape}."
        )
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInputError(f"{name} must hold finite numbers; got {float(numbers[row])!r} in row {row}.")
    return numbers


def check_cost(name: str, cost: ArrayLike, n_rows: int) -> Floats | float:
    """One number for all rows, or one per row."""
    if np.ndim(cost) == 0:
        return float(numbers_per_row(name, np.reshape(np.asarray(cost), 1), 1)[0])
    return numbers_per_row(name, cost, n_rows)


def check_right(name: str, right: ArrayLike, n_rows: int | None) -> Numbers:
    """One number per row; what was bool stays bool, in an eighth of the memory."""
    numbers = numbers_per_row(name, right, n_rows)
    return np.asarray(right) if np.asarray(right).dtype == bool else numbers


def yes_or_no(name: str, right: Numbers) -> Bools:
    """Right or wrong on every row, or a refusal."""
    if right.dtype == bool or np.isin(right, (0.0, 1.0)).all():
        return right.astype(bool)
    raise InvalidInputError(
        f"{name} must be right or wrong (bool, or 0 and 1) on every row to be held against f0; it holds other numbers. "
        f"Losses against f0 are counted, not averaged."
    )


def column_numbers(features: Any) -> tuple[int, ...]:
    """Column numbers as plain integers."""
    return tuple(int(column) for column in np.asarray(features, dtype=np.intp).reshape(-1))


def check_threshold(threshold: object) -> float:
    """A threshold, which may be infinite."""
    try:
        number = float(threshold)  # type: ignore[arg-type]  # anything may arrive; what cannot convert is refused
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number):
        raise InvalidInputError(f"threshold must be a number or None; got {threshold!r}.")
    return number


def known_labels(name: str, labels: ArrayLike, n_rows: int, classes: NDArray[Any]) -> NDArray[Any]:
    """Labels of rows, one each and all of them labels that the system was fitted on."""
    found = np.asarray(labels)
    if found.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} must hold one label per row, shape ({n_rows},); got shape {found.shape}."
        )
    strange = ~np.isin(found, classes)
    if strange.any():
        row = int(strange.argmax())
        raise InvalidInputError(
            f"{name} must hold the labels the system was fitted on, {classes.tolist()}; "
            f"got {found[row].item()!r} in row {row}."
        )
    return found
