"""Estimators on nested sets of columns that cost: what a cascade of models asks where columns have prices.

**An estimator on some of the columns is a model, whose price after another one is that of the columns not bought yet.**

The sets are those along the order in which a cascade in front of one full model would buy. They are nested, so that
prices after others are exact. Beside the estimators of the user, boosted trees that cost nothing stand on each set, as
the stages of such a cascade do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Ints
from thrifty.engine.full.crossfit import TrainingRows, held_out_rows
from thrifty.engine.full.model import is_estimator
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_price_list
from thrifty.engine.trees.binning import bin_columns
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.estimators import check_sizes
from thrifty.learners.cascade.plan import find_plans
from thrifty.learners.cascade.problem import CascadeProblem
from thrifty.learners.trees.full import TreesClassifier, TreesRegressor

OWN = "boosted trees"
"""Name of the model of each set that is not the user's."""

_PLACES = 1, 2, 3, 5, 8
"""Stages of such a cascade whose columns are kept (``benchmarks/columns_and_models.py``)."""

_NOTHING = 1e-9
"""Price of a model that costs nothing, as a share of all columns: prices are positive."""


@dataclass(frozen=True)
class ColumnPlan:
    """Estimators on sets of columns, by name.

    Attributes
    ----------
    models : dict
        The estimators, not fitted.
    prices : dict of str to float
        Price of each with all of its columns.
    after : dict of str to dict
        Price of each after another one.
    columns_of : dict of str to tuple of int
        Columns that each reads.
    free : tuple of int
        Columns that cost nothing.
    """

    models: dict[str, Any]
    prices: dict[str, float]
    after: dict[str, dict[str, float]]
    columns_of: dict[str, tuple[int, ...]]
    free: tuple[int, ...]


def plan_columns(
    prices: Prices,
    models: Mapping[str, Any],
    model_prices: Mapping[str, float],
    rows: TrainingRows,
    names: Sequence[str] | None,
) -> ColumnPlan:
    """Choose sets of columns, and put each estimator on each of them; fitted ones read all columns."""
    if len(prices.by_row) or prices.full or prices.full_features is not None:
        raise InvalidInputError(
            "prices of a cascade of models are those of columns, the same for every row: leave out full, full_features "
            "and by_row; model_prices has the estimators."
        )
    listed = check_price_list(prices, rows.X.shape[1], names)
    listed.refuse_resources("a cascade of models")
    if not listed.prices.any():
        raise InvalidInputError(
            "prices must have a column that costs; leave them out where all columns are free."
        )
    everything = np.arange(rows.X.shape[1])
    made: dict[str, Any] = {}
    cost: dict[str, float] = {}
    columns_of: dict[str, tuple[int, ...]] = {}
    own: Any = TreesClassifier() if len(rows.task.classes) else TreesRegressor()
    if OWN in models:
        raise InvalidInputError(
            f"{OWN!r} is the name of a model that stands beside yours. Rename that estimator."
        )
    models = {OWN: own, **models}
    model_prices = {OWN: _NOTHING * listed.cost_of(everything), **model_prices}
    for columns in (*_nested_sets(listed, rows), everything):
        for name, model in models.items():
            is_fitted = not is_estimator(model) or isinstance(model, FrozenEstimator)
            if is_fitted and columns is not everything:
                continue
            number = f"{len(columns)} column{'' if len(columns) == 1 else 's'}"
            label = name if columns is everything else f"{name} on {number}"
            made[label], columns_of[label] = model, tuple(columns.tolist())
            cost[label] = model_prices[name] + listed.cost_of(columns)
    after: dict[str, dict[str, float]] = {}
    for label, read in columns_of.items():
        for before, held in columns_of.items():
            shared = np.intersect1d(read, held)
            saved = listed.cost_of(shared) if len(shared) else 0.0
            if before != label and saved > 0.0:
                after.setdefault(label, {})[before] = cost[label] - saved
    free = np.flatnonzero(listed.prices[listed.group_of] == 0.0)
    return ColumnPlan(made, cost, after, columns_of, tuple(free.tolist()))


def _nested_sets(listed: PriceList, rows: TrainingRows) -> list[Ints]:
    """Sets of columns of rising price, without that of all columns: those that are free, if any, and a first group."""
    problem = CascadeProblem(
        task=rows.task,
        table=bin_columns(rows.X, rows.weight),
        y=rows.y,
        weight=rows.weight,
        folds=held_out_rows(rows),
        price_list=listed,
        capacities=check_sizes(None, len(rows.y), is_slow=not rows.task.has_uncertainty),
    )
    along = find_plans(problem).plans[0].sets
    free = np.flatnonzero(listed.prices[listed.group_of] == 0.0)
    wanted = [free, *(along[min(place, len(along)) - 1] for place in _PLACES)]
    sets = {len(columns): np.sort(columns).astype(np.intp) for columns in wanted}
    return [sets[size] for size in sorted(sets) if 0 < size < rows.X.shape[1]]
