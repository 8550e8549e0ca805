"""Score on test rows at mean test cost, for any table, method and list of budgets.

    python benchmarks/frontier.py letters --methods cascade held large-miser cegb dynamod --budgets 3 4 5
    python benchmarks/frontier.py heart pima hepatitis --methods cascade held miser cegb
    python benchmarks/frontier.py letters26 forest7 gas_drift gas_drift_time pol bike_hour cpu_act concrete
    python benchmarks/frontier.py satimage thyroid cpu_act_6 pima --methods held two-lightgbms

Data lies in THRIFTY_DATA (default ../shared/data); fits have default settings. Classes are scored by accuracy, numbers
by the root of the mean squared error in units of the standard deviation of the targets. Nothing is chosen on test rows,
so what a method spends there may differ a little from its budget: it is printed behind the score. `held` is the fit of
`cascade` with its operating point set by what the test rows pay (`hold_budget`), which needs no labels.

Of two classes, f0 is fitted and cross-fitted once, and every method is given its out-of-fold probabilities on the rows
for fitting and its probabilities on the test rows. Rivals of one stage hold a quarter of the rows out to choose their
settings and thresholds on. `large-miser` and `cegb` have as many trees in each fit as the cascade that was fitted
before them has in all its stages (2,400 of depth 10 if there was none), of the same depth or as many leaves. `dynamod`
is the paper's Algorithm 2 with one stage; `recursion` is its literal recursion, a fitted one as the f0 of the next, for
two and three stages. `two-lightgbms`, for all targets: one on the first columns by gain, or by gain for the price, one
on more or all; the columns and sizes of both, the threshold between them and the random mix of two such pairs are the
best out of fold, and hold the budget on the test rows.

Small tables are divided five times: with real prices into five folds, each the test rows of a fit on the other four.
All test answers are pooled, with a 95 % bootstrap band over rows. Sensors of gas_drift are groups, each at price 1;
`gas_drift_time` fits on batches 1 to 5 and is tested on each later batch by itself.
"""

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.special import expit, logit
from sklearn.base import clone, is_classifier
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.datasets import load_gas_drift, load_priced
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from thrifty import (
    BudgetedClassifier,
    BudgetedRegressor,
    DynaModGbrtClassifier,
    Frontier,
    Prices,
    evidence_of,
    hold_budget,
)
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import convex_hull
from thrifty.engine.tasks.logistic import platt
from thrifty.learners.dynamod import BoostedOptions
from thrifty.rows import content_folds

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
N_JOBS = 2


