"""Trees as arrays of our own answer as scikit-learn does: scikit-learn is the oracle, to the last bit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

from thrifty.errors import InvalidInputError
from thrifty.full.trees import tree_classifier_of

N_ROWS = 400
MODELS = {
    "forest": RandomForestClassifier(7, random_state=0),
    "extra trees": ExtraTreesClassifier(7, max_leaf_nodes=20, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=6, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=8),
    "categories": HistGradientBoostingClassifier(max_iter=8, categorical_features=[1, 4]),
    "scaled": make_pipeline(StandardScaler(), RandomForestClassifier(4, random_state=0)),
    "scaled often": make_pipeline(
        RobustScaler(), MinMaxScaler(), MaxAbsScaler(), HistGradientBoostingClassifier(max_iter=4)
    ),
}
READ_MISSING = ("forest", "tree", "boosting", "categories", "scaled")


def table(seed, missing):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 5))
    X[:, 1], X[:, 4] = rng.integers(0, 12, N_ROWS), 0.5 * rng.integers(0, 4, N_ROWS)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


@pytest.fixture(scope="module", params=[2, 4], ids="{} classes".format)
def problem(request):
    X = table(0, missing=False)
    rng = np.random.default_rng(1)
    score = np.sin(X[:, 1]) + X[:, 2] * X[:, 4] + 0.3 * rng.normal(size=N_ROWS)
    return X, np.array(list("dabc"))[np.searchsorted(np.linspace(-0.5, 1.5, request.param - 1), score)]


def same(model, X):
    ours = tree_classifier_of(model)
    np.testing.assert_array_equal(ours.predict_proba(X), model.predict_proba(X), strict=True)
    np.testing.assert_array_equal(ours.predict(X), model.predict(X), strict=True)
    return ours


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_bit_of_an_answer_is_that_of_scikit_learn(name, problem):
    X, y = problem
    model = clone(MODELS[name]).fit(X, y)
    new = table(2, missing=False)
    new[:9, 1] = 77  # a category that was never seen
    for asked in (X, new, new[:1], new.astype(np.float32), np.round(new).astype(int)):
        ours = same(model, asked)
    assert list(ours.classes_) == list(model.classes_)
    assert ours.n_features_in_ == 5


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_MISSING)
def test_missing_values_go_where_scikit_learn_sends_them(name, problem):
    X = np.where(np.isnan(table(0, missing=True)), np.nan, problem[0])
    model = clone(MODELS[name]).fit(X, problem[1])
    same(model, table(3, missing=True))


def test_forests_read_sparse_tables_and_boosting_refuses_them_as_scikit_learn_does(problem):
    X, y = problem
    same(RandomForestClassifier(3, random_state=0).fit(X, y), sparse.csr_array(np.round(X)))
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, y)
    for each in (model, tree_classifier_of(model)):
        with pytest.raises(TypeError, match="Sparse data was passed"):
            each.predict_proba(sparse.csr_array(X))


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", ["forest", "scaled"])
def test_numbers_too_large_for_single_precision_and_other_columns_are_refused_alike(name, problem):
    model = clone(MODELS[name]).fit(*problem)
    for wrong in (np.full((1, 5), 1e300), np.full((1, 5), np.inf), np.zeros((1, 4))):
        for each in (model, tree_classifier_of(model)):
            with pytest.raises(ValueError, match=r"infinity|features"):
                each.predict_proba(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forest", "categories", "scaled"])
def test_a_data_frame_is_read_by_its_names(name, problem):
    frame = pd.DataFrame(problem[0], columns=list("vwxyz"))
    model = clone(MODELS[name]).fit(frame, problem[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = same(model, frame)
    assert list(ours.feature_names_in_) == list("vwxyz")
    with pytest.raises(ValueError, match="feature names"):
        ours.predict_proba(frame[list("zyxwv")])


def test_what_is_not_known_or_not_fitted_stays_as_it_is(problem):
    X, y = problem
    strange = make_pipeline(PolynomialFeatures(), RandomForestClassifier(2)).fit(X, y)
    clipped = make_pipeline(MinMaxScaler(clip=True), RandomForestClassifier(2)).fit(X, y)
    words = pd.DataFrame({"a": pd.Categorical(y), "b": X[:, 0]})
    text = HistGradientBoostingClassifier(max_iter=2).fit(words, y)
    several = RandomForestClassifier(2).fit(X, np.column_stack([y, y[::-1]]))
    for model in (strange, clipped, text, several, LogisticRegression(), RandomForestClassifier(), None, 7):
        assert tree_classifier_of(model) is None


def test_it_cannot_be_fitted_again(problem):
    ours = tree_classifier_of(DecisionTreeClassifier().fit(*problem))
    with pytest.raises(InvalidInputError, match="cannot be fitted. Wrap it in FrozenEstimator"):
        ours.fit(*problem)
