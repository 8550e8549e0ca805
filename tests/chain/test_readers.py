import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from thrifty.engine.prices.billing import PriceList
from thrifty.engine.purchases.receipts import PurchaseReader
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table
from thrifty.errors import InvalidInputError

NAMES = ["age", "size", "count"]
X = np.arange(12.0).reshape(4, 3)
ROWS, COLUMNS = np.array([0, 2, 3]), np.array([0, 2])


class Source:
    """Answers with what a function makes of the right values."""

    def __init__(self, answer, table=X):
        self.answer, self.table = answer, table

    def __len__(self):
        return len(self.table)

    def fetch(self, rows, columns):
        return self.answer(self.table[np.ix_(rows, columns)])


def reader_of(source, table=X, names=NAMES):
    prices = PriceList(np.ones(table.shape[1]), np.arange(table.shape[1]))
    columns = tuple(names or [""] * table.shape[1])
    return PurchaseReader(source, prices, Schema(None, columns, None, None), names)


def bought(answer, names=NAMES):
    return reader_of(Source(answer), names=names).block(ROWS, COLUMNS)


RIGHT = X[np.ix_(ROWS, COLUMNS)]
WITH_HOLE = np.where(RIGHT == 8.0, np.nan, RIGHT)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda values: values.tolist(), RIGHT),
        (sparse.csr_array, RIGHT),
        (lambda values: pd.DataFrame(values[:, ::-1], columns=["count", "age"]), RIGHT),
        (lambda values: pl.DataFrame(values[:, ::-1], schema=["count", "age"]), RIGHT),
        (lambda values: pd.DataFrame(values), RIGHT),
        (lambda values: np.ma.masked_equal(values, 8.0), WITH_HOLE),
        (lambda values: np.ma.masked_equal(values.astype(int), 8), WITH_HOLE),
        (lambda values: pd.DataFrame(values).astype("Int64").replace(8, pd.NA), WITH_HOLE),
    ],
    ids=["list", "sparse", "pandas", "polars", "no names", "masked", "masked integers", "nullable"],
)
def test_an_answer_of_any_kind_is_read_by_its_names_and_with_its_holes(answer, expected):
    np.testing.assert_array_equal(bought(answer), expected)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda values: np.where(values == 8.0, -np.inf, values), r"got -inf for row 2 of column 'count'"),
        (lambda values: values + 1j, "real numbers. Column 0 holds complex numbers"),
        (lambda values: pd.DataFrame(values + 1j, columns=["age", "count"]), "Column 'age' holds complex"),
        (
            lambda values: pd.DataFrame(values, columns=["age", "size"]),
            r"asked for the columns \['age', 'count'",
        ),
        (
            lambda values: pd.DataFrame(values, columns=["age", "age"]),
            r"a data frame of the columns \['age', 'age'",
        ),
        (lambda values: values[:, 0], r"rows and columns; got shape \(3,\)"),
        (lambda values: values.astype("datetime64[s]"), "Column 0 holds dates or times"),
        (lambda values: values.astype("timedelta64[s]"), "Column 0 holds dates or times"),
        (lambda values: [[10**400, 1]] * len(values), "must hold numbers: int too large"),
    ],
    ids=[
        *("infinite", "complex", "complex frame", "another column", "twice the same", "flat"),
        *("dates", "spans of time", "beyond all numbers"),
    ],
)
def test_what_cannot_be_right_is_refused_in_words(answer, words):
    with pytest.raises(InvalidInputError, match=words):
        bought(answer)


def test_a_frame_is_read_by_position_where_the_fit_knew_no_names():
    frame = bought(lambda values: pd.DataFrame(values, columns=["p", "q"]), names=None)
    np.testing.assert_array_equal(frame, RIGHT)


def test_a_source_may_edit_what_it_is_given_and_use_its_answer_again():
    class Careless(Source):
        buffer = np.empty((3, 1))

        def fetch(self, rows, columns):
            self.buffer[:] = self.table[np.ix_(rows, columns)]
            rows[:], columns[:] = rows[::-1].copy(), 0
            return self.buffer

    reader, rows = reader_of(Careless(None)), ROWS.copy()
    for column in (1, 2):
        reader.block(rows, np.array([column]))
    np.testing.assert_array_equal(rows, ROWS)
    np.testing.assert_array_equal(reader.block(rows, np.array([2, 1])), X[np.ix_(ROWS, [2, 1])])


def test_errors_of_a_source_are_its_own():
    def fail(values):
        raise ValueError("the laboratory is closed")

    with pytest.raises(ValueError, match="^the laboratory is closed$"):
        bought(fail)


@pytest.mark.parametrize("n_columns", [200, 800])
def test_memory_is_taken_for_what_is_bought_and_not_for_the_table(n_columns):
    table = np.broadcast_to(1.0, (5000, n_columns))
    tracemalloc.start()
    reader = reader_of(Source(np.array, table), table, None)
    reader.block(np.arange(5000), np.array([7]))
    reader.part(np.array([4, 9]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 8 * 5000


def test_complex_and_masked_tables_are_told_apart_from_numbers():
    with pytest.raises(InvalidInputError, match="X must hold real numbers. Column 0 holds complex numbers"):
        Table.of(X + 1j).as_numbers()
    np.testing.assert_array_equal(
        Table.of(np.ma.masked_equal(X, 8.0)).as_numbers(), np.where(X == 8.0, np.nan, X)
    )
