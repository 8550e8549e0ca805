"""What a training table may not hold: text that is no category, targets that cannot be predicted, too few rows."""

import re

import numpy as np
import pandas as pd
import pytest

from thrifty.engine.table.columns import MAX_CATEGORIES
from thrifty.engine.table.training import targets_of, training_table
from thrifty.errors import InvalidInputError


def table(**columns):
    return pd.DataFrame({"x": [1.0, 2.0, np.nan, 4.0], "colour": ["red", "blue", None, "red"], **columns})


def test_text_among_numbers_is_refused_by_column_row_and_value():
    mistyped = pd.DataFrame({"x": [*map(str, range(20)), "l2"], "y": [0, 1, *[0] * 19]})
    with pytest.raises(InvalidInputError, match="column 'x' holds numbers, but 'l2' in row 21"):
        training_table(mistyped, "y")


def test_text_with_too_many_values_is_no_category():
    n = MAX_CATEGORIES + 1
    names = pd.DataFrame({"name": [f"row {i}" for i in range(n)], "y": np.arange(n) % 2})
    with pytest.raises(InvalidInputError, match="'name' holds text with 256 different values in 256 rows"):
        training_table(names, "y")
    often = pd.concat([names] * 5)
    assert training_table(often, "y").cells.numbers.max() == n - 1


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (["a", "a", "a", "a"], "must hold two different labels or more; it holds only 'a'"),
        ([0, 1, np.nan, 1], "is missing in 1 of 4 rows, the first of them row 3"),
    ],
)
def test_a_target_without_two_classes_is_refused(labels, told):
    with pytest.raises(InvalidInputError, match=told):
        training_table(table(y=labels), "y")


def test_a_target_of_several_classes_is_read_and_one_of_a_thousand_refused():
    assert training_table(table(y=["c", "a", "b", "a"]), "y").classes.tolist() == ["a", "b", "c"]
    numbers = pd.DataFrame({"x": np.zeros(1001), "y": np.arange(1001)})
    with pytest.raises(
        InvalidInputError, match="it holds 1,001 different ones, and more than 1000 look like numbers"
    ):
        training_table(numbers, "y", task="classes")


def test_a_target_that_is_not_there_and_columns_to_ignore_that_are_not_there_are_refused():
    frame = table(y=[0, 1, 0, 1])
    with pytest.raises(InvalidInputError, match="no column 'z', which should hold the label"):
        training_table(frame, "z")
    with pytest.raises(InvalidInputError, match="^ignore names 'z'"):
        training_table(frame, "y", ignore=["z"])
    with pytest.raises(InvalidInputError, match="'y' is the target and cannot be ignored"):
        training_table(frame, "y", ignore=["y"])
    with pytest.raises(InvalidInputError, match="nothing to buy"):
        training_table(frame, "y", ignore=["x", "colour"])
    assert list(training_table(frame, "y", ignore=["colour"]).X.columns) == ["x"]


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
        training_table(table(y=[0, 1, 0, 1], odd=cells), "y")
    assert "column 'odd' holds" in str(refusal.value)
    assert "ignore the column" in str(refusal.value)


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
    found = training_table(table(y=[0, 1, 0, 1], odd=cells), "y")
    assert sorted(found.cells.numbers[:, 2]) == [0, 1, 2, 3]


def test_a_file_that_begins_with_values_is_told_from_one_without_a_label():
    frame = pd.DataFrame([[1.0, 2.0, "x"]] * 2, columns=["0.5", "-1", "red"])
    with pytest.raises(InvalidInputError, match="The first line of a file must hold the names"):
        training_table(frame, "y")


def test_a_column_without_a_value_is_refused():
    with pytest.raises(InvalidInputError, match="'void' has none"):
        training_table(table(y=[0, 1, 0, 1], void=np.nan), "y")


@pytest.mark.parametrize(
    ("labels", "kind"), [([3, 7, 3, 7], "i"), (["b", "a", "a", "b"], "U"), ([True, False, True, True], "b")]
)
def test_labels_are_numbers_text_or_truth_values_and_others_are_refused(labels, kind):
    frame = table(y=labels)
    found = training_table(frame, "y")
    assert found.classes.dtype.kind == kind
    assert found.y.tolist() == labels
    with pytest.raises(InvalidInputError, match="must hold the labels the system was fitted on"):
        targets_of(table(y=["other"] * 4 if kind == "U" else [9] * 4), "y", found.classes)


def test_text_that_all_is_dates_is_read_as_dates_and_a_day_that_does_not_exist_is_refused():
    day = ["2026-01-02", None, "2026-01-03 12:00", "2026-01-02"]
    found = training_table(table(y=[0, 1, 0, 1], day=day), "y")
    assert [name for name in found.X if found.X[name].dtype.kind == "M"] == ["day"]
    assert np.diff(found.cells.numbers[[0, 2], 2]) == 1.5
    with pytest.raises(InvalidInputError, match="'day' must hold dates .*got '2026-02-31' in row 2"):
        training_table(table(y=[0, 1, 0, 1], day=["2026-01-02", "2026-02-31", None, None]), "y")
