"""Choose on validation queries, report on test queries: average precision in the place of accuracy.

The rule is that of every experiment, the measure is not a mean over rows. Scores of f0 and of a cheap model are put on
one scale first, log-odds of "relevant" by a sigmoid fitted on the validation documents: a forest and
boosted trees are sure of themselves in different ways, and a gate mixes their documents in one list.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from reproduction.experiments.selection import AnyCandidate, Chosen, PointCandidate, best_within
from reproduction.ranking_curve import band_over_queries, ranking_curve
from thrifty.arrays import Bools, Floats
from thrifty.engine.tasks.logistic import platt
from thrifty.engine.tasks.ranking import Queries, average_precision_at, ndcg_at

__all__ = [
    "Documents",
    "RankedChoice",
    "RankedTask",
    "choose_ranked",
    "full_alone",
    "full_log_odds",
    "on_one_scale",
]

Points = tuple[Floats, Floats, Floats]
"""Threshold, mean cost and average precision of operating points."""

Answers = tuple[Floats, Floats, Bools]
"""Score and cost of every test document, and which of them reached f0."""


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents of some queries, and f0's score of each as log-odds of "relevant"."""

    grades: NDArray[np.intp]
    queries: Queries
    full: Floats

    def average_precision(self, score: Floats, k: int) -> Floats:
        """Average precision of every query with a relevant document, if documents are ordered by a score."""
        values = average_precision_at(self.grades, score, self.queries, k)
        return values[~np.isnan(values)]


@dataclass(frozen=True, eq=False)
class RankedTask:
    """Documents that orders are chosen with and reported on.

    Attributes
    ----------
    val, test : Documents
        Documents to choose with, and to report on.
    full_cost : float
        Cost of a document that reaches f0.
    k : int
        Number of places that count.
    n_thresholds : int
        Most thresholds of one gate to look at.
    """

    val: Documents
    test: Documents
    full_cost: float
    k: int = 5
    n_thresholds: int = 40


@dataclass(frozen=True)
class RankedChoice(Chosen):
    """The operating point taken for one budget; ``accuracy`` is average precision, ``right`` that of each query.

    Attributes
    ----------
    ndcg : float
        Normalised discounted cumulative gain of the places that count.
    band, cost_band : (float, float)
        95 % bootstrap intervals over test queries of average precision and of the mean cost per document.
    query_cost : float
        Mean over queries of what their documents paid together.
    """

    ndcg: float = field(kw_only=True)
    band: tuple[float, float] = field(kw_only=True)
    cost_band: tuple[float, float] = field(kw_only=True)
    query_cost: float = field(kw_only=True)

    def as_numbers(self) -> dict[str, Any]:
        """Return everything but the values per query, under the measure's own name."""
        names = {"accuracy": "average_precision", "val_accuracy": "val_average_precision"}
        return {names.get(name, name): value for name, value in super().as_numbers().items()}

    def in_words(self) -> str:
        """Show average precision and half the width of its band."""
        return f"{self.accuracy:.3f} ± {(self.band[1] - self.band[0]) / 2:.3f}"


def full_log_odds(probability: Floats, n_trees: int) -> Floats:
    """Turn a forest's votes into log-odds; a vote of nobody is taken as half a vote."""
    least = 0.5 / (n_trees + 1)
    return np.asarray(logit(np.clip(probability, least, 1 - least)), dtype=np.float64)


def on_one_scale(val: Floats, test: Floats, relevant: Bools) -> tuple[Floats, Floats]:
    """Calibrate scores of validation and test documents to log-odds by a sigmoid, fitted on the former."""
    slope, intercept = platt(val, np.where(relevant, 1.0, -1.0), np.ones(len(val)))
    return slope * val + intercept, slope * test + intercept


