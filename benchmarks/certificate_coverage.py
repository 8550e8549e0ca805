"""How often certificates are wrong, on rows drawn afresh, repeated, or seen before.

    python benchmarks/certificate_coverage.py

500 times a confidence gate is fitted on 200 rows of a known world, and the cheapest point is certified to lose at most
5 % against the full model with 90 % confidence. A certificate is wrong if what it certifies loses more on 10,000 new
rows; at most 10 % of them may be. "saves": share of certificates that do not send every row to the full model. Without
classes the answer is a number, rows are sent on by chance, and a row is lost if its error is larger than the full
model's by more than the tolerance.

    python benchmarks/certificate_coverage.py --kinds

Certificates by class, wrong if one class loses more than its limit, and of the mean excess of a loss: of squared errors
clipped at 4 variances, of the Brier loss, and of mistakes that cost 5 and 200.

    python benchmarks/certificate_coverage.py --rankings ndcg
    python benchmarks/certificate_coverage.py --rankings ap

Certificates of rankers, which count queries: each is fitted on 60 queries of 8 documents and certified on 150 others to
lose at most 25 % of them; it is wrong if more of 2,000 new queries have an order that is worse than the full model's.

    python benchmarks/certificate_coverage.py --partitions

Certificates of cascades that `thrifty.scale` fits on tables larger than memory: 600 rows, each once or three times, are
dealt into 3 partitions at random; a cascade is fitted on a sample of a third of them, and certified by the counts of
all partitions. "equal": share of certificates that are those of the same rows in memory, to the last digit.
"""

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from reproduction.rivals.uniform import UniformRouterRegressor
from thrifty import (
    BudgetedClassifier,
    BudgetedRanker,
    ConfidenceRouter,
    Frontier,
    StageOptions,
    certify,
    evidence_of,
)
from thrifty.engine.evidence.collect import training_fingerprints
from thrifty.engine.tasks.classes import read_loss
from thrifty.errors import InvalidInputError, NothingSavedWarning
from thrifty.rows import fingerprints
from thrifty.scale.fit import fit

MAX_LOSS, CONFIDENCE = 0.05, 0.9
N_FIT, N_PROOF, N_NEW, TIMES = 200, 300, 10_000, 20
# Queries to fit on, to prove with and to judge certificates on, documents of each, and the share that may be worse
QUERIES, DOCUMENTS, QUERIES_LOST = (60, 150, 2_000), 8, 0.25
METRICS = ("ndcg", "ap")
N_TABLE, N_PARTITIONS = 600, 3
# Rows of a world, the cheap model, and what is certified there: rows given, copies of each, duplicates=
WORLDS = (
    ("new rows", None, GaussianNB(), [(1, "refuse"), (TIMES, "refuse"), (TIMES, "count")]),
    (
        "new rows of few kinds",
        1,
        GaussianNB(),
        [(1, "drop"), (1, "count"), (TIMES, "drop"), (TIMES, "count")],
    ),
    (
        "rows of the fit",
        None,
        DecisionTreeClassifier(max_depth=5, random_state=0),
        [(1, "refuse"), (1, "count")],
    ),
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
    if n_classes == 0:
        cheap = DecisionTreeRegressor(max_depth=3, random_state=0)
        clf = UniformRouterRegressor(Ridge(), cheap, features=[0], cv=2, random_state=0).fit(X, y)
    else:
        full = GaussianNB(var_smoothing=1e-3)
        clf = ConfidenceRouter(full, cheap, features=[0], cv=2, random_state=0).fit(X, y)
    proof = (X, y) if name == "rows of the fit" else draw(rng, N_PROOF, n_classes, digits)
    new, labels = draw(rng, N_NEW, n_classes, digits)
    seen, unlike = evidence_of(clf, new, labels), ~np.isin(fingerprints(new), training_fingerprints(clf))
    found = {}
    for times, duplicates in asked:
        rows = [np.repeat(part, times, axis=0) for part in proof]
        # Rows that equal those of the fit were left out, and the certificate speaks of the others.
        meant = unlike if duplicates == "drop" else np.ones(N_NEW, bool)
        try:
            sure = clf.certified(*rows, max_loss=MAX_LOSS, confidence=CONFIDENCE, duplicates=duplicates)
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


def with_loss(clf, given):
    """The router with another loss of its answers, judged on the rows of its fit anew."""
    mistakes = read_loss(given, clf.classes_)
    clf.chain_ = replace(clf.chain_, task=replace(clf.chain_.task, mistakes=mistakes))
    return clf


def simulate_kind(rng, n_classes, given, asked):
    """One fit and its certificate: whether it saves something, and whether it is wrong."""
    X, y = draw(rng, N_FIT, n_classes, None)
    if n_classes == 0:
        cheap = DecisionTreeRegressor(max_depth=3, random_state=0)
        clf = UniformRouterRegressor(Ridge(), cheap, features=[0], cv=2, random_state=0).fit(X, y)
    else:
        full = GaussianNB(var_smoothing=1e-3)
        clf = ConfidenceRouter(full, GaussianNB(), features=[0], cv=2, random_state=0).fit(X, y)
        clf = with_loss(clf, given)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingSavedWarning)
        ranker.fit(*draw_queries(rng, QUERIES[0]))
        sure = ranker.certified(*draw_queries(rng, QUERIES[1]), max_loss=QUERIES_LOST, confidence=CONFIDENCE)
    told = sure.certificate_
    if told.is_fallback:
        return told.n_rows, False, False
    new = evidence_of(ranker, *draw_queries(rng, QUERIES[2])).against_full()
    no_worse = new.at_point(np.array(told.point.thresholds))[2]
    return told.n_rows, True, np.mean(1.0 - no_worse) > QUERIES_LOST


