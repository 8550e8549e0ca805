"""Boosters of LightGBM and XGBoost without an estimator around them, as their own files hold them."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.exceptions import InvalidInputError
from thrifty.tasks.choose import classification_of
from thrifty.tasks.regression import regression_of
from thrifty.tasks.task import Task

__all__ = ["is_booster", "names_of_booster", "task_and_function"]


def is_booster(model: Any) -> bool:
    """Whether this is a bare booster of LightGBM or XGBoost."""
    return hasattr(model, "dump_model") and not hasattr(model, "get_params")


def names_of_booster(booster: Any) -> list[str]:
    """Names of its columns, or those that LightGBM makes up where there are none."""
    if hasattr(booster, "feature_name"):
        return list(booster.feature_name())
    return list(booster.feature_names or (f"Column_{place}" for place in range(booster.num_features())))


def task_and_function(booster: Any, labels: Any) -> tuple[Task, Callable[[Any], ArrayLike]]:
    """What a booster answers, told by its objective, and a function that asks it about a table."""
    objective = _objective(booster)
    if objective.startswith(("lambdarank", "rank", "survival", "aft")) or objective in ("none", "custom"):
        raise InvalidInputError(
            f"y tells how good labels or numbers are, and this booster has the objective {objective!r}. Audit it "
            f"without y."
        )
    probable = ("binary:logistic", "multi:softprob", "multiclass", "multiclassova", "binary")
    if objective in probable:
        return classification_of(labels), _asking(booster)
    if objective.startswith(("binary", "multi", "cross_entropy")):
        raise InvalidInputError(
            f"a booster with y must answer with probabilities; its objective is {objective!r}. Give the fitted "
            f"estimator, or audit it without y."
        )
    return regression_of(labels, "squared"), _asking(booster)


def _objective(booster: Any) -> str:
    if hasattr(booster, "save_raw"):
        return str(json.loads(booster.save_config())["learner"]["objective"]["name"])
    return str(booster.dump_model().get("objective", "custom")).split(" ")[0]


def _asking(booster: Any) -> Callable[[Any], ArrayLike]:
    def ask(table: Any) -> ArrayLike:
        if not hasattr(booster, "save_raw"):
            return np.asarray(booster.predict(table))
        from xgboost import DMatrix

        return np.asarray(booster.predict(DMatrix(table, enable_categorical=True)))

    return ask
