"""The best pruning of every tree when each split has a worth of its own: one pass from the leaves up."""

from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats
from thrifty.trees.compiled import inner, kernel

__all__ = ["best_worth", "worthwhile"]


@inner
def collect_worth(parent: Any, worth: Floats) -> None:
    """Add to each split what the best pruning below it is worth; children stand behind their parents."""
    for h in range(len(parent) - 1, -1, -1):
        if parent[h] >= 0 and worth[h] > 0.0:
            worth[parent[h]] += worth[h]


@inner
def choose_worthwhile(parent: Any, worth: Floats, kept: Bools) -> None:
    """Keep what is worth more than nothing and has everything above it kept."""
    for h in range(len(parent)):
        kept[h] = worth[h] > 0.0 and (parent[h] < 0 or kept[parent[h]])


@kernel
def best_worth(parent: Any, gain: Floats) -> Floats:
    """What each split and the best pruning below it are worth, if the split is kept."""
    worth = gain.copy()
    collect_worth(parent, worth)
    return worth


@kernel
def worthwhile(parent: Any, gain: Floats) -> Bools:
    """The smallest pruning of largest worth."""
    worth = gain.copy()
    collect_worth(parent, worth)
    kept = np.zeros(len(parent), np.bool_)
    choose_worthwhile(parent, worth, kept)
    return kept
