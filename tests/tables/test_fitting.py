from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from thrifty import InvalidInputError, Tie
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.tables import fit as fitting
from thrifty.tables import full_models
from thrifty.tables.choice import Choice, chance_sent
from thrifty.tables.fit import Wish, fit_table
from thrifty.tables.promising import promised
from thrifty.tables.schema import learn_schema
from thrifty.tables.storage import table_system_from_bytes, table_system_to_bytes
from thrifty.tables.system import Promise


def test_the_promise_is_what_the_rows_of_the_choice_say(fitted):
    system = fitted.system
    outcomes = system.outcomes[system.chosen]
    sent = chance_sent(outcomes.g, system.threshold, system.tie)
    right = sent * outcomes.go_right + (1 - sent) * outcomes.stop_right
    assert system.promise.accuracy == pytest.approx(right.mean())
    assert system.promise.low < system.promise.accuracy < system.promise.high
    assert system.promise.cost == pytest.approx(4.0, abs=0.01)
    assert system.promise.full_cost == 6.0
    assert fitted.notes == ("no --costs file: every column costs 1",)


def test_new_rows_spend_the_budget_up_to_chance_and_are_as_right_as_promised(fitted, make_table):
    new = make_table(4000, seed=1)
    answers = fitted.system.answers(fitted.system.table(new))
    promise = fitted.system.promise
    assert abs(answers["cost"].mean() - 4.0) < 3 * promise.spread(4000) + 1e-9
    right = np.mean(answers["answer"] == new["label"].to_numpy())
    assert promise.low - 0.02 < right


def test_the_rows_at_hand_hold_a_budget_to_within_one_row(fitted, make_table):
    X = fitted.system.table(make_table(1000, seed=2))
    one_row = (6.0 - fitted.system.promise.cheap_cost) / 1000
    for budget in (4.5, 5.0, 5.123, 6.0):
        spent = fitted.system.for_rows(X, budget).answers(X)["cost"].mean()
        assert budget - one_row <= spent <= budget + 1e-9
    with pytest.raises(InvalidInputError, match="budget must be at least"):
        fitted.system.for_rows(X, 0.0)


def test_answers_are_those_of_the_stage_that_gave_them(fitted, make_table):
    system = fitted.system
    new = make_table(300, seed=3)
    X = system.table(new)
    answers = system.answers(X)
    sent = answers["stage"] == "full"
    full = system.system.full.probability(X, np.arange(300), 300)
    _, cheap = system.systems[system.chosen].estimator.scores(X)
    positive = np.where(sent, full, 1 / (1 + np.exp(-cheap)))
    np.testing.assert_array_equal(answers["answer"], np.where(positive > 0.5, "yes", "no"))
    np.testing.assert_allclose(answers["probability"], np.maximum(positive, 1 - positive))
    np.testing.assert_array_equal(answers["cost"], np.where(sent, 6.0, system.promise.cheap_cost))
    assert set(answers["stage"]) <= {"0", "full"}


def test_a_missing_cell_matters_only_where_it_is_read(fitted, make_table):
    # Among tied rows chance decides, and chance is drawn from the whole row.
    system = replace(fitted.system, tie=None)
    new = make_table(300, seed=4)
    sent = system.answers(system.table(new))["stage"] == "full"
    unread = next(name for name in system.schema.names if name not in system.bought)
    before = system.answers(system.table(new))
    new.loc[~sent, unread] = None
    after = system.answers(system.table(new))
    np.testing.assert_array_equal(before["answer"], after["answer"])
    if sent.any():
        new.loc[sent, unread] = None
        with pytest.raises(
            InvalidInputError, match=f"column '{unread}' is missing in row .* which is sent to f0"
        ):
            system.answers(system.table(new))


def test_a_certificate_is_about_the_system_that_answers(certified):
    system = certified.system
    assert system.certificate.point.source == system.chosen
    assert system.certificate.point.threshold == system.threshold
    assert system.certificate.n_rows == system.about.n_prove
    assert system.promise.accuracy == pytest.approx(system.certificate.point.score)


