import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.trees.grown import grow, make_grower
from thrifty.engine.trees import TreeEnsemble, bin_columns
from thrifty.errors import InvalidInputError

quick = settings(max_examples=40, deadline=None)


@st.composite
def problems(draw):
    """Small tables with few values, so that exact ties and empty leaves happen all the time."""
    n, p = draw(st.integers(2, 30)), draw(st.integers(1, 11))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.integers(0, draw(st.integers(1, 5)), size=(n, p)).astype(float)
    X[rng.random((n, p)) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    grads = [rng.integers(-2, 3, size=(n, draw(st.integers(1, 2)))) / 2.0 for _ in range(2)]
    group_of = rng.integers(0, max(p // 2, 1), size=p)
    prices = rng.integers(0, 3, size=p).astype(float)
    options = {
        "gamma": draw(st.sampled_from([0.0, 0.1, 0.4, 1.0])),
        "max_depth": draw(st.integers(1, 6)),
        "max_leaves": draw(st.sampled_from([4096, 2, 5])),
        "l2": draw(st.sampled_from([0.0, 1.0])),
        "min_child_samples": draw(st.integers(1, 3)),
    }
    hess = draw(st.sampled_from([None, 1.0]))
    return X, grads, hess, group_of, prices, options


def grow_all(X, grads, hess, group_of, prices, options, **more):
    grower = make_grower(bin_columns(X), group_of=group_of, prices=prices, **options, **more)
    hessians = [None if hess is None else 0.25 + np.abs(grad) for grad in grads]
    return grower, [grow(grower, grad, h) for grad, h in zip(grads, hessians, strict=True)]


def same_trees(first, second):
    for a, b in zip(first, second, strict=True):
        for name in ("feature", "threshold", "missing_left", "children", "values"):
            np.testing.assert_array_equal(getattr(a.tree, name), getattr(b.tree, name), err_msg=name)
        np.testing.assert_array_equal(a.raw_gain, b.raw_gain)
        np.testing.assert_array_equal(a.charge, b.charge)


@quick
@given(problems())
def test_every_split_gains_more_than_it_pays_and_pays_once(problem):
    _, _, _, group_of, prices, options = problem
    _, trees = grow_all(*problem)
    paid = set()
    for grown in trees:
        assert np.all(grown.raw_gain > grown.charge)
        for f, charge in zip(grown.tree.feature, grown.charge, strict=True):
            group = int(group_of[f])
            assert charge == (0.0 if group in paid else options["gamma"] * prices[group])
            paid.add(group)


@pytest.mark.slow
@quick
@given(problems())
def test_no_column_outside_the_bought_set_is_ever_read(problem):
    grower, trees = grow_all(*problem)
    X = problem[0]
    ensemble = (
        TreeEnsemble.concatenate([grown.tree for grown in trees])
        if len({t.tree.n_outputs for t in trees}) == 1
        else trees[0].tree
    )
    assert not np.any(ensemble.features_used & ~grower.bought_columns)
    assert not np.any(ensemble.touched(X) & ~grower.bought_columns)
    hidden = np.where(grower.bought_columns, X, np.random.default_rng(0).normal(size=X.shape))
    np.testing.assert_array_equal(ensemble.predict(hidden), ensemble.predict(X))


@pytest.mark.slow
@quick
@given(problems(), st.integers(0, 1000))
def test_permuting_rows_changes_nothing(problem, seed):
    X, grads, *rest = problem
    order = np.random.default_rng(seed).permutation(len(X))
    _, trees = grow_all(*problem)
    _, permuted = grow_all(X[order], [grad[order] for grad in grads], *rest)
    same_trees(trees, permuted)


@pytest.mark.slow
@quick
@given(problems(), st.integers(0, 1000))
def test_permuting_columns_changes_nothing_but_their_names(problem, seed):
    X, grads, hess, group_of, prices, options = problem
    # Columns that are mirror images of each other under an exchange of rows tie in earnest: nothing in the table
    # tells them apart, and either may be taken.
    columns = np.unique(np.nan_to_num(X, nan=-99.0), axis=1).shape[1]
    assume(len(np.unique(bin_columns(X).column_keys)) == columns)
    order = np.random.default_rng(seed).permutation(X.shape[1])
    _, trees = grow_all(*problem)
    _, permuted = grow_all(X[:, order], grads, hess, group_of[order], prices, options)
    for a, b in zip(trees, permuted, strict=True):
        np.testing.assert_array_equal(a.raw_gain, b.raw_gain)
        np.testing.assert_array_equal(a.charge, b.charge)
        np.testing.assert_array_equal(X[:, a.tree.feature], X[:, order][:, b.tree.feature])
        np.testing.assert_array_equal(a.leaf_of_row, b.leaf_of_row)
        np.testing.assert_array_equal(a.tree.values, b.tree.values)


@pytest.mark.slow
@quick
@given(problems())
def test_skipping_what_cannot_pay_and_empty_bins_changes_no_tree(problem):
    same_trees(grow_all(*problem)[1], grow_all(*problem, skip_hopeless=False, few_rows=0)[1])


@pytest.mark.slow
@quick
@given(problems())
def test_bins_and_raw_numbers_and_training_rows_reach_the_same_leaves(problem):
    X = problem[0]
    grower, trees = grow_all(*problem)
    for grown in trees:
        grown.tree.validate()
        scores = grown.tree.predict(X)
        np.testing.assert_array_equal(scores, grown.tree.predict_binned(grower.table))
        np.testing.assert_array_equal(scores, grown.row_values)
        np.testing.assert_array_equal(grown.tree.apply(X)[:, 0], grown.leaf_of_row)


def boost(X, y, rounds=12, newton=False, **options):
    grower = make_grower(bin_columns(X), **options)
    score, trees = np.zeros(len(y)), []
    for _ in range(rounds):
        probability = 1 / (1 + np.exp(-y * score))
        hess = probability * (1 - probability) if newton else None
        trees.append(grow(grower, -y * (1 - probability), hess, learning_rate=0.5))
        score += trees[-1].row_values[:, 0]
    return grower, trees, score


@pytest.mark.slow
@pytest.mark.parametrize("newton", [False, True])
def test_skipping_saves_work_and_changes_no_tree(priced_problem, newton):
    X, y = priced_problem
    options = {"gamma": 60.0, "max_depth": 6, "newton": newton, "l2": float(newton)}
    grower, skipped, _ = boost(X, y, **options)
    _, examined, _ = boost(X, y, skip_hopeless=False, **options)
    same_trees(skipped, examined)
    assert 0 < grower.bought.sum() <= 5
    saved = 1 - sum(t.n_cells for t in skipped) / sum(t.n_cells for t in examined)
    assert saved > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("newton", [False, True])
@pytest.mark.parametrize("gamma", [2.0, 20.0])
@pytest.mark.parametrize(
    "options",
    [
        {"l2": 2.0, "min_child_samples": 20, "max_depth": 6},
        {"group_of": np.arange(24) // 3, "prices": np.linspace(0.0, 3.0, 8)},
        {"max_leaves": 6},
    ],
)
def test_skipping_changes_no_tree_at_any_price(priced_problem, newton, gamma, options):
    X, y = priced_problem
    fast, skipped, _ = boost(X, y, newton=newton, gamma=gamma, **options)
    slowly = {"skip_hopeless": False, "few_rows": 0}
    slow, examined, _ = boost(X, y, newton=newton, gamma=gamma, **slowly, **options)
    same_trees(skipped, examined)
    np.testing.assert_array_equal(fast.bought, slow.bought)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-120, 1e120, 1e160, 1e300])
def test_gradients_of_any_size_grow_the_same_tree_with_and_without_skipping(scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    grad = (np.sign(X[:, 0]) + 0.1 * rng.normal(size=200)) * scale
    table = bin_columns(X)
    for gamma in (0.2 * scale * scale, 1e-3 * scale * scale, 1e300):
        if np.isfinite(gamma):
            options = {"gamma": gamma, "max_depth": 2}
            a, b = make_grower(table, **options), make_grower(table, skip_hopeless=False, **options)
            np.testing.assert_array_equal(grow(a, grad).tree.feature, grow(b, grad).tree.feature)


def test_a_full_histogram_pool_changes_no_tree(priced_problem, monkeypatch):
    X, y = priced_problem
    options = {"gamma": 3.0, "max_depth": 9, "max_leaves": 60}
    expected = boost(X, y, 3, **options)[1]
    monkeypatch.setattr("thrifty.learners.trees.workspace.HISTOGRAM_BYTES", 1)
    same_trees(expected, boost(X, y, 3, **options)[1])


def test_many_rows_take_wide_lanes_and_grow_the_same_tree(priced_problem, monkeypatch):
    X, y = priced_problem
    expected = boost(X, y, 2, newton=True)[1]
    monkeypatch.setattr("thrifty.learners.trees.gradients.WIDE_ROWS", 10)
    for a, b in zip(expected, boost(X, y, 2, newton=True)[1], strict=True):
        np.testing.assert_array_equal(a.tree.feature, b.tree.feature)
        np.testing.assert_allclose(a.raw_gain, b.raw_gain, rtol=1e-3)


def test_reset_makes_a_used_grower_as_good_as_new(priced_problem):
    X, y = priced_problem
    grower, _, _ = boost(X, y, 3, gamma=5.0)
    grower.reset()
    grower.gamma = 40.0
    fresh = make_grower(grower.table, gamma=40.0)
    same_trees([grow(grower, -y / 2)], [grow(fresh, -y / 2)])


def test_a_huge_gamma_buys_nothing_and_leaves_one_leaf(priced_problem):
    X, y = priced_problem
    grower = make_grower(bin_columns(X), gamma=1e9)
    grown = grow(grower, -y / 2)
    assert grown.n_leaves == 1
    assert not grower.bought.any()
    np.testing.assert_allclose(grown.tree.predict(X), np.full((len(X), 1), y.mean() / 2), rtol=1e-6)


def test_constant_and_all_missing_columns_are_never_bought():
    X = np.column_stack([np.ones(50), np.full(50, np.nan), np.arange(50.0)])
    grower = make_grower(bin_columns(X))
    grow(grower, np.sin(np.arange(50.0)))
    np.testing.assert_array_equal(grower.bought, [False, False, True])


def test_missing_values_go_to_the_better_side():
    X = np.array([[0.0]] * 5 + [[1.0]] * 5 + [[np.nan]] * 5)
    for sign, expected in ((1.0, False), (-1.0, True)):
        grad = np.repeat([-1.0, 1.0, sign], 5)
        grown = grow(make_grower(bin_columns(X)), grad)
        assert grown.tree.missing_left[0] == expected
        assert grown.n_leaves == 2


def test_equal_gradients_are_never_split(priced_problem):
    X, _ = priced_problem
    grown = grow(make_grower(bin_columns(X)), np.full(len(X), 0.3))
    assert grown.n_leaves == 1


def test_rows_without_weight_do_not_matter(priced_problem):
    X, y = priced_problem
    weight = (np.arange(len(y)) % 3 > 0).astype(float)
    table = bin_columns(X)
    kept = grow(make_grower(table.take(weight > 0)), -y[weight > 0] / 2, np.ones(int(weight.sum())))
    weighted = grow(make_grower(table), -y / 2 * weight, weight)
    np.testing.assert_array_equal(weighted.tree.threshold, kept.tree.threshold)
    np.testing.assert_allclose(weighted.tree.values, kept.tree.values, rtol=1e-5)


def test_bad_gradients_are_refused_by_row():
    grower = make_grower(bin_columns(np.arange(6.0).reshape(3, 2)))
    with pytest.raises(InvalidInputError, match="grad must be finite; row 1, output 0 is nan"):
        grow(grower, np.array([0.0, np.nan, 1.0]))
    with pytest.raises(InvalidInputError, match="hess must be finite and not negative; row 2"):
        grow(grower, np.zeros(3), np.array([1.0, 1.0, -1.0]))
    with pytest.raises(InvalidInputError, match="grad must have shape"):
        grow(grower, np.zeros(4))
    with pytest.raises(InvalidInputError, match="shape of grad"):
        grow(grower, np.zeros(3), np.zeros((3, 2)))
