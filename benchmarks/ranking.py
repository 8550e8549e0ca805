"""Ranking under a budget against LightGBM's lambdarank on the first columns of its own importance, at equal cost.

    python benchmarks/ranking.py [mq2008|mslr] [pointwise|pairwise|listwise]

Every column costs 1, and costs are means per document. lambdarank is fitted on all columns, which are ordered by the
gain of its splits, and again on the first k of them for each k. The ranker has lambdarank as its full model. Fitted on
the training and validation queries and measured on the test queries, on which nothing is chosen.
"""

import sys
import time
import warnings

import numpy as np
from lightgbm import LGBMRanker

from thrifty import BudgetedRanker, FullModelNotWorthItWarning, Queries, ndcg_at
from thrifty.datasets.documents import load_mq2008, load_mslr
from thrifty.ranking.curve import band_over_queries

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


def main(data="mq2008", loss="pointwise"):
    """Fit both, and print NDCG of the test queries at equal costs, with the paired difference."""
    rows = LOADERS[data]()
    # Both choose out of fold or not at all, so that the validation queries are there to learn from.
    X, y = np.vstack([rows.X_train, rows.X_val]), np.r_[rows.y_train, rows.y_val]
    qid, qid_new = np.r_[rows.qid_train, rows.qid_val], rows.qid_test
    X_new, y_new = rows.X_test, rows.y_test
    order = first_columns(X, y, Queries(qid))
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FullModelNotWorthItWarning)
        ranker = BudgetedRanker(lambdarank(), loss=loss, k=K, random_state=0).fit(X, y, qid=qid)
    took = time.perf_counter() - begun
    print(
        f"{data}, {loss}: {len(X):,} documents, {X.shape[1]} columns, {took:.0f} s, {ranker.n_stages_} stages"
    )
    print("cost   lambdarank   thrifty (spent)    difference, 95 % over queries")
    for cost in COSTS:
        columns = order[:cost]
        rival = lambdarank().fit(X[:, columns], y, group=Queries(qid).size).predict(X_new[:, columns])
        at = ranker.at(budget=max(cost, float(ranker.chain_.policy.cost[0])))
        theirs, ours = (ndcg_at(y_new, scores, qid_new, K).value for scores in (rival, at.predict(X_new)))
        spent, low_high = at.cost(X_new).mean(), band_over_queries(ours - theirs)
        print(
            f"{cost:4d}       {np.nanmean(theirs):.4f}   {np.nanmean(ours):.4f} ({spent:5.2f})   "
            f"{np.nanmean(ours - theirs):+.4f}  {low_high[0]:+.4f} to {low_high[1]:+.4f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
