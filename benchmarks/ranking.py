"""Ranking under a budget against LightGBM's lambdarank on the first columns of its own importance, at equal cost.

    python benchmarks/ranking.py [mq2008|mslr] [pointwise|pairwise|listwise]

Every column costs 1, and costs are means per document. lambdarank is fitted on all columns, which are ordered by the
gain of its splits, and again on the first k of them for each k. The ranker has lambdarank as its full model. Fitted on
the training and validation queries and measured on the test queries, on which nothing is chosen.

    python benchmarks/ranking.py [mq2008|mslr] first

The first purchase alone: lambdarank and a first stage (small trees, each kind of gradients) on the same column, the
first of lambdarank's; fitted on the queries above, fitted on the test queries and measured on the others, and out of
fold on the queries above.
"""

import sys
import time
import warnings

import numpy as np
from lightgbm import LGBMRanker

from reproduction.datasets.documents import load_mq2008, load_mslr
from reproduction.ranking_curve import band_over_queries
from thrifty import BudgetedRanker
from thrifty.engine.tasks.ranking import GRADIENTS, Queries, ndcg_at, ranking_of, with_queries
from thrifty.engine.trees import bin_columns
from thrifty.errors import FullModelNotWorthItWarning
from thrifty.learners.cascade.problem import CAPACITIES
from thrifty.learners.cascade.stages import grow_stages

COSTS = (1, 2, 3, 5, 8, 12, 20, 30)
LOADERS = {"mq2008": load_mq2008, "mslr": load_mslr}
K = 10


def lambdarank():
    """LightGBM's ranker, with few leaves, as so few queries allow."""
    return LGBMRanker(
        n_estimators=150, num_leaves=15, learning_rate=0.05, n_jobs=1, random_state=0, verbose=-1
    )


def first_columns(X, y, queries):
    """Columns by the gain of the splits of a lambdarank that reads all of them, the best first."""
    whole = lambdarank().set_params(importance_type="gain").fit(X, y, group=queries.size)
    return np.argsort(-whole.feature_importances_, kind="stable")


def first_stage(X, y, qid, X_new, gradients):
    """Scores of new documents by a first stage that holds the columns given."""
    task = ranking_of(with_queries(y, qid), gradients, f"ndcg@{K}", 0.01)
    code, weight = task.encode("y", with_queries(y, qid), len(y)), np.ones(len(y))
    columns = [np.arange(X.shape[1])]
    return (
        grow_stages(task, bin_columns(X, weight), code, weight, columns, CAPACITIES[0])
        .parts[0]
        .predict(X_new)[:, 0]
    )


def print_first(data):
    """Print NDCG of both on the first column of lambdarank, whichever queries are learned from."""
    rows = LOADERS[data]()
    X = np.vstack([rows.X_train, rows.X_val, rows.X_test])
    y, qid = (
        np.concatenate([getattr(rows, f"{name}_{part}") for part in ("train", "val", "test")])
        for name in ("y", "qid")
    )
    is_test = np.arange(len(y)) >= len(y) - len(rows.y_test)
    fold = np.searchsorted(np.unique(qid[~is_test]), qid) % 4
    quarters = [(~is_test & (fold != one), ~is_test & (fold == one)) for one in range(4)]
    kinds = {
        "as split": [(~is_test, is_test)],
        "the other way": [(is_test, ~is_test)],
        "out of fold": quarters,
    }
    for name, splits in kinds.items():
        learned = np.logical_or.reduce([known for known, _ in splits])
        column = first_columns(X[learned], y[learned], Queries(qid[learned]))[:1]
        scores = {one: np.zeros(len(y)) for one in ("lambdarank", *GRADIENTS)}
        for known, new in splits:
            lesson, X_new = (X[known][:, column], y[known], qid[known]), X[new][:, column]
            rival = lambdarank().fit(*lesson[:2], group=Queries(lesson[2]).size)
            scores["lambdarank"][new] = rival.predict(X_new)
            for gradients in GRADIENTS:
                scores[gradients][new] = first_stage(*lesson, X_new, gradients)
        new = np.logical_or.reduce([one for _, one in splits])
        values = {who: ndcg_at(y[new], one[new], qid[new], K) for who, one in scores.items()}
        print(f"{data}, {name}, column {column[0]}: lambdarank {np.nanmean(values['lambdarank']):.4f}")
        for gradients in GRADIENTS:
            lead = values[gradients] - values["lambdarank"]
            low, high = band_over_queries(lead)
            ours = f"{gradients:>12} {np.nanmean(values[gradients]):.4f}"
            print(f"{ours}   {np.nanmean(lead):+.4f}  {low:+.4f} to {high:+.4f}")


def main(data="mq2008", loss="pointwise"):
    """Fit both, and print NDCG of the test queries at equal costs, with the paired difference."""
    if loss == "first":
        print_first(data)
        return
    rows = LOADERS[data]()
    # Both choose out of fold or not at all, so that the validation queries are there to learn from.
    X, y = np.vstack([rows.X_train, rows.X_val]), np.r_[rows.y_train, rows.y_val]
    qid, qid_new = np.r_[rows.qid_train, rows.qid_val], rows.qid_test
    X_new, y_new = rows.X_test, rows.y_test
    order = first_columns(X, y, Queries(qid))
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FullModelNotWorthItWarning)
        ranker = BudgetedRanker(lambdarank(), loss=loss, metric=f"ndcg@{K}", random_state=0).fit(
            X, y, qid=qid
        )
    took = time.perf_counter() - begun
    print(
        f"{data}, {loss}: {len(X):,} documents, {X.shape[1]} columns, {took:.0f} s, {ranker.n_stages_} stages"
    )
    print("cost   lambdarank   thrifty (spent)    difference, 95 % over queries")
    for cost in COSTS:
        columns = order[:cost]
        rival = lambdarank().fit(X[:, columns], y, group=Queries(qid).size).predict(X_new[:, columns])
        at = ranker.at(budget=max(cost, float(ranker.chain_.policy.cost[0])))
        theirs, ours = (ndcg_at(y_new, scores, qid_new, K) for scores in (rival, at.predict(X_new)))
        spent, low_high = at.cost(X_new).mean(), band_over_queries(ours - theirs)
        print(
            f"{cost:4d}       {np.nanmean(theirs):.4f}   {np.nanmean(ours):.4f} ({spent:5.2f})   "
            f"{np.nanmean(ours - theirs):+.4f}  {low_high[0]:+.4f} to {low_high[1]:+.4f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
