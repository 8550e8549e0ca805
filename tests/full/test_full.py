import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from thrifty import BudgetedClassifier, DynaModLinClassifier, StageOptions
from thrifty.engine.full.crossfit import TrainingRows, assign_folds, cross_fit_full
from thrifty.engine.full.model import AbsentFull, CallableFull, EstimatorFull, PrecomputedFull, as_full_model
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import CLIP, BinaryTask
from thrifty.errors import InvalidInputError, OptimisticFullModelWarning
from thrifty.learners.dynamod import LinearOptions
from thrifty.rows import fingerprints

TASK = BinaryTask(np.array(["no", "yes"]))


def training_rows(table, X, y, classes, n_folds):
    folds = assign_folds(n_folds, X, y, y, 0)
    task = BinaryTask(np.array(classes))
    return TrainingRows(Table(X, table), y, task, np.ones(len(y)), folds)


@pytest.fixture(scope="module")
def rows():
    X, code = make_classification(400, 6, flip_y=0.2, random_state=0)
    return training_rows(X, X, np.where(code == 1, 1.0, -1.0), ["no", "yes"], 5)


def test_an_unfitted_model_is_judged_out_of_fold(rows):
    tree = DecisionTreeClassifier(random_state=0)
    judged = cross_fit_full(tree, rows)
    # A full tree is perfect on rows it has seen and cannot be on noisy rows it has not.
    in_sample = judged.model.outputs(rows.table.native, rows.X)[:, 1]
    assert np.all((in_sample > 0.5) == (rows.y > 0))
    assert 0.6 < np.mean((judged.outputs[:, 1] > 0.5) == (rows.y > 0)) < 0.95
    assert not hasattr(tree, "tree_")


def test_out_of_fold_probabilities_come_from_models_that_have_not_seen_the_row(rows):
    judged = cross_fit_full(LogisticRegression(), rows)
    for fold in range(5):
        out = rows.folds == fold
        fitted = LogisticRegression().fit(rows.X[~out], rows.labels[~out])
        np.testing.assert_allclose(judged.outputs[out, 1], fitted.predict_proba(rows.X[out])[:, 1])


def test_a_model_with_only_a_decision_function_is_calibrated_on_out_of_fold_scores(rows):
    judged = cross_fit_full(LinearSVC(random_state=0), rows)
    mean_by_third = [
        (judged.outputs[part, 1].mean(), (rows.y[part] > 0).mean())
        for part in np.array_split(np.argsort(judged.outputs[:, 1]), 3)
    ]
    for predicted, observed in mean_by_third:
        assert predicted == pytest.approx(observed, abs=0.08)


def test_a_frozen_model_is_used_as_it_is(rows):
    fitted = LogisticRegression().fit(rows.X, rows.labels)
    judged = cross_fit_full(FrozenEstimator(fitted), rows)
    np.testing.assert_allclose(judged.outputs[:, 1], fitted.predict_proba(rows.X)[:, 1])
    assert judged.model == EstimatorFull(fitted, TASK)


def test_a_frozen_model_that_was_trained_on_the_rows_raises_a_warning(rows):
    forest = RandomForestClassifier(50, bootstrap=False, random_state=0).fit(rows.X, rows.labels)
    with pytest.warns(OptimisticFullModelWarning, match="probably trained on them"):
        cross_fit_full(FrozenEstimator(forest), rows)


def test_a_function_and_precomputed_probabilities_give_the_same(rows):
    fitted = LogisticRegression().fit(rows.X, rows.labels)
    by_function = cross_fit_full(fitted.predict_proba, rows)
    by_values = cross_fit_full(fitted.predict_proba(rows.X)[:, 1], rows)
    np.testing.assert_array_equal(by_function.outputs, by_values.outputs)


def test_probabilities_are_never_zero_or_one(rows):
    certain = (rows.y > 0).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimisticFullModelWarning)
        judged = cross_fit_full(certain, rows)
    assert judged.outputs.min() == CLIP
    assert judged.outputs.max() == 1 - CLIP
    assert np.isfinite(judged.loss(-rows.y)).all()


def test_precomputed_probabilities_are_those_of_their_rows_in_any_order_and_number(rows):
    values = np.column_stack([np.linspace(1, 0, 400), np.linspace(0, 1, 400)])
    known = PrecomputedFull(values, fingerprints(rows.X, exact=True))
    for asked in (np.arange(400), np.arange(400)[::-1], np.array([7]), np.array([3, 3, 1, 399])):
        np.testing.assert_array_equal(known.outputs(None, rows.X[asked]), values[asked])
    assert known.outputs(None, rows.X[:0]).shape == (0, 2)


