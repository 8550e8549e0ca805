"""Learning a cascade: grow, calibrate, blend, sweep, and drop what earns nothing.

Everything is judged on rows that the judged model has not seen. What does not depend on the operating point (bins,
order, ensembles, held-out scores) is computed once; the operating points then are sorts and running sums.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from thrifty.arrays import Floats, Ints, Numbers
from thrifty.chain.policy import Policy
from thrifty.evidence.averages import route_by
from thrifty.evidence.evidence import Evidence
from thrifty.evidence.observe import judged_by
from thrifty.evidence.stopping import StoppingRules, measured, sweep_prices
from thrifty.exceptions import InvalidInputError
from thrifty.learning.cascade.gates import (
    AHEAD,
    LearnedGates,
    Standing,
    choose_gates,
    lead_of,
    n_coarse_stages,
    settled_scores,
)
from thrifty.learning.cascade.graph_search import FEWEST_ROWS, find_graph
from thrifty.learning.cascade.graph_trees import GraphTrees, grow_graph
from thrifty.learning.cascade.neighbour_graph import NeighbourGraph, find_neighbours
from thrifty.learning.cascade.plan import choose_plan
from thrifty.learning.cascade.problem import (
    CascadeProblem,
    Plan,
    calibrate,
    judge_stages,
    mean_in_errors,
)
from thrifty.learning.cascade.staged import StagedTrees, grow_stages, score_fold
from thrifty.trees import TreeEnsemble

__all__ = ["CLEARLY", "LearnedCascade", "is_worth_asking", "lead", "learn_cascade"]

Graph = GraphTrees | NeighbourGraph

MOST_STRETCHED = 0.25
"""Logarithm of the largest factor by which the scores of copies are thought to fall short."""

CLEARLY = 3.0
"""Standard errors by which one model must lead another before anybody is told."""


@dataclass(frozen=True, eq=False)
class LearnedCascade:
    """The outcome.

    Attributes
    ----------
    plan : Plan
        What was chosen.
    staged : StagedTrees, GraphTrees or NeighbourGraph
        What answers, learned from all rows; of a line only the stages that are kept.
    calibrations : list of ndarray
        Calibration of each stage.
    blend : ndarray
        How the task blends the last stage's scores with the full model's.
    policy : Policy
        Operating points; their scores are the mean quality of held-out answers.
    evidence : Evidence
        Held-out rows they were chosen on.
    gates : tuple of tuple of TreeEnsemble, optional
        Learned gates of the nodes of each stage, over its columns and its scores; None where the doubt of the task
        decides.
    """

    plan: Plan
    staged: StagedTrees | Graph
    calibrations: list[Floats]
    blend: Floats
    policy: Policy
    evidence: Evidence
    gates: tuple[tuple[TreeEnsemble, ...], ...] | None = None

    @property
    def asks_full(self) -> bool:
        """Whether any operating point asks the full model about any row."""
        evidence = self.evidence
        points = self.policy.thresholds if evidence.points is None else evidence.points
        return any((route_by(evidence.gate, one) == evidence.n_stages).any() for one in points)


def learn_cascade(problem: CascadeProblem) -> LearnedCascade:
    """Choose order and size out of fold, then grow, calibrate and sweep; a graph where it is clearly ahead."""
    plan = choose_plan(problem)
    staged, raw, n_trees, stretch = _grow(problem, plan)
    n_coarse = n_coarse_stages(problem, plan.sets)
    first = StagedTrees(staged.base, staged.sets[:n_coarse], staged.parts[:n_coarse]).scores(problem.table)
    line = _judged(problem, raw, first, stretch, problem.costs(plan.sets), Standing.on_line(plan.sets))
    graph = _best_graph(problem, plan, n_trees, line, staged, raw)
    if graph is not None:
        served = _finished(problem, plan, graph[1], graph[0])
    else:
        served = without_idle_stages(_finished(problem, plan, line, staged), problem)
    return replace(served, policy=measured(served.policy, served.evidence))


@dataclass(frozen=True, eq=False)
class _Judged:
    """What stages are worth out of fold, before operating points are chosen."""

    calibrations: list[Floats]
    blend: Floats
    scores: Floats
    answer: Floats
    belief: Floats
    evidence: Evidence
    loss: Floats
    gates: LearnedGates | None

    @property
    def candidate(self) -> tuple[Evidence, Floats, Numbers]:
        """What is compared with another structure: by labels, because each has a belief of its own."""
        return self.evidence, self.loss, self.evidence.quality


def _judged(
    problem: CascadeProblem,
    raw: Floats,
    served: Floats,
    stretch: Floats,
    costs: Floats,
    standing: Standing | None,
) -> _Judged:
    """Calibrate held-out scores, blend the last with the full model, and learn gates.

    Parameters
    ----------
    raw : ndarray of shape (n_rows, n_stages, n_scores)
        Held-out scores.
    served : ndarray of shape (n_rows, n_coarse, n_scores)
        Scores of the model that serves, at the first stages, which tell rows apart in a few lumps only.
    stretch : ndarray of shape (n_stages,)
        By what factor the scores of the model that serves are larger.
    costs : ndarray
        What rows have paid at each stage and beyond.
    standing : Standing, optional
        What rows hold at each stage; without it no gates are learned.
    """
    task = problem.task
    calibrations, scores = calibrate(task, raw, problem.y, problem.weight)
    blend, answer, belief = choose_blend(problem, scores[:, -1])
    evidence, loss = judge_stages(problem, costs, scores, answer, belief)
    full_quality = task.quality_of_scores(problem.y, problem.full_scores)
    evidence = replace(evidence, full_quality=full_quality, full_scores=problem.full_scores)
    if not is_worth_asking(evidence.quality, full_quality, problem.weight):
        loss[:, -1] = 1.0 + loss.max()
    problem.progress("learning gates", 0, 1)
    settled = settled_scores(problem, served, calibrations, scores, stretch)
    doubts = np.column_stack([task.doubt(settled[:, stage]) for stage in range(scores.shape[1])])
    evidence = replace(evidence, gate=doubts)
    gates = None
    if standing is not None:
        gates = choose_gates(problem, standing, evidence, loss, settled, served.shape[1])
    problem.progress("learning gates", 1, 1)
    if gates is not None:
        evidence = replace(evidence, gate=gates.held_out)
    return _Judged(calibrations, blend, scores, answer, belief, evidence, loss, gates)


def _finished(
    problem: CascadeProblem, plan: Plan, found: _Judged, trees: StagedTrees | Graph
) -> LearnedCascade:
    """Operating points of what was judged, and the outcome."""
    task, evidence, loss = problem.task, found.evidence, found.loss
    # Beliefs in place of labels again: among many points on few rows the luckiest would look best.
    judged = None
    if task.query_of(problem.y) is not None:
        ranked = replace(evidence, full_quality=problem.full_scores[:, 0])
        judged = judged_by(task, ranked, problem.y)
    policy = sweep_prices(evidence, loss, task.expected_quality(loss), judged=judged)
    by_row, evidence = evidence, evidence if judged is None else judged
    points = policy.thresholds
    if task.mistake_price is not None:
        # Where tests and mistakes are paid in the same unit, one price is right: one for one.
        least_total = StoppingRules(evidence, loss).at(1.0 / task.mistake_price)
        points = np.unique(np.vstack([points, least_total]), axis=0)
    if problem.against_full:
        loyal = _loyal_points(problem, by_row, found.scores, found.answer, found.belief)
        points = np.unique(np.vstack([points, loyal]), axis=0)
    evidence = replace(evidence, points=points)
    gates = None if found.gates is None else found.gates.trees
    return LearnedCascade(plan, trees, found.calibrations, found.blend, policy, evidence, gates)


def _best_graph(
    problem: CascadeProblem,
    plan: Plan,
    n_trees: Sequence[int],
    line: _Judged,
    staged: StagedTrees,
    raw: Floats,
) -> tuple[Graph, _Judged] | None:
    """A graph of purchases, if one is wanted and, where it may be refused, clearly ahead of the line.

    One whose nodes answer by neighbours is found in a fraction of the time of the line; one whose nodes have trees of
    their own takes several times as long as the line, and is looked for only where the first is not clearly ahead.
    """
    if not may_part(problem):
        return None
    if problem.structure in ("neighbours", "auto"):
        graph: tuple[Graph, _Judged] | None = _learn_neighbours(problem, plan, staged, raw)
        if graph is not None and (problem.structure == "neighbours" or _is_ahead(problem, line, graph[1])):
            return graph
    if problem.structure in ("graph", "auto"):
        graph = _learn_graph(problem, plan, n_trees)
        if graph is not None and (problem.structure == "graph" or _is_ahead(problem, line, graph[1])):
            return graph
    return None


def _is_ahead(problem: CascadeProblem, line: _Judged, graph: _Judged) -> bool:
    return lead_of(problem, line.candidate, graph.candidate) > AHEAD


def _learn_neighbours(
    problem: CascadeProblem, plan: Plan, staged: StagedTrees, raw: Floats
) -> tuple[NeighbourGraph, _Judged] | None:
    """A graph whose nodes answer by neighbours, and what it is worth."""
    found = find_neighbours(problem, plan, staged, raw)
    if found is None:
        return None
    graph, scores, node, first = found
    n_coarse = n_coarse_stages(problem, graph.sets[0])
    costs = problem.costs_by_node(graph.sets, node)
    served, alike = first[:, None][:, :n_coarse], np.ones(scores.shape[1])
    return graph, _judged(problem, scores, served, alike, costs, None)


def _learn_graph(
    problem: CascadeProblem, plan: Plan, n_trees: Sequence[int]
) -> tuple[GraphTrees, _Judged] | None:
    """A graph whose nodes have trees of their own, and what it is worth."""
    graph = find_graph(problem, plan)
    if graph is None:
        return None
    sizes = [_trees_of_level(len(level[0].columns), plan, n_trees) for level in graph.levels]
    everyone = np.arange(len(problem.y))
    grow = partial(grow_graph, problem, graph, plan.boosting)
    if problem.max_bytes is not None:
        sizes = _few_enough(problem.max_bytes, sizes, lambda cut: grow(cut, everyone).n_bytes)

    def without(fold: Ints) -> tuple[Floats, Ints, Floats]:
        grown = grow(sizes, np.setdiff1d(everyone, fold, assume_unique=True))
        return *grown.walk(problem.table.take(fold)), grown.spread

    raw = np.empty((len(everyone), len(graph.levels), problem.task.n_scores))
    node = np.empty((len(everyone), len(graph.levels)), dtype=np.intp)
    spread = np.zeros(len(graph.levels))
    with ThreadPoolExecutor(problem.n_threads) as pool:
        whole = pool.submit(grow, sizes, everyone)
        for number, (fold, (scores, nodes, of_fold)) in enumerate(
            zip(problem.folds, pool.map(without, problem.folds), strict=True)
        ):
            raw[fold], node[fold], spread = scores, nodes, spread + of_fold
            problem.progress("growing a graph", number + 1, len(problem.folds) + 1)
        trees = whole.result().to_serve()
        problem.progress("growing a graph", len(problem.folds) + 1, len(problem.folds) + 1)
    sets = [[one.columns for one in level] for level in trees.levels]
    n_coarse = n_coarse_stages(problem, [level[0] for level in sets if len(level) == 1][:1])
    served = trees.walk(problem.table)[0][:, :n_coarse]
    stretch = stretch_of(trees.spread, spread / len(problem.folds))
    judged = _judged(problem, raw, served, stretch, problem.costs_by_node(sets, node), Standing(sets, node))
    return trees, judged


def may_part(problem: CascadeProblem) -> bool:
    """Whether rows may buy in different orders: rows must be judged one by one, and have something to choose from."""
    is_alone = problem.task.query_of(problem.y) is None
    n_purchases = int((problem.price_list.prices > 0).sum())
    return is_alone and n_purchases > 2 and len(problem.y) >= FEWEST_ROWS


def _trees_of_level(n_columns: int, plan: Plan, n_trees: Sequence[int]) -> int:
    """Trees of the stage of the line that holds about as many columns."""
    distance = [abs(len(columns) - n_columns) for columns in plan.sets]
    return n_trees[int(np.argmin(distance))]


def _loyal_points(
    problem: CascadeProblem, evidence: Evidence, scores: Floats, answer: Floats, belief: Floats
) -> Floats:
    """Thresholds that trade cost against answers worse than the full model's: they ask it, however good it is."""
    every = [*(scores[:, stage] for stage in range(scores.shape[1])), answer]
    task = problem.task
    regret = np.column_stack([task.expected_regret(one, problem.full_scores, belief) for one in every])
    return sweep_prices(evidence, regret, task.expected_quality(regret)).thresholds


