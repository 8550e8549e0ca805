"""Rounds of boosting in one compiled call: derivatives, a tree, its values added to the scores, and again.

A tree over a few hundred rows takes a tenth of a millisecond, and a call from Python that looks at all the arrays of a
workspace a fifth of that, so there is one call for several trees, and one for all that a tree needs. All
compiled functions of a tree are inlined into it.
"""

from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from thrifty.arrays import Bools, Floats, Int64s
from thrifty.jit import Number, lean, lean_kernel
from thrifty.trees.best_first import FINISHED, LevelSearch, advance, advance_levels, examine_levels
from thrifty.trees.binning import WORD, Thresholds
from thrifty.trees.builder import TreeArrays, write_tree
from thrifty.trees.gradients import (
    CURVATURE_BITS,
    GRADIENT_BITS,
    LOGISTIC,
    Formula,
    pack_one,
    round_to,
    write_derivatives,
)
from thrifty.trees.split import run_lanes
from thrifty.trees.workspace import Workspace

__all__ = ["Rounds", "Threads", "rounds_by", "rounds_of", "rounds_packed"]

GIVEN, PACKED = (
    0,
    1,
)  # derivatives come from the caller, who may have packed them already; others are formulas
EVERY_ROW = np.empty((0, 0), dtype=bool)


class Rounds(NamedTuple):
    """Targets of successive trees: given derivatives, or a loss formula and the scores.

    Attributes
    ----------
    n_trees : int
    learning_rate : float
    kind : int
        Where derivatives come from.
    is_newton : bool
        Whether a formula's hessian is that of its loss; else it is the weight.
    target, counts : float64, (n_rows,)
        Targets of a formula, and weights.
    drawn : bool, (n_trees, n_rows)
        Rows that each tree is grown on; of no trees where each is grown on all.
    used : float64, (n_rows,)
        Takes the weights of the rows of one tree.
    grad, hess : float64, (n_rows,)
        Weighted derivatives, or where those of a formula are put.
    grad_bits, hess_bits : int64, (n_rows,)
        Their bits.
    score : float64, (n_rows,)
        Scores that a formula is computed at.
    """

    n_trees: int
    learning_rate: float
    kind: int
    is_newton: bool
    target: Floats
    counts: Floats
    drawn: Bools
    used: Floats
    grad: Floats
    hess: Floats
    grad_bits: Int64s
    hess_bits: Int64s
    score: Floats


def rounds_of(grad: Floats, hess: Floats | None, learning_rate: float) -> Rounds:
    """One tree against weighted derivatives of one output."""
    return _rounds(GIVEN, grad, grad if hess is None else hess, learning_rate)


def rounds_packed(learning_rate: float) -> Rounds:
    """One tree against derivatives that are in the workspace already."""
    nothing = np.empty(0)
    return _rounds(PACKED, nothing, nothing, learning_rate)


def _rounds(kind: int, grad: Floats, hess: Floats, learning_rate: float) -> Rounds:
    bits = grad.view(np.int64), hess.view(np.int64)
    return Rounds(1, learning_rate, kind, True, grad, grad, EVERY_ROW, grad, grad, hess, *bits, grad)


def rounds_by(
    formula: Formula,
    score: Floats,
    counts: Floats,
    drawn: Bools | None,
    n_trees: int,
    is_newton: bool,
    learning_rate: float,
) -> Rounds:
    """Some trees against a formula at the scores, each on the rows drawn for it."""
    used, grad, hess = np.empty((3, len(score)))
    return Rounds(
        n_trees,
        learning_rate,
        formula.kind,
        is_newton,
        _plain(formula.target),
        _plain(counts),
        EVERY_ROW if drawn is None else drawn,
        used,
        grad,
        hess,
        grad.view(np.int64),
        hess.view(np.int64),
        score,
    )


def _plain(values: Floats) -> Floats:
    """Values in the one form that is compiled for, which is that of most arrays."""
    is_plain = values.flags.carray and values.dtype == np.float64
    return values if is_plain else np.array(values, dtype=np.float64, order="C")


