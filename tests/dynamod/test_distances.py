import numpy as np
import pytest
from scipy.special import expit, xlogy

from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import DISTANCES, check_distance, entropy_of_log_odds, kl_divergence

T, G = (grid.ravel() for grid in np.meshgrid(np.linspace(-6, 6, 7), np.linspace(-7, 5, 7)))


@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_the_distance_is_zero_only_where_gate_and_share_agree(distance):
    np.testing.assert_allclose(distance(T, T), 0.0, atol=1e-13)
    assert np.all(distance(T, T + 0.5) > 0)


def test_kl_is_the_textbook_formula():
    q, p = expit(T), expit(G)
    textbook = xlogy(q, q / p) + xlogy(1 - q, (1 - q) / (1 - p))
    np.testing.assert_allclose(kl_divergence(T, G), textbook, atol=1e-12)


@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_distances_are_finite_at_log_odds_of_ten_thousand(distance):
    extreme = np.array([-1e4, 1e4])
    for g in (extreme, -extreme, np.zeros(2)):
        assert np.all(np.isfinite(distance(extreme, g)))


def test_a_share_of_exactly_zero_has_no_entropy_and_the_gates_own_loss():
    never = np.array([-np.inf])
    assert entropy_of_log_odds(never) == 0.0
    np.testing.assert_allclose(kl_divergence(never, np.array([0.0])), np.log(2))


def test_entropy_is_exact_in_the_tails():
    # For small q, H(q) = q (1 - log q) up to q^2.
    np.testing.assert_allclose(entropy_of_log_odds(np.array([-50.0, 50.0])), expit(-50) * 51.0, rtol=1e-12)


def test_an_unknown_distance_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"'kl' or 'squared'; got 'euclid'"):
        check_distance("euclid")
