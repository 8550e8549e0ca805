import re
from dataclasses import replace

import numpy as np
import pytest

from thrifty.engine.prices.prices import Prices, check_price_list
from thrifty.errors import InvalidInputError


def list_of(path, names, full_cost=0.0, **how):
    prices = Prices.read(path).of_columns(names, **how)
    return check_price_list(replace(prices, full=full_cost), len(names), names)


@pytest.fixture
def costs(tmp_path):
    def write(text):
        (tmp_path / "costs.csv").write_text(text)
        return tmp_path / "costs.csv"

    return write


def test_prices_are_read_with_and_without_a_line_of_names(costs):
    for text in ("feature,cost\nb,2\na,1.5\n", "b,2\na,1.5\n"):
        prices = list_of(costs(text), ["a", "b"], full_cost=3)
        assert prices.prices[prices.group_of].tolist() == [1.5, 2.0]
        assert prices.full_cost == 3


def test_columns_of_one_group_are_one_purchase(costs):
    prices = list_of(costs("feature,cost,group\na,5,blood\nb,5,blood\nc,1,\n"), ["a", "b", "c"])
    assert prices.cost_of([0, 1]) == 5
    assert prices.cost_of_everything == 6


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,1\n", "there is no price for 'b'"),
        ("a,1\nb,1\nc,1\n", "there is a price for 'c', not a feature of the table"),
        ("a,1\nb,cheap\n", "the cost of 'b' must be a number; got 'cheap'"),
        ("a,1\nb,-1\n", "the cost of 'b' must be finite and at least 0; got -1"),
        ("a,1\nb,nan\n", "cost of 'b' must be finite and at least 0; got nan"),
        ("a,1\na,2\nb,1\n", "two prices for 'a'"),
        ("a,1,g\nb,2,g\n", "must be the same for all columns of one group"),
        ("a\nb\n", "has from two to 3 cells, feature, cost, group; got 1"),
        (
            "feature,cost\na,1,5\nb,2\n",
            "has from two to 2 cells, feature, cost; got 3 in that of 'a'. Write decimals with a point",
        ),
        ("feature,cost\n", "there are no prices"),
        ("", "there are no prices"),
    ],
)
def test_prices_that_cannot_be_meant_are_refused_by_name(costs, text, told):
    with pytest.raises(InvalidInputError, match=told):
        list_of(costs(text), ["a", "b"])


def test_a_column_that_is_left_out_may_have_a_price(costs):
    assert list_of(costs("a,1\nid,9\n"), ["a"], known=["id"]).cost_of_everything == 1


@pytest.mark.slow
def test_a_fit_finds_the_prices_that_a_column_of_the_table_holds(
    costs, make_table, fit_by_command, refused, tmp_path
):
    frame = make_table(200)
    frame["lab price"] = np.where(np.arange(len(frame)) % 2, 1.0, 5.0)
    path = costs("feature,cost,by_row\n*,1\nlab one,,lab price\nlab price,0\n")
    system = fit_by_command(frame, "label", "--prices", path, "--full", "svm")
    place = system.feature_names_in_.tolist().index("lab one")
    prices = system.chain_.price_list
    assert prices.prices[prices.group_of[place]] == 3.0
    frame.loc[4, "lab price"] = -2.0
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = refused(
        "fit", tmp_path / "t.csv", "--target", "label", "--prices", path, "-o", tmp_path / "s.thrifty"
    )
    assert re.search(r"column 'lab price' holds prices.*row 5 has -2", told)
