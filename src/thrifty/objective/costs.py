"""What a row pays: the sum over the *distinct* purchases made on its route.

A feature belongs to exactly one purchase (its *group*); a group has one price and delivers all its
columns. Within one route a purchase is paid once, whoever needs it first: the gate, the cheap model
or the full model. A row that reaches the full model pays for everything, plus ``full_cost`` for the call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints, check_unmasked
from thrifty.exceptions import InvalidInputError

__all__ = ["PriceList", "check_amount", "check_price_list"]


FeatureCosts = ArrayLike | Mapping[str, float] | None
FeatureGroups = Sequence[object] | Mapping[str, object] | None

LEAST_PRICE, MOST_PRICE = 1e-100, 1e100
"""Bounds of a price that is not zero: products and ratios of two prices within them are numbers, neither 0 nor inf."""


@dataclass(frozen=True)
class PriceList:
    """Prices of purchases, the purchase each column belongs to, and the price of one call of the full model.

    Attributes
    ----------
    prices : ndarray of shape (n_groups,)
        Price of each purchase.
    group_of : ndarray of shape (n_features,)
        The purchase that delivers each column.
    full_cost : float
        Extra price of one call of the full model, on top of the features it reads.
    full_columns : ndarray of int, optional
        The columns that the full model reads; None is all of them.
    """

    prices: Floats
    group_of: Ints
    full_cost: float = 0.0
    full_columns: Ints | None = None

    @property
    def n_features(self) -> int:
        """Number of columns of the table."""
        return len(self.group_of)

    @property
    def read_by_full(self) -> Ints:
        """The columns that the full model reads."""
        return np.arange(self.n_features) if self.full_columns is None else self.full_columns

    @property
    def cost_of_full(self) -> float:
        """What a row pays that is sent straight to the full model: what it reads, and the call."""
        bought = (
            self.prices if self.full_columns is None else self.prices[self.bought_groups(self.full_columns)]
        )
        return float(bought.sum()) + self.full_cost

    @property
    def cost_of_everything(self) -> float:
        """What a row pays that makes every purchase and reaches the full model."""
        return float(self.prices.sum()) + self.full_cost

    def is_same(self, other: "PriceList") -> bool:
        """Whether another list has the same purchases at the same prices."""
        return (
            np.array_equal(self.group_of, other.group_of)
            and np.array_equal(self.prices, other.prices)
            and self.full_cost == other.full_cost
            and np.array_equal(self.read_by_full, other.read_by_full)
        )

    def bought_groups(self, columns: ArrayLike) -> Bools:
        """Mask of the purchases that deliver ``columns`` (indices, or a mask over the columns)."""
        bought = np.zeros(len(self.prices), dtype=bool)
        bought[self.group_of[np.asarray(columns)]] = True
        return bought

    def cost_of(self, columns: ArrayLike) -> float:
        """Price of the distinct purchases that deliver ``columns``."""
        return float(self.prices[self.bought_groups(columns)].sum())

    def cost_of_route(self, columns: Ints) -> float:
        """What a row pays that holds ``columns`` and then reaches the full model."""
        if self.full_columns is None:
            return self.cost_of_everything
        return self.cost_of(np.union1d(columns, self.full_columns)) + self.full_cost

    def cost_of_rows(self, used: Bools, reaches_full: Bools) -> Floats:
        """What each row pays, given the columns it used and whether it called the full model.

        Parameters
        ----------
        used : ndarray of shape (n_samples, n_features), bool
            Columns that the row bought on its route, those that the full model reads included if it got there.
        reaches_full : ndarray of shape (n_samples,), bool
            Rows answered by the full model, which pay for the call.
        """
        bought = np.zeros((len(used), len(self.prices)), dtype=bool)
        for column, group in enumerate(self.group_of):
            bought[:, group] |= used[:, column]
        everything = reaches_full & bought.all(axis=1)
        called = np.where(reaches_full, self.full_cost, 0.0)
        # A plain sum for rows that buy everything, so that all places that name their cost agree to the last digit.
        return np.where(everything, self.cost_of_everything, bought @ self.prices + called)


def check_amount(name: str, value: object, *, rule: str = "a finite number >= 0") -> float:
    """Check a single price, budget or weight and return it as a float; a refusal names it."""
    try:
        # Text that reads as a number is a slip that would go unnoticed until the text is another one.
        amount = np.nan if isinstance(value, str | bytes | bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be {rule}; got {value!r}.") from None
    if not np.isfinite(amount) or amount < 0:
        raise InvalidInputError(f"{name} must be {rule}; got {value!r}.")
    return amount


def check_price_list(
    feature_costs: FeatureCosts,
    feature_groups: FeatureGroups,
    full_cost: float,
    n_features: int,
    feature_names: Sequence[str] | None = None,
    full_columns: Ints | None = None,
) -> PriceList:
    """Turn what a user writes about prices into a ``PriceList``.

    Parameters
    ----------
    feature_costs : array-like of shape (n_features,), number, dict by column name, or None
        Price per column; a number is the price of every column, None means 1 each. With groups, the price of
        a group is written at each of its columns and must be the same at all of them.
    feature_groups : array-like of shape (n_features,), dict by column name, or None
        A label per column; columns with the same label are one purchase. In a dict, columns that
        are not named are purchases of their own.
    full_cost : float
        Extra price of one call of the full model.
    n_features : int
        Number of columns.
    feature_names : sequence of str, optional
        Names of the columns, needed to read a dict.
    full_columns : ndarray of int, optional
        Columns that the full model reads; None is all of them.
    """
    names = [str(name) for name in feature_names] if feature_names is not None else None
    costs = _costs_per_column(feature_costs, n_features, names)
    group_of = _group_per_column(feature_groups, n_features, names)
    n_groups = int(group_of.max()) + 1 if n_features else 0
    prices = np.zeros(n_groups)
    prices[group_of] = costs
    differs = np.flatnonzero(prices[group_of] != costs)
    if differs.size:
        column = int(differs[0])
        raise InvalidInputError(
            f"feature_costs must be the same for all columns of one group, which are one purchase; "
            f"{_call(column, names)} costs {costs[column]:g} but another column of its group costs "
            f"{prices[group_of[column]]:g}."
        )
    amount = check_amount("full_cost", full_cost)
    if not _is_price(amount):
        raise InvalidInputError(f"full_cost must be {_PRICE}; got {amount:g}. Write prices in another unit.")
    return PriceList(prices, group_of, amount, _partial(full_columns, n_features))


_PRICE = f"0, or lie between {LEAST_PRICE:g} and {MOST_PRICE:g}"


def _is_price(amount: Any) -> Any:
    """Whether each amount is a price that can be reckoned with."""
    return (amount == 0) | ((amount >= LEAST_PRICE) & (amount <= MOST_PRICE))


def _partial(columns: Ints | None, n_features: int) -> Ints | None:
    """Columns that are not all of them; None if they are."""
    return None if columns is None or np.array_equal(columns, np.arange(n_features)) else columns


def _costs_per_column(feature_costs: FeatureCosts, n_features: int, names: list[str] | None) -> Floats:
    if feature_costs is None:
        return np.ones(n_features)
    check_unmasked("feature_costs", feature_costs)
    feature_costs = _by_index("feature_costs", feature_costs, n_features, names)
    if isinstance(feature_costs, Mapping):
        named = _by_name("feature_costs", feature_costs, n_features, names)
        missing = [names[i] for i in range(n_features) if i not in named] if names else []
        if missing:
            raise InvalidInputError(
                f"feature_costs names no price for {_some(missing)}. Give every column a price; 0 is allowed."
            )
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
            f"feature_costs must be finite and >= 0; {_call(column, names)} has {costs[column]:g}. "
            f"Use 0 for a feature that is already at hand."
        )
    extreme = np.flatnonzero(~_is_price(costs))
    if extreme.size:
        column = int(extreme[0])
        raise InvalidInputError(
            f"feature_costs must be {_PRICE}; {_call(column, names)} has {costs[column]:g}. Write prices in another "
            f"unit, or use 0 for a feature that is already at hand."
        )
    return costs


def _group_per_column(feature_groups: FeatureGroups, n_features: int, names: list[str] | None) -> Ints:
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
        )
    return {position[str(name)]: value for name, value in given.items()}


def _call(column: int, names: list[str] | None) -> str:
    return f"column {names[column]!r}" if names else f"column {column}"


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
