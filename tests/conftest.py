"""What several tests share: the order in which files run, small tables, small fits, small disks."""

import importlib.util
import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

# The same examples every time, however busy the machine: a failure must belong to the change that is being tested.
settings.register_profile("same-every-time", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("same-every-time")

if os.environ.get("THRIFTY_TEST_LAST_BITS"):
    spec = importlib.util.spec_from_file_location("last_bits", Path(__file__).with_name("last_bits.py"))
    last_bits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(last_bits)
    last_bits.move_last_bits()

REPOSITORY = Path(__file__).resolve().parents[1]

LONGEST = (
    (
        "tests/cli/test_demo.py",
        "tests/test_pages.py",
        "tests/test_matrix.py",
    ),
    ("tests/test_sklearn_contract.py",),
)
"""The files that take longest, for one worker and for the other. Where nothing is compiled yet, the first compiles the
trees for half a minute; the second begins with estimators that have none, and finds them compiled."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Start with the longest files, so that no worker is left with one of them while the other has nothing to do.

    Each of two workers is given half of the list, and then takes from what the other has not begun. Files stay whole:
    their tests share what they fit.
    """
    found = {REPOSITORY / name: [] for name in chain(*LONGEST)}
    rest = []
    for item in items:
        found.get(item.path, rest).append(item)
    for path in found:
        assert path.is_file(), f"{path} has another name now: tell LONGEST in tests/conftest.py"
    first, second = ([item for name in names for item in found[REPOSITORY / name]] for names in LONGEST)
    half = max(len(items) // 2 - len(first), 0)
    items[:] = [*first, *rest[:half], *second, *rest[half:]]


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


def _bikes(n_rows=300, seed=0):
    """Bicycles hired in an hour, a number, by the hour of the day and the weather."""
    chance = np.random.default_rng(seed)
    hour, workday = chance.integers(0, 24, n_rows), chance.integers(0, 2, n_rows)
    temperature = chance.normal(15, 8, n_rows).round(1)
    weather = chance.choice(["clear", "mist", "rain"], n_rows)
    evening, morning = np.exp(-((hour - 17) ** 2) / 18), workday * np.exp(-((hour - 8) ** 2) / 4)
    mean = 60 + 150 * evening + 100 * morning + 2 * temperature - 60 * (weather == "rain")
    frame = pd.DataFrame({"hour": hour, "temperature": temperature, "weather": weather, "workday": workday})
    return frame.assign(count=np.maximum(0, mean + 15 * chance.normal(size=n_rows)).round())


@pytest.fixture(scope="session")
def make_bikes():
    """A small table whose target is a number; called with a number of rows and a seed."""
    return _bikes


@pytest.fixture(scope="session")
def fit_by_command(tmp_path_factory):
    """``fit_by_command(frame, target, *options)``: the estimator that `thrifty fit` writes, small and read again."""
    from thrifty.bundle.save_load import load
    from thrifty.cli import main

    def fit(frame, target, *options):
        folder = tmp_path_factory.mktemp("fitted")
        frame.to_csv(folder / "train.csv", index=False)
        how = ["--target", target, "--jobs", "1", *map(str, options), "-o", str(folder / "s.thrifty")]
        with _small_fits():
            assert main(["fit", str(folder / "train.csv"), *how]) == 0
        return load(folder / "s.thrifty")

    return fit


@pytest.fixture(scope="session")
def answers_to():
    """``answers_to(system, frame)``: answers to a table as the commands give them."""
    from thrifty.engine.evidence.collect import chain_of
    from thrifty.scale.scorer import answers_of, stage_names

    def answers(system, frame, **how):
        chain = chain_of(system)
        found = answers_of(chain, chain.schema.cells(frame, **how))
        return found | {"stage": np.array(stage_names(chain))[found["stage"]]}

    return answers


@pytest.fixture(scope="session")
def bike_system(fit_by_command):
    """What a fit on such a table makes; nothing changes it."""
    return fit_by_command(_bikes(), "count", "--budget", 2, "--full", "boosting")


def _make_fits_small(patch):
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )

    from thrifty.engine.full import crossfit
    from thrifty.learners.cascade import estimators as cascade
    from thrifty.learners.cascade import gates, learn, plan
    from thrifty.learners.routing import learn as routing
    from thrifty.learners.routing import quality
    from thrifty.learners.trees import full
    from thrifty.learners.trees.boosting import Boosting

    for default in (HistGradientBoostingClassifier, HistGradientBoostingRegressor):
        patch.setitem(default.__init__.__kwdefaults__, "max_iter", 20)
    for forest in (RandomForestClassifier, RandomForestRegressor):
        small_forest = lambda n_trees, kind=forest, **settings: kind(n_trees // 15, **settings)  # noqa: E731
        patch.setattr(crossfit, forest.__name__, small_forest)
    patch.setitem(crossfit._BOOSTED, "n_estimators", 20)
    for name in ("TREES", "TREES_OF_SEVERAL", "TREES_OF_NUMBERS"):
        patch.setattr(full, name, replace(getattr(full, name), n_trees=20))
    patch.setattr(plan, "ORDERING", replace(plan.ORDERING, n_trees=10, max_depth=4))
    patch.setattr(plan, "NESTED_ORDERING", replace(plan.NESTED_ORDERING, n_trees=5, max_depth=4))
    for name in ("ORDERS", "ORDERS_OF_SEVERAL"):  # nothing to compare, which is most of a small fit
        patch.setattr(plan, name, {"gain": plan.ORDERS["gain"]})
    patch.setattr(gates, "SCORE_ONLY", replace(gates.SCORE_ONLY, n_trees=10))
    patch.setattr(gates, "ALL_COLUMNS", replace(gates.ALL_COLUMNS, n_trees=10))
    patch.setattr(gates, "REGRESSION_GATE_SIZES", (replace(gates.REGRESSION_GATE_SIZES[0], n_trees=20),))
    patch.setattr(cascade, "CAPACITIES", (Boosting(n_trees=15, max_depth=3),))
    patch.setattr(quality, "N_TREES", 5)
    patch.setattr(routing, "N_PRICES", 10)
    # Few rows part only where a test asks for it: the search takes as long as the rest.
    supports = learn.supports_tree

    def parts(problem):
        return supports(problem) and (problem.structure == "tree" or problem.n_rows >= 1_000)

    patch.setattr(learn, "supports_tree", parts)


@contextmanager
def _small_fits():
    with pytest.MonkeyPatch.context() as patch:
        _make_fits_small(patch)
        yield


@pytest.fixture
def small_fits(monkeypatch):
    """One small size of stages, one order, few trees for it, for gates and for the default full model, for one test.

    Undone together with what the test patches itself: in any other order, one of the two would bring back the other's.
    """
    _make_fits_small(monkeypatch)


@pytest.fixture(scope="session")
def while_fits_are_small():
    """``with while_fits_are_small():`` for what is fitted once for many tests; others must not see it."""
    return _small_fits