def choose_ranked(
    candidates: Sequence[AnyCandidate], task: RankedTask, budgets: Iterable[float]
) -> list[RankedChoice]:
    """Choose the best operating point on validation queries for each affordable budget; score it on test queries."""
    systems = [_scaled(candidate, task) for candidate in candidates]
    points = [system.validation_points(task) for system in systems]
    owner = np.repeat(np.arange(len(points)), [len(point[0]) for point in points])
    threshold, cost, precision = (np.concatenate(parts) for parts in zip(*points, strict=True))
    chosen = []
    for budget in budgets:
        best = best_within(cost, precision, budget)
        if best is not None:
            system, cut = systems[owner[best]], float(threshold[best])
            answers = system.on_test(task, cut)
            on_val = float(precision[best]), float(cost[best])
            chosen.append(_report(task, float(budget), system.settings, cut, on_val, answers))
    return chosen


def full_alone(task: RankedTask) -> RankedChoice:
    """Report what f0 reaches if it answers every document."""
    n_documents = len(task.test.grades)
    answers = task.test.full, np.full(n_documents, task.full_cost), np.ones(n_documents, dtype=bool)
    on_val = float(task.val.average_precision(task.val.full, task.k).mean()), task.full_cost
    return _report(task, task.full_cost, {}, -np.inf, on_val, answers)


def _report(
    task: RankedTask,
    budget: float,
    settings: dict[str, Any],
    threshold: float,
    on_val: tuple[float, float],
    answers: Answers,
) -> RankedChoice:
    """Measure answers on test queries; ``on_val`` is average precision and cost on validation queries."""
    score, cost, sent = answers
    queries = task.test.queries
    per_query: Any = task.test.average_precision(score, task.k)
    paid = queries.total(cost)
    return RankedChoice(
        budget=budget,
        settings=settings,
        threshold=threshold,
        val_accuracy=on_val[0],
        val_cost=on_val[1],
        accuracy=float(per_query.mean()),
        cost=float(cost.mean()),
        share=float(sent.mean()),
        right=per_query,
        ndcg=float(np.nanmean(ndcg_at(task.test.grades, score, queries, task.k))),
        band=band_over_queries(per_query),
        cost_band=band_over_queries(paid / queries.size, queries.size),
        query_cost=float(paid.mean()),
    )


# -- the two kinds of candidates -----------------------------------------------------------------


@dataclass(frozen=True)
class _Gated:
    """A cheap model and a gate, with both models' scores on one scale."""

    settings: dict[str, Any]
    cost: float
    g_val: Floats
    cheap_val: Floats
    g_test: Floats
    cheap_test: Floats
    threshold: float | None

    def validation_points(self, task: RankedTask) -> Points:
        val = task.val
        curve = ranking_curve(
            self.g_val,
            self.cheap_val,
            val.full,
            self.cost,
            task.full_cost,
            val.grades,
            val.queries,
            thresholds=None if self.threshold is None else [self.threshold],
            n_points=task.n_thresholds,
            k=task.k,
        )
        return curve.threshold, curve.cost, curve.score

    def on_test(self, task: RankedTask, threshold: float) -> Answers:
        sent = self.g_test > threshold
        score = np.where(sent, task.test.full, self.cheap_test)
        return score, np.where(sent, task.full_cost, self.cost), sent


@dataclass(frozen=True)
class _Point:
    """One operating point, whose scores are on one scale already."""

    candidate: PointCandidate

    @property
    def settings(self) -> dict[str, Any]:
        return self.candidate.settings

    def validation_points(self, task: RankedTask) -> Points:
        precision = task.val.average_precision(self.candidate.score_val, task.k).mean()
        return np.array([np.nan]), np.array([self.candidate.cost_val.mean()]), np.array([precision])

    def on_test(self, task: RankedTask, threshold: float) -> Answers:  # noqa: ARG002
        return self.candidate.score_test, self.candidate.cost_test, self.candidate.sent_test


def _scaled(candidate: AnyCandidate, task: RankedTask) -> _Gated | _Point:
    if isinstance(candidate, PointCandidate):
        return _Point(candidate)
    cheap_val, cheap_test = on_one_scale(candidate.f1_val, candidate.f1_test, task.val.grades >= 1)
    return _Gated(
        candidate.settings,
        candidate.cost,
        candidate.g_val,
        cheap_val,
        candidate.g_test,
        cheap_test,
        candidate.threshold,
    )
