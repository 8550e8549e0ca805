"""Drift of columns against the spread that a fit keeps."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.table.training import N_BINS, Spread
from thrifty.errors import InvalidInputError
from thrifty.serve.metrics import MIN_VALUES, Drift, stability_index


def table(n_rows, seed):
    """A smooth column, one of three values, a constant, one that is half missing, one that is empty."""
    chance = np.random.default_rng(seed)
    half = np.where(chance.random(n_rows) < 0.5, np.nan, chance.normal(size=n_rows))
    three = chance.choice([0.0, 1.0, 5.0], n_rows, p=[0.2, 0.3, 0.5])
    return np.column_stack(
        [chance.normal(size=n_rows), three, np.ones(n_rows), half, np.full(n_rows, np.nan)]
    )


@pytest.fixture(scope="module")
def spread():
    return Spread.of(table(5000, 0))


def test_a_spread_holds_tenths_of_smooth_columns_and_each_value_of_others(spread):
    np.testing.assert_allclose(spread.shares[[0, 3]], 1 / N_BINS, atol=1e-3)
    np.testing.assert_allclose(spread.shares[1, :3], [0.2, 0.3, 0.5], atol=0.02)
    assert spread.shares[2].tolist() == [1.0] + [0.0] * (N_BINS - 1)
    assert not spread.shares[4].any()


def test_the_index_is_that_of_the_formula():
    p, q = np.array([[0.5, 0.5, 0.0]]), np.array([[0.25, 0.75, 0.0]])
    np.testing.assert_allclose(stability_index(p, q), 0.25 * np.log(2) - 0.25 * np.log(2 / 3))
    assert stability_index(q, q) == 0.0


def test_rows_like_those_of_the_fit_do_not_drift_and_a_column_that_moves_is_the_one_that_does(spread):
    drift = Drift(spread)
    new = table(3000, 1)
    for row in new[:300]:
        drift.update(row[None])
    drift.update(new[300:])
    found = drift.by_column()
    assert (found[:4] < 0.02).all()
    assert np.isnan(found[4])  # the fit has seen no value of it
    new[:, 0] += 1.0
    moved = Drift(spread)
    moved.update(new)
    assert moved.by_column()[0] > 0.25
    np.testing.assert_array_equal(moved.by_column()[1:4], found[1:4])


def test_few_values_say_nothing_and_missing_ones_have_no_say(spread):
    drift = Drift(spread)
    drift.update(table(MIN_VALUES - 1, 2))
    assert np.isnan(drift.by_column()).all()
    without = table(2 * MIN_VALUES, 3)
    without[:, 1] = np.nan
    drift.update(without)
    found = drift.by_column()
    assert np.isnan(found[1])
    assert found[0] < 0.05


def test_rows_of_long_ago_are_forgotten(spread):
    drift = Drift(spread, window=1000)
    drift.update(table(1000, 4) + 3.0)
    assert drift.by_column()[0] > 1.0
    for seed in (5, 6):
        drift.update(table(1000, seed))
    assert drift.by_column()[0] < 0.05


def test_a_file_keeps_the_spread_of_its_columns_and_one_without_it_is_watched_by_nobody(bike_system):
    kept = Spread.of_system(from_bytes(to_bytes(bike_system)))
    assert len(kept.edges) == bike_system.n_features_in_
    np.testing.assert_array_equal(kept.shares.sum(axis=1), np.ones(len(kept.shares)))
    without = copy.copy(bike_system)
    del without.record_
    assert Spread.of_system(without) is None


@pytest.mark.parametrize("part", ["edges", "shares"])
def test_a_file_with_a_spread_that_is_none_is_refused(bike_system, part):
    spread = bike_system.record_.spread
    falling = getattr(spread, part).copy()
    falling[0] = np.linspace(9.0, 1.0, falling.shape[1])
    for bad in (replace(spread, **{part: falling}), replace(spread, **{part: falling[:, :3]})):
        damaged = copy.copy(bike_system)
        damaged.record_ = replace(bike_system.record_, spread=bad)
        data = to_bytes(damaged)
        with pytest.raises(InvalidInputError, match="edges that rise and shares that sum to 1"):
            from_bytes(data)
    fewer = copy.copy(bike_system)
    fewer.record_ = replace(fewer.record_, spread=Spread(spread.edges[1:], spread.shares[1:]))
    data = to_bytes(fewer)
    with pytest.raises(InvalidInputError, match="spread in the file must be of the columns of the chain"):
        from_bytes(data)
