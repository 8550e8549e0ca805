"""Purchases that are worth nothing by themselves: accuracy on test rows at mean test cost, held, over several draws.

    python benchmarks/lookahead.py switch [--draws 10] [--structures line neighbours auto]
    python benchmarks/lookahead.py context context_1000 --draws 3 --structures neighbours

`switch`: column 0 holds a number from 0 to 5, and the label is the sign of the column of that number, plus noise: an
oracle has .907 at a cost of 2. 2,500 rows. `context`: AFAContext of AFABench (arXiv 2508.14734): three columns say,
with noise, which of three cubes of ten columns is informative, in which class c of 8 puts its 3-bit code into columns
c to c + 2; everything else is noise. 12,000 rows; `context_1000` has 1,000 rows with a noise of .3 in place of .1.

Every column costs 1. "Held" sets the operating point by what 8,000 test rows pay, which needs no labels.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from thrifty import BudgetedClassifier, StageOptions, hold_budget

N_TEST = 8_000


def switch(n_rows, seed):
    """Column 0 says which of six others has the sign of the label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 7))
    X[:, 0] = rng.integers(0, 6, n_rows)
    told = X[np.arange(n_rows), X[:, 0].astype(int) + 1]
    return X.round(3), told + 0.3 * rng.normal(size=n_rows) > 0


def context(n_rows, seed, noise=0.1):
    """Columns 0 to 2 say which of three cubes tells the class."""
    rng = np.random.default_rng(seed)
    cube, label = rng.integers(0, 3, n_rows), rng.integers(0, 8, n_rows)
    X = rng.normal(0.5, 0.3, (n_rows, 33))
    X[:, :3] = np.eye(3)[cube] + rng.normal(0.0, noise, (n_rows, 3))
    for bit in range(3):
        value = (label >> (2 - bit)) & 1
        X[np.arange(n_rows), 3 + 10 * cube + label + bit] = value + rng.normal(0.0, noise, n_rows)
    return X.round(3), label


CASES = {
    "switch": (switch, 2_500, (2, 3, 4)),
    "context": (context, 12_000, (3, 4, 5, 6, 8, 10)),
    "context_1000": (lambda n_rows, seed: context(n_rows, seed, 0.3), 1_000, (3, 4, 5, 6, 8, 10)),
}


def print_table(name, structures, n_draws, first_seed, n_jobs):
    make, n_rows, budgets = CASES[name]
    full = RandomForestClassifier(100, min_samples_leaf=3, random_state=0)
    print(
        f"\n{name}: {n_rows:,} rows, {n_draws} draws\n| | "
        + " | ".join(map(str, budgets))
        + " | fit | predict |"
    )
    print("|---" * (len(budgets) + 3) + "|")
    for structure in structures:
        found, fit_seconds, seconds = [], 0.0, 0.0
        for seed in range(first_seed, first_seed + n_draws):
            X, y = make(n_rows + N_TEST, seed)
            X_test, y_test = X[n_rows:], y[n_rows:]
            stages, start = StageOptions(structure=structure), time.process_time()
            model = BudgetedClassifier(full, stages=stages, n_jobs=n_jobs, random_state=0)
            model.fit(X[:n_rows], y[:n_rows])
            fit_seconds, start = fit_seconds + time.process_time() - start, time.process_time()
            model.predict(X_test)
            seconds += time.process_time() - start
            found.append([hold_budget(model, X_test, budget).score(X_test, y_test) for budget in budgets])
        mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
        cells = [f"{one:.3f} ± {around:.3f}" for one, around in zip(mean, spread, strict=True)]
        times = f"{fit_seconds / n_draws:.1f} s | {seconds / n_draws:.2f} s"
        print(f"| {structure} | " + " | ".join(cells) + f" | {times} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", choices=sorted(CASES))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    choices = ["line", "neighbours", "auto"]
    parser.add_argument("--structures", nargs="+", default=choices, choices=choices)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.cases:
        print_table(name, chosen.structures, chosen.draws, chosen.seed, chosen.jobs)


if __name__ == "__main__":
    main()
