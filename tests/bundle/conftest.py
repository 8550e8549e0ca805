"""Small fitted estimators that the tests of this folder share; nothing here changes them."""

import hashlib
import json
import struct
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.settings import estimator_of
from thrifty import (
    BudgetedClassifier,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Prices,
    StageOptions,
)
from thrifty.bundle.container import FORMAT, unpack
from thrifty.learners.dynamod import LeafOptions, LinearOptions

HEADER = struct.Struct("<8sIQ")


class Forge:
    """Bundles that are well sealed and wrong: taken apart, changed, and given new checksums."""

    @staticmethod
    def taken_apart(data):
        """The manifest, and the raw bytes of each array."""
        length = HEADER.unpack(data[: HEADER.size])[2]
        begin = HEADER.size + length
        manifest = json.loads(data[HEADER.size : begin])
        blobs = [data[begin + e["offset"] : begin + e["offset"] + e["length"]] for e in manifest["entries"]]
        return manifest, blobs

    @staticmethod
    def sealed(manifest, blobs, *, honest=True):
        """The bundle of this manifest and these arrays; ``honest`` entries say where their bytes lie."""
        if honest:
            offset = 0
            for entry, blob in zip(manifest["entries"], blobs, strict=True):
                entry.update(offset=offset, length=len(blob))
                offset += len(blob)
        return Forge.sealed_text(json.dumps(manifest).encode(), b"".join(blobs))

    @staticmethod
    def sealed_text(manifest, blobs=b"", version=FORMAT):
        body = HEADER.pack(b"thrifty\x00", version, len(manifest)) + manifest + blobs
        return body + hashlib.sha256(body).digest()

    @staticmethod
    def objects(manifest, kind):
        """The objects of a class."""
        return [one for one in manifest["objects"] if one["class"] == kind]

    @staticmethod
    def array_of(data, kind, field, which=0):
        """An array of an object."""
        manifest, _ = Forge.taken_apart(data)
        return unpack(data).arrays[Forge.objects(manifest, kind)[which][field]["$array"]]

    @staticmethod
    def with_array(data, kind, field, array, which=0):
        """The bundle with one array of an object replaced."""
        manifest, blobs = Forge.taken_apart(data)
        number = Forge.objects(manifest, kind)[which][field]["$array"]
        array = np.ascontiguousarray(array)
        manifest["entries"][number] = {"dtype": array.dtype.str, "shape": list(array.shape)}
        blobs[number] = array.tobytes()
        return Forge.sealed(manifest, blobs)

    @staticmethod
    def with_field(data, kind, field, value, which=0):
        """The bundle with one field of an object replaced."""
        return Forge.with_fact(data, lambda m: Forge.objects(m, kind)[which].update({field: value}))

    @staticmethod
    def with_fact(data, change):
        """The bundle after ``change(manifest)``."""
        manifest, blobs = Forge.taken_apart(data)
        change(manifest)
        return Forge.sealed(manifest, blobs, honest=False)


@pytest.fixture(scope="session")
def forge():
    return Forge


@pytest.fixture(scope="session")
def rows():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X[::2, :12]), y[::2]


@pytest.fixture(scope="session")
def fitted(rows):
    """Fitted estimators of every class with a chain, each with another kind of full model or of setting."""
    svm = make_pipeline(StandardScaler(), SVC())
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    names = [f"column {number}" for number in range(12)]
    prices = dict(zip(names, np.arange(1.0, 13.0), strict=True))
    import pandas as pd

    table = pd.DataFrame(rows[0], columns=names)
    groups = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    boosted = {"n_trees": 5, "max_depth": 3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = {
            "linear": DynaModLinClassifier(
                svm, gamma=0.02, prices=Prices(groups=groups), budget=6.0, random_state=0
            ),
            "margin": DynaModLinClassifier(
                logistic, gamma=np.float64(0.02), options=LinearOptions(gate_reads_margin=True, refit=True)
            ),
            "boosted": estimator_of(DynaModGbrtClassifier, svm, **boosted, p_full=0.5),
            "reading": estimator_of(
                DynaModGbrtClassifier, logistic, **boosted, gate_reads_score=True, prices=Prices(full=2.0)
            ),
            "confidence": ConfidenceRouter(svm, logistic, features=[0, 4, 5], p_full=0.4),
            "lstsq": DynaModLstsqClassifier(
                logistic, options=LeafOptions(n_trees=4, max_leaves=4, max_iter=3), random_state=0
            ),
            "cascade": BudgetedClassifier(
                logistic, budget=1.6, stages=StageOptions(sizes=[(6, 3)]), cv=3, random_state=0
            ),
        }
        estimators = {name: estimator.fit(*rows) for name, estimator in found.items()}
        estimators["proved"] = estimators["cascade"].certified(rows[0] + 0.01, rows[1], max_loss=0.2)
        labels = np.where(rows[1] == 1, "benign", "malignant")
        frame = DynaModLinClassifier(logistic, gamma=0.01, feature_costs=prices, random_state=0)
        estimators["frame"] = frame.fit(table, labels)
        for name, behind in (("chain", "boosted"), ("nested", "cascade")):
            chained = DynaModLinClassifier(FrozenEstimator(estimators[behind]), gamma=0.05, random_state=0)
            estimators[name] = chained.fit(*rows)
    return estimators
