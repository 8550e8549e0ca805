"""The threshold that spends a budget, found with more rows than those that were held out.

A budget ``B`` is met where the share sent to f0 is ``s = (B - c1) / (c0 - c1)``. On n held-out rows the share above a
threshold is known up to ``sqrt(s (1 - s) / n)``, and what is wrong with it is multiplied by ``c0 - c1``. The rows that
were learned from are of no use as they are: a model is too sure about them. But the gate can be regrown once per
fold, on the columns it buys, and every learned row scored by a copy that has not seen it. The copies are not the gate:
they learned from fewer rows. So they are asked about the held-out rows too, and the difference between gate and copies
there corrects them:

    share(t) = mean_held[1(g > t)] + weight * ( mean_learned[1(copy > t)] - mean_held[copies' mean of 1(copy > t)] )

This is right on average for any weight; the weight with the least variance is a ratio of a covariance and a
variance, and 0 would be the held-out rows alone.

Where many rows have one score, no threshold may come near the share that is wanted. Then rows above the tied score are
sent, and of the tied rows the fraction that makes up the rest. The thresholds on both sides of a tie are those of the
gate itself: between them lie scores of copies, but no row that the gate will ever see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from thrifty.arrays import Floats
from thrifty.chain.system import Tie
from thrifty.estimators.dynamod_gbrt import DynaModGbrtClassifier
from thrifty.evidence.threshold import cuts_of
from thrifty.rows import content_folds
from thrifty.sweeping.fitting import quiet
from thrifty.tables.candidates import Rows
from thrifty.tables.choice import chance_sent

__all__ = ["Copies", "Spending", "regrow_copies", "spend"]


_FOLDS = 5


@dataclass(frozen=True)
class Copies:
    """Gate scores of copies that have not seen the rows.

    Attributes
    ----------
    learned : ndarray of shape (n_learned,)
        Each learned row by the copy that was grown without it.
    held : tuple of ndarray of shape (n_held,)
        Held-out rows by every copy.
    """

    learned: Floats
    held: tuple[Floats, ...]


@dataclass(frozen=True)
class Spending:
    """A threshold, and how surely its share is known.

    Attributes
    ----------
    threshold : float
        Rows with ``g > threshold`` go to f0.
    share : float
        Share of rows that it sends on, estimated.
    error : float
        Standard error of that share.
    worth : float
        The number of held-out rows that would give the same error on their own.
    tie : Tie, optional
        Rows of which a share goes to f0 as well.
    """

    threshold: float
    share: float
    error: float
    worth: float
    tie: Tie | None = None


def regrow_copies(
    estimator: Any, columns: Sequence[int], learn: Rows, held: Rows, full_on_learn: Floats, seed: int
) -> Copies:
    """Grow the gate once per fold on the columns it buys, which are paid for."""
    X, X_held = (np.asarray(rows.X, dtype=np.float64)[:, columns] for rows in (learn, held))
    folds = content_folds(np.asarray(learn.X, dtype=np.float64), learn.y, _FOLDS, seed)
    free: dict[str, Any] = {"gamma": 0.0, "feature_costs": None, "feature_groups": None, "full_cost": 0.0}
    learned, on_held = np.empty(len(X)), []
    for fold in range(_FOLDS):
        out = folds == fold
        if isinstance(estimator, DynaModGbrtClassifier):
            free["full"] = full_on_learn[~out]
        with quiet():
            copy = clone(estimator).set_params(**free).fit(X[~out], learn.y[~out])
        learned[out] = copy.scores(X[out])[0]
        on_held.append(copy.scores(X_held)[0])
    return Copies(learned, tuple(on_held))


def spend(g: Floats, share: float, copies: Copies | None = None, *, seed: int = 0) -> Spending:
    """The threshold above which a share of the rows lies, with a tie where no threshold comes within one row of it.

    Parameters
    ----------
    g : ndarray of shape (n_held,)
        The gate's own scores of held-out rows.
    share : float
        What is to be sent, in [0, 1].
    copies : Copies, optional
        Scores of copies; without them the held-out rows speak alone.
    seed : int, default=0
        Of the chance that settles ties.
    """
    if not 0.0 < share < 1.0:
        return Spending(np.inf if share <= 0.0 else -np.inf, float(np.clip(share, 0.0, 1.0)), 0.0, np.inf)
    weight = 0.0 if copies is None else _best_weight(g, copies, float(np.quantile(g, 1.0 - share)))
    tied = _spend_at_tie(g, share, copies, weight, seed)
    if tied is not None:
        return tied
    cuts = np.unique(np.concatenate([g, *(() if copies is None else (copies.learned, *copies.held))]))
    cuts = np.concatenate([[-np.inf], (cuts[1:] + cuts[:-1]) / 2.0, cuts[-1:]])
    sent = _estimates(g, copies, weight, cuts)
    # Estimates of neighbouring cuts may cross; the middle of those that fit best is the least arbitrary.
    distance = np.abs(sent - share)
    fitting = np.flatnonzero(distance <= distance.min() * (1 + 1e-12))
    place = int(fitting[len(fitting) // 2])
    return _spending(g, copies, weight, share, float(cuts[place]), float(sent[place]))


def _spend_at_tie(
    g: Floats, share: float, copies: Copies | None, weight: float, seed: int
) -> Spending | None:
    """The mix of the two thresholds of the gate around a share, if rows tie between them."""
    cuts = cuts_of(g)
    sent = np.clip(_estimates(g, copies, weight, cuts.threshold), 0.0, 1.0)
    # Nobody and everybody are known; estimates of neighbouring cuts in between may cross.
    sent[0], sent[-1] = 0.0, 1.0
    crossing = np.flatnonzero((sent[:-1] <= share) & (share < sent[1:]))
    place = int(crossing[len(crossing) // 2])
    gap = float(sent[place + 1] - sent[place])
    nearest = min(share - float(sent[place]), float(sent[place + 1]) - share)
    if cuts.n_sent[place + 1] - cuts.n_sent[place] < 2 or nearest * len(g) < 1.0:
        return None
    tie = Tie(float(cuts.threshold[place + 1]), float((share - sent[place]) / gap), seed)
    return _spending(g, copies, weight, share, float(cuts.threshold[place]), share, tie)


def _spending(
    g: Floats,
    copies: Copies | None,
    weight: float,
    share: float,
    threshold: float,
    reached: float,
    tie: Tie | None = None,
) -> Spending:
    error = _error(g, copies, weight, threshold, tie)
    worth = share * (1.0 - share) / error**2 if error > 0 else np.inf
    return Spending(threshold, reached, error, float(worth), tie)


def _estimates(g: Floats, copies: Copies | None, weight: float, cuts: Floats) -> Floats:
    """Share of all rows above each cut."""
    sent = _above(g, cuts)
    if copies is None:
        return sent
    on_held = np.mean([_above(one, cuts) for one in copies.held], axis=0)
    corrected: Floats = sent + weight * (_above(copies.learned, cuts) - on_held)
    return corrected


def _above(scores: Floats, cuts: Floats) -> Floats:
    """Share of the scores above each cut."""
    ordered = np.sort(scores)
    above: Floats = 1.0 - np.searchsorted(ordered, cuts, side="right") / len(ordered)
    return above


def _best_weight(g: Floats, copies: Copies, cut: float) -> float:
    own = (g > cut).astype(np.float64)
    theirs = np.mean([one > cut for one in copies.held], axis=0)
    variance = float(np.mean((copies.learned > cut) * 1.0) * np.mean((copies.learned <= cut) * 1.0))
    covariance = float(np.mean((own - own.mean()) * (theirs - theirs.mean())))
    shrunk = float(np.var(theirs)) + variance * len(g) / len(copies.learned)
    return float(np.clip(covariance / shrunk, 0.0, 1.0)) if shrunk > 0 else 0.0


def _error(g: Floats, copies: Copies | None, weight: float, cut: float, tie: Tie | None) -> float:
    own = chance_sent(g, cut, tie)
    if copies is None:
        return float(np.sqrt(own.var() / len(g)))
    theirs = np.mean([chance_sent(one, cut, tie) for one in copies.held], axis=0)
    on_held = float(np.var(own - weight * theirs)) / len(g)
    on_learned = weight**2 * float(np.var(chance_sent(copies.learned, cut, tie))) / len(copies.learned)
    return float(np.sqrt(on_held + on_learned))
