import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from thrifty import __version__
from thrifty.cascade import estimators as cascades
from thrifty.cli import main
from thrifty.cli.paper import Experiment, Family, Profile, names_of
from thrifty.experiments import demo, experiments
from thrifty.experiments.experiment import PROFILES
from thrifty.trees.boosting import Boosting


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "demo" in shown
    assert "paper" in shown


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"thrifty {__version__}"


def test_bad_input_is_one_sentence_on_standard_error_and_exit_code_two(capsys, tmp_path):
    assert main(["paper", "letters", "--family", "linear", "--data", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("thrifty: ") == 1
    assert "letter.npz does not exist" in shown.err


@pytest.mark.parametrize(
    "arguments", [["paper", "nothing"], ["frobnicate"], ["paper", "table1", "--profile", "tiny"]]
)
def test_an_unknown_word_is_exit_code_two(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().out == ""


def test_the_command_knows_every_experiment_and_no_other():
    known = [name for one in Experiment for name in names_of(one, None) if one is not Experiment.all]
    assert known == list(experiments())
    assert names_of(Experiment.all, None) == tuple(experiments())
    assert [one.value for one in Profile] == list(PROFILES)


def test_letters_is_both_families_unless_one_is_named(capsys):
    assert names_of(Experiment.letters, None) == ("letters_linear", "letters_boosted")
    assert names_of(Experiment.letters, Family.boosted) == ("letters_boosted",)
    assert main(["paper", "forest", "--family", "linear"]) == 2
    assert "family is a choice for letters only" in capsys.readouterr().err


def test_settings_of_one_experiment_are_refused_for_all(capsys, tmp_path):
    assert main(["paper", "all", "--config", str(tmp_path / "my.toml")]) == 2
    assert "settings of one experiment" in capsys.readouterr().err


def test_a_setting_that_is_not_known_is_one_sentence(capsys, tmp_path):
    (tmp_path / "my.toml").write_text("magic = 3\n")
    arguments = ["--config", str(tmp_path / "my.toml"), "--out", str(tmp_path / "out")]
    assert main(["paper", "synthetic", *arguments]) == 2
    assert "my.toml sets magic, which is no setting of this experiment" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_demo_prints_the_trade_off_and_writes_what_it_says(tmp_path, monkeypatch, capsys):
    # The demo as it ships has more sizes of stages, rivals and budgets, which takes several times as long.
    monkeypatch.setattr(cascades, "CAPACITIES", (Boosting(n_trees=40, max_depth=4),))
    monkeypatch.setattr(demo, "GAMMAS", demo.GAMMAS[1::2])
    monkeypatch.setattr(demo, "BUDGETS", (3.0, 6.0, 12.0))
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    for word in (
        "budget",
        "BudgetedClassifier",
        "single gate",
        "confidence gate",
        "larger class",
        "recall",
        "stage 0",
    ):
        assert word in shown
    wrote = [Path(name.strip()) for name in shown.split("wrote ")[1].split(",")]
    assert {path.name for path in wrote} == {"tradeoff.png", "demo.md", "demo.json", "report.html"}
    assert all(path.stat().st_size > 100 for path in wrote)
    numbers = json.loads((out / "demo.json").read_text())
    cascade, *rivals = numbers["points"].values()
    assert len(rivals) == 2
    # Ahead at every budget, and level with the full model for a fifth of its price.
    for place, (cost, accuracy) in enumerate(cascade):
        assert cost <= numbers["budgets"][place] * 1.05
        assert all(accuracy > rival[place][1] for rival in rivals)
    # What is deployed is level with the full model, and explained by the names of the report.
    cost, accuracy = numbers["deployed"]
    assert accuracy > numbers["full_accuracy"] - 0.015
    assert f"right on {accuracy:.3f} for {cost:.1f} per row" in shown
    first = re.search(r"stage 0: (\w+) ", shown)[1]
    assert first in (out / "report.html").read_text()
    assert any(cost < 13 and accuracy > numbers["full_accuracy"] - 0.01 for cost, accuracy in cascade)


def test_help_does_not_wait_for_scikit_learn(tmp_path):
    script = "import sys; from thrifty.cli import main; main(['--help']); sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=tmp_path)


def test_nothing_is_drawn_again_where_nothing_was_run(capsys, tmp_path):
    assert main(["paper", "forest", "--redraw", "--out", str(tmp_path)]) == 2
    assert "forest.json does not exist" in capsys.readouterr().err
