"""Columns that each row reads in fitted models of other libraries, and boosters loaded from their own files.

A tree reads the columns on the path to the leaf that a row reaches. The library itself finds the leaf, so rounding,
missing values and categories are treated as it treats them; the path comes from its description of the tree. A linear
model reads the columns with nonzero coefficients; any other model reads every column. Preprocessing steps are traced as
far as they tell which output column is made of which input columns.
"""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor, VotingClassifier, VotingRegressor
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder

from thrifty.arrays import Bools, Ints
from thrifty.errors import InvalidInputError
from thrifty.full.convert import stored_model_of
from thrifty.tables.columns import level_text
from thrifty.tasks.classes import classification_of
from thrifty.tasks.regression import regression_of
from thrifty.tasks.task import Task

__all__ = [
    "columns_read",
    "follows_paths",
    "is_booster",
    "names_of_booster",
    "task_and_function",
    "with_categories",
]

Leaves = Iterator[tuple[Ints, Bools]]
"""For each tree the leaf of every row, and the columns on the path to each node, (n_nodes, n_features)."""


def columns_read(model: Any, X: Any) -> Bools:
    """Columns that a fitted model reads to predict each row, shape (n_rows, n_features).

    Parameters
    ----------
    model : fitted estimator or booster
        Trees of LightGBM, XGBoost and scikit-learn, alone, in a Pipeline, and inside of estimators that calibrate,
        average or select them, are followed row by row.
    X : table of shape (n_rows, n_features)
        The rows, as the model takes them.
    """
    n_rows, n_features = np.shape(X)
    if isinstance(model, Pipeline):
        *steps, (_, last) = model.steps
        made_of = np.eye(n_features, dtype=bool)
        for _, step in steps:
            if step is not None and step != "passthrough":
                made_of = _joined(_inputs_of_outputs(step, made_of.shape[0]), made_of)
                X = step.transform(X)
        return _joined(columns_read(last, X), made_of)
    members = _members(model)
    if members is not None:
        together: Bools = np.logical_or.reduce([columns_read(one, X) for one in members])
        return together
    with warnings.catch_warnings():
        # A model that was fitted on a data frame may predict an array, if its library allows it.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        ours = stored_model_of(model)
        if ours is not None and ours.follows_paths:
            return ours.touched(X)
        trees = _leaves_of(model, X, n_features)
        if trees is None:
            return np.repeat(_used_by_all(model, n_features)[None, :], n_rows, axis=0)
        touched = np.zeros((n_rows, n_features), dtype=bool)
        for leaf, on_the_way in trees:
            touched |= on_the_way[leaf]
    start = getattr(model, "init_", None)
    if hasattr(start, "predict") and not isinstance(start, DummyClassifier | DummyRegressor):
        touched |= columns_read(start, X)
    return touched


def follows_paths(model: Any) -> bool:
    """Whether the columns read differ by row: whether the model has trees to follow."""
    if isinstance(model, Pipeline):
        return follows_paths(model.steps[-1][1])
    members = _members(model)
    if members is not None:
        return any(follows_paths(one) for one in members)
    ours = stored_model_of(model)
    return (ours is not None and ours.follows_paths) or _reader_of(model) is not None


def _members(model: Any) -> list[Any] | None:
    """Members of an ensemble or wrapper, which all predict every row; None for other models."""
    if isinstance(model, FrozenEstimator):
        return [model.estimator]
    if isinstance(model, GridSearchCV | RandomizedSearchCV):
        return [model.best_estimator_]
    if isinstance(model, CalibratedClassifierCV):
        return [one.estimator for one in model.calibrated_classifiers_]
    averaged = VotingClassifier, VotingRegressor, AdaBoostClassifier, AdaBoostRegressor, OneVsRestClassifier
    return list(model.estimators_) if isinstance(model, averaged) else None


def _used_by_all(model: Any, n_features: int) -> Bools:
    """Columns that a model without trees reads of every row, shape (n_features,)."""
    try:
        slopes = model.coef_
    except AttributeError:  # boosters and kernel machines have the property, and no coefficients
        return np.ones(n_features, dtype=bool)
    slopes = np.atleast_2d(slopes.toarray() if sparse.issparse(slopes) else np.asarray(slopes))
    if slopes.shape[-1] != n_features:
        return np.ones(n_features, dtype=bool)
    used: Bools = (slopes != 0).any(axis=0)
    return used


