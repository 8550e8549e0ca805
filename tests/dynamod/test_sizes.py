"""The size of a small model as a limit."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB

from reproduction.settings import estimator_of
from thrifty import DynaModLstsqClassifier
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.leaf import shapes_within

X, Y = load_breast_cancer(return_X_y=True)
X, Y = X[:250, :8], Y[:250]
QUICK = {"max_iter": 2, "tol": 1.0, "random_state": 0}


def fitted(kind, *models, **how):
    return estimator_of(kind, GaussianNB(), *models, **QUICK, **how).fit(X, Y)


@pytest.mark.parametrize("max_bytes", [200, 2000])
def test_the_best_pair_under_a_size_keeps_to_it_and_is_the_best_of_its_fold(max_bytes):
    clf = fitted(DynaModLstsqClassifier, max_bytes=max_bytes)
    assert clf.n_bytes_ <= max_bytes
    assert clf.shape_ in shapes_within(max_bytes, 1)
    by_hand = estimator_of(
        DynaModLstsqClassifier, GaussianNB(), n_trees=clf.shape_[0], max_leaves=clf.shape_[1], **QUICK
    )
    np.testing.assert_array_equal(clf.scores(X), by_hand.fit(X, Y).scores(X))


def test_shapes_fill_the_room_that_there_is():
    for n_trees, leaves in shapes_within(5000, 1):
        per_tree = 21 * (leaves - 1) + 16 * leaves + 4
        assert 24 + n_trees * per_tree <= 5000 < 24 + (n_trees + 1) * per_tree


@pytest.mark.parametrize(
    ("local", "max_bytes", "words"),
    [
        (None, 50, "must hold one tree of two leaves, 81 bytes"),
        (None, 0, "max_bytes must be a whole number >= 1"),
        (GradientBoostingClassifier(n_estimators=5), 100, "the local model takes .* bytes"),
    ],
)
def test_a_size_that_cannot_be_kept_is_refused_in_words(local, max_bytes, words):
    with pytest.raises(InvalidInputError, match=words):
        fitted(DynaModLstsqClassifier, local, max_bytes=max_bytes)