def _grow(problem: CascadeProblem, plan: Plan) -> tuple[StagedTrees, Floats, list[int], Floats]:
    """The ensemble on all rows, every row's scores by a copy that has not seen it, its trees by stage, the stretch.

    The last is how much surer than its copies the ensemble is at each stage.
    """
    known = (problem.task, problem.table, problem.y, problem.weight)
    scores = np.empty((len(problem.y), len(plan.sets), problem.task.n_scores))
    # The kernels release the interpreter's lock, so threads share one table of codes.
    with ThreadPoolExecutor(problem.n_threads) as pool:
        first, *others = problem.folds
        # The rows of one fold tell how many trees a stage needs; the other copies have as many.
        job = pool.submit(score_fold, *known, first, plan.sets, plan.boosting)
        scores[first], n_trees, spread = job.result()
        problem.progress("growing stages", 1, len(others) + 2)
        if problem.max_bytes is not None:

            def bytes_of(cut: list[int]) -> Ints:
                return grow_stages(*known, plan.sets, plan.boosting, n_trees=cut).n_bytes

            fewer = _few_enough(problem.max_bytes, n_trees, bytes_of)
            if fewer != n_trees:
                n_trees = fewer
                scores[first], _, spread = score_fold(*known, first, plan.sets, plan.boosting, n_trees)
        whole = pool.submit(grow_stages, *known, plan.sets, plan.boosting, n_trees=n_trees)
        judged = [pool.submit(score_fold, *known, fold, plan.sets, plan.boosting, n_trees) for fold in others]
        for number, (fold, job) in enumerate(zip(others, judged, strict=True)):
            scores[fold], _, of_fold = job.result()
            spread = spread + of_fold
            problem.progress("growing stages", number + 2, len(others) + 2)
        staged = whole.result().to_serve()
        problem.progress("growing stages", len(others) + 2, len(others) + 2)
        assert staged.spread is not None
        return staged, scores, n_trees, stretch_of(staged.spread, spread / len(problem.folds))


