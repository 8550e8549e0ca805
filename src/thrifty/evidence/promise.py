"""Expected cost, score and measures of new rows at the operating point in force, estimated out of fold."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence, QueryEvidence
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.measures import ClassRows, banded, with_classes
from thrifty.tasks.task import ERRORS, Task, mean_error, mean_errors

__all__ = ["Promise", "promise_of"]

_Z95 = 1.96


@dataclass(frozen=True)
class Promise:
    """Expected results of new rows at an operating point, measured out of fold.

    Attributes
    ----------
    accuracy, low, high : float
        Accuracy, or R2 where numbers are predicted, with a 95 % bootstrap interval of the population mean; for the mean
        of a few new rows see ``interval``.
    cost, cost_spread : float
        Mean cost per row, and the standard deviation of the cost of one row.
    share : float
        Share of rows that the full model answers.
    n_rows : int
        Rows it was measured on.
    full_cost : float
        Mean cost per row of the full model for every row.
    full_accuracy : float, optional
        Accuracy, or R2, of the full model for every row.
    majority : float, optional
        Accuracy of the most frequent class, or R2 of the best constant number.
    score_spread : float, optional
        Standard deviation of the contribution of one row to R2; None for an accuracy p, where it is sqrt(p (1 - p)).
    measures : dict of str to tuple of float, optional
        By name, the value and the ends of a 95 % bootstrap interval. Where labels are predicted: accuracy, balanced
        accuracy, log-loss, AUC and the recall of each class; log-loss and AUC are lacking where scores are not known.
        Where numbers are predicted: mean errors in their unit.
    full_measures, constant_measures : dict of str to float, optional
        The same of the full model for every row, and of the best constant number.
    documents : float, optional
        Where documents are ranked, their mean number in a query. Rows are then queries, ``accuracy`` is the mean of
        their metric and ``majority`` that of orders by chance; costs and ``share`` are means over documents.
    """

    accuracy: float
    low: float
    high: float
    cost: float
    cost_spread: float
    share: float
    n_rows: int
    full_cost: float
    full_accuracy: float | None = None
    majority: float | None = None
    score_spread: float | None = None
    measures: dict[str, tuple[float, ...]] | None = None
    full_measures: dict[str, float] | None = None
    constant_measures: dict[str, float] | None = None
    documents: float | None = None

    @classmethod
    def from_dict(cls, known: Any) -> "Promise":
        """Promise from the entries in a file, checked."""
        names = {one.name for one in fields(cls)}
        if isinstance(known, dict) and set(known) <= names and all(map(_is_numbers, known.values())):
            try:
                return cls(**known)
            except TypeError:
                pass
        raise InvalidInputError(
            "the file must hold numbers by name in promise_; got something else. Fit the system again."
        )

    @property
    def query_cost(self) -> float | None:
        """Mean cost of all documents of a query, where documents are ranked."""
        return None if self.documents is None else self.cost * self.documents

    def spread(self, n_rows: int) -> float:
        """Standard deviation of the mean cost of ``n_rows`` new rows around the measured one, by sampling of rows."""
        return self.cost_spread * float(np.sqrt(1.0 / n_rows + 1.0 / self.n_rows))

    def interval(self, n_rows: int) -> tuple[float, float]:
        """95 % interval of the accuracy, or R2, of ``n_rows`` new rows.

        The squared errors of the measured and of the new rows, which are independent, add up.
        """
        spread = self.score_spread
        variance = self.accuracy * (1.0 - self.accuracy) if spread is None else spread**2
        chance = _Z95**2 * variance / n_rows
        low = self.accuracy - float(np.sqrt((self.accuracy - self.low) ** 2 + chance))
        high = self.accuracy + float(np.sqrt((self.high - self.accuracy) ** 2 + chance))
        # R2 has no lower end.
        return max(low, 0.0) if spread is None else low, min(high, 1.0)


def _is_numbers(value: Any) -> bool:
    """Whether a value is a number, a tuple or a dict of numbers, or None."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_numbers(one) for name, one in value.items())
    if isinstance(value, tuple):
        return all(map(_is_numbers, value))
    return value is None or (isinstance(value, int | float) and bool(np.isfinite(value)))


