"""What a model answers is checked, whatever the model is and wherever it is asked."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from thrifty import ConfidenceRouter, DynaModLinClassifier, evidence_of, hold_budget, point_of, sweep
from thrifty.engine.walk.chain import explain_rows
from thrifty.errors import InvalidAnswerError, InvalidInputError
from thrifty.reporting.measure import measure
from thrifty.scale.scorer import answers_of

TABLE = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 3)).round(3), columns=list("abc"))
TABLE.loc[[7, 30, 99], "a"] = 5.0
LABELS = np.where(TABLE["a"] + TABLE["b"] + 0.3 * TABLE["c"] > 0, "yes", "no")
THREE = np.where(TABLE["c"] > 0.8, "maybe", LABELS)


def spoil(answer, is_bad, fault):
    """Good probabilities with something wrong about the rows that are marked, or about all of them."""
    if fault == "text":
        return np.full(answer.shape, "0.5")
    if fault == "a row too few":
        return answer[1:]
    if fault == "one column":
        return answer[:, :1]
    if fault == "no table":
        return None
    if fault == "named in another order":
        return pd.DataFrame(
            answer[:, ::-1], columns=["yes", "maybe", "no"][:: 2 if answer.shape[1] == 2 else 1]
        )
    if fault == "masked":
        return np.ma.masked_array(answer, mask=np.broadcast_to(is_bad[:, None], answer.shape))
    if fault == "not available":
        return pd.DataFrame(np.where(is_bad[:, None], np.nan, answer)).astype("Float64")
    answer[is_bad] = {"missing": np.nan, "infinite": np.inf, "above one": 1.5, "below zero": -0.1}.get(
        fault, 0.1
    )
    return answer


ROWS = {
    "missing": r"probabilities in \[0, 1\]; got nan in row {}",
    "masked": r"probabilities in \[0, 1\]; got nan in row {}",
    "not available": r"probabilities in \[0, 1\]; got nan in row {}",
    "infinite": r"probabilities in \[0, 1\]; got inf in row {}",
    "above one": r"probabilities in \[0, 1\]; got 1.5 in row {}",
    "below zero": r"probabilities in \[0, 1\]; got -0.1 in row {}",
    "no sum of one": r"probabilities that sum to 1; got a sum of 0.[23] in row {}",
}
"""Faults of some rows, and what is said about the first."""
FAULTS = {
    **ROWS,
    "text": "got text such as '0.5'",
    "a row too few": r"got shape \(\d+, [23]\)",
    "one column": r"got shape \(\d+, 1\)",
    "no table": "got NoneType",
}


class Faulty(ClassifierMixin, BaseEstimator):
    """A classifier that breaks a rule where the column a is large."""

    def __init__(self, fault=None, speaks="predict_proba"):
        self.fault = fault
        self.speaks = speaks

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        if self.fault == "other classes":
            self.classes_ = self.classes_[::-1]
        return self

    def __getattr__(self, name):
        if name in ("predict_proba", "decision_function") and name == vars(self).get("speaks"):
            return self._answer
        raise AttributeError(name)

    def _answer(self, X):
        table = np.asarray(X)
        if self.speaks == "decision_function":
            bad = {"missing": np.nan, "infinite": np.inf}[self.fault]
            return np.where(table[:, 0] > 4, bad, table[:, 0])
        share = 1 / (1 + np.exp(-table[:, 0]))
        rest = (1 - share) / (len(self.classes_) - 1)
        answer = np.column_stack([*[rest] * (len(self.classes_) - 1), share])
        return spoil(answer, table[:, 0] > 4, self.fault)


def answers_with(fault, n_classes=2):
    """A function that breaks a rule as the classifier does."""
    model = Faulty(fault).fit(TABLE, LABELS if n_classes == 2 else THREE)
    return lambda table: model._answer(table)


class Own:
    """A full model of somebody's own make."""

    def __init__(self, fault):
        self._answer = answers_with(fault)

    def outputs(self, table, numbers):
        return self._answer(numbers)


