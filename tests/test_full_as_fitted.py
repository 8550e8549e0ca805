"""The full model gets the table that it was fitted on, whichever door a row comes through.

Full models here refuse any table whose columns are not declared as they were at the fit: categories with their levels
in order, truth values, dates with and without a time zone, narrow numbers, text.
"""

import asyncio
import copy
import json
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import thrifty
from thrifty import BudgetedClassifier, ConfidenceRouter, Policy, SqlSource, StageOptions
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.engine.purchases.sources import RetryingSource
from thrifty.engine.table.columns import plain_table
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table
from thrifty.errors import FullModelFailedError, FullModelFailedWarning, InvalidInputError
from thrifty.serve.config import Config
from thrifty.serve.gateway import Gateway

N_NEW, N_ONE_BY_ONE = 500, 40
TOLERANCE = 1e-9
COLOURS, GRADES = (
    ["red", "amber", "violet", "blue"],
    ["low", "mid", "high"],
)  # neither is in alphabetical order
TYPES = {
    "age": "int32",
    "rate": "float32",
    "visits": "Int64",
    "colour": pd.CategoricalDtype(COLOURS),
    "grade": pd.CategoricalDtype(GRADES, ordered=True),
    "zone": pd.CategoricalDtype([30, 10, 20]),
    "city": "str",
    "member": "bool",
    "since": "datetime64[us]",
    "seen": "datetime64[ns, Europe/Berlin]",
}


def rows_of(n_rows, seed):
    """Rows, and whether somebody buys, which every column says something about."""
    rng = np.random.default_rng(seed)
    pick = lambda values, *p: rng.choice(np.array(values, dtype=object), n_rows, p=p or None)  # noqa: E731
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n_rows),
            "rate": rng.normal(size=n_rows).round(2),
            "visits": pd.array(rng.integers(0, 9, n_rows), dtype="Int64"),
            "colour": pick(COLOURS),
            "grade": pick(GRADES),
            "zone": pick([10, 20, 30]),
            "city": pick(["Ulm", "Bonn", "Kiel"]),
            "member": rng.random(n_rows) < 0.5,
            "since": pd.Timestamp("2019-05-01") + pd.to_timedelta(rng.integers(0, 900, n_rows), unit="D"),
            "seen": pd.Timestamp("2024-01-01T06:30", tz="Europe/Berlin")
            + pd.to_timedelta(rng.integers(0, 90_000, n_rows), unit="min"),
        }
    ).astype(TYPES)
    says = {"red": 1.0, "amber": -1.0, "violet": 0.7, "blue": -0.7, "low": -0.8, "mid": 0.0, "high": 0.8}
    z = table["rate"].astype(float) + table["colour"].map(says).astype(float) + table["member"]
    z += table["grade"].map(says).astype(float) * (table["zone"].astype(int) - 20) / 10
    z += (table["city"] == "Bonn") - 0.5 + (table["since"] < "2020-06-01") - (table["seen"].dt.hour < 12)
    y = (z + 0.5 * rng.normal(size=n_rows) > 0.6).to_numpy().astype(int)
    holes = rng.random((n_rows, 4)) < 0.03
    for place, name in enumerate(["visits", "colour", "city", "since"]):
        table.loc[holes[:, place], name] = None
    return table, y


def as_days(table):
    """A table without dates, for models that read none; it refuses a table of other types than the fit's."""
    for name, dtype in TYPES.items():
        found = table[name].dtype
        if found != dtype or (str(dtype) == "category" and not found.categories.equals(dtype.categories)):
            raise TypeError(f"{name} is {found!r}, and was {dtype!r}")
    first = {"since": pd.Timestamp("2019-01-01"), "seen": pd.Timestamp("2024-01-01", tz="Europe/Berlin")}
    return table.assign(
        visits=table["visits"].astype("float64"),
        city=table["city"].map({"Bonn": 0.0, "Kiel": 1.0, "Ulm": 2.0, "Rome": 3.0}).astype(float),
        **{name: (table[name] - day) / pd.Timedelta(days=1) for name, day in first.items()},
    )


def as_text(table):
    """A table of text and numbers."""
    table = as_days(table).assign(city=table["city"])
    numbers = table[["age", "rate", "visits", "member", "since", "seen"]].astype(float).fillna(-1.0)
    return pd.concat([numbers, table[["colour", "grade", "zone", "city"]].astype(object)], axis=1)


