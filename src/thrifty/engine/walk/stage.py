"""Stages of a chain, as plain arrays: the columns a row holds there, its scores, and the gate that sends it on.

A stage of the paper is a pair (g, f1): it scores a row by itself and ignores what earlier stages computed. A stage of a
cascade adds its trees to the score that the row carries. Nothing here knows how a stage was learned.

A *fork* is a stage at which rows hold different columns. It has several *nodes*, each a set of bought columns with the
trees that score rows holding exactly these; each row is at one node. The *turn* of a node predicts which node of the
next stage is best for a row, from what the row holds; the columns of that node include those of this one. So what a row
holds is a function of its node, on any path. A line has one node a stage. The last stage of a chain is never a fork,
because the full model behind it is the same for all rows.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from thrifty.arrays import Floats, Ints
from thrifty.engine.full.adapters import models_of
from thrifty.engine.full.model import FullModel, ask_model
from thrifty.engine.prices.billing import are_columns
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.errors import InvalidInputError
from thrifty.jit import lean_kernel
from thrifty.threads import usable_threads

GATE, CHEAP = 0, slice(1, None)
"""Columns of the gate, and of the scores of the cheap model, where one array holds both."""

MAX_NODES = 4096
"""Nodes of a fork."""

PART_OF_WORK = 300_000
"""Pairs of a row and a tree that are worth a thread of their own."""


@dataclass(frozen=True)
class Visit:
    """Outputs of a stage for some rows.

    Attributes
    ----------
    scores : ndarray of shape (n_rows, n_scores)
        Scores of the answer of the stage.
    gate : ndarray of shape (n_rows,) or None
        Score of "go on"; None is the uncertainty of the task.
    carried : ndarray of shape (n_rows, n_scores)
        Scores that the next stage continues from.
    margin : float
        Weight in the gate of the certainty of the task about these scores, which costs nothing.
    turn : ndarray of shape (n_rows,), optional
        The node of the next stage that each row goes on to; None where there is only one.
    """

    scores: Floats
    gate: Floats | None
    carried: Floats
    margin: float = 0.0
    turn: Ints | None = None


class Stage(Protocol):
    """Protocol of stages."""

    @property
    def columns(self) -> Ints:
        """The columns that a row holds here, in the order of the block."""

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score the rows of a block that holds just those columns."""


@dataclass(frozen=True)
class LinearStage:
    """``(g, f1) = block @ coef + intercept`` over the bought columns alone.

    Attributes
    ----------
    columns : ndarray of shape (n_columns,)
        Columns with a non-zero weight in g or in f1.
    coef : ndarray of shape (n_columns, 1 + n_scores)
        Weights of g and of f1.
    intercept : ndarray of shape (1 + n_scores,)
        Their offsets.
    margin : float
        Weight of f1's margin in g; 0 is the paper's linear gate.
    """

    columns: Ints
    coef: Floats
    intercept: Floats
    margin: float = 0.0

    def problem(self, task: Task) -> str | None:
        """Reason why the stage cannot serve a task, or None."""
        n_heads = 1 + task.n_scores
        fits = self.coef.shape == (len(self.columns), n_heads) and self.intercept.shape == (n_heads,)
        return None if fits else f"coef and intercept must have {n_heads} weights for each column"

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score a block, dense or CSR."""
        both = weighted_sums(block, self.coef, self.intercept)
        return Visit(both[:, CHEAP], both[:, GATE], carried, self.margin)


def weighted_sums(block: Any, coef: Floats, intercept: Floats) -> Floats:
    """``block @ coef + intercept``, added column by column, so that a row's sum never depends on the rows around it.

    A BLAS adds in an order that depends on the processor and on the number of rows: equal rows of one batch may get
    unequal sums, and a threshold may part them. Here every row starts at the intercept and adds its columns in turn,
    dense or CSR, and no product is fused into a sum.
    """
    sums = np.tile(intercept, (block.shape[0], 1))
    coef = np.ascontiguousarray(coef)
    if sparse.issparse(block):
        block = sparse.csr_array(block, dtype=np.float64)
        block.sum_duplicates()
        add_cells(block.indptr, block.indices, block.data, coef, sums)
    else:
        add_columns(np.ascontiguousarray(block, dtype=np.float64), coef, sums)
    return sums


@lean_kernel
def add_columns(block: Floats, coef: Floats, sums: Floats) -> None:
    """Add the columns of a dense block, times their weights, to the sums of its rows."""
    for i in range(block.shape[0]):
        for column in range(block.shape[1]):
            value = block[i, column]
            for head in range(coef.shape[1]):
                sums[i, head] += value * coef[column, head]


@lean_kernel
def add_cells(starts: Any, columns: Any, values: Floats, coef: Floats, sums: Floats) -> None:
    """Add the stored cells of a CSR block, times the weights of their columns, to the sums of its rows."""
    for i in range(len(sums)):
        for cell in range(starts[i], starts[i + 1]):
            for head in range(coef.shape[1]):
                sums[i, head] += values[cell] * coef[columns[cell], head]


@dataclass(frozen=True)
class BoostedStage:
    """Two ensembles of trees over the bought columns.

    Attributes
    ----------
    columns : ndarray of shape (n_columns,)
        Columns that g or f1 looks at.
    gate, cheap : TreeEnsemble
        Over those columns; the gate has f1's scores as further columns if ``gate_reads_score``.
    base : ndarray of shape (1 + n_scores,)
        Scores of g and f1 before any tree.
    gate_reads_score : bool
        Whether the gate reads f1's scores, which costs nothing.
    """

    columns: Ints
    gate: TreeEnsemble
    cheap: TreeEnsemble
    base: Floats
    gate_reads_score: bool = False

    def problem(self, task: Task) -> str | None:
        """Reason why the stage cannot serve a task, or None."""
        width = len(self.columns) + self.gate_reads_score * task.n_scores
        return (
            trees_problem(self.gate, width, 1)
            or trees_problem(self.cheap, len(self.columns), task.n_scores)
            or shape_problem("base", self.base, (1 + task.n_scores,))
        )

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score a block; NaN means missing."""
        f1 = self.base[CHEAP] + self.cheap.predict(block)
        table = np.column_stack([block, f1]) if self.gate_reads_score else block
        return Visit(f1, self.base[GATE] + self.gate.predict(table)[:, 0], carried)


