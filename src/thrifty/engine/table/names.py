"""Names of columns: matched with those of a fit, found, and listed in error messages."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.errors import InvalidInputError, InvalidParameterError


def listed(names: Iterable[Any], max_names: int = 5) -> str:
    """First few names, joined for a message."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:max_names])
    return shown if len(names) <= max_names else f"{shown} and {len(names) - max_names} more"


def refuse_unknown(what: str, names: Iterable[str], columns: Iterable[Any]) -> None:
    """Refuse names that are not columns of a table; ``what`` is the parameter or file that names them."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise InvalidParameterError(
            what, f"names {listed(unknown)}, not a column of the table, which has {listed(columns)}."
        )


def is_number(value: Any) -> bool:
    """Whether a value is a number, or text that can be read as one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def places_of_fit(given: Sequence[str], names: Sequence[str], what: str) -> Ints | None:
    """Places of the columns of a fit among those given; None if the order is the same."""
    if list(given) == list(names):
        return None
    place = {name: number for number, name in enumerate(given)}
    if len(place) == len(given) == len(names) and place.keys() == set(names):
        return np.array([place[name] for name in names], dtype=np.intp)
    found = {
        "lacks": [name for name in names if name not in place],
        "has, unknown to the fit,": [name for name in given if name not in set(names)],
        "has more than once": [name for name in place if list(given).count(name) > 1],
    }
    wrong = "; it ".join(f"{what_about} {listed(some)}" for what_about, some in found.items() if some)
    raise InvalidInputError(
        f"{what} must have the columns of the fit, {listed(names)}; it {wrong or f'has {len(given)} columns'}. Rename "
        f"columns that changed their names, leave out those that the fit did not know, and add those that are lacking."
    )


def find_column(column: Any, names: Sequence[str] | None, n_features: int, what: str) -> int:
    """Number of a column given by name, or by number where the fit knew no names; ``what`` is named in errors."""
    if names is not None and column in names:
        return list(names).index(column)
    if names is None and isinstance(column, int | np.integer) and 0 <= column < n_features:
        return int(column)
    near = get_close_matches(str(column), names, n=1) if names is not None else []
    known = (
        f"the columns are {listed(names)}"
        if names is not None
        else (f"the fit knew no names, so columns are numbers from 0 to {n_features - 1}")
    )
    hint = f" did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{what} names {column!r}, not a column of the fit;{hint or ' ' + known + '.'}")
