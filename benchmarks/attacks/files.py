"""Attacks by files: bundles that are taken apart, changed and sealed again, so that every checksum is right.

    python benchmarks/hostile.py files [--files 20000] [--seed 0]

Each file is loaded, and what loads is asked for everything it offers, all in one process: a crash would end it without
a table. A file is refused, answers with finite probabilities, or refuses to answer in words; all else is a fault.
Faults are printed with the number of the file, which is the same for the same seed.
"""

import contextlib
import copy
import faulthandler
import hashlib
import importlib.util
import json
import os
import random
import resource
import signal
import stat
import struct
import sys
import warnings
from collections import Counter
from dataclasses import replace

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

from thrifty import (
    BudgetedClassifier,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    StageOptions,
)
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.container import FORMAT
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import ForkStage, TurnByValue
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
FORK = "fork"
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
    for name in (name for name in models if wanted is None or name in wanted):
        model, labels = models[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = FrozenEstimator(model.fit(X, labels))
            whole = front.with_full(fitted) if labels is y else as_chain(fitted, X, labels)
        found[name] = to_bytes(whole)
    if wanted is None or FORK in wanted:
        found[FORK] = to_bytes(forked(X, y))
    return found


def forked(X, y):
    """A chain whose second stage has two nodes, chosen by the first column."""
    stages = StageOptions(max_stages=1, sizes=[(3, 2)], structure="line")
    chain = BudgetedClassifier(LogisticRegression(), stages=stages, cv=2, random_state=0).fit(X, y).chain_
    stage = chain.stages[0]
    first = replace(stage, turn=TurnByValue(0, np.array([0.0]), np.array([0, 1, 0])))
    policy = Policy(np.array([[-0.5, -0.5, -0.5]]), np.ones(1), np.ones(1))
    return replace(chain, stages=(first, ForkStage((stage, stage)), stage), policy=policy, blend=None)


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
    yield lambda: to_bytes(system)
    if isinstance(system, Chain):
        return
    yield lambda: system.at(threshold=-np.inf).predict(X)
    yield lambda: system.explain(X[:2])
    yield lambda: system.frontier_


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


def print_table(counts, faults):
    """Outcomes by kind of full model, and the first faults."""
    print(f"{'full model':<30}" + "".join(f"{name:>19}" for name in OUTCOMES))
    for name, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        print(f"{name:<30}" + "".join(f"{count[one]:>19}" for one in OUTCOMES))
    for number, name, found, error in faults[:20]:
        print(f"file {number} ({name}): {found} {error!r}"[:300])


# -- the part of hostile.py ------------------------------------------------------------------------


def files(cases, folder, args):
    """Thousands of changed files, damage, signatures, small files that would be large, and places to save to."""
    data = (folder / "cancer.thrifty").read_bytes()
    _damaged(cases, data, args.seed)
    _small_and_large(cases, data)
    _signatures(cases, data)
    _places(cases, folder, data)
    _without_code(cases, args.seed)
    counts, faults, added = run(args.files, args.seed, 5.0)
    print_table(counts, faults)
    cases.add(
        args.files, {f"file {number} ({name})": f"{found} {error!r}" for number, name, found, error in faults}
    )
    with cases.case("changed files take little memory"):
        assert added < 2**29, f"{added / 2**20:.0f} MiB"


def refused(data, **how):
    """Fail unless these bytes are refused in words."""
    try:
        from_bytes(data, **how)
    except ThriftyError:
        return
    raise AssertionError("they were taken")


def _damaged(cases, data, seed):
    """Damage that no checksum was mended for."""
    chance = random.Random(seed)
    for number in range(300):
        with cases.case(f"a changed bit, {number}"):
            changed = bytearray(data)
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            refused(bytes(changed))
    for number in range(100):
        with cases.case(f"cut off, {number}"):
            refused(data[: chance.randrange(len(data))])
    for name, other in {
        "nothing": b"",
        "zeros": bytes(10**6),
        "more behind the end": data + b"x",
        "twice": data + data,
        "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
        "a zip": b"PK\x03\x04" + bytes(1000),
        "another format": data[:8] + struct.pack("<I", 99) + data[12:],
        "a manifest beyond the file": data[:12] + struct.pack("<Q", 2**62) + data[20:],
    }.items():
        with cases.case(name):
            refused(other)


def _small_and_large(cases, data):
    """Files that would take much more memory than their length accounts for."""

    def with_zeros(n_arrays, n_bytes):
        manifest, blobs = taken_apart(data)
        entry = {"dtype": "<f8", "shape": [n_bytes // 8]}
        manifest["entries"] += [dict(entry) for _ in range(n_arrays)]
        return sealed(manifest, [*blobs, *[bytes(n_bytes)] * n_arrays])

    def with_fact(text):
        manifest, blobs = taken_apart(data)
        manifest["padding"] = "@"
        raw = json.dumps(manifest).replace('"@"', text).encode()
        body = HEADER.pack(b"thrifty\x00", FORMAT, len(raw)) + raw + b"".join(blobs)
        return body + hashlib.sha256(body).digest()

    def with_shape(shape):
        manifest, blobs = taken_apart(data)
        manifest["entries"][0]["shape"] = shape
        return sealed(manifest, blobs)

    for name, made in {
        "many lists": lambda: with_fact("[" + "[]," * 1_000_000 + "[]]"),
        "many objects": lambda: with_fact("[" + "{}," * 1_000_000 + "{}]"),
        "deep lists": lambda: with_fact("[" * 100_000 + "]" * 100_000),
        "a long number": lambda: with_fact("9" * 1_000_000),
        "a shape beyond memory": lambda: with_shape([2**40]),
        "a shape that wraps around": lambda: with_shape([2**32, 2**32]),
        "a negative shape": lambda: with_shape([-1]),
        "arrays that nothing refers to": lambda: with_zeros(50, 2**20),
    }.items():
        with cases.case(f"memory: {name}"):
            small = made()
            before = memory_now()
            with contextlib.suppress(ThriftyError):
                from_bytes(small)
            peak = memory_now() - before
            assert peak < 8 * len(small) + 2**26, f"{peak / 2**20:.0f} MiB for {len(small) / 2**20:.1f} MiB"
    with cases.case("memory: 300 arrays in few bytes that nothing refers to"):
        from thrifty.bundle.container import Contents, pack

        encoded, (blob,) = taken_apart(pack(Contents({}, [np.random.default_rng(0).integers(0, 9, 300_000)])))
        manifest, blobs = taken_apart(data)
        manifest["entries"] += [dict(encoded["entries"][0]) for _ in range(300)]
        small = sealed(manifest, [*blobs, *[blob] * 300])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        with contextlib.suppress(ThriftyError):
            from_bytes(small)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        assert peak < 8 * len(small) + 2**26, f"{peak / 2**20:.0f} MiB for {len(small) / 2**20:.1f} MiB"


def _signatures(cases, data):
    """Files that are not signed, signed by another key, or changed after they were signed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    own, other = (Ed25519PrivateKey.from_private_bytes(bytes(range(at, at + 32))) for at in (0, 1))
    system = from_bytes(data)
    signed, strange = (to_bytes(system, private_key=key) for key in (own, other))
    appended = 64 + 32 + 8
    with cases.case("a signature that is right"):
        from_bytes(signed, public_key=own.public_key())
    wrong = {
        "not signed": signed[:-appended],
        "signed by another key": strange,
        "with the signature of another file": to_bytes(system, evidence=False) + signed[-appended:],
        "with a signature alone": signed[-appended:],
        "signed twice": signed + signed[-appended:],
        "with a signature of zeros": signed[:-appended] + bytes(64) + signed[-40:],
        "cut off": signed[:-1],
    }
    for place in [
        *range(0, len(signed) - appended, len(signed) // 12),
        *range(len(signed) - appended, len(signed), 9),
    ]:
        changed = bytearray(signed)
        changed[place] ^= 1
        wrong[f"changed at byte {place}"] = bytes(changed)
    for name, file in wrong.items():
        with cases.case(f"a file {name}"):
            refused(file, public_key=own.public_key())


FORBIDDEN = (
    "import",
    "exec",
    "compile",
    "open",
    "pickle.",
    "marshal.",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
)
"""Events of Python's audit that no load of a file may raise."""


def _without_code(cases, seed):
    """Loads of changed files import, execute and open nothing."""
    events, is_loading = [], False

    def hear(event, arguments):
        if is_loading and event.startswith(FORBIDDEN):
            events.append(f"{event} {arguments}"[:200])

    X, y = table(80)
    made = list(bundles(X, y, ["forest", "logistic", "svm", "3 classes"]).values())
    changed = [mutated(made[at % 4], random.Random(seed * 7919 + at)) for at in range(400)]
    for data in [*made, *changed]:  # what the library itself imports and compiles is there after one turn
        with contextlib.suppress(ThriftyError):
            from_bytes(data)
    sys.addaudithook(hear)
    for number, data in enumerate(changed):
        with cases.case(f"a load that runs nothing, {number}"):
            events.clear()
            is_loading = True
            try:
                with contextlib.suppress(ThriftyError):
                    from_bytes(data)
            finally:
                is_loading = False
            assert not events, events[0]


def _places(cases, folder, data):
    """Places that are no regular files are left as they are."""
    from thrifty import load, save

    system = from_bytes(data)
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    places = {"a pipe": folder / "pipe", "a folder": folder / "folder", "no folder": folder / "no" / "file"}
    with contextlib.suppress(OSError):  # for root alone
        os.mknod(folder / "full", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        places["a device"] = folder / "full"
    for name, path in places.items():
        for call in (lambda path: save(system, path), load):
            with cases.case(f"a place that is {name}"):
                before = os.stat(path).st_mode if path.exists() else None
                try:
                    call(path)
                except ThriftyError:
                    pass
                else:
                    raise AssertionError("it was taken")
                assert (os.stat(path).st_mode if path.exists() else None) == before
