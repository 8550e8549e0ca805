"""Rivals that choose the next feature by row, on tables where the right choice is known."""

from itertools import product

import numpy as np
import pytest

from reproduction.acquisition.data import SETS, make_cube
from reproduction.datasets import Split
from reproduction.experiments.acquisition import stop_when_confident

N_COLUMNS = 4


@pytest.fixture(scope="module")
def switch():
    """Column 0 says which of columns 1 and 2 is the class; column 3 is noise. By itself column 0 says nothing."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (600, N_COLUMNS))
    y = (np.where(X[:, 0] > 0, X[:, 1], X[:, 2]) > 0).astype(np.intp)
    return Split(X[:400], y[:400], X[400:500], y[400:500], X[500:], y[500:], tuple("abcd"))


@pytest.fixture(scope="module")
def fitted(switch):
    """Task, pretrained classifier and modules; the tests are skipped where torch is not installed."""
    torch = pytest.importorskip("torch", reason="rivals that are networks need the extra acquisition")
    from reproduction.acquisition import masked

    torch.set_num_threads(1)
    torch.manual_seed(0)
    task = masked.Task.of(switch, np.arange(N_COLUMNS))
    return masked, task, masked.pretrain(task, 40)


@pytest.mark.parametrize("method", ["GDFS", "DIME", "AACO"])
def test_rivals_answer_right_after_three_purchases_and_greedy_ones_begin_with_a_column_that_tells_the_class(
    method, fitted, switch
):
    from reproduction.acquisition.greedy import fit_greedy
    from reproduction.acquisition.mutual_information import fit_mutual_information
    from reproduction.acquisition.oracle import fit_oracle

    masked, task, predictor = fitted
    fits = {
        "GDFS": lambda: fit_greedy(task, predictor, 3, 4),
        "DIME": lambda: fit_mutual_information(task, predictor, 3, 20, (0.3,)),
        "AACO": lambda: fit_oracle(task, predictor, n_neighbours=20),
    }
    buyer, X = fits[method](), masked.as_tensor(switch.X_test)
    by_step = masked.probabilities_by_step(task, buyer, X, 3).numpy()
    right = (by_step.argmax(axis=2) == switch.y_test).mean(axis=1)
    assert right[3] == 1.0
    assert right[1] < 0.9
    assert set(buyer.choose(X, 0 * X).tolist()) <= {1, 2}
    if method == "AACO":  # a row that holds column 0 buys the column that decides
        held = masked.as_tensor(np.tile([1.0, 0.0, 0.0, 0.0], (len(X), 1)))
        np.testing.assert_array_equal(buyer.choose(X, held), np.where(switch.X_test[:, 0] > 0, 1, 2))


@pytest.mark.parametrize("stops", [False, True])
def test_the_oracle_finds_what_brute_force_finds(stops, fitted, switch):
    import torch

    from reproduction.acquisition.oracle import oracle_choice

    X, y = switch.X_train + 0.01 * np.arange(400)[:, None], switch.y_train  # no two rows are equally near

    def answers(rows, bought):
        share = (rows * bought @ np.array([0.2, 1.0, 0.7, 0.1]) + 0.3 * bought.sum(axis=1)) / 4
        one = 1 / (1 + np.exp(-share))
        return np.stack([1 - one, one], axis=1)

    def loss(near, bought):
        found = answers(X[near], np.tile(bought, (len(near), 1)))
        return -np.log(found[np.arange(len(near)), y[near]] + 1e-10).mean()

    def by_hand(row, held):
        near = np.argsort(((X - row) ** 2) @ held)[:5]
        sets = [np.maximum(held, one) for one in product((0.0, 1.0), repeat=N_COLUMNS)]
        sets = [one for one in sets if stops or one.sum() > held.sum()]
        best = min(sets, key=lambda one: loss(near, one) + 0.02 * (one - held).sum())
        wanted = np.flatnonzero(best > held)
        alone = [loss(near, np.maximum(held, np.eye(N_COLUMNS)[column])) for column in wanted]
        return N_COLUMNS if len(wanted) == 0 else wanted[int(np.argmin(alone))]

    double = {"dtype": torch.float64}
    choose = oracle_choice(
        torch.as_tensor(X),
        torch.as_tensor(y),
        torch.eye(N_COLUMNS, **double),
        lambda rows, bought: torch.as_tensor(answers(rows.numpy(), bought.numpy())),
        price=0.02,
        stops=stops,
    )
    rng = np.random.default_rng(1)
    X_new, held = rng.normal(size=(40, N_COLUMNS)), np.eye(N_COLUMNS)[rng.integers(0, N_COLUMNS, 40)]
    found = choose(torch.as_tensor(X_new), torch.as_tensor(held, **double)).numpy()
    expected = [by_hand(row, one) for row, one in zip(X_new, held, strict=True)]
    np.testing.assert_array_equal(found, expected)
    assert len(set(expected)) > 2


def test_naive_bayes_answers_by_bayes_rule_and_buys_what_tells_classes_apart(fitted):
    from scipy.stats import norm

    from reproduction.acquisition.naive_bayes import PRIOR_ROWS, fit_naive_bayes

    masked, *_ = fitted
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    X = rng.normal(size=(500, 3)) + np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])[y]
    split = Split(X[:300], y[:300], X[300:400], y[300:400], X[400:], y[400:], tuple("abc"))
    task = masked.Task.of(split, np.arange(3))
    buyer = fit_naive_bayes(task)
    held = np.array([1.0, 1.0, 0.0])
    X_new = masked.as_tensor(split.X_test)
    found = buyer.predictor(task.masked(X_new, masked.as_tensor(np.tile(held, (100, 1))))).softmax(dim=1)
    X, y = X[:400], y[:400]
    n_rows = np.bincount(y)[:, None]
    means = np.array([X[y == c].sum(axis=0) for c in range(3)]) + PRIOR_ROWS * X.mean(axis=0)
    means /= n_rows + PRIOR_ROWS
    spread = np.sqrt(((X - means[y]) ** 2).mean(axis=0))
    density = norm.logpdf(split.X_test[:, None], means, spread) @ held + np.log(n_rows[:, 0] / 400)
    expected = np.exp(density) / np.exp(density).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)
    assert set(buyer.choose(X_new, 0 * X_new).tolist()) == {0}
    first = masked.as_tensor(np.tile([1.0, 0.0, 0.0], (100, 1)))
    assert set(buyer.choose(X_new, first).tolist()) == {1}


def test_rows_stop_where_they_are_sure_and_spend_the_budget_in_the_mean():
    sure = np.array([[0.5, 0.5, 0.5], [0.99, 0.6, 0.5], [0.5, 0.7, 0.6], [0.99, 0.8, 0.7]])
    by_step = np.stack([1 - sure, sure], axis=2)
    # The first row is sure after one purchase, which leaves three for the two others.
    np.testing.assert_allclose(stop_when_confident(by_step, 4 / 3)[:, 1], [0.99, 0.6, 0.6])
    np.testing.assert_allclose(stop_when_confident(by_step, 3)[:, 1], sure[-1])
    np.testing.assert_allclose(stop_when_confident(by_step, 0)[:, 1], sure[0])


@pytest.mark.parametrize(("n_contexts", "n_columns"), [(0, 20), (5, 55)])
def test_cubes_hold_the_code_of_the_class_where_afabench_puts_it(n_contexts, n_columns):
    X, y = make_cube(500, 0, n_contexts=n_contexts, noise=0.0)
    assert X.shape == (500, n_columns)
    begin = y + (n_contexts + 10 * X[:, :n_contexts].argmax(axis=1) if n_contexts else 0)
    np.testing.assert_array_equal(sum(X[np.arange(500), begin + bit] * 2**bit for bit in range(3)), y)
    assert SETS["cube_nm"].groups(55).max() + 1 == 51
