import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from reproduction.rivals.uniform import UniformRouter, UniformRouterRegressor
from thrifty import ConfidenceRouter


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    return X, (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)


@pytest.fixture(scope="module")
def noisy(rows):
    """f0 that errs on a few rows, as an honest one does."""
    wrong = np.random.default_rng(1).random(len(rows[1])) < 0.02
    return np.where((rows[1] == 1) != wrong, 0.95, 0.05)


def test_confidence_beats_chance_at_the_same_share(rows, noisy):
    scores = {}
    for router in (ConfidenceRouter, UniformRouter):
        clf = router(noisy, features=[0], p_full=0.3, random_state=0).fit(*rows)
        assert clf.route(rows[0]).mean() == pytest.approx(0.3, abs=0.02)
        scores[router] = clf.score(*rows)
    assert scores[ConfidenceRouter] > scores[UniformRouter] + 0.03


def test_chance_treats_a_row_alike_wherever_it_stands_and_another_seed_differs(rows, noisy):
    X, y = rows
    clf = UniformRouter(noisy, features=[0, 1], random_state=0).fit(X, y)
    shuffled = np.random.default_rng(2).permutation(len(X))
    np.testing.assert_array_equal(clf.route(X)[shuffled], clf.route(X[shuffled]))
    np.testing.assert_array_equal(clf.route(sparse.csr_array(X)), clf.route(X))
    other = UniformRouter(noisy, features=[0, 1], random_state=1).fit(X, y)
    assert np.mean(other.route(X) != clf.route(X)) > 0.3


def test_chance_sends_a_share_of_numbers_to_the_full_model(rows):
    X, y = rows[0], rows[0][:, 0] + rows[0][:, 1] ** 2
    router = UniformRouterRegressor(y + 0.1, Ridge(), features=[0], budget=2.0, cv=2, random_state=0).fit(
        X, y
    )
    sent = router.route(X) == 1
    assert router.cost(X).mean() == pytest.approx(2.0, abs=0.06)
    cheap = Ridge().fit(X[:, :1], y).predict(X[:, :1])
    np.testing.assert_allclose(router.predict(X), np.where(sent, y + 0.1, cheap))
