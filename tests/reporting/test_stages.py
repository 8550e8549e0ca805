"""Reports of stages before a cascade, and of full models that read some columns, against the systems."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from thrifty import DynaModLinClassifier, Frontier, Prices, evidence_of
from thrifty.reporting.measure import measure

pytestmark = pytest.mark.slow


def shares_of(facts, place):
    """Share of the rows that make each purchase, as the page tells it."""
    return {one.name: share for one, share in zip(facts.purchases, facts.bought[place], strict=True)}


def assert_explained(facts, place):
    bought = zip(facts.purchases, facts.bought[place], strict=True)
    paid = sum(one.price * share for one, share in bought)
    assert paid == pytest.approx(facts.cost.value[place])


def assert_as_bought(facts, place, bought, names):
    """Whether the lines of single columns say what the rows bought, shape (n_rows, n_features)."""
    said, really = shares_of(facts, place), dict(zip(names, bought.mean(axis=0), strict=True))
    single = said.keys() & really.keys()
    assert single
    assert {name: said[name] for name in single} == pytest.approx({name: really[name] for name in single})


def gates_of(facts, fit, digits):
    """Places of a single gate, each with the estimator at its threshold."""
    frontier = Frontier.from_evidence([evidence_of(fit.chain_, digits.X, digits.y)])
    assert len(frontier) == len(facts)
    for place in range(0, len(frontier), max(1, len(frontier) // 6)):
        yield place, fit.at(threshold=frontier[place].threshold)


def test_a_stage_in_front_of_a_cascade_is_told_apart_from_those_behind_it(cascade, digits):
    inner = cascade.at(budget=20.0)
    fit = digits.gate.with_full(inner.chain_)
    facts = measure(fit.chain_, digits.X, digits.y, n_boot=40)
    for place, there in gates_of(facts, fit, digits):
        route, n_stages = there.route(digits.X), there.chain_.n_stages
        assert n_stages == 1 + cascade.n_stages_
        assert facts.share[place] == pytest.approx((route == n_stages).mean())
        assert_as_bought(facts, place, there.chain_.bought_by_place[route], digits.names)
        assert_explained(facts, place)
        assert facts.score.value[place] == pytest.approx(there.score(digits.X, digits.y))


def test_a_full_model_that_reads_some_columns_is_billed_for_those_alone(digits):
    split, read = digits.split, np.arange(20, 30)
    fit = DynaModLinClassifier(
        ExtraTreesClassifier(20, random_state=0),
        gamma=0.03,
        p_full=0.4,
        prices=Prices(full=5.0, full_features=read),
    ).fit(split.X_train, split.y_train)
    facts = measure(fit.chain_, digits.X, digits.y, n_boot=40)
    assert facts.cost.full == 10 + 5
    cheap = set(fit.chain_.columns.tolist())
    unread = {digits.names[column] for column in set(range(64)) - cheap - set(read.tolist())}
    assert len(unread) > 30
    *_, last, call = facts.purchases
    assert (call.name, call.price) == ("asking the full model", 5.0)
    assert last.name == f"{len(unread)} others, read by no model"
    assert last.n_columns == last.price == len(unread)
    for place in range(len(facts)):
        assert shares_of(facts, place)[last.name] == 0
        assert_explained(facts, place)
