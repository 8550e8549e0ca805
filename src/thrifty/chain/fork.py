"""A stage at which rows hold different columns: a graph of purchases in place of a line.

A *node* is a set of columns that was bought, with the trees that score rows holding just that. A fork is a stage of
several nodes; each row stands at one of them. Whoever goes on from a node takes the *turn* that the node predicts to
be the best for the row, from what it holds: the turn leads to a node of the next stage, whose columns include those of
this one. So what a row holds is a function of the node it stands at, whichever way it came. A line is the case of one
node a stage. The last stage of a chain is never a fork, because what comes behind it is the same for all rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.chain.neighbours import NeighbourStage
from thrifty.chain.stage import CascadeStage, Stage, Visit
from thrifty.errors import InvalidInputError

__all__ = ["ForkStage", "check_turns", "joined_visit", "nodes_of", "rows_by_node"]


@dataclass(frozen=True)
class ForkStage:
    """Several nodes; each row is visited by the one it stands at.

    Attributes
    ----------
    nodes : tuple of CascadeStage or NeighbourStage
        What visits the rows.
    """

    nodes: "tuple[CascadeStage | NeighbourStage, ...]"

    @cached_property
    def columns(self) -> Ints:
        """All columns that some row holds here, in the order of the nodes."""
        every = (column for node in self.nodes for column in node.columns.tolist())
        return np.array(list(dict.fromkeys(every)), dtype=np.intp)

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Refused: what rows hold depends on their node, so that nobody can read one block for all of them."""
        raise NotImplementedError("a fork is visited node by node")


def nodes_of(stage: Stage) -> tuple[Stage, ...]:
    """The nodes of a stage: itself, unless it is a fork."""
    return stage.nodes if isinstance(stage, ForkStage) else (stage,)


def rows_by_node(stage: Stage, node: Ints | None) -> Iterator[tuple[int, Any]]:
    """The nodes of a stage that rows stand at, each with the places of its rows."""
    if node is None or not isinstance(stage, ForkStage):
        yield 0, slice(None)
        return
    for number in np.unique(node).tolist():
        yield number, np.flatnonzero(node == number)


def joined_visit(n_rows: int, parts: list[tuple[Any, Visit]], doubt: Callable[[Visit], Floats]) -> Visit:
    """One visit of all rows from those of the nodes, whose gates are given by ``doubt``."""
    (places, first), *others = parts
    if not others and isinstance(places, slice):
        return first
    scores, carried = (np.empty((n_rows, one.shape[1])) for one in (first.scores, first.carried))
    gate, turn = np.empty(n_rows), np.zeros(n_rows, dtype=np.intp)
    for some, visit in parts:
        scores[some], carried[some], gate[some] = visit.scores, visit.carried, doubt(visit)
        if visit.turn is not None:
            turn[some] = visit.turn
    return Visit(scores, gate, carried, turn=turn)


def check_turns(stages: tuple[Stage, ...]) -> None:
    """Refuse forks whose turns lead nowhere, or to where a row would hold less than before."""
    has_turns = any(getattr(node, "turn", None) is not None for stage in stages for node in nodes_of(stage))
    if not has_turns and not any(isinstance(stage, ForkStage) for stage in stages):
        return
    if isinstance(stages[-1], ForkStage):
        raise InvalidInputError(
            f"the last stage of a chain must have one node, because what is behind it is the same for all rows; got a "
            f"fork of {len(stages[-1].nodes)}."
        )
    for place, (stage, following) in enumerate(pairwise(stages)):
        after = nodes_of(following)
        holds = [frozenset(node.columns.tolist()) for node in after]
        for number, node in enumerate(nodes_of(stage)):
            turn = getattr(node, "turn", None)
            reached = [0] if turn is None else turn.nodes.tolist()
            if (turn is None and len(after) > 1) or not all(0 <= one < len(after) for one in reached):
                raise InvalidInputError(
                    f"node {number} of stage {place} must lead to nodes of the next stage, which are numbered 0 to "
                    f"{len(after) - 1}; got {None if turn is None else reached}."
                )
            own = frozenset(node.columns.tolist())
            if not all(own <= holds[one] for one in reached):
                raise InvalidInputError(
                    f"node {number} of stage {place} leads to a node that lacks some of its columns; what a row holds "
                    f"can only grow."
                )
