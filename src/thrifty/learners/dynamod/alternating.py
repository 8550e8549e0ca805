"""The alternation of (OPT2): the outer loop of the paper's Algorithms 1 to 3, q-steps and pair steps in turn.

    min_{f1, g, q}  mean[(1 - q) l(f1) + q l(f0) + D(q, g)] + Omega(f1, g)
    subject to      mean(w q) <= limit                                      (OPT2; OPT1 with prices w)

Each half-step minimises the same objective over some of its variables, so the objective never
rises as long as the pair's own fit does not raise it: exact for linear pairs, approximate for trees.

*Budgets.* The constraint of (OPT1) is on what the columns of the pair and the calls of the full model cost together,

    mean[c(f1, x)] + mean[q w] <= budget,   w = c(f0, x) - c(f1, x)

In the q-step the columns are given: its limit is ``budget - mean[c(f1, x)]`` and its prices are ``w``, which may differ
from row to row: behind a chain, or where a price does. In the pair step the shares are given, and the Lagrangian of
(OPT1) with the multiplier ``lambda`` of the q-step charges ``lambda (1 - mean(q))`` for a unit of price of the columns:
that is gamma (``alternate_under_budget``). A charge that is too low buys columns that leave little for calls, whose
multiplier is then high, and the other way round, so that the charge that reproduces itself can be bracketed.

*Cross-fitting.* The q-step compares the loss of f1 with that of f0. f0 is evaluated out of fold; f1, on its own
training rows, looks better than it is, and the more it overfits, the fewer rows seem to be worth a call. So every fold
has a pair of its own, fitted to the same shares without the rows of the fold, whose f1 answers for them.

``check_pair`` checks a pair written by a user against the protocol ``Pair``.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.special import expit, logit

from thrifty.arrays import Floats, Ints
from thrifty.engine.evidence.thresholds import threshold_curve
from thrifty.engine.full.crossfit import TrainingRows
from thrifty.engine.tasks.logistic import excess_loss
from thrifty.engine.tasks.task import Loss, Task
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.engine.walk.stage import LinearStage
from thrifty.engine.walk.walk import Walk
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod.objective import (
    DISTANCES,
    NEVER,
    Distance,
    DistanceName,
    Solution,
    check_distance,
)
from thrifty.learners.dynamod.qstep import q_step_kl, q_step_squared

MIN_SHARE = 0.01
"""Share of rows that may always be sent during learning: under the KL distance a closed gate would stay closed."""


@dataclass(frozen=True)
class CallBudget:
    """A mean cost per row, and the rows and the chain that it is spent on.

    Attributes
    ----------
    budget : float, or ndarray of shape (n_resources,)
        Most that a row may spend on average; infinite where there is no limit.
    behind : Chain
        Full model that rows are sent to, with its prices.
    rows : TrainingRows
        Rows of the fit.
    route : ndarray of shape (n_samples,)
        Route of each row there.
    """

    budget: Any
    behind: Chain
    rows: TrainingRows
    route: Ints

    def __call__(self, pair: Any) -> tuple[Any, Floats]:
        """The q-step's limit and prices for a pair; None before it has chosen any columns."""
        return self.of(np.empty(0, dtype=np.intp) if pair is None else pair.columns)

    def of(self, columns: Ints) -> tuple[Any, Floats]:
        """The q-step's limit and prices for a pair that buys these columns; of several resources, one of each."""
        stop, extra = self.prices(columns)
        least = MIN_SHARE * np.average(extra, axis=0, weights=self.rows.weight)
        if np.ndim(self.budget):
            return np.maximum(self.budget - stop, least), extra
        return max(self.budget - stop, float(least)), extra

    def prices(self, columns: Ints) -> tuple[Any, Floats]:
        """Mean price of the columns, and what a call costs each row that holds them; of several resources, in each."""
        if np.ndim(self.budget):
            each = [
                replace(self, budget=0.0, behind=behind).prices(columns) for behind in self.behind.by_resource
            ]
            stops, extras = zip(*each, strict=True)
            return np.array(stops), np.column_stack(extras)
        rows = self.rows
        held = LinearStage(columns, np.empty((len(columns), 0)), np.empty(0))
        chain = replace(self.behind, stages=(held,), policy=Policy.of(np.zeros(1)))
        everyone, carried = np.arange(len(rows.y)), np.empty((len(rows.y), 0))
        stop = chain.spent(rows.table, chain.walks_by_stage(rows.table)[0])
        sent = chain.spent(rows.table, Walk(everyone, self.route + 1, carried))
        return float(np.average(stop, weights=rows.weight)), np.maximum(sent - stop, 0.0)

    def share_of(self, columns: Ints) -> float:
        """Share of the rows that could be sent if each cost the mean."""
        limit, extra = self.of(columns)
        mean = np.average(extra, axis=0, weights=self.rows.weight)
        return float(np.min(np.where(mean > 0.0, limit / np.maximum(mean, 1e-300), 1.0).clip(max=1.0)))

    def in_sum(self, multiplier: Any) -> float:
        """Multiplier of what calls cost together, at the exchange rates, from that of each resource."""
        if not np.ndim(self.budget) or self.behind.price_list.resources is None:
            return float(multiplier)
        everything = np.array([each.cost_of_everything for each in self.behind.price_list.by_resource])
        return float(
            (multiplier * everything).sum() / (self.behind.price_list.resources.rates * everything).sum()
        )

    def within(self, curve: Policy, stop: Any, extra: Floats, g: Floats, weight: Floats) -> int:
        """Number of the operating point of one gate that sends most rows within the budget."""
        if not np.ndim(self.budget):
            return curve.within(self.budget).lower
        each = zip(stop, extra.T, strict=True)
        costs = np.column_stack(
            [threshold_curve(g, of_one, of_one + more, weight=weight).cost for of_one, more in each]
        )
        return int(np.flatnonzero((costs <= self.budget * (1 + SLACK)).all(axis=1))[-1])


