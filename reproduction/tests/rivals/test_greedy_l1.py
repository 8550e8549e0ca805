import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from reproduction.datasets import make_synthetic
from reproduction.rivals.greedy_l1 import GreedyL1Classifier
from thrifty.errors import InvalidInputError


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    y = (X[:, 0] + 0.5 * X[:, 1] + X[:, 2] * X[:, 3] + 0.3 * rng.normal(size=600) > 0).astype(int)
    held_out = np.where((y == 1) != (rng.random(600) < 0.05), 0.9, 0.1)
    return X, y, held_out


def fit(rows, **settings):
    X, y, held_out = rows
    return GreedyL1Classifier(held_out, **{"standardize": False} | settings).fit(X, y)


def test_on_the_synthetic_clusters_it_picks_feature_one_and_needs_120_over_70():
    X, y = make_synthetic()
    clf = GreedyL1Classifier(
        SVC(C=10), C=1.0, n_features=1, send_weight=0.9, standardize=False, random_state=0
    )
    clf.fit(X, y)
    assert clf.features_.tolist() == [0]
    assert clf.score(X, y) == 1.0
    assert clf.cost(X).mean() == pytest.approx(120 / 70)


def test_f1_is_the_l2_regularised_regression_on_the_support_and_the_gate_learns_its_errors(rows):
    X, y, _ = rows
    clf = fit(rows, features=[0, 1], send_weight=0.8)
    cheap = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(X[:, :2], y)
    g, f1 = clf.scores(X)
    np.testing.assert_allclose(f1, cheap.decision_function(X[:, :2]), atol=1e-5)
    wrong = cheap.predict(X[:, :2]) != y
    gate = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)
    gate.fit(X[:, :2], wrong, sample_weight=np.where(wrong, 0.8, 0.2))
    np.testing.assert_allclose(g, gate.decision_function(X[:, :2]), atol=1e-4)


def test_the_support_is_the_largest_weights_of_an_l1_regression(rows):
    X, y, _ = rows
    l1 = LogisticRegression(C=0.05, l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=100_000).fit(X, y)
    expected = np.flatnonzero(np.abs(l1.coef_[0]) > 1e-6)
    np.testing.assert_array_equal(fit(rows, C=0.05).features_, expected)
    largest = np.argsort(-np.abs(l1.coef_[0]))[:2]
    np.testing.assert_array_equal(fit(rows, C=0.05, n_features=2).features_, np.sort(largest))


def test_no_features_at_all_is_a_choice(rows):
    assert len(fit(rows, n_features=0).features_) == 0


def test_a_larger_weight_on_errors_sends_more_rows_on(rows):
    X, *_ = rows
    sent = [fit(rows, features=[0, 1], send_weight=w).route(X).mean() for w in (0.0, 0.5, 0.8, 1.0)]
    assert sent == sorted(sent)
    assert sent[0] == 0.0
    assert sent[-1] == 1.0


def test_an_expensive_feature_is_left_out_first(rows):
    assert 0 in fit(rows, C=0.05).features_
    assert 0 not in fit(rows, C=0.05, feature_costs=[100.0, 1, 1, 1, 1]).features_


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"C": 0.0}, "C must be a finite number > 0"),
        ({"C": -1.0}, "C must be"),
        ({"send_weight": 1.5}, r"send_weight must lie in \[0, 1\]"),
        ({"n_features": -1}, "n_features must be a whole number >= 0"),
        ({"features": [7]}, r"column numbers in \[0, 5\)"),
        ({"features": ["age"]}, "'age', which is not a column"),
    ],
)
def test_bad_arguments_are_refused(rows, settings, says):
    with pytest.raises(InvalidInputError, match=says):
        fit(rows, **settings)
