"""What every choice between classes shares, whether they are two or twenty: labels, answers and how good they are."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from thrifty.arrays import Bools, Floats, Ints, Labels, Numbers, check_unmasked
from thrifty.errors import FULL_MODEL, InvalidInputError
from thrifty.tasks.answers import check_decisions, check_probabilities
from thrifty.tasks.mistakes import CostMatrix, Mistakes

__all__ = ["CLIP", "ClassTask", "area_under_curve", "class_task", "clip_probability"]

CLIP = 1e-6
"""Probabilities of other models stay this far from 0 and 1; the loss on one row is at most 13.8."""


@dataclass(frozen=True, eq=False)
class ClassTask:
    """Answers with one of several labels, and with their probabilities.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        The user's labels.
    mistakes : Mistakes, optional
        What answers lose; None where an answer is right or wrong.
    """

    classes: Labels
    mistakes: Mistakes | None = None

    has_doubt: ClassVar[bool] = True
    tolerance: ClassVar[float] = 0.0
    loss_name: ClassVar[str] = "log-loss"

    @property
    def quality_name(self) -> str:
        """What people call the mean quality."""
        return "accuracy" if self.mistakes is None else self.mistakes.name

    @property
    def best_quality(self) -> float:
        """One where answers are right or wrong, and nothing where they lose."""
        return 1.0 if self.mistakes is None else 0.0

    @property
    def largest_loss(self) -> float:
        """Most that an answer can lose."""
        return 1.0 if self.mistakes is None else self.mistakes.largest(len(self.classes))

    @property
    def lost_in_words(self) -> str | None:
        """What an answer loses; None where it is right or wrong."""
        return (
            None
            if self.mistakes is None
            else self.mistakes.name.removeprefix("minus the ").removeprefix("mean ")
        )

    @property
    def mistake_price(self) -> float | None:
        """What one unit of ``expected_loss`` costs, in the unit of the prices, where mistakes have prices."""
        return self.mistakes.unit if isinstance(self.mistakes, CostMatrix) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassTask) and np.array_equal(self.classes, other.classes)

    def __hash__(self) -> int:
        return hash(tuple(self.classes.tolist()))

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """Targets of labels; a label that is not known is refused by its row."""
        check_unmasked(name, labels)
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
        place = np.zeros(n_rows, dtype=np.intp)
        for number, label in enumerate(self.classes):
            place[found == label] = number
        return self.targets(place)

    @property
    def n_scores(self) -> int:
        """Scores per row."""
        raise NotImplementedError

    def targets(self, place: Ints) -> Floats:
        """Targets of rows whose labels are these of the classes."""
        raise NotImplementedError

    def strata(self, y: Floats) -> Ints:
        """Which of the classes each target is."""
        raise NotImplementedError

    def distributions(self, y: Floats) -> Floats:
        """Probabilities of the second of two classes, or of each of several, that targets stand for, soft ones too."""
        raise NotImplementedError

    def soft_targets(self, y: Floats, outputs: Floats, trust: float) -> Floats:
        """Targets moved from those given towards the probabilities of a model, as far as it is trusted."""
        raise NotImplementedError

    def gain_of(self, scores: Floats, over: Floats, y: Floats) -> Floats:
        """How much more often one model's scores are right than another's, by targets, soft ones included."""
        raise NotImplementedError

    def decode(self, y: Floats) -> Labels:
        """Labels as the user wrote them."""
        return self.classes[self.strata(y)]

    def query_of(self, y: Floats) -> Ints | None:  # noqa: ARG002 - part of the contract
        """None: a row is judged by itself."""
        return None

    def lesson(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:  # noqa: ARG002 - part of the contract
        """The targets as the user wrote them."""
        return self.decode(y), {}

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Share of the most frequent class; minus what the shares lose as probabilities, where answers lose."""
        counts = np.bincount(self.strata(y), weights=weight, minlength=len(self.classes))
        if self.mistakes is None:
            return float(counts.max() / weight.sum())
        shares = counts[None, :] / weight.sum()
        return -float((shares * self.mistakes.by_truth(shares)).sum())

    # -- answers, and how good they are ------------------------------------------------------------

    def most_probable(self, scores: Floats) -> Ints:
        """Which of the classes has the largest probability by some scores."""
        raise NotImplementedError

    def closeness(self, scores: Floats) -> Floats:
        """Minus the margin by which the most probable class leads."""
        raise NotImplementedError

    def error_probability(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed scores, that the most probable class by ``scores`` is not the true one."""
        raise NotImplementedError

    @property
    def _counts_errors(self) -> bool:
        return self.mistakes is None or self.mistakes.is_of_errors()

    def best(self, scores: Floats) -> Ints:
        """Which of the classes some scores speak for, given what mistakes cost."""
        if self.mistakes is None or self._counts_errors:
            return self.most_probable(scores)
        return self.mistakes.picks(self.outputs(scores))

    def picked(self, outputs: Floats) -> Ints:
        """Which of the classes is answered: the most probable one, or the one of least expected cost."""
        place: Ints = outputs.argmax(axis=1) if self.mistakes is None else self.mistakes.picks(outputs)
        return place

    def answers(self, outputs: Floats) -> Labels:
        """The label of the class that is answered; the first of equals."""
        labels: Labels = self.classes[self.picked(outputs)]
        return labels

    def doubt(self, scores: Floats) -> Floats:
        """Minus the margin, or what knowing the true class would save where mistakes differ."""
        doubt = None if self.mistakes is None else self.mistakes.doubt(self.outputs(scores))
        return self.closeness(scores) if doubt is None else doubt

    def confidence(self, outputs: Floats) -> Floats:
        """Probability of the label that is given."""
        confidence: Floats = outputs[np.arange(len(outputs)), self.picked(outputs)]
        return confidence

    def quality(self, y: Floats, outputs: Floats) -> Numbers:
        """Whether each answer is right, or minus what it loses."""
        place = self.strata(y)
        if self.mistakes is None:
            right: Bools = outputs.argmax(axis=1) == place
            return right
        lost: Floats = -self.mistakes.by_truth(outputs)[np.arange(len(place)), place]
        return lost

    def quality_of_scores(self, y: Floats, scores: Floats) -> Numbers:
        """Whether the answers of some scores are right, or minus what they lose."""
        if self.mistakes is not None:
            return self.quality(y, self.outputs(scores))
        right: Bools = self.most_probable(scores) == self.strata(y)
        return right

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """Probability, by the believed scores, that the answer is wrong; expected loss in units of the dearest one."""
        if self.mistakes is None or self._counts_errors:
            return self.error_probability(scores, belief)
        lost = self.mistakes.by_truth(self.outputs(scores)) * self.outputs(belief)
        expected: Floats = lost.sum(axis=1) / self.mistakes.unit
        return expected

    def expected_quality(self, loss: Floats) -> Floats:
        """Probability that the answer is right, or minus what it is expected to lose."""
        quality: Floats = 1.0 - loss if self.mistakes is None else -loss * self.mistakes.unit
        return quality

    def expected_regret(self, scores: Floats, full: Floats, belief: Floats) -> Floats:
        """Probability, by the believed scores, that the full model's answer is better than this one."""
        if self.mistakes is None or self._counts_errors:
            differs = self.most_probable(scores) != self.most_probable(full)
            regret: Floats = np.where(differs, 1.0 - self.error_probability(full, belief), 0.0)
            return regret
        lost, by_full = (self.mistakes.by_truth(self.outputs(one)) for one in (scores, full))
        regret = (self.outputs(belief) * (lost > by_full)).sum(axis=1)
        return regret

    def errors(self, y: Floats, scores: Floats) -> Floats | None:  # noqa: ARG002 - part of the contract
        """None: labels are right or wrong."""
        return None

    def score(self, y: Floats, quality: Any) -> Any:  # noqa: ARG002 - part of the contract
        """The share of right answers."""
        return quality

    def auc(self, y: Floats, scores: Floats) -> float | None:
        """Area under the ROC curve; the mean over classes, each against the rest, where they are several."""
        place = self.strata(y)
        if scores.shape[1] == 1:
            return area_under_curve(place == 1, scores[:, 0])
        outputs = self.outputs(scores)
        areas = [area_under_curve(place == one, outputs[:, one]) for one in np.unique(place)]
        known = [area for area in areas if area is not None]
        return float(np.mean(known)) if known else None

    def outputs(self, scores: Floats) -> Floats:
        """Probabilities of all classes."""
        raise NotImplementedError

    # -- models of others ------------------------------------------------------------------------

    @staticmethod
    def default_model(random_state: Any) -> Any:
        """Histogram boosting with scikit-learn's settings."""
        from sklearn.ensemble import HistGradientBoostingClassifier  # takes a while to import

        return HistGradientBoostingClassifier(random_state=random_state)

    def check_recipe(self, model: Any, name: str) -> None:
        """Refuse an unfitted model that is no classifier."""
        if not is_classifier(model):
            raise InvalidInputError(
                f"{name} must be a classifier; got {type(model).__name__}. Wrap a fitted model in FrozenEstimator, "
                f"or pass a function that returns probabilities."
            )

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
                f"Both must have the same labels, in the same order."
            )

    def ask(self, model: Any, table: Any) -> Floats:
        """Probabilities, or decision values where there are none, checked, shape (n_rows, any)."""
        n_rows, who = table.shape[0], f"{FULL_MODEL} ({type(model).__name__})"
        if hasattr(model, "predict_proba"):
            return check_probabilities(model.predict_proba(table), n_rows, self.classes, who)
        return check_decisions(model.decision_function(table), n_rows, self.decision_widths, who)

    @property
    def decision_widths(self) -> tuple[int, ...]:
        """How many decision values a classifier may have for each row."""
        raise NotImplementedError

    def check_outputs(self, outputs: Any, n_rows: int, who: str) -> Floats:
        """Outputs that a model of another make gave, as they are, shape (n_rows, n_classes), or a refusal."""
        return check_probabilities(outputs, n_rows, self.classes, who)

    def is_calibrated(self, model: Any) -> bool:
        """Whether the model has ``predict_proba``, which some have only with certain settings."""
        return hasattr(model, "predict_proba")


