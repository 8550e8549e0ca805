"""Commands on a table of documents, whose target is their relevance to a query."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge

from thrifty import BudgetedRanker, StageOptions, load, save
from thrifty.cli import main
from thrifty.cli.system import Rows, expected_of, measured
from thrifty.engine.full import crossfit
from thrifty.engine.table.training import targets_of
from thrifty.engine.tasks.ranking import ndcg_at, ranking_of

pytestmark = pytest.mark.slow


def documents(n_queries, seed=0):
    """Documents of queries of different length, graded by their title, their body and chance."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(n_queries), rng.integers(4, 9, n_queries))
    X = rng.normal(size=(len(query), 3)).round(3)
    grade = np.digitize(X @ [1.0, 0.7, 0.2] + 0.3 * rng.normal(size=len(query)), [0.6, 1.5])
    frame = pd.DataFrame(X, columns=["title", "body", "links"])
    return frame.assign(qid=[f"q{one}" for one in query], relevance=grade)


@pytest.fixture(scope="module")
def ranked(tmp_path_factory, while_fits_are_small):
    """A folder with documents and what a fit made of them; nothing changes it."""
    folder = tmp_path_factory.mktemp("documents")
    train, test, system = folder / "docs.csv", folder / "test.csv", folder / "ranker.thrifty"
    documents(60).to_csv(train, index=False)
    documents(30, seed=1).to_csv(test, index=False)
    options = (
        "--target relevance --query qid --task ranking --metric ndcg@4 --budget 1.6 --full boosting --jobs 1"
    )
    with while_fits_are_small():
        assert main(["fit", str(train), *options.split(), "-o", str(system)]) == 0
    return SimpleNamespace(train=train, test=test, system=system, known=load(system))


def test_documents_are_ranked_by_every_command_from_the_file(ranked, run, tmp_path):
    known, out = ranked.known, tmp_path / "a.csv"
    assert known.chain_.schema.names == ("title", "body", "links")
    told = run("predict", ranked.system, ranked.test, "-o", out)
    assert told.code == 0, told.err
    assert "does not read" not in told.err
    answers, new = pd.read_csv(out), pd.read_csv(ranked.test)
    X = new[list(known.chain_.schema.names)]
    assert list(answers.columns) == ["query", "answer", "stage", "cost"]
    np.testing.assert_allclose(answers["answer"], known.predict(X))
    per_query = known.query_cost(X, new["qid"].to_numpy())
    assert answers.groupby("query", sort=False)["cost"].sum().tolist() == pytest.approx(per_query.tolist())
    assert f"per document and {np.round(per_query.mean(), 3):g} per query" in told.out
    moved = json.loads(run("predict", ranked.system, ranked.test, "-o", out, "--budget", 1.2, "--json").out)
    assert moved["expected_score"] < known.expected_score_
    assert moved["mean_cost_per_query"] < per_query.mean()
    assert f"points on {known.frontier_.n_rows} queries" in run("frontier", ranked.system).out
    assert "probability" not in run("explain", ranked.system, ranked.test, "--row", 1).out


def test_a_fit_expects_the_metric_and_the_cost_of_queries_that_the_ranker_expects(ranked, run):
    facts, ranker = expected_of(ranked.known), ranked.known
    train = pd.read_csv(ranked.train)
    assert (facts.n_queries, facts.n_rows) == (train["qid"].nunique(), len(train))
    assert facts.score.value == pytest.approx([ranker.expected_score_])
    assert facts.cost.value == pytest.approx([ranker.expected_cost_])
    by_chance = ndcg_at(train["relevance"], np.zeros(len(train)), train["qid"], k=4)
    assert facts.score.constant == pytest.approx(np.nanmean(by_chance))
    assert facts.score.constant < facts.score.low[0] < facts.score.value[0] < facts.score.high[0] < 1
    per_query = ranker.expected_cost_ * len(train) / train["qid"].nunique()
    said = run("frontier", ranked.system)
    assert re.search(rf"mean cost of a query .*{per_query:.2f}", said.out)
    told = json.loads(run("frontier", ranked.system, "--json").out)["chosen"]
    assert told["measures"]["NDCG@4"]["full"] > facts.score.constant
    assert {"queries", "score_interval_1000_queries"} <= set(told)


def test_a_report_of_documents_counts_queries_and_scores_as_the_ranker_does(ranked, run, refused, tmp_path):
    known, new, page = ranked.known, pd.read_csv(ranked.test), tmp_path / "r.html"
    X, y = new[list(known.chain_.schema.names)], new["relevance"].to_numpy()
    labels = targets_of(new, "relevance", np.empty(0), "qid")
    facts, _, _ = measured(known, Rows(new, known.chain_.schema.cells(new), ranked.test, labels), ())
    score = known.score(X, y, qid=new["qid"].to_numpy())
    assert facts.score.value[facts.marked["deployed"]] == pytest.approx(score)
    lead = np.array(facts.score.value) - facts.score.full
    assert np.all(np.array(facts.lead.low) <= lead)
    assert np.all(lead <= np.array(facts.lead.high))
    assert (facts.n_rows, facts.n_queries) == (len(new), 30)
    told = run("report", ranked.system, ranked.test, "-o", page)
    assert f"On {len(new)} rows of 30 queries:" in told.out
    assert f"{score:.3f} (" in told.out
    words = page.read_text()
    for part in ("Orders by chance would have", "documents of 30 queries", "resamples of the queries"):
        assert part in words
    assert "the file names 'qid'" in refused("report", ranked.system, ranked.test, "--query", "id")
    assert "Leave 'title' out" in refused("report", ranked.system, ranked.test, "-o", page, "--by", "title")


