import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from reproduction.datasets import make_synthetic
from reproduction.rivals.greedy_l1 import GreedyL1Classifier
from reproduction.settings import estimator_of
from thrifty import Chain, ConfidenceRouter, DynaModGbrtClassifier, DynaModLinClassifier, Prices
from thrifty.errors import InvalidInputError, RefittedFullModelWarning
from thrifty.learners.dynamod import BoostedOptions, LinearOptions


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


@pytest.fixture(scope="module")
def frozen(cancer):
    X, y = cancer
    return FrozenEstimator(make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:150], y[:150]))


def quick(full, **settings):
    return estimator_of(
        DynaModLinClassifier,
        full,
        **{"gamma": 0.02, "p_full": 0.3, "tol": 1e-3, "random_state": 0} | settings,
    )


@pytest.fixture(scope="module")
def fitted(cancer, frozen):
    X, y = cancer
    return quick(frozen, budget=10.0).fit(X[150:450], y[150:450])


def test_the_paper_start_ends_on_feature_two_at_the_optimal_cost():
    X, y = make_synthetic()
    clf = DynaModLinClassifier(
        SVC(C=10),
        gamma=0.05,
        p_full=0.58,
        options=LinearOptions(init=([1, 1], [-1, -1]), standardize=False, max_iter=500),
        random_state=0,
    ).fit(X, y)
    assert clf.features_.tolist() == [1]
    assert clf.score(X, y) == 1.0
    assert clf.cost(X).mean() == pytest.approx(110 / 70)
    assert np.all(np.diff(clf.trace_.ravel()) <= 1e-12)


@pytest.mark.slow
def test_restarts_keep_the_lowest_objective():
    X, y = make_synthetic()
    clf = DynaModLinClassifier(
        SVC(C=10),
        gamma=0.05,
        p_full=0.58,
        options=LinearOptions(init="gaussian", n_init=12, standardize=False, max_iter=500),
        random_state=1,
    ).fit(X, y)
    assert clf.objectives_.shape == (12,)
    assert clf.trace_[-1, 1] == clf.objectives_.min()
    assert clf.cost(X).mean() == pytest.approx(110 / 70)


def test_it_spends_less_than_the_full_model_and_keeps_most_of_its_accuracy(cancer, frozen, fitted):
    X, y = cancer
    test, truth = X[450:], y[450:]
    assert fitted.cost(test).mean() < 15
    assert fitted.score(test, truth) > frozen.score(test, truth) - 0.05


def test_what_a_row_pays_is_the_bought_features_or_everything(cancer, fitted):
    X, _ = cancer
    route, cost = fitted.route(X), fitted.cost(X)
    assert set(np.unique(route)) == {0, 1}
    np.testing.assert_array_equal(cost[route == 0], len(fitted.features_))
    np.testing.assert_array_equal(cost[route == 1], 30.0)


def test_only_bought_features_are_read(cancer, fitted):
    X, _ = cancer
    spoiled = X.copy()
    others = np.setdiff1d(np.arange(30), fitted.features_)
    spoiled[:, others] = 1e6
    np.testing.assert_array_equal(fitted.route(spoiled), fitted.route(X))
    assert np.all(fitted.gate_coef_[others] == 0.0)
    assert np.all(fitted.cheap_coef_[others] == 0.0)


def test_scores_are_the_weights_it_shows(cancer, fitted):
    X, _ = cancer
    g, f1 = fitted.scores(X)
    np.testing.assert_allclose(g, X @ fitted.gate_coef_ + fitted.gate_intercept_, atol=1e-8)
    np.testing.assert_allclose(f1, X @ fitted.cheap_coef_ + fitted.cheap_intercept_, atol=1e-8)
    np.testing.assert_array_equal(fitted.route(X) == 1, g > fitted.threshold_)


def test_a_budget_is_met_on_the_training_rows_and_nearly_spent(cancer, frozen):
    X, y = cancer
    clf = quick(frozen, budget=12.0).fit(X[150:450], y[150:450])
    spent = clf.cost(X[150:450]).mean()
    assert 11.9 < spent <= 12.0 + 1e-9


def test_another_operating_point_needs_no_refit(cancer, fitted):
    X, _ = cancer
    val = X[:300]
    threshold = fitted.threshold_for(val, budget=20.0)
    dearer = fitted.at(threshold=threshold)
    assert dearer.cost(val).mean() <= 20.0
    assert dearer.cost(val).mean() > fitted.cost(val).mean()
    assert dearer.threshold_ < fitted.threshold_
    assert dearer.gate_coef_ is fitted.gate_coef_


