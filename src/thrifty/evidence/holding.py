"""A budget held by the batch at hand: costs need no labels, so a batch can be cut by its own scores.

A threshold that was fixed in advance spends its budget on average over batches. In one batch of n rows, of which a
share s is sent on at a price of D more, the mean cost strays from it by ``D sqrt(s (1 - s) / n)``: a multiple of the
budget where one row in a hundred is sent and that one is dear. Whoever has all rows of a batch at once can send on
just as many as the budget pays for. The price: what happens to a row then depends on its batch.
"""

from typing import Any, overload

import numpy as np

from thrifty.arrays import Floats
from thrifty.chain.cascade_system import CascadeSystem
from thrifty.chain.system import GatedSystem, Tie
from thrifty.evidence.efficiency import SLACK
from thrifty.evidence.threshold import cuts_of
from thrifty.exceptions import InvalidInputError
from thrifty.objective.costs import check_amount
from thrifty.rows import uniforms

__all__ = ["hold_budget"]


@overload
def hold_budget(system: GatedSystem, X: Any, budget: float, *, seed: int = 0) -> GatedSystem: ...
@overload
def hold_budget(system: CascadeSystem, X: Any, budget: float, *, seed: int = 0) -> CascadeSystem: ...
def hold_budget(
    system: GatedSystem | CascadeSystem, X: Any, budget: float, *, seed: int = 0
) -> GatedSystem | CascadeSystem:
    """The same system, cut so that just these rows spend a budget: at most, and as nearly as can be.

        argmax_k  mean cost   subject to   mean cost <= budget,   the k rows with the highest scores sent on

    In a chain it is the first gate that is cut; gates further down stay as they are. Among rows of equal scores chance
    decides, a fixed function of the row; rows that are equal in every column share their fate. In a cascade it is the
    mix of two neighbouring operating points, found by what the rows would pay. f0 is not asked.

    Parameters
    ----------
    system : GatedSystem or CascadeSystem
        With at least one stage: ``system_`` of a fitted estimator, say.
    X : table of shape (n_samples, n_features)
        The batch.
    budget : float
        Most that its rows may spend on average.
    seed : int, default=0
        Of the chance that decides among equal scores; a cascade has its own.

    Returns
    -------
    GatedSystem or CascadeSystem
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
    >>> held = hold_budget(clf.system_, batch, 15.0)
    >>> bool(14.9 < held.cost(batch).mean() <= 15.0)
    True
    """
    if isinstance(system, CascadeSystem):
        return _hold_cascade(system, X, check_amount("budget", budget))
    if not isinstance(system, GatedSystem) or not system.stages:
        raise InvalidInputError(
            f"hold_budget takes a system with a gate to cut, such as the system_ of a fitted classifier; "
            f"got {type(system).__name__}{'' if not isinstance(system, GatedSystem) else ' without a stage'}."
        )
    budget = check_amount("budget", budget)
    reader = system.reader(X)
    if reader.n_samples == 0:
        return system
    rows = np.arange(reader.n_samples)
    first = system.stages[0].scorer
    g, _ = first(reader.block(rows, first.columns))
    stop, go = float(system.cost_by_route[0]), system.with_threshold(-np.inf).cost(X)
    _refuse_too_little(budget, stop)
    return _cut(system, g, uniforms(reader.identity(rows), seed), go - stop, (budget - stop) * len(g), seed)


def _cut(
    system: GatedSystem, g: Floats, chance: Floats, extra: Floats, purse: float, seed: int
) -> GatedSystem:
    """Send on by falling score, then by rising chance, as long as the purse pays for it."""
    order = np.lexsort((chance, -g))
    spent = np.r_[0.0, np.cumsum(extra[order])]
    # A sum over rows may miss a round number by its last digit.
    n_sent = int(np.searchsorted(spent, purse + 1e-9 * max(purse, 1.0), side="right")) - 1
    cuts = cuts_of(g)
    place = int(np.searchsorted(cuts.n_sent, n_sent, side="right")) - 1
    threshold, n_above = float(cuts.threshold[place]), int(cuts.n_sent[place])
    if n_sent == n_above:
        return system.with_threshold(threshold)
    tied = chance[order[n_above : cuts.n_sent[place + 1]]]
    # Midway between the last that is sent and the first that is not; equal rows are not sent.
    share = _between(tied, n_sent - n_above)
    return system.with_threshold(threshold, tie=Tie(float(cuts.threshold[place + 1]), share, seed))


def _between(tied: Floats, n_sent: int) -> float:
    first_kept = tied[n_sent]
    sent = tied[tied < first_kept]
    return float((sent[-1] + first_kept) / 2) if len(sent) else 0.0


def _hold_cascade(system: CascadeSystem, X: Any, budget: float) -> CascadeSystem:
    """The dearest operating point that the rows can pay for, mixed with its upper neighbour as far as the rest goes."""
    reader = system.reader(X)
    if reader.n_samples == 0:
        return system
    lower, upper = 0, len(system.operating.cost)
    paid = system.at(lower, lower).cost(X)
    _refuse_too_little(budget, float(paid.mean()))
    while upper - lower > 1:
        middle = (lower + upper) // 2
        cost = system.at(middle, middle).cost(X)
        if cost.mean() <= budget * (1 + SLACK):
            lower, paid = middle, cost
        else:
            upper = middle
    if upper == len(system.operating.cost):
        return system.at(lower, lower)
    extra, purse = system.at(upper, upper).cost(X) - paid, budget * len(paid) - paid.sum()
    chance = uniforms(reader.identity(np.arange(reader.n_samples)), system.operating.seed)
    values, lump = np.unique(chance, return_inverse=True)
    spent = np.r_[0.0, np.cumsum(np.bincount(lump, weights=extra))]
    n_lumps = int(np.flatnonzero(spent <= purse + SLACK * max(budget * len(paid), 1.0))[-1])
    edges = np.r_[0.0, (values[1:] + values[:-1]) / 2, 1.0]
    return system.at(lower, upper, float(edges[n_lumps]))


def _refuse_too_little(budget: float, least: float) -> None:
    if least > budget * (1 + 1e-12):
        raise InvalidInputError(
            f"budget must be at least {least:.6g}, the mean cost of the cheapest route; got {budget!r}. "
            f"Raise the budget, or let the cheap model buy fewer features."
        )
