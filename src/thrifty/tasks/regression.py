r"""A number as the answer: one score, the number itself in units of how far the targets of the fit spread.

    squared    loss(y, s) = (y - s)^2 / 2
    absolute   loss(y, s) = |y - s|
    pinball    that of a quantile, the absolute error with a dearer and a cheaper side

How good an answer is, is told on the scale of scikit-learn's ``r2_score``, ``d2_absolute_error_score`` and
``d2_pinball_score``: one is perfect, and zero what the best constant reaches on the rows of the fit.

    quality = 1 - (y - s)^2 / spread^2     or     1 - |y - s| / spread

A single number does not say how doubtful it is, so gates are learned, or all rows go equally far.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_regressor

from thrifty.arrays import Floats, Ints, Labels
from thrifty.errors import FULL_MODEL, InvalidInputError
from thrifty.tasks.answers import check_numbers
from thrifty.tasks.pinball import PinballLoss, pinball, regret_of_quantile
from thrifty.tasks.regression_losses import SMOOTH, AbsoluteLoss, SquaredLoss, linear_weights
from thrifty.tasks.regression_targets import centre_and_spread, check_loss, read_targets
from thrifty.trees.boosting import Loss

__all__ = ["RegressionLoss", "RegressionTask", "default_regressor", "regression_of"]

RegressionLoss = Literal["squared", "absolute", "pinball"]


@dataclass(frozen=True)
class RegressionTask:
    """Answers with a number.

    Attributes
    ----------
    kind : {"squared", "absolute", "pinball"}
        The error that counts.
    centre, spread : float
        Scores are ``(number - centre) / spread``.
    tolerance : float
        How much less good than the full model's an answer may be before it counts as worse.
    quantile : float
        Quantile that is answered, in (0, 1), where the error is the pinball loss; else one half, which plays no part.
    """

    kind: RegressionLoss
    centre: float
    spread: float
    tolerance: float = 0.01
    quantile: float = 0.5

    n_scores: ClassVar[int] = 1
    has_doubt: ClassVar[bool] = False
    mistake_price: ClassVar[float | None] = None
    best_quality: ClassVar[float] = 1.0
    largest_loss: ClassVar[float] = 4.0
    full_alone: ClassVar[Floats] = np.array([0.0, 0.0, 1.0])
    no_calibration: ClassVar[Floats] = np.array([1.0, 0.0])

    @property
    def classes(self) -> Labels:
        """None: there is no list of answers."""
        return np.empty(0)

    @property
    def loss_name(self) -> str:
        """Mean error, in units of the spread."""
        if self.kind == "pinball":
            return f"mean pinball loss of the quantile {self.quantile:g} (in units of the spread of y)"
        return f"mean {self.kind} error (in units of the spread of y)"

    @property
    def lost_in_words(self) -> str | None:
        """The error, with its unit."""
        if self.kind == "pinball":
            return "pinball loss in units of that of the best constant"
        unit = "the variance" if self.kind == "squared" else "the mean distance from the median"
        return f"{self.kind} error in units of {unit} of the targets"

    @property
    def quality_name(self) -> str:
        """Share of the spread that is explained."""
        if self.kind == "pinball":
            return f"D2 of the pinball loss (quantile {self.quantile:g})"
        return "R2" if self.kind == "squared" else "D2 of the absolute error"

    # -- targets -------------------------------------------------------------------------------

    def encode(self, name: str, labels: ArrayLike, n_rows: int) -> Floats:
        """Targets in units of the spread; one that is missing or infinite is refused by its row."""
        numbers = read_targets(name, labels)
        if numbers.shape != (n_rows,):
            raise InvalidInputError(
                f"{name} must hold one number per row, shape ({n_rows},); got shape {numbers.shape}."
            )
        return (numbers - self.centre) / self.spread

    def decode(self, y: Floats) -> Labels:
        """The numbers themselves."""
        numbers: Floats = y * self.spread + self.centre
        return numbers

    def strata(self, y: Floats) -> Ints:
        """Whether a target lies above the centre: folds should hold their share of both sides."""
        return (y > 0).astype(np.intp)

    def query_of(self, y: Floats) -> Ints | None:  # noqa: ARG002 - part of the contract
        """None: a row is judged by itself."""
        return None

    def lesson(self, model: Any, y: Floats) -> tuple[Labels, dict[str, Any]]:  # noqa: ARG002 - part of the contract
        """The targets as the user wrote them."""
        return self.decode(y), {}

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Quality of the best constant."""
        best = np.tile(self.loss(y).base(weight), (len(y), 1))
        return float(np.average(self.quality_of_scores(y, best), weights=weight))

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> Loss:
        """The loss of scores against encoded targets."""
        if self.kind == "pinball":
            return PinballLoss(y, self.quantile, SMOOTH)
        return SquaredLoss(y) if self.kind == "squared" else AbsoluteLoss(y)

    def loss_of_outputs(self, y: Floats, outputs: Floats) -> Floats:
        """Loss of each row."""
        return self.loss(y).values(self.scores(outputs))

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Numbers, shape (n_rows, 1)."""
        return self.decode(scores)

    def bounded(self, outputs: Floats) -> Floats:
        """Numbers as they are: none of them is a certainty."""
        return outputs

    def scores(self, outputs: Floats) -> Floats:
        """Numbers in units of the spread."""
        scores: Floats = (outputs - self.centre) / self.spread
        return scores

    def exact_scores(self, outputs: Floats) -> Floats:
        """Numbers in units of the spread."""
        return self.scores(outputs)

    def decision(self, scores: Floats) -> Floats:
        """The numbers."""
        return self.decode(scores[:, 0])

    def answers(self, outputs: Floats) -> Labels:
        """The numbers, shape (n_rows,)."""
        return outputs[:, 0]

    def doubt(self, scores: Floats) -> Floats:
        """The same for all rows: a number does not say how sure it is."""
        return np.zeros(len(scores))

    def confidence(self, outputs: Floats) -> Floats:
        """Unknown."""
        return np.full(len(outputs), np.nan)

    # -- judging -------------------------------------------------------------------------------

    def quality(self, y: Floats, outputs: Floats) -> Floats:
        """One, minus the error in units of the spread."""
        return self.quality_of_scores(y, self.scores(outputs))

    def quality_of_scores(self, y: Floats, scores: Floats) -> Floats:
        """One, minus the error in units of the spread."""
        if self.kind == "pinball":
            return 1.0 - pinball(y - scores[:, 0], self.quantile)
        error = np.abs(scores[:, 0] - y)
        quality: Floats = 1.0 - (np.square(error) if self.kind == "squared" else error)
        return quality

    def errors(self, y: Floats, scores: Floats) -> Floats | None:
        """Distance between number and target, in the unit of the targets."""
        distance: Floats = self.spread * np.abs(scores[:, 0] - y)
        return distance

    def score(self, y: Floats, quality: Any) -> Any:
        """The part of the best constant's error on these rows that is gone: R2, or D2 of the error that counts."""
        constant = self.constant_quality(y, np.ones(len(y)))
        if constant >= 1.0:
            raise InvalidInputError(
                f"{self.quality_name} compares with the best constant, and all {len(y):,} targets are the same number, "
                f"{float(self.decode(y[:1])[0]):g}. Give rows whose targets differ."
            )
        return (quality - constant) / (1.0 - constant)

    def auc(self, y: Floats, scores: Floats) -> float | None:  # noqa: ARG002 - part of the contract
        """None: there are no classes."""
        return None

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """How much more an answer errs than the best belief there is, on average over what is not known.

        Squared errors grow by the squared distance from the mean. Absolute ones grow by less than the distance from
        the median while that is small against what is unknown anyway, which is taken to be ``UNKNOWN``; so do those of
        a quantile, on either side at its own price.
        """
        if self.kind == "pinball":
            return regret_of_quantile(scores[:, 0] - belief[:, 0], self.quantile, UNKNOWN)
        squares = np.square(scores[:, 0] - belief[:, 0])
        loss: Floats = squares if self.kind == "squared" else np.sqrt(squares + UNKNOWN**2) - UNKNOWN
        return loss

    def expected_quality(self, loss: Floats) -> Floats:
        """How much is lost against the best belief, from one downwards."""
        quality: Floats = 1.0 - loss
        return quality

    def expected_regret(self, scores: Floats, full: Floats, belief: Floats) -> Floats:
        """How much worse than the full model's an answer is believed to be; never less than nothing."""
        worse = self.expected_loss(scores, belief) - self.expected_loss(full, belief)
        return np.maximum(worse, 0.0)

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope, never negative, and intercept."""
        intercept, slope = linear_weights(scores, y, weight, self.kind, self.quantile)
        if slope > 0:
            return np.array([slope, intercept])
        return np.array([0.0, float(self.loss(y).base(weight)[0])])

    def calibrated(self, scores: Floats, calibration: Floats) -> Floats:
        """``slope * score + intercept``."""
        calibrated: Floats = scores * calibration[0] + calibration[1]
        return calibrated

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """Intercept and the weights of both models, by linear regression."""
        return linear_weights(np.hstack([last, full]), y, weight, self.kind, self.quantile)

    def blended(self, weights: Floats, last: Floats, full: Floats) -> Floats:
        """Scores of the blend."""
        blended: Floats = weights[0] + weights[1] * last + weights[2] * full
        return blended

    # -- models of others ------------------------------------------------------------------------

    def default_model(self, random_state: Any) -> Any:
        """Histogram boosting with scikit-learn's settings."""
        return default_regressor(self.kind, random_state, self.quantile)

    def check_recipe(self, model: Any, name: str) -> None:
        """Refuse an unfitted model that is no regressor."""
        if not is_regressor(model):
            raise InvalidInputError(
                f"{name} must be a regressor; got {type(model).__name__}. Wrap a fitted model in FrozenEstimator, "
                f"or pass a function that returns numbers."
            )

    def check_model(self, model: Any, name: str) -> None:
        """Refuse a model that cannot predict, or that predicts classes."""
        if not hasattr(model, "predict"):
            raise InvalidInputError(
                f"{name} must offer predict; {type(model).__name__} does not. Pass a function that returns numbers."
            )
        if getattr(model, "classes_", None) is not None and not is_regressor(model):
            raise InvalidInputError(
                f"{name} is a {type(model).__name__}, which answers with classes, but y holds numbers. Give a "
                f"regressor, or use BudgetedClassifier."
            )

    def ask(self, model: Any, table: Any) -> Floats:
        """What the model predicts, checked, shape (n_rows, 1)."""
        return self.check_outputs(
            model.predict(table), table.shape[0], f"{FULL_MODEL} ({type(model).__name__})"
        )

    def check_outputs(self, outputs: Any, n_rows: int, who: str) -> Floats:
        """Numbers that somebody gave, shape (n_rows, 1), or a refusal."""
        return check_numbers(outputs, n_rows, who)

    def is_calibrated(self, model: Any) -> bool:  # noqa: ARG002 - part of the contract
        """Always: a number is taken as it is."""
        return True

    def calibrate_model(self, raw: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope and intercept, for whoever wants them."""
        return self.calibrate(self.scores(raw), y, weight)

    def outputs_of(self, raw: Floats, calibration: Floats | None) -> Floats:
        """Numbers of what ``ask`` returned."""
        return raw if calibration is None else self.outputs(self.calibrated(self.scores(raw), calibration))

    def read_outputs(self, given: Any, n_rows: int | None, who: str) -> Floats:
        """Numbers that somebody computed, shape (n_rows, 1), or a refusal."""
        return check_numbers(given, n_rows, who)


UNKNOWN = 0.25
"""Absolute error that remains with the best belief, in units of the spread: its order of magnitude suffices."""


def regression_of(
    y: Any,
    kind: str,
    weight: Floats | None = None,
    *,
    tolerance: float = 0.01,
    quantile: float | None = None,
) -> RegressionTask:
    """The task that some targets pose; a constant is refused. A target of weight two is that target given twice."""
    if not (isinstance(tolerance, int | float | np.number) and 0.0 <= float(tolerance) < np.inf):
        raise InvalidInputError(
            f"tolerance must be a number of at least 0; got {tolerance!r}. It is how much larger than the full model's "
            f"an error may be, in units of the spread of y, or of its square."
        )
    wanted = check_loss(kind, quantile)
    numbers = read_targets("y", y)
    if numbers.ndim != 1:
        raise InvalidInputError(f"y must hold one number per row, shape (n,); got shape {numbers.shape}.")
    if weight is None or np.all(weight == weight[0]):
        weight = np.ones(len(numbers))
    numbers, weight = numbers[weight > 0], weight[weight > 0]
    centre, spread = centre_and_spread(numbers, weight, kind, wanted)
    if not np.isfinite(spread) or spread <= 1e-12 * max(abs(centre), 1e-300):
        raise InvalidInputError(
            f"y must vary; got {len(numbers):,} sample{'s' if len(numbers) > 1 else ''} with the target {centre:g}, or "
            f"nearly so, and there is nothing to learn from that."
        )
    name: RegressionLoss = "squared" if kind == "squared" else "pinball" if kind == "pinball" else "absolute"
    return RegressionTask(name, centre, spread, float(tolerance), wanted)


def default_regressor(kind: str, random_state: Any, quantile: float | None = None) -> Any:
    """Histogram boosting with scikit-learn's settings, for this error."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a while to import

    if kind == "pinball":
        return HistGradientBoostingRegressor(loss="quantile", quantile=quantile, random_state=random_state)
    loss: Any = f"{kind}_error"
    return HistGradientBoostingRegressor(loss=loss, random_state=random_state)
