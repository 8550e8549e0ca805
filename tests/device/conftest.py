"""Small systems and rows for them, fitted once for every file here."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from tests.mixes import mixed_at
from thrifty import BudgetedClassifier, StageOptions
from thrifty.engine.table.table import Table

SMALL = {"cv": 2, "random_state": 0}


def on_thresholds(chain, X, rng):
    """Rows with cells on thresholds and just above them, and with missing cells."""
    X = X.astype(np.float32)
    for place, stage in enumerate(chain.stages):
        trees = getattr(stage, "trees", None) or stage.cheap
        for node in rng.integers(len(trees.feature), size=200) if len(trees.feature) else ():
            limit = np.float32(trees.threshold[node])
            if np.isfinite(limit):
                limit = limit if place % 2 else np.nextafter(limit, np.float32(np.inf))
                X[rng.integers(len(X)), stage.columns[trees.feature[node]]] = limit
    X[rng.random(X.shape) < 0.03] = np.nan
    return X


@pytest.fixture(scope="session")
def cancer():
    return load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="session")
def mixed(cancer, while_fits_are_small):
    """A cascade of two classes at a mix of two points."""
    full = LogisticRegression(solver="newton-cholesky")
    clf = BudgetedClassifier(full, budget=2.3, stages=StageOptions(6, [(30, 4)]), **SMALL)
    with while_fits_are_small():
        return mixed_at(clf.fit(*cancer), 2.3)


@pytest.fixture(scope="session")
def mixed_rows(mixed, cancer):
    rng = np.random.default_rng(0)
    return on_thresholds(mixed.chain_, cancer[0][rng.integers(len(cancer[0]), size=600)], rng)


@pytest.fixture(scope="session")
def wine():
    """A cascade of three classes, and rows for it."""
    X, y = load_wine(return_X_y=True)
    clf = BudgetedClassifier(GaussianNB(), budget=3, stages=StageOptions(4, [(8, 4)]), **SMALL).fit(X, y)
    return clf, on_thresholds(clf.chain_, X, np.random.default_rng(0))


@pytest.fixture(scope="session")
def trees_of_purchases(cancer):
    """Trees of purchases of two and of ten classes with a mix of points, and rows with cells on ends of levels."""
    made, rng = {}, np.random.default_rng(0)
    digits = load_digits(return_X_y=True)
    stages = StageOptions(max_stages=6, sizes=[(8, 3)], structure="tree")
    tables = {
        "two classes": (cancer[0][:, :12], cancer[1], 80),
        "ten classes": (digits[0][:700, 18:46], digits[1][:700], 50),
    }
    for name, (X, y, n_rows) in tables.items():
        clf = BudgetedClassifier(RandomForestClassifier(20, random_state=0), stages=stages, **SMALL).fit(X, y)
        assert clf.chain_.has_forks
        mixture, X = clf.chain_.stages[0].mixture, X[rng.integers(len(X), size=n_rows)].astype(np.float32)
        for at, column in enumerate(mixture.columns):
            ends = mixture.ends[mixture.offsets[at] : mixture.offsets[at + 1]]
            rows = np.flatnonzero(rng.random(n_rows) < 0.1 * (len(ends) > 0))
            X[rows, column] = rng.choice(np.r_[ends, 0.0], len(rows))
        X[rng.random(X.shape) < 0.03] = np.nan
        low, high = clf.chain_.policy.cost[[0, -1]]
        made[name] = mixed_at(clf, float(0.6 * low + 0.4 * high)), X
    return made


def with_levels(n_levels, n_rows):
    """A cascade over a column of levels and a number, and rows with unknown and missing cells."""
    rng = np.random.default_rng(0)
    town = np.array([f"town {number}" for number in range(n_levels)])
    effect = 3 * rng.normal(size=n_levels)
    at = rng.integers(n_levels, size=n_rows)
    table = pd.DataFrame({"town": town[at], "size (m)": rng.normal(size=n_rows).round(2)})
    y = (effect[at] + table["size (m)"] > 0).astype(int).to_numpy()
    full = np.where(y == (rng.random(n_rows) < 0.95), 0.9, 0.1)
    clf = BudgetedClassifier(full, budget=1.5, stages=StageOptions(2, [(15, 4)]), **SMALL).fit(table, y)
    numbers = clf.chain_.levels.numbers(Table.of(table))
    numbers[rng.random(numbers.shape) < 0.1] = np.nan
    numbers[::50, 0] = np.nan
    return clf, numbers


@pytest.fixture(scope="session")
def towns():
    return with_levels(12, 1500)


@pytest.fixture(scope="session")
def many_towns():
    """More levels than a byte can count."""
    return with_levels(300, 8000)
