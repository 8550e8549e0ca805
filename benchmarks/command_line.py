"""The command line on real data: is the budget met, is the promised accuracy kept, how long does it take to say hello?

    python benchmarks/command_line.py [--seeds 3] [letters] [miniboone]

For every seed the rows are dealt anew into a training table and a test table, written as CSV. Budgets of one seed share
a store of fits. Columns cost 1 each, so that what a budget has beyond a whole number can only be spent on f0. "chance"
is the standard deviation that the mean cost of the test rows has anyway: that of the share sent to f0, on the test rows
and where the threshold was tuned, times what f0 costs more. "re-cut" is what `thrifty predict --budget` spends on the
same rows.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from thrifty.cli import main as thrifty
from thrifty.turnkey.storage import load_table_system

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TABLES = {
    "letters": (
        "letter.npz",
        lambda y: np.where(y >= 13, "N to Z", "A to M"),
        12_000,
        "svm",
        (3.5, 4, 5.5, 6, 7.5, 8, 9),
    ),
    "miniboone": ("miniboone_5k.npz", lambda y: y, 3_000, "forest", (2.5, 3, 4, 5.5, 6, 8, 10)),
}


def run(*arguments):
    """A command's JSON."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = thrifty([*map(str, arguments), "--json"])
    if code:
        sys.exit(code)
    return json.loads(said.getvalue())


def deal(name, seed, folder):
    """Write train.csv, test.csv and costs.csv; returns the test labels."""
    file, label, n_train, _, _ = TABLES[name]
    with np.load(DATA / file) as arrays:
        names = [str(one) for one in arrays["feature_names"]]
        frame = pd.DataFrame(arrays["X"], columns=names).assign(label=label(arrays["y"]))
    frame = frame.iloc[np.random.default_rng(seed).permutation(len(frame))]
    frame[:n_train].to_csv(folder / "train.csv", index=False)
    frame[n_train:].to_csv(folder / "test.csv", index=False)
    pd.DataFrame({"feature": names, "cost": 1}).to_csv(folder / "costs.csv", index=False)
    return frame["label"].to_numpy()[n_train:]


def one_budget(folder, kind, budget, labels, seed):
    began = time.perf_counter()
    told = run(
        "fit", folder / "train.csv", "--target", "label", "--costs", folder / "costs.csv", "--full", kind,
        "--budget", budget, "-o", folder / "system.thrifty", "--seed", seed, "--store", folder / "store",
    )  # fmt: skip
    seconds = time.perf_counter() - began
    spent = run("predict", folder / "system.thrifty", folder / "test.csv", "-o", folder / "answers.csv")
    right = pd.read_csv(folder / "answers.csv")["answer"].to_numpy() == labels
    recut = run(
        "predict",
        folder / "system.thrifty",
        folder / "test.csv",
        "-o",
        folder / "again.csv",
        "--budget",
        budget,
    )
    again = pd.read_csv(folder / "again.csv")["answer"].to_numpy() == labels
    promise = load_table_system(folder / "system.thrifty").promise
    return {
        "off": spent["mean_cost"] / budget - 1,
        "chance": promise.spread(len(labels)) / budget,
        "kept": promise.low <= right.mean(),
        "inside": promise.low <= right.mean() <= promise.high,
        "line": f"{budget:6g} {promise.cost:8.3f} {spent['mean_cost']:8.3f} "
        f"{100 * (spent['mean_cost'] / budget - 1):+7.2f} % {100 * promise.spread(len(labels)) / budget:6.2f} %   "
        f"{promise.low:.4f}-{promise.high:.4f}  {right.mean():.4f}   {recut['mean_cost']:8.3f} {again.mean():.4f}  "
        f"{len(told['bought']):3d} {100 * promise.share:5.1f} % {seconds:6.1f}",
    }


def on_table(name, seeds):
    _, _, n_train, kind, budgets = TABLES[name]
    print(f"\n{name}: {n_train:,} training rows, f0 = {kind}")
    print(
        " asked promised    spent      off   chance   accuracy promised    got     re-cut    got  buys   sent  seconds"
    )
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            labels = deal(name, seed, Path(folder))
            print(f"seed {seed}, {len(labels):,} test rows")
            for budget in budgets:
                found.append(one_budget(Path(folder), kind, budget, labels, seed))
                print(found[-1]["line"], flush=True)
    off = np.abs([one["off"] for one in found])
    chance = np.array([one["chance"] for one in found])
    print(
        f"within 2 %: {np.sum(off <= 0.02)} of {len(found)} (chance alone would allow "
        f"{np.sum([_within(0.02, one) for one in chance]):.1f}); mean |off| {100 * off.mean():.2f} %; "
        f"accuracy inside its band {np.sum([one['inside'] for one in found])}, "
        f"not below it {np.sum([one['kept'] for one in found])}"
    )


def _within(limit, deviation):
    from scipy.special import erf

    return 1.0 if deviation == 0 else erf(limit / deviation / np.sqrt(2))


def help_time():
    script = Path(sys.executable).with_name("thrifty")
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([str(script), "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    print(f"thrifty --help: {min(seconds):.2f} s at best, {np.median(seconds):.2f} s in the middle of five")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    wanted = parser.parse_args()
    help_time()
    for name in wanted.tables or TABLES:
        on_table(name, wanted.seeds)


if __name__ == "__main__":
    main()
