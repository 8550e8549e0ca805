"""Columns that cost before the user's own models: ``CascadeClassifier(estimators, prices=Prices(...))``."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from starlette.testclient import TestClient

import thrifty
from thrifty import CascadeClassifier, CascadeRegressor, Prices
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.errors import InvalidInputError
from thrifty.serve.app import create_app
from thrifty.serve.config import Config

COST = {"age": 0.0, "cheap": 1.0, "dear": 5.0, "noise": 20.0}
MODELS = [("linear", LogisticRegression()), ("tree", DecisionTreeClassifier(max_depth=5, random_state=0))]
MODEL_PRICES = {"linear": 0.1, "tree": 0.5}


def table(n_rows=500, seed=0):
    """A label that the cheap column tells unless it is near 0, where the dear one does."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n_rows, 4)).round(3), columns=list(COST))
    sure = X["cheap"].abs() > 0.7
    return X, np.where(np.where(sure, X["cheap"], X["dear"]) > 0, "yes", "no")


@pytest.fixture(scope="module")
def cascade():
    how = {"model_prices": MODEL_PRICES, "prices": Prices(COST), "cv": 3, "random_state": 0}
    return CascadeClassifier(MODELS, **how).fit(*table())


def test_a_row_pays_for_the_columns_of_the_models_that_it_asks_and_for_each_once(cascade):
    X, _ = table(200, seed=1)
    run = cascade.run(X)
    asked = ~np.isnan(run.asked_outputs[:, :, 0])
    listed = np.array([*COST.values()])
    for row in range(len(X)):
        names = [name for name, is_asked in zip(cascade.router_.pool_, asked[row], strict=True) if is_asked]
        bought = sorted({column for name in names for column in cascade.columns_of_[name]})
        models = sum(
            MODEL_PRICES.get(name.split(" on ")[0], 0.0) for name in names
        )  # thrifty's own cost nothing
        assert run.cost[row] == pytest.approx(models + listed[bought].sum())


def test_it_is_as_good_as_all_columns_for_a_part_of_their_price(cascade):
    X, y = table(400, seed=2)
    whole = CascadeClassifier(MODELS, model_prices=MODEL_PRICES, cv=3, random_state=0).fit(*table())
    assert cascade.at(budget=4.0).score(X, y) > whole.score(X, y) - 0.02
    assert cascade.at(budget=4.0).cost(X).mean() < 4.6  # all columns cost 26
    assert cascade.at(budget=2.0).score(X, y) > 0.6
    assert cascade.at(budget=0.5).cost(X).mean() < 0.8  # mostly no column but the free one


def test_columns_that_were_not_bought_are_not_read(cascade):
    X, _ = table(50, seed=3)
    cheap = cascade.at(budget=2.0)
    other = X.assign(noise=-X["noise"])
    assert all(3 not in cheap.columns_of_[name] for name in cheap.route(X))
    assert np.array_equal(cheap.predict(X), cheap.predict(other))
    session = cheap.start(X.iloc[0].where([True, False, False, False]))
    assert session.next_purchase.name in cheap.columns_of_


def test_it_goes_through_the_doors(cascade, tmp_path, capsys):
    X, y = table(100, seed=4)
    loaded = from_bytes(to_bytes(cascade))
    assert loaded.columns_of_ == cascade.columns_of_
    assert np.array_equal(loaded.predict_proba(X), cascade.predict_proba(X))
    assert np.array_equal(loaded.cost(X), cascade.cost(X))
    assert "asked" in str(loaded.explain(X[:2])[0])
    assert loaded.certified(X, y, max_loss=0.3).certificate_.bound <= 0.3
    assert "columns" in thrifty.report(cascade, X, y, tmp_path / "a.html").read_text()
    path = str(tmp_path / "c.thrifty")
    thrifty.save(cascade, path)
    X.assign(y=y).to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", path, str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    capsys.readouterr()
    assert pd.read_csv(tmp_path / "out.csv")["cost"].to_numpy() == pytest.approx(cascade.cost(X))


def test_a_gateway_serves_it_and_bills_the_columns_too(cascade):
    X, _ = table(6, seed=9)
    plan = cascade.at(budget=20.0, mix=False)  # requests have no keys to draw lots by
    inputs = [
        {"name": name, "shape": [6, 1], "datatype": "FP64", "data": X[name].tolist()} for name in X.columns
    ]
    with TestClient(create_app(plan, Config())) as client:
        outputs = client.post("/v2/models/thrifty/infer", json={"inputs": inputs}).json()["outputs"]
    served = {one["name"]: one["data"] for one in outputs}
    assert served["cost"] == pytest.approx(plan.cost(X))
    assert served["route"] == list(plan.route(X))


def test_numbers_are_predicted_from_columns_that_cost():
    X, _ = table(400)
    y = X["cheap"] + 0.3 * X["dear"]
    models = [("linear", Ridge()), ("tree", DecisionTreeRegressor(max_depth=4, random_state=0))]
    how = {"model_prices": MODEL_PRICES, "prices": Prices(COST), "cv": 3, "random_state": 0}
    cascade = CascadeRegressor(models, **how).fit(X[:300], y[:300])
    assert cascade.at(budget=2.0).score(X[300:], y[300:]) > 0.7
    assert cascade.at(budget=2.0).cost(X[300:]).mean() < 2.5


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"model_prices": None}, "model_prices must be given"),
        ({"columns": True}, "columns must not be True"),
        ({"after": {"tree": {"linear": 0.2}}}, "after must be left out"),
        ({"prices": Prices(dict.fromkeys(COST, 0.0))}, "a column that costs"),
        ({"prices": Prices(COST, full=3.0)}, "leave out full"),
    ],
    ids=["seconds", "columns", "after", "free", "full"],
)
def test_what_cannot_be_beside_prices_of_columns_is_refused_in_words(how, word):
    settings = {"model_prices": MODEL_PRICES, "prices": Prices(COST), "cv": 2} | how
    with pytest.raises(InvalidInputError, match=word):
        CascadeClassifier(MODELS, **settings).fit(*table(60))


def test_prices_of_models_change_with_a_new_fit_only(cascade):
    with pytest.raises(InvalidInputError, match="whose columns are free"):
        cascade.with_prices({"tree": 3.0})
