"""Every family of pairs keeps to one contract; one of a user's own is learned and serves like ours."""

import runpy
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB

from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.trees import bin_columns
from thrifty.engine.trees.other_libraries import additive_trees
from thrifty.errors import InvalidInputError
from thrifty.learners.dynamod import (
    CrossFittedPair,
    Fold,
    Problem,
    alternate,
    check_pair,
    kl_divergence,
    q_step_kl,
)
from thrifty.learners.dynamod.boosted import BoostedPair
from thrifty.learners.dynamod.group_lasso import LinearCoefficients
from thrifty.learners.dynamod.leaf import LeafPair
from thrifty.learners.dynamod.linear import LinearPair
from thrifty.learners.trees.boosting import Boosting

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "plot_own_family.py"))
TASK = BinaryTask(np.array([0, 1]))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = np.where(X[:, 0] + 0.5 * X[:, 1] + 0.5 * RNG.normal(size=200) > 0, 1.0, -1.0)
PRICES = PriceList(np.ones(3), np.arange(3))


def linear(distance="kl"):
    return LinearPair(
        0.001, PRICES, distance=distance, start=LinearCoefficients(np.zeros((3, 2)), np.zeros(2))
    )


def boosted(distance):
    return BoostedPair(bin_columns(X, np.ones(200)), PRICES, 0.1, Boosting(10), TASK, distance)


def over_leaves(distance):
    local = additive_trees(GradientBoostingClassifier(n_estimators=3).fit(X, Y), 3)
    return LeafPair(local, X, distance, 1e-6, -1.0, TASK)


def crossed(distance):
    parts = [np.arange(0, 200, 2), np.arange(1, 200, 2)]
    pair = linear(distance)
    folds = [
        Fold(copy(pair), X[train], train, out, lambda one, out=out: one.scores(X[out]))
        for train, out in (parts, parts[::-1])
    ]
    return CrossFittedPair(pair, folds)


def splines(distance):
    return EXAMPLE["SplinePair"]().start(X, Y, np.full(200, 1 / 200))


OURS = (linear, boosted, over_leaves, crossed)


@pytest.mark.parametrize(
    ("family", "distance"),
    [*((one, name) for one in OURS for name in ("kl", "squared")), (splines, "squared")],
)
def test_a_family_keeps_to_the_contract_of_pairs(family, distance):
    check_pair(family(distance), X, Y, task=TASK, distance=distance)


class Broken(LinearPair):
    """A pair that is linear but for what a test breaks."""


@pytest.mark.parametrize(
    ("method", "does", "words"),
    [
        ("scores", lambda self, X: (np.zeros(len(X)), np.zeros(len(X))), "must have shapes"),
        ("fit", lambda self, *rows: None, "fit must return the pair itself"),
        ("fit", lambda self, *rows: self, "no farther from the shares than a constant"),
        ("penalty", lambda self: -1.0, "penalty must be at least 0"),
    ],
)
def test_what_is_no_pair_is_refused_in_words(method, does, words, monkeypatch):
    monkeypatch.setattr(Broken, method, does)
    pair = Broken(0.001, PRICES, start=LinearCoefficients(np.zeros((3, 2)), np.zeros(2)))
    with pytest.raises(InvalidInputError, match=words):
        check_pair(pair, X, Y, task=TASK)


def test_a_distance_of_ones_own_comes_with_its_q_step():
    def doubled(t, g):
        return 2.0 * kl_divergence(t, g)

    def half_excess(excess, g, limit, **rows):
        return q_step_kl(0.5 * excess, g, limit, **rows)

    full_loss = np.full(200, 0.1)
    problem = Problem(Y, full_loss, TASK, 0.3, distance=doubled)
    with pytest.raises(InvalidInputError, match="doubled needs the q-step"):
        alternate(linear(), X, problem, max_iter=3)
    first = alternate(linear(), X, replace(problem, q_step=half_excess), max_iter=3).value.rounds[0]
    plain = q_step_kl(0.5 * (np.log(2.0) - full_loss), np.zeros(200), 0.3).value
    assert first.share == pytest.approx(np.mean(1 / (1 + np.exp(-plain))))


def test_a_family_of_ones_own_predicts_buys_and_moves():
    clf = EXAMPLE["SplineClassifier"](GaussianNB(), (0,), budget=1.5, random_state=0).fit(X, Y > 0)
    assert clf.features_.tolist() == [0]
    assert clf.cost(X).mean() <= 1.5 + 1e-9
    there = clf.at(budget=2.5)
    assert set(np.unique(there.cost(X))) == {1.0, 3.0}
    assert there.score(X, Y > 0) > 0.8