def full_models():
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    small = {"n_estimators": 15, "random_state": 0, "n_jobs": 1}
    words = ["colour", "grade", "zone", "city"]
    encode = ColumnTransformer(
        [("words", OneHotEncoder(handle_unknown="ignore"), words)], remainder="passthrough"
    )
    return {
        "LightGBM": make_pipeline(
            FunctionTransformer(as_days), lightgbm.LGBMClassifier(**small, num_leaves=7, verbose=-1)
        ),
        "XGBoost": make_pipeline(
            FunctionTransformer(as_days), xgboost.XGBClassifier(**small, max_depth=3, enable_categorical=True)
        ),
        "scikit-learn": make_pipeline(
            FunctionTransformer(as_text), encode, LogisticRegression(solver="newton-cholesky")
        ),
    }


PRICES = {"age": 0.5, "rate": 1.0, "seen": 4.0, **dict.fromkeys(list(TYPES)[2:-1], 2.0)}


@pytest.fixture(scope="module", params=["LightGBM", "XGBoost", "scikit-learn"])
def fitted(request, while_fits_are_small):
    table, y = rows_of(1_000, seed=0)
    full = full_models()[request.param]
    small = {"stages": StageOptions(sizes=[(6, 2)]), "cv": 2, "random_state": 0}
    with while_fits_are_small():
        clf = BudgetedClassifier(full, feature_costs=PRICES, **small).fit(table, y)
    # The first single point, at which nothing is left to chance, that sends some rows to the full model.
    policy = clf.chain_.policy
    for point in range(len(policy)):
        clf.chain_ = clf.chain_.at(policy.at(point))
        if np.mean(clf.route(table) == clf.chain_.n_stages) > 0.15:
            return clf
    raise AssertionError("no point asks the full model")


@pytest.fixture(scope="module")
def new():
    """Rows of types of their own: there are categories and cities that the fit has not seen, in another order."""
    table, _ = rows_of(N_NEW, seed=1)
    table["colour"] = (
        table["colour"].cat.add_categories("pink").cat.reorder_categories(["pink", *COLOURS[::-1]])
    )
    table.loc[::50, "colour"] = "pink"
    table.loc[::70, "city"] = "Rome"
    return table


@pytest.fixture(scope="module")
def plain(new):
    """The same cells as a file or a request has them: text, numbers and nothing."""
    table = new.astype(object)
    for name in ("since", "seen"):
        table[name] = pd.Series(
            [None if pd.isna(one) else one.isoformat() for one in new[name]], dtype=object
        )
    return table.where(new.notna(), None)


@pytest.fixture(scope="module")
def expected(fitted, new):
    outputs = fitted.predict_proba(new)
    assert 0.1 < np.mean(fitted.route(new) == fitted.chain_.n_stages) < 0.9
    return outputs


def same(outputs, expected):
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=TOLERANCE)


def database(new, plain, path):
    """The rows as an SQLite table: truth values are 0 and 1, dates are text."""
    table = plain.assign(key=np.arange(len(new)), member=new["member"].astype(int))
    with closing(sqlite3.connect(path)) as connection:
        marks = ", ".join("?" * len(table.columns))
        connection.execute(f"CREATE TABLE cells ({', '.join(table.columns)})")
        connection.executemany(f"INSERT INTO cells VALUES ({marks})", table.to_numpy(dtype=object).tolist())
        connection.commit()
    return path


@pytest.fixture
def sources(new, plain, tmp_path):
    """The rows in every form in which somebody sells them."""
    cells, path = plain, database(new, plain, tmp_path / "cells.db")
    as_texts = new.astype({"member": str})  # "True" and "False"
    return {
        "sqlite": SqlSource(lambda: sqlite3.connect(path), "cells", "key", list(range(N_NEW))),
        "a function": lambda rows, names: cells[names].to_numpy(dtype=object)[rows],
        "a function of frames": lambda rows, names: as_texts[names].iloc[rows],
        "a dict": {name: cells[name].to_numpy() for name in cells},
    }


