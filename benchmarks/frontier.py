"""Accuracy on test rows at mean test cost, for any data set, method and list of budgets.

    python benchmarks/frontier.py letters --methods cascade miser --budgets 3 4 5 6 7 8 10
    python benchmarks/frontier.py heart pima hepatitis --methods cascade miser
    python benchmarks/frontier.py miniboone --methods cascade large-miser cegb dynamod recursion

Data lies in THRIFTY_DATA (default ../shared/data). f0 is fitted and cross-fitted once, before the clock starts; every
method is given f0's out-of-fold probabilities on the rows for fitting and its probabilities on the test rows. Nothing
is chosen on test rows, so what a method spends there may differ a little from its budget: it is printed behind
the accuracy. Rivals of one stage hold a quarter of the rows out to choose their settings and thresholds on.

`large-miser` and `cegb` have as many trees in each fit as the cascade that was fitted before them has in all its stages
(2,400 of depth 10 if there was none), of the same depth or as many leaves. `dynamod` is the paper's Algorithm 2 with
one stage; `recursion` is its literal recursion, a fitted one as the f0 of the next, for two and three stages.
`held`, after `cascade`, is the same fit with its operating point set by what the test rows pay (`hold_budget`).

Data sets with real prices are small: five folds, each the test rows of a fit on the other four, all
test answers pooled, with a 95 % bootstrap band over rows.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from thrifty import BudgetedClassifier, DynaModGbrtClassifier, Frontier, evidence_of, hold_budget
from thrifty.bundle import to_bytes
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.tasks.logistic import platt
from thrifty.learners.dynamod import BoostedOptions
from thrifty.rows import content_folds

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
N_JOBS = 2


@dataclass
class Case:
    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    costs: np.ndarray
    full: object
    held_out: np.ndarray = None  # f0's out-of-fold probabilities on X
    on_test: np.ndarray = None

    def cross_fit_full(self, n_folds=4):
        start = time.perf_counter()
        raw = np.empty(len(self.y))
        for train, test in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(self.X, self.y):
            raw[test] = score_of(clone(self.full).fit(self.X[train], self.y[train]), self.X[test])
        there = score_of(clone(self.full).fit(self.X, self.y), self.X_test)
        slope, intercept = platt(raw, 2.0 * self.y - 1, np.ones(len(self.y)))
        if not hasattr(self.full, "predict_proba"):
            raw, there = slope * raw + intercept, slope * there + intercept
        self.held_out, self.on_test = (np.clip(expit(scores), 1e-6, 1 - 1e-6) for scores in (raw, there))
        return time.perf_counter() - start


def score_of(model, X):
    if hasattr(model, "predict_proba"):
        return logit(np.clip(model.predict_proba(X)[:, 1], 1e-6, 1 - 1e-6))
    return model.decision_function(X)


# -- data --------------------------------------------------------------------------------------


def forest():
    return RandomForestClassifier(200, n_jobs=N_JOBS, random_state=0)


def load_large(name):
    if name == "letters":
        arrays = np.load(DATA / "letter.npz")
        X, y = arrays["X"].astype(float), (arrays["y"] >= 13).astype(int)
        full = make_pipeline(StandardScaler(), SVC(C=10, gamma=0.3))
        return Case(name, X[:16000], y[:16000], X[16000:], y[16000:], np.ones(16), full)
    if name == "forest":
        arrays = np.load(DATA / "covtype.npz")
        order = np.random.default_rng(0).permutation(len(arrays["y"]))[: 52_291 + 20_000]
        X, y = arrays["X"][order].astype(float), (arrays["y"][order] == 2).astype(int)
        return Case(name, X[:52_291], y[:52_291], X[52_291:], y[52_291:], np.ones(54), forest())
    arrays = np.load(DATA / "miniboone_5k.npz")
    X, y, is_test = arrays["X"].astype(float), arrays["y"].astype(int), arrays["split"] == 2
    return Case(name, X[~is_test], y[~is_test], X[is_test], y[is_test], np.ones(50), forest())


def load_priced(name):
    file = {"heart": "heart_cleveland", "pima": "pima_diabetes"}.get(name, name)
    arrays = np.load(DATA / f"cost_{file}.npz")
    X, y, costs = arrays["X"].astype(float), arrays["y"].astype(int), arrays["cost"].astype(float)
    y = (y > 0).astype(int)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        yield Case(name, X[train], y[train], X[test], y[test], costs, forest())


BUDGETS = {
    "letters": [3, 4, 5, 6, 7, 8, 10],
    "forest": [3, 4, 5, 6, 8, 10, 12, 15, 20],
    "miniboone": [2, 4, 6, 8, 10],
    "heart": [2, 5, 20, 50, 100, 200],
    "pima": [2, 5, 10, 20, 30],
    "hepatitis": [2, 4, 8, 15, 25],
}


LARGE = ("letters", "forest", "miniboone")


# -- methods: each gives, per budget, (right, cost) of every test row ----------------------------


FITTED = {}  # cascades by the identity of their case


def held(case, budgets):
    """The cascade fitted before, its operating point set by what the test rows would pay: no labels are needed."""
    clf = FITTED[id(case)]
    found = []
    for budget in budgets:
        cheapest = clf.chain_.at(clf.chain_.policy.at(0)).cost(case.X_test).mean()
        system = hold_budget(clf, case.X_test, max(budget, cheapest))
        found.append((system.predict(case.X_test) == case.y_test, system.cost(case.X_test)))
    return found, "nothing fitted"


def cascade(case, budgets):
    start, processor = time.perf_counter(), time.process_time()
    clf = BudgetedClassifier(case.held_out, feature_costs=case.costs, n_jobs=N_JOBS, random_state=0)
    clf.fit(case.X, case.y)
    fitting, processor = time.perf_counter() - start, time.process_time() - processor
    clf = FITTED[id(case)] = clf.with_full(case.on_test, case.X_test)
    found = []
    for budget in budgets:
        there = clf.at(budget=max(budget, clf.chain_.policy.cost[0]))
        start, used = time.perf_counter(), time.process_time()
        right = there.predict(case.X_test) == case.y_test
        predicting, used = time.perf_counter() - start, time.process_time() - used
        found.append((right, there.cost(case.X_test)))
    n_trees = sum(stage.trees.n_trees for stage in clf.chain_.stages)
    SIZE[case.name] = (n_trees, clf.size_[1])
    megabytes = len(to_bytes(clf, full="absent")) / 1e6
    sizes = f"{megabytes:.2f} MB, {n_trees} trees in {clf.n_stages_} stages of {clf.size_[0]} trees of "
    sizes += f"depth {clf.size_[1]}"
    return (
        found,
        f"fit {fitting:.0f} s ({processor:.0f} of processor), predict {predicting:.2f} s ({used:.2f}), {sizes}",
    )


def single_stage(budgets, systems):
    """Evidence of many systems on rows held out, reduced to a frontier, and the same points on the test rows."""
    chosen, there = zip(*systems, strict=True)
    frontier = Frontier.from_evidence(chosen)
    tested = frontier.on(there)
    found = []
    for budget in budgets:
        point = tested.best(budget=max(budget, frontier.cost[0]))
        _, cost, right = there[point.source].at_point(np.array(point.thresholds))
        found.append((right, cost))
    return found


SIZE = {}  # (trees, depth) of the cascade that was fitted last on a data set: what rivals of equal size have
LARGEST = (2400, 10)


def prices_of(case, n_prices):
    """Prices of a split, on the scale of a sum over rows."""
    return np.geomspace(3e-4, 3e-1, n_prices) * len(case.y) / case.costs.mean()


def held_out_quarter(case):
    return content_folds(case.X, case.y * 2.0 - 1, 4, 1) == 0


def both_kinds_of_rows(case, is_val):
    """Rows to choose on and rows to test on, with f0's probabilities."""
    return (
        (case.X[is_val], case.y[is_val], case.held_out[is_val]),
        (case.X_test, case.y_test, case.on_test),
    )


