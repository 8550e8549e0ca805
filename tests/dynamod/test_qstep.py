"""The q-steps against generic solvers, brute force, limits and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit

from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import DISTANCES
from thrifty.learners.dynamod.qstep import (
    minimise_tilted,
    minimise_tilted_between,
    q_step_kl,
    q_step_squared,
    smallest_multiplier,
)

STEPS = {"kl": q_step_kl, "squared": q_step_squared}
BOTH = pytest.mark.parametrize("distance", ["kl", "squared"])
reproducible = settings(derandomize=True, deadline=None)


def draw(seed, n=8, scale=1.0):
    """Rows with prices and sample weights of their own."""
    rng = np.random.default_rng(seed)
    excess, g = scale * rng.normal(size=n), scale * rng.normal(size=n)
    return excess, g, rng.uniform(0.0, 2.0, n), rng.uniform(0.5, 2.0, n)


def objective(distance, t, excess, g, weight=None):
    return np.average(expit(-t) * excess + DISTANCES[distance](t, g), weights=weight)


def spend(t, price, weight=None):
    return np.average(price * expit(t), weights=weight)


def solve_generically(distance, excess, g, limit, price, weight, starts):
    """Best local answer of a general-purpose solver in the log-odds, from several starts."""
    p = weight / weight.sum()

    def gradient(t):
        slope = expit(t) * expit(-t)
        return p * ((t - g) * (slope if distance == "kl" else 2.0) - excess * slope)

    room = {
        "type": "ineq",
        "fun": lambda t: limit - spend(t, price, weight),
        "jac": lambda t: -p * price * expit(t) * expit(-t),
    }
    found = [
        minimize(
            lambda t: objective(distance, t, excess, g, weight),
            start,
            jac=gradient,
            constraints=[room],
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        for start in starts
    ]
    return min((r for r in found if spend(r.x, price, weight) <= limit + 1e-8), key=lambda r: r.fun)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [0.15, 0.4, 5.0], ids=["tight", "binding", "free"])
def test_step_matches_a_generic_solver(distance, seed, limit):
    excess, g, price, weight = draw(seed)
    solution = STEPS[distance](excess, g, limit, extra_cost=price, sample_weight=weight)
    starts = [g - 2.0, g, np.zeros_like(g)]
    generic = solve_generically(distance, excess, g, limit, price, weight, starts)
    assert solution.converged
    assert spend(solution.value, price, weight) <= limit * (1 + 1e-12)
    assert objective(distance, solution.value, excess, g, weight) <= generic.fun + 1e-8
    np.testing.assert_allclose(expit(solution.value), expit(generic.x), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 6, 9])
def test_a_generic_solver_finds_nothing_better_when_the_limit_falls_in_a_jump(seed):
    excess, g, price, weight = draw(seed, scale=10.0)
    solution = q_step_squared(excess, g, 0.2, extra_cost=price, sample_weight=weight)
    assert not solution.converged
    rng = np.random.default_rng(seed)
    starts = [solution.value + spread * rng.normal(size=8) for spread in (0, 2, 2, 4, 4)]
    generic = solve_generically("squared", excess, g, 0.2, price, weight, starts)
    value = objective("squared", solution.value, excess, g, weight)
    assert value - solution.residual - 1e-7 <= generic.fun
    assert value <= generic.fun + 0.01 * solution.residual


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 6, 11])
def test_squared_residual_is_primal_minus_the_largest_dual_value(seed):
    excess, g, price, weight = draw(seed, scale=10.0)
    solution = q_step_squared(excess, g, 0.2, extra_cost=price, sample_weight=weight)

    def dual(log_eta):
        a = excess - np.exp(log_eta) * price
        t = minimise_tilted(a, g, np.zeros(8, dtype=np.int8))
        rows = np.square(t - g) - a * expit(t) + excess
        return np.average(rows, weights=weight) - np.exp(log_eta) * 0.2

    best = minimize_scalar(lambda x: -dual(x), bounds=(-5, 12), method="bounded", options={"xatol": 1e-12})
    primal = objective("squared", solution.value, excess, g, weight)
    assert primal + best.fun == pytest.approx(solution.residual, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [5.0, 20.0, 25.0, 200.0, 1e4])
def test_squared_row_is_as_good_as_the_best_of_a_fine_grid(scale):
    rng = np.random.default_rng(0)
    a, g = scale * rng.uniform(-1, 1, 300), rng.uniform(-12, 12, 300)
    t = minimise_tilted(a, g, np.zeros(300, dtype=np.int8))
    grid = np.linspace(-25, 25, 20_001)[:, None]
    best = np.min(np.square(grid - g) - a * expit(grid), axis=0)
    value = np.square(t - g) - a * expit(t)
    # The grid is 2.5e-3 wide, so its best point is at most h'' / 2 (1.25e-3)^2 too high.
    assert np.all(value <= best + 1e-12 * scale)
    assert np.all(value >= best - (2 + 0.1 * scale) * 1e-6)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_squared_row_is_stationary_up_to_rounding(scale):
    rng = np.random.default_rng(1)
    a, g = scale * rng.normal(size=5000), scale * rng.normal(size=5000)
    t = minimise_tilted(a, g, np.zeros(5000, dtype=np.int8))
    np.testing.assert_allclose(2 * (t - g), a * expit(t) * expit(-t), rtol=1e-11, atol=1e-11 * scale)


def test_squared_row_survives_a_huge_tilt():
    a = -np.logspace(0, 300, 301)
    t = minimise_tilted(a, np.zeros(301), np.zeros(301, dtype=np.int8))
    np.testing.assert_allclose(2 * t, a * expit(t) * expit(-t), rtol=1e-11)


def test_squared_row_takes_the_side_asked_for_and_both_are_stationary():
    a, g = np.full(2, 60.0), np.full(2, -6.0)
    low, high = minimise_tilted(a, g, np.array([-1, 1], dtype=np.int8))
    assert low < -5 < 0 < high
    for t in (low, high):
        assert 2 * (t + 6) == pytest.approx(60 * expit(t) * expit(-t), rel=1e-12)


def test_squared_row_from_bounds_equals_the_one_from_nothing():
    rng = np.random.default_rng(2)
    a, g, side = 60 * rng.normal(size=4000), 8 * rng.normal(size=4000), rng.integers(-1, 2, 4000)
    for width in (100.0, 1.0, 1e-4, 1e-12):
        lower, upper = minimise_tilted(a - width, g, side), minimise_tilted(a + width, g, side)
        between = minimise_tilted_between(a, g, side, lower, upper, 0.5 * (lower + upper))
        np.testing.assert_allclose(between, minimise_tilted(a, g, side), rtol=1e-9, atol=1e-9)


SCORE = st.floats(-1e4, 1e4)
ROWS = st.lists(
    st.tuples(SCORE, SCORE, st.floats(-6, 6).map(lambda e: 10.0**e) | st.just(0.0), st.floats(0.1, 10)),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(reproducible, max_examples=100)
@given(rows=ROWS, part=st.floats(1e-6, 1.2))
def test_kl_step_meets_the_limit_with_the_smallest_multiplier(rows, part):
    excess, g, price, weight = np.array(rows).T
    limit = part * np.average(price, weights=weight)
    solution = q_step_kl(excess, g, limit, extra_cost=price, sample_weight=weight)
    spent = spend(solution.value, price, weight)
    assert solution.converged
    assert spent <= limit * (1 + 1e-12)
    multiplier = (excess + g - solution.value)[price > 0] / price[price > 0]
    assert np.all(multiplier >= 0)
    assert np.all(solution.value[price == 0] == (excess + g)[price == 0])
    if np.any(multiplier > 1e-9):
        # One unit in the last place of eta * w moves the log-odds, hence the spend, by at most that much.
        assert spent >= limit * (1 - 1e-10)


@pytest.mark.slow
@settings(reproducible, max_examples=25)
@given(rows=ROWS, part=st.floats(1e-6, 1.2))
def test_squared_step_meets_the_limit_at_extreme_scores_and_prices(rows, part):
    excess, g, price, weight = np.array(rows).T
    limit = part * np.average(price, weights=weight)
    solution = q_step_squared(excess, g, limit, extra_cost=price, sample_weight=weight)
    assert spend(solution.value, price, weight) <= limit * (1 + 1e-12)
    assert np.all(np.isfinite(solution.value))
    assert 0.0 <= solution.residual < np.inf


@settings(reproducible, max_examples=50)
@given(rows=ROWS, part=st.floats(1e-4, 1.2), factor=st.floats(0.01, 1.0))
def test_kl_shares_fall_with_the_limit(rows, part, factor):
    excess, g, price, weight = np.array(rows).T
    limit = part * np.average(price, weights=weight)
    costs = {"extra_cost": price, "sample_weight": weight}
    wide, narrow = q_step_kl(excess, g, limit, **costs), q_step_kl(excess, g, factor * limit, **costs)
    assert np.all(expit(narrow.value) <= expit(wide.value) * (1 + 1e-9))


@pytest.mark.parametrize("seed", range(5))
def test_squared_shares_fall_with_the_limit_where_no_jump_is_met(seed):
    excess, g, price, weight = draw(seed, n=40)
    costs = {"extra_cost": price, "sample_weight": weight}
    solutions = [q_step_squared(excess, g, limit, **costs) for limit in (1.0, 0.5, 0.3, 0.2, 0.1)]
    assert all(solution.residual < 1e-12 for solution in solutions)
    shares = np.array([expit(solution.value) for solution in solutions])
    assert np.all(np.diff(shares, axis=0) <= 1e-12)


@BOTH
def test_capping_the_mean_share_is_the_special_case_of_equal_prices(distance):
    excess, g, _, weight = draw(0, n=50)
    plain = STEPS[distance](excess, g, 0.2, sample_weight=weight)
    priced = STEPS[distance](excess, g, 0.2 * 37.0, extra_cost=np.full(50, 37.0), sample_weight=weight)
    np.testing.assert_allclose(plain.value, priced.value, rtol=1e-12)
    assert np.average(expit(plain.value), weights=weight) == pytest.approx(0.2, abs=1e-12)


def test_equal_rows_get_the_limit_as_their_share_under_kl():
    solution = q_step_kl(np.full(7, 3.0), np.full(7, -1.0), 0.25)
    np.testing.assert_allclose(solution.value, logit(0.25), rtol=1e-11)


@BOTH
def test_nothing_is_sent_on_at_limit_zero_except_rows_that_cost_nothing(distance):
    excess, g, price, _ = draw(0)
    price[:3] = 0.0
    solution = STEPS[distance](excess, g, 0.0, extra_cost=price)
    free = STEPS[distance](excess, g, 1e9, extra_cost=price)
    assert np.all(solution.value[3:] == -np.inf)
    np.testing.assert_array_equal(solution.value[:3], free.value[:3])
    assert (solution.residual, solution.converged) == (0.0, True)


@BOTH
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_limit_of_the_mean_price_does_not_bind(distance, scale):
    excess, g, price, weight = draw(3, n=1000, scale=scale)
    limit = np.average(price, weights=weight)
    solution = STEPS[distance](excess, g, limit, extra_cost=price, sample_weight=weight)
    free = STEPS[distance](excess, g, 1e9, extra_cost=price, sample_weight=weight)
    np.testing.assert_array_equal(solution.value, free.value)
    assert solution.n_iter == 1


@pytest.mark.parametrize("n", range(1, 40))
def test_a_limit_missed_only_by_rounding_does_not_bind(n):
    g = np.where(np.arange(n) % 3 == 0, 1e4, -1e4)
    solution = q_step_kl(np.zeros(n), g, np.count_nonzero(g > 0) / n)
    np.testing.assert_array_equal(solution.value, g)


@BOTH
def test_rows_that_all_cost_nothing_are_free_even_at_limit_zero(distance):
    excess, g, _, _ = draw(0)
    solution = STEPS[distance](excess, g, 0.0, extra_cost=np.zeros(8))
    np.testing.assert_array_equal(solution.value, STEPS[distance](excess, g, 1.0).value)


def test_identical_rows_tied_at_a_jump_are_split_as_well_as_brute_force_can():
    n, excess, g, limit = 12, 60.0, -6.0, 0.4
    solution = q_step_squared(np.full(n, excess), np.full(n, g), limit)
    shares = np.sort(expit(solution.value))
    assert np.mean(shares) <= limit * (1 + 1e-12)
    assert len(np.unique(shares.round(9))) <= 3  # low, high, and at most one row in between
    best = np.inf
    for n_high in range(1, n):
        high = np.linspace(1e-4, 1 - 1e-4, 20_001)
        low = (n * limit - n_high * high) / (n - n_high)
        high, low = high[(low > 1e-9) & (low < 1)], low[(low > 1e-9) & (low < 1)]
        value = n_high * ((logit(high) - g) ** 2 - excess * high)
        value += (n - n_high) * ((logit(low) - g) ** 2 - excess * low)
        best = min(best, value.min() / n + excess)
    value = objective("squared", solution.value, np.full(n, excess), np.full(n, g))
    assert value <= best + 1e-6
    assert value - solution.residual <= best


@pytest.mark.parametrize(("seed", "scale"), [(14, 3.0), (13, 10.0)])
def test_the_others_make_room_for_a_tied_row_where_that_is_cheaper(seed, scale):
    excess, g, price, weight = draw(seed, scale=scale)
    solution = q_step_squared(excess, g, 0.2, extra_cost=price, sample_weight=weight)
    # Leaving the tied row on its smaller share costs more than 1 here.
    assert 0.0 < solution.residual < 0.01


@pytest.mark.slow
def test_with_many_rows_little_is_lost_at_a_jump():
    rng = np.random.default_rng(0)
    excess, g = 30 * rng.normal(size=10_000), 10 * rng.normal(size=10_000)
    solution = q_step_squared(excess, g, 0.05)
    assert solution.n_iter > 40  # a jump was met
    assert np.mean(expit(solution.value)) == pytest.approx(0.05, rel=1e-12)
    assert solution.residual < 1e-6 * abs(objective("squared", solution.value, excess, g))


@BOTH
def test_permuting_the_rows_permutes_the_answer(distance):
    excess, g, price, weight = draw(5, n=200, scale=3.0)
    order = np.random.default_rng(0).permutation(200)
    costs = {"extra_cost": price, "sample_weight": weight}
    permuted = {name: values[order] for name, values in costs.items()}
    direct = STEPS[distance](excess, g, 0.2, **costs)
    shuffled = STEPS[distance](excess[order], g[order], 0.2, **permuted)
    np.testing.assert_allclose(shuffled.value, direct.value[order], rtol=1e-9)


@BOTH
def test_a_row_of_weight_two_counts_like_two_rows_and_one_of_weight_zero_not_at_all(distance):
    excess, g, price, _ = draw(6)
    count = np.array([2, 1, 1, 3, 0, 1, 2, 1])
    weighted = STEPS[distance](excess, g, 0.2, extra_cost=price, sample_weight=count)
    repeat = np.repeat(np.arange(8), count)
    repeated = STEPS[distance](excess[repeat], g[repeat], 0.2, extra_cost=price[repeat])
    np.testing.assert_allclose(repeated.value, weighted.value[repeat], rtol=1e-10)


def test_kl_residual_is_primal_minus_dual_value():
    excess, g, price, weight = draw(7, scale=3.0)
    solution = q_step_kl(excess, g, 0.1, extra_cost=price, sample_weight=weight)
    eta = ((excess + g - solution.value) / price)[0]
    # min_q (1 - q) excess + KL(q, g) + eta w q = -log(expit(-g) exp(-excess) + expit(g) exp(-eta w))
    rows = -np.log(expit(-g) * np.exp(-excess) + expit(g) * np.exp(-eta * price))
    dual = np.average(rows, weights=weight) - eta * 0.1
    primal = objective("kl", solution.value, excess, g, weight)
    assert primal - dual == pytest.approx(solution.residual, abs=1e-11)


@pytest.mark.slow
def test_a_million_rows_meet_the_limit_in_few_evaluations():
    rng = np.random.default_rng(0)
    excess, g = 3 * rng.normal(size=(2, 1_000_000))
    price = 10.0 ** rng.uniform(-6, 6, 1_000_000)
    solution = q_step_kl(excess, g, 0.05 * price.mean(), extra_cost=price)
    assert spend(solution.value, price) == pytest.approx(0.05 * price.mean(), rel=1e-12)
    assert solution.n_iter <= 20


@pytest.mark.parametrize("limit", [1e-300, 1e-30, 1e-9])
@BOTH
def test_a_tiny_limit_is_met_with_finite_log_odds(distance, limit):
    excess, g, price, weight = draw(8)
    solution = STEPS[distance](excess, g, limit, extra_cost=price, sample_weight=weight)
    assert np.all(np.isfinite(solution.value))
    assert spend(solution.value, price, weight) == pytest.approx(limit, rel=1e-9)


@pytest.mark.parametrize("root", [1e-12, 0.3, 7e5])
def test_the_multiplier_search_finds_a_step_and_a_smooth_root(root):
    def step(eta):
        return 1.0 if eta < root else 0.1

    def smooth(eta):
        return 0.5 * np.exp(1 - eta / root)

    bracket = smallest_multiplier(step, 0.5)
    assert bracket.below < root <= bracket.above <= bracket.below * (1 + 1e-15)
    assert bracket.n_evaluations <= 75
    bracket = smallest_multiplier(smooth, 0.5)
    assert bracket.above == pytest.approx(root, rel=1e-12)
    assert bracket.n_evaluations <= 20


@BOTH
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"limit": -0.1}, "limit must be a finite number >= 0; got -0.1"),
        ({"limit": np.nan}, "limit must be a finite number"),
        ({"limit": np.inf}, "limit must be a finite number"),
        ({"limit": "half"}, "limit must be a finite number"),
        ({"excess": []}, "excess must hold one number per row"),
        ({"excess": [[1.0, 2.0]]}, "excess must hold one number per row"),
        ({"excess": [1.0, np.nan]}, "excess must be finite; got nan in row 1"),
        ({"g": [np.inf, 0.0]}, "g must be finite; got inf in row 0"),
        ({"g": [1.0, 2.0, 3.0]}, "g must be as long as excess, 2; got shape"),
        ({"extra_cost": [1.0]}, "extra_cost must be as long as excess"),
        ({"extra_cost": [1.0, -2.0]}, "extra_cost must be finite and >= 0; got -2.0 in row 1"),
        ({"sample_weight": [1.0, -2.0]}, "sample_weight must be finite and >= 0"),
        ({"sample_weight": [0.0, 0.0]}, "sample_weight must have a positive sum"),
    ],
)
def test_bad_input_is_named_with_its_rule_and_value(distance, changed, message):
    arguments = {"excess": [1.0, 2.0], "g": [0.0, 0.0], "limit": 0.5} | changed
    with pytest.raises(InvalidInputError, match=message.replace("[", r"\[")):
        STEPS[distance](**arguments)
