"""What a cascade takes in a file: less where it may take less, and little anyway."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

from thrifty import BudgetedClassifier, StageOptions
from thrifty.bundle import from_bytes, to_bytes
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.stages import stored_bytes


@pytest.fixture(scope="module")
def rows():
    return make_classification(900, 6, n_informative=4, n_redundant=1, flip_y=0.1, random_state=0)


def fitted(rows, max_bytes=None):
    X, y = rows
    full = np.clip(0.5 + 0.4 * (y - 0.5) + np.random.default_rng(0).normal(size=len(y)) * 0.3, 0.05, 0.95)
    return BudgetedClassifier(
        full, stages=StageOptions(3, [(30, 6)], max_bytes=max_bytes), cv=2, random_state=0
    ).fit(X, y)


def in_file(clf):
    return len(to_bytes(clf, full="absent", evidence=False))


@pytest.fixture(scope="module")
def unlimited(rows):
    return fitted(rows)


def test_trees_take_half_of_their_bytes_in_memory_and_answer_alike_when_loaded(unlimited, rows):
    n_leaves = sum(len(stage.trees.values) for stage in unlimited.chain_.stages)
    bound = sum(stored_bytes(stage.trees) for stage in unlimited.chain_.stages)
    assert in_file(unlimited) < bound + 17_000  # probabilities of the full model, prices, entries of arrays
    assert bound < 16 * n_leaves  # where thresholds are many; 31 before they were compact
    back = from_bytes(to_bytes(unlimited, full="absent")).with_full(unlimited.chain_.full)
    np.testing.assert_array_equal(back.predict_proba(rows[0]), unlimited.predict_proba(rows[0]))
    for one, other in zip(back.chain_.stages, unlimited.chain_.stages, strict=True):
        np.testing.assert_array_equal(one.trees.children, other.trees.children)


def test_a_cascade_keeps_to_the_bytes_that_it_may_take(unlimited, rows):
    most = sum(stored_bytes(stage.trees) for stage in unlimited.chain_.stages) // 3
    small = fitted(rows, max_bytes=most)
    taken = sum(stored_bytes(stage.trees) for stage in small.chain_.stages)
    assert 0.6 * most < taken <= most
    assert in_file(small) < 0.6 * in_file(unlimited)


def test_bytes_that_hold_no_tree_are_refused(rows):
    with pytest.raises(InvalidInputError, match="max_bytes must leave room for a tree in every stage, about"):
        fitted(rows, max_bytes=50)
    with pytest.raises(InvalidInputError, match="max_bytes"):
        fitted(rows, max_bytes=0)
