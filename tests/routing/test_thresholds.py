from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from thrifty import ModelRouter, load, save
from thrifty.cli import main
from thrifty.engine.walk.calibration import class_probabilities
from thrifty.engine.walk.next_model import Log, Thresholds, answers_at_hand, walk
from thrifty.errors import InvalidInputError, MissingEvidenceWarning
from thrifty.learners.routing import quality as quality_models
from thrifty.learners.routing.learn import CrossFittedRules, clearly_better
from thrifty.learners.routing.thresholds import N_CELLS, learn_calibration, learn_pooling, learn_thresholds
from thrifty.reporting.measure import measure

PRICES = {"tiny": 1.0, "small": 3.0, "large": 12.0}
SKILL = np.array([1.5, 2.5, 4.5])


def networks(n_rows=600, seed=0, n_classes=4):
    """Classes of rows, and class probabilities of three networks that are too sure of themselves."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n_rows)
    ease = rng.uniform(0.1, 1.0, n_rows)
    logits = rng.normal(size=(n_rows, 3, n_classes))
    logits[np.arange(n_rows), :, y] += SKILL * ease[:, None]
    chance = np.exp(1.5 * logits)
    chance /= chance.sum(axis=2, keepdims=True)
    answers = chance.argmax(axis=2)
    return (answers == y[:, None]).astype(float), answers, chance


def fitted(form="classes", X=None, n_rows=400, **settings):
    quality, answers, chance = networks(n_rows)
    evidence = chance if form == "classes" else chance.max(axis=2)
    return ModelRouter(PRICES, **settings).fit(X, quality, answers=answers, evidence=evidence)


@pytest.fixture(scope="module")
def router():
    return fitted(n_rows=600, budget=5.0)


# -- the search ------------------------------------------------------------------------------------


def tiny_log(seed, n_rows=9, after=None):
    rng = np.random.default_rng(seed)
    evidence = rng.integers(1, 6, (n_rows, 3)) / 6.0  # with ties
    quality = (rng.random((n_rows, 3)) < evidence).astype(float)
    cost = np.array([1.0, 2.0, 4.0]) * rng.uniform(0.5, 1.5, (n_rows, 3))
    answers = rng.integers(0, 3, (n_rows, 3)) if seed % 2 else None
    return Log(quality, cost, quality, cost, answers, evidence, after=after)


def best_of_all(log, price, combines):
    """Largest mean of quality - price * cost over all sequences and thresholds, one after another."""
    found = []
    for length in (1, 2, 3):
        for sequence in permutations(range(3), length):
            cuts = []
            for n_asked in range(1, length):
                at_hand = tuple(sorted(sequence[:n_asked])) if combines else sequence[n_asked - 1 : n_asked]
                values = np.unique(answers_at_hand(log, at_hand))
                cuts.append([-np.inf, *values])
            for chosen in product(*cuts):
                rule = Thresholds(
                    np.array([[*sequence, *[-1] * (3 - length)]]),
                    np.array([[*chosen, *[np.inf] * (3 - length)]])[:, :2],
                    combines,
                )
                rows = walk(rule, 0, log)
                found.append((rows.quality - price * rows.cost).mean())
    return max(found)


@pytest.mark.parametrize(
    ("seed", "is_discounted", "combines"),
    [(0, False, True), (1, True, True), (2, True, False), (3, False, False)],
)
def test_the_search_finds_the_best_sequence_and_thresholds_of_all_on_a_tiny_log(
    seed, is_discounted, combines
):
    after = np.array([[1.0, 1.0, 1.0], [0.2, 1.0, 1.0], [0.5, 0.3, 1.0]]) if is_discounted else None
    log, prices = tiny_log(seed, after=after), np.array([0.0, 0.02, 0.06, 0.15, 0.5])
    rules = learn_thresholds(log, prices, 3, combines=combines)
    for place, price in enumerate(prices):
        rows = walk(rules, place, log)
        assert (rows.quality - price * rows.cost).mean() == pytest.approx(
            best_of_all(log, price, combines), abs=1e-8
        )


def test_of_many_rows_no_threshold_alone_can_be_improved():
    quality, answers, chance = networks(2000)
    evidence = chance.max(axis=2)
    cost = np.broadcast_to(list(PRICES.values()), quality.shape)
    log, price = Log(quality, cost, quality, cost, answers, evidence, chance), 0.02
    rules = learn_thresholds(log, np.array([price]), 3)
    assert (rules.models[0] >= 0).sum() >= 2
    rows = walk(rules, 0, log)
    best = (rows.quality - price * rows.cost).mean()
    for place in range((rules.models[0] >= 0).sum() - 1):
        values = np.unique(answers_at_hand(log, tuple(sorted(rules.models[0, : place + 1]))))
        assert len(values) > 2 * N_CELLS
        for cut in values[:: len(values) // 150]:
            cuts = rules.cuts.copy()
            cuts[0, place] = cut
            other = walk(Thresholds(rules.models, cuts), 0, log)
            assert (other.quality - price * other.cost).mean() <= best + 1e-9


def test_a_fourth_model_is_asked_where_that_pays():
    rng = np.random.default_rng(0)
    level = rng.choice(4, 4000, p=[0.4, 0.2, 0.2, 0.2])
    right = level[:, None] <= np.arange(
        4
    )  # the model of this number and those after it are right, and sure of it
    evidence = np.where(right, 0.99, 0.05)
    cost = np.broadcast_to([1.0, 4.0, 16.0, 64.0], right.shape)
    log = Log(evidence, cost, right.astype(float), cost, None, evidence)
    values = []
    for max_asks in (3, 4):
        rows = walk(learn_thresholds(log, np.array([0.002]), max_asks), 0, log)
        values.append((rows.quality - 0.002 * rows.cost).mean())
    in_turn = np.array([1.0, 5.0, 21.0, 85.0])[level].mean()
    assert values[1] == pytest.approx(1.0 - 0.002 * in_turn)
    assert values[0] < values[1] - 1e-4


# -- confidence ------------------------------------------------------------------------------------


def test_calibration_is_the_isotonic_regression_at_the_centre_of_its_steps_whatever_the_order_of_rows():
    rng = np.random.default_rng(0)
    shown = rng.integers(0, 40, 3000) / 40.0
    right = (rng.random(3000) < shown**2).astype(float)
    evidence, quality = np.column_stack([shown, -shown]), np.column_stack([right, right])
    maps = learn_calibration(evidence, quality)
    x, p = maps.knots[0]
    isotonic = IsotonicRegression().fit(shown, right)
    np.testing.assert_allclose(p, isotonic.predict(x), atol=0.02)
    assert (np.diff(p) >= 0).all()
    assert (np.diff(maps.knots[1][1]) <= 0).all()
    np.testing.assert_allclose(maps.of_numbers(1, -shown), maps.of_numbers(0, shown), atol=1e-12)
    order = rng.permutation(3000)
    again = learn_calibration(evidence[order], quality[order])
    np.testing.assert_allclose(again.knots[0], maps.knots[0], atol=1e-12)
    assert maps.of_numbers(0, np.array([np.nan]))[0] == right.mean()


def test_votes_are_the_posterior_of_naive_bayes():
    confidence = np.array([[0.7, 0.6, 0.55]])
    answers = np.array([[3, 5, 5]])
    found = answers_at_hand(
        Log(confidence, confidence, confidence, confidence, answers, confidence), (0, 1, 2)
    )
    likelihood = [
        np.prod(np.where(answers[0] == one, confidence[0], (1 - confidence[0]) / 9)) for one in range(10)
    ]
    posterior = likelihood / np.sum(likelihood)
    np.testing.assert_allclose(found[0], posterior[answers[0]], atol=1e-6)


def test_two_networks_that_are_combined_are_right_more_often_than_the_better_one():
    quality, answers, chance = networks(4000)
    good = quality[:, 1:].copy()
    log = Log(quality, quality, quality, quality, answers, chance.max(axis=2), chance)
    asked = np.array([1, 2])[answers_at_hand(log, (1, 2)).argmax(axis=1)]
    assert quality[np.arange(4000), asked].mean() > good.mean(axis=0).max() + 0.005
    # The answer that the mean of their probabilities has: nearly always one of the two.
    both = chance[:, 1:].mean(axis=1).argmax(axis=1)
    is_one_of_them = (answers[:, 1:] == both[:, None]).any(axis=1)
    taken = answers[np.arange(4000), asked]
    assert (taken == both)[is_one_of_them].all()
    assert is_one_of_them.mean() > 0.98


def test_logarithms_of_class_probabilities_are_the_same_evidence():
    _, _, chance = networks(50)
    np.testing.assert_allclose(class_probabilities(np.log(chance)), chance)
    with pytest.raises(InvalidInputError, match="add up to 1, or their logarithms; got a sum of 0.5"):
        class_probabilities(chance / 2)


# -- routers ---------------------------------------------------------------------------------------


def thresholds_by_hand(train, test, budget):
    """Ask the first, and the second where the first is not sure: the best pair and share of rows on the log."""
    cost, best = np.array(list(PRICES.values())), None
    for first, second in permutations(range(3), 2):
        if cost[first] > budget:
            continue
        share = min((budget - cost[first]) / cost[second], 1.0)
        replies = []
        for quality, _, chance in (train, test):
            top = chance[:, first].max(axis=1)
            goes = top <= np.quantile(train[2][:, first].max(axis=1), share)
            replies.append(np.where(goes, quality[:, second], quality[:, first]).mean())
        if best is None or replies[0] > best[0]:
            best = replies
    return best[1]


@pytest.mark.parametrize("columns", [None, "noise"])
@pytest.mark.parametrize("form", ["classes", "numbers"])
def test_on_networks_the_router_is_not_behind_the_threshold_that_everyone_writes_first(form, columns):
    n_rows, rng = 1500, np.random.default_rng(3)
    train, test = networks(n_rows), networks(8000, seed=1)
    X = [None, None] if columns is None else [rng.random((n_rows, 2)), rng.random((8000, 2))]
    router = fitted(form, X[0], n_rows)
    gains = []
    for budget in (2.0, 4.0, 7.0, 12.0):
        evidence = test[2] if form == "classes" else test[2].max(axis=2)
        found = router.at(budget=budget).replay(X[1], test[0], answers=test[1], evidence=evidence)
        assert found.cost.mean() < 1.06 * budget
        gains.append(found.quality.mean() - thresholds_by_hand(train, test, budget))
    assert np.mean(gains) > 0.0
    assert min(gains) > -0.02


@pytest.mark.parametrize("form", ["classes", "numbers"])
def test_without_columns_sessions_ask_pay_and_answer_as_a_replay(form):
    after = {"large": {"small": 9.5}, "small": {"tiny": 2.2}}
    router = fitted(form, budget=6.0, after=after)
    quality, answers, chance = networks(300, seed=1)
    evidence = chance if form == "classes" else chance.max(axis=2)
    keys = np.arange(300) + 1000
    found, names = router.replay(keys, quality, answers=answers, evidence=evidence), list(PRICES)
    assert (found.asked[:, 1] != "").mean() > 0.1
    for row in range(0, 300, 7):
        session = router.start(int(keys[row]))
        price = 0.0
        while session.next_purchase is not None:
            price += session.next_purchase.price
            model = names.index(session.next_purchase.name)
            session.give(answers[row, model], evidence=evidence[row, model])
        assert list(session.asked) == [name for name in found.asked[row] if name]
        assert session.model == found.model[row]
        assert session.cost == pytest.approx(found.cost[row]) == pytest.approx(price)
        paid, asked = 0.0, []
        for name in session.asked:
            paid += min([PRICES[name], *(after.get(name, {}).get(other, np.inf) for other in asked)])
            asked.append(name)
        assert session.cost == pytest.approx(paid)
    assert router.replay(None, quality, answers=answers, evidence=evidence).cost.mean() == pytest.approx(
        6.0, rel=0.1
    )
    assert router.start().next_purchase.name in PRICES
    with pytest.raises(InvalidInputError, match="needs a log, or the keys of the rows"):
        router.cost(None)


def test_models_that_are_run_in_batches_see_only_the_rows_that_reach_them_once(router):
    _, answers, chance = networks(500, seed=1)
    keys, asked = np.arange(500), []

    def ask(name, rows):
        asked.append((name, rows))
        return chance[rows, list(PRICES).index(name)]

    found, replayed = router.run(ask, keys), router.walk(router.read_log(keys, None, None, answers, chance))
    for one, two in zip(found[:3], replayed[:3], strict=True):
        np.testing.assert_array_equal(one, two)
    for place, name in enumerate(router.pool_):
        rows = np.concatenate([rows for model, rows in asked if model == name])
        assert sorted(rows.tolist()) == np.flatnonzero((found.asked == place).any(axis=1)).tolist()
    with pytest.raises(InvalidInputError, match="run needs a router that was fitted with evidence"):
        fitted("numbers").run(ask, keys)


def test_an_answer_that_is_sure_enough_is_explained_with_both_numbers(router):
    quality, answers, chance = networks(400, seed=1)
    point = next(place for place, rule in enumerate(router.frontier_.rule) if rule.startswith("thresholds"))
    one = router.at(budget=router.frontier_.cost[point])
    rows = one.explain(np.arange(400), quality, answers=answers, evidence=chance)
    first = [str(row).splitlines()[0] for row in rows]
    short = next(text for row, text in zip(rows, first, strict=True) if len(row.bought) == 1)
    long = next(text for row, text in zip(rows, first, strict=True) if len(row.bought) > 1)
    value, bar = (float(word) for word in short.partition("sure enough: ")[2].split(" above "))
    assert value > bar
    assert "not" not in short
    value, bar = (float(word) for word in long.partition("not sure enough: ")[2].split(", needs "))
    assert value <= bar


def test_a_later_exit_that_costs_only_the_rest_after_an_earlier_one_is_asked_after_it():
    exits = {"large": {"tiny": 11.0, "small": 9.0}, "small": {"tiny": 2.0}}
    exits |= {"tiny": {"small": 0.0, "large": 0.0}, "small": {"tiny": 2.0, "large": 0.0}}
    plain, shared = fitted(budget=5.0), fitted(budget=5.0, after=exits)
    assert shared.expected_score_ > plain.expected_score_
    log = shared.state_.log
    assert shared.policy_.cost[-1] <= 12.0 + 1e-9  # what all three exits cost together
    assert shared.frontier_.single_cost == pytest.approx(list(PRICES.values()))
    again = fitted(budget=5.0, after={"large": {"tiny": 12.0}})
    np.testing.assert_array_equal(again.frontier_.score, plain.frontier_.score)
    assert log.share_after(2, (0, 1)) == pytest.approx(9.0 / 12.0)
    with pytest.raises(
        InvalidInputError, match=r"price of 'large' after 'tiny' must lie in \[0, 12\].*got 13"
    ):
        fitted(after={"large": {"tiny": 13.0}})
    with pytest.raises(InvalidInputError, match="'large' has one after 'huge'"):
        fitted(after={"large": {"huge": 1.0}})


def test_columns_that_say_nothing_do_not_tell_the_folds_apart():
    quality = networks(300)[0]
    folds = np.arange(300) % 5
    _, prior, _ = quality_models.crossfit(np.zeros((300, 2)), quality, np.ones((300, 3)), folds, 0)
    np.testing.assert_allclose(prior, np.tile(quality.mean(axis=0), (300, 1)), atol=1e-12)


def test_without_columns_a_router_is_proved_on_new_rows_and_refuses_those_of_the_fit(router):
    quality, answers, chance = networks(3000, seed=5)
    proved = router.certified(None, quality, answers=answers, evidence=chance, max_loss=0.05)
    assert proved.certificate_.bound <= 0.05
    assert proved.certificate_.n_rows == 3000
    quality, answers, chance = networks()
    with pytest.raises(InvalidInputError, match="600 of the 600 rows to prove with hold the same"):
        router.certified(None, quality, answers=answers, evidence=chance, max_loss=0.05)


def test_a_file_holds_a_router_without_columns_its_thresholds_and_its_calibration(router, tmp_path):
    quality, answers, chance = networks(300, seed=2)
    for one in (router, fitted("numbers", budget=4.0, after={"large": {"tiny": 8.0}})):
        evidence = chance if one is router else chance.max(axis=2)
        save(one, tmp_path / "router.thrifty")
        again = load(tmp_path / "router.thrifty")
        first, second = (
            each.replay(None, quality, answers=answers, evidence=evidence) for each in (one, again)
        )
        assert first.model.tolist() == second.model.tolist()
        np.testing.assert_array_equal(first.cost, second.cost)
        assert again.get_params() == one.get_params()
        cheaper = [each.with_prices({"large": 6.0}) for each in (one, again)]
        assert cheaper[0].expected_score_ == cheaper[1].expected_score_
        assert cheaper[1].after == (None if one is router else {"large": {"tiny": pytest.approx(4.0)}})
    assert any(rule.startswith("thresholds") for rule in router.frontier_.rule)


def test_the_class_of_the_largest_probability_is_the_answer_where_none_is_given(router):
    quality, answers, chance = networks(300, seed=2)
    without = ModelRouter(PRICES, budget=5.0).fit(None, *networks()[:1], evidence=networks()[2])
    np.testing.assert_array_equal(without.frontier_.score, router.frontier_.score)
    first = router.replay(None, quality, answers=answers, evidence=chance)
    second = router.replay(None, quality, evidence=np.log(chance))
    assert first.model.tolist() == second.model.tolist()
    with pytest.raises(
        InvalidInputError, match="must be probabilities of 4 classes, as in fit; got one number"
    ):
        router.replay(None, quality, answers=answers, evidence=chance.max(axis=2))
    with pytest.raises(InvalidInputError, match="a probability of each of 4 classes, as in fit"):
        router.start().give("a", evidence=[0.5, 0.5])
    with pytest.raises(InvalidInputError, match=r"shape \(600, 3, n_classes\); got \(600, 2, 4\)"):
        ModelRouter(PRICES).fit(None, networks()[0], evidence=networks()[2][:, :2])


def test_a_model_that_fails_or_says_nothing_of_its_answer_is_passed_over(router):
    session = router.start(1)
    first = session.next_purchase.name
    session.fail()
    assert session.next_purchase.name != first
    session.give("b", evidence=[0.97, 0.01, 0.01, 0.01])
    assert session.model is not None
    session = router.start(1)
    with pytest.warns(MissingEvidenceWarning, match=f"'{first}' answered without evidence") as caught:
        session.give("b")  # as sure as it is on average
    assert caught[0].filename == __file__
    assert session.cost == PRICES[first]


def test_a_report_measures_a_router_without_columns(router):
    quality, answers, chance = networks(300, seed=2)
    facts = measure(router, None, quality, answers=answers, evidence=chance, n_boot=20)
    found = router.replay(None, quality, answers=answers, evidence=chance)
    place = facts.marked["deployed"]
    assert facts.n_rows == 300
    assert facts.held_out
    assert facts.score.value[place] == pytest.approx(found.quality.mean())
    assert all("answered by" in text for _, text in facts.receipts)


def test_commands_read_a_log_whose_rows_have_nothing_but_an_id(tmp_path, capsys):
    quality, answers, chance = networks(120)
    lines = ["id,model,quality,cost,answer,evidence"]
    for row in range(120):
        lines += [
            f"q{row},{name},{quality[row, k]:g},{price},{answers[row, k]},{float(chance[row, k].max())!r}"
            for k, (name, price) in enumerate(PRICES.items())
        ]
    log, out, told = tmp_path / "log.csv", tmp_path / "router.thrifty", tmp_path / "told.csv"
    log.write_text("\n".join(lines))
    assert main(["route", str(log), "--budget", "5", "-o", str(out)]) == 0
    assert "120 rows, 3 models" in capsys.readouterr().out
    assert main(["predict", str(out), str(log), "-o", str(told)]) == 0
    router, names = load(out), sorted(PRICES)
    order = [list(PRICES).index(name) for name in names]
    keys = [f"q{row}" for row in range(120)]
    found = router.replay(
        keys,
        quality[:, order],
        np.broadcast_to([PRICES[name] for name in names], quality.shape),
        answers[:, order],
        chance[:, order].max(axis=2),
    )
    assert pd.read_csv(told)["model"].tolist() == found.model.tolist()
    assert main(["explain", str(out), str(log), "--row", "2"]) == 0
    assert f"answered by {found.model[1]} for" in capsys.readouterr().out


def test_a_rule_is_better_than_the_best_single_model_only_beyond_a_standard_error():
    quality = np.tile([0.6, 0.8], (100, 1))
    noise = np.where(np.arange(100) % 2, 0.2, -0.2)[:, None]  # the standard error of its mean is 0.02
    rules = CrossFittedRules(0.8 + np.array([-0.1, 0.01, 0.05]) + noise, np.ones((100, 3)))
    mean = clearly_better(rules, quality).quality.mean(axis=0)
    assert mean == pytest.approx([0.7, 0.8, 0.85], abs=1e-5)
    assert mean[1] < 0.8  # so that the model itself, which a larger budget affords, is taken


def test_a_new_model_is_added_to_a_router_without_columns(router):
    quality, answers, chance = networks(400, seed=8)
    other = router.with_model("new", 0.5, None, quality[:60, 2])  # as good as the large one, for .5
    assert other.expected_score_ > router.expected_score_ - 0.02
    cheap = other.at(budget=0.6)  # keys decide where it is a mix of two points
    firsts = [cheap.start(key).next_purchase.name for key in range(40)]
    assert firsts.count("new") > 20
    columns = np.column_stack([quality, quality[:, 2]]), np.column_stack([answers, answers[:, 2]])
    shown = np.concatenate([chance, np.full_like(chance[:, :1], np.nan)], axis=1)
    found = other.replay(None, columns[0], answers=columns[1], evidence=shown)
    assert found.quality.mean() > quality[:, 1].mean()


def test_numbers_that_are_far_apart_are_asked_on():
    rng = np.random.default_rng(0)
    y, is_hard = rng.uniform(size=400), rng.random(400) < 0.3
    errors = np.where(is_hard[:, None], rng.choice([-0.5, 0.5], size=(400, 2)) * [1.0, 0.6], 0.01)
    predicted = np.column_stack([y[:, None] + errors, y])
    log = {"quality": 1.0 - np.square(predicted - y[:, None]), "evidence": predicted[:, :, None]}
    router = ModelRouter({"first": 1.0, "second": 1.0, "exact": 10.0}, budget=5.2).fit(None, **log)
    replay = router.replay(None, **log)
    assert replay.quality[is_hard].mean() > 0.99
    assert replay.cost[is_hard].mean() > 10.0 > 3.0 > replay.cost[~is_hard].mean()


# -- class probabilities that are combined ---------------------------------------------------------


@pytest.fixture(scope="module")
def pooled():
    """Three classes: a good model, one that guesses at random and is sure, and one that was not trained on class 2."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 600)
    scores = rng.normal(size=(600, 3, 3))
    scores[np.arange(600), 0, y] += 2.0
    scores[:, 1] *= 3.0
    scores[np.arange(600), 2, y] += 4.0
    evidence = np.exp(scores)
    evidence[:, 2, 2] = 0.0
    evidence /= evidence.sum(axis=2, keepdims=True)
    quality = (evidence.argmax(axis=2) == y[:, None]) * 1.0
    maps = learn_calibration(evidence, quality)
    confidence, classes, answers = maps.of_log(evidence, None)
    log = Log(quality, quality + 1.0, quality, quality + 1.0, answers, confidence, classes)
    return y, evidence, maps, log, learn_pooling(log, 3)


