"""Cascades of the user's models: what is asked, what it costs, and what scikit-learn expects."""

import time
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, make_friedman1
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from thrifty import CascadeClassifier, CascadeRegressor
from thrifty.bundle import from_bytes, to_bytes
from thrifty.engine.full.seconds import Seconds
from thrifty.errors import (
    FullModelFailedWarning,
    InvalidInputError,
    NothingSavedWarning,
    SlowModelWarning,
    UnspentBudgetWarning,
)
from thrifty.learners.routing import model_cascade
from thrifty.reporting.measure import measure

PRICES = {"bayes": 1.0, "tree": 2.0, "forest": 20.0}
PRICES_OF_TWO = {"bayes": 1.0, "forest": 20.0}


def models():
    return [
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=8, random_state=0)),
        ("forest", ExtraTreesClassifier(20, random_state=0)),
    ]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900], y[:900], X[900:], y[900:]


@pytest.fixture(scope="module")
def cascade(digits):
    X, y, _, _ = digits
    return CascadeClassifier(models(), model_prices=PRICES, budget=12.0, random_state=0).fit(X, y)


class Recorder(ClassifierMixin, BaseEstimator):
    """A fitted classifier that counts the rows it is asked about."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X, y):
        self.fitted_, self.rows_ = clone(self.model).fit(X, y), 0
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X):
        self.rows_ += len(X)
        return self.fitted_.predict_proba(X)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.filterwarnings("ignore:forest, fitted again")  # other people wrote the first digits
def test_each_estimator_sees_only_the_rows_that_reach_it_and_these_are_what_is_paid(digits):
    X, y, new, _ = digits
    recorders = [(name, Recorder(model).fit(X[:500], y[:500])) for name, model in models()]
    cascade = CascadeClassifier(recorders, model_prices=PRICES, budget=8.0, cv="prefit", random_state=0)
    cascade.fit(X[500:], y[500:])
    for _, recorder in recorders:
        recorder.rows_ = 0
    paid = cascade.cost(new)
    assert paid.sum() == pytest.approx(sum(PRICES[name] * one.rows_ for name, one in recorders))
    assert 0 < recorders[2][1].rows_ < len(new)


def test_a_run_is_what_a_replay_of_all_answers_says(cascade, digits):
    _, _, new, y = digits
    replay = cascade.router_.replay(**cascade.log_of(new, y))
    everything = cascade.router_.at(budget=12.0)
    assert everything.expected_cost_ == cascade.expected_cost_
    assert abs(replay.cost.mean() - cascade.cost(new).mean()) < 1.0
    assert abs(replay.quality.mean() - cascade.score(new, y)) < 0.02
    single = cascade.at(budget=1.0)  # no mix by lot: key or no key
    assert np.array_equal(single.cost(new), np.ones(len(new)))
    assert np.array_equal(single.predict(new), cascade.models_["bayes"].estimator.predict(new))


def test_a_report_and_its_explanations_follow_the_routes_of_predict(cascade, digits):
    _, _, new, y = digits
    mixed = cascade.at(share=0.5)
    assert mixed.share_by_lot_ > 0.0  # keys decide, and the report must have those of predict
    facts = measure(mixed, new, y, n_boot=20)
    assert facts.cost.value[facts.start] == pytest.approx(mixed.cost(new).mean(), rel=1e-12)
    assert facts.score.value[facts.start] == pytest.approx(mixed.score(new, y), rel=1e-12)
    rows = [int(term.split()[1]) for term, _ in facts.receipts]
    assert [text for _, text in facts.receipts] == [str(mixed.explain(new)[row]) for row in rows]


def test_a_row_alone_goes_the_way_that_it_goes_in_a_table(cascade, digits):
    _, _, new, _ = digits
    together = cascade.cost(new[:40], row_key=np.arange(40))
    alone = [cascade.cost(new[row : row + 1], row_key=[row])[0] for row in range(40)]
    assert np.array_equal(together, alone)


def test_explanations_name_the_estimators_that_were_asked_and_add_up_to_the_cost(cascade, digits):
    _, _, new, _ = digits
    explanations = cascade.explain(new[:40])
    assert [one.cost for one in explanations] == pytest.approx(cascade.cost(new[:40]).tolist())
    assert [one.answer for one in explanations] == cascade.route(new[:40]).tolist()


def test_budgets_are_shares_of_the_price_of_the_most_accurate_estimator(cascade, digits):
    _, _, new, y = digits
    assert cascade.at(share=0.5).budget == pytest.approx(10.0)
    costs = [cascade.at(share=share).cost(new).mean() for share in (0.1, 0.3, 0.6)]
    assert costs == sorted(costs)
    assert cascade.at(share=0.6).score(new, y) > cascade.at(share=0.05).score(new, y)
    with pytest.raises(InvalidInputError, match="share must be given, and not both"):
        cascade.at(budget=3.0, share=0.5)


def test_the_same_prices_give_the_same_plan(cascade, digits):
    X, y, _, _ = digits
    recipe = CascadeClassifier(models()[1:], model_prices={"tree": 1, "forest": 9}, random_state=0)
    twice = [clone(recipe).fit(X[:300], y[:300]).frontier_.cost for _ in range(2)]
    assert np.array_equal(*twice)
    dearer = cascade.with_prices({"forest": 40.0})
    assert dearer.model_prices_["forest"] == 40.0
    assert dearer.expected_cost_ <= 12.0 + 1e-9


def test_a_certificate_bounds_the_loss_against_the_best_estimator(cascade, digits):
    _, _, new, y = digits
    certified = cascade.certified(new, y, max_loss=0.1)
    assert certified.certificate_.bound <= 0.1
    assert cascade.certificate_ is None


def test_probabilities_are_of_all_estimators_asked_and_largest_for_the_answer(cascade, digits):
    _, _, new, labels = digits
    run = cascade.run(new)
    combined = cascade.predict_proba(new)
    assert np.array_equal(cascade.classes_[combined.argmax(axis=1)], cascade.predict(new))
    np.testing.assert_allclose(combined.sum(axis=1), 1.0)
    asked = ~np.isnan(run.asked_outputs[:, :, 0])
    both = np.flatnonzero((asked == [True, False, True]).all(axis=1))
    weights = cascade.pooling_.of[0, 2]
    odds = np.maximum(run.asked_outputs[both][:, [0, 2]], 1e-4) ** weights[:, None]
    expected = odds.prod(axis=1) / odds.prod(axis=1).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.sort(combined[both]), np.sort(expected), rtol=1e-9, atol=1e-12)
    assert len(both)
    assert log_loss(labels, combined) < 0.5 * log_loss(labels, run.outputs)


def test_a_refit_that_beats_every_plan_is_named(digits):
    X, y, _, _ = digits
    few, plan, new = np.split(np.random.default_rng(0).permutation(900), [60, 400])
    fitted = [(name, model.fit(X[few], y[few])) for name, model in models()]
    cascade = CascadeClassifier(fitted, model_prices=PRICES, columns=False, cv="prefit", random_state=0)
    with pytest.warns(
        NothingSavedWarning, match="forest, fitted again on these rows alone, has accuracy 0.9"
    ):
        cascade.fit(X[plan], y[plan])
    *_, again = cascade.alternatives_
    assert again.name == "forest refitted on these rows"
    assert again.cost == PRICES["forest"]
    refitted = clone(fitted[2][1]).fit(X[plan], y[plan])
    assert again.score == pytest.approx(refitted.score(X[new], y[new]), abs=0.04)
    assert f"forest refitted on these rows has {again.score:.3f} for 20" in cascade.explain()
    loaded = from_bytes(to_bytes(cascade, full="outside"), estimators=dict(fitted))
    assert loaded.alternatives_[-1].score == again.score
    rivals = {rival.name: rival.score for rival in measure(cascade, X[new], y[new], n_boot=20).rivals}
    assert rivals["forest refitted on the rows of the plan, out of fold"] == (again.score,)


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_answers_of_a_fitted_estimator_take_the_place_of_labels(digits):
    X, y, new, _ = digits
    fitted = [(name, model.fit(X[:500], y[:500])) for name, model in models()]
    cascade = CascadeClassifier(fitted, model_prices=PRICES, cv="prefit", random_state=0)
    cascade.fit(X[500:], reference="forest")
    agreement = np.mean(cascade.predict(new) == fitted[2][1].predict(new))
    assert abs(agreement - cascade.expected_score_) < 0.05
    assert cascade.reference_ == "forest"
    with pytest.raises(InvalidInputError, match="Leave one out"):
        cascade.fit(X, y, reference="forest")
    with pytest.raises(InvalidInputError, match="must be a fitted estimator"):
        CascadeClassifier(models()).fit(X, reference="forest")


def test_scikit_learn_clones_searches_and_chains_it(digits):
    X, y, new, labels = digits
    both, prices = [("stump", DecisionTreeClassifier(max_depth=1)), models()[1]], {"stump": 1, "tree": 2}
    cascade = CascadeClassifier(both, model_prices=prices, columns=False, cv=2, random_state=0)
    assert clone(cascade).get_params()["tree__max_depth"] == 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingSavedWarning)
        search = GridSearchCV(cascade, {"tree__max_depth": [1, 8]}, cv=2).fit(X[:300], y[:300])
        chained = make_pipeline(StandardScaler(), cascade).fit(X[:300], y[:300])
    assert search.best_params_ == {"tree__max_depth": 8}
    assert chained.score(new, labels) > 0.5
    assert cascade.set_params(tree=GaussianNB()).estimators[1][1].__class__ is GaussianNB


class Slow(Recorder):
    """A classifier that takes a while for each call."""

    delay = 0.02

    def predict_proba(self, X):
        time.sleep(self.delay)
        return super().predict_proba(X)


@pytest.fixture(scope="module")
def slow_and_fast(digits):
    X, y, _, _ = digits
    slow = Slow(ExtraTreesClassifier(20, random_state=0)).fit(X[:450], y[:450])
    fast = GaussianNB().fit(X[:450], y[:450])
    cascade = CascadeClassifier([("bayes", fast), ("forest", slow)], cv="prefit", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingSavedWarning)  # seconds depend on what else the machine does
        return cascade.fit(X[450:], y[450:]), slow


def test_seconds_are_measured_where_no_prices_are_given(slow_and_fast):
    cascade, slow = slow_and_fast
    assert cascade.seconds_["forest"].per_call >= slow.delay
    for name, price in cascade.model_prices_.items():  # in a usual call, with the decision that follows
        seconds = cascade.seconds_[name].of_row(cascade.batch_size) + cascade.decision_seconds_
        assert price == pytest.approx(seconds)
        assert seconds > cascade.decision_seconds_ > 0.0


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_rows_of_small_batches_pay_for_what_a_call_does_once(digits):
    X, y, _, _ = digits
    fitted = [(name, FrozenEstimator(model.fit(X[:450], y[:450]))) for name, model in models()[:2]]
    alone, many = (
        CascadeClassifier(fitted, columns=False, batch_size=size, random_state=0).fit(X[450:600], y[450:600])
        for size in (1, 10_000)
    )
    assert alone.decision_seconds_ > 5.0 * many.decision_seconds_


@pytest.mark.filterwarnings("ignore:forest, fitted again")
@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_a_budget_that_affords_no_call_of_the_best_estimator_is_named(digits, monkeypatch):
    X, y, _, _ = digits
    taken = {"bayes": Seconds(0.0, 1.0), "forest": Seconds(5000.0, 5.0)}
    monkeypatch.setattr(model_cascade, "measure_seconds", lambda ask, _: taken[ask.args[0]])
    monkeypatch.setattr(model_cascade, "_seconds_to_decide", lambda *_: 0.0)
    fitted = [(name, model.fit(X[:450], y[:450])) for name, model in models() if name in taken]
    how = {"cv": "prefit", "columns": False, "random_state": 0}
    cascade = CascadeClassifier(fitted, batch_size=500, **how).fit(X[450:], y[450:])
    with pytest.warns(
        UnspentBudgetWarning, match="A call of it takes 5e.03 seconds .*: 10 a row of a batch of 500"
    ):
        cascade.at(share=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnspentBudgetWarning)
        larger = CascadeClassifier(fitted, batch_size=50_000, **how).fit(X[450:], y[450:])
        larger.at(share=0.5)


@pytest.mark.filterwarnings("ignore:forest, fitted again")  # other people wrote the first digits
def test_a_call_costs_as_much_for_few_rows_as_for_all(digits, monkeypatch):
    X, y, new, _ = digits
    taken = {"bayes": Seconds(0.0, 1.0), "forest": Seconds(5000.0, 10.0)}
    monkeypatch.setattr(model_cascade, "measure_seconds", lambda ask, _: taken[ask.args[0]])
    monkeypatch.setattr(model_cascade, "_seconds_to_decide", lambda *_: 0.0)
    fitted = [(name, model.fit(X[:450], y[:450])) for name, model in models() if name in taken]
    how = {"cv": "prefit", "batch_size": len(new), "columns": False, "random_state": 0}
    cascade = CascadeClassifier(fitted, **how).fit(X[450:], y[450:])
    for share in (0.5, 0.75):
        plan = cascade.at(share=share)
        run = plan.run(new)
        n_asked = (~np.isnan(run.asked_outputs[:, :, 0])).sum(axis=0)
        assert 0 < n_asked[1] < 0.7 * len(new)
        paid = sum(
            taken[name].per_row * n + taken[name].per_call for name, n in zip(taken, n_asked, strict=True)
        )
        assert run.cost.sum() == pytest.approx(paid, rel=0.07)
        assert plan.expected_cost_ == pytest.approx(run.cost.mean(), rel=0.07)
        assert 0.9 * plan.budget < plan.expected_cost_ <= plan.budget * (1 + 1e-9)
        assert [one.cost for one in plan.explain(new[:3])] == pytest.approx(plan.cost(new[:3]).tolist())


def test_an_estimator_that_becomes_slow_is_named(slow_and_fast, digits, monkeypatch):
    cascade, slow = slow_and_fast
    monkeypatch.setattr(slow, "delay", 1.0)
    monkeypatch.setattr(model_cascade, "_LEAST_SECONDS", 0.5)
    with pytest.warns(SlowModelWarning, match="'forest' took"):
        cascade.predict(digits[2])


def test_numbers_are_predicted_within_a_budget():
    X, y = make_friedman1(1200, random_state=0)
    estimators = [("ridge", Ridge()), ("forest", ExtraTreesRegressor(30, random_state=0))]
    cascade = CascadeRegressor(estimators, model_prices={"ridge": 1, "forest": 20}, random_state=0)
    cascade.fit(X[:600], y[:600])
    half = cascade.at(budget=10.0)
    scores = [one.score(X[600:], y[600:]) for one in (cascade.at(budget=1.0), half, cascade)]
    assert scores == sorted(scores)
    assert abs(half.expected_score_ - scores[1]) < 0.1
    assert half.cost(X[600:]).mean() < 13.0


@pytest.mark.parametrize(
    ("estimators", "how", "message"),
    [
        (None, {}, "at least two"),
        ([("a", GaussianNB())], {}, "at least two"),
        ([("a", GaussianNB()), ("a", GaussianNB())], {}, "different names"),
        ([("budget", GaussianNB()), ("a", GaussianNB())], {}, "'budget'"),
        (models(), {"model_prices": {"bayes": 1.0}}, "a price for each estimator"),
        (models(), {"model_prices": {**PRICES, "bayes": 0.0}}, "must be positive; got 0 for 'bayes'"),
        (models(), {"model_prices": PRICES, "after": {"forest": {"bayes": 30.0}}}, "must lie in .0, 20."),
    ],
)
def test_bad_parameters_are_named_before_any_estimator_is_fitted(
    digits, estimators, how, message, monkeypatch
):
    X, y, _, _ = digits
    monkeypatch.setattr(model_cascade, "cross_fit_full", None)
    with pytest.raises(InvalidInputError, match=message):
        CascadeClassifier(estimators, **how).fit(X, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_rows_of_a_group_stay_together_also_in_folds_of_a_splitter():
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(60), 5))
    X, y = (
        np.column_stack([groups, rng.random(300)]),
        rng.integers(2, size=60)[groups],
    )  # groups tell the label
    estimators = [("stump", DecisionTreeClassifier(max_depth=1)), ("tree", DecisionTreeClassifier())]
    recipe = CascadeClassifier(estimators, model_prices={"stump": 1, "tree": 2}, cv=3, columns=False)
    assert recipe.fit(X, y).alternatives_[1].score > 0.8
    for cv in (3, StratifiedGroupKFold(3)):
        recipe.set_params(cv=cv).fit(X, y, groups=groups)
        assert recipe.alternatives_[1].score < 0.65
    with pytest.raises(InvalidInputError, match="the argument 'groups' failed"):
        recipe.fit(X, y, groups=groups[:9])


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_an_estimator_whose_fit_takes_no_weights_is_named(digits):
    X, y, _, _ = digits
    recipe = CascadeClassifier(models()[:2], model_prices={"bayes": 1, "tree": 2}, columns=False)
    recipe.set_params(bayes=make_pipeline(GaussianNB()), cv=2)
    with pytest.warns(UserWarning, match="'bayes' is fitted without sample_weight") as warned:
        recipe.fit(X[:200], y[:200], 1.0 + y[:200])
    assert "'tree'" not in "".join(str(one.message) for one in warned)


def test_before_the_fit_every_result_says_so():
    cascade = CascadeClassifier(models())
    asks = [lambda: cascade.predict([[0.0]]), lambda: cascade.frontier_, lambda: cascade.expected_score_]
    for ask in [cascade.explain, *asks]:
        with pytest.raises(NotFittedError, match="Call 'fit'"):
            ask()


def test_an_estimator_that_answers_nothing_is_named(digits):
    X, y, _, _ = digits

    class Broken(Recorder):
        def predict_proba(self, X):
            return np.full((len(X), 10), np.nan)

    broken = FrozenEstimator(Broken(GaussianNB()).fit(X[:450], y[:450]))
    estimators = [("bayes", GaussianNB()), ("broken", broken)]
    with pytest.raises(InvalidInputError, match="the estimator 'broken'"):
        CascadeClassifier(estimators, model_prices={"bayes": 1, "broken": 2}).fit(X[450:], y[450:])


@pytest.mark.filterwarnings("ignore:forest, fitted again")  # other people wrote the first digits
def test_an_estimator_that_changes_its_classes_is_named_and_others_answer(digits, monkeypatch):
    X, y, new, _ = digits
    fitted = [(name, Recorder(model).fit(X[:450], y[:450])) for name, model in models() if name != "tree"]
    cascade = CascadeClassifier(
        fitted, model_prices=PRICES_OF_TWO, cv="prefit", columns=False, random_state=0
    )
    cascade.fit(X[450:], y[450:])
    monkeypatch.setattr(fitted[1][1], "classes_", np.arange(10)[::-1])
    with pytest.warns(FullModelFailedWarning, match=r"'forest' .* a model of the classes \[9, 8"):
        assert set(cascade.route(new)) == {"bayes"}
