import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression

from thrifty.engine.trees.other_libraries import additive_trees, largest_rounding_to
from thrifty.errors import InvalidInputError

X, Y = load_breast_cancer(return_X_y=True)


def on_every_threshold(found, X):
    """Rows of X, and rows that sit on, just below and just above each threshold of the trees."""
    rows = [X]
    for feature, threshold in zip(found.trees.feature, found.trees.threshold, strict=True):
        for value in (threshold, np.nextafter(threshold, -np.inf), np.nextafter(threshold, np.inf)):
            row = X[feature % len(X)].copy()
            row[feature] = value
            rows.append(row[None, :])
    return np.concatenate(rows)


def scikit_margin(model, rows):
    return model.decision_function(rows)


@pytest.mark.parametrize("missing", [False, True])
def test_xgboost_goes_the_same_way_at_every_threshold(missing):
    xgboost = pytest.importorskip("xgboost")
    table = X.copy()
    if missing:
        table[::7, ::3] = np.nan
    model = xgboost.XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1).fit(table, Y)
    found = additive_trees(model, X.shape[1])
    rows = on_every_threshold(found, table)
    theirs = model.predict(rows, output_margin=True)
    np.testing.assert_allclose(found.scores(rows)[:, 0], theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("missing", [False, True])
def test_lightgbm_goes_the_same_way_at_every_threshold(missing):
    lightgbm = pytest.importorskip("lightgbm")
    table = X.copy()
    if missing:
        table[::7, ::3] = np.nan
    model = lightgbm.train(
        {"objective": "binary", "num_leaves": 8, "num_threads": 1, "verbose": -1},
        lightgbm.Dataset(table, Y),
        num_boost_round=8,
    )
    found = additive_trees(model, X.shape[1])
    rows = on_every_threshold(found, table)
    if not missing:
        rows[::5, 2] = np.nan  # a model that saw no missing value reads one as zero
    np.testing.assert_allclose(
        found.scores(rows)[:, 0], model.predict(rows, raw_score=True), rtol=1e-12, atol=1e-12
    )


def test_gradient_boosting_of_scikit_learn_goes_the_same_way_at_every_threshold():
    model = GradientBoostingClassifier(n_estimators=8, max_depth=4, random_state=0).fit(X, Y)
    found = additive_trees(model, X.shape[1])
    rows = on_every_threshold(found, X)
    np.testing.assert_allclose(found.scores(rows)[:, 0], scikit_margin(model, rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
def test_histogram_boosting_of_scikit_learn_goes_the_same_way_at_every_threshold(missing):
    table = X.copy()
    if missing:
        table[::7, ::3] = np.nan
    model = HistGradientBoostingClassifier(max_iter=8, max_depth=4).fit(table, Y)
    found = additive_trees(model, X.shape[1])
    rows = on_every_threshold(found, table)
    np.testing.assert_allclose(found.scores(rows)[:, 0], scikit_margin(model, rows), rtol=1e-12, atol=1e-12)


@given(st.floats(width=32, allow_nan=False))
def test_the_largest_double_that_rounds_to_a_single_is_the_last_that_does(number):
    single = np.float32(number)
    edge = largest_rounding_to(single)
    with np.errstate(over="ignore"):
        assert np.float32(edge) <= single or not np.isfinite(np.nextafter(single, np.float32(np.inf)))
        if np.isfinite(edge):
            assert np.float32(np.nextafter(edge, np.inf)) > single


def test_early_stopping_of_xgboost_is_respected():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=60, max_depth=3, early_stopping_rounds=2, n_jobs=1)
    model.fit(X[:300], Y[:300], eval_set=[(X[300:], Y[300:])], verbose=False)
    found = additive_trees(model, X.shape[1])
    assert found.trees.n_trees == model.best_iteration + 1 < 60
    np.testing.assert_allclose(
        found.scores(X)[:, 0], model.predict(X, output_margin=True), rtol=2e-6, atol=2e-6
    )


def scores_of_several(name):
    """A small model of three classes, fitted, and the scores that it gives itself."""
    size = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.4, 0.7]))
    labels = np.where(Y == 1, size, 2)
    if name == "xgboost":
        model = pytest.importorskip("xgboost").XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1)
        return model.fit(X, labels), lambda rows: model.predict(rows, output_margin=True)
    if name == "lightgbm":
        library = pytest.importorskip("lightgbm")
        model = library.LGBMClassifier(n_estimators=3, num_leaves=6, n_jobs=1, verbose=-1)
        return model.fit(X, labels), lambda rows: model.booster_.predict(rows, raw_score=True)
    if name == "forest":
        model = RandomForestClassifier(4, max_leaf_nodes=8, random_state=0)
        return model.fit(X, labels), model.predict_proba
    boosting = GradientBoostingClassifier if name == "gradient" else HistGradientBoostingClassifier
    model = boosting(max_depth=3, **{"n_estimators" if name == "gradient" else "max_iter": 3})
    return model.fit(X, labels), model.decision_function


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "gradient", "histogram", "forest"])
def test_trees_of_three_classes_give_the_scores_of_their_library_at_every_threshold(name):
    model, theirs = scores_of_several(name)
    found = additive_trees(model, X.shape[1])
    assert found.trees.n_trees == (4 if name == "forest" else 9)
    rows = on_every_threshold(found, X)
    np.testing.assert_allclose(found.scores(rows), theirs(rows), rtol=2e-6, atol=2e-6)


def test_a_forest_of_two_classes_has_the_probability_of_the_second():
    model = RandomForestClassifier(4, max_leaf_nodes=8, random_state=0).fit(X, Y)
    found = additive_trees(model, X.shape[1])
    assert found.are_probabilities
    np.testing.assert_allclose(found.scores(X), model.predict_proba(X)[:, 1:], atol=1e-12)


def test_a_model_that_is_not_made_of_trees_is_refused_by_name():
    model = LogisticRegression(max_iter=10_000).fit(X[:, :3], Y)
    with pytest.raises(InvalidInputError, match="must be boosted trees or a forest.*got LogisticRegression"):
        additive_trees(model, 3)


def test_trees_of_another_width_are_refused_with_both_numbers():
    model = GradientBoostingClassifier(n_estimators=2).fit(X[:, :5], Y)
    with pytest.raises(InvalidInputError, match="was fitted on 5 features; X has 30"):
        additive_trees(model, 30)


@pytest.mark.parametrize(
    "model",
    [
        GradientBoostingClassifier(n_estimators=2, loss="exponential"),
        GradientBoostingClassifier(n_estimators=2, init=LogisticRegression(max_iter=10_000)),
    ],
)
def test_boosting_whose_score_is_not_a_sum_of_log_odds_is_refused(model):
    with pytest.raises(InvalidInputError, match="GradientBoostingClassifier must have"):
        additive_trees(model.fit(X[:, :5], Y), 5)
