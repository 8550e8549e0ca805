"""Targets other than two classes: score on test rows at mean test cost, held within each budget.

    python benchmarks/targets.py letters26 forest7 gas_drift gas_drift_time [--jobs 2]
    python benchmarks/targets.py pol bike_hour cpu_act concrete [--budgets 3 4 5] [--jobs 2]

Data lies in THRIFTY_DATA (default ../shared/data). Every fit has default settings. Sensors of gas_drift are groups,
each at price 1. `gas_drift` draws test rows at random; `gas_drift_time` fits on batches 1 to 5 and is tested on each
later batch by itself, with the full model beside it. Classes are scored by accuracy, numbers by the root of the mean
squared error in units of the standard deviation of the first 60 % of the targets. The full
model is cross-fitted by the fit itself; what fitting it once takes is printed beside. "Held" sets the operating
point by what the test rows pay (`hold_budget`), which needs no labels; nothing is chosen on test rows otherwise.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.datasets import load_gas_drift
from thrifty import BudgetedClassifier, BudgetedRegressor, Prices, hold_budget

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
    batch: object = None  # of each test row, where they are to be told apart


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


def gas_drift():
    table = load_gas_drift(DATA)
    order = np.random.default_rng(0).permutation(len(table.y))
    X, y, n_fit = table.X[order], table.y[order], 4 * len(order) // 5
    budgets = [1, 1.5, 2, 3, 4, 6]
    return Case(X[:n_fit], y[:n_fit], X[n_fit:], y[n_fit:], forest(), budgets, table.sensor)


def gas_drift_time():
    table = load_gas_drift(DATA)
    old, batch = table.batch <= 5, table.batch[table.batch > 5]
    X, y, budgets = table.X, table.y, [1.5, 2, 3, 4, 6]
    return Case(X[old], y[old], X[~old], y[~old], forest(), budgets, table.sensor, batch)


def numbers(name, full, budgets):
    """A regression: 60 % and 20 % of the rows to fit on, the others to test on."""

    def load():
        arrays = np.load(DATA / f"{name}.npz")
        order = np.random.default_rng(0).permutation(len(arrays["y"]))
        X, y = arrays["X"][order].astype(float), arrays["y"][order].astype(float)
        first, n_fit = 3 * len(y) // 5, 4 * len(y) // 5
        y = (y - y[:first].mean()) / y[:first].std()
        return Case(X[:n_fit], y[:n_fit], X[n_fit:], y[n_fit:], full, budgets)

    return load


def extra_trees():
    return ExtraTreesRegressor(300, n_jobs=2, random_state=0)


CASES = {
    "letters26": letters26,
    "forest7": forest7,
    "gas_drift": gas_drift,
    "gas_drift_time": gas_drift_time,
    "pol": numbers("pol", extra_trees(), [2, 3, 4, 5, 6, 8, 10, 13]),
    "bike_hour": numbers("bike_hour", HistGradientBoostingRegressor(random_state=0), [2, 3, 4, 5, 6, 8, 10]),
    "cpu_act": numbers("cpu_act", extra_trees(), [2, 3, 4, 5, 6, 8, 10, 13, 16]),
    "concrete": numbers("concrete", extra_trees(), [1, 2, 3, 4, 6]),
}


def score_of(model, X, y):
    answers = model.predict(X)
    if is_classifier(model):
        return float((answers == y).mean())
    return float(np.sqrt(np.mean(np.square(answers - y))))


def run(name, budgets, n_jobs):
    case = CASES[name]()
    start, processor = time.perf_counter(), time.process_time()
    full = clone(case.full).fit(case.X, case.y)
    full_seconds, full_processor = time.perf_counter() - start, time.process_time() - processor
    start, processor = time.perf_counter(), time.process_time()
    kind = BudgetedClassifier if is_classifier(full) else BudgetedRegressor
    model = kind(case.full, prices=Prices(groups=case.groups), n_jobs=n_jobs, random_state=0).fit(
        case.X, case.y
    )
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    print(
        f"\n{name}: {len(case.y):,} rows; full model {score_of(full, case.X_test, case.y_test):.4f} at "
        f"{model.chain_.price_list.cost_of_full:g}; fit {seconds:.0f} s ({processor:.0f} of processor; one full model "
        f"{full_seconds:.0f} and {full_processor:.0f}); {model.n_stages_} stages of {model.size_[0]} trees of depth "
        f"{model.size_[1]}",
        flush=True,
    )
    budgets = budgets or case.budgets
    print(
        "| | " + " | ".join(f"{budget:g}" for budget in budgets) + " |\n" + "|---" * (1 + len(budgets)) + "|"
    )
    if case.batch is None:
        print_lines("", model, case.X_test, case.y_test, budgets)
        return
    promised = [
        model.at(budget=max(budget, model.chain_.policy.cost[0])).expected_score_ for budget in budgets
    ]
    print("| promised by the rows of the fit | " + " | ".join(f"{one:.3f}" for one in promised) + " |")
    for batch in np.unique(case.batch):
        X, y = case.X_test[case.batch == batch], case.y_test[case.batch == batch]
        told = f"batch {batch}, {len(y):,} rows, full model {score_of(full, X, y):.3f}: "
        print_lines(told, model, X, y, budgets)


def print_lines(told, model, X, y, budgets):
    """Score and mean cost of some rows at each budget, at the point of the fit and at the one that holds the budget."""
    cheapest = model.chain_.at(model.chain_.policy.at(0)).cost(X).mean()
    rows = {"as fitted": [], "held": []}
    for budget in budgets:
        there = model.at(budget=max(budget, model.chain_.policy.cost[0]))
        held = hold_budget(model, X, max(budget, cheapest))
        for how, system in (("as fitted", there), ("held", held)):
            rows[how].append(f"{score_of(system, X, y):.3f} @ {system.cost(X).mean():.2f}")
    for how, cells in rows.items():
        print(f"| {told}{how} | " + " | ".join(cells) + " |", flush=True)


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