@pytest.mark.slow
def test_data_frames_of_both_kinds_give_what_an_array_gives(cancer):
    X, y = cancer[0][:200], cancer[1][:200]
    names = [f"f{i}" for i in range(30)]
    costs = {name: 1.0 + i % 3 for i, name in enumerate(names)}
    # Solved to the last digits: where lbfgs stops depends on how numbers lie in memory, column by column in a frame.
    full = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", tol=1e-10))
    by_array = quick(full, feature_costs=list(costs.values()), cv=2).fit(X, y)
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        by_name = quick(full, feature_costs=costs, cv=2).fit(frame, y)
        assert by_name.feature_names_in_.tolist() == names
        np.testing.assert_allclose(by_name.predict_proba(frame), by_array.predict_proba(X))
        np.testing.assert_array_equal(by_name.cost(frame), by_array.cost(X))


@pytest.mark.slow
def test_csr_gives_what_dense_gives(cancer):
    X, y = cancer[0][:200].copy(), cancer[1][:200]
    X[:, ::2] *= X[:, ::2] > np.median(X[:, ::2], axis=0)
    full = np.where((y == 1) != (np.arange(200) % 20 == 0), 0.8, 0.3)
    dense = quick(full).fit(X, y)
    csr = quick(full).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(csr.gate_coef_, dense.gate_coef_, atol=1e-6)
    np.testing.assert_array_equal(csr.route(sparse.csr_array(X)), dense.route(X))


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("benign", "malign"), (7, 3), (False, True), (-1.0, 2.0)])
def test_any_two_labels_will_do(cancer, labels):
    X, y = cancer[0][:200], cancer[1][:200]
    named = np.array(labels)[y]
    clf = quick(LogisticRegression(C=1e-4, solver="liblinear"), cv=2).fit(X, named)
    assert sorted(clf.classes_.tolist()) == sorted(labels)
    assert np.mean(clf.predict(X) == named) > 0.85


def test_columns_of_one_group_are_bought_together_at_one_price(cancer, frozen):
    X, y = cancer
    # The 30 columns are mean, error and worst of 10 measurements.
    clf = quick(frozen, prices=Prices(groups=np.tile(np.arange(10), 3)), gamma=0.05).fit(
        X[150:450], y[150:450]
    )
    bought = len(set(clf.features_ % 10))
    assert clf.chain_.cost_by_place.tolist() == [bought, 10.0]
    assert bought < 10


def test_a_free_feature_is_used_and_costs_nothing(cancer, frozen):
    X, y = cancer
    costs = np.ones(30)
    costs[[20, 21]] = 0.0
    clf = quick(frozen, feature_costs=costs, gamma=0.05).fit(X[150:450], y[150:450])
    assert {20, 21} <= set(clf.features_)
    assert clf.chain_.cost_by_place[0] == len(clf.features_) - 2


def test_the_price_of_a_call_is_paid_by_rows_that_are_sent(cancer, frozen):
    X, y = cancer
    clf = quick(frozen, prices=Prices(np.zeros(30), full=5.0), gamma=0.0, l2=1e-3).fit(X[150:450], y[150:450])
    np.testing.assert_array_equal(clf.cost(X), 5.0 * clf.route(X))


def test_a_frozen_system_is_a_valid_full_model_for_a_cheaper_stage(cancer, fitted):
    X, y = cancer
    longer = quick(FrozenEstimator(fitted), gamma=0.08, p_full=0.6).fit(X[150:450], y[150:450])
    assert isinstance(longer.chain_.full, Chain)
    assert (longer.chain_.n_stages, longer.chain_.n_own_stages) == (2, 1)
    route = longer.route(X)
    np.testing.assert_array_equal(longer.cost(X), longer.chain_.cost_by_place[route])
    sent = route > 0
    np.testing.assert_array_equal(route[sent] - 1, fitted.route(X)[sent])
    np.testing.assert_allclose(longer.predict_proba(X)[sent], fitted.predict_proba(X)[sent])
    direct = quick(fitted.chain_, gamma=0.08, p_full=0.6).fit(X[150:450], y[150:450])
    np.testing.assert_array_equal(direct.route(X), route)


