"""Scoring with trees: thrifty's ensemble against LightGBM, the same number and size of trees on the same columns.

    python benchmarks/predict.py [--trees 200]

Both sides use one thread and trees of depth 4 boosted on the same data, 100,000 rows of float64 scored in one call.
"""

import argparse
import time

import lightgbm as lgb
import numpy as np

from thrifty.engine.trees import bin_columns
from thrifty.learners.trees import EnsembleBuilder, TreeGrower


def make_pair(n_trees, n=20_000, p=30):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = (
        np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3:10].sum(axis=1) / 3 + rng.normal(size=n) > 0
    ).astype(float)
    grower, score, builder = TreeGrower(bin_columns(X)), np.zeros(n), EnsembleBuilder(p)
    for _ in range(n_trees):
        grower.add_tree(builder, score, 1 / (1 + np.exp(-score)) - y, learning_rate=0.3)
    params = {"objective": "binary", "num_leaves": 16, "max_depth": 4, "learning_rate": 0.1, "verbose": -1,
              "num_threads": 1, "min_data_in_leaf": 1}  # fmt: skip
    booster = lgb.train(params, lgb.Dataset(X, y), n_trees)
    return builder.ensemble(), booster


def best(run, repeats):
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trees", type=int, default=200)
    arguments = parser.parse_args()
    ensemble, booster = make_pair(arguments.trees)
    X = np.random.default_rng(1).normal(size=(100_000, ensemble.n_features))
    ensemble.predict(X[:10])
    ours = theirs = np.inf
    for _ in range(3):
        ours = min(ours, best(lambda: ensemble.predict(X), 1))
        theirs = min(theirs, best(lambda: booster.predict(X, raw_score=True, num_threads=1), 1))
    leaves = sum(tree["num_leaves"] for tree in booster.dump_model()["tree_info"])
    print(
        f"{ensemble.n_trees} trees, {len(ensemble.values)} leaves (LightGBM {leaves}), {ensemble.n_bytes:,} bytes"
    )
    speeds = f"ours {0.1 / ours:,.2f}, LightGBM {0.1 / theirs:,.2f} million rows a second"
    print(f"batch of 100,000 rows: {speeds}; ratio {theirs / ours:.2f}")
    row = X[0]
    single = best(lambda: [ensemble.predict(row[None]) for _ in range(1000)], 5) / 1000
    light = (
        best(lambda: [booster.predict(row[None], raw_score=True, num_threads=1) for _ in range(200)], 3) / 200
    )
    print(f"one row from Python: ours {1e6 * single:.1f}, LightGBM {1e6 * light:.1f} microseconds")


if __name__ == "__main__":
    main()
