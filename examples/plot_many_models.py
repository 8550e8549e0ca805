"""
Which of ten models should answer each digit?
=============================================

Ten classifiers of scikit-learn, from naive Bayes to five hundred trees, and what one answer of each costs: the time it
takes, measured here in microseconds. A ``ModelRouter`` learns from their answers to half of the digits which one to ask
first, when a second opinion is worth its time, and whose answer to take.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from thrifty import ModelRouter

classifiers = {
    "naive Bayes": GaussianNB(),
    "black and white Bayes": BernoulliNB(binarize=8),
    "shallow tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "discriminant": LinearDiscriminantAnalysis(),
    "logistic": LogisticRegression(max_iter=2000, C=0.01),
    "neighbours": KNeighborsClassifier(3),
    "support vectors": SVC(C=3),
    "100 trees": RandomForestClassifier(100, random_state=0),
    "500 trees": ExtraTreesClassifier(500, random_state=0),
}

# %%
# A third of the rows teaches the models, a third is the log, and a third is new. An answer is timed row by row, as
# where rows come one at a time; the median of a few rows is what a model costs.

X, y = load_digits(return_X_y=True)
X_fit, X, y_fit, y = train_test_split(X, y, train_size=600, random_state=0)
answers, prices = np.empty((len(X), len(classifiers)), dtype=int), {}
for place, (name, classifier) in enumerate(classifiers.items()):
    classifier.fit(X_fit, y_fit)
    answers[:, place] = classifier.predict(X)
    times = []
    for row in X[:15]:
        began = time.perf_counter()
        classifier.predict(row[None])
        times.append(1e6 * (time.perf_counter() - began))
    prices[name] = float(np.median(times))
quality = answers == y[:, None]
log, new = slice(0, 600), slice(600, None)

# %%
# The router sees the pixels, which are free, and buys answers.

router = ModelRouter(prices).fit(X[log], quality[log], answers=answers[log])
print(router.explain())

budgets = np.geomspace(1.02 * router.frontier_.cost[0], max(prices.values()), 12)
found = [router.at(budget=budget).replay(X[new], quality[new], answers=answers[new]) for budget in budgets]

# %%
# Models alone are crosses; the router at twelve budgets is the line. All numbers are those of new rows.

figure, ax = plt.subplots(figsize=(7, 4.5))
ax.plot([one.cost.mean() for one in found], [one.quality.mean() for one in found], "o-", label="ModelRouter")
for place, (name, price) in enumerate(prices.items()):
    ax.plot(price, quality[new, place].mean(), "x", color="grey")
    ax.annotate(f" {name}", (price, quality[new, place].mean()), fontsize=8, color="grey")
ax.set(xscale="log", xlabel="mean microseconds a row", ylabel="accuracy on new rows")
ax.legend()
plt.show()

# %%
# One row, step by step:

session = router.at(budget=budgets[6]).start(X[-1])
while session.next_ask is not None:
    session.give(answers[-1, list(prices).index(session.next_ask)])
print(session.explain())
