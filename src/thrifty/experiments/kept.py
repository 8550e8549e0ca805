"""Results that survive an interruption: every finished piece of work is in one file before the next one is asked for.

The key of a result is a checksum of everything it was made from, so that other settings fit only what is lacking. The
file belongs to one data set and to one version of the code; it is refused for any other. Results are read back
from their bytes even if they were made a moment ago: a run that was interrupted cannot differ from one that was not.
"""

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from joblib import Parallel, delayed

from thrifty.bundle.container import Contents, pack, unpack
from thrifty.exceptions import InvalidInputError
from thrifty.experiments.outcome import Progress
from thrifty.sweeping import identity
from thrifty.sweeping.store import Store

__all__ = ["JSON_CODEC", "Codec", "Job", "Kept", "key_of"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Codec(Generic[Result]):
    """How a kind of result becomes bytes and comes back."""

    to_bytes: Callable[[Result], bytes]
    from_bytes: Callable[[bytes], Result]


def _json_to_bytes(value: Any) -> bytes:
    return pack(Contents({"json": json.dumps(value)}, []))


def _json_from_bytes(record: bytes) -> Any:
    return json.loads(unpack(record).facts["json"])


JSON_CODEC: Codec[Any] = Codec(_json_to_bytes, _json_from_bytes)
"""For results that are plain numbers, text, lists and dicts."""


@dataclass(frozen=True)
class Job(Generic[Result]):
    """A piece of work: a function of a module, which every process can find, and its arguments.

    ``key`` must tell it from every other job of the experiment; see ``key_of``.
    """

    key: str
    do: Callable[..., Result]
    arguments: tuple[Any, ...] = ()


def key_of(do: Callable[..., Any], described: Mapping[str, Any]) -> str:
    """Checksum of a function's name and of what it is called with; arrays and estimators count by their content."""
    about = identity.describe(dict(described), "described")
    return identity.digest(f"{do.__module__}.{do.__qualname__}", json.dumps(about, sort_keys=True))


class Kept:
    """The results of one experiment, in a file or, without one, in memory; use as a context manager.

    Parameters
    ----------
    path : Path or None
        The file; its folder is made if need be.
    about : dict
        What all results depend on: checksums of the data, the name of the experiment.

    Attributes
    ----------
    seconds : float
        How long everything that was asked for took to make, whenever that was, added up over processes.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._store = Store(path, {**about, "code": identity.code(), "libraries": identity.libraries()})
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.__exit__(kind, error, trace)

    def run(
        self, jobs: Sequence[Job[Result]], codec: Codec[Result], *, n_jobs: int, progress: Progress, what: str
    ) -> list[Result]:
        """Results of all jobs, in their order; only what the file lacks is worked on, the first ones first."""
        records = {job.key: record for job in jobs if (record := self._store.get(job.key)) is not None}
        lacking = {job.key: job for job in jobs if job.key not in records}
        total = len(records) + len(lacking)
        progress(what, len(records), total)
        if lacking:
            # One job per message: what is done must not wait for others before it is kept.
            parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
            with warnings.catch_warnings():
                # A process that has grown is replaced; its jobs are not lost.
                warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
                for key, record in parallel(delayed(_work)(job, codec.to_bytes) for job in lacking.values()):
                    self._store.put(key, record)
                    records[key] = record
                    progress(what, len(records), total)
        parts = [_parts(records[job.key]) for job in jobs]
        self.seconds += sum(seconds for seconds, _ in parts)
        return [codec.from_bytes(payload) for _, payload in parts]


def _work(job: Job[Result], to_bytes: Callable[[Result], bytes]) -> tuple[str, bytes]:
    began = time.perf_counter()
    payload = to_bytes(job.do(*job.arguments))
    # A line in front says how long it took.
    return job.key, f"{time.perf_counter() - began:.3f}\n".encode() + payload


def _parts(record: bytes) -> tuple[float, bytes]:
    seconds, _, payload = record.partition(b"\n")
    try:
        return float(seconds), payload
    except ValueError as error:
        raise InvalidInputError(
            f"a kept result is damaged ({error}). Delete the file of cells to start afresh."
        ) from error
