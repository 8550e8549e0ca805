"""Candidates for the full model, by kind: forest, SVM, boosting, XGBoost, LightGBM.

Kinds are compared by cross-validated accuracy, R2, or the ranking metric, on at most ``SAMPLE`` rows; the best one is
then fitted on all rows.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty.arrays import Ints
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import fit_model
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.tasks.regression import RegressionTask, default_regressor
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError
from thrifty.progress import Progress
from thrifty.rows import content_folds, fingerprints, query_folds, query_keys

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
