"""Whether fits keep what they promise: ``expected_score_`` against the score of new rows.

    python benchmarks/promises.py [--splits 50] [--rows 150 300 600 2000] [cancer pima letters miniboone ...]

For each table and number of rows, a cascade with default settings is fitted on rows drawn at random and judged on the
others, 20,000 at most. A line has the mean of expected minus found score in points, with its standard error; without
the correction by ``evidence_.optimism``; the share of splits that promised too much; the share in which
``expected_score_interval_`` held the score (widened by the error of the new rows themselves, where they are few); the
same errors at the middle of the operating points; and the seconds of a fit. Cancer and digits come with scikit-learn,
the others lie in THRIFTY_DATA.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from reproduction.datasets import load_forest, load_letters, load_miniboone, load_priced
from thrifty import BudgetedClassifier

warnings.simplefilter("ignore")
MAX_NEW = 20_000


def whole(split):
    """All rows of a data set that comes in parts."""
    parts = ("train", "val", "test")
    return tuple(np.concatenate([getattr(split, f"{name}_{part}") for part in parts]) for name in "Xy")


def priced(name):
    """A table with prices of its own."""
    table = load_priced(name)
    return table.X, table.y, table.feature_costs


TABLES = {
    "cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "pima": lambda: priced("pima"),
    "letters": lambda: whole(load_letters()),
    "miniboone": lambda: whole(load_miniboone()),
    "forest": lambda: whole(load_forest()),
    "thyroid": lambda: priced("thyroid"),
}


def promise(X, y, costs, n_rows, split):
    """Expected minus found score of the point in force, and what else a line needs to know."""
    order = np.random.default_rng([n_rows, split]).permutation(len(y))
    known, new = order[:n_rows], order[n_rows : n_rows + MAX_NEW]
    start = time.process_time()
    clf = BudgetedClassifier(feature_costs=costs, random_state=split).fit(X[known], y[known])
    seconds, seen = time.process_time() - start, clf.evidence_
    policy, found = clf.chain_.policy, clf.score(X[new], y[new])
    optimism = seen.optimism_at(policy.thresholds[[policy.lower]])[0, 0]
    low, high = clf.expected_score_interval_
    # Variances of the promise and of the new rows add up.
    wider = np.sqrt(1 + (1.96**2 * found * (1 - found) / len(new)) / ((high - low) / 2) ** 2)
    middle = (low + high) / 2
    between = clf.at(budget=float(np.sqrt(policy.cost[0] * policy.cost[-1])))
    other = between.expected_score_ - between.score(X[new], y[new])
    error = clf.expected_score_ - found
    return error, error + optimism, abs(found - middle) <= wider * (high - low) / 2, other, seconds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []])
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--rows", type=int, nargs="+", default=[150, 300, 600, 2_000])
    asked = parser.parse_args()
    print("| table | rows | error | uncorrected | too high | interval holds | at half the way | fit |")
    print("|---" * 8 + "|", flush=True)
    for name in asked.tables or TABLES:
        X, y, *costs = TABLES[name]()
        for n_rows in asked.rows:
            if n_rows + 150 > len(y):
                continue
            made = [promise(X, y, *(costs or [None]), n_rows, split) for split in range(asked.splits)]
            error, plain, holds, other, seconds = np.array(made, dtype=float).T
            spread = 100 * error.std(ddof=1) / np.sqrt(len(error)) if len(error) > 1 else np.nan
            cells = [
                f"{100 * error.mean():+.2f} ± {spread:.2f}",
                f"{100 * plain.mean():+.2f}",
                f"{100 * np.mean(error > 0):.0f} %",
                f"{100 * holds.mean():.0f} %",
                f"{100 * other.mean():+.2f}",
                f"{np.median(seconds):.1f} s",
            ]
            print(f"| {name} | {n_rows:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
