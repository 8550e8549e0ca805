"""How much is saved where accuracy should stay as it is, or may fall by half a point: the table of the README.

    python benchmarks/savings.py [cancer digits letters miniboone forest thyroid]

Cancer and digits come with scikit-learn; the others lie in THRIFTY_DATA or are fetched from OpenML where it has them.
The operating point is the cheapest one that is as accurate as the full model, or within half a point of it, with a
standard error to spare, on the rows of the fit, each answered by models that have not seen it (where none is, the most
accurate one); test rows have no say, and show what was really kept: in brackets, points gained or lost against the full
model. Default settings, and a row of the table is one fit.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from reproduction.datasets import (
    load_digits_at_least_five,
    load_forest,
    load_letters,
    load_miniboone,
    load_priced,
)
from thrifty import BudgetedClassifier
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError

ALLOWED = (0.0, 0.005)


def svm(C=10, gamma="scale"):
    return make_pipeline(StandardScaler(), SVC(C=C, gamma=gamma))


def forest():
    return RandomForestClassifier(200, random_state=0)


def of_split(split, full, most=None):
    X, y = np.vstack([split.X_train, split.X_val]), np.r_[split.y_train, split.y_val]
    return X[:most], y[:most], split.X_test[:20_000], split.y_test[:20_000], None, full


def cancer():
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    return X, y, X_test, y_test, None, svm(C=5)


def thyroid():
    table = load_priced("thyroid")
    X, X_test, y, y_test, *_ = train_test_split(table.X, table.y, stratify=table.y, random_state=0)
    return X, y, X_test, y_test, table.feature_costs, forest()


TABLES = {
    "cancer": ("tumours, 30 measurements", cancer),
    "digits": ("digits, 64 pixels", lambda: of_split(load_digits_at_least_five(), svm())),
    "letters": ("letters (UCI), 16 measurements", lambda: of_split(load_letters(), svm(gamma=0.3))),
    "miniboone": ("particles (MiniBooNE), 50 measurements", lambda: of_split(load_miniboone(), forest())),
    "forest": ("forest cover (Covertype), 54 columns", lambda: of_split(load_forest(), forest(), 20_000)),
    "thyroid": ("thyroid, 20 tests at real prices", thyroid),
}


def line(name):
    title, load = TABLES[name]
    X, y, X_test, y_test, costs, full = load()
    start = time.process_time()
    clf = BudgetedClassifier(full, feature_costs=costs, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FullModelNotWorthItWarning)
        clf.fit(X, y)
    # As the user knows it: its own answers, and not those of its probabilities, which were calibrated for the cascade.
    known = np.mean(clf.chain_.innermost.estimator.predict(X_test) == y_test)
    everything = X.shape[1] if costs is None else costs.sum()
    cells = []
    for loss in ALLOWED:
        try:
            point = clf.frontier_.cheapest(loss=loss)
        except InvalidInputError:
            point = clf.frontier_.cheapest(score=clf.frontier_.score.max())
        there = clf.at(budget=point.cost)
        accuracy, spent = np.mean(there.predict(X_test) == y_test), there.cost(X_test).mean()
        lead = f"{100 * (accuracy - known):+.1f}"
        cells.append(f"{accuracy:.3f} ({lead}) for {spent:.3g}, saves {1 - spent / everything:.0%}")
    seconds = time.process_time() - start
    facts = [title, f"{len(y):,} / {len(y_test):,}", f"{known:.3f} for {everything:.4g}", *cells]
    print(f"| {' | '.join(facts)} |  {seconds:.0f} s of processor", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", choices=[*TABLES, []]
    )  # without any, the list is empty, and all are told
    print(
        "| | training / test rows | full model | target: no loss | target: at most half a point |\n"
        + "|---" * 5
        + "|",
        flush=True,
    )
    for name in parser.parse_args().tables or TABLES:
        line(name)


if __name__ == "__main__":
    main()
