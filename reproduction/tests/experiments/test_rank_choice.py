from dataclasses import replace

import numpy as np
import pytest

from reproduction.experiments.rank_choice import (
    Documents,
    RankedTask,
    choose_ranked,
    full_alone,
    full_log_odds,
    on_one_scale,
)
from reproduction.experiments.selection import Candidate, PointCandidate
from thrifty.engine.tasks.ranking import Queries, average_precision_at

BUDGETS = [0.5, 2.0, 5.0, 10.0]


def documents(seed, n_queries=40):
    rng = np.random.default_rng(seed)
    grades = rng.integers(0, 3, 10 * n_queries)
    return (
        Documents(
            grades,
            Queries(np.repeat(np.arange(n_queries), 10)),
            grades - 1.0 + 0.2 * rng.normal(size=len(grades)),
        ),
        grades + 1.5 * rng.normal(size=len(grades)),
        rng.normal(size=len(grades)),
    )


@pytest.fixture
def task():
    return RankedTask(documents(0)[0], documents(1)[0], full_cost=10.0, k=5, n_thresholds=12)


@pytest.fixture
def cheap():
    (_, f1_val, g_val), (_, f1_test, g_test) = documents(0), documents(1)
    return Candidate({"gamma": 1.0}, 1.0, g_val, f1_val, g_test, f1_test)


def test_a_budget_buys_the_best_affordable_point_and_its_test_numbers_are_those_of_that_point(task, cheap):
    chosen = choose_ranked([cheap], task, BUDGETS)
    assert [point.budget for point in chosen] == [
        2.0,
        5.0,
        10.0,
    ]  # nobody is served for half of what f1 costs
    _, cheap_test = on_one_scale(cheap.f1_val, cheap.f1_test, task.val.grades >= 1)
    for point in chosen:
        assert point.val_cost <= point.budget
        sent = cheap.g_test > point.threshold
        score = np.where(sent, task.test.full, cheap_test)
        found = average_precision_at(task.test.grades, score, task.test.queries)
        assert point.accuracy == pytest.approx(np.nanmean(found))
        np.testing.assert_array_equal(point.right, found[~np.isnan(found)])
        assert point.cost == pytest.approx(np.where(sent, 10.0, 1.0).mean())
        assert point.query_cost == pytest.approx(10 * point.cost)  # ten documents each
        assert point.band[0] <= point.accuracy <= point.band[1]
        assert point.cost_band[0] <= point.cost <= point.cost_band[1]
    assert (
        chosen[0].val_accuracy < chosen[-1].val_accuracy
    )  # f0 is far better, and the last budget pays for it


def test_a_shut_gate_stays_shut(task, cheap):
    chosen = choose_ranked([replace(cheap, threshold=np.inf)], task, BUDGETS)
    assert {point.share for point in chosen} == {0.0}
    assert {point.cost for point in chosen} == {1.0}
    assert chosen[0].as_numbers()["threshold"] == "inf"


def test_a_single_point_is_taken_as_it_is(task, cheap):
    n_val, n_test = len(cheap.f1_val), len(cheap.f1_test)
    point = PointCandidate(
        {"point": 3}, cheap.f1_val, cheap.f1_test, np.full(n_val, 3.0), np.full(n_test, 4.0),
        np.zeros(n_val, dtype=bool), np.zeros(n_test, dtype=bool),
    )  # fmt: skip
    chosen = choose_ranked([point], task, BUDGETS)
    assert [one.budget for one in chosen] == [5.0, 10.0]
    assert chosen[0].val_cost == 3.0
    assert chosen[0].cost == 4.0
    numbers = chosen[0].as_numbers()
    assert numbers["average_precision"] == chosen[0].accuracy
    assert "right" not in numbers


def test_the_full_model_alone_sends_every_document_and_ranks_by_its_own_score(task):
    alone = full_alone(task)
    assert alone.share == 1.0
    assert alone.cost == alone.val_cost == alone.budget == 10.0
    assert alone.cost_band == (10.0, 10.0)
    assert alone.query_cost == 100.0  # ten documents each
    found = average_precision_at(task.test.grades, task.test.full, task.test.queries)
    assert alone.accuracy == pytest.approx(np.nanmean(found))


def test_calibration_makes_an_overconfident_score_comparable():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    relevant = rng.random(4000) < 1 / (1 + np.exp(-truth))
    val, test = on_one_scale(7 * truth + 3, np.array([3.0, 10.0]), relevant)
    np.testing.assert_allclose(val, truth, atol=0.25)
    np.testing.assert_allclose(test, [0.0, 1.0], atol=0.15)


def test_a_vote_of_nobody_is_half_a_vote():
    found = full_log_odds(np.array([0.0, 0.5, 1.0]), 9)
    np.testing.assert_allclose(found, [np.log(0.05 / 0.95), 0.0, np.log(0.95 / 0.05)])
