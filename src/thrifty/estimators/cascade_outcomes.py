"""A cascade's operating points as outcomes: out of fold while it is learned, or on rows with known labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats
from thrifty.chain.cascade_system import CascadeSystem
from thrifty.evidence.outcomes import PointOutcomes
from thrifty.evidence.stopping import route_by
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import clip_probability
from thrifty.learning.cascade.learn import LearnedCascade

__all__ = ["JudgedRows", "held_out_rows_of", "judge_rows"]


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """What a cascade did with some rows, as if each got to every stage: enough to count any operating point.

    Attributes
    ----------
    gate : ndarray of shape (n_rows, n_stages)
        Gate scores.
    right : ndarray of shape (n_rows, n_stages + 1), bool
        Whether each stage and, last, the answer with f0 is right.
    full_right : ndarray of shape (n_rows,), bool
        Whether f0 alone is right.
    """

    gate: Floats
    right: Bools
    full_right: Bools

    def points(self, system: CascadeSystem) -> list[PointOutcomes]:
        """Every operating point of the cascade on these rows."""
        cost, features = system.cost_by_route, tuple(int(column) for column in system.steps[-1].columns)
        rows = np.arange(len(self.gate))
        points = []
        for number, one in enumerate(system.operating.thresholds):
            route = route_by(self.gate, one)
            points.append(
                PointOutcomes(
                    cost=cost[route],
                    right=self.right[rows, route],
                    sent=route == self.gate.shape[1],
                    features=features,
                    settings={"point": number},
                    full_right=self.full_right,
                )
            )
        return points


def held_out_rows_of(learned: LearnedCascade, full_log_odds: Floats, y: Floats) -> JudgedRows:
    """The rows of the fit, each answered by models that have not seen it."""
    return JudgedRows(learned.evidence.gate, learned.right, (full_log_odds > 0) == (y > 0))


def judge_rows(system: CascadeSystem, X: Any, y: NDArray[Any]) -> JudgedRows:
    """Labelled rows that nothing was learned from; f0 is asked about all of them, once."""
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
    return JudgedRows(gate, (every > 0) == positive[:, None], (full > 0.5) == positive)