@pytest.mark.slow
def test_a_chain_given_as_a_recipe_is_cross_fitted_and_a_clone_learns_the_same(cancer):
    X, y = cancer[0][:300], cancer[1][:300]
    inner = quick(make_pipeline(StandardScaler(), LogisticRegression()), budget=12.0, cv=2)
    outer = quick(inner, gamma=0.08, p_full=0.6, cv=2).fit(X, y)
    assert outer.chain_.n_stages == 2
    with pytest.warns(RefittedFullModelWarning, match="is cloned and fitted again"):
        again = quick(inner.fit(X, y), gamma=0.08, p_full=0.6, cv=2).fit(X, y)
    np.testing.assert_array_equal(again.gate_coef_, outer.gate_coef_)
    np.testing.assert_array_equal(clone(outer).fit(X, y).gate_coef_, outer.gate_coef_)


def test_a_budget_is_met_in_front_of_a_chain_too(cancer, fitted):
    X, y = cancer
    train = slice(150, 450)
    for stage in (
        quick(FrozenEstimator(fitted), gamma=0.08, budget=8.0),
        GreedyL1Classifier(FrozenEstimator(fitted), features=[27], budget=8.0),
        ConfidenceRouter(FrozenEstimator(fitted), features=[27], budget=8.0, random_state=0),
    ):
        spent = stage.fit(X[train], y[train]).cost(X[train]).mean()
        assert 7.0 < spent < 8.3, type(stage).__name__


def test_a_chain_whose_tail_costs_nothing_can_be_fitted(cancer, frozen):
    X, y = cancer
    free = {"feature_costs": np.zeros(30), "gamma": 0.0, "l2": 1e-2}
    inner = quick(frozen, **free).fit(X[150:450], y[150:450])
    outer = quick(FrozenEstimator(inner), **free).fit(X[150:450], y[150:450])
    assert np.all(outer.cost(X) == 0)


@pytest.mark.slow
def test_a_wrapper_around_a_system_is_a_model_of_its_own_and_no_chain(cancer, fitted):
    X, y = cancer[0][150:450], cancer[1][150:450]
    # Bagging keeps the fitted system as its `estimator`; another price list is no contradiction then.
    bagged = quick(
        BaggingClassifier(fitted, n_estimators=2, random_state=0), prices=Prices(full=3.0), cv=2
    ).fit(X, y)
    assert bagged.chain_.n_stages == 1


def test_trees_may_stand_in_front_of_a_line(cancer, fitted):
    X, y = cancer
    trees = DynaModGbrtClassifier(
        FrozenEstimator(fitted), options=BoostedOptions(n_trees=5, max_iter=1), gamma=20.0
    ).fit(X[150:450], y[150:450])
    assert trees.chain_.n_stages == 2
    assert trees.score(X, y) > 0.85


def test_a_chain_with_another_price_list_is_refused(cancer, fitted):
    X, y = cancer
    with pytest.raises(InvalidInputError, match="One route has one price list"):
        quick(FrozenEstimator(fitted), prices=Prices(full=3.0)).fit(X[150:450], y[150:450])


def test_lazy_buying_answers_as_predict_does(cancer, frozen):
    X, y = cancer
    names = [f"f{i}" for i in range(30)]
    frame = pd.DataFrame(X, columns=names)
    clf = quick(make_pipeline(StandardScaler(), LogisticRegression()), cv=2).fit(frame[:300], y[:300])

    class Source:
        cells = 0

        def __len__(self):
            return len(X)

        def fetch(self, rows, columns):
            Source.cells += len(rows) * len(columns)
            return X[np.ix_(rows, columns)]

    np.testing.assert_array_equal(clf.buy(Source(), on_failure="raise").answer, clf.predict(frame))
    assert Source.cells == clf.cost(frame).sum()


def test_probabilities_given_for_the_training_rows_need_others_for_other_rows(cancer, frozen):
    X, y = cancer
    clf = quick(frozen.predict_proba(X[150:450])[:, 1], budget=15.0).fit(X[150:450], y[150:450])
    assert clf.cost(X[450:]).shape == (119,)
    with pytest.raises(InvalidInputError, match="with_full"):
        clf.predict(X[450:])
    given = clf.with_full(frozen.predict_proba(X[450:])[:, 1], X[450:]).predict(X[450:])
    np.testing.assert_array_equal(
        given, quick(frozen, budget=15.0).fit(X[150:450], y[150:450]).predict(X[450:])
    )
    by_function = clf.with_full(lambda table: frozen.predict_proba(table)[:, 1])
    np.testing.assert_array_equal(by_function.predict(X[450:]), given)