@pytest.mark.parametrize("form", ["sqlite", "a function", "a function of frames", "a dict"])
def test_what_is_bought_is_answered_as_the_table_at_hand(fitted, new, expected, sources, form):
    receipt = fitted.buy(sources[form], n_rows=N_NEW)
    same(receipt.outputs, expected)
    np.testing.assert_array_equal(receipt.route, fitted.route(new))
    assert not receipt.full_failed.any()


def test_tables_of_other_types_and_of_another_library_are_answered_as_those_of_the_fit(fitted, new, expected):
    pl = pytest.importorskip("polars")
    typed = new.assign(colour=new["colour"].cat.set_categories(COLOURS))  # pink is missing
    assert fitted.chain_.schema.conformed(Table.of(typed)) is typed
    same(fitted.predict_proba(typed), expected)
    other = new.astype({"colour": object, "zone": float, "city": "category", "age": float, "rate": float})
    same(fitted.predict_proba(other), expected)
    words = pl.from_pandas(
        new.astype(dict.fromkeys(["colour", "grade", "zone", "city"], object)).astype({"zone": float})
    )
    same(fitted.predict_proba(words), expected)


def test_rows_one_by_one_are_answered_as_in_the_table(fitted, plain, expected):
    records = plain[:N_ONE_BY_ONE].to_dict("records")
    for place, cells in enumerate(records):
        session = fitted.start()
        while (wanted := session.next_purchase) is not None:
            session.give({name: cells[name] for name in wanted.columns})
        same(session._outputs[0], expected[place])


def asked(thing, records, **settings):
    """What a gateway answers to a request, read as JSON."""
    sources = settings.pop("sources", None)

    async def ask():
        serving = Gateway(thing, Config(unseen="missing", **settings), sources=sources)
        await serving.start()
        cells = serving.model.rows.from_records(json.loads(json.dumps(records)))
        answered = await serving.model.answer(cells)
        await serving.close()
        return answered

    return asyncio.run(ask())


