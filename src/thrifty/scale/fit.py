"""Fits of tables larger than memory: stages from a sample, operating points and certificates from all rows.

A sample is drawn by a hash of what rows hold, so that it does not depend on partitions or their order, and equal rows
are in it together or not at all. Stages and operating points are learned on the sample. One pass over the table then
measures these fixed points on the rows outside the sample, and each partition returns counts and sums: mean costs, mean
scores and certificates are those of the table in memory. Rows of the sample, and rows that equal them, prove nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints, Words
from thrifty.engine.evidence.certificate import CountedRows, certify_counts
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.evidence.evidence import Evidence, Means, means_at
from thrifty.engine.evidence.frontier import Frontier
from thrifty.engine.evidence.hypothesis_tests import HELD_OUT, trials_of
from thrifty.engine.table.training import targets_of
from thrifty.engine.tasks.ranking import RankingTask
from thrifty.engine.walk.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.estimators import BudgetedCascade, BudgetedRanker
from thrifty.rows import fingerprints, mix

Each = Callable[[Callable[[Any, int], Any]], Sequence[Any]]
"""``each(function)`` lists ``function(frame, number)`` of every partition, a pandas data frame, and its number."""

SAMPLE = 500_000
"""Rows to learn from, by default."""
_ROWS = 20_000
"""Rows that are evaluated together: a number for each of them at every operating point is in memory."""


def fit(
    estimator: BudgetedCascade,
    each: Each,
    features: Sequence[str],
    target: str,
    *,
    sample: int = SAMPLE,
    max_loss: float | Mapping[Any, float] | None = None,
    confidence: float = 0.95,
) -> BudgetedCascade:
    """Fit an estimator on a sample of the partitions of a table, and measure its operating points on all other rows.

    Parameters
    ----------
    estimator : BudgetedClassifier or BudgetedRegressor
        The unfitted estimator; the one to use is returned.
    each : callable
        The partitions; see ``Each``.
    features, target : sequence of str, str
        Columns to learn from, and the column to predict.
    sample : int, default=500_000
        Rows to learn from.
    max_loss, confidence
        As of ``BudgetedClassifier.certified``: what all rows outside the sample are to prove.
    """
    _refuse_ranking(isinstance(estimator, BudgetedRanker))
    rows, n_rows = sample_rows(each, features, target, sample)
    estimator.fit(rows[list(features)], rows[target].to_numpy())
    if len(rows) == n_rows and max_loss is None:
        return estimator
    return evaluate(estimator, each, target, max_loss=max_loss, confidence=confidence)


def _refuse_ranking(ranks: bool) -> None:
    if ranks:
        raise InvalidInputError(
            "a query must be scored as a whole, and partitions may split it. Give a ranking one table."
        )


# -- the sample ------------------------------------------------------------------------------------


def sample_rows(each: Each, columns: Sequence[str], target: str, n_rows: int) -> tuple[Any, int]:
    """Draw at most ``n_rows`` rows by a hash of some columns; and the number of all rows.

    The rows come in the order of their hashes, the same for all partitions of a table.
    """
    import pandas as pd

    words = np.concatenate([np.empty(0, np.uint64), *each(partial(_words, columns=columns))])
    n_all, below = len(words), None
    if n_all > n_rows:
        below = np.partition(words, n_rows)[n_rows]
        if not (words < below).any():
            raise InvalidInputError(
                f"more than {n_rows:,} rows hold the same in {', '.join(columns)}. Draw a larger sample."
            )
    del words
    parts = [part for part in each(partial(_drawn, columns=columns, below=below)) if len(part)]
    if not parts:
        raise InvalidInputError("the table has no rows.")
    frame = pd.concat(parts, ignore_index=True)
    order = np.lexsort((_words(frame, columns=[target]), _words(frame, columns=columns)))
    return frame.iloc[order].reset_index(drop=True), n_all


def _drawn(frame: Any, number: int, *, columns: Sequence[str], below: np.uint64 | None) -> Any:
    return frame if below is None else frame[_words(frame, number, columns=columns) < below]


def _words(frame: Any, _number: int = 0, *, columns: Sequence[str]) -> Words:
    """A hash of what each row holds: numbers in single precision, everything else as text."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype
    from pandas.util import hash_array

    numbers, words = np.zeros((len(frame), len(columns))), np.zeros(len(frame), dtype=np.uint64)
    for place, name in enumerate(columns):
        column = frame[name]
        if is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype):
            numbers[:, place] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            text = column.astype("string").fillna("\0").to_numpy(dtype=object)
            words += mix(hash_array(text, categorize=True) + np.uint64(place))
    return mix(fingerprints(numbers) + words)


