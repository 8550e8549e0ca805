"""f0 in every form a user has it, and its honest loss on the training rows.

f0 may be an unfitted estimator (cloned, fitted, and *cross-fitted* for its training loss), a
``FrozenEstimator``, a function of a table, or probabilities computed elsewhere. All that the rest
of thrifty sees is a ``FullModel``: the probability of class +1 for the rows it is asked about.
Probabilities are clipped to ``[CLIP, 1 - CLIP]``: one overconfident mistake must not cost infinitely much.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from thrifty.exceptions import InvalidInputError, OptimisticFullModelWarning
from thrifty.objective.losses import log_loss_of_probability
from thrifty.rows import content_folds, fingerprints

__all__ = [
    "CLIP",
    "AbsentFull",
    "CallableFull",
    "EstimatorFull",
    "FullModel",
    "JudgedFull",
    "PrecomputedFull",
    "TrainingRows",
    "as_full_model",
    "assign_folds",
    "clip_probability",
    "held_out_rows",
    "judge_full",
]

Floats = NDArray[np.float64]

CLIP = 1e-6
"""Probabilities of f0 stay this far from 0 and 1; its loss on one row is at most 13.8."""

_SUSPICIOUS_LOSS = 0.01
_SUSPICIOUS_ROWS = 50


class FullModel(Protocol):
    """The expensive model as the rest of thrifty sees it."""

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:
        """Probability of class +1 for each row of ``table``.

        ``rows`` are the positions of those rows in the batch of ``n_batch`` rows that is being
        answered: a model that was computed beforehand looks its answers up by them.
        """


@dataclass(frozen=True)
class TrainingRows:
    """The rows a system is fitted on.

    Attributes
    ----------
    table : array, sparse matrix or data frame
        As the user gave it: f0 reads this, with its column names.
    X : ndarray or CSR of shape (n_samples, n_features)
        The same as numbers.
    y : ndarray of shape (n_samples,)
        -1 / +1.
    classes : ndarray of shape (2,)
        The user's labels; ``classes[1]`` is +1.
    weight : ndarray of shape (n_samples,)
        Sample weights, all positive: a row of weight zero is a row that is not there.
    weighted : bool
        Whether the user gave weights; f0 is fitted with them only then.
    folds : ndarray of shape (n_samples,)
        Fold in which f0, and any other model we fit, is judged on each row.
    positions : ndarray of shape (n_samples,)
        Where these rows stand among the ``n_given`` that the user gave, those of weight zero included.
    n_given : int
        Number of rows the user gave.
    """

    table: Any
    X: Any
    y: Floats
    classes: NDArray[Any]
    weight: Floats
    folds: NDArray[np.intp]
    positions: NDArray[np.intp]
    n_given: int
    weighted: bool = False

    @property
    def labels(self) -> NDArray[Any]:
        """Labels as the user wrote them."""
        return self.classes[(self.y > 0).astype(np.intp)]


@dataclass(frozen=True)
class JudgedFull:
    """A full model and its probabilities on the training rows, out of fold wherever we fitted it."""

    model: FullModel
    probability: Floats

    def loss(self, y: Floats) -> Floats:
        """``-log p(y)`` per training row."""
        return log_loss_of_probability(y, self.probability)


@dataclass(frozen=True)
class EstimatorFull:
    """A fitted scikit-learn classifier; one with only a ``decision_function`` is calibrated.

    Attributes
    ----------
    estimator : fitted classifier
        With ``predict_proba`` or ``decision_function``.
    slope, intercept : float
        Sigmoid calibration ``expit(slope * decision + intercept)``; unused with ``predict_proba``.
    """

    estimator: Any
    slope: float = 1.0
    intercept: float = 0.0

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Probability of the estimator's second class."""
        raw = _raw_scores(self.estimator, table)
        if _offers_probability(self.estimator):
            return clip_probability(raw)
        return clip_probability(expit(self.slope * raw + self.intercept))


@dataclass(frozen=True)
class CallableFull:
    """A function ``table -> probabilities``: of class +1, ``(n,)``, or of both classes, ``(n, 2)``."""

    function: Callable[[Any], ArrayLike]

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Ask the function and check what it says."""
        return clip_probability(
            _check_probability(self.function(table), len(rows), "the callable given as full")
        )


@dataclass(frozen=True)
class PrecomputedFull:
    """Probabilities of class +1 that were computed elsewhere, one per row of a known batch."""

    values: Floats

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Look the rows up by position."""
        if n_batch != len(self.values):
            raise InvalidInputError(
                f"full holds precomputed probabilities for {len(self.values)} rows, but {n_batch} rows are to be "
                f"answered. Give those of these rows with `with_full(probabilities)`, or a model that can compute them."
            )
        return clip_probability(self.values[rows])


@dataclass(frozen=True)
class AbsentFull:
    """No full model: for systems that answer every row themselves."""

    def probability(self, table: Any, rows: NDArray[np.intp], n_batch: int) -> Floats:  # noqa: ARG002
        """Refuse: there is nobody to ask."""
        raise InvalidInputError(
            f"{len(rows)} rows are sent to a full model, and there is none. Give one with `with_full(full)`, or raise "
            f"the threshold so that no row is sent."
        )


