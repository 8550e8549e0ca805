"""The command line on real data: is the budget met, is the promised accuracy kept, how long does it take to say hello?

    python benchmarks/command_line.py [--seeds 3] [letters] [miniboone]

For every seed the rows are dealt anew into a training table and a test table, written as CSV. Budgets of one seed share
a store of fits. Columns cost 1 each, so that what a budget has beyond a whole number can only be spent on f0. Two ways
to answer the test rows: "as fitted" with the threshold, and the tie, that `fit` chose; "held" with `predict
--hold-budget`. "error" is the standard error of the mean cost over the test rows alone, "chance" that together with
the error of the share where the threshold was tuned. The accuracy promised is the interval for so many new rows.
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
from thrifty.tables.storage import load_table_system as thrifty_load

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
    spent, right = answered(folder, labels)
    held, held_right = answered(folder, labels, "--hold-budget")
    system = thrifty_load(folder / "system.thrifty")
    promise = system.promise
    low, high = promise.interval(len(labels))
    off, held_off = (one["mean_cost"] / budget - 1 for one in (spent, held))
    chance = promise.spread(len(labels)) / budget
    return {
        "off": off,
        "held_off": held_off,
        "chance": chance,
        "kept": low <= right,
        "inside": low <= right <= high,
        "held_inside": low <= held_right <= high,
        "line": f"{budget:6g} {promise.cost:8.3f} {spent['mean_cost']:8.3f} {100 * off:+7.2f} % "
        f"{100 * spent['mean_cost_error'] / budget:5.2f} % {100 * chance:5.2f} % {held['mean_cost']:8.3f} "
        f"{100 * held_off:+6.2f} %   {low:.4f}-{high:.4f} {right:.4f} {held_right:.4f} {len(told['bought']):4d} "
        f"{100 * promise.share:5.1f} %{'' if system.tie is None else ' tie':4s} {seconds:7.1f}",
    }


def answered(folder, labels, *how):
    """What `predict` says of the test table, and its accuracy."""
    told = run("predict", folder / "system.thrifty", folder / "test.csv", "-o", folder / "answers.csv", *how)
    return told, (pd.read_csv(folder / "answers.csv")["answer"].to_numpy() == labels).mean()


def on_table(name, seeds):
    _, _, n_train, kind, budgets = TABLES[name]
    print(f"\n{name}: {n_train:,} training rows, f0 = {kind}")
    print(
        " asked promised    spent       off   error  chance     held      off   accuracy promised    got   held "
        "buys    sent      seconds"
    )
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            labels = deal(name, seed, Path(folder))
            print(f"seed {seed}, {len(labels):,} test rows")
            for budget in budgets:
                found.append(one_budget(Path(folder), kind, budget, labels, seed))
                print(found[-1]["line"], flush=True)
    off, held = (np.abs([one[name] for one in found]) for name in ("off", "held_off"))
    chance = np.array([one["chance"] for one in found])
    print(
        f"within 2 % of the budget: {np.sum(off <= 0.02)} of {len(found)} as fitted (chance alone would allow "
        f"{np.sum([_within(0.02, one) for one in chance]):.1f}), {np.sum(held <= 0.02)} held; "
        f"mean |off| {100 * off.mean():.2f} % and {100 * held.mean():.2f} %\n"
        f"accuracy inside its interval: {np.sum([one['inside'] for one in found])} as fitted "
        f"(not below it {np.sum([one['kept'] for one in found])}), "
        f"{np.sum([one['held_inside'] for one in found])} held"
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
