"""A builder keeps what boosting grows: the same trees and scores as growing them one by one."""

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import TreeEnsemble, bin_columns
from thrifty.learners.trees import EnsembleBuilder


def problem(n=300, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)).round(1)
    X[rng.random(X.shape) < 0.1] = np.nan
    return bin_columns(X), np.nan_to_num(X[:, :n_outputs]) + rng.normal(size=(n, n_outputs))


def assert_same(one, other):
    for name in ("feature", "threshold", "last_left", "missing_left", "children", "values", "node_offsets"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.leaf_offsets, other.leaf_offsets)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("newton", [False, True])
def test_a_builder_holds_the_trees_that_grow_returns_and_adds_them_to_the_scores(n_outputs, newton):
    table, target = problem(n_outputs=n_outputs)
    one_by_one, at_once = (make_grower(table, max_depth=3, gamma=2.0) for _ in range(2))
    trees, builder = [], EnsembleBuilder(table.n_features, n_outputs)
    scores, expected = np.zeros_like(target), np.zeros_like(target)
    hess = np.full(target.shape, 0.5) if newton else None
    for _ in range(40):  # more trees and splits than a new builder has room for
        grown = grow(one_by_one, expected - target, hess, learning_rate=0.3)
        expected += grown.row_values
        trees.append(grown.tree)
        n_cells = at_once.add_tree(builder, scores, scores - target, hess, learning_rate=0.3)
        assert n_cells == grown.n_cells
    assert_same(builder.ensemble().validate(), TreeEnsemble.concatenate(trees))
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_array_equal(at_once.bought, one_by_one.bought)
    np.testing.assert_allclose(builder.ensemble().predict_binned(table), scores, atol=1e-12)


def test_an_ensemble_of_a_builder_stays_as_it_is_when_more_is_grown():
    table, target = problem()
    grower, builder, scores = make_grower(table), EnsembleBuilder(table.n_features), np.zeros(table.n_rows)
    grower.add_tree(builder, scores, scores - target[:, 0])
    first = builder.ensemble()
    for _ in range(3):
        grower.add_tree(builder, scores, scores - target[:, 0])
    assert_same(first, builder.ensemble().first(1))
    assert builder.n_trees == 4


def test_gradients_may_lie_apart_or_be_read_only():
    table, target = problem()
    grad = np.ascontiguousarray(target[:, 0])
    read_only, apart = grad.copy(), np.repeat(grad, 2)[::2]
    read_only.flags.writeable = False
    expected = grow(make_grower(table), grad).tree
    for form in (read_only, apart, grad[:, None], list(grad)):
        assert_same(grow(make_grower(table), form).tree, expected)
