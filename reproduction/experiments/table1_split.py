"""One random split of table 1: f0, the ten trees on the device, every gate, and what each sends."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from reproduction.datasets import Split, load_forest, load_miniboone
from reproduction.experiments.cifar import load_cifar
from reproduction.rivals.greedy_leaf import GreedyLeafClassifier
from reproduction.rivals.uniform import UniformRouter
from reproduction.settings import estimator_of
from thrifty import Prices
from thrifty.arrays import Floats
from thrifty.engine.full.crossfit import assign_folds
from thrifty.errors import OptimisticFullModelWarning
from thrifty.learners.dynamod.confidence import ConfidenceRouter
from thrifty.learners.dynamod.gated import GatedClassifier
from thrifty.learners.dynamod.leaf import DynaModLstsqClassifier

__all__ = ["DATA_SETS", "METHODS", "RemoteSettings", "measure_split"]

METHODS = (
    "uniform",
    "confidence",
    "greedy",
    "greedy, leaves alone",
    "DM-Lin",
    "DM-Lstsq",
    "DM-Lstsq, ridge",
    "DM-Lstsq, trust",
    "best-first, confidence",
    "joint, depth 5",
    "joint",
)


@dataclass(frozen=True)
class DataSet:
    """One data set of the table.

    Attributes
    ----------
    title : str
        Name in the table.
    load : callable
        ``load(data, seed)`` gives a random split.
    max_bin : int
        Bins of XGBoost.
    """

    title: str
    load: Callable[[str | None, int], Split]
    max_bin: int = 256


DATA_SETS = {
    "miniboone": DataSet("MiniBooNE-5k", lambda data, seed: load_miniboone(data, seed=seed)),
    "forest": DataSet("Forest", lambda data, seed: load_forest(data, seed=seed)),
    # With 32 bins f0 is three times as fast on 400 columns and no less accurate.
    "cifar": DataSet("CIFAR-10", load_cifar, max_bin=32),
}


@dataclass(frozen=True)
class RemoteSettings:
    """Settings of one split.

    Attributes
    ----------
    full_trees, full_rates
        Trees of f0, and the learning rates tried for it.
    small_rates, grown_rates
        Learning rates tried for XGBoost's ten trees, and for ours.
    given_up
        Parts of the gap between f0 and f1 that the wishes give up.
    caps
        Values of p_full swept for the paper's own methods; the one that sends the fewest validation rows is kept.
    rounds
        Most rounds of every alternation, which stops before where the objective changes by less than 1e-4.
    """

    full_trees: int
    full_rates: tuple[float, ...]
    small_rates: tuple[float, ...]
    grown_rates: tuple[float, ...]
    given_up: tuple[float, ...]
    caps: tuple[float, ...]
    rounds: int


FOLDS = 3


@dataclass(frozen=True)
class Remote:
    """f0 on one split: probabilities of every row, cross-fitted on training rows, and its learning rate."""

    train: Floats
    val: Floats
    test: Floats
    rate: float


def measure_split(name: str, seed: int, data: str | None, settings: RemoteSettings) -> dict[str, Any]:
    """Fit everything on one split and return what it gave as plain numbers."""
    data_set = DATA_SETS[name]
    began = process_time()
    # One thread each: splits run side by side.
    with threadpool_limits(1), warnings.catch_warnings():
        # f0 is given as probabilities that are cross-fitted already, and rounds are counted, not awaited.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimisticFullModelWarning)
        split = data_set.load(data, seed)
        remote = _remote(data_set, split, settings)
        small, rate = _best_small(data_set, split, settings.small_rates)
        accuracy = {
            "f0": _accuracies(remote, split),
            "f1": {
                "val": small.score(split.X_val, split.y_val),
                "test": small.score(split.X_test, split.y_test),
            },
        }
        gap = accuracy["f0"]["val"] - accuracy["f1"]["val"]
        wishes = [accuracy["f0"]["val"] - part * gap for part in settings.given_up]
        methods = {
            method: _measure(fitted, remote, split, wishes)
            for method, fitted in _fitted(remote, FrozenEstimator(small), split, settings)
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


def _boosted(data_set: DataSet, n_trees: int, rate: float) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(
        n_estimators=n_trees,
        max_depth=5,
        learning_rate=rate,
        tree_method="hist",
        max_bin=data_set.max_bin,
        n_jobs=1,
        random_state=0,
    )


def _remote(data_set: DataSet, split: Split, settings: RemoteSettings) -> Remote:
    """Choose f0's learning rate on validation rows, then cross-fit it on the training rows."""
    n_trees = settings.full_trees
    models = {
        rate: _boosted(data_set, n_trees, rate).fit(split.X_train, split.y_train)
        for rate in settings.full_rates
    }
    rate = max(models, key=lambda rate: models[rate].score(split.X_val, split.y_val))
    folds = assign_folds(FOLDS, split.X_train, split.y_train, split.y_train == 1, seed=0)
    train = np.empty(len(folds))
    for fold in range(FOLDS):
        out = folds == fold
        model = _boosted(data_set, n_trees, rate).fit(split.X_train[~out], split.y_train[~out])
        train[out] = model.predict_proba(split.X_train[out])[:, 1]
    val, test = (models[rate].predict_proba(X)[:, 1].astype(float) for X in (split.X_val, split.X_test))
    return Remote(train, val, test, rate)


