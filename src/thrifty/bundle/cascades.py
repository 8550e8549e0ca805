"""A cascade as JSON and arrays: its stages, every operating point, the one in force, and the f0 at its end."""

from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.bundle.context import Columns, Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.fulls import pack_full, unpack_full
from thrifty.bundle.scorers import pack_columns, pack_ensemble
from thrifty.bundle.systems import MOST_STAGES, pack_table, unpack_table
from thrifty.bundle.values import Packer
from thrifty.cascade_system import CascadeStep, CascadeSystem, Operating

__all__ = ["pack_cascade", "unpack_cascade"]


def pack_cascade(system: CascadeSystem, writing: Writing) -> dict[str, Any]:
    """The cascade as JSON."""
    packer = writing.packer
    columns = Columns(system.price_list.n_features, system.names, system.kind)
    return {
        **pack_table(system.price_list, system.classes, system.names, system.kind, packer),
        "steps": [_pack_step(step, packer) for step in system.steps],
        "base": packer.value(float(system.base)),
        "operating": _pack_operating(system.operating, packer),
        "blend": packer.floats(system.blend),
        "full": pack_full(system.full, replace(writing, columns=columns)),
    }


def unpack_cascade(fields: Fields, reading: Reading) -> CascadeSystem:
    """The cascade, every part of it checked."""
    prices, classes, columns = unpack_table(fields)
    reading = replace(reading, columns=columns, classes=classes)
    parts = fields.items("steps")
    if not 0 < len(parts) <= MOST_STAGES:
        raise fields.refusal("steps", f"be between 1 and {MOST_STAGES}", len(parts))
    steps = tuple(_unpack_step(part, prices.n_features) for part in parts)
    for before, step, part in zip(steps, steps[1:], parts[1:], strict=False):
        if not np.isin(before.columns, step.columns).all():
            raise part.refusal("columns", "include those of the stage before", step.columns[:5].tolist())
    return CascadeSystem(
        steps,
        fields.number("base"),
        _unpack_operating(fields.inside("operating"), len(steps)),
        fields.array("blend", np.float64, (3,)),
        unpack_full(fields.inside("full"), reading),
        prices,
        classes,
        columns.names,
        columns.kind,
    )


def _pack_step(step: CascadeStep, packer: Packer) -> dict[str, Any]:
    return {
        "columns": pack_columns(step.columns, packer),
        "trees": pack_ensemble(step.trees, packer),
        "slope": packer.value(float(step.slope)),
        "intercept": packer.value(float(step.intercept)),
        "gate": None if step.gate is None else pack_ensemble(step.gate, packer),
    }


def _unpack_step(fields: Fields, n_features: int) -> CascadeStep:
    columns = fields.columns("columns", n_features)
    return CascadeStep(
        columns,
        fields.ensemble("trees", len(columns)),
        fields.number("slope"),
        fields.number("intercept"),
        None if fields.raw("gate") is None else fields.ensemble("gate", len(columns) + 1),
    )


def _pack_operating(operating: Operating, packer: Packer) -> dict[str, Any]:
    return {
        "thresholds": packer.floats(operating.thresholds),
        "cost": packer.floats(operating.cost),
        "score": packer.floats(operating.score),
        "lower": int(operating.lower),
        "upper": int(operating.upper),
        "share": packer.value(float(operating.share)),
        "seed": int(operating.seed),
        "cuts": None if operating.cuts is None else packer.floats(operating.cuts),
    }


def _unpack_operating(fields: Fields, n_stages: int) -> Operating:
    cost = fields.array("cost", np.float64, (None,))
    n_points = len(cost)
    thresholds = fields.array("thresholds", np.float64, (n_points, n_stages), finite=False)
    if n_points == 0 or np.isnan(thresholds).any() or np.any(np.diff(cost) < 0):
        raise fields.refusal("cost", "rise, and thresholds be numbers", "something else")
    lower, upper = fields.whole("lower"), fields.whole("upper")
    if not (0 <= lower < n_points and 0 <= upper < n_points):
        raise fields.refusal("lower", f"and upper lie in [0, {n_points})", (lower, upper))
    share, seed = fields.number("share"), fields.whole("seed")
    if not 0 <= share <= 1 or not 0 <= seed < 2**63:
        raise fields.refusal("share", "lie in [0, 1], and seed in [0, 2^63)", (share, seed))
    score = fields.array("score", np.float64, (n_points,), finite=False)
    cuts = None if fields.raw("cuts") is None else fields.array("cuts", np.float64, (n_points - 1, None))
    if cuts is not None and (cuts.shape[1] < 2 or np.any((cuts < 0) | (cuts > 1))):
        raise fields.refusal("cuts", "lie in [0, 1], two or more a line", cuts.shape)
    return Operating(thresholds, cost, score, lower, upper, share, seed, cuts)
