"""Cascades of the user's models through the doors: files, sessions, estimators that fail, reports and commands."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import thrifty
from thrifty import CascadeClassifier, CascadeRegressor, ConfidenceRouter
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.cli import main
from thrifty.cli.system import labelled_rows, measured
from thrifty.engine.full.seconds import Seconds
from thrifty.errors import (
    FullModelFailedError,
    FullModelFailedWarning,
    FullModelOutsideWarning,
    InvalidInputError,
)
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of

PRICES = {"bayes": 1.0, "tree": 2.0, "forest": 20.0}
FIT, NEW = slice(0, 300), slice(300, 500)


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(500, 5, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    table = pd.DataFrame(X, columns=["age", "height", "weight", "pulse", "salt"]).round(3)
    return table, np.array(["low", "middle", "high"])[y]


@pytest.fixture(scope="module")
def cascade(rows):
    table, y = rows
    models = [
        ("bayes", GaussianNB()),
        ("tree", DecisionTreeClassifier(max_depth=4, random_state=0)),
        ("forest", ExtraTreesClassifier(12, random_state=0)),
    ]
    return CascadeClassifier(models, model_prices=PRICES, budget=8.0, random_state=0).fit(table[FIT], y[FIT])


@pytest.fixture(scope="module")
def regressor():
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


@pytest.mark.slow
def test_an_estimator_of_thrifty_that_the_cascade_fitted_is_in_the_file(rows):
    table, y = rows
    small, large = (DecisionTreeClassifier(max_depth=depth, random_state=0) for depth in (2, 8))
    models = [("pair", ConfidenceRouter(large, small, features=[0])), ("tree", large)]
    both = CascadeClassifier(models, model_prices={"pair": 2, "tree": 5}, cv=2, columns=False, random_state=0)
    both.fit(table[FIT], y[FIT])
    assert_same(from_bytes(to_bytes(both)), both, table[NEW])


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
        ({"pooling": None}, "combine its estimators"),
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
    combined, n_asked = cascade.predict_proba(table), set()
    for row, key in enumerate(keys):
        session = cascade.start(table.iloc[row], key=key)
        assert session.answer is None
        while session.next_purchase is not None:
            model = cascade.models_[session.next_purchase.name].estimator
            session.give(model.predict_proba(table[row : row + 1])[0])
        assert session.model == cascade.route(table)[row]
        assert session.cost == cascade.cost(table)[row]
        np.testing.assert_allclose(session.answer, combined[row], rtol=1e-12)
        assert cascade.classes_[session.answer.argmax()] == cascade.predict(table)[row]
        n_asked.add(len(session.asked))
    assert max(n_asked) > 1  # of several estimators
    session = cascade.start(table.iloc[0], key=keys[0])
    before = session.next_purchase.name
    with pytest.raises(InvalidInputError, match=f"the answer of '{before}'.*3 classes"):
        session.give([0.2, 0.8])
    while session.next_purchase is not None and session.fail():
        pass
    assert session.answer is None
    assert before in session.failed
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
def fragile(cascade, rows):
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


# -- the time of a decision --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
@pytest.mark.parametrize(("dear", "reads"), [(10.0, False), (0.0, True)])
def test_columns_are_read_where_that_is_worth_its_seconds(rows, monkeypatch, dear, reads):
    table, y = rows
    level = np.array(["low", "middle", "high"])

    def half(right):
        """A model that is right where the age says so."""

        def answer(X):
            known = (X["age"].to_numpy() > 0) == right
            return np.where(known[:, None], truth.loc[X.index].to_numpy(), 1 / 3)

        return answer

    truth = pd.DataFrame((y[:, None] == np.sort(level)) * 0.96 + 0.04 / 3, index=table.index)
    decide = "thrifty.learners.routing.model_cascade._seconds_to_decide"
    monkeypatch.setattr(decide, lambda _, router, *__: dear if router.state_.model is not None else 0.0)
    measured = "thrifty.learners.routing.model_cascade.measure_seconds"
    monkeypatch.setattr(measured, lambda ask, n_rows: Seconds(0.0, 1.0))
    models = [("old", half(right=True)), ("young", half(right=False))]
    cascade = CascadeClassifier(models, budget=1.2 + dear * (not reads), random_state=0).fit(
        table[FIT], y[FIT]
    )
    assert cascade.reads_columns_ == reads
    assert cascade.model_prices_ == {"old": 1.0, "young": 1.0}
    assert not cascade.retrained_  # functions cannot be trained
    forced = CascadeClassifier(models, columns=True, random_state=0).fit(table[FIT], y[FIT])
    assert forced.reads_columns_
    assert forced.decision_seconds_ == dear
    assert forced.model_prices_ == {"old": 1.0 + dear, "young": 1.0 + dear}
    blind = CascadeClassifier(models, model_prices={"old": 1, "young": 1}, columns=False, random_state=0)
    assert blind.fit(table[FIT], y[FIT]).router_.state_.model is None
    assert blind.decision_seconds_ == 0.0
    again = from_bytes(to_bytes(blind, full="outside"), estimators=dict(models))
    assert np.array_equal(again.cost(table[NEW]), blind.cost(table[NEW]))
    assert again.certified(table[NEW], y[NEW], max_loss=0.9).certificate_.bound <= 0.9
    with pytest.raises(InvalidInputError, match="the fit"):  # rows of the fit prove nothing
        again.certified(table[FIT], y[FIT], max_loss=0.9)


# -- reports -----------------------------------------------------------------------------------------


def test_a_report_has_the_plain_alternatives_beside_the_plan(cascade, regressor, rows):
    table, y = rows
    facts = measure(cascade, table[NEW], y[NEW], n_boot=40, by={"pulse": table["pulse"][NEW] > 0})
    rivals = {rival.name: rival for rival in facts.rivals}
    assert rivals["forest alone"].cost == (20.0,)
    forest = np.mean(cascade.models_["forest"].estimator.predict(table[NEW]) == y[NEW])
    assert rivals["forest alone"].score[0] == pytest.approx(forest)
    pair = next(name for name in rivals if "below a confidence of" in name)
    assert rivals[pair].cost[0] < 20.0
    assert facts.cost.value[facts.start] == pytest.approx(cascade.cost(table[NEW]).mean(), abs=1.0)
    assert facts.score.value[facts.start] == pytest.approx(cascade.score(table[NEW], y[NEW]), abs=0.03)
    page = page_of(facts)
    assert "Mean accuracy" in page
    assert "mean quality" not in page.lower()
    X, t = make_friedman1(100, random_state=1)
    facts = measure(regressor, X, t, n_boot=40)
    assert facts.score.name == "R2"
    assert facts.score.value[facts.start] == pytest.approx(regressor.score(X, t), abs=0.15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thrifty.errors.NothingSavedWarning")
def test_the_best_estimator_on_half_of_the_columns_is_beside_the_plan(cascade, rows, monkeypatch):
    table, y = rows
    noise = np.random.default_rng(0).normal(size=(len(table), 5))
    wide = table.assign(**{f"noise{column}": noise[:, column] for column in range(5)}).round(3)

    def measured(ask, n_rows):
        name, seen = ask.args
        return Seconds(0.0, 0.1 if name == "bayes" else {10: 4.0, 5: 3.0}[seen.numbers.shape[1]])

    monkeypatch.setattr("thrifty.learners.routing.model_cascade.measure_seconds", measured)
    monkeypatch.setattr("thrifty.learners.routing.model_cascade._seconds_to_decide", lambda *_: 0.0)
    forest = ExtraTreesClassifier(30, random_state=0)
    models = [("bayes", GaussianNB()), ("forest", forest)]
    assert not cascade.retrained_  # prices that are given are of models, not of columns
    cascade = CascadeClassifier(models, columns=False, random_state=0).fit(wide[FIT], y[FIT])
    [fewer] = cascade.retrained_
    assert fewer.columns == tuple(table.columns)  # the noise is left out
    *_, plain = cascade.alternatives_
    assert (plain.name, plain.cost) == ("forest on 5 of 10 columns", 3.0)
    fitted = clone(forest).fit(table[FIT], y[FIT])
    assert plain.score == pytest.approx(fitted.score(table[NEW], y[NEW]), abs=0.06)
    assert f"forest on 5 of 10 columns has {plain.score:.3f} for 3 seconds" in cascade.explain()
    data = to_bytes(cascade, full="outside")
    again = from_bytes(data, estimators={name: one.estimator for name, one in cascade.models_.items()})
    assert again.alternatives_[-1] == plain
    rivals = {rival.name: rival for rival in measure(again, wide[NEW], y[NEW], n_boot=20).rivals}
    assert rivals["forest on 5 of 10 columns, out of fold"].cost == (3.0,)
    contents = unpack(data)
    [stored] = [one for one in contents.facts["objects"] if one.get("how") == "on 5 of 10 columns"]
    stored["model"] = "svm"
    with pytest.raises(InvalidInputError, match="compare with estimators of its router"):
        from_bytes(pack(Contents(contents.facts, contents.arrays)))


def test_one_threshold_is_the_best_of_all_that_can_be_tried(cascade):
    state = cascade.router_.state_
    log = state.log

    def quality_of(rows, first, second, cut):
        sent = log.evidence[rows, first] <= cut + 1e-9
        paid = log.cost[rows, first].sum() + log.cost[rows][sent, second].sum()
        return np.where(sent, log.quality[rows, second], log.quality[rows, first]), paid <= 8.0 * rows.sum()

    def best_on(rows):
        cuts = [-1.0, *np.unique(log.evidence[rows])]
        tried = [pair for pair in product(range(3), range(3), cuts) if pair[0] != pair[1]]
        values = [quality.mean() * within for quality, within in (quality_of(rows, *pair) for pair in tried)]
        return tried[int(np.argmax(values))]

    *_, pair = cascade.alternatives_
    every = np.ones(len(log), dtype=bool)
    cost, quality = state.means_under(pair.rule, log)
    assert quality == pytest.approx(quality_of(every, *best_on(every))[0].mean())
    assert pair.cost == cost <= 8.0
    folds = [state.folds == fold for fold in np.unique(state.folds)]
    out_of_fold = np.concatenate([quality_of(rows, *best_on(~rows))[0] for rows in folds]).mean()
    assert pair.score == pytest.approx(
        out_of_fold, abs=0.02
    )  # pairs of equal quality may differ on other rows
    assert pair.score < quality
    *_, last = cascade.at(budget=1.0).alternatives_  # which affords no second estimator
    assert last.name == "forest alone"


def test_with_a_reference_every_number_is_an_agreement(cascade, rows, tmp_path):
    table, _ = rows
    fitted = [(name, model.estimator) for name, model in cascade.models_.items()]
    agreeing = CascadeClassifier(fitted, model_prices=PRICES, budget=8.0, cv="prefit", random_state=0)
    agreeing.fit(table[NEW], reference="forest")
    certified = agreeing.certified(table[FIT], max_loss=0.5)
    facts = measure(certified, table[FIT], None, n_boot=40)
    assert facts.score.full == 1.0  # of the forest with itself
    with pytest.raises(InvalidInputError, match="got y too"):  # an agreement with labels would be an accuracy
        measure(agreeing, table[FIT], rows[1][FIT], n_boot=40)
    with pytest.warns(FullModelOutsideWarning):
        thrifty.save(agreeing, tmp_path / "agreeing.thrifty")
    table[FIT].to_csv(tmp_path / "rows.csv", index=False)
    loaded = thrifty.load(tmp_path / "agreeing.thrifty", estimators=fitted)  # pairs, as in the constructor
    unlabelled = labelled_rows(loaded, tmp_path / "rows.csv", None, None, (), 0)
    texts = [
        agreeing.explain(),
        str(loaded.explain(table[FIT][:1])[0]),
        str(certified.certificate_),
        page_of(measured(loaded, unlabelled, ())[0]),
        page_of(facts),
        agreeing.frontier_.plot(Figure().add_subplot()).get_ylabel(),
    ]
    for text in texts:
        assert "agreement with forest" in text
        assert "accuracy" not in text.split("<script")[0]


# -- commands ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(cascade, rows, tmp_path_factory):
    """A file of a cascade whose estimators are all inside, and tables."""
    table, y = rows
    fitted = [(name, cascade.models_[name].estimator) for name in ("tree", "forest")]
    prices = {name: PRICES[name] for name, _ in fitted}
    small = CascadeClassifier(fitted, model_prices=prices, cv="prefit", budget=8.0, random_state=0)
    small.fit(table[NEW], y[NEW])
    folder = tmp_path_factory.mktemp("commands")
    thrifty.save(small, folder / "system.thrifty")
    # Columns of a file may come in another order.
    table[FIT].iloc[:, ::-1].assign(label=y[FIT]).to_csv(folder / "rows.csv", index=False)
    return small, folder


def command(capsys, folder, name, *arguments):
    code = main([name, str(folder / "system.thrifty"), *map(str, arguments), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


def test_commands_answer_explain_and_report_from_a_file(files, rows, capsys):
    small, folder = files
    table, y = rows[0][FIT], rows[1][FIT]
    numbers = command(capsys, folder, "predict", folder / "rows.csv", "-o", folder / "answers.csv")
    answers = pd.read_csv(folder / "answers.csv")
    assert answers["answer"].tolist() == small.predict(table).tolist()
    assert answers["model"].tolist() == small.route(table).tolist()
    paid = [sum(PRICES[name] for name in names.split()) for names in answers["asked"]]
    assert paid == pytest.approx(answers["cost"])
    assert numbers["cost"] == pytest.approx(small.cost(table).mean())
    cheap = command(capsys, folder, "predict", folder / "rows.csv", "-o", folder / "a.csv", "--budget", 3)
    assert cheap["cost"] == pytest.approx(small.at(budget=3.0).cost(table).mean())
    (row,) = command(capsys, folder, "explain", folder / "rows.csv", "--row", 2)["rows"]
    assert row["cost"] == small.cost(table)[1]
    points = command(capsys, folder, "frontier")["frontier"]
    assert points["cost"] == small.frontier_.cost.tolist()
    labelled = [folder / "rows.csv", "--target", "label"]
    new = command(capsys, folder, "frontier", *labelled)["frontier"]
    assert new["accuracy"][-1] == pytest.approx(small.at(budget=99.0).score(table, y), abs=0.02)
    told = command(capsys, folder, "report", *labelled, "-o", folder / "page.html")
    assert told["models"]["tree"]["share"] > 0.5
    assert "forest alone" in (folder / "page.html").read_text()
    assert (
        main(
            ["predict", str(folder / "system.thrifty"), str(folder / "rows.csv"), "-o", str(folder / "b.csv")]
        )
        == 0
    )
    assert "mean cost" in capsys.readouterr().out
    many = [str(folder / "system.thrifty"), str(folder / "row*.csv"), "-o", str(folder / "many")]
    assert main(["predict", *many]) == 2
    assert "asks models instead" in capsys.readouterr().err
    assert main(["export", str(folder / "system.thrifty"), "-o", str(folder / "c")]) == 2
    assert "asks models instead" in capsys.readouterr().err
