"""A chain of stages and the f0 at its end, as JSON and arrays."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.context import Columns, Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.fulls import pack_full, unpack_full
from thrifty.bundle.scorers import pack_columns, pack_scorer, unpack_scorer
from thrifty.bundle.values import Packer
from thrifty.chain.system import GatedSystem, Stage, Tie
from thrifty.estimators.base import _chain_of
from thrifty.objective.costs import PriceList

__all__ = [
    "MOST_STAGES",
    "pack_system",
    "pack_table",
    "pack_tie",
    "unpack_system",
    "unpack_table",
    "unpack_tie",
]

MOST_STAGES = 1000


def pack_system(system: GatedSystem, writing: Writing) -> dict[str, Any]:
    """The system as JSON."""
    packer, prices = writing.packer, system.price_list
    writing = replace(writing, columns=Columns(prices.n_features, system.names, system.kind))
    return {
        **pack_table(prices, system.classes, system.names, system.kind, packer),
        "stages": [
            {
                "scorer": pack_scorer(stage.scorer, writing),
                "threshold": packer.value(float(stage.threshold)),
                **pack_tie(stage.tie, packer),
            }
            for stage in system.stages
        ],
        "full": pack_full(system.full, writing),
    }


def unpack_system(fields: Fields, reading: Reading) -> GatedSystem:
    """The system, every part of it checked."""
    prices, classes, columns = unpack_table(fields)
    reading = replace(reading, columns=columns, classes=classes)
    stages = fields.items("stages")
    if len(stages) > MOST_STAGES:
        raise fields.refusal("stages", f"be at most {MOST_STAGES}", len(stages))
    chain = tuple(
        Stage(
            unpack_scorer(stage.inside("scorer"), reading),
            stage.number("threshold", finite=False),
            unpack_tie(stage),
        )
        for stage in stages
    )
    full = unpack_full(fields.inside("full"), reading)
    system = GatedSystem(chain, full, prices, classes, columns.names, columns.kind)
    return system if reading.full is None else _joined(system)


def pack_tie(tie: Tie | None, packer: Packer) -> dict[str, Any]:
    """An entry for the tie beside its threshold; none where there is no tie, as in every older file."""
    if tie is None:
        return {}
    return {
        "tie": {
            "lower": packer.value(float(tie.lower)),
            "share": packer.value(float(tie.share)),
            "seed": int(tie.seed),
        }
    }


def unpack_tie(fields: Fields) -> Tie | None:
    """The tie beside a threshold, if there is one."""
    if not fields.has("tie"):
        return None
    tie = fields.inside("tie")
    share, seed = tie.number("share"), tie.whole("seed")
    if not 0.0 <= share <= 1.0 or not 0 <= seed < 2**63:
        raise tie.refusal("share", "be a share, with a seed", (share, seed))
    return Tie(tie.number("lower", finite=False), share, seed)


def pack_table(
    prices: PriceList, classes: NDArray[Any], names: tuple[str, ...] | None, kind: str | None, packer: Packer
) -> dict[str, Any]:
    """What every system knows of its tables: prices, labels and columns."""
    return {
        "prices": packer.floats(prices.prices),
        "group_of": pack_columns(prices.group_of, packer),
        "full_cost": packer.value(float(prices.full_cost)),
        "classes": packer.value(np.asarray(classes)),
        "names": None if names is None else [str(name) for name in names],
        "kind": kind,
    }


def unpack_table(fields: Fields) -> tuple[PriceList, NDArray[Any], Columns]:
    """Prices, labels and columns, each checked."""
    prices = _price_list(fields)
    return (
        prices,
        _classes(fields),
        Columns(prices.n_features, _names(fields, prices.n_features), _kind(fields)),
    )


def _joined(system: GatedSystem) -> GatedSystem:
    """The system with its f0's own stages in the chain, where the caller gave a chain as f0."""
    behind = _chain_of(system.full, system.price_list, system.classes)
    return replace(system, stages=(*system.stages, *behind.stages), full=behind.full)


def _price_list(fields: Fields) -> PriceList:
    prices = fields.array("prices", np.float64, (None,))
    group_of = fields.array("group_of", np.int64, (None,)).astype(np.intp)
    full_cost = fields.number("full_cost")
    if full_cost < 0 or np.any(prices < 0):
        raise fields.refusal("prices", "be at least 0", "a negative one")
    if not len(group_of) or np.any((group_of < 0) | (group_of >= len(prices))):
        raise fields.refusal("group_of", f"name purchases in [0, {len(prices)})", group_of[:5].tolist())
    return PriceList(prices, group_of, full_cost)


def _classes(fields: Fields) -> NDArray[Any]:
    classes = fields.value("classes")
    if not isinstance(classes, np.ndarray) or classes.shape != (2,):
        raise fields.refusal("classes", "be two labels", classes)
    plain = all(isinstance(label, str | int | float | np.generic) for label in classes.tolist())
    if not plain or classes[0] == classes[1]:
        raise fields.refusal("classes", "be two distinct labels", classes.tolist())
    return classes


def _names(fields: Fields, n_features: int) -> tuple[str, ...] | None:
    names = fields.raw("names")
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(n, str) for n in names):
        raise fields.refusal("names", f"name {n_features} columns", names)
    return tuple(names)


def _kind(fields: Fields) -> str | None:
    kind = fields.raw("kind")
    if kind not in (None, "pandas", "polars"):
        raise fields.refusal("kind", "be a kind of table", kind)
    return str(kind) if kind else None
