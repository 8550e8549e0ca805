"""Compilers and emulators: what a target does with rows of single precision, one line of numbers for each row."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
START = HERE.parents[1] / "examples" / "device"
WARNINGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
BOARDS = {
    "Cortex-M4F": ("mps2-an386", ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]),
    "Cortex-M3": ("mps2-an385", ["-mcpu=cortex-m3"]),
}
EXPORTED = ["n_columns", "n_numbers", "row_memory", "number_memory", "walk_row", "failures"]


def needs(*tools):
    """Skip a test where a tool is missing; `make test-device` installs all, and lets nothing skip."""
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