def clip_probability(probability: ArrayLike) -> Floats:
    """Probabilities moved to at least ``CLIP`` from 0 and 1."""
    return np.clip(np.asarray(probability, dtype=np.float64), CLIP, 1.0 - CLIP)


def judge_full(full: Any, rows: TrainingRows, *, n_jobs: int | None = None, name: str = "f0") -> JudgedFull:
    """Make a ``FullModel`` of whatever the user gave and find its loss on the training rows.

    An unfitted estimator is cloned and fitted on all rows; its training probabilities come from
    one further fit per fold, each judged on the rows it has not seen. So is one that is fitted but not frozen: as
    everywhere in scikit-learn, a bare estimator is a recipe. Anything else was fitted elsewhere and is judged on
    the rows given: they should be rows it was not trained on, and a loss near zero raises a warning.
    """
    if _is_estimator(full) and not isinstance(full, FrozenEstimator):
        return _cross_fit(full, rows, n_jobs)
    model = as_full_model(full, rows.classes, rows.X.shape[1], names=getattr(rows.table, "columns", None))
    if isinstance(model, EstimatorFull) and not _offers_probability(model.estimator):
        model = _calibrated(model.estimator, _raw_scores(model.estimator, rows.table), rows)
    judged = JudgedFull(model, model.probability(rows.table, rows.positions, rows.n_given))
    _warn_if_optimistic(judged, rows, name)
    return judged


def as_full_model(full: Any, classes: NDArray[Any], n_features: int, *, names: Any = None) -> FullModel:
    """A ``FullModel`` of something that was fitted elsewhere, checked against the classes and the columns.

    A classifier with only a ``decision_function`` answers with ``expit`` of it, uncalibrated.
    """
    if isinstance(full, type):
        raise InvalidInputError(
            f"full must be a model, not a class; got {full.__name__}. Write {full.__name__}()."
        )
    estimator = full.estimator if isinstance(full, FrozenEstimator) else full
    if _is_estimator(estimator):
        _check_suits(estimator, classes, n_features, names)
        return EstimatorFull(estimator)
    if callable(getattr(full, "probability", None)):
        model: FullModel = full
        return model
    if callable(full):
        return CallableFull(full)
    return PrecomputedFull(_check_probability(full, None, "full"))


def _is_estimator(full: Any) -> bool:
    return hasattr(full, "fit") and hasattr(full, "get_params") and not isinstance(full, type)


def _cross_fit(full: Any, rows: TrainingRows, n_jobs: int | None) -> JudgedFull:
    if not is_classifier(full):
        raise InvalidInputError(
            f"full must be a classifier; got {type(full).__name__}. Wrap a fitted model in FrozenEstimator, "
            f"or pass a function that returns probabilities."
        )
    everyone = np.arange(len(rows.y))
    fitted = _fit_copy(full, rows, everyone)
    held_out = held_out_rows(rows)
    scores = Parallel(n_jobs=n_jobs)(
        delayed(_score_held_out)(full, rows, np.setdiff1d(everyone, out), out) for out in held_out
    )
    raw = np.empty(len(rows.y))
    for out, score in zip(held_out, scores, strict=True):
        raw[out] = score
    if _offers_probability(fitted):
        return JudgedFull(EstimatorFull(fitted), clip_probability(raw))
    model = _calibrated(fitted, raw, rows)
    return JudgedFull(model, clip_probability(expit(model.slope * raw + model.intercept)))


def assign_folds(cv: Any, X: Any, y: Floats, seed: int) -> NDArray[np.intp]:
    """Fold of each row, from a number of folds, a scikit-learn splitter, or an iterable of (train, test).

    A number gives folds by content: stratified, with equal rows together, and fewer of them where a class has
    too few distinct rows.
    """
    if isinstance(cv, int | np.integer) and cv >= 2:
        distinct = min(
            len(np.unique(fingerprints(X[np.flatnonzero(y == label)], seed))) for label in (-1.0, 1.0)
        )
        return (
            content_folds(X, y, min(int(cv), distinct), seed)
            if distinct >= 2
            else np.zeros(len(y), dtype=np.intp)
        )
    folds = np.full(len(y), -1, dtype=np.intp)
    try:
        splits = list(cv.split(X, y) if hasattr(cv, "split") else cv)
        for number, (_, held_out) in enumerate(splits):
            folds[held_out] = number
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f"cv must be a number of folds >= 2, a splitter or an iterable of (train, test); got {cv!r} ({error})."
        ) from error
    if np.any(folds < 0):
        raise InvalidInputError(
            f"cv must hold every row out once; {int(np.sum(folds < 0))} rows are never held out."
        )
    return folds


def held_out_rows(rows: TrainingRows) -> list[NDArray[np.intp]]:
    """Rows of each fold; what is left of the others must hold both classes, for every fold."""
    folds = [np.flatnonzero(rows.folds == fold) for fold in np.unique(rows.folds)]
    if len(folds) < 2:
        raise InvalidInputError(
            "a model cannot be cross-fitted: one class has fewer than two distinct rows. "
            "Give more rows, or the model in fitted form as FrozenEstimator(model)."
        )
    for fold in folds:
        if len(np.unique(np.delete(rows.y, fold))) < 2:
            raise InvalidInputError(
                "cv leaves only one class to fit on when a fold is held out. Use fewer folds, or stratified ones."
            )
    return folds


