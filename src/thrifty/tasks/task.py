"""``Task``, the interface of classification, regression and ranking: targets, scores, outputs and answers.

Inside, every model computes *scores*, an array of shape (n_rows, n_scores), on the scale on which its loss is written:
one log-odds for two classes, a log-probability for each of several, a number in units of its spread. Outside, it
returns *outputs*, an array of shape (n_rows, n_outputs): the probabilities of all classes, or the number. An *answer*
is what ``predict`` returns: a label or a number. The task converts each of them into the others, and measures how good
and how uncertain an answer is.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Ints, Labels, Numbers
from thrifty.trees.boosting import Loss

__all__ = ["ERRORS", "Task", "mean_error", "mean_errors"]

ERRORS = {"RMSE": 2, "MAE": 1}
"""What people call the mean of errors, with the power p of ``mean(error^p)^(1/p)``."""


def mean_error(powers: Any, power: int) -> Any:
    """The mean error, or several of them, from means of the errors to that power."""
    return np.maximum(powers, 0.0) ** (1.0 / power)


class Task(Protocol):
    """What an answer is."""

    @property
    def n_scores(self) -> int:
        """Scores per row."""

    @property
    def has_uncertainty(self) -> bool:
        """Whether scores tell how doubtful an answer is; where they do not, every gate is learned."""

    @property
    def tolerance(self) -> float:
        """How much less good than the full model's an answer may be before it counts as worse."""

    @property
    def classes(self) -> Labels:
        """Labels the user may get, in the order of the outputs; none where the answer is a number."""

    @property
    def loss_name(self) -> str:
        """What people call the loss."""

    @property
    def quality_name(self) -> str:
        """What people call the mean quality."""

    @property
    def best_quality(self) -> float:
        """Quality of an answer that loses nothing."""

    @property
    def largest_loss(self) -> float:
        """Most that an answer can lose against that; where there is no end, where losses are clipped by default."""

    @property
    def loss_unit(self) -> str | None:
        """What an answer loses, with its unit; None where it is right or wrong."""

    @property
    def mistake_price(self) -> float | None:
        """What one unit of ``expected_loss`` costs in the unit of the prices; None where that is not known."""

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """Targets as losses read them, shape (n_rows,); a label that is not known is refused by its row."""

    def decode(self, y: Floats) -> Labels:
        """Labels of encoded targets."""

    def strata(self, y: Floats) -> Ints:
        """Group of each row, by its target, of which every fold should hold its share; shape (n_rows,)."""

    def query_of(self, y: Floats) -> Ints | None:
        """Query of each row, where rows are documents to be ranked; None where a row is judged by itself."""

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Mean quality of the best answer that is the same for every row."""

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> Loss:
        """The loss of scores against encoded targets."""

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Outputs of scores, shape (n_rows, n_outputs)."""

    def bounded(self, outputs: Floats) -> Floats:
        """Outputs, kept away from certainty."""

    def scores(self, outputs: Floats) -> Floats:
        """Scores of outputs, shape (n_rows, n_scores); finite, because outputs are kept away from certainty."""

    def exact_scores(self, outputs: Floats) -> Floats:
        """Scores of outputs as they are, infinite where an answer is certain."""

    def decision(self, scores: Floats) -> Floats:
        """Scores in the form of scikit-learn's ``decision_function``."""

    def answers(self, outputs: Floats) -> Labels:
        """Label of each row."""

    def uncertainty(self, scores: Floats) -> Floats:
        """How doubtful an answer is, shape (n_rows,): the gate of a stage that has learned none."""

    def confidence(self, outputs: Floats) -> Floats:
        """Probability of the answer that is given, shape (n_rows,)."""

    # -- judging -------------------------------------------------------------------------------

    def quality(self, y: Floats, outputs: Floats) -> Numbers:
        """How good each answer is, shape (n_rows,): whether it is right, or how little it loses."""

    def quality_of_scores(self, y: Floats, scores: Floats) -> Numbers:
        """How good the answers of some scores are, shape (n_rows,)."""

    def errors(self, y: Floats, scores: Floats) -> Floats | None:
        """How far each answer is from its target, in the user's unit, shape (n_rows,); None for labels."""

    def score(self, y: Floats, quality: Any) -> Any:
        """What people call the score of rows with these targets, from their mean quality, or from several of them."""

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """What the answers of ``scores`` lose where ``belief`` holds the best scores there are, shape (n_rows,)."""

    def expected_quality(self, loss: Floats) -> Floats:
        """How good answers are that are expected to lose so much, on the scale of ``quality``."""

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """What turns scores into scores that mean what they say; ``calibrated`` applies it."""

    def calibrated(self, scores: Floats, calibration: Floats) -> Floats:
        """Scores after calibration."""

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """How to blend the scores of two models; ``blended`` applies it."""

    def blended(self, weights: Floats, last: Floats, full: Floats) -> Floats:
        """Scores of the blend."""

    @property
    def full_alone(self) -> Floats:
        """The blend that is the second model alone."""


def mean_errors(task: Task, y: Floats, scores: Floats) -> dict[str, float]:
    """Every mean error of some scores by its name, in the user's unit; none where answers are labels."""
    errors = task.errors(y, scores)
    if errors is None:
        return {}
    return {name: float(mean_error(np.mean(errors**power), power)) for name, power in ERRORS.items()}
