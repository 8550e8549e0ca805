"""
Incomplete tables: what do the tests of last year say about this year's patients?
=================================================================================

The records of a clinic hold a test for the patients who seemed to need it. A model that takes a blank for an answer
learns the physicians' suspicion, and loses it as soon as the model itself decides who is tested. This page learns from
such records, serves three months, and learns again from the receipts of what was bought. Patients are generated.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

from thrifty import BudgetedClassifier, Receipts, StageOptions

TESTS = {"age": 0, "pressure": 1, "ecg": 2, "blood": 2, "scan": 5}
BUDGET = 3.0
rng = np.random.default_rng(0)
warnings.simplefilter("ignore")  # blanks that tell the target, and a full model that is hardly asked


def patients(n_rows):
    """Generate patients, of whom half are ill."""
    ill = rng.integers(0, 2, n_rows)
    values = rng.normal(size=(n_rows, 5)) + ill[:, None] * [0.3, 0.6, 0.9, 0.9, 1.6]
    return pd.DataFrame(values.round(3), columns=list(TESTS)), ill


X, y = patients(2000)
ordered = pd.DataFrame(rng.random(X.shape) < np.where(y, 0.85, 0.35)[:, None], columns=X.columns)
ordered["age"] = True
records = X.where(ordered)
new, truth = patients(8000)

# %%
# The same fit three times: on complete rows, which a real clinic does not have; on the records, believing their blanks;
# and on the records with the mask of what was bought.

tree = DecisionTreeClassifier(max_depth=6, random_state=0)
options = StageOptions(sizes=[(30, 3)], structure="line")
clf = BudgetedClassifier(tree, feature_costs=TESTS, stages=options, cv=3, random_state=0)
systems = {
    "complete rows": clf.fit(X, y).at(budget=BUDGET),
    "blanks believed": clf.fit(records, y).at(budget=BUDGET),
    "bought='known'": clf.fit(records, y, bought="known").at(budget=BUDGET),
}
for name, system in systems.items():
    print(f"{name:16s} promised {system.expected_score_:.3f}, real {system.score(new, truth):.3f}")

# %%
# Three months. One patient in ten, drawn by key, is tested further than needed, within the budget, so that every test
# has a known probability. Each month's system learns from the receipts of all months before, and from nothing else.

system, receipts, outcomes = systems["bought='known'"], [], []
for month in range(1, 4):
    seen, ill = patients(1500)
    exploring = system.at(budget=BUDGET, explore=0.1)
    receipts.append(exploring.buy(seen.to_dict("series"), n_rows=len(seen)))
    outcomes.append(ill)
    own = Receipts.of(*receipts)
    system = clf.fit(own.X, np.concatenate(outcomes), bought=own.bought, propensity=own.propensity).at(
        budget=BUDGET
    )
    systems[f"receipts of {month}"] = system
    print(f"month {month}: {own}; promised {system.expected_score_:.3f}, real {system.score(new, truth):.3f}")

# %%
# A promise is worth what it keeps. Few patients are tested further than needed, so that promises from receipts are
# vague: completed cells and their correction rest on the same few, and the second promise misses its interval of 95 %.

figure, ax = plt.subplots(layout="constrained")
place = np.arange(len(systems))
promised = np.array([system.expected_score_ for system in systems.values()])
ends = np.array([system.expected_score_interval_ for system in systems.values()])
ax.bar(place - 0.2, promised, 0.4, yerr=np.abs(ends.T - promised), capsize=3, label="promised")
ax.bar(place + 0.2, [system.score(new, truth) for system in systems.values()], 0.4, label="real")
ax.set_xticks(place, list(systems), rotation=20, ha="right")
ax.set_ylim(0.5, 1.0)
ax.set_ylabel(f"accuracy at a budget of {BUDGET:g}")
ax.legend()
plt.show()
