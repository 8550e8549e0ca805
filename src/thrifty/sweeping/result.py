"""What a sweep found: its cells, their efficient points, and the fitted estimator behind each point."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Floats
from thrifty.bundle import from_bytes
from thrifty.estimators.base import ChainClassifier
from thrifty.evidence.frontier import Frontier, OperatingPoint
from thrifty.evidence.observe import evidence_of
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import AbsentFull, FullModel
from thrifty.sweeping.cells import Cell
from thrifty.sweeping.full_model import Answers, innermost, remake_full
from thrifty.sweeping.shared import Shared

__all__ = ["Sweep"]


class Sweep:
    """Fitted settings and their operating points; made by ``thrifty.sweep``.

    Attributes
    ----------
    cells : tuple of Cell
        Every setting of the grid, in its order: ``settings``, ``seconds`` and ``evidence`` on the validation rows.
    frontier : Frontier
        The efficient points on the validation rows.
    full : FullModel
        The full model. After a resumed sweep, one that was fitted here is fitted again when it is first needed.
    full_train : ndarray of shape (n_samples, n_classes) or None
        Its probabilities on the training rows of positive weight, out of fold wherever it was fitted here.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        shared: Shared,
        answers: Answers | None,
        full: FullModel | None,
        trusted: tuple[str | type, ...] = (),
    ) -> None:
        self.cells = tuple(cells)
        self.full_train: Floats | None = None if answers is None else answers.train
        self._shared = shared
        self._answers = answers
        self._full = full
        self._trusted = trusted

    @cached_property
    def frontier(self) -> Frontier:
        """The efficient points on the validation rows."""
        return Frontier.from_evidence([cell.evidence for cell in self.cells])

    @cached_property
    def full(self) -> FullModel:
        """The full model, as it was when it was judged."""
        if self._answers is None:
            return AbsentFull()
        return remake_full(self._shared, self._answers) if self._full is None else self._full

    def on(self, X: Any, y: Any, *, full_probability: ArrayLike | None = None) -> Frontier:
        """The very same points on other rows, as chosen: no longer chosen by what they do there.

        Parameters
        ----------
        X, y : table and labels
            Rows that nothing was fitted or chosen on.
        full_probability : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            The full model's probabilities on these rows; without them it is asked about all of them, once.
        """
        known = None
        if self._answers is not None:
            known = self._ask(X) if full_probability is None else full_probability
        return self.frontier.on(
            [
                evidence_of(self._fitted(cell), X, y, settings=cell.settings, full_probability=known)
                for cell in self.cells
            ]
        )

    def estimator(self, point: OperatingPoint) -> Any:
        """The fitted estimator behind a point, in front of the full model and at the point's thresholds.

        Its ``evidence_``, and with it ``frontier_`` and ``at``, are about the validation rows.

        Parameters
        ----------
        point : OperatingPoint
            Of this sweep's ``frontier``, or of what ``on`` returned.
        """
        known = 0 <= point.source < len(self.cells)
        if not known or self.cells[point.source].settings != point.settings:
            raise InvalidInputError(
                f"the point with settings {point.settings} is not one of this sweep. Take it from `frontier`."
            )
        cell = self.cells[point.source]
        fitted = self._fitted(cell, serves=True)
        if not isinstance(fitted, ChainClassifier):
            return fitted
        if self._answers is not None:
            fitted.set_params(full=self._shared.full)
        fitted.evidence_ = replace(cell.evidence, settings={})
        policy = fitted.chain_.policy
        if not policy.is_measured:
            return fitted.at(threshold=point.threshold)
        place = np.flatnonzero((policy.thresholds == np.array(point.thresholds)).all(axis=1))[0]
        fitted.chain_ = fitted.chain_.at(policy.at(int(place)))
        return fitted

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
                    "n_features": len(cell.evidence.features),
                    "stop_cost": float(np.mean(cell.evidence.cost_at(0))),
                    "stop_score": float(np.mean(cell.evidence.quality[:, 0])),
                    "n_points": int(number),
                }
                for cell, number in zip(self.cells, points, strict=True)
            ]
        )

    def __repr__(self) -> str:
        kind = type(self._shared.estimator).__name__
        cells = f"{len(self.cells)} cell{'' if len(self.cells) == 1 else 's'}"
        return f"Sweep({cells} of {kind}, {len(self.frontier)} efficient points on {self.frontier.n_rows:,} rows)"

    def _fitted(self, cell: Cell, *, serves: bool = False) -> Any:
        """The fitted estimator; in front of the full model if it is to serve, or if it pays by what that one reads."""
        answers = self._answers
        attached = answers is not None and (serves or answers.bought is not None)
        return from_bytes(cell.fitted, full=innermost(self.full) if attached else None, trusted=self._trusted)

    def _ask(self, X: Any) -> Floats:
        """The full model's outputs on the rows of a table."""
        chain = self._fitted(self.cells[0]).chain_
        reader, prices = chain.reader(X), chain.price_list
        rows = np.arange(reader.n_samples)
        table, numbers = reader.table(rows, prices.full_columns), reader.block(rows, prices.read_by_full)
        return innermost(self.full).outputs(table, numbers)
