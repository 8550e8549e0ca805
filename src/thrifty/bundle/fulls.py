"""f0 in a file: inside it, referred to by its fingerprint, or not there at all."""

from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.bundle.archive import dump_model, load_model
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.fingerprint import N_PROBES, Fingerprint, How, fingerprint_of, name_of
from thrifty.chain.system import GatedSystem
from thrifty.estimators.base import GatedClassifier
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import AbsentFull, EstimatorFull, FullModel, PrecomputedFull, as_full_model

__all__ = ["pack_full", "unpack_full"]


def pack_full(model: FullModel, writing: Writing) -> dict[str, Any]:
    """f0 as JSON, in the way that was asked for."""
    packer = writing.packer
    if isinstance(model, GatedSystem):
        return {"type": "system", "object": writing.pack_object(model, writing)}
    if writing.full == "absent" or isinstance(model, AbsentFull):
        return {"type": "absent"}
    if writing.full == "reference":
        return _pack_reference(model, writing)
    if isinstance(model, PrecomputedFull):
        return {"type": "precomputed", "values": packer.floats(model.values)}
    if type(model) is EstimatorFull:
        return {
            "type": "estimator",
            **_calibration(model, writing),
            **_pack_estimator(model.estimator, writing),
        }
    raise InvalidInputError(
        f"{name_of(model)} is code, and a bundle holds only data. Save f0 with full='reference', and give it again "
        f"when loading; a cheap model must be an estimator."
    )


def unpack_full(fields: Fields, reading: Reading) -> FullModel:
    """f0, checked against the columns and the classes; the caller's own where one was given."""
    kind = fields.text("type")
    if kind == "system":
        inner = reading.unpack_object(fields.inside("object"), reading)
        if not isinstance(inner, GatedSystem) or inner.price_list.n_features != reading.n_features:
            raise fields.refusal(
                "object", f"be a system for {reading.n_features} columns", type(inner).__name__
            )
        return inner
    if kind == "reference":
        return _unpack_reference(fields, reading)
    if reading.full is not None:
        return _suited(reading.full, reading)
    if kind == "absent":
        return AbsentFull()
    if kind == "precomputed":
        values = fields.array("values", np.float64, (None,))
        if np.any((values < 0) | (values > 1)):
            raise fields.refusal("values", "be probabilities", "a number outside [0, 1]")
        return PrecomputedFull(values)
    if kind == "estimator":
        estimator = _unpack_estimator(fields, reading)
        return EstimatorFull(estimator, fields.number("slope"), fields.number("intercept"))
    raise fields.refusal("type", "be a known form of f0", kind)


def _calibration(model: FullModel, writing: Writing) -> dict[str, Any]:
    slope, intercept = (getattr(model, "slope", 1.0), getattr(model, "intercept", 0.0))
    return {
        "slope": writing.packer.value(float(slope)),
        "intercept": writing.packer.value(float(intercept)),
    }


def _pack_estimator(estimator: Any, writing: Writing) -> dict[str, Any]:
    if isinstance(estimator, GatedClassifier):
        return {"own": writing.pack_object(estimator, writing)}
    return {"skops": writing.packer.array(dump_model(estimator))}


def _unpack_estimator(fields: Fields, reading: Reading) -> Any:
    if fields.has("own"):
        model = reading.unpack_object(fields.inside("own"), reading)
    else:
        data = fields.array("skops", np.uint8, (None,)).tobytes()
        model = load_model(data, trusted=reading.trusted, max_bytes=reading.max_bytes)
    suited = _suited(model, reading)
    if not isinstance(suited, EstimatorFull):
        raise fields.refusal("type", "be a fitted classifier", type(model).__name__)
    return suited.estimator


def _suited(model: Any, reading: Reading) -> FullModel:
    """The model as an f0 for these columns and classes, or a refusal."""
    columns = reading.columns
    try:
        return as_full_model(model, reading.labels, columns.n_features, names=columns.names)
    except InvalidInputError:
        raise
    except Exception as error:  # a model put together from foreign parts may fail at any question
        raise InvalidInputError(
            f"the model given as f0 or held in the bundle cannot be used: {type(error).__name__}: {str(error)[:100]}."
        ) from error


def _pack_reference(model: FullModel, writing: Writing) -> dict[str, Any]:
    fingerprint = fingerprint_of(model, writing.columns)
    known_by: dict[str, Any] = {"how": fingerprint.how, "digest": fingerprint.digest}
    if fingerprint.answers is not None:
        known_by["answers"] = writing.packer.array(fingerprint.answers)
    return {"type": "reference", "name": name_of(model), **known_by, **_calibration(model, writing)}


def _unpack_reference(fields: Fields, reading: Reading) -> FullModel:
    name, how = fields.text("name")[:100], fields.text("how")
    if reading.full is None:
        raise InvalidInputError(
            f"the bundle refers to f0, {name}, and does not hold it. Give it: load(path, full=...)."
        )
    model = _suited(reading.full, reading)
    kinds: dict[str, How] = {"content": "content", "values": "values", "answers": "answers"}
    if how not in kinds:
        raise fields.refusal("how", "be content, values or answers", how)
    answers = fields.array("answers", np.float64, (N_PROBES,)) if how == "answers" else None
    expected = Fingerprint(kinds[how], fields.text("digest"), answers)
    found = fingerprint_of(model, reading.columns, kinds[how])
    if not expected.matches(found):
        raise InvalidInputError(
            f"the bundle refers to another f0, {name}, than the {name_of(model)} given: their {how} differ. "
            f"Give the f0 that was there when the bundle was saved, or use with_full on a bundle without f0."
        )
    if isinstance(model, EstimatorFull):
        return replace(model, slope=fields.number("slope"), intercept=fields.number("intercept"))
    return model
