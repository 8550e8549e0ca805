"""Where to cut a gate: the threshold that spends a budget, and the curve that all thresholds draw.

A threshold sends on the rows with the highest gate scores. Sorted once, every threshold is a
position in that order, and cost, accuracy and share sent are running sums: the whole curve of
a fitted gate costs one sort.
"""

from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.errors import InvalidInputError

__all__ = ["Cuts", "ThresholdCurve", "cuts_of", "threshold_curve"]


@dataclass(frozen=True)
class Cuts:
    """Every place at which a gate can cut a set of rows, from "send nobody" on.

    Attributes
    ----------
    order : ndarray of shape (n_samples,)
        The rows by falling gate score.
    n_sent : ndarray of shape (n_points,)
        How many of them, in that order, each cut sends on; rising.
    threshold : ndarray of shape (n_points,)
        A threshold that sends on exactly those; falling.
    """

    order: Ints
    n_sent: Ints
    threshold: Floats


@dataclass(frozen=True)
class ThresholdCurve:
    """Every distinct operating point of one gate on one set of rows, from "send nobody" on.

    Attributes
    ----------
    threshold : ndarray of shape (n_points,)
        Rows with ``g > threshold`` are sent on; falling.
    cost, share : ndarray of shape (n_points,)
        Mean spend per row, and share of rows sent on; both rising.
    score : ndarray of shape (n_points,)
        Mean of what was to be scored (accuracy, if rows were scored 0 / 1).
    """

    threshold: Floats
    cost: Floats
    share: Floats
    score: Floats

    def within(self, budget: float) -> int:
        """The point that sends on the most rows with a mean cost of at most ``budget``."""
        # A mean over rows may miss a round number by its last digit.
        affordable = np.flatnonzero(self.cost <= budget * (1 + 1e-12))
        if affordable.size == 0:
            raise InvalidInputError(
                f"budget must be at least {self.cost.min():.6g}, the mean cost of the cheapest route; got {budget!r}. "
                f"Raise the budget, or let the cheap model buy fewer features."
            )
        return int(affordable[-1])

    def sending(self, share: float) -> int:
        """The point that sends on the most rows, at most this share of them."""
        return int(np.flatnonzero(self.share <= share + 1e-12)[-1])

    def reaching(self, score: float) -> int:
        """The point that sends on the fewest rows with a mean score of at least ``score``."""
        enough = np.flatnonzero(self.score >= score - 1e-12)
        if enough.size == 0:
            best = int(np.argmax(self.score))
            raise InvalidInputError(
                f"accuracy {score!r} is out of reach here: the full model alone has {self.score[-1]:.6g}, and the best "
                f"any threshold reaches is {self.score[best]:.6g}, sending {self.share[best]:.1%}. Ask for no more."
            )
        return int(enough[0])


def threshold_curve(
    g: Floats,
    stop_cost: Floats | float,
    go_cost: Floats | float,
    stop_score: Floats | float = 0.0,
    go_score: Floats | float = 0.0,
    weight: Floats | None = None,
) -> ThresholdCurve:
    """Score every threshold of a gate.

    Parameters
    ----------
    g : ndarray of shape (n_samples,)
        Gate scores.
    stop_cost, go_cost : float or ndarray of shape (n_samples,)
        What a row pays if it stops here, and if it is sent on.
    stop_score, go_score : float or ndarray of shape (n_samples,)
        What is averaged, in each case: 0 / 1 for right and wrong.
    weight : ndarray of shape (n_samples,), optional
        Sample weights.
    """
    weight = np.ones(len(g)) if weight is None else weight
    weight = weight / weight.sum()
    cuts = cuts_of(g)

    def running(stop: Floats | float, go: Floats | float) -> Floats:
        stop_all = float(weight @ np.broadcast_to(stop, g.shape))
        gained = np.broadcast_to(np.subtract(go, stop), g.shape)[cuts.order] * weight[cuts.order]
        total: Floats = stop_all + np.r_[0.0, np.cumsum(gained)][cuts.n_sent]
        return total

    return ThresholdCurve(
        threshold=cuts.threshold,
        cost=running(stop_cost, go_cost),
        share=running(0.0, 1.0),
        score=running(stop_score, go_score),
    )


def cuts_of(g: Floats) -> Cuts:
    """Sort a gate's scores once and find every cut."""
    order = np.argsort(-g, kind="stable")
    ordered = g[order]
    # Rows with equal scores go together: a cut is allowed only where the score changes.
    n_sent = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1], True])
    return Cuts(order, n_sent, _between(ordered, n_sent))


def _between(ordered: Floats, cuts: Ints) -> Floats:
    """Thresholds that send on exactly the first ``cut`` rows: midway between neighbouring scores.

    "Nobody" and "everybody" are infinite, so that they hold for other rows too.
    """
    above = np.r_[np.inf, ordered][cuts]
    below = np.r_[ordered, -np.inf][cuts]
    with np.errstate(invalid="ignore"):
        middle = below + (above - below) / 2.0
    # Midpoints that overflow or round onto the upper score fall back to the lower one, which is not sent.
    cut: Floats = np.where(np.isfinite(middle) & (middle < above), middle, below)
    cut[0] = np.inf
    return cut
