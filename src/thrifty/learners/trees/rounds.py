"""Rounds of boosting in one compiled call: derivatives, a tree, its values added to the scores, and again.

A tree over a few hundred rows takes a tenth of a millisecond, and a call from Python that looks at all the arrays of a
workspace a fifth of that, so there is one call for several trees, and one for all that a tree needs. All
compiled functions of a tree are inlined into it.
"""

from typing import NamedTuple

import numpy as np

from thrifty.arrays import Bools, Floats, Int64s
from thrifty.engine.tasks.derivatives import LOGISTIC, Formula, write_derivatives
from thrifty.engine.trees.binning import Thresholds
from thrifty.jit import Number, lean, lean_kernel
from thrifty.learners.trees.best_first import LevelSearch, examine_levels, next_job, run_job
from thrifty.learners.trees.builder import TreeArrays, write_tree
from thrifty.learners.trees.gradients import CURVATURE_BITS, GRADIENT_BITS, pack_one, round_to
from thrifty.learners.trees.split import run_lanes
from thrifty.learners.trees.workspace import Workspace

GIVEN, PACKED = (
    0,
    1,
)  # derivatives come from the caller, who may have packed them already; others are formulas
JOB = 1
"""Returned where the histograms of a job have several lanes, which are compiled apart."""
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


def run_rounds(
    ws: Workspace,
    levels: LevelSearch | None,
    rounds: Rounds,
    ends: Thresholds,
    out: TreeArrays,
    number: int,
    scores: Floats,
) -> int:
    """Grow trees, write them to ``out`` from ``number`` on, and add them to ``scores``, which may be of no rows.

    Returns 0, or -1 or -2 if a gradient or a hessian is not allowed.
    """
    ws.tree[0]["n_leaves"] = ws.tree[0]["n_grown"] = 0
    rest = (rounds, ends.values, ends.offsets, out, number, scores)
    if levels is not None and ws.lanes.n_lanes == 1:
        return int(grow_level_tree(ws, levels, *rest))
    while (left := int(grow_trees(ws, *rest))) == JOB:
        run_lanes(ws)
        if levels is not None:
            examine_levels(ws, levels)
    return left


@lean_kernel
def grow_trees(
    ws: Workspace,
    rounds: Rounds,
    ends: Floats,
    offsets: Int64s,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> Number:
    """Grow trees over numbers, as ``run_rounds`` does; returns 1 where a job of several lanes is left to the caller."""
    tree = ws.tree[0]
    while True:
        if tree.n_leaves == 0:
            if tree.n_grown == rounds.n_trees:
                return 0
            problem = pack_next(ws, rounds)
            if problem != 0:
                return -problem
        while next_job(ws):
            if ws.lanes.n_lanes > 1:
                return JOB
            run_job(ws)
        write_tree(ws, ends, offsets, rounds.learning_rate, out, number + tree.n_grown, scores)
        tree.n_leaves, tree.n_grown = 0, tree.n_grown + 1


@lean_kernel
def grow_level_tree(
    ws: Workspace,
    levels: LevelSearch,
    rounds: Rounds,
    ends: Floats,
    offsets: Int64s,
    out: TreeArrays,
    number: Number,
    scores: Floats,
) -> Number:
    """Grow one tree over a table with columns of levels, as ``run_rounds`` does."""
    tree = ws.tree[0]
    problem = pack_next(ws, rounds)
    if problem != 0:
        return -problem
    while next_job(ws):
        run_job(ws)
        examine_levels(ws, levels)
    write_tree(ws, ends, offsets, rounds.learning_rate, out, number, scores)
    tree.n_leaves, tree.n_grown = 0, 1
    return 0


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
