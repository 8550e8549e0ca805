import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from tests.dynamod.lasso import gamma_max, kkt_residual, norms_of_groups, objective
from thrifty.learners.dynamod.group_lasso import LinearCoefficients, group_lasso
from thrifty.learners.dynamod.objective import FARTHEST_INTERCEPT, LogisticFit, SquaredFit


def table(n=80, p=8, seed=0, scale=1.0):
    """Correlated columns, shifted so that the intercepts matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    return (X + rng.normal(size=p)) * scale


def heads(X, seed=0, gate="kl", weights="equal"):
    """A gate and a cheap model whose truths are noisy and linear."""
    rng = np.random.default_rng(seed + 1)
    n, p = X.shape
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    t = Z @ rng.normal(size=p) - 0.5 + rng.normal(size=n)
    y = np.where(Z @ rng.normal(size=p) + 2.0 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    s = np.ones(n) if weights == "equal" else rng.uniform(0.0, 2.0, size=n) * (rng.uniform(size=n) < 0.8)
    s /= s.sum()
    q = expit(t)
    return [LogisticFit(q, s) if gate == "kl" else SquaredFit(t, s), LogisticFit((y + 1) / 2, s * (1 - q))]


def best_objective(X, fits, group_of, prices, gamma, l2=0.0):
    """The optimal value according to a generic conic solver."""
    B, b0 = cp.Variable((X.shape[1], len(fits))), cp.Variable(len(fits))
    terms = [gamma * price * cp.norm(B[group_of == group, :], "fro") for group, price in enumerate(prices)]
    terms.append(0.5 * l2 * cp.sum_squares(B))
    for k, fit in enumerate(fits):
        score = X @ B[:, k] + b0[k]
        if isinstance(fit, SquaredFit):
            terms.append(fit.weight @ cp.square(fit.target - score))
        else:
            terms.append(fit.weight @ (cp.logistic(score) - cp.multiply(fit.target, score)))
    problem = cp.Problem(cp.Minimize(cp.sum(terms)))
    return problem.solve(cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)


def fista(X, fits, group_of, prices, gamma, n_iter=20_000):
    """A second solver that shares nothing with the first: accelerated proximal gradient, with restarts."""
    n_heads = len(fits)
    A = np.column_stack([X, np.ones(len(X))])
    most = max(fit.hessian(np.zeros(len(X))).max() for fit in fits)
    step = 1.0 / (most * np.linalg.norm(A, 2) ** 2)
    W = np.zeros((A.shape[1], n_heads))
    V, t = W.copy(), 1.0
    for _ in range(n_iter):
        gradient = np.column_stack([A.T @ fit.gradient(A @ V[:, k]) for k, fit in enumerate(fits)])
        new = V - step * gradient
        size = norms_of_groups(new[:-1], group_of, len(prices))
        shrink = np.maximum(1.0 - step * gamma * prices / np.maximum(size, 1e-300), 0.0)
        new[:-1] *= shrink[group_of][:, None]
        if np.sum((V - new) * (new - W)) > 0.0:
            t = 1.0
        if np.abs(new - W).max() < 1e-13:
            break
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        V, W, t = new + (t - 1.0) / following * (new - W), new, following
    return LinearCoefficients(W[:-1], W[-1])


SINGLE = np.arange(8)
GROUPED = np.array([0, 1, 1, 2, 0, 3, 3, 3])
PRICES = np.array([1.0, 0.3, 2.0, 5.0])
FREE = np.array([1.0, 0.0, 2.0, 0.0])

PROBLEMS = {
    "kl": {},
    "kl, dense answer": {"share": 0.01},
    "squared gate": {"gate": "squared"},
    "groups and prices": {"group_of": GROUPED, "prices": PRICES},
    "groups, squared gate": {"group_of": GROUPED, "prices": PRICES, "gate": "squared", "share": 0.05},
    "sample weights": {"weights": "unequal", "group_of": GROUPED, "prices": PRICES},
    "l2": {"l2": 0.1, "group_of": GROUPED, "prices": PRICES},
    "free groups": {"group_of": GROUPED, "prices": FREE},
    "free groups, everything at once": {
        "group_of": GROUPED, "prices": FREE, "gate": "squared", "weights": "unequal", "l2": 0.01,
    },
}  # fmt: skip


def make(gate="kl", weights="equal", group_of=SINGLE, prices=None, l2=0.0, share=0.2, seed=0):
    X = table(seed=seed)
    fits = heads(X, seed, gate, weights)
    prices = np.ones(8) if prices is None else prices
    gamma = share * gamma_max(X, fits, group_of, prices, l2=l2)
    return X, fits, group_of, prices, gamma, l2


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_objective_agrees_with_a_conic_solver(name):
    *problem, l2 = make(**PROBLEMS[name])
    solution = group_lasso(*problem, l2=l2)
    assert solution.converged
    best = best_objective(*problem, l2=l2)
    assert objective(*problem, solution.value, l2=l2) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_residual_is_what_a_plain_computation_finds(name):
    *problem, l2 = make(**PROBLEMS[name])
    for max_iter in (1, 200):
        solution = group_lasso(*problem, l2=l2, max_iter=max_iter)
        plain = kkt_residual(*problem, solution.value, l2=l2)
        assert solution.residual == pytest.approx(plain, abs=1e-11)
        assert solution.converged == (plain <= 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_sparse_table_gives_the_answer_of_the_dense_one(name):
    X, *rest, l2 = make(**PROBLEMS[name])
    X = np.where(np.abs(X) < 0.7, 0.0, X)
    dense = group_lasso(X, *rest, l2=l2, tol=1e-11)
    for kind in (sparse.csr_array, sparse.csr_matrix):
        found = group_lasso(kind(X), *rest, l2=l2, tol=1e-11)
        np.testing.assert_allclose(found.value.coef, dense.value.coef, atol=1e-9)
        np.testing.assert_allclose(found.value.intercept, dense.value.intercept, atol=1e-9)


def test_a_sparse_table_with_duplicate_entries_is_read_as_their_sum():
    X, *rest, _ = make()
    halves = sparse.csr_array(
        (np.repeat(X.ravel() / 2, 2), np.repeat(np.tile(np.arange(8), 80), 2), np.arange(81) * 16)
    )
    before = halves.data.copy()
    found = group_lasso(halves, *rest, tol=1e-11)
    np.testing.assert_allclose(found.value.coef, group_lasso(X, *rest, tol=1e-11).value.coef, atol=1e-9)
    np.testing.assert_array_equal(halves.data, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kl", "squared gate", "groups and prices"])
def test_two_independent_solvers_agree(name):
    *problem, _ = make(**PROBLEMS[name])
    ours, theirs = group_lasso(*problem, tol=1e-12).value, fista(*problem)
    np.testing.assert_allclose(ours.coef, theirs.coef, atol=1e-6)
    np.testing.assert_array_equal(ours.coef == 0.0, theirs.coef == 0.0)


def test_purchases_are_zero_exactly_and_in_all_heads_at_once():
    *problem, _ = make(group_of=GROUPED, prices=PRICES, share=0.3)
    coef = group_lasso(*problem).value.coef
    used = norms_of_groups(coef, GROUPED, 4) > 0
    assert 0 < used.sum() < 4
    assert (coef[~used[GROUPED]] == 0.0).all()
    assert (coef[used[GROUPED]] != 0.0).all()


@pytest.mark.parametrize("prices", [PRICES, FREE])
def test_gamma_max_is_where_the_first_priced_purchase_appears(prices):
    X, fits, group_of, prices, _, _ = make(group_of=GROUPED, prices=prices)
    largest = gamma_max(X, fits, group_of, prices)
    priced = (prices > 0)[group_of]
    for gamma in (largest, 1.001 * largest, 1e6 * largest):
        solution = group_lasso(X, fits, group_of, prices, gamma)
        assert solution.converged
        assert (solution.value.coef[priced] == 0.0).all()
        assert (solution.value.coef[~priced] != 0.0).all()
    below = group_lasso(X, fits, group_of, prices, 0.999 * largest)
    assert (below.value.coef[priced] != 0.0).any()


def test_gamma_max_without_prices_is_zero():
    X, fits, group_of, _, _, _ = make()
    assert gamma_max(X, fits, group_of, np.zeros(8)) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_warm_start_reaches_the_same_objective(name):
    *problem, gamma, l2 = make(**PROBLEMS[name])
    cold = group_lasso(*problem, gamma, l2=l2, tol=1e-10)
    expected = objective(*problem, gamma, cold.value, l2=l2)
    for factor in (0.3, 1.0, 4.0):
        start = group_lasso(*problem, factor * gamma, l2=l2).value
        warm = group_lasso(*problem, gamma, l2=l2, start=start, tol=1e-10)
        assert warm.converged
        assert objective(*problem, gamma, warm.value, l2=l2) == pytest.approx(expected, abs=1e-12)
    again = group_lasso(*problem, gamma, l2=l2, start=cold.value, tol=1e-9)
    assert again.n_iter == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_the_objective_never_rises_from_a_start(seed, size):
    *problem, _ = make(**list(PROBLEMS.values())[seed], seed=seed)
    rng = np.random.default_rng(seed)
    start = LinearCoefficients(size * rng.normal(size=(8, 2)), size * rng.normal(size=2))
    values = [objective(*problem, start)]
    for max_iter in (0, 1, 2, 3, 5, 10):
        answer = group_lasso(*problem, start=start, max_iter=max_iter)
        values.append(objective(*problem, answer.value))
        assert answer.n_iter <= max_iter
    assert (np.diff(values) <= 0.0).all()
    assert group_lasso(*problem, start=start).converged


def test_scores_of_ten_thousand_in_the_start_do_not_overflow():
    *problem, _ = make(share=0.05)
    answer = group_lasso(*problem, tol=1e-10).value
    for size in (1e4, -1e4, 1e150, 1e300):
        for start in (
            LinearCoefficients(np.full((8, 2), size), np.array([size, -size])),
            LinearCoefficients(np.zeros((8, 2)), np.array([size, -size])),
        ):
            found = group_lasso(*problem, start=start, tol=1e-10)
            assert found.converged
            np.testing.assert_allclose(found.value.coef, answer.coef, atol=1e-6)


def test_a_saturated_start_that_beats_the_empty_model_still_converges():
    # Certain, and wrong in one row of forty: the hessian is 0 everywhere, the gradient is not.
    x = np.r_[np.linspace(-2.0, -1.0, 20), np.linspace(1.0, 2.0, 20)]
    y = np.r_[1.0, np.zeros(19), np.ones(20)]
    fit = LogisticFit(y, np.full(40, 1.0 / 40))
    problem = (x[:, None], [fit], [0], [1.0], 1e-8)
    start = LinearCoefficients(np.array([[14.0]]), np.array([0.0]))
    assert objective(*problem, start) < fit.value(np.zeros(40) + fit.best_intercept()) * 10
    found = group_lasso(*problem, start=start, tol=1e-12)
    assert found.converged
    expected = group_lasso(*problem, tol=1e-12)
    np.testing.assert_allclose(found.value.coef, expected.value.coef, rtol=1e-6)


def test_columns_of_very_different_scale_need_no_standardising():
    scale = np.array([1e-3, 1e3, 1.0, 1e-2, 1e2, 1e1, 1e3, 1e-3])
    X = table(scale=scale)
    fits = heads(X)
    prices = np.bincount(GROUPED, scale) * PRICES
    gamma = 0.05 * gamma_max(X, fits, GROUPED, prices)
    solution = group_lasso(X, fits, GROUPED, prices, gamma)
    assert solution.converged
    assert (norms_of_groups(solution.value.coef, GROUPED, 4) > 0).sum() >= 2
    assert kkt_residual(X, fits, GROUPED, prices, gamma, solution.value) <= 1e-8
    # The conic solver wants columns of one scale: prices of single columns can absorb it.
    gamma = 0.05 * gamma_max(X, fits, SINGLE, scale)
    found = group_lasso(X, fits, SINGLE, scale, gamma).value
    best = best_objective(X / scale, fits, SINGLE, np.ones(8), gamma)
    assert objective(X, fits, SINGLE, scale, gamma, found) == pytest.approx(best, abs=1e-7)


def test_permuting_columns_permutes_the_answer():
    X, fits, group_of, prices, gamma, _ = make(group_of=GROUPED, prices=PRICES)
    order = np.random.default_rng(3).permutation(8)
    plain = group_lasso(X, fits, group_of, prices, gamma, tol=1e-11).value
    permuted = group_lasso(X[:, order], fits, group_of[order], prices, gamma, tol=1e-11).value
    np.testing.assert_allclose(permuted.coef, plain.coef[order], atol=1e-9)
    np.testing.assert_allclose(permuted.intercept, plain.intercept, atol=1e-9)


def test_memory_order_and_unused_groups_do_not_matter():
    X, fits, group_of, prices, gamma, _ = make(group_of=GROUPED, prices=PRICES)
    plain = group_lasso(X, fits, group_of, prices, gamma, tol=1e-11).value
    wide = np.array([9.0, *prices[:2], 9.0, *prices[2:], 9.0])
    moved = np.array([1, 2, 4, 5])[group_of]
    found = group_lasso(np.asfortranarray(X), fits, moved, wide, gamma, tol=1e-11).value
    np.testing.assert_allclose(found.coef, plain.coef, atol=1e-9)


def test_equal_input_gives_equal_bits():
    *problem, _ = make(group_of=GROUPED, prices=PRICES)
    one, two = group_lasso(*problem), group_lasso(*problem)
    np.testing.assert_array_equal(one.value.coef, two.value.coef)
    np.testing.assert_array_equal(one.value.intercept, two.value.intercept)
    assert one.residual == two.residual


@pytest.mark.parametrize(("label", "sign"), [(0.0, -1.0), (1.0, 1.0)])
def test_a_one_sided_head_buys_nothing_and_leaves_the_other_alone(label, sign):
    X, fits, group_of, prices, gamma, _ = make()
    certain = LogisticFit(np.full(80, label), fits[0].weight)
    both = group_lasso(X, [certain, fits[1]], group_of, prices, gamma, tol=1e-11)
    alone = group_lasso(X, [fits[1]], group_of, prices, gamma, tol=1e-11)
    assert both.converged
    assert (both.value.coef[:, 0] == 0.0).all()
    assert both.value.intercept[0] == sign * FARTHEST_INTERCEPT
    np.testing.assert_allclose(both.value.coef[:, 1], alone.value.coef[:, 0], atol=1e-9)
    assert kkt_residual(X, [certain, fits[1]], group_of, prices, gamma, both.value) <= 1e-8


def test_heads_in_which_no_row_counts_are_zero():
    X, fits, group_of, prices, gamma, _ = make()
    idle = LogisticFit(fits[1].target, np.zeros(80))
    start = LinearCoefficients(np.ones((8, 2)), np.ones(2))
    for one in ([fits[0], idle], [idle, idle], [SquaredFit(fits[0].target, np.zeros(80)), idle]):
        solution = group_lasso(X, one, group_of, prices, gamma, start=start)
        assert solution.converged
        assert (solution.value.coef[:, 1] == 0.0).all()
        assert solution.value.intercept[1] == 0.0


def test_constant_and_empty_columns_stay_out_even_when_free():
    X, fits, _, _, _, _ = make()
    X = np.column_stack([X, np.full(80, 3.0), np.zeros(80), np.full(80, 0.1)])
    prices = np.r_[np.ones(8), 0.0, 0.0, 1.0]
    solution = group_lasso(X, fits, np.arange(11), prices, 0.01)
    assert solution.converged
    np.testing.assert_allclose(solution.value.coef[8:], 0.0, atol=1e-9)
    plain = group_lasso(X[:, :8], fits, np.arange(8), prices[:8], 0.01)
    np.testing.assert_allclose(solution.value.coef[:8], plain.value.coef, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 1e-3])
def test_copies_of_a_column_are_no_obstacle(gamma):
    X, fits, _, _, _, _ = make()
    X = np.column_stack([X, X, X[:, :1] + 1e-7 * X[:, 1:2]])
    problem = (X, fits, np.arange(17), np.ones(17), gamma)
    solution = group_lasso(*problem)
    assert solution.converged
    assert (
        objective(*problem, solution.value)
        <= best_objective(*problem[:2], problem[2], problem[3], gamma) + 1e-7
    )


@pytest.mark.parametrize("share", [0.1, 1e-4])
def test_nearly_collinear_columns_far_from_zero_converge(share):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 40)) + 300.0 * rng.normal(size=(60, 1)) + 500.0
    fits = heads(X)
    problem = (X, fits, np.arange(40) // 2, np.linspace(0.0, 1.0, 20))
    gamma = share * gamma_max(*problem)
    solution = group_lasso(*problem, gamma, tol=1e-7)
    assert solution.converged
    assert kkt_residual(*problem, gamma, solution.value) <= 1e-7


def test_separable_rows_without_a_price_end_finite_and_honest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 30))
    y = np.where(rng.uniform(size=20) < 0.5, 0.0, 1.0)
    fits = [LogisticFit(y, np.full(20, 0.05)), LogisticFit(rng.uniform(size=20), np.full(20, 0.05))]
    for gamma, prices in ((0.0, np.ones(30)), (1.0, np.zeros(30))):
        solution = group_lasso(X, fits, np.arange(30), prices, gamma, max_iter=5)
        assert np.isfinite(solution.value.coef).all()
        assert not solution.converged
        longer = group_lasso(X, fits, np.arange(30), prices, gamma)
        assert np.isfinite(longer.value.coef).all()
        assert longer.converged == (longer.residual <= 1e-8)


def test_more_columns_than_rows_and_a_growing_working_set():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 300)) + rng.normal(size=(60, 1))
    fits = heads(X)
    problem = (X, fits, np.arange(300) // 2, np.linspace(0.5, 2.0, 150))
    largest = gamma_max(*problem)
    solution = None
    for gamma in largest * np.geomspace(1.0, 0.02, 12):
        solution = group_lasso(*problem, gamma, start=None if solution is None else solution.value)
        assert solution.converged
    assert kkt_residual(*problem, 0.02 * largest, solution.value) <= 1e-8
    assert 10 < (norms_of_groups(solution.value.coef, problem[2], 150) > 0).sum() < 150


def test_a_table_without_columns_has_intercepts_only():
    X, fits, *_ = make()
    solution = group_lasso(X[:, :0], fits, [], [], 1.0)
    assert solution.converged
    assert solution.value.coef.shape == (0, 2)
    assert solution.value.scores(X[:, :0]).shape == (80, 2)
    np.testing.assert_allclose(solution.value.intercept, [fit.best_intercept() for fit in fits])
