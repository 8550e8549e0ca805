"""The methods of an "accuracy against cost" figure, each as the fits of one sweep.

Every method gets the same gammas and learning rates and the same number of trees: what DynaMod-Gbrt spreads over a
gate and a model, GreedyMiser and LightGBM have in one ensemble. Beside the paper's methods stand those it left
out: gates that are nothing but the model's own margin, LightGBM's price-aware trees, ``BudgetedClassifier``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from thrifty.arrays import Floats
from thrifty.datasets import Split
from thrifty.estimators.budgeted import BudgetedClassifier
from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
from thrifty.estimators.rivals.budget_prune import BudgetPruneClassifier
from thrifty.estimators.rivals.greedy_miser import GreedyMiserClassifier
from thrifty.evidence.stopping import route_by
from thrifty.experiments.candidates import AnyCandidate, Candidate, PointCandidate
from thrifty.experiments.fitting import Fit, FullScores
from thrifty.experiments.priced import Priced, SweepSettings
from thrifty.full.model import clip_probability
from thrifty.objective.costs import PriceList

__all__ = ["METHODS", "fit_cascade", "fit_lightgbm", "fit_pruned", "plan_fits"]

Answers = tuple[Floats, Floats, NDArray[np.bool_]]
"""Log-odds, what each row paid, and which rows reached f0."""

MOST_POINTS = 40
"""Operating points of a cascade that are looked at; neighbours differ by less than any budget."""


# -- the fits ----------------------------------------------------------------------------------


def _kl(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:
    return _dynamod(priced, settings, full)


def _squared(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:
    return _dynamod(priced, settings, full, distance="squared")


def _reads_score(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:
    return _dynamod(priced, settings, full, gate_reads_score=True)


def _dynamod(priced: Priced, settings: SweepSettings, full: FullScores, **options: Any) -> list[Fit]:
    """Every (gamma, p_full, learning rate), cut where the paper cuts: g > 0."""
    shape = {"n_trees": settings.trees, "max_depth": settings.depth, "max_iter": settings.rounds}
    common = {**shape, **priced.parameters, **options, "random_state": settings.seed}
    return [
        Fit(cell, {"estimator": DynaModGbrtClassifier(full.train, **cell, **common)})
        for cell in settings.cells("gamma", "p_full", "learning_rate")
    ]


def _miser(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:  # noqa: ARG001
    """GreedyMiser answers every row: its gate is shut."""
    shape: dict[str, Any] = {"n_trees": 2 * settings.trees, "max_depth": settings.depth}
    return [
        Fit(
            cell,
            {"estimator": GreedyMiserClassifier(**cell, **shape, **priced.parameters), "threshold": np.inf},
        )
        for cell in settings.cells("gamma", "learning_rate")
    ]


def _cegb(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:  # noqa: ARG001
    """LightGBM with a price on the first use of a feature; none if it is not installed."""
    try:
        import lightgbm  # noqa: F401
    except ModuleNotFoundError:
        return []
    shape = {"prices": priced.price_list, "trees": 2 * settings.trees, "depth": settings.depth}
    return [Fit(cell, shape, fit_lightgbm) for cell in settings.cells("gamma", "learning_rate")]


def fit_lightgbm(
    split: Split, settings: dict[str, Any], *, prices: PriceList, trees: int, depth: int
) -> list[AnyCandidate]:
    """LightGBM's cost-effective boosting, gated by its margin."""
    import lightgbm

    # LightGBM knows no groups: each column is charged its part of what the group costs.
    charged = prices.prices[prices.group_of] / np.bincount(prices.group_of)[prices.group_of]
    parameters = {
        "objective": "binary",
        "learning_rate": settings["learning_rate"],
        "max_depth": depth,
        "num_leaves": 2**depth,
        "lambda_l2": 1.0,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 1e-3,
        # LightGBM's gains are twice ours: it leaves the 1/2 of the second-order expansion out.
        "cegb_penalty_feature_coupled": (2.0 * settings["gamma"] * charged).tolist(),
        "num_threads": 1,
        "verbose": -1,
    }
    data = lightgbm.Dataset(split.X_train, split.y_train, free_raw_data=True)
    model = lightgbm.train(parameters, data, num_boost_round=trees)
    bought = np.flatnonzero(model.feature_importance("split"))
    f1_val, f1_test = (
        np.asarray(model.predict(X, raw_score=True), dtype=np.float64) for X in (split.X_val, split.X_test)
    )
    columns = tuple(int(column) for column in bought)
    cost = prices.cost_of(bought) if len(bought) else 0.0
    return [Candidate(settings, cost, -np.abs(f1_val), f1_val, -np.abs(f1_test), f1_test, None, columns)]


