"""Chains against a walk row by row: answers, routes, bills and explanations, nested or not, from tables and sources."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from thrifty.engine.full.model import CallableFull, PrecomputedFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import Prices, check_price_list
from thrifty.engine.purchases.readers import FeatureSource
from thrifty.engine.purchases.receipts import PurchaseReader
from thrifty.engine.table.reader import Schema
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import CLIP, BinaryTask
from thrifty.engine.walk.chain import Chain, explain_rows
from thrifty.engine.walk.policy import Policy
from thrifty.engine.walk.stage import LinearStage, Visit
from thrifty.errors import InvalidInputError, PurchaseFailedError
from thrifty.rows import fingerprints, key_chance, key_words

N_FEATURES = 6
NAMES = list("abcdef")
TASK = BinaryTask(np.array(["a", "b"]))
FULL_WEIGHTS = np.arange(1.0, N_FEATURES + 1)
FULL_COST = 1.5


@dataclass
class StrictSource:
    """Answers only for cells that a route was entitled to, and each of them once."""

    X: np.ndarray
    allowed: np.ndarray

    def __post_init__(self):
        self.asked = np.zeros(self.X.shape, dtype=bool)
        self.batches = 0

    def __len__(self):
        return len(self.X)

    def fetch(self, rows, columns):
        cells = np.ix_(rows, columns)
        if not self.allowed[cells].all():
            raise AssertionError("asked for a cell that the route did not buy")
        if self.asked[cells].any():
            raise AssertionError("asked twice for the same cell")
        self.asked[cells] = True
        self.batches += 1
        return self.X[cells]


@dataclass(frozen=True)
class AddingStage:
    """A stage of a cascade without trees: it adds a line to what a row carries, and doubt is its gate."""

    columns: np.ndarray
    weights: np.ndarray

    def visit(self, block, carried):
        carried = carried + (block @ self.weights)[:, None]
        return Visit(2.0 * carried - 0.1, None, carried)


def prices_of(rng, groups, full_columns=None):
    by_group = rng.uniform(0.5, 3, size=max(groups) + 1)
    return check_price_list(
        Prices(by_group[list(groups)], groups=list(groups), full=FULL_COST, full_features=full_columns),
        N_FEATURES,
    )


def link(rng, n_stages, full, prices, *, is_cascade=False, share=0.0):
    """One chain of the paper's stages, or of a cascade's with a base and a blend, in front of ``full``."""
    stages, held = [], np.empty(0, dtype=int)
    for _ in range(n_stages):
        columns = np.sort(rng.choice(N_FEATURES, size=rng.integers(1, 4), replace=False))
        if is_cascade:
            held = np.r_[held, np.setdiff1d(columns, held)]
            stages.append(AddingStage(held, rng.normal(size=len(held))))
        else:
            stages.append(LinearStage(columns, rng.normal(size=(len(columns), 2)), rng.normal(size=2)))
    middle = -1.5 if is_cascade else 0.0  # where gates are: doubt is never positive
    policy = Policy.of(*(middle + rng.normal(size=(2, n_stages))), share=share, seed=int(rng.integers(100)))
    blend, base = (rng.normal(size=3), rng.normal(size=1)) if is_cascade and n_stages else (None, None)
    return Chain(tuple(stages), full, prices, TASK, policy, base, blend)


def full_of(prices):
    weights = FULL_WEIGHTS[prices.read_by_full]
    return CallableFull(lambda table: expit(np.asarray(table) @ weights), TASK)


def chain(seed, groups=tuple(range(N_FEATURES)), n_stages=2, full_columns=None):
    rng = np.random.default_rng(seed)
    prices = prices_of(rng, groups, full_columns)
    return link(rng, n_stages, full_of(prices), prices)


def nested(seed, groups, shape, full_columns=None, share=0.0):
    """Chains in front of one another, the outermost first; "c3" is a cascade of three stages, "p1" one of the paper."""
    rng = np.random.default_rng(seed)
    prices = prices_of(rng, groups, full_columns)
    whole = full_of(prices)
    for kind in reversed(shape):
        whole = link(rng, int(kind[1]), whole, prices, is_cascade=kind[0] == "c", share=share)
    return whole


def rows_of(seed, n=40):
    return np.random.default_rng(seed + 1).normal(size=(n, N_FEATURES))


@dataclass
class Way:
    """What one row did: the place that answers, the columns it holds, the stages it met, and what was answered."""

    place: int
    held: set
    met: list
    positive: float


def point_of_row(system, number):
    """The operating point that chance gives a row, from its key."""
    policy = system.policy
    chance = key_chance(key_words([number]), policy.seed)[0]
    return policy.upper if chance < policy.share else policy.lower


def way_of(system, x, number):
    """One row's way by the book: a stage after the other, then the full model or the chain in its place."""
    policy, point = system.policy, point_of_row(system, number)
    held, met = set(), []
    carried = np.zeros((1, 1)) if system.base is None else system.base[None]
    score = None
    for place, stage in enumerate(system.stages):
        held |= set(stage.columns.tolist())
        visit = stage.visit(x[None, stage.columns], carried)
        carried, score = visit.carried, float(visit.scores[0, 0])
        gate = -abs(score) if visit.gate is None else float(visit.gate[0]) + visit.margin * abs(score)
        met.append((frozenset(held), float(expit(score))))
        if not gate > policy.thresholds[point, place]:
            return Way(place, held, met, float(expit(score)))
    if system.behind is None:
        read = system.price_list.read_by_full
        inner = Way(
            0, set(read.tolist()), [], float(np.clip(expit(x[read] @ FULL_WEIGHTS[read]), CLIP, 1 - CLIP))
        )
    else:
        inner = way_of(system.behind, x, number)
    positive = inner.positive
    if system.blend is not None:
        log_odds = np.log(np.clip(positive, CLIP, 1 - CLIP)) - np.log1p(-np.clip(positive, CLIP, 1 - CLIP))
        positive = float(expit(system.blend @ [1.0, score, log_odds]))
    met += [(frozenset(held | columns), probability) for columns, probability in inner.met]
    return Way(len(system.stages) + inner.place, held | inner.held, met, positive)


