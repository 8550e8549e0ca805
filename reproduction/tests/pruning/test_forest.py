import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from reproduction.pruning.forest import flatten_forest
from thrifty.errors import InvalidInputError


def rows(n=300, seed=0):
    chance = np.random.default_rng(seed)
    X = chance.normal(size=(n, 5))
    return X, (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int) + (X[:, 3] > 1)


def flat(model):
    return flatten_forest([tree.tree_ for tree in model.estimators_], model.n_features_in_)


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_the_flat_forest_answers_as_scikit_learn_does(kind):
    X, y = rows()
    model = kind(7, random_state=0).fit(X, y)
    trees = flat(model).trees
    np.testing.assert_allclose(trees.predict(X) / 7, model.predict_proba(X), atol=1e-12)


def test_numbers_at_a_threshold_and_missing_ones_go_where_scikit_learn_sends_them():
    X, y = rows(200, seed=1)
    X[::7, 1] = np.nan
    model = RandomForestClassifier(5, random_state=0).fit(X, y)
    trees = flat(model).trees
    probes = X.copy()
    finite = np.flatnonzero(
        np.isfinite(trees.threshold)
    )  # an infinite one asks only whether the value is missing
    for i, row in enumerate(probes):
        split = finite[i % len(finite)]
        row[trees.feature[split]] = np.nextafter(trees.threshold[split], np.inf if i % 2 else -np.inf)
    np.testing.assert_allclose(trees.predict(probes) / 5, model.predict_proba(probes), atol=1e-12)


def test_a_forest_that_keeps_all_splits_is_the_forest_and_one_that_keeps_none_answers_with_the_roots():
    X, y = rows()
    model = RandomForestClassifier(4, random_state=0).fit(X, y)
    forest = flat(model)
    np.testing.assert_array_equal(
        forest.pruned(np.ones(forest.n_splits, bool)).predict(X), forest.trees.predict(X)
    )
    bare = forest.pruned(np.zeros(forest.n_splits, bool)).validate()
    roots = sum(tree.tree_.value[0, 0] for tree in model.estimators_)
    np.testing.assert_allclose(bare.predict(X), np.tile(roots, (len(X), 1)))
    assert not bare.touched(X).any()


def test_a_pruned_forest_answers_with_the_last_kept_node_on_the_way():
    X, y = rows(100)
    model = RandomForestClassifier(3, random_state=0).fit(X, y)
    forest = flat(model)
    kept = np.zeros(forest.n_splits, bool)
    chance = np.random.default_rng(0)
    for h, parent in enumerate(forest.parents):
        kept[h] = (parent < 0 or kept[parent]) and chance.random() < 0.7
    expected = np.zeros((len(X), 3))
    for t, tree in enumerate(estimator.tree_ for estimator in model.estimators_):
        is_split = tree.children_left >= 0
        number = forest.trees.node_offsets[t] + np.cumsum(is_split) - 1
        for i, row in enumerate(X.astype(np.float32)):
            node = 0
            while is_split[node] and kept[number[node]]:
                left = row[tree.feature[node]] <= tree.threshold[node]
                node = tree.children_left[node] if left else tree.children_right[node]
            expected[i] += tree.value[node, 0]
    np.testing.assert_allclose(forest.pruned(kept).validate().predict(X), expected, atol=1e-12)


def test_a_tree_without_splits_is_a_tree_too():
    X, y = rows(60)
    forest = flat(RandomForestClassifier(2, min_samples_leaf=50, random_state=0).fit(X, y))
    assert forest.n_splits == 0
    assert forest.pruned(np.zeros(0, bool)).n_trees == 2


def test_a_mask_that_keeps_a_split_below_one_that_is_cut_is_refused():
    X, y = rows()
    forest = flat(RandomForestClassifier(2, random_state=0).fit(X, y))
    kept = np.ones(forest.n_splits, bool)
    kept[0] = False
    with pytest.raises(InvalidInputError, match="kept must be a mask"):
        forest.pruned(kept)


def test_a_forest_of_no_trees_is_refused():
    with pytest.raises(InvalidInputError, match="at least one tree"):
        flatten_forest([], 3)
