"""What rules priced columns out must never rule out one that pays: bounds against plain search, trees against trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from thrifty.trees import Binner, TreeGrower, memory
from thrifty.trees.pairs import coarse_bins, make_pairs
from thrifty.trees.quantise import choose_lanes, pack
from thrifty.trees.screen import FACTOR, bound_column, marginals, set_scale

quick = settings(max_examples=60, deadline=None)


def callable_from_here(function):
    """Compiled functions for other compiled functions, with an entry from Python."""
    return njit(lambda *arguments: function(*arguments))


set_scale, marginals, bound_column = map(callable_from_here, (set_scale, marginals, bound_column))
begin_entry, find_entry, measure, place_of, coarsen = map(
    callable_from_here,
    (memory.begin_entry, memory.find_entry, memory.measure, memory.place_of, memory.coarsen),
)


def best_root_gain(codes, grad, n_bins):
    """Largest ``s = sqrt(2 gain)`` over every split of one column, missing values on either side."""
    best, n, mean = 0.0, len(grad), grad.mean()
    for b in range(n_bins):
        for left in (codes <= b, (codes <= b) & (codes < n_bins), (codes <= b) | (codes == n_bins)):
            a = left.sum()
            if 0 < a < n:
                best = max(best, abs((grad[left] - mean).sum()) * np.sqrt(n / (a * (n - a))))
    return best


@st.composite
def columns(draw):
    """Two columns with few or many bins, with and without missing values, and gradients that may depend on them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.sampled_from([3, 40, 700]))
    X = rng.normal(size=(n, 2)).round(draw(st.sampled_from([0, 1, 3])))
    X[rng.random((n, 2)) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    strength = draw(st.sampled_from([0.0, 0.3, 3.0]))
    grad = rng.normal(size=n) + strength * (np.nan_to_num(X[:, 0]) > draw(st.sampled_from([-1.0, 0.0, 2.0])))
    return X, grad * draw(st.sampled_from([1.0, 1e-6, 1e5]))


def pack_one(grad, lanes):
    packed, units = np.empty(len(grad), np.int64), np.ones((1, 3))
    totals = np.empty(1, np.int64)
    pack([grad], None, lanes, packed, units, totals)
    assert totals[0] == packed.sum()
    return packed, units


@quick
@given(columns(), st.sampled_from([0.3, 0.8, 0.99, 1.0, 1.02, 1.5]))
def test_coarse_sums_never_rule_out_a_gain_that_is_there(problem, share):
    X, grad = problem
    table = Binner().fit_transform(X)
    lanes = choose_lanes(len(grad), 1, constant=True, keep_count=False)
    packed, units = pack_one(grad, lanes)
    shift = lanes.fields[0, 1]
    scale, values = np.zeros(6), np.zeros(256, np.int64)
    assert units[0, 2] == np.abs(packed >> shift).max()
    set_scale(packed, shift, units[0, 2], scale, values)
    hist, sums, room = np.zeros(256, np.int64), np.zeros(32, np.int64), np.zeros((3, 17))
    rounded = np.floor((packed >> shift) * scale[FACTOR] + 0.5).astype(int)
    np.add.at(hist, table.pairs.words.view(np.uint8)[:, 0], values[rounded + 128])
    marginals(hist, 0, sums)
    n_bins = table.thresholds.n_bins
    for f in range(2):
        s = best_root_gain(table.codes[:, f], grad, n_bins[f])
        limit = share * s * scale[FACTOR] / units[0, 0] - 0.5001 * np.sqrt(len(grad))
        reached = bound_column(
            sums[16 * f : 16 * f + 16],
            int(table.pairs.n_coarse[f]),
            int(table.pairs.hides[f]),
            scale,
            limit * (1 - 1e-6),
            room,
        )
        assert reached == np.inf or share > 1.0 or s == 0.0
        bound = bound_column(
            sums[16 * f : 16 * f + 16],
            int(table.pairs.n_coarse[f]),
            int(table.pairs.hides[f]),
            scale,
            np.inf,
            room,
        )
        assert (bound + 0.5001 * np.sqrt(len(grad))) * units[0, 0] / scale[FACTOR] >= s * (1 - 1e-6)


def test_coarse_sums_rule_out_noise_at_a_price_of_a_thirtieth_of_the_variance():
    rng = np.random.default_rng(0)
    grad, table = rng.choice([-0.5, 0.5], size=20_000), Binner().fit_transform(rng.normal(size=(20_000, 16)))
    gamma = 1 / 30 * 0.5 * np.sum(grad**2)
    grower = TreeGrower(table, gamma=gamma, l2=1e-9)
    assert grower.grow(grad).n_cells == 20_000 * 8
    assert TreeGrower(table, gamma=gamma, skip_hopeless=False).grow(grad).n_cells == 20_000 * 16


def test_coarse_bins_are_the_bins_if_few_and_narrow_at_the_ends_if_many():
    np.testing.assert_array_equal(coarse_bins(np.ones(15, int), 16), np.arange(15))
    sizes = np.bincount(coarse_bins(np.full(255, 10), 16))
    assert len(sizes) == 16
    np.testing.assert_allclose(sizes, sizes[::-1], atol=1)
    assert sizes[0] <= 3 < 20 < sizes[8]


def test_pairs_keep_the_order_of_codes_and_missing_values_apart():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5))
    X[::7, 2] = np.nan
    table = Binner().fit_transform(X)
    pairs = make_pairs(table.codes, table.thresholds.n_bins)
    packed = pairs.words.view(np.uint8)
    for f in range(5):
        coarse = (packed[:, f // 2] >> (4 * (f % 2))) & 15
        order = np.argsort(table.codes[:, f], kind="stable")
        assert np.all(np.diff(coarse[order].astype(int)) >= 0)
        is_missing = np.isnan(X[:, f])
        np.testing.assert_array_equal(
            coarse == pairs.n_coarse[f], is_missing if f == 2 else np.zeros(500, bool)
        )


@quick
@given(columns(), st.floats(0.0, 2.0), st.sampled_from([1.0, 1e-3, 40.0]))
def test_a_leaf_gains_no_more_than_it_did_plus_how_far_its_gradients_moved(problem, step, growth):
    X, grad = problem
    n, table = len(grad), Binner().fit_transform(X)
    lanes = choose_lanes(n, 1, constant=True, keep_count=False)
    shift = lanes.fields[0, 1]
    moved = growth * (grad + step * np.abs(grad).max() * np.random.default_rng(0).normal(size=n))
    path = np.array([1, 77, 12])
    entries, past = np.zeros((5, memory.PATH + 3), np.int64), np.zeros(3 * n, np.int16)
    known = np.full((5, 2 + 2), np.inf)
    packed, units = pack_one(grad, lanes)
    bits = coarsen(np.abs(packed >> shift).max())
    entry = place_of(path, 2, 5)
    begin_entry(
        entries, past, known, entry, 2 * n, 0, path, 2, memory.Gradients(packed, shift, units[0, 0], bits)
    )
    assert find_entry(entries, path, 2, n, n) == entry >= memory.N_ROOTS
    packed, units = pack_one(moved, lanes)
    bits = coarsen(np.abs(packed >> shift).max())
    measure(entries, past, known, entry, 2 * n, n, memory.Gradients(packed, shift, units[0, 0], bits))
    distance = known[entry, memory.DISTANCE]
    truth, largest = (
        np.linalg.norm(moved - grad - np.mean(moved - grad)),
        max(np.abs(moved).max(), np.abs(grad).max()),
    )
    # Gradients that grew beyond what two bytes hold, and six bits more, are not compared.
    assert truth * (1 - 1e-6) <= distance
    assert distance <= truth + 2.0**-12 * largest * np.sqrt(n) or growth > 1.0
    n_bins = table.thresholds.n_bins[0]
    then, now = (best_root_gain(table.codes[:, 0], g, n_bins) for g in (grad, moved))
    assert now <= (then + distance) * (1 + 1e-6) + 1e-6 * np.abs(moved).max()


@pytest.mark.parametrize(
    ("path", "depth", "head"),
    [([0, 77, 12], 2, 30), ([1, 77, 13], 2, 30), ([1, 77, 12], 1, 30), ([1, 77, 12], 2, 131)],
    ids=["another root", "another side", "its parent", "overwritten since"],
)
def test_no_leaf_is_taken_for_another(path, depth, head):
    entries, past, known = np.zeros((3, memory.PATH + 3), np.int64), np.zeros(200, np.int16), np.zeros((3, 3))
    packed = np.arange(30) << 5  # three entries: two of roots, so that every leaf has the same place
    begin_entry(entries, past, known, 2, 40, 0, np.array([1, 77, 12]), 2, memory.Gradients(packed, 5, 1.0, 0))
    assert find_entry(entries, np.array([1, 77, 12]), 2, 30, 130) == 2
    assert find_entry(entries, np.array(path), depth, head, 130) == -1


def boost_two_scores(X, labels, rounds, **options):
    grower = TreeGrower(Binner().fit_transform(X), **options)
    scores, trees = [np.zeros(len(X)) for _ in labels], []
    for round_ in range(rounds):
        for y, score in zip(labels, scores, strict=True):
            trees.append(grower.grow(-y / (1 + np.exp(y * score)), learning_rate=0.3))
            trees[-1].add_to(score)
        if round_ == rounds // 2:
            for score in scores:
                score *= -0.5  # gradients jump: nothing remembered may be trusted blindly
    return grower, trees


@pytest.fixture(scope="module")
def two_scores():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 37))
    X[rng.random(X.shape) < 0.02] = np.nan
    X[:, 5] = X[:, 5].round()
    known = np.nan_to_num(X)
    signal = 2 * known[:, 0] + known[:, 1] * known[:, 2] - known[:, 3] + 0.3 * known[:, 20:24].sum(axis=1)
    noise = rng.normal(size=(2, 3000))
    return X, [np.where(signal + noise[0] > 0, 1.0, -1.0), np.where(np.abs(signal) + noise[1] > 1, 1.0, -1.0)]


