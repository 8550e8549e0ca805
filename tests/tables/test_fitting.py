import numpy as np
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from thrifty import BudgetedClassifier
from thrifty.chain.columns import FrameOfFit
from thrifty.errors import InvalidInputError
from thrifty.tables import fit as fitting
from thrifty.tables import full_models, training
from thrifty.tables.fit import FitGoal, fit_table
from thrifty.tables.schema import learn_schema
from thrifty.tables.storage import table_system_from_bytes, table_system_to_bytes
from thrifty.tasks.classes import classification

pytestmark = pytest.mark.slow

TWO = classification(np.array([0, 1]))


def numbers(frame):
    schema = learn_schema(frame, "label")
    return schema.cells(frame).table(FrameOfFit("pandas", schema.names, None, None))


def test_the_cascade_is_fitted_and_spends_the_budget(fitted, make_table):
    system = fitted.system
    assert isinstance(system.estimator, BudgetedClassifier)
    assert system.promise.cost == pytest.approx(3.0)
    assert fitted.notes == ("no --costs file: every column costs 1",)
    new = make_table(4000, seed=1)
    answers = system.answers(system.read(new))
    assert abs(answers["cost"].mean() - 3.0) < 3 * system.promise.spread(4000)
    assert np.mean(answers["answer"] == new["label"]) > system.promise.low - 0.03


def test_answers_are_those_of_the_estimator_with_the_labels_of_the_table(fitted, make_table):
    system, new = fitted.system, make_table(300, seed=3)
    cells = system.read(new)
    answers = system.answers(cells)
    X, estimator = cells.table(None), system.estimator
    np.testing.assert_array_equal(answers["answer"], np.array(["no", "yes"])[estimator.predict(X)])
    np.testing.assert_array_equal(answers["probability"], estimator.predict_proba(X).max(axis=1))
    np.testing.assert_array_equal(answers["cost"], estimator.cost(X))
    route = estimator.route(X)
    told = np.where(route == system.chain.n_stages, "full", route.astype(str))
    np.testing.assert_array_equal(answers["stage"], told)


def test_one_fit_answers_any_budget_and_says_what_to_expect_of_it(fitted, make_table):
    cells = fitted.system.read(make_table(3000, seed=4))
    costs = []
    for budget in (1.2, 2.0, 3.0):
        moved = fitted.system.at(budget=budget)
        costs.append(moved.answers(cells)["cost"].mean())
        assert moved.promise.cost <= budget + 1e-9
        assert abs(costs[-1] - moved.promise.cost) < 4 * moved.promise.spread(3000)
    assert costs[0] < costs[1] < costs[2]
    with pytest.raises(InvalidInputError, match="budget must be at least"):
        fitted.system.at(budget=0.1)


def test_the_rows_at_hand_hold_a_budget(fitted, make_table):
    cells = fitted.system.read(make_table(1000, seed=2))
    for budget in (1.5, 2.0, 2.123):
        spent = fitted.system.held(cells, budget).answers(cells)["cost"].mean()
        assert budget - 6.0 / 1000 <= spent <= budget + 1e-9
    with pytest.raises(InvalidInputError, match="budget must be at least"):
        fitted.system.held(cells, 0.0)


def test_what_no_row_reads_may_be_absent_unseen_or_nonsense(fitted, make_table):
    system, new = fitted.system.at(budget=1.2), make_table(300, seed=5)
    before = system.answers(system.read(new))
    place_of = {"full": system.chain.n_stages} | {str(place): place for place in range(system.chain.n_stages)}
    held = system.chain.bought_by_place[[place_of[stage] for stage in before["stage"]]]
    strange = new.astype(object)
    never = [name for name, read in zip(system.schema.names, held.any(axis=0), strict=True) if not read]
    assert never, "some column is never read at this budget"
    for place, name in enumerate(system.schema.names):
        strange.loc[~held[:, place], name] = "nonsense"
    after = system.answers(system.read(strange.drop(columns=never)))
    for name, column in before.items():
        np.testing.assert_array_equal(after[name], column)
    place = int(np.argmax(held.any(axis=0)))
    row = int(np.argmax(held[:, place]))
    strange.loc[row, system.schema.names[place]] = "nonsense"
    with pytest.raises(InvalidInputError, match=f"'nonsense' in row {row + 1}"):
        system.answers(system.read(strange))


def test_an_explanation_has_the_names_and_labels_of_the_table_and_the_answer_of_the_row(fitted, make_table):
    system = fitted.system
    cells = system.read(make_table(30, seed=6))
    answers = system.answers(cells)
    for row, one in enumerate(system.explain(cells)):
        assert one.answer == answers["answer"][row]
        assert one.cost == answers["cost"][row]
        assert set(one.bought) <= set(system.schema.names)
        # A row that is read alone goes the way it goes among the others.
        (alone,) = system.explain(cells.take(np.array([row])))
        assert alone == one


def test_a_loss_is_proved_on_rows_of_its_own_or_only_estimated(certified, fitted):
    certificate = certified.system.certificate
    assert certificate.max_loss == 0.1
    assert 300 < certificate.n_rows < 450
    assert certified.system.at(max_loss=0.2).certificate is None
    assert certified.system.at(budget=2.0).certificate is None
    assert fitted.system.at(max_loss=0.1).certificate is None


