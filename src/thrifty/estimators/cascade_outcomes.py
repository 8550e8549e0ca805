"""A cascade's operating points as outcomes: out of fold while it is learned, or on rows with known labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.cascade_system import CascadeSystem
from thrifty.cascading.learning import LearnedCascade
from thrifty.exceptions import InvalidInputError
from thrifty.full import clip_probability
from thrifty.policy.outcomes import PointOutcomes
from thrifty.policy.stopping import route_by

__all__ = ["held_out_points", "points_on"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def held_out_points(learned: LearnedCascade, full_log_odds: Floats, y: Floats) -> list[PointOutcomes]:
    """Every operating point on the rows of the fit, each answered by models that have not seen it."""
    evidence = learned.evidence
    full_right = (full_log_odds > 0) == (y > 0)
    thresholds = learned.policies.thresholds
    return _points(
        evidence.gate, learned.right, evidence.cost, thresholds, full_right, learned.staged.sets[-1]
    )


def points_on(system: CascadeSystem, X: Any, y: NDArray[Any]) -> list[PointOutcomes]:
    """Every operating point on labelled rows; f0 is asked about all of them, once."""
    reader = system.reader(X)
    if y.shape != (reader.n_samples,) or not np.isin(y, system.classes).all():
        raise InvalidInputError(
            f"y must hold one of the labels {system.classes.tolist()} for each of the {reader.n_samples} rows; "
            f"got shape {y.shape} with {np.unique(y)[:5].tolist()}."
        )
    rows = np.arange(reader.n_samples)
    gate, log_odds = system.every_stage(reader)
    full = clip_probability(system.full.probability(reader.table(rows), rows, reader.n_samples))
    positive = y == system.classes[1]
    every = np.column_stack([log_odds, system.blended(log_odds[:, -1], full)])
    right = (every > 0) == positive[:, None]
    return _points(
        gate,
        right,
        system.cost_by_route,
        system.operating.thresholds,
        (full > 0.5) == positive,
        system.steps[-1].columns,
    )


def _points(
    gate: Floats, right: Bools, cost: Floats, thresholds: Floats, full_right: Bools, features: Any
) -> list[PointOutcomes]:
    rows = np.arange(len(gate))
    points = []
    for number, one in enumerate(thresholds):
        route = route_by(gate, one)
        points.append(
            PointOutcomes(
                cost=cost[route],
                right=right[rows, route],
                sent=route == gate.shape[1],
                features=tuple(int(column) for column in features),
                settings={"point": number},
                full_right=full_right,
            )
        )
    return points
