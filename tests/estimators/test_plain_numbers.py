"""Tables that are taken at a look: whatever scikit-learn would say about a table, it still says."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from thrifty import ConfidenceRouter, DynaModLinClassifier
from thrifty.learners.estimators import checks

NAMES = ["age", "dose", "old"]
X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
BOOSTED = HistGradientBoostingClassifier(max_iter=3)
FRAME = pd.DataFrame(X, columns=NAMES)


@pytest.fixture(scope="module")
def fitted():
    """Fits by whether they know names, and by whether they accept missing values."""
    found = {}
    for named, table in ((False, X), (True, FRAME)):
        found[named, False] = DynaModLinClassifier(LogisticRegression(), random_state=0).fit(table, Y)
        found[named, True] = ConfidenceRouter(BOOSTED, BOOSTED, features=[0, 1], random_state=0).fit(table, Y)
    return found


def with_cell(table, value):
    changed = table.copy()
    if isinstance(changed, pd.DataFrame):
        changed.iloc[2, 1] = value
    else:
        changed[2, 1] = value
    return changed


TABLES = {
    "array": X,
    "one row": X[:1],
    "Fortran order": np.asfortranarray(X),
    "every other row": X[::2],
    "float32": X.astype(np.float32),
    "whole numbers": X.astype(int),
    "other byte order": X.astype(">f8"),
    "objects": X.astype(object),
    "text": X.astype(str),
    "complex": X.astype(complex),
    "list": X.tolist(),
    "matrix of one dimension": X[0],
    "three dimensions": X[None],
    "no rows": X[:0],
    "a column too few": X[:, :2],
    "array with a missing value": with_cell(X, np.nan),
    "array with an infinite value": with_cell(X, np.inf),
    "array with both": with_cell(with_cell(X, np.inf)[:, [1, 0, 2]], np.nan),
    "frame": FRAME,
    "one row of a frame": FRAME.iloc[[3]],
    "frame of no rows": FRAME.iloc[:0],
    "frame of mixed types": FRAME.assign(old=FRAME["old"] > 0, dose=FRAME["dose"].astype("float32")),
    "frame of whole numbers": FRAME.round().astype("int16"),
    "frame of nullable types": FRAME.astype("Float64"),
    "frame with categories": FRAME.assign(old=pd.Categorical((FRAME["old"] > 0).astype(int))),
    "frame with sparse columns": FRAME.astype(pd.SparseDtype("float64", 0.0)),
    "frame with text": FRAME.assign(old="yes"),
    "frame with dates": FRAME.assign(old=pd.Timestamp("2020-01-01")),
    "frame in another order": FRAME[["dose", "age", "old"]],
    "frame with another name": FRAME.rename(columns={"old": "young"}),
    "frame with numbers for names": pd.DataFrame(X),
    "frame with a column too many": FRAME.assign(more=1.0),
    "frame with a column too few": FRAME[["age", "dose"]],
    "frame with a missing value": with_cell(FRAME, np.nan),
    "frame with an infinite value": with_cell(FRAME, np.inf),
    "series": FRAME["age"],
}


def outcome(estimator, table):
    """What becomes of a table: its numbers and the warnings, or the refusal."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers = checks.validated(estimator, table, reset=False)
            numbers = numbers.toarray() if sparse.issparse(numbers) else numbers
        except Exception as error:
            return type(error), str(error)
        return numbers, [str(warning.message) for warning in caught]


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_a_look_at_a_table_changes_neither_numbers_nor_warnings_nor_refusals(
    monkeypatch, fitted, table, named, missing
):
    at_a_look = outcome(fitted[named, missing], TABLES[table])
    monkeypatch.setattr(checks, "_plain_numbers", lambda *_: None)
    checked = outcome(fitted[named, missing], TABLES[table])
    if isinstance(checked[0], type):
        assert at_a_look == checked
        return
    np.testing.assert_array_equal(at_a_look[0], checked[0], strict=True)
    assert at_a_look[1] == checked[1]


@pytest.mark.parametrize(
    ("table", "named", "missing"),
    [
        ("array", False, False),
        ("one row", False, True),
        ("array with a missing value", False, True),
        ("frame", True, False),
        ("one row of a frame", True, True),
        ("frame of mixed types", True, False),
        ("frame with a missing value", True, True),
    ],
)
def test_usual_tables_are_taken_at_a_look(monkeypatch, fitted, table, named, missing):
    def refuse(*_, **__):
        raise AssertionError("scikit-learn was asked")

    monkeypatch.setattr(checks, "validate_data", refuse)
    checks.validated(fitted[named, missing], TABLES[table], reset=False)
