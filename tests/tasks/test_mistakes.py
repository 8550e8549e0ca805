"""What answers lose: against sums over all classes, scikit-learn's losses, and the count of errors."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import brier_score_loss, log_loss

from thrifty.engine.tasks.classes import CostMatrix, ProbabilityLoss, classification, read_loss
from thrifty.errors import InvalidInputError

SICK = np.array([[0.0, 4.0], [9.0, 1.0]])
THREE = np.array([[0.0, 1.0, 5.0], [2.0, 0.5, 2.0], [30.0, 8.0, 0.0]])
LABELS = {2: np.array(["ill", "well"]), 3: np.array(["a", "b", "c"])}


def task_of(loss, n_classes):
    return classification(LABELS[n_classes], read_loss(loss, LABELS[n_classes]))


@pytest.fixture(params=[2, 3])
def rows(request):
    """Labels, scores and believed scores of 200 rows."""
    n_classes, rng = request.param, np.random.default_rng(request.param)
    n_scores = 1 if n_classes == 2 else n_classes
    labels = LABELS[n_classes][rng.integers(0, n_classes, 200)]
    task = task_of("error", n_classes)
    return task.encode("y", labels, 200), *(2.0 * rng.normal(size=(2, 200, n_scores)))


def matrix_for(y):
    return SICK if y.min() < 0 else THREE


def test_the_answer_is_the_class_of_least_expected_cost_by_brute_force(rows):
    y, scores, _ = rows
    costs = matrix_for(y)
    task = task_of(costs, len(costs))
    outputs = task.outputs(scores)
    for answer, probability in zip(task.picked(outputs), outputs, strict=True):
        expected = [sum(probability[k] * costs[k, j] for k in range(len(costs))) for j in range(len(costs))]
        assert expected[answer] == min(expected)
    np.testing.assert_array_equal(task.best(scores), task.picked(outputs))
    np.testing.assert_array_equal(task.answers(outputs), task.classes[task.picked(outputs)])
    assert (task.picked(outputs) != outputs.argmax(axis=1)).any()


def test_quality_is_minus_the_entry_of_truth_and_answer_and_its_mean_is_expected(rows):
    y, scores, belief = rows
    costs = matrix_for(y)
    task = task_of(costs, len(costs))
    picked, truth = task.best(scores), task.strata(y)
    np.testing.assert_array_equal(task.quality_of_scores(y, scores), -costs[truth, picked])
    by_hand = [p @ costs[:, answer] for p, answer in zip(task.outputs(belief), picked, strict=True)]
    np.testing.assert_allclose(-task.expected_quality(task.expected_loss(scores, belief)), by_hand)
    assert task.mistake_price == costs.max()


def test_doubt_is_what_knowing_the_truth_would_save(rows):
    y, scores, _ = rows
    costs = matrix_for(y)
    task = task_of(costs, len(costs))
    outputs = task.outputs(scores)
    informed = outputs @ np.diag(costs)
    np.testing.assert_allclose(task.uncertainty(scores), (outputs @ costs).min(axis=1) - informed, atol=1e-12)


@pytest.mark.parametrize("price", [1.0, 7.5])
def test_equal_prices_of_all_mistakes_count_errors(rows, price):
    y, scores, belief = rows
    n_classes = len(matrix_for(y))
    task, plain = task_of(price * (1 - np.eye(n_classes)), n_classes), task_of("error", n_classes)
    for name in ("best", "uncertainty", "outputs"):
        np.testing.assert_array_equal(getattr(task, name)(scores), getattr(plain, name)(scores))
    np.testing.assert_array_equal(task.expected_loss(scores, belief), plain.expected_loss(scores, belief))
    right = plain.quality_of_scores(y, scores)
    np.testing.assert_array_equal(task.quality_of_scores(y, scores), np.where(right, 0.0, -price))


@pytest.mark.parametrize("kind", ["log", "brier"])
def test_losses_of_probabilities_are_those_of_scikit_learn(rows, kind):
    y, scores, belief = rows
    n_classes = len(matrix_for(y))
    task = task_of(kind, n_classes)
    labels, outputs = task.decode(y), task.outputs(scores)
    if kind == "log":
        theirs = log_loss(labels, outputs, labels=task.classes)
    elif n_classes == 2:
        theirs = brier_score_loss(labels, outputs[:, 1], pos_label="well")
    else:
        theirs = np.square(outputs - np.eye(3)[task.strata(y)]).sum(axis=1).mean()
    assert -task.quality_of_scores(y, scores).mean() == pytest.approx(theirs)
    np.testing.assert_array_equal(task.answers(outputs), task.classes[outputs.argmax(axis=1)])
    # No probabilities lose less, by some belief, than that belief itself.
    assert (task.expected_loss(scores, belief) >= task.expected_loss(belief, belief) - 1e-12).all()


def test_the_best_constant_is_the_cheapest_of_all_constants():
    y, weight = np.array([0.0, 0.0, 1.0, 2.0]), np.array([3.0, 1.0, 2.0, 1.0])
    shares = np.array([4.0, 2.0, 1.0]) / 7.0
    assert task_of(THREE, 3).constant_quality(y, weight) == pytest.approx(-(shares @ THREE).min())
    assert task_of("log", 3).constant_quality(y, weight) == pytest.approx(shares @ np.log(shares))


@pytest.mark.parametrize(
    ("loss", "word"),
    [
        ([[0.0, -1.0], [1.0, 0.0]], "'ill' is answered with 'well'"),
        ([[0.0, np.nan], [1.0, 0.0]], "got nan"),
        ([[0.0, np.inf], [1.0, 0.0]], "got inf"),
        ([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]], r"shape \(2, 2\).*got shape \(2, 3\)"),
        ([1.0, 2.0], "got shape"),
        ([[0.0, 1.0], [2.0, 3.0]], "'well' answered rightly costs 3.0"),
        ([[1.0, 1.0], [2.0, 2.0]], "no test is worth its price"),
        ("absolute", "got 'absolute'"),
        (None, "got shape"),
        ([["x", "y"], ["z", "w"]], "must be"),
    ],
)
def test_what_is_no_loss_is_refused_in_words(loss, word):
    with pytest.raises(InvalidInputError, match=word):
        read_loss(loss, LABELS[2])


def test_a_right_answer_may_cost_as_much_as_the_cheapest_mistake():
    assert isinstance(read_loss([[1.0, 1.0], [4.0, 2.0]], LABELS[2]), CostMatrix)
    assert read_loss("error", LABELS[2]) is None
    assert read_loss("log", LABELS[2]) == ProbabilityLoss("log")


def test_a_row_alone_costs_to_the_last_bit_what_it_costs_in_a_batch():
    outputs = softmax(np.random.default_rng(0).normal(size=(50, 3)), axis=1)
    together = task_of(THREE, 3).mistakes.uncertainty(outputs)
    alone = np.array([task_of(THREE, 3).mistakes.uncertainty(outputs[i : i + 1])[0] for i in range(50)])
    np.testing.assert_array_equal(together, alone)
