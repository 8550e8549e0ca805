"""How each kind of stage is written as plain arrays and numbers, and checked when it is read.

To add a stage: write its ``Codec`` and give it to ``register_stage``, or put it into the list below. The names that
stand in files are those of the first format.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.full_models import pack_full, unpack_full
from thrifty.chain.chain import Chain
from thrifty.chain.neighbours import Neighbours, NeighbourStage, NeighbourTurn
from thrifty.chain.stage import (
    BoostedStage,
    CascadeStage,
    ConfidentStage,
    ForeignStage,
    ForkStage,
    LeafStage,
    LinearStage,
    Stage,
    Turn,
    UniformGate,
)
from thrifty.errors import InvalidInputError
from thrifty.full.foreign import models_of

__all__ = ["Codec", "pack_stage", "register_stage", "unpack_stage"]

AnyStage = TypeVar("AnyStage")

MOST_NODES = 4096
"""Nodes of a fork in a file that is read."""


@dataclass(frozen=True)
class Codec(Generic[AnyStage]):
    """How one class of stages is written and read.

    Attributes
    ----------
    name : str
        Stands in the file.
    stage : type
        The class.
    pack : callable
        ``(stage, writing) -> dict`` of JSON values; ``writing.packer`` takes arrays and numbers.
    unpack : callable
        ``(fields, reading) -> stage``; ``fields`` refuses what is not as it must be, and ``reading`` knows the
        number of columns and the task.
    """

    name: str
    stage: type[AnyStage]
    pack: Callable[[AnyStage, Writing], dict[str, Any]]
    unpack: Callable[[Fields, Reading], AnyStage]


_CODECS: dict[str, Codec[Any]] = {}


def register_stage(codec: Codec[Any]) -> None:
    """Let bundles hold one more class of stages."""
    _CODECS[codec.name] = codec


def pack_stage(stage: Stage, writing: Writing) -> dict[str, Any]:
    """The stage as JSON."""
    codec = next((one for one in _CODECS.values() if type(stage) is one.stage), None)
    if codec is None:
        known = ", ".join(sorted(one.stage.__name__ for one in _CODECS.values()))
        raise InvalidInputError(
            f"a bundle has no form for the stage {type(stage).__name__}; it knows {known}. "
            f"Give it one with thrifty.bundle.register_stage."
        )
    return {"type": codec.name, **codec.pack(stage, writing)}


def unpack_stage(fields: Fields, reading: Reading) -> Stage:
    """The stage, every part of it checked."""
    name = fields.text("type")
    if name not in _CODECS:
        raise fields.refusal("type", f"be one of {', '.join(sorted(_CODECS))}", name)
    stage: Stage = _CODECS[name].unpack(fields, reading)
    return stage


# -- linear ------------------------------------------------------------------------------------


def _pack_linear(stage: LinearStage, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": packer.columns(stage.columns),
        "coef": packer.floats(stage.coef),
        "intercept": packer.floats(stage.intercept),
        "margin": packer.value(float(stage.margin)),
    }


def _unpack_linear(fields: Fields, reading: Reading) -> LinearStage:
    columns = fields.columns("columns", reading.n_features)
    return LinearStage(
        columns,
        fields.array("coef", np.float64, (len(columns), 1 + reading.answers.n_scores)),
        fields.array("intercept", np.float64, (1 + reading.answers.n_scores,)),
        fields.number("margin"),
    )


# -- boosted -----------------------------------------------------------------------------------


def _pack_boosted(stage: BoostedStage, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": packer.columns(stage.columns),
        "gate": packer.ensemble(stage.gate),
        "cheap": packer.ensemble(stage.cheap),
        "base": packer.floats(stage.base),
        "gate_reads_score": bool(stage.gate_reads_score),
    }


def _unpack_boosted(fields: Fields, reading: Reading) -> BoostedStage:
    columns, n_scores = fields.columns("columns", reading.n_features), reading.answers.n_scores
    reads_score = fields.flag("gate_reads_score")
    return BoostedStage(
        columns,
        fields.ensemble("gate", len(columns) + reads_score * n_scores),
        fields.ensemble("cheap", len(columns), n_outputs=n_scores),
        fields.array("base", np.float64, (1 + n_scores,)),
        reads_score,
    )


def _pack_confident(stage: ConfidentStage, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": packer.columns(stage.columns),
        "cheap": packer.ensemble(stage.cheap),
        "base": packer.floats(stage.base),
    }


def _unpack_confident(fields: Fields, reading: Reading) -> ConfidentStage:
    columns, n_scores = fields.columns("columns", reading.n_features), reading.answers.n_scores
    cheap = fields.ensemble("cheap", len(columns), n_outputs=n_scores)
    return ConfidentStage(columns, cheap, fields.array("base", np.float64, (n_scores,)))


# -- leaves that hold a gate and scores ----------------------------------------------------------------


def _pack_leaf(stage: LeafStage, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": packer.columns(stage.columns),
        "trees": packer.ensemble(stage.trees),
        "base": packer.floats(stage.base),
        "margin": packer.value(float(stage.margin)),
    }


def _unpack_leaf(fields: Fields, reading: Reading) -> LeafStage:
    columns, n_scores = fields.columns("columns", reading.n_features), reading.answers.n_scores
    return LeafStage(
        columns,
        fields.ensemble("trees", len(columns), n_outputs=1 + n_scores),
        fields.array("base", np.float64, (1 + n_scores,)),
        fields.number("margin"),
    )


# -- a model of the user's behind a fixed gate -------------------------------------------------


def _pack_foreign(stage: ForeignStage, writing: Writing) -> dict[str, Any]:
    return {
        "columns": writing.packer.columns(stage.columns),
        "cheap": pack_full(stage.cheap, writing.for_cheap_model(len(stage.columns))),
        "gate": _pack_gate(stage.gate),
    }


def _unpack_foreign(fields: Fields, reading: Reading) -> ForeignStage:
    columns = fields.columns("columns", reading.n_features)
    cheap = unpack_full(fields.inside("cheap"), reading.for_cheap_model(len(columns)))
    if isinstance(cheap, Chain):
        raise fields.refusal("cheap", "be a model", "a chain")
    return ForeignStage(columns, cheap, reading.answers, _unpack_gate(fields.inside("gate")))


def _pack_gate(gate: Any) -> dict[str, Any]:
    if gate is None:
        return {"type": "confidence"}
    if type(gate) is UniformGate:
        return {"type": "uniform", "seed": int(gate.seed)}
    raise InvalidInputError(
        f"a bundle has no form for the gate {type(gate).__name__}; it knows UniformGate, and None for the doubt of "
        f"the task."
    )


def _unpack_gate(fields: Fields) -> UniformGate | None:
    kind = fields.text("type")
    if kind == "confidence":
        return None
    if kind != "uniform":
        raise fields.refusal("type", "be confidence or uniform", kind)
    seed = fields.whole("seed")
    if not 0 <= seed < 2**64:
        raise fields.refusal("seed", "lie in [0, 2^64)", seed)
    return UniformGate(seed)


# -- a stage of a cascade ------------------------------------------------------------------------


def _pack_cascade(stage: CascadeStage, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": packer.columns(stage.columns),
        "trees": packer.ensemble(stage.trees),
        "calibration": packer.floats(stage.calibration),
        "gate": None if stage.gate is None else packer.ensemble(stage.gate),
        **({} if stage.turn is None else {"turn": _pack_turn(stage.turn, writing)}),
    }


def _pack_turn(turn: Turn, writing: Writing) -> dict[str, Any]:
    trees = None if turn.trees is None else writing.packer.ensemble(turn.trees)
    return {"nodes": writing.packer.columns(turn.nodes), "trees": trees}


def _unpack_turn(fields: Fields, n_columns: int) -> Turn:
    nodes = fields.columns("nodes", MOST_NODES)
    trees = None if fields.raw("trees") is None else fields.ensemble("trees", n_columns, n_outputs=len(nodes))
    if len(nodes) == 0 or (trees is None and len(nodes) > 1):
        raise fields.refusal("nodes", "be one, or as many as the trees have outputs", nodes[:5].tolist())
    return Turn(nodes, trees)


def _pack_fork(stage: ForkStage, writing: Writing) -> dict[str, Any]:
    return {"nodes": [_pack_node(node, writing) for node in stage.nodes]}


def _pack_node(node: Stage, writing: Writing) -> dict[str, Any]:
    if isinstance(node, NeighbourStage):
        return _pack_neighbours(node, writing)
    assert isinstance(node, CascadeStage)  # nodes of a fork are of these two kinds
    return _pack_cascade(node, writing)


def _unpack_fork(fields: Fields, reading: Reading) -> ForkStage:
    parts = fields.items("nodes")
    if not 1 <= len(parts) <= MOST_NODES:
        raise fields.refusal("nodes", f"be 1 to {MOST_NODES}", len(parts))
    return ForkStage(
        tuple(
            _unpack_neighbours(part, reading) if part.has("among") else _unpack_cascade(part, reading)
            for part in parts
        )
    )


# -- a node that answers by neighbours -------------------------------------------------------------


def _pack_neighbours(stage: NeighbourStage, writing: Writing) -> dict[str, Any]:
    packer, among, turn = writing.packer, stage.among, stage.turn
    arrays = {**{name: getattr(among, name) for name in AMONG}, "columns": among.columns.astype(np.int64)}
    return {
        "columns": packer.columns(stage.columns),
        # All nodes share one table of rows, which stands in the file once.
        "among": packer.once(among, lambda: {name: packer.array(one) for name, one in arrays.items()}),
        "sharpness": packer.value(float(stage.sharpness)),
        "pull": packer.value(float(stage.pull)),
        "calibration": packer.floats(stage.calibration),
        "turn": None
        if turn is None
        else {
            "nodes": packer.columns(turn.nodes),
            "tells": packer.array(turn.tells),
            "prices": packer.floats(turn.prices),
        },
    }


def _unpack_neighbours(fields: Fields, reading: Reading) -> NeighbourStage:
    columns, task = fields.columns("columns", reading.n_features), reading.answers
    among = _unpack_among(fields, reading)
    if not len(columns) or not np.isin(columns, among.columns).all():
        raise fields.refusal("columns", "be known of the neighbours", columns[:5].tolist())
    sharpness, pull = fields.number("sharpness"), fields.number("pull")
    if not (0 < sharpness < 1e6 and pull > 0):
        raise fields.refusal("sharpness", "be positive, as must be pull", (sharpness, pull))
    calibration = fields.array("calibration", np.float64, models_of(task).no_calibration.shape)
    turn = None
    if fields.raw("turn") is not None:
        turn = _unpack_neighbour_turn(fields.inside("turn"), among)
    return NeighbourStage(columns, among, sharpness, pull, calibration, task, turn)


def _unpack_neighbour_turn(fields: Fields, among: Neighbours) -> NeighbourTurn:
    nodes = fields.columns("nodes", MOST_NODES)
    tells = fields.array("tells", np.int64, (len(nodes), None))
    prices = fields.array("prices", np.float64, (len(nodes),))
    is_known = (tells == -1) | np.isin(tells, among.columns)
    if not (len(nodes) and is_known.all() and np.all(tells.max(axis=1, initial=-1) >= 0)):
        raise fields.refusal("tells", "be columns that are known of the neighbours", tells[:5].tolist())
    if not np.all(prices > 0):
        raise fields.refusal("prices", "be positive", prices[:5].tolist())
    return NeighbourTurn(nodes, tells, prices)


MOST_OF_COLUMN = 64
"""Levels of a column in a file, missing counted; a fit makes fewer."""

AMONG = ("columns", "ends", "offsets", "positions", "codes", "label", "weight")
"""The arrays of neighbours."""


def _unpack_among(fields: Fields, reading: Reading) -> Neighbours:
    """The table of neighbours, which stands where it is first met; later nodes tell its number."""
    part = fields.inside("among")
    known: Neighbours = fields.unpacker.once(part.whole("number"), lambda: _read_among(part, reading))
    if known.n_classes != len(reading.answers.classes) or known.columns.max(initial=0) >= reading.n_features:
        raise fields.refusal("among", "be about the columns and classes of the chain", part.whole("number"))
    return known


def _read_among(part: Fields, reading: Reading) -> Neighbours:
    columns = part.columns("columns", reading.n_features)
    offsets = part.array("offsets", np.int64, (len(columns) + 1,))
    ends = part.array("ends", np.float64, (None,))
    part.check_offsets("offsets", offsets, len(ends))
    positions = part.array("positions", np.float64, (len(ends) + len(columns),))
    codes = part.array("codes", np.uint8, (len(columns), None))
    label = part.array("label", np.int32, (codes.shape[1],))
    weight = part.array("weight", np.float64, (codes.shape[1],))
    n_levels, n_classes = np.diff(offsets) + 2, len(reading.answers.classes)
    if np.any(n_levels > MOST_OF_COLUMN) or np.any(codes >= n_levels[:, None]):
        raise part.refusal("codes", "be levels of their columns", codes[:, :3].tolist())
    if n_classes < 2 or not len(label) or np.any((label < 0) | (label >= n_classes)):
        raise part.refusal("label", f"be numbers of {n_classes} classes", label[:5].tolist())
    if not (np.all(weight >= 0) and 0 < weight.sum() < np.inf):
        raise part.refusal("weight", "be positive, with a finite sum", weight[:5].tolist())
    # What is mapped from a file is read-only, which compiled code would be compiled anew for.
    return Neighbours(columns, ends, offsets, positions, codes.copy(), label.copy(), weight.copy(), n_classes)


def _unpack_cascade(fields: Fields, reading: Reading) -> CascadeStage:
    columns, task = fields.columns("columns", reading.n_features), reading.answers
    calibration = fields.array("calibration", np.float64, models_of(task).no_calibration.shape)
    gate = None
    if fields.raw("gate") is not None:
        gate = fields.ensemble("gate", len(columns) + task.n_scores)
    trees = fields.ensemble("trees", len(columns), n_outputs=task.n_scores)
    turn = _unpack_turn(fields.inside("turn"), len(columns)) if fields.has("turn") else None
    return CascadeStage(columns, trees, calibration, task, gate, turn)


for _codec in (
    Codec("LinearScorer", LinearStage, _pack_linear, _unpack_linear),
    Codec("BoostedScorer", BoostedStage, _pack_boosted, _unpack_boosted),
    Codec("ConfidentTrees", ConfidentStage, _pack_confident, _unpack_confident),
    Codec("LeafScorer", LeafStage, _pack_leaf, _unpack_leaf),
    Codec("ForeignScorer", ForeignStage, _pack_foreign, _unpack_foreign),
    Codec("CascadeStep", CascadeStage, _pack_cascade, _unpack_cascade),
    Codec("CascadeFork", ForkStage, _pack_fork, _unpack_fork),
    Codec("NeighbourStep", NeighbourStage, _pack_neighbours, _unpack_neighbours),
):
    register_stage(_codec)
