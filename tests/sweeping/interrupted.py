"""Run by the test of interruptions: sweeps in child processes, each killed after a while, until one gets through.

Modules are loaded once; the children are forked from here. Prints, for every child, how it ended, what the store held
when it began and what it fitted.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import thrifty.dynamod.sweeping.run as run
from thrifty import DynaModLinClassifier

GRID = {"gamma": [0.01, 0.03, 0.09], "p_full": [0.2, 0.4, 0.6]}


def arguments():
    """What is swept."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    rows = {"X": X[:200], "y": y[:200], "X_val": X[200:300], "y_val": y[200:300]}
    return {"estimator": DynaModLinClassifier(LogisticRegression(), max_iter=10), "grid": GRID, **rows}


def sweep_once(store, log=None):
    """The sweep; what is fitted is written down first."""
    real = run.fit_cell

    def logged(planned, *arguments):
        with log.open("a") as lines:
            lines.write(planned.key + "\n")
        return real(planned, *arguments)

    if log is not None:
        run.fit_cell = logged
    return run.sweep(**arguments(), store=store)


def stored(path):
    """Keys in the store, read as anybody could read them."""
    if not path.exists():
        return []
    with sqlite3.connect(path) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        found = (
            [key for (key,) in connection.execute("SELECT key FROM records")] if "records" in tables else []
        )
    connection.close()
    return found


def main(folder, seed, patience):
    path, chance = Path(folder) / "sweep.db", random.Random(seed)
    while True:
        before, log = stored(path), Path(folder) / f"{time.monotonic_ns()}.log"
        child = os.fork()
        if child == 0:
            sweep_once(path, log)
            os._exit(0)
        deadline, status = time.monotonic() + chance.uniform(0.02, patience), 0
        while status == 0 and time.monotonic() < deadline:
            time.sleep(0.002)
            ended, code = os.waitpid(child, os.WNOHANG)
            status = (code or "done") if ended else 0
        if status == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        fitted = log.read_text().split() if log.exists() else []
        sys.stdout.write(json.dumps({"ended": status or "killed", "before": before, "fitted": fitted}) + "\n")
        if status:
            break


if __name__ == "__main__":
    sweep_once(None)  # compiles and loads everything, so that children spend their time on what matters
    began = time.monotonic()
    sweep_once(None)
    main(sys.argv[1], int(sys.argv[2]), 0.5 * (time.monotonic() - began))
