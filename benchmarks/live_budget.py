"""Live budgets: how closely a stream of 20,000 real rows holds a target, before and after it becomes harder at once.

    python benchmarks/live_budget.py [letter] [covtype]

A cascade is fitted on other rows of the same data. The first 10,000 rows of the stream are drawn evenly; from then on
rows of the harder half, those that cost most at the target's operating point, come twice as often. Errors are those of
the mean cost of every window of 2,000 rows, against the target; "fixed" and "harder" are those of the target's
operating point without a controller, before and after the change.
"""

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from thrifty import BudgetedClassifier, Prices
from thrifty.serve.budget_controller import BudgetController

DATA = Path(os.environ.get("THRIFTY_DATA", "../shared/data"))
WINDOW, HALF, CAP = 2000, 10_000, 1.1
TRAINING = {"letter": 6000, "covtype": 4000}


def rows_of(name):
    """Training rows with labels, and other rows."""
    with np.load(DATA / f"{name}.npz") as file:
        X, y = file["X"], file["y"]
    chosen = np.random.default_rng(0).permutation(len(X))[: TRAINING[name] + 30_000]
    X, y = X[chosen].astype(float), (y[chosen] >= 13 if name == "letter" else y[chosen])
    return X[: TRAINING[name]], y[: TRAINING[name]].astype(int), X[TRAINING[name] :]


def stream_of(cost, seed=1):
    """Places of rows: evenly drawn, then with the harder half doubled."""
    chance = np.random.default_rng(seed)
    weight = np.where(np.argsort(np.argsort(cost, kind="stable")) >= len(cost) / 2, 2.0, 1.0)
    return np.r_[chance.choice(len(cost), HALF), chance.choice(len(cost), HALF, p=weight / weight.sum())]


def spent(controller, chain, X, batch):
    """What each row pays."""
    readers = (chain.reader(X[first : first + batch]) for first in range(0, len(X), batch))
    return np.concatenate([chain.cost_by_place[controller.walk(reader).route] for reader in readers])


def errors(costs, target):
    """Relative error of every window: evenly drawn rows, the 2,000 after the change, and what follows."""
    total = np.cumsum(np.r_[0.0, costs])
    error = np.abs((total[WINDOW:] - total[:-WINDOW]) / WINDOW / target - 1)
    return error[: HALF - WINDOW + 1].max(), error[HALF - WINDOW + 1 : HALF].max(), error[HALF:].max()


def main(names):
    for name in names:
        X, y, new = rows_of(name)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            full = HistGradientBoostingClassifier(max_iter=60, random_state=0)
            chain = BudgetedClassifier(full, prices=Prices(full=10.0), random_state=0).fit(X, y).chain_
        seconds = time.perf_counter() - start
        low, high = chain.policy.cost[[0, -1]]
        print(
            f"{name}: {chain.n_stages} stages, points from {low:.2f} to {high:.2f}, fitted in {seconds:.0f} s"
        )
        print(
            f"{'target':>8}{'batch':>7}{'fixed':>9}{'harder':>8}{'even':>9}{'change':>8}{'after':>8}{'capped':>9}"
            f"{'dearest window / cap':>22}"
        )
        for share, batch in ((0.05, 50), (0.2, 1), (0.2, 1000), (0.5, 50), (0.8, 50)):
            target = float(low + share * (high - low))
            cost = chain.at(chain.policy.within(target)).cost(new)
            stream = stream_of(cost)
            fixed, harder = cost[stream[:HALF]].mean() / target - 1, cost[stream[HALF:]].mean() / target - 1
            controller = BudgetController(chain, target=target, cap=CAP * target)
            costs = spent(controller, chain, new[stream], batch)
            even, change, after = errors(costs, target)
            total = np.cumsum(np.r_[0.0, costs])
            dearest = (total[WINDOW:] - total[:-WINDOW]).max() / WINDOW / (CAP * target)
            print(
                f"{target:>8.2f}{batch:>7}{fixed:>+9.1%}{harder:>+8.1%}{even:>9.1%}{change:>8.1%}{after:>8.1%}"
                f"{controller.n_capped:>9}{dearest:>22.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:] or list(TRAINING))