def test_the_same_seed_gives_the_same_system_and_a_store_is_taken_up_again(
    small_grid, fitted, tmp_path, make_table
):
    arguments = {"full": "svm", "store": tmp_path / "fits"}
    once = fit_table(make_table(), "label", Wish(budget=4.0), **arguments)
    told = []
    again = fit_table(
        make_table(), "label", Wish(budget=4.0), progress=lambda *what: told.append(what), **arguments
    )
    X = fitted.system.table(make_table(100, seed=9))
    for one in (once.system, again.system):
        assert one.promise == fitted.system.promise
        assert one.threshold == fitted.system.threshold
        np.testing.assert_array_equal(one.answers(X)["probability"], fitted.system.answers(X)["probability"])
    first = {what: done for what, done, _ in reversed(told)}
    assert first["fitting cheap models"] == 3  # none was fitted again


def test_missing_values_are_fine_for_models_that_read_them_and_refused_by_column_for_others(
    small_grid, make_table, monkeypatch
):
    frame = make_table(600)
    frame.loc[5, "age"] = None
    with pytest.raises(
        InvalidInputError, match=r"column 'age' is missing in row 6, and f0 \(svm\) reads no missing"
    ):
        fit_table(frame, "label", Wish(budget=4.0), full="svm")
    monkeypatch.setattr(fitting, "recipe", lambda *_: RandomForestClassifier(20, random_state=0))
    fit = fit_table(frame, "label", Wish(budget=4.0), full="forest")
    assert len(fit.system.answers(fit.system.table(frame))["answer"]) == 600


def test_the_best_kind_wins_and_machines_that_cannot_take_part_do_not(make_table, monkeypatch):
    frame = make_table(500)
    X = learn_schema(frame, "label").numbers(frame).to_numpy()
    y = (frame["label"] == "yes").to_numpy().astype(int)
    depths = {"forest": 1, "svm": 6, "boosting": 2}
    monkeypatch.setattr(full_models, "_has_xgboost", lambda: False)
    monkeypatch.setattr(full_models, "SAMPLE", 300)
    with monkeypatch.context() as patch:
        patch.setattr(full_models, "recipe", lambda kind, *_: DecisionTreeClassifier(max_depth=depths[kind]))
        found = full_models.best_kind(X, y, seed=0, n_jobs=1, has_missing=False, progress=lambda *_: None)
    assert list(found.accuracy) == ["forest", "svm", "boosting"]
    assert found.winner == "svm"
    assert found.n_rows == 300
    assert full_models._eligible(500, True) == ["forest", "boosting"]
    assert full_models._eligible(10**6, False) == ["forest", "boosting"]
    with pytest.raises(InvalidInputError, match="--full xgboost needs XGBoost"):
        full_models.recipe("xgboost", 0, 1)


def frozen_file(path, model, frame, names):
    schema = learn_schema(frame, "label")
    skops.io.dump(model.fit(schema.numbers(frame)[names], frame["label"].to_numpy()), path)
    return str(path)


