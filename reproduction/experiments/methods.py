"""The methods of an "accuracy against cost" figure, each as the fits of one sweep over a problem with prices.

Every method gets the same gammas and learning rates and the same number of trees: what DynaMod-Gbrt spreads over a
gate and a model, GreedyMiser and LightGBM have in one ensemble. Beside the paper's methods stand those it left
out: gates that are nothing but the model's own margin, LightGBM's price-aware trees, ``BudgetedClassifier``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.ensemble import RandomForestClassifier

from reproduction.datasets import Split
from reproduction.experiments.fits import Fit, FullScores
from reproduction.experiments.selection import AnyCandidate, Candidate, PointCandidate
from reproduction.rivals.budget_prune import BudgetPruneClassifier
from reproduction.rivals.greedy_miser import GreedyMiserClassifier
from reproduction.settings import estimator_of
from thrifty import Prices, StageOptions
from thrifty.arrays import Bools, Floats
from thrifty.engine.full.adapters import models_of
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.prices.prices import check_price_list
from thrifty.engine.tasks.classes import clip_probability
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import route_by
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.estimators import BudgetedClassifier
from thrifty.learners.dynamod.boosted import DynaModGbrtClassifier
from thrifty.learners.dynamod.linear import DynaModLinClassifier

__all__ = ["METHODS", "Priced", "SweepSettings", "plan_fits"]

Answers = tuple[Floats, Floats, Bools]
"""Log-odds, what each row paid, and which rows reached f0."""

MAX_POINTS = 40
"""Operating points of a cascade that are looked at; neighbours differ by less than any budget."""


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Settings of the sweep of a figure, alike for every method.

    Attributes
    ----------
    thinned : str
        Sentence on what the appendix has and what is run here; printed on the page.
    methods : tuple of str
        Names of the methods to run; see ``METHODS``.
    trees, depth, rounds : int
        Trees of g and of f1 each, their levels, rounds of the alternation.
    gammas, caps, rates : tuple of float
        Weights of the prices, values of p_full, learning rates.
    prune_gammas : tuple of float
        Weights of the prices for BudgetPrune, whose loss is a mean over rows.
    full_trees : int
        Trees of f0 where it is a random forest.
    budgets : tuple of float
        Mean costs per row that points are chosen for.
    seed : int
        Seed of all random choices.
    rows : tuple of int
        Most training, validation and test rows; empty for all.
    cascade_sizes : tuple of (n_trees, max_depth)
        Sizes of a stage of the cascade; empty for the default.
    linear_gammas : tuple of float
        Weights of the prices for DynaMod-Lin, whose loss is a mean over rows.
    svm_grid : tuple of tuples of float
        Values of C and of gamma that an f0 that is an RBF-SVM is cross-validated over.
    """

    thinned: str
    methods: tuple[str, ...]
    trees: int
    depth: int
    rounds: int
    gammas: tuple[float, ...]
    caps: tuple[float, ...]
    rates: tuple[float, ...]
    prune_gammas: tuple[float, ...]
    full_trees: int
    budgets: tuple[float, ...]
    seed: int
    rows: tuple[int, ...] = ()
    cascade_sizes: tuple[tuple[int, ...], ...] = ()
    linear_gammas: tuple[float, ...] = ()
    svm_grid: tuple[tuple[float, ...], ...] = ((10.0,), (0.3,))

    def __post_init__(self) -> None:
        for name in ("methods", "gammas", "caps", "rates", "budgets"):
            if not getattr(self, name):
                raise InvalidInputError(f"{name} must not be empty.")
        unknown = [method for method in self.methods if method not in METHODS]
        if unknown:
            raise InvalidInputError(f"methods must be among {', '.join(METHODS)}; got {unknown[0]!r}.")
        for name in ("trees", "depth", "rounds", "full_trees"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.rows and (len(self.rows) != 3 or min(self.rows) < 1):
            raise InvalidInputError(
                f"rows must be three numbers of rows, to learn from, to choose with and to report on; "
                f"got {list(self.rows)}."
            )

    def forest(self) -> dict[str, Any]:
        """Return the full model f0 of most figures: a random forest whose trees are grown to the end."""
        return {"forest": RandomForestClassifier(self.full_trees, random_state=self.seed, n_jobs=2)}

    def cells(self, *names: str) -> list[dict[str, Any]]:
        """List all combinations of some of the sweep's values, by the name of the estimator's parameter."""
        values = {"gamma": self.gammas, "p_full": self.caps, "learning_rate": self.rates}
        return [dict(zip(names, cell, strict=True)) for cell in product(*(values[name] for name in names))]


@dataclass(frozen=True)
class Priced:
    """A split and what its columns cost: a price each, or one price for all columns of a group."""

    split: Split
    feature_costs: Floats
    feature_groups: NDArray[np.intp] | None = None

    @classmethod
    def at_one_each(cls, split: Split) -> "Priced":
        """Give every column of a split the price 1."""
        return cls(split, np.ones(split.X_train.shape[1]))

    @property
    def price_list(self) -> PriceList:
        """The prices, ready to be added up."""
        groups = None if self.feature_groups is None else self.feature_groups.tolist()
        return check_price_list(Prices(self.feature_costs, groups=groups), len(self.feature_costs))

    @property
    def parameters(self) -> dict[str, Any]:
        """The prices as estimators take them."""
        return {"prices": Prices(self.feature_costs, groups=self.feature_groups)}


# -- the fits ----------------------------------------------------------------------------------


def _dynamod(priced: Priced, settings: SweepSettings, full: FullScores, **options: Any) -> list[Fit]:
    """Plan DynaMod-Gbrt at every (gamma, p_full, learning rate), cut where the paper cuts: g > 0."""
    shape = {"n_trees": settings.trees, "max_depth": settings.depth, "max_iter": settings.rounds}
    common = {**shape, **priced.parameters, **options, "random_state": settings.seed}
    return [
        Fit(cell, {"estimator": estimator_of(DynaModGbrtClassifier, full.train, **cell, **common)})
        for cell in settings.cells("gamma", "p_full", "learning_rate")
    ]


def _linear(priced: Priced, settings: SweepSettings, full: FullScores, **options: Any) -> list[Fit]:
    """Plan DynaMod-Lin at every (gamma, p_full)."""
    common = {**priced.parameters, **options, "max_iter": 20, "tol": 1e-4, "random_state": settings.seed}
    cells: list[dict[str, Any]] = [
        {"gamma": gamma, "p_full": cap} for gamma, cap in product(settings.linear_gammas, settings.caps)
    ]
    return [
        Fit(cell, {"estimator": estimator_of(DynaModLinClassifier, full.train, **cell, **common)})
        for cell in cells
    ]


def _miser(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:  # noqa: ARG001
    """Plan GreedyMiser, which answers every row: its gate is shut."""
    shape = {"n_trees": 2 * settings.trees, "max_depth": settings.depth, **priced.parameters}
    return [
        Fit(cell, {"estimator": GreedyMiserClassifier(**cell, **shape), "threshold": np.inf})
        for cell in settings.cells("gamma", "learning_rate")
    ]


def _cegb(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:  # noqa: ARG001
    """Plan LightGBM with a price on the first use of a feature; nothing if it is not installed."""
    try:
        import lightgbm  # noqa: F401
    except ModuleNotFoundError:
        return []
    shape = {"prices": priced.price_list, "trees": 2 * settings.trees, "depth": settings.depth}
    return [Fit(cell, shape, fit_lightgbm) for cell in settings.cells("gamma", "learning_rate")]


def fit_lightgbm(
    split: Split, settings: dict[str, Any], *, prices: PriceList, trees: int, depth: int
) -> list[AnyCandidate]:
    """Fit LightGBM's cost-effective boosting; its gate is its margin."""
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
        full.train,
        **priced.parameters,
        stages=StageOptions(sizes=sizes),
        n_jobs=1,
        random_state=settings.seed,
    )
    return [Fit({}, {"estimator": estimator, "full_val": full.val, "full_test": full.test}, fit_cascade)]


def fit_cascade(
    split: Split, settings: dict[str, Any], *, estimator: Any, full_val: Floats, full_test: Floats
) -> list[AnyCandidate]:
    """Fit a cascade on the training rows and answer the others at its operating points."""
    chain = estimator.fit(split.X_train, split.y_train).chain_
    val, test = (
        _on_every_route(chain, X, full) for X, full in ((split.X_val, full_val), (split.X_test, full_test))
    )
    thresholds = chain.policy.thresholds
    places = np.unique(np.linspace(0, len(thresholds) - 1, MAX_POINTS).astype(np.intp))
    return [
        _point({**settings, "point": int(place)}, val(thresholds[place]), test(thresholds[place]))
        for place in places
    ]


def _on_every_route(chain: Chain, X: Floats, full: Floats) -> Callable[[Floats], Answers]:
    """Walk all rows to the end once; then any operating point is a matter of looking up."""
    seen = chain.visit_all(chain.reader(X))
    beyond = chain.task.scores(
        chain.blended(seen.scores[:, -1], models_of(chain.task).read_outputs(full, len(X), "f0"))
    )
    every = np.concatenate([seen.scores, beyond[:, None]], axis=1)
    answers = np.column_stack([chain.task.decision(every[:, place]) for place in range(every.shape[1])])
    rows, cost = np.arange(len(X)), chain.cost_by_place

    def at(thresholds: Floats) -> Answers:
        route = route_by(seen.gate, thresholds)
        return answers[rows, route], cost[route], route == chain.n_own_stages

    return at


def _prune(priced: Priced, settings: SweepSettings, full: FullScores) -> list[Fit]:  # noqa: ARG001
    """Plan to prune the forest that is f0: on the rows it was grown on, as in the paper, and on those left out."""
    (forest,) = settings.forest().values()
    fits = []
    for holdout in (0.0, "oob"):
        pruner = BudgetPruneClassifier(
            forest, holdout=holdout, **priced.parameters, random_state=settings.seed
        )
        arguments = {"estimator": pruner, "gammas": settings.prune_gammas}
        fits.append(Fit({"holdout": holdout}, arguments, fit_pruned))
    return fits


def fit_pruned(
    split: Split, settings: dict[str, Any], *, estimator: BudgetPruneClassifier, gammas: Sequence[float]
) -> list[AnyCandidate]:
    """Prune one forest at every gamma; no full model stands behind it."""

    def answer(fitted: BudgetPruneClassifier, X: Floats) -> Answers:
        log_odds: Floats = logit(clip_probability(fitted.predict_proba(X)[:, 1]))
        return log_odds, fitted.cost(X), np.zeros(len(X), dtype=bool)

    return [
        _point({**settings, "gamma": gamma}, answer(fitted, split.X_val), answer(fitted, split.X_test))
        for gamma, fitted in zip(
            gammas, estimator.fit_path(split.X_train, split.y_train, gammas), strict=True
        )
    ]


def _point(settings: dict[str, Any], val: Answers, test: Answers) -> AnyCandidate:
    """A candidate of scores, costs and rows sent, on validation and on test rows."""
    (score_val, cost_val, sent_val), (score_test, cost_test, sent_test) = val, test
    return PointCandidate(settings, score_val, score_test, cost_val, cost_test, sent_val, sent_test)


Planner = Callable[[Priced, SweepSettings, FullScores], list[Fit]]

METHODS: dict[str, Planner] = {
    "cascade": _cascade,
    "prune": _prune,
    "kl": _dynamod,
    "squared": partial(_dynamod, distance="squared"),
    "kl_crossed": partial(_dynamod, cross_fit=True, cv=3),
    "squared_crossed": partial(_dynamod, distance="squared", cross_fit=True, cv=3),
    "lin": _linear,
    "lin_crossed": partial(_linear, cross_fit=True, cv=3),
    "reads_score": partial(_dynamod, gate_reads_score=True),
    "miser": _miser,
    "cegb": _cegb,
}
"""Methods by their name in a file of settings, the longest fits first."""


def plan_fits(priced: Priced, settings: SweepSettings, full: FullScores) -> dict[str, list[Fit]]:
    """Plan the fits of every method that the settings name."""
    return {
        name: planner(priced, settings, full) for name, planner in METHODS.items() if name in settings.methods
    }
