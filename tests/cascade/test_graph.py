"""Cascades in which rows buy in different orders."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import thrifty
from thrifty import BudgetedClassifier, StageOptions, hold_budget
from thrifty.chain.stage import ForkStage, Turn
from thrifty.errors import InvalidInputError
from thrifty.evidence.observe import evidence_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning"),
]


def _switched(n_rows, seed):
    """The first column says something, and which of two others says the rest; the others are noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    y = np.where(X[:, 0] > 0, X[:, 1] + 0.8, X[:, 2] - 0.8) > 0
    return X, np.where(y, "yes", "no")


def _clf(structure, **changed):
    stages = StageOptions(sizes=[(15, 3)], structure=structure)
    settings = {"stages": stages, "cv": 2, "random_state": 0, "n_jobs": 1} | changed
    return BudgetedClassifier(DecisionTreeClassifier(max_depth=6, random_state=0), **settings)


@pytest.fixture(scope="module")
def fitted():
    X, y = _switched(1_200, 0)
    return {structure: _clf(structure).fit(X, y) for structure in ("line", "graph")}


@pytest.fixture(scope="module")
def rows():
    return _switched(800, 1)


def test_rows_buy_the_column_that_the_first_one_points_to(fitted, rows):
    X, y = rows
    scores = {name: hold_budget(clf, X, 2.0).score(X, y) for name, clf in fitted.items()}
    assert scores["graph"] > 0.97 > 0.95 > scores["line"]
    chain = fitted["graph"].chain_
    to_the_end = fitted["graph"].at(budget=float(chain.policy.cost[-1]))
    one, two = to_the_end.explain(np.array([[0.3, 0.01, 0.01, 0], [-0.3, 0.01, 0.01, 0]]))
    assert one.stages[1].bought == ("x1",)
    assert two.stages[1].bought == ("x2",)


@pytest.mark.parametrize("budget", [1.0, 1.7, 2.0, 4.0])
def test_a_table_a_source_and_a_session_send_a_row_the_same_way(fitted, rows, budget):
    X, _ = rows
    X = X[:150]
    clf = fitted["graph"].at(budget=budget)
    receipt = clf.buy(dict(enumerate(X.T)))
    assert np.array_equal(receipt.answer, clf.predict(X))
    assert np.array_equal(receipt.route, clf.route(X))
    assert np.allclose(receipt.cost, clf.cost(X), rtol=1e-12)
    for row in range(10):
        session = clf.start(key=row)
        while session.next_purchase is not None:
            session.give({column: X[row, column] for column in session.next_purchase.columns})
        assert session.answer == receipt.answer[row]
        assert session.cost == pytest.approx(receipt.cost[row])


def test_what_is_seen_of_a_graph_is_what_it_does(fitted, rows):
    X, y = rows
    clf = fitted["graph"]
    evidence = evidence_of(clf, X, y)
    for place in (0, len(clf.chain_.policy) // 2, len(clf.chain_.policy) - 1):
        chain = clf.chain_.at(clf.chain_.policy.at(place))
        route, paid, quality = evidence.at_point(chain.policy.thresholds[place])
        assert np.array_equal(route, chain.route(X))
        assert np.allclose(paid, chain.cost(X))
        assert np.array_equal(quality, chain.predict(X) == y)


def test_one_row_is_answered_as_in_a_batch(fitted, rows):
    X, _ = rows
    clf = fitted["graph"].at(budget=3.0)
    together = clf.predict_proba(X[:20])
    # A single row is the first of its own batch, so that chance may send it elsewhere between two points.
    pure = clf.chain_.at(clf.chain_.policy.at(2))
    alone = np.vstack([pure.predict_proba(X[[row]]) for row in range(20)])
    assert np.array_equal(alone, pure.predict_proba(X[:20]))
    assert together.shape == (20, 2)


def test_a_file_holds_the_graph(fitted, rows, tmp_path):
    X, _ = rows
    clf = fitted["graph"].at(budget=2.0)
    thrifty.save(clf, tmp_path / "graph.thrifty")
    loaded = thrifty.load(tmp_path / "graph.thrifty")
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(loaded.cost(X), clf.cost(X))


def test_auto_takes_the_graph_where_it_leads_and_the_line_where_it_does_not():
    X, y = _switched(1_200, 0)
    assert _clf("auto").fit(X, y).chain_.has_forks
    labels = np.where(X[:, 0] > 0, "yes", "no")  # the first purchase says it all
    alike, line = (_clf(structure).fit(X, labels) for structure in ("auto", "line"))
    assert not alike.chain_.has_forks
    assert np.array_equal(alike.predict_proba(X), line.predict_proba(X))


def test_the_structure_does_not_depend_on_threads_or_on_the_order_of_rows(fitted, rows):
    X, y = _switched(1_200, 0)
    order = np.random.default_rng(3).permutation(len(y))
    clf = _clf("graph", n_jobs=2).fit(X[order], y[order])
    # What the stages say, because the full model of this test depends on the order of its rows.
    one, other = (est.chain_.visit_all(est.chain_.reader(rows[0])) for est in (clf, fitted["graph"]))
    assert np.array_equal(one.node, other.node)
    assert np.allclose(one.scores, other.scores, atol=1e-9)


def test_a_turn_that_leads_nowhere_is_refused(fitted):
    chain = fitted["graph"].chain_
    place = next(number for number, stage in enumerate(chain.stages) if isinstance(stage, ForkStage))
    stages = list(chain.stages)
    stages[place - 1] = replace(stages[place - 1], turn=Turn(np.array([99])))
    with pytest.raises(InvalidInputError, match="must lead to nodes of the next stage"):
        replace(chain, stages=tuple(stages))


def test_an_unknown_structure_is_refused():
    with pytest.raises(InvalidInputError, match="structure must be 'line'"):
        BudgetedClassifier(stages=StageOptions(structure="tree")).fit(*_switched(50, 0))
