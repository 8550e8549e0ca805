"""The paper's boosted family and the router by chance, for numbers: errors in units of the spread, useful gates."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge

from reproduction.rivals.greedy_miser import GreedyMiserRegressor
from reproduction.settings import estimator_of
from thrifty import ConfidenceRouter, DynaModGbrtRegressor, evidence_of
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.tasks.regression import regression_of
from thrifty.errors import InvalidInputError, OptimisticFullModelWarning

LOSSES = ("squared", "absolute")
SMALL = {"n_trees": 15, "max_depth": 3, "max_iter": 2, "tol": 1e3, "cv": 2, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    """The cheap column decides half of the rows; in the other half a dear one does."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = 40.0 + 8.0 * X[:, 0] + np.where(X[:, 0] > 0, 12.0 * X[:, 1], 0.0) + rng.normal(size=900)
    return X[:600], y[:600], X[600:], y[600:]


def full_model(X):
    """What the rows are made of, without their noise."""
    return 40.0 + 8.0 * X[:, 0] + np.where(X[:, 0] > 0, 12.0 * X[:, 1], 0.0)


def settings(loss):
    # The dear columns earn their price at no split, so that the gate decides who reaches the full model.
    return {"loss": loss, "gamma": 50.0, "feature_costs": [0.1, 100.0, 100.0], **SMALL}


@pytest.fixture(scope="module", params=LOSSES)
def fitted(request, rows):
    return estimator_of(DynaModGbrtRegressor, full_model, **settings(request.param)).fit(*rows[:2])


def test_rows_that_the_gate_sends_on_are_those_on_which_the_cheap_model_errs(fitted, rows):
    X, y = rows[2:]
    sent = fitted.at(threshold=fitted.threshold_for(X, remote_share=0.4)).route(X) == 1
    np.testing.assert_array_equal(fitted.features_, [0])
    assert 0.3 < sent.mean() < 0.5
    assert X[sent, 0].min() > -0.2
    error = np.abs(y - fitted.at(threshold=np.inf).predict(X))
    assert error[sent].mean() > 2 * error[~sent].mean()


def test_a_gate_beats_chance_at_the_same_share_of_rows(fitted, rows):
    X, y = rows[2:]
    seen = evidence_of(fitted, X, y)
    gate, (kept, sent) = seen.gate[:, 0], seen.quality.T
    for share in (0.2, 0.4, 0.6):
        goes = gate > np.quantile(gate, 1 - share)
        by_chance = kept.mean() + goes.mean() * (sent - kept).mean()
        assert np.where(goes, sent, kept).mean() > by_chance + 0.03


def test_units_of_the_target_change_nothing_but_the_units_of_the_answer(fitted, rows):
    X, y = rows[:2]
    other = estimator_of(
        DynaModGbrtRegressor, lambda table: 1024.0 * full_model(table), **settings(fitted.loss)
    )
    other.fit(X, 1024.0 * y)
    np.testing.assert_array_equal(other.route(rows[2]), fitted.route(rows[2]))
    np.testing.assert_array_equal(other.predict(rows[2]), 1024.0 * fitted.predict(rows[2]))
    np.testing.assert_array_equal(other.trace_, fitted.trace_)


@pytest.mark.parametrize("loss", LOSSES)
def test_greedy_miser_is_the_cheap_model_of_a_pair_that_sends_nothing_on(rows, loss):
    X, y = rows[:2]
    known = settings(loss)
    pair = estimator_of(DynaModGbrtRegressor, full_model, p_full=0.0, **known).fit(X, y)
    miser = GreedyMiserRegressor(
        **{k: known[k] for k in ("loss", "gamma", "feature_costs", "n_trees", "max_depth")}
    )
    np.testing.assert_array_equal(
        miser.fit(X, y).predict(rows[2]), pair.at(threshold=np.inf).predict(rows[2])
    )
    error = (y - miser.predict(X)) / miser.chain_.task.spread
    fit = np.mean(np.square(error) / 2 if loss == "squared" else np.abs(error))
    # gamma times what was bought, as a mean over rows; the gate at its bound adds nothing that can be seen.
    np.testing.assert_allclose(pair.trace_[-1, 1], fit + 50.0 * 0.1 / len(y), rtol=1e-9)
    np.testing.assert_array_equal(miser.cost(X), 0.1)


