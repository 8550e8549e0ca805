"""Reports of systems of several stages and of models that read other columns of other rows, against the systems."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score

from reproduction.datasets import load_digits_at_least_five
from reproduction.rivals.budget_prune import BudgetPruneClassifier
from thrifty import DynaModLinClassifier, Frontier, evidence_of, point_of
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.prices.billing import PriceList
from thrifty.reporting.measure import measure

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def frontier(cascade, digits):
    return cascade.frontier_.on([evidence_of(cascade, digits.X, digits.y)])


@pytest.fixture(scope="module")
def pruned():
    split = load_digits_at_least_five()
    return BudgetPruneClassifier(n_trees=5, gamma=0.01, random_state=0).fit(
        split.X_train[:300], split.y_train[:300]
    )


def served(cascade, point):
    """The cascade at a point of its frontier; a budget of just what it costs mixes nothing in."""
    return cascade.at(budget=point.chosen_cost)


def shares_of(facts, place):
    """Share of the rows that make each purchase, as the page tells it."""
    return {one.name: facts.share_buying(place, item) for item, one in enumerate(facts.purchases)}


def assert_explained(facts, place, price_of_call=0.0):
    bought = sum(one.price * facts.share_buying(place, item) for item, one in enumerate(facts.purchases))
    assert bought + price_of_call * facts.points.share(place) == pytest.approx(facts.points.cost[place])


def assert_as_bought(facts, place, bought, names):
    """Whether the lines of single columns say what the rows bought, shape (n_rows, n_features)."""
    said, really = shares_of(facts, place), dict(zip(names, bought.mean(axis=0), strict=True))
    single = said.keys() & really.keys()
    assert single
    assert {name: said[name] for name in single} == pytest.approx({name: really[name] for name in single})


def test_rows_reach_the_stages_of_a_cascade_as_its_routes_say(cascade, digits, frontier, cascade_facts):
    assert cascade.n_stages_ > 2
    chain = cascade.chain_
    for place, point in enumerate(frontier):
        route = served(cascade, point).route(digits.X)
        np.testing.assert_allclose(
            cascade_facts.points.reach[place],
            [(route >= stage).mean() for stage in range(chain.n_stages + 1)],
        )
        assert_as_bought(cascade_facts, place, chain.bought_by_place[route], digits.names)
        assert_explained(cascade_facts, place, cascade.full_cost)
        assert cascade_facts.points.cost[place] == pytest.approx(served(cascade, point).cost(digits.X).mean())


def test_a_purchase_of_a_cascade_is_first_made_where_its_stage_first_holds_it(cascade, digits, cascade_facts):
    first = dict(
        zip((one.name for one in cascade_facts.purchases), cascade_facts.systems[0].first, strict=True)
    )
    held = [set(stage.columns.tolist()) for stage in cascade.chain_.stages]
    for column in cascade.features_:
        assert first[digits.names[column]] == next(k for k, columns in enumerate(held) if column in columns)
    # The page lists them in the order of the stages.
    places = [at for at in cascade_facts.systems[0].first if at < cascade.n_stages_]
    assert places == sorted(cascade_facts.systems[0].first)[: len(places)]


def test_accuracy_and_auc_of_a_cascade_are_those_of_its_answers(cascade, digits, frontier, cascade_facts):
    points = cascade_facts.points
    for place, point in enumerate(frontier):
        there = served(cascade, point)
        assert points.accuracy[place] == pytest.approx(there.score(digits.X, digits.y))
        auc = roc_auc_score(digits.y, there.decision_function(digits.X))
        assert points.auc[place] == pytest.approx(auc)


def test_a_certificate_of_a_cascade_is_shown_at_its_point(cascade, digits, frontier):
    split = load_digits_at_least_five()
    certificate = cascade.certified(split.X_val, split.y_val, max_loss=0.3).certificate_
    assert certificate.point is not None
    facts = measure(frontier, digits.y, prices=cascade.chain_.price_list, certificate=certificate, n_boot=40)
    assert facts.start == facts.certified.point
    assert facts.points.budget[facts.start] == pytest.approx(certificate.point.chosen_cost)


def test_a_mix_of_two_points_is_one_point_with_its_stages(cascade, digits):
    mixed = cascade.at(budget=7.0)
    assert mixed.chain_.policy.is_mixed
    frontier = Frontier.from_evidence([point_of(mixed, digits.X, digits.y)])
    facts = measure(frontier, digits.y, estimators=[mixed], X=digits.X, n_boot=40)
    route = mixed.route(digits.X)
    np.testing.assert_allclose(
        facts.points.reach[0], [(route >= stage).mean() for stage in range(cascade.n_stages_ + 1)]
    )
    assert_explained(facts, 0, cascade.full_cost)


def test_a_stage_in_front_of_a_cascade_is_told_apart_from_those_behind_it(cascade, digits):
    inner = cascade.at(budget=20.0)
    fit = digits.fits[0].with_full(inner.chain_)
    evidence = evidence_of(fit, digits.X, digits.y)
    frontier = Frontier.from_evidence([evidence])
    facts = measure(frontier, digits.y, estimators=[fit], X=digits.X, n_boot=40)
    for place in range(0, len(frontier), 5):
        there = fit.at(threshold=frontier[place].threshold)
        route = there.route(digits.X)
        n_stages = there.chain_.n_stages
        assert n_stages == 1 + cascade.n_stages_
        np.testing.assert_allclose(
            facts.points.reach[place], [(route >= stage).mean() for stage in range(n_stages + 1)]
        )
        names = [f"feature {column}" for column in range(64)]
        assert_as_bought(facts, place, there.chain_.bought_by_place[route], names)
        assert_explained(facts, place, cascade.full_cost)
        auc = roc_auc_score(digits.y, there.decision_function(digits.X))
        assert facts.points.auc[place] == pytest.approx(auc)
    for known in ({}, {"estimators": [fit]}, {"X": digits.X}):
        with pytest.raises(InvalidInputError, match="in front of another one.*Give `estimators` and `X`"):
            measure(frontier, digits.y, **known)


def test_estimators_of_other_systems_are_refused(digits):
    others = digits.fits[::-1]
    with pytest.raises(InvalidInputError, match=r"estimators\[\d\] does not send the rows X where"):
        measure(digits.frontier, digits.y, estimators=others, X=digits.X, n_boot=40)
    with pytest.raises(InvalidInputError, match="this needs a chain"):
        measure(digits.frontier, digits.y, estimators=[digits.full] * 3, X=digits.X)


def test_a_chain_itself_says_its_prices_and_names(digits):
    chains = [fit.chain_ for fit in digits.fits]
    facts = measure(digits.frontier, digits.y, estimators=chains, n_boot=40)
    assert facts.full.cost == 64 + 5
    assert {one.price for one in facts.purchases[:-1]} == {1.0}


def test_a_full_model_that_reads_some_columns_is_billed_for_those_alone(digits):
    split = load_digits_at_least_five()
    read = np.arange(20, 30)
    fit = DynaModLinClassifier(
        ExtraTreesClassifier(20, random_state=0), gamma=0.03, p_full=0.4, full_cost=5.0, full_features=read
    ).fit(split.X_train, split.y_train)
    frontier = Frontier.from_evidence([evidence_of(fit, digits.X, digits.y)])
    facts = measure(frontier, digits.y, estimators=[fit], feature_names=digits.names, n_boot=40)
    assert facts.full.cost == 10 + 5
    cheap = set(fit.chain_.columns.tolist())
    unread = {digits.names[column] for column in set(range(64)) - cheap - set(read.tolist())}
    assert len(unread) > 30
    nobody = facts.purchases[-1]
    assert nobody.name == f"{len(unread)} others, read by nobody"
    assert nobody.n_columns == nobody.price == len(unread)
    for place in range(len(frontier)):
        assert shares_of(facts, place)[nobody.name] == 0
        assert_explained(facts, place, 5.0)
    said = shares_of(facts, len(frontier) - 1)
    for column in set(read.tolist()) - cheap:
        assert said.get(digits.names[column], facts.points.share(-1)) == facts.points.share(-1)


@pytest.mark.parametrize("n_unread", [3, 40])
def test_purchases_that_nobody_reads_are_shown_last_and_never_as_bought(n_unread):
    prices = PriceList(np.ones(2 + n_unread), np.arange(2 + n_unread), 0.0, np.array([1]))
    one = Evidence.of_gate(
        np.arange(4.0),
        stop_cost=1.0,
        go_cost=2.0,
        stop_quality=np.array([True, True, False, False]),
        go_quality=np.ones(4, bool),
        features=[0],
    )
    facts = measure(Frontier.from_evidence([one]), [0, 1, 0, 1], prices=prices, n_boot=40)
    assert [one.name for one in facts.purchases[:2]] == ["feature 0", "feature 1"]
    assert len(facts.purchases) == (5 if n_unread == 3 else 3)
    assert sum(one.n_columns for one in facts.purchases) == 2 + n_unread
    for place in range(len(facts.points)):
        assert all(facts.share_buying(place, item) == 0 for item in range(2, len(facts.purchases)))
        assert_explained(facts, place)
