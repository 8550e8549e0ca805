"""Rules that decide which model to ask next, and when to stop; how they are learned, compared and mixed.

The state of a row is the set of models asked so far and what they returned: whether their answers agree, whether they
could be parsed, how long (expensive) they were, and evidence such as a log-probability. A rule maps the state to the
next model, or stops with the answer of a model that was asked. There are four families of rules, each learned for the
same list of prices ``lambda`` of a unit of cost, to maximise ``quality - lambda * cost``:

* single models, and fixed cascades (ask two; if they disagree, ask a third), the best of the log at each price;
* routing: the model of the largest expected ``quality - lambda * cost``, once;
* programmes: dynamic programming over sets of asked models, with and without the features of the row. For each set one
  small ridge regression estimates, from one Gram matrix, the quality of each answer at hand, and for each further model
  and price the gain of asking it over stopping. Backward induction runs from the largest sets to the empty one.

All are judged on rows that they were not learned from; gains over fixed rules (single models and cascades), which are
chosen from few and hardly overfit, are shrunk by their noise. Rows are mixed between the points on the convex hull of
cost and quality, so that any budget is spent.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.evidence.thresholds import convex_hull
from thrifty.learners.routing.quality import ridge

N_PRICES = 20
COST_ONLY = 1e9
"""Price, in units of quality per cost of the cheapest model, at which only cost counts."""

MIN_ROWS = 500
"""Programmes are learned from this number of rows on."""

_ALPHA = 100.0
_REALISED = 0.5
"""Weight of realised quality in the targets of the programme; the rest is expected quality, which is less noisy."""

_DIGITS = 6
"""Scores are rounded before they are compared: the last bits of a BLAS decide nothing."""


@dataclass(frozen=True, eq=False)
class Log:
    """Rows with what each model of the pool returned, all arrays of shape (n_rows, n_models).

    Attributes
    ----------
    prior, expected : ndarray
        Expected quality and cost, before any model is asked.
    quality, cost : ndarray
        What was measured and billed.
    answers : ndarray of int, optional
        Equal numbers within a row are equal answers; -1 could not be parsed.
    evidence : ndarray, optional
        Numbers known after asking.
    """

    prior: Floats
    expected: Floats
    quality: Floats
    cost: Floats
    answers: Ints | None = None
    evidence: Floats | None = None

    def __len__(self) -> int:
        return len(self.prior)

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.prior.shape[1])

    def rows(self, rows: Ints | Bools) -> "Log":
        """These rows only."""
        return self._each(lambda array: array[rows])

    def take(self, models: Ints) -> "Log":
        """These models only."""
        return self._each(lambda array: array[:, models])

    def _each(self, change: Callable[[Any], Any]) -> "Log":
        arrays = self.prior, self.expected, self.quality, self.cost, self.answers, self.evidence
        changed: list[Any] = [None if array is None else change(array) for array in arrays]
        return Log(*changed)


class Step(NamedTuple):
    """What a rule decides for rows in the same state, each of shape (n_rows,)."""

    ask: Ints
    """Next model, or -1 to stop."""
    pick: Ints
    """Model whose answer is best at hand; -1 before any was asked."""
    value: Floats
    """Expected quality of that answer; NaN where the rule has no estimate."""


class Family(Protocol):
    """Rules of one kind, one for each price."""

    @property
    def n_rules(self) -> int:
        """Number of rules."""

    def suits(self, log: Log) -> bool:
        """Whether the rules are about such a log; files are checked with it."""

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide for rows at which the models ``asked`` were asked; only their columns of the log may be looked at."""

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """Whether the policy takes any answer of the next model, so that it may be passed on as it comes."""


