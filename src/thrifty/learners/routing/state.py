"""State of a fitted router, and how the policy is learned from it: rules out of fold, and their hull."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thrifty.arrays import Floats, Ints, Words
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import convex_hull, on_hull, simplex
from thrifty.engine.prices.billing import Resources
from thrifty.engine.walk.calibration import Calibration
from thrifty.engine.walk.next_model import (
    AtRates,
    Capped,
    Cascades,
    Log,
    Programme,
    Routes,
    Rules,
    Thresholds,
    shares_asked,
    walk,
    walk_mixed,
)
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.learn import (
    CrossFittedRules,
    clearly_better,
    cross_fit_rules,
    learn_families,
    rounded,
    shrunk,
)
from thrifty.learners.routing.quality import QualityModel, TextReader
from thrifty.learners.routing.thresholds import learn_pooling
from thrifty.rows import fingerprints, labelled_keys

MAX_POOL = 8
"""Models that the policy chooses from: those of the best cascades and those nearest the Pareto front."""
MAX_CHOSEN, MAX_PLANNED = 64, 5
"""The same where columns cost and rows ask one model, and where they may ask several."""
_N_WALKED = 2000
"""Rows on which the share that asks each model is measured."""
_N_RATES, _LEAST_WEIGHT = 5, 0.02
"""Exchange rates between two resources at which rules are learned, and the least weight of a resource at any."""


@dataclass(frozen=True, eq=False)
class RouterState:
    """State of a fitted router; a file holds it.

    Attributes
    ----------
    names, pool : tuple of str
        All models, and those that the policy chooses from, cheapest first; behind them the groups of columns that cost.
    reader : TextReader or None
        Reads texts; None where rows are tables.
    model : QualityModel or None
        Expected quality and cost; None where rows have no columns, and means stand for them, or where columns cost.
    log, folds, keys : Log, ndarray, ndarray
        Training rows with what was expected of them out of fold, their folds, and fingerprints of their content.
    tokens : ndarray or None
        Tokens of each text.
    evidence_mean : ndarray of shape (n_pool,)
        Stands for evidence that is missing, in files of version 0.3, which do not calibrate it.
    families, family_names : tuple
        Rules, learned from all rows.
    point_family, point_place : ndarray of shape (n_points,)
        The rule of each point of the frontier.
    point_quality, point_cost : ndarray of shape (n_rows, n_points)
        Expected quality of each row under each rule, out of fold, and its cost.
    single_cost, single_quality : ndarray of shape (n_models,)
        Means of each model alone.
    n_features : int
        Columns of tables; 0 for texts.
    columns : tuple of str or None
        Their names, where they have any.
    models_without_answers : tuple of str
        Models that were added later: the log does not know their answers, which are not compared.
    calibration : Calibration or None
        Maps from evidence to confidence, where the fit has evidence.
    calls : ndarray of shape (n_pool,) or None
        What a row pays of one call of each model in a batch, a part of its cost; None where prices are of rows alone.
    batch_size : int
        Rows of such a batch.
    point_share : ndarray of shape (n_points, n_pool) or None
        Share of rows that ask each model at each point, where there are ``calls``.
    resources : Resources or None
        Names of several resources, and the exchange rates at which all single costs are their sums.
    point_costs : ndarray of shape (n_rows, n_points, n_resources) or None
        Cost of each row under each rule in each of them.
    single_costs : ndarray of shape (n_models, n_resources) or None
        Mean cost of each model alone in each of them.
    largest_loss : float or None
        Loss whose quality is 0, where outcomes are losses.
    """

    names: tuple[str, ...]
    pool: tuple[str, ...]
    reader: TextReader | None
    model: QualityModel | None
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
    models_without_answers: tuple[str, ...] = ()
    calibration: Calibration | None = None
    calls: Floats | None = None
    batch_size: int = 1
    point_share: Floats | None = None
    resources: Resources | None = None
    point_costs: Floats | None = None
    single_costs: Floats | None = None
    largest_loss: float | None = None

    def in_resources(self, log: Log, costs: Floats | None = None) -> Log:
        """A log whose ``expected`` are those of each model in each of several resources, with its costs in them."""
        assert self.resources is not None  # there are several
        expected = log.expected.reshape(len(log), -1, len(self.resources.names))
        costs = np.full(expected.shape, np.nan) if costs is None else costs
        waits = [place for place, name in enumerate(self.resources.names) if name in self.resources.delays]
        log = replace(log, expected_costs=expected, costs=costs, delays=np.array(waits) if waits else None)
        return log.at_rates(self.resources.rates)

    def capped(self, prices: Floats, limits: Floats) -> "RouterState":
        """The state with rules under which no row pays more than a cap; points that are then alike are one.

        Parameters
        ----------
        prices : ndarray of shape (n_pool, n_resources)
            What a call of each model costs.
        limits : ndarray of shape (n_resources,)
            The cap; infinite where a resource has none.
        """
        families = [
            Capped(one.rules, prices, np.minimum(limits, one.limits))
            if isinstance(one, Capped)
            else Capped(one, prices, limits)
            for one in self.families
        ]
        rules = [*zip(self.point_family.tolist(), self.point_place.tolist(), strict=True)]
        before = [walk(self.families[family], place, self.log) for family, place in rules]
        after = [walk(families[family], place, self.log) for family, place in rules]
        # Rows that ask others than before have the quality that the log knows of their answer.
        is_same = [
            (old.asked.shape == new.asked.shape) and (old.asked == new.asked).all()
            for old, new in zip(before, after, strict=True)
        ]
        quality = np.column_stack(
            [
                self.point_quality[:, place]
                if is_same[place]
                else np.where(before[place].model == one.model, self.point_quality[:, place], one.quality)
                for place, one in enumerate(after)
            ]
        )
        cost = np.column_stack([one.cost for one in after])
        costs = None if self.resources is None else np.stack([one.costs for one in after], axis=1)
        means = np.round(quality.mean(axis=0), 9)
        if costs is None:
            kept = convex_hull(rounded(cost.mean(axis=0)), means)
        else:
            paid = costs.mean(axis=0)
            kept = np.sort(
                np.unique(np.column_stack([rounded(mean) for mean in paid.T]), axis=0, return_index=True)[1]
            )
            kept = kept[on_hull(paid[kept], means[kept])]
            kept = kept[np.argsort(cost[:, kept].mean(axis=0), kind="stable")]
        return replace(
            self,
            families=tuple(families),
            point_family=self.point_family[kept],
            point_place=self.point_place[kept],
            point_quality=quality[:, kept],
            point_cost=cost[:, kept],
            point_costs=None if costs is None else costs[:, kept],
        ).validate()

    def unreached(self, share: Floats) -> Floats:
        """What each row pays for calls beyond those in the prices of the models that it asks, given shares that ask.

        A model is called about a batch if any of its rows asks it, and a call costs as much for few rows as for all.
        """
        if self.calls is None:
            return np.zeros(share.shape[:-1])
        is_called = 1.0 - (1.0 - share) ** self.batch_size
        beyond: Floats = (self.calls * np.round(is_called - share, 9)).sum(axis=-1)
        return beyond

    def unreached_at(self, policy: Policy) -> float:
        """The same at the point in force, or the mix of two, of which a batch calls the models of both."""
        if self.point_share is None:
            return 0.0
        lower, upper = self.point_share[[policy.lower, policy.upper]]
        return float(self.unreached((1.0 - policy.share) * lower + policy.share * upper))

    def mixing_cost(self, policy: Policy) -> float:
        """What a row pays at a mix beyond the mean of its two points: calls of models that only one of them asks."""
        if self.point_share is None:
            return 0.0
        lower, upper = self.unreached(self.point_share[[policy.lower, policy.upper]])
        return self.unreached_at(policy) - float((1.0 - policy.share) * lower + policy.share * upper)

    def means_under(self, rule: Rules, log: Log) -> tuple[Any, float]:
        """Mean cost (of several resources a dict) and quality of a log under a rule that is none of the points."""
        replay = walk(rule, 0, log)
        if self.resources is not None:
            return self.resources.named(replay.costs.mean(axis=0)), float(replay.quality.mean())
        calls = self.unreached(shares_asked(replay.asked, log.n_purchases))
        return float(replay.cost.mean() + calls), float(replay.quality.mean())

    def affordable(self, policy: Policy, budget: float, cost_of: Callable[[Policy], float]) -> Policy:
        """The mix with as many rows at its dearer point as the budget affords, calls of both points included."""
        for share in np.linspace(policy.share, 0.0, 1 if self.point_share is None else 51).tolist():
            policy = policy.at(policy.lower, policy.upper, share)
            if cost_of(policy) + self.mixing_cost(policy) <= budget * (1.0 + SLACK):
                break
        return policy

    @property
    def reads_rows(self) -> bool:
        """True if rows have columns, or are texts."""
        return self.model is not None or self.log.columns is not None

    @property
    def models(self) -> tuple[str, ...]:
        """Models of the pool."""
        return self.pool[: self.log.n_models]

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups of columns that cost."""
        n_runs = 0 if self.log.columns is None else len(self.log.columns.runs)
        return self.pool[self.log.n_models : len(self.pool) - n_runs]

    @property
    def column_prices(self) -> Floats:
        """Mean price of each group of columns that cost."""
        return self.group_prices[: len(self.groups)]

    @cached_property
    def group_prices(self) -> Floats:
        """The same, and mean seconds of early runs."""
        return self.log.cost[:, self.log.n_models :].mean(axis=0)

    @property
    def pool_places(self) -> list[int]:
        """Places of the models of the pool in ``names``."""
        return [self.names.index(name) for name in self.models]

    def first_asked(self, point: int, log: Log) -> Ints:
        """First model that each row of a log asks under a point."""
        return self.until_asked(point, log)[0]

    def until_asked(self, point: int, log: Log) -> tuple[Ints, Floats]:
        """First model that each row of a log asks under a point, and what it is expected to pay until its answer."""
        rules, place, rows = (
            self.families[self.point_family[point]],
            int(self.point_place[point]),
            np.arange(len(log)),
        )
        if log.columns is None:
            ask: Ints = rules.decide(place, (), log).ask
            expected = log.expected if log.expected_costs is None else log.expected_costs
            return ask, expected[rows, ask]
        first = walk_mixed([(rows, rules, place)], replace(log, cost=log.expected), until_model=True)
        return first.model, first.cost + log.expected[rows, first.model]

    def mean_further_cost(self, point: int) -> Floats:
        """Mean of what rows of the fit pay beyond the first model under a point, by that model (and resource)."""
        first, paid = self.until_asked(point, self.log)
        n_rows, n_models = np.bincount(first, minlength=len(self.pool)), len(self.pool)
        if self.log.columns is not None:
            rules, place = self.families[self.point_family[point]], int(self.point_place[point])
            further = walk(rules, place, replace(self.log, cost=self.log.expected)).cost - paid
            return np.bincount(first, further, n_models) / np.maximum(n_rows, 1)
        if self.point_costs is None or self.log.costs is None:
            further = self.point_cost[:, point] - self.log.cost[np.arange(len(first)), first]
            return np.bincount(first, further, n_models) / np.maximum(n_rows, 1)
        beyond = self.point_costs[:, point] - self.log.costs[np.arange(len(first)), first]
        sums = np.stack([np.bincount(first, of_one, n_models) for of_one in beyond.T], axis=1)
        return sums / np.maximum(n_rows, 1)[:, None]

    @cached_property
    def means(self) -> tuple[Floats, Floats]:
        """Mean quality and cost of each model of the pool: what is expected where nothing is known of a row."""
        cost = self.log.cost if self.log.costs is None else self.log.costs.reshape(len(self.log), -1)
        return self.log.quality.mean(axis=0), cost.mean(axis=0)

    @property
    def best_single(self) -> int:
        """The single model of the highest quality; the cheaper of equals."""
        return int(np.lexsort((self.single_cost, -np.round(self.single_quality, 6)))[0])

    @property
    def rules(self) -> list[str]:
        """Family of the rule of each operating point."""
        return [self.family_names[family] for family in self.point_family]

    @cached_property
    def evidence(self) -> Evidence:
        """Rows of the fit under the rule of each point: expected quality, out of fold, and cost."""
        labels = self.log.quality
        return self.evidence_on(
            self.keys, labels, self.point_cost, self.point_quality, costs=self.point_costs
        )

    def evidence_on(
        self,
        keys: Words,
        labels: Floats,
        cost: Floats,
        quality: Floats,
        full_quality: Floats | None = None,
        costs: Floats | None = None,
    ) -> Evidence:
        """Rows under the rule of each point, with what they hold and their labels as fingerprints.

        Parameters
        ----------
        keys : ndarray of shape (n_rows,)
            Fingerprints of what rows hold.
        labels : ndarray of shape (n_rows, n_labels)
            Known qualities: rows that hold the same and have equal ones count as one.
        cost, quality : ndarray of shape (n_rows, n_points)
            What each row pays and gets under each rule.
        full_quality : ndarray of shape (n_rows,), optional
            Quality of the model that rules are compared with.
        costs : ndarray of shape (n_rows, n_points, n_resources), optional
            Costs in each of several resources.
        """
        rows = labelled_keys(keys, fingerprints(labels))
        known = {"full_quality": full_quality, "rows": rows, "settings": {"rules": self.rules}}
        return Evidence.of_rules(cost, quality, costs=costs, **known)

    @cached_property
    def policy(self) -> Policy:
        """Operating points, each the number of its rule, with their mean cost and quality on the rows of the fit."""
        points, means = self.evidence.every_point()
        costs = None if self.resources is None else self.evidence.mean_costs(points)
        return Policy(points, means.cost, means.score, costs=costs)

    def validate(self) -> "RouterState":
        """Refuse parts that do not fit together."""
        n_points, n_pool, columns = len(self.point_family), self.log.n_models, self.log.columns
        most = MAX_POOL if columns is None and self.log.cutoff is None else MAX_CHOSEN
        groups = () if columns is None else columns.names
        if not 2 <= n_pool <= most:
            raise InvalidInputError(f"a router must choose from 2 to {most} models; got {n_pool}.")
        problem = None if columns is None else columns.problem(n_pool)
        if problem is not None:
            raise InvalidInputError(f"{problem}.")
        rules = {
            "have pool models among its models": set(self.models) <= set(self.names),
            "know what each purchase of its pool costs": self.pool[n_pool:] == groups
            and len(self.pool) == self.log.n_purchases == self.log.expected.shape[1],
            "have expectations of each pool model": self.model is None or len(self.model.mean) == n_pool,
            "have calibrated evidence of each pool model": self.calibration is None
            or (self.log.evidence is not None and len(self.calibration.knots) == n_pool),
            "have weights for each set of its models": self.log.pooling is None
            or self.log.pooling.suits(self.log),
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
            "know the models whose answers are not compared": set(self.models_without_answers)
            <= set(self.names),
            "know the call of each pool model": self.calls is None or self.calls.shape == (n_pool,),
            "know the share of rows that asks each model": self.point_share is None
            or (self.calls is not None and self.point_share.shape == (n_points, n_pool)),
            "know costs in each resource": (
                self.point_costs is None and self.single_costs is None and self.log.costs is None
                if self.resources is None
                else self.log.costs is not None
                and self.point_costs is not None
                and self.single_costs is not None
                and self.log.costs.shape == (*self.log.cost.shape, len(self.resources.names))
                and self.point_costs.shape == (*self.point_cost.shape, len(self.resources.names))
                and self.single_costs.shape == (len(self.names), len(self.resources.names))
                and self.resources.rates.shape == (len(self.resources.names),)
            ),
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
    """Learn all families, cross-fit them, and keep the points on the convex hull."""
    state = replace(state, log=replace(state.log, pooling=learn_pooling(state.log, max_asks)))
    if state.resources is not None:
        return _learn_at_rates(state, max_asks)
    learned = _learn(state, state.log, max_asks)
    (quality, cost), share = learned.rows, None
    if state.calls is not None:
        some = state.log.rows(np.arange(0, len(state.log), -(-len(state.log) // _N_WALKED)))
        walks = [walk(family, rule, some) for family in learned.families for rule in range(family.n_rules)]
        share = np.array([shares_asked(one.asked, some.n_purchases) for one in walks])
        cost = cost + state.unreached(share)
    # Means that differ in their last bits only are the same point: the simpler family comes first.
    hull = convex_hull(rounded(cost.mean(axis=0)), np.round(quality.mean(axis=0), 9))
    return replace(
        state,
        families=learned.families,
        family_names=learned.names,
        point_family=learned.family[hull],
        point_place=learned.place[hull],
        point_quality=quality[:, hull],
        point_cost=cost[:, hull],
        point_share=None if share is None else share[hull],
    ).validate()


class _Learned(NamedTuple):
    """Families of rules, and for each rule its family, its number therein, and what rows pay and get under it."""

    names: tuple[str, ...]
    families: tuple[Rules, ...]
    family: Ints
    place: Ints
    rows: CrossFittedRules


def _learn(state: RouterState, log: Log, max_asks: int) -> _Learned:
    """Learn all families from a log, and cross-fit them."""
    names: list[str] = []
    families: list[Rules] = []
    cross_fitted: list[CrossFittedRules] = []
    for name, learn in learn_families(log, max_asks, has_columns=state.model is not None):
        family, own = cross_fit_rules(learn, log, state.folds)
        if not isinstance(family, Cascades):
            simpler = [
                rules
                for rules, other in zip(cross_fitted, families, strict=True)
                if isinstance(other, Cascades | Thresholds)
            ]
            own = shrunk(own, _together(simpler))
        names.append(name)
        families.append(family)
        cross_fitted.append(own)
    n_rules = [family.n_rules for family in families]
    return _Learned(
        tuple(names),
        tuple(families),
        np.repeat(np.arange(len(families)), n_rules),
        np.concatenate([np.arange(n) for n in n_rules]),
        clearly_better(_together(cross_fitted), log.quality),
    )


def _learn_at_rates(state: RouterState, max_asks: int) -> RouterState:
    """Learn all families at exchange rates between several resources, and keep the points that are best at some prices.

    Of each exchange rate the points on its convex hull are candidates.
    """
    log, resources = state.log, state.resources
    assert resources is not None  # there are several
    families: list[Rules] = []
    names: list[str] = []
    points, quality, costs = [], [], []
    for weights in simplex(len(resources.names), _N_RATES):
        rates = np.maximum(weights, _LEAST_WEIGHT) * resources.rates
        learned = _learn(state, log.at_rates(rates), max_asks)
        hull = convex_hull(
            rounded(learned.rows.cost.mean(axis=0)), np.round(learned.rows.quality.mean(axis=0), 9)
        )
        for rule in hull.tolist():
            family = learned.families[learned.family[rule]]
            points.append((len(families) + int(learned.family[rule]), int(learned.place[rule])))
            quality.append(learned.rows.quality[:, rule])
            costs.append(walk(family, points[-1][1], log.at_rates(rates)).costs)
        names += learned.names
        families += [
            AtRates(one, rates) if isinstance(one, Routes | Programme) else one for one in learned.families
        ]
    by_point, scores = np.stack(costs, axis=1), np.column_stack(quality)
    means = by_point.mean(axis=0)
    # Points of equal costs are the same one, learned at several rates.
    kept = np.sort(
        np.unique(np.column_stack([rounded(mean) for mean in means.T]), axis=0, return_index=True)[1]
    )
    kept = kept[on_hull(means[kept], scores[:, kept].mean(axis=0))]
    summed = (by_point * resources.rates).sum(axis=2)
    kept = kept[np.argsort(summed[:, kept].mean(axis=0), kind="stable")]
    family, place = np.array(points)[kept].T
    used, family = np.unique(family, return_inverse=True)
    return replace(
        state,
        families=tuple(families[number] for number in used),
        family_names=tuple(names[number] for number in used),
        point_family=family.astype(np.intp),
        point_place=place.astype(np.intp),
        point_quality=scores[:, kept],
        point_cost=summed[:, kept],
        point_costs=by_point[:, kept],
    ).validate()


def _together(parts: Sequence[CrossFittedRules]) -> CrossFittedRules:
    return CrossFittedRules(*(np.column_stack(columns) for columns in zip(*parts, strict=True)))
