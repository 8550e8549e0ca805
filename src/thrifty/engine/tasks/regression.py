"""Regression: scaled targets, losses (squared, absolute, pinball) with their derivatives, and the task.

There is one score, the predicted number in units of the spread of the targets of the fit.

    squared    loss(y, s) = (y - s)^2 / 2,    derivatives   s - y        and   1
    absolute   loss(y, s) = |y - s|,          derivatives   sign(s - y)  and   1 / max(|y - s|, SMOOTH)
    pinball    loss(y, s) = stretch (|y - s| / 2 + (quantile - 1/2) (y - s)),
               stretch = 1 / (2 quantile (1 - quantile));      the absolute error is that of the quantile one half

The second derivatives of the absolute and the pinball loss are those of the parabola that touches the loss from above,
so a step minimises a weighted sum of squares, and repeated steps converge to the median or quantile. Stretched, the
pinball loss is the absolute error where the quantile is one half and of its order of magnitude elsewhere, so settings
for absolute errors suit it too.

The quality of an answer is on the scale of scikit-learn's ``r2_score``, ``d2_absolute_error_score`` and
``d2_pinball_score``: one is perfect, and zero what the best constant reaches on the rows of the fit.

    quality = 1 - (y - s)^2 / spread^2     or     1 - |y - s| / spread

A single number carries no measure of its uncertainty, so gates are learned, or all rows stop at the same stage.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats, Ints, Labels, check_unmasked
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.tasks.logistic import SQUARED, Formula
from thrifty.engine.tasks.task import Loss, Task
from thrifty.errors import InvalidInputError


def read_targets(name: str, values: Any) -> Floats:
    """Targets as finite numbers, or a refusal that names the row."""
    check_unmasked(name, values)
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must hold numbers, as targets of a regression: {error}") from error
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise InvalidInputError(
            f"{name} must hold finite numbers; got {float(numbers[wrong][0])!r} in row {row}. Leave such rows out."
        )
    return numbers


def check_loss(kind: str, quantile: Any) -> float:
    """Check loss and quantile; return the quantile of the pinball loss, and one half for other losses."""
    if kind not in ("squared", "absolute", "pinball"):
        raise InvalidInputError(f'loss must be "squared", "absolute" or "pinball"; got {kind!r}.')
    if kind != "pinball":
        if quantile is not None:
            raise InvalidInputError(
                f"quantile={quantile!r} goes with loss='pinball'; got loss={kind!r}. Leave it out, or change the loss."
            )
        return 0.5
    if not (isinstance(quantile, int | float | np.number) and 0.0 < float(quantile) < 1.0):
        raise InvalidInputError(
            f"loss='pinball' needs a quantile between 0 and 1, both left out; got {quantile!r}. Give quantile=0.9 to "
            f"BudgetedRegressor, for numbers that nine of ten targets do not exceed."
        )
    return float(quantile)


def centre_and_spread(numbers: Floats, weight: Floats, kind: str, quantile: float) -> tuple[float, float]:
    """Centre of the targets, and the mean error of the best constant (its root, for squared errors)."""
    # In units of a power of two, which rounds nothing: squares of 1e200 overflow, and those of 1e-200 are zero.
    exponent = int(np.frexp(np.abs(numbers).max())[1])
    numbers = np.ldexp(numbers, -exponent)
    middle, mean = _weighted_median(numbers, weight), _mean(numbers, weight)
    centre = middle if np.any(numbers > middle) else float(mean)
    if kind == "pinball":
        away = pinball(numbers - quantile_of(numbers, weight, quantile), quantile)
    else:
        away = np.square(numbers - mean) if kind == "squared" else np.abs(numbers - middle)
    spread = _mean(away, weight)
    in_units = np.array([centre, np.sqrt(spread) if kind == "squared" else spread])
    centre, spread = np.ldexp(in_units, exponent).tolist()
    return centre, spread


def _mean(numbers: Floats, weight: Floats) -> Any:
    return numbers.mean() if np.all(weight == 1.0) else np.average(numbers, weights=weight)


def _weighted_median(numbers: Floats, weight: Floats) -> float:
    """Weighted median; the mean of two numbers where they halve the weight."""
    order = np.argsort(numbers, kind="stable")
    passed = np.cumsum(weight[order])
    lower = int(np.searchsorted(passed, passed[-1] / 2))
    upper = lower + int(passed[lower] == passed[-1] / 2)
    return float((numbers[order[lower]] + numbers[order[upper]]) / 2)


def pinball_scale(quantile: float) -> float:
    """Factor by which the usual pinball loss is stretched."""
    return 0.5 / (quantile * (1.0 - quantile))


def pinball(missing: Floats, quantile: float) -> Floats:
    """Stretched pinball loss of the differences ``missing`` of targets and answers."""
    return pinball_scale(quantile) * (0.5 * np.abs(missing) + (quantile - 0.5) * missing)


def quantile_of(numbers: Floats, weight: Floats, quantile: float) -> float:
    """Weighted quantile: the smallest number with at least this share of the weight at or below it."""
    order = np.argsort(numbers, kind="stable")
    passed = np.cumsum(weight[order])
    return float(numbers[order][min(int(np.searchsorted(passed, passed[-1] * quantile)), len(order) - 1)])


def regret_of_quantile(away: Floats, quantile: float, unknown: float) -> Floats:
    """Expected increase of the pinball loss for answers ``away`` from the true quantile.

    Quadratic in a small distance and linear in a large one; ``unknown`` is the scale between both.
    """
    slope = pinball_scale(quantile) * np.where(away > 0, 1.0 - quantile, quantile)
    bend = slope * unknown
    return slope * (np.sqrt(np.square(away) + np.square(bend)) - bend)


@dataclass(frozen=True)
class PinballLoss:
    """The pinball loss of one score against targets, which is the absolute error for the quantile one half.

    In the second derivative, errors below ``SMOOTH`` count as that large.
    """

    y: Floats
    quantile: float = 0.5

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return pinball(self.y - scores[:, 0], self.quantile)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian of the parabola that touches the loss from above, each of shape (n_rows, 1)."""
        error, scale = scores - self.y[:, None], pinball_scale(self.quantile)
        hessian: Floats = 0.5 * scale / np.maximum(np.abs(error), SMOOTH)
        return error * hessian - scale * (self.quantile - 0.5), hessian

    def base(self, weight: Floats) -> Floats:
        """The weighted quantile."""
        return np.array([quantile_of(self.y, weight, self.quantile)])


