"""What a pair costs the device that holds it, in bytes or in trees to be walked: complexity as a price.

The paper counts local costs by the complexity of the model, and what only the gate or only the cheap model needs apart.
In a stage that walks one ensemble for both, the trees are the cheap model's, and the gate adds a number to each leaf.
"""

from typing import Any, Literal

import numpy as np

from thrifty.chain.stage import BoostedStage, ConfidentStage, LeafStage, LinearStage
from thrifty.errors import InvalidInputError

__all__ = ["Part", "Unit", "local_size", "shapes_within"]

Unit = Literal["bytes", "trees"]
Part = Literal["both", "gate", "cheap"]

_NUMBER, _NODE, _ROOT = 8, 21, 4
"""Bytes of a number; of a node: column, threshold, where missing values go, two children; and of the root of a tree."""

LEAVES = (2, 4, 8, 16, 32, 64)
MOST_TREES = 200


def local_size(stage: Any, unit: Unit = "bytes", of: Part = "both") -> int:
    """What a device stores for a stage, or walks for a row: for g and f1 together, for f1, or what g adds to it."""
    if unit not in ("bytes", "trees") or of not in ("both", "gate", "cheap"):
        raise InvalidInputError(
            f"unit must be 'bytes' or 'trees' and of one of 'both', 'gate' and 'cheap'; got {unit!r} and {of!r}."
        )
    cheap, gate = _bytes_of(stage) if unit == "bytes" else _trees_of(stage)
    return {"both": cheap + gate, "cheap": cheap, "gate": gate}[of]


def _bytes_of(stage: Any) -> tuple[int, int]:
    if isinstance(stage, LeafStage):
        gate = (
            stage.trees.values[:, 0].nbytes + 2 * _NUMBER
        )  # its values, its constant and the weight of the margin
        return stage.n_bytes - gate, gate
    if isinstance(stage, BoostedStage):
        return stage.cheap.n_bytes + stage.base[1:].nbytes, stage.gate.n_bytes + _NUMBER
    if isinstance(stage, ConfidentStage):
        return stage.cheap.n_bytes + stage.base.nbytes, 0
    if isinstance(stage, LinearStage):
        gate = (len(stage.coef) + 2) * _NUMBER
        return stage.coef.nbytes + stage.intercept.nbytes + _NUMBER - gate, gate
    raise _unknown(stage)


def _trees_of(stage: Any) -> tuple[int, int]:
    if isinstance(stage, LeafStage):
        return stage.trees.n_trees, 0
    if isinstance(stage, BoostedStage | ConfidentStage):
        return stage.cheap.n_trees, stage.gate.n_trees if isinstance(stage, BoostedStage) else 0
    if isinstance(stage, LinearStage):
        return 0, 0
    raise _unknown(stage)


def _unknown(stage: Any) -> InvalidInputError:
    return InvalidInputError(
        f"the size of a {type(stage).__name__} is not known: its cheap model was made elsewhere. Ask for the size of a "
        f"pair that thrifty learned."
    )


def shapes_within(max_bytes: int, n_scores: int) -> list[tuple[int, int]]:
    """Numbers of trees and of leaves each whose leaf stage, gate included, takes at most so many bytes."""
    values = _NUMBER * (1 + n_scores)
    left = max_bytes - values - _NUMBER
    trees = [(left // ((leaves - 1) * _NODE + leaves * values + _ROOT), leaves) for leaves in LEAVES]
    shapes = [(int(np.clip(n_trees, 1, MOST_TREES)), leaves) for n_trees, leaves in trees if n_trees >= 1]
    if not shapes:
        least = values + _NUMBER + _NODE + 2 * values + _ROOT
        raise InvalidInputError(
            f"max_bytes must hold one tree of two leaves, {least} bytes for these labels; got {max_bytes}."
        )
    return shapes
