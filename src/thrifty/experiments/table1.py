"""Table 1: how many calls of a remote model a device with ten trees must make for a wished accuracy.

f0 is XGBoost with 500 trees of depth 5, the device holds ten trees of depth 5; learning rates are chosen on validation
rows. Two wishes per data set give up 8 % and 22 % of the gap between f0 and the ten trees, as the paper's wishes do.
Every gate learns from training rows, on which f0 is judged out of fold; its threshold is the one that sends the
fewest *validation* rows while it keeps the wish there; reported are share sent and accuracy of *test* rows, mean
and spread over random splits. Beyond the paper: trees grown best-first with as many leaves, for f1 alone and for f1
and the gate at once.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from thrifty.baselines.greedy_leaf import GreedyLeafClassifier
from thrifty.baselines.routers import ConfidenceRouter, UniformRouter
from thrifty.datasets import Split, load_cifar_images, load_forest, load_miniboone
from thrifty.estimators.base import GatedClassifier
from thrifty.estimators.dynamod_lstsq import DynaModLstsqClassifier
from thrifty.exceptions import DataUnavailableError, OptimisticFullModelWarning
from thrifty.experiments.outcome import Outcome, Progress, silent
from thrifty.experiments.patches import learn_patch_words
from thrifty.judging import assign_folds

__all__ = ["METHODS", "run"]

Floats = NDArray[np.float64]

GIVEN_UP = (0.08, 0.22)
"""Parts of the gap between f0 and f1 that the two wishes give up."""

SMALL_RATES = tuple(np.round(np.arange(0.1, 1.01, 0.1), 1).tolist())
GROWN_RATES = (0.3, 0.6, 1.0)
FOLDS = 3

METHODS = (
    "uniform",
    "confidence",
    "greedy",
    "DM-Lin",
    "DM-Lstsq",
    "DM-Lstsq, trust",
    "best-first, confidence",
    "joint, depth 5",
    "joint",
)


@dataclass(frozen=True)
class Task:
    """One data set of the table.

    Attributes
    ----------
    title : str
        Its name in the table.
    load : callable
        ``(data, seed) -> Split``.
    n_splits : int
        Random splits; a small set needs more of them for the same standard error.
    rates : tuple of float
        Learning rates tried for f0. The paper's range is 0.1 to 1; what is left out was never chosen.
    max_bin : int
        Bins of XGBoost.
    """

    title: str
    load: Callable[[str | None, int], Split]
    n_splits: int
    rates: tuple[float, ...]
    max_bin: int = 256


def _cifar(data: str | None, seed: int) -> Split:
    """12,000 / 3,000 / 5,000 images as 400 features, learned from patches of the training images alone."""
    images, y = load_cifar_images(data)
    order = np.random.default_rng(seed).permutation(len(y))
    X = learn_patch_words(images[order[:12_000]], seed).describe(images)[order].astype(np.float64)
    y = y[order]
    names = tuple(f"word {number}" for number in range(X.shape[1]))
    return Split(X[:12_000], y[:12_000], X[12_000:15_000], y[12_000:15_000], X[15_000:], y[15_000:], names)


TASKS = {
    "miniboone": Task(
        "MiniBooNE-5k", lambda data, seed: load_miniboone(data, seed=seed), 10, (0.1, 0.2, 0.3)
    ),
    "forest": Task("Forest", lambda data, seed: load_forest(data, seed=seed), 5, (0.3, 0.5, 0.7)),
    # With 32 bins f0 is three times as fast on 400 columns and no less accurate.
    "cifar": Task("CIFAR-10", _cifar, 5, (0.1, 0.2, 0.3), max_bin=32),
}


@dataclass(frozen=True)
class Remote:
    """f0 on one split: probabilities of every row, out of fold on training rows, and what it was fitted with."""

    train: Floats
    val: Floats
    test: Floats
    rate: float


def run(
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int = 2,
    thin: int = 1,
    progress: Progress = silent,
) -> Outcome:
    """Run every split of every data set and return the table.

    Parameters
    ----------
    out : Path
        Folder for the table and the JSON file.
    data : str, optional
        Folder with ``miniboone_5k.npz``, ``covtype.npz`` and ``cifar10_20k.npz``.
    n_jobs : int
        Processes.
    thin : int
        Keep every ``thin``-th split.
    progress : callable
        Told how far it is.
    """
    try:
        import xgboost  # noqa: F401
    except ModuleNotFoundError as error:
        raise DataUnavailableError(
            "thrifty paper table1 needs XGBoost as f0. Install it with thrifty[boosters]."
        ) from error
    # The longest first, so that no process is left with a long one at the end.
    cells = [(name, seed) for name in reversed(TASKS) for seed in range(0, TASKS[name].n_splits, thin)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in TASKS}
    jobs = (delayed(_one_split)(name, seed, data) for name, seed in cells)
    for done, result in enumerate(Parallel(n_jobs=n_jobs, return_as="generator")(jobs), start=1):
        found[result["data"]].append(result)
        progress("table 1: splits", done, len(cells))
    header = ["", *(f"{TASKS[name].title}, {part:.0%}" for name in TASKS for part in GIVEN_UP)]
    rows = _rows(found)
    notes = [line for name in TASKS for line in _sentences(name, found[name])] + _sizes(found) + _times(found)
    outcome = Outcome(
        "table1",
        "Share of rows sent to the remote model, in %, for a wished accuracy",
        header,
        rows,
        {"given_up": GIVEN_UP, "methods": METHODS, "splits": found},
        notes,
    )
    outcome.write(out)
    return outcome


# -- one split ---------------------------------------------------------------------------------


def _one_split(name: str, seed: int, data: str | None) -> dict[str, Any]:
    task = TASKS[name]
    began = process_time()
    # One thread each: splits run side by side.
    with threadpool_limits(1), warnings.catch_warnings():
        # f0 is given as probabilities that are out of fold already, and rounds are counted, not awaited.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimisticFullModelWarning)
        split = task.load(data, seed)
        remote = _remote(task, split)
        small, rate = _best_small(task, split)
        accuracy = {
            "f0": _accuracies(remote, split),
            "f1": {
                "val": small.score(split.X_val, split.y_val),
                "test": small.score(split.X_test, split.y_test),
            },
        }
        gap = accuracy["f0"]["val"] - accuracy["f1"]["val"]
        wishes = [accuracy["f0"]["val"] - part * gap for part in GIVEN_UP]
        methods = {
            method: _measure(fitted, remote, split, wishes)
            for method, fitted in _fitted(remote, FrozenEstimator(small), split)
        }
    return {
        "data": name,
        "seed": seed,
        "rate_f0": remote.rate,
        "rate_f1": rate,
        "accuracy": accuracy,
        "wishes": wishes,
        "methods": methods,
        "bytes_xgboost": len(small.get_booster().save_raw("ubj")),
        "seconds": process_time() - began,
    }


def _boosted(task: Task, n_trees: int, rate: float) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(
        n_estimators=n_trees,
        max_depth=5,
        learning_rate=rate,
        tree_method="hist",
        max_bin=task.max_bin,
        n_jobs=1,
        random_state=0,
    )


def _remote(task: Task, split: Split) -> Remote:
    """Choose f0's learning rate on validation rows, then judge it on training rows out of fold."""
    models = {rate: _boosted(task, 500, rate).fit(split.X_train, split.y_train) for rate in task.rates}
    rate = max(models, key=lambda rate: models[rate].score(split.X_val, split.y_val))
    folds = assign_folds(FOLDS, split.X_train, np.where(split.y_train == 1, 1.0, -1.0), seed=0)
    train = np.empty(len(folds))
    for fold in range(FOLDS):
        out = folds == fold
        model = _boosted(task, 500, rate).fit(split.X_train[~out], split.y_train[~out])
        train[out] = model.predict_proba(split.X_train[out])[:, 1]
    val, test = (models[rate].predict_proba(X)[:, 1].astype(float) for X in (split.X_val, split.X_test))
    return Remote(train, val, test, rate)


