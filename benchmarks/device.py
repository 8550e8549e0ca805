"""Flash and instructions of exported systems on emulated microcontrollers, beside other tools.

    python benchmarks/device.py [agree] [same] [limits] [--data FOLDER]

``agree``: 10,000 rows of single precision through each of eight systems, on and just above thresholds and with missing
values: rows whose purchases, route, label, cost or scores differ from those in Python by a bit, on the host, in
WebAssembly, in ONNX Runtime and on the emulated microcontrollers.

``same``: one forest of 10 or 100 trees with 32 leaves each, written by thrifty, and by emlearn, m2cgen and
TL2cgen where installed, compiled with -Os, without the driver; a cascade at its budget beside the same cascade walked
to its end.
Bytes are code and constants of the object file; instructions a row are counted by QEMU (-icount) and are not cycles.
``limits``: bytes announced and measured, and accuracy on new rows at limits of flash, at the budget of the fit, beside
trees of LightGBM cut to the same bytes by the same exporter, and forests in emlearn's tables where it is installed, the
best of trees x leaves on the rows that judge.

Needs arm-none-eabi-gcc and qemu-system-arm (`make test-device` installs them).
"""

import argparse
import importlib.util
import subprocess
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import thrifty
from reproduction.datasets.classification import load_forest, load_letters, load_miniboone
from tests.device.conftest import on_thresholds, with_levels
from tests.device.targets import in_onnx, in_wasm, on_cortex_m, on_host
from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    DynaModGbrtClassifier,
    DynaModLstsqClassifier,
    StageOptions,
)
from thrifty.device.c99 import plan_of, source_of
from thrifty.device.model import DeviceModel, DeviceStage, device_model, leaf_unit
from thrifty.engine.table.table import Table
from thrifty.engine.trees.other_libraries import additive_trees
from thrifty.engine.walk.policy import Policy
from thrifty.learners.dynamod import BoostedOptions

START = Path(__file__).parents[1] / "examples" / "device"
BOARDS = {
    "M4F": ("mps2-an386", ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]),
    "M3": ("mps2-an385", ["-mcpu=cortex-m3"]),
}
N_ROWS = 200
MOST_ROWS = 4000
DRIVER = """
#include "start.h"
int predict(const float *row);
static float rows[%d][%d];
int main(void)
{
    const int in = open_file("rows.bin", 0), out = open_file("out.bin", 1);
    int32_t found[%d + 1], k;
    uint32_t before;
    read_file(in, rows, sizeof rows);
    before = ticks();
    for (k = 0; k < %d; k++)
        found[k + 1] = predict(rows[k]);
    found[0] = (int32_t)((before - ticks()) & 0xffffff);
    write_file(out, found, sizeof found);
    return 0;
}
"""
SESSION = """
#include "thrifty_model.h"
int predict(const float *row);
int predict(const float *row)
{
    static uint64_t key;
    thrifty_session session;
    thrifty_walk(&session, key++, row);
    return thrifty_label(&session);
}
"""


def run(*command, **settings):
    return subprocess.run([str(one) for one in command], check=True, capture_output=True, **settings)


def object_bytes(folder, source, flags):
    """Bytes of code and constants of a compiled source."""
    run("arm-none-eabi-gcc", *flags, "-c", source, "-o", folder / "model.o")
    return int(run("arm-none-eabi-size", folder / "model.o", text=True).stdout.splitlines()[1].split()[0])


def compiled(folder, sources, X, board, includes=()):
    """Bytes of code and constants of the first source, instructions a row, and labels."""
    machine, processor = BOARDS[board]
    flags = ["-std=gnu99", "-w", *processor, "-mthumb", "-Os", "-ffreestanding", f"-I{folder}", f"-I{START}"]
    flags += [f"-I{one}" for one in includes]
    X = np.ascontiguousarray(X[:N_ROWS], dtype=np.float32)
    (folder / "driver.c").write_text(DRIVER % (*X.shape, len(X), len(X)))
    size = object_bytes(folder, folder / sources[0], flags)
    linked = ["-nostartfiles", "-T", START / "mps2.ld", START / "start.c", folder / "driver.c"]
    linked += [folder / one for one in sources]
    run("arm-none-eabi-gcc", *flags, *linked, "-lc", "-lm", "-lgcc", "-o", folder / "program")
    (folder / "rows.bin").write_bytes(X.tobytes())
    quiet = ["-display", "none", "-monitor", "none", "-serial", "none", "-icount", "shift=0"]
    asked = ["-M", machine, "-semihosting-config", "enable=on,target=native", "-kernel", "program"]
    run("qemu-system-arm", *quiet, *asked, cwd=folder, timeout=300)
    found = np.frombuffer((folder / "out.bin").read_bytes(), dtype=np.int32)
    return size, 40 * int(found[0]) / len(X), found[1:]


