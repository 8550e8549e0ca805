"""Compilers and emulators: what a target does with rows of single precision, one line of numbers for each row."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import thrifty
from thrifty.rows import key_words

HERE = Path(__file__).parent
START = HERE.parents[1] / "examples" / "device"
WARNINGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
BOARDS = {
    "Cortex-M4F": ("mps2-an386", ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]),
    "Cortex-M3": ("mps2-an385", ["-mcpu=cortex-m3"]),
}
EXPORTED = ["n_columns", "n_numbers", "row_memory", "number_memory", "walk_row", "failures"]


emulated = pytest.mark.skipif(
    not os.environ.get("THRIFTY_TEST_DEVICE"), reason="`make test-device` runs it, and installs its tools"
)
"""Tests that need cross compilers and emulators, which `make test` does not wait for."""


def needs(*tools):
    """Skip a test where a tool is missing; with `make test-device`, which installs all, it fails."""
    for tool in tools:
        if shutil.which(tool) is None:
            if os.environ.get("THRIFTY_TEST_DEVICE"):
                pytest.fail(f"no {tool}")
            pytest.skip(f"no {tool}; `make test-device` installs it")


def run(*command, **settings):
    return subprocess.run([str(one) for one in command], check=True, **settings)


def on_host(source, folder, X, point=0):
    """Rows on this machine."""
    needs("gcc")
    flags = [*WARNINGS, "-O1", "-DTHRIFTY_SELF_TEST", f"-I{source.parent}"]
    run("gcc", *flags, source, HERE / "host.c", "-o", folder / "run")
    found = run(folder / "run", point, input=X.astype(np.float32).tobytes(), capture_output=True)
    return np.frombuffer(found.stdout).reshape(len(X), -1)


def on_cortex_m(source, folder, X, name):
    """Rows on an emulated Cortex-M, the deepest stack and the size of a session there."""
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    board, processor = BOARDS[name]
    flags = [*WARNINGS, *processor, "-mthumb", "-Os", "-ffreestanding", "-nostdlib", "-DTHRIFTY_SELF_TEST"]
    places = [f"-I{START}", f"-I{source.parent}", "-T", START / "mps2.ld"]
    sources = [source, HERE / "cortex_m.c", START / "start.c"]
    run("arm-none-eabi-gcc", *flags, *places, *sources, "-lgcc", "-o", folder / "program")
    (folder / "rows.bin").write_bytes(X.astype(np.float32).tobytes())
    quiet = ["-display", "none", "-monitor", "none", "-serial", "none"]
    asked = ["-M", board, "-semihosting-config", "enable=on,target=native", "-kernel", folder / "program"]
    run("qemu-system-arm", *quiet, *asked, cwd=folder, timeout=120)
    numbers = np.frombuffer((folder / "walked.bin").read_bytes())
    return numbers[:-2].reshape(len(X), -1), *numbers[-2:].astype(int).tolist()


def in_wasm(source, folder, X):
    """Rows in WebAssembly."""
    needs("clang", "wasm-ld", "node")
    flags = [*WARNINGS, "--target=wasm32", "-O2", "-ffreestanding", "-nostdlib", "-DTHRIFTY_SELF_TEST"]
    linked = ["-Wl,--no-entry", *(f"-Wl,--export={name}" for name in EXPORTED), f"-I{source.parent}"]
    run("clang", *flags, *linked, source, HERE / "page.c", "-o", folder / "model.wasm")
    (folder / "rows.bin").write_bytes(X.astype(np.float32).tobytes())
    run("node", HERE / "page.mjs", folder / "model.wasm", folder / "rows.bin", folder / "walked.bin")
    return np.frombuffer((folder / "walked.bin").read_bytes()).reshape(len(X), -1)


def in_onnx(system, folder, X, n_threads=1, point=0, **settings):
    """Rows in ONNX Runtime: stage after stage for those that go on, and in the graph of the whole system."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    shutil.rmtree(folder, ignore_errors=True)
    for path in thrifty.export(system, folder, to="onnx", **settings).files:
        onnx.checker.check_model(str(path), full_check=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = n_threads

    def run_graph(name, **given):
        session = runtime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
        read = [one.name for one in session.get_inputs()]
        found = session.run(None, {name: given[name] for name in read})
        about = json.loads(session.get_modelmeta().custom_metadata_map["thrifty"])
        return about, dict(zip((one.name for one in session.get_outputs()), found, strict=True))

    key, X = np.arange(len(X)), X.astype(np.float64)
    about, whole = run_graph("thrifty_model.onnx", x=X, key=key, point=np.array(point))
    thresholds, follows = np.array(about["thresholds"]), system.policy.follows_upper(key_words(key))
    if point:
        follows = system.policy.within(settings["budgets"][point - 1]).follows_upper(key_words(key))
    rows = [thresholds[about["points"][point][name]] for name in ("upper", "lower")]
    # A line has one node at each stage, which holds the first columns of the order.
    nodes = about["nodes"] or [[about["order"][:n_held]] for n_held in about["n_held"]]
    limits, n_stages = np.where(follows[:, None], *rows), len(nodes)
    place_of = {name: number for number, name in enumerate(about["columns"])}
    route, going, sums, scores = np.full(len(X), n_stages), key, None, np.empty_like(whole["scores"])
    node, bought = np.zeros(len(X), dtype=int), [{} for _ in X]
    for place, held in enumerate(nodes):
        for row, number in zip(going, node, strict=True):
            bought[row] |= {name: place_of[name] + 1 for name in held[number]}
        order = [place_of[name] for name in (about["order"] if about["nodes"] else held[0])]
        _, found = run_graph(f"thrifty_stage_{place}.onnx", x=X[going][:, order], carried=sums, node=node)
        goes_on = found["gate"] > limits[going, place]
        scores[going], sums = found["scores"], found["sums"][goes_on] if "sums" in found else None
        node = found["next"][goes_on] if "next" in found else np.zeros(goes_on.sum(), dtype=int)
        route[going[~goes_on]], going = place, going[goes_on]
    np.testing.assert_array_equal(whole["route"], route)
    np.testing.assert_allclose(whole["scores"], scores, rtol=0, atol=0 if n_threads == 1 else 1e-12)
    last = np.minimum(route, n_stages - 1)
    purchases = np.array([[*row.values(), *[0] * (X.shape[1] - len(row))] for row in bought])
    end, label = np.where(route < n_stages, -1, -2), whole.get("label", np.full(len(X), -1))
    paid = whole["cost"].astype(np.float32)
    return np.column_stack([end, last, label, list(map(len, bought)), paid, purchases, scores])