class Pair(Protocol):
    """A gate and a cheap model that share what they buy, while they are being fitted."""

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Fit to encoded targets ``y``, soft ones included, and to shares sent on, given by their log-odds.

        ``weight`` sums to 1. May start from its last state.
        """

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)``, of shapes (n_samples,) and (n_samples, n_scores)."""

    def penalty(self) -> float:
        """Price of complexity, the paper's Omega(f1, g) times gamma."""


AnyPair = TypeVar("AnyPair", bound=Pair)

Limit = float | Callable[[Any], tuple[Any, Floats]]
"""A cap on the spend on calls, or a function of the pair (None at the start) that returns the cap and the prices."""


class QStep(Protocol):
    """Shares of the rows that are best for a pair: ``argmin_q mean[(1 - q) excess + D(q, g)]`` under the limit."""

    def __call__(
        self,
        excess: Floats,
        g: Floats,
        limit: float,
        *,
        extra_cost: Floats | None = None,
        sample_weight: Floats | None = None,
    ) -> Solution[Floats]:
        """Log-odds of the shares, with ``mean(extra_cost * q) <= limit``, and the multiplier of that limit."""


Q_STEPS: dict[DistanceName, QStep] = {"kl": q_step_kl, "squared": q_step_squared}


@dataclass(frozen=True)
class Round:
    """One round of the alternation: the objective after each of its half-steps, and the mean share sent."""

    after_shares: float
    after_pair: float
    share: float


@dataclass(frozen=True)
class Alternation(Generic[AnyPair]):
    """Result of an alternation: the pair, the shares and the rounds.

    Attributes
    ----------
    pair : Pair
        The pair, fitted.
    log_odds : ndarray of shape (n_samples,)
        Log-odds of the last shares.
    rounds : tuple of Round
        What each round did.
    excess : float
        Mean of ``l(f1) - l(f0)``, as the next q-step would see it.
    held_out : tuple of two ndarrays, optional
        ``(g, f1)`` out of fold, if the pair was cross-fitted.
    """

    pair: AnyPair
    log_odds: Floats
    rounds: tuple[Round, ...]
    excess: float
    held_out: tuple[Floats, Floats] | None = None

    @property
    def objective(self) -> float:
        """The last objective."""
        return self.rounds[-1].after_pair


