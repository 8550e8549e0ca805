"""Orders of purchases by row against one order for all rows: score at mean test cost, held.

    python benchmarks/structures.py letters26_12000 letters26 letters gas_drift satimage forest
    python benchmarks/structures.py pol bike_hour cpu_act heart pima thyroid --structures line auto

Data lies in THRIFTY_DATA (default ../shared/data). Cases are those of `targets.py` and `frontier.py`;
`letters26_12000` is fitted on the first 12,000 rows of Letters. "Held" sets the operating point by what the test rows
pay, which needs no labels. Data sets with real prices have five folds, whose test answers are pooled; "money" is what
features and mistakes cost together, a mistake at the price of all features, at the budget where that is least.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.base import is_classifier

from frontier import BUDGETS, load_large, load_priced
from targets import CASES, Case
from thrifty import BudgetedClassifier, BudgetedRegressor, Prices, StageOptions, hold_budget
from thrifty.engine.walk.stage import nodes_of

OF_NUMBERS = ("pol", "bike_hour", "cpu_act")


def cases_of(name):
    """Fits and test rows of a data set, with prices of columns."""
    if name == "letters26_12000":
        case = CASES["letters26"]()
        yield Case(case.X[:12_000], case.y[:12_000], case.X_test, case.y_test, case.full, case.budgets), None
    elif name in CASES:
        yield CASES[name](), None
    else:
        for one in [load_large(name)] if name == "letters" else load_priced(name):
            yield Case(one.X, one.y, one.X_test, one.y_test, one.full, BUDGETS[name]), one.costs


def fitted(structure, case, costs, n_jobs):
    """A function that answers test rows at a mean cost, and words about the fit."""
    kind = BudgetedClassifier if is_classifier(case.full) else BudgetedRegressor
    model = kind(
        case.full,
        prices=Prices(costs, groups=case.groups),
        stages=StageOptions(structure=structure),
        n_jobs=n_jobs,
        random_state=0,
    ).fit(case.X, case.y)
    start = time.process_time()
    model.predict(case.X_test)
    seconds = time.process_time() - start
    n_nodes = sum(len(nodes_of(stage)) for stage in model.chain_.stages)
    cheapest = model.chain_.at(model.chain_.policy.at(0)).cost(case.X_test).mean()

    def held(budget):
        system = hold_budget(model, case.X_test, max(budget, cheapest))
        return system.predict(case.X_test), system.cost(case.X_test)

    return held, f"{n_nodes} nodes, predict {seconds:.2f} s"


def print_table(name, structures, budgets, n_jobs):
    cases = list(cases_of(name))
    budgets = budgets or cases[0][0].budgets
    y = np.concatenate([case.y_test for case, _ in cases])
    print(f"\n{name}: {len(cases[0][0].y):,} rows, {len(y):,} test rows")
    print(
        "| | " + " | ".join(f"{budget:g}" for budget in budgets) + " |\n" + "|---" * (1 + len(budgets)) + "|"
    )
    for structure in structures:
        start = time.process_time()
        fits = [fitted(structure, case, costs, n_jobs) for case, costs in cases]
        seconds = time.process_time() - start
        cells, money = [], []
        for budget in budgets:
            found = [held(budget) for held, _ in fits]
            answers, cost = (np.concatenate(one) for one in zip(*found, strict=True))
            if name in OF_NUMBERS:
                score = float(np.sqrt(np.mean(np.square(answers - y))))
            else:
                score = float((answers == y).mean())
                prices = cases[0][1]
                money.append(cost.mean() + (1 - score) * (0 if prices is None else prices.sum()))
            cells.append(f"{score:.4f} @ {cost.mean():.2f}")
        print(f"| {structure} | " + " | ".join(cells) + " |", flush=True)
        least = f", money {min(money):.2f}" if money and cases[0][1] is not None else ""
        print(f"  {structure}: {seconds:.0f} s of processor, {fits[0][1]}{least}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+")
    choices = ["line", "neighbours", "auto"]
    parser.add_argument("--structures", nargs="+", default=choices, choices=choices)
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.data:
        print_table(name, chosen.structures, chosen.budgets, chosen.jobs)


if __name__ == "__main__":
    main()
