"""Full models in a file: as arrays of trees, as archives, or recognised by a fingerprint of their answers.

Trees of known classifiers as JSON and arrays: nothing of another library is written, and nothing of it is built.

Recognising a full model (f0) that a file refers to but does not hold.

Trees that we know are recognised by the arrays they answer by, whether they stand in an estimator of scikit-learn or
were loaded from a file. Another fitted estimator is recognised by its content: what skops would write, without what
changes from one process to the next. A function, or a model that skops cannot write, is recognised by its answers to a
fixed table of questions. All are the same in every process; all change when the model does.

The full model (f0) in a file: inside it, referred to by its fingerprint, or not there at all.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from thrifty.arrays import Floats
from thrifty.bundle.archives import dump_model, load_model
from thrifty.bundle.context import Columns, Reading, Writing
from thrifty.bundle.fields import Fields, Packer
from thrifty.chain.chain import Chain
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import ChainEstimator
from thrifty.full.foreign import models_of
from thrifty.full.model import AbsentFull, EstimatorFull, FullModel, PrecomputedFull, as_full_model
from thrifty.full.trees import (
    Categories,
    Scaler,
    TreeClassifier,
    TreeModel,
    TreeRegressor,
    tree_classifier_of,
)
from thrifty.tables.reader import Schema

__all__ = [
    "Fingerprint",
    "fingerprint_of",
    "name_of",
    "pack_full",
    "pack_tree_classifier",
    "probe_table",
    "tree_digest",
    "unpack_full",
    "unpack_tree_classifier",
]

_MOST_SCALERS = 8


def pack_tree_classifier(classifier: TreeClassifier | TreeRegressor, packer: Packer) -> dict[str, Any]:
    """The classifier as JSON."""
    model: TreeModel = classifier.model
    return {
        "classes": packer.value(np.asarray(model.classes)),
        "n_features": model.n_features,
        "names": None if model.names is None else list(model.names),
        "ensembles": [{"trees": packer.ensemble(part)} for part in model.trees],
        "baseline": packer.optional(model.baseline),
        "accepts_missing": model.accepts_missing,
        "scalers": [
            {"kind": one.kind, "shift": packer.optional(one.shift), "scale": packer.optional(one.scale)}
            for one in model.scalers
        ],
        "categories": None if model.categories is None else _pack_categories(model.categories, packer),
    }


def unpack_tree_classifier(fields: Fields, n_features: int) -> TreeClassifier | TreeRegressor:
    """The classifier for tables of so many columns, every part of it checked."""
    classes = fields.value("classes")
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        raise fields.refusal("classes", "be a list of labels", classes)
    if fields.whole("n_features") != n_features:
        raise fields.refusal(
            "n_features", f"be the {n_features} columns of the chain", fields.raw("n_features")
        )
    names = fields.raw("names")
    if names is not None and not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
        raise fields.refusal("names", "be text, or None", names)
    categories = _unpack_categories(fields.inside("categories")) if fields.raw("categories") else None
    width = n_features + (0 if categories is None else len(categories.asked))
    scalers = fields.items("scalers")
    if len(scalers) > _MOST_SCALERS:
        raise fields.refusal("scalers", f"be at most {_MOST_SCALERS}", len(scalers))
    model = TreeModel(
        classes,
        n_features,
        None if names is None else tuple(names),
        tuple(one.ensemble("trees", width, None) for one in fields.items("ensembles")),
        _optional(fields, "baseline"),
        fields.flag("accepts_missing"),
        tuple(Scaler(one.text("kind"), _optional(one, "shift"), _optional(one, "scale")) for one in scalers),
        categories,
    )
    return (TreeClassifier if len(model.classes) else TreeRegressor)(model.validate())


def tree_digest(classifier: TreeClassifier | TreeRegressor) -> str:
    """Digest of what the classifier answers by, the same for the original and for what was loaded from a file."""
    packer = Packer()
    digest = hashlib.sha256(json.dumps(pack_tree_classifier(classifier, packer)).encode())
    for array in packer.arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _optional(fields: Fields, name: str) -> Any:
    return None if fields.raw(name) is None else fields.array(name, np.float64, (None,))


def _pack_categories(categories: Categories, packer: Packer) -> dict[str, Any]:
    return {
        "columns": packer.columns(categories.columns),
        "known": [packer.floats(one) for one in categories.known],
        "asked": packer.columns(categories.asked),
        "goes_right": packer.array(categories.goes_right),
    }


def _unpack_categories(fields: Fields) -> Categories:
    known = fields.value("known")
    if not isinstance(known, list) or not all(_is_floats(one) for one in known):
        raise fields.refusal("known", "be arrays of numbers", known)
    asked = fields.array("asked", np.int64, (None,))
    return Categories(
        fields.array("columns", np.int64, (len(known),)).astype(np.intp, copy=False),
        tuple(known),
        asked.astype(np.intp, copy=False),
        fields.array("goes_right", np.bool_, (len(asked), None)),
    )


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 1


How = Literal["trees", "content", "values", "answers"]

N_PROBES = 64
TOLERANCE = 1e-6
"""Answers may differ by this: a machine's last digit is not another model."""

# Where an object lay in memory, who wrote it, and how busy it may be: none of it is what the model is.
_LEFT_OUT = {"__id__", "__loader__", "_skops_version", "protocol", "_sklearn_version", "n_jobs", "verbose"}
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Fingerprint:
    """By what a model is recognised: a digest of its trees, its content or its values, or its answers."""

    how: How
    digest: str = ""
    answers: Floats | None = None

    def matches(self, other: "Fingerprint") -> bool:
        """Whether both are of the same model."""
        if self.how != other.how:
            return False
        if self.answers is None or other.answers is None:
            return self.digest == other.digest and self.how != "answers"
        return bool(np.all(np.abs(self.answers - other.answers) <= TOLERANCE))


