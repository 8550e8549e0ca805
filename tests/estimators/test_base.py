"""What every estimator with a chain offers once it is fitted, on all of them."""

import copy
import pickle
import re

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import thrifty
from reproduction.settings import estimator_of
from thrifty import (
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Frontier,
    ModelRouter,
    Prices,
    StageOptions,
    __version__,
    progress,
)
from thrifty.errors import InvalidInputError, OtherVersionWarning
from thrifty.learners.dynamod import BoostedOptions, LeafOptions, LinearOptions
from thrifty.learners.estimators.base import ChainClassifier

COSTS = [1.0, 2.0, 1.0, 3.0, 0.5]
PRICED = {"prices": Prices(COSTS, full=2.0)}
TOTAL = 9.5
NAMES = [
    "BudgetedClassifier",
    "ConfidenceRouter",
    "DynaModGbrtClassifier",
    "DynaModLinClassifier",
    "DynaModLstsqClassifier",
]
GATED = [name for name in NAMES if name != "BudgetedClassifier"]


def make(n_rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    y = 1.5 * X[:, 2] + X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n_rows) > 0
    return X, np.where(y, "yes", "no")


@pytest.fixture(scope="module")
def learned():
    """Every estimator with a chain by name, on rows that the full model has not seen."""
    full = FrozenEstimator(make_pipeline(PolynomialFeatures(2), LogisticRegression()).fit(*make(300, 1)))
    small = {"n_trees": 5, "max_iter": 2, "tol": 1.0}
    known = PRICED | {"random_state": 0}
    some = [
        BudgetedClassifier(full, stages=StageOptions(sizes=[(5, 3)]), cv=2, **known),
        ConfidenceRouter(full, features=[2], cv=2, **known),
        estimator_of(DynaModGbrtClassifier, full, gamma=1.0, **small, **known),
        DynaModLinClassifier(full, gamma=0.05, options=LinearOptions(tol=1e-2), **known),
        estimator_of(DynaModLstsqClassifier, full, **small, **known),
    ]
    X, y = make(400, 0)
    return {type(clf).__name__: clf.fit(X, y) for clf in some}, X, y


@pytest.fixture(scope="module")
def new_rows():
    return make(500, 3)


@pytest.mark.slow
def test_every_estimator_with_a_chain_is_here(learned):
    public = [getattr(thrifty, name) for name in thrifty.__all__ if name.endswith(("Classifier", "Router"))]
    with_chain = [thing.__name__ for thing in public if issubclass(thing, ChainClassifier)]
    assert sorted(learned[0]) == sorted(with_chain) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_is_expected_is_the_mean_over_the_evidence_at_the_point_in_force(learned, name):
    clf = learned[0][name]
    policy = clf.chain_.policy
    assert policy.share == 0.0
    point = policy.thresholds[policy.lower]
    _, cost, quality = clf.evidence_.at_point(point)
    assert clf.expected_cost_ == pytest.approx(cost.mean())
    optimism = clf.evidence_.optimism_at(point[None])[0, 0]  # not zero for cascades alone
    assert clf.expected_score_ == pytest.approx(quality.mean() - optimism)
    if name != "BudgetedClassifier":  # whose evidence is out of fold
        assert clf.expected_cost_ == pytest.approx(clf.cost(learned[1]).mean())


