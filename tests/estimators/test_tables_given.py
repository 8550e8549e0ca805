"""What users hand over: labels of every kind, tables with columns that are no numbers, full models that are fitted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from thrifty import BudgetedClassifier, DynaModLinClassifier, StageOptions
from thrifty.errors import InvalidInputError, RefittedFullModelWarning

SMALL = {"stages": StageOptions(sizes=[(5, 2)]), "cv": 2, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=list("abc"))
    return X, (X["a"] + X["b"] > 0).astype(int)


@pytest.mark.slow
def test_nullable_integer_labels_stay_integers(rows):
    X, y = rows
    clf = DynaModLinClassifier(LogisticRegression(), random_state=0).fit(X, y.astype("Int64"))
    assert clf.classes_.dtype.kind == "i"
    assert clf.predict(X).dtype.kind == "i"


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pd.Categorical(["x"] * 200), "'d' holds categories"),
        ("word", "'d' holds text such as 'word'"),
    ],
)
def test_a_column_that_is_no_numbers_is_named_with_what_it_holds(rows, column, told):
    X, y = rows
    with pytest.raises(InvalidInputError, match=told):
        DynaModLinClassifier(LogisticRegression()).fit(X.assign(d=column), y)
    with pytest.raises(InvalidInputError, match="Column 'd' holds .*A Pipeline can encode it"):
        BudgetedClassifier(LogisticRegression(), **SMALL).fit(X.assign(d=column), y)


@pytest.mark.slow
def test_a_fitted_full_model_that_will_be_fitted_again_is_mentioned(rows):
    X, y = rows
    with pytest.warns(RefittedFullModelWarning, match="FrozenEstimator"):
        DynaModLinClassifier(LogisticRegression().fit(X, y), random_state=0).fit(X, y)


@pytest.mark.slow
def test_cells_that_a_row_does_not_buy_have_no_say_in_its_route(rows):
    X, y = rows
    clf = BudgetedClassifier(LogisticRegression(), **SMALL).fit(X, y)
    low, high = clf.chain_.policy.cost[[0, -1]]
    mixed = clf.at(budget=float(low + 0.5 * (high - low)))
    assert mixed.chain_.policy.is_mixed
    route = mixed.route(X)
    bought = mixed.chain_.bought_by_place[route]
    blanked = X.mask(~bought, 123.0)
    np.testing.assert_array_equal(mixed.route(blanked), route)
    np.testing.assert_array_equal(mixed.predict(blanked), mixed.predict(X))


@pytest.mark.slow
# Large values are hidden, and they tell the label.
@pytest.mark.filterwarnings("ignore::thrifty.errors.InformativeBlanksWarning")
def test_what_is_masked_is_missing_in_fits_and_in_questions(rows):
    X, y = rows[0].to_numpy(), rows[1].to_numpy()
    hidden, holes = np.ma.masked_greater(X, 1.0), np.where(X > 1.0, np.nan, X)
    clf = BudgetedClassifier(HistGradientBoostingClassifier(max_iter=5), **SMALL)
    masked, missing = clone(clf).fit(hidden, y), clone(clf).fit(holes, y)
    np.testing.assert_array_equal(masked.predict_proba(hidden), missing.predict_proba(holes))


@pytest.mark.parametrize("name", ["y", "sample_weight", "feature_costs"])
def test_labels_weights_and_prices_may_not_be_masked(rows, name):
    X, y = rows
    given = {"y": y.to_numpy(), "sample_weight": np.ones(200), "feature_costs": np.ones(3)}
    given[name] = np.ma.masked_array(given[name], mask=np.arange(len(given[name])) == 1)
    clf = BudgetedClassifier(LogisticRegression(), feature_costs=given["feature_costs"], **SMALL)
    with pytest.raises(
        InvalidInputError, match=f"{name} must hold a value everywhere; it is masked at place 1"
    ):
        clf.fit(X, given["y"], sample_weight=given["sample_weight"])


def test_a_class_in_the_place_of_a_full_model_is_refused_with_what_to_write(rows):
    with pytest.raises(
        InvalidInputError, match=r"not a class; got LogisticRegression. Write LogisticRegression\(\)"
    ):
        BudgetedClassifier(LogisticRegression, **SMALL).fit(*rows)


def test_a_pyarrow_table_is_read_as_the_same_table_of_pandas(rows):
    pa = pytest.importorskip("pyarrow")
    X, y = rows
    X = X.assign(kind=np.where(X["a"] > 0, "warm", "cold"))
    arrow = pa.Table.from_pandas(X, preserve_index=False)
    for make in (
        lambda: BudgetedClassifier(**SMALL),
        lambda: DynaModLinClassifier(LogisticRegression(), random_state=0),
    ):
        columns = list("abc") if isinstance(make(), DynaModLinClassifier) else list(X.columns)
        one, other = make().fit(X[columns], y), make().fit(arrow.select(columns), y)
        np.testing.assert_array_equal(other.predict(arrow.select(columns)), one.predict(X[columns]))
        np.testing.assert_array_equal(other.cost(arrow.select(columns)), one.cost(X[columns]))
    with pytest.raises(InvalidInputError, match="feature names should match"):
        one.predict(arrow.select(["a", "kind", "b"]))
