"""The layers as code: a module imports only from its own layer and from layers before it."""

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src" / "thrifty"

LAYERS = (
    *("errors", "arrays", "jit", "threads", "rows", "files", "progress"),
    *("prices", "trees", "tasks", "tables", "full", "chain", "sources", "plots", "evidence"),
    *("estimators", "cascade", "dynamod", "routing", "bundle"),
    *("auditing", "reporting", "device", "scale", "serve", "cli"),
)
"""From the ground up."""

KNOWS_ONLY = {
    "trees": {"errors", "arrays", "jit", "rows", "prices"},
    "tasks": {"errors", "arrays", "jit", "prices", "trees"},
    "chain": {"errors", "arrays", "rows", "threads", "jit", "prices", "trees", "tasks", "tables", "full"},
    "sources": {"errors", "arrays", "threads", "prices", "tables", "chain"},
    "plots": {"errors", "arrays", "prices", "chain"},
    "cascade": set(LAYERS[: LAYERS.index("cascade")]),
}
"""Layers that do without some of those before them: serving knows nothing of learning."""


def modules():
    """Path of every module, by its name within the package."""
    found = {
        path: ".".join(path.relative_to(SRC).with_suffix("").parts) for path in sorted(SRC.rglob("*.py"))
    }
    return {name.removesuffix(".__init__"): path for path, name in found.items() if name != "__init__"}


@cache
def statements(path):
    """Import statements of a module, in functions and for types too."""
    tree = ast.walk(ast.parse(path.read_text()))
    return [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path, known):
    """Names of the modules that a module imports."""
    for node in statements(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = [alias.name for alias in node.names]
        yield from (name.removeprefix("thrifty.") for name in names if name.removeprefix("thrifty.") in known)


def layer_of(module):
    inner = ".".join(module.split(".")[:2])
    return inner if inner in LAYERS else module.split(".")[0]


def test_every_module_imports_from_its_own_layer_and_those_before_it():
    known, wrong = modules(), []
    for module, path in known.items():
        layer = layer_of(module)
        allowed = {layer, *KNOWS_ONLY.get(layer, LAYERS[: LAYERS.index(layer)])}
        wrong += [
            f"{module} imports {other}" for other in imports(path, known) if layer_of(other) not in allowed
        ]
    assert not wrong, wrong


def test_no_two_modules_import_each_other_in_a_circle_typing_included():
    known = modules()
    waiting = {module: set(imports(path, known)) - {module} for module, path in known.items()}
    while waiting:
        free = [module for module, needs in waiting.items() if not needs & waiting.keys()]
        assert free, f"a circle among {sorted(waiting)}"
        for module in free:
            del waiting[module]
