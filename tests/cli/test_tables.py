import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from thrifty.tables.storage import load_table_system

FIT = ["fit", "--target", "label", "--full", "svm", "--jobs", "1"]


def test_help_names_every_command_and_each_explains_itself(run):
    shown = run("--help").out
    for command in ("fit", "predict", "frontier", "report", "demo", "paper"):
        assert command in shown
        assert run(command, "--help").code == 0
    assert "--install-completion" in shown


def test_a_fit_says_what_it_promises_in_words(run, files, small_grid, tmp_path):
    out = tmp_path / "s.thrifty"
    said = run(*FIT, files.train, "--costs", files.costs, "--budget", 4, "-o", out)
    assert said.code == 0
    promise = load_table_system(out).promise
    for words in (
        f"Accuracy {promise.accuracy:.4f} ({promise.low:.4f} to {promise.high:.4f})",
        f"wrote {out}",
    ):
        assert words in said.out
    assert "f0 for every row" in said.out
    assert "note" not in said.err


def test_a_fit_says_the_same_as_json_and_nothing_else_on_standard_output(run, files, small_grid, tmp_path):
    out = tmp_path / "s.thrifty"
    told = json.loads(run(*FIT, files.train, "--costs", files.costs, "--budget", 4, "-o", out, "--json").out)
    promise = load_table_system(out).promise
    assert told["accuracy"] == promise.accuracy
    assert told["mean_cost"] == promise.cost
    assert told["full_cost"] == 6.5
    assert told["asked"] == {"budget": 4.0, "max_loss": None}
    assert told["file"] == str(out)


def test_a_fit_with_a_loss_says_what_it_proved(run, files):
    certificate = load_table_system(files.certified).certificate
    said = run("frontier", files.certified)
    assert str(certificate) in said.out.replace("\n", " ")
    told = json.loads(run("frontier", files.certified, "--json").out)
    assert told["chosen"]["certificate"]["sentence"] == str(certificate)
    assert told["chosen"]["certificate"]["max_loss"] == 0.1


def test_without_prices_every_column_costs_one_and_that_is_said(run, files, small_grid, tmp_path):
    said = run(*FIT, files.train, "--budget", 4, "-o", tmp_path / "s.thrifty", "--ignore", "noise")
    assert said.code == 0
    assert "note: no --costs file: every column costs 1" in said.err
    system = load_table_system(tmp_path / "s.thrifty")
    assert system.prices.cost_of_everything == 5
    assert "noise" not in system.schema.names


def test_answers_are_written_row_by_row_with_four_columns(run, files, tmp_path):
    out = tmp_path / "answers.csv"
    said = run("predict", files.system, files.test, "-o", out)
    assert said.code == 0
    assert "400 answers" in said.out
    found = pd.read_csv(out, dtype={"stage": str})
    assert list(found.columns) == ["answer", "probability", "stage", "cost"]
    system = load_table_system(files.system)
    expected = system.answers(system.table(pd.read_csv(files.test)))
    for name in found.columns:
        np.testing.assert_array_equal(found[name], expected[name])
    assert (found["probability"] >= 0.5).all()
    right = (found["answer"] == pd.read_csv(files.test)["label"]).mean()
    assert right > system.promise.low - 0.05


def test_columns_may_come_in_any_order_and_further_ones_are_said(run, files, tmp_path):
    frame = pd.read_csv(files.new)
    frame[list(frame.columns[::-1])].assign(more=1, extra="x").to_csv(tmp_path / "new.csv", index=False)
    plain = run("predict", files.system, files.new, "-o", tmp_path / "one.csv")
    other = run("predict", files.system, tmp_path / "new.csv", "-o", tmp_path / "two.csv")
    assert "does not read: 'more', 'extra'" in other.err
    assert plain.err == ""
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_parquet_in_and_out_says_the_same_as_csv(run, files, tmp_path):
    pd.read_csv(files.new).to_parquet(tmp_path / "new.parquet")
    run("predict", files.system, tmp_path / "new.parquet", "-o", tmp_path / "a.parquet")
    run("predict", files.system, files.new, "-o", tmp_path / "a.csv")
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "a.parquet"), pd.read_csv(tmp_path / "a.csv", dtype={"stage": "str"})
    )


def test_answers_can_go_to_the_screen(run, files, tmp_path):
    run("predict", files.system, files.new, "-o", tmp_path / "a.csv")
    assert run("predict", files.system, files.new, "-o", "-").out == (tmp_path / "a.csv").read_text()


