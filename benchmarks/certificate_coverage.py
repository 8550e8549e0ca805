"""How often certificates are wrong, on rows drawn afresh, repeated, or seen before.

    python benchmarks/certificate_coverage.py

500 times a confidence gate is fitted on 200 rows of a known world, and the cheapest point is certified to lose at most
5 % against the full model with 90 % confidence. A certificate is wrong if what it certifies loses more on 10,000 new
rows; at most 10 % of them may be. "saves": share of certificates that do not send every row to the full model. Without
classes the answer is a number, rows are sent on by chance, and a row is lost if its error is larger than the full
model's by more than the tolerance.
"""

import argparse
from collections import defaultdict

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from thrifty import ConfidenceRouter, InvalidInputError, UniformRouterRegressor, evidence_of
from thrifty.evidence.observe import seen_by
from thrifty.rows import fingerprints

MAX_LOSS, CONFIDENCE = 0.05, 0.9
N_FIT, N_PROOF, N_NEW, TIMES = 200, 300, 10_000, 20
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
    seen, unlike = evidence_of(clf, new, labels), ~np.isin(fingerprints(new), seen_by(clf))
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


def main():
    """Print one line per task and kind of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=500)
    repeats = parser.parse_args().repeats
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
