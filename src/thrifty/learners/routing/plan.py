"""Learning of plans: sets of columns worth holding, what is expected at each, and when another group pays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.engine.prices.prices import Prices, check_price_list
from thrifty.engine.walk.column_plan import Plan, PlanState, plan_features, plan_states
from thrifty.engine.walk.next_model import DIGITS, ColumnSets, Log, first_largest, walk
from thrifty.errors import InvalidInputError
from thrifty.learners.routing.quality import (
    QualityModel,
    RuntimeModel,
    crossfit,
    fit_out_of_bag,
    fit_runtime_model,
    how_far_ahead,
    means_of_known,
    ridge,
)

MAX_SETS = 12
"""Sets of columns that rows may hold."""
_ALL_SUBSETS = 3
"""Groups up to which all their sets are tried."""
_N_TREES = 16
_PATIENCE = 2
"""Groups that are added without a gain before the search ends."""
_ALPHA = 100.0
_REALISED = 0.5
"""Weight of realised quality in targets; the rest is expected quality, which is less noisy."""
_THIN = 3
"""Rules that buy the same columns for every row are learned at one price in so many."""
_SHARES = (1.0, 0.0, 0.0), (0.8, 0.2, 0.0), (0.5, 0.5, 0.0), (1 / 3, 1 / 3, 1 / 3)
"""How the time left may be divided between the best, the second and the third model."""
_EARLY, _MAX_RUNS, _LEAST_SOLVED = 0.03, 3, 0.02
"""Early runs: most time in all as a share of the cutoff, their number, and share of the rows that each must solve."""
_TRADES = (0.0, 0.1, 1.0)
"""Prices at which sets are searched: quality that a group as dear as all of them must add, as shares of its range."""


def learn_columns(log: Log, Z: Floats, folds: Ints, seed: int) -> Log:
    """The log with the sets of columns that are worth holding, and what is expected at each, out of fold."""
    columns = log.columns
    assert columns is not None
    n_groups = columns.n_delivering
    if n_groups <= _ALL_SUBSETS:
        chosen = [held for size in range(n_groups + 1) for held in combinations(range(n_groups), size)]
    else:
        chosen = _search(log, columns, Z, seed)
    predictors: list[Any] = []
    at_sets: list[Floats] = []
    n_models, fitted = log.n_models, dict[tuple[int, ...], int]()
    early = tuple(range(n_groups, len(columns.names)))
    chosen += [early[:size] for size in range(1, len(early))]
    chosen += [(*held, *early) for held in chosen if early and not set(held) & set(early)]
    for held in chosen:
        read = columns.columns(held)
        place = fitted.setdefault(tuple(read.tolist()), len(predictors))
        if place < len(predictors):  # early runs bring no columns
            predictors.append(predictors[place])
            at_sets.append(at_sets[place])
            continue
        model: QualityModel | RuntimeModel | None = None
        prior, cost = np.repeat(columns.means[:, None], len(Z), axis=1)
        if len(read):
            own = Z[:, read], log.quality, log.cost[:, :n_models]
            if log.cutoff is None:
                model, prior, cost = crossfit(*own, folds, seed)
            else:
                model, prior, cost = fit_runtime_model(*own, seed)
        predictors.append(model)
        at_sets.append(np.stack([prior, cost], axis=1))
    sets = np.zeros((len(chosen), len(columns.names)), dtype=bool)
    for place, held in enumerate(chosen):
        sets[place, list(held)] = True
    known = np.stack(at_sets, axis=1)
    whole = replace(log, columns=replace(columns, sets=sets, predictors=tuple(predictors)), at_sets=known)
    return replace(whole, prior=known[:, 0, 0], expected=whole.knowing(()).expected)


def _search(log: Log, columns: ColumnSets, Z: Floats, seed: int) -> list[tuple[int, ...]]:
    """Sets on greedy paths from none, at some prices: by quality out of bag, less price times cost."""
    n_models, n_groups = log.n_models, columns.n_delivering
    targets = log.quality if log.cutoff is None else how_far_ahead(log.quality)
    price = log.cost[:, n_models:].mean(axis=0)
    model_cost = log.cost[:, :n_models].mean(axis=0)
    reach = float(log.quality.max(axis=1).mean() - log.quality.mean(axis=0).max())
    trades = [share * reach / price.sum() for share in _TRADES]  # beside what seconds take off the quality
    expected: dict[tuple[int, ...], Floats] = {}

    def value(held: tuple[int, ...], trade: float) -> float:
        if held not in expected:
            read = columns.columns(held)
            expected[held] = columns.means[:1]
            if len(read):
                cells = np.where(np.isnan(Z[:, read]), means_of_known(Z[:, read]), Z[:, read])
                expected[held] = fit_out_of_bag(cells, targets, _N_TREES, 4, seed)[1]
                if log.cutoff is not None:
                    expected[held] *= float(log.quality.std() / max(expected[held].std(), 1e-9))
        best = np.broadcast_to(first_largest(expected[held] - trade * model_cost), (len(Z),))
        rows = np.arange(len(Z))
        paid = sum(
            float(price[group]) * log.share_after(n_models + group, [n_models + one for one in held[:place]])
            for place, group in enumerate(held)
        )
        return (
            float((log.quality[rows, best] - trade * log.cost[rows, best]).mean())
            - (trade + log.second) * paid
        )

    found: dict[tuple[int, ...], float] = {(): 0.0}
    for trade in trades:
        path: tuple[int, ...] = ()
        best, since, values = value(path, trade), 0, [value(path, trade)]
        steps = [path]
        while len(path) < n_groups and since < _PATIENCE:
            further = [tuple(sorted((*path, group))) for group in range(n_groups) if group not in path]
            scores = [round(value(held, trade), DIGITS) for held in further]
            path = further[int(np.argmax(scores))]
            steps.append(path)
            values.append(max(scores))
            since = 0 if values[-1] > best else since + 1
            best = max(best, values[-1])
        last = int(np.argmax(values))
        for held in steps[: last + 2]:
            found.setdefault(held, 0.0)
    everything = tuple(range(n_groups))
    chosen = sorted(found, key=lambda held: (len(held), held))[: MAX_SETS - 1]
    return chosen if everything in chosen else [*chosen, everything]


def learn_plan(log: Log, prices: Floats, max_asks: int, max_runs: int) -> Plan:
    """Learn by backward induction, from rows that hold and asked most to those that hold nothing.

    Where costs are run times, up to ``max_runs`` models are run one after the other.
    """
    assert log.columns is not None
    n_models, n_prices = log.n_models, len(prices)
    columns = log.columns
    states = plan_states(columns, n_models, max_asks)
    value: dict[
        tuple[tuple[int, ...], tuple[int, ...]], Floats
    ] = {}  # quality less price * cost from there on
    stopped: dict[tuple[tuple[int, ...], tuple[int, ...]], Floats] = {}
    stop, gain = [], []
    for state in states:
        at, asked = log.knowing(state.asked(n_models)), state.asked(n_models)
        features, choices = plan_features(at, state.models), state.choices(n_models)
        shares = log.shares_after(asked)
        cost, paid = at.expected * shares, log.cost * shares
        key = state.held, state.models
        if state.models:
            own, value[key], stopped[key], coefficients = _after_answers(
                state, log, features, value, (cost[:, choices], paid[:, choices]), prices
            )
            stop.append(own)
        else:
            stop.append(np.empty((features.shape[1], 0)))
            value[key], coefficients = _before_answers(
                state, at, features, (value, stopped), (cost, paid), prices
            )
        gain.append(coefficients)
    ways, some = np.arange(len(columns.sets)), prices[::_THIN]
    plan = Plan(
        np.concatenate([prices, np.tile(some, len(ways))]),
        np.concatenate([np.full(n_prices, -1), np.repeat(ways, len(some))]),
        max_asks,
        tuple(stop),
        tuple(gain),
        columns,
        np.ones((n_prices + len(ways) * len(some), 1)),
    )
    return plan if log.cutoff is None else _with_shares(plan, log, len(some), max_runs)


def _with_shares(plan: Plan, log: Log, n_some: int, max_runs: int) -> Plan:
    """The plan with time divided between models as it pays at each set of columns: by more than a standard error."""
    shares = np.tile(_SHARES[0], (plan.n_rules, 1))
    tries = [one for one in _SHARES if sum(share > 0.0 for share in one) <= max_runs]
    if len(tries) == 1:
        return replace(plan, shares=shares)
    begins = [0, *range(int((plan.fixed < 0).sum()), plan.n_rules, n_some), plan.n_rules]
    for begin, end in pairwise(begins):
        values = []
        for tried in tries:
            shares[begin] = tried
            values.append(walk(replace(plan, shares=shares), begin, log).quality)
        gain = np.stack(values[1:], axis=1) - values[0][:, None]
        mean, error = gain.mean(axis=0), gain.std(axis=0) / np.sqrt(len(log))
        best = int(np.argmax(np.round(mean, DIGITS)))
        shares[begin:end] = tries[1 + best if mean[best] > error[best] else 0]
    return replace(plan, shares=shares)


_Values = dict[tuple[tuple[int, ...], tuple[int, ...]], Floats]


def _behind(state: PlanState, values: _Values) -> list[Floats]:
    """Values of the states that each choice leads to."""
    models = [values[state.held, tuple(sorted((*state.models, model)))] for model in state.next_models]
    return models + [values[tuple(sorted((*state.held, group))), state.models] for group in state.next_groups]


def _after_answers(
    state: PlanState,
    log: Log,
    features: Floats,
    values: _Values,
    costs: tuple[Floats, Floats],
    prices: Floats,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Quality of answers at hand, value, value of stopping, and gains, once there is an answer."""
    rows, (cost, paid) = np.arange(len(log)), costs
    stop = ridge(features, log.quality[:, state.models], _ALPHA)
    right = features @ stop
    chosen = first_largest(right)
    realised = log.quality[rows, np.array(state.models)[chosen]]
    at_hand = _REALISED * realised + (1.0 - _REALISED) * right[rows, chosen]
    stops = np.broadcast_to(at_hand[:, None], (len(log), len(prices)))
    if not cost.shape[1]:
        return stop, stops, stops, np.empty((features.shape[1], 0, len(prices)))
    after = np.stack(_behind(state, values), axis=1)
    target = after - stops[:, None]
    coefficients = ridge(features, target.reshape(len(log), -1), _ALPHA)
    estimate = (features @ coefficients).reshape(target.shape) - cost[:, :, None] * prices
    best = first_largest(estimate, axis=1)[:, None]
    go = np.round(np.take_along_axis(estimate, best, 1)[:, 0], DIGITS) > 0.0
    then = np.take_along_axis(after - paid[:, :, None] * prices, best, 1)[:, 0]
    return stop, np.where(go, then, stops), stops, coefficients.reshape(-1, cost.shape[1], len(prices))


