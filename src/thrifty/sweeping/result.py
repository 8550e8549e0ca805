"""What a sweep found: its cells, their efficient points, and the fitted estimator behind each point."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.bundle import from_bytes
from thrifty.evidence.frontier import Frontier
from thrifty.evidence.observing import outcomes_of
from thrifty.evidence.operating_point import OperatingPoint
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import FullModel
from thrifty.sweeping.fulls import innermost, remake_full
from thrifty.sweeping.problem import Problem
from thrifty.sweeping.records import Answers, Cell

__all__ = ["Sweep"]


class Sweep:
    """Fitted settings and their operating points; made by ``thrifty.sweep``.

    Attributes
    ----------
    cells : tuple of Cell
        Every setting of the grid, in its order: ``settings``, ``seconds`` and validation ``outcomes``.
    frontier : Frontier
        The efficient points on the validation rows.
    full : FullModel
        f0. After a resumed sweep, one that was fitted here is fitted again when it is first needed.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        problem: Problem,
        answers: Answers,
        full: FullModel | None,
        trusted: tuple[str | type, ...] = (),
    ) -> None:
        self.cells = tuple(cells)
        self._problem = problem
        self._answers = answers
        self._full = full
        self._trusted = trusted

    @cached_property
    def frontier(self) -> Frontier:
        """The efficient points on the validation rows."""
        return Frontier.from_outcomes([cell.outcomes for cell in self.cells])

    @cached_property
    def full(self) -> FullModel:
        """f0, as it was when it was judged."""
        return remake_full(self._problem, self._answers) if self._full is None else self._full

    @property
    def full_train(self) -> NDArray[np.float64]:
        """f0's probabilities of class +1 on the training rows, out of fold wherever f0 was fitted here."""
        return self._answers.train

    def on(self, X: Any, y: Any, *, full_probability: ArrayLike | None = None) -> Frontier:
        """The very same points on other rows, as chosen: no longer chosen by what they do there.

        Parameters
        ----------
        X, y : table and labels
            Rows that nothing was fitted or chosen on.
        full_probability : array-like of shape (n_samples,), optional
            f0's probabilities on these rows; without them f0 is asked about all of them, once.
        """
        probability = full_probability
        seen = []
        for place, cell in enumerate(self.cells):
            fitted = self._fitted(place)
            if probability is None:
                probability = self._ask(fitted, X)
            seen.append(
                outcomes_of(
                    fitted,
                    X,
                    y,
                    settings=cell.settings,
                    threshold=cell.outcomes.threshold,
                    full_probability=probability,
                )
            )
        return self.frontier.on(seen)

    def estimator(self, point: OperatingPoint) -> Any:
        """The fitted estimator behind a point, in front of f0 and cut at the point's threshold.

        Parameters
        ----------
        point : OperatingPoint
            Of this sweep's ``frontier``, or of what ``on`` returned.
        """
        known = 0 <= point.source < len(self.cells)
        if not known or self.cells[point.source].outcomes.settings != point.settings:
            raise InvalidInputError(
                f"the point with settings {point.settings} is not one of this sweep. Take it from `frontier`."
            )
        fitted = self._fitted(point.source)
        if self._problem.full is not None:
            fitted = fitted.with_full(self.full)
            fitted.set_params(full=self._problem.full)
        return fitted if point.threshold is None else fitted.at(point.threshold)

    def to_frame(self) -> Any:
        """A pandas data frame with a row per cell: settings, seconds, what it buys, its points on the frontier."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise InvalidInputError(
                "to_frame needs pandas, which is not installed. `cells` holds the same."
            ) from error
        points = np.bincount(self.frontier.source, minlength=len(self.cells))
        return pd.DataFrame(
            [
                {
                    **cell.settings,
                    "seconds": cell.seconds,
                    "n_features": len(cell.outcomes.features),
                    "stop_cost": float(np.mean(cell.outcomes.stop_cost)),
                    "stop_score": float(np.mean(cell.outcomes.stop_right)),
                    "n_points": int(number),
                }
                for cell, number in zip(self.cells, points, strict=True)
            ]
        )

    def __repr__(self) -> str:
        kind = type(self._problem.estimator).__name__
        cells = f"{len(self.cells)} cell{'' if len(self.cells) == 1 else 's'}"
        return f"Sweep({cells} of {kind}, {len(self.frontier)} efficient points on {self.frontier.n_rows:,} rows)"

    def _fitted(self, place: int) -> Any:
        return from_bytes(self.cells[place].fitted, trusted=self._trusted)

    def _ask(self, fitted: Any, X: Any) -> Any:
        reader = fitted.system_.reader(X)
        rows = np.arange(reader.n_samples)
        if self._problem.full is None:
            return np.full(len(rows), 0.5)
        return innermost(self.full).probability(reader.table(rows), rows, len(rows))
