"""The compiled grower against a search that tries every split in plain floats: slow and obvious."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import bin_columns


@dataclass
class Split:
    feature: int
    raw_gain: float
    charge: float
    left_rows: frozenset
    right_rows: frozenset


@dataclass
class Growth:
    splits: list = field(default_factory=list)
    leaves: list = field(default_factory=list)
    bought: set = field(default_factory=set)


def half_square_sum(grad, hess, l2):
    G, H = grad.sum(axis=0), hess.sum(axis=0)
    return 0.5 * np.sum(np.divide(G**2, H + l2, out=np.zeros_like(G), where=H + l2 > 0))


def every_split(column, thresholds, rows):
    """Left masks of every split of ``rows``: each threshold, infinity, missing right and left."""
    values = column[rows]
    missing = np.isnan(values)
    for threshold in [*thresholds, np.inf]:
        with np.errstate(invalid="ignore"):
            below = values <= threshold
        yield below
        if missing.any():
            yield below | missing


def raw_gain(left, rows, grad, hess, l2, min_child_weight, min_child_samples):
    sides = rows[left], rows[~left]
    for side in sides:
        if len(side) < min_child_samples or hess[side].sum() <= 0:
            return -np.inf
        if hess[side].sum(axis=0).mean() < min_child_weight:
            return -np.inf
    children = sum(half_square_sum(grad[side], hess[side], l2) for side in sides)
    return children - half_square_sum(grad[rows], hess[rows], l2)


def grow_by_trying_everything(
    X,
    thresholds,
    grad,
    hess=None,
    *,
    follow=(),
    gamma=0.0,
    prices=None,
    group_of=None,
    max_depth=4,
    max_leaves=10**9,
    l2=0.0,
    min_child_weight=0.0,
    min_child_samples=1,
):
    n, p = X.shape
    grad = grad.reshape(n, -1)
    hess = np.ones_like(grad) if hess is None else hess.reshape(n, -1)
    group_of = np.arange(p) if group_of is None else group_of
    prices = np.ones(max(group_of) + 1) if prices is None else prices
    growth = Growth()
    growth.leaves = [(np.arange(n), 0)]
    while len(growth.leaves) < max_leaves:
        best = (0.0, None)
        preferred = follow[len(growth.splits)] if len(growth.splits) < len(follow) else -1
        for index, (rows, depth) in enumerate(growth.leaves):
            if depth == max_depth:
                continue
            for f in range(p):
                charge = 0.0 if group_of[f] in growth.bought else gamma * prices[group_of[f]]
                for left in every_split(X[:, f], thresholds[f], rows):
                    raw = raw_gain(left, rows, grad, hess, l2, min_child_weight, min_child_samples)
                    # Different columns may cut a small leaf alike: of equals, take the one to be judged.
                    if raw - charge > best[0] + (1e-9 if f != preferred else -1e-9 if best[1] else 1e-9):
                        best = (raw - charge, (index, f, raw, charge, left))
        if best[1] is None:
            break
        index, f, raw, charge, left = best[1]
        rows, depth = growth.leaves[index]
        growth.leaves[index : index + 1] = [(rows[left], depth + 1), (rows[~left], depth + 1)]
        growth.splits.append(Split(f, raw, charge, frozenset(rows[left]), frozenset(rows[~left])))
        growth.bought.add(int(group_of[f]))
    return growth


def problem(seed, *, n=40, p=4, missing=0.0, n_outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(n, p)).astype(float)
    X[rng.random((n, p)) < missing] = np.nan
    grad = rng.normal(size=(n, n_outputs)) + X[:, :1].clip(0, 3) - 1.5
    return X, np.nan_to_num(grad), rng.uniform(0.2, 2.0, size=(n, n_outputs))


def check(X, grad, hess=None, rtol=1e-6, **options):
    table = bin_columns(X)
    thresholds = [table.thresholds.of(f) for f in range(X.shape[1])]
    grower = make_grower(table, **options)
    grown = grow(grower, grad, hess)
    expected = grow_by_trying_everything(X, thresholds, grad, hess, follow=grown.tree.feature, **options)
    assert len(grown.raw_gain) == len(expected.splits)
    np.testing.assert_allclose(grown.raw_gain, [s.raw_gain for s in expected.splits], rtol=rtol, atol=1e-6)
    np.testing.assert_allclose(grown.charge, [s.charge for s in expected.splits])
    np.testing.assert_array_equal(grown.tree.feature, [s.feature for s in expected.splits])
    leaf_rows = {frozenset(np.flatnonzero(grown.leaf_of_row == leaf)) for leaf in range(grown.n_leaves)}
    assert leaf_rows == {frozenset(rows) for rows, _ in expected.leaves}
    assert set(np.flatnonzero(grower.bought)) == expected.bought
    hess = np.ones_like(grad) if hess is None else hess
    for leaf in range(grown.n_leaves):
        rows = grown.leaf_of_row == leaf
        value = -grad[rows].sum(axis=0) / (hess[rows].sum(axis=0) + options.get("l2", 0.0))
        np.testing.assert_allclose(grown.tree.values[leaf], value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [0.0, 0.3, 2.0, 30.0])
def test_the_papers_impurity_agrees_at_every_price(seed, gamma):
    X, grad, _ = problem(seed)
    check(X, grad, gamma=gamma, prices=np.array([3.0, 1.0, 0.0, 0.5]), max_depth=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_newton_gain_with_missing_values_agrees(seed, gamma):
    X, grad, hess = problem(seed, missing=0.3)
    check(X, grad, hess, gamma=gamma, l2=0.7, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_group_is_paid_once_and_delivers_all_its_columns(seed):
    X, grad, _ = problem(seed, p=6, missing=0.1)
    check(
        X,
        grad,
        gamma=1.5,
        group_of=np.array([0, 1, 0, 2, 1, 2]),
        prices=np.array([2.0, 1.0, 0.7]),
        max_depth=4,
    )


@pytest.mark.slow
@pytest.mark.parametrize("n_outputs", [2, 3])
@pytest.mark.parametrize("newton", [False, True])
def test_several_outputs_add_their_gains(n_outputs, newton):
    X, grad, hess = problem(3, missing=0.1, n_outputs=n_outputs)
    check(X, grad, hess if newton else None, gamma=0.8, l2=0.1, rtol=1e-4, max_depth=3)


@pytest.mark.parametrize("newton", [False, True])
def test_limits_on_children_and_leaves_agree(newton):
    X, grad, hess = problem(5, n=60)
    hess = hess if newton else None
    check(X, grad, hess, min_child_samples=7, rtol=1e-4)
    check(X, grad, hess, min_child_weight=6.5, max_leaves=5, rtol=1e-4)
    check(np.repeat(X, 2, axis=0), np.repeat(grad, 2, axis=0), min_child_samples=3, max_leaves=9, max_depth=6)


def test_weights_count_as_rows():
    X, grad, _ = problem(4, n=30)
    counts = np.random.default_rng(0).integers(1, 4, size=30)
    table = bin_columns(X)
    weighted = grow(make_grower(table, gamma=1.0), grad[:, 0] * counts, counts)
    repeated = grow(
        make_grower(table.take(np.repeat(np.arange(30), counts)), gamma=1.0), np.repeat(grad[:, 0], counts)
    )
    np.testing.assert_array_equal(weighted.leaf_of_row, repeated.leaf_of_row[np.cumsum(counts) - 1])
    np.testing.assert_allclose(weighted.raw_gain, repeated.raw_gain, rtol=1e-6)
    np.testing.assert_allclose(weighted.tree.values, repeated.tree.values, rtol=1e-6)


def test_quantisation_moves_gains_by_less_than_a_millionth_of_the_total():
    rng = np.random.default_rng(1)
    X, grad, hess = (
        rng.integers(0, 2, size=(20_000, 1)).astype(float),
        rng.normal(size=20_000),
        rng.random(20_000),
    )
    grad += 0.05 * X[:, 0]
    left = X[:, 0] == 0
    for h in (None, hess):
        grown = grow(make_grower(bin_columns(X), max_depth=1), grad, h)
        exact = raw_gain(
            left, np.arange(20_000), grad[:, None], np.ones((20_000, 1)) if h is None else h[:, None], 0, 0, 1
        )
        assert abs(grown.raw_gain[0] - exact) < 1e-6 * np.sum(grad**2)