def _before_answers(
    state: PlanState,
    at: Log,
    features: Floats,
    values: tuple[_Values, _Values],
    costs: tuple[Floats, Floats],
    prices: Floats,
) -> tuple[Floats, Floats]:
    """Value and gains of rows that hold columns and asked no model."""
    (value, stopped), (cost, paid), n_models, n_rows = values, costs, at.n_models, len(at)
    direct = at.prior[:, :, None] - cost[:, :n_models, None] * prices
    mixed = _REALISED * at.quality + (1.0 - _REALISED) * at.prior
    own = (
        mixed[:, :, None] - paid[:, :n_models, None] * prices
    )  # what asking a model and stopping turns out to be worth
    best = first_largest(direct, axis=1)[:, None]
    base, turned_out = (np.take_along_axis(part, best, 1) for part in (direct, own))
    targets = []
    if state.next_models and (state.held, (0,)) in value:
        reached = [
            (value[state.held, (model,)], stopped[state.held, (model,)]) for model in state.next_models
        ]
        targets = [after - stops for after, stops in reached]
        own = np.stack([after for after, _ in reached], axis=1) - paid[:, :n_models, None] * prices
    elif state.next_models:
        targets = [np.zeros((n_rows, len(prices)))] * n_models
    groups = [n_models + group for group in state.next_groups]
    after = [value[tuple(sorted((*state.held, group))), ()] for group in state.next_groups]
    every = np.arange(n_rows)
    after = [
        np.where(at.is_solved_by(group, every)[:, None], 1.0, one)
        for group, one in zip(groups, after, strict=True)
    ]
    targets += [one - turned_out[:, 0] for one in after]
    target = np.stack(targets, axis=1)
    here = ~np.any([at.is_solved_by(n_models + group, every) for group in state.held] or [every < 0], axis=0)
    coefficients = ridge(features[here], target[here].reshape(here.sum(), -1), _ALPHA)
    coefficients = coefficients.reshape(-1, len(targets), len(prices))
    estimate = np.einsum("nf,fcp->ncp", features, coefficients)
    estimate[:, :n_models] += direct
    unit = prices + at.second
    estimate[:, n_models:] += base - cost[:, groups, None] * unit
    chosen = first_largest(estimate, axis=1)[:, None]
    worth = np.concatenate(
        [
            own,
            *(
                one[:, None] - paid[:, [at_group], None] * unit
                for one, at_group in zip(after, groups, strict=True)
            ),
        ],
        axis=1,
    )
    return np.take_along_axis(worth, chosen, 1)[:, 0], coefficients