@dataclass(eq=False)
class Case:
    """Rows to fit on and to test on, prices and full model; probabilities of f0 where there are two classes."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    full: object
    costs: np.ndarray = None
    groups: object = None
    held_out: np.ndarray = None  # f0's out-of-fold probabilities on X
    on_test: np.ndarray = None

    def fit_full(self, n_folds=4):
        """Cross-fit f0 where there are two classes, and return the quality of the full model on every test row."""
        if not is_classifier(self.full) or len(np.unique(self.y)) > 2:
            return self.quality(clone(self.full).fit(self.X, self.y).predict(self.X_test))
        raw = np.empty(len(self.y))
        for train, test in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(self.X, self.y):
            raw[test] = log_odds(clone(self.full).fit(self.X[train], self.y[train]), self.X[test])
        on_test = log_odds(clone(self.full).fit(self.X, self.y), self.X_test)
        slope, intercept = platt(raw, 2.0 * self.y - 1, np.ones(len(self.y)))
        if not hasattr(self.full, "predict_proba"):
            raw, on_test = slope * raw + intercept, slope * on_test + intercept
        self.held_out, self.on_test = (np.clip(expit(scores), 1e-6, 1 - 1e-6) for scores in (raw, on_test))
        return self.quality(self.on_test > 0.5)

    def quality(self, answers):
        """Whether each answer about a test row is right, or its squared error."""
        return answers == self.y_test if is_classifier(self.full) else np.square(answers - self.y_test)


def log_odds(model, X):
    if hasattr(model, "predict_proba"):
        return logit(np.clip(model.predict_proba(X)[:, 1], 1e-6, 1 - 1e-6))
    return model.decision_function(X)


# -- tables ------------------------------------------------------------------------------------


def forest():
    return RandomForestClassifier(200, n_jobs=N_JOBS, random_state=0)


def extra_trees():
    return ExtraTreesRegressor(300, n_jobs=N_JOBS, random_state=0)


def arrays_of(name):
    arrays = np.load(DATA / f"{name}.npz")
    return arrays["X"].astype(float), arrays["y"]


def split_at(X, y, n_fit, full, **more):
    return Case(X[:n_fit], y[:n_fit], X[n_fit:], y[n_fit:], full, **more)


def letters(*, two_classes):
    X, y = arrays_of("letter")
    full = make_pipeline(StandardScaler(), SVC(C=10, gamma=0.3))
    return [split_at(X, (y >= 13).astype(int) if two_classes else y, 16_000, full, costs=np.ones(16))]


def covertype(*, two_classes):
    X, y = arrays_of("covtype")
    order = np.random.default_rng(0).permutation(len(y))[: 52_291 + 20_000]
    X, y = X[order], y[order]
    return [split_at(X, (y == 2).astype(int) if two_classes else y, 52_291, forest(), costs=np.ones(54))]


def miniboone():
    arrays = np.load(DATA / "miniboone_5k.npz")
    X, y, is_test = arrays["X"].astype(float), arrays["y"].astype(int), arrays["split"] == 2
    return [Case(X[~is_test], y[~is_test], X[is_test], y[is_test], forest(), np.ones(50))]


def gas_drift(*, by_time):
    """One case of rows at random, or one for each later batch, all of the same rows for fitting."""
    table = load_gas_drift(DATA)
    if by_time:
        X, y = table.X[table.batch <= 5], table.y[table.batch <= 5]
        later = (table.batch == batch for batch in np.unique(table.batch[table.batch > 5]))
        return [Case(X, y, table.X[rows], table.y[rows], forest(), groups=table.sensor) for rows in later]
    order = np.random.default_rng(0).permutation(len(table.y))
    return [split_at(table.X[order], table.y[order], 4 * len(order) // 5, forest(), groups=table.sensor)]


def fifth(name, full):
    """A table at price 1 a column, a fifth of it to test on; numbers in standard deviations of the first 60 %."""
    X, y = arrays_of(name)
    order = np.random.default_rng(0).permutation(len(y))
    X, y, first = X[order], y[order], 3 * len(y) // 5
    if not is_classifier(full):
        y = (y - y[:first].mean()) / y[:first].std()
    return [split_at(X, y, 4 * len(y) // 5, full, costs=np.ones(X.shape[1]))]


def priced(name):
    """Five folds of a table with real prices, and the first of thyroid, which is large."""
    table = load_priced(name, DATA)
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(table.X, table.y)
    cases = [
        Case(table.X[fit], table.y[fit], table.X[test], table.y[test], forest(), table.feature_costs)
        for fit, test in folds
    ]
    return cases[:1] if name == "thyroid" else cases


TABLES = {
    "letters": (lambda: letters(two_classes=True), [3, 4, 5, 6, 7, 8, 10]),
    "forest": (lambda: covertype(two_classes=True), [3, 4, 5, 6, 8, 10, 12, 15, 20]),
    "miniboone": (miniboone, [2, 4, 6, 8, 10]),
    "heart": (lambda: priced("heart"), [2, 5, 20, 50, 100, 200]),
    "pima": (lambda: priced("pima"), [2, 5, 10, 15, 20, 30]),
    "hepatitis": (lambda: priced("hepatitis"), [2, 4, 8, 15, 25]),
    "thyroid": (lambda: priced("thyroid"), [2, 5, 10, 20, 25, 35]),
    "letters26": (lambda: letters(two_classes=False), [3, 4, 5, 6, 7, 8, 10]),
    "forest7": (lambda: covertype(two_classes=False), [3, 4, 5, 6, 8, 10, 15, 20]),
    "gas_drift": (lambda: gas_drift(by_time=False), [1, 1.5, 2, 3, 4, 6]),
    "gas_drift_time": (lambda: gas_drift(by_time=True), [1.5, 2, 3, 4, 6]),
    "satimage": (lambda: fifth("satimage", forest()), [2, 3, 4, 6, 8, 12]),
    "pol": (lambda: fifth("pol", extra_trees()), [2, 3, 4, 5, 6, 8, 10, 13]),
    "bike_hour": (
        lambda: fifth("bike_hour", HistGradientBoostingRegressor(random_state=0)),
        [2, 3, 4, 5, 6, 8, 10],
    ),
    "cpu_act": (lambda: fifth("cpu_act", extra_trees()), [2, 3, 4, 5, 6, 8, 10, 13, 16]),
    "cpu_act_6": (lambda: fifth("cpu_act", extra_trees()), [2, 3, 4, 6, 8, 12]),
    "concrete": (lambda: fifth("concrete", extra_trees()), [1, 2, 3, 4, 6]),
}
"""Cases and usual budgets of each table."""


# -- methods: each gives, per budget, (quality, cost) of every test row, and what it fitted --------


FITTED = {}
"""Cascades of a table by the identity of the rows that they were fitted on."""

SIZE = {"last": (2400, 10)}
"""Trees and depth of the cascade that was fitted last: what rivals of equal size have."""


def fitted_cascade(case):
    """The cascade of a case, and what its fit took; cases of the same rows share one."""
    if id(case.X) not in FITTED:
        kind = BudgetedClassifier if is_classifier(case.full) else BudgetedRegressor
        full = case.full if case.held_out is None else case.held_out
        start, processor = time.perf_counter(), time.process_time()
        model = kind(full, prices=Prices(case.costs, groups=case.groups), n_jobs=N_JOBS, random_state=0)
        model.fit(case.X, case.y)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        n_trees = sum(stage.trees.n_trees for stage in model.chain_.stages if hasattr(stage, "trees"))
        SIZE["last"] = n_trees, model.size_[1]
        facts = (
            f"fit {seconds:.0f} s ({processor:.0f} of processor), {n_trees} trees in {model.n_stages_} stages"
        )
        facts += f" of {model.size_[0]} trees of depth {model.size_[1]}, promised {model.expected_score_:.3f}"
        FITTED[id(case.X)] = model, facts
    model, facts = FITTED[id(case.X)]
    return model if case.on_test is None else model.with_full(case.on_test, case.X_test), facts


def cascade(case, budgets):
    model, facts = fitted_cascade(case)
    systems = [model.at(budget=max(budget, model.chain_.policy.cost[0])) for budget in budgets]
    return [(case.quality(one.predict(case.X_test)), one.cost(case.X_test)) for one in systems], facts


def held(case, budgets):
    """The cascade, its operating point set by what the test rows would pay: no labels are needed."""
    model, facts = fitted_cascade(case)
    cheapest = model.chain_.at(model.chain_.policy.at(0)).cost(case.X_test).mean()
    systems = [hold_budget(model, case.X_test, max(budget, cheapest)) for budget in budgets]
    return [(case.quality(one.predict(case.X_test)), one.cost(case.X_test)) for one in systems], facts


def single_stage(budgets, systems):
    """Evidence of many systems on rows held out, reduced to a frontier, and the same points on the test rows."""
    chosen, tests = zip(*systems, strict=True)
    frontier = Frontier.from_evidence(chosen)
    tested = frontier.on(tests)
    found = []
    for budget in budgets:
        point = tested.best(budget=max(budget, frontier.cost[0]))
        _, cost, right = tests[point.source].at_point(np.array(point.thresholds))
        found.append((right, cost))
    return found


def prices_of(case, n_prices):
    """Prices of a split, on the scale of a sum over rows."""
    return np.geomspace(3e-4, 3e-1, n_prices) * len(case.y) / case.costs.mean()


def held_out_quarter(case):
    """Which rows choose, and these and the test rows with f0's probabilities."""
    is_val = content_folds(case.X, case.y * 2.0 - 1, 4, 1) == 0
    choose = case.X[is_val], case.y[is_val], case.held_out[is_val]
    return is_val, (choose, (case.X_test, case.y_test, case.on_test))


