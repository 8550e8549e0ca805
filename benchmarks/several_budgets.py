"""Dollars and days at once on four medical tables: budgets kept, quality against exchange rates, caps, certificates.

    python benchmarks/several_budgets.py grid heart pima hepatitis --splits 5
    python benchmarks/several_budgets.py grid thyroid
    python benchmarks/several_budgets.py kept thyroid            # one budget after the other, caps, certificates

Prices are those of Turney (1995), without discounts; results of laboratories come the next day, and tests that are
ordered together wait together. `grid` compares 4 x 4 pairs of budgets on new rows: one fit at each pair by `at`, the
same at the exchange rate that is best for the grid and the one that is best for the cell, both in hindsight, and the
best single point that keeps to both among those of a fit on dollars. `one by one` never orders two tests together.
"""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from reproduction.datasets import PRICED_NAMES, load_priced
from thrifty import BudgetedClassifier, Prices
from thrifty.engine.evidence.budgets import CostBounds, certified_within, mix_within, mixes_up_to
from thrifty.errors import InvalidParameterError
from thrifty.learners.trees.full import TreesClassifier

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SHARES, DAYS = (0.1, 0.2, 0.35, 0.6), (0.2, 0.5, 0.95, 2.0)
"""Budgets in dollars, as shares of what all columns cost, and in days; all tests at once take one day."""
WEIGHTS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
"""Weights of days in exchange rates."""


def table_of(name):
    """Rows, labels, dollars and days of each column."""
    table = load_priced(name, DATA)
    return table.X, table.y, np.asarray(table.feature_costs, dtype=float), table.days


def fit(prices, X, y):
    """A cascade of boosted trees without a budget."""
    return BudgetedClassifier(TreesClassifier(), prices=prices, random_state=0).fit(X, y)


def both(dollars, days, delays=("days",)):
    """Prices in both resources."""
    return Prices([{"dollars": a, "days": b} for a, b in zip(dollars, days, strict=True)], delays=delays)


def in_both(clf, chain):
    """A cascade that was fitted on a sum of prices, billed in both resources: its points, their costs and scores."""
    billed = replace(clf._learned, price_list=chain.price_list)
    places = billed.bought_by_place
    asks_full = np.arange(len(places)) == len(places) - 1
    costs = chain.price_list.costs_of_rows(places, asks_full)
    evidence = replace(clf.evidence_, costs=costs, rounds=billed.rounds)
    policy = replace(clf._learned.policy, costs=evidence.mean_costs(clf._learned.policy.thresholds))
    return billed, policy


def along_hull(policy, limits):
    """The mix of two neighbours that spends most within both budgets; None if the first point exceeds one."""
    if np.any(policy.costs[0] > limits):
        return None
    for place in range(len(policy) - 1):
        low, high = policy.costs[place], policy.costs[place + 1]
        if np.any(high > limits):
            rise = np.maximum(high - low, 1e-12)
            share = float(np.clip(((limits - low) / rise)[high > limits].min(), 0.0, 1.0))
            return policy.at(place, place + 1, share)
    return policy.at(len(policy) - 1)


def within(policy, limits):
    """The best mix of points within both budgets; None where none keeps to them."""
    shares = mix_within(policy.costs, policy.score, limits)
    return None if shares is None else policy.mixed(np.flatnonzero(shares), shares[shares > 0])


def best_point(policy, limits):
    """The best single point within both budgets."""
    fits = np.flatnonzero((policy.costs <= limits).all(axis=1))
    return policy.at(fits[np.argmax(policy.score[fits])]) if len(fits) else None


def result(chain, policy, X, y):
    """Accuracy and mean costs on new rows; where no point keeps to both budgets the larger class, for nothing."""
    if policy is None:
        return np.array([max(y.mean(), 1 - y.mean()), 0.0, 0.0])
    system = chain.at(policy)
    return np.array([np.mean(system.predict(X) == y), *system.cost(X).mean()])


def grid(name, n_splits):
    """Results of every method at every pair of budgets, shape (n_methods, n_splits, 4, 4, 3)."""
    X, y, dollars, days = table_of(name)
    splits = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=0).split(X, y)
    cells = [(share * dollars.sum(), n_days) for share in SHARES for n_days in DAYS]
    methods = ["ours", "one by one", "filter", *(f"rate {weight:g}" for weight in WEIGHTS)]
    results = {method: [] for method in methods}
    for train, test in splits:
        clf = fit(both(dollars, days), X[train], y[train])
        chain, policy = clf._learned, clf._learned.policy
        one_by_one = fit(both(dollars, days, delays=()), X[train], y[train])
        systems = {"ours": (chain, policy), "one by one": (one_by_one._learned, one_by_one._learned.policy)}
        for weight in WEIGHTS:
            summed = (1 - weight) * dollars / dollars.sum() + weight * days / days.sum()
            systems[f"rate {weight:g}"] = in_both(fit(Prices(summed), X[train], y[train]), chain)
        systems["filter"] = in_both(fit(Prices(dollars), X[train], y[train]), chain)
        for method in methods:
            system, points = systems[method]
            find = {"filter": best_point, "ours": within, "one by one": within}.get(method, along_hull)
            chosen = [find(points, np.array(cell)) for cell in cells]
            results[method].append([result(system, each, X[test], y[test]) for each in chosen])
    return cells, {method: np.array(each) for method, each in results.items()}, len(test)


