"""Prices that differ by row: what is refused, and that every door bills each row its own price."""

import asyncio
import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from reproduction.rivals.budget_prune import BudgetPruneClassifier
from thrifty import (
    BudgetedClassifier,
    DynaModGbrtClassifier,
    Policy,
    Prices,
    StageOptions,
    evidence_of,
    hold_budget,
)
from thrifty.engine.prices.prices import check_price_list, resolve_prices
from thrifty.engine.table.table import Table
from thrifty.errors import InvalidInputError, PurchaseFailedError
from thrifty.learners.dynamod import BoostedOptions
from thrifty.serve.budget_controller import BudgetController
from thrifty.serve.config import Config

NAMES = ["age", "pulse", "ecg", "ecg_price"]
LISTED = {"age": 1.0, "pulse": 2.0}
BY_ROW = {"ecg": "ecg_price"}
TABLE = np.array([[40.0, 60.0, 1.0, 4.0], [50.0, 70.0, 2.0, 0.0], [60.0, 80.0, 3.0, 11.0]])


def listed(prices, table=TABLE, weight=None, numbers=None):
    prices = replace(resolve_prices(None, prices, Prices()), full=3.0)
    return check_price_list(prices, 4, NAMES, Table(table, row_numbers=numbers), weight)


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
        GaussianNB(),
        stages=StageOptions(sizes=[(8, 2)]),
        cv=2,
        prices=Prices(LISTED, by_row=BY_ROW),
        random_state=0,
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
    with pytest.raises(PurchaseFailedError, match="'ecg_price' holds prices.*row 0 has -1"):
        cascade.buy(table.fillna(-1.0).to_dict("series"), on_failure="raise")
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
        options=BoostedOptions(n_trees=3, max_iter=2, tol=1),
        prices=Prices(LISTED, by_row=BY_ROW),
        random_state=0,
    ).fit(table, y)
    sent = front.at(threshold=-np.inf)
    assert np.all(sent.cost(table) >= cascade.cost(table) - 1e-9)
    assert sent.cost(table).max() <= 13.0


def ecg_price(free):
    """What an ECG costs some rows, by the column that is at hand."""
    return 1.0 + 9.0 * (free["ecg_price"] > 5)


TOLD = Prices({**LISTED, "ecg_price": 0.0}, by_row={"ecg": ecg_price})


def test_a_function_lists_the_mean_of_the_rows_and_is_given_the_free_columns_as_they_came():
    seen = []

    def price(free):
        seen.append(free)
        return [len(word) for word in free["word"]]

    frame = pd.DataFrame({"age": [1.0, 2.0], "word": ["a", "abc"], "ecg": [5.0, 6.0]})
    rows = Table(np.zeros((2, 3)), frame)
    given = Prices({"age": 3.0, "word": 0.0}, by_row={"ecg": price})
    prices = check_price_list(given, 3, list(frame.columns), rows=rows)
    assert prices.prices.tolist() == [3.0, 0.0, 2.0]
    assert all(list(table.columns) == ["word"] for table in seen)


@pytest.mark.parametrize(
    ("prices", "says"),
    [
        (
            Prices({**LISTED, "ecg_price": 1.0}, by_row={"ecg": ecg_price}),
            "given the columns that are free, and none",
        ),
        (
            Prices(TOLD.costs, by_row={"ecg": lambda free: free[:2, 0]}),
            "must return one number for each of 3 rows",
        ),
        (
            Prices(TOLD.costs, by_row={"ecg": lambda free: ["dear"] * 3}),
            "must return one number for each of 3 rows",
        ),
        (
            Prices(TOLD.costs, by_row={"ecg": lambda free: -free[:, 0]}),
            "'<lambda>' must return a price for every row, .* row 0 has -4",
        ),
        (
            Prices(TOLD.costs, groups=[0, 1, 1, 2], by_row={"ecg": len, "pulse": max}),
            "a function and a function",
        ),
    ],
)
def test_a_function_that_tells_no_price_of_every_row_is_refused_in_words(prices, says):
    with pytest.raises(InvalidInputError, match=says):
        listed(prices)


