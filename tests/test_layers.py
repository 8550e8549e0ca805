"""The layers as code: a module imports only from layers below it."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "thrifty"

LAYERS = (
    "exceptions",
    "arrays",
    "rows",
    "files",
    "progress",
    "threads",
    "compiled",
    "objective",
    "solvers",
    "trees",
    "pruning",
    "tasks",
    "full",
    "chain",
    "sources",
    "evidence",
    "ranking",
    "learning",
    "estimators",
    "bundle",
    "sweeping",
    "auditing",
    "tables",
    "report",
    "serve",
    "datasets",
    "experiments",
    "cli",
)
"""From the ground up: a module imports from its own layer and from those before it, and from no other."""

KNOWS_ONLY = {
    "solvers": {"exceptions", "arrays", "compiled", "objective"},
    "trees": {"exceptions", "arrays", "compiled"},
    "tasks": {"exceptions", "arrays", "compiled", "objective", "trees"},
    "chain": {"exceptions", "arrays", "rows", "threads", "compiled", "objective", "trees", "tasks", "full"},
    "sources": {"exceptions", "arrays", "threads", "objective", "chain"},
    "datasets": {"exceptions", "arrays"},
    "report": {"exceptions", "arrays", "files", "objective", "tasks", "evidence"},
}
"""Layers that do without some of those below: serving knows nothing of learning, pictures nothing of estimators."""

MOST_LINES = 480
"""Of a module. Most have fewer than 300; one that nears this holds a second idea, which wants a module of its own."""


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


def allowed(layer):
    if layer == "__init__":
        return set(LAYERS) - {"cli", "experiments"}
    return {layer, *KNOWS_ONLY.get(layer, LAYERS[: LAYERS.index(layer)])}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_a_module_imports_only_from_the_layers_below(path):
    layer = path.relative_to(SRC).parts[0].removesuffix(".py")
    for other in imported(path):
        assert other in allowed(layer), f"{path.relative_to(SRC)} imports thrifty.{other}"


def name_of(path):
    return ".".join(("thrifty", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")


def test_no_two_modules_import_each_other_in_a_circle_typing_included():
    known = {name_of(path): path for path in modules()}
    # The package itself looks its public names up when they are asked for.
    waiting = {
        name: set(imported_modules(path, known)) - {name, "thrifty"}
        for name, path in known.items()
        if name != "thrifty"
    }
    while waiting:
        free = [name for name, needs in waiting.items() if not needs & waiting.keys()]
        assert free, f"a circle among {sorted(waiting)}"
        for name in free:
            del waiting[name]


def imported_modules(path, known):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "thrifty":
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in (node.module, *inside) if name in known)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


def test_no_module_is_too_long_to_hold_in_ones_head():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in modules()}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}


def test_no_two_modules_have_one_name_in_different_roles():
    names = [path.stem for path in modules() if path.stem != "__init__"]
    assert len(set(names)) == len(names), sorted({name for name in names if names.count(name) > 1})
