import dataclasses

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import TreeEnsemble, bin_columns
from thrifty.engine.trees.binning import encode
from thrifty.errors import InvalidInputError


@pytest.fixture(scope="module")
def grown(priced_problem):
    X, y = priced_problem
    grower = make_grower(bin_columns(X), gamma=0.2)
    score, trees = np.zeros(len(y)), []
    for _ in range(8):
        trees.append(grow(grower, -y / (1 + np.exp(y * score)), learning_rate=0.5))
        score += trees[-1].row_values[:, 0]
    return X, grower, trees, score


@pytest.fixture(scope="module")
def ensemble(grown):
    return TreeEnsemble.concatenate([tree.tree for tree in grown[2]]).validate()


def test_the_ensemble_adds_up_its_trees(grown, ensemble):
    X, grower, _, score = grown
    np.testing.assert_allclose(ensemble.predict(X)[:, 0], score)
    np.testing.assert_array_equal(ensemble.predict(X), ensemble.predict_binned(grower.table))


def test_rows_it_never_saw_score_the_same_from_bins_and_from_numbers(grown, ensemble):
    X, grower, _, _ = grown
    new = np.random.default_rng(3).normal(size=(500, X.shape[1])) * 3
    new[::7, ::3] = np.nan
    codes = np.zeros((len(new), grower.table.padded.shape[1]), np.uint8)
    encode(new, grower.table.thresholds, None, codes)
    binned = dataclasses.replace(grower.table, padded=codes)
    np.testing.assert_array_equal(ensemble.predict(new), ensemble.predict_binned(binned))


def test_leaf_values_of_applied_leaves_add_up(grown, ensemble):
    X = grown[0]
    leaves = ensemble.apply(X)
    np.testing.assert_allclose(ensemble.values[leaves].sum(axis=1), ensemble.predict(X))


def test_touched_columns_decide_the_score(grown, ensemble):
    X = grown[0][:200]
    touched = ensemble.touched(X)
    noise = np.random.default_rng(0).normal(size=X.shape)
    np.testing.assert_array_equal(ensemble.predict(np.where(touched, X, noise)), ensemble.predict(X))
    np.testing.assert_array_equal(touched.any(axis=0) <= ensemble.features_used, True)
    assert touched.sum() < len(X) * ensemble.features_used.sum()


def test_the_first_trees_are_a_part_of_the_same_arrays(grown, ensemble):
    X, _, trees, _ = grown
    first = ensemble.first(3).validate()
    assert first.n_trees == 3
    np.testing.assert_array_equal(
        first.predict(X), TreeEnsemble.concatenate([tree.tree for tree in trees[:3]]).predict(X)
    )
    assert np.shares_memory(first.feature, ensemble.feature)
    assert ensemble.first(0).predict(X).tolist() == [[0.0]] * len(X)


def test_no_trees_and_single_leaves_are_ensembles(grown):
    X = grown[0]
    empty = TreeEnsemble.empty(X.shape[1], 2).validate()
    assert empty.predict(X).shape == (len(X), 2)
    stump = grow(make_grower(grown[1].table, gamma=1e9), np.ones(len(X))).tree
    both = TreeEnsemble.concatenate(
        [TreeEnsemble.empty(X.shape[1]), stump, grown[2][0].tree, stump]
    ).validate()
    np.testing.assert_allclose(both.predict(X), grown[2][0].tree.predict(X) - 2.0)


def test_size_counts_every_array_that_predicts(ensemble):
    n_nodes, n_leaves = len(ensemble.feature), len(ensemble.values)
    assert ensemble.n_bytes == n_nodes * (4 + 8 + 1 + 8) + n_leaves * 8 + ensemble.n_trees * 4


def damaged(ensemble, name, index, value):
    array = getattr(ensemble, name).copy()
    array[index] = value
    return dataclasses.replace(ensemble, **{name: array})


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("children", (1, 0), 0),
        ("children", (0, 0), 10**6),
        ("children", (2, 0), -(10**6)),
        ("children", (0, 0), -1),
        ("feature", 0, 99),
        ("feature", 0, -1),
        ("threshold", 0, np.nan),
        ("values", 0, np.inf),
        ("node_offsets", -1, 3),
        ("leaf_offsets", 1, 2),
    ],
)
def test_damaged_arrays_are_refused(ensemble, name, index, value):
    with pytest.raises(InvalidInputError, match="proper trees"):
        damaged(ensemble, name, index, value).validate()


def test_a_table_of_other_columns_is_refused(ensemble):
    with pytest.raises(InvalidInputError, match="X must have shape"):
        ensemble.predict(np.zeros((3, 2)))
