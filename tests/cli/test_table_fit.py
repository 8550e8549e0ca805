"""``fit_table``, which `thrifty fit` calls, and the record of it that a file keeps."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from thrifty import Prices, fit_table, load
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import app
from thrifty.errors import InvalidInputError, InvalidParameterError
from thrifty.learners.table_fit import FitRecord, record_of


@pytest.mark.slow
def test_the_command_fits_what_fit_table_fits_with_the_same_arguments(run, files, small_fits, tmp_path):
    out = tmp_path / "s.thrifty"
    options = ["--prices", files.costs, "--full", "svm", "--full-cost", 2, "--budget", 3, "--ignore", "noise"]
    assert run("fit", files.train, "--target", "label", *options, "--jobs", 1, "-o", out).code == 0
    by_command = load(out)
    fitted = fit_table(
        pd.read_csv(files.train),
        "label",
        prices=replace(Prices.read(files.costs), full=2.0),
        full="svm",
        budget=3.0,
        ignore=["noise"],
        n_jobs=1,
    )
    in_code = from_bytes(to_bytes(fitted))
    X = pd.read_csv(files.test).drop(columns=["label", "noise"])
    np.testing.assert_array_equal(by_command.predict_proba(X), in_code.predict_proba(X))
    np.testing.assert_array_equal(by_command.cost(X), in_code.cost(X))
    for name in ("target", "query", "row_key", "full", "full_scores", "full_rows", "goal"):
        assert getattr(by_command.record_, name) == getattr(in_code.record_, name)
    np.testing.assert_array_equal(by_command.record_.spread.shares, in_code.record_.spread.shares)
    assert by_command.record_.full == "svm"


def test_attributes_of_version_0_3_are_read_as_a_record(files):
    system = load(files.system)
    spread, record = system.record_.spread, system.record_
    attributes = {
        "order_": [0],
        "target_name_": "label",
        "row_key_name_": "id",
        "full_name_": "svm",
        "goal_": {"budget": 3.0, "max_loss": None},
        "spread_": {"edges": spread.edges, "shares": spread.shares},
    }
    former = FitRecord.from_attributes(attributes)
    assert attributes == {"order_": [0]}
    assert (former.target, former.row_key, former.full) == ("label", "id", "svm")
    assert former.goal == record.goal
    np.testing.assert_array_equal(former.spread.edges, spread.edges)
    assert FitRecord.from_attributes({"order_": [0]}) is None
    with pytest.raises(InvalidInputError, match="edges that rise"):
        FitRecord.from_attributes(
            {"full_name_": "svm", "spread_": {"edges": -spread.edges, "shares": spread.shares}}
        )


def test_former_names_of_what_a_record_holds_warn_and_name_the_new_ones(files):
    system = load(files.system)
    with pytest.warns(FutureWarning, match="target_name_ of BudgetedClassifier is record_.target now"):
        assert system.target_name_ == "label"
    with pytest.raises(AttributeError, match="no attribute 'colour_name_'"):
        _ = system.colour_name_
    assert record_of(system.chain_).target == ""


def test_a_parameter_that_breaks_a_rule_is_an_option_on_the_command_line_and_a_name_in_code(
    refused, files, tmp_path
):
    goal = ("--target", "label", "--loss", "pinball:0.5", "-o", tmp_path / "s.thrifty")
    assert refused("fit", files.train, *goal).startswith("thrifty: --loss is for a target of numbers")
    with pytest.raises(InvalidParameterError, match="^loss is for a target of numbers"):
        fit_table(files.train, "label", loss="pinball:0.5")


def test_costs_is_prices_with_a_note_and_hidden_from_help(run, files, refused, tmp_path):
    other = tmp_path / "prices.csv"
    other.write_text("feature,cost\nage,1")
    given = ("fit", files.train, "--target", "label", "-o", tmp_path / "s.thrifty", "--costs", other)
    told = run(*given)
    assert told.code == 2
    assert "note: --costs is --prices since thrifty 0.4" in told.err
    assert "there is no price for 'lab one'" in told.err
    assert "--costs is the former name of --prices" in refused(*given, "--prices", other)
    for command in ("fit", "audit"):
        shown = CliRunner().invoke(app, [command, "--help"]).output
        assert "--prices" in shown
        assert "--costs" not in shown


def test_the_notes_of_a_fit_are_in_its_json(run, files, small_fits, tmp_path):
    goal = ("--target", "label", "--full", "svm", "--jobs", 1, "-o", tmp_path / "s.thrifty", "--json")
    told = json.loads(run("fit", files.train, *goal).out)
    assert told["notes"] == ["no --prices file: every column costs 1"]
    assert (told["full"], told["full_candidates"]) == ("svm", None)
