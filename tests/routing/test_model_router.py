import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer

import thrifty
from thrifty import Delivery, Evidence, ModelRouter, Policy, load, save
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.engine.evidence.budgets import CostBounds
from thrifty.engine.walk.next_model import Log, walk
from thrifty.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingSupportWarning,
    PurchaseFailedError,
)
from thrifty.learners.routing.learn import CrossFittedRules, learn_programme, shrunk
from thrifty.learners.routing.quality import learn_text_reader

PRICES = {"tiny": 1.0, "small": 2.0, "middle": 5.0, "large": 20.0}
SKILL = np.array([0.55, 0.65, 0.75, 0.92])


def make_log(n_rows=300, seed=0, skill=SKILL):
    """A table whose first column is the difficulty of a row; right answers are 0, wrong ones 1 to 4."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n_rows)
    right = rng.random((n_rows, len(skill))) < np.clip(skill + 0.5 - hard[:, None], 0.02, 0.98)
    answers = np.where(right, 0, rng.integers(1, 5, right.shape))
    cost = np.array(list(PRICES.values()))[: len(skill)] * rng.uniform(0.8, 1.2, right.shape)
    X = np.column_stack([hard + 0.2 * rng.standard_normal(n_rows), rng.random(n_rows)])
    return X, right.astype(float), cost, answers


@pytest.fixture(scope="module")
def log():
    return make_log(600)


@pytest.fixture(scope="module")
def router(log):
    return ModelRouter(PRICES, budget=6.0).fit(*log)


# -- the programme ---------------------------------------------------------------------------------


def best_value(log, price):
    """Largest mean of quality - price * cost over all learn that look at the partition of answers, exhaustively."""
    n_models = log.n_models

    def value(rows, asked):
        quality = max((log.quality[rows, model].sum() for model in asked), default=-np.inf)
        for model in set(range(n_models)) - set(asked):
            paid = price * log.cost[rows, model].sum()
            held = [*asked, model]
            answers = log.answers[rows][:, held]
            first_equal = (answers[:, :, None] == answers[:, None, :]).argmax(axis=2)
            patterns = np.unique(first_equal, axis=0, return_inverse=True)[1]
            following = sum(value(rows[patterns == one], held) for one in np.unique(patterns))
            quality = max(quality, following - paid)
        return quality

    return value(np.arange(len(log)), []) / len(log)


def test_the_programme_finds_the_best_of_all_policies_on_a_tiny_case():
    rng = np.random.default_rng(1)
    right = rng.random((4000, 3)) < [0.6, 0.7, 0.85]
    answers = np.where(right, 0, rng.integers(1, 4, right.shape))
    cost = np.broadcast_to([1.0, 1.5, 6.0], right.shape)
    log = Log(np.full(right.shape, 0.5), cost, right.astype(float), cost, answers)
    prices = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
    programme = learn_programme(log, prices, 3, reads_row=False)
    n_asked = []
    for place, price in enumerate(prices):
        found = walk(programme, place, log)
        n_asked.append((found.asked >= 0).sum(axis=1).mean())
        assert (found.quality - price * found.cost).mean() == pytest.approx(best_value(log, price), abs=0.004)
    assert n_asked[0] > 2.0 > n_asked[-1] == 1.0


def test_a_short_answer_tells_that_the_next_one_is_short_too():
    """The second model is worth its price of short rows only, and the first answer alone tells which these are."""
    rng = np.random.default_rng(0)
    length = rng.choice([0.2, 1.8], 600)
    right = rng.random((600, 2)) < [0.5, 0.9]
    cost = length[:, None] * [1.0, 10.0]
    expected = np.tile(cost.mean(axis=0), (600, 1))
    half = np.full(right.shape, 0.5)
    log = Log(half, expected, right.astype(float), cost, np.arange(1200).reshape(600, 2), half)
    programme = learn_programme(log, np.array([0.06]), 2, reads_row=False)
    assert ((walk(programme, 0, log).asked[:, -1] == 1) == (length < 1.0)).all()
    # Prices that do not vary tell nothing, and have no coefficients, as in programmes of version 0.3.
    assert learn_programme(replace(log, cost=expected), np.array([0.06]), 2, reads_row=False).further == ()
    assert programme.suits(log)
    assert not replace(programme, further=programme.further * 2).suits(log)


def test_comparing_answers_is_better_than_the_best_model_alone_and_costs_less(router):
    best, frontier = router.at(), router.frontier_
    assert best.expected_score_ > frontier.single_quality.max()
    X, quality, cost, answers = make_log(3000, seed=1)
    found = best.replay(X, quality, cost, answers)
    assert found.quality.mean() > quality[:, 3].mean()
    assert found.cost.mean() < 0.9 * cost[:, 3].mean()
    assert (found.asked != "").sum(axis=1).max() == 3
    n_asked = (found.asked != "").sum() / 3000
    assert repr(found) == (
        f"Replay(3,000 rows: mean quality {found.quality.mean():.4g}, mean cost {found.cost.mean():.4g}, "
        f"models asked per row {n_asked:.3g})"
    )
    alone = ModelRouter(PRICES, max_asks=1).fit(*make_log(600)).replay(X, quality, cost, answers)
    assert alone.asked.shape == (3000, 1)


# -- budgets ---------------------------------------------------------------------------------------


def test_any_budget_takes_the_best_policy_and_the_least_one_the_cheapest_model(log):
    X, quality, _, answers = log
    router = ModelRouter(PRICES).fit(X, quality, answers=answers)
    frontier = router.frontier_
    assert router.expected_score_ == frontier.score.max() >= frontier.single_quality.max() - 0.01
    assert router.at(budget=np.inf).expected_score_ == router.expected_score_
    least = router.at(budget=1.0)
    assert set(least.predict(X)) == {"tiny"}
    assert least.expected_cost_ == least.replay(X, quality, answers=answers).cost.mean() == 1.0
    with pytest.raises(InvalidInputError, match=r"budget must be at least 1, .*got 0\.9"):
        router.at(budget=0.9)
    assert router.budget is None


def test_a_share_is_a_budget_in_prices_of_the_best_model(router):
    price = router.single_cost(router.state_.best_single)
    assert router.at(share=0.5).expected_cost_ == router.at(budget=0.5 * price).expected_cost_
    with pytest.raises(InvalidParameterError, match="must not both be given"):
        router.at(share=0.5, budget=1.0)


def test_between_two_points_rows_are_mixed_by_their_content_and_the_mean_is_the_budget(router, log):
    X = log[0]
    for budget in (2.0, 4.0, 9.0):
        other = router.at(budget=budget)
        assert other.expected_cost_ == pytest.approx(min(budget, router.frontier_.cost[-1]))
        halves = [
            other.replay(*(part[rows] for part in log)).cost for rows in (slice(0, 300), slice(300, 600))
        ]
        np.testing.assert_array_equal(np.concatenate(halves), other.replay(*log).cost)
    assert list(router.predict(X[[3, 3]])) == list(router.predict(X[3:4])) * 2


def test_a_budget_with_confidence_spends_less_and_is_refused_where_it_cannot_be_held(router):
    held = router.at(budget=6.0, confidence=0.95)
    assert 5.0 < held.expected_cost_ < router.expected_cost_
    assert held.at(budget=6.0).expected_cost_ == router.expected_cost_
    with pytest.raises(InvalidInputError, match="cannot be shown to be kept with a confidence of 0.95"):
        router.at(budget=router.frontier_.cost[0] * 1.0001, confidence=0.95)
    assert router.bill(100) / 100 > router.bill(10_000) / 10_000 > router.expected_cost_


def test_a_fixed_rule_is_expected_to_cost_what_it_costs(router, log):
    frontier = router.frontier_
    is_fixed = [rule in ("single model", "fixed cascade") for rule in frontier.rule]
    assert sum(is_fixed) >= 2
    for cost in frontier.cost[is_fixed]:
        assert router.at(budget=cost).replay(*log).cost.mean() == pytest.approx(cost)


def test_a_gain_over_fixed_rules_that_may_be_chance_counts_for_nothing():
    fixed = CrossFittedRules(np.tile([0.4, 0.6], (100, 1)), np.tile([1.0, 3.0], (100, 1)))
    noise = np.where(np.arange(100) % 2, 0.2, -0.2)  # the standard error of its mean is 0.02
    gains = np.array([-0.05, 0.01, 0.1])
    found = shrunk(CrossFittedRules(0.5 + gains + noise[:, None], np.full((100, 3), 2.0)), fixed)
    assert found.quality.mean(axis=0) == pytest.approx([0.45, 0.5, 0.6 - 0.02**2 / 0.1])


# -- invariants ------------------------------------------------------------------------------------


def test_the_order_of_the_models_and_of_the_rows_changes_nothing(router, log):
    X, quality, cost, answers = log
    order, rows = [2, 0, 3, 1], np.random.default_rng(0).permutation(len(X))
    names = [list(PRICES)[model] for model in order]
    other = ModelRouter({name: PRICES[name] for name in names}, budget=6.0)
    other.fit(X, quality[:, order], cost[:, order], answers[:, order])
    assert other.pool_ == router.pool_
    one, two = router.replay(*log), other.replay(X, quality[:, order], cost[:, order], answers[:, order])
    assert one.model.tolist() == two.model.tolist()
    np.testing.assert_array_equal(one.cost, two.cost)
    again, frame = clone(other).set_params(models=PRICES), pl.DataFrame(X, schema=["hard", "other"])
    assert again.fit(frame, *log[1:]).predict(frame).tolist() == router.predict(X).tolist()
    shuffled = router.replay(*(part[rows] for part in log))
    np.testing.assert_array_equal(shuffled.cost, one.cost[rows])


def test_a_session_asks_pays_and_answers_as_a_replay_of_the_log(router, log):
    X, _, cost, answers = log
    found = router.replay(*log)
    names = list(PRICES)
    for row in range(0, 600, 23):
        session, asked = router.start(X[row]), []
        assert session.answer is None
        while session.next_purchase is not None:
            model = names.index(session.next_purchase.name)
            asked.append(session.next_purchase.name)
            session.give(answers[row, model], cost=cost[row, model])
        assert asked == [name for name in found.asked[row] if name]
        assert session.model == found.model[row]
        assert session.answer == answers[row, names.index(session.model)]
        assert session.cost == pytest.approx(found.cost[row])
        assert f"answered by {session.model}" in session.explain().splitlines()[-1]
    with pytest.raises(InvalidInputError, match="the row is answered"):
        session.give(0)


def test_the_first_answer_is_taken_after_all_models_of_the_policy_have_failed(router, log):
    assert "programme" in router.frontier_.rule
    for row, budget in enumerate(router.frontier_.cost):
        session, failed = router.at(budget=budget).start(log[0][row]), []
        while len(failed) < 3:
            failed.append(session.next_purchase.name)
            session.fail(cost=0.5)
        (left,) = set(PRICES) - set(failed)
        assert session.next_purchase.name == left
        session.give("at last", cost=1.0)
        assert (session.next_purchase, session.model, session.answer) == (None, left, "at last")
        assert session.cost == pytest.approx(2.5)


# -- buying ----------------------------------------------------------------------------------------


def shop(router, log):
    """A function of rows for each model, which returns what the log has; and the rows that each was asked about."""
    X, _, cost, answers = log
    asked = {name: [] for name in router.pool_}

    def ask(name, rows):
        places = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in rows]
        asked[name] += places
        model = list(PRICES).index(name)
        return Delivery(answers[places, model].tolist(), cost=cost[places, model])

    return {name: partial(ask, name) for name in asked}, asked


def test_rows_that_buy_ask_pay_and_are_answered_as_in_a_replay_and_each_model_once(router, log):
    log = [part[:150] for part in log]
    models, asked = shop(router, log)
    receipt, replay = router.buy(models, log[0], batch_size=40), router.replay(*log)
    names = np.array(router.pool_)
    assert names[receipt.route].tolist() == replay.model.tolist()
    np.testing.assert_allclose(receipt.cost, replay.cost)
    answers = log[3][np.arange(150), [list(PRICES).index(name) for name in replay.model]]
    assert receipt.answer.tolist() == answers.tolist()
    for row in range(150):
        assert set(names[receipt.bought[row]]) == set(filter(None, replay.asked[row]))
    assert all(len(rows) == len(set(rows)) for rows in asked.values())
    assert receipt.to_pandas()["bought"].map(len).sum() == sum(map(len, asked.values()))
    np.testing.assert_allclose(router.cost(log[0], *log[2:]), replay.cost)
    assert names[router.route(log[0], *log[2:])].tolist() == replay.model.tolist()


def test_a_model_that_fails_is_the_problem_of_its_rows_alone_and_another_one_is_asked(router, log):
    log = [part[:60] for part in log]
    models, _ = shop(router, log)
    first = router.predict(log[0])
    broken = str(first[0])

    def fails(rows):
        raise ConnectionError("is down")

    receipt = router.buy(models | {broken: fails}, log[0])
    place = router.pool_.index(broken)
    assert receipt.is_answered.all()
    assert (receipt.route != place).all()
    assert not receipt.bought[:, place].any()
    assert np.array_equal(receipt.failed[:, place], [reason is not None for reason in receipt.reason])
    assert receipt.failed[first == broken, place].all()
    assert "is down" in receipt.reason[0]
    with pytest.raises(PurchaseFailedError, match="is down") as stopped:
        router.buy(models | {broken: fails}, log[0], on_failure="raise")
    assert stopped.value.receipt.failed.any()
    models.pop(router.pool_[1])
    with pytest.raises(InvalidInputError, match=f"'{router.pool_[1]}' has none"):
        router.buy(models, log[0])
    with pytest.raises(InvalidInputError, match="was asked about .* rows and must return as many answers"):
        router.buy(dict.fromkeys(router.pool_, lambda _: []), log[0])


def test_expected_costs_of_new_rows_are_those_of_a_replay_on_average(router):
    new = make_log(3000, seed=3)
    for budget in (2.0, 6.0):
        one = router.at(budget=budget)
        assert one.cost(new[0]).mean() == pytest.approx(one.replay(*new).cost.mean(), rel=0.05)
    alone = ModelRouter(PRICES, max_asks=1, budget=6.0).fit(*make_log(100)[:2])
    np.testing.assert_allclose(
        alone.cost(new[0]), [PRICES[name] for name in alone.predict(new[0])], rtol=0.01
    )


def test_the_former_name_of_the_next_purchase_warns(router, log):
    session = router.start(log[0][0])
    with pytest.warns(FutureWarning, match="next_purchase"):
        assert session.next_ask == session.next_purchase.name
    assert session.next_purchase.price == session.expected_cost(session.next_purchase.name)
    assert session.propensity(session.next_purchase.name) > 0.0


def test_twice_the_prices_and_twice_the_budget_are_the_same_policy(router, log):
    dearer = router.with_prices({name: 2 * price for name, price in PRICES.items()}).at(budget=12.0)
    X, quality, cost, answers = log
    one, two = router.replay(*log), dearer.replay(X, quality, 2 * cost, answers)
    assert one.model.tolist() == two.model.tolist()
    np.testing.assert_allclose(two.cost, 2 * one.cost)
    assert router.models == PRICES


def test_a_model_that_became_cheap_is_asked_more_often(router, log):
    cheaper = router.with_prices({"large": 3.0})
    assert cheaper.expected_score_ > router.expected_score_ + 0.05
    assert (cheaper.predict(log[0]) == "large").mean() > (router.predict(log[0]) == "large").mean()


def test_a_new_model_of_which_few_rows_are_known_is_asked_where_it_is_worth_its_price(router, log):
    X, quality, cost, answers = log
    few = slice(0, 40)
    other = router.with_model("new", 1.5, X[few], quality[few, 3])  # as good as the large one, for 1.5
    assert other.expected_score_ > router.expected_score_ + 0.05
    assert (router.with_model("new", 30.0, X[few], quality[few, 0]).predict(X) == "new").mean() < 0.02
    columns = [np.column_stack([part, part[:, 3]]) for part in (quality, cost, answers)]
    columns[1][:, 4] = 1.5
    found = other.replay(X, *columns)
    assert (found.asked == "new").any(axis=1).mean() > 0.5
    assert found.quality.mean() == pytest.approx(other.expected_score_, abs=0.08)
    names = [*PRICES, "new"]
    for row in range(0, 600, 61):
        session = other.start(X[row])
        while session.next_purchase is not None:
            model = names.index(session.next_purchase.name)
            session.give(columns[2][row, model], cost=columns[1][row, model])
        assert (session.model, session.cost) == (found.model[row], pytest.approx(found.cost[row]))
    with pytest.raises(InvalidInputError, match="at least 10 rows; got 5"):
        router.with_model("new", 1.5, X[:5], quality[:5, 3])
    with pytest.raises(InvalidInputError, match="'large' is known"):
        router.with_model("large", 1.5, X[few], quality[few, 3])


def test_texts_are_routed_by_what_they_say_and_equal_ones_alike():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, 400)
    words = np.array([["sum", "number", "digit", "prove"], ["poem", "story", "rhyme", "letter"]])
    texts = [" ".join(rng.choice(words[kind], 6)) for kind in kinds]
    quality = np.column_stack([kinds == 0, kinds == 1]).astype(float)
    router = ModelRouter({"sums": 1.0, "poems": 1.1}, budget=1.06).fit(texts, quality)
    assert router.replay(texts, quality).quality.mean() > 0.98
    assert list(router.predict(["prove the sum of a number", "a poem, a story"])) == ["sums", "poems"]
    assert router.start("a digit of the sum").next_purchase.name == "sums"
    with pytest.raises(InvalidInputError, match="X must be a list of texts"):
        router.predict(np.zeros((2, 3)))


def test_texts_are_read_as_tf_idf_of_scikit_learn_projected_on_latent_axes():
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(40)]
    texts = [" ".join(rng.choice(words, rng.integers(1, 30))) for _ in range(250)]
    reader = learn_text_reader(texts, 0)
    terms = reader.terms.split("\n")
    oracle = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), vocabulary=terms)
    oracle.idf_ = reader.idf
    new = ["word1 word2, Word1!", "nothing known", ""]
    np.testing.assert_allclose(
        reader.transform([*texts, *new])[:, :-4],
        oracle.transform([*texts, *new]) @ reader.components,
        atol=1e-12,
    )
    np.testing.assert_allclose(np.expm1(reader.transform(["a b\n12!"])[0, -4:]), [7, 1, 2, 1])


# -- logs ------------------------------------------------------------------------------------------


def test_answers_that_are_texts_are_compared_in_their_canonical_form_and_pay_by_length():
    X, quality, _, answers = make_log(300)
    forms = np.array(["Paris", "Rome", "Oslo", "Bern", "Kyiv"], dtype=object)[answers]
    styled = np.where(np.arange(4) % 2, forms + ".", np.char.upper(forms.astype(str)).astype(object))
    texts = [f"question {row} of difficulty {'hard ' * int(10 * x)}" for row, x in enumerate(X[:, 0])]
    by_token = {name: (price, 4 * price) for name, price in PRICES.items()}
    told = ModelRouter(by_token).fit(texts, quality, answers=styled)
    assert told.state_.log.answers is not None
    np.testing.assert_array_equal(
        told.state_.log.answers[:, 0] == told.state_.log.answers[:, 1], answers[:, 0] == answers[:, 1]
    )
    expected = (
        np.array([len(text) for text in texts]) / 4 + 4 * np.char.str_len(styled[:, 0].astype(str)) / 4
    ) / 1e6
    np.testing.assert_allclose(told.state_.log.cost[:, 0], expected)


def test_equal_texts_stay_in_one_fold_so_that_none_is_judged_by_what_was_learned_from_itself():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("bcdfghjklm"), 3)) + f" number{row}" for row in range(150)]
    right = rng.random((150, 2)) < 0.5  # of which the texts say nothing
    quality = np.repeat(right, 2, axis=0).astype(float)
    router = ModelRouter({"tiny": 1.0, "small": 1.01}).fit(np.repeat(texts, 2), quality)
    assert router.expected_score_ < right.mean(axis=0).max() + 0.1 < right.max(axis=1).mean()


def test_a_log_of_one_model_a_row_is_read_without_the_bias_of_who_was_asked():
    X, quality, cost, _ = make_log(3000, skill=np.array([0.6, 0.7]))
    rng = np.random.default_rng(123)
    chance = np.where(X[:, 0] > 0.5, 0.9, 0.1)  # hard rows went to the second model
    asked = rng.random(len(X)) < chance
    seen = np.where(np.column_stack([~asked, asked]), quality, np.nan)
    propensity = np.column_stack([1 - chance, chance])
    router = ModelRouter(["tiny", "small"]).fit(X, seen, cost, propensity=propensity)
    truth, naive = quality.mean(axis=0), np.nanmean(seen, axis=0)
    found = router.frontier_.single_quality
    assert np.abs(found - truth).max() < 0.04 < 0.15 < np.abs(naive - truth).max()
    assert router.expected_score_ == pytest.approx(quality.max(axis=1).mean(), abs=0.25)


def partial_log(X, quality, seed):
    """What a log of one model a row has: easy rows went to cheap models more often; and the propensities."""
    propensity = np.where(X[:, :1] > 0.5, [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1])
    drawn = np.random.default_rng([2, seed]).random((len(X), 1))
    asked = np.arange(4) == (drawn > propensity.cumsum(axis=1)).sum(axis=1)[:, None]
    return np.where(asked, quality, np.nan), propensity


@pytest.mark.parametrize("is_wrong", [False, True])
def test_both_estimates_of_a_policy_on_a_log_of_one_model_a_row_are_unbiased(is_wrong):
    X, quality, cost, _ = make_log(600)
    router = ModelRouter(list(PRICES), budget=5.0).fit(X, 1.0 - quality if is_wrong else quality, cost)
    X, quality, cost, _ = make_log(500, seed=1)
    truth, found = router.replay(X, quality, cost), []
    for seed in range(60):
        seen, propensity = partial_log(X, quality, seed)
        replay = router.replay(X, seen, np.where(np.isnan(seen), np.nan, cost), propensity=propensity)
        naive = seen[truth.model[:, None] == list(PRICES)]
        columns = replay.quality, replay.ips, naive[~np.isnan(naive)]
        found.append([[one.mean() - truth.quality.mean(), one.std() / np.sqrt(500)] for one in columns])
        assert replay.cost.mean() == pytest.approx(truth.cost.mean(), rel=0.05)
    (bias, error), spread = np.mean(found, axis=0).T, np.std(found, axis=0)[:, 0]
    chance = 3.0 * spread / np.sqrt(60)
    assert (np.abs(bias[:2]) < chance[:2]).all()
    assert np.abs(bias[2]) > 2 * chance[2]  # of the rows in which the log happens to have the same model
    assert (spread[:2] < error[:2]).all()
    assert (error[:2] < 1.5 * spread[:2]).all()  # which also has the chance of rows
    assert (spread[0] < spread[1]) != is_wrong  # doubly robust estimates profit from a good regression


def usage_log_with_failed_calls(is_partial):
    """A log in which failed calls cost nothing, and one row is far from the others; most in it knows one model."""
    rng = np.random.default_rng(0)
    X, quality, cost, _ = make_log(400)
    X[:, 1] *= 1e-4
    X[7, 1] = 1.0
    has_failed = X[:, 1] > np.quantile(X[:, 1], 0.7)
    quality, cost = (np.where(has_failed[:, None], 0.0, part) for part in (quality, cost))
    if is_partial:
        asked = rng.integers(0, 4, 400)[:, None] == np.arange(4)
        asked[7] = False
        asked[7, 0] = True
        quality, cost = (np.where(asked, part, np.nan) for part in (quality, cost))
    return X, quality, cost


def test_a_cost_that_overflows_is_the_largest_one_and_no_missing_number(router):
    model = router.state_.model
    sign = np.where(np.arange(len(model.coefficients)) % 2, 1.0, -1.0)
    both_ways = replace(model, coefficients=np.ones_like(model.coefficients) * sign[:, None])
    with np.errstate(all="ignore"):
        cost = both_ways.expected_cost(np.full((3, len(model.centre)), 1e308))
    assert not np.isnan(cost).any()
    assert (cost <= model.cost_range[1]).all()


@pytest.mark.parametrize("is_partial", [False, True])
def test_failed_calls_that_cost_nothing_leave_expected_costs_in_the_range_that_was_billed(is_partial):
    X, quality, cost = usage_log_with_failed_calls(is_partial)
    propensity = np.full(400, 0.25) if is_partial else None
    router = ModelRouter(list(PRICES)).fit(X, quality, cost, propensity=propensity)
    largest = {name: np.nanmax(part) for name, part in zip(PRICES, cost.T, strict=True)}
    assert np.all(router.frontier_.single_cost <= list(largest.values()))
    assert np.all(router.expected_cost(X) <= [largest[name] for name in router.pool_])
    assert 0.0 < router.expected_cost_ <= sum(largest.values())
    twice = ModelRouter(PRICES).fit(X, quality, cost, propensity=propensity)
    twice = twice.with_prices({name: 2 * price for name, price in PRICES.items()})
    np.testing.assert_allclose(twice.expected_cost(X), 2 * router.expected_cost(X))


def test_a_model_that_was_hardly_asked_is_warned_of(router, log):
    X, quality, cost, _ = make_log(300)
    quality[20:, 3] = np.nan
    quality[20:30, :] = np.nan
    quality[25, 1] = 1.0
    with pytest.warns(MissingSupportWarning, match="'large' was asked in 20 of 300 rows") as caught:
        ModelRouter(list(PRICES)).fit(X, quality, cost)
    assert caught[0].filename == __file__
    X, quality, cost, answers = log
    quality = np.where(
        X[:, :1] > 0.7, quality, [[1.0, 1.0, 1.0, np.nan]]
    )  # easy rows never went to the large model
    best = ModelRouter(PRICES, max_asks=1).fit(*log)
    with pytest.warns(MissingSupportWarning, match=r"'large' was asked in \d+ of \d+ rows") as caught:
        best.replay(X, quality, cost, answers, propensity=np.ones(600))
    assert caught[0].filename == __file__
    with pytest.raises(InvalidInputError, match="asks up to 3.* fit with max_asks=1"):
        router.at().replay(X, quality, cost, answers, propensity=np.ones(600))


def test_evidence_that_is_known_after_asking_is_used():
    X, quality, cost, _ = make_log(800, skill=np.array([0.55, 0.92]))
    X = np.zeros_like(X) + np.arange(800)[:, None]  # the rows themselves say nothing
    noise = 0.2 * np.random.default_rng(0).standard_normal(quality.shape)
    models = ["tiny", "small"]
    blind = ModelRouter(models, budget=2.4).fit(X, quality, cost)
    router = ModelRouter(models, budget=2.4).fit(X, quality, cost, evidence=quality + noise)
    assert router.expected_score_ > blind.expected_score_ + 0.03
    session = router.start(X[0])
    assert session.next_purchase.name == "tiny"
    assert session.give("x", evidence=1.0).next_purchase is None
    assert router.start(X[0]).give("x", evidence=0.0).next_purchase.name == "small"


def test_a_second_session_checks_no_prices(router, log, monkeypatch):
    router.start(log[0][0])
    monkeypatch.setattr("thrifty.learners.routing.router.check_models", None)
    session = router.start(log[0][1])
    assert session.give("x").cost > 0.0


def test_where_the_key_decides_between_two_points_a_session_of_a_router_says_so(router, log):
    X, answers = log[0], log[3]
    policy = replace(router.policy_, lower=0, upper=len(router.policy_) - 1, share=0.5)
    mixed = copy.copy(router)
    mixed.policy_ = policy
    follows, reasons = policy.follows_upper(mixed.unasked(X[:40]).keys), set()
    for x, codes, upper in zip(X[:40], answers, follows, strict=False):
        session, routes = mixed.start(x), []
        for point in (policy.lower, policy.upper):
            alone = copy.copy(router)
            alone.policy_ = policy.at(point)
            routes.append(alone.start(x).next_purchase.name)
        reason = f"this key follows the {'dearer' if upper else 'cheaper'} one"
        assert (reason in session.next_purchase.why) == (routes[0] != routes[1])
        while (wanted := session.next_purchase) is not None:
            session.give(int(codes[router.pool_.index(wanted.name)]))
        if routes[0] != routes[1]:
            assert session.explain().endswith(reason)
            reasons.add(reason)
    assert len(reasons) == 2


def test_a_router_that_mixes_two_points_of_one_rule_names_the_rule_once(router):
    state, policy = router.state_, router.policy_
    upper = next(point for point in range(1, len(policy)) if state.rules[point] == state.rules[point - 1])
    mixed = copy.copy(router)
    mixed.policy_ = policy.at(upper - 1, upper, 0.94)
    by_lot = np.mean(state.point_cost[:, upper - 1] != state.point_cost[:, upper])
    follow = f"({state.rules[upper]}; 6% of rows follow the cheaper of two operating points, by their keys, "
    assert follow + f"which decide about {by_lot:.0%} of rows)" in mixed.explain()
    assert repr(router.frontier_).startswith(
        f"Frontier({len(router.frontier_)} points of 1 system on 600 rows: "
    )


# -- what is proved ----------------------------------------------------------------------------------


def test_a_certificate_bounds_the_loss_against_a_model_and_the_bill_of_the_next_rows(router, log):
    new = make_log(3000, seed=7)
    proved = router.certified(*new, max_loss=0.05)
    assert proved.certificate_.against == "large"
    assert proved.certificate_.bound <= 0.05
    found = proved.replay(*new)
    assert new[1][:, 3].mean() - found.quality.mean() <= proved.certificate_.bound
    assert found.cost.mean() < new[2][:, 3].mean()
    X, quality, *rest = new
    partly = np.where(np.arange(len(quality))[:, None] == 0, np.nan, quality)  # a bill is about costs
    billed = router.certified(X, partly, *rest, budget=6.0, n_next=500)
    assert billed.certificate_.bound <= 6.0
    assert "the next 500 rows cost at most" in str(billed.certificate_)
    with pytest.raises(InvalidInputError, match="600 of the 600 rows to prove with hold the same"):
        router.certified(*log, max_loss=0.05)
    with pytest.raises(
        InvalidInputError, match="cannot be proved on these 300 rows: the best setting loses up"
    ):
        router.certified(*make_log(300, seed=8), max_loss=0.02)
    new[1][7, 0] = np.nan
    with pytest.raises(InvalidInputError, match="missing in 1 of 3000 rows"):
        router.certified(*new, max_loss=0.05)


def test_equal_rows_prove_no_more_than_one_of_them(router, log):
    few = make_log(100, seed=11)
    often = [np.repeat(part, 25, axis=0) for part in few]
    assert router.certified(*few, max_loss=0.4).certificate_.n_rows == 100
    once, repeated = (router.certified(*rows, max_loss=0.4).certificate_ for rows in (few, often))
    assert (once.bound, once.n_rows) == pytest.approx((repeated.bound, repeated.n_rows))
    assert (repeated.n_given, repeated.n_repeated) == (2500, 2400)
    counted = router.certified(*often, max_loss=0.4, duplicates="count").certificate_
    assert counted.n_rows == 2500
    billed = [router.certified(*rows, budget=9.0, n_next=500) for rows in (few, often)]
    assert billed[0].certificate_.n_rows == billed[1].certificate_.n_rows == 100
    assert billed[0].expected_cost_ == pytest.approx(billed[1].expected_cost_, rel=1e-3)
    mixed = [np.concatenate([part, some[:50]]) for part, some in zip(few, log, strict=True)]
    dropped = router.certified(*mixed, max_loss=0.4, duplicates="drop").certificate_
    assert (dropped.n_rows, dropped.n_seen) == (100, 50)


def test_bills_are_exceeded_as_rarely_as_promised(router):
    new = make_log(4000, seed=9)
    cost = router.replay(*new).cost
    rng = np.random.default_rng(0)
    exceeded = [rng.choice(cost, 300).sum() > router.bill(300) for _ in range(500)]
    assert np.mean(exceeded) <= 0.07


def test_the_bill_of_a_mix_is_that_of_one_rule_with_the_same_costs():
    cheap, dear = np.full(100, 1.0), np.full(100, 20.0)
    some = np.where(np.arange(100) < 10, dear, cheap)
    evidence = Evidence.of_rules(np.column_stack([cheap, dear, some]), np.zeros((100, 3)))
    bounds = CostBounds(evidence, 100, n_next=50)
    rules = Policy.of(*np.arange(3.0)[:, None])
    assert bounds.bound(rules.at(0, 1, 0.1), 0.95) == pytest.approx(bounds.bound(rules.at(2), 0.95))
    # Of all rows there are, the share that follows each rule is no chance any more.
    assert CostBounds(evidence, 100).bound(rules.at(0, 1, 0.1), 0.95) == pytest.approx(2.9)


def test_measures_of_the_frontier_of_two_models_that_are_mixed():
    X, quality, _, _ = make_log(600, skill=np.array([0.55, 0.92]))
    X = np.zeros_like(X) + np.arange(600)[:, None]
    frontier = ModelRouter({"tiny": 1.0, "small": 2.0}).fit(X, quality).frontier_
    assert np.all(np.diff(frontier.cost) > 0)
    assert np.all(np.diff(frontier.score) > 0)
    assert frontier.apgr == pytest.approx(0.5, abs=0.1)
    with pytest.warns(FutureWarning, match="quality of RouterFrontier is score now"):
        assert frontier.quality is frontier.score
    pytest.importorskip("matplotlib")
    (curve, singles) = frontier.plot().lines
    assert curve.get_xdata().tolist() == frontier.cost.tolist()
    assert singles.get_ydata().tolist() == frontier.single_quality.tolist()
    assert frontier.aiq == pytest.approx(frontier.single_quality.mean(), abs=0.02)


def test_a_file_holds_a_router_with_its_budget_frontier_and_certificate(router, log, tmp_path):
    proved = router.certified(*make_log(3000, seed=7), max_loss=0.05)
    save(proved, tmp_path / "router.thrifty")
    again = load(tmp_path / "router.thrifty")
    one, two = proved.replay(*log), again.replay(*log)
    assert one.model.tolist() == two.model.tolist()
    np.testing.assert_array_equal(one.cost, two.cost)
    assert again.certificate_ == proved.certificate_
    assert again.get_params() == proved.get_params()
    assert again.at(budget=3.0).predict(log[0]).tolist() == router.at(budget=3.0).predict(log[0]).tolist()
    np.testing.assert_array_equal(again.frontier_.cost, router.frontier_.cost)
    frame = pd.DataFrame(log[0], columns=["difficulty", "noise"])
    named = ModelRouter(PRICES, budget=6.0, max_asks=1).fit(frame, log[1])
    save(named, tmp_path / "named.thrifty")
    loaded = load(tmp_path / "named.thrifty")
    assert loaded.predict(frame).tolist() == named.predict(frame).tolist()
    assert loaded.start(frame.iloc[0]).next_purchase.name == named.predict(frame[:1])[0]
    texts = [f"row {row} {'hard' if x > 0.5 else 'easy'}" for row, x in enumerate(log[0][:, 0])]
    of_texts = ModelRouter(lambda_prices(), budget=6.0).fit(texts, log[1])
    save(of_texts, tmp_path / "texts.thrifty")
    assert load(tmp_path / "texts.thrifty").predict(texts).tolist() == of_texts.predict(texts).tolist()
    with pytest.raises(NotFittedError):
        save(ModelRouter(PRICES), tmp_path / "none.thrifty")


def lambda_prices():
    return {**PRICES, "tiny": lambda text: 0.5 + len(text) / 20}


def test_thrifty_route_reads_a_log_with_a_line_for_each_model(tmp_path, capsys):
    _, quality, cost, answers = make_log(120)
    names = list(PRICES)
    lines = ["text,model,quality,cost,answer"]
    for row in range(120):
        lines += [
            f"question {row},{name},{quality[row, k]:g},{float(cost[row, k])!r},{'ABCDE'[answers[row, k]]}"
            for k, name in enumerate(names)
        ]
    log, prices, out = tmp_path / "log.csv", tmp_path / "models.csv", tmp_path / "router.thrifty"
    log.write_text("\n".join(lines))
    prices.write_text("model,price\n" + "\n".join(f"{name},{price}" for name, price in PRICES.items()))
    assert main(["route", str(log), "--models", str(prices), "--budget", "6", "-o", str(out)]) == 0
    assert "this router" in capsys.readouterr().out
    texts = [f"question {row}" for row in range(120)]
    order = sorted(range(4), key=lambda model: names[model])
    direct = ModelRouter({names[model]: PRICES[names[model]] for model in order}, budget=6.0)
    direct.fit(texts, quality[:, order], cost[:, order], answers[:, order])
    assert load(out).predict(texts).tolist() == direct.predict(texts).tolist()
    assert main(["route", str(log), "--models", str(prices), "--budget", "0.1", "-o", str(out)]) == 2
    assert "budget must be at least" in capsys.readouterr().err
    (tmp_path / "bad.csv").write_text(
        "\n".join(lines)
        .replace("question 3,tiny,1", "question 3,tiny,yes")
        .replace("question 3,tiny,0", "question 3,tiny,yes")
    )
    assert main(["route", str(tmp_path / "bad.csv"), "-o", str(out)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "column quality must hold numbers" in told
    assert "Write 1 for a right answer" in told
    prices.write_text("model,price\ntiny,1")
    assert main(["route", str(log), "--models", str(prices), "-o", str(out)]) == 2
    assert "no line for the model 'large'" in capsys.readouterr().err
    replayed = direct.replay(texts, quality[:, order], cost[:, order], answers[:, order])
    told, new = tmp_path / "told.csv", tmp_path / "new.csv"
    new.write_text("text\n" + "\n".join(texts))
    assert main(["predict", str(out), str(log), "-o", str(told)]) == 0
    found = pd.read_csv(told)
    assert found["model"].tolist() == replayed.model.tolist()
    assert found["cost"].to_numpy() == pytest.approx(replayed.cost)
    assert f"quality {replayed.quality.mean():.3f}" in capsys.readouterr().out
    assert main(["predict", str(out), str(new), "-o", str(told), "--budget", "3"]) == 0
    assert pd.read_csv(told)["model"].tolist() == direct.at(budget=3.0).predict(texts).tolist()
    capsys.readouterr()
    dear = pd.read_csv(told).query("cost > 3.2")
    new.write_text("text\n" + "\n".join(texts[row] for row in dear.index))
    assert main(["predict", str(out), str(new), "-o", str(told), "--budget", "3"]) == 0
    assert f"expected to cost {dear['cost'].mean():.3g} in the mean" in capsys.readouterr().err
    new.write_text("text\n" + "\n".join(texts))
    assert main(["explain", str(out), str(log), "--row", "2"]) == 0
    assert f"answered by {replayed.model[1]} for" in capsys.readouterr().out
    assert main(["explain", str(out), str(new), "--row", "2"]) == 0
    assert f"next: ask {direct.predict(texts)[1]}" in capsys.readouterr().out
    assert main(["frontier", str(out), "--plot", str(tmp_path / "frontier.png")]) == 0
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    for words, refusal in (
        (
            ["predict", str(out), str(new), "-o", str(told), "--max-loss", "0.1"],
            "--max-loss is not for a ModelRouter",
        ),
        (
            ["predict", str(out), str(new), "-o", str(told), "--hold-budget"],
            "--hold-budget is not for a ModelRouter",
        ),
        (["frontier", str(out), str(log)], "measured on a log by `thrifty report`"),
        (["explain", str(out), str(new), "--row", "121"], "--row must be from 1 to 120"),
    ):
        assert main(words) == 2
        assert refusal in " ".join(capsys.readouterr().err.split())
    assert main(["report", str(out), str(new), "-o", str(tmp_path / "page.html")]) == 2
    assert "must be a log to report on" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "nocost.csv").write_text("text,model,quality\na,tiny,1")
    assert main(["route", str(tmp_path / "nocost.csv"), "-o", str(out)]) == 2
    assert "has no column cost: give the models with their prices as --models" in " ".join(
        capsys.readouterr().err.split()
    )
    partial = [f"{line},0.25" for line in lines[1:]][:: len(names) + 1]  # another model in each row
    log.write_text("\n".join([f"{lines[0]},propensity", *partial]))
    assert main(["route", str(log), "-o", str(out)]) == 0
    assert main(["predict", str(out), str(log), "-o", str(told)]) == 0
    found, words = pd.read_csv(told), capsys.readouterr().out
    expected = (
        f"quality {found['quality'].mean():.3f} (doubly robust; inverse propensity {found['ips'].mean():.3f})"
    )
    assert expected in " ".join(words.split())


# -- refusals ----------------------------------------------------------------------------------------


def changed(part, place, value):
    log = list(make_log(60))
    log[part] = log[part].astype(float)
    log[part][place] = value
    return log


@pytest.mark.parametrize(
    ("models", "settings", "log", "words"),
    [
        (PRICES, {}, make_log(29), "at least 30 rows"),
        (PRICES, {}, changed(1, (slice(None), 1), 0.0), "'small' was never right"),
        (PRICES, {}, changed(1, (slice(None), 1), np.nan), "never asked"),
        (PRICES, {}, changed(2, (slice(None), 0), 0.0), "'tiny' is free"),
        (PRICES, {}, changed(2, (4, 2), -1.0), "cost must be .* got -1 for 'middle' in row 4"),
        (PRICES, {}, changed(1, (7, 3), 1.5), r"quality must lie in \[0, 1\].* got 1.5 for 'large' in row 7"),
        (PRICES, {}, changed(3, (slice(None), 2), np.nan), "answers of 'middle' are missing or unparsed"),
        ({**PRICES, "tiny": 0.0}, {}, make_log(60), "price of 'tiny' must be a number > 0"),
        ({**PRICES, "tiny": -1.0}, {}, make_log(60), "got -1.0"),
        ({**PRICES, "tiny": "1"}, {}, make_log(60), "got '1'"),
        ({**PRICES, "tiny": ()}, {}, make_log(60), r"got \(\)"),
        (PRICES, {}, changed(2, (slice(None), 1), np.nan), "cost of 'small' is missing in every row"),
        (
            PRICES,
            {},
            [["a", *[None] * 59], *make_log(60)[1:]],
            "a text in every row, or numbers; got None in row 1",
        ),
        (PRICES, {}, [*make_log(60), None, ["x"] * 60], "propensity must hold numbers"),
        ({**PRICES, "tiny": (0.1, 0.4)}, {}, [*make_log(60)[:2]], "price per token"),
        (list(PRICES), {}, [*make_log(60)[:2]], "'tiny' has no price"),
        (["a", "b", "a", "c"], {}, make_log(60), "'a' is there 2 times"),
        (["a"], {}, make_log(60), "at least two models"),
        ("abcd", {}, make_log(60), "models must be a dict"),
        (["a", "b"], {}, make_log(60), r"quality must have shape \(60, 2\)"),
        (PRICES, {"budget": -1}, make_log(60), "budget must be positive; got -1"),
        (PRICES, {"budget": 0.3}, make_log(60), "budget must be at least"),
        (PRICES, {"max_asks": 0}, make_log(60), "max_asks must be a whole number >= 1"),
        (PRICES, {"confidence": 1.5}, make_log(60), "confidence"),
        (PRICES, {}, [np.zeros((60, 2)), *make_log(60)[1:]], "at least 5 different rows; got 1"),
    ],
)
def test_bad_input_is_refused_in_words(models, settings, log, words):
    router = ModelRouter(models, **settings)
    with pytest.raises(InvalidInputError, match=words):
        router.fit(*log)
    with pytest.raises(NotFittedError):
        router.predict(log[0])


def test_a_log_without_qualities_is_refused_by_name():
    router = ModelRouter({"small": 1.0, "large": 9.0})
    for quality in (None, 3, [1.0, 0.0]):
        with pytest.raises(InvalidInputError, match=r"quality must have shape \(n_rows, 2\)"):
            router.fit(None, quality)


def test_losses_in_money_are_weighed_against_costs_in_money(tmp_path):
    rng = np.random.default_rng(0)
    hard = rng.random(400) < 0.3
    X = np.column_stack([hard, rng.random(400)]).astype(float)
    loss = np.column_stack([np.where(hard, 40.0, 0.0), np.full(400, 0.0)])
    router = ModelRouter({"small": 1.0, "large": 10.0}, outcome="loss").fit(X[:300], loss[:300])
    replay = router.replay(X[300:], loss[300:])
    lost = router.largest_loss_ * (1.0 - replay.quality)
    assert (lost + replay.cost).mean() == pytest.approx(1.0 + 9.0 * hard[300:].mean())
    cheap = ModelRouter({"small": 1.0, "large": 100.0}, outcome="loss").fit(X[:300], loss[:300])
    assert set(cheap.predict(X)) == {"small"}  # 40 are lost where 99 would be paid
    again = from_bytes(to_bytes(router))
    assert (again.outcome, again.largest_loss_) == ("loss", 40.0)
    assert np.array_equal(again.replay(X, loss).quality, router.replay(X, loss).quality)
    assert router.certified(X[300:], loss[300:], max_loss=0.2).certificate_.bound <= 0.2
    page = thrifty.report(router, X[300:], loss[300:], tmp_path / "a.html").read_text()
    assert "small" in page
    assert "its quality was 1" in str(router.explain(X[300:302], loss[300:302])[0])
    with pytest.raises(InvalidInputError, match="finite numbers >= 0"):
        router.replay(X, loss - 50.0)


def test_the_command_line_reads_a_log_of_losses(tmp_path, capsys):
    rng = np.random.default_rng(0)
    hard, other = rng.random(200) < 0.3, rng.random(200)
    lost = {"small": np.where(hard, 40.0, 0.0), "large": np.zeros(200)}
    parts = [
        pd.DataFrame(
            {"id": range(200), "model": name, "hard": hard, "other": other, "loss": loss, "cost": cost}
        )
        for (name, loss), cost in zip(lost.items(), (1.0, 10.0), strict=True)
    ]
    log, out = tmp_path / "log.csv", str(tmp_path / "r.thrifty")
    pd.concat(parts).to_csv(log, index=False)
    assert main(["route", str(log), "-o", out]) == 0
    assert f"{lost['small'].mean():.3f}" in capsys.readouterr().out  # in the unit of costs
    assert main(["predict", out, str(log), "-o", str(tmp_path / "a.csv")]) == 0
    answers = pd.read_csv(tmp_path / "a.csv")
    assert answers["quality"].tolist() == [1.0] * 200
    assert answers["cost"].tolist() == pytest.approx(np.where(hard, 10.0, 1.0))
    assert main(["report", out, str(log), "-o", str(tmp_path / "r.html")]) == 0
    pd.concat(parts).assign(quality=1.0).to_csv(log, index=False)
    capsys.readouterr()
    for command in (
        ["report", out, str(log), "-o", str(tmp_path / "r.html")],
        ["route", str(log), "-o", out],
    ):
        assert main(command) == 2
        assert "one of the columns quality and loss" in capsys.readouterr().err
