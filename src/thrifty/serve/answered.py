"""What the rows of a request are answered with."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.chain.chain import Chain
from thrifty.chain.walk import Walk
from thrifty.errors import InvalidInputError

__all__ = ["Answered", "agree", "local_outputs", "refuse_infinite"]


@dataclass(frozen=True)
class Answered:
    """What became of the rows of a request.

    Attributes
    ----------
    answer : ndarray or list of length n_rows
        Labels or numbers; None where a row has no answer.
    probability : ndarray of shape (n_rows,), optional
        Probability of the answer; None where numbers are predicted.
    outputs : ndarray of shape (n_rows, n_outputs)
        Probabilities of all classes, or the number.
    route : ndarray of shape (n_rows,)
        Place that answered; the number of stages is the full model, and -1 nobody.
    cost : ndarray of shape (n_rows,)
        What each row paid.
    degraded : ndarray of shape (n_rows,)
        Whether the full model should have answered and did not, or a purchase failed.
    reasons : dict of str to int
        Why, and for how many rows.
    n_sent : int
        Rows that were sent on to the full model.
    """

    answer: Any
    probability: Any
    outputs: Floats
    route: Ints
    cost: Floats
    degraded: Bools
    reasons: Mapping[str, int] = field(default_factory=dict)
    n_sent: int = 0


def local_outputs(chain: Chain, walk: Walk, full: Floats | None = None) -> Floats:
    """Outputs of a walk, with those of the full model for the rows that reached it; without them, the last stage's."""
    outputs = chain.task.outputs(walk.scores)
    if full is None and walk.behind is None:
        return outputs
    sent = np.flatnonzero(walk.route >= chain.n_own_stages)
    if sent.size and walk.behind is not None and chain.behind is not None:
        behind = local_outputs(chain.behind, walk.behind, full)
        outputs[sent] = chain.blended(walk.scores[sent], behind)
    elif sent.size and full is not None:
        outputs[sent] = chain.blended(walk.scores[sent], full)
    return outputs


def refuse_infinite(outputs: Floats) -> None:
    """Refuse outputs that are no numbers."""
    if not math.isfinite(outputs.sum()):
        raise InvalidInputError(
            "a row has no answer: its numbers are so large that sums of them are no numbers. Correct them."
        )


def agree(one: Labels, other: Labels, is_number: bool) -> Bools:
    """Whether answers are the same; numbers, to one part in a hundred."""
    same: Bools = np.isclose(one, other, rtol=0.01) if is_number else one == other
    return same
