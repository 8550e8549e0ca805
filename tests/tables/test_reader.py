"""A row is judged by what it reads: what no route asks for may be absent, unseen or nonsense."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from thrifty.engine.purchases.readers import CellReader
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table
from thrifty.errors import InvalidInputError

ROWS, A, B, C = np.arange(3), np.array([0]), np.array([1]), np.array([2])


def schema_of(frame):
    return Schema.of(Table.of(frame))


@pytest.fixture
def schema():
    return schema_of(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "c": 1.0}))


@pytest.fixture
def cells(schema):
    return schema.cells(pd.DataFrame({"a": ["1", "nonsense", "3"], "b": ["x", "y", "z"]}))


def refusal(schema, frame, **how):
    with pytest.raises(InvalidInputError) as error:
        schema.cells(frame, **how).refuse_unreadable()
    return str(error.value)


def test_a_reader_refuses_a_cell_when_it_is_asked_for_and_not_before(cells):
    reader = CellReader(cells, Table(cells.numbers))
    np.testing.assert_array_equal(reader.block(np.array([0, 2]), A), [[1.0], [3.0]])
    np.testing.assert_array_equal(reader.block(np.array([0, 1]), B), [[0.0], [1.0]])
    for rows, columns, told in (
        (ROWS, A, "column 'a' must hold numbers; got 'nonsense' in row 2"),
        (ROWS, B, "column 'b' holds 'z' in row 3, which was not there"),
        (ROWS, C, "the table lacks column 'c', which is read in row 1. Its columns are 'a', 'b'."),
        (ROWS[1:], np.array([1, 0]), "column 'a' must hold numbers; got 'nonsense' in row 2"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            reader.block(rows, columns)
        with pytest.raises(InvalidInputError, match=told):
            reader.part(rows, columns)


def test_rows_that_are_taken_out_keep_their_numbers_and_their_chance(cells):
    some = cells.take(np.array([2, 1]))
    with pytest.raises(InvalidInputError, match="in row 2"):
        some.refuse_unreadable(columns=A)
    whole, part = (CellReader(one, Table(one.numbers)) for one in (cells, some))
    np.testing.assert_array_equal(whole.keys(np.array([2])), part.keys(np.array([0])))


def test_a_missing_cell_is_refused_only_where_the_full_model_needs_it():
    frame = pd.DataFrame({"a": [1.0, np.nan]})
    cells = schema_of(frame).cells(frame)
    needy = CellReader(cells, Table(cells.numbers), full_needs="the full model")
    assert np.isnan(needy.block(np.array([1]), A)).all()
    assert needy.part(np.array([0])).native.tolist() == [[1.0]]
    with pytest.raises(InvalidInputError, match="'a' is missing in row 2, and the full model reads no"):
        needy.part(np.array([1]))


def test_text_becomes_the_place_of_its_level_in_order_whatever_the_order_of_columns(schema):
    new = pd.DataFrame({"more": 1, "c": 0, "b": ["y", None, "x"], "a": [1.0, np.nan, 4.0]})
    cells = schema.cells(new)
    np.testing.assert_array_equal(cells.numbers.T, [[1.0, np.nan, 4.0], [1.0, np.nan, 0.0], [0.0] * 3])
    assert cells.unreadable == {}


def test_text_that_is_new_is_refused_by_column_and_value_or_read_as_missing(schema):
    new = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "green"], "c": 0})
    assert "column 'b' holds 'green' in row 2" in refusal(schema, new)
    cells = schema.cells(new, unseen_is_missing=True)
    np.testing.assert_array_equal(cells.numbers[:, 1], [0.0, np.nan])
    # The full model is given it as it came.
    assert schema.table_of(cells).native["b"].tolist() == ["x", "green"]


def test_numbers_come_as_text_and_decimals_and_infinite_ones_are_refused(schema):
    prices = [Decimal("1.5"), None, "2", pd.NA, True]
    new = pd.DataFrame({"a": pd.Series(prices, dtype=object), "b": "x", "c": 0})
    np.testing.assert_array_equal(schema.cells(new).numbers[:, 0], [1.5, np.nan, 2.0, np.nan, 1.0])
    told = refusal(schema, pd.DataFrame({"a": [-np.inf], "b": ["x"], "c": 0}))
    assert "'a' must hold finite numbers; got -inf in row 1" in told
    lists = pd.DataFrame({"a": [[1.0]], "b": ["x"], "c": 0})
    assert "'a' must hold numbers or text; it holds list values" in refusal(schema, lists)


@pytest.mark.parametrize("library", [pd, pl])
def test_dates_are_days_since_1970_and_truth_values_1_and_0_also_where_they_are_text(library):
    day = pd.to_datetime(["1970-01-02", None, "1970-01-03 12:00"], format="ISO8601")
    frame = pd.DataFrame({"day": day, "old": [True, False, True]})
    frame = frame if library is pd else pl.DataFrame({name: frame[name].to_numpy() for name in frame})
    schema = schema_of(frame)
    expected = [[1.0, np.nan, 2.5], [1.0, 0.0, 1.0]]
    np.testing.assert_array_equal(schema.cells(frame).numbers.T, expected)
    text = {"day": ["1970-01-02", None, "1970-01-03 12:00"], "old": ["True", "false", "1"]}
    np.testing.assert_array_equal(schema.cells(library.DataFrame(text)).numbers.T, expected)
    later = pd.DataFrame({"day": ["1970-01-02", "soon"], "old": True})
    assert "'day' must hold dates such as 2026-01-31" in refusal(schema, later)
    assert "got 'soon' in row 2" in refusal(schema, later)
    told = refusal(schema, pd.DataFrame({"day": ["1970-01-02"], "old": ["perhaps"]}))
    assert "'old' must hold True or False, or 1 or 0; got 'perhaps' in row 1" in told


def test_keys_of_rows_are_those_of_a_column_or_of_the_index(schema):
    new = pd.DataFrame({"a": [1.0, 2.0], "b": "x", "c": 0, "id": ["p", "q"]})
    by_column = schema.cells(new, row_key="id").row_keys
    np.testing.assert_array_equal(schema.cells(new.set_index("id")).row_keys, by_column)
    with pytest.raises(InvalidInputError, match="the table lacks column 'key', which holds the keys"):
        schema.cells(new, row_key="key")
