"""What a batch bought: for each row the answer, what it really cost, what was delivered and what failed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.errors import FULL_MODEL, InvalidInputError

__all__ = ["Receipt", "in_words", "verdict"]


@dataclass(frozen=True, eq=False)
class Receipt:
    """A table with a line for each row that was bought for; ``receipt["cost"]`` is one of its columns.

    Attributes
    ----------
    answer : ndarray of shape (n_rows,)
        Labels or numbers; None, or NaN among numbers, for a row that holds nothing that could be answered from.
    probability : ndarray of shape (n_rows,)
        Probability of the answer; NaN where there is none.
    outputs : ndarray of shape (n_rows, n_outputs)
        Probabilities of all classes, or the numbers; NaN for rows without an answer.
    route : ndarray of shape (n_rows,)
        The stage that answered; the number of stages is the full model, and -1 is nobody.
    cost : ndarray of shape (n_rows,)
        What was really paid: purchases that were delivered, and calls of the full model that came back.
    bought, failed : ndarray of shape (n_rows, n_features), bool
        Columns that were delivered, and columns that were asked for in vain.
    full_failed : ndarray of shape (n_rows,), bool
        Rows that the full model was asked about in vain: it raised an error, took too long or answered nonsense.
    reason : ndarray of shape (n_rows,)
        What went wrong first, in words; None for a row with which nothing did.
    names : tuple
        Names of the columns, or their numbers.
    """

    answer: Labels
    probability: Floats
    outputs: Floats
    route: Ints
    cost: Floats
    bought: Bools
    failed: Bools
    reason: Labels
    names: tuple[Any, ...]
    full_failed: Bools

    def __len__(self) -> int:
        return len(self.route)

    def __repr__(self) -> str:
        failed = [row for row, reason in enumerate(self.reason) if reason is not None]
        told = f"{len(self):,} rows, {int(self.is_answered.sum()):,} answered"
        if len(self):
            told += f", mean cost {self.cost.mean():.4g}"
        if failed:
            told += f", {len(failed):,} with failures, the first in row {failed[0]}: {self.reason[failed[0]]}"
        return f"Receipt({told})"

    @property
    def is_answered(self) -> Bools:
        """Rows that have an answer."""
        answered: Bools = self.route >= 0
        return answered

    def keys(self) -> tuple[str, ...]:
        """Names of the columns of this table."""
        return ("answer", "probability", "route", "cost", "bought", "failed", "reason")

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise InvalidInputError(f"a receipt has the columns {', '.join(self.keys())}; got {name!r}.")
        return getattr(self, name)

    def to_pandas(self) -> Any:
        """The table as a data frame; what was bought and what failed, the full model too, as tuples of names."""
        import pandas as pd

        columns = {name: self[name] for name in self.keys()}
        for name in ("bought", "failed"):
            columns[name] = _listed(columns[name], self.names)
        for row in np.flatnonzero(self.full_failed):
            columns["failed"][row] += (FULL_MODEL,)
        return pd.DataFrame(columns)


def _listed(cells: Bools, names: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Names of the columns that are marked in each row."""
    patterns, pattern_of = np.unique(cells, axis=0, return_inverse=True)
    told = [tuple(names[column] for column in np.flatnonzero(pattern).tolist()) for pattern in patterns]
    return [told[number] for number in pattern_of.reshape(-1)]


def in_words(answer: Any, probability: float = np.nan) -> str:
    """An answer in words, with its probability where it has one."""
    if isinstance(answer, float):
        answer = float(f"{answer:.6g}")
    return f"{answer!r}" + ("" if np.isnan(probability) else f" with probability {probability:.3f}")


def verdict(probability: float, *, goes_on: bool) -> str:
    """Why a row goes on, or stops."""
    if np.isnan(probability):  # a number does not say how sure it is
        return "more would help" if goes_on else "more would help little"
    return "not sure enough" if goes_on else "sure enough"
