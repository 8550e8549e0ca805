"""What people ask of operating points besides the mean score: recalls, log-loss, areas and errors, each with a band.

Rows are resampled as for the bands of scores. Which measures there are depends on what is known about the rows: their
classes, and which answers are right, are enough for accuracy, balanced accuracy and recalls; log-loss, AUC and errors
need the scores of the answers, which a fitted estimator does not keep, and which ``frontier.on(evidence of rows)`` has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.compare import check_bootstrap, draws_of, tails
from thrifty.evidence.evidence import Evidence
from thrifty.tasks.classes import ClassTask
from thrifty.tasks.task import ERRORS, Task, mean_error

__all__ = ["ClassRows", "Measure", "banded", "measures_along", "measures_at"]

LEAST_PROBABILITY = 1e-15
"""Log-losses are bounded as those of scikit-learn were: one sure mistake must not be infinitely bad."""


@dataclass(frozen=True)
class Measure:
    """A measure of one operating point, and the ends of its bootstrap interval."""

    value: float
    low: float
    high: float


def measures_at(
    evidence: Evidence, point: Floats, task: Task | None, *, level: float, n_boot: int, seed: int
) -> dict[str, Measure]:
    """Every measure that can be told of the rows at one point, by name.

    The recall of a class stands under "recall of" and its label; one without rows has no recall, and balanced accuracy
    is the mean over the others. A resample that lacks a class is treated alike.
    """
    return measures_along([(evidence, point)], task, level=level, n_boot=n_boot, seed=seed)[0]


def measures_along(
    points: Sequence[tuple[Evidence, Floats]], task: Task | None, *, level: float, n_boot: int, seed: int
) -> list[dict[str, Measure]]:
    """The measures of each of several points on the same rows, which are drawn once for all of them."""
    own = [_measured(evidence, point, task) for evidence, point in points]
    return _banded(own, level=level, n_boot=n_boot, seed=seed)


def banded(own: "ClassRows | _NumberRows", *, level: float, n_boot: int, seed: int) -> dict[str, Measure]:
    """Every measure of some rows by name, with percentiles of what resamples of the rows give."""
    return _banded([own], level=level, n_boot=n_boot, seed=seed)[0]


def _banded(
    every: "Sequence[ClassRows | _NumberRows]", *, level: float, n_boot: int, seed: int
) -> list[dict[str, Measure]]:
    check_bootstrap(level, n_boot)
    drawn = [{name: np.empty(n_boot) for name in own.names} for own in every]
    for place, counts in draws_of(every[0].n_rows, n_boot, seed):
        for own, found in zip(every, drawn, strict=True):
            for name, values in own.under(counts).items():
                found[name][place] = values
    measures = []
    for own, found in zip(every, drawn, strict=True):
        once = own.under(np.ones((own.n_rows, 1)))
        ends = {name: tails(values[~np.isnan(values)], level) for name, values in found.items()}
        measures.append(
            {
                name: Measure(float(once[name][0]), float(low), float(high))
                for name, (low, high) in ends.items()
            }
        )
    return measures


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows that are answered with labels.

    Attributes
    ----------
    right : ndarray of shape (n_rows,)
        Whether each answer is right; the probability of that, where chance has a say in it.
    strata : ndarray of shape (n_rows,)
        Number of the class of each row.
    labels : tuple
        What the classes are called.
    outputs : ndarray of shape (n_rows, n_classes) or None
        Probabilities, where they are known.
    """

    right: Floats
    strata: Ints
    labels: tuple[Any, ...]
    outputs: Floats | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.right)

    @property
    def present(self) -> Ints:
        """Numbers of the classes that some row has."""
        return np.unique(self.strata)

    @property
    def names(self) -> list[str]:
        """Names of the measures that can be told."""
        recalls = [f"recall of {self.labels[one]!r}" for one in self.present]
        known = [] if self.outputs is None else ["log-loss", *(["AUC"] if len(self.present) > 1 else [])]
        return ["accuracy", "balanced accuracy", *known, *recalls]

    def under(self, counts: Floats) -> dict[str, Floats]:
        """Each measure under weights of shape (n_rows, n_weightings)."""
        present, total = self.present, counts.sum(axis=0)
        is_of = self.strata == present[:, None]
        with np.errstate(invalid="ignore"):
            recalls = (is_of * self.right) @ counts / (is_of @ counts)
        found = {"accuracy": self.right @ counts / total, "balanced accuracy": np.nanmean(recalls, axis=0)}
        found |= {f"recall of {self.labels[one]!r}": line for one, line in zip(present, recalls, strict=True)}
        if self.outputs is None:
            return found
        given = self.outputs[np.arange(len(self.strata)), self.strata]
        found["log-loss"] = -np.log(np.maximum(given, LEAST_PROBABILITY)) @ counts / total
        if len(present) == 2 == self.outputs.shape[1]:
            found["AUC"] = _areas(is_of[1], self.outputs[:, 1], counts)
        elif len(present) > 1:
            areas = [
                _areas(one, self.outputs[:, place], counts) for place, one in zip(present, is_of, strict=True)
            ]
            found["AUC"] = np.nanmean(areas, axis=0)
        return found


