"""What a user writes about columns, by name, by number or one entry each, as an entry for each column."""

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints, check_unmasked
from thrifty.errors import InvalidInputError
from thrifty.prices.costs import check_amount
from thrifty.prices.row_prices import LEAST_PRICE, MOST_PRICE, is_price

__all__ = ["A_PRICE", "column_number", "costs_per_column", "did_you_mean", "group_per_column", "name_of"]

FeatureCosts = Any  # ArrayLike | Mapping[str, float] | None, or a table of prices of some other library
FeatureGroups = Sequence[object] | Mapping[str, object] | None

A_PRICE = f"0, or lie between {LEAST_PRICE:g} and {MOST_PRICE:g}"


def costs_per_column(
    feature_costs: FeatureCosts,
    default: float | None,
    n_features: int,
    names: list[str] | None,
    known: Mapping[int, float],
) -> Floats:
    """A price for each column; ``known`` has those of columns that are not named."""
    if feature_costs is None or (known and isinstance(feature_costs, int | float)):
        every = default if feature_costs is None else feature_costs
        costs = np.full(n_features, 1.0 if every is None else check_amount("default", every))
        costs[list(known)] = list(known.values())
        return costs
    check_unmasked("feature_costs", feature_costs)
    feature_costs = _by_index("feature_costs", feature_costs, n_features, names)
    if isinstance(feature_costs, Mapping):
        named = _by_name("feature_costs", feature_costs, n_features, names)
        named = {**known, **named}
        missing = [i for i in range(n_features) if i not in named]
        if missing and default is None:
            raise InvalidInputError(
                f"feature_costs names no price for {_some([names[i] for i in missing] if names else [])}. Give every "
                f"column a price; 0 is allowed. Or give one to all that are not named: Prices(costs, default=1.0)."
            )
        named |= dict.fromkeys(missing, check_amount("default", default)) if missing else {}
        raw: object = [named[i] for i in range(n_features)]
    else:
        raw = feature_costs
    try:
        costs = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"feature_costs must be numbers; got {feature_costs!r}.") from None
    if costs.ndim == 0:
        costs = np.full(n_features, costs)
    if costs.shape != (n_features,):
        raise InvalidInputError(
            f"feature_costs must have one price per column, {n_features} in all; got shape {costs.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(costs) & (costs >= 0)))
    if bad.size:
        column = int(bad[0])
        raise InvalidInputError(
            f"feature_costs must be finite and >= 0; {name_of(column, names)} has {costs[column]:g}. "
            f"Use 0 for a feature that is already at hand."
        )
    extreme = np.flatnonzero(~is_price(costs))
    if extreme.size:
        column = int(extreme[0])
        raise InvalidInputError(
            f"feature_costs must be {A_PRICE}; {name_of(column, names)} has {costs[column]:g}. Write prices in another "
            f"unit, or use 0 for a feature that is already at hand."
        )
    return costs


def group_per_column(feature_groups: FeatureGroups, n_features: int, names: list[str] | None) -> Ints:
    """The number of the purchase that delivers each column."""
    if feature_groups is None:
        return np.arange(n_features)
    feature_groups = _by_index("feature_groups", feature_groups, n_features, names)
    if isinstance(feature_groups, Mapping):
        named = _by_name("feature_groups", feature_groups, n_features, names)
        # A column without a label is alone: its key is a type no user label can equal.
        labels: list[object] = [("user", named[i]) if i in named else ("alone", i) for i in range(n_features)]
    else:
        try:
            labels = [("user", label) for label in feature_groups]
        except TypeError:
            raise InvalidInputError(
                f"feature_groups must be one label per column or a dict by column name; got {feature_groups!r}."
            ) from None
    if len(labels) != n_features:
        raise InvalidInputError(
            f"feature_groups must have one label per column, {n_features} in all; got {len(labels)}."
        )
    number: dict[object, int] = {}
    try:
        return np.array([number.setdefault(label, len(number)) for label in labels], dtype=np.intp)
    except TypeError:
        raise InvalidInputError(
            "feature_groups must hold hashable labels such as strings or numbers."
        ) from None


def _by_index(argument: str, given: Any, n_features: int, names: list[str] | None) -> Any:
    """The entries of a pandas Series, one per column and in their order, found by its index; anything else as it is."""
    if not (hasattr(given, "index") and hasattr(given, "to_dict") and hasattr(given, "to_numpy")):
        return given
    wanted = list(range(n_features)) if names is None else names
    found = [label if names is None else str(label) for label in given.index]
    known = set(wanted)
    unknown = [str(label) for label in found if label not in known]
    missing = [str(label) for label in wanted if label not in set(found)]
    if unknown or missing or len(set(found)) < len(found):
        problem = (
            f"names {_some(unknown)}"
            if unknown
            else f"lacks {_some(missing)}"
            if missing
            else "names one twice"
        )
        raise InvalidInputError(
            f"{argument} is a Series, which is read by its index, and {problem}; the columns are "
            f"{_some([str(label) for label in wanted])}. Index it by column, or give its values with .to_numpy()."
        )
    values = dict(zip(found, given.tolist(), strict=True))
    return [values[label] for label in wanted]


def _by_name(
    argument: str, given: Mapping[str, object], n_features: int, names: list[str] | None
) -> dict[int, object]:
    if names is None:
        raise InvalidInputError(
            f"{argument} is a dict by column name, but X has no column names. "
            f"Pass a data frame, or an array with one entry per column ({n_features})."
        )
    position = {name: i for i, name in enumerate(names)}
    unknown = [str(name) for name in given if str(name) not in position]
    if unknown:
        raise InvalidInputError(
            f"{argument} names {_some(unknown)}, not a column of X, which has {_some(names)}."
            f"{did_you_mean(unknown[0], names)}"
        )
    return {position[str(name)]: value for name, value in given.items()}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names what may have been meant; empty where nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def column_number(column: Any, names: list[str] | None, n_features: int, what: str) -> int:
    """The number of a column that ``what`` names, or a refusal."""
    verb = "name" if what.endswith("s") else "names"
    if isinstance(column, str):
        if names is None or column not in names:
            raise InvalidInputError(
                f"{what} {verb} {column!r}, not a column of X.{did_you_mean(column, names or ())}"
            )
        return names.index(column)
    try:
        number = operator.index(column)
    except TypeError:
        raise InvalidInputError(f"{what} must name columns by name or number; got {column!r}.") from None
    if not 0 <= number < n_features:
        raise InvalidInputError(f"{what} {verb} column {number}; X has columns 0 to {n_features - 1}.")
    return number


def name_of(column: int, names: list[str] | None) -> str:
    """What a column is called in a refusal."""
    return f"column {names[column]!r}" if names else f"column {column}"


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
