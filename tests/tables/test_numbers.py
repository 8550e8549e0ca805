"""Tables whose target is a number: told from the column, promised in the user's unit, refused in words."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from thrifty.bundle.fields import Fields, Packer, Unpacker
from thrifty.chain.policy import Policy
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.tables.fit import FitGoal, fit_table
from thrifty.tables.full_models import best_kind, recipe
from thrifty.tables.promise import promise_of
from thrifty.tables.schema import MOST_NUMBERED, classes_of
from thrifty.tables.storage import _unpack_numbers
from thrifty.tasks.regression import regression_of


@pytest.fixture(scope="module")
def one_gate():
    """Numbers in a unit, what a stage and a full model say about them, and a gate before the latter."""
    chance = np.random.default_rng(0)
    y = 100 + 30 * chance.normal(size=600)
    said = [y + error * chance.normal(size=600) for error in (15, 8)]
    gate = chance.normal(size=600)

    def system(kind):
        task = regression_of(y, kind)
        target, scores = (
            task.encode("y", y, len(y)),
            np.stack([task.scores(one[:, None]) for one in said], axis=1),
        )
        quality = np.stack([task.quality_of_scores(target, scores[:, place]) for place in (0, 1)], axis=1)
        known = {"target": target, "scores": scores, "full_scores": scores[:, 1]}
        evidence = Evidence(gate[:, None], quality, np.array([1.0, 5.0]), quality[:, 1], **known)
        prices, policy = SimpleNamespace(cost_of_full=5.0), Policy.of(np.array([0.0]))
        chain = SimpleNamespace(policy=policy, blend=None, price_list=prices, task=task)
        return SimpleNamespace(chain_=chain, evidence_=evidence)

    return SimpleNamespace(y=y, said=said, gate=gate, system=system)


def frame_of(values):
    return pd.DataFrame({"x": np.arange(len(values)), "y": values})


@pytest.mark.parametrize(
    ("values", "task", "n_classes"),
    [
        (np.arange(100) % MOST_NUMBERED, None, MOST_NUMBERED),
        (np.arange(100) % (MOST_NUMBERED + 1), None, 0),
        (np.linspace(0, 1, 100), None, 0),
        ([f"name {k % 50}" for k in range(100)], None, 50),
        (np.arange(100) % 2 == 0, None, 2),
        (np.arange(100) % 3, "number", 0),
        (np.arange(100), "classes", 100),
    ],
)
def test_a_column_tells_whether_it_holds_classes_or_numbers_unless_somebody_says_it(values, task, n_classes):
    assert len(classes_of(frame_of(values), "y", task)) == n_classes


@pytest.mark.parametrize(
    ("values", "task", "words"),
    [
        (
            [1.5, np.nan, *range(50)],
            None,
            "column 'y', the label, is missing in 1 of 52 rows, the first of them row 2",
        ),
        (
            [1.5, np.inf, *range(50)],
            None,
            "must hold finite numbers, which are what is predicted; got inf in row 2",
        ),
        (["1.5", "2", "red"], "number", "must hold finite numbers.*got 'red' in row 3.*--task classes"),
        ([2.5] * 60, "number", "must hold different numbers; all 60 are 2.5"),
        ([1, 2], "numbers", "--task must be one of classes, number, ranking; got 'numbers'"),
    ],
)
def test_a_target_that_cannot_be_predicted_as_a_number_is_refused_by_row_and_value(values, task, words):
    with pytest.raises(InvalidInputError, match=words):
        classes_of(frame_of(values), "y", task)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"full": "svm"}, "--full svm answers with classes, and here numbers are predicted"),
        ({"task": "classes", "loss": "absolute"}, "--loss is for a target of numbers; got --loss absolute"),
        (
            {"task": "classes", "loss": "pinball:0.9"},
            "--loss is for a target of numbers; got --loss pinball:0.9",
        ),
        ({"loss": "cubic"}, "loss must be squared, absolute, or pinball:Q .*got --loss cubic"),
        ({"loss": "pinball"}, "a quantile Q between 0 and 1, such as pinball:0.9, .*got --loss pinball, "),
        ({"loss": "pinball:1"}, "a quantile Q between 0 and 1, .*got --loss pinball:1, "),
    ],
)
def test_what_numbers_cannot_be_fitted_with_is_refused_before_anything_is_fitted(make_bikes, how, words):
    with pytest.raises(InvalidInputError, match=words):
        fit_table(make_bikes(100), "count", FitGoal(), **{"full": "boosting", **how})


def test_few_different_rows_are_refused(make_bikes):
    twice = pd.concat([make_bikes(40), make_bikes(40)])
    with pytest.raises(InvalidInputError, match="at least 60 different rows.*it has 40 among 80"):
        fit_table(twice, "count", FitGoal(), task="number", full="boosting")


@pytest.mark.parametrize("kind", ["boosting", "xgboost", "lightgbm"])
def test_a_full_model_of_a_quantile_is_above_that_share_of_the_targets(kind):
    pytest.importorskip(kind if kind != "boosting" else "sklearn")
    y = np.random.default_rng(0).exponential(size=400)
    X = np.repeat([[0.0], [1.0]], 200, axis=0)
    model = recipe(kind, 0, 1, regression_of(y, "pinball", quantile=0.8))
    assert np.mean(y <= model.fit(X, y).predict(X)) == pytest.approx(0.8, abs=0.02)


def test_the_full_model_of_numbers_is_chosen_by_r2(monkeypatch):
    from sklearn.linear_model import Ridge

    from thrifty.tables import full_models

    chance = np.random.default_rng(0)
    X = chance.normal(size=(300, 2))
    y = 10 + 5 * X[:, 0] + 0.1 * chance.normal(size=300)
    strengths = {"forest": 1e6, "boosting": 1e-3}
    monkeypatch.setattr(full_models, "_eligible", lambda *_: list(strengths))
    monkeypatch.setattr(full_models, "recipe", lambda kind, *_: Ridge(strengths[kind]))
    task = regression_of(y, "squared")
    found = best_kind(X, y, task, seed=0, n_jobs=1, has_missing=False, progress=lambda *_: None)
    assert found.winner == "boosting"
    assert found.accuracy["forest"] < 0.1 < 0.99 < found.accuracy["boosting"] < 1


@pytest.mark.parametrize("kind", ["squared", "absolute"])
def test_a_promise_of_numbers_tells_r2_and_mean_errors_in_the_unit_of_the_target(kind, one_gate):
    y, said = one_gate.y, one_gate.said
    system = one_gate.system(kind)
    promise, sent = promise_of(system), one_gate.gate > 0
    served = np.where(sent, said[1], said[0])
    rmse, mae = (promise.errors[name] for name in ("RMSE", "MAE"))
    assert rmse[0] == pytest.approx(root_mean_squared_error(y, served))
    assert mae[0] == pytest.approx(mean_absolute_error(y, served))
    assert rmse[1] < rmse[0] < rmse[2]
    assert mae[1] < mae[0] < mae[2]
    assert promise.full_errors["RMSE"] == pytest.approx(root_mean_squared_error(y, said[1]))
    best = np.full(len(y), y.mean() if kind == "squared" else np.sort(y)[(len(y) - 1) // 2])
    assert promise.constant_errors["MAE"] == pytest.approx(mean_absolute_error(y, best))
    assert promise.auc is promise.recall is None
    if kind == "squared":
        assert promise.accuracy == pytest.approx(r2_score(y, served))
        assert promise.majority == pytest.approx(0)


@pytest.mark.slow
def test_r2_of_few_new_rows_lies_in_the_promised_interval_as_often_as_it_says(one_gate):
    promise, chance = promise_of(one_gate.system("squared")), np.random.default_rng(1)
    served = np.where(one_gate.gate > 0, one_gate.said[1], one_gate.said[0])
    low, high = promise.interval(200)
    # Draws of the rows of the promise: only the chance of the new rows is at work, so it covers a little too often.
    drawn = [chance.integers(0, len(served), 200) for _ in range(200)]
    inside = [low <= r2_score(one_gate.y[rows], served[rows]) <= high for rows in drawn]
    assert 0.92 < np.mean(inside) < 1.0
    wide = promise.interval(20)
    assert wide[0] < low < promise.accuracy < high < wide[1]


def test_a_point_that_a_file_does_not_tell_the_answers_of_keeps_what_does_not_depend_on_it(one_gate):
    system = one_gate.system("squared")
    known = promise_of(system)
    system.evidence_ = Evidence.without_scores(system.evidence_)
    moved = promise_of(system, known)
    assert moved.errors is None
    assert moved.full_errors == known.full_errors
    assert moved.constant_errors == known.constant_errors
    assert moved.score_spread > 0


@pytest.mark.parametrize(
    "damaged",
    [
        {"RMSE": (1.0, 0.5)},
        {"RMSE": (1.0, 0.5, np.inf)},
        {"RMSE": 1.0},
        {"wit": (1.0, 0.5, 2.0)},
        [1.0, 0.5, 2.0],
    ],
)
def test_mean_errors_of_a_file_are_three_finite_numbers_by_name_or_refused(damaged):
    def read(errors):
        packer = Packer()
        facts = {"errors": packer.value(errors)}
        return _unpack_numbers(Fields(facts, Unpacker(packer.arrays), "promise"), "errors")

    sound = {"RMSE": (1.0, 0.5, 2.0), "MAE": (0.8, 0.4, 1.2)}
    assert read(sound) == sound
    with pytest.raises(InvalidInputError, match="3 for each of RMSE, MAE"):
        read(damaged)


@pytest.mark.slow
def test_a_system_of_numbers_answers_with_numbers_and_no_probability(bike_system, make_bikes):
    new = make_bikes(200, 1)
    answers = bike_system.answers(bike_system.read(new.drop(columns="count")))
    assert list(answers) == ["answer", "stage", "cost"]
    assert r2_score(new["count"], answers["answer"]) > 0.5
    cheaper = bike_system.at(budget=1.2)
    assert cheaper.promise.accuracy < bike_system.promise.accuracy
    assert cheaper.promise.errors["RMSE"][0] > bike_system.promise.errors["RMSE"][0]
    np.testing.assert_array_equal(bike_system.schema.labels(new), new["count"])
