"""What certificates cost, and how often they are wrong.

    python benchmarks/certificates.py cost [--repeats 20] [--tables cancer digits ...]

Mean spend at the same promise, by the points that are tested and by the test. A cascade with default settings is fitted
on 600 rows at most (two fifths of a small table), certified on 400 others to lose at most 5 % against the full model
with 90 % confidence, and evaluated on the rest, 20,000 rows at most. "points" tests the efficient operating points of
the fit, as ``certify`` does with a frontier; "path" is ``certified``, which tests the points between them too, and on
to the full model. The last columns have the cost along the same path with other tests of the family-wise error
(Angelopoulos et al. 2021, Learn then Test): betting instead of the exact binomial test, Bonferroni instead of a fixed
sequence, and four fixed sequences that begin at four places, each with a quarter of the level.

    python benchmarks/certificates.py coverage

500 times a confidence gate is fitted on 200 rows of a known world, and the cheapest point is certified to lose at most
5 % against the full model with 90 % confidence. A certificate is wrong if what it certifies loses more on 10,000 new
rows; at most 10 % of them may be. "saves": share of certificates that do not send every row to the full model. Without
classes the answer is a number, rows are sent on by chance, and a row is lost if its error is larger than the full
model's by more than the tolerance.

    python benchmarks/certificates.py kinds

Certificates by class, wrong if one class loses more than its limit, and of the mean excess of a loss: of squared errors
clipped at 4 variances, of the Brier loss, and of mistakes that cost 5 and 200.

    python benchmarks/certificates.py rankings

Certificates of rankers by ndcg and ap, which count queries: each is fitted on 60 queries of 8 documents and certified
on 150 others to lose at most 25 % of them; it is wrong if more of 2,000 new queries have an order that is worse than
the full model's.

    python benchmarks/certificates.py partitions

Certificates of cascades that `thrifty.scale` fits on tables larger than memory: 600 rows, each once or three times, are
divided into 3 partitions at random; a cascade is fitted on a sample of a third of them, and certified by the counts of
all partitions. "equal": share of certificates that are those of the same rows in memory, to the last digit.

    python benchmarks/certificates.py budgets [--repeats 40]

How often fits on 800 rows spend more than their budget. Each system is fitted on 800 rows and asked for several budgets
by ``at``; and on 600 of them, and certified for these budgets on the other 200. What it spends, and its accuracy, is
measured on 10,000 new rows. "over", "over by 5 %": share of fits that spend more than the budget, or more than 1.05
times it; "inside": share of fits whose ``expected_cost_interval_`` holds what new rows spend.
"""

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from promises import MAX_NEW, TABLES, whole
from reproduction.datasets import load_digits_at_least_five
from reproduction.rivals.uniform import UniformRouterRegressor
from thrifty import (
    BudgetedClassifier,
    BudgetedRanker,
    ConfidenceRouter,
    Frontier,
    Prices,
    StageOptions,
    certify,
    evidence_of,
)
from thrifty.engine.evidence.collect import training_fingerprints
from thrifty.engine.evidence.hypothesis_tests import betting_bound, clopper_pearson_bound
from thrifty.engine.evidence.thresholds import path_to_full
from thrifty.engine.tasks.classes import read_loss
from thrifty.errors import InvalidInputError, ThriftyError
from thrifty.rows import fingerprints
from thrifty.scale.fit import fit

MAX_LOSS, CONFIDENCE = 0.05, 0.9
GOAL = {"max_loss": MAX_LOSS, "confidence": CONFIDENCE}

# -- what they cost ----------------------------------------------------------------------------------

TABLES = TABLES | {"digits": lambda: whole(load_digits_at_least_five())}
NAMES = ("cancer", "digits", "letters", "miniboone", "forest", "thyroid")
N_STARTS = 4


def cost_and_loss(evidence, thresholds):
    """Mean cost of rows at certified thresholds, and their share that is worse than with the full model."""
    if thresholds is None:
        return np.mean(evidence.cost_at(-1)), 0.0
    route, cost, _ = evidence.at_point(np.array(thresholds))
    return cost.mean(), np.mean(~evidence.against_full().quality[np.arange(len(route)), route])


