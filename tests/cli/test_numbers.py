"""Commands on a table whose target is a number."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import d2_pinball_score, mean_absolute_error, r2_score, root_mean_squared_error

from thrifty.cli.options import Goal
from thrifty.cli.system import (
    Rows,
    answers_numbers,
    at_operating_point,
    fit_in_words,
    frontier_in_words,
    report_in_words,
)
from thrifty.cli.system import measured as measured_rows
from thrifty.engine.full import crossfit
from thrifty.engine.full.crossfit import compare_kinds, new_model
from thrifty.engine.tasks.regression import regression_of
from thrifty.reporting.measure import expected

pytestmark = pytest.mark.slow


def test_a_quantile_goes_through_every_command(run, small_fits, make_bikes, tmp_path):
    for name, n_rows, seed in (("train", 250, 0), ("test", 120, 1)):
        make_bikes(n_rows, seed).to_csv(tmp_path / f"{name}.csv", index=False)
    system, test, out = tmp_path / "s.thrifty", tmp_path / "test.csv", tmp_path / "a.csv"
    common = ("--target", "count", "--full", "boosting", "--jobs", 1)
    said = run("fit", tmp_path / "train.csv", *common, "--loss", "pinball:0.8", "--budget", 2, "-o", system)
    assert said.code == 0, said.err
    assert all(name in said.out for name in ("D2 of the pinball loss (quantile 0.8)", "R2", "RMSE", "MAE"))
    assert "--task classes would predict labels" in said.err
    assert run("predict", system, test, "-o", out).code == 0
    answers, truth = pd.read_csv(out), pd.read_csv(test)["count"]
    assert list(answers.columns) == ["answer", "stage", "cost"]
    told = json.loads(run("report", system, test, "-o", tmp_path / "r.html", "--json").out)
    measures = {name: one["value"] for name, one in told["measures"].items()}
    assert measures[told["score"]] == pytest.approx(d2_pinball_score(truth, answers["answer"], alpha=0.8))
    assert (truth <= answers["answer"]).mean() > 0.65
    assert measures["MAE"] == pytest.approx(mean_absolute_error(truth, answers["answer"]))
    assert measures["RMSE"] == pytest.approx(root_mean_squared_error(truth, answers["answer"]))
    moved = json.loads(run("predict", system, test, "-o", out, "--budget", 1.2, "--json").out)
    assert moved["expected_score"] < told["expected"]["measures"][told["score"]]["value"]
    assert "probability" not in run("explain", system, test, "--row", 1).out
    assert "D2 of the pinball" in run("frontier", system).out
    assert "D2 of the pinball loss (quantile 0.8)" in (tmp_path / "r.html").read_text()


def test_a_fit_of_numbers_speaks_of_r2_and_not_of_classes(bike_system, capsys, tmp_path):
    out, facts = tmp_path / "s.thrifty", expected(bike_system)
    out.write_bytes(b"")
    fit_in_words(bike_system, facts, out)
    frontier_in_words(bike_system, bike_system.frontier_, facts.n_rows, out)
    words = capsys.readouterr().out
    low, value, high = (one[0] for one in (facts.score.low, facts.score.value, facts.score.high))
    assert f"{value:.3f} ({low:.3f} to {high:.3f})" in words
    for name in ("constant", "new rows have an R2 of"):
        assert name in words
    for name in ("accuracy", "AUC", "recall", "majority", "probability"):
        assert name not in words


def test_an_explanation_of_numbers_has_no_probability(bike_system, make_bikes):
    found = bike_system.explain(make_bikes(3, 1).drop(columns="count"))
    words = str(found[0])
    assert f"answered {found[0].answer:.6g} for" in words
    assert "probability" not in words
    assert "sure" not in words
    told = found[0].as_dict()
    json.dumps(told, allow_nan=False)
    assert "probability" not in told


def test_a_report_of_numbers_measures_as_scikit_learn_does(
    bike_system, make_bikes, answers_to, capsys, tmp_path
):
    new, page = make_bikes(200, 1), tmp_path / "r.html"
    rows = Rows(new, bike_system.chain_.schema.cells(new), page, new["count"].to_numpy())
    facts, _, sentences = measured_rows(bike_system, rows, ["weather"])
    answers = pd.DataFrame(answers_to(bike_system, new))
    y, said = new["count"], answers["answer"]
    measured = {name: one["value"] for name, one in facts.results(facts.start)["measures"].items()}
    assert measured["R2"] == pytest.approx(r2_score(y, said))
    assert measured["RMSE"] == pytest.approx(root_mean_squared_error(y, said))
    assert measured["MAE"] == pytest.approx(mean_absolute_error(y, said))
    page.write_text("")
    report_in_words(facts, sentences, page)
    words = capsys.readouterr().out
    assert f"{measured['R2']:.3f}" in words
    assert "The fit expected an R2 of" in words
    assert "accuracy" not in words
    told = answers_numbers(bike_system, answers, tmp_path / "a.csv", None)
    assert told["answers"] == {"min": said.min(), "mean": pytest.approx(np.mean(said)), "max": said.max()}
    assert list(answers) == ["answer", "stage", "cost"]
    cheaper = at_operating_point(bike_system, Goal(budget=1.2))
    assert expected(cheaper).score.value < expected(bike_system).score.value


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("count", (), "column 'count', the label, is missing in 1 of 100 rows, the first of them row 3"),
        ("same", ("--task", "ranking"), "--query must name the column with the query"),
        ("same", ("--task", "number"), "column 'same' must hold different numbers; all 100 are 1"),
        ("weather", ("--task", "number"), "column 'weather' must hold finite numbers"),
    ],
)
def test_a_target_that_is_no_number_is_one_sentence(refused, make_bikes, tmp_path, target, options, words):
    frame = make_bikes(100).assign(same=1)
    frame.loc[2, "count"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "s.thrifty"
    assert words in refused("fit", tmp_path / "t.csv", "--target", target, *options, "-o", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--full", "svm"), "the full model svm answers with classes, and here numbers are predicted"),
        (
            ("--task", "classes", "--loss", "absolute"),
            "--loss is for a target of numbers; got absolute",
        ),
        (
            ("--task", "classes", "--loss", "pinball:0.9"),
            "--loss is for a target of numbers; got pinball:0.9",
        ),
        (("--loss", "cubic"), "loss must be squared, absolute, or pinball:Q .*got cubic"),
        (("--loss", "pinball"), "a quantile Q between 0 and 1, such as pinball:0.9, .*got pinball, "),
        (("--loss", "pinball:1"), "a quantile Q between 0 and 1, .*got pinball:1, "),
    ],
)
def test_what_numbers_cannot_be_fitted_with_is_refused_before_anything_is_fitted(
    refused, make_bikes, tmp_path, options, words
):
    make_bikes(250).to_csv(tmp_path / "t.csv", index=False)
    how = ("--target", "count", "--full", "boosting", *options, "-o", tmp_path / "s.thrifty")
    assert re.search(words, refused("fit", tmp_path / "t.csv", *how))


def test_few_different_rows_are_refused(refused, make_bikes, tmp_path):
    pd.concat([make_bikes(40), make_bikes(40)]).to_csv(tmp_path / "t.csv", index=False)
    how = ("--target", "count", "--task", "number", "--full", "boosting", "-o", tmp_path / "s.thrifty")
    told = refused("fit", tmp_path / "t.csv", *how)
    assert re.search("at least 60 different rows.*it has 40 among 80", told)


@pytest.mark.parametrize("kind", ["boosting", "xgboost", "lightgbm"])
def test_a_full_model_of_a_quantile_is_above_that_share_of_the_targets(kind):
    pytest.importorskip(kind if kind != "boosting" else "sklearn")
    y = np.random.default_rng(0).exponential(size=400)
    X = np.repeat([[0.0], [1.0]], 200, axis=0)
    model = new_model(kind, 0, 1, regression_of(y, "pinball", quantile=0.8))
    assert np.mean(y <= model.fit(X, y).predict(X)) == pytest.approx(0.8, abs=0.02)


def test_the_full_model_of_numbers_is_chosen_by_r2(monkeypatch):
    chance = np.random.default_rng(0)
    X = chance.normal(size=(300, 2))
    y = 10 + 5 * X[:, 0] + 0.1 * chance.normal(size=300)
    strengths = {"forest": 1e6, "boosting": 1e-3}
    monkeypatch.setattr(crossfit, "_eligible", lambda *_: list(strengths))
    monkeypatch.setattr(crossfit, "new_model", lambda kind, *_: Ridge(strengths[kind]))
    task = regression_of(y, "squared")
    found = compare_kinds(X, y, task, seed=0, n_jobs=1, progress=lambda *_: None)
    assert found.best == "boosting"
    assert found.scores["forest"] < 0.1 < 0.99 < found.scores["boosting"] < 1
