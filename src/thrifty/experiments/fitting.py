"""Fit many settings and keep only their scores: what the choice between them needs."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from thrifty.datasets import Split
from thrifty.exceptions import OptimisticFullModelWarning
from thrifty.experiments.outcome import Progress
from thrifty.experiments.selection import Candidate, FullAnswers
from thrifty.judging import TrainingRows, assign_folds, judge_full

__all__ = ["fit_candidates", "judge_on_split"]

Floats = NDArray[np.float64]


def judge_on_split(model: Any, split: Split, *, cost: float) -> tuple[Floats, FullAnswers]:
    """Fit f0 once: its out-of-fold probabilities on the training rows, right or wrong on the others."""
    signs = np.where(split.y_train == 1, 1.0, -1.0)
    folds = assign_folds(5, split.X_train, signs, seed=0)
    everyone = np.arange(len(signs))
    rows = TrainingRows(
        split.X_train,
        split.X_train,
        signs,
        np.array([0, 1]),
        np.ones(len(signs)),
        folds,
        everyone,
        len(signs),
    )
    judged = judge_full(model, rows)

    def is_right(X: Floats, y: NDArray[np.intp]) -> NDArray[np.bool_]:
        answers_one = judged.model.probability(X, np.arange(len(X)), len(X)) > 0.5
        right: NDArray[np.bool_] = answers_one == (y == 1)
        return right

    right_val, right_test = is_right(split.X_val, split.y_val), is_right(split.X_test, split.y_test)
    return judged.probability, FullAnswers(split.y_val, right_val, split.y_test, right_test, cost)


def fit_candidates(
    estimators: Sequence[Any],
    settings: Sequence[dict[str, Any]],
    split: Split,
    n_jobs: int,
    progress: Progress,
    what: str,
    *,
    threshold: float = 0.0,
) -> list[Candidate]:
    """Fit each estimator on the training rows and score the others, in parallel, reporting progress."""
    cells = zip(estimators, settings, strict=True)
    jobs = (delayed(_fit_one)(estimator, cell, split, threshold) for estimator, cell in cells)
    found = []
    for candidate in Parallel(n_jobs=n_jobs, return_as="generator")(jobs):
        found.append(candidate)
        progress(what, len(found), len(settings))
    return found


def _fit_one(estimator: Any, settings: dict[str, Any], split: Split, threshold: float) -> Candidate:
    with warnings.catch_warnings():
        # A sweep runs the paper's number of rounds, converged or not, and gives f0 as
        # probabilities that are out of fold already.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimisticFullModelWarning)
        fitted = estimator.fit(split.X_train, split.y_train)
    g_val, f1_val = fitted.scores(split.X_val)
    g_test, f1_test = fitted.scores(split.X_test)
    cost = float(fitted.system_.cost_by_route[0])
    bought = tuple(int(column) for column in fitted.features_)
    return Candidate(settings, cost, g_val, f1_val, g_test, f1_test, threshold, bought)
