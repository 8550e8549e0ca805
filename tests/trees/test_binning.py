import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thrifty.engine.trees import bin_columns
from thrifty.errors import InvalidInputError


def test_few_distinct_values_get_a_bin_each_with_thresholds_half_way():
    table = bin_columns(np.array([[3.0], [1.0], [1.0], [10.0]]))
    np.testing.assert_array_equal(table.thresholds.of(0), [2.0, 6.5])
    np.testing.assert_array_equal(table.codes[:, 0], [1, 0, 0, 2])


def test_many_distinct_values_fill_bins_about_equally():
    table = bin_columns(np.random.default_rng(0).normal(size=(4000, 1)), max_bins=16)
    counts = np.bincount(table.codes[:, 0])
    assert len(counts) == 16
    assert counts.min() > 200
    assert counts.max() < 300


def test_the_search_without_branches_finds_what_a_binary_search_does_for_any_number_of_bins():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1)).repeat(254, axis=1)
    for bins, column in enumerate(X.T, start=2):
        column[:] = np.sort(column)[rng.integers(0, bins, 600)]
    X[::7] = np.nan
    table = bin_columns(X)
    for place, n_bins in enumerate(table.thresholds.n_bins):
        expected = np.where(
            np.isnan(X[:, place]), n_bins, np.searchsorted(table.thresholds.of(place), X[:, place])
        )
        np.testing.assert_array_equal(table.codes[:, place], expected)


def test_a_frequent_value_has_a_bin_of_its_own_and_leaves_the_others_theirs():
    rng = np.random.default_rng(0)
    column = np.where(rng.random(4000) < 0.5, 0.0, rng.normal(size=4000))
    table = bin_columns(column[:, None], max_bins=16)
    zeros = table.codes[:, 0] == table.codes[np.argmax(column == 0), 0]
    np.testing.assert_array_equal(zeros, column == 0)
    counts = np.bincount(table.codes[~zeros, 0], minlength=16)
    assert np.sum(counts > 0) >= 12
    assert counts.max() < 200


def test_merged_bins_are_bins_of_the_same_numbers_and_codes_of_few_values_stay():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=1000), rng.integers(0, 70, 1000)]).astype(float)
    X[:50, 0] = np.nan
    table = bin_columns(X)
    merged = table.with_merged_bins(16)
    np.testing.assert_array_equal(merged.thresholds.n_bins, [16, 70])
    np.testing.assert_array_equal(merged.codes[:, 1], table.codes[:, 1])
    known = X[50:, 0]
    np.testing.assert_array_equal(merged.codes[:50, 0], 16)
    np.testing.assert_array_equal(merged.codes[50:, 0], np.searchsorted(merged.thresholds.of(0), known))
    assert np.bincount(merged.codes[50:, 0]).min() > 40


def test_missing_values_have_the_code_after_the_last_bin():
    table = bin_columns(np.array([[1.0], [np.nan], [2.0]]))
    assert table.codes[1, 0] == table.thresholds.n_bins[0] == 2


def test_constant_and_all_missing_columns_are_allowed():
    table = bin_columns(np.array([[1.0, np.nan], [1.0, np.nan]]))
    np.testing.assert_array_equal(table.thresholds.n_bins, [1, 1])


@pytest.mark.slow
@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_infinity=False, width=64)),
    st.integers(2, 255),
)
def test_a_code_is_at_most_b_exactly_where_the_value_is_at_most_threshold_b(column, max_bins):
    table = bin_columns(column[:, None], max_bins=max_bins)
    thresholds = table.thresholds.of(0)
    assert np.all(np.diff(thresholds) > 0)
    assert len(thresholds) < max_bins
    with np.errstate(invalid="ignore"):
        by_value = column[:, None] <= thresholds
    np.testing.assert_array_equal(by_value, table.codes[:, :1] <= np.arange(len(thresholds)))


def test_single_precision_gives_the_same_codes():
    X = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]])
    np.testing.assert_array_equal(bin_columns(X.astype(np.float32)).codes, bin_columns(X).codes)


@pytest.mark.parametrize("max_bins", [256, 1, 0])
def test_a_number_of_bins_that_does_not_fit_a_byte_is_refused(max_bins):
    with pytest.raises(InvalidInputError, match="max_bins must lie in"):
        bin_columns(np.zeros((3, 2)), max_bins=max_bins)


def test_taking_rows_keeps_the_bins():
    table = bin_columns(np.arange(20.0).reshape(10, 2))
    np.testing.assert_array_equal(table.take(np.array([3, 5])).codes, table.codes[[3, 5]])


def test_column_keys_follow_the_columns_and_ignore_the_order_and_number_of_rows():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(30, 5)).astype(float)
    keys = bin_columns(X).column_keys
    order = rng.permutation(5)
    np.testing.assert_array_equal(bin_columns(X[rng.permutation(30)][:, order]).column_keys, keys[order])
    np.testing.assert_array_equal(bin_columns(np.vstack([X, X[:7]])).column_keys, keys)
    assert len(set(keys.tolist())) == 5


def test_a_row_of_weight_two_is_that_row_given_twice_also_where_values_share_bins():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2))
    twice = rng.integers(1, 4, 900)
    weighted = bin_columns(X, twice.astype(float), max_bins=16).thresholds
    repeated = bin_columns(np.repeat(X, twice, axis=0), max_bins=16).thresholds
    np.testing.assert_array_equal(weighted.values, repeated.values)
    assert not np.array_equal(weighted.values, bin_columns(X, max_bins=16).thresholds.values)
