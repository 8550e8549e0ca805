"""Scoring of tables larger than memory: rows a second, overhead, two workers, engines, killed runs, memory.

    python benchmarks/scale.py FOLDER [speed] [workers] [dask] [ray] [spark] [kills] [memory] [--rows 20000000]

A cascade fitted on 4,000 rows of 20 columns scores files of normal numbers in FOLDER, which are written on the first
run and kept. "bare" is the walk of the same batches in memory, in one process. "all stages" is a system whose rows all
walk to the last stage; "half early" one in which half of the rows stop before it. Engines have one worker.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from thrifty import BudgetedClassifier, load, save
from thrifty.engine.table.table import Table
from thrifty.engine.walk.policy import Policy
from thrifty.scale import Scorer
from thrifty.scale.folder import find_files, predict_files
from thrifty.threads import limited_threads

N_COLUMNS, FILE_ROWS, BATCH, GROUP = 20, 1_000_000, 100_000, 250_000
NAMES = [f"x{column}" for column in range(N_COLUMNS)]
ROUNDS = 2
SPEED_ROWS, ENGINE_ROWS, WORKER_ROWS = 400_000, 400_000, 6_000_000


# -- systems and rows --------------------------------------------------------------------------------


def write_systems(folder: Path) -> None:
    """The fit; the same where all rows walk all stages; and the same where half of them stop before the last."""
    if (folder / "half early.thrifty").exists():
        return
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(4_000, N_COLUMNS)), columns=NAMES)
    y = X["x0"] + X["x1"] * X["x2"] + X["x3"] * X["x4"] + 0.5 * rng.normal(size=len(X)) > 0
    system = BudgetedClassifier(random_state=0).fit(X, y)
    save(system, folder / "fit.thrifty")
    chain = system.chain_
    gate = system.evidence_.gate
    walk_all = np.r_[np.full(chain.n_stages - 1, -np.inf), np.inf]
    save(chain.at(Policy.of(walk_all)), folder / "all stages.thrifty")
    # Rows stop at the first stage whose gate is low enough; the last stage answers all others.
    low, high = gate.min(), gate.max()
    for _ in range(50):
        cut = (low + high) / 2
        early = (gate[:, :-1] <= cut).any(axis=1).mean()
        low, high = (low, cut) if early > 0.5 else (cut, high)
    half = np.r_[np.full(chain.n_stages - 1, high), np.inf]
    save(chain.at(Policy.of(half)), folder / "half early.thrifty")


def write_rows(folder: Path, n_rows: int, file_rows: int = FILE_ROWS) -> Path:
    """Files of normal numbers with a key, row groups of 250,000."""
    if not folder.exists():
        folder.mkdir()
        for first in range(0, n_rows, file_rows):
            rng, n = np.random.default_rng(first), min(file_rows, n_rows - first)
            columns = {name: rng.normal(size=n) for name in NAMES} | {"id": np.arange(first, first + n)}
            pq.write_table(pa.table(columns), folder / f"rows{first:010d}.parquet", row_group_size=GROUP)
    return folder


# -- one machine -------------------------------------------------------------------------------------


def timed(scorer: Scorer, rows: Path, out: Path, n_jobs: int = 1) -> float:
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    predict_files(scorer, find_files(rows), out, n_jobs=n_jobs)
    return time.perf_counter() - start


def blocks_of(rows: Path) -> list[np.ndarray]:
    return [
        np.ascontiguousarray(np.column_stack([batch[name] for name in NAMES]))
        for path in find_files(rows)
        for batch in pq.ParquetFile(path).iter_batches(BATCH)
    ]


def walk(scorer: Scorer, blocks: list[np.ndarray]) -> float:
    """Seconds of the bare walk: routes, answers and costs of rows in memory."""
    chain, start = scorer.chain, time.perf_counter()
    with limited_threads(openmp=1, blas=1):
        for block in blocks:
            reader = Table(block, block, row_keys=np.arange(len(block)))
            route = chain.walk(reader)
            chain.task.answers(chain.answer(reader, route))
            chain.spent(reader, route)
    return time.perf_counter() - start


def speed(folder: Path) -> None:
    """Rows a second of files, and of the bare walk."""
    rows = write_rows(folder / "speed", SPEED_ROWS)
    blocks = blocks_of(rows)
    n_rows = sum(map(len, blocks))
    for name in ("all stages", "half early", "fit"):
        scorer = Scorer(folder / f"{name}.thrifty", row_key="id")
        walk(scorer, [blocks[0][:1000]])
        bare, files = [], []
        for _ in range(ROUNDS):  # in turn: what else the machine does meets both
            bare.append(walk(scorer, blocks))
            files.append(timed(scorer, rows, folder / "out"))
        print(
            f"{name}: files {n_rows / min(files):,.0f} rows/s, {min(files) / min(bare):.2f} x the bare walk of "
            f"{n_rows / min(bare):,.0f}",
            flush=True,
        )


def write_shares(folder: Path) -> tuple[Path, Path]:
    """The same number of rows in four even files, and in files of which one holds half."""
    even, uneven = write_rows(folder / "even", WORKER_ROWS, WORKER_ROWS // 4), folder / "uneven"
    if not uneven.exists():
        uneven.mkdir()
        for number, share in enumerate((0.5, 0.25, 0.125, 0.125)):
            part = write_rows(folder / "part", int(share * WORKER_ROWS), WORKER_ROWS)
            shutil.move(next(part.iterdir()), uneven / f"{number}.parquet")
            shutil.rmtree(part)
    return even, uneven


def workers(folder: Path) -> None:
    """Two workers against one, and one file with half of the rows against even files."""
    scorer, (even, uneven) = Scorer(folder / "half early.thrifty", row_key="id"), write_shares(folder)
    one, two = (timed(scorer, even, folder / "out", n_jobs=n_jobs) for n_jobs in (1, 2))
    print(
        f"two workers: {one / two:.2f} x one, {WORKER_ROWS / two:,.0f} rows/s of {WORKER_ROWS:,}, the start of the "
        f"workers included",
        flush=True,
    )
    print(
        f"one file with half the rows: {timed(scorer, uneven, folder / 'out', n_jobs=2) / two:.2f} x even files"
    )


# -- engines -----------------------------------------------------------------------------------------


def engine(folder: Path, name: str, seconds_a_row: Callable[[Scorer, list[str]], float]) -> None:
    """Rows a second of an engine once it is warm, against the bare walk."""
    files, blocks = find_files(folder / "engine"), blocks_of(folder / "engine")[:2]
    # Processes start, and libraries are loaded.
    seconds_a_row(Scorer(folder / "fit.thrifty", row_key="id"), files[:2])
    for system in ("all stages", "half early"):
        scorer = Scorer(folder / f"{system}.thrifty", row_key="id")
        walk(scorer, [blocks[0][:1000]])
        bare, found = walk(scorer, blocks) / sum(map(len, blocks)), seconds_a_row(scorer, files)
        print(
            f"{name}, {system}: {1 / found:,.0f} rows/s, {found / bare:.2f} x the bare walk",
            flush=True,
        )


def of_second_half(
    run: Callable[[Scorer, list[str]], object], times: int = 1
) -> Callable[[Scorer, list[str]], float]:
    """Seconds a row of the second half of the files, each given ``times``: the time of all less that of the first."""

    def seconds_a_row(scorer: Scorer, files: list[str]) -> float:
        seconds = []
        for some in (files[: len(files) // 2], files):
            start = time.perf_counter()
            run(scorer, times * some)
            seconds.append(time.perf_counter() - start)
        return (seconds[1] - seconds[0]) / (times * (len(files) // 2) * BATCH)

    return seconds_a_row


def dask(folder: Path) -> None:
    import dask.dataframe as dd
    import distributed

    from thrifty.scale.dask import predict

    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        engine(
            folder,
            "Dask",
            of_second_half(
                lambda scorer, files: predict(dd.read_parquet(files), scorer)["cost"].sum().compute()
            ),
        )


def ray(folder: Path) -> None:
    import ray

    from thrifty.scale.ray import predict

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    engine(
        folder,
        "Ray",
        of_second_half(
            lambda scorer, files: predict(
                ray.data.read_parquet(files), scorer, batch_size=BATCH
            ).materialize(),
            times=2,  # each data set starts a process, whose time varies
        ),
    )
    ray.shutdown()


def spark(folder: Path) -> None:
    from pyspark.sql import SparkSession, functions

    from thrifty.scale.spark import predict

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH).getOrCreate()
    engine(
        folder,
        "Spark",
        of_second_half(
            lambda scorer, files: (
                predict(session.read.parquet(*files), scorer).agg(functions.sum("cost")).collect()
            )
        ),
    )
    session.stop()


# -- killed runs and memory --------------------------------------------------------------------------


def paid(table: pd.DataFrame) -> np.ndarray:
    """A full model that bills every row when it is asked, and takes its time."""
    outputs = 1 / (1 + np.exp(-table["x0"].to_numpy()))
    with open(os.environ["PAID"], "a") as file:
        file.write("".join(f"{number!r}\n" for number in outputs.tolist()))
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.05)
    return outputs


def kills(folder: Path, n_kills: int = 20) -> None:
    """Kill the driver or a worker at random moments, resume, and count keys, files, parts and paid rows."""
    rows, rng, log = (
        write_rows(folder / "kill", 500_000, 10_000),
        np.random.default_rng(0),
        folder / "paid.txt",
    )
    out, cache = folder / "out kills", folder / "cache"
    for place in (out, cache):
        shutil.rmtree(place, ignore_errors=True)
    os.environ["PAID"] = str(log)
    # The fifth of the rows that the first stage is least sure of goes on to the full model.
    system = load(folder / "fit.thrifty").with_full(paid)
    cut = np.quantile(system.evidence_.gate[:, 0], 0.8)
    asks = Policy.of(np.r_[cut, np.full(system.n_stages_ - 1, -np.inf)])
    save(system.chain_.at(asks), folder / "paid.thrifty", full="outside")
    log.write_text("")
    command = [sys.executable, __file__, str(folder), "--score", str(rows), "--jobs", "2"]
    written, n_partial, n_repeated, n_driver = {}, 0, 0, 0
    for number in range(n_kills + 1):
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if number < n_kills:
            while run.poll() is None and len(list(out.glob("*.parquet"))) <= len(written):
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.3))
            assert run.poll() is None, "the run ended before it was killed"
            children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            pool = [
                int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()
            ]
            n_driver += number % 2 == 0
            os.kill(rng.choice(pool) if number % 2 else run.pid, signal.SIGKILL)
        run.wait()
        found = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
        n_repeated += sum(found.get(name) != made for name, made in written.items())
        n_partial += sum(pq.read_metadata(out / name).num_rows != 10_000 for name in found)
        written = found
    keys = pd.concat([pq.read_table(path, columns=["id"]).to_pandas() for path in out.glob("*.parquet")])[
        "id"
    ]
    n_asked = len(log.read_text().split())
    kept = [line for path in cache.glob("*.answers") for line in path.read_text().splitlines()]
    print(
        f"{n_driver} kills of the driver, {n_kills - n_driver} of a worker: {n_partial} partial files, {n_repeated} "
        f"finished parts written again; {len(keys):,} keys, {keys.nunique():,} distinct, of 500,000; the full model "
        f"was asked about {n_asked:,} rows: {len(kept) - len(set(kept)):,} answers were kept twice, and "
        f"{n_asked - len(kept):,} lost with a worker that was killed while it asked"
    )


def memory(folder: Path, n_rows: int) -> None:
    """Peak memory of a process that scores a tenth of the rows, and of one that scores all."""
    rows = write_rows(folder / "memory", n_rows)
    tenth = folder / "memory tenth"
    tenth.mkdir(exist_ok=True)
    for path in find_files(rows)[: max(n_rows // FILE_ROWS // 10, 1)]:
        if not (tenth / Path(path).name).exists():
            os.link(path, tenth / Path(path).name)
    for name in (tenth, rows):
        shutil.rmtree(folder / "out", ignore_errors=True)
        start = time.perf_counter()
        command = [sys.executable, __file__, str(folder), "--score", str(name)]
        peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        n = sum(pq.read_metadata(path).num_rows for path in find_files(name))
        print(
            f"{n:,} rows: {peak}, {n / (time.perf_counter() - start):,.0f} rows/s with start and load",
            flush=True,
        )


def main() -> None:
    parts = {one.__name__: one for one in (speed, workers, dask, ray, spark, kills, memory)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--score", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.score:
        more = {"full": paid, "full_cache": given.folder / "cache"} if given.jobs > 1 else {}
        scorer = Scorer(given.folder / ("paid.thrifty" if more else "fit.thrifty"), row_key="id", **more)
        out = given.folder / ("out kills" if more else "out")
        predict_files(scorer, find_files(given.score), out, n_jobs=given.jobs, resume=True)
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
        return
    given.folder.mkdir(exist_ok=True)
    write_systems(given.folder)
    write_rows(given.folder / "engine", ENGINE_ROWS, BATCH)
    for name in given.parts or parts:
        parts[name](given.folder, *([given.rows] if name == "memory" else []))


if __name__ == "__main__":
    main()
