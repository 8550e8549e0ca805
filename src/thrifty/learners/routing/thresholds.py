"""Sequences of models with thresholds: ask the next one unless the answer at hand is sure enough.

The rule that everyone writes first, with its thresholds chosen on the log. For each price ``lambda`` of a unit of cost,
the sequence and the thresholds of the largest mean ``quality - lambda * cost`` are searched: sequences of up to three
models exhaustively, by running sums over cells of equal confidence (at most ``N_CELLS`` of equal numbers of rows, for
two models after another in two dimensions); then each threshold in turn by sorting the rows that reach it, until no
threshold alone can be improved. Longer sequences grow from the best ones, a model at a time.
"""

from functools import cached_property
from itertools import permutations

import numpy as np
from sklearn.isotonic import IsotonicRegression

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.walk.calibration import Calibration
from thrifty.engine.walk.next_model import Log, Pooling, Thresholds, best_at_hand, log_chance, sets_of

N_CELLS = 64
_MAX_PASSES = 5
_MAX_STEPS = 20
_POOLING_ROWS = 2000
"""Rows from which weights of a pool are learned, at most: there are no more of them than models that may be asked."""
_RIDGE_ROWS = 10.0
"""Rows for which equal weights count in a pool."""
_TOLERANCE = 1e-9
"""Gain in quality below which a rule is not better than a simpler one."""

Rule = tuple[tuple[int, ...], Floats]
"""Models in their order, and the thresholds of all but the last."""


# -- calibration -----------------------------------------------------------------------------------


def learn_calibration(evidence: Floats, quality: Floats) -> Calibration:
    """Isotonic regression of quality on evidence for each model, joined linearly between the centres of its steps.

    The direction is that of the correlation with the rank. Steps are shrunk to the mean by one row. All rows are used:
    the order of rows, which thresholds look at, is not changed, and maps that differ from fold to fold would let them
    tell the folds apart. Of predicted numbers it is the mean quality where a model predicts such a number.
    """
    mean = quality.mean(axis=0)
    shown = evidence if evidence.ndim == 2 else evidence.max(axis=2)
    knots_of = _error_curve if evidence.shape[2:] == (1,) else _isotonic_knots
    knots = tuple(
        knots_of(shown[:, model], quality[:, model], float(mean[model])) for model in range(quality.shape[1])
    )
    n_classes = 0 if evidence.ndim == 2 else evidence.shape[2]
    missed = _missed_classes(evidence, quality) if n_classes > 1 else None
    return Calibration(knots, mean, n_classes, missed)


def _labels_of(answers: Ints, quality: Floats) -> Ints:
    """Class of each row that a model answered rightly, else -1."""
    right = (quality > 0.5) & (answers >= 0)
    labels: Ints = np.where(right.any(axis=1), answers[np.arange(len(answers)), right.argmax(axis=1)], -1)
    return labels


def _missed_classes(evidence: Floats, quality: Floats) -> Floats:
    """``missed`` of ``Calibration``: the share of a mixture of two, by expectation and maximisation."""
    n_models, n_classes = evidence.shape[1:]
    answers = np.where(np.isnan(evidence[:, :, 0]), -1, evidence.argmax(axis=2))
    labels = _labels_of(answers, quality)
    missed = np.zeros((n_models, n_classes))
    for model in range(n_models):
        wrong = np.flatnonzero((labels >= 0) & (answers[:, model] >= 0) & (labels != answers[:, model]))
        counts = np.bincount(labels[wrong], minlength=n_classes) + 1.0
        often = counts / counts.sum()
        left = 1.0 - evidence[wrong, model].max(axis=1)
        own = evidence[wrong, model, labels[wrong]] / np.maximum(left, 1e-9)
        share, other = 0.5, often[labels[wrong]]
        for _ in range(_MAX_STEPS):
            by_often = share * other / (share * other + (1.0 - share) * own)
            share = float((by_often.sum() + 1.0) / (len(wrong) + 2.0))
        missed[model] = share * often
    return missed


def learn_pooling(log: Log, max_asks: int) -> Pooling | None:
    """How to combine models, learned on rows whose class a model of the pool answered rightly; None without classes."""
    if log.classes is None or log.classes.shape[2] == 1:
        return None
    assert log.answers is not None
    labels = _labels_of(log.answers, log.quality)
    rows = np.flatnonzero(labels >= 0)
    return pool_classes(log.classes[rows], labels[rows], max_asks) if len(rows) else None