def trees_alone(found, leaves):
    """A device model of one stage that answers every row."""
    trees, base = found.trees, found.base - (0.5 if found.are_probabilities and len(found.base) == 1 else 0.0)
    if leaves == "int16":
        unit = leaf_unit(trees)
        trees = replace(trees, values=np.rint(trees.values / unit) * unit)
    order = np.unique(trees.feature)
    place = np.zeros(trees.n_features, dtype=np.int32)
    place[order] = np.arange(len(order))
    n_scores = len(base)
    placed = replace(trees, n_features=len(order), feature=place[trees.feature])
    stage = DeviceStage(len(order), placed, False, base, 1.0, np.zeros(n_scores))
    return DeviceModel(
        order=order,
        names=tuple(f"x{column}" for column in range(trees.n_features)),
        levels={},
        classes=tuple(str(k) for k in range(max(n_scores, 2))),
        centre=0.0,
        spread=1.0,
        base=np.zeros(n_scores),
        stages=(stage,),
        points=(Policy.of(np.array([np.inf])),),
        cost=np.zeros(len(order) + 1),
    )


def by_thrifty(folder, forest, leaves, layout="table"):
    model = trees_alone(additive_trees(forest, forest.n_features_in_), leaves)
    header, program, _ = source_of(model, "", "", leaves, layout, ())
    (folder / "thrifty_model.h").write_text(header)
    (folder / "thrifty_model.c").write_text(program)
    (folder / "session.c").write_text(SESSION)
    return ["thrifty_model.c", "session.c"], ()


def by_emlearn(folder, forest, method):
    import emlearn

    kind, n = "float" if method == "inline" else "int16_t", forest.n_features_in_
    emlearn.convert(forest, method=method, dtype=kind, leaf_bits=8).save(
        file=str(folder / "trees.h"), name="trees"
    )
    copied = f"{kind} in[{n}]; for (int k = 0; k < {n}; k++) in[k] = row[k]; return trees_predict(in, {n});"
    given = copied if method == "loadable" else f"return trees_predict(row, {n});"
    (folder / "model.c").write_text(f'#include "trees.h"\nint predict(const float *row) {{ {given} }}\n')
    return ["model.c"], (emlearn.includedir,)


def by_m2cgen(folder, forest):
    import m2cgen

    n = forest.n_features_in_
    (folder / "model.c").write_text(
        m2cgen.export_to_c(forest)
        + f"\nint predict(const float *row) {{ double in[{n}], out[2]; for (int k = 0; k < {n}; k++) in[k] = row[k];\n"
        "    score(in, out); return out[1] > out[0]; }\n"
    )
    return ["model.c"], ()


def by_tl2cgen(folder, forest, quantize):
    """The forest in single precision, thresholds rounded down; TL2cgen reads models of Treelite."""
    import tl2cgen
    from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

    n, n_trees = forest.n_features_in_, len(forest.estimators_)
    builder = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(
            num_feature=n,
            task_type="kBinaryClf",
            average_tree_output=True,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=TreeAnnotation(num_tree=n_trees, target_id=[0] * n_trees, class_id=[0] * n_trees),
        postprocessor=PostProcessorFunc(name="identity"),
        base_scores=[0.0],
    )
    for tree in (one.tree_ for one in forest.estimators_):
        threshold = tree.threshold.astype(np.float32)
        threshold = np.where(
            threshold > tree.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold
        )
        shares = tree.value[:, 0] / tree.value[:, 0].sum(axis=1, keepdims=True)
        builder.start_tree()
        for node, left in enumerate(tree.children_left):
            builder.start_node(node)
            if left < 0:
                builder.leaf(float(shares[node, 1]))
            else:
                builder.numerical_test(
                    feature_id=int(tree.feature[node]),
                    threshold=float(threshold[node]),
                    default_left=True,
                    opname="<=",
                    left_child_key=int(left),
                    right_child_key=int(tree.children_right[node]),
                )
            builder.end_node()
        builder.end_tree()
    tl2cgen.generate_c_code(builder.commit(), dirpath=str(folder / "tl"), params={"quantize": int(quantize)})
    parts = [path.read_text() for path in sorted((folder / "tl").glob("*.c"))]
    (folder / "model.c").write_text(
        '#define predict tl_predict\n#include "header.h"\n'
        + "\n".join(parts).replace('#include "header.h"', "")  # which has no guard
        + "\n#undef predict\n"
        + f"int predict(const float *row) {{ union Entry in[{n}]; float out[1] = {{0}}; for (int k = 0; k < {n}; k++)\n"
        "    in[k].fvalue = row[k]; tl_predict(in, 0, out); return out[0] > 0.5f; }\n"
    )
    return ["model.c"], (folder / "tl",)


