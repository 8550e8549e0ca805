"""
Compare on my table: is it better than the penalties of LightGBM?
=================================================================

LightGBM can charge for features while it grows trees (``cegb_penalty_feature_coupled``): a column that no tree has used
yet must earn its price. It then buys the same columns for every row. A cascade buys for each row what that row needs.
Is that worth it on your table? Put yours in the place of this one.
"""

import warnings

import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from thrifty import BudgetedClassifier, Evidence, Frontier, StageOptions, evidence_of
from thrifty.errors import FullModelNotWorthItWarning

X, y = make_classification(
    6000, 20, n_informative=10, n_clusters_per_class=3, class_sep=1.5, flip_y=0.01, random_state=1
)
X = pd.DataFrame(X, columns=[f"x{number}" for number in range(20)])
costs = np.ones(20)
X, X_test, y, y_test = train_test_split(X, y, test_size=2500, random_state=0)
fit, choose = (
    np.arange(2500),
    np.arange(2500, 3500),
)  # rows that LightGBM learns from, and that its penalty is chosen on

# %%
# LightGBM, once for each of several penalties. Every fit is one point: every row pays for all columns that it uses.


def boosted(penalty):
    """LightGBM in which a new column costs ``penalty`` times its price, and the columns that it uses."""
    model = lightgbm.LGBMClassifier(
        n_estimators=100, num_leaves=15, verbose=-1, n_jobs=1, random_state=0,
        cegb_penalty_feature_coupled=(penalty * costs).tolist(),
    )  # fmt: skip
    model.fit(X.iloc[fit], y[fit])
    return model, np.flatnonzero(model.feature_importances_)


def judged(model, used, X, y):
    """One operating point: all rows pay the same, and none is sent on."""
    cost = np.full(len(y), costs[used].sum())
    return Evidence.of_point(cost, model.predict(X) == y, np.zeros(len(y), dtype=bool))


rivals = [boosted(penalty) for penalty in (0, 3, 10, 30, 60, 100, 200, 400)]
chosen = Frontier.from_evidence([judged(*rival, X.iloc[choose], y[choose]) for rival in rivals])
rival = chosen.on([judged(*rival, X_test, y_test) for rival in rivals])

# %%
# The cascade has LightGBM without penalties as its full model, and is fitted on all the rows that LightGBM had for
# fitting and choosing. The fit warns that its own last stage beats this full model, and does without it.

full = lightgbm.LGBMClassifier(n_estimators=100, num_leaves=15, verbose=-1, n_jobs=1, random_state=0)
clf = BudgetedClassifier(
    full, feature_costs=costs, stages=StageOptions(sizes=[(60, 4)]), cv=3, random_state=0
)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always", FullModelNotWorthItWarning)
    clf.fit(X, y)
print(*(warning.message for warning in said))
cascade = clf.frontier_.on([evidence_of(clf, X_test, y_test)])

# %%
# Both on the same test rows, with a paired interval of the difference.

budgets = [budget for budget in (4, 6, 8, 10) if budget >= rival.cost[0]]
difference = cascade.compare({"LightGBM": rival}, budgets, n_boot=300)["LightGBM"]
print(f"cascade minus LightGBM with penalties at budgets of {budgets}: {difference}")
fig, ax = plt.subplots(figsize=(5.6, 3.6))
cascade.plot(ax, label="cascade")
rival.plot(ax, label="LightGBM with penalties", marker="s", linestyle="--")
ax.set(xlabel="mean cost for each row", ylabel="accuracy on test rows", xlim=(0, 21))
ax.legend(loc="lower right")
fig.tight_layout()
