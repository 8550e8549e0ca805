"""Whatever serves, serves everywhere: things that serve x doors. Each pair works, or is refused in words."""

import asyncio
import itertools
import json
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import thrifty
from thrifty import (
    BudgetedClassifier,
    BudgetedRanker,
    BudgetedRegressor,
    CascadeClassifier,
    CascadeRegressor,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Frontier,
    ModelRouter,
    Prices,
    StageOptions,
    certify,
    evidence_of,
    hold_budget,
    point_of,
)
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.engine.evidence.collect import chain_of
from thrifty.engine.purchases.sources import RetryingSource
from thrifty.errors import FullModelOutsideWarning, InvalidInputError
from thrifty.learners.dynamod import BoostedOptions, LeafOptions, LinearOptions
from thrifty.learners.dynamod.sweep import sweep
from thrifty.reporting.measure import measure
from thrifty.reporting.page import page_of
from thrifty.serve.app import create_app
from thrifty.serve.config import Config
from thrifty.serve.gateway import Gateway

COSTS = {"radius": 1.0, "texture": 2.0, "area": 2.0, "shape": 3.0, "points": 1.5}
TRAIN, VAL, NEW = slice(0, 260), slice(260, 400), slice(400, 520)
PARTED = slice(520, None)
"""Rows of a fit in which rows part: a choice among purchases takes more rows to learn than a line."""


