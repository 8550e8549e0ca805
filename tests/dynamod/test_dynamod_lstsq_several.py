"""DynaMod-Lstsq and its greedy rivals with several classes: a value for the gate and for every class in each leaf."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from reproduction.rivals.greedy_l1 import GreedyL1Classifier
from reproduction.rivals.greedy_leaf import GreedyLeafClassifier
from thrifty import ConfidenceRouter, DynaModLstsqClassifier, Prices
from thrifty.engine.tasks.classes import MulticlassTask
from thrifty.engine.trees.other_libraries import additive_trees
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import LeafOptions
from thrifty.learners.dynamod.leaf import LeafPair

X, DIGIT = load_digits(n_class=4, return_X_y=True)
X, Y = X[:, 10:40:2], np.array(["none", "one", "two", "three"])[DIGIT]
FIT, NEW = slice(200, 450), slice(450, None)


@pytest.fixture(scope="module")
def full():
    return FrozenEstimator(GaussianNB(var_smoothing=1e-2).fit(X[:200], Y[:200]))


def locals_of_every_library():
    found = [HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=6, early_stopping=False)]
    try:
        from lightgbm import LGBMClassifier

        found.append(LGBMClassifier(n_estimators=2, num_leaves=6, n_jobs=1, verbose=-1))
    except ModuleNotFoundError:
        pass
    return found


@pytest.mark.slow
@pytest.mark.parametrize("local", locals_of_every_library(), ids=lambda local: type(local).__name__)
def test_no_rounds_are_the_confidence_router_and_rounds_lower_the_objective(local, full):
    local = FrozenEstimator(local.fit(X[:200], Y[:200]))
    start = DynaModLstsqClassifier(full, local, options=LeafOptions(max_iter=0)).fit(X[FIT], Y[FIT])
    router = ConfidenceRouter(full, local, prices=Prices(0.0, full=1.0)).fit(X[FIT], Y[FIT])
    np.testing.assert_array_equal(start.route(X[NEW]), router.route(X[NEW]))
    np.testing.assert_array_equal(start.predict(X[NEW]), router.predict(X[NEW]))
    clf = DynaModLstsqClassifier(full, local, options=LeafOptions(max_iter=20, tol=1e-2)).fit(X[FIT], Y[FIT])
    assert clf.chain_.stages[0].trees.n_outputs == 5
    assert clf.trace_[-1, 1] <= clf.trace_[0, 0] + 1e-3
    assert np.all(clf.residuals_ < 1e-7)
    wrong = clf.at(threshold=np.inf).predict(X[NEW]) != Y[NEW]
    g = clf.scores(X[NEW])[0]
    assert g[wrong].mean() > g[~wrong].mean()


def test_xgboost_labels_its_classes_by_numbers(full):
    xgboost = pytest.importorskip("xgboost")
    local = xgboost.XGBClassifier(n_estimators=2, max_depth=3, n_jobs=1).fit(X[:200], DIGIT[:200])
    numbers = FrozenEstimator(GaussianNB().fit(X[:200], DIGIT[:200]))
    start = DynaModLstsqClassifier(numbers, FrozenEstimator(local), options=LeafOptions(max_iter=0)).fit(
        X[FIT], DIGIT[FIT]
    )
    cheap = start.at(threshold=np.inf)
    np.testing.assert_allclose(cheap.predict_proba(X[NEW]), local.predict_proba(X[NEW]), atol=1e-5)


@pytest.mark.parametrize("labels", [Y, np.where(DIGIT > 1, "large", "small")], ids=["four", "two"])
def test_a_forest_starts_from_calibrated_shares_of_its_leaves(labels):
    full = GaussianNB(var_smoothing=1e-2)
    forest = RandomForestClassifier(5, max_leaf_nodes=12, random_state=0)
    clf = DynaModLstsqClassifier(full, forest, cv=3, options=LeafOptions(max_iter=0), random_state=0).fit(
        X[FIT], labels[FIT]
    )
    fitted = forest.fit(X[FIT], labels[FIT])
    cheap = clf.at(threshold=np.inf)
    # A slope alone changes no answer, and the shifts are small.
    assert np.mean(cheap.predict(X[NEW]) == fitted.predict(X[NEW])) > 0.9
    shares = np.log(cheap.predict_proba(X[NEW])), fitted.predict_proba(X[NEW])
    slopes = np.diff(shares[0]) @ np.ones(len(clf.classes_) - 1), np.diff(shares[1]).sum(axis=1)
    assert np.corrcoef(*slopes)[0, 1] > 1 - 1e-9


def test_f1_over_leaves_is_the_multinomial_regression_of_scikit_learn_on_their_indicators(full):
    model = HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=5, early_stopping=False)
    local = additive_trees(model.fit(X[:200], Y[:200]), X.shape[1])
    bare = type(local)(local.trees.__class__(**vars_of(local.trees)), np.zeros(4))
    task = MulticlassTask(np.unique(Y))
    pair = LeafPair(bare, X[FIT], "squared", 1 / 250, 0.0, task)
    never = np.full(250, -40.0)
    pair.fit(None, task.encode("y", Y[FIT], 250), never, np.full(250, 1 / 250))
    theirs = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=10_000)
    theirs.fit(pair._design.indicators, Y[FIT])
    np.testing.assert_allclose(pair.cheap, theirs.coef_.T, atol=1e-4)
    # The gate is ordinary least squares with a ridge on the leaves, by the normal equations written out.
    wanted, pulled = np.sin(np.arange(250.0)), np.r_[np.ones(pair._design.n_leaves), 1.0, 0.0]
    table = np.column_stack([pair._design.indicators.toarray(), pair._margin_columns()])
    right = table.T @ wanted / 250 - 0.5 / 250 * np.r_[np.zeros(pair._design.n_leaves), 1.0, 0.0]
    weights = np.linalg.lstsq(table.T @ table / 250 + 0.5 / 250 * np.diag(pulled), right)[0]
    gate = pair._fit_gate(wanted, np.full(250, 1 / 250)).value
    np.testing.assert_allclose(gate.scores(pair._design, pair._margin_columns()), table @ weights, atol=1e-8)


def vars_of(trees):
    """The arrays of an ensemble, with nothing in its leaves."""
    return {
        name: getattr(trees, name) if name != "values" else np.zeros_like(trees.values)
        for name in trees.__dataclass_fields__
    }


def test_the_greedy_rivals_leave_f1_as_it_is_and_learn_where_it_errs(full):
    local = HistGradientBoostingClassifier(max_iter=1, max_leaf_nodes=4).fit(X[:200], Y[:200])
    leaf = GreedyLeafClassifier(full, FrozenEstimator(local)).fit(X[FIT], Y[FIT])
    np.testing.assert_allclose(leaf.scores(X[NEW])[1], local.decision_function(X[NEW]), atol=1e-9)
    linear = GreedyL1Classifier(full, n_features=3, standardize=False).fit(X[FIT], Y[FIT])
    assert len(linear.features_) == 3
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X[FIT][:, linear.features_], Y[FIT])
    cheap = linear.at(threshold=np.inf).predict_proba(X[NEW])
    np.testing.assert_allclose(cheap, theirs.predict_proba(X[NEW][:, linear.features_]), atol=1e-5)
    for rival in (leaf, linear):
        wrong = rival.at(threshold=np.inf).predict(X[FIT]) != Y[FIT]
        g = rival.scores(X[FIT])[0]
        assert g[wrong].mean() > g[~wrong].mean()


def test_a_local_model_of_other_classes_is_refused_with_both_numbers(full):
    local = HistGradientBoostingClassifier(max_iter=1).fit(X[:200], DIGIT[:200] > 1)
    with pytest.raises(InvalidInputError, match="answers with one of 2 classes; y holds 4"):
        DynaModLstsqClassifier(full, FrozenEstimator(local)).fit(X[FIT], Y[FIT])
