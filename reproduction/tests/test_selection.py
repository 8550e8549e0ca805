"""``python -m reproduction selection``: scenarios in the form of ASlib, and what schedules are worth."""

import json

import numpy as np
import pytest

from reproduction.__main__ import main
from reproduction.algorithms.compare import play
from reproduction.algorithms.scenario import read_scenario

DESCRIPTION = """scenario_id: MADE-UP
performance_measures:
- runtime
algorithm_cutoff_time: 100
feature_steps:
    first:
        provides:
        - kind
    second:
        requires:
        - first
        provides:
        - noise
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two solvers, each for one kind of instance, and a slow one; of two feature steps one requires the other."""
    made = tmp_path_factory.mktemp("aslib") / "MADE-UP"
    made.mkdir()
    (made / "description.txt").write_text(DESCRIPTION)
    rng = np.random.default_rng(0)
    kind = rng.random(60) < 0.5
    names = [f"'problem {row}, easy'" for row in range(60)]
    runs, values, costs, status, folds = [], [], [], [], []
    for row, name in enumerate(names):
        for solver, seconds in (("a", 10 if kind[row] else 0), ("b", 0 if kind[row] else 10), ("c", 90)):
            state = "ok" if seconds else "timeout"
            runs.append(f"{name},1,{solver},{seconds or 100},{state}")
        values.append(f"{name},1,{int(kind[row])},{'?' if row == 1 else round(rng.random(), 3)}")
        costs.append(f"{name},1,1.0,50.0")
        status.append(f"{name},1,{'presolved' if row == 0 else 'ok'},ok")
        folds.append(f"{name},1,{row % 2 + 1}")
    for file, columns, lines in (
        ("algorithm_runs", ["algorithm STRING", "runtime NUMERIC", "runstatus {ok, timeout}"], runs),
        ("feature_values", ["kind NUMERIC", "noise NUMERIC"], values),
        ("feature_costs", ["first NUMERIC", "second NUMERIC"], costs),
        ("feature_runstatus", ["first {ok, presolved}", "second {ok, presolved}"], status),
        ("cv", ["fold NUMERIC"], folds),
    ):
        head = [f"@ATTRIBUTE {one}" for one in ("instance_id STRING", "repetition NUMERIC", *columns)]
        (made / f"{file}.arff").write_text("\n".join(["@RELATION x", *head, "@DATA", *lines, ""]))
    return made


def test_a_scenario_is_read_as_the_repository_has_it(folder):
    scenario = read_scenario(folder)
    assert scenario.cutoff == 100.0
    assert scenario.groups == {"kind": "first", "noise": "second"}
    assert scenario.closure("second") == ["first", "second"]
    assert list(scenario.seconds.columns) == ["a", "b", "c"]
    assert scenario.X["noise"].isna().sum() == 1
    assert scenario.presolved["first"].sum() == 1
    assert "problem 0, easy" in scenario.X.index
    assert np.unique(scenario.scores).tolist() == [10.0, 90.0, 1000.0]


def test_a_schedule_takes_what_it_computes_and_runs_up_to_its_first_answer(folder):
    scenario = read_scenario(folder)
    row = int(np.flatnonzero((scenario.X["kind"] == 1) & ~scenario.presolved["first"])[0])
    assert play(scenario, row, ["second", ("a", 100.0)]) == (61.0, True, 51.0)
    assert play(scenario, row, ["first", ("a", 5.0), ("c", 100.0)]) == (96.0, True, 1.0)
    assert play(scenario, row, ["second", ("c", 100.0)]) == (100.0, False, 51.0)
    solved = int(np.flatnonzero(scenario.presolved["first"])[0])
    assert play(scenario, solved, ["first", ("c", 100.0)]) == (1.0, True, 1.0)


def test_the_command_prints_closed_gaps_and_goes_on_where_it_was_interrupted(
    folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("thrifty.learners.routing.quality.N_TREES", 10)
    some = [
        word for name in ("thrifty", "no features", "cheapest group first") for word in ("--methods", name)
    ]
    arguments = ["selection", "--aslib", str(folder.parent), "--out", str(tmp_path), *some]
    assert main(arguments) == 0
    found = json.loads((tmp_path / "MADE-UP-10.json").read_text())
    oracle, single = 10.0, 90.0
    assert found["no features"][0] == 0.0
    paid = (59 * 11.0 + 1.0) / 60
    assert found["thrifty"][0] == pytest.approx((single - paid) / (single - oracle))
    assert found["thrifty"][1] == 1.0
    (tmp_path / "MADE-UP-10.json").write_text(json.dumps({**found, "no features": [0.125, 0.0, 0.0]}))
    assert main(arguments) == 0
    assert "0.125" in capsys.readouterr().out
    assert main(["selection", "--aslib", str(tmp_path / "none")]) == 2
    assert main([*arguments, "--methods", "luck"]) == 2
    assert "methods are thrifty" in capsys.readouterr().err
