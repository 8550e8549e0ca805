import numpy as np
import pytest
from scipy.special import expit

from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.tasks.logistic import softplus
from thrifty.learners.dynamod.alternating import Problem, alternate
from thrifty.learners.dynamod.group_lasso import LinearCoefficients
from thrifty.learners.dynamod.linear import LinearPair
from thrifty.learners.dynamod.objective import NEVER

TASK = BinaryTask(np.array([0, 1]))


def problem(seed, n=300, p=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.where(X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    full_loss = softplus(-y * 2.0 * (X[:, 0] + X[:, 1] * X[:, 2]))
    return X, y, full_loss


def fresh_pair(distance, seed=0, gamma=0.02, p=5):
    rng = np.random.default_rng(seed)
    start = LinearCoefficients(rng.normal(size=(p, 2)), rng.normal(size=2))
    prices = PriceList(np.linspace(0.5, 2.0, p), np.arange(p))
    return LinearPair(gamma, prices, distance=distance, start=start)


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["kl", "squared"])
@pytest.mark.parametrize("limit", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_objective_never_rises_in_any_half_step(distance, limit, seed):
    X, y, full_loss = problem(seed)
    result = alternate(
        fresh_pair(distance, seed),
        X,
        Problem(y, full_loss, TASK, limit, distance=distance),
        max_iter=15,
        tol=0.0,
    )
    steps = np.array([[r.after_shares, r.after_pair] for r in result.value.rounds]).ravel()
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]).max())
    assert steps[-1] < steps[0] - 1e-6


@pytest.mark.parametrize("distance", ["kl", "squared"])
def test_the_objective_never_rises_with_prices_per_row_and_weights(distance):
    X, y, full_loss = problem(9)
    rng = np.random.default_rng(9)
    extra, weight = rng.uniform(0.1, 3, len(y)), rng.uniform(0.5, 2, len(y))
    result = alternate(
        fresh_pair(distance),
        X,
        Problem(y, full_loss, TASK, 0.2, distance=distance, extra_cost=extra, weight=weight),
        max_iter=15,
        tol=0.0,
    )
    steps = np.array([[r.after_shares, r.after_pair] for r in result.value.rounds]).ravel()
    assert np.all(np.diff(steps) <= 1e-9)
    q = expit(result.value.log_odds)
    assert np.average(extra * q, weights=weight) <= 0.2 + 1e-9


@pytest.mark.parametrize("distance", ["kl", "squared"])
def test_the_cap_on_the_share_is_met(distance):
    X, y, full_loss = problem(1)
    result = alternate(
        fresh_pair(distance), X, Problem(y, full_loss, TASK, 0.1, distance=distance), max_iter=10
    )
    assert expit(result.value.log_odds).mean() <= 0.1 + 1e-9
    assert result.value.rounds[-1].share == pytest.approx(expit(result.value.log_odds).mean())


@pytest.mark.parametrize("distance", ["kl", "squared"])
def test_with_a_cap_of_zero_the_gate_is_shut_and_the_cheap_model_is_fitted_to_every_row(distance):
    X, y, full_loss = problem(2)
    result = alternate(
        fresh_pair(distance), X, Problem(y, full_loss, TASK, 0.0, distance=distance), max_iter=20
    )
    g, _ = result.value.pair.scores(X)
    assert np.all(g <= NEVER + 1e-6)
    # The GreedyMiser limit: the gate needs no feature, and f1 is an ordinary sparse logistic regression.
    assert np.all(np.abs(result.value.pair.linear.coef[:, 0]) < 1e-12)
    assert result.converged


def test_a_row_of_weight_two_is_the_row_given_twice():
    X, y, full_loss = problem(3, n=60)
    weight = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    again = np.r_[np.arange(60), np.flatnonzero(weight == 2.0)]
    weighted = alternate(fresh_pair("kl"), X, Problem(y, full_loss, TASK, 0.3, weight=weight), max_iter=5)
    repeated = alternate(
        fresh_pair("kl"), X[again], Problem(y[again], full_loss[again], TASK, 0.3), max_iter=5
    )
    np.testing.assert_allclose(weighted.value.pair.linear.coef, repeated.value.pair.linear.coef, atol=1e-6)


def test_the_arguments_of_version_0_3_are_those_of_a_problem():
    X, y, full_loss = problem(5)
    stated = alternate(fresh_pair("kl"), X, Problem(y, full_loss, TASK, 0.3), max_iter=2)
    with pytest.warns(FutureWarning, match="alternate\\(pair, X, Problem"):
        listed = alternate(fresh_pair("kl"), X, y, full_loss, task=TASK, limit=0.3, max_iter=2)
    np.testing.assert_array_equal(stated.value.log_odds, listed.value.log_odds)


def test_an_alternation_that_is_cut_short_says_so():
    X, y, full_loss = problem(4)
    result = alternate(fresh_pair("kl"), X, Problem(y, full_loss, TASK, 0.3), max_iter=2, tol=1e-12)
    assert not result.converged
    assert result.n_iter == 2
    assert result.residual > 0
