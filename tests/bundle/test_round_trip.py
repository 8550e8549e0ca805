import copy
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.utils import get_tags

import thrifty
from thrifty import Chain, ConfidenceRouter, DynaModLinClassifier, Policy, Prices, hold_budget
from thrifty.arrays import Ints
from thrifty.bundle import from_bytes, register, to_bytes
from thrifty.bundle.codec import _REGISTERED
from thrifty.bundle.objects import _ESTIMATORS
from thrifty.engine.evidence.budgets import within_budget
from thrifty.engine.full.model import AbsentFull, CallableFull, PrecomputedFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.stage import ForeignStage, LinearStage, Visit
from thrifty.errors import InvalidInputError

pytestmark = pytest.mark.slow

NAMES = (
    "linear", "margin", "boosted", "reading", "confidence", "frame", "chain", "lstsq",
    "cascade", "proved", "nested",
)  # fmt: skip
CASCADES = ("cascade", "proved")
TASK = BinaryTask(np.arange(2))


def test_every_estimator_that_a_file_may_hold_is_tried(fitted):
    assert set(NAMES) == set(fitted)
    # Regressors and rankers are saved and loaded in the test of all things and all doors.
    labelled = {name for name in _ESTIMATORS if not name.endswith(("Regressor", "Ranker"))}
    assert {type(estimator).__name__ for estimator in fitted.values()} == labelled


class Source:
    def __init__(self, X):
        self.X, self.asked = X, []

    def __len__(self):
        return len(self.X)

    def fetch(self, rows, columns):
        self.asked.append((rows.tolist(), columns.tolist()))
        return self.X[np.ix_(rows, columns)]


def table_for(estimator, rows):
    if not hasattr(estimator, "feature_names_in_"):
        return rows[0]
    import pandas as pd

    return pd.DataFrame(rows[0], columns=list(estimator.feature_names_in_))


def assert_same_answers(one, other, X):
    for ask in ("route", "cost", "predict"):
        np.testing.assert_array_equal(getattr(one, ask)(X), getattr(other, ask)(X), strict=True)
    for ask in ("predict_proba", "decision_function"):  # of full models that sum through a BLAS, too
        np.testing.assert_allclose(getattr(one, ask)(X), getattr(other, ask)(X), rtol=1e-10, atol=1e-13)
    if hasattr(other, "scores"):
        for ours, theirs in zip(one.scores(X), other.scores(X), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)
    assert list(map(str, one.explain(X[:40]))) == list(map(str, other.explain(X[:40])))


def assert_same_source(one, other, X):
    ours, theirs = Source(X), Source(X)
    np.testing.assert_array_equal(
        one.buy(ours, on_failure="raise").answer, other.buy(theirs, on_failure="raise").answer, strict=True
    )
    assert ours.asked == theirs.asked


def assert_same_points(one, other):
    """What both know about their operating points is the same to the last bit."""
    for name in ("cost", "score", "share", "thresholds", "threshold"):
        np.testing.assert_array_equal(
            getattr(one.frontier_, name), getattr(other.frontier_, name), strict=True
        )
    assert list(one.frontier_) == list(other.frontier_)
    assert one.expected_cost_ == other.expected_cost_
    assert one.expected_score_ == other.expected_score_
    assert one.certificate_ == other.certificate_


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_estimator_answers_as_before(name, fitted, rows, tmp_path):
    before = fitted[name]
    path = tmp_path / "system.thrifty"
    thrifty.save(before, path)
    after = thrifty.load(path)
    assert type(after) is type(before)
    X = table_for(before, rows)
    assert_same_answers(after, before, X)
    assert_same_points(after, before)
    assert_same_source(after, before, rows[0])
    full = LogisticRegression().fit(X, before.predict(X))
    assert_same_answers(after.with_full(full), before.with_full(full), X)


