import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from thrifty.engine.tasks.logistic import soft_logistic_loss
from thrifty.learners.dynamod.objective import FARTHEST_INTERCEPT, LogisticFit, SquaredFit

SCORES = np.array([-700.0, -30.0, -3.0, -0.5, -1e-4, 0.0, 1e-4, 0.7, 2.0, 30.0, 700.0])


def logistic():
    rng, n = np.random.default_rng(0), len(SCORES)
    return LogisticFit(rng.uniform(size=n), rng.uniform(size=n) / n)


def squared():
    rng, n = np.random.default_rng(0), len(SCORES)
    return SquaredFit(3.0 * rng.normal(size=n), rng.uniform(size=n) / n)


def row_values(fit, score):
    """The fit of each row alone, from the total alone."""
    return np.array(
        [
            type(fit)(fit.target[i : i + 1], fit.weight[i : i + 1]).value(score[i : i + 1])
            for i in range(len(score))
        ]
    )


def test_logistic_fit_is_the_weighted_soft_logistic_loss():
    fit = logistic()
    expected = fit.weight @ soft_logistic_loss(fit.target, SCORES)
    assert fit.value(SCORES) == pytest.approx(expected, rel=1e-12)


def test_logistic_fit_keeps_its_digits_where_the_loss_is_tiny():
    fit = LogisticFit(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    assert fit.value(np.array([50.0, -50.0])) == pytest.approx(2.0 * np.exp(-50.0), rel=1e-12)


@pytest.mark.parametrize("fit", [logistic(), squared()], ids=["logistic", "squared"])
def test_gradient_matches_finite_differences(fit):
    numeric = (row_values(fit, SCORES + 1e-6) - row_values(fit, SCORES - 1e-6)) / 2e-6
    np.testing.assert_allclose(fit.gradient(SCORES), numeric, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("fit", [logistic(), squared()], ids=["logistic", "squared"])
def test_hessian_matches_finite_differences_of_the_gradient(fit):
    numeric = (fit.gradient(SCORES + 1e-5) - fit.gradient(SCORES - 1e-5)) / 2e-5
    np.testing.assert_allclose(fit.hessian(SCORES), numeric, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("fit", [logistic(), squared()], ids=["logistic", "squared"])
@pytest.mark.parametrize("at", [-1e4, -20.0, -1.0, -1e-4, 0.0, 0.3, 5.0, 1e4])
def test_majorant_lies_above_the_fit_and_touches_it(fit, at):
    point, elsewhere = np.full(len(SCORES), at), np.linspace(-2e4, 2e4, len(SCORES))
    for score in (SCORES, elsewhere):
        move = score - point
        terms = [row_values(fit, point), fit.gradient(point) * move, 0.5 * fit.majorant(point) * move**2]
        gap = sum(terms) - row_values(fit, score)
        assert (gap >= -1e-14 * (1.0 + np.abs(terms).sum(axis=0))).all()


def test_majorant_of_the_logistic_fit_is_continuous_at_zero():
    fit = LogisticFit(np.full(4, 0.3), np.ones(4))
    near = fit.majorant(np.array([0.0, 9.99999e-4, 1.000001e-3, -1.000001e-3]))
    np.testing.assert_allclose(near, 0.25, atol=1e-7)
    assert abs(near[1] - near[2]) < 1e-12


@pytest.mark.parametrize("fit", [logistic(), squared()], ids=["logistic", "squared"])
def test_best_intercept_is_the_best_constant(fit):
    found = minimize_scalar(
        lambda c: fit.value(np.full(len(SCORES), c)), bounds=(-20, 20), options={"xatol": 1e-10}
    )
    assert fit.best_intercept() == pytest.approx(found.x, abs=1e-6)
    assert abs(fit.gradient(np.full(len(SCORES), fit.best_intercept())).sum()) < 1e-13


@pytest.mark.parametrize(("label", "sign"), [(0.0, -1.0), (1.0, 1.0)])
def test_one_sided_targets_stop_at_the_farthest_intercept(label, sign):
    # The row that differs does not count.
    fit = LogisticFit(np.array([label, label, 1.0 - label]), np.array([0.5, 0.5, 0.0]))
    assert fit.best_intercept() == sign * FARTHEST_INTERCEPT
    assert fit.needs_no_coefficients
    assert fit.value(np.full(3, fit.best_intercept())) < 1e-17


def test_shares_too_small_to_count_are_one_sided_and_small_ones_are_not():
    assert LogisticFit(np.full(3, 1e-300), np.ones(3)).needs_no_coefficients
    fit = LogisticFit(np.full(3, 1e-12), np.ones(3))
    assert not fit.needs_no_coefficients
    assert fit.best_intercept() == pytest.approx(np.log(1e-12), rel=1e-9)


@pytest.mark.parametrize("kind", [LogisticFit, SquaredFit])
def test_a_fit_in_which_no_row_counts_rests_at_zero(kind):
    fit = kind(np.array([0.2, 1.0]), np.zeros(2))
    assert fit.needs_no_coefficients
    assert fit.best_intercept() == 0.0
    assert fit.value(SCORES[:2]) == 0.0