def by_other_tests(fitted, proof, new):
    """Mean cost along the path with each of the other tests."""
    path = path_to_full(fitted, Frontier.from_evidence([fitted], against_full=True).thresholds)
    path = path[np.argsort([-fitted.at_point(one)[1].mean() for one in path], kind="stable")]
    worse, rows = ~proof.against_full().quality, np.arange(proof.n_rows)
    lost = [worse[rows, proof.at_point(one)[0]] for one in path]

    def exact(level):
        bounds = [clopper_pearson_bound(int(one.sum()), len(rows), 1 - level) for one in lost]
        return np.array(bounds) <= MAX_LOSS

    def last(passed, start=0):
        failed = np.flatnonzero(~passed[start:])
        return start + (failed[0] if len(failed) else len(passed) - start) - 1

    by_bets = np.array([betting_bound(one.astype(float), CONFIDENCE) <= MAX_LOSS for one in lost])
    each, some = exact((1 - CONFIDENCE) / len(path)), exact((1 - CONFIDENCE) / N_STARTS)
    starts = [start * len(path) // N_STARTS for start in range(N_STARTS)]
    ends = [
        last(by_bets),
        max(np.flatnonzero(each), default=-1),
        max(last(some, start) for start in starts if start == 0 or some[start]),
    ]
    return [cost_and_loss(new, None if end < 0 else path[end])[0] for end in ends]


def costs_of_certificates(X, y, costs, split):
    """Cost, loss and "saves nothing" of both certificates of one fit, and costs with the other tests."""
    order = np.random.default_rng(split).permutation(len(y))
    n_fit, n_proof = min(600, 2 * len(y) // 5), min(400, 3 * len(y) // 10)
    known, proof = order[:n_fit], order[n_fit : n_fit + n_proof]
    clf = BudgetedClassifier(feature_costs=costs, random_state=split).fit(X[known], y[known])
    fitted, seen, new = (
        clf.evidence_,
        *(evidence_of(clf, X[rows], y[rows]) for rows in (proof, order[n_fit + n_proof :][:MAX_NEW])),
    )
    points = Frontier.from_evidence([fitted], against_full=True)
    before = certify(points.on([seen]), duplicates="drop", **GOAL)
    after = clf.certified(X[proof], y[proof], duplicates="drop", **GOAL).certificate_
    made = []
    for certificate, evidence in ((before, new), (after, new.with_full_alone())):
        made += [
            *cost_and_loss(evidence, None if certificate.is_fallback else certificate.point.thresholds),
            certificate.is_fallback,
        ]
    alone = (one.with_full_alone() for one in (fitted, seen, new))
    return made + by_other_tests(*alone)


def print_costs(repeats, tables=NAMES):
    """Print a line per table, and the mean cost of each way as a share of that of the points."""
    repeats = repeats or 20
    names = " | ".join(f"{name}: cost | loss | wrong | saves nothing" for name in ("points", "path"))
    print(f"| table | everything | {names} | betting | Bonferroni | four starts |")
    print("|---" * 13 + "|", flush=True)
    shares = []
    for name in tables:
        X, y, *costs = TABLES[name]()
        total = X.shape[1] if not costs else costs[0].sum()
        made = np.array(
            [costs_of_certificates(X, y, *(costs or [None]), split) for split in range(repeats)], dtype=float
        )
        cells = []
        for cost, lost, fallback in (made[:, :3].T, made[:, 3:6].T):
            wrong = np.mean(lost > MAX_LOSS)
            cells.append(f"{cost.mean():.2f} | {lost.mean():.1%} | {wrong:.0%} | {fallback.mean():.0%}")
        spent = made[:, [0, 3, 6, 7, 8]].mean(axis=0)
        shares.append(spent / spent[0])
        print(
            f"| {name} | {total:.4g} | {' | '.join(cells + [f'{one:.2f}' for one in spent[2:]])} |",
            flush=True,
        )
    shown = ", ".join(f"{one:.2f}" for one in np.mean(shares, axis=0)[1:])
    print(f"mean cost as a share of that of the points: path, betting, Bonferroni, four starts {shown}")


# -- how often they are wrong ------------------------------------------------------------------------

N_FIT, N_PROOF, N_NEW, TIMES = 200, 300, 10_000, 20
# Queries to fit on, to prove with and to judge certificates on, documents of each, and the share that may be worse
QUERIES, DOCUMENTS, QUERIES_LOST = (60, 150, 2_000), 8, 0.25
METRICS = ("ndcg", "ap")
N_TABLE, N_PARTITIONS = 600, 3
DEEP_TREE = DecisionTreeClassifier(max_depth=5, random_state=0)
# Rows of a world, the cheap model, and what is certified there: rows given, copies of each, duplicates=
WORLDS = (
    ("new rows", None, GaussianNB(), [(1, "refuse"), (TIMES, "refuse"), (TIMES, "count")]),
    ("new rows of few kinds", 1, GaussianNB(), list(product((1, TIMES), ("drop", "count")))),
    ("rows of the fit", None, DEEP_TREE, [(1, "refuse"), (1, "count")]),
)


def draw(rng, n_rows, n_classes, digits):
    """Rows of four columns, or of two that are rounded, and a label that depends on all of them."""
    X = rng.normal(size=(n_rows, 4))
    if digits is not None:
        X = np.round(X[:, :2], digits) @ np.eye(2, 4)
    score = X @ [1.0, 0.8, 0.6, 0.4] + 0.5 * rng.normal(size=n_rows)
    if n_classes == 0:
        return X, score
    return X, np.digitize(score, [0.0, 1.0][: n_classes - 1])


def fitted_router(X, y, n_classes, cheap):
    """A router between two models by confidence, of numbers by chance."""
    if n_classes == 0:
        cheap = DecisionTreeRegressor(max_depth=3, random_state=0)
        return UniformRouterRegressor(Ridge(), cheap, features=[0], cv=2, random_state=0).fit(X, y)
    full = GaussianNB(var_smoothing=1e-3)
    return ConfidenceRouter(full, cheap, features=[0], cv=2, random_state=0).fit(X, y)


def loss(seen, certificate, meant):
    """Share of the rows meant on which the certified system is worse than the full model."""
    if certificate.is_fallback:
        return 0.0
    no_worse = seen.against_full().at_point(np.array(certificate.point.thresholds))[2]
    return np.mean(~no_worse[meant])


def simulate(rng, n_classes, world):
    """One fit and its certificates: rows counted, whether it saves something, whether it is wrong; None: refused."""
    name, digits, cheap, asked = world
    X, y = draw(rng, N_FIT, n_classes, digits)
    clf = fitted_router(X, y, n_classes, cheap)
    proof = (X, y) if name == "rows of the fit" else draw(rng, N_PROOF, n_classes, digits)
    new, labels = draw(rng, N_NEW, n_classes, digits)
    seen, unlike = evidence_of(clf, new, labels), ~np.isin(fingerprints(new), training_fingerprints(clf))
    found = {}
    for times, duplicates in asked:
        rows = [np.repeat(part, times, axis=0) for part in proof]
        # Rows that equal those of the fit were left out, and the certificate speaks of the others.
        meant = unlike if duplicates == "drop" else np.ones(N_NEW, bool)
        try:
            sure = clf.certified(*rows, **GOAL, duplicates=duplicates)
            told = sure.certificate_
        except InvalidInputError:
            found[times, duplicates] = None
            continue
        found[times, duplicates] = (told.n_rows, not told.is_fallback, loss(seen, told, meant) > MAX_LOSS)
    return found


# Classes, what answers lose, and what is certified of them
KINDS = {
    "2 classes, by class": (2, "error", {"max_loss": {0: 0.1, 1: 0.1}}),
    "3 classes, by class": (3, "error", {"max_loss": {0: 0.1, 1: 0.2, 2: 0.2}}),
    "numbers, mean": (0, None, {"max_loss": MAX_LOSS, "measure": "mean"}),
    "Brier loss, mean": (2, "brier", {"max_loss": MAX_LOSS, "measure": "mean"}),
    "priced mistakes, mean": (2, [[0, 5], [200, 0]], {"max_loss": MAX_LOSS, "measure": "mean"}),
}


def simulate_kind(rng, n_classes, loss_of_answers, asked):
    """One fit and its certificate: whether it saves something, and whether it is wrong."""
    clf = fitted_router(*draw(rng, N_FIT, n_classes, None), n_classes, GaussianNB())
    if n_classes:  # another loss of its answers
        mistakes = read_loss(loss_of_answers, clf.classes_)
        clf.chain_ = replace(clf.chain_, task=replace(clf.chain_.task, mistakes=mistakes))
    of_mean = asked.get("measure") == "mean"
    choose, prove, new = (
        evidence_of(clf, *draw(rng, n_rows, n_classes, None)) for n_rows in (N_FIT, N_PROOF, N_NEW)
    )
    frontier = Frontier.from_evidence([choose], against_full=not of_mean)
    told = certify(frontier.on([prove]), confidence=CONFIDENCE, **asked)
    if told.is_fallback:
        return False, False
    point = np.array(told.point.thresholds)
    if of_mean:
        judged = replace(new, quality=new.excess(told.largest))
        return True, judged.at_point(point)[2].mean() > told.max_loss
    lost = ~new.against_full().at_point(point)[2]
    return True, any(lost[new.strata == place].mean() > limit for place, limit in asked["max_loss"].items())


def print_kinds(repeats):
    """Print one line per kind of certificate."""
    repeats = repeats or 500
    print("certificate               saves   wrong")
    for number, (name, kind) in enumerate(KINDS.items()):
        rng = np.random.default_rng([7, number])
        saves, wrong = np.mean([simulate_kind(rng, *kind) for _ in range(repeats)], axis=0)
        print(f"{name:>22} {saves:8.1%} {wrong:7.1%}", flush=True)


def draw_queries(rng, n_queries):
    """Documents of four columns, graded by all of them, with their queries."""
    X, score = draw(rng, DOCUMENTS * n_queries, 0, None)
    return X, np.column_stack([np.digitize(score, [0.5, 1.5]), np.repeat(np.arange(n_queries), DOCUMENTS)])


def simulate_ranking(rng, metric):
    """One ranker and its certificate: queries counted, whether it saves something, and whether it is wrong."""
    ranker = BudgetedRanker(
        Ridge(),
        metric=f"{metric}@5",
        tolerance=0.1,
        stages=StageOptions(max_stages=4, sizes=[(12, 3)]),
        cv=2,
        random_state=0,
    )
    ranker.fit(*draw_queries(rng, QUERIES[0]))
    sure = ranker.certified(*draw_queries(rng, QUERIES[1]), max_loss=QUERIES_LOST, confidence=CONFIDENCE)
    told = sure.certificate_
    if told.is_fallback:
        return told.n_rows, False, False
    new = evidence_of(ranker, *draw_queries(rng, QUERIES[2])).against_full()
    no_worse = new.at_point(np.array(told.point.thresholds))[2]
    return told.n_rows, True, np.mean(1.0 - no_worse) > QUERIES_LOST


def print_rankings(repeats):
    """Print one line per metric."""
    print("certificate               repeats  queries   saves   wrong")
    for number, metric in enumerate(METRICS):
        rng, repeats = np.random.default_rng([11, number]), repeats or 500
        counted, saves, wrong = np.mean([simulate_ranking(rng, metric) for _ in range(repeats)], axis=0)
        print(
            f"{f'orders, {metric}@5':>22} {repeats:10} {counted:8.0f} {saves:7.1%} {wrong:7.1%}", flush=True
        )


# Digits that rows are rounded to, and how often each is in the table
PARTITIONED = {"new rows": (None, 1), "rows in several partitions": (None, 3), "rows of few kinds": (1, 1)}


def simulate_partitions(rng, digits, copies):
    """One fit and its certificate: rows counted; whether it saves, is wrong, and is that of the rows in memory."""
    X, y = (np.repeat(part, copies, axis=0) for part in draw(rng, N_TABLE, 2, digits))
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    places = np.array_split(rng.permutation(len(table)), N_PARTITIONS)

    def each(function):
        return [function(table.iloc[rows], number) for number, rows in enumerate(places)]

    cascade = BudgetedClassifier(
        GaussianNB(var_smoothing=1e-3),
        stages=StageOptions(max_stages=3, sizes=[(8, 2)], structure="line"),
        cv=2,
        random_state=0,
    )
    sure = fit(cascade, each, list("abcd"), "y", sample=copies * N_FIT, **GOAL)
    memory = cascade.certified(table[list("abcd")], table["y"], **GOAL, duplicates="drop")
    told = sure.certificate_
    new, labels = draw(rng, N_NEW, 2, digits)
    new = pd.DataFrame(new, columns=list("abcd"))
    unlike = ~np.isin(fingerprints(new.to_numpy()), training_fingerprints(sure))
    is_wrong = loss(evidence_of(sure, new, labels), told, unlike) > MAX_LOSS
    return told.n_rows, not told.is_fallback, is_wrong, told == memory.certificate_


def print_partitions(repeats):
    """Print one line per kind of table."""
    repeats = repeats or 300
    print("table                       counted   saves   wrong   equal")
    for number, (name, kind) in enumerate(PARTITIONED.items()):
        rng = np.random.default_rng([13, number])
        counted, saves, wrong, equal = np.mean(
            [simulate_partitions(rng, *kind) for _ in range(repeats)], axis=0
        )
        print(f"{name:>26} {counted:8.0f} {saves:7.1%} {wrong:7.1%} {equal:7.1%}", flush=True)


def print_coverage(repeats):
    """Print one line per task and kind of rows."""
    repeats = repeats or 500
    print("classes             rows given  copies duplicates  refused  counted   saves   wrong")
    for n_classes in (2, 3, 0):
        for number, world in enumerate(WORLDS):
            rng, found = np.random.default_rng([n_classes, number]), defaultdict(list)
            for _ in range(repeats):
                for kind, one in simulate(rng, n_classes, world).items():
                    found[kind].append(one)
            for (times, duplicates), every in found.items():
                issued = np.array([one for one in every if one is not None], dtype=float).reshape(-1, 3)
                line = f"{n_classes:7} {world[0]:>22} {times:7} {duplicates:>10} {1 - len(issued) / repeats:8.1%}"
                if len(issued):
                    counted, saves, wrong = issued.mean(axis=0)
                    line += f" {counted:8.0f} {saves:7.1%} {wrong:7.1%}"
                print(line, flush=True)


# -- budgets -------------------------------------------------------------------------------------------

N_BUDGET_FIT = 800
COSTS = [1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 8, 8]
PRICED = {"prices": Prices(COSTS, full=4.0)}
FULL = LogisticRegression(max_iter=500)
CASCADE = BudgetedClassifier(FULL, stages=StageOptions(max_stages=6, sizes=[(20, 3)]), **PRICED)
GATE = ConfidenceRouter(FULL, FULL, features=[0, 1, 4], **PRICED)
# Classes, budgets, system and fits
SYSTEMS = {
    "cascade, 2 classes": (2, (2.0, 3.0, 5.0), CASCADE, 40),
    "single gate, 3 classes": (3, (5.0, 10.0), GATE, 100),
}


def simulate_budgets(recipe, table, budgets, seed):
    """Spend, accuracy and whether the interval holds, per budget and way to choose; NaN where a budget is refused."""
    X, y = table
    rows = np.random.default_rng(seed).permutation(len(y))
    fit, new = rows[:N_BUDGET_FIT], rows[N_BUDGET_FIT : N_BUDGET_FIT + N_NEW]
    found = np.full((2, len(budgets), 3), np.nan)
    recipe = recipe.set_params(budget=budgets[-1], random_state=seed)
    learn, proof = fit[: N_BUDGET_FIT * 3 // 4], fit[N_BUDGET_FIT * 3 // 4 :]
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


def print_budgets(repeats):
    """Print one line per system, budget and way to choose."""
    print(
        "                system  fits  budget confidence  refused    over  over by 5 %   spent  accuracy  inside"
    )
    for name, (n_classes, budgets, recipe, n_fits) in SYSTEMS.items():
        n_fits, shape = repeats or n_fits, {"n_informative": 7, "n_redundant": 2, "n_classes": n_classes}
        table = make_classification(60_000, 12, **shape, flip_y=0.03, random_state=n_classes)
        found = np.array([simulate_budgets(recipe, table, budgets, seed) for seed in range(n_fits)])
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


PARTS = {
    "cost": print_costs,
    "coverage": print_coverage,
    "kinds": print_kinds,
    "rankings": print_rankings,
    "partitions": print_partitions,
    "budgets": print_budgets,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--tables", nargs="+", default=NAMES, choices=NAMES, help="of `cost`")
    parser.add_argument("--repeats", type=int, help="fits of each line")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # of fits that save nothing
    more = {"tables": chosen.tables} if chosen.part == "cost" else {}
    PARTS[chosen.part](chosen.repeats, **more)


if __name__ == "__main__":
    main()
