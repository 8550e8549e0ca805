import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.utils import get_tags

import thrifty
from thrifty import ConfidenceRouter, DynaModLinClassifier, GatedSystem, InvalidInputError, Stage, Tie
from thrifty.bundle import Codec, from_bytes, register_scorer, to_bytes
from thrifty.bundle.scorers import _CODECS
from thrifty.estimators.rivals.foreign import ConfidenceGate, ForeignScorer
from thrifty.full.model import AbsentFull, PrecomputedFull
from thrifty.learning.pairs.linear import LinearScorer
from thrifty.objective.costs import PriceList

NAMES = (
    "linear", "margin", "boosted", "reading", "greedy", "miser", "confidence", "uniform", "frame", "chain",
)  # fmt: skip


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
    for ask in ("predict_proba", "decision_function", "route", "cost", "predict"):
        np.testing.assert_array_equal(getattr(one, ask)(X), getattr(other, ask)(X), strict=True)
    for ours, theirs in zip(one.scores(X), other.scores(X), strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_estimator_answers_bit_by_bit_as_before(name, fitted, rows, tmp_path):
    before = fitted[name]
    path = tmp_path / "system.thrifty"
    thrifty.save(before, path)
    after = thrifty.load(path)
    assert type(after) is type(before)
    X = table_for(before, rows)
    assert_same_answers(after, before, X)
    g, _ = before.scores(X)
    middle = float(np.median(g))
    full = LogisticRegression().fit(X, before.predict(X))
    ours, theirs = after.with_full(full).at(middle), before.with_full(full).at(middle)
    assert_same_answers(ours, theirs, X)
    budget = float(theirs.cost(X).mean())
    assert ours.threshold_for(X, budget=budget) == theirs.threshold_for(X, budget=budget)
    ours, theirs = Source(rows[0]), Source(rows[0])
    np.testing.assert_array_equal(after.predict_from(ours), before.predict_from(theirs), strict=True)
    assert ours.asked == theirs.asked


@pytest.mark.parametrize("name", NAMES)
def test_learned_attributes_come_back_with_their_types(name, fitted):
    before = fitted[name]
    after = from_bytes(to_bytes(before))
    learned = {key for key in vars(before) if key.endswith("_") and key != "system_"}
    assert learned == {key for key in vars(after) if key.endswith("_") and key != "system_"}
    for key in learned:
        was, now = getattr(before, key), getattr(after, key)
        assert type(was) is type(now), key
        if isinstance(was, np.ndarray):
            np.testing.assert_array_equal(now, was, strict=True)
        else:
            assert now == was, key


@pytest.mark.parametrize("name", NAMES)
def test_parameters_that_are_plain_data_come_back(name, fitted):
    before, after = (
        fitted[name].get_params(deep=False),
        from_bytes(to_bytes(fitted[name])).get_params(deep=False),
    )
    assert list(before) == list(after)
    for key in set(before) - {"full", "cheap"}:
        assert type(after[key]) is type(before[key])
        assert after[key] == before[key]


@pytest.mark.parametrize("name", NAMES)
def test_a_system_alone_can_be_saved_too(name, fitted, rows):
    before = fitted[name].system_
    after = from_bytes(to_bytes(before))
    assert isinstance(after, GatedSystem)
    X = table_for(fitted[name], rows)
    for ask in ("predict_proba", "route", "cost", "predict"):
        np.testing.assert_array_equal(getattr(after, ask)(X), getattr(before, ask)(X), strict=True)


def test_a_bundle_of_a_bundle_is_the_same_bundle(fitted):
    # Without f0, whose archive carries names that skops draws anew each time.
    for estimator in fitted.values():
        if not isinstance(estimator, ConfidenceRouter | thrifty.UniformRouter):
            data = to_bytes(estimator, full="absent")
            assert to_bytes(from_bytes(data), full="absent") == data


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


@pytest.mark.parametrize("labels", [[False, True], [-1.5, 2.5], ["no", "yes"], [np.uint8(3), np.uint8(9)]])
def test_labels_of_every_kind_come_back(labels):
    for classes in (np.array(labels), np.array(labels, dtype=object)):
        system = GatedSystem((), AbsentFull(), PriceList(np.ones(2), np.arange(2)), classes)
        after = from_bytes(to_bytes(system)).classes
        np.testing.assert_array_equal(after, classes, strict=True)
        assert [type(label) for label in after] == [type(label) for label in classes]


def test_probabilities_and_infinite_thresholds_come_back():
    scorer = LinearScorer(np.array([1]), np.array([[1.0, 2.0]]), np.zeros(2))
    for threshold in (-np.inf, np.inf, 0.1 + 0.2):
        prices = PriceList(np.ones(2), np.arange(2), 0.1)
        stages = (Stage(scorer, threshold),)
        system = GatedSystem(stages, PrecomputedFull(np.array([0.1, 1.0])), prices, np.arange(2))
        after = from_bytes(to_bytes(system))
        assert after.stages[0].threshold == threshold
        np.testing.assert_array_equal(after.full.values, system.full.values)


def test_a_tie_comes_back_and_files_without_one_have_none():
    scorer = LinearScorer(np.array([1]), np.array([[1.0, 2.0]]), np.zeros(2))
    prices = PriceList(np.ones(2), np.arange(2), 0.1)
    for tie in (None, Tie(-np.inf, 0.3, seed=7), Tie(0.25, 1.0)):
        system = GatedSystem((Stage(scorer, 0.5, tie),), AbsentFull(), prices, np.arange(2))
        data = to_bytes(system)
        assert from_bytes(data).stages[0].tie == tie
        assert (b"tie" in data) == (tie is not None)
        X = np.column_stack([np.arange(100.0), np.full(100, 0.4)])
        np.testing.assert_array_equal(from_bytes(data).route(X), system.route(X))


def test_a_system_of_ours_may_be_the_cheap_model_of_a_router_or_the_f0_of_a_bare_system(fitted, rows):
    inner = fitted["linear"]
    router = ConfidenceRouter(LogisticRegression(), FrozenEstimator(inner), p_full=0.4).fit(*rows)
    assert_same_answers(from_bytes(to_bytes(router)), router, rows[0])
    nested = GatedSystem((), inner.system_, inner.system_.price_list, inner.classes_)
    after = from_bytes(to_bytes(nested))
    np.testing.assert_array_equal(after.predict_proba(rows[0]), nested.predict_proba(rows[0]), strict=True)


def test_what_has_no_form_in_a_bundle_is_refused_when_saving(fitted, rows):
    class Unknown(DynaModLinClassifier):
        pass

    with pytest.raises(
        InvalidInputError, match="a bundle holds a GatedSystem or one of .*; got LogisticRegression"
    ):
        to_bytes(LogisticRegression())
    with pytest.raises(InvalidInputError, match="got Unknown"):
        to_bytes(Unknown())
    with pytest.raises(InvalidInputError, match="must be fitted before it is saved"):
        to_bytes(DynaModLinClassifier())
    with pytest.raises(
        InvalidInputError, match="full must be one of 'inside', 'reference', 'absent'; got 'outside'"
    ):
        to_bytes(fitted["linear"], full="outside")
    system = fitted["linear"].system_
    scorer = ForeignScorer(np.arange(2), AbsentFull(), lambda block, f1: f1)
    with pytest.raises(InvalidInputError, match="no form for the gate function"):
        to_bytes(system.behind(Stage(scorer)))


def test_a_scorer_of_somebody_else_can_be_made_known(rows, fitted, monkeypatch):
    monkeypatch.setattr("thrifty.bundle.scorers._CODECS", dict(_CODECS))

    class Constant:
        def __init__(self, g):
            self.columns, self.g = np.array([0]), g

        def __call__(self, block):
            return np.full(block.shape[0], self.g), np.ones(block.shape[0])

    system = fitted["linear"].system_.behind(Stage(Constant(0.25)))
    with pytest.raises(InvalidInputError, match="no form for the scorer Constant"):
        to_bytes(system)
    register_scorer(
        Codec(
            Constant,
            lambda scorer, writing: {"g": writing.packer.value(scorer.g)},
            lambda fields, reading: Constant(fields.number("g")),
        )
    )
    after = from_bytes(to_bytes(system))
    np.testing.assert_array_equal(after.predict_proba(rows[0]), system.predict_proba(rows[0]), strict=True)


def test_the_layout_of_an_array_comes_back():
    coef = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    scorer = LinearScorer(np.arange(3), coef, np.zeros(2))
    system = GatedSystem((Stage(scorer),), AbsentFull(), PriceList(np.ones(3), np.arange(3)), np.arange(2))
    after = from_bytes(to_bytes(system)).stages[0].scorer.coef
    assert after.flags.f_contiguous
    np.testing.assert_array_equal(after, coef)


def test_a_gate_by_confidence_needs_nothing_but_its_name(fitted):
    assert isinstance(
        from_bytes(to_bytes(fitted["confidence"])).system_.stages[0].scorer.gate, ConfidenceGate
    )


def test_whole_numbers_where_others_belong_are_written_as_such_numbers():
    scorer = LinearScorer([0, 1], np.array([[1, 2], [3, 4]]), np.array([0, 0]), 0)
    system = GatedSystem(
        (Stage(scorer, 1),), PrecomputedFull([0, 1]), PriceList([1, 2], [0, 1], 3), np.arange(2)
    )
    after = from_bytes(to_bytes(system))
    assert after.stages[0].scorer.coef.dtype == np.float64
    assert after.cost(np.ones((2, 2))).tolist() == [6.0, 6.0]
