"""Derivatives of the logistic loss against scipy and against exact rounding; regressions on scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from thrifty.engine.tasks.logistic import logistic_derivatives, logistic_weights, platt
from thrifty.learners.trees.boosting import weighted_on_grid

LAST_PLACES = 4 * np.finfo(np.float64).eps
LINE = np.concatenate(
    [np.linspace(-700.0, 700.0, 20_011), np.linspace(-3.0, 3.0, 20_011), [0.0, -0.0, 1e-300]]
)


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_for_labels_both_derivatives_keep_their_last_places_however_extreme_the_score(target):
    grad, curvature = logistic_derivatives(np.full(len(LINE), target), LINE)
    np.testing.assert_allclose(grad, -expit(-LINE) if target else expit(LINE), rtol=LAST_PLACES)
    np.testing.assert_allclose(curvature, expit(LINE) * expit(-LINE), rtol=LAST_PLACES)


def test_for_shares_the_gradient_is_zero_at_their_log_odds():
    log_odds = np.linspace(-30.0, 30.0, 999)
    grad, _ = logistic_derivatives(expit(log_odds), log_odds)
    np.testing.assert_allclose(grad, 0.0, atol=LAST_PLACES)


def test_gradient_and_hessian_are_those_of_the_loss():
    score, q, step = np.linspace(-4.0, 4.0, 301), np.linspace(0.0, 1.0, 301), 1e-6

    def loss(s):
        return q * np.logaddexp(0.0, -s) + (1.0 - q) * np.logaddexp(0.0, s)

    grad, curvature = logistic_derivatives(q, score)
    above, below = (logistic_derivatives(q, score + move)[0] for move in (step, -step))
    np.testing.assert_allclose(grad, (loss(score + step) - loss(score - step)) / (2 * step), atol=1e-9)
    np.testing.assert_allclose(curvature, (above - below) / (2 * step), atol=1e-9)


def test_scores_beyond_all_bounds_have_derivatives_and_missing_ones_have_none():
    score = np.array([np.inf, -np.inf, 1e308, -1e308, np.nan])
    grad, curvature = logistic_derivatives(np.zeros(5), score)
    np.testing.assert_allclose(grad, [1.0, 0.0, 1.0, 0.0, np.nan], atol=1e-300)
    np.testing.assert_allclose(curvature, [0.0, 0.0, 0.0, 0.0, np.nan], atol=1e-300)


def test_no_row_depends_on_which_others_are_there():
    whole = logistic_derivatives((LINE > 0) * 1.0, LINE)
    for part in (slice(1, 2), slice(3, 300), slice(7, None)):
        for all_rows, some in zip(
            whole, logistic_derivatives((LINE[part] > 0) * 1.0, LINE[part]), strict=True
        ):
            np.testing.assert_array_equal(all_rows[part], some)


@given(st.integers(0, 10_000), st.sampled_from([1.0, 1e-250, 1e200]))
@settings(deadline=None)  # the first example may compile
def test_on_the_grid_weighted_values_add_up_without_rounding(seed, size):
    rng = np.random.default_rng(seed)
    values, counts = rng.normal(size=50) * size, rng.integers(1, 5, size=50).astype(float)
    rounded = weighted_on_grid(values, counts, 33) / counts
    unit = 2.0 ** (np.ceil(np.log2(counts @ np.abs(values))) - 31)
    np.testing.assert_allclose(rounded, values, atol=unit / 2, rtol=0)
    assert np.all(rounded / unit == np.rint(rounded / unit))
    assert np.sum(counts * np.abs(rounded / unit)) < 2.0**33
    assert np.all(weighted_on_grid(np.zeros(3), np.ones(3), 33) == 0.0)


def test_logistic_weights_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(600, 2))
    y = np.where(2 * scores[:, 0] + scores[:, 1] + rng.normal(size=600) > 0, 1.0, -1.0)
    weights = logistic_weights(scores, y, np.ones(600))
    theirs = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000).fit(scores, y)
    np.testing.assert_allclose(weights[1:], theirs.coef_[0], rtol=0.02)
    np.testing.assert_allclose(weights[0], theirs.intercept_[0], atol=0.02)


def test_calibrated_log_odds_are_right_as_often_as_they_say():
    rng = np.random.default_rng(0)
    score = rng.normal(size=20_000)
    y = np.where(rng.random(20_000) < expit(2 * score - 1), 1.0, -1.0)
    slope, intercept = platt(7 * score, y, np.ones(20_000))
    assert slope == pytest.approx(2 / 7, rel=0.05)
    assert intercept == pytest.approx(-1, abs=0.1)


def test_a_score_that_points_the_wrong_way_is_not_used():
    y = np.array([1.0, 1.0, 1.0, -1.0])
    slope, intercept = platt(np.array([-1.0, -2.0, -1.5, 3.0]), y, np.ones(4))
    assert slope == 0.0
    assert expit(intercept) == pytest.approx(0.75)
