"""Cascades in files: bit by bit as before, and refused where a part is not what it must be."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty import BudgetedClassifier, InvalidInputError
from thrifty.bundle import from_bytes, to_bytes
from thrifty.chain.cascade_system import CascadeStep, CascadeSystem


@pytest.fixture(scope="module")
def cascade(rows):
    f0 = rows[1] * 0.9 + 0.05
    f0[::20] = 0.6  # an f0 that is always right would be suspected of having seen the rows
    return BudgetedClassifier(f0, budget=1.5, sizes=[(6, 3)], cv=3, random_state=0).fit(*rows)


def test_a_system_alone_comes_back_as_it_was(cascade, rows):
    again = from_bytes(to_bytes(cascade.system_))
    assert isinstance(again, CascadeSystem)
    np.testing.assert_array_equal(again.predict_proba(rows[0]), cascade.predict_proba(rows[0]))
    np.testing.assert_array_equal(again.cost(rows[0]), cascade.cost(rows[0]))


def test_a_learned_gate_is_kept(cascade, rows):
    system = cascade.system_
    gated = tuple(
        CascadeStep(step.columns, step.trees, step.slope, step.intercept, _gate(step))
        for step in system.steps
    )
    system = replace(system, steps=gated)
    np.testing.assert_array_equal(from_bytes(to_bytes(system)).route(rows[0]), system.route(rows[0]))


def _gate(step):
    """The stage's own trees, read as if their output were the gate's, over one more column."""
    return replace(step.trees, n_features=len(step.columns) + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part["operating"].update(lower=99), r"lower .*\[0, "),
        (lambda part: part["operating"].update(share=1.5), "share"),
        (lambda part: part.update(steps=[]), "steps"),
        (lambda part: part["steps"].reverse(), "columns|trees"),
        (lambda part: part["operating"].pop("thresholds"), "thresholds"),
        (lambda part: part.update(blend=part["operating"]["cost"]), "blend"),
    ],
)
def test_a_forged_part_is_refused_by_name(cascade, forge, change, message):
    data = forge.with_fact(to_bytes(cascade.system_), lambda manifest: change(manifest["cascade"]))
    with pytest.raises(InvalidInputError, match=message):
        from_bytes(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part["held_out"].update(gate=part["held_out"]["right"]), "gate"),
        (lambda part: part["held_out"].update(full_right=part["held_out"]["gate"]), "full_right"),
        (lambda part: part.update(max_loss=1.5), "max_loss"),
        (lambda part: part["operating"].update(upper=-1), "lower"),
        (lambda part: part.pop("blend"), "blend"),
    ],
)
def test_a_forged_memory_is_refused_by_name(cascade, forge, change, message):
    data = forge.with_fact(to_bytes(cascade), lambda manifest: change(manifest["memory"]))
    with pytest.raises(InvalidInputError, match=message):
        from_bytes(data)


def test_a_file_without_a_memory_answers_and_says_what_it_cannot_do(cascade, forge, rows):
    again = from_bytes(forge.with_fact(to_bytes(cascade), lambda manifest: manifest.pop("memory")))
    np.testing.assert_array_equal(again.predict_proba(rows[0]), cascade.predict_proba(rows[0]))
    with pytest.raises(InvalidInputError, match="files of the first versions do not keep"):
        again.at(max_loss=0.1)


def test_a_cascade_is_not_taken_for_another_estimator(cascade, forge):
    data = forge.with_fact(
        to_bytes(cascade), lambda manifest: manifest.update({"class": "GreedyMiserClassifier"})
    )
    with pytest.raises(InvalidInputError, match="class"):
        from_bytes(data)
