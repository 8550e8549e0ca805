"""What `thrifty fit` fits: the estimator on the frame, at the goal of its options, in front of any full model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import thrifty
from thrifty import BudgetedClassifier, ConfidenceRouter, load, save
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli.options import Goal
from thrifty.cli.system import at_operating_point, count_mostly_missing, expected_of
from thrifty.engine.evidence.budgets import hold_budget
from thrifty.engine.evidence.collect import chain_of
from thrifty.engine.full import crossfit
from thrifty.engine.table.columns import learn_levels
from thrifty.engine.table.table import Table
from thrifty.engine.table.training import FEWEST
from thrifty.engine.tasks.classes import classification
from thrifty.errors import InvalidInputError
from thrifty.learners import table_fit
from thrifty.reporting.measure import expected

pytestmark = pytest.mark.slow

TWO = classification(np.array([0, 1]))


def numbers(frame):
    features = frame.drop(columns="label")
    table = Table.of(features)
    return pd.DataFrame(learn_levels(table).numbers(table), columns=features.columns)


@pytest.fixture(scope="module")
def fitted(fit_by_command, make_table):
    return fit_by_command(make_table(), "label", "--budget", 3, "--full", "svm")


@pytest.fixture(scope="module")
def certified(fit_by_command, make_table):
    return fit_by_command(make_table(1500), "label", "--max-loss", 0.1, "--full", "svm")


def cells_of(system, frame):
    return chain_of(system).schema.cells(frame)


def test_the_estimator_in_the_file_answers_tables_as_the_commands_do(fitted, make_table, answers_to):
    assert isinstance(fitted, BudgetedClassifier)
    assert fitted.record_.target == "label"
    facts, new = expected_of(fitted), make_table(4000, seed=1)
    assert facts.cost.value == pytest.approx([3.0])
    answers, X = answers_to(fitted, new), new.drop(columns="label")
    low, high = fitted.expected_cost_interval_
    assert low < answers["cost"].mean() < high
    assert np.mean(answers["answer"] == new["label"]) > facts.score.low[0] - 0.03
    np.testing.assert_array_equal(answers["answer"], fitted.predict(X))
    np.testing.assert_array_equal(answers["probability"], fitted.predict_proba(X).max(axis=1))
    np.testing.assert_array_equal(answers["cost"], fitted.cost(X))
    route = fitted.route(X)
    np.testing.assert_array_equal(
        answers["stage"], np.where(route == fitted.n_stages_, "full", route.astype(str))
    )


def test_one_fit_answers_any_budget_and_says_what_to_expect_of_it(fitted, make_table, answers_to):
    new, costs = make_table(3000, seed=4), []
    for budget in (1.2, 2.0, 3.0):
        moved = at_operating_point(fitted, Goal(budget=budget))
        costs.append(answers_to(moved, new)["cost"].mean())
        assert moved.expected_cost_ <= budget + 1e-9
        low, high = moved.expected_cost_interval_
        assert low - 0.1 < costs[-1] < high + 0.1
    assert costs[0] < costs[1] < costs[2]
    with pytest.raises(InvalidInputError, match="budget must be at least"):
        at_operating_point(fitted, Goal(budget=0.1))


def test_the_rows_at_hand_hold_a_budget(fitted, make_table, answers_to):
    new = make_table(1000, seed=2)
    for budget in (1.5, 2.0, 2.123):
        held = hold_budget(fitted, fitted.chain_.schema.table_of(cells_of(fitted, new)), budget)
        assert budget - 6.0 / 1000 <= answers_to(held, new)["cost"].mean() <= budget + 1e-9


def test_what_no_row_reads_may_be_absent_unseen_or_nonsense(fitted, make_table, answers_to):
    system, new = (
        at_operating_point(fitted, Goal(budget=float(fitted.chain_.policy.cost[0]))),
        make_table(300, seed=5),
    )
    names, before = system.chain_.schema.names, answers_to(system, new)
    place_of = {"full": system.n_stages_} | {str(place): place for place in range(system.n_stages_)}
    held = system.chain_.bought_by_place[[place_of[stage] for stage in before["stage"]]]
    strange = new.astype(object)
    never = [name for name, read in zip(names, held.any(axis=0), strict=True) if not read]
    assert never, "some column is never read at this budget"
    for place, name in enumerate(names):
        strange.loc[~held[:, place], name] = "nonsense"
    after = answers_to(system, strange.drop(columns=never))
    for name, column in before.items():
        np.testing.assert_array_equal(after[name], column)
    place = int(np.argmax(held.any(axis=0)))
    row = int(np.argmax(held[:, place]))
    strange.loc[row, names[place]] = "nonsense"
    with pytest.raises(InvalidInputError, match=f"'nonsense' in row {row + 1}"):
        answers_to(system, strange)


def test_a_loss_is_proved_on_rows_of_its_own_or_only_estimated(certified, fitted):
    certificate = certified.certificate_
    assert certificate.max_loss == 0.1
    assert 300 < certificate.n_rows < 450
    assert at_operating_point(certified, Goal(budget=2.0)).certificate_ is None
    assert at_operating_point(certified, Goal(max_loss=0.2)).certificate_ is None
    assert at_operating_point(fitted, Goal(max_loss=0.1)).certificate_ is None


def test_without_a_goal_the_most_accurate_point_is_kept(fit_by_command, fitted, make_table):
    best = fit_by_command(make_table(), "label", "--full", "svm")
    assert best.expected_score_ >= fitted.expected_score_ - 1e-9


def test_a_file_comes_back_as_the_estimator_and_answers_to_the_last_bit(
    fitted, certified, make_table, answers_to, tmp_path
):
    new = make_table(200, seed=5)
    for system in (fitted, certified):
        save(system, tmp_path / "system.thrifty")
        again = load(tmp_path / "system.thrifty")
        for name, column in answers_to(system, new).items():
            np.testing.assert_array_equal(answers_to(again, new)[name], column)
        assert expected(again, n_boot=40) == expected(system, n_boot=40)
        assert again.certificate_ == system.certificate_
        assert type(again) is BudgetedClassifier


def test_an_estimator_that_was_saved_by_itself_is_read(make_table, answers_to, tmp_path):
    from sklearn.linear_model import LogisticRegression

    frame = make_table(200)[["age", "lab one", "label"]]
    X = frame[["age", "lab one"]]
    clf = ConfidenceRouter(LogisticRegression(), features=[0]).fit(X, frame["label"])
    save(clf, tmp_path / "named.thrifty")
    system = load(tmp_path / "named.thrifty")
    np.testing.assert_array_equal(answers_to(system, frame)["answer"], clf.predict(X))
    with pytest.raises(InvalidInputError, match="Chain that was saved from Python"):
        expected_of(system.chain_)
    nameless = ConfidenceRouter(LogisticRegression(), features=[0]).fit(X.to_numpy(), frame["label"])
    assert nameless.chain_.schema.names == ("x0", "x1")


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_the_full_model_reads_and_is_billed_for_its_own_columns(fit_by_command, make_table):
    read = ("--full-features", "age", "--full-features", "colour", "--full-cost", 0.5)
    system = fit_by_command(make_table(600), "label", "--full", "svm", *read)
    assert system.chain_.price_list.cost_of_full == 2.5
    assert system.chain_.innermost.estimator.n_features_in_ == 2


def test_missing_values_are_fine_for_models_that_read_them_and_refused_by_column_for_others(
    fit_by_command, refused, make_table, answers_to, monkeypatch, tmp_path
):
    frame = make_table(600)
    frame.loc[5, "age"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    goal = ("--target", "label", "--budget", 4, "-o", tmp_path / "s.thrifty")
    told = refused("fit", tmp_path / "t.csv", *goal, "--full", "svm")
    assert "column 'age' is missing in row 6, and the full model (svm) reads no missing" in told
    monkeypatch.setattr(table_fit, "new_model", lambda *_: RandomForestClassifier(20, random_state=0))
    system = fit_by_command(frame, "label", "--budget", 4, "--full", "forest")
    empty = frame.assign(noise=None, old=None, colour=None, age=None)
    assert len(answers_to(system, empty)["answer"]) == 600
    assert count_mostly_missing(system, cells_of(system, empty), np.full(600, "full")) == 600
    assert count_mostly_missing(system, cells_of(system, frame), np.full(600, "full")) == 0


def test_the_best_kind_wins_and_models_that_cannot_take_part_do_not(make_table, monkeypatch):
    frame = make_table(500)
    X, y = numbers(frame).to_numpy(), (frame["label"] == "yes").to_numpy().astype(int)
    depths = {"forest": 1, "svm": 4, "boosting": 1}
    monkeypatch.setattr(crossfit, "_is_installed", lambda _: False)
    monkeypatch.setattr(crossfit, "SAMPLE", 300)
    with monkeypatch.context() as patch:
        patch.setattr(
            crossfit,
            "new_model",
            lambda kind, *_: DecisionTreeClassifier(max_depth=depths[kind], random_state=0),
        )
        found = crossfit.compare_kinds(X, y, TWO, seed=0, n_jobs=1, progress=lambda *_: None)
    assert list(found.scores) == ["forest", "svm", "boosting"]
    assert found.best == "svm"
    assert found.n_rows == 300
    assert crossfit._eligible(500, True) == ["forest", "boosting"]
    assert crossfit._eligible(10**6, False) == ["forest", "boosting"]
    for kind, name in (("xgboost", "XGBoost"), ("lightgbm", "LightGBM")):
        with pytest.raises(InvalidInputError, match=f"the full model {kind} needs {name}"):
            crossfit.new_model(kind, 0, 1)


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_boosters_of_others_learn_labels_of_text_and_are_kept_in_the_file(
    fit_by_command, make_table, monkeypatch, answers_to, kind
):
    pytest.importorskip(kind)
    small = crossfit.new_model(kind, 0, 1).set_params(n_estimators=10)
    monkeypatch.setattr(table_fit, "new_model", lambda *_: small)
    read = ("--full-features", "age", "--full-features", "lab one")
    system = fit_by_command(make_table(600), "label", "--full", kind, *read)
    new = make_table(50, seed=8)
    answers = answers_to(at_operating_point(system, Goal(budget=4.0)), new)
    assert set(answers["answer"]) == {"no", "yes"}
    again = from_bytes(to_bytes(system))
    np.testing.assert_array_equal(
        answers_to(again, new)["probability"], answers_to(system, new)["probability"]
    )


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_fitted_model_from_a_file_reads_its_own_columns_in_its_own_order(
    fit_by_command, tmp_path, make_table, capsys
):
    frame, elsewhere, names = make_table(600), make_table(600, seed=7), ["lab two", "lab one", "age"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    thrifty.save(model.fit(elsewhere[names], elsewhere["label"]), tmp_path / "f0.thrifty")
    system = fit_by_command(frame, "label", "--budget", 3, "--full", tmp_path / "f0.thrifty")
    assert system.feature_names_in_.tolist()[:3] == names
    assert system.chain_.price_list.cost_of_full == 3
    assert "does not read 'noise', 'colour', 'old'" in capsys.readouterr().err.replace("\n", " ")
    new, chain = make_table(50, seed=8), system.chain_
    asked = chain.ask_full(chain.reader(cells_of(system, new)), np.arange(50))
    expected = model.predict_proba(new[names])[:, 1]
    np.testing.assert_allclose(asked[:, 1], np.clip(expected, 1e-6, 1 - 1e-6))


def test_a_model_from_a_file_that_does_not_suit_is_refused(tmp_path, make_table, refused):
    frame = make_table(300)
    frame.to_csv(tmp_path / "t.csv", index=False)

    def told(name, X, y, *more):
        thrifty.save(LogisticRegression().fit(X, y), tmp_path / f"{name}.thrifty")
        goal = ("--target", "label", "--budget", 3, "-o", tmp_path / "s.thrifty")
        return refused("fit", tmp_path / "t.csv", *goal, "--full", tmp_path / f"{name}.thrifty", *more)

    label, coded = frame["label"], numbers(frame)
    assert "more.thrifty names 'more', not a column" in told(
        "more", frame.assign(more=1.0)[["age", "more"]], label
    )
    words = "was fitted on 1 columns without names, and 6 are given to it"
    assert words in told("nameless", frame[["age"]].to_numpy(), label)
    words = "--full-features must be left out: age.thrifty reads 'age'; got 'noise'"
    assert words in told("age", frame[["age"]], label, "--full-features", "noise")
    assert "other.thrifty was fitted on the classes" in told("other", coded[["age"]], label == "yes")
    assert "coded.thrifty reads 'colour' as numbers, and the table holds text" in told("coded", coded, label)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", 1, "--max-loss", 0.1), "give one of --budget, --max-loss; got"),
        (("--max-loss", 0.1, "--confidence", 1), "--confidence must lie strictly between 0 and 1; got 1.0"),
        (("--budget", 0.5), "--budget must be at least 1, the price of the cheapest purchase"),
        (("--max-loss", 0.001), "held-out rows cannot show a loss of at most 0.1 %"),
        (("--full-features", "town"), "--full-features names 'town', not a column"),
    ],
)
def test_what_no_fit_can_meet_is_refused_before_anything_is_fitted(
    make_table, monkeypatch, refused, tmp_path, options, words
):
    make_table().to_csv(tmp_path / "t.csv", index=False)
    for name in ("compare_kinds", "new_model"):
        monkeypatch.setattr(table_fit, name, lambda *_, **__: pytest.fail("something was fitted"))
    assert words in refused(
        "fit", tmp_path / "t.csv", "--target", "label", *options, "-o", tmp_path / "s.thrifty"
    )


def test_a_table_with_too_few_rows_of_a_class_is_refused(make_table, refused, tmp_path):
    frame = make_table(600)
    frame[(frame["label"] == "no") | (np.arange(600) < 40)].to_csv(tmp_path / "t.csv", index=False)
    told = refused("fit", tmp_path / "t.csv", "--target", "label", "-o", tmp_path / "s.thrifty")
    assert f"at least {FEWEST} different rows of each class" in told


def test_a_budget_that_is_more_than_anything_costs_is_not_spent_and_that_is_said(
    fit_by_command, make_table, capsys
):
    system = fit_by_command(make_table(600), "label", "--budget", 50, "--full", "svm")
    assert system.expected_cost_ <= 6.0
    assert "the budget of 50 is not spent" in capsys.readouterr().err.replace("\n", " ")


def test_a_column_with_a_single_value_is_fitted_behind_histogram_boosting(
    fit_by_command, make_table, answers_to
):
    frame = make_table(150)
    frame["rare"] = np.where(np.arange(150) == 7, 1.0, np.nan)
    system = fit_by_command(frame, "label", "--full", "boosting")
    answers = answers_to(system, make_table(20, seed=1).assign(rare=5.0))
    assert np.isfinite(answers["probability"]).all()


def test_full_models_compete_on_a_column_that_gives_the_label_away(monkeypatch):
    monkeypatch.setattr(crossfit, "_eligible", lambda *_: ["svm"])
    y = np.arange(90) % 2
    found = crossfit.compare_kinds(
        y[:, None].astype(float), y, TWO, seed=0, n_jobs=1, progress=lambda *_: None
    )
    assert found.scores == {"svm": 1.0}