def fingerprint_of(model: FullModel, columns: Columns, how: How | None = None) -> Fingerprint:
    """The model's fingerprint, of the given kind or of the surest that it allows."""
    if isinstance(model, PrecomputedFull):
        raw = np.ascontiguousarray(model.values[:, -1], "<f8").tobytes()
        return Fingerprint("values", hashlib.sha256(raw).hexdigest())
    if isinstance(model, EstimatorFull) and how in (None, "trees"):
        trees = tree_classifier_of(model.estimator)
        if trees is not None:
            return Fingerprint("trees", tree_digest(trees))
    if isinstance(model, EstimatorFull) and how in (None, "content"):
        try:
            return Fingerprint("content", content_digest(model.estimator))
        except InvalidInputError:
            if how == "content":
                raise
    return Fingerprint("answers", answers=_answers(model, columns))


def name_of(model: FullModel) -> str:
    """What a reader of an error message knows the model by."""
    inner = getattr(model, "estimator", getattr(model, "function", model))
    return str(getattr(inner, "__qualname__", type(inner).__name__))


def content_digest(estimator: Any) -> str:
    """Digest of what a fitted estimator is made of, the same in every process."""
    with zipfile.ZipFile(io.BytesIO(dump_model(estimator).tobytes())) as archive:
        digests = {name: _member_digest(name, archive.read(name)) for name in archive.namelist()}
        try:
            canonical = _canonical(json.loads(archive.read("schema.json")), digests)
        except RecursionError:
            raise InvalidInputError(
                f"the {type(estimator).__name__} is nested too deep for a fingerprint."
            ) from None
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(node: Any, digests: dict[str, str]) -> Any:
    """The description with members in place of their names, and without what says nothing about the model."""
    if isinstance(node, list):
        return [_canonical(item, digests) for item in node]
    if not isinstance(node, dict):
        return node
    if "key_types" in node and isinstance(node.get("content"), dict):
        # Attributes may have been set in another order; types of keys follow that order, so they are left out.
        node = {name: part for name, part in node.items() if name != "key_types"}
    kept = {
        name: digests.get(part, part) if name == "file" else _canonical(part, digests)
        for name, part in node.items()
        if name not in _LEFT_OUT
    }
    if kept.get("__class__") in ("set", "frozenset") and isinstance(kept.get("content"), list):
        kept["content"] = sorted(json.dumps(item, sort_keys=True) for item in kept["content"])
    return kept


def _member_digest(name: str, raw: bytes) -> str:
    if not name.endswith(".npy"):
        return hashlib.sha256(raw).hexdigest()
    array = np.load(io.BytesIO(raw), allow_pickle=False)
    digest = hashlib.sha256(f"{array.dtype.descr}{array.shape}".encode())
    # Between the fields of a record lie bytes that nobody wrote; they differ from run to run.
    for field in array.dtype.names or [None]:
        digest.update(np.ascontiguousarray(array if field is None else array[field]).tobytes())
    return digest.hexdigest()


def probe_table(n_features: int) -> Floats:
    """Questions that depend on nothing but the number of columns: rows of sizes 1 to 1,000, half of them of one sign.

    A lattice of multiples of the golden ratio, which takes only exactly rounded operations: the same on every machine.
    """
    lattice = np.outer(np.arange(1, N_PROBES + 1), np.arange(1, n_features + 1)) * _GOLDEN
    unit = lattice - np.floor(lattice)
    unit[1::2] = 2.0 * unit[1::2] - 1.0
    size = np.array([1.0, 10.0, 100.0, 1000.0])[np.arange(N_PROBES) // 2 % 4]
    table: Floats = unit * size[:, None]
    return table


def _answers(model: FullModel, columns: Columns) -> Floats:
    numbers = probe_table(columns.n_features)
    table: Any = numbers
    if columns.kind is not None and columns.names is not None:
        frame = Schema(columns.kind, columns.names, columns.types, columns.levels)
        numbers = _plausible(numbers, frame)
        table = frame.table(numbers, np.arange(columns.n_features))
    try:
        answers = model.outputs(table, numbers)[:, -1]
    except Exception as error:  # whatever a foreign model raises when it is asked
        raise InvalidInputError(
            f"{name_of(model)} cannot be recognised by its answers: asked about {N_PROBES} made-up rows, it raised "
            f"{type(error).__name__}: {str(error)[:100]}. Save with full='absent' and give it again when loading."
        ) from error
    return np.asarray(answers, dtype=np.float64)


def _plausible(numbers: Floats, frame: Schema) -> Floats:
    """Questions that a model of text and truth values can read: numbers of levels, 0 and 1."""
    numbers = numbers.copy()
    for column, texts in (frame.levels.of_column if frame.levels else {}).items():
        numbers[:, column] = np.floor(np.abs(numbers[:, column])) % len(texts) if texts else np.nan
    for column in range(len(frame.names)):
        if frame.type_of(column).holds == "truth":
            numbers[:, column] = numbers[:, column] > 0
    return numbers


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
    values = models_of(reading.answers).read_outputs(
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
    return fields.array("calibration", np.float64, models_of(reading.answers).no_calibration.shape)


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
    values = models_of(reading.answers).read_outputs(reading.full, None, "full")
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
