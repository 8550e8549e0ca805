"""What a budget leaves for calls of the full model once a pair has bought its columns: the constraint of (OPT1).

    mean[c(f1, x)] + mean[q w] <= budget,   w = c(f0, x) - c(f1, x)

so that the q-step's limit is ``budget - mean[c(f1, x)]`` and its prices are ``w``, which may differ from row to row:
behind a chain, or where a price does.
"""

from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.policy import Policy
from thrifty.chain.sources import TableReader
from thrifty.chain.stage import LinearStage
from thrifty.chain.walk import Walk
from thrifty.full.crossfit import TrainingRows

__all__ = ["CallBudget"]

LEAST_SHARE = 0.01
"""Share of the rows that may always be sent while learning: under the KL distance a gate that is shut stays shut."""


@dataclass(frozen=True)
class CallBudget:
    """A mean spend per row, and the rows and the chain that it is spent on.

    Attributes
    ----------
    budget : float
        Most that a row may spend on average.
    behind : Chain
        Full model that rows are sent to, with its prices.
    rows : TrainingRows
        Rows of the fit.
    route : ndarray of shape (n_samples,)
        Route of each row there.
    """

    budget: float
    behind: Chain
    rows: TrainingRows
    route: Ints

    def of(self, columns: Ints) -> tuple[float, Floats]:
        """The q-step's limit and prices for a pair that buys these columns; none before it has chosen any."""
        rows = self.rows
        held = LinearStage(columns, np.empty((len(columns), 0)), np.empty(0))
        chain = replace(self.behind, stages=(held,), policy=Policy.of(np.zeros(1)))
        reader = TableReader(rows.X, rows.table, rows.positions)
        everyone, carried = np.arange(len(rows.y)), np.empty((len(rows.y), 0))
        stop = chain.spent_at(reader, 0)
        sent = chain.spent(reader, Walk(everyone, self.route + 1, carried))
        extra: Floats = np.maximum(sent - stop, 0.0)
        mean_stop, mean_extra = (float(np.average(one, weights=rows.weight)) for one in (stop, extra))
        return max(self.budget - mean_stop, LEAST_SHARE * mean_extra), extra

    def share_of(self, columns: Ints) -> float:
        """Share of the rows that could be sent if each cost the mean."""
        limit, extra = self.of(columns)
        mean = float(np.average(extra, weights=self.rows.weight))
        return min(limit / mean, 1.0) if mean > 0.0 else 1.0