@cache
def rows_of(n_classes):
    """Tumours: benign or malignant; and, as a third class, benign ones that are large; without classes, a size.

    With one class they are documents: grades of size, and queries of ten. In words, the points are a category. Where
    rows are to part, the radius says which of two other columns tells the label.
    """
    if n_classes == "parted":
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(1_020, 5)).round(3), columns=list(COSTS))
        return table, np.where(
            np.where(table["radius"] > 0, table["texture"] + 0.8, table["area"] - 0.8) > 0, "high", "low"
        )
    X, y = load_breast_cancer(return_X_y=True)
    table = pd.DataFrame(np.round(X[:, [0, 1, 3, 6, 7]], 3), columns=list(COSTS))
    if n_classes == "models":  # which models are right: the cheap one about tumours of plain size
        right = np.random.default_rng(0).random((len(X), 3))
        return table, (
            right < np.column_stack([np.abs(X[:, 0] - 14) > 2, [0.7] * len(X), [0.95] * len(X)])
        ).astype(float)
    if n_classes == 0:
        return table, X[:, 23] / 100 + X[:, 21]  # of the worst cells
    if n_classes == 1:
        return table, np.column_stack([np.digitize(X[:, 23], [500, 800, 1200]), np.arange(len(X)) // 10])
    labels = np.where(y == 1, "benign", "malignant")
    if n_classes == "words":
        return table.assign(
            points=np.array(["few", "some", "many"])[np.digitize(X[:, 7], [0.03, 0.07])]
        ), labels
    return table, labels if n_classes == 2 else np.where((y == 1) & (X[:, 0] > 12.5), "large", labels)


@pytest.fixture
def rows(request):
    """The rows that the thing of the test was fitted on."""
    of_thing = request.getfixturevalue("thing")[0] if "thing" in request.fixturenames else ""
    return rows_of(n_classes_of(of_thing))


def n_classes_of(name):
    """Classes of the rows that a thing is fitted on."""
    special = {
        WORDS: "words",
        **dict.fromkeys(ROUTERS, "models"),
        **dict.fromkeys(TREES, "parted"),
        CASCADES[1]: 0,
    }
    if name in special:
        return special[name]
    return 3 if name in SEVERAL else 0 if name in NUMBERS else 1 if name in RANKINGS else 2


def paid_by(one, X):
    """Cost of each row; of several resources, their sum at the exchange rates of the fit."""
    costs = one.cost(X)
    return (
        costs.to_numpy() @ one.chain_.price_list.resources.rates if isinstance(costs, pd.DataFrame) else costs
    )


def said(one, X):
    """What a thing says about rows: probabilities, or numbers; of a router, costs."""
    if isinstance(one, ModelRouter):
        return one.cost(X)
    return one.predict_proba(X) if hasattr(one, "predict_proba") else one.predict(X)


def full():
    return LinearDiscriminantAnalysis()


def recipes():
    """Every public estimator, as small as it gets; f0 may be replaced by whatever stands behind."""
    priced = {"feature_costs": COSTS, "random_state": 0}
    small = {"stages": StageOptions(sizes=[(6, 2)]), "cv": 2, **priced}
    return {
        "BudgetedClassifier": lambda f0: BudgetedClassifier(f0, **small),
        "DynaModLinClassifier": lambda f0: DynaModLinClassifier(
            f0, gamma=0.02, options=LinearOptions(cross_fit=True), cv=2, **priced
        ),
        "DynaModGbrtClassifier": lambda f0: DynaModGbrtClassifier(
            f0, options=BoostedOptions(n_trees=4, max_iter=2, tol=1), **priced
        ),
        "DynaModLstsqClassifier": lambda f0: DynaModLstsqClassifier(
            f0, options=LeafOptions(max_bytes=400), **priced
        ),
        "ConfidenceRouter": lambda f0: ConfidenceRouter(f0, full(), features=["radius"], **priced),
    }


COMPOSED = (
    "a single gate before a single gate",
    "a single gate before a cascade",
    "a cascade before a single gate",
    "a loaded cascade",
    "a loaded single gate",
    "a cascade at a mixed point",
    "a single gate that parts ties",
    "a cascade that explores",
    "a cascade that prices mistakes",
)
EXPLORES, PRICED = COMPOSED[-2:]
MISTAKES = np.array([[0.0, 20.0], [90.0, 0.0]])
SEVERAL = {
    f"{name} of three classes": name
    for name in (
        "BudgetedClassifier",
        "DynaModGbrtClassifier",
        "DynaModLstsqClassifier",
        "ConfidenceRouter",
    )
}
NUMBERS = (
    "BudgetedRegressor",
    "a loaded regressor",
    "a regressor before a regressor",
    "DynaModGbrtRegressor",
    "a regressor of a quantile",
)
QUANTILE = {"loss": "pinball", "quantile": 0.7, "tolerance": 0.2}


RANKINGS = ("BudgetedRanker", "a loaded ranker", "a ranker before a ranker")


def ranker(f0):
    return BudgetedRanker(
        f0, stages=StageOptions(sizes=[(8, 3)]), cv=2, metric="ndcg@5", feature_costs=COSTS, random_state=0
    )


def regressor(f0, **loss):
    return BudgetedRegressor(
        f0, stages=StageOptions(sizes=[(8, 3)]), cv=2, feature_costs=COSTS, random_state=0, **loss
    )


WORDS, BY_ROW, FUNCTION, CHEAPER, RESOURCES, *TREES = OTHERS = (
    "a cascade over words",
    "a cascade of prices by row",
    "a cascade of prices by a function of the row",
    "a cascade with a discount",
    "a cascade of two resources",
    "a tree of purchases",
    "a tree of purchases before a single gate",
)


# A free column, whose numbers lie between 0 and 1/2, says what the points cost.
def choosing_by_row(estimator):
    """Let rows of a cascade buy in orders of their own."""
    return estimator.set_params(stages=replace(estimator.stages, structure="tree"))


ROW_PRICES = Prices({**COSTS, "points": 0.1, "shape": 0.0}, by_row={"points": "shape"})


def price_of_points(free):
    """What the points cost some rows, from their free columns."""
    return free["shape"]


TOLD = Prices(ROW_PRICES.costs, by_row={"points": price_of_points})
MINUTES = {"radius": 5.0, "texture": 1.0, "area": 0.0, "shape": 20.0, "points": 8.0}
TWO = Prices({name: {"dollars": COSTS[name], "minutes": MINUTES[name]} for name in COSTS})
DISCOUNT = Prices(COSTS, discounts={"one picture": (["texture", "area"], 1.5)})

CHAINS = (*recipes(), *COMPOSED, *SEVERAL, *NUMBERS, *RANKINGS, *OTHERS)
ROUTERS = ROUTER, PLANNER = "ModelRouter", "ModelRouter with prices of columns"
MODEL_PRICES = {"cheap": 1.0, "middle": 2.5, "dear": 6.0}
CASCADES = ("CascadeClassifier", "CascadeRegressor")
THINGS = (*CHAINS, *ROUTERS, *CASCADES)


def model_cascades():
    """The user's models, which read all columns and are asked one after another."""
    made = []
    for kind, cheap, dear in (
        (CascadeClassifier, DecisionTreeClassifier(max_depth=1), full()),
        (CascadeRegressor, DecisionTreeRegressor(max_depth=2), Ridge()),
    ):
        table, y = rows_of(2 if kind is CascadeClassifier else 0)
        estimators = [("cheap", cheap.set_params(random_state=0)), ("dear", dear)]
        prices = {name: MODEL_PRICES[name] for name, _ in estimators}
        cascade = kind(estimators, model_prices=prices, budget=3.0, cv=2, random_state=0)
        made.append(cascade.fit(table[TRAIN], y[TRAIN]))
    return dict(zip(CASCADES, made, strict=True))


def model_routers():
    """Routers on a table, which ask one model about each row; before that, one of them buys columns."""
    table, quality = rows_of("models")
    prices = Prices({"radius": 0.4, "texture": 0.2}, default=0.0)
    routers = ModelRouter(MODEL_PRICES, budget=3.0), ModelRouter(MODEL_PRICES, budget=3.0, prices=prices)
    return {
        name: router.fit(table[TRAIN], quality[TRAIN]) for name, router in zip(ROUTERS, routers, strict=True)
    }


def reads_words():
    """A full model that reads categories, and that no file can hold."""
    encoder = ColumnTransformer([("points", OneHotEncoder(), ["points"])], remainder="passthrough")
    return make_pipeline(encoder, GaussianNB())


def other_things():
    """A table with text, and prices of their own kinds."""
    cascade = recipes()["BudgetedClassifier"]
    table, y = rows_of("words")
    made = {WORDS: cascade(reads_words()).fit(table[TRAIN], y[TRAIN])}
    table, y = rows_of(2)
    for name, prices in ((BY_ROW, ROW_PRICES), (FUNCTION, TOLD), (CHEAPER, DISCOUNT), (RESOURCES, TWO)):
        made[name] = cascade(full()).set_params(feature_costs=None, prices=prices).fit(table[TRAIN], y[TRAIN])
    table, y = rows_of("parted")
    deep = DecisionTreeClassifier(max_depth=7, random_state=0)
    gate = recipes()["DynaModGbrtClassifier"](deep).fit(table[TRAIN], y[TRAIN])
    for name, behind in zip(TREES, (deep, FrozenEstimator(gate)), strict=True):
        made[name] = choosing_by_row(cascade(behind)).fit(table[PARTED], y[PARTED])
    return made


def billed(name, asked, table):
    """What rows pay that were asked for some columns."""
    prices = np.tile(
        list((ROW_PRICES.costs if name in (BY_ROW, FUNCTION) else COSTS).values()), (len(table), 1)
    )
    if name in (BY_ROW, FUNCTION):
        prices[:, 4] = table["shape"]
    saved = 1.5 * (asked[:, 1] & asked[:, 2]) if name == CHEAPER else 0.0
    return (asked * prices).sum(axis=1) - saved


pytestmark = pytest.mark.usefixtures("small_fits")


@pytest.fixture(scope="module")
def things(while_fits_are_small):
    with while_fits_are_small():
        return every_thing()


def every_thing():
    """Everything that serves, fitted, by name."""
    table, y = rows_of(3)
    several = {name: recipes()[kind](full()).fit(table[TRAIN], y[TRAIN]) for name, kind in SEVERAL.items()}
    table, y = rows_of(2)
    X, labels = table[TRAIN], y[TRAIN]
    made = {name: make(full()).fit(X, labels) for name, make in recipes().items()}
    cascade, gate = made["BudgetedClassifier"], made["DynaModGbrtClassifier"]
    again = recipes()
    made[COMPOSED[0]] = again["DynaModLinClassifier"](FrozenEstimator(gate)).fit(X, labels)
    made[COMPOSED[1]] = again["DynaModLinClassifier"](FrozenEstimator(cascade)).fit(X, labels)
    made[COMPOSED[2]] = again["BudgetedClassifier"](FrozenEstimator(gate)).fit(X, labels)
    made[COMPOSED[3]], made[COMPOSED[4]] = from_bytes(to_bytes(cascade)), from_bytes(to_bytes(gate))
    low, high = cascade.chain_.policy.cost[[0, -1]]
    made[COMPOSED[5]] = cascade.at(budget=float(0.4 * low + 0.6 * high))
    made[COMPOSED[6]] = hold_budget(gate, table[NEW].round(), 7.0)
    made[EXPLORES] = cascade.at(budget=3.5, explore=0.2)
    priced = again["BudgetedClassifier"](full()).set_params(loss=MISTAKES)
    made[PRICED] = priced.fit(X, labels)
    table, y = rows_of(0)
    alone = regressor(BayesianRidge()).fit(table[TRAIN], y[TRAIN])
    behind = regressor(FrozenEstimator(alone)).fit(table[VAL], y[VAL])
    priced = {"feature_costs": COSTS, "random_state": 0}
    rivals = [
        DynaModGbrtRegressor(BayesianRidge(), options=BoostedOptions(n_trees=8, max_iter=2, tol=1), **priced),
        regressor(BayesianRidge(), **QUANTILE),
    ]
    fitted = [one.fit(table[TRAIN], y[TRAIN]) for one in rivals]
    numbers = dict(zip(NUMBERS, (alone, from_bytes(to_bytes(alone)), behind, *fitted), strict=True))
    table, y = rows_of(1)
    alone = ranker(BayesianRidge()).fit(table[TRAIN], y[TRAIN, 0], qid=y[TRAIN, 1])
    behind = ranker(FrozenEstimator(alone)).fit(table[VAL], y[VAL])
    rankings = dict(zip(RANKINGS, (alone, from_bytes(to_bytes(alone)), behind), strict=True))
    return made | several | numbers | rankings | other_things() | model_routers() | model_cascades()


@pytest.fixture(params=THINGS)
def thing(request, things):
    return request.param, things[request.param]


only_chains = pytest.mark.parametrize("thing", CHAINS, indirect=True)
"""For doors that read columns one by one: a router reads all of them before it asks a model."""


REFUSED = {
    **{(name, "measures"): "errors of numbers need the targets" for name in NUMBERS},
    **{(name, "measures"): "scored by the measure of its queries" for name in RANKINGS},
    (BY_ROW, "report"): "differ by row",
    (FUNCTION, "report"): "differ by row",
    (FUNCTION, "gateway"): "come from a function",
    (FUNCTION, "file"): "files keep no functions",
    (FUNCTION, "providers"): "come from a function",
    (BY_ROW, "providers"): "differ by row",
    **{(name, "device"): "this one ranks" for name in RANKINGS},
    **{(name, "device"): f"the {name.split()[0]} asks models instead" for name in (*ROUTERS, *CASCADES)},
    **{(name, "device"): "chain in front of a chain" for name in THINGS if " before a " in name},
    ("DynaModLinClassifier", "device"): "has a LinearStage",
    **{(name, "device"): "has a ForeignStage" for name in THINGS if name.startswith("ConfidenceRouter")},
    (RESOURCES, "hold_budget"): "must name its resources",
    (EXPLORES, "device"): "explore",
    (EXPLORES, "behind"): "must not explore",
    (PRICED, "device"): "needs probabilities",
    (BY_ROW, "device"): "prices that differ by row",
    (FUNCTION, "device"): "prices that differ by row",
}
"""Pairs that make no sense, and a word of the refusal."""


def door(name, thing, act):
    """Walk through a door; a pair that is refused must be refused in words."""
    word = REFUSED.get((thing[0], name))
    if word is None:
        return act(thing[1])
    with pytest.raises(InvalidInputError, match=word):
        act(thing[1])
    return None


class Source:
    def __init__(self, table):
        self.values = table.to_numpy()
        self.asked = np.zeros(self.values.shape, dtype=bool)

    def __len__(self):
        return len(self.values)

    def fetch(self, rows, columns):
        cells = np.ix_(rows, columns)
        assert not self.asked[cells].any(), "a cell was asked for twice"
        self.asked[cells] = True
        return self.values[cells]


def assert_same_answers(found, expected):
    """Labels are the same, numbers to twelve digits: in another batch a full model's BLAS adds in another order."""
    expected = np.asarray(expected)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(np.asarray(found, dtype=float), expected, rtol=1e-12, atol=1e-15)
    else:
        assert list(found) == expected.tolist()


def test_it_predicts_labels_and_probabilities_that_agree(thing, rows):
    table, y = rows
    if thing[0] in (*NUMBERS, *RANKINGS, *ROUTERS, CASCADES[1]):
        assert thing[1].score(table[NEW], y[NEW]) > 0.5
        return
    predicted, probability = thing[1].predict(table[NEW]), thing[1].predict_proba(table[NEW])
    assert set(predicted) <= set(y)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    sure = np.ptp(np.sort(probability, axis=1)[:, -2:], axis=1) > 1e-9
    if thing[0] == PRICED:  # the class of least expected cost, which need not be the most probable one
        assert np.array_equal(predicted, thing[1].classes_[(probability @ MISTAKES).argmin(axis=1)])
    else:
        assert np.array_equal(predicted[sure], thing[1].classes_[probability.argmax(axis=1)][sure])
    assert np.mean(predicted == y[NEW]) > (0.5 if thing[0] in SEVERAL else 0.7)


def test_one_row_alone_is_answered_and_billed_as_the_first_of_a_batch(thing, rows):
    table, _ = rows
    for first in range(400, 404):
        one, batch = table[first : first + 1], table[first : first + 5]
        assert_same_answers(said(thing[1], one), said(thing[1], batch)[:1])
        # A router expects costs by a linear model, which adds through a BLAS.
        np.testing.assert_allclose(
            paid_by(thing[1], one), paid_by(thing[1], batch)[:1], rtol=1e-12 * (thing[0] in ROUTERS), atol=0.0
        )


def test_every_row_has_a_route_and_pays_for_the_distinct_purchases_on_it(thing, rows):
    table, _ = rows
    route, cost = thing[1].route(table[NEW]), paid_by(thing[1], table[NEW])
    assert route.shape == cost.shape == (120,)
    assert cost.min() >= 0.0
    assert cost.max() <= sum(COSTS.values()) + 1.0
    assert thing[1].chain_.has_forks if thing[0] in TREES else True


@pytest.mark.slow
def test_it_buys_what_it_bills_and_answers_as_from_a_table(thing, rows):
    table, _ = rows
    source = Source(table[NEW])
    if thing[0] in CASCADES:  # which asks its models itself
        assert not hasattr(thing[1], "buy")
        return
    if thing[0] in ROUTERS:
        bought = {name: lambda some, name=name: [f"{name} says"] * len(some) for name in MODEL_PRICES}
        receipt = thing[1].buy(bought, table[NEW])
        assert receipt.answer.tolist() == [f"{name} says" for name in thing[1].predict(table[NEW])]
        np.testing.assert_array_equal(receipt.route, thing[1].route(table[NEW]))
        np.testing.assert_allclose(receipt.cost, paid_by(thing[1], table[NEW]))
        assert receipt.names == tuple(thing[1].pool_)
        assert np.array_equal(receipt.bought[:, :3].argmax(axis=1), receipt.route)
        return
    receipt = door("buy", thing, lambda one: one.buy(source, row_key=table[NEW].index))
    if receipt is not None:
        assert_same_answers(receipt.answer, thing[1].predict(table[NEW]))
        assert np.array_equal(receipt.route, thing[1].route(table[NEW]))
        np.testing.assert_array_equal(receipt.bought, source.asked)
        np.testing.assert_allclose(receipt.cost, paid_by(thing[1], table[NEW]))
        assert not receipt.failed.any()
        chain = thing[1].chain_
        called = chain.price_list.full_cost * (receipt.route == chain.n_stages)
        if thing[0] == RESOURCES:
            minutes = (source.asked * list(MINUTES.values())).sum(axis=1)
            np.testing.assert_allclose(receipt.costs["minutes"], minutes)
            np.testing.assert_allclose(receipt.costs["dollars"], billed("", source.asked, table[NEW]))
            return
        np.testing.assert_allclose(receipt.cost, billed(thing[0], source.asked, table[NEW]) + called)


def walked(one, table, row):
    """A session that is given whatever it asks for."""
    if isinstance(one, ModelRouter):
        session = one.start(table.iloc[row])
        while session.next_purchase.columns:
            session.give({name: table[name].iloc[row] for name in session.next_purchase.columns})
        return session.give(session.next_purchase.name)
    if hasattr(one, "models_"):
        session = one.start(table.iloc[row], key=table.index[row])
        while session.next_purchase is not None:
            model = one.models_[session.next_purchase.name]
            session.give(model.outputs(table[row : row + 1], np.empty((1, 0)))[0])
        return session
    session = one.start(key=table.index[row])
    while session.next_purchase is not None:
        session.give({name: table[name].iloc[row] for name in session.next_purchase.columns})
    return session


@only_chains
def test_rows_in_partitions_and_alone_go_the_way_that_they_go_together(thing, rows):
    table, one = rows[0][NEW].sample(frac=1, random_state=0), thing[1]
    ends = [0, 1, 2, 4, 9, 20, 50, 110, len(table)]
    parts = [table.iloc[start:end] for start, end in itertools.pairwise(ends)]
    for ask in (one.route, one.cost):
        np.testing.assert_array_equal(np.concatenate([ask(part) for part in parts]), ask(table))
    assert_same_answers(np.concatenate([one.predict(part) for part in parts]), one.predict(table))
    ordered = rows[0][NEW]
    np.testing.assert_array_equal(one.route(table), pd.Series(one.route(ordered), ordered.index)[table.index])
    by_column = ordered.rename_axis("key").reset_index()
    np.testing.assert_array_equal(one.route(by_column, row_key="key"), one.route(ordered))
    np.testing.assert_array_equal(
        one.route(ordered.reset_index(drop=True), row_key=ordered.index), one.route(ordered)
    )


@pytest.mark.slow
def test_one_row_after_another_goes_the_way_that_it_goes_in_a_batch(thing, rows):
    table = rows[0][NEW][:6]
    sessions = door("start", thing, lambda one: [walked(one, table, row) for row in range(len(table))])
    if sessions is not None:
        if thing[0] in CASCADES:  # whose sessions are given probabilities
            assert [one.model for one in sessions] == thing[1].route(table).tolist()
        else:
            assert_same_answers([one.answer for one in sessions], thing[1].predict(table))
        if thing[0] not in (*ROUTERS, *CASCADES):
            assert [one.route for one in sessions] == thing[1].route(table).tolist()
        np.testing.assert_allclose([one.cost for one in sessions], paid_by(thing[1], table))


def test_it_explains_each_row_with_the_answer_and_the_cost_that_it_has(thing, rows):
    table, _ = rows
    some = table[NEW][:8]
    told = door("explain", thing, lambda one: one.explain(some))
    if told is not None:
        answered = thing[1].route(some) if thing[0] in CASCADES else thing[1].predict(some)
        assert_same_answers([one.answer for one in told], answered)
        np.testing.assert_allclose([one.cost for one in told], paid_by(thing[1], some))
        begins = (
            ("next: ask", "bought") if thing[0] in ROUTERS else "asked" if thing[0] in CASCADES else "stage 0"
        )
        assert all(str(one).startswith(begins) for one in told)


KINDS_DRAWN = set()


@only_chains
def test_it_draws_its_purchases_and_the_way_of_a_row_and_has_a_page_in_notebooks(thing, rows):
    table, _ = rows
    name, one = thing
    way = door("explain", thing, lambda it: it.plot_route(table[400:401], Figure().add_subplot()))
    if way is not None:
        paid = paid_by(one, table[400:401])[0]
        assert max(bar.get_x() + bar.get_width() for bar in way.patches) == pytest.approx(paid)
    chain = getattr(one, "chain_", None)
    kind = chain and (type(chain.task), bool(chain.behind or chain.has_forks))
    if name in (BY_ROW, FUNCTION, CHEAPER, RESOURCES) or kind in KINDS_DRAWN:
        return
    KINDS_DRAWN.add(kind)  # drawing takes half a second, and depends on nothing else
    drawn = one.plot_purchases(table[NEW], Figure().add_subplot())
    calls = 0.0
    if chain is not None:
        calls = chain.price_list.full_cost * np.mean(one.route(table[NEW]) == chain.n_stages)
        page = one._repr_mimebundle_()["text/html"]
        assert page.count("<img alt") == 1
        assert chain.task.quality_name in page
    names = [label.get_text() for label in drawn.get_yticklabels()]
    paid = sum(bar.get_width() * COSTS[name] for bar, name in zip(drawn.patches, names, strict=True))
    assert paid + calls == pytest.approx(paid_by(one, table[NEW]).mean())


def test_it_is_exported_for_a_device_or_refused_in_words(thing, tmp_path):
    for to in ("c", "onnx") if find_spec("onnx") else ("c",):
        exported = door("device", thing, lambda one, to=to: thrifty.export(one, tmp_path / to, to=to))
        assert (tmp_path / to).exists() == (exported is not None)


@pytest.mark.slow
def test_its_frontier_stands_on_evidence_and_can_be_scored_on_other_rows(thing, rows):
    table, y = rows
    every_point = thing[0] in (*ROUTERS, *CASCADES)
    chosen = Frontier.from_evidence([evidence_of(thing[1], table[VAL], y[VAL])], every_point=every_point)
    there = chosen.on([evidence_of(thing[1], table[NEW], y[NEW])])
    assert len(there) == len(chosen) >= 1
    assert len(thing[1].frontier_) >= 1


@only_chains
def test_its_frontier_tells_measures_with_bands_on_rows_of_the_fit_and_on_others(thing, rows):
    table, y = rows
    seen, task = evidence_of(thing[1], table[NEW], y[NEW]), thing[1].frontier_.task
    kept = door("measures", thing, lambda one: one.frontier_.measures(n_boot=50))
    if thing[0] in RANKINGS:
        return
    new = Frontier.from_evidence([seen], task=task).measures(n_boot=50)
    if thing[0] in NUMBERS:
        names = ["R2", "RMSE", "MAE"]
    else:
        names = [
            "accuracy",
            "balanced accuracy",
            *(f"recall of {label!r}" for label in np.unique(y).tolist()),
        ]
        assert kept[names].notna().all(axis=None)
        names += ["log-loss", "AUC"]
    for name in names:
        assert new[name].notna().all()
        assert np.all(new[f"{name}_low"] <= new[f"{name}_high"])


@pytest.mark.slow
def test_a_certificate_is_issued_on_rows_it_has_not_seen(thing, rows):
    table, y = rows
    limit = 0.6 if thing[0] in (*NUMBERS, *RANKINGS) else 0.3

    def act(one):
        proved = one.certified(table[NEW], y[NEW], max_loss=limit)
        if thing[0] in (*ROUTERS, *CASCADES):
            return proved, proved.certificate_
        candidates = Frontier.from_evidence([evidence_of(one, table[VAL], y[VAL])], against_full=True)
        return proved, certify(candidates.on([evidence_of(one, table[NEW], y[NEW])]), max_loss=limit)

    found = door("certificate", thing, act)
    if found is not None:
        assert found[0].certificate_.bound <= limit
        assert found[1].n_rows == (12 if thing[0] in RANKINGS else 120)  # queries, where there are some


def wide_budget(one):
    """A budget between the first stage for every row and the full model for every row."""
    costs = one.chain_.cost_by_place
    return float(costs[0] + 0.4 * (costs[-1] - costs[0]))


@only_chains
def test_a_batch_holds_a_budget(thing, rows):
    table, _ = rows
    batch = table[NEW]
    wide = wide_budget(thing[1])
    held = door("hold_budget", thing, lambda one: hold_budget(one, batch, wide))
    if held is not None:
        assert paid_by(held, batch).mean() <= wide * (1 + 1e-9)
        assert type(held) is type(thing[1])


def stays_outside(thing):
    """What happens when a thing is saved: a full model that has no form in a file is named."""
    return pytest.warns(FullModelOutsideWarning, match="a Pipeline") if thing[0] == WORDS else nullcontext()


def test_it_is_saved_and_answers_as_before(thing, rows):
    table, _ = rows
    with stays_outside(thing):
        data = to_bytes(thing[1])
    again = from_bytes(data, full=thing[1].chain_.full.estimator if thing[0] == WORDS else None)
    # A linear model of scikit-learn adds through a BLAS, and its arrays in a file column by column.
    np.testing.assert_allclose(said(again, table[NEW]), said(thing[1], table[NEW]), rtol=1e-11, atol=1e-13)
    if door("file", (thing[0], again), lambda one: paid_by(one, table[NEW])) is None:
        again = again.with_prices(TOLD.by_row)
    assert np.array_equal(paid_by(again, table[NEW]), paid_by(thing[1], table[NEW]))
    assert len(again.frontier_) == len(thing[1].frontier_)
    if thing[0] in ROUTERS:
        assert again.predict(table[NEW]).tolist() == thing[1].predict(table[NEW]).tolist()
        return
    ours, theirs = (one.frontier_.evidence[0].strata for one in (again, thing[1]))
    assert np.array_equal(ours, theirs) if theirs is not None else ours is None


def _shares_explain_the_costs(facts):
    for place, cost in enumerate(facts.cost.value):
        bought = zip(facts.purchases, facts.bought[place], strict=True)
        paid = sum(one.price * share for one, share in bought)
        assert paid == pytest.approx(cost)


def test_it_has_a_report(thing, rows):
    table, y = rows
    facts = door("report", thing, lambda one: measure(one, table[NEW], y[NEW], n_boot=50))
    if facts is None:
        return
    page = page_of(facts)
    constant = (
        "constant" if thing[0] in NUMBERS else "random order" if thing[0] in RANKINGS else "majority class"
    )
    if thing[0] in (*ROUTERS, *CASCADES):
        assert "best single model" in page
        assert ("cheap alone" in page) == (thing[0] in CASCADES)
        # Where two points are mixed, a report of a cascade draws rows by what they hold.
        slack = 0.1 if thing[0] in CASCADES else 1e-6
        assert facts.cost.value[facts.start] == pytest.approx(paid_by(thing[1], table[NEW]).mean(), rel=slack)
        return
    assert ("best constant" if thing[0] == PRICED else constant) in page
    assert "radius" in page
    if thing[0] != "a cascade with a discount":  # which is granted row by row
        _shares_explain_the_costs(facts)
    told = [one.name for one in facts.measures]
    if thing[0] in RANKINGS:
        return
    if thing[0] in NUMBERS:
        assert told == [*([] if facts.score.name == "R2" else ["R2"]), "RMSE", "MAE"]
        seen = evidence_of(thing[1], table[NEW], y[NEW])
        told_by = Frontier.from_evidence([seen], task=thing[1].chain_.task).measures(n_boot=50)[told[0]]
        assert told[0] != "R2" or np.isclose(facts.measures[0].value, told_by.iloc[-1]).any()
    else:
        assert "balanced accuracy" in told
        assert "log-loss" in told


@pytest.mark.slow
@only_chains
@pytest.mark.filterwarnings("ignore::thrifty.errors.FullModelNotWorthItWarning")
@pytest.mark.filterwarnings("ignore::thrifty.errors.OptimisticFullModelWarning")
def test_it_stands_behind_a_cheaper_stage_and_is_billed_for_what_each_row_spends_there(thing, rows):
    table, y = rows
    name, inner = thing
    prices = inner.chain_.price_list
    if name in (EXPLORES, RESOURCES):
        front = recipes()["DynaModLinClassifier" if name == RESOURCES else "BudgetedClassifier"](
            FrozenEstimator(inner)
        )
        if name == RESOURCES:  # rows cost differently there, in each resource
            most = {each: float(costs.mean()) for each, costs in inner.cost(table[VAL]).items()}
            front.set_params(feature_costs=None, prices=Prices.of(prices), gamma=None, budget=most)
            spent = front.fit(table[VAL], y[VAL]).cost(table[VAL]).mean()
            assert all(spent[each] <= limit * (1 + 1e-9) for each, limit in most.items())
            return
        assert door("behind", thing, lambda _: front.fit(table[VAL], y[VAL])) is None
        return
    if name in (*NUMBERS, *RANKINGS, WORDS):
        loss = QUANTILE if name == NUMBERS[-1] else {}
        front = (
            ranker(FrozenEstimator(inner)) if name in RANKINGS else regressor(FrozenEstimator(inner), **loss)
        )
        if name == WORDS:
            front = recipes()["BudgetedClassifier"](FrozenEstimator(inner))
        front.fit(table[VAL], y[VAL])
        assert np.all(paid_by(front, table[NEW]) <= sum(COSTS.values()) + 1e-9)
        return
    front = ConfidenceRouter(
        FrozenEstimator(inner),
        full(),
        features=["texture"],
        prices=Prices.of(prices),
        random_state=0,
    ).fit(table[VAL], y[VAL])
    sent = front.at(threshold=-np.inf)
    # Whoever stands in front says what mistakes cost; probabilities are those of the system behind.
    likely = inner.classes_[inner.predict_proba(table[NEW]).argmax(axis=1)]
    assert np.array_equal(sent.predict(table[NEW]), likely if name == PRICED else inner.predict(table[NEW]))
    own, theirs = prices.prices[prices.group_of[1]], paid_by(inner, table[NEW])
    spent = paid_by(sent, table[NEW])
    assert np.all(spent >= theirs - 1e-9), name
    assert np.all(spent <= theirs + own + 1e-9), name


METHODS = {
    "predict": lambda one, X, y: one.predict(X),
    "predict_proba": lambda one, X, y: said(one, X),
    "score": lambda one, X, y: one.score(X, y),
    "route": lambda one, X, y: one.route(X),
    "cost": lambda one, X, y: one.cost(X),
    "explain": lambda one, X, y: one.explain(X),
    "certificate": lambda one, X, y: one.certified(X, y, max_loss=0.3),
}
"""Methods of estimators that take a table: columns in another order are refused, as scikit-learn demands."""


@pytest.mark.slow
def test_a_method_refuses_columns_in_another_order_or_with_other_names(thing, rows):
    table, y = rows
    for wrong, says in (
        (
            table[list(COSTS)[::-1]],
            r"same order as they were in fit.*X\[(list\()?clf.feature_names_in_",
        ),
        (table.rename(columns={"area": "size"}), "unseen at fit time:\n- size\n.*now missing:\n- area"),
    ):
        for name, method in METHODS.items():
            refused = REFUSED.get((thing[0], name))
            with pytest.raises(InvalidInputError, match=f"(?s){says}|{refused}"):
                method(thing[1], wrong[NEW], y[NEW])


def points_of_page(one, X, y):
    facts = measure(one, X, y, n_boot=40)
    return facts.cost.value, facts.score.value, facts.bought


class NamedSource(Source):
    def __init__(self, table):
        super().__init__(table)
        self.columns = list(table.columns)


FUNCTIONS = {
    "evidence_of": lambda one, X, y: evidence_of(one, X, y).quality,
    "point_of": lambda one, X, y: point_of(one, X, y).cost,
    "hold_budget": lambda one, X, y: hold_budget(one, X, wide_budget(one)).chain_.policy.thresholds,
    "report": points_of_page,
    "chain": lambda one, X, y: chain_of(one).predict(X),
    "source": lambda one, X, y: one.buy(NamedSource(X), on_failure="raise").answer,
}
"""What takes a system and a table, and no rule of scikit-learn's speaks of: names tell which column is which."""


@pytest.mark.slow
@only_chains
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_reads_columns_by_name_and_refuses_other_names(thing, rows, function):
    table, y, act = rows[0][NEW], rows[1][NEW], FUNCTIONS[function]
    found = door(function, thing, lambda one: act(one, table, y))
    if found is not None:
        np.testing.assert_equal(act(thing[1], table[list(COSTS)[::-1]], y), found)
        with pytest.raises(InvalidInputError, match="columns of the fit.* lacks 'area'; it has, .*'size'"):
            act(thing[1], table.rename(columns={"area": "size"}), y)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*recipes(), NUMBERS[0], RANKINGS[0], TREES[0]])
