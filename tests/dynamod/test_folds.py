"""Cross-fitted pairs: whoever judges a row has not learned from it."""

from copy import copy

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from reproduction.settings import estimator_of
from thrifty import DynaModGbrtClassifier, DynaModLinClassifier, DynaModLstsqClassifier
from thrifty.engine.prices.billing import PriceList
from thrifty.learners.dynamod.alternating import CrossFittedPair, Fold
from thrifty.learners.dynamod.group_lasso import LinearCoefficients
from thrifty.learners.dynamod.linear import LinearPair

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(120, 40)), RNG.integers(0, 2, 120)

FAMILIES = {
    "lin": (DynaModLinClassifier, {"gamma": 1e-4, "max_iter": 3, "tol": 1.0}),
    "gbrt": (DynaModGbrtClassifier, {"gamma": 0.0, "n_trees": 10, "max_iter": 2, "tol": 1.0}),
    "lstsq": (DynaModLstsqClassifier, {"n_trees": 5, "max_iter": 2, "tol": 1.0, "trust": 0.0}),
}


def test_the_cheap_model_that_answers_for_a_row_is_fitted_without_it():
    start = LinearCoefficients(np.zeros((4, 2)), np.zeros(2))
    pair = LinearPair(0.01, PriceList(np.ones(4), np.arange(4)), start=start)
    rows, y, weight = X[:, :4], np.where(Y == 1, 1.0, -1.0), np.full(120, 1 / 120)
    shares, parts = np.linspace(-3, 0, 120), [np.arange(0, 120, 2), np.arange(1, 120, 2)]
    folds = [
        Fold(
            copy(pair),
            rows[parts[1 - k]],
            parts[1 - k],
            parts[k],
            lambda one, k=k: one.scores(rows[parts[k]]),
        )
        for k in (0, 1)
    ]
    crossed = CrossFittedPair(pair, folds).fit(rows, y, shares, weight)
    g, f1 = crossed.scores(rows)
    np.testing.assert_array_equal(g, pair.scores(rows)[0])
    for part, other in (parts, parts[::-1]):
        alone = LinearPair(0.01, PriceList(np.ones(4), np.arange(4)), start=start)
        alone.fit(rows[other], y[other], shares[other], np.full(60, 1 / 60))
        np.testing.assert_allclose(f1[part], alone.scores(rows[part])[1], atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_of_labels_that_are_noise_nothing_is_known_on_rows_that_were_not_seen(family):
    estimator, how = FAMILIES[family]
    fitted = {
        cross_fit: estimator_of(
            estimator, GaussianNB(), cross_fit=cross_fit, cv=3, random_state=0, **how
        ).fit(X, Y)
        for cross_fit in (False, True)
    }
    right = {cross_fit: one.evidence_.quality[:, 0].mean() for cross_fit, one in fitted.items()}
    assert right[False] > 0.75
    assert 0.3 < right[True] < 0.65
    assert fitted[False].excess_ < fitted[True].excess_
