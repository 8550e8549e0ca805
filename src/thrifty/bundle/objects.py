"""Fitted estimators and chains as the bytes of one file, and back.

Constructor arguments and learned attributes as JSON, and what stands in the place of those a file does not hold.

Estimators and chains, whichever a file holds.

Of an estimator a file keeps the chain that serves, the constructor arguments and learned attributes that are plain
data, and what moving to another operating point takes: all points that were learned, the rows they were judged on, and
the certificate. What follows from the chain (labels, columns, threshold) is not written twice: two copies could
disagree.

An object to the bytes of a file, and back.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags

import thrifty
from thrifty.bundle.archives import type_names
from thrifty.bundle.chains import pack_chain, pack_policy, unpack_chain, unpack_policy
from thrifty.bundle.codecs import pack_evidence, unpack_evidence
from thrifty.bundle.container import DEFAULT_MAX_BYTES, Contents, pack, unpack
from thrifty.bundle.context import FullMode, Reading, Writing
from thrifty.bundle.fields import Fields, NotPlainError, Packer, Unpacker
from thrifty.bundle.signature import check_private_key, sign, without_signature
from thrifty.cascade.estimators import (
    BudgetedCascade,
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    StageOptions,
)
from thrifty.chain.chain import Chain
from thrifty.dynamod.gbrt_estimators import DynaModGbrtClassifier, DynaModGbrtRegressor
from thrifty.dynamod.linear_estimator import DynaModLinClassifier
from thrifty.dynamod.lstsq_estimator import DynaModLstsqClassifier
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.evidence import Evidence
from thrifty.prices.prices import Prices
from thrifty.routing.confidence import ConfidenceRouter, UniformRouter, UniformRouterRegressor

__all__ = [
    "Kind",
    "NotStored",
    "from_bytes",
    "pack_attributes",
    "pack_object",
    "pack_parameters",
    "register_estimator",
    "to_bytes",
    "unpack_attributes",
    "unpack_object",
    "unpack_parameters",
]

_MODELS = ("full", "cheap", "local")
"""Parameters that are models: they are part of the chain, or not stored at all."""

_KNOWN_OTHERWISE = (
    "classes_",
    "features_",
    "threshold_",
    "n_features_in_",
    "feature_names_in_",
    "chain_",
    "evidence_",
    "certificate_",
)
"""Attributes that follow from the chain, or have a part of their own in a file."""

_ONCE_STORED = ("expected_cost_", "expected_score_")
"""What files of the first format keep, and what follows from the policy now."""


class NotStored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A model, splitter or generator among the parameters of an estimator that was saved.

    It remembers which tables the original could read, so that a loaded estimator accepts and refuses the same tables as
    before, and it keeps ``fit`` from going on with a default in its place.

    Parameters
    ----------
    what : str
        Class of the original.
    sparse, allow_nan : bool
        Whether the original could read sparse tables and missing values.
    """

    def __init__(self, what: str = "object", sparse: bool = True, allow_nan: bool = True) -> None:
        self.what = what
        self.sparse = sparse
        self.allow_nan = allow_nan

    @classmethod
    def of(cls, value: Any) -> "NotStored":
        """Stand in for a value; what has no ``fit`` sets no limit to the tables."""
        name = value.__name__ if isinstance(value, type) else type(value).__name__
        if not hasattr(value, "fit") or isinstance(value, type):
            return cls(name)
        tags = get_tags(value).input_tags
        return cls(name, bool(tags.sparse), bool(tags.allow_nan))

    def fit(self, X: Any, y: Any = None) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise InvalidInputError(
            f"a {self.what} among the parameters was not stored in the bundle, so this estimator cannot be fitted "
            f"again. Give it first, with set_params."
        )

    def predict_proba(self, X: Any) -> NoReturn:
        """Refuse."""
        self.fit(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.sparse
        tags.input_tags.allow_nan = self.allow_nan
        return tags


def pack_parameters(estimator: Any, writing: Writing) -> dict[str, Any]:
    """Constructor arguments; models among them are only named."""
    return {
        name: _pack_parameter(name, value, writing)
        for name, value in estimator.get_params(deep=False).items()
    }


def _pack_parameter(name: str, value: Any, writing: Writing) -> dict[str, Any]:
    if value is None or name not in _MODELS:
        try:
            if isinstance(value, Prices):
                return {"prices": writing.packer.value(value.as_dict())}
            if isinstance(value, StageOptions):
                return {"stages": writing.packer.value(asdict(value))}
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
    if fields.has("prices"):
        arguments = fields.value("prices")
        if not isinstance(arguments, dict) or set(arguments) - set(Prices().as_dict()):
            raise fields.refusal("prices", "be the arguments of Prices", arguments)
        return Prices.from_dict(arguments)
    if fields.has("stages"):
        arguments = fields.value("stages")
        if not isinstance(arguments, dict) or set(arguments) - set(asdict(StageOptions())):
            raise fields.refusal("stages", "be the arguments of StageOptions", arguments)
        return StageOptions(**arguments)
    return NotStored(fields.text("not_stored")[:100], fields.flag("sparse"), fields.flag("allow_nan"))


def pack_attributes(estimator: Any, writing: Writing) -> dict[str, Any]:
    """Learned attributes that are plain data."""
    packed = {}
    for name, value in vars(estimator).items():
        if _is_attribute(name):
            try:
                packed[name] = writing.packer.value(value)
            except NotPlainError:
                continue  # learned objects that are no plain data serve nothing; they are made again by a fit
    return packed


def unpack_attributes(fields: Fields, estimator: Any) -> dict[str, Any]:
    """Learned attributes; a name that means something else in an estimator of this class is refused."""
    for name in fields.names:
        taken = hasattr(type(estimator), name) and name not in _ONCE_STORED
        if not _is_attribute(name) or taken:
            raise fields.refusal(name[:30], "be a learned attribute", "another name")
    return {name: fields.value(name) for name in fields.names if name not in _ONCE_STORED}


def _is_attribute(name: str) -> bool:
    learned = name.isidentifier() and name.endswith("_") and not name.startswith("_")
    return learned and name not in _KNOWN_OTHERWISE


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
    policy = chain.policy
    known["_learned"] = chain.at(policy.at(len(policy) - 1)) if policy.is_measured else chain
    return known


# -- moving to another operating point -----------------------------------------------------------


def _pack_memory(estimator: ChainEstimator, writing: Writing) -> dict[str, Any] | None:
    """What another operating point takes besides the chain: all points that were learned, certificates."""
    packer = writing.packer
    certificate: Certificate | None = getattr(estimator, "certificate_", None)
    told = None if certificate is None else packer.value(certificate.as_dict())
    if not isinstance(estimator, BudgetedCascade):
        return None if told is None else {"certificate": told}
    learned = estimator._learned
    return {
        "policy": pack_policy(learned.policy, packer),
        "blend": packer.optional(learned.blend),
        "certificate": told,
    }


def _restore_memory(estimator: ChainEstimator, fields: Fields) -> None:
    """Put that back into an estimator which has its chain already."""
    if not isinstance(estimator, BudgetedCascade):
        estimator.certificate_ = _certificate(fields)
        return
    chain = estimator.chain_
    policy = unpack_policy(fields.inside("policy"), chain.n_own_stages)
    if not policy.is_measured:
        raise fields.refusal("cost", "be known at every point", "NaN")
    blend = fields.optional_floats("blend", len(chain.task.full_alone))
    estimator._learned = replace(chain, policy=policy.at(len(policy) - 1), blend=blend)
    estimator.certificate_ = _certificate(fields)


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


_MODES = ("inside", "reference", "absent")


def to_bytes(
    thing: Any,
    *,
    full: FullMode = "inside",
    evidence: bool = True,
    private_key: Any = None,
    kinds: Sequence[Kind] = (),
) -> bytes:
    """What ``save`` would write into a file."""
    if full not in _MODES:
        raise InvalidInputError(f"full must be one of {', '.join(map(repr, _MODES))}; got {full!r}.")
    key = None if private_key is None else check_private_key(private_key)
    packer = Packer()
    writing = Writing(packer, full, pack_object, evidence=evidence)
    kind = next((one for one in kinds if type(thing) is one.holds), None)
    packed = pack_object(thing, writing) if kind is None else {"kind": kind.name, **kind.pack(thing, writing)}
    data = pack(Contents({"thrifty": thrifty.__version__, **packed}, packer.arrays))
    return data if key is None else sign(data, key)


def from_bytes(
    data: bytes,
    *,
    full: Any = None,
    trusted: Iterable[str | type] = (),
    max_bytes: int = DEFAULT_MAX_BYTES,
    public_key: Any = None,
    kinds: Sequence[Kind] = (),
) -> Any:
    """What ``load`` would read from a file of these bytes."""
    reading = Reading(unpack_object, full, type_names(trusted), max_bytes)
    try:
        contents = unpack(without_signature(data, public_key), max_bytes=max_bytes)
        fields = Fields(contents.facts, Unpacker(contents.arrays), "the content")
        name = fields.raw("kind")
        kind = next((one for one in kinds if one.name == name), None)
        return unpack_object(fields, reading) if kind is None else kind.unpack(fields, reading)
    except RecursionError:
        raise InvalidInputError("the bundle is nested too deep to be one that `save` wrote.") from None