def frozen(fault, **how):
    return FrozenEstimator(Faulty(fault, **how).fit(TABLE, LABELS))


def router(full, cheap=None):
    return ConfidenceRouter(full, cheap or LogisticRegression(), features=["b"], cv=2, random_state=0)


@pytest.fixture(scope="module")
def served():
    """A system that sends every row on, in front of a good model that was fitted on other rows."""
    return router(LogisticRegression()).fit(TABLE, LABELS).at(threshold=-np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two classes", "three classes"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fit_on_a_model_that_answers_wrongly_is_refused_by_the_rule_and_the_row(fault, labels):
    says = FAULTS[fault].format("(7|30|99)")
    for full in (Faulty(fault), FrozenEstimator(Faulty(fault).fit(TABLE, labels))):
        with pytest.raises(InvalidAnswerError, match=rf"the full model \(Faulty\) must give .*{says}"):
            router(full).fit(TABLE, labels)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_is_checked_in_every_form_of_the_full_model_when_it_serves(served, fault):
    for full, name in (
        (frozen(fault), "Faulty"),
        (answers_with(fault), "the function .*lambda.*"),
        (Own(fault), "Own"),
    ):
        with pytest.raises(
            InvalidAnswerError, match=rf"the full model \({name}\) must give .*{FAULTS[fault].format(7)}"
        ):
            served.with_full(full).predict(TABLE)


@pytest.mark.parametrize("fault", ROWS)
def test_probabilities_given_as_arrays_are_checked_row_by_row(served, fault):
    values = answers_with(fault)(TABLE)
    says = ROWS[fault].format(7) + r" \(wrong in 3 of 120 rows: 7, 30, 99\)"
    for given, act in (
        ("full", lambda: served.with_full(values, TABLE)),
        ("the full model", lambda: router(values).fit(TABLE, LABELS)),
        ("full_probability", lambda: point_of(served, TABLE, LABELS, full_probability=values)),
        (
            "full_val",
            lambda: sweep(
                router(np.full(120, 0.5)), {"p_full": [0.5]}, TABLE, LABELS, TABLE, LABELS, full_val=values
            ),
        ),
    ):
        with pytest.raises(InvalidAnswerError, match=f"^{given} must give {says}"):
            act()


DOORS = {
    "predict_proba": lambda clf: clf.predict_proba(TABLE),
    "decision_function": lambda clf: clf.decision_function(TABLE),
    "score": lambda clf: clf.score(TABLE, LABELS),
    "explain": lambda clf: clf.explain(TABLE),
    "evidence_of": lambda clf: evidence_of(clf, TABLE, LABELS),
    "point_of": lambda clf: point_of(clf, TABLE, LABELS),
    "certified": lambda clf: clf.certified(TABLE, LABELS, max_loss=0.5),
    "chain": lambda clf: clf.chain_.predict(TABLE),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_refusal_counts_rows_as_the_table_of_the_user_does_at_every_door(served, door):
    with pytest.raises(InvalidAnswerError, match="got nan in row 7 .*3 of 120 rows: 7, 30, 99"):
        DOORS[door](served.with_full(frozen("missing")))


def test_rows_keep_their_numbers_behind_a_gate_behind_a_chain_and_in_a_file(served):
    some = served.at(threshold=served.scores(TABLE)[0][7] - 1e-9)
    assert 0 < np.sum(some.route(TABLE) == 1) < 120
    with pytest.raises(InvalidAnswerError, match="nan in row 7 "):
        some.with_full(frozen("missing")).predict(TABLE)
    inner = served.with_full(frozen("missing"))
    with pytest.raises(InvalidAnswerError, match=r"the full model \(Faulty\) .*nan in row 7 "):
        served.with_full(inner.chain_).predict(TABLE)
    with pytest.raises(InvalidAnswerError, match=r"the full model \(Faulty\) .*nan in row 7 "):
        router(FrozenEstimator(inner)).fit(TABLE, LABELS)
    # Rows of a file count from 1.
    chain = inner.chain_
    cells = chain.schema.cells(TABLE)
    for act in (
        lambda: answers_of(chain, cells),
        lambda: measure(inner, chain.schema.table_of(cells), LABELS),
        lambda: explain_rows(chain, chain.reader(cells), chain.schema.names),
    ):
        with pytest.raises(InvalidAnswerError, match=r"nan in row 8 .*8, 31, 100"):
            act()


def test_rows_keep_their_numbers_where_some_weigh_nothing_and_in_a_sweep():
    weight = np.where(np.arange(120) < 7, 0.0, 1.0)
    for full in (Faulty("missing"), frozen("missing")):
        with pytest.raises(InvalidAnswerError, match=r"row (7|30|99) .*(7|30|99)"):
            router(full).fit(TABLE, LABELS, sample_weight=weight)
    with pytest.raises(InvalidAnswerError, match=r"the full model \(Faulty\) .*nan in row 7 "):
        sweep(router(frozen("missing")), {"p_full": [0.5]}, TABLE, LABELS, TABLE, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ROWS)
def test_the_cheap_model_of_a_router_is_checked_in_its_own_name(fault):
    says = rf"the cheap model \(Faulty\) must give .*{ROWS[fault].format('(7|30|99)')}"
    with pytest.raises(InvalidAnswerError, match=says):
        ConfidenceRouter(LogisticRegression(), Faulty(fault), features=["a"], cv=2).fit(TABLE, LABELS)
    good = TABLE.clip(upper=3.0)
    fitted = ConfidenceRouter(LogisticRegression(), Faulty(fault), features=["a"], cv=2, random_state=0).fit(
        good, LABELS
    )
    for act in (fitted.cost, fitted.predict, lambda table: hold_budget(fitted, table, 2.0)):
        with pytest.raises(InvalidAnswerError, match=says):
            act(TABLE)


@pytest.mark.parametrize("fault", ["missing", "infinite"])
def test_decision_values_must_be_finite_and_one_for_each_row(served, fault):
    bad = {"fault": fault, "speaks": "decision_function"}
    for act in (
        lambda: router(Faulty(**bad)).fit(TABLE, LABELS),
        lambda: router(frozen(**bad)).fit(TABLE, LABELS),
        lambda: served.with_full(frozen(**bad)).predict(TABLE),
    ):
        with pytest.raises(
            InvalidAnswerError, match=r"finite decision values; got (nan|inf) in row (7|30|99)"
        ):
            act()


def test_a_model_of_classes_in_another_order_is_refused_however_it_says_them(served):
    for full in (Faulty("other classes"), frozen("other classes")):
        with pytest.raises(
            InvalidInputError, match=r"classes \['yes', 'no'\], but y holds \['no', 'yes'\].*same order"
        ):
            router(full).fit(TABLE, LABELS)
    for full in (frozen("named in another order"), answers_with("named in another order")):
        with pytest.raises(
            InvalidAnswerError, match=r"order of the classes, \['no', 'yes'\]; got columns \['yes', 'no'\]"
        ):
            served.with_full(full).predict(TABLE)


def test_single_precision_is_no_fault(served):
    good = np.array([[0.3, 0.7]] * 120, dtype=np.float32)
    good[0] = [-1e-8, 1.0 + 1.2e-7]
    good[1] = [0.3, 0.7004]
    answered = served.with_full(lambda table: good[: len(table)]).predict_proba(TABLE)
    np.testing.assert_allclose(answered[2], [0.3, 0.7], atol=1e-6)
    assert answered[0, 1] == pytest.approx(1.0, abs=1e-5)


def test_a_refusal_survives_the_way_between_processes():
    with pytest.raises(InvalidAnswerError) as seen:
        DynaModLinClassifier(Faulty("missing"), cv=2).fit(TABLE, LABELS)
    for again in (pickle.loads(pickle.dumps(seen.value)), copy.copy(seen.value)):
        assert str(again) == str(seen.value)
        assert again.rows == seen.value.rows
