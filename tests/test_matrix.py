"""Whatever serves, serves everywhere: things that serve x doors. Each pair works, or is refused in words."""

import asyncio
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge
from sklearn.naive_bayes import GaussianNB

import thrifty
from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    BudgetPruneClassifier,
    ConfidenceRouter,
    DynaModGbrtClassifier,
    DynaModGbrtRegressor,
    DynaModLinClassifier,
    DynaModLstsqClassifier,
    Frontier,
    GreedyL1Classifier,
    GreedyLeafClassifier,
    GreedyMiserClassifier,
    GreedyMiserRegressor,
    InvalidInputError,
    UniformRouter,
    UniformRouterRegressor,
    certify,
    collect_facts,
    evidence_of,
    hold_budget,
    point_of,
)
from thrifty.bundle import from_bytes, to_bytes
from thrifty.cli import main
from thrifty.evidence.observe import chain_of
from thrifty.report.page import page_of
from thrifty.serve.config import Config
from thrifty.serve.reload import Serving
from thrifty.sweeping.run import sweep

COSTS = {"radius": 1.0, "texture": 2.0, "area": 2.0, "shape": 3.0, "points": 1.5}
TRAIN, VAL, NEW = slice(0, 260), slice(260, 400), slice(400, 520)


@cache
def rows_of(n_classes):
    """Tumours: benign or malignant; and, as a third class, benign ones that are large; without classes, a size."""
    X, y = load_breast_cancer(return_X_y=True)
    table = pd.DataFrame(np.round(X[:, [0, 1, 3, 6, 7]], 3), columns=list(COSTS))
    if n_classes == 0:
        return table, X[:, 23] / 100 + X[:, 21]  # of the worst cells
    labels = np.where(y == 1, "benign", "malignant")
    return table, labels if n_classes == 2 else np.where((y == 1) & (X[:, 0] > 12.5), "large", labels)


@pytest.fixture
def rows(request):
    """The rows that the thing of the test was fitted on."""
    of_thing = request.getfixturevalue("thing")[0] if "thing" in request.fixturenames else ""
    return rows_of(n_classes_of(of_thing))


def n_classes_of(name):
    """Classes of the rows that a thing is fitted on."""
    return 3 if name in SEVERAL else 0 if name in NUMBERS else 2


def said(one, X):
    """What a thing says about rows: probabilities, or numbers."""
    return one.predict_proba(X) if hasattr(one, "predict_proba") else one.predict(X)


def full():
    return GaussianNB()


def recipes():
    """Every public estimator, as small as it gets; f0 may be replaced by whatever stands behind."""
    priced = {"feature_costs": COSTS, "random_state": 0}
    small = {"sizes": [(6, 2)], "cv": 2, **priced}
    return {
        "BudgetedClassifier": lambda f0: BudgetedClassifier(f0, **small),
        "DynaModLinClassifier": lambda f0: DynaModLinClassifier(f0, gamma=0.02, **priced),
        "DynaModGbrtClassifier": lambda f0: DynaModGbrtClassifier(f0, n_trees=4, max_iter=2, tol=1, **priced),
        "DynaModLstsqClassifier": lambda f0: DynaModLstsqClassifier(f0, n_trees=3, max_leaves=4, **priced),
        "ConfidenceRouter": lambda f0: ConfidenceRouter(f0, full(), features=["radius"], **priced),
        "UniformRouter": lambda f0: UniformRouter(f0, full(), features=["radius"], **priced),
        "GreedyL1Classifier": lambda f0: GreedyL1Classifier(f0, n_features=2, **priced),
        "GreedyLeafClassifier": lambda f0: GreedyLeafClassifier(f0, **{**priced, "full_cost": 0.0}),
        "GreedyMiserClassifier": lambda f0: GreedyMiserClassifier(n_trees=4, **priced),
        "BudgetPruneClassifier": lambda f0: BudgetPruneClassifier(n_trees=4, max_depth=3, **priced),
    }


COMPOSED = (
    "a single gate before a single gate",
    "a single gate before a cascade",
    "a cascade before a single gate",
    "a loaded cascade",
    "a loaded single gate",
    "a cascade at a mixed point",
    "a single gate that parts ties",
    "a cascade that prices mistakes",
)
PRICED, MISTAKES = COMPOSED[-1], np.array([[0.0, 20.0], [90.0, 0.0]])
SEVERAL = {
    f"{name} of three classes": name
    for name in (
        "BudgetedClassifier",
        "DynaModGbrtClassifier",
        "DynaModLstsqClassifier",
        "ConfidenceRouter",
        "UniformRouter",
        "GreedyL1Classifier",
        "GreedyLeafClassifier",
        "GreedyMiserClassifier",
    )
}
NUMBERS = (
    "BudgetedRegressor",
    "a loaded regressor",
    "a regressor before a regressor",
    "DynaModGbrtRegressor",
    "GreedyMiserRegressor",
    "UniformRouterRegressor",
    "a regressor of a quantile",
)
QUANTILE = {"loss": "pinball", "quantile": 0.7, "tolerance": 0.2}