@dataclass(frozen=True)
class ConfidentStage:
    """One ensemble of trees, gated by the uncertainty of the task about its scores.

    Attributes
    ----------
    columns : ndarray of shape (n_columns,)
        Columns the trees look at.
    cheap : TreeEnsemble
        Over those columns.
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    """

    columns: Ints
    cheap: TreeEnsemble
    base: Floats

    def problem(self, task: Task) -> str | None:
        """Reason why the stage cannot serve a task, or None."""
        problem = trees_problem(self.cheap, len(self.columns), task.n_scores)
        return problem or shape_problem("base", self.base, (task.n_scores,))

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score a block; NaN means missing."""
        return Visit(self.base + self.cheap.predict(block), None, carried)


@dataclass(frozen=True)
class LeafStage:
    """One ensemble whose leaves hold values of g and of f1, walked once per row.

    Attributes
    ----------
    columns : ndarray of shape (n_columns,)
        Columns the trees look at.
    trees : TreeEnsemble
        Over those columns; outputs are the gate's leaf weights and f1's.
    base : ndarray of shape (1 + n_scores,)
        Scores of g and f1 before any tree.
    margin : float
        Weight of f1's margin in g.
    """

    columns: Ints
    trees: TreeEnsemble
    base: Floats
    margin: float

    def problem(self, task: Task) -> str | None:
        """Reason why the stage cannot serve a task, or None."""
        problem = trees_problem(self.trees, len(self.columns), 1 + task.n_scores)
        return problem or shape_problem("base", self.base, (1 + task.n_scores,))

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score a block; NaN means missing."""
        both = self.base + self.trees.predict(block)
        return Visit(both[:, CHEAP], both[:, GATE], carried, self.margin)

    @property
    def n_bytes(self) -> int:
        """Bytes on a device: trees, the values of their leaves, and a few numbers."""
        return self.trees.n_bytes + self.base.nbytes + 8


