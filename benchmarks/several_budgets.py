"""Several budgets at once: kept, quality against exchange rates in hindsight, rounds, caps, certificates, a gateway.

    python benchmarks/several_budgets.py kept [TABLES] --splits 3     # budgets on new rows, in two and three resources
    python benchmarks/several_budgets.py grid [TABLES] --splits 5     # thyroid heart pima hepatitis digits
    python benchmarks/several_budgets.py routing [zeroeval] [predictions.csv] --splits 5
    python benchmarks/several_budgets.py rounds [TABLES] --splits 5   # days of waiting at equal accuracy and dollars
    python benchmarks/several_budgets.py caps [TABLES]                # 10^6 rows each
    python benchmarks/several_budgets.py certificates [TABLES]        # 300 draws; promises that correlate
    python benchmarks/several_budgets.py gateway                      # 10^5 requests, 200 at once, a worker killed

Prices of heart, pima, hepatitis and thyroid are those of Turney (1995), without discounts; results of laboratories come
the next day, and tests that are ordered together wait together. Digits cost a pixel and the microseconds that exported
C takes for it, and the full model, 100 extra trees, those of its own C. Other tables have drawn prices.

`grid` compares 4 x 4 pairs of budgets on new rows: one fit at each pair by `at`; in hindsight the same at the exchange
rate that is best for the grid, and at the one that is best for each cell; the best single point that keeps to both
among those of a fit on the first resource ("filter"); and that fit within its budget alone, which may exceed the other
("one budget"). `one by one` never orders two tests together. `routing` is the same for models about which logs know
dollars and seconds: results/qwen3.5-v5-3200-800/test_predictions.csv of github.com/ken-ab/routerbench-mini has measured
ones of two models, those of zeroeval are made from tokens.

That budgets of all resources are spent within a standard error of the scores was chosen with the new rows of hepatitis
and heart in view, so that their grids flatter it.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import ShuffleSplit

from reproduction.datasets import PRICED_NAMES, load_priced
from small_budgets import NUMBERS, load
from thrifty import BudgetedClassifier, BudgetedRegressor, ModelRouter, Prices, export, save
from thrifty.engine.evidence.budgets import CostBounds, best_mix, certified_within, mixes_up_to
from thrifty.errors import InvalidParameterError
from thrifty.learners.trees.full import TreesClassifier

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SHARES, DAYS = (0.1, 0.2, 0.35, 0.6), (0.2, 0.5, 0.95, 2.0)
"""Budgets as shares of what everything costs, and in days; all tests at once take one day."""
WEIGHTS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
"""Weights of the second resource in exchange rates."""
LARGE = ("thyroid", "letters", "satimage", "gas_drift", "pol", "bike_hour")
N_FIT, N_PROOF = 1_000, 500
TIMED = """
#include <stdio.h>
#include <time.h>
int predict(const float *row);
int main(void)
{
    float row[%d];
    while (fread(row, sizeof row, 1, stdin)) {
        struct timespec a, b;
        int k, sum = 0;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        for (k = 0; k < 300; k++)
            sum += predict(row);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        printf("%%g %%d\\n", ((b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) * 1e-3) / 300, sum);
    }
    return 0;
}
"""


# -- tables ------------------------------------------------------------------------------------------------


def medical(name):
    """Dollars and days of each test, and 4 x 4 budgets."""
    table = load_priced(name, DATA)
    costs = np.column_stack([np.asarray(table.feature_costs, dtype=float), table.days])
    cells = [(share * costs[:, 0].sum(), days) for share in SHARES for days in DAYS]
    known = {"costs": costs, "full": np.zeros(2), "names": ("dollars", "days"), "delays": ("days",)}
    return SimpleNamespace(X=table.X, y=table.y, cells=cells, make=TreesClassifier, **known)


def forest():
    return ExtraTreesClassifier(100, max_depth=12, random_state=0)


def digits():
    """Pixels, and microseconds of exported C, of each column and of the full model."""
    from device import SESSION, by_thrifty

    X, y = load_digits(return_X_y=True)
    clf = BudgetedClassifier(forest(), random_state=0).fit(X[::2], y[::2])
    rows = X[1:400:2].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        of_forest, of_cascade = Path(folder, "forest"), Path(folder, "cascade")
        of_forest.mkdir()
        by_thrifty(of_forest, forest().fit(X[::2], y[::2]), "float32")
        of_full = microseconds(of_forest, rows)
        export(clf, of_cascade, leaves="float32")
        (of_cascade / "session.c").write_text(SESSION)
        of_stages = microseconds(of_cascade, rows)
    # A line through the origin: what a row takes that buys so many pixels.
    pixels = clf.cost(rows.astype(float))
    a_pixel = float(of_stages @ pixels / (pixels @ pixels))
    print(
        f"digits: {a_pixel:.3g} microseconds for a pixel, {of_full.mean():.3g} for the full model", flush=True
    )
    costs, full = np.column_stack([np.ones(64), np.full(64, a_pixel)]), np.array([0.0, of_full.mean()])
    total = costs.sum(axis=0) + full
    cells = [(a * total[0], b * total[1]) for a in SHARES for b in SHARES]
    known = {"costs": costs, "full": full, "names": ("pixels", "microseconds"), "delays": ()}
    return SimpleNamespace(X=X, y=y, cells=cells, make=forest, **known)


def microseconds(folder, rows):
    """Processor time of each row in the C of a folder, compiled with -O2."""
    (folder / "main.c").write_text(TIMED % rows.shape[1])
    sources = [folder / name for name in ("main.c", "session.c", "thrifty_model.c")]
    subprocess.run(
        ["gcc", "-std=gnu99", "-w", "-O2", f"-I{folder}", *sources, "-o", folder / "timed"], check=True
    )
    found = subprocess.run([folder / "timed"], input=rows.tobytes(), capture_output=True, check=True)
    return np.array([float(line.split()[0]) for line in found.stdout.splitlines()])


def drawn(name, seed):
    """Rows of a table, and dollars, minutes and bytes of each column, drawn."""
    rng = np.random.default_rng(seed)
    X, y, *_ = load(name, N_FIT, seed)
    costs = np.column_stack([rng.lognormal(size=X.shape[1]) for _ in range(3)]).round(3)
    return X, y, costs


# -- systems -----------------------------------------------------------------------------------------------


def priced(costs, names, full, **more):
    """Prices of columns in several resources."""
    of_columns = [dict(zip(names, line, strict=True)) for line in np.asarray(costs).tolist()]
    return Prices(of_columns, full=dict(zip(names, np.asarray(full).tolist(), strict=True)), **more)


def in_all(clf, chain, X):
    """A cascade that was fitted on a sum of prices, billed in all resources, and its points with costs and scores.

    Where it buys in a tree, costs are those of the new rows X: this rival knows in advance what they will pay.
    """
    billed, policy = replace(clf._learned, price_list=chain.price_list), clf._learned.policy
    places = billed.bought_by_place
    if len(places) == clf.evidence_.cost.shape[-1]:
        of_places = chain.price_list.costs_of_rows(places, np.arange(len(places)) == len(places) - 1)
        costs = replace(clf.evidence_, costs=of_places, rounds=billed.rounds).mean_costs(policy.thresholds)
    else:
        costs = np.array(
            [billed.at(policy.at(k)).cost(X).to_numpy().mean(axis=0) for k in range(len(policy))]
        )
    return billed, replace(policy, costs=costs)


def along_hull(policy, limits):
    """The mix of two neighbours that spends most within both budgets; None if the first point exceeds one."""
    if np.any(policy.costs[0] > limits):
        return None
    for place in range(len(policy) - 1):
        low, high = policy.costs[place], policy.costs[place + 1]
        if np.any(high > limits):
            rise = np.maximum(high - low, 1e-12)
            return policy.at(
                place, place + 1, float(np.clip(((limits - low) / rise)[high > limits].min(), 0, 1))
            )
    return policy.at(len(policy) - 1)


def best_point(policy, limits):
    """The best single point within both budgets."""
    fits = np.flatnonzero((policy.costs <= limits).all(axis=1))
    return policy.at(fits[np.argmax(policy.score[fits])]) if len(fits) else None


def one_budget(policy, limits):
    """The mix that spends the first budget, whatever it costs otherwise."""
    return along_hull(policy, np.array([limits[0], np.inf]))


def of_table(table, train, test):
    """Results of every method on one split of a table."""
    X, y, names = table.X, table.y, table.names

    def fit(prices):
        return BudgetedClassifier(table.make(), prices=prices, random_state=0).fit(X[train], y[train])

    clf = fit(priced(table.costs, names, table.full, delays=table.delays))
    chain, total = clf._learned, table.costs.sum(axis=0) + table.full
    systems = {"ours": (chain, chain.policy, best_mix)}
    if table.delays:
        alone = fit(priced(table.costs, names, table.full))._learned
        systems["one by one"] = (alone, alone.policy, best_mix)
    for weight in WEIGHTS:
        rate = np.array([1 - weight, weight]) / total
        summed = fit(Prices(table.costs @ rate, full=float(table.full @ rate)))
        systems[f"rate {weight:g}"] = (*in_all(summed, chain, X[test]), along_hull)
    first = in_all(fit(Prices(table.costs[:, 0], full=float(table.full[0]))), chain, X[test])
    systems |= {"filter": (*first, best_point), "one budget": (*first, one_budget)}

    def outcome(system, policy):
        if policy is None:  # the commonest class, for nothing
            return [np.mean(y[test] == np.bincount(y[train]).argmax()), 0.0, 0.0]
        there = system.at(policy)
        return [np.mean(there.predict(X[test]) == y[test]), *there.cost(X[test]).mean()]

    return {
        method: [outcome(system, find(policy, np.array(cell))) for cell in table.cells]
        for method, (system, policy, find) in systems.items()
    }


def print_grid(name, cells, results, n_test):
    """Print means over splits, hindsight, and how budgets were kept; results have shape (n_splits, n_cells, 3)."""
    results = {method: np.array(each) for method, each in results.items()}
    ours, rates = results["ours"], np.array([each[..., 0] for key, each in results.items() if "rate" in key])
    n_splits, mean = len(ours), {method: each[..., 0].mean(axis=0) for method, each in results.items()}
    of_grid, of_cell = rates[rates.mean(axis=(1, 2)).argmax()], rates.mean(axis=1).max(axis=0)
    print(f"{name}: {n_splits} splits, {n_test} new rows; mean quality over {len(cells)} pairs of budgets")
    shown = {method: each.mean() for method, each in mean.items() if "rate" not in method}
    shown |= {"best rate for the grid": of_grid.mean(), "best rate for each cell": of_cell.mean()}
    if n_splits > 1:  # chosen on the other splits, which share rows with each one
        chosen = (rates.sum(axis=1, keepdims=True) - rates).argmax(axis=0)
        shown["the same chosen on other splits"] = np.take_along_axis(rates, chosen[None], axis=0).mean()
    print("  " + ", ".join(f"{method} {each:.4f}" for method, each in shown.items()))
    error = ours[..., 0].std(axis=0, ddof=1) / np.sqrt(n_splits) if n_splits > 1 else np.sqrt(0.25 / n_test)
    ahead, behind = mean["ours"] - of_grid.mean(axis=0), mean["ours"] - of_cell
    print(
        f"  cells ahead of the grid's rate {np.sum(ahead > 1e-9)}, behind it {np.sum(ahead < -1e-9)}; level with (2 "
        f"errors) or ahead of the cell's rate {np.sum(behind >= -2 * error)}; worst {behind.min():+.4f}, mean "
        f"{behind.mean():+.4f} +- {(ours[..., 0].mean(axis=1)).std() / np.sqrt(n_splits):.4f}"
    )
    spent = ours[..., 1:].mean(axis=0) / np.array(cells)
    alone = results["one budget"][..., 1:].mean(axis=0) / np.array(cells)
    print(
        f"  largest share of a budget spent, by pair: {np.round(spent.max(axis=1), 2).tolist()}; one budget alone "
        f"exceeds the other in {np.sum(alone[:, 1] > 1.02)} cells",
        flush=True,
    )


def grid(names, n_splits):
    for name in names or (*PRICED_NAMES, "digits"):
        table, results = digits() if name == "digits" else medical(name), {}
        for train, test in ShuffleSplit(n_splits, test_size=0.4, random_state=0).split(table.X):
            for method, each in of_table(table, train, test).items():
                results.setdefault(method, []).append(each)
        print_grid(name, table.cells, results, len(test))


# -- routers -----------------------------------------------------------------------------------------------


def mini(path):
    """Dollars and seconds of two models about 800 questions, as measured."""
    frame = pd.read_csv(path)
    frame = frame[frame["strategy"].isin(["always_cheap", "always_strong"])]
    wide = frame.pivot(
        index="canonical_id", columns="strategy", values=["correct", "cost", "latency_ms", "answer"]
    )
    known = frame[frame["strategy"] == "always_cheap"].set_index("canonical_id").loc[wide.index]
    kinds = pd.get_dummies(known[["dataset", "difficulty_group"]]).to_numpy(dtype=float)
    X = np.column_stack([np.log(known["prompt_tokens"].to_numpy(dtype=float)), kinds])
    costs = {
        "dollars": wide["cost"].to_numpy(dtype=float),
        "seconds": wide["latency_ms"].to_numpy(float) / 1e3,
    }
    return X, wide["correct"].to_numpy(dtype=float), costs, ["cheap", "strong"]


def zeroeval():
    """Dollars as billed; seconds are tokens of an answer over a speed of each model, which falls with its price."""
    folder = DATA / "routing"
    arrays, queries = np.load(folder / "zeroeval.npz"), pd.read_csv(folder / "zeroeval_queries.csv.gz")
    dollars = arrays["cost"].astype(float)
    speed = np.random.default_rng(0).lognormal(4.0, 0.6, dollars.shape[1])  # tokens a second
    tokens = dollars / np.median(dollars, axis=0) * 400
    names = [str(model) for model in arrays["models"]]
    return (
        queries["text"].tolist(),
        arrays["quality"].astype(float),
        {"dollars": dollars, "seconds": tokens / speed},
        names,
    )


def of_log(X, quality, costs, names, train, test, cells):
    """Results of every method on one split of a log."""

    def rows(part):
        return [X[row] for row in part] if isinstance(X, list) else X[part]

    def fit(cost):
        return ModelRouter(names, max_asks=1).fit(rows(train), quality[train], cost)

    def points(router, part):
        """Mean quality and costs of each point, of a router of one resource billed in both."""
        new, pool = (
            router.read_log(rows(part), quality[part], total[part]),
            [names.index(one) for one in router.pool_],
        )
        found = []
        for point in range(len(router.state_.policy)):
            asked = np.array(pool)[router.walk(new, point).model]
            of_each = [each[part, asked].mean() for each in costs.values()]
            found.append([quality[part, asked].mean(), *of_each])
        return np.array(found)

    both = {name: each[train] for name, each in costs.items()}
    ours, total = fit(both), sum(costs.values())
    results = {"ours": []}
    for cell in cells:
        try:
            there = ours.at(budget=dict(zip(costs, cell, strict=True)))
        except InvalidParameterError:
            results["ours"].append([0.0, 0.0, 0.0])
            continue
        replay = there.replay(rows(test), quality[test], {name: each[test] for name, each in costs.items()})
        results["ours"].append([replay.quality.mean(), *np.asarray(replay.costs).mean(axis=0)])
    scale = [each[train].mean(axis=0).max() for each in costs.values()]
    rates = {f"rate {w:g}": (1 - w, w) for w in WEIGHTS} | {"filter": (1, 1e-6), "one budget": (1, 1e-6)}
    for method, weights in rates.items():
        total = sum(w * each / most for w, each, most in zip(weights, costs.values(), scale, strict=True))
        router = fit(total[train])
        known, new = points(router, train), points(router, test)
        policy = router.state_.policy
        policy = replace(policy, costs=known[:, 1:], score=policy.score)
        find = {"filter": best_point, "one budget": one_budget}.get(method, along_hull)
        results[method] = []
        for cell in cells:
            chosen = find(policy, np.array(cell))
            mixed = (
                [0.0] * 3 if chosen is None else sum(share * new[point] for share, point in chosen.in_force)
            )
            results[method].append(list(mixed))
    return results


def routing(given, n_splits):
    for name in given or ("zeroeval",):
        X, quality, costs, models = zeroeval() if name == "zeroeval" else mini(name)
        means = [each.mean(axis=0) for each in costs.values()]
        cells = [
            (
                np.quantile(means[0], 0) * (1 - a) + a * means[0].max(),
                means[1].min() * (1 - b) + b * means[1].max(),
            )
            for a in SHARES
            for b in SHARES
        ]
        results = {}
        for train, test in ShuffleSplit(n_splits, test_size=0.4, random_state=0).split(quality):
            for method, each in of_log(X, quality, costs, models, train, test, cells).items():
                results.setdefault(method, []).append(each)
        print_grid(Path(name).stem, cells, results, len(test))


# -- what is kept ------------------------------------------------------------------------------------------


def kept(tables, n_splits):
    """Budgets of two and three resources on new rows: how often a budget that binds is exceeded, and what is used."""
    every = []
    for name in tables or (*LARGE, "heart", "pima", "hepatitis"):
        n_bind, n_over, n_beyond, used, shares = 0, 0, 0, [], []
        for seed in range(n_splits):
            rng = np.random.default_rng(seed)
            if name in PRICED_NAMES and name != "thyroid":
                table = medical(name)
                order = rng.permutation(len(table.y))
                X, y, n_fit = table.X[order], table.y[order], len(order) * 6 // 10
                costs = np.column_stack([table.costs, rng.lognormal(size=X.shape[1]).round(3)])
                names, more = ("dollars", "days", "minutes"), {"delays": ("days",)}
            else:
                X, y, costs = drawn(name, seed)
                names, n_fit, more = ("dollars", "minutes", "bytes"), N_FIT, {}
            kind = BudgetedRegressor if name in NUMBERS else BudgetedClassifier
            clf = kind(prices=priced(costs, names, np.zeros(3), **more), random_state=0).fit(
                X[:n_fit], y[:n_fit]
            )
            points = clf._learned.policy.costs
            for n_resources in (2, 3):
                for _ in range(4):
                    some = np.sort(rng.choice(3, n_resources, replace=False))
                    share = rng.uniform(0.15, 0.6, 3)
                    limits = points.min(axis=0) + share * (points.max(axis=0) - points.min(axis=0))
                    budget = {names[k]: float(limits[k]) for k in some}
                    try:
                        at = clf.at(budget=budget)
                    except InvalidParameterError:
                        continue
                    paid, expected, intervals = (
                        at.cost(X[n_fit:]),
                        at.expected_cost_,
                        at.expected_cost_interval_,
                    )
                    binds = [
                        each for each, limit in budget.items() if limit and expected[each] > 0.995 * limit
                    ]
                    for each in binds:
                        mean, error = paid[each].mean(), paid[each].std() / np.sqrt(len(paid))
                        n_bind += 1
                        n_over += mean > max(budget[each] * 1.02, budget[each] + 2 * error)
                        # Rows of the fit, too, are a sample: an interval of 95 % is about four errors wide.
                        both = np.hypot(error, np.ptp(intervals[each]) / 4)
                        n_beyond += mean > max(budget[each] * 1.02, budget[each] + 2 * both)
                        shares.append(mean / budget[each])
                    if binds:
                        used.append(max(paid[each].mean() / budget[each] for each in binds))
        print(
            f"{name}: {n_splits} splits, {n_fit} rows to fit, {len(X) - n_fit} new; {n_over} of {n_bind} budgets that "
            f"bind are exceeded ({n_beyond} by two errors of both samples), they are spent to {np.mean(shares):.3f} "
            f"(mean), the most used one to {np.median(used):.3f} (median; lowest "
            f"tenth {np.quantile(used, 0.1):.3f}, at least .95 in {np.mean(np.array(used) >= 0.95):.0%})",
            flush=True,
        )
        every += shares
    print(f"all: budgets that bind are spent to {np.mean(every):.4f} on average")


def rounds(tables, n_splits):
    """Days at the accuracy and dollars, by the rows of the fit, of a cascade that orders one test after another."""
    for name in tables or PRICED_NAMES:
        table, found = medical(name), []
        for train, test in ShuffleSplit(n_splits, test_size=0.4, random_state=0).split(table.X):
            fits = [
                BudgetedClassifier(
                    TreesClassifier(),
                    prices=priced(table.costs, table.names, table.full, delays=each),
                    random_state=0,
                ).fit(table.X[train], table.y[train])
                for each in (("days",), ())
            ]
            ours, one = (each._learned for each in fits)
            for share in SHARES:
                dollars = share * table.costs[:, 0].sum()
                of_one = best_mix(one.policy, np.array([dollars, np.inf]))
                if of_one is None:
                    continue
                days = np.linspace(0, of_one.expected_costs[1], 41)
                fits_in = (
                    best_mix(ours.policy, np.array([of_one.expected_costs[0] * (1 + 1e-9), each]))
                    for each in days
                )
                level = [
                    each
                    for each in fits_in
                    if each is not None and each.expected_score >= of_one.expected_score - 1e-9
                ]
                line = []
                for chain, policy in ((one, of_one), (ours, level[0] if level else None)):
                    if policy is None:
                        break
                    at = chain.at(policy)
                    line += [
                        np.mean(at.predict(table.X[test]) == table.y[test]),
                        *at.cost(table.X[test]).mean(),
                    ]
                if len(line) == 6:
                    found.append([share, *line])
        found = np.array(found)
        for share in SHARES:
            some = found[found[:, 0] == share, 1:]
            if len(some):
                mean = some.mean(axis=0)
                print(
                    f"{name}, dollars {share:g} of all: one by one {mean[0]:.3f} for {mean[1]:.4g} and {mean[2]:.3f} "
                    f"days; in rounds {mean[3]:.3f} for {mean[4]:.4g} and {mean[5]:.3f} days; all at once "
                    f"{table.costs[:, 0].sum():.4g} and 1 day ({len(some)} of {n_splits} splits)",
                    flush=True,
                )


def caps(tables, _):
    """The dearest of 10^6 rows under caps, in every resource."""
    for name in tables or PRICED_NAMES:
        table, rng = medical(name), np.random.default_rng(0)
        half, total = len(table.X) // 2, table.costs.sum(axis=0)
        prices = priced(table.costs, table.names, table.full, delays=table.delays)
        for cap in ({"dollars": 0.5 * total[0]}, {"dollars": 0.3 * total[0], "days": 1.0}):
            try:
                clf = BudgetedClassifier(TreesClassifier(), prices=prices, cap=cap, random_state=0)
                clf = clf.fit(table.X[:half], table.y[:half])
            except InvalidParameterError as error:
                print(f"{name}: {str(error)[:160]}")
                continue
            paid = clf.cost(table.X[rng.integers(len(table.X), size=1_000_000)])
            n_over = sum(int(np.sum(paid[each] > limit * (1 + 1e-9))) for each, limit in cap.items())
            most = {each: round(float(paid[each].max()), 3) for each in cap}
            print(
                f"{name}, cap {cap}: {n_over} of 1,000,000 rows exceed it, the dearest pays {most}",
                flush=True,
            )


def certificates(tables, _):
    """How often certificates of all budgets are wrong, and how many are proved, beside a union bound."""
    for name in tables or PRICED_NAMES:
        table = medical(name)
        half = len(table.X) // 2
        prices = priced(table.costs, table.names, table.full, delays=table.delays)
        clf = BudgetedClassifier(TreesClassifier(), prices=prices, random_state=0).fit(
            table.X[:half], table.y[:half]
        )
        held, policy, resources = clf.evidence_, clf._learned.policy, clf.chain_.price_list.resources
        middle = best_mix(policy, np.array([0.3 * table.costs[:, 0].sum(), 0.5]))
        limits = dict(zip(table.names, (1.1 * middle.expected_costs).tolist(), strict=True))
        mixes = mixes_up_to(policy, resources.limits(limits))[::-5][::-1]
        rng, line = np.random.default_rng(0), []
        for confidence in (0.9, 0.95):  # 0.95 in each of two: a union bound of 0.9 for both
            wrong, spent, proved = 0, [], 0
            for _ in range(300):
                drawn = held.take(rng.integers(held.n_units, size=N_PROOF))
                bounds = [CostBounds(drawn.of_resource(k), N_PROOF) for k in range(2)]
                try:
                    point = certified_within(mixes, bounds, resources, limits, confidence)
                except InvalidParameterError:
                    continue
                proved += 1
                wrong += bool(np.any(point.expected_costs > np.array([*limits.values()]) * (1 + 1e-9)))
                spent.append(float((point.expected_costs / np.array([*limits.values()])).max()))
            line.append(f"{proved} proved, {wrong / 3:.1f} % wrong, spend {np.mean(spent or [np.nan]):.3f}")
        print(f"{name}, 90 % from {N_PROOF} rows, of 300: {line[0]}; by a union bound {line[1]}", flush=True)


# -- a gateway ---------------------------------------------------------------------------------------------


def counting(load):
    """A load that keeps what answers say that they cost."""

    class Counting(load):
        paid = ()

        def _listen(self, connection):
            n_before = len(self.latencies)
            super()._listen(connection)
            if len(self.latencies) > n_before:
                outputs = json.loads(connection.said.partition(b"\r\n\r\n")[2])["outputs"]
                of_each = {each["name"]: each["data"][0] for each in outputs}
                self.paid = self.paid or []
                self.paid.append([of_each["cost_dollars"], of_each["cost_days"]])

    return Counting


def gateway(_tables, _splits, n_requests=100_000, n_clients=200, seconds_to_kill=20.0, seconds=1_200.0):
    """Requests of one row by clients, each of which asks again when it was answered; one of two workers is killed."""
    from ports import free_ports
    from serve import Load, _wait, posting

    table, rng = medical("heart"), np.random.default_rng(0)
    prices = priced(table.costs, table.names, table.full, delays=table.delays)
    total = table.costs[:, 0].sum()
    X = pd.DataFrame(table.X, columns=[f"x{k}" for k in range(table.X.shape[1])])
    clf = BudgetedClassifier(TreesClassifier(), prices=prices, cap={"dollars": 0.6 * total}, random_state=0)
    clf = clf.fit(X[:200], table.y[:200])
    budget = {"dollars": round(0.4 * total, 2), "days": 0.5}
    with tempfile.TemporaryDirectory() as folder:
        folder, (port, admin) = Path(folder), free_ports(2)
        save(clf.at(budget=budget), folder / "system.thrifty")
        shown = ", ".join(f"{name} = {limit}" for name, limit in budget.items())
        (folder / "serve.toml").write_text(
            f'port={port}\nadmin_port={admin}\nname="m"\nlog_requests=false\nworkers=2\nbudget={{ {shown} }}\n'
        )
        code = "import sys; from thrifty.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "serve", "system.thrifty", "--config", "serve.toml"]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            _wait(f"http://127.0.0.1:{port}/v2/health/ready")
            rows = table.X[200 + rng.integers(103, size=1_000)]
            asked = [{"name": "answer"}, {"name": "cost_dollars"}, {"name": "cost_days"}]
            tensor = {"name": "X", "datatype": "FP64", "shape": [1, rows.shape[1]]}
            requests = [
                posting({"inputs": [{**tensor, "data": row.tolist()}], "outputs": asked}) for row in rows
            ]
            load = counting(Load)(port, requests)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            threading.Timer(seconds_to_kill, os.kill, [int(children[-1]), signal.SIGKILL]).start()
            ends, done = time.perf_counter() + seconds, load.statuses.total
            while (done() < n_requests and time.perf_counter() < ends) or load._n_waiting:
                is_open = time.perf_counter() < ends
                while is_open and load._n_waiting < n_clients and done() + load._n_waiting < n_requests:
                    load._send(requests[rng.integers(len(requests))], time.perf_counter())
                load._hear(0.1)
            paid = np.array(load.paid)
            means = {
                name: round(float(each), 4) for name, each in zip(budget, paid.mean(axis=0), strict=True)
            }
            print(
                f"gateway: {done():,} requests, {n_clients} at once, statuses {dict(load.statuses)}; means {means} "
                f"of {budget}; {np.sum(paid[:, 0] > 0.6 * total * (1 + 1e-9))} rows exceed the cap of "
                f"{0.6 * total:.4g}, the dearest pays {paid[:, 0].max():.4g}",
                flush=True,
            )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


if __name__ == "__main__":
    parts = {one.__name__: one for one in (kept, grid, routing, rounds, caps, certificates, gateway)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=parts)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--splits", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    parts[given.what](given.tables, given.splits)
