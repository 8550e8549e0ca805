"""One small cascade that several tests look at."""

import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import ExtraTreesClassifier

from thrifty import BudgetedClassifier, StageOptions


@pytest.fixture(scope="session")
def cascade():
    """A fitted cascade, rows it has not seen, and their labels."""
    X, y = load_breast_cancer(return_X_y=True)
    full = ExtraTreesClassifier(10, random_state=0)
    clf = BudgetedClassifier(full, stages=StageOptions(sizes=[(10, 3)]), cv=3, random_state=0).fit(
        X[::2], y[::2]
    )
    return clf, X[1::2], y[1::2]
