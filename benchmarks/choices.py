"""Choices inside the cascade, compared on rows for fitting alone: no test row of any table is read.

    python benchmarks/choices.py kept penalties stretch
    python benchmarks/choices.py kept --tables letters digits --splits 3 --keep kept.json

The rows that ``benchmarks/frontier.py`` fits on (of tables that it tests in folds, those of the first fold) are split
at random into rows to fit on, few enough for a fit in seconds, and up to 2,000 others to judge on. The full model is
100 extra trees, out of fold. Every way of a choice is fitted on the same splits. Each line has, by ways:

    small, middle, large   held accuracy at the smaller, middle and larger budgets, less that of the first way on the
                           same splits, in points, and its standard error over splits
    all                    the same over all budgets
    spent                  mean of what new rows spend over the budget, less one, and its standard deviation, in per
                           cent, where the budget is not held and not more than the cascade can spend
    seconds                processor seconds of a fit

"pooled" are means over tables in which every judged row counts the same. "Chosen" is, for each split, the fit with the
best accuracy out of fold.
"""

import argparse
import json
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import frontier
from reproduction.datasets import load_digits_at_least_five
from thrifty import BudgetedClassifier, hold_budget
from thrifty.learners.cascade import estimators as cascade
from thrifty.learners.cascade import learn, orders, plan
from thrifty.learners.cascade import stages as staged
from thrifty.rows import uniforms

TABLES = {  # rows to fit on, splits, budgets
    "letters": (2400, 4, (2, 3, 4, 5, 6, 8, 10, 12)),
    "forest": (2400, 4, (2, 3, 4, 6, 8, 12, 16, 24)),
    "miniboone": (2000, 4, (2, 3, 4, 6, 8, 12, 16, 24)),
    "satimage": (2400, 4, (2, 3, 4, 6, 8, 12, 16, 24)),
    "thyroid": (2400, 4, (2, 10, 20, 25, 35)),
    "digits": (900, 5, (2, 4, 6, 8, 12, 16, 24, 32)),
    "pima": (400, 8, (2, 5, 10, 20, 30)),
    "heart": (160, 12, (2, 5, 20, 50, 100, 200)),
    "hepatitis": (84, 12, (2, 4, 8, 15, 25)),
}
MIN_NEW, MAX_NEW = 30, 2000


