"""
Ranking: which documents need the expensive features?
=====================================================

A search engine ranks ten documents for each query. Whether words match is known at once; reading the whole document and
asking a language model cost time. A document that is hopeless needs neither. What counts is the order of the first
five. For which documents is more bought?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from thrifty import BudgetedRanker, StageOptions

rng = np.random.default_rng(0)
n_queries, n_documents = 300, 10
qid = np.repeat(np.arange(n_queries), n_documents)
meaning = rng.normal(size=len(qid))
# Noise and price of each feature.
names = ["words of the title", "clicks", "words of the text", "language model"]
noise, costs = [1.2, 1.5, 0.7, 0.3], [1.0, 1.0, 4.0, 20.0]
X = np.column_stack([meaning + rng.normal(0, scale, len(qid)) for scale in noise])
grade = np.digitize(meaning, [0.3, 1.0, 1.7])

# %%
# Documents of one query are consecutive, and ``qid`` names the query. Half of the queries are for training.

half = n_queries // 2 * n_documents
full = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=8, random_state=0)
ranker = BudgetedRanker(
    full,
    metric="ndcg@5",
    feature_costs=costs,
    stages=StageOptions(sizes=[(30, 3)]),
    cv=3,
    random_state=0,
)
ranker.fit(X[:half], grade[:half], qid=qid[:half])
X_test, y_test, q_test = X[half:], grade[half:], qid[half:]

# %%
# The score is NDCG in the first five places: 1 is the perfect order.

budgets = [2, 4, 6, 10, 15, 26]
spent, ndcg = [], []
for budget in budgets:
    there = ranker.at(budget=budget)
    spent.append(there.cost(X_test).mean())
    ndcg.append(there.score(X_test, y_test, qid=q_test))
    print(f"budget {budget:2}: NDCG@5 {ndcg[-1]:.3f} at {spent[-1]:.2f} for each document")

# %%
# Which documents are read further, by how relevant they turn out to be?

there = ranker.at(budget=6)
cost = there.cost(X_test)
fig, left = plt.subplots(figsize=(5.6, 3.6))
left.plot(spent, ndcg, marker="o")
left.set(xlabel="mean cost for each document", ylabel="NDCG@5 on test queries", title="What a budget buys")
fig.tight_layout()

fig, right = plt.subplots(figsize=(5.6, 3.6))
right.bar(range(4), [cost[y_test == grade].mean() for grade in range(4)])
right.axhline(cost.mean(), color="black", linestyle="--", label="mean of all documents")
right.set(xlabel="grade of relevance", ylabel="mean cost at a budget of 6", xticks=range(4))
right.legend()
fig.tight_layout()