def evidence_on(model, kinds_of_rows):
    return [evidence_of(model, X, y, full_probability=full) for X, y, full in kinds_of_rows]


def miser(case, budgets, n_trees=200, max_depth=4, n_prices=12):
    """GreedyMiser for many prices, each with |f1| as its gate."""
    is_val, rows = held_out_quarter(case)
    systems = []
    for gamma in prices_of(case, n_prices):
        clf = GreedyMiserClassifier(
            n_trees=n_trees, max_depth=max_depth, gamma=gamma, feature_costs=case.costs
        )
        clf.fit(case.X[~is_val], case.y[~is_val])
        if len(clf.features_):
            systems.append(evidence_on(clf, rows))
    return single_stage(budgets, systems), f"{len(systems)} fits of {n_trees} trees of depth {max_depth}"


def large_miser(case, budgets):
    return miser(case, budgets, *SIZE["last"], n_prices=6)


def cegb(case, budgets):
    """LightGBM's penalties for first use, each with |f1| as its gate."""
    import lightgbm

    n_trees, max_depth = SIZE["last"]
    is_val, rows = held_out_quarter(case)
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
        if not len(used):
            continue
        of_gate = {"stop_cost": float(case.costs[used].sum()), "go_cost": float(case.costs.sum())}
        scores = [(model.predict(X, raw_score=True), y, full) for X, y, full in rows]
        systems.append(
            [
                Evidence.of_gate(
                    -np.abs(score), stop_quality=(score > 0) == y, go_quality=(full > 0.5) == y, **of_gate
                )
                for score, y, full in scores
            ]
        )
    return single_stage(budgets, systems), f"{len(systems)} fits of {n_trees} trees of depth {max_depth}"


