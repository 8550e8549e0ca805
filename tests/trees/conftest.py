import numpy as np
import pytest


@pytest.fixture(scope="session")
def priced_problem():
    """4,000 rows, 24 columns of which 4 matter, logistic gradients at score zero."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(4000, 24)).round(2)
    X[rng.random(X.shape) < 0.03] = np.nan
    score = (
        2 * np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) * np.nan_to_num(X[:, 2]) - np.nan_to_num(X[:, 3])
    )
    y = np.where(score + rng.normal(size=4000) > 0, 1.0, -1.0)
    return X, y
