"""A cascade as JSON and arrays: its stages, every operating point, the one in force, and the f0 at its end.

Of a ``BudgetedClassifier`` a file also keeps what the operating points did with the rows of the fit and with those kept
out for a proof, so that it can move to any budget and any loss after it was loaded. Files of the first versions do not.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.bundle.context import Columns, Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.fulls import pack_full, unpack_full
from thrifty.bundle.scorers import pack_columns, pack_ensemble
from thrifty.bundle.systems import MOST_STAGES, pack_table, unpack_table
from thrifty.bundle.values import Packer
from thrifty.chain.cascade_system import CascadeStep, CascadeSystem, Operating
from thrifty.estimators.budgeted import BudgetedClassifier
from thrifty.estimators.cascade_outcomes import JudgedRows

__all__ = ["pack_cascade", "pack_memory", "restore_memory", "unpack_cascade"]


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


def pack_memory(estimator: BudgetedClassifier, packer: Packer) -> dict[str, Any] | None:
    """Every operating point, the rows it was judged on, and the loss that was asked for; None if they are not known."""
    held_out: JudgedRows | None = getattr(estimator, "_held_out", None)
    if held_out is None:
        return None
    proof: JudgedRows | None = getattr(estimator, "_proof", None)
    max_loss: float | None = getattr(estimator, "_max_loss", None)
    return {
        "operating": _pack_operating(estimator.cascade_.operating, packer),
        "blend": packer.floats(estimator.cascade_.blend),
        "held_out": _pack_rows(held_out, packer),
        "proof": None if proof is None else _pack_rows(proof, packer),
        "max_loss": None if max_loss is None else packer.value(float(max_loss)),
    }


def restore_memory(estimator: BudgetedClassifier, fields: Fields) -> None:
    """Put that back into an estimator which has its system already."""
    system = estimator.system_
    estimator.cascade_ = replace(
        system,
        operating=_unpack_operating(fields.inside("operating"), system.n_stages),
        blend=fields.array("blend", np.float64, (3,)),
    )
    proof = None if fields.raw("proof") is None else _unpack_rows(fields.inside("proof"), system.n_stages)
    estimator._remember(_unpack_rows(fields.inside("held_out"), system.n_stages), proof)
    estimator._max_loss = None
    if fields.raw("max_loss") is not None:
        max_loss = fields.number("max_loss")
        if not 0 < max_loss < 1:
            raise fields.refusal("max_loss", "lie strictly between 0 and 1", max_loss)
        estimator._move(max_loss=max_loss)


def _pack_rows(rows: JudgedRows, packer: Packer) -> dict[str, Any]:
    return {
        "gate": packer.floats(rows.gate),
        "right": packer.array(np.asarray(rows.right, dtype=np.bool_)),
        "full_right": packer.array(np.asarray(rows.full_right, dtype=np.bool_)),
    }


def _unpack_rows(fields: Fields, n_stages: int) -> JudgedRows:
    gate = fields.array("gate", np.float64, (None, n_stages))
    if not len(gate):
        raise fields.refusal("gate", "have a row", "none")
    return JudgedRows(
        gate,
        fields.array("right", np.bool_, (len(gate), n_stages + 1)),
        fields.array("full_right", np.bool_, (len(gate),)),
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
    return Operating(thresholds, cost, score, lower, upper, share, seed)
