"""The layers as code: a module imports only from its own layer and from layers before it."""

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src" / "thrifty"

STOREYS = ("engine", "learners")
GROUND = (
    "_version",
    "_moved",
    "errors",
    "arrays",
    "jit",
    "threads",
    "rows",
    "files",
    "progress",
)
ENGINE = ("prices", "trees", "tasks", "table", "full", "purchases", "walk", "plots", "evidence")
LEARNERS = ("trees", "estimators", "cascade", "dynamod", "routing", "table_fit")
DOORS = ("bundle", "auditing", "reporting", "device", "scale", "serve", "cli")
LAYERS = (
    *GROUND,
    *(f"engine.{name}" for name in ENGINE),
    *(f"learners.{name}" for name in LEARNERS),
    *DOORS,
)
"""Three storeys on the ground, from the ground up: what decides and bills, what learns, and the doors."""

KNOWS_ONLY = {
    "engine.trees": {"errors", "arrays", "jit", "rows"},
    "engine.plots": {"errors", "arrays", "engine.prices", "engine.purchases", "engine.walk"},
    "learners.dynamod": set(LAYERS[: LAYERS.index("learners.cascade")]),
}
"""Layers that do without some of those before them: the paper knows nothing of cascades."""


def modules():
    """Path of every module, by its name within the package."""
    found = {
        path: ".".join(path.relative_to(SRC).with_suffix("").parts) for path in sorted(SRC.rglob("*.py"))
    }
    faces = ("__init__", *(f"{storey}.__init__" for storey in STOREYS))
    return {name.removesuffix(".__init__"): path for path, name in found.items() if name not in faces}


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
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in STOREYS and len(parts) > 1 else parts[0]


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
