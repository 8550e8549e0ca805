"""What single fits spend on new rows against what they expect, over random splits of nine tables.

    python benchmarks/budget_splits.py --splits 20
    python benchmarks/budget_splits.py heart pima --splits 20

Letters (the first thirteen against the others), MiniBooNE, satellite images (the first class against the others), and
the four tables with real prices; of several classes, scikit-learn's digits and Forest. Each split draws rows to fit on
and others to count on; the full model is 100 extra trees, out of fold, and the fit knows the smallest of the budgets.
``hold_budget`` is off. For each budget, over the splits, of "spent on new rows / expected":

    bias, sd      mean less one, and standard deviation, in per cent
    floor         what chance alone gives, were the model that serves known exactly: the standard deviation of a row's
                  cost over the root of the number of new rows ("new"), and of both kinds of rows ("both")
    inside        share of splits in which ``expected_cost_interval_`` holds what the new rows spent
    accuracy      of the new rows, and by how much more the fit expected
    inside        share of splits in which the interval that ``thrifty fit`` expects for so many rows holds it
"""

import argparse
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_predict

from thrifty import BudgetedClassifier
from thrifty.reporting.measure import expected

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TABLES = {  # file, rows to fit on, new rows, budgets
    "heart": ("cost_heart_cleveland", 200, 103, (5, 50, 200)),
    "pima": ("cost_pima_diabetes", 512, 256, (5, 10, 20)),
    "hepatitis": ("cost_hepatitis", 103, 52, (4, 8, 15)),
    "thyroid": ("cost_ann_thyroid", 3600, 3600, (10, 20, 24)),
    "satimage": ("satimage", 3000, 3435, (2, 3, 4)),
    "letter": ("letter", 3000, 4000, (3, 5, 7)),
    "miniboone": ("miniboone_5k", 3000, 2000, (2, 4, 8)),
    "digits of 10 classes": (None, 1200, 597, (4, 8, 14)),
    "forest of 7 classes": ("covtype", 10_000, 5000, (4, 8, 15)),
}


def load(name):
    """Table, classes, prices."""
    if name.startswith("digits"):
        X, y = load_digits(return_X_y=True)
        return X, y, np.ones(X.shape[1])
    arrays = np.load(DATA / f"{TABLES[name][0]}.npz")
    X, y = arrays["X"].astype(float), arrays["y"].astype(int)
    costs = arrays["cost"].astype(float) if "cost" in arrays else np.ones(X.shape[1])
    if name.startswith("forest"):
        return X, y, costs
    if name == "thyroid":
        return X[:, :20], (y < 3).astype(int), costs[:20]
    return (
        X,
        (y >= 13 if name == "letter" else y == y.min() if name == "satimage" else y > y.min()).astype(int),
        costs,
    )


def fitted(X, y, costs, X_new, budget):
    """A fit, ready for the new rows."""
    full = ExtraTreesClassifier(100, random_state=0)
    held_out, there = (
        np.clip(one[:, 1] if one.shape[1] == 2 else one, 1e-4, 1 - 1e-4)
        for one in (
            cross_val_predict(full, X, y, cv=4, method="predict_proba"),
            full.fit(X, y).predict_proba(X_new),
        )
    )
    clf = BudgetedClassifier(held_out, feature_costs=costs, budget=budget, random_state=0).fit(X, y)
    return clf.with_full(there, X_new)


def measure(name, seed):
    """What the new rows spent, their accuracy, and whether both were expected, shape (n_budgets, 6)."""
    _, n_fit, n_new, budgets = TABLES[name]
    X, y, costs = load(name)
    rows = np.random.default_rng(seed).permutation(len(y))
    fit, new = rows[:n_fit], rows[n_fit : n_fit + n_new]
    clf = fitted(X[fit], y[fit], costs, X[new], budgets[0])
    found = []
    for budget in budgets:
        there = clf.at(budget=budget)
        paid, right = there.cost(X[new]), np.mean(there.predict(X[new]) == y[new])
        planned, results = there.expected_cost_, expected(there)
        inside, as_good = (
            low * (1 - 1e-9) <= value <= high * (1 + 1e-9)  # sums of equal costs differ in their last digit
            for value, (low, high) in (
                (paid.mean(), there.expected_cost_interval_),
                (right, results.interval(n_new)),
            )
        )
        ratio, spread = paid.mean() / planned, paid.std() / planned
        found.append((ratio, spread, inside, right, results.score.value[0] - right, as_good))
    return np.array(found)


def main():
    """Print a line for each table and budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--splits", type=int, default=20)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ("table, rows to fit on", "budget", "splits", "bias, %", "sd, %", "floor: new", "both", "inside")
    print("| " + " | ".join([*names, "accuracy", "expected more", "inside"]) + " |")
    print("|---" * 11 + "|")
    for name in chosen.tables:
        _, n_fit, n_new, budgets = TABLES[name]
        found = np.array([measure(name, seed) for seed in range(chosen.splits)])
        for place, budget in enumerate(budgets):
            ratio, spread, inside, right, more, as_good = found[:, place].T
            floors = 100 * spread.mean() * np.sqrt([1 / n_new, 1 / n_new + 1 / n_fit])
            sd = 100 * ratio.std(ddof=1) if len(ratio) > 1 else float("nan")
            print(
                f"| {name}, {n_fit:,} | {budget} | {len(ratio)} | {100 * (ratio.mean() - 1):+.1f} | {sd:.1f} | "
                f"{floors[0]:.1f} | {floors[1]:.1f} | {inside.mean():.0%} | {right.mean():.3f} | "
                f"{more.mean():+.3f} | {as_good.mean():.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
