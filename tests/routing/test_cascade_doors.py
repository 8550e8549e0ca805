"""Cascades of models of one's own through the doors: files, sessions, estimators that fail, reports and commands."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from thrifty import CascadeClassifier, CascadeRegressor
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.errors import (
    FullModelFailedError,
    FullModelFailedWarning,
    FullModelOutsideWarning,
    InvalidInputError,
)

PRICES = {"bayes": 1.0, "tree": 2.0, "forest": 20.0}
FIT, NEW = slice(0, 300), slice(300, 500)


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(500, 5, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    table = pd.DataFrame(X, columns=["age", "height", "weight", "pulse", "salt"]).round(3)
    return table, np.array(["low", "middle", "high"])[y]


@pytest.fixture(scope="module")
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thrifty.learners.routing.quality.N_TREES", 5)
        yield


@pytest.fixture(scope="module")
def cascade(rows, few_trees):
    table, y = rows
    models = [
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=4, random_state=0)),
        ("forest", ExtraTreesClassifier(12, random_state=0)),
    ]
    return CascadeClassifier(models, model_prices=PRICES, budget=8.0, random_state=0).fit(table[FIT], y[FIT])


@pytest.fixture(scope="module")
def regressor(few_trees):
    X, y = make_friedman1(400, random_state=0)
    models = [("forest", ExtraTreesRegressor(12, random_state=0)), ("ridge", Ridge())]
    prices = {"ridge": 1.0, "forest": 20.0}
    return CascadeRegressor(models, model_prices=prices, budget=9.0, random_state=0).fit(X[:250], y[:250])


@pytest.fixture(scope="module")
def data(cascade):
    with pytest.warns(FullModelOutsideWarning, match="'bayes'.*estimators={'bayes': ...}"):
        return to_bytes(cascade)


# -- files -------------------------------------------------------------------------------------------


def assert_same(one, other, X):
    assert np.array_equal(one.route(X), other.route(X))
    assert np.array_equal(one.cost(X), other.cost(X))
    if one.task_.classes is not None and len(one.task_.classes):
        np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-11, atol=1e-13)
    else:
        np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-11)


def test_a_file_gives_the_same_routes_costs_and_answers(cascade, regressor, data, rows):
    again = from_bytes(data, estimators={"bayes": cascade.models_["bayes"].estimator})
    assert_same(again, cascade, rows[0][NEW])
    moved = again.at(share=0.2), cascade.at(share=0.2)
    assert_same(*moved, rows[0][NEW])
    assert again.alternatives_[0].score == cascade.alternatives_[0].score
    assert_same(from_bytes(to_bytes(regressor)), regressor, make_friedman1(100, random_state=1)[0])


def test_an_estimator_outside_the_file_must_be_given_again_and_be_the_same(cascade, data, rows):
    table, y = rows
    again = from_bytes(data)
    assert len(again.frontier_) == len(cascade.frontier_)  # which asks no estimator
    with pytest.raises(
        InvalidInputError, match=r"estimator 'bayes'.*load\(path, estimators={'bayes': ...}\)"
    ):
        again.predict(table[NEW])
    with pytest.raises(InvalidInputError, match="does not hold the estimator 'bayes'"):
        from_bytes(data, estimators={})
    other = GaussianNB().fit(table[NEW], y[NEW])
    with pytest.raises(InvalidInputError, match="saved with another estimator 'bayes'"):
        from_bytes(data, estimators={"bayes": other})
    with pytest.raises(
        InvalidInputError, match="names 'svm', and the file holds a cascade of bayes, tree, forest"
    ):
        from_bytes(data, estimators={"svm": other})
    with pytest.raises(InvalidInputError, match="full is not for a CascadeClassifier"):
        from_bytes(data, full=other)


def crafted(data, **changes):
    """The file with other facts of its cascade."""
    contents = unpack(data)
    contents.facts["objects"][-1].update(changes)
    return pack(Contents(contents.facts, contents.arrays))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": "ModelCascade"}, "be one of CascadeClassifier"),
        ({"name": "CascadeRegressor"}, "suit its task"),
        ({"model_prices": {"$dict": [["bayes", 1.0]]}}, "have a price of each estimator"),
        ({"reference": "svm"}, "refer to an estimator"),
        ({"parameters": {"$dict": [["fit", 1]]}}, "be a parameter of CascadeClassifier"),
    ],
)
def test_a_file_whose_parts_do_not_fit_together_is_refused(data, changes, rule):
    with pytest.raises(InvalidInputError, match=rule):
        from_bytes(crafted(data, **changes))


# -- sessions ----------------------------------------------------------------------------------------


def test_a_session_whose_caller_asks_the_estimators_ends_where_predict_does(cascade, regressor, rows):
    table = rows[0][NEW][:12]
    keys = list(table.index)
    for row, key in enumerate(keys):
        session = cascade.start(table.iloc[row], key=key)
        while session.next_purchase is not None:
            model = cascade.models_[session.next_purchase.name].estimator
            session.give(model.predict_proba(table[row : row + 1])[0])
        assert session.model == cascade.route(table)[row]
        assert session.cost == cascade.cost(table)[row]
    X, _ = make_friedman1(100, random_state=1)
    session = regressor.start(X[3], key=3)
    while session.next_purchase is not None:
        session.give(regressor.models_[session.next_purchase.name].estimator.predict(X[3:4])[0])
    assert session.answer == pytest.approx(regressor.predict(X, row_key=np.arange(100))[3])


# -- estimators that fail ----------------------------------------------------------------------------


class Fragile(ClassifierMixin, BaseEstimator):
    """A fitted classifier that can be made to fail."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X, y):
        self.classes_, self.broken_ = self.model.classes_, ""
        return self

    def predict_proba(self, X):
        if self.broken_ == "raises":
            raise RuntimeError("no connection")
        answers = self.model.predict_proba(X)
        if self.broken_ == "NaN":
            answers[np.asarray(X)[:, 3] > 0] = np.nan
        return answers[:, :2] if self.broken_ == "classes" else answers

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(scope="module")
def fragile(cascade, rows, few_trees):
    table, y = rows
    models = {name: Fragile(model.estimator).fit(None, None) for name, model in cascade.models_.items()}
    made = CascadeClassifier([*models.items()], model_prices=PRICES, cv="prefit", budget=8.0, random_state=0)
    return made.fit(table[NEW], y[NEW]), models


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("raises", "RuntimeError: no connection"), ("NaN", "got nan"), ("classes", r"got shape \(\d+, 2\)")],
)
def test_rows_go_on_without_an_estimator_that_fails(fragile, rows, broken, reason):
    cascade, models = fragile
    table = rows[0][FIT]
    models["forest"].broken_ = broken
    try:
        with pytest.warns(FullModelFailedWarning, match=f"the estimator 'forest'.*{reason}"):
            answers = cascade.predict(table)
        with pytest.warns(FullModelFailedWarning):
            route = cascade.route(table)
        with pytest.warns(FullModelFailedWarning):
            explained = cascade.explain(table)
    finally:
        models["forest"].broken_ = ""
    failed = table["pulse"].to_numpy() > 0 if broken == "NaN" else np.ones(len(table), dtype=bool)
    assert not (route[failed] == "forest").any()
    assert broken != "NaN" or (route == "forest").any()
    assert set(answers) <= set(cascade.classes_)
    assert [one.answer for one in explained] == route.tolist()
    other = cascade.predict(table)[cascade.route(table) != "forest"]
    assert np.array_equal(answers[cascade.route(table) != "forest"], other)


