"""Labels told apart, the majority class, and the area under the ROC curve against closed forms and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from thrifty.errors import InvalidInputError
from thrifty.reporting.measure import MAX_LABELS, auc_of, majority_of, partition_of


@pytest.mark.parametrize(
    ("scores", "auc"),
    [
        ([1, 2, 3, 4], 1.0),
        ([4, 3, 2, 1], 0.0),
        ([5, 5, 5, 5], 0.5),
        ([1, 2, 2, 3], 7 / 8),
        ([1, 3, 2, 4], 3 / 4),
        ([-np.inf, 0, 0, np.inf], 7 / 8),
    ],
)
def test_auc_counts_pairs_in_the_right_order_and_ties_by_half(scores, auc):
    assert auc_of([0, 0, 1, 1], scores) == auc
    assert auc_of(["no", "no", "yes", "yes"], scores) == auc
    assert auc_of([True, True, False, False], scores) == 1 - auc


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=60))
def test_auc_is_that_of_scikit_learn_whatever_the_ties(rows):
    y, scores = np.array(rows).T
    if len(set(y)) == 2:
        assert auc_of(y, scores) == pytest.approx(roc_auc_score(y, scores))
    else:
        assert auc_of(y, scores) is None


def test_auc_needs_a_score_for_each_class_that_is_there():
    assert auc_of([1, 1, 1], [0.1, 0.2, 0.3]) is None
    assert auc_of([0, 1, 2], [0.1, 0.2, 0.3]) is None
    assert auc_of([0, 1, 1], np.zeros((3, 3))) is None


def test_auc_of_several_classes_is_the_mean_of_each_against_the_rest():
    rng = np.random.default_rng(0)
    y, scores = rng.integers(0, 3, 90), rng.normal(size=(90, 3))
    scores[np.arange(90), y] += 1.0
    expected = roc_auc_score(y, softmax(scores, axis=1), multi_class="ovr")
    assert auc_of(y, scores) == pytest.approx(expected)


@pytest.mark.parametrize("scores", [[0.1], [[[0.1], [0.2]]], [0.1, np.nan]])
def test_scores_that_are_not_numbers_per_row_are_refused(scores):
    with pytest.raises(
        InvalidInputError, match="scores must be one number per row, or one per row and class"
    ):
        auc_of([0, 1], scores)


def test_the_majority_class_is_the_most_frequent_and_of_several_the_first():
    assert (majority_of(["b", "a", "b"]).label, majority_of(["b", "a", "b"]).accuracy) == ("b", 2 / 3)
    assert majority_of([3, 1, 3, 1]).label == "1"
    assert majority_of(np.zeros(5)).accuracy == 1.0


def test_rare_classes_together_are_no_majority():
    y = np.r_[np.zeros(30, int), np.arange(1, 100)]
    assert partition_of("y", y, len(y)).labels[-1] == "81 others"
    assert majority_of(y).label == "0"
    assert majority_of(y).accuracy == pytest.approx(30 / 129)


def test_the_rarest_of_many_labels_are_shown_together():
    labels = np.repeat([f"town {k:02}" for k in range(40)], np.arange(1, 41))
    partition = partition_of("town", labels, len(labels))
    assert len(partition.labels) == MAX_LABELS
    assert partition.labels[-1] == "21 others"
    assert partition.count() == (*range(22, 41), sum(range(1, 22)))


def test_labels_of_mixed_kinds_and_missing_ones_are_told_apart():
    partition = partition_of("site", np.array([None, "a", float("nan"), 3, "a"], dtype=object), 5)
    assert dict(zip(partition.labels, partition.count(), strict=True)) == {
        "None": 1,
        "a": 2,
        "nan": 1,
        "3": 1,
    }
