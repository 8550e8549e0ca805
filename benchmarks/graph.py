"""A graph of purchases against a line, and against a masked model that chooses per row: score at mean test cost, held.

    python benchmarks/graph.py letters26_12000 letters26 --methods line graph neighbours masked
    python benchmarks/graph.py letters gas_drift pol bike_hour --methods line graph auto
    python benchmarks/graph.py heart pima thyroid --methods line graph auto masked
    python benchmarks/graph.py nodes

Data lies in THRIFTY_DATA (default ../shared/data). Cases are those of `targets.py` and `frontier.py`;
`letters26_12000` is fitted on the first 12,000 rows of Letters. "Held" sets the operating point by what the test rows
pay, which needs no labels. Data sets with real prices have five folds, whose test answers are pooled; "money" is what
features and mistakes cost together, a mistake at the price of all features, at the budget where that is least.

`masked` is what a user could write in a day: one ensemble of trees fitted on rows of which random columns are missing,
trees that predict from such a row what each further column gains per unit of price, a purchase of the best one for each
row until the ensemble is confident, and the full model for rows that stay in doubt.

`nodes` prints what fitting a graph on 4,000 rows of Letters takes against the number of its nodes.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier

from frontier import BUDGETS, load_large, load_priced
from targets import CASES, Case
from thrifty import BudgetedClassifier, BudgetedRegressor, Prices, StageOptions, hold_budget
from thrifty.cascade import graph as search
from thrifty.chain.stage import nodes_of

OF_NUMBERS = ("pol", "bike_hour")
MAX_BOUGHT = 10
COPIES = 4


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


def structured(structure):
    """A method: the cascade of this structure."""

    def fit(case, costs, n_jobs):
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
        n_nodes = sum(len(nodes_of(stage)) for stage in model.chain_.stages)
        cheapest = model.chain_.at(model.chain_.policy.at(0)).cost(case.X_test).mean()

        def held(budget):
            system = hold_budget(model, case.X_test, max(budget, cheapest))
            return system.predict(case.X_test), system.cost(case.X_test)

        told = f"{n_nodes} nodes, predict {time.process_time() - start:.2f} s"
        return held, told

    return fit


def masked(case, costs, n_jobs):  # noqa: ARG001 - one processor
    """The rival: buys for each row the column that trees expect to gain most, until one masked ensemble is sure."""
    rng = np.random.default_rng(0)
    costs = np.ones(case.X.shape[1]) if costs is None else costs
    n_columns, order = case.X.shape[1], rng.permutation(len(case.y))
    learn, teach = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
    model = HistGradientBoostingClassifier(max_iter=150, random_state=0)
    X, y = np.tile(case.X[learn], (COPIES, 1)), np.tile(case.y[learn], COPIES)
    model.fit(_hidden(X, rng), y)
    hidden, y = _hidden(case.X[teach], rng), case.y[teach]
    gains = np.zeros(hidden.shape)
    before = _losses(model, hidden, y)
    for column in range(n_columns):
        shown = hidden.copy()
        shown[:, column] = case.X[teach, column]
        gains[:, column] = (before - _losses(model, shown, y)) / max(costs[column], 1e-9)
    worth = ExtraTreesRegressor(100, min_samples_leaf=10, random_state=0).fit(_marked(hidden), gains)
    doubts, answers, paid = _walk(model, worth, case.X_test, costs)
    full = clone(case.full).fit(case.X, case.y)
    answers.append(full.predict(case.X_test))
    paid.append(np.full(len(case.X_test), costs.sum()))
    doubts, answers, paid = np.array(doubts), np.array(answers), np.array(paid)

    def held(budget):
        best = None
        for threshold in np.r_[0.0, np.geomspace(1e-4, 1.0, 200)]:
            stops = np.vstack([doubts <= threshold, np.ones((1, doubts.shape[1]), dtype=bool)]).argmax(axis=0)
            cost = paid[stops, np.arange(len(stops))]
            if cost.mean() <= budget and (best is None or cost.mean() > best[1].mean()):
                best = answers[stops, np.arange(len(stops))], cost
        return best if best is not None else (answers[0], paid[0])

    return held, "one masked ensemble"


def _hidden(X, rng):
    share = rng.random((len(X), 1))
    return np.where(rng.random(X.shape) < share, X, np.nan)


def _marked(X):
    return np.nan_to_num(X, nan=-1e6)


def _losses(model, X, y):
    chance = model.predict_proba(X)
    return -np.log(np.clip(chance[np.arange(len(y)), np.searchsorted(model.classes_, y)], 1e-6, 1))


def _walk(model, worth, X, costs):
    """Doubt, answer and cost of every test row after each purchase of its own."""
    held, rows = np.full(X.shape, np.nan), np.arange(len(X))
    doubts, answers, paid = [], [], []
    for _ in range(min(MAX_BOUGHT, X.shape[1])):
        expected = np.where(np.isnan(held), worth.predict(_marked(held)), -np.inf)
        taken = expected.argmax(axis=1)
        held[rows, taken] = X[rows, taken]
        chance = model.predict_proba(held)
        doubts.append(1 - chance.max(axis=1))
        answers.append(model.classes_[chance.argmax(axis=1)])
        paid.append((~np.isnan(held) * costs).sum(axis=1))
    return doubts, answers, paid


METHODS = {
    "line": structured("line"),
    "graph": structured("graph"),
    "neighbours": structured("neighbours"),
    "auto": structured("auto"),
    "masked": masked,
}


def print_table(name, methods, budgets, n_jobs):
    cases = list(cases_of(name))
    budgets = budgets or cases[0][0].budgets
    y = np.concatenate([case.y_test for case, _ in cases])
    print(f"\n{name}: {len(cases[0][0].y):,} rows, {len(y):,} test rows")
    print(
        "| | " + " | ".join(f"{budget:g}" for budget in budgets) + " |\n" + "|---" * (1 + len(budgets)) + "|"
    )
    for method in methods:
        start = time.process_time()
        fits = [METHODS[method](case, costs, n_jobs) for case, costs in cases]
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
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)
        least = f", money {min(money):.2f}" if money and cases[0][1] is not None else ""
        print(f"  {method}: {seconds:.0f} s of processor, {fits[0][1]}{least}", flush=True)


def print_nodes():
    """What fitting takes against the number of nodes; Letters, 4,000 rows, stages of 30 trees of depth 6."""
    case = CASES["letters26"]()
    print("| nodes | fit, s of processor |\n|---|---|")
    for width in (0, 1, 4, 12):
        search.WIDTH = max(width, 1)
        structure = "graph" if width else "line"
        start = time.process_time()
        model = BudgetedClassifier(
            case.full, stages=StageOptions(sizes=[(30, 6)], structure=structure), n_jobs=1, random_state=0
        ).fit(case.X[:4_000], case.y[:4_000])
        n_nodes = sum(len(nodes_of(stage)) for stage in model.chain_.stages)
        print(f"| {n_nodes} ({structure}) | {time.process_time() - start:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+")
    parser.add_argument("--methods", nargs="+", default=["line", "graph"], choices=sorted(METHODS))
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.data:
        if name == "nodes":
            print_nodes()
        else:
            print_table(name, chosen.methods, chosen.budgets, chosen.jobs)


if __name__ == "__main__":
    main()