@pytest.mark.parametrize("gamma", [2.0, 6.0, 20.0, 60.0])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"l2": 2.0, "min_child_samples": 20, "max_depth": 6},
        {"group_of": np.arange(37) // 3, "prices": np.linspace(0.0, 3.0, 13)},
        {"max_leaves": 6, "n_threads": 2},
    ],
)
def test_screening_and_memory_change_no_tree(two_scores, gamma, options, monkeypatch):
    monkeypatch.setattr("thrifty.trees.grower.SHARED_CELLS", 1000)
    fast, trees = boost_two_scores(*two_scores, 16, gamma=gamma, **options)
    slow, expected = boost_two_scores(*two_scores, 16, gamma=gamma, skip_hopeless=False, **options)
    for a, b in zip(trees, expected, strict=True):
        for name in ("feature", "threshold", "missing_left", "children", "values"):
            np.testing.assert_array_equal(getattr(a.tree, name), getattr(b.tree, name), err_msg=name)
        np.testing.assert_array_equal(a.raw_gain, b.raw_gain)
        np.testing.assert_array_equal(a.charge, b.charge)
        np.testing.assert_array_equal(a.leaf_of_row, b.leaf_of_row)
    np.testing.assert_array_equal(fast.bought, slow.bought)


def test_screening_and_memory_save_half_of_the_work_and_memory_a_part_of_that(two_scores, monkeypatch):
    X, labels = two_scores
    _, trees = boost_two_scores(X, labels, 16, gamma=20.0)
    grower, expected = boost_two_scores(X, labels, 16, gamma=20.0, skip_hopeless=False)
    monkeypatch.setattr("thrifty.trees.workspace.MOST_ENTRIES", 1)
    _, forgetful = boost_two_scores(X, labels, 16, gamma=20.0)
    assert 0 < grower.bought.sum() <= 8
    work, most, between = (sum(tree.n_cells for tree in some) for some in (trees, expected, forgetful))
    assert work < 1 / 2 * most
    assert work < 0.9 * between