# -- steps before a model ----------------------------------------------------------------------


def _joined(outer: Bools, inner: Bools) -> Bools:
    """Compose two relations of columns: the inner columns that the outer columns are made of."""
    joined: Bools = outer.astype(np.float32) @ inner.astype(np.float32) > 0
    return joined


def _inputs_of_outputs(step: Any, n_inputs: int) -> Bools:
    """Input columns of each output column of a step, shape (n_outputs, n_inputs)."""
    kept = np.eye(n_inputs, dtype=bool)
    if isinstance(step, SelectorMixin):
        selected: Bools = kept[step.get_support()]
        return selected
    if isinstance(step, OneHotEncoder):
        return np.repeat(kept, _one_hot_columns(step), axis=0)
    if isinstance(step, ColumnTransformer):
        return _of_column_transformer(step, n_inputs)
    # A row's norm is made of all its columns.
    if isinstance(step, OneToOneFeatureMixin) and not isinstance(step, Normalizer):
        return kept
    if isinstance(step, SimpleImputer) and not step.add_indicator:
        filled = np.asarray(step.statistics_, dtype=object)
        filled_in: Bools = kept[[bool(step.keep_empty_features or one == one) for one in filled]]
        return filled_in
    if isinstance(step, Pipeline):
        made_of = kept
        for _, one in step.steps:
            if one is not None and one != "passthrough":
                made_of = _joined(_inputs_of_outputs(one, made_of.shape[0]), made_of)
        return made_of
    n_outputs = len(step.get_feature_names_out()) if hasattr(step, "get_feature_names_out") else n_inputs
    return np.ones((n_outputs, n_inputs), dtype=bool)


def _one_hot_columns(step: OneHotEncoder) -> list[int]:
    """Number of output columns of an encoder for each column: infrequent categories count once, dropped ones not."""
    rare = getattr(step, "infrequent_categories_", None) or [None] * len(step.categories_)
    dropped = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
    return [
        len(every) - (0 if few is None else len(few) - 1) - (one is not None)
        for every, few, one in zip(step.categories_, rare, dropped, strict=True)
    ]


def _of_column_transformer(step: ColumnTransformer, n_inputs: int) -> Bools:
    n_outputs = max((part.stop for part in step.output_indices_.values()), default=0)
    made_of = np.zeros((n_outputs, n_inputs), dtype=bool)
    names = list(getattr(step, "feature_names_in_", range(n_inputs)))
    for name, one, columns in step.transformers_:
        part = step.output_indices_[name]
        if part.stop == part.start:
            continue
        read = _column_numbers(columns, names)
        inside = (
            np.eye(len(read), dtype=bool)
            if isinstance(one, str)  # passthrough
            else _inputs_of_outputs(one, len(read))
        )
        made_of[part.start : part.stop, read] = inside
    return made_of


def _column_numbers(columns: Any, names: list[Any]) -> Ints:
    if isinstance(columns, slice):
        return np.arange(len(names))[columns]
    listed = np.atleast_1d(np.asarray(columns))
    if listed.dtype == bool:
        return np.flatnonzero(listed)
    if listed.dtype.kind in "iu":
        return np.arange(len(names))[listed.astype(np.intp)]
    return np.array([names.index(one) for one in listed.tolist()], dtype=np.intp)


# -- trees of one library each -----------------------------------------------------------------


def _reader_of(model: Any) -> Any:
    """Function that follows rows down the trees of a model; None for models without known trees."""
    # Recognised by their methods, so that no library is imported that is not in use.
    if hasattr(model, "get_booster") or hasattr(model, "save_raw"):
        return _xgboost_leaves if _xgboost_trees(model) is not None else None
    if hasattr(model, "booster_") or hasattr(model, "dump_model"):
        return _lightgbm_leaves
    has_trees = hasattr(model, "tree_") or hasattr(
        np.ravel(getattr(model, "estimators_", [None]))[0], "tree_"
    )
    return _scikit_leaves if has_trees and hasattr(model, "apply") else None


def _leaves_of(model: Any, X: Any, n_features: int) -> Leaves | None:
    reader = _reader_of(model)
    return None if reader is None else reader(model, X, n_features)


