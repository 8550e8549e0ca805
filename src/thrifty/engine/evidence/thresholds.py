"""Stopping rules: one threshold per stage, by backward induction, and the operating points along a sweep of prices.

With a price (loss per unit of cost) fixed, a row at stage k has the choice between

    stop:   loss_k + price * cost_k          go on:   V_(k+1), its loss and cost under the rules of the later stages

and the rule may only look at the stage's gate score g_k, which is computed from what is bought by then. Among all rules
"go on iff g_k > threshold" the one with the least mean on these rows is found exactly: sort the rows by g_k, add up
``stop - go`` and cut where the sum is least. The last stage comes first, so V is known row by row, with the costs that
each row really has later on and not their average.

A high price makes rows stop early. Sweeping the price gives points (mean cost, mean quality); a budget between two
neighbours on their upper convex hull is met, in expectation, by giving some rows the thresholds of the one and some
those of the other, and no rule of this kind does better on these rows. Thresholds on the way from the one to the other
(``thresholds_between``) do as well up to noise, and leave to chance only what becomes of rows with equal scores.

Of a single gate every threshold is a position in the order of its scores, and cost and accuracy are running sums
(``threshold_curve``): the whole curve costs one sort.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Any, NamedTuple

import numpy as np

from thrifty.arrays import Floats, Ints, Numbers
from thrifty.engine.evidence.evidence import Evidence, GateAverages
from thrifty.engine.prices.billing import costs_in_rounds
from thrifty.engine.walk.policy import Policy, distinct_thresholds
from thrifty.threads import usable_threads

TIE = 1e-10
"""Relative difference of two sums below which both cuts are equally good; the one at which rows stop earlier wins."""

PATH_STEPS = 32
"""Steps of a path through all of its points, about, and of its last part, from the dearest on to the full model."""

TIE_MARGIN = 1e-3
"""Half of the distance of the thresholds on both sides of a tied score, in standard deviations of the gate: rounded
leaves must not move the tie past them (no command chose it)."""

MAX_TIED_GROUPS = 64
"""Most groups of identical inputs at a stage whose gate is taken from the served model (no command chose it; what it is
for: ann-thyroid in ``benchmarks/certificates.py budgets``)."""

TIED_SHARE = 0.01
"""Share of the rows with one score from which on a gate has steps. Held-out scores are of several copies of the stage,
whose steps lie beside those of the served one (no command chose it)."""

CLEARLY = 4.0
"""Standard errors by which thresholds on the way must do worse than a mix to be left: the points that are mixed were
chosen on the same rows, which favours them by about two (no command chose it)."""

N_BETWEEN = 7
"""Points between two neighbours of a policy whose budget moves while it serves (no command chose it)."""

N_RATES = 15
"""Exchange rates at which operating points for several resources are looked for (no command chose it)."""

N_RATES_OF_ROUNDS = 6
"""The same where operating points also differ in the stages at which rows may stop (no command chose it)."""

N_PRICES_OF_HULL = 40
"""Prices at each exchange rate by which points are kept (no command chose it)."""

MAX_FEW_STOPS = 36
"""Most ways to let rows stop at one or two stages only (no command chose it)."""

BLOCK = 2**15
"""Rows times prices that are processed together, to save the overhead of calls where there are few rows."""


class StoppingRules:
    """Optimal thresholds for any price; scores are sorted once.

    Parameters
    ----------
    evidence : Evidence
        Held-out gates, costs and weights.
    loss : ndarray of shape (n_rows, n_stages + 1)
        Loss of an answer at each place.
    """

    def __init__(self, evidence: Evidence, loss: Floats) -> None:
        self._evidence, self._loss, self._weight = evidence, loss, evidence.weights
        self._order = np.argsort(evidence.gate, axis=0, kind="stable")
        ranked = np.take_along_axis(evidence.gate, self._order, axis=0)
        self._ranked = ranked
        # There is no threshold between two rows of equal score.
        self._is_cut = np.ones((len(ranked) + 1, evidence.n_stages), dtype=bool)
        self._is_cut[1:-1] = ranked[1:] > ranked[:-1]

    def at(self, price: float) -> Floats:
        """Threshold of every stage for one price, shape (n_stages,); infinite ones stop all rows, or none."""
        thresholds: Floats = self._induce(np.array([price]))[0][0]
        return thresholds

    def at_each(self, prices: Floats) -> Floats:
        """Thresholds for each of some prices, shape (n_prices, n_stages)."""
        step = max(BLOCK // len(self._ranked), 1)
        blocks = [prices[first : first + step] for first in range(0, len(prices), step)]
        with ThreadPoolExecutor(min(usable_threads(), len(blocks))) as pool:
            return np.concatenate([thresholds for thresholds, _ in pool.map(self._induce, blocks)])

    def stop_minus_go(self, price: float) -> Floats:
        """Loss of stopping at each stage against going on under the rules of the later ones: (n_rows, n_stages)."""
        differences: Floats = self._induce(np.array([price]))[1][0]
        return differences

    def _induce(self, prices: Floats) -> tuple[Floats, Floats]:
        """Thresholds for each price, and the loss of each row by stopping at each stage under them."""
        evidence, per_cost = self._evidence, prices[:, None]
        onward = self._loss[:, -1] + per_cost * evidence.cost_at(-1)
        thresholds = np.empty((len(prices), evidence.n_stages))
        differences = np.empty((len(prices), *evidence.gate.shape))
        for stage in range(evidence.n_stages - 1, -1, -1):
            stop = self._loss[:, stage] + per_cost * evidence.cost_at(stage)
            differences[:, :, stage] = stop - onward
            thresholds[:, stage] = self._cut(stage, self._weight * differences[:, :, stage])
            onward = np.where(evidence.gate[:, stage] > thresholds[:, stage, None], onward, stop)
        return thresholds, differences

    def _cut(self, stage: int, stop_minus_go: Floats) -> Floats:
        """For each price, the threshold with the least sum of ``stop - go`` over the rows that stop."""
        ranked, n_rows = self._ranked[:, stage], len(self._ranked)
        sums = np.zeros((len(stop_minus_go), n_rows + 1))
        np.cumsum(stop_minus_go.take(self._order[:, stage], axis=1), axis=1, out=sums[:, 1:])
        sums[:, ~self._is_cut[:, stage]] = np.inf
        slack = TIE * np.abs(stop_minus_go).sum(axis=1)
        is_least = sums <= (sums.min(axis=1) + slack)[:, None]
        n_stop = n_rows - np.argmax(is_least[:, ::-1], axis=1)
        low, high = ranked[np.maximum(n_stop - 1, 0)], ranked[np.minimum(n_stop, n_rows - 1)]
        middle = low / 2 + high / 2
        cut = np.where((low <= middle) & (middle < high), middle, low)
        return np.where(n_stop == 0, -np.inf, np.where(n_stop == n_rows, np.inf, cut))


def price_grid(evidence: Evidence, n_prices: int) -> Floats:
    """Increasing prices, from one at which only the loss counts to one at which no purchase pays off."""
    cost = evidence.cost if evidence.cost.ndim == 1 else evidence.cost.mean(axis=0)
    steps = np.diff(cost)
    steps = steps[steps > 0]
    if not len(steps):
        return np.zeros(1)
    lowest = 0.1 / (len(evidence.gate) * float(cost[-1]))
    grid: Floats = np.r_[0.0, np.geomspace(lowest, 2.0 / float(steps.min()), n_prices - 1)]
    return grid


def sweep_prices(
    evidence: Evidence,
    loss: Floats,
    score: Numbers,
    *,
    n_prices: int = 80,
    of_queries: Evidence | None = None,
) -> Policy:
    """Thresholds for every price of a grid, reduced to the convex hull of (mean cost, mean ``score``).

    Parameters
    ----------
    evidence : Evidence
        Held-out gates, costs and weights.
    loss : ndarray of shape (n_rows, n_stages + 1)
        Loss that stopping rules minimise, together with the cost.
    score : ndarray of shape (n_rows, n_stages + 1)
        Numbers whose mean is the score of a point.
    n_prices : int, default=80
        Prices to try.
    of_queries : Evidence, optional
        The same rows with queries as units, by which points are scored then.
    """
    rules = StoppingRules(evidence, loss)
    # Thresholds at which all rows stop at the first stage are the cheapest.
    at_once = np.full((1, evidence.n_stages), np.inf)
    thresholds = np.unique(np.concatenate([at_once, rules.at_each(price_grid(evidence, n_prices))]), axis=0)
    unknown = np.zeros(len(thresholds))
    evaluated = of_queries or replace(evidence, quality=np.asarray(score, dtype=np.float64))
    policy = measured(Policy(thresholds, unknown, unknown), evaluated)
    return policy[convex_hull(policy.cost, policy.score)]


def sweep_rates(
    evidence: Evidence,
    loss: Floats,
    score: Numbers,
    *,
    n_prices: int = 40,
    of_queries: Evidence | None = None,
    n_rates: int | None = None,
) -> Policy:
    """Thresholds for every price of a grid at exchange rates between several resources; parameters as above.

    Of each exchange rate the points on the convex hull are kept: a mix of them is best for any budgets, as far as the
    rates are dense enough.
    """
    assert evidence.costs is not None  # of several resources
    costs = evidence.costs if evidence.costs.ndim == 2 else evidence.costs.mean(axis=0)
    thresholds = []
    for weights in simplex(costs.shape[1], n_rates or N_RATES):
        cost = evidence.costs @ (weights / np.maximum(costs.max(axis=0), 1e-300))
        of_rate = None if of_queries is None else replace(of_queries, cost=cost)
        swept = sweep_prices(replace(evidence, cost=cost), loss, score, n_prices=n_prices, of_queries=of_rate)
        thresholds.append(swept.thresholds)
    points = np.unique(np.concatenate(thresholds), axis=0)
    unknown = np.zeros(len(points))
    evaluated = of_queries or replace(evidence, quality=np.asarray(score, dtype=np.float64))
    policy = measured(Policy(points, unknown, unknown), evaluated)
    assert policy.costs is not None  # of several resources
    return policy[on_hull(policy.costs, policy.score)]


def sweep_rounds(evidence: Evidence, loss: Floats, score: Numbers, **_: Any) -> Policy:
    """Thresholds at exchange rates between several resources, some of them delays; parameters as above.

    Operating points differ in the stages at which rows may stop: purchases of the others are made together. Points that
    are best at no prices are left out.
    """
    assert evidence.rounds is not None  # some resource is a delay
    n_stages, points = evidence.n_stages, [np.full((1, evidence.n_stages), -np.inf)]
    for kept in _stops(n_stages):
        no_stop = np.full(n_stages, -np.inf)
        no_stop[kept] = 0.0
        places = [*kept, n_stages]
        costs = costs_in_rounds(evidence.rounds, no_stop)[places]
        some = evidence.keep_stages(kept, None, costs.sum(axis=1), costs)
        swept = sweep_rates(some, loss[:, places], score[:, places], n_prices=20, n_rates=N_RATES_OF_ROUNDS)
        points.append(np.full((len(swept), n_stages), -np.inf))
        points[-1][:, kept] = swept.thresholds
    every = np.unique(np.concatenate(points), axis=0)
    unknown = np.zeros(len(every))
    policy = measured(
        Policy(every, unknown, unknown), replace(evidence, quality=np.asarray(score, dtype=np.float64))
    )
    assert policy.costs is not None  # of several resources
    return policy[on_hull(policy.costs, policy.score)]


def _stops(n_stages: int) -> list[list[int]]:
    """Stages at which rows may stop, in several ways: every one, every second one and so on, and one or two of them."""
    steps = {step for step in (1, 2, 3, 4, 6, 8) if step <= n_stages}
    every = [[*range(step - 1, n_stages, step)] for step in sorted(steps)]
    few = [list(stops) for n in (1, 2) for stops in combinations(range(n_stages), n)]
    thinned = few[:: max(len(few) // MAX_FEW_STOPS, 1)]
    return [*map(list, dict.fromkeys(map(tuple, [*every, *thinned])))]


def on_hull(costs: Floats, score: Floats) -> Ints:
    """Points that score highest minus their costs at some prices of several resources, and the cheapest in each.

    Other points could be in no mix that is best for a budget, and the luckiest of many would look best.
    """
    scale = np.maximum(costs.max(axis=0), 1e-300)
    relative, gain = costs / scale, max(float(np.ptp(score)), 1e-12)
    prices = np.r_[0.0, np.geomspace(1e-3, 1e3, N_PRICES_OF_HULL - 1)] * gain
    worth = np.round(score / gain, 9)
    kept = []
    for weights in simplex(costs.shape[1], N_RATES):
        paid = relative @ weights
        kept += [
            int(np.lexsort((relative.sum(axis=1), -(worth - price * paid)))[0]) for price in prices / gain
        ]
        kept.append(int(np.lexsort((-worth, np.round(paid, 12)))[0]))
    return np.unique(kept)


def simplex(n: int, n_wanted: int) -> Floats:
    """Weights of n things that sum to one: a lattice of about as many as are wanted, at least the corners."""
    step = 1
    while step < n_wanted - 1 and comb(n + step, n - 1) <= n_wanted:
        step += 1
    corners = combinations_with_replacement(range(n), step)
    return np.array([np.bincount(corner, minlength=n) for corner in corners]) / step


def measured(policy: Policy, evidence: Evidence) -> Policy:
    """The operating points, by rising cost, with their mean cost and expected quality on some rows."""
    cost, score = evidence.weighted_means(policy.thresholds)
    costs, error = None, 0.0
    score = score - evidence.optimism_at(policy.thresholds)[:, 0]
    if evidence.costs is not None:
        costs = evidence.mean_costs(policy.thresholds)
        error = _error_at(policy.thresholds[np.argmax(score)], evidence)
    policy = replace(policy, cost=cost, score=score, costs=costs, error=error)
    return policy if np.all(np.diff(policy.cost) >= 0) else policy[np.argsort(policy.cost, kind="stable")]


def _error_at(point: Floats, evidence: Evidence) -> float:
    """Standard error of the mean quality at a point."""
    quality, weight = np.asarray(evidence.at_point(point)[2], dtype=np.float64), evidence.weights
    variance = np.average(np.square(quality - np.average(quality, weights=weight)), weights=weight)
    return float(np.sqrt(variance * np.square(weight).sum()) / weight.sum())


def exploring(policy: Policy, evidence: Evidence, share: float) -> tuple[Policy, Evidence]:
    """Operating points, and evidence, of which a share of the rows goes on beyond its stop."""
    explored = evidence.explored(share)
    before, after = (each.weighted_means(policy.thresholds) for each in (evidence, explored))
    means = {name: getattr(policy, name) + after[k] - before[k] for k, name in enumerate(("cost", "score"))}
    if policy.costs is not None:
        costs = [each.mean_costs(policy.thresholds) for each in (evidence, explored)]
        means["costs"] = policy.costs + costs[1] - costs[0]
    policy = replace(policy, **means, explore=share)
    return policy[np.argsort(policy.cost, kind="stable")], explored


def path_to_full(evidence: Evidence, points: Floats) -> Floats:
    """Thresholds along a path through some points, given by rising cost, and on towards sending all rows to the end.

    Between neighbours each threshold moves through the gate scores of the rows, in steps of equally many rows: points
    that are efficient on the rows of a fit are few, and end where no loss is left there, which others may still have.
    """
    ends, n_rows = np.vstack([points, np.full((1, evidence.n_stages), -np.inf)]), len(evidence.gate)
    n_steps, last = max(PATH_STEPS // len(points), 1), len(points) - 1
    places = np.r_[np.arange(n_steps * last) / n_steps, last + np.arange(PATH_STEPS) / PATH_STEPS]
    path = np.empty((len(places), evidence.n_stages))
    for stage, ranked in enumerate(np.sort(evidence.gate, axis=0).T):
        n_below = np.searchsorted(ranked, ends[:, stage], side="right")
        rank = np.rint(np.interp(places, np.arange(len(ends)), n_below)).astype(np.intp)
        low, high = ranked[np.maximum(rank - 1, 0)], ranked[np.minimum(rank, n_rows - 1)]
        path[:, stage] = np.where(rank == 0, -np.inf, np.where(rank == n_rows, np.inf, low / 2 + high / 2))
    path[: n_steps * last + 1 : n_steps] = points
    return path


def thresholds_between(
    mix: Policy, evidence: Evidence, fits: Callable[[Floats], bool], new: Evidence | None = None
) -> Policy:
    """The policy at the last thresholds that fit on the way from the lower to the upper one of two mixed points.

    Each threshold moves through the gate scores of the rows, one distinct score a step. In force are, with a share of
    0, the thresholds before and after the first step that does not fit, which differ in the rows of one score; only the
    former where that is one row. The mix stays where thresholds on the way are clearly worse than it on these rows, or
    worse than its cheaper point.

    Parameters
    ----------
    mix : Policy
        With two neighbouring points in force.
    evidence : Evidence
        Held-out rows at the stages that the policy has thresholds for.
    fits : callable
        Whether some thresholds are cheap enough.
    new : Evidence, optional
        Other rows that are to be told apart, if they can; by default those of ``evidence``.
    """
    ends = mix.thresholds[[mix.lower, mix.upper]]
    path = _Path.of(evidence.gate, *ends)
    if not len(path.stages):
        return mix
    before, after = 0, len(path.stages)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if fits(path.at(middle)) else (before, middle)
    points = np.array([*ends, path.at(before), path.at(after)])
    place = [(new or evidence).at_point(point)[0] for point in points[2:]]
    tied, stage = np.flatnonzero(place[0] != place[1]), path.stages[before]
    of_stage = evidence.gate[:, stage]
    # Where all rows have one score, the thresholds of the ends are on both sides of it.
    if len(tied) > 1 and new is None and np.ptp(of_stage[tied]) == 0.0 < np.ptp(of_stage):
        score, margin = of_stage[tied[0]], TIE_MARGIN * float(np.std(of_stage))
        points[2:, stage] = np.clip(points[2:, stage], score - margin, score + margin)
    means = _MeansBetween.of(mix, evidence, points)
    paid, score = means.cost, means.score
    if not paid[0] <= paid[2] <= paid[3] <= paid[1] or paid[0] == paid[1]:
        return mix
    if means.gain[2] < -CLEARLY * means.error[2] or score[2] < score[0] - TIE:
        return mix
    inserted = [2, 3] if len(tied) > 1 else [2]
    policy = replace(
        mix,
        thresholds=np.insert(mix.thresholds, mix.upper, points[inserted], axis=0),
        cost=np.insert(mix.cost, mix.upper, paid[inserted]),
        score=np.insert(mix.score, mix.upper, score[inserted]),
    )
    return policy.at(mix.upper, mix.upper + len(inserted) - 1)


def with_points_between(
    policy: Policy, evidence: Evidence, n_between: int = N_BETWEEN, after: int | None = None
) -> Policy:
    """The policy with thresholds on the way between neighbours as further points, where they are as good as a mix.

    Chance then decides between points that differ in few rows, at any budget. By default they are inserted between all
    neighbours, else ``after`` one point only.
    """
    if not (evidence.n_stages and policy.is_measured):
        return policy
    finer = policy
    for lower in range(len(policy) - 2, -1, -1) if after is None else [after]:
        mix = policy.at(lower, lower + 1)
        ends = policy.thresholds[lower : lower + 2]
        path = _Path.of(evidence.gate, *ends)
        steps = np.unique(np.linspace(0, len(path.stages), n_between + 2).astype(np.intp))[1:-1]
        points = np.array([*ends, *(path.at(n_steps) for n_steps in steps)])
        means = _MeansBetween.of(mix, evidence, points)
        is_good = (means.gain >= -CLEARLY * means.error) & (means.score >= means.score[:2].min() - TIE)
        dearest = np.maximum.accumulate(np.r_[means.cost[0], means.cost[2:]])
        is_good[2:] &= (means.cost[2:] > dearest[:-1]) & (means.cost[2:] < means.cost[1])
        kept = np.flatnonzero(is_good[2:]) + 2
        finer = replace(
            finer.at(0),
            thresholds=np.insert(finer.thresholds, lower + 1, points[kept], axis=0),
            cost=np.insert(finer.cost, lower + 1, means.cost[kept]),
            score=np.insert(finer.score, lower + 1, means.score[kept]),
        )
    return finer


class _MeansBetween(NamedTuple):
    """Means of points on the way between two that are mixed, which come first.

    Attributes
    ----------
    cost, score : ndarray of shape (n_points,)
        Means of the policy, which may be of other rows, plus what the points gain on the rows of the evidence.
    gain, error : ndarray of shape (n_points,)
        By how much a point scores more than the mix of its cost, and the standard error of that.
    """

    cost: Floats
    score: Floats
    gain: Floats
    error: Floats

    @classmethod
    def of(cls, mix: Policy, evidence: Evidence, points: Floats) -> "_MeansBetween":
        """Means of some points on the rows of the evidence."""
        weight = evidence.weights
        paid, quality = (
            np.array(values, dtype=np.float64)
            for values in zip(*(evidence.at_point(point)[1:] for point in points), strict=True)
        )
        cost = np.average(paid, weights=weight, axis=1)
        step = cost[1] - cost[0]
        part = (cost - cost[0]) / (step if step > 0.0 else np.inf)
        excess = quality - np.outer(1.0 - part, quality[0]) - np.outer(part, quality[1])
        gain = np.average(excess, weights=weight, axis=1)
        spread = np.average(np.square(excess - gain[:, None]), weights=weight, axis=1)
        cost, score = (
            mean[mix.lower] + part * (mean[mix.upper] - mean[mix.lower]) for mean in (mix.cost, mix.score)
        )
        return cls(cost, score + gain, gain, np.sqrt(spread / weight.sum()))


@dataclass(frozen=True, eq=False)
class _Path:
    """Thresholds on the way from one point to another; each step moves the threshold of one stage past one score.

    Attributes
    ----------
    stages : ndarray of shape (n_steps,)
        Stage of each step.
    thresholds : list of ndarray
        Thresholds of each stage after none of its steps, after one, and so on.
    """

    stages: Ints
    thresholds: list[Floats]

    @classmethod
    def of(cls, gate: Floats, start: Floats, end: Floats) -> "_Path":
        """The path through the gate scores of some rows, on which all stages arrive together.

        A gate of many steps, none of which is known to be one of the served stage, is passed at once.
        """
        thresholds, stages, pace = [], [], []
        for stage, (first, last) in enumerate(zip(start, end, strict=True)):
            scores, n_rows = np.unique(gate[:, stage], return_counts=True)
            is_passed = (scores > min(first, last)) & (scores <= max(first, last))
            passed = scores[is_passed] if first < last else scores[is_passed][::-1]
            if len(scores) > MAX_TIED_GROUPS and n_rows[is_passed].max(initial=0) > TIED_SHARE * len(gate):
                passed = passed[:1]
            ends = [last] if len(passed) else []
            thresholds.append(np.concatenate([[first], passed[:-1] / 2 + passed[1:] / 2, ends]))
            stages.append(np.full(len(passed), stage))
            pace.append((np.arange(len(passed)) + 0.5) / max(len(passed), 1))
        order = np.argsort(np.concatenate(pace), kind="stable")
        return cls(np.concatenate(stages)[order], thresholds)

    def at(self, n_steps: int) -> Floats:
        """Thresholds after some steps."""
        done = np.bincount(self.stages[:n_steps], minlength=len(self.thresholds))
        return np.array([of_stage[n] for of_stage, n in zip(self.thresholds, done, strict=True)])


def convex_hull(cost: Floats, score: Floats) -> Ints:
    """Indices of the upper convex hull, by rising cost and score: each point scores more than any mix of the others."""
    hull: list[int] = []
    for place in np.lexsort((-score, cost)):
        if hull and score[place] <= score[hull[-1]]:
            continue
        while len(hull) > 1:
            left, middle = hull[-2:]
            rise = (score[middle] - score[left]) * (cost[place] - cost[left])
            if rise > (score[place] - score[left]) * (cost[middle] - cost[left]):
                break
            hull.pop()
        hull.append(int(place))
    return np.array(hull, dtype=np.intp)


# -- every threshold of one gate -------------------------------------------------------------------


def threshold_curve(
    g: Floats,
    stop_cost: Floats | float,
    go_cost: Floats | float,
    stop_score: Floats | float = 0.0,
    go_score: Floats | float = 0.0,
    weight: Floats | None = None,
) -> Policy:
    """Every distinct operating point of one gate on some rows, from "send no row" on, with its mean cost and score.

    Parameters
    ----------
    g : ndarray of shape (n_samples,)
        Gate scores.
    stop_cost, go_cost : float or ndarray of shape (n_samples,)
        Cost of a row that stops, and of one that is sent on.
    stop_score, go_score : float or ndarray of shape (n_samples,)
        Quality in each case: 1 for right, 0 for wrong.
    weight : ndarray of shape (n_samples,), optional
        Sample weights.
    """
    thresholds = distinct_thresholds(g)
    cost, score = (
        np.column_stack([np.broadcast_to(values, g.shape) for values in pair])
        for pair in ((stop_cost, go_cost), (stop_score, go_score))
    )
    means = GateAverages(g, cost, score, thresholds).under(None if weight is None else weight[:, None])
    return Policy(thresholds[:, None], np.ravel(means.cost), np.ravel(means.score))
