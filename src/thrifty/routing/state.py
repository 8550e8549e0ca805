"""What a fit of a router learned, and how the policy is learned from it: rules judged out of fold, and their hull."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints, Words
from thrifty.errors import InvalidInputError
from thrifty.routing.policy import Log, concave_hull, judge, learn_families
from thrifty.routing.quality import QualityModel, TextReader

MAX_POOL = 8
"""Models that the policy chooses from: those of the best cascades and those nearest the Pareto front."""


@dataclass(frozen=True, eq=False)
class RouterState:
    """What a fit learned; a file holds it.

    Attributes
    ----------
    names, pool : tuple of str
        All models, and those that the policy chooses from, cheapest first.
    reader : TextReader or None
        Reads texts; None where rows are tables.
    model : QualityModel
        Expected quality and cost.
    log, folds, keys : Log, ndarray, ndarray
        Training rows with what was expected of them out of fold, their folds, and fingerprints of their content.
    tokens : ndarray or None
        Tokens of each text.
    evidence_mean : ndarray of shape (n_pool,)
        Stands for evidence that is missing.
    families, family_names : tuple
        Rules, learned from all rows.
    point_family, point_place : ndarray of shape (n_points,)
        The rule of each point of the frontier.
    point_quality, point_cost : ndarray of shape (n_rows, n_points)
        Each row under each rule, judged out of fold.
    single_cost, single_quality : ndarray of shape (n_models,)
        Means of each model alone.
    n_features : int
        Columns of tables; 0 for texts.
    columns : tuple of str or None
        Their names, where they have any.
    silent : tuple of str
        Models that were added later: the log does not know their answers, which are not compared.
    """

    names: tuple[str, ...]
    pool: tuple[str, ...]
    reader: TextReader | None
    model: QualityModel
    log: Log
    folds: Ints
    keys: Words
    tokens: Floats | None
    evidence_mean: Floats
    families: tuple[Any, ...]
    family_names: tuple[str, ...]
    point_family: Ints
    point_place: Ints
    point_quality: Floats
    point_cost: Floats
    single_cost: Floats
    single_quality: Floats
    n_features: int
    columns: tuple[str, ...] | None = None
    silent: tuple[str, ...] = ()

    @property
    def best_single(self) -> int:
        """The single model of the highest quality; the cheaper of equals."""
        return int(np.lexsort((self.single_cost, -np.round(self.single_quality, 6)))[0])

    def validate(self) -> "RouterState":
        """Refuse parts that do not fit together."""
        n_points, n_pool = len(self.point_family), len(self.pool)
        if not 2 <= n_pool == self.log.n_models <= MAX_POOL:
            raise InvalidInputError(f"a router must choose from 2 to {MAX_POOL} models; got {n_pool}.")
        rules = {
            "have pool models among its models": set(self.pool) <= set(self.names),
            "have expectations of each pool model": len(self.model.mean) == n_pool,
            "know the family and the rule of each point": n_points > 0
            and len(self.families) == len(self.family_names)
            and self.point_place.shape == self.point_family.shape
            and all(0 <= one < len(self.families) for one in self.point_family)
            and all(
                0 <= place < self.families[family].n_rules
                for family, place in zip(self.point_family, self.point_place, strict=True)
            ),
            "have rules that suit its log": all(one.suits(self.log) for one in self.families),
            "know each row under each point": self.point_cost.shape == (len(self.log), n_points)
            and self.point_quality.shape == (len(self.log), n_points),
            "know the models whose answers are not compared": set(self.silent) <= set(self.names),
            "know each model alone": self.single_cost.shape
            == self.single_quality.shape
            == (len(self.names),),
        }
        for rule, holds in rules.items():
            if not holds:
                raise InvalidInputError(f"a router must {rule}.")
        return self


NO_POLICY: dict[str, Any] = {
    "families": (),
    "family_names": (),
    "point_family": np.empty(0, np.intp),
    "point_place": np.empty(0, np.intp),
    "point_quality": np.empty((0, 0)),
    "point_cost": np.empty((0, 0)),
}


def learn_policy(state: RouterState, max_asks: int) -> RouterState:
    """Learn all families, judge them out of fold, and keep the points on the concave hull."""
    names, families, qualities, costs = [], [], [], []
    for name, learn in learn_families(state.log, max_asks):
        quality, cost = judge(learn, state.log, state.folds)
        names.append(name)
        families.append(learn(state.log))
        qualities.append(quality)
        costs.append(cost)
    n_rules = [family.n_rules for family in families]
    quality, cost = np.column_stack(qualities), np.column_stack(costs)
    # Means that differ in their last bits only are the same point: the simpler family comes first.
    hull = concave_hull(_rounded(cost.mean(axis=0)), np.round(quality.mean(axis=0), 9))
    family_of = np.repeat(np.arange(len(families)), n_rules)[hull]
    # A single model costs what it costs; of other rules, those are on the hull that were cheap on these very rows.
    factor = np.where(family_of == names.index("single model"), 1.0, _optimism(quality, cost, state.folds))
    return replace(
        state,
        families=tuple(families),
        family_names=tuple(names),
        point_family=family_of,
        point_place=np.concatenate([np.arange(n) for n in n_rules])[hull],
        point_quality=quality[:, hull],
        point_cost=cost[:, hull] * factor,
    ).validate()


def _optimism(quality: Floats, cost: Floats, folds: Ints) -> float:
    """What rows cost under points that were chosen on other folds, divided by what these cost there; at least 1."""
    chosen = []
    for fold in np.unique(folds):
        held = folds == fold
        hull = concave_hull(_rounded(cost[~held].mean(axis=0)), np.round(quality[~held].mean(axis=0), 9))
        chosen.append((held.mean(), cost[~held][:, hull].mean(axis=0), cost[held][:, hull].mean(axis=0)))
    low, high = 1.05 * max(there[0] for _, there, _ in chosen), min(there[-1] for _, there, _ in chosen)
    if low >= high:
        return 1.0
    budgets = np.geomspace(low, high, 10)
    spent = sum(share * np.interp(budgets, there, here) for share, there, here in chosen)
    return max(float(np.mean(spent / budgets)), 1.0)


def _rounded(values: Floats) -> Floats:
    """Values rounded to nine significant digits of the largest."""
    unit = float(10.0 ** np.ceil(np.log10(values.max())))
    rounded: Floats = np.round(values / unit, 9) * unit
    return rounded