def test_a_gateway_answers_rows_of_json_as_the_table(fitted, new, plain, expected):
    records = plain.to_dict("records")
    answered = asked(fitted, records)
    assert not answered.degraded.any()
    same(answered.outputs, expected)
    for row in range(10):
        same(asked(fitted, records[row : row + 1]).outputs, expected[row : row + 1])
    days = (new["since"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    numbers = plain.assign(since=days.astype(object).where(days.notna(), None), member=new["member"].map(str))
    same(asked(fitted, numbers.to_dict("records")).outputs, expected)


def test_a_gateway_that_buys_answers_as_the_table(fitted, plain, expected):
    cells, sold = plain, ["colour", "city", "member", "since", "seen"]
    given = cells.drop(columns=sold).assign(row=np.arange(N_NEW)).to_dict("records")

    class Shop(RetryingSource):
        def ask(self, rows, names):
            return cells[list(names)].to_numpy(dtype=object)[[self.keys[row] for row in rows]]

    shop = {"columns": sold, "key": "row", "path": "unread.csv"}
    answered = asked(fitted, given, providers={"shop": shop}, sources={"shop": Shop(0)})
    assert not answered.degraded.any()
    same(answered.outputs, expected)


def test_a_file_answers_as_what_was_saved_with_the_full_model_given_again(
    fitted, new, plain, expected, sources
):
    full = fitted.chain_.innermost.estimator
    again = from_bytes(to_bytes(fitted, full="outside"), full=full)
    assert again.chain_.types == fitted.chain_.types
    same(again.predict_proba(new), expected)
    same(again.buy(sources["a dict"]).outputs, expected)
    same(asked(again, plain.to_dict("records")).outputs, expected)


# -- columns of every type ----------------------------------------------------------------------------


def every_pandas_type():
    days = pd.to_datetime(["2019-05-01", None, "2021-12-31T23:59:59.000001"], format="ISO8601")
    return pd.DataFrame(
        {
            "float64": [0.5, np.nan, 2.0],
            "float32": np.array([0.25, 1, 2], dtype="float32"),
            "int8": np.array([-1, 0, 7], dtype="int8"),
            "uint16": np.array([1, 0, 9], dtype="uint16"),
            "bool": [True, False, True],
            "Int64": pd.array([1, None, 3], dtype="Int64"),
            "boolean": pd.array([True, None, False], dtype="boolean"),
            "truths": pd.Series([True, None, False], dtype=object),
            "str": pd.Series(["b", None, "a"], dtype="str"),
            "string": pd.Series(["b", None, "a"], dtype="string"),
            "objects": pd.Series(["b", None, "a"], dtype=object),
            "holes": pd.Series(["b", np.nan, "a"], dtype=object),
            "words": pd.Categorical(["b", None, "a"], categories=["z", "b", "a"]),
            "order": pd.Categorical(["b", None, "a"], categories=["z", "b", "a"], ordered=True),
            "numbered": pd.Categorical([2, None, 1], categories=[2, 3, 1]),
            "true": pd.Categorical([True, None, False]),
            "time": days,
            "seconds": days.as_unit("s"),
            "zone": days.tz_localize("UTC").tz_convert("Asia/Tokyo"),
            "span": pd.to_timedelta(["1D", None, "36h"]),
            "dates": pd.Series([None if pd.isna(day) else day.date() for day in days], dtype=object),
        }
    )


def every_polars_type():
    pl = pytest.importorskip("polars")
    times = [None if pd.isna(day) else day.to_pydatetime() for day in every_pandas_type()["time"]]
    return pl.DataFrame(
        {
            "f64": [0.5, 1.0, 2.0],
            "f32": pl.Series([0.5, 1.0, 2.0], dtype=pl.Float32),
            "i8": pl.Series([-1, None, 7], dtype=pl.Int8),
            "bool": [True, None, False],
            "text": ["b", None, "a"],
            "cat": pl.Series(["b", None, "a"], dtype=pl.Categorical),
            "enum": pl.Series(["b", None, "a"], dtype=pl.Enum(["z", "b", "a"])),
            "time": pl.Series(times, dtype=pl.Datetime("ms")),
            "zone": pl.Series(times, dtype=pl.Datetime("us")).dt.replace_time_zone("Asia/Tokyo"),
            "date": pl.Series(times, dtype=pl.Datetime("us")).cast(pl.Date),
            "span": pl.Series([1, None, 36 * 3600], dtype=pl.Int64).cast(pl.Duration("ms")),
        }
    )


@pytest.mark.parametrize("make", [every_pandas_type, every_polars_type])
def test_a_frame_of_any_types_comes_back_from_the_numbers_that_stages_read_and_from_its_cells(make):
    frame = make()
    table, names, everything = Table.of(frame), tuple(frame.columns), np.arange(frame.shape[1])
    fit = Schema.of(table)
    numbers, unreadable = fit.read(frame, everything)
    assert unreadable == {}
    np.testing.assert_array_equal(numbers, plain_table(table, fit.levels).as_numbers())
    cells = np.array([frame[name].to_list() for name in names], dtype=object).T
    np.testing.assert_array_equal(fit.read(cells, everything)[0], numbers)
    if fit.kind == "pandas":
        for again in (
            fit.table(numbers, everything),
            fit.conformed(Table.of(frame.astype(object))),
            fit.conformed(Table(numbers)),
        ):
            pd.testing.assert_frame_equal(again, frame, check_exact=True)
    else:
        for again in (fit.table(numbers, everything), fit.conformed(Table(numbers))):
            assert again.equals(frame)
            assert again.schema == frame.schema
    assert fit.conformed(table) is frame


def test_what_a_type_cannot_hold_stays_as_it_is_and_what_is_no_date_or_truth_is_refused_by_name():
    frame = every_pandas_type()
    fit = Schema.of(Table.of(frame))
    place = {name: np.array([number]) for number, name in enumerate(frame)}
    for name, cells in (("int8", [0.5, 1]), ("int8", [300, 1]), ("int8", [np.nan, 1]), ("bool", [np.nan, 1])):
        np.testing.assert_array_equal(fit.table(np.array([cells]).T, place[name])[name], cells)
    words = fit.conformed(Table.of(pd.DataFrame({"words": ["a", "new"]})), place["words"])
    assert words["words"].isna().tolist() == [False, True]
    for name, cell, told in (
        ("time", "May", "dates such as"),
        ("bool", "yes", "True or False"),
        ("span", "x", "days"),
    ):
        _, unreadable = fit.read(np.array([[cell]], dtype=object), place[name])
        assert unreadable[0].rows.tolist() == [True]
        with pytest.raises(InvalidInputError, match=f"column '{name}' must hold .*{told}.* got '{cell}'"):
            fit.conformed(Table.of(pd.DataFrame({name: [cell]}, dtype=object)), place[name])


# -- a full model that fails --------------------------------------------------------------------------


class Moody(GaussianNB):
    """Fails once it is told to."""

    fails = False

    def predict_proba(self, X):
        if Moody.fails:
            raise ValueError("the columns are not those of the fit")
        return super().predict_proba(X)


@pytest.fixture
def moody(monkeypatch):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    y = (table.sum(axis=1) > 0).astype(int)
    clf = ConfidenceRouter(Moody(), LogisticRegression(), features=["a"], random_state=0).fit(table, y)
    monkeypatch.setattr(Moody, "fails", True)
    return clf.at(threshold=-np.inf), table


def test_a_full_model_that_fails_is_said_by_whoever_buys(moody):
    clf, table = moody
    with pytest.warns(
        FullModelFailedWarning, match="failed on 300 of 300 rows.*Row 0: ValueError: the columns are not"
    ):
        receipt = clf.buy({name: table[name].to_numpy() for name in table})
    assert receipt.full_failed.all()
    assert (receipt.to_pandas()["failed"] == ("the full model",)).sum() == 300
    session = clf.start()
    session.give({name: table[name][0] for name in session.next_purchase.columns})
    paid = session.cost
    with pytest.raises(FullModelFailedError, match="ValueError: the columns are not those of the fit"):
        session.give({name: table[name][0] for name in session.next_purchase.columns})
    assert session.cost == paid
    assert session.route == 0


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_full_model_that_fails_is_no_fault_of_a_request(moody, is_loaded):
    clf, table = moody
    if is_loaded:
        clf = from_bytes(to_bytes(clf, full="outside"), full=clf.chain_.full.estimator)
    answered = asked(clf, table[:5].to_dict("records"))
    assert answered.reasons == {"failed": 5}
    assert answered.degraded.all()
    assert (answered.route == 0).all()


# -- requests, and tables without names ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("member", "maybe", "must hold True or False, or 1 or 0; got 'maybe' in row 1"),
        ("since", "May", "must hold dates such as 2026-01-31 .* or days since 1970-01-01; got 'May'"),
        ("since", True, "must hold dates .*got True in row 1"),
        ("rate", "1.5", "must hold numbers"),
    ],
)
def test_a_gateway_says_how_a_column_is_read_where_a_route_reads_it(fitted, plain, column, value, words):
    record, everywhere = {**plain.to_dict("records")[0], column: value}, copy.copy(fitted)
    everywhere.chain_ = fitted.chain_.at(Policy.of(np.full(fitted.chain_.n_stages, -np.inf)))
    with pytest.raises(InvalidInputError, match=f"column '{column}' {words}"):
        asked(everywhere, [record])


