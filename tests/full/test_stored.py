"""Models of other libraries as arrays of ours: the library is the oracle."""

import warnings
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import ensemble, svm, tree
from sklearn import linear_model as linear
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from thrifty.engine.full.stored import booster_model, probe_table, stored_model_of
from thrifty.errors import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries: convergence, and what they will rename

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
X[:, 4] = RNG.integers(0, 6, 300)
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * np.sin(X[:, 4])
TARGETS = {"two": SCORE > 0, "three": np.digitize(SCORE, [-0.6, 0.7]), "number": SCORE}
NEW = np.vstack([RNG.normal(size=(800, 5)) * 2, X])
NEW[:, 4] = np.round(NEW[:, 4])
NEW_HOLES = np.where(RNG.random(NEW.shape) < 0.1, np.nan, NEW)

EXACT = {
    "tree": tree.DecisionTreeClassifier(max_depth=5),
    "extra tree": tree.ExtraTreeClassifier(max_depth=5),
    "forest": ensemble.RandomForestClassifier(12, random_state=0),
    "forest, best first": ensemble.RandomForestClassifier(7, max_leaf_nodes=9, random_state=0),
    "extra trees": ensemble.ExtraTreesClassifier(9, random_state=0),
    "histogram boosting": ensemble.HistGradientBoostingClassifier(max_iter=9),
    "categories": ensemble.HistGradientBoostingClassifier(max_iter=9, categorical_features=[4]),
    "scaled forest": make_pipeline(MaxAbsScaler(), ensemble.RandomForestClassifier(5, random_state=0)),
    "tree, number": tree.DecisionTreeRegressor(max_depth=6),
    "forest, number": ensemble.RandomForestRegressor(9, random_state=0),
    "histogram boosting, number": ensemble.HistGradientBoostingRegressor(max_iter=9),
    "quantile boosting, number": ensemble.HistGradientBoostingRegressor(loss="quantile", quantile=0.8),
}
WITHOUT_HOLES = {
    "gradient boosting": ensemble.GradientBoostingClassifier(n_estimators=9),
    "gradient boosting, number": ensemble.GradientBoostingRegressor(n_estimators=9, loss="absolute_error"),
}
BOOSTERS = {}
if find_spec("lightgbm"):
    import lightgbm

    quiet = {"n_estimators": 12, "n_jobs": 1, "verbose": -1}
    BOOSTERS["lightgbm"] = lightgbm.LGBMClassifier(**quiet)
    BOOSTERS["lightgbm, number"] = lightgbm.LGBMRegressor(**quiet, objective="quantile", alpha=0.7)
if find_spec("xgboost"):
    import xgboost

    BOOSTERS["xgboost"] = xgboost.XGBClassifier(n_estimators=12, n_jobs=1)
    BOOSTERS["xgboost, pruned"] = xgboost.XGBClassifier(
        n_estimators=9, n_jobs=1, tree_method="exact", gamma=1
    )
    BOOSTERS["xgboost, number"] = xgboost.XGBRegressor(n_estimators=12, n_jobs=1)
    BOOSTERS["xgboost, median, number"] = xgboost.XGBRegressor(
        objective="reg:absoluteerror", n_estimators=9, n_jobs=1
    )
