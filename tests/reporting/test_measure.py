"""The facts of a report against brute force, row by row."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from thrifty import Frontier, evidence_of
from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import MAX_LABELS, measure, partition_of
from thrifty.reporting.words import results_table


def explained(facts, place):
    """Mean cost of a point from what the page says about purchases."""
    bought = zip(facts.purchases, facts.bought[place], strict=True)
    return sum(one.price * share for one, share in bought)


def systems_of(facts, cascade, deployed):
    """The cascade at each point; a budget of just what a point costs mixes nothing in."""
    return [
        deployed if place == facts.marked["deployed"] else cascade.at(budget=budget)
        for place, budget in enumerate(facts.budget)
    ]


@pytest.mark.slow
def test_every_point_is_answered_routed_and_paid_as_the_system_at_its_budget(
    cascade, deployed, digits, facts
):
    full = digits.full.predict(digits.X) == digits.y
    bought_by_place = cascade.chain_.bought_by_place
    auc = next(one for one in facts.measures if one.name == "AUC")
    for place, system in enumerate(systems_of(facts, cascade, deployed)):
        route, right = system.route(digits.X), system.predict(digits.X) == digits.y
        assert facts.cost.value[place] == pytest.approx(system.cost(digits.X).mean())
        assert facts.score.value[place] == pytest.approx(right.mean())
        assert facts.share[place] == pytest.approx((route == 5).mean())
        share = dict(zip(digits.names, bought_by_place[route].mean(axis=0), strict=True))
        share["asking the full model"] = facts.share[place]
        for one, paid in zip(facts.purchases, facts.bought[place], strict=True):
            assert paid == pytest.approx(share[one.name])
        assert explained(facts, place) == pytest.approx(facts.cost.value[place], rel=1e-12)
        assert auc.value[place] == pytest.approx(
            roc_auc_score(digits.y, system.predict_proba(digits.X)[:, 1])
        )
        for grouping, labels in zip(facts.groupings, [digits.y, digits.groups["bright"]], strict=True):
            for number, label in enumerate(grouping.labels):
                member = labels.astype(str) == label
                assert grouping.n_rows[number] == member.sum()
                assert grouping.sent[place][number] == (member & (route == 5)).sum()
                assert grouping.sums[place][number] == (right & member).sum()
                assert grouping.full_sums[number] == (full & member).sum()
        json.dumps(facts.results(place), allow_nan=False)


def test_a_purchase_is_first_made_where_its_stage_first_holds_it(cascade, digits, facts):
    first = {one.name: one.first for one in facts.purchases}
    held = [set(stage.columns.tolist()) for stage in cascade.chain_.stages]
    for column in cascade.features_:
        assert first[digits.names[column]] == next(k for k, columns in enumerate(held) if column in columns)
    places = [one.first for one in facts.purchases]
    assert places == sorted(places)


def test_the_full_model_is_measured_on_every_row_and_costs_everything(digits, facts):
    assert facts.score.full == pytest.approx(digits.full.score(digits.X, digits.y))
    assert (facts.cost.full, facts.purchases[-1].price) == (64 + 5, 5)
    auc = next(one for one in facts.measures if one.name == "AUC")
    assert auc.full == pytest.approx(roc_auc_score(digits.y, digits.full.predict_proba(digits.X)[:, 1]))
    share = np.mean(digits.y)
    assert (facts.constant, facts.score.constant) == (str(int(share > 0.5)), max(share, 1 - share))


@pytest.fixture(scope="module")
def gate_facts(digits):
    """Every threshold of a gate, chosen on the rows of the report."""
    return measure(digits.gate.chain_, digits.X, digits.y, n_boot=100)


def test_leads_over_the_full_model_are_paired_and_vanish_where_every_row_is_sent(digits):
    everything = replace(evidence_of(digits.gate.chain_, digits.X, digits.y), points=np.array([[-np.inf]]))
    gate = digits.gate.at(threshold=-np.inf).chain_
    facts = measure(
        gate, digits.X, digits.y, rivals={"same": Frontier.from_evidence([everything])}, n_boot=100
    )
    place = int(np.argmax([facts.share[place] for place in range(len(facts))]))
    assert facts.rivals[0].score == (facts.score.full,)
    if facts.share[place] == 1:
        assert facts.lead.low[place] == facts.lead.high[place] == 0.0
    assert facts.score.low[place] < facts.score.high[place]


def test_without_a_deployed_point_the_page_opens_at_the_dearest(gate_facts):
    assert (gate_facts.marked, gate_facts.held_out) == ({}, False)
    assert gate_facts.start == len(gate_facts) - 1


def test_of_many_points_those_of_evenly_spaced_budgets_are_kept(digits, gate_facts, monkeypatch):
    budget = gate_facts.budget
    assert len(budget) > 15
    monkeypatch.setattr("thrifty.reporting.measure.MAX_POINTS", 10)
    facts = measure(digits.gate.chain_, digits.X, digits.y, n_boot=40)
    kept = facts.budget
    assert 5 <= len(kept) <= 10
    assert (kept[0], kept[-1]) == (budget[0], budget[-1])
    assert set(kept) <= set(budget)
    assert facts.n_points == len(budget)


def test_the_page_opens_at_the_point_in_force_also_where_only_few_points_are_shown(
    deployed, digits, facts, monkeypatch
):
    monkeypatch.setattr("thrifty.reporting.measure.MAX_POINTS", 2)
    few = measure(deployed, digits.X, digits.y, n_boot=40)
    for one in (facts, few):
        assert one.start == one.marked["deployed"]
        assert one.budget[one.marked["deployed"]] == pytest.approx(deployed.expected_cost_)
        assert one.marks(one.marked["deployed"]) == ["deployed"]
    assert few.efficient == (True, False, True)
    assert list(facts.budget) == sorted(facts.budget)


@pytest.mark.slow
def test_a_certificate_is_shown_at_its_point_which_is_the_one_in_force(cascade, digits):
    sure = cascade.certified(digits.split.X_val, digits.split.y_val, max_loss=0.3)
    facts = measure(sure, digits.X, digits.y, n_boot=40)
    assert facts.certificate == str(sure.certificate_)
    assert facts.marks(facts.start) == ["deployed", "certified"]
    assert facts.score.value[facts.start] == pytest.approx(sure.score(digits.X, digits.y))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": {"site": ["a"]}}, "site must hold one label per row"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused(digits, change, message):
    with pytest.raises(InvalidInputError, match=message):
        measure(digits.gate, digits.X, digits.y, **{"n_boot": 40, **change})


def test_a_rival_on_other_rows_is_refused(digits):
    other = Frontier.from_evidence([evidence_of(digits.gate, digits.split.X_val, digits.split.y_val)])
    with pytest.raises(InvalidInputError, match=r"rivals\['x'\] must be scored on the 223 rows"):
        measure(digits.gate, digits.X, digits.y, rivals={"x": other}, n_boot=40)


def test_the_rarest_of_many_labels_are_shown_together():
    labels = np.repeat([f"town {k:02}" for k in range(40)], np.arange(1, 41))
    partition = partition_of("town", labels, len(labels))
    assert len(partition.labels) == MAX_LABELS
    assert partition.labels[-1] == "21 others"
    assert partition.sums() == (*range(22, 41), sum(range(1, 22)))


def test_labels_of_mixed_kinds_and_missing_ones_are_told_apart():
    partition = partition_of("site", np.array([None, "a", float("nan"), 3, "a"], dtype=object), 5)
    assert dict(zip(partition.labels, partition.sums(), strict=True)) == {"None": 1, "a": 2, "nan": 1, "3": 1}


def test_rows_without_an_error_leave_room_for_some(deployed, digits):
    right = (deployed.predict(digits.X) == digits.y) & (digits.full.predict(digits.X) == digits.y)
    one = measure(deployed, digits.X[right], digits.y[right], n_boot=60)
    here = one.start
    assert one.score.value[here] == 1.0
    # With this accuracy, so many rows are all right as often as an interval of 95 % is too high.
    assert one.score.low[here] ** right.sum() == pytest.approx(0.025)
    assert (one.lead.value[here], one.score.high[here]) == (0.0, 1.0)
    assert (one.lead.low[here], one.lead.high[here]) == pytest.approx(
        (one.score.low[here] - 1, 1 - one.score.low[here])
    )
    told = {line[0]: line[1] for line in results_table(one, here)}
    assert told["against the full model"].startswith("+0.0 points (")
    assert one.results(here)["against_full"]["value"] == 0.0
