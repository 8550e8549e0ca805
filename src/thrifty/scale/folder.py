"""Scoring of many files on one machine: every part becomes one file of answers, written whole or not at all.

The parts of a plan depend on the input alone: a part is a run of row groups of a parquet file, of record batches of an
Arrow file, or a CSV file. Its answers go into a file with a name of its own, which is written beside its place, reaches
the disk, and is renamed. The manifest comes last. A run that was killed is resumed by scoring the parts that have no
file yet.
"""

import contextlib
import glob
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from thrifty.engine.table.files import MISSING, need_parquet
from thrifty.errors import DataUnavailableError, InvalidInputError, ThriftyError, listed
from thrifty.files import check_path, write_atomically
from thrifty.progress import Progress, silent
from thrifty.scale.fit import Each
from thrifty.scale.scorer import Scorer
from thrifty.threads import limited_threads

PART_ROWS = 250_000
"""Row groups are joined into parts until they have this number of rows."""
MANIFEST = "_thrifty_manifest.json"
"""Written last: the plan, and the number of rows of each part. Readers of data sets skip names with an underscore."""
_PLAN = "_thrifty_plan.json"
_BYTES_A_CELL = 64
"""Memory of one cell while its batch is scored: as Arrow, in a data frame, as a number, and in a stage."""
_BASE_BYTES = 350_000_000
"""Memory of a process with the libraries loaded."""
_COMMON_TYPE = {
    frozenset(): "double",
    frozenset({"bool"}): "bool",
    frozenset({"int64"}): "int64",
    frozenset({"double"}): "double",
    frozenset({"int64", "double"}): "double",
}
"""Types of columns of CSV files that are not read as text, by the types of their first blocks."""
GUESS_BYTES = 1 << 24
"""First bytes of a CSV file, from which the types of its columns are guessed for a fit."""
_MAX_WAIT = 60.0
"""Seconds to wait for workers of a killed run, which finish the call of the full model that is under way."""
_FIT_ROWS = 60_000
"""Rows of a partition that a fit or a frontier looks at together."""


class PartsFailedError(ThriftyError):
    """Some parts could not be scored; the answers of the others are written."""


@dataclass(frozen=True)
class Part:
    """A part of the input, and the name of its file of answers.

    Attributes
    ----------
    path : str
        Input file.
    name : str
        Name of the file of answers.
    first, end : int
        Row groups or record batches of the part: from ``first`` to before ``end``; all of a CSV file is one.
    first_row : int
        Number of its first row in the input file, from 0.
    n_rows : int
        Number of rows; -1 where it is not known before the file is read.
    """

    path: str
    name: str
    first: int
    end: int
    first_row: int
    n_rows: int


# -- the plan --------------------------------------------------------------------------------------


def find_files(pattern: str | os.PathLike[str]) -> list[str]:
    """Files of a folder, or that match a pattern such as ``folder/*.parquet``, in the order of their names."""
    text = os.fspath(check_path(pattern))
    paths = glob.glob(os.path.join(glob.escape(text), "*") if os.path.isdir(text) else text, recursive=True)
    files = sorted(
        path for path in paths if os.path.isfile(path) and not os.path.basename(path).startswith(("_", "."))
    )
    if not files:
        raise DataUnavailableError(f"{text} matches no file. Name a folder of files, or a pattern in quotes.")
    return files


def _plan(files: Sequence[str], columns: Sequence[str]) -> tuple[list[Part], dict[str, str], Any]:
    """Parts of some files; the reason for each file that cannot be read; and the schema of the files."""
    parts: list[Part] = []
    failed: dict[str, str] = {}
    first_file: tuple[str, Any] | None = None
    for path in files:
        try:
            schema, sizes = _layout_of(path)
        except Exception as error:  # pyarrow raises errors of its own, and the system's
            failed[path] = f"it cannot be read: {error}"
            continue
        if first_file is None:
            first_file = path, schema
        _check_alike(first_file, (path, schema), columns)
        status = os.stat(path)
        version = f"{os.path.abspath(path)} {status.st_size} {status.st_mtime_ns}"
        stem = f"{Path(path).stem[:60]}-{hashlib.sha256(version.encode()).hexdigest()[:8]}"
        first = first_row = n_rows = 0
        for place, size in enumerate(sizes):
            n_rows += size
            if n_rows >= PART_ROWS or size < 0 or place == len(sizes) - 1:
                parts.append(Part(path, f"{stem}-{first:05d}.parquet", first, place + 1, first_row, n_rows))
                first, first_row, n_rows = place + 1, first_row + n_rows, 0
    return parts, failed, None if first_file is None else first_file[1]


