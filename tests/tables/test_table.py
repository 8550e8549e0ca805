"""``Table``: one form of arrays, sparse matrices and data frames."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from thrifty import ConfidenceRouter, Prices
from thrifty.engine.table import table as module
from thrifty.engine.table.table import Table

NUMBERS = np.arange(24.0).reshape(6, 4)
NAMES = ["a", "b", "c", "d"]
FORMS = {
    "array": np.asarray,
    "sparse": sparse.csr_array,
    "pandas": lambda numbers: pd.DataFrame(numbers, columns=NAMES, index=[10, 11, 12, 13, 14, 15]),
    "polars": lambda numbers: pl.DataFrame(numbers, schema=NAMES),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_and_columns_of_every_form_are_those_of_the_array(form):
    native = FORMS[form](NUMBERS)
    table = Table.of(native).with_numbers(native if form == "sparse" else NUMBERS)
    rows, columns = np.array([4, 1, 1]), np.array([2, 0])
    expected = NUMBERS[np.ix_(rows, columns)]
    some = table.take(rows).with_columns(columns)
    for part in (some.native, table.part(rows, columns).native):
        np.testing.assert_array_equal(part.toarray() if form == "sparse" else np.asarray(part), expected)
    for numbers in (some.numbers, table.block(rows, columns)):
        np.testing.assert_array_equal(numbers.toarray() if form == "sparse" else numbers, expected)
    assert some.numbers_of(np.arange(3)).tolist() == [4, 1, 1]
    assert some.columns == ([NAMES[column] for column in columns] if some.kind else [0, 1])
    np.testing.assert_array_equal(some.keys(np.arange(3)), [14, 11, 11] if form == "pandas" else [0, 1, 2])


def test_a_model_may_write_into_all_rows_of_a_table_and_leaves_those_of_the_user_as_they_are():
    X = NUMBERS.copy()
    Table.of(X).native_rows(np.arange(6))[:] = 0.0
    np.testing.assert_array_equal(X, NUMBERS)


@pytest.mark.parametrize("form", ["pandas", "polars"])
def test_a_data_frame_is_asked_once_which_library_it_comes_from(form, monkeypatch):
    asked, library_of = [], module._library_of
    monkeypatch.setattr(module, "_library_of", lambda table: asked.append(type(table)) or library_of(table))
    make = pd.DataFrame if form == "pandas" else pl.DataFrame
    X = make(dict(zip(NAMES, np.random.default_rng(0).normal(size=(4, 60)), strict=True)))
    router = ConfidenceRouter(LogisticRegression(), p_full=0.5, prices=Prices(0.0, full=1.0), cv=2).fit(
        X, X["a"].to_numpy() > 0
    )
    assert asked == [type(X)]
    for answer in (router.predict, router.cost, router.route, router.explain, router.chain_.predict):
        asked.clear()
        answer(X)
        assert asked == [type(X)]
