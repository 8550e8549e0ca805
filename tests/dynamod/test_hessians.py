import numpy as np
import pytest
from scipy import sparse

from thrifty.learners.dynamod.group_quadratic import Hessian


def rows(n=9000, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.uniform(size=(n, p)) < 0.4, rng.normal(size=(n, p)) + 0.5, 0.0)
    return X, rng.uniform(size=(2, n)) * (rng.uniform(size=(2, n)) < 0.9)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csr_matrix])
def test_the_hessian_is_the_weighted_gram_matrix_with_the_intercept_eliminated(kind):
    X, weights = rows()
    hessian = Hessian.of(kind(X), weights)
    for k, weight in enumerate(weights):
        np.testing.assert_allclose(hessian.squares[k], X.T @ (weight[:, None] * X), rtol=1e-12)
        Z = X - np.average(X, axis=0, weights=weight)
        np.testing.assert_allclose(hessian.means[k], np.average(X, axis=0, weights=weight), rtol=1e-12)
        expected = Z.T @ (weight[:, None] * Z) + 0.7 * np.eye(6)
        np.testing.assert_allclose(hessian.centred(0.7)[k], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_carried_hessian_is_the_one_computed_afresh(kind):
    X, weights = rows()
    old, new = np.array([1, 1, 0, 1, 1, 0], dtype=bool), np.array([1, 0, 0, 1, 1, 1], dtype=bool)
    last = Hessian.of(kind(X[:, old]), weights)
    carried = last.carried(kind(X[:, new]), kept=new[old], known=old[new])
    afresh = Hessian.of(kind(X[:, new]), weights)
    np.testing.assert_allclose(carried.squares, afresh.squares, rtol=1e-12)
    np.testing.assert_allclose(carried.sums, afresh.sums, rtol=1e-12)


def test_a_hessian_is_not_carried_to_mostly_new_columns():
    X, weights = rows()
    last = Hessian.of(X[:, :1], weights)
    assert last.carried(X, kept=np.array([True]), known=np.arange(6) == 0) is None


def test_a_constant_column_has_no_curvature_beside_the_intercept():
    X, weights = rows()
    X[:, 2] = 1234.567
    centred = Hessian.of(X, weights).centred(0.0)
    assert (centred[:, 2] == 0.0).all()
    assert (centred[:, :, 2] == 0.0).all()
    assert (centred[:, 0, 0] > 0.0).all()


def test_rows_without_weight_give_a_hessian_of_zeros():
    X, _ = rows()
    hessian = Hessian.of(X, np.zeros((1, len(X))))
    assert (hessian.centred(0.0) == 0.0).all()
    assert (hessian.means == 0.0).all()
