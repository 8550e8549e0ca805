"""The systems there are to choose from: two families of cheap models over a grid of gammas, all behind one f0.

GreedyMiser's trees with their own margin as the gate, and DynaMod-Gbrt with a learned gate that reads f1's score.
Gamma is the gain that one unit of price must bring, on the scale of a sum over rows: the grid is scaled by the number
of rows and by the mean price, so that it runs from "buy nearly everything" to "buy nearly nothing" whatever the table.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Floats
from thrifty.bundle import from_bytes
from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
from thrifty.evidence.observing import outcomes_of
from thrifty.evidence.outcomes import RowOutcomes
from thrifty.exceptions import InvalidInputError
from thrifty.full.model import FullModel
from thrifty.objective.costs import PriceList
from thrifty.sweeping.result import Sweep
from thrifty.sweeping.run import sweep

__all__ = ["Candidate", "Candidates", "Rows", "fit_candidates", "look"]

Progress = Callable[[str, int, int], None]

_MISER_TREES, _DYNAMOD_TREES = 200, 100
# Closer together where few columns are bought: the more sets of columns there are to choose from, the fewer rows have
# to be sent to f0 only to spend the rest of a budget.
_MISER_GAMMAS = np.concatenate([np.logspace(-4.2, -3.2, 4), np.logspace(-3.0, -1.2, 13)])
_MISER_DEPTHS = (4, 8)
_DYNAMOD_GAMMAS = np.logspace(-3.8, -1.4, 6)


@dataclass(frozen=True)
class Rows:
    """A part of the table: what the models read, and the labels as they know them."""

    X: Any
    y: NDArray[Any]

    def take(self, rows: NDArray[np.intp]) -> "Rows":
        """Some of the rows."""
        return Rows(self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows], self.y[rows])


@dataclass(frozen=True)
class Candidate:
    """A fitted estimator in front of f0, and what tells it from the others."""

    estimator: Any
    settings: dict[str, Any]


@dataclass(frozen=True)
class Candidates:
    """All fitted systems, their f0, and f0's probabilities on the rows that were learned from, out of fold."""

    systems: tuple[Candidate, ...]
    full: FullModel
    full_on_learn: Floats

    def probability(self, X: Any) -> Floats:
        """f0's probabilities on some rows."""
        reader = self.systems[0].estimator.system_.reader(X)
        rows = np.arange(reader.n_samples)
        return self.full.probability(reader.table(rows), rows, len(rows))


def fit_candidates(
    full: Any,
    prices: PriceList,
    learn: Rows,
    choose: Rows,
    *,
    seed: int,
    n_jobs: int,
    store: str | os.PathLike[str] | None,
    progress: Progress,
) -> Candidates:
    """Judge f0 once, then fit every setting of both families on the rows to learn from.

    Parameters
    ----------
    full : unfitted classifier, or FrozenEstimator
        f0.
    store : path of a folder, optional
        Where finished fits are kept: the same call goes on after an interruption.
    """
    folder = None if store is None else _folder(store)
    scale = len(learn.y) / _mean_price(prices)
    costs = {
        "feature_costs": prices.prices[prices.group_of],
        "feature_groups": prices.group_of.tolist(),
        "full_cost": prices.full_cost,
    }
    rows = (learn.X, learn.y, choose.X, choose.y)
    gated = sweep(
        DynaModGbrtClassifier(
            full,
            n_trees=_DYNAMOD_TREES,
            max_depth=5,
            max_iter=3,
            p_full=0.3,
            gate_reads_score=True,
            random_state=seed,
            **costs,
        ),
        {"gamma": _rounded(_DYNAMOD_GAMMAS * scale)},
        *rows,
        store=None if folder is None else folder / "dynamod.sweep",
        n_jobs=n_jobs,
        progress=_named(progress, "fitting gates and cheap models"),
    )
    miser = sweep(
        GreedyMiserClassifier(n_trees=_MISER_TREES, random_state=seed, **costs),
        {"gamma": _rounded(_MISER_GAMMAS * scale), "max_depth": list(_MISER_DEPTHS)},
        *rows,
        store=None if folder is None else folder / "miser.sweep",
        n_jobs=n_jobs,
        progress=_named(progress, "fitting cheap models"),
    )
    model = gated.full
    systems = [
        Candidate(fitted, {"family": family, **settings})
        for family, found in (("DynaMod-Gbrt", gated), ("GreedyMiser", miser))
        for fitted, settings in _distinct(found, model)
    ]
    return Candidates(tuple(systems), model, gated.full_train)


def look(systems: Sequence[Candidate], rows: Rows, full_probability: Floats) -> list[RowOutcomes]:
    """Every threshold of every system on some rows; f0 was asked before."""
    return [
        outcomes_of(one.estimator, rows.X, rows.y, settings=one.settings, full_probability=full_probability)
        for one in systems
    ]


def _distinct(found: Sweep, full: FullModel) -> list[tuple[Any, dict[str, Any]]]:
    """Fitted estimators in front of f0; neighbours on the grid that came out the same are kept once."""
    kept = []
    before: RowOutcomes | None = None
    for cell in sorted(
        found.cells, key=lambda one: (one.settings.get("max_depth", 0), one.settings["gamma"])
    ):
        if before is None or not cell.outcomes.is_same_measurement(before):
            kept.append((from_bytes(cell.fitted).with_full(full), cell.settings))
        before = cell.outcomes
    return kept


def _folder(store: str | os.PathLike[str]) -> Path:
    try:
        Path(store).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"the store {store} must be a folder that can be made and written to: {error.strerror}."
        ) from error
    return Path(store)


def _mean_price(prices: PriceList) -> float:
    return float(prices.prices.mean()) or 1.0


def _rounded(gammas: Floats) -> list[float]:
    # Three digits: a setting is shown to people.
    return [float(f"{gamma:.3g}") for gamma in gammas]


def _named(progress: Progress, what: str) -> Progress:
    return lambda name, done, total: progress(what if name == "fitting" else name, done, total)
