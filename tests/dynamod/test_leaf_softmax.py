import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from thrifty.learners.dynamod.ridge import LeafDesign, LeafSoftmax, LeafWeights, ridge_logistic


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def design(rng):
    leaves = np.column_stack([rng.integers(4, size=150), 4 + rng.integers(3, size=150)]).astype(np.int32)
    return LeafDesign(leaves, 7)


@pytest.mark.slow
def test_it_agrees_with_an_independent_minimiser_of_the_written_out_objective(design, rng):
    target, weight = rng.dirichlet(np.ones(3), size=150), rng.random(150)
    base, centre, phi = rng.normal(size=3), rng.normal(size=(7, 3)), design.indicators.toarray()

    def objective(flat):
        values = flat.reshape(7, 3)
        scores = base + phi @ values
        loss = weight @ (logsumexp(scores, axis=1) - (target * scores).sum(axis=1))
        return loss + 0.25 * np.sum((values - centre) ** 2)

    theirs = minimize(objective, np.zeros(21), method="BFGS", options={"gtol": 1e-7})
    found = LeafSoftmax(design, weight, 0.5, base, centre).solve(target, weight, np.zeros((7, 3)))
    assert found.converged
    np.testing.assert_allclose(found.value.ravel(), theirs.x, atol=1e-5)


def test_two_classes_as_a_softmax_are_the_logistic_regression_with_half_the_ridge(design, rng):
    second, weight, centre = rng.random(150), rng.random(150), rng.normal(size=7)
    both = LeafSoftmax(design, weight, 0.6, np.array([-0.2, 0.2]), np.column_stack([-centre, centre]) / 2)
    found = both.solve(np.column_stack([1 - second, second]), weight, np.zeros((7, 2))).value
    start, near = LeafWeights(np.zeros(7), np.empty(0)), LeafWeights(centre, np.empty(0))
    one = ridge_logistic(design, second, weight, 0.3, offset=0.4, centre=near, start=start).value
    np.testing.assert_allclose(found[:, 1] - found[:, 0], one.leaf, atol=1e-7)


def test_classes_in_another_order_get_the_same_values_in_that_order(design, rng):
    target, weight = rng.dirichlet(np.ones(4), size=150), rng.random(150)
    base, centre, order = rng.normal(size=4), rng.normal(size=(7, 4)), [2, 0, 3, 1]
    found, other = (
        LeafSoftmax(design, weight, 0.1, base[of], centre[:, of]).solve(target[:, of], weight, centre[:, of])
        for of in ([0, 1, 2, 3], order)
    )
    np.testing.assert_allclose(found.value[:, order], other.value, atol=1e-7)


def test_without_a_ridge_the_shares_of_a_single_tree_are_those_of_its_leaves(rng):
    leaf = rng.integers(3, size=90).astype(np.int32)
    label = (leaf + rng.integers(2, size=90)) % 3
    target = np.eye(3)[label] * 0.9 + 1 / 30
    design = LeafDesign(leaf[:, None], 3)
    found = LeafSoftmax(design, np.ones(90), 0.0, np.zeros(3), np.zeros((3, 3)))
    scores = found.solve(target, np.ones(90), np.zeros((3, 3))).value
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, [target[leaf == one].mean(axis=0) for one in range(3)], atol=1e-6)
