import cvxpy as cp
import numpy as np
import pytest

from thrifty.learners.dynamod.group_quadratic import (
    GroupModel,
    apply,
    group_norms,
    group_residuals,
    minimise_model,
)

FIRST = np.array([0, 1, 3, 4, 8, 9, 10])
PENALTIES = np.array([0.3, 0.5, 0.0, 0.4, 0.2, 0.1])


def model(seed=0, collinear=0.0, n_heads=2, scale=1.0):
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(n_heads, 40, 10)) + collinear * rng.normal(size=(n_heads, 40, 1))
    tables *= scale
    hessian = np.matmul(tables.transpose(0, 2, 1), tables) / 40
    return hessian, rng.normal(size=(n_heads, 10)), rng.normal(size=(n_heads, 10))


def residual_of(hessian, gradient, start, b, penalties=PENALTIES):
    return group_residuals(b, gradient + apply(hessian, b - start), FIRST, penalties).max()


@pytest.mark.parametrize("collinear", [0.0, 3.0, 1e3])
def test_the_model_is_minimised_however_collinear_the_columns_are(collinear):
    hessian, gradient, start = model(collinear=collinear)
    b = minimise_model(hessian, gradient, start, FIRST, PENALTIES, 1e-9)
    assert residual_of(hessian, gradient, start, b) <= 2e-9
    norms = group_norms(b, FIRST)
    assert (b[:, np.repeat(norms == 0.0, np.diff(FIRST))] == 0.0).all()


def test_the_minimum_agrees_with_a_conic_solver():
    hessian, gradient, start = model(seed=1)
    b = minimise_model(hessian, gradient, start, FIRST, PENALTIES, 1e-10)
    x = cp.Variable((2, 10))
    terms = [penalty * cp.norm(x[:, FIRST[g] : FIRST[g + 1]], "fro") for g, penalty in enumerate(PENALTIES)]
    for k in range(2):
        move = x[k] - start[k]
        terms.append(gradient[k] @ move + 0.5 * cp.quad_form(move, cp.psd_wrap(hessian[k])))
    best = cp.Problem(cp.Minimize(cp.sum(terms))).solve(cp.CLARABEL)
    ours = GroupModel(hessian, gradient, start, FIRST, PENALTIES).change(b) + PENALTIES @ group_norms(
        start, FIRST
    )
    assert ours == pytest.approx(best, abs=1e-7)


def test_columns_of_one_group_may_have_very_different_scales():
    hessian, gradient, start = model(scale=10.0 ** np.array([0, -3, 3, 0, 2, -2, 1, -1, 0, 0]))
    gradient = gradient * np.sqrt(np.einsum("kjj->kj", hessian))
    b = minimise_model(hessian, gradient, start, FIRST, PENALTIES, 1e-9)
    assert residual_of(hessian, gradient, start, b) <= 1e-7


def test_a_group_is_zero_exactly_when_its_gradient_at_zero_is_within_the_penalty():
    hessian = np.array([[[2.0]], [[0.5]]])
    start, first = np.zeros((2, 1)), np.array([0, 1])
    gradient = np.array([[3.0], [4.0]])
    assert (minimise_model(hessian, gradient, start, first, np.array([5.0]), 1e-12) == 0.0).all()
    b = minimise_model(hessian, gradient, start, first, np.array([np.nextafter(5.0, 0.0) - 1e-9]), 1e-14)
    assert (b != 0.0).all()


def test_a_free_column_without_curvature_stays_where_it_is():
    hessian, gradient, start = model()
    hessian[:, 3, :] = hessian[:, :, 3] = gradient[:, 3] = 0.0
    b = minimise_model(hessian, gradient, start, FIRST, PENALTIES, 1e-9)
    np.testing.assert_array_equal(b[:, 3], start[:, 3])


@pytest.mark.parametrize("smoothing", [1.0, 1e-2, 1e-4])
def test_the_newton_system_matches_finite_differences_of_the_smoothed_model(smoothing):
    hessian, gradient, b = model(seed=2)
    at = GroupModel(hessian, gradient, b, FIRST, PENALTIES, smoothing)
    system, target = at._system(np.arange(10))
    step, numeric, curved = 1e-4, np.empty(20), np.empty((20, 20))
    unit = np.eye(20).reshape(20, 2, 10) * step
    for i in range(20):
        numeric[i] = (at.change(b + unit[i]) - at.change(b - unit[i])) / (2 * step)
        shifted = GroupModel(
            hessian, gradient + apply(hessian, unit[i]), b + unit[i], FIRST, PENALTIES, smoothing
        )
        opposite = GroupModel(
            hessian, gradient - apply(hessian, unit[i]), b - unit[i], FIRST, PENALTIES, smoothing
        )
        curved[i] = (opposite._system(np.arange(10))[1] - shifted._system(np.arange(10))[1]) / (2 * step)
    np.testing.assert_allclose(-target, numeric, atol=1e-6)
    np.testing.assert_allclose(system, curved, atol=1e-6)


@pytest.mark.slow
def test_newton_steps_never_raise_the_model():
    for seed in range(20):
        hessian, gradient, b = model(seed, collinear=10.0)
        at = GroupModel(hessian, gradient, b, FIRST, PENALTIES)
        assert at.change(at.newton()) <= 0.0
        assert at.change(at.smoothed_newton(1.0)) <= 0.0
