"""Delays: purchases that are made together wait together, and rounds add."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import thrifty
from thrifty import BudgetedClassifier, Prices, StageOptions
from thrifty.engine.evidence.budgets import mix_within
from thrifty.engine.prices.billing import costs_in_rounds
from thrifty.engine.prices.prices import check_price_list
from thrifty.errors import InvalidInputError

NAMES = ["mean radius", "mean texture", "mean perimeter", "mean area", "mean smoothness", "mean compactness"]
DAYS = dict(zip(NAMES, [0, 1, 1, 1.5, 1, 1], strict=True))
EUROS = dict(zip(NAMES, [1, 4, 2, 6, 3, 5], strict=True))


@pytest.fixture(scope="module", autouse=True)
def small_fits_of_module(while_fits_are_small):
    """What these tests show does not depend on how much is searched for."""
    with while_fits_are_small():
        yield


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X[list(DAYS)], y


@pytest.fixture(scope="module")
def fitted(table):
    X, y = table
    costs = {name: {"euros": EUROS[name], "days": DAYS[name]} for name in DAYS}
    prices = Prices(costs, full={"euros": 2, "days": 0.5}, delays=["days"])
    few = StageOptions(sizes=[(20, 3)])
    clf = BudgetedClassifier(prices=prices, budget={"days": 1.2}, stages=few, cv=2, random_state=0)
    return clf.fit(X[::2], y[::2])


def test_the_longest_of_a_round_counts_and_rounds_add():
    prices = check_price_list(
        Prices(
            [{"days": 1, "euros": 5}, {"days": 3, "euros": 1}, {"days": 2}],
            full={"days": 0.5},
            delays=["days"],
        ),
        3,
    )
    held = np.array([[True, False, False], [True, True, False], [True, True, True], [True, True, True]])
    rounds = prices.resources.rounds(held)
    one_by_one = costs_in_rounds(rounds, np.array([0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(one_by_one, [[1, 5], [4, 6], [6, 6], [6.5, 6]])
    at_once = costs_in_rounds(rounds, np.full(3, -np.inf))
    np.testing.assert_array_equal(at_once, [[1, 5], [3, 6], [3, 6], [3.5, 6]])
    in_two = costs_in_rounds(rounds, np.array([1.0, -np.inf, 0.0]))
    np.testing.assert_array_equal(in_two, [[1, 5], [4, 6], [4, 6], [4.5, 6]])


class Recording:
    """A source that keeps what was asked for each row, question by question."""

    def __init__(self, X):
        self.X, self.rounds = X, [[] for _ in range(len(X))]

    def __len__(self):
        return len(self.X)

    def fetch(self, rows, columns):
        for row in rows:
            self.rounds[row].append(list(columns))
        return self.X.iloc[rows, columns].to_numpy()


def waited(rounds):
    return sum(max(DAYS[name] for name in columns) for columns in rounds)


@pytest.mark.parametrize(
    "budget", [None, {"days": 0.6}, {"days": 1.5}, {"euros": 9}, {"euros": 14, "days": 1.0}]
)
def test_costs_are_those_of_the_rounds_in_which_rows_really_buy(fitted, table, budget):
    X, _ = table
    X = X[1::2].reset_index(drop=True)
    system = fitted if budget is None else fitted.at(budget=budget)
    costs, source = system.cost(X), Recording(X)
    receipt = system.buy(source, row_key=X.index)
    names = list(X.columns)
    asked_full = system.route(X) == system.chain_.n_stages
    by_hand = [
        waited([[names[column] for column in columns] for columns in rounds]) + 0.5 * full
        for rounds, full in zip(source.rounds, asked_full, strict=True)
    ]
    np.testing.assert_allclose(costs["days"], by_hand)
    pd.testing.assert_frame_equal(receipt.costs, costs)
    for name, limit in (budget or {}).items():
        assert system.expected_cost_[name] <= limit * (1 + 1e-9)


def test_a_session_names_all_purchases_of_a_round(fitted, table):
    X, _ = table
    system = fitted.at(budget={"days": 0.8})
    sizes = []
    for key in range(40):
        row, session = X.iloc[key], system.start(key=key)
        while (wanted := session.next_purchase) is not None:
            if wanted.columns:
                sizes.append(len(wanted.columns))
                assert wanted.prices["days"] == max(DAYS[name] for name in wanted.columns)
            session.give(row[list(wanted.columns)].to_dict())
        assert session.costs == pytest.approx(system.cost(X.iloc[[key]], row_key=[key]).iloc[0].to_dict())
    assert max(sizes) > 1


def test_orders_of_several_columns_are_better_where_time_is_scarce(fitted, table):
    X, _ = table
    policy, scores = fitted._learned.policy, []
    stops = ~np.isneginf(policy.thresholds)
    one_by_one = np.flatnonzero(stops.all(axis=1))
    for days in (0.2, 0.4, 0.8, 1.2, 2.0):
        mixes = [
            mix_within(policy.costs[some], policy.score[some], np.array([12.0, days]))
            for some in (np.arange(len(policy)), one_by_one)
        ]
        scores.append([float(mixes[0] @ policy.score), float(mixes[1] @ policy.score[one_by_one])])
    ahead = np.array(scores) @ [1, -1]
    assert ahead.min() > -1e-9
    assert ahead.max() > 1e-4
    system = fitted.at(budget={"days": 0.8})
    reader = system.chain_.reader(X)
    one_after_another = system.chain_.by_resource[1].spent(reader, system.chain_.walk(reader))
    assert system.cost(X)["days"].sum() < one_after_another.sum()


def test_files_keep_rounds(fitted, table, tmp_path):
    X, _ = table
    thrifty.save(fitted, tmp_path / "rounds.thrifty")
    loaded = thrifty.load(tmp_path / "rounds.thrifty")
    budget = {"days": 0.9, "euros": 13}
    pd.testing.assert_frame_equal(loaded.at(budget=budget).cost(X), fitted.at(budget=budget).cost(X))
    assert loaded.expected_cost_ == fitted.expected_cost_


def test_delays_that_are_no_resources_are_refused():
    with pytest.raises(
        InvalidInputError, match="delays must list resources of the prices, which are 'euros'"
    ):
        check_price_list(Prices([{"euros": 1}], delays=["days"]), 1)