@pytest.mark.filterwarnings("ignore")  # a small loss may save nothing, which is said
@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_estimator_moves_to_the_same_operating_points(name, fitted, rows):
    before, X = fitted[name], table_for(fitted[name], rows)
    after = from_bytes(to_bytes(before))
    cost = before.frontier_.cost
    for budget in (float(cost[0]), float(cost.mean())):
        ours, theirs = after.at(budget=budget), before.at(budget=budget)
        assert_same_answers(ours, theirs, X)
        assert_same_points(ours, theirs)
        assert_same_answers(from_bytes(to_bytes(theirs)), theirs, X)
    if name in CASCADES:
        for max_loss in (0.06, 0.15):
            assert_same_answers(after.at(max_loss=max_loss), before.at(max_loss=max_loss), X)
            assert_same_points(after.at(max_loss=max_loss), before.at(max_loss=max_loss))
        return
    middle = float(np.median(before.scores(X)[0]))
    ours, theirs = after.at(threshold=middle), before.at(threshold=middle)
    assert_same_answers(ours, theirs, X)
    assert_same_answers(from_bytes(to_bytes(theirs)), theirs, X)
    budget = float(theirs.cost(X).mean())
    assert ours.threshold_for(X, budget=budget) == theirs.threshold_for(X, budget=budget)


@pytest.mark.parametrize("name", NAMES)
def test_learned_attributes_come_back_with_their_types(name, fitted):
    before = fitted[name]
    after = from_bytes(to_bytes(before))
    objects = {"chain_", "evidence_", "certificate_", "local_"}
    learned = {key for key in vars(before) if key.endswith("_")} - objects
    assert learned == {key for key in vars(after) if key.endswith("_")} - objects
    for key in learned:
        was, now = getattr(before, key), getattr(after, key)
        assert type(was) is type(now), key
        if isinstance(was, np.ndarray):
            np.testing.assert_array_equal(now, was, strict=True)
        else:
            assert now == was, key


@pytest.mark.parametrize("name", NAMES)
def test_evidence_comes_back_as_it_was(name, fitted):
    before, after = fitted[name].evidence_, from_bytes(to_bytes(fitted[name])).evidence_
    for part in ("gate", "quality", "cost", "full_quality", "points", "weight"):
        was, now = getattr(before, part), getattr(after, part)
        assert (now is None) == (was is None), part
        if was is not None:
            np.testing.assert_array_equal(now, was, strict=True)
    assert (after.features, after.settings, after.is_fixed) == (
        before.features,
        before.settings,
        before.is_fixed,
    )


@pytest.mark.parametrize("name", NAMES)
def test_without_evidence_a_file_answers_as_before_and_says_what_it_cannot(name, fitted, rows, tmp_path):
    before, X = fitted[name], table_for(fitted[name], rows)
    thrifty.save(before, tmp_path / "bare.thrifty", evidence=False)
    data = (tmp_path / "bare.thrifty").read_bytes()
    assert len(data) < len(to_bytes(before))
    after = from_bytes(data)
    assert_same_answers(after, before, X)
    assert after.certificate_ == before.certificate_
    for ask in (lambda: after.frontier_, lambda: after.certified(X, before.predict(X), max_loss=0.2)):
        with pytest.raises(
            InvalidInputError, match="needs the rows that the operating points were evaluated on"
        ):
            ask()
    if name in CASCADES:
        budget = float(before.frontier_.cost.mean())
        assert_same_answers(after.at(budget=budget), before.at(budget=budget), X)
        with pytest.raises(
            InvalidInputError, match="needs the rows that the operating points were evaluated on"
        ):
            after.at(max_loss=0.1)
    else:
        middle = float(np.median(before.scores(X)[0]))
        np.testing.assert_array_equal(
            after.at(threshold=middle).route(X), before.at(threshold=middle).route(X), strict=True
        )
        with pytest.raises(
            InvalidInputError, match="needs the rows that the operating points were evaluated on"
        ):
            after.at(budget=5.0)


@pytest.mark.parametrize("name", ["linear", "cascade", "proved"])
def test_an_estimator_held_to_a_budget_stays_so(name, fitted, rows):
    before = fitted[name]
    low, high = before.frontier_.cost[[0, -1]]
    held = hold_budget(before, rows[0], float(low + 0.3 * (high - low)))
    assert held.chain_.policy.is_mixed or name == "proved"  # which may be at a point of its own
    after = from_bytes(to_bytes(held))
    assert_same_answers(after, held, rows[0])
    assert_same_source(after, held, rows[0])


