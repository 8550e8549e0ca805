"""The full model (f0) in a file: inside it, referred to by its fingerprint, or not there at all."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np

from thrifty.arrays import Floats
from thrifty.bundle.archive import dump_model, load_model
from thrifty.bundle.context import Reading, Writing
from thrifty.bundle.fields import Fields
from thrifty.bundle.fingerprint import N_PROBES, Fingerprint, How, fingerprint_of, name_of
from thrifty.bundle.tree_classifiers import pack_tree_classifier, unpack_tree_classifier
from thrifty.chain.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.full.model import AbsentFull, EstimatorFull, FullModel, PrecomputedFull, as_full_model
from thrifty.full.trees import tree_classifier_of

__all__ = ["pack_full", "unpack_full"]


def pack_full(model: FullModel | Chain, writing: Writing) -> dict[str, Any]:
    """The full model as JSON, in the way that was asked for."""
    packer = writing.packer
    if isinstance(model, Chain):
        return {"type": "chain", "object": writing.pack_object(model, writing)}
    if writing.full == "absent" or isinstance(model, AbsentFull):
        return {"type": "absent"}
    if writing.full == "reference":
        return _pack_reference(model, writing)
    if isinstance(model, PrecomputedFull):
        keys = None if model.keys is None else packer.array(model.keys)
        return {"type": "precomputed", "values": packer.floats(model.values), "keys": keys}
    if type(model) is EstimatorFull:
        calibration = packer.optional(model.calibration)
        packed = {
            "type": "estimator",
            "calibration": calibration,
            **_pack_estimator(model.estimator, writing),
        }
        return {**packed, "reads_numbers": True} if model.reads_numbers else packed
    raise InvalidInputError(
        f"{name_of(model)} is code, and a bundle holds only data. Save the full model with full='reference', and give "
        f"it again when loading; a cheap model must be an estimator."
    )


def unpack_full(fields: Fields, reading: Reading) -> FullModel | Chain:
    """The full model, checked against the columns and the task; the caller's own where one was given."""
    kind = fields.text("type")
    if kind in ("system", "chain"):
        inner = reading.unpack_object(fields.inside("object"), reading)
        if not isinstance(inner, Chain) or inner.price_list.n_features != reading.n_features:
            raise fields.refusal(
                "object", f"be a chain for {reading.n_features} columns", type(inner).__name__
            )
        return inner
    if kind == "reference":
        return _unpack_reference(fields, reading)
    if reading.full is not None:
        return _suited(reading.full, reading)
    if kind == "absent":
        return AbsentFull()
    if kind == "precomputed":
        return _unpack_precomputed(fields, reading)
    if kind == "estimator":
        estimator = _unpack_estimator(fields, reading)
        calibration = _read_calibration(fields, reading)
        reads_numbers = fields.has("reads_numbers") and fields.flag("reads_numbers")
        return EstimatorFull(
            estimator, reading.answers, calibration, is_loaded=True, reads_numbers=reads_numbers
        )
    raise fields.refusal("type", "be a known form of the full model", kind)


def _unpack_precomputed(fields: Fields, reading: Reading) -> PrecomputedFull:
    """Outputs of known rows."""
    found = fields.value("values")
    if not isinstance(found, np.ndarray) or found.ndim not in (1, 2):
        raise fields.refusal("values", "be probabilities", found)
    values = reading.answers.read_outputs(
        fields.array("values", np.float64, found.shape), None, "values in the bundle"
    )
    if fields.raw("keys") is None:
        return PrecomputedFull(values)
    if not len(values):
        raise fields.refusal("values", "belong to at least one row", "none")
    return PrecomputedFull(values, fields.array("keys", np.uint64, (len(values),)))


def _read_calibration(fields: Fields, reading: Reading) -> Floats | None:
    """What makes outputs of what the estimator says; None where it says them itself."""
    if fields.raw("calibration") is None:
        return None
    return fields.array("calibration", np.float64, reading.answers.no_calibration.shape)


