"""Columns that each row reads in fitted models of other libraries.

``full/convert.py`` reads the arrays of a model: a tree reads the columns on the path to the leaf that a row reaches, a
linear model the columns with nonzero coefficients, any other model every column. Preprocessing steps are traced as far
as they tell which output column is made of which input columns.
"""

from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor, VotingClassifier, VotingRegressor
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder

from thrifty.arrays import Bools, Ints
from thrifty.engine.full.convert import read_model
from thrifty.engine.trees.other_libraries import ForeignTrees


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
        steps, last = model[:-1], model[-1]
        prepared = steps.transform(X) if len(steps) else X
        return _joined(columns_read(last, prepared), _inputs_of_outputs(steps, n_features))
    members = _members(model)
    if members is not None:
        together: Bools = np.logical_or.reduce([columns_read(member, X) for member in members])
        return together
    ours = read_model(model)
    return np.ones((n_rows, n_features), dtype=bool) if ours is None else ours.touched(X)


def follows_paths(model: Any) -> bool:
    """True if the columns read differ by row, that is, if the model has trees to follow."""
    if isinstance(model, Pipeline):
        return follows_paths(model.steps[-1][1])
    members = _members(model)
    if members is not None:
        return any(follows_paths(member) for member in members)
    ours = read_model(model)
    return ours is not None and isinstance(ours.core, ForeignTrees)


def _members(model: Any) -> list[Any] | None:
    """Members of an ensemble or wrapper, which all predict every row; None for other models."""
    if isinstance(model, FrozenEstimator):
        return [model.estimator]
    if isinstance(model, GridSearchCV | RandomizedSearchCV):
        return [model.best_estimator_]
    if isinstance(model, CalibratedClassifierCV):
        return [copy.estimator for copy in model.calibrated_classifiers_]
    averaged = VotingClassifier, VotingRegressor, AdaBoostClassifier, AdaBoostRegressor, OneVsRestClassifier
    return list(model.estimators_) if isinstance(model, averaged) else None


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
        filled_in: Bools = kept[[bool(step.keep_empty_features or fill == fill) for fill in filled]]
        return filled_in
    if isinstance(step, Pipeline):
        made_of = kept
        for _, inner in step.steps:
            if inner is not None and inner != "passthrough":
                made_of = _joined(_inputs_of_outputs(inner, made_of.shape[0]), made_of)
        return made_of
    n_outputs = len(step.get_feature_names_out()) if hasattr(step, "get_feature_names_out") else n_inputs
    return np.ones((n_outputs, n_inputs), dtype=bool)


def _one_hot_columns(step: OneHotEncoder) -> list[int]:
    """Number of output columns of an encoder for each column: infrequent categories count once, dropped ones not."""
    rare = getattr(step, "infrequent_categories_", None) or [None] * len(step.categories_)
    dropped = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
    return [
        len(every) - (0 if few is None else len(few) - 1) - (drop is not None)
        for every, few, drop in zip(step.categories_, rare, dropped, strict=True)
    ]


def _of_column_transformer(step: ColumnTransformer, n_inputs: int) -> Bools:
    n_outputs = max((part.stop for part in step.output_indices_.values()), default=0)
    made_of = np.zeros((n_outputs, n_inputs), dtype=bool)
    names = list(getattr(step, "feature_names_in_", range(n_inputs)))
    for name, inner, columns in step.transformers_:
        part = step.output_indices_[name]
        if part.stop == part.start:
            continue
        read = _column_numbers(columns, names)
        inside = (
            np.eye(len(read), dtype=bool)
            if isinstance(inner, str)  # passthrough
            else _inputs_of_outputs(inner, len(read))
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
    return np.array([names.index(name) for name in listed.tolist()], dtype=np.intp)
