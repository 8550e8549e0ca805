"""Reading what the first versions wrote: two kinds of systems, which are chains now.

A *system* of format 1 was a tuple of stages, each with its own threshold and perhaps a tie; a *cascade* had steps, the
thresholds of every operating point, and a blend.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.bundle.chains import MOST_STAGES, check_nested, linked, unpack_policy
from thrifty.bundle.column_codec import unpack_kind, unpack_names, unpack_prices
from thrifty.bundle.context import Columns, Reading
from thrifty.bundle.fields import Fields
from thrifty.bundle.fulls import unpack_full
from thrifty.bundle.stages import unpack_stage
from thrifty.bundle.task_codec import unpack_classes
from thrifty.chain.chain import Chain
from thrifty.chain.policy import Policy
from thrifty.evidence.evidence import Evidence
from thrifty.tasks.choose import classification

__all__ = ["old_chain", "old_evidence", "old_tie"]


def old_chain(fields: Fields, reading: Reading) -> Chain:
    """A system or a cascade of the first format."""
    is_cascade = fields.has("cascade")
    part = fields.inside("cascade" if is_cascade else "system")
    prices = unpack_prices(part)
    task = classification(unpack_classes(part))
    columns = Columns(prices.n_features, unpack_names(part, prices.n_features), unpack_kind(part))
    reading = replace(reading, columns=columns, task=task)
    entries = part.items("steps" if is_cascade else "stages")
    if len(entries) > MOST_STAGES or (is_cascade and not entries):
        raise part.refusal("stages", f"be at most {MOST_STAGES}, and some", len(entries))
    if is_cascade:
        stages = tuple(unpack_stage(_typed(one), reading) for one in entries)
        check_nested(stages, part)
        policy = unpack_policy(part.inside("operating"), len(stages))
        if not policy.is_measured:
            raise part.refusal("cost", "be known at every point", "NaN")
        base, blend = np.array([part.number("base")]), part.array("blend", np.float64, (3,))
    else:
        stages = tuple(unpack_stage(one.inside("scorer"), reading) for one in entries)
        policy, base, blend = _old_policy(entries), None, None
    full = linked(unpack_full(part.inside("full"), reading), prices, task, reading)
    return Chain(stages, full, prices, task, policy, base, blend, columns.names, columns.kind)


def old_evidence(fields: Fields, chain: Chain, points: Any) -> Evidence:
    """What a cascade of the first format did with some rows."""
    n_stages = chain.n_own_stages
    gate = fields.array("gate", np.float64, (None, n_stages))
    if not len(gate):
        raise fields.refusal("gate", "have a row", "none")
    return Evidence(
        gate,
        fields.array("right", np.bool_, (len(gate), n_stages + 1)),
        chain.cost_by_place,
        fields.array("full_right", np.bool_, (len(gate),)),
        points,
        features=tuple(chain.columns.tolist()),
        stage_columns=tuple(tuple(stage.columns.tolist()) for stage in chain.stages),
    )


def old_tie(fields: Fields) -> tuple[float, float, int] | None:
    """Lower end, share and seed of the tie beside a threshold, if there is one."""
    if not fields.has("tie"):
        return None
    tie = fields.inside("tie")
    share, seed = tie.number("share"), tie.whole("seed")
    if not 0.0 <= share <= 1.0 or not 0 <= seed < 2**63:
        raise tie.refusal("share", "be a share, with a seed", (share, seed))
    return tie.number("lower", finite=False), share, seed


def _old_policy(entries: list[Fields]) -> Policy:
    """One point, or a mix of two where the rows of a tie were parted; at most one stage has a tie."""
    upper = np.array([one.number("threshold", finite=False) for one in entries])
    lower, ties = upper.copy(), [old_tie(one) for one in entries]
    found = [(place, tie) for place, tie in enumerate(ties) if tie is not None]
    if not found:
        return Policy.of(upper)
    if len(found) > 1:
        raise entries[found[1][0]].refusal("tie", "stand at one stage only", "another one")
    place, (low, share, seed) = found[0]
    lower[place] = low
    return replace(Policy.of(upper, lower, share=share, seed=seed), whole_rows=True)


def _typed(step: Fields) -> Fields:
    return step.with_part("type", "CascadeStep")