def regressor(f0, **loss):
    return BudgetedRegressor(f0, sizes=[(8, 3)], cv=2, feature_costs=COSTS, random_state=0, **loss)


THINGS = (*recipes(), *COMPOSED, *SEVERAL, *NUMBERS)


@pytest.fixture(scope="module")
def things():
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
    priced = again["BudgetedClassifier"](full()).set_params(loss=MISTAKES)
    made[PRICED] = priced.fit(X, labels)
    table, y = rows_of(0)
    alone = regressor(BayesianRidge()).fit(table[TRAIN], y[TRAIN])
    behind = regressor(FrozenEstimator(alone)).fit(table[VAL], y[VAL])
    priced = {"feature_costs": COSTS, "random_state": 0}
    rivals = [
        DynaModGbrtRegressor(BayesianRidge(), n_trees=8, max_iter=2, tol=1, **priced),
        GreedyMiserRegressor(n_trees=20, **priced),
        UniformRouterRegressor(BayesianRidge(), BayesianRidge(), features=["radius"], **priced),
        regressor(BayesianRidge(), **QUANTILE),
    ]
    fitted = [one.fit(table[TRAIN], y[TRAIN]) for one in rivals]
    numbers = dict(zip(NUMBERS, (alone, from_bytes(to_bytes(alone)), behind, *fitted), strict=True))
    return made | several | numbers


@pytest.fixture(params=THINGS)
def thing(request, things):
    return request.param, things[request.param]


