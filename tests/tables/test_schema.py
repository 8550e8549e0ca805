import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thrifty.errors import InvalidInputError
from thrifty.tables.schema import MOST_CATEGORIES, learn_schema


def table(**columns):
    return pd.DataFrame({"x": [1.0, 2.0, np.nan, 4.0], "colour": ["red", "blue", None, "red"], **columns})


@pytest.fixture
def schema():
    return learn_schema(table(y=["no", "yes", "no", "yes"]), "y")


def test_text_becomes_the_place_of_its_category_in_order(schema):
    assert schema.names == ("x", "colour")
    assert schema.categories == {"colour": ("blue", "red")}
    cells = schema.cells(table())
    np.testing.assert_array_equal(cells.numbers.T, [[1.0, 2.0, np.nan, 4.0], [1.0, 0.0, np.nan, 1.0]])
    assert cells.unreadable == {}


def test_the_order_of_columns_does_not_matter_and_further_ones_are_named(schema):
    other = table(more=1, y="no")[["more", "colour", "y", "x"]]
    np.testing.assert_array_equal(schema.cells(other).numbers, schema.cells(table()).numbers)
    assert schema.extra_columns(other) == ["more"]


def refusal(schema, frame, **how):
    with pytest.raises(InvalidInputError) as error:
        schema.cells(frame, **how).refuse_unreadable()
    return str(error.value)


def test_a_column_that_lacks_is_refused_by_name(schema):
    told = refusal(schema, table().drop(columns="colour"))
    assert told == "the table lacks column 'colour', which is read in row 1. Its columns are 'x'."


def test_text_that_is_new_is_refused_by_column_and_value_or_read_as_missing(schema):
    new = pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "green"]})
    assert "column 'colour' holds 'green' in row 2" in refusal(schema, new)
    numbers = schema.cells(new, unseen_is_missing=True).numbers
    np.testing.assert_array_equal(numbers[:, 1], [1.0, np.nan])


def test_text_among_numbers_is_refused_by_column_row_and_value(schema):
    new = pd.DataFrame({"x": ["1", "two"], "colour": ["red", "red"]})
    assert "column 'x' must hold numbers; got 'two' in row 2" in refusal(schema, new)
    assert schema.cells(new).numbers[0, 0] == 1.0
    mistyped = pd.DataFrame({"x": [*map(str, range(20)), "l2"], "y": [0, 1, *[0] * 19]})
    with pytest.raises(InvalidInputError, match="column 'x' holds numbers, but 'l2' in row 21"):
        learn_schema(mistyped, "y")


def test_an_infinite_number_is_refused(schema):
    told = refusal(schema, pd.DataFrame({"x": [-np.inf], "colour": ["red"]}))
    assert "'x' must hold finite numbers; got -inf in row 1" in told


def test_text_with_too_many_values_is_no_category():
    n = MOST_CATEGORIES + 1
    names = pd.DataFrame({"name": [f"row {i}" for i in range(n)], "y": np.arange(n) % 2})
    with pytest.raises(InvalidInputError, match="'name' holds text with 256 different values in 256 rows"):
        learn_schema(names, "y")
    often = pd.concat([names] * 5)
    assert len(learn_schema(often, "y").categories["name"]) == n


@pytest.mark.parametrize("as_text", [True, False])
def test_dates_are_days_since_1970_and_other_text_among_them_is_refused(as_text):
    day = ["1970-01-02", None, "1970-01-03 12:00"]
    frame = pd.DataFrame({"day": day if as_text else pd.to_datetime(day, format="ISO8601"), "y": [0, 1, 0]})
    schema = learn_schema(frame, "y")
    assert schema.dates == ("day",)
    np.testing.assert_array_equal(schema.cells(frame).numbers[:, 0], [1.0, np.nan, 2.5])
    later = pd.DataFrame({"day": ["1970-01-02", "soon"]})
    assert "'day' must hold dates such as 2026-01-31; got 'soon' in row 2" in refusal(schema, later)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["a", "a", "a", "a"], "must hold two different labels or more; it holds only 'a'"),
        ([0, 1, np.nan, 1], "is missing in 1 of 4 rows, the first of them row 3"),
    ],
)
def test_a_target_without_two_classes_is_refused(labels, told):
    with pytest.raises(InvalidInputError, match=told):
        learn_schema(table(y=labels), "y")


def test_a_target_of_several_classes_is_read_and_one_of_a_thousand_refused():
    assert learn_schema(table(y=["c", "a", "b", "a"]), "y").classes.tolist() == ["a", "b", "c"]
    numbers = pd.DataFrame({"x": np.zeros(1001), "y": np.arange(1001)})
    with pytest.raises(
        InvalidInputError, match="it holds 1,001 different ones, and more than 1000 look like numbers"
    ):
        learn_schema(numbers, "y", task="classes")


