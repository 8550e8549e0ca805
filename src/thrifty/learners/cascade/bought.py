"""Fits on tables in which not everything was bought: completed copies of the rows, and what they promise, corrected.

**Given the target and the columns that every row has, whether a cell was bought tells nothing more of its value.** That
is the assumption (missing at random given the target): who orders a test may suspect the answer, but does not know the
result. So a cell that was not bought is completed from all other columns *and the target*: for each column in turn,
extremely randomised trees on the others, whose leaves hold rows that bought it, and one of these gives its value (the
*donor*). A fit learns from several completed copies of each row, which are in one fold and share its weight.

Completed rows are the opinion of a model. So the mean quality of an operating point is corrected by rows whose route
was really bought, purchase by purchase. With A_k whether a row bought all that is held at place k, p_k the probability
of that given the target and what every row has, and v_k the mean quality of completed rows with the same target,
answer and gate at place k, the mean over rows of

    v_0 + sum over the places k of its route of A_k / p_k * (v_k - v_(k-1))

is the mean quality on complete rows if the p_k are right, or if completed rows are (doubly robust): every summand has
mean zero given what was held before. Few rows bought what is held at late places, so each summand is shrunk by its
noise, under a normal prior of the bias at a place.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import measured
from thrifty.engine.full.crossfit import TrainingRows
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.trees import BinnedTable
from thrifty.engine.walk.policy import route_by
from thrifty.errors import InformativeBlanksWarning, InvalidInputError, MissingSupportWarning, listed
from thrifty.jit import Number, kernel, lean
from thrifty.learners.cascade.learn import LearnedCascade
from thrifty.learners.cascade.stages import StagedTrees
from thrifty.learners.estimators.incomplete import (
    LEAST_PROPENSITY,
    Bought,
    coded_targets,
    estimated_chance,
    known_columns,
)

N_COPIES = 3
"""Completed copies of a row (``benchmarks/bought.py``)."""

N_ROUNDS = 4
"""Times that every column is completed, each from the others as they are then."""

MIN_LEAF, N_TRIED = 2, 32
"""Least rows of a leaf of donors, and random splits of which the best is taken (``benchmarks/bought.py``)."""

_BEYOND_CHANCE = 2.0
"""z-score from which on blanks tell the target (``benchmarks/bought.py warning``)."""

_LEVEL, _N_PERMUTATIONS = 0.02, 200
"""Chance of a false alarm by correlations alone, and permutations of the target that it is measured with."""

ROWS_OF_CLASS = 30
"""Rows of a class that bought a column from which on its cells may be completed from that class alone."""

HIDDEN_ROWS, HIDDEN_SHARE, HIDDEN_CELLS, MAX_PAIRS = 6_000, 0.3, 10_000, 1_000
"""Rows, share and number of the cells they bought, and pairs of columns that decide how often trees are grown class by
class."""

_N_TREES = 30
BIAS = 0.015
"""Spread of the prior of the bias of completed rows at a place (``benchmarks/bought.py``)."""

_N_GATES = 12
"""Groups of rows of about equal gate whose mean quality stands for one of them."""

MIN_SUPPORT = 5
"""Rows that must have bought what is held at a place for their answers there to be evidence."""

MAX_UNSUPPORTED = 0.25
"""Largest share of rows that an operating point may answer at places without support."""


# Constants of splitmix64 (Steele, Lea and Flood, 2014).
_STEP, _FIRST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_SECOND, _27, _30, _31 = np.uint64(0x94D049BB133111EB), np.uint64(27), np.uint64(30), np.uint64(31)


def warn_if_blanks_tell(rows: TrainingRows, prices: PriceList) -> list[str]:
    """Warn where the blanks of columns that cost something predict the target out of fold, beyond chance.

    Returns the columns above all.
    """
    priced = np.flatnonzero(prices.prices[prices.group_of] > 0.0)
    blank = np.isnan(rows.X[:, priced])
    share = blank.mean(axis=0)
    mixed = np.flatnonzero((share > 0.0) & (share < 1.0))
    if not len(mixed) or rows.task.query_of(rows.y) is not None:
        return []
    gains = _gains_of_blanks(blank[:, mixed].astype(np.float64), rows)
    if gains[0] <= _BEYOND_CHANCE:
        return []
    telling = [mixed[place] for place in np.argsort(-gains[1:], kind="stable") if gains[1 + place] > 2.0][:5]
    columns = [rows.table.columns[priced[place]] for place in telling or mixed[:5]]
    warnings.warn(
        f"which cells are blank tells the target, above all in {listed(columns)}. If they are blank because they were "
        f"not bought, new rows that buy them will have a value, and nothing that this fit promises will hold: give "
        f"bought='known', or a mask of what was bought. If purchases came back blank, and will again, ignore this.",
        InformativeBlanksWarning,
        stacklevel=5,
    )
    return list(map(str, columns))


def _gains_of_blanks(blank: Floats, rows: TrainingRows) -> Floats:
    """z-scores of what all blanks together tell of the target out of fold, and of what each column's do."""
    classes = len(rows.task.classes)
    target = rows.task.strata(rows.y) if classes else rows.y
    gain = np.zeros(len(blank))
    half = np.unique(rows.folds, return_inverse=True)[1] % 2
    for held in (0, 1):
        learn, new = half != held, half == held
        kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        model = kind(max_iter=_N_TREES, max_depth=3).fit(blank[learn], target[learn])
        if classes:
            known = np.isin(target, model.classes_)
            place = np.searchsorted(model.classes_, np.where(known, target, model.classes_[0]))
            share = np.bincount(place[learn & known], minlength=len(model.classes_)) / learn.sum()
            chance = model.predict_proba(blank[new])[np.arange(new.sum()), place[new]]
            gain[new] = np.where(known[new], np.log(np.maximum(chance, 1e-9) / share[place[new]]), 0.0)
        else:
            apart = np.square(target[new] - target[learn].mean())
            gain[new] = apart - np.square(target[new] - model.predict(blank[new]))
    values = np.column_stack([target == label for label in np.unique(target)]) if classes else target[:, None]
    own, shown = (_standardised(part.astype(np.float64)) for part in (values, blank))
    generator = np.random.Generator(np.random.PCG64(0))
    every = np.square(shown.T @ own).sum()
    chance = [np.square(shown.T @ own[generator.permutation(len(own))]).sum() for _ in range(_N_PERMUTATIONS)]
    is_linear = every > np.sort(chance)[int((1.0 - _LEVEL) * _N_PERMUTATIONS)]
    of_boosting = float(gain.mean() / max(float(gain.std()), 1e-12) * np.sqrt(len(gain)))
    each = np.abs(shown.T @ own).max(axis=1) * np.sqrt(len(blank))
    return np.append(np.inf if is_linear else of_boosting, each)


