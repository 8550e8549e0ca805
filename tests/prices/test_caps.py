"""A cap is what no row ever spends."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge

import thrifty
from thrifty import BudgetedClassifier, BudgetedRegressor, Prices, StageOptions
from thrifty.cli import main
from thrifty.errors import InvalidInputError

FEW = StageOptions(sizes=[(20, 3)])


@pytest.fixture(scope="module", autouse=True)
def small_fits_of_module(while_fits_are_small):
    """What these tests show does not depend on how much is searched for."""
    with while_fits_are_small():
        yield


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X.iloc[:, :6], y


@pytest.fixture(scope="module", params=["one resource", "two resources", "tree"])
def fitted(request, table):
    X, y = table
    dollars, minutes = [1.0, 9.0, 2.0, 6.0, 3.0, 4.0], [20, 2, 11, 1, 9, 4]
    costs = dict(zip(X.columns, dollars, strict=True))
    if request.param == "two resources":
        costs = {
            name: {"dollars": d, "minutes": m} for name, d, m in zip(X.columns, dollars, minutes, strict=True)
        }
    full = {"dollars": 2.0} if request.param == "two resources" else 2.0
    stages = StageOptions(sizes=[(20, 3)], structure="tree" if request.param == "tree" else "line")
    clf = BudgetedClassifier(prices=Prices(costs, full=full), stages=stages, cv=2, random_state=0)
    return clf.fit(X, y)


def amounts(fitted, of):
    return {"dollars": of} if fitted.chain_.price_list.resources is not None else of


def dollars(costs):
    return costs["dollars"].to_numpy() if isinstance(costs, pd.DataFrame) else costs


@pytest.mark.parametrize("cap", [9.5, 13.0, 20.0])
def test_no_row_spends_more_than_the_cap_whatever_the_budget(fitted, table, cap):
    X, _ = table
    noise = np.random.default_rng(0).normal(1, 0.3, (5_000, 6))
    rows = X.sample(5_000, replace=True, random_state=0).reset_index(drop=True) * noise
    chain = fitted.chain_.by_resource[0] if fitted.chain_.by_resource else fitted.chain_
    least = float(chain.cost_by_place[0])
    limit = max(cap, least)
    capped = fitted.at(cap=amounts(fitted, limit))
    for budget in (None, *np.linspace(least, limit, 5)[1:]):
        system = capped if budget is None else capped.at(budget=amounts(fitted, budget))
        costs = dollars(system.cost(rows))
        assert costs.max() <= limit + 1e-9
    assert (
        dollars(fitted.at(budget=amounts(fitted, 25.0)).cost(rows)).max() > limit
    )  # without a cap some row does
    receipt = capped.buy(lambda places, names: rows.iloc[places][names], n_rows=300)
    assert dollars(receipt.cost if receipt.costs is None else receipt.costs).max() <= limit + 1e-9


def test_a_budget_is_met_below_a_cap_and_files_keep_the_cap(fitted, table, tmp_path):
    X, y = table
    capped = fitted.at(cap=amounts(fitted, 20.0), budget=amounts(fitted, 12.0))
    expected = capped.expected_cost_
    expected = expected["dollars"] if isinstance(expected, dict) else expected
    assert expected <= 12.0 + 1e-9
    thrifty.save(capped, tmp_path / "capped.thrifty")
    loaded = thrifty.load(tmp_path / "capped.thrifty")
    assert loaded.cap_ == amounts(fitted, 20.0)
    assert dollars(loaded.at(budget=amounts(fitted, 19.0)).cost(X)).max() <= 20.0
    with pytest.raises(InvalidInputError, match="the cap of"):
        loaded.at(max_loss=0.05)
    with pytest.raises(InvalidInputError, match="the cap of"):
        loaded.certified(X, y, max_loss=0.05)
    with pytest.raises(InvalidInputError, match="with a cap"):
        loaded.at(budget=amounts(fitted, 12.0), explore=0.1)
    with pytest.raises(InvalidInputError, match="the cap of"):
        loaded.with_prices({X.columns[1]: lambda rows: np.ones(len(rows))})


def test_a_cap_below_the_cheapest_route_is_refused(fitted):
    with pytest.raises(InvalidInputError, match="cap must be at least .* the cost of the cheapest route"):
        fitted.at(cap=amounts(fitted, 0.5))


def test_a_cap_that_no_route_exceeds_changes_nothing(fitted, table):
    X, _ = table
    budget = amounts(fitted, 14.0)
    capped = fitted.at(cap=amounts(fitted, 1e6), budget=budget)
    np.testing.assert_array_equal(capped.cost(X), fitted.at(budget=budget).cost(X))
    assert not hasattr(capped, "cap_")


def test_a_cap_behind_a_chain_keeps_rows_out_of_its_dear_routes():
    X, y = load_diabetes(return_X_y=True)
    prices = Prices(np.arange(1.0, 11.0), full=3.0)
    inner = BudgetedRegressor(Ridge(0.01), prices=prices, stages=FEW, cv=2, random_state=0).fit(
        X[::2], y[::2]
    )
    outer = BudgetedRegressor(FrozenEstimator(inner), prices=prices, stages=FEW, cv=2, random_state=0)
    outer = outer.fit(X[1::2], y[1::2])
    assert outer.at(cap=20.0).cost(X).max() <= 20.0


def test_a_fit_that_knows_the_cap_buys_what_fits_under_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).round(3)
    y = (X @ [4.0, 1.0, 1.0, 1.0] + rng.normal(0, 0.2, 400).round(3) > 0).astype(int)
    prices = Prices([10.0, 3.0, 3.0, 3.0])
    settings = {"prices": prices, "stages": FEW, "cv": 2, "random_state": 0}
    full = LogisticRegression()
    free, capped = (BudgetedClassifier(full, **settings, cap=cap).fit(X, y) for cap in (None, 9.0))
    assert free.cost(X).max() > 9.0
    assert capped.order_[-1] == 0
    assert capped.cap_ == 9.0
    assert capped.cost(X).max() <= 9.0
    assert capped.score(X, y) > 0.58
    again = capped.set_params(cap=None).fit(X, y)
    assert not hasattr(again, "cap_")
    with pytest.raises(InvalidInputError, match="cap must be"):
        BudgetedClassifier(**settings, cap=-1.0).fit(X, y)


@pytest.fixture(scope="module")
def delayed():
    """Rows, labels and settings of columns of which some come a day later, and a fit that knows no cap."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(300, 5)).round(3), columns=list("abcde"))
    y = (X.sum(axis=1) + rng.normal(0, 0.3, 300).round(3) > 0).astype(int)
    costs = {name: {"dollars": 1.0 + place, "days": float(place > 1)} for place, name in enumerate("abcde")}
    prices = Prices(costs, full={"dollars": 1.0}, delays=["days"])
    settings = {"prices": prices, "stages": StageOptions(sizes=[(10, 3)]), "cv": 2, "random_state": 0}
    return X, y, settings, BudgetedClassifier(**settings).fit(X, y)