def test_a_target_that_is_not_there_and_columns_to_ignore_that_are_not_there_are_refused():
    frame = table(y=[0, 1, 0, 1])
    with pytest.raises(InvalidInputError, match="no column 'z', which should hold the label"):
        learn_schema(frame, "z")
    with pytest.raises(InvalidInputError, match="--ignore names 'z'"):
        learn_schema(frame, "y", ["z"])
    with pytest.raises(InvalidInputError, match="'y' is the target and cannot be ignored"):
        learn_schema(frame, "y", ["y"])
    with pytest.raises(InvalidInputError, match="nothing to buy"):
        learn_schema(frame, "y", ["x", "colour"])
    assert learn_schema(frame, "y", ["colour"]).names == ("x",)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (
            ["1,234", "5,678", "999", "1,000,000.5"],
            "holds numbers with separators or units such as '1,000,000.5'",
        ),
        (["1 234", "-5 678", "1\u00a0000", "2\u202f000"], "numbers with separators"),
        (["1.234,5", "0,5", "-0,25", "7,125"], "Write them plainly, with a point before the decimals"),
        (["$5", "$-1.50", "12 €", "3%"], "numbers with separators or units"),
        (["2020-01-31", "2020-02-01", "2021-1-1", "2021-12-24 18:00"], "holds dates such as '2020-01-31'"),
        (["31.01.2020", "1/2/20", "24-12-2021", "1.1.2021 07:30:00"], "Write them as 2026-01-31"),
    ],
)
def test_numbers_in_disguise_and_dates_are_no_categories(cells, told):
    with pytest.raises(InvalidInputError, match=re.escape(told)) as refusal:
        learn_schema(table(y=[0, 1, 0, 1], odd=cells), "y")
    assert "column 'odd' holds" in str(refusal.value)
    assert "--ignore" in str(refusal.value)


@pytest.mark.parametrize(
    "cells",
    [
        ["1.2.3", "1.2.4", "2.0.0", "10.1.2"],
        ["10.12.15", "10.13.02", "11.04.00", "12-34-56"],
        ["18-25", "26-40", "41-65", "66+"],
        ["A,1", "B,2", "C,3", "D,4"],
    ],
)
def test_text_that_only_resembles_numbers_and_dates_is_categories(cells):
    assert len(learn_schema(table(y=[0, 1, 0, 1], odd=cells), "y").categories["odd"]) == 4


def test_a_file_that_begins_with_values_is_told_from_one_without_a_label():
    frame = pd.DataFrame([[1.0, 2.0, "x"]] * 2, columns=["0.5", "-1", "red"])
    with pytest.raises(InvalidInputError, match="The first line of a file must hold the names"):
        learn_schema(frame, "y")


def test_a_column_without_a_value_is_refused():
    with pytest.raises(InvalidInputError, match="'void' has none"):
        learn_schema(table(y=[0, 1, 0, 1], void=np.nan), "y")


@pytest.mark.parametrize(
    ("labels", "kind"), [([3, 7, 3, 7], "i"), (["b", "a", "a", "b"], "U"), ([True, False, True, True], "b")]
)
def test_labels_are_numbers_text_or_truth_values_and_others_are_refused(labels, kind):
    frame = table(y=labels)
    schema = learn_schema(frame, "y")
    assert schema.classes.dtype.kind == kind
    assert schema.labels(frame).tolist() == labels
    assert ("y" in schema.text_columns) == (kind == "U")
    with pytest.raises(InvalidInputError, match="must hold the labels the system was fitted on"):
        schema.labels(table(y=["other"] * 4 if kind == "U" else [9] * 4))


@pytest.mark.slow
@given(st.lists(st.sampled_from(["a", "b", "ä", "z z"]), min_size=2, max_size=20), st.randoms())
def test_codes_do_not_depend_on_the_order_of_the_rows(values, chance):
    frame = pd.DataFrame({"t": values, "y": [0, 1] + [0] * (len(values) - 2)})
    order = list(range(len(values)))
    chance.shuffle(order)
    schema = learn_schema(frame, "y")
    assert learn_schema(frame.iloc[order].reset_index(drop=True), "y").categories == schema.categories
    codes = schema.cells(frame).numbers[:, 0].astype(int)
    assert [schema.categories["t"][code] for code in codes] == values


def test_decimals_are_numbers(schema):
    prices = table(x=[Decimal("1.5"), None, Decimal("2"), Decimal("-0.25")])
    np.testing.assert_array_equal(schema.cells(prices).numbers[:, 0], [1.5, np.nan, 2.0, -0.25])
