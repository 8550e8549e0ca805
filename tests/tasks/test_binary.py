"""The binary task: labels, scores and answers, against brute force and generic optimisers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from thrifty.engine.full.adapters import models_of
from thrifty.engine.tasks.classes import CLIP, BinaryTask, classification_of
from thrifty.engine.tasks.logistic import RIDGE
from thrifty.errors import InvalidInputError

TASK = BinaryTask(np.array(["no", "yes"]))
SCORES = st.lists(
    st.one_of(st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 800.0, -800.0, 1e-300])),
    min_size=1,
    max_size=20,
).map(lambda values: np.array(values)[:, None])


@pytest.fixture(scope="module")
def rows():
    """Two scores that say something about the labels, and weights."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=400)
    y = np.where(truth + 0.7 * rng.normal(size=400) > 0.3, 1.0, -1.0)
    last, full = (truth + rng.normal(size=(2, 400)) * [[1.0], [0.5]])[:, :, None]
    return y, 3.0 * last - 1.0, 0.4 * full, rng.integers(1, 4, 400).astype(float)


# -- targets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [("no", "yes"), (3, 7), (False, True), (-1.0, 2.0)])
def test_labels_come_back_from_their_code_and_the_second_is_plus_one(labels):
    y = np.array(labels)[[0, 1, 1, 0]]
    task = classification_of(y)
    code = task.encode("y", y.tolist(), 4)
    np.testing.assert_array_equal(code, [-1.0, 1.0, 1.0, -1.0])
    np.testing.assert_array_equal(task.decode(code), y)
    assert task == classification_of(y[::-1])
    assert hash(task) == hash(classification_of(y[::-1]))
    assert task != BinaryTask(np.array(["other", "words"]))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([0, 1, 2], "Only binary classification is supported.*with 3 classes.*use BudgetedClassifier"),
        (["a", "a"], r"two classes or more; got 1 class, \['a'\]"),
        ([0.5, 1.5, 0.2], "distinct labels of one kind: Unknown label type"),
        ([0, "yes", None], "distinct labels of one kind"),
    ],
)
def test_labels_of_other_than_two_classes_are_refused(labels, says):
    y = np.array(labels, dtype=object) if None in labels else np.array(labels)
    with pytest.raises(InvalidInputError, match=says):
        classification_of(y, several=False)


def test_a_label_that_is_not_known_is_refused_by_its_row_and_so_are_too_few():
    with pytest.raises(
        InvalidInputError, match=r"truth must hold the labels .* \['no', 'yes'\]; got 'maybe' in row 1"
    ):
        TASK.encode("truth", ["no", "maybe"], 2)
    with pytest.raises(InvalidInputError, match=r"one label per row, shape \(3,\); got shape \(2,\)"):
        TASK.encode("y", ["no", "yes"], 3)


@given(st.integers(0, 10_000))
def test_no_constant_answer_is_right_more_often_than_the_constant_quality(seed):
    rng = np.random.default_rng(seed)
    y, weight = rng.choice([-1.0, 1.0], 12), rng.uniform(0.1, 2, 12)
    best = max(np.average(y == answer, weights=weight) for answer in (-1.0, 1.0))
    assert TASK.constant_quality(y, weight) == pytest.approx(best)


# -- losses ----------------------------------------------------------------------------------------


def test_the_base_is_the_constant_with_the_least_loss(rows):
    y, _, _, weight = rows
    loss = TASK.loss(y)
    found = minimize(lambda at: weight @ loss.values(np.full((len(y), 1), at[0])), [0.0], tol=1e-12).x[0]
    assert loss.base(weight) == pytest.approx(found, abs=1e-5)


def test_the_loss_of_outputs_is_that_of_their_scores(rows):
    y, last, _, _ = rows
    np.testing.assert_allclose(
        models_of(TASK).loss(y, TASK.outputs(last)), TASK.loss(y).values(last), rtol=1e-9
    )


