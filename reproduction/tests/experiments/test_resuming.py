"""An experiment that is killed at any moment goes on from what is kept, and ends with the same numbers bit by bit."""

from importlib.resources import files

import pytest

from reproduction.experiments import experiments
from reproduction.experiments.experiment import Run

pytestmark = pytest.mark.slow


class KilledError(Exception):
    """In the place of whatever ends a process."""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The smoke profile with two methods, one of them without f0."""
    text = (files("reproduction.experiments") / "configs" / "miniboone.toml").read_text()
    path = tmp_path_factory.mktemp("config") / "little.toml"
    head, smoke = text.split("[smoke]\n")
    lines = [line for line in smoke.splitlines() if not line.startswith("methods")]
    path.write_text("\n".join([head, "[smoke]", 'methods = ["kl", "miser"]', *lines]))
    return path


@pytest.fixture(scope="module")
def run(config, data_folder):
    def start(out, progress=lambda *args: None):
        how = Run(out, str(data_folder), "smoke", config, n_jobs=1, progress=progress)
        experiments()["miniboone"](how)
        return (out / "miniboone.json").read_bytes()

    return start


@pytest.fixture(scope="module")
def uninterrupted(run, tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


def test_an_interrupted_run_ends_with_the_same_numbers_bit_by_bit(run, uninterrupted, tmp_path):
    # Killed each time that something new is done: f0 first, then one fit after the other.
    fresh, attempts, numbers = [], 0, None
    while numbers is None:
        seen, attempts = [], attempts + 1

        def die_at_something_new(what, done, total, seen=seen):
            seen.append((what, done))
            if done and (what, done) not in fresh and len(seen) > 1 and seen[-2] == (what, done - 1):
                fresh.append((what, done))
                raise KilledError

        try:
            numbers = run(tmp_path, die_at_something_new)
        except KilledError:
            assert not (tmp_path / "miniboone.json").exists()
    # f0, two fits of DynaMod-Gbrt, two of GreedyMiser: each was made exactly once.
    assert (len(fresh), attempts) == (5, 6)
    assert numbers == uninterrupted


def test_a_finished_run_can_be_repeated_without_fitting_anything(run, uninterrupted, tmp_path, monkeypatch):
    assert run(tmp_path) == uninterrupted
    monkeypatch.setattr("reproduction.experiments.fits._fit", None)
    monkeypatch.setattr("reproduction.experiments.fits.cross_fit_full", None)
    assert run(tmp_path) == uninterrupted
