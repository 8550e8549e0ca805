"""The command line on real data: is the budget met, is the expected accuracy kept, how long does it take to say hello?

    python benchmarks/command_line.py [--seeds 1] [letters] [miniboone]

For every seed the rows are dealt anew into a training table and a test table, written as CSV, and fitted once; the one
file then answers every budget. Columns cost 1 each. Two ways to answer the test rows: "as fitted" with `predict
--budget`, and "held" with `--hold-budget` besides. "chance" is the standard error of the mean cost of the test rows;
the accuracy expected is the interval for so many.
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

from thrifty.bundle.save_load import load
from thrifty.cli import main as thrifty
from thrifty.reporting.measure import expected

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TABLES = {
    "letters": (
        "letter.npz",
        lambda y: np.where(y >= 13, "N to Z", "A to M"),
        12_000,
        "svm",
        (3, 4, 5, 6, 8),
    ),
    "miniboone": ("miniboone_5k.npz", lambda y: y, 3_000, "forest", (2.5, 3, 4, 6, 8, 10)),
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
    """Write train.csv and test.csv; returns the test labels."""
    file, label, n_train, _, _ = TABLES[name]
    with np.load(DATA / file) as arrays:
        names = [str(one) for one in arrays["feature_names"]]
        frame = pd.DataFrame(arrays["X"], columns=names).assign(label=label(arrays["y"]))
    frame = frame.iloc[np.random.default_rng(seed).permutation(len(frame))]
    frame[:n_train].to_csv(folder / "train.csv", index=False)
    frame[n_train:].to_csv(folder / "test.csv", index=False)
    return frame["label"].to_numpy()[n_train:]


def answered(folder, labels, *how):
    """What `predict` says of the test table, and its accuracy."""
    told = run("predict", folder / "system.thrifty", folder / "test.csv", "-o", folder / "answers.csv", *how)
    return told, (pd.read_csv(folder / "answers.csv")["answer"].to_numpy() == labels).mean()


def one_budget(folder, budget, labels):
    spent, right = answered(folder, labels, "--budget", budget)
    held, held_right = answered(folder, labels, "--budget", budget, "--hold-budget")
    facts = expected(load(folder / "system.thrifty").at(budget=budget))
    (cost,), (low, high) = facts.cost.value, facts.interval(len(labels))
    # A budget that buys nothing more is not spent, and that is expected.
    off, held_off = (one["mean_cost"] / cost - 1 for one in (spent, held))
    chance = spent["mean_cost_error"] / cost
    print(
        f"{budget:6g} {cost:8.3f} {spent['mean_cost']:8.3f} {100 * off:+7.2f} % {100 * chance:5.2f} % "
        f"{held['mean_cost']:8.3f} {100 * held_off:+6.2f} %   {low:.4f}-{high:.4f} {right:.4f} {held_right:.4f} "
        f"{100 * spent['share_full']:5.1f} %",
        flush=True,
    )
    return off, held_off, low <= right <= high


def on_table(name, seeds):
    _, _, n_train, kind, budgets = TABLES[name]
    print(f"\n{name}: {n_train:,} training rows, full model {kind}")
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            labels = deal(name, seed, folder)
            began = time.perf_counter()
            told = run(
                "fit", folder / "train.csv", "--target", "label", "--full", kind, "--budget", budgets[-1],
                "-o", folder / "system.thrifty", "--seed", seed,
            )  # fmt: skip
            print(
                f"seed {seed}: fitted in {time.perf_counter() - began:.0f} s, {len(labels):,} test rows, full model "
                f"{told['measures']['accuracy']['full']:.4f} at {told['full_cost']:g}\n"
                " asked expected    spent       off  chance     held      off   accuracy expected    got   held    full"
            )
            found += [one_budget(folder, budget, labels) for budget in budgets]
    off, held = (np.abs([one[place] for one in found]) for place in (0, 1))
    print(
        f"mean |off| {100 * off.mean():.2f} % as fitted and {100 * held.mean():.2f} % held; "
        f"accuracy inside its interval at {sum(one[2] for one in found)} of {len(found)}"
    )


def help_time():
    script = [sys.executable, "-c", "import sys; from thrifty.cli import main; sys.exit(main(['--help']))"]
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(script, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    print(f"thrifty --help: {min(seconds):.2f} s at best, {np.median(seconds):.2f} s in the middle of five")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--seeds", type=int, default=1)
    wanted = parser.parse_args()
    help_time()
    for name in wanted.tables or TABLES:
        on_table(name, wanted.seeds)


if __name__ == "__main__":
    main()
