"""The problem of an "accuracy against cost" figure: rows, what their columns cost, and what is swept over them."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from thrifty.arrays import Floats
from thrifty.datasets import Split
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import PriceList, check_price_list

__all__ = ["METHOD_NAMES", "Priced", "SweepSettings"]

Cells = list[dict[str, Any]]

METHOD_NAMES = ("cascade", "prune", "kl", "squared", "reads_score", "miser", "cegb")
"""What a file of settings calls the methods."""


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a figure sweeps, alike for every method.

    Attributes
    ----------
    thinned : str
        What the appendix has and what is run here; printed on the page.
    methods : tuple of str
        Which methods; see ``METHOD_NAMES``.
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
        Of everything that is random.
    rows : tuple of int
        At most so many training, validation and test rows; empty for all.
    cascade_sizes : tuple of (n_trees, max_depth)
        Sizes of a stage of the cascade; empty for the default.
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

    def __post_init__(self) -> None:
        for name in ("methods", "gammas", "caps", "rates", "budgets"):
            if not getattr(self, name):
                raise InvalidInputError(f"{name} must not be empty.")
        unknown = [method for method in self.methods if method not in METHOD_NAMES]
        if unknown:
            raise InvalidInputError(f"methods must be among {', '.join(METHOD_NAMES)}; got {unknown[0]!r}.")
        for name in ("trees", "depth", "rounds", "full_trees"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.rows and (len(self.rows) != 3 or min(self.rows) < 1):
            raise InvalidInputError(
                f"rows must be three numbers of rows, to learn from, to choose with and to report on; "
                f"got {list(self.rows)}."
            )

    def forest(self) -> dict[str, Any]:
        """f0 of most figures: a random forest whose trees are grown to the end."""
        model = RandomForestClassifier(self.full_trees, random_state=self.seed, n_jobs=2)
        return {"forest": model}

    def cells(self, *names: str) -> Cells:
        """All combinations of some of the sweep's values, by the name of the estimator's parameter."""
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
        """Every column costs 1."""
        return cls(split, np.ones(split.X_train.shape[1]))

    @property
    def price_list(self) -> PriceList:
        """The prices, for who has to add them up."""
        groups = None if self.feature_groups is None else self.feature_groups.tolist()
        return check_price_list(self.feature_costs, groups, 0.0, len(self.feature_costs))

    @property
    def parameters(self) -> dict[str, Any]:
        """The prices as estimators take them."""
        return {"feature_costs": self.feature_costs, "feature_groups": self.feature_groups}
