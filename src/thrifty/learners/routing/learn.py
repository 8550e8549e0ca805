"""Learning of a router's rules, their comparison out of fold, and those worth mixing.

There are five families of rules, each learned for the same list of prices ``lambda`` of a unit of cost, to maximise
``quality - lambda * cost``:

* single models, and fixed cascades (ask two; if they disagree, ask a third), the best of the log at each price;
* thresholds: a sequence of models, each asked unless the answer at hand is sure enough, the best one given all of them
  or, where these are no class probabilities, that of the last model (``thresholds.py``);
* routing: the model of the largest expected ``quality - lambda * cost``, once;
* programmes: dynamic programming over sets of asked models, with and without the features of the row. For each set one
  small ridge regression estimates, from one Gram matrix, the quality of each answer at hand, and for each further model
  and price the gain of asking it over stopping. Backward induction runs from the largest sets to the empty one;
* where models may be asked at once, so that they wait together: sets of models, and sequences that begin with two;
* where columns cost, plans (``plan.py``) take the place of routing and programmes: they buy columns before models.

Rows that rules were not learned from tell their quality; gains over simpler rules (single models and cascades, which
are chosen from few and hardly overfit; of programmes and routing, also thresholds) are shrunk by their noise. Rows are
mixed between the points on the convex hull of cost and quality, so that any budget is spent.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.thresholds import convex_hull
from thrifty.engine.walk.column_plan import Plan
from thrifty.engine.walk.next_model import (
    COST_RATIOS,
    DIGITS,
    Cascades,
    Log,
    Programme,
    Routes,
    Rules,
    Thresholds,
    best_at_hand,
    first_largest,
    others_of,
    sets_of,
    walk,
)
from thrifty.learners.routing.plan import learn_plan
from thrifty.learners.routing.quality import ridge
from thrifty.learners.routing.thresholds import learn_thresholds

N_PRICES = 20
COST_ONLY = 1e9
"""Price, in units of quality per cost of the cheapest model, at which only cost counts."""

MIN_ROWS = 500
"""Programmes are learned from this number of rows on."""

_MARGIN = 1e-6
"""By which rules that are not clearly better than the best single model come after it."""

_ALPHA = 100.0
_REALISED = 0.5
"""Weight of realised quality in the targets of the programme; the rest is expected quality, which is less noisy."""


def learn_cascades(log: Log, prices: Floats, max_asks: int) -> Cascades:
    """Best single model or cascade of the log at each price."""
    mean, cost = log.quality.mean(axis=0), log.cost[:, : log.n_models].mean(axis=0)
    models = [(model, -1, -1) for model in range(log.n_models)]
    best = list(range(log.n_models))
    quality, costs = list(mean), list(cost)
    n_at_once = [1] * log.n_models
    if log.answers is not None and max_asks >= 3:
        for i, j in combinations(range(log.n_models), 2):
            agree = (log.answers[:, i] == log.answers[:, j]) & (log.answers[:, i] >= 0)
            better = i if mean[i] >= mean[j] else j
            agreed = float(np.where(agree, log.quality[:, better], 0.0).mean())
            apart = (~agree).astype(np.float64)
            for k in sorted(set(range(log.n_models)) - {i, j}):
                models.append((i, j, k))
                best.append(better)
                quality.append(agreed + float((apart * log.quality[:, k]).mean()))
                further = cost[j] * log.share_after(j, (i,))
                third = log.cost[:, k] * log.share_after(k, (i, j))
                costs.append(cost[i] + further + float((apart * third).mean()))
                n_at_once.append(1)
                if log.delays is not None:  # the first two are always asked, so why not at once
                    costs[-1] -= float(log.saved_at_once((i, j)).mean())
                    n_at_once[-1] = 2
                    models.append(models[-1])
                    best.append(best[-1])
                    quality.append(quality[-1])
                    costs.append(cost[[i, j, k]].sum() - float(log.saved_at_once((i, j, k)).mean()))
                    n_at_once.append(3)
    value = np.array(quality) - prices[:, None] * np.array(costs)
    found = first_largest(value)
    at_once = None if log.delays is None else np.array(n_at_once)[found]
    return Cascades(np.array(models)[found], np.array(best)[found], at_once)


def learn_at_once(log: Log, prices: Floats, max_asks: int) -> Thresholds:
    """Best set of models at each price where all of a set are asked at once, and the best answer of all is taken."""
    rows, mean, sets = np.arange(len(log)), log.cost.mean(axis=0), sets_of(log.n_models, max_asks)[1:]
    quality = [log.quality[rows, best_at_hand(log, asked)[0]].mean() for asked in sets]
    costs = [mean[list(asked)].sum() - log.saved_at_once(asked).mean() for asked in sets]
    found = first_largest(np.array(quality) - prices[:, None] * np.array(costs))
    models = np.full((len(prices), max_asks), -1)
    for place, number in enumerate(found.tolist()):
        models[place, : len(sets[number])] = sets[number]
    return Thresholds(models, np.full((len(prices), max_asks - 1), np.inf), True, (models >= 0).sum(axis=1))


def first_two_at_once(rules: Thresholds) -> Thresholds:
    """The same sequences, with the first two models asked at once."""
    return replace(rules, at_once=np.minimum((rules.models >= 0).sum(axis=1), 2))


def learn_programme(log: Log, prices: Floats, max_asks: int, *, reads_row: bool) -> Programme:
    """Learn by backward induction, from the largest sets of asked models to the empty one."""
    n_rows, n_models, n_prices = len(log), log.n_models, len(prices)
    rows = np.arange(n_rows)
    mean_cost, reads_confidence = log.cost.mean(axis=0), log.evidence is not None
    sets = sets_of(n_models, max_asks)
    # Constant prices tell nothing. Without evidence costs gain nothing either: on rows for fitting of mmlupro quality
    # is .003 lower at .1 and .5; with simulated evidence it is .006 higher. Where costs are read, they are columns too.
    further: dict[tuple[int, ...], Floats] = (
        {asked: np.empty(0) for asked in sets if 0 < len(asked) < max_asks}
        if reads_confidence and (log.cost != log.cost[0]).any()
        else {}
    )
    empty = Programme(
        prices, mean_cost, max_asks, reads_row, (), (), reads_confidence, tuple(further.values())
    )
    expected = empty.expected_cost(log)
    ratios = np.minimum(log.cost / expected, COST_RATIOS[1])
    ratios *= mean_cost / (ratios * expected).mean(axis=0)
    value: dict[
        tuple[int, ...], Floats
    ] = {}  # quality less price * cost from each set on, (n_rows, n_prices)
    stop: dict[tuple[int, ...], Floats] = {}
    gain: dict[tuple[int, ...], Floats] = {}
    for asked in reversed(sets):
        columns = empty.columns(log, asked)
        at_hand = np.zeros(n_rows)
        if asked:
            stop[asked] = ridge(columns, log.quality[:, asked], _ALPHA)
            right = columns @ stop[asked]
            chosen = first_largest(right)
            realised = log.quality[rows, np.array(asked)[chosen]]
            at_hand = _REALISED * realised + (1.0 - _REALISED) * right[rows, chosen]
        if len(asked) == max_asks:
            value[asked] = np.broadcast_to(at_hand[:, None], (n_rows, n_prices))
            continue
        others = others_of(asked, n_models)
        after = np.stack([value[tuple(sorted((*asked, int(other))))] for other in others], axis=1)
        target = after - at_hand[:, None, None]
        coefficients = ridge(columns, target.reshape(n_rows, -1), _ALPHA)
        cost = empty.expected_cost(log, asked)[:, others]
        if asked in further:
            further[asked] = ridge(columns, ratios[:, others], _ALPHA)
            cost = cost * np.clip(columns @ further[asked], *COST_RATIOS)
        estimate = (columns @ coefficients).reshape(target.shape) - cost[:, :, None] * prices
        best = first_largest(estimate, axis=1)
        go = np.round(np.take_along_axis(estimate, best[:, None], 1)[:, 0], DIGITS) > 0.0
        paid = (log.cost * log.shares_after(asked))[rows[:, None], others[best]]
        then = np.take_along_axis(after, best[:, None], 1)[:, 0] - prices * paid
        value[asked] = np.where(go | (not asked), then, at_hand[:, None])
        gain[asked] = coefficients.reshape(-1, len(others), n_prices)
    return replace(
        empty,
        further=tuple(further.values()),
        stop=tuple(stop[asked] for asked in sets if asked),
        gain=tuple(gain[asked] for asked in sets if len(asked) < max_asks),
    )


def prices_of(log: Log, n_prices: int) -> Floats:
    """Prices from 0 to that of the cheapest model's cost, geometric, and one at which only cost counts."""
    cost = log.cost.mean(axis=0)
    least = cost[: log.n_models].min()
    steps = np.geomspace(0.01 / cost.max(), 2.0 / least, n_prices - 2)
    return np.array([0.0, *steps, COST_ONLY / least])


