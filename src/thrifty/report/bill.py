"""Where mistakes have prices: what each kind of them costs, and facts whose score is that cost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Ints
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.frontier import Frontier
from thrifty.report.classes import MOST_LABELS
from thrifty.report.facts import Bill, Facts, Majority, MistakeKind
from thrifty.report.routes import Routes
from thrifty.report.shown import Intervals
from thrifty.tasks.classes import ClassTask
from thrifty.tasks.mistakes import CostMatrix

__all__ = ["billed", "counting_right", "full_right_of", "least_total", "prices_of"]


def prices_of(frontier: Frontier, task: ClassTask | None) -> CostMatrix | None:
    """Prices of mistakes, where answers are judged by them; None where they are right or wrong."""
    if all(one.right is None for one in frontier.evidence):
        return None
    if task is None or task.mistakes is None:
        raise InvalidInputError(
            "the score of frontier is minus what answers lose, and nobody says by which prices. Give the fitted "
            "systems as `estimators` with `X`, or a frontier that knows its task, such as `estimator.frontier_`."
        )
    return task.mistakes if isinstance(task.mistakes, CostMatrix) else None


def counting_right(frontier: Frontier, task: ClassTask | None) -> Frontier:
    """The frontier with "is right" in the place of what probabilities lose."""
    if all(one.right is None for one in frontier.evidence):
        return frontier
    counted = [
        one if one.right is None else replace(one, quality=one.right, full_quality=full_right_of(one, task))
        for one in frontier.evidence
    ]
    return replace(frontier.on(counted), held_out=frontier.held_out)


def full_right_of(one: Evidence, task: ClassTask | None) -> Any:
    """Whether the full model's own answers are the true class, where quality says something else; None if unknown."""
    if one.full_scores is None or one.strata is None or task is None:
        return None
    return task.best(one.full_scores) == one.strata


def least_total(frontier: Frontier) -> int:
    """Place of the point whose tests and mistakes cost least together, by the rows of the choice."""
    return int(np.argmin(frontier.chosen.cost - frontier.chosen.score))


def billed(
    facts: Facts,
    y: ArrayLike,
    task: ClassTask,
    prices: CostMatrix,
    at: Sequence[tuple[Routes, Floats]],
    full_scores: Floats | None,
    intervals: Intervals,
    least: int,
) -> Facts:
    """Facts whose scores became what mistakes cost, with the totals and the kinds of mistakes."""
    points, full = facts.points, facts.full
    changed = {
        name: tuple(-one for one in getattr(points, opposite))
        for name, opposite in (
            ("accuracy", "accuracy"),
            ("low", "high"),
            ("high", "low"),
            ("lead_low", "lead_high"),
            ("lead_high", "lead_low"),
        )
    }
    truth = task.strata(task.encode("y", y, facts.measured.n_rows))
    said = [task.best(scores) for routes, point in at if (scores := routes.scores(point)) is not None]
    kinds = () if len(said) < len(at) else _kinds(task, prices.costs, truth, said, full_scores)
    constant = (np.bincount(truth, minlength=len(prices.costs)) @ prices.costs) / len(truth)
    return replace(
        facts,
        points=replace(points, **changed),
        full=None if full is None else replace(full, accuracy=-full.accuracy),
        rivals=tuple(replace(one, accuracy=tuple(-score for score in one.accuracy)) for one in facts.rivals),
        majority=Majority(str(task.classes[constant.argmin()]), float(constant.min())),
        score="cost of mistakes",
        bill=Bill(tuple(intervals.total_low.tolist()), tuple(intervals.total_high.tolist()), least, kinds),
    )


def _kinds(
    task: ClassTask, costs: Floats, truth: Ints, said: Sequence[Ints], full_scores: Floats | None
) -> tuple[MistakeKind, ...]:
    """What costs something, by class and answer, the dearest first; the cheapest of many together."""
    n_classes, n_rows = len(costs), len(truth)
    theirs = [] if full_scores is None else [task.best(full_scores)]
    counts = np.array(
        [np.bincount(truth * n_classes + one, minlength=n_classes**2) for one in (*said, *theirs)]
    )
    lost = counts * costs.reshape(-1) / n_rows
    priced = np.flatnonzero(costs.reshape(-1) > 0.0)
    order = priced[np.argsort(-lost[:, priced].sum(axis=0), kind="stable")]
    n_alone = len(order) if len(order) <= MOST_LABELS else MOST_LABELS - 1
    groups = [np.array([one]) for one in order[:n_alone]]
    if n_alone < len(order):
        groups.append(order[n_alone:])
    labels = [str(label) for label in task.classes.tolist()]
    found = []
    for group in groups:
        count, cost = counts[:, group].sum(axis=1), lost[:, group].sum(axis=1)
        one, alone = divmod(int(group[0]), n_classes), len(group) == 1
        found.append(
            MistakeKind(
                labels[one[0]] if alone else f"{len(group)} other kinds",
                labels[one[1]] if alone else "",
                float(costs[one]) if alone else None,
                tuple(count[: len(said)].tolist()),
                tuple(cost[: len(said)].tolist()),
                float(cost[-1]) if theirs else None,
            )
        )
    return tuple(found)
