"""f0's honest loss on the training rows, wherever f0 came from.

A model that was fitted on a row is too sure about it. So a model that we fit is judged on each training row by a
copy that has not seen that row; one that was fitted elsewhere is judged as it is, and a warning says when that looks
too good.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from thrifty.arrays import Floats
from thrifty.exceptions import InvalidInputError, OptimisticFullModelWarning
from thrifty.full.model import (
    EstimatorFull,
    FullModel,
    as_full_model,
    clip_probability,
    is_estimator,
    offers_probability,
    raw_scores,
)
from thrifty.objective.losses import log_loss_of_probability
from thrifty.rows import content_folds, fingerprints

__all__ = ["JudgedFull", "TrainingRows", "assign_folds", "fit_copy", "held_out_rows", "judge_full"]


_SUSPICIOUS_LOSS = 0.01
_SUSPICIOUS_ROWS = 50


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

    def log_odds(self) -> Floats:
        """Log-odds of class +1 per training row."""
        return np.asarray(logit(self.probability), dtype=np.float64)

    def belief_log_odds(self, rows: TrainingRows) -> Floats:
        """The same after Platt's sigmoid: what f0 says, on the scale of how often it is right.

        Large boosted models are far too sure of themselves; a probability that stands in for a label must not be.
        """
        slope, intercept = _sigmoid(self.log_odds(), rows)
        return slope * self.log_odds() + intercept

    def belief(self, rows: TrainingRows) -> Floats:
        """Calibrated probability of class +1 per training row."""
        return np.asarray(expit(self.belief_log_odds(rows)), dtype=np.float64)


def judge_full(full: Any, rows: TrainingRows, *, n_jobs: int | None = None, name: str = "f0") -> JudgedFull:
    """Make a ``FullModel`` of whatever the user gave and find its loss on the training rows.

    An unfitted estimator is cloned and fitted on all rows; its training probabilities come from
    one further fit per fold, each judged on the rows it has not seen. So is one that is fitted but not frozen: as
    everywhere in scikit-learn, a bare estimator is a recipe. Anything else was fitted elsewhere and is judged on
    the rows given: they should be rows it was not trained on, and a loss near zero raises a warning.
    """
    if is_estimator(full) and not isinstance(full, FrozenEstimator):
        return _cross_fit(full, rows, n_jobs)
    model = as_full_model(full, rows.classes, rows.X.shape[1], names=getattr(rows.table, "columns", None))
    if isinstance(model, EstimatorFull) and not offers_probability(model.estimator):
        model = _calibrated(model.estimator, raw_scores(model.estimator, rows.table), rows)
    judged = JudgedFull(model, model.probability(rows.table, rows.positions, rows.n_given))
    _warn_if_optimistic(judged, rows, name)
    return judged


def _cross_fit(full: Any, rows: TrainingRows, n_jobs: int | None) -> JudgedFull:
    if not is_classifier(full):
        raise InvalidInputError(
            f"full must be a classifier; got {type(full).__name__}. Wrap a fitted model in FrozenEstimator, "
            f"or pass a function that returns probabilities."
        )
    everyone = np.arange(len(rows.y))
    fitted = fit_copy(full, rows, everyone)
    held_out = held_out_rows(rows)
    scores = Parallel(n_jobs=n_jobs)(
        delayed(_score_held_out)(full, rows, np.setdiff1d(everyone, out), out) for out in held_out
    )
    raw = np.empty(len(rows.y))
    for out, score in zip(held_out, scores, strict=True):
        raw[out] = score
    if offers_probability(fitted):
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
    # Workers differ in their number of BLAS threads, and sums of a BLAS depend on it in their last digit.
    with threadpool_limits(1, user_api="blas"):
        return raw_scores(fit_copy(full, rows, train), _safe_indexing(rows.table, held_out))


def fit_copy(full: Any, rows: TrainingRows, chosen: NDArray[np.intp]) -> Any:
    """A copy of an unfitted estimator, fitted on some of the rows."""
    arguments = {}
    if rows.weighted and has_fit_parameter(full, "sample_weight"):
        arguments["sample_weight"] = rows.weight[chosen]
    return clone(full).fit(_safe_indexing(rows.table, chosen), rows.labels[chosen], **arguments)


def _calibrated(estimator: Any, decision: Floats, rows: TrainingRows) -> EstimatorFull:
    """Platt's sigmoid, fitted on decision values of rows the estimator has not been fitted on."""
    return EstimatorFull(estimator, *_sigmoid(decision, rows))


def _sigmoid(decision: Floats, rows: TrainingRows) -> tuple[float, float]:
    """Slope and intercept of the logistic regression of the labels on one score."""
    middle = np.average(decision, weights=rows.weight)
    scale = float(np.sqrt(np.average(np.square(decision - middle), weights=rows.weight))) or 1.0
    # To the last digits: what follows treats a row of weight two as two rows.
    sigmoid = LogisticRegression(C=1e4, tol=1e-10, max_iter=1000).fit(
        (decision / scale)[:, None], rows.y > 0, sample_weight=rows.weight
    )
    return float(sigmoid.coef_[0, 0]) / scale, float(sigmoid.intercept_[0])


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
