"""Answers by neighbours, and what a further column would tell."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import thrifty
from thrifty import BudgetedClassifier, BudgetedRegressor, StageOptions, hold_budget
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.evidence.collect import evidence_of
from thrifty.engine.trees import bin_columns
from thrifty.engine.walk import kernel_neighbours as neighbours
from thrifty.engine.walk.kernel_neighbours import (
    OF_MISSING,
    Neighbours,
    NeighbourStage,
    NeighbourTurn,
    TurnByNeighbours,
)
from thrifty.engine.walk.stage import ForkStage, nodes_of
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.neighbours import MAX_LEVELS, coarse_levels

pytestmark = [
    pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning"),
    pytest.mark.usefixtures("small_fits"),
]


@pytest.fixture(scope="module")
def among():
    chance = np.random.default_rng(0)
    codes = chance.integers(0, 5, (3, 200)).astype(np.uint8)  # the last level is "missing"
    label = (codes[0] + chance.integers(0, 2, 200)).astype(np.int32) % 3
    ends, positions = np.tile([0.5, 1.5, 2.5], 3), np.tile([0.0, 0.8, 1.6, 2.4], 3)
    weight = chance.uniform(0.5, 2.0, 200)
    return Neighbours(np.array([4, 7, 9]), ends, np.array([0, 3, 6, 9]), positions, codes, label, weight, 3)


def closeness(a, b):
    if (a == 4) != (b == 4):
        return OF_MISSING
    return 1.0 if a == 4 else np.exp(-0.5 * (0.8 * (float(a) - float(b))) ** 2)


@pytest.mark.parametrize("n_held", [1, 2, 5, 9])
def test_masses_are_sums_of_products_of_kernels_over_what_is_held(n_held):
    chance = np.random.default_rng(0)
    codes, rows = chance.integers(0, 5, (9, 200)).astype(np.uint8), chance.integers(0, 5, (4, n_held))
    label, weight = chance.integers(0, 3, 200).astype(np.int32), chance.uniform(0.5, 2.0, 200)
    ends, positions = np.tile([0.5, 1.5, 2.5], 9), np.tile([0.0, 0.8, 1.6, 2.4], 9)
    among = Neighbours(np.arange(9), ends, 3 * np.arange(10), positions, codes, label, weight, 3)
    held = np.arange(9)[::-1][:n_held]
    masses, _ = among.look(rows.astype(np.uint8), held, 1.5)
    for row, found in zip(rows, masses, strict=True):
        near = [
            np.prod([closeness(a, b) for a, b in zip(row, codes[held, i], strict=True)]) for i in range(200)
        ]
        np.testing.assert_allclose(
            found, np.bincount(label, weight * np.power(near, 1.5), minlength=3), rtol=1e-5
        )
    outputs = among.outputs(masses, 0.1)
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0)
    np.testing.assert_allclose(among.outputs(masses, 1e9), among.prior[None, :].repeat(4, axis=0), rtol=1e-6)


def test_a_turn_of_a_stage_without_columns_is_refused(among):
    none = np.empty(0, dtype=np.intp)
    turn = TurnByNeighbours(among, none, 1.0, NeighbourTurn(np.array([0]), np.array([[4]]), np.array([1.0])))
    assert "at least one" in turn.problem(none)


def test_a_column_gains_the_fall_of_entropy_that_neighbours_lead_to_expect(among):
    _, gain = among.look(np.array([[2]], dtype=np.uint8), np.array([7]), 1.0, np.array([9, 4]))
    near = np.array([w * closeness(2, c) for w, c in zip(among.weight, among.codes[1], strict=True)])
    now = np.bincount(among.label, near, minlength=3) / near.sum()
    for found, codes in zip(gain[0], among.codes[[2, 0]], strict=True):
        expected = -(now * np.log(now)).sum()
        for level in range(5):
            after = near * [closeness(level, other) for other in codes]
            share = np.bincount(among.label, after, minlength=3) / after.sum()
            expected += near[codes == level].sum() / near.sum() * (share * np.log(share)).sum()
        assert found == pytest.approx(expected, abs=1e-4)
    assert gain[0, 1] > 3 * gain[0, 0]  # the label follows from the first column known, 4


def test_neighbours_of_the_own_fold_do_not_count(among):
    fold = np.arange(200) % 2
    codes = among.codes[:2, :6].T.copy()
    masses, _ = among.look(codes, np.array([4, 7]), 1.0, fold=(fold, np.zeros(6, dtype=np.int64)))
    alone = Neighbours(
        among.columns,
        among.ends,
        among.offsets,
        among.positions,
        np.ascontiguousarray(among.codes[:, fold == 1]),
        among.label[fold == 1],
        among.weight[fold == 1],
        3,
    )
    np.testing.assert_allclose(masses, alone.look(codes, np.array([4, 7]), 1.0)[0])


def test_a_purchase_is_taken_where_the_entropy_falls_most_for_the_price():
    turn = NeighbourTurn(np.array([3, 5]), np.array([[9, 2], [4, -1]]), np.array([2.0, 1.0]))
    assert turn.candidates.tolist() == [2, 4, 9]
    gain = np.array([[0.9, 0.5, 0.1], [0.1, 0.4, 0.9], [0.3, 0.3, 0.3]])
    # What the best column of a purchase tells, halved by a price of two.
    assert turn.taken(gain).tolist() == [5, 3, 5]


def test_few_values_at_even_steps_lie_where_they_are_and_others_at_their_ranks():
    even, uneven = (
        np.r_[np.zeros(120), [1.0, 2.0, 3.0, 4.0] * 15, [np.nan] * 20],
        np.array([0.0, 1, 2, 99] * 50),
    )
    many = np.exp(np.random.default_rng(0).normal(size=200))
    table = bin_columns(np.column_stack([even, uneven, many]))
    codes, ends, offsets, positions = coarse_levels(table, np.array([0, 1, 2]), np.ones(200))
    assert ends[: offsets[1]].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert codes[[0, 120, 121, 199], 0].tolist() == [0, 1, 2, 5]  # missing comes last
    np.testing.assert_allclose(np.diff(positions[:5]), np.diff(positions[:5])[0])
    np.testing.assert_allclose(np.diff(positions[5:9]), np.diff(positions[5:9])[0])
    counts = np.bincount(codes[:, 2])
    assert len(counts) == MAX_LEVELS
    assert counts.min() >= 6
    np.testing.assert_allclose(np.diff(positions[9:]), 1 / counts.size / 0.2885, rtol=0.25)


def pointed(n_rows, seed):
    """Six classes; the first column says which of the others tells."""
    chance = np.random.default_rng(seed)
    X = chance.integers(0, 6, (n_rows, 6)).astype(float)
    where = 1 + (X[:, 0].astype(int) % 5)
    return X, X[np.arange(n_rows), where].astype(int)


def line_and_neighbours(kind, full, size, X, y):
    """A fit of each structure."""
    return {
        structure: kind(
            full, stages=StageOptions(sizes=[size], structure=structure), cv=2, random_state=0, n_jobs=1
        ).fit(X, y)
        for structure in ("line", "neighbours")
    }


@pytest.fixture(scope="module")
def fitted(while_fits_are_small):
    full = DecisionTreeClassifier(random_state=0)
    with while_fits_are_small():
        return line_and_neighbours(BudgetedClassifier, full, (10, 4), *pointed(1_500, 0))


def test_rows_buy_what_their_neighbours_point_to(fitted):
    X, y = pointed(800, 1)
    assert isinstance(fitted["neighbours"].chain_.stages[0], NeighbourStage)
    scores = {name: hold_budget(clf, X, 2.0).score(X, y) for name, clf in fitted.items()}
    assert scores["neighbours"] > 0.9 > 0.7 > scores["line"]
    bought = [one.bought for one in fitted["neighbours"].at(budget=2.0).explain(X[:30])]
    assert {b[0] for b in bought} == {"x0"}  # which by itself says nothing
    assert {b[1] for b in bought if len(b) > 1} == {"x1", "x2", "x3", "x4", "x5"}


def test_a_file_holds_the_neighbours_once_and_answers_the_same(fitted, tmp_path):
    X, _ = pointed(800, 1)
    clf = fitted["neighbours"].at(budget=2.0)
    thrifty.save(clf, tmp_path / "n.thrifty")
    loaded = thrifty.load(tmp_path / "n.thrifty")
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(loaded.cost(X), clf.cost(X))
    assert len({id(node.among) for stage in loaded.chain_.stages[:-1] for node in nodes_of(stage)}) == 1


def test_neither_threads_nor_the_order_of_rows_matter(fitted, monkeypatch):
    X, y = pointed(1_500, 0)
    monkeypatch.setattr(neighbours, "PART_OF_WORK", 10_000)  # every call is worth a second thread
    order = np.random.default_rng(3).permutation(len(y))
    other = BudgetedClassifier(
        fitted["neighbours"].full,
        stages=StageOptions(sizes=[(10, 4)], structure="neighbours"),
        cv=2,
        random_state=0,
        n_jobs=2,
    ).fit(X[order], y[order])
    new = pointed(200, 1)[0]
    one, two = (clf.chain_.visit_all(clf.chain_.reader(new)) for clf in (fitted["neighbours"], other))
    assert np.array_equal(one.node, two.node)
    # Sums over neighbours in another order differ in their last digits, and calibrations, found step by step, by more.
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-6)
    monkeypatch.setattr(neighbours, "PART_OF_WORK", 10**12)  # no call is worth a second thread
    alone = other.chain_.visit_all(other.chain_.reader(new))
    assert np.array_equal(alone.scores, two.scores)
    assert np.array_equal(alone.node, two.node)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [("label", 99, "number 6 classes"), ("codes", 60, "levels of neighbours must be those of their columns")],
)
def test_a_damaged_table_of_neighbours_is_refused(fitted, name, value, rule):
    array = getattr(fitted["neighbours"].chain_.stages[0].among, name)
    first = array.flat[0]
    array.flat[0] = value
    try:
        with pytest.raises(InvalidInputError, match=rule):
            from_bytes(to_bytes(fitted["neighbours"]))
    finally:
        array.flat[0] = first


def test_a_node_that_holds_nothing_is_refused(fitted):
    chain = fitted["neighbours"].chain_
    nothing = replace(chain.stages[0], columns=np.empty(0, dtype=np.intp))
    with pytest.raises(InvalidInputError, match="known of the neighbours"):
        from_bytes(to_bytes(replace(chain, stages=(nothing, *chain.stages[1:]))))


def test_many_nodes_over_many_rows_are_one_table_in_a_file(fitted):
    chain = fitted["neighbours"].chain_
    one = chain.stages[0].among
    tiled = np.tile(one.codes, 8), np.tile(one.label, 8), np.tile(one.weight, 8)
    large = replace(one, codes=tiled[0], label=tiled[1], weight=tiled[2])
    stages = tuple(
        replace(stage, nodes=tuple(replace(node, among=large) for node in stage.nodes))
        if isinstance(stage, ForkStage)
        else replace(stage, among=large)
        for stage in chain.stages[:-1]
    )
    loaded = from_bytes(to_bytes(replace(chain, stages=(*stages, chain.stages[-1]))))
    assert loaded.stages[0].among.codes.shape == tiled[0].shape


def test_rows_of_words_have_no_neighbours_and_are_refused_before_the_work():
    X, labels = pointed(400, 0)
    table = pd.DataFrame(X).rename(columns=str).assign(word=np.where(X[:, 0] > 2, "a", "b"))
    clf = BudgetedClassifier(LogisticRegression(), stages=StageOptions(structure="neighbours"))
    with pytest.raises(InvalidInputError, match="text or categories.*'line'"):
        clf.fit(table, labels)


@pytest.mark.parametrize("structure", ["tree", "graph"])
def test_an_unknown_structure_is_refused_and_one_that_is_gone_names_its_heir(structure):
    way_out = "'neighbours' replaces 'graph'" if structure == "graph" else "got 'tree'"
    with pytest.raises(InvalidInputError, match=f"structure must be 'line'.*{way_out}"):
        BudgetedClassifier(stages=StageOptions(structure=structure)).fit(*pointed(50, 0))


def parted(n_rows, seed):
    """A number; the first column says which of two others it is."""
    X = np.random.default_rng(seed).normal(size=(n_rows, 4)).round(3)
    return X, np.where(X[:, 0] > 0, X[:, 1] + 0.8, X[:, 2] - 0.8)


@pytest.fixture(scope="module")
def regressors(while_fits_are_small):
    full = DecisionTreeRegressor(max_depth=6, random_state=0)
    with while_fits_are_small():
        return line_and_neighbours(BudgetedRegressor, full, (15, 3), *parted(1_200, 0))


def test_rows_buy_the_column_that_makes_up_their_number(regressors):
    X, y = parted(800, 1)
    errors = {
        name: np.square(hold_budget(one, X, 2.0).predict(X) - y).mean() for name, one in regressors.items()
    }
    assert errors["neighbours"] < 0.6 * errors["line"]
    chain = regressors["neighbours"].chain_
    assert [type(node).__name__ for node in nodes_of(chain.stages[1])] == ["CascadeStage"] * 2
    to_the_end = regressors["neighbours"].at(budget=float(chain.policy.cost[-1]))
    one, two = to_the_end.explain(np.array([[0.3, 0.0, 0.0, 0.0], [-0.3, 0.0, 0.0, 0.0]]))
    assert (one.stages[1].bought, two.stages[1].bought) == (("x1",), ("x2",))


def test_what_is_seen_of_numbers_is_what_they_cost_and_say(regressors):
    X, y = parted(300, 1)
    chain = regressors["neighbours"].chain_
    evidence = evidence_of(regressors["neighbours"], X, y)
    for place in (0, len(chain.policy) // 2, len(chain.policy) - 1):
        route, paid, _ = evidence.at_point(chain.policy.thresholds[place])
        there = chain.at(chain.policy.at(place))
        assert np.array_equal(route, there.route(X))
        assert np.allclose(paid, there.cost(X))
        alone = np.concatenate([there.predict(X[[row]]) for row in range(10)])
        assert np.array_equal(alone, there.predict(X[:10]))


def test_a_turn_that_leads_nowhere_is_refused(regressors):
    chain = regressors["neighbours"].chain_
    turn = chain.stages[0].turn
    wrong = replace(turn, choice=replace(turn.choice, nodes=np.array([98, 99])))
    with pytest.raises(InvalidInputError, match="must lead to nodes of the next stage"):
        replace(chain, stages=(replace(chain.stages[0], turn=wrong), *chain.stages[1:]))
