import numpy as np
import pytest

from thrifty.engine.tasks.logistic import (
    excess_loss,
    log_loss_of_probability,
    logistic_hessian,
    soft_logistic_loss,
    softplus,
)

SCORES = np.linspace(-30, 30, 13)


@pytest.mark.parametrize("target", [0.0, 0.3, 1.0])
def test_the_logistic_hessian_matches_finite_differences_of_the_loss(target):
    # A loss of 10 is rounded by 1e-15, and its second difference by that divided by the squared step.
    score = np.linspace(-10, 10, 13)
    ends = soft_logistic_loss(target, score + 1e-3) + soft_logistic_loss(target, score - 1e-3)
    numeric = (ends - 2 * soft_logistic_loss(target, score)) / 1e-6
    np.testing.assert_allclose(logistic_hessian(score), numeric, atol=1e-7)


def test_losses_are_finite_and_right_at_scores_of_ten_thousand():
    extreme = np.array([-1e4, 1e4])
    np.testing.assert_array_equal(soft_logistic_loss(1.0, extreme), [1e4, 0.0])
    np.testing.assert_array_equal(logistic_hessian(extreme), [0.0, 0.0])
    np.testing.assert_array_equal(softplus(extreme), [0.0, 1e4])
    np.testing.assert_array_equal(soft_logistic_loss([0.25, 0.25], extreme), [2500.0, 7500.0])


def test_a_soft_label_of_zero_or_one_gives_the_hard_loss():
    np.testing.assert_array_equal(soft_logistic_loss(1.0, SCORES), softplus(-SCORES))
    np.testing.assert_array_equal(soft_logistic_loss(0.0, SCORES), softplus(SCORES))


def test_the_loss_of_a_probability_is_the_loss_of_its_log_odds():
    score = np.linspace(-5, 5, 11)
    probability = 1 / (1 + np.exp(-score))
    np.testing.assert_allclose(log_loss_of_probability(-1.0, probability), softplus(score))


def test_excess_loss_is_negative_where_the_cheap_model_does_better():
    np.testing.assert_allclose(excess_loss([0.1, 0.9], [0.5, 0.5]), [-0.4, 0.4])