# -- all other rows --------------------------------------------------------------------------------


def evaluate(
    estimator: BudgetedCascade,
    each: Each,
    target: str,
    *,
    max_loss: float | Mapping[Any, float] | None = None,
    confidence: float = 0.95,
) -> BudgetedCascade:
    """Measure the operating points of a fitted estimator on the rows of a table that do not equal rows of its fit.

    Their costs and scores become those of the estimator. With ``max_loss`` the estimator is returned at the cheapest
    point that these rows prove to lose no more, as by ``certified(..., duplicates="drop")``.
    """
    learned, evidence = estimator._learned, estimator._evidence()
    assert evidence.points is not None  # a cascade has the points that it was fitted with
    both = np.vstack([learned.policy.thresholds, evidence.points])
    points, place = np.unique(both, axis=0, return_inverse=True)
    candidates, alone = (None, False) if max_loss is None else estimator._candidates()
    fitted = np.unique(np.concatenate(evidence.known_rows))
    sums = PartitionSums(
        learned,
        target,
        points,
        fitted,
        None if candidates is None else candidates.thresholds,
        alone,
        max_loss,
    )
    measured, counted = sums.over(each)
    if measured is None:
        raise InvalidInputError(
            "every row of the table is in the sample, or equals a row of it, so that no row is left to measure it on. "
            "Draw a smaller sample."
        )
    other = estimator._without_certificate()
    places = place.reshape(-1)
    means = Means(*(each[places] for each in astuple(measured.means)))
    other._measured_on(means, measured.n_rows, None if measured.costs is None else measured.costs[places])
    if max_loss is None or candidates is None or counted is None:
        return other
    candidates = replace(candidates, means=counted.means, held_out=True)
    certificate = certify_counts(candidates, counted, max_loss, confidence)
    return other._with_certificate(certificate, max_loss, alone=alone)


