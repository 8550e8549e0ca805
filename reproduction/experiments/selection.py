"""Choose on validation rows, report on test rows, compare: the rule every experiment follows.

An experiment fits many settings, each reduced to its scores on validation and test rows. There are two kinds. A
``Candidate`` is a cheap model and a gate in front of f0: every threshold is an operating point. A ``PointCandidate`` is
one operating point of whatever made it, and what each row paid there: a pruned forest, a cascade at one budget.
For a budget the point with the best validation accuracy among those that it affords *on validation rows* is taken, and
only then looked at on the test rows. A difference between two methods counts beyond two standard errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.arrays import Bools, Floats
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.walk.policy import SLACK

__all__ = [
    "AnyCandidate",
    "Candidate",
    "Chosen",
    "Claim",
    "FullAnswers",
    "PointCandidate",
    "Verdict",
    "best_within",
    "by_budget",
    "choose",
    "gap",
    "judge_claims",
]

OnTest = tuple[Bools, Floats, Bools]


# -- candidates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FullAnswers:
    """Whether the full model f0 is right on each row, the labels, and what a row pays that reaches f0."""

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
        Parameters it was fitted with.
    cost : float
        Cost of a row that the cheap model answers.
    g_val, f1_val, g_test, f1_test : ndarray
        Scores of gate and cheap model.
    threshold : float or None
        The only threshold allowed; None allows all of them.
    features : tuple of int
        Columns it buys, where they are known.
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
        """Allow every threshold of the gate."""
        return replace(self, threshold=None)

    def gated_by_confidence(self) -> "Candidate":
        """Let the margin of f1 take the place of its gate."""
        return replace(self, g_val=-np.abs(self.f1_val), g_test=-np.abs(self.f1_test), threshold=None)

    def evidence(self, full: FullAnswers) -> tuple[Evidence, Evidence]:
        """What every row of the validation and of the test rows pays and gets, at any threshold."""
        val, test = (
            Evidence.of_gate(
                g,
                stop_cost=self.cost,
                go_cost=full.cost,
                stop_quality=(f1 > 0) == (y == 1),
                go_quality=full_right,
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
        Parameters it was fitted with, and which of its points this is.
    score_val, score_test : ndarray
        Answers as log-odds: class 1 where positive.
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

    def evidence(self, full: FullAnswers) -> tuple[Evidence, Evidence]:
        """What every row of the validation and of the test rows paid and got."""
        right_val, right_test = (self.score_val > 0) == (full.y_val == 1), self._right_test(full)
        return (
            Evidence.of_point(self.cost_val, right_val, self.sent_val, settings=self.settings),
            Evidence.of_point(self.cost_test, right_test, self.sent_test, settings=self.settings),
        )

    def on_test(self, full: FullAnswers, threshold: float) -> OnTest:  # noqa: ARG002
        """Which test rows are answered right, what each pays, and which reach f0; a point has no threshold."""
        return self._right_test(full), self.cost_test, self.sent_test

    def _right_test(self, full: FullAnswers) -> Bools:
        right: Bools = (self.score_test > 0) == (full.y_test == 1)
        return right


AnyCandidate = Candidate | PointCandidate


# -- the choice --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """The operating point taken for one budget, and what it does on the test rows."""

    budget: float
    settings: dict[str, Any]
    threshold: float
    val_accuracy: float
    val_cost: float
    accuracy: float
    cost: float
    share: float
    right: Bools

    def as_numbers(self) -> dict[str, Any]:
        """Return everything but the answers per row, ready for a JSON file, which knows no infinite numbers."""
        numbers = {name: value for name, value in self.__dict__.items() if name != "right"}
        return numbers | ({} if np.isfinite(self.threshold) else {"threshold": str(self.threshold)})

    def in_words(self) -> str:
        """Show test accuracy as in a table."""
        return f"{self.accuracy:.3f}"


def choose(candidates: Sequence[AnyCandidate], full: FullAnswers, budgets: Iterable[float]) -> list[Chosen]:
    """Choose the best operating point on validation rows for each affordable budget; score it on test rows."""
    found = [candidate.evidence(full)[0].every_point() for candidate in candidates]
    owner = np.repeat(np.arange(len(found)), [len(points) for points, _ in found])
    threshold = np.concatenate([points[:, 0] for points, _ in found])
    threshold[[isinstance(candidates[int(one)], PointCandidate) for one in owner]] = np.nan
    cost = np.concatenate([means.cost for _, means in found])
    accuracy = np.concatenate([means.score for _, means in found])
    chosen = []
    for budget in budgets:
        best = best_within(cost, accuracy, budget)
        if best is not None:
            cut = float(threshold[best])
            right, paid, sent = candidates[owner[best]].on_test(full, cut)
            chosen.append(
                Chosen(
                    budget=float(budget),
                    settings=candidates[owner[best]].settings,
                    threshold=cut,
                    val_accuracy=float(accuracy[best]),
                    val_cost=float(cost[best]),
                    accuracy=float(right.mean()),
                    cost=float(paid.mean()),
                    share=float(sent.mean()),
                    right=right,
                )
            )
    return chosen


def by_budget(
    chosen: Mapping[str, Sequence[Chosen]], budgets: Iterable[float], methods: Sequence[str]
) -> list[list[str]]:
    """Make a table of test accuracies: one row per budget, one column per method, a dash where there is no point."""
    found = [{point.budget: point.in_words() for point in chosen.get(method, ())} for method in methods]
    return [[f"{budget:g}", *(one.get(budget, "-") for one in found)] for budget in budgets]


# -- claims ------------------------------------------------------------------------------------

MARGINAL = 0.01
"""A gain below one point of accuracy, mean over budgets, is called marginal."""


@dataclass(frozen=True)
class Claim:
    """A claim or a question about two methods.

    Attributes
    ----------
    name : str
        Name in the paper's list or in ours.
    ours, theirs : str
        Lines of the figure.
    kind : {"better", "marginal", "asked"}
        Ours is said to be better; or to gain next to nothing; or nothing is said, and we ask.
    """

    name: str
    ours: str
    theirs: str
    kind: Literal["better", "marginal", "asked"] = "better"


@dataclass(frozen=True)
class Verdict:
    """A claim, the mean difference of test accuracy over budgets, its standard error, and what follows."""

    claim: Claim
    mean: float
    error: float

    @property
    def word(self) -> str:
        """``holds`` or ``does not hold``; ``ahead`` or ``behind`` where nothing is claimed; or ``undecided``."""
        low, high = self.mean - 2 * self.error, self.mean + 2 * self.error
        if self.claim.kind == "marginal":
            holds, fails = low > -MARGINAL and high < MARGINAL, low > MARGINAL or high < -MARGINAL
        else:
            holds, fails = low > 0, high < 0
        yes, no = ("ahead", "behind") if self.claim.kind == "asked" else ("holds", "does not hold")
        return yes if holds else no if fails else "undecided"

    @property
    def difference(self) -> str:
        """Say the difference in words."""
        return (
            f"{self.claim.ours} minus {self.claim.theirs}, mean over budgets: {self.mean:+.4f} "
            f"(standard error {self.error:.4f})"
        )

    def __str__(self) -> str:
        rule = f", claimed to be within {MARGINAL:g}" if self.claim.kind == "marginal" else ""
        return f"{self.claim.name}: {self.difference}{rule}: {self.word}."

    def as_numbers(self) -> dict[str, str | float]:
        """Return the claim and what was found, ready for a JSON file."""
        return {
            "claim": self.claim.name,
            "ours": self.claim.ours,
            "theirs": self.claim.theirs,
            "mean": self.mean,
            "standard_error": self.error,
            "verdict": self.word,
        }


def gap(ours: Sequence[Chosen], theirs: Sequence[Chosen]) -> tuple[float, float]:
    """Return the mean difference of test accuracy over common budgets, and its standard error over test rows."""
    pairs = [(a, b) for a in ours for b in theirs if a.budget == b.budget]
    per_row = np.mean([a.right.astype(float) - b.right.astype(float) for a, b in pairs], axis=0)
    return float(per_row.mean()), float(per_row.std(ddof=1) / np.sqrt(len(per_row)))


def judge_claims(claims: Sequence[Claim], chosen: Mapping[str, Sequence[Chosen]]) -> list[Verdict]:
    """Judge every claim of which both methods were run and have a budget in common."""

    def budgets(method: str) -> set[float]:
        return {point.budget for point in chosen.get(method, ())}

    return [
        Verdict(claim, *gap(chosen[claim.ours], chosen[claim.theirs]))
        for claim in claims
        if budgets(claim.ours) & budgets(claim.theirs)
    ]


def best_within(cost: ArrayLike, score: ArrayLike, budget: float) -> int | None:
    """Index of the best-scoring point that costs at most ``budget``; the cheapest of equals; None if there is none."""
    cost, score = np.asarray(cost, dtype=np.float64), np.asarray(score, dtype=np.float64)
    affordable = np.flatnonzero(cost <= budget * (1 + SLACK))
    if affordable.size == 0:
        return None
    return int(affordable[np.lexsort((cost[affordable], -score[affordable]))[0]])
