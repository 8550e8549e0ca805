"""Files in format 2 that later versions must read: a cascade, a chain in front of a chain, and a mixed point.

Where a file is at a mix of two operating points, chance decides whose thresholds a row follows; so each row must be
answered as one of the two points answers it.
"""

import numpy as np
import pytest

from thrifty import BudgetedClassifier, DynaModLinClassifier

FILES = ("budgeted", "nested", "mixed")


@pytest.fixture(scope="module")
def ours(kept):
    return kept("format_2")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_file_answers_as_when_it_was_written(name, again, ours):
    clf = ours.load(name, again=again)
    policy = clf.chain_.policy
    if not policy.is_mixed:
        assert ours.differing(name, clf).tolist() == []
        return
    lower, upper = (clf.chain_.at(policy.at(point)) for point in (policy.lower, policy.upper))
    not_lower, not_upper = ours.differing(name, lower), ours.differing(name, upper)
    assert len(not_lower) > 0
    assert len(not_upper) > 0
    assert np.intersect1d(not_lower, not_upper).tolist() == []


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_file_knows_its_operating_points(name, again, ours):
    clf, was = ours.load(name, again=again), ours.answers
    found = [clf.frontier_.cost, clf.frontier_.score]
    np.testing.assert_allclose(found, was[f"{name}_frontier"], **ours.agree)
    found = [clf.expected_cost_, clf.expected_score_]
    np.testing.assert_allclose(found, was[f"{name}_expected"], **ours.agree)
    explained = [one.cost for one in clf.explain(ours.new)]
    np.testing.assert_array_equal(explained, clf.cost(ours.new))


def test_files_are_what_they_are_called(ours):
    budgeted, nested, mixed = map(ours.load, FILES)
    assert isinstance(budgeted, BudgetedClassifier)
    assert budgeted.certificate_.max_loss == 0.2
    assert isinstance(nested, DynaModLinClassifier)
    assert nested.chain_.n_stages > nested.chain_.n_own_stages == 1
    assert isinstance(mixed, BudgetedClassifier)
    assert mixed.chain_.policy.is_mixed
