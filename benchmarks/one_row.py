"""Time of one answer: one row at a time from an array and from a data frame, and rows per second by threads.

    python benchmarks/one_row.py

One cascade is fitted; then chains of its first 1, 2, 4, ... stages are timed with thresholds that let nobody stop, so
that a row goes through all of them. The full model is not asked. Times are the best of many calls, in microseconds.
"""

import copy
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
from sklearn.datasets import make_classification

from thrifty import BudgetedClassifier, Policy, StageOptions

N_COLUMNS, N_STAGES = 24, (1, 2, 4, 8, 16)
SIZES = {"100 trees of depth 6": (100, 6), "150 trees of depth 10": (150, 10)}
REPEATS = 1000


def best(call, repeats=REPEATS):
    """Microseconds of the fastest call."""
    call()
    found = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return 1e6 * found


def through(clf, n_stages):
    """The estimator with so many stages, the last one again and again if there are fewer; rows stop at the last."""
    chain = clf.chain_
    stages = (chain.stages + chain.stages[-1:] * n_stages)[:n_stages]
    thresholds = np.r_[np.full(n_stages - 1, -np.inf), np.inf]
    other = copy.copy(clf)
    other.chain_ = replace(chain, stages=stages, policy=Policy.of(thresholds))
    return other


def latency(clf, named, X):
    """Print microseconds for one row, by the number of stages."""
    frame = pd.DataFrame(X[:1], columns=named.feature_names_in_)
    print(f"{'stages':>7}" + "".join(f"{name:>24}" for name in ("predict", "predict_proba", "cost")))
    print(f"{'':>7}" + f"{'array':>12}{'data frame':>12}" * 3)
    for n_stages in N_STAGES:
        plain, framed = through(clf, n_stages), through(named, n_stages)
        times = []
        for name in ("predict", "predict_proba", "cost"):
            times.append(best(lambda name=name, plain=plain: getattr(plain, name)(X[:1])))
            times.append(best(lambda name=name, framed=framed: getattr(framed, name)(frame)))
        print(f"{n_stages:>7}" + "".join(f"{one:>12.0f}" for one in times))


def throughput(clf, X):
    """Print rows per second of several threads that share one estimator."""
    print(f"{'threads':>8}{'one row a call':>18}{'200 rows a call':>18}{'20,000 rows a call':>20}")
    for n_threads in range(1, 2 * joblib.cpu_count() + 1):
        print(f"{n_threads:>8}" + "".join(f"{rate(clf, X, n_threads, n):>18,.0f}" for n in (1, 200, 20_000)))


def rate(clf, X, n_threads, n_rows, seconds=2.0):
    """Rows per second."""
    rows = np.tile(X, (n_rows // len(X) + 1, 1))[:n_rows]
    clf.predict(rows)
    until = time.perf_counter() + seconds

    def serve(_):
        n_calls = 0
        while time.perf_counter() < until:
            clf.predict(rows)
            n_calls += 1
        return n_calls

    with ThreadPoolExecutor(n_threads) as pool:
        start = time.perf_counter()
        n_calls = sum(pool.map(serve, range(n_threads)))
        return n_calls * n_rows / (time.perf_counter() - start)


def main():
    warnings.simplefilter("ignore")
    X, y = make_classification(3000, N_COLUMNS, n_informative=16, flip_y=0.05, random_state=0)
    columns = [f"column {number}" for number in range(N_COLUMNS)]
    for name, size in SIZES.items():
        clf = BudgetedClassifier(stages=StageOptions(max_stages=16, sizes=[size]), cv=2, random_state=0).fit(
            X, y
        )
        named = copy.copy(clf)
        named.feature_names_in_ = np.array(columns, dtype=object)
        print(f"\n{name} a stage, {clf.n_stages_} stages learned")
        latency(clf, named, X)
        throughput(through(clf, 8), X)


if __name__ == "__main__":
    main()
