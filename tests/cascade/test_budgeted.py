"""BudgetedClassifier: what it buys, what it spends, what it proves, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from threadpoolctl import threadpool_limits

import thrifty
from thrifty import BudgetedClassifier, Chain, ConfidenceRouter, Prices, StageOptions
from thrifty.engine.evidence.collect import point_of
from thrifty.engine.full import crossfit
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError, NothingSavedWarning
from thrifty.learners.cascade.problem import CAPACITIES


def make(n_rows, seed=0, n_features=6):
    """Feature 2 says most, 0 and 1 correct it together, the others are noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    score = 1.5 * X[:, 2] + X[:, 0] * X[:, 1] + 0.5 * X[:, 0]
    return X, (score + 0.2 * rng.normal(size=n_rows) > 0).astype(int)


def full():
    return make_pipeline(PolynomialFeatures(2), LogisticRegression(solver="newton-cholesky"))


def budgeted(**settings):
    return BudgetedClassifier(
        full(), **{"stages": StageOptions(sizes=[(15, 4)]), "cv": 3, "random_state": 0} | settings
    )


@pytest.fixture(scope="module")
def rows():
    return make(1500)


@pytest.fixture(scope="module")
def others():
    return make(3000, seed=1)


@pytest.fixture(scope="module")
def fitted(rows):
    return budgeted(budget=2.0).fit(*rows)


@pytest.fixture(scope="module")
def proved(fitted):
    return fitted.certified(*make(400, seed=5), max_loss=0.1)


class Never(LogisticRegression):
    """A full model that must not be fitted."""

    def fit(self, X, y, sample_weight=None):
        raise AssertionError("the full model was fitted")


class Source:
    """A table that notes every cell it is asked for."""

    def __init__(self, X):
        self.X, self.asked = X, np.zeros(X.shape, dtype=int)

    def __len__(self):
        return len(self.X)

    def fetch(self, rows, columns):
        self.asked[np.ix_(rows, columns)] += 1
        return self.X[np.ix_(rows, columns)]


@pytest.mark.slow
def test_the_best_feature_is_bought_first(fitted):
    assert fitted.order_[0] == 2
    assert set(fitted.order_[:3]) == {0, 1, 2}


@pytest.mark.parametrize("budget", [1.0, 1.37, 2.0, 2.61])
def test_new_rows_spend_about_the_budget(fitted, others, budget):
    there = fitted.at(budget=budget)
    assert there.expected_cost_ == pytest.approx(budget)
    assert there.cost(others[0]).mean() == pytest.approx(budget, rel=0.12)


def test_the_size_of_weights_changes_nothing_but_whole_numbers_count_rows(small_fits):
    X, y = make(300)
    small = budgeted(stages=StageOptions(2, [(5, 3)]), budget=1.5)

    def fitted_with(weight):
        one = small.fit(X, y, sample_weight=weight)
        return np.column_stack([one.predict_proba(X), one.cost(X)])

    plain = fitted_with(None)
    for uniform in (1e300, 1e-300, 1 / len(y), 3.0):
        np.testing.assert_array_equal(fitted_with(np.full(len(y), uniform)), plain)
    uneven = np.where(X[:, 3] > 0, 1.3, 0.8)
    expected = fitted_with(uneven)
    assert not np.array_equal(expected, plain)
    for factor in (2.0**60, 2.0**-60):
        np.testing.assert_array_equal(fitted_with(uneven * factor), expected)
    assert not np.array_equal(
        fitted_with(np.where(X[:, 3] > 0, 2, 4)), fitted_with(np.where(X[:, 3] > 0, 1, 2))
    )


@pytest.mark.slow
def test_a_first_purchase_of_few_values_spends_about_the_budget_too():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(6000, 5)).astype(float)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + X[:, 3] + rng.normal(size=6000) > 6).astype(int)
    f0 = np.where(y, 0.9, 0.1)
    f0[::15] = 0.5
    clf = BudgetedClassifier(f0[:3000], stages=StageOptions(sizes=[(15, 4)]), cv=3, random_state=0).fit(
        X[:3000], y[:3000]
    )
    for budget in (1.3, 1.6, 2.0, 2.5):
        assert clf.at(budget=budget).cost(X[3000:]).mean() == pytest.approx(budget, rel=0.06)