class Threads:
    """Runs rounds, and shares the jobs that they leave among threads.

    Parameters
    ----------
    n_threads : int
        Threads, that of the caller included.
    """

    def __init__(self, n_threads: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads - 1) if n_threads > 1 else None
        self._n_threads = n_threads

    def run(
        self,
        ws: Workspace,
        levels: LevelSearch | None,
        rounds: Rounds,
        ends: Thresholds,
        out: TreeArrays,
        number: int,
        scores: Floats,
    ) -> int:
        """Grow trees, as ``grow_trees`` does; returns 0, or -1 or -2 if a gradient or a hessian is not allowed."""
        ws.tree[0]["n_leaves"] = ws.tree[0]["n_grown"] = 0
        rest: tuple[Any, ...] = (rounds, ends.values, ends.offsets, out, number, scores)
        while (left := self._advance(ws, levels, rest, 0, 0)) > FINISHED:
            self._run_job(ws, levels, rest)
        return left

    def _advance(
        self, ws: Workspace, levels: LevelSearch | None, rest: tuple[Any, ...], first: int, last: int
    ) -> int:
        """Grow until all trees are finished or a job waits, or run a part of one."""
        if levels is None or ws.lanes.n_lanes > 1:
            return int(grow_trees(ws, first, last, *rest))
        own = levels if last == 0 else levels.for_thread()
        return int(grow_level_tree(ws, own, first, last, *rest))

    def _run_job(self, ws: Workspace, levels: LevelSearch | None, rest: tuple[Any, ...]) -> None:
        """Run the waiting job on all threads, each on its own words of columns."""
        start, stop = int(ws.tree["first"][0]), int(ws.tree["last"][0])
        if self._pool is None:
            self._run_part(ws, levels, rest, start, stop)
            return
        n_words = -(-(stop - start) // WORD)
        edges = [min(stop, start + WORD * (n_words * t // self._n_threads)) for t in range(self._n_threads)]
        parts = [(first, last) for first, last in pairwise([*edges, stop]) if first < last]
        others = [self._pool.submit(self._run_part, ws, levels, rest, *part) for part in parts[1:]]
        self._run_part(ws, levels, rest, *parts[0])
        wait(others)
        for other in others:
            other.result()

    def _run_part(
        self, ws: Workspace, levels: LevelSearch | None, rest: tuple[Any, ...], first: int, last: int
    ) -> None:
        """Run the waiting job on some places."""
        if ws.lanes.n_lanes == 1:
            self._advance(ws, levels, rest, first, last)
            return
        run_lanes(ws, first, last)
        if levels is not None:
            examine_levels(ws, levels.for_thread(), first, last)


@lean_kernel
def grow_trees(
    ws: Workspace,
    first: Number,
    last: Number,
    rounds: Rounds,
    ends: Floats,
    offsets: Int64s,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> Number:
    """Grow trees, write them to ``out`` from ``number`` on, and add them to ``scores``, which may be of no rows.

    Returns 0 when all are grown, -1 or -2 if a gradient or a hessian is not allowed, and a positive number where a job
    is left to the caller, who calls again with its parts, as ``advance`` has it, and then to go on.
    """
    tree = ws.tree[0]
    while True:
        if tree.n_leaves == 0:
            if tree.n_grown == rounds.n_trees:
                return FINISHED
            problem = pack_next(ws, rounds)
            if problem != 0:
                return -problem
        left = advance(ws, first, last)
        if last > 0 or left != FINISHED:
            return left
        write_tree(ws, ends, offsets, rounds.learning_rate, out, number + tree.n_grown, scores)
        tree.n_leaves, tree.n_grown = 0, tree.n_grown + 1


@lean_kernel
def grow_level_tree(
    ws: Workspace,
    levels: LevelSearch,
    first: Number,
    last: Number,
    rounds: Rounds,
    ends: Floats,
    offsets: Int64s,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> Number:
    """Grow one tree over a table with columns of levels, as ``grow_trees`` does over numbers."""
    tree = ws.tree[0]
    if tree.n_leaves == 0:
        problem = pack_next(ws, rounds)
        if problem != 0:
            return -problem
    left = advance_levels(ws, levels, first, last)
    if last > 0 or left != FINISHED:
        return left
    write_tree(ws, ends, offsets, rounds.learning_rate, out, number, scores)
    tree.n_leaves, tree.n_grown = 0, 1
    return FINISHED


@lean
def pack_next(ws: Workspace, rounds: Rounds) -> Number:
    """Pack the derivatives of the next tree into the workspace; returns 1 or 2 if one is not allowed."""
    if rounds.kind == PACKED:
        return 0
    if rounds.kind != GIVEN:
        derive(rounds, ws.tree[0].n_grown, ws.lanes.constant)
    hess, hess_bits = rounds.hess, rounds.hess_bits
    packed, units, totals = ws.packed[0], ws.units[0], ws.totals[0]
    return pack_one(
        rounds.grad, hess, rounds.grad_bits, hess_bits, ws.lanes, 0, packed, packed, units, totals
    )


@lean
def derive(rounds: Rounds, tree: Number, constant: Number) -> None:
    """Write the weighted derivatives of a formula, rounded before they are weighted."""
    target, score, used, grad, hess = rounds.target, rounds.score, rounds.used, rounds.grad, rounds.hess
    if rounds.kind == LOGISTIC:
        write_derivatives(target, score, rounds.grad_bits, grad, hess)
    else:
        for i in range(len(score)):
            grad[i], hess[i] = score[i] - target[i], 1.0
    for i in range(len(score)):
        used[i] = rounds.counts[i]
    if len(rounds.drawn) > 0:
        drawn = rounds.drawn[tree]
        for i in range(len(score)):
            used[i] *= drawn[i]
    round_to(grad, used, GRADIENT_BITS - 2, grad)
    if rounds.is_newton:
        round_to(hess, used, CURVATURE_BITS - 2, hess)
    elif not constant:
        for i in range(len(score)):
            hess[i] = used[i]