@dataclass(frozen=True)
class Problem:
    """(OPT2) for the rows of one table: all that an alternation keeps fixed.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Targets as the task encodes them, soft ones included.
    full_loss : ndarray of shape (n_samples,)
        The full model's loss on those rows, out of fold.
    task : Task
        What f1 answers.
    limit : float or callable
        Cap on the mean of ``extra_cost * q``; with no ``extra_cost`` the paper's P_full. A function of the pair, called
        in every round, gives the cap and the extra costs of (OPT1), which depend on what the pair has bought; before
        the first round it is given None.
    distance : {"kl", "squared"} or Distance
        How the gate is compared with the shares; one of your own comes with its ``q_step``.
    q_step : QStep, optional
        Solver of the shares; by default the one of the named distance.
    extra_cost : ndarray of shape (n_samples,), optional
        Price of sending each row on.
    weight : ndarray of shape (n_samples,), optional
        Sample weights of any sum; 1 for every row if not given.
    """

    y: Floats
    full_loss: Floats
    task: Task
    limit: Limit
    _: KW_ONLY
    distance: DistanceName | Distance = "kl"
    q_step: QStep | None = None
    extra_cost: Floats | None = None
    weight: Floats | None = None

    @cached_property
    def loss(self) -> Loss:
        """Loss of the targets."""
        return self.task.loss(self.y)

    @cached_property
    def row_weights(self) -> Floats:
        """Weights that sum to 1."""
        n_rows = len(self.y)
        return np.full(n_rows, 1.0 / n_rows) if self.weight is None else self.weight / self.weight.sum()

    @cached_property
    def gating(self) -> tuple[Distance, QStep]:
        """The distance as a function, and the solver of the shares that belongs to it."""
        if isinstance(self.distance, str):
            name = check_distance(self.distance)
            return DISTANCES[name], Q_STEPS[name] if self.q_step is None else self.q_step
        if self.q_step is None:
            name_of_distance = getattr(self.distance, "__name__", repr(self.distance))
            raise InvalidInputError(
                f"distance {name_of_distance} needs the q-step that belongs to it. Give q_step=, a function such as "
                f"thrifty.learners.dynamod.q_step_kl."
            )
        return self.distance, self.q_step

    def objective(self, pair: Pair, X: Any, log_odds: Floats) -> float:
        """The objective of OPT2 at the given pair and shares."""
        g, f1 = pair.scores(X)
        cheap = expit(-log_odds) * self.loss.values(f1)
        full = expit(log_odds) * self.full_loss
        gating = self.gating[0](log_odds, g)
        return float(self.row_weights @ (cheap + full + gating)) + pair.penalty()

    def best_shares(self, pair: Pair, X: Any, *, at_start: bool = False) -> Solution[Floats]:
        """Log-odds of the shares that are best for the pair as it is."""
        g, f1 = pair.scores(X)
        excess = excess_loss(self.loss.values(f1), self.full_loss)
        limit, extra = (
            self.limit(None if at_start else pair) if callable(self.limit) else (self.limit, self.extra_cost)
        )
        step = self.gating[1](excess, g, limit, extra_cost=extra, sample_weight=self.row_weights)
        return replace(step, value=np.maximum(step.value, NEVER)) if np.all(np.equal(limit, 0.0)) else step

    def implied_charge(self, step: Solution[Floats]) -> float:
        """``lambda (1 - mean(q))``: what the Lagrangian of (OPT1) charges for a unit of price of the columns."""
        multiplier = (
            self.limit.in_sum(step.multiplier) if isinstance(self.limit, CallBudget) else step.multiplier
        )
        return float(multiplier) * float(self.row_weights @ expit(-step.value))


def alternate(
    pair: AnyPair,
    X: Any,
    problem: Problem | Floats,
    *former: Any,
    folds: "Sequence[Fold[AnyPair]] | None" = None,
    max_iter: int = 50,
    tol: float = 1e-6,
    **settings: Any,
) -> Solution[Alternation[AnyPair]]:
    """Alternate between the shares sent on and the pair, starting from the pair as given.

    Parameters
    ----------
    pair : Pair
        Fitted in place, starting from its state.
    X : table
        Rows of the problem, as the pair's ``fit`` takes them.
    problem : Problem
        Targets, losses of the full model, the limit and the distance.
    folds : sequence of Fold, optional
        Pairs of which each answers with its f1 for rows that it was not fitted on; without them f1 is evaluated on its
        own rows, as in the paper. The objective is then that of rows that f1 has not seen: no half-step minimises it,
        so it may rise.
    max_iter, tol
        Stop after so many rounds, or when a round lowers the objective by less than
        ``tol * max(1, |objective|)``.
    *former, **settings
        Fields of the problem one by one, as version 0.3 took them: deprecated.

    Returns
    -------
    Solution
        ``residual`` is the last round's decrease of the objective.
    """
    if not isinstance(problem, Problem):
        warnings.warn(
            "alternate takes its targets and settings as one value: alternate(pair, X, Problem(y, full_loss, task, "
            "limit, distance=...)). The former arguments go with the next release.",
            FutureWarning,
            stacklevel=2,
        )
        problem = Problem(problem, *former, **settings)
    elif former or settings:
        raise InvalidInputError(
            f"alternate takes the settings of its problem as fields of it; got {', '.join(settings) or 'more values'} "
            f"besides. Give them to Problem."
        )
    return _run(problem, pair if folds is None else CrossFittedPair(pair, folds), X, max_iter, tol)


