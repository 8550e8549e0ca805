"""Targets other than two classes: score on test rows at mean test cost, held within each budget.

    python benchmarks/targets.py letters26 forest7 satimage [--budgets 3 4 5] [--jobs 2]

Data lies in THRIFTY_DATA (default ../shared/data). Every fit has default settings. The full model is cross-fitted by
the fit itself; what fitting it six times takes by itself is printed beside. "Held" sets the operating point by what the
test rows pay (`hold_budget`), which needs no labels; nothing is chosen on test rows otherwise.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from thrifty import BudgetedClassifier, hold_budget

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@dataclass
class Case:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    full: object
    budgets: list
    groups: object = None


def forest():
    return RandomForestClassifier(200, n_jobs=2, random_state=0)


def letters26():
    arrays = np.load(DATA / "letter.npz")
    X, y = arrays["X"].astype(float), arrays["y"].astype(int)
    full = make_pipeline(StandardScaler(), SVC(C=10, gamma=0.3))
    return Case(X[:16_000], y[:16_000], X[16_000:], y[16_000:], full, [3, 4, 5, 6, 7, 8, 10])


def forest7():
    arrays = np.load(DATA / "covtype.npz")
    order = np.random.default_rng(0).permutation(len(arrays["y"]))[: 52_291 + 20_000]
    X, y = arrays["X"][order].astype(float), arrays["y"][order].astype(int)
    return Case(X[:52_291], y[:52_291], X[52_291:], y[52_291:], forest(), [3, 4, 5, 6, 8, 10, 15, 20])


CASES = {"letters26": letters26, "forest7": forest7}


def run(name, budgets, n_jobs):
    case = CASES[name]()
    start, processor = time.perf_counter(), time.process_time()
    full = clone(case.full).fit(case.X, case.y)
    full_seconds, full_processor = time.perf_counter() - start, time.process_time() - processor
    start, processor = time.perf_counter(), time.process_time()
    clf = BudgetedClassifier(case.full, feature_groups=case.groups, n_jobs=n_jobs, random_state=0)
    clf.fit(case.X, case.y)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    score = full.score(case.X_test, case.y_test)
    print(
        f"\n{name}: {len(case.y):,} rows, {len(np.unique(case.y))} classes; full model {score:.4f}; "
        f"fit {seconds:.0f} s ({processor:.0f} of processor; one full model {full_seconds:.0f} and "
        f"{full_processor:.0f}); {clf.n_stages_} stages of {clf.size_[0]} trees of depth {clf.size_[1]}",
        flush=True,
    )
    rows = {"as fitted": [], "held": []}
    cheapest = clf.chain_.at(clf.chain_.policy.at(0)).cost(case.X_test).mean()
    for budget in budgets or case.budgets:
        for how in rows:
            system = (
                clf.at(budget=budget)
                if how == "as fitted"
                else hold_budget(clf, case.X_test, max(budget, cheapest))
            )
            rows[how].append(
                f"{system.score(case.X_test, case.y_test):.3f} @ {system.cost(case.X_test).mean():.2f}"
            )
    print("| | " + " | ".join(str(budget) for budget in budgets or case.budgets) + " |")
    print("|---" * (1 + len(budgets or case.budgets)) + "|")
    for how, cells in rows.items():
        print(f"| {how} | " + " | ".join(cells) + " |", flush=True)
    return clf


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", choices=sorted(CASES))
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.data:
        run(name, chosen.budgets, chosen.jobs)


if __name__ == "__main__":
    main()
