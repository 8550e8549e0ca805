"""How each scorer is written as plain arrays and numbers, and checked when it is read.

To add a scorer: write its ``Codec`` and give it to ``register_scorer``, or put it into the list below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import ENSEMBLE, Fields
from thrifty.bundle.fulls import pack_full, unpack_full
from thrifty.bundle.values import Packer
from thrifty.chain.system import Scorer
from thrifty.estimators.rivals.foreign import ConfidenceGate, ForeignScorer, UniformGate
from thrifty.exceptions import InvalidInputError
from thrifty.learning.pairs.boosted import BoostedScorer, ConfidentTrees
from thrifty.learning.pairs.leaf import LeafScorer
from thrifty.learning.pairs.linear import LinearScorer
from thrifty.trees import TreeEnsemble

__all__ = ["Codec", "pack_columns", "pack_ensemble", "pack_scorer", "register_scorer", "unpack_scorer"]

AnyScorer = TypeVar("AnyScorer")


@dataclass(frozen=True)
class Codec(Generic[AnyScorer]):
    """How one class of scorers is written and read.

    Attributes
    ----------
    scorer : type
        The class; its name stands in the file.
    pack : callable
        ``(scorer, writing) -> dict`` of JSON values; ``writing.packer`` takes arrays and numbers.
    unpack : callable
        ``(fields, reading) -> scorer``; ``fields`` refuses what is not as it must be, and ``reading`` knows the
        number of columns and the classes.
    """

    scorer: type[AnyScorer]
    pack: Callable[[AnyScorer, Writing], dict[str, Any]]
    unpack: Callable[[Fields, Reading], AnyScorer]


_CODECS: dict[str, Codec[Any]] = {}


def register_scorer(codec: Codec[Any]) -> None:
    """Let bundles hold one more class of scorers."""
    _CODECS[codec.scorer.__name__] = codec


def pack_scorer(scorer: Scorer, writing: Writing) -> dict[str, Any]:
    """The scorer as JSON."""
    name = type(scorer).__name__
    codec = _CODECS.get(name)
    if codec is None or type(scorer) is not codec.scorer:
        raise InvalidInputError(
            f"a bundle has no form for the scorer {name}; it knows {', '.join(sorted(_CODECS))}. "
            f"Give it one with thrifty.bundle.register_scorer."
        )
    return {"type": name, **codec.pack(scorer, writing)}


def unpack_scorer(fields: Fields, reading: Reading) -> Scorer:
    """The scorer, every part of it checked."""
    name = fields.text("type")
    if name not in _CODECS:
        raise fields.refusal("type", f"be one of {', '.join(sorted(_CODECS))}", name)
    scorer: Scorer = _CODECS[name].unpack(fields, reading)
    return scorer


def pack_columns(columns: NDArray[np.intp], packer: Packer) -> dict[str, int]:
    """Column numbers, in one width on every machine."""
    return packer.array(np.asarray(columns, dtype=np.int64))


def pack_ensemble(trees: TreeEnsemble, packer: Packer) -> dict[str, Any]:
    """Trees as their arrays; how many columns they read is known from where they stand."""
    return {name: packer.array(np.asarray(getattr(trees, name), dtype)) for name, dtype in ENSEMBLE.items()}


# -- linear ------------------------------------------------------------------------------------


def _pack_linear(scorer: LinearScorer, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": pack_columns(scorer.columns, packer),
        "coef": packer.floats(scorer.coef),
        "intercept": packer.floats(scorer.intercept),
        "margin": packer.value(float(scorer.margin)),
    }


def _unpack_linear(fields: Fields, reading: Reading) -> LinearScorer:
    columns = fields.columns("columns", reading.n_features)
    return LinearScorer(
        columns,
        fields.array("coef", np.float64, (len(columns), 2)),
        fields.array("intercept", np.float64, (2,)),
        fields.number("margin"),
    )


# -- boosted -----------------------------------------------------------------------------------


def _pack_boosted(scorer: BoostedScorer, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": pack_columns(scorer.columns, packer),
        "gate": pack_ensemble(scorer.gate, packer),
        "cheap": pack_ensemble(scorer.cheap, packer),
        "base": packer.floats(scorer.base),
        "gate_reads_score": bool(scorer.gate_reads_score),
    }


def _unpack_boosted(fields: Fields, reading: Reading) -> BoostedScorer:
    columns = fields.columns("columns", reading.n_features)
    reads_score = fields.flag("gate_reads_score")
    return BoostedScorer(
        columns,
        fields.ensemble("gate", len(columns) + reads_score),
        fields.ensemble("cheap", len(columns)),
        fields.array("base", np.float64, (2,)),
        reads_score,
    )


def _pack_confident(scorer: ConfidentTrees, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": pack_columns(scorer.columns, packer),
        "cheap": pack_ensemble(scorer.cheap, packer),
        "base": packer.value(float(scorer.base)),
    }


def _unpack_confident(fields: Fields, reading: Reading) -> ConfidentTrees:
    columns = fields.columns("columns", reading.n_features)
    return ConfidentTrees(columns, fields.ensemble("cheap", len(columns)), fields.number("base"))


# -- leaves that hold two values ----------------------------------------------------------------


def _pack_leaf(scorer: LeafScorer, writing: Writing) -> dict[str, Any]:
    packer = writing.packer
    return {
        "columns": pack_columns(scorer.columns, packer),
        "trees": pack_ensemble(scorer.trees, packer),
        "base": packer.floats(scorer.base),
        "margin": packer.value(float(scorer.margin)),
    }


def _unpack_leaf(fields: Fields, reading: Reading) -> LeafScorer:
    columns = fields.columns("columns", reading.n_features)
    return LeafScorer(
        columns,
        fields.ensemble("trees", len(columns), n_outputs=2),
        fields.array("base", np.float64, (2,)),
        fields.number("margin"),
    )


# -- a model of the user's behind a fixed gate -------------------------------------------------


def _pack_foreign(scorer: ForeignScorer, writing: Writing) -> dict[str, Any]:
    return {
        "columns": pack_columns(scorer.columns, writing.packer),
        "cheap": pack_full(scorer.cheap, writing.for_cheap_model(len(scorer.columns))),
        "gate": _pack_gate(scorer.gate),
    }


def _unpack_foreign(fields: Fields, reading: Reading) -> ForeignScorer:
    columns = fields.columns("columns", reading.n_features)
    cheap = unpack_full(fields.inside("cheap"), reading.for_cheap_model(len(columns)))
    return ForeignScorer(columns, cheap, _unpack_gate(fields.inside("gate")))


def _pack_gate(gate: Any) -> dict[str, Any]:
    if type(gate) is ConfidenceGate:
        return {"type": "confidence"}
    if type(gate) is UniformGate:
        return {"type": "uniform", "seed": int(gate.seed)}
    raise InvalidInputError(
        f"a bundle has no form for the gate {type(gate).__name__}; it knows ConfidenceGate and UniformGate."
    )


def _unpack_gate(fields: Fields) -> ConfidenceGate | UniformGate:
    kind = fields.text("type")
    if kind == "confidence":
        return ConfidenceGate()
    if kind != "uniform":
        raise fields.refusal("type", "be confidence or uniform", kind)
    seed = fields.whole("seed")
    if not 0 <= seed < 2**64:
        raise fields.refusal("seed", "lie in [0, 2^64)", seed)
    return UniformGate(seed)


for _codec in (
    Codec(LinearScorer, _pack_linear, _unpack_linear),
    Codec(BoostedScorer, _pack_boosted, _unpack_boosted),
    Codec(ConfidentTrees, _pack_confident, _unpack_confident),
    Codec(LeafScorer, _pack_leaf, _unpack_leaf),
    Codec(ForeignScorer, _pack_foreign, _unpack_foreign),
):
    register_scorer(_codec)
