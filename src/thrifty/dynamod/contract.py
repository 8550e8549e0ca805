"""What every family of pairs keeps to, as a check that whoever writes one can run."""

from typing import Any

import numpy as np
from scipy.special import expit, logit

from thrifty.arrays import Floats
from thrifty.dynamod.alternating import Pair
from thrifty.dynamod.distances import DISTANCES, NEVER, Distance, DistanceName
from thrifty.errors import InvalidInputError
from thrifty.tasks.task import Task

__all__ = ["check_pair"]


def check_pair(
    pair: Pair, X: Any, y: Floats, *, task: Task, distance: DistanceName | Distance = "kl", seed: int = 0
) -> None:
    """Fit a pair to shares of the rows and refuse it, in words, where it does not keep to ``Pair``.

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
    apart = DISTANCES[distance] if isinstance(distance, str) else distance
    rng = np.random.default_rng(seed)
    weight = np.full(len(y), 1.0 / len(y))
    g, f1 = _scores(pair, X, y, task)
    # Shares that f1's loss tells something about, as they are in an alternation.
    loss = task.loss(y).values(f1)
    shares = logit(np.clip(0.2 + 0.3 * (loss > np.median(loss)) + 0.1 * rng.random(len(y)), 0.01, 0.99))
    given = shares.copy(), y.copy(), weight.copy()
    _refuse_unless(pair.fit(X, y, shares, weight) is pair, pair, "fit must return the pair itself")
    unchanged = all(map(np.array_equal, given, (shares, y, weight)))
    _refuse_unless(unchanged, pair, "fit must not change the arrays it is given")
    g, f1 = _scores(pair, X, y, task)
    again = _scores(pair, X, y, task)
    same = np.array_equal(g, again[0]) and np.array_equal(f1, again[1])
    _refuse_unless(same, pair, "scores must be the same when asked for twice")
    penalty = float(pair.penalty())
    _refuse_unless(
        np.isfinite(penalty) and penalty >= 0.0, pair, f"penalty must be at least 0; got {penalty!r}"
    )
    _check_worth(apart, shares, task, y, g, f1, pair)
    pair.fit(X, y, np.full(len(y), NEVER), weight)
    shut = float(expit(_scores(pair, X, y, task)[0]).mean())
    _refuse_unless(
        shut < 0.01,
        pair,
        f"fitted to shares of nothing, the gate must send next to nothing; it sends {shut:.2g}",
    )


def _scores(pair: Pair, X: Any, y: Floats, task: Task) -> tuple[Floats, Floats]:
    g, f1 = pair.scores(X)
    wanted = (len(y),), (len(y), task.n_scores)
    _refuse_unless(
        (np.shape(g), np.shape(f1)) == wanted,
        pair,
        f"scores must have shapes {wanted[0]} and {wanted[1]}; got {np.shape(g)} and {np.shape(f1)}",
    )
    _refuse_unless(bool(np.isfinite(g).all() and np.isfinite(f1).all()), pair, "scores must be finite")
    return g, f1


def _check_worth(
    apart: Distance, shares: Floats, task: Task, y: Floats, g: Floats, f1: Floats, pair: Pair
) -> None:
    """The pair's part of the objective, gate and model each, against the best of a grid of constants."""
    stays, loss = expit(-shares), task.loss(y)
    gate = float(apart.value(shares, g).mean())
    flat = min(float(apart.value(shares, np.full_like(g, at)).mean()) for at in np.linspace(-5, 5, 101))
    _refuse_unless(
        gate <= flat + 1e-6,
        pair,
        f"the gate must be no farther from the shares than a constant is; got {gate:.4g} and {flat:.4g}",
    )
    cheap = float(np.mean(stays * loss.values(f1)))
    constant = np.tile(loss.base(stays), (len(y), 1))
    flat = float(np.mean(stays * loss.values(constant)))
    _refuse_unless(
        cheap < flat,
        pair,
        f"f1 must answer the rows that stay better than a constant does; its loss is {cheap:.4g}, not below {flat:.4g}",
    )


def _refuse_unless(kept: bool, pair: Pair, rule: str) -> None:
    if not kept:
        raise InvalidInputError(f"{type(pair).__name__} is no Pair: {rule}. See thrifty.dynamod.Pair.")
