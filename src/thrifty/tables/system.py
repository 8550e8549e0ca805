"""A chosen system that reads tables by the names of their columns, and what was promised about it."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from thrifty.chain.system import GatedSystem, Tie
from thrifty.evidence.certificate import Certificate
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.holding import hold_budget
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import EstimatorFull
from thrifty.objective.costs import PriceList
from thrifty.tables.candidates import Candidate, Rows, look
from thrifty.tables.schema import Schema

__all__ = ["About", "Promise", "TableSystem"]


_Z95 = 1.96


@dataclass(frozen=True)
class Promise:
    """What to expect of new rows, from rows that nothing was fitted on.

    Attributes
    ----------
    accuracy, low, high : float
        On the rows of the choice (of the proof, where there was one), with a 95 % bootstrap interval for the mean of
        all rows there are. The mean of a few new ones strays further: see ``interval``.
    cost, share : float
        Mean cost per row, and share of rows sent to f0.
    share_error : float
        Standard error of that share.
    cheap_cost, full_cost : float
        What a row pays that stops, and that reaches f0.
    full_accuracy : float
        f0's accuracy on the same rows.
    """

    accuracy: float
    low: float
    high: float
    cost: float
    share: float
    share_error: float
    cheap_cost: float
    full_cost: float
    full_accuracy: float

    def spread(self, n_rows: int) -> float:
        """Standard deviation of the mean cost of ``n_rows`` new rows: their own chance, and ours when we tuned."""
        chance = self.share * (1.0 - self.share) / n_rows + self.share_error**2
        return (self.full_cost - self.cheap_cost) * float(np.sqrt(chance))

    def interval(self, n_rows: int) -> tuple[float, float]:
        """Where the accuracy of ``n_rows`` new rows lies, 19 times out of 20.

        Two independent errors, that of the rows of the choice and that of the new rows: their squares add up.
        """
        chance = _Z95**2 * self.accuracy * (1.0 - self.accuracy) / n_rows
        low = self.accuracy - float(np.sqrt((self.accuracy - self.low) ** 2 + chance))
        high = self.accuracy + float(np.sqrt((self.high - self.accuracy) ** 2 + chance))
        return max(low, 0.0), min(high, 1.0)


@dataclass(frozen=True)
class About:
    """Where a system comes from.

    Attributes
    ----------
    full : str
        The kind of f0.
    seed : int
        Of everything random.
    n_learn, n_choose, n_prove : int
        Rows of each part.
    budget, max_loss : float, optional
        What was asked for.
    """

    full: str
    seed: int
    n_learn: int
    n_choose: int
    n_prove: int
    budget: float | None = None
    max_loss: float | None = None


@dataclass(frozen=True, eq=False)
class TableSystem:
    """Everything that answers, explains and reports need.

    Attributes
    ----------
    schema : Schema
        How tables are read.
    systems : tuple of Candidate
        The chosen system and the others of the frontier, all in front of one f0.
    outcomes : tuple of RowOutcomes
        What each of them did on the rows of the choice.
    chosen, threshold : int, float
        The system that answers, and where its gate is cut.
    tie : Tie, optional
        Rows at the cut of which a share is sent to f0.
    promise : Promise
        What to expect of it.
    about : About
        Where it comes from.
    certificate : Certificate, optional
        What was proved about it.
    """

    schema: Schema
    systems: tuple[Candidate, ...]
    outcomes: tuple[RowOutcomes, ...] = field(repr=False)
    chosen: int
    threshold: float
    promise: Promise
    about: About
    certificate: Certificate | None = None
    tie: Tie | None = None

    @property
    def system(self) -> GatedSystem:
        """The system that answers."""
        system: GatedSystem = self.systems[self.chosen].estimator.system_
        return system.with_threshold(self.threshold, tie=self.tie)

    @property
    def prices(self) -> PriceList:
        """What purchases cost."""
        return self.system.price_list

    @property
    def bought(self) -> list[str]:
        """Names of the columns that the cheap part buys."""
        return [self.schema.names[column] for column in self.system.stages[0].scorer.columns]

    @cached_property
    def frontier(self) -> Frontier:
        """The efficient points on the rows of the choice."""
        return Frontier.from_outcomes(self.outcomes)

    def table(self, frame: Any, *, unseen_is_missing: bool = False) -> Any:
        """A table as the models read it."""
        numbers = self.schema.numbers(frame, unseen_is_missing=unseen_is_missing)
        return numbers if self.system.kind == "pandas" else numbers.to_numpy()

    def for_rows(self, X: Any, budget: float) -> "TableSystem":
        """The same system, cut so that just these rows spend a budget: at most, and as nearly as can be."""
        held = hold_budget(self.system, X, budget, seed=self.about.seed).stages[0]
        return replace(self, threshold=held.threshold, tie=held.tie)

    def answers(self, X: Any) -> dict[str, Any]:
        """Answer, its probability, the stage that gave it and what it cost, for each row of ``table(frame)``."""
        system = self.system
        reader = system.reader(X)
        walk = system.walk(reader)
        sent = walk.route == system.n_stages
        self._refuse_missing(X, np.flatnonzero(sent))
        positive = system.answer(reader, walk)
        second = positive > 0.5
        return {
            "answer": self.schema.classes[second.astype(np.intp)],
            "probability": np.where(second, positive, 1.0 - positive),
            "stage": np.where(sent, "full", walk.route.astype(str)),
            "cost": system.cost_by_route[walk.route],
        }

    def on(self, X: Any, labels: NDArray[Any]) -> Frontier:
        """The frontier's points on other labelled rows, f0 asked about all of them once."""
        self._refuse_missing(X, np.arange(len(labels)))
        known = self.systems[0].estimator.classes_
        y = known[(labels == self.schema.classes[1]).astype(np.intp)]
        system = self.system
        reader, rows = system.reader(X), np.arange(len(labels))
        probability = system.full.probability(reader.table(rows), rows, len(rows))
        return self.frontier.on(look(self.systems, Rows(X, y), probability))

    def _refuse_missing(self, X: Any, rows: NDArray[np.intp]) -> None:
        """Missing cells matter where they are read: f0 reads whole rows, and may accept no missing ones."""
        full = self.system.full
        if not rows.size or not isinstance(full, EstimatorFull):
            return
        if get_tags(full.estimator).input_tags.allow_nan:
            return
        missing = np.argwhere(np.isnan(np.asarray(X, dtype=np.float64)[rows]))
        if missing.size:
            row, column = missing[0]
            raise InvalidInputError(
                f"column {self.schema.names[column]!r} is missing in row {rows[row] + 1}, which is sent to f0, and f0 "
                f"({self.about.full}) reads no missing values. Fill it in, or fit with --full forest or boosting."
            )
