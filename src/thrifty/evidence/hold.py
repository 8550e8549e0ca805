"""A budget held by the batch at hand: costs need no labels, so a batch can be cut by its own scores.

A policy that was fixed in advance spends its budget on average over batches. In one batch of n rows, of which a
share s is sent on at a price of D more, the mean cost strays from it by ``D sqrt(s (1 - s) / n)``: a multiple of the
budget where one row in a hundred is sent and that one is dear. Whoever has all rows of a batch at once can send on
just as many as the budget pays for. The price: what happens to a row then depends on its batch.
"""

import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from thrifty.arrays import Floats
from thrifty.chain.chain import Chain
from thrifty.chain.policy import SLACK, Policy
from thrifty.chain.sources import TableReader
from thrifty.errors import InvalidInputError
from thrifty.evidence.cuts import cuts_of
from thrifty.evidence.observe import whole_chain_of
from thrifty.prices.billing import check_amount
from thrifty.rows import key_chance

__all__ = ["hold_budget"]

Thing = TypeVar("Thing")


def hold_budget(system: Thing, X: Any, budget: float, *, seed: int | None = None) -> Thing:
    """Cut a system so that just these rows spend a budget: at most, and as nearly as can be.

        argmax  mean cost   subject to   mean cost <= budget,   over mixes of two neighbouring operating points

    A system with a single gate has an operating point for every threshold; of several gates it is the first that is
    cut, unless the system was fitted with points of its own, as a cascade is. Which rows follow which of two points is
    chance, a fixed function of the row. The full model is not asked.

    Parameters
    ----------
    system : fitted estimator or Chain
        With at least one stage.
    X : table of shape (n_samples, n_features)
        The batch.
    budget : float
        Most that its rows may spend on average.
    seed : int, optional
        Seed of the chance that decides among equal scores; None keeps that of the system.

    Returns
    -------
    fitted estimator or Chain
        For this batch: on other rows it spends something else.

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
    chain, budget = whole_chain_of(system), check_amount("budget", budget)
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
    """The dearest point that the rows can pay for, mixed with its upper neighbour as far as the rest goes."""
    policy = chain.policy if chain.policy.is_measured else _every_cut(chain, reader)
    policy = replace(policy, seed=seed)

    def paid_at(point: int) -> Floats:
        return chain.at(policy.at(point)).cost(reader)

    lower, upper = 0, len(policy)
    paid = paid_at(lower)
    least = float(paid.mean())
    if least > budget * (1 + SLACK):
        raise InvalidInputError(
            f"budget must be at least {least:.6g}, the mean cost of the cheapest route; got {budget!r}. "
            f"Raise the budget, or let the cheap model buy fewer features."
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
    """A point for every distinct cut of the first gate on these rows; the other gates stay as they are."""
    first = chain.stages[0]
    rows = np.arange(reader.n_samples)
    visit = chain.walker.visit(first, reader, rows, chain.walker.carried_at_start(len(rows)))
    cuts = cuts_of(chain.walker.gate_of(visit)).threshold
    thresholds = np.tile(chain.policy.thresholds[chain.policy.lower], (len(cuts), 1))
    thresholds[:, 0] = cuts
    unknown = np.full(len(cuts), np.nan)
    return Policy(thresholds, unknown, unknown)


def _only(policy: Policy, chain: Chain) -> Policy:
    """The points in force alone, where they are cuts of this batch; all of them where the system came with them."""
    if chain.policy.is_measured:
        return policy
    lower, upper = policy.thresholds[policy.lower], policy.thresholds[policy.upper]
    if policy.lower == policy.upper or policy.share == 0.0:
        return Policy.of(lower, seed=policy.seed)
    return Policy.of(lower, upper, share=policy.share, seed=policy.seed)
