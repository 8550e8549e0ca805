"""What a user wants of a fit on a table, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import check_amount

__all__ = ["Wish"]


@dataclass(frozen=True)
class Wish:
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
    def surely(self) -> float:
        """Probability with which a loss is to be proved."""
        return 0.95 if self.confidence is None else self.confidence