@dataclass(frozen=True)
class ForeignStage:
    """A model of the user on some columns, gated by the uncertainty of the task.

    Attributes
    ----------
    columns : ndarray
        Columns the model reads.
    cheap : FullModel
        The model; f1 are its scores.
    task : Task
        Task of the model.
    """

    columns: Ints
    cheap: FullModel
    task: Task

    def problem(self, task: Task) -> str | None:
        """Reason why the stage cannot serve a task, or None."""
        return None if self.task == task else "a stage must answer the task of its chain"

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Score a block."""
        f1 = self.task.scores(ask_model(self.cheap, self.task, block, block, who="the cheap model"))
        return Visit(f1, None, carried)


class Turn(Protocol):
    """Choice of the node of the next stage, by what a row holds."""

    @property
    def nodes(self) -> Ints:
        """Numbers of the nodes to choose from."""

    def problem(self, columns: Ints) -> str | None:
        """Reason why rows that hold some columns cannot take this turn, or None."""

    def taken(self, block: Floats) -> Ints:
        """The node of the next stage for each row of a block."""


@dataclass(frozen=True, eq=False)
class TurnByValue:
    """Choice of the next node by the value of a column.

    Attributes
    ----------
    place : int
        Place of the column among those of the stage.
    ends : ndarray of shape (n_bins - 1,)
        Upper ends of all bins but the last, ascending.
    to : ndarray of shape (n_bins + 1,)
        Node for each bin and, last, for missing values.
    """

    place: int
    ends: Floats
    to: Ints

    @property
    def nodes(self) -> Ints:
        """Numbers of the nodes to choose from."""
        return np.unique(self.to)

    def problem(self, columns: Ints) -> str | None:
        """Reason why rows that hold some columns cannot take this turn, or None."""
        if self.ends.ndim != 1 or np.isnan(self.ends).any() or np.any(np.diff(self.ends) <= 0):
            return "ends of a turn must be ascending numbers"
        if not 0 <= self.place < max(len(columns), 1) or (len(self.ends) and not len(columns)):
            return f"place of a turn must be that of one of {len(columns)} columns; got {self.place}"
        is_right = self.to.shape == (len(self.ends) + 2,) and np.all((self.to >= 0) & (self.to < MAX_NODES))
        return None if is_right else f"nodes of a turn must be numbers in [0, {MAX_NODES}), one for each bin"

    def taken(self, block: Floats) -> Ints:
        """The node of the next stage for each row of a block."""
        if not len(self.ends):
            return np.full(len(block), self.to[0], dtype=np.intp)
        cells = np.asarray(block[:, self.place], dtype=np.float64)
        taken: Ints = self.to[np.where(np.isnan(cells), -1, np.searchsorted(self.ends, cells))]
        return taken


@dataclass(frozen=True)
class CascadeStage:
    """A stage of one ensemble that grows from stage to stage.

    Attributes
    ----------
    columns : ndarray
        Columns held at this stage, those of the stage before it first.
    trees : TreeEnsemble
        Trees over those columns, added to the score that a row carries.
    calibration : ndarray
        Calibration of that score.
    task : Task
        Applies the calibration.
    gate : TreeEnsemble, optional
        Over the columns and, behind them, the calibrated scores; None gates by the uncertainty of the task.
    turn : Turn, optional
        Choice of the node of the next stage, if that has several.
    """

    columns: Ints
    trees: TreeEnsemble
    calibration: Floats
    task: Task
    gate: TreeEnsemble | None = None
    turn: Turn | None = None

    def problem(self, task: Task) -> str | None:
        """Reason why the stage cannot serve a task, or None."""
        n_columns = len(self.columns)
        return (
            trees_problem(self.trees, n_columns, task.n_scores)
            or shape_problem("calibration", self.calibration, models_of(task).no_calibration.shape)
            or (None if self.gate is None else trees_problem(self.gate, n_columns + task.n_scores, 1))
            or (None if self.turn is None else self.turn.problem(self.columns))
            or (None if self.task == task else "a stage must answer the task of its chain")
        )

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Add the trees of this stage to the scores that the rows carry."""
        block = block.toarray() if sparse.issparse(block) else block
        carried = carried + self._added(block)
        scores = self.task.calibrated(carried, self.calibration)
        gate = None if self.gate is None else self.gate.predict(np.column_stack([block, scores]))[:, 0]
        return Visit(scores, gate, carried, turn=None if self.turn is None else self.turn.taken(block))

    def _added(self, block: Any) -> Floats:
        """Scores of the trees; many rows are split among threads."""
        n_parts = len(block) * self.trees.n_trees // PART_OF_WORK
        n_parts = n_parts if n_parts < 2 else min(n_parts, usable_threads())
        if n_parts < 2:
            return self.trees.predict(block)
        # Rows are independent, so that any split among threads gives the same result.
        with ThreadPoolExecutor(n_parts) as pool:
            return np.concatenate(list(pool.map(self.trees.predict, np.array_split(block, n_parts))))


