"""Kept results: what is there is not made again, and an interruption leaves no trace in the results."""

from dataclasses import replace

import numpy as np
import pytest
from joblib import parallel_config

from reproduction.datasets import Split
from reproduction.experiments import fits
from reproduction.experiments.experiment import Run, read_settings
from reproduction.experiments.fits import FullScores, Job, Kept, from_record, key_of, to_record
from reproduction.experiments.letters import LinearSettings, _full_models
from reproduction.experiments.selection import Candidate, PointCandidate
from thrifty.dynamod.sweeping import identity
from thrifty.errors import InvalidInputError
from thrifty.progress import silent

CALLS = []


def square(number):
    CALLS.append(number)
    return {"square": number * number}


def jobs(numbers):
    return [Job(key_of(square, {"number": number}), square, (number,)) for number in numbers]


def run(path, numbers, *, about=(), n_jobs=1, progress=silent):
    with Kept(path, dict(about)) as kept:
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


def test_results_of_other_data_or_other_code_are_refused_and_the_way_out_is_named(tmp_path, monkeypatch):
    run(tmp_path / "a.cells", [1], about={"data": "these"})
    with pytest.raises(InvalidInputError, match=r"a\.cells was made for another .*data.*delete the file"):
        run(tmp_path / "a.cells", [1], about={"data": "those"})
    for module, name, told in ((fits, "own_code", "experiments"), (identity, "code", "code")):
        monkeypatch.setattr(module, name, lambda: "sources edited")
        with pytest.raises(
            InvalidInputError, match=rf"{told} \(.*sources edited\).*delete the file to start"
        ):
            run(tmp_path / "a.cells", [1], about={"data": "these"})


def test_seconds_are_those_of_what_was_asked_for_whenever_it_was_made(tmp_path):
    with Kept(tmp_path / "a.cells", {}) as kept:
        kept.run(jobs([1, 2]), n_jobs=1, progress=silent, what="")
        first = kept.seconds
    with Kept(tmp_path / "a.cells", {}) as kept:
        kept.run(jobs([1, 2]), n_jobs=1, progress=silent, what="")
        assert kept.seconds == first


def test_a_key_depends_on_everything_it_is_made_from():
    array = np.arange(3.0)
    known = key_of(square, {"a": array, "b": 0.1})
    assert known == key_of(square, {"b": 0.1, "a": array.copy()})
    assert known != key_of(square, {"a": array + 1e-12, "b": 0.1})
    assert known != key_of(square, {"a": array, "b": 0.1000001})
    assert known != key_of(jobs, {"a": array, "b": 0.1})


def results():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 7))
    gated = Candidate({"gamma": 0.1}, 3.0, *scores, threshold=np.inf, features=(4, 1))
    sent = rng.random((2, 7)) < 0.5
    point = PointCandidate({"point": 2}, *scores, *sent)
    return [gated, gated.at_any_threshold(), point, FullScores(*scores[:3])]


def test_candidates_and_scores_come_back_from_their_bytes_bit_by_bit():
    given = results()
    found = from_record(to_record(given))
    for one, other in zip(given, found, strict=True):
        assert type(one) is type(other)
        for name, value in one.__dict__.items():
            if isinstance(value, np.ndarray):
                assert value.tobytes() == getattr(other, name).tobytes()
                assert value.dtype == getattr(other, name).dtype
            else:
                assert value == getattr(other, name)


def test_a_record_with_a_changed_byte_is_refused():
    record = bytearray(to_record(results()))
    record[len(record) // 2] ^= 1
    with pytest.raises(InvalidInputError, match="damaged.*Delete the file of cells"):
        from_record(bytes(record))


def test_the_support_vector_machine_of_letters_is_the_best_in_cross_validation(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    split = Split(X, y, X, y, X, y, ("a", "b"))
    settings = replace(read_settings(LinearSettings, "letters_linear"), svm_grid=((1e-4, 10.0), (1e-4, 1.0)))
    with Kept(None, {}) as kept:
        f0 = _full_models(settings, split, kept, Run(tmp_path, n_jobs=1))["RBF-SVM"]
    assert (f0.get_params()["svc__C"], f0.get_params()["svc__gamma"]) == (10.0, 1.0)
