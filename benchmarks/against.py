"""Speed of this checkout beside another one, in turns: import, fit, predict, one row; ``serve.py`` has requests.

    python benchmarks/against.py ../old-checkout --rounds 5

Every measurement runs in a process of its own that imports thrifty from one of the two checkouts; the two take turns,
and the medians of their processor times are compared. Compiled code is cached in a folder for each checkout, filled by
a first round that is not counted. The machine must be idle.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURE = r"""
import json, os, sys, time, warnings
begin = time.process_time()
import thrifty
from thrifty import BudgetedClassifier
found = {"import": time.process_time() - begin}
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
warnings.simplefilter("ignore")
folder = sys.argv[1]

def table(n_rows, n_columns):
    return make_classification(n_rows, n_columns, n_informative=n_columns // 2, random_state=0)

def seconds(call, repeats=1):
    best = np.inf
    for _ in range(repeats):
        begin = time.process_time()
        result = call()
        best = min(best, time.process_time() - begin)
    return best, result

for n_rows, n_columns in [(500, 10), (4000, 23)]:
    X, y = table(n_rows, n_columns)
    clf = BudgetedClassifier(HistGradientBoostingClassifier(random_state=0), n_jobs=1, random_state=0)
    found[f"fit {n_rows} x {n_columns}"], clf = seconds(lambda: clf.fit(X, y))
clf = clf.at(budget=8)
many = np.tile(X, (25, 1))
found["predict 100,000 rows"] = seconds(lambda: clf.predict(many), 5)[0]
found["predict 1 row"] = seconds(lambda: [clf.predict(X[:1]) for _ in range(100)], 10)[0] / 100
path = os.path.join(folder, "system.thrifty")
if os.path.exists(path):
    os.remove(path)
thrifty.save(clf, path)
found["load"] = seconds(lambda: thrifty.load(path), 3)[0]

rng = np.random.default_rng(0)
hard = rng.random(600)
right = rng.random((600, 4)) < np.clip(np.array([0.55, 0.65, 0.75, 0.92]) + 0.5 - hard[:, None], 0.02, 0.98)
said = np.where(right, 0, rng.integers(1, 5, right.shape))
rows = np.column_stack([hard + 0.2 * rng.standard_normal(600), rng.random(600)])
router = thrifty.ModelRouter({"tiny": 1.0, "small": 2.0, "middle": 5.0, "large": 20.0}, budget=6.0)
found["router: fit 600 rows"], router = seconds(lambda: router.fit(rows, right.astype(float), answers=said))
path_of_router = os.path.join(folder, "router.thrifty")
if os.path.exists(path_of_router):
    os.remove(path_of_router)
thrifty.save(router, path_of_router)
found["router: load"] = seconds(lambda: thrifty.load(path_of_router), 3)[0]
log = [np.tile(part, (20, 1)) for part in (rows, right.astype(float))]
answers = np.tile(said, (20, 1))
found["router: replay 12,000 rows"] = seconds(lambda: router.replay(*log, answers=answers), 3)[0]
found["router: predict 12,000 rows"] = seconds(lambda: router.predict(log[0]), 3)[0]
places = {name: place for place, name in enumerate(["tiny", "small", "middle", "large"])}

def one_session(row):
    session = router.start(rows[row])
    while True:
        if hasattr(type(session), "next_purchase"):
            name = None if session.next_purchase is None else session.next_purchase.name
        else:  # of version 0.3
            name = session.next_ask
        if name is None:
            return
        session.give(said[row, places[name]])

found["router: 1 session"] = seconds(lambda: [one_session(row) for row in range(100)], 5)[0] / 100

print(json.dumps(found))
"""


def measure(checkout, folder):
    """Times of one process that imports thrifty from the checkout, in seconds by name."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(checkout, "src").resolve()),
        "NUMBA_CACHE_DIR": folder,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, folder],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        cwd=folder,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", help="folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    times = {here: [], arguments.other: []}
    with tempfile.TemporaryDirectory() as root:
        folders = {}
        for number, checkout in enumerate(times):
            folders[checkout] = str(Path(root, str(number)))
            os.mkdir(folders[checkout])
            measure(checkout, folders[checkout])
        for _ in range(arguments.rounds):
            for checkout, rows in times.items():
                rows.append(measure(checkout, folders[checkout]))
    print(f"{'milliseconds of processor':26}{'here':>12}{'other':>12}{'ratio':>8}")
    for name in times[here][0]:
        ours, other = (1e3 * statistics.median(row[name] for row in rows) for rows in times.values())
        print(f"{name:26}{ours:12.3f}{other:12.3f}{ours / other:8.2f}")


if __name__ == "__main__":
    main()