def test_the_gradient_is_that_of_the_loss_for_soft_labels_too():
    y, score, step = np.linspace(-1, 1, 41), np.linspace(-4, 4, 41)[:, None], 1e-6
    loss = TASK.loss(y)
    numeric = (loss.values(score + step) - loss.values(score - step)) / (2 * step)
    np.testing.assert_allclose(loss.derivatives(score)[0][:, 0], numeric, atol=1e-8)


# -- scores, outputs, answers ------------------------------------------------------------------------


def test_scores_come_back_from_their_outputs():
    scores = np.linspace(-13, 13, 101)[:, None]
    outputs = TASK.outputs(scores)
    np.testing.assert_allclose(outputs.sum(axis=1), 1.0)
    np.testing.assert_allclose(TASK.scores(outputs), scores, atol=1e-9)
    np.testing.assert_allclose(TASK.exact_scores(outputs), scores, atol=1e-9)
    np.testing.assert_array_equal(TASK.decision(scores), scores[:, 0])


@pytest.mark.slow
@given(SCORES)
def test_extreme_scores_give_probabilities_and_bounded_ones_give_finite_scores(scores):
    outputs = TASK.outputs(scores)
    assert np.all((outputs >= 0) & (outputs <= 1))
    bounded = TASK.bounded(outputs)
    assert bounded.min() >= CLIP * (1 - 1e-9)
    assert np.isfinite(TASK.scores(outputs)).all()
    assert np.abs(TASK.scores(outputs)).max() <= np.log((1 - CLIP) / CLIP) * (1 + 1e-9)
    assert np.isfinite(models_of(TASK).loss(np.ones(len(scores)), bounded)).all()


