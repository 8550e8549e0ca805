"""The rows, the prices and the estimator of a sweep, checked once for all cells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from thrifty.chain.sources import kind_of_table
from thrifty.estimators.base import GatedClassifier
from thrifty.estimators.checks import check_seed, check_training_rows, validated
from thrifty.evidence.row_checks import known_labels
from thrifty.exceptions import InvalidInputError
from thrifty.full.crossfit import TrainingRows
from thrifty.full.model import is_estimator
from thrifty.objective.costs import PriceList, check_price_list
from thrifty.sweeping import identity

__all__ = ["Problem", "make_problem", "with_fixed_seeds"]


@dataclass(frozen=True)
class Problem:
    """All that the cells of a sweep have in common.

    Attributes
    ----------
    estimator : GatedClassifier
        Not fitted, and without f0; everything random in it has a seed.
    full : object
        f0 as given, or the default one, with its seeds; None for an estimator that has none.
    X, y, sample_weight, X_val, y_val
        As given.
    table_val : array, sparse matrix or data frame
        The validation rows as f0 reads them.
    rows : TrainingRows
        The training rows that count, with the folds f0 is judged in.
    price_list : PriceList
        What purchases cost.
    """

    estimator: GatedClassifier
    full: Any
    X: Any
    y: Any
    sample_weight: Any
    X_val: Any
    y_val: NDArray[Any]
    table_val: Any
    rows: TrainingRows
    price_list: PriceList

    @property
    def takes_full(self) -> bool:
        """Whether there is an f0 at all."""
        return "full" in self.estimator.get_params(deep=False)

    def identity(self, varied: set[str]) -> dict[str, Any]:
        """What every cell depends on, f0 aside; ``varied`` are the parameters that the grid sets."""
        kind = type(self.estimator)
        apart = {*varied, "full", "n_jobs", "feature_costs", "feature_groups", "full_cost"}
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


def make_problem(estimator: Any, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Problem:
    """Check everything that can be refused before f0 is asked anything."""
    if not isinstance(estimator, GatedClassifier):
        raise InvalidInputError(
            f"a sweep needs an estimator of thrifty with one cheap stage; got {type(estimator).__name__}."
        )
    given = estimator.get_params(deep=False)
    probe = type(estimator)(**given)
    # Copies are made without f0, which may be large, or nothing that can be copied.
    light = with_fixed_seeds(type(estimator)(**{**given, "full": None} if "full" in given else given))
    full = given.get("full")
    full = light._full() if full is None else full
    rows = check_training_rows(probe, X, y, sample_weight, probe.cv, check_seed(light.random_state))
    prices = check_price_list(
        probe.feature_costs,
        probe.feature_groups,
        probe.full_cost,
        rows.X.shape[1],
        getattr(probe, "feature_names_in_", None),
    )
    numbers = validated(probe, X_val, reset=False)
    return Problem(
        estimator=light,
        full=with_fixed_seeds(full) if "full" in given else None,
        X=X,
        y=y,
        sample_weight=sample_weight,
        X_val=X_val,
        y_val=known_labels("y_val", y_val, numbers.shape[0], rows.classes),
        table_val=X_val if kind_of_table(X_val) else numbers,
        rows=rows,
        price_list=prices,
    )


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
