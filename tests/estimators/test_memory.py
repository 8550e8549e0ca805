"""What a fitted estimator keeps of its training rows."""

from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from thrifty import BudgetedClassifier, DynaModGbrtClassifier, Evidence, StageOptions
from thrifty.learners.dynamod import BoostedOptions

pytestmark = pytest.mark.slow

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(400, 3))
Y = X[:, 0] + X[:, 1] * X[:, 2] > 0.5 * CHANCE.normal(size=400)


def cascade(*, keeps_scores=False, **fitted):
    clf = BudgetedClassifier(
        LogisticRegression(), stages=StageOptions(max_stages=3, sizes=[(5, 2)]), cv=2, random_state=0
    )
    return clf._fit(X[:250], Y[:250], keeps_scores=keeps_scores, **fitted)


def bytes_per_row(evidence):
    """All that the arrays of some evidence hold on to, those that they are views of included."""
    arrays = [getattr(evidence, one.name) for one in fields(evidence)]
    owners = {}
    for array in arrays:
        if isinstance(array, np.ndarray) and evidence.n_rows in array.shape:
            owner = array if array.base is None else array.base
            owners[id(owner)] = owner.nbytes
    return sum(owners.values()) / evidence.n_rows


def gates_and_answers(evidence):
    """A gate score per stage, whether each stage, what is behind them and the full model are right.

    Besides two fingerprints, where a certificate may count the row, and the class, where it is known.
    """
    known = 16 * (evidence.rows is not None) + (evidence.strata is not None)
    return 8 * evidence.n_stages + evidence.n_stages + 2 + known


@pytest.fixture(scope="module")
def lean():
    return cascade()


def test_a_cascade_keeps_gates_and_who_was_right_and_a_byte_for_the_class_and_nothing_else_of_its_rows(lean):
    assert lean.evidence_.n_stages > 1
    assert lean.evidence_.strata.dtype == np.uint8
    assert bytes_per_row(lean.evidence_) == gates_and_answers(lean.evidence_)


def test_a_pair_keeps_no_more():
    pair = DynaModGbrtClassifier(LogisticRegression(), options=BoostedOptions(n_trees=3, max_iter=1)).fit(
        X, Y
    )
    assert bytes_per_row(pair.evidence_) == gates_and_answers(pair.evidence_)


def test_weights_that_differ_are_kept():
    weighted = cascade(sample_weight=np.where(Y[:250], 2.0, 1.0)).evidence_
    assert bytes_per_row(weighted) == gates_and_answers(weighted) + 8


def test_what_is_left_out_changes_no_operating_point(lean):
    whole = cascade(keeps_scores=True)
    assert whole.evidence_.scores is not None
    assert lean.expected_score_ == whole.expected_score_
    for name in ("cost", "score", "share"):
        np.testing.assert_array_equal(getattr(lean.frontier_, name), getattr(whole.frontier_, name))
    for wish in ({"budget": 1.6}, {"max_loss": 0.1}):
        one, other = lean.at(**wish), whole.at(**wish)
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))
        assert one.expected_cost_ == other.expected_cost_
    one, other = (clf.certified(X[250:], Y[250:], max_loss=0.4) for clf in (lean, whole))
    assert one.certificate_.as_dict() == other.certificate_.as_dict()


def test_gates_in_single_precision_would_send_rows_another_way():
    evidence = Evidence.of_gate(
        [0.1, 0.1 + 1e-12], stop_cost=0, go_cost=1, stop_quality=[True, False], go_quality=[True, True]
    )
    rounded = replace(evidence, gate=evidence.gate.astype(np.float32).astype(np.float64))
    assert evidence.every_point()[1].score.max() == 1.0
    assert [len(one.every_point()[0]) for one in (evidence, rounded)] == [3, 2]
