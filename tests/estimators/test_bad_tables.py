"""Every estimator and every table that is wrong: it is refused in words, or answered with probabilities."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import thrifty
from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Prices,
    StageOptions,
)
from thrifty.errors import DoubtfulRowsWarning, InvalidInputError, ThriftyError
from thrifty.learners.dynamod import BoostedOptions, LeafOptions, LinearOptions

N = 40
CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(N, 3))
Y = (X[:, 0] + 0.7 * CHANCE.normal(size=N) > 0).astype(int)
FRAME = pd.DataFrame(X, columns=list("abc"))
ROW = np.arange(N)

BOOSTED = HistGradientBoostingClassifier(max_iter=2)
FULL, FOLDS = LogisticRegression(solver="newton-cholesky"), {"cv": 2, "random_state": 0}
LOCAL = GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0)
ESTIMATORS = [
    DynaModLinClassifier(FULL, options=LinearOptions(tol=1e-2, max_iter=50), **FOLDS),
    ConfidenceRouter(FULL, features=[0, 1], **FOLDS),
    DynaModGbrtClassifier(FULL, options=BoostedOptions(n_trees=3, max_iter=2, tol=1.0), **FOLDS),
    DynaModLstsqClassifier(FULL, options=LeafOptions(n_trees=2, max_iter=2, tol=1.0), **FOLDS),
    BudgetedClassifier(FULL, stages=StageOptions(max_stages=2, sizes=[(3, 2)]), **FOLDS),
]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)


def with_cell(value, table=X):
    table = table.copy()
    table[3, 1] = value
    return table


def with_column(values):
    table = X.copy()
    table[:, 1] = values
    return table


BAD_X = {
    "no columns": (X[:, :0], "0 feature"),
    "an infinite value": (with_cell(np.inf), "Column 1 holds an infinite value in row 3"),
    "text": (FRAME.assign(b="word"), "Column 'b' holds text such as 'word'"),
    "objects": (np.array([[{}] * 3] * N, dtype=object), "Column 0 holds object values"),
    "dates": (FRAME.assign(b=pd.Timestamp("2020-01-01")), "Column 'b' holds dates"),
    "complex numbers": (X + 1j, "Complex data"),
    "three dimensions": (X[:, :, None], "dim 3"),
    "one dimension": (X[:, 0], "2D array"),
    "nothing": (None, "2D array"),
    "rows of several lengths": ([[1, 2], [3]] * (N // 2), "rows have different lengths"),
    "whole numbers that are no floats": ([[10**400, 1, 2]] * N, "Column 0 holds"),
    "one name twice": (FRAME.set_axis(["a", "b", "a"], axis=1), "unique column names"),
    "names of several types": (FRAME.set_axis(["a", 1, 2.0], axis=1), "string names"),
}
BAD_Y = {
    "one class": (np.zeros(N), "got 1 class"),
    "a missing label": (np.where(ROW == 3, np.nan, Y), "y contains NaN: .* row 3"),
    "a label that is None": (np.where(ROW == 3, None, Y), "y contains NaN: .* row 3"),
    "a label too few": (Y[:-1], r"inconsistent numbers of samples: \[40, 39\]"),
    "numbers that are no labels": (X[:, 0], "continuous"),
    "no labels": (None, "y is None"),
    "two columns": (np.c_[Y, Y], "1d array"),
    "bytes": (np.where(Y, b"x", b"z"), "bytes"),
    "lists": (pd.Series([[1, 2]] * N), "y must hold distinct labels"),
    "several types": (np.array(["a", 1], dtype=object)[Y], "y must hold distinct labels"),
}
BAD_WEIGHT = {
    "a negative one": (np.where(ROW == 3, -1.0, 1.0), "Negative values"),
    "a missing one": (np.where(ROW == 3, np.nan, 1.0), "contains NaN"),
    "zeros": (np.zeros(N), "sample_weight"),
    "one too few": (np.ones(N - 1), r"\(39,\)"),
    "text": (["heavy"] * N, "sample_weight must be a number >= 0"),
    "ratios that are no numbers": (np.where(Y, 1e-200, 1e99), r"got 1e-200 to 1e\+99"),
    "one row alone": ((ROW == 3) * 1.0, "got 1 class"),
}
BAD_PARAMETERS = {
    "a negative price": ({"feature_costs": [1, -1, 1]}, "column 1 has -1"),
    "a missing price": ({"feature_costs": [1, np.nan, 1]}, "column 1 has nan"),
    "an infinite price": ({"feature_costs": [1, np.inf, 1]}, "column 1 has inf"),
    "a price too few": ({"feature_costs": [1, 1]}, "3 in all"),
    "a price that is no number": ({"feature_costs": ["a", 1, 1]}, "must be numbers"),
    "a huge price": ({"feature_costs": [1, 1e300, 1]}, r"0, or lie between 1e-100 and 1e\+100; column 1 has"),
    "a tiny price": ({"feature_costs": [1, 1, 1e-300]}, "column 2 has 1e-300"),
    "a negative price of the full model": ({"prices": Prices(full=-1)}, "price of the full model .* must be"),
    "a huge price of the full model": (
        {"prices": Prices(full=1e300)},
        "full model .* must be 0, or lie between",
    ),
    "a tiny price of the full model": (
        {"prices": Prices(full=1e-300)},
        "full model .* must be 0, or lie between",
    ),
    "a negative budget": ({"budget": -1}, "budget must be a finite number"),
    "a missing budget": ({"budget": np.nan}, "budget must be a finite number"),
    "a budget that is text": ({"budget": "1"}, "budget must be a finite number"),
    "columns that are no columns": ({"prices": Prices(full_features=[{}])}, "full_features"),
    "columns of several lengths": ({"prices": Prices(full_features=[[1], [1, 2]])}, "full_features"),
    "no threads": ({"n_jobs": 0}, "n_jobs must be None or a whole number"),
    "threads that are text": ({"n_jobs": "all"}, "n_jobs must be None or a whole number"),
}


def test_every_public_estimator_is_here():
    here = {type(estimator).__name__ for estimator in ESTIMATORS}
    known = {name for name in thrifty.__all__ if name.endswith(("Classifier", "Router"))}
    # A router learns from a log, and has no y; a cascade of models hands its tables to them.
    assert here == known - {"ModelRouter", "CascadeClassifier"}


@pytest.mark.slow
@every_estimator
def test_a_table_that_no_estimator_reads_is_refused(estimator):
    reads = {"text", "dates"} if getattr(estimator, "_accepts_levels", False) else set()
    for name, (table, told) in BAD_X.items():
        if name not in reads:
            with pytest.raises(InvalidInputError, match=told):
                clone(estimator).fit(table, Y)


def test_new_rows_are_refused_as_rows_to_fit_on_are():
    nameless, named = (clone(ESTIMATORS[0]).fit(table, Y) for table in (X, FRAME))
    for table, _ in BAD_X.values():
        fitted = named if isinstance(table, pd.DataFrame) else nameless
        for answer in (fitted.predict, fitted.cost):
            with pytest.raises(InvalidInputError):
                answer(table)


@every_estimator
def test_labels_that_no_estimator_learns_from_are_refused(estimator):
    for labels, told in BAD_Y.values():
        with pytest.raises(InvalidInputError, match=told):
            clone(estimator).fit(X, labels)


@every_estimator
@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_a_single_one_are_refused(estimator, rows):
    with pytest.raises(InvalidInputError, match=r"0 sample|got 1 class"):
        clone(estimator).fit(X[:rows], Y[:rows])


@every_estimator
def test_weights_that_cannot_be_meant_are_refused(estimator):
    for weight, told in BAD_WEIGHT.values():
        with pytest.raises(InvalidInputError, match=told):
            clone(estimator).fit(X, Y, sample_weight=weight)


@pytest.mark.slow
@every_estimator
def test_prices_budgets_and_columns_that_cannot_be_meant_are_refused(estimator):
    known = set(estimator.get_params(deep=False))
    for parameters, told in BAD_PARAMETERS.values():
        if known.issuperset(parameters):
            with pytest.raises(InvalidInputError, match=told):
                clone(estimator).set_params(**parameters).fit(X, Y)


ODD = {
    "a missing value": {"X": with_cell(np.nan)},
    "a column without a value": {"X": with_column(np.nan)},
    "sparse": {"X": sparse.csr_array(X)},
    "constant columns": {"X": np.ones_like(X)},
    "huge values": {"X": with_column(np.sign(X[:, 2]) * 1.7e308)},
    "text that is numbers": {"X": X.astype(str)},
    "a budget below every price": {"budget": 0.5},
    "the smallest and the largest price": {"feature_costs": [1e-100, 1.0, 1e100]},
    "heavy rows": {"sample_weight": np.full(N, 1e308)},
    "heavy rows and light ones": {"sample_weight": np.where(ROW % 2, 1e-15, 1e15)},
}


def answered(estimator, X=X, sample_weight=None, **parameters):
    """Probabilities and costs of a fit, or None where it was refused."""
    known = set(estimator.get_params(deep=False))
    fresh = clone(estimator).set_params(**{name: parameters[name] for name in parameters if name in known})
    try:
        fresh.fit(X, Y, sample_weight=sample_weight)
    except ThriftyError:
        return None
    return fresh.predict_proba(X), fresh.cost(X)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@every_estimator
@pytest.mark.parametrize("case", ODD)
def test_what_one_estimator_reads_and_another_does_not_is_answered_or_refused(estimator, case):
    found = answered(estimator, **ODD[case])
    if found is not None:
        probability, cost = found
        np.testing.assert_allclose(probability.sum(axis=1), 1.0)
        assert np.isfinite(probability).all()
        assert np.isfinite(cost).all()


@pytest.mark.slow
@pytest.mark.parametrize("values", [np.full(N, np.nan), np.where(ROW == 3, 1.0, np.nan)], ids=["none", "one"])
@pytest.mark.parametrize("kind", ["array", "pandas", "polars"])
def test_a_column_without_values_in_a_fold_does_not_stop_histogram_boosting(values, kind):
    table = with_column(values)
    if kind != "array":
        table = pytest.importorskip(kind).DataFrame(dict(zip("abc", table.T, strict=True)))
    clf = ConfidenceRouter(BOOSTED, BOOSTED, features=[0], **FOLDS).fit(table, Y)
    assert np.isfinite(clf.predict_proba(table)).all()


def test_what_a_full_model_says_when_it_cannot_be_fitted_is_passed_on_in_its_words():
    class Picky(LogisticRegression):
        def fit(self, X, y):
            raise KeyError("no such colour")

    with pytest.raises(InvalidInputError, match=r"Picky cannot be fitted on 40 of the rows: .no such colour"):
        ConfidenceRouter(Picky(), prices=Prices(0.0, full=1.0), **FOLDS).fit(X, Y)


@pytest.mark.parametrize("table", ["pandas", "polars", "pandas with text"])
def test_a_row_taken_out_of_its_data_frame_is_refused_with_the_way_out(table):
    frame = FRAME.assign(b=np.where(X[:, 1] > 0, "x", "y")) if table == "pandas with text" else FRAME
    given = pl.from_pandas(FRAME) if table == "polars" else frame
    way_out = given[[0]] if table == "polars" else given.iloc[[0]]
    clf = BudgetedClassifier(stages=StageOptions(max_stages=2, sizes=[(3, 2)]), **FOLDS).fit(given, Y)
    row = given["a"] if table == "polars" else given.iloc[0]
    for ask in (clf.predict, clf.cost, clf.explain, clf.chain_.predict, lambda row: clf.fit(row, Y)):
        with pytest.raises(InvalidInputError, match=r"Expected 2D array, got 1D array .*X(\.iloc)?\[\[0\]\]"):
            ask(row)
    assert clf.predict(way_out) == clf.predict(given)[:1]


def test_missing_values_are_refused_in_the_name_of_the_model_that_cannot_read_them():
    holes, scaled = with_cell(np.nan), make_pipeline(StandardScaler(), LogisticRegression())
    small = {"stages": StageOptions(max_stages=2, sizes=[(3, 2)]), **FOLDS}
    blamed = {
        "'full', a LogisticRegression,": BudgetedClassifier(FULL, **small),
        "'full', a Pipeline with LogisticRegression,": BudgetedClassifier(scaled, **small),
        "the stages of BudgetedClassifier do": DynaModGbrtClassifier(
            BudgetedClassifier(FULL, **small), options=BoostedOptions(n_trees=3)
        ),
        "^Input X contains NaN.\nDynaModLinClassifier does not": DynaModLinClassifier(BOOSTED, **FOLDS),
    }
    for words, estimator in blamed.items():
        with pytest.raises(InvalidInputError, match=words) as refusal:
            estimator.fit(holes, Y)
        assert "Column 1 is missing (NaN) in row 3" in str(refusal.value)
    clf = BudgetedClassifier(FULL, **small).fit(X, Y)
    with pytest.raises(InvalidInputError, match="'full', a LogisticRegression,"):
        clf.predict(holes)


def test_a_loaded_system_still_names_the_model_that_cannot_read_missing_values(tmp_path):
    clf = BudgetedClassifier(FULL, stages=StageOptions(max_stages=2, sizes=[(3, 2)]), **FOLDS).fit(X, Y)
    thrifty.save(clf, tmp_path / "clf.thrifty")
    with pytest.raises(InvalidInputError, match="'full', a LogisticRegression,"):
        thrifty.load(tmp_path / "clf.thrifty").predict(with_cell(np.nan))


@every_estimator
def test_a_keyword_that_fit_does_not_take_is_refused_in_the_name_of_the_class(estimator):
    called = type(estimator).__name__
    with pytest.raises(TypeError, match=rf"^{called}\.fit takes no argument 'bugdet'\.$"):
        clone(estimator).fit(X, Y, bugdet=3)
    if "budget" in estimator.get_params():
        way_out = rf"parameter of the constructor: write {called}\(\.\.\., budget=\.\.\.\)"
        with pytest.raises(InvalidInputError, match=way_out):
            clone(estimator).fit(X, Y, budget=3)


SMALL = {"stages": StageOptions(max_stages=2, sizes=[(3, 2)]), **FOLDS}


@pytest.mark.parametrize(
    ("columns", "advice"),
    [
        (
            "bca",
            r"must be in the same order as they were in fit\.\nGive X\[clf.feature_names_in_\], which has",
        ),
        ("abcd", r"unseen at fit time:\n- d\nGive X\[clf.feature_names_in_\], which has"),
        (
            "bc",
            r"yet now missing:\n- a\nAdd 'a', and give X\[clf.feature_names_in_\], in the order of the fit\.$",
        ),
        ("ab", r"- c\nAdd 'c', .* No stage reads 'c'; clf.features_ numbers what stages read: 'a', 'b'\.$"),
    ],
)
@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_an_error_of_other_columns_hands_over_the_line_that_helps(columns, advice, kind):
    frame = FRAME.assign(b=np.where(X[:, 1] > 0, "x", "y")) if kind == "text" else FRAME
    clf = BudgetedClassifier(prices=Prices(full_features=["a", "b"]), **SMALL).fit(frame, Y)
    clf.features_ = np.array([0, 1])
    with pytest.raises(InvalidInputError, match=advice):
        clf.predict(frame.assign(d=1.0)[list(columns)])
    with pytest.raises(InvalidInputError, match=r"Give X\[list\(clf.feature_names_in_\)\]"):
        clf.predict(pl.from_pandas(frame[["b", "a", "c"]]))
    assert clf.predict(pl.from_pandas(frame)[list(clf.feature_names_in_)]).shape == (N,)


@pytest.mark.parametrize(
    "y",
    [
        np.where(ROW == 7, np.nan, Y),
        np.where(ROW == 7, None, Y.astype(object)),
        np.where(ROW == 7, None, np.array(["n", "y"], dtype=object)[Y]),
        np.where(ROW == 7, np.nan, np.array(["n", "y"], dtype=object)[Y]),
        pd.Series(Y, dtype="Int64").where(ROW != 7),
    ],
)
def test_a_missing_target_is_named_by_its_row(y):
    with pytest.raises(InvalidInputError, match="y contains NaN: .* 1 of 40 rows, the first of them row 7"):
        BudgetedClassifier(FULL, **SMALL).fit(X, y)
    if y.dtype.kind == "f":
        with pytest.raises(InvalidInputError, match="y contains infinity.* The first is in row 7"):
            BudgetedRegressor(Ridge(), **SMALL).fit(X, np.where(ROW == 7, np.inf, Y))


def test_a_list_of_dicts_is_refused_with_the_way_out():
    records = FRAME.to_dict("records")
    clf = BudgetedClassifier(FULL, **SMALL).fit(FRAME, Y)
    for ask in (clf.predict, lambda rows: clf.fit(rows, Y)):
        with pytest.raises(InvalidInputError, match=r"got a list of dicts.*pandas.DataFrame\(X\)"):
            ask(records)


@pytest.mark.filterwarnings("default::thrifty.errors.DoubtfulRowsWarning")
def test_a_fit_on_ten_rows_warns():
    with pytest.warns(DoubtfulRowsWarning, match="there are 10 rows, too few"):
        BudgetedClassifier(FULL, **SMALL).fit(X[:10], Y[:10])


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (["12 %", "13 %", "14 %", "15 %"], "'b' holds numbers with separators or units such as '12 %'"),
        (["13", "14", "x", "15"], "'b' holds numbers, but 'x' in row 2"),
        (["31/12/2025", "1/1/2026", "2/1/2026", "3/1/2026"], "'b' holds dates such as"),
        (["x", 1.0, 2.0, 3.0], "'b' holds numbers, but 'x' in row 0"),
    ],
)
def test_numbers_that_become_categories_are_warned_of_unless_they_are_declared(library, cells, problem):
    if library is pl.DataFrame and not isinstance(cells[1], str):
        pytest.skip("polars has no column of text and numbers")
    table = {"a": X[:, 0], "b": cells * (N // 4)}
    clf = BudgetedClassifier(**SMALL)
    with pytest.warns(DoubtfulRowsWarning, match=f"{problem}.*Every text is read as a category"):
        clf.fit(library(table), Y)
    if library is pd.DataFrame:
        declared = pd.DataFrame(table).astype({"b": "category"})
    else:
        declared = pl.DataFrame(table).with_columns(pl.col("b").cast(pl.Categorical))
    assert clf.fit(declared, Y).chain_.levels.columns == (1,)
    plain = ["x", "y", "7 up", "u"] * (N // 4)
    clf.fit(library({**table, "b": plain}), Y)
