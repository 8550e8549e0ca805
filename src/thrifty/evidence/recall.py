"""Recall of every class at operating points, and the best point whose recalls reach given floors.

The recall of a class is the share of its rows that are answered with it. Rows that follow one of two points by chance
have the mean of their recalls, so that cost, score and recalls are linear between neighbours: the best mix is one of
the points, the one that just spends the budget, or one that just reaches a floor.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Labels
from thrifty.chain.policy import SLACK, Policy
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.tasks.classes import ClassTask

__all__ = ["check_floors", "recalls_at", "with_classes", "within_floors"]


def with_classes(evidence: Evidence, task: Any) -> Evidence:
    """The evidence with the class of every row and, where quality does not tell, which answers are right.

    One byte per row for up to 256 classes, and one more per row and place where answers are not just right or wrong.
    """
    if not isinstance(task, ClassTask) or evidence.target is None or evidence.scores is None:
        return evidence
    strata = task.strata(evidence.target).astype(np.min_scalar_type(len(task.classes) - 1))
    right = None
    if evidence.quality.dtype != bool:
        places = range(evidence.scores.shape[1])
        right = np.column_stack([task.best(evidence.scores[:, place]) == strata for place in places])
    return replace(evidence, strata=strata, right=right)


def recalls_at(evidence: Evidence, points: Floats, n_classes: int) -> Floats:
    """Recall of every class at some points, shape (n_points, n_classes); every row with its weight."""
    right = evidence.quality if evidence.right is None else evidence.right
    if evidence.strata is None or right.dtype != bool:
        raise InvalidInputError(
            "recall cannot be told: the rows that the operating points were judged on are known without their classes, "
            "as files of earlier versions keep them. Fit again."
        )
    total = np.bincount(evidence.strata, evidence.weights, n_classes)
    found, judged = np.empty((len(points), n_classes)), replace(evidence, quality=right)
    for place, point in enumerate(points):
        _, _, answered = judged.at_point(point)
        found[place] = np.bincount(evidence.strata, evidence.weights * answered, n_classes)
    # A class without rows among these is never missed.
    recalls: Floats = np.divide(found, total, out=np.ones_like(found), where=total > 0)
    return recalls


def check_floors(min_recall: Any, classes: Labels) -> dict[int, float]:
    """Least recall by number of the class, from a dict by label, or a refusal."""
    if not isinstance(min_recall, Mapping) or not min_recall:
        raise InvalidInputError(
            f"min_recall must be a dict from labels to the least share of their rows to be found, such as "
            f"{{{classes.tolist()[-1]!r}: 0.9}}; got {min_recall!r}."
        )
    known, floors = classes.tolist(), {}
    for label, floor in min_recall.items():
        if label not in known:
            raise InvalidInputError(f"min_recall names {label!r}, which is not one of the labels {known}.")
        if not isinstance(floor, int | float | np.number) or isinstance(floor, bool) or not 0 <= floor <= 1:
            raise InvalidInputError(f"min_recall of {label!r} must lie in [0, 1]; got {floor!r}.")
        floors[known.index(label)] = float(floor)
    return floors


def within_floors(
    policy: Policy,
    recalls: Floats,
    floors: Mapping[int, float],
    budget: float | None,
    price: float | None,
    classes: Labels,
) -> Policy:
    """The policy at the best point, or mix of two, within a budget whose recalls reach the floors.

    Without a budget it is the cheapest one, or where mistakes have a ``price`` the one of least total cost.

    Parameters
    ----------
    recalls : ndarray of shape (n_points, n_classes)
        Recall of every class at the points of the policy.
    """
    mixes = _corners(policy, recalls, floors, budget)
    lower, share = mixes[:, 0].astype(np.intp), mixes[:, 1]
    upper = np.minimum(lower + 1, len(policy) - 1)
    cost = (1 - share) * policy.cost[lower] + share * policy.cost[upper]
    score = (1 - share) * policy.score[lower] + share * policy.score[upper]
    reached = (1 - share)[:, None] * recalls[lower] + share[:, None] * recalls[upper]
    affordable = np.ones(len(cost), dtype=bool) if budget is None else cost <= budget * (1 + SLACK)
    if not affordable.any():
        policy.within(float(budget or 0.0))  # refuses, and says how much the cheapest point costs
    least = np.array(list(floors.values()))
    there = reached[:, list(floors)]
    allowed = np.flatnonzero(affordable & (there >= least - SLACK).all(axis=1))
    if not len(allowed):
        raise _out_of_reach(there[affordable], cost[affordable], floors, budget, classes)
    wanted = -score if budget is not None else cost if price is None else cost - score
    best = allowed[np.lexsort((cost[allowed], wanted[allowed]))[0]]
    return policy.at(lower[best], upper[best], share[best])


def _corners(policy: Policy, recalls: Floats, floors: Mapping[int, float], budget: float | None) -> Floats:
    """Where the best mix may lie, as a point and a share of the next: points, the budget, and the floors."""
    mixes = [(float(place), 0.0) for place in range(len(policy))]
    for place in range(len(policy) - 1):
        limits = [(policy.cost, budget)] if budget is not None else []
        limits += [(recalls[:, one], floor) for one, floor in floors.items()]
        for values, limit in limits:
            step = float(values[place + 1] - values[place])
            share = (limit - float(values[place])) / step if step else 0.0
            if 0.0 < share < 1.0:
                mixes.append((float(place), share))
    return np.array(mixes)


def _out_of_reach(
    recalls: Floats, cost: Floats, floors: Mapping[int, float], budget: float | None, classes: Labels
) -> InvalidInputError:
    """The refusal, with the point that misses the floors by least."""
    short = (np.array(list(floors.values())) - recalls).max(axis=1)
    nearest = int(np.lexsort((cost, short))[0])
    labels = [classes[one].item() if hasattr(classes[one], "item") else classes[one] for one in floors]
    wanted = ", ".join(f"{label!r}: {floor:g}" for label, floor in zip(labels, floors.values(), strict=True))
    found = ", ".join(f"{label!r}: {one:.4g}" for label, one in zip(labels, recalls[nearest], strict=True))
    within = "" if budget is None else f" within budget={budget!r}"
    return InvalidInputError(
        f"min_recall={{{wanted}}} is not reached{within}: the point that comes nearest has {{{found}}} at a mean cost "
        f"of {float(cost[nearest]):.6g}, on rows that its models have not seen. Ask for less, raise the budget, or fit "
        f"with a larger class_weight, or with a loss in which missing that class costs more."
    )