def price_of(system, held, asks_full=False):
    prices = system.price_list
    bought = {int(prices.group_of[column]) for column in held}
    return sum(prices.prices[group] for group in bought) + (prices.full_cost if asks_full else 0.0)


def check_against_the_ways(system, X):
    """Everything a chain says about rows agrees with their ways; returns them."""
    ways = [way_of(system, x, number) for number, x in enumerate(X)]
    places = np.array([way.place for way in ways])
    asked = places == system.n_stages
    cost = [price_of(system, way.held, sent) for way, sent in zip(ways, asked, strict=True)]
    positive = np.array([way.positive for way in ways])
    np.testing.assert_array_equal(system.route(X), places)
    np.testing.assert_allclose(system.cost(X), cost)
    np.testing.assert_allclose(system.predict_proba(X), np.column_stack([1 - positive, positive]), atol=1e-9)
    labels = np.where(positive > 0.5, "b", "a")
    np.testing.assert_array_equal(system.predict(X), labels)
    for told, way, paid, sent, label in zip(
        explain_rows(system, system.reader(X), NAMES), ways, cost, asked, labels, strict=True
    ):
        assert (told.asked_full, told.answer) == (sent, label)
        assert told.cost == pytest.approx(paid)
        assert told.saved == pytest.approx(system.price_list.cost_of_full - paid)
        assert told.probability == pytest.approx(max(way.positive, 1 - way.positive))
        assert [stage.cost for stage in told.stages] == pytest.approx(
            [price_of(system, held) for held, _ in way.met]
        )
        assert [stage.goes_on for stage in told.stages] == [
            place < way.place for place in range(len(told.stages))
        ]
        bought = set().union(*(held for held, _ in way.met)) if way.met else set()
        assert sorted(told.bought) == sorted(NAMES[column] for column in bought)
        expected = [max(probability, 1 - probability) for _, probability in way.met]
        assert [stage.probability for stage in told.stages] == pytest.approx(expected)
    return ways


def check_a_source(system, X, ways):
    """A source is asked for what the ways bought, with all columns of a purchase, once and in few batches."""
    group_of = system.price_list.group_of
    bought = [
        np.isin(group_of, group_of[sorted(way.held)]) if way.held else np.zeros(6, bool) for way in ways
    ]
    source = StrictSource(X, np.array(bought))
    np.testing.assert_array_equal(system.buy(source, on_failure="raise").answer, system.predict(X))
    np.testing.assert_array_equal(source.asked, source.allowed)
    return source


