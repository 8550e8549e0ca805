"""Pairs whose cheap model is judged on rows that it has not seen, fold by fold.

The q-step compares the loss of f1 with that of f0. f0 is judged out of fold; f1, on the rows that it was fitted on,
looks better than it is, and the more it overfits, the fewer rows seem to be worth a call. So every fold has a pair of
its own, fitted to the same shares without the rows of the fold, whose f1 answers for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.dynamod.alternating import Alternation, AnyPair, alternate
from thrifty.dynamod.solution import Solution

__all__ = ["CrossFittedPair", "Fold", "alternate_in_folds"]


@dataclass(frozen=True)
class Fold(Generic[AnyPair]):
    """A pair that is fitted without some of the rows.

    Attributes
    ----------
    pair : Pair
        Fitted in place.
    X : table
        Rows of ``train``, as the pair's ``fit`` takes them.
    train, out : ndarray of int
        Rows that it is fitted on, and rows that it answers for.
    scores : callable
        ``scores(pair)`` gives ``(g, f1)`` of the rows ``out``.
    """

    pair: AnyPair
    X: Any
    train: Ints
    out: Ints
    scores: Callable[[AnyPair], tuple[Floats, Floats]]


class CrossFittedPair(Generic[AnyPair]):
    """A pair, and one for each fold: the pair's own gate, and for every row the f1 of the fold that it is in.

    Parameters
    ----------
    pair : Pair
        Fitted on all rows: what serves.
    folds : sequence of Fold
        Every row is held out in one of them.
    """

    def __init__(self, pair: AnyPair, folds: Sequence[Fold[AnyPair]]) -> None:
        self.pair = pair
        self._folds = folds

    @property
    def columns(self) -> Ints:
        """Columns that the pair buys."""
        columns: Ints = self.pair.columns  # type: ignore[attr-defined]  # of those that buy
        return columns

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Fit the pair and those of all folds to the same shares."""
        self.pair.fit(X, y, log_odds, weight)
        for fold in self._folds:
            part = weight[fold.train]
            fold.pair.fit(fold.X, y[fold.train], log_odds[fold.train], part / part.sum())
        return self

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)`` of the rows of the fit: the gate as it serves, f1 out of fold."""
        return self.pair.scores(X)[0], self.held_out()[1]

    def held_out(self) -> tuple[Floats, Floats]:
        """``(g, f1)`` of the rows of the fit, both out of fold."""
        parts = [fold.scores(fold.pair) for fold in self._folds]
        order = np.argsort(np.concatenate([fold.out for fold in self._folds]))
        g, f1 = (np.concatenate(some)[order] for some in zip(*parts, strict=True))
        return g, f1

    def penalty(self) -> float:
        """What the pair itself pays for complexity."""
        return self.pair.penalty()


def alternate_in_folds(
    pair: AnyPair, folds: Sequence[Fold[AnyPair]] | None, *rows: Any, **how: Any
) -> Solution[Alternation[AnyPair]]:
    """Alternate with f1 judged out of fold; without folds, on the rows that it was fitted on, as in the paper.

    Further parameters are those of ``alternate``. The objective is then that of rows that f1 has not seen: no half-step
    minimises it, so it may rise.
    """
    if folds is None:
        return alternate(pair, *rows, **how)
    crossed = CrossFittedPair(pair, folds)
    run = alternate(crossed, *rows, **how)
    found = run.value
    ended = Alternation(pair, found.log_odds, found.rounds, found.excess, crossed.held_out())
    return Solution(ended, run.residual, run.n_iter, run.converged)
