r"""One of several classes: a score for each of them, whose softmax are their probabilities.

    loss(y, s) = log sum_k exp(s_k) - s_y,     d loss / ds_k = p_k - [k = y],     hessian taken as   p_k (1 - p_k)

A common shift of all scores changes nothing. Calibration scales the scores and shifts each class; a blend does so with
the scores of two models. Both are multinomial regressions with one slope per model:

    argmin over (a, b)   sum_i w_i loss(y_i, sum_m a_m s_im + b)  +  ridge / 2 (sum_m a_m^2 + |b|^2)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_expit

from thrifty.arrays import Floats, Ints
from thrifty.exceptions import InvalidInputError
from thrifty.tasks.labels import CLIP, ClassTask
from thrifty.tasks.logistic import newton_step

__all__ = ["MulticlassLoss", "MulticlassTask", "multinomial_weights"]

RIDGE = 0.1
_STEPS, _SMALL = 50, 1e-12


class MulticlassLoss:
    """The loss of a score per class against the number of the right class."""

    def __init__(self, place: Ints, n_classes: int) -> None:
        self._place, self._rows = place, np.arange(len(place))
        self._n_classes = n_classes

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        losses: Floats = _log_sum_exp(scores) - scores[self._rows, self._place]
        return losses

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and diagonal of the hessian, each of shape (n_rows, n_classes)."""
        probability = _softmax(scores)
        hessian: Floats = probability * (1.0 - probability)
        probability[self._rows, self._place] -= 1.0
        return probability, hessian

    def base(self, weight: Floats) -> Floats:
        """Log-probabilities of the classes among the rows, each with its weight."""
        counts = np.bincount(self._place, weights=weight, minlength=self._n_classes)
        base: Floats = np.log(np.maximum(counts, 1e-12) / counts.sum())
        return base


