"""What accuracy alone does not say about labels: balanced accuracy and log-loss of every point, each with its band.

The rows are drawn as for the bands of scores, and numbers are those of ``frontier.measures``. All points share one pass
over the draws: a page shows two hundred of them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints
from thrifty.evidence.compare import draws_of, tails
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.measures import LEAST_PROBABILITY
from thrifty.report.classes import told_apart
from thrifty.report.facts import MeasureCurve
from thrifty.report.routes import Routes
from thrifty.tasks.choose import classification
from thrifty.tasks.labels import ClassTask

__all__ = ["label_curves", "label_task"]


def label_task(frontier: Frontier, estimators: Sequence[Any] | None) -> ClassTask | None:
    """How labels are answered with, by the fitted systems, else by the frontier; None where nobody says."""
    served = [getattr(one, "chain_", one) for one in estimators or () if one is not None]
    known = next((one.task for one in served if hasattr(one, "task")), frontier.task)
    return known if isinstance(known, ClassTask) else None


def label_curves(
    y: ArrayLike,
    at: Sequence[tuple[Routes, Floats]],
    task: ClassTask | None,
    full_right: Bools | None,
    full_scores: Floats | None,
    *,
    level: float,
    n_boot: int,
    seed: int,
) -> tuple[MeasureCurve, ...]:
    """Accuracy and balanced accuracy of every point, and log-loss where the scores of the answers are known.

    The constants are what the shares of the classes achieve as the answer to every row.
    """
    _, of_row = told_apart(np.asarray(y))
    shares = np.bincount(of_row) / len(of_row)
    right = [routes.right(point) for routes, point in at]
    rows = {"accuracy": _with_full(right, full_right), "balanced accuracy": _with_full(right, full_right)}
    constants = {"accuracy": float(shares.max()), "balanced accuracy": 1.0 / len(shares)}
    lost = [_log_loss(y, routes.scores(point), task) for routes, point in at]
    known = [one for one in lost if one is not None and not np.isnan(one).any()]
    if len(known) == len(at):
        rows["log-loss"] = _with_full(known, _log_loss(y, full_scores, task))
        constants["log-loss"] = -float(shares @ np.log(shares))
    drawn = {name: np.empty((len(values), n_boot)) for name, values in rows.items()}
    for place, counts in draws_of(len(of_row), n_boot, seed):
        for name, values in rows.items():
            drawn[name][:, place] = _means(name, values, of_row, counts)
    curves = []
    for name, values in rows.items():
        value = _means(name, values, of_row, np.ones((len(of_row), 1)))[:, 0].tolist()
        low, high = (ends[: len(at)].tolist() for ends in tails(drawn[name], level))
        full = value[len(at)] if len(value) > len(at) else None
        curves.append(
            MeasureCurve(name, tuple(value[: len(at)]), tuple(low), tuple(high), full, constants[name])
        )
    return tuple(curves)


def _with_full(points: Sequence[Any], full: Any) -> Any:
    """A line for each point and, last, one for the full model if it is known."""
    return np.array([*points, *([] if full is None else [full])])


def _means(name: str, values: Any, of_row: Ints, counts: Floats) -> Floats:
    """Means over rows, or over the means of the classes, under weights of shape (n_rows, n_weightings)."""
    groups = [np.arange(len(of_row))]
    if name == "balanced accuracy":
        groups = [np.flatnonzero(of_row == one) for one in range(int(of_row.max()) + 1)]
    with np.errstate(invalid="ignore"):  # a class that a resample lacks has no recall there
        means = [values[:, rows] @ counts[rows] / counts[rows].sum(axis=0) for rows in groups]
    found: Floats = np.nanmean(means, axis=0)
    return found


def _log_loss(y: ArrayLike, scores: Floats | None, task: ClassTask | None) -> Floats | None:
    """What the answer to each row loses; None where nobody can tell which score belongs to which label."""
    if scores is None:
        return None
    labels = np.asarray(y)
    if task is None or not np.isin(labels, task.classes).all():
        classes = np.unique(labels)
        if len(classes) != max(scores.shape[1], 2):
            return None
        task = classification(classes)
    truth = task.strata(task.encode("y", labels, len(labels)))
    given = task.outputs(scores)[np.arange(len(truth)), truth]
    lost: Floats = -np.log(np.maximum(given, LEAST_PROBABILITY))
    return lost
