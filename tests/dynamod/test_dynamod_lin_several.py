"""DynaMod-Lin with several classes: one group of weights per column, for the gate and every class."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from reproduction.settings import estimator_of
from thrifty import DynaModLinClassifier, Prices
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import MulticlassTask
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.group_lasso import LinearCoefficients
from thrifty.learners.dynamod.linear import LinearPair

SMALL = {"cv": 2, "random_state": 0, "max_iter": 10, "tol": 1e-2}


@pytest.fixture(scope="module")
def rows():
    """Iris, with four columns of noise that nothing should buy."""
    X, y = load_iris(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=X.shape)
    return np.hstack([X, noise])[::2], np.array(["setosa", "versicolor", "virginica"])[y[::2]]


@pytest.fixture(scope="module")
def fitted(rows):
    return estimator_of(DynaModLinClassifier, GaussianNB(), gamma=0.03, prices=Prices(full=5.0), **SMALL).fit(
        *rows
    )


def test_what_is_not_bought_has_weight_zero_in_the_gate_and_in_every_class(fitted, rows):
    X, y = rows
    assert 0 < len(fitted.features_) < 6
    others = np.setdiff1d(np.arange(8), fitted.features_)
    assert fitted.cheap_coef_.shape == (3, 8)
    assert np.all(fitted.gate_coef_[others] == 0.0)
    assert np.all(fitted.cheap_coef_[:, others] == 0.0)
    assert fitted.kkt_residual_ <= 1e-8
    assert fitted.score(X, y) > 0.9


def test_scores_and_probabilities_are_those_of_the_weights_it_shows(fitted, rows):
    X, _ = rows
    g, f1 = fitted.scores(X)
    np.testing.assert_allclose(g, X @ fitted.gate_coef_ + fitted.gate_intercept_, atol=1e-9)
    np.testing.assert_allclose(f1, X @ fitted.cheap_coef_.T + fitted.cheap_intercept_, atol=1e-9)
    cheap = fitted.at(threshold=np.inf)
    shares = np.exp(f1) / np.exp(f1).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cheap.predict_proba(X), shares, atol=1e-9)


def test_the_objective_falls_in_every_half_step(fitted):
    assert np.all(np.diff(fitted.trace_.ravel()) <= 1e-9)


def test_without_prices_and_a_gate_f1_is_the_multinomial_regression_of_scikit_learn(rows):
    X, y = rows
    clf = estimator_of(
        DynaModLinClassifier,
        GaussianNB(),
        gamma=0.0,
        p_full=0.0,
        l2=1.0 / len(y),
        standardize=False,
        **SMALL,
    ).fit(X, y)
    theirs = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10).fit(X, y)
    np.testing.assert_allclose(clf.cheap_coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(clf.at(threshold=np.inf).predict_proba(X), theirs.predict_proba(X), atol=1e-6)


def test_the_penalty_of_the_pair_is_the_group_norm_over_all_heads(rows):
    X, y = rows
    task = MulticlassTask(np.unique(y))
    prices = PriceList(np.array([1.0, 3.0]), np.repeat([0, 1], 4))
    pair = LinearPair(0.05, prices, l2=0.1, start=LinearCoefficients(np.zeros((8, 4)), np.zeros(4)))
    pair.fit(X, task.encode("y", y, len(y)), np.full(len(y), -1.0), np.full(len(y), 1.0 / len(y)))
    coef = pair.linear.coef
    norms = np.linalg.norm(coef[:4]), np.linalg.norm(coef[4:])
    assert norms[0] > 0
    expected = 0.05 * (norms[0] + 3.0 * norms[1]) + 0.05 * np.sum(coef**2)
    assert pair.penalty() == pytest.approx(expected)
    assert pair.solution.converged


def test_a_gate_may_read_how_far_the_best_class_leads(rows):
    X, y = rows
    clf = estimator_of(
        DynaModLinClassifier, GaussianNB(), gamma=0.03, gate_reads_margin=True, refit=True, **SMALL
    ).fit(X, y)
    g, f1 = clf.scores(X)
    second, best = np.sort(f1, axis=1)[:, -2:].T
    expected = X @ clf.gate_coef_ + clf.gate_intercept_ + clf.gate_margin_coef_ * (best - second)
    assert clf.gate_margin_coef_ < 0
    np.testing.assert_allclose(g, expected, atol=1e-9)


def test_a_fit_may_start_from_the_weights_of_another(fitted, rows):
    X, y = rows
    start = (
        np.append(fitted.gate_coef_, fitted.gate_intercept_),
        np.column_stack([fitted.cheap_coef_, fitted.cheap_intercept_]),
    )
    again = estimator_of(
        DynaModLinClassifier, GaussianNB(), gamma=0.03, prices=Prices(full=5.0), init=start, **SMALL
    ).fit(X, y)
    assert again.trace_[0, 0] <= fitted.trace_[-1, 1] + 1e-9
    with pytest.raises(InvalidInputError, match="whose f1 has 3 rows of slopes for these classes; got 1"):
        estimator_of(DynaModLinClassifier, GaussianNB(), init=(np.zeros(8), np.zeros(8)), **SMALL).fit(X, y)


@pytest.mark.slow
def test_a_sparse_table_gives_the_same_fit(rows):
    X, y = rows
    # Solved to the last digits: where lbfgs stops depends on how the BLAS adds, and a sparse product adds otherwise.
    full = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    dense = estimator_of(DynaModLinClassifier, full, gamma=0.03, **SMALL).fit(X, y)
    csr = estimator_of(DynaModLinClassifier, full, gamma=0.03, **SMALL).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(csr.cheap_coef_, dense.cheap_coef_, atol=1e-5)
    np.testing.assert_array_equal(csr.features_, dense.features_)


@pytest.mark.filterwarnings("ignore::thrifty.errors.OptimisticFullModelWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_gate_that_cannot_tell_rows_apart_is_the_log_odds_of_the_cap_and_a_budget_sends_rows_all_the_same(
    rows, n_classes
):
    X, y = rows
    y = y if n_classes == 3 else np.where(y == "virginica", y, "other")
    # f0 gains as much on every row, so that nothing is worth buying for the gate.
    sure = np.where(y[:, None] == np.unique(y), 0.98, 0.02 / (n_classes - 1))
    full = sure if n_classes == 3 else sure[:, 1]
    settings = {**SMALL, "gamma": 1.0, "prices": Prices(np.ones(8), full=5.0)}
    clf = estimator_of(DynaModLinClassifier, full, p_full=0.3, **settings).fit(X, y)
    np.testing.assert_allclose(clf.scores(X)[0], np.log(0.3 / 0.7), atol=0.01)
    assert clf.route(X).sum() == 0
    assert estimator_of(DynaModLinClassifier, full, p_full=0.6, **settings).fit(X, y).route(X).mean() == 1.0


def test_a_budget_sends_rows_where_the_rule_of_the_paper_sends_none(rows):
    X, y = rows
    clf = estimator_of(DynaModLinClassifier, GaussianNB(), gamma=0.003, prices=Prices(full=5.0), **SMALL).fit(
        X, y
    )
    assert clf.route(X).sum() == 0
    assert 0.0 < clf.at(budget=clf.cost(X).mean() + 3.0).route(X).mean() < 1.0