@dataclass(frozen=True, eq=False)
class Cascades:
    """Single models and fixed cascades: ask the first two; if they agree, stop, else ask the third.

    Attributes
    ----------
    models : ndarray of shape (n_prices, 3)
        The models of each rule; a single model stands first, followed by -1.
    best : ndarray of shape (n_prices,)
        Which of the first two answers is taken where they agree.
    """

    models: Ints
    best: Ints

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.models)

    def suits(self, log: Log) -> bool:
        """Whether each rule names models of the log."""
        models = self.models
        if models.ndim != 2 or models.shape[1] != 3 or self.best.shape != (len(models),):
            return False
        single = models[:, 1] < 0
        named = [models[:, 0], self.best, *models[~single, 1:].T]
        inside = all(bool(((one >= 0) & (one < log.n_models)).all()) for one in named)
        return inside and (log.answers is not None or bool(single.all()))

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by agreement."""
        first, second, third = map(int, self.models[place])
        n_rows, unknown = len(log), np.full(len(log), np.nan)
        if first not in asked:
            return Step(np.full(n_rows, first), np.full(n_rows, -1), unknown)
        if second < 0 or third in asked:
            return Step(np.full(n_rows, -1), np.full(n_rows, first if second < 0 else third), unknown)
        if second not in asked:
            return Step(np.full(n_rows, second), np.full(n_rows, first), unknown)
        assert log.answers is not None
        agree = (log.answers[:, first] == log.answers[:, second]) & (log.answers[:, first] >= 0)
        return Step(np.where(agree, -1, third), np.full(n_rows, int(self.best[place])), unknown)

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """Single models, and the third of a cascade."""
        return bool(self.models[place, 1] < 0) or len(asked) == 2


def learn_cascades(log: Log, prices: Floats, max_asks: int) -> Cascades:
    """Best single model or cascade of the log at each price."""
    mean, cost = log.quality.mean(axis=0), log.cost.mean(axis=0)
    models = [(model, -1, -1) for model in range(log.n_models)]
    best = list(range(log.n_models))
    quality, costs = list(mean), list(cost)
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
                costs.append(cost[i] + cost[j] + float((apart * log.cost[:, k]).mean()))
    value = np.array(quality) - prices[:, None] * np.array(costs)
    found = _first_largest(value)
    return Cascades(np.array(models)[found], np.array(best)[found])


@dataclass(frozen=True, eq=False)
class Routes:
    """One model for each row: the largest ``prior - price * expected cost``."""

    prices: Floats

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.prices)

    def suits(self, log: Log) -> bool:  # noqa: ARG002
        """Whether there are prices."""
        return self.prices.ndim == 1

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide before anything is asked."""
        n_rows = len(log)
        if asked:
            return Step(np.full(n_rows, -1), np.full(n_rows, asked[0]), log.prior[:, asked[0]])
        ask = _first_largest(log.prior - self.prices[place] * log.expected)
        return Step(ask, np.full(n_rows, -1), np.full(n_rows, np.nan))

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:  # noqa: ARG002
        """Only one model is asked."""
        return True


