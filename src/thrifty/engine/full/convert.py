"""Fitted models of scikit-learn, LightGBM and XGBoost as stored models, where their arrays are known.

A model is recognised by its fitted attributes, in classes of these libraries: a subclass may predict otherwise. Every
converted model is compared with the original on synthetic rows, so that an unknown class, setting or version of a
library leads to a model that is not stored, and never to one that predicts differently. ``SVC._gamma`` is the one
private attribute read here; those of trees are in ``trees/other_libraries.py``.
"""

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import linear_model
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import get_tags

from thrifty.arrays import Floats, Labels
from thrifty.engine.full.stored import Impute, KernelScores, LinearScores, Scale, StoredModel
from thrifty.engine.table.columns import Levels, level_text
from thrifty.engine.trees.other_libraries import categories_of, foreign_trees
from thrifty.errors import InvalidInputError

N_PROBES = 16
"""Number of synthetic rows that models are compared on."""
_SAME = 1e-6
_GOLDEN = 0.6180339887498949
_LIBRARIES = ("sklearn", "lightgbm.sklearn", "xgboost.sklearn")
_LOG_LINKS = (linear_model.PoissonRegressor, linear_model.GammaRegressor)


def stored_model_of(model: Any) -> StoredModel | None:
    """Convert a fitted model into a stored one with the same predictions; None for models of unknown classes."""
    if isinstance(model, StoredModel):
        return model
    module = type(_steps(model)[-1]).__module__
    is_known = any(f"{module}.".startswith(f"{library}.") for library in _LIBRARIES)
    stored = read_model(model) if is_known else None
    try:
        return stored.validate() if stored is not None and _answers_alike(model, stored) else None
    except InvalidInputError:
        return None


def read_model(model: Any) -> StoredModel | None:
    """Arrays of a fitted model, whether or not its answers can be made of them; None where they are not known.

    Subclasses are read, too: the paths of their trees are known, even if they may predict otherwise.
    """
    if isinstance(model, StoredModel):
        return model
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attributes that a library will rename
            return booster_model(model) if is_booster(model) else _converted(model)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # InvalidInputError is a ValueError: what cannot be stored stays outside


def _converted(model: Any) -> StoredModel | None:
    *before, last = _steps(model)
    steps = [_step(step) for step in before]
    if hasattr(last, "support_vectors_"):
        core: Any = _kernel(last)
    else:
        is_linear = hasattr(last, "intercept_") and hasattr(last, "coef_")
        core = _linear(last) if is_linear else foreign_trees(last)
    if core is None or any(step is None for step in steps):
        return None
    tags, allow_nan = get_tags(model).input_tags, get_tags(last).input_tags.allow_nan
    reads = "finite" if not allow_nan else "any" if core.link != "shares" else "nan"
    first = [*before, last][0]
    names = getattr(first, "feature_names_in_", None)
    return StoredModel(
        _classes(last),
        int(getattr(first, "n_features_in_", 0)),
        None if names is None else tuple(map(str, names)),
        tuple(step for step in steps if step is not None),
        core,
        reads,
        is_single=hasattr(last, "tree_") or hasattr(np.ravel(getattr(last, "estimators_", [0]))[0], "tree_"),
        takes_missing=bool(tags.allow_nan),
        takes_sparse=bool(tags.sparse),
        levels=_levels(last),
    )


def is_booster(model: Any) -> bool:
    """True for a ``Booster`` of LightGBM or XGBoost."""
    return hasattr(model, "dump_model") and not hasattr(model, "get_params")


def booster_model(booster: Any) -> StoredModel:
    """Convert a booster of LightGBM or XGBoost into a stored model; classes are numbered from 0."""
    trees = foreign_trees(booster)
    n_classes = {"logistic": 2, "softmax": len(trees.parts)}.get(trees.link, 0)
    names = booster.feature_name() if hasattr(booster, "feature_name") else booster.feature_names
    return StoredModel(
        np.arange(n_classes) if n_classes else np.empty(0),
        trees.n_features,
        None if names is None else tuple(names),
        (),
        trees,
        "any",
        takes_missing=True,
        takes_sparse=True,
        levels=_levels(booster),
    )


def _levels(model: Any) -> Levels | None:
    """Categories of the columns that trees read as codes."""
    texts = {place: tuple(map(level_text, levels)) for place, levels in categories_of(model).items()}
    return Levels(texts).validate() if texts else None


def _steps(model: Any) -> list[Any]:
    """Steps of a pipeline, without those that do nothing, and its final model."""
    if isinstance(model, GridSearchCV | RandomizedSearchCV):
        return _steps(model.best_estimator_)
    if isinstance(model, FrozenEstimator):
        return _steps(model.estimator)
    if type(model) is not Pipeline:
        return [model]
    *before, (_, last) = model.steps
    return [*(step for _, step in before if step is not None and step != "passthrough"), *_steps(last)]


def _classes(model: Any) -> Labels:
    """Labels of a classifier; none of a regressor."""
    classes = getattr(model, "classes_", None)
    return np.empty(0) if classes is None else np.asarray(classes)


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
    if kind is SimpleImputer and not step.add_indicator and step.missing_values != step.missing_values:
        return Impute(np.array(step.statistics_, dtype=np.float64))
    return None


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
    return unit * size[:, None]


def _answers_alike(model: Any, stored: StoredModel) -> bool:
    """True if both models predict the same for synthetic rows, with missing values if allowed."""
    ask = next(name for name in ("predict_proba", "decision_function", "predict") if hasattr(stored, name))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            table = _probes(model, stored)
            theirs = np.asarray(getattr(model, ask)(table), dtype=np.float64)
            ours = np.asarray(getattr(stored, ask)(table), dtype=np.float64)
        except Exception:  # other libraries raise errors of any type
            return False
    return theirs.shape == ours.shape and np.allclose(ours, theirs, rtol=_SAME, atol=_SAME, equal_nan=True)


def _probes(model: Any, stored: StoredModel) -> Any:
    """Synthetic rows as the model reads them: with categories, missing values and the names of its columns."""
    import pandas as pd

    table = probe_table(stored.n_features)
    if (stored.takes_missing and stored.steps == ()) or stored.reads != "finite":
        table[::3, :: max(1, table.shape[1] // 3)] = np.nan
    frame = pd.DataFrame(table, columns=None if stored.names is None else list(stored.names))
    categories = {} if stored.levels is None else categories_of(_steps(model)[-1])
    for place, levels in categories.items():
        codes = np.nan_to_num(np.floor(np.abs(table[:, place])) % len(levels), nan=-1)
        frame.isetitem(place, pd.Categorical.from_codes(codes.astype(int), categories=levels))
    is_frame = hasattr(stored, "feature_names_in_") or (categories and stored.library != "scikit-learn")
    return frame if is_frame else frame.to_numpy(dtype=np.float64)