@pytest.mark.parametrize("cap", [{"days": 1.0}, {"days": 2.0}, {"dollars": 5.0, "days": 1.0}])
def test_a_cap_on_a_delay_counts_rounds(cap, delayed):
    X, y, settings, clf = delayed
    learned = BudgetedClassifier(cap=cap, **settings).fit(X, y)
    for capped in (clf.at(cap=cap), learned):
        for system in (
            capped,
            capped.at(budget={"days": 0.7}),
            capped.at(budget={"dollars": 4.0, "days": 0.5}),
        ):
            paid = system.cost(X)
            assert all(paid[name].max() <= limit + 1e-9 for name, limit in cap.items())
        for row in range(10):
            session = capped.start()
            while (purchase := session.next_purchase) is not None:
                session.give({name: X[name][row] for name in purchase.columns})
            assert all(session.costs[name] <= limit + 1e-9 for name, limit in cap.items())
    if cap == {"days": 1.0}:  # tests that are ordered together wait one day
        assert clf.at(cap=cap).cost(X)["dollars"].max() > 6.0


def test_commands_keep_a_cap(table, tmp_path, monkeypatch):
    X, y = table
    monkeypatch.chdir(tmp_path)
    X.assign(y=y).iloc[:300].to_csv("train.csv", index=False)
    X.iloc[300:].to_csv("rows.csv", index=False)
    pd.DataFrame({"feature": X.columns, "dollars": 2.0, "minutes": 3.0}).to_csv("prices.csv", index=False)
    fit = [
        "fit",
        "train.csv",
        "--target",
        "y",
        "--prices",
        "prices.csv",
        "--full",
        "boosting",
        "-o",
        "s.thrifty",
    ]
    assert main([*fit, "--cap", "minutes=9"]) == 0
    assert main(["predict", "s.thrifty", "rows.csv", "-o", "a.csv", "--budget", "dollars=5"]) == 0
    assert pd.read_csv("a.csv")["cost_minutes"].max() <= 9.0
    assert main(["predict", "s.thrifty", "rows.csv", "-o", "a.csv", "--cap", "minutes=4"]) == 0
    assert pd.read_csv("a.csv")["cost_minutes"].max() <= 4.0