KERNELS = {
    f"svm, {kernel}{', probability' * probability}": make_pipeline(
        StandardScaler(), svm.SVC(kernel=kernel, probability=probability)
    )
    for kernel in ("linear", "poly", "rbf", "sigmoid")
    for probability in (False, True)
}
SUMMED = {
    **KERNELS,
    "pairs": make_pipeline(RobustScaler(), svm.SVC(decision_function_shape="ovo")),
    "nu": make_pipeline(MinMaxScaler(), svm.NuSVC(nu=0.2, break_ties=True)),
    "svr, number": svm.SVR(),
    "nu svr, number": svm.NuSVR(kernel="poly"),
    "logistic": linear.LogisticRegression(),
    "searched": GridSearchCV(linear.LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    "linear svm": svm.LinearSVC(),
    "hinge": linear.SGDClassifier(random_state=0),
    "sgd": linear.SGDClassifier(loss="log_loss", random_state=0),
    "perceptron": linear.Perceptron(random_state=0),
    "ridge": linear.RidgeClassifier(),
    "discriminant": LinearDiscriminantAnalysis(),
    "ols, number": linear.LinearRegression(),
    "ridge, number": linear.Ridge(),
    "lasso, number": linear.Lasso(alpha=0.01),
    "elastic net, number": linear.ElasticNet(alpha=0.01),
    "sgd, number": linear.SGDRegressor(random_state=0),
    "linear svr, number": svm.LinearSVR(random_state=0),
}
IMPUTED = {
    strategy: make_pipeline(SimpleImputer(strategy=strategy), StandardScaler(), linear.LogisticRegression())
    for strategy in ("mean", "median", "constant", "most_frequent")
}


def cases(models):
    return [
        (name, target)
        for name in models
        for target in (["number"] if name.endswith("number") else ["two", "three"])
    ]


def both(model, target, table):
    model.fit(table, TARGETS[target])
    found = stored_model_of(model)
    assert found is not None, "the model is not stored"
    return model, found


def assert_same(model, found, table, rtol=0.0):
    asked = [name for name in ("predict_proba", "decision_function", "predict") if hasattr(found, name)]
    assert hasattr(found, "predict_proba") == hasattr(model, "predict_proba")
    for name in asked:
        theirs, ours = getattr(model, name)(table), getattr(found, name)(table)
        if rtol and ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("name", "target"), cases({**EXACT, **BOOSTERS}))
def test_trees_answer_to_the_last_bit_as_their_library_on_rows_with_holes_too(name, target):
    for table, new in ((X, NEW), (HOLES, NEW_HOLES)):
        assert_same(*both({**EXACT, **BOOSTERS}[name], target, table), new)


@pytest.mark.parametrize(("name", "target"), cases(WITHOUT_HOLES))
def test_trees_that_take_no_holes_answer_to_the_last_bit_and_refuse_them(name, target):
    model, found = both(WITHOUT_HOLES[name], target, X)
    assert_same(model, found, NEW)
    with pytest.raises(ValueError, match="NaN"):
        found.predict(NEW_HOLES)


@pytest.mark.parametrize(("name", "target"), cases(SUMMED))
def test_linear_models_and_support_vector_machines_answer_as_their_library_up_to_rounding(name, target):
    model, found = both(SUMMED[name], target, X)
    # libsvm stops an iteration for the probabilities of several classes, whose last digits are its own.
    assert_same(model, found, NEW, rtol=1e-10 if "probability" in name else 1e-12)


@pytest.mark.parametrize("name", IMPUTED)
def test_imputers_and_scalers_go_before(name):
    assert_same(*both(IMPUTED[name], "two", HOLES), NEW_HOLES, rtol=1e-12)


COLOURS = pd.DataFrame(X[:, :3], columns=["a", "b", "the c"]).assign(
    colour=pd.Categorical(RNG.choice(["red", "green", "blue", "violet", "grey"], 300)),
    grade=pd.Categorical(np.where(RNG.random(300) < 0.1, None, RNG.choice([1, 5, 30, 7], 300))),
)
ODD_COLOURS = SCORE + COLOURS["colour"].isin(["red", "grey"]) * 2.0 - COLOURS["grade"].isin([5]) * 1.5 > 0.3


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "histogram boosting"])
@pytest.mark.parametrize("target", ["two", "three", "number"])
def test_splits_on_categories_answer_to_the_last_bit_for_unseen_and_missing_levels_too(library, target):
    y = {"two": ODD_COLOURS, "three": ODD_COLOURS + (SCORE > 1), "number": SCORE + 2 * ODD_COLOURS}[target]
    kind = "Regressor" if target == "number" else "Classifier"
    if library == "histogram boosting":
        model = getattr(ensemble, f"HistGradientBoosting{kind}")(max_iter=9, min_samples_leaf=5)
    elif library == "lightgbm":
        kinds = pytest.importorskip(library)
        model = getattr(kinds, f"LGBM{kind}")(**quiet, min_child_samples=5, min_data_per_group=5)
    else:
        kinds = pytest.importorskip(library)
        model = getattr(kinds, f"XGB{kind}")(
            n_estimators=9, n_jobs=1, enable_categorical=True, max_cat_to_onehot=2
        )
    found = stored_model_of(model.fit(COLOURS, y))
    assert found is not None
    assert any(part.sets is not None for part in found.core.parts)
    unseen = COLOURS.assign(
        colour=pd.Categorical(
            RNG.choice(["red", "violet", "amber", "pink"], 300)
        ),  # XGBoost refuses what sorts after all it knows
        grade=COLOURS["grade"].where(RNG.random(300) < 0.5),
    )
    assert_same(model, found, COLOURS)
    if library == "xgboost":  # which refuses some unseen levels and takes others for the next one
        known = unseen.assign(colour=unseen["colour"].cat.set_categories(COLOURS["colour"].cat.categories))
        np.testing.assert_array_equal(found.predict(unseen), model.predict(known))
        unseen = known
    assert_same(model, found, unseen)
    assert found.touched(unseen)[:, 3].any()
    if library != "histogram boosting":
        codes = RNG.integers(-2, 9, (300, 5)) + np.array([0.25, 0.5, 0.75, 0.0, 0.0])
        codes[::7, 3:] = np.nan
        assert_same(model, found, codes)


