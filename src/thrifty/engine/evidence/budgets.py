"""Budgets: met exactly by one batch, or kept by the mean cost of new rows with a given confidence.

*A batch.* Costs need no labels, so a batch can be cut by its own scores. A policy that was fixed in advance spends its
budget on average over batches. In one batch of n rows, of which a share s is sent on at a price of D more, the mean
cost strays from it by ``D sqrt(s (1 - s) / n)``: a multiple of the budget where one row in a hundred is sent and that
one is dear. With all rows of a batch at hand, just as many can be sent on as the budget pays for. The price: the route
of a row then depends on its batch.

*New rows.* A mean over n rows with standard deviation s strays from the mean of all rows by about ``s / sqrt(n)``, and
Student's t bounds that with a given probability. Points are tried from the cheapest on, each at the full level, and
the search ends at the first whose bound exceeds the budget: a point that spends too much can be chosen only if the
first such point passes, so no correction for the number of points is needed. A mix of two points is a point between.
"""

import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import stdtrit

from thrifty.arrays import Floats
from thrifty.engine.evidence.collect import learned_chain_of
from thrifty.engine.evidence.evidence import Evidence, distinct_thresholds
from thrifty.engine.evidence.hypothesis_tests import trials_of
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.purchases.readers import TableReader
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.errors import InvalidInputError, InvalidParameterError
from thrifty.rows import key_chance

__all__ = ["CostBounds", "hold_budget"]

System = TypeVar("System")


def hold_budget(system: System, X: Any, budget: float, *, seed: int | None = None) -> System:
    """Choose the operating point by which one batch spends as much of a budget as possible, and no more.

    For a batch whose rows are all known, without a certificate; for future rows, use ``certified(X, y, budget=...)`` of
    an estimator.

        argmax  mean cost   subject to   mean cost <= budget,   over mixes of two neighbouring operating points

    A system with a single gate has an operating point for every threshold; with several gates the first one is varied,
    unless the system was fitted with operating points, as a cascade is. Which rows follow which of two points is
    pseudo-random, a fixed function of the row. The full model is not called.

    Parameters
    ----------
    system : fitted estimator or Chain
        With at least one stage.
    X : table of shape (n_samples, n_features)
        The batch.
    budget : float
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
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = DynaModGbrtClassifier(ExtraTreesClassifier(random_state=0), n_trees=5, random_state=0).fit(X[::2], y[::2])
    >>> batch = X[1::2]
    >>> held = hold_budget(clf, batch, 15.0)
    >>> bool(14.9 < held.cost(batch).mean() <= 15.0)
    True
    """
    chain, budget = learned_chain_of(system), check_amount("budget", budget)
    if not chain.stages:
        raise InvalidInputError(
            f"hold_budget takes a system with a gate to cut, such as a fitted classifier of thrifty; the "
            f"{type(system).__name__} has no stage."
        )
    reader = chain.reader(X)
    if reader.n_samples == 0:
        return system
    held = chain.at(_hold(chain, reader, budget, chain.policy.seed if seed is None else seed))
    if isinstance(system, Chain):
        return held  # type: ignore[return-value]  # the chain is the system
    other = copy.copy(system)
    other.chain_ = held  # type: ignore[attr-defined]  # an estimator that has a chain
    other.certificate_ = None  # type: ignore[attr-defined]  # what was proved was about another point
    return other


def _hold(chain: Chain, reader: TableReader, budget: float, seed: int) -> Policy:
    """Most expensive point within the budget, mixed with the next one as far as the budget allows."""
    policy = chain.policy if chain.policy.is_measured else _every_cut(chain, reader)
    policy = replace(policy, seed=seed)

    def paid_at(point: int) -> Floats:
        return chain.at(policy.at(point)).cost(reader)

    lower, upper = 0, len(policy)
    paid = paid_at(lower)
    least = float(paid.mean())
    if least > budget * (1 + SLACK):
        raise InvalidParameterError(
            "budget",
            f"must be at least {least:.6g}, the mean cost of the cheapest route; got {budget!r}. Raise the budget, or "
            f"let the cheap model buy fewer features.",
        )
    while upper - lower > 1:
        middle = (lower + upper) // 2
        cost = paid_at(middle)
        if cost.mean() <= budget * (1 + SLACK):
            lower, paid = middle, cost
        else:
            upper = middle
    if upper == len(policy):
        return _only(policy.at(lower), chain)
    extra, purse = paid_at(upper) - paid, budget * len(paid) - paid.sum()
    chance = key_chance(reader.keys(np.arange(reader.n_samples)), policy.seed)
    values, lump = np.unique(chance, return_inverse=True)
    spent = np.r_[0.0, np.cumsum(np.bincount(lump, weights=extra))]
    # No lump at all can always be paid: the lower point was found to be within the budget.
    is_paid = np.r_[True, spent[1:] <= purse + SLACK * budget * len(paid)]
    n_lumps = int(np.flatnonzero(is_paid)[-1])
    edges = np.r_[0.0, (values[1:] + values[:-1]) / 2, 1.0]
    return _only(policy.at(lower, upper, float(edges[n_lumps])), chain)


