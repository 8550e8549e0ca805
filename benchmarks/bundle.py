"""Saving and loading the Letters system: DynaMod-Gbrt in front of an RBF-SVM, the full model (f0) in the file.

    python benchmarks/bundle.py [--data FOLDER] [--trees 150] [--forest]

The data is looked for in THRIFTY_DATA, else in ../shared/data. Times are the best of ten, with every module
imported; loading includes all checks, and the files are in the cache of the file system.
"""

import argparse
import json
import os
import struct
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.datasets import load_letters
from thrifty import DynaModGbrtClassifier, load, save
from thrifty.bundle import from_bytes, to_bytes
from thrifty.errors import OptimisticFullModelWarning

REPOSITORY = Path(__file__).resolve().parents[1]


def fitted(split, n_trees):
    """Settings from the middle of the paper's sweep; f0 learns from all training rows."""
    f0 = make_pipeline(StandardScaler(), SVC(C=10.0, gamma=0.3)).fit(split.X_train, split.y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimisticFullModelWarning)
        return DynaModGbrtClassifier(
            FrozenEstimator(f0), gamma=10.0, n_trees=n_trees, learning_rate=0.3, max_iter=3, random_state=0
        ).fit(split.X_train, split.y_train)


def best(run, repeats=10):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def sizes(data):
    """Bytes of the manifest, of f0, and of the cheap part with the evidence."""
    header = struct.calcsize("<8sIQ")
    length = struct.unpack("<8sIQ", data[:header])[2]
    entries = json.loads(data[header : header + length])["entries"]
    # Support vectors are the largest array of floats.
    model = max(entries, key=lambda entry: (entry["dtype"] == "<f8") * entry["length"])["length"]
    return length, model, sum(entry["length"] for entry in entries) - model


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default=os.environ.get("THRIFTY_DATA", REPOSITORY.parent / "shared" / "data")
    )
    parser.add_argument("--trees", type=int, default=150)
    parser.add_argument("--forest", action="store_true", help="also a forest of 500 trees as f0")
    arguments = parser.parse_args()
    split = load_letters(arguments.data)
    system = fitted(split, arguments.trees)
    f0 = system.chain_.full.estimator
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "letters.thrifty"
        saving = best(lambda: save(system, path))
        loading = best(lambda: load(path))
        manifest, model, rest = sizes(path.read_bytes())
        print(f"{len(system.features_)} of 16 columns bought, {arguments.trees} trees each, f0 with "
              f"{len(f0[-1].support_):,} support vectors")  # fmt: skip
        print(f"file {path.stat().st_size / 1e6:.3f} MB: f0 {model / 1e6:.3f}, trees and evidence {rest / 1e6:.3f}, "
              f"manifest {manifest / 1e6:.3f}")  # fmt: skip
        print(f"save {saving:.1f} ms, load {loading:.1f} ms")
        again = load(path)
    apart = np.abs(again.predict_proba(split.X_test) - system.predict_proba(split.X_test)).max()
    print(f"4,000 test rows answered as before up to {apart:.1e}")
    if arguments.forest:
        forest = RandomForestClassifier(500, random_state=0).fit(split.X_train, split.y_train)
        behind = system.with_full(FrozenEstimator(forest))
        data = to_bytes(behind)
        saving, loading = best(partial(to_bytes, behind), 1), best(partial(from_bytes, data), 1)
        full = from_bytes(data).chain_.full.estimator
        same = np.array_equal(full.predict_proba(split.X_test), forest.predict_proba(split.X_test))
        print(f"forest of 500 trees inside: {len(data) / 1e6:.1f} MB, to_bytes in {saving:.0f} ms, from_bytes in "
              f"{loading:.0f} ms, answers bit by bit as before: {same}")  # fmt: skip
    for full in ("inside", "outside", "absent"):
        size, took = len(to_bytes(system, full=full)) / 1e6, best(partial(to_bytes, system, full=full), 3)
        bare = len(to_bytes(system, full=full, evidence=False)) / 1e6
        print(f"full={full!r}: {size:.3f} MB, {bare:.3f} without evidence, to_bytes in {took:.1f} ms")


if __name__ == "__main__":
    main()
