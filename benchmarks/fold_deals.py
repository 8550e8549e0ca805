"""What a deal of folds does to an operating point, where one mistake is forty times as dear as another.

    python benchmarks/fold_deals.py

Five tables of 2,000 rows, each fitted with twenty deals of folds and judged on 20,000 rows that no fit has seen: with
one deal in each fit, and with the several deals that fits use on small tables. Tables 1 to 3 are like that of
docs/losses.md; in tables 4 and 5 each class is normal, with more and with less overlap.
"""

import sys
import warnings

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier

from thrifty import BudgetedClassifier, StageOptions
from thrifty.learners.cascade import learn

COSTS = np.array([[0.0, 200.0], [5.0, 0.0]])
"""What answers cost, lines "sick" and "well"."""


def table(n_rows, number):
    """Rows as those of docs/losses.md: one in fourteen is sick."""
    X, y = make_classification(
        n_rows, 6, n_informative=4, n_redundant=1, weights=[0.93], flip_y=0, random_state=number
    )
    return X.round(3), np.where(y == 1, "sick", "well")


SHIFTS = {4: [1.5, -1.2, 1.0, 0.8, 0.0, 0.0], 5: [2.0, -1.6, 1.3, 1.1, 0.0, 0.0]}
"""Means of the sick, in the tables where each class is normal."""


def normal_table(n_rows, number):
    rng = np.random.default_rng(1)
    sick = rng.random(n_rows) < 0.07
    X = rng.normal(size=(n_rows, 6)) + np.outer(sick, SHIFTS[number])
    return X.round(3), np.where(sick, "sick", "well")


def measured(n_repeats, X, y, new, truth):
    """Share right, share of the sick found, cost of tests and of everything, for each of twenty fits."""
    most, learn.MAX_REPEATS = learn.MAX_REPEATS, n_repeats
    found = []
    for seed in range(20):
        clf = BudgetedClassifier(
            ExtraTreesClassifier(100, random_state=0),
            loss=COSTS.tolist(),
            stages=StageOptions(sizes=[(20, 3)]),
            cv=2,
            random_state=seed,
        ).fit(X, y)
        answer, tests = clf.predict(new), clf.cost(new).mean()
        mistakes = COSTS[(truth == "well").astype(int), (answer == "well").astype(int)].mean()
        recall = np.mean(answer[truth == "sick"] == "sick")
        found.append((np.mean(answer == truth), recall, tests, tests + mistakes))
    learn.MAX_REPEATS = most
    return np.array(found)


def main():
    warnings.simplefilter("ignore")
    for number in map(int, sys.argv[1:] or range(1, 6)):
        X, y = (normal_table if number in SHIFTS else table)(22_000, number)
        for n_repeats in (1, learn.MAX_REPEATS):
            found = measured(n_repeats, X[:2000], y[:2000], X[2000:], y[2000:])
            print(f"table {number}, repeats of cross-validation in each fit: {n_repeats}")
            for name, column in zip(
                ("right", "sick found", "tests", "tests and mistakes"), found.T, strict=True
            ):
                low, high = column.min(), column.max()
                print(
                    f"  {name:19} {column.mean():.3f} +- {column.std():.3f}, from {low:.3f} to {high:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