def class_task(task: Any) -> ClassTask:
    """The task, where answers are labels: for models that learn where an answer is right."""
    if not isinstance(task, ClassTask):
        raise InvalidInputError(
            f"this model answers with labels; the task here is one of numbers ({task.quality_name}). Use a regressor."
        )
    return task


def clip_probability(probability: ArrayLike) -> Floats:
    """Probabilities moved to at least ``CLIP`` from 0 and 1."""
    return np.clip(np.asarray(probability, dtype=np.float64), CLIP, 1.0 - CLIP)


def area_under_curve(is_second: Bools, scores: Floats) -> float | None:
    """Area under the ROC curve of scores that are larger for rows of the second class; None if there is one class.

    It is the probability that a row of the second class scores higher than a row of the first, ties counting half:
    with the rows ranked by score, ``(sum of the second class's ranks - n1 (n1 + 1) / 2) / (n0 n1)``.
    """
    n_second, n_first = int(is_second.sum()), int((~is_second).sum())
    if n_first == 0 or n_second == 0:
        return None
    _, of_row, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Rows with one score share the mean of the ranks they take up together.
    rank = (np.cumsum(counts) - (counts - 1) / 2)[of_row.reshape(-1)]
    return float((rank[is_second].sum() - n_second * (n_second + 1) / 2) / (n_first * n_second))
