"""A gate and a softmax of several classes under one group norm, against solvers that share nothing with ours."""

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from tests.dynamod.lasso import gamma_max, kkt_residual, objective
from thrifty.learners.dynamod.group_lasso import LinearCoefficients, group_lasso
from thrifty.learners.dynamod.group_quadratic import Gradient, JointHessian
from thrifty.learners.dynamod.objective import LogisticFit, SoftmaxFit, SquaredFit

N_CLASSES = 4
GROUPED = np.array([0, 1, 1, 2, 0, 3])
PRICES = np.array([1.0, 0.3, 2.0, 5.0])
FREE = np.array([1.0, 0.0, 2.0, 0.0])


def problem(gate="kl", group_of=GROUPED, prices=PRICES, l2=0.0, share=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(70, 6)) + rng.normal(size=(70, 1)) + rng.normal(size=6)
    t = X @ rng.normal(size=6) - 0.5 + rng.normal(size=70)
    label = np.argmax(X @ rng.normal(size=(6, N_CLASSES)) + 2 * rng.normal(size=(70, N_CLASSES)), axis=1)
    s = rng.uniform(0.0, 2.0, size=70)
    s /= s.sum()
    of_gate = LogisticFit(expit(t), s) if gate == "kl" else SquaredFit(t, s)
    fits = [of_gate, SoftmaxFit(np.eye(N_CLASSES)[:, label], s * expit(-t))]
    gamma = share * gamma_max(X, fits, group_of, prices, l2=l2)
    return X, fits, group_of, prices, gamma, l2


PROBLEMS = {
    "groups and prices": {},
    "a group per column": {"group_of": np.arange(6), "prices": np.ones(6), "share": 0.4},
    "squared gate, dense answer": {"gate": "squared", "share": 0.02},
    "free groups and a ridge": {"prices": FREE, "l2": 0.05},
}