def _check_alike(first: tuple[str, Any], other: tuple[str, Any], columns: Sequence[str]) -> None:
    """Refuse a file in which a column has another type than in the first file, or is lacking."""
    types = [
        {name: str(schema.field(name).type) for name in columns if name in schema.names}
        for _, schema in (first, other)
    ]
    if types[0] != types[1]:
        differing = [name for name in columns if types[0].get(name) != types[1].get(name)]
        raise InvalidInputError(
            f"the files must have the same columns; {listed(differing)} differ. {first[0]}: {_words(types[0])}. "
            f"{other[0]}: {_words(types[1])}. Write the files with one schema, or score them apart."
        )


def _words(types: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def _layout_of(path: str) -> tuple[Any, list[int]]:
    """Schema of a file, and the rows of each of its row groups; -1 where they are not counted."""
    import pyarrow as pa

    kind = _kind_of(path)
    if kind == "parquet":
        with need_parquet().ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            return file.schema_arrow, [file.metadata.row_group(group).num_rows for group in groups]
    if kind == "arrow":
        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            return file.schema, [file.get_batch(place).num_rows for place in range(file.num_record_batches)]
    from pyarrow import csv

    with csv.open_csv(path) as file:
        names = file.schema.names
    # Types of text are not compared: those of the first block of a file are a guess.
    return pa.schema([(name, pa.string()) for name in names]), [-1]


def _kind_of(path: str) -> str:
    ending = Path(path).suffix.lower()
    return {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}.get(
        ending, "csv"
    )


# -- one part --------------------------------------------------------------------------------------


def _batches(part: Part, columns: Sequence[str], batch_rows: int, types: Mapping[str, str]) -> Iterator[Any]:
    """Record batches of a part with some columns; ``types`` are those of the columns of a CSV file."""
    import pyarrow as pa

    kind = _kind_of(part.path)
    if kind == "parquet":
        with need_parquet().ParquetFile(part.path) as file:
            names = [name for name in columns if name in file.schema_arrow.names]
            groups = list(range(part.first, part.end))
            yield from file.iter_batches(batch_rows, row_groups=groups, columns=names, use_threads=False)
    elif kind == "arrow":
        with pa.memory_map(part.path) as source, pa.ipc.open_file(source) as file:
            for place in range(part.first, part.end):
                batch = file.get_batch(place)
                yield from (batch.slice(first, batch_rows) for first in range(0, batch.num_rows, batch_rows))
    else:
        from pyarrow import csv

        with csv.open_csv(part.path, convert_options=_conversion(types)) as file:
            for batch in file:
                yield from (batch.slice(first, batch_rows) for first in range(0, batch.num_rows, batch_rows))


def _guessed_types(files: Sequence[str]) -> dict[str, str]:
    """Types of the columns of CSV files, by the first block of each: numbers where all are numbers, else text."""
    from pyarrow import csv

    types_of: dict[str, set[str]] = {}
    for path in files:
        block = csv.ReadOptions(block_size=GUESS_BYTES)
        with csv.open_csv(path, read_options=block, convert_options=_conversion({})) as file:
            for field in file.schema:
                types_of.setdefault(field.name, set()).add(str(field.type))
    return {name: _COMMON_TYPE.get(frozenset(types - {"null"}), "string") for name, types in types_of.items()}


def _conversion(types: Mapping[str, str]) -> Any:
    from pyarrow import csv

    return csv.ConvertOptions(column_types=types, null_values=list(MISSING), strings_can_be_null=True)


def _score(scorer: Scorer, part: Part, out: str, batch_rows: int) -> dict[str, Any]:
    """Write the answers to a part; return its number of rows, what they cost, and how many the full model answered."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pq = need_parquet()
    beside = Path(out, f".{part.name}.{os.getpid()}.part")
    n_rows, cost, n_full, writer, types = 0, 0.0, 0, None, scorer.types
    costs = dict.fromkeys(scorer.resource_columns, 0.0)
    try:
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(open(beside, "wb"))
            for batch in _batches(part, scorer.columns, batch_rows, types):
                answers = scorer(batch, first_row=part.first_row + n_rows)
                if not scorer.copied:
                    first = part.first_row + n_rows
                    file = pa.repeat(os.path.basename(part.path), len(answers))
                    rows = pa.array(range(first, first + len(answers)))
                    names = ["file", "row", *answers.schema.names]
                    answers = pa.RecordBatch.from_arrays([file, rows, *answers.columns], names)
                if writer is None:
                    repeated = [name for name in ("answer", "stage") if name in answers.schema.names]
                    writer = stack.enter_context(
                        pq.ParquetWriter(sink, answers.schema, use_dictionary=repeated)
                    )
                writer.write_batch(answers)
                n_rows += len(answers)
                cost += pc.sum(answers["cost"]).as_py() or 0.0
                for name in costs:
                    costs[name] += pc.sum(answers[name]).as_py() or 0.0
                column, full = scorer.dearest
                n_full += pc.sum(pc.equal(answers[column], full)).as_py() or 0
            if writer is not None:
                writer.close()
            sink.flush()
            os.fsync(sink.fileno())
        if writer is not None:  # a part without rows has no answers
            os.replace(beside, Path(out, part.name))
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return {"n_rows": n_rows, "cost": cost, "n_full": n_full, **costs}


# -- all parts -------------------------------------------------------------------------------------


def predict_files(
    scorer: Scorer,
    files: Sequence[str],
    out: str | os.PathLike[str],
    *,
    n_jobs: int = 1,
    memory: int = 1_000_000_000,
    resume: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Score files of any number of rows into a folder of parquet files.

    Parameters
    ----------
    scorer : Scorer
        The system.
    files : sequence of str
        Parquet, Arrow (``.arrow``, ``.feather``) or CSV files with the same columns.
    out : path
        Folder of the answers: a file for each part of the input, then a manifest.
    n_jobs : int, default=1
        Number of processes.
    memory : int, default=10**9
        Bytes that a process may use, by which the size of its batches is chosen.
    resume : bool, default=False
        Whether to go on with the run whose answers are in the folder: only parts without a file are scored.
    progress : callable
        Called as ``progress(what, done, total)`` with numbers of rows.

    Returns
    -------
    totals : dict
        Number of rows, of rows whose key another row has, of parts, and of parts scored by this run; mean cost, and
        share of rows sent to the full model, of the rows of this run.

    Raises
    ------
    PartsFailedError
        Where some parts cannot be scored: names them and the reasons. The answers of all others are written.
    """
    began, out = perf_counter(), Path(out)
    parts, failed, schema = _plan(files, scorer.columns)
    if schema is not None:
        scorer.schema(schema)  # refuses a table without keys before anything is scored
    plan = {
        "system": scorer.digest,
        "at": repr(scorer.at),
        "row_key": scorer.row_key,
        "unseen": scorer.unseen,
        "files": list(map(os.path.abspath, files)),
    }
    n_known = sum(max(part.n_rows, 0) for part in parts)
    batch_rows = int(
        min(max((memory - _BASE_BYTES) / (_BYTES_A_CELL * (len(scorer.columns) + 4)), 2_000), 100_000)
    )
    results: dict[str, dict[str, Any]] = {}
    out.mkdir(parents=True, exist_ok=True)
    with _hold(out, _MAX_WAIT if resume else 0.0):
        _open_folder(out, plan, resume, {part.name for part in parts})
        missing = [part for part in parts if not (out / part.name).exists()]
        done = n_known - sum(max(part.n_rows, 0) for part in missing)
        for part, result in _each_scored(scorer, missing, str(out), batch_rows, n_jobs):
            if isinstance(result, dict):
                results[part.name] = result
                done += result["n_rows"]
                progress("scoring rows", done, max(n_known, done))
            else:
                failed[part.path] = str(result)
    if failed:
        raise PartsFailedError(
            f"{len(failed)} of {len(files)} files could not be scored; the answers of the others are in {out}. "
            + " ".join(f"{path}: {reason}" for path, reason in list(failed.items())[:5])
            + " Correct them, and go on with --resume."
        )
    n_rows = sum(result["n_rows"] for result in results.values())
    answered = [out / part.name for part in parts if (out / part.name).exists()]
    n_repeated = 0 if scorer.key_column is None else _n_repeated(answered, scorer.key_column)
    if n_repeated:
        warnings.warn(
            f"column {scorer.key_column!r} must hold a key of its own for each row; {n_repeated:,} rows have the key "
            f"of another row, so that their answers cannot be told apart by it, and follow one operating point. "
            f"Use another column as row key, or leave repeated rows out.",
            stacklevel=2,
        )
    totals = {
        "rows": sum(need_parquet().read_metadata(path).num_rows for path in answered),
        "repeated_keys": n_repeated,
        "parts": len(parts),
        "scored_parts": len(results),
        "mean_cost": sum(result["cost"] for result in results.values()) / max(n_rows, 1),
        **{
            f"mean_{name}": sum(result[name] for result in results.values()) / max(n_rows, 1)
            for name in scorer.resource_columns
        },
        "share_full": sum(result["n_full"] for result in results.values()) / max(n_rows, 1),
        "rows_per_second": n_rows / (perf_counter() - began),
    }
    write_atomically(
        out / MANIFEST, json.dumps({**plan, **totals, "parts": list(map(asdict, parts))}, indent=1).encode()
    )
    return totals


def _n_repeated(answered: Sequence[Path], key: str) -> int:
    """Rows of files of answers whose key an earlier row has; eight bytes of memory for each row."""
    from pandas.util import hash_array

    words = [np.empty(0, np.uint64)]
    for path in answered:
        with need_parquet().ParquetFile(path) as file:
            words += [
                hash_array(batch.column(0).to_pandas().to_numpy(), categorize=False)
                for batch in file.iter_batches(PART_ROWS, columns=[key])
            ]
    every = np.concatenate(words)
    every.sort()
    return int(np.count_nonzero(every[1:] == every[:-1]))


def _open_folder(out: Path, plan: dict[str, Any], resume: bool, names: set[str]) -> None:
    """Begin a run in an empty folder, or check that it is the one to resume; what it left half-written goes."""
    text = json.dumps(plan, indent=1)
    if not any(out.iterdir()):
        write_atomically(out / _PLAN, text.encode())
        return
    if not resume:
        raise InvalidInputError(f"{out} is not empty. Name an empty folder, or go on with --resume.")
    begun = (out / _PLAN).read_text() if (out / _PLAN).is_file() else ""
    if begun != text:
        try:
            other = json.loads(begun)
        except ValueError:
            other = {}
        differing = [name for name in plan if plan[name] != other.get(name)]
        raise InvalidInputError(
            f"{out} holds the answers of another run: {listed(differing)} differ. Name another folder, or give the "
            f"system, files and options of that run."
        )
    strange = sorted(path.name for path in out.glob("*.parquet") if path.name not in names)
    if strange:
        raise InvalidInputError(
            f"{out} holds {listed(strange)}, answers to a file that has changed since. Remove them, or name another "
            f"folder."
        )
    for half in out.glob(".*.part"):
        half.unlink(missing_ok=True)


def _each_scored(
    scorer: Scorer, parts: Sequence[Part], out: str, batch_rows: int, n_jobs: int
) -> Iterator[tuple[Part, dict[str, Any] | Exception]]:
    """Each part with its totals, or the error that it ended with; an error of one part does not end the others."""
    if n_jobs == 1 or len(parts) < 2:
        for part in parts:
            yield part, _score_or_error(scorer, part, out, batch_rows)
        return
    # Spawned: a forked process may wait for a lock that a thread of its parent held.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(n_jobs, len(parts)), mp_context=context, initializer=_start_worker, initargs=(out,)
    ) as pool:
        largest_first = sorted(parts, key=lambda part: -part.n_rows)
        waiting = {
            pool.submit(_score_or_error, scorer, part, out, batch_rows): part for part in largest_first
        }
        for future in as_completed(waiting):
            try:
                yield waiting[future], future.result()
            except BrokenProcessPool:
                raise PartsFailedError(
                    f"a process was killed, perhaps for want of memory. Finished parts are in {out}; go on with "
                    f"--resume, and with fewer --jobs or less --memory if it happens again."
                ) from None


