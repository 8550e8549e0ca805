"""Losses of classifiers besides the error rate: log-loss, Brier loss, and a cost matrix of mistakes.

With ``p`` the probabilities of an answer and ``k`` the true class, an answer loses

    "log"      -log p_k
    "brier"    sum_j (p_j - [j = k])^2, half of that for two classes, as in scikit-learn
    a matrix   C[k, a],    where    a = argmin_j  sum_k p_k C[k, j]    is the class of least expected cost

A matrix is written in the unit of the prices of features, so that tests and mistakes can be added up.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from thrifty.arrays import Floats, Ints, Labels
from thrifty.engine.prices.billing import MAX_PRICE
from thrifty.errors import InvalidInputError

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