def alternate_under_budget(
    pair: Any,
    X: Any,
    problem: Problem,
    budget: CallBudget,
    *,
    folds: "Sequence[Fold[Any]] | None" = None,
    max_iter: int = 50,
    tol: float = 1e-6,
) -> Solution[Alternation[Any]]:
    """Alternate with the charge for columns that (OPT1) implies, ``lambda (1 - mean(q))``.

    A few short alternations bracket the charge that equals what the multiplier of its own q-step implies. Columns are
    bought one at a time, so that it may lie in a jump: of the pairs tried, the one is kept that loses least once
    its gate has the threshold that spends the budget.

    Parameters
    ----------
    pair : Pair
        It has ``columns``, those that it buys, and its ``charge``, that of the objective for a unit of price, is set
        here.
    budget : CallBudget
        The budget and what is spent of it: the limit of the problem.
    others
        As in ``alternate``.
    """
    problem = replace(problem, limit=budget, extra_cost=None)
    fitted = pair if folds is None else CrossFittedPair(pair, folds)
    y, weight = problem.y, problem.row_weights
    step = problem.best_shares(fitted, X, at_start=True)
    # At a charge of one unit, everything together would cost as much as there is to lose.
    most = problem.objective(fitted, X, step.value) - fitted.penalty()
    of_calls = budget(None)[1]
    if of_calls.ndim == 2 and (resources := budget.behind.price_list.resources) is not None:
        of_calls = (of_calls * resources.rates).sum(axis=1)
    unit = most / max(float(weight @ of_calls), np.finfo(np.float64).tiny)
    low, high = LEAST_CHARGE * unit, MOST_CHARGE * unit
    charge = float(np.clip(problem.implied_charge(step), low, unit))
    best: tuple[float, float, Floats | None] = (np.inf, high, None)
    for _ in range(MAX_CHARGES):
        fitted.charge = charge
        run = _run(problem, fitted, X, ROUNDS_PER_CHARGE, tol)
        implied = problem.implied_charge(problem.best_shares(fitted, X))
        loss = _routed_loss(problem, fitted, X, budget)
        if loss < best[0]:
            best = loss, charge, run.value.log_odds
        is_within = np.isfinite(loss)
        if is_within and implied <= charge:
            high = charge
        else:
            low = charge
        if high <= CLOSE_CHARGES * low:
            break
        jumps = is_within and CLOSE_CHARGES * low < implied < high / CLOSE_CHARGES
        charge = implied if jumps else float(np.sqrt(low * high))
    loss, fitted.charge, log_odds = best
    if log_odds is not None:
        fitted.fit(X, y, log_odds, weight)
    run = _run(problem, fitted, X, max_iter, tol, log_odds)
    if log_odds is not None and _routed_loss(problem, fitted, X, budget) > loss:
        fitted.fit(X, y, log_odds, weight)
        run = replace(run, value=_ended(problem, fitted, X, log_odds, run.value.rounds))
    return run


def _routed_loss(problem: Problem, fitted: Any, X: Any, budget: CallBudget) -> float:
    """Mean loss once the rows with the largest gates are sent that the budget pays for; infinite if it pays for none.

    Gate and f1 are out of fold where the pair has folds.
    """
    stop, extra = budget.prices(fitted.columns)
    if np.any(stop > budget.budget * (1 + SLACK)):
        return np.inf
    g, f1 = fitted.held_out() if isinstance(fitted, CrossFittedPair) else fitted.scores(X)
    cheap = -problem.loss.values(f1)
    stops, goes = (0.0, 1.0) if np.ndim(budget.budget) else (stop, stop + extra)
    curve = threshold_curve(g, stops, goes, cheap, -problem.full_loss, weight=problem.row_weights)
    return -float(curve.score[budget.within(curve, stop, extra, g, problem.row_weights)])


LEAST_CHARGE, MOST_CHARGE = 1e-4, 10.0
"""Charges that are looked at, where 1 makes everything cost as much as there is to lose."""
CLOSE_CHARGES = 1.3
"""Ratio up to which two charges count as equal."""
MAX_CHARGES, ROUNDS_PER_CHARGE = 8, 3


