import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from reproduction.settings import estimator_of
from tests.trees.grown import grow, make_grower
from thrifty import DynaModGbrtClassifier, Prices
from thrifty.engine.trees import bin_columns
from thrifty.errors import InvalidInputError

TREES = {"n_trees": 12, "max_depth": 3, "learning_rate": 0.3}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=1500) > 0).astype(int)
    wrong = rng.random(1500) < 0.03
    return X, y, np.where((y == 1) != wrong, 0.95, 0.05)


def fit(rows, **settings):
    X, y, held_out = rows
    defaults = {"gamma": 3.0, "p_full": 0.3, "max_iter": 3, "tol": 0.5, "random_state": 0}
    return estimator_of(DynaModGbrtClassifier, held_out, **TREES | defaults | settings).fit(X, y)


@pytest.fixture(scope="module")
def fitted(rows):
    return fit(rows)


@pytest.mark.parametrize("distance", ["kl", "squared"])
@pytest.mark.parametrize("step", ["newton", "gradient"])
def test_with_p_full_zero_f1_is_greedy_miser_tree_by_tree(rows, distance, step):
    X, y, _ = rows
    ours = fit(rows, p_full=0.0, distance=distance, step=step).chain_.stages[0]
    miser = GreedyMiserClassifier(**TREES, gamma=3.0, step=step).fit(X, y).chain_.stages[0]
    np.testing.assert_array_equal(ours.columns, miser.columns)
    assert ours.base[1] == miser.base
    assert ours.gate.n_trees == 0
    for name in ("feature", "threshold", "missing_left", "children", "values", "node_offsets"):
        np.testing.assert_array_equal(getattr(ours.cheap, name), getattr(miser.cheap, name))


@pytest.mark.parametrize("distance", ["kl", "squared"])
def test_it_beats_its_own_cheap_model_by_sending_hard_rows_on(rows, distance):
    X, y, _ = rows
    clf = fit(rows, distance=distance, gamma=30.0)
    sent = clf.at(threshold=clf.threshold_for(X, budget=4.0))
    alone = clf.at(threshold=np.inf)
    assert sent.score(X, y) > alone.score(X, y) + 0.02
    assert alone.cost(X).mean() < sent.cost(X).mean() <= 4.0


def test_gate_and_cheap_model_share_what_they_buy(rows, fitted):
    stage = fitted.chain_.stages[0]
    used = stage.gate.features_used | stage.cheap.features_used
    assert used.all()
    np.testing.assert_array_equal(fitted.cost(rows[0])[fitted.route(rows[0]) == 0], len(fitted.features_))


def test_a_larger_gamma_buys_less_and_at_last_nothing(rows):
    bought = [len(fit(rows, gamma=gamma).features_) for gamma in (0.0, 10.0, 1e6)]
    assert bought[0] > bought[1] > bought[2] == 0
    constant = fit(rows, gamma=1e6)
    assert len(np.unique(constant.scores(rows[0])[1])) == 1


def test_only_bought_features_are_read(rows, fitted):
    X = rows[0].copy()
    X[:, np.setdiff1d(np.arange(8), fitted.features_)] = np.nan
    np.testing.assert_array_equal(fitted.route(X), fitted.route(rows[0]))


def test_a_purchase_of_several_columns_is_paid_once(rows):
    clf = fit(rows, prices=Prices([2.0] * 3 + [1.0] * 5, groups=[0, 0, 0, 1, 2, 3, 4, 5]), gamma=10.0)
    assert {0, 1, 2} <= set(clf.features_)
    others = set(clf.features_) - {0, 1, 2}
    assert clf.chain_.cost_by_place.tolist() == [2.0 + len(others), 7.0]


def test_missing_values_are_allowed_and_infinite_ones_are_not(rows):
    X, y, held_out = rows
    holed = X.copy()
    holed[::7, 0] = np.nan
    clf = estimator_of(DynaModGbrtClassifier, held_out, **TREES, gamma=3.0, max_iter=1).fit(holed, y)
    assert np.isfinite(clf.scores(holed)[0]).all()
    holed[3, 4] = np.inf
    with pytest.raises(InvalidInputError, match="infinity"):
        estimator_of(DynaModGbrtClassifier, held_out, **TREES).fit(holed, y)


def test_constant_and_all_missing_columns_are_never_bought(rows):
    X, y, held_out = rows
    odd = X.copy()
    odd[:, 5], odd[:, 6] = 1.0, np.nan
    clf = estimator_of(DynaModGbrtClassifier, held_out, **TREES, gamma=0.0, max_iter=1).fit(odd, y)
    assert not {5, 6} & set(clf.features_)


def test_a_gate_that_reads_the_score_of_f1_buys_nothing_more(rows, fitted):
    X, _, _ = rows
    reader = fit(rows, gate_reads_score=True)
    np.testing.assert_array_equal(reader.features_, fitted.features_)
    stage = reader.chain_.stages[0]
    assert stage.gate.n_features == len(reader.features_) + 1
    assert stage.gate.features_used[-1]
    np.testing.assert_array_equal(reader.scores(X)[1], fitted.scores(X)[1])


