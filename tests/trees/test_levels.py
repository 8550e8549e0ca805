"""Splits by sets of levels: against every set there is, from codes and from numbers, however rows are given."""

from itertools import combinations

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import bin_columns
from thrifty.learners.trees import EnsembleBuilder
from thrifty.learners.trees import grow as growing
from thrifty.learners.trees.best_first import SMOOTHING


def table_of(n_levels, n=1500, seed=0):
    rng = np.random.default_rng(seed)
    levels = rng.integers(0, n_levels, n).astype(float)
    levels[rng.random(n) < 0.05] = np.nan
    X = np.column_stack([rng.normal(size=n), levels])
    worth = rng.normal(size=n_levels)
    return X, np.where(np.isnan(levels), 0.3, worth[np.nan_to_num(levels).astype(int)]) + X[:, 0]


def boosted(table, y, n_trees=8, **options):
    y = y.reshape(len(y), -1)
    grower = make_grower(table, max_depth=4, l2=1.0, gamma=0.1, **options)
    builder, scores = EnsembleBuilder(table.n_features, y.shape[1]), np.zeros(y.shape)
    for _ in range(n_trees):
        grower.add_tree(builder, scores, np.round((scores - y) * 1024) / 1024, learning_rate=0.25)
    return builder.ensemble().validate(), scores


def test_first_split_is_the_best_of_all_sets_of_levels():
    levels = np.repeat(np.arange(6.0), 40)
    grad = (
        np.random.default_rng(1).integers(-8, 9, len(levels)) / 8
        + np.array([1, -2, 0, 2, -1, 1])[levels.astype(int)]
    )
    table = bin_columns(levels[:, None], categorical=[0])
    grown = grow(make_grower(table, max_depth=1), grad)

    def gain(chosen):
        left = np.isin(levels, chosen)
        parts = [(grad[side].sum() ** 2) / (side.sum() + SMOOTHING) for side in (left, ~left)]
        return (sum(parts) - grad.sum() ** 2 / (len(grad) + SMOOTHING)) / 2

    best = max(gain(some) for size in range(1, 6) for some in combinations(range(6), size))
    np.testing.assert_allclose(grown.raw_gain, best)
    np.testing.assert_allclose(gain(grown.tree.sets.levels), best)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("n_levels", [20, 600])
def test_trees_answer_numbers_as_they_answer_codes_and_tell_levels_apart(n_levels, n_outputs):
    X, y = table_of(n_levels)
    both = np.column_stack([y, X[:, 0] - y])[:, :n_outputs]
    table = bin_columns(X, categorical=[1])
    trees, scores = boosted(table, both)
    np.testing.assert_array_equal(trees.predict_binned(table), trees.predict(X))
    np.testing.assert_allclose(trees.predict(X), scores)
    np.testing.assert_allclose(trees.values[trees.apply(X)].sum(axis=1), scores)
    parts = [trees.first(3), trees.first(0)]
    np.testing.assert_array_equal(type(trees).concatenate(parts).predict(X), trees.first(3).predict(X))
    ordered, as_numbers = boosted(bin_columns(X), both)
    assert ordered.sets is None
    assert ((scores - both) ** 2).mean() < 0.8 * ((as_numbers - both) ** 2).mean()


@pytest.mark.parametrize("n_levels", [20, 600])
def test_trees_of_levels_do_not_depend_on_the_order_of_rows(n_levels):
    X, y = table_of(n_levels)
    trees, _ = boosted(bin_columns(X, categorical=[1]), y)
    order = np.random.default_rng(5).permutation(len(X))
    shuffled, _ = boosted(bin_columns(X[order], categorical=[1]), y[order])
    np.testing.assert_array_equal(shuffled.predict(X), trees.predict(X))


def test_a_tree_of_levels_is_grown_in_one_compiled_call(monkeypatch):
    monkeypatch.setattr(growing, "examine_levels", None)
    monkeypatch.setattr(growing, "run_lanes", None)
    X, y = table_of(20, n=300)
    trees, _ = boosted(bin_columns(X, categorical=[1]), y, n_trees=2)
    assert trees.sets is not None


@pytest.mark.parametrize("twice", [slice(0, 500), slice(None)], ids=["some rows", "all rows"])
@pytest.mark.parametrize("n_levels", [30, 300])
def test_a_row_of_weight_two_is_that_row_given_twice(n_levels, twice):
    X, y = table_of(n_levels, n=2000)
    grad, weight = np.round(-y * 1024) / 1024, np.ones(len(X))
    weight[twice] = 2.0
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    tables, grown = [], []
    for given, of_row in ((np.arange(len(X)), weight), (rows, np.ones(len(rows)))):
        tables.append(bin_columns(X[given], of_row, categorical=[1]))
        grower = make_grower(tables[-1], max_depth=6, l2=1.0)
        grown.append(grow(grower, grad[given] * of_row, of_row).tree)
    for levels, again in zip(*(table.categories.levels for table in tables), strict=True):
        np.testing.assert_array_equal(levels, again)
    assert grown[0].sets is not None
    np.testing.assert_array_equal(grown[0].sets.levels, grown[1].sets.levels)
    np.testing.assert_array_equal(grown[0].predict(X), grown[1].predict(X))


def test_a_column_of_many_levels_is_bought_once():
    X, y = table_of(600, n=6000)
    table = bin_columns(X, categorical=[1])
    assert table.n_features == 2
    assert table.n_codes > 2
    grown = grow(make_grower(table, max_depth=4, gamma=1.0, prices=[0.0, 1.0]), -y)
    on_levels = grown.tree.feature == 1
    assert on_levels.sum() > 1
    assert grown.charge.sum() == 1.0
