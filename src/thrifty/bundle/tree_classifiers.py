"""Trees of known classifiers as JSON and arrays: nothing of another library is written, and nothing of it is built."""

import hashlib
import json
from typing import Any

import numpy as np

from thrifty.bundle.fields import Fields, Packer
from thrifty.full.trees import Categories, Scaler, TreeClassifier, TreeModel, TreeRegressor

__all__ = ["pack_tree_classifier", "tree_digest", "unpack_tree_classifier"]

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
