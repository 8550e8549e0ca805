"""Exported C on microcontrollers and in WebAssembly: what happens to every row is what happens on the host."""

import numpy as np
import pytest

import thrifty
from tests.device.targets import BOARDS, HERE, WARNINGS, emulated, in_wasm, needs, on_cortex_m, on_host, run

pytestmark = [pytest.mark.slow, emulated]


@pytest.fixture(scope="module")
def walks(mixed, mixed_rows, wine, towns, many_towns, trees_of_purchases, tmp_path_factory):
    """Source, rows and what the host does, of systems of two and three classes, with sets of levels and wide nodes."""
    systems = {
        "two classes": (mixed, mixed_rows, {}),
        "three classes": (*wine, {}),
        "leaves of 16 bits": (*wine, {"leaves": "int16"}),
        "sets of levels": (*towns, {"leaves": "int16"}),
        "wide nodes": (*many_towns, {}),
        "sets of levels as code": (*towns, {"layout": "code"}),
        "three classes as code": (*wine, {"layout": "code"}),
        "a tree of purchases": (*trees_of_purchases["two classes"], {}),
    }
    found = {}
    for name, (system, X, settings) in systems.items():
        folder, X = tmp_path_factory.mktemp("system"), X[:400]
        exported = thrifty.export(system, folder / "c", **settings)
        found[name] = exported, X, on_host(exported.files[1], folder, X), folder
    return found


@pytest.mark.parametrize("name", BOARDS)
def test_a_cortex_m_walks_every_row_as_the_host_does_in_256_bytes_of_stack(walks, name):
    for kind, (exported, X, there, folder) in walks.items():
        here, n_stack, n_state = on_cortex_m(exported.files[1], folder, X, name)
        np.testing.assert_array_equal(here.view(np.int64), there.view(np.int64))
        assert n_stack <= 256
        assert n_state == exported.state_bytes
        if kind != "a tree of purchases":  # which remembers the components that a row may be of
            assert n_state <= 4 * X.shape[1] + 4 * (there.shape[1] - 5 - X.shape[1]) + 32


def test_webassembly_walks_every_row_as_the_host_does(walks):
    for exported, X, there, folder in walks.values():
        here = in_wasm(exported.files[1], folder, X)
        np.testing.assert_array_equal(here.view(np.int64), there.view(np.int64))


@pytest.mark.parametrize(
    "compiler", [["clang"], ["avr-gcc", "-std=gnu99", "-mmcu=atmega2560"]], ids=["clang", "avr-gcc"]
)
def test_other_compilers_have_nothing_to_say(walks, compiler):
    needs(compiler[0])
    for exported, _, _, folder in walks.values():
        run(
            compiler[0],
            *WARNINGS,
            *compiler[1:],
            "-Os",
            "-c",
            exported.files[1],
            "-o",
            folder / "model.o",
        )


def test_an_avr_walks_the_rows_of_the_self_test(walks):
    needs("avr-gcc", "simavr")
    for name in ("leaves of 16 bits", "sets of levels"):
        exported, _, _, folder = walks[name]
        flags = ["-std=gnu99", "-mmcu=atmega2560", "-DF_CPU=16000000", "-Os", "-DTHRIFTY_SELF_TEST", "-w"]
        sources = [exported.files[1], HERE / "avr.c", f"-I{exported.files[1].parent}"]
        run("avr-gcc", *flags, *sources, "-o", folder / "avr.elf")
        asked = ["simavr", "-m", "atmega2560", "-f", "16000000", folder / "avr.elf"]
        printed = run(*asked, capture_output=True, text=True, timeout=60)
        assert "rows that went another way: 0" in printed.stdout + printed.stderr
