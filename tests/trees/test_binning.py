import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thrifty.errors import InvalidInputError
from thrifty.trees import Binner


def test_few_distinct_values_get_a_bin_each_with_thresholds_half_way():
    table = Binner().fit_transform(np.array([[3.0], [1.0], [1.0], [10.0]]))
    np.testing.assert_array_equal(table.thresholds.of(0), [2.0, 6.5])
    np.testing.assert_array_equal(table.codes[:, 0], [1, 0, 0, 2])


def test_many_distinct_values_fill_bins_about_equally():
    table = Binner(max_bins=16).fit_transform(np.random.default_rng(0).normal(size=(4000, 1)))
    counts = np.bincount(table.codes[:, 0])
    assert len(counts) == 16
    assert counts.min() > 200
    assert counts.max() < 300


def test_a_frequent_value_has_a_bin_of_its_own_and_leaves_the_others_theirs():
    rng = np.random.default_rng(0)
    column = np.where(rng.random(4000) < 0.5, 0.0, rng.normal(size=4000))
    table = Binner(max_bins=16).fit_transform(column[:, None])
    zeros = table.codes[:, 0] == table.codes[np.argmax(column == 0), 0]
    np.testing.assert_array_equal(zeros, column == 0)
    counts = np.bincount(table.codes[~zeros, 0], minlength=16)
    assert np.sum(counts > 0) >= 12
    assert counts.max() < 200


def test_missing_values_have_the_code_after_the_last_bin():
    table = Binner().fit_transform(np.array([[1.0], [np.nan], [2.0]]))
    assert table.codes[1, 0] == table.thresholds.n_bins[0] == 2


def test_constant_and_all_missing_columns_are_allowed():
    table = Binner().fit_transform(np.array([[1.0, np.nan], [1.0, np.nan]]))
    np.testing.assert_array_equal(table.thresholds.n_bins, [1, 1])


@pytest.mark.slow
@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_infinity=False, width=64)),
    st.integers(2, 255),
)
def test_a_code_is_at_most_b_exactly_where_the_value_is_at_most_threshold_b(column, max_bins):
    table = Binner(max_bins).fit_transform(column[:, None])
    thresholds = table.thresholds.of(0)
    assert np.all(np.diff(thresholds) > 0)
    assert len(thresholds) < max_bins
    with np.errstate(invalid="ignore"):
        by_value = column[:, None] <= thresholds
    np.testing.assert_array_equal(by_value, table.codes[:, :1] <= np.arange(len(thresholds)))


def test_numpy_pandas_polars_and_single_precision_give_the_same_codes():
    X = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]])
    codes = Binner().fit_transform(X).codes
    nullable = pd.DataFrame({"a": pd.array([1, 2, 3], "Int64"), "b": pd.array([5, None, 7], "Int64")})
    tables = [
        X.astype(np.float32),
        pd.DataFrame(X),
        nullable,
        pl.DataFrame({"a": [1, 2, 3], "b": [5, None, 7]}),
    ]
    for table in tables:
        np.testing.assert_array_equal(Binner().fit_transform(table).codes, codes)


def test_an_infinite_value_is_refused_by_name_of_its_column():
    with pytest.raises(InvalidInputError, match=r"Column 'ecg' must hold finite numbers.*row 1 is inf"):
        Binner().fit(pd.DataFrame({"age": [1.0, 2.0], "ecg": [1.0, np.inf]}))


@pytest.mark.parametrize("max_bins", [256, 1, 0])
def test_a_number_of_bins_that_does_not_fit_a_byte_is_refused(max_bins):
    with pytest.raises(InvalidInputError, match="max_bins must lie in"):
        Binner(max_bins)


def test_text_wrong_shapes_and_other_columns_are_refused():
    with pytest.raises(InvalidInputError, match="numbers only"):
        Binner().fit([["a", "b"]])
    with pytest.raises(InvalidInputError, match="two dimensions"):
        Binner().fit(np.zeros(3))
    with pytest.raises(InvalidInputError, match="the 2 columns"):
        Binner().fit(np.zeros((3, 2))).transform(np.zeros((3, 3)))
    with pytest.raises(InvalidInputError, match="fit first"):
        Binner().transform(np.zeros((3, 3)))


def test_taking_rows_keeps_the_bins():
    table = Binner().fit_transform(np.arange(20.0).reshape(10, 2))
    np.testing.assert_array_equal(table.take(np.array([3, 5])).codes, table.codes[[3, 5]])


def test_column_keys_follow_the_columns_and_ignore_the_order_and_number_of_rows():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(30, 5)).astype(float)
    keys = Binner().fit_transform(X).column_keys
    order = rng.permutation(5)
    np.testing.assert_array_equal(
        Binner().fit_transform(X[rng.permutation(30)][:, order]).column_keys, keys[order]
    )
    np.testing.assert_array_equal(Binner().fit_transform(np.vstack([X, X[:7]])).column_keys, keys)
    assert len(set(keys.tolist())) == 5


def test_a_row_of_weight_two_is_that_row_given_twice_also_where_values_share_bins():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    twice = rng.integers(1, 4, 900)
    weighted = Binner(16).fit(X, twice.astype(float)).thresholds_
    repeated = Binner(16).fit(np.repeat(X, twice, axis=0)).thresholds_
    np.testing.assert_array_equal(weighted.values, repeated.values)
    assert not np.array_equal(weighted.values, Binner(16).fit(X).thresholds_.values)
