"""
Prices of mistakes: what should be looked at where failures are rare?
=====================================================================

Three machines in a hundred fail within a week. A model that always answers "well" is right on 97 % of them and finds
no failure. A missed failure costs 200, a needless repair 10, and looking at a machine costs too. What should be
looked at?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from thrifty import BudgetedClassifier, StageOptions

X, y = make_classification(
    6000, 8, n_informative=4, n_redundant=2, weights=[0.97], class_sep=1.2, flip_y=0.0, random_state=0
)
y = np.where(y == 1, "fails", "well")
X, X_test, y, y_test = train_test_split(X, y, test_size=3000, stratify=y, random_state=0)
costs = np.array([0.5, 0.5, 1, 1, 2, 2, 4, 4])

# %%
# ``loss`` takes the price of every mistake: a line for each true class, a column for each answer, in sorted order. Rows
# are then answered with the class of least expected cost, and without a budget the fit takes the operating point at
# which looking and mistakes cost least together.

mistakes = np.array([[0, 200], [10, 0]])  # "fails", "well"
forest = RandomForestClassifier(200, min_samples_leaf=3, random_state=0)
settings = {"feature_costs": costs, "stages": StageOptions(sizes=[(40, 3)]), "cv": 3, "random_state": 0}
priced = BudgetedClassifier(forest, loss=mistakes, **settings).fit(X, y)
plain = BudgetedClassifier(forest, **settings).fit(X, y)


def bill(model):
    """Mean cost of looking and of mistakes on the test rows, and the share of failures that are found."""
    answer = model.predict(X_test)
    wrong = mistakes[(y_test == "well").astype(int), (answer == "well").astype(int)]
    return model.cost(X_test).mean(), wrong.mean(), np.mean(answer[y_test == "fails"] == "fails")


# ``min_recall`` asks for a share of the failures to be found, as estimated on held-out rows of the fit.
full = forest.fit(X, y)
answer = full.predict(X_test)
wrong = mistakes[(y_test == "well").astype(int), (answer == "well").astype(int)]
bills = {
    "always 'well'": (0.0, 200 * np.mean(y_test == "fails"), 0.0),
    "full model": (costs.sum(), wrong.mean(), np.mean(answer[y_test == "fails"] == "fails")),
    "most right answers": bill(plain),
    "least total cost": bill(priced),
    "a floor of 80 % found": bill(priced.at(min_recall={"fails": 0.8})),
}
for name, (looking, lost, recall) in bills.items():
    print(f"{name:23} {looking:6.2f} + {lost:5.2f} = {looking + lost:6.2f}, {recall:4.0%} of failures found")

# %%

looking, lost, recall = (np.array(part) for part in zip(*bills.values(), strict=True))
fig, ax = plt.subplots(figsize=(5.6, 3.6))
ax.barh(list(bills), looking, label="looking")
ax.barh(list(bills), lost, left=looking, label="mistakes")
for place, total in enumerate(looking + lost):
    ax.text(total + 0.2, place, f"{recall[place]:.0%} found", va="center")
ax.set(xlabel="mean cost for each machine", xlim=(0, (looking + lost).max() * 1.3))
ax.invert_yaxis()
ax.legend(loc="lower right")
fig.tight_layout()