def _cascade(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:
    sizes = settings.cascade_sizes or None
    estimator = BudgetedClassifier(
        full.train, **priced.parameters, sizes=sizes, n_jobs=1, random_state=settings.seed
    )
    return [Fit({}, {"estimator": estimator, "full_val": full.val, "full_test": full.test}, fit_cascade)]


def fit_cascade(
    split: Split, settings: dict[str, Any], *, estimator: Any, full_val: Floats, full_test: Floats
) -> list[AnyCandidate]:
    """A cascade, fitted on the training rows; its operating points on the others."""
    cascade = estimator.fit(split.X_train, split.y_train).cascade_
    val, test = (
        _on_every_route(cascade, X, full) for X, full in ((split.X_val, full_val), (split.X_test, full_test))
    )
    thresholds = cascade.operating.thresholds
    places = np.unique(np.linspace(0, len(thresholds) - 1, MOST_POINTS).astype(np.intp))
    return [
        _point({**settings, "point": int(place)}, val(thresholds[place]), test(thresholds[place]))
        for place in places
    ]


def _on_every_route(cascade: Any, X: Floats, full: Floats) -> Callable[[Floats], Answers]:
    """Walk all rows to the end once; then any operating point is a matter of looking up."""
    gate, log_odds = cascade.every_stage(cascade.reader(X))
    answers = np.column_stack([log_odds, cascade.blended(log_odds[:, -1], clip_probability(full))])
    rows, cost = np.arange(len(X)), cascade.cost_by_route

    def at(thresholds: Floats) -> Answers:
        route = route_by(gate, thresholds)
        return answers[rows, route], cost[route], route == gate.shape[1]

    return at


def _prune(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:  # noqa: ARG001
    """The forest that is f0, pruned on the rows that it was grown on, as in the paper, and on those it left out."""
    (forest,) = settings.forest().values()
    return [
        Fit(
            {"holdout": holdout},
            {
                "estimator": BudgetPruneClassifier(
                    forest, holdout=holdout, **priced.parameters, random_state=settings.seed
                ),
                "gammas": settings.prune_gammas,
            },
            fit_pruned,
        )
        for holdout in (0.0, "oob")
    ]


def fit_pruned(
    split: Split, settings: dict[str, Any], *, estimator: BudgetPruneClassifier, gammas: Sequence[float]
) -> list[AnyCandidate]:
    """One forest, pruned at every gamma; nothing stands behind it."""

    def answer(fitted: BudgetPruneClassifier, X: Floats) -> Answers:
        log_odds: Floats = logit(clip_probability(fitted.predict_proba(X)[:, 1]))
        return log_odds, fitted.cost(X), np.zeros(len(X), dtype=bool)

    return [
        _point({**settings, "gamma": gamma}, answer(fitted, split.X_val), answer(fitted, split.X_test))
        for gamma, fitted in zip(
            gammas, estimator.fit_path(split.X_train, split.y_train, gammas), strict=True
        )
    ]


def _point(
    settings: dict[str, Any],
    val: Answers,
    test: Answers,
) -> AnyCandidate:
    """A candidate of scores, costs and rows sent, on validation and on test rows."""
    (score_val, cost_val, sent_val), (score_test, cost_test, sent_test) = val, test
    return PointCandidate(settings, score_val, score_test, cost_val, cost_test, sent_val, sent_test)


Planner = Callable[[Priced, SweepSettings, FullScores], list[Fit]]

METHODS: dict[str, Planner] = {
    "cascade": _cascade,
    "prune": _prune,
    "kl": _kl,
    "squared": _squared,
    "reads_score": _reads_score,
    "miser": _miser,
    "cegb": _cegb,
}
"""Methods by the name a file of settings calls them, the longest fits first."""


def plan_fits(priced: Priced, settings: SweepSettings, full: FullScores) -> dict[str, list[Fit]]:
    """The fits of every method that the settings name."""
    return {
        name: planner(priced, settings, full) for name, planner in METHODS.items() if name in settings.methods
    }
