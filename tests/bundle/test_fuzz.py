"""A small run of `benchmarks/hostile.py files`: files made to do harm are refused, or answer, and nothing else."""

import importlib.util
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from thrifty.bundle import from_bytes
from thrifty.errors import InvalidInputError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attacks" / "files.py"
N_FILES = int(os.environ.get("THRIFTY_FUZZ", "200"))


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("attacks_files", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_files_made_to_do_harm_are_refused_or_answer_with_finite_probabilities(fuzz):
    X, y = fuzz.table(80)
    files = fuzz.bundles(X, y, ["forest", "categories", "logistic", "svm, 3 classes", "3 classes", "fork"])
    counts, faults, _ = fuzz.run(N_FILES, 1, 5.0, files, X[:5])
    total = sum(counts.values(), Counter())
    assert not faults
    # Otherwise the run would say little.
    assert total["refused"] > 0.3 * N_FILES
    assert total["answers"] > 0.1 * N_FILES


def test_columns_of_the_nodes_of_a_fork_are_refused_in_any_wrong_shape(fuzz, forge):
    data = fuzz.bundles(*fuzz.table(80), ["fork"])["fork"]
    columns = forge.array_of(data, "CascadeStage", "columns", which=1)
    assert from_bytes(forge.with_array(data, "CascadeStage", "columns", columns, which=1)).has_forks
    for shape in [(), (1, len(columns)), (len(columns), 1), (1, 1, len(columns)), (0,), (len(columns), 0)]:
        wrong = np.resize(columns, shape).astype(columns.dtype)
        with pytest.raises(InvalidInputError):
            from_bytes(forge.with_array(data, "CascadeStage", "columns", wrong, which=1))


def test_the_run_would_notice_a_fault(fuzz, monkeypatch):
    X, y = fuzz.table(80)
    files = fuzz.bundles(X, y, ["tree"])

    def broken(_):
        raise RuntimeError("no words for this")

    monkeypatch.setattr(fuzz, "questions", lambda system, X: [lambda: system.predict_proba(X) * float("nan")])
    assert fuzz.asked(files["tree"], X)[0] == "NaN"
    monkeypatch.setattr(fuzz, "from_bytes", broken)
    assert fuzz.outcome(files["tree"], X, 5.0)[0] == "other error"
    monkeypatch.setattr(fuzz, "from_bytes", lambda _: [None for _ in iter(int, 1)])
    assert fuzz.outcome(files["tree"], X, 0.05)[0] == "too slow"