def miser(case, budgets, n_trees=200, max_depth=4, n_prices=12):
    """GreedyMiser for many prices, each with |f1| as its gate."""
    start = time.perf_counter()
    is_val = held_out_quarter(case)
    systems = []
    for gamma in prices_of(case, n_prices):
        clf = GreedyMiserClassifier(
            n_trees=n_trees, max_depth=max_depth, gamma=gamma, feature_costs=case.costs
        )
        clf.fit(case.X[~is_val], case.y[~is_val])
        if len(clf.features_):
            settings = {"gamma": float(gamma)}
            systems.append(
                [
                    evidence_of(clf, X, y, settings=settings, full_probability=full)
                    for X, y, full in both_kinds_of_rows(case, is_val)
                ]
            )
    found = single_stage(budgets, systems)
    seconds = time.perf_counter() - start
    return found, f"{len(systems)} fits of {n_trees} trees of depth {max_depth}, {seconds:.0f} s"


def large_miser(case, budgets):
    n_trees, max_depth = SIZE.get(case.name, LARGEST)
    return miser(case, budgets, n_trees, max_depth, n_prices=6)


def cegb(case, budgets):
    """LightGBM's penalties for first use, each with |f1| as its gate."""
    import lightgbm

    start = time.perf_counter()
    n_trees, max_depth = SIZE.get(case.name, LARGEST)
    is_val = held_out_quarter(case)
    systems = []
    for penalty in prices_of(case, 6):
        settings = {
            "objective": "binary", "num_leaves": 2**max_depth, "max_depth": max_depth, "learning_rate": 0.1,
            "verbose": -1, "num_threads": 1, "seed": 0, "min_data_in_leaf": 5,
            "cegb_penalty_feature_coupled": (penalty * case.costs).tolist(),
        }  # fmt: skip
        data = lightgbm.Dataset(case.X[~is_val], case.y[~is_val], free_raw_data=False)
        model = lightgbm.train(settings, data, n_trees)
        used = np.flatnonzero(model.feature_importance())
        if len(used):
            systems.append(
                [
                    confident(model.predict(X, raw_score=True), y, full, case.costs, used, penalty)
                    for X, y, full in both_kinds_of_rows(case, is_val)
                ]
            )
    found = single_stage(budgets, systems)
    seconds = time.perf_counter() - start
    return found, f"{len(systems)} fits of {n_trees} trees of depth {max_depth}, {seconds:.0f} s"