def test_a_sweep_fits_it_behind_one_full_model(name):
    table, y = rows_of(n_classes_of(name))
    numbers = {NUMBERS[0]: regressor, RANKINGS[0]: ranker}
    kind = "BudgetedClassifier" if name == TREES[0] else SEVERAL.get(name, name)
    estimator = numbers[name](BayesianRidge()) if name in numbers else recipes()[kind](full())
    if name == TREES[0]:
        choosing_by_row(estimator)
    rows = PARTED if name == TREES[0] else TRAIN
    varied = next(
        {key: [value]}
        for key, value in estimator.get_params(deep=False).items()
        if key in ("gamma", "p_full", "stages", "C", "ridge")
    )
    found = sweep(estimator, varied, table[rows], y[rows], table[VAL], y[VAL])
    fitted = found.estimator(found.frontier[0])
    assert fitted.predict(table[NEW]).shape == (120,)
    assert name != TREES[0] or fitted.chain_.has_forks
    assert len(found.on(table[NEW], y[NEW])) == len(found.frontier)


def test_the_command_line_answers_from_its_file(thing, rows, tmp_path, capsys):
    table, _ = rows
    with stays_outside(thing):
        thrifty.save(thing[1], tmp_path / "system.thrifty")
    # The file has its columns in another order: they are known by their names.
    table[NEW][list(COSTS)[::-1]].to_csv(tmp_path / "new.csv", index_label="key")
    code = main(
        [
            "predict",
            str(tmp_path / "system.thrifty"),
            str(tmp_path / "new.csv"),
            "-o",
            str(tmp_path / "a.csv"),
            "--row-key",
            "key",
        ]
    )
    told = capsys.readouterr()
    if thing[0] in ROUTERS:
        assert code == 0, told.err
        answers = pd.read_csv(tmp_path / "a.csv")
        assert answers["model"].tolist() == thing[1].predict(table[NEW]).tolist()
        np.testing.assert_allclose(answers["cost"], paid_by(thing[1], table[NEW]))
        return
    sent = thing[0] == WORDS and (thing[1].route(table[NEW]) == thing[1].chain_.n_stages).any()
    if sent:  # to the full model, which is in no file
        assert code == 2
        assert "sent to the full model, a Pipeline, which the file does not hold" in told.err
        return
    if (thing[0], "file") in REFUSED:
        assert code == 2
        assert REFUSED[thing[0], "file"] in told.err
        return
    assert code == 0, told.err
    answers = pd.read_csv(tmp_path / "a.csv")
    assert_same_answers(answers["answer"], thing[1].predict(table[NEW]))
    np.testing.assert_allclose(answers["cost"], paid_by(thing[1], table[NEW]))


