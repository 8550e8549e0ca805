"""`python -m reproduction`: its words, and what it refuses."""

import pytest

from reproduction.__main__ import Experiment, Family, Profile, main, names_of
from reproduction.experiments import experiments
from reproduction.experiments.experiment import PROFILES


def test_bad_input_is_one_sentence_on_standard_error_and_exit_code_two(capsys, tmp_path):
    assert main(["letters", "--family", "linear", "--data", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("thrifty: ") == 1
    assert "letter.npz does not exist" in shown.err


@pytest.mark.parametrize("arguments", [["nothing"], ["table1", "--profile", "tiny"]])
def test_an_unknown_word_is_exit_code_two(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().out == ""


def test_the_command_knows_every_experiment_and_no_other():
    known = [name for one in Experiment for name in names_of(one, None) if one is not Experiment.all]
    assert known == list(experiments())
    assert names_of(Experiment.all, None) == tuple(known[:-1])
    assert known[-1] == "acquisition"
    assert [one.value for one in Profile] == list(PROFILES)


def test_letters_is_both_families_unless_one_is_named(capsys):
    assert names_of(Experiment.letters, None) == ("letters_linear", "letters_boosted")
    assert names_of(Experiment.letters, Family.boosted) == ("letters_boosted",)
    assert main(["forest", "--family", "linear"]) == 2
    assert "family is a choice for letters only" in capsys.readouterr().err


def test_settings_of_one_experiment_are_refused_for_all(capsys, tmp_path):
    assert main(["all", "--config", str(tmp_path / "my.toml")]) == 2
    assert "settings of one experiment" in capsys.readouterr().err


def test_a_setting_that_is_not_known_is_one_sentence(capsys, tmp_path):
    (tmp_path / "my.toml").write_text("magic = 3\n")
    arguments = ["--config", str(tmp_path / "my.toml"), "--out", str(tmp_path / "out")]
    assert main(["synthetic", *arguments]) == 2
    assert "my.toml sets magic, which is no setting of this experiment" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_is_drawn_again_where_nothing_was_run(capsys, tmp_path):
    assert main(["forest", "--redraw", "--out", str(tmp_path)]) == 2
    assert "forest.json does not exist" in capsys.readouterr().err