@dataclass(frozen=True, eq=False)
class MulticlassTask(ClassTask):
    """Answers with one of three or more labels; inside, a target is the number of its label."""

    @property
    def n_scores(self) -> int:
        """One score per class."""
        return len(self.classes)

    @property
    def full_alone(self) -> Floats:
        """No shifts, nothing of the last stage, all of the full model."""
        return np.append(np.zeros(self.n_scores + 1), 1.0)

    @property
    def no_calibration(self) -> Floats:
        """No shifts, and a slope of one."""
        return np.append(np.zeros(self.n_scores), 1.0)

    def targets(self, place: Ints) -> Floats:
        """Numbers of the labels."""
        return place.astype(np.float64)

    def strata(self, y: Floats) -> Ints:
        """Numbers of the labels."""
        return y.astype(np.intp)

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> MulticlassLoss:
        """The logarithmic loss of the softmax of scores."""
        return MulticlassLoss(self.strata(y), self.n_scores)

    def loss_of_outputs(self, y: Floats, outputs: Floats) -> Floats:
        """``-log p(y)`` per row."""
        losses: Floats = -np.log(outputs[np.arange(len(y)), self.strata(y)])
        return losses

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Probabilities of all classes."""
        return _softmax(scores)

    def bounded(self, outputs: Floats) -> Floats:
        """Probabilities of all classes, kept away from certainty, of sum one."""
        kept = np.maximum(outputs, CLIP)
        bounded: Floats = kept / kept.sum(axis=1, keepdims=True)
        return bounded

    def scores(self, outputs: Floats) -> Floats:
        """Log-probabilities, finite."""
        log_probability: Floats = np.log(np.maximum(outputs, CLIP))
        return log_probability

    def exact_scores(self, outputs: Floats) -> Floats:
        """Log-probabilities, infinite where a class is impossible."""
        with np.errstate(divide="ignore"):
            log_probability: Floats = np.log(outputs)
        return log_probability

    def decision(self, scores: Floats) -> Floats:
        """The scores themselves, shape (n_rows, n_classes)."""
        return scores

    def doubt(self, scores: Floats) -> Floats:
        """Minus the gap between the two best scores, which is that of their log-probabilities."""
        best = np.partition(scores, -2, axis=1)[:, -2:]
        doubt: Floats = best[:, 0] - best[:, 1]
        return doubt

    def best(self, scores: Floats) -> Ints:
        """The class with the largest score; the first of equals."""
        place: Ints = scores.argmax(axis=1)
        return place

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed scores, that the answer is wrong."""
        wrong: Floats = 1.0 - _softmax(belief)[np.arange(len(scores)), self.best(scores)]
        return wrong

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class and one slope; the slope is never negative."""
        found = multinomial_weights([scores], self.strata(y), weight)
        if found[-1] > 0:
            return found
        return np.append(self.loss(y).base(weight), 0.0)

    def calibrated(self, scores: Floats, calibration: Floats) -> Floats:
        """``slope * scores + shifts``."""
        calibrated: Floats = scores * calibration[-1] + calibration[:-1]
        return calibrated

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class, and a slope for each of the two models."""
        return multinomial_weights([last, full], self.strata(y), weight)

    def blended(self, weights: Floats, last: Floats, full: Floats) -> Floats:
        """Scores of the blend."""
        blended: Floats = weights[:-2] + weights[-2] * last + weights[-1] * full
        return blended

    # -- models of others ------------------------------------------------------------------------

    def ask(self, model: Any, table: Any) -> Floats:
        """Probabilities, or decision values where there are none, shape (n_rows, n_classes)."""
        if hasattr(model, "predict_proba"):
            return np.asarray(model.predict_proba(table), dtype=np.float64)
        raw = np.asarray(model.decision_function(table), dtype=np.float64)
        n_classes = self.n_scores
        if raw.shape[1:] == (n_classes * (n_classes - 1) // 2,) and n_classes != 3:
            return _votes(raw, n_classes)
        return raw

    def calibrate_model(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class and one slope, from what somebody else's model says."""
        return self.calibrate(raw, y, weight)

    def outputs_of(self, raw: Floats, calibration: Floats | None) -> Floats:
        """Probabilities of all classes, away from certainty, from what ``ask`` returned."""
        return self.bounded(raw if calibration is None else self.outputs(self.calibrated(raw, calibration)))

    def read_outputs(self, given: Any, n_rows: int | None, who: str) -> Floats:
        """Probabilities of all classes, checked."""
        probability = self.read_numbers(given)
        wanted = "n" if n_rows is None else str(n_rows)
        n_classes = self.n_scores
        if probability.shape[1:] != (n_classes,) or n_rows not in (None, len(probability)):
            raise InvalidInputError(
                f"{who} must give the probability of each of {n_classes} classes per row, shape ({wanted}, "
                f"{n_classes}), in the order {self.classes.tolist()}; got shape {np.shape(given)}."
            )
        self.refuse_outside(probability, who)
        sums = probability.sum(axis=1)
        wrong = np.abs(sums - 1.0) > 1e-3
        if wrong.any():
            raise InvalidInputError(
                f"{who} must give probabilities that sum to 1; those of row {int(wrong.argmax())} sum to "
                f"{float(sums[wrong][0]):g}."
            )
        return self.bounded(probability)


def multinomial_weights(models: list[Floats], place: Ints, weight: Floats) -> Floats:
    """Shifts of the classes, then a slope for each model, shape (n_classes + n_models,), by Newton's method."""
    n_rows, n_classes = models[0].shape
    rows = np.arange(n_rows)
    # Shifts common to all classes say nothing; in units of their spread, slopes of different models compare.
    centred = [one - one.mean(axis=1, keepdims=True) for one in models]
    scale = np.array(
        [float(np.sqrt(np.average(np.square(one).mean(axis=1), weights=weight))) for one in centred]
    )
    scale[scale == 0.0] = 1.0
    units = [one / by for one, by in zip(centred, scale, strict=True)]
    target = np.zeros((n_rows, n_classes))
    target[rows, place] = 1.0

    def value(at: Floats) -> float:
        scores = at[:n_classes] + sum(slope * one for slope, one in zip(at[n_classes:], units, strict=True))
        losses = _log_sum_exp(scores) - scores[rows, place]
        return float(weight @ losses + RIDGE / 2 * at @ at)

    now = np.r_[np.zeros(n_classes), np.full(len(units), 1.0 / len(units))]
    best = value(now)
    for _ in range(_STEPS):
        scores = now[:n_classes] + sum(slope * one for slope, one in zip(now[n_classes:], units, strict=True))
        step = _newton_step(units, _softmax(scores), target, weight, now)
        size = 1.0
        while size > _SMALL and value(now - size * step) > best:
            size /= 2
        now = now - size * step
        before, best = best, value(now)
        if before - best <= _SMALL * max(abs(best), 1.0):
            break
    found: Floats = now.copy()
    found[n_classes:] /= scale
    return found


def _newton_step(
    units: list[Floats], probability: Floats, target: Floats, weight: Floats, now: Floats
) -> Floats:
    """Solve with the whole hessian of the shifts and slopes."""
    n_classes = probability.shape[1]
    weighted = weight[:, None] * probability
    off = weight[:, None] * (probability - target)
    gradient = np.r_[off.sum(axis=0), [float(np.sum(off * one)) for one in units]] + RIDGE * now
    hessian = np.zeros((len(now), len(now)))
    hessian[:n_classes, :n_classes] = np.diag(weighted.sum(axis=0)) - weighted.T @ probability
    mean = [np.sum(probability * one, axis=1) for one in units]
    for m, one in enumerate(units):
        across = np.sum(weighted * (one - mean[m][:, None]), axis=0)
        hessian[:n_classes, n_classes + m] = hessian[n_classes + m, :n_classes] = across
        for k, other in enumerate(units[: m + 1]):
            both = np.sum(probability * one * other, axis=1) - mean[m] * mean[k]
            hessian[n_classes + m, n_classes + k] = hessian[n_classes + k, n_classes + m] = float(
                weight @ both
            )
    hessian[np.diag_indices(len(now))] += RIDGE
    return newton_step(hessian, gradient)


def _votes(raw: Floats, n_classes: int) -> Floats:
    """A score per class from decisions of every pair of classes: the sum of their log-sigmoids."""
    first, second = np.triu_indices(n_classes, 1)
    scores = np.zeros((len(raw), n_classes))
    for pair in range(raw.shape[1]):
        scores[:, first[pair]] += log_expit(raw[:, pair])
        scores[:, second[pair]] += log_expit(-raw[:, pair])
    return scores


def _softmax(scores: Floats) -> Floats:
    probability: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    probability /= probability.sum(axis=1, keepdims=True)
    return probability


def _log_sum_exp(scores: Floats) -> Floats:
    most = scores.max(axis=1)
    found: Floats = most + np.log(np.exp(scores - most[:, None]).sum(axis=1))
    return found
