"""What a grower is told, checked: prices, groups, what is bought already, and the order of choice between equals."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.arrays import Bools, Floats
from thrifty.errors import InvalidInputError
from thrifty.trees.binning import BinnedTable

__all__ = ["check_amount", "check_bought", "check_groups", "check_prices", "check_whole", "choice_order"]


def choice_order(table: BinnedTable, group_of: NDArray[np.int64], prices: Floats) -> NDArray[np.int64]:
    """Columns in the order of preference between exactly equal gains: by contents, the place only as last resort.

    Columns of equal contents are told apart by what else their group delivers and costs, so that a permutation
    of the columns changes nothing but their names.
    """
    keys = table.column_keys
    group_keys = np.zeros(len(prices), np.uint64)
    np.add.at(group_keys, group_of, keys)
    return np.lexsort((np.arange(len(keys)), prices[group_of], group_keys[group_of], keys))


def check_whole(name: str, value: Any, low: int, high: int | None, way_out: str) -> None:
    """Refuse what is not a whole number in range."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):
        rule = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidInputError(f"{name} must be a whole number {rule}; got {value!r}. {way_out}")


def check_amount(name: str, value: Any, way_out: str) -> None:
    """Refuse what is not a finite number of at least zero."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not (np.isfinite(value) and value >= 0):
        raise InvalidInputError(f"{name} must be a finite number, zero or more; got {value!r}. {way_out}")


def check_groups(group_of: ArrayLike | None, table: BinnedTable) -> NDArray[np.int64]:
    """Group of every column as numbers from zero."""
    if group_of is None:
        return np.arange(table.n_features)
    groups = np.asarray(group_of)
    if groups.shape != (table.n_features,) or groups.dtype.kind not in "iu" or groups.min() < 0:
        raise InvalidInputError(
            f"group_of must hold one group number, from zero, for each of {table.n_features} columns; "
            f"got {group_of!r}."
        )
    return groups.astype(np.int64)


def check_prices(prices: ArrayLike | None, group_of: NDArray[np.int64]) -> Floats:
    """Price of every group."""
    n_groups = int(group_of.max()) + 1
    if prices is None:
        return np.ones(n_groups)
    values = np.asarray(prices, dtype=np.float64)
    if values.ndim != 1 or len(values) < n_groups:
        raise InvalidInputError(
            f"prices must hold one price for each of {n_groups} groups; got shape {values.shape}. "
            "With group_of=None every column is a group of its own."
        )
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        wrong = int(np.flatnonzero(~(np.isfinite(values) & (values >= 0)))[0])
        raise InvalidInputError(
            f"prices must be finite and not negative; group {wrong} has {values[wrong]!r}. Use 0 for a free group."
        )
    return values


def check_bought(bought: ArrayLike, n_groups: int) -> Bools:
    """Mask over groups from a mask or from group numbers."""
    seed = np.asarray(bought)
    if seed.dtype == bool and seed.shape == (n_groups,):
        return seed.copy()
    if seed.size and (seed.dtype.kind not in "iu" or seed.ndim != 1):
        raise InvalidInputError(
            f"bought must be a mask over {n_groups} groups or a list of group numbers; got {bought!r}."
        )
    numbers: list[int] = seed.astype(np.intp).tolist()
    unknown = [group for group in numbers if not 0 <= group < n_groups]
    if unknown:
        raise InvalidInputError(
            f"bought names unknown groups {unknown}; groups are numbered 0 to {n_groups - 1}. "
            "Check group_of, or drop them."
        )
    mask = np.zeros(n_groups, bool)
    mask[numbers] = True
    return mask
