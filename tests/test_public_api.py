import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import thrifty
import thrifty.errors
from thrifty.engine.tasks.task import Task


def test_everything_in_all_can_be_imported_and_nothing_else_is_listed():
    for name in thrifty.__all__:
        assert getattr(thrifty, name).__name__ == name
    imports = [
        node
        for node in ast.walk(ast.parse(Path(thrifty.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    typed = {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
    assert typed.pop("__version__") == "thrifty._version"
    assert typed == {name: f"thrifty.{module}" for name, module in thrifty._HOME.items()}
    assert set(thrifty.__all__) <= set(dir(thrifty))


def test_a_user_meets_at_most_38_names_and_12_parameters_of_an_estimator():
    assert len(thrifty.__all__) <= 38
    public = [getattr(thrifty, name) for name in thrifty.__all__]
    estimators = [kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)]
    assert len(estimators) >= 8
    for kind in estimators:
        assert len(inspect.signature(kind).parameters) <= 12, kind.__name__


def test_a_task_has_at_most_35_members():
    assert len([name for name in vars(Task) if not name.startswith("_")]) <= 35


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Frobnicator'"):
        _ = thrifty.Frobnicator


def test_importing_thrifty_does_not_import_scikit_learn():
    code = "import sys, thrifty, thrifty.cli; sys.exit('sklearn' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_thrifty_does_not_import_what_serves():
    foreign = {"starlette", "uvicorn", "aiohttp", "orjson", "prometheus_client"}
    code = f"import sys, thrifty, thrifty.cli; sys.exit(bool({foreign!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_refusal_is_a_value_error():
    assert issubclass(thrifty.errors.InvalidInputError, ValueError)
    assert issubclass(thrifty.errors.InvalidInputError, thrifty.errors.ThriftyError)
    assert issubclass(thrifty.errors.DataUnavailableError, thrifty.errors.InvalidInputError)
    assert issubclass(thrifty.errors.InvalidTypeError, thrifty.errors.InvalidInputError)
    assert issubclass(thrifty.errors.InvalidTypeError, TypeError)


def test_a_module_that_moved_is_the_same_module_under_its_former_path():
    code = """
import importlib, sys, warnings
from thrifty._moved import _MOVED
warnings.simplefilter("ignore")
for former, home in {**_MOVED, "thrifty.tasks.ranking": "thrifty.engine.tasks.ranking"}.items():
    assert importlib.import_module(former) is importlib.import_module(home), former
    assert sys.modules[home].__spec__.name == home
warnings.simplefilter("error")
try:
    import thrifty.chain.stage
except FutureWarning as warning:
    assert "thrifty.chain.stage moved to thrifty.engine.walk.stage" in str(warning)
else:
    raise AssertionError("no warning")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
