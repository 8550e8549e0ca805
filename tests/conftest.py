"""What several tests share: where real data lies, and how a test says that it is not there."""

import os
import subprocess
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

# The same examples every time, however busy the machine: a failure must belong to the change that is being tested.
settings.register_profile("same-every-time", derandomize=True, deadline=None)
settings.load_profile("same-every-time")

REPOSITORY = Path(__file__).resolve().parents[1]

LONGEST = (
    ("cli/test_paper.py", "report/test_report_page.py", "sweeping/test_workers.py", "test_matrix.py"),
    ("test_sklearn_contract.py", "experiments/test_smoke.py", "sweeping/test_interruptions.py"),
)
"""The files that take longest, for one worker and for the other. Where nothing is compiled yet, the first compiles the
trees for half a minute; the second begins with estimators that have none, and finds them compiled."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Start with the longest files, so that no worker is left with one of them while the other has nothing to do.

    Each of two workers is given half of the list, and then takes from what the other has not begun. Files stay whole:
    their tests share what they fit.
    """
    found = {REPOSITORY / "tests" / name: [] for name in chain(*LONGEST)}
    rest = []
    for item in items:
        found.get(item.path, rest).append(item)
    for path in found:
        assert path.is_file(), f"{path} has another name now: tell LONGEST in tests/conftest.py"
    first, second = (
        [item for name in names for item in found[REPOSITORY / "tests" / name]] for names in LONGEST
    )
    half = max(len(items) // 2 - len(first), 0)
    items[:] = [*first, *rest[:half], *second, *rest[half:]]


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the larger real data: THRIFTY_DATA, or ../shared/data beside the repository."""
    folder = Path(os.environ.get("THRIFTY_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_absolute():
        folder = REPOSITORY / folder
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set THRIFTY_DATA to run the tests on the larger real data")
    return folder


@contextmanager
def _small_disk(folder, size):
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False, text=True)
    except OSError as error:
        pytest.skip(f"no small file system can be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="session")
def small_disk():
    """``small_disk(folder, size)``: a file system of a few kilobytes, mounted there for the time of a test."""
    return _small_disk


def _table(n_rows=900, seed=0):
    """Numbers, a text column that matters, a truth value, missing cells; the label is text."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(n_rows, 4))
    colour = chance.choice(["red", "green", "blue"], n_rows)
    score = x[:, 0] + x[:, 1] * x[:, 2] + 1.2 * (colour == "red") - 0.4 + 0.3 * chance.normal(size=n_rows)
    frame = pd.DataFrame(x, columns=["age", "lab one", "lab two", "noise"]).round(4)
    frame["colour"] = colour
    frame["old"] = x[:, 0] > 0
    frame["label"] = np.where(score > 0, "yes", "no")
    return frame


@pytest.fixture(scope="session")
def make_table():
    """A small table with everything that tables have; called with a number of rows and a seed."""
    return _table


@contextmanager
def _small_fits():
    from thrifty.estimators import cascade
    from thrifty.learning.pairs.boosted import Boosting
    from thrifty.tables import swept_methods

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cascade, "CAPACITIES", (Boosting(n_trees=15, max_depth=3),))
        patch.setattr(swept_methods, "_TREE_GAMMAS", np.array([1e-3, 2e-2]))
        patch.setattr(swept_methods, "_LINEAR_GAMMAS", np.array([1e-3, 2e-2]))
        patch.setattr(swept_methods, "_TREES", 20)
        yield


@pytest.fixture
def small_fits():
    """One small size of stages and two gammas with few trees, for one test: `thrifty fit` in a second."""
    with _small_fits():
        yield


@pytest.fixture(scope="session")
def while_fits_are_small():
    """``with while_fits_are_small():`` for what is fitted once for many tests; others must not see it."""
    return _small_fits
