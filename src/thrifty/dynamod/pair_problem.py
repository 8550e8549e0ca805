"""What an estimator with one cheap stage gives to whatever learns the stage."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.chain import Chain
from thrifty.chain.sources import TableReader
from thrifty.dynamod.alternating import AnyPair, Limit
from thrifty.dynamod.call_budget import CallBudget
from thrifty.dynamod.folds import Fold
from thrifty.full.crossfit import JudgedFull, TrainingRows, held_out_rows
from thrifty.prices.costs import PriceList

__all__ = ["PairProblem", "extra_cost_of"]

DEFAULT_SHARE = 0.3
"""Share of rows that may be sent while learning where neither ``p_full`` nor a budget says so."""


@dataclass(frozen=True)
class PairProblem:
    """All that a subclass needs to learn its stage.

    Attributes
    ----------
    rows : TrainingRows
        Rows to learn from.
    full : JudgedFull
        The full model and its outputs on those rows.
    price_list : PriceList
        What purchases cost.
    extra_cost : ndarray of shape (n_samples,) or None
        Price of sending each row on, scaled to a mean of 1; None where it is the same for all of them.
    seed : int
        Seed of all random choices.
    behind : Chain
        The full model, or the chain in its place, with its prices.
    budget : float or None
        Most that a row may spend on average.
    held_out : tuple of two ndarrays or None
        Scores ``(g, f1)`` of the rows out of fold, once the stage is learned, if it was cross-fitted.
    """

    rows: TrainingRows
    full: JudgedFull
    price_list: PriceList
    extra_cost: Floats | None
    seed: int
    behind: Chain
    budget: float | None = None
    held_out: tuple[Floats, Floats] | None = None

    @property
    def reader(self) -> TableReader:
        """The rows, to be read."""
        return TableReader(self.rows.X, self.rows.table, self.rows.positions)

    @cached_property
    def _calls(self) -> CallBudget:
        assert self.budget is not None  # whoever asks has looked
        return CallBudget(self.budget, self.behind, self.rows, self.behind.walk(self.reader).route)

    def limit(self, p_full: float | None) -> Limit:
        """Limit of the q-step: the cap of (OPT2) where ``p_full`` is given, the budget of (OPT1) where it is not."""
        if p_full is not None or self.budget is None:
            return float(DEFAULT_SHARE if p_full is None else p_full)
        return lambda pair: self._calls.of(np.empty(0, dtype=np.intp) if pair is None else pair.columns)

    def limit_at(self, p_full: float | None, columns: Ints) -> tuple[float, Floats | None]:
        """The q-step's limit and prices for a stage whose columns are chosen."""
        if p_full is not None or self.budget is None:
            return float(DEFAULT_SHARE if p_full is None else p_full), self.extra_cost
        return self._calls.of(columns)

    def share_at(self, p_full: float | None, columns: Ints) -> float:
        """Share of the rows that may be sent by a stage of these columns."""
        if p_full is not None or self.budget is None:
            return float(DEFAULT_SHARE if p_full is None else p_full)
        return self._calls.share_of(columns)

    def folds(self, made: Callable[[Ints, Ints], Fold[AnyPair]]) -> list[Fold[AnyPair]]:
        """A pair for each fold of the rows: ``made(train, out)``."""
        everyone = np.arange(len(self.rows.y))
        return [made(np.setdiff1d(everyone, out), out) for out in held_out_rows(self.rows)]


def extra_cost_of(behind: Chain, rows: TrainingRows) -> Floats | None:
    """Price of sending each row on, scaled to a mean of 1; None where it does not differ or is nothing."""
    if behind.behind is None and not behind.buys_by_row and behind.price_list.by_row is None:
        return None
    reader = TableReader(rows.X, rows.table, rows.positions)
    cost = behind.spent(reader, behind.walk(reader))
    mean = float(np.average(cost, weights=rows.weight))
    return cost / mean if mean > 0 else None
