"""
Prices: when is a blood test worth it?
======================================

Age, weight and family history are cheap to ask, and predict diabetes in part. A glucose test costs 17.61 and an
insulin test 22.78, and the second of the two is cheaper by 2.10, because blood is drawn once. These are the prices of a
health plan in Ontario that Turney (1995, Journal of Artificial Intelligence Research 2) made a benchmark of. The
patients of this page are generated.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from thrifty import BudgetedClassifier, Prices, StageOptions


def patients(n_rows, rng):
    """Generate patients: glucose predicts best, insulin follows it, age and weight predict in part."""
    age = rng.gamma(3.0, 5.0, n_rows) + 21
    bmi = rng.normal(32, 7, n_rows)
    family = rng.gamma(2.0, 0.25, n_rows)
    glucose = 85 + 0.5 * age + 0.6 * bmi + rng.normal(0, 25, n_rows)
    insulin = np.maximum(0.0, 1.6 * (glucose - 70) + rng.normal(0, 60, n_rows))
    risk = 0.07 * (glucose - 123) + 0.1 * (bmi - 32) + 1.5 * (family - 0.5) + 0.03 * (age - 36) - 0.8
    table = pd.DataFrame({"age": age, "bmi": bmi, "family": family, "glucose": glucose, "insulin": insulin})
    return table, np.where(rng.random(n_rows) < 1 / (1 + np.exp(-risk)), "sick", "well")


X, y = patients(3000, np.random.default_rng(0))
X, X_test, y, y_test = train_test_split(X, y, test_size=1500, random_state=0)

# %%
# ``Prices`` has a default price for columns that are not named, and a discount for the second test.

prices = Prices(
    {"glucose": 17.61, "insulin": 22.78},
    default=1.0,
    discounts={"blood is drawn once": (["glucose", "insulin"], 2.10)},
)
forest = RandomForestClassifier(200, min_samples_leaf=5, random_state=0)
clf = BudgetedClassifier(
    forest, prices=prices, stages=StageOptions(sizes=[(40, 3)]), cv=3, random_state=0
).fit(X, y)
full = forest.fit(X, y)
everything = 3 * 1.0 + 17.61 + 22.78 - 2.10
print(f"all tests for everybody: accuracy {full.score(X_test, y_test):.3f} for {everything:.2f}")

# %%
# Who is sent to the laboratory? Below a budget of 20, only patients whose cheap answers leave doubt.

budgets = [3, 6, 10, 15, 20, 25]
found = {budget: clf.at(budget=budget) for budget in budgets}
glucose_at = list(X.columns).index("glucose")
tested = [there.buy(X_test.to_dict("series")).bought[:, glucose_at].mean() for there in found.values()]
spent = [there.cost(X_test).mean() for there in found.values()]
score = [there.score(X_test, y_test) for there in found.values()]
for budget, share, cost, right in zip(budgets, tested, spent, score, strict=True):
    print(
        f"budget {budget:2}: {share:4.0%} of patients have their glucose taken; {right:.3f} right for {cost:.2f}"
    )

# %%

fig, left = plt.subplots(figsize=(5.6, 3.6))
left.plot(spent, score, marker="o", label="cascade")
left.scatter([everything], [full.score(X_test, y_test)], color="black", marker="s", label="all tests")
left.set(xlabel="mean cost for each patient", ylabel="accuracy on test patients")
left.legend(loc="lower right")
fig.tight_layout()

fig, right = plt.subplots(figsize=(5.6, 3.6))
right.bar([f"{budget}" for budget in budgets], tested)
right.set(xlabel="budget", ylabel="share whose glucose is taken", ylim=(0, 1))
fig.tight_layout()
