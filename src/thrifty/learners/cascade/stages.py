"""Stages of a cascade: one boosted ensemble over nested sets of columns that grows from stage to stage.

    f_k = shrinkage f_(k-1) + trees over the columns of stage k,   each a Newton step of   sum_i w_i loss(y_i, f(x_i))

A row that goes on keeps its score: what was computed at the earlier stages is part of every later one. The columns of a
stage include those of the stages before it, so that new trees may combine old and new columns.

The score of the stage before is shrunk, because it is overconfident on the rows it was grown on: unshrunk, it would
leave the next stage too little to learn. What is stored is f_k over the product of all shrinkages up to k, to which the
score of the stage before is a plain summand; calibration undoes the scale.

Each tree is grown on a subsample of the rows. Membership is a function of the content of a row and of the number of the
tree, so equal rows are drawn together and a row of weight two is that row given twice.

A stage stops early when its trees no longer lower the loss of held-out rows: the first stages, which hold few columns,
need few trees, and more of them would overfit.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.tasks.classes import lead_of_best
from thrifty.engine.tasks.task import Loss, Task
from thrifty.engine.trees import BinnedTable, TreeEnsemble
from thrifty.engine.trees.binning import WORD
from thrifty.engine.trees.ensemble import in_level_order
from thrifty.engine.walk.stage import CascadeStage
from thrifty.errors import InvalidInputError
from thrifty.learners.cascade.problem import TrainingSet
from thrifty.learners.trees import EnsembleBuilder
from thrifty.learners.trees.boosting import Boosting
from thrifty.rows import Subsampler, uniforms

SHRINKAGE, MAX_SHRUNK_STAGES = 0.7, 100
"""Factor on the score so far with which a stage starts (``benchmarks/choices.py kept`` of 0.3), and number of stages
with it: the scale must stay finite."""

SUBSAMPLE = 0.6
"""Share of the rows that a tree is grown on (trials on MiniBooNE and Forest; no command)."""

N_LOSS_CHECKS, PATIENCE, MIN_RELATIVE_DROP = 10, 2, 4e-4
"""Checks of the validation loss in a stage that is grown in full, those without a lower loss that end a stage, and the
relative drop for each unit of learning rate from which on a loss is lower (trials on held-out rows of Letters and
MiniBooNE; no command)."""

MAX_DRAWN = 2**22
"""Rows times trees whose subsamples are drawn together."""

MAX_KEPT_BYTES = 2**22
"""Bytes of a table up to which tables of some of its columns are kept."""


@dataclass(frozen=True)
class StagedTrees:
    """Trees of every stage.

    Attributes
    ----------
    base : ndarray of shape (n_scores,)
        Scores before any tree.
    sets : tuple of ndarray
        Columns of each stage, those of the stage before it first.
    parts : tuple of TreeEnsemble
        Trees that each stage adds, over all columns of the table.
    mean_margin : ndarray of shape (n_stages,)
        Mean margin after each stage, on the rows that trees were grown on; empty if not measured.
    held_out : ndarray of shape (n_held_out, n_stages, n_scores)
        Scores of held-out rows after each stage.
    """

    base: Floats
    sets: tuple[Ints, ...]
    parts: tuple[TreeEnsemble, ...]
    mean_margin: Floats = field(default_factory=lambda: np.empty(0))
    held_out: Floats = field(default_factory=lambda: np.empty(0))

    def scores(self, table: BinnedTable) -> Floats:
        """Scores of every row after every stage, shape (n_rows, n_stages, n_scores)."""
        running = np.tile(self.base, (table.n_rows, 1))
        scores = np.empty((table.n_rows, len(self.parts), len(self.base)))
        for place, part in enumerate(self.parts):
            part.predict_binned(table, running)
            scores[:, place] = running
        return scores

    @property
    def n_trees(self) -> list[int]:
        """Trees of each stage."""
        return [part.n_trees for part in self.parts]

    @property
    def n_bytes(self) -> Ints:
        """Bytes that the trees of each stage take in a file at most, shape (n_stages,)."""
        return np.array([stored_bytes(part) for part in self.parts])

    def stages(
        self,
        task: Task,
        calibrations: Sequence[Floats],
        gates: Sequence[TreeEnsemble] | None = None,
    ) -> "tuple[CascadeStage, ...]":
        """Stages that serve, with their learned gates."""
        return tuple(
            CascadeStage(columns, part.over_columns(columns), calibration, task, gate)
            for columns, part, calibration, gate in zip(
                self.sets, self.parts, calibrations, gates or repeat(None, len(self.sets)), strict=True
            )
        )

    def to_serve(self) -> "StagedTrees":
        """The same trees as they are served and stored: leaves in single precision, nodes level by level."""
        return replace(self, parts=tuple(compact(part) for part in self.parts))


def grow_stages(
    rows: TrainingSet,
    sets: Sequence[Ints],
    boosting: Boosting,
    *,
    n_trees: "Sequence[int] | PendingCounts | None" = None,
    held_out: Ints | None = None,
    counted: "PendingCounts | None" = None,
) -> StagedTrees:
    """Grow the stages of a cascade.

    Parameters
    ----------
    rows : TrainingSet
        Rows to learn from, and those that are held out.
    sets : sequence of ndarray of int
        Columns of each stage, nested. A stage without columns adds nothing.
    boosting : Boosting
        How trees are grown; Newton steps.
    n_trees : sequence of int or PendingCounts, optional
        Trees of each stage; by default ``boosting.n_trees`` or, with held-out rows, as many as lower their loss.
    held_out : ndarray of int, optional
        Rows that no tree is grown on. They go the way of the others through each tree, to be scored.
    counted : PendingCounts, optional
        Takes the number of trees of each stage as soon as the stage has ended.
    """
    table, loss, n_scores = rows.table, rows.loss, rows.task.n_scores
    is_grown_on, counts, grown_on = np.ones(rows.n_rows, dtype=bool), rows.weight, rows
    if held_out is not None:
        is_grown_on[held_out] = False
        counts = counts * is_grown_on
        grown_on = TrainingSet(rows.task, table, rows.y[is_grown_on], rows.weight[is_grown_on])
    base = grown_on.loss.base(grown_on.weight)
    score = np.tile(base, (rows.n_rows, 1))
    stopping = None if held_out is None or n_trees is not None else EarlyStopping(rows, held_out)
    subsampler = Subsampler(uniforms(table.codes)[:, None], SUBSAMPLE)
    parts, mean_margin, scale = [], np.zeros(len(sets)), 1.0
    scores = np.empty((0 if held_out is None else len(held_out), len(sets), n_scores))
    for place, columns in enumerate(sets):
        if (kept := shrinkage_at(place)) < 1.0:
            score *= kept
            scale /= kept
        trees = TreeEnsemble.empty(table.n_features, n_scores)
        if len(columns):
            stage, seed = StageGrower(table, columns, boosting, n_scores), place * boosting.n_trees + 1
            if stopping:
                stopping.begin(score)
            max_trees = boosting.n_trees if n_trees is None else n_trees[place]
            trees = grow_until(stage, loss, counts, score, max_trees, seed, subsampler, stopping)
            trees = replace(trees, values=trees.values * scale)
            of_rows = margins(score[is_grown_on] * scale, base)
            mean_margin[place] = np.average(of_rows, weights=grown_on.weight)
        parts.append(trees)
        if held_out is not None:
            scores[:, place] = score[held_out] * scale
        if counted:
            counted.put(place, trees.n_trees)
    return StagedTrees(
        base,
        tuple(np.asarray(columns, dtype=np.intp) for columns in sets),
        tuple(parts),
        mean_margin,
        scores,
    )


class PendingCounts:
    """Trees of each stage while one fold finds them: other folds follow it stage by stage, in threads of their own."""

    def __init__(self, n_stages: int) -> None:
        self._counts = [Future[int]() for _ in range(n_stages)]

    def put(self, place: int, n_trees: int) -> None:
        """Set the number of trees of a stage."""
        self._counts[place].set_result(n_trees)

    def close(self, *_: object) -> None:
        """Cancel the counts that are missing, so that the other folds do not wait for them."""
        for count in self._counts:
            count.cancel()

    def __getitem__(self, place: int) -> int:
        return self._counts[place].result()


def grow_until(
    stage: "StageGrower",
    loss: Loss,
    counts: Floats,
    score: Floats,
    max_trees: int,
    seed: int,
    subsampler: Subsampler,
    stopping: "EarlyStopping | None",
) -> TreeEnsemble:
    """Grow the trees of a stage until they are ``max_trees`` or no longer help, and update the scores in place.

    The first tree is grown on the subsample of ``seed``, each further one on that of the next.
    """
    # Between two checks trees grow in one call; without checks in a few, whose subsamples take a few megabytes.
    at_once = stage.boosting.n_trees // N_LOSS_CHECKS if stopping else MAX_DRAWN // len(score)
    for first in range(0, max_trees, max(at_once, 1)):
        if stopping and first and stopping.should_stop(stage, score):
            break
        n_more = min(max(at_once, 1), max_trees - first)
        stage.grow(loss, counts, score, n_more, subsampler.masks(seed + first, n_more))
    return stage.trees().first(stopping.restore(stage, score) if stopping else stage.n_trees)


def margins(scores: Floats, base: Floats) -> Floats:
    """Margin of each row, shape (n_rows,): distance from ``base``, or of the best class from the second best.

    With more rows the scores of rare classes fall, which does not affect the best two.
    """
    if scores.shape[1] > 1:
        return lead_of_best(scores)
    return np.abs(scores[:, 0] - base[0])


def total_gains(rows: TrainingSet, columns: Ints, boosting: Boosting) -> Floats:
    """Total gain of the splits on each column, shape (n_features,)."""
    score = np.tile(rows.loss.base(rows.weight), (rows.n_rows, 1))
    return grow_more(rows, columns, boosting, score).gains


def held_out_gains(rows: TrainingSet, columns: Ints, boosting: Boosting) -> Floats:
    """Total gain of the splits on each column on rows that their tree was not grown on, shape (n_features,).

    Where a column is chance, splits gain on the rows that they were found on, the more the more values it has, and
    lose on others (MDI-oob of Li, Wang, Basu, Kumbier and Yu, 2019). Gains are those of the steps that are taken, which
    the learning rate shortens.
    """
    table, loss, counts = rows.table, rows.loss, rows.weight
    base, rate = loss.base(counts), boosting.learning_rate
    score = np.tile(base, (table.n_rows, 1))
    drawn = Subsampler(uniforms(table.codes)[:, None], SUBSAMPLE).masks(1, boosting.n_trees)
    stage = StageGrower(table, columns, boosting, score.shape[1])
    stage.grow(loss, counts, score.copy(), boosting.n_trees, drawn)
    gains = np.zeros(table.n_features)
    for number in range(stage.n_trees):
        tree = stage.trees(number).first(1)
        n_nodes, n_leaves = len(tree.feature), len(tree.values)
        leaf_numbers = np.arange(n_leaves, dtype=np.float64)[:, None]
        leaf = replace(tree, values=leaf_numbers).predict_binned(table)[:, 0].astype(np.intp)
        # Sums of gradients and hessians of the rows that the tree was grown on and of the others: nodes, then leaves.
        sums = np.zeros((n_nodes + n_leaves, 2, 2, score.shape[1]))
        for kind, of_rows in enumerate(loss.derivatives(score)):
            for side, weight in enumerate((counts * drawn[number], counts * ~drawn[number])):
                for output, derivative in enumerate(of_rows.T):
                    sums[n_nodes:, side, kind, output] = np.bincount(leaf, derivative * weight, n_leaves)
        children = np.where(tree.children >= 0, tree.children, n_nodes + ~tree.children)
        for node in range(n_nodes - 1, -1, -1):  # a child comes after its parent
            sums[node] = sums[children[node, 0]] + sums[children[node, 1]]
        (gradient, hessian), (other_gradient, other_hessian) = sums.transpose(1, 2, 0, 3)
        step = -rate * gradient / (hessian + boosting.l2 + 1e-300)
        lowered = -(step * other_gradient + 0.5 * np.square(step) * other_hessian).sum(axis=1)
        np.add.at(gains, tree.feature, lowered[children].sum(axis=1) - lowered[:n_nodes])
        score += tree.values[leaf]
    return gains


def grow_more(rows: TrainingSet, columns: Ints, boosting: Boosting, score: Floats) -> "StageGrower":
    """Grow trees over some columns on all rows, from the scores they have, which are updated in place."""
    stage = StageGrower(rows.table, columns, boosting, score.shape[1])
    stage.grow(rows.loss, rows.weight, score, boosting.n_trees)
    return stage


def shrinkage_at(place: int) -> float:
    """Factor on the score of the stage before with which the stage at a place starts."""
    return SHRINKAGE if 0 < place < MAX_SHRUNK_STAGES else 1.0


def trees_within_bytes(
    max_bytes: int, n_trees: Sequence[int], bytes_of: Callable[[Sequence[int]], Ints]
) -> Sequence[int]:
    """Trees of each stage, capped at a common number so that all together take at most ``max_bytes``."""
    while True:
        taken = bytes_of(n_trees)
        if taken.sum() <= max_bytes:
            return n_trees
        cuts = np.minimum(np.array(n_trees), np.arange(max(n_trees))[:, None])
        cut_to = taken / np.maximum(n_trees, 1) * cuts
        fits = np.flatnonzero(cut_to.sum(axis=1) <= max_bytes)
        if fits[-1] == 0:
            raise InvalidInputError(
                f"max_bytes must leave room for a tree in every stage, about {int(cut_to[1].sum())} bytes here; got "
                f"{max_bytes}. Raise it, ask for fewer `stages`, or give a smaller depth in `sizes`."
            )
        n_trees = cuts[fits[-1]].tolist()


def narrow_table(table: BinnedTable, columns: Ints) -> BinnedTable:
    """Table of some of the columns, so that no histograms of the others are computed.

    Small ones are kept with the table: every fold, and the trees that serve, grow on the same.
    """
    if (key := columns.tobytes()) in table.narrowed:
        return table.narrowed[key]
    places, categories = table.places(columns), table.categories
    padded = np.zeros((table.n_rows, -(-len(places) // WORD) * WORD), dtype=np.uint8)
    padded[:, : len(places)] = table.codes[:, places]
    categories = None if categories is None else categories.narrow(places, columns)
    narrow = BinnedTable(padded, table.thresholds.take(places), categories)
    if table.n_bytes <= MAX_KEPT_BYTES:
        table.narrowed[key] = narrow
    return narrow


def compact(trees: TreeEnsemble) -> TreeEnsemble:
    """Trees in a form that takes few bytes in a file; their sums move by about a ten-millionth of themselves."""
    trees = in_level_order(trees)
    return replace(trees, values=trees.values.astype(np.float32).astype(np.float64))


def stored_bytes(trees: TreeEnsemble) -> int:
    """Bytes that trees take in a file at most, once they are compact: what is compressed takes less."""
    of_feature = 1 if trees.n_features <= 256 else 4
    per_node = of_feature + 1 + 1  # and the last bin, and bits: missing, leaf or node
    if trees.sets is not None:
        per_node += 8 + 4  # children by number, and a set
    n_nodes, n_levels = len(trees.feature), 0 if trees.sets is None else len(trees.sets.levels)
    # Thresholds are written once each, and then counted, or all of them as they are.
    of_thresholds = min(2 * n_nodes + 8 * len(np.unique(trees.threshold)), 8 * n_nodes)
    of_leaves = 4 * (trees.values.size + n_levels) + 8 * (trees.n_trees + 1)
    return n_nodes * per_node + of_thresholds + of_leaves


class StageGrower:
    """One stage while it grows; its trees use the column numbers of the whole table."""

    def __init__(self, table: BinnedTable, columns: Ints, boosting: Boosting, n_scores: int) -> None:
        # In the order of the table, not of purchase: trees must not depend on how ties are listed.
        self._columns, self.boosting, self._n_features = np.sort(columns), boosting, table.n_features
        self._grower = boosting.grower(narrow_table(table, self._columns))
        self._builder = EnsembleBuilder(len(columns), n_scores)

    def grow(
        self, loss: Loss, counts: Floats, score: Floats, n_trees: int = 1, drawn: Bools | None = None
    ) -> None:
        """Grow trees, each on the rows drawn for it, and add them to the scores in place."""
        self.boosting.add_trees(self._grower, self._builder, loss, counts, score, n_trees, drawn)

    @property
    def n_trees(self) -> int:
        """Trees so far."""
        return self._builder.n_trees

    def trees(self, first: int = 0) -> TreeEnsemble:
        """The trees from number ``first`` on."""
        trees = self._builder.ensemble(first)
        feature = self._columns[trees.feature].astype(np.int32)
        return replace(trees, n_features=self._n_features, feature=feature)

    @property
    def gains(self) -> Floats:
        """Total gain of the splits on each column, shape (n_features,)."""
        feature = self._columns[self._builder.ensemble().feature]
        gains = np.zeros(self._n_features)
        np.add.at(gains, feature, self._builder.gains)
        return gains


class EarlyStopping:
    """Early stopping of a stage: tracks the lowest loss of held-out rows, and restores the scores there."""

    def __init__(self, rows: TrainingSet, held_out: Ints) -> None:
        self._held_out, self._weight = held_out, rows.weight[held_out]
        self._loss = rows.task.loss(rows.y[held_out])

    def begin(self, score: Floats) -> None:
        """Begin a stage, at the scores of all rows."""
        self._n_checked = self._n_best = self._n_worse = 0
        self._lowest, self._kept = self._mean_loss(score), score.copy()

    def should_stop(self, stage: StageGrower, score: Floats) -> bool:
        """Check the loss; True if ``PATIENCE`` checks have passed since the lowest."""
        n_units = (stage.n_trees - self._n_checked) * stage.boosting.learning_rate
        self._n_checked, loss = stage.n_trees, self._mean_loss(score)
        if loss < self._lowest * (1.0 - MIN_RELATIVE_DROP * n_units):
            self._lowest, self._n_best, self._n_worse = loss, stage.n_trees, 0
            self._kept = score.copy()
        else:
            self._n_worse += 1
        return self._n_worse >= PATIENCE

    def restore(self, stage: StageGrower, score: Floats) -> int:
        """Restore the scores at the lowest loss, and return the number of trees there."""
        if stage.n_trees > self._n_checked:
            self.should_stop(stage, score)
        score[:] = self._kept
        return self._n_best

    def _mean_loss(self, score: Floats) -> float:
        losses = self._loss.values(score[self._held_out])
        return float(np.average(losses, weights=self._weight))
