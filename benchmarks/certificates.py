"""What a certificate costs: mean spend at the same promise, by the points that are tested and by the test.

    python benchmarks/certificates.py [--splits 20] [--max-loss 0.05] [--confidence 0.9] [cancer digits ...]

A cascade with default settings is fitted on 600 rows at most (two fifths of a small table), certified on 400 others to
lose at most 5 % against the full model with 90 % confidence, and judged on the rest, 20,000 rows at most. "points"
tests the efficient operating points of the fit, as ``certify`` does with a frontier; "path" is ``certified``, which
tests the points between them too, and on to the full model. A certificate is wrong if the system loses more there.

The last columns have the cost along the same path with other tests of the family-wise error (Angelopoulos et al. 2021,
Learn then Test): betting in the place of the exact binomial test, Bonferroni in the place of a fixed sequence, and four
fixed sequences that begin at four places, each with a quarter of the level.
"""

import argparse
import warnings

import numpy as np

from promises import MAX_NEW, TABLES, whole
from reproduction.datasets import load_digits_at_least_five
from thrifty import BudgetedClassifier, Frontier, certify, evidence_of
from thrifty.engine.evidence.hypothesis_tests import betting_bound, clopper_pearson_bound
from thrifty.engine.evidence.thresholds import path_to_full

warnings.simplefilter("ignore")
TABLES = TABLES | {"digits": lambda: whole(load_digits_at_least_five())}
NAMES = ("cancer", "digits", "letters", "miniboone", "forest", "thyroid")
N_STARTS = 4


def found(seen, thresholds):
    """Mean cost of rows at certified thresholds, and their share that is worse than with the full model."""
    if thresholds is None:
        return np.mean(seen.cost_at(-1)), 0.0
    route, cost, _ = seen.at_point(np.array(thresholds))
    return cost.mean(), np.mean(~seen.against_full().quality[np.arange(len(route)), route])


def by_other_tests(fitted, proof, new, max_loss, confidence):
    """Mean cost along the path with each of the other tests."""
    path = path_to_full(fitted, Frontier.from_evidence([fitted], against_full=True).thresholds)
    path = path[np.argsort([-fitted.at_point(one)[1].mean() for one in path], kind="stable")]
    worse, rows = ~proof.against_full().quality, np.arange(proof.n_rows)
    lost = [worse[rows, proof.at_point(one)[0]] for one in path]

    def exact(level):
        bounds = [clopper_pearson_bound(int(one.sum()), len(rows), 1 - level) for one in lost]
        return np.array(bounds) <= max_loss

    def last(passed, start=0):
        failed = np.flatnonzero(~passed[start:])
        return start + (failed[0] if len(failed) else len(passed) - start) - 1

    by_bets = np.array([betting_bound(one.astype(float), confidence) <= max_loss for one in lost])
    each, some = exact((1 - confidence) / len(path)), exact((1 - confidence) / N_STARTS)
    starts = [start * len(path) // N_STARTS for start in range(N_STARTS)]
    ends = [
        last(by_bets),
        max(np.flatnonzero(each), default=-1),
        max(last(some, start) for start in starts if start == 0 or some[start]),
    ]
    return [found(new, None if end < 0 else path[end])[0] for end in ends]


def certificates(X, y, costs, split, asked):
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
    before = certify(points.on([seen]), duplicates="drop", **asked)
    after = clf.certified(X[proof], y[proof], duplicates="drop", **asked).certificate_
    made = []
    for told, judged in ((before, new), (after, new.with_full_alone())):
        made += [*found(judged, None if told.is_fallback else told.point.thresholds), told.is_fallback]
    alone = (one.with_full_alone() for one in (fitted, seen, new))
    return made + by_other_tests(*alone, **asked)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=[*NAMES, []])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--max-loss", type=float, default=0.05)
    parser.add_argument("--confidence", type=float, default=0.9)
    given = parser.parse_args()
    asked = {"max_loss": given.max_loss, "confidence": given.confidence}
    names = " | ".join(f"{name}: cost | loss | wrong | saves nothing" for name in ("points", "path"))
    print(f"| table | everything | {names} | betting | Bonferroni | four starts |")
    print("|---" * 13 + "|", flush=True)
    shares = []
    for name in given.tables or NAMES:
        X, y, *costs = TABLES[name]()
        total = X.shape[1] if not costs else costs[0].sum()
        splits = range(given.splits)
        made = np.array([certificates(X, y, *(costs or [None]), one, asked) for one in splits], dtype=float)
        cells = []
        for cost, lost, fallback in (made[:, :3].T, made[:, 3:6].T):
            wrong = np.mean(lost > given.max_loss)
            cells.append(f"{cost.mean():.2f} | {lost.mean():.1%} | {wrong:.0%} | {fallback.mean():.0%}")
        spent = made[:, [0, 3, 6, 7, 8]].mean(axis=0)
        shares.append(spent / spent[0])
        print(
            f"| {name} | {total:.4g} | {' | '.join(cells + [f'{one:.2f}' for one in spent[2:]])} |",
            flush=True,
        )
    shown = ", ".join(f"{one:.2f}" for one in np.mean(shares, axis=0)[1:])
    print(f"mean cost as a share of that of the points: path, betting, Bonferroni, four starts {shown}")


if __name__ == "__main__":
    main()