def test_a_table_with_names_or_a_sparse_one_is_read_as_the_original_reads_it():
    frame = pd.DataFrame(X, columns=list("abcde"))
    model, found = both(EXACT["forest"], "two", frame)
    assert_same(model, found, pd.DataFrame(NEW, columns=list("abcde")))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(pd.DataFrame(NEW, columns=list("edcba")))
    model, found = both(EXACT["forest"], "two", sparse.csr_array(X))
    assert_same(model, found, sparse.csr_array(NEW))
    model, found = both(ensemble.HistGradientBoostingClassifier(max_iter=2), "two", X)
    with pytest.raises(TypeError, match="[Ss]parse"):
        found.predict(sparse.csr_array(NEW))


def test_single_precision_stays_single_before_a_scaler():
    assert_same(*both(EXACT["scaled forest"], "two", X.astype(np.float32)), NEW.astype(np.float32))


@pytest.mark.parametrize(
    "model",
    [
        GaussianNB(),
        KNeighborsClassifier(),
        linear.SGDClassifier(loss="modified_huber"),
        svm.SVC(kernel=lambda a, b: a @ b.T),
        make_pipeline(MinMaxScaler(clip=True), linear.LogisticRegression()),
        make_pipeline(SimpleImputer(add_indicator=True), linear.LogisticRegression()),
        ensemble.GradientBoostingClassifier(n_estimators=2, init=GaussianNB()),
        ensemble.AdaBoostClassifier(n_estimators=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_whose_arrays_are_not_known_is_not_stored(model):
    assert stored_model_of(model.fit(X, TARGETS["two"])) is None


def test_a_subclass_or_a_model_that_answers_otherwise_than_its_arrays_is_not_stored():
    class Doubtful(linear.LogisticRegression):
        pass

    assert stored_model_of(Doubtful().fit(X, TARGETS["two"])) is None
    changed = linear.LogisticRegression().fit(X, TARGETS["two"])
    changed.predict_proba = lambda table: np.full((len(table), 2), 0.5)
    assert stored_model_of(changed) is None


def test_a_stored_model_is_stored_again_as_it_is_and_cannot_be_fitted():
    found = stored_model_of(EXACT["tree"].fit(X, TARGETS["two"]))
    assert stored_model_of(found) is found
    with pytest.raises(InvalidInputError, match="cannot be fitted"):
        found.fit(X, TARGETS["two"])
    assert FrozenEstimator(found).predict(X).shape == (300,)


def test_columns_that_rows_meet_on_their_way_down_are_those_of_the_trees():
    for name in ("forest", "categories"):
        found = stored_model_of(EXACT[name].fit(X, TARGETS["two"]))
        touched = found.touched(NEW[:40])
        for row, asked in zip(NEW[:40], touched, strict=True):
            others = np.where(asked, row, RNG.normal(size=5) * 9)
            np.testing.assert_array_equal(found.predict_proba(others[None]), found.predict_proba(row[None]))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_booster_alone_is_a_model_of_numbered_classes(library):
    pytest.importorskip(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BOOSTERS[library].fit(X, TARGETS["three"])
    found = booster_model(model.booster_ if library == "lightgbm" else model.get_booster())
    assert found.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.predict_proba(NEW), model.predict_proba(NEW))


def test_made_up_rows_differ_from_column_to_column_and_row_to_row():
    table = probe_table(50)
    assert len(np.unique(table, axis=0)) == len(table)
    assert np.all(np.std(table, axis=0) > 0)
    np.testing.assert_array_equal(probe_table(3), table[:, :3])
