"""Fit many settings and keep only their scores: what the choice between them needs."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from thrifty.arrays import Floats
from thrifty.bundle.container import Contents, pack, unpack
from thrifty.datasets import Split
from thrifty.exceptions import FullModelNotWorthItWarning, OptimisticFullModelWarning
from thrifty.experiments.candidates import AnyCandidate, Candidate, FullAnswers, from_record, to_record
from thrifty.experiments.kept import Codec, Job, Kept, key_of
from thrifty.experiments.outcome import Progress, silent
from thrifty.full.crossfit import TrainingRows, assign_folds, judge_full
from thrifty.sweeping.identity import digest

__all__ = ["Fit", "FullScores", "fit_all", "fit_gated", "judge_on_split", "kept_in", "thinned_rows"]


# -- f0 ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FullScores:
    """f0's probabilities of class 1: out of fold on the training rows, of the whole f0 on the others."""

    train: Floats
    val: Floats
    test: Floats

    def answers(self, split: Split, cost: float) -> FullAnswers:
        """Where f0 is right."""
        right_val, right_test = (
            (score > 0.5) == (y == 1) for score, y in ((self.val, split.y_val), (self.test, split.y_test))
        )
        return FullAnswers(split.y_val, right_val, split.y_test, right_test, cost)


def _scores_to_bytes(scores: FullScores) -> bytes:
    return pack(Contents({}, [scores.train, scores.val, scores.test]))


def _scores_from_bytes(record: bytes) -> FullScores:
    return FullScores(*unpack(record).arrays)


_SCORES = Codec(_scores_to_bytes, _scores_from_bytes)


def judge_on_split(
    model: Any, split: Split, *, kept: Kept | None = None, progress: Progress = silent, what: str = "f0"
) -> FullScores:
    """Cross-fit f0 once on the training rows and ask it about the others, unless that is kept already."""
    job = Job(key_of(_judge, {"model": model}), _judge, (model, split))
    (scores,) = _in(kept).run([job], _SCORES, n_jobs=1, progress=progress, what=f"cross-fitting {what}")
    return scores


def _judge(model: Any, split: Split) -> FullScores:
    signs = np.where(split.y_train == 1, 1.0, -1.0)
    folds = assign_folds(5, split.X_train, signs, seed=0)
    everyone = np.arange(len(signs))
    rows = TrainingRows(
        split.X_train,
        split.X_train,
        signs,
        np.array([0, 1]),
        np.ones(len(signs)),
        folds,
        everyone,
        len(signs),
    )
    judged = judge_full(model, rows)
    val, test = (judged.model.probability(X, np.arange(len(X)), len(X)) for X in (split.X_val, split.X_test))
    return FullScores(judged.probability, val, test)


# -- everything else ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """One fit: a function of a module that is given the split, the settings to name, and arguments.

    Attributes
    ----------
    settings : dict
        What tells this fit from the others of its method; goes into the numbers.
    arguments : dict
        Whatever else ``do`` takes; estimators count by their parameters, arrays by their content.
    do : callable
        ``do(split, settings, **arguments)`` gives one candidate or several.
    """

    settings: dict[str, Any]
    arguments: dict[str, Any]
    do: Callable[..., list[AnyCandidate]] = field(default_factory=lambda: fit_gated)

    def job(self, split: Split) -> Job[list[AnyCandidate]]:
        """The fit as a piece of work that can be kept."""
        key = key_of(self.do, {"settings": self.settings, **self.arguments})
        return Job(key, _fit, (self.do, split, self.settings, self.arguments))


_CANDIDATES: Codec[list[AnyCandidate]] = Codec(to_record, from_record)


def fit_all(
    fits: Mapping[str, Sequence[Fit]],
    split: Split,
    *,
    kept: Kept | None = None,
    n_jobs: int = 1,
    progress: Progress = silent,
    what: str = "fitting",
) -> dict[str, list[AnyCandidate]]:
    """Candidates of every method; all fits go into one queue, in the order given, so that no process idles between.

    Give the longest first.
    """
    queue = [fit.job(split) for some in fits.values() for fit in some]
    results = iter(_in(kept).run(queue, _CANDIDATES, n_jobs=n_jobs, progress=progress, what=what))
    return {method: [one for _ in some for one in next(results)] for method, some in fits.items()}


def fit_gated(
    split: Split, settings: dict[str, Any], *, estimator: Any, threshold: float | None = 0.0
) -> list[AnyCandidate]:
    """A gated estimator, fitted on the training rows; its scores on the others."""
    fitted = estimator.fit(split.X_train, split.y_train)
    g_val, f1_val = fitted.scores(split.X_val)
    g_test, f1_test = fitted.scores(split.X_test)
    cost = float(fitted.system_.cost_by_route[0])
    bought = tuple(int(column) for column in fitted.features_)
    return [Candidate(settings, cost, g_val, f1_val, g_test, f1_test, threshold, bought)]


def _fit(
    do: Callable[..., list[AnyCandidate]], split: Split, settings: dict[str, Any], arguments: dict[str, Any]
) -> list[AnyCandidate]:
    with warnings.catch_warnings():
        # A sweep runs the paper's number of rounds, converged or not, gives f0 as probabilities that are out of
        # fold already, and measures for itself what f0 is worth.
        for kind in (ConvergenceWarning, OptimisticFullModelWarning, FullModelNotWorthItWarning):
            warnings.simplefilter("ignore", kind)
        return do(split, settings, **arguments)


def _in(kept: Kept | None) -> Kept:
    return Kept(None, {}) if kept is None else kept


# -- data --------------------------------------------------------------------------------------


def kept_in(out: Path, name: str, split: Split) -> Kept:
    """The file of finished fits of an experiment on one split."""
    rows = (split.X_train, split.y_train, split.X_val, split.y_val, split.X_test, split.y_test)
    return Kept(out / f"{name}.cells", {"experiment": name, "data": digest(*rows)})


def thinned_rows(split: Split, rows: Sequence[int], seed: int) -> Split:
    """At most so many training, validation and test rows, drawn with a seed; all of them if nothing is said."""
    if not rows:
        return split

    def draw(X: Floats, y: NDArray[np.intp], most: int) -> tuple[Floats, NDArray[np.intp]]:
        # Rows of a file may be sorted by class, so the first ones would not do.
        drawn = np.sort(np.random.default_rng(seed).permutation(len(y))[:most])
        return X[drawn], y[drawn]

    train, val, test = rows
    return Split(
        *draw(split.X_train, split.y_train, train),
        *draw(split.X_val, split.y_val, val),
        *draw(split.X_test, split.y_test, test),
        split.feature_names,
    )
