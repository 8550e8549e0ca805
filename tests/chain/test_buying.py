"""Features as they are bought: sources in every form, purchases that fail, and one row at a time."""

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import scale

from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    ConfidenceRouter,
    Delivery,
    DynaModLinClassifier,
    Policy,
    Prices,
    StageOptions,
)
from thrifty.engine.full.model import CallableFull
from thrifty.engine.walk.chain import explain_rows
from thrifty.engine.walk.stage import CascadeStage
from thrifty.errors import (
    FullModelFailedError,
    FullModelFailedWarning,
    InvalidInputError,
    PurchaseFailedError,
    ThriftyError,
)

DATA = {"cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}
COLUMNS = {"cancer": [0, 1, 3, 6, 7], "wine": [0, 1, 6, 9, 11], "diabetes": [0, 2, 3, 4, 8]}
NAMES = ["age", "income", "debt", "score", "years"]
COSTS = {"age": 0.1, "income": 0.7, "debt": 0.7, "score": 2.3, "years": 1.1}
GROUPS = {"income": "bank", "debt": "bank"}


def rows_of(name):
    X, y = DATA[name](return_X_y=True)
    return pd.DataFrame(scale(X[:, COLUMNS[name]]), columns=NAMES), y


@pytest.fixture(scope="module")
def fitted():
    """A cascade for each data set, at a mix of two points that stop some rows at every stage."""
    found = {}
    for name in DATA:
        X, y = rows_of(name)
        prices = Prices(COSTS, groups=GROUPS, full=0.5)
        small = {"stages": StageOptions(sizes=[(6, 2)]), "cv": 2, "prices": prices, "random_state": 0}
        one = (
            BudgetedRegressor(Ridge(), **small)
            if name == "diabetes"
            else BudgetedClassifier(GaussianNB(), **small)
        )
        one.fit(X[::2], y[::2])
        gate = one.chain_.visit_all(one.chain_.reader(X)).gate
        points = np.quantile(gate, [0.2, 0.3], axis=0) - 1e-9
        one.chain_ = one.chain_.at(Policy.of(*points, share=0.5, seed=1))
        found[name] = one
    return found


@pytest.fixture(scope="module")
def linear():
    """A gate and a model that read no missing values, before a full model that reads none either."""
    X, y = rows_of("cancer")
    one = DynaModLinClassifier(GaussianNB(), gamma=0.01, prices=Prices(COSTS, full=0.5), random_state=0)
    return one.fit(X[::2], y[::2]).at(threshold=-1.0)


class Shop:
    """Sells one purchase at a time, keeps its own ledger, and fails for some rows."""

    def __init__(self, table, failing=0.0, n_rows=None, seed=0, mark=None):
        self.table, self.n_rows = table, n_rows or len(table)
        self.failing, self.mark, self.chance = failing, mark, np.random.default_rng(seed)
        self.asked = np.zeros((self.n_rows, len(NAMES)), dtype=bool)
        self.ledger = np.zeros(self.n_rows)

    def __len__(self):
        return self.n_rows

    def fetch(self, rows, group):
        columns = [NAMES.index(name) for name in group]
        cells = np.ix_(rows, columns)
        assert not self.asked[cells].any(), "a cell was asked for twice"
        self.asked[cells] = True
        failed = self.chance.random(len(rows)) < self.failing
        self.ledger[rows[~failed]] += COSTS[group[0]]
        values = self.table[list(group)].to_numpy()[rows % len(self.table)]
        return Delivery(values, {int(row): "no stock" for row in rows[failed]})


# -- purchases that fail -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("on_failure", ["answer", "skip"])
def test_a_failed_purchase_is_the_problem_of_its_row_alone(fitted, name, on_failure):
    X, _ = rows_of(name)
    clf, shop = fitted[name], Shop(X, 0.05, n_rows=2000)
    receipt = clf.buy(shop, on_failure=on_failure)
    went_wrong = receipt.failed.any(axis=1)
    called = clf.chain_.price_list.full_cost * (receipt.route == clf.chain_.n_stages)
    np.testing.assert_allclose(receipt.cost, shop.ledger + called)
    assert 0.03 < went_wrong.mean() < 0.4
    np.testing.assert_array_equal(went_wrong, [one == "no stock" for one in receipt.reason])
    np.testing.assert_array_equal(receipt.bought ^ receipt.failed, shop.asked)
    # The others are answered as if nothing had happened.
    everyone = clf.buy(Shop(X, n_rows=2000))
    found, expected = receipt.answer[~went_wrong], everyone.answer[~went_wrong]
    if name == "diabetes":  # a ridge, asked for other rows together
        found, expected = found.astype(float), expected.astype(float)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    else:
        assert np.array_equal(found, expected)
    np.testing.assert_array_equal(receipt.route[~went_wrong], everyone.route[~went_wrong])
    if on_failure == "answer":
        np.testing.assert_array_equal(receipt.is_answered, receipt.bought.any(axis=1))
        assert (receipt.route[went_wrong] < clf.chain_.n_stages).all()
    else:
        assert receipt.is_answered.all()
        assert receipt.route[went_wrong].max() >= clf.chain_.n_stages - 1


def test_where_nothing_may_fail_the_error_carries_what_was_bought(fitted):
    X, _ = rows_of("cancer")
    shop = Shop(X, 0.002, seed=3)
    with pytest.raises(PurchaseFailedError, match="row .* failed.*no stock.*on_failure='answer'") as caught:
        fitted["cancer"].buy(shop, on_failure="raise")
    receipt = caught.value.receipt
    called = fitted["cancer"].chain_.price_list.full_cost * (
        receipt.route == fitted["cancer"].chain_.n_stages
    )
    np.testing.assert_allclose(receipt.cost, shop.ledger + called)
    assert len(receipt) == len(X)
    assert receipt.is_answered.sum() > 100
    # What was not asked for after the failure is not a purchase that failed.
    np.testing.assert_array_equal(receipt.bought | receipt.failed, shop.asked)
    assert "nothing more was asked for" in "".join(filter(None, receipt.reason))
    assert isinstance(caught.value, ThriftyError)


@pytest.mark.slow
def test_an_interrupt_inside_a_stage_carries_the_receipt_of_every_delivered_cell(fitted):
    table = rows_of("cancer")[0]

    class Interrupted(Shop):
        n_questions = 0

        def fetch(self, rows, group):
            self.n_questions += 1
            if self.n_questions == 4:
                raise KeyboardInterrupt
            return super().fetch(rows, group)

    shop = Interrupted(table)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        fitted["cancer"].buy(shop, batch_size=50)
    receipt = interrupt.value.receipt
    assert shop.n_questions == 4
    assert (
        receipt.bought.any(axis=1).sum() == 150
    )  # three parts of the first stage, of the twelve that it has
    np.testing.assert_array_equal(receipt.bought, shop.asked)
    np.testing.assert_allclose(receipt.cost, shop.ledger)


@pytest.mark.slow
def test_a_source_that_raises_has_failed_for_the_rows_of_its_question(fitted):
    X, _ = rows_of("cancer")
    values = X.to_numpy()

    def fetch(rows, columns):
        if 17 in rows:
            raise ConnectionError("row 17 is cursed")
        return values[np.ix_(rows, [NAMES.index(name) for name in columns])]

    together = fitted["cancer"].buy(fetch, n_rows=50)
    assert not together.is_answered.any()
    apart = fitted["cancer"].buy(fetch, n_rows=50, batch_size=1)
    assert np.flatnonzero(~apart.is_answered).tolist() == [17]
    assert apart.reason[17] == "ConnectionError: row 17 is cursed"
    assert apart.answer[17] is None
    expected = fitted["cancer"].predict(X[:50])
    assert [*apart.answer[:17], *apart.answer[18:]] == [*expected[:17], *expected[18:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "words", "n_failed"),
    [
        (lambda values: values[:-1], "must answer with an array of that shape", 569),
        (lambda values: values.T, "must answer with an array of that shape", 569),
        (lambda values: values.astype(str), None, 0),
        (lambda values: [["red"] * values.shape[1]] * len(values), "must hold numbers", 569),
        (lambda values: np.where(np.arange(len(values))[:, None] == 4, np.inf, values), "finite", 1),
        (lambda values: np.where(np.arange(len(values))[:, None] == 4, np.nan, values), "missing", 1),
        (lambda values: None, "must", 569),
    ],
    ids=["too few rows", "turned", "numbers as text", "text", "infinite", "missing", "nothing"],
)
def test_nonsense_of_a_source_is_a_failure_of_the_rows_that_it_concerns(linear, answer, words, n_failed):
    X, _ = rows_of("cancer")
    values, first = X.to_numpy(), []

    class Source:
        def __len__(self):
            return len(X)

        def fetch(self, rows, columns):
            right = values[np.ix_(rows, columns)]
            first.append(len(rows))
            return answer(right) if len(first) == 1 else right

    receipt = linear.buy(Source())
    assert (~receipt.is_answered).sum() == n_failed
    if words:
        assert words in receipt.reason[4]
    if n_failed == 1:
        assert np.flatnonzero(~receipt.is_answered).tolist() == [4]


def test_a_missing_value_that_a_foreign_model_cannot_read_stops_only_its_row():
    X, y = rows_of("cancer")
    router = ConfidenceRouter(
        GaussianNB(), LogisticRegression(solver="newton-cholesky"), features=["age", "debt"], random_state=0
    ).fit(X, y)
    table = X.to_numpy(copy=True)
    table[3, 0] = table[5, 3] = np.nan  # of the cheap model, and of the full model
    everything = router.at(threshold=-np.inf)
    with pytest.warns(FullModelFailedWarning, match="failed on 1 of .* Row 5: "):
        receipt = everything.buy(dict(zip(NAMES, table.T, strict=True)))
    assert receipt.route[[3, 5]].tolist() == [-1, 0]
    assert (np.delete(receipt.route, [3, 5]) == 1).all()
    assert "NaN" in receipt.reason[5]
    np.testing.assert_array_equal(np.delete(receipt.answer, [3, 5]), np.delete(everything.predict(X), [3, 5]))


def slow(table):
    time.sleep(5)
    return np.full(len(table), 0.5)


def broken(table):
    raise OSError("the model is down")


def at_a_loss(table):
    """Has no answer for the young."""
    return np.where(table["age"] < 0, np.nan, 0.9)


def at_random(table):
    return np.where(np.arange(len(table)) < 3, np.nan, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words", "n_calls"),
    [
        (slow, "did not answer within 0.05", 0),
        (broken, "OSError: the model is down", 0),
        (at_a_loss, "got nan", 1),
        (at_random, "got nan", 2),
    ],
)
def test_a_full_model_that_fails_leaves_rows_with_the_answers_that_they_had(fitted, model, words, n_calls):
    X, _ = rows_of("cancer")
    clf = fitted["cancer"]
    chain = replace(clf.chain_, full=CallableFull(model, clf.chain_.task), blend=None)
    stopped = clf.route(X) < chain.n_stages
    with pytest.warns(FullModelFailedWarning, match=rf"the full model failed on \d+ of {len(X)} rows"):
        receipt = chain.buy(Shop(X), full_timeout=0.05 if model is slow else None)
    assert receipt.is_answered.all()
    assert np.array_equal(receipt.answer[stopped], clf.predict(X)[stopped])
    lost = ~stopped & (X["age"] < 0) if model is at_a_loss else ~stopped
    assert lost.sum() > 10
    assert (receipt.route[lost] == chain.n_stages - 1).all()
    assert all(words in reason for reason in receipt.reason[lost])
    np.testing.assert_array_equal(receipt.full_failed, lost)
    assert [names[-1:] == ("the full model",) for names in receipt.to_pandas()["failed"]] == lost.tolist()
    # An answer that makes no sense was given and is billed; rows that are asked about again are billed again, once.
    calls = (receipt.cost - receipt.bought[:, [0, 1, 3, 4]] @ [0.1, 0.7, 2.3, 1.1]) / 0.5
    np.testing.assert_allclose(calls[stopped], 0.0, atol=1e-9)
    assert calls[lost].max() == pytest.approx(n_calls)
    if model is at_a_loss:
        np.testing.assert_allclose(calls[~lost & ~stopped], 2.0)
        assert (receipt.route[~lost & ~stopped] == chain.n_stages).all()


# -- forms of sources ----------------------------------------------------------------------------------


class ByName:
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def fetch(self, rows, names):
        return self.table.iloc[rows][names[::-1]]


FORMS = {
    "by purchase": lambda X: Shop(X),
    "by name, in another order": ByName,
    "arrays": lambda X: {name: X[name].to_numpy() for name in NAMES},
    "functions": lambda X: {name: lambda rows, name=name: X[name].to_numpy()[rows] for name in NAMES},
    "a purchase of two": lambda X: {
        "age": X["age"],
        ("debt", "income"): X[["debt", "income"]],
        ("score",): lambda rows: X[["score"]].to_numpy()[rows],
        "years": X["years"].tolist(),
    },
    "a function": lambda X: lambda rows, names: X[names].to_numpy()[rows],
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_sources_of_every_form_are_answered_alike(fitted, form):
    X, _ = rows_of("cancer")
    receipt = fitted["cancer"].buy(FORMS[form](X), n_rows=len(X))
    assert np.array_equal(receipt.answer, fitted["cancer"].predict(X))
    np.testing.assert_allclose(receipt.cost, fitted["cancer"].cost(X))


ARRAYS = {name: np.zeros(4) for name in NAMES}


@pytest.mark.parametrize(
    ("source", "how", "words"),
    [
        ({**ARRAYS, "incom": np.zeros(4)}, {}, "the source names 'incom', .* did you mean 'income'?"),
        ({"age": np.zeros(4)}, {}, r"offers nothing for \['income', 'debt'"),
        ({**ARRAYS, "age": np.zeros(3)}, {}, r"same number of rows; got \[3, 4\]"),
        ({**ARRAYS, "age": np.zeros((4, 2))}, {}, r"1 value\(s\) per row for 'age'"),
        ({**ARRAYS, ("age", "debt"): np.zeros((4, 2))}, {}, "these columns are different purchases"),
        (ARRAYS, {"n_rows": 9}, "n_rows must be the number of rows of the source, 4; got 9"),
        (len, {}, "n_rows must say how many rows"),
        (ARRAYS, {"on_failure": "shrug"}, "on_failure must be .* got 'shrug'"),
        (ARRAYS, {"batch_size": 0}, "batch_size must be a whole number of rows"),
        (ARRAYS, {"full_timeout": -1}, "full_timeout must be a number of seconds"),
        (rows_of("cancer")[0], {}, "got DataFrame.*at hand use predict"),
    ],
)
def test_what_cannot_be_a_source_is_refused_before_anything_is_bought(fitted, source, how, words):
    with pytest.raises(InvalidInputError, match=words):
        fitted["cancer"].buy(source, **how)


def test_a_receipt_is_a_table(fitted):
    X, _ = rows_of("cancer")
    receipt = fitted["cancer"].buy(Shop(X, 0.05))
    frame = receipt.to_pandas()
    assert list(frame) == list(receipt) == list(dict(receipt))
    assert frame["cost"].tolist() == receipt["cost"].tolist()
    held = {name for names in frame["bought"] for name in names}
    assert held <= set(NAMES)
    assert all(("income" in names) == ("debt" in names) for names in frame["bought"])
    with pytest.raises(InvalidInputError, match="has the columns answer, .* got 'price'"):
        _ = receipt["price"]


# -- one row at a time ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_a_session_agrees_with_the_batch_on_every_row(fitted, name):
    X, _ = rows_of(name)
    clf, X = fitted[name], X[1::16].reset_index(drop=True)
    answers, routes, costs = clf.predict(X), clf.route(X), clf.cost(X)
    rows = X.to_dict("records")
    for row, cells in enumerate(rows):
        session, paid = clf.start(key=row), 0.0
        while (wanted := session.next_purchase) is not None:
            paid += wanted.price
            session.give({column: cells[column] for column in wanted.columns})
        assert session.route == routes[row]
        assert session.answer == pytest.approx(
            answers[row], rel=1e-12
        )  # a BLAS may round one row in another way
        called = clf.chain_.price_list.full_cost * (session.route == clf.chain_.n_stages)
        assert session.cost == pytest.approx(costs[row]) == pytest.approx(paid + called)


def test_a_session_says_what_to_buy_next_and_why(fitted):
    X, _ = rows_of("cancer")
    chain = fitted["cancer"].chain_
    row = int(np.flatnonzero(fitted["cancer"].route(X) == chain.n_stages)[0])
    session, cells = fitted["cancer"].start(row), X.iloc[row]
    assert (session.answer, session.route, session.cost, session.is_settled) == (None, -1, 0.0, False)
    first = session.next_purchase
    assert first.why == "stage 0 reads it, where every row starts"
    session.give({"income": cells["income"], **{name: cells[name] for name in first.columns}})
    assert session.route == 0
    assert 0.5 <= session.probability <= 1.0
    assert session.cost == pytest.approx(first.price)  # income was given, and is paid for once it is needed
    assert "income" not in session.next_purchase.columns
    assert f"stage 0 says {session.answer!r} with probability" in session.next_purchase.why
    with pytest.raises(InvalidInputError, match="'income' was given before"):
        session.give({"income": 3.0})
    session.give({name: cells[name] for name in NAMES if name not in {"income", *first.columns}})
    assert (session.is_settled, session.next_purchase) == (True, None)


def test_a_session_whose_purchase_fails_is_answered_by_its_last_stage_as_in_a_batch(fitted):
    X, _ = rows_of("cancer")
    chain = fitted["cancer"].chain_
    row = int(np.flatnonzero(fitted["cancer"].route(X) == chain.n_stages)[0])
    session, cells = fitted["cancer"].start(row), X.iloc[row]
    bought = session.next_purchase
    session.give({name: cells[name] for name in bought.columns})
    failing = session.next_purchase
    session.fail(cost=0.25)
    assert (session.next_purchase, session.is_settled, session.route) == (None, True, 0)
    assert session.cost == pytest.approx(bought.price + 0.25)
    first, second, last = session.explain().splitlines()
    assert first.startswith(f"{bought.name} (paid {bought.price:g}); {session.answer!r} with probability")
    assert second == f"{failing.name} failed (paid {session.cost:g})"
    assert last.startswith(f"answered {session.answer!r} with probability")

    def fetch(rows, names):
        values = X[names].to_numpy()[rows]
        failed = dict.fromkeys(rows.tolist(), "no stock") if set(names) & set(failing.columns) else {}
        return Delivery(values, failed)

    receipt = fitted["cancer"].buy(fetch, n_rows=len(X))
    assert (receipt.route[row], receipt.answer[row]) == (session.route, session.answer)


def test_a_session_tells_with_which_chance_the_mixed_points_buy_a_column(fitted):
    X, _ = rows_of("cancer")
    chain = fitted["cancer"].chain_
    gate = chain.visit_all(chain.reader(X)).gate
    chain = chain.at(Policy.of(*(np.quantile(gate, [0.3, 0.8], axis=0) - 1e-9), share=0.25))
    policy, place = chain.policy, chain.policy.parting
    routes = np.column_stack(
        [one.walk(one.reader(X)).route for one in (chain.at(policy.at(point)) for point in range(2))]
    )
    apart = np.flatnonzero(routes.min(axis=1) == place)
    apart = apart[routes[apart].max(axis=1) > place]
    held = set(chain.walker.held_at(place).tolist())
    (new, *_) = [column for column in chain.walker.held_at(place + 1).tolist() if column not in held]
    for row in [*apart[:8], *np.flatnonzero(routes.min(axis=1) > place)[:8]]:
        session, cells = chain.start(key=int(row)), X.iloc[row]
        assert session.propensity(session.next_purchase.columns[0]) == 1.0
        while session.route < place:
            session.give({name: cells[name] for name in session.next_purchase.columns})
        chance = session.propensity(NAMES[new])
        assert chance == pytest.approx((routes[row] > place) @ [1.0 - policy.share, policy.share])
    assert len(apart)


def test_where_the_key_decides_between_two_points_explanations_say_so_and_not_that_the_row_is_sure(fitted):
    X, _ = rows_of("cancer")
    chain = fitted["cancer"].chain_
    gate = chain.visit_all(chain.reader(X)).gate[:, 0]
    points = [np.full(chain.n_stages, threshold) for threshold in np.quantile(gate, [0.8, 0.3]) + 1e-9]
    chain = chain.at(Policy.of(*points, share=0.5))
    (row,) = np.flatnonzero((gate > points[1][0]) & (gate <= points[0][0]))[:1]
    cells, keys = X.iloc[row], np.arange(20)
    same = pd.DataFrame([cells] * len(keys))
    reader, why = chain.reader(chain.reader(same, row_key=keys)), set()
    for key, row_explained in zip(keys, explain_rows(chain, reader, NAMES), strict=True):
        first = row_explained.stages[0]
        session = chain.start(key=int(key))
        session.give({name: cells[name] for name in session.next_purchase.columns})
        point = "dearer" if first.goes_on else "cheaper"
        reason = f"the mix of two operating points: this key follows the {point} one"
        assert first.point == row_explained.as_dict()["stages"][0]["point"] == point
        assert reason in str(row_explained).splitlines()[0]
        assert reason in session.explain().splitlines()[0]
        assert session.is_settled or session.next_purchase.why.endswith(reason)
        why.add(reason)
    assert len(why) == 2
    sure = chain.at(chain.policy.at(0))
    assert "sure enough" in str(explain_rows(sure, sure.reader(same), NAMES)[0])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"incom": 3.0}, "did you mean 'income'"),
        ({"age": "old"}, "'age' must be a number"),
        ({"age": np.inf}, "'age' must be a finite number"),
        ([1.0], "give takes a mapping"),
        (dict.fromkeys(NAMES), "a feature it reads is missing"),
    ],
)
def test_what_a_session_refuses_leaves_it_as_it_was(linear, values, words):
    session = linear.start()
    before = session.next_purchase
    with pytest.raises(InvalidInputError, match=words):
        session.give(values)
    assert session.next_purchase == before


