"""Trees counted level by level answer as before, and their children follow from one bit each."""

import numpy as np

from tests.trees.grown import make_grower
from thrifty.engine.trees import TreeEnsemble, bin_columns
from thrifty.engine.trees.ensemble import children_of, in_level_order
from thrifty.learners.trees import EnsembleBuilder


def grown():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    X[rng.random(X.shape) < 0.1] = np.nan
    table, target = bin_columns(X), rng.normal(size=(400, 2))
    builder, scores = EnsembleBuilder(5, 2), np.zeros((400, 2))
    for rate, weight in ((0.3, 1.0), (0.3, 0.0), (0.5, 1.0)):  # the second tree has no split
        grower = make_grower(table, max_depth=6)
        grower.add_tree(builder, scores, (scores - target) * weight, learning_rate=rate)
    return X, builder.ensemble()


def test_trees_in_level_order_answer_as_before_and_need_one_bit_for_each_child():
    X, trees = grown()
    assert np.diff(trees.node_offsets).tolist()[1] == 0
    ordered = in_level_order(trees).validate()
    np.testing.assert_array_equal(ordered.predict(X), trees.predict(X))
    np.testing.assert_array_equal(ordered.touched(X), trees.touched(X))
    found = children_of(ordered.children < 0, ordered.node_offsets)
    np.testing.assert_array_equal(found, ordered.children)
    assert not np.array_equal(trees.children, ordered.children)
    twice = TreeEnsemble.concatenate([ordered, ordered])
    found = children_of(twice.children < 0, twice.node_offsets)
    np.testing.assert_array_equal(found, twice.children)


def test_no_trees_have_a_level_order():
    assert in_level_order(TreeEnsemble.empty(3, 2)).validate().n_trees == 0
