"""What mistakes cost: least totals by brute force, weights of classes, and floors of recall on a rare class."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB

from thrifty import BudgetedClassifier, StageOptions, evidence_of
from thrifty.bundle import from_bytes, to_bytes
from thrifty.errors import InvalidInputError, OptimisticFullModelWarning, ThriftyError
from thrifty.learners.cascade import learn

pytestmark = pytest.mark.slow

SMALL = {"stages": StageOptions(sizes=[(8, 3)]), "cv": 2, "random_state": 0}
RARE = [[0.0, 3.0], [60.0, 0.0]]


def half_known(n_rows=960):
    """The first column, for 1, tells the label of one half of the rows; the second, for 10, of the others."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n_rows)
    hidden = np.arange(n_rows) % 2 == 1
    # Some noise keeps rows apart, so that folds are drawn row by row.
    X = np.column_stack([np.where(hidden, 2.0, y), np.where(hidden, y, 2.0)]) + 0.01 * rng.random((n_rows, 2))
    return X, y, hidden


def rare(n_rows=500):
    """One row in eight is "sick"; labels overlap."""
    rng = np.random.default_rng(1)
    sick = rng.random(n_rows) < 0.12
    X = rng.normal(size=(n_rows, 4)) + np.outer(sick, [0.8, 0.5, 1.2, 0.9])
    return X, np.where(sick, "sick", "fine")


def cascade(**settings):
    return BudgetedClassifier(LinearDiscriminantAnalysis(), feature_costs=[1, 1, 2, 4], **(SMALL | settings))


@pytest.fixture(scope="module")
def plain():
    return cascade().fit(*rare())


@pytest.fixture(scope="module")
def priced():
    return cascade(loss=RARE).fit(*rare())


# -- least total cost ------------------------------------------------------------------------------


@pytest.mark.parametrize("price", [4.0, 100.0])
def test_without_a_budget_tests_and_mistakes_cost_least_together_by_brute_force(price):
    X, y, hidden = half_known()
    clf = BudgetedClassifier(
        LogisticRegression(), loss=price * (1 - np.eye(2)), feature_costs=[1.0, 10.0], **SMALL
    ).fit(X, y)
    wrong = [min(y[part].mean(), 1 - y[part].mean()) / 2 for part in (hidden, ~hidden)]
    every = {
        "the first column": 1.0 + price * wrong[0],
        "the second column": 10.0 + price * wrong[1],
        "the second one where the first does not tell": 1.0 + 10.0 / 2,
        "the first one where the second does not tell": 10.0 + 1.0 / 2,
        "both": 11.0,
    }
    assert clf.expected_total_cost_ == pytest.approx(min(every.values()), rel=0.08)
    assert clf.cost(X).mean() + price * (clf.predict(X) != y).mean() <= 1.06 * min(every.values())
    assert clf.at(budget=11.0).expected_cost_ <= 11.0


def test_no_point_of_the_frontier_costs_clearly_less_in_total_row_by_row(priced):
    evidence, totals = priced.evidence_, []
    for point in [*evidence.points, priced.chain_.policy.thresholds[priced.chain_.policy.lower]]:
        total = []
        for row in range(evidence.n_rows):
            place = 0
            while place < evidence.n_stages and evidence.gate[row, place] > point[place]:
                place += 1
            total.append(evidence.cost[place] - evidence.quality[row, place])
        totals.append(total)
    *others, chosen = np.array(totals)
    optimism = evidence.optimism_at(priced.chain_.policy.thresholds[[priced.chain_.policy.lower]])[0, 0]
    assert priced.expected_total_cost_ == pytest.approx(chosen.mean() + optimism)
    assert priced.expected_total_cost_ == priced.expected_cost_ - priced.expected_score_
    for other in others:
        more = chosen - other
        assert more.mean() <= 2 * more.std() / np.sqrt(len(more))
    assert (priced.frontier_.score <= 0).all()


def test_other_folds_hardly_move_the_answers_where_a_rare_class_is_dear(monkeypatch, small_fits):
    X, y = rare(600)
    new, _ = rare(4_000)
    spread = []
    for most in (1, 5):
        monkeypatch.setattr(learn, "MAX_REPEATS", most)
        fits = [
            cascade(loss=RARE, random_state=seed, stages=StageOptions(2, [(8, 3)])).fit(X, y)
            for seed in range(5)
        ]
        spread.append(np.std([(clf.predict(new) == "sick").mean() for clf in fits]))
    assert spread[1] < 0.7 * spread[0]


