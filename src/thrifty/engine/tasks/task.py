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

ERRORS = {"RMSE": 2, "MAE": 1}
"""Names of mean errors, with the power p of ``mean(error^p)^(1/p)``."""


def mean_error(powers: Any, power: int) -> Any:
    """Mean error, or several of them, from means of the errors to that power."""
    return np.maximum(powers, 0.0) ** (1.0 / power)


class Loss(Protocol):
    """The loss of scores, shape (n_rows, n_scores), against the targets of some rows.

    A loss may have an attribute ``formula`` (``thrifty.engine.tasks.logistic.Formula``), if its derivatives are
    among those that compiled code knows: boosting then grows several trees in one call.
    """

    def values(self, scores: Floats) -> Floats:
        """Loss of each row, shape (n_rows,)."""

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and diagonal of the hessian by the scores, each of shape (n_rows, n_scores)."""

    def base(self, weight: Floats) -> Floats:
        """Constant scores with the least weighted loss, shape (n_scores,)."""


class Task(Protocol):
    """Interface of classification, regression and ranking; tasks derive from it.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Class labels in the order of the outputs; empty for regression and ranking.
    """

    classes: Labels

    @property
    def n_scores(self) -> int:
        """Scores per row."""
        return 1

    @property
    def has_uncertainty(self) -> bool:
        """True if scores measure the uncertainty of an answer; otherwise every gate is learned."""
        return True

    @property
    def tolerance(self) -> float:
        """Difference in quality to the full model up to which an answer does not count as worse."""
        return 0.0

    @property
    def loss_name(self) -> str:
        """Name of the loss."""

    @property
    def quality_name(self) -> str:
        """Name of the mean quality, such as "accuracy"."""

    @property
    def best_quality(self) -> float:
        """Quality of an answer that loses nothing."""
        return 1.0

    @property
    def largest_loss(self) -> float:
        """Largest loss of an answer; where losses are unbounded, the value at which they are clipped by default."""

    @property
    def loss_unit(self) -> str | None:
        """Name and unit of the loss of an answer; None where it is right or wrong."""

    @property
    def mistake_price(self) -> float | None:
        """Cost of one unit of ``expected_loss`` in the unit of the prices; None where mistakes have no prices."""
        return None

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """Encode targets for losses, shape (n_rows,); an unknown label raises an error that names its row."""

    def decode(self, y: Floats) -> Labels:
        """Labels of encoded targets."""

    def strata(self, y: Floats) -> Ints:
        """Stratum of each row by its target, for stratified folds, shape (n_rows,)."""

    def query_of(self, y: Floats) -> Ints | None:  # noqa: ARG002 - for ranking
        """Query of each row, for ranking; None for other tasks."""
        return None

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Mean quality of the best constant answer."""

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> Loss:
        """The loss of scores against encoded targets."""

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Outputs of scores, shape (n_rows, n_outputs)."""

    def bounded(self, outputs: Floats) -> Floats:
        """Clipped outputs, with no probability of 0 or 1; numbers are unchanged."""
        return outputs

    def scores(self, outputs: Floats) -> Floats:
        """Scores of outputs, shape (n_rows, n_scores); finite, because outputs are clipped."""

    def exact_scores(self, outputs: Floats) -> Floats:
        """Scores of outputs without clipping; infinite where a probability is 0 or 1."""
        return self.scores(outputs)

    def decision(self, scores: Floats) -> Floats:
        """Scores in the form of scikit-learn's ``decision_function``."""

    def answers(self, outputs: Floats) -> Labels:
        """Label of each row."""

    def uncertainty(self, scores: Floats) -> Floats:
        """Uncertainty of an answer, shape (n_rows,): the gate score of a stage without a learned gate."""

    def confidence(self, outputs: Floats) -> Floats:
        """Probability of the predicted label, shape (n_rows,)."""

    # -- quality -------------------------------------------------------------------------------

    def quality(self, y: Floats, outputs: Floats) -> Numbers:
        """Quality of each answer, shape (n_rows,): whether it is right, or minus its loss."""

    def quality_of_scores(self, y: Floats, scores: Floats) -> Numbers:
        """Quality of the answers of some scores, shape (n_rows,)."""

    def errors(self, y: Floats, scores: Floats) -> Floats | None:  # noqa: ARG002 - for regression
        """Absolute error of each answer in the unit of the target, shape (n_rows,); None for labels and ranking."""
        return None

    def score(self, y: Floats, quality: Any) -> Any:  # noqa: ARG002 - for regression
        """Score, such as accuracy or R2, of rows with these targets from their mean quality, or several of them."""
        return quality

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """Expected loss of the answers of ``scores`` under the probabilities of ``belief``, shape (n_rows,)."""

    def expected_quality(self, loss: Floats) -> Floats:
        """Expected quality of answers with an expected loss, on the scale of ``quality``."""

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """Fit the calibration of scores; ``calibrated`` applies it."""

    def calibrated(self, scores: Floats, calibration: Floats) -> Floats:
        """Scores after calibration: ``slope * score + intercept``, unless there are several scores."""
        return scores * calibration[0] + calibration[1]

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """Fit the weights of a blend of the scores of two models; ``blended`` applies them."""

    def blended(self, weights: Floats, last: Floats, full: Floats) -> Floats:
        """Scores of the blend: an intercept and a weight for each model, unless there are several scores."""
        return weights[0] + weights[1] * last + weights[2] * full

    @property
    def full_alone(self) -> Floats:
        """Weights of the blend that is the full model alone."""
        return np.array([0.0, 0.0, 1.0])


def mean_errors(task: Task, y: Floats, scores: Floats) -> dict[str, float]:
    """Mean errors of some scores by name, in the unit of the target; empty for labels."""
    errors = task.errors(y, scores)
    if errors is None:
        return {}
    return {name: float(mean_error(np.mean(errors**power), power)) for name, power in ERRORS.items()}
