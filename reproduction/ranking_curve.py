"""What a gate per document buys in the order of a query's documents.

A document that stays is scored by the cheap model, one that is sent on by the full model, and all documents of a query
are ordered by these scores together. So the two must be on one scale, log-odds of "relevant": a full model that is
merely more sure of itself would put whatever is sent to it on top. Unlike accuracy, the value of a document's score
depends on the other documents of its query; there is no running sum over thresholds, and each is evaluated as it is.

How sure a mean over queries is, is found by drawing queries, not documents, with replacement. Documents of one query
share its words, its difficulty and, in normalised data, its scale: they are not independent, and a band over documents
would be far too narrow.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.engine.evidence.measures import check_bootstrap, tails
from thrifty.engine.tasks.ranking import (
    Queries,
    as_queries,
    average_precision_at,
    check_grades,
    check_scores,
)
from thrifty.engine.walk.policy import distinct_thresholds
from thrifty.errors import InvalidInputError

__all__ = ["Measure", "RankingCurve", "band_over_queries", "ranking_curve", "thresholds_of"]

Measure = Callable[[Floats, Floats, Queries, int], Floats]


@dataclass(frozen=True, eq=False)
class RankingCurve:
    """Operating points of one gate on the documents of some queries, from "send nobody" on.

    Attributes
    ----------
    threshold : ndarray of shape (n_points,)
        Documents with ``gate > threshold`` are sent on; falling.
    cost, share : ndarray of shape (n_points,)
        Mean spend per document, and share of documents sent on.
    values : ndarray of shape (n_points, n_queries)
        The measure of each query; NaN where it is not defined.
    """

    threshold: Floats
    cost: Floats
    share: Floats
    values: Floats

    @property
    def score(self) -> Floats:
        """Mean of the measure over the queries for which it is defined, shape (n_points,)."""
        defined = ~np.isnan(self.values[0])
        means: Floats = self.values[:, defined].mean(axis=1) if defined.any() else self.values[:, 0]
        return means


def ranking_curve(
    gate: ArrayLike,
    cheap: ArrayLike,
    full: ArrayLike,
    stop_cost: ArrayLike,
    go_cost: ArrayLike,
    y: ArrayLike,
    queries: Queries | ArrayLike,
    *,
    thresholds: ArrayLike | None = None,
    n_points: int = 200,
    k: int = 5,
    measure: Measure = average_precision_at,
) -> RankingCurve:
    """Evaluate the order of documents at many thresholds of a gate that sends them to the full model.

    A query's documents are ordered by the full model's score where they are sent on, by the cheap one elsewhere.

    Parameters
    ----------
    gate, cheap, full : array-like of shape (n_documents,)
        Scores of the gate, of the cheap model and of the full model; the last two as log-odds of "relevant".
    stop_cost, go_cost : float or array-like of shape (n_documents,)
        Price of a document that stays, and of one that is sent on.
    y : array-like of shape (n_documents,)
        Grades of relevance.
    queries : Queries, or query ids of shape (n_documents,)
        Which documents belong together.
    thresholds : array-like, optional
        Where to cut the gate; by default ``n_points`` places that are evenly spaced in the number of documents sent,
        "nobody" and "everybody" among them.
    n_points : int, default=200
        Most thresholds to evaluate, where none are given.
    k : int, default=5
        Number of first places that count.
    measure : callable, default=average_precision_at
        A function ``(y, score, queries, k)`` that returns a number for each query.
    """
    grades = check_grades(y)
    n = len(grades)
    queries = as_queries(queries, n)
    gate, cheap, full = (
        check_scores(scores, n, name) for scores, name in ((gate, "gate"), (cheap, "cheap"), (full, "full"))
    )
    cuts = thresholds_of(gate, n_points) if thresholds is None else _falling(thresholds)
    stop, go = (np.broadcast_to(np.asarray(cost, dtype=np.float64), (n,)) for cost in (stop_cost, go_cost))
    values = np.empty((len(cuts), queries.n_queries))
    cost, share = np.empty((2, len(cuts)))
    for place, cut in enumerate(cuts):
        sent = gate > cut
        values[place] = measure(grades, np.where(sent, full, cheap), queries, k)
        cost[place], share[place] = np.where(sent, go, stop).mean(), sent.mean()
    return RankingCurve(cuts, cost, share, values)


def band_over_queries(
    values: ArrayLike,
    weight: ArrayLike = 1.0,
    *,
    level: float = 0.95,
    n_boot: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of a weighted mean over queries.

    Parameters
    ----------
    values : array-like of shape (n_queries,)
        A value per query. NaN, a query for which the measure is not defined, is left out.
    weight : float or array-like of shape (n_queries,), default=1.0
        Weight of each query in the mean: the number of its documents, where the mean is one over documents.
    level : float, default=0.95
        Share of the draws that the interval holds.
    n_boot : int, default=1000
        Number of draws.
    seed : int, default=0
        Seed of the draws.
    """
    check_bootstrap(level, n_boot)
    given = np.asarray(values, dtype=np.float64)
    defined = ~np.isnan(given)
    if given.ndim != 1 or not defined.any():
        raise InvalidInputError(
            f"values must hold one number per query, at least one of them not missing; got shape {given.shape}."
        )
    kept = given[defined]
    weights = np.broadcast_to(np.asarray(weight, dtype=np.float64), given.shape)[defined]
    share = np.full(len(kept), 1.0 / len(kept))
    counts = np.random.default_rng(seed).multinomial(len(kept), share, size=n_boot)
    low, high = tails((counts @ (kept * weights)) / (counts @ weights), level)
    return float(low), float(high)


def thresholds_of(gate: Floats, n_points: int) -> Floats:
    """At most so many cuts of a gate, evenly spaced in the number of rows they send, both ends among them."""
    if n_points < 2:
        raise InvalidInputError(
            f"n_points must be at least 2, to send nobody and to send everybody; got {n_points!r}."
        )
    every = distinct_thresholds(gate)
    n_sent = len(gate) - np.searchsorted(np.sort(gate), every, side="right")
    nearest = np.clip(np.searchsorted(n_sent, np.linspace(0, len(gate), n_points)), 0, len(every) - 1)
    return every[np.unique(nearest)]


def _falling(thresholds: ArrayLike) -> Floats:
    given = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if given.ndim != 1 or not given.size or np.isnan(given).any():
        raise InvalidInputError(f"thresholds must be at least one number, none missing; got {thresholds!r}.")
    return np.sort(given)[::-1]
