"""What a fresh process pays before anything is computed: bytecode that is there, and modules that are needed."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

LATER = (
    "matplotlib",
    "polars",
    "pyarrow",
    "rich",
    "typer",
    "thrifty.bundle",
    "thrifty.cli",
    "reproduction.pruning",
    "thrifty.reporting",
    "thrifty.learners.dynamod.sweep",
    "thrifty.engine.table.files",
    "thrifty.engine.table.training",
)
"""Loaded by those who need them: files, pictures and the command line are not needed to fit and to predict."""


def loaded_by(statement, after):
    """Modules that an import statement loads in a fresh process, after another one."""
    code = f"import sys; {after}; before = {{*sys.modules}}; {statement}; print(*{{*sys.modules}} - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.slow
def test_the_front_door_adds_to_scikit_learn_only_itself_and_not_its_compiler():
    theirs = "import sklearn.ensemble, sklearn.linear_model, sklearn.frozen"
    ours = loaded_by("from thrifty import BudgetedClassifier", after=theirs)
    assert "thrifty.learners.cascade.estimators" in ours
    assert not ours.intersection(LATER)
    foreign = {name.split(".")[0] for name in ours} - {"thrifty", "sklearn"}
    assert foreign <= set(sys.stdlib_module_names), foreign


def test_environments_are_installed_with_bytecode():
    lines = (REPOSITORY / "Makefile").read_text().splitlines()
    installers = [line for line in lines if line.strip().startswith("INSTALL = ")]
    assert len(installers) == 2
    for line in installers:
        # pip compiles unless it is told not to, uv only if it is told to.
        assert "--no-compile" not in line
        assert "uv" not in line.lower() or "--compile-bytecode" in line
