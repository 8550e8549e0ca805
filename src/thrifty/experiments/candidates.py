"""A fitted setting, reduced to what choosing between settings needs: its scores on validation and test rows.

There are two kinds. A ``Candidate`` is a cheap model and a gate in front of f0: every threshold is an operating
point. A ``PointCandidate`` is one operating point of whatever made it, and what each row paid there: a pruned
forest, a cascade at one budget. Both become bytes and come back as they were, bit by bit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.evidence.outcomes import PointOutcomes, RowOutcomes
from thrifty.exceptions import InvalidInputError

__all__ = ["AnyCandidate", "Candidate", "FullAnswers", "PointCandidate", "from_record", "to_record"]

OnTest = tuple[Bools, Floats, Bools]


@dataclass(frozen=True)
class FullAnswers:
    """Whether f0 is right on each row, the labels, and what a row pays that reaches f0."""

    y_val: NDArray[np.intp]
    right_val: Bools
    y_test: NDArray[np.intp]
    right_test: Bools
    cost: float


@dataclass(frozen=True)
class Candidate:
    """One fitted setting, reduced to its scores.

    Attributes
    ----------
    settings : dict
        What it was fitted with.
    cost : float
        What a row pays that stays with it.
    g_val, f1_val, g_test, f1_test : ndarray
        Scores of gate and cheap model.
    threshold : float or None
        The only threshold allowed; None allows all of them.
    features : tuple of int
        Columns it buys, where somebody asks.
    """

    settings: dict[str, Any]
    cost: float
    g_val: Floats
    f1_val: Floats
    g_test: Floats
    f1_test: Floats
    threshold: float | None = None
    features: tuple[int, ...] = ()

    def at_any_threshold(self) -> "Candidate":
        """The same scores, free to be cut anywhere."""
        return replace(self, threshold=None)

    def gated_by_confidence(self) -> "Candidate":
        """The same f1, gated by its own margin in place of g."""
        return replace(self, g_val=-np.abs(self.f1_val), g_test=-np.abs(self.f1_test), threshold=None)

    def outcomes(self, full: FullAnswers) -> tuple[RowOutcomes, RowOutcomes]:
        """What every row of the validation and of the test rows pays and gets, at any threshold."""
        val, test = (
            RowOutcomes(
                g,
                self.cost,
                full.cost,
                (f1 > 0) == (y == 1),
                full_right,
                features=self.features,
                settings=self.settings,
                threshold=self.threshold,
            )
            for g, f1, y, full_right in (
                (self.g_val, self.f1_val, full.y_val, full.right_val),
                (self.g_test, self.f1_test, full.y_test, full.right_test),
            )
        )
        return val, test

    def on_test(self, full: FullAnswers, threshold: float) -> OnTest:
        """Which test rows are answered right, what each pays, and which reach f0, at a threshold."""
        sent = self.g_test > threshold
        right = np.where(sent, full.right_test, (self.f1_test > 0) == (full.y_test == 1))
        return right, np.where(sent, full.cost, self.cost), sent


@dataclass(frozen=True)
class PointCandidate:
    """One operating point, reduced to its answers and to what each row paid.

    Attributes
    ----------
    settings : dict
        What it was fitted with, and which of its points this is.
    score_val, score_test : ndarray
        Its answers as log-odds: class 1 where positive.
    cost_val, cost_test : ndarray
        What each row paid.
    sent_val, sent_test : ndarray of bool
        Rows that reached f0.
    """

    settings: dict[str, Any]
    score_val: Floats
    score_test: Floats
    cost_val: Floats
    cost_test: Floats
    sent_val: Bools
    sent_test: Bools

    def outcomes(self, full: FullAnswers) -> tuple[PointOutcomes, PointOutcomes]:
        """What every row of the validation and of the test rows paid and got."""
        right_val, right_test = (self.score_val > 0) == (full.y_val == 1), self._right_test(full)
        return (
            PointOutcomes(self.cost_val, right_val, self.sent_val, settings=self.settings),
            PointOutcomes(self.cost_test, right_test, self.sent_test, settings=self.settings),
        )

    def on_test(self, full: FullAnswers, threshold: float) -> OnTest:  # noqa: ARG002
        """As for a ``Candidate``; there is nothing to cut."""
        return self._right_test(full), self.cost_test, self.sent_test

    def _right_test(self, full: FullAnswers) -> Bools:
        right: Bools = (self.score_test > 0) == (full.y_test == 1)
        return right


AnyCandidate = Candidate | PointCandidate

_ARRAYS = {
    Candidate: ("g_val", "f1_val", "g_test", "f1_test"),
    PointCandidate: ("score_val", "score_test", "cost_val", "cost_test", "sent_val", "sent_test"),
}
_KINDS = {kind.__name__: kind for kind in _ARRAYS}


def to_record(candidates: Sequence[AnyCandidate]) -> bytes:
    """All that one fit gave, as bytes of which none can change unnoticed."""
    arrays = [getattr(one, name) for one in candidates for name in _ARRAYS[type(one)]]
    return pack(Contents({"candidates": [_facts(one) for one in candidates]}, arrays))


def from_record(record: bytes) -> list[AnyCandidate]:
    """The candidates that ``to_record`` wrote."""
    try:
        contents = unpack(record)
        arrays = iter(contents.arrays)
        found = []
        for facts in contents.facts["candidates"]:
            kind = _KINDS[facts.pop("kind")]
            given = {name: next(arrays) for name in _ARRAYS[kind]}
            found.append(kind(**_values(facts), **given))
        return found
    except (InvalidInputError, KeyError, TypeError, ValueError, StopIteration) as error:
        raise InvalidInputError(
            f"a kept result is damaged ({error}). Delete the file of cells to start afresh."
        ) from error


def _facts(one: AnyCandidate) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": type(one).__name__, "settings": json.dumps(one.settings)}
    if isinstance(one, Candidate):
        # JSON knows no infinite numbers, and a shut gate has an infinite threshold.
        threshold = None if one.threshold is None else repr(one.threshold)
        facts |= {"cost": one.cost, "threshold": threshold, "features": list(one.features)}
    return facts


def _values(facts: dict[str, Any]) -> dict[str, Any]:
    values = {**facts, "settings": json.loads(facts["settings"])}
    if "threshold" in facts:
        threshold = facts["threshold"]
        values["threshold"] = None if threshold is None else float(threshold)
        values["features"] = tuple(facts["features"])
    return values
