"""What single fits spend on new rows against what they promise, over random splits of seven tables.

    python benchmarks/budget_splits.py --splits 20
    python benchmarks/budget_splits.py heart pima --splits 20

Letters (the first thirteen against the others), MiniBooNE, satellite images (the first class against the others), and
the four tables with real prices. Each split draws rows to fit on and others to count on; the full model is 100 extra
trees, out of fold. ``hold_budget`` is off. For each budget, over the splits, of "spent on new rows / expected":

    bias, sd      mean less one, and standard deviation, in per cent
    floor         what chance alone gives, were the model that serves known exactly: the standard deviation of a row's
                  cost over the root of the number of new rows ("new"), and of both kinds of rows ("both")
    inside        share of splits in which ``expected_cost_interval_`` holds what the new rows spent

each with thresholds as held-out rows have them ("copies": they were judged by copies of the model that were grown on
three quarters of the rows) and as the fit has them ("serves"), scaled to the scores of the model that serves.
"""

import argparse
import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_predict

from thrifty import BudgetedClassifier
from thrifty.learning.cascade import learn

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TABLES = {  # file, rows to fit on, new rows, budgets
    "heart": ("cost_heart_cleveland", 200, 103, (5, 50, 200)),
    "pima": ("cost_pima_diabetes", 512, 256, (5, 10, 20)),
    "hepatitis": ("cost_hepatitis", 103, 52, (4, 8, 15)),
    "thyroid": ("cost_ann_thyroid", 3600, 3600, (10, 20, 24)),
    "satimage": ("satimage", 3000, 3435, (2, 3, 4)),
    "letter": ("letter", 3000, 4000, (3, 5, 7)),
    "miniboone": ("miniboone_5k", 3000, 2000, (2, 4, 8)),
}


def load(name):
    """Table, two classes, prices."""
    arrays = np.load(DATA / f"{TABLES[name][0]}.npz")
    X, y = arrays["X"].astype(float), arrays["y"].astype(int)
    costs = arrays["cost"].astype(float) if "cost" in arrays else np.ones(X.shape[1])
    if name == "thyroid":
        return X[:, :20], (y < 3).astype(int), costs[:20]
    return (
        X,
        (y >= 13 if name == "letter" else y == y.min() if name == "satimage" else y > y.min()).astype(int),
        costs,
    )


def fitted(X, y, costs, X_new):
    """A fit, ready for the new rows, and by how much its stages were stretched, by their number of columns."""
    full = ExtraTreesClassifier(100, random_state=0)
    held_out, there = (
        np.clip(one[:, 1], 1e-4, 1 - 1e-4)
        for one in (
            cross_val_predict(full, X, y, cv=4, method="predict_proba"),
            full.fit(X, y).predict_proba(X_new),
        )
    )
    seen, settle = {}, learn.settled_scores

    def spy(problem, staged, calibrations, scores, n_coarse, stretch):
        sets = [len(columns) for columns in staged.sets]
        seen.update(zip(sets, np.where(np.arange(len(sets)) < n_coarse, 1.0, stretch), strict=True))
        return settle(problem, staged, calibrations, scores, n_coarse, stretch)

    learn.settled_scores = spy
    try:
        clf = BudgetedClassifier(held_out, feature_costs=costs, random_state=0).fit(X, y)
    finally:
        learn.settled_scores = settle
    return clf.with_full(there, X_new), seen


def measure(name, seed):
    """Ratio, cost of a row in units of the mean, right, inside: for each budget and way, shape (n_budgets, 2, 4)."""
    _, n_fit, n_new, budgets = TABLES[name]
    X, y, costs = load(name)
    rows = np.random.default_rng(seed).permutation(len(y))
    fit, new = rows[:n_fit], rows[n_fit : n_fit + n_new]
    clf, stretch = fitted(X[fit], y[fit], costs, X[new])
    found = np.empty((len(budgets), 2, 4))
    for place, budget in enumerate(budgets):
        there = clf.at(budget=max(budget, clf.chain_.policy.cost[0]))
        chain, (low, high) = there.chain_, there.expected_cost_interval_
        by = np.array([stretch[len(stage.columns)] for stage in chain.stages])
        by = np.ones(len(by)) if chain.stages[0].gate is not None else by  # a learned gate is no margin
        as_copies = chain.at(replace(chain.policy, thresholds=chain.policy.thresholds / by))
        for way, one in enumerate((as_copies, chain)):
            paid, expected = one.cost(X[new]), there.expected_cost_
            right = np.mean(one.predict(X[new]) == y[new])
            found[place, way] = (
                paid.mean() / expected,
                paid.std() / expected,
                right,
                low <= paid.mean() <= high,
            )
    return found


def main():
    """Print a line for each table, budget and way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--splits", type=int, default=20)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ("table, rows to fit on", "budget", "splits", "thresholds", "bias, %", "sd, %")
    print("| " + " | ".join([*names, "floor: new", "both", "accuracy", "inside"]) + " |")
    print("|---" * 10 + "|")
    for name in chosen.tables:
        _, n_fit, n_new, budgets = TABLES[name]
        found = np.array([measure(name, seed) for seed in range(chosen.splits)])
        for place, budget in enumerate(budgets):
            for way, words in enumerate(("copies", "serves")):
                ratio, spread, right, inside = found[:, place, way].T
                new, both = (
                    100 * spread.mean() / np.sqrt(n_new),
                    100 * spread.mean() * np.sqrt(1 / n_new + 1 / n_fit),
                )
                sd = 100 * ratio.std(ddof=1) if len(ratio) > 1 else float("nan")
                print(
                    f"| {name}, {n_fit:,} | {budget} | {len(ratio)} | {words} | "
                    f"{100 * (ratio.mean() - 1):+.1f} | {sd:.1f} | "
                    f"{new:.1f} | {both:.1f} | {right.mean():.3f} | {inside.mean():.0%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
