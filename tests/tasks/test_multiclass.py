"""The task of several classes: against brute force, generic optimisers, and the binary task where there are two."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.svm import SVC

from thrifty.engine.full.adapters import models_of
from thrifty.engine.tasks.classes import (
    CLIP,
    RIDGE,
    BinaryTask,
    MulticlassTask,
    classification,
    classification_of,
    multinomial_weights,
)
from thrifty.errors import InvalidInputError

TASK = MulticlassTask(np.array(["blue", "green", "red"]))


@pytest.fixture(scope="module")
def rows():
    """Two models' scores that say something about the labels, and weights."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300).astype(float)
    truth = np.eye(3)[y.astype(int)]
    last, full = (2.0 * truth + rng.normal(size=(2, 300, 3)) * [[[1.5]], [[0.8]]]) * [[[3.0]], [[0.4]]]
    return y, last + np.array([1.0, 0.0, -1.0]), full, rng.integers(1, 4, 300).astype(float)


def test_two_labels_are_a_binary_task_and_more_are_not():
    assert isinstance(classification(np.array([0, 1])), BinaryTask)
    assert classification_of(np.array([2, 0, 1, 1])) == MulticlassTask(np.array([0, 1, 2]))


def test_labels_come_back_from_their_numbers_and_strange_ones_are_refused():
    y = ["red", "blue", "green", "red"]
    code = TASK.encode("y", y, 4)
    assert code.tolist() == [2.0, 0.0, 1.0, 2.0]
    assert TASK.decode(code).tolist() == y
    with pytest.raises(InvalidInputError, match="got 'pink' in row 1"):
        TASK.encode("y", ["red", "pink"], 2)


def test_derivatives_are_those_of_the_loss(rows):
    y, last, _, _ = rows
    loss, step = TASK.loss(y), 1e-5
    gradient, hessian = loss.derivatives(last)
    for k in range(3):
        moved = np.eye(3)[k] * step
        up, here, down = (loss.values(last + by) for by in (moved, 0.0, -moved))
        np.testing.assert_allclose(gradient[:, k], (up - down) / (2 * step), atol=1e-7)
        np.testing.assert_allclose(hessian[:, k], (up - 2 * here + down) / step**2, atol=1e-4)


def test_the_base_is_the_constant_with_the_least_loss(rows):
    y, _, _, weight = rows
    loss = TASK.loss(y)
    found = minimize(lambda at: weight @ loss.values(np.tile(at, (len(y), 1))), np.zeros(3), tol=1e-12).x
    np.testing.assert_allclose(softmax(loss.base(weight)), softmax(found), atol=1e-5)


def test_scores_come_back_from_their_outputs_and_extremes_stay_finite(rows):
    _, last, _, _ = rows
    outputs = TASK.outputs(last)
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0)
    np.testing.assert_allclose(TASK.scores(outputs), np.maximum(log_softmax(last, axis=1), np.log(CLIP)))
    extreme = np.array([[1e300, -1e300, 0.0], [800.0, -800.0, 800.0]])
    assert np.isfinite(TASK.outputs(extreme)).all()
    assert np.isfinite(TASK.loss(np.array([1.0, 0.0])).values(extreme)).all()
    assert TASK.bounded(TASK.outputs(extreme)).min() > 0.9 * CLIP


def test_doubt_is_minus_the_gap_of_the_two_best_log_probabilities(rows):
    _, last, _, _ = rows
    ranked = np.sort(log_softmax(last, axis=1), axis=1)
    np.testing.assert_allclose(TASK.uncertainty(last), ranked[:, 1] - ranked[:, 2], atol=1e-12)
    np.testing.assert_array_equal(TASK.uncertainty(last), TASK.uncertainty(last[:, ::-1]))