def test_prices_at_the_time_of_the_purchase_are_billed_in_receipts_tables_and_sessions(hearts, cascade):
    table = hearts[0][300:340].reset_index(drop=True)
    told, asked = {"ecg": ecg_price}, []

    def once(free):
        asked.append(len(free))
        return ecg_price(free)

    other = cascade.with_prices(told)
    receipt = cascade.buy(table.to_dict("series"), prices={"ecg": once})
    ecg = np.where(table["ecg_price"] > 5, 10.0, 1.0)
    np.testing.assert_allclose(
        receipt.cost, receipt.bought[:, :3] @ [1.0, 2.0, 0.0] + receipt.bought[:, 2] * ecg
    )
    assert sum(asked) == receipt.bought[:, 2].sum(), "a function is asked once about a row"
    np.testing.assert_allclose(other.cost(table), receipt.cost)
    np.testing.assert_array_equal(
        cascade.buy(table.to_dict("series"), prices=told, on_failure="raise").answer, other.predict(table)
    )
    session = cascade.start(prices={"ecg": lambda free: free["ecg_price"] + 7.0})
    session.give({"ecg_price": 1.0, "pulse": 0.01})
    assert session.next_purchase.price == 8.0
    assert session.give({"ecg": 0.0}).cost >= 8.0


def test_a_function_that_fails_is_the_problem_of_its_rows(hearts, cascade):
    table = hearts[0][300:340].reset_index(drop=True)

    def down(free):
        raise ConnectionError("no quotes today")

    receipt = cascade.buy(table.to_dict("series"), prices={"ecg": down})
    assert receipt.is_answered.all()
    assert not receipt.bought[:, 2].any()
    assert "no quotes today" in next(one for one in receipt.reason if one)
    with pytest.raises(PurchaseFailedError, match="no quotes today"):
        cascade.buy(table.to_dict("series"), prices={"ecg": down}, on_failure="raise")


class Down:
    """A full model elsewhere that fails."""

    async def ask(self, rows):
        raise ConnectionError

    async def close(self):
        pass


def test_the_gateway_bills_prices_of_rows_though_the_full_model_is_down(hearts, cascade):
    gateway = pytest.importorskip(
        "thrifty.serve.gateway", reason="needs thrifty[serve]", exc_type=ImportError
    )
    table, wide_open = hearts[0][300:320], copy.copy(cascade)
    wide_open.chain_ = cascade.chain_.at(Policy.of(np.full(cascade.n_stages_, -np.inf)))

    async def ask():
        serving = gateway.Gateway(wide_open, Config())
        await serving.start()
        serving.model.remote = Down()
        answered = await serving.model.answer(serving.model.rows.from_records(table.to_dict("records")))
        await serving.close()
        return answered

    answered = asyncio.run(ask())
    assert answered.degraded.all()
    np.testing.assert_allclose(answered.cost, 3.0 + table["ecg_price"])


def test_a_single_row_goes_through_a_first_stage_without_trees_as_in_a_batch(hearts, cascade):
    assert cascade.chain_.stages[0].trees.n_trees == 0
    table = hearts[0][300:310]
    alone = [cascade.predict_proba(table[row : row + 1])[0] for row in range(len(table))]
    np.testing.assert_array_equal(alone, cascade.predict_proba(table))


def test_a_cap_needs_the_most_that_a_row_can_cost(cascade):
    with pytest.raises(InvalidInputError, match="prices of this system differ by row"):
        BudgetController(cascade.chain_, target=4.0, cap=20.0)


def test_a_live_budget_holds_prices_of_rows(hearts, cascade):
    controller, reader = (
        BudgetController(cascade.chain_, target=4.0, window=50),
        cascade.chain_.reader(hearts[0][:100]),
    )
    cost = cascade.chain_.spent(reader, controller.walk(reader))
    assert controller.mean_spend == pytest.approx(cost[-50:].mean())


def test_a_pruned_forest_refuses_prices_by_row_in_words(hearts):
    with pytest.raises(InvalidInputError, match="same for every row"):
        BudgetPruneClassifier(n_trees=2, prices=Prices(1.0, by_row=BY_ROW)).fit(*hearts)
