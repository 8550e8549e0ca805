"""Small fitted systems that the tests of this folder share; nothing here changes them."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty import (
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    GreedyL1Classifier,
    GreedyMiserClassifier,
    UniformRouter,
)


@pytest.fixture(scope="session")
def rows():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X[::2, :12]), y[::2]


@pytest.fixture(scope="session")
def fitted(rows):
    """One fitted estimator of every class, each with a different kind of f0 or of setting."""
    svm = make_pipeline(StandardScaler(), SVC())
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    names = [f"column {number}" for number in range(12)]
    prices = dict(zip(names, np.arange(1.0, 13.0), strict=True))
    import pandas as pd

    table = pd.DataFrame(rows[0], columns=names)
    groups = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    boosted = {"n_trees": 5, "max_depth": 3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = {
            "linear": DynaModLinClassifier(
                svm, gamma=0.02, feature_groups=groups, budget=6.0, random_state=0
            ),
            "margin": DynaModLinClassifier(
                logistic, gamma=np.float64(0.02), gate_reads_margin=True, refit=True
            ),
            "boosted": DynaModGbrtClassifier(svm, **boosted, p_full=0.5),
            "reading": DynaModGbrtClassifier(logistic, **boosted, gate_reads_score=True, full_cost=2.0),
            "greedy": GreedyL1Classifier(svm, features=[1, 2, 3], cv=3),
            "miser": GreedyMiserClassifier(n_trees=5, gamma=2.0),
            "confidence": ConfidenceRouter(svm, logistic, features=[0, 4, 5], p_full=0.4),
            "uniform": UniformRouter(logistic, p_full=0.4, random_state=3),
        }
        estimators = {name: estimator.fit(*rows) for name, estimator in found.items()}
        labels = np.where(rows[1] == 1, "benign", "malignant")
        frame = DynaModLinClassifier(logistic, gamma=0.01, feature_costs=prices, random_state=0)
        estimators["frame"] = frame.fit(table, labels)
        chained = DynaModLinClassifier(estimators["boosted"].system_, gamma=0.05, random_state=0)
        estimators["chain"] = chained.fit(*rows)
    return estimators