def _run(
    problem: Problem,
    fitted: "AnyPair | CrossFittedPair[AnyPair]",
    X: Any,
    max_iter: int,
    tol: float,
    log_odds: Floats | None = None,
) -> Solution[Alternation[AnyPair]]:
    """Alternate q-steps and pair steps; ``log_odds`` are the shares that the pair is fitted to already."""
    rounds: list[Round] = []
    weight, last, change = problem.row_weights, np.inf, np.inf
    for _ in range(max_iter):
        shares = problem.best_shares(fitted, X, at_start=log_odds is None).value
        # Under the squared distance the shares solve a non-convex problem whose exact answer may leave a duality gap of
        # one row: the previous ones may be better still, unless the limit has moved with the pair.
        if (
            log_odds is None
            or callable(problem.limit)
            or problem.objective(fitted, X, shares) <= problem.objective(fitted, X, log_odds)
        ):
            log_odds = shares
        after_shares = problem.objective(fitted, X, log_odds)
        fitted.fit(X, problem.y, log_odds, weight)
        after_pair = problem.objective(fitted, X, log_odds)
        rounds.append(Round(after_shares, after_pair, float(weight @ expit(log_odds))))
        change = abs(last - after_pair)
        last = after_pair
        if change <= tol * max(1.0, abs(after_pair)):
            break
    converged = change <= tol * max(1.0, abs(last))
    assert log_odds is not None  # max_iter >= 1 is checked by the estimators
    ended = _ended(problem, fitted, X, log_odds, tuple(rounds))
    return Solution(ended, float(change), len(rounds), bool(converged))


def _ended(
    problem: Problem,
    fitted: "AnyPair | CrossFittedPair[AnyPair]",
    X: Any,
    log_odds: Floats,
    rounds: tuple[Round, ...],
) -> Alternation[AnyPair]:
    """Result of an alternation that has come to a pair and the shares that it is fitted to."""
    excess = excess_loss(problem.loss.values(fitted.scores(X)[1]), problem.full_loss)
    mean = float(problem.row_weights @ excess)
    if isinstance(fitted, CrossFittedPair):
        return Alternation(fitted.pair, log_odds, rounds, mean, fitted.held_out())
    return Alternation(fitted, log_odds, rounds, mean)


@dataclass(frozen=True)
class Fold(Generic[AnyPair]):
    """A pair fitted without the rows of one fold.

    Attributes
    ----------
    pair : Pair
        Fitted in place.
    X : table
        Rows of ``train``, as the pair's ``fit`` takes them.
    train, out : ndarray of int
        Rows that it is fitted on, and rows that it answers for.
    scores : callable
        ``scores(pair)`` gives ``(g, f1)`` of the rows ``out``.
    """

    pair: AnyPair
    X: Any
    train: Ints
    out: Ints
    scores: Callable[[AnyPair], tuple[Floats, Floats]]


class CrossFittedPair(Generic[AnyPair]):
    """A pair and one for each fold: scores are the pair's own gate and, for every row, the f1 of its fold.

    Parameters
    ----------
    pair : Pair
        Fitted on all rows: what serves.
    folds : sequence of Fold
        Every row is held out in one of them.
    """

    def __init__(self, pair: AnyPair, folds: Sequence[Fold[AnyPair]]) -> None:
        self.pair = pair
        self._folds = folds

    @property
    def columns(self) -> Ints:
        """Columns that the pair buys."""
        columns: Ints = self.pair.columns  # type: ignore[attr-defined]  # of those that buy
        return columns

    @property
    def charge(self) -> float:
        """Charge of the objective for a unit of price, in all folds."""
        charge: float = self.pair.charge  # type: ignore[attr-defined]  # of those that buy
        return charge

    @charge.setter
    def charge(self, charge: float) -> None:
        for pair in (self.pair, *(fold.pair for fold in self._folds)):
            pair.charge = charge  # type: ignore[attr-defined]  # of those that buy

    def fit(self, X: Any, y: Floats, log_odds: Floats, weight: Floats) -> Self:
        """Fit the pair and those of all folds to the same shares."""
        self.pair.fit(X, y, log_odds, weight)
        for fold in self._folds:
            part = weight[fold.train]
            fold.pair.fit(fold.X, y[fold.train], log_odds[fold.train], part / part.sum())
        return self

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """``(g, f1)`` of the rows of the fit: the gate as it serves, f1 out of fold."""
        return self.pair.scores(X)[0], self.held_out()[1]

    def held_out(self) -> tuple[Floats, Floats]:
        """``(g, f1)`` of the rows of the fit, both out of fold."""
        parts = [fold.scores(fold.pair) for fold in self._folds]
        order = np.argsort(np.concatenate([fold.out for fold in self._folds]))
        g, f1 = (np.concatenate(some)[order] for some in zip(*parts, strict=True))
        return g, f1

    def penalty(self) -> float:
        """Price of the pair's own complexity."""
        return self.pair.penalty()


