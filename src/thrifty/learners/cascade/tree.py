"""A tree of purchases in which every row chooses each purchase, by a mixture of what its class may look like.

Columns are cut into a few levels. Each class is a mixture of components within which columns are independent
(``engine/walk/mixture.py``), found by expectation maximisation (Dempster, Laird and Rubin, 1977); their number and how
far a value speaks for those near it are chosen by the log-loss of one fold. Level by level, from a first purchase of
all rows, every row goes on to the purchase with the largest expected gain for its price, by a mixture that has not seen
its fold. Sets that hold the same columns are one node; those that most rows come to are the nodes of the next level,
and a row chooses among the purchases that lead to one of them. Behind the last level all rows hold the same, and are
scored by the trees of the line with all columns or by the mixture with those that it knows, whichever has the smaller
Brier score out of fold.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.tasks.classes import class_task
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.trees.binning import BinnedTable
from thrifty.engine.walk.mixture import Mixture, MixtureStage, TurnByGain
from thrifty.engine.walk.stage import CascadeStage, ForkStage, Stage
from thrifty.jit import lean_kernel
from thrifty.learners.cascade.evaluation import CLEARLY_BETTER, calibrate, compare
from thrifty.learners.cascade.problem import EVERY_PLACE, CascadeProblem, Plan, TrainingSet
from thrifty.learners.cascade.stages import StagedTrees, stored_bytes
from thrifty.rows import uniforms
from thrifty.threads import workers

MAX_LEVELS, UNEVEN = 24, 1.5
"""Levels of a column, more values being cut into as many parts of equally many rows; and the largest ratio of steps
between values for which positions are the values themselves, not their ranks."""

MAX_CATEGORIES = 60
"""Most categories of a column, each of which is a level."""

MAX_ROWS = 16_000
"""Rows that a mixture is learned from."""

SCREENED, SCREENED_WIDTH = (250, 1_000), 16
"""Rows of the first fold that tell whether more of them, and then the others, are worth the time, and nodes of a level
for them."""

FEW_ROWS, FEW_DEPTH = 2_500, 13
"""Rows of several classes up to which all kinds of mixtures are tried, and purchases that these choose
(``python -m reproduction acquisition``)."""

POOL, DEPTH, WIDTH = 36, 9, 64
"""First purchases of the line's order, among which rows choose; purchases that they choose; and most nodes of a level,
but for those without which rows could not go on."""

FIRST_CANDIDATES = 12
"""Purchases, the best by themselves, that the first purchase is chosen from, together with the next."""

COMPONENTS, MAX_COMPONENTS, ROWS_PER_COMPONENT = (1, 4, 16, 64, 256), 1_600, 5
"""Components of a class to choose from, most of all classes, and rows of the class for each."""

BANDWIDTHS, FIRST_BANDWIDTH = (0.3, 0.15, 0.6), 1.0
"""How far a value speaks for those near it, in standard deviations of a column, and in the first round."""

NORMAL = 0.0
"""Bandwidth that stands for normal densities, of a mean for each component and one spread for each column."""

NORMAL_PULL, NORMAL_FLOOR = 5.0, 0.01
"""Rows with the mean of all that each component counts beside its own, and weight of the shares of all rows."""

PULL = 0.3
"""Rows of the class as a whole that are added to each component."""

ROUNDS = 5
"""Rounds of expectation maximisation."""

JUDGED = (2, 4, 8)
"""Purchases of the line after which numbers of components and bandwidths are evaluated."""

CONTEXTS_UP_TO = 4
"""Components of a class up to which contexts are looked for: more of them have found what depends on what."""

MAX_CONTEXTS, MIN_CONTEXT, MIN_Z = 6, 40, 2.0
"""Most contexts, least rows of one, and z-score by which a split must lower the loss."""

CONTEXT_ROWS, CONTEXT_LEVELS, CONTEXT_PULL = 1_000, 6, 30.0
"""Rows by which contexts are found, levels of a column there, and rows of a part as a whole added to each class."""

UNIT = 2.0**20
"""Parts of a row are whole numbers of its share: sums of them do not depend on their order."""


def coarse_levels(
    table: BinnedTable, columns: Ints, weight: Floats
) -> tuple[NDArray[np.uint8], Floats, NDArray[np.int64], list[Floats], list[Floats]]:
    """Columns in at most ``MAX_LEVELS`` levels: codes, ends, offsets, and positions with a standard deviation of one.

    Positions of few values at about even steps, such as counts, are the values; those of others are ranks. Categories
    are far from each other. The last list has the mean value of each level; nothing of categories.
    """
    codes = np.empty((table.n_rows, len(columns)), dtype=np.uint8)
    ends, positions, values, offsets = list[Floats](), list[Floats](), list[Floats](), [0]
    for number in range(len(columns)):
        byte = int(table.places(columns[[number]])[0])
        own, cuts = table.codes[:, byte], table.thresholds.of(byte)
        n_bins, is_set = len(cuts) + 1, table.categories is not None and bool(table.categories.is_set[byte])
        is_known = own < n_bins
        mass = np.bincount(own[is_known], weight[is_known], minlength=n_bins)
        level_of, gaps = np.arange(n_bins), np.diff(cuts)
        if n_bins > MAX_LEVELS and not is_set:
            middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
            level_of = np.minimum((middle * MAX_LEVELS).astype(int), MAX_LEVELS - 1)
            level_of = np.unique(level_of, return_inverse=True)[1]
        shares = np.bincount(level_of, mass)
        # Cuts are half-way between values.
        middles = np.r_[cuts[:1] - gaps[:1] / 2, (cuts[1:] + cuts[:-1]) / 2, cuts[-1:] + gaps[-1:] / 2]
        is_number = not is_set and len(middles) == n_bins
        values.append(np.bincount(level_of, mass * middles) / shares if is_number else np.empty(0))
        if n_bins <= MAX_LEVELS and len(gaps) > 1 and gaps.max() <= UNEVEN * gaps.min():
            place = middles
        else:
            place = (np.cumsum(shares) - shares / 2) / max(shares.sum(), 1e-300)
        last_of = np.flatnonzero(np.diff(level_of))  # the last bin of every level but the last
        ends.append(cuts[last_of])
        mean = float(place @ shares) / max(float(shares.sum()), 1e-300)
        spread = float(np.sqrt(np.square(place - mean) @ shares / max(float(shares.sum()), 1e-300)))
        positions.append(1e6 * np.arange(float(n_bins)) if is_set else (place - mean) / (spread or 1.0))
        codes[:, number] = np.where(is_known, level_of[np.minimum(own, n_bins - 1)], len(place))
        offsets.append(offsets[-1] + len(last_of))
    return codes, np.concatenate([np.empty(0), *ends]), np.array(offsets, dtype=np.int64), positions, values


def smoothing(positions: Sequence[Floats], bandwidth: float) -> Floats:
    """Kernels between any two levels of a column, rows summing to one, columns one after the other."""
    parts = [np.empty(0)]
    for place in positions:
        near = np.eye(len(place) + 1)
        near[:-1, :-1] = np.exp(-0.5 * np.square((place[:, None] - place[None, :]) / bandwidth))
        # Rounded, so that the last bits of an exponential decide nothing.
        parts.append((near / near.sum(axis=1, keepdims=True)).round(9).ravel())
    return np.concatenate(parts)


@lean_kernel
def maximise(
    codes: NDArray[np.uint8],
    weight: Floats,
    starts: NDArray[np.int64],
    n_levels: NDArray[np.int64],
    first: Floats,
    near: Floats,
    start: Ints,
    n_rounds: int,
    pull: float,
    share: Floats,
    tables: Floats,
    counts: Floats,
    base: Floats,
    mass: Floats,
    part: Floats,
) -> None:
    """Write shares and tables of the components of one class; each begins with the rows that ``start`` gives it.

    ``counts``, ``base`` and ``mass`` are zeros of the shapes of ``tables``, of its rows and of ``share``.
    """
    n_rows, n_columns = codes.shape
    n, total = len(share), 0.0
    for i in range(n_rows):
        total += weight[i]
        for j in range(n_columns):
            base[starts[j] + codes[i, j]] += weight[i]
    for j in range(n_columns):
        for at in range(starts[j], starts[j] + n_levels[j]):
            base[at] = (base[at] + 0.5) / (total + 0.5 * n_levels[j])
    for i in range(n_rows):
        if start[i] >= 0:
            mass[start[i]] += weight[i]
            for j in range(n_columns):
                counts[starts[j] + codes[i, j], start[i]] += weight[i]
    for step in range(n_rounds + 1):
        kernels, begin = (first if step == 0 else near), 0
        for j in range(n_columns):
            width = n_levels[j]
            for to in range(width):
                for k in range(n):
                    tables[starts[j] + to, k] = pull * base[starts[j] + to]
                for level in range(width):
                    closeness = kernels[begin + width * level + to]
                    if closeness > 0.0:
                        for k in range(n):
                            tables[starts[j] + to, k] += closeness * counts[starts[j] + level, k]
                for k in range(n):
                    tables[starts[j] + to, k] /= mass[k] + pull
            begin += width * width
        for k in range(n):
            share[k] = (mass[k] + 0.5) / (total + 0.5 * n)
        if step == n_rounds:
            return
        for at in range(len(counts)):
            for k in range(n):
                counts[at, k] = 0.0
        for k in range(n):
            mass[k] = 0.0
        for i in range(n_rows):
            whole = 0.0
            for k in range(n):
                part[k] = share[k]
            for j in range(n_columns):
                at = starts[j] + codes[i, j]
                for k in range(n):
                    part[k] *= tables[at, k]
            for k in range(n):
                whole += part[k]
            scale = weight[i] / whole if whole > 0.0 else 0.0
            for k in range(n):
                part[k] = np.floor(part[k] * scale * UNIT + 0.5) / UNIT
                mass[k] += part[k]
            for j in range(n_columns):
                at = starts[j] + codes[i, j]
                for k in range(n):
                    counts[at, k] += part[k]


def make_normal(
    table: Floats,
    share: Floats,
    starts: NDArray[np.int64],
    values: Sequence[Floats],
    codes: NDArray[np.uint8],
    weight: Floats,
    part: Ints,
) -> None:
    """Replace chances of the levels of numbers by those of normal densities, whose means are those of components.

    Rows of all components share the spread of a column, so that few of them are enough for a component, and the scores
    are linear in the values (discriminant analysis with a diagonal covariance). Levels are as wide as makes the chances
    of all components add up to those of all rows.

    Parameters
    ----------
    table : ndarray of shape (n_levels of all columns, n_components)
        Chances, in place; those of missing values stay.
    share : ndarray of shape (n_components,)
    starts : ndarray of shape (n_columns,)
        First row of each column in ``table``.
    values : list of ndarray
        Mean value of each level of a column, without "missing"; none of categories.
    codes, weight, part : ndarray with an entry for each row
        Levels, weights and components of the rows.
    """
    for column, middles in enumerate(values):
        is_known, n_levels = codes[:, column] < len(middles), len(middles)
        level, of_row, own = codes[is_known, column], weight[is_known], part[is_known]
        if not len(level) or level.min() == level.max():
            continue
        x, n = middles[level], len(share)
        overall = np.bincount(level, of_row, minlength=n_levels) / of_row.sum()
        pulled = np.bincount(own, of_row * x, minlength=n) + NORMAL_PULL * float(overall @ middles)
        mean = pulled / (np.bincount(own, of_row, minlength=n) + NORMAL_PULL)
        variance = np.average(np.square(x - mean[own]), weights=of_row)
        chance = np.exp(-0.5 * np.square(middles[:, None] - mean) / max(float(variance), 1e-300))
        chance *= (overall / np.maximum((chance * share).sum(axis=1), 1e-300))[:, None]
        chance /= np.maximum(chance.sum(axis=0), 1e-300)
        chance = (1.0 - NORMAL_FLOOR) * chance + NORMAL_FLOOR * (overall + 1e-6)[:, None]
        lines = slice(starts[column], starts[column] + n_levels)
        # Rounded, so that the last bits of an exponential decide nothing.
        table[lines] = (chance * (1.0 - table[starts[column] + n_levels])).round(9)


@dataclass(frozen=True, eq=False)
class Node:
    """A set of purchases with its columns, and the turn that leads on from it."""

    bought: frozenset[int]
    columns: Ints
    turn: TurnByGain | None = None


@dataclass(frozen=True, eq=False)
class PurchaseTree:
    """Nodes of every level, and what scores rows that made all purchases: the mixture, or the trees of the line.

    Attributes
    ----------
    mixture : Mixture
        Components of all classes.
    levels : tuple of tuple of Node
        Nodes of each level.
    columns : ndarray of int
        Columns behind the last level, in the order of the line.
    base : ndarray
        Scores of the line before any tree.
    last : TreeEnsemble, optional
        Trees of all stages of the line; None where the mixture is better there, too.
    """

    mixture: Mixture
    levels: tuple[tuple[Node, ...], ...]
    columns: Ints
    base: Floats
    last: TreeEnsemble | None

    @property
    def sets(self) -> list[list[Ints]]:
        """Columns of the nodes of every stage, that behind the last level included."""
        return [*([node.columns for node in level] for level in self.levels), [self.columns]]

    @property
    def n_bytes(self) -> int:
        """Bytes that the tree takes in a file at most."""
        return (0 if self.last is None else stored_bytes(self.last)) + self.mixture.tables.nbytes

    def stages(
        self,
        task: Task,
        calibrations: Sequence[Floats],
        gates: Sequence[TreeEnsemble] | None = None,  # noqa: ARG002 - a mixture has its uncertainty
    ) -> tuple[Stage, ...]:
        """Stages that serve."""
        stages: list[Stage] = []
        for level, calibration in zip(self.levels, calibrations, strict=False):
            nodes = tuple(
                MixtureStage(node.columns, self.mixture, calibration, task, node.turn) for node in level
            )
            stages.append(nodes[0] if len(nodes) == 1 else ForkStage(nodes))
        if self.last is None:
            return (*stages, MixtureStage(self.columns, self.mixture, calibrations[-1], task))
        trees = self.last.over_columns(self.columns)
        return (*stages, CascadeStage(self.columns, trees, calibrations[-1], task))


@dataclass(frozen=True, eq=False)
class GrownTree:
    """A tree of purchases that serves, and the rows of the fit in it.

    Attributes
    ----------
    tree : PurchaseTree
        The tree.
    scores : ndarray of shape (n_rows, n_levels + 1, n_scores)
        Held-out scores at every level and behind them.
    node : ndarray of shape (n_rows, n_levels + 1)
        Node of each row there.
    served : ndarray of shape (n_rows, n_scores)
        Scores of the first level by the mixture of all rows.
    """

    tree: PurchaseTree
    scores: Floats
    node: Ints
    served: Floats


class TreeSearch:
    """Learns mixtures, and grows a tree of purchases by them."""

    def __init__(self, problem: CascadeProblem, plan: Plan, pool: Executor) -> None:
        self.problem, prices = problem, problem.price_list
        # Handing thousands of short jobs to a single thread would take longer than they do.
        self.map: Callable[..., Iterable[Any]] = map if problem.n_threads == 1 else pool.map
        self.pool = [int(one) for one in plan.order[:POOL]]
        self.free = np.flatnonzero(prices.prices[prices.group_of] == 0).astype(np.intp)
        known = [self.free, *(self._delivered(one) for one in self.pool)]
        self.known = np.sort(np.concatenate(known)).astype(np.intp)
        self.codes, self.ends, self.offsets, self.positions, self.values = coarse_levels(
            problem.table, self.known, problem.weight
        )
        classes = problem.task.classes
        by_name = np.argsort(classes)
        self.label = by_name[np.searchsorted(classes, problem.task.decode(problem.y), sorter=by_name)]
        self.weight = problem.weight / problem.weight.mean()
        # By content, so that equal rows are all used or not at all.
        self.is_used = uniforms(problem.table.codes, 1) < MAX_ROWS / problem.n_rows
        self._rank = uniforms(problem.table.codes, 2)
        self.is_few = problem.task.n_scores > 1 and problem.n_rows <= FEW_ROWS
        depth = FEW_DEPTH if self.is_few else DEPTH
        max_levels = depth if problem.n_stages is None else min(depth, problem.n_stages - 1)
        # Rows that have bought all of the pool hold the same: trees are better there.
        self.n_levels = min(max_levels, len(self.pool) - 1) + (len(self.free) > 0)
        self.settings = COMPONENTS[0], BANDWIDTHS[0]
        self.context: Ints | None = None

    @property
    def is_possible(self) -> bool:
        """True if rows can part: all classes lie outside of each fold, categories are few, and there is a choice."""
        table, categories = self.problem.table, self.problem.table.categories
        if categories is not None:
            places = table.places(self.known)
            is_wide = categories.is_set[places] & (table.thresholds.n_bins[places] > MAX_CATEGORIES + 1)
            if len(places) > len(self.known) or is_wide.any():
                return False
        n_classes, rows = len(self.problem.task.classes), np.arange(self.problem.n_rows)
        rest = (np.setdiff1d(rows, fold, assume_unique=True) for fold in self.problem.folds)
        has_all = all(len(np.unique(self.label[one][self.is_used[one]])) == n_classes for one in rest)
        return has_all and self.n_levels > 1 and len(self.free) <= POOL

    # -- mixtures ----------------------------------------------------------------------------------

    def without(self, fold: Ints) -> Mixture:
        """The mixture of the rows outside of a fold."""
        is_used = self.is_used.copy()
        is_used[fold] = False
        return self.mixture(np.flatnonzero(is_used))

    def mixture(self, rows: Ints) -> Mixture:
        """The mixture of some rows."""
        n_components, bandwidth = self.settings
        n_levels, n_classes = np.diff(self.offsets) + 2, len(self.problem.task.classes)
        starts = np.r_[0, np.cumsum(n_levels)[:-1]]
        is_normal = bandwidth == NORMAL
        widths = FIRST_BANDWIDTH, BANDWIDTHS[0] if is_normal else bandwidth
        first, near = (smoothing(self.positions, one) for one in widths)
        total = float(self.weight[rows].sum())

        def of_class(label: int) -> tuple[Floats, Floats]:
            own = rows[self.label[rows] == label]
            if self.context is None:
                n = max(min(n_components, MAX_COMPONENTS // n_classes, len(own) // ROWS_PER_COMPONENT), 1)
                start = np.full(len(own), -1)
                start[np.argsort(self._rank[own], kind="stable")[:n]] = np.arange(n)
                wide, n_rounds = first, ROUNDS
            else:
                start, wide, n_rounds = self.context[own], near, 0
                n = int(self.context.max()) + 1
            share, table = np.empty(n), np.empty((int(n_levels.sum()), n))
            scratch = np.zeros(table.shape), np.zeros(len(table)), np.zeros(n), np.empty(n)
            codes, weight = np.ascontiguousarray(self.codes[own]), self.weight[own]
            maximise(
                codes, weight, starts, n_levels, wide, near, start, n_rounds, PULL, share, table, *scratch
            )
            return share * float(weight.sum()) / total, table

        shares, tables = zip(*self.map(of_class, range(n_classes)), strict=True)
        of_component = np.repeat(np.arange(n_classes, dtype=np.int32), [len(share) for share in shares])
        share, table = np.concatenate(shares), np.concatenate(tables, axis=1)
        if is_normal:
            part = self.label[rows]
            if self.context is not None:
                part = part * (int(self.context.max()) + 1) + self.context[rows]
            make_normal(table, share, starts, self.values, self.codes[rows], self.weight[rows], part)
        return Mixture(
            self.known,
            self.ends,
            self.offsets,
            share.astype(np.float32).astype(np.float64),
            of_component,
            of_component if self.context is None else np.arange(len(of_component), dtype=np.int32),
            np.ascontiguousarray(table, dtype=np.float32),
            n_classes,
        )

    def choose_settings(self) -> Mixture:
        """Choose the number of components, then the bandwidth or normal densities; returns the mixture of the others.

        Both by the held-out loss of the first fold, which that mixture has not seen.
        """
        best = self._tried(COMPONENTS[0], BANDWIDTHS[0])
        for number in COMPONENTS[1:]:
            other = self._tried(number, BANDWIDTHS[0])
            if other[0] >= best[0]:
                break
            best = other
        n_components = best[2][0]
        others = [self._tried(n_components, bandwidth) for bandwidth in BANDWIDTHS[1:]]
        others += [self._tried(n_components, NORMAL)] if n_components == 1 else []
        _, mixture, self.settings = min([best, *others], key=lambda each: each[0])
        return mixture

    def _tried(self, n_components: int, bandwidth: float) -> tuple[float, Mixture, tuple[int, float]]:
        """Loss in the first fold of the mixture without it, that mixture, and its settings."""
        first, self.settings = self.problem.folds[0], (n_components, bandwidth)
        mixture, judges = self.without(first), first[self.is_used[first]]
        numbers = (n for n in JUDGED if n <= len(self.pool) or n == JUDGED[0])
        sets = (self.columns(frozenset(self.pool[:n])) for n in numbers)
        loss, weight = self.problem.task.loss(self.problem.y[judges]), self.weight[judges]
        losses = (loss.values(self.look(mixture, judges, columns)[0]) for columns in sets)
        return float(sum(np.average(one, weights=weight) for one in losses)), mixture, self.settings

    def with_contexts(self) -> "tuple[TreeSearch, Mixture] | None":
        """The same search with one component for each context of a class, and the mixture without the first fold."""
        first, other = self.problem.folds[0], copy(self)
        other.context = self._contexts() if self.settings[0] <= CONTEXTS_UP_TO else None
        if other.context is None:
            return None
        judges, best = first[self.is_used[first]], list[tuple[float, tuple[int, float], Mixture]]()
        for bandwidth in (*BANDWIDTHS, NORMAL):
            other.settings = 1, bandwidth
            mixture = other.without(first)
            loss = np.average(other._losses(mixture, judges, self.known), weights=self.weight[judges])
            best.append((float(loss), other.settings, mixture))
        _, other.settings, mixture = min(best, key=lambda each: each[0])
        return other, mixture

    def _losses(self, mixture: Mixture, rows: Ints, columns: Ints) -> Floats:
        """Loss of each of some rows that hold the same, with calibrated scores."""
        task, y = self.problem.task, self.problem.y[rows]
        scores, _ = self.look(mixture, rows, columns)
        return task.loss(y).values(task.calibrated(scores, task.calibrate(scores, y, self.weight[rows])))

    def _contexts(self) -> Ints | None:
        """The context of each row: leaves of a small tree over all columns, grown best-first; None where none splits.

        A column that is worth nothing by itself may say what the others mean. So rows of all classes are split alike,
        where that lowers the loss of naive Bayes within the parts, learned on one half of the rows and evaluated on the
        other.
        """
        some = np.flatnonzero(self.is_used)
        some = some[np.argsort(self._rank[some], kind="stable")[:CONTEXT_ROWS]]
        half, weight = self._rank[some] * 2**20 % 1.0 < 0.5, self.weight[some]
        width, n_classes = CONTEXT_LEVELS + 1, len(self.problem.task.classes)
        n_levels = np.diff(self.offsets) + 1
        coarse = np.where(
            self.codes < n_levels, self.codes * CONTEXT_LEVELS // n_levels, CONTEXT_LEVELS
        ).astype(np.intp)
        cells = np.zeros((len(some), len(n_levels), width))
        np.put_along_axis(cells, coarse[some][:, :, None], 1.0, axis=2)
        one_hot = cells.reshape(len(some), -1)
        label = np.equal.outer(self.label[some], np.arange(n_classes)) * weight[:, None]

        def losses_of(part: Bools) -> Floats:
            """Loss of each row of a part by naive Bayes of that part in the other half."""
            losses = np.zeros(len(some))
            for grown, judged in ((half & part, ~half & part), (~half & part, half & part)):
                mass = label[grown].sum(axis=0)
                counts = (one_hot[grown].T @ label[grown]).reshape(-1, width, n_classes)
                whole = counts.sum(axis=2, keepdims=True) / max(float(mass.sum()), 1e-9)
                table = np.log(
                    (counts + CONTEXT_PULL * (whole + 1e-3)) / (mass + CONTEXT_PULL * (1 + width * 1e-3))
                )
                scores = one_hot[judged] @ table.reshape(-1, n_classes) + np.log(mass + 0.5)
                losses[judged] = self.problem.task.loss(self.problem.y[some[judged]]).values(
                    _as_scores(scores)
                )
            return losses

        def best_split(part: Bools, now: Floats) -> tuple[float, int, int]:
            """z-score, column and last level on the left of the best split of a part."""
            best = 0.0, 0, 0
            for column in range(len(n_levels)):
                own = coarse[some, column]
                for cut in range(CONTEXT_LEVELS):
                    left, right = part & (own <= cut), part & (own > cut)
                    if min(left.sum(), right.sum()) >= MIN_CONTEXT:
                        lead = compare(now[part], (losses_of(left) + losses_of(right))[part], weight[part])
                        best = max(best, (lead, column, cut), key=lambda each: each[0])
            return best

        context = np.zeros(self.problem.n_rows, dtype=np.intp)
        every = np.ones(len(some), dtype=bool)
        splits = [best_split(every, losses_of(every))]
        while len(splits) < MAX_CONTEXTS and max(splits)[0] >= MIN_Z:
            number = splits.index(max(splits))
            _, column, cut = splits[number]
            context[(context == number) & (coarse[:, column] > cut)] = len(splits)
            splits.append((0.0, 0, 0))
            for part in (number, len(splits) - 1):
                here = context[some] == part
                splits[part] = best_split(here, losses_of(here))
        return context if len(splits) > 1 else None

    def look(
        self, mixture: Mixture, rows: Ints, columns: Ints, candidates: Ints | None = None
    ) -> tuple[Floats, Floats]:
        """Scores of some rows that hold the same, and gains of further columns."""
        codes = self.codes[rows][:, np.searchsorted(self.known, columns)]
        return mixture.look(codes, columns, candidates)

    # -- levels ------------------------------------------------------------------------------------

    def levels(
        self, parts: Sequence[tuple[Ints, Mixture]], n_levels: int, width: int = WIDTH
    ) -> tuple[list[tuple[Node, ...]], Floats, Ints]:
        """Nodes of the first levels, and scores and nodes of some rows, each part of them by a mixture of others."""
        n_rows = self.problem.n_rows
        scores = np.zeros((n_rows, n_levels, self.problem.task.n_scores))
        node = np.full((n_rows, n_levels), -1, dtype=np.intp)
        for rows, _ in parts:
            node[rows, 0] = 0
        start = frozenset(() if len(self.free) else (self._first(parts[0][1]),))
        level, levels = [Node(start, self.columns(start))], []
        for place in range(n_levels):
            following, is_last = list[Node](), place == n_levels - 1
            gain = np.full((n_rows, len(self.pool)), -np.inf)
            jobs = [
                (one, here, mixture, scores[:, place], gain, is_last)
                for number, one in enumerate(level)
                for rows, mixture in parts
                if len(here := rows[node[rows, place] == number])
            ]
            list(self.map(lambda job: self._visit(*job), jobs))  # each writes to rows of its own
            if not is_last:
                level, following, node[:, place + 1] = self._go_on(level, node[:, place], gain, width)
            levels.append(tuple(level))
            level = following
        return levels, scores, node

    def _visit(
        self, one: Node, rows: Ints, mixture: Mixture, scores: Floats, gain: Floats, is_last: bool
    ) -> None:
        """Write the scores of some rows at a node, and the gain per price of every purchase that it lacks."""
        left, every = self._left(one, is_last=is_last)
        scores[rows], gains = self.look(mixture, rows, one.columns, every)
        prices = self._prices(one.bought)
        for purchase in left:
            own = np.searchsorted(every, self._delivered(self.pool[purchase]))
            gain[rows, purchase] = gains[:, own].max(axis=1) / prices[self.pool[purchase]]

    def _delivered(self, purchase: int) -> Ints:
        return self._columns_of[purchase]

    @cached_property
    def _columns_of(self) -> list[Ints]:
        """Columns of each purchase."""
        prices = self.problem.price_list
        return [np.flatnonzero(prices.group_of == purchase) for purchase in range(len(prices.prices))]

    def columns(self, bought: frozenset[int]) -> Ints:
        """Columns of a set of purchases, what is free first."""
        delivered = [self._delivered(one) for one in self.pool if one in bought]
        return np.concatenate([self.free, *delivered]).astype(np.intp)

    def _prices(self, bought: frozenset[int]) -> Floats:
        held = np.zeros(len(self.problem.price_list.prices), dtype=bool)
        held[list(bought)] = True
        return np.maximum(self.problem.price_list.prices_after(held), 1e-12)

    def _left(self, one: Node, *, is_last: bool) -> tuple[list[int], Ints]:
        """Places in the pool of the purchases that a node lacks, and their columns."""
        left = [place for place, purchase in enumerate(self.pool) if purchase not in one.bought]
        left = [] if is_last else left
        columns = [self._delivered(self.pool[place]) for place in left]
        return left, np.unique(np.concatenate([np.empty(0), *columns])).astype(np.intp)

    def _first(self, mixture: Mixture) -> int:
        """The first purchase of all rows: the best one and the next together, and not dearer than the line's.

        A first purchase that is dearer than the line's would leave small budgets without an answer.
        """
        prices, none = self._prices(frozenset())[self.pool], np.zeros((1, 0), dtype=np.uint8)
        every, n_levels = self.known, np.diff(self.offsets) + 2
        alone = mixture.look(none, none[0].astype(np.intp), every)[1][0]
        delivered = [np.searchsorted(every, self._delivered(purchase)) for purchase in self.pool]

        def worth(place: int) -> float:
            """Largest expected gain per price of a purchase and the next."""
            of_columns = []
            for at in delivered[place]:
                codes = np.arange(n_levels[at], dtype=np.uint8)[:, None]
                chance = np.bincount(self.codes[:, at], self.weight, minlength=n_levels[at])
                _, gains = mixture.look(codes, every[[at]], every)
                then = np.stack([gains[:, own].max(axis=1) for own in delivered], axis=1)
                both = (alone[at] + then) / (prices[place] + prices)
                both[:, place] = -np.inf
                of_columns.append(round(float(np.average(both.max(axis=1), weights=chance)), 9))
            return max(of_columns)

        per_price = np.array([alone[own].max() for own in delivered]) / prices
        best = np.argsort(-np.round(per_price, 9), kind="stable")
        some = np.sort(best[prices[best] <= prices[0]][:FIRST_CANDIDATES])
        return self.pool[int(some[int(np.argmax([*self.map(worth, some)]))])]

    def _go_on(
        self, level: Sequence[Node], node: Ints, gain: Floats, width: int
    ) -> tuple[list[Node], list[Node], Ints]:
        """Keep the sets that most rows come to, and send each row to one of them."""
        weight, best = self.problem.weight, gain.argmax(axis=1)
        mass: dict[frozenset[int], float] = {}
        for number, one in enumerate(level):
            here = node == number
            taken = np.bincount(best[here], weight[here], minlength=len(self.pool))
            for place in np.flatnonzero(taken):
                key = one.bought | {self.pool[place]}
                mass[key] = mass.get(key, 0.0) + float(taken[place])
        by_mass = sorted(mass, key=lambda key: (-round(mass[key], 6), sorted(key)))
        kept = set(by_mass[:width])
        for number, one in enumerate(level):
            if not any(one.bought < key for key in kept):
                kept.add(self._best_child(one, gain[node == number]))
        ordered = sorted(kept, key=lambda key: (-round(mass.get(key, 0.0), 6), sorted(key)))
        number_of = {key: number for number, key in enumerate(ordered)}
        turned, following = [], np.full(len(node), -1, dtype=np.intp)
        for number, one in enumerate(level):
            open_to = [
                place
                for place, more in enumerate(self.pool)
                if more not in one.bought and one.bought | {more} in number_of
            ]
            nodes = np.array([number_of[one.bought | {self.pool[place]}] for place in open_to], dtype=np.intp)
            turned.append(replace(one, turn=self._turn(one, open_to, nodes)))
            rows = np.flatnonzero(node == number)
            if len(rows):
                following[rows] = nodes[gain[rows][:, open_to].argmax(axis=1)]
        return turned, [Node(key, self.columns(key)) for key in ordered], following

    def _best_child(self, one: Node, gain: Floats) -> frozenset[int]:
        left, _ = self._left(one, is_last=False)
        mean = gain[:, left].mean(axis=0) if len(gain) else np.zeros(len(left))
        return one.bought | {self.pool[left[int(np.argmax(mean))]]}

    def _turn(self, one: Node, open_to: Sequence[int], nodes: Ints) -> TurnByGain:
        columns = [self._delivered(self.pool[place]) for place in open_to]
        tells = np.full((len(columns), max(map(len, columns))), -1, dtype=np.int64)
        for place, own in enumerate(columns):
            tells[place, : len(own)] = own
        return TurnByGain(nodes, tells, self._prices(one.bought)[[self.pool[place] for place in open_to]])


def find_tree(
    problem: CascadeProblem, plan: Plan, line: StagedTrees, of_line: Floats, *, is_wanted: bool
) -> GrownTree | None:
    """Grow a tree of purchases; None where rows cannot part or, unless it is wanted, where one fold shows it behind.

    ``of_line`` are out-of-fold scores of the line, of shape (n_rows, n_stages, n_scores).
    """
    if not len(problem.task.classes):
        return None
    with workers(problem.n_threads) as pool:
        search = TreeSearch(problem, plan, pool)
        screened = _screened(search, of_line, is_wanted=is_wanted) if search.is_possible else None
        return None if screened is None else _grown(*screened, line, of_line)


def _screened(search: TreeSearch, of_line: Floats, *, is_wanted: bool) -> tuple[TreeSearch, Mixture] | None:
    """The search with the best mixture, and that mixture without the first fold; None where that fold ends it."""
    problem = search.problem
    first = problem.folds[0]
    n_levels = min(search.n_levels, of_line.shape[1], EVERY_PLACE)

    def lead(search: TreeSearch, mixture: Mixture, n_rows: int) -> tuple[float, Floats, Floats]:
        """z-score of the lead over the line on some rows of the first fold, and losses and weights of these."""
        screened = first[:: max(len(first) // n_rows, 1)]
        rows = problem.take(screened)
        scores = search.levels([(screened, mixture)], n_levels, SCREENED_WIDTH)[1][screened]
        of_stages, losses = (_mean_losses(rows, one) for one in (of_line[screened, :n_levels], scores))
        return compare(of_stages, losses, rows.weight), losses, rows.weight

    few, many = SCREENED
    without_first = search.choose_settings()
    # Where rows of many classes are few, contexts may be ahead where one mixture for each class is not.
    is_asked = is_wanted or search.is_few
    if not is_asked and lead(search, without_first, few)[0] <= -CLEARLY_BETTER / 2:
        return None
    ahead, losses, weight = lead(search, without_first, many)
    if (contextual := search.with_contexts()) is not None:
        with_contexts, of_contexts, _ = lead(*contextual, many)
        if compare(losses, of_contexts, weight) > 0.0:
            ahead, (search, without_first) = with_contexts, contextual
    # A quarter of the rows should show half of the z-score.
    if not is_wanted and ahead <= CLEARLY_BETTER / 2:
        return None
    return search, without_first


def _grown(
    search: TreeSearch, without_first: Mixture, line: StagedTrees, of_line: Floats
) -> GrownTree | None:
    """The tree of a search."""
    problem = search.problem
    first, *others = problem.folds
    parts = [(first, without_first), *((fold, search.without(fold)) for fold in others)]
    levels, scores, node = search.levels(parts, search.n_levels)
    mixture = search.mixture(np.flatnonzero(search.is_used))
    # Behind the last level: the trees of the line with all columns, or the mixture with those that it knows.
    last, columns = of_line[:, -1], line.sets[-1]
    known, by_mixture = columns[np.isin(columns, search.known)], np.empty_like(last)
    for rows, of_others in parts:
        by_mixture[rows] = search.look(of_others, rows, known)[0]
    held_out = np.concatenate(problem.folds)
    of_trees, of_mixture = (
        _mean_losses(problem.take(held_out), each[held_out, None]) for each in (last, by_mixture)
    )
    trees: TreeEnsemble | None = TreeEnsemble.concatenate(line.parts)
    if compare(of_trees, of_mixture, problem.weight[held_out]) > 0.0:
        last, columns, trees = by_mixture, known, None
    scores = np.concatenate([scores, last[:, None]], axis=1)
    tree = PurchaseTree(mixture, tuple(levels), columns, line.base, trees)
    if all(len(level) == 1 for level in levels) or (problem.max_bytes or np.inf) < tree.n_bytes:
        return None
    served, _ = search.look(mixture, np.arange(problem.n_rows), levels[0][0].columns)
    return GrownTree(tree, scores, np.column_stack([node, np.zeros(len(node), dtype=np.intp)]), served)


def _mean_losses(rows: TrainingSet, scores: Floats) -> Floats:
    """Mean Brier score of some rows over levels of a tree, or stages of a line, once these are calibrated.

    Unlike the log-loss it is bounded: some answers of a mixture are wrong and sure. On letters with 26 classes 1,000
    rows show a lead of 5.8 standard errors by it and of 2.6 by the log-loss; on satimage it is -1.1 and -.7.
    """
    task = class_task(rows.task)
    truth = task.distributions(rows.y)
    outputs = (
        task.outputs(level)[:, -truth.shape[1] :] for level in calibrate(rows, scores)[1].transpose(1, 0, 2)
    )
    return np.asarray(np.mean([np.square(each - truth).sum(axis=1) for each in outputs], axis=0))


def _as_scores(of_classes: Floats) -> Floats:
    """Scores of a task from one for each class: of two classes the difference."""
    return of_classes[:, 1:] - of_classes[:, :1] if of_classes.shape[1] == 2 else of_classes
