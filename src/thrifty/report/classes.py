"""Rows by class and by slice: who is sent on, how good the answers are there, and what accuracy alone does not say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import InvalidInputError
from thrifty.report.facts import Grouping, Majority
from thrifty.report.routes import Routes
from thrifty.tasks.classes import classification

__all__ = [
    "MOST_LABELS",
    "Partition",
    "auc_by_point",
    "auc_of",
    "groupings_of",
    "majority_of",
    "partition_of",
    "told_apart",
]


MOST_LABELS = 20
"""Labels of one slice that get a line of their own; the rarest of more are shown together."""


@dataclass(frozen=True)
class Partition:
    """A name, labels, and which of them each row has."""

    name: str
    labels: tuple[str, ...]
    of_row: Ints

    def count(self, rows: Bools | None = None) -> tuple[int, ...]:
        """How many rows, of all or of some, have each label."""
        chosen = self.of_row if rows is None else self.of_row[rows]
        return tuple(np.bincount(chosen, minlength=len(self.labels)).tolist())


def partition_of(name: str, labels: ArrayLike, n_rows: int) -> Partition:
    """Rows by label, in the order of the labels; rare labels of many are merged."""
    values = np.asarray(labels)
    if values.shape != (n_rows,):
        raise InvalidInputError(
            f"{name} must hold one label per row, shape ({n_rows},); got shape {values.shape}."
        )
    words, of_row = told_apart(values)
    if len(words) > MOST_LABELS:
        counts = np.bincount(of_row)
        kept = np.sort(np.argsort(-counts, kind="stable")[: MOST_LABELS - 1])
        place = np.full(len(words), len(kept))
        place[kept] = np.arange(len(kept))
        n_rare = len(words) - len(kept)
        words, of_row = [*(words[label] for label in kept), f"{n_rare} others"], place[of_row]
    return Partition(name, tuple(words), of_row)


def groupings_of(
    y: ArrayLike,
    slices: Mapping[str, ArrayLike] | None,
    points: Sequence[tuple[Routes, Floats]],
    full_right: Bools | None,
) -> tuple[Grouping, ...]:
    """Classes and slices, with counts of rows sent and answered correctly at each point."""
    n_rows = points[0][0].evidence.n_rows
    partitions = [partition_of("y", y, n_rows)]
    partitions += [partition_of(str(name), labels, n_rows) for name, labels in (slices or {}).items()]
    counts: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = [[] for _ in partitions]
    for routes, point in points:
        sent, right = routes.place(point) == routes.n_stages, routes.right(point)
        for found, partition in zip(counts, partitions, strict=True):
            found.append((partition.count(sent), partition.count(right)))
    return tuple(
        Grouping(
            name="class" if number == 0 else partition.name,
            labels=partition.labels,
            n_rows=partition.count(),
            full_right=None if full_right is None else partition.count(full_right),
            sent=tuple(sent for sent, _ in found),
            right=tuple(right for _, right in found),
        )
        for number, (found, partition) in enumerate(zip(counts, partitions, strict=True))
    )


def majority_of(y: ArrayLike) -> Majority:
    """The class that most rows have; of several, the first in their order."""
    words, of_row = told_apart(np.asarray(y))
    counts = np.bincount(of_row)
    most = int(counts.argmax())
    return Majority(words[most], float(counts[most] / len(of_row)))


def auc_of(y: ArrayLike, scores: ArrayLike) -> float | None:
    """Area under the ROC curve; of several classes the mean, each against the rest. None where it is not known.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    scores : array-like of shape (n_samples,), (n_samples, 1) or (n_samples, n_classes)
        Larger for rows that look more like the second class, which is the last in their order, as in ``classes_``; or
        a score for each of several classes. Infinite scores are allowed.
    """
    labels, values = np.asarray(y), np.asarray(scores, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(labels) or np.isnan(values).any():
        raise InvalidInputError(
            f"scores must be one number per row, or one per row and class, none of them NaN; got shape {values.shape} "
            f"with {int(np.isnan(values).sum())} NaN for {len(labels)} rows. Give the probability of the second class, "
            f"or another score for it."
        )
    classes = np.unique(labels)
    # Where a class is not among the rows, nobody can tell whose scores are missing.
    if len(classes) != max(values.shape[1], 2):
        return None
    task = classification(classes)
    return task.auc(task.encode("y", labels, len(labels)), values)


def auc_by_point(y: ArrayLike, at: Sequence[tuple[Routes, Floats]]) -> tuple[float, ...]:
    """AUC of each point, or nothing where there are no scores."""
    found = []
    for routes, point in at:
        scores = routes.scores(point)
        auc = None if scores is None else auc_of(y, scores)
        if auc is None:
            return ()
        found.append(auc)
    return tuple(found)


def told_apart(values: Labels) -> tuple[list[str], Ints]:
    """Labels as words, in their order, and which of them each row has."""
    if values.dtype.kind in "biuf":
        found, of_row = np.unique(values, return_inverse=True)
        return [str(value) for value in found.tolist()], of_row.reshape(-1)
    # As text: labels of mixed kinds, None and NaN among them, then compare as they read.
    found, of_row = np.unique([str(value) for value in values], return_inverse=True)
    return found.tolist(), of_row.reshape(-1)
