"""One operating point: what it costs, what it scores, and how to get there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from thrifty.exceptions import InvalidInputError

__all__ = ["OperatingPoint"]


@dataclass(frozen=True)
class OperatingPoint:
    """A fitted system at one threshold, with its numbers on the rows of a frontier.

    Attributes
    ----------
    cost, score, share : float
        Mean spend per row, mean score (accuracy, where answers are right or wrong) and share of rows sent on.
    threshold : float or None
        The gate's threshold; None where the point is not a threshold of one gate.
    source : int
        Place of its system in the list the frontier was made from.
    features : tuple of int
        Columns that its cheap part buys.
    settings : dict
        What its system was fitted with.
    chosen_cost, chosen_score : float
        Cost and score on the rows the point was chosen on; the same as ``cost`` and ``score`` if it is those.
    """

    cost: float
    score: float
    share: float
    threshold: float | None
    source: int
    features: tuple[int, ...]
    settings: dict[str, Any] = field(hash=False)
    chosen_cost: float
    chosen_score: float

    @property
    def n_features(self) -> int:
        """How many columns its cheap part buys."""
        return len(self.features)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file, which knows no infinite numbers."""
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.threshold is not None and not np.isfinite(self.threshold):
            entries["threshold"] = str(self.threshold)
        return entries | {"features": list(self.features), "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The point that ``as_dict`` described."""
        wanted = {entry.name for entry in fields(cls)}
        if set(entries) != wanted:
            differing = sorted(wanted ^ set(entries))
            raise InvalidInputError(
                f"an operating point has the entries {sorted(wanted)}; missing or unknown: {differing}."
            )
        threshold = entries["threshold"]
        changed = {
            "threshold": None if threshold is None else float(threshold),
            "features": tuple(entries["features"]),
        }
        return cls(**{**entries, **changed})
