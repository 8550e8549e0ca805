"""Estimators and chains, whichever a file holds.

Of an estimator a file keeps the chain that serves, the constructor arguments that are plain data, and the learned
attributes that are plain data. What follows from the chain (labels, columns, threshold) is not written twice:
two copies could disagree.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.bundle.absentee import NotStored
from thrifty.bundle.chains import (
    pack_chain,
    pack_evidence,
    pack_policy,
    unpack_chain,
    unpack_evidence,
    unpack_policy,
)
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields, NotPlainError, Packer
from thrifty.bundle.format_1 import old_chain, old_evidence
from thrifty.chain.chain import Chain
from thrifty.estimators.base import ChainClassifier
from thrifty.estimators.budgeted import BudgetedClassifier
from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
from thrifty.estimators.dynamod_lin import DynaModLinClassifier
from thrifty.estimators.dynamod_lstsq import DynaModLstsqClassifier
from thrifty.estimators.rivals.greedy_l1 import GreedyL1Classifier
from thrifty.estimators.rivals.greedy_leaf import GreedyLeafClassifier
from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
from thrifty.estimators.rivals.routers import ConfidenceRouter, UniformRouter
from thrifty.evidence.certificate import Certificate
from thrifty.exceptions import InvalidInputError, NothingSavedWarning

__all__ = [
    "Kind",
    "pack_object",
    "pack_parameters",
    "register_estimator",
    "unpack_object",
    "unpack_parameters",
]

_ESTIMATORS: dict[str, type[ChainClassifier]] = {}

_MODELS = ("full", "cheap", "local")
"""Parameters that are models: they are part of the system, or not stored at all."""

_FROM_CHAIN = (
    "classes_",
    "features_",
    "threshold_",
    "n_features_in_",
    "feature_names_in_",
    "chain_",
    "evidence_",
    "certificate_",
)

_ONCE_STORED = ("expected_cost_", "expected_score_")
"""What files of the first format keep, and what follows from the policy now."""


@dataclass(frozen=True)
class Kind:
    """Objects of one type that a layer above brings, as JSON and arrays.

    Attributes
    ----------
    name : str
        Stands in the file.
    holds : type
        Type of the objects.
    pack, unpack : callable
        To JSON, and back.
    """

    name: str
    holds: type
    pack: Callable[[Any, Writing], dict[str, Any]]
    unpack: Callable[[Fields, Reading], Any]


def register_estimator(estimator: type[ChainClassifier]) -> None:
    """Let bundles hold one more class of estimators."""
    _ESTIMATORS[estimator.__name__] = estimator


for _estimator in (
    BudgetedClassifier,
    DynaModLinClassifier,
    DynaModGbrtClassifier,
    DynaModLstsqClassifier,
    GreedyL1Classifier,
    GreedyLeafClassifier,
    GreedyMiserClassifier,
    ConfidenceRouter,
    UniformRouter,
):
    register_estimator(_estimator)


def pack_object(thing: Any, writing: Writing) -> dict[str, Any]:
    """A chain or a fitted estimator as JSON."""
    writing = writing.one_level_in()
    if isinstance(thing, Chain):
        return {"kind": "chain", "chain": pack_chain(thing, writing)}
    name = type(thing).__name__
    if _ESTIMATORS.get(name) is not type(thing):
        raise InvalidInputError(
            f"a bundle holds a Chain or one of {', '.join(sorted(_ESTIMATORS))}; got {name}. "
            f"Save its chain_, or make the class known with thrifty.bundle.register_estimator."
        )
    chain = getattr(thing, "chain_", None)
    if not isinstance(chain, Chain):
        raise InvalidInputError(
            f"a {name} must be fitted before it is saved; this one is not. Call fit first."
        )
    evidence = getattr(thing, "evidence_", None)
    return {
        "kind": "estimator",
        "class": name,
        "chain": pack_chain(chain, writing),
        "parameters": pack_parameters(thing, writing),
        "attributes": _pack_attributes(thing, writing),
        "evidence": None
        if evidence is None or not writing.evidence
        else pack_evidence(evidence, writing.packer),
        "memory": _pack_memory(thing, writing.packer) if writing.evidence else None,
    }


def unpack_object(fields: Fields, reading: Reading) -> Any:
    """The chain or the estimator that was packed."""
    reading = reading.one_level_in()
    kind = fields.text("kind")
    if kind not in ("system", "chain", "estimator"):
        raise fields.refusal("kind", "be chain or estimator", kind)
    is_new = fields.has("chain")
    chain = unpack_chain(fields.inside("chain"), reading) if is_new else old_chain(fields, reading)
    if kind != "estimator":
        return chain
    name = fields.text("class")
    if name not in _ESTIMATORS:
        raise fields.refusal("class", f"be one of {', '.join(sorted(_ESTIMATORS))}", name)
    if not chain.stages:
        raise fields.refusal("chain", "have a stage", "none")
    estimator = _ESTIMATORS[name]()
    if chain.policy.is_measured != isinstance(estimator, BudgetedClassifier):
        raise fields.refusal("class", "suit the kind of system", name)
    known = unpack_parameters(fields.inside("parameters"), estimator)
    known |= _unpack_attributes(fields.inside("attributes")) | _from_chain(chain)
    for attribute, value in known.items():
        setattr(estimator, attribute, value)
    if fields.has("evidence") and fields.raw("evidence") is not None:
        estimator.evidence_ = unpack_evidence(fields.inside("evidence"), chain)
    if fields.has("memory") and fields.raw("memory") is not None:
        _restore_memory(estimator, fields.inside("memory"))
    return estimator


def _from_chain(chain: Chain) -> dict[str, Any]:
    known: dict[str, Any] = {
        "chain_": chain,
        "classes_": chain.classes,
        "n_features_in_": chain.price_list.n_features,
        "features_": chain.columns if chain.policy.is_measured else chain.stages[0].columns,
        # Where a file keeps the rows of the proof, the certificate is made again from them.
        "certificate_": None,
    }
    if chain.names is not None:
        known["feature_names_in_"] = np.array(chain.names, dtype=object)
    if chain.policy.is_measured:
        known["_learned"] = chain.at(chain.policy.at(len(chain.policy) - 1))
    return known


def _pack_memory(estimator: ChainClassifier, packer: Packer) -> dict[str, Any] | None:
    """What moving to another operating point needs besides the chain: all points of a cascade, proofs, certificates."""
    certificate: Certificate | None = getattr(estimator, "certificate_", None)
    told = None if certificate is None else packer.value(certificate.as_dict())
    if not isinstance(estimator, BudgetedClassifier):
        return None if told is None else {"certificate": told}
    if getattr(estimator, "evidence_", None) is None:
        return None
    proof, max_loss = getattr(estimator, "_proof", None), getattr(estimator, "_max_loss", None)
    learned = estimator._learned
    return {
        "policy": pack_policy(learned.policy, packer),
        "blend": packer.optional(learned.blend),
        "proof": None if proof is None else pack_evidence(proof, packer),
        "max_loss": None if max_loss is None else packer.value(float(max_loss)),
    }


def _restore_memory(estimator: ChainClassifier, fields: Fields) -> None:
    """Put that back into an estimator which has its chain already."""
    chain = estimator.chain_
    if not isinstance(estimator, BudgetedClassifier):
        estimator.certificate_ = _certificate(fields)
        return
    is_old = fields.has("operating")
    policy = unpack_policy(fields.inside("operating" if is_old else "policy"), chain.n_own_stages)
    blend = fields.array("blend", np.float64, (len(chain.task.full_alone),))
    estimator._learned = replace(chain, policy=policy.at(len(policy) - 1), blend=blend)
    if is_old:
        estimator.evidence_ = old_evidence(fields.inside("held_out"), estimator._learned, policy.thresholds)
    estimator._proof = None
    if fields.raw("proof") is not None:
        part = fields.inside("proof")
        learned = estimator._learned
        estimator._proof = (
            old_evidence(part, learned, policy.thresholds) if is_old else unpack_evidence(part, learned)
        )
    estimator._max_loss = None
    if fields.raw("max_loss") is not None:
        max_loss = fields.number("max_loss")
        if not 0 < max_loss < 1:
            raise fields.refusal("max_loss", "lie strictly between 0 and 1", max_loss)
        with warnings.catch_warnings():
            # Whoever fitted it was told.
            warnings.simplefilter("ignore", NothingSavedWarning)
            estimator._move(max_loss=max_loss)


def _certificate(fields: Fields) -> Certificate:
    entries = fields.value("certificate")
    try:
        certificate = Certificate.from_dict(entries)
        str(certificate)
    except (TypeError, ValueError, AttributeError) as error:
        raise fields.refusal("certificate", f"be one ({type(error).__name__})", entries) from None
    return certificate


def pack_parameters(estimator: Any, writing: Writing) -> dict[str, Any]:
    """Constructor arguments; models among them are only named."""
    return {
        name: _pack_parameter(name, value, writing)
        for name, value in estimator.get_params(deep=False).items()
    }


def _pack_parameter(name: str, value: Any, writing: Writing) -> dict[str, Any]:
    if value is None or name not in _MODELS:
        try:
            return {"value": writing.packer.value(value)}
        except NotPlainError:
            pass
    stand_in = value if isinstance(value, NotStored) else NotStored.of(value)
    return {"not_stored": stand_in.what, "sparse": stand_in.sparse, "allow_nan": stand_in.allow_nan}


def unpack_parameters(fields: Fields, estimator: Any) -> dict[str, Any]:
    """Every constructor argument; those of a version that had fewer keep their defaults."""
    known = estimator.get_params(deep=False)
    unknown = sorted(set(fields.names) - set(known))
    if unknown:
        raise fields.refusal(unknown[0][:30], f"be a parameter of {type(estimator).__name__}", "another name")
    return {name: _unpack_parameter(fields.inside(name)) for name in fields.names}


def _unpack_parameter(fields: Fields) -> Any:
    if fields.has("value"):
        return fields.value("value")
    return NotStored(fields.text("not_stored")[:100], fields.flag("sparse"), fields.flag("allow_nan"))


def _pack_attributes(estimator: ChainClassifier, writing: Writing) -> dict[str, Any]:
    packed = {}
    for name, value in vars(estimator).items():
        if _is_attribute(name):
            try:
                packed[name] = writing.packer.value(value)
            except NotPlainError:
                continue  # learned objects that are no plain data serve nothing; they are made again by a fit
    return packed


def _unpack_attributes(fields: Fields) -> dict[str, Any]:
    for name in fields.names:
        if not _is_attribute(name):
            raise fields.refusal(name[:30], "be a learned attribute", "another name")
    return {name: fields.value(name) for name in fields.names if name not in _ONCE_STORED}


def _is_attribute(name: str) -> bool:
    learned = name.isidentifier() and name.endswith("_") and not name.startswith("_")
    return learned and name not in _FROM_CHAIN
