"""What a user asks of a fit from a table: a budget, a loss, recalls by class; and whether the table allows it.

What is said of classes by their names in the table: shares such as ``sick=0.9``, and files of what mistakes cost.

What a user wants of a fit on a table: checked by itself, and against the table before anything is fitted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Labels
from thrifty.errors import InvalidInputError
from thrifty.estimators.base import CERTIFYING_SHARE
from thrifty.estimators.checks import check_seed
from thrifty.evidence.certificate import check_hold_out
from thrifty.prices.billing import check_amount
from thrifty.rows import content_folds, query_folds
from thrifty.tables.formats import listed, read_rows
from thrifty.tables.training import TrainingTable
from thrifty.tasks.mistakes import read_loss

__all__ = [
    "FitGoal",
    "encode_class_keys",
    "is_matrix_file",
    "read_matrix",
    "read_max_loss",
    "read_shares",
    "refuse_early",
]


def is_matrix_file(loss: str) -> bool:
    """Whether a loss is the name of a file, and not a word."""
    return Path(loss).suffix.lower() in (".csv", ".json")


def read_shares(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Shares by the names of classes, from texts such as ``sick=0.9``."""
    shares: dict[str, float] = {}
    for text in texts:
        name, equals, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = np.nan
        if not equals or not name or not 0 <= number <= 1:
            raise InvalidInputError(
                f"{option} must name a class and a share between 0 and 1, such as sick=0.9; got {text!r}."
            )
        if name in shares:
            raise InvalidInputError(f"{option} names the class {name!r} twice. Keep one of them.")
        shares[name] = number
    return shares


def read_max_loss(texts: Sequence[str] | None) -> float | dict[str, float] | None:
    """One share for all rows, or shares by the names of classes."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        try:
            return float(texts[0])
        except ValueError:
            pass
    if not all("=" in text for text in texts):
        raise InvalidInputError(
            f"--max-loss must be one share, such as 0.02, or one for each class named, such as sick=0.02; got "
            f"{listed(texts)}."
        )
    return dict(read_shares("--max-loss", texts))


def encode_class_keys(option: str, shares: Any, classes: Labels, known: Labels) -> Any:
    """Shares by the labels that the models know, from shares by name; one number as it is."""
    if not isinstance(shares, Mapping):
        return shares
    names = [str(label) for label in classes.tolist()]
    unknown = [name for name in shares if name not in names]
    if unknown:
        told = (
            f"the classes are {listed(names)}"
            if names
            else "numbers are predicted, or documents ranked, which have no classes"
        )
        raise InvalidInputError(f"{option} names the class {unknown[0]!r}; {told}.")
    return {known[names.index(name)].item(): share for name, share in shares.items()}


def read_matrix(path: str, classes: Labels) -> Floats:
    """What each mistake costs, from a file that names the true classes and the answers, in the order of the classes.

    CSV: a line of names, the first cell of which is free, then a line for each true class, its name first. JSON: an
    object of true classes, each an object of answers and what they cost.
    """
    names = [str(label) for label in classes.tolist()]
    entries = _from_json(path) if Path(path).suffix.lower() == ".json" else _from_csv(path)
    _check_names(path, "lines for the true classes", list(entries), names)
    for truth, line in entries.items():
        _check_names(path, f"answers to {truth!r}", list(line), names)
    try:
        costs = np.array([[float(entries[truth][answer]) for answer in names] for truth in names])
        read_loss(costs, np.array(names))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return costs


def _from_csv(path: str) -> dict[str, dict[str, Any]]:
    header, *lines = read_rows(path) or [[]]
    for line in lines:
        if len(line) != len(header):
            raise InvalidInputError(
                f"{path} must have {len(header)} cells in every line, as in its line of names; got {len(line)} in the "
                f"line of {line[0]!r}."
            )
    if len({line[0] for line in lines}) < len(lines) or len(set(header[1:])) < len(header[1:]):
        raise InvalidInputError(f"{path} must name every class once in its lines and once in its columns.")
    return {line[0]: dict(zip(header[1:], line[1:], strict=True)) for line in lines}


def _from_json(path: str) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(entries, dict) or not all(isinstance(line, dict) for line in entries.values()):
        raise InvalidInputError(
            f"{path} must hold an object of true classes, each an object of its answers and what they cost. Write "
            f'{{"sick": {{"sick": 0, "well": 9}}, "well": {{"sick": 1, "well": 0}}}}.'
        )
    return entries


def _check_names(path: str, what: str, found: list[str], names: list[str]) -> None:
    if sorted(found) != sorted(names):
        raise InvalidInputError(
            f"{path} must have {what} {listed(names)}, each once; got {listed(found) if found else 'none'}."
        )


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
        X, strata, query = table.cells.numbers, table.strata, table.queries
        if query is None:
            folds = content_folds(X, strata, CERTIFYING_SHARE, check_seed(seed) + 1)
        else:
            folds = query_folds(X, query, strata, CERTIFYING_SHARE, check_seed(seed) + 1)
        check_hold_out(X, strata, folds == 0, wish.max_loss, wish.surely, table.class_names, query)