def learn_families(
    log: Log, max_asks: int, *, has_columns: bool = True
) -> Iterator[tuple[str, Callable[[Log], Rules]]]:
    """Names of the families that suit a log, simple ones first, and how each is learned."""
    max_asks = min(max_asks, log.n_models)
    few, many = prices_of(log, N_PRICES), prices_of(log, 3 * N_PRICES)
    yield "single model", lambda rows: learn_cascades(rows, many, 1)
    if max_asks >= 3 and log.answers is not None and (log.answers >= 0).any():
        yield "fixed cascade", lambda rows: learn_cascades(rows, many, max_asks)
    if max_asks >= 2 and log.evidence is not None:
        if log.pooling is None:
            yield "thresholds", partial(learn_thresholds, prices=many, max_asks=max_asks, combines=False)
        yield "thresholds on combined answers", partial(learn_thresholds, prices=many, max_asks=max_asks)
        if log.delays is not None:
            yield "models at once", lambda rows: learn_at_once(rows, many, max_asks)
            if max_asks >= 3:
                yield (
                    "two models at once, then one",
                    lambda rows: first_two_at_once(learn_thresholds(rows, many, max_asks)),
                )
    if log.columns is not None:
        n_asked = max_asks if log.answers is not None or log.evidence is not None else 1
        yield "columns, then models", lambda rows: learn_plan(rows, few, n_asked, max_asks)
        return
    if has_columns:
        yield "routing", lambda _: Routes(many)
    if max_asks >= 2 and len(log) >= MIN_ROWS and (log.answers is not None or log.evidence is not None):
        if has_columns:
            yield "programme", lambda rows: learn_programme(rows, few, max_asks, reads_row=True)
        yield "programme without features", lambda rows: learn_programme(rows, few, max_asks, reads_row=False)


