import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from reproduction.rivals.budget_prune import BudgetPruneClassifier
from thrifty import Prices
from thrifty.errors import InvalidInputError


@pytest.fixture(scope="module")
def rows():
    chance = np.random.default_rng(0)
    X = chance.normal(size=(600, 6))
    score = X[:, 0] + 0.7 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3] + 0.3 * chance.normal(size=600)
    return X, np.where(score > 0, "yes", "no")


def fitted(rows, **settings):
    return BudgetPruneClassifier(**{"n_trees": 10, "random_state": 0} | settings).fit(*rows)


def test_without_prices_it_errs_no_more_on_its_rows_than_the_unpruned_trees(rows):
    X, y = rows
    forest = RandomForestClassifier(10, max_depth=6, random_state=0).fit(X, y)
    clf = BudgetPruneClassifier(FrozenEstimator(forest), gamma=0.0).fit(X, y)
    wrong = [(forest.classes_[tree.predict(X).astype(int)] != y).mean() for tree in forest.estimators_]
    assert clf.solution_.value.loss <= np.mean(wrong) + 1e-9
    assert clf.solution_.converged


def test_where_prices_are_all_that_counts_nothing_is_bought_and_the_majority_answers(rows):
    clf = fitted(rows, gamma=1e6)
    X, y = rows
    assert clf.cost(X).max() == 0.0
    assert clf.features_.size == 0
    assert clf.n_nodes_ == 10
    majority = max(set(y), key=y.tolist().count)
    assert set(clf.predict(X)) == {majority}


@pytest.mark.parametrize("holdout", [0.0, 0.3, "oob"])
def test_a_larger_gamma_spends_less_and_keeps_fewer_nodes(rows, holdout):
    X, y = rows
    gammas = [0.1, 0.0, 0.003, 0.01, 0.03]
    path = BudgetPruneClassifier(n_trees=10, holdout=holdout, random_state=0).fit_path(X, y, gammas)
    assert [clf.gamma for clf in path] == gammas
    order = np.argsort(gammas)
    assert np.all(np.diff([path[i].solution_.value.spend for i in order]) <= 1e-9)
    assert np.all(np.diff([path[i].n_nodes_ for i in order]) <= 0)
    assert all(clf.solution_.residual <= 1e-6 for clf in path)


def test_a_path_is_as_good_as_a_fit_at_each_gamma(rows):
    for gamma, clf in zip(
        [0.002, 0.02],
        BudgetPruneClassifier(n_trees=10, random_state=0).fit_path(*rows, [0.002, 0.02]),
        strict=True,
    ):
        alone = fitted(rows, gamma=gamma).solution_.value
        assert clf.solution_.value.objective == pytest.approx(alone.objective, abs=2e-6)


def test_the_two_solvers_find_prunings_of_the_same_value(rows):
    X, y = rows[0][:200], rows[1][:200]
    values = [
        fitted(
            (X, y), n_trees=6, gamma=0.01, solver=solver, tol=1e-8, max_iter=20_000
        ).solution_.value.objective
        for solver in ("lp", "decomposed")
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-7)


def test_the_spend_it_reports_is_what_its_rows_pay(rows):
    clf = fitted(rows, gamma=0.01, prices=Prices([1, 2, 2, 0, 3, 1], groups=list("abbcde")))
    X, _ = rows
    assert clf.cost(X).mean() == pytest.approx(clf.solution_.value.spend, abs=1e-9)


def test_bought_is_what_stands_on_the_decision_paths_and_cost_is_its_price(rows):
    X, y = rows
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, y)
    prices = Prices([1, 2, 2, 0, 3, 1], groups=list("abbcde"))
    clf = BudgetPruneClassifier(FrozenEstimator(forest), gamma=0.0, prices=prices).fit(X, y)
    bought = clf.bought(X)
    path, bounds = forest.decision_path(X)
    feature = np.concatenate([tree.tree_.feature for tree in forest.estimators_])
    passed = np.zeros_like(bought)
    for i in range(len(X)):
        nodes = path.indices[path.indptr[i] : path.indptr[i + 1]]
        passed[i, feature[nodes][feature[nodes] >= 0]] = True
    assert bounds[-1] == len(feature)
    assert np.all(bought <= passed)  # pruning only takes away
    np.testing.assert_array_equal(bought[:50], [_met(clf.forest_.trees, row) for row in X[:50]])
    price = 1 * bought[:, 0] + 2 * (bought[:, 1] | bought[:, 2]) + 3 * bought[:, 4] + bought[:, 5]
    np.testing.assert_allclose(clf.cost(X), price)
    # A row answers the same when everything that it did not buy is taken from it.
    np.testing.assert_allclose(clf.predict_proba(np.where(bought, X, np.nan)), clf.predict_proba(X))


