"""Fitted models of scikit-learn, LightGBM and XGBoost as stored models, where their arrays are known.

A model is recognised by its exact class: a subclass may predict otherwise. Every converted model is compared with the
original on synthetic rows, so that an unknown setting, or an unknown version of a library, leads to a model that is not
stored, and never to one that predicts differently. ``SVC._gamma`` is the one private attribute read here; those of
trees are in ``trees/foreign.py``.
"""

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import ensemble, linear_model, svm, tree
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import get_tags

from thrifty.arrays import Floats, Labels
from thrifty.full.stored import (
    Impute,
    KernelScores,
    LinearScores,
    Scale,
    StoredClassifier,
    StoredModel,
    StoredRegressor,
    stored_estimator,
)
from thrifty.trees.foreign import foreign_trees

__all__ = ["N_PROBES", "booster_model", "probe_table", "stored_model_of"]

N_PROBES = 16
"""Number of synthetic rows that models are compared on."""
_SAME = 1e-6
_GOLDEN = 0.6180339887498949

_SCIKIT_TREES = (
    tree.DecisionTreeClassifier,
    tree.DecisionTreeRegressor,
    tree.ExtraTreeClassifier,
    tree.ExtraTreeRegressor,
    ensemble.RandomForestClassifier,
    ensemble.RandomForestRegressor,
    ensemble.ExtraTreesClassifier,
    ensemble.ExtraTreesRegressor,
    ensemble.GradientBoostingClassifier,
    ensemble.GradientBoostingRegressor,
)
_HISTOGRAMS = (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
_BOOSTERS = tuple(
    f"{library}.sklearn.{prefix}{kind}"
    for library, prefix in (("lightgbm", "LGBM"), ("xgboost", "XGB"))
    for kind in ("Classifier", "Regressor", "Ranker", "RFClassifier", "RFRegressor")
)
_LINEAR_NAMES = (
    "LogisticRegression", "LogisticRegressionCV", "RidgeClassifier", "RidgeClassifierCV", "SGDClassifier",
    "Perceptron", "PassiveAggressiveClassifier", "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV",
    "LassoLars", "LassoLarsCV", "LassoLarsIC", "Lars", "LarsCV", "ElasticNet", "ElasticNetCV",
    "OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV", "BayesianRidge", "ARDRegression",
    "HuberRegressor", "QuantileRegressor", "TheilSenRegressor", "SGDRegressor",
    "PassiveAggressiveRegressor", "PoissonRegressor", "GammaRegressor",
)  # fmt: skip
_LINEAR = (
    *(getattr(linear_model, name) for name in _LINEAR_NAMES if hasattr(linear_model, name)),
    svm.LinearSVC,
    svm.LinearSVR,
    LinearDiscriminantAnalysis,
)
_LOG_LINKS = (linear_model.PoissonRegressor, linear_model.GammaRegressor)
_KERNELS = (svm.SVC, svm.NuSVC, svm.SVR, svm.NuSVR)


def stored_model_of(model: Any) -> StoredClassifier | StoredRegressor | None:
    """Convert a fitted model into a stored estimator with the same predictions; None for models of unknown classes."""
    if isinstance(model, StoredClassifier | StoredRegressor):
        return model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attributes that a library will rename
            found = _converted(model)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # InvalidInputError is a ValueError: what cannot be stored stays outside
    return found if found is not None and _answers_alike(model, found) else None


def _converted(model: Any) -> StoredClassifier | StoredRegressor | None:
    *before, last = _steps(model)
    steps = [_step(one) for one in before]
    core = _core(last)
    if core is None or any(one is None for one in steps):
        return None
    is_scikit_tree = type(last) in _SCIKIT_TREES
    tags, own = get_tags(model).input_tags, get_tags(last).input_tags
    reads = "any" if core.link != "shares" and own.allow_nan else "nan" if own.allow_nan else "finite"
    first = [*before, last][0]
    # LightGBM writes other names than those of the table, and compares none.
    names = None if hasattr(first, "booster_") else getattr(first, "feature_names_in_", None)
    return stored_estimator(
        StoredModel(
            _classes(last),
            int(getattr(first, "n_features_in_", 0)),
            None if names is None else tuple(str(one) for one in names),
            tuple(one for one in steps if one is not None),
            core,
            reads,
            is_single=is_scikit_tree,
            takes_missing=bool(tags.allow_nan),
            takes_sparse=bool(tags.sparse),
        ).validate()
    )


def booster_model(booster: Any) -> StoredClassifier | StoredRegressor:
    """Convert a booster of LightGBM or XGBoost into a stored estimator; classes are numbered from 0."""
    trees = foreign_trees(booster)
    n_classes = {"logistic": 2, "softmax": len(trees.parts)}.get(trees.link, 0)
    names = None if hasattr(booster, "feature_name") else booster.feature_names
    return stored_estimator(
        StoredModel(
            np.arange(n_classes) if n_classes else np.empty(0),
            trees.n_features,
            None if names is None else tuple(names),
            (),
            trees,
            "any",
            takes_missing=True,
            takes_sparse=True,
        ).validate()
    )


def _steps(model: Any) -> list[Any]:
    """Steps of a pipeline, without those that do nothing, and its final model."""
    if isinstance(model, GridSearchCV | RandomizedSearchCV):
        return _steps(model.best_estimator_)
    if isinstance(model, FrozenEstimator):
        return _steps(model.estimator)
    if type(model) is not Pipeline:
        return [model]
    *before, (_, last) = model.steps
    return [*(one for _, one in before if one is not None and one != "passthrough"), *_steps(last)]


def _classes(model: Any) -> Labels:
    """Labels of a classifier; none of a regressor."""
    classes = getattr(model, "classes_", None)
    return np.empty(0) if classes is None else np.asarray(classes)


def _core(model: Any) -> Any:
    kind = type(model)
    if kind in (*_SCIKIT_TREES, *_HISTOGRAMS) or f"{kind.__module__}.{kind.__qualname__}" in _BOOSTERS:
        return foreign_trees(model)
    if kind in _LINEAR:
        return _linear(model)
    return _kernel(model) if kind in _KERNELS else None


def _linear(model: Any) -> LinearScores | None:
    coef = model.coef_.toarray() if sparse.issparse(model.coef_) else np.asarray(model.coef_)
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64)).reshape(-1)
    classes = _classes(model)
    if not len(classes):
        if coef.ndim == 2 and len(coef) > 1:
            return None  # several targets
        link = "exp" if type(model) in _LOG_LINKS else "identity"
    elif not hasattr(model, "predict_proba"):
        link = "decision"
    elif type(model) is linear_model.SGDClassifier:
        if model.loss != "log_loss":
            return None
        link = "logistic" if len(classes) == 2 else "rest"
    else:
        link = "logistic" if len(classes) == 2 else "softmax"
    n_scores = 1 if len(classes) in (0, 2) else len(classes)
    coef = np.array(coef, dtype=np.float64).reshape(n_scores, -1)
    return LinearScores(coef, np.array(np.broadcast_to(intercept, n_scores)), link)


