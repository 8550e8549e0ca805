"""AutoGluon's models of covertype, for ``benchmarks/own_models.py autogluon``: what they answer, and their seconds.

    pip install "autogluon.tabular[lightgbm,xgboost,catboost]"  # in an environment of its own
    python benchmarks/gluon.py

Nine models are bagged over four folds of 50,000 rows and collapsed by ``refit_full``, as AutoGluon recommends where
seconds count; the predictor and a file of answers are kept in THRIFTY_CACHE. Answers about rows for fitting are out of
fold, those about 20,000 test rows are of the collapsed models. Seconds are of the processor, one thread, batches of
10,000 rows, medians. ``infer_limit`` chooses among the same models by these seconds as AutoGluon does at the end of a
fit: without models slower than .95 of the limit and the least accurate ones until the rest keeps within it, AutoGluon's
ensemble of the rest, or the single one that validates better.
"""

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from autogluon.core.metrics import accuracy
from autogluon.core.models.greedy_ensemble.ensemble_selection import EnsembleSelection
from autogluon.tabular import TabularPredictor

DATA = Path(os.environ.get("THRIFTY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
CACHE = Path(os.environ.get("THRIFTY_CACHE", Path(tempfile.gettempdir()) / "thrifty_own_models"))
N_FIT, N_TEST, BATCH, WHOLE = 50_000, 20_000, 10_000, "WeightedEnsemble_L2"
SHARES = (0.1, 0.2, 0.35, 0.5, 0.75)
SHORT = {"ag_args_fit": {"max_time_limit": 55}}  # seconds for each of four folds
LARGE = {"learning_rate": 0.03, "num_leaves": 128, "feature_fraction": 0.9, "min_data_in_leaf": 3}
MODELS = {
    "GBM": [
        SHORT,
        SHORT | {"extra_trees": True, "ag_args": {"name_suffix": "XT"}},
        SHORT | LARGE | {"ag_args": {"name_suffix": "Large", "priority": 0}},
    ],
    **dict.fromkeys(("CAT", "XGB", "LR"), SHORT),
    **{kind: {"criterion": "gini", "ag_args": {"name_suffix": "Gini"}} for kind in ("RF", "XT")},
    "KNN": {"weights": "distance", "ag_args": {"name_suffix": "Dist"}},
}


def fitted(train):
    """The predictor, fitted once, and the names of its models with those of the collapsed ones, in memory."""
    path = CACHE / "autogluon"
    if (path / "predictor.pkl").exists():
        predictor = TabularPredictor.load(path)
    else:
        bags = {"num_bag_folds": 4, "num_bag_sets": 1, "num_stack_levels": 0}
        one = {"fold_fitting_strategy": "sequential_local"}
        predictor = TabularPredictor("target", path=path).fit(
            train, hyperparameters=MODELS, num_cpus=1, time_limit=2400, ag_args_ensemble=one, **bags
        )
    collapsed = predictor.model_refit_map() or predictor.refit_full(num_cpus=1)
    predictor.persist([*collapsed.values()])
    return predictor, collapsed


def answers_and_seconds(predictor, model, X):
    """Probabilities, and seconds of a row."""
    answers, taken = [], []
    for first in range(0, len(X), BATCH):
        for _ in range(2):
            began = time.process_time()
            answer = predictor.predict_proba(X[first : first + BATCH], model, as_pandas=False)
            taken.append((time.process_time() - began) / BATCH)
        answers.append(answer)
    return np.concatenate(answers), np.median(taken)


def within(limit, seconds, held, y):
    """Weights of what ``infer_limit`` chooses."""
    score = lambda weights: (np.tensordot(held, weights, (1, 0)).argmax(axis=1) == y).mean()  # noqa: E731 - a formula
    single = np.eye(len(seconds))
    left = sorted(np.flatnonzero(seconds < 0.95 * limit), key=lambda model: score(single[model]))
    while seconds[left].sum() >= 0.95 * limit:
        left.pop(0)
    weights = np.zeros(len(seconds))
    if left:
        ensemble = EnsembleSelection(25, "multiclass", accuracy).fit([held[:, model] for model in left], y)
        weights[left] = ensemble.weights_
    return max([weights, *single[left]], key=score)


def main():
    arrays = np.load(DATA / "covtype.npz")
    order = np.random.default_rng(0).permutation(len(arrays["X"]))[: N_FIT + N_TEST]
    table, y = pd.DataFrame(arrays["X"][order], columns=arrays["feature_names"].tolist()), arrays["y"][order]
    train = table[:N_FIT].assign(target=y[:N_FIT])
    predictor, collapsed = fitted(train)
    names = [name for name in collapsed if name != WHOLE]
    held = np.stack([predictor.predict_proba_oof(name).loc[train.index] for name in names], axis=1)
    results = [answers_and_seconds(predictor, collapsed[name], table[N_FIT:]) for name in (*names, WHOLE)]
    new, seconds = (
        np.stack(part, axis=axis) for part, axis in zip(zip(*results, strict=True), (1, 0), strict=True)
    )
    y = np.searchsorted(predictor.class_labels, y)
    ensemble = predictor.model_info(WHOLE)["children_info"]["S1F1"]["model_weights"]
    limits = [within(share * seconds[-1], seconds[:-1], held, y[:N_FIT]) for share in SHARES]
    np.savez(
        CACHE / "autogluon.npz",
        names=[name.removesuffix("_BAG_L1") for name in names],
        X=arrays["X"][order],
        y=y,
        held=held,
        new=new,
        seconds=seconds,
        weights=[ensemble.get(name, 0.0) for name in names],
        shares=SHARES,
        limits=limits,
    )


if __name__ == "__main__":
    main()
