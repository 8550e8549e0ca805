"""Kept results: what is there is not made again, and an interruption leaves no trace in the results."""

from dataclasses import replace

import numpy as np
import pytest
from joblib import parallel_config

from reproduction.datasets import Split
from reproduction.experiments import fits
from reproduction.experiments.experiment import Run, read_settings
from reproduction.experiments.fits import Job, Kept, key_of
from reproduction.experiments.letters import LinearSettings, _full_models
from thrifty.progress import silent

CALLS = []


def square(number):
    CALLS.append(number)
    return {"square": number * number}


def jobs(numbers):
    return [Job(key_of(square, {"number": number}), square, (number,)) for number in numbers]


def run(path, numbers, *, about=(), n_jobs=1, progress=silent):
    kept = Kept(path, dict(about))
    return kept.run(jobs(numbers), n_jobs=n_jobs, progress=progress, what="squares")


def test_what_is_kept_is_not_made_again_and_other_settings_add_to_it(tmp_path):
    CALLS.clear()
    first = run(tmp_path / "some" / "a.cells", [1, 2, 3])
    assert run(tmp_path / "some" / "a.cells", [1, 2, 3]) == first
    assert [one["square"] for one in run(tmp_path / "some" / "a.cells", [4, 2])] == [16, 4]
    assert CALLS == [1, 2, 3, 4]


def test_workers_give_results_in_the_order_of_the_jobs(tmp_path):
    with parallel_config("threading"):
        found = run(tmp_path / "a.cells", range(6), n_jobs=2)
    assert [one["square"] for one in found] == [0, 1, 4, 9, 16, 25]


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path):
    def stop_after_two(what, done, total):
        if done == 2:
            raise KeyboardInterrupt

    CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.cells", [1, 2, 3, 4], progress=stop_after_two)
    seen = []
    found = run(tmp_path / "a.cells", [1, 2, 3, 4], progress=lambda *args: seen.append(args))
    assert CALLS == [1, 2, 3, 4]
    assert seen == [("squares", done, 4) for done in (2, 3, 4)]
    assert [one["square"] for one in found] == [1, 4, 9, 16]


def test_other_data_and_other_code_find_nothing_in_the_cache(tmp_path, monkeypatch):
    run(tmp_path, [1], about={"data": "these"})
    CALLS.clear()
    run(tmp_path, [1], about={"data": "those"})
    for name in ("own_code", "code_version"):
        monkeypatch.setattr(fits, name, lambda: "sources edited")
        run(tmp_path, [1], about={"data": "these"})
    assert CALLS == [1, 1, 1]


def test_seconds_are_those_of_what_was_asked_for_whenever_it_was_made(tmp_path):
    kept = Kept(tmp_path / "a.cells", {})
    kept.run(jobs([1, 2]), n_jobs=1, progress=silent, what="")
    first = kept.seconds
    kept = Kept(tmp_path / "a.cells", {})
    kept.run(jobs([1, 2]), n_jobs=1, progress=silent, what="")
    assert kept.seconds == first


def test_a_key_depends_on_everything_it_is_made_from():
    array = np.arange(3.0)
    known = key_of(square, {"a": array, "b": 0.1})
    assert known == key_of(square, {"b": 0.1, "a": array.copy()})
    assert known != key_of(square, {"a": array + 1e-12, "b": 0.1})
    assert known != key_of(square, {"a": array, "b": 0.1000001})
    assert known != key_of(jobs, {"a": array, "b": 0.1})


def test_the_support_vector_machine_of_letters_is_the_best_in_cross_validation(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    split = Split(X, y, X, y, X, y, ("a", "b"))
    settings = replace(read_settings(LinearSettings, "letters_linear"), svm_grid=((1e-4, 10.0), (1e-4, 1.0)))
    kept = Kept(None, {})
    f0 = _full_models(settings, split, kept, Run(tmp_path, n_jobs=1))["RBF-SVM"]
    assert (f0.get_params()["svc__C"], f0.get_params()["svc__gamma"]) == (10.0, 1.0)