def test_a_ranker_that_was_saved_by_itself_knows_the_column_of_its_queries(run, refused, tmp_path):
    frame, new = documents(24), documents(12, seed=1)
    names, test, file = ["title", "body", "links"], tmp_path / "test.csv", tmp_path / "ranker.thrifty"
    new.to_csv(test, index=False)
    ranker = BudgetedRanker(
        Ridge(), metric="ndcg@4", stages=StageOptions(max_stages=2, sizes=[(8, 3)]), cv=2, random_state=0
    )
    ranker.fit(frame[names], frame["relevance"], qid=frame["qid"].rename("search"))
    save(ranker, file)
    assert load(file).query_name_ == "search"
    told = ("report", file, test, "--target", "relevance", "-o", tmp_path / "r.html")
    assert "has no column 'search', which should hold the query" in refused(*told)
    measured = json.loads(run(*told, "--query", "qid", "--json").out)
    expected = ranker.score(new[names], new["relevance"], qid=new["qid"].to_numpy())
    assert (measured["queries"], measured["measures"]["NDCG@4"]["value"]) == (12, pytest.approx(expected))


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, "--task ranking", "--query must name the column with the query of each row"),
        ({}, "--query id", "--query must name a column of the table besides 'relevance'"),
        ({}, "--query qid --task number", "--query is for the task ranking"),
        ({}, "--metric ap@4 --ignore qid", "--metric is for documents that are ranked"),
        ({}, "--query qid --metric ndcg@0", "metric must be"),
        ({}, "--query qid --full svm", "here documents are ranked"),
        ({}, "--query qid --max-loss 0.01", "held-out queries cannot show a loss"),
        ({"qid": ["a", "b"] * 120}, "--query qid", "'a' comes back in row 3. Sort the table by 'qid'"),
        ({"qid": [None] * 240}, "--query qid", "column 'qid', the query, is missing in 240 of 240 rows"),
        ({"qid": ["a"] * 120 + ["b"] * 120}, "--query qid", "at least 30 queries"),
        ({"relevance": 0.5}, "--query qid", "whole numbers from 0 to 31; got 0.5 in row 1"),
    ],
)
def test_documents_that_cannot_be_ranked_are_one_sentence(refused, tmp_path, change, options, words):
    documents(60).iloc[:240].assign(**change).to_csv(tmp_path / "t.csv", index=False)
    told = refused(
        "fit", tmp_path / "t.csv", "--target", "relevance", *options.split(), "-o", tmp_path / "s.thrifty"
    )
    assert words in told


def test_the_full_model_of_documents_is_chosen_by_the_metric_of_whole_queries(monkeypatch):
    frame = documents(60)
    X = frame[["title", "body", "links"]].to_numpy()
    y = np.column_stack([frame["relevance"], frame["qid"].str[1:].astype(int)])
    kinds = {"forest": DummyRegressor(), "boosting": Ridge()}
    monkeypatch.setattr(crossfit, "_eligible", lambda *_: list(kinds))
    monkeypatch.setattr(crossfit, "new_model", lambda kind, *_: kinds[kind])
    task = ranking_of(y, "pointwise", "ndcg@4", 0.01)
    silent = {"progress": lambda *_: None}
    found = crossfit.compare_kinds(X, y, task, seed=0, n_jobs=1, **silent)
    assert found.best == "boosting"
    by_chance = ndcg_at(y[:, 0], np.zeros(len(y)), y[:, 1], k=4)
    assert found.scores["forest"] == pytest.approx(np.nanmean(by_chance))  # one score for all is no order
    monkeypatch.setattr(crossfit, "SAMPLE", 100)
    chosen = crossfit._sample(X, 0, y[:, 1])
    cut = [one for one in np.unique(y[chosen, 1]) if (y[chosen, 1] == one).sum() < (y[:, 1] == one).sum()]
    assert len(chosen) == 100
    assert len(cut) <= 1


@pytest.mark.parametrize(("kind", "name"), [("lightgbm", "LGBMRanker"), ("xgboost", "XGBRanker")])
def test_a_booster_that_can_rank_is_asked_to(kind, name):
    pytest.importorskip(kind)
    y = np.column_stack([[0, 1, 0, 2], [0, 0, 1, 1]])
    model = crossfit.new_model(kind, 0, 1, ranking_of(y, "pointwise", "ndcg@4", 0.01))
    assert type(model).__name__ == name