def test_a_fitted_model_from_a_file_reads_its_own_columns_in_its_own_order(small_grid, tmp_path, make_table):
    frame, elsewhere = make_table(600), make_table(600, seed=7)
    names = ["colour", "lab two", "lab one", "age"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    path = frozen_file(tmp_path / "f0.skops", model, elsewhere, names)
    fit = fit_table(frame, "label", Wish(budget=3.0), full=path)
    assert list(fit.system.schema.names) == names
    assert fit.system.prices.cost_of_everything == 4
    assert any("left out" in note and "'noise', 'old'" in note for note in fit.notes)
    new = make_table(50, seed=8)
    everything = fit.system.for_rows(fit.system.table(new), 4.0)
    schema = learn_schema(elsewhere, "label")
    answers = everything.answers(everything.table(new))
    np.testing.assert_array_equal(answers["answer"], model.predict(schema.numbers(new)[names]))
    again = table_system_from_bytes(table_system_to_bytes(everything))
    np.testing.assert_array_equal(again.answers(again.table(new))["probability"], answers["probability"])


def test_a_model_from_a_file_that_does_not_suit_is_refused(small_grid, tmp_path, make_table):
    frame = make_table(300)
    with_more = frame.assign(more=1.0)
    path = frozen_file(tmp_path / "f0.skops", LogisticRegression(), with_more, ["age", "more"])
    with pytest.raises(InvalidInputError, match="f0.skops reads 'more', not a feature of the table"):
        fit_table(frame, "label", Wish(budget=3.0), full=path)
    nameless = LogisticRegression().fit(frame[["age"]].to_numpy(), frame["label"])
    skops.io.dump(nameless, tmp_path / "nameless.skops")
    with pytest.raises(InvalidInputError, match="was fitted on 1 columns without names, and the table has 6"):
        fit_table(frame, "label", Wish(budget=3.0), full=str(tmp_path / "nameless.skops"))
    forest = RandomForestClassifier(3, random_state=0).fit(frame[["age"]], frame["label"])
    skops.io.dump(forest, tmp_path / "forest.skops")
    assert full_models.load_full(tmp_path / "forest.skops").predict(frame[["age"]]).shape == (300,)


@pytest.mark.parametrize("wish", [{}, {"budget": 1.0, "max_loss": 0.1}])
def test_one_wish_is_needed_and_only_one(wish):
    with pytest.raises(InvalidInputError, match="give one of --budget"):
        Wish(**wish)


@pytest.mark.parametrize("wish", [{"budget": -1.0}, {"max_loss": 0.0}, {"max_loss": 0.1, "confidence": 1.0}])
def test_wishes_that_nobody_can_have_are_refused(wish):
    with pytest.raises(InvalidInputError, match="must"):
        Wish(**wish)


def test_a_budget_that_is_more_than_everything_costs_is_not_spent_and_that_is_said(small_grid, make_table):
    fit = fit_table(make_table(600), "label", Wish(budget=50.0), full="svm")
    assert fit.system.promise.cost <= 6.0
    assert any("the budget of 50 is not spent" in note for note in fit.notes)


def test_a_budget_between_tied_scores_is_met_by_a_share_of_the_tied_rows(small_grid):
    chance = np.random.default_rng(0)

    def coins(n):
        tosses = chance.integers(0, 2, (n, 6))
        frame = pd.DataFrame(tosses, columns=list("abcdef")).assign(x=chance.normal(size=n).round(6))
        score = tosses[:, 0] + tosses[:, 1] + 0.1 * frame["x"] + chance.normal(size=n)
        return frame.assign(label=(score > 1).astype(int))

    fit = fit_table(coins(1200), "label", Wish(budget=2.3), full="svm")
    system, new = fit.system, coins(20_000)
    assert system.tie is not None
    assert system.promise.cost == pytest.approx(2.3)
    X = system.table(new)
    spent = system.answers(X)["cost"].mean()
    assert abs(spent - 2.3) < 3 * system.promise.spread(20_000)
    # No threshold alone comes near.
    g = system.systems[system.chosen].estimator.scores(X)[0]
    alone = [system.system.with_threshold(cut).cost(X).mean() for cut in np.unique(g)]
    assert np.abs(np.array(alone) - 2.3).min() > 2 * abs(spent - 2.3)


def test_the_interval_of_new_rows_holds_their_own_chance_too():
    promise = Promise(0.9, 0.88, 0.915, 4.0, 0.1, 0.01, 2.0, 6.0, 0.95)
    many, few = promise.interval(10**9), promise.interval(400)
    assert many == pytest.approx((0.88, 0.915), abs=1e-4)
    assert few[0] == pytest.approx(0.9 - np.hypot(0.02, 1.96 * np.sqrt(0.09 / 400)))
    assert promise.interval(1)[1] == 1.0


def test_the_interval_of_new_rows_covers_as_often_as_it_says():
    chance = np.random.default_rng(1)
    inside, inside_confidence = [], []
    for _ in range(150):
        g = chance.normal(size=400)
        right = chance.random((2, 400)) < 0.85
        outcomes = RowOutcomes(g=g, stop_cost=1.0, go_cost=5.0, stop_right=right[0], go_right=right[1])
        promise = promised(outcomes, Choice(0, 0.5, tie=Tie(-0.5, 0.3)))
        new = (chance.random(600) < 0.85).mean()
        low, high = promise.interval(600)
        inside.append(low <= new <= high)
        inside_confidence.append(promise.low <= new <= promise.high)
    assert 0.92 <= np.mean(inside) <= 0.99
    assert np.mean(inside_confidence) < 0.9


def test_why_a_budget_is_not_met_is_said_and_only_then():
    promise = Promise(0.9, 0.88, 0.92, 2.6, 0.01, 0.01, 2.0, 50.0, 0.95)
    spending = Choice(0, 1.0, spends_all=True)
    assert fitting._unspent(spending, promise, 2.61, 100) == []
    assert "one of them sent to f0 is worth 0.48" in fitting._unspent(spending, promise, 2.5, 100)[0]
    assert "bought nothing that showed" in fitting._unspent(Choice(0, 1.0), promise, 4.0, 100)[0]
