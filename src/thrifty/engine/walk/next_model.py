"""Rules that decide which model a row asks next, and when it stops: the rules of a router.

A purchase is the answer of a model here. The state of a row is the set of models asked so far and what they returned:
whether their answers agree, whether they could be parsed, how long (expensive) they were, and how sure they are of
them. A rule maps the state to a ``Step``: the next model to ask, or a stop with the answer of a model that was asked.
``walk`` follows a rule over a ``Log`` that holds what every model returned; ``ModelSession`` does the same for one row
whose answers come one after another. ``learners/routing/learn.py`` learns the rules.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.walk.calibration import UNPARSED
from thrifty.engine.walk.policy import SLACK

DIGITS = 6
"""Scores are rounded before they are compared: the last bits of a BLAS decide nothing."""

N_ANSWERS = 10
"""Different answers that a model might give, where votes are combined without class probabilities."""

PENALTY = 10
"""A row that is not solved in time counts as so many times the cutoff (PAR10)."""

LEAST_CHANCE = 1e-4
"""Probability of a class below which models are not told apart."""
_NO_MODEL, _UNKNOWN = np.array([-1]), np.array([np.nan])

_HINGES = (0.5, 0.7, 0.85, 0.95)
"""Confidences at which the gain of asking on may bend."""

COST_RATIOS = (0.2, 5.0)
"""By what factor the cost of a model may be expected to change with what the others returned."""


@dataclass(frozen=True, eq=False)
class Pooling:
    """How class probabilities of several models are combined: a logarithmic opinion pool of each set of models.

    Attributes
    ----------
    n_models, max_asks : int
        Number of models, and size of the largest sets.
    weights : tuple of ndarray of shape (size of the set,)
        For each set of 1 to ``max_asks`` models, in the order of their size: exponents of their probabilities.
    """

    n_models: int
    max_asks: int
    weights: tuple[Floats, ...]

    @cached_property
    def of(self) -> dict[tuple[int, ...], Floats]:
        """Weights by set."""
        return dict(zip(sets_of(self.n_models, self.max_asks)[1:], self.weights, strict=True))

    def suits(self, log: "Log") -> bool:
        """True if there are weights for each set of models of the log."""
        sizes = [(len(asked),) for asked in sets_of(self.n_models, self.max_asks)[1:]]
        return self.n_models == log.n_models and [one.shape for one in self.weights] == sizes

    def combine(self, classes: Floats, asked: tuple[int, ...]) -> Floats:
        """Combined class probabilities of rows, from those of the models asked, shape (n_rows, n_classes)."""
        weights = self.of[asked]
        score = weights[0] * log_chance(classes[:, asked[0]])
        for model, weight in zip(asked[1:], weights[1:], strict=True):
            score += weight * log_chance(classes[:, model])
        chance: Floats = np.exp(score - score.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        return chance


def log_chance(chance: Floats) -> Floats:
    """Logarithm of probabilities, of at least ``LEAST_CHANCE``."""
    result: Floats = np.log(np.maximum(chance, LEAST_CHANCE))
    return result


@dataclass(frozen=True, eq=False)
class ColumnSets:
    """Columns that cost, bought in groups, and what is expected of each model at each set of groups that is held.

    Purchases are numbered from the models on: group ``g`` is purchase ``n_models + g``. Where costs are run times, the
    last groups are early runs: they bring no columns, but solve some rows in seconds, before columns are computed.

    Attributes
    ----------
    names : tuple of str
        The groups.
    groups : tuple of ndarray
        Columns that each delivers.
    free : ndarray of int
        Columns that cost nothing.
    sets : ndarray of shape (n_sets, n_groups), bool
        Sets of groups that a row may hold; the first one is empty.
    predictors : tuple
        For each set, what predicts quality and cost of the models from its columns and the free ones; None without any.
    means : ndarray of shape (2, n_models)
        Mean quality and cost of the models, where nothing is known.
    runs : tuple of (int, float)
        Model and seconds of each early run.
    """

    names: tuple[str, ...]
    groups: tuple[Ints, ...]
    free: Ints
    sets: Bools
    predictors: tuple[Any, ...]
    means: Floats
    runs: tuple[tuple[int, float], ...] = ()

    @property
    def n_delivering(self) -> int:
        """Number of groups that bring columns."""
        return len(self.names) - len(self.runs)

    def early(self, quality: Floats, seconds: Floats) -> tuple[Floats, Bools]:
        """Seconds of early runs on rows, and whether they solve them, each of shape (n_rows, n_runs)."""
        taken = np.empty((len(seconds), len(self.runs)))
        solved = np.zeros(taken.shape, dtype=bool)
        for place, (model, limit) in enumerate(self.runs):
            taken[:, place] = np.minimum(seconds[:, model], limit)
            solved[:, place] = (seconds[:, model] <= limit) & (quality[:, model] > 0.0)
        return taken, solved

    @cached_property
    def places(self) -> dict[tuple[int, ...], int]:
        """Place of each set, by the numbers of its groups."""
        return {tuple(np.flatnonzero(held).tolist()): place for place, held in enumerate(self.sets)}

    def columns(self, held: Sequence[int]) -> Ints:
        """Columns of a row that holds some groups, the free ones included, in rising order."""
        parts = [self.free, *(self.groups[group] for group in held)]
        return np.sort(np.concatenate(parts)).astype(np.intp)

    def place(self, asked: Sequence[int]) -> int:
        """Place of the set that a row holds after some purchases; of the largest one in it that is known."""
        n_models = self.means.shape[1]
        held = tuple(one - n_models for one in sorted(asked) if one >= n_models)
        if held in self.places:
            return self.places[held]
        return max((len(one), place) for one, place in self.places.items() if set(one) <= set(held))[1]

    def predict(self, place: int, cells: Floats) -> tuple[Floats, Floats]:
        """Expected quality and cost of each model, of rows that hold a set."""
        predictor = self.predictors[place]
        if predictor is None:
            quality, cost = np.repeat(self.means[:, None], len(cells), axis=1)
            return quality, cost
        quality, cost = predictor.predict(cells[:, self.columns(np.flatnonzero(self.sets[place]).tolist())])
        return quality, cost

    def problem(self, n_models: int) -> str | None:
        """Reason why these cannot be the columns of a router, or None."""
        n_groups, n_sets = len(self.names), len(self.sets)
        if (
            self.sets.shape != (n_sets, n_groups)
            or not n_sets
            or self.sets[0].any()
            or len(self.places) < n_sets
        ):
            return "sets of columns must be different ones, the empty one first"
        if (
            n_groups != len(self.groups)
            or not all(0 <= model < n_models and limit > 0.0 for model, limit in self.runs)
            or len(self.runs) > n_groups
            or len(self.predictors) != n_sets
            or self.means.shape != (2, n_models)
        ):
            return "columns must be known of each purchase, and a predictor of each set"
        sizes = [
            (None if one is None else len(one.centre), len(self.columns(np.flatnonzero(held).tolist())))
            for one, held in zip(self.predictors, self.sets, strict=True)
        ]
        return (
            None
            if all(has in (None, wants) for has, wants in sizes)
            else "predictors must read the columns held"
        )


@dataclass(frozen=True, eq=False)
class Log:
    """Rows with what each model of the pool returned, all arrays of shape (n_rows, n_models).

    Where columns of the rows cost, ``expected`` and ``cost`` have a further column for each group that is bought, and
    ``prior`` and ``expected`` are those of a row that holds the free columns only (``knowing``).

    Attributes
    ----------
    prior, expected : ndarray
        Expected quality and cost, before any model is asked.
    quality, cost : ndarray
        Measured quality and billed cost.
    answers : ndarray of int, optional
        Equal numbers within a row are equal answers; -1 could not be parsed, -2 is not compared.
    evidence : ndarray, optional
        Confidence of each answer, known after asking: the calibrated probability that it is right.
    classes : ndarray of shape (n_rows, n_models, n_classes), optional
        Calibrated class probabilities; ``answers`` are the classes. With one class, numbers that were predicted, in
        units in which their squared error is what quality lacks to 1; ``answers`` are not compared.
    after : ndarray of shape (n_models, n_models), optional
        Share of its cost that a model (row) takes where another one (column) was asked before.
    pooling : Pooling, optional
        How class probabilities of several models are combined.
    costs, expected_costs : ndarray of shape (n_rows, n_models, n_resources), optional
        Costs in each of several resources; ``cost`` and ``expected`` are then their sums at exchange rates.
    rates : ndarray of shape (n_resources,), optional
        Exchange rates at which ``cost`` and ``expected`` are the sums of those in several resources.
    delays : ndarray of int, optional
        Places of resources that are delays: of models that are asked at once the longest one counts.
    columns : ColumnSets, optional
        Columns that cost, and what is expected at each set of them.
    cells : ndarray of shape (n_rows, n_columns), optional
        All columns of the rows, those that cost included; NaN where they were not bought.
    at_sets : ndarray of shape (n_rows, n_sets, 2, n_models), optional
        Expected quality and cost at each set of columns, out of fold; computed from ``cells`` otherwise.
    cutoff : float, optional
        Seconds that a row may take in all, where costs are run times: ``timed`` then says its quality.
    solved_by : ndarray of shape (n_rows, n_groups), bool, optional
        Groups of columns whose computation answers the row.
    """

    prior: Floats
    expected: Floats
    quality: Floats
    cost: Floats
    answers: Ints | None = None
    evidence: Floats | None = None
    classes: Floats | None = None
    after: Floats | None = None
    pooling: Pooling | None = None
    costs: Floats | None = None
    expected_costs: Floats | None = None
    rates: Floats | None = None
    delays: Ints | None = None
    columns: ColumnSets | None = None
    cells: Floats | None = None
    at_sets: Floats | None = None
    cutoff: float | None = None
    solved_by: Bools | None = None

    def __len__(self) -> int:
        return len(self.prior)

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.prior.shape[1])

    @property
    def n_purchases(self) -> int:
        """Number of purchases: the models, and groups of columns."""
        return int(self.cost.shape[1])

    def rows(self, rows: Ints | Bools) -> "Log":
        """These rows only."""
        of_rows = self._each(lambda array: array[rows])
        if self.columns is None:
            return of_rows
        parts = {name: getattr(self, name) for name in ("cells", "at_sets", "solved_by")}
        return replace(of_rows, **{name: one[rows] for name, one in parts.items() if one is not None})

    @property
    def second(self) -> float:
        """Quality that a second takes, beside those of the model that answers: 0 where costs are no run times."""
        return 0.0 if self.cutoff is None else 1.0 / (PENALTY * self.cutoff)

    def is_solved_by(self, purchase: int, rows: Ints) -> Bools:
        """Mask of the rows that a purchase answers although it is no model."""
        group = purchase - self.n_models
        solved: Bools = np.zeros(len(rows), dtype=bool)
        if group >= 0 and self.solved_by is not None:
            solved = self.solved_by[rows, group]
        return solved

    def run(self, model: int, rows: Ints, limit: Floats) -> tuple[Floats, Bools]:
        """Seconds that a model takes on rows within a limit, and whether it solves them."""
        taken, quality = self.cost[rows, model], self.quality[rows, model]
        return np.minimum(taken, limit), (taken <= limit) & ~(quality <= 0.0)

    def outcome(self, model: Ints, cost: Floats, unsolved: Bools) -> tuple[Floats, Floats]:
        """Quality and cost of rows that are answered by some purchases, after paying some cost."""
        is_model = (model >= 0) & (model < self.n_models)
        quality = np.where(is_model, self.quality[np.arange(len(self)), np.where(is_model, model, 0)], 1.0)
        quality = np.where(model < 0, self.quality[:, -1], quality)
        if self.cutoff is None:
            return quality, cost
        in_time = (quality > 0.0) & (cost <= self.cutoff) & ~unsolved
        timed = np.where(np.isnan(quality), np.nan, np.where(in_time, 1.0 - self.second * cost, 0.0))
        return timed, np.minimum(cost, self.cutoff)

    def knowing(self, asked: Sequence[int]) -> "Log":
        """The log with what is expected of rows that made some purchases, by the columns that they hold."""
        if self.columns is None:
            return self
        place, n_models = self.columns.place(asked), self.n_models
        if self.at_sets is not None:
            prior, cost = self.at_sets[:, place, 0], self.at_sets[:, place, 1]
        elif self.cells is not None:
            prior, cost = self.columns.predict(place, self.cells)
        else:
            return self
        return replace(self, prior=prior, expected=np.column_stack([cost, self.expected[:, n_models:]]))

    def take(self, models: Ints) -> "Log":
        """These models only."""
        after = None if self.after is None else self.after[np.ix_(models, models)]
        return replace(self._each(lambda array: array[:, models]), after=after, pooling=None)

    def _each(self, change: Callable[[Any], Any]) -> "Log":
        names = ("prior", "expected", "quality", "cost", "answers", "evidence", "classes")
        arrays = {name: getattr(self, name) for name in (*names, "costs", "expected_costs")}
        return replace(self, **{name: change(array) for name, array in arrays.items() if array is not None})

    def at_rates(self, rates: Floats) -> "Log":
        """The log with costs that are the sums of those in several resources at other exchange rates."""
        assert self.costs is not None  # there are several
        assert self.expected_costs is not None
        cost, expected = ((each * rates).sum(axis=2) for each in (self.costs, self.expected_costs))
        return replace(self, cost=cost, expected=expected, rates=rates)

    def saved_at_once(self, models: Sequence[int]) -> Floats:
        """What each row pays less where some models are asked at once: only the longest delay counts."""
        assert self.costs is not None
        assert self.rates is not None
        assert self.delays is not None
        waits = self.costs[:, list(models)][:, :, self.delays]
        saved: Floats = (waits.sum(axis=1) - waits.max(axis=1)) @ self.rates[self.delays]
        return saved

    def share_after(self, model: int, asked: Sequence[int]) -> float:
        """Share of its cost that a model takes after others."""
        if self.after is None or not len(asked):
            return 1.0
        return float(self.after[model, list(asked)].min())

    def shares_after(self, asked: Sequence[int]) -> Floats:
        """Share of its cost that each model takes after others."""
        return np.array([self.share_after(model, asked) for model in range(self.n_purchases)])


class Step(NamedTuple):
    """Decisions of a rule for rows in the same state, each of shape (n_rows,)."""

    ask: Ints
    """Next model, or -1 to stop."""
    answer: Ints
    """Model whose answer is best at hand; -1 before any was asked."""
    value: Floats
    """Expected quality of that answer; NaN where the rule has no estimate."""
    bar: Floats | None = None
    """Confidence from which on the rule stops, where it compares with one."""
    share: float = 1.0
    """Share of the time left that the model may take, where costs are run times."""


def nothing_asked(log: Log, first: int) -> Step:
    """The step of rows that all ask the same model first."""
    if len(log) == 1:  # a session is as fast as this is
        return Step(np.array([first]), _NO_MODEL, _UNKNOWN)
    n_rows = len(log)
    return Step(np.full(n_rows, first), np.full(n_rows, -1), np.full(n_rows, np.nan))


class Rules(Protocol):
    """Rules of one kind, one for each price."""

    @property
    def n_rules(self) -> int:
        """Number of rules."""

    @property
    def reads_row(self) -> bool:
        """True if the rules look at what is expected of a row before any model is asked."""

    def suits(self, log: Log) -> bool:
        """True if the rules fit a log of this shape; files are checked with it."""

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide for rows at which the models ``asked`` were asked; only their columns of the log may be looked at."""

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """True if any answer of the next model is taken, so that it may be streamed to the caller."""