def test_a_session_visits_every_stage_on_its_way_once(fitted, monkeypatch):
    X, _ = rows_of("cancer")
    chain, visited = fitted["cancer"].chain_, []
    row = int(np.flatnonzero(chain.route(X) == chain.n_stages)[0])
    visit = CascadeStage.visit
    monkeypatch.setattr(CascadeStage, "visit", lambda *args: visited.append(args[0]) or visit(*args))
    session = chain.start(row)
    while (wanted := session.next_purchase) is not None:
        session.give({name: X[name][row] for name in wanted.columns})
    assert [id(stage) for stage in visited] == [id(stage) for stage in chain.stages]


def test_the_full_model_is_asked_once_and_its_error_is_raised(linear):
    asked = []

    def full(table):
        asked.append(len(table))
        if len(asked) == 1:
            raise OSError("the model is down")
        return np.full(len(table), 0.9)

    session = linear.with_full(full).at(threshold=-np.inf).start()
    cells = rows_of("cancer")[0].iloc[0].to_dict()
    wanted = session.next_purchase.columns
    session.give({name: cells[name] for name in wanted})
    assert session.next_purchase.why.startswith("the full model reads it: stage 0 says")
    rest, paid = {name: cells[name] for name in session.next_purchase.columns}, session.cost
    with pytest.raises(FullModelFailedError, match="OSError: the model is down. The session is as it was"):
        session.give(rest)
    assert session.cost == paid
    assert session.give(rest).is_settled
    assert asked == [1, 1]
    assert session.route == 1


