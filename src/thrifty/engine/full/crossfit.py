"""Cross-fitting: out-of-fold outputs of the full model on the training rows.

A model is too confident about rows that it was fitted on. An unfitted model is therefore fitted once per fold, and each
training row is predicted by the copy that has not seen it; a model that was fitted elsewhere is evaluated as it is,
with a warning where its outputs look too good.

Where a user has only a table, kinds of full models (forest, SVM, boosting, XGBoost, LightGBM) are compared by
cross-validated accuracy, R2, or the ranking metric, on at most ``SAMPLE`` rows; the best one is then fitted on all
rows.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import (
    EstimatorFull,
    FullModel,
    PrecomputedFull,
    as_full_model,
    ask_model,
    fit_model,
    is_estimator,
)
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.regression import RegressionTask, default_regressor
from thrifty.engine.tasks.task import Task
from thrifty.errors import (
    FULL_MODEL,
    InvalidInputError,
    OptimisticFullModelWarning,
    RefittedFullModelWarning,
    renumber_rows_in_errors,
)
from thrifty.progress import Progress, silent
from thrifty.rows import content_folds, fingerprints, query_folds, query_keys
from thrifty.threads import in_context, limited_threads, stop_on_error

EVALUATED_ROWS = 2_500
"""Held-out rows that suffice: of more rows fewer folds are held out (``benchmarks/fit_ratio.py``, and
``benchmarks/promises.py --rows 5000``)."""

MANY_ROWS, MANY_HELD_OUT, PART_SEED = 100_000, 5_000, 600
"""Rows from which on a part of one fold is held out, of about so many rows (``benchmarks/fit_ratio.py many``)."""

_WHAT = "cross-fitting the full model"
_SUSPICIOUS_LOSS = 0.01
# Numbers are often predicted to a per cent of their spread by a model that has not seen them.
_SUSPICIOUS_ERROR = 1e-4
_SUSPICIOUS_ROWS = 50


@dataclass(frozen=True)
class TrainingRows:
    """The rows a system is fitted on.

    Attributes
    ----------
    table : Table
        The rows: as the user gave them, which the full model reads, and as numbers. Their numbers are their places
        among all rows that the user gave, those of weight zero included.
    y : ndarray of shape (n_samples,)
        Targets, as the task encodes them.
    task : Task
        What is predicted.
    weight : ndarray of shape (n_samples,)
        Sample weights, all positive: rows of weight zero are left out.
    weighted : bool
        Whether the user gave weights; the full model is fitted with them only then.
    folds : ndarray of shape (n_samples,)
        Fold that holds each row out: the full model, and any other model we fit, predicts it from the other folds. -1
        for rows that no fold holds out; outputs of a cross-fitted full model are NaN there.
    every_row : ndarray or CSR of shape (n_given, n_features), optional
        All rows the user gave, as numbers: precomputed outputs belong to them. None where they are ``X``.
    """

    table: Table
    y: Floats
    task: Task
    weight: Floats
    folds: Ints
    weighted: bool = False
    every_row: Any = None

    @property
    def X(self) -> Any:  # noqa: N802 - as everywhere in scikit-learn
        """The table as numbers, ndarray or CSR of shape (n_samples, n_features)."""
        return self.table.numbers

    @property
    def positions(self) -> Ints:
        """Numbers of the rows in the user's table."""
        return self.table.numbers_of(np.arange(len(self.y)))

    @property
    def labels(self) -> Labels:
        """Targets as the user wrote them."""
        return self.task.decode(self.y)

    def take(self, rows: Ints) -> "TrainingRows":
        """Some of the rows."""
        return replace(
            self,
            every_row=self.X if self.every_row is None else self.every_row,
            table=self.table.take(rows),
            y=self.y[rows],
            weight=self.weight[rows],
            folds=self.folds[rows],
        )

    def with_enough_folds(self, shown: Any, *, times: int = 1) -> "TrainingRows":
        """The same rows, of which as many folds are held out as have ``EVALUATED_ROWS``, or a part of one.

        ``shown`` is their content, by which a fold is parted; ``times`` as many rows are wanted.
        """
        n_held_out = np.cumsum(np.bincount(self.folds))
        n_folds = int(np.searchsorted(n_held_out, min(times * EVALUATED_ROWS, n_held_out[-1]))) + 1
        folds = np.where(self.folds < n_folds, self.folds, -1)
        first = np.flatnonzero(folds == 0)
        # Where scores carry no uncertainty, gates are learned from all held-out rows.
        is_class = self.task.has_uncertainty
        if is_class and len(folds) >= MANY_ROWS and len(first) >= 2 * MANY_HELD_OUT:
            strata = self.task.strata(self.y[first])
            parts = content_folds(shown[first], strata, len(first) // MANY_HELD_OUT, PART_SEED)
            folds[first[parts > 0]] = -1
        return replace(self, folds=folds)

    def with_columns(self, columns: Ints | None) -> "TrainingRows":
        """All rows with some of the columns; None is all of them."""
        if columns is None:
            return self
        return replace(
            self,
            table=self.table.with_columns(columns),
            every_row=None if self.every_row is None else self.every_row[:, columns],
        )


@dataclass(frozen=True)
class CrossFittedFull:
    """A full model, and its outputs on the training rows: out of fold, or as they are for a model fitted elsewhere."""

    model: FullModel
    outputs: Floats
    task: Task

    @property
    def scores(self) -> Floats:
        """Scores per training row, shape (n_samples, n_scores)."""
        return self.task.scores(self.outputs)

    def loss(self, y: Floats) -> Floats:
        """Loss per training row."""
        return models_of(self.task).loss(y, self.outputs)

    def calibrated_scores(self, rows: TrainingRows) -> Floats:
        """Scores after calibration on the training rows: large boosted models are overconfident."""
        return self.task.calibrated(
            self.scores, models_of(self.task).calibrate(self.scores, rows.y, rows.weight)
        )


def cross_fit_full(
    full: Any,
    rows: TrainingRows,
    *,
    n_jobs: int | None = None,
    name: str = FULL_MODEL,
    other_work: Future[Any] | None = None,
    progress: Progress = silent,
) -> CrossFittedFull:
    """Turn the ``full`` of an estimator into a ``FullModel`` with its outputs on the training rows.

    An estimator that is not frozen, fitted or not, is cloned and fitted on all rows, as everywhere in scikit-learn; its
    training outputs come from one further fit per fold, which predicts the rows it has not seen. Any other model was
    fitted elsewhere and is evaluated on the rows given, which it should not have been trained on: a loss near zero
    raises a warning. ``other_work`` of the process has one of the threads until it ends; ``progress`` is called as
    each fit ends.
    """
    task = rows.task
    if is_estimator(full) and not isinstance(full, FrozenEstimator):
        _mention_refit(full, name)
        with stop_on_error():
            return _fit_by_fold(full, rows, n_jobs, name, other_work, progress)
    names = rows.table.columns if rows.table.kind else None
    every_row = rows.X if rows.every_row is None else rows.every_row
    model = as_full_model(full, task, rows.X.shape[1], names=names, numbers=every_row, who=name)
    if isinstance(model, EstimatorFull) and not models_of(task).is_calibrated(model.estimator):
        with renumber_rows_in_errors(rows.positions, name):
            raw = models_of(task).raw_outputs(model.estimator, rows.table.native)
        model = replace(model, calibration=models_of(task).calibrate(raw, rows.y, rows.weight))
    if isinstance(model, PrecomputedFull) and model is not full:
        outputs = model.values[rows.positions]  # by place: equal rows may have different outputs
    else:
        outputs = ask_model(model, task, rows.table.native, rows.X, rows=rows.positions, who=name)
    progress(_WHAT, 1, 1)
    cross_fitted = CrossFittedFull(model, outputs, task)
    _warn_if_optimistic(cross_fitted, rows, name)
    return cross_fitted


def _fit_by_fold(
    full: Any,
    rows: TrainingRows,
    n_jobs: int | None,
    name: str,
    other_work: Future[Any] | None,
    progress: Progress,
) -> CrossFittedFull:
    task, everyone = rows.task, np.arange(len(rows.y))
    models = models_of(task)
    models.check_unfitted(full, name)
    held_out = held_out_rows(rows)
    # Threads by default: most models compute without the interpreter's lock, and processes take seconds to start.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")

    def results_of(work: list[Any], n_done: int) -> Iterator[Any]:
        for number, result in enumerate(parallel(work), n_done + 1):
            progress(_WHAT, max(number, 1), len(held_out) + 1)
            yield result

    has_threads = getattr(get_active_backend(prefer="threads")[0], "supports_sharedmem", False)
    ask = delayed(in_context(_ask_held_out) if has_threads else _ask_held_out)
    jobs = [ask(full, rows, np.setdiff1d(everyone, out), out, name) for out in held_out]
    if has_threads:
        fit_all = delayed(in_context(_fit_checked))(full, rows, everyone, name)
        waiting = [] if other_work is None else [delayed(wait)([other_work])]
        fitted, *scores = [*results_of([*waiting, fit_all, *jobs], -len(waiting))][len(waiting) :]
    else:  # the model that serves need not be pickled
        fitted, scores = _fit_checked(full, rows, everyone, name), [*results_of(jobs, 1)]
    raw = np.full((len(rows.y), scores[0].shape[1]), np.nan)
    for out, score in zip(held_out, scores, strict=True):
        raw[out] = score
    known = rows.folds >= 0
    calibration = models.calibration_of(fitted, raw[known], rows.y[known], rows.weight[known])
    model = EstimatorFull(fitted, task, calibration)
    return CrossFittedFull(model, models.outputs(raw, calibration), task)


def assign_folds(cv: Any, X: Any, y: Labels, strata: Labels, seed: int, query: Ints | None = None) -> Ints:
    """Fold of each row, from a number of folds, a scikit-learn splitter, or an iterable of (train, test).

    A number gives folds by content: each with its share of every stratum, with equal rows together, and fewer of them
    where a stratum has too few distinct rows. Rows of one query are never parted.
    """
    if isinstance(cv, int | np.integer) and cv >= 2 and query is not None:
        return query_folds(X, query, strata, int(cv), seed)
    if isinstance(cv, int | np.integer) and cv >= 2:
        distinct = min(
            len(np.unique(fingerprints(X[np.flatnonzero(strata == stratum)], seed)))
            for stratum in np.unique(strata)
        )
        return (
            content_folds(X, strata, min(int(cv), distinct), seed)
            if distinct >= 2
            else np.zeros(len(y), dtype=np.intp)
        )
    folds = np.full(len(y), -1, dtype=np.intp)
    try:
        arguments = (X, y) if query is None else (X, y, query)
        splits = list(cv.split(*arguments) if hasattr(cv, "split") else cv)
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
    if query is not None and len(np.unique(np.column_stack([query, folds]), axis=0)) > len(np.unique(query)):
        raise InvalidInputError(
            "cv must keep the documents of a query in one fold, and parts some. Give a number of folds, or a splitter "
            "of groups such as GroupKFold()."
        )
    return folds


def held_out_rows(rows: TrainingRows) -> list[Ints]:
    """Rows of each fold; without a fold, the other rows must still hold every stratum of the targets."""
    numbers = np.unique(rows.folds)
    folds = [np.flatnonzero(rows.folds == fold) for fold in numbers[numbers >= 0]]
    if len(numbers) < 2 and rows.task.query_of(rows.y) is not None:
        raise InvalidInputError(
            "a ranking cannot be learned from one query, or from copies of one: models are evaluated on queries that "
            "they were not fitted on. Give documents of more queries."
        )
    if len(numbers) < 2:
        raise InvalidInputError(
            "a model cannot be cross-fitted: one class has fewer than two distinct rows. Give more rows, columns that "
            "tell them apart, or the model in fitted form as FrozenEstimator(model)."
        )
    strata = rows.task.strata(rows.y)
    n_strata = len(np.unique(strata))
    for fold in folds:
        left = len(np.unique(np.delete(strata, fold)))
        if left < n_strata:
            lacking = f"only {left} of the {n_strata} classes"
            if rows.task.query_of(rows.y) is not None:
                lacking = "only documents that are relevant, or only others,"
            raise InvalidInputError(
                f"cv leaves {lacking} to fit on when a fold is held out. Use fewer folds, or stratified ones."
            )
    return folds


def _fit_checked(full: Any, rows: TrainingRows, chosen: Ints, name: str) -> Any:
    # Fits run in parallel, and worker processes do not inherit the limits of this one.
    with limited_threads(openmp=1, blas=1):
        fitted = fit_copy(full, rows, chosen)
    models_of(rows.task).check_fitted(fitted, name)
    return fitted


def _ask_held_out(full: Any, rows: TrainingRows, train: Ints, held_out: Ints, name: str) -> Floats:
    with limited_threads(openmp=1, blas=1), renumber_rows_in_errors(rows.positions[held_out], name):
        fitted = _fit_checked(full, rows, train, name)
        return models_of(rows.task).raw_outputs(fitted, rows.table.native_rows(held_out))


def fit_copy(full: Any, rows: TrainingRows, chosen: Ints) -> Any:
    """A copy of an unfitted estimator, fitted on some of the rows."""
    labels, arguments = models_of(rows.task).fit_arguments(full, rows.y[chosen])
    if rows.weighted and has_fit_parameter(full, "sample_weight"):
        arguments["sample_weight"] = rows.weight[chosen]
    return fit_model(clone(full), rows.table.native_rows(chosen), labels, **arguments)


def _mention_refit(full: Any, name: str) -> None:
    """Warn that a fitted estimator is cloned and fitted again: its training may have taken a day."""
    try:
        check_is_fitted(full)
        is_fitted = bool(get_tags(full).requires_fit)
    except NotFittedError:
        is_fitted = False
    if is_fitted:
        warnings.warn(
            f"{name} is a fitted {type(full).__name__}, and is cloned and fitted again, as everywhere in scikit-learn. "
            f"Give FrozenEstimator({type(full).__name__.lower()}) to keep it as it is, and rows that it has not seen.",
            RefittedFullModelWarning,
            stacklevel=5,
        )


def _warn_if_optimistic(cross_fitted: CrossFittedFull, rows: TrainingRows, name: str) -> None:
    mean_loss = float(np.average(cross_fitted.loss(rows.y), weights=rows.weight))
    task, quality = rows.task, rows.task.quality(rows.y, cross_fitted.outputs)
    is_class = quality.dtype == bool
    too_good = mean_loss < (_SUSPICIOUS_LOSS if is_class else _SUSPICIOUS_ERROR) or (
        is_class and quality.all()
    )
    if len(rows.y) >= _SUSPICIOUS_ROWS and too_good:
        warnings.warn(
            f"{name} has {task.loss_name} {mean_loss:.2g} and {task.quality_name} {quality.mean():.4g} on the "
            f"{len(rows.y)} rows given: it was probably trained on them, and the gate will learn to trust it too much. "
            f"Fit on rows that {name} has not seen, or pass it unfrozen so that it is cross-fitted.",
            OptimisticFullModelWarning,
            stacklevel=5,
        )


# -- candidates where a user has only a table ------------------------------------------------------


SAMPLE = 5_000
"""Largest number of rows for the comparison of kinds."""
_FOLDS = 3
_MAX_SVM_ROWS = 20_000  # the time of a kernel machine grows with the square of the rows

KINDS = {
    "forest": "a random forest of 300 trees",
    "svm": "an RBF support vector machine on standardised columns",
    "boosting": "histogram gradient boosting",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}
_BOOSTERS = ("xgboost", "lightgbm")
_OBJECTIVES = {
    "xgboost": {
        "squared": "reg:squarederror",
        "absolute": "reg:absoluteerror",
        "pinball": "reg:quantileerror",
    },
    "lightgbm": {"squared": "regression", "absolute": "regression_l1", "pinball": "quantile"},
}
_BOOSTED: dict[str, Any] = {"n_estimators": 300, "learning_rate": 0.1}


@dataclass(frozen=True)
class KindComparison:
    """The best kind, and the cross-validated accuracy, R2 or ranking metric of every kind."""

    best: str
    scores: dict[str, float]
    n_rows: int


def new_model(kind: str, seed: int, n_jobs: int, task: Task | None = None) -> Any:
    """Unfitted classifier, regressor or ranker of a kind."""
    if kind not in KINDS:
        raise InvalidInputError(
            f"the full model must be auto, one of {', '.join(KINDS)}, or a file with a fitted model; got {kind!r}."
        )
    if kind in _BOOSTERS and not _is_installed(kind):
        raise InvalidInputError(
            f"the full model {kind} needs {KINDS[kind]}, which is not installed. Install it with "
            f"`pip install thrifty[boosters]`, or use boosting."
        )
    if isinstance(task, RegressionTask):
        return _regressor(kind, seed, n_jobs, task)
    if kind == "forest":
        return RandomForestClassifier(300, random_state=seed, n_jobs=n_jobs)
    if kind == "svm":
        return make_pipeline(StandardScaler(), SVC(C=10.0, random_state=seed))
    if kind == "boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    return _booster(kind, "Classifier", random_state=seed, n_jobs=n_jobs)


def _booster(kind: str, name: str, **settings: Any) -> Any:
    """Unfitted estimator of XGBoost or LightGBM."""
    quiet = {"verbosity": -1} if kind == "lightgbm" else {}
    prefix = "XGB" if kind == "xgboost" else "LGBM"
    return getattr(importlib.import_module(kind), prefix + name)(**quiet, **_BOOSTED, **settings)


def _regressor(kind: str, seed: int, n_jobs: int, task: RegressionTask) -> Any:
    """Unfitted regressor of a kind, with the loss of the task if the kind supports it; or a ranker."""
    is_ranking, quantile = isinstance(task, RankingTask), task.quantile
    if kind == "forest":
        # By the squared error always: trees of medians take a hundred times as long, and there are none of quantiles.
        return RandomForestRegressor(300, random_state=seed, n_jobs=n_jobs)
    if kind == "svm":
        kinds = ", ".join(other for other in KINDS if other != "svm")
        wanted = "documents are ranked" if is_ranking else "numbers are predicted"
        raise InvalidInputError(
            f"the full model svm answers with classes, and here {wanted}. Use auto, one of {kinds}, or a "
            f"file with a fitted regressor."
        )
    if kind == "boosting":
        return default_regressor(task.kind, seed, quantile)
    settings: dict[str, Any] = {"random_state": seed, "n_jobs": n_jobs}
    if is_ranking:
        return _booster(kind, "Ranker", **settings)
    if task.kind == "pinball":
        settings["quantile_alpha" if kind == "xgboost" else "alpha"] = quantile
    return _booster(kind, "Regressor", objective=_OBJECTIVES[kind][task.kind], **settings)


def compare_kinds(
    X: Any, y: NDArray[Any], task: Task, *, seed: int, n_jobs: int, progress: Progress
) -> KindComparison:
    """Compare all kinds by cross-validated accuracy, R2 or ranking metric, on a bounded sample of the rows."""
    kinds = _eligible(len(y), len(task.classes) == 0 or bool(np.isnan(X).any()))
    chosen = _sample(X, seed, task.query_of(task.encode("y", y, len(y))))
    numbers, labels = np.asarray(X)[chosen], y[chosen]
    target = task.encode("y", labels, len(labels))
    # XGBoost reads no labels but 0 and 1.
    learned = np.unique(labels, return_inverse=True)[1] if len(task.classes) else labels
    unit = task.unit if isinstance(task, RegressionTask) else 1.0
    folds = _folds(numbers, task.strata(target), seed, task.query_of(target))
    scores: dict[str, float] = {}
    progress("comparing full models", 0, len(kinds))
    for kind in kinds:
        model, answers = new_model(kind, seed, n_jobs, task), np.zeros(len(labels))
        for fold in np.unique(folds):
            out = folds == fold
            targets: Any = learned[~out] if unit == 1.0 else learned[~out] / unit
            arguments: dict[str, Any] = {}
            if isinstance(task, RankingTask):
                targets, arguments = models_of(task).fit_arguments(model, target[~out])
            answers[out] = fit_model(clone(model), numbers[~out], targets, **arguments).predict(numbers[out])
        if isinstance(task, RankingTask):
            scores[kind] = float(np.nanmean(task.value_of_queries(target, answers)))
        elif len(task.classes):
            scores[kind] = float((answers == learned).mean())
        else:
            scores[kind] = float(task.quality(target, unit * answers[:, None]).mean())
        progress("comparing full models", len(scores), len(kinds))
    # The first of equals: a dict keeps its order.
    return KindComparison(max(scores, key=lambda kind: scores[kind]), scores, len(labels))


def _folds(numbers: Any, labels: NDArray[Any], seed: int, query: Ints | None) -> NDArray[np.intp]:
    """Folds by content, rows of a query together; by place too where equal rows would leave a fold without a class."""
    if query is not None:
        return query_folds(numbers, query, labels, _FOLDS, seed)
    folds = content_folds(numbers, labels, _FOLDS, seed)
    n_labels = len(np.unique(labels))
    if all(len(np.unique(labels[folds != fold])) == n_labels for fold in range(_FOLDS)):
        return folds
    placed = np.column_stack([numbers, np.arange(len(labels))])
    return content_folds(placed, labels, _FOLDS, seed)


def _eligible(n_rows: int, without_svm: bool) -> Sequence[str]:
    kinds = ["forest"]
    if n_rows <= _MAX_SVM_ROWS and not without_svm:
        kinds.append("svm")
    kinds.append("boosting")
    return [*kinds, *(kind for kind in _BOOSTERS if _is_installed(kind))]


def _sample(X: Any, seed: int, query: Ints | None) -> NDArray[np.intp]:
    """Rows sampled by content, queries whole: the same rows in any order of the table."""
    keys = fingerprints(np.asarray(X, dtype=np.float64), seed)
    if query is not None:
        keys = query_keys(keys[:, None], query)[np.unique(query, return_inverse=True)[1], 0]
    order = np.argsort(keys, kind="stable")
    return np.sort(order[:SAMPLE])


def _is_installed(kind: str) -> bool:
    return importlib.util.find_spec(kind) is not None