def test_data_frames_give_what_arrays_give(rows, fitted):
    X, y, held_out = rows
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    by_name = estimator_of(
        DynaModGbrtClassifier,
        held_out,
        **TREES,
        gamma=3.0,
        p_full=0.3,
        max_iter=3,
        tol=0.5,
        feature_costs=dict.fromkeys("abcdefgh", 1.0),
    ).fit(frame, y)
    np.testing.assert_array_equal(by_name.scores(frame)[0], fitted.scores(X)[0])


def test_a_row_of_weight_two_is_the_row_given_twice(rows):
    X, y, held_out = rows
    again = np.r_[np.arange(300), np.arange(0, 300, 3)]
    weight = np.where(np.arange(300) % 3 == 0, 2.0, 1.0)
    # Few distinct values, so that bins do not depend on how often a row is given.
    coarse = np.round(X[:300], 1)
    settings = TREES | {"gamma": 3.0, "max_iter": 1}
    weighted = estimator_of(DynaModGbrtClassifier, held_out[:300], **settings).fit(coarse, y[:300], weight)
    repeated = estimator_of(DynaModGbrtClassifier, held_out[again], **settings).fit(coarse[again], y[again])
    np.testing.assert_allclose(weighted.scores(coarse)[1], repeated.scores(coarse)[1], atol=1e-9)


def test_greedy_miser_answers_alone_until_it_is_given_a_full_model(rows):
    X, y, held_out = rows
    miser = GreedyMiserClassifier(**TREES, gamma=10.0).fit(X, y)
    assert np.all(miser.route(X) == 0)
    assert miser.cost(X).mean() == len(miser.features_)
    opened = miser.at(threshold=-0.5)
    with pytest.raises(InvalidInputError, match=r"there is none. Give one with `with_full"):
        opened.predict(X)
    gated = opened.with_full(held_out, X)
    assert gated.score(X, y) > miser.score(X, y)
    np.testing.assert_array_equal(gated.scores(X)[0], -np.abs(gated.scores(X)[1]))


def test_running_out_of_rounds_is_a_warning(rows):
    with pytest.warns(ConvergenceWarning, match="did not reach tol=0 in 2 rounds"):
        fit(rows, max_iter=2, tol=0.0)


def test_trees_moved_to_fewer_columns_answer_the_same():
    X = np.random.default_rng(0).normal(size=(200, 6))
    table = bin_columns(X)
    trees = grow(make_grower(table), np.where(X[:, 1] + X[:, 4] > 0, -1.0, 1.0)).tree
    columns = np.flatnonzero(trees.features_used)
    assert len(columns) < 6
    np.testing.assert_array_equal(trees.over_columns(columns).predict(X[:, columns]), trees.predict(X))


def test_a_gate_that_reads_the_score_needs_something_bought_and_two_classes_per_fold(rows):
    X, y, held_out = rows
    assert len(fit(rows, gate_reads_score=True, gamma=1e9).features_) == 0
    by_class = [(np.flatnonzero(y == label), np.flatnonzero(y != label)) for label in (0, 1)]
    with pytest.raises(InvalidInputError, match="only 1 of the 2 classes to fit on"):
        fit(rows, gate_reads_score=True, cv=by_class)
    lonely = np.zeros(len(y), dtype=int)
    lonely[0] = 1
    with pytest.raises(InvalidInputError, match="fewer than two distinct rows"):
        estimator_of(DynaModGbrtClassifier, held_out, **TREES, gate_reads_score=True, max_iter=1).fit(
            X, lonely
        )


def test_an_infinite_value_is_refused_by_the_name_of_its_column(rows):
    X, y, held_out = rows
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame.loc[7, "d"] = -np.inf
    with pytest.raises(InvalidInputError, match="Column 'd' holds an infinite value in row 7"):
        estimator_of(DynaModGbrtClassifier, held_out, **TREES).fit(frame, y)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_trees": 0}, "n_trees must be a whole number >= 1; got 0"),
        ({"max_depth": 13}, "max_depth"),
        ({"max_depth": 0}, "max_depth"),
        ({"max_bins": 256}, r"max_bins must be a whole number in \[2, 255\]; got 256"),
        ({"step": "leap"}, "step must be 'gradient' or 'newton'; got 'leap'"),
        ({"gamma": -1.0}, "gamma must be"),
        ({"learning_rate": float("nan")}, "learning_rate must be"),
        ({"min_child_samples": 0}, "min_child_samples must be"),
        ({"p_full": -0.1}, "p_full must lie"),
        ({"distance": "euclid"}, "distance must be"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_half_fitted(rows, settings, says):
    X, y, held_out = rows
    clf = estimator_of(DynaModGbrtClassifier, held_out, **TREES | settings)
    with pytest.raises(InvalidInputError, match=says):
        clf.fit(X, y)
    assert [name for name in vars(clf) if name.endswith("_")] == []


def test_folds_that_leave_one_class_are_refused(rows):
    from sklearn.linear_model import LogisticRegression

    X, y, _ = rows
    by_class = [(np.flatnonzero(y == label), np.flatnonzero(y != label)) for label in (0, 1)]
    with pytest.raises(InvalidInputError, match="only 1 of the 2 classes to fit on"):
        estimator_of(DynaModGbrtClassifier, LogisticRegression(), **TREES, cv=by_class).fit(X, y)
