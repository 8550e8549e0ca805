from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.pruning.node_costs import PruningRows, closure_of
from reproduction.pruning.optimum import prune_along, solve, solve_linear_program

GAMMAS = st.sampled_from([0.0, 0.003, 0.01, 0.02, 0.04, 0.08, 0.2, 1.0, 100.0])
ERRORS = st.sampled_from(["vote", "probability"])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 30), gamma=GAMMAS, error=ERRORS, n_classes=st.sampled_from([2, 3]))
def test_both_solvers_find_what_trying_every_pruning_finds(tiny_case, seed, gamma, error, n_classes):
    case = tiny_case(seed, n_classes=n_classes)
    best = (case.table(error) @ [1.0, gamma]).min()
    closure = closure_of(case.forest, case.rows, case.prices, error)
    for found in (
        solve_linear_program(closure, gamma),
        solve_linear_program(closure.narrowed(gamma), gamma),
        solve(closure, gamma, "decomposed", tol=1e-9, max_iter=5000),
    ):
        assert found.converged
        assert found.value.objective == pytest.approx(best, abs=1e-9)
        assert found.value.bound <= best + 1e-9
        assert found.residual == found.value.gap >= 0.0


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(31, 60), gamma=GAMMAS, error=ERRORS, max_iter=st.integers(1, 6))
def test_a_solver_that_is_cut_short_still_has_a_valid_bound_and_a_valid_pruning(
    tiny_case, seed, gamma, error, max_iter
):
    case = tiny_case(seed, n_trees=3, max_leaf_nodes=4)
    best = (case.table(error) @ [1.0, gamma]).min()
    closure = closure_of(case.forest, case.rows, case.prices, error)
    pruning = solve(closure, gamma, "decomposed", tol=0.0, max_iter=max_iter).value
    assert pruning.bound <= best + 1e-9
    assert best <= pruning.objective + 1e-9


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 60), error=ERRORS, solver=st.sampled_from(["auto", "lp", "decomposed"]))
def test_what_a_solution_says_of_itself_is_what_its_pruned_trees_do(tiny_case, seed, error, solver):
    case = tiny_case(seed)
    closure = closure_of(case.forest, case.rows, case.prices, error)
    gammas = [0.05, 0.0, 0.02, 0.5, 0.02]
    n_splits = case.forest.n_splits
    solutions = prune_along(closure, gammas, n_splits, solver, tol=1e-9, max_iter=5000)
    table = case.table(error)
    for gamma, solution in zip(gammas, solutions, strict=True):
        loss, spend = case.objective(solution.value.kept, gamma, error)
        assert (solution.value.loss, solution.value.spend) == pytest.approx((loss, spend), abs=1e-9)
        assert loss + gamma * spend == pytest.approx((table @ [1.0, gamma]).min(), abs=1e-8)
    assert solutions[2] is solutions[4]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 60), error=ERRORS)
def test_a_larger_gamma_never_spends_more(tiny_case, seed, error):
    case = tiny_case(seed)
    closure = closure_of(case.forest, case.rows, case.prices, error)
    gammas = [0.001, 0.01, 0.03, 0.06, 0.1, 0.3]
    spends = [solve(closure, gamma, tol=1e-10, max_iter=5000).value.spend for gamma in gammas]
    assert np.all(np.diff(spends) <= 1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 60))
def test_shares_of_any_kind_give_a_lower_bound(tiny_case, seed):
    case = tiny_case(seed)
    closure = closure_of(case.forest, case.rows, case.prices, "vote")
    best = (case.table("vote") @ [1.0, 0.03]).min()
    shares = np.random.default_rng(seed).normal(scale=0.1, size=closure.n_arcs)
    assert closure.bound(shares, 0.03) <= best + 1e-9


def test_the_solvers_agree_on_a_forest_too_large_to_try_everything(tiny_case):
    case = tiny_case(5, n_trees=12, max_leaf_nodes=30, n_rows=200)
    closure = closure_of(case.forest, case.rows, case.prices, "vote")
    for gamma in (0.001, 0.01, 0.03):
        exact = solve_linear_program(closure.narrowed(gamma), gamma)
        found = solve(closure, gamma, "decomposed", tol=1e-8, max_iter=20_000)
        assert found.value.objective == pytest.approx(exact.value.objective, abs=1e-7)


def test_auto_turns_to_the_linear_program_where_rounds_run_out(tiny_case):
    case = tiny_case(5, n_trees=12, max_leaf_nodes=30, n_rows=200)
    closure = closure_of(case.forest, case.rows, case.prices, "vote")
    assert not solve(closure, 0.01, "decomposed", tol=1e-9, max_iter=2).converged
    found = solve(closure, 0.01, "auto", tol=1e-9, max_iter=2)
    exact = solve_linear_program(closure, 0.01)
    assert found.converged
    assert found.value.objective == pytest.approx(exact.value.objective, abs=1e-9)


def test_without_gain_everything_is_cut_and_without_prices_the_trees_are_pruned_one_by_one(tiny_case):
    case = tiny_case(3)
    closure = closure_of(case.forest, case.rows, case.prices, "vote")
    nothing = solve(closure, 1e6).value
    # What costs nothing may stay.
    assert nothing.spend == 0.0
    free = solve(closure, 0.0).value
    assert free.loss == pytest.approx(case.table("vote")[:, 0].min(), abs=1e-9)


def test_repeating_rows_and_weighting_them_is_the_same_problem(tiny_case):
    case = tiny_case(9, n_trees=6, max_leaf_nodes=12)
    rows = case.rows
    order = np.random.default_rng(0).permutation(
        np.repeat(np.arange(len(rows.code)), rows.weight.astype(int))
    )
    repeated = PruningRows(rows.X[order], rows.code[order], np.ones(len(order)))
    weighted = closure_of(case.forest, rows, case.prices, "vote")
    again = closure_of(case.forest, repeated, case.prices, "vote")
    for name in ("splits", "parent", "benefit", "own", "start", "need", "price", "group"):
        np.testing.assert_array_equal(getattr(weighted, name), getattr(again, name))


def test_the_unit_of_the_prices_does_not_matter(tiny_case):
    case = tiny_case(9, n_trees=6, max_leaf_nodes=12)
    tiny = replace(case.prices, prices=case.prices.prices * 2.0**-60)
    usual = solve(closure_of(case.forest, case.rows, case.prices, "vote"), 0.01)
    other = solve(closure_of(case.forest, case.rows, tiny, "vote"), 0.01 * 2.0**60)
    np.testing.assert_array_equal(other.value.kept, usual.value.kept)
    assert usual.value.kept.any()


def test_trees_may_be_judged_on_rows_of_their_own(tiny_case):
    case = tiny_case(4)
    judged = np.zeros((2, len(case.rows.code)))
    judged[0, ::2] = judged[1, 1::2] = 1.0
    rows = PruningRows(case.X, case.rows.code, np.ones(len(case.rows.code)), judged)
    closure = closure_of(case.forest, rows, case.prices, "vote")
    kept = np.ones(closure.n_splits, bool)
    full = case.forest.pruned(_mask(case.forest.n_splits, closure.splits))
    leaf = full.values[full.apply(case.X)].argmax(axis=2) != rows.code[:, None]
    expected = (leaf[::2, 0].mean() + leaf[1::2, 1].mean()) / 2
    assert closure.evaluate(kept)[0] == pytest.approx(expected, abs=1e-9)


def _mask(n, chosen):
    mask = np.zeros(n, bool)
    mask[chosen] = True
    return mask
