"""Names of columns: matched with those of a fit, looked up, and listed in error messages."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from thrifty.arrays import Ints
from thrifty.errors import InvalidInputError, InvalidParameterError, listed


def refuse_unknown(what: str, names: Iterable[str], columns: Iterable[Any]) -> None:
    """Refuse names that are not columns of a table; ``what`` is the parameter or file that names them."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise InvalidParameterError(
            what, f"names {listed(unknown)}, not a column of the table, which has {listed(columns)}."
        )


def is_number(value: Any) -> bool:
    """True for a number, and for text that can be read as one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def places_of_fit(columns: Sequence[str], names: Sequence[str], what: str) -> Ints | None:
    """Places, among some columns, of those of a fit; None if the order is the same."""
    if list(columns) == list(names):
        return None
    place = {name: number for number, name in enumerate(columns)}
    if len(place) == len(columns) == len(names) and place.keys() == set(names):
        return np.array([place[name] for name in names], dtype=np.intp)
    differences = {
        "lacks": [name for name in names if name not in place],
        "has, unknown to the fit,": [name for name in columns if name not in set(names)],
        "has more than once": [name for name in place if list(columns).count(name) > 1],
    }
    wrong = "; it ".join(f"{verb} {listed(some)}" for verb, some in differences.items() if some)
    raise InvalidInputError(
        f"{what} must have the columns of the fit, {listed(names)}; it {wrong or f'has {len(columns)} columns'}. "
        f"Rename columns that changed their names, leave out those that the fit did not know, and add those that are "
        f"lacking."
    )


def find_column(column: Any, names: Sequence[str] | None, n_features: int, what: str) -> int:
    """Number of a column given by name, or by number where the fit knew no names; ``what`` is named in errors."""
    if names is not None and column in names:
        return list(names).index(column)
    if names is None and isinstance(column, int | np.integer) and 0 <= column < n_features:
        return int(column)
    hint = f"the fit knew no names, so columns are numbers from 0 to {n_features - 1}."
    if names is not None:
        near = get_close_matches(str(column), names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the columns are {listed(names)}."
    raise InvalidInputError(f"{what} names {column!r}, not a column of the fit; {hint}")
