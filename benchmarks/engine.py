"""Growing trees: thrifty's grower against LightGBM, side by side in one run.

    python benchmarks/engine.py [--quick] [--parts speed,threads,memory,profile,growth]

Both sides boost two scores (f1 and g) for 100 rounds of two trees of depth 4, 255 bins, the same logistic gradients
recomputed every round by the same compiled function. Binning is not timed. Runs alternate, the best of each is
kept. Ratios mean more than seconds: the machine is shared.
"""

import argparse
import gc
import resource
import threading
import time

import lightgbm as lgb
import numpy as np
from numba import njit

from thrifty.trees import Binner, TreeGrower

SIZES = [(12_000, 16), (45_000, 50), (150_000, 200)]
RATE = 0.1


@njit(nogil=True, cache=True)
def logistic_gradient(y, score, grad, hess):
    for i in range(len(y)):
        probability = 1.0 / (1.0 + np.exp(-score[i]))
        grad[i] = probability - y[i]
        hess[i] = probability * (1.0 - probability)


def make_data(n, p, seed=0):
    """One column in ten matters, by steps, products and slopes; g learns where f1's signal is weak."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32)
    k = max(3, p // 10)
    strength = np.linspace(1.5, 0.3, k)
    signal = (np.sin(X[:, :k] * 2) + np.sign(X[:, :k])) @ strength / np.sqrt(k) + X[:, 0] * X[:, 1]
    labels = [signal + rng.logistic(size=n) * 0.5 > 0, np.abs(signal) + rng.logistic(size=n) * 0.5 < 0.7]
    return X, [label.astype(np.float64) for label in labels]


class Ours:
    """A table binned once; every run grows from nothing."""

    def __init__(self, X, labels):
        self.table, self.labels = Binner().fit_transform(X), labels

    def run(self, rounds, gamma=0.0, threads=1, newton=False, **options):
        grower = TreeGrower(self.table, gamma=gamma, n_threads=threads, **options)
        scores = [np.zeros(self.table.n_rows) for _ in self.labels]
        grad, hess = np.empty(self.table.n_rows), np.empty(self.table.n_rows)
        self.n_cells = 0
        for _ in range(rounds):
            for y, score in zip(self.labels, scores, strict=True):
                logistic_gradient(y, score, grad, hess)
                grown = grower.grow(grad, hess if newton else None, learning_rate=RATE)
                grown.add_to(score)
                self.n_cells += grown.n_cells
        self.n_bought = int(grower.bought.sum())
        self.scores = scores
        return self.loss()

    def loss(self):
        return [float(np.mean(np.logaddexp(0, -(2 * y - 1) * s))) for y, s in zip(self.labels, self.scores, strict=True)]


class LightGBM:
    """Two boosters in turn: faster for it than one booster of two classes, whose trees it slows down by half."""

    def __init__(self, X, labels):
        self.labels = labels
        self.data = lgb.Dataset(X, label=labels[0], params={"max_bin": 255, "verbose": -1}, free_raw_data=False)
        self.data.construct()

    def run(self, rounds, penalty=0.0, threads=1, newton=False, **options):
        n = len(self.labels[0])
        params = {
            "objective": "none", "num_leaves": 16, "max_depth": 4, "max_bin": 255, "learning_rate": RATE,
            "num_threads": threads, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0, "verbose": -1,
            "boost_from_average": False, **options,
        }  # fmt: skip
        if penalty:
            params |= {"cegb_tradeoff": 1.0, "cegb_penalty_feature_coupled": [penalty] * self.data.num_feature()}
        boosters = [lgb.Booster(params, self.data) for _ in self.labels]
        ones = np.ones(n)
        scores, used = [None, None], set()

        def objective(which):
            def compute(score, _):
                grad, hess = np.empty(n), np.empty(n)
                logistic_gradient(self.labels[which], score, grad, hess)
                return grad, (hess if newton else ones)

            return compute

        for _ in range(rounds):
            for which, booster in enumerate(boosters):
                booster.update(fobj=objective(which))
        for which, booster in enumerate(boosters):
            scores[which] = booster._Booster__inner_predict(data_idx=0)
            used |= set(np.flatnonzero(booster.feature_importance()))
        self.n_bought, self.scores = len(used), scores
        return Ours.loss(self)


def best_times(runs, repeats, clock=time.process_time):
    """Best seconds of each run, run in turn so that a busy moment hits all of them.

    Processor seconds for one thread: they do not count the time that other programs took.
    """
    best = [np.inf] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            gc.collect()
            start = clock()
            run()
            best[i] = min(best[i], clock() - start)
    return best


def penalty_for(ours, share, rounds):
    """Gamma at which about ``share`` of the columns is bought, and what it bought."""
    low, high = 0.0, float(len(ours.labels[0]))
    for _ in range(10):
        gamma = (low + high) / 2
        ours.run(rounds, gamma=gamma)
        low, high = (gamma, high) if ours.n_bought > share * ours.table.n_features else (low, gamma)
    return high


def report_speed(data, rounds, repeats, threads=1):
    print(f"\n## Speed, {threads} thread(s) each: seconds for {rounds} rounds of two trees")
    print("| rows x columns | penalty | bought ours / LightGBM | ours | LightGBM | ratio | ours without skipping | loss |")
    print("|---|---|---|---|---|---|---|---|")
    for (n, p), (ours, theirs) in data.items():
        fifth = penalty_for(ours, 0.2, max(rounds // 5, 5))
        for gamma, name in ((0.0, "none"), (fifth, "a fifth"), (8 * fifth, "8 x that")):
            for newton in (False, True) if gamma == 0 else (False,):
                options = {"threads": threads, "newton": newton}
                losses = []
                mine, lights, plain = best_times(
                    [
                        lambda: losses.append(ours.run(rounds, gamma=gamma, **options)),
                        # LightGBM's gain has no factor 1/2, hence twice the penalty.
                        lambda: losses.append(theirs.run(rounds, penalty=2 * gamma, **options)),
                        lambda: ours.run(rounds, gamma=gamma, skip_hopeless=False, **options) if gamma else None,
                    ],
                    repeats,
                    time.process_time if threads == 1 else time.perf_counter,
                )
                plain_text = f"{plain:.2f}" if gamma else "-"
                print(
                    f"| {n:,} x {p} | {name}{', Newton' if newton else ''} | {ours.n_bought} / {theirs.n_bought} | "
                    f"{mine:.2f} | {lights:.2f} | **{lights / mine:.2f}** | {plain_text} | "
                    f"{losses[0][0]:.4f} / {losses[1][0]:.4f} |",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    sizes = SIZES[:2] if arguments.quick else SIZES
    rounds = 20 if arguments.quick else 100
    data = {}
    for n, p in sizes:
        X, labels = make_data(n, p)
        data[n, p] = Ours(X, labels), LightGBM(X, labels)
    report_speed(data, rounds, 3)