def promise_of(estimator: Any, known: Promise | None = None) -> Promise:
    """Expected results at the operating point in force, from the evidence of an estimator.

    Parameters
    ----------
    estimator : fitted estimator
        With its evidence.
    known : Promise, optional
        Of another operating point on the same rows: what does not depend on the point is taken from there where the
        evidence, read from a file, does not tell any more.
    """
    chain, evidence = estimator.chain_, _as_served(estimator)
    policy = chain.policy
    # With the probability that a row follows it: nothing is drawn here.
    points = [(1.0 - policy.share, policy.lower), (policy.share, policy.upper)]
    seen = [(weight, *evidence.at_point(policy.thresholds[point])) for weight, point in points if weight]
    quality = np.sum([weight * right for weight, _, _, right in seen], axis=0)
    cost = float(sum(weight * paid.mean() for weight, _, paid, _ in seen))
    squared = sum(weight * np.square(paid - cost).mean() for weight, _, paid, _ in seen)
    sent = np.sum([weight * (route == evidence.n_stages) for weight, route, _, _ in seen], axis=0)
    band = Frontier.from_evidence([Evidence.of_point(0.0, quality, np.zeros(len(quality)))]).band(0.95)
    full = evidence.full_quality
    promise = Promise(
        accuracy=float(quality.mean()),
        low=float(band.score_low[0]),
        high=float(band.score_high[0]),
        cost=cost,
        cost_spread=float(np.sqrt(squared)),
        share=float(sent.mean()),
        n_rows=evidence.n_rows,
        full_cost=chain.price_list.cost_of_full,
        full_accuracy=None if full is None else float(full.mean()),
        score_spread=None if evidence.quality.dtype == bool else float(quality.std()),
    )
    if isinstance(evidence, QueryEvidence):
        return _of_orders(promise, evidence)
    right = quality if evidence.right is None else _right(evidence.right, seen)
    if evidence.target is None or evidence.scores is None:
        if evidence.strata is not None and len(chain.task.classes):
            promise = replace(promise, measures=_measures(chain.task, evidence.strata.astype(np.intp), right))
        if known is None:
            return promise
        return replace(
            promise,
            majority=known.majority,
            full_measures=known.full_measures,
            constant_measures=known.constant_measures,
        )
    y, full_scores = evidence.target, evidence.full_scores
    promise = replace(promise, majority=chain.task.constant_quality(y, np.ones(len(y))))
    if len(chain.task.classes) == 0:
        return _with_errors(
            promise, chain.task, evidence, quality, [(weight, route) for weight, route, _, _ in seen]
        )
    strata = chain.task.strata(y)
    drawn = _drawn_scores(evidence, [(weight, route) for weight, route, _, _ in seen], policy.seed)
    if full is not None and evidence.right is not None:
        # What is right is not what quality counts, where answers lose.
        full = None if full_scores is None else _is_right(chain.task, full_scores, strata)
    return replace(
        promise,
        measures=_measures(chain.task, strata, right, drawn),
        full_measures=None
        if full is None or full_scores is None
        else _values(chain.task, strata, np.asarray(full, dtype=np.float64), full_scores),
    )


def _of_orders(promise: Promise, evidence: QueryEvidence) -> Promise:
    """Promise of a ranking, with the metric of random orders."""
    return replace(
        promise,
        full_accuracy=None if evidence.full_quality is None else evidence.full_score,
        majority=float(np.nanmean(evidence.value(np.zeros(evidence.n_documents)))),
        documents=evidence.n_documents / evidence.n_rows,
    )


def _as_served(estimator: Any) -> Evidence:
    """Evidence with the full model's own answers, if the chain in force serves these and not a blend."""
    chain = estimator.chain_
    evidence: Evidence = estimator.evidence_
    alone = chain.blend is not None and np.array_equal(chain.blend, chain.task.full_alone)
    if not alone or evidence.full_quality is None:
        return evidence
    quality, scores = evidence.quality.copy(), evidence.scores
    quality[:, -1] = evidence.full_quality
    if scores is not None and evidence.full_scores is not None:
        scores = np.concatenate([scores[:, :-1], evidence.full_scores[:, None]], axis=1)
    served = replace(evidence, quality=quality, scores=scores)
    return served if evidence.right is None else with_classes(served, chain.task)