# -- forks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForkStage:
    """Several nodes; each row is scored by its own.

    Attributes
    ----------
    nodes : tuple of CascadeStage or MixtureStage
        The nodes.
    """

    nodes: tuple[Stage, ...]

    def validate(self) -> "ForkStage":
        """Refuse a fork without nodes, or of forks. Returns itself."""
        if not 1 <= len(self.nodes) <= MAX_NODES or any(isinstance(node, ForkStage) for node in self.nodes):
            raise InvalidInputError(f"a fork must have from 1 to {MAX_NODES} nodes, and none may be a fork.")
        return self

    @cached_property
    def columns(self) -> Ints:
        """All columns that some row holds here, in the order of the nodes."""
        every = (column for node in self.nodes for column in node.columns.tolist())
        return np.array(list(dict.fromkeys(every)), dtype=np.intp)

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Refused: what rows hold depends on their node, so that no one block has all of them."""
        raise NotImplementedError("a fork is visited node by node")


def trees_problem(trees: TreeEnsemble, n_columns: int, n_outputs: int) -> str | None:
    """Reason why trees do not make so many scores of so many columns, or None."""
    if trees.n_features == n_columns and trees.n_outputs == n_outputs:
        return None
    return (
        f"trees must make {n_outputs} scores of {n_columns} columns; these make {trees.n_outputs} of "
        f"{trees.n_features}"
    )


def shape_problem(name: str, array: Floats, shape: tuple[int, ...]) -> str | None:
    """Reason why an array does not have a shape, or None."""
    return None if array.shape == shape else f"{name} must have the shape {shape}; got {array.shape}"


def check_stages(
    stages: tuple[Stage, ...], n_features: int, task: Task, n_levels: Mapping[int, int] | None = None
) -> None:
    """Refuse stages that do not serve a task on so many columns, or do not build on one another.

    ``n_levels`` counts the levels of the columns of categories; None where that is not known.
    """
    for stage in (node for each in stages for node in nodes_of(each)):
        problem = None if are_columns(stage.columns, n_features) else f"columns must lie in [0, {n_features})"
        problem_of = getattr(stage, "problem", None)
        problem = problem or (None if problem_of is None else problem_of(task))
        problem = problem or (None if n_levels is None else _sets_problem(stage, n_levels))
        if problem:
            raise InvalidInputError(f"{type(stage).__name__}: {problem}.")
    for before, stage in pairwise(stages):
        both = isinstance(before, CascadeStage) and isinstance(stage, CascadeStage)
        if both and not np.isin(before.columns, stage.columns).all():
            raise InvalidInputError("columns of a stage must include those of the stage before.")


def _sets_problem(stage: Stage, n_levels: Mapping[int, int]) -> str | None:
    """Reason why trees of a stage cannot split by levels of its columns, or None."""
    # Behind the columns of a stage a gate may read scores, which are no levels either.
    n_known = np.array([n_levels.get(int(column), 0) for column in stage.columns] + [0])
    for trees in getattr(stage, "__dict__", {}).values():
        if not isinstance(trees, TreeEnsemble) or trees.sets is None:
            continue
        place = np.minimum(trees.feature[trees.sets.nodes], len(stage.columns))
        allowed = np.repeat(n_known[place], np.diff(trees.sets.offsets))
        if np.any(n_known[place] == 0) or np.any(trees.sets.levels >= allowed):
            return "trees must ask for levels of columns that have them"
    return None


def nodes_of(stage: Stage) -> tuple[Stage, ...]:
    """The nodes of a stage: itself, unless it is a fork."""
    return stage.nodes if isinstance(stage, ForkStage) else (stage,)


def rows_by_node(stage: Stage, node: Ints | None) -> Iterator[tuple[int, Any]]:
    """The nodes of a stage that hold rows, each with the places of its rows."""
    if node is None or not isinstance(stage, ForkStage):
        yield 0, slice(None)
        return
    for number in np.unique(node).tolist():
        yield number, np.flatnonzero(node == number)


def joined_visit(n_rows: int, parts: list[tuple[Any, Visit]], gate_of: Callable[[Visit], Floats]) -> Visit:
    """Join the visits of the nodes into one of all rows; ``gate_of`` gives the gates."""
    (places, first), *others = parts
    if not others and isinstance(places, slice):
        return first
    scores, carried = (np.empty((n_rows, array.shape[1])) for array in (first.scores, first.carried))
    gate, turn = np.empty(n_rows), np.zeros(n_rows, dtype=np.intp)
    for rows, visit in parts:
        scores[rows], carried[rows], gate[rows] = visit.scores, visit.carried, gate_of(visit)
        if visit.turn is not None:
            turn[rows] = visit.turn
    return Visit(scores, gate, carried, turn=turn)


def check_turns(stages: tuple[Stage, ...]) -> None:
    """Refuse forks whose turns lead to missing nodes, or to nodes with fewer columns."""
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
            if (turn is None and len(after) > 1) or not all(0 <= target < len(after) for target in reached):
                raise InvalidInputError(
                    f"node {number} of stage {place} must lead to nodes of the next stage, which are numbered 0 to "
                    f"{len(after) - 1}; got {None if turn is None else reached}."
                )
            columns = frozenset(node.columns.tolist())
            if not all(columns <= holds[target] for target in reached):
                raise InvalidInputError(
                    f"node {number} of stage {place} leads to a node that lacks some of its columns; what a row holds "
                    f"can only grow."
                )