def test_the_same_seed_gives_the_same_system(small_fits, fitted, make_table):
    told = []
    again = fit_table(
        make_table(), "label", FitGoal(budget=3.0), full="svm", progress=lambda *what: told.append(what)
    )
    assert again.system.promise == fitted.system.promise
    assert "judging the full model" in {what for what, _, _ in told}


def test_without_a_wish_the_most_accurate_point_is_kept(small_fits, fitted, make_table):
    best = fit_table(make_table(), "label", FitGoal(), full="svm").system
    assert best.promise.accuracy >= fitted.system.promise.accuracy - 1e-9
    assert (best.about.budget, best.about.max_loss) == (None, None)


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_the_full_model_reads_and_is_billed_for_its_own_columns(small_fits, make_table):
    fit = fit_table(
        make_table(600), "label", FitGoal(), full="svm", full_features=["age", "colour"], full_cost=0.5
    )
    assert fit.system.promise.full_cost == 2.5
    assert fit.system.chain.innermost.estimator.n_features_in_ == 2


def test_missing_values_are_fine_for_models_that_read_them_and_refused_by_column_for_others(
    small_fits, make_table, monkeypatch
):
    frame = make_table(600)
    frame.loc[5, "age"] = None
    told = r"column 'age' is missing in row 6, and the full model \(svm\) reads no missing"
    with pytest.raises(InvalidInputError, match=told):
        fit_table(frame, "label", FitGoal(budget=4.0), full="svm")
    monkeypatch.setattr(fitting, "recipe", lambda *_: RandomForestClassifier(20, random_state=0))
    fit = fit_table(frame, "label", FitGoal(budget=4.0), full="forest")
    cells = fit.system.read(frame.assign(noise=None, old=None, colour=None, age=None))
    answers = fit.system.answers(cells)
    assert len(answers["answer"]) == 600
    assert fit.system.starved(cells, np.full(600, "full")) == 600
    assert fit.system.starved(fit.system.read(frame), np.full(600, "full")) == 0


def test_the_best_kind_wins_and_models_that_cannot_take_part_do_not(make_table, monkeypatch):
    frame = make_table(500)
    X, y = numbers(frame).to_numpy(), (frame["label"] == "yes").to_numpy().astype(int)
    depths = {"forest": 1, "svm": 8, "boosting": 1}
    monkeypatch.setattr(full_models, "_is_installed", lambda _: False)
    monkeypatch.setattr(full_models, "SAMPLE", 300)
    with monkeypatch.context() as patch:
        patch.setattr(full_models, "recipe", lambda kind, *_: DecisionTreeClassifier(max_depth=depths[kind]))
        found = full_models.best_kind(
            X, y, TWO, seed=0, n_jobs=1, has_missing=False, progress=lambda *_: None
        )
    assert list(found.accuracy) == ["forest", "svm", "boosting"]
    assert found.winner == "svm"
    assert found.n_rows == 300
    assert full_models._eligible(500, True) == ["forest", "boosting"]
    assert full_models._eligible(10**6, False) == ["forest", "boosting"]
    for kind, name in (("xgboost", "XGBoost"), ("lightgbm", "LightGBM")):
        with pytest.raises(InvalidInputError, match=f"--full {kind} needs {name}"):
            full_models.recipe(kind, 0, 1)


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_boosters_of_others_are_fitted_kept_in_the_file_and_read_from_a_file(
    small_fits, make_table, tmp_path, monkeypatch, kind
):
    pytest.importorskip(kind)
    small = full_models.recipe(kind, 0, 1).set_params(n_estimators=10)
    monkeypatch.setattr(fitting, "recipe", lambda *_: small)
    frame, new = make_table(600), make_table(50, seed=8)
    system = fit_table(frame, "label", FitGoal(), full=kind, full_features=["age", "lab one"]).system
    again = table_system_from_bytes(table_system_to_bytes(system))
    cells = system.read(new)
    np.testing.assert_array_equal(again.answers(cells)["probability"], system.answers(cells)["probability"])
    skops.io.dump(small.fit(numbers(frame).to_numpy(), frame["label"] == "yes"), tmp_path / "f0.skops")
    loaded = full_models.load_full(tmp_path / "f0.skops")
    assert loaded.predict_proba(numbers(new).to_numpy()).shape == (50, 2)


def frozen_file(path, model, frame, names):
    skops.io.dump(model.fit(numbers(frame)[names], frame["label"].to_numpy()), path)
    return str(path)


