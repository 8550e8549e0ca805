"""A stage says of a row what it says of that row alone, to the last bit."""

import numpy as np
import pytest
from scipy import sparse

from thrifty.engine.walk.stage import LinearStage


@pytest.fixture(scope="module")
def stage():
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(37, 3)) * 10.0 ** rng.integers(-3, 4, size=(37, 1))
    return LinearStage(np.arange(37), coef, rng.normal(size=3))


def visit(stage, block):
    seen = stage.visit(block, np.zeros((block.shape[0], 2)))
    return np.column_stack([seen.gate, seen.scores])


def test_a_linear_stage_adds_its_columns_from_left_to_right(stage):
    block = np.random.default_rng(1).normal(size=(11, 37))
    by_hand = np.tile(stage.intercept, (11, 1))
    for column in range(37):
        by_hand = by_hand + block[:, column, None] * stage.coef[column]
    np.testing.assert_array_equal(visit(stage, block), by_hand)
    np.testing.assert_allclose(by_hand, block @ stage.coef + stage.intercept, rtol=1e-9)


def test_equal_rows_have_equal_scores_in_batches_of_every_size(stage):
    row = np.random.default_rng(2).normal(size=(1, 37))
    alone = visit(stage, row)
    for n_rows in range(1, 88):
        np.testing.assert_array_equal(visit(stage, row.repeat(n_rows, axis=0)), alone.repeat(n_rows, axis=0))


def test_a_sparse_row_has_the_score_of_the_dense_one(stage):
    block = np.random.default_rng(3).normal(size=(50, 37))
    block[np.random.default_rng(4).random(block.shape) < 0.8] = 0.0
    np.testing.assert_array_equal(visit(stage, sparse.csr_array(block)), visit(stage, block))
    unordered = sparse.csr_array(
        (np.array([2.0, 1.0, 3.0]), np.array([5, 0, 5]), np.array([0, 3])), shape=(1, 37)
    )
    np.testing.assert_array_equal(visit(stage, unordered), visit(stage, unordered.toarray()))
