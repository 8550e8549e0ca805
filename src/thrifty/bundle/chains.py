"""A chain and its policy, as JSON and arrays."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from thrifty.bundle.codecs import (
    check_sets,
    pack_levels,
    pack_loss,
    pack_table,
    pack_task,
    pack_types,
    unpack_kind,
    unpack_levels,
    unpack_names,
    unpack_prices,
    unpack_task,
    unpack_types,
)
from thrifty.bundle.context import Columns, Reading, Writing
from thrifty.bundle.fields import Fields, Packer
from thrifty.bundle.full_models import pack_full, unpack_full
from thrifty.bundle.stages import pack_stage, unpack_stage
from thrifty.chain.chain import Chain
from thrifty.chain.policy import Policy
from thrifty.chain.stage import CascadeStage, Stage
from thrifty.estimators.base import link_of
from thrifty.full.model import FullModel
from thrifty.prices.billing import PriceList
from thrifty.tasks.task import Task

__all__ = [
    "MOST_STAGES",
    "check_nested",
    "linked",
    "pack_chain",
    "pack_policy",
    "unpack_chain",
    "unpack_policy",
]

MOST_STAGES = 1000


def pack_chain(chain: Chain, writing: Writing) -> dict[str, Any]:
    """The chain as JSON."""
    packer, prices = writing.packer, chain.price_list
    columns = Columns(prices.n_features, chain.names, chain.kind, chain.types, chain.levels)
    writing = replace(writing, columns=columns)
    return {
        **pack_table(chain, packer),
        **pack_task(chain.task, packer),
        "stages": [pack_stage(stage, writing) for stage in chain.stages],
        "policy": pack_policy(chain.policy, packer),
        "loss": pack_loss(chain.task, packer),
        "base": packer.optional(chain.base),
        "blend": packer.optional(chain.blend),
        **pack_levels(chain.levels),
        **pack_types(chain.types),
        "full": pack_full(chain.full, replace(writing, columns=_read_by_full(writing.columns, prices))),
    }


def unpack_chain(fields: Fields, reading: Reading) -> Chain:
    """The chain, every part of it checked."""
    prices = unpack_prices(fields)
    task = unpack_task(fields)
    n_features, kind = prices.n_features, unpack_kind(fields)
    levels = unpack_levels(fields, n_features)
    types = unpack_types(fields, n_features, kind, levels)
    columns = Columns(n_features, unpack_names(fields, n_features), kind, types, levels)
    reading = replace(reading, columns=columns, task=task)
    parts = fields.items("stages")
    if len(parts) > MOST_STAGES:
        raise fields.refusal("stages", f"be at most {MOST_STAGES}", len(parts))
    stages = tuple(unpack_stage(part, reading) for part in parts)
    check_nested(stages, fields)
    if levels is not None:
        check_sets(fields, stages, {column: len(texts) for column, texts in levels.of_column.items()})
    full = unpack_full(fields.inside("full"), replace(reading, columns=_read_by_full(columns, prices)))
    return Chain(
        stages,
        linked(full, prices, task, reading),
        prices,
        task,
        unpack_policy(fields.inside("policy"), len(stages)),
        fields.optional_floats("base", task.n_scores),
        fields.optional_floats("blend", len(task.full_alone)),
        columns.names,
        columns.kind,
        levels,
        types,
    )


def linked(full: FullModel | Chain, prices: PriceList, task: Task, reading: Reading) -> FullModel | Chain:
    """The full model as it stands behind the stages; a chain in its place must suit them."""
    # What a file holds is kept in its form; what the caller gives is linked as `with_full` would do.
    return link_of(full, prices, task) if isinstance(full, Chain) or reading.full is not None else full


def check_nested(stages: tuple[Stage, ...], fields: Fields) -> None:
    """Refuse a cascade in which a stage does not hold what the stage before it holds."""
    for before, stage in pairwise(stages):
        both = isinstance(before, CascadeStage) and isinstance(stage, CascadeStage)
        if both and not np.isin(before.columns, stage.columns).all():
            raise fields.refusal("columns", "include those of the stage before", stage.columns[:5].tolist())


def _read_by_full(columns: Columns, prices: PriceList) -> Columns:
    """The columns that the full model reads, in the kind of table it expects."""
    return columns if prices.full_columns is None else columns.take(prices.full_columns)


# -- policies ------------------------------------------------------------------------------------


def pack_policy(policy: Policy, packer: Packer) -> dict[str, Any]:
    """The policy as JSON."""
    return {
        "thresholds": packer.floats(policy.thresholds),
        "cost": packer.floats(policy.cost),
        "score": packer.floats(policy.score),
        "lower": int(policy.lower),
        "upper": int(policy.upper),
        "share": packer.value(float(policy.share)),
        "seed": int(policy.seed),
    }


def unpack_policy(fields: Fields, n_stages: int) -> Policy:
    """The policy, every part of it checked."""
    cost = fields.array("cost", np.float64, (None,), finite=False)
    n_points = len(cost)
    thresholds = fields.array("thresholds", np.float64, (n_points, n_stages), finite=False)
    if np.isnan(thresholds).any():
        raise fields.refusal("thresholds", "be numbers, infinite ones included", "NaN")
    if n_points == 0 or np.any(cost < 0) or np.any(np.diff(cost) < 0):
        raise fields.refusal("cost", "rise from point to point", cost[:5].tolist())
    for name in ("cost", "score"):
        means = fields.array(name, np.float64, (n_points,), finite=False)
        if not (np.isfinite(means).all() or np.isnan(means).all()):
            raise fields.refusal(name, "be finite, or NaN at every point", means[:5].tolist())
    lower, upper = fields.whole("lower"), fields.whole("upper")
    if not (0 <= lower < n_points and 0 <= upper < n_points):
        raise fields.refusal("lower", f"and upper lie in [0, {n_points})", (lower, upper))
    share, seed = fields.number("share"), fields.whole("seed")
    if not 0 <= share <= 1 or not 0 <= seed < 2**63:
        raise fields.refusal("share", "lie in [0, 1], and seed in [0, 2^63)", (share, seed))
    score = fields.array("score", np.float64, (n_points,), finite=False)
    return Policy(thresholds, cost, score, lower, upper, share, seed)