def _pack_estimator(estimator: Any, writing: Writing) -> dict[str, Any]:
    if isinstance(estimator, ChainEstimator):
        return {"own": writing.pack_object(estimator, writing)}
    trees = tree_classifier_of(estimator)
    if trees is not None:
        return {"trees": pack_tree_classifier(trees, writing.packer)}
    return {"skops": writing.packer.array(dump_model(estimator))}


def _unpack_estimator(fields: Fields, reading: Reading) -> Any:
    if fields.has("own"):
        model = reading.unpack_object(fields.inside("own"), reading)
    elif fields.has("trees"):
        model = unpack_tree_classifier(fields.inside("trees"), reading.n_features)
    else:
        data = fields.array("skops", np.uint8, (None,)).tobytes()
        model = load_model(data, trusted=reading.trusted, max_bytes=reading.max_bytes)
    suited = _suited(model, reading)
    if not isinstance(suited, EstimatorFull):
        raise fields.refusal("type", "be a fitted classifier", type(model).__name__)
    return suited.estimator


def _suited(model: Any, reading: Reading) -> FullModel:
    """The model as the full model for these columns and classes, or a refusal."""
    columns = reading.columns
    try:
        return as_full_model(model, reading.answers, columns.n_features, names=columns.names)
    except InvalidInputError:
        raise
    except Exception as error:  # a model put together from foreign parts may fail at any question
        raise InvalidInputError(
            f"the model given as full or held in the bundle cannot be used: {type(error).__name__}: {str(error)[:100]}."
        ) from error


def _precomputed(fields: Fields, reading: Reading) -> FullModel:
    """Outputs given again by the caller, for the rows that the file knows them by."""
    if callable(getattr(reading.full, "outputs", None)):
        return _suited(reading.full, reading)
    values = reading.answers.read_outputs(reading.full, None, "full")
    if not fields.has("keys"):
        return PrecomputedFull(values)
    keys = fields.array("keys", np.uint64, (None,))
    if not 0 < len(values) == len(keys):
        raise InvalidInputError(
            f"the bundle refers to the probabilities of {len(keys)} rows; full holds {len(values)}. Give those that "
            f"were there when it was saved."
        )
    return PrecomputedFull(values, keys)


def _pack_reference(model: FullModel, writing: Writing) -> dict[str, Any]:
    fingerprint = fingerprint_of(model, writing.columns)
    known_by: dict[str, Any] = {"how": fingerprint.how, "digest": fingerprint.digest}
    if fingerprint.answers is not None:
        known_by["answers"] = writing.packer.array(fingerprint.answers)
    if isinstance(model, PrecomputedFull) and model.keys is not None:
        known_by["keys"] = writing.packer.array(model.keys)
    calibration = writing.packer.optional(getattr(model, "calibration", None))
    return {"type": "reference", "name": name_of(model), **known_by, "calibration": calibration}


def _unpack_reference(fields: Fields, reading: Reading) -> FullModel:
    name, how = fields.text("name")[:100], fields.text("how")
    if reading.full is None:
        raise InvalidInputError(
            f"the bundle refers to its full model, {name}, and does not hold it. Give it: load(path, full=...)."
        )
    model = _precomputed(fields, reading) if how == "values" else _suited(reading.full, reading)
    kinds: dict[str, How] = {one: one for one in get_args(How)}
    if how not in kinds:
        raise fields.refusal("how", f"be one of {', '.join(kinds)}", how)
    answers = fields.array("answers", np.float64, (N_PROBES,)) if how == "answers" else None
    expected = Fingerprint(kinds[how], fields.text("digest"), answers)
    found = fingerprint_of(model, reading.columns, kinds[how])
    if not expected.matches(found):
        raise InvalidInputError(
            f"the bundle refers to another full model, {name}, than the {name_of(model)} given: their {how} differ. "
            f"Give the one that was there when the bundle was saved, or use with_full on a bundle without one."
        )
    if isinstance(model, EstimatorFull):
        return replace(model, calibration=_read_calibration(fields, reading))
    return model