@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
def test_a_fitted_model_from_a_file_reads_its_own_columns_in_its_own_order(small_fits, tmp_path, make_table):
    frame, elsewhere = make_table(600), make_table(600, seed=7)
    names = ["colour", "lab two", "lab one", "age"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    path = frozen_file(tmp_path / "f0.skops", model, elsewhere, names)
    fit = fit_table(frame, "label", FitGoal(budget=3.0), full=path)
    system = fit.system
    assert list(system.schema.names) == [*names, "noise", "old"]
    assert system.promise.full_cost == 4
    assert any("does not read 'noise', 'old'" in note for note in fit.notes)
    new = make_table(50, seed=8)
    cells, chain = system.read(new), system.chain
    asked = chain.ask_full(system.reader(cells), np.arange(50))
    expected = model.predict_proba(numbers(new)[names])[:, 1]
    np.testing.assert_allclose(asked[:, 1], np.clip(expected, 1e-6, 1 - 1e-6))
    again = table_system_from_bytes(table_system_to_bytes(system))
    np.testing.assert_array_equal(again.answers(cells)["probability"], system.answers(cells)["probability"])


def test_a_model_from_a_file_that_does_not_suit_is_refused(tmp_path, make_table):
    frame = make_table(300)

    def refused(path, told, **more):
        with pytest.raises(InvalidInputError, match=told):
            fit_table(frame, "label", FitGoal(budget=3.0), full=str(path), **more)

    with_more = frame.assign(more=1.0)
    path = frozen_file(tmp_path / "f0.skops", LogisticRegression(), with_more, ["age", "more"])
    refused(path, "f0.skops reads 'more', not a feature of the table")
    nameless = LogisticRegression().fit(frame[["age"]].to_numpy(), frame["label"])
    skops.io.dump(nameless, tmp_path / "nameless.skops")
    refused(tmp_path / "nameless.skops", "was fitted on 1 columns without names, and 6 are given to it")
    path = frozen_file(tmp_path / "age.skops", LogisticRegression(), frame, ["age"])
    refused(path, "age.skops reads 'age', and --full-features names 'noise'", full_features=["noise"])
    other = LogisticRegression().fit(numbers(frame), frame["label"] == "yes")
    skops.io.dump(other, tmp_path / "other.skops")
    refused(tmp_path / "other.skops", "other.skops was fitted on the classes")
    forest = RandomForestClassifier(3, random_state=0).fit(frame[["age"]], frame["label"])
    skops.io.dump(forest, tmp_path / "forest.skops")
    assert full_models.load_full(tmp_path / "forest.skops").predict(frame[["age"]]).shape == (300,)


@pytest.mark.parametrize(
    "wish",
    [
        {"budget": 1.0, "max_loss": 0.1},
        {"budget": -1.0},
        {"max_loss": 0.0},
        {"max_loss": 0.1, "confidence": 1.0},
    ],
)
def test_wishes_that_nobody_can_have_are_refused(wish):
    with pytest.raises(InvalidInputError, match="must|at most one"):
        FitGoal(**wish)


@pytest.mark.parametrize(
    ("wish", "more", "told"),
    [
        ({"budget": 0.5}, {}, "--budget must be at least 1, the price of the cheapest purchase"),
        ({"max_loss": 0.001}, {}, "held-out rows cannot show a loss of at most 0.1 %"),
        ({"budget": 3.0}, {"full_features": ["town"]}, "--full-features names 'town', not a feature"),
        ({"budget": 3.0}, {"full_features": ["age", "age"]}, "must name every column once"),
    ],
)
def test_what_no_fit_can_meet_is_refused_before_anything_is_fitted(make_table, monkeypatch, wish, more, told):
    def fail(*_, **__):
        pytest.fail("something was fitted")

    for name in ("best_kind", "BudgetedClassifier"):
        monkeypatch.setattr(fitting, name, fail)
    with pytest.raises(InvalidInputError, match=told):
        fit_table(make_table(), "label", FitGoal(**wish), **more)


def test_a_table_with_too_few_rows_of_a_class_is_refused(make_table):
    frame = make_table(600)
    few = frame[(frame["label"] == "no") | (np.arange(600) < 40)]
    with pytest.raises(InvalidInputError, match=f"at least {training.FEWEST} different rows of each class"):
        fit_table(few, "label", FitGoal(budget=3.0))


def test_a_budget_that_is_more_than_anything_costs_is_not_spent_and_that_is_said(small_fits, make_table):
    fit = fit_table(make_table(600), "label", FitGoal(budget=50.0), full="svm")
    assert fit.system.promise.cost <= 6.0
    assert any("the budget of 50 is not spent" in note for note in fit.notes)


@pytest.mark.slow
def test_a_column_with_a_single_value_is_fitted_behind_histogram_boosting(small_fits, make_table):
    frame = make_table(150)
    frame["rare"] = np.where(np.arange(150) == 7, 1.0, np.nan)
    system = fit_table(frame, "label", FitGoal(), full="boosting").system
    answers = system.answers(system.read(make_table(20, seed=1).assign(rare=5.0)))
    assert np.isfinite(answers["probability"]).all()


def test_full_models_compete_on_a_column_that_gives_the_label_away(monkeypatch):
    monkeypatch.setattr(full_models, "_eligible", lambda *_: ["svm"])
    y = np.arange(90) % 2
    found = full_models.best_kind(
        y[:, None].astype(float), y, TWO, seed=0, n_jobs=1, has_missing=False, progress=lambda *_: None
    )
    assert found.accuracy == {"svm": 1.0}
