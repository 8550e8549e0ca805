"""
Five language models, one bill: what does asking twice save?
============================================================

A log of questions that five language models answered: whether each answer was right, what it cost and what it said.
The log is made up, in the shape of real ones: prices differ by a hundred, dear models are better, and two cheap models
that agree are mostly right. A ``ModelRouter`` learns from it and is compared with the models alone.
"""

import matplotlib.pyplot as plt
import numpy as np

from thrifty import ModelRouter

rng = np.random.default_rng(0)
prices = {
    "nano": (0.05, 0.2), "flash": (0.1, 0.4), "mini": (0.15, 0.6), "medium": (1.0, 4.0), "large": (3.0, 15.0),
}  # dollars per million tokens in and out  # fmt: skip
skill = np.array([0.2, 0.6, 0.9, 1.7, 2.4])

# %%
# Words of a question tell its subject, which some models are better at, and how hard it is.

subjects = {
    "algebra": ["equation", "polynomial", "matrix", "root", "solve", "integer"],
    "law": ["contract", "court", "statute", "liability", "clause", "tenant"],
    "medicine": ["patient", "dose", "symptom", "fever", "diagnosis", "artery"],
    "history": ["empire", "treaty", "king", "revolution", "century", "war"],
}
n_rows = 1200
subject = rng.integers(0, len(subjects), n_rows)
hard = rng.normal(size=n_rows)
texts = []
for row in range(n_rows):
    words = list(rng.choice(list(subjects.values())[subject[row]], 6))
    words += ["why", "prove", "exactly"] if hard[row] > 0.5 else ["what", "name"]
    texts.append(f"Question {row}: {' '.join(words)}?")
edge = rng.normal(scale=0.5, size=(len(subjects), len(prices)))[subject]
right = rng.random((n_rows, len(prices))) < 1 / (1 + np.exp(-(skill + edge - 1.2 * hard[:, None])))
wrong = rng.integers(1, 4, right.shape)
answers = np.array(["A", "B", "C", "D"])[np.where(right, 0, wrong)]
length = rng.lognormal(5.0, 0.5, right.shape)
cost = (np.array(list(prices.values()))[:, 0] * 400 + np.array(list(prices.values()))[:, 1] * length) / 1e6

# %%
# Half of the log is learned from, and the policy is replayed on the other half.

old, new = slice(0, 700), slice(700, None)
router = ModelRouter(prices).fit(texts[old], right[old].astype(float), cost[old], answers[old])
budgets = np.geomspace(1.02 * router.frontier_.cost[0], cost[old, -1].mean(), 10)
found = [router.at(budget=one).replay(texts[new], right[new], cost[new], answers[new]) for one in budgets]

figure, ax = plt.subplots(figsize=(7, 4.5))
ax.plot(
    [1e3 * one.cost.mean() for one in found], [one.quality.mean() for one in found], "o-", label="ModelRouter"
)
for place, name in enumerate(prices):
    at = 1e3 * cost[new, place].mean(), right[new, place].mean()
    ax.plot(*at, "x", color="grey")
    ax.annotate(f" {name}", at, fontsize=9, color="grey")
ax.set(
    xscale="log", xlabel="dollars for a thousand questions", ylabel="share of right answers on new questions"
)
ax.legend()
plt.show()

# %%
# How many models a question was asked, at each budget, and the largest bill to expect of ten thousand questions:

for budget, one in zip(budgets, found, strict=True):
    n_asked = (one.asked != "").sum(axis=1).mean()
    bill = router.at(budget=budget).bill(10_000)
    print(
        f"{1e3 * budget:.3f} dollars a thousand: {n_asked:.2f} models asked, bill at most {bill:.2f} dollars"
    )
