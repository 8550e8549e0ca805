"""The fits of an experiment, each made once: every finished one is in a file before the next one is asked for.

The key of a result is a checksum of everything it was made from, so that other settings fit only what is lacking. The
file belongs to one data set and to one version of the code; it is refused for any other. Results are read back
from their bytes even if they were made a moment ago: a run that was interrupted cannot differ from one that was not.
Of a fit only its scores on validation and test rows are kept: what the choice between settings needs.
"""

import functools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

import reproduction
from reproduction.datasets import Split
from reproduction.experiments.selection import AnyCandidate, Candidate, FullAnswers, PointCandidate
from thrifty.arrays import Floats, Ints
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.dynamod.sweeping import identity
from thrifty.dynamod.sweeping.store import Store
from thrifty.errors import FullModelNotWorthItWarning, InvalidInputError, OptimisticFullModelWarning
from thrifty.full.crossfit import TrainingRows, assign_folds, judge_full
from thrifty.progress import Progress, silent
from thrifty.tasks.classes import BinaryTask

__all__ = ["Fit", "FullScores", "Job", "Kept", "fit_all", "judge_on_split", "kept_in", "key_of"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Job(Generic[Result]):
    """A piece of work: a function of a module, which every process can find, and its arguments.

    ``key`` must tell it from every other job of the experiment; see ``key_of``.
    """

    key: str
    do: Callable[..., Result]
    arguments: tuple[Any, ...] = ()


def key_of(do: Callable[..., Any], described: Mapping[str, Any]) -> str:
    """Return a checksum of a function's name and of its arguments; arrays and estimators count by their content."""
    about = identity.describe(dict(described), "described")
    return identity.digest(f"{do.__module__}.{do.__qualname__}", json.dumps(about, sort_keys=True))


class Kept:
    """The results of one experiment, in a file or, without one, in memory; use as a context manager.

    Parameters
    ----------
    path : Path or None
        File of the results; its folder is made if need be.
    about : dict
        Everything that all results depend on: checksums of the data, the name of the experiment.

    Attributes
    ----------
    seconds : float
        Time that everything asked for took to make, whenever that was, added up over processes.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        code = {"code": identity.code(), "experiments": own_code(), "libraries": identity.libraries()}
        self._store = Store(path, {**about, **code})
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.__exit__(kind, error, trace)

    def run(self, jobs: Sequence[Job[Result]], *, n_jobs: int, progress: Progress, what: str) -> list[Result]:
        """Return the results of all jobs, in their order; only what the file lacks is worked on, the first ones first.

        A result may hold plain values, lists and dicts, arrays, scores of f0 and candidates.
        """
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
                for key, record in parallel(delayed(_work)(job) for job in lacking.values()):
                    self._store.put(key, record)
                    records[key] = record
                    progress(what, len(records), total)
        parts = [_parts(records[job.key]) for job in jobs]
        self.seconds += sum(seconds for seconds, _ in parts)
        return [from_record(payload) for _, payload in parts]


@functools.cache
def own_code() -> str:
    """Checksum of the sources of ``reproduction``, which thrifty knows nothing of."""
    root = Path(reproduction.__file__).parent
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    sources = [
        part for name in names if not name.startswith("tests/") for part in (name, (root / name).read_bytes())
    ]
    return identity.digest(*sources)[:12]


def _work(job: Job[Any]) -> tuple[str, bytes]:
    began = time.perf_counter()
    payload = to_record(job.do(*job.arguments))
    # A line in front says how long it took.
    return job.key, f"{time.perf_counter() - began:.3f}\n".encode() + payload


def _parts(record: bytes) -> tuple[float, bytes]:
    seconds, _, payload = record.partition(b"\n")
    try:
        return float(seconds), payload
    except ValueError as error:
        raise _damaged(error) from error


def to_record(result: Any) -> bytes:
    """Turn a result into bytes of which none can change unnoticed."""
    arrays: list[Any] = []

    def plain(value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {"__array__": len(arrays) - 1}
        return {"__class__": type(value).__name__, **value.__dict__}

    text = json.dumps(result, default=plain)
    return pack(Contents({"json": text}, arrays))


def from_record(record: bytes) -> Any:
    """Read back what ``to_record`` wrote, bit by bit."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (FullScores, Candidate, PointCandidate)}

    def restore(facts: dict[str, Any]) -> Any:
        if "__array__" in facts:
            return contents.arrays[facts["__array__"]]
        if "__class__" not in facts:
            return facts
        kind = kinds[facts.pop("__class__")]
        # JSON has no tuples; these classes have no lists.
        return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in facts.items()})

    try:
        contents = unpack(record)
        return json.loads(contents.facts["json"], object_hook=restore)
    except (InvalidInputError, KeyError, IndexError, TypeError, ValueError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> InvalidInputError:
    return InvalidInputError(f"a kept result is damaged ({error}). Delete the file of cells to start afresh.")


# -- f0 ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FullScores:
    """f0's probabilities of class 1: cross-fitted on the training rows, of one f0 fitted on them all elsewhere."""

    train: Floats
    val: Floats
    test: Floats

    def answers(self, split: Split, cost: float) -> FullAnswers:
        """Compare f0's answers with the labels of validation and test rows."""
        right_val, right_test = (
            (score > 0.5) == (y == 1) for score, y in ((self.val, split.y_val), (self.test, split.y_test))
        )
        return FullAnswers(split.y_val, right_val, split.y_test, right_test, cost)


def judge_on_split(
    model: Any,
    split: Split,
    *,
    folds: Ints | None = None,
    kept: Kept | None = None,
    progress: Progress = silent,
    what: str = "f0",
) -> FullScores:
    """Cross-fit f0 once on the training rows and ask it about the others, unless that is kept already.

    Folds of rows are drawn, five of them, unless they are given.
    """
    job = Job(key_of(_judge, {"model": model, "folds": folds}), _judge, (model, split, folds))
    (scores,) = _in(kept).run([job], n_jobs=1, progress=progress, what=f"cross-fitting {what}")
    return scores


def _judge(model: Any, split: Split, folds: Ints | None) -> FullScores:
    signs = np.where(split.y_train == 1, 1.0, -1.0)
    if folds is None:
        folds = assign_folds(5, split.X_train, signs, signs > 0, seed=0)
    everyone = np.arange(len(signs))
    rows = TrainingRows(
        split.X_train,
        split.X_train,
        signs,
        BinaryTask(np.array([0, 1])),
        np.ones(len(signs)),
        folds,
        everyone,
        len(signs),
    )
    judged = judge_full(model, rows)
    val, test = (judged.model.outputs(X, X)[:, 1] for X in (split.X_val, split.X_test))
    return FullScores(judged.outputs[:, 1], val, test)


# -- fits --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """One fit: a function of a module that is given the split, the settings to name, and arguments.

    Attributes
    ----------
    settings : dict
        Parameters that tell this fit from the others of its method; they go into the numbers.
    arguments : dict
        Everything else that ``do`` takes; estimators count by their parameters, arrays by their content.
    do : callable
        ``do(split, settings, **arguments)`` gives one candidate or several.
    """

    settings: dict[str, Any]
    arguments: dict[str, Any]
    do: Callable[..., list[AnyCandidate]] = field(default_factory=lambda: fit_gated)

    def job(self, split: Split) -> Job[list[AnyCandidate]]:
        """Make the fit a piece of work that can be kept."""
        key = key_of(self.do, {"settings": self.settings, **self.arguments})
        return Job(key, _fit, (self.do, split, self.settings, self.arguments))


def fit_all(
    fits: Mapping[str, Sequence[Fit]],
    split: Split,
    *,
    kept: Kept | None = None,
    n_jobs: int = 1,
    progress: Progress = silent,
    what: str = "fitting",
) -> dict[str, list[AnyCandidate]]:
    """Fit every setting and return the candidates of every method.

    All fits go into one queue, in the order given, so that no process idles between methods; give the longest first.
    """
    queue = [fit.job(split) for some in fits.values() for fit in some]
    results = iter(_in(kept).run(queue, n_jobs=n_jobs, progress=progress, what=what))
    return {method: [one for _ in some for one in next(results)] for method, some in fits.items()}


def fit_gated(
    split: Split, settings: dict[str, Any], *, estimator: Any, threshold: float | None = 0.0
) -> list[AnyCandidate]:
    """Fit a gated estimator on the training rows and score the others."""
    fitted = estimator.fit(split.X_train, split.y_train)
    g_val, f1_val = fitted.scores(split.X_val)
    g_test, f1_test = fitted.scores(split.X_test)
    cost = float(fitted.chain_.cost_by_place[0])
    bought = tuple(int(column) for column in fitted.features_)
    return [Candidate(settings, cost, g_val, f1_val, g_test, f1_test, threshold, bought)]


def _fit(
    do: Callable[..., list[AnyCandidate]], split: Split, settings: dict[str, Any], arguments: dict[str, Any]
) -> list[AnyCandidate]:
    with warnings.catch_warnings():
        # A sweep stops after a given number of rounds, converged or not, and before where an estimator's tol is met;
        # it gives f0 as probabilities that are cross-fitted already, and measures for itself what f0 is worth.
        for kind in (ConvergenceWarning, OptimisticFullModelWarning, FullModelNotWorthItWarning):
            warnings.simplefilter("ignore", kind)
        return do(split, settings, **arguments)


def _in(kept: Kept | None) -> Kept:
    return Kept(None, {}) if kept is None else kept


def kept_in(out: Path, name: str, split: Split) -> Kept:
    """Open the file of finished fits of an experiment on one split."""
    rows = (split.X_train, split.y_train, split.X_val, split.y_val, split.X_test, split.y_test)
    return Kept(out / f"{name}.cells", {"experiment": name, "data": identity.digest(*rows)})