REFUSED = {
    ("BudgetPruneClassifier", "source"): "node by node",
    ("BudgetPruneClassifier", "explain"): "trees",
    ("BudgetPruneClassifier", "certificate"): "full model",
    ("BudgetPruneClassifier", "hold_budget"): "stage",
    ("BudgetPruneClassifier", "point_of"): "needs a chain",
    ("BudgetPruneClassifier", "chain"): "needs a chain",
    ("GreedyMiserClassifier", "certificate"): "full model",
    ("GreedyMiserClassifier of three classes", "certificate"): "full model",
    ("GreedyMiserRegressor", "certificate"): "full model",
    (PRICED, "report"): "counts right answers",
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


def test_it_predicts_labels_and_probabilities_that_agree(thing, rows):
    table, y = rows
    if thing[0] in NUMBERS:
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
    for first in range(400, 412):
        one, batch = table[first : first + 1], table[first : first + 5]
        np.testing.assert_array_equal(said(thing[1], one), said(thing[1], batch)[:1])
        np.testing.assert_array_equal(thing[1].cost(one), thing[1].cost(batch)[:1])


def test_every_row_has_a_route_and_pays_for_the_distinct_purchases_on_it(thing, rows):
    table, _ = rows
    route, cost = thing[1].route(table[NEW]), thing[1].cost(table[NEW])
    assert route.shape == cost.shape == (120,)
    assert cost.min() >= 0.0
    assert cost.max() <= sum(COSTS.values()) + 1.0


def test_a_source_is_asked_for_what_is_billed_and_answers_as_the_table_does(thing, rows):
    table, _ = rows
    source = Source(table[NEW])
    labels = door("source", thing, lambda one: one.predict_from(source))
    if labels is not None:
        assert np.array_equal(labels, thing[1].predict(table[NEW]))
        chain = thing[1].chain_
        paid = source.asked @ np.array(list(COSTS.values()))
        called = chain.price_list.full_cost * (thing[1].route(table[NEW]) == chain.n_stages)
        billed = thing[1].cost(table[NEW])
        free = (
            thing[0].split(" of ")[0] in ("DynaModLstsqClassifier", "GreedyLeafClassifier")
            and chain.price_list.prices.sum() == 0
        )
        if not free:
            np.testing.assert_allclose(paid + called, billed)


def test_it_explains_each_row_with_the_answer_and_the_cost_that_it_has(thing, rows):
    table, _ = rows
    some = table[NEW][:8]
    told = door("explain", thing, lambda one: one.explain(some))
    if told is not None:
        assert [one.answer for one in told] == thing[1].predict(some).tolist()
        np.testing.assert_allclose([one.cost for one in told], thing[1].cost(some))
        assert all(str(one).startswith("stage 0") for one in told)


def test_its_frontier_stands_on_evidence_and_can_be_scored_on_other_rows(thing, rows):
    table, y = rows
    chosen = Frontier.from_evidence([evidence_of(thing[1], table[VAL], y[VAL])])
    there = chosen.on([evidence_of(thing[1], table[NEW], y[NEW])])
    assert len(there) == len(chosen) >= 1
    assert len(thing[1].frontier_) >= 1


def test_a_certificate_is_issued_on_rows_it_has_not_seen(thing, rows):
    table, y = rows
    limit = 0.6 if thing[0] in NUMBERS else 0.3

    def act(one):
        proved = one.certified(table[NEW], y[NEW], max_loss=limit)
        candidates = Frontier.from_evidence([evidence_of(one, table[VAL], y[VAL])], against_full=True)
        return proved, certify(candidates.on([evidence_of(one, table[NEW], y[NEW])]), max_loss=limit)

    found = door("certificate", thing, act)
    if found is not None:
        assert found[0].certificate_.bound <= limit
        assert found[1].n_rows == 120


def wide_budget(one):
    """A budget between the first stage for every row and the full model for every row."""
    costs = one.chain_.cost_by_route if hasattr(one, "chain_") else np.array([1.0])
    return float(costs[0] + 0.4 * (costs[-1] - costs[0]))


def test_a_batch_holds_a_budget(thing, rows):
    table, _ = rows
    batch = table[NEW]
    wide = wide_budget(thing[1])
    held = door("hold_budget", thing, lambda one: hold_budget(one, batch, wide))
    if held is not None:
        assert held.cost(batch).mean() <= wide * (1 + 1e-9)
        assert type(held) is type(thing[1])


def test_it_is_saved_and_answers_as_before(thing, rows):
    table, _ = rows
    again = from_bytes(to_bytes(thing[1]))
    assert np.array_equal(said(again, table[NEW]), said(thing[1], table[NEW]))
    assert np.array_equal(again.cost(table[NEW]), thing[1].cost(table[NEW]))
    assert len(again.frontier_) == len(thing[1].frontier_)


def test_it_has_a_report(thing, rows):
    table, y = rows
    chosen = Frontier.from_evidence([evidence_of(thing[1], table[VAL], y[VAL])])

    def act(one):
        there = chosen.on([evidence_of(one, table[NEW], y[NEW])])
        return collect_facts(there, y[NEW], chosen=chosen, estimators=[one], X=table[NEW], n_boot=50)

    facts = door("report", thing, act)
    if facts is None:
        return
    page = page_of(facts)
    assert ("constant" if thing[0] in NUMBERS else "majority class") in page
    assert "radius" in page


@pytest.mark.filterwarnings("ignore::thrifty.FullModelNotWorthItWarning")
def test_it_stands_behind_a_cheaper_stage_and_is_billed_for_what_each_row_spends_there(thing, rows):
    table, y = rows
    name, inner = thing
    prices = (inner.chain_ if hasattr(inner, "chain_") else inner.forest_).price_list
    if name in NUMBERS:
        front = regressor(FrozenEstimator(inner), **(QUANTILE if name == NUMBERS[-1] else {}))
        front.fit(table[VAL], y[VAL])
        assert np.all(front.cost(table[NEW]) <= sum(COSTS.values()) + 1e-9)
        return
    front = ConfidenceRouter(
        FrozenEstimator(inner),
        full(),
        features=["texture"],
        feature_costs=prices.prices[prices.group_of],
        full_cost=prices.full_cost,
        random_state=0,
    ).fit(table[VAL], y[VAL])
    sent = front.at(threshold=-np.inf)
    # Whoever stands in front says what mistakes cost; probabilities are those of the system behind.
    likely = inner.classes_[inner.predict_proba(table[NEW]).argmax(axis=1)]
    assert np.array_equal(sent.predict(table[NEW]), likely if name == PRICED else inner.predict(table[NEW]))
    own, theirs = prices.prices[prices.group_of[1]], inner.cost(table[NEW])
    spent = sent.cost(table[NEW])
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


@pytest.mark.parametrize("method", METHODS)
def test_a_method_refuses_columns_in_another_order_or_with_other_names(thing, rows, method):
    table, y = rows
    refused = REFUSED.get((thing[0], method))
    for wrong, says in (
        (
            table[list(COSTS)[::-1]],
            r"same order as they were in fit.*X\[list\(estimator.feature_names_in_\)\]",
        ),
        (table.rename(columns={"area": "size"}), "unseen at fit time:\n- size\n.*now missing:\n- area"),
    ):
        with pytest.raises(InvalidInputError, match=f"(?s){says}|{refused}"):
            METHODS[method](thing[1], wrong[NEW], y[NEW])


def facts_of(one, X, y):
    chosen = Frontier.from_evidence([evidence_of(one, X, y)])
    facts = collect_facts(chosen, y, estimators=[one], X=X, n_boot=40, max_points=3)
    return facts.points.cost, facts.points.accuracy, facts.points.bought


class NamedSource(Source):
    def __init__(self, table):
        super().__init__(table)
        self.columns = list(table.columns)


FUNCTIONS = {
    "evidence_of": lambda one, X, y: evidence_of(one, X, y).quality,
    "point_of": lambda one, X, y: point_of(one, X, y).cost,
    "frontier": lambda one, X, y: Frontier.from_evidence([evidence_of(one, X, y)]).score,
    "hold_budget": lambda one, X, y: hold_budget(one, X, wide_budget(one)).chain_.policy.thresholds,
    "report": facts_of,
    "chain": lambda one, X, y: chain_of(one).predict(X),
    "source": lambda one, X, y: one.predict_from(NamedSource(X)),
}
"""What takes a system and a table, and no rule of scikit-learn's speaks of: names tell which column is which."""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_reads_columns_by_name_and_refuses_other_names(thing, rows, function):
    table, y, act = rows[0][NEW], rows[1][NEW], FUNCTIONS[function]
    found = door(function, thing, lambda one: act(one, table, y))
    if found is not None:
        np.testing.assert_equal(act(thing[1], table[list(COSTS)[::-1]], y), found)
        with pytest.raises(InvalidInputError, match="columns of the fit.* lacks 'area'; it has, .*'size'"):
            act(thing[1], table.rename(columns={"area": "size"}), y)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*recipes(), *SEVERAL, NUMBERS[0]])
