"""Prices that differ by row: what is refused, and that every door bills each row its own price."""

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from thrifty import (
    BudgetedClassifier,
    BudgetPruneClassifier,
    DynaModGbrtClassifier,
    InvalidInputError,
    Prices,
    evidence_of,
    hold_budget,
)
from thrifty.objective.prices import RowsOfFit, check_price_list

NAMES = ["age", "pulse", "ecg", "ecg_price"]
LISTED = {"age": 1.0, "pulse": 2.0}
BY_ROW = {"ecg": "ecg_price"}
TABLE = np.array([[40.0, 60.0, 1.0, 4.0], [50.0, 70.0, 2.0, 0.0], [60.0, 80.0, 3.0, 11.0]])


def listed(prices, table=TABLE, **rows):
    return check_price_list(prices, None, 3.0, 4, NAMES, None, RowsOfFit(table, **rows))


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (LISTED, [1.0, 2.0, 5.0, 0.0]),
        ({**LISTED, "ecg": 7.0}, [1.0, 2.0, 7.0, 0.0]),
        (None, [1.0, 1.0, 5.0, 0.0]),
        (4.0, [4.0, 4.0, 5.0, 0.0]),
        ([1.0, 2.0, 7.0, 0.0], [1.0, 2.0, 7.0, 0.0]),
    ],
)
def test_the_listed_price_is_the_one_given_or_the_mean_and_rows_pay_their_own(costs, expected):
    prices = listed(Prices(costs, by_row=BY_ROW))
    np.testing.assert_array_equal(prices.prices, expected)
    used = np.array([[True, False, True, True], [False, False, True, False], [True, True, False, False]])
    paid = prices.cost_of_rows(used, np.array([False, True, False]), TABLE[:, 3:])
    np.testing.assert_allclose(paid, [expected[0] + 4.0, 0.0 + 3.0, expected[0] + expected[1]])
    again = listed(Prices.of(prices))
    assert again.is_same(prices)
    assert again.by_row.is_same(prices.by_row)


def test_a_row_of_weight_two_counts_twice_in_the_mean():
    assert listed(Prices(LISTED, by_row=BY_ROW), weight=np.array([2.0, 1.0, 1.0])).prices[2] == 19.0 / 4.0


@pytest.mark.parametrize(
    ("prices", "value", "says"),
    [
        (Prices(LISTED, by_row=BY_ROW), -0.5, "'ecg_price' holds prices .* row 17 has -0.5"),
        (Prices(LISTED, by_row=BY_ROW), np.nan, "row 17 has nan. Fill it in"),
        (Prices(LISTED, by_row=BY_ROW, discounts={"one": (["pulse", "ecg"], 1.5)}), 1.0, "fall below 0"),
        (
            Prices({**LISTED, "ecg_price": 2.0}, by_row=BY_ROW),
            4.0,
            "'ecg_price', which must be free.*costs 2",
        ),
        (Prices({**LISTED, "ecg": 0.0}, by_row=BY_ROW), 4.0, "0 is listed"),
        (Prices(LISTED, by_row={"ecg": "price"}), 4.0, "by_row names 'price', not a column"),
        (Prices(LISTED, by_row={"age": "ecg", "ecg": "ecg_price"}), 4.0, "priced by row itself"),
        (Prices(LISTED, by_row=["ecg"]), 4.0, "must be a dict"),
    ],
)
def test_what_is_no_price_of_a_row_is_refused_with_row_and_value(prices, value, says):
    table = TABLE[[0, 2, 2]]
    table[1, 3] = value
    with pytest.raises(InvalidInputError, match=says):
        listed(prices, table, numbers=np.array([16, 17, 18]))


def test_one_purchase_has_one_column_of_prices():
    prices = Prices(1.0, groups=[0, 0, 1, 2], by_row={"age": "ecg", "pulse": "ecg_price"})
    with pytest.raises(InvalidInputError, match="two columns of prices, column 'ecg' and column 'ecg_price'"):
        listed(prices)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_files_say_which_column_holds_the_prices(tmp_path, kind):
    path = tmp_path / f"prices.{kind}"
    path.write_text(
        "feature,cost,by_row\nage,1\npulse,2\necg,,ecg_price\n"
        if kind == "csv"
        else '{"costs": {"age": 1, "pulse": 2}, "by_row": {"ecg": "ecg_price"}}'
    )
    assert Prices.read(path).by_row == BY_ROW
    np.testing.assert_array_equal(listed(str(path)).prices, [1.0, 2.0, 5.0, 0.0])