@pytest.mark.parametrize("name", GATED)
def test_the_frontier_holds_what_a_gate_does_on_its_rows_at_every_threshold(learned, name):
    estimators, X, _ = learned
    clf = estimators[name]
    for point in list(clf.frontier_)[:: max(1, len(clf.frontier_) // 4)]:
        there = clf.at(threshold=point.threshold)
        assert there.threshold_ == point.threshold
        assert there.cost(X).mean() == pytest.approx(point.cost)
        assert (there.route(X) > 0).mean() == pytest.approx(point.share)
        assert there.expected_score_ == pytest.approx(point.score)


@pytest.mark.parametrize("name", GATED)
def test_a_budget_is_spent_on_the_rows_of_the_evidence_and_the_fit_stays_as_it_was(learned, name):
    estimators, X, _ = learned
    clf = estimators[name]
    before = clf.chain_
    cheapest = float(clf.chain_.cost_by_place[0])
    for budget in (cheapest, (cheapest + TOTAL) / 2, 99.0):
        there = clf.at(budget=budget)
        assert there.cost(X).mean() <= budget * (1 + 1e-9)
        assert there.expected_cost_ == pytest.approx(there.cost(X).mean())
    assert (there.route(X) == 1).all()
    assert clf.chain_ is before
    if cheapest > 0:
        with pytest.raises(InvalidInputError, match="budget must be at least"):
            clf.at(budget=cheapest / 2)


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
@pytest.mark.parametrize("name", NAMES)
def test_cost_route_explanations_and_a_source_tell_one_story(learned, new_rows, name):
    clf, X = learned[0][name], new_rows[0]
    cost, route, labels = clf.cost(X), clf.route(X), clf.predict(X)
    source = Source(X)
    np.testing.assert_array_equal(clf.buy(source, on_failure="raise").answer, labels)
    asks_full = route == clf.chain_.n_stages
    np.testing.assert_allclose(source.asked @ COSTS + 2.0 * asks_full, cost)
    for row, told in enumerate(clf.explain(X)):
        assert (told.asked_full, told.answer) == (asks_full[row], labels[row])
        assert told.cost == pytest.approx(cost[row])
        assert len(told.stages) == min(route[row] + 1, clf.chain_.n_stages)
        assert str(told).startswith("stage 0: ")


@pytest.mark.parametrize("name", NAMES)
def test_the_decision_is_the_log_odds_of_the_probabilities(learned, new_rows, name):
    clf, X = learned[0][name], new_rows[0]
    np.testing.assert_allclose(expit(clf.decision_function(X)), clf.predict_proba(X)[:, 1], atol=1e-12)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[(clf.decision_function(X) > 0).astype(int)])


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")  # some can show nothing
@pytest.mark.parametrize("name", NAMES)
def test_new_rows_prove_what_is_lost_against_the_full_model(learned, new_rows, name):
    X, y = new_rows
    sure = learned[0][name].certified(X, y, max_loss=0.05)
    certificate = sure.certificate_
    assert (certificate.n_rows, certificate.max_loss) == (500, 0.05)
    full = sure.chain_.full.estimator.predict(X)
    if certificate.is_fallback:
        np.testing.assert_array_equal(sure.predict(X), full)
    worse = (full == y) & (sure.predict(X) != y)
    assert worse.sum() == certificate.n_losses
    chosen = Frontier.from_evidence([learned[0][name].evidence_], against_full=True)
    assert certificate.n_candidates >= len(chosen)  # a cascade has a path through them
    assert learned[0][name].certificate_ is None


@pytest.mark.parametrize("name", GATED)
def test_one_goal_at_a_time(learned, name):
    with pytest.raises(InvalidInputError, match="give one of budget, threshold; got none"):
        learned[0][name].at()
    with pytest.raises(InvalidInputError, match="got budget=3.0 and threshold=0.0"):
        learned[0][name].at(budget=3.0, threshold=0.0)


def test_weights_count_where_a_budget_is_spent(learned):
    _, X, y = learned
    weight = np.random.default_rng(0).integers(1, 5, len(y)).astype(float)
    known = np.where(y == "yes", 0.9, 0.1)
    known[::20] = 0.4
    clf = ConfidenceRouter(known, features=[2], cv=2, random_state=0).fit(X, y, weight).at(budget=2.0)
    assert np.average(clf.cost(X), weights=weight) == pytest.approx(clf.expected_cost_)
    assert 1.9 < clf.expected_cost_ <= 2.0 + 1e-9


SPEAKING = [
    BudgetedClassifier(LogisticRegression(), stages=StageOptions(max_stages=2, sizes=[(3, 2)]), cv=2),
    BudgetedRegressor(Ridge(), stages=StageOptions(max_stages=2, sizes=[(3, 2)]), cv=2),
    BudgetedRanker(Ridge(), stages=StageOptions(max_stages=2, sizes=[(3, 2)]), cv=2),
    DynaModGbrtClassifier(LogisticRegression(), options=BoostedOptions(n_trees=3, max_iter=2, tol=1.0), cv=2),
    DynaModGbrtRegressor(Ridge(), options=BoostedOptions(n_trees=3, max_iter=2, tol=1.0), cv=2),
    DynaModLinClassifier(LogisticRegression(), options=LinearOptions(max_iter=50, tol=1e-2), cv=2),
    DynaModLstsqClassifier(LogisticRegression(), options=LeafOptions(n_trees=3, max_iter=2, tol=1.0), cv=2),
]


@pytest.mark.parametrize("estimator", SPEAKING, ids=lambda one: type(one).__name__)
def test_a_verbose_fit_prints_a_line_for_each_phase_with_rising_seconds_and_learns_the_same(
    estimator, capsys
):
    X, labels = make(120, 3)
    y, told = (labels == "yes").astype(int), {}
    how = {"qid": np.repeat(np.arange(12), 10)} if isinstance(estimator, BudgetedRanker) else {}
    found = []
    for verbose in (0, 1, 2):
        fitted = clone(estimator).set_params(random_state=0, verbose=verbose).fit(X, y, **how)
        told[verbose] = capsys.readouterr().out.splitlines()
        found.append(fitted.cost(X))
    assert told[0] == []
    lines = [
        re.fullmatch(r"\[(\w+)\] ([a-z -]+): (\d+\.\d) s(, about \d+ s left)?", line) for line in told[1]
    ]
    assert {line[1] for line in lines} == {type(estimator).__name__}
    assert lines[0][2] == "cross-fitting the full model"
    assert len({line[2] for line in lines}) == len(lines) >= 3
    assert sorted(float(line[3]) for line in lines) == [float(line[3]) for line in lines]
    assert len(told[2]) >= len(told[1])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_the_time_left_is_the_expected_one_at_first_and_comes_nearer_to_the_truth(monkeypatch, capsys):
    clock, errors = [0.0], []
    monkeypatch.setattr(progress, "perf_counter", lambda: clock[0])
    report = progress.progress_printer(2, "Fit", {"first": 0.2, "second": 0.8}, 100.0)
    assert capsys.readouterr().out == "[Fit] starting: 0.0 s, about 100 s left\n"
    for step in range(1, 10):  # of 40 seconds
        clock[0] = 4.0 * step
        report(*(("first", step, 2) if step <= 2 else ("second", step - 2, 8)))
        left = re.search(r"about (\d+) s left", capsys.readouterr().out)[1]
        errors.append(abs(int(left) - (40 - clock[0])))
    assert errors[0] < 60
    assert np.all(np.diff(errors) <= 0)
    assert errors[-1] <= 1


@pytest.mark.parametrize("estimator", [ConfidenceRouter(), BudgetedClassifier(), ModelRouter(["a", "b"])])
def test_a_pickle_of_another_version_warns_and_one_of_this_version_does_not(estimator, monkeypatch):
    pickled = pickle.dumps(estimator)
    again = pickle.loads(pickled)
    assert again.get_params() == estimator.get_params()
    assert "_thrifty_version" not in vars(again) | vars(copy.copy(estimator))
    without = pickle.dumps({**vars(estimator)})
    monkeypatch.setattr("thrifty.learners.estimators.base.__version__", "99.0")
    with pytest.warns(
        OtherVersionWarning, match=rf"pickled by version {__version__} of thrifty, and 99\.0 reads it"
    ):
        pickle.loads(pickled)
    with pytest.warns(OtherVersionWarning, match=r"by version 0\.3\.0 or an earlier one of thrifty"):
        type(estimator).__new__(type(estimator)).__setstate__(pickle.loads(without))
