"""What operating points spend on new rows: an interval of the mean cost, and points that surely keep to a budget.

A mean over n rows with standard deviation s strays from the mean of all rows there are by about ``s / sqrt(n)``, and
Student's t says how far, with a given probability. Points are tried from the cheapest on, each at the full level, and
the search ends at the first whose bound exceeds the budget: a point that spends too much can be chosen only if the
first such point passes, so no correction for the number of points is needed. A mix of two points is a point between.
"""

from typing import Any

import numpy as np
from scipy.special import stdtrit

from thrifty.arrays import Floats
from thrifty.chain.policy import SLACK, Policy
from thrifty.errors import InvalidInputError
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.trials import trials_of

__all__ = ["Spending", "check_confidence"]

_HALVINGS = 40


class Spending:
    """Costs of the operating points on rows that the fit has not seen.

    Parameters
    ----------
    evidence : Evidence
        Those rows.
    n_rows : int
        Different rows among them: a row that is given twice is no second observation.
    """

    def __init__(self, evidence: Evidence, n_rows: int) -> None:
        self._evidence, self._n_rows = evidence, n_rows

    @classmethod
    def on_held_out(cls, held_out: Evidence, fitted_on: Evidence, duplicates: str) -> "Spending":
        """Costs on rows that were kept out of a fit, those that equal rows of the fit left out."""
        trials = trials_of(held_out.rows, fitted_on.known_rows, held_out.n_rows, duplicates)
        if trials.n_trials < 2:
            raise InvalidInputError(
                f"a mean cost cannot be bounded: of {held_out.n_rows:,} rows kept out of the fit, {trials.n_trials} "
                f"differ from each other and from those of the fit. Give more rows, or leave out confidence."
            )
        return cls(held_out.take(np.flatnonzero(trials.kept)), trials.n_trials)

    def within(self, policy: Policy, budget: float, confidence: float) -> Policy:
        """The policy at the dearest point, or mix, that is shown to keep to a budget; points by rising cost."""
        lower, paid = -1, np.empty(0)
        for place, thresholds in enumerate(policy.thresholds):
            dearer = self._paid(thresholds)
            bound = self._bound(dearer, confidence)
            if bound > budget * (1 + SLACK):
                break
            lower, paid = place, dearer
        else:
            return policy.at(lower)
        if lower < 0:
            raise InvalidInputError(
                f"budget={budget!r} cannot be shown to be kept with confidence={confidence!r}: on {self._n_rows:,} "
                f"rows that the fit has not seen, the cheapest point spends {float(dearer.mean()):.6g} on average, and "
                f"the mean of new rows may be {bound:.6g}. Raise the budget, lower confidence, or give more rows."
            )
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            fits = self._bound((1 - share) * paid + share * dearer, confidence) <= budget
            low, high = (share, high) if fits else (low, share)
        return policy.at(lower, lower + 1, low)

    def interval(self, policy: Policy, level: float, copies: int = 0) -> tuple[float, float]:
        """Where the mean cost of new rows at the point in force lies, with probability ``level``.

        Where rows were judged by ``copies`` of the stages that serve, each on its own part of the rows, what serves is
        one more such copy. The means of the parts vary by at least ``copies s^2 / n``, and so does its own around
        their average, by ``1 + 1 / copies`` times that. Of a mix of two points, new rows draw anew which one they
        follow: where every row pays the same at either point, that is all by which they vary.
        """
        share = policy.share
        lower, upper = (self._paid(policy.thresholds[point]) for point in (policy.lower, policy.upper))
        drawn = share * (1 - share) * np.square(upper - lower)
        mean, error = self._mean_and_error((1 - share) * lower + share * upper, drawn)
        margin = float(stdtrit(self._n_rows - 1, (1 + level) / 2)) * error * float(np.sqrt(1 + copies))
        # No row pays less than the cheapest of these, or more than the dearest way there is.
        return max(mean - margin, float(self._evidence.cost.min())), min(
            mean + margin, float(self._evidence.cost.max())
        )

    def _paid(self, thresholds: Floats) -> Floats:
        return self._evidence.at_point(thresholds)[1]

    def _bound(self, paid: Floats, confidence: float) -> float:
        """What the mean cost exceeds with at most the remaining probability.

        One more row is counted that pays as much as the dearest of these. Few rows do, and where by chance fewer of
        them are seen than there should be, both the mean and the spread look smaller than they are.
        """
        n_rows, dearest = self._n_rows, float(paid.max())
        mean, error = self._mean_and_error(paid)
        with_dearest = (n_rows * mean + dearest) / (n_rows + 1)
        squares = (n_rows - 1) * n_rows * error**2 + n_rows * (mean - with_dearest) ** 2
        error = float(np.sqrt((squares + (dearest - with_dearest) ** 2) / ((n_rows + 1) * n_rows)))
        return with_dearest + float(stdtrit(n_rows, confidence)) * error

    def _mean_and_error(self, paid: Floats, drawn: Floats | float = 0.0) -> tuple[float, float]:
        """Mean of what rows pay, and its standard error; ``drawn`` is by what each row varies by itself."""
        weight = self._evidence.weights
        mean = float(np.average(paid, weights=weight))
        # As many observations as rows of equal weight would be that vary as much.
        n_rows = self._n_rows * float(weight.sum() ** 2 / (len(weight) * np.square(weight).sum()))
        variance = float(np.average(np.square(paid - mean) + drawn, weights=weight)) / max(n_rows - 1, 1.0)
        return mean, float(np.sqrt(variance))


def check_confidence(confidence: Any) -> float | None:
    """A probability, or None where none was asked for."""
    if confidence is None:
        return None
    if not (isinstance(confidence, float | int | np.number) and 0 < confidence < 1):
        raise InvalidInputError(
            f"confidence must lie strictly between 0 and 1; got {confidence!r}. It is the probability with which a "
            f"budget is kept, or a loss proved."
        )
    return float(confidence)