def _every_cut(chain: Chain, reader: TableReader) -> Policy:
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


class CostBounds:
    """Confidence bounds of the mean cost of operating points, from held-out rows.

    Parameters
    ----------
    evidence : Evidence
        The held-out rows.
    n_rows : int
        Number of distinct rows among them: a repeated row is not a second observation.
    """

    def __init__(self, evidence: Evidence, n_rows: int) -> None:
        self._evidence, self._n_rows = evidence, n_rows

    @classmethod
    def on_held_out(cls, held_out: Evidence, fitted_on: Evidence, duplicates: str) -> "CostBounds":
        """Bounds from held-out rows, without those that equal rows of the fit."""
        trials = trials_of(held_out.rows, fitted_on.known_rows, held_out.n_rows, duplicates)
        if trials.n_trials < 2:
            raise InvalidInputError(
                f"a mean cost cannot be bounded: of {held_out.n_rows:,} rows kept out of the fit, {trials.n_trials} "
                f"differ from each other and from those of the fit. Give more rows."
            )
        return cls(held_out.take(np.flatnonzero(trials.kept)), trials.n_trials)

    def within(self, policy: Policy, budget: float, confidence: float) -> Policy:
        """Policy at the most expensive point, or mix, whose upper bound is within the budget; points by rising cost."""
        lower, paid = -1, np.empty(0)
        for place, thresholds in enumerate(policy.thresholds):
            dearer = self._paid(thresholds)
            bound = self._bound(dearer, confidence)
            if bound > budget * (1 + SLACK):
                break
            lower, paid = place, dearer
        else:
            return policy.at(lower)
        if lower < 0:
            raise InvalidParameterError(
                "budget",
                f"of {budget!r} cannot be shown to be kept with a confidence of {confidence!r}: on {self._n_rows:,} "
                f"rows that the fit has not seen, the cheapest point spends {float(dearer.mean()):.6g} on average, and "
                f"the mean of new rows may be {bound:.6g}. Raise the budget, lower confidence, or give more rows.",
            )
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            fits = self._bound((1 - share) * paid + share * dearer, confidence) <= budget
            low, high = (share, high) if fits else (low, share)
        return policy.at(lower, lower + 1, low)

    def interval(self, policy: Policy, level: float, copies: int = 0) -> tuple[float, float]:
        """Confidence interval of the mean cost of new rows at the point in force.

        In cross-validation, ``copies`` fits of the stages judge each its own part of the rows, and the final fit is one
        more such copy. The means of the parts vary by at least ``copies s^2 / n``, and the mean of the final fit varies
        around their average by ``1 + 1 / copies`` times that. In a mix of two points, each new row draws which point it
        follows; where all rows pay the same at a point, that is the only variation.
        """
        share = policy.share
        lower, upper = (self._paid(policy.thresholds[point]) for point in (policy.lower, policy.upper))
        drawn = share * (1 - share) * np.square(upper - lower)
        mean, error = self._mean_and_error((1 - share) * lower + share * upper, drawn)
        margin = float(stdtrit(self._n_rows - 1, (1 + level) / 2)) * error * float(np.sqrt(1 + copies))
        # No row pays less than the cheapest route, or more than the most expensive one.
        return max(mean - margin, float(self._evidence.cost.min())), min(
            mean + margin, float(self._evidence.cost.max())
        )

    def _paid(self, thresholds: Floats) -> Floats:
        return self._evidence.at_point(thresholds)[1]

    def _bound(self, paid: Floats, confidence: float) -> float:
        """Upper confidence bound of the mean cost.

        One row that pays as much as the most expensive one is added: such rows are rare, and where a sample holds too
        few of them by chance, its mean and its variance are both too small.
        """
        n_rows, dearest = self._n_rows, float(paid.max())
        mean, error = self._mean_and_error(paid)
        with_dearest = (n_rows * mean + dearest) / (n_rows + 1)
        squares = (n_rows - 1) * n_rows * error**2 + n_rows * (mean - with_dearest) ** 2
        error = float(np.sqrt((squares + (dearest - with_dearest) ** 2) / ((n_rows + 1) * n_rows)))
        return with_dearest + float(stdtrit(n_rows, confidence)) * error

    def _mean_and_error(self, paid: Floats, drawn: Floats | float = 0.0) -> tuple[float, float]:
        """Mean cost and its standard error; ``drawn`` is the variance of each row's own random draw."""
        weight = self._evidence.weights
        mean = float(np.average(paid, weights=weight))
        # Effective sample size of weighted rows.
        n_rows = self._n_rows * float(weight.sum() ** 2 / (len(weight) * np.square(weight).sum()))
        variance = float(np.average(np.square(paid - mean) + drawn, weights=weight)) / max(n_rows - 1, 1.0)
        return mean, float(np.sqrt(variance))
