"""How the cost of a cascade grows with rows, columns, stages and classes, and its peak memory.

    python benchmarks/growth.py [rows] [columns] [stages] [classes] [letters] [--most-rows 500000]

`letters` is the Letters data in THRIFTY_DATA (default ../shared/data) with neighbours in the alphabet merged into fewer
classes; the other parts are made up. Every line is a process of its own: default settings, a full model that was asked
before (probabilities that are right nine times in ten), one thread. Memory is the most that the process ever held;
"before" is what it holds before the fit.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
CASE = """
import resource, time, warnings
import numpy as np
from thrifty import BudgetedClassifier, Prices, StageOptions
warnings.simplefilter("ignore")
n_rows, n_columns, stages, n_classes, letters = {case}

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

rng = np.random.default_rng(0)
if letters:
    arrays = np.load(letters)
    X, y = arrays["X"][:n_rows].astype(np.float32), arrays["y"][:n_rows].astype(int) * n_classes // 26
else:
    X = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    # Ten columns matter: each class likes its own mix of their steps and waves.
    seen = X[:, :10]
    signal = np.sin(2 * seen) @ rng.normal(size=(10, n_classes)) + np.sign(seen) @ rng.normal(size=(10, n_classes))
    y = (signal + rng.gumbel(size=signal.shape)).argmax(axis=1)
full = np.full((n_rows, n_classes), 0.1 / (n_classes - 1))
full[np.arange(n_rows), np.where(rng.random(n_rows) < 0.9, y, (y + 1) % n_classes)] = 0.9
BudgetedClassifier(full[:600], stages=StageOptions(sizes=[(2, 2)]), cv=2).fit(X[:600], y[:600])
before, start, processor = peak(), time.perf_counter(), time.process_time()
clf = BudgetedClassifier(
    full, prices=Prices(full=10 * n_columns), stages=StageOptions(stages), random_state=0
).fit(X, y)
wall, processor = time.perf_counter() - start, time.process_time() - processor
held = peak()
rows = X[:20_000]
there = clf.with_full(full[:20_000], rows).at(budget=n_columns / 2)
begin = time.process_time()
there.predict(rows)
used = time.process_time() - begin
print(
    f"| {{n_rows:,}} | {{n_columns}} | {{clf.n_stages_}} of {{clf.size_[0]}} trees of depth {{clf.size_[1]}} "
    f"| {{n_classes}} | {{wall:.1f}} | {{processor:.1f}} | {{before:.0f}} | {{held:.0f}} "
    f"| {{1e6 * used / len(rows):.1f}} |",
    flush=True,
)
"""
HEADER = (
    "| rows | columns | stages | classes | fit, seconds | of processor | MB before | MB at most "
    "| predict, microseconds a row |\n" + "|---" * 9 + "|"
)


def cases(part, most_rows):
    """Rows, columns, stages (None: the default) and classes of each line, and the file of Letters where it is read."""
    if part == "letters":
        return [(16_000, 16, None, k, str(DATA / "letter.npz")) for k in (2, 26)]
    if part == "rows":
        return [(n, 50, None, 2, None) for n in (7_812, 31_250, 125_000, 500_000) if n <= most_rows]
    if part == "columns":
        return [(20_000, p, None, 2, None) for p in (12, 25, 50, 100, 200)]
    if part == "stages":
        return [(20_000, 50, stages, 2, None) for stages in (2, 4, 8, 16)]
    return [(16_000, 16, None, n_classes, None) for n_classes in (2, 3, 7, 13, 26)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["rows", "columns", "stages", "classes"])
    parser.add_argument("--most-rows", type=int, default=500_000)
    chosen = parser.parse_args()
    for part in chosen.parts:
        print(f"\n### {part}\n\n{HEADER}", flush=True)
        for case in cases(part, chosen.most_rows):
            subprocess.run([sys.executable, "-c", CASE.format(case=case)], check=True)


if __name__ == "__main__":
    main()