def test_probabilities_belong_to_their_rows_wherever_these_stand(cancer, frozen):
    X, y = cancer
    known = frozen.predict_proba(X[150:450])
    clf = quick(known, budget=15.0).fit(X[150:450], y[150:450])
    there = clf.predict_proba(X[150:450])
    assert (clf.route(X[150:450]) == 1).sum() > 50
    np.testing.assert_array_equal(clf.predict_proba(X[150:450][::-1]), there[::-1])
    np.testing.assert_array_equal(clf.predict_proba(X[200:210]), there[50:60])
    with pytest.raises(InvalidInputError, match="not those they belong to"):
        clf.predict(X[:300])  # as many rows, others
    csr = clf.with_full(frozen.predict_proba(X[:300]), sparse.csr_array(X[:300]))
    sent = clf.route(X[:300]) == 1
    np.testing.assert_allclose(
        csr.predict_proba(X[:300])[sent], frozen.predict_proba(X[:300])[sent], atol=1e-5
    )
    with pytest.raises(
        InvalidInputError, match=r"got 300 of them without rows. Write `with_full\(probabilities, X\)`"
    ):
        clf.with_full(known)


# -- a full model that reads some of the columns -----------------------------------------------------

READ = [0, 3, 7, 20, 21, 22, 27]


SEEN = set()


class Watching(LogisticRegression):
    """Notes the names of the columns it is given."""

    def _note(self, X):
        SEEN.add(tuple(X.columns))

    def fit(self, X, y, sample_weight=None):
        self._note(X)
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X):
        self._note(X)
        return super().predict_proba(X)


@pytest.fixture(scope="module")
def partial(cancer):
    """Fitted with a full model that reads seven of thirty columns, by name."""
    X, y = cancer
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(30)])
    full = Watching(C=1e-4, solver="liblinear")
    clf = quick(full, prices=Prices(full=0.5, full_features=[f"f{i}" for i in READ]), gamma=0.05, cv=2)
    clf.fit(frame[:300], y[:300])
    return clf.at(threshold=clf.threshold_for(frame[:300], remote_share=0.4)), frame


def test_a_full_model_is_fitted_asked_and_paid_for_the_columns_it_reads(partial):
    clf, frame = partial
    clf.predict(frame)
    assert {tuple(f"f{i}" for i in READ)} == SEEN
    route, cost = clf.route(frame), clf.cost(frame)
    assert 0 < route.mean() < 1
    np.testing.assert_allclose(cost[route == 0], len(clf.features_))
    np.testing.assert_allclose(cost[route == 1], len({*clf.features_.tolist(), *READ}) + 0.5)
    assert clf.explain(frame[:1])[0].saved == pytest.approx(len(READ) + 0.5 - cost[0])


def test_a_source_is_asked_for_the_columns_that_the_full_model_reads_and_no_others(partial):
    clf, frame = partial
    X = frame.to_numpy()
    asked = np.zeros(X.shape, dtype=int)

    class Source:
        def __len__(self):
            return len(X)

        def fetch(self, rows, columns):
            asked[np.ix_(rows, columns)] += 1
            return X[np.ix_(rows, columns)]

    np.testing.assert_array_equal(clf.buy(Source(), on_failure="raise").answer, clf.predict(frame))
    assert asked.max() == 1
    np.testing.assert_allclose(asked.sum(axis=1) + 0.5 * clf.route(frame), clf.cost(frame))


@pytest.mark.slow
def test_a_stage_in_front_of_a_chain_whose_full_model_reads_some_columns(partial, cancer):
    clf, frame = partial
    y = cancer[1]
    known = {"prices": Prices(full=0.5, full_features=[f"f{i}" for i in READ]), "gamma": 0.2, "cv": 2}
    for full in (FrozenEstimator(clf), clf.chain_, clone(clf)):
        outer = quick(full, **known).fit(frame[300:], y[300:])
        assert outer.chain_.n_stages == 2
        route = outer.route(frame)
        np.testing.assert_array_equal(outer.cost(frame), outer.chain_.cost_by_place[route])
    swapped = quick(clone(clf.full), **known).fit(frame[300:], y[300:]).with_full(clf)
    assert swapped.chain_.n_stages == 2
    np.testing.assert_array_equal(swapped.cost(frame).shape, route.shape)


