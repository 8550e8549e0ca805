"""Buying for systems that read tables: in Python, one row at a time, and with ``thrifty buy`` from a database."""

import io
import sqlite3
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from thrifty.bundle.save_load import load
from thrifty.errors import InvalidInputError, PurchaseFailedError


@pytest.fixture(scope="module")
def known(files):
    return load(files.system)


@pytest.fixture(scope="module")
def new(files):
    return pd.read_csv(files.new)


@pytest.fixture(scope="module")
def database(new, tmp_path_factory):
    """The new rows in a database, with keys that are text, and one row that the file of keys does not have there."""
    path = tmp_path_factory.mktemp("database") / "people.db"
    keys = [f"{number:03d}" for number in range(len(new))]
    with sqlite3.connect(path) as people:
        new.assign(person=keys).to_sql("people", people, index=False)
    pd.DataFrame({"person": [*keys, "nobody"]}).to_csv(path.parent / "keys.csv", index=False)
    return path


@pytest.mark.slow
def test_a_system_buys_text_as_the_table_has_it_and_answers_as_from_the_table(known, new, answers_to):
    expected = answers_to(known, new)
    for source in (new.to_dict("series"), lambda rows, names: new.loc[rows, names[::-1]]):
        receipt = known.buy(source, n_rows=len(new))
        assert receipt.answer.tolist() == expected["answer"].tolist()
        np.testing.assert_allclose(receipt.cost, expected["cost"])
    assert "colour" in receipt.names


def test_one_row_at_a_time_is_given_text(known, new, answers_to):
    expected = answers_to(known, new)
    for row in range(6):
        session = known.start(row)
        while session.next_purchase is not None:
            session.give({name: new[name][row] for name in session.next_purchase.columns})
        assert session.answer == expected["answer"][row]
        assert session.cost == pytest.approx(expected["cost"][row])


def test_a_cell_that_cannot_be_read_fails_for_its_row_alone(known, new):
    read = next(name for name in known.feature_names_in_[known.features_] if name not in ("colour", "old"))
    odd = new.astype({read: object})
    odd.loc[3, read] = "soon"
    odd["colour"] = odd["colour"].where(odd.index != 5, "mauve")
    wide = known.at(max_loss=0.0) if not known.buy(new.to_dict("series")).bought[5].any() else known
    receipt = wide.buy(odd.to_dict("series"))
    assert "must hold numbers; got 'soon'" in receipt.reason[3]
    assert sum(reason is not None for reason in receipt.reason) <= 2
    with pytest.raises(PurchaseFailedError, match="soon"):
        wide.buy(odd.to_dict("series"), on_failure="raise")
    session = wide.start()
    with pytest.raises(InvalidInputError, match="number"):
        session.give({read: "soon"})


@pytest.mark.slow
def test_the_command_writes_a_receipt_for_each_row(files, known, new, database, run, answers_to, tmp_path):
    out, keys = tmp_path / "receipts.csv", database.parent / "keys.csv"
    source = f"sqlite:{database}?table=people&key=person"
    said = run("buy", files.system, keys, "--source", source, "-o", out)
    assert said.code == 0, said.err
    assert "1 rows failed; row 51: people has no row with person = 'nobody'" in " ".join(said.err.split())
    receipts, expected = pd.read_csv(out, dtype={"person": str}), answers_to(known, new)
    assert receipts["person"].tolist()[7] == "007"
    assert receipts["answer"].tolist()[:50] == expected["answer"].tolist()
    assert receipts["stage"].tolist()[:50] == expected["stage"].tolist()
    np.testing.assert_allclose(receipts["cost"][:50], expected["cost"])
    assert receipts["bought"].notna()[:50].all()
    assert receipts.loc[50, ["answer", "bought"]].isna().all()
    assert receipts.loc[50, "cost"] == 0.0


@pytest.mark.slow
def test_the_command_ends_where_nothing_may_fail_and_keeps_what_was_bought(
    files, database, refused, tmp_path
):
    out, keys = tmp_path / "receipts.csv", database.parent / "keys.csv"
    source = f"sqlite:{database}?table=people&key=person"
    told = refused("buy", files.system, keys, "--source", source, "-o", out, "--on-failure", "raise")
    assert "row 51: people has no row" in told
    assert len(pd.read_csv(out)) == 51


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("postgres://people", "must have the form sqlite:PATH?table=TABLE&key=COLUMN"),
        ("sqlite:{path}?table=people", "must have the form"),
        ("sqlite:none.db?table=people&key=person", "there is none"),
        ("sqlite:{path}?table=folk&key=person", "no such table"),
        ("sqlite:{path}?table=people&key=age", "must have the column 'age'"),
    ],
)
def test_a_source_that_cannot_be_asked_is_refused_before_anything_is_bought(
    files, database, refused, tmp_path, source, says
):
    told = refused(
        "buy",
        files.system,
        database.parent / "keys.csv",
        "--source",
        source.format(path=database),
        "-o",
        tmp_path / "receipts.csv",
    )
    assert says in told


def test_keys_can_come_from_standard_input(files, database, run, tmp_path, monkeypatch):
    keys, written = database.parent / "keys.csv", []
    for rows in (keys, "-"):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(keys.read_bytes())))
        out = tmp_path / "receipts.csv"
        source = f"sqlite:{database}?table=people&key=person"
        assert run("buy", files.system, rows, "--source", source, "-o", out).code == 0
        written.append(out.read_bytes())
    assert written[0] == written[1]
