import numpy as np
import pytest

from thrifty import Frontier, InvalidInputError
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.tables.choice import choose_for_budget, choose_for_loss

N = 2000


def system(stop_cost, cheap, name, *, full=0.95, seed=0, gate=None):
    """A system whose cheap model is right with probability ``cheap``, in front of a shared f0."""
    chance = np.random.default_rng(seed)
    right = np.random.default_rng(99).random(N) < full
    return RowOutcomes(
        g=chance.normal(size=N) if gate is None else gate,
        stop_cost=float(stop_cost),
        go_cost=10.0,
        stop_right=chance.random(N) < cheap,
        go_right=right,
        settings={"name": name},
    )


def chosen(outcomes, budget):
    return choose_for_budget(outcomes, Frontier.from_outcomes(outcomes), budget)


def test_the_better_system_is_chosen_and_spends_the_budget():
    outcomes = [system(2, 0.6, "poor", seed=1), system(2, 0.8, "good", seed=2)]
    choice = chosen(outcomes, 4.0)
    assert choice.source == 1
    assert choice.spends_all
    assert np.mean(outcomes[1].g > choice.threshold) == pytest.approx(0.25)


def test_of_two_that_rows_cannot_tell_apart_the_steadier_is_chosen():
    steady = system(4, 0.832, "steady", seed=3)
    unsteady = system(2, 0.81, "unsteady", seed=4)
    scores = [np.where(one.g > cut, one.go_right, one.stop_right).mean() for one, cut in
              ((steady, np.inf), (unsteady, np.quantile(unsteady.g, 0.75)))]  # fmt: skip
    assert scores[1] > scores[0]
    assert chosen([unsteady, steady], 4.0).source == 1
    assert chosen([unsteady, steady], 4.0).threshold == np.inf


def test_a_budget_is_not_spent_where_that_is_clearly_worse():
    # f0 is bad: every row that is sent to it loses.
    outcomes = [system(2, 0.9, "good alone", full=0.5)]
    choice = chosen(outcomes, 8.0)
    assert not choice.spends_all
    assert np.mean(outcomes[0].g > choice.threshold) < 0.05


def test_a_budget_that_no_route_can_meet_is_refused_with_the_cheapest_one():
    with pytest.raises(
        InvalidInputError, match="budget must be at least 2, the mean cost of the cheapest point"
    ):
        chosen([system(2, 0.8, "two"), system(3, 0.9, "three")], 1.5)


def test_a_certified_choice_names_its_accuracy_and_its_system():
    cheap = system(2, 0.99, "sure", seed=5)
    choose, prove = [cheap], [system(2, 0.99, "sure", seed=6)]
    choice = choose_for_loss(choose, prove, 0.05, 0.95)
    point = choice.certificate.point
    assert point.source == choice.source == 0
    right = np.where(prove[0].g > choice.threshold, prove[0].go_right, prove[0].stop_right)
    assert point.score == pytest.approx(right.mean())
    assert "loses at most 5 %" in str(choice.certificate)
