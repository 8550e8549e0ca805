"""Estimators and chains, whichever a file holds.

Of an estimator a file keeps the chain that serves, the constructor arguments and learned attributes that are plain
data, and what moving to another operating point takes: all points that were learned, the rows they were judged on, and
the certificate. What follows from the chain (labels, columns, threshold) is not written twice: two copies could
disagree.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.bundle.arguments import pack_attributes, pack_parameters, unpack_attributes, unpack_parameters
from thrifty.bundle.chains import pack_chain, pack_policy, unpack_chain, unpack_policy
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.evidence_codec import pack_evidence, unpack_evidence
from thrifty.bundle.fields import Fields
from thrifty.cascade.estimators import BudgetedCascade, BudgetedClassifier, BudgetedRanker, BudgetedRegressor
from thrifty.chain.chain import Chain
from thrifty.dynamod.gbrt_estimators import DynaModGbrtClassifier, DynaModGbrtRegressor
from thrifty.dynamod.linear_estimator import DynaModLinClassifier
from thrifty.dynamod.lstsq_estimator import DynaModLstsqClassifier
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.tests import DUPLICATES
from thrifty.routing.confidence import ConfidenceRouter, UniformRouter, UniformRouterRegressor

__all__ = ["Kind", "pack_object", "register_estimator", "unpack_object"]

_ESTIMATORS: dict[str, type[ChainEstimator]] = {}


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


def register_estimator(estimator: type[ChainEstimator]) -> None:
    """Let bundles hold one more class of estimators."""
    _ESTIMATORS[estimator.__name__] = estimator


for _estimator in (
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    DynaModLinClassifier,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLstsqClassifier,
    ConfidenceRouter,
    UniformRouter,
    UniformRouterRegressor,
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
    return {
        "kind": "estimator",
        "class": name,
        "chain": pack_chain(chain, writing),
        "parameters": pack_parameters(thing, writing),
        "attributes": pack_attributes(thing, writing),
        "evidence": _pack_rows(getattr(thing, "evidence_", None), writing),
        "memory": _pack_memory(thing, writing),
    }


def unpack_object(fields: Fields, reading: Reading) -> Any:
    """The chain or the estimator that was packed."""
    reading = reading.one_level_in()
    kind = fields.text("kind")
    if kind not in ("system", "chain", "estimator"):
        raise fields.refusal("kind", "be chain or estimator", kind)
    chain = unpack_chain(fields.inside("chain"), reading)
    if kind != "estimator":
        return chain
    name = fields.text("class")
    if name not in _ESTIMATORS:
        raise fields.refusal("class", f"be one of {', '.join(sorted(_ESTIMATORS))}", name)
    if not chain.stages:
        raise fields.refusal("chain", "have a stage", "none")
    estimator = _ESTIMATORS[name]()
    if chain.policy.is_measured != isinstance(estimator, BudgetedCascade):
        raise fields.refusal("class", "suit the kind of chain", name)
    known = unpack_parameters(fields.inside("parameters"), estimator)
    known |= unpack_attributes(fields.inside("attributes"), estimator) | _from_chain(chain)
    for attribute, value in known.items():
        setattr(estimator, attribute, value)
    evidence = _unpack_rows(fields, "evidence", chain)
    if evidence is not None:
        estimator.evidence_ = evidence
    if fields.has("memory") and fields.raw("memory") is not None:
        _restore_memory(estimator, fields.inside("memory"))
    return estimator


def _from_chain(chain: Chain) -> dict[str, Any]:
    known: dict[str, Any] = {
        "chain_": chain,
        "n_features_in_": chain.price_list.n_features,
        "features_": chain.columns if chain.policy.is_measured else chain.stages[0].columns,
        "certificate_": None,
    }
    if len(chain.classes):
        known["classes_"] = chain.classes
    if chain.names is not None:
        known["feature_names_in_"] = np.array(chain.names, dtype=object)
    if chain.policy.is_measured:
        known["_learned"] = chain.at(chain.policy.at(len(chain.policy) - 1))
    return known


# -- moving to another operating point -----------------------------------------------------------


def _pack_memory(estimator: ChainEstimator, writing: Writing) -> dict[str, Any] | None:
    """What another operating point takes besides the chain: all points that were learned, proofs, certificates."""
    packer = writing.packer
    certificate: Certificate | None = getattr(estimator, "certificate_", None)
    told = None if certificate is None else packer.value(certificate.as_dict())
    proof = _pack_rows(estimator._proof, writing)
    if not isinstance(estimator, BudgetedCascade):
        return None if told is None and proof is None else {"certificate": told, "proof": proof}
    learned, max_loss = estimator._learned, getattr(estimator, "_max_loss", None)
    return {
        "policy": pack_policy(learned.policy, packer),
        "blend": packer.optional(learned.blend),
        "proof": proof,
        "max_loss": packer.value(float(max_loss)) if isinstance(max_loss, float | int) else None,
        "duplicates": estimator._duplicates,
        "certificate": told,
    }


def _restore_memory(estimator: ChainEstimator, fields: Fields) -> None:
    """Put that back into an estimator which has its chain already."""
    if not isinstance(estimator, BudgetedCascade):
        estimator.certificate_ = _certificate(fields)
        estimator._proof = _unpack_rows(fields, "proof", estimator.chain_)
        return
    chain = estimator.chain_
    policy = unpack_policy(fields.inside("policy"), chain.n_own_stages)
    if not policy.is_measured:
        raise fields.refusal("cost", "be known at every point", "NaN")
    blend = fields.optional_floats("blend", len(chain.task.full_alone))
    learned = estimator._learned = replace(chain, policy=policy.at(len(policy) - 1), blend=blend)
    estimator._proof = _unpack_rows(fields, "proof", learned)
    estimator._max_loss = _max_loss(fields)
    estimator._duplicates = _duplicates(fields)
    estimator.certificate_ = _certificate(fields)


def _max_loss(fields: Fields) -> float | None:
    if fields.raw("max_loss") is None:
        return None
    max_loss = fields.number("max_loss")
    if not 0 < max_loss < 1:
        raise fields.refusal("max_loss", "lie strictly between 0 and 1", max_loss)
    return max_loss


def _duplicates(fields: Fields) -> str:
    duplicates = fields.text("duplicates")
    if duplicates not in DUPLICATES:
        raise fields.refusal("duplicates", f"be one of {', '.join(DUPLICATES)}", duplicates)
    return duplicates


def _pack_rows(evidence: Evidence | None, writing: Writing) -> dict[str, Any] | None:
    """Evidence, if there is some and it is to be kept."""
    return None if evidence is None or not writing.evidence else pack_evidence(evidence, writing.packer)


def _unpack_rows(fields: Fields, name: str, chain: Chain) -> Evidence | None:
    """Evidence, if the file keeps some."""
    kept = fields.has(name) and fields.raw(name) is not None
    return unpack_evidence(fields.inside(name), chain) if kept else None


# -- certificates --------------------------------------------------------------------------------

_PARTS_OF_CERTIFICATE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("max_loss", "confidence", "bound"), (float,)),
    **dict.fromkeys(("n_rows", "n_losses", "n_candidates", "n_tested"), (int,)),
    "failed_losses": (int, type(None)),
    "failed_bound": (float, type(None)),
    **dict.fromkeys(("n_given", "n_repeated", "n_seen"), (int, type(None))),
    **dict.fromkeys(("duplicates", "issued", "rows", "loss", "unit"), (str, type(None))),
    **dict.fromkeys(("excess", "largest", "tolerance"), (float, type(None))),
    "is_fallback": (bool,),
}
_PARTS_OF_CLASS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("max_loss", "bound"), (float,)),
    **dict.fromkeys(("n_rows", "n_losses"), (int,)),
}
_PARTS_OF_POINT: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("cost", "score", "share", "chosen_cost", "chosen_score"), (float,)),
    "source": (int,),
    "settings": (dict,),
}


def _certificate(fields: Fields) -> Certificate | None:
    """The certificate, if there is one, every part of the type it must have."""
    entries = fields.value("certificate")
    if entries is None:
        return None
    try:
        certificate = Certificate.from_dict(entries)
    except (TypeError, ValueError, AttributeError, KeyError) as error:  # InvalidInputError is a ValueError
        raise fields.refusal("certificate", f"be one ({type(error).__name__})", entries) from None
    point = certificate.point
    fits = _has_types(certificate, _PARTS_OF_CERTIFICATE)
    if point is not None:
        fits = fits and _has_types(point, _PARTS_OF_POINT) and all(type(one) is int for one in point.features)
    for one in certificate.by_class or ():
        fits = fits and _has_types(one, _PARTS_OF_CLASS) and isinstance(one.label, str | int | float)
    if not fits:
        raise fields.refusal("certificate", "have parts of the right types", entries)
    return certificate


def _has_types(thing: object, types: dict[str, tuple[type, ...]]) -> bool:
    return all(type(getattr(thing, name)) in allowed for name, allowed in types.items())
