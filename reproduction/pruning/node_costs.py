"""The closure problem of one forest: its rows say what every node gets wrong and which purchases every split needs."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from reproduction.pruning.closure import Closure, compiled, worthwhile
from reproduction.pruning.forest import PrunableForest
from thrifty.arrays import Bools, Floats, Int64s, Ints
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.trees.ensemble import NodeArrays

__all__ = ["Error", "PruningRows", "closure_of"]

Error = Literal["vote", "probability"]

# Sums of the same numbers in another order differ in their last digits; on this grid they are equal again,
# so that ties are broken alike whatever the order and the repetition of rows.
_GRID = 2.0**38


@dataclass(frozen=True)
class PruningRows:
    """Rows that decide what is pruned.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Features of the rows.
    code : ndarray of shape (n_rows,)
        Number of each row's class.
    weight : ndarray of shape (n_rows,)
        Weights, for what rows pay.
    judged : ndarray of shape (n_trees, n_rows), optional
        Weights for what each tree gets wrong, where trees are judged on different rows.
    """

    X: Any
    code: Ints
    weight: Floats
    judged: Floats | None = None


def closure_of(
    forest: PrunableForest, rows: PruningRows, prices: PriceList, error: Error = "vote"
) -> Closure:
    """State the problem of pruning a forest, with every split that could ever be worth keeping.

    Parameters
    ----------
    forest : PrunableForest
        The forest to prune.
    rows : PruningRows
        Rows that decide; those that the trees were fitted on flatter them.
    prices : PriceList
        What purchases cost.
    error : {"vote", "probability"}, default="vote"
        What a tree loses on a row: 1 where the most frequent class of its leaf is not the row's, or the
        share of the other classes in the leaf. The loss of the forest is the mean over its trees.
    """
    trees = forest.trees
    walk = NodeArrays(trees.roots, trees.feature, trees.threshold, trees.missing_left, trees.children)
    X = np.ascontiguousarray(rows.X, dtype=np.float64)
    losses = [_loss_by_class(answers, error) for answers in (forest.inner, trees.values)]
    at_split, at_leaf = node_losses(X, walk, rows.code, _shares(rows) / trees.n_trees, *losses)
    # A leaf is ``~leaf``, a negative number: counted from the end, leaves stand in reverse behind the splits.
    at = np.concatenate([at_split, at_leaf[::-1]])
    benefit = np.round((at_split - at[trees.children].sum(axis=1)) * _GRID) / _GRID
    is_open = worthwhile(forest.parents, benefit)
    start, need = _first_uses(X, walk, is_open, prices)
    everything = Closure(
        loss=float(at[trees.roots].sum()),
        splits=np.arange(forest.n_splits),
        parent=forest.parents,
        benefit=benefit,
        own=np.zeros(forest.n_splits),
        start=start,
        need=need,
        price=np.outer(prices.prices, rows.weight / rows.weight.sum()).ravel(),
        group=np.repeat(np.arange(len(prices.prices), dtype=np.int32), len(X)),
    )
    return everything.only(is_open)


def _loss_by_class(answers: Floats, error: Error) -> Floats:
    """What each node loses on a row of each class."""
    if error == "probability":
        return 1.0 - answers
    losses = np.ones_like(answers)
    losses[np.arange(len(answers)), answers.argmax(axis=1)] = 0.0
    return losses


def _shares(rows: PruningRows) -> Floats:
    """What each row counts where a tree is judged; one line for all trees, or one for each."""
    judged = rows.weight[None, :] if rows.judged is None else rows.judged
    total = judged.sum(axis=1, keepdims=True)
    return np.ascontiguousarray(judged / np.where(total > 0, total, 1.0))


def _first_uses(X: Floats, walk: NodeArrays, is_open: Bools, prices: PriceList) -> tuple[Int64s, Int64s]:
    """Where each split's arcs begin, and the purchase, ``group * n_rows + row``, at the end of each."""
    paid = prices.prices > 0
    nothing = np.empty(0, np.int64)
    count = np.zeros(len(is_open), np.int64)
    visit_first_uses(X, walk, is_open, prices.group_of, paid, count, nothing)
    start = np.concatenate([nothing, [0], np.cumsum(count)])
    need = np.empty(start[-1], np.int64)
    if len(need):
        visit_first_uses(X, walk, is_open, prices.group_of, paid, start[:-1].copy(), need)
    return start, need


@compiled
def node_losses(
    X: Any, walk: NodeArrays, code: Any, weight: Floats, inner_loss: Floats, leaf_loss: Floats
) -> tuple[Floats, Floats]:
    """Weighted loss of the rows at every split and every leaf, were it to answer them.

    ``weight`` has shape (n_trees, n_rows), or (1, n_rows) where all trees share it; losses are per class.
    """
    roots, feature, threshold, missing_left, children = walk
    at_split, at_leaf = np.zeros(len(inner_loss)), np.zeros(len(leaf_loss))
    for t in range(len(roots)):
        own = weight[t if len(weight) > 1 else 0]
        for i in range(len(X)):
            if own[i] == 0.0:
                continue
            node = roots[t]
            while node >= 0:
                at_split[node] += own[i] * inner_loss[node, code[i]]
                value, limit = X[i, feature[node]], threshold[node]
                goes_left = not value > limit if missing_left[node] else value <= limit
                node = children[node, 0] if goes_left else children[node, 1]
            at_leaf[~node] += own[i] * leaf_loss[~node, code[i]]
    return at_split, at_leaf


@compiled
def visit_first_uses(
    X: Any, walk: NodeArrays, is_open: Any, group_of: Any, paid: Any, position: Any, need: Any
) -> None:
    """Count in ``position`` of a split the rows that first need some purchase there; note which in ``need``.

    A purchase of a row is the number ``group * n_rows + row``. With an empty ``need`` this only counts. Walks end at
    splits that are not open, and purchases that cost nothing are not noted.
    """
    roots, feature, threshold, missing_left, children = walk
    last = np.full(len(paid), -1, np.int64)
    stamp = 0
    for root in roots:
        for i in range(len(X)):
            stamp += 1
            node = root
            while node >= 0 and is_open[node]:
                group = group_of[feature[node]]
                if paid[group] and last[group] != stamp:
                    last[group] = stamp
                    if len(need):
                        need[position[node]] = group * len(X) + i
                    position[node] += 1
                value, limit = X[i, feature[node]], threshold[node]
                goes_left = not value > limit if missing_left[node] else value <= limit
                node = children[node, 0] if goes_left else children[node, 1]