SEEDS = st.integers(0, 10_000)
GROUPS = st.lists(st.integers(0, 3), min_size=N_FEATURES, max_size=N_FEATURES)
READ = st.one_of(
    st.none(), st.sets(st.integers(0, 5), min_size=1, max_size=5).map(lambda s: np.array(sorted(s)))
)
SHAPES = st.sampled_from(
    [("p1", "p1"), ("p1", "p2"), ("p1", "c3"), ("c2", "p1"), ("c2", "c2"), ("p0", "c1"), ("p1", "c2", "p1")]
)


# -- one chain ---------------------------------------------------------------------------------------


@pytest.mark.slow
@given(SEEDS, GROUPS, st.integers(0, 3), READ)
@settings(deadline=None, max_examples=40)
def test_routing_is_what_a_row_by_row_walk_does(seed, groups, n_stages, full_columns):
    check_against_the_ways(chain(seed, groups, n_stages, full_columns), rows_of(seed))


@pytest.mark.slow
@given(SEEDS, GROUPS, st.integers(0, 3), READ)
@settings(deadline=None, max_examples=40)
def test_lazy_buying_asks_only_for_what_the_route_bought_once_and_in_one_batch_per_stage(
    seed, groups, n_stages, full_columns
):
    system, X = chain(seed, groups, n_stages, full_columns), rows_of(seed)
    source = check_a_source(system, X, [way_of(system, x, number) for number, x in enumerate(X)])
    assert source.batches <= n_stages + 1


@pytest.mark.slow
@given(SEEDS, st.integers(1, 3), st.floats(0, 1))
@settings(deadline=None, max_examples=30)
def test_a_cascade_carries_its_score_from_stage_to_stage_and_blends_at_the_end(seed, n_stages, share):
    system = nested(seed, range(N_FEATURES), (f"c{n_stages}",), share=share)
    check_against_the_ways(system, rows_of(seed))


def test_a_source_that_is_asked_too_much_would_be_noticed():
    system, X = chain(0), rows_of(0)
    source = StrictSource(X, np.zeros(X.shape, dtype=bool))
    with pytest.raises(AssertionError, match="did not buy"):
        system.walk(system.buyer(source))
    assert isinstance(source, FeatureSource)


# -- chains in front of chains -------------------------------------------------------------------------


@pytest.mark.slow
@given(SEEDS, GROUPS, SHAPES, READ, st.sampled_from([0.0, 0.4]))
@settings(deadline=None, max_examples=40)
def test_nested_chains_bill_each_row_for_the_distinct_purchases_of_its_whole_way(
    seed, groups, shape, full_columns, share
):
    system, X = nested(seed, groups, shape, full_columns, share), rows_of(seed)
    assert system.n_stages == sum(int(kind[1]) for kind in shape)
    check_a_source(system, X, check_against_the_ways(system, X))


def test_the_examples_of_nested_chains_answer_at_every_place():
    seen = [nested(seed, range(N_FEATURES), ("p1", "c3")).route(rows_of(seed)) for seed in range(20)]
    assert set(np.concatenate(seen)) == {0, 1, 2, 3, 4}