def check_pair(
    pair: Pair, X: Any, y: Floats, *, task: Task, distance: DistanceName | Distance = "kl", seed: int = 0
) -> None:
    """Check that a pair follows the protocol ``Pair``: fit it to shares, and raise a descriptive error.

    Checked are the shapes of the scores, that they are finite and the same when asked for twice, that ``fit`` returns
    the pair and changes nothing it was given, that a second fit forgets the shares of the first, that the penalty is no
    less than 0, and that the fit is worth having: its part of (OPT2) is lower than that of the best constants.

    Parameters
    ----------
    pair : Pair
        The pair, as it would be given to ``alternate``; it is fitted.
    X, y : arrays
        Rows, of which some columns should tell the labels, and targets as the task encodes them.
    task : Task
        What f1 answers.
    distance : {"kl", "squared"} or Distance
        What the gate is fitted by.
    seed : int
        Seed of the shares.
    """
    for holds, rule in _rules_of_pairs(pair, X, y, task, distance, seed):
        if not holds:
            raise InvalidInputError(
                f"{type(pair).__name__} is no Pair: {rule}. See thrifty.learners.dynamod.Pair."
            )


def _rules_of_pairs(
    pair: Pair, X: Any, y: Floats, task: Task, distance: DistanceName | Distance, seed: int
) -> Iterator[tuple[bool, str]]:
    """Truth of each rule for a pair, and the rule; later rules are tried only if the earlier ones hold."""
    apart = DISTANCES[distance] if isinstance(distance, str) else distance
    rng, weight, of_label = np.random.default_rng(seed), np.full(len(y), 1.0 / len(y)), task.loss(y)
    g, f1 = pair.scores(X)
    shapes, wanted = (np.shape(g), np.shape(f1)), ((len(y),), (len(y), task.n_scores))
    yield shapes == wanted, f"scores must have shapes {wanted}; got {shapes}"
    # Shares that depend on the loss of f1, as in an alternation.
    loss = of_label.values(f1)
    shares = logit(np.clip(0.2 + 0.3 * (loss > np.median(loss)) + 0.1 * rng.random(len(y)), 0.01, 0.99))
    before = shares.copy(), y.copy(), weight.copy()
    yield pair.fit(X, y, shares, weight) is pair, "fit must return the pair itself"
    unchanged = all(map(np.array_equal, before, (shares, y, weight)))
    yield unchanged, "fit must not change the arrays it is given"
    g, f1 = pair.scores(X)
    yield bool(np.isfinite(g).all() and np.isfinite(f1).all()), "scores must be finite"
    same = all(map(np.array_equal, (g, f1), pair.scores(X)))
    yield same, "scores must be the same when asked for twice"
    penalty = float(pair.penalty())
    yield np.isfinite(penalty) and penalty >= 0.0, f"penalty must be at least 0; got {penalty!r}"
    # Gate and f1, each against the best of some constants.
    far = float(apart(shares, g).mean())
    flat = min(float(apart(shares, np.full_like(g, at)).mean()) for at in np.linspace(-5, 5, 101))
    rule = f"the gate must be no farther from the shares than a constant is; got {far:.4g} and {flat:.4g}"
    yield far <= flat + 1e-6, rule
    stays = expit(-shares)
    cheap = float(np.mean(stays * of_label.values(f1)))
    flat = float(np.mean(stays * of_label.values(np.tile(of_label.base(stays), (len(y), 1)))))
    rule = f"f1 must answer the rows that stay better than a constant; it loses {cheap:.4g}, not below {flat:.4g}"
    yield cheap < flat, rule
    sent = float(expit(pair.fit(X, y, np.full(len(y), NEVER), weight).scores(X)[0]).mean())
    yield sent < 0.01, f"fitted to shares of nothing, the gate must send next to nothing; it sends {sent:.2g}"
