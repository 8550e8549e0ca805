"""A sweep on Letters: what it costs beside its fits, and what warm starts save (one process, about a minute)."""

import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from reproduction.datasets import load_letters
from thrifty import DynaModGbrtClassifier, DynaModLinClassifier, sweep
from thrifty.engine.trees import bin_columns

TREES = {"gamma": [1.0, 10.0, 100.0, 1000.0], "p_full": [0.1, 0.5], "learning_rate": [0.1, 0.3]}
LINEAR = {"gamma": np.logspace(-4, -1, 8).tolist(), "p_full": [0.3, 0.6]}


def timed(work):
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def boosted(split, rows, folder):
    trees = DynaModGbrtClassifier(RandomForestClassifier(100), n_trees=50, max_iter=2)
    seen = {}

    def note(what, *_):
        seen.setdefault((what, "first"), time.perf_counter())
        seen[what, "last"] = time.perf_counter()

    path = Path(folder)
    found = sweep(trees, TREES, *rows, memory=path, progress=note)
    fits = sum(cell.seconds for cell in found.cells)
    print(f"{len(found.cells)} boosted cells of 50 trees, {len(split.y_train):,} rows")
    judged = seen["judging the full model", "last"] - seen["judging the full model", "first"]
    print(f"  full model, once    {judged:8.2f} s")
    print(f"  fits alone          {fits:8.2f} s")
    print(f"  all of the fitting  {seen['fitting', 'last'] - seen['fitting', 'first']:8.2f} s")
    print(f"  the cache           {sum(one.stat().st_size for one in path.rglob('*')) / 1e6:8.2f} MB")
    again, seconds = timed(lambda: sweep(trees, TREES, *rows, memory=path))
    print(f"  opened again        {seconds:8.2f} s")
    frontier, seconds = timed(lambda: again.frontier)
    print(f"  frontier            {seconds:8.2f} s, {len(frontier)} points")
    _, seconds = timed(lambda: found.on(split.X_test, split.y_test))
    print(f"  on the test rows    {seconds:8.2f} s")
    _, seconds = timed(lambda: bin_columns(split.X_train, max_bins=255))
    print(f"  bins, once          {1000 * seconds:8.2f} ms of {1000 * fits / len(found.cells):.0f} ms a fit")


def linear(split, rows):
    forest = RandomForestClassifier(100, random_state=0).fit(split.X_test, split.y_test)
    train, val = (forest.predict_proba(X)[:, 1] for X in (split.X_train, split.X_val))
    print("16 linear cells, 8 gammas and 2 caps")
    for warm in (False, True):
        found, seconds = timed(
            lambda warm=warm: sweep(DynaModLinClassifier(train), LINEAR, *rows, full_val=val, warm_start=warm)
        )
        fits = [cell.fitted for cell in found.cells]
        rounds = sum(fit.n_iter_ for fit in fits)
        objective = np.mean([fit.trace_[-1, 1] for fit in fits])
        name = "from a neighbour" if warm else "each afresh"
        print(f"  {name:18} {seconds:8.2f} s, {rounds} rounds, mean objective {objective:.4f}")


def main():
    split = load_letters()
    rows = split.X_train, split.y_train, split.X_val, split.y_val
    with tempfile.TemporaryDirectory() as folder:
        boosted(split, rows, folder)
    linear(split, rows)


if __name__ == "__main__":
    main()