def _on_the_way(left: Ints, right: Ints, feature: Ints, n_features: int) -> Bools:
    """Columns on the path to each node, level by level; a node without a left child is a leaf."""
    seen = np.zeros((len(left), n_features), dtype=bool)
    level = np.zeros(1, dtype=np.intp)
    while level.size:
        level = level[left[level] >= 0]
        for child in (left[level], right[level]):
            seen[child] = seen[level]
            seen[child, feature[level]] = True
        level = np.concatenate([left[level], right[level]])
    return seen


def _scikit_leaves(model: Any, X: Any, n_features: int) -> Leaves:
    members = [model] if hasattr(model, "tree_") else np.ravel(model.estimators_).tolist()
    leaves = np.asarray(model.apply(X)).astype(np.intp).reshape(np.shape(X)[0], -1)
    for place, one in enumerate(members):
        tree = one.tree_
        way = _on_the_way(tree.children_left, tree.children_right, tree.feature, n_features)
        yield leaves[:, place], way


def _xgboost_trees(model: Any) -> list[Any] | None:
    """Trees of a booster as it describes them, in order; None where it has none."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    described = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    # Trees that are dropped in training are wrapped once more.
    inner = described.get("gbtree", described)
    trees: list[Any] | None = inner["model"].get("trees")
    return trees


def _xgboost_leaves(model: Any, X: Any, n_features: int) -> Leaves:
    if hasattr(model, "apply"):
        found = model.apply(X)
    else:
        from xgboost import DMatrix

        best = (0, model.best_iteration + 1) if model.attr("best_iteration") else (0, 0)
        rows = DMatrix(X, enable_categorical=True)
        found = model.predict(rows, pred_leaf=True, iteration_range=best)
    leaves = np.asarray(found).astype(np.intp).reshape(np.shape(X)[0], -1)
    for place, tree in zip(range(leaves.shape[1]), _xgboost_trees(model) or [], strict=False):
        left, right, feature = (
            np.asarray(tree[name], dtype=np.intp)
            for name in ("left_children", "right_children", "split_indices")
        )
        yield leaves[:, place], _on_the_way(left, right, feature, n_features)


def _lightgbm_leaves(model: Any, X: Any, n_features: int) -> Leaves:
    booster = model.booster_ if hasattr(model, "booster_") else model
    leaves = np.asarray(model.predict(X, pred_leaf=True)).astype(np.intp).reshape(np.shape(X)[0], -1)
    for place, tree in enumerate(booster.dump_model()["tree_info"][: leaves.shape[1]]):
        way = np.zeros((max(int(tree["num_leaves"]), 1), n_features), dtype=bool)
        waiting: list[tuple[Any, list[int]]] = [(tree["tree_structure"], [])]
        while waiting:
            node, columns = waiting.pop()
            if "split_feature" in node:
                further = [*columns, int(node["split_feature"])]
                waiting += [(node["left_child"], further), (node["right_child"], further)]
            else:
                # A leaf of a linear tree reads what its slopes are about.
                way[int(node.get("leaf_index", 0)), [*columns, *node.get("leaf_features", ())]] = True
        yield leaves[:, place], way


# -- boosters of LightGBM and XGBoost without an estimator around them -------------------------


def is_booster(model: Any) -> bool:
    """Whether this is a ``Booster`` of LightGBM or XGBoost."""
    return hasattr(model, "dump_model") and not hasattr(model, "get_params")


def names_of_booster(booster: Any) -> list[str]:
    """Names of its columns, or those that LightGBM makes up where there are none."""
    if hasattr(booster, "feature_name"):
        return list(booster.feature_name())
    return list(booster.feature_names or (f"Column_{place}" for place in range(booster.num_features())))


def with_categories(model: Any, rows: Any) -> Any:
    """Table from a file with the categories that a booster of LightGBM or XGBoost, or its estimator, was fitted on.

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
        # Pandas reads the level 007 from a file as 7, and 7 as 7.0 where the column has missing values.
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
    match = re.search(r"^\[categorical_feature: ([\d,]+)\]$", booster.model_to_string(), re.MULTILINE)
    places = [] if match is None else [int(place) for place in match[1].split(",")]
    return dict(zip(places, known, strict=True)) if len(places) == len(known) else {}


def _xgboost_levels(kept: dict[str, Any]) -> list[Any]:
    """Categories of one column: numbers, or texts as concatenated bytes."""
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
    """Task of a booster, by its objective, and a function that predicts a table with it."""
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