def _start_worker(out: str) -> None:
    """End this process when the one that started it is killed, after the call of a full model that is under way."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=wait, daemon=True).start()
    if sys.platform != "win32":
        _lock(os.open(out, os.O_RDONLY), alone=False)  # until this process ends


@contextlib.contextmanager
def _hold(out: Path, max_wait: float) -> Iterator[None]:
    """Hold the folder of a run with its workers, once workers of a killed run have ended."""
    if sys.platform == "win32":  # which cannot open a folder
        yield
        return
    descriptor, deadline = os.open(out, os.O_RDONLY), monotonic() + max_wait
    try:
        while not _lock(descriptor, alone=True):
            if monotonic() > deadline:
                raise InvalidInputError(
                    f"another run writes into {out}, or its workers still wait for the full model. Wait until they "
                    f"have ended, or name another folder."
                )
            sleep(0.05)
        _lock(descriptor, alone=False)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, alone: bool) -> bool:
    """Lock a folder, ``alone`` or with the other processes of a run; False where another process has it."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except OSError as error:  # other errors are those of network file systems without locks
        return not isinstance(error, BlockingIOError)
    return True


def _score_or_error(scorer: Scorer, part: Part, out: str, batch_rows: int) -> dict[str, Any] | Exception:
    try:
        return _score(scorer, part, out, batch_rows)
    except (OSError, ValueError, ThriftyError) as error:
        return error


