"""Scoring of tables larger than memory: rows a second, overhead, memory, two workers, killed runs.

    python benchmarks/scale.py [--rows 20000000] [--kills 20] [--folder FOLDER]

A cascade fitted on 4,000 rows of 20 columns scores files of normal numbers. "bare" is the walk of the same batches in
memory, in the same process; LightGBM predicts the same batches with as many trees as all stages have together. Peak
memory is that of a process that scores a tenth of the rows, and of one that scores all of them.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from thrifty import BudgetedClassifier, save
from thrifty.chain.readers import TableReader
from thrifty.scale import Scorer
from thrifty.scale.folder import find_files, predict_files
from thrifty.threads import limited_threads

N_COLUMNS, FILE_ROWS, BATCH = 20, 1_000_000, 100_000
NAMES = [f"x{column}" for column in range(N_COLUMNS)]


def write_rows(folder: Path, n_rows: int, file_rows: int = FILE_ROWS) -> Path:
    """Files of normal numbers with a key, row groups of 250,000."""
    folder.mkdir()
    for first in range(0, n_rows, file_rows):
        rng, n = np.random.default_rng(first), min(file_rows, n_rows - first)
        columns = {name: rng.normal(size=n) for name in NAMES} | {"id": np.arange(first, first + n)}
        pq.write_table(pa.table(columns), folder / f"rows{first:010d}.parquet", row_group_size=250_000)
    return folder


def timed(scorer: Scorer, rows: Path, out: Path, n_jobs: int = 1) -> float:
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    predict_files(scorer, find_files(rows), out, n_jobs=n_jobs)
    return time.perf_counter() - start


def walk(scorer: Scorer, blocks: list[np.ndarray]) -> float:
    chain, start = scorer.chain, time.perf_counter()
    with limited_threads(openmp=1, blas=1):
        for block in blocks:
            reader = TableReader(block, block, row_keys=np.arange(len(block)))
            route = chain.walk(reader)
            chain.task.answers(chain.answer(reader, route))
            chain.spent(reader, route)
    return time.perf_counter() - start


def speeds(folder: Path, n_rows: int) -> None:
    """Seconds of files, of the bare walk, and of LightGBM, at a budget and where all rows walk all stages."""
    rows = write_rows(folder / "speed", n_rows)
    blocks = [
        np.ascontiguousarray(np.column_stack([batch[name] for name in NAMES]))
        for path in find_files(rows)
        for batch in pq.ParquetFile(path).iter_batches(BATCH)
    ]
    whole = Scorer(folder / "s.thrifty", row_key="id")
    policy = whole.system.frontier_.cost
    for name, at in (("budget that stops half", {"budget": float(np.median(policy))}), ("dearest point", {})):
        scorer = Scorer(folder / "s.thrifty", at=at, row_key="id")
        scorer(pa.RecordBatch.from_arrays([*blocks[0][:10].T, np.arange(10)], [*NAMES, "id"]))
        n_trees = sum(stage.ensemble.n_trees for stage in scorer.chain.stages if hasattr(stage, "ensemble"))
        rng = np.random.default_rng(0)
        X = rng.normal(size=(4_000, N_COLUMNS))
        booster = lgb.LGBMClassifier(n_estimators=max(n_trees, 1), num_leaves=8, n_jobs=1, verbose=-1)
        booster.fit(X, X[:, 0] + X[:, 1] * X[:, 2] > 0)
        files = min(timed(scorer, rows, folder / "out") for _ in range(3))
        bare = min(walk(scorer, blocks) for _ in range(3))
        start = time.perf_counter()
        for block in blocks:
            booster.booster_.predict(block, num_threads=1)
        rival = time.perf_counter() - start
        print(
            f"{name}: {n_rows / files:,.0f} rows/s, {files / bare:.2f} x the bare walk; LightGBM with {n_trees} trees "
            f"in memory {n_rows / rival:,.0f} rows/s"
        )
    one, two = (min(timed(whole, rows, folder / "out", n_jobs=jobs) for _ in range(2)) for jobs in (1, 2))
    print(f"two workers: {one / two:.2f} x one")
    shutil.rmtree(rows)
    for name, sizes in (
        ("even files", [0.25] * 4),
        ("one file with half the rows", [0.5, 0.25, 0.125, 0.125]),
    ):
        rows = folder / "uneven"
        rows.mkdir()
        for number, share in enumerate(sizes):
            part = write_rows(folder / "part", int(share * n_rows), n_rows)
            shutil.move(next(part.iterdir()), rows / f"{number}.parquet")
            shutil.rmtree(part)
        print(f"{name}: {timed(whole, rows, folder / 'out', n_jobs=2):.1f} s with two workers")
        shutil.rmtree(rows)


def memory(folder: Path, n_rows: int) -> None:
    """Peak memory of a process by the number of rows."""
    for n in (n_rows // 10, n_rows):
        rows = write_rows(folder / "memory", n)
        command = [sys.executable, __file__, "--score", str(folder), str(rows)]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        print(f"{n:,} rows: {n / (time.perf_counter() - start):,.0f} rows/s, start and load included")
        shutil.rmtree(rows)


def kills(folder: Path, n_kills: int) -> None:
    """Kill the driver or a worker at random moments, resume, and count keys."""
    rows, rng = write_rows(folder / "kill", 500_000, 10_000), np.random.default_rng(0)
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [sys.executable, __file__, "--score", str(folder), str(rows), "--jobs", "2"]
    n_done, visible = 0, 0
    for number in range(n_kills):
        run = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.5, 4.0))
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        workers = [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
        os.kill(workers[0] if number % 2 and workers else run.pid, signal.SIGKILL)
        run.wait()
        found = list((folder / "out").glob("*.parquet"))
        n_done += sum(pq.read_metadata(path).num_rows < 10_000 for path in found)
        visible = len(found)
        if visible == 50:
            shutil.rmtree(folder / "out")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    keys = pd.read_parquet(folder / "out", columns=["id"])["id"]
    print(
        f"{n_kills} kills: {n_done} partial files seen; in the end {len(keys):,} keys, {keys.nunique():,} distinct, "
        f"of 500,000"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--score", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.score:
        folder, rows = map(Path, given.score)
        scorer = Scorer(folder / "s.thrifty", row_key="id")
        if given.jobs == 1:
            shutil.rmtree(folder / "out", ignore_errors=True)
        predict_files(scorer, find_files(rows), folder / "out", n_jobs=given.jobs, resume=True)
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, rng = Path(name), np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(4_000, N_COLUMNS)), columns=NAMES)
        y = X["x0"] + X["x1"] * X["x2"] + 0.5 * rng.normal(size=4_000) > 0
        save(BudgetedClassifier(random_state=0).fit(X, y), folder / "s.thrifty")
        speeds(folder, min(given.rows, 2_000_000))
        kills(folder, given.kills)
        memory(folder, given.rows)


if __name__ == "__main__":
    main()
