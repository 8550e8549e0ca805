import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import thrifty
from reproduction.rivals.greedy_leaf import GreedyLeafClassifier
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from reproduction.settings import estimator_of
from thrifty import ConfidenceRouter, DynaModLinClassifier, DynaModLstsqClassifier, Prices
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees.other_libraries import additive_trees
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import LeafOptions, LinearOptions
from thrifty.learners.dynamod.group_lasso import LinearCoefficients
from thrifty.learners.dynamod.leaf import LeafPair
from thrifty.learners.dynamod.linear import LinearPair
from thrifty.learners.dynamod.ridge import LeafDesign

X, DIGIT = load_digits(return_X_y=True)
Y = (DIGIT >= 5).astype(int)
LEARN, NEW = slice(0, 1000), slice(1000, None)
X_LEARN, Y_LEARN, X_NEW, Y_NEW = X[LEARN], Y[LEARN], X[NEW], Y[NEW]


@pytest.fixture(scope="module")
def full():
    """Fitted on rows that nothing else learns from."""
    half = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X[:500], Y[:500])
    return FrozenEstimator(half)


@pytest.fixture(scope="module")
def fitted(full):
    return DynaModLstsqClassifier(full, options=LeafOptions(learning_rate=0.5), random_state=0).fit(
        X[500:1000], Y[500:1000]
    )


def locals_of_every_library():
    trees = {"max_depth": 4, "learning_rate": 0.5}
    found = [GradientBoostingClassifier(n_estimators=6, random_state=0, **trees)]
    found.append(HistGradientBoostingClassifier(max_iter=6, early_stopping=False, **trees))
    try:
        from xgboost import XGBClassifier

        found.append(XGBClassifier(n_estimators=6, n_jobs=1, **trees))
    except ModuleNotFoundError:
        pass
    found.append(GreedyMiserClassifier(n_trees=6, gamma=0.0, **trees))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("local", locals_of_every_library(), ids=lambda local: type(local).__name__)
@pytest.mark.parametrize("share", [0.1, 0.35])
def test_no_rounds_are_the_confidence_router_row_by_row(local, share, full):
    local = FrozenEstimator(local.fit(X[:500], Y[:500]))
    X_fit, y_fit = X[500:1000], Y[500:1000]
    start = DynaModLstsqClassifier(full, local, p_full=share, options=LeafOptions(max_iter=0)).fit(
        X_fit, y_fit
    )
    router = ConfidenceRouter(full, local, p_full=share, prices=Prices(0.0, full=1.0)).fit(X_fit, y_fit)
    np.testing.assert_array_equal(start.route(X_NEW), router.route(X_NEW))
    np.testing.assert_array_equal(start.predict(X_NEW), router.predict(X_NEW))
    assert start.route(X_fit).mean() <= share


@pytest.mark.slow
def test_no_rounds_with_a_recipe_cut_where_the_router_cuts_on_held_out_margins(full):
    local = GradientBoostingClassifier(n_estimators=6, random_state=0)
    start = DynaModLstsqClassifier(full, local, options=LeafOptions(max_iter=0), random_state=0).fit(
        X[500:1000], Y[500:1000]
    )
    router = ConfidenceRouter(full, local, prices=Prices(0.0, full=1.0), random_state=0).fit(
        X[500:1000], Y[500:1000]
    )
    np.testing.assert_array_equal(start.route(X_NEW), router.route(X_NEW))


@pytest.mark.slow
def test_with_features_at_hand_the_mean_cost_is_the_share_sent(fitted):
    assert fitted.cost(X_NEW).mean() == fitted.route(X_NEW).mean()
    assert 0.0 < fitted.route(X_NEW).mean() < 1.0


def test_every_round_reports_its_objective_and_the_last_one_its_gradient(fitted):
    assert fitted.trace_.shape == (fitted.n_iter_, 2)
    # OPT5 given the pair, then the pair given the shares; |f1| moves under the gate, hence the small slack.
    assert fitted.trace_[-1, 1] <= fitted.trace_[0, 0] + 1e-3
    assert fitted.residuals_.shape == (2,)
    assert np.all(fitted.residuals_ < 1e-7)


