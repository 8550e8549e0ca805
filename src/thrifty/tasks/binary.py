"""One of two classes: one score, the log-odds of the second class; outputs are the probabilities of both."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from thrifty.arrays import Floats, Ints
from thrifty.tasks.answers import check_probabilities
from thrifty.tasks.labels import ClassTask, clip_probability
from thrifty.tasks.logistic import LogisticLoss, logistic_weights, platt
from thrifty.tasks.losses import log_loss_of_probability, soft_logistic_loss

__all__ = ["BinaryLoss", "BinaryTask", "soft_labels"]


def soft_labels(y: Floats) -> Floats:
    """Probabilities of the second class from labels in [-1, 1]."""
    probability: Floats = (y + 1.0) / 2.0
    return probability


class BinaryLoss:
    """The logistic loss of one score per row against labels -1 / +1, or soft labels between them."""

    def __init__(self, y: Floats) -> None:
        self._y, self._target = y, soft_labels(y)
        self._loss = LogisticLoss(self._target)
        self.formula = self._loss.formula

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return soft_logistic_loss(self._target, scores[:, 0])

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian by the log-odds, each of shape (n_rows, 1)."""
        gradient, hessian = self._loss.derivatives(scores[:, 0])
        return gradient[:, None], hessian[:, None]

    def base(self, weight: Floats) -> Floats:
        """Log-odds of the second class among the rows, each with its weight."""
        positive, negative = float(weight[self._y > 0].sum()), float(weight[self._y < 0].sum())
        return np.array([np.log(max(positive, 1e-12)) - np.log(max(negative, 1e-12))])


@dataclass(frozen=True, eq=False)
class BinaryTask(ClassTask):
    """Answers with one of two labels; inside, the second one is +1 and the first -1."""

    n_scores: ClassVar[int] = 1
    full_alone: ClassVar[Floats] = np.array([0.0, 0.0, 1.0])
    no_calibration: ClassVar[Floats] = np.array([1.0, 0.0])
    decision_widths: ClassVar[tuple[int, ...]] = (1,)

    def targets(self, place: Ints) -> Floats:
        """-1 / +1 for the first and the second class."""
        return np.where(place == 1, 1.0, -1.0)

    def strata(self, y: Floats) -> Ints:
        """Which of the two classes each target is."""
        return (y > 0).astype(np.intp)

    def distributions(self, y: Floats) -> Floats:
        """Probability of the second class, shape (n_rows, 1), of labels in [-1, 1]."""
        return soft_labels(y)[:, None]

    def soft_targets(self, y: Floats, outputs: Floats, trust: float) -> Floats:
        """Labels in [-1, 1], moved from those given towards the probabilities of a model, as far as it is trusted."""
        soft: Floats = (1.0 - trust) * y + trust * (2.0 * outputs[:, 1] - 1.0)
        return soft

    def gain_of(self, scores: Floats, over: Floats, y: Floats) -> Floats:
        """How much more often one model's scores are right than another's, by labels in [-1, 1]."""
        answers, others = (np.where(one[:, 0] > 0, 1.0, -1.0) for one in (scores, over))
        gain: Floats = 0.5 * (answers - others) * y
        return gain

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

    def closeness(self, scores: Floats) -> Floats:
        """Minus the margin, ``-|log-odds|``."""
        return -np.abs(scores[:, 0])

    def most_probable(self, scores: Floats) -> Ints:
        """The second class where its log-odds are positive."""
        return (scores[:, 0] > 0).astype(np.intp)

    def error_probability(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed log-odds, that the answer is wrong."""
        wrong: Floats = np.where(scores[:, 0] > 0, expit(-belief[:, 0]), expit(belief[:, 0]))
        return wrong

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

    def ask(self, model: Any, table: Any) -> Floats:
        """Probability of the second class, or the decision value where there is none, shape (n_rows, 1)."""
        return super().ask(model, table)[:, -1:]

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
        probability = check_probabilities(given, n_rows, self.classes, who, second_alone=True)
        probability = probability if probability.ndim == 1 else probability[:, 1]
        return _both(clip_probability(probability))


def _both(positive: Floats) -> Floats:
    both = np.empty(
        (len(positive), 2), positive.dtype
    )  # half the time of stacking columns, where there is one row
    both[:, 0], both[:, 1] = 1.0 - positive, positive
    return both
