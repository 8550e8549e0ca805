"""The default full model, beside histogram boosting of scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss

from thrifty.engine.full.stored import stored_model_of
from thrifty.learners.trees.full import TreesClassifier, TreesRegressor


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(900, 8, n_informative=6, n_classes=3, random_state=0)
    X[::7, 2] = np.nan
    return X, np.array(["a", "b", "c"])[y]


def test_probabilities_of_three_classes_lose_no_more_than_those_of_histogram_boosting(three):
    X, y = three
    ours, theirs = (
        model.fit(X[::2], y[::2]) for model in (TreesClassifier(), HistGradientBoostingClassifier())
    )
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(ours.predict(X), ours.classes_[ours.predict_proba(X).argmax(axis=1)])
    lost = [log_loss(y[1::2], model.predict_proba(X[1::2])) for model in (ours, theirs)]
    assert lost[0] < lost[1]


def test_numbers_err_no_more_than_those_of_histogram_boosting():
    X, y = load_diabetes(return_X_y=True)
    ours, theirs = (
        model.fit(X[::2], y[::2]).score(X[1::2], y[1::2])
        for model in (TreesRegressor(), HistGradientBoostingRegressor())
    )
    assert ours > theirs - 0.02


def test_a_row_of_weight_two_is_that_row_given_twice(three):
    X, y = three[0][:300], three[1][:300] == "b"
    often = np.repeat(np.arange(len(y)), 1 + np.arange(len(y)) % 3)
    weighted = TreesClassifier().fit(X, y, sample_weight=1 + np.arange(len(y)) % 3)
    given_often = TreesClassifier().fit(X[often], y[often])
    np.testing.assert_allclose(weighted.predict_proba(X), given_often.predict_proba(X), atol=1e-6)


def test_what_files_keep_is_what_answers(three):
    X, y = three
    model = TreesClassifier().fit(X, y)
    assert stored_model_of(model) is model.stored_
    assert stored_model_of(clone(model)) is None
