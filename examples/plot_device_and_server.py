"""
Serving: how many calls can a device save its server?
=====================================================

A sensor tells two kinds of events apart. The device has room for ten small trees; a forest on a server is right more
often, but every call costs time and power. Features are at hand, so only calls have a price. How many calls does an
accuracy take?
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from thrifty import ConfidenceRouter, DynaModLstsqClassifier, Frontier, Prices, evidence_of, export

X, y = make_classification(
    14_000, 20, n_informative=10, n_clusters_per_class=6, class_sep=1.2, flip_y=0.01, random_state=0
)
train, fit, choose, test = np.split(np.arange(14_000), [4000, 8000, 11_000])
server = FrozenEstimator(ExtraTreesClassifier(100, random_state=0).fit(X[train], y[train]))
small = GradientBoostingClassifier(n_estimators=10, max_depth=5, learning_rate=0.5, random_state=0)
small = FrozenEstimator(small.fit(X[train], y[train]))
print(f"server: {server.score(X[test], y[test]):.3f}, ten trees: {small.score(X[test], y[test]):.3f}")

# %%
# Two ways to decide which rows need a call: how sure the ten trees are; and ten trees that are grown for both questions
# at once, what the answer is and where the server is worth a call. Rows drawn by lot are what both must beat.

calls = {"prices": Prices(0.0, full=1.0)}
ways = {
    "by confidence": ConfidenceRouter(server, small, **calls),
    "learned": DynaModLstsqClassifier(server, random_state=0),
}
frontiers = {}
for name, way in ways.items():
    way.fit(X[fit], y[fit])
    chosen = Frontier.from_evidence([evidence_of(way, X[choose], y[choose])])
    frontiers[name] = chosen.on([evidence_of(way, X[test], y[test])])
with tempfile.TemporaryDirectory() as folder:
    exported = export(ways["learned"], folder, leaves="int16")
print(
    f"the learned trees as C: {exported.flash_bytes:,} bytes of flash, {exported.state_bytes} of RAM for a row"
)

# %%
# A budget is a share of calls. Thresholds are chosen on validation rows and evaluated on test rows.

for share in (0.0, 0.1, 0.3):
    for name, frontier in frontiers.items():
        point = frontier.best(budget=share)
        print(
            f"{share:4.0%} of rows may call, {name:13}: accuracy {point.score:.3f} with {point.cost:.1%} calls"
        )

# %%

fig, ax = plt.subplots(figsize=(5.6, 3.6))
by_lot = [model.score(X[test], y[test]) for model in (small, server)]
ax.plot([0, 1], by_lot, label="by lot", linestyle=":")
for name, style in zip(frontiers, ("--", "-"), strict=True):
    frontiers[name].plot(ax, label=name, linestyle=style)
ax.axhline(server.score(X[test], y[test]), color="black", linewidth=0.8, label="server for every row")
ax.set(xlabel="share of rows that call the server", ylabel="accuracy on test rows", xlim=(0, 1))
ax.legend(loc="lower right")
fig.tight_layout()