def pool_classes(classes: Floats, labels: Ints, max_asks: int, weight: Floats | None = None) -> Pooling:
    """Weights of largest likelihood of each set of models, from class probabilities of shape (rows, models, classes).

    A ridge around equal weights keeps them where models do not differ. Newton's method, on thinned rows.
    """
    thin, n_models = slice(None, None, -(-len(labels) // _POOLING_ROWS)), classes.shape[1]
    scores, labels = log_chance(classes[thin]), labels[thin]
    counts = np.ones(len(labels)) if weight is None else weight[thin]
    at_label = scores[np.arange(len(labels)), :, labels]
    sets = sets_of(n_models, min(max_asks, n_models))[1:]
    weights = tuple(_pool_weights(scores[:, asked], at_label[:, asked], counts) for asked in sets)
    return Pooling(n_models, min(max_asks, n_models), weights)


def _pool_weights(scores: Floats, at_label: Floats, counts: Floats) -> Floats:
    n_models, n_rows = scores.shape[1], counts.sum()
    equal = np.full(n_models, 1.0 / n_models)
    weights, ridge = equal, _RIDGE_ROWS / n_rows
    for _ in range(_MAX_STEPS):
        total = weights[0] * scores[:, 0]
        for model in range(1, n_models):
            total = total + weights[model] * scores[:, model]
        chance = np.exp(total - total.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        weighted = scores * chance[:, None]
        expected = weighted.sum(axis=2)
        counted = counts[:, None] * expected
        gradient = (counts @ at_label - counted.sum(axis=0)) / n_rows - ridge * (weights - equal)
        second = (
            np.einsum("nik,njk->ij", counts[:, None, None] * weighted, scores) / n_rows
            - counted.T @ expected / n_rows
        )
        step = np.linalg.solve(second + ridge * np.eye(n_models), gradient)
        weights = weights + step * min(1.0, 1.0 / max(np.abs(step).max(), 1e-9))
        if np.abs(step).max() < 1e-4:
            break
    return weights


def _isotonic_knots(shown: Floats, quality: Floats, mean: float) -> Floats:
    known = np.isfinite(shown)
    if not known.any():
        return np.array([[0.0], [mean]])
    values, place, count = np.unique(shown[known], return_inverse=True, return_counts=True)
    average = np.bincount(place, quality[known]) / count
    rank = np.arange(len(values)) - np.average(np.arange(len(values)), weights=count)
    rises = bool(count * rank @ average >= 0.0)
    fitted = IsotonicRegression(increasing=rises).fit(values, average, count).predict(values)
    step = np.r_[0, np.cumsum(np.abs(np.diff(fitted)) > 1e-12)]
    n_rows = np.bincount(step, count)
    centre = np.bincount(step, count * values) / n_rows
    level = (np.bincount(step, count * average) + mean) / (n_rows + 1.0)
    level = np.maximum.accumulate(level) if rises else np.minimum.accumulate(level)
    distinct = np.r_[True, np.diff(centre) > 0.0]
    return np.stack([centre[distinct], level[distinct]])


def _error_curve(predicted: Floats, quality: Floats, mean: float) -> Floats:
    """Mean quality where a model predicts such a number, over cells of equal numbers of rows."""
    order = np.argsort(predicted, kind="stable")
    order = order[np.isfinite(predicted[order])]
    if not len(order):
        return np.array([[0.0], [mean]])
    cells = [part for part in np.array_split(order, N_CELLS // 2) if len(part)]
    places = np.array([predicted[part].mean() for part in cells])
    levels = np.array([quality[part].mean() for part in cells])
    distinct = np.r_[True, np.diff(places) > 0.0]
    return np.stack([places[distinct], levels[distinct]])


# -- thresholds ------------------------------------------------------------------------------------


class _States:
    """Rows of a log after each sequence of models: confidence and quality of the answer at hand."""

    def __init__(self, log: Log, *, combines: bool) -> None:
        self.log, self.combines = log, combines
        self._states: dict[tuple[int, ...], _State] = {}

    def after(self, models: tuple[int, ...]) -> "_State":
        """State of the rows after some models."""
        asked = tuple(sorted(models)) if self.combines else models[-1:]
        if asked not in self._states:
            best, confidence = best_at_hand(self.log, asked)
            self._states[asked] = _State(confidence, self.log.quality[np.arange(len(self.log)), best])
        return self._states[asked]

    def cost(self, models: tuple[int, ...]) -> Floats:
        """Cost of the last of some models after the others."""
        paid: Floats = self.log.cost[:, models[-1]] * self.log.share_after(models[-1], models[:-1])
        return paid


class _State:
    def __init__(self, confidence: Floats, quality: Floats) -> None:
        self.confidence, self.quality = confidence, quality

    @cached_property
    def ends(self) -> Floats:
        """Largest confidence of each cell but the last: every different one, or quantiles."""
        values = np.unique(self.confidence)
        if len(values) > N_CELLS:
            shares = np.arange(1, N_CELLS) / N_CELLS
            values = np.unique(
                np.append(np.quantile(self.confidence, shares, method="inverted_cdf"), values[-1])
            )
        return values[:-1]

    @cached_property
    def cell(self) -> Ints:
        """Cell of each row."""
        cells: Ints = np.searchsorted(self.ends, self.confidence)
        return cells

    @cached_property
    def order(self) -> Ints:
        """Rows by rising confidence."""
        return np.argsort(self.confidence, kind="stable")

    def cut(self, n_cells: int) -> float:
        """Threshold that sends on the rows of the first cells."""
        if n_cells == 0:
            return -np.inf
        return np.inf if n_cells > len(self.ends) else float(self.ends[n_cells - 1])


def learn_thresholds(log: Log, prices: Floats, max_asks: int, *, combines: bool = True) -> Thresholds:
    """Best sequence of models with thresholds on the log at each price."""
    states, n_models = _States(log, combines=combines), log.n_models
    best = np.full(len(prices), -np.inf)
    rules: list[Rule] = [((0,), np.empty(0))] * len(prices)
    for length in range(1, min(max_asks, 3) + 1):
        for sequence in permutations(range(n_models), length):
            quality, cost = _tables(states, sequence)
            value = np.round(quality.ravel() - prices[:, None] * cost.ravel(), 9)
            place = value.argmax(axis=1)
            reached = value[np.arange(len(prices)), place]
            for price in np.flatnonzero(reached > best + _TOLERANCE):
                cells = np.unravel_index(place[price], quality.shape)
                cuts = [
                    states.after(sequence[: n + 1]).cut(int(cell))
                    for n, cell in enumerate(cells[: length - 1])
                ]
                rules[price] = sequence, np.array(cuts)
            best = np.maximum(best, reached)
    refined = [_refined(states, rule, price) for rule, price in zip(rules, prices, strict=True)]
    for length in range(4, max_asks + 1):
        refined = _longer(states, refined, prices, length)
    models = np.full((len(prices), max_asks), -1)
    thresholds = np.full((len(prices), max_asks - 1), np.inf)
    for place, (sequence, own) in enumerate(refined):
        models[place, : len(sequence)] = sequence
        thresholds[place, : len(own)] = own
    return Thresholds(models, thresholds, combines)


def _tables(states: _States, sequence: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Mean quality and cost where rows of so many cells are sent on after each model, by running sums."""
    first = states.after(sequence[:1])
    n_rows = len(states.log)
    if len(sequence) == 1:
        return np.array([first.quality.mean()]), np.array([states.cost(sequence).mean()])
    n_first = len(first.ends) + 1
    second, to_second = states.after(sequence[:2]), states.cost(sequence[:2])

    def sent(values: Floats) -> Floats:
        return np.r_[0.0, np.bincount(first.cell, values, n_first).cumsum()]

    stopped = first.quality.sum() - sent(first.quality)
    paid = states.cost(sequence[:1]).sum() + sent(to_second)
    if len(sequence) == 2:
        return (stopped + sent(second.quality)) / n_rows, paid / n_rows
    third, to_third = states.after(sequence), states.cost(sequence)
    n_second = len(second.ends) + 1
    both = first.cell * n_second + second.cell

    def sent_twice(values: Floats) -> Floats:
        table = np.zeros((n_first + 1, n_second + 1))
        cells = np.bincount(both, values, n_first * n_second).reshape(n_first, n_second)
        table[1:, 1:] = cells.cumsum(axis=0).cumsum(axis=1)
        return table

    gained = sent_twice(third.quality - second.quality)
    quality = (stopped + sent(second.quality))[:, None] + gained
    return quality / n_rows, (paid[:, None] + sent_twice(to_third)) / n_rows


def _value(states: _States, rule: Rule, price: float) -> float:
    """Mean quality less price times cost of a rule."""
    return float(_values_on(states, rule, price)[0].mean())


def _values_on(states: _States, rule: Rule, price: float) -> list[Floats]:
    """Value of each row from each place of the sequence on, were it to get there."""
    sequence, cuts = rule
    values = [states.after(sequence).quality]
    for place in range(len(sequence) - 2, -1, -1):
        state, cost = states.after(sequence[: place + 1]), states.cost(sequence[: place + 2])
        goes = state.confidence <= cuts[place]
        values.insert(0, np.where(goes, values[0] - price * cost, state.quality))
    values[0] = values[0] - price * states.cost(sequence[:1])
    return values


def _refined(states: _States, rule: Rule, price: float) -> Rule:
    """The rule with each threshold at its best, the others as they are, and midway between two rows."""
    sequence, cuts = rule[0], rule[1].copy()
    n_rows = len(states.log)
    for _ in range(_MAX_PASSES):
        improved = False
        for place in range(len(cuts) - 1, -1, -1):
            reaches = _reaching(states, sequence, cuts, place)
            if not reaches.any():
                continue
            state, cost = states.after(sequence[: place + 1]), states.cost(sequence[: place + 2])
            on = _values_on(states, (sequence, cuts), price)[place + 1]
            rows = state.order[reaches[state.order]]
            gain = (on - price * cost - state.quality)[rows]
            confidence = state.confidence[rows]
            ends = np.flatnonzero(np.r_[np.diff(confidence) > 0.0, True])
            sums = np.r_[0.0, gain.cumsum()[ends]]
            now = sums[np.searchsorted(confidence[ends], cuts[place], side="right")]
            best = int(np.argmax(sums))
            if sums[best] > now + _TOLERANCE * n_rows:
                cuts[place] = -np.inf if best == 0 else confidence[ends[best - 1]]
                improved = True
        if not improved:
            break
    for place in range(len(cuts)):
        values = np.sort(states.after(sequence[: place + 1]).confidence)
        below = np.searchsorted(values, cuts[place], side="right")
        if below in (0, n_rows):
            cuts[place] = -np.inf if below == 0 else np.inf
        else:
            cuts[place] = (values[below - 1] + values[below]) / 2.0
    return sequence, cuts


def _reaching(states: _States, sequence: tuple[int, ...], cuts: Floats, place: int) -> Bools:
    reaches = np.ones(len(states.log), dtype=bool)
    for before in range(place):
        reaches &= states.after(sequence[: before + 1]).confidence <= cuts[before]
    return reaches


def _longer(states: _States, rules: list[Rule], prices: Floats, length: int) -> list[Rule]:
    """Rules with a further model where that pays: put in at any place, first tried at one price of each sequence."""
    n_models = states.log.n_models
    places: dict[tuple[int, ...], list[int]] = {}
    for number, (sequence, _) in enumerate(rules):
        places.setdefault(sequence, []).append(number)
    result = list(rules)
    for sequence, numbers in places.items():
        if len(sequence) != length - 1:
            continue
        at = numbers[len(numbers) // 2]
        price, cuts = float(prices[at]), rules[at][1]
        others = set(range(n_models)) - set(sequence)
        longer = [
            _refined(
                states,
                (
                    (*sequence[:place], model, *sequence[place:]),
                    np.insert(cuts, min(place, length - 2), np.inf),
                ),
                price,
            )
            for model in sorted(others)
            for place in range(length)
        ]
        values = [_value(states, rule, price) for rule in longer]
        if not values or max(values) <= _value(states, rules[at], price) + _TOLERANCE:
            continue
        best = longer[int(np.argmax(values))]
        for number in numbers:
            price = float(prices[number])
            rule = _refined(states, best, price)
            if _value(states, rule, price) > _value(states, rules[number], price) + _TOLERANCE:
                result[number] = rule
    return result