def test_precomputed_probabilities_refuse_rows_they_do_not_belong_to_even_in_a_batch_of_their_size(rows):
    known = PrecomputedFull(np.full((400, 2), 0.5), fingerprints(rows.X, exact=True))
    other = rows.X.copy()
    other[[5, 8], 2] += 1e-9
    with pytest.raises(InvalidInputError, match=r"2 of the 400 rows .* not those they belong to.*with_full"):
        known.outputs(None, other)


def test_precomputed_probabilities_of_old_files_refuse_a_batch_of_another_size():
    known = PrecomputedFull(np.full((5, 2), 0.5))
    assert known.outputs(None, np.zeros((5, 1))).shape == (5, 2)
    with pytest.raises(InvalidInputError, match=r"for 5 rows, but 7 rows .*with_full"):
        known.outputs(None, np.zeros((7, 1)))


def test_probabilities_are_judged_on_the_rows_that_count_and_known_for_all_rows_given(rows):
    values = np.linspace(0.1, 0.9, 400)
    kept = np.arange(0, 400, 3)
    judged = cross_fit_full(values, rows.take(kept))
    np.testing.assert_allclose(judged.outputs[:, 1], values[kept])
    # The others were given too, and may be asked about: those of a proof, or of weight zero.
    np.testing.assert_allclose(judged.model.outputs(None, rows.X[::-1])[:, 1], values[::-1])


def test_probabilities_without_rows_are_refused(rows):
    with pytest.raises(
        InvalidInputError, match=r"got 400 of them without rows. Write `with_full\(probabilities, X\)`"
    ):
        as_full_model(np.full(400, 0.5), TASK, 6)
    with pytest.raises(InvalidInputError, match="for 399 rows, but X has 400"):
        as_full_model(np.full(399, 0.5), TASK, 6, numbers=rows.X)
    assert isinstance(as_full_model(np.full(400, 0.5), TASK, 6, numbers=rows.X), PrecomputedFull)


def test_a_function_is_checked_on_every_answer(rows):
    short = CallableFull(lambda table: np.full(len(table) - 1, 0.5), TASK)
    with pytest.raises(InvalidInputError, match=r"shape \(400,\) or \(400, 2\); got shape \(399,\)"):
        short.outputs(rows.X, rows.X)


def test_where_there_is_no_full_model_nobody_answers(rows):
    with pytest.raises(InvalidInputError, match=r"400 rows are sent to a full model, and there is none"):
        AbsentFull().outputs(rows.X, rows.X)


def test_a_belief_is_calibrated_and_keeps_the_order_of_the_scores(rows):
    fitted = LogisticRegression().fit(rows.X, rows.labels)
    judged = cross_fit_full(lambda table: 1 / (1 + np.exp(-8 * fitted.decision_function(table))), rows)
    believed = judged.calibrated_scores(rows)
    assert believed.shape == judged.scores.shape == (400, 1)
    assert np.all(np.diff(believed[np.argsort(judged.scores[:, 0]), 0]) >= 0)
    assert TASK.loss(rows.y).values(believed).mean() < judged.loss(rows.y).mean()