def rows_for_fitting(name):
    """Table, two classes, prices: never a test row."""
    if name == "digits":
        split = load_digits_at_least_five()
        X, y = np.vstack([split.X_train, split.X_val]), np.r_[split.y_train, split.y_val]
        return X, y, np.ones(X.shape[1])
    if name == "satimage":
        arrays = np.load(frontier.DATA / "satimage.npz")
        rows = np.random.default_rng(0).permutation(len(arrays["y"]))[: 4 * len(arrays["y"]) // 5]
        X, y = arrays["X"][rows].astype(float), arrays["y"][rows]
        return X, (y == arrays["y"].min()).astype(int), np.ones(X.shape[1])
    case = frontier.load_large(name) if name in frontier.LARGE else next(frontier.load_priced(name))
    return case.X, case.y, case.costs


def split_of(name, n_fit, seed):
    """Rows to fit on, and others to judge on, with the full model's answers."""
    X, y, costs = rows_for_fitting(name)
    rows = np.random.default_rng(seed).permutation(len(y))
    fit, new = rows[:n_fit], rows[n_fit : n_fit + MAX_NEW]
    case = frontier.Case(
        name, X[fit], y[fit], X[new], y[new], costs, ExtraTreesClassifier(100, random_state=0)
    )
    case.cross_fit_full()
    return case


# -- ways ----------------------------------------------------------------------------------------


def keeping(*shares):
    """Shares of the score so far that the stages start from, the last one for all further stages."""

    def kept(place):
        return 1.0 if place <= 0 else shares[min(place, len(shares) - 1)]

    return lambda: patch.object(staged, "shrinkage_at", kept)


def sizes(*more):
    """Sizes of less than 1,000 rows: the smallest, and perhaps others."""
    usual = cascade.CAPACITIES[0]
    found = (usual, *(replace(usual, **one) for one in more))
    return lambda: patch.object(cascade, "check_sizes", lambda *_: found)


def unstretched():
    return patch.object(learn, "overconfidence_ratio", lambda _, spread: np.ones(len(spread)))


@contextmanager
def as_it_is():
    yield


def with_forward_selection():
    """One more order in the race, where there are two classes too."""
    return patch.object(plan, "ORDERS", orders.ORDERS_OF_SEVERAL)


def exchanging():
    """The order that won, each of its first purchases exchanged with one of the next two where that is better."""

    def choose(problem, race=None):
        found = plan.choose_plan(problem, race)
        known = (problem.table, problem.task, problem.y, problem.weight, problem.price_list)
        order = exchanged(orders.Learner(*known, orders.FORWARD), found.order)
        sets = orders.nested_sets(order, problem.places, problem.price_list)
        return replace(found, order=order, sets=sets)

    return patch.object(learn, "choose_plan", choose)


def exchanged(learner, order, n_places=12, n_next=3, enough=1.0):
    """Exchange purchases where rows held out gain more per price, by so many standard errors."""
    chance = uniforms(learner.table.codes, 2)
    share = min(1.0, orders.FORWARD_ROWS / len(chance))
    rows = [
        np.flatnonzero(one) for one in (chance < share * 2 / 3, (chance >= share * 2 / 3) & (chance < share))
    ]
    search, left = orders._ForwardSearch(learner, *rows), [int(purchase) for purchase in order]
    loss = learner.task.loss(learner.y[rows[1]])
    while len(left) > 1 and len(search.order) < n_places:
        trials = [search.trial(purchase) for purchase in left[:n_next]]
        before = loss.values(search._scores[1])
        worth = [
            (before - loss.values(one.scores[1])) / learner.price_list.prices[one.purchase] for one in trials
        ]
        leads = [(one - worth[0]).mean() / max((one - worth[0]).std(), 1e-12) for one in worth]
        best = int(np.argmax(np.array(leads) * np.sqrt(len(rows[1])) - enough * (np.arange(len(leads)) > 0)))
        search.accept(trials[best])
        left.remove(trials[best].purchase)
    return np.array(search.order + left, dtype=np.intp)


def full_alone():
    """The full model's own answer where it is asked, not blended with that of the last stage."""

    blended = learn.choose_blend

    def choose(problem, last):
        _, _, belief = blended(problem, last)
        return problem.task.full_alone, problem.full_scores, belief

    return patch.object(learn, "choose_blend", choose)


LIGHTER = {"l2": 1.0, "min_child_weight": 1.0}
CHOICES = {
    "kept": {
        "0.7": keeping(0.7),
        "rising to 0.95": keeping(*np.linspace(0.7, 0.95, 17)),
        "0.85": keeping(0.85),
        "1": keeping(1.0),
    },
    "penalties": {"usual": sizes(), "usual or lighter": sizes(LIGHTER)},
    "stretch": {"stretched": as_it_is, "as the copies": unstretched},
    "orders": {
        "as it is": as_it_is,
        "forward selection too": with_forward_selection,
        "exchanged": exchanging,
    },
    "blend": {"blended": as_it_is, "full model alone": full_alone},
}
FEW_ROWS = {"penalties": (150, 300, 600)}
"""Choices that are for few rows: so many of them are drawn from the larger tables."""


# -- measures ------------------------------------------------------------------------------------


def measure(case, budgets, way):
    """Held accuracy and spent / budget by budget, accuracy out of fold, and seconds."""
    start = time.process_time()
    with way():
        clf = BudgetedClassifier(case.held_out, feature_costs=case.costs, random_state=0)
        clf.fit(case.X, case.y)
    seconds = time.process_time() - start
    promised = clf.chain_.policy.score_within(np.array(budgets, dtype=float), below=0.5).mean()
    clf = clf.with_full(case.on_test, case.X_test)
    policy, held, spent = clf.chain_.policy, [], []
    cheapest = clf.chain_.at(policy.at(0)).cost(case.X_test).mean()
    for budget in budgets:
        # Whoever cannot pay for the first purchase answers with the larger class.
        right = case.y_test == (case.y.mean() > 0.5)
        if budget >= cheapest:
            right = hold_budget(clf, case.X_test, budget).predict(case.X_test) == case.y_test
        held.append(np.mean(right))
        fits = policy.cost[0] <= budget <= policy.cost[-1]
        paid = clf.at(budget=budget).cost(case.X_test).mean() if fits else np.nan
        spent.append(paid / budget)
    n_rows = len(case.y_test)
    return {"held": held, "spent": spent, "promised": float(promised), "seconds": seconds, "rows": n_rows}


def compare(choice, ways, name, n_fit, n_splits, budgets, known):
    """What every way gives on every split: found before, or measured now."""
    found = {way: [] for way in CHOICES[choice] if not ways or way in ways}
    for seed in range(n_splits):
        keys = {way: f"{choice} {name} {n_fit} {seed} {way}" for way in found}
        case = None if all(key in known for key in keys.values()) else split_of(name, n_fit, seed)
        for way, key in keys.items():
            if key not in known:
                known[key] = measure(case, budgets, CHOICES[choice][way])
            found[way].append(known[key])
    if {"0.7", "0.85", "1"} <= set(found):
        found["chosen"] = [
            max((found[way][seed] for way in ("0.7", "0.85", "1")), key=lambda one: one["promised"])
            for seed in range(n_splits)
        ]
    return found


# -- tables --------------------------------------------------------------------------------------


def by_budget(values):
    """Means over the smaller, middle, larger and all budgets of values of shape (n_splits, n_budgets)."""
    thirds = [part.mean(axis=1) for part in np.array_split(100 * values, 3, axis=1)]
    return np.column_stack([*thirds, 100 * values.mean(axis=1)])


def cells(mean, error):
    return [f"{one:+.2f} ± {spread:.2f}" for one, spread in zip(mean, error, strict=True)]


def print_line(name, way, told, found):
    spent = np.array([one["spent"] for one in found], dtype=float)
    stray = f"{100 * (np.nanmean(spent) - 1):+.1f} ± {100 * np.nanstd(spent):.1f}"
    seconds = np.mean([one["seconds"] for one in found])
    print(f"| {name} | {way} | " + " | ".join([*told, stray, f"{seconds:.1f}"]) + " |", flush=True)


def print_choice(choice, ways, tables, n_rows, n_splits, known, keep):
    """A table with a line for each table and way, and pooled lines."""
    print(f"\n| {choice}: table, rows, splits | way | small | middle | large | all | spent, % | seconds |")
    print("|---" * 8 + "|")
    means = {}
    for name in tables:
        own, splits, budgets = TABLES[name]
        few = [n for n in FEW_ROWS.get(choice, (own,)) if n <= own] or [own]
        for n_fit in [n for n in n_rows or few if len(rows_for_fitting(name)[1]) - n >= MIN_NEW]:
            found = compare(choice, ways, name, n_fit, n_splits or splits, budgets, known)
            if keep:
                Path(keep).write_text(json.dumps(known))
            label = f"{name}, {n_fit:,}, {n_splits or splits}"
            held = {way: np.array([one["held"] for one in some]) for way, some in found.items()}
            first, *others = found
            base = by_budget(held[first]).mean(axis=0)
            print_line(label, first, [f"{one:.1f}" for one in base], found[first])
            for way in others:
                ahead = by_budget(held[way] - held[first])
                error = ahead.std(axis=0, ddof=1) / np.sqrt(len(ahead))
                print_line("", way, cells(ahead.mean(axis=0), error), found[way])
                n_judged = sum(one["rows"] for one in found[way])
                means.setdefault(way, []).append((ahead.mean(axis=0), error, np.full(4, n_judged)))
    for way, several in means.items():
        mean, error, n_judged = np.array(several).transpose(1, 0, 2)
        share = n_judged / n_judged.sum(axis=0)
        pooled = cells((share * mean).sum(axis=0), np.sqrt(np.square(share * error).sum(axis=0)))
        print(f"| pooled | {way} | " + " | ".join(pooled) + " | | |", flush=True)


def main():
    """Print a table for each choice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("choices", nargs="+", choices=sorted(CHOICES))
    parser.add_argument("--ways", nargs="+", help="some of the ways, in place of all")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--rows", type=int, nargs="+", help="rows to fit on, in place of a number by table")
    parser.add_argument("--splits", type=int)
    parser.add_argument("--keep", help="file that keeps what was measured, and is read again")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    frontier.N_JOBS = 1
    known = json.loads(Path(chosen.keep).read_text()) if chosen.keep and Path(chosen.keep).exists() else {}
    for choice in chosen.choices:
        print_choice(choice, chosen.ways, chosen.tables, chosen.rows, chosen.splits, known, chosen.keep)


if __name__ == "__main__":
    main()
