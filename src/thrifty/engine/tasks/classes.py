"""Classification with two or more classes: labels, losses, probabilities, quality and calibration.

With two classes there is one score, the log-odds of the second class; outputs are the probabilities of both. With
several classes there is a score for each, and the probabilities are the softmax of the scores.

    loss(y, s) = log sum_k exp(s_k) - s_y,     d loss / ds_k = p_k - [k = y],     hessian taken as   p_k (1 - p_k)

A common shift of all scores changes nothing. Calibration scales the scores and shifts each class; a blend does so with
the scores of two models. Both are multinomial regressions with one slope per model:

    argmin over (a, b)   sum_i w_i loss(y_i, sum_m a_m s_im + b)  +  ridge / 2 (sum_m a_m^2 + |b|^2)

Besides the error rate, answers lose by their probabilities ``p``, with ``k`` the true class:

    "log"      -log p_k
    "brier"    sum_j (p_j - [j = k])^2, half of that for two classes, as in scikit-learn
    a matrix   C[k, a],    where    a = argmin_j  sum_k p_k C[k, j]    is the class of least expected cost

A matrix is written in the unit of the prices of features, so that tests and mistakes can be added up.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from thrifty.arrays import Floats, Int64s, Ints, Labels, Numbers, check_unmasked
from thrifty.engine.prices.billing import MAX_PRICE
from thrifty.engine.tasks.logistic import (
    BLOCK,
    LOGISTIC,
    RIDGE,
    Formula,
    exponential,
    logistic_derivatives,
    logistic_weights,
    newton_minimum,
    newton_step,
    platt,
    soft_logistic_loss,
)
from thrifty.engine.tasks.task import Task
from thrifty.errors import InvalidInputError
from thrifty.jit import fused_kernel

CLIP = 1e-6
"""Probabilities of full models are clipped this far from 0 and 1: the log-loss of an answer is at most 13.8."""


@dataclass(frozen=True)
class ProbabilityLoss:
    """The logarithmic or the Brier loss of probabilities; the answer is the most probable class."""

    kind: Literal["log", "brier"]

    unit = 1.0

    @property
    def name(self) -> str:
        """Name of the mean quality, which is minus the mean loss."""
        return "minus the log-loss" if self.kind == "log" else "minus the Brier loss"

    def largest(self, n_classes: int) -> float:
        """Most that an answer can lose: that of a sure answer which is wrong."""
        if self.kind == "log":
            return float(-np.log(CLIP))
        return 1.0 if n_classes == 2 else 2.0

    def is_of_errors(self) -> bool:
        """True if every mistake costs the same: never, since a right answer may lose, too."""
        return False

    def picks(self, outputs: Floats) -> Ints:
        """Number of the answered class: the most probable one; the first of equals."""
        return outputs.argmax(axis=1)

    def by_truth(self, outputs: Floats) -> Floats:
        """Loss of each answer for every possible true class, shape (n_rows, n_classes)."""
        if self.kind == "log":
            return -np.log(np.maximum(outputs, CLIP))
        squares = np.square(outputs).sum(axis=1, keepdims=True)
        losses = 1.0 - 2.0 * outputs + squares
        return losses / 2.0 if outputs.shape[1] == 2 else losses

    def uncertainty(self, outputs: Floats) -> Floats | None:
        """Expected loss that knowing the true class would save; None for two classes, where the margin says as much."""
        if outputs.shape[1] == 2:
            return None
        return (outputs * self.by_truth(outputs)).sum(axis=1)


@dataclass(frozen=True, eq=False)
class CostMatrix:
    """A price for every mistake; the answer is the class of least expected cost.

    Attributes
    ----------
    costs : ndarray of shape (n_classes, n_classes)
        A line for each true class, a column for each answer, in the unit of the prices of features.
    """

    costs: Floats

    name = "minus the mean cost of mistakes"

    @property
    def unit(self) -> float:
        """The dearest mistake."""
        return float(self.costs.max())

    def largest(self, n_classes: int) -> float:  # noqa: ARG002 - part of the contract
        """The dearest mistake."""
        return self.unit

    @cached_property
    def _off_diagonal(self) -> Floats:
        return self.costs[~np.eye(len(self.costs), dtype=bool)]

    def is_of_errors(self) -> bool:
        """True if right answers are free and all mistakes cost the same."""
        return bool(
            (np.diag(self.costs) == 0.0).all() and (self._off_diagonal == self._off_diagonal[0]).all()
        )

    def picks(self, outputs: Floats) -> Ints:
        """The class of least expected cost; the first of equals."""
        # Expected costs of different answers may round differently where they are equal.
        return outputs.argmax(axis=1) if self.is_of_errors() else _expected(outputs, self.costs).argmin(1)

    def by_truth(self, outputs: Floats) -> Floats:
        """The column of the answer."""
        return self.costs.T[self.picks(outputs)]

    def uncertainty(self, outputs: Floats) -> Floats | None:
        """Expected cost of the answer beyond that of right answers."""
        if self.is_of_errors():
            return None
        return _expected(outputs, self.costs - np.diag(self.costs)[:, None]).min(axis=1)


Mistakes = ProbabilityLoss | CostMatrix
"""Loss of answers; ``unit`` is the loss that counts as one where losses and prices are traded against each other."""


def _expected(outputs: Floats, costs: Floats) -> Floats:
    """Expected cost of every answer, summed class by class: a row costs to the last bit what it costs in a batch."""
    expected: Floats = outputs[:, :1] * costs[0]
    for place in range(1, len(costs)):
        expected += outputs[:, place : place + 1] * costs[place]
    return expected


def read_loss(loss: Any, classes: Labels) -> Mistakes | None:
    """Read a loss: "error" (which is None here), "log", "brier" or a matrix of costs; others raise an error."""
    if isinstance(loss, str):
        if loss not in ("error", "log", "brier"):
            raise InvalidInputError(
                f'loss must be "error", "log", "brier" or a matrix of what each mistake costs; got {loss!r}.'
            )
        return None if loss == "error" else ProbabilityLoss("log" if loss == "log" else "brier")
    n_classes = len(classes)
    rule = f"a line for each true class and a column for each answer, in the order of {classes.tolist()}"
    try:
        costs = np.array(loss, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f'loss must be "error", "log", "brier", or a matrix with {rule}; got {loss!r}.'
        ) from None
    if costs.shape != (n_classes, n_classes):
        raise InvalidInputError(
            f"loss must be a matrix of shape {(n_classes, n_classes)}, {rule}; got shape {costs.shape}."
        )
    _check_entries(costs, classes)
    return CostMatrix(costs)


def _check_entries(costs: Floats, classes: Labels) -> None:
    labels = classes.tolist()
    wrong = ~((costs >= 0.0) & (costs <= MAX_PRICE))
    if wrong.any():
        truth, answer = np.argwhere(wrong)[0].tolist()
        raise InvalidInputError(
            f"loss must hold numbers from 0 to {MAX_PRICE:g}; got {float(costs[truth, answer])!r} where "
            f"{labels[truth]!r} is answered with {labels[answer]!r}. Add the same number to a whole line to make it "
            f"positive: that changes no answer."
        )
    right = np.diag(costs)
    above = right > costs.min(axis=1)
    if above.any():
        truth = int(above.argmax())
        answer = int(costs[truth].argmin())
        raise InvalidInputError(
            f"the right answer must be the cheapest of its line in loss; {labels[truth]!r} answered rightly costs "
            f"{float(right[truth])!r} and answered with {labels[answer]!r} {float(costs[truth, answer])!r}. Lines are "
            f"true classes and columns answers: transpose the matrix if it was written the other way round."
        )
    if (costs == right[:, None]).all():
        raise InvalidInputError(
            "loss must hold a mistake that costs more than the right answer; in every line all entries are equal, so "
            "that no test is worth its price."
        )


MAX_CLASSES = 100_000
"""Labels of a task that a file may hold."""


@dataclass(frozen=True, eq=False)
class ClassTask(Task):
    """Base class of classification tasks.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The labels.
    mistakes : Mistakes, optional
        Loss of answers; None is the error rate.
    """

    classes: Labels
    mistakes: Mistakes | None = None

    loss_name: ClassVar[str] = "log-loss"

    def validate(self) -> Self:
        """Refuse labels that are none, and losses that do not suit them. Returns itself."""
        labels = self.classes.tolist()
        is_plain = self.classes.ndim == 1 and all(
            isinstance(label, str | int | float | np.generic) for label in labels
        )
        if not is_plain or len(set(labels)) < len(labels) or not 2 <= len(labels) <= MAX_CLASSES:
            raise InvalidInputError(f"classes must be from two to {MAX_CLASSES} distinct labels.")
        if (len(labels) == 2) != isinstance(self, BinaryTask):
            raise InvalidInputError(f"{type(self).__name__} does not answer with {len(labels)} classes.")
        if isinstance(self.mistakes, CostMatrix):
            read_loss(self.mistakes.costs, self.classes)
        return self

    @property
    def quality_name(self) -> str:
        """Name of the mean quality."""
        return "accuracy" if self.mistakes is None else self.mistakes.name

    @property
    def best_quality(self) -> float:
        """1 where quality is "is right", 0 where it is minus a loss."""
        return 1.0 if self.mistakes is None else 0.0

    @property
    def largest_loss(self) -> float:
        """Largest loss of an answer."""
        return 1.0 if self.mistakes is None else self.mistakes.largest(len(self.classes))

    @property
    def loss_unit(self) -> str | None:
        """Name of the loss of an answer; None where it is right or wrong."""
        return (
            None
            if self.mistakes is None
            else self.mistakes.name.removeprefix("minus the ").removeprefix("mean ")
        )

    @property
    def mistake_price(self) -> float | None:
        """Cost of one unit of ``expected_loss`` in the unit of the prices; None without a cost matrix."""
        return self.mistakes.unit if isinstance(self.mistakes, CostMatrix) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassTask) and np.array_equal(self.classes, other.classes)

    def __hash__(self) -> int:
        return hash(tuple(self.classes.tolist()))

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """Encode labels; an unknown label raises an error that names its row."""
        check_unmasked(name, labels)
        labels = np.asarray(labels)
        if labels.shape != (n_rows,):
            raise InvalidInputError(
                f"{name} must hold one label per row, shape ({n_rows},); got shape {labels.shape}."
            )
        strange = ~np.isin(labels, self.classes)
        if strange.any():
            row = int(strange.argmax())
            raise InvalidInputError(
                f"{name} must hold the labels the system was fitted on, {self.classes.tolist()}; "
                f"got {labels[row].item()!r} in row {row}."
            )
        place = np.zeros(n_rows, dtype=np.intp)
        for number, label in enumerate(self.classes):
            place[labels == label] = number
        return self.targets(place)

    def targets(self, place: Ints) -> Floats:
        """Targets from the class number of each row."""
        raise NotImplementedError

    def decode(self, y: Floats) -> Labels:
        """Labels as the user wrote them."""
        return self.classes[self.strata(y)]

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Share of the most frequent class, or minus the loss of the class shares as probabilities."""
        counts = np.bincount(self.strata(y), weights=weight, minlength=len(self.classes))
        if self.mistakes is None:
            return float(counts.max() / weight.sum())
        shares = counts[None, :] / weight.sum()
        return -float((shares * self.mistakes.by_truth(shares)).sum())

    # -- answers, and how good they are ------------------------------------------------------------

    def most_probable(self, scores: Floats) -> Ints:
        """Number of the most probable class."""
        raise NotImplementedError

    def closeness(self, scores: Floats) -> Floats:
        """Minus the margin between the two most probable classes."""
        raise NotImplementedError

    def error_probability(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the scores ``belief``, that the most probable class by ``scores`` is not the true one."""
        raise NotImplementedError

    @property
    def _counts_errors(self) -> bool:
        return self.mistakes is None or self.mistakes.is_of_errors()

    def best(self, scores: Floats) -> Ints:
        """Number of the predicted class of some scores: most probable, or of least expected cost."""
        if self.mistakes is None or self._counts_errors:
            return self.most_probable(scores)
        return self.mistakes.picks(self.outputs(scores))

    def picked(self, outputs: Floats) -> Ints:
        """Number of the predicted class of some outputs: most probable, or of least expected cost."""
        return outputs.argmax(axis=1) if self.mistakes is None else self.mistakes.picks(outputs)

    def answers(self, outputs: Floats) -> Labels:
        """Predicted label; the first of ties."""
        return self.classes[self.picked(outputs)]

    def uncertainty(self, scores: Floats) -> Floats:
        """Minus the margin, or, where mistakes differ, the expected cost that knowing the true class would save."""
        doubt = None if self.mistakes is None else self.mistakes.uncertainty(self.outputs(scores))
        return self.closeness(scores) if doubt is None else doubt

    def confidence(self, outputs: Floats) -> Floats:
        """Probability of the predicted label."""
        return outputs[np.arange(len(outputs)), self.picked(outputs)]

    def quality(self, y: Floats, outputs: Floats) -> Numbers:
        """Correctness of each answer, or minus its loss."""
        place = self.strata(y)
        if self.mistakes is None:
            return outputs.argmax(axis=1) == place
        return -self.mistakes.by_truth(outputs)[np.arange(len(place)), place]

    def quality_of_scores(self, y: Floats, scores: Floats) -> Numbers:
        """Correctness of the answers of some scores, or minus their loss."""
        if self.mistakes is not None:
            return self.quality(y, self.outputs(scores))
        return self.most_probable(scores) == self.strata(y)

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by ``belief``, that the answer is wrong, or its expected loss in units of the largest loss."""
        if self.mistakes is None or self._counts_errors:
            return self.error_probability(scores, belief)
        lost = self.mistakes.by_truth(self.outputs(scores)) * self.outputs(belief)
        return lost.sum(axis=1) / self.mistakes.unit

    def expected_quality(self, loss: Floats) -> Floats:
        """Probability that the answer is right, or minus its expected loss."""
        return 1.0 - loss if self.mistakes is None else -loss * self.mistakes.unit


def class_task(task: Any) -> "BinaryTask | MulticlassTask":
    """Check that a task is classification and return it."""
    if not isinstance(task, BinaryTask | MulticlassTask):
        raise InvalidInputError(
            f"this model answers with labels; the task here is one of numbers ({task.quality_name}). Use a regressor."
        )
    return task


def clip_probability(probability: ArrayLike) -> Floats:
    """Probabilities moved to at least ``CLIP`` from 0 and 1."""
    return np.clip(np.asarray(probability, dtype=np.float64), CLIP, 1.0 - CLIP)


def soft_labels(y: Floats) -> Floats:
    """Probabilities of the second class from labels in [-1, 1]."""
    return (y + 1.0) / 2.0


class BinaryLoss:
    """The logistic loss of one score per row against labels -1 / +1, or soft labels between them."""

    def __init__(self, y: Floats) -> None:
        self._y = y
        self.formula = Formula(LOGISTIC, np.ascontiguousarray(soft_labels(y)))

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return soft_logistic_loss(self.formula.target, scores[:, 0])

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian by the log-odds, each of shape (n_rows, 1)."""
        gradient, hessian = logistic_derivatives(self.formula.target, scores[:, 0])
        return gradient[:, None], hessian[:, None]

    def base(self, weight: Floats) -> Floats:
        """Log-odds of the second class among the rows, each with its weight."""
        positive, negative = float(weight[self._y > 0].sum()), float(weight[self._y < 0].sum())
        return np.array([np.log(max(positive, 1e-12)) - np.log(max(negative, 1e-12))])


@dataclass(frozen=True, eq=False)
class BinaryTask(ClassTask):
    """Answers with one of two labels; inside, the second one is +1 and the first -1."""

    def targets(self, place: Ints) -> Floats:
        """-1 / +1 for the first and the second class."""
        return np.where(place == 1, 1.0, -1.0)

    def strata(self, y: Floats) -> Ints:
        """Number of the class of each target, 0 or 1."""
        return (y > 0).astype(np.intp)

    def distributions(self, y: Floats) -> Floats:
        """Probability of the second class, shape (n_rows, 1), of labels in [-1, 1]."""
        return soft_labels(y)[:, None]

    def soft_targets(self, y: Floats, outputs: Floats, trust: float) -> Floats:
        """Labels in [-1, 1], moved from those given towards the probabilities of a model, as far as it is trusted."""
        return (1.0 - trust) * y + trust * (2.0 * outputs[:, 1] - 1.0)

    def gain_of(self, scores: Floats, over: Floats, y: Floats) -> Floats:
        """Gain in accuracy of the scores ``scores`` over ``over``, by labels in [-1, 1]."""
        answers, others = (np.where(each[:, 0] > 0, 1.0, -1.0) for each in (scores, over))
        return 0.5 * (answers - others) * y

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> BinaryLoss:
        """The logistic loss of log-odds against labels, soft ones included."""
        return BinaryLoss(y)

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Probabilities of both classes."""
        return both_probabilities(np.asarray(expit(scores[:, 0]), dtype=np.float64))

    def bounded(self, outputs: Floats) -> Floats:
        """Probabilities of both classes, kept away from certainty."""
        return both_probabilities(clip_probability(outputs[:, 1]))

    def scores(self, outputs: Floats) -> Floats:
        """Log-odds of the second class, finite."""
        return logit(clip_probability(outputs[:, 1:]))

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
        return np.where(scores[:, 0] > 0, expit(-belief[:, 0]), expit(belief[:, 0]))

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope and intercept of Platt's sigmoid."""
        return np.array(platt(scores[:, 0], y, weight))

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """Intercept and weights of both log-odds, by logistic regression."""
        return logistic_weights(np.hstack([last, full]), y, weight)


def both_probabilities(positive: Floats) -> Floats:
    """Probabilities of both classes, from those of the second."""
    # Half the time of stacking columns, for one row.
    both = np.empty((len(positive), 2), positive.dtype)
    both[:, 0], both[:, 1] = 1.0 - positive, positive
    return both


class MulticlassLoss:
    """The loss of a score per class against the number of the right class."""

    def __init__(self, place: Ints, n_classes: int) -> None:
        self._place, self._rows = place, np.arange(len(place))
        self._n_classes = n_classes

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return _log_sum_exp(scores) - scores[self._rows, self._place]

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
        return np.log(np.maximum(counts, 1e-12) / counts.sum())


@dataclass(frozen=True)
class SoftLoss:
    """The loss of a score per class against probabilities of the classes, shape (n_rows, n_classes)."""

    target: Floats

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return _log_sum_exp(scores) - np.sum(self.target * scores, axis=1)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and diagonal of the hessian, each of shape (n_rows, n_classes)."""
        p = _softmax(scores)
        return p - self.target, p * (1.0 - p)

    def base(self, weight: Floats) -> Floats:
        """Log-probabilities of the classes among the rows, each with its weight."""
        shares = weight @ self.target
        return np.log(np.maximum(shares, 1e-12) / shares.sum())


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
        return (1.0 - trust) * self.distributions(y) + trust * outputs

    def gain_of(self, scores: Floats, over: Floats, y: Floats) -> Floats:
        """Gain in accuracy of the scores ``scores`` over ``over``, by targets, soft ones included."""
        target, rows = self.distributions(y), np.arange(len(y))
        return target[rows, self.most_probable(scores)] - target[rows, self.most_probable(over)]

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> MulticlassLoss | SoftLoss:
        """The logarithmic loss of the softmax of scores, against numbers of labels or soft targets."""
        return SoftLoss(y) if y.ndim == 2 else MulticlassLoss(self.strata(y), self.n_scores)

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Probabilities of all classes."""
        return _softmax(scores)

    def bounded(self, outputs: Floats) -> Floats:
        """Probabilities of all classes, kept away from certainty, of sum one."""
        kept = np.maximum(outputs, CLIP)
        return kept / kept.sum(axis=1, keepdims=True)

    def scores(self, outputs: Floats) -> Floats:
        """Log-probabilities, finite."""
        return np.log(np.maximum(outputs, CLIP))

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
        return scores.argmax(axis=1)

    def error_probability(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed scores, that the answer is wrong."""
        return 1.0 - _softmax(belief)[np.arange(len(scores)), self.most_probable(scores)]

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class and one slope; the slope is never negative."""
        weights = multinomial_weights([scores], self.strata(y), weight)
        if weights[-1] > 0:
            return weights
        return np.append(self.loss(y).base(weight), 0.0)

    def calibrated(self, scores: Floats, calibration: Floats) -> Floats:
        """``slope * scores + shifts``."""
        return scores * calibration[-1] + calibration[:-1]

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """A shift per class, and a slope for each of the two models."""
        return multinomial_weights([last, full], self.strata(y), weight)

    def blended(self, weights: Floats, last: Floats, full: Floats) -> Floats:
        """Scores of the blend."""
        return weights[:-2] + weights[-2] * last + weights[-1] * full


def lead_of_best(scores: Floats) -> Floats:
    """Difference between the best and the second best score of each row, shape (n_rows,)."""
    best = np.partition(scores, -2, axis=1)
    return best[:, -1] - best[:, -2]


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
    centred = [scores - scores.mean(axis=1, keepdims=True) for scores in models]
    scale = np.sqrt([np.average(np.square(scores).mean(axis=1), weights=weight) for scores in centred])
    scale[scale == 0.0] = 1.0
    units = [scores / by for scores, by in zip(centred, scale, strict=True)]
    target = np.zeros((n_rows, n_classes))
    target[rows, place] = 1.0

    def scores_at(at: Floats) -> Floats:
        return at[:n_classes] + sum(slope * unit for slope, unit in zip(at[n_classes:], units, strict=True))

    def value(at: Floats) -> float:
        scores = scores_at(at)
        losses = _log_sum_exp(scores) - scores[rows, place]
        return float(weight @ losses + RIDGE / 2 * at @ at)

    def step(at: Floats) -> Floats:
        return _newton_step(units, _softmax(scores_at(at)), target, weight, at)

    start = np.r_[np.zeros(n_classes), np.full(len(units), 1.0 / len(units))]
    weights = newton_minimum(value, step, start).copy()
    weights[n_classes:] /= scale
    return weights


def _newton_step(
    units: list[Floats], probability: Floats, target: Floats, weight: Floats, now: Floats
) -> Floats:
    """Solve with the whole hessian of the shifts and slopes."""
    n_classes = probability.shape[1]
    weighted = weight[:, None] * probability
    off = weight[:, None] * (probability - target)
    gradient = np.r_[off.sum(axis=0), [float(np.sum(off * unit)) for unit in units]] + RIDGE * now
    hessian = np.zeros((len(now), len(now)))
    hessian[:n_classes, :n_classes] = np.diag(weighted.sum(axis=0)) - weighted.T @ probability
    mean = [np.sum(probability * unit, axis=1) for unit in units]
    for m, unit in enumerate(units):
        across = np.sum(weighted * (unit - mean[m][:, None]), axis=0)
        hessian[:n_classes, n_classes + m] = hessian[n_classes + m, :n_classes] = across
        for k, other in enumerate(units[: m + 1]):
            both = np.sum(probability * unit * other, axis=1) - mean[m] * mean[k]
            hessian[n_classes + m, n_classes + k] = hessian[n_classes + k, n_classes + m] = float(
                weight @ both
            )
    hessian[np.diag_indices(len(now))] += RIDGE
    return newton_step(hessian, gradient)


def _softmax(scores: Floats) -> Floats:
    probability: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
    probability /= probability.sum(axis=1, keepdims=True)
    return probability


def _log_sum_exp(scores: Floats) -> Floats:
    most = scores.max(axis=1)
    return most + np.log(np.exp(scores - most[:, None]).sum(axis=1))


def classification(classes: Labels, mistakes: Mistakes | None = None) -> BinaryTask | MulticlassTask:
    """Binary or multiclass task for these labels and this loss."""
    return BinaryTask(classes, mistakes) if len(classes) == 2 else MulticlassTask(classes, mistakes)


def classification_of(y: Any, *, several: bool = True) -> BinaryTask | MulticlassTask:
    """Classification task for labels ``y``; one class is refused, and more than two without ``several``."""
    try:
        check_classification_targets(y)
        classes = np.unique(y)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must hold distinct labels of one kind: {error}") from error
    if len(classes) > 2 and not several:
        raise InvalidInputError(
            f"Only binary classification is supported. The type of the target is {type_of_target(y)}, "
            f"with {len(classes)} classes. Make it one class against the rest, or use BudgetedClassifier, which "
            f"answers with any number of classes."
        )
    if len(classes) < 2:
        raise one_class(classes)
    return classification(classes)


def one_class(classes: Labels) -> InvalidInputError:
    """Error for targets with a single class."""
    return InvalidInputError(
        f"y must hold two classes or more; got 1 class, {classes.tolist()}. A classifier can't train on one class."
    )
