"""Estimators and systems, whichever a file holds.

Of an estimator a file keeps the system that serves, the constructor arguments that are plain data, and the learned
attributes that are plain data. What follows from the system (labels, columns, threshold) is not written twice:
two copies could disagree.
"""

from typing import Any

import numpy as np

from thrifty.bundle.absentee import NotStored
from thrifty.bundle.cascades import pack_cascade, pack_memory, restore_memory, unpack_cascade
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.systems import pack_system, unpack_system
from thrifty.bundle.values import NotPlainError
from thrifty.chain.cascade_system import CascadeSystem
from thrifty.chain.system import GatedSystem
from thrifty.estimators.budgeted import BudgetedClassifier
from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
from thrifty.estimators.dynamod_lin import DynaModLinClassifier
from thrifty.estimators.dynamod_lstsq import DynaModLstsqClassifier
from thrifty.estimators.rivals.greedy_l1 import GreedyL1Classifier
from thrifty.estimators.rivals.greedy_leaf import GreedyLeafClassifier
from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
from thrifty.estimators.rivals.routers import ConfidenceRouter, UniformRouter
from thrifty.estimators.serving import SystemClassifier
from thrifty.exceptions import InvalidInputError

__all__ = ["pack_object", "register_estimator", "unpack_object"]

_ESTIMATORS: dict[str, type[SystemClassifier]] = {}

_MODELS = ("full", "cheap", "local")
"""Parameters that are models: they are part of the system, or not stored at all."""

_FROM_SYSTEM = (
    "classes_",
    "features_",
    "threshold_",
    "n_features_in_",
    "feature_names_in_",
    "system_",
    "cascade_",
    "certificate_",
)


def register_estimator(estimator: type[SystemClassifier]) -> None:
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
    """A system or a fitted estimator as JSON."""
    writing = writing.one_level_in()
    if isinstance(thing, GatedSystem | CascadeSystem):
        return {"kind": "system", **_pack_any(thing, writing)}
    name = type(thing).__name__
    if _ESTIMATORS.get(name) is not type(thing):
        raise InvalidInputError(
            f"a bundle holds a GatedSystem or one of {', '.join(sorted(_ESTIMATORS))}; got {name}. "
            f"Save its system_, or make the class known with thrifty.bundle.register_estimator."
        )
    system = getattr(thing, "system_", None)
    if not isinstance(system, GatedSystem | CascadeSystem):
        raise InvalidInputError(
            f"a {name} must be fitted before it is saved; this one is not. Call fit first."
        )
    packed = {
        "kind": "estimator",
        "class": name,
        **_pack_any(system, writing),
        "parameters": _pack_parameters(thing, writing),
        "attributes": _pack_attributes(thing, writing),
    }
    memory = pack_memory(thing, writing.packer) if isinstance(thing, BudgetedClassifier) else None
    return packed if memory is None else packed | {"memory": memory}


def unpack_object(fields: Fields, reading: Reading) -> Any:
    """The system or the estimator that was packed."""
    reading = reading.one_level_in()
    kind = fields.text("kind")
    if kind not in ("system", "estimator"):
        raise fields.refusal("kind", "be system or estimator", kind)
    if kind == "system":
        return _unpack_any(fields, reading)
    name = fields.text("class")
    if name not in _ESTIMATORS:
        raise fields.refusal("class", f"be one of {', '.join(sorted(_ESTIMATORS))}", name)
    system = _unpack_any(fields, reading)
    if not system.n_stages:
        raise fields.refusal("system", "have a stage", "none")
    estimator = _ESTIMATORS[name]()
    if isinstance(system, CascadeSystem) != isinstance(estimator, BudgetedClassifier):
        raise fields.refusal("class", "suit the kind of system", name)
    known = _unpack_parameters(fields.inside("parameters"), estimator)
    known |= _unpack_attributes(fields.inside("attributes")) | _from_system(system)
    for attribute, value in known.items():
        setattr(estimator, attribute, value)
    if isinstance(estimator, BudgetedClassifier) and fields.has("memory"):
        restore_memory(estimator, fields.inside("memory"))
    return estimator


def _pack_any(system: GatedSystem | CascadeSystem, writing: Writing) -> dict[str, Any]:
    if isinstance(system, CascadeSystem):
        return {"cascade": pack_cascade(system, writing)}
    return {"system": pack_system(system, writing)}


def _unpack_any(fields: Fields, reading: Reading) -> GatedSystem | CascadeSystem:
    if fields.has("cascade"):
        return unpack_cascade(fields.inside("cascade"), reading)
    return unpack_system(fields.inside("system"), reading)


def _from_system(system: GatedSystem | CascadeSystem) -> dict[str, Any]:
    known: dict[str, Any] = {
        "system_": system,
        "classes_": system.classes,
        "n_features_in_": system.price_list.n_features,
    }
    if system.names is not None:
        known["feature_names_in_"] = np.array(system.names, dtype=object)
    if isinstance(system, CascadeSystem):
        last = len(system.operating.cost) - 1
        # Where a file keeps the rows of the proof, the certificate is made again from them.
        return known | {
            "cascade_": system.at(last, last),
            "features_": system.steps[-1].columns,
            "certificate_": None,
        }
    first = system.stages[0]
    return known | {"features_": first.scorer.columns, "threshold_": first.threshold}


def _pack_parameters(estimator: SystemClassifier, writing: Writing) -> dict[str, Any]:
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


def _unpack_parameters(fields: Fields, estimator: SystemClassifier) -> dict[str, Any]:
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


def _pack_attributes(estimator: SystemClassifier, writing: Writing) -> dict[str, Any]:
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
    return {name: fields.value(name) for name in fields.names}


def _is_attribute(name: str) -> bool:
    learned = name.isidentifier() and name.endswith("_") and not name.startswith("_")
    return learned and name not in _FROM_SYSTEM
