"""The commands that need no table of the user's: help, version, the demonstration."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from thrifty import __version__
from thrifty.cascade import estimators as cascades
from thrifty.cli import demo, main
from thrifty.trees.boosting import Boosting


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"thrifty {__version__}"


def test_an_unknown_word_is_exit_code_two(capsys):
    assert main(["frobnicate"]) == 2
    assert capsys.readouterr().out == ""


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
    assert {path.name for path in wrote} == {"tradeoff.png", "demo.json", "report.html"}
    assert all(path.stat().st_size > 100 for path in wrote)
    numbers = json.loads((out / "demo.json").read_text())
    cascade, *rivals = numbers["points"].values()
    assert len(rivals) == 2
    # Ahead at every budget, and level with the full model for a fifth of its price.
    for place, (cost, accuracy) in enumerate(cascade):
        assert cost <= numbers["budgets"][place] * 1.05
        assert all(rival[place] is None or accuracy > rival[place][1] for rival in rivals)
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
