"""Estimators on nested sets of columns that cost: what a cascade of models asks where columns have prices.

**An estimator on some of the columns is a model, whose price after another one is that of the columns not bought yet.**

The sets are prefixes of one order of the groups of columns: the next group explains most of what is open of the target
for its price, as trees find out of bag. Sets are nested, so that prices after others are exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Floats, Ints
from thrifty.engine.full.crossfit import TrainingRows
from thrifty.engine.full.model import is_estimator
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_price_list
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.quality import fit_out_of_bag, means_of_known

_SHARES = 0.5, 0.8, 0.95, 0.995
"""Shares of what all columns explain at which a set is kept (no command chose them)."""
_ROWS, _TREES, _LEAF = 2_000, 16, 4
"""Rows and trees of the search, and rows of a leaf."""


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
    seed: int,
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
    for columns in (*_nested_sets(listed, rows, seed), everything):
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


def _nested_sets(listed: PriceList, rows: TrainingRows, seed: int) -> list[Ints]:
    """Sets of columns of rising price, without that of all columns: those that are free, if any, and a first group."""
    some = np.arange(0, len(rows.y), -(-len(rows.y) // _ROWS))
    X = np.asarray(rows.X, dtype=np.float64)[some]
    Z = np.where(np.isnan(X), means_of_known(X), X)
    target = np.asarray(rows.y, dtype=np.float64)[some]
    if len(rows.task.classes):
        target = (target[:, None] == np.unique(target)).astype(np.float64)
    target = target.reshape(len(some), -1) - target.reshape(len(some), -1).mean(axis=0)
    total = float((target * target).sum())

    def explained(columns: Ints) -> float:
        wanted = target if target.shape[1] > 1 else target[:, 0]
        answers = fit_out_of_bag(Z[:, columns], wanted, _TREES, _LEAF, seed, max_features=1.0)[1]
        answers = answers.reshape(target.shape)
        return 1.0 - float(((target - answers) ** 2).sum()) / total

    held: Ints = np.flatnonzero(listed.prices[listed.group_of] == 0.0)
    path, values = [held], [explained(held) if len(held) else 0.0]
    gains = {group: np.inf for group in range(len(listed.prices)) if listed.prices[group] > 0.0}
    most = explained(np.arange(X.shape[1]))
    while gains and values[-1] < _SHARES[-1] * most:
        fresh: set[int] = set()
        # Gains shrink as columns are added: only the largest one is computed again, until it stays the largest.
        while (best := max(gains, key=lambda group: (gains[group], -group))) not in fresh:
            columns = _with_group(listed, held, best)
            further = listed.cost_of(columns) - (listed.cost_of(held) if len(held) else 0.0)
            gains[best] = round((explained(columns) - values[-1]) / further, 9)
            fresh.add(best)
        del gains[best]
        held = _with_group(listed, held, best)
        path.append(held)
        values.append(max(explained(held), values[-1]))
    reached: Floats = np.array(values)
    kept = {0, min(1, len(path) - 1)} | {
        int(np.argmax(reached >= share * most)) for share in _SHARES if reached[-1] >= share * most
    }
    return [path[place] for place in sorted(kept) if 0 < len(path[place]) < X.shape[1]]


def _with_group(listed: PriceList, held: Ints, group: int) -> Ints:
    """Columns held, and those of a group."""
    columns: Ints = np.union1d(held, np.flatnonzero(listed.group_of == group)).astype(np.intp)
    return columns