def test_folds_of_a_splitter_are_never_repeated(monkeypatch):
    monkeypatch.setattr(learn, "_repeat_cross_validation", lambda *_: pytest.fail("folds were repeated"))
    X, y = rare(200)
    cascade(loss=RARE, stages=StageOptions(1, [(8, 3)]), cv=KFold(2)).fit(X, y)


def test_dear_mistakes_are_made_less_often_than_cheap_ones(plain, priced):
    X, y = rare()
    budget = float(plain.chain_.policy.cost[-1])
    missed = [(clf.at(budget=budget).predict(X)[y == "sick"] == "fine").mean() for clf in (plain, priced)]
    assert missed[1] < 0.5 * missed[0]


def test_equal_prices_of_all_mistakes_give_the_answers_of_errors_at_every_mix(plain):
    X, y = rare()
    ones = cascade(loss=1 - np.eye(2)).fit(X, y)
    for budget in np.linspace(*plain.chain_.policy.cost[[0, -1]], 5):
        one, other = copy.copy(plain), copy.copy(ones)
        for clf in (
            one,
            other,
        ):  # budgets look at scores, which are not corrected for the order where mistakes cost
            clf.chain_ = clf._learned.at(clf._learned.policy.within(budget))
        np.testing.assert_array_equal(one.predict(X), other.predict(X))
        np.testing.assert_array_equal(one.cost(X), other.cost(X))
        assert judged(one) == pytest.approx(1 + judged(other))


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_losses_of_probabilities_are_bought_down(loss, plain):
    X, y = rare()
    clf = cascade(loss=loss, stages=StageOptions(2, [(8, 3)])).fit(X, y)
    low, high = clf.frontier_[0], clf.frontier_[len(clf.frontier_) - 1]
    assert low.score < high.score < 0.0
    known = evidence_of(clf, X, y)
    assert known.quality.max() <= 0.0
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[clf.predict_proba(X).argmax(axis=1)])


def test_losses_that_are_never_zero_do_not_make_a_full_model_look_perfect():
    X, y = rare(240)
    honest = LinearDiscriminantAnalysis().fit(X[::2], y[::2]).predict_proba(X)[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", OptimisticFullModelWarning)
        clf = BudgetedClassifier(honest, loss="log", **SMALL | {"stages": StageOptions(1, [(8, 3)])}).fit(
            X, y
        )
    assert clf.expected_score_ < 0.0


def test_only_prices_of_mistakes_add_up_with_those_of_tests(plain):
    assert not hasattr(plain, "expected_total_cost_")
    with pytest.raises(ThriftyError, match="loss='error'"):
        _ = plain.expected_total_cost_


@pytest.mark.parametrize(
    "loss", [[[0, -1], [1, 0]], [[0, np.nan], [1, 0]], np.ones((3, 3)), [[2, 1], [1, 0]]]
)
def test_a_bad_matrix_is_refused_before_anything_is_fitted(loss):
    class Full(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            raise AssertionError("the full model was fitted")

    clf = BudgetedClassifier(Full(), loss=loss, **SMALL)
    with pytest.raises(InvalidInputError, match="loss"):
        clf.fit(*rare(60))
    assert not hasattr(clf, "classes_")


def test_prices_of_mistakes_and_floors_come_back_from_a_file(priced):
    X, _ = rare()
    loaded = from_bytes(to_bytes(priced))
    np.testing.assert_array_equal(loaded.predict(X), priced.predict(X))
    assert loaded.expected_total_cost_ == priced.expected_total_cost_
    wish = {"budget": 4.0, "min_recall": {"sick": 0.8}}
    np.testing.assert_array_equal(loaded.at(**wish).cost(X), priced.at(**wish).cost(X))
    np.testing.assert_array_equal(loaded.at(budget=2.0).predict(X), priced.at(budget=2.0).predict(X))
    np.testing.assert_array_equal([one.answer for one in priced.explain(X[:9])], priced.predict(X[:9]))


# -- weights of classes ----------------------------------------------------------------------------


@pytest.mark.parametrize("class_weight", ["balanced", {"sick": 3.0}])
def test_weights_of_classes_are_multiplied_into_those_of_rows(class_weight):
    X, y = rare(120)
    weight = 1.0 + (np.arange(len(y)) % 2)
    sick = y == "sick"
    each = np.where(sick, len(y) / (2 * sick.sum()), len(y) / (2 * (~sick).sum()))
    each = each if class_weight == "balanced" else np.where(sick, 3.0, 1.0)
    one = cascade(stages=StageOptions(1, [(8, 3)]), class_weight=class_weight).fit(X, y, sample_weight=weight)
    other = cascade(stages=StageOptions(1, [(8, 3)])).fit(X, y, sample_weight=weight * each)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"class_weight": {"ill": 2.0}}, "names 'ill'"),
        ({"class_weight": {"sick": -1.0}}, "class_weight of 'sick'"),
        ({"class_weight": "even"}, "got 'even'"),
    ],
)
def test_weights_that_make_no_sense_are_refused(settings, word):
    with pytest.raises(InvalidInputError, match=word):
        cascade(**settings).fit(*rare(120))