def test_more_money_buys_more_accuracy(fitted, others):
    scores = [fitted.at(budget=budget).score(*others) for budget in (1.0, 1.5, 2.0, 2.6)]
    assert scores == sorted(scores)
    assert scores[-1] > scores[0] + 0.05


def test_the_expected_score_is_about_what_new_rows_score(fitted, others):
    assert fitted.score(*others) == pytest.approx(fitted.expected_score_, abs=0.025)
    low, high = fitted.expected_score_interval_
    assert low < fitted.score(*others) < high


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the full model")
def test_labels_that_nothing_predicts_promise_no_more_than_chance():
    expected, judged = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(150, 30)).round(3), rng.integers(0, 2, 150)
        small = StageOptions(max_stages=4, sizes=[(8, 2)])
        clf = BudgetedClassifier(full(), stages=small, cv=3, random_state=0).fit(X, y)
        expected.append(clf.expected_score_)
        judged.append(clf.evidence_.at_point(clf.chain_.policy.thresholds[clf.chain_.policy.lower])[2].mean())
    # The columns that are bought first agree by chance with the labels that judge them.
    assert np.mean(judged) > 0.57
    assert np.mean(expected) < 0.55


def test_switching_leaves_the_fit_as_it_was(fitted, others):
    before = fitted.predict_proba(others[0])
    fitted.at(budget=1.0).predict(others[0])
    np.testing.assert_array_equal(fitted.predict_proba(others[0]), before)


def test_cost_is_what_the_route_bought(fitted, others):
    route, cost = fitted.route(others[0]), fitted.cost(others[0])
    paid = fitted.chain_.bought_by_place[route].sum(axis=1)
    np.testing.assert_array_equal(cost, paid)