@pytest.mark.parametrize("name", ["MOST_ENTRIES", "RING_TABLES"])
def test_a_memory_of_next_to_nothing_changes_no_tree(two_scores, name, monkeypatch):
    _, expected = boost_two_scores(*two_scores, 12, gamma=6.0, skip_hopeless=False)
    monkeypatch.setattr(f"thrifty.trees.workspace.{name}", 1)
    for a, b in zip(boost_two_scores(*two_scores, 12, gamma=6.0)[1], expected, strict=True):
        np.testing.assert_array_equal(a.tree.feature, b.tree.feature)
        np.testing.assert_array_equal(a.raw_gain, b.raw_gain)


def best_direction(codes, grad, n_bins):
    """The unit vector of the best split of one column without missing values, and the gain's ``s``."""
    n, best, direction = len(grad), 0.0, np.zeros(len(grad))
    for b in range(n_bins - 1):
        left = codes <= b
        a = left.sum()
        if 0 < a < n:
            u = np.where(left, 1 / a, -1 / (n - a)) * np.sqrt(a * (n - a) / n)
            if abs(u @ grad) > best:
                best, direction = abs(u @ grad), u * np.sign(u @ grad)
    return best, direction


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_a_column_that_gradients_move_straight_towards_is_bought_as_soon_as_it_pays(depth, seed):
    """The memory's bound is then met exactly: anything less would miss the purchase."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 40)).round(1)
    X[:, 0] = rng.integers(0, 2, 400)
    table = Binner().fit_transform(X)
    rows = np.flatnonzero(X[:, 0] == 1) if depth else np.arange(400)
    options = {"prices": np.r_[0.0, np.ones(39)], "max_depth": depth + 1}
    fast, slow = TreeGrower(table, **options), TreeGrower(table, skip_hopeless=False, **options)
    grad = np.zeros(400)
    grad[rows] = rng.normal(size=len(rows)) + 20.0 * depth

    def s_of(f):
        return best_direction(table.codes[rows, f], grad[rows], table.thresholds.n_bins[f])

    for _ in range(6):
        top = max(s_of(f)[0] for f in range(1, 40))
        fast.reset(bought=[], gamma=0.55 * top**2)  # nothing pays: the leaf is remembered
        fast.grow(grad)
        column = int(rng.integers(1, 40))
        grad[rows] += s_of(column)[1] * max(1.2 * top - s_of(column)[0], 0.3 * top)
        reached, free = max(s_of(f)[0] for f in range(1, 40)), 0.0 if depth else s_of(0)[0]
        gamma = 0.5 * (reached**2 - free**2) * (1 - 1e-9)
        trees = []
        for grower in (fast, slow):
            grower.reset(bought=[], gamma=gamma)
            trees.append(grower.grow(grad))
        assert np.any(trees[1].bought_groups > 0)
        np.testing.assert_array_equal(trees[0].tree.feature, trees[1].tree.feature)
        np.testing.assert_array_equal(trees[0].raw_gain, trees[1].raw_gain)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-120, 1e120, 1e160, 1e300])
def test_gradients_of_any_size_grow_the_same_tree_with_and_without_skipping(scale):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    grad = (np.sign(X[:, 0]) + 0.1 * rng.normal(size=200)) * scale
    table = Binner().fit_transform(X)
    for gamma in (0.2 * scale * scale, 1e-3 * scale * scale, 1e300):
        if np.isfinite(gamma):
            options = {"gamma": gamma, "max_depth": 2}
            a, b = TreeGrower(table, **options), TreeGrower(table, skip_hopeless=False, **options)
            np.testing.assert_array_equal(a.grow(grad).tree.feature, b.grow(grad).tree.feature)


@pytest.mark.parametrize("n_scores", [3, 4])
def test_more_scores_than_roots_are_remembered_change_no_tree(two_scores, n_scores):
    X, labels = two_scores
    more = [*labels, labels[0] * labels[1], -labels[0]][:n_scores]
    _, trees = boost_two_scores(X, more, 6, gamma=20.0)
    _, expected = boost_two_scores(X, more, 6, gamma=20.0, skip_hopeless=False)
    for a, b in zip(trees, expected, strict=True):
        np.testing.assert_array_equal(a.raw_gain, b.raw_gain)


def test_a_reset_grower_may_keep_its_memory(two_scores):
    X, labels = two_scores
    grower, _ = boost_two_scores(X, labels, 4, gamma=20.0)
    grower.reset(bought=[], gamma=5.0)
    grad = -labels[0] / 2
    again, fresh = grower.grow(grad), TreeGrower(grower.table, gamma=5.0, skip_hopeless=False).grow(grad)
    np.testing.assert_array_equal(again.tree.feature, fresh.tree.feature)
    np.testing.assert_array_equal(again.raw_gain, fresh.raw_gain)
