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

from thrifty.arrays import Floats, Int64s, Ints
from thrifty.jit import fused_kernel
from thrifty.tasks.answers import check_probabilities
from thrifty.tasks.labels import CLIP, ClassTask
from thrifty.tasks.logistic import newton_step
from thrifty.trees.derivatives import BLOCK, exponential

__all__ = ["MulticlassLoss", "MulticlassTask", "SoftLoss", "lead_of_best", "multinomial_weights"]

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
        n_rows, n_classes = scores.shape
        grad, hessian = np.empty((n_classes, n_rows)), np.empty((n_classes, n_rows))
        rows = np.empty((2, BLOCK))
        write_softmax_derivatives(
            self._place, np.ascontiguousarray(scores), rows, grad.view(np.int64), grad, hessian
        )
        return grad.T, hessian.T

    def base(self, weight: Floats) -> Floats:
        """Log-probabilities of the classes among the rows, each with its weight."""
        counts = np.bincount(self._place, weights=weight, minlength=self._n_classes)
        base: Floats = np.log(np.maximum(counts, 1e-12) / counts.sum())
        return base


@dataclass(frozen=True)
class SoftLoss:
    """The loss of a score per class against probabilities of the classes, shape (n_rows, n_classes)."""

    target: Floats

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        losses: Floats = _log_sum_exp(scores) - np.sum(self.target * scores, axis=1)
        return losses

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and diagonal of the hessian, each of shape (n_rows, n_classes)."""
        p = _softmax(scores)
        return p - self.target, p * (1.0 - p)

    def base(self, weight: Floats) -> Floats:
        """Log-probabilities of the classes among the rows, each with its weight."""
        shares = weight @ self.target
        base: Floats = np.log(np.maximum(shares, 1e-12) / shares.sum())
        return base


@dataclass(frozen=True, eq=False)
class MulticlassTask(ClassTask):
    """Answers with one of three or more labels; inside, a target is the number of its label.

    Soft targets are probabilities of all classes, shape (n_rows, n_classes).
    """

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

    @property
    def decision_widths(self) -> tuple[int, ...]:
        """A value per class, or one for each pair of classes."""
        n_classes = self.n_scores
        return (n_classes, n_classes * (n_classes - 1) // 2)

    def targets(self, place: Ints) -> Floats:
        """Numbers of the labels."""
        return place.astype(np.float64)

    def strata(self, y: Floats) -> Ints:
        """Numbers of the labels."""
        return y.astype(np.intp)

    def distributions(self, y: Floats) -> Floats:
        """Probabilities of all classes, shape (n_rows, n_classes): one and zeros, or soft targets as they are."""
        return y if y.ndim == 2 else np.equal.outer(y, np.arange(self.n_scores)).astype(np.float64)

    def soft_targets(self, y: Floats, outputs: Floats, trust: float) -> Floats:
        """Probabilities moved from the labels towards those of a model, as far as it is trusted."""
        soft: Floats = (1.0 - trust) * self.distributions(y) + trust * outputs
        return soft

    def gain_of(self, scores: Floats, over: Floats, y: Floats) -> Floats:
        """How much more often one model's scores are right than another's, by targets, soft ones included."""
        target, rows = self.distributions(y), np.arange(len(y))
        gain: Floats = target[rows, self.most_probable(scores)] - target[rows, self.most_probable(over)]
        return gain

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> MulticlassLoss | SoftLoss:
        """The logarithmic loss of the softmax of scores, against numbers of labels or soft targets."""
        return SoftLoss(y) if y.ndim == 2 else MulticlassLoss(self.strata(y), self.n_scores)

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

    def closeness(self, scores: Floats) -> Floats:
        """Minus the gap between the two best scores, which is that of their log-probabilities."""
        return -lead_of_best(scores)

    def most_probable(self, scores: Floats) -> Ints:
        """The class with the largest score; the first of equals."""
        place: Ints = scores.argmax(axis=1)
        return place

    def error_probability(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed scores, that the answer is wrong."""
        wrong: Floats = 1.0 - _softmax(belief)[np.arange(len(scores)), self.most_probable(scores)]
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
        raw, n_classes = super().ask(model, table), self.n_scores
        return raw if raw.shape[1] == n_classes else _votes(raw, n_classes)

    def calibrate_model(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class and one slope, from what somebody else's model says."""
        return self.calibrate(raw, y, weight)

    def outputs_of(self, raw: Floats, calibration: Floats | None) -> Floats:
        """Probabilities of all classes, away from certainty, from what ``ask`` returned."""
        return self.bounded(raw if calibration is None else self.outputs(self.calibrated(raw, calibration)))

    def read_outputs(self, given: Any, n_rows: int | None, who: str) -> Floats:
        """Probabilities of all classes, checked."""
        return self.bounded(check_probabilities(given, n_rows, self.classes, who))


def lead_of_best(scores: Floats) -> Floats:
    """By how much the best score of each row leads the second best, shape (n_rows,)."""
    best = np.partition(scores, -2, axis=1)
    lead: Floats = best[:, -1] - best[:, -2]
    return lead


@fused_kernel
def write_softmax_derivatives(
    place: Ints, scores: Floats, rows: Floats, bits: Int64s, grad: Floats, hessian: Floats
) -> None:
    """Write ``p - [k = place]`` and ``p (1 - p)``, a class after the other, each of shape (n_classes, n_rows).

    ``rows`` has room for two numbers of each row of a block; ``bits`` are those of ``grad``.
    """
    n_rows, n_classes = scores.shape
    most, total = rows[0], rows[1]
    for begin in range(0, n_rows, BLOCK):
        n_here = min(BLOCK, n_rows - begin)
        for i in range(n_here):
            most[i], total[i] = -np.inf, 0.0
        for k in range(n_classes):
            e = hessian[k, begin : begin + n_here]
            for i in range(n_here):
                e[i] = scores[begin + i, k]
                most[i] = most[i] if most[i] > e[i] else e[i]
        for k in range(n_classes):
            p, power = grad[k, begin : begin + n_here], bits[k, begin : begin + n_here]
            e = hessian[k, begin : begin + n_here]
            for i in range(n_here):
                e[i], power[i] = exponential(e[i] - most[i])
            for i in range(n_here):
                e[i] *= p[i]
                total[i] += e[i]
        for i in range(n_here):
            total[i] = 1.0 / total[i]
        for k in range(n_classes):
            p, e = grad[k, begin : begin + n_here], hessian[k, begin : begin + n_here]
            for i in range(n_here):
                p[i] = e[i] * total[i]
                e[i] = p[i] * (1.0 - p[i])
        for i in range(n_here):
            grad[place[begin + i], begin + i] -= 1.0


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
