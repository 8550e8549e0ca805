"""Choice of the structure of a cascade: one order of purchases for all rows (line), or orders by row (graph)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.cascade.evaluation import StageEvaluation, evaluate_stages, overconfidence_ratio
from thrifty.cascade.gates import MIN_Z_OF_GATES, RowNodes, n_tied_stages, z_score_of_gain
from thrifty.cascade.graph import MIN_ROWS, GraphTrees, find_graph, grow_graph
from thrifty.cascade.neighbours import NeighbourGraph, find_neighbours
from thrifty.cascade.problem import CascadeProblem, Plan
from thrifty.cascade.stages import StagedTrees, trees_within_bytes

__all__ = ["Graph", "best_graph"]

Graph = GraphTrees | NeighbourGraph


def best_graph(
    problem: CascadeProblem,
    plan: Plan,
    n_trees: Sequence[int],
    line: StageEvaluation,
    staged: StagedTrees,
    raw: Floats,
) -> tuple[Graph, StageEvaluation] | None:
    """The graph of purchases asked for or, with "auto", one that is clearly better than the line; else None.

    One whose nodes answer by neighbours is found in a fraction of the time of the line; one whose nodes have trees of
    their own takes several times as long as the line, and is looked for only where the first is not clearly ahead.
    """
    if not supports_branching(problem):
        return None
    if problem.structure in ("neighbours", "auto"):
        graph: tuple[Graph, StageEvaluation] | None = _learn_neighbours(problem, plan, staged, raw)
        if graph is not None and (problem.structure == "neighbours" or _is_ahead(problem, line, graph[1])):
            return graph
    if problem.structure in ("graph", "auto"):
        graph = _learn_graph(problem, plan, n_trees)
        if graph is not None and (problem.structure == "graph" or _is_ahead(problem, line, graph[1])):
            return graph
    return None


def _is_ahead(problem: CascadeProblem, line: StageEvaluation, graph: StageEvaluation) -> bool:
    return z_score_of_gain(problem, line.candidate, graph.candidate) > MIN_Z_OF_GATES


def _learn_neighbours(
    problem: CascadeProblem, plan: Plan, staged: StagedTrees, raw: Floats
) -> tuple[NeighbourGraph, StageEvaluation] | None:
    """Learn and evaluate a graph whose nodes predict by neighbours."""
    found = find_neighbours(problem, plan, staged, raw)
    if found is None:
        return None
    graph, scores, node, first = found
    n_tied = n_tied_stages(problem, graph.sets[0])
    costs = problem.costs_by_node(graph.sets, node)
    served, alike = first[:, None][:, :n_tied], np.ones(scores.shape[1])
    return graph, evaluate_stages(problem, scores, served, alike, costs, None)


def _learn_graph(
    problem: CascadeProblem, plan: Plan, n_trees: Sequence[int]
) -> tuple[GraphTrees, StageEvaluation] | None:
    """Learn and evaluate a graph whose nodes have trees of their own."""
    graph = find_graph(problem, plan)
    if graph is None:
        return None
    sizes = [_trees_of_level(len(level[0].columns), plan, n_trees) for level in graph.levels]
    everyone = np.arange(len(problem.y))
    grow = partial(grow_graph, problem, graph, plan.boosting)
    if problem.max_bytes is not None:
        sizes = trees_within_bytes(problem.max_bytes, sizes, lambda cut: grow(cut, everyone).n_bytes)

    def without(fold: Ints) -> tuple[Floats, Ints, Floats]:
        grown = grow(sizes, np.setdiff1d(everyone, fold, assume_unique=True))
        return *grown.walk(problem.table.take(fold)), grown.mean_margin

    raw = np.empty((len(everyone), len(graph.levels), problem.task.n_scores))
    node = np.empty((len(everyone), len(graph.levels)), dtype=np.intp)
    mean_margin = np.zeros(len(graph.levels))
    with ThreadPoolExecutor(problem.n_threads) as pool:
        whole = pool.submit(grow, sizes, everyone)
        for number, (fold, (scores, nodes, of_fold)) in enumerate(
            zip(problem.folds, pool.map(without, problem.folds), strict=True)
        ):
            raw[fold], node[fold], mean_margin = scores, nodes, mean_margin + of_fold
            problem.progress("growing a graph", number + 1, len(problem.folds) + 1)
        trees = whole.result().to_serve()
        problem.progress("growing a graph", len(problem.folds) + 1, len(problem.folds) + 1)
    sets = [[one.columns for one in level] for level in trees.levels]
    n_tied = n_tied_stages(problem, [level[0] for level in sets if len(level) == 1][:1])
    served = trees.walk(problem.table)[0][:, :n_tied]
    ratio = overconfidence_ratio(trees.mean_margin, mean_margin / len(problem.folds))
    judged = evaluate_stages(
        problem, raw, served, ratio, problem.costs_by_node(sets, node), RowNodes(sets, node)
    )
    return trees, judged


def supports_branching(problem: CascadeProblem) -> bool:
    """Whether rows may buy in different orders: not for rankings, nor with few rows or purchases."""
    is_alone = problem.task.query_of(problem.y) is None
    n_purchases = int((problem.price_list.prices > 0).sum())
    return is_alone and n_purchases > 2 and len(problem.y) >= MIN_ROWS


def _trees_of_level(n_columns: int, plan: Plan, n_trees: Sequence[int]) -> int:
    """Trees of the stage of the line that holds about as many columns."""
    distance = [abs(len(columns) - n_columns) for columns in plan.sets]
    return n_trees[int(np.argmin(distance))]
