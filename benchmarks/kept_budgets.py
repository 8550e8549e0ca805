"""How often fits on 800 rows spend more than their budget, as measured and as certified with confidence 0.9.

    python benchmarks/kept_budgets.py

Each system is fitted on 800 rows and asked for several budgets by ``at``; and on 600 of them, and certified for these
budgets on the other 200. What it spends, and its accuracy, is measured on 10,000 new rows. "over", "over by 5 %":
share of fits that spend more than the budget, or more than 1.05 times it; "inside": share of fits whose
``expected_cost_interval_`` holds what new rows spend. With confidence 0.9 at most 10 % of fits may be over.
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from thrifty import BudgetedClassifier, ConfidenceRouter, Prices, StageOptions
from thrifty.errors import ThriftyError

N_FIT, N_NEW, CONFIDENCE = 800, 10_000, 0.9
COSTS = [1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 8, 8]
PRICED = {"prices": Prices(COSTS, full=4.0)}
FULL = LogisticRegression(max_iter=500)
SYSTEMS = {
    "cascade, 2 classes": (
        2,
        (2.0, 3.0, 5.0),
        BudgetedClassifier(FULL, stages=StageOptions(max_stages=6, sizes=[(20, 3)]), **PRICED),
        40,
    ),
    "single gate, 3 classes": (
        3,
        (5.0, 10.0),
        ConfidenceRouter(FULL, FULL, features=[0, 1, 4], **PRICED),
        100,
    ),
}


def world(n_classes):
    """A table large enough to draw from."""
    return make_classification(
        60_000, 12, n_informative=7, n_redundant=2, n_classes=n_classes, flip_y=0.03, random_state=n_classes
    )


def measure(recipe, table, budgets, seed):
    """Spend, accuracy and whether the interval holds, per budget and way to choose; NaN where a budget is refused."""
    X, y = table
    rows = np.random.default_rng(seed).permutation(len(y))
    fit, new = rows[:N_FIT], rows[N_FIT : N_FIT + N_NEW]
    found = np.full((2, len(budgets), 3), np.nan)
    recipe = recipe.set_params(budget=budgets[-1], random_state=seed)
    learn, proof = fit[: N_FIT * 3 // 4], fit[N_FIT * 3 // 4 :]
    for way, rows_of_fit in enumerate((fit, learn)):
        clf = recipe.fit(X[rows_of_fit], y[rows_of_fit])
        for place, budget in enumerate(budgets):
            try:
                there = clf.at(budget=budget)
                if way == 1:
                    there = clf.certified(X[proof], y[proof], budget=budget, confidence=CONFIDENCE)
            except ThriftyError:
                continue
            spent, (low, high) = there.cost(X[new]).mean(), there.expected_cost_interval_
            found[way, place] = spent, there.score(X[new], y[new]), low <= spent <= high
    return found


def main():
    """Print one line per system, budget and way to choose."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=1.0, help="share of the fits to run")
    share = parser.parse_args().share
    warnings.simplefilter("ignore")
    print(
        "                system  fits  budget confidence  refused    over  over by 5 %   spent  accuracy  inside"
    )
    for name, (n_classes, budgets, recipe, n_fits) in SYSTEMS.items():
        table, n_fits = world(n_classes), max(int(share * n_fits), 1)
        found = np.array([measure(recipe, table, budgets, seed) for seed in range(n_fits)])
        for place, budget in enumerate(budgets):
            for way, confidence in enumerate(("none", CONFIDENCE)):
                kept = found[:, way, place][~np.isnan(found[:, way, place, 0])]
                spent, accuracy, inside = kept.T
                print(
                    f"{name:>22} {n_fits:5} {budget:7} {confidence:>10} {1 - len(kept) / n_fits:8.1%} "
                    f"{np.mean(spent > budget):7.1%} {np.mean(spent > 1.05 * budget):12.1%} {spent.mean():7.3f} "
                    f"{accuracy.mean():9.4f} {inside.mean():7.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
