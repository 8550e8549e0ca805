"""From a fitted estimator and labelled rows to outcomes: who was right, and what it cost.

f0 is asked about the rows at most once, and not at all where its probabilities are known: a sweep of two hundred
fits behind one f0 asks it once for all of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from thrifty.arrays import Bools, Floats
from thrifty.evidence.outcomes import PointOutcomes, RowOutcomes
from thrifty.evidence.row_checks import column_numbers, known_labels, numbers_per_row
from thrifty.exceptions import InvalidInputError

__all__ = ["outcomes_of", "point_of"]


def outcomes_of(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    settings: dict[str, Any] | None = None,
    threshold: float | None = None,
    full_probability: ArrayLike | None = None,
) -> RowOutcomes:
    """Every threshold of a fitted estimator's first gate, on rows with known labels.

    Parameters
    ----------
    estimator : fitted estimator
        With ``system_``, ``scores`` and ``classes_``, as every ``GatedClassifier`` has.
    X : table of shape (n_samples, n_features)
        Rows that neither the estimator nor its f0 was fitted on.
    y : array-like of shape (n_samples,)
        Their labels.
    settings : dict, optional
        What tells this fit from others.
    threshold : float, optional
        The only threshold allowed.
    full_probability : array-like of shape (n_samples,) or (n_samples, 2), optional
        f0's probabilities on these rows, if they are known; otherwise f0 is asked about all of them, once.
    """
    g, f1 = estimator.scores(X)
    system = estimator.system_
    positive = _is_positive(y, estimator.classes_, len(g))
    reader, rows = system.reader(X), np.arange(len(g))
    if full_probability is None:
        probability = system.full.probability(reader.table(rows), rows, len(g))
    else:
        probability = _probability(full_probability, len(g))
    full_right = (probability > 0.5) == positive
    behind = replace(system, stages=system.stages[1:])
    if behind.n_stages == 0:
        go_cost, go_right = float(system.cost_by_route[-1]), full_right
    else:
        walk = behind.walk(reader)
        cheap_right = (expit(walk.cheap) > 0.5) == positive
        go_right = np.where(walk.route == behind.n_stages, full_right, cheap_right)
        go_cost = system.cost_by_route[walk.route + 1]
    return RowOutcomes(
        g=g,
        stop_cost=float(system.cost_by_route[0]),
        go_cost=go_cost,
        stop_right=(expit(f1) > 0.5) == positive,
        go_right=go_right,
        features=system.stages[0].scorer.columns,
        settings={} if settings is None else settings,
        threshold=threshold,
        full_right=None if behind.n_stages == 0 else full_right,
    )


def point_of(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    settings: dict[str, Any] | None = None,
    full_probability: ArrayLike | None = None,
) -> PointOutcomes:
    """A fitted estimator as it is, all its thresholds included, as one operating point.

    Parameters as in ``outcomes_of``. Without ``full_probability`` f0 is asked only about the rows that reach it,
    and nothing can be said against f0 afterwards.
    """
    system = estimator.system_
    reader = system.reader(X)
    walk = system.walk(reader)
    positive = _is_positive(y, estimator.classes_, reader.n_samples)
    sent = walk.route == system.n_stages
    full_right = None
    if full_probability is None:
        right = (system.answer(reader, walk) > 0.5) == positive
    else:
        full_right = (_probability(full_probability, reader.n_samples) > 0.5) == positive
        right = np.where(sent, full_right, (expit(walk.cheap) > 0.5) == positive)
    bought = np.flatnonzero(system.bought_by_route[-2]) if system.n_stages else ()
    return PointOutcomes(
        cost=system.cost_by_route[walk.route],
        right=right,
        sent=sent,
        features=column_numbers(bought),
        settings={} if settings is None else settings,
        full_right=full_right,
    )


def _is_positive(y: ArrayLike, classes: NDArray[Any], n_rows: int) -> Bools:
    positive: Bools = known_labels("y", y, n_rows, classes) == classes[1]
    return positive


def _probability(probability: ArrayLike, n_rows: int) -> Floats:
    values = np.asarray(probability, dtype=np.float64)
    values = numbers_per_row("full_probability", values[:, 1] if values.ndim == 2 else values, n_rows)
    if ((values < 0) | (values > 1)).any():
        raise InvalidInputError(
            f"full_probability must lie in [0, 1]; got values from {values.min():g} to {values.max():g}."
        )
    return values
