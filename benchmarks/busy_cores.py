"""A fit with the default full model, on idle cores and beside a busy process on every core.

    python benchmarks/busy_cores.py [--rows 4000] [--columns 23] [--n-jobs 1]

Threads that spin while they wait for each other make a fit many times slower on cores that are shared; a fit that does
without them loses no more than its share of the cores.
"""

import argparse
import multiprocessing
import os
import time
import warnings

import joblib
from sklearn.datasets import make_classification

from thrifty import BudgetedClassifier


def spin():
    while True:
        pass


def seconds(X, y, n_jobs):
    """Wall-clock and processor seconds of a fit."""
    clf = BudgetedClassifier(budget=X.shape[1] / 4, n_jobs=n_jobs, random_state=0)
    wall, processor = time.perf_counter(), time.process_time()
    clf.fit(X, y)
    return time.perf_counter() - wall, time.process_time() - processor


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--columns", type=int, default=23)
    parser.add_argument("--n-jobs", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y = make_classification(options.rows, options.columns, n_informative=12, flip_y=0.05, random_state=0)
    seconds(X[:400], y[:400], 1)  # compiles
    n_cores = joblib.cpu_count()
    print(f"{options.rows} x {options.columns}, n_jobs={options.n_jobs}, {n_cores} cores")
    print(f"load before: {os.getloadavg()[0]:.1f}")
    idle, worked = seconds(X, y, options.n_jobs)
    print(f"idle cores:                     {idle:6.1f} s, {worked:.1f} s of processor")
    others = [multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(n_cores)]
    for other in others:
        other.start()
    time.sleep(3.0)  # until they spin
    busy, worked = seconds(X, y, options.n_jobs)
    for other in others:
        other.terminate()
    print(
        f"a busy process on every core:   {busy:6.1f} s, {worked:.1f} s of processor, {busy / idle:.2f} x idle"
    )


if __name__ == "__main__":
    main()
