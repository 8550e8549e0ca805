"""What a new user waits for: the import, the first fit of an installation, small fits after it, threads, many columns.

    python benchmarks/first_fit.py [--parts first,fits,threads,wide]

Default settings, with histogram boosting as the full model. The table of many columns has 100 rows. Each line is a
process of its own but for second fits, with bytecode in place as after an installation. The first fit starts with an
empty cache of compiled code. Processor seconds, which other programs disturb less, beside seconds of the clock.
"""

import argparse
import os
import subprocess
import sys
import tempfile

CLOCK = """
import logging, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable()
def now():
    return time.perf_counter(), time.process_time()
def tell(what, start, more=""):
    wall, processor = (b - a for a, b in zip(start, now()))
    print(f"| {what} | {wall:.2f} | {processor:.2f} | {more} |", flush=True)
"""
DATA = """
from sklearn.datasets import make_classification
n, p = {size}
X, y = make_classification(n, p, n_informative=min(p // 2, 20), random_state=0)
"""
IMPORT = """
start = now()
from thrifty import BudgetedClassifier
tell("from thrifty import BudgetedClassifier", start, "numba is imported" if "numba" in sys.modules else "")
"""
OURS = (
    DATA
    + """
from thrifty import BudgetedClassifier
start = now()
BudgetedClassifier(random_state=0).fit(X, y)
import gc
from numba.core.dispatcher import Dispatcher
compiled = [part for part in gc.get_objects() if isinstance(part, Dispatcher)]
missed = sum(sum(part.stats.cache_misses.values()) for part in compiled)
tell(f"BudgetedClassifier, {{n:,}} x {{p}}{what}", start, f"{{missed}} compilations{first}")
start = now()
BudgetedClassifier(random_state=0).fit(X, y)
tell("the same again in the same process", start, "{again}")
"""
)
THREADS = (
    DATA
    + """
from thrifty import BudgetedClassifier
BudgetedClassifier(random_state=0).fit(X[:400, :10], y[:400])  # compiles
first = None
for n_jobs in {threads}:
    start = now()
    BudgetedClassifier(random_state=0, n_jobs=n_jobs).fit(X, y)
    taken = now()[0] - start[0]
    first = first or taken
    more = "{alone}" if n_jobs == 1 else f"{{first / taken:.2f}} x one thread; asked: 1.6"
    tell(f"BudgetedClassifier, {{n:,}} x {{p:,}}, n_jobs={{n_jobs}}", start, more)
"""
)


def run(code, folder, *, quiet=False):
    """Run code in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "NUMBA_CACHE_DIR": os.path.join(folder, "compiled"),
        "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode"),
        "OMP_NUM_THREADS": environment.get("OMP_NUM_THREADS", "1"),
    }
    subprocess.run(
        [sys.executable, "-c", CLOCK + code],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL if quiet else None,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="first,fits,threads,wide")
    parts = parser.parse_args().parts.split(",")
    with tempfile.TemporaryDirectory() as folder:
        # Bytecode, of the compiler too, without a trace of compiled code.
        run("import thrifty.cli, numba\nfrom thrifty import BudgetedClassifier", folder, quiet=True)
        print("| what | seconds | processor seconds | |\n|---|---|---|---|", flush=True)
        if "first" in parts:
            run(IMPORT, folder)
            what, first = ", first of an installation", "; asked: 15 of the processor"
            run(OURS.format(size=(500, 10), what=what, first=first, again=""), folder)
        if "fits" in parts:
            for size, asked in (((500, 10), 2), ((4_000, 23), 8)):
                run(OURS.format(size=size, what="", first="", again=f"asked: {asked}"), folder)
        if "threads" in parts:
            for size in ((4_000, 23), (12_000, 16)):
                run(THREADS.format(size=size, threads=(1, 2), alone=""), folder)
        if "wide" in parts:
            run(THREADS.format(size=(100, 10_000), threads=(1,), alone="asked: 60"), folder)


if __name__ == "__main__":
    main()
