"""Targets other than two classes: score on test rows at mean test cost, held within each budget.

    python benchmarks/targets.py letters26 forest7 gas_drift gas_drift_time [--jobs 2]
    python benchmarks/targets.py pol bike_hour cpu_act concrete [--budgets 3 4 5] [--jobs 2]
    python benchmarks/targets.py satimage thyroid cpu_act_6 pima --rival

Data lies in THRIFTY_DATA (default ../shared/data). Every fit has default settings. Sensors of gas_drift are groups,
each at price 1. `gas_drift` draws test rows at random; `gas_drift_time` fits on batches 1 to 5 and is tested on each
later batch by itself, with the full model beside it. Classes are scored by accuracy, numbers by the root of the mean
squared error in units of the standard deviation of the first 60 % of the targets. The full
model is cross-fitted by the fit itself; what fitting it once takes is printed beside. "Held" sets the operating
point by what the test rows pay (`hold_budget`), which needs no labels; nothing is chosen on test rows otherwise.

`--rival` adds two LightGBMs in a row: one on the first columns by gain, or by gain for the price, one on more or all;
the columns and sizes of both, the threshold between them and the random mix of two such pairs are the best out of fold.
Both hold the budget on the test rows. Small tables are divided five times, and their scores are means. Points of the
difference are ours minus theirs, errors with the sign turned.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.datasets import load_gas_drift, load_priced
from thrifty import BudgetedClassifier, BudgetedRegressor, Prices, hold_budget
from thrifty.engine.evidence.thresholds import convex_hull

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
    costs: object = None


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


def split_anew(load, full, budgets):
    """A table divided at random, by the number of the division: four fifths to fit on."""

    def divided(seed=0):
        X, y, costs = load()
        strata = y if is_classifier(full) else None
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, stratify=strata, random_state=seed)
        if strata is None:
            y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
        return Case(X, y, X_test, y_test, full, budgets, costs=costs)

    return divided


def arrays_of(name):
    arrays = np.load(DATA / f"{name}.npz")
    return arrays["X"].astype(float), arrays["y"], None


def priced(name):
    table = load_priced(name, DATA)
    return table.X, table.y, table.feature_costs


CASES = {
    "satimage": split_anew(lambda: arrays_of("satimage"), forest(), [2, 3, 4, 6, 8, 12]),
    "thyroid": split_anew(lambda: priced("thyroid"), forest(), [2, 5, 10, 20, 25, 35]),
    "cpu_act_6": split_anew(lambda: arrays_of("cpu_act"), extra_trees(), [2, 3, 4, 6, 8, 12]),
    "pima": split_anew(lambda: priced("pima"), forest(), [2, 5, 10, 15, 20, 30]),
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


# -- the rival --------------------------------------------------------------------------------------

SIZES = ({"n_estimators": 60, "num_leaves": 15}, {"n_estimators": 200, "num_leaves": 31})


def losses_and_doubts(outputs, y):
    """Loss of each answer, and how doubtful it is: of classes by the margin, of numbers learned by the caller."""
    if outputs.ndim == 1:
        return np.square(outputs - y), None
    best = np.sort(outputs, axis=1)
    return (outputs.argmax(axis=1) != y).astype(float), best[:, -2] - best[:, -1]


class TwoStages:
    """Candidates are all pairs of models, and every threshold between them; a budget mixes two at random."""

    def __init__(self, case):
        X, y, X_test, y_test = case.X, case.y, case.X_test, case.y_test
        has_classes = is_classifier(case.full)
        y, y_test = (np.unique(y, return_inverse=True)[1] if has_classes else y for y in (y, y_test))
        kind = LGBMClassifier if has_classes else LGBMRegressor
        costs = np.ones(X.shape[1]) if case.costs is None else case.costs
        gain = kind(importance_type="gain", verbose=-1, n_jobs=1).fit(X, y).feature_importances_
        method = "predict_proba" if has_classes else "predict"
        models, self.points = {}, []
        for order in {tuple(np.argsort(-gain)), tuple(np.argsort(-gain / costs))}:
            counts = sorted({*(k for k in (1, 2, 3, 4, 6, 8, 12, 20) if k < len(order)), len(order)})
            for k in counts:
                for number, size in enumerate(SIZES):
                    held, cost = list(order[:k]), costs[list(order[:k])].sum()
                    model = kind(**size, learning_rate=0.05 if number else 0.1, verbose=-1, n_jobs=1)
                    folds = cross_val_predict(model, X[:, held], y, cv=5, method=method)
                    outputs = getattr(model.fit(X[:, held], y), method)(X_test[:, held])
                    pairs = [losses_and_doubts(folds, y), losses_and_doubts(outputs, y_test)]
                    if not has_classes:  # the doubt about a number is its squared error, learned out of fold
                        error = LGBMRegressor(n_estimators=60, num_leaves=15, verbose=-1, n_jobs=1)
                        doubt = cross_val_predict(error, X[:, held], pairs[0][0], cv=5)
                        of_test = error.fit(X[:, held], pairs[0][0]).predict(X_test[:, held])
                        pairs = [(pairs[0][0], doubt), (pairs[1][0], of_test)]
                    models[order, k, number] = cost, *pairs
            for k, number in ((k, number) for k in counts for number in range(len(SIZES))):
                first = models[order, k, number]
                second = [models[order, more, n] for more in counts if more > k for n in range(len(SIZES))]
                self.points += [
                    point for behind in second or [first] for point in self._points(first, behind)
                ]
        self.points = np.array(self.points)
        chosen = convex_hull(self.points[:, 0], -self.points[:, 1])
        self.points = self.points[chosen]

    @staticmethod
    def _points(first, second):
        """Cost and loss out of fold, and cost and loss of the test rows, at 41 thresholds between two models."""
        (cost, fitted, tested), (full_cost, *others) = first, second
        for share in np.linspace(0, 1, 41):
            threshold, point = np.quantile(fitted[1], 1 - share), []
            for (loss, doubt), (other, _) in zip((fitted, tested), others, strict=True):
                goes_on = doubt > threshold
                point += [cost + goes_on.mean() * (full_cost - cost), np.where(goes_on, other, loss).mean()]
            yield point

    def at(self, budget):
        """Mean loss and cost of the test rows; a random mix of two points that holds the budget on these rows."""
        cost = np.maximum.accumulate(self.points[:, 2])
        return np.interp(budget, cost, self.points[:, 3]), np.clip(budget, cost[0], cost[-1])


def beside_rival(name, budgets, n_jobs):
    """Scores of both at each budget, means over divisions, and their difference in points."""
    rows = {"two LightGBMs": [], "cascade, budget held": []}
    n_splits = 1 if len(CASES[name]().y) > 2_000 else 5
    for seed in range(n_splits):
        case = CASES[name](seed)
        budgets, rival = budgets or case.budgets, TwoStages(case)
        kind = BudgetedClassifier if is_classifier(case.full) else BudgetedRegressor
        model = kind(case.full, prices=Prices(case.costs), n_jobs=n_jobs, random_state=0).fit(case.X, case.y)
        cheapest = model.chain_.at(model.chain_.policy.at(0)).cost(case.X_test).mean()
        ours, theirs = [], []
        for budget in budgets:
            held = hold_budget(model, case.X_test, max(budget, cheapest))
            ours.append((score_of(held, case.X_test, case.y_test), held.cost(case.X_test).mean()))
            loss, cost = rival.at(budget)
            theirs.append((1 - loss if is_classifier(case.full) else np.sqrt(loss), cost))
        rows["two LightGBMs"].append(theirs)
        rows["cascade, budget held"].append(ours)
    means = {who: np.mean(scores, axis=0) for who, scores in rows.items()}
    sign = 1 if is_classifier(case.full) else -1
    print(
        f"\n| {name}, {n_splits} split{'s' * (n_splits > 1)} | "
        + " | ".join(f"{budget:g}" for budget in budgets)
        + " |"
    )
    print("|---" * (1 + len(budgets)) + "|")
    for who, scores in means.items():
        print(f"| {who} | " + " | ".join(f"{score:.3f} @ {cost:.2f}" for score, cost in scores) + " |")
    lead = 100 * sign * (means["cascade, budget held"] - means["two LightGBMs"])[:, 0]
    print("| difference in points | " + " | ".join(f"{points:+.1f}" for points in lead) + " |", flush=True)
    return lead.tolist()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", choices=sorted(CASES))
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rival", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.rival:
        leads = [lead for name in chosen.data for lead in beside_rival(name, chosen.budgets, chosen.jobs)]
        print(f"\nmedian {np.median(leads):+.1f}; ahead in {sum(lead > 0 for lead in leads)} of {len(leads)}")
        return
    for name in chosen.data:
        run(name, chosen.budgets, chosen.jobs)


if __name__ == "__main__":
    main()