def stretch_of(own: Floats, spread: Floats) -> Floats:
    """By what factor the scores of the model that serves are larger than those of its copies, at each stage.

    It is grown on more rows, which penalties of leaves shrink less. Neither has been asked about new rows; but both
    were about the rows that they were grown on, and what makes their scores larger there makes them larger elsewhere.
    Neighbouring stages are averaged, for the factor changes slowly and is the less certain the fewer rows there are.
    """
    grown = (own > 0) & (spread > 0)
    logs = np.where(grown, np.log(np.where(grown, own, 1.0) / np.where(grown, spread, 1.0)), 0.0)
    around = np.convolve(np.r_[logs[:1], logs, logs[-1:]], np.full(3, 1 / 3), "valid")
    stretch: Floats = np.exp(np.clip(around, -MOST_STRETCHED, MOST_STRETCHED))
    return stretch


def _few_enough(most: int, n_trees: list[int], bytes_of: Callable[[list[int]], Ints]) -> list[int]:
    """Trees of each stage, cut to a common number where all together would take more bytes than they may."""
    while True:
        taken = bytes_of(n_trees)
        if taken.sum() <= most:
            return n_trees
        cuts = np.minimum(np.array(n_trees), np.arange(max(n_trees))[:, None])
        cut_to = taken / np.maximum(n_trees, 1) * cuts
        fits = np.flatnonzero(cut_to.sum(axis=1) <= most)
        if fits[-1] == 0:
            raise InvalidInputError(
                f"max_bytes must leave room for a tree in every stage, about {int(cut_to[1].sum())} bytes here; got "
                f"{most}. Raise it, ask for fewer `stages`, or give a smaller depth in `sizes`."
            )
        n_trees = cuts[fits[-1]].tolist()


