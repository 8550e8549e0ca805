"""Rows of which not everything was bought, as users give them, and the probability of what they bought."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError

_N_TREES, _N_FOLDS = 30, 4

LEAST_PROPENSITY = 0.002
"""Estimated probabilities are at least this: one row stands for at most 500."""


@dataclass(frozen=True, eq=False)
class Bought:
    """What rows had bought, before they were completed.

    Attributes
    ----------
    cells : ndarray of shape (n_rows, n_features), bool
        Whether a row has the purchase that a column belongs to.
    propensity : ndarray of shape (n_rows, n_features), optional
        Probability with which a row bought it, given what it had bought before; None is estimated.
    order : ndarray of shape (n_rows, n_features), optional
        Number of the purchase of the row; None where purchases do not depend on each other.
    """

    cells: Bools
    propensity: Floats | None = None
    order: Floats | None = None

    def chance_of(self, columns: Ints, group_of: Ints) -> Floats:
        """Probability with which each row bought all of some columns, of the rows that did.

        That of every purchase up to the last of them: a row that buys in an order has some only after others.
        """
        assert self.propensity is not None  # asked for where it is given
        first = np.unique(group_of, return_index=True)[1]
        has = np.isin(group_of[first], group_of[columns])[None, :] & self.cells[:, first]
        if self.order is not None and len(columns):
            last = np.max(np.where(self.cells, self.order, 0.0)[:, columns], axis=1)
            has |= self.cells[:, first] & (self.order[:, first] < last[:, None])
        chance: Floats = np.where(has, self.propensity[:, first], 1.0).prod(axis=1)
        return chance


# -- what users write ------------------------------------------------------------------------------


def read_bought(bought: Any, propensity: Any, table: Table, n_given: int, prices: PriceList) -> Bought | None:
    """What rows have bought, from a mask or ``"known"``; None where that is everything.

    Columns of price zero are always at hand. A purchase of several columns is bought if one of them is. Numbers above 1
    say in which order a row bought: ``propensity`` is then multiplied along that order.
    """
    order, positions = None, table.numbers_of(np.arange(len(table)))
    if isinstance(bought, str):
        if bought != "known":
            raise InvalidInputError(
                f"bought must be a mask of rows x columns, or 'known': every blank cell was not bought; got {bought!r}."
            )
        cells = ~np.isnan(table.numbers)
    else:
        order = _of_columns("bought", bought, n_given, table, prices)[positions]
        if np.isnan(order).any() or np.any(order < 0):
            raise InvalidInputError(
                "bought must hold true and false, or the number of each purchase of a row, from 1, with 0 for none."
            )
        cells = order > 0
    n_groups = len(prices.prices)
    of_groups = np.zeros((len(cells), n_groups), dtype=bool)
    for column, group in enumerate(prices.group_of):
        of_groups[:, group] |= cells[:, column]
    of_groups[:, prices.prices == 0.0] = True
    chances = None
    if propensity is not None:
        chances = _of_columns("propensity", propensity, n_given, table, prices)[positions]
        chances[:, prices.prices[prices.group_of] == 0.0] = 1.0
        chances[~cells] = 1.0
    if of_groups.all():
        return None
    is_in_order = order is not None and bool(np.any(order > 1))
    result = Bought(of_groups[:, prices.group_of], chances, order if is_in_order else None)
    if chances is not None and not np.all((chances[result.cells] > 0.0) & (chances[result.cells] <= 1.0)):
        raise InvalidInputError(
            "propensity must lie in (0, 1] where a row has bought: it is the probability with which it bought the "
            "column, given what it had bought before."
        )
    return result


def _of_columns(name: str, values: Any, n_rows: int, table: Table, prices: PriceList) -> Any:
    """A mask or probabilities of rows x columns, from columns by name, or purchases in their order."""
    columns = getattr(values, "columns", None)
    if columns is not None and table.kind is not None:
        names = [*columns]
        if {*names} == {*table.columns}:
            values = values[table.columns]
    array = np.asarray(values, dtype=np.float64)
    n_features, n_groups = len(prices.group_of), len(prices.prices)
    if array.ndim != 2 or len(array) != n_rows or array.shape[1] not in (n_features, n_groups):
        raise InvalidInputError(
            f"{name} must have a line for each of the {n_rows:,} rows, and one number for each of the {n_features} "
            f"columns or {n_groups} purchases; got shape {array.shape}."
        )
    return array if array.shape[1] == n_features else array[:, prices.group_of]


# -- probabilities ---------------------------------------------------------------------------------


def chance_of_all(
    X: Floats, y: Floats, task: Task, bought: Bought, columns: Ints, prices: PriceList
) -> tuple[Bools, Floats]:
    """Whether each row bought all of some columns, and the probability of that of those which did.

    Estimated out of fold from the columns that every row has, and the target, where it is not given.
    """
    has_all: Bools = np.logical_and.reduce(bought.cells[:, columns], axis=1)
    if bought.propensity is not None:
        return has_all, bought.chance_of(columns, prices.group_of)
    known = known_columns(X, y, task, bought)
    return has_all, np.maximum(estimated_chance(known, has_all, None, len(task.classes)), LEAST_PROPENSITY)


def known_columns(X: Floats, y: Floats, task: Task, bought: Bought) -> Floats:
    """Columns that every row has, and the target as a group."""
    known = np.flatnonzero(bought.cells.all(axis=0))
    return np.column_stack([X[:, known], coded_targets(task, y)])


def estimated_chance(known: Floats, has_all: Bools, folds: Ints | None, n_levels: int) -> Floats:
    """Probability, out of fold, of having bought; the last column has so many levels, or numbers where it has none.

    Rows that no fold holds out have NaN.
    """
    folds = np.arange(len(known)) % _N_FOLDS if folds is None else folds
    chance = np.full(len(known), np.nan)
    of_class = [known.shape[1] - 1] if 0 < n_levels <= 255 else None
    for fold in np.unique(folds[folds >= 0]):
        learn, held = folds != fold, folds == fold
        if len(np.unique(has_all[learn])) < 2:
            chance[held] = has_all[learn].mean()
            continue
        model = HistGradientBoostingClassifier(max_iter=_N_TREES, max_depth=3, categorical_features=of_class)
        chance[held] = model.fit(known[learn], has_all[learn]).predict_proba(known[held])[:, 1]
    return chance


def coded_targets(task: Task, y: Floats) -> Ints:
    """Targets as small whole numbers: classes or grades, or one of at most 64 groups of like numbers."""
    if len(task.classes):
        return task.strata(y)
    query = task.query_of(y)
    values = y if query is None else y % 32
    distinct = np.unique(values)
    if len(distinct) > 64:
        distinct = np.unique(np.quantile(values, np.arange(1, 64) / 64))
    codes: Ints = np.searchsorted(distinct, values)
    return codes
