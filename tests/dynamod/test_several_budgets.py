"""(OPT1) with a vector of costs: the shares are exact, and fits keep to budgets of several resources."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

import thrifty
from thrifty import DynaModGbrtClassifier, DynaModLinClassifier, Prices
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import BoostedOptions, LinearOptions
from thrifty.learners.dynamod.qstep import q_step_kl, q_step_squared


@pytest.mark.parametrize("n_resources", [2, 3])
def test_shares_under_several_budgets_are_those_of_a_generic_solver(n_resources):
    rng = np.random.default_rng(n_resources)
    for _ in range(5):
        excess, g = rng.normal(size=(2, 5))
        price, limits = rng.uniform(0, 2, (5, n_resources)), rng.uniform(0.05, 0.5, n_resources)
        weight = rng.dirichlet(np.ones(5))

        def objective(q, excess=excess, g=g, weight=weight):
            kl = q * np.log(q / expit(g)) + (1 - q) * np.log((1 - q) / expit(-g))
            return float(weight @ ((1 - q) * excess + kl))

        ours = q_step_kl(excess, g, limits, extra_cost=price, sample_weight=weight)
        q = expit(ours.value)
        spent = (weight * q) @ price
        assert np.all(spent <= limits * (1 + 1e-9))
        np.testing.assert_allclose(ours.multiplier * (limits - spent), 0.0, atol=1e-7)
        constraint = {"type": "ineq", "fun": lambda q, w=weight, p=price, most=limits: most - (w * q) @ p}
        start, bounds = np.full(5, 0.02), [(1e-9, 1 - 1e-9)] * 5
        theirs = minimize(
            objective, start, method="SLSQP", bounds=bounds, constraints=[constraint], options={"ftol": 1e-13}
        )
        assert objective(q) <= theirs.fun + 1e-7


def test_where_all_rows_cost_alike_the_tightest_budget_is_the_only_one():
    excess, g = np.random.default_rng(0).normal(size=(2, 9))
    prices, limits = np.tile([1.0, 4.0], (9, 1)), np.array([0.4, 0.8])
    for q_step in (q_step_kl, q_step_squared):
        ours = q_step(excess, g, limits, extra_cost=prices)
        alone = q_step(excess, g, 0.8, extra_cost=prices[:, 1])
        np.testing.assert_array_equal(ours.value, alone.value)
        assert ours.multiplier.tolist() == [0.0, alone.multiplier]
    with pytest.raises(InvalidInputError, match="take distance='kl'"):
        q_step_squared(excess, g, limits, extra_cost=np.random.default_rng(1).random((9, 2)))


@pytest.fixture(scope="module")
def table():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:300, :6], y[:300]


PRICES = [{"dollars": 1 + column % 3, "minutes": 1 + 2 * column % 5} for column in range(6)]


def estimators():
    few = {"cv": 2, "random_state": 0, "prices": Prices(PRICES, full={"dollars": 4})}
    return [
        DynaModLinClassifier(GaussianNB(), options=LinearOptions(max_iter=2), **few),
        DynaModGbrtClassifier(GaussianNB(), options=BoostedOptions(n_trees=4, max_iter=2), **few),
    ]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelOutsideWarning")
@pytest.mark.parametrize("estimator", estimators(), ids=["linear", "boosted"])
def test_a_fit_keeps_to_both_budgets_here_in_a_file_and_at_others(estimator, table, tmp_path):
    X, y = table
    budget = {"dollars": 9.0, "minutes": 11.0}
    clf = estimator.set_params(budget=budget).fit(X, y)
    others = clf.at(budget={"minutes": 13.0}), clf.at(budget={"dollars": 14.0, "minutes": 12.0})
    for one, limits in (
        (clf, budget),
        (others[0], {"minutes": 13.0}),
        (others[1], {"dollars": 14.0, "minutes": 12.0}),
    ):
        assert all(one.expected_cost_[name] <= limit * (1 + 1e-9) for name, limit in limits.items())
    spent = clf.at(threshold=clf.threshold_for(X, budget=budget)).cost(X).mean()
    assert all(spent[name] <= limit * (1 + 1e-9) for name, limit in budget.items())
    gate, _ = clf.scores(X)
    of_each = [
        clf.at(threshold=cut).cost(X).mean() for cut in np.unique(gate)[:: max(len(np.unique(gate)) // 25, 1)]
    ]
    fits = [each for each in of_each if all(each[name] <= limit for name, limit in budget.items())]
    assert all(each["dollars"] <= spent["dollars"] + 1e-9 for each in fits)  # no other sends more on
    thrifty.save(clf, tmp_path / "pair.thrifty")
    back = thrifty.load(tmp_path / "pair.thrifty")
    assert back.cost(X).equals(clf.cost(X))
    assert back.expected_cost_ == clf.expected_cost_


def test_what_a_single_gate_cannot_do_with_several_resources_is_refused(table):
    X, y = table
    linear = estimators()[0]
    with pytest.raises(InvalidInputError, match="takes no delays="):
        linear.set_params(prices=Prices(PRICES, delays=["minutes"])).fit(X, y)
    linear.set_params(prices=Prices(PRICES), budget={"dollars": 0.5})
    with pytest.raises(InvalidInputError, match="must afford a gate"):
        linear.fit(X, y)
