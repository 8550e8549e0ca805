"""A small real example: digits, a forest behind, a cascade of five stages before it, and a gate as its rival."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from reproduction.datasets import load_digits_at_least_five
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from tests.mixes import mixed_at
from thrifty import BudgetedClassifier, Prices, StageOptions
from thrifty.reporting.measure import measure

BUDGET = 12.0


@pytest.fixture(scope="session")
def digits():
    """Rows of the report, others to prove with, and a gate in front of a fitted forest."""
    split = load_digits_at_least_five()
    full = ExtraTreesClassifier(40, random_state=0).fit(split.X_train, split.y_train)
    gate = GreedyMiserClassifier(n_trees=30, gamma=6.0, prices=Prices(full=5.0)).fit(
        split.X_train, split.y_train
    )
    half = len(split.y_test) // 2
    X, y = split.X_test[:half], split.y_test[:half]
    return SimpleNamespace(
        split=split,
        full=full,
        gate=gate.with_full(full),
        X=X,
        y=y,
        names=[f"feature {column}" for column in range(64)],
        groups={"bright": np.where(X.mean(axis=1) > 4.9, "bright", "dark")},
    )


@pytest.fixture(scope="session")
def cascade():
    """Five stages in front of a forest, all of it small."""
    split = load_digits_at_least_five()
    forest = ExtraTreesClassifier(40, random_state=0)
    return BudgetedClassifier(
        forest,
        prices=Prices(full=5.0),
        stages=StageOptions(max_stages=5, sizes=[(20, 3)], structure="line"),
        cv=3,
        random_state=0,
    ).fit(split.X_train, split.y_train)


@pytest.fixture(scope="session")
def deployed(cascade):
    """The cascade at a mix of two of its points, as a file of 0.3 may hold it."""
    mixed = mixed_at(cascade, BUDGET)
    assert mixed.chain_.policy.is_mixed
    return mixed


@pytest.fixture(scope="session")
def facts(deployed, digits):
    """All that a page can show; the certified point is another one than the deployed one."""
    found = measure(
        deployed, digits.X, digits.y, by=digits.groups, rivals={"one fit": digits.gate.chain_}, n_boot=200
    )
    others = (place for place in range(len(found)) if place not in found.marked.values())
    place = next(place for place in others if found.share[place] > 0)
    sentence = "loses at most 5 % against the full model, with 95 % confidence"
    return replace(
        found,
        title="Digits: five or more?",
        notes=(("Date", "1 April 2026"),),
        certificate=sentence,
        marked={**found.marked, "certified": place},
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

    return replace(spoil(facts), kind=facts.kind)
