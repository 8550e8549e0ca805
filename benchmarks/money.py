"""Total cost on test rows, tests and mistakes together, at the prices and discounts of Turney (1995).

    python benchmarks/money.py [heart pima hepatitis thyroid] [--mistakes 5 20 100] [--no-discounts]

Data lies in THRIFTY_DATA (default ../shared/data). Of the tests of one group, all but the first that a row buys are
cheaper: blood is drawn once for all of them. Every method is billed so. A mistake costs 5, 20 or 100 times the mean
price of a test that is bought alone. Of five folds, each is the test rows of a fit on the other four (thyroid: two of
them); test rows are pooled, with a 95 % bootstrap interval over rows. f0 is a forest of 200 trees, cross-fitted once
for a fold.

`thrifty` is BudgetedClassifier(loss=matrix) with default settings and no budget. `full model` asks f0 about every row.
`never test` gives the best constant answer of the fit rows. `top k` ranks columns by the gain of a LightGBM that reads
all of them, and fits one on the first k; k, which may be none, has the least total cost in four folds of the fit rows.
"""

import argparse
import time
import warnings

import lightgbm
import numpy as np
from sklearn.model_selection import StratifiedKFold

from frontier import DATA, load_priced
from reproduction import datasets
from thrifty import BudgetedClassifier, Prices
from thrifty.engine.prices.prices import check_price_list

TABLES = ["heart", "pima", "hepatitis", "thyroid"]
N_FOLDS = {"thyroid": 2}  # 2,880 test rows are enough, and a fit takes longest there


def boosted(X, y):
    settings = {"objective": "binary", "num_leaves": 15, "verbose": -1, "num_threads": 1, "seed": 0}
    return lightgbm.train(settings, lightgbm.Dataset(X, y), 60)


def answers_of_top(X, y, columns, X_test):
    """Answers of a model that reads some columns; the most frequent one if there are none."""
    if not len(columns):
        return np.full(len(X_test), int(2 * y.sum() > len(y)))
    return (boosted(X[:, columns], y).predict(X_test[:, columns]) > 0.5).astype(int)


class TopColumns:
    """Columns by gain, and how often a model on the first k of them errs on rows that it has not seen."""

    def __init__(self, case, prices):
        self.case = case
        self.order = np.argsort(-boosted(case.X, case.y).feature_importance("gain"), kind="stable")
        self.cost = np.array([prices.cost_of(self.order[:k]) for k in range(len(self.order) + 1)])
        self.error = np.zeros(len(self.cost))
        for train, test in StratifiedKFold(4, shuffle=True, random_state=0).split(case.X, case.y):
            for k in range(len(self.cost)):
                found = answers_of_top(case.X[train], case.y[train], self.order[:k], case.X[test])
                self.error[k] += (found != case.y[test]).sum() / len(case.y)

    def at(self, price):
        k = int(np.argmin(self.cost + price * self.error))
        found = answers_of_top(self.case.X, self.case.y, self.order[:k], self.case.X_test)
        return np.full(len(found), self.cost[k]), found


def cascade(case, given, price):
    clf = BudgetedClassifier(case.held_out, loss=price * (1 - np.eye(2)), feature_costs=given, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = clf.fit(case.X, case.y).with_full(case.on_test, case.X_test)
    return clf.cost(case.X_test), clf.predict(case.X_test)


def run(case, given, multiples):
    """What each method pays for tests and for mistakes on each test row, by multiple."""
    case.cross_fit_full()
    prices = check_price_list(Prices(given), len(case.costs))
    top, found = TopColumns(case, prices), {}
    for multiple in multiples:
        price, n_rows = multiple * case.costs.mean(), len(case.y_test)
        ways = {
            "thrifty": cascade(case, given, price),
            "full model": (np.full(n_rows, prices.cost_of_everything), (case.on_test > 0.5).astype(int)),
            "never test": (np.zeros(n_rows), answers_of_top(case.X, case.y, [], case.X_test)),
            "LightGBM, top k": top.at(price),
        }
        for name, (cost, answer) in ways.items():
            found[name, multiple] = np.column_stack([cost, price * (answer != case.y_test)])
    return found


def interval(total, n_boot=1000):
    draws = np.random.default_rng(0).integers(0, len(total), (n_boot, len(total)))
    return np.quantile(total[draws].mean(axis=1), [0.025, 0.975])


def print_table(name, multiples, *, discounts=True):
    start, cases = time.process_time(), list(load_priced(name))[: N_FOLDS.get(name)]
    costs = cases[0].costs
    given = Prices(costs, discounts=datasets.load_priced(name, DATA).discounts if discounts else {})
    runs = [run(case, given, multiples) for case in cases]
    print(
        f"\n{name}: {sum(len(case.y_test) for case in cases):,} test rows, {time.process_time() - start:.0f} s"
    )
    heads = [f"{multiple:g} tests = {multiple * costs.mean():.4g}" for multiple in multiples]
    print(f"| {name}, a mistake costs | " + " | ".join(heads) + " |\n" + "|---" * (len(heads) + 1) + "|")
    for method in dict.fromkeys(method for method, _ in runs[0]):
        cells = []
        for multiple in multiples:
            paid = np.concatenate([one[method, multiple] for one in runs])
            (tests, mistakes), (low, high) = paid.mean(axis=0), interval(paid.sum(axis=1))
            cells.append(f"{tests + mistakes:.4g} [{low:.4g}, {high:.4g}] = {tests:.4g} + {mistakes:.4g}")
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", default=TABLES)
    parser.add_argument("--mistakes", nargs="+", type=float, default=[5, 20, 100])
    parser.add_argument(
        "--no-discounts", action="store_true", help="bill every test as if it were the only one"
    )
    chosen = parser.parse_args()
    for name in chosen.data:
        print_table(name, chosen.mistakes, discounts=not chosen.no_discounts)


if __name__ == "__main__":
    main()
