"""A cheap model that is somebody else's classifier, with a gate that needs no learning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from thrifty.arrays import Floats
from thrifty.full.model import FullModel
from thrifty.rows import uniforms

__all__ = ["ConfidenceGate", "ForeignScorer", "UniformGate"]

Gate = Callable[[Any, Floats], Floats]


@dataclass(frozen=True)
class ForeignScorer:
    """``f1`` is the log-odds of a classifier on some columns; ``g`` a fixed function of them.

    Attributes
    ----------
    columns : ndarray
        Columns the classifier reads.
    cheap : FullModel
        The classifier, as probabilities.
    gate : callable
        ``(block, f1) -> g``.
    """

    columns: NDArray[np.intp]
    cheap: FullModel
    gate: Gate

    def __call__(self, block: Any) -> tuple[Floats, Floats]:
        """Scores of a block that holds ``columns``."""
        n_rows = block.shape[0]
        f1 = logit(self.cheap.probability(block, np.arange(n_rows), n_rows))
        return self.gate(block, f1), f1


@dataclass(frozen=True)
class ConfidenceGate:
    """Send on the rows with the smallest margin: ``g = -|f1|``."""

    def __call__(self, block: Any, f1: Floats) -> Floats:  # noqa: ARG002
        """Score of "send on"."""
        return -np.abs(f1)


@dataclass(frozen=True)
class UniformGate:
    """Send on rows at random, fixed by their content: ``g`` is the log-odds of a uniform number."""

    seed: int

    def __call__(self, block: Any, f1: Floats) -> Floats:  # noqa: ARG002
        """Score of "send on"."""
        return np.asarray(logit(uniforms(block, self.seed)), dtype=np.float64)
