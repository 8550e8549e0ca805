"""Pruning on a budget: rounds, seconds and gap of the decomposed solver, and of two rivals where they are feasible.

    python benchmarks/budget_prune.py [miniboone|forest] [--data DIR] [--no-flow] [--gammas 0.003 0.01]

The rivals are the linear program by HiGHS (problems of up to 100,000 arcs) and, unless left out, the minimum cut by
scipy.sparse.csgraph.maximum_flow, whose capacities are whole numbers below 2^30. Times are processor seconds of one
thread, which other processes disturb least.
"""

import argparse
import os
import time

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from reproduction.datasets import load_forest, load_miniboone
from reproduction.pruning.forest import flatten_forest, grow_forest
from reproduction.pruning.mirror_ascent import ascend
from reproduction.pruning.node_costs import PruningRows, closure_of
from reproduction.pruning.optimum import solve_linear_program
from thrifty import Prices
from thrifty.engine.prices.prices import check_price_list

WIDE = 2**30


def timed(function, *arguments, **settings):
    begin = time.process_time()
    answer = function(*arguments, **settings)
    return answer, time.process_time() - begin


def by_flow(closure, gamma):
    """Value of a minimum cut, in whole units; prices of one unit, where all are alike, are whole."""
    n, m = closure.n_splits, len(closure.price)
    gain, cost = closure.gain(gamma), gamma * closure.price
    scale = WIDE / np.maximum(gain, 0).sum()
    unit = np.median(cost)
    scale = max(1.0, np.floor(unit * scale)) / unit if m and unit > 0 else scale
    source, drain, child = n + m, n + m + 1, np.flatnonzero(closure.parent >= 0)
    begin = np.concatenate([np.full(n, source), np.arange(n), child, closure.tail, n + np.arange(m)])
    end = np.concatenate(
        [np.arange(n), np.full(n, drain), closure.parent[child], n + closure.need, np.full(m, drain)]
    )
    free = np.full(len(child) + closure.n_arcs, WIDE)
    width = np.concatenate([np.maximum(gain, 0) * scale, np.maximum(-gain, 0) * scale, free, cost * scale])
    width = np.minimum(np.round(width), WIDE).astype(np.int32)
    graph = csr_array((width, (begin.astype(np.int32), end.astype(np.int32))), shape=(drain + 1, drain + 1))
    graph.eliminate_zeros()
    value = maximum_flow(graph, source, drain).flow_value
    return closure.loss - np.maximum(gain, 0).sum() + value / scale


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=["miniboone", "forest"], nargs="?", default="miniboone")
    parser.add_argument("--data", default=os.environ.get("THRIFTY_DATA", "../shared/data"))
    parser.add_argument("--gammas", type=float, nargs="+", default=[3e-4, 3e-3, 1e-2, 2e-2])
    parser.add_argument("--error", choices=["vote", "probability"], default="vote")
    parser.add_argument("--no-flow", action="store_true")
    options = parser.parse_args()
    split = (load_miniboone if options.name == "miniboone" else load_forest)(options.data)
    X, y = split.X_train, split.y_train
    grown, seconds = timed(grow_forest, X, y, np.ones(len(y)), n_trees=40)
    forest = flatten_forest(grown.trees, X.shape[1])
    print(f"{options.name}: {len(y)} rows, {forest.n_splits} splits, grown in {seconds:.1f} s")
    prices = check_price_list(Prices(), X.shape[1])
    rows = PruningRows(X, y, np.ones(len(y)))
    small = PruningRows(X[:50], y[:50], np.ones(50))
    ascend(closure_of(forest, small, prices, options.error), 1.0, tol=0.0, max_iter=10)  # compiles
    closure, seconds = timed(closure_of, forest, rows, prices, options.error)
    print(
        f"problem: {closure.n_splits} splits, {len(closure.price)} purchases, {closure.n_arcs} arcs, {seconds:.1f} s"
    )
    for gamma in options.gammas:
        (found, alive), seconds = timed(ascend, closure, gamma, tol=1e-6, max_iter=1000)
        value = found.value
        print(
            f"gamma {gamma:g}: decomposed {seconds:.2f} s, {found.n_iter} rounds, gap {found.residual:.1e}; "
            f"objective {value.objective:.6f}, loss {value.loss:.4f}, spend {value.spend:.2f}, "
            f"{int(value.kept.sum())} splits kept, {int(alive.sum())} in question",
            flush=True,
        )
        narrow = closure.narrowed(gamma)
        if narrow.n_arcs <= 100_000:
            exact, seconds = timed(solve_linear_program, narrow, gamma)
            print(f"   HiGHS {seconds:.2f} s on {narrow.n_arcs} arcs, objective {exact.value.objective:.6f}")
        if not options.no_flow:
            cut, seconds = timed(by_flow, closure, gamma)
            print(f"   maximum_flow {seconds:.2f} s, objective {cut:.6f}", flush=True)


if __name__ == "__main__":
    main()
