"""Fits on few rows: draws of 150 to 1,200 rows from larger tables, against two rivals of one stage.

    python benchmarks/few_rows.py --draws 50
    python benchmarks/few_rows.py satimage pima --rows 150 300 --draws 4

Each draw fits on so many rows and counts on up to 2,000 others; the full model is 100 extra trees, out of fold. The
cascade is ``BudgetedClassifier`` with default settings. It knows the smallest of the budgets, and each is held on the
new rows, which needs no labels. The rivals choose on a quarter of the rows: GreedyMiser at twelve prices, and LightGBM
on the first k columns by gain per price, both with the confidence gate. Whoever spends more than the budget, a rival on
new rows or anybody whose cheapest point costs more, answers as large a share of the rows, drawn by chance, with the
larger class of the rows of the fit, for nothing, that the rest is paid for. Cells: mean accuracy over draws, its
standard error, and what was spent; "majority" is the share of the larger class.
"""

import argparse
import warnings

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import frontier
from budget_splits import TABLES, load
from thrifty import BudgetedClassifier
from thrifty.rows import content_folds

NAMES = ("satimage", "letter", "miniboone", "thyroid", "pima")
MAX_NEW = 2000


def draw(name, n_rows, seed):
    """Rows to fit on, and others."""
    X, y, costs = load(name)
    rows = np.random.default_rng(seed).permutation(len(y))
    fit, new = rows[:n_rows], rows[n_rows : n_rows + MAX_NEW]
    case = frontier.Case(
        name, X[fit], y[fit], X[new], y[new], costs, ExtraTreesClassifier(100, random_state=0)
    )
    case.cross_fit_full()
    return case


def top_k(case, budgets):
    """LightGBM on the first k columns by gain per price, each with |f1| as its gate."""
    import lightgbm

    settings = {
        "objective": "binary",
        "num_leaves": 15,
        "learning_rate": 0.05,
        "verbose": -1,
        "num_threads": 1,
    }
    is_val = content_folds(case.X, case.y * 2.0 - 1, 4, 1) == 0

    def grown(columns):
        data = lightgbm.Dataset(case.X[~is_val][:, columns], case.y[~is_val])
        return lightgbm.train(settings, data, 60)

    gain = grown(np.arange(case.X.shape[1])).feature_importance("gain")
    order = np.argsort(-gain / case.costs, kind="stable")
    systems = []
    for k in (1, 2, 3, 4, 6, 8, 12, 16):
        columns = order[:k]
        model = grown(columns)
        systems.append(
            [
                frontier.confident(
                    model.predict(X[:, columns], raw_score=True), y, full, case.costs, columns, k
                )
                for X, y, full in frontier.both_kinds_of_rows(case, is_val)
            ]
        )
    return frontier.single_stage(budgets, systems), ""


def cascade(case, budgets):
    """The public default, which knows the smallest budget."""
    clf = BudgetedClassifier(
        case.held_out, feature_costs=case.costs, budget=budgets[0], n_jobs=1, random_state=0
    )
    clf.fit(case.X, case.y)
    frontier.FITTED[id(case)] = clf.with_full(case.on_test, case.X_test)
    return frontier.held(case, budgets)


def afforded(case, right, paid, budget):
    """Mean accuracy and cost, where what the budget does not pay for is answered with the larger class."""
    constant = np.mean(case.y_test == (case.y.mean() > 0.5))
    share = min(1.0, budget / np.mean(paid))
    return share * np.mean(right) + (1 - share) * constant, share * np.mean(paid)


METHODS = {
    "cascade": cascade,
    "GreedyMiser + confidence": frontier.miser,
    "LightGBM top-k + confidence": top_k,
}


def main():
    """Print a table for each number of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=list(NAMES))
    parser.add_argument("--rows", type=int, nargs="+", default=[150, 300, 600, 1200])
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    frontier.N_JOBS = 1
    for n_rows in chosen.rows:
        print(
            f"\n| {n_rows} rows, {chosen.draws} draws | method | three budgets: accuracy, standard error, spent |"
        )
        print("|---|---|---|")
        for name in chosen.tables:
            if len(load(name)[1]) < n_rows + 100:
                continue  # too few others to count on
            budgets = TABLES[name][-1]
            found = {method: [] for method in chosen.methods}
            for seed in range(chosen.draws):
                case = draw(name, n_rows, seed)
                for method in chosen.methods:
                    at, _ = METHODS[method](case, budgets)
                    found[method].append(
                        [afforded(case, *one, budget) for one, budget in zip(at, budgets, strict=True)]
                    )
            y = load(name)[1]
            for method, values in found.items():
                mean, error = (
                    np.mean(values, axis=0),
                    np.std(values, axis=0) / np.sqrt(max(len(values) - 1, 1)),
                )
                cells = [
                    f"<= {budget}: {one:.3f} ± {spread:.3f} @ {paid:.2f}"
                    for budget, (one, paid), (spread, _) in zip(budgets, mean, error, strict=True)
                ]
                label = f"{name}, majority {max(y.mean(), 1 - y.mean()):.3f}"
                print(f"| {label} | {method} | {'; '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