@dataclass(frozen=True, eq=False)
class Cascades:
    """Single models and fixed cascades: ask the first two; if they agree, stop, else ask the third.

    Attributes
    ----------
    models : ndarray of shape (n_prices, 3)
        The models of each rule; a single model comes first, followed by -1.
    best : ndarray of shape (n_prices,)
        Which of the first two answers is taken where they agree.
    at_once : ndarray of int of shape (n_prices,), optional
        Number of first models that are asked at once, so that they wait together; None asks one after another.
    """

    models: Ints
    best: Ints
    at_once: Ints | None = None

    reads_row: ClassVar[bool] = False

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.models)

    def suits(self, log: Log) -> bool:
        """True if each rule names models of the log."""
        models = self.models
        if models.ndim != 2 or models.shape[1] != 3 or self.best.shape != (len(models),):
            return False
        single = models[:, 1] < 0
        named = [models[:, 0], self.best, *models[~single, 1:].T]
        inside = all(bool(((models >= 0) & (models < log.n_models)).all()) for models in named)
        return (
            inside
            and (log.answers is not None or bool(single.all()))
            and _suits_at_once(self.at_once, models, log)
        )

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by agreement."""
        first, second, third = map(int, self.models[place])
        n_rows, unknown = len(log), np.full(len(log), np.nan)
        if first not in asked:
            return nothing_asked(log, first)
        if second < 0 or (third in asked and at_once(self, place) < len(self.models[place])):
            return Step(np.full(n_rows, -1), np.full(n_rows, first if second < 0 else third), unknown)
        if second not in asked:
            return Step(np.full(n_rows, second), np.full(n_rows, first), unknown)
        assert log.answers is not None
        agree = (log.answers[:, first] == log.answers[:, second]) & (log.answers[:, first] >= 0)
        if at_once(self, place) == len(
            self.models[place]
        ):  # all are asked, whether or not the first two agree
            if third not in asked:
                return Step(np.full(n_rows, third), np.full(n_rows, first), unknown)
            return Step(np.full(n_rows, -1), np.where(agree, int(self.best[place]), third), unknown)
        return Step(np.where(agree, -1, third), np.full(n_rows, int(self.best[place])), unknown)

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """True for single models, and for the third of a cascade."""
        return bool(self.models[place, 1] < 0) or len(asked) == 2


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Sequences of models: ask one after another until the answer at hand is sure enough.

    The answer is that of the last model, or the best one at hand given all that was returned (``combines``).

    Attributes
    ----------
    models : ndarray of shape (n_rules, max_asks)
        The models of each rule in their order, -1 behind the last.
    cuts : ndarray of shape (n_rules, max_asks - 1)
        A row goes on to the next model iff the confidence of the answer at hand is not above this.
    combines : bool
        Whether answers are combined.
    at_once : ndarray of int of shape (n_rules,), optional
        Number of first models that are asked at once, so that they wait together; None asks one after another.
    """

    models: Ints
    cuts: Floats
    combines: bool = True
    at_once: Ints | None = None

    reads_row: ClassVar[bool] = False

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.models)

    def suits(self, log: Log) -> bool:
        """True if each rule names different models of the log, and the log has their confidence."""
        models, shape = self.models, self.models.shape
        if log.evidence is None or len(shape) != 2 or self.cuts.shape != (shape[0], shape[1] - 1):
            return False
        is_model = models >= 0
        named = [line[line >= 0] for line in models]
        return (
            bool(((models >= -1) & (models < log.n_models)).all() and is_model[:, 0].all())
            and bool((is_model[:, 1:] <= is_model[:, :-1]).all())
            and all(len(np.unique(line)) == len(line) for line in named)
            and not np.isnan(self.cuts).any()
            and _suits_at_once(self.at_once, models, log)
        )

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by the confidence of the answer at hand."""
        sequence, n_rows, n_asked = self.models[place], len(log), len(asked)
        if not asked:
            return nothing_asked(log, int(sequence[0]))
        answer, confidence = best_at_hand(log, asked if self.combines else (int(sequence[n_asked - 1]),))
        if n_asked == len(sequence) or sequence[n_asked] < 0:
            return Step(np.full(n_rows, -1), answer, confidence)
        if n_asked < at_once(self, place):
            return Step(np.full(n_rows, sequence[n_asked]), answer, confidence)
        bar = self.cuts[place, n_asked - 1]
        ask = np.where(confidence > bar, -1, sequence[n_asked])
        return Step(ask, answer, confidence, np.full(n_rows, bar))

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """True for the last model of a sequence, unless its answer is combined with others."""
        n_models = int((self.models[place] >= 0).sum())
        return len(asked) == n_models - 1 and (not self.combines or n_models == 1)


def at_once(rules: Rules, place: int) -> int:
    """Number of first models that a rule asks at once; 1 where it asks one after another."""
    numbers: Ints | None = getattr(getattr(rules, "rules", rules), "at_once", None)
    return 1 if numbers is None else int(numbers[place])


def rest_of_round(rules: Rules, place: int, asked: tuple[int, ...], row: Log) -> list[int]:
    """Models that a rule asks at once with the last of those asked: what these answer decides nothing."""
    number, rest = at_once(rules, place), list[int]()
    while len(asked) + len(rest) < number:
        ask = int(rules.decide(place, tuple(sorted((*asked, *rest))), row).ask[0])
        if ask < 0:
            break
        rest.append(ask)
    return rest


def _suits_at_once(numbers: Ints | None, models: Ints, log: Log) -> bool:
    """True if rules ask as many models at once as they have, and the log knows delays where it is more than one."""
    if numbers is None:
        return True
    is_within = (numbers >= 1) & (numbers <= (models >= 0).sum(axis=1))
    return numbers.shape == (len(models),) and bool(is_within.all()) and log.delays is not None


@dataclass(frozen=True, eq=False)
class Routes:
    """One model for each row: the largest ``prior - price * expected cost``."""

    prices: Floats

    reads_row: ClassVar[bool] = True

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.prices)

    def suits(self, log: Log) -> bool:  # noqa: ARG002
        """True if the prices are a vector."""
        return self.prices.ndim == 1

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide before anything is asked."""
        n_rows = len(log)
        if asked:
            return Step(np.full(n_rows, -1), np.full(n_rows, asked[0]), log.prior[:, asked[0]])
        ask = first_largest(log.prior - self.prices[place] * log.expected)
        return Step(ask, np.full(n_rows, -1), np.full(n_rows, np.nan))

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:  # noqa: ARG002
        """True: only one model is asked."""
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
    reads_confidence : bool
        Whether evidence is the calibrated confidence of answers; programmes of version 0.3 read it as it was given.
    further : tuple of ndarray of shape (n_columns, n_other_models)
        For each set of 1 to ``max_asks - 1`` models: cost of each further model, as a multiple of what was expected.
        Empty without evidence, where costs do not vary, and in programmes of version 0.3, which keep what was expected.
    """

    prices: Floats
    mean_cost: Floats
    max_asks: int
    reads_row: bool
    stop: tuple[Floats, ...]
    gain: tuple[Floats, ...]
    reads_confidence: bool = False
    further: tuple[Floats, ...] = ()

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        return {asked: place for place, asked in enumerate(sets_of(len(self.mean_cost), self.max_asks))}

    @cached_property
    def _first(self) -> Ints:
        """First model to ask at each price, where nothing of the row is read."""
        return first_largest(self.gain[0][0].T - self.prices[:, None] * self.mean_cost)

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by the gain over stopping."""
        if not asked and not self.reads_row:
            return nothing_asked(log, int(self._first[place]))
        number = self._places[asked]
        columns = self.columns(log, asked)
        n_rows = len(log)
        answer, value = np.full(n_rows, -1), np.full(n_rows, np.nan)
        if asked:
            values = columns @ self.stop[number - 1]
            chosen = first_largest(values)
            answer, value = np.array(asked)[chosen], values[np.arange(n_rows), chosen]
        if len(asked) == self.max_asks:
            return Step(np.full(n_rows, -1), answer, value)
        others = others_of(asked, log.n_models)
        cost = self.expected_cost(log, asked)[:, others]
        if asked and self.further:
            cost = cost * np.clip(columns @ self.further[number - 1], *COST_RATIOS)
        gain = columns @ self.gain[number][:, :, place] - self.prices[place] * cost
        best = first_largest(gain)
        go = np.round(gain[np.arange(n_rows), best], DIGITS) > 0.0
        return Step(np.where(go | (not asked), others[best], -1), answer, value)

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:  # noqa: ARG002
        """True if one model is asked; among several the best answer is taken."""
        return self.max_asks == 1

    def expected_cost(self, log: Log, asked: tuple[int, ...] = ()) -> Floats:
        """Expected cost of each model after others, shape (n_rows, n_models)."""
        cost = log.expected if self.reads_row else np.broadcast_to(self.mean_cost, log.expected.shape)
        return cost if log.after is None else cost * log.shares_after(asked)

    def columns(self, log: Log, asked: tuple[int, ...]) -> Floats:
        """Features of a state that the programme reads."""
        columns = state_columns(log, asked, self.reads_row, reads_evidence=not self.reads_confidence)
        if asked and self.further and not self.reads_row:
            columns = np.column_stack([columns, *cost_surprises(log, asked, self.mean_cost)])
        return (
            np.column_stack([columns, *confidence_columns(log, asked)]) if self.reads_confidence else columns
        )

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return len(self.prices)

    def suits(self, log: Log) -> bool:
        """True if there are coefficients for each set of models and the features of its state."""
        if self.mean_cost.shape != (log.n_models,) or not 0 < self.max_asks <= log.n_models or not len(log):
            return False
        sets, row = sets_of(log.n_models, self.max_asks), log.rows(np.arange(1))
        if self.reads_confidence and log.evidence is None:
            return False
        sizes = [(self.columns(row, asked).shape[1], len(asked)) for asked in sets]
        stop = [size for size in sizes if size[1]]
        gain = [(n, log.n_models - size, self.n_rules) for n, size in sizes if size < self.max_asks]
        further = [size[:2] for size in gain[1:]] if self.further else []
        return all(
            [array.shape for array in arrays] == sizes
            for arrays, sizes in ((self.stop, stop), (self.gain, gain), (self.further, further))
        )