@pytest.mark.slow
@only_chains
def test_the_gateway_answers_and_bills_as_it_does_in_batches_and_row_by_row(thing, rows):
    one, new = thing[1], rows[0][NEW]

    async def ask(*tables):
        serving = Gateway(one, Config(row_key="key"))
        await serving.start()
        records = (table.rename_axis("key").reset_index().to_dict("records") for table in tables)
        read = (serving.model.rows.from_records(rows) for rows in records)
        found = await asyncio.gather(*(serving.model.answer(cells) for cells in read))
        await serving.close()
        return found

    tables = [new, *(new[place : place + 1] for place in range(4))]
    found = door("gateway", thing, lambda _: asyncio.run(ask(*tables)))
    if found is None:
        return
    for answered, table in zip(found, tables, strict=True):
        assert_same_answers(answered.answer, one.predict(table))
        np.testing.assert_array_equal(answered.cost, paid_by(one, table))
        np.testing.assert_array_equal(answered.route, one.route(table))
        assert not answered.degraded.any()


@pytest.mark.slow
@only_chains
def test_the_gateway_buys_for_rows_that_come_with_nothing_but_a_key(thing, rows):
    one, new = thing[1], rows[0][NEW]
    columns = {"columns": list(new.columns), "key": "row", "path": "unread.csv"}

    class Shop(RetryingSource):
        def ask(self, rows, names):
            return new[list(names)].to_numpy()[[self.keys[row] for row in rows]]

    async def ask(one):
        serving = Gateway(one, Config(providers={"shop": columns}, row_key="key"), sources={"shop": Shop(0)})
        await serving.start()
        records = [{"row": place, "key": key} for place, key in enumerate(new.index)]
        cells = serving.model.rows.from_records(records)
        answered = await serving.model.answer(cells)
        await serving.close()
        return answered

    answered = door("providers", thing, lambda one: asyncio.run(ask(one)))
    if answered is not None:
        assert_same_answers(answered.answer, one.predict(new))
        np.testing.assert_allclose(answered.cost, paid_by(one, new))
        np.testing.assert_array_equal(answered.route, one.route(new))
        assert not answered.degraded.any()


