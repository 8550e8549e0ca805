"""The layers as code: a module imports only from layers below it."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "thrifty"

BELOW = {
    "exceptions": set(),
    "files": {"exceptions"},
    "objective": {"exceptions"},
    "rows": {"exceptions"},
    "solvers": {"exceptions", "objective"},
    "trees": {"exceptions"},
    "pruning": {"exceptions", "objective", "rows", "solvers", "trees"},
    "models": {"exceptions", "objective", "rows", "solvers", "trees"},
    "alternating": {"objective", "solvers", "models"},
    "full": {"exceptions"},
    "judging": {"exceptions", "objective", "rows", "full"},
    "reading": {"exceptions", "objective"},
    "serving": {"exceptions", "objective", "full", "reading"},
    "system": {"exceptions", "objective", "rows", "full", "reading", "serving"},
    "cascade_system": {"objective", "rows", "trees", "full", "reading", "serving"},
    "policy": {"exceptions", "objective", "rows", "system", "cascade_system"},
    "ranking": {"exceptions", "policy"},
    "cascading": {"objective", "rows", "trees", "models", "policy"},
}
BELOW["estimators"] = {*BELOW}
BELOW["baselines"] = {*BELOW}
BELOW["bundle"] = {*BELOW}
BELOW["sweeping"] = {*BELOW}
BELOW["tabular"] = {"exceptions", "objective"}
BELOW["turnkey"] = {*BELOW}
BELOW["datasets"] = {"exceptions"}
BELOW["report"] = {"exceptions", "files", "objective", "policy"}
BELOW["experiments"] = {*BELOW}
BELOW["cli"] = {"exceptions", "files", "tabular", "turnkey", "report", "experiments"}
BELOW["__init__"] = {*BELOW} - {"cli", "experiments", "turnkey"}


def modules():
    return sorted(SRC.rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            if node.module and node.module.startswith("thrifty."):
                yield node.module.split(".")[1]
            elif node.module == "thrifty":
                yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("thrifty."):
                    yield alias.name.split(".")[1]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_a_module_imports_only_from_the_layers_below(path):
    layer = path.relative_to(SRC).parts[0].removesuffix(".py")
    for other in imported(path):
        assert other in {layer, *BELOW[layer]}, f"{path.relative_to(SRC)} imports thrifty.{other}"


def test_the_layers_have_no_cycle():
    done: set[str] = set()
    for layer, below in BELOW.items():
        assert below <= done | {layer}, f"{layer} stands before {below - done}"
        done.add(layer)


def test_serving_a_system_does_not_import_how_it_was_learned():
    for name in ("serving.py", "system.py", "cascade_system.py", "reading.py"):
        assert {"solvers", "models", "alternating", "estimators"}.isdisjoint(imported(SRC / name))