def test_another_full_model_must_read_the_same_columns(partial, cancer):
    clf, frame = partial
    other = LogisticRegression(C=1e-4, solver="liblinear").fit(frame.iloc[:300, READ], cancer[1][:300])
    sent = clf.route(frame) == 1
    there = clf.with_full(other).predict_proba(frame)[sent]
    np.testing.assert_allclose(there, other.predict_proba(frame.iloc[:, READ])[sent], atol=1e-5)
    known = clf.with_full(other.predict_proba(frame.iloc[:, READ]), frame)
    np.testing.assert_allclose(known.predict_proba(frame)[sent], there, atol=1e-5)
    wide = LogisticRegression(C=1e-4, solver="liblinear").fit(frame[:300], cancer[1][:300])
    with pytest.raises(InvalidInputError, match="fitted on 30 features, but X has 7.*`full_features`"):
        clf.with_full(wide)


@pytest.mark.parametrize("features", [[0, 99], ["age"], [True, False]])
def test_columns_that_are_none_are_refused_before_anything_is_fitted(cancer, features):
    X, y = cancer

    class Never(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            raise AssertionError("the full model was fitted")

    with pytest.raises(InvalidInputError, match="full_features"):
        quick(Never(), prices=Prices(full_features=features)).fit(X, y)


def test_refitting_keeps_the_features_and_lowers_the_loss_of_f1(cancer, frozen):
    X, y = cancer
    train = slice(150, 450)
    plain, refitted = (
        quick(frozen, gamma=0.05, refit=refit).fit(X[train], y[train]) for refit in (False, True)
    )
    np.testing.assert_array_equal(plain.features_, refitted.features_)
    assert np.linalg.norm(refitted.cheap_coef_ * X.std(0)) > np.linalg.norm(plain.cheap_coef_ * X.std(0))


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["kl", "squared"])
def test_a_gate_that_reads_the_margin_sends_the_unsure_rows_and_buys_nothing_more(distance):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = (X[:, 0] + 0.7 * rng.normal(size=2000) > 0).astype(int)
    held_out = np.where((y == 1) != (rng.random(2000) < 0.03), 0.95, 0.05)
    plain, reader = (
        quick(held_out, distance=distance, gate_reads_margin=reads, budget=2.5).fit(X, y)
        for reads in (False, True)
    )
    np.testing.assert_array_equal(reader.features_, plain.features_)
    np.testing.assert_array_equal(reader.cheap_coef_, plain.cheap_coef_)
    assert reader.gate_margin_coef_ < 0 == plain.gate_margin_coef_
    g, f1 = reader.scores(X)
    expected = X @ reader.gate_coef_ + reader.gate_intercept_ + reader.gate_margin_coef_ * np.abs(f1)
    np.testing.assert_allclose(g, expected, atol=1e-9)
    # Only rows near f1 = 0 gain from f0 here, which no linear gate can single out.
    assert reader.score(X, y) > plain.score(X, y) + 0.03


@pytest.mark.slow
def test_the_same_seed_gives_bit_identical_weights_whatever_the_number_of_threads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 30))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    held_out = np.where((y == 1) != (rng.random(6000) < 0.05), 0.9, 0.1)
    fits = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            fits.append(quick(held_out, n_init=2, max_iter=5, tol=1.0).fit(X, y))
    first, second = fits
    np.testing.assert_array_equal(first.gate_coef_, second.gate_coef_)
    np.testing.assert_array_equal(first.cheap_coef_, second.cheap_coef_)


def test_a_larger_gamma_buys_less(cancer, frozen):
    X, y = cancer
    bought = [len(quick(frozen, gamma=g).fit(X[150:450], y[150:450]).features_) for g in (0.005, 0.05, 10.0)]
    assert bought[0] > bought[1] > bought[2] == 0


def test_with_p_full_zero_nobody_is_sent(cancer, frozen):
    X, y = cancer
    for distance in ("kl", "squared"):
        clf = quick(frozen, p_full=0.0, distance=distance).fit(X[150:450], y[150:450])
        assert np.all(clf.route(X) == 0)


def test_running_out_of_rounds_is_a_warning_that_says_what_to_do(cancer, frozen):
    X, y = cancer
    with pytest.warns(
        ConvergenceWarning, match=r"did not reach tol=1e-12 in 2 rounds .* Raise `max_iter` or `tol`"
    ):
        quick(frozen, max_iter=2, tol=1e-12).fit(X[150:450], y[150:450])