def test_where_all_estimators_fail_the_error_names_them(fragile, rows):
    cascade, models = fragile
    for model in models.values():
        model.broken_ = "raises"
    try:
        with pytest.raises(
            FullModelFailedError, match="200 of 200 rows.*'bayes'.*'tree'.*'forest'|no estimator"
        ):
            cascade.predict(rows[0][NEW])
    finally:
        for model in models.values():
            model.broken_ = ""


def test_an_estimator_that_fails_in_the_fit_is_named(rows):
    class Unfit(GaussianNB):
        def fit(self, X, y):
            raise RuntimeError("out of memory")

    table, y = rows
    models = [("bayes", GaussianNB()), ("large", Unfit())]
    with pytest.raises(InvalidInputError, match="the estimator 'large'.*out of memory"):
        CascadeClassifier(models, model_prices={"bayes": 1, "large": 2}).fit(table[FIT], y[FIT])
    broken = Fragile(GaussianNB().fit(table[NEW], y[NEW])).fit(None, None)
    broken.broken_ = "raises"
    models = [("bayes", GaussianNB()), ("large", FrozenEstimator(broken))]
    with pytest.raises(InvalidInputError, match="the estimator 'large'.*no connection"):
        CascadeClassifier(models, model_prices={"bayes": 1, "large": 2}).fit(table[FIT], y[FIT])