def _standardised(values: Floats) -> Floats:
    """Columns with mean zero and length one."""
    centred = values - values.mean(axis=0)
    result: Floats = centred / np.maximum(np.sqrt(np.square(centred).sum(axis=0)), 1e-300)
    return result


# -- completion ------------------------------------------------------------------------------------


def completed(rows: TrainingRows, table: BinnedTable, bought: Bought, seed: int) -> TrainingRows:
    """Rows with the cells that were not bought completed, ``N_COPIES`` times one after another.

    ``table`` has the codes of the rows; cells that were not bought may have any.
    """
    lacking = np.flatnonzero(~bought.cells.any(axis=0))
    if len(lacking):
        raise InvalidInputError(
            f"bought says that no row has column {rows.table.columns[lacking[0]]!r}, so nothing can be learned of it. "
            f"Leave the column out."
        )
    copies = donors_of(rows, table, bought.cells, seed)
    every, y = np.tile(np.arange(len(rows.y)), N_COPIES), rows.y
    query = rows.task.query_of(y)
    apart = 0 if query is None else 32 * (int(query.max()) + 1)  # copies of a query are queries of their own
    return replace(
        rows,
        every_row=rows.X if rows.every_row is None else rows.every_row,
        table=rows.table.with_cells_of(np.concatenate(copies)),
        y=np.concatenate([y + copy * apart for copy in range(N_COPIES)]),
        weight=rows.weight[every] if apart else rows.weight[every] / N_COPIES,
        folds=rows.folds[every],
        weighted=not apart,
    )