def _best_small(data_set: DataSet, split: Split, rates: Sequence[float]) -> tuple[Any, float]:
    """Fit ten trees of depth 5 and choose their learning rate on validation rows."""
    models = {rate: _boosted(data_set, 10, rate).fit(split.X_train, split.y_train) for rate in rates}
    rate = max(models, key=lambda rate: models[rate].score(split.X_val, split.y_val))
    return models[rate], rate


def _fitted(
    remote: Remote, small: FrozenEstimator, split: Split, settings: RemoteSettings
) -> Iterator[tuple[str, list[GatedClassifier]]]:
    """Fit every method of the table on the training rows: once, or once for every value of p_full."""
    prices: dict[str, Any] = {"prices": Prices(0.0, full=1.0), "random_state": 0}
    relearn: dict[str, Any] = {"max_iter": settings.rounds, "random_state": 0}
    full = remote.train
    plain: dict[str, GatedClassifier] = {
        "uniform": UniformRouter(full, small, **prices),
        "confidence": ConfidenceRouter(full, small, **prices),
        "greedy": GreedyLeafClassifier(full, small, random_state=0),
        "greedy, leaves alone": GreedyLeafClassifier(full, small, gate_reads_margin=False, random_state=0),
        "DM-Lstsq, trust": estimator_of(DynaModLstsqClassifier, full, small, **relearn),
    }
    for method, estimator in plain.items():
        yield method, [estimator.fit(split.X_train, split.y_train)]
    # Without a ridge the leaves of ten trees have no unique values; the KL distance has then no finite ones.
    swept: dict[str, dict[str, Any]] = {
        "DM-Lin": {"distance": "kl"},
        "DM-Lstsq": {"ridge": 0.0},
        "DM-Lstsq, ridge": {},
    }
    for method, how in swept.items():
        yield (
            method,
            [
                estimator_of(
                    DynaModLstsqClassifier, full, small, p_full=cap, trust=0.0, **how, **relearn
                ).fit(split.X_train, split.y_train)
                for cap in settings.caps
            ],
        )
    shapes: dict[str, dict[str, Any]] = {
        "best-first, confidence": {"gate_weight": 0.0},
        "joint, depth 5": {"gate_weight": 10.0, "max_depth": 5, "min_child_weight": 1.0},
        "joint": {},
    }
    for method, shape in shapes.items():
        grown = [
            estimator_of(
                DynaModLstsqClassifier, full, learning_rate=rate, max_iter=0, random_state=0, **shape
            ).fit(split.X_train, split.y_train)
            for rate in settings.grown_rates
        ]
        # As for XGBoost's ten trees: the learning rate by the accuracy of f1 alone on validation rows.
        best = max(grown, key=lambda fitted: _local_accuracy(fitted, split))
        if method == "best-first, confidence":
            yield method, [best]
        else:
            again = estimator_of(DynaModLstsqClassifier, full, best.local_, **relearn)
            yield method, [again.fit(split.X_train, split.y_train)]


def _local_accuracy(fitted: GatedClassifier, split: Split) -> float:
    _, f1 = fitted.scores(split.X_val)
    return float(np.mean((f1 > 0) == (split.y_val == 1)))


def _measure(
    fitted: list[GatedClassifier], remote: Remote, split: Split, wishes: list[float]
) -> dict[str, Any]:
    """Cut on validation rows at each wish, keep the fit that sends the fewest of them, look at test rows."""
    share, accuracy, kept = [], [], []
    for wish in wishes:
        cuts = [_cut(one.with_full(remote.val, split.X_val), split, wish) for one in fitted]
        best = min(range(len(fitted)), key=lambda number: cuts[number][1])
        cut = fitted[best].with_full(remote.test, split.X_test).at(threshold=cuts[best][0])
        share.append(float(cut.route(split.X_test).mean()))
        accuracy.append(float(cut.score(split.X_test, split.y_test)))
        kept.append(getattr(fitted[best], "p_full", None))
    return {
        "share": share,
        "accuracy": accuracy,
        "bytes": getattr(fitted[0], "n_bytes_", None),
        "p_full": kept,
        "rounds": [getattr(one, "n_iter_", None) for one in fitted],
    }


def _cut(on_val: GatedClassifier, split: Split, wish: float) -> tuple[float, float]:
    """The threshold that keeps the wish on validation rows, and the share of them that it sends."""
    threshold = on_val.threshold_for(split.X_val, split.y_val, accuracy=wish)
    return threshold, float(on_val.at(threshold=threshold).route(split.X_val).mean())


def _accuracies(remote: Remote, split: Split) -> dict[str, float]:
    parts = ((remote.train, split.y_train), (remote.val, split.y_val), (remote.test, split.y_test))
    found = [float(np.mean((probability > 0.5) == (y == 1))) for probability, y in parts]
    return dict(zip(("train, out of fold", "val", "test"), found, strict=True))
