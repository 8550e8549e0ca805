"""What is refused before anything is learned, and in which words."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from thrifty.arrays import Floats
from thrifty.chain.sources import describe_bad_column, kind_of_table
from thrifty.exceptions import InvalidInputError
from thrifty.full.crossfit import TrainingRows, assign_folds

__all__ = [
    "check_columns",
    "check_count",
    "check_seed",
    "check_share",
    "check_threshold",
    "check_training_rows",
    "validated",
]


@dataclass(frozen=True)
class _Labels:
    classes: NDArray[Any]
    signs: Floats


def check_training_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, cv: Any, seed: int
) -> TrainingRows:
    """The rows that count, with their folds: rows of weight zero are left out of everything."""
    if y is None:
        raise InvalidInputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None."
        )
    numbers, y = validated(estimator, X, y, reset=True)
    labels = _check_labels(y)
    weight = _check_weights(sample_weight, numbers)
    kept = np.flatnonzero(weight > 0)
    # Folds that the user gave speak of the rows given; folds of our own are dealt among the rows that count.
    given = None if isinstance(cv, Integral) else assign_folds(cv, numbers, labels.signs, seed)[kept]
    table = X if kind_of_table(X) else numbers
    if len(kept) < len(weight):
        table, numbers = _safe_indexing(table, kept), numbers[kept]
    signs = labels.signs[kept]
    _refuse_one_class(signs, labels.classes)
    return TrainingRows(
        table=table,
        X=numbers,
        y=signs,
        classes=labels.classes,
        weight=weight[kept],
        folds=assign_folds(cv, numbers, signs, seed) if given is None else given,
        positions=kept,
        n_given=len(weight),
        weighted=sample_weight is not None,
    )


def validated(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    """X (and y) as numbers, or a refusal that names the column."""
    tags = get_tags(estimator).input_tags
    try:
        return validate_data(
            estimator,
            X,
            *y,
            reset=reset,
            accept_sparse="csr" if tags.sparse else False,
            ensure_all_finite="allow-nan" if tags.allow_nan else True,
            dtype=np.float64,
        )
    except ValueError as error:
        culprit = describe_bad_column(X, allow_missing=tags.allow_nan)
        raise InvalidInputError(f"{error}{culprit}") from error


def _check_labels(y: Any) -> _Labels:
    try:
        check_classification_targets(y)
        classes, code = np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must hold two distinct labels of one kind: {error}") from error
    if len(classes) > 2:
        raise InvalidInputError(
            f"Only binary classification is supported. The type of the target is {type_of_target(y)}, "
            f"with {len(classes)} classes. Make it one class against the rest."
        )
    signs = np.where(code == 1, 1.0, -1.0)
    _refuse_one_class(signs, classes)
    return _Labels(classes, signs)


def _refuse_one_class(signs: Floats, classes: NDArray[Any]) -> None:
    if len(np.unique(signs)) < 2:
        raise InvalidInputError(
            f"y must hold two classes; got 1 class, {classes.tolist()}. A classifier can't train on one class."
        )


def _check_weights(sample_weight: Any, numbers: Any) -> Floats:
    try:
        weight = _check_sample_weight(sample_weight, numbers, dtype=np.float64, ensure_non_negative=True)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    if not weight.any():
        raise InvalidInputError("sample_weight must not be zero for every row; got zeros only.")
    return np.asarray(weight, dtype=np.float64)


def check_seed(random_state: Any) -> int:
    """A number drawn from whatever the user gave as ``random_state``."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InvalidInputError(
            f"random_state must be None, a whole number or a RandomState; got {random_state!r}."
        ) from error


def check_share(name: str, value: Any, *, meaning: str) -> float:
    """A number in [0, 1], or a refusal that says what it is for."""
    if not isinstance(value, int | float | np.integer | np.floating) or not 0.0 <= float(value) <= 1.0:
        raise InvalidInputError(f"{name} must lie in [0, 1]; got {value!r}. It is {meaning}.")
    return float(value)


def check_count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least ``least`` and at most ``most``."""
    fits = not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
    if not fits or (most is not None and int(value) > most):
        rule = f">= {least}" if most is None else f"in [{least}, {most}]"
        raise InvalidInputError(f"{name} must be a whole number {rule}; got {value!r}.")
    return int(value)


def check_threshold(value: Any) -> float:
    """A threshold of the gate; infinite ones send nobody or everybody."""
    try:
        threshold = float(value)
    except (TypeError, ValueError):
        threshold = float("nan")
    if np.isnan(threshold):
        raise InvalidInputError(
            f"threshold must be a number, infinite ones included; got {value!r}. Rows with g > threshold go to f0."
        )
    return threshold


def check_columns(features: Any, n_features: int, names: Any) -> NDArray[np.intp]:
    """Column numbers from numbers, names or a mask; None is every column."""
    if features is None:
        return np.arange(n_features)
    wanted = np.asarray(features)
    if wanted.dtype.kind in "OUT":
        position = {name: i for i, name in enumerate(names)} if names is not None else {}
        unknown = [name for name in wanted.tolist() if name not in position]
        if unknown:
            raise InvalidInputError(f"features names {unknown[0]!r}, which is not a column of X.")
        wanted = np.array([position[name] for name in wanted.tolist()], dtype=np.intp)
    if wanted.dtype == bool and wanted.shape == (n_features,):
        wanted = np.flatnonzero(wanted)
    if wanted.dtype.kind not in "iu" or wanted.ndim != 1 or np.any((wanted < 0) | (wanted >= n_features)):
        raise InvalidInputError(
            f"features must be column numbers in [0, {n_features}), names, or a mask; got {features!r}."
        )
    return np.unique(wanted).astype(np.intp)
