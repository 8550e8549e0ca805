"""A small real example: digits, a forest behind, three fits before it; chosen on some rows, scored on others."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from reproduction.datasets import load_digits_at_least_five
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from thrifty import (
    BudgetedClassifier,
    Frontier,
    certify,
    evidence_of,
)
from thrifty.reporting.measure import measure

GAMMAS = (15.0, 6.0, 2.0)
DEPLOYED_BUDGET = 20.0


@pytest.fixture(scope="session")
def digits():
    split = load_digits_at_least_five()
    full = ExtraTreesClassifier(40, random_state=0).fit(split.X_train, split.y_train)
    fits = [
        GreedyMiserClassifier(n_trees=30, gamma=gamma, full_cost=5.0)
        .fit(split.X_train, split.y_train)
        .with_full(full)
        for gamma in GAMMAS
    ]

    def look(X, y):
        known = full.predict_proba(X)
        return [
            evidence_of(fit, X, y, settings={"gamma": gamma}, full_probability=known)
            for fit, gamma in zip(fits, GAMMAS, strict=True)
        ]

    X, y, half = split.X_test, split.y_test, len(split.y_test) // 2
    chosen = Frontier.from_evidence(look(split.X_val, split.y_val))
    safe = Frontier.from_evidence(look(split.X_val, split.y_val), against_full=True)
    return SimpleNamespace(
        fits=fits,
        full=full,
        look=look,
        chosen=chosen,
        X=X[:half],
        y=y[:half],
        frontier=chosen.on(look(X[:half], y[:half])),
        certificate=certify(safe.on(look(X[half:], y[half:])), max_loss=0.05),
        prices=fits[0].chain_.price_list,
        names=split.feature_names,
        slices={"bright": np.where(X[:half].mean(axis=1) > 4.9, "bright", "dark")},
    )


@pytest.fixture(scope="session")
def facts(digits):
    return measure(
        digits.frontier,
        digits.y,
        chosen=digits.chosen,
        prices=digits.prices,
        feature_names=digits.names,
        slices=digits.slices,
        rivals={
            "one fit": Frontier.from_evidence(digits.chosen.evidence[2:]).on(digits.frontier.evidence[2:])
        },
        certificate=digits.certificate,
        deployed=DEPLOYED_BUDGET,
        title="Digits: five or more?",
        date="1 April 2026",
        n_boot=200,
    )


@pytest.fixture(scope="session")
def cascade():
    """Five stages in front of a forest, all of it small."""
    split = load_digits_at_least_five()
    forest = ExtraTreesClassifier(40, random_state=0)
    return BudgetedClassifier(forest, full_cost=5.0, stages=5, sizes=[(20, 3)], cv=3, random_state=0).fit(
        split.X_train, split.y_train
    )


@pytest.fixture(scope="session")
def cascade_facts(cascade, digits):
    return measure(
        cascade.frontier_.on([evidence_of(cascade, digits.X, digits.y)]),
        digits.y,
        chosen=cascade.frontier_,
        prices=cascade.chain_.price_list,
        feature_names=digits.names,
        deployed=DEPLOYED_BUDGET,
        n_boot=40,
    )


@pytest.fixture(scope="session")
def hostile_words():
    return "</script><script>window.hacked=1</script><img src=http://x.test onerror=window.hacked=1>\"'&"


@pytest.fixture(scope="session")
def hostile_facts(facts, hostile_words):
    """The same facts with every word replaced by one that tries to break out."""

    def spoil(value):
        if isinstance(value, str):
            return hostile_words
        if isinstance(value, tuple):
            return tuple(spoil(one) for one in value)
        if hasattr(value, "__dataclass_fields__"):
            return replace(
                value, **{name: spoil(getattr(value, name)) for name in value.__dataclass_fields__}
            )
        return value

    return spoil(facts)