def _right(right: Bools, seen: Sequence[tuple[float, Any, Any, Any]]) -> Floats:
    """Probability that each row is answered with its class, where quality counts something else."""
    rows = np.arange(len(right))
    found: Floats = np.sum([weight * right[rows, route] for weight, route, _, _ in seen], axis=0)
    return found


def _is_right(task: Task, scores: Floats, strata: Ints) -> Bools:
    right: Bools = task.answers(task.outputs(scores)) == task.classes[strata]
    return right


def _drawn_scores(evidence: Evidence, routes: list[tuple[float, Any]], seed: int) -> Floats:
    """Scores that rows are answered with; of two routes of a row, one is drawn."""
    scores, rows = evidence.scores, np.arange(evidence.n_rows)
    assert scores is not None  # checked by the caller
    route = routes[0][1]
    if len(routes) > 1:
        follows = np.random.default_rng(seed).random(evidence.n_rows) < routes[1][0]
        route = np.where(follows, routes[1][1], route)
    drawn: Floats = scores[rows, route]
    return drawn


def _with_errors(
    promise: Promise, task: Task, evidence: Evidence, quality: Floats, routes: list[tuple[float, Any]]
) -> Promise:
    """Promise with mean errors in the unit of the target, and with the standard deviation of R2."""
    y, scores, rows = evidence.target, evidence.scores, np.arange(evidence.n_rows)
    assert y is not None  # checked by the caller
    assert scores is not None
    constant = np.tile(task.loss(y).base(np.ones(len(y))), (len(y), 1))
    errors = {}
    for name, power in ERRORS.items():
        each = np.sum(
            [weight * _powers(task, y, scores[rows, route], power) for weight, route in routes], axis=0
        )
        band = Frontier.from_evidence([Evidence.of_point(0.0, -each, np.zeros(len(y)))]).band(0.95)
        ends = (-float(band.score_high[0]), -float(band.score_low[0]))
        errors[name] = tuple(float(mean_error(one, power)) for one in (float(each.mean()), *ends))
    # R2 is one minus a quotient of means, and a row moves both of them.
    baseline = 1.0 - np.asarray(task.quality_of_scores(y, constant), dtype=np.float64)
    adds = ((1.0 - quality.mean()) / baseline.mean() * baseline - (1.0 - quality)) / baseline.mean()
    full = evidence.full_scores
    return replace(
        promise,
        score_spread=float(adds.std()),
        measures=errors,
        full_measures=None if full is None else mean_errors(task, y, full),
        constant_measures=mean_errors(task, y, constant),
    )


def _powers(task: Task, y: Floats, scores: Floats, power: int) -> Floats:
    errors = task.errors(y, scores)
    assert errors is not None  # of numbers, which are what is asked about
    return np.asarray(errors**power, dtype=np.float64)


def _rows(task: Task, strata: Ints, quality: Floats, scores: Floats | None) -> ClassRows:
    outputs = None if scores is None else task.outputs(scores)
    return ClassRows(
        quality[None], strata, tuple(task.classes.tolist()), None if outputs is None else [outputs]
    )


def _measures(
    task: Task, strata: Ints, quality: Floats, scores: Floats | None = None
) -> dict[str, tuple[float, ...]]:
    rows = _rows(task, strata, quality, scores)
    found = banded(rows, rows.names, level=0.95, n_boot=1000, seed=0)
    return {name: tuple(float(end[0]) for end in ends) for name, ends in found.items()}


def _values(task: Task, strata: Ints, quality: Floats, scores: Floats) -> dict[str, float]:
    rows = _rows(task, strata, quality, scores)
    found = rows.under(np.ones((len(strata), 1)), rows.names)
    return {name: float(value[0, 0]) for name, value in found.items()}