def test_a_chain_behind_a_stage_falls_back_to_the_stage_in_front(fitted):
    X, y = rows_of("cancer")
    inner = fitted["cancer"]
    prices = Prices(COSTS, groups=GROUPS, full=0.5)
    held = "score" if "age" in np.array(list(COSTS))[inner.chain_.stages[0].columns] else "age"
    front = ConfidenceRouter(
        FrozenEstimator(inner), GaussianNB(), features=[held], random_state=0, prices=prices
    ).fit(X[1::2], y[1::2])
    front = front.at(threshold=-np.inf)
    shop = Shop(X, 0.1)
    receipt = front.buy(shop)
    called = 0.5 * (receipt.route == front.chain_.n_stages)
    np.testing.assert_allclose(receipt.cost, shop.ledger + called)
    fine = ~receipt.failed.any(axis=1)
    assert np.array_equal(receipt.answer[fine], front.predict(X)[fine])
    assert set(receipt.route[~fine]) >= {-1, 0}
    stopped = (receipt.route == 0) & ~fine
    assert np.array_equal(receipt.answer[stopped], front.at(threshold=np.inf).predict(X)[stopped])


def test_a_receipt_and_a_session_show_in_a_line_what_was_answered_paid_and_comes_next(fitted):
    clf, (X, _) = fitted["cancer"], rows_of("cancer")
    receipt = clf.buy(X.to_dict("series"))
    assert repr(receipt) == f"Receipt(569 rows, 569 answered, mean cost {receipt.cost.mean():.4g})"
    failed = clf.buy(Shop(X, failing=0.3))
    first = next(row for row, reason in enumerate(failed.reason) if reason is not None)
    assert f"with failures, the first in row {first}: {failed.reason[first]}" in repr(failed)
    session, shown = clf.start(), []
    while session.next_purchase is not None:
        wanted = session.next_purchase
        assert f"next: {', '.join(wanted.columns)} for {wanted.price:g})" in repr(session)
        shown.append(repr(session))
        session.give({name: X[name][0] for name in wanted.columns})
    assert shown[0].startswith("Session(no answer yet, paid 0; ")
    assert repr(session).startswith(f"Session(settled: answer {session.answer} with probability ")
    assert repr(session).endswith(f"paid {session.cost:g})")
    by = "the full model" if session.route == clf.chain_.n_stages else f"stage {session.route}"
    assert f" by {by}," in repr(session)
