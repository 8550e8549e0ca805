"""
Buying from a database: which pieces of a credit file are worth it?
===================================================================

A lender asks who will pay back. The application is at hand; the register, the employer and the credit bureau charge for
every answer. The applicants are in a database, which here plays all three. The lender trains on files that were bought
whole, and then buys for a new applicant only what the decision needs.
"""

import sqlite3
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from thrifty import BudgetedClassifier, SqlSource, StageOptions

rng = np.random.default_rng(0)
n_rows = 3000
stable, debt = rng.normal(size=n_rows), rng.normal(size=n_rows)
files = pd.DataFrame(
    {
        "amount": rng.gamma(2.0, 4.0, n_rows).round(1),
        "age": (35 + 8 * stable + rng.normal(0, 8, n_rows)).clip(18, 90).round(),
        "years at address": (6 + 3 * stable + rng.normal(0, 3, n_rows)).clip(0).round(),
        "salary": (40 + 9 * stable - 5 * debt + rng.normal(0, 8, n_rows)).round(1),
        "score of the bureau": (600 + 40 * stable - 90 * debt + rng.normal(0, 30, n_rows)).round(),
    },
    index=[f"A{number:04}" for number in range(n_rows)],
)
risk = 1.8 * debt - 1.2 * stable + 0.12 * (files["amount"] - 8) - 1.0 + rng.logistic(0, 0.5, n_rows)
pays_back = pd.Series(np.where(risk > 0, "no", "yes"), files.index)
costs = {"amount": 0, "age": 0, "years at address": 1, "salary": 4, "score of the bureau": 10}

# %%
# Files of 2,000 old applicants teach the cascade. What is at hand costs 0.

old, new = files[:2000], files[2000:]
full = make_pipeline(StandardScaler(), LogisticRegression())
clf = BudgetedClassifier(
    full, feature_costs=costs, stages=StageOptions(sizes=[(40, 3)]), cv=3, random_state=0
)
clf = clf.fit(old, pays_back[old.index]).at(budget=4)

# %%
# The new ones are in a database. ``SqlSource`` asks it once for each stage, for the applicants that get there and the
# columns they lack; the statements are written down here to show that.

path = Path(tempfile.mkdtemp()) / "credit.db"
asked = []
with sqlite3.connect(path) as connection:
    new.to_sql("files", connection, index_label="applicant")


def connect():
    connection = sqlite3.connect(path)
    connection.set_trace_callback(asked.append)
    return connection


source = SqlSource(connect, "files", "applicant", new.index.tolist())
receipt = clf.buy(source, row_key=new.index)  # rows are known by the same keys in a table
for statement in asked:
    if "WHERE 1 = 0" not in statement:
        columns, keys = statement.split(" FROM ")[0], statement.count("'A")
        print(f"{columns} ... for {keys} applicants")

# %%
# The receipt says what was answered, what was bought for whom and what it cost.

accuracy = (receipt.answer == pays_back[new.index]).mean()
whole = sum(costs.values())
print(f"{accuracy:.3f} right for {receipt.cost.mean():.2f} each, where a whole file costs {whole}")
print(f"the same answers as from a table: {bool((receipt.answer == clf.predict(new)).all())}")

# %%

share = receipt.bought.mean(axis=0)
spent = share * np.array(list(costs.values()))
fig, left = plt.subplots(figsize=(5.6, 3.6))
left.barh(list(costs), share)
left.set(xlabel="share of applicants for whom it is bought", xlim=(0, 1))
left.invert_yaxis()
fig.tight_layout()

fig, right = plt.subplots(figsize=(5.6, 3.6))
right.barh(list(costs), list(costs.values()), color="lightgrey", label="bought for everybody")
right.barh(list(costs), spent, label="bought where it matters")
right.set(xlabel="cost for each applicant")
right.legend()
right.invert_yaxis()
fig.tight_layout()