@dataclass(frozen=True, eq=False)
class Programme:
    """Coefficients of a dynamic programme over sets of asked models.

    Attributes
    ----------
    prices : ndarray of shape (n_prices,)
        Prices of a unit of cost.
    mean_cost : ndarray of shape (n_models,)
        Mean cost of each model.
    max_asks : int
        Models that may be asked about one row.
    reads_row : bool
        Whether features of the row (expected quality and cost) are used.
    stop : tuple of ndarray of shape (n_columns, size of the set)
        For each set of 1 to ``max_asks`` models, in the order of their size: quality of each answer at hand.
    gain : tuple of ndarray of shape (n_columns, n_other_models, n_prices)
        For each set of 0 to ``max_asks - 1`` models: gain of asking each further model, before its own cost.
    """

    prices: Floats
    mean_cost: Floats
    max_asks: int
    reads_row: bool
    stop: tuple[Floats, ...]
    gain: tuple[Floats, ...]

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        return {asked: place for place, asked in enumerate(_sets(len(self.mean_cost), self.max_asks))}

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by the gain over stopping."""
        number = self._places[asked]
        columns = state_columns(log, asked, self.reads_row)
        n_rows = len(log)
        pick, value = np.full(n_rows, -1), np.full(n_rows, np.nan)
        if asked:
            values = columns @ self.stop[number - 1]
            chosen = _first_largest(values)
            pick, value = np.array(asked)[chosen], values[np.arange(n_rows), chosen]
        if len(asked) == self.max_asks:
            return Step(np.full(n_rows, -1), pick, value)
        others = _others(asked, log.n_models)
        cost = self._expected_cost(log)[:, others]
        gain = columns @ self.gain[number][:, :, place] - self.prices[place] * cost
        best = _first_largest(gain)
        go = np.round(gain[np.arange(n_rows), best], _DIGITS) > 0.0
        return Step(np.where(go | (not asked), others[best], -1), pick, value)

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:  # noqa: ARG002
        """Where one model is asked; among several the best answer is taken."""
        return self.max_asks == 1

    def _expected_cost(self, log: Log) -> Floats:
        return log.expected if self.reads_row else np.broadcast_to(self.mean_cost, log.expected.shape)

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.prices)

    def suits(self, log: Log) -> bool:
        """Whether there are coefficients for each set of models and the features of its state."""
        if self.mean_cost.shape != (log.n_models,) or not 0 < self.max_asks <= log.n_models or not len(log):
            return False
        sets, row = _sets(log.n_models, self.max_asks), log.rows(np.arange(1))
        sizes = [(state_columns(row, asked, self.reads_row).shape[1], len(asked)) for asked in sets]
        stop = [size for size in sizes if size[1]]
        gain = [(n, log.n_models - size, self.n_rules) for n, size in sizes if size < self.max_asks]
        return [one.shape for one in self.stop] == stop and [one.shape for one in self.gain] == gain


def learn_programme(log: Log, prices: Floats, max_asks: int, *, reads_row: bool) -> Programme:
    """Learn by backward induction, from the largest sets of asked models to the empty one."""
    n_rows, n_models, n_prices = len(log), log.n_models, len(prices)
    rows = np.arange(n_rows)
    empty = Programme(prices, log.cost.mean(axis=0), max_asks, reads_row, (), ())
    cost = empty._expected_cost(log)
    value: dict[
        tuple[int, ...], Floats
    ] = {}  # quality less price * cost from each set on, (n_rows, n_prices)
    stop: dict[tuple[int, ...], Floats] = {}
    gain: dict[tuple[int, ...], Floats] = {}
    for asked in reversed(_sets(n_models, max_asks)):
        columns = state_columns(log, asked, reads_row)
        at_hand = np.zeros(n_rows)
        if asked:
            stop[asked] = ridge(columns, log.quality[:, asked], _ALPHA)
            expected = columns @ stop[asked]
            chosen = _first_largest(expected)
            realised = log.quality[rows, np.array(asked)[chosen]]
            at_hand = _REALISED * realised + (1.0 - _REALISED) * expected[rows, chosen]
        if len(asked) == max_asks:
            value[asked] = np.broadcast_to(at_hand[:, None], (n_rows, n_prices))
            continue
        others = _others(asked, n_models)
        after = np.stack([value[tuple(sorted((*asked, int(other))))] for other in others], axis=1)
        target = after - at_hand[:, None, None]
        coefficients = ridge(columns, target.reshape(n_rows, -1), _ALPHA)
        estimate = (columns @ coefficients).reshape(target.shape) - cost[:, others, None] * prices
        best = _first_largest(estimate, axis=1)
        go = np.round(np.take_along_axis(estimate, best[:, None], 1)[:, 0], _DIGITS) > 0.0
        then = (
            np.take_along_axis(after, best[:, None], 1)[:, 0] - prices * log.cost[rows[:, None], others[best]]
        )
        value[asked] = np.where(go | (not asked), then, at_hand[:, None])
        gain[asked] = coefficients.reshape(-1, len(others), n_prices)
    sets = _sets(n_models, max_asks)
    return replace(
        empty,
        stop=tuple(stop[asked] for asked in sets if asked),
        gain=tuple(gain[asked] for asked in sets if len(asked) < max_asks),
    )


def _sets(n_models: int, max_asks: int) -> list[tuple[int, ...]]:
    """Sets of at most ``max_asks`` models, smaller ones first."""
    return [asked for size in range(max_asks + 1) for asked in combinations(range(n_models), size)]


def _others(asked: tuple[int, ...], n_models: int) -> Ints:
    return np.array([model for model in range(n_models) if model not in asked])


def _first_largest(values: Floats, axis: int = -1) -> Ints:
    """Place of the first value that is largest when rounded relative to the scale of quality."""
    largest: Ints = np.round(values, _DIGITS).argmax(axis=axis)
    return largest


def state_columns(log: Log, asked: tuple[int, ...], reads_row: bool) -> Floats:
    """Features of a state, shape (n_rows, n_columns): they grow with what was asked, not with the number of models.

    A constant; expected quality of the asked models, the mean over all and the best of the others; for each answer
    whether it was unparsed, its evidence, how much more it cost than expected, and the share of the other answers that
    agree with it, alone and times the expected quality.
    """
    n_rows = len(log)
    columns = [np.ones(n_rows)]
    if reads_row:
        shown = asked or range(log.n_models)
        columns += [log.prior[:, model] for model in shown]
        columns.append(log.prior.mean(axis=1))
        others = _others(asked, log.n_models)
        if asked and len(others):
            columns.append(log.prior[:, others].max(axis=1))
    surprise = [
        np.log(np.clip(log.cost[:, model] / log.expected[:, model], 0.1, 10.0)) if reads_row else None
        for model in asked
    ]
    columns += [one for one in surprise if one is not None]
    if log.evidence is not None:
        columns += [log.evidence[:, model] for model in asked]
    if log.answers is None or not asked:
        return np.column_stack(columns)
    answers = log.answers[:, asked]
    columns += list((answers < 0).T.astype(np.float64))
    if len(asked) > 1:
        equal = (answers[:, :, None] == answers[:, None, :]) & (answers >= 0)[:, :, None]
        votes = (equal.sum(axis=2) - (answers >= 0)) / (len(asked) - 1.0)
        patterns = [votes[:, 0]] if len(asked) == 2 else [*votes.T, (votes == 1.0).all(axis=1).astype(float)]
        columns += patterns
        if reads_row:
            columns += [pattern * log.prior.mean(axis=1) for pattern in patterns]
            columns += [pattern * one for pattern in patterns for one in surprise]
    return np.column_stack(columns)


# -- walking and judging -------------------------------------------------------------------------------


class Walked(NamedTuple):
    """What became of each row."""

    asked: Ints
    """Models asked, in order, -1 behind the last; shape (n_rows, most asks)."""
    model: Ints
    """Model whose answer was taken."""
    cost: Floats
    quality: Floats


def walk(family: Family, place: int, log: Log) -> Walked:
    """Follow one rule on a log that holds what every model returned."""
    n_rows = len(log)
    asked = np.full((n_rows, log.n_models), -1)
    model, cost = np.full(n_rows, -1), np.zeros(n_rows)
    groups: dict[tuple[int, ...], list[Ints]] = {(): [np.arange(n_rows)]}
    for depth in range(log.n_models + 1):
        following: dict[tuple[int, ...], list[Ints]] = {}
        for held, members in groups.items():
            rows = np.concatenate(members)
            step = family.decide(place, held, log.rows(rows))
            ends = step.ask < 0
            model[rows[ends]] = step.pick[ends]
            for following_model in np.unique(step.ask[~ends]):
                some = rows[step.ask == following_model]
                asked[some, depth] = following_model
                cost[some] += log.cost[some, following_model]
                following.setdefault(tuple(sorted((*held, int(following_model)))), []).append(some)
        groups = following
    n_asks = max(1, int((asked >= 0).sum(axis=1).max(initial=1)))
    return Walked(asked[:, :n_asks], model, cost, log.quality[np.arange(n_rows), model])


def prices_of(log: Log, n_prices: int) -> Floats:
    """Prices from 0 to that of the cheapest model's cost, geometric, and one at which only cost counts."""
    cost = log.cost.mean(axis=0)
    steps = np.geomspace(0.01 / cost.max(), 2.0 / cost.min(), n_prices - 2)
    return np.array([0.0, *steps, COST_ONLY / cost.min()])


