"""Where to stop: one threshold per stage, by backward induction.

With a price (loss per unit of cost) fixed, a row that stands at stage k has the choice between

    stop:   loss_k + price * cost_k          go on:   V_(k+1), what the rules of the later stages make of it

and may only look at the stage's gate score g_k, which is made of what is bought by then. Among all rules "go on iff
g_k > threshold" the one with the least mean on these rows is found exactly: sort the rows by g_k, add up
``stop - go`` and cut where the sum is least. The last stage comes first, so V is known row by row, with the costs that
each row really has later on and not their average.
"""

from dataclasses import dataclass

import numpy as np

from thrifty.arrays import Floats, Ints

__all__ = ["Evidence", "StoppingRules", "route_by"]


TIE = 1e-10
"""Cuts whose sums differ by less, as a share of all that is summed, are equally good: rows then stop earlier."""


@dataclass(frozen=True)
class Evidence:
    """What is known of some rows at every stage, each by models that have not seen the row.

    Attributes
    ----------
    gate : ndarray of shape (n_rows, n_stages)
        Gate scores; large means "go on".
    loss : ndarray of shape (n_rows, n_stages + 1)
        Loss of stopping at each stage; the last is f0.
    cost : ndarray of shape (n_stages + 1,)
        What a row has paid that stops there; never falls.
    weight : ndarray of shape (n_rows,)
        Weights of the rows.
    """

    gate: Floats
    loss: Floats
    cost: Floats
    weight: Floats

    @property
    def n_stages(self) -> int:
        """Number of stages in front of f0."""
        return int(self.gate.shape[1])


class StoppingRules:
    """Finds the thresholds for any price; what does not depend on the price is sorted once."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._order = np.argsort(evidence.gate, axis=0, kind="stable")
        ranked = np.take_along_axis(evidence.gate, self._order, axis=0)
        self._ranked = ranked
        # A cut between two rows of equal score cannot be told to either of them.
        self._is_cut = np.ones((len(ranked) + 1, evidence.n_stages), dtype=bool)
        self._is_cut[1:-1] = ranked[1:] > ranked[:-1]

    def at(self, price: float) -> Floats:
        """Threshold of every stage, shape (n_stages,); infinite ones let everybody stop, or nobody."""
        return self._induce(price)[0]

    def stop_minus_go(self, price: float) -> Floats:
        """What a row that stands at each stage loses by stopping, later stages as decided: (n_rows, n_stages)."""
        return self._induce(price)[1]

    def _induce(self, price: float) -> tuple[Floats, Floats]:
        evidence = self._evidence
        onward = evidence.loss[:, -1] + price * evidence.cost[-1]
        thresholds, differences = np.empty(evidence.n_stages), np.empty(evidence.gate.shape)
        for stage in range(evidence.n_stages - 1, -1, -1):
            stop = evidence.loss[:, stage] + price * evidence.cost[stage]
            differences[:, stage] = stop - onward
            thresholds[stage] = self._cut(stage, evidence.weight * differences[:, stage])
            onward = np.where(evidence.gate[:, stage] > thresholds[stage], onward, stop)
        return thresholds, differences

    def _cut(self, stage: int, stop_minus_go: Floats) -> float:
        """Threshold with the least sum of ``stop - go`` over the rows that stop."""
        sums = np.r_[0.0, np.cumsum(stop_minus_go[self._order[:, stage]])]
        sums[~self._is_cut[:, stage]] = np.inf
        slack = TIE * float(np.abs(stop_minus_go).sum())
        n_stop = int(np.flatnonzero(sums <= sums.min() + slack)[-1])
        ranked = self._ranked[:, stage]
        if n_stop == 0:
            return -np.inf
        if n_stop == len(ranked):
            return np.inf
        low, high = float(ranked[n_stop - 1]), float(ranked[n_stop])
        middle = low / 2 + high / 2
        return middle if low <= middle < high else low


def route_by(gate: Floats, thresholds: Floats) -> Ints:
    """Stage at which each row stops, shape (n_rows,); the number of stages means f0."""
    stops = gate <= thresholds
    route: Ints = np.where(stops.any(axis=1), np.argmax(stops, axis=1), gate.shape[1]).astype(np.intp)
    return route