@pytest.fixture(scope="module")
def hearts():
    """Sick or not, by a pulse that tells half of it and an ECG that tells the rest, and costs some rows ten times."""
    rng = np.random.default_rng(0)
    n = 500
    table = pd.DataFrame(rng.normal(size=(n, 3)), columns=NAMES[:3])
    table["ecg_price"] = rng.choice([1.0, 10.0], n)
    return table, (table["pulse"] + 2 * table["ecg"] + rng.normal(size=n) > 0).to_numpy().astype(int)


@pytest.fixture(scope="module")
def cascade(hearts):
    table, y = hearts
    clf = BudgetedClassifier(
        GaussianNB(), sizes=[(8, 2)], cv=2, feature_costs=Prices(LISTED, by_row=BY_ROW), random_state=0
    )
    return clf.fit(table[:300], y[:300])


@pytest.mark.slow
def test_evidence_frontier_and_budget_are_counted_in_prices_of_rows(hearts, cascade):
    table, y = hearts[0][300:].reset_index(drop=True), hearts[1][300:]
    held = evidence_of(cascade, table, y)
    for place in range(cascade.chain_.n_stages + 1):
        bought = cascade.chain_.bought_by_place[place]
        flat = cascade.chain_.price_list.cost_of(np.flatnonzero(bought & (np.arange(4) < 2)))
        np.testing.assert_allclose(held.cost_at(place), flat + bought[2] * table["ecg_price"])
    assert cascade.at(budget=4.0).expected_cost_ == pytest.approx(4.0)
    assert 3.8 < hold_budget(cascade, table, 4.0).cost(table).mean() <= 4.0


def test_rules_of_stopping_send_on_rows_for_which_that_is_cheap(hearts, cascade):
    table, dear = hearts[0][300:], hearts[0][300:]["ecg_price"] == 10.0
    buys = cascade.at(budget=4.0).chain_.bought_by_place[cascade.at(budget=4.0).route(table), 2]
    assert buys[~dear].mean() > buys[dear].mean() + 0.2


def test_a_row_whose_price_is_none_is_not_bought_for_and_the_others_are(hearts, cascade):
    table = hearts[0][300:].reset_index(drop=True)
    table.loc[:20, "ecg_price"] = [np.nan, -1.0, 1.0] * 7
    receipt = cascade.buy(table.to_dict("series"))
    no_price = ~(table["ecg_price"] >= 0).to_numpy()
    assert receipt.is_answered.all()
    assert not receipt.bought[no_price, 2].any()
    assert receipt.bought[~no_price, 2].any()
    assert "row 1 has -1" in receipt.reason[1]
    assert receipt.failed[1, 2]
    assert not any(receipt.reason[~no_price])
    paid = receipt.bought[:, :3] @ [1.0, 2.0, 0.0] + receipt.bought[:, 2] * table["ecg_price"].fillna(0.0)
    np.testing.assert_allclose(receipt.cost, paid)
    with pytest.raises(InvalidInputError, match="'ecg_price' holds prices.*row 0 has -1"):
        cascade.predict_from(table.fillna(-1.0).to_dict("series"))
    with pytest.raises(InvalidInputError, match="row 0 has -1"):
        cascade.cost(table.fillna(-1.0))


def test_a_session_knows_the_price_of_its_row(hearts, cascade):
    session = cascade.start()
    session.give({"ecg_price": 1.0, "pulse": 0.01})
    assert session.next_purchase.columns == ("ecg",)
    assert session.next_purchase.price == 1.0
    before = session.cost
    assert session.give({"ecg": 0.0}).cost == before + 1.0


def test_a_chain_behind_bills_rows_their_own_prices_though_its_mean_is_another(hearts, cascade):
    table, y = hearts[0][300:], hearts[1][300:]
    front = DynaModGbrtClassifier(
        FrozenEstimator(cascade),
        n_trees=3,
        max_iter=2,
        tol=1,
        feature_costs=Prices(LISTED, by_row=BY_ROW),
        random_state=0,
    ).fit(table, y)
    sent = front.at(threshold=-np.inf)
    assert np.all(sent.cost(table) >= cascade.cost(table) - 1e-9)
    assert sent.cost(table).max() <= 13.0


def test_a_pruned_forest_refuses_prices_by_row_in_words(hearts):
    with pytest.raises(InvalidInputError, match="same for every row"):
        BudgetPruneClassifier(n_trees=2, feature_costs=Prices(1.0, by_row=BY_ROW)).fit(*hearts)