@dataclass(frozen=True, eq=False)
class _NumberRows:
    """Rows that are answered with numbers: absolute errors and targets, both in the user's unit."""

    errors: Floats
    y: Floats

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def names(self) -> list[str]:
        return ["R2", *ERRORS]

    def under(self, counts: Floats) -> dict[str, Floats]:
        """Each measure under weights of shape (n_rows, n_weightings)."""
        total = counts.sum(axis=0)
        powers = {name: self.errors**power @ counts / total for name, power in ERRORS.items()}
        centred = self.y - self.y.mean()
        spread = centred**2 @ counts / total - (centred @ counts / total) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = np.where(spread > 0.0, 1.0 - powers["RMSE"] / spread, np.nan)
        return {"R2": r2, **{name: mean_error(powers[name], power) for name, power in ERRORS.items()}}


def _measured(evidence: Evidence, point: Floats, task: Task | None) -> ClassRows | _NumberRows:
    """The rows as they are answered at a point, or a refusal."""
    if evidence.unit is not None:
        raise InvalidInputError(
            "a frontier of rankings is scored by the measure of its queries already, and there is no other one. Its "
            "`score` is their mean, and `band` its interval."
        )
    route, _, quality = evidence.at_point(point)
    rows = np.arange(evidence.n_rows)
    scores = None if evidence.scores is None else evidence.scores[rows, route]
    if task is not None and not isinstance(task, ClassTask):
        errors = None if scores is None or evidence.target is None else task.errors(evidence.target, scores)
        if errors is None or evidence.target is None:
            raise InvalidInputError(
                "errors of numbers need the targets and the answers, which a fitted estimator does not keep. Ask the "
                "frontier of labelled rows: `frontier.on([evidence_of(estimator, X, y)])`."
            )
        return _NumberRows(errors, np.asarray(task.decode(evidence.target)))
    right = quality if evidence.right is None else evidence.right[rows, route]
    strata: Ints | None = None if evidence.strata is None else evidence.strata.astype(np.intp)
    if strata is None and task is not None and evidence.target is not None:
        strata = task.strata(evidence.target)
    if strata is None or right.dtype != bool:
        raise InvalidInputError(
            "balanced accuracy and recall cannot be told: the rows of this frontier are known without their classes, "
            "as files of earlier versions keep them. Fit again, or ask the frontier of labelled rows: "
            "`frontier.on([evidence_of(estimator, X, y)])`."
        )
    labels = tuple(range(int(strata.max()) + 1)) if task is None else tuple(task.classes.tolist())
    outputs = None if task is None or scores is None else task.outputs(scores)
    return ClassRows(np.asarray(right, dtype=np.float64), strata, labels, outputs)


def _areas(is_second: Bools, scores: Floats, counts: Floats) -> Floats:
    """Area under the ROC curve for each weighting: the share of pairs that are in order, ties counting half."""
    _, of_row = np.unique(scores, return_inverse=True)
    order = np.argsort(of_row, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(of_row[order]) > 0])
    second, first = (
        np.add.reduceat(np.where(side[:, None], counts, 0.0)[order], starts, axis=0)
        for side in (is_second, ~is_second)
    )
    below = np.cumsum(first, axis=0) - 0.5 * first
    with np.errstate(invalid="ignore"):
        areas: Floats = (second * below).sum(axis=0) / (second.sum(axis=0) * first.sum(axis=0))
    return areas