WRITERS = {
    "thrifty, 16-bit leaves": (None, lambda folder, forest: by_thrifty(folder, forest, "int16")),
    "thrifty, float leaves": (None, lambda folder, forest: by_thrifty(folder, forest, "float32")),
    "thrifty, code": (None, lambda folder, forest: by_thrifty(folder, forest, "int16", "code")),
    "emlearn inline": ("emlearn", lambda folder, forest: by_emlearn(folder, forest, "inline")),
    "emlearn loadable": ("emlearn", lambda folder, forest: by_emlearn(folder, forest, "loadable")),
    "m2cgen": ("m2cgen", by_m2cgen),
    "TL2cgen, float": ("tl2cgen", lambda folder, forest: by_tl2cgen(folder, forest, quantize=False)),
    "TL2cgen, quantised": ("tl2cgen", lambda folder, forest: by_tl2cgen(folder, forest, quantize=True)),
}


def walked(chain, X):
    """What ``start`` does with rows: end, route, label, number of purchases, price, purchases, scores."""
    walk = chain.walker.walk(Table(X.astype(np.float64), None), np.arange(len(X)), chain.policy)
    n_stages, task = len(chain.stages), chain.task
    last = np.minimum(walk.route, n_stages - 1)
    order = chain.walker.held_at(n_stages - 1)
    bought = np.array([len(chain.walker.held_at(place)) for place in range(n_stages)])[last]
    purchases = np.zeros(X.shape)
    purchases[:, : len(order)] = np.where(np.arange(len(order)) < bought[:, None], order + 1, 0)
    cost = device_model(chain, (chain.policy,)).cost[bought].astype(np.float32)
    end = np.where(walk.route < n_stages, -1, -2)
    is_class = len(task.classes) > 0
    label = task.best(walk.scores) if is_class else np.full(len(X), -1)
    scores = walk.scores if is_class else walk.scores * task.spread + task.centre
    return np.column_stack([end, last, label, bought, cost, purchases, scores])


def agree():
    """Rows that differ from Python, by system and target."""
    X, y = load_breast_cancer(return_X_y=True)
    wine, numbers = load_wine(return_X_y=True), load_diabetes(return_X_y=True)
    rng = np.random.default_rng(0)
    full, small = LogisticRegression(max_iter=5000), {"cv": 2, "random_state": 0}
    staged = {"stages": StageOptions(6, [(30, 4)]), **small}
    noisy = numbers[1] + rng.normal(scale=30, size=len(numbers[1]))
    pair = DynaModGbrtClassifier(
        full, gamma=0.05, options=BoostedOptions(n_trees=10, max_iter=3, tol=1.0), **small
    )
    two = BudgetedClassifier(full, budget=2.3, **staged).fit(X, y)
    systems = {
        "two classes, a mixed point": (two, X, {}),
        "two classes, code, 16-bit leaves": (two, X, {"leaves": "int16", "layout": "code"}),
        "three classes": (BudgetedClassifier(GaussianNB(), budget=3, **staged).fit(*wine), wine[0], {}),
        "numbers": (BudgetedRegressor(noisy, budget=3.1, **staged).fit(*numbers), numbers[0], {}),
        "DynaMod, gate of its own": (pair.fit(X, y), X, {}),
        "DynaMod, gate in the leaves": (DynaModLstsqClassifier(full, random_state=0).fit(X, y), X, {}),
        "sets of 12 levels": (*with_levels(12, 1500), {"leaves": "int16"}),
        "sets of 300 levels": (*with_levels(300, 8000), {}),
    }
    print("\n| rows that differ | host | WebAssembly | ONNX | M4F | M3 | routes that 16-bit leaves move |")
    print("|---" * 7 + "|")
    for name, (system, X, settings) in systems.items():
        X = X[rng.integers(len(X), size=10_000)].astype(np.float32)
        if "levels" not in name:
            X = on_thresholds(system.chain_, X, rng)
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            found = thrifty.export(system, folder / "c", **settings)
            expected, source = walked(found.system, X), found.files[1]
            there = [
                on_host(source, folder, X),
                in_wasm(source, folder, X),
                in_onnx(found.system, folder / "onnx", X),
                *(on_cortex_m(source, folder, X, board)[0] for board in ("Cortex-M4F", "Cortex-M3")),
            ]
        differ = [np.count_nonzero((one != expected).any(axis=1)) for one in there]
        moved = (walked(system.chain_, X)[:, :2] != expected[:, :2]).any(axis=1).mean()
        moved = f"{moved:.2%}" if settings.get("leaves") == "int16" else ""
        print(f"| {name} | {' | '.join(map(str, differ))} | {moved} |", flush=True)


