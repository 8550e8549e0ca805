r"""The pinball loss, whose best answer is a quantile: an error costs ``quantile`` above, ``1 - quantile`` below.

    loss(y, s) = stretch (|y - s| / 2 + (quantile - 1/2) (y - s)),     stretch = 1 / (2 quantile (1 - quantile))

Stretched, it is the absolute error where the quantile is one half, and of its order of magnitude elsewhere, in units of
the spread of the targets, so that what suits absolute errors suits it too. Its second derivative is that of the
parabola which touches it from above.
"""

from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Floats

__all__ = ["PinballLoss", "pinball", "quantile_of", "regret_of_quantile"]


def stretch_of(quantile: float) -> float:
    """What the textbook's pinball loss is multiplied by."""
    return 0.5 / (quantile * (1.0 - quantile))


def pinball(missing: Floats, quantile: float) -> Floats:
    """The stretched loss of targets that lie so far above the answers."""
    loss: Floats = stretch_of(quantile) * (0.5 * np.abs(missing) + (quantile - 0.5) * missing)
    return loss


def quantile_of(numbers: Floats, weight: Floats, quantile: float) -> float:
    """The smallest number with at least this share of the weight at or below it."""
    order = np.argsort(numbers, kind="stable")
    passed = np.cumsum(weight[order])
    return float(numbers[order][min(int(np.searchsorted(passed, passed[-1] * quantile)), len(order) - 1)])


def regret_of_quantile(away: Floats, quantile: float, unknown: float) -> Floats:
    """How much the mean loss grows for answers so far above the true quantile, with so much unknown of the target.

    By the square of a small distance, and in proportion to a large one, the dearer side more.
    """
    slope = stretch_of(quantile) * np.where(away > 0, 1.0 - quantile, quantile)
    bend = slope * unknown
    regret: Floats = slope * (np.sqrt(np.square(away) + np.square(bend)) - bend)
    return regret


@dataclass(frozen=True)
class PinballLoss:
    """The pinball loss of one score against targets, for one quantile; errors below ``smooth`` count as that large."""

    y: Floats
    quantile: float
    smooth: float

    def values(self, scores: Floats) -> Floats:
        """Loss of each row."""
        return pinball(self.y - scores[:, 0], self.quantile)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """Gradient and hessian of the parabola that touches the loss from above, each of shape (n_rows, 1)."""
        error, stretch = scores - self.y[:, None], stretch_of(self.quantile)
        hessian: Floats = 0.5 * stretch / np.maximum(np.abs(error), self.smooth)
        return error * hessian - stretch * (self.quantile - 0.5), hessian

    def base(self, weight: Floats) -> Floats:
        """The weighted quantile."""
        return np.array([quantile_of(self.y, weight, self.quantile)])