# -- floors of recall --------------------------------------------------------------------------------


def recall_at(clf, label):
    """Held-out recall of a class at the point in force, row by row."""
    policy, evidence = clf.chain_.policy, clf.evidence_
    mine, found = clf.classes_[evidence.strata] == label, 0.0
    right = evidence.quality if evidence.right is None else evidence.right
    for share, point in ((1 - policy.share, policy.lower), (policy.share, policy.upper)):
        route = evidence.at_point(policy.thresholds[point])[0]
        found += share * right[np.arange(evidence.n_rows), route][mine].mean()
    return found


def judged(one):
    """Mean score of the rows of the fit, without a correction."""
    policy = one.chain_.policy
    optimism = one.evidence_.optimism_at(policy.thresholds[[policy.lower, policy.upper]])[:, 0]
    return one.expected_score_ + np.average(optimism, weights=[1 - policy.share, policy.share])


@pytest.mark.parametrize("which", ["plain", "priced"])
def test_a_floor_is_reached_and_no_mix_within_the_budget_that_reaches_it_is_better(which, request):
    clf = request.getfixturevalue(which)
    policy = clf._learned.policy
    dearest = clf.at(budget=float(policy.cost[-1]))
    floor = 0.5 * (recall_at(clf.at(budget=float(policy.cost[0])), "sick") + recall_at(dearest, "sick"))
    for budget in (None, *np.linspace(*policy.cost[[0, -1]], 4)[1:]):
        mixes = [copy.copy(clf) for _ in range(25)]
        for one, cost in zip(mixes, np.linspace(policy.cost[0], budget or policy.cost[-1], 25), strict=True):
            one.chain_ = clf._learned.at(policy.within(float(cost)))
        reaching = [one for one in mixes if recall_at(one, "sick") >= floor]
        if not reaching:
            with pytest.raises(InvalidInputError, match="is not reached"):
                clf.at(budget=budget, min_recall={"sick": floor})
            continue
        found = clf.at(budget=budget, min_recall={"sick": floor})
        assert recall_at(found, "sick") >= floor - 1e-12
        if budget is not None:
            assert found.expected_cost_ <= budget * (1 + 1e-9)
            assert judged(found) >= max(map(judged, reaching)) - 1e-12
        elif which == "plain":
            assert found.expected_cost_ <= min(one.expected_cost_ for one in reaching) + 1e-12
        else:
            total, *totals = (one.expected_cost_ - judged(one) for one in (found, *reaching))
            assert total <= min(totals) + 1e-12


def test_a_floor_out_of_reach_is_refused_with_the_best_recall_there_is(plain):
    policy = plain._learned.policy
    budget = float(policy.cost[len(policy) // 2])
    most = max(recall_at(plain.at(budget=float(cost)), "sick") for cost in policy.cost[policy.cost <= budget])
    with pytest.raises(InvalidInputError, match=f"'sick': {most:.4g}.* at a mean cost of"):
        plain.at(budget=budget, min_recall={"sick": 0.999})


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        ({"min_recall": {"ill": 0.5}}, r"names 'ill', which is not one of the labels \['fine', 'sick'\]"),
        ({"min_recall": {"sick": 1.5}}, "must lie in"),
        ({"min_recall": {}}, "must be a dict"),
        ({"min_recall": 0.9}, "must be a dict"),
        ({"min_recall": {"sick": 0.1}, "max_loss": 0.1}, "max_loss=0.1"),
        ({"min_recall": {"sick": 0.1}, "budget": 0.5}, "budget must be at least"),
    ],
)
def test_floors_that_make_no_sense_are_refused(plain, wish, word):
    with pytest.raises(InvalidInputError, match=word):
        plain.at(**wish)


def test_the_classes_of_the_rows_take_a_byte_each(plain, priced):
    assert plain.evidence_.strata.dtype == np.uint8
    assert plain.evidence_.target is None
    assert plain.evidence_.right is None
    assert priced.evidence_.right.dtype == bool