def choose_blend(problem: CascadeProblem, last: Floats) -> tuple[Floats, Floats, Floats]:
    """How to answer where the full model was asked.

    It and the last stage are blended if, on folds that the weights were not made on, that has the smaller loss and
    errs no more often.

    Returns
    -------
    weights : ndarray
        The blend.
    answer, belief : ndarray of shape (n_rows, n_scores)
        Held-out scores of that answer, and of the blend whether or not it is the answer.
    """
    task, full = problem.task, problem.full_scores
    belief = np.empty_like(last)
    for fold in problem.folds:
        rest = np.ones(len(last), dtype=bool)
        rest[fold] = False
        weights = task.blend_weights(last[rest], full[rest], problem.y[rest], problem.weight[rest])
        belief[fold] = task.blended(weights, last[fold], full[fold])
    if _is_better(problem, belief, full):
        return task.blend_weights(last, full, problem.y, problem.weight), belief, belief
    return task.full_alone, full, belief


def is_worth_asking(quality: Numbers, full_quality: Numbers, weight: Floats) -> bool:
    """Whether the full model is kept: not if its answer errs as often as that of the last stage, which holds all too.

    Nor if it is by itself clearly worse and the blend with it is not clearly better: a call that costs nothing extra
    would else be made for the sake of a few lucky rows.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_stages + 1)
        How good the answer of every stage is and, last, the answer with the full model.
    full_quality : ndarray of shape (n_rows,)
        How good the full model's own answer is.
    weight : ndarray of shape (n_rows,)
        What rows count where answers are not just right or wrong.
    """
    blend, last = quality[:, -1], quality[:, -2]
    return lead(blend, last, weight) > (1.0 if lead(last, full_quality, weight) > CLEARLY else 0.0)


