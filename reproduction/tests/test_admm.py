"""The paper's solver of (OPT5) against the exact one."""

import numpy as np
import pytest
from scipy.special import expit

from reproduction.admm import q_step_squared_admm
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.qstep import q_step_squared


def draw(seed, n=8, scale=1.0):
    """Rows with prices and sample weights of their own."""
    rng = np.random.default_rng(seed)
    excess, g = scale * rng.normal(size=n), scale * rng.normal(size=n)
    return excess, g, rng.uniform(0.0, 2.0, n), rng.uniform(0.5, 2.0, n)


def spend(t, price, weight=None):
    return np.average(price * expit(t), weights=weight)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [0.2, 5.0], ids=["binding", "free"])
def test_admm_agrees_with_the_exact_dual(seed, limit):
    excess, g, price, weight = draw(seed, scale=1.5)
    exact = q_step_squared(excess, g, limit, extra_cost=price, sample_weight=weight)
    admm = q_step_squared_admm(excess, g, limit, extra_cost=price, sample_weight=weight)
    assert admm.converged
    np.testing.assert_allclose(admm.value, exact.value, atol=1e-6)


def test_admm_stopped_early_says_so_and_still_meets_the_limit():
    excess, g, price, weight = draw(0, scale=3.0)
    admm = q_step_squared_admm(excess, g, 0.1, extra_cost=price, sample_weight=weight, max_iter=2)
    assert not admm.converged
    assert admm.n_iter == 2
    assert spend(admm.value, price, weight) <= 0.1 * (1 + 1e-12)


def test_admm_rejects_a_penalty_that_is_not_positive():
    with pytest.raises(InvalidInputError, match="rho, tol and max_iter must be positive; got rho=0"):
        q_step_squared_admm([1.0], [0.0], 0.5, rho=0)
