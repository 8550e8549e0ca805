"""Columns by their names: whoever knows the names of its columns compares them with those of what it is given.

A table with the columns of a fit in another order is put into that order, where names tell which column is which. Any
other difference is refused: a column that is lacking cannot be guessed, and one too many may be the one that is lacking
under another name. Where only one side has names, there is a warning, as everywhere in scikit-learn.
"""

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names

from thrifty.arrays import Ints
from thrifty.chain.sources import as_numbers, kind_of_table
from thrifty.errors import InvalidInputError

__all__ = ["number_of", "places_of_fit", "refuse_series", "table_of_fit"]

_NAMES_SHOWN = 5


def refuse_series(X: Any) -> None:
    """Refuse a Series in the place of a table: a row, or a column, that was taken out of its data frame."""
    kind = kind_of_table(X) if len(getattr(X, "shape", ())) == 1 else None
    if kind is not None:
        row = "X.iloc[[0]]" if kind == "pandas" else "X[[0]]"
        raise InvalidInputError(
            f"Expected 2D array, got 1D array instead: X is a {kind} Series of {len(X)} values. Give a data frame, "
            f"also for a single row: `{row}` is the first row of X as one, and `X[['name']]` a single column."
        )


def table_of_fit(X: Any, names: Sequence[str] | None) -> Any:
    """A table with its columns in the order of a fit.

    Parameters
    ----------
    X : array, CSR, data frame or list of rows
        The table, which comes back as it is wherever nothing is to be done.
    names : sequence of str or None
        Names of the columns of the fit; None where it saw none.
    """
    refuse_series(X)
    try:
        given = _get_feature_names(X)
    except (TypeError, ValueError) as error:  # names of several types, or the same one twice
        raise InvalidInputError(f"the columns of X must have names that tell them apart: {error}") from error
    if given is None or names is None:
        if names is not None:
            _warn("X does not have valid feature names, but the system was fitted with feature names")
        elif given is not None:
            _warn("X has feature names, but the system was fitted without feature names")
        return X
    places = places_of_fit(given.tolist(), names, "X")
    if places is None:
        return X
    return _safe_indexing(X if kind_of_table(X) else as_numbers(X), places, axis=1)


def places_of_fit(given: Sequence[str], names: Sequence[str], what: str) -> Ints | None:
    """Where the columns of a fit stand among those given; None if each stands in its place."""
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
    told = "; it ".join(f"{what_about} {_listed(some)}" for what_about, some in found.items() if some)
    raise InvalidInputError(
        f"{what} must have the columns of the fit, {_listed(names)}; it {told or f'has {len(given)} columns'}. Rename "
        f"columns that changed their names, leave out those that the fit did not know, and add those that are lacking."
    )


def number_of(column: Any, names: Sequence[str] | None, n_features: int, what: str) -> int:
    """Number of a column that somebody names, or numbers where the fit knew no names; ``what`` is who, for refusals."""
    if names is not None and column in names:
        return list(names).index(column)
    if names is None and isinstance(column, int | np.integer) and 0 <= column < n_features:
        return int(column)
    near = get_close_matches(str(column), names, n=1) if names is not None else []
    known = (
        f"the columns are {_listed(names)}"
        if names is not None
        else (f"the fit knew no names, so columns are numbers from 0 to {n_features - 1}")
    )
    hint = f" did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{what} names {column!r}, not a column of the fit;{hint or ' ' + known + '.'}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _warn(told: str) -> None:
    warnings.warn(told, UserWarning, stacklevel=4)
