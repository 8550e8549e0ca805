"""What a user wants of a fit on a table: checked by itself, and against the table before anything is fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools
from thrifty.errors import InvalidInputError
from thrifty.estimators.checks import check_seed
from thrifty.evidence.certificate import check_hold_out
from thrifty.prices.billing import check_amount
from thrifty.rows import content_folds, query_folds
from thrifty.tables.by_class import encode_class_keys
from thrifty.tables.training import TrainingTable

__all__ = ["FitGoal", "held_out_rows", "refuse_early"]

CERTIFYING_SHARE = 4
"""One row in so many is kept out of the fit where a goal is to be proved."""


@dataclass(frozen=True)
class FitGoal:
    """What a user wants: a mean cost per row, a loss against the full model that is proved, or accuracy alone.

    Attributes
    ----------
    budget, max_loss : float, optional
        At most one of them; with neither, the most accurate operating point is wanted.
    confidence : float, optional
        How surely a budget is to be kept, or a loss to be proved; None meets a budget as measured, and proves a loss
        with 0.95.
    min_recall : dict, optional
        Least recall by class, alone or with a budget. Classes have the names that the table gives them, as in
        ``max_loss`` by class.
    """

    budget: float | None = None
    max_loss: float | Mapping[Any, float] | None = None
    confidence: float | None = None
    min_recall: Mapping[Any, float] | None = None

    def __post_init__(self) -> None:
        if self.budget is not None and self.max_loss is not None:
            raise InvalidInputError(
                "give at most one of --budget (mean cost per row) and --max-loss (share of answers that may become "
                "worse than the full model's); got both."
            )
        if self.budget is not None:
            object.__setattr__(self, "budget", check_amount("--budget", self.budget))
        if self.min_recall and (self.max_loss is not None or self.confidence is not None):
            raise InvalidInputError("--min-recall goes with --budget or stands alone. Leave the others out.")
        limits = self.max_loss.values() if isinstance(self.max_loss, Mapping) else [self.max_loss]
        for name, value in (*(("--max-loss", one) for one in limits), ("--confidence", self.confidence)):
            if value is not None and not 0 < value < 1:
                raise InvalidInputError(f"{name} must lie strictly between 0 and 1; got {value!r}.")

    @property
    def is_proved(self) -> bool:
        """Whether rows are kept out of the fit to prove it."""
        return self.max_loss is not None or (self.budget is not None and self.confidence is not None)

    @property
    def surely(self) -> float:
        """Probability with which a loss is to be proved."""
        return 0.95 if self.confidence is None else self.confidence

    def by_labels(self, table: TrainingTable) -> "FitGoal":
        """The wish with classes as the models know them, or a refusal of one that there is not."""
        known = table.schema.classes, table.task.classes
        return replace(
            self,
            max_loss=encode_class_keys("--max-loss", self.max_loss, *known),
            min_recall=encode_class_keys("--min-recall", self.min_recall, *known),
        )


def refuse_early(table: TrainingTable, wish: FitGoal, seed: int) -> None:
    """Refuse, before anything is fitted, a wish that no fit of this table can meet."""
    cheapest = float(table.prices.prices.min())
    if wish.budget is not None and wish.budget < cheapest:
        raise InvalidInputError(
            f"--budget must be at least {cheapest:g}, the price of the cheapest purchase, which every row makes; got "
            f"{wish.budget:g}. Raise the budget, or give a column the price 0 if it is at hand."
        )
    if table.prices.cost_of_everything == 0.0:
        raise InvalidInputError(
            "all prices are 0, so there is nothing to save: use the full model for every row. Give a price to at least "
            "one column with --costs, or to the full model with --full-cost."
        )
    if wish.max_loss is not None:
        is_proof = held_out_rows(table, seed)
        check_hold_out(
            table.cells.numbers,
            table.strata,
            is_proof,
            wish.max_loss,
            wish.surely,
            table.class_names,
            table.queries,
        )


def held_out_rows(table: TrainingTable, seed: int) -> Bools:
    """Rows to prove a goal with, one in four, by what they hold: rows that are equal are on one side."""
    X, strata, query, deal = table.cells.numbers, table.strata, table.queries, check_seed(seed) + 1
    if query is None:
        return np.asarray(content_folds(X, strata, CERTIFYING_SHARE, deal) == 0)
    return np.asarray(query_folds(X, query, strata, CERTIFYING_SHARE, deal) == 0)