# -- functions of the rows of files ---------------------------------------------------------------


def each_of_files(
    files: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    types: Mapping[str, str] | None = None,
    n_jobs: int = 1,
    progress: Progress = silent,
) -> tuple[Each, list[str]]:
    """Partitions of files, for ``thrifty.scale.fit``, and the columns that they have.

    Parameters
    ----------
    files : sequence of str
        Parquet, Arrow or CSV files with the same columns.
    columns : sequence of str, optional
        Columns to read; all of the first file by default.
    types : mapping of str to str, optional
        Types of the columns of CSV files; by default those that the first block of every file agrees with.
    n_jobs : int, default=1
        Number of processes.
    progress : callable
        Called as ``progress(what, done, total)`` with numbers of parts.
    """
    names = list(columns or _layout_of(files[0])[0].names)
    parts, failed, _ = _plan(files, names)
    for path, reason in failed.items():
        raise DataUnavailableError(f"{path}: {reason}")
    types = _guessed_types([path for path in files if _kind_of(path) == "csv"]) if types is None else types

    def each(function: Callable[[Any, int], Any]) -> list[Any]:
        tasks = (
            delayed(_on_part)(function, part, names, types, place << 32) for place, part in enumerate(parts)
        )
        results: list[Any] = []
        for done, some in enumerate(Parallel(n_jobs=n_jobs, return_as="generator")(tasks), 1):
            results += some
            progress("reading rows", done, len(parts))
        return results

    return each, names


def _on_part(
    function: Callable[[Any, int], Any],
    part: Part,
    columns: Sequence[str],
    types: Mapping[str, str],
    first: int,
) -> list[Any]:
    """A function of the batches of a part, which are numbered from ``first``."""
    import pyarrow as pa

    try:
        with limited_threads(openmp=1, blas=1):
            return [
                function(pa.Table.from_batches([batch]).to_pandas(ignore_metadata=True), first + place)
                for place, batch in enumerate(_batches(part, columns, _FIT_ROWS, types))
            ]
    except pa.ArrowInvalid as error:
        raise DataUnavailableError(
            f"{part.path}: it cannot be read: {error}. Write the file again, or a CSV file as parquet, which declares "
            f"the types of its columns."
        ) from None