def test_the_gate_over_leaves_agrees_with_the_group_lasso_solver():
    local = additive_trees(
        GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X_LEARN, Y_LEARN), 64
    )
    rng = np.random.default_rng(0)
    log_odds, weight, signs = rng.normal(size=1000), np.full(1000, 1e-3), 2.0 * Y_LEARN - 1.0
    pair = LeafPair(local, X_LEARN, "kl", 0.01, 0.0, BinaryTask(np.array([0, 1])))
    # A margin of zero everywhere takes the column away that only ours has.
    pair._f1 = np.zeros((1000, 1))
    gate = pair._fit_gate(log_odds, weight).value
    design = LeafDesign(local.trees.apply(X_LEARN), len(local.trees.values))
    free = PriceList(np.zeros(design.n_leaves), np.arange(design.n_leaves))
    start = LinearCoefficients(np.zeros((design.n_leaves, 2)), np.zeros(2))
    other = LinearPair(0.0, free, l2=0.01, start=start, tol=1e-10)
    theirs, _ = other.fit(design.indicators, signs, log_odds, weight).scores(design.indicators)
    np.testing.assert_allclose(design.dot(gate.leaf) + gate.dense[1], theirs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["squared", "kl"])
@pytest.mark.parametrize("trust", [0.0, 0.5, 1.0])
def test_learning_beats_sending_at_random(distance, trust, full):
    clf = DynaModLstsqClassifier(
        full, options=LeafOptions(distance=distance, max_iter=200, tol=1e-3), trust=trust
    )
    clf.fit(X[500:1000], Y[500:1000])
    g, f1 = clf.scores(X_NEW)
    right = (f1 > 0) == (Y_NEW == 1)
    assert g[~right].mean() > g[right].mean()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(full):
    one, other = (
        DynaModLstsqClassifier(full, random_state=3).fit(X[500:1000], Y[500:1000]).scores(X_NEW)
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, other)


def test_a_device_stores_one_ensemble_with_two_values_a_leaf(fitted):
    trees = fitted.chain_.stages[0].trees
    assert trees.n_outputs == 2
    assert trees.n_trees == 10
    assert len(trees.values) <= 10 * 32
    assert fitted.n_bytes_ == trees.n_bytes + 24


def test_a_saved_system_answers_bit_by_bit_as_before(fitted, tmp_path):
    thrifty.save(fitted, tmp_path / "device.thrifty", full="absent")
    loaded = thrifty.load(tmp_path / "device.thrifty", full=fitted.full)
    np.testing.assert_array_equal(loaded.predict_proba(X_NEW), fitted.predict_proba(X_NEW))
    assert loaded.n_bytes_ == fitted.n_bytes_


@pytest.mark.slow
def test_missing_values_reach_the_trees_that_are_grown_here(full):
    holes = X[500:1000].copy()
    holes[::3, ::5] = np.nan
    clf = DynaModLstsqClassifier(full).fit(holes, Y[500:1000])
    assert np.all(np.isfinite(clf.scores(holes)))


# -- operating points ------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_a_remote_share_is_met_and_not_exceeded(fitted, share):
    sent = fitted.at(threshold=fitted.threshold_for(X_NEW, remote_share=share)).route(X_NEW).mean()
    assert share - 0.02 <= sent <= share


def test_a_wished_accuracy_is_met_with_the_fewest_rows_sent(fitted):
    wish = 0.93
    chosen = fitted.at(threshold=fitted.threshold_for(X_NEW, Y_NEW, accuracy=wish))
    assert chosen.score(X_NEW, Y_NEW) >= wish
    g = np.sort(fitted.scores(X_NEW)[0])[::-1]
    fewer = g[g > chosen.threshold_]
    if len(fewer):  # one row less is too few
        assert fitted.at(threshold=fewer[-1]).score(X_NEW, Y_NEW) < wish


