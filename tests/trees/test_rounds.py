"""Several trees in one compiled call: the trees that a call each would give, to the last bit."""

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.tasks.classes import BinaryLoss
from thrifty.engine.tasks.regression import SquaredLoss
from thrifty.engine.trees import bin_columns
from thrifty.errors import InvalidInputError
from thrifty.learners.trees import EnsembleBuilder
from thrifty.learners.trees import grow as growing
from thrifty.learners.trees.boosting import Boosting

RNG = np.random.default_rng(0)
N, N_TREES = 300, 12
X = np.column_stack([RNG.normal(size=(N, 4)), RNG.integers(0, 5, N)])
X[RNG.random(X.shape) < 0.1] = np.nan
Y = np.nan_to_num(X[:, 0]) + RNG.normal(size=N)
NUMBERS, LEVELS = bin_columns(X), bin_columns(X, categorical=[4])
ONES, WEIGHTS, DRAWN = np.ones(N), RNG.integers(0, 3, N) / 4, RNG.random((N_TREES, N)) < 0.6
LOGISTIC, SQUARED = BinaryLoss(np.sign(Y)), SquaredLoss(Y)
NEWTON = Boosting(max_depth=3, learning_rate=0.3)
GRADIENT = Boosting(max_depth=3, step="gradient", min_child_samples=10)


class Unknown:
    """A loss that compiled code knows nothing of."""

    def __init__(self, loss):
        self.derivatives = loss.derivatives


def boosted(boosting, loss, counts, drawn, table, gamma):
    grower, builder = boosting.grower(table, gamma=gamma), EnsembleBuilder(table.n_features)
    score = np.zeros((N, 1))
    boosting.add_trees(grower, builder, loss, counts, score, N_TREES, drawn)
    return builder.ensemble(), score, grower.bought


@pytest.mark.parametrize(
    ("boosting", "loss", "counts", "drawn", "table", "gamma"),
    [
        (NEWTON, LOGISTIC, ONES, DRAWN, NUMBERS, 0.0),
        (NEWTON, LOGISTIC, WEIGHTS, DRAWN, NUMBERS, 1.5),
        (NEWTON, LOGISTIC, WEIGHTS, None, LEVELS, 0.0),
        (NEWTON, SQUARED, np.broadcast_to(0.5, N), DRAWN, NUMBERS, 0.0),
        (GRADIENT, SQUARED, ONES, None, NUMBERS, 0.0),
        (GRADIENT, SQUARED, WEIGHTS, None, NUMBERS, 0.0),
    ],
)
def test_trees_of_one_call_are_those_of_a_call_each(boosting, loss, counts, drawn, table, gamma):
    together, score, bought = boosted(boosting, loss, counts, drawn, table, gamma)
    each, expected, bought_each = boosted(boosting, Unknown(loss), counts, drawn, table, gamma)
    assert together.n_trees == N_TREES
    for name in ("feature", "threshold", "last_left", "missing_left", "children", "values", "node_offsets"):
        np.testing.assert_array_equal(getattr(together, name), getattr(each, name))
    np.testing.assert_array_equal(score, expected)
    np.testing.assert_array_equal(bought, bought_each)
    np.testing.assert_allclose(together.predict_binned(table), score, atol=1e-12)


def test_trees_that_pay_nothing_take_one_call_together(monkeypatch):
    calls, grow_trees = [], growing.grow_trees
    monkeypatch.setattr(growing, "grow_trees", lambda *given: calls.append(1) or grow_trees(*given))
    boosted(NEWTON, LOGISTIC, ONES, DRAWN, NUMBERS, 0.0)
    assert len(calls) == 1


def test_a_loss_that_is_not_a_number_is_refused_and_leaves_the_builder_without_the_tree():
    grower, builder = NEWTON.grower(NUMBERS), EnsembleBuilder(NUMBERS.n_features)
    with pytest.raises(InvalidInputError, match="grad must be finite"):
        NEWTON.add_trees(
            grower, builder, SquaredLoss(np.where(np.arange(N) == 3, np.nan, Y)), ONES, np.zeros((N, 1)), 5
        )
    assert builder.n_trees == 0


@pytest.mark.parametrize("table", [NUMBERS, LEVELS], ids=["numbers", "levels"])
def test_rows_that_a_tree_is_not_grown_on_take_no_part_in_its_work_and_are_scored(table):
    rng, drawn = np.random.default_rng(1), DRAWN[0]
    grad, hess = rng.normal(size=N), rng.uniform(0.5, 1.0, N)
    stump = grow(make_grower(table, max_depth=1), grad * drawn, hess * drawn)
    assert stump.n_cells == table.n_features * drawn.sum()
    tree = grow(make_grower(table, max_depth=4), grad * drawn, hess * drawn)
    assert tree.n_leaves > 8
    np.testing.assert_array_equal(tree.row_values, tree.tree.predict_binned(table))