def donors_of(rows: TrainingRows, table: BinnedTable, bought: Bools, seed: int) -> list[Ints]:
    """Row that gives each cell its value, shape (n_rows, n_features), for each copy."""
    n_rows, n_features = bought.shape
    is_categorical = np.zeros(n_features, dtype=bool)
    if table.categories is not None:
        for column, levels in zip(table.categories.feature_of, table.categories.levels, strict=True):
            is_categorical[column] |= levels is not None
    codes = np.zeros((n_rows, n_features + 1), dtype=np.int64)
    for column in range(n_features):
        places = table.places(np.array([column]))
        codes[:, column] = (
            np.unique(table.codes[:, places], axis=0, return_inverse=True)[1].ravel()
            if len(places) > 1
            else table.codes[:, places[0]]
        )
    codes[:, -1] = coded_targets(rows.task, rows.y)
    folds = np.unique(rows.folds, return_inverse=True)[1]
    chain = _Chain(codes, is_categorical, folds, len(rows.task.classes))
    generator = np.random.Generator(np.random.PCG64(seed))
    by_class = chain.share_by_class(bought, generator)
    return [chain.donors(bought, generator, by_class=by_class) for _ in range(N_COPIES)]


@dataclass(frozen=True, eq=False)
class _Chain:
    """Columns that are completed in turn, as codes, the last of which is the target; ``n_classes`` is 0 for numbers."""

    codes: Ints
    is_categorical: Bools
    folds: Ints
    n_classes: int

    def donors(self, bought: Bools, generator: np.random.Generator, *, by_class: float) -> Ints:
        """Row that gives each cell its value; a share of the trees is grown class by class."""
        everyone, codes = np.arange(len(bought)), self.codes
        donor = np.tile(everyone[:, None], (1, bought.shape[1]))
        filled = codes.copy()
        for turn in range(N_ROUNDS + 1):
            for column in np.flatnonzero(~bought.all(axis=0)):
                real, wanted = everyone[bought[:, column]], everyone[~bought[:, column]]
                features, values = filled.copy(), codes[:, column].astype(np.float64)
                if not turn:  # at first by the target alone
                    features[:, :-1] = 0
                features[:, column] = 0
                for other in np.flatnonzero(self.is_categorical):  # levels in a random order
                    features[:, other] = generator.permutation(256)[features[:, other]]
                if self.n_classes:
                    features[:, -1] = generator.permutation(self.n_classes)[features[:, -1]]
                if self.is_categorical[column]:
                    values = generator.normal(size=256)[codes[:, column]]
                values -= values[real].mean()
                parts = [(real, np.arange(len(wanted)))]
                if self.n_classes and (not turn or generator.random() < by_class):
                    parts = _by_class(codes[:, -1], real, wanted)
                for learn, places in parts:
                    of_part = np.empty(len(places), dtype=np.int64)
                    settings = MIN_LEAF, N_TRIED, int(generator.integers(2**31))
                    grow_random_tree(features, values, self.folds, learn, wanted[places], settings, of_part)
                    donor[wanted[places], column] = of_part
                filled[wanted, column] = codes[donor[wanted, column], column]
        return donor

    def share_by_class(self, bought: Bools, generator: np.random.Generator) -> float:
        """Share of trees to grow class by class, so that completed cells tell as much of the target as real ones.

        One tree for all seldom begins with the target: its cells tell too little of it. Class by class they tell too
        much where other columns say nearly the same, since each brings the class a little of its own. So cells that
        were bought are hidden and completed in both ways; what they tell is taken to grow linearly from one to the
        other.
        """
        if not self.n_classes:
            return 0.0
        some = np.sort(generator.permutation(len(bought))[:HIDDEN_ROWS])
        part, shown = replace(self, codes=self.codes[some], folds=self.folds[some]), bought[some]
        may_hide = shown & ~shown.all(axis=0) & (shown.sum(axis=0) >= ROWS_OF_CLASS)
        lacking = ~shown.any(axis=0)
        part.codes[:, :-1][:, lacking] = 0
        n_repeats = int(np.clip(HIDDEN_CELLS / max(HIDDEN_SHARE * may_hide.sum(), 1.0), 1, 8))
        tells_more = np.zeros(2)
        for _ in range(n_repeats):
            hidden = may_hide & (generator.random(shown.shape) < HIDDEN_SHARE)
            for number, share in enumerate((0.0, 1.0)):
                donor = part.donors(shown & ~hidden | lacking, generator, by_class=share)
                tells_more[number] += part.excess_information(donor, shown, hidden)
        of_one, of_class = np.round(tells_more, 9)
        if of_one * of_class >= 0.0:
            return float(abs(of_class) <= abs(of_one))
        return float(of_one / (of_one - of_class))

    def excess_information(self, donor: Ints, shown: Bools, hidden: Bools) -> float:
        """What hidden cells tell of the target beside another column, more by donors than by themselves.

        A mean of conditional mutual information over pairs of columns, each in three groups, on the same rows.
        """
        groups = np.column_stack([_in_groups(column, 3) for column in self.codes[:, :-1].T])
        result = []
        pairs = [(j, k) for j in np.flatnonzero(hidden.any(axis=0)) for k in range(hidden.shape[1]) if j != k]
        for pair in np.linspace(0, len(pairs) - 1, min(len(pairs), MAX_PAIRS)).astype(np.intp):
            column, other = pairs[pair]
            rows = np.flatnonzero(hidden[:, column] & shown[:, other] & ~hidden[:, other])
            if len(rows) < ROWS_OF_CLASS:
                continue
            label, context = self.codes[rows, -1], groups[rows, other]
            of_donors, of_real = (
                _information(of_rows, context, label, self.n_classes)
                for of_rows in (groups[donor[rows, column], column], groups[rows, column])
            )
            result.append(of_donors - of_real)
        return float(np.mean(result)) if result else 0.0


