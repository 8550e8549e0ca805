"""A tree of purchases: mixtures that answer from any set of columns, and rows that choose what they buy next."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

from thrifty import BudgetedClassifier, StageOptions, hold_budget
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.codec import ObjectReader
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.plots import purchase_tree
from thrifty.engine.trees import bin_columns
from thrifty.engine.walk.mixture import FLOOR, Mixture, MixtureStage, TurnByGain
from thrifty.engine.walk.stage import CascadeStage, nodes_of
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.tree import (
    MAX_LEVELS,
    PULL,
    coarse_levels,
    make_normal,
    maximise,
    smoothing,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning"),
    pytest.mark.usefixtures("small_fits"),
]


@pytest.fixture(scope="module")
def mixture():
    """Three columns of three levels and "missing", three classes of one, two and three components."""
    chance, label = np.random.default_rng(0), np.array([0, 1, 1, 2, 2, 2], dtype=np.int32)
    tables = chance.dirichlet(np.ones(4), size=(3, 6)).transpose(0, 2, 1).reshape(12, 6)
    ends = np.tile([0.5, 1.5], 3)
    share = chance.dirichlet(np.ones(6))
    known, offsets = np.array([4, 7, 9]), np.array([0, 2, 4, 6])
    return Mixture(known, ends, offsets, share, label, label, tables.astype(np.float32), 3)


def chances(mixture, held, codes):
    """Probabilities of the classes of one row, component by component."""
    mass = np.zeros(mixture.n_classes)
    for k, label in enumerate(mixture.label):
        mass[label] += mixture.share[k] * math.prod(
            float(mixture.tables[4 * place + code, k]) for place, code in zip(held, codes, strict=True)
        )
    return mass / mass.sum(), mass.sum()


@pytest.mark.parametrize("held", [[], [1], [2, 0], [0, 1, 2]])
def test_scores_are_logarithms_of_sums_of_products_over_what_is_held(mixture, held):
    codes = np.random.default_rng(1).integers(0, 4, (5, len(held))).astype(np.uint8)
    scores, _ = mixture.look(codes, mixture.columns[held])
    for row, score in zip(codes, scores, strict=True):
        expected = chances(mixture, held, row)[0] + FLOOR * mixture.prior
        np.testing.assert_allclose(score, np.log(expected), rtol=1e-13)


def test_a_column_gains_the_expected_fall_of_the_impurity(mixture):
    _, gain = mixture.look(np.array([[2]], dtype=np.uint8), np.array([7]), np.array([9, 4]))
    now, whole = chances(mixture, [1], [2])
    for found, place in zip(gain[0], (2, 0), strict=True):
        behind = [chances(mixture, [1, place], [2, level]) for level in range(4)]
        kept = sum(mass / whole * np.square(after).sum() for after, mass in behind)
        assert found == pytest.approx(kept - np.square(now).sum(), abs=1e-4)


def test_a_purchase_is_taken_where_the_gain_is_largest_for_the_price():
    turn = TurnByGain(np.array([3, 5]), np.array([[9, 2], [4, -1]]), np.array([2.0, 1.0]))
    assert turn.candidates.tolist() == [2, 4, 9]
    gain = np.array([[0.9, 0.5, 0.1], [0.1, 0.4, 0.9], [0.3, 0.3, 0.3]])
    # What the best column of a purchase tells, halved by a price of two.
    assert turn.taken(gain).tolist() == [5, 3, 5]


def learned(codes, n, *, n_rounds, bandwidth=1e-3):
    """Share and tables of a class whose columns have the levels 0, 1, 2 and "missing"; components begin with a row."""
    kernels = smoothing([np.array([0.0, 1.0, 2.0])] * codes.shape[1], bandwidth)
    starts, levels = 4 * np.arange(codes.shape[1]), np.full(codes.shape[1], 4)
    start = np.where(np.arange(len(codes)) < n, np.arange(len(codes)), -1)
    share, tables = np.empty(n), np.empty((4 * codes.shape[1], n))
    rows = codes, np.ones(len(codes)), starts, levels
    scratch = np.zeros(tables.shape), np.zeros(len(tables)), np.zeros(len(share)), np.empty(len(share))
    maximise(*rows, kernels, kernels, start, n_rounds, PULL, share, tables, *scratch)
    return share, tables


def test_one_component_is_naive_bayes():
    codes = np.random.default_rng(0).integers(0, 4, (50, 2)).astype(np.uint8)
    share, tables = learned(codes, 1, n_rounds=1)
    counts = np.concatenate([np.bincount(column, minlength=4) for column in codes.T])
    expected = (counts + PULL * (counts + 0.5) / 52) / (50 + PULL)
    assert share[0] == 1.0
    np.testing.assert_allclose(tables[:, 0], expected, atol=1e-6)


def test_rounds_of_expectation_maximisation_raise_the_likelihood():
    chance = np.random.default_rng(0)
    codes = np.where(chance.random(200) < 0.5, 0, 2)[:, None] * np.ones(5, dtype=int)
    codes = np.where(chance.random(codes.shape) < 0.1, 1, codes).astype(np.uint8)

    def likelihood(n_rounds):
        share, tables = learned(codes, 2, n_rounds=n_rounds)
        of_rows = share * np.prod([tables[4 * j + codes[:, j]] for j in range(5)], axis=0)
        return np.log(of_rows.sum(axis=1)).mean()

    found = [likelihood(n) for n in range(5)]
    assert np.all(np.diff(found) > -1e-3)
    assert found[-1] > found[0] + 0.5


def test_few_values_at_even_steps_lie_where_they_are_and_others_at_their_ranks():
    even, uneven = (
        np.r_[np.zeros(120), [1.0, 2.0, 3.0, 4.0] * 15, [np.nan] * 20],
        np.array([0.0, 1, 2, 99] * 50),
    )
    many = np.exp(np.random.default_rng(0).normal(size=200))
    table = bin_columns(np.column_stack([even, uneven, many]))
    codes, ends, offsets, positions, values = coarse_levels(table, np.array([0, 1, 2]), np.ones(200))
    assert ends[: offsets[1]].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert codes[[0, 120, 121, 199], 0].tolist() == [0, 1, 2, 5]  # missing comes last
    for place in positions[:2]:
        np.testing.assert_allclose(np.diff(place), np.diff(place)[0])
    counts = np.bincount(codes[:, 2])
    assert len(counts) == MAX_LEVELS
    assert counts.min() >= 6
    np.testing.assert_allclose(values[0], [0, 1, 2, 3, 4])
    np.testing.assert_allclose(np.bincount(codes[:, 2]) @ values[2] / 200, many.mean(), rtol=0.02)


def test_normal_densities_are_discriminant_analysis_in_levels():
    chance, n_classes = np.random.default_rng(0), 4
    y = chance.integers(0, n_classes, 2_000)
    X = chance.normal(size=(n_classes, 3))[y] + chance.normal(size=(2_000, 3))
    X[:200, 0] = np.nan
    codes, ends, offsets, _, values = coarse_levels(bin_columns(X), np.arange(3), np.ones(2_000))
    starts, share = np.r_[0, np.cumsum(np.diff(offsets) + 2)[:-1]], np.bincount(y) / 2_000
    table = np.full((int(starts[-1]) + len(values[-1]) + 1, n_classes), 0.1)
    make_normal(table, share, starts, values, codes, np.ones(2_000), y)
    for start, own in zip(starts, values, strict=True):
        np.testing.assert_allclose(table[start : start + len(own)].sum(axis=0), 0.9, rtol=1e-4)
    # Weighted by the shares of the components, chances are those of all rows.
    of_all = np.bincount(codes[codes[:, 1] < len(values[1]), 1]) / 2_000
    np.testing.assert_allclose(table[starts[1] : starts[1] + len(of_all)] @ share, 0.9 * of_all, atol=2e-3)
    label = np.arange(n_classes, dtype=np.int32)
    mixture = Mixture(
        np.arange(3), ends, offsets, share, label, label, table.astype(np.float32), n_classes
    ).validate()
    known = slice(200, None)
    found = mixture.look(codes[known], np.arange(3))[0].argmax(axis=1)
    mean = np.stack([X[known][y[known] == c].mean(axis=0) for c in range(n_classes)])
    spread = (X[known] - mean[y[known]]).std(axis=0)
    scores = -0.5 * np.square((X[known, None] - mean) / spread).sum(axis=2) + np.log(share)
    assert np.mean(found == scores.argmax(axis=1)) > 0.95


def pointed(n_rows, seed):
    """Six classes; the first column, worth nothing by itself, says which of the others tells."""
    chance = np.random.default_rng(seed)
    X = chance.integers(0, 6, (n_rows, 6)).astype(float)
    where = 1 + (X[:, 0].astype(int) % 5)
    return X, X[np.arange(n_rows), where].astype(int)


def cascade(structure, **settings):
    full = DecisionTreeClassifier(max_depth=7, random_state=0)
    stages = StageOptions(sizes=[(10, 4)], structure=structure)
    return BudgetedClassifier(full, stages=stages, cv=2, random_state=0, **settings)


@pytest.fixture(scope="module")
def fitted(while_fits_are_small):
    with while_fits_are_small():
        return {name: cascade(name).fit(*pointed(1_000, 0)) for name in ("line", "auto", "tree")}


def test_rows_buy_what_their_first_purchase_points_to_also_by_default(fitted):
    X, y = pointed(800, 1)
    assert isinstance(fitted["tree"].chain_.stages[0], MixtureStage)
    scores = {name: hold_budget(clf, X, 2.0).score(X, y) for name, clf in fitted.items()}
    assert min(scores["auto"], scores["tree"]) > 0.95 > 0.7 > scores["line"]
    bought = [one.bought for one in fitted["tree"].at(budget=2.0).explain(X[:30])]
    assert {b[0] for b in bought} == {"x0"}  # which by itself says nothing
    assert {b[1] for b in bought if len(b) > 1} == {"x1", "x2", "x3", "x4", "x5"}


def test_a_column_that_only_says_what_others_mean_comes_first():
    chance = np.random.default_rng(0)
    X, y = chance.normal(0.5, 0.5, size=(900, 9)), chance.integers(0, 4, 900)
    bits = np.column_stack([y & 1, y >> 1]) + chance.normal(0, 0.2, size=(900, 2))
    context = X[:, 0] > 0.5
    X[context, 1:3], X[~context, 5:7] = bits[context], bits[~context]
    clf = cascade("tree").fit(X.round(3), y)
    dearest = clf.at(budget=float(clf.chain_.policy.cost[-1])).explain(X[:40].round(3))
    assert {one.bought[0] for one in dearest} == {"x0"}
    told = {True: ("x1", "x2"), False: ("x5", "x6")}
    is_right = [one.bought[1] in told[bool(above)] for one, above in zip(dearest, context[:40], strict=True)]
    assert np.mean(is_right) > 0.9  # but for rows near the limit


def test_behind_the_last_level_the_mixture_answers_where_columns_are_independent_and_else_trees(fitted):
    chance = np.random.default_rng(0)
    y = chance.integers(0, 4, 600)
    X = (chance.normal(size=(4, 12))[y] + chance.normal(0, 2, size=(600, 12))).round(3)
    independent = cascade("tree").fit(X, y).chain_
    assert isinstance(independent.stages[-1], MixtureStage)
    assert isinstance(fitted["tree"].chain_.stages[-1], CascadeStage)
    last = independent.stages[-1]
    assert sorted(last.columns) == sorted(last.mixture.columns)
    scores = last.mixture.look(last.mixture.code(X[:50, last.columns], last.columns), last.columns)[0]
    visited = independent.visit_all(independent.reader(X[:50])).scores[:, independent.n_stages - 1]
    assert np.array_equal(last.task.calibrated(scores, last.calibration), visited)


def test_a_line_is_kept_where_rows_gain_nothing_by_parting():
    X = np.random.default_rng(0).normal(size=(600, 5)).round(3)
    assert not cascade("auto").fit(X, X @ [3, 2, 1, 1, 1] > 0).chain_.has_forks


def test_auto_is_the_line_where_the_first_purchase_says_it_all(fitted):
    X, _ = pointed(1_000, 0)
    one, other = (cascade(structure).fit(X, X[:, 0] > 2) for structure in ("auto", "line"))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("max_stages", [1, 2])
def test_few_stages_leave_room_for_rows_to_part_or_are_a_line(max_stages):
    X, y = pointed(500, 0)
    clf = cascade("auto")
    clf.stages = replace(clf.stages, max_stages=max_stages)
    clf.fit(X, y)
    assert clf.n_stages_ <= max_stages
    assert np.array_equal(clf.predict(X[:20]), [clf.predict(X[[row]])[0] for row in range(20)])


def test_a_table_without_rows_visits_every_stage(fitted):
    chain = fitted["tree"].chain_
    reader = chain.reader(pointed(10, 1)[0][:0])
    assert chain.visit_all(reader).gate.shape == (0, chain.n_stages)
    assert [len(chain.spent(reader, walk)) for walk in chain.walks_by_stage(reader)] == [0] * chain.n_stages


def test_purchases_in_another_order_lead_to_the_same_node(fitted):
    for stage in fitted["tree"].chain_.stages:
        sets = [frozenset(node.columns.tolist()) for node in nodes_of(stage)]
        assert len(set(sets)) == len(sets)
    third = nodes_of(fitted["tree"].chain_.stages[2])
    came = [node.turn.nodes.tolist() for node in nodes_of(fitted["tree"].chain_.stages[1])]
    assert sum(map(len, came)) > len({number for one in came for number in one}) <= len(third)


def test_one_row_and_the_evidence_are_what_a_batch_is(fitted):
    X, y = pointed(200, 1)
    chain = fitted["tree"].chain_
    evidence = evidence_of(fitted["tree"], X, y)
    for place in (0, len(chain.policy) // 2, len(chain.policy) - 1):
        route, paid, _ = evidence.at_point(chain.policy.thresholds[place])
        there = chain.at(chain.policy.at(place))
        assert np.array_equal(route, there.route(X))
        assert np.allclose(paid, there.cost(X))
        alone = np.concatenate([there.predict_proba(X[[row]]) for row in range(10)])
        assert np.array_equal(alone, there.predict_proba(X[:10]))


def test_neither_threads_nor_the_order_of_rows_matter(fitted):
    X, y = pointed(1_000, 0)
    order = np.random.default_rng(3).permutation(len(y))
    other = cascade("tree", n_jobs=-1).fit(X[order], y[order])
    new = pointed(200, 1)[0]
    one, two = (clf.chain_.visit_all(clf.chain_.reader(new)) for clf in (fitted["tree"], other))
    assert np.array_equal(one.node, two.node)
    # Calibrations are found step by step, by sums in the order of the rows.
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-6)


def test_a_file_holds_the_mixture_once_and_answers_the_same(fitted):
    X, _ = pointed(300, 1)
    clf = fitted["tree"].at(budget=2.0)
    loaded = from_bytes(to_bytes(clf))
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(loaded.cost(X), clf.cost(X))
    assert len({id(node.mixture) for stage in loaded.chain_.stages[:-1] for node in nodes_of(stage)}) == 1


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("label", 5, "class by class"),
        ("tables", 0.0, "positive chances"),
        ("ends", 1e9, "levels of a mixture"),
    ],
)
def test_a_damaged_mixture_is_refused(fitted, name, value, rule):
    array = getattr(fitted["tree"].chain_.stages[0].mixture, name)
    first = array.flat[0]
    array.flat[0] = value
    try:
        with pytest.raises(InvalidInputError, match=rule):
            from_bytes(to_bytes(fitted["tree"]))
    finally:
        array.flat[0] = first


def test_nodes_that_the_mixture_does_not_know_are_refused(fitted):
    chain = fitted["tree"].chain_
    strange = replace(chain.stages[0], mixture=replace(chain.stages[0].mixture, columns=np.arange(10, 16)))
    with pytest.raises(InvalidInputError, match="known of the mixture"):
        from_bytes(to_bytes(replace(chain, stages=(strange, *chain.stages[1:]))))


@pytest.mark.slow
def test_rows_part_by_the_levels_of_a_category():
    X, y = pointed(1_000, 0)
    frame = pd.DataFrame(X, columns=list("abcdef")).astype({"a": int})
    frame["a"] = frame["a"].map(dict(enumerate(["north", "south", "east", "west", "up", "down"])))
    full = make_pipeline(OrdinalEncoder(), DecisionTreeClassifier(random_state=0))
    clf = cascade("auto").set_params(full=full).fit(frame, y > 2)
    assert {one.bought[0] for one in clf.at(budget=2.0).explain(frame[:20])} == {"a"}
    assert hold_budget(clf, frame, 2.0).score(frame, y > 2) > 0.95


def test_columns_of_many_categories_have_no_mixture():
    X, y = pointed(400, 0)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(
        a=pd.Series(np.arange(400) % 90).astype("category")
    )
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    full = make_pipeline(encoder, DecisionTreeClassifier(max_depth=3))
    assert not cascade("tree").set_params(full=full).fit(frame, y).chain_.has_forks


@pytest.mark.parametrize("structure", ["branch", "graph", "neighbours"])
def test_an_unknown_structure_is_refused_and_one_that_is_gone_names_its_heir(structure):
    way_out = f"'tree' takes the place of '{structure}'" if structure != "branch" else "got 'branch'"
    with pytest.raises(InvalidInputError, match=f"structure must be 'line'.*{way_out}"):
        BudgetedClassifier(stages=StageOptions(structure=structure)).fit(*pointed(50, 0))


def test_a_file_of_neighbours_says_what_takes_their_place():
    with pytest.raises(InvalidInputError, match=r"got 'NeighbourStage'.*structure='tree'.*fit again"):
        ObjectReader([{"class": "NeighbourStage"}], []).root()


def test_the_picture_counts_every_row_once_and_adds_up_to_what_they_pay(fitted):
    X, _ = pointed(300, 1)
    clf = fitted["tree"].at(budget=2.5)
    nodes, ways = purchase_tree(clf.chain_, clf.chain_.reader(X), [f"x{column}" for column in range(6)])
    stops = [level[:, 0] * level[:, 1] for level in nodes]
    assert sum(part.sum() for part in stops) == pytest.approx(1.0)
    paid = sum(float(part @ level[:, 2]) for part, level in zip(stops, nodes, strict=True))
    assert paid == pytest.approx(clf.cost(X).mean())
    for place, level in enumerate(nodes):
        came = [way for way in ways if way.stage == place - 1]
        into = [sum(way.share for way in came if way.end == number) for number in range(len(level))]
        np.testing.assert_allclose(into, level[:, 0], atol=1e-12)
    assert ways[0].bought == ("x0",)
    texts = [text.get_text() for text in clf.plot_tree(X).texts]
    assert "x0\n100%, 1" in texts
    assert {"x1", "x2", "x3", "x4", "x5"} <= set(texts)
