"""Boosters of LightGBM and XGBoost without an estimator around them, as their own files hold them."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.chain.columns import level_text
from thrifty.errors import InvalidInputError
from thrifty.tasks.classes import classification_of
from thrifty.tasks.regression import regression_of
from thrifty.tasks.task import Task

__all__ = ["is_booster", "names_of_booster", "task_and_function", "with_categories"]


def is_booster(model: Any) -> bool:
    """Whether this is a bare booster of LightGBM or XGBoost."""
    return hasattr(model, "dump_model") and not hasattr(model, "get_params")


def names_of_booster(booster: Any) -> list[str]:
    """Names of its columns, or those that LightGBM makes up where there are none."""
    if hasattr(booster, "feature_name"):
        return list(booster.feature_name())
    return list(booster.feature_names or (f"Column_{place}" for place in range(booster.num_features())))


def with_categories(model: Any, rows: Any) -> Any:
    """A table from a file with the categories that a booster of LightGBM or XGBoost, or its estimator, was fitted on.

    A file of text has no type for categories, and both libraries refuse text. A value that is none of the categories
    is missing, as it is to the booster.

    Parameters
    ----------
    model : booster or fitted estimator
        A model of another kind leaves the table as it is.
    rows : pandas data frame
        Its columns, in the order of the fit.
    """
    import pandas as pd

    known = {place: levels for place, levels in _categories_of(model).items() if place < rows.shape[1]}
    made = {}
    for place, levels in known.items():
        name, column = rows.columns[place], rows.iloc[:, place]
        if isinstance(column.dtype, pd.CategoricalDtype):
            continue
        # A level 007 is the number 7 to whoever reads the file, and 7 is 7.0 where the column has gaps.
        by_number = {_number(level): level for level in reversed(levels)} | {None: None}
        by_text = {level_text(level): level for level in levels}
        values = [by_text.get(level_text(one), by_number.get(_number(one))) for one in column.tolist()]
        if column.notna().any() and all(value is None for value in values):
            shown = ", ".join(repr(level) for level in levels[:5])
            raise InvalidInputError(
                f"column {name!r} must hold the categories that the model was fitted on, such as {shown}; got "
                f"{column.dropna().iloc[0]!r} and no cell that is one of them. Give the table as it was fitted on it."
            )
        made[name] = pd.Categorical(values, categories=levels)
    return rows.assign(**made)


def _categories_of(model: Any) -> dict[int, list[Any]]:
    """Categories of the columns, by place, that a booster was fitted on; empty where it knows none."""
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        booster = model.get_booster() if hasattr(model, "get_booster") else model
        described = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
        # Trees that are dropped in training are wrapped once more; before version 3.1 a model knew no categories.
        kept = described.get("gbtree", described).get("model", {}).get("cats", {}).get("enc", [])
        return {place: levels for place, one in enumerate(kept) if (levels := _xgboost_levels(one))}
    booster = getattr(model, "booster_", model)
    known: list[list[Any]] = getattr(booster, "pandas_categorical", None) or []
    if not known:
        return {}
    told = re.search(r"^\[categorical_feature: ([\d,]+)\]$", booster.model_to_string(), re.MULTILINE)
    places = [] if told is None else [int(place) for place in told[1].split(",")]
    return dict(zip(places, known, strict=True)) if len(places) == len(known) else {}


def _xgboost_levels(kept: dict[str, Any]) -> list[Any]:
    """Categories of one column: numbers, or texts whose bytes stand one after the other."""
    if "offsets" not in kept:
        return list(kept["values"])
    text, ends = bytes(one % 256 for one in kept["values"]), kept["offsets"]
    return [text[begin:end].decode() for begin, end in pairwise(ends)]


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if np.isnan(number) else number


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
