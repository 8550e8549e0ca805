import numpy as np
import pytest
from scipy.optimize import minimize

from thrifty.engine.tasks.logistic import soft_logistic_loss
from thrifty.learners.dynamod.ridge import LeafDesign, LeafLeastSquares, LeafWeights, ridge_logistic


@pytest.fixture
def design():
    rng = np.random.default_rng(0)
    leaves = np.column_stack([rng.integers(4, size=200), 4 + rng.integers(3, size=200)]).astype(np.int32)
    return LeafDesign(leaves, 7)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def test_products_with_the_design_are_those_of_the_dense_matrix(design, rng):
    dense = design.indicators.toarray()
    assert dense.sum(axis=1).tolist() == [2.0] * 200
    values, per_row, weight = rng.normal(size=7), rng.normal(size=200), rng.random(200)
    np.testing.assert_allclose(design.dot(values), dense @ values)
    np.testing.assert_allclose(design.totals(per_row), dense.T @ per_row)
    np.testing.assert_allclose(design.gram(weight), dense.T @ (weight[:, None] * dense))


def test_least_squares_with_a_reused_factor_equals_the_normal_equations(design, rng):
    weight, ridge = rng.random(200), 0.7
    squares = LeafLeastSquares(design, weight, ridge)
    pulled, centre = np.array([1.0, 0.0]), np.array([-1.0, 5.0])
    for _ in range(3):
        target, dense = rng.normal(size=200), np.column_stack([rng.random(200), np.ones(200)])
        full = np.column_stack([design.indicators.toarray(), dense])
        pull = 0.5 * ridge * np.r_[np.ones(7), pulled]
        right = full.T @ (weight * target) + pull * np.r_[np.zeros(7), centre]
        expected = np.linalg.solve(full.T @ (weight[:, None] * full) + np.diag(pull), right)
        found = squares.solve(target, dense, centre, pulled)
        np.testing.assert_allclose(np.r_[found.value.leaf, found.value.dense], expected, rtol=1e-8)
        assert found.converged
        assert found.residual < 1e-9


def test_least_squares_without_a_ridge_still_fits_as_well_as_any_answer(design, rng):
    weight, target = np.ones(200), rng.normal(size=200)
    dense = np.ones((200, 1))
    found = LeafLeastSquares(design, weight, 0.0).solve(target, dense, np.zeros(1), np.zeros(1))
    full = np.column_stack([design.indicators.toarray(), dense])
    best = full @ np.linalg.lstsq(full, target)[0]
    np.testing.assert_allclose(found.value.scores(design, dense), best, atol=1e-5)


def test_newton_agrees_with_an_independent_minimiser(design, rng):
    target, weight, ridge = rng.random(200), rng.random(200), 0.5
    dense = np.column_stack([rng.random(200), np.ones(200)])
    pulled = np.array([1.0, 0.0])
    centre = LeafWeights(rng.normal(size=7), np.array([-1.0, 0.3]))
    zero = LeafWeights(np.zeros(7), np.zeros(2))
    found = ridge_logistic(
        design, target, weight, ridge, offset=0.4, dense=dense, pulled=pulled, centre=centre, start=zero
    )

    full, middle = np.column_stack([design.indicators.toarray(), dense]), np.r_[centre.leaf, centre.dense]
    pull = ridge * np.r_[np.ones(7), pulled]

    def objective(at):
        return weight @ soft_logistic_loss(target, 0.4 + full @ at) + 0.5 * pull @ (at - middle) ** 2

    other = minimize(objective, np.zeros(9), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(np.r_[found.value.leaf, found.value.dense], other.x, atol=1e-5)
    assert found.converged
    assert found.residual < 1e-8


def test_newton_survives_separable_labels_and_a_start_far_away(design):
    target = (design.leaves[:, 0] == 0).astype(float)
    far = LeafWeights(np.full(7, 500.0), np.empty(0))
    zero = LeafWeights(np.zeros(7), np.empty(0))
    found = ridge_logistic(design, target, np.full(200, 1 / 200), 1e-4, centre=zero, start=far)
    assert found.converged
    assert np.all(np.isfinite(found.value.leaf))