@pytest.mark.parametrize("name", ["boosted", "nested", "cascade"])
def test_a_certificate_comes_back_with_its_point(name, fitted, rows):
    others = rows[0] + 0.01  # the rows themselves were fitted on
    before = fitted[name].certified(others, rows[1], max_loss=0.3)
    for evidence in (True, False):
        after = from_bytes(to_bytes(before, evidence=evidence))
        assert after.certificate_ == before.certificate_
        assert str(after.certificate_) == str(before.certificate_)
        assert_same_answers(after, before, rows[0])


@pytest.mark.filterwarnings("ignore")  # it is said that this saves nothing
def test_a_cascade_that_sends_everybody_on_can_go_back(fitted, rows):
    everybody = fitted["cascade"].at(max_loss=1e-9)
    assert set(everybody.route(rows[0])) == {everybody.n_stages_}
    moved = fitted["cascade"].at(budget=2.0)
    mixed, learned = copy.copy(moved), moved._learned  # thresholds move by the evidence
    mixed.chain_ = learned.at(within_budget(learned.policy, 2.0, None))
    for evidence, there in ((True, moved), (False, mixed)):
        after = from_bytes(to_bytes(everybody, evidence=evidence))
        assert_same_answers(after, everybody, rows[0])
        assert_same_answers(after.at(budget=2.0), there, rows[0])


@pytest.mark.parametrize("name", NAMES)
def test_parameters_that_are_plain_data_come_back(name, fitted):
    before, after = (
        fitted[name].get_params(deep=False),
        from_bytes(to_bytes(fitted[name])).get_params(deep=False),
    )
    assert list(before) == list(after)
    for key in set(before) - {"full", "cheap", "local"}:
        assert type(after[key]) is type(before[key])
        if key == "options" and before[key] is not None:
            assert after[key].get_params() == before[key].get_params()
        else:
            assert after[key] == before[key]


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_alone_can_be_saved_too(name, fitted, rows):
    before = fitted[name].chain_
    after = from_bytes(to_bytes(before))
    assert isinstance(after, Chain)
    X = table_for(fitted[name], rows)
    for ask in ("route", "cost", "predict"):
        np.testing.assert_array_equal(getattr(after, ask)(X), getattr(before, ask)(X), strict=True)


def test_a_bundle_of_a_bundle_is_the_same_bundle(fitted):
    for estimator in fitted.values():
        data = to_bytes(estimator)
        assert to_bytes(from_bytes(data)) == data


def test_a_model_among_the_parameters_is_marked_and_keeps_fit_from_going_on_without_it(fitted, rows):
    after = from_bytes(to_bytes(fitted["linear"]))
    assert after.full.what == "Pipeline"
    with pytest.raises(InvalidInputError, match="a Pipeline among the parameters was not stored"):
        clone(after).fit(*rows)
    again = clone(after).set_params(full=fitted["linear"].full).fit(*rows)
    assert_same_answers(again, fitted["linear"], rows[0])
    assert to_bytes(from_bytes(to_bytes(after, full="absent")), full="absent") == to_bytes(
        after, full="absent"
    )


def test_a_splitter_among_the_parameters_is_marked_too(rows):
    before = DynaModLinClassifier(LogisticRegression(), gamma=0.1, cv=KFold(3)).fit(*rows)
    after = from_bytes(to_bytes(before))
    assert after.cv.what == "KFold"
    with pytest.raises(InvalidInputError, match="cv must be a number of folds"):
        after.set_params(full=LogisticRegression()).fit(*rows)


def test_a_loaded_estimator_accepts_and_refuses_the_same_tables(rows):
    X = sparse.csr_array(np.where(rows[0] > np.median(rows[0], axis=0), rows[0], 0.0))
    before = DynaModLinClassifier(LogisticRegression(), gamma=0.05, random_state=0).fit(X, rows[1])
    for full in ("inside", "absent"):
        after = from_bytes(to_bytes(before, full=full))
        assert get_tags(after).input_tags == get_tags(before).input_tags
        np.testing.assert_array_equal(after.route(X), before.route(X))
        with pytest.raises(InvalidInputError, match="NaN"):
            after.route(np.full((1, 12), np.nan))


