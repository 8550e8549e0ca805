"""What the cells of a sweep share: the estimator, the rows and the prices, checked once for all of them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from thrifty.arrays import Labels
from thrifty.chain.columns import has_dates, kind_of_table
from thrifty.chain.sources import TableReader
from thrifty.dynamod.sweeping import identity
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator, columns_of
from thrifty.estimators.checks import check_seed, check_training_rows, known_levels, validated
from thrifty.full.model import is_estimator
from thrifty.prices.billing import PriceList

__all__ = ["Shared", "check_shared", "with_fixed_seeds"]


@dataclass(frozen=True)
class Shared:
    """All that the cells of a sweep have in common.

    Attributes
    ----------
    estimator : estimator
        Not fitted, and without its full model; everything random in it has a seed.
    full : object
        The full model as given, or the default one, with its seeds; None for an estimator that has none.
    X, y, sample_weight, X_val, y_val
        As given.
    rows : TrainingRows, or None for an estimator without a full model
        The training rows that count, with the columns that the full model reads and the folds it is judged in.
    table_val, numbers_val : table and ndarray or CSR
        The validation rows with those columns.
    price_list : PriceList
        What purchases cost.
    reads_numbers : bool
        Whether the full model, being the default one, is given numbers where tables hold text or dates.
    """

    estimator: Any
    full: Any
    X: Any
    y: Any
    sample_weight: Any
    X_val: Any
    y_val: Labels
    rows: Any
    table_val: Any
    numbers_val: Any
    price_list: PriceList
    reads_numbers: bool = False

    def identity(self, varied: set[str]) -> dict[str, Any]:
        """What every cell depends on, the full model aside; ``varied`` are the parameters that the grid sets."""
        kind = type(self.estimator)
        priced = {"feature_costs", "feature_groups", "full_cost", "full_features"}
        apart = {*varied, *priced, "full", "n_jobs"}
        given = {
            name: value for name, value in self.estimator.get_params(deep=False).items() if name not in apart
        }
        weight = () if self.sample_weight is None else np.asarray(self.sample_weight, dtype=np.float64)
        return {
            "the code of thrifty": identity.code(),
            "the libraries": identity.libraries(),
            "the training rows": identity.table(self.X, self.y),
            "the validation rows": identity.table(self.X_val, self.y_val),
            "sample_weight": identity.digest(weight),
            "the costs": identity.costs(self.price_list),
            "the estimator": f"{kind.__module__}.{kind.__qualname__}",
            "parameters outside the grid": {
                name: identity.describe(value, name) for name, value in given.items()
            },
        }


def check_shared(estimator: Any, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Shared:
    """Check everything that can be refused before the full model is asked anything."""
    _check_estimator(estimator)
    given = estimator.get_params(deep=False)
    probe = _again(estimator, **given)
    # Copies are made without the full model, which may be large, or nothing that can be copied.
    light = with_fixed_seeds(_again(estimator, **{**given, "full": None} if "full" in given else given))
    rows = check_training_rows(probe, X, y, sample_weight, probe.cv, check_seed(light.random_state))
    prices = probe._price_list(rows)
    numbers = validated(probe, X_val, reset=False)
    rows.task.encode("y_val", y_val, numbers.shape[0])
    full, is_default = None, "full" in given and given["full"] is None
    reads_numbers = is_default and (known_levels(probe) is not None or has_dates(X))
    is_table, everyone = kind_of_table(X_val) and not reads_numbers, np.arange(numbers.shape[0])
    reader = TableReader(numbers, X_val if is_table else numbers)
    if reads_numbers:
        rows = replace(rows, table=rows.X)
    if "full" in given:
        full = with_fixed_seeds(light._full() if is_default else given["full"])
    if full is not None and prices.full_columns is not None and columns_of(full, prices) is None:
        raise InvalidInputError(
            "a sweep in front of a chain takes no full_features: the chain reads its own columns. Fit the estimator by "
            "itself, or leave full_features out."
        )
    return Shared(
        estimator=light,
        full=full,
        X=X,
        y=y,
        sample_weight=sample_weight,
        X_val=X_val,
        y_val=np.asarray(y_val),
        rows=None if full is None else rows.with_columns(prices.full_columns),
        table_val=reader.table(everyone, prices.full_columns),
        numbers_val=reader.block(everyone, prices.read_by_full),
        price_list=prices,
        reads_numbers=bool(reads_numbers),
    )


def _again(estimator: Any, **given: Any) -> Any:
    """An unfitted estimator of the same kind that knows which columns of numbers are levels."""
    other = type(estimator)(**given)
    if getattr(estimator, "_encoded", ()):
        other._encoded = estimator._encoded
    return other


def with_fixed_seeds(model: Any) -> Any:
    """A copy of an estimator in which every ``random_state`` that is None is 0: a sweep must be repeatable."""
    if not is_estimator(model) or isinstance(model, FrozenEstimator):
        return model
    unset = [
        name
        for name, value in model.get_params(deep=True).items()
        if name.split("__")[-1] == "random_state" and value is None
    ]
    return clone(model).set_params(**dict.fromkeys(unset, 0))


def _check_estimator(estimator: Any) -> None:
    if not isinstance(estimator, ChainEstimator):
        shown = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
        raise InvalidInputError(
            f"a sweep fits copies of an estimator of thrifty, such as BudgetedClassifier(full); got {shown}."
        )
    if getattr(estimator, "max_loss", None) is not None:
        raise InvalidInputError(
            f"max_loss={estimator.max_loss!r} chooses one operating point, and a sweep compares all of them. Leave it "
            f"out, and prove what a point loses with sweep.estimator(point).certified(X, y, max_loss=...)."
        )
    if getattr(estimator, "budget", None) is not None and estimator.confidence is not None:
        raise InvalidInputError(
            f"confidence={estimator.confidence!r} keeps rows out of every fit to choose one operating point, and a "
            f"sweep compares all of them. Leave it out."
        )
