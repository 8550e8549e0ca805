"""scikit-learn's own checks on every public estimator; none is expected to fail."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from thrifty import ConfidenceRouter, DynaModLinClassifier, GreedyL1Classifier, UniformRouter


def _full():
    return LogisticRegression()


ESTIMATORS = [
    DynaModLinClassifier(_full(), gamma=0.01, cv=2, random_state=0),
    DynaModLinClassifier(_full(), gamma=0.01, distance="squared", cv=2, random_state=0),
    GreedyL1Classifier(_full(), cv=2, random_state=0),
    ConfidenceRouter(_full(), cv=2, random_state=0),
    UniformRouter(_full(), cv=2, random_state=0),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_every_estimator_works_with_its_default_arguments(estimator):
    assert type(estimator)().get_params()["full"] is None
