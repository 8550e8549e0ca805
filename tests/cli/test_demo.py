"""The commands that need no table of the user's: help, version, the demonstration."""

import re
from pathlib import Path

import pytest

from thrifty import __version__
from thrifty.cli import demo, main
from thrifty.learners.cascade import estimators as cascades
from thrifty.learners.trees.boosting import Boosting


def test_the_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"thrifty {__version__}"


def test_an_unknown_word_is_exit_code_two(capsys):
    assert main(["frobnicate"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_demo_prints_the_trade_off_and_writes_what_it_says(tmp_path, monkeypatch, small_fits, capsys):
    # The demo as it ships has more orders and sizes of stages, rivals and budgets, which takes several times as long.
    monkeypatch.setattr(cascades, "CAPACITIES", (Boosting(n_trees=40, max_depth=4),))
    monkeypatch.setattr(demo, "N_PIXELS", (6,))
    monkeypatch.setattr(demo, "BUDGETS", (3.0, 6.0, 16.0))
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    for word in ("BudgetedClassifier", "then all", "a threshold", "majority class", "stage 0"):
        assert word in shown
    wrote = [Path(name.strip()) for name in shown.split("wrote ")[1].split(",")]
    assert {path.name for path in wrote} == {"tradeoff.png", "report.html"}
    assert all(path.stat().st_size > 100 for path in wrote)
    lines = re.findall(r"│\s+([\d.]+) │\s+([\d.]+) @ ([\d.]+) │\s+(\S+).*?│\s+(\S+)", shown)
    assert [float(line[0]) for line in lines] == [3, 6, 16]
    # At least level with two stages at every budget, and with the full model for a quarter of its price.
    for budget, accuracy, cost, two_stages, _ in lines:
        assert float(cost) <= 1.05 * float(budget)
        assert two_stages == "-" or float(accuracy) >= float(two_stages)
    ours, full = re.search(r"│ accuracy\s+│\s+([\d.]+) % .*?│\s+([\d.]+) %", shown).groups()
    assert float(ours) > float(full) - 1.5
    assert any(float(cost) < 16 and 100 * float(right) > float(full) - 1 for _, right, cost, *_ in lines)
    # Explained by the names of the report.
    first = re.search(r"stage 0: (\w+) ", shown)[1]
    assert first in (out / "report.html").read_text()