def _met(trees, row):
    """Columns that the splits on the row's ways look at."""
    met = np.zeros(len(row), bool)
    for node in trees.roots:
        while node >= 0:
            met[trees.feature[node]] = True
            node = trees.children[node, int(row[trees.feature[node]] > trees.threshold[node])]
    return met


def test_all_rows_take_the_one_route(rows):
    assert not fitted(rows, gamma=0.01).route(rows[0]).any()


def test_three_classes_and_missing_values_are_welcome(rows):
    X, y = rows[0].copy(), rows[1].copy()
    y[X[:, 4] > 0.8] = "maybe"
    X[::9, 2] = np.nan
    clf = fitted((X, y), gamma=0.002, holdout="oob")
    assert clf.score(X, y) > 0.8
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0)


def test_prices_go_by_the_names_of_the_columns(rows):
    X, y = pd.DataFrame(rows[0], columns=list("uvwxyz")), rows[1]
    costs = dict.fromkeys("uvwxyz", 1.0) | {"v": 500.0}
    clf = fitted((X, y), gamma=0.01, feature_costs=costs)
    assert 1 not in clf.features_
    assert clf.feature_names_in_.tolist() == list("uvwxyz")


def test_a_recipe_is_cloned_and_fitted_and_may_be_judged_on_what_it_did_not_draw(rows):
    recipe = RandomForestClassifier(8, random_state=1)
    clf = fitted(rows, forest=recipe, gamma=0.01, holdout="oob")
    assert clf.forest_.trees.n_trees == 8
    assert not hasattr(recipe, "estimators_")
    assert (
        fitted(rows, forest=ExtraTreesClassifier(8, random_state=1), holdout=0.3).forest_.trees.n_trees == 8
    )


def test_held_out_rows_are_new_to_the_trees(rows):
    clf = fitted(rows, gamma=0.0, holdout=0.5)
    # Trees grown until leaves are pure make no mistake on their own rows: held out, about half the rows count.
    assert clf.solution_.value.loss > 0.05
    assert fitted(rows, gamma=0.0).solution_.value.loss < clf.solution_.value.loss


def test_rounds_that_run_out_are_told_and_the_gap_is_still_true(rows):
    with pytest.warns(ConvergenceWarning, match="Raise `max_iter` or `tol`"):
        clf = fitted(rows, gamma=0.01, solver="decomposed", max_iter=1)
    best = fitted(rows, gamma=0.01).solution_.value.objective
    assert clf.solution_.value.bound <= best <= clf.solution_.value.objective + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": -1.0}, "gamma must be a finite number >= 0"),
        ({"gamma": float("nan")}, "gamma must be"),
        ({"holdout": 1.0}, "holdout must be a share in"),
        ({"holdout": "oops"}, "holdout must be a share in"),
        ({"holdout": None}, "holdout must be a share in"),
        ({"solver": "magic"}, "solver must be one of 'auto', 'lp', 'decomposed'"),
        ({"error": "mse"}, "error must be one of"),
        ({"n_trees": 0}, "n_trees must be a whole number >= 1"),
        ({"max_depth": 0}, "max_depth must be"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"feature_costs": [1.0]}, "one price per column"),
        ({"forest": 3}, "forest must be a RandomForestClassifier"),
        ({"forest": GradientBoostingClassifier(n_estimators=2)}, "forest must average the class shares"),
        ({"forest": FrozenEstimator(RandomForestClassifier())}, "not fitted"),
        ({"forest": ExtraTreesClassifier(2), "holdout": "oob"}, "draws rows for each tree"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_the_estimator_as_it_was(rows, settings, message):
    clf = fitted(rows)
    before = set(vars(clf))
    with pytest.raises(InvalidInputError, match=message):
        clf.set_params(**settings).fit(*rows)
    assert set(vars(clf)) == before


def test_a_frozen_forest_for_other_columns_or_labels_is_refused(rows):
    X, y = rows
    forest = FrozenEstimator(RandomForestClassifier(2).fit(X[:, :3], y))
    with pytest.raises(InvalidInputError, match="fitted on 3 features, but X has 6"):
        BudgetPruneClassifier(forest).fit(X, y)
    forest = FrozenEstimator(RandomForestClassifier(2).fit(X, y == "yes"))
    with pytest.raises(InvalidInputError, match="fitted on the classes"):
        BudgetPruneClassifier(forest).fit(X, y)


def test_numbers_too_large_for_single_precision_are_refused_in_one_sentence(rows):
    X, y = rows
    with pytest.raises(InvalidInputError, match="single precision.*Rescale the column"):
        fitted((np.where(X > 2, 1e300, X), y))
