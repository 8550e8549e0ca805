"""
Regression: for which patients is blood drawn?
==============================================

442 patients with diabetes, ten measurements each: age, sex, weight and blood pressure at hand, and six numbers from one
blood sample. The target is the progression of the disease after a year. For which patients does the
blood sample help?
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from thrifty import BudgetedRegressor, Prices, StageOptions

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X, X_test, y, y_test = train_test_split(X, y, test_size=150, random_state=0)
at_hand = ["age", "sex", "bmi", "bp"]
blood = {name: "blood sample" for name in X.columns if name not in at_hand}
costs = {name: 0.0 if name in at_hand else 10.0 for name in X.columns}

# %%
# The six numbers of the blood sample are one purchase, for 10. Every stage of a
# regressor learns a gate: how much a row would gain from more features.

groups = {name: blood.get(name, name) for name in X.columns}
reg = BudgetedRegressor(
    Ridge(0.01),
    prices=Prices(costs, groups=groups),
    stages=StageOptions(sizes=[(40, 3)]),
    cv=4,
    random_state=0,
).fit(X, y)

# %%
# Each budget is a share of patients whose blood is drawn.

budgets = [0, 2, 4, 6, 8, 10]
spent, errors = [], []
for budget in budgets:
    there = reg.at(budget=budget)
    spent.append(there.cost(X_test).mean())
    errors.append(r2_score(y_test, there.predict(X_test)))
    print(f"budget {budget:2}: R2 {errors[-1]:.3f}, blood drawn for {spent[-1] / 10:.0%} of patients")

# %%
# R2 rises with the share of patients whose blood is drawn.

everybody = r2_score(y_test, Ridge(0.01).fit(X, y).predict(X_test))

fig, left = plt.subplots(figsize=(5.6, 3.6))
left.plot(spent, errors, marker="o", label="cascade")
left.axhline(everybody, color="black", linestyle="--", label="full model, for 10")
left.set(xlabel="mean cost for each patient", ylabel="R2 on test patients")
left.legend(loc="lower right")
fig.tight_layout()

fig, right = plt.subplots(figsize=(5.6, 3.6))
there = reg.at(budget=4)
drawn = there.cost(X_test) > 0
for label, rows in {"at hand": ~drawn, "blood drawn": drawn}.items():
    right.scatter(there.predict(X_test)[rows], y_test[rows], s=12, label=label)
right.axline((150, 150), slope=1, color="black", linewidth=0.8)
right.set(xlabel="predicted at a budget of 4", ylabel="true progression")
right.legend()
fig.tight_layout()