class _Mute(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self


@pytest.mark.parametrize(
    ("full", "says"),
    [
        (LinearRegression(), "must be a classifier; got LinearRegression"),
        (_Mute(), "neither"),
        (lambda table: np.full(len(table), 2.0), r"in \[0, 1\]; got .*2"),
        (lambda table: np.zeros((len(table), 3)), r"got shape \(400, 3\)"),
        (np.full(399, 0.5), "for 399 rows, but X has 400"),
        (np.full((400, 3), 0.5), r"got shape \(400, 3\)"),
        ("a word", "got str"),
        (
            RandomForestClassifier,
            r"not a class; got RandomForestClassifier. Write RandomForestClassifier\(\)",
        ),
        (FrozenEstimator(LogisticRegression()), "not fitted"),
    ],
)
def test_what_cannot_be_a_full_model_is_refused(rows, full, says):
    with pytest.raises(InvalidInputError, match=says):
        cross_fit_full(full, rows)


def test_a_frozen_model_for_other_classes_or_features_is_refused(rows):
    other_classes = LogisticRegression().fit(rows.X, rows.y)
    with pytest.raises(InvalidInputError, match=r"classes \[-1.0, 1.0\], but y holds \['no', 'yes'\]"):
        cross_fit_full(FrozenEstimator(other_classes), rows)
    narrower = LogisticRegression().fit(rows.X[:, :4], rows.labels)
    with pytest.raises(InvalidInputError, match="4 features, but X has 6"):
        cross_fit_full(FrozenEstimator(narrower), rows)
    with pytest.raises(InvalidInputError, match="neither"):
        cross_fit_full(FrozenEstimator(_Mute().fit(rows.X, rows.labels)), rows)


def test_folds_may_be_a_number_a_splitter_or_an_iterable(rows):
    splitter = KFold(4)
    by_splitter = assign_folds(splitter, rows.X, rows.y, rows.y, 0)
    by_iterable = assign_folds(list(splitter.split(rows.X)), rows.X, rows.y, rows.y, 0)
    np.testing.assert_array_equal(by_splitter, by_iterable)
    assert set(assign_folds(3, rows.X, rows.y, rows.y, 0)) == {0, 1, 2}


@pytest.mark.parametrize("cv", [1, 0, "five", [([0], [1])], [([0], [10_000])]])
def test_folds_that_do_not_hold_every_row_out_are_refused(rows, cv):
    with pytest.raises(InvalidInputError, match="cv must"):
        assign_folds(cv, rows.X, rows.y, rows.y, 0)


def test_a_class_with_one_distinct_row_cannot_be_cross_fitted():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    y = np.array([1.0, -1.0, -1.0, -1.0])
    with pytest.raises(InvalidInputError, match="fewer than two distinct rows"):
        cross_fit_full(LogisticRegression(), training_rows(X, X, y, [0, 1], 5))


def test_a_frozen_model_with_columns_in_another_order_is_refused():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    y = np.where(frame["a"] > 0, 1.0, -1.0)
    fitted = FrozenEstimator(LogisticRegression().fit(frame[["b", "a"]], y))
    rows = training_rows(frame, frame.to_numpy(), y, [-1.0, 1.0], 2)
    with pytest.raises(InvalidInputError, match="'b' where X has 'a'"):
        cross_fit_full(fitted, rows)


def test_the_warning_points_at_the_line_that_called_fit(rows):
    forest = RandomForestClassifier(20, bootstrap=False, random_state=0).fit(rows.X, rows.labels)
    with pytest.warns(OptimisticFullModelWarning) as seen:
        DynaModLinClassifier(FrozenEstimator(forest), options=LinearOptions(tol=1.0)).fit(rows.X, rows.labels)
    assert seen[0].filename == __file__


class Configured(LogisticRegression):
    """Learns only where the configuration of scikit-learn is that of the caller."""

    def fit(self, X, y, sample_weight=None):
        assert get_config()["transform_output"] == "pandas"
        return super().fit(X, y, sample_weight)


def test_fits_in_threads_have_the_configuration_of_the_caller():
    X = np.random.default_rng(0).normal(size=(60, 2))
    with config_context(transform_output="pandas"):
        BudgetedClassifier(Configured(), cv=2, n_jobs=2, random_state=0).fit(X, X[:, 0] > 0)


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["u", "v", "w"])])
def test_lightgbm_reads_categories_of_polars_and_does_not_end_the_process(dtype):
    lightgbm = pytest.importorskip("lightgbm")
    chance = np.random.default_rng(0)
    a, c = chance.normal(size=200), chance.choice(["u", "v", "w"], 200)
    y, small = (
        (a + (c == "u") > 0).astype(int),
        {"stages": StageOptions(sizes=[(3, 2)]), "cv": 2, "random_state": 0},
    )
    answers = []
    polars, pandas = (
        pl.DataFrame({"a": a, "c": pl.Series(c, dtype=dtype)}),
        pd.DataFrame({"a": a, "c": pd.Categorical(c)}),
    )
    full = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1)
    for table, model in ((polars, full), (polars, make_pipeline(full)), (pandas, full)):
        clf = BudgetedClassifier(model, **small).fit(table, y)
        assert (clf.route(table) == clf.n_stages_).any()
        answers.append(clf.predict_proba(table))
    np.testing.assert_allclose(answers, [answers[0]] * 3, rtol=1e-9)