def _in_groups(values: Any, n_groups: int) -> Ints:
    """Group of each value, groups of about equal size; as many as distinct values where these are few."""
    distinct = np.unique(values)
    if len(distinct) > n_groups:
        distinct = np.unique(np.quantile(values, np.arange(1, n_groups) / n_groups))
    groups: Ints = np.searchsorted(distinct, values)
    return groups


def _information(group: Ints, context: Ints, label: Ints, n_classes: int) -> float:
    """Mutual information of a group and the class, given the group of another column."""
    cells = (group * 3 + context) * n_classes + label
    counts = np.bincount(cells, minlength=9 * n_classes).reshape(3, 3, n_classes)
    parts = counts.sum(axis=2), counts.sum(axis=0), counts, counts.sum(axis=(0, 2))
    of_both, of_label, of_all, of_context = (_entropy(part) for part in parts)
    return of_both + of_label - of_all - of_context


def _entropy(counts: Any) -> float:
    """Entropy of the shares of counts."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _by_class(target: Ints, real: Ints, wanted: Ints) -> list[tuple[Ints, Ints]]:
    """Rows to learn from, and places of the rows to complete: class by class where enough rows have bought."""
    result, few = [], []
    for label in np.unique(target[wanted]):
        of_label, places = real[target[real] == label], np.flatnonzero(target[wanted] == label)
        if len(of_label) >= ROWS_OF_CLASS:
            result.append((of_label, places))
        else:
            few.append(places)
    return [*result, (real, np.concatenate(few))] if few else result


@kernel
def grow_random_tree(
    codes: Any, values: Any, folds: Any, rows: Any, wanted: Any, settings: Any, donors: Any
) -> None:
    """Grow an extremely randomised tree on some rows, and draw a donor for each wanted row.

    It is one of those in the last node on its way that holds rows of its fold: what a row of a fold is given was not
    learned from by models that have not seen that fold.
    """
    min_leaf, n_tried, seed = settings
    n_folds = folds.max() + 1
    first_of, of_fold = np.empty(n_folds + 1, dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    state = np.array([seed], dtype=np.uint64)
    order, kept = rows.copy(), np.empty_like(rows)
    among, others = wanted.copy(), np.empty_like(wanted)
    place = np.empty(len(codes), dtype=np.int64)
    for number in range(len(wanted)):
        place[wanted[number]] = number
    # Nodes that wait: bounds in ``order``, and of the wanted rows in ``among``.
    waiting = np.empty((2 * len(rows) + 2, 4), dtype=np.int64)
    waiting[0] = (0, len(rows), 0, len(wanted))
    n_waiting = 1
    n_features = codes.shape[1]
    while n_waiting:
        n_waiting -= 1
        begin, end, first, last = waiting[n_waiting]
        if first == last:
            continue
        total = 0.0
        for at in range(begin, end):
            total += values[order[at]]
        n_rows = end - begin
        first_of[:] = 0
        for at in range(begin, end):
            first_of[folds[order[at]] + 1] += 1
        for fold in range(n_folds):
            first_of[fold + 1] += first_of[fold]
        for at in range(end - 1, begin - 1, -1):
            fold = folds[order[at]] + 1
            first_of[fold] -= 1
            of_fold[first_of[fold]] = order[at]
        for at in range(first, last):  # the place where a fold ends is where the next one began, which moved
            fold = folds[among[at]]
            start = first_of[fold + 1]
            stop = first_of[fold + 2] if fold + 2 <= n_folds else n_rows
            if stop > start:
                donors[place[among[at]]] = of_fold[start + _below(state, stop - start)]
            elif not begin and end == len(rows):
                donors[place[among[at]]] = order[_below(state, n_rows)]
        best, best_feature, best_cut = 1e-12, -1, 0
        if n_rows >= 2 * min_leaf:
            for _ in range(n_tried):
                feature = _below(state, n_features)
                low, high = codes[order[begin], feature], codes[order[begin], feature]
                for at in range(begin, end):
                    code = codes[order[at], feature]
                    low, high = min(low, code), max(high, code)
                if low == high:
                    continue
                cut = low + _below(state, high - low)
                n_left, left = 0, 0.0
                for at in range(begin, end):
                    if codes[order[at], feature] <= cut:
                        n_left += 1
                        left += values[order[at]]
                n_right = n_rows - n_left
                if n_left < min_leaf or n_right < min_leaf:
                    continue
                right = total - left
                gain = left * left / n_left + right * right / n_right - total * total / n_rows
                if gain > best:
                    best, best_feature, best_cut = gain, feature, cut
        if best_feature < 0:
            continue
        middle = _part(order, kept, begin, end, codes, best_feature, best_cut)
        between = _part(among, others, first, last, codes, best_feature, best_cut)
        waiting[n_waiting] = (begin, middle, first, between)
        waiting[n_waiting + 1] = (middle, end, between, last)
        n_waiting += 2


@lean
def _below(state: Any, bound: Number) -> Number:
    """Whole number below a bound, from the splitmix64 generator: the same on every processor."""
    state[0] += _STEP
    word = state[0]
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return np.int64((word ^ (word >> _31)) % np.uint64(bound))


@lean
def _part(order: Any, kept: Any, begin: int, end: int, codes: Any, feature: int, cut: int) -> int:
    """Rows of small codes first, in their order; return where the others begin."""
    middle, n_others = begin, 0
    for at in range(begin, end):
        row = order[at]
        if codes[row, feature] <= cut:
            order[middle] = row
            middle += 1
        else:
            kept[n_others] = row
            n_others += 1
    for number in range(n_others):
        order[middle + number] = kept[number]
    return middle


# -- correction ------------------------------------------------------------------------------------


def corrected(
    evidence: Evidence,
    sets: Sequence[Ints],
    rows: TrainingRows,
    bought: Bought,
    prices: PriceList,
) -> tuple[Evidence, Bools]:
    """Evidence of the first copy of each row with the bias of completed rows, and the points that have support.

    ``rows`` has ``N_COPIES`` copies of the rows of ``bought``, one after another, ``evidence`` those of them that are
    held out, and ``sets`` the columns that they hold at every stage.
    """
    held_out = np.flatnonzero(rows.folds[: len(bought.cells)] >= 0)
    n_rows, n_places = len(held_out), evidence.n_stages + 1
    unit = evidence.unit
    first = evidence.take(np.arange(n_rows if unit is None else len(unit) // N_COPIES))
    if unit is not None:  # orders of documents are not corrected: they belong to no place
        assert evidence.points is not None
        return first, np.ones(len(evidence.points), dtype=bool)
    weight, target = rows.weight[held_out] * N_COPIES, rows.y[held_out]
    first = replace(first, weight=weight)
    assert evidence.points is not None  # the operating points of a cascade
    holds, chance = _support(sets, rows, bought, prices)
    is_supported = np.minimum.accumulate(holds.sum(axis=0) >= MIN_SUPPORT)
    holds, chance = holds[held_out], chance[held_out]
    gate = evidence.gate.reshape(N_COPIES, n_rows, -1)
    quality = np.asarray(evidence.quality, dtype=np.float64).reshape(N_COPIES, n_rows, -1)
    stratum = rows.task.strata(target)
    cells = [_cells(stratum, quality[:, :, k], gate[:, :, k]) for k in range(n_places - 1)]
    bias, is_kept = [], []
    for point in evidence.points:
        place = route_by(evidence.gate, point).reshape(N_COPIES, n_rows)
        answer = np.take_along_axis(quality, place[:, :, None], axis=2)[:, :, 0]
        mean, error = shrunk_sum(*biases_of(place, answer, cells, stratum, holds, chance, weight))
        of_first = float(np.average(answer[0], weights=weight))
        of_all = float(np.average(answer.mean(axis=0), weights=weight))
        bias.append((of_first - of_all - mean, error))
        lacks = ~is_supported[place]
        is_kept.append(np.average(lacks.mean(axis=0), weights=weight) <= MAX_UNSUPPORTED)
    optimism = np.array(bias)
    if first.optimism is not None:
        former = first.optimism
        optimism = np.column_stack([former[:, 0] + optimism[:, 0], np.hypot(former[:, 1], optimism[:, 1])])
    return replace(first, optimism=optimism), np.array(is_kept)


def with_support(
    learned: LearnedCascade, rows: TrainingRows, bought: Bought, prices: PriceList
) -> LearnedCascade:
    """The cascade with evidence of one copy of each row, corrected, and without points that have no support."""
    assert isinstance(learned.staged, StagedTrees)  # stages of a line
    evidence, is_kept = corrected(learned.evidence, learned.staged.sets, rows, bought, prices)
    assert evidence.points is not None
    policy = learned.policy
    point_of = np.array(
        [np.flatnonzero((evidence.points == one).all(axis=1))[0] for one in policy.thresholds]
    )
    kept = is_kept[point_of]
    if not kept.all():
        kept[0] = True  # the cheapest point always serves
        dearest = float(policy.cost[kept].max())
        warnings.warn(
            f"{int((~kept).sum())} of {len(kept)} operating points are left out, because more than "
            f"{MAX_UNSUPPORTED:.0%} of the rows would be answered with purchases that fewer than {MIN_SUPPORT} rows "
            f"made together: what they would have answered is not known. The dearest one left costs {dearest:.4g} a "
            f"row. Buy more for a random share of the rows, and fit again.",
            MissingSupportWarning,
            stacklevel=4,
        )
    of_evidence = np.flatnonzero(is_kept | np.isin(np.arange(len(is_kept)), point_of[kept]))
    evidence = replace(
        evidence,
        points=evidence.points[of_evidence],
        optimism=None if evidence.optimism is None else evidence.optimism[of_evidence],
    )
    policy = measured(replace(policy, thresholds=policy.thresholds[kept]), evidence)
    default = learned.default_point
    allowed = np.flatnonzero(of_evidence <= default)
    return replace(
        learned,
        policy=policy,
        evidence=evidence,
        default_point=int(allowed[-1]) if len(allowed) else 0,
    )


def _support(
    sets: Sequence[Ints], rows: TrainingRows, bought: Bought, prices: PriceList
) -> tuple[Bools, Floats]:
    """Whether each row bought all that it would hold at each place, and with which probability; (n_rows, n_places)."""
    n_rows = len(bought.cells)
    holds = np.empty((n_rows, len(sets) + 1), dtype=bool)
    chance = np.ones(holds.shape)
    known = known_columns(rows.X[:n_rows], rows.y[:n_rows], rows.task, bought)
    by_full = np.union1d(sets[-1], prices.read_by_full).astype(np.intp)
    for place, columns in enumerate([*sets, by_full]):
        has_all: Bools = np.logical_and.reduce(bought.cells[:, columns], axis=1)
        holds[:, place] = has_all
        if bought.propensity is not None:
            chance[:, place] = bought.chance_of(columns, prices.group_of)
        elif not has_all.all():
            chance[:, place] = estimated_chance(known, has_all, rows.folds[:n_rows], len(rows.task.classes))
    return holds, np.maximum(chance, LEAST_PROPENSITY)


def _cells(stratum: Ints, quality: Floats, gate: Floats) -> Ints:
    """Group of copies with the same target, about the same quality, and about the same gate, at one place."""
    number = np.tile(stratum, (len(gate), 1)).astype(np.intp)
    for values, n_groups in ((quality, 4), (gate, _N_GATES)):
        groups = _in_groups(values, n_groups)
        number = number * (int(groups.max()) + 1) + groups
    cells: Ints = np.unique(number, return_inverse=True)[1].reshape(gate.shape)
    return cells


def biases_of(
    place: Ints,
    answer: Floats,
    cells: list[Ints],
    stratum: Ints,
    holds: Bools,
    chance: Floats,
    weight: Floats,
) -> tuple[Floats, Floats]:
    """By how much completed rows understate mean quality at each place, and standard errors."""
    weights = np.tile(weight, (len(place), 1))
    before = _means_of(np.tile(stratum, (len(place), 1)), answer, weights)
    means, errors = [], []
    for k in range(place.max() + 1):
        reaches = place >= k
        now = answer
        if k < len(cells):
            goes_on = place > k
            expected = _means_of(cells[k], answer, weights * goes_on)
            now = np.where(goes_on, expected, answer)
        # Of a row that bought all of this place, every copy holds what was bought: the first one stands for them.
        inverse = np.where(holds[:, k], 1.0 / chance[:, k], 0.0)
        inverse /= max(float(np.average(inverse, weights=weight)), 1e-300)
        summand = np.where(reaches[0], inverse * (now[0] - before[0]), 0.0)
        mean = float(np.average(summand, weights=weight))
        spread = float(np.average(np.square(summand - mean), weights=weight))
        means.append(mean)
        errors.append(np.sqrt(spread / max(float(np.square(weight.sum()) / np.square(weight).sum()), 1.0)))
        before = now
    return np.array(means), np.array(errors)


def _means_of(cells: Ints, values: Floats, weights: Floats) -> Floats:
    """Mean value of the rows of each cell."""
    flat, counts = cells.ravel(), weights.ravel()
    size = int(flat.max()) + 1
    total = np.bincount(flat, counts, size)
    summed = np.bincount(flat, counts * values.ravel(), size)
    means: Floats = (summed / np.maximum(total, 1e-300))[cells]
    return means


def shrunk_sum(means: Floats, errors: Floats) -> tuple[float, float]:
    """Sum of biases under a normal prior around zero, and its standard error."""
    kept = BIAS**2 / (BIAS**2 + np.square(errors))
    return float((kept * means).sum()), float(np.sqrt((kept * np.square(errors)).sum()))
