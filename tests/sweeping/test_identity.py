import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty.dynamod.sweeping import identity
from thrifty.errors import InvalidInputError
from thrifty.prices.prices import check_price_list

TABLES = hnp.arrays(np.float64, (3, 2), elements=st.floats(-10, 10))


@pytest.mark.slow
@given(
    table=TABLES,
    row=st.integers(0, 2),
    column=st.integers(0, 1),
    y=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_one_changed_cell_or_label_changes_the_checksum_of_a_table(table, row, column, y):
    before = identity.table(table, y)
    assert identity.table(table.copy(), list(y)) == before
    changed = table.copy()
    changed[row, column] = np.nextafter(changed[row, column], np.inf)
    assert identity.table(changed, y) != before
    y[row] = not y[row]
    assert identity.table(table, y) != before


def test_shape_names_and_kind_of_storage_count():
    table = np.arange(6.0).reshape(2, 3)
    plain = identity.table(table)
    assert identity.table(table.reshape(3, 2)) != plain
    assert identity.table(pd.DataFrame(table, columns=list("abc"))) != identity.table(
        pd.DataFrame(table, columns=list("abd"))
    )
    assert identity.table(sparse.csr_array(table)) == identity.table(sparse.csr_matrix(table))
    assert identity.table(table, ["a", "b"]) != identity.table(table, ["a", "c"])


@pytest.mark.parametrize(
    "other",
    [
        make_pipeline(StandardScaler(), LogisticRegression(C=2)),
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
        make_pipeline(LogisticRegression()),
        RandomForestClassifier(),
    ],
)
def test_a_recipe_is_known_by_its_class_and_every_nested_parameter(other):
    known = identity.describe(make_pipeline(StandardScaler(), LogisticRegression()), "full")
    assert known == identity.describe(make_pipeline(StandardScaler(), LogisticRegression()), "full")
    assert known != identity.describe(other, "full")


def test_splitters_arrays_and_dicts_can_be_described():
    assert identity.describe(StratifiedKFold(3), "cv") != identity.describe(StratifiedKFold(4), "cv")
    assert identity.describe(np.arange(3), "init") != identity.describe(np.arange(4), "init")
    assert identity.describe({"b": 1, "a": np.float64(2.0)}, "x") == {"a": 2.0, "b": 1}


@pytest.mark.parametrize(
    "value", [np.random.RandomState(0), iter([1]), print, FrozenEstimator(LogisticRegression())]
)
def test_what_cannot_be_told_apart_is_refused_by_name(value):
    with pytest.raises(InvalidInputError, match="random_state is a .*, which a sweep cannot tell"):
        identity.describe(value, "random_state")


def test_a_price_changes_the_costs():
    prices = [check_price_list([1.0, 2.0], None, call, 2) for call in (0.0, 1.0)]
    assert identity.costs(prices[0]) != identity.costs(prices[1])


def test_differences_are_named_and_short_ones_are_shown():
    stored = {
        "code": "1.0",
        "rows": "a" * 32,
        "parameters": {"l2": 1.0, "tol": 2, "old": 0},
        "f0": {"class": "A", "C": 1},
    }
    now = {
        "code": "1.1",
        "rows": "b" * 32,
        "parameters": {"l2": 1.0, "tol": 3, "new": 0},
        "f0": {"class": "A", "C": 2},
    }
    assert identity.differences(stored, now) == [
        "code (1.0; now 1.1)",
        "rows",
        "parameters (new, old, tol)",
        "f0",
    ]
    assert identity.differences(stored, stored) == []
