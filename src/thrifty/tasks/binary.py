"""One of two classes: one score, the log-odds of the second class; outputs are the probabilities of both."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from thrifty.arrays import Bools, Floats, Labels
from thrifty.exceptions import InvalidInputError
from thrifty.objective.losses import log_loss_of_probability, soft_logistic_loss
from thrifty.tasks.logistic import LogisticLoss, logistic_weights, platt

__all__ = ["CLIP", "BinaryLoss", "BinaryTask", "clip_probability", "one_class", "two_classes"]

CLIP = 1e-6
"""Probabilities of other models stay this far from 0 and 1; the loss on one row is at most 13.8."""


def two_classes(y: Any) -> "BinaryTask":
    """The task that some labels pose, or a refusal where they are not two."""
    try:
        check_classification_targets(y)
        classes = np.unique(y)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must hold two distinct labels of one kind: {error}") from error
    if len(classes) > 2:
        raise InvalidInputError(
            f"Only binary classification is supported. The type of the target is {type_of_target(y)}, "
            f"with {len(classes)} classes. Make it one class against the rest."
        )
    if len(classes) < 2:
        raise one_class(classes)
    return BinaryTask(classes)


def one_class(classes: Labels) -> InvalidInputError:
    """The refusal of labels that leave nothing to learn."""
    return InvalidInputError(
        f"y must hold two classes; got 1 class, {classes.tolist()}. A classifier can't train on one class."
    )


class BinaryLoss(LogisticLoss):
    """The logistic loss of one score per row against labels -1 / +1, or soft labels between them."""

    def __init__(self, y: Floats) -> None:
        super().__init__((y + 1.0) / 2.0)
        self._y = y

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return soft_logistic_loss(self._target, scores)

    def base(self, weight: Floats) -> float:
        """Log-odds of the second class among the rows, each with its weight."""
        positive, negative = float(weight[self._y > 0].sum()), float(weight[self._y < 0].sum())
        return float(np.log(max(positive, 1e-12)) - np.log(max(negative, 1e-12)))


@dataclass(frozen=True)
class BinaryTask:
    """Answers with one of two labels; inside, the second one is +1 and the first -1.

    Attributes
    ----------
    classes : ndarray of shape (2,)
        The user's labels.
    """

    classes: Labels

    n_scores = 1
    full_alone = np.array([0.0, 0.0, 1.0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinaryTask) and np.array_equal(self.classes, other.classes)

    def __hash__(self) -> int:
        return hash(tuple(self.classes.tolist()))

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """-1 / +1 for each row; a label that is not known is refused by its row."""
        found = np.asarray(labels)
        if found.shape != (n_rows,):
            raise InvalidInputError(
                f"{name} must hold one label per row, shape ({n_rows},); got shape {found.shape}."
            )
        strange = ~np.isin(found, self.classes)
        if strange.any():
            row = int(strange.argmax())
            raise InvalidInputError(
                f"{name} must hold the labels the system was fitted on, {self.classes.tolist()}; "
                f"got {found[row].item()!r} in row {row}."
            )
        return np.where(found == self.classes[1], 1.0, -1.0)

    def decode(self, y: Floats) -> Labels:
        """Labels as the user wrote them."""
        return self.classes[(y > 0).astype(np.intp)]

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Share of the more frequent class."""
        positive = float(np.average(y > 0, weights=weight))
        return max(positive, 1.0 - positive)

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> BinaryLoss:
        """The logistic loss of log-odds against labels, soft ones included."""
        return BinaryLoss(y)

    def loss_of_outputs(self, y: Floats, outputs: Floats) -> Floats:
        """``-log p(y)`` per row."""
        return log_loss_of_probability(y, outputs[:, 1])

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Probabilities of both classes."""
        return _both(np.asarray(expit(scores[:, 0]), dtype=np.float64))

    def bounded(self, outputs: Floats) -> Floats:
        """Probabilities of both classes, kept away from certainty."""
        return _both(clip_probability(outputs[:, 1]))

    def scores(self, outputs: Floats) -> Floats:
        """Log-odds of the second class, finite."""
        log_odds: Floats = logit(clip_probability(outputs[:, 1:]))
        return log_odds

    def exact_scores(self, outputs: Floats) -> Floats:
        """Log-odds of the second class, infinite where it is certain."""
        with np.errstate(divide="ignore"):
            log_odds: Floats = logit(outputs[:, 1:])
        return log_odds

    def decision(self, scores: Floats) -> Floats:
        """Log-odds of the second class, shape (n_rows,)."""
        return scores[:, 0]

    def answers(self, outputs: Floats) -> Labels:
        """The more probable label; the first where both are."""
        return self.classes[(outputs[:, 1] > 0.5).astype(np.intp)]

    def doubt(self, scores: Floats) -> Floats:
        """Minus the margin, ``-|log-odds|``."""
        return -np.abs(scores[:, 0])

    def confidence(self, outputs: Floats) -> Floats:
        """Probability of the label that is given."""
        confidence: Floats = outputs.max(axis=1)
        return confidence

    # -- judging -------------------------------------------------------------------------------

    def quality(self, y: Floats, outputs: Floats) -> Bools:
        """Whether each answer is right."""
        right: Bools = (outputs[:, 1] > 0.5) == (y > 0)
        return right

    def quality_of_scores(self, y: Floats, scores: Floats) -> Bools:
        """Whether the answers of some log-odds are right."""
        right: Bools = (scores[:, 0] > 0) == (y > 0)
        return right

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed log-odds, that the answer is wrong."""
        wrong: Floats = np.where(scores[:, 0] > 0, expit(-belief[:, 0]), expit(belief[:, 0]))
        return wrong

    def expected_regret(self, scores: Floats, full: Floats, belief: Floats) -> Floats:
        """Probability, by the believed log-odds, that the full model is right and this answer is not."""
        differs = (scores[:, 0] > 0) != (full[:, 0] > 0)
        regret: Floats = np.where(differs, 1.0 - self.expected_loss(full, belief), 0.0)
        return regret

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope and intercept of Platt's sigmoid."""
        return np.array(platt(scores[:, 0], y, weight))

    def calibrated(self, scores: Floats, calibration: Floats) -> Floats:
        """``slope * score + intercept``."""
        log_odds: Floats = scores * calibration[0] + calibration[1]
        return log_odds

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """Intercept and weights of both log-odds, by logistic regression."""
        return logistic_weights(np.hstack([last, full]), y, weight)

    def blended(self, weights: Floats, last: Floats, full: Floats) -> Floats:
        """Log-odds of the blend."""
        blended: Floats = weights[0] + weights[1] * last + weights[2] * full
        return blended

    # -- models of others ------------------------------------------------------------------------

    def check_model(self, model: Any, name: str) -> None:
        """Refuse a classifier of other labels, or one that cannot say how sure it is."""
        kind = type(model).__name__
        if not (hasattr(model, "predict_proba") or hasattr(model, "decision_function")):
            raise InvalidInputError(
                f"{name} must offer predict_proba or decision_function; {kind} has neither. "
                f"Pass a function that returns probabilities instead."
            )
        theirs = np.asarray(getattr(model, "classes_", self.classes))
        if not np.array_equal(theirs, self.classes):
            raise InvalidInputError(
                f"{name} was fitted on the classes {theirs.tolist()}, but y holds {self.classes.tolist()}. "
                f"Both must have the same two labels."
            )

    def ask(self, model: Any, table: Any) -> Floats:
        """Probability of the second class, or the decision value where there is none, shape (n_rows, 1)."""
        if hasattr(model, "predict_proba"):
            return np.asarray(model.predict_proba(table), dtype=np.float64)[:, 1:2]
        return np.asarray(model.decision_function(table), dtype=np.float64).reshape(-1, 1)

    def is_calibrated(self, model: Any) -> bool:
        """Whether the model has ``predict_proba``, which some have only with certain settings."""
        return hasattr(model, "predict_proba")

    def calibrate_model(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope and intercept of the logistic regression of the labels on one score of somebody else's model."""
        decision = raw[:, 0]
        middle = np.average(decision, weights=weight)
        scale = float(np.sqrt(np.average(np.square(decision - middle), weights=weight))) or 1.0
        # To the last digits: what follows treats a row of weight two as two rows.
        sigmoid = LogisticRegression(C=1e4, tol=1e-10, max_iter=1000).fit(
            (decision / scale)[:, None], y > 0, sample_weight=weight
        )
        return np.array([float(sigmoid.coef_[0, 0]) / scale, float(sigmoid.intercept_[0])])

    def outputs_of(self, raw: Floats, calibration: Floats | None) -> Floats:
        """Probabilities of both classes, away from certainty, from what ``ask`` returned."""
        if calibration is None:
            return _both(clip_probability(raw[:, 0]))
        return _both(clip_probability(expit(calibration[0] * raw[:, 0] + calibration[1])))

    def read_outputs(self, given: Any, n_rows: int | None, who: str) -> Floats:
        """Probabilities of both classes from those of the second class or of both, checked."""
        try:
            probability = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"full must be a classifier, a FrozenEstimator, a function or an array of probabilities; "
                f"got {type(given).__name__}."
            ) from None
        if probability.ndim == 2 and probability.shape[1] == 2:
            probability = probability[:, 1]
        wanted = "n" if n_rows is None else str(n_rows)
        if probability.ndim != 1 or n_rows not in (None, len(probability)):
            raise InvalidInputError(
                f"{who} must give one probability of the second class per row, shape ({wanted},) or ({wanted}, 2); "
                f"got shape {np.shape(given)}."
            )
        wrong = ~((probability >= 0) & (probability <= 1))
        if wrong.any():
            raise InvalidInputError(
                f"{who} must give probabilities in [0, 1]; got {float(probability[wrong][0])!r}."
            )
        return _both(clip_probability(probability))


def clip_probability(probability: ArrayLike) -> Floats:
    """Probabilities moved to at least ``CLIP`` from 0 and 1."""
    return np.clip(np.asarray(probability, dtype=np.float64), CLIP, 1.0 - CLIP)


def _both(positive: Floats) -> Floats:
    return np.column_stack([1.0 - positive, positive])