def lead(one: Numbers, other: Numbers, weight: Floats) -> float:
    """By how many standard errors one model is better, or right more often, than another, row by row."""
    if one.dtype != bool and not _is_two_valued(one, other):  # errors of different size, not right or wrong
        return mean_in_errors(np.asarray(one - other, dtype=np.float64), weight)
    gains, losses = int((one > other).sum()), int((other > one).sum())
    return float((gains - losses) / np.sqrt(max(gains + losses, 1)))


def _is_two_valued(one: Numbers, other: Numbers) -> bool:
    both = np.concatenate([one, other])
    return bool(np.isin(both, [both.min(), both.max()]).all())


def _is_better(problem: CascadeProblem, one: Floats, other: Floats) -> bool:
    task, loss, weight = problem.task, problem.task.loss(problem.y), problem.weight
    losses = [float(np.average(loss.values(scores), weights=weight)) for scores in (one, other)]
    quality = [
        float(np.average(task.quality_of_scores(problem.y, scores), weights=weight))
        for scores in (one, other)
    ]
    return losses[0] < losses[1] - 1e-9 and quality[0] >= quality[1] - 1e-12


def without_idle_stages(learned: LearnedCascade, problem: CascadeProblem) -> LearnedCascade:
    """Leave out the stages at which no operating point lets a row stop.

    The trees of such a stage are handed to the next one, which holds its columns anyway. Behind the last stage that
    anybody reaches there is nothing to keep; the full model itself stays, in case it is wanted later.
    """
    gate, thresholds = learned.evidence.gate, learned.policy.thresholds
    points, staged = learned.evidence.points, learned.staged
    assert isinstance(staged, StagedTrees)  # stages of a line
    assert points is not None  # the operating points, and those that a proof may want
    n_stages = gate.shape[1]
    routes = np.unique(np.concatenate([np.unique(route_by(gate, one)) for one in points]))
    asks_full = bool(routes[-1] == n_stages)
    kept = [int(stage) for stage in routes if stage < n_stages]
    thresholds, points = thresholds.copy(), points.copy()
    if not asks_full:
        # A new row must not get further than any held-out row did.
        thresholds[:, kept[-1]] = points[:, kept[-1]] = np.inf
    elif kept[-1:] != [n_stages - 1] and not np.array_equal(learned.blend, problem.task.full_alone):
        kept.append(n_stages - 1)  # nobody stops there, and its score is part of the blend
    if not kept:
        kept = [0]  # a cascade has a stage, even where no operating point lets a row stop
    thresholds = thresholds[:, kept]
    sets = [staged.sets[stage] for stage in kept]
    return replace(
        learned,
        staged=_merged(staged, kept),
        calibrations=[learned.calibrations[stage] for stage in kept],
        policy=replace(learned.policy, thresholds=thresholds),
        evidence=learned.evidence.keep_stages(kept, points[:, kept], problem.costs(sets)),
        gates=None if learned.gates is None else tuple(learned.gates[stage] for stage in kept),
    )


def _merged(staged: StagedTrees, kept: Sequence[int]) -> StagedTrees:
    parts, start = [], 0
    for stage in kept:
        parts.append(TreeEnsemble.concatenate(staged.parts[start : stage + 1]))
        start = stage + 1
    return StagedTrees(staged.base, tuple(staged.sets[stage] for stage in kept), tuple(parts))
