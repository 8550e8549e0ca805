"""Numbers as targets: read, checked, and how far they spread in units of the loss that counts."""

from typing import Any

import numpy as np

from thrifty.arrays import Floats, check_unmasked
from thrifty.errors import InvalidInputError
from thrifty.tasks.pinball import pinball, quantile_of

__all__ = ["centre_and_spread", "check_loss", "read_targets"]


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
    """The quantile that the pinball loss is of, or one half for the other losses, which have none; or a refusal."""
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
    """Where targets lie, and the error of the best constant: the root of its mean where errors are squared."""
    middle, mean = _weighted_median(numbers, weight), _mean(numbers, weight)
    centre = middle if np.any(numbers > middle) else float(mean)
    if kind == "pinball":
        away = pinball(numbers - quantile_of(numbers, weight, quantile), quantile)
    else:
        away = np.square(numbers - mean) if kind == "squared" else np.abs(numbers - middle)
    spread = _mean(away, weight)
    return centre, float(np.sqrt(spread) if kind == "squared" else spread)


def _mean(numbers: Floats, weight: Floats) -> Any:
    return numbers.mean() if np.all(weight == 1.0) else np.average(numbers, weights=weight)


def _weighted_median(numbers: Floats, weight: Floats) -> float:
    """The number with half of the weight on either side, or the middle of the two that part it evenly."""
    order = np.argsort(numbers, kind="stable")
    passed = np.cumsum(weight[order])
    lower = int(np.searchsorted(passed, passed[-1] / 2))
    upper = lower + int(passed[lower] == passed[-1] / 2)
    return float((numbers[order[lower]] + numbers[order[upper]]) / 2)
