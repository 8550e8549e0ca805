"""The facts of a report against brute force, row by row."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from thrifty import Frontier, evidence_of, point_of
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.prices.billing import PriceList
from thrifty.prices.prices import check_price_list
from thrifty.reporting.measure import measure


def explained(facts, place):
    """Mean cost of a point from what the page says about purchases."""
    reach, first = facts.points.reach[place], facts.systems[facts.points.system[place]].first
    bought = sum(one.price * reach[at] for one, at in zip(facts.purchases, first, strict=True))
    return bought + facts.full.call_price * reach[-1]


def rows_of(place, shown, frontier):
    """Sent and right, row by row, of a point of a frontier of gates that stand right before f0."""
    one = frontier.evidence[shown.source[place]]
    sent = one.gate[:, 0] > shown.threshold[place]
    return sent, answered(one, sent)


def answered(one, sent):
    """Whether each row of a single gate is answered correctly."""
    return np.where(sent, one.quality[:, 1], one.quality[:, 0])


def test_prices_times_shares_add_up_to_the_mean_cost_at_every_point(facts):
    for place in range(len(facts.points)):
        assert explained(facts, place) == pytest.approx(facts.points.cost[place], rel=1e-12)


@st.composite
def worlds(draw):
    """A random price list with groups, and systems whose costs follow from it."""
    n_features, n_rows = draw(st.integers(1, 8)), draw(st.integers(2, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups = rng.integers(0, n_features, n_features).tolist()
    costs = [round(float(group) * 1.7 + 0.3, 3) for group in groups]
    prices = check_price_list(costs, groups, float(rng.integers(0, 4)), n_features)
    full = rng.random(n_rows) < 0.9
    evidence = []
    for number in range(draw(st.integers(1, 3))):
        features = np.flatnonzero(rng.random(n_features) < 0.4)
        evidence.append(
            Evidence.of_gate(
                rng.normal(size=n_rows).round(1),
                stop_cost=prices.cost_of(features),
                go_cost=prices.cost_of_everything,
                stop_quality=rng.random(n_rows) < 0.7,
                go_quality=full,
                features=features,
                settings={"number": number},
            )
        )
    return prices, evidence, rng.integers(0, 3, n_rows)


@pytest.mark.slow
@given(worlds())
def test_whatever_the_world_the_facts_agree_with_each_other(world):
    prices, evidence, y = world
    frontier = Frontier.from_evidence(evidence)
    facts = measure(frontier, y, prices=prices, n_boot=40)
    points, n_rows = facts.points, frontier.n_rows
    assert sum(one.n_columns for one in facts.purchases) == prices.n_features
    for place in range(len(points)):
        assert explained(facts, place) == pytest.approx(points.cost[place], abs=1e-9)
        assert points.share(place) == pytest.approx(frontier.share[place])
        assert sum(facts.groupings[0].sent[place]) == round(points.share(place) * n_rows)
        assert sum(facts.groupings[0].right[place]) == round(points.accuracy[place] * n_rows)
        assert points.low[place] <= points.high[place]
        assert list(points.reach[place]) == sorted(points.reach[place], reverse=True)
    assert list(points.budget) == sorted(points.budget)
    json.dumps(facts.as_dict(), allow_nan=False)


@pytest.mark.slow
def test_classes_and_slices_are_counted_as_the_rows_went(digits, facts):
    shown = digits.frontier
    places = [place for place in range(len(facts.points)) if facts.points.efficient[place]]
    assert len(places) == len(shown)
    for where, place in enumerate(places):
        sent, right = rows_of(where, shown, digits.frontier)
        for grouping, labels in zip(facts.groupings, [digits.y, digits.slices["bright"]], strict=True):
            for number, label in enumerate(grouping.labels):
                member = labels.astype(str) == label
                assert grouping.n_rows[number] == member.sum()
                assert grouping.sent[place][number] == (sent & member).sum()
                assert grouping.right[place][number] == (right & member).sum()
                full = digits.full.predict(digits.X) == digits.y
                assert grouping.full_right[number] == (full & member).sum()


def test_the_full_models_own_point_is_its_accuracy_and_the_price_of_everything(digits, facts):
    assert facts.full.accuracy == pytest.approx(digits.full.score(digits.X, digits.y))
    assert facts.full.cost == 64 + 5
    assert facts.full.call_price == 5


def test_leads_over_the_full_model_are_paired_and_vanish_where_every_row_is_sent(digits):
    one = digits.frontier.evidence[0]
    everything = Frontier.from_evidence([replace(one, points=np.array([[-np.inf]]))])
    facts = measure(everything, digits.y, prices=digits.prices, n_boot=100)
    assert facts.points.share(0) == 1
    assert facts.points.lead_low == facts.points.lead_high == (0.0,)
    assert facts.points.low[0] < facts.points.high[0]


def chain_of(digits):
    """Two cheap stages, each of which keeps some of the rows it sees."""
    dearer, cheaper = ({*fit.scores(digits.X)[0].tolist()} for fit in (digits.fits[2], digits.fits[0]))
    tail = digits.fits[2].at(threshold=np.median(sorted(dearer)))
    chain = digits.fits[0].with_full(tail.chain_).at(threshold=np.median(sorted(cheaper)))
    assert np.bincount(chain.route(digits.X), minlength=3).min() > 5
    return chain


@pytest.mark.slow
def test_a_chain_of_stages_is_told_apart_by_asking_it_where_its_rows_stop(digits):
    chain = chain_of(digits)
    known = digits.full.predict_proba(digits.X)
    frontier = Frontier.from_evidence([evidence_of(chain, digits.X, digits.y, full_probability=known)])
    facts = measure(frontier, digits.y, estimators=[chain], X=digits.X, n_boot=40)
    names = [f"feature {column}" for column in range(64)]
    for place, point in enumerate(frontier):
        system = chain.at(threshold=point.threshold).chain_
        route = system.route(digits.X)
        np.testing.assert_allclose(
            facts.points.reach[place], [(route >= stage).mean() for stage in range(system.n_stages + 1)]
        )
        share = dict(zip(names, system.bought_by_place[route].mean(axis=0), strict=True))
        first = facts.systems[0].first
        for purchase, at in zip(facts.purchases, first, strict=True):
            if purchase.name in share:
                assert facts.points.reach[place][at] == pytest.approx(share[purchase.name])
        assert facts.points.accuracy[place] == pytest.approx(
            (chain.at(threshold=point.threshold).predict(digits.X) == digits.y).mean()
        )
    with pytest.raises(InvalidInputError, match="a chain in front of another one.*Give `estimators` and `X`"):
        measure(frontier, digits.y, prices=digits.prices)


def test_a_system_as_one_point_is_shown_with_its_stages(digits):
    chain = chain_of(digits)
    frontier = Frontier.from_evidence([point_of(chain, digits.X, digits.y)])
    facts = measure(frontier, digits.y, estimators=[chain], X=digits.X, n_boot=40)
    assert len(facts.points.reach[0]) == 3
    assert facts.full is None
    assert facts.points.lead_low == ()
    with pytest.raises(InvalidInputError, match="rows do not all buy the same.*Give `estimators` and `X`"):
        measure(frontier, digits.y, prices=digits.prices, n_boot=40)
    with pytest.raises(InvalidInputError, match="does not send the rows X where"):
        measure(frontier, digits.y, estimators=[chain.at(threshold=np.inf)], X=digits.X)


def test_prices_of_another_system_are_refused_with_both_numbers(digits):
    dearer = replace(digits.prices, prices=digits.prices.prices * 2)
    with pytest.raises(InvalidInputError, match="prices explain a mean cost of .* but its rows paid"):
        measure(digits.frontier, digits.y, prices=dearer, n_boot=40)
    with pytest.raises(InvalidInputError, match="there are only 2 columns in the price list"):
        measure(digits.frontier, digits.y, prices=PriceList(np.ones(2), np.arange(2)), n_boot=40)


def test_without_prices_purchases_are_columns_without_a_price(digits):
    facts = measure(digits.frontier, digits.y, feature_names=digits.names, n_boot=40)
    assert {one.price for one in facts.purchases} == {None}
    assert facts.full.cost == 69
    bought = {one.name for one, at in zip(facts.purchases, facts.systems[0].first, strict=True) if at == 0}
    used = int(digits.frontier.source[0])
    assert bought == {digits.names[column] for column in digits.frontier.evidence[used].features}


def test_what_only_the_full_model_reads_is_shown_in_one_line(facts):
    last = facts.purchases[-1]
    assert last.name.endswith("others, read by the full model only")
    assert last.price == last.n_columns > 30
    assert sum(one.price for one in facts.purchases) == 64


def test_a_purchase_of_several_columns_is_one_line_with_one_price(digits):
    prices = check_price_list([2.0, 2.0, 3.0], ["a", "a", "b"], 0.0, 3)
    one = Evidence.of_gate(
        np.arange(4.0),
        stop_cost=2.0,
        go_cost=5.0,
        stop_quality=np.ones(4, bool),
        go_quality=np.ones(4, bool),
        features=[0],
    )
    facts = measure(
        Frontier.from_evidence([one]), [0, 1, 0, 1], prices=prices, feature_names=["x", "y", "z"], n_boot=40
    )
    assert [(one.name, one.price, one.n_columns) for one in facts.purchases] == [
        ("x, y", 2.0, 2),
        ("z", 3.0, 1),
    ]


def test_the_certified_point_is_shown_whether_or_not_it_is_efficient(digits, facts):
    point, place = digits.certificate.point, facts.certified.point
    assert facts.points.budget[place] == pytest.approx(point.chosen_cost)
    one = digits.frontier.evidence[point.source]
    right = answered(one, one.gate[:, 0] > point.threshold)
    assert facts.points.accuracy[place] == pytest.approx(right.mean())
    assert sum(facts.points.efficient) == len(digits.frontier)
    assert facts.certified.sentence == str(digits.certificate)


def test_a_certificate_of_other_systems_is_refused(digits):
    with pytest.raises(InvalidInputError, match="the certified point is of system .* is not the frontier's"):
        measure(
            Frontier.from_evidence(digits.frontier.evidence[::-1]),
            digits.y,
            certificate=replace(digits.certificate, point=replace(digits.certificate.point, settings={})),
        )


def collected(digits, **options):
    return measure(digits.frontier, digits.y, prices=digits.prices, n_boot=40, **options)


def inefficient_point(digits):
    """A point that no budget leads to: one of the first system's thresholds that is not on the frontier."""
    one = digits.chosen.evidence[0]
    taken = set(digits.chosen.threshold[digits.chosen.source == 0])
    g = one.gate[:, 0]
    threshold = next(float(value) for value in np.sort(g)[len(g) // 2 :] if value not in taken)
    return replace(
        digits.chosen[0],
        threshold=threshold,
        thresholds=(threshold,),
        source=0,
        settings=dict(one.settings),
        chosen_cost=float(np.where(g > threshold, *one.cost[::-1]).mean()),
    )


def test_the_page_opens_at_the_deployed_point_and_still_knows_the_certified_one(digits, facts):
    point = digits.frontier.best(budget=20.0)
    assert facts.start == facts.deployed
    assert facts.points.budget[facts.deployed] == point.chosen_cost <= 20.0
    assert facts.points.cost[facts.deployed] == pytest.approx(point.cost)
    assert facts.points.accuracy[facts.deployed] == pytest.approx(point.score)
    assert facts.certified.point != facts.deployed
    assert facts.marks(facts.deployed) == ["deployed"]
    assert facts.marks(facts.certified.point) == ["certified"]
    assert collected(digits, deployed=point).deployed == collected(digits, deployed=20.0).deployed


def test_without_a_deployed_point_the_page_opens_at_the_certified_one(digits):
    facts = collected(digits, certificate=digits.certificate)
    assert facts.deployed is None
    assert facts.start == facts.certified.point


def test_a_deployed_point_that_is_not_efficient_is_inserted_in_the_order_of_budgets(digits):
    point = inefficient_point(digits)
    facts = collected(digits, deployed=point)
    assert len(facts.points) == len(digits.frontier) + 1
    assert [place for place, ok in enumerate(facts.points.efficient) if not ok] == [facts.deployed]
    assert list(facts.points.budget) == sorted(facts.points.budget)
    one = digits.frontier.evidence[0]
    right = answered(one, one.gate[:, 0] > point.threshold)
    assert facts.points.accuracy[facts.deployed] == pytest.approx(right.mean())


def test_a_deployed_point_is_shown_even_where_only_few_points_are(digits):
    place = len(digits.frontier) // 2 + 1
    facts = collected(digits, deployed=digits.frontier[place], max_points=2)
    assert facts.points.budget == tuple(digits.chosen.cost[[0, place, -1]])
    assert facts.deployed == facts.start == 1
    assert all(facts.points.efficient)


def test_a_point_that_is_deployed_and_certified_is_shown_once(digits):
    facts = collected(digits, certificate=digits.certificate, deployed=digits.certificate.point)
    assert facts.deployed == facts.certified.point == facts.start
    assert facts.marks(facts.start) == ["deployed", "certified"]
    assert facts.points == collected(digits, certificate=digits.certificate).points


def test_a_deployed_point_of_other_systems_or_that_no_budget_affords_is_refused(digits):
    with pytest.raises(InvalidInputError, match="the deployed point is of system 0 with settings"):
        collected(digits, deployed=replace(digits.frontier[0], source=0, settings={}))
    with pytest.raises(InvalidInputError, match="budget must be at least"):
        collected(digits, deployed=0.5)


@pytest.mark.slow
def test_the_auc_of_every_point_is_that_of_the_scores_it_answers_with(digits, facts):
    efficient = [auc for auc, ok in zip(facts.points.auc, facts.points.efficient, strict=True) if ok]
    scores = [
        digits.fits[point.source].at(threshold=point.threshold).predict_proba(digits.X)[:, 1]
        for point in digits.frontier
    ]
    np.testing.assert_allclose(efficient, [roc_auc_score(digits.y, one) for one in scores])
    full = digits.full.predict_proba(digits.X)[:, 1]
    assert facts.full.auc == pytest.approx(roc_auc_score(digits.y, full))


def test_auc_is_not_known_without_scores_or_without_two_classes(digits):
    unscored = [replace(one, scores=None, full_scores=None) for one in digits.frontier.evidence]
    facts = measure(digits.chosen.on(unscored), digits.y, n_boot=40)
    assert facts.points.auc == ()
    assert facts.full.auc is None
    for y in (np.arange(len(digits.y)) % 3, np.ones(len(digits.y))):
        facts = measure(digits.frontier, y, n_boot=40)
        assert facts.points.auc == ()
        assert facts.full.auc is None


def test_the_majority_class_is_that_of_the_rows_of_the_report(digits, facts):
    share = np.mean(digits.y)
    assert facts.majority.label == str(int(share > 0.5))
    assert facts.majority.accuracy == pytest.approx(max(share, 1 - share))


def test_the_point_shown_first_is_the_cheapest_that_is_nearly_the_best_where_it_was_chosen(digits):
    facts = measure(digits.frontier, digits.y, prices=digits.prices, n_boot=40)
    score = digits.frontier.chosen.score
    assert score[facts.start] >= score[-1] - 0.005
    assert facts.start == 0 or score[facts.start - 1] < score[-1] - 0.005


def test_of_many_points_those_of_evenly_spaced_budgets_are_kept():
    rng = np.random.default_rng(0)
    g = rng.normal(size=3000)
    right = rng.random(3000) < np.exp(-np.exp(g)) + 0.5
    one = Evidence.of_gate(
        g, stop_cost=1.0, go_cost=10.0, stop_quality=right, go_quality=np.ones(3000, bool), features=[0]
    )
    frontier = Frontier.from_evidence([one])
    facts = measure(frontier, right, prices=PriceList(np.array([1.0, 9.0]), np.arange(2)), n_boot=40)
    assert len(frontier) > 400
    assert 100 < len(facts.points) <= 200
    assert facts.points.budget[0] == frontier.chosen.cost[0]
    assert facts.points.budget[-1] == frontier.chosen.cost[-1]
    assert facts.measured.n_points == len(frontier)
    assert np.diff(facts.points.budget[:-2]).max() < 0.1
    with pytest.raises(InvalidInputError, match="max_points must be at least 2"):
        measure(frontier, right, max_points=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0, 1]}, "y must hold one label per row"),
        ({"slices": {"site": ["a"]}}, "site must hold one label per row"),
        ({"estimators": []}, "estimators must be those of the frontier's 3 systems"),
        ({"feature_names": ["a"]}, "feature_names must hold one name per column, 64 in all; got 1"),
        ({"level": 1.5}, "level must lie between 0 and 1"),
    ],
)
def test_what_does_not_fit_the_frontier_is_refused(digits, change, message):
    arguments = {"y": digits.y, "prices": digits.prices, "n_boot": 40, **change}
    with pytest.raises(InvalidInputError, match=message):
        measure(digits.frontier, arguments.pop("y"), **arguments)


def test_frontiers_of_other_rows_or_another_score_are_refused(digits):
    with pytest.raises(InvalidInputError, match=r"rivals\['x'\] must be scored on the frontier's 223 rows"):
        measure(digits.frontier, digits.y, rivals={"x": digits.chosen})
    worse = Frontier.from_evidence(digits.frontier.evidence, against_full=True)
    with pytest.raises(
        InvalidInputError, match="frontier counts answers that are not worse than the full model's"
    ):
        measure(worse, digits.y)
    graded = Evidence.of_point(1.0, np.full(4, 0.5), np.zeros(4, bool))
    with pytest.raises(InvalidInputError, match="quality must be right or wrong"):
        measure(Frontier.from_evidence([graded]), [0, 1, 0, 1], n_boot=40)
