"""What accuracy alone does not say about labels: balanced accuracy and log-loss of every point, each with its band.

The rows are drawn as for the bands of scores, and numbers are those of ``frontier.measures``. All points share one pass
over the draws: a page shows two hundred of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints
from thrifty.evidence.bootstrap import draws_of, tails
from thrifty.evidence.evidence import Evidence, yes_or_no
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.measures import LEAST_PROBABILITY
from thrifty.report.bill import full_right_of
from thrifty.report.classes import groupings_of, majority_of, told_apart
from thrifty.report.facts import MeasureCurve
from thrifty.report.routes import Routes
from thrifty.tasks.classes import ClassTask, classification

__all__ = ["judged_labels", "known_of", "label_task"]


def label_task(frontier: Frontier, estimators: Sequence[Any] | None) -> ClassTask | None:
    """How labels are answered with, by the fitted systems, else by the frontier; None where nobody says."""
    served = [getattr(one, "chain_", one) for one in estimators or () if one is not None]
    known = next((one.task for one in served if hasattr(one, "task")), frontier.task)
    return known if isinstance(known, ClassTask) else None


def judged_labels(
    frontier: Frontier,
    used: list[int],
    y: ArrayLike,
    at: Sequence[tuple[Routes, Floats]],
    task: ClassTask | None,
    slices: Mapping[str, ArrayLike] | None,
    **draws: Any,
) -> dict[str, Any]:
    """What facts say about labels, by the name of the field."""
    is_priced = any(one.right is not None and one.quality.dtype != bool for one in frontier.evidence)
    if is_priced:
        known = (full_right_of(one, task) for one in _first_used(frontier, used))
        full_right = next((one for one in known if one is not None), None)
    else:
        quality = known_of(frontier, used, "full_quality")
        full_right = None if quality is None else yes_or_no("full_quality", quality)
    full_scores = known_of(frontier, used, "full_scores")
    return {
        "groupings": groupings_of(y, slices, at, full_right),
        "majority": majority_of(y),
        # The share of right answers is the score of the page, unless that is what mistakes cost.
        "measures": _label_curves(y, at, task, full_right, full_scores, with_accuracy=is_priced, **draws),
    }


def known_of(frontier: Frontier, used: Sequence[int], name: str) -> Any:
    """What is known about the full model on each row, by the first system that says it."""
    known = (getattr(one, name) for one in _first_used(frontier, used))
    return next((one for one in known if one is not None), None)


def _first_used(frontier: Frontier, used: Sequence[int]) -> tuple[Evidence, ...]:
    """The systems, those that are shown first."""
    return (*(frontier.evidence[place] for place in used), *frontier.evidence)


def _label_curves(
    y: ArrayLike,
    at: Sequence[tuple[Routes, Floats]],
    task: ClassTask | None,
    full_right: Bools | None,
    full_scores: Floats | None,
    *,
    with_accuracy: bool,
    level: float,
    n_boot: int,
    seed: int,
) -> tuple[MeasureCurve, ...]:
    """Balanced accuracy of every point, and log-loss where the scores of the answers are known.

    The constants are what the shares of the classes achieve as the answer to every row.
    """
    _, of_row = told_apart(np.asarray(y))
    shares = np.bincount(of_row) / len(of_row)
    right = [routes.right(point) for routes, point in at]
    names = [*(["accuracy"] if with_accuracy else []), "balanced accuracy"]
    rows = dict.fromkeys(names, _with_full(right, full_right))
    constants = {"accuracy": float(shares.max()), "balanced accuracy": 1.0 / len(shares)}
    lost = [_log_loss(y, routes.scores(point), task) for routes, point in at]
    known = [one for one in lost if one is not None and not np.isnan(one).any()]
    if len(known) == len(at):
        rows["log-loss"] = _with_full(known, _log_loss(y, full_scores, task))
        constants["log-loss"] = -float(shares @ np.log(shares))
    drawn = {name: np.empty((len(values), n_boot)) for name, values in rows.items()}
    groups = {name: _groups(name, values, of_row) for name, values in rows.items()}
    for place, counts in draws_of(len(of_row), n_boot, seed):
        for name in rows:
            drawn[name][:, place] = _means(groups[name], counts)
    curves = []
    for name in rows:
        value = _means(groups[name], np.ones((len(of_row), 1)))[:, 0].tolist()
        low, high = (ends[: len(at)].tolist() for ends in tails(drawn[name], level))
        full = value[len(at)] if len(value) > len(at) else None
        curves.append(
            MeasureCurve(name, tuple(value[: len(at)]), tuple(low), tuple(high), full, constants[name])
        )
    return tuple(curves)


def _with_full(points: Sequence[Any], full: Any) -> Any:
    """A line for each point and, last, one for the full model if it is known."""
    return np.array([*points, *([] if full is None else [full])])


def _groups(name: str, values: Any, of_row: Ints) -> list[tuple[Any, Floats]]:
    """Rows that are averaged together, all or those of each class, and their values, shape (n_lines, n_rows)."""
    if name != "balanced accuracy":
        return [(slice(None), values.astype(np.float64))]
    classes = (np.flatnonzero(of_row == one) for one in range(int(of_row.max()) + 1))
    return [(rows, values[:, rows].astype(np.float64)) for rows in classes]


def _means(groups: list[tuple[Any, Floats]], counts: Floats) -> Floats:
    """Mean over the means of the groups, under weights of shape (n_rows, n_weightings)."""
    total = np.zeros((len(groups[0][1]), counts.shape[1]))
    n_there = np.zeros(counts.shape[1])
    for rows, values in groups:
        weights = counts[rows]
        weight = weights.sum(axis=0)
        is_there = weight > 0  # a class that a resample lacks has no recall there
        total += values @ weights / np.where(is_there, weight, 1.0)
        n_there += is_there
    found: Floats = total / n_there
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