SMOOTH = 0.02
"""Lower bound of absolute errors, in units of the spread, in the second derivative of the absolute loss."""

RIDGE = 1e-6
_ROUNDS = 25
_ROUNDS_OF_QUANTILES = 100


@dataclass(frozen=True)
class SquaredLoss:
    """Half of the squared error."""

    y: Floats

    @property
    def formula(self) -> Formula:
        """Formula of the loss for compiled trees."""
        return Formula(SQUARED, self.y)

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return 0.5 * np.square(scores[:, 0] - self.y)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian, each of shape (n_rows, 1)."""
        return scores - self.y[:, None], np.ones_like(scores)

    def base(self, weight: Floats) -> Floats:
        """The mean."""
        return np.array([np.average(self.y, weights=weight)])


def linear_weights(scores: Floats, y: Floats, weight: Floats, kind: str, quantile: float = 0.5) -> Floats:
    """Intercept and slopes, shape (1 + n_scores,), with the least squared or absolute error, or pinball loss.

    The absolute error is minimised by weighted least squares, each row weighted by one over the error it had before.
    The pinball loss is half of that and a part that is linear in the error, a constant pull towards the dearer side.
    """
    middle = np.average(scores, axis=0, weights=weight)
    spread = np.sqrt(np.average(np.square(scores - middle), axis=0, weights=weight))
    scale = np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(y)), (scores - middle) / scale])
    ridge = RIDGE * weight.sum() * np.diag([0.0, *np.ones(scores.shape[1])])
    of_rows, solution = weight, np.zeros(design.shape[1])
    rounds = {"squared": 1, "absolute": _ROUNDS, "pinball": _ROUNDS_OF_QUANTILES}[kind]
    # Rows are weighted as for the absolute error, twice the pinball loss of the median, hence twice the pull.
    pull = (2.0 * quantile - 1.0) * (weight @ design) if kind == "pinball" else 0.0
    for _ in range(rounds):
        weighted = of_rows[:, None] * design
        solution = np.linalg.solve(design.T @ weighted + ridge, weighted.T @ y + pull)
        of_rows = weight / np.maximum(np.abs(y - design @ solution), SMOOTH)
    slopes = solution[1:] / scale
    return np.r_[solution[0] - slopes @ middle, slopes]


RegressionLoss = Literal["squared", "absolute", "pinball"]

MIN_SPREAD, MAX_SPREAD = 1e-6, 1e30
"""Spread of targets between which full models are fitted on the targets as they are."""


@dataclass(frozen=True)
class RegressionTask(Task):
    """Regression: predicts a number.

    Attributes
    ----------
    kind : {"squared", "absolute", "pinball"}
        The error that counts.
    centre, spread : float
        Scores are ``(number - centre) / spread``.
    tolerance : float
        How much less good than the full model's an answer may be before it counts as worse.
    quantile : float
        Quantile that is answered, in (0, 1), where the error is the pinball loss; one half for absolute errors.
    """

    kind: RegressionLoss
    centre: float
    spread: float
    tolerance: float = 0.01
    quantile: float = 0.5

    classes: ClassVar[Labels] = np.empty(0)  # type: ignore[misc]  # the same for all
    has_uncertainty: ClassVar[bool] = False
    largest_loss: ClassVar[float] = 4.0

    def validate(self) -> Self:
        """Refuse numbers that make no task. Returns itself."""
        if not (self.spread > 0 and self.tolerance >= 0 and 0.0 < self.quantile < 1.0):
            raise InvalidInputError(
                f"spread must be positive, tolerance at least 0, and quantile between 0 and 1; got {self.spread!r}, "
                f"{self.tolerance!r}, {self.quantile!r}."
            )
        return self

    @property
    def unit(self) -> float:
        """Power of two in units of which full models are fitted: one, unless their arithmetic fails on the targets.

        Histogram boosting keeps gradients in single precision, and scikit-learn's trees do not split variances below
        the precision of a number.
        """
        if MIN_SPREAD <= self.spread <= MAX_SPREAD:
            return 1.0
        return float(np.ldexp(0.5, min(max(int(np.frexp(self.spread)[1]), -1000), 1000)))

    @property
    def loss_name(self) -> str:
        """Mean error, in units of the spread."""
        if self.kind == "pinball":
            return f"mean pinball loss of the quantile {self.quantile:g} (in units of the spread of y)"
        return f"mean {self.kind} error (in units of the spread of y)"

    @property
    def loss_unit(self) -> str | None:
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
        return self.outputs(y)

    def targets(self, y: Floats) -> Floats:
        """Encoded targets on the scale of the scores."""
        return y

    def strata(self, y: Floats) -> Ints:
        """Side of the centre of each target, for stratified folds: 1 above it."""
        return (y > 0).astype(np.intp)

    def constant_quality(self, y: Floats, weight: Floats) -> float:
        """Quality of the best constant."""
        best = np.tile(self.loss(y).base(weight), (len(y), 1))
        return float(np.average(self.quality_of_scores(y, best), weights=weight))

    # -- losses --------------------------------------------------------------------------------

    def loss(self, y: Floats) -> Loss:
        """The loss of scores against encoded targets."""
        return SquaredLoss(y) if self.kind == "squared" else PinballLoss(y, self.quantile)

    # -- scores, outputs, answers ------------------------------------------------------------------

    def outputs(self, scores: Floats) -> Floats:
        """Numbers, shape (n_rows, 1)."""
        return scores * self.spread + self.centre

    def scores(self, outputs: Floats) -> Floats:
        """Numbers in units of the spread."""
        return (outputs - self.centre) / self.spread

    def decision(self, scores: Floats) -> Floats:
        """The numbers."""
        return self.outputs(scores)[:, 0]

    def answers(self, outputs: Floats) -> Labels:
        """The numbers, shape (n_rows,)."""
        return outputs[:, 0]

    def uncertainty(self, scores: Floats) -> Floats:
        """The same for all rows: a number does not say how sure it is."""
        return np.zeros(len(scores))

    def confidence(self, outputs: Floats) -> Floats:
        """Unknown."""
        return np.full(len(outputs), np.nan)

    # -- quality -------------------------------------------------------------------------------

    def quality(self, y: Floats, outputs: Floats) -> Floats:
        """One, minus the error in units of the spread."""
        return self.quality_of_scores(y, self.scores(outputs))

    def quality_of_scores(self, y: Floats, scores: Floats) -> Floats:
        """One, minus the error in units of the spread."""
        missing = self.targets(y) - scores[:, 0]
        return 1.0 - (np.square(missing) if self.kind == "squared" else pinball(missing, self.quantile))

    def errors(self, y: Floats, scores: Floats) -> Floats | None:
        """Distance between number and target, in the unit of the targets."""
        return self.spread * np.abs(scores[:, 0] - y)

    def score(self, y: Floats, quality: Any) -> Any:
        """Share of the best constant's error on these rows that is explained: R2, or D2 of the error that counts."""
        constant = self.constant_quality(y, np.ones(len(y)))
        if constant >= 1.0:
            raise InvalidInputError(
                f"{self.quality_name} compares with the best constant, and all {len(y):,} targets are the same number, "
                f"{float(self.decode(y[:1])[0]):g}. Give rows whose targets differ."
            )
        return (quality - constant) / (1.0 - constant)

    def expected_loss(self, scores: Floats, belief: Floats) -> Floats:
        """Expected excess error of an answer over that of the best belief, given what is unknown.

        Squared errors grow by the squared distance from the mean. Absolute ones grow by less than the distance from
        the median while that is small against what is unknown anyway, which is taken to be ``UNKNOWN``; so do those of
        a quantile, on either side at its own price.
        """
        away = scores[:, 0] - belief[:, 0]
        return np.square(away) if self.kind == "squared" else regret_of_quantile(away, self.quantile, UNKNOWN)

    def expected_quality(self, loss: Floats) -> Floats:
        """Expected quality: one minus the loss against the best belief."""
        return 1.0 - loss

    # -- calibration and blending ------------------------------------------------------------------

    def calibrate(self, scores: Floats, y: Floats, weight: Floats) -> Floats:
        """Slope, never negative, and intercept."""
        intercept, slope = linear_weights(scores, self.targets(y), weight, self.kind, self.quantile)
        if slope > 0:
            return np.array([slope, intercept])
        return np.array([0.0, float(self.loss(y).base(weight)[0])])

    def blend_weights(self, last: Floats, full: Floats, y: Floats, weight: Floats) -> Floats:
        """Intercept and the weights of both models, by linear regression."""
        return linear_weights(np.hstack([last, full]), self.targets(y), weight, self.kind, self.quantile)


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
    check_amount("tolerance", tolerance)
    wanted = check_loss(kind, quantile)
    numbers = read_targets("y", y)
    if numbers.ndim != 1:
        raise InvalidInputError(f"y must hold one number per row, shape (n,); got shape {numbers.shape}.")
    if weight is None or np.all(weight == weight[0]):
        weight = np.ones(len(numbers))
    numbers, weight = numbers[weight > 0], weight[weight > 0]
    if not np.isfinite(np.ptp(numbers)):
        raise InvalidInputError(
            f"y must span less than {np.finfo(float).max:.3g}, the largest number; got targets from {numbers.min():g} "
            f"to {numbers.max():g}. Divide the targets by a constant."
        )
    centre, spread = centre_and_spread(numbers, weight, kind, wanted)
    if spread <= 1e-12 * max(abs(centre), 1e-300):
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