def dynamod_fit(case, rows, full, gamma, p_full):
    clf = DynaModGbrtClassifier(
        full,
        options=BoostedOptions(n_trees=100, max_depth=6, max_iter=3),
        gamma=gamma,
        p_full=p_full,
        feature_costs=case.costs,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clf.fit(case.X[rows], case.y[rows])


def dynamod(case, budgets):
    """The paper's Algorithm 2 for a few prices and shares, every threshold of the gate."""
    start = time.perf_counter()
    is_val = held_out_quarter(case)
    systems = []
    for gamma in prices_of(case, 6):
        for p_full in (0.1, 0.3, 0.6):
            clf = dynamod_fit(case, ~is_val, case.held_out[~is_val], gamma, p_full)
            settings = {"gamma": float(gamma), "p_full": p_full}
            if len(clf.features_):
                systems.append(
                    [
                        evidence_of(clf, X, y, settings=settings, full_probability=full)
                        for X, y, full in both_kinds_of_rows(case, is_val)
                    ]
                )
    found = single_stage(budgets, systems)
    return found, f"{len(systems)} fits of 2 x 100 trees of depth 6, {time.perf_counter() - start:.0f} s"


def recursion(case, budgets):
    """The literal recursion: a fitted DynaMod is the f0 of a cheaper one, two and three stages deep."""
    start = time.perf_counter()
    is_val = held_out_quarter(case)
    rows = both_kinds_of_rows(case, is_val)
    # A model that learns from the rows it is judged on trusts itself too much: f0 is judged out of fold, what stands
    # before it on the rows it was fitted on, as in the paper.
    systems = []
    for dear, middle, cheap in zip(*(prices_of(case, 9)[part : part + 5] for part in (0, 2, 4)), strict=True):
        for p_full in (0.3, 0.6):
            inner = dynamod_fit(case, ~is_val, case.held_out[~is_val], dear, p_full)
            for depth, gamma in ((2, middle), (3, cheap)):
                inner = dynamod_fit(case, ~is_val, FrozenEstimator(inner), gamma, p_full)
                if len(inner.features_):
                    settings = {"gamma": float(gamma), "p_full": p_full, "stages": depth}
                    systems.append(
                        [
                            evidence_of(inner, X, y, settings=settings, full_probability=full)
                            for X, y, full in rows
                        ]
                    )
    found = single_stage(budgets, systems)
    return found, f"{len(systems)} systems of 2 and 3 stages, {time.perf_counter() - start:.0f} s"


def confident(score, y, full, costs, used, penalty):
    stop, go = float(costs[used].sum()), float(costs.sum())
    right = (score > 0) == y
    return Evidence.of_gate(
        -np.abs(score),
        stop_cost=stop,
        go_cost=go,
        stop_quality=right,
        go_quality=(full > 0.5) == y,
        settings={"penalty": float(penalty)},
    )


METHODS = {
    "cascade": cascade,
    "held": held,
    "miser": miser,
    "large-miser": large_miser,
    "cegb": cegb,
    "dynamod": dynamod,
    "recursion": recursion,
}


# -- tables ------------------------------------------------------------------------------------


def band(right, n_boot=1000):
    draws = np.random.default_rng(0).integers(0, len(right), (n_boot, len(right)))
    return np.quantile(right[draws].mean(axis=1), [0.025, 0.975])


def print_table(name, methods, budgets):
    cases = [load_large(name)] if name in LARGE else list(load_priced(name))
    seconds = sum(case.cross_fit_full() for case in cases)
    full_right = np.concatenate([(case.on_test > 0.5) == case.y_test for case in cases])
    f0 = f"f0 {full_right.mean():.3f} at cost {cases[0].costs.sum():g} ({seconds:.0f} s)"
    print(f"\n{name}: {f0}, {len(full_right):,} test rows")
    print("| mean cost <= | " + " | ".join(f"{budget:g}" for budget in budgets) + " |")
    print("|---" * (len(budgets) + 1) + "|")
    for method in methods:
        runs = [METHODS[method](case, budgets) for case in cases]
        cells = []
        for place in range(len(budgets)):
            right = np.concatenate([found[place][0] for found, _ in runs])
            cost = np.concatenate(
                [np.broadcast_to(found[place][1], len(found[place][0])) for found, _ in runs]
            )
            low, high = band(right) if len(cases) > 1 else (None, None)
            spread = f" [{low:.3f}, {high:.3f}]" if low is not None else ""
            cells.append(f"{right.mean():.3f}{spread} @ {cost.mean():.2f}")
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)
        print(f"  {method}: {runs[0][1]}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", choices=sorted(BUDGETS))
    parser.add_argument("--methods", nargs="+", default=["cascade", "miser"], choices=sorted(METHODS))
    parser.add_argument("--budgets", nargs="+", type=float)
    chosen = parser.parse_args()
    for name in chosen.data:
        print_table(name, chosen.methods, chosen.budgets or BUDGETS[name])


if __name__ == "__main__":
    main()