BAD = [
    ({"p_full": 1.2}, r"p_full must lie in \[0, 1\]; got 1.2"),
    ({"p_full": float("nan")}, "p_full must lie"),
    ({"gamma": -1}, "gamma must be a finite number >= 0; got -1"),
    ({"gamma": "big"}, "gamma must be"),
    ({"distance": "euclid"}, "distance must be 'kl' or 'squared'"),
    ({"n_init": 0}, "n_init must be a whole number >= 1; got 0"),
    ({"max_iter": 2.5}, "max_iter must be a whole number"),
    ({"init": "zeros"}, "init must be 'logistic', 'gaussian'"),
    ({"init": ([1.0], [1.0])}, "30 slopes each"),
    ({"init": 3}, "init must be a tuple"),
    ({"budget": -1}, "budget must be"),
    ({"budget": 0.5}, "budget must be at least 1, the price of the cheapest gate.*; got 0.5"),
    ({"feature_costs": [1.0] * 29 + [-1.0]}, "column 29 has .*-1"),
    ({"feature_costs": [1.0] * 29}, "one price per column, 30 in all"),
    ({"feature_costs": {"age": 1.0}}, "no column names"),
    ({"prices": Prices(full=-2)}, "price of the full model .* must be"),
    ({"cv": 1, "full": LogisticRegression()}, "cv must be"),
]


@pytest.mark.parametrize(
    ("settings", "says"), BAD, ids=[next(iter(s)) + str(i) for i, (s, _) in enumerate(BAD)]
)
def test_a_bad_argument_is_refused_and_nothing_is_half_fitted(cancer, frozen, settings, says):
    X, y = cancer
    clf = quick(**{"full": frozen} | settings)
    before = dict(vars(clf))
    with pytest.raises(InvalidInputError, match=says) as refusal:
        clf.fit(X[150:450], y[150:450])
    assert isinstance(refusal.value, ValueError)
    assert vars(clf) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda X, y: (np.where(np.arange(30) == 4, np.nan, X), y), "contains NaN"),
        (lambda X, y: (np.where(np.arange(30) == 4, np.inf, X), y), "infinity"),
        (lambda X, y: (X, np.zeros_like(y)), "two classes or more; got 1 class"),
        (lambda X, y: (X[:-1], y), "inconsistent numbers of samples"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X[:, :0], y), "0 feature"),
        (lambda X, y: (X, y + 0.5), "Unknown label type"),
        (lambda X, y: (X, None), "requires y"),
        (lambda X, y: (X[:, :20], y), "30 features, but X has 20"),
        (lambda X, y: (X, y + 5), r"the full model was fitted on the classes \[0, 1\], but y holds \[5, 6\]"),
    ],
)
def test_a_bad_table_is_refused_and_an_earlier_fit_survives_it(cancer, frozen, spoil, says):
    X, y = cancer
    clf = quick(frozen).fit(X[150:450], y[150:450])
    before = clf.predict(X)
    with pytest.raises(InvalidInputError, match=says):
        clf.fit(*spoil(X[150:450], y[150:450]))
    np.testing.assert_array_equal(clf.predict(X), before)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["bare", "frozen", "function", "both classes", "one class", "system"])
def test_another_full_model_may_be_given_in_any_fitted_form(cancer, frozen, fitted, form):
    X, y = cancer
    other = make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(X[:150], y[:150])
    forms = {
        "bare": other,
        "frozen": FrozenEstimator(other),
        "function": other.predict_proba,
        "both classes": other.predict_proba(X),
        "one class": other.predict_proba(X)[:, 1],
        "system": quick(FrozenEstimator(other), budget=12.0).fit(X[150:450], y[150:450]).chain_,
    }
    swapped = fitted.with_full(forms[form], X)
    sent = fitted.route(X) > 0
    np.testing.assert_array_equal(swapped.route(X) > 0, sent)
    if form != "system":
        np.testing.assert_allclose(swapped.predict_proba(X)[sent], other.predict_proba(X)[sent], atol=1e-5)
    else:
        assert swapped.chain_.n_stages == 2


@pytest.mark.parametrize("values", [np.full(569, 7.0), np.full(569, np.nan), "words"])
def test_another_full_model_that_is_none_is_refused(fitted, values):
    with pytest.raises(InvalidInputError, match="probabilities"):
        fitted.with_full(values, np.zeros((569, 30)))