def _kernel(model: Any) -> KernelScores | None:
    if not isinstance(model.kernel, str) or model.kernel == "precomputed":
        return None
    vectors, weights = model.support_vectors_, model.dual_coef_
    classes = _classes(model)
    has_probabilities = bool(len(classes)) and hasattr(model, "predict_proba")
    return KernelScores(
        model.kernel,
        float(model._gamma),
        float(model.coef0),
        int(model.degree),
        _dense(vectors),
        _dense(weights),
        np.array(model.intercept_, dtype=np.float64).reshape(-1),
        np.array(model.n_support_, dtype=np.intp),
        "identity" if not len(classes) else "pairs" if has_probabilities else "decision",
        np.array([model.probA_, model.probB_], dtype=np.float64) if has_probabilities else None,
        getattr(model, "decision_function_shape", "ovr") == "ovr",
        bool(getattr(model, "break_ties", False)),
    )


def _dense(values: Any) -> Floats:
    return np.array(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


def _step(step: Any) -> Scale | Impute | None:
    """Convert a preprocessing step; None for an unknown class."""
    kind = type(step)
    if kind is StandardScaler:
        return Scale(_optional(step.mean_, step.with_mean), _optional(step.scale_, step.with_std))
    if kind is RobustScaler:
        return Scale(_optional(step.center_, step.with_centering), _optional(step.scale_, step.with_scaling))
    if kind is MinMaxScaler and not step.clip:
        return Scale(_optional(step.min_), _optional(step.scale_), multiplies=True)
    if kind is MaxAbsScaler and not getattr(step, "clip", False):
        return Scale(None, _optional(step.scale_))
    if kind is SimpleImputer and not step.add_indicator and _is_nan(step.missing_values):
        return Impute(np.array(step.statistics_, dtype=np.float64))
    return None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and np.isnan(value)


def _optional(values: Any, is_used: bool = True) -> Floats | None:
    return np.array(values, dtype=np.float64) if is_used and values is not None else None


# -- made-up rows ------------------------------------------------------------------------------------


def probe_table(n_features: int) -> Floats:
    """Rows that depend on nothing but the number of columns: of sizes 1 to 1,000, half of them of one sign.

    A lattice of multiples of the golden ratio, which takes only exactly rounded operations: the same on every machine.
    """
    lattice = np.outer(np.arange(1, N_PROBES + 1), np.arange(1, n_features + 1)) * _GOLDEN
    unit = lattice - np.floor(lattice)
    unit[1::2] = 2.0 * unit[1::2] - 1.0
    size = np.array([1.0, 10.0, 100.0, 1000.0])[np.arange(N_PROBES) // 2 % 4]
    table: Floats = unit * size[:, None]
    return table


def _answers_alike(model: Any, found: StoredClassifier | StoredRegressor) -> bool:
    """Whether both models predict the same for synthetic rows, with missing values if allowed."""
    table: Any = probe_table(found.n_features_in_)
    if (found.model.takes_missing and found.model.steps == ()) or found.model.reads != "finite":
        table[::3, :: max(1, table.shape[1] // 3)] = np.nan
    if found.model.names is not None:
        try:
            import pandas as pd

            table = pd.DataFrame(table, columns=list(found.model.names))
        except ImportError:
            pass
    ask = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(found, name))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            theirs = np.asarray(getattr(model, ask)(table), dtype=np.float64)
            ours = np.asarray(getattr(found, ask)(table), dtype=np.float64)
        except Exception:  # other libraries raise errors of any type
            return False
    return theirs.shape == ours.shape and np.allclose(ours, theirs, rtol=_SAME, atol=_SAME, equal_nan=True)