# -- prices ----------------------------------------------------------------------------------------


def priced_columns(
    prices: Prices, n_features: int, names: Sequence[str] | None
) -> tuple[ColumnSets, Floats, Floats | None]:
    """Groups of columns that cost, cheapest first, their prices, and the share of these after another group."""
    if len(prices.by_row) or prices.full or prices.full_features is not None:
        raise InvalidInputError(
            "prices of a router are those of columns: leave out full and full_features, which are the models, and give "
            "prices that differ by row as further columns of cost."
        )
    listed = check_price_list(prices, n_features, names)
    listed.refuse_resources("a router")
    order = np.argsort(listed.prices, kind="stable")
    order = order[listed.prices[order] > 0.0]
    if not len(order):
        raise InvalidInputError(
            "prices must have a column that costs; leave them out where all columns are free."
        )
    called = (
        [str(name) for name in names] if names is not None else [f"x{column}" for column in range(n_features)]
    )
    groups = [np.flatnonzero(listed.group_of == group) for group in order]
    labels = [_label(prices.groups, columns, called) for columns in groups]
    shares = None
    if listed.discounts is not None:
        shared, saved = listed.discounts.of[order], listed.discounts.savings
        alike = (shared[:, None] == shared) & (shared >= 0)[:, None] & ~np.eye(len(order), dtype=bool)
        left = 1.0 - np.where(shared >= 0, saved[shared], 0.0) / listed.prices[order]
        shares = np.where(alike, left[:, None], 1.0)
    free = np.flatnonzero(listed.prices[listed.group_of] == 0.0)
    nothing = np.zeros((1, len(order)), dtype=bool)
    columns = ColumnSets(tuple(labels), tuple(groups), free, nothing, (None,), np.empty((2, 0)))
    return columns, listed.prices[order], shares


