"""Files made to do harm: bundles that are taken apart, changed and sealed again, so that every checksum is right.

    python benchmarks/fuzz_bundles.py [--files 10000] [--seed 0] [--seconds 5]

Each file is loaded, and what loads is asked for everything it offers, all in one process: a crash would end it without
a table. A file is refused, answers with finite probabilities, or refuses to answer in words; all else is a fault.
Faults are printed with the number of the file, which is the same for the same seed.
"""

import argparse
import copy
import faulthandler
import hashlib
import importlib.util
import json
import random
import resource
import signal
import struct
import time
import warnings
from collections import Counter

import numpy as np
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from thrifty import DynaModGbrtClassifier, DynaModGbrtRegressor, DynaModLinClassifier
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.container import FORMAT
from thrifty.errors import ThriftyError

HEADER = struct.Struct("<8sIQ")
OUTCOMES = ("refused", "answers", "refuses to answer", "NaN", "other error", "too slow")
FAULTS = OUTCOMES[3:]
ODD_FACTS = (
    *(None, True, -1, 0, 1, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, -1e308, "", "x", [], {}, [[]]),
    *({"$array": 0}, {"$array": 3}, {"$object": 0}, {"$object": 2}),
    *({"$float": "inf"}, {"$float": "nan"}, {"$tuple": []}, {"$objects": []}),
)
ODD_NUMBERS = (
    0,
    1,
    -1,
    2,
    255,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    1e-308,
    1e308,
    -1e308,
    np.inf,
    -np.inf,
    np.nan,
)
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8", "<U1", "<U2")


# -- files to start from -------------------------------------------------------------------------


def table(n_rows=160):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 4))
    X[:, 3] = rng.integers(0, 5, n_rows)
    return X, (X[:, 0] + np.sin(X[:, 3]) + 0.3 * rng.normal(size=n_rows) > 0).astype(int)


