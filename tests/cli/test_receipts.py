"""Receipts close the loop: ``thrifty buy --explore`` writes what ``thrifty fit --labels`` learns from."""

import sqlite3

import pandas as pd
import pytest

from thrifty import Receipts, fit_table
from thrifty.bundle.save_load import load
from thrifty.errors import InvalidInputError, InvalidParameterError


@pytest.fixture(scope="module")
def bought(files, tmp_path_factory):
    """A folder with receipts of two months, and their outcomes."""
    folder = tmp_path_factory.mktemp("months")
    (folder / "receipts").mkdir()
    people = pd.concat([pd.read_csv(files.test), pd.read_csv(files.train)], ignore_index=True)
    people.insert(0, "person", [f"{number:04d}" for number in range(len(people))])
    with sqlite3.connect(folder / "people.db") as database:
        people.drop(columns="label").to_sql("people", database, index=False)
    people[["person", "label"]].to_csv(folder / "outcomes.csv", index=False)
    for month, part in (("march", people[:400]), ("april", people[400:])):
        part[["person"]].to_csv(folder / f"{month}.csv", index=False)
    return folder


def buy(run, files, bought, month, *options):
    receipts = bought / "receipts" / f"{month}.csv"
    source = f"sqlite:{bought / 'people.db'}?table=people&key=person"
    said = run("buy", files.system, bought / f"{month}.csv", "--source", source, "-o", receipts, *options)
    assert said.code == 0, said.err
    return receipts


@pytest.mark.slow
def test_a_fit_of_the_command_learns_from_receipts_of_two_months(
    run, files, bought, tmp_path, while_fits_are_small
):
    march = buy(run, files, bought, "march", "--budget", "4", "--explore", "0.4", "--row-key", "person")
    buy(run, files, bought, "april", "--budget", "4", "--explore", "0.4", "--row-key", "person")
    receipts = Receipts.read(march, row_key="person")
    assert receipts.key[7] == "0007"
    assert 0.0 < receipts.propensity.to_numpy().min() < 0.5
    common = [
        "--labels",
        bought / "outcomes.csv",
        "--row-key",
        "person",
        "--bought",
        "known",
        "--full",
        "svm",
    ]
    out = tmp_path / "next.thrifty"
    options = ["--prices", files.costs, "--budget", "3", "--explore", "0.1", "-o", out]
    with while_fits_are_small():
        said = run("fit", bought / "receipts", *common, *options)
    assert said.code == 0, said.err
    assert load(out).chain_.policy.explore == 0.1
    system, people = load(out), pd.read_csv(files.test)
    assert system.record_.target == "label"
    assert system.record_.row_key == "person"
    assert {*system.feature_names_in_} == {*people.columns} - {"label"}
    assert (
        system.score(people.drop(columns="label"), people["label"])
        > people["label"].value_counts(normalize=True).max()
    )


def test_exploring_needs_a_budget_and_a_share(refused, files, bought, tmp_path):
    source = f"sqlite:{bought / 'people.db'}?table=people&key=person"
    common = ["buy", files.system, bought / "march.csv", "--source", source, "-o", tmp_path / "receipts.csv"]
    assert "--explore is for a --budget alone" in refused(*common, "--explore", "0.1")
    assert "explore must lie in [0, 1)" in refused(*common, "--budget", "4", "--explore", "1.5")
    told = refused(
        "predict", files.system, files.new, "-o", "-", "--budget", "4", "--explore", "0.1", "--hold-budget"
    )
    assert "Leave --explore out" in told


def test_labels_that_do_not_fit_receipts_are_refused(bought):
    table = pd.DataFrame(
        {"id": [1, 2], "a": [0.5, 1.0], "answer": [1, 0], "cost": 1.0, "bought": "a", "propensity": "1"}
    )
    receipts = Receipts.from_pandas(table, "id")
    labels = pd.DataFrame({"id": [1, 2], "y": [0, 1], "z": [1, 1]})
    with pytest.raises(InvalidParameterError, match="row_key must name"):
        fit_table(receipts, labels=labels)
    with pytest.raises(InvalidParameterError, match="one other, the target"):
        fit_table(receipts, labels=labels, row_key="id")
    with pytest.raises(InvalidParameterError, match="a line for each 'id'"):
        fit_table(receipts, labels=labels.assign(id=1), row_key="id", target="y")
    with pytest.raises(InvalidInputError, match="1 of 2 rows have no label"):
        fit_table(receipts, labels=labels[:1], row_key="id", target="y")
