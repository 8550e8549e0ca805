import io
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import thrifty
from thrifty import BudgetedClassifier, StageOptions
from thrifty.bundle.save_load import load
from thrifty.cli import system as cli_system
from thrifty.cli.system import expected_of
from thrifty.reporting.words import quantity

pytestmark = pytest.mark.slow

FIT = ["fit", "--target", "label", "--full", "svm", "--jobs", "1"]


def test_help_names_every_command_and_each_explains_itself(run):
    shown = run("--help").out
    for command in ("fit", "predict", "explain", "frontier", "report", "demo"):
        assert command in shown
        assert run(command, "--help").code == 0
    assert "--install-completion" in shown


def test_orders_by_row_are_fitted_on_request_and_refused_for_rankings(run, small_fits, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(900, 4)), columns=["way", "left", "right", "noise"])
    table["label"] = np.where(table["way"] > 0, table["left"] + 0.8, table["right"] - 0.8) > 0
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = (*FIT, tmp_path / "t.csv", "--structure", "tree", "-o", tmp_path / "s.thrifty")
    said = run(*fit)
    assert said.code == 0
    assert "buys, by row, of 'way'" in said.out
    assert load(tmp_path / "s.thrifty").chain_.has_forks
    assert run("report", tmp_path / "s.thrifty", tmp_path / "t.csv", "-o", tmp_path / "r.html").code == 0
    table.assign(qid=np.arange(900) // 9).to_csv(tmp_path / "t.csv", index=False)
    said = run(*fit, "--query", "qid", "--full", "forest")
    assert said.code == 2
    assert "--structure must be 'line' or 'auto'" in said.err


def test_a_fit_says_what_to_expect_in_words(run, files, small_fits, tmp_path):
    out = tmp_path / "s.thrifty"
    said = run(*FIT, files.train, "--prices", files.costs, "--budget", 3, "-o", out)
    assert said.code == 0
    facts = expected_of(load(out))
    low, value, high = (100 * one[0] for one in (facts.score.low, facts.score.value, facts.score.high))
    for words in (
        f"{value:.1f} % ({low:.1f} to {high:.1f})",
        "The full model is an RBF support vector machine",
        "majority class",
        "recall of 'yes'",
        "balanced accuracy",
        "log-loss",
        "AUC",
        "1,000 new rows have an accuracy of",
        f"wrote {out}",
    ):
        assert words in said.out
    assert "f0" not in said.out
    assert "note" not in said.err


def test_a_fit_says_the_same_as_json_and_nothing_else_on_standard_output(run, files, small_fits, tmp_path):
    out = tmp_path / "s.thrifty"
    told = json.loads(run(*FIT, files.train, "--prices", files.costs, "--budget", 3, "-o", out, "--json").out)
    facts, measures = expected_of(load(out)), told["measures"]
    assert (told["score"], measures["accuracy"]["value"]) == ("accuracy", facts.score.value[0])
    assert (told["mean_cost"], told["full_cost"]) == (facts.cost.value[0], 6.5)
    assert measures["accuracy"]["constant"] == facts.score.constant
    balanced = measures["balanced accuracy"]
    for of in ("value", "full"):
        recalls = [measures[f"recall of {label!r}"][of] for label in ("no", "yes")]
        assert balanced[of] == pytest.approx(np.mean(recalls))
    assert balanced["interval"][0] < balanced["value"] < balanced["interval"][1]
    assert measures["AUC"]["interval"][0] < measures["AUC"]["value"]
    assert told["asked"] == {"budget": 3.0, "max_loss": None}
    assert told["file"] == str(out)


def test_a_target_of_three_classes_goes_through_every_command(run, small_fits, make_table, tmp_path):
    frame = make_table(600)
    frame["label"] = np.where(frame["age"] > frame["age"].median(), "old", frame["label"])
    frame[:450].to_csv(tmp_path / "train.csv", index=False)
    frame[450:].to_csv(tmp_path / "new.csv", index=False)
    system, new = tmp_path / "s.thrifty", tmp_path / "new.csv"
    said = run(*FIT, tmp_path / "train.csv", "--budget", 2, "-o", system)
    assert said.code == 0, said.err
    for label in ("no", "old", "yes"):
        assert f"recall of '{label}'" in said.out
    assert run("predict", system, new, "-o", tmp_path / "a.csv", "--budget", 1.5).code == 0
    answers = pd.read_csv(tmp_path / "a.csv")
    assert set(answers["answer"]) <= {"no", "old", "yes"}
    assert np.mean(answers["answer"].to_numpy() == frame["label"][450:].to_numpy()) > 0.6
    assert "stage 0: " in run("explain", system, new).out
    assert "mean cost" in run("frontier", system).out
    assert run("report", system, new, "-o", tmp_path / "r.html").code == 0


def test_a_fit_with_a_loss_says_what_it_proved(run, files):
    told = str(load(files.certified).certificate_)
    assert told in run("frontier", files.certified).out.replace("\n", " ")
    chosen = json.loads(run("frontier", files.certified, "--json").out)["chosen"]
    assert chosen["certificate"]["sentence"] == told
    assert chosen["certificate"]["max_loss"] == 0.1
    assert "drawn as future rows are" in told
    assert chosen["certificate"]["rows"] in told


def test_the_mean_cost_that_is_expected_comes_with_its_interval(run, files, tmp_path):
    estimator = load(files.certified)
    low, high = estimator.expected_cost_interval_
    chosen = json.loads(run("frontier", files.certified, "--json").out)["chosen"]
    assert chosen["mean_cost_interval"] == [low, high]
    assert low < chosen["mean_cost"] < high
    page = tmp_path / "r.html"
    told = json.loads(run("report", files.certified, files.test, "-o", page, "--json").out)
    assert told["expected"]["mean_cost_interval"] == [low, high]
    assert f"({quantity(low)} to {quantity(high)})" in page.read_text()


def test_a_budget_is_proved_on_rows_that_are_kept_out_of_the_fit(run, files, small_fits, tmp_path):
    told = [
        json.loads(run(*FIT, files.train, "--budget", 2.5, *more, "-o", tmp_path / "s.thrifty", "--json").out)
        for more in ([], ["--confidence", 0.9999])
    ]
    assert told[1]["mean_cost"] < told[0]["mean_cost"]


def test_a_loss_that_only_the_full_model_keeps_leaves_it_most_rows(
    run, files, small_fits, make_table, tmp_path
):
    # Nothing in the columns that the stages may stop at tells the classes apart as the full model does.
    frame = make_table(400, seed=3).assign(label=np.where(np.arange(400) % 2, "yes", "no"))
    frame.to_csv(tmp_path / "noise.csv", index=False)
    said = run(*FIT, tmp_path / "noise.csv", "--max-loss", 0.03, "-o", tmp_path / "s.thrifty")
    assert said.code == 0
    assert expected_of(load(tmp_path / "s.thrifty")).share[0] > 0.85


def test_without_prices_every_column_costs_one_and_that_is_said(run, files, small_fits, tmp_path):
    said = run(*FIT, files.train, "--budget", 4, "-o", tmp_path / "s.thrifty", "--ignore", "noise")
    assert said.code == 0
    assert "note: no --prices file: every column costs 1" in said.err
    system = load(tmp_path / "s.thrifty")
    assert system.chain_.price_list.cost_of_everything == 5
    assert "noise" not in system.feature_names_in_


def test_answers_are_written_row_by_row_with_four_columns(run, files, answers_to, tmp_path):
    out = tmp_path / "answers.csv"
    said = run("predict", files.system, files.test, "-o", out)
    assert said.code == 0
    assert "400 answers" in said.out
    found = pd.read_csv(out, dtype={"stage": str})
    assert list(found.columns) == ["answer", "probability", "stage", "cost"]
    system = load(files.system)
    expected = answers_to(system, pd.read_csv(files.test))
    for name in found.columns:
        np.testing.assert_array_equal(found[name], expected[name])
    assert (found["probability"] >= 0.5).all()
    right = (found["answer"] == pd.read_csv(files.test)["label"]).mean()
    assert right > system.expected_score_ - 0.1


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


def test_rows_can_come_from_standard_input(run, files, tmp_path, monkeypatch, refused):
    def given(data):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    run("predict", files.system, files.new, "-o", tmp_path / "a.csv")
    given(files.new.read_bytes())
    assert run("predict", files.system, "-", "-o", "-").out == (tmp_path / "a.csv").read_text()
    given(files.new.read_bytes())
    by_row = run("explain", files.system, "-", "--row", 2)
    assert by_row.out == run("explain", files.system, files.new, "--row", 2).out
    given(b"")
    told = refused("predict", files.system, "-", "-o", tmp_path / "b.csv")
    assert "standard input cannot be read as a table: it is empty" in told


def test_answers_can_go_to_the_screen(run, files, tmp_path):
    run("predict", files.system, files.new, "-o", tmp_path / "a.csv")
    assert run("predict", files.system, files.new, "-o", "-").out == (tmp_path / "a.csv").read_text()


@pytest.mark.parametrize("kind", ["system", "certified"])
def test_one_file_answers_any_budget_and_any_loss(run, files, tmp_path, kind):
    def told(*wish):
        arguments = ["predict", getattr(files, kind), files.test, "-o", tmp_path / "a.csv", "--json", *wish]
        return json.loads(run(*arguments).out)

    few, many = told("--budget", 2.5), told("--budget", 4)
    assert few["mean_cost"] < many["mean_cost"]
    assert few["expected_cost"] <= 2.5 + 1e-9
    strict, loose = told("--max-loss", 0.02), told("--max-loss", 0.2)
    assert loose["expected_cost"] < strict["expected_cost"]
    assert told("--budget", 2.5) == few


def test_a_loss_that_was_not_proved_is_called_an_estimate(run, files, tmp_path):
    for system in (files.system, files.certified):
        said = run("predict", system, files.test, "-o", tmp_path / "a.csv", "--max-loss", 0.1)
        assert "is estimated on the rows of the fit, and not proved" in said.out


def test_a_budget_is_held_on_the_rows_at_hand_and_that_is_said(run, files, tmp_path):
    arguments = ["predict", files.system, files.test, "-o", tmp_path / "a.csv"]
    told = json.loads(run(*arguments, "--hold-budget", "--json").out)
    one_row = 6.5 / told["rows"]
    assert 3.0 - one_row <= told["mean_cost"] <= 3.0 + 1e-9
    assert (told["held_budget"], told["routes_depend_on_batch"]) == (3.0, True)
    assert told == json.loads(run(*arguments, "--hold-budget", "--budget", 3, "--json").out)
    assert "The budget of 3 was held on these rows together" in run(*arguments, "--hold-budget").out
    other = json.loads(run(*arguments, "--hold-budget", "--budget", 2, "--json").out)
    assert 2.0 - one_row <= other["mean_cost"] <= 2.0 + 1e-9
    as_fitted = json.loads(run(*arguments, "--json").out)
    assert (as_fitted["held_budget"], as_fitted["routes_depend_on_batch"]) == (None, False)
    cost = pd.read_csv(tmp_path / "a.csv")["cost"]
    assert as_fitted["mean_cost_error"] == pytest.approx(cost.std(ddof=0) / np.sqrt(len(cost)))


def test_rows_that_starve_the_full_model_are_counted(run, files, make_table, small_fits, tmp_path):
    frame = pd.read_csv(files.train)
    out = tmp_path / "s.thrifty"
    assert (
        run("fit", files.train, "--target", "label", "--full", "boosting", "--jobs", 1, "-o", out).code == 0
    )
    bare = frame.drop(columns="label").assign(age=None, colour=None, noise=None, old=None)[:60]
    bare.to_csv(tmp_path / "bare.csv", index=False)
    said = run("predict", out, tmp_path / "bare.csv", "-o", tmp_path / "a.csv")
    assert said.code == 0, said.err
    n_full = int((pd.read_csv(tmp_path / "a.csv", dtype={"stage": str})["stage"] == "full").sum())
    assert n_full > 0
    assert f"note: {n_full:,} row" in said.err
    assert "more than half of the cells" in said.err


def test_an_explanation_names_columns_and_labels_and_ends_with_the_answer(run, files, tmp_path):
    run("predict", files.system, files.new, "-o", tmp_path / "a.csv")
    answers = pd.read_csv(tmp_path / "a.csv", dtype={"stage": str})
    said = run("explain", files.system, files.new)
    assert said.out.count("\nRow ") + 1 == 20
    assert "the first 20 of 50 rows are explained; --all explains them all" in said.err
    assert run("explain", files.system, files.new, "--all").out.count("answered ") == 50
    for row in (1, 37):
        alone = run("explain", files.system, files.new, "--row", row)
        assert alone.err == ""
        assert alone.out.startswith(f"Row {row}\n")
        assert f"answered {answers['answer'][row - 1]!r} for " in alone.out
    (told,) = json.loads(run("explain", files.system, files.new, "--row", 37, "--json").out)["rows"]
    assert (told["row"], told["answer"], told["cost"]) == (37, *answers.loc[36, ["answer", "cost"]])
    assert answers["stage"][36] == ("full" if told["asked_full"] else str(len(told["stages"]) - 1))
    assert {name for stage in told["stages"] for name in stage["bought"]} <= set(pd.read_csv(files.new))
    cheap = run("explain", files.system, files.new, "--row", 37, "--budget", 0.2).out
    assert cheap.count("stage ") <= len(told["stages"])


def test_the_frontier_is_shown_as_a_table_as_json_and_as_a_picture(run, files, tmp_path):
    said = run("frontier", files.system, "--plot", tmp_path / "f.png")
    assert "mean cost" in said.out
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("frontier", files.system, "--json").out)
    points = load(files.system).frontier_
    assert [point["cost"] for point in told["points"]] == points.cost.tolist()
    assert set(told["points"][-1]["features"]) <= set(pd.read_csv(files.new).columns)
    assert told["least_total"] is None
    for words in ("In force", "balanced accuracy", "recall of 'yes'"):
        assert words in said.out