# -- a router of many models: other arguments, the same doors -----------------------------------------


MODELS = {"tiny": 0.001, "small": 0.002, "large": 0.02}


@pytest.fixture(scope="module")
def router_log():
    """A log of texts: whether each model was right, what it cost, and what it said."""
    rng = np.random.default_rng(0)
    right = rng.random((240, 3)) < [0.6, 0.65, 0.9]
    texts = [f"question {number}: {'prove' if row[0] else 'name'} it" for number, row in enumerate(right)]
    answers = np.where(right, "right", rng.choice(["a", "b", "c"], right.shape))
    return (
        texts,
        right.astype(float),
        np.array(list(MODELS.values())) * rng.uniform(0.9, 1.1, right.shape),
        answers,
    )


@pytest.fixture(scope="module")
def router(router_log, while_fits_are_small):
    with while_fits_are_small():
        return ModelRouter(MODELS, budget=0.006).fit(*(part[:160] for part in router_log))


def last_json(capsys):
    """What the last command has printed as JSON."""
    return json.loads("{" + capsys.readouterr().out.rpartition("\n{")[2])


def test_a_router_goes_through_the_doors_of_everything_that_serves(router, router_log, tmp_path, capsys):
    new = [part[160:] for part in router_log]
    texts, quality, cost, answers = new
    found = router.replay(*new)
    first = router.predict(texts).tolist()
    assert [asked[0] for asked in found.asked] == first
    explained = router.explain(*new)
    for place, text in enumerate(map(str, explained)):
        assert f"answered by {found.model[place]} for {found.cost[place]:.3g}" in text
        assert text.endswith(f"its quality was {found.quality[place]:.3g}")
    assert str(router.explain(texts)[0]) == f"next: ask {first[0]}"
    assert from_bytes(to_bytes(router)).replay(*new).model.tolist() == found.model.tolist()
    assert router.certified(*new, max_loss=0.6).certificate_.bound <= 0.6
    assert len(router.at(budget=0.003).frontier_.cost) == len(router.frontier_.cost)
    app = create_app(router, Config(models={name: {"url": "http://127.0.0.1:9/v1"} for name in MODELS}))
    assert "/v1/chat/completions" in [route.path for route in app.routes]
    # The report, from Python and from the command line.
    page = thrifty.report(
        router,
        texts,
        quality,
        tmp_path / "a.html",
        cost=cost,
        answers=answers,
        by={"half": np.arange(80) < 40},
    )
    facts = measure(router, texts, quality, cost=cost, answers=answers, n_boot=50)
    assert facts.cost.value[facts.start] == pytest.approx(found.cost.mean())
    assert facts.score.value[facts.start] == pytest.approx(found.quality.mean())
    assert (facts.score.full, facts.cost.full) == pytest.approx((quality[:, 2].mean(), cost[:, 2].mean()))
    for paid, value in zip(facts.spent, facts.cost.value, strict=True):
        assert sum(paid) == pytest.approx(value)
    assert all(
        word in page.read_text()
        for word in ("best single model", "mixes of single models", "Some rows", "By half")
    )
    thrifty.save(router, tmp_path / "router.thrifty")
    log = pd.DataFrame(
        {
            "text": np.repeat(texts, 3),
            "model": list(MODELS) * 80,
            **{
                name: part.reshape(-1)
                for name, part in zip(("quality", "cost", "answer"), new[1:], strict=True)
            },
        }
    )
    log.to_csv(tmp_path / "log.csv", index=False)
    files = [str(tmp_path / "router.thrifty"), str(tmp_path / "log.csv")]
    assert main(["predict", *files, "-o", str(tmp_path / "asked.csv")]) == 0
    assert pd.read_csv(tmp_path / "asked.csv")["model"].tolist() == found.model.tolist()
    assert main(["explain", *files, "--row", "2", "--json"]) == 0
    assert str(explained[1]).splitlines() == last_json(capsys)["rows"][0]["steps"]
    assert main(["frontier", files[0]]) == 0
    assert main(["report", *files, "-o", str(tmp_path / "b.html"), "--json"]) == 0
    told = last_json(capsys)
    assert told["measures"]["quality"]["value"] == pytest.approx(found.quality.mean())
    assert told["models"]["large"]["share"] == pytest.approx((found.asked == "large").any(axis=1).mean())


@pytest.mark.parametrize(
    "act",
    [
        lambda one, X, y: evidence_of(one, X.tolist(), y),
        lambda one, X, y: hold_budget(one, X, 0.01),
        lambda one, X, y: thrifty.export(one, "never"),
        lambda one, X, y: sweep(one, {"budget": [1.0]}, X, y, X, y),
        lambda one, X, y: Gateway(one, Config()),
        lambda one, X, y: thrifty.audit(one, X, feature_costs={}),
        lambda one, X, y: thrifty.report(one, X, y, "never.html"),
    ],
    ids=[
        "evidence",
        "batch",
        "device",
        "sweep",
        "rows over HTTP",
        "audit",
        "report without answers",
    ],
)
def test_doors_that_make_no_sense_for_a_router_are_refused_in_words(router, router_log, act):
    with pytest.raises(InvalidInputError, match="ModelRouter|router|fitted"):
        act(router, np.array(router_log[0][160:]), router_log[1][160:])