def chain_of(*stages, full=None, prices=None, policy=None, task=TASK, **parts):
    """A chain of some stages over two columns, with every threshold at zero."""
    prices = PriceList(np.ones(2), np.arange(2), 0.1) if prices is None else prices
    policy = Policy.of(np.zeros(len(stages))) if policy is None else policy
    return Chain(stages, AbsentFull() if full is None else full, prices, task, policy, **parts)


@pytest.mark.parametrize("labels", [[False, True], [-1.5, 2.5], ["no", "yes"], [np.uint8(3), np.uint8(9)]])
def test_labels_of_every_kind_come_back(labels):
    for classes in (np.array(labels), np.array(labels, dtype=object)):
        after = from_bytes(to_bytes(chain_of(task=BinaryTask(classes)))).classes
        np.testing.assert_array_equal(after, classes, strict=True)
        assert [type(label) for label in after] == [type(label) for label in classes]


STAGE = LinearStage(np.array([1]), np.array([[1.0, 2.0]]), np.zeros(2))


@pytest.mark.parametrize("keys", [None, np.array([7, 2**64 - 1], dtype=np.uint64)])
def test_probabilities_and_infinite_thresholds_come_back(keys):
    values = np.array([[0.9, 0.1], [0.25, 0.75]])
    for threshold in (-np.inf, np.inf, 0.1 + 0.2):
        chain = chain_of(STAGE, full=PrecomputedFull(values, keys), policy=Policy.of(np.array([threshold])))
        after = from_bytes(to_bytes(chain))
        assert after.policy.thresholds.tolist() == [[threshold]]
        np.testing.assert_array_equal(after.full.values, values)
        np.testing.assert_array_equal(after.full.keys, keys)


POLICIES = {
    "one point": Policy.of(np.array([0.5])),
    "a tie": Policy.of(np.array([0.5]), np.array([-np.inf]), share=0.3, seed=7),
    "all of a tie": Policy.of(np.array([0.5]), np.array([0.25]), share=1.0),
    "measured points": Policy(
        np.array([[1.0], [0.5], [-np.inf]]), np.array([1.0, 1.5, 2.1]), np.array([0.5, 0.7, 0.6]), 1, 2, 0.4, 3
    ),
    "a known cost alone": Policy(np.array([[1.0]]), np.array([1.0]), np.array([np.nan])),
}  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_comes_back_and_parts_rows_as_before(name):
    policy = POLICIES[name]
    chain = chain_of(STAGE, policy=policy)
    after = from_bytes(to_bytes(chain))
    for part in ("thresholds", "cost", "score"):
        np.testing.assert_array_equal(getattr(after.policy, part), getattr(policy, part), strict=True)
    for part in ("lower", "upper", "share", "seed", "is_measured", "is_mixed"):
        assert getattr(after.policy, part) == getattr(policy, part)
    X = np.column_stack([np.arange(100.0), np.full(100, 0.4)])
    np.testing.assert_array_equal(after.route(X), chain.route(X))


@pytest.mark.parametrize("full_columns", [None, np.array([1]), np.array([1, 0]), np.empty(0, dtype=np.intp)])
def test_base_blend_and_the_columns_of_the_full_model_come_back(full_columns):
    prices = PriceList(np.array([1.5, 2.5]), np.array([0, 1]), 0.25, full_columns)
    parts = {
        "base": np.array([0.3]),
        "blend": np.array([0.1, 0.4, 0.8]),
        "names": ("a", "b"),
        "kind": "polars",
    }
    after = from_bytes(to_bytes(chain_of(STAGE, prices=prices, **parts)))
    assert after.price_list.is_same(prices)
    assert (after.price_list.full_columns is None) == (full_columns is None)
    np.testing.assert_array_equal(after.base, parts["base"])
    np.testing.assert_array_equal(after.blend, parts["blend"])
    assert (after.names, after.kind) == (parts["names"], parts["kind"])