def best_objective(X, fits, group_of, prices, gamma, l2):
    """The optimal value according to a generic conic solver."""
    B, b0 = cp.Variable((6, 1 + N_CLASSES)), cp.Variable(1 + N_CLASSES)
    terms = [gamma * price * cp.norm(B[group_of == group, :], "fro") for group, price in enumerate(prices)]
    gate, label = fits
    g, f1 = X @ B[:, 0] + b0[0], X @ B[:, 1:] + cp.vstack([b0[1:]] * 70)
    terms.append(0.5 * l2 * cp.sum_squares(B))
    if isinstance(gate, SquaredFit):
        terms.append(gate.weight @ cp.square(gate.target - g))
    else:
        terms.append(gate.weight @ (cp.logistic(g) - cp.multiply(gate.target, g)))
    terms.append(
        label.weight @ cp.log_sum_exp(f1, axis=1) - cp.sum(cp.multiply((label.weight * label.target).T, f1))
    )
    return cp.Problem(cp.Minimize(cp.sum(terms))).solve(
        cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_objective_agrees_with_a_conic_solver(name):
    *known, l2 = problem(**PROBLEMS[name])
    solution = group_lasso(*known, l2=l2)
    assert solution.converged
    assert solution.n_iter < 40
    best = best_objective(*known, l2)
    assert objective(*known, solution.value, l2=l2) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_certificate_is_what_a_plain_computation_finds(name):
    X, fits, group_of, prices, gamma, l2 = problem(**PROBLEMS[name])
    for max_iter in (1, 200):
        solution = group_lasso(X, fits, group_of, prices, gamma, l2=l2, max_iter=max_iter)
        worst = kkt_residual(X, fits, group_of, prices, gamma, solution.value, l2)
        assert solution.residual == pytest.approx(worst, abs=1e-11)


def test_what_is_not_bought_is_exactly_zero_in_the_gate_and_in_every_class():
    X, fits, group_of, prices, gamma, _ = problem(share=0.5)
    coef = group_lasso(X, fits, group_of, prices, gamma).value.coef
    bought = np.array([np.any(coef[group_of == group] != 0.0) for group in range(4)])
    assert 0 < bought.sum() < 4
    assert np.all(coef[~bought[group_of]] == 0.0)
    np.testing.assert_allclose(coef[:, 1:].sum(axis=1), 0.0, atol=1e-6)
    dearest = gamma_max(X, fits, group_of, prices)
    assert np.all(group_lasso(X, fits, group_of, prices, 1.0001 * dearest).value.coef == 0.0)
    assert np.any(group_lasso(X, fits, group_of, prices, 0.999 * dearest).value.coef != 0.0)


def test_a_sparse_table_and_a_start_elsewhere_give_the_same_answer():
    X, fits, group_of, prices, gamma, _ = problem()
    plain = group_lasso(X, fits, group_of, prices, gamma).value
    start = LinearCoefficients(
        np.random.default_rng(1).normal(size=(6, 1 + N_CLASSES)) * 20, np.zeros(1 + N_CLASSES)
    )
    for table in (sparse.csr_array(X), X):
        other = group_lasso(table, fits, group_of, prices, gamma, start=start)
        assert other.converged
        np.testing.assert_allclose(other.value.coef, plain.coef, atol=1e-5)


def test_two_classes_as_a_softmax_are_a_logistic_regression():
    # Halves of opposite sign: their norm is that of the log-odds over the square root of two, and the ridge a half.
    X, fits, group_of, prices, gamma, _ = problem()
    target = fits[1].target[:2].sum(axis=0)
    two = SoftmaxFit(np.array([1.0 - target, target]), fits[1].weight)
    soft = group_lasso(X, [two], group_of, prices, gamma, l2=0.02).value
    one = group_lasso(
        X, [LogisticFit(target, fits[1].weight)], group_of, prices, gamma / np.sqrt(2), l2=0.01
    ).value
    np.testing.assert_allclose(soft.coef[:, 1] - soft.coef[:, 0], one.coef[:, 0], atol=1e-6)
    np.testing.assert_allclose(soft.intercept[1] - soft.intercept[0], one.intercept[0], atol=1e-6)


def test_derivatives_of_the_softmax_match_finite_differences():
    fit = problem()[1][1]
    score = np.random.default_rng(2).normal(size=(N_CLASSES, 70)) * 3
    move = np.random.default_rng(3).normal(size=score.shape)
    up, down = fit.value(score + 1e-6 * move), fit.value(score - 1e-6 * move)
    assert np.sum(fit.gradient(score) * move) == pytest.approx((up - down) / 2e-6, abs=1e-7)
    diagonal, outer = fit.hessian(score)
    turned = (fit.gradient(score + 1e-6 * move) - fit.gradient(score - 1e-6 * move)) / 2e-6
    np.testing.assert_allclose(diagonal * move - outer * (outer * move).sum(axis=0), turned, atol=1e-8)
    # A parabola that touches the fit here and lies above it, however far one goes.
    diagonal, outer = fit.majorant(score)
    for length in (0.1, 1.0, 30.0):
        step = length * move
        bent = np.sum(diagonal * step**2) - np.sum(np.square((outer * step).sum(axis=0)))
        assert (
            fit.value(score + step)
            <= fit.value(score) + np.sum(fit.gradient(score) * step) + bent / 2 + 1e-12
        )


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_the_joint_hessian_is_the_sum_over_rows_written_out(kind):
    X, fits, *_ = problem()
    X = np.where(X > 0, X, 0.0)
    scores = np.random.default_rng(4).normal(size=(1 + N_CLASSES, 70))
    of_gate, (diagonal, outer) = fits[0].hessian(scores[0]), fits[1].hessian(scores[1:])
    found = JointHessian.of(kind(X), [of_gate, (diagonal, outer)]).squares
    expected = np.zeros_like(found)
    for i, row in enumerate(np.column_stack([np.ones(70), X])):
        W = np.zeros((1 + N_CLASSES, 1 + N_CLASSES))
        W[0, 0] = of_gate[i]
        W[1:, 1:] = np.diag(diagonal[:, i]) - np.outer(outer[:, i], outer[:, i])
        expected += np.einsum("kl,j,m->jkml", W, row, row)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_newton_step_is_the_solution_of_the_whole_system_also_far_from_zero():
    # What rounding leaves of the curvature of a common shift must not be divided by.
    first, free = np.arange(7), np.zeros(6)
    for seed in range(40):
        X, (_, fit), *_ = problem(seed=seed)
        X = X + 30.0
        scores = 3.0 * np.random.default_rng(seed).normal(size=(N_CLASSES, 70))
        hessian, pulls = JointHessian.of(X, [fit.hessian(scores)]), fit.gradient(scores)
        gradient = Gradient(pulls @ X, pulls.sum(axis=1))
        coef, drift = hessian.minimiser(gradient, np.zeros((N_CLASSES, 6)), first, free, 0.01, 1e-12)
        system = hessian.squares.reshape(7 * N_CLASSES, -1) + np.diag(
            np.r_[np.zeros(N_CLASSES), np.full(24, 0.01)]
        )
        target = -np.concatenate([gradient.intercept, gradient.coef.T.ravel()])
        whole = np.linalg.lstsq(system, target, rcond=1e-13)[0].reshape(7, N_CLASSES)
        np.testing.assert_allclose(coef, whole[1:].T, atol=1e-5)
        np.testing.assert_allclose(drift - drift.mean(), whole[0] - whole[0].mean(), atol=1e-3)


def test_a_softmax_of_one_class_needs_nothing_and_of_a_class_too_few_stays_finite():
    X, fits, group_of, prices, gamma, _ = problem()
    alone = SoftmaxFit(np.eye(N_CLASSES)[:, np.ones(70, dtype=int)], fits[1].weight)
    found = group_lasso(X, [fits[0], alone], group_of, prices, gamma)
    assert found.converged
    assert np.all(found.value.coef[:, 1:] == 0.0)
    assert np.argmax(found.value.intercept[1:]) == 1
    missing = SoftmaxFit(np.eye(N_CLASSES)[:, np.arange(70) % 3], fits[1].weight)
    assert np.isfinite(group_lasso(X, [fits[0], missing], group_of, prices, gamma).value.intercept).all()
