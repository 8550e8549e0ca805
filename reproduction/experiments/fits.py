"""The fits of an experiment, each made once and cached by joblib before the next one is asked for.

The key of a result is a hash of everything it was made from, data and code included, so that other settings fit only
what is lacking. Of a fit only its scores on validation and test rows are kept: what the choice between settings needs.
"""

import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import joblib
import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

import reproduction
from reproduction.datasets import Split
from reproduction.experiments.selection import AnyCandidate, Candidate, FullAnswers
from thrifty.arrays import Floats, Ints
from thrifty.engine.full.crossfit import TrainingRows, assign_folds, cross_fit_full
from thrifty.engine.table.table import Table
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.errors import FullModelNotWorthItWarning, OptimisticFullModelWarning
from thrifty.learners.dynamod.sweep import code_version
from thrifty.progress import Progress, silent

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
    """Return a hash of a function's name and of its arguments; arrays and estimators count by their content."""
    return str(joblib.hash((f"{do.__module__}.{do.__qualname__}", dict(described))))


class Kept:
    """The results of one experiment, cached in a folder, or computed anew where there is none.

    Parameters
    ----------
    folder : Path or None
        Folder of the cache; it is made if need be.
    about : dict
        Everything that all results depend on: the data, the name of the experiment.

    Attributes
    ----------
    seconds : float
        Time that everything asked for took to make, whenever that was, added up over processes.
    """

    def __init__(self, folder: Path | None, about: Mapping[str, Any]) -> None:
        self._cached = joblib.Memory(folder, verbose=0).cache(_work, ignore=["do", "arguments"])
        self._about = str(joblib.hash((dict(about), code_version(), own_code())))
        self.seconds = 0.0

    def run(self, jobs: Sequence[Job[Result]], *, n_jobs: int, progress: Progress, what: str) -> list[Result]:
        """Return the results of all jobs, in their order; what is cached is not made again."""
        arguments = {job.key: (self._about, job.key, job.do, job.arguments) for job in jobs}
        lacking = [key for key, one in arguments.items() if not self._cached.check_call_in_cache(*one)]
        records = {key: self._cached(*one) for key, one in arguments.items() if key not in lacking}
        progress(what, len(records), len(arguments))
        if lacking:
            # One job per message: what is done must not wait for others before it is kept.
            parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
            with warnings.catch_warnings():
                # A process that has grown is replaced; its jobs are not lost.
                warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
                for key, *record in parallel(delayed(_run)(self._cached, *arguments[key]) for key in lacking):
                    records[key] = record
                    progress(what, len(records), len(arguments))
        self.seconds += sum(records[job.key][0] for job in jobs)
        return [records[job.key][1] for job in jobs]


@functools.cache
def own_code() -> str:
    """Hash of the sources of ``reproduction``, which thrifty knows nothing of."""
    root = Path(reproduction.__file__).parent
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    return str(
        joblib.hash([(name, (root / name).read_bytes()) for name in names if not name.startswith("tests/")])
    )


def _work(about: str, key: str, do: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, Any]:  # noqa: ARG001
    """Seconds and result of a job; the first two arguments are what a cache knows it by."""
    began = time.perf_counter()
    result = do(*arguments)
    return time.perf_counter() - began, result


def _run(cached: Any, about: str, key: str, do: Any, arguments: Any) -> tuple[str, float, Any]:
    return key, *cached(about, key, do, arguments)


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
    rows = TrainingRows(
        Table(split.X_train),
        signs,
        BinaryTask(np.array([0, 1])),
        np.ones(len(signs)),
        folds,
    )
    judged = cross_fit_full(model, rows)
    val, test = (judged.model.outputs(X, X)[:, 1] for X in (split.X_val, split.X_test))
    # Of one layout, whether they come from here or from the cache: a hash of an array knows its strides.
    return FullScores(*map(np.ascontiguousarray, (judged.outputs[:, 1], val, test)))


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
    """Open the cache of finished fits of an experiment on one split."""
    rows = (split.X_train, split.y_train, split.X_val, split.y_val, split.X_test, split.y_test)
    return Kept(out / f"{name}.cells", {"experiment": name, "data": rows})