def free_columns(n_features: int) -> ColumnSets:
    """Columns of which none costs."""
    nothing = np.zeros((1, 0), dtype=bool)
    return ColumnSets((), (), np.arange(n_features), nothing, (None,), np.empty((2, 0)))


def _label(groups: Any, columns: Ints, names: Sequence[str]) -> str:
    """Name of a group of columns: its label, or the name of its only column."""
    first = int(columns[0])
    label = None
    if isinstance(groups, Mapping):
        label = groups.get(names[first], groups.get(first))
    elif groups is not None:
        label = list(groups)[first]
    return names[first] if label is None else str(label)


def with_columns(
    log: Log, columns: ColumnSets, paid: Floats, shares: Floats | None, names: Sequence[str]
) -> Log:
    """A log of models with the groups of columns, and early runs of models, as further purchases."""
    n_models, means = log.n_models, np.stack([log.quality.mean(axis=0), log.cost.mean(axis=0)])
    after, solved_by = log.after, log.solved_by
    if shares is not None:
        after = np.ones((n_models + len(shares),) * 2) if after is None else after
        after[n_models:, n_models:] = np.minimum(after[n_models:, n_models:], shares)
    runs = () if log.cutoff is None or not columns.names else early_runs(log.quality, log.cost, log.cutoff)
    if runs:
        called = tuple(f"{names[model]} for {seconds:.3g} s" for model, seconds in runs)
        nothing = (np.empty(0, dtype=np.intp),) * len(runs)
        columns = replace(columns, names=columns.names + called, groups=columns.groups + nothing, runs=runs)
        columns = replace(columns, sets=np.zeros((1, len(columns.names)), dtype=bool))
        taken, ends = columns.early(log.quality, log.cost)
        paid, solved_by = (
            np.column_stack([paid, taken]),
            ends if solved_by is None else np.column_stack([solved_by, ends]),
        )
        after = None if after is None else np.pad(after, (0, len(runs)), constant_values=1.0)
    return replace(
        log,
        expected=np.column_stack([log.expected, np.repeat(paid.mean(axis=0)[None], len(log), axis=0)]),
        cost=np.column_stack([log.cost, paid]),
        after=after,
        columns=replace(columns, means=means),
        solved_by=solved_by,
    )


def early_runs(quality: Floats, seconds: Floats, cutoff: float) -> tuple[tuple[int, float], ...]:
    """Short runs of models that solve most rows in a second, one after the other; each solves further rows."""
    unsolved, left = np.ones(len(quality), dtype=bool), _EARLY * cutoff
    runs: list[tuple[int, float]] = []
    taken = np.where(quality > 0.0, seconds, np.inf)
    while len(runs) < _MAX_RUNS:
        within = np.sort(taken[unsolved][taken[unsolved] <= left])
        least = _LEAST_SOLVED * len(quality)
        if len(within) < least or not within[-1] > 0.0:
            break
        limits = np.unique(within[np.linspace(0, len(within) - 1, 50).astype(int)])
        limits = np.maximum(limits[limits > 0.0], 1e-4 * cutoff)
        solved = np.stack([(taken[unsolved] <= limit).sum(axis=0) for limit in limits])
        rate = np.where(solved >= least, solved / limits[:, None], 0.0)
        place, model = np.unravel_index(int(np.argmax(rate)), rate.shape)
        if not rate[place, model] > 0.0:
            break
        runs.append((int(model), float(limits[place])))
        unsolved &= ~(taken[:, model] <= limits[place])
        left -= float(limits[place])
    return tuple(runs)