@pytest.mark.slow
@given(SEEDS, GROUPS)
@settings(deadline=None, max_examples=40)
def test_a_chain_behind_a_stage_is_the_longer_chain(seed, groups):
    whole, X = chain(seed, groups, 3), rows_of(seed)
    first, later = (Policy.of(whole.policy.thresholds[0, part]) for part in (slice(0, 1), slice(1, 3)))
    tail = replace(whole, stages=whole.stages[1:], policy=later)
    joined = replace(whole, stages=whole.stages[:1], policy=first, full=tail)
    np.testing.assert_array_equal(joined.route(X), whole.route(X))
    np.testing.assert_array_equal(joined.cost(X), whole.cost(X))
    np.testing.assert_array_equal(joined.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(joined.bought_by_place, whole.bought_by_place)
    assert (joined.n_own_stages, joined.n_stages, joined.innermost) == (1, 3, whole.full)
    # As an opaque full model the tail gives the same answers, kept away from certainty.
    opaque = replace(joined, full=CallableFull(lambda table: tail.outputs(table, table), TASK))
    np.testing.assert_allclose(opaque.predict_proba(X), whole.predict_proba(X), atol=2 * CLIP)


# -- the full model ------------------------------------------------------------------------------------


def test_routing_and_cost_never_ask_the_full_model():
    def refuse(table):
        raise AssertionError("f0 was asked")

    X = rows_of(3)
    for system in (chain(3), nested(4, range(N_FEATURES), ("p1", "c2"))):
        silent = system.with_full(CallableFull(refuse, TASK))
        assert (silent.route(X) == silent.n_stages).any()
        assert silent.cost(X).shape == (len(X),)
        with pytest.raises(AssertionError, match="f0 was asked"):
            silent.predict(X)


def test_the_full_model_is_given_the_columns_it_reads_and_those_alone():
    read = np.array([1, 4])
    seen = []

    def note(table):
        seen.append(table)
        return np.full(len(table), 0.9)

    system, X = chain(8, full_columns=read), rows_of(8)
    system = system.with_full(CallableFull(note, TASK)).at(Policy.of(np.full(2, -np.inf)))
    frame = pd.DataFrame(X, columns=NAMES)
    replace(system, names=tuple(NAMES)).predict(frame)
    system.predict(X)
    assert list(seen[0].columns) == ["b", "e"]
    np.testing.assert_array_equal(seen[0], X[:, read])
    np.testing.assert_array_equal(seen[1], X[:, read])
    held = np.unique(np.concatenate([stage.columns for stage in system.stages]))
    assert system.cost(X) == pytest.approx(price_of(system, {*held.tolist(), 1, 4}, asks_full=True))
    assert system.cost(X)[0] < system.price_list.cost_of_everything


def test_answers_known_beforehand_are_looked_up_by_content_through_chains_and_in_any_order():
    X = rows_of(4)
    for system in (chain(4), nested(4, range(N_FEATURES), ("p1", "p1"))):
        known = PrecomputedFull(system.innermost.outputs(X, X), fingerprints(X, exact=True))
        by_value = system.with_full(known) if system.behind is None else _with_innermost(system, known)
        expected = system.predict_proba(X)
        assert (system.route(X) == system.n_stages).sum() > 2
        np.testing.assert_allclose(by_value.predict_proba(X), expected)
        np.testing.assert_allclose(by_value.predict_proba(X[::-1]), expected[::-1])
        np.testing.assert_allclose(by_value.predict_proba(X[7:9]), expected[7:9])
        with pytest.raises(InvalidInputError, match="not those they belong to"):
            by_value.predict_proba(X + 1e-9)


def _with_innermost(system, full):
    return replace(system, full=replace(system.full, full=full))


def test_answers_known_for_the_columns_that_the_full_model_reads_are_found_by_these_alone():
    read = np.array([0, 3])
    system, X = chain(6, full_columns=read), rows_of(6)
    known = system.with_full(
        PrecomputedFull(system.full.outputs(X[:, read], X[:, read]), fingerprints(X[:, read], exact=True))
    )
    everything = Policy.of(np.full(2, -np.inf))
    np.testing.assert_allclose(known.at(everything).predict_proba(X), system.at(everything).predict_proba(X))


# -- models that do not read the same columns of every row -----------------------------------------------


# -- thresholds and tables -----------------------------------------------------------------------------


def test_a_threshold_of_infinity_keeps_every_row_and_minus_infinity_none():
    system, X = chain(7, n_stages=1), rows_of(7)
    assert np.all(system.at(Policy.of(np.array([np.inf]))).route(X) == 0)
    assert np.all(system.at(Policy.of(np.array([-np.inf]))).route(X) == 1)


def test_a_policy_for_another_number_of_stages_is_refused():
    with pytest.raises(InvalidInputError, match="threshold for each of the 2 stages; got 1"):
        chain(7).at(Policy.of(np.zeros(1)))


def test_what_every_stage_says_is_what_rows_hear_that_get_there():
    X = rows_of(9)
    for shape in (("p3",), ("c3",)):
        system = nested(9, range(N_FEATURES), shape)
        seen = system.visit_all(system.reader(X))
        wide_open = system.at(Policy.of(np.full(3, -np.inf)))
        for place in range(3):
            told = [row.stages[place] for row in explain_rows(wide_open, system.reader(X), NAMES)]
            np.testing.assert_allclose(seen.gate[:, place], [stage.gate for stage in told])
            outputs = TASK.outputs(seen.scores[:, place])
            np.testing.assert_allclose(TASK.confidence(outputs), [stage.probability for stage in told])


def test_a_missing_value_in_a_bought_feature_is_refused():
    system, X = chain(1), rows_of(1)
    X[3, system.stages[0].columns[0]] = np.nan
    with pytest.raises(InvalidInputError, match=r"stage 0 cannot score .* missing \(NaN\) or infinite"):
        system.predict(X)


def test_a_source_with_the_wrong_shape_is_refused():
    system, X = chain(1), rows_of(1)

    class Short(StrictSource):
        def fetch(self, rows, columns):
            return self.X[np.ix_(rows, columns)][:-1]

    with pytest.raises(InvalidInputError, match="must answer with an array"):
        system.walk(system.buyer(Short(X, np.ones(X.shape, bool))))


def test_rows_that_hold_different_purchases_are_asked_about_separately():
    prices = PriceList(np.ones(3), np.arange(3))
    X = np.arange(12.0).reshape(4, 3)
    source = StrictSource(X, np.ones(X.shape, dtype=bool))
    reader = PurchaseReader(source, prices, Schema(None, ("a", "b", "c"), None, None))
    reader.block(np.array([0, 1]), np.array([0]))
    np.testing.assert_array_equal(reader.block(np.arange(4), np.array([0, 1])), X[:, :2])
    np.testing.assert_array_equal(reader.part(np.array([2])).native, X[[2]])
    assert source.asked.sum() == 9


@pytest.mark.parametrize(("kind", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_what_is_bought_reaches_the_full_model_as_the_kind_of_table_it_knows(kind, frame):
    seen = []

    def note(table):
        seen.append(table)
        return np.full(len(table), 0.9)

    system, X = chain(8, full_columns=np.array([1, 4])), rows_of(8)
    system = replace(system, full=CallableFull(note, TASK), names=tuple(NAMES), kind=kind)
    system.at(Policy.of(np.full(2, -np.inf))).buy(StrictSource(X, np.ones(X.shape, bool)), on_failure="raise")
    assert isinstance(seen[0], frame)
    assert list(seen[0].columns) == ["b", "e"]
    np.testing.assert_array_equal(seen[0].to_numpy(), X[:, [1, 4]])


def test_a_source_may_answer_with_named_columns_in_any_order():
    class Shuffled(StrictSource):
        def fetch(self, rows, columns):
            frame = pd.DataFrame(super().fetch(rows, columns), columns=[NAMES[one] for one in columns])
            return frame[frame.columns[::-1]]

    X = rows_of(8)
    system = replace(chain(8), names=tuple(NAMES))
    np.testing.assert_array_equal(
        system.buy(Shuffled(X, np.ones(X.shape, bool)), on_failure="raise").answer,
        system.predict(pd.DataFrame(X, columns=NAMES)),
    )


def test_a_chain_reads_tables_of_every_kind_and_refuses_other_widths():
    system, X = chain(2), rows_of(2)
    named = replace(system, names=tuple(NAMES))
    for table in (pd.DataFrame(X, columns=NAMES), pl.DataFrame(X, schema=NAMES)):
        np.testing.assert_array_equal(named.route(table), system.route(X))
    for table in (sparse.csr_array(X), X.tolist()):
        np.testing.assert_array_equal(system.route(table), system.route(X))
    for width in (2, 12):
        with pytest.raises(InvalidInputError, match=f"6 columns of the price list; got {width}"):
            system.route(np.zeros((3, width)))
    with pytest.raises(InvalidInputError, match="Column 'c' holds text such as 'red'"):
        named.route(pd.DataFrame(X, columns=NAMES).assign(c="red"))


def test_what_is_not_a_source_is_refused():
    system, X = chain(2), rows_of(2)
    with pytest.raises(InvalidInputError, match=r"fetch\(rows, columns\); got ndarray"):
        system.buy(X)

    class Words(StrictSource):
        def fetch(self, rows, columns):
            return [["red"] * len(columns) for _ in rows]

    with pytest.raises(PurchaseFailedError, match="what a source answers must hold numbers"):
        system.buy(Words(X, np.ones(X.shape, bool)), on_failure="raise")


def test_a_table_reader_slices_rows_and_columns():
    X = np.arange(12.0).reshape(4, 3)
    reader = Table(X, X)
    np.testing.assert_array_equal(reader.block(np.array([1, 3]), np.array([0, 2])), X[[1, 3]][:, [0, 2]])
    np.testing.assert_array_equal(reader.part(np.array([1])).native, X[[1]])
    np.testing.assert_array_equal(reader.part(np.array([1, 3]), np.array([2])).native, X[[1, 3]][:, [2]])