def learn_families(log: Log, max_asks: int) -> Iterator[tuple[str, Callable[[Log], Family]]]:
    """Names of the families that suit a log, simple ones first, and how each is learned."""
    max_asks = min(max_asks, log.n_models)
    few, many = prices_of(log, N_PRICES), prices_of(log, 3 * N_PRICES)
    yield "single model", lambda rows: learn_cascades(rows, many, 1)
    if max_asks >= 3 and log.answers is not None:
        yield "fixed cascade", lambda rows: learn_cascades(rows, many, max_asks)
    yield "routing", lambda _: Routes(many)
    if max_asks >= 2 and len(log) >= MIN_ROWS and (log.answers is not None or log.evidence is not None):
        yield "programme", lambda rows: learn_programme(rows, few, max_asks, reads_row=True)
        yield "programme without features", lambda rows: learn_programme(rows, few, max_asks, reads_row=False)


class Judged(NamedTuple):
    """Rules of a family on the rows of the fit, each of shape (n_rows, n_rules)."""

    quality: Floats
    """Expected quality, judged out of fold."""
    cost: Floats
    """Cost of the rules themselves."""


def judge(learn: Callable[[Log], Family], log: Log, folds: Ints) -> tuple[Family, Judged]:
    """A family that is learned from all rows, and what is expected of its rules.

    Rules that are learned without a fold are judged on it. At the same price these may be other rules at another cost,
    such as another cascade. So the cost of a rule is that of the rule itself, and its quality what the family reaches
    out of fold at this cost.
    """
    family = learn(log)
    own = walk_all(family, log)[1]
    quality, cost = np.empty_like(own), np.empty_like(own)
    for fold in np.unique(folds):
        held = folds == fold
        quality[held], cost[held] = walk_all(learn(log.rows(~held)), log.rows(held))
    return family, Judged(reached_at(own.mean(axis=0), quality, cost), own)


def walk_all(family: Family, log: Log) -> tuple[Floats, Floats]:
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


def shrunk(judged: Judged, fixed: Judged) -> Judged:
    """Gains over mixes of fixed rules at the same cost, shrunk by their noise (positive part of James and Stein's).

    Where a gain is not larger than its standard error, nothing is left of it, and the fixed rule is taken.
    """
    gain = judged.quality - reached_at(judged.cost.mean(axis=0), *fixed)
    mean, variance = gain.mean(axis=0), gain.var(axis=0) / len(gain)
    noise = np.minimum(variance / np.maximum(mean, 1e-12), mean)
    return judged._replace(quality=judged.quality - np.where(mean > 0.0, noise, 0.0))


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
    nearest = sorted(order.tolist(), key=lambda model: float(np.round(gap[model], _DIGITS)))[:size]
    return np.array([model for model in order if model in nearest])