def test_a_fit_on_an_array_without_names_serves_as_x0_and_x1_in_every_command(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).round(3)
    y = (X @ [1.0, 1.0, -1.0] > 0).astype(int)
    stages = StageOptions(sizes=[(6, 2)])
    clf = BudgetedClassifier(LogisticRegression(), stages=stages, cv=2, random_state=0).fit(X, y)
    system, table, path = tmp_path / "system.thrifty", tmp_path / "new.csv", tmp_path / "cells.db"
    thrifty.save(clf, system)
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"]).assign(key=np.arange(400), y=y)
    frame.to_csv(table, index=False)
    with closing(sqlite3.connect(path)) as connection:
        frame.to_sql("cells", connection, index=False)
    source = f"sqlite:{path}?table=cells&key=key"
    for command in (
        ["predict", str(system), str(table), "-o", str(tmp_path / "predict.csv")],
        ["buy", str(system), str(table), "-o", str(tmp_path / "buy.csv"), *("--source", source)],
        ["explain", str(system), str(table), "--row", "1"],
        ["frontier", str(system)],
        ["report", str(system), str(table), "--target", "y", "-o", str(tmp_path / "report.html")],
    ):
        assert main(command) == 0, capsys.readouterr().err
    for name in ("predict", "buy"):
        assert pd.read_csv(tmp_path / f"{name}.csv")["answer"].tolist() == clf.predict(X).tolist()
    assert list(asked(clf, frame[["x0", "x1", "x2"]].to_dict("records")).answer) == clf.predict(X).tolist()
