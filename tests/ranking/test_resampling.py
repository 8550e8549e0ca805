import numpy as np
import pytest

from thrifty.exceptions import InvalidInputError
from thrifty.ranking.resampling import band_over_queries


def test_the_band_is_as_wide_as_the_mean_of_so_many_queries_varies():
    values = np.random.default_rng(1).normal(size=400)
    low, high = band_over_queries(values, n_boot=4000)
    assert low < values.mean() < high
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / np.sqrt(400), rel=0.1)
    assert band_over_queries(values) == band_over_queries(values)
    assert band_over_queries(values) != band_over_queries(values, seed=1)


def test_undefined_queries_are_left_out():
    values = np.array([0.25, np.nan, 0.75, np.nan])
    assert band_over_queries(values) == band_over_queries(values[[0, 2]])


def test_a_mean_over_documents_weighs_queries_by_their_documents():
    low, high = band_over_queries([1.0, 3.0], [99.0, 1.0], n_boot=200)
    assert low == pytest.approx(1.0)  # both draws the first
    assert high == pytest.approx(3.0)  # both draws the second
    assert band_over_queries([2.0, 2.0, 2.0], [1.0, 5.0, 9.0]) == (2.0, 2.0)


@pytest.mark.parametrize("values", [[np.nan, np.nan], [], [[1.0]]], ids=["undefined", "none", "a table"])
def test_values_without_any_defined_query_are_refused(values):
    with pytest.raises(InvalidInputError, match="values must hold one number per query"):
        band_over_queries(values)


def test_too_few_draws_for_the_level_are_refused():
    with pytest.raises(InvalidInputError, match="n_boot must be at least 40"):
        band_over_queries([1.0, 2.0], n_boot=10)