def same(data):
    """One forest by every tool."""
    X, y = load_digits(return_X_y=True)
    letters, particles = load_letters(data), load_miniboone(data)
    tables = {
        "digits, at least 5": train_test_split(X, y >= 5, test_size=N_ROWS, random_state=0),
        "letters": (letters.X_train, letters.X_test, letters.y_train, letters.y_test),
        "miniboone": (particles.X_train, particles.X_test, particles.y_train, particles.y_test),
    }
    for (name, (X, X_new, y, _)), n_trees in product(tables.items(), (10, 100)):
        X, X_new = X.astype(np.float32), X_new.astype(np.float32)
        forest = RandomForestClassifier(n_trees, max_leaf_nodes=32, random_state=0).fit(
            X, np.asarray(y, dtype=int)
        )
        used = np.unique(np.concatenate([one.tree_.feature for one in forest.estimators_]))
        splits = sum(one.tree_.n_leaves - 1 for one in forest.estimators_)
        print(f"\n{name}: {n_trees} trees, {splits} splits on {np.count_nonzero(used >= 0)} columns\n")
        print(
            "| written by | bytes | instructions a row, M4F | M3 | labels of the forest |\n|---|---|---|---|---|"
        )
        for tool, (package, write) in WRITERS.items():
            if package and importlib.util.find_spec(package) is None:
                print(f"| {tool} | {package} is not installed | | | |")
                continue
            found = {}
            for board in BOARDS:
                with tempfile.TemporaryDirectory() as folder:
                    sources, includes = write(Path(folder), forest)
                    found[board] = compiled(Path(folder), sources, X_new, board, includes)
            labels = found["M4F"][2] == forest.predict(X_new[:N_ROWS])
            counts = " | ".join(f"{found[board][1]:,.0f}" for board in BOARDS)
            print(f"| {tool} | {found['M4F'][0]:,} | {counts} | {labels.mean():.1%} |", flush=True)


def at_a_budget():
    """A cascade at its budget, and walked to its end."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_new, y, _ = train_test_split(X, y, test_size=N_ROWS, random_state=0)
    clf = BudgetedClassifier(budget=3, stages=StageOptions(6, [(30, 4)]), random_state=0).fit(X, y)
    chain = clf.chain_
    to_the_end = np.r_[np.full(len(chain.stages) - 1, -np.inf), np.inf]
    print("\n| breast cancer, six stages | instructions a row, M4F | M3 |\n|---|---|---|")
    for name, one in {"at a budget of 3": chain, "all stages": chain.at(Policy.of(to_the_end))}.items():
        counts = []
        for board in BOARDS:
            with tempfile.TemporaryDirectory() as folder:
                thrifty.export(one, Path(folder) / "c", leaves="int16")
                for path in (Path(folder) / "c").iterdir():
                    path.rename(Path(folder) / path.name)
                (Path(folder) / "session.c").write_text(SESSION)
                sources = ["thrifty_model.c", "session.c"]
                counts.append(compiled(Path(folder), sources, X_new, board)[1])
        print(f"| {name} | {counts[0]:,.0f} | {counts[1]:,.0f} |", flush=True)


def measured_bytes(folder, source, includes=()):
    """Bytes of code and constants on a Cortex-M4F."""
    flags = ["-std=gnu99", "-w", *BOARDS["M4F"][1], "-mthumb", "-Os", *(f"-I{one}" for one in includes)]
    return object_bytes(folder, source, flags)


def boosted_rivals(X, y, X_val, y_val):
    """Bytes, accuracy on the rows that judge, and accuracy of new rows, for trees of LightGBM in thrifty's tables."""
    import lightgbm

    for n_trees, n_leaves in product((5, 20, 80, 160), (4, 8, 16, 32, 64)):
        settings = {"verbosity": -1, "n_jobs": 1, "random_state": 0, "num_leaves": n_leaves}
        one = lightgbm.LGBMClassifier(n_estimators=n_trees, **settings).fit(X, y)
        model = trees_alone(additive_trees(one, X.shape[1]), "int16")
        yield plan_of(model, "int16").flash_bytes, one.score(X_val, y_val), one.score


