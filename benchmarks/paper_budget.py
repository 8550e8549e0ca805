"""The paper's budget, (OPT1): gamma and shares that follow from it, against caps on the share sent at the same spend.

    python benchmarks/paper_budget.py [--data DIR] [--tables diabetes,letters,miniboone] [--splits 10] [--first 0]

Every split fits a pair for a budget, and one with ``p_full`` of .1, .3, .5, .7 and .9 each: at the default gamma, and
at the gamma that the budget led to. All are compared on test rows at the same spend: the threshold of a gate is the
one that spends the budget there, which takes no labels. A pair whose columns alone cost more than the budget has no
such threshold; it counts as the best constant answer. The best cap is the one with the best mean over the splits.
"""

import argparse
import warnings

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from reproduction.datasets import load_letters, load_miniboone
from thrifty import DynaModGbrtClassifier, DynaModGbrtRegressor, DynaModLinClassifier
from thrifty.errors import InvalidInputError, UnspentBudgetWarning

CAPS = (0.1, 0.3, 0.5, 0.7, 0.9)
TREES = {"n_trees": 20, "learning_rate": 0.2}


def diabetes(_, seed):
    """R2, 265 training rows, 10 columns of price 1 and a ridge regression of all of them."""
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=seed)
    return Ridge(0.01), X, y, X_test, y_test


def letters(data, seed):
    """Accuracy, 1,000 training rows, 16 columns of price 1 and an RBF-SVM that learned from 4,000 others."""
    split = load_letters(data)
    return frozen(CalibratedClassifierCV(SVC(C=10.0), ensemble=False), split, seed, 4000, 1000)


def miniboone(data, seed):
    """Accuracy, 1,000 training rows, 50 columns of price 1 and a forest of 40 trees that learned from 2,000 others."""
    return frozen(RandomForestClassifier(40, random_state=0), load_miniboone(data), seed, 2000, 1000)


def frozen(model, split, seed, n_full, n_train):
    """A full model that learned from rows of its own, training rows and test rows, drawn from the whole table."""
    X = np.concatenate([split.X_train, split.X_val, split.X_test])
    y = np.concatenate([split.y_train, split.y_val, split.y_test])
    order = np.random.default_rng(seed).permutation(len(y))
    scale = X.std(axis=0)
    X, y = (X / np.where(scale > 0, scale, 1.0))[order], y[order]
    full = FrozenEstimator(model.fit(X[:n_full], y[:n_full]))
    own, test = slice(n_full, n_full + n_train), slice(n_full + n_train, n_full + n_train + 2000)
    return full, X[own], y[own], X[test], y[test]


TABLES = {
    "diabetes": (diabetes, (3.0, 5.0, 7.0), {"boosted": (DynaModGbrtRegressor, TREES)}),
    "letters": (
        letters,
        (6.0,),
        {"boosted": (DynaModGbrtClassifier, TREES), "linear": (DynaModLinClassifier, {})},
    ),
    "miniboone": (
        miniboone,
        (10.0,),
        {"boosted": (DynaModGbrtClassifier, TREES), "linear": (DynaModLinClassifier, {})},
    ),
}


def score(kind, rows, budget, **how):
    """Score on test rows at the threshold that spends the budget there, the spend, the columns bought, and gamma."""
    full, X, y, X_test, y_test = rows
    try:
        clf = kind(full, random_state=0, budget=budget, **how).fit(X, y)
        there = clf.at(threshold=clf.threshold_for(X_test, budget=budget))
    except InvalidInputError:
        constant = 0.0 if kind is DynaModGbrtRegressor else max(np.mean(y_test), 1.0 - np.mean(y_test))
        return constant, 0.0, np.nan, np.nan
    return there.score(X_test, y_test), there.cost(X_test).mean(), len(clf.features_), clf.gamma_


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=None, help="Folder with the data.")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="Seed of the first split.")
    asked = parser.parse_args()
    for category in (ConvergenceWarning, UnspentBudgetWarning):
        warnings.simplefilter("ignore", category)
    print(
        "| table | pair | B | (OPT1) | spend | columns | gamma | best cap, that gamma | best cap, default gamma |"
    )
    print("|---" * 9 + "|", flush=True)
    for name in asked.tables.split(","):
        make, budgets, kinds = TABLES[name]
        drawn = [make(asked.data, seed) for seed in range(asked.first, asked.first + asked.splits)]
        for pair, (kind, how) in kinds.items():
            for budget in budgets:
                ours = np.array([score(kind, rows, budget, **how) for rows in drawn])
                caps = []
                for gammas in (ours[:, 3], [None] * len(drawn)):
                    found = [
                        [
                            score(kind, rows, budget, p_full=cap, gamma=gamma, **how)[0]
                            for rows, gamma in zip(drawn, gammas, strict=True)
                        ]
                        for cap in CAPS
                    ]
                    best = int(np.argmax(np.mean(found, axis=1)))
                    gain = ours[:, 0] - np.array(found[best])
                    caps.append(
                        f"{np.mean(found[best]):.4f} ({CAPS[best]}; ours {gain.mean():+.4f} "
                        f"± {gain.std(ddof=1) / np.sqrt(len(gain)):.4f})"
                    )
                means = ours.mean(axis=0)
                print(
                    f"| {name} | {pair} | {budget:g} | {means[0]:.4f} | {means[1]:.2f} | {means[2]:.1f} | "
                    f"{np.median(ours[:, 3]):.3g} | {caps[0]} | {caps[1]} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