def test_answers_quality_and_expectations_are_those_of_the_best_class(rows):
    y, last, full, _ = rows
    best, belief = last.argmax(axis=1), softmax(full, axis=1)
    outputs, everyone = TASK.outputs(last), np.arange(len(y))
    np.testing.assert_array_equal(TASK.answers(outputs), TASK.classes[best])
    np.testing.assert_array_equal(TASK.quality(y, outputs), best == y)
    np.testing.assert_array_equal(TASK.quality_of_scores(y, last), best == y)
    np.testing.assert_allclose(TASK.expected_loss(last, full), 1 - belief[everyone, best])


def test_the_weights_of_a_blend_are_those_a_generic_optimiser_finds(rows):
    y, last, full, weight = rows
    found = TASK.blend_weights(last, full, y, weight)
    scale = [
        np.sqrt(np.average(np.square(one - one.mean(axis=1, keepdims=True)).mean(axis=1), weights=weight))
        for one in (last, full)
    ]

    def value(at):
        losses = TASK.loss(y).values(TASK.blended(at, last, full))
        return weight @ losses + RIDGE / 2 * (at[:3] @ at[:3] + np.sum((at[3:] * scale) ** 2))

    other = minimize(value, TASK.full_alone, tol=1e-12).x
    np.testing.assert_allclose(found, other, atol=1e-4)
    assert weight @ TASK.loss(y).values(TASK.blended(found, last, full)) < min(
        weight @ TASK.loss(y).values(TASK.calibrated(one, TASK.calibrate(one, y, weight)))
        for one in (last, full)
    )


def test_scores_that_speak_against_the_labels_are_calibrated_to_the_shares_of_the_classes(rows):
    y, last, _, weight = rows
    calibrated = TASK.calibrated(last, TASK.calibrate(-last, y, weight))
    shares = np.bincount(y.astype(int), weights=weight) / weight.sum()
    np.testing.assert_allclose(TASK.outputs(calibrated), np.tile(shares, (len(y), 1)))


def test_a_row_of_weight_two_is_that_row_given_twice(rows):
    y, last, full, weight = rows
    twice = np.repeat(np.arange(len(y)), weight.astype(int))
    one = TASK.blend_weights(last, full, y, weight)
    other = TASK.blend_weights(last[twice], full[twice], y[twice], np.ones(len(twice)))
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_two_classes_are_blended_as_the_binary_task_does_but_for_the_ridge(rows):
    y, last, full, weight = rows
    two, large = y < 2, 1e4 * weight[y < 2]
    found = multinomial_weights([last[two][:, :2], full[two][:, :2]], y[two].astype(int), large)
    binary = BinaryTask(np.array([0, 1]))
    odds = [one[two][:, 1:2] - one[two][:, :1] for one in (last, full)]
    expected = binary.blend_weights(*odds, 2.0 * y[two] - 1.0, large)
    np.testing.assert_allclose([found[1] - found[0], *found[2:]], expected, atol=1e-3)


def test_pairwise_decisions_are_summed_as_log_sigmoids_and_others_taken_as_they_are():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), np.repeat([0, 1, 2, 3], 20)
    X += np.eye(4)[y][:, :3] * 3
    task = classification(np.arange(4))
    pairs = SVC(decision_function_shape="ovo").fit(X, y)
    summed = models_of(task).raw_outputs(pairs, X)
    assert summed.shape == (80, 4)
    assert np.mean(summed.argmax(axis=1) == pairs.predict(X)) > 0.9
    rest = SVC().fit(X, y)
    np.testing.assert_array_equal(models_of(task).raw_outputs(rest, X), rest.decision_function(X))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([0.2, 0.8], r"each of 3 classes per row, shape \(2, 3\), in the order \['blue', 'green', 'red'\]"),
        ([[0.2, 0.3, 0.5], [0.9, 0.3, -0.2]], r"probabilities in \[0, 1\]; got -0.2"),
        ([[0.2, 0.3, 0.5], [0.9, 0.3, 0.2]], "sum to 1; got a sum of 1.4 in row 1"),
        ("words", "got str. It must be a classifier"),
    ],
)
def test_what_is_no_probability_of_every_class_is_refused(given, says):
    with pytest.raises(InvalidInputError, match=says):
        models_of(TASK).read_outputs(given, 2, "full")
