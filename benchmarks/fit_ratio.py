"""How long a fit takes, as a multiple of one fit of LightGBM on the same rows, and what it answers.

    python benchmarks/fit_ratio.py [cancer miniboone satimage letters madeup many pima thyroid gas_drift letters26
        forest] [--splits 1] [--phases] [--full]
    python benchmarks/fit_ratio.py grid

`BudgetedClassifier()` with defaults, its full model's fits included, beside `LGBMClassifier(n_jobs=1)` in the same
process: processor seconds of one thread, each after a fit that compiles, the least of three where a fit takes less
than five. 9 of 10 rows are for the fit and the others, 20,000 at most, for accuracy at three budgets, held there by
what they pay (`hold_budget`), and how much `expected_score_` of the same points promises too much. `--phases` prints
shares of the time by what `progress` reports, `--full` accuracy, log-loss and seconds of the default full model and of
scikit-learn's histogram boosting. `grid` is a grid search of eight fits of 569 rows. Data lies in THRIFTY_DATA;
`madeup` is 60,000 x 50, and `many` 200,000 x 50.
"""

import argparse
import os
import time
import warnings
from functools import partial
from itertools import pairwise

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

from small_budgets import DATA
from thrifty import BudgetedClassifier, hold_budget
from thrifty.learners.trees.full import TreesClassifier

MAX_NEW, SHORT = 20_000, 5.0
MADE_UP = {"n_informative": 15, "n_redundant": 10, "n_clusters_per_class": 4, "flip_y": 0.05}


def stored(name, step=1):
    """Columns and labels of a table in THRIFTY_DATA, or of every so many of its rows."""
    arrays = np.load(DATA / f"{name}.npz")
    return arrays["X"][::step].astype(float), arrays["y"][::step]


def halves():
    """Letters of the first or the second half of the alphabet."""
    X, y = stored("letter")
    return X, y >= 13


TABLES = {
    "cancer": (lambda: load_breast_cancer(return_X_y=True), (2, 4, 8)),
    "miniboone": (lambda: stored("miniboone_5k"), (3, 6, 12)),
    "satimage": (lambda: stored("satimage"), (3, 6, 12)),
    "letters": (halves, (3, 5, 7)),
    "madeup": (lambda: make_classification(66_667, 50, random_state=0, **MADE_UP), (3, 8, 20)),
    "many": (lambda: make_classification(222_223, 50, random_state=0, **MADE_UP), (3, 8, 20)),
    "pima": (lambda: stored("cost_pima_diabetes"), (2, 3, 5)),
    "thyroid": (lambda: stored("cost_ann_thyroid"), (2, 3, 5)),
    "gas_drift": (lambda: stored("gas_drift_8batch"), (2, 3, 5)),
    "letters26": (lambda: stored("letter"), (3, 5, 7)),
    "forest": (lambda: stored("covtype", step=29), (3, 6, 12)),
}


def seconds(work):
    """Processor seconds of some work, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def fit_once(X, y):
    """Processor seconds of a fit, when each of its steps ended, and the estimator."""
    marks, clf = [("", time.process_time())], BudgetedClassifier(n_jobs=1, random_state=0)
    taken, _ = seconds(
        lambda: clf.fit(X, y, progress=lambda what, *_: marks.append((what, time.process_time())))
    )
    return taken, marks, clf


def compare(name, split, *, phases, full):
    """Print a line of a table, and what else is asked for."""
    (X, y), budgets = TABLES[name][0](), TABLES[name][1]
    order = np.random.default_rng(split).permutation(len(y))
    fit, new = order[: 9 * len(y) // 10], order[9 * len(y) // 10 :][:MAX_NEW]
    lightgbm = min(
        seconds(lambda: LGBMClassifier(n_jobs=1, verbose=-1).fit(X[fit], y[fit]))[0] for _ in range(3)
    )
    if full:
        for model in (TreesClassifier(), HistGradientBoostingClassifier(random_state=0)):
            taken, fitted = seconds(lambda model=model: model.fit(X[fit], y[fit]))
            accuracy, lost = fitted.score(X[new], y[new]), log_loss(y[new], fitted.predict_proba(X[new]))
            print(f"{type(model).__name__}: accuracy {accuracy:.4f}, log-loss {lost:.4f}, {taken:.2f} s")
    fits = [fit_once(X[fit], y[fit])]
    while len(fits) < 3 and fits[0][0] < SHORT:
        fits.append(fit_once(X[fit], y[fit]))
    taken, marks, clf = min(fits, key=lambda each: each[0])
    cells = []
    for budget in np.maximum(budgets, clf.chain_.policy.cost[0]):
        held, point = hold_budget(clf, X[new], budget), clf.at(budget=budget)
        above = point.expected_score_ - point.score(X[new], y[new])
        cells.append(f"{held.score(X[new], y[new]):.4f} ({above:+.4f})")
    print(
        f"| {name}, {len(fit):,} x {X.shape[1]} | {lightgbm:.2f} | {taken:.1f} | {taken / lightgbm:.0f} x | ",
        end="",
    )
    print(f"{' | '.join(cells)} |", flush=True)
    if phases:
        ends = {what: 0.0 for what, _ in marks[1:]}
        for (_, before), (what, now) in pairwise(marks):
            ends[what] += now - before
        print("; ".join(f"{what} {100 * share / taken:.0f} %" for what, share in ends.items()))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[*TABLES, "grid"])
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--phases", action="store_true")
    parser.add_argument("--full", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y = load_breast_cancer(return_X_y=True)
    BudgetedClassifier().fit(X[:300], y[:300])  # compiles
    print("| table | LightGBM, s | fit, s | multiple | accuracy at three budgets (promised too much) | | |")
    print("|---" * 7 + "|", flush=True)
    for name in asked.tables or TABLES:
        if name == "grid":
            search = GridSearchCV(
                BudgetedClassifier(n_jobs=1, random_state=0), {"budget": [2, 4]}, cv=4, refit=False
            )
            taken, _ = seconds(partial(search.fit, X, y))
            print(f"GridSearchCV, 8 fits of 569 x 30: {taken:.1f} s", flush=True)
            continue
        for split in range(asked.splits):
            compare(name, split, phases=asked.phases, full=asked.full)


if __name__ == "__main__":
    main()