def test_a_budget_for_the_rows_at_hand_is_met(run, files, tmp_path):
    told = json.loads(
        run("predict", files.system, files.test, "-o", tmp_path / "a.csv", "--budget", 5, "--json").out
    )
    assert 4.8 < told["mean_cost"] <= 5
    assert told["rows"] == 400


def test_the_budget_of_the_fit_is_held_on_the_rows_at_hand_and_that_is_said(run, files, tmp_path):
    arguments = ["predict", files.system, files.test, "-o", tmp_path / "a.csv"]
    told = json.loads(run(*arguments, "--hold-budget", "--json").out)
    one_row = 6.5 / told["rows"]
    assert 4.0 - one_row <= told["mean_cost"] <= 4.0 + 1e-9
    assert (told["held_budget"], told["routes_depend_on_batch"]) == (4.0, True)
    assert told == json.loads(run(*arguments, "--budget", 4, "--json").out)
    assert "The budget of 4 was held on these rows together" in run(*arguments, "--hold-budget").out
    as_fitted = json.loads(run(*arguments, "--json").out)
    assert (as_fitted["held_budget"], as_fitted["routes_depend_on_batch"]) == (None, False)
    cost = pd.read_csv(tmp_path / "a.csv")["cost"]
    assert as_fitted["mean_cost_error"] == pytest.approx(cost.std(ddof=0) / np.sqrt(len(cost)))


def test_the_frontier_is_shown_as_a_table_as_json_and_as_a_picture(run, files, tmp_path):
    said = run("frontier", files.system, "--plot", tmp_path / "f.png")
    assert "mean cost" in said.out
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("frontier", files.system, "--json").out)
    points = load_table_system(files.system).frontier
    assert [point["cost"] for point in told["points"]] == points.cost.tolist()
    assert set(told["points"][-1]["features"]) <= set(pd.read_csv(files.new).columns)


def test_a_report_is_one_page_that_measures_the_chosen_point_on_new_rows(run, files, tmp_path):
    out = tmp_path / "report.html"
    told = json.loads(
        run(
            "report",
            files.system,
            files.test,
            "-o",
            out,
            "--by",
            "colour",
            "--title",
            "A <b> title",
            "--json",
        ).out
    )
    page = out.read_text()
    assert "A &lt;b&gt; title" in page
    assert "colour" in page
    run("predict", files.system, files.test, "-o", tmp_path / "a.csv")
    answers = pd.read_csv(tmp_path / "a.csv")
    assert told["cost"] == pytest.approx(answers["cost"].mean())
    assert told["accuracy"] == pytest.approx((answers["answer"] == pd.read_csv(files.test)["label"]).mean())
    assert f"wrote {out}" in run("report", files.certified, files.test, "-o", out).out


def test_a_store_is_made_and_taken_up_again(run, files, small_grid, tmp_path):
    arguments = [*FIT, files.train, "--budget", 4, "--store", tmp_path / "fits", "--json"]
    once = json.loads(run(*arguments, "-o", tmp_path / "a.thrifty").out)
    again = json.loads(run(*arguments, "-o", tmp_path / "b.thrifty").out)
    assert {path.name for path in (tmp_path / "fits").iterdir()} == {"dynamod.sweep", "miser.sweep"}
    assert once | {"file": ""} == again | {"file": ""}


def test_a_label_that_is_a_number_comes_back_as_a_number(run, small_grid, make_table, tmp_path):
    frame = make_table(600)
    frame["label"] = np.where(frame["label"] == "yes", 7, -3)
    frame.to_csv(tmp_path / "train.csv", index=False)
    assert run(*FIT, tmp_path / "train.csv", "--budget", 4, "-o", tmp_path / "s.thrifty").code == 0
    run("predict", tmp_path / "s.thrifty", tmp_path / "train.csv", "-o", tmp_path / "a.csv")
    assert set(pd.read_csv(tmp_path / "a.csv")["answer"]) == {7, -3}


def test_help_loads_nothing_heavy():
    code = "import sys; from thrifty.cli import main; main(['fit', '--help']); sys.exit(sum(m in sys.modules for m in"
    heavy = "('numpy', 'pandas', 'sklearn', 'numba')))"
    assert (
        subprocess.run([sys.executable, "-c", f"{code} {heavy}"], capture_output=True, check=False).returncode
        == 0
    )


def test_the_table_of_points_fits_a_narrow_screen_and_progress_is_not_on_standard_output(run, files):
    said = run("frontier", files.system)
    assert said.err == ""
    assert max(len(line) for line in said.out.splitlines() if "│" in line) <= 80
