"""
Certificates: how often are they wrong?
=======================================

A certificate bounds the share of answers that are lost against the full model, with a stated confidence, by an exact
test on rows that were not used in the fit. How often is such a certificate wrong?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.svm import SVC

from thrifty import BudgetedClassifier, Frontier, StageOptions, certify, evidence_of

X, y = make_classification(
    20_000, 12, n_informative=6, n_redundant=2, n_clusters_per_class=2, class_sep=1.4, random_state=0
)
train, proof, new = np.arange(2250), np.arange(2250, 3000), np.arange(3000, 20_000)

# %%
# A quarter of the rows is kept out of the fit. ``certified`` goes to the cheapest operating point that they prove to be
# wrong where the full model is right on at most 5 % of rows.

full = CalibratedClassifierCV(SVC(C=5), cv=3, ensemble=False)
clf = BudgetedClassifier(full, stages=StageOptions(sizes=[(40, 4)]), cv=3, random_state=0)
clf = clf.fit(X[train], y[train]).certified(X[proof], y[proof], max_loss=0.05)
print(clf.certificate_)
print(f"mean cost on new rows {clf.cost(X[new]).mean():.2f} in place of 12")

# %%
# 17,000 new rows show what is really lost. The proof is repeated with 300 other draws of 750 rows each: every draw
# certifies the cheapest point that it can, and all new rows measure what that point loses.

known = clf.chain_.full.estimator.predict_proba(X[new])  # the full model is asked once
points = Frontier.from_evidence([clf.evidence_], against_full=True)
everything = points.on([evidence_of(clf, X[new], y[new], full_probability=known)])
truly_lost = everything.losses_against_full() / len(new)

rng = np.random.default_rng(0)
lost, spent = [], []
for _ in range(300):
    rows = rng.choice(len(new), 750, replace=False)
    drawn = points.on([evidence_of(clf, X[new][rows], y[new][rows], full_probability=known[rows])])
    certified = certify(drawn, max_loss=0.05, confidence=0.95).point
    place = int(np.argmin(np.abs(everything.chosen.cost - certified.chosen_cost)))
    lost.append(truly_lost[place])
    spent.append(everything.cost[place])
wrong = np.mean(np.array(lost) > 0.05)
print(f"{wrong:.1%} of 300 certificates are wrong; at most 5 % may be. Mean cost {np.mean(spent):.2f}")

# %%

fig, ax = plt.subplots(figsize=(5.6, 3.6))
ax.hist(lost, bins=np.linspace(0, 0.08, 65), color="tab:blue")
ax.axvline(0.05, color="tab:red", linestyle="--", label="certified: at most this")
ax.set(xlabel="share of answers that the certified point really loses", ylabel="certificates")
ax.legend(loc="upper right")
fig.tight_layout()
