import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from thrifty import ConfidenceRouter, Prices
from thrifty.errors import InvalidInputError, NothingSavedWarning


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    return X, y


@pytest.fixture(scope="module")
def noisy(rows):
    """f0 that errs on a few rows, as an honest one does."""
    _, y = rows
    wrong = np.random.default_rng(1).random(len(y)) < 0.02
    return np.where((y == 1) != wrong, 0.95, 0.05)


def test_where_the_choice_of_the_model_saves_nothing_it_is_said_what_rows_pay(rows, noisy):
    X, y = rows
    wordings = [
        (None, None, "pays 4 .* 0 more"),
        (Prices(full=1.0), None, "pays 4 .* 1 more"),
        (Prices(0.0), [0], "pays 0 .* 0 more"),
    ]
    for prices, features, words in wordings:
        with pytest.warns(NothingSavedWarning, match=rf"every row {words}.*Prices\(0.0, full=1.0\)"):
            ConfidenceRouter(noisy, prices=prices, features=features).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConfidenceRouter(noisy, prices=Prices(0.0, full=1.0)).fit(X, y)
        ConfidenceRouter(noisy, features=[0]).fit(X, y)


def test_the_least_confident_rows_are_sent(rows, noisy):
    X, y = rows
    clf = ConfidenceRouter(noisy, features=[0], p_full=0.25).fit(X, y)
    g, f1 = clf.scores(X)
    np.testing.assert_array_equal(g, -np.abs(f1))
    sent = clf.route(X) == 1
    assert np.abs(f1[sent]).max() <= np.abs(f1[~sent]).min()
    assert sent.mean() == pytest.approx(0.25, abs=0.02)


def test_the_threshold_comes_from_margins_of_rows_the_cheap_model_has_not_seen(rows, noisy):
    X, y = rows
    # A full tree is always certain about rows it was fitted on: in-sample margins could not be cut at a share.
    forest = DecisionTreeClassifier(min_samples_leaf=20, random_state=0)
    clf = ConfidenceRouter(noisy, forest, features=[0, 1], p_full=0.3, random_state=0).fit(X, y)
    fresh = np.random.default_rng(5).normal(size=(3000, 4))
    assert clf.route(fresh).mean() == pytest.approx(0.3, abs=0.06)


def test_a_budget_sets_the_share(rows, noisy):
    X, y = rows
    clf = ConfidenceRouter(noisy, features=[0], budget=2.0).fit(X, y)
    # 1 for the bought feature, 4 for everything: a third of the rows may go on.
    assert clf.cost(X).mean() == pytest.approx(2.0, abs=0.06)


def test_a_local_model_in_front_of_a_remote_one_pays_per_call(rows, noisy):
    X, y = rows
    clf = ConfidenceRouter(noisy, LogisticRegression(), prices=Prices(np.zeros(4), full=1.0), p_full=0.1).fit(
        X, y
    )
    assert clf.cost(X).mean() == clf.route(X).mean()
    assert clf.cost(X).mean() == pytest.approx(0.1, abs=0.02)


def test_features_may_be_named_numbered_or_masked(rows, noisy):
    X, y = rows
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    by_name = ConfidenceRouter(noisy, features=["b", "a"], random_state=0).fit(frame, y)
    by_mask = ConfidenceRouter(noisy, features=np.array([True, True, False, False]), random_state=0).fit(X, y)
    np.testing.assert_array_equal(by_name.features_, [1, 0])
    np.testing.assert_array_equal(by_mask.features_, [0, 1])
    np.testing.assert_array_equal(by_mask.route(X), by_name.route(frame))


def test_the_cheap_model_may_be_probabilities_of_its_rows(rows, noisy):
    X, y = rows
    cheap = LogisticRegression().fit(X[:, :2], y)
    by_function = ConfidenceRouter(noisy, cheap.predict_proba, features=[0, 1]).fit(X, y)
    by_values = ConfidenceRouter(noisy, cheap.predict_proba(X[:, :2]), features=[0, 1]).fit(X, y)
    np.testing.assert_array_equal(by_values.route(X[::-1]), by_function.route(X[::-1]))
    with pytest.raises(InvalidInputError, match="not those they belong to"):
        by_values.route(X + 1e-9)


def test_a_router_takes_missing_values_where_its_models_do(rows, noisy):
    X, y = rows
    holed = np.where((np.arange(4) == 1) & (np.arange(3000) % 7 == 0)[:, None], np.nan, X)
    clf = ConfidenceRouter(noisy, HistGradientBoostingClassifier(max_iter=5), features=[0, 1]).fit(holed, y)
    assert np.isfinite(clf.scores(holed)[1]).all()
    with pytest.raises(InvalidInputError, match="NaN"):
        ConfidenceRouter(noisy, LogisticRegression(), prices=Prices(0.0, full=1.0)).fit(holed, y)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_zero_or_one_sends_nobody_or_everybody(rows, noisy, share):
    X, y = rows
    assert np.all(ConfidenceRouter(noisy, features=[0], p_full=share).fit(X, y).route(X) == share)


def test_bad_arguments_are_refused(rows, noisy):
    X, y = rows
    with pytest.raises(InvalidInputError, match=r"p_full must lie in \[0, 1\]; got 2"):
        ConfidenceRouter(noisy, p_full=2).fit(X, y)
    with pytest.raises(InvalidInputError, match="budget must be at least 1"):
        ConfidenceRouter(noisy, features=[0], budget=0.5).fit(X, y)