def test_a_full_model_that_reads_some_columns_comes_back(rows):
    before = DynaModLinClassifier(
        LogisticRegression(), gamma=0.05, prices=Prices(full=1.0, full_features=[7, 0, 3]), random_state=0
    ).fit(*rows)
    before = before.at(threshold=float(np.median(before.scores(rows[0])[0])))
    for full, given in (("inside", None), ("outside", before.chain_.full.estimator)):
        assert_same_answers(from_bytes(to_bytes(before, full=full), full=given), before, rows[0])


def test_a_chain_of_ours_may_be_the_cheap_model_of_a_router_or_stand_behind_a_bare_chain(fitted, rows):
    inner = fitted["linear"]
    router = ConfidenceRouter(LogisticRegression(), FrozenEstimator(inner), prices=Prices(0.0, full=1.0)).fit(
        *rows
    )
    assert_same_answers(from_bytes(to_bytes(router)), router, rows[0])
    nested = chain_of(full=inner.chain_, prices=inner.chain_.price_list)
    after = from_bytes(to_bytes(nested))
    np.testing.assert_allclose(after.predict_proba(rows[0]), nested.predict_proba(rows[0]), rtol=1e-10)


def test_what_has_no_form_in_a_bundle_is_refused_when_saving(fitted, rows):
    class Unknown(DynaModLinClassifier):
        pass

    with pytest.raises(
        InvalidInputError,
        match="a file holds a Chain, a model whose arrays are known, or one of .*; got LogisticRegression",
    ):
        to_bytes(LogisticRegression())
    with pytest.raises(InvalidInputError, match="got Unknown"):
        to_bytes(Unknown())
    with pytest.raises(InvalidInputError, match="must be fitted before it is saved"):
        to_bytes(DynaModLinClassifier())
    with pytest.raises(
        InvalidInputError, match="full must be one of 'inside', 'outside', 'absent'; got 'beside'"
    ):
        to_bytes(fitted["linear"], full="beside")
    stage = ForeignStage(np.arange(2), CallableFull(lambda block: block[:, 0], TASK), TASK)
    with pytest.raises(InvalidInputError, match="a CallableFull is code, and a file holds only data"):
        to_bytes(chain_of(stage))


def test_a_stage_of_somebody_else_can_be_made_known(rows, fitted, monkeypatch):
    monkeypatch.setattr("thrifty.bundle.codec._REGISTERED", dict(_REGISTERED))

    @dataclass(frozen=True, eq=False)
    class Constant:
        columns: Ints
        g: float

        def visit(self, block, carried):
            return Visit(np.ones((block.shape[0], 1)), np.full(block.shape[0], self.g), carried)

    inner = fitted["linear"].chain_
    chain = chain_of(Constant(np.array([0]), 0.25), full=inner, prices=inner.price_list)
    with pytest.raises(InvalidInputError, match="no form for the stage Constant"):
        to_bytes(chain)
    register(Constant)
    after = from_bytes(to_bytes(chain))
    np.testing.assert_allclose(after.predict_proba(rows[0]), chain.predict_proba(rows[0]), rtol=1e-10)


def test_the_layout_of_an_array_comes_back():
    coef = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    stage = LinearStage(np.arange(3), coef, np.zeros(2))
    chain = chain_of(stage, prices=PriceList(np.ones(3), np.arange(3)))
    after = from_bytes(to_bytes(chain)).stages[0].coef
    assert after.flags.f_contiguous
    np.testing.assert_array_equal(after, coef)


def test_whole_numbers_where_others_belong_are_written_as_such_numbers():
    stage = LinearStage([0, 1], np.array([[1, 2], [3, 4]]), np.array([0, 0]), 0)
    full, prices = PrecomputedFull(np.array([[1, 0], [0, 1]])), PriceList([1, 2], [0, 1], 3)
    after = from_bytes(to_bytes(chain_of(stage, full=full, prices=prices)))
    assert after.stages[0].coef.dtype == np.float64
    assert after.cost(np.ones((2, 2))).tolist() == [6.0, 6.0]
