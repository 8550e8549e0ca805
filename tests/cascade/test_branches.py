"""Branches: the values of the first purchases decide in which order a row makes the others."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

import thrifty
from thrifty import BudgetedClassifier, StageOptions, hold_budget
from thrifty.bundle.objects import from_bytes, to_bytes
from thrifty.engine.walk.stage import CascadeStage, nodes_of
from thrifty.errors import InvalidInputError

# A tree that reads everything is behind branches that know where to look.
pytestmark = [
    pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning"),
    pytest.mark.usefixtures("small_fits"),
]


def pointed(n_rows, seed):
    """Six classes; the first column says which of the others tells."""
    chance = np.random.default_rng(seed)
    X = chance.integers(0, 6, (n_rows, 6)).astype(float)
    where = 1 + (X[:, 0].astype(int) % 5)
    return X, X[np.arange(n_rows), where].astype(int)


def auto(**settings):
    full = DecisionTreeClassifier(random_state=0)
    stages = StageOptions(sizes=[(10, 4)], **{"structure": "auto", **settings})
    return BudgetedClassifier(full, stages=stages, cv=2, random_state=0, n_jobs=1)


@pytest.fixture(scope="module")
def fitted(while_fits_are_small):
    with while_fits_are_small():
        return auto().fit(*pointed(900, 0))


def test_rows_part_by_a_column_that_only_says_where_to_look(fitted):
    X, y = pointed(800, 1)
    line = auto(structure="line").fit(*pointed(900, 0))
    scores = [hold_budget(clf, X, 2.0).score(X, y) for clf in (line, fitted)]
    assert scores[0] < 0.6 < 0.95 < scores[1]
    bought = [one.bought for one in fitted.at(budget=2.0).explain(X[:30])]
    assert {b[0] for b in bought} == {"x0"}  # which by itself says nothing
    assert {b[1] for b in bought if len(b) > 1} == {"x1", "x2", "x3", "x4", "x5"}
    # Trees predict everywhere: no training row is kept.
    assert {type(node) for stage in fitted.chain_.stages for node in nodes_of(stage)} == {CascadeStage}


def test_a_file_answers_the_same_and_refuses_a_turn_that_is_damaged(fitted):
    X, _ = pointed(200, 1)
    X[::7, 0] = np.nan
    clf = fitted.at(budget=2.0)
    loaded = from_bytes(to_bytes(clf))
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(loaded.cost(X), clf.cost(X))
    chain = fitted.chain_
    first = chain.stages[0]
    for name, value, rule in (
        ("ends", first.turn.ends[::-1], "ascending"),
        ("place", 7, "place of a turn"),
        ("to", first.turn.to[:-1], "one for each bin"),
        ("to", first.turn.to + 90, "must lead to nodes of the next stage"),
    ):
        wrong = replace(first, turn=replace(first.turn, **{name: value}))
        with pytest.raises(InvalidInputError, match=rule):
            from_bytes(to_bytes(replace(chain, stages=(wrong, *chain.stages[1:]))))


def test_neither_threads_nor_the_order_of_rows_matter(fitted):
    X, y = pointed(900, 0)
    order = np.random.default_rng(3).permutation(len(y))
    other = clone(fitted).set_params(n_jobs=2).fit(X[order], y[order])
    new = pointed(200, 1)[0]
    one, two = (clf.chain_.visit_all(clf.chain_.reader(new)) for clf in (fitted, other))
    assert np.array_equal(one.node, two.node)
    assert np.allclose(one.scores, two.scores, atol=1e-6)


def test_a_table_without_rows_visits_every_stage(fitted):
    chain = fitted.chain_
    reader = chain.reader(pointed(10, 1)[0][:0])
    assert chain.visit_all(reader).gate.shape == (0, chain.n_stages)
    assert [len(chain.spent(reader, walk)) for walk in chain.walks_by_stage(reader)] == [0] * chain.n_stages


def test_rows_part_by_the_levels_of_a_category():
    X, y = pointed(1_000, 0)
    frame = pd.DataFrame(X, columns=list("abcdef")).astype({"a": int})
    frame["a"] = frame["a"].map(dict(enumerate(["north", "south", "east", "west", "up", "down"])))
    clf = auto().set_params(full=make_pipeline(OrdinalEncoder(), DecisionTreeClassifier(random_state=0)))
    clf.fit(frame, y > 2)
    assert {one.bought[0] for one in clf.at(budget=2.0).explain(frame[:20])} == {"a"}
    assert hold_budget(clf, frame, 2.0).score(frame, y > 2) > 0.95


@pytest.mark.parametrize("max_stages", [1, 2])
def test_few_stages_leave_room_for_rows_to_part_or_are_a_line(max_stages):
    X, y = pointed(500, 0)
    clf = auto(max_stages=max_stages).fit(X, y)
    assert clf.n_stages_ <= max_stages
    assert np.array_equal(clf.predict(X[:20]), [clf.predict(X[[row]])[0] for row in range(20)])


def test_auto_is_the_line_where_the_first_purchase_says_it_all(fitted):
    X, _ = pointed(900, 0)
    labels = X[:, 0] > 2
    one, other = clone(fitted).fit(X, labels), auto(structure="line").fit(X, labels)
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))


def test_a_device_has_one_order_and_is_offered_one(fitted, tmp_path):
    with pytest.raises(InvalidInputError, match=r"structure='line'"):
        thrifty.export(fitted, tmp_path)
