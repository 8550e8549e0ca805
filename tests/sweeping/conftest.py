import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty import BudgetedClassifier, DynaModGbrtClassifier, DynaModLinClassifier, Evidence


def _rows(n_columns):
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X[:, :n_columns])
    return SimpleNamespace(
        X=X[:250], y=y[:250], X_val=X[250:400], y_val=y[250:400], X_test=X[400:], y_test=y[400:]
    )


@pytest.fixture(scope="session")
def rows():
    return _rows(10)


@pytest.fixture
def fitting(rows):
    """What every sweep of these tests is given: training and validation rows."""
    return rows.X, rows.y, rows.X_val, rows.y_val


@pytest.fixture
def wide_fitting():
    """Training and validation rows with all 30 columns, for cells that take a while."""
    rows = _rows(30)
    return rows.X, rows.y, rows.X_val, rows.y_val


@pytest.fixture
def f0():
    return make_pipeline(StandardScaler(), LogisticRegression())


@pytest.fixture
def trees(f0):
    return DynaModGbrtClassifier(f0, n_trees=5, max_depth=2, max_iter=2)


@pytest.fixture
def linear(f0):
    return DynaModLinClassifier(f0, max_iter=20)


@pytest.fixture
def cascade():
    return BudgetedClassifier(GaussianNB(), sizes=[(5, 2)], stages=3, cv=3)


@pytest.fixture
def assert_same_evidence():
    """``assert_same_evidence(one, other)``: every array and everything else is equal."""

    def compare(one, other):
        for entry in dataclasses.fields(Evidence):
            a, b = getattr(one, entry.name), getattr(other, entry.name)
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b, entry.name)
            elif entry.name == "task":
                assert type(a) is type(b)
                np.testing.assert_array_equal(getattr(a, "classes", None), getattr(b, "classes", None))
            else:
                assert a == b, entry.name

    return compare
