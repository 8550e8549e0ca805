"""
Which of ten models should name each forest?
============================================

Ten classifiers of scikit-learn, from naive Bayes to a thousand trees, name the cover type of patches of forest. What
one answer of each costs is the time it takes, measured here in microseconds: they differ by a factor of hundreds. A
``ModelRouter`` learns from a log of their answers which one to ask first, when a second opinion is worth its time, and
whose answer to take.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from thrifty import ModelRouter

classifiers = {
    "naive Bayes": GaussianNB(var_smoothing=1e-3),
    "shallow tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "discriminant": LinearDiscriminantAnalysis(),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(3)),
    "support vectors": make_pipeline(StandardScaler(), SVC(C=30)),
    "10 trees": ExtraTreesClassifier(10, random_state=0),
    "100 trees": ExtraTreesClassifier(100, random_state=0),
    "1,000 trees": ExtraTreesClassifier(1000, max_features=0.3, random_state=0),
}

# %%
# The file beside this script (:download:`covertype.csv.gz <../../examples/covertype.csv.gz>`) has 6,000 rows drawn at
# random from the 581,012 of Covertype (J. Blackard, 1998, UCI Machine Learning Repository,
# `doi 10.24432/C50K5N <https://doi.org/10.24432/C50K5N>`_, `CC BY 4.0 <https://creativecommons.org/licenses/by/4.0/>`_);
# :download:`covertype.txt <../../examples/covertype.txt>` says what was changed. scikit-learn's ``fetch_covtype``
# downloads all of them. Run the script in its folder.
#
# A third of the rows teaches the models, a third is the log, and a third is new. An answer is timed row by row, as
# where rows come one at a time; the median of a few rows is what a model costs.

rows = pd.read_csv("covertype.csv.gz")
y = rows.pop("cover").to_numpy()
X = pd.get_dummies(rows, columns=["wilderness", "soil"], dtype=float).to_numpy()
X_fit, y_fit, X, y = X[:2000], y[:2000], X[2000:], y[2000:]
answers, prices = np.empty((len(X), len(classifiers)), dtype=int), {}
for place, (name, classifier) in enumerate(classifiers.items()):
    classifier.fit(X_fit, y_fit)
    answers[:, place] = classifier.predict(X)
    times = []
    for row in X[:9]:
        began = time.perf_counter()
        classifier.predict(row[None])
        times.append(1e6 * (time.perf_counter() - began))
    prices[name] = float(np.median(times))
quality = answers == y[:, None]
log, new = slice(0, 2000), slice(2000, None)

# %%
# The router sees the terrain, which is free, and buys answers.

router = ModelRouter(prices).fit(X[log], quality[log], answers=answers[log])
print(router.explain())

budgets = np.geomspace(1.02 * router.frontier_.cost[0], max(prices.values()), 10)
found = [router.at(budget=budget).replay(X[new], quality[new], answers=answers[new]) for budget in budgets]

# %%
# Models alone are crosses; the router at ten budgets is the line. All numbers are those of new rows.

figure, ax = plt.subplots(figsize=(7, 4.5))
ax.plot([one.cost.mean() for one in found], [one.quality.mean() for one in found], "o-", label="ModelRouter")
for place, (name, price) in enumerate(prices.items()):
    ax.plot(price, quality[new, place].mean(), "x", color="grey")
    ax.annotate(f" {name}", (price, quality[new, place].mean()), fontsize=8, color="grey")
ax.set(xscale="log", xlabel="mean microseconds a row", ylabel="accuracy on new rows")
ax.margins(x=0.12)
ax.legend()
plt.show()

# %%
# With half a millisecond to spend, the router is more accurate than any model alone that is as cheap. The lead ends
# before a hundred trees; from there on, differences are about the standard error of an accuracy, which is one point on
# 2,000 rows.
#
# One row, step by step:

session = router.at(budget=budgets[6]).start(X[-1])
while session.next_purchase is not None:
    session.give(answers[-1, list(prices).index(session.next_purchase.name)])
print(session.explain())