class CrossFittedRules(NamedTuple):
    """Rules of a family on the rows of the fit, each of shape (n_rows, n_rules)."""

    quality: Floats
    """Expected quality, out of fold."""
    cost: Floats
    """Cost of the rules themselves."""


def cross_fit_rules(learn: Callable[[Log], Rules], log: Log, folds: Ints) -> tuple[Rules, CrossFittedRules]:
    """Learn a family from all rows, and estimate quality and cost of its rules.

    Rules that are learned without a fold are followed on it. At the same price these may be other rules at another
    cost, such as another cascade. So the cost of a rule is that of the rule itself, and its quality what the family
    reaches out of fold at this cost.
    """
    family = learn(log)
    own = walk_all(family, log)[1]
    quality, cost = np.empty_like(own), np.empty_like(own)
    for fold in np.unique(folds):
        held = folds == fold
        quality[held], cost[held] = walk_all(learn(log.rows(~held)), log.rows(held))
    if isinstance(family, Plan):  # a rule of a plan is the same set of columns, or price, in each fold
        return family, CrossFittedRules(quality, cost)
    return family, CrossFittedRules(reached_at(own.mean(axis=0), quality, cost), own)


def walk_all(family: Rules, log: Log) -> tuple[Floats, Floats]:
    """Quality and cost of every row under each rule, each of shape (n_rows, n_rules)."""
    walks = [walk(family, place, log) for place in range(family.n_rules)]
    return np.column_stack([one.quality for one in walks]), np.column_stack([one.cost for one in walks])