def dynamod_fit(case, rows, full, gamma, p_full):
    options = BoostedOptions(n_trees=100, max_depth=6, max_iter=3)
    clf = DynaModGbrtClassifier(full, options=options, gamma=gamma, p_full=p_full, feature_costs=case.costs)
    return clf.fit(case.X[rows], case.y[rows])


def dynamod(case, budgets):
    """The paper's Algorithm 2 for a few prices and shares, every threshold of the gate."""
    is_val, rows = held_out_quarter(case)
    fits = [
        dynamod_fit(case, ~is_val, case.held_out[~is_val], gamma, p_full)
        for gamma in prices_of(case, 6)
        for p_full in (0.1, 0.3, 0.6)
    ]
    systems = [evidence_on(clf, rows) for clf in fits if len(clf.features_)]
    return single_stage(budgets, systems), f"{len(systems)} fits of 2 x 100 trees of depth 6"


def recursion(case, budgets):
    """The literal recursion: a fitted DynaMod is the f0 of a cheaper one, two and three stages deep.

    A model that learns from the rows it is evaluated on trusts itself too much: f0 is evaluated out of fold, what
    stands before it on the rows it was fitted on, as in the paper.
    """
    is_val, rows = held_out_quarter(case)
    systems = []
    for dear, middle, cheap in zip(*(prices_of(case, 9)[part : part + 5] for part in (0, 2, 4)), strict=True):
        for p_full in (0.3, 0.6):
            inner = dynamod_fit(case, ~is_val, case.held_out[~is_val], dear, p_full)
            for gamma in (middle, cheap):
                inner = dynamod_fit(case, ~is_val, FrozenEstimator(inner), gamma, p_full)
                if len(inner.features_):
                    systems.append(evidence_on(inner, rows))
    return single_stage(budgets, systems), f"{len(systems)} systems of 2 and 3 stages"


# -- two LightGBMs in a row ------------------------------------------------------------------------

SIZES = ({"n_estimators": 60, "num_leaves": 15}, {"n_estimators": 200, "num_leaves": 31})


def qualities_and_doubts(outputs, y):
    """Quality of each answer, and how doubtful it is: of classes by the margin, of numbers learned by the caller."""
    if outputs.ndim == 1:
        return np.square(outputs - y), None
    best = np.sort(outputs, axis=1)
    return (outputs.argmax(axis=1) == y).astype(float), best[:, -2] - best[:, -1]


def two_lightgbms(case, budgets):
    """All pairs of models with every threshold between them; a budget mixes two pairs at random."""
    X, y, X_test, y_test = case.X, case.y, case.X_test, case.y_test
    has_classes = is_classifier(case.full)
    if has_classes:
        classes, y = np.unique(y, return_inverse=True)
        y_test = np.searchsorted(classes, y_test)
    kind, method = (LGBMClassifier, "predict_proba") if has_classes else (LGBMRegressor, "predict")
    gain = kind(importance_type="gain", verbose=-1, n_jobs=1).fit(X, y).feature_importances_
    models, points = {}, []
    for order in {tuple(np.argsort(-gain)), tuple(np.argsort(-gain / case.costs))}:
        counts = sorted({*(k for k in (1, 2, 3, 4, 6, 8, 12, 20) if k < len(order)), len(order)})
        for k in counts:
            held, cost = list(order[:k]), case.costs[list(order[:k])].sum()
            for number, size in enumerate(SIZES):
                model = kind(**size, learning_rate=0.05 if number else 0.1, verbose=-1, n_jobs=1)
                folds = cross_val_predict(model, X[:, held], y, cv=5, method=method)
                outputs = getattr(model.fit(X[:, held], y), method)(X_test[:, held])
                fitted, tested = qualities_and_doubts(folds, y), qualities_and_doubts(outputs, y_test)
                if not has_classes:  # the doubt about a number is its squared error, learned out of fold
                    error = LGBMRegressor(n_estimators=60, num_leaves=15, verbose=-1, n_jobs=1)
                    doubt = cross_val_predict(error, X[:, held], fitted[0], cv=5)
                    of_test = error.fit(X[:, held], fitted[0]).predict(X_test[:, held])
                    fitted, tested = (fitted[0], doubt), (tested[0], of_test)
                models[order, k, number] = cost, fitted, tested
        for k, number in ((k, number) for k in counts for number in range(len(SIZES))):
            first = models[order, k, number]
            second = [models[order, more, n] for more in counts if more > k for n in range(len(SIZES))]
            points += [point for behind in second or [first] for point in pair_points(first, behind)]
    points = np.array(points)
    points = points[convex_hull(points[:, 0], points[:, 1] if has_classes else -points[:, 1])]
    spent = np.maximum.accumulate(points[:, 2])
    found = [
        (np.interp([budget], spent, points[:, 3]), np.clip([budget], spent[0], spent[-1]))
        for budget in budgets
    ]
    return found, f"{len(models)} fits"