def _best_small(task: Task, split: Split) -> tuple[Any, float]:
    """Ten trees of depth 5, their learning rate chosen on validation rows."""
    models = {rate: _boosted(task, 10, rate).fit(split.X_train, split.y_train) for rate in SMALL_RATES}
    rate = max(models, key=lambda rate: models[rate].score(split.X_val, split.y_val))
    return models[rate], rate


def _fitted(remote: Remote, small: FrozenEstimator, split: Split) -> Iterator[tuple[str, GatedClassifier]]:
    """Every method of the table, fitted on training rows."""
    prices: dict[str, Any] = {"feature_costs": 0.0, "full_cost": 1.0, "random_state": 0}
    relearn: dict[str, Any] = {"max_iter": 10, "random_state": 0}
    full = remote.train
    plain: dict[str, GatedClassifier] = {
        "uniform": UniformRouter(full, small, **prices),
        "confidence": ConfidenceRouter(full, small, **prices),
        "greedy": GreedyLeafClassifier(full, small, random_state=0),
        "DM-Lin": DynaModLstsqClassifier(full, small, distance="kl", trust=0.0, **relearn),
        "DM-Lstsq": DynaModLstsqClassifier(full, small, trust=0.0, **relearn),
        "DM-Lstsq, trust": DynaModLstsqClassifier(full, small, **relearn),
    }
    for method, estimator in plain.items():
        yield method, estimator.fit(split.X_train, split.y_train)
    shapes: dict[str, dict[str, Any]] = {
        "best-first, confidence": {"gate_weight": 0.0},
        "joint, depth 5": {"gate_weight": 10.0, "max_depth": 5, "min_child_weight": 1.0},
        "joint": {},
    }
    for method, shape in shapes.items():
        grown = [
            DynaModLstsqClassifier(full, learning_rate=rate, max_iter=0, random_state=0, **shape).fit(
                split.X_train, split.y_train
            )
            for rate in GROWN_RATES
        ]
        # As for XGBoost's ten trees: the learning rate by the accuracy of f1 alone on validation rows.
        best = max(grown, key=lambda fitted: _local_accuracy(fitted, split))
        if method == "best-first, confidence":
            yield method, best
        else:
            again = DynaModLstsqClassifier(full, best.local_, **relearn)
            yield method, again.fit(split.X_train, split.y_train)


