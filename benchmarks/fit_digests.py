"""Print a digest of what small fits of every estimator answer and cost, to see that a change changed no fit.

    python benchmarks/fit_digests.py > before.txt      # then change the code
    python benchmarks/fit_digests.py | diff before.txt -

Digests differ from machine to machine: a fit may differ in the last bits of a sum.
"""

import hashlib
import warnings
from dataclasses import replace

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.naive_bayes import GaussianNB

import thrifty
from thrifty.engine.evidence.thresholds import measured

SEED = {"random_state": 0}


def fits():
    """Fitted estimators and rows to ask them about, by name."""
    X, y = load_breast_cancer(return_X_y=True)
    X, several, numbers = X[:, :12], load_iris(return_X_y=True), load_diabetes(return_X_y=True)
    forest = ExtraTreesClassifier(20, **SEED)
    few = thrifty.StageOptions(sizes=[(20, 3)])
    small = {"stages": few, "cv": 3, **SEED}
    made = {
        "cascade": thrifty.BudgetedClassifier(forest, **small),
        "cascade, default sizes": thrifty.BudgetedClassifier(forest, **SEED),
        "cascade, budget": thrifty.BudgetedClassifier(forest, budget=1.4, **small),
        "cascade, proved": thrifty.BudgetedClassifier(forest, **small),
        "cascade, mistakes": thrifty.BudgetedClassifier(forest, loss=[[0, 20], [5, 0]], **small),
        "cascade, auto": thrifty.BudgetedClassifier(
            forest, **small | {"stages": replace(few, structure="auto")}
        ),
        "cascade, neighbours": thrifty.BudgetedClassifier(
            forest, **small | {"stages": replace(few, structure="neighbours")}
        ),
        "dynamod gbrt": thrifty.DynaModGbrtClassifier(forest, n_trees=10, **SEED),
        "dynamod lin": thrifty.DynaModLinClassifier(GaussianNB(), gamma=0.01, **SEED),
        "dynamod lstsq": thrifty.DynaModLstsqClassifier(forest, n_trees=10, **SEED),
        "confidence": thrifty.ConfidenceRouter(forest, cheap=GaussianNB(), features=[0, 1], **SEED),
    }
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for name, one in made.items():
        one.fit(scaled[::2], y[::2])
        if name == "cascade, proved":
            one = one.certified(scaled[1::2], y[1::2], max_loss=0.1)
        yield name, one, scaled[1::2]
    yield "several classes", thrifty.BudgetedClassifier(forest, **small).fit(*several), several[0]
    gbrt = thrifty.DynaModGbrtClassifier(forest, n_trees=10, **SEED)
    yield "dynamod gbrt, several classes", gbrt.fit(*several), several[0]
    regressor = ExtraTreesRegressor(20, **SEED)
    yield "numbers", thrifty.BudgetedRegressor(regressor, budget=4.0, **small).fit(*numbers), numbers[0]
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(600, 6)).round(3)
    grade = np.digitize(documents[:, 0] + documents[:, 1], [0, 1, 2])
    ranker = thrifty.BudgetedRanker(regressor, **small)
    yield "documents", ranker.fit(documents, grade, qid=np.arange(600) // 10), documents


def main():
    warnings.simplefilter("ignore")
    for name, one, X in fits():
        said = one.predict_proba(X) if hasattr(one, "predict_proba") else one.predict(X)
        policy, seen = one.chain_.policy, getattr(one, "evidence_", None)
        if (
            seen is not None and seen.optimism is not None
        ):  # scores of the rows of the fit, without a correction
            policy = measured(policy, replace(seen, optimism=None))
        parts = (said, one.cost(X), one.route(X), policy.thresholds, policy.cost, policy.score)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
        print(f"{name:30} {digest[:16]}", flush=True)


if __name__ == "__main__":
    main()