def emlearn_rivals(X, y, X_val, y_val):
    """The same for forests in emlearn's tables, on columns that were scaled to 16 bits."""
    if importlib.util.find_spec("emlearn") is None:
        return
    low, high = X.min(axis=0), X.max(axis=0)
    scale = 65534 / np.where(high > low, high - low, 1.0)

    def narrow(rows):
        return np.clip(np.rint((rows - low) * scale) - 32767, -32767, 32767).astype(np.float32)

    for n_trees, n_leaves in product((3, 10, 30, 100), (8, 32, 128)):
        one = RandomForestClassifier(n_trees, max_leaf_nodes=n_leaves, random_state=0).fit(narrow(X), y)
        with tempfile.TemporaryDirectory() as folder:
            sources, includes = by_emlearn(Path(folder), one, "loadable")
            n_bytes = measured_bytes(Path(folder), Path(folder) / sources[0], includes)
        right = one.score(narrow(X_val), y_val)
        yield n_bytes, right, lambda rows, labels, one=one: one.score(narrow(rows), labels)


def limits(data):
    """Accuracy at limits of flash, the operating point chosen on validation rows at the budget of the fit."""
    for load in (load_letters, load_miniboone, load_forest):
        split = load(data)
        classes = np.unique(split.y_train)
        X, y = split.X_train[:MOST_ROWS], np.searchsorted(classes, split.y_train[:MOST_ROWS])
        X_val, y_val = split.X_val[:MOST_ROWS], np.searchsorted(classes, split.y_val[:MOST_ROWS])
        X_new, y_new = split.X_test[:10_000], np.searchsorted(classes, split.y_test[:10_000])
        budget = 0.25 * X.shape[1]
        options = StageOptions(structure="line")
        clf = BudgetedClassifier(budget=budget, stages=options, random_state=0).fit(X, y)
        rivals = [list(one(X, y, X_val, y_val)) for one in (boosted_rivals, emlearn_rivals)]
        print(f"\n{load.__name__[5:]}, {len(X)} rows, {X.shape[1]} columns, budget {budget:g}\n")
        print(
            "| most kB | announced | measured | stages | cost | accuracy | rows kept "
            "| LightGBM, all columns: bytes | accuracy | emlearn's forest, all columns: bytes | accuracy |\n"
            + "|---" * 11
            + "|"
        )
        for size in (8, 32, 128, None):
            with tempfile.TemporaryDirectory() as folder:
                most = None if size is None else f"{size}k"
                found = thrifty.export(clf, Path(folder) / "c", max_flash=most, X=X_val, y=y_val)
                n_bytes = measured_bytes(Path(folder), found.files[1])
            system = found.system
            right, cost = np.mean(system.predict(X_new) == y_new), system.cost(X_new).mean()
            stays = np.mean(system.walk(system.reader(X_new)).route < len(system.stages))
            cells = [size or "all", f"{found.flash_bytes:,}", f"{n_bytes:,}", len(system.stages)]
            cells += [f"{cost:.2f}", f"{right:.4f}", f"{stays:.1%}"]
            for grown in rivals:
                fitting = [one for one in grown if size is None or one[0] <= 1024 * size]
                best = max(fitting, key=lambda one: one[1], default=None)
                cells += (
                    ["none fits", ""] if best is None else [f"{best[0]:,}", f"{best[2](X_new, y_new):.4f}"]
                )
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["agree", "same", "limits"])
    parser.add_argument("--data", default=None, help="Folder with the data.")
    asked = parser.parse_args()
    if "agree" in asked.parts:
        agree()
    if "same" in asked.parts:  # first: a process that is started counts the memory of this one
        same(asked.data)
        at_a_budget()
    if "limits" in asked.parts:
        limits(asked.data)


if __name__ == "__main__":
    main()
