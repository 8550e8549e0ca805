"""Rows by class and by slice: who is sent on, and how good the answers are there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Ints
from thrifty.exceptions import InvalidInputError
from thrifty.report.facts import Grouping
from thrifty.report.routes import Routes

__all__ = ["MOST_LABELS", "Partition", "groupings_of", "partition_of"]


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
    # As text: labels of mixed kinds, None and NaN among them, then compare as they read.
    if values.dtype.kind in "biuf":
        found, of_row = np.unique(values, return_inverse=True)
        words = [str(value) for value in found.tolist()]
    else:
        found, of_row = np.unique([str(value) for value in values], return_inverse=True)
        words = found.tolist()
    of_row = of_row.reshape(-1)
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
    points: Sequence[tuple[Routes, float]],
    full_right: Bools | None,
) -> tuple[Grouping, ...]:
    """Classes and slices, with counts of rows sent and answered correctly at each point."""
    n_rows = points[0][0].outcomes.n_rows
    partitions = [partition_of("y", y, n_rows)]
    partitions += [partition_of(str(name), labels, n_rows) for name, labels in (slices or {}).items()]
    counts: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = [[] for _ in partitions]
    for routes, threshold in points:
        sent, right = routes.place(threshold) == routes.n_stages, routes.right(threshold)
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