def test_a_source_is_asked_for_exactly_what_is_paid_for_and_once(fitted, others):
    costs = fitted.chain_.policy.cost
    clf = fitted.at(budget=float(costs[len(costs) // 2]))  # a point of its own: nothing is left to chance
    source = Source(others[0][:300])
    np.testing.assert_array_equal(clf.buy(source, on_failure="raise").answer, clf.predict(others[0][:300]))
    assert source.asked.max() == 1
    np.testing.assert_array_equal(source.asked.sum(axis=1), clf.cost(others[0][:300]))


def test_between_two_points_a_source_sends_rows_where_a_table_does_and_still_asks_nothing_twice(
    fitted, others
):
    costs = fitted.chain_.policy.cost
    clf = fitted.at(budget=float(costs[0] + costs[1]) / 2)
    source = Source(others[0])
    np.testing.assert_array_equal(clf.buy(source, on_failure="raise").answer, clf.predict(others[0]))
    assert source.asked.max() == 1
    np.testing.assert_array_equal(source.asked.sum(axis=1), clf.cost(others[0]))


@pytest.mark.slow
def test_a_budget_is_met_where_the_first_purchase_has_two_values(rows):
    X, y = rows
    X = X.copy()
    X[:, 0] = X[:, 0] > 0
    costs = np.r_[0.1, np.full(X.shape[1] - 1, 5.0)]
    clf = budgeted(feature_costs=costs).fit(X, y)
    low, high = clf.chain_.policy.cost[:2]
    for share in (0.25, 0.5, 0.75):
        wish = float(low + share * (high - low))
        paid = clf.at(budget=wish).cost(X)
        assert paid.mean() == pytest.approx(wish, abs=4 * paid.std() / np.sqrt(len(X)))


def test_a_row_goes_where_its_place_and_what_it_bought_send_it_whatever_else_is_in_the_table(fitted, others):
    X = others[0][:200].copy()
    there = fitted.at(budget=1.6)
    assert there.chain_.policy.is_mixed
    route = there.route(X)
    np.testing.assert_array_equal(there.route(X[:50]), route[:50])
    X[~there.chain_.bought_by_place[route]] = 7.0
    np.testing.assert_array_equal(there.route(X), route)
    # At an operating point of its own nothing is left to chance, and places do not count.
    pure = fitted.at(budget=float(fitted.chain_.policy.cost[1]))
    np.testing.assert_array_equal(pure.route(X[::-1])[::-1], pure.route(X))


def test_probabilities_are_right_as_often_as_they_say(fitted, others):
    positive = fitted.predict_proba(others[0])[:, 1]
    bins = np.digitize(positive, [0.1, 0.3, 0.5, 0.7, 0.9])
    gaps = [
        abs(positive[bins == b].mean() - others[1][bins == b].mean()) * (bins == b).mean() for b in range(6)
    ]
    assert sum(gaps) < 0.04


@pytest.mark.slow
def test_without_sizes_those_of_the_library_are_compared():
    X, y = make(400, n_features=3)
    clf = BudgetedClassifier(full(), cv=2, random_state=0).fit(X, y)
    assert clf.size_ in [(size.n_trees, size.max_depth) for size in CAPACITIES]
    assert clf.score(*make(1000, seed=1, n_features=3)) > 0.85


@pytest.mark.parametrize("structure", ["line", "tree"])
def test_of_many_rows_some_are_held_out_and_none_of_the_others_proves_anything(structure, monkeypatch):
    """Two of four folds suffice: the full model is fitted three times, and points are chosen on half of the rows."""
    monkeypatch.setattr(crossfit, "EVALUATED_ROWS", 150)
    X, y = make(320, n_features=4)
    fits = []

    class Counted(LogisticRegression):
        def fit(self, X, y):
            fits.append(len(y))
            return super().fit(X, y)

    stages = StageOptions(sizes=[(8, 3)], structure=structure)
    clf = BudgetedClassifier(Counted(), stages=stages, random_state=0).fit(X, y)
    assert len(fits) == 3
    assert fits[0] == 320
    assert 150 <= clf.evidence_.n_units < 240
    assert len(np.unique(np.concatenate(clf.evidence_.known_rows))) == 320
    with pytest.raises(InvalidInputError, match="320 of the"):
        clf.certified(X, y, max_loss=0.3)
    new_X, new_y = make(2000, seed=1, n_features=4)
    low, high = clf.expected_score_interval_
    assert low - 0.02 < clf.score(new_X, new_y) < high + 0.02
    of_all = BudgetedClassifier(full(), stages=stages, cv=StratifiedKFold(4), random_state=0).fit(X, y)
    assert of_all.evidence_.n_units == 320  # the user's folds


def test_of_very_many_rows_a_part_of_one_fold_is_held_out(monkeypatch):
    for name, number in {"EVALUATED_ROWS": 20, "MANY_ROWS": 400, "MANY_HELD_OUT": 25}.items():
        monkeypatch.setattr(crossfit, name, number)
    X, y = make(400, n_features=3)
    clf = BudgetedClassifier(full(), stages=StageOptions(sizes=[(8, 3)], structure="line"), random_state=0)
    assert 20 <= clf.fit(X, y).evidence_.n_units <= 30
    assert clf.score(*make(1000, seed=1, n_features=3)) > 0.85


@pytest.mark.slow
def test_folds_side_by_side_change_nothing(rows):
    f0 = FrozenEstimator(full().fit(*make(500, seed=2)))
    # A process of its own has one BLAS thread; here there are two.
    with threadpool_limits(2, user_api="blas"):
        one, two = (
            BudgetedClassifier(
                f0, stages=StageOptions(sizes=[(8, 3), (16, 4)]), cv=3, n_jobs=n_jobs, random_state=0
            ).fit(*rows)
            for n_jobs in (1, -1)
        )
    np.testing.assert_array_equal(one.predict_proba(rows[0]), two.predict_proba(rows[0]))
    np.testing.assert_array_equal(one.evidence_.gate, two.evidence_.gate)


@pytest.mark.slow
def test_what_is_free_is_held_by_every_stage_and_what_is_dear_comes_late(rows):
    costs = [1.0, 1.0, 50.0, 0.0, 1.0, 1.0]
    clf = budgeted(feature_costs=costs).fit(*rows)
    assert all(3 in stage.columns for stage in clf.chain_.stages)
    assert clf.chain_.cost_by_place[0] == 0.0
    assert clf.order_[0] in (0, 1)


@pytest.mark.slow
def test_columns_of_one_purchase_are_bought_together_and_paid_once(rows):
    clf = budgeted(prices=Prices(groups=[0, 1, 2, 0, 2, 0]), budget=2.0).fit(*rows)
    held = clf.chain_.bought_by_place
    np.testing.assert_array_equal(held[:, 0], held[:, 5])
    np.testing.assert_array_equal(held[:, 2], held[:, 4])
    assert clf.chain_.cost_by_place[-1] == 3.0


@pytest.mark.slow
def test_a_call_of_the_full_model_that_is_too_dear_is_never_made(rows, others):
    clf = budgeted(prices=Prices(full=1000.0)).fit(*rows)
    assert (clf.at(budget=5.0).route(others[0]) < clf.n_stages_).mean() > 0.99


@pytest.mark.slow
def test_missing_values_are_values(rows):
    X = rows[0].copy()
    X[::5, 0] = np.nan
    f0 = lambda table: np.where(make_truth(np.nan_to_num(table)), 0.95, 0.05)  # noqa: E731
    clf = BudgetedClassifier(f0, budget=2.0, stages=StageOptions(sizes=[(10, 3)]), cv=2, random_state=0).fit(
        X, rows[1]
    )
    assert np.isfinite(clf.predict_proba(X)).all()


@pytest.mark.slow
def test_a_full_model_that_is_much_better_is_asked_by_the_most_accurate_point():
    X, y = make(1500, n_features=3)
    clf = BudgetedClassifier(
        lambda table: np.where(make_truth(table), 0.99, 0.01),
        stages=StageOptions(sizes=[(3, 2)]),
        cv=3,
        random_state=0,
    )
    clf.fit(X, y)
    assert (clf.route(X) == clf.n_stages_).mean() > 0.2
    assert clf.score(X, y) > 0.9


def make_truth(X):
    return 1.5 * X[:, 2] + X[:, 0] * X[:, 1] + 0.5 * X[:, 0] > 0


@pytest.mark.slow
def test_a_full_model_worse_than_a_cheap_stage_is_reported_and_left_out(rows):
    X, y = rows
    chance = FrozenEstimator(LogisticRegression().fit(np.zeros_like(X), y))
    with pytest.warns(FullModelNotWorthItWarning, match="full model .*it is not worth asking"):
        clf = BudgetedClassifier(chance, stages=StageOptions(sizes=[(15, 4)]), cv=3, random_state=0).fit(X, y)
    assert (clf.route(X) < clf.n_stages_).all()


# -- chains in front of chains -----------------------------------------------------------------------


def pays_for_what_it_asks(clf, X):
    """Cost, explanations and a source agree: every row pays for the distinct columns of its own way."""
    cost, source = clf.cost(X), Source(X)
    np.testing.assert_array_equal(clf.buy(source, on_failure="raise").answer, clf.predict(X))
    assert source.asked.max() == 1
    np.testing.assert_array_equal(source.asked.sum(axis=1), cost)
    route, labels = clf.route(X), clf.predict(X).tolist()
    for row, told in enumerate(clf.explain(X)):
        assert (told.cost, told.answer) == (cost[row], labels[row])
        assert told.asked_full == (route[row] == clf.chain_.n_stages)
        assert told.asked_full or len(told.bought) == cost[row]
        assert len(told.stages) == min(route[row] + 1, clf.chain_.n_stages)
    return route


def test_a_stage_in_front_of_a_cascade_counts_through_and_pays_for_each_rows_own_way(fitted, others):
    costs = fitted.chain_.policy.cost
    inner = fitted.at(budget=float(costs[len(costs) // 2]))
    X, y = others[0][:300], others[1][:300]
    outer = ConfidenceRouter(FrozenEstimator(inner), features=[0, 3], p_full=0.6, random_state=0).fit(X, y)
    assert isinstance(outer.chain_.full, Chain)
    assert outer.chain_.n_stages == 1 + inner.n_stages_
    route = pays_for_what_it_asks(outer, X)
    sent = route > 0
    np.testing.assert_array_equal(route[sent] - 1, inner.route(X)[sent])
    np.testing.assert_allclose(outer.predict_proba(X)[sent], inner.predict_proba(X)[sent], rtol=1e-12)
    assert len(set(route)) > 2


@pytest.fixture(scope="module")
def behind(rows):
    """A chain of one stage, to stand in the place of a full model."""
    f0 = FrozenEstimator(full().fit(*make(500, seed=2)))
    return ConfidenceRouter(f0, features=[2, 0], p_full=0.5, random_state=0).fit(rows[0][:700], rows[1][:700])


@pytest.mark.slow
def test_a_cascade_in_front_of_a_chain_learns_with_what_each_row_pays_in_it(rows, others, behind):
    clf = BudgetedClassifier(
        FrozenEstimator(behind), stages=StageOptions(sizes=[(4, 2)]), cv=2, random_state=0
    )
    clf.fit(rows[0][700:], rows[1][700:])
    assert clf.n_stages_ > 2
    assert clf.evidence_.cost.shape == (800, clf.n_stages_ + 1)
    everybody = clf.chain_.at(thrifty.Policy.of(np.full(clf.n_stages_, -np.inf)))
    there = others[0][:300]
    held = np.zeros((300, 6), dtype=bool)
    held[:, everybody.columns] = True
    held |= behind.chain_.bought_by_place[behind.route(there)]
    np.testing.assert_array_equal(everybody.cost(there), held.sum(axis=1))
    np.testing.assert_allclose(
        clf.chain_.policy.cost,
        [clf.evidence_.at_point(one)[1].mean() for one in clf.chain_.policy.thresholds],
    )
    for cost in clf.chain_.policy.cost[::3]:  # points of their own: nothing is left to chance
        pays_for_what_it_asks(clf.at(budget=float(cost)), there)


@pytest.mark.slow
def test_a_cascade_at_which_no_row_ever_stops_keeps_a_stage(rows, others, behind):
    # Its only stage buys everything, so that the better answers behind it cost nothing more.
    clf = BudgetedClassifier(
        FrozenEstimator(behind), stages=StageOptions(max_stages=1, sizes=[(2, 1)]), cv=2, random_state=0
    )
    clf.fit(rows[0][700:], rows[1][700:])
    assert clf.n_stages_ == 1
    assert (clf.route(others[0]) > 0).all()
    np.testing.assert_array_equal(clf.predict(others[0]), behind.predict(others[0]))
    assert clf.expected_cost_ == 6.0


def test_stages_of_a_frontier_agree_with_their_system(fitted, others):
    point = point_of(fitted, *others)
    assert point.every_point()[1].cost[0] == pytest.approx(fitted.cost(others[0]).mean())
    assert point.every_point()[1].score[0] == pytest.approx(fitted.score(*others))


def test_an_explanation_retells_the_route(fitted, others):
    X = others[0][:60]
    route, cost, labels = fitted.route(X), fitted.cost(X), fitted.predict(X).tolist()
    for row, told in enumerate(fitted.explain(X)):
        assert told.asked_full == (route[row] == fitted.n_stages_)
        assert told.cost == cost[row]
        assert told.answer == labels[row]
        assert told.saved == 6.0 - cost[row]
        assert [stage.goes_on for stage in told.stages[:-1]] == [True] * (len(told.stages) - 1)
        assert told.stages[-1].goes_on == told.asked_full
        assert told.bought[0] == "x2"
        assert str(told).endswith(
            f"answered {labels[row]!r} for {cost[row]:g}, {6 - cost[row]:g} less than the full model"
        )


@pytest.mark.slow
def test_a_certified_loss_holds_on_other_rows(fitted, proved, others):
    clf = proved
    assert clf.certificate_.n_rows == 400
    assert clf.certificate_.bound <= 0.1
    f0 = clf.chain_.full.estimator
    worse = (f0.predict(others[0]) == others[1]) & (clf.predict(others[0]) != others[1])
    assert worse.mean() <= 0.1
    stricter = fitted.certified(*make(400, seed=5), max_loss=0.06)
    assert stricter.expected_cost_ >= clf.expected_cost_


def test_a_loss_that_no_point_keeps_to_sends_every_row_to_the_full_model(fitted, others):
    with pytest.warns(NothingSavedWarning, match="max_loss=1e-06 can be met only by sending every row"):
        sure = fitted.at(max_loss=1e-6)
    assert (sure.route(others[0]) == sure.n_stages_).all()
    np.testing.assert_array_equal(sure.predict(others[0]), sure.chain_.full.estimator.predict(others[0]))
    assert sure.at(budget=1.5).expected_cost_ == pytest.approx(1.5)


def test_one_goal_at_a_time(fitted):
    with pytest.raises(InvalidInputError, match="give one of budget, max_loss; got none"):
        fitted.at()
    with pytest.raises(InvalidInputError, match="got budget=2.0 and max_loss=0.1"):
        fitted.at(budget=2.0, max_loss=0.1)


def test_max_loss_of_the_rows_of_the_fit_is_an_estimate(fitted):
    there = fitted.at(max_loss=0.05)
    assert there.certificate_ is None
    assert there.expected_cost_ < fitted.at(max_loss=0.02).expected_cost_


def test_a_saved_classifier_answers_bit_by_bit_as_before_at_every_budget(fitted, others, tmp_path):
    path = tmp_path / "cascade.thrifty"
    thrifty.save(fitted, path, full="outside")
    again = thrifty.load(path, full=fitted.chain_.full.estimator)
    for budget in (1.2, 2.0):
        one, other = fitted.at(budget=budget), again.at(budget=budget)
        np.testing.assert_array_equal(one.predict_proba(others[0]), other.predict_proba(others[0]))
        np.testing.assert_array_equal(one.route(others[0]), other.route(others[0]))
    assert again.expected_cost_ == fitted.expected_cost_
    np.testing.assert_array_equal(again.frontier_.score, fitted.frontier_.score)
    assert again.at(max_loss=0.05).expected_cost_ == fitted.at(max_loss=0.05).expected_cost_
    one, other = (clf.certified(*others, max_loss=0.1).certificate_ for clf in (fitted, again))
    assert one.bound == other.bound


def test_a_file_keeps_what_was_certified(rows, fitted, proved, tmp_path):
    with pytest.warns(NothingSavedWarning):
        everything = fitted.at(max_loss=1e-6)
    for there in (proved, everything):
        thrifty.save(there, tmp_path / "proved.thrifty", full="outside")
        again = thrifty.load(tmp_path / "proved.thrifty", full=there.chain_.full.estimator)
        assert str(again.certificate_) == str(there.certificate_)
        np.testing.assert_array_equal(again.route(rows[0]), there.route(rows[0]))
        assert again.at(budget=1.5).expected_cost_ == pytest.approx(1.5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_default_point_is_the_cheapest_of_the_most_accurate_up_to_noise(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 6)).round(3)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=400) > 0).astype(int)
    clf = BudgetedClassifier(full(), stages=StageOptions(sizes=[(4, 2)]), cv=2, random_state=seed).fit(X, y)
    evidence, policy = clf.evidence_, clf.chain_.policy
    seen = [evidence.at_point(point)[1:] for point in evidence.points]
    cost, right = (np.array(one, dtype=float) for one in zip(*seen, strict=True))
    chosen = evidence.at_point(policy.thresholds[policy.lower])[2].astype(float)
    optimism = evidence.optimism_at(policy.thresholds[[policy.lower]])[0, 0]
    assert clf.expected_score_ == pytest.approx(chosen.mean() - optimism)
    assert clf.frontier_.evidence[0].every_point()[1].score == pytest.approx(
        right.mean(axis=1) - evidence.optimism[:, 0]
    )
    best = int(right.mean(axis=1).argmax())
    gain = right[best] - chosen
    assert gain.mean() <= 0.5 * gain.std() / np.sqrt(len(gain)) + 1e-12
    assert clf.expected_cost_ <= cost[best].mean() + 1e-12
    for other in np.flatnonzero(cost.mean(axis=1) < clf.expected_cost_ - 1e-9):
        lost = right[best] - right[other]
        assert lost.mean() > 0.5 * lost.std() / np.sqrt(len(lost))


def test_progress_is_told_from_the_first_step_to_the_last(rows):
    told = []
    clf = BudgetedClassifier(full(), stages=StageOptions(sizes=[(4, 2), (6, 3)]), cv=2, random_state=0)
    clf.fit(*rows, progress=lambda what, done, total: told.append((what, done, total)))
    assert all(0 <= done <= total for _, done, total in told)
    last = {what: (done, total) for what, done, total in told}
    assert list(last) == [
        "cross-fitting the full model",
        "finding orders",
        "comparing sizes",
        "comparing orders",
        "growing stages",
        "learning gates",
        "growing a tree of purchases",
        "choosing the operating point",
    ]
    assert all(done == total for done, total in last.values())


@pytest.mark.slow
def test_columns_by_name(rows):
    table = pd.DataFrame(rows[0], columns=list("abcdef"))
    clf = BudgetedClassifier(
        full(),
        feature_costs=dict.fromkeys("abcdef", 2.0),
        budget=4.0,
        stages=StageOptions(sizes=[(8, 3)]),
        cv=2,
    )
    clf.fit(table, np.where(rows[1], "yes", "no"))
    labels, sure = clf.predict(table[:50]), clf.predict_proba(table[:50]).max(axis=1)
    for told, label, probability in zip(clf.explain(table[:50]), labels, sure, strict=True):
        assert told.bought[0] == "c"
        assert (told.answer, told.probability) == (label, pytest.approx(probability))
        assert {stage.answer for stage in told.stages} <= {"yes", "no"}
        assert min(stage.probability for stage in told.stages) >= 0.5
        assert f"answered '{label}' for" in str(told)


@pytest.mark.slow
def test_forced_stages_are_at_most_that_many(rows):
    assert budgeted(stages=StageOptions(2, [(15, 4)])).fit(*rows).n_stages_ <= 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0.2}, "budget must be at least 1"),
        ({"feature_costs": 0.0}, "are zero, so there is nothing to save"),
        ({"prices": Prices([1, 2, 1, 1, 1, 1], groups=[0, 0, 1, 1, 2, 2])}, "one group"),
        ({"stages": StageOptions(sizes=[3])}, r"sizes must be a list of \(n_trees, max_depth\)"),
        ({"stages": StageOptions(sizes=[(3, 99)])}, "max_depth in sizes must be a whole number"),
        ({"stages": StageOptions(max_stages=0)}, "max_stages must be a whole number"),
        ({"stages": 4}, r"stages must be a thrifty.StageOptions; got 4.*StageOptions\(max_stages="),
    ],
)
def test_what_is_refused_leaves_the_estimator_as_it_was(rows, settings, message):
    clf = budgeted(**settings)
    before = dict(vars(clf))
    with pytest.raises(InvalidInputError, match=message):
        clf.fit(*rows)
    assert vars(clf) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0.2}, "budget must be at least 1, the price of the cheapest purchase.*got 0.2"),
        ({"budget": 2.0, "feature_costs": [3, 4, 5, 2.5, 9, 9]}, "budget must be at least 2.5"),
        ({"prices": Prices(full_features=[0, 9])}, "full_features must be column numbers"),
        ({"feature_costs": 0.0}, "are zero, so there is nothing to save"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_fitted(rows, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        BudgetedClassifier(Never(), **settings).fit(*rows)


def test_a_free_purchase_makes_any_budget_affordable(rows):
    costs = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    with pytest.raises(AssertionError, match="was fitted"):  # past the checks
        BudgetedClassifier(Never(), budget=0.0, feature_costs=costs).fit(*rows)


def test_a_class_of_one_row_is_refused_with_a_hint():
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(InvalidInputError, match="one class has fewer than two distinct rows. Give more rows"):
        budgeted().fit(X, np.arange(40) == 0)


def test_rows_that_are_too_few_to_show_a_loss_are_refused(fitted):
    few = make(300, seed=6)
    with pytest.raises(
        InvalidInputError, match=r"300 held-out rows cannot show a loss of at most 0.1 % .* takes 2,995 rows"
    ):
        fitted.certified(*few, max_loss=0.001)
    with pytest.raises(InvalidInputError, match="held-out rows cannot show"):
        fitted.certified(*few, max_loss=0.01, confidence=0.999)
    with pytest.raises(InvalidInputError, match="max_loss must lie strictly between 0 and 1; got 1.5"):
        fitted.certified(*few, max_loss=1.5)
