"""From training rows to a learned cascade and on to what serves: the steps of ``fit`` that need no estimator."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from thrifty.arrays import Ints
from thrifty.chain.cascade_system import CascadeStep, CascadeSystem, Operating
from thrifty.exceptions import FullModelNotWorthItWarning, InvalidInputError
from thrifty.full.crossfit import JudgedFull, TrainingRows
from thrifty.learning.cascade.learn import CLEARLY, LearnedCascade, lead
from thrifty.objective.costs import PriceList
from thrifty.rows import content_folds

__all__ = ["hold_out", "system_of", "warn_if_full_is_worse"]


CERTIFYING_SHARE = 4
"""One row in so many is held out for the certificate."""


def hold_out(rows: TrainingRows, seed: int) -> tuple[TrainingRows, TrainingRows]:
    """Rows to learn from, and rows to prove with, which nothing else may see."""
    if rows.weighted:
        raise InvalidInputError(
            "max_loss counts rows and knows no weights; got sample_weight. Leave one of them out, or repeat rows."
        )
    is_proof = content_folds(rows.X, rows.y, CERTIFYING_SHARE, seed + 1) == 0
    return _part(rows, np.flatnonzero(~is_proof)), _part(rows, np.flatnonzero(is_proof))


def _part(rows: TrainingRows, chosen: Ints) -> TrainingRows:
    return replace(
        rows,
        table=_safe_indexing(rows.table, chosen),
        X=rows.X[chosen],
        y=rows.y[chosen],
        weight=rows.weight[chosen],
        folds=rows.folds[chosen],
        positions=rows.positions[chosen],
    )


def system_of(
    learned: LearnedCascade,
    judged: JudgedFull,
    prices: PriceList,
    rows: TrainingRows,
    names: Any,
    kind: str | None,
    seed: int,
) -> CascadeSystem:
    """What serves, from what was learned: plain arrays, at the most accurate operating point."""
    staged, policies = learned.staged, learned.policies
    gates = [None] * len(staged.sets) if learned.gates is None else learned.gates
    steps = tuple(
        CascadeStep(columns, part.over_columns(columns), float(slope), float(intercept), gate)
        for columns, part, (slope, intercept), gate in zip(
            staged.sets, staged.parts, learned.sigmoids, gates, strict=True
        )
    )
    last = len(policies) - 1
    operating = Operating(policies.thresholds, policies.cost, learned.accuracy(), last, last, 0.0, seed)
    return CascadeSystem(
        steps,
        staged.base,
        operating,
        learned.blend,
        judged.model,
        prices,
        rows.classes,
        None if names is None else tuple(names),
        kind,
    )


def warn_if_full_is_worse(learned: LearnedCascade, judged: JudgedFull, rows: TrainingRows) -> None:
    """Say so if a cheap stage answers clearly better than f0, row by row, and asking both gains nothing."""
    full_right = (judged.log_odds() > 0) == (rows.y > 0)
    stages = learned.right[:, :-1]
    best = int(np.argmax(rows.weight @ stages))
    if not learned.asks_full and lead(stages[:, best], full_right) > CLEARLY:
        cost = learned.evidence.cost[best]
        warnings.warn(
            f"f0 is right on {full_right.mean():.4g} of the rows and stage {best}, at cost {cost:g}, on "
            f"{stages[:, best].mean():.4g} of them, both out of fold: f0 is not worth asking. Every operating "
            f"point does without it; give a better one, or let the stages answer alone.",
            FullModelNotWorthItWarning,
            stacklevel=3,
        )