def pair_points(first, second):
    """Cost and quality out of fold, and cost and quality of the test rows, at 41 thresholds between two models."""
    (cost, fitted, tested), (full_cost, *others) = first, second
    for share in np.linspace(0, 1, 41):
        threshold, point = np.quantile(fitted[1], 1 - share), []
        for (quality, doubt), (other, _) in zip((fitted, tested), others, strict=True):
            goes_on = doubt > threshold
            point += [cost + goes_on.mean() * (full_cost - cost), np.where(goes_on, other, quality).mean()]
        yield point


METHODS = {
    "cascade": cascade,
    "held": held,
    "miser": miser,
    "large-miser": large_miser,
    "cegb": cegb,
    "dynamod": dynamod,
    "recursion": recursion,
    "two-lightgbms": two_lightgbms,
}


# -- lines of a table --------------------------------------------------------------------------


def cell(case, quality, cost, *, has_band):
    """Score at mean cost, with a bootstrap band where test rows are few."""
    score = quality.mean() if is_classifier(case.full) else np.sqrt(quality.mean())
    band = ""
    if has_band and len(quality) > 10:
        draws = np.random.default_rng(0).integers(0, len(quality), (1000, len(quality)))
        low, high = np.quantile(quality[draws].mean(axis=1), [0.025, 0.975])
        band = f" [{low:.3f}, {high:.3f}]"
    return f"{score:.3f}{band} @ {cost.mean():.2f}"


def print_table(title, cases, methods, budgets):
    """Print the lines of all methods; the answers of all cases are pooled."""
    start = time.perf_counter()
    quality = np.concatenate([case.fit_full() for case in cases])
    everything = len(np.unique(cases[0].groups)) if cases[0].costs is None else cases[0].costs.sum()
    full = cell(cases[0], quality, np.array(everything), has_band=False)
    rows = f"{len(cases[0].y):,} rows to fit on, {len(quality):,} to test on"
    print(f"\n{title}: full model {full} ({time.perf_counter() - start:.0f} s), {rows}")
    print("| mean cost <= | " + " | ".join(f"{budget:g}" for budget in budgets) + " |")
    print("|---" * (len(budgets) + 1) + "|")
    for method in methods:
        start = time.perf_counter()
        runs = [METHODS[method](case, budgets) for case in cases]
        pooled = [
            [np.concatenate(parts) for parts in zip(*each, strict=True)]
            for each in zip(*(found for found, _ in runs), strict=True)
        ]
        cells = [cell(cases[0], *each, has_band=len(cases) > 1) for each in pooled]
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)
        print(f"  {method}: {runs[0][1]}; {time.perf_counter() - start:.0f} s in all", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", choices=sorted(TABLES))
    parser.add_argument("--methods", nargs="+", default=["cascade", "held"], choices=sorted(METHODS))
    parser.add_argument("--budgets", nargs="+", type=float)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.tables:
        load, budgets = TABLES[name]
        cases = load()
        FITTED.clear()
        tables = (
            {name: cases}
            if name != "gas_drift_time"
            else {f"{name}, batch {6 + n}": [one] for n, one in enumerate(cases)}
        )
        for title, some in tables.items():
            print_table(title, some, chosen.methods, chosen.budgets or budgets)


if __name__ == "__main__":
    main()
