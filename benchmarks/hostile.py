"""Attacks on everything that reads what strangers send: files, requests, connections, services, buying, certificates.

    python benchmarks/hostile.py [files] [certificates] [buying] [heads] [connections] [smuggling] [values] [keys]
        [tls] [reloads] [remote] [providers] [chat] [budgets] [--files 20000] [--requests 4000] [--seed 0] [--verbose]

Prints the cases and failures of each part, and what failed; the exit code is 1 if anything did. Each part is a process
of its own: a crash, or a part that does not end, is a failure. Heads, connections, smuggling and TLS go through nginx,
which must be installed. Servers listen on the loopback and end with this process. All parts take less than
15 minutes on two idle cores. `attacks/` has the parts.
"""

import argparse
import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PARTS = {
    "files": "files",
    "certificates": "library",
    "buying": "library",
    "heads": "requests",
    "connections": "requests",
    "smuggling": "requests",
    "values": "requests",
    "keys": "requests",
    "tls": "requests",
    "reloads": "requests",
    "remote": "services",
    "providers": "services",
    "chat": "services",
    "budgets": "services",
}
"""The module in `attacks/` of each part."""

LANES = (("files", "library"), ("requests", "services"))
"""Modules whose parts run one after the other, on one of two cores; the second are those with a gateway."""

LIMIT = 900
"""Seconds after which a part is stopped."""


class Cases:
    """Counts the cases of a part, and keeps what failed, in a file that outlives a crash."""

    def __init__(self, path):
        self._path = path
        self.n_cases, self.failures = 0, []

    @contextlib.contextmanager
    def case(self, name):
        """One attack; an error inside is a failure."""
        error = None
        try:
            yield
        except Exception as raised:
            trace = raised.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
            error = f"{type(raised).__name__}: {raised} (line {trace.tb_lineno})"[:400]
        self.add(1, {} if error is None else {name: error})

    def add(self, n_cases, failures):
        """Some attacks, and the failures among them by name."""
        self.n_cases += n_cases
        self.failures += [[name, error] for name, error in failures.items()]
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps([self.n_cases, self.failures]))
        new.replace(self._path)  # whole, whenever this process ends


def fit(folder):
    """Write the system that the parts attack: six measurements of tumours, and a full model that reads all of them."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.naive_bayes import GaussianNB

    from thrifty import BudgetedClassifier, save

    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = X.iloc[:, [0, 1, 3, 6, 7, 20]]
    X.columns = [name.replace(" ", "_") for name in X]
    clf = BudgetedClassifier(GaussianNB(), budget=2, cv=2, random_state=0).fit(X[::2], y[::2])
    low, high = clf.chain_.policy.cost[[0, -1]]
    save(clf.at(budget=float(low + high) / 2), folder / "cancer.thrifty")
    save(clf.at(budget=float(low)), folder / "cheap.thrifty")
    X[1::2].to_csv(folder / "rows.csv", index=False)


def end_with_parent():
    """End this process when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_part(name, folder, args):
    """Cases and failures of a part, which runs in a process of its own."""
    found = folder / f"{name}.json"
    found.write_text("[0, []]")
    command = [sys.executable, __file__, "--part", name, "--folder", str(folder)]
    command += ["--files", str(args.files), "--requests", str(args.requests), "--seed", str(args.seed)]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=end_with_parent)
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = f"nothing within {LIMIT} seconds"
    n_cases, failures = json.loads(found.read_text())
    if code != 0:
        said = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        failures.append(["the process itself", f"ended with {code}: {' | '.join(said[-4:])}"[:600]])
    return max(n_cases, len(failures)), failures


def print_part(part, folder, args, total):
    """Run a part, print its line and add to the cases and failures of all."""
    start = time.perf_counter()
    n_cases, failures = run_part(part, folder, args)
    lines = [f"{part:<14}{n_cases:>8,}{len(failures):>10}{time.perf_counter() - start:>9.0f}"]
    lines += [f"    {case}: {error}" for case, error in failures[:40]]
    lines += (folder / f"{part}.log").read_text(errors="replace").splitlines() if args.verbose else []
    print("\n".join(lines), flush=True)
    total[0] += n_cases
    total[1] += len(failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all without any"
    )
    parser.add_argument("--files", type=int, default=20_000, help="files that are changed and loaded")
    parser.add_argument("--requests", type=int, default=4000, help="requests whose bytes are changed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print what parts say beside their cases")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        faulthandler.enable()
        warnings.simplefilter("ignore")
        part = getattr(importlib.import_module(f"attacks.{PARTS[args.part]}"), args.part)
        part(Cases(args.folder / f"{args.part}.json"), args.folder, args)
        return 0
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    # Servers and parts end with this process, also where it is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    began, total = time.perf_counter(), [0, 0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(folder)
        print(f"{'part':<14}{'cases':>8}{'failures':>10}{'seconds':>9}", flush=True)

        def run_lane(modules):
            for part in args.parts or PARTS:
                if PARTS[part] in modules:
                    print_part(part, folder, args, total)

        with ThreadPoolExecutor(len(LANES)) as pool:
            for lane in [pool.submit(run_lane, modules) for modules in LANES]:
                lane.result()
    print(f"{'all':<14}{total[0]:>8,}{total[1]:>10}{time.perf_counter() - began:>9.0f}")
    return 1 if total[1] else 0


if __name__ == "__main__":
    raise SystemExit(main())