def report(name, cells, results, n_test):
    """Print means over splits, hindsight, and how budgets were kept."""
    ours = results["ours"]
    rates = np.array(
        [results[f"rate {weight:g}"][..., 0] for weight in WEIGHTS]
    )  # (n_rates, n_splits, n_cells)
    of_grid = rates.mean(axis=(1, 2)).argmax()
    of_cell = rates.mean(axis=1).max(axis=0)
    accuracy = {method: each[..., 0].mean(axis=0) for method, each in results.items()}
    print(f"{name}: {len(ours)} splits, {n_test} new rows; mean accuracy over 16 pairs of budgets")
    for method in ("ours", "one by one", "filter"):
        print(f"  {method:30} {accuracy[method].mean():.3f}")
    print(f"  {'best rate for the grid':30} {rates[of_grid].mean():.3f}")
    print(f"  {'best rate for each cell':30} {of_cell.mean():.3f}")
    error = ours[..., 0].std(axis=0) / np.sqrt(len(ours)) if len(ours) > 1 else np.sqrt(0.25 / n_test)
    ahead = accuracy["ours"] - rates[of_grid].mean(axis=0)
    behind = accuracy["ours"] - of_cell
    print(f"  cells ahead of the grid's rate {np.sum(ahead > 1e-9)}, behind it {np.sum(ahead < -1e-9)}")
    print(f"  cells level with (2 errors) or ahead of the cell's rate {np.sum(behind >= -2 * error)}")
    spent = ours[..., 1:].mean(axis=0) / np.array(cells)
    is_met = spent.max(axis=1) > 0
    print(
        f"  largest share of a budget that is spent, by pair: {np.round(spent.max(axis=1)[is_met], 2).tolist()}"
    )


def kept(name):
    """Print spending against budgets on new rows, rows above a cap, and how often certificates are wrong."""
    X, y, dollars, days = table_of(name)
    train, test = next(StratifiedShuffleSplit(1, test_size=0.5, random_state=1).split(X, y))
    clf = fit(both(dollars, days), X[train], y[train])
    rng = np.random.default_rng(0)
    for budget in (
        {"dollars": 0.3 * dollars.sum()},
        {"days": 0.4},
        {"dollars": 0.3 * dollars.sum(), "days": 0.4},
    ):
        costs = clf.at(budget=budget).cost(X[test])
        shown = {each: f"{costs[each].mean():.4g} of {limit:.4g}" for each, limit in budget.items()}
        print(f"{name}, budget of {', '.join(budget)}: new rows spend {shown}")
    capped = clf.at(cap={"dollars": 0.5 * dollars.sum()})
    rows = X[rng.integers(len(X), size=1_000_000)]
    paid = capped.cost(rows)["dollars"]
    print(f"{name}, cap {0.5 * dollars.sum():.4g}: the dearest of {len(rows):,} rows costs {paid.max():.4g}")
    held, n_draws, resources = clf.evidence_, 300, clf.chain_.price_list.resources
    limits = {"dollars": 0.3 * dollars.sum(), "days": 0.5}
    mixes = mixes_up_to(clf._learned.policy, resources.limits(limits))
    for n_rows in (200, 1_000):
        wrong, proved = 0, 0
        for _ in range(n_draws):
            drawn = held.take(rng.integers(held.n_units, size=n_rows))
            bounds = [CostBounds(drawn.of_resource(k), n_rows) for k in range(2)]
            try:
                point = certified_within(mixes, bounds, resources, limits, 0.9)
            except InvalidParameterError:
                continue
            proved += 1
            wrong += bool(np.any(point.expected_costs > np.array([*limits.values()])))
        print(
            f"{name}, certificates at 90 % from {n_rows} rows: {proved} of {n_draws} proved, {wrong} of all wrong"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("grid", "kept"))
    parser.add_argument("tables", nargs="*", default=list(PRICED_NAMES))
    parser.add_argument("--splits", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for each in given.tables:
        if given.what == "kept":
            kept(each)
        else:
            report(each, *grid(each, given.splits))
