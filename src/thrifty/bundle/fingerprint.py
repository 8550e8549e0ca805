"""Recognising a full model (f0) that a file refers to but does not hold.

Trees that we know are recognised by the arrays they answer by, whether they stand in an estimator of scikit-learn or
were loaded from a file. Another fitted estimator is recognised by its content: what skops would write, without what
changes from one process to the next. A function, or a model that skops cannot write, is recognised by its answers to a
fixed table of questions. All are the same in every process; all change when the model does.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from thrifty.arrays import Floats
from thrifty.bundle.archive import dump_model
from thrifty.bundle.context import Columns
from thrifty.bundle.tree_classifiers import tree_digest
from thrifty.chain.columns import FrameOfFit
from thrifty.errors import InvalidInputError
from thrifty.full.model import EstimatorFull, FullModel, PrecomputedFull
from thrifty.full.trees import tree_classifier_of

__all__ = ["Fingerprint", "fingerprint_of", "name_of", "probe_table"]

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
        frame = FrameOfFit(columns.kind, columns.names, columns.types, columns.levels)
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


def _plausible(numbers: Floats, frame: FrameOfFit) -> Floats:
    """Questions that a model of text and truth values can read: numbers of levels, 0 and 1."""
    numbers = numbers.copy()
    for column, texts in (frame.levels.of_column if frame.levels else {}).items():
        numbers[:, column] = np.floor(np.abs(numbers[:, column])) % len(texts) if texts else np.nan
    for column in range(len(frame.names)):
        if frame.type_of(column).holds == "truth":
            numbers[:, column] = numbers[:, column] > 0
    return numbers
