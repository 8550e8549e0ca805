"""One point of a trade-off between cost and score, and which of many are worth having."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Ints
from thrifty.chain.policy import SLACK
from thrifty.errors import InvalidInputError

__all__ = ["OperatingPoint", "best_within", "efficient"]


def efficient(cost: ArrayLike, score: ArrayLike) -> Ints:
    """Indices of the efficient points, by rising cost; each scores higher than every cheaper one.

    One sort and one running maximum: n log n for n points.
    """
    cost, score = np.asarray(cost, dtype=np.float64), np.asarray(score, dtype=np.float64)
    order = np.lexsort((-score, cost))
    best_before = np.r_[-np.inf, np.maximum.accumulate(score[order])[:-1]]
    kept: Ints = order[score[order] > best_before]
    return kept


def best_within(cost: ArrayLike, score: ArrayLike, budget: float) -> int | None:
    """Index of the best-scoring point that costs at most ``budget``; the cheapest of equals; None if there is none."""
    cost, score = np.asarray(cost, dtype=np.float64), np.asarray(score, dtype=np.float64)
    affordable = np.flatnonzero(cost <= budget * (1 + SLACK))
    if affordable.size == 0:
        return None
    return int(affordable[np.lexsort((cost[affordable], -score[affordable]))[0]])


@dataclass(frozen=True)
class OperatingPoint:
    """A fitted system at one threshold per stage, with its numbers on the rows of a frontier.

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
        Cost and score on the rows the point was chosen on, which may be those of ``cost`` and ``score``.
    thresholds : tuple of float
        One threshold per stage; empty where the point is a system as it is.
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
    thresholds: tuple[float, ...] = ()

    @property
    def n_features(self) -> int:
        """How many columns its cheap part buys."""
        return len(self.features)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file, which knows no infinite numbers."""
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.threshold is not None and not np.isfinite(self.threshold):
            entries["threshold"] = str(self.threshold)
        thresholds = [one if np.isfinite(one) else str(one) for one in self.thresholds]
        return entries | {
            "features": list(self.features),
            "settings": dict(self.settings),
            "thresholds": thresholds,
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The point that ``as_dict`` described."""
        wanted = {entry.name for entry in fields(cls)}
        entries = {"thresholds": (), **entries}  # the first versions knew single gates only
        if set(entries) != wanted:
            differing = sorted(wanted ^ set(entries))
            raise InvalidInputError(
                f"an operating point has the entries {sorted(wanted)}; missing or unknown: {differing}."
            )
        threshold = entries["threshold"]
        changed = {
            "threshold": None if threshold is None else float(threshold),
            "features": tuple(entries["features"]),
            "thresholds": tuple(float(one) for one in entries["thresholds"]),
        }
        return cls(**{**entries, **changed})