def print_ranking(metric, repeats):
    """Print the line of one metric."""
    rng = np.random.default_rng([11, METRICS.index(metric)])
    found = [simulate_ranking(rng, metric) for _ in range(repeats)]
    counted, saves, wrong = np.mean(found, axis=0)
    print("certificate               repeats  queries   saves   wrong")
    print(f"{f'orders, {metric}@5':>22} {repeats:10} {counted:8.0f} {saves:7.1%} {wrong:7.1%}")


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
    goal = {"max_loss": MAX_LOSS, "confidence": CONFIDENCE}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that save nothing
        sure = fit(cascade, each, list("abcd"), "y", sample=copies * N_FIT, **goal)
        memory = cascade.certified(table[list("abcd")], table["y"], **goal, duplicates="drop")
    told = sure.certificate_
    new, labels = draw(rng, N_NEW, 2, digits)
    new = pd.DataFrame(new, columns=list("abcd"))
    unlike = ~np.isin(fingerprints(new.to_numpy()), training_fingerprints(sure))
    is_wrong = loss(evidence_of(sure, new, labels), told, unlike) > MAX_LOSS
    return told.n_rows, not told.is_fallback, is_wrong, told == memory.certificate_


def print_partitions(repeats):
    """Print one line per kind of table."""
    print("table                       counted   saves   wrong   equal")
    for number, (name, kind) in enumerate(PARTITIONED.items()):
        rng = np.random.default_rng([13, number])
        counted, saves, wrong, equal = np.mean(
            [simulate_partitions(rng, *kind) for _ in range(repeats)], axis=0
        )
        print(f"{name:>26} {counted:8.0f} {saves:7.1%} {wrong:7.1%} {equal:7.1%}", flush=True)


def main():
    """Print one line per task and kind of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--kinds", action="store_true", help="certificates by class and of means")
    parser.add_argument(
        "--rankings", choices=METRICS, help="certificates of rankers by this metric, which count queries"
    )
    parser.add_argument("--partitions", action="store_true", help="certificates of tables larger than memory")
    given = parser.parse_args()
    repeats = given.repeats
    if given.partitions:
        print_partitions(repeats)
        return
    if given.kinds:
        print_kinds(repeats)
        return
    if given.rankings:
        print_ranking(given.rankings, repeats)
        return
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


if __name__ == "__main__":
    main()