def test_the_shares_are_those_that_the_excess_error_in_units_of_the_spread_asks_for(rows):
    # With trees that may not split, g is one number: q = expit(excess + g - beta) for every row (OPT3).
    X, y = rows[:2]
    pair = estimator_of(DynaModGbrtRegressor, full_model, p_full=1.0, gamma=1e9, **SMALL).fit(X, y)
    f1, spread = pair.at(threshold=np.inf).predict(X[:1])[0], pair.chain_.task.spread
    excess = (np.square(y - y.mean()) - np.square(y - full_model(X))) / (2 * spread**2)
    kept = 1 / (1 + np.exp(excess))
    first = np.average(y, weights=kept)
    # The cap of 1 binds nobody, so that the first q-step, from g = 0 and f1 = the mean, is q = expit(excess).
    excess = (np.square(y - first) - np.square(y - full_model(X))) / (2 * spread**2)
    g = np.log((1 - kept).mean() / kept.mean())
    np.testing.assert_allclose(f1, np.average(y, weights=1 / (1 + np.exp(excess + g))), rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_gate_may_read_the_number_of_the_cheap_model(rows, loss):
    X, y = rows[:2]
    pair = estimator_of(DynaModGbrtRegressor, full_model, gate_reads_score=True, **settings(loss)).fit(X, y)
    assert pair.chain_.stages[0].gate.n_features == 2
    assert pair.at(budget=100).score(rows[2], rows[3]) > pair.at(budget=1).score(rows[2], rows[3]) + 0.05


@pytest.mark.parametrize("scale", [2.0**995, 2.0**-995])
def test_targets_of_any_size_are_predicted_on_their_scale(rows, scale):
    X, y = rows[:2]
    full = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5)
    plain, scaled = (
        estimator_of(DynaModGbrtRegressor, full, **settings("squared")).fit(X, y * one)
        for one in (1.0, scale)
    )
    np.testing.assert_allclose(scaled.predict(rows[2]) / scale, plain.predict(rows[2]), rtol=1e-6)
    assert scaled.score(X, y * scale) == pytest.approx(plain.score(X, y))
    np.testing.assert_array_equal(from_bytes(to_bytes(scaled)).predict(rows[2]), scaled.predict(rows[2]))


def test_the_absolute_error_is_not_led_astray_by_outliers(rows):
    X, y = rows[0], rows[1].copy()
    y[::10] += 1000.0
    error = {}
    for loss in LOSSES:
        miser = GreedyMiserRegressor(loss=loss, n_trees=30, max_depth=3, gamma=0.0).fit(X, y)
        error[loss] = np.abs(miser.predict(rows[2]) - full_model(rows[2])).mean()
    assert error["absolute"] < 8.0 < 40.0 < error["squared"]


def test_a_full_model_behind_a_greedy_miser_gets_all_rows_or_none(rows):
    X, y = rows[:2]
    both = GreedyMiserRegressor(n_trees=5).fit(X, y).with_full(full_model)
    np.testing.assert_allclose(both.at(threshold=-1.0).predict(X), full_model(X))
    assert set(both.at(threshold=0.0).route(X)) == {0}


def test_a_threshold_is_found_for_a_score(fitted, rows):
    X, y = rows[2:]
    cheap, best = (fitted.at(threshold=end) for end in (np.inf, -np.inf))
    seen = evidence_of(fitted, X, y).quality.mean(axis=0)
    wanted = float(seen.mean())
    found = fitted.at(threshold=fitted.threshold_for(X, y, accuracy=wanted))
    assert (
        wanted <= evidence_of(found, X, y, threshold=found.threshold_).at_point([found.threshold_])[2].mean()
    )
    assert cheap.cost(X).mean() < found.cost(X).mean() < best.cost(X).mean()
    name = fitted.chain_.task.quality_name
    with pytest.raises(InvalidInputError, match=f"accuracy must lie in.*got 2.*the least {name}"):
        fitted.threshold_for(X, y, accuracy=2)


# -- routers -------------------------------------------------------------------------------------


def test_the_router_by_confidence_refuses_numbers_and_names_who_takes_them(rows):
    X, y = rows[:2]
    with pytest.raises(
        InvalidInputError, match=r"a number does not say how sure it is\. Use BudgetedRegressor"
    ):
        ConfidenceRouter().fit(X, y)
    with pytest.raises(InvalidInputError, match=r"Use BudgetedRegressor.*a regressor as full or cheap model"):
        ConfidenceRouter(Ridge()).fit(X, (y > 40).astype(int))


# -- targets and weights -------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_a_target_of_weight_two_is_that_target_given_twice(loss, seed):
    rng = np.random.default_rng(seed)
    y, weight = np.round(rng.normal(size=20), 1), rng.integers(0, 4, size=20)
    weighted, repeated = (
        regression_of(y, loss, weight.astype(float)),
        regression_of(np.repeat(y, weight), loss),
    )
    np.testing.assert_allclose(
        [weighted.centre, weighted.spread], [repeated.centre, repeated.spread], rtol=1e-12
    )


def test_a_fitted_regressor_is_called_too_good_only_where_it_is(rows):
    X, y = rows[:2]
    small = {"n_trees": 3, "max_iter": 2, "tol": 1, "cv": 2}
    router = estimator_of(
        DynaModGbrtRegressor, FrozenEstimator(LinearRegression().fit(X[:300], y[:300])), **small
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        router.fit(X[300:], y[300:])
    with pytest.warns(OptimisticFullModelWarning, match="R2 1 on the 300 rows"):
        estimator_of(DynaModGbrtRegressor, y[300:], **small).fit(X[300:], y[300:])


def test_rounds_that_run_out_are_mentioned(rows):
    model = estimator_of(DynaModGbrtRegressor, full_model, **{**settings("squared"), "tol": 0.0})
    with pytest.warns(ConvergenceWarning, match="did not reach tol=0 in 2 rounds"):
        model.fit(*rows[:2])