@pytest.mark.parametrize("threshold", ["abc", float("nan"), [1.0, 2.0]])
def test_a_threshold_that_is_no_number_is_refused(fitted, threshold):
    with pytest.raises(InvalidInputError, match="threshold must be a number"):
        fitted.at(threshold=threshold)


def test_the_decision_is_finite_at_extreme_scores():
    X = np.linspace(-1e4, 1e4, 101)[:, None]
    y = (X[:, 0] > 0).astype(int)
    held_out = np.where((y == 1) != (np.arange(101) % 25 == 0), 0.9, 0.1)
    clf = (
        quick(held_out, gamma=0.0, l2=1e-12, max_iter=5, tol=1.0, standardize=False)
        .fit(X, y)
        .at(threshold=np.inf)
    )
    decision = clf.decision_function(X * 100)
    assert np.isfinite(decision).all()
    np.testing.assert_array_equal(decision, clf.scores(X * 100)[1])


@pytest.mark.slow
@pytest.mark.parametrize("cv", [3, KFold(3), list(KFold(3).split(np.zeros(300)))])
def test_rows_of_weight_zero_are_left_out_of_everything(cancer, frozen, cv):
    X, y = cancer[0][150:450], cancer[1][150:450]
    weight = np.ones(300)
    weight[::10] = 0.0
    held_out = frozen.predict_proba(X)[:, 1]
    weighted = quick(held_out, cv=cv).fit(X, y, weight)
    left_out = quick(held_out[weight > 0]).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(weighted.gate_coef_, left_out.gate_coef_, atol=1e-9)
    # The probabilities given still answer for the rows given.
    assert weighted.at(threshold=-np.inf).predict(X).shape == (300,)


def test_a_bad_column_is_refused_by_name(cancer, frozen):
    X, y = cancer
    frame = pd.DataFrame(X[:200], columns=[f"f{i}" for i in range(30)])
    full = make_pipeline(StandardScaler(), LogisticRegression())
    for value, says in ((np.inf, "'f4' holds an infinite value in row 3"), (np.nan, "'f4' is missing")):
        bad = frame.copy()
        bad.loc[3, "f4"] = value
        with pytest.raises(InvalidInputError, match=says):
            quick(full).fit(bad, y[:200])
    with pytest.raises(InvalidInputError, match="'f4' holds text such as 'red'"):
        quick(full).fit(frame.assign(f4="red"), y[:200])


def test_nothing_is_fitted_before_bad_arguments_are_refused(cancer):
    X, y = cancer

    class Counting(LogisticRegression):
        n_fits = 0

        def fit(self, X, y, sample_weight=None):
            Counting.n_fits += 1
            return super().fit(X, y, sample_weight)

    for clf in (
        quick(Counting(), init="zeros"),
        quick(Counting(), init=([1.0], [1.0])),
        GreedyL1Classifier(Counting(), features=[99]),
        ConfidenceRouter(Counting(), features=[99]),
        DynaModGbrtClassifier(Counting(), options=BoostedOptions(max_depth=99)),
    ):
        with pytest.raises(InvalidInputError):
            clf.fit(X, y)
    assert Counting.n_fits == 0


@pytest.mark.slow
def test_a_grid_search_and_a_pickle_work(cancer, frozen):
    X, y = cancer[0][150:450], cancer[1][150:450]
    search = GridSearchCV(quick(frozen), {"gamma": [0.02, 0.2]}, cv=2).fit(X, y)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))


def test_a_clone_is_unfitted_and_equal_in_its_parameters(fitted):
    copy = clone(fitted)
    assert not hasattr(copy, "chain_")
    assert copy.gamma == fitted.gamma


@pytest.mark.slow
def test_a_start_at_the_solution_intercepts_included_stays_there(cancer, frozen):
    X, y = cancer
    first = DynaModLinClassifier(frozen, gamma=0.02, random_state=0).fit(X, y)
    slopes = (first.gate_coef_, first.cheap_coef_)
    whole = (np.append(slopes[0], first.gate_intercept_), np.append(slopes[1], first.cheap_intercept_))
    again, without = (clone(first).set_params(options__init=start).fit(X, y) for start in (whole, slopes))
    assert again.n_iter_ <= 3
    assert abs(again.trace_[0, 0] - first.trace_[-1, 1]) < 1e-3 < without.trace_[0, 0] - first.trace_[-1, 1]
