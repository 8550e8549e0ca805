"""How f1's lead or lag behind f0 looks to the q-step, in sample and out of fold, and how it is on new rows.

    python benchmarks/cross_fit.py --data DIR

MiniBooNE, 5,000 events, f0 a forest of 40 trees that is cross-fitted in three folds. For each family, ``cross_fit``
off and on: mean excess loss l(f1) - l(f0) as the last q-step would see it and on test rows; the share of test rows sent
at g > 0; and, with the threshold cut on validation rows, accuracy where 20 % of the test rows are sent.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning

from reproduction.datasets import load_miniboone
from reproduction.experiments.fits import judge_on_split
from thrifty import DynaModGbrtClassifier, DynaModLinClassifier, DynaModLstsqClassifier
from thrifty.engine.full.crossfit import assign_folds
from thrifty.engine.tasks.classes import clip_probability
from thrifty.engine.tasks.logistic import logistic_loss

FAMILIES = {
    "DynaMod-Lin": (DynaModLinClassifier, {"gamma": 0.005, "max_iter": 20}),
    "DynaMod-Gbrt, 60 trees": (DynaModGbrtClassifier, {"gamma": 3.0, "n_trees": 60, "max_iter": 4}),
    "DynaMod-Gbrt, 300 trees": (DynaModGbrtClassifier, {"gamma": 3.0, "n_trees": 300, "max_iter": 2}),
    "DynaMod-Lstsq": (DynaModLstsqClassifier, {"trust": 0.0, "max_iter": 10}),
}


def main() -> None:
    """Print two rows for every family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None, help="Folder with the data.")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    split = load_miniboone(asked.data)
    sign, sign_test = (np.where(y == 1, 1.0, -1.0) for y in (split.y_train, split.y_test))
    folds = assign_folds(3, split.X_train, sign, sign > 0, seed=0)
    full = judge_on_split(RandomForestClassifier(40, random_state=0, n_jobs=1), split, folds=folds)
    f0_test = of_probability(sign_test, full.test)
    print(
        "| family | f1 judged | excess as learned | excess on test rows | sent at g > 0 | accuracy, 20 % sent |"
    )
    print("|---|---|---|---|---|---|")
    began = time.process_time()
    for name, (kind, how) in FAMILIES.items():
        for cross_fit in (False, True):
            clf = kind(full.train, p_full=0.3, cross_fit=cross_fit, cv=3, random_state=0, **how)
            clf.fit(split.X_train, split.y_train)
            _, f1_test = clf.scores(split.X_test)
            g_val, _ = clf.scores(split.X_val)
            there = clf.with_full(full.test, split.X_test)
            sent = there.route(split.X_test).mean()
            cut = there.at(threshold=float(np.quantile(g_val, 0.8)))
            seen = "out of fold" if cross_fit else "in sample"
            learned = clf.excess_
            on_test = float(np.mean(logistic_loss(sign_test, f1_test) - f0_test))
            accuracy = cut.score(split.X_test, split.y_test)
            print(
                f"| {name} | {seen} | {learned:+.3f} | {on_test:+.3f} | {sent:.1%} | {accuracy:.4f} |",
                flush=True,
            )
    print(f"\n{time.process_time() - began:.0f} s of processor")


def of_probability(y, probability):
    """Log-loss of probabilities of the second class."""
    p = clip_probability(probability)
    return -np.log(np.where(y > 0, p, 1.0 - p))


if __name__ == "__main__":
    main()