def bundles(X, y, wanted=None):
    """Bytes by name: every kind of full model that a file holds."""
    three = y + (X[:, 1] > 0.7)
    models = {
        "forest": (RandomForestClassifier(4, max_depth=4, random_state=0), y),
        "tree": (DecisionTreeClassifier(max_depth=4), y),
        "gradient boosting": (GradientBoostingClassifier(n_estimators=4), y),
        "histogram boosting": (HistGradientBoostingClassifier(max_iter=4), y),
        "categories": (HistGradientBoostingClassifier(max_iter=4, categorical_features=[3]), y),
        "3 classes": (HistGradientBoostingClassifier(max_iter=3), three),
        "scaler, forest": (make_pipeline(StandardScaler(), RandomForestClassifier(3, max_depth=4)), y),
        "logistic": (make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()), y),
        "linear svm": (make_pipeline(MinMaxScaler(), LinearSVC()), three),
        "svm": (make_pipeline(StandardScaler(), SVC()), y),
        "svm, 3 classes": (make_pipeline(StandardScaler(), SVC(kernel="poly", probability=True)), three),
    }
    number = X[:, 0] + np.sin(X[:, 3])
    models["forest, number"] = RandomForestRegressor(3, max_depth=4, random_state=0), number
    models["svm, number"] = make_pipeline(StandardScaler(), SVR()), number
    models["counts"] = make_pipeline(RobustScaler(), PoissonRegressor()), np.exp(number)
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        models["lightgbm"] = LGBMClassifier(n_estimators=4, verbose=-1), y
        coded = LGBMClassifier(
            n_estimators=4, verbose=-1, categorical_feature=[3], min_data_per_group=5, min_child_samples=5
        )
        models["lightgbm, categories"] = coded, three
    if importlib.util.find_spec("xgboost"):
        from xgboost import XGBClassifier

        models["xgboost"] = XGBClassifier(n_estimators=4), y
        types = ["q", "q", "q", "c"]
        coded = XGBClassifier(n_estimators=4, feature_types=types, enable_categorical=True)
        models["xgboost, categories"] = coded, y
    found = {}
    front = DynaModLinClassifier(LogisticRegression(), gamma=0.02, p_full=0.5, random_state=0).fit(X, y)
    for name in wanted or models:
        model, labels = models[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = FrozenEstimator(model.fit(X, labels))
            whole = front.with_full(fitted) if labels is y else as_chain(fitted, X, labels)
        found[name] = to_bytes(whole)
    return found


def as_chain(fitted, X, labels):
    """A chain in front of a model of several classes or numbers, which the estimator above does not answer with."""
    kind = DynaModGbrtClassifier if labels.dtype.kind == "i" else DynaModGbrtRegressor
    return kind(fitted, n_trees=2, max_depth=2, p_full=0.5, random_state=0).fit(X, labels)


# -- taking apart and sealing ----------------------------------------------------------------------


def taken_apart(data):
    length = HEADER.unpack(data[: HEADER.size])[2]
    begin = HEADER.size + length
    manifest = json.loads(data[HEADER.size : begin])
    blobs = [data[begin + e["offset"] : begin + e["offset"] + e["length"]] for e in manifest["entries"]]
    return manifest, blobs


def sealed(manifest, blobs):
    """Pack a manifest and arrays into a bundle, with the right offsets of the arrays."""
    offset = 0
    for entry, blob in zip(manifest["entries"], blobs, strict=True):
        entry.update(offset=offset, length=len(blob))
        offset += len(blob)
    text = json.dumps(manifest).encode()
    body = HEADER.pack(b"thrifty\x00", FORMAT, len(text)) + text + b"".join(blobs)
    return body + hashlib.sha256(body).digest()


# -- changes ---------------------------------------------------------------------------------------


def places(node, found):
    """Every (container, key) of something that JSON can say."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        found.append((node, key))
        if isinstance(node[key], dict | list):
            places(node[key], found)
    return found


def change_facts(facts, chance):
    """Replace, remove, repeat or move one value, or take it from elsewhere."""
    spots = places(facts, [])
    node, key = chance.choice(spots)
    kind = chance.randrange(5)
    if kind == 0:
        node[key] = copy.deepcopy(chance.choice(ODD_FACTS))
    elif kind == 1:
        del node[key]
    elif kind == 2:
        other, name = chance.choice(spots)
        node[key] = copy.deepcopy(other[name])
    elif kind == 3 and isinstance(node[key], int | float):
        node[key] = node[key] + chance.choice([-1, 1, 100])
    elif isinstance(node[key], dict) and node[key].keys() == {"$array"}:
        node[key] = {"$array": chance.randrange(60)}
    else:
        node[key] = [copy.deepcopy(node[key])] * 2


def changed_array(array, chance):
    """Other numbers, another shape, another type or another length."""
    array, kind = array.copy(), chance.randrange(6)
    if kind <= 1 and array.size:
        part = array if array.dtype.names is None else array[chance.choice(array.dtype.names)]
        for _ in range(chance.choice([1, 1, 3, 10])):
            place = chance.randrange(part.size)
            # A number that stands elsewhere in the array often passes for a right one.
            odd = chance.choice([*ODD_NUMBERS, *part.reshape(-1)[:: max(part.size // 14, 1)].tolist()])
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                part.reshape(-1)[place : place + 1] = np.array([odd]).astype(part.dtype)
        return array
    if kind == 2:
        raw = bytearray(array.tobytes() or b"\x00")
        for _ in range(chance.choice([1, 4])):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        return np.frombuffer(bytes(raw), array.dtype).reshape(array.shape) if array.nbytes else array
    if kind == 3:
        n = array.size
        shapes = [(n,), (n, 1), (1, n), (1, n, 1), (n, 0), (0, *array.shape[1:])]
        shape = chance.choice(shapes)
        return np.resize(array, shape) if 0 not in shape else np.empty(shape, array.dtype)
    if kind == 4:
        length = chance.choice([0, 1, max(array.size - 1, 0), array.size + 1])
        return np.resize(array, (length, *array.shape[1:])) if array.ndim and array.size else array
    return array.reshape(-1)[0] if array.size else array.reshape(-1)


def change_entry(manifest, blobs, chance):
    """One array of the bundle."""
    number = chance.randrange(len(blobs))
    entry = manifest["entries"][number]
    if chance.random() < 0.15:
        entry["dtype"] = chance.choice(DTYPES)
        width = np.dtype(entry["dtype"]).itemsize
        blobs[number] = blobs[number][: len(blobs[number]) // width * width]
        entry["shape"] = [len(blobs[number]) // width]
        return
    if entry.pop("form", None):
        return  # stored in fewer bytes: what is not that many is refused
    order = entry.pop("order", "C")
    before = np.frombuffer(blobs[number], entry["dtype"]).reshape(entry["shape"], order=order)
    after = np.asarray(changed_array(before, chance))
    entry["shape"], blobs[number] = list(after.shape), after.tobytes()


def of_full(manifest):
    """Objects of the full model: those up to the model that stands in the file."""
    end = next(place for place, one in enumerate(manifest["objects"]) if one["class"] == "EstimatorFull")
    begin = max(
        place
        for place, one in enumerate(manifest["objects"][:end])
        if one["class"].endswith(("Stage", "Task"))
    )
    return manifest["objects"][begin + 1 : end + 1]


def change_full(manifest, _, chance):
    """Something in the description of the full model."""
    change_facts(of_full(manifest), chance)


def change_manifest(manifest, _, chance):
    """Something in the manifest, but for where the arrays lie."""
    facts = {name: part for name, part in manifest.items() if name != "entries"}
    change_facts(facts, chance)
    entries = manifest["entries"]
    manifest.clear()
    manifest.update({**facts, "entries": entries})


def change_full_array(manifest, blobs, chance):
    """One array of the full model that is ours."""
    references = [
        node[key]["$array"]
        for node, key in places(of_full(manifest), [])
        if isinstance(node[key], dict) and "$array" in node[key]
    ]
    number = chance.choice(references)
    entry = {"entries": [manifest["entries"][number]]}
    part = [blobs[number]]
    change_entry(entry, part, chance)
    blobs[number] = part[0]


def change_tree(manifest, blobs, chance):
    """Children, offsets or sets of a tree: cycles, shared and unreachable parts, NaN."""
    arrays = {
        one[name]["$array"]
        for one in manifest["objects"]
        for name in (
            "children",
            "is_leaf",
            "node_offsets",
            "leaf_offsets",
            "threshold",
            "values",
            "nodes",
            "levels",
        )
        if isinstance(one.get(name), dict) and "$array" in one[name]
    }
    number = chance.choice(sorted(arrays))
    entry = manifest["entries"][number]
    array = np.frombuffer(blobs[number], entry["dtype"]).copy()
    for _ in range(chance.choice([1, 2, 5])):
        other = array[chance.randrange(array.size)]
        odd = np.array([other, -1, 0, chance.randrange(array.size), ~chance.randrange(array.size), np.nan])
        with np.errstate(all="ignore"):
            array[chance.randrange(array.size)] = odd[chance.randrange(len(odd))].astype(array.dtype)
    blobs[number] = array.tobytes()


def mutated(data, chance):
    """A file with one to three changes, sealed."""
    manifest, blobs = taken_apart(data)
    for _ in range(chance.choice([1, 1, 2, 3])):
        change = chance.choice([change_full, change_full_array, change_tree, change_manifest, change_entry])
        try:
            change(manifest, blobs, chance)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            StopIteration,
            SystemError,
            TypeError,
            ValueError,
        ):
            break  # what an earlier change left cannot be changed further
    return sealed(manifest, blobs)


# -- asking ----------------------------------------------------------------------------------------


class TooSlowError(Exception):
    pass


def outcome(data, X, seconds):
    """What becomes of a file: one of ``OUTCOMES``, and the error that is none of ours."""

    def stop(*_):
        raise TooSlowError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return asked(data, X)
    except TooSlowError:
        return "too slow", None
    except Exception as error:
        return "other error", error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def asked(data, X):
    try:
        system = from_bytes(data)
    except ThriftyError:
        return "refused", None
    refusals = 0
    for question in questions(system, X):
        try:
            found = question()
        except ThriftyError:
            refusals += 1
            continue
        if isinstance(found, np.ndarray) and found.dtype.kind == "f" and not np.isfinite(found).all():
            return "NaN", None
    return ("refuses to answer" if refusals else "answers"), None


def questions(system, X):
    ask = system.predict_proba if hasattr(system, "predict_proba") else system.predict
    yield lambda: ask(X)
    yield lambda: ask(X[:1])
    yield lambda: system.predict(X)
    yield lambda: system.route(X)
    yield lambda: system.cost(X)
    yield lambda: system.at(threshold=-np.inf).predict(X)
    yield lambda: system.explain(X[:2])
    yield lambda: system.frontier_
    yield lambda: to_bytes(system)


# -- the run ---------------------------------------------------------------------------------------


def memory_now():
    """Bytes that this process holds: the peak of all time minus this is at least what a run added."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


def run(n_files, seed, seconds, files=None, X=None):
    """Outcomes by bundle, the faults, and bytes of memory that the run added."""
    if files is None:
        X, y = table()
        files = bundles(X, y)
        X = X[:20]
    for name, data in files.items():
        found, error = outcome(data, X, 60.0)
        assert found == "answers", f"{name}: {found} {error!r}"
    counts, faults = {name: Counter() for name in files}, []
    before = memory_now()
    names = list(files)
    for number in range(n_files):
        if number % 100 == 0:
            # Compiled code does not hear a signal; this ends the process and says where it was.
            faulthandler.dump_traceback_later(100 * seconds, exit=True)
        chance, name = random.Random(seed * 1_000_003 + number), names[number % len(names)]
        found, error = outcome(mutated(files[name], chance), X, seconds)
        counts[name][found] += 1
        if found in FAULTS:
            faults.append((number, name, found, error))
    faulthandler.cancel_dump_traceback_later()
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return counts, faults, added


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0, help="limit for one file")
    args = parser.parse_args()
    faulthandler.enable()
    begin = time.perf_counter()
    counts, faults, added = run(args.files, args.seed, args.seconds)
    print(f"{'full model':<30}" + "".join(f"{name:>19}" for name in OUTCOMES))
    total = sum(counts.values(), Counter())
    for name, count in [*counts.items(), ("all", total)]:
        print(f"{name:<30}" + "".join(f"{count[one]:>19}" for one in OUTCOMES))
    for number, name, found, error in faults[:20]:
        print(f"file {number} ({name}): {found} {error!r}"[:300])
    seconds = time.perf_counter() - begin
    print(f"{args.files} files, no crash, at most {added / 2**20:.0f} MiB of memory added, {seconds:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