@pytest.mark.parametrize("n_missing", [0, 2])
def test_every_point_of_a_frontier_is_in_its_table_or_the_table_says_how_many(
    run, files, monkeypatch, n_missing
):
    points = load(files.system).frontier_
    for limit in ("_N_POINTS", "_MAX_POINTS"):
        monkeypatch.setattr(cli_system, limit, len(points) - n_missing)
    said = run("frontier", files.system).out
    lines = [line for line in said[: said.index("In force")].splitlines() if line.startswith("│")]
    assert f"{len(points)} efficient points" in said
    if n_missing:
        assert len(lines) <= len(points) - n_missing
        assert f"; {len(lines)} of them, --json lists all" in said
    else:
        assert len(lines) == len(points)


@pytest.fixture(scope="module")
def priced(tmp_path_factory, make_table):
    """A classifier that prices mistakes, saved by itself, and the rows that it did not see."""
    folder, table = tmp_path_factory.mktemp("priced"), make_table(500)
    table = table[["age", "lab one", "lab two", "label"]].dropna()
    known = {"stages": StageOptions(sizes=[(4, 2)]), "cv": 2, "random_state": 0}
    clf = BudgetedClassifier(LinearDiscriminantAnalysis(), loss=[[0.0, 9.0], [30.0, 0.0]], **known)
    thrifty.save(clf.fit(table[:300].drop(columns="label"), table["label"][:300]), folder / "p.thrifty")
    table[300:].to_csv(folder / "new.csv", index=False)
    return clf, table[300:], folder


