"""Size on the device against calls of the remote model: accuracy of the best pair under every size at every share sent.

    python benchmarks/local_size.py --data DIR [--data-set forest] [--rows 12000]

The remote model is a forest of 100 trees that learned from other rows. For each size,
``DynaModLstsqClassifier(max_bytes=)`` chooses the number and the leaves of its trees on training rows; thresholds for a
share are cut on validation rows, and accuracies are those of test rows.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from reproduction.datasets import load_forest, load_miniboone
from thrifty import DynaModLstsqClassifier

SIZES = (250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000)
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
LOADED = {"forest": load_forest, "miniboone": load_miniboone}


def main() -> None:
    """Print a row for every size and a column for every share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None, help="Folder with the data.")
    parser.add_argument("--data-set", default="forest", choices=LOADED)
    parser.add_argument("--rows", type=int, default=12_000, help="Training rows of each model.")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    split, n = LOADED[asked.data_set](asked.data), asked.rows
    X, y, half = split.X_train, split.y_train, min(n, len(split.y_train) // 2)
    full = RandomForestClassifier(100, random_state=0).fit(X[:half], y[:half])
    X, y = X[half : 2 * half], y[half : 2 * half]
    X_test, y_test = split.X_test[:20_000], split.y_test[:20_000]
    print(
        f"{asked.data_set}: {half} rows for each model; the remote model alone {full.score(X_test, y_test):.4f}\n"
    )
    print("| most bytes | trees x leaves | bytes | " + " | ".join(f"{s:.0%} sent" for s in SHARES) + " |")
    print("|---" * (3 + len(SHARES)) + "|")
    began = time.process_time()
    for size in SIZES:
        clf = DynaModLstsqClassifier(FrozenEstimator(full), max_bytes=size, max_iter=10, random_state=0)
        clf.fit(X, y)
        found = [accuracy(clf, split, X_test, y_test, share) for share in SHARES]
        shown = " | ".join(f"{one:.4f}" for one in found)
        trees, leaves = clf.shape_
        print(f"| {size:,} | {trees} x {leaves} | {clf.n_bytes_:,} | {shown} |", flush=True)
        print(f"    {time.process_time() - began:.1f} s of processor", flush=True) if size == SIZES[
            -1
        ] else None


def accuracy(clf: DynaModLstsqClassifier, split, X, y, share: float) -> float:
    """Accuracy on new rows of the threshold that sends this share of the validation rows."""
    threshold = np.inf if share == 0.0 else clf.threshold_for(split.X_val, remote_share=share)
    return clf.at(threshold=threshold).score(X, y)


if __name__ == "__main__":
    main()