def test_an_accuracy_out_of_reach_is_refused_with_the_best_there_is(fitted):
    with pytest.raises(
        InvalidInputError,
        match="out of reach.*the full model alone has 0.9.*best any threshold reaches is 0.9",
    ):
        fitted.threshold_for(X_NEW, Y_NEW, accuracy=1.0)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({}, "give one of budget, accuracy, remote_share; got none"),
        ({"budget": 1.0, "accuracy": 0.9}, "got budget=1.0 and accuracy=0.9"),
        ({"remote_share": 1.5}, r"remote_share must lie in \[0, 1\]; got 1.5"),
        ({"remote_share": -0.1}, "remote_share must be a finite number >= 0; got -0.1"),
        ({"accuracy": 0.9}, "needs the labels y"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(fitted, wish, message):
    with pytest.raises(InvalidInputError, match=message):
        fitted.threshold_for(X_NEW, **wish)


def test_labels_that_the_system_does_not_know_are_refused_with_the_row(fitted):
    with pytest.raises(InvalidInputError, match=r"y must hold the labels .* \[0, 1\]; got 7 in row 0"):
        fitted.threshold_for(X_NEW, np.full(len(X_NEW), 7), accuracy=0.9)


# -- bad input -------------------------------------------------------------------------------------


def test_a_local_model_that_is_no_tree_ensemble_is_refused_before_f0_is_asked():
    def remote(table):
        raise AssertionError("f0 was asked")

    local = FrozenEstimator(LogisticRegression(solver="newton-cholesky").fit(X_LEARN, Y_LEARN))
    with pytest.raises(InvalidInputError, match="must be boosted trees.*got LogisticRegression"):
        DynaModLstsqClassifier(remote, local).fit(X_LEARN, Y_LEARN)


def test_local_trees_of_another_width_are_refused_before_f0_is_asked():
    local = FrozenEstimator(GradientBoostingClassifier(n_estimators=2).fit(X_LEARN[:, :7], Y_LEARN))
    with pytest.raises(InvalidInputError, match="was fitted on 7 features; X has 64"):
        DynaModLstsqClassifier(None, local).fit(X_LEARN, Y_LEARN)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"p_full": 1.2}, "p_full must lie in"),
        ({"trust": -0.1}, "trust must lie in"),
        ({"ridge": -1.0}, "ridge must be"),
        ({"n_trees": 0}, "n_trees must be a whole number >= 1; got 0"),
        ({"max_leaves": 1}, "max_leaves must be a whole number >= 2; got 1"),
        ({"max_iter": -1}, "max_iter must be a whole number >= 0"),
        ({"distance": "cosine"}, "distance must be"),
    ],
)
def test_bad_parameters_are_refused_by_name(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        estimator_of(DynaModLstsqClassifier, **settings).fit(X_LEARN, Y_LEARN)


# -- the greedy gate over leaves ---------------------------------------------------------------------


@pytest.mark.parametrize("reads_margin", [True, False])
def test_the_greedy_gate_leaves_f1_as_it_is_and_is_scikit_learns_regression_on_where_it_errs(
    full, reads_margin
):
    local = GradientBoostingClassifier(n_estimators=6, max_depth=3, random_state=0).fit(X[:500], Y[:500])
    rows, labels = X[500:1000], Y[500:1000]
    clf = GreedyLeafClassifier(full, FrozenEstimator(local), gate_reads_margin=reads_margin).fit(rows, labels)
    g, f1 = clf.scores(rows)
    np.testing.assert_allclose(f1, local.decision_function(rows), atol=1e-9)
    trees = clf.local_.trees
    phi = LeafDesign(trees.apply(rows), len(trees.values)).indicators.toarray()
    seen = np.column_stack([phi, np.abs(f1)]) if reads_margin else phi
    theirs = LogisticRegression(tol=1e-8, max_iter=10_000).fit(seen, (f1 > 0) != (labels == 1))
    np.testing.assert_allclose(g, theirs.decision_function(seen), atol=1e-5)


@pytest.mark.slow
def test_dynamod_lin_can_stand_over_the_leaves_too():
    trees = additive_trees(
        GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X[:500], Y[:500]), 64
    )
    design = LeafDesign(trees.trees.apply(X[500:1000]), len(trees.trees.values))
    clf = DynaModLinClassifier(
        np.full(500, 0.5), gamma=1e-3, options=LinearOptions(standardize=False, max_iter=200, tol=1e-4)
    )
    clf.fit(design.indicators, Y[500:1000])
    assert 0 < len(clf.features_) <= design.n_leaves
