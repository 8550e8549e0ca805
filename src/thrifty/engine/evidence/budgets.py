"""Budgets: met by the mean cost of the rows of a fit, exactly by one batch, or by new rows with a given confidence.

*A batch.* Costs need no labels, so a batch can be cut by its own scores. A policy that was fixed in advance spends its
budget on average over batches. In one batch of n rows, of which a share s is sent on at a price of D more, the mean
cost strays from it by ``D sqrt(s (1 - s) / n)``: a multiple of the budget where one row in a hundred is sent and that
one is dear. With all rows of a batch at hand, just as many can be sent on as the budget pays for. The price: the route
of a row then depends on its batch.

*New rows.* A mean over n rows with standard deviation s strays from the mean of all rows by about ``s / sqrt(n)``, and
from that of the next m rows by ``s sqrt(1 / n + 1 / m)``; Student's t, corrected for skewness, bounds that with a given
probability. Points are tried from the cheapest on, each at the full level, and the search ends at the first whose bound
exceeds the budget: a point that spends too much can be chosen only if the first such point passes, so no correction for
the number of points is needed. Thresholds between two points, and a mix of two, are points between.

*Several resources.* Budgets of m resources are met by a mix of at most m + 1 points, which a linear programme finds.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import linprog
from scipy.special import stdtrit

from thrifty.arrays import Floats
from thrifty.engine.evidence.collect import learned_chain_of
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.frontier import efficient
from thrifty.engine.evidence.hypothesis_tests import trials_of
from thrifty.engine.evidence.measures import mean_and_variance
from thrifty.engine.evidence.thresholds import thresholds_between, with_points_between
from thrifty.engine.prices.billing import Resources, amount_text, check_amount
from thrifty.engine.table.table import Table
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import SLACK, Policy, distinct_thresholds
from thrifty.errors import InvalidInputError, InvalidParameterError
from thrifty.rows import key_chance

System = TypeVar("System")

N_BETWEEN_FOR_BATCH = 63
"""Points between two neighbours by which one batch spends its budget (no command chose it)."""


def within_budget(policy: Policy, budget: float, evidence: Evidence | None, *, mix: bool = True) -> Policy:
    """The policy at the point that spends a budget on the rows of a fit; at a cheaper one where more would not help.

    Between two points it is at thresholds on the way, and chance decides only among rows of one gate score. Two points
    are mixed where that scores higher, where points are rules, and without evidence.

    Parameters
    ----------
    policy : Policy
        Points with their mean costs and scores.
    budget : float
        Largest mean cost.
    evidence : Evidence, optional
        Held-out rows of the fit; None where points are rules.
    mix : bool, default=True
        Whether chance may decide; without, it is the dearest point within the budget.
    """
    # Scores that differ in their last digits only are equal.
    worthwhile = efficient(policy.cost, np.round(policy.score, 12))
    among = policy[worthwhile].within(budget)
    mixed = policy.at(worthwhile[among.lower], worthwhile[among.upper], among.share)
    if evidence is not None and mixed.is_mixed:
        cost = evidence.weighted_means(mixed.thresholds[[mixed.lower, mixed.upper]])[0]
        limit = (1 + SLACK) * ((1 - mixed.share) * cost[0] + mixed.share * cost[1])
        between = thresholds_between(
            among, evidence, lambda point: evidence.weighted_means(point[None])[0][0] <= limit
        )
        if between is not among:
            (low, high), share = between.cost[[between.lower, between.upper]], 0.0
            if high > low:
                share = min(max((budget - float(low)) / float(high - low), 0.0), 1.0)
            mixed = between.at(between.lower, between.upper, share)
    return mixed if mix or mixed.share == 1.0 else mixed.at(mixed.lower)


def mix_within(costs: Floats, score: Floats, limits: Floats) -> Floats | None:
    """Shares of points by which the mean score is largest while mean costs keep to their limits; None if none does.

        argmax  score @ shares   subject to   costs.T @ shares <= limits,   shares >= 0,   sum of shares = 1

    A vertex of a linear programme: at most one point more than there are limits has a share.

    Parameters
    ----------
    costs : ndarray of shape (n_points, n_resources)
        Mean cost of each point in each resource.
    score : ndarray of shape (n_points,)
        Mean score of each point.
    limits : ndarray of shape (n_resources,)
        Largest mean costs; infinite where there is no limit.
    """
    is_limited = np.isfinite(limits)
    scale = np.maximum(costs.max(axis=0), 1e-300)
    relative, ends = (costs / scale)[:, is_limited], (limits * (1 + SLACK) / scale)[is_limited]
    # Of mixes that score alike the cheapest one is wanted.
    loss = -score + 1e-9 * max(float(np.ptp(score)), 1e-9) * (costs / scale).mean(axis=1)
    one = np.ones((1, len(score)))
    result = linprog(loss, relative.T, ends, one, [1.0], bounds=(0.0, 1.0), method="highs-ds")
    return _clean(result.x) if result.status == 0 else None


def _worth(policy: Policy, limits: Floats) -> Floats:
    """Scores; where every resource has a limit, up to a standard error of them more for the points that buy more.

    Where rows are few, a point that buys more often scores less on them by chance, and budgets would not be spent.
    """
    assert policy.costs is not None  # of several resources
    relative = policy.costs / np.maximum(policy.costs.max(axis=0), 1e-300)
    error = policy.error if np.isfinite(limits).all() else 0.0
    worth: Floats = np.round(policy.score + error * relative.mean(axis=1), 12)
    return worth


def _clean(shares: Floats) -> Floats:
    """Shares that sum to one, without those that are rounding errors."""
    shares = np.where(shares < 1e-9, 0.0, shares)
    return np.round(shares / shares.sum(), 12)


def nearest_limits(costs: Floats, limits: Floats) -> Floats:
    """The limits that some mix of points meets and that exceed given ones the least, relative to the dearest costs."""
    scale = np.maximum(costs.max(axis=0), 1e-300)
    n_points, n_resources = costs.shape
    # Variables are the shares, and by how much each limit is exceeded.
    less = np.hstack([(costs / scale).T, -np.eye(n_resources)])
    ends = np.where(np.isfinite(limits), limits / scale, 2.0)
    loss, one = (
        np.r_[np.zeros(n_points), np.ones(n_resources)],
        np.r_[np.ones(n_points), np.zeros(n_resources)],
    )
    result = linprog(loss, less, ends, one[None], [1.0], method="highs-ds")
    excess: Floats = np.maximum(result.x[n_points:], 0.0)
    return limits + scale * excess


def within_budgets(
    policy: Policy,
    resources: Resources,
    budget: Mapping[str, float],
    *,
    mix: bool = True,
    recalls: Floats | None = None,
    floors: Mapping[int, float] | None = None,
) -> Policy:
    """The policy at the mix of points that is worth most within the budgets of several resources.

    Parameters
    ----------
    policy : Policy
        Points with their mean costs in each resource.
    resources : Resources
        The resources.
    budget : dict of str to float
        Largest mean costs, of some of the resources; empty is the cheapest mix that reaches the ``floors``.
    mix : bool, default=True
        Whether points may be mixed; without, it is the best one that keeps to all budgets.
    recalls : ndarray of shape (n_points, n_classes), optional
        Recall of every class at the points.
    floors : dict of int to float, optional
        Least recall by number of the class: what is missed is limited as a cost is.
    """
    assert policy.costs is not None  # of several resources
    limits, costs = resources.limits(budget), policy.costs
    if recalls is not None and floors:
        limits = np.r_[limits, [1 - floor for floor in floors.values()]]
        costs = np.hstack([costs, 1 - recalls[:, list(floors)]])
    worth = _worth(policy, limits) if budget else np.round(-policy.cost, 12)
    if mix:
        shares = mix_within(costs, worth, limits)
    else:
        fits = np.flatnonzero((costs <= limits * (1 + SLACK)).all(axis=1))
        best = fits[np.argmax(worth[fits])] if len(fits) else -1
        shares = None if best < 0 else (np.arange(len(policy)) == best).astype(np.float64)
    if shares is None:
        nearest, n_resources = nearest_limits(costs, limits), len(resources.names)
        near = {
            name: limit for name, limit in resources.named(nearest[:n_resources]).items() if name in budget
        }
        shown, recall = ", ".join(f"{name!r}: {_rounded_up(limit)}" for name, limit in near.items()), ""
        if floors:
            reached = ", ".join(f"{1 - missed:.4g}" for missed in nearest[n_resources:])
            recall = f" with recalls of at least {', '.join(f'{floor:g}' for floor in floors.values())}"
            shown = f"{shown}}} with recalls of {{{reached}"
        raise InvalidParameterError(
            "budget",
            f"must be one that some operating point keeps to{recall}; got {dict(budget)!r}. The nearest is {{{shown}}}"
            + ("." if mix else ", by a mix of points."),
        )
    return _mixed(policy, shares)


def best_mix(policy: Policy, limits: Floats) -> Policy | None:
    """The policy at the mix that scores highest within limits of several resources; None where none keeps to them."""
    assert policy.costs is not None  # of several resources
    shares = mix_within(policy.costs, _worth(policy, limits), limits)
    return None if shares is None else _mixed(policy, shares)


def _mixed(policy: Policy, shares: Floats) -> Policy:
    """The policy with shares of the rows at each of its points, the cheaper ones first."""
    points = np.flatnonzero(shares)
    points = points[np.argsort(policy.cost[points], kind="stable")]
    return policy.mixed(points, shares[points])


def scores_at(policy: Policy, budgets: Floats) -> Floats:
    """Mean score of the best mix of points at each of some budgets of several resources; NaN where none keeps to them.

    Parameters
    ----------
    policy : Policy
        Points with their mean costs in each resource.
    budgets : ndarray of shape (n_budgets, n_resources)
        Largest mean costs; infinite where there is no limit.
    """
    assert policy.costs is not None  # of several resources
    shares = [mix_within(policy.costs, _worth(policy, limits), limits) for limits in budgets]
    return np.array([np.nan if of_one is None else float(of_one @ policy.score) for of_one in shares])


def _rounded_up(amount: float) -> str:
    """A number of six digits, none smaller than the amount."""
    text = f"{amount:.6g}"
    return text if float(text) >= amount * (1 - SLACK) else f"{amount * (1 + 5e-6):.6g}"


N_STEPS = 100
"""Shares of the budgets of several resources, in equal steps, at which a certificate is tried (no command chose it)."""


def mixes_up_to(policy: Policy, limits: Floats) -> list[Policy]:
    """The best mix for each share of the budgets of several resources, from the least that some mix keeps to."""
    assert policy.costs is not None  # of several resources
    mixes = (best_mix(policy, share * limits) for share in np.arange(1, N_STEPS + 1) / N_STEPS)
    return [mix for mix in mixes if mix is not None]


def certified_within(
    mixes: Sequence[Policy],
    bounds: Sequence["CostBounds"],
    resources: Resources,
    budget: Mapping[str, float],
    confidence: float,
) -> Policy:
    """The last of ``mixes_up_to`` the budgets of several resources that new rows prove to keep to all of them.

    The mixes are fixed by the rows of the fit. One passes if the bound of each resource, at the full confidence, is
    within its budget, and the search ends at the first that does not. To be wrong, the first mix that exceeds any
    budget must pass the bound of that very resource: so the bounds need no correction for their number (an
    intersection-union test: Berger, 1982, Technometrics 24).
    """
    passed, missed = None, ""
    for mix in mixes:
        of_each = {
            name: bound.bound(mix, confidence) for name, bound in zip(resources.names, bounds, strict=True)
        }
        over = [name for name, limit in budget.items() if of_each[name] > limit * (1 + SLACK)]
        if over:
            missed = f"the mean of new rows may be {of_each[over[0]]:.6g} {over[0]}"
            break
        passed = mix
    if passed is None:
        raise InvalidParameterError(
            "budget",
            f"of {dict(budget)!r} cannot be shown to be kept with a confidence of {confidence:g}: on "
            f"{bounds[0].n_rows:,} rows, {missed}. Raise the budget, lower confidence, or give more rows.",
        )
    return passed


def hold_budget(system: System, X: Any, budget: Any, *, seed: int | None = None) -> System:
    """Choose the operating point by which one batch spends as much of a budget as possible, and no more.

    For a batch whose rows are all known, without a certificate; for future rows, use ``certified(X, y, budget=...)`` of
    an estimator.

        argmax  mean cost   subject to   mean cost <= budget,   over operating points and thresholds between them

    A system with a single gate has an operating point for every threshold; with several gates the first one is varied,
    unless the system was fitted with operating points, as a cascade is: its thresholds move between two points, past
    the gate scores of the rows of its fit. Which rows of equal scores go on is pseudo-random, a fixed function of the
    row. The full model is not called.

    Of several resources, it is the mix of operating points that scores highest on the rows of the fit among those by
    which this batch keeps to all budgets.

    Parameters
    ----------
    system : fitted estimator or Chain
        With at least one stage.
    X : table of shape (n_samples, n_features)
        The batch.
    budget : float, or dict of resource to float
        Largest mean cost of its rows.
    seed : int, optional
        Seed that decides which rows follow which of two points; None keeps that of the system.

    Returns
    -------
    fitted estimator or Chain
        The system at that point, for this batch: the mean cost of other rows differs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from thrifty import DynaModGbrtClassifier, hold_budget
    >>> from thrifty.learners.dynamod import BoostedOptions
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> full, few = ExtraTreesClassifier(random_state=0), BoostedOptions(n_trees=5)
    >>> clf = DynaModGbrtClassifier(full, options=few, random_state=0).fit(X[::2], y[::2])
    >>> batch = X[1::2]
    >>> held = hold_budget(clf, batch, 15.0)
    >>> bool(14.9 < held.cost(batch).mean() <= 15.0)
    True
    """
    chain = learned_chain_of(system)
    resources = chain.price_list.resources
    budget = check_amount("budget", budget) if resources is None else resources.check_budget("budget", budget)
    if not chain.stages:
        raise InvalidInputError(
            f"hold_budget takes a system with a gate to cut, such as a fitted classifier of thrifty; the "
            f"{type(system).__name__} has no stage."
        )
    reader = chain.reader(X)
    if reader.n_samples == 0:
        return system
    seed, evidence = chain.policy.seed if seed is None else seed, getattr(system, "evidence_", None)
    if resources is None:
        held = chain.at(_hold(chain, reader, budget, seed, evidence))
    else:
        held = chain.at(_hold_several(chain, reader, resources, budget, seed))
    if isinstance(system, Chain):
        return held  # type: ignore[return-value]  # the chain is the system
    other = copy.copy(system)
    other.chain_ = held  # type: ignore[attr-defined]  # an estimator that has a chain
    other.certificate_ = None  # type: ignore[attr-defined]  # it was of another point
    return other


def _hold(chain: Chain, reader: Table, budget: float, seed: int, evidence: Evidence | None) -> Policy:
    """Most expensive point within the budget, mixed with the next one as far as the budget allows.

    With evidence, the next one are thresholds on the way to the next point, by which few rows are sent elsewhere.
    """
    policy = chain.policy if chain.policy.is_measured else _every_cut(chain, reader)
    policy = replace(policy, seed=seed)

    def paid_at(policy: Policy, point: int) -> Floats:
        return chain.at(policy.at(point)).cost(reader)

    def dearest_within(policy: Policy) -> tuple[int, Floats]:
        """The dearest point within the budget, and what rows pay at it."""
        lower, upper, paid = 0, len(policy), paid_at(policy, 0)
        if paid.mean() > budget * (1 + SLACK):
            raise InvalidParameterError(
                "budget",
                f"must be at least {paid.mean():.6g}, the mean cost of the cheapest route; got {budget!r}. Raise the "
                f"budget, or let the cheap model buy fewer features.",
            )
        while upper - lower > 1:
            middle = (lower + upper) // 2
            cost = paid_at(policy, middle)
            if cost.mean() <= budget * (1 + SLACK):
                lower, paid = middle, cost
            else:
                upper = middle
        return lower, paid

    lower, paid = dearest_within(policy)
    if evidence is not None and lower + 1 < len(policy):
        policy = with_points_between(policy, evidence, N_BETWEEN_FOR_BATCH, lower)
        lower, paid = dearest_within(policy)
    upper = lower + 1
    if upper == len(policy):
        return _only(policy.at(lower), chain)
    extra, purse = paid_at(policy, upper) - paid, budget * len(paid) - paid.sum()
    chance = key_chance(reader.keys(np.arange(reader.n_samples)), policy.seed)
    values, tie_group = np.unique(chance, return_inverse=True)
    spent = np.r_[0.0, np.cumsum(np.bincount(tie_group, weights=extra))]
    # The lower point, at which no group pays more, is within the budget.
    is_paid = np.r_[True, spent[1:] <= purse + SLACK * budget * len(paid)]
    n_groups = int(np.flatnonzero(is_paid)[-1])
    edges = np.r_[0.0, (values[1:] + values[:-1]) / 2, 1.0]
    return _only(policy.at(lower, upper, float(edges[n_groups])), chain)


def _hold_several(
    chain: Chain, reader: Table, resources: Resources, budget: dict[str, float], seed: int
) -> Policy:
    """The best mix of points by which a batch keeps to budgets of several resources, by what its rows pay at each."""
    policy, limits = replace(chain.policy, seed=seed), resources.limits(budget)
    if not policy.is_measured:
        raise InvalidInputError(
            "hold_budget with several resources takes a system with operating points, such as a Budgeted* estimator; a "
            "single gate has thresholds: threshold_for(X, budget={...})."
        )

    def paid_at(policy: Policy) -> Floats:
        costs: Floats = chain.at(policy).cost(reader).to_numpy().mean(axis=0)
        return costs

    of_batch = replace(policy, costs=np.array([paid_at(policy.at(point)) for point in range(len(policy))]))
    mix, share = within_budgets(of_batch, resources, budget), 1.0
    for _ in range(_HALVINGS):
        # Keys decide which rows follow which point: a batch may pay a little more than the mean.
        excess = float((paid_at(mix) / np.maximum(limits, 1e-300)).max())
        if excess <= 1 + SLACK:
            return replace(mix, costs=policy.costs)
        share /= excess
        tighter = best_mix(of_batch, share * limits)
        if tighter is None:
            break
        mix = tighter
    return replace(within_budgets(of_batch, resources, budget, mix=False), costs=policy.costs)


def _every_cut(chain: Chain, reader: Table) -> Policy:
    """Points for every distinct threshold of the first gate on these rows; the other gates are unchanged."""
    first = chain.stages[0]
    rows = np.arange(reader.n_samples)
    visit = chain.walker.visit(first, reader, rows, chain.walker.carried_at_start(len(rows)))
    cuts = distinct_thresholds(chain.walker.gate_of(visit))
    thresholds = np.tile(chain.policy.thresholds[chain.policy.lower], (len(cuts), 1))
    thresholds[:, 0] = cuts
    unknown = np.full(len(cuts), np.nan)
    return Policy(thresholds, unknown, unknown)


def _only(policy: Policy, chain: Chain) -> Policy:
    """Policy without the points not in force, if points were made for this batch; unchanged if the fit made them."""
    if chain.policy.is_measured:
        return policy
    lower, upper = policy.thresholds[policy.lower], policy.thresholds[policy.upper]
    if policy.lower == policy.upper or policy.share == 0.0:
        return Policy.of(lower, seed=policy.seed)
    return Policy.of(lower, upper, share=policy.share, seed=policy.seed)


# -- new rows --------------------------------------------------------------------------------------


_HALVINGS = 40


@dataclass(frozen=True)
class CostCertificate:
    """Upper bound of the mean cost of the next rows, from rows on which nothing was chosen.

    Attributes
    ----------
    budget, bound : float, or dict of resource to float
        Limit, and the bound; of several resources all bounds hold together.
    confidence : float
        Confidence of the bound.
    n_rows : int
        Different rows that it is computed from.
    n_next : int
        Number of next rows.
    """

    budget: float | dict[str, float]
    bound: float | dict[str, float]
    confidence: float
    n_rows: int
    n_next: int

    def __str__(self) -> str:
        return (
            f"the next {self.n_next:,} rows cost at most {amount_text(self.bound)} a row, with confidence "
            f"{self.confidence:g}, from {self.n_rows:,} rows"
        )


class CostBounds:
    """Confidence bounds of the mean cost of operating points, from held-out rows.

    Parameters
    ----------
    evidence : Evidence
        The held-out rows.
    n_rows : int
        Number of distinct rows among them: a repeated row is not a second observation.
    n_next : int, optional
        Number of next rows whose mean cost is bounded; by default all rows there are.
    """

    def __init__(self, evidence: Evidence, n_rows: int, n_next: float = np.inf) -> None:
        self.evidence, self.n_rows, self._n_next = evidence, n_rows, n_next

    @classmethod
    def on_held_out(
        cls, held_out: Evidence, fitted_on: Evidence, duplicates: str, n_next: float = np.inf
    ) -> "CostBounds":
        """Bounds from held-out rows, without those that equal rows of the fit."""
        trials = trials_of(held_out.rows, fitted_on.known_rows, held_out.n_units, duplicates)
        if trials.n_trials < 2:
            kept_out = f"{held_out.n_units:,} {held_out.unit_name} kept out of the fit"
            raise InvalidInputError(
                f"a mean cost cannot be bounded: of {kept_out}, {trials.n_trials} differ from each other and from "
                f"those of the fit. Give more rows."
            )
        return cls(held_out.take(np.flatnonzero(trials.kept)), trials.n_trials, n_next)

    def within(
        self, policy: Policy, budget: float, confidence: float, fitted_on: Evidence | None = None
    ) -> Policy:
        """Policy at the most expensive point whose upper bound is within the budget; points by rising cost.

        Between two points it is at thresholds on the way, through the gate scores of the rows they were ``fitted_on``;
        or two points are mixed.
        """
        affordable = -1
        for place in range(len(policy)):
            bound = self.bound(policy.at(place), confidence)
            if bound > budget * (1 + SLACK):
                break
            affordable = place
        else:
            return policy.at(affordable)
        if affordable < 0:
            spent = float(np.average(self._paid(policy.thresholds[0]), weights=self.evidence.weights))
            raise InvalidParameterError(
                "budget",
                f"of {budget:.6g} cannot be shown to be kept with a confidence of {confidence:g}: on {self.n_rows:,} "
                f"rows the cheapest point spends {spent:.6g} on average, and the mean of new rows may be {bound:.6g}. "
                f"Raise the budget, lower confidence, or give more rows.",
            )

        def fits(point: Policy) -> bool:
            return self.bound(point, confidence) <= budget

        policy = policy.at(affordable, affordable + 1)
        if fitted_on is not None and policy.parting >= 0 and policy.is_measured:
            policy = thresholds_between(
                policy, fitted_on, lambda point: fits(Policy.of(point)), self.evidence
            )
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS if policy.parting >= 0 else 0):
            share = (low + high) / 2
            low, high = (share, high) if fits(replace(policy, share=share)) else (low, share)
        return replace(policy, share=low)

    def bound(self, policy: Policy, confidence: float) -> float:
        """Upper confidence bound of the mean cost of new rows at the point in force.

        Student's, from one row more that pays as much as the most expensive one: such rows are rare, and where a sample
        holds too few of them by chance, its mean and its variance are both too small. Means of few rows with a long
        tail above need more (Johnson 1978, Journal of the American Statistical Association 73); without either, bounds
        are exceeded more often than stated where few rows cost most of the money.
        """
        paid, weight = self._drawn(policy)
        n_rows = self._n_effective(self.evidence.weights)
        dearest, mean = float(paid.max()), float(np.average(paid, weights=weight))
        second, third = (float(np.average((paid - mean) ** power, weights=weight)) for power in (2, 3))
        with_dearest = (n_rows * mean + dearest) / (n_rows + 1)
        moved, extra = mean - with_dearest, dearest - with_dearest
        third = (n_rows * (third + 3 * second * moved + moved**3) + extra**3) / (n_rows + 1)
        second = (n_rows * (second + moved**2) + extra**2) / (n_rows + 1)
        if not second > (1e-12 * with_dearest) ** 2:
            return with_dearest
        quantile = float(stdtrit(n_rows, confidence))
        skewness = max(third / second**1.5, 0.0) / np.sqrt(min(n_rows + 1, self._n_next))
        error = np.sqrt(second * (n_rows + 1) / n_rows * (1 / (n_rows + 1) + 1 / self._n_next))
        return with_dearest + float((quantile + skewness * (2 * quantile**2 + 1) / 6) * error)

    def interval(self, policy: Policy, level: float, copies: int = 0) -> tuple[float, float]:
        """Confidence interval of the mean cost of new rows at the point in force.

        In cross-validation, ``copies`` fits of the stages evaluate a part of the rows each, and the final fit is one
        more such copy. The means of the parts vary by at least ``copies s^2 / n``, and the mean of the final fit varies
        around their average by ``1 + 1 / copies`` times that. In a mix of two points, each new row draws which point it
        follows; where all rows pay the same at a point, that is the only variation.
        """
        shares, points = zip(*policy.in_force, strict=True)
        weight = self.evidence.weights
        of_points = np.array([self._paid(policy.thresholds[point]) for point in points])
        paid, drawn = mean_and_variance(of_points, shares)
        mean = float(np.average(paid, weights=weight))
        variance = float(np.average(np.square(paid - mean) + drawn, weights=weight))
        error = float(np.sqrt(variance / max(self._n_effective(weight) - 1, 1.0)))
        margin = float(stdtrit(self.n_rows - 1, (1 + level) / 2)) * error * float(np.sqrt(1 + copies))
        # No row pays less than the cheapest route, or more than the most expensive one.
        return max(mean - margin, float(self.evidence.cost.min())), min(
            mean + margin, float(self.evidence.cost.max())
        )

    def _paid(self, thresholds: Floats) -> Floats:
        return self.evidence.at_point(thresholds)[1]

    def _drawn(self, policy: Policy) -> tuple[Floats, Floats]:
        """Costs at the point in force, and their weights; the next rows draw which of two points they follow."""
        shares, points = zip(*policy.in_force, strict=True)
        paid, weight = [self._paid(policy.thresholds[point]) for point in points], self.evidence.weights
        if np.isinf(self._n_next) or max(shares) == 1.0:
            return mean_and_variance(np.array(paid), shares)[0], weight
        return np.concatenate(paid), np.concatenate([share * weight for share in shares])

    def _n_effective(self, weight: Floats) -> float:
        """Effective number of distinct rows, where rows have weights."""
        return self.n_rows * float(weight.sum() ** 2 / (len(weight) * np.square(weight).sum()))