@dataclass(frozen=True, eq=False)
class PartitionSums:
    """Counts and sums of the rows of a partition at fixed operating points.

    Attributes
    ----------
    chain, target : Chain, str
        The system, and the column that it predicts.
    points : ndarray of shape (n_points, n_stages)
        Thresholds whose mean cost and score are measured on rows that do not equal rows of the fit.
    fitted : ndarray
        Sorted fingerprints of the rows of the fit.
    candidates : ndarray of shape (n_candidates, n_stages), optional
        Thresholds whose losses are counted for a certificate.
    alone : bool
        Whether the full model, where it is asked, answers alone there.
    max_loss : float or dict, optional
        The limits to certify.
    repeated, owner : ndarray
        Fingerprints of rows that are in several partitions, and the partition that counts each of them.
    """

    chain: Chain
    target: str
    points: Floats
    fitted: Words
    candidates: Floats | None = None
    alone: bool = False
    max_loss: Any = None
    repeated: Words = field(default_factory=lambda: np.empty(0, np.uint64))
    owner: Ints = field(default_factory=lambda: np.empty(0, np.intp))

    def over(self, each: Each) -> tuple[CountedRows | None, CountedRows | None]:
        """Sums over all partitions: of the points, and of the candidates; None where no row counts."""
        partitions = each(self)
        if self.candidates is not None and not len(self.repeated):
            words = [(number, counted.words) for number, _, counted in partitions if counted is not None]
            repeated, owner = _repeated(words)
            if len(repeated):
                return replace(self, repeated=repeated, owner=owner).over(each)
        return _total([part for _, part, _ in partitions]), _total([part for _, _, part in partitions])

    def __call__(self, frame: Any, number: int) -> tuple[int, CountedRows | None, CountedRows | None]:
        """Number of the partition, and its sums."""
        measured, counted = [], []
        elsewhere = [self.repeated[self.owner != number]]
        for first in range(0, len(frame), _ROWS):
            rows = frame.iloc[first : first + _ROWS]
            evidence = self._evidence(rows)
            measured.append(self._measured(evidence))
            if self.candidates is not None:
                counted.append(self._counted(evidence, np.concatenate(elsewhere)))
                assert counted[-1].words is not None  # evidence of a chain has fingerprints
                elsewhere.append(counted[-1].words)
        return number, _total(measured), _total(counted)

    def _evidence(self, rows: Any) -> Evidence:
        schema = self.chain.schema
        features = rows[[name for name in schema.names if name in rows.columns]]
        labels = targets_of(rows, self.target, self.chain.classes)
        return evidence_of(self.chain, schema.cells(features, unseen_is_missing=True), labels)

    def _measured(self, evidence: Evidence) -> CountedRows | None:
        assert evidence.rows is not None  # as above
        new = np.flatnonzero(~np.isin(evidence.rows[:, 0], self.fitted))
        return replace(self._sums(evidence.take(new), self.points, None), words=None) if len(new) else None

    def _counted(self, evidence: Evidence, counted: Words) -> CountedRows:
        evidence = evidence.with_full_alone() if self.alone else evidence
        assert self.candidates is not None
        return self._sums(evidence.against_full(), self.candidates, counted)

    def _sums(self, evidence: Evidence, points: Floats, counted: Words | None) -> CountedRows:
        source = np.zeros(len(points), dtype=np.intp)
        means = means_at([evidence], source, points)
        fitted, against = (self.fitted,), counted is not None
        frontier = Frontier((evidence,), source, points, means, means, True, against, fitted)
        trials = trials_of(evidence.rows, fitted, evidence.n_units, HELD_OUT, counted)
        rows = CountedRows.of(frontier, trials, self.max_loss if against else None)
        if evidence.costs is None:
            return rows
        return replace(rows, sums=np.vstack([rows.sums, rows.n_rows * evidence.mean_costs(points).T]))


def _total(parts: Sequence[CountedRows | None]) -> CountedRows | None:
    counted = [part for part in parts if part is not None]
    return CountedRows.total(counted) if counted else None


def _repeated(words: Sequence[tuple[int, Words]]) -> tuple[Words, Ints]:
    """Words that are in several partitions, given by their numbers, and the first partition of each."""
    ordered = np.sort(np.concatenate([np.empty(0, np.uint64), *(some for _, some in words)]))
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    first, last = np.full((2, len(twice)), -1)
    for number, some in reversed(words):
        at = np.searchsorted(twice, np.intersect1d(some, twice))
        first[at] = number
        last[at] = np.where(last[at] < 0, number, last[at])
    several = first != last
    return twice[several], first[several]


def frontier_on(estimator: BudgetedCascade, each: Each, target: str) -> tuple[Means, int]:
    """Means of the points of ``estimator.frontier_`` on all rows of a table, and the number of rows."""
    _refuse_ranking(isinstance(estimator.chain_.task, RankingTask))
    no_rows = np.empty(0, np.uint64)
    sums = PartitionSums(estimator._learned, target, estimator.frontier_.thresholds, no_rows)
    measured, _ = sums.over(each)
    if measured is None:
        raise InvalidInputError("the table has no rows.")
    return measured.means, measured.n_rows