def _local_accuracy(fitted: GatedClassifier, split: Split) -> float:
    _, f1 = fitted.scores(split.X_val)
    return float(np.mean((f1 > 0) == (split.y_val == 1)))


def _measure(fitted: GatedClassifier, remote: Remote, split: Split, wishes: list[float]) -> dict[str, Any]:
    """Cut on validation rows at each wish, look at test rows."""
    on_val, on_test = fitted.with_full(remote.val), fitted.with_full(remote.test)
    share, accuracy = [], []
    for wish in wishes:
        cut = on_test.at(on_val.threshold_for(split.X_val, split.y_val, accuracy=wish))
        share.append(float(cut.route(split.X_test).mean()))
        accuracy.append(float(cut.score(split.X_test, split.y_test)))
    return {"share": share, "accuracy": accuracy, "bytes": getattr(fitted, "n_bytes_", None)}


def _accuracies(remote: Remote, split: Split) -> dict[str, float]:
    parts = ((remote.train, split.y_train), (remote.val, split.y_val), (remote.test, split.y_test))
    found = [float(np.mean((probability > 0.5) == (y == 1))) for probability, y in parts]
    return dict(zip(("train, out of fold", "val", "test"), found, strict=True))


# -- the table ---------------------------------------------------------------------------------


def _rows(found: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """One row a method, one column a data set and wish: mean share sent and its standard deviation over splits."""
    columns = [(found[name], number) for name in TASKS for number in range(len(GIVEN_UP))]

    def average(values: list[float]) -> str:
        return f"{np.mean(values):.3f}"

    rows = [
        [
            f"accuracy of {model}",
            *(average([s["accuracy"][model]["test"] for s in splits]) for splits, _ in columns),
        ]
        for model in ("f0", "f1")
    ]
    rows.append(
        ["wish", *(average([split["wishes"][number] for split in splits]) for splits, number in columns)]
    )
    for method in METHODS:
        shares = [_shares(splits, method, number) for splits, number in columns]
        rows.append([method, *(f"{share.mean():.1f} ± {_deviation(share):.1f}" for share in shares)])
    return rows


def _deviation(values: Floats) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _shares(splits: list[dict[str, Any]], method: str, number: int) -> Floats:
    return 100.0 * np.array([split["methods"][method]["share"][number] for split in splits])


def _sentences(name: str, splits: list[dict[str, Any]]) -> list[str]:
    """What each method saves against confidence, split by split, and how near the wish its test accuracy came."""
    lines = []
    for number, part in enumerate(GIVEN_UP):
        against = _shares(splits, "confidence", number)
        parts = []
        for method in METHODS:
            saved = _shares(splits, method, number) - against
            error = _deviation(saved) / np.sqrt(len(saved))
            off = np.mean(
                [split["methods"][method]["accuracy"][number] - split["wishes"][number] for split in splits]
            )
            shown = "" if method == "confidence" else f"{saved.mean():+.1f} ± {error:.1f} points, "
            parts.append(f"{method} {shown}accuracy {off:+.4f}")
        lines.append(
            f"{TASKS[name].title}, {part:.0%} of the gap given up, {len(splits)} splits; share sent minus that of "
            f"confidence (standard error), and test accuracy minus the wish: {'; '.join(parts)}."
        )
    return lines


def _sizes(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Bytes on the device, and XGBoost's own file."""
    splits = [split for part in found.values() for split in part]

    def mean(method: str) -> float:
        return float(np.mean([split["methods"][method]["bytes"] for split in splits]))

    sentence = (
        f"Bytes on the device, mean over all splits: ten XGBoost trees with a gate in their leaves "
        f"{mean('DM-Lstsq'):,.0f}, joint structure {mean('joint'):,.0f}; XGBoost's own file of the ten trees, without "
        f"a gate, {np.mean([split['bytes_xgboost'] for split in splits]):,.0f}."
    )
    return [sentence]


def _times(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    parts = [
        f"{TASKS[name].title} {sum(split['seconds'] for split in splits):.0f} s for {len(splits)} splits"
        for name, splits in found.items()
    ]
    return [f"Processor time: {'; '.join(parts)}."]