def reached_at(budgets: Floats, quality: Floats, cost: Floats) -> Floats:
    """Quality of each row at each budget, where points on the hull of rows x points are mixed."""
    mean = rounded(cost.mean(axis=0))
    hull = convex_hull(mean, np.round(quality.mean(axis=0), 9))
    place = np.interp(budgets, mean[hull], np.arange(len(hull)))
    low = np.minimum(place.astype(np.intp), max(len(hull) - 2, 0))
    high = np.minimum(low + 1, len(hull) - 1)
    share = place - low
    mixed: Floats = (1.0 - share) * quality[:, hull[low]] + share * quality[:, hull[high]]
    return mixed


def shrunk(rules: CrossFittedRules, fixed: CrossFittedRules) -> CrossFittedRules:
    """Gains over mixes of fixed rules at the same cost, shrunk by their noise (positive part of James and Stein's).

    Where a gain is not larger than its standard error, nothing is left of it, and the fixed rule is taken.
    """
    gain = rules.quality - reached_at(rules.cost.mean(axis=0), *fixed)
    mean, variance = gain.mean(axis=0), gain.var(axis=0) / len(gain)
    noise = np.minimum(variance / np.maximum(mean, 1e-12), mean)
    return rules._replace(quality=rules.quality - np.where(mean > 0.0, noise, 0.0))


def clearly_better(rules: CrossFittedRules, quality: Floats) -> CrossFittedRules:
    """Rules whose quality is at most that of the best single model, unless it is larger by a standard error.

    So a budget that affords that model is spent on it where nothing is clearly better, and buys no less than it has.
    """
    single = quality[:, first_largest(quality.mean(axis=0))]
    gain = rules.quality - single[:, None]
    mean, error = gain.mean(axis=0), gain.std(axis=0) / np.sqrt(len(gain))
    excess = np.where(mean <= error, mean + _MARGIN, 0.0)
    return rules._replace(quality=rules.quality - np.maximum(excess, 0.0))


def rounded(values: Floats) -> Floats:
    """Values rounded to nine significant digits of the largest: last bits make no other points."""
    unit = float(10.0 ** np.ceil(np.log10(values.max())))
    result: Floats = np.round(values / unit, 9) * unit
    return result


def choose_pool(names: Sequence[str], quality: Floats, cost: Floats, answers: Any, size: int) -> Ints:
    """At most ``size`` models, cheapest first: those of the best cascades, then those nearest the Pareto front."""
    mean, price = quality.mean(axis=0), cost.mean(axis=0)
    order = np.array(sorted(range(len(names)), key=lambda model: (price[model], names[model])))
    if len(order) <= size:
        return order
    hull = convex_hull(price, mean)
    gap = np.interp(price, price[hull], mean[hull]) - mean
    if answers is not None:
        log = Log(quality, cost, quality, cost, answers)
        prices = np.geomspace(0.01 / price.max(), 2.0 / price.min(), 3 * N_PRICES)
        used = np.unique(learn_cascades(log, prices, 3).models)
        gap[used[used >= 0]] -= 1.0
    gap[hull[0]] = -2.0  # the least budget that can be held is that of the cheapest model
    nearest = sorted(order.tolist(), key=lambda model: float(np.round(gap[model], DIGITS)))[:size]
    return np.array([model for model in order if model in nearest])