def test_a_sweep_fits_it_behind_one_full_model(name):
    table, y = rows_of(n_classes_of(name))
    estimator = regressor(BayesianRidge()) if name in NUMBERS else recipes()[SEVERAL.get(name, name)](full())
    varied = next(
        {key: [value]}
        for key, value in estimator.get_params(deep=False).items()
        if key in ("gamma", "p_full", "sizes", "C", "ridge")
    )
    found = sweep(estimator, varied, table[TRAIN], y[TRAIN], table[VAL], y[VAL])
    fitted = found.estimator(found.frontier[0])
    assert fitted.predict(table[NEW]).shape == (120,)
    assert len(found.on(table[NEW], y[NEW])) == len(found.frontier)


def test_the_command_line_answers_from_its_file(thing, rows, tmp_path, capsys):
    table, _ = rows
    thrifty.save(thing[1], tmp_path / "system.thrifty")
    # The file has its columns in another order: they are known by their names.
    table[NEW][list(COSTS)[::-1]].to_csv(tmp_path / "new.csv", index=False)
    code = main(
        [
            "predict",
            str(tmp_path / "system.thrifty"),
            str(tmp_path / "new.csv"),
            "-o",
            str(tmp_path / "a.csv"),
        ]
    )
    told = capsys.readouterr()
    assert code == 0, told.err
    answers = pd.read_csv(tmp_path / "a.csv")
    assert answers["answer"].tolist() == thing[1].predict(table[NEW]).tolist()
    np.testing.assert_allclose(answers["cost"], thing[1].cost(table[NEW]))


def test_the_gateway_answers_and_bills_as_it_does_in_batches_and_row_by_row(thing, rows):
    one, new = thing[1], rows[0][NEW]

    async def ask(*tables):
        serving = Serving(one, Config())
        await serving.start()
        read = (serving.model.rows.from_records(table.to_dict("records")) for table in tables)
        found = await asyncio.gather(*(serving.model.answer(cells) for cells in read))
        await serving.close()
        return found

    tables = [new, *(new[place : place + 1] for place in range(10))]
    for answered, table in zip(asyncio.run(ask(*tables)), tables, strict=True):
        assert list(answered.answer) == one.predict(table).tolist()
        np.testing.assert_array_equal(answered.cost, one.cost(table))
        np.testing.assert_array_equal(answered.route, one.route(table))
        assert not answered.degraded.any()