def test_certainty_has_an_infinite_score_where_scores_are_exact():
    certain = np.array([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(TASK.exact_scores(certain)[:, 0], [-np.inf, np.inf])
    np.testing.assert_array_equal(TASK.outputs(TASK.exact_scores(certain)), certain)


@pytest.mark.slow
@given(SCORES, st.integers(0, 10_000))
def test_the_answer_is_the_more_probable_label_and_the_first_where_both_are(scores, seed):
    outputs = TASK.outputs(scores)
    answers = TASK.answers(outputs)
    expected = ["yes" if positive > negative else "no" for negative, positive in outputs]
    assert answers.tolist() == expected
    confidence = TASK.confidence(outputs)
    np.testing.assert_array_equal(confidence, [max(pair) for pair in outputs])
    y = np.random.default_rng(seed).choice([-1.0, 1.0], len(scores))
    np.testing.assert_array_equal(TASK.quality(y, outputs), TASK.decode(y) == answers)


def test_scores_and_outputs_agree_on_which_answers_are_right(rows):
    y, last, _, _ = rows
    np.testing.assert_array_equal(TASK.quality_of_scores(y, last), TASK.quality(y, TASK.outputs(last)))
    assert not TASK.quality_of_scores(np.array([1.0]), np.zeros((1, 1)))[0]


def test_doubt_falls_as_confidence_rises(rows):
    last = rows[1]
    order = np.argsort(TASK.uncertainty(last))
    assert np.all(np.diff(TASK.confidence(TASK.outputs(last))[order]) <= 1e-12)


@given(st.integers(0, 10_000))
def test_the_expected_loss_is_the_mean_over_both_labels_of_who_is_wrong(seed):
    rng = np.random.default_rng(seed)
    scores, belief = 4 * rng.normal(size=(2, 15, 1))
    positive = expit(belief[:, 0])
    by_hand = sum(
        chance * ~TASK.quality_of_scores(np.full(15, label), scores)
        for label, chance in ((1.0, positive), (-1.0, 1 - positive))
    )
    np.testing.assert_allclose(TASK.expected_loss(scores, belief), by_hand)


# -- calibration and blending --------------------------------------------------------------------------


def penalised(y, weight, scores):
    """The regression's objective as it is written down, with slopes in units of the scores' spread."""
    middle = np.average(scores, axis=0, weights=weight)
    spread = np.sqrt(np.average(np.square(scores - middle), axis=0, weights=weight))

    def value(at):
        loss = np.logaddexp(0.0, -y * (at[0] + scores @ at[1:]))
        return weight @ loss + RIDGE / 2 * np.sum(np.square(at[1:] * spread))

    return minimize(value, np.zeros(1 + scores.shape[1]), tol=1e-12).x


def test_calibration_is_what_a_generic_optimiser_finds(rows):
    y, last, _, weight = rows
    intercept, slope = penalised(y, weight, last)
    calibration = TASK.calibrate(last, y, weight)
    np.testing.assert_allclose(calibration, [slope, intercept], atol=1e-4)
    np.testing.assert_allclose(TASK.calibrated(last, calibration), slope * last + intercept, atol=1e-3)


def test_the_blend_is_what_a_generic_optimiser_finds_and_better_than_either_model(rows):
    y, last, full, weight = rows
    blend = TASK.blend_weights(last, full, y, weight)
    np.testing.assert_allclose(blend, penalised(y, weight, np.hstack([last, full])), atol=1e-4)
    losses = [
        weight @ TASK.loss(y).values(TASK.calibrated(one, TASK.calibrate(one, y, weight)))
        for one in (last, full)
    ]
    assert weight @ TASK.loss(y).values(TASK.blended(blend, last, full)) < min(losses)


def test_the_full_model_alone_is_a_blend(rows):
    _, last, full, _ = rows
    np.testing.assert_array_equal(TASK.blended(TASK.full_alone, last, full), full)


def test_scores_that_point_the_wrong_way_are_calibrated_to_the_share_of_the_classes(rows):
    y, last, _, weight = rows
    slope, intercept = TASK.calibrate(-last, y, weight)
    assert slope == 0.0
    assert expit(intercept) == pytest.approx(np.average(y > 0, weights=weight))


# -- models of others ----------------------------------------------------------------------------------


def test_a_model_of_somebody_else_is_calibrated_as_logistic_regression_says(rows):
    y, last, _, weight = rows
    slope, intercept = models_of(TASK).calibrate(1000 * last, y, weight)
    theirs = LogisticRegression(C=1e6, tol=1e-10).fit(last, y, weight)
    assert slope == pytest.approx(theirs.coef_[0, 0] / 1000, rel=1e-3)
    assert intercept == pytest.approx(theirs.intercept_[0], abs=1e-3)
    outputs = models_of(TASK).outputs(1000 * last, np.array([slope, intercept]))
    np.testing.assert_allclose(outputs[:, 1], theirs.predict_proba(last)[:, 1], atol=1e-3)


def test_probabilities_of_one_class_or_of_both_are_read_alike_and_kept_from_certainty():
    one = models_of(TASK).read_outputs([0.0, 0.25, 1.0], 3, "f0")
    np.testing.assert_array_equal(
        one, models_of(TASK).read_outputs([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]], None, "f0")
    )
    np.testing.assert_allclose(one[:, 1], [CLIP, 0.25, 1 - CLIP])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([0.5, np.nan], r"f0 must give probabilities in \[0, 1\]; got nan"),
        ([0.5, -0.1], r"in \[0, 1\]; got -0.1"),
        ([0.5], r"one probability of the second class per row, shape \(2,\) or \(2, 2\); got shape \(1,\)"),
        (np.zeros((2, 3)), r"got shape \(2, 3\)"),
        ("half", "got str. It must be a classifier"),
    ],
)
def test_what_is_no_probability_is_refused(given, says):
    with pytest.raises(InvalidInputError, match=says):
        models_of(TASK).read_outputs(given, 2, "f0")


def test_a_model_is_asked_for_the_probability_of_the_second_class_and_refused_for_other_labels(rows):
    y, last, _, _ = rows
    tree = DecisionTreeClassifier(max_depth=2).fit(last, TASK.decode(y))
    models_of(TASK).check_fitted(tree, "full")
    assert models_of(TASK).is_calibrated(tree)
    np.testing.assert_array_equal(
        models_of(TASK).raw_outputs(tree, last)[:, 0], tree.predict_proba(last)[:, 1]
    )
    with pytest.raises(InvalidInputError, match=r"full was fitted on the classes \[-1.0, 1.0\], but y holds"):
        models_of(TASK).check_fitted(DecisionTreeClassifier().fit(last, y), "full")
