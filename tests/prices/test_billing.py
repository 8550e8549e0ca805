import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty import Prices
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.prices.prices import check_price_list
from thrifty.errors import InvalidInputError

NAMES = ["age", "ecg", "bmi"]


def test_a_purchase_is_paid_once_however_often_it_is_used():
    prices = check_price_list(Prices([1.0, 5.0, 5.0], groups=["a", "lab", "lab"], full=2.0), 3)
    used = np.array([[True, False, False], [False, True, True], [True, True, False], [True, True, True]])
    sent = np.array([False, False, False, True])
    np.testing.assert_array_equal(prices.cost_of_rows(used, sent), [1.0, 5.0, 6.0, 8.0])
    assert prices.cost_of([1, 2]) == 5.0
    assert prices.cost_of_everything == 8.0


def test_costs_may_be_named_by_column():
    prices = check_price_list(Prices({"ecg": 15.5, "age": 1.0, "bmi": 0.0}), 3, NAMES)
    np.testing.assert_array_equal(prices.prices, [1.0, 15.5, 0.0])


def test_columns_not_named_in_a_dict_of_groups_stand_alone():
    prices = check_price_list(Prices(groups={"age": "form", "bmi": "form"}), 3, NAMES)
    np.testing.assert_array_equal(prices.group_of, [0, 1, 0])
    assert prices.cost_of_everything == 2.0


@pytest.mark.parametrize(
    ("costs", "groups", "names", "says"),
    [
        ([1.0, -2.0, 1.0], None, None, "column 1 has .*-2"),
        ([1.0, np.nan, 1.0], None, NAMES, "'ecg' has .*nan"),
        ([1.0, np.inf, 1.0], None, None, "finite"),
        ([1.0, 2e100, 1.0], None, NAMES, r"0, or lie between 1e-100 and 1e\+100; column 'ecg' has 2e\+100"),
        ([1.0, 1.0, 9e-101], None, None, "column 2 has 9e-101. Write prices in another unit"),
        ([1.0, 2.0], None, None, r"3 in all; got shape \(2,\)"),
        (["a", "b", "c"], None, None, "must be numbers"),
        ({"age": 1.0, "ecg": 2.0}, None, NAMES, "no price for 'bmi'"),
        ({"age": 1, "ecg": 2, "bmi": 1, "mri": 9}, None, NAMES, "names 'mri', not a column"),
        ({"age": 1.0}, None, None, "X has no column names"),
        (None, ["a", "b"], None, "one label per column, 3 in all; got 2"),
        (None, [[1], [2], [3]], None, "one label for each column"),
        ([1.0, 2.0, 3.0], ["a", "lab", "lab"], NAMES, "same for all columns of one group.*'ecg' costs 2"),
    ],
)
def test_a_bad_price_list_is_refused_by_name_rule_and_value(costs, groups, names, says):
    with pytest.raises(InvalidInputError, match=says):
        check_price_list(Prices(costs, groups=groups), 3, names)


@pytest.mark.parametrize("full_cost", [-1.0, np.nan, np.inf, "dear", None])
def test_a_bad_price_of_the_full_model_is_refused(full_cost):
    with pytest.raises(InvalidInputError, match="price of the full model .* must be a finite number >= 0"):
        check_price_list(Prices(full=full_cost), 3)


@pytest.mark.slow
@given(st.data())
def test_what_a_row_pays_is_the_brute_force_sum_over_distinct_groups(data):
    n_features = data.draw(st.integers(1, 6))
    groups = data.draw(st.lists(st.integers(0, 3), min_size=n_features, max_size=n_features))
    by_group = data.draw(st.lists(st.just(0.0) | st.floats(1e-100, 100), min_size=4, max_size=4))
    used = np.array(data.draw(st.lists(st.booleans(), min_size=n_features, max_size=n_features)))
    prices = check_price_list(Prices([by_group[g] for g in groups], groups=groups, full=1.0), n_features)
    expected = sum(by_group[g] for g in {g for g, u in zip(groups, used, strict=True) if u})
    assert prices.cost_of_rows(used[None], np.array([False]))[0] == pytest.approx(expected)
    assert prices.cost_of(used) == pytest.approx(expected)


def test_a_series_of_prices_or_groups_is_read_by_its_index():
    prices = check_price_list(Prices(pd.Series([3.0, 1.0, 2.0], index=["c", "a", "b"])), 3, ["a", "b", "c"])
    np.testing.assert_array_equal(prices.prices, [1.0, 2.0, 3.0])
    groups = check_price_list(
        Prices(groups=pd.Series(["x", "y", "x"], index=["c", "b", "a"])), 3, ["a", "b", "c"]
    )
    assert groups.group_of.tolist() == [0, 1, 0]
    plain = check_price_list(Prices(pd.Series([3.0, 1.0], index=[1, 0])), 2)
    np.testing.assert_array_equal(plain.prices, [1.0, 3.0])


@pytest.mark.parametrize("index", [["a", "b"], ["a", "b", "d"], ["a", "b", "b"], [0, 1, 2]])
def test_a_series_that_names_other_columns_or_lacks_some_is_refused(index):
    series = pd.Series(np.ones(len(index)), index=index)
    with pytest.raises(InvalidInputError, match="read by its index"):
        check_price_list(Prices(series), 3, ["a", "b", "c"])


@pytest.mark.parametrize("value", ["5", b"5", True])
def test_text_that_reads_as_a_number_is_no_amount(value):
    with pytest.raises(InvalidInputError, match="budget must be a finite number"):
        check_amount("budget", value)


def test_a_full_model_that_reads_some_columns_is_billed_for_those_and_for_what_was_bought_before():
    prices = check_price_list(Prices([1.0, 2.0, 4.0], full=10.0, full_features=np.array([0, 1])), 3)
    assert prices.cost_of_full == 13.0
    assert prices.cost_of_route(np.array([2])) == 17.0
    assert prices.cost_of_everything == 17.0