class _OfRules:
    """Rules that decide by other rules."""

    rules: Any

    @property
    def n_rules(self) -> int:
        """Number of rules."""
        return self.rules.n_rules

    @property
    def reads_row(self) -> bool:
        """Whether the rules look at what is expected of a row."""
        return self.rules.reads_row


@dataclass(frozen=True, eq=False)
class AtRates(_OfRules):
    """Rules that look at costs in several resources, at exchange rates of their own.

    Attributes
    ----------
    rules : Routes or Programme
        The rules.
    rates : ndarray of shape (n_resources,)
        The exchange rates.
    """

    rules: Routes | Programme
    rates: Floats

    def suits(self, log: Log) -> bool:
        """True if the log has costs in as many resources, and the rules suit it."""
        is_priced = log.costs is not None and self.rates.shape == log.costs.shape[2:]
        return is_priced and self.rules.suits(log.at_rates(self.rates))

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide at the exchange rates."""
        return self.rules.decide(place, asked, log.at_rates(self.rates))

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """True if any answer of the next model is taken."""
        return self.rules.takes_next(place, asked)


@dataclass(frozen=True, eq=False)
class Capped(_OfRules):
    """Rules under which no row pays more than a cap.

    A row stops where the next model could cost more than is left; if that is its first one, it asks the model of the
    largest expected quality that fits, and stops.

    Attributes
    ----------
    rules : Rules
        The rules.
    prices : ndarray of shape (n_models, n_resources)
        What a call of each model costs.
    limits : ndarray of shape (n_resources,)
        The cap; infinite where a resource has none.
    """

    rules: Cascades | Thresholds | Routes | Programme | AtRates
    prices: Floats
    limits: Floats

    def suits(self, log: Log) -> bool:
        """True if the rules suit the log, and some model costs no more than the cap."""
        is_shaped = self.prices.shape == (log.n_models, len(self.limits))
        return is_shaped and bool(self.fits(0, (), log).any()) and self.rules.suits(log)

    def fits(self, place: int, asked: tuple[int, ...], log: Log) -> Bools:
        """Mask of the models whose price is within what a rule leaves of the cap after others."""
        total = self.prices[list(asked)].sum(axis=0) + self.prices
        if log.delays is not None and 0 < len(asked) < at_once(self.rules, place):
            waits = self.prices[:, log.delays]
            total[:, log.delays] = np.maximum(waits[list(asked)].max(axis=0), waits)
        elif log.delays is not None and at_once(self.rules, place) > 1 and asked:
            # What is asked later waits for the first round to end.
            together = list(self.rules.models[place][: at_once(self.rules, place)])  # type: ignore[union-attr]
            waits = self.prices[:, log.delays]
            saved = waits[together].sum(axis=0) - waits[together].max(axis=0)
            total[:, log.delays] -= saved
        fits: Bools = np.all(total <= self.limits * (1 + SLACK), axis=1)
        return fits

    def decide(self, place: int, asked: tuple[int, ...], log: Log) -> Step:
        """Decide by the rules, within the cap."""
        step, fits = self.rules.decide(place, asked, log), self.fits(place, asked, log)
        if asked:
            first = self.rules.decide(place, (), log).ask
            replaced = ~self.fits(place, (), log)[first]
            stops = (step.ask >= 0) & ~fits[np.maximum(step.ask, 0)]
            answer = np.where(replaced, asked[0], np.where(step.answer < 0, asked[0], step.answer))
            return step._replace(ask=np.where(stops | replaced, -1, step.ask), answer=answer)
        best = first_largest(np.where(fits, log.prior, -np.inf))
        return step._replace(ask=np.where(fits[step.ask], step.ask, best))

    def takes_next(self, place: int, asked: tuple[int, ...]) -> bool:
        """True if any answer of the next model is taken."""
        return self.rules.takes_next(place, asked)


def sets_of(n_models: int, max_asks: int) -> list[tuple[int, ...]]:
    """Sets of at most ``max_asks`` models, smaller ones first."""
    return [asked for size in range(max_asks + 1) for asked in combinations(range(n_models), size)]


def others_of(asked: tuple[int, ...], n_models: int) -> Ints:
    """Models that are not among those that were asked."""
    return np.array([model for model in range(n_models) if model not in asked])


def first_largest(values: Floats, axis: int = -1) -> Ints:
    """Place of the first value that is largest when rounded relative to the scale of quality."""
    largest: Ints = np.round(values, DIGITS).argmax(axis=axis)
    return largest


def answers_at_hand(log: Log, asked: tuple[int, ...], pooled: Floats | None = None) -> Floats:
    """Probability that each answer at hand is right, shape (n_rows, n_asked): of all that was returned so far.

    Class probabilities are combined by the logarithmic pool of the log, or averaged where it has none. Without them,
    answers are votes whose weights are the log-odds of their confidence (naive Bayes over ``N_ANSWERS`` answers). An
    answer that could not be parsed is wrong.
    Of numbers it is the expected quality: the target lies around each of them with the error that is expected of its
    model, and counts by the inverse of that error.
    """
    assert log.evidence is not None
    models = list(asked)
    confidence = log.evidence[:, models]
    chance = confidence
    if log.answers is not None:
        answers = log.answers[:, models]
        chance = np.where(answers == UNPARSED, 0.0, confidence)
        if len(models) > 1:
            if log.classes is None:
                chance = _votes(answers, chance)
            elif log.classes.shape[2] == 1:
                chance = _mean_of_numbers(_differences(log, models), chance)
            else:
                chance = _of_answers(_pooled(log, asked) if pooled is None else pooled, answers, chance)
    rounded: Floats = np.round(chance, DIGITS)
    return rounded


def _pooled(log: Log, asked: tuple[int, ...]) -> Floats:
    """Combined class probabilities of the models asked, shape (n_rows, n_classes)."""
    assert log.classes is not None
    if len(asked) == 1:
        return log.classes[:, asked[0]]
    if log.pooling is not None and asked in log.pooling.of:
        return log.pooling.combine(log.classes, asked)
    total = log.classes[:, asked[0]]
    for model in asked[1:]:
        total = total + log.classes[:, model]
    return total / len(asked)


def _of_answers(pooled: Floats, answers: Ints, alone: Floats) -> Floats:
    """Combined probability of each answer."""
    return np.where(answers >= 0, pooled[np.arange(len(answers))[:, None], np.maximum(answers, 0)], alone)


def _differences(log: Log, models: list[int]) -> Floats:
    """Squared differences between numbers that models predict, at most 1, shape (n_rows, n_asked, n_asked)."""
    assert log.classes is not None
    shown = log.classes[:, models, 0]
    return np.nan_to_num(np.minimum(np.square(shown[:, :, None] - shown[:, None, :]), 1.0))


def _mean_of_numbers(differences: Floats, alone: Floats) -> Floats:
    """Expected quality of each number where the target lies around all of them."""
    error = 1.0 - alone
    weights = 1.0 / np.maximum(error, 1e-3)
    weights /= weights.sum(axis=1, keepdims=True)
    expected: Floats = (weights[:, None, :] * (differences + error[:, None, :])).sum(axis=2)
    return 1.0 - expected


def _votes(answers: Ints, alone: Floats) -> Floats:
    """Posterior of each answer, where wrong ones are equally likely and models err independently."""
    is_parsed = answers != UNPARSED
    confidence = np.clip(alone, 1e-4, 1.0 - 1e-4)
    weights = np.where(is_parsed, np.log(confidence / (1.0 - confidence) * (N_ANSWERS - 1)), 0.0)
    equal = (answers[:, :, None] == answers[:, None, :]) & (answers >= 0)[:, :, None]
    equal |= np.eye(answers.shape[1], dtype=bool) & is_parsed[:, :, None]
    odds = np.where(is_parsed, np.exp((equal * weights[:, None, :]).sum(axis=2)), 0.0)
    n_equal = np.maximum(equal.sum(axis=2), 1)
    n_other = np.maximum(N_ANSWERS - (is_parsed / n_equal).sum(axis=1), 1.0)
    posterior: Floats = odds / ((odds / n_equal).sum(axis=1) + n_other)[:, None]
    return posterior


def best_at_hand(log: Log, asked: tuple[int, ...]) -> tuple[Ints, Floats]:
    """Model whose answer is most probably right, and that probability, each of shape (n_rows,)."""
    chance = answers_at_hand(log, asked)
    if len(asked) == 1:
        return np.repeat(asked, len(log)), chance[:, 0]
    best = chance.argmax(axis=1)
    return np.array(asked)[best], chance[np.arange(len(log)), best]


def confidence_columns(log: Log, asked: tuple[int, ...]) -> list[Floats]:
    """Features of how sure the answers at hand are: a linear spline of the surest, and each alone and combined.

    Of class probabilities also the margin to the second class and the entropy; of numbers how far they are apart.
    """
    if not asked:
        return []
    assert log.evidence is not None
    pooled = None if log.classes is None or log.classes.shape[2] == 1 else _pooled(log, asked)
    chance, models = answers_at_hand(log, asked, pooled), list(asked)
    best = chance.max(axis=1)
    columns = [best, best * best, *(np.maximum(best - hinge, 0.0) for hinge in _HINGES)]
    if len(asked) > 1:
        columns += [*chance.T, *log.evidence[:, models].T]
    if log.classes is not None and log.classes.shape[2] == 1:
        above = np.triu_indices(len(models), 1)
        columns += [*np.sqrt(_differences(log, models)[:, *above]).T]
    elif pooled is not None:
        second = np.partition(pooled, -2, axis=1)[:, -2]
        columns += [best - second, -(pooled * np.log(np.maximum(pooled, 1e-9))).sum(axis=1)]
    return columns


def cost_surprises(log: Log, asked: tuple[int, ...], expected: Floats) -> list[Floats]:
    """Logarithm of what each answer cost, as a multiple of what was expected: long answers tell hard rows."""
    return [np.log(np.clip(log.cost[:, model] / expected[..., model], 0.1, 10.0)) for model in asked]


def state_columns(
    log: Log, asked: tuple[int, ...], reads_row: bool, *, reads_evidence: bool = True
) -> Floats:
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
        others = others_of(asked, log.n_models)
        if asked and len(others):
            columns.append(log.prior[:, others].max(axis=1))
    surprise = cost_surprises(log, asked, log.expected) if reads_row else []
    columns += surprise
    if log.evidence is not None and reads_evidence:
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
            columns += [pattern * column for pattern in patterns for column in surprise]
    return np.column_stack(columns)


# -- rows through rules ----------------------------------------------------------------------------


class Replay(NamedTuple):
    """Models asked, model answered, cost and quality per row of a log."""

    asked: Any
    """Models asked, in order; shape (n_rows, most asks). Names, "" behind the last; inside, numbers and -1."""
    model: Any
    """Model whose answer is taken."""
    cost: Floats
    quality: Floats
    """NaN where the log does not have it; with ``propensity``, doubly robust: its mean estimates that of the policy."""
    ips: Floats | None = None
    """With ``propensity``, terms of the self-normalised inverse-propensity estimate of quality, which is their mean."""
    costs: Any = None
    """Cost in each of several resources, shape (n_rows, n_resources); ``cost`` is then their sum at exchange rates."""

    def __repr__(self) -> str:
        is_asked = self.asked != "" if np.asarray(self.asked).dtype.kind in "UO" else self.asked >= 0
        means = f"mean quality {np.nanmean(self.quality):.4g}, mean cost {np.mean(self.cost):.4g}"
        n_asked = np.sum(is_asked) / len(self.cost)
        return f"Replay({len(self.cost):,} rows: {means}, models asked per row {n_asked:.3g})"


Asker = Callable[[int, Ints], None]
"""Asks a model, by its place, about rows, and writes what it returned into the log."""


def walk(rules: Rules, place: int, log: Log) -> Replay:
    """Follow one rule on a log that holds what every model returned."""
    return walk_mixed([(np.arange(len(log)), rules, place)], log)


def shares_asked(asked: Ints, n_models: int) -> Floats:
    """Share of rows that ask each model, from the numbers of those asked, -1 behind the last."""
    return np.bincount(asked[asked >= 0], minlength=n_models) / max(len(asked), 1)


def walk_mixed(
    parts: Sequence[tuple[Ints, Rules, int]], log: Log, ask: Asker | None = None, *, until_model: bool = False
) -> Replay:
    """Follow rules, each on its rows of a log; ``ask`` is called for what the log does not hold yet.

    Each model is asked once at each depth, about all rows that need it then; models of a round in threads. With
    ``until_model`` rows only buy columns, and the result names the model that they would ask. Where costs are run
    times, a model that has not solved a row within its limit is followed by what the rule does next.
    """
    n_rows = len(log)
    asked = np.full((n_rows, log.n_purchases), -1)
    model, cost, unsolved = np.full(n_rows, -1), np.zeros(n_rows), np.zeros(n_rows, dtype=bool)
    costs = None if log.costs is None else np.zeros((n_rows, log.costs.shape[2]))
    longest = None if log.delays is None else np.zeros((n_rows, len(log.delays)))
    groups: dict[tuple[int, tuple[int, ...]], list[Ints]] = {
        (part, ()): [rows] for part, (rows, _, _) in enumerate(parts)
    }
    for depth in range(log.n_purchases + 1):
        following: dict[tuple[int, tuple[int, ...]], list[Ints]] = {}
        asks: list[tuple[int, tuple[int, ...], Ints, bool]] = []
        wanted: dict[int, list[Ints]] = {}
        for (part, held), members in groups.items():
            _, rules, place = parts[part]
            rows = np.sort(np.concatenate(members))
            if not len(rows):
                continue
            step = rules.decide(place, held, log if len(rows) == n_rows else log.rows(rows))
            ends, answer = step.ask < 0, step.answer
            if until_model:
                ends, answer = step.ask < log.n_models, step.ask
            model[rows[ends]] = answer[ends]
            for next_model in np.unique(step.ask[~ends]).tolist():
                to_ask = rows[step.ask == next_model]
                asked[to_ask, depth] = next_model
                if log.cutoff is not None and next_model < log.n_models:
                    limit = step.share * np.maximum(log.cutoff - cost[to_ask], 0.0)
                    seconds, solved = log.run(next_model, to_ask, limit)
                    cost[to_ask] += seconds
                    unsolved[to_ask] = ~solved
                    model[to_ask] = next_model
                    reached = part, tuple(sorted((*held, next_model)))
                    following.setdefault(reached, []).append(to_ask[~solved])
                    continue
                waits_with_others = 0 < len(held) < at_once(rules, place)
                asks.append((next_model, held, to_ask, waits_with_others))
                if ask is not None and not waits_with_others:
                    further: list[int] = []
                    if at_once(rules, place) > 1:
                        row = log.rows(to_ask[:1])
                        further = rest_of_round(rules, place, (*held, next_model), row)
                    for one in [next_model, *further]:
                        wanted.setdefault(one, []).append(to_ask)
                solved = log.is_solved_by(next_model, to_ask)
                model[to_ask[solved]] = next_model
                following.setdefault((part, tuple(sorted((*held, next_model)))), []).append(to_ask[~solved])
        if ask is not None:
            calls = [(one, np.sort(np.concatenate(wanted[one]))) for one in sorted(wanted)]
            if len(calls) > 1 and any(at_once(rules, place) > 1 for _, rules, place in parts):
                with ThreadPoolExecutor(len(calls)) as pool:
                    _ = [*pool.map(lambda call: ask(*call), calls)]
            else:
                for one, to_ask in calls:
                    ask(one, to_ask)
        for next_model, held, to_ask, waits_with_others in asks:
            cost[to_ask] += log.share_after(next_model, held) * log.cost[to_ask, next_model]
            if costs is None or log.costs is None:
                continue
            paid = log.costs[to_ask, next_model]
            if longest is not None and log.delays is not None and log.rates is not None:
                waits = paid[:, log.delays]
                before = longest[to_ask] * waits_with_others
                longest[to_ask] = np.maximum(waits, before)
                paid[:, log.delays] = longest[to_ask] - before
                cost[to_ask] -= (waits - paid[:, log.delays]) @ log.rates[log.delays]
            costs[to_ask] += paid
        groups = following
    n_asks = max(1, int((asked >= 0).sum(axis=1).max(initial=1)))
    quality, cost = log.outcome(model, cost, unsolved)
    return Replay(asked[:, :n_asks], model, cost, quality, costs=costs)
