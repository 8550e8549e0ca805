"""Trees of many outputs that are split along one direction of them."""

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import bin_columns
from thrifty.learners.trees import EnsembleBuilder, derivatives_along
from thrifty.learners.trees.boosting import Boosting


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    grad = np.asfortranarray(np.round(rng.normal(size=(300, 4)) + X[:, :4], 6))
    hess = np.asfortranarray(np.round(rng.uniform(0.1, 1.0, size=(300, 4)), 6))
    return bin_columns(X), grad, hess


def grown(problem, direction, **options):
    table, grad, hess = problem
    builder, scores = EnsembleBuilder(table.n_features, grad.shape[1]), np.zeros(grad.shape)
    grower = make_grower(table, max_depth=3, l2=1.0)
    along = derivatives_along(np.asarray(direction), grad, hess)
    grower.add_tree_along(along, builder, scores, grad, hess, **options)
    return builder, scores


def test_along_one_output_the_splits_are_those_of_a_tree_of_that_output(problem):
    table, grad, hess = problem
    along = grown(problem, [0.0, 0.0, 1.0, 0.0])[0].ensemble()
    alone = grow(make_grower(table, max_depth=3, l2=1.0), grad[:, 2], hess[:, 2]).tree
    assert np.array_equal(along.feature, alone.feature)
    assert np.array_equal(along.threshold, alone.threshold)
    np.testing.assert_allclose(along.values[:, 2], alone.values[:, 0], rtol=1e-6)


def test_every_leaf_has_the_best_value_of_every_output(problem):
    table, grad, hess = problem
    builder, scores = grown(problem, np.full(4, 0.5), learning_rate=0.3)
    number = np.unique(scores, axis=0, return_inverse=True)[1].reshape(-1)
    assert 4 < number.max() + 1 <= 8
    for leaf in range(number.max() + 1):
        rows = number == leaf
        best = -0.3 * grad[rows].sum(axis=0) / (hess[rows].sum(axis=0) + 1.0)
        np.testing.assert_allclose(scores[rows][0], best, rtol=1e-9)
    assert np.array_equal(builder.ensemble().predict_binned(table), scores)


def test_no_step_is_larger_than_allowed(problem):
    _, scores = grown(problem, np.full(4, 0.5), max_step=0.25)
    assert np.abs(scores).max() == 0.25


def test_gains_are_those_of_all_outputs_on_average_over_directions(problem):
    table, grad, hess = problem
    for output in range(4):  # the mean of the four is the sum over outputs
        along = grown(problem, np.eye(4)[output])[0].gains.sum()
        alone = grow(make_grower(table, max_depth=3, l2=1.0), grad[:, output], hess[:, output]).raw_gain.sum()
        np.testing.assert_allclose(along / 4, alone, rtol=1e-6)


def test_the_order_of_the_rows_does_not_matter_to_many_classes():
    from thrifty.engine.tasks.classes import classification
    from thrifty.learners.cascade.problem import TrainingSet
    from thrifty.learners.cascade.stages import grow_stages

    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 4)), rng.integers(0, 5, 200).astype(float)
    shuffled = rng.permutation(200)
    task, boosting = classification(np.arange(5)), Boosting(n_trees=6, max_depth=3)
    both = [
        grow_stages(
            TrainingSet(task, bin_columns(X[rows]), y[rows], np.ones(200)), [np.arange(4)], boosting
        ).parts[0]
        for rows in (np.arange(200), shuffled)
    ]
    for name in ("feature", "threshold", "values"):
        assert np.array_equal(*(getattr(one, name) for one in both)), name


@pytest.mark.filterwarnings("ignore::thrifty.errors.DoubtfulRowsWarning")
def test_a_row_of_weight_two_is_two_rows_to_many_classes():
    from reproduction.rivals.greedy_miser import GreedyMiserClassifier

    rng = np.random.default_rng(2)
    X, y, weight = rng.random((15, 30)), np.arange(15) % 3, rng.integers(1, 5, 15)
    # Few rows and many columns: splits tie, and a rounding would decide between them.
    weighted = GreedyMiserClassifier(n_trees=10).fit(X, y, sample_weight=weight)
    repeated = GreedyMiserClassifier(n_trees=10).fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9)
