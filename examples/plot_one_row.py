"""
Buying for one row: what was bought, and why did it stop?
=========================================================

A customer asks why a case was decided on two measurements. ``explain`` lists what was bought for a row and why it
stopped; a session buys for one row, and names at every step the next purchase and the reason.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty import BudgetedClassifier, StageOptions

X, y = load_wine(return_X_y=True, as_frame=True)
y = y.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
X, X_test, y, y_test = train_test_split(X, y, test_size=80, stratify=y, random_state=0)
full = make_pipeline(StandardScaler(), SVC(C=3))
clf = BudgetedClassifier(full, budget=3, stages=StageOptions(sizes=[(20, 3)]), cv=3, random_state=0).fit(X, y)
print(f"accuracy {clf.score(X_test, y_test):.3f} at {clf.cost(X_test).mean():.2f} of 13 measurements")

# %%
# The test wine that cost most.

row = int(np.argmax(clf.cost(X_test)))
explained = clf.explain(X_test.iloc[[row]])[0]
print(explained)

# %%
# The same wine in a session, which receives one measurement after the other.

session = clf.start(key=row)
while session.next_purchase is not None:
    wanted = session.next_purchase
    print(f"{', '.join(wanted.columns)} for {wanted.price:g}: {wanted.why}")
    session.give({name: X_test[name].iloc[row] for name in wanted.columns})
print(f"answer: {session.answer}")

# %%
# How sure each stage was of its answer, for this wine and for the other wines of the test. Most lines are short: these
# wines stopped at once.

fig, ax = plt.subplots(figsize=(6.4, 4))
for other in clf.explain(X_test):
    paid = [stage.cost for stage in other.stages]
    sure = [stage.probability for stage in other.stages]
    ax.plot(paid, sure, color="lightgrey", marker="o", markersize=3, linewidth=1)
paid = [stage.cost for stage in explained.stages]
sure = [stage.probability for stage in explained.stages]
ax.plot(paid, sure, color="tab:red", marker="o", linewidth=2, label="the wine that cost most")
for stage in explained.stages:
    ax.annotate(
        stage.answer, (stage.cost, stage.probability), (5, -12), textcoords="offset points", fontsize=9
    )
ax.set_xticks(paid, [", ".join(stage.bought).replace("_", "\n") for stage in explained.stages], fontsize=9)
ax.set(
    xlabel="bought, one after the other, for 1 each", ylabel="probability of the answer", ylim=(0.35, 1.02)
)
ax.legend(loc="lower right")
fig.tight_layout()
