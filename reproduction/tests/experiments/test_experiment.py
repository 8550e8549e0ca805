"""Settings of experiments: what ships is complete, what is wrong is refused in one sentence."""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pytest

from reproduction.experiments import experiments
from reproduction.experiments.experiment import PROFILES, read_settings
from reproduction.experiments.figures import FOREST_FIGURES
from reproduction.experiments.letters import BOOSTED_LETTERS
from reproduction.experiments.methods import SweepSettings
from thrifty.errors import InvalidInputError

NAMES = [figure.name for figure in (BOOSTED_LETTERS, *FOREST_FIGURES)]


@dataclass(frozen=True)
class Little:
    trees: int
    rates: tuple[float, ...]
    pairs: tuple[tuple[int, ...], ...] = ()
    word: str = ""
    flag: bool = False


def read(tmp_path, text, **options):
    path = tmp_path / "little.toml"
    path.write_text(text)
    return read_settings(Little, "little", config=path, **options)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NAMES)
def test_the_settings_that_ship_can_be_read_in_every_size(name, profile):
    settings = read_settings(SweepSettings, name, profile=profile)
    assert settings.thinned.endswith(".")
    assert list(settings.budgets) == sorted(settings.budgets)


def test_a_smaller_profile_has_no_more_fits_than_a_larger_one():
    for name in NAMES:
        sizes = [
            len(settings.cells("gamma", "p_full", "learning_rate")) * settings.trees * settings.rounds
            for settings in (read_settings(SweepSettings, name, profile=profile) for profile in PROFILES)
        ]
        assert sizes == sorted(sizes, reverse=True), name


def test_every_experiment_has_a_file_of_settings_and_every_file_an_experiment():
    folder = files("reproduction.experiments") / "configs"
    assert {path.name for path in folder.iterdir()} == {f"{name}.toml" for name in experiments()}


def test_grids_are_lists_or_spaced_between_two_ends(tmp_path):
    found = read(tmp_path, "trees = 3\nrates = { geometric = [0.01, 1, 3] }\npairs = [[3, 4], [5, 6]]\n")
    np.testing.assert_allclose(found.rates, [0.01, 0.1, 1.0])
    assert found.pairs == ((3, 4), (5, 6))
    assert read(tmp_path, "trees = 3\nrates = { linear = [0, 1, 3] }\n").rates == (0.0, 0.5, 1.0)
    assert read(tmp_path, "trees = 3\nrates = [1, 0.5]\n").rates == (1.0, 0.5)


def test_a_profile_replaces_single_values_and_leaves_the_others(tmp_path):
    text = "trees = 3\nrates = [1]\n[quick]\ntrees = 2\n[smoke]\nrates = [2]\n"
    assert read(tmp_path, text) == Little(3, (1.0,))
    assert read(tmp_path, text, profile="quick") == Little(2, (1.0,))
    assert read(tmp_path, text, profile="smoke") == Little(3, (2.0,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trees = 3\nrates = [1]\ntree = 2\n", "sets tree, which is no setting"),
        ("trees = 3\n", "does not set rates"),
        ("trees = 2.5\nrates = [1]\n", "trees must be a whole number; got 2.5"),
        ("trees = true\nrates = [1]\n", "trees must be a whole number; got True"),
        ("trees = 3\nrates = ['a']\n", "rates must be a number; got 'a'"),
        ("trees = 3\nrates = [inf]\n", "rates must be finite"),
        ("trees = 3\nrates = 1\n", "rates must be a list"),
        ("trees = 3\nrates = { geometric = [0, 1, 3] }\n", "rates must be a list"),
        ("trees = 3\nrates = { cubic = [1, 2, 3] }\n", "rates must be a list"),
        ("trees = 3\nrates = { linear = [1, 2, 0] }\n", "rates must be a list"),
        ("trees = 3\nrates = [1]\nword = 3\n", "word must be text; got 3"),
        ("trees = 3\nrates = [1]\nflag = 1\n", "flag must be true or false; got 1"),
        ("trees = 3\nrates = [1]\nquick = 3\n", "quick in .* must be a table"),
        ("trees = 3\nrates = [1]\n[smoke]\nword = 'a'\n", r"\[smoke\] in .* sets word, which the top level"),
        ("trees = ", "is not proper TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_one_sentence(tmp_path, text, message):
    profile = "smoke" if "[smoke]" in text else "full"
    with pytest.raises(InvalidInputError, match=message) as caught:
        read(tmp_path, text, profile=profile)
    assert "little.toml" in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_settings(Little, "little", config=tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="is not text"):
        read_settings(Little, "little", config=tmp_path / "bytes.toml")
    with pytest.raises(InvalidInputError, match="profile must be one of full, quick, smoke; got 'tiny'"):
        read_settings(Little, "little", profile="tiny")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ()}, "methods must not be empty"),
        ({"methods": ("kl", "magic")}, "methods must be among .*; got 'magic'"),
        ({"trees": 0}, "trees must be at least 1; got 0"),
        ({"rows": (10, 20)}, "rows must be three numbers"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused_before_it_begins(change, message):
    known = read_settings(SweepSettings, "miniboone", profile="smoke").__dict__
    with pytest.raises(InvalidInputError, match=message):
        SweepSettings(**{**known, **change})