def test_a_model_that_guesses_hardly_counts_where_answers_are_combined(pooled):
    y, _, _, log, pooling = pooled

    def right(one):
        chance = answers_at_hand(one, (0, 1))
        return one.quality[np.arange(600), chance.argmax(axis=1)].mean()

    assert right(replace(log, pooling=pooling)) >= log.quality[:, 0].mean()
    chance = pooling.combine(log.classes, (0, 2))
    assert (chance.argmax(axis=1) == y).mean() > max(log.quality[:, 0].mean(), log.quality[:, 2].mean())


def test_weights_are_those_of_largest_likelihood(pooled):
    y, _, _, log, pooling = pooled
    rows = log.quality.any(axis=1)
    scores, labels = np.log(np.maximum(log.classes[rows], 1e-4)), y[rows]

    def loss(weights):
        total = np.tensordot(weights, scores, axes=(0, 1))
        likelihood = total[np.arange(len(labels)), labels] - np.log(np.exp(total).sum(axis=1))
        return 5.0 * ((weights - 1 / 3) ** 2).sum() - likelihood.sum()

    assert np.allclose(pooling.of[0, 1, 2], minimize(loss, np.ones(3)).x, atol=1e-3)
    assert learn_pooling(replace(log, quality=np.zeros_like(log.quality)), 3) is None


def test_a_model_does_not_rule_out_a_class_that_it_was_not_trained_on(pooled):
    y, evidence, maps, log, _ = pooled
    assert (evidence[:, 2, 2] == 0.0).all()
    assert log.classes[:, 2, 2].mean() == pytest.approx((y == 2).mean(), abs=0.1)
    assert np.allclose(log.classes.sum(axis=2), 1.0)
    with pytest.raises(InvalidInputError, match="must know each model"):
        replace(maps, missed=maps.missed[:2]).validate()
