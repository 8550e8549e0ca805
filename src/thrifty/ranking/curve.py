"""What a gate per document buys in the order of a query's documents.

A document that stays is scored by the cheap model, one that is sent on by f0, and all documents of a query are ordered
by these scores together. So the two must be on one scale, log-odds of "relevant": an f0 that is merely more sure of
itself would put whatever is sent to it on top. Unlike accuracy, the value of a document's score depends on the
other documents of its query; there is no running sum over thresholds, and each is evaluated as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.evidence.threshold import cuts_of
from thrifty.exceptions import InvalidInputError
from thrifty.ranking.measures import PerQuery, average_precision_at, check_grades, check_scores
from thrifty.ranking.queries import Queries, as_queries

__all__ = ["Measure", "RankingCurve", "ranking_curve", "thresholds_of"]

Measure = Callable[[Floats, Floats, Queries, int], PerQuery]


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

    @property
    def n_undefined(self) -> int:
        """Queries that are left out of the mean."""
        return int(np.isnan(self.values[0]).sum())


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
    """Order documents by f0's score where the gate sends them on and by the cheap one elsewhere, at many thresholds.

    Parameters
    ----------
    gate, cheap, full : array-like of shape (n_documents,)
        Scores of the gate, of the cheap model and of f0; the last two as log-odds of "relevant".
    stop_cost, go_cost : float or array-like of shape (n_documents,)
        What a document pays that stays, and one that is sent on.
    y : array-like of shape (n_documents,)
        Grades.
    queries : Queries, or query ids of shape (n_documents,)
        Which documents belong together.
    thresholds : array-like, optional
        Where to cut the gate; by default ``n_points`` places that are evenly spaced in the number of documents sent,
        "nobody" and "everybody" among them.
    n_points : int, default=200
        Most thresholds to evaluate, where none are given.
    k : int, default=5
        Places that count.
    measure : callable, default=average_precision_at
        ``(y, score, queries, k) -> PerQuery``.
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
        values[place] = measure(grades, np.where(sent, full, cheap), queries, k).value
        cost[place], share[place] = np.where(sent, go, stop).mean(), sent.mean()
    return RankingCurve(cuts, cost, share, values)


def thresholds_of(gate: Floats, n_points: int) -> Floats:
    """At most so many cuts of a gate, evenly spaced in the number of rows they send, both ends among them."""
    if n_points < 2:
        raise InvalidInputError(
            f"n_points must be at least 2, to send nobody and to send everybody; got {n_points!r}."
        )
    cuts = cuts_of(gate)
    wanted = np.linspace(0, len(gate), n_points)
    nearest = np.clip(np.searchsorted(cuts.n_sent, wanted), 0, len(cuts.n_sent) - 1)
    return cuts.threshold[np.unique(nearest)]


def _falling(thresholds: ArrayLike) -> Floats:
    given = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if given.ndim != 1 or not given.size or np.isnan(given).any():
        raise InvalidInputError(f"thresholds must be at least one number, none missing; got {thresholds!r}.")
    return np.sort(given)[::-1]