def test_the_frontier_of_priced_mistakes_tells_both_parts_of_the_bill(run, priced):
    clf, _, folder = priced
    said = run("frontier", folder / "p.thrifty", "--plot", folder / "f.png").out
    assert all(words in said for words in ("tests", "mistakes", "total cost", "balanced accuracy"))
    assert (folder / "f.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("frontier", folder / "p.thrifty", "--json").out)
    totals = clf.frontier_.cost - clf.frontier_.score
    assert told["least_total"] == np.argmin(totals)
    right = told["chosen"]["measures"]["accuracy"]["value"]
    assert 0.5 < right <= 1.0  # shares of right answers, not what they cost


def test_a_report_of_priced_mistakes_needs_the_name_of_the_target_and_adds_up(run, refused, priced):
    clf, table, folder = priced
    asked = ["report", folder / "p.thrifty", folder / "new.csv", "-o", folder / "r.html"]
    assert "Give it with --target" in refused(*asked)
    X, y = table.drop(columns="label"), table["label"]
    said = clf.predict(X)
    mistakes = np.mean(9.0 * ((y == "no") & (said == "yes")) + 30.0 * ((y == "yes") & (said == "no")))
    told = json.loads(run(*asked, "--target", "label", "--json").out)
    assert told["measures"]["cost of mistakes"]["value"] == pytest.approx(mistakes)
    assert told["measures"]["total"]["value"] == pytest.approx(clf.cost(X).mean() + mistakes)
    assert told["measures"]["accuracy"]["value"] == pytest.approx(np.mean(said == y))
    assert "What tests and mistakes cost" in (folder / "r.html").read_text()
    assert "The fit expected a cost of mistakes of" in run(*asked, "--target", "label").out


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
    assert told["mean_cost"] == pytest.approx(answers["cost"].mean())
    assert told["measures"]["accuracy"]["value"] == pytest.approx(
        (answers["answer"] == pd.read_csv(files.test)["label"]).mean()
    )
    assert "an RBF support vector machine" in page
    facts = json.loads(
        re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    )
    at = facts["marked"]["deployed"]
    assert facts["start"] == at
    assert facts["cost"][at] == pytest.approx(told["mean_cost"], abs=1e-3)
    assert facts["score"][at] == pytest.approx(told["measures"]["accuracy"]["value"], abs=1e-3)
    assert f"wrote {out}" in run("report", files.certified, files.test, "-o", out).out


def test_a_label_that_is_a_number_comes_back_as_a_number(run, small_fits, make_table, tmp_path):
    frame = make_table(600)
    frame["label"] = np.where(frame["label"] == "yes", 7, -3)
    frame.to_csv(tmp_path / "train.csv", index=False)
    assert run(*FIT, tmp_path / "train.csv", "--budget", 4, "-o", tmp_path / "s.thrifty").code == 0
    run("predict", tmp_path / "s.thrifty", tmp_path / "train.csv", "-o", tmp_path / "a.csv")
    assert set(pd.read_csv(tmp_path / "a.csv")["answer"]) == {7, -3}


def test_help_loads_nothing_heavy():
    code = "import sys; from thrifty.cli import main; main(['fit', '--help']); sys.exit(sum(m in sys.modules for m in"
    heavy = "('numpy', 'pandas', 'sklearn', 'numba', 'rich')))"
    assert (
        subprocess.run([sys.executable, "-c", f"{code} {heavy}"], capture_output=True, check=False).returncode
        == 0
    )


def test_the_table_of_points_fits_a_narrow_screen_and_progress_is_not_on_standard_output(run, files):
    said = run("frontier", files.system)
    assert said.err == ""
    assert max(len(line) for line in said.out.splitlines() if "│" in line) <= 80


@pytest.mark.parametrize(("options", "written"), [((), "'=1+1"), (("--raw",), "=1+1")])
def test_labels_that_a_spreadsheet_would_run_are_quoted_unless_raw_text_is_asked_for(
    run, files, monkeypatch, options, written
):
    def answers(_, cells):
        n_rows = len(cells)
        return {"answer": ["=1+1"] * n_rows, "probability": 0.5, "stage": 0, "cost": -1.5}

    monkeypatch.setattr("thrifty.cli.system.answers_of", answers)
    said = run("predict", files.system, files.new, "-o", "-", *options)
    assert said.out.splitlines()[1] == f"{written},0.5,0,-1.5"


def test_a_budget_without_a_mix_is_spent_as_in_the_library_and_no_mix_needs_one(run, files, tmp_path):
    system = thrifty.load(files.system)
    budget = float(system.chain_.policy.cost[:2].mean().round(3))
    told = run(
        "predict", files.system, files.new, "--budget", budget, "--no-mix", "-o", tmp_path / "a.csv", "--json"
    )
    one = system.at(budget=budget, mix=False)
    assert json.loads(told.out)["mean_cost"] == pytest.approx(one.cost(pd.read_csv(files.new)).mean())
    assert one.share_by_lot_ == 0.0
    refused = run("predict", files.system, files.new, "--no-mix", "-o", tmp_path / "b.csv")
    assert refused.code == 2
    assert "--no-mix is for a --budget" in refused.err