def _score_held_out(
    full: Any, rows: TrainingRows, train: NDArray[np.intp], held_out: NDArray[np.intp]
) -> Floats:
    return _raw_scores(_fit_copy(full, rows, train), _safe_indexing(rows.table, held_out))


def _fit_copy(full: Any, rows: TrainingRows, chosen: NDArray[np.intp]) -> Any:
    arguments = {}
    if rows.weighted and has_fit_parameter(full, "sample_weight"):
        arguments["sample_weight"] = rows.weight[chosen]
    return clone(full).fit(_safe_indexing(rows.table, chosen), rows.labels[chosen], **arguments)


def _check_suits(estimator: Any, classes: NDArray[Any], n_features: int, names: Any) -> None:
    kind = type(estimator).__name__
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise InvalidInputError(
            f"full is a {kind} that is not fitted. Fit it first, or pass it unfrozen."
        ) from error
    if not (_offers_probability(estimator) or hasattr(estimator, "decision_function")):
        raise InvalidInputError(
            f"full must offer predict_proba or decision_function; {kind} has neither. "
            f"Pass a function that returns probabilities instead."
        )
    theirs = np.asarray(getattr(estimator, "classes_", classes))
    if not np.array_equal(theirs, classes):
        raise InvalidInputError(
            f"full was fitted on the classes {theirs.tolist()}, but y holds {classes.tolist()}. "
            f"Both must have the same two labels."
        )
    width = getattr(estimator, "n_features_in_", n_features)
    if width != n_features:
        raise InvalidInputError(
            f"full was fitted on {width} features, but X has {n_features}. Give X with the columns f0 reads."
        )
    known = getattr(estimator, "feature_names_in_", None)
    if known is not None and names is not None and list(known) != list(names):
        other = next(f"{a!r} where X has {b!r}" for a, b in zip(known, names, strict=True) if a != b)
        raise InvalidInputError(
            f"full was fitted on other columns, or in another order: {other}. Give X with f0's columns, in its order."
        )


def _offers_probability(estimator: Any) -> bool:
    return hasattr(estimator, "predict_proba")


def _raw_scores(estimator: Any, table: Any) -> Floats:
    """Probability of the second class, or the decision value where there is no probability."""
    if _offers_probability(estimator):
        return np.asarray(estimator.predict_proba(table), dtype=np.float64)[:, 1]
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(table), dtype=np.float64).reshape(-1)
    raise InvalidInputError(
        f"full must offer predict_proba or decision_function; {type(estimator).__name__} has neither."
    )


def _calibrated(estimator: Any, decision: Floats, rows: TrainingRows) -> EstimatorFull:
    """Platt's sigmoid, fitted on decision values of rows the estimator has not been fitted on."""
    scale = float(np.std(decision)) or 1.0
    sigmoid = LogisticRegression(C=1e4).fit(
        (decision / scale)[:, None], rows.y > 0, sample_weight=rows.weight
    )
    return EstimatorFull(estimator, float(sigmoid.coef_[0, 0]) / scale, float(sigmoid.intercept_[0]))


def _check_probability(answer: ArrayLike, n_rows: int | None, who: str) -> Floats:
    """Probabilities of class +1, one per row, from those of class +1 or of both classes."""
    try:
        probability = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"full must be a classifier, a FrozenEstimator, a function or an array of probabilities; "
            f"got {type(answer).__name__}."
        ) from None
    if probability.ndim == 2 and probability.shape[1] == 2:
        probability = probability[:, 1]
    wanted = "n" if n_rows is None else str(n_rows)
    if probability.ndim != 1 or n_rows not in (None, len(probability)):
        raise InvalidInputError(
            f"{who} must give one probability of the second class per row, shape ({wanted},) or ({wanted}, 2); "
            f"got shape {np.shape(answer)}."
        )
    wrong = ~((probability >= 0) & (probability <= 1))
    if wrong.any():
        raise InvalidInputError(
            f"{who} must give probabilities in [0, 1]; got {float(probability[wrong][0])!r}."
        )
    return probability


def _warn_if_optimistic(judged: JudgedFull, rows: TrainingRows, name: str) -> None:
    mean_loss = float(np.average(judged.loss(rows.y), weights=rows.weight))
    right = (judged.probability > 0.5) == (rows.y > 0)
    if len(rows.y) >= _SUSPICIOUS_ROWS and (mean_loss < _SUSPICIOUS_LOSS or right.all()):
        warnings.warn(
            f"{name} has log-loss {mean_loss:.2g} and accuracy {right.mean():.4g} on the {len(rows.y)} rows given: it "
            f"was probably trained on them, and the gate will learn to trust it too much. Fit on rows that {name} has "
            f"not seen, or pass it unfrozen so that it is cross-fitted.",
            OptimisticFullModelWarning,
            stacklevel=5,
        )
