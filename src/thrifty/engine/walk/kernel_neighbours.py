"""Kernel neighbours: predictions from the training rows that are near in any set of columns that a row holds.

A row that holds the columns S is compared with training row i by a product of kernels over S,

    w_i = weight_i * prod over j in S of k_j(x_j, x_ij)^sharpness,   k_j(a, b) = exp(-(position_a - position_b)^2 / 2)

and class c has the probability (sum of w_i over the rows of class c + prior_c * pull) / (sum of all w_i + pull).
Columns are cut into levels, whose positions are in units of the column's bandwidth. One table of training rows serves
every set of columns, with nothing fitted for a set, as a graph of many sets of purchases needs.

The same weights predict the levels of a column not yet bought and the class probabilities after its purchase. The
*gain* of a column is the expected fall of the entropy of the class (Shannon 1948). A number is a class, too: the
interval that it lies in, with the mean of its numbers as *value*; a column then gains the expected fall of the
variance. Numbers are predicted by trees, and neighbours only choose what is bought next (``TurnByNeighbours``).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from thrifty.arrays import Floats, Ints
from thrifty.engine.full.adapters import models_of
from thrifty.engine.prices.billing import are_columns
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.stage import MAX_NODES, Visit, shape_problem
from thrifty.errors import InvalidInputError
from thrifty.jit import kernel, lean
from thrifty.threads import usable_threads

OF_MISSING = 0.3
"""Kernel between a missing and a known value."""

NEGLIGIBLE = 1e-5
"""Share of weight below which neighbours and levels are ignored in the gain of a column."""

FAR = 1e-8
"""Weight below which a training row is no neighbour: far less than the pull of the prior."""

BITS_OF_LEVEL = 6
"""Bits that tell a level."""

MAX_TABLES = 16
"""Tables of kernels that are kept, one for each sharpness: a fit has a few."""

PART_OF_WORK = 3_000_000
"""Pairs of a row and a neighbour that are worth a thread of their own."""

MAX_LEVELS = 64
"""Levels of a column, missing counted; a fit makes fewer."""

NO_FOLD = -1

PULL_OF_WORTH = 2.0
"""Weight of all trials together where the worth of a choice is expected."""

Z_OF_WORTH = 1.0
"""Standard errors by which a choice must have been worth something to be taken in place of the largest gain."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Training rows, and how near two levels of a column are.

    Attributes
    ----------
    columns : ndarray of shape (n_columns,)
        Columns of the table that are known of the rows.
    ends : ndarray
        Upper ends of all levels but the last of each column, ascending, columns one after the other.
    offsets : ndarray of shape (n_columns + 1,)
        ``ends[offsets[j]:offsets[j + 1]]`` belongs to column ``j``.
    positions : ndarray
        Positions of the levels of each column, in units of its bandwidth, columns one after the other.
    codes : ndarray of shape (n_columns, n_rows), uint8
        Level of each row; a missing value is the level behind the last.
    label : ndarray of shape (n_rows,), int32
        Number of each row's class.
    weight : ndarray of shape (n_rows,)
        What rows count.
    n_classes : int
        Number of classes.
    values : ndarray of shape (n_classes,)
        The number that each class stands for; empty where classes are labels.
    """

    columns: Ints
    ends: Floats
    offsets: NDArray[np.int64]
    positions: Floats
    codes: NDArray[np.uint8]
    label: NDArray[np.int32]
    weight: Floats
    n_classes: int
    values: Floats = field(default_factory=lambda: np.empty(0))
    _tables: dict[float, Floats] = field(default_factory=dict, init=False, repr=False)

    def validate(self) -> "Neighbours":
        """Refuse arrays that do not fit together. Returns itself."""
        n_columns, n_ends = len(self.columns), len(self.ends)
        offsets, codes = self.offsets, self.codes
        rises = (
            offsets.shape == (n_columns + 1,)
            and offsets[0] == 0
            and offsets[-1] == n_ends
            and bool(np.all(offsets[1:] >= offsets[:-1]))
        )
        n_rows = codes.shape[1] if codes.ndim == 2 else 0
        fits = (
            rises
            and self.columns.ndim == self.ends.ndim == self.positions.ndim == 1
            and len(np.unique(self.columns)) == n_columns
            and len(self.positions) == n_ends + n_columns
            and codes.shape == (n_columns, n_rows)
            and self.label.shape == self.weight.shape == (n_rows,)
            and n_rows > 0
        )
        if not fits or np.any(self.n_levels > MAX_LEVELS) or np.any(codes >= self.n_levels[:, None]):
            raise InvalidInputError("levels of neighbours must be those of their columns.")
        if len(self.values) not in (0, self.n_classes) or not np.all(np.isfinite(self.values)):
            raise InvalidInputError(
                f"values of neighbours must be finite numbers, one for each of {self.n_classes}."
            )
        if self.n_classes < 2 or np.any((self.label < 0) | (self.label >= self.n_classes)):
            raise InvalidInputError(f"labels of neighbours must number {self.n_classes} classes.")
        if not (np.all(self.weight >= 0) and 0 < self.weight.sum() < np.inf):
            raise InvalidInputError("weights of neighbours must be at least 0, with a finite sum.")
        return self

    @property
    def n_levels(self) -> NDArray[np.int64]:
        """Levels of each column, missing counted."""
        return np.diff(self.offsets) + 2

    @cached_property
    def spread(self) -> Floats:
        """Standard deviation of the positions of each column: where it is large, few rows are near each other."""
        of_levels = np.split(self.positions, np.cumsum(self.n_levels - 1)[:-1])
        found = [np.r_[own, np.nan][codes] for own, codes in zip(of_levels, self.codes, strict=True)]
        # Rounded, as it decides in which order columns are looked up.
        return np.array([0.0 if np.isnan(own).all() else np.nanstd(own) for own in found]).round(6)

    @property
    def prior(self) -> Floats:
        """Share of each class."""
        counts = np.bincount(self.label, self.weight, minlength=self.n_classes)
        return np.asarray(counts / counts.sum())

    def places(self, columns: Ints) -> Ints:
        """Positions of some columns in ``columns``."""
        by_column = np.argsort(self.columns)
        places: Ints = by_column[np.searchsorted(self.columns, columns, sorter=by_column)]
        return places

    def code(self, block: Floats, columns: Ints) -> NDArray[np.uint8]:
        """Levels of the cells of some rows, shape (n_rows, n_columns); the block holds just these columns."""
        codes = np.empty(block.shape, dtype=np.uint8)
        for number, place in enumerate(self.places(columns)):
            ends, cells = self.ends[self.offsets[place] : self.offsets[place + 1]], block[:, number]
            codes[:, number] = np.where(np.isnan(cells), len(ends) + 1, np.searchsorted(ends, cells))
        return codes

    def tables(self, sharpness: float) -> Floats:
        """Kernels between any two levels of a column, columns one after the other, to a power."""
        known = self._tables.get(sharpness)
        if known is None:
            starts = np.r_[0, np.cumsum(self.n_levels - 1)]
            found = []
            for begin, end in pairwise(starts):
                own = self.positions[begin:end]
                table = np.full((len(own) + 1, len(own) + 1), OF_MISSING)
                table[:-1, :-1] = np.exp(-0.5 * np.square(own[:, None] - own[None, :]))
                table[-1, -1] = 1.0
                found.append(table.ravel() ** sharpness)
            if len(self._tables) >= MAX_TABLES:
                self._tables.clear()
            self._tables[sharpness] = known = np.concatenate([np.empty(0), *found])
        return known

    def look(
        self,
        codes: NDArray[np.uint8],
        columns: Ints,
        sharpness: float,
        candidates: Ints | None = None,
        fold: tuple[Ints, Ints] | None = None,
    ) -> tuple[Floats, Floats]:
        """Masses of the classes around some rows, and the expected gain of further columns.

        Parameters
        ----------
        codes : ndarray of shape (n_rows, n_columns)
            Levels of what is held.
        columns : ndarray
            The columns that are held.
        sharpness : float
            Power of the kernels.
        candidates : ndarray, optional
            Columns that may be bought.
        fold : tuple of ndarray, optional
            Fold of each neighbour and of each row: neighbours of the own fold do not count.

        Returns
        -------
        masses : ndarray of shape (n_rows, n_classes)
            Weight of the neighbours of each class.
        gain : ndarray of shape (n_rows, n_candidates)
            By how much the entropy of the class, in nats, or the variance of its value, is expected to fall once a
            candidate is known.
        """
        of_neighbour, of_row = (
            (np.zeros(len(self.label), np.int64), np.full(len(codes), NO_FOLD, np.int64))
            if fold is None
            else fold
        )
        none = np.empty(0, dtype=np.intp)
        wanted = none if candidates is None else self.places(candidates)
        starts = np.r_[0, np.cumsum(np.square(self.n_levels))]
        held = self.places(columns)
        # Columns that leave few neighbours come first.
        by_spread = np.argsort(-self.spread[held], kind="stable")
        held, codes = held[by_spread], codes[:, by_spread]
        look = partial(
            neighbour_masses,
            self.codes,
            self.label,
            self.weight,
            of_neighbour,
            self.tables(sharpness),
            starts,
            self.n_levels,
            held,
            wanted,
            self.values,
        )
        all_of = np.arange(len(codes))
        # Rows that hold the same have the same neighbours: at the first purchases they are most of them.
        if BITS_OF_LEVEL * len(held) <= 48 and len(codes) > 1:
            keys = of_row + 1
            for column in codes.T:
                keys = (keys << BITS_OF_LEVEL) | column
            _, some, all_of = np.unique(keys, return_index=True, return_inverse=True)
            codes, of_row = codes[some], of_row[some]
        masses = np.zeros((len(codes), self.n_classes))
        gain = np.zeros((len(codes), len(wanted)))
        n_parts = len(codes) * len(self.label) // PART_OF_WORK
        n_parts = n_parts if n_parts < 2 else min(n_parts, usable_threads())
        parts = np.array_split(np.arange(len(codes)), max(n_parts, 1))

        def part(rows: Ints) -> None:
            if len(rows):
                own = slice(rows[0], rows[-1] + 1)
                look(np.ascontiguousarray(codes[own]), of_row[own], masses[own], gain[own])

        if len(parts) == 1:
            part(parts[0])
        else:
            # Rows are independent, so that any split among threads gives the same result.
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(part, parts))
        return masses[all_of.ravel()], gain[all_of.ravel()]

    def means_around(
        self,
        codes: NDArray[np.uint8],
        columns: Ints,
        sharpness: float,
        trials: NDArray[np.uint8],
        worth: Floats,
        fold: tuple[Ints, Ints] | None = None,
    ) -> Floats:
        """Lower bounds of the mean of what other rows found in trials, near some rows: shape (n_rows, n_choices).

        Parameters
        ----------
        codes, columns, sharpness : ndarray, ndarray, float
            As in ``look``.
        trials : ndarray of shape (n_trials, n_columns)
            Levels of the other rows.
        worth : ndarray of shape (n_trials, n_choices)
            What they found.
        fold : tuple of ndarray, optional
            Fold of each of them, and of each row: those of the own fold do not count.
        """
        nowhere = np.zeros(len(worth), np.int64), np.full(len(codes), NO_FOLD, np.int64)
        of_trial, of_row = nowhere if fold is None else fold
        starts, means = np.r_[0, np.cumsum(np.square(self.n_levels))], np.empty((len(codes), worth.shape[1]))
        trials, worth = np.ascontiguousarray(trials), np.ascontiguousarray(worth)
        tables, held = self.tables(sharpness), self.places(columns)
        kernel_means(
            tables,
            starts,
            self.n_levels,
            held,
            trials,
            of_trial,
            worth,
            np.ascontiguousarray(codes),
            of_row,
            means,
        )
        return means

    def outputs(self, masses: Floats, pull: float) -> Floats:
        """Probabilities of the classes."""
        found: Floats = (masses + self.prior * pull) / (masses.sum(axis=1, keepdims=True) + pull)
        return found


@lean
def doubt_of(masses: Any, total: float, values: Any) -> float:
    """Entropy of the class in nats or, where classes have values, the variance of the value."""
    doubt = 0.0
    if len(values) == 0:
        for k in range(len(masses)):
            if masses[k] > NEGLIGIBLE * total:
                doubt -= masses[k] / total * np.log(masses[k] / total)
        return doubt
    mean = 0.0
    for k in range(len(masses)):
        mean += masses[k] / total * values[k]
    for k in range(len(masses)):
        doubt += masses[k] / total * (values[k] - mean) * (values[k] - mean)
    return doubt


@kernel
def neighbour_masses(
    codes: Any,
    label: Any,
    weight: Any,
    fold: Any,
    tables: Any,
    starts: Any,
    n_levels: Any,
    held: Any,
    candidates: Any,
    values: Any,
    rows: Any,
    own_fold: Any,
    masses: Any,
    gain: Any,
) -> None:
    """Write the masses of the classes around each row and, for each candidate, how far doubt is expected to fall."""
    n, n_classes, n_pairs = len(label), masses.shape[1], (len(held) + 1) // 2
    near, found = np.empty(n), np.empty(n, np.uint32)
    max_levels, widest = 0, 0
    for place in candidates:
        max_levels = max(max_levels, n_levels[place])
    spread, expected, around = np.empty((max_levels, n_classes)), np.empty(max_levels), np.empty(n_classes)
    # Two columns are looked up as one, whose levels are the pairs of theirs; the last may be alone.
    pairs, widths = np.empty((n_pairs, n), np.uint16), np.ones(n_pairs, np.int64)
    for pair in range(n_pairs):
        place = 2 * pair + 1
        if place < len(held):
            widths[pair] = n_levels[held[place]]
        widest = max(widest, n_levels[held[place - 1]] * widths[pair])
        for i in range(n):
            pairs[pair, i] = codes[held[place - 1], i] * widths[pair]
            if place < len(held):
                pairs[pair, i] += codes[held[place], i]
    kernels = np.empty((n_pairs, widest))
    for row in range(len(rows)):
        for pair in range(n_pairs):
            place, end = 2 * pair, n_levels[held[2 * pair]]
            begin = starts[held[place]] + end * rows[row, place]
            for level in range(end * widths[pair]):
                kernels[pair, level] = tables[begin + level // widths[pair]]
            place += 1
            if place < len(held):
                begin = starts[held[place]] + widths[pair] * rows[row, place]
                for level in range(end * widths[pair]):
                    kernels[pair, level] *= tables[begin + level % widths[pair]]
        n_near = 0
        one, two = pairs[0], pairs[min(1, n_pairs - 1)]
        of_one, of_two = kernels[0], kernels[min(1, n_pairs - 1)]
        for i in range(n):  # two pairs at once, and without a branch, because all rows are looked at
            weighed = weight[i] * of_one[one[i]]
            if n_pairs > 1:
                weighed *= of_two[two[i]]
            near[n_near], found[n_near] = weighed, i
            n_near += weighed > FAR
        for pair in range(2, n_pairs):
            own, of_own = pairs[pair], kernels[pair]
            n_before, n_near = n_near, 0
            for k in range(n_before):
                weighed = near[k] * of_own[own[found[k]]]
                near[n_near], found[n_near] = weighed, found[k]
                n_near += weighed > FAR
        nearest = 0.0
        for k in range(n_near):
            if fold[found[k]] == own_fold[row]:
                near[k] = 0.0
            masses[row, label[found[k]]] += near[k]
            nearest = max(nearest, near[k])
        if len(candidates) == 0:
            continue
        n_kept, total = 0, 0.0
        for k in range(n_near):
            if near[k] > NEGLIGIBLE * nearest:
                near[n_kept], found[n_kept] = near[k], found[k]
                n_kept += 1
                total += near[k]
        for k in range(n_classes):
            around[k] = 0.0
        for k in range(n_kept):
            around[label[found[k]]] += near[k]
        now = doubt_of(around, total, values)
        for c in range(len(candidates) if total > 0.0 else 0):
            place, after = candidates[c], 0.0
            width, own = n_levels[place], codes[place]
            for level in range(width):
                expected[level] = 0.0
                for k in range(n_classes):
                    spread[level, k] = 0.0
            for k in range(n_kept):
                i = found[k]
                spread[own[i], label[i]] += near[k]
                expected[own[i]] += near[k]
            for level in range(width):
                if expected[level] <= NEGLIGIBLE * total:
                    continue
                whole = 0.0
                for k in range(n_classes):
                    around[k] = 0.0
                for near_by in range(width):
                    closeness = tables[starts[place] + width * level + near_by]
                    if closeness * expected[near_by] > NEGLIGIBLE * expected[level]:
                        whole += closeness * expected[near_by]
                        for k in range(n_classes):
                            around[k] += closeness * spread[near_by, k]
                after += expected[level] / total * doubt_of(around, whole, values)
            gain[row, c] = max(now - after, 0.0)


@kernel
def kernel_means(
    tables: Any,
    starts: Any,
    n_levels: Any,
    held: Any,
    codes: Any,
    fold: Any,
    worth: Any,
    rows: Any,
    own_fold: Any,
    means: Any,
) -> None:
    """Write lower bounds of the means of ``worth`` around each row, pulled towards all rows of other folds."""
    n, n_choices = worth.shape
    near, sums, squares = np.empty(n), np.empty(n_choices), np.empty(n_choices)
    for row in range(len(rows)):
        count = 0.0
        for i in range(n):
            near[i] = 0.0 if fold[i] == own_fold[row] else 1.0
            count += near[i]
            for c in range(len(held)):
                near[i] *= tables[starts[held[c]] + n_levels[held[c]] * rows[row, c] + codes[i, c]]
        total, square = 0.0, 0.0
        sums[:] = 0.0
        squares[:] = 0.0
        for i in range(n):
            if fold[i] == own_fold[row]:
                continue
            weight = near[i] + PULL_OF_WORTH / count
            total += weight
            square += weight * weight
            for k in range(n_choices):
                sums[k] += weight * worth[i, k]
                squares[k] += weight * worth[i, k] * worth[i, k]
        for k in range(n_choices):
            mean = sums[k] / total if total > 0.0 else 0.0
            variance = max(squares[k] / total - mean * mean, 0.0) if total > 0.0 else 0.0
            means[row, k] = mean - Z_OF_WORTH * np.sqrt(variance * square) / max(total, 1e-300)


@dataclass(frozen=True, eq=False)
class NeighbourTurn:
    """Choice of the node of the next stage: the largest expected gain per unit of price, or what trials advise.

    The gain looks one purchase ahead. In trials out of fold, some training rows made a few purchases more after each of
    some choices: its *worth* is how much less they lost, per unit of price, than after the choice of the largest gain.
    A choice that was clearly worth something to rows that are near is taken in its place.

    Attributes
    ----------
    nodes : ndarray of shape (n_choices,)
        Numbers of the nodes to choose from.
    tells : ndarray of shape (n_choices, max_columns), int
        Columns that each choice delivers and neighbours know, -1 where there are no more.
    prices : ndarray of shape (n_choices,)
        What each choice costs.
    tried : ndarray of shape (n_tried,)
        Choices that were tried.
    trials : ndarray of shape (n_trials, n_columns), uint8
        Levels of what the rows of the trials hold.
    worth : ndarray of shape (n_trials, n_tried)
        What each choice was worth to them.
    """

    nodes: Ints
    tells: NDArray[np.int64]
    prices: Floats
    tried: Ints = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    trials: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), dtype=np.uint8))
    worth: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def problem(self, among: Neighbours, columns: Ints) -> str | None:
        """Why rows that hold some columns cannot take this turn by what some neighbours know, or None."""
        n_choices = len(self.nodes)
        if not n_choices or not are_columns(self.nodes, MAX_NODES):
            return f"nodes of a turn must be distinct numbers in [0, {MAX_NODES})"
        tells = self.tells
        if tells.ndim != 2 or len(tells) != n_choices or not np.all(tells.max(axis=1, initial=-1) >= 0):
            return "each choice of a turn must tell a column"
        if not ((tells == -1) | np.isin(tells, among.columns)).all():
            return "columns that a turn tells must be known of the neighbours"
        if len(self.tried):
            fits = are_columns(self.tried, n_choices) and self.worth.shape == (
                len(self.trials),
                len(self.tried),
            )
            fits = fits and self.trials.shape == (len(self.worth), len(columns))
            if not fits or np.any(self.trials >= among.n_levels[among.places(columns)]):
                return "trials of a turn must have a level of each column and a worth of each choice"
        is_right = self.prices.shape == (n_choices,) and np.all(self.prices > 0)
        return None if is_right else "prices of a turn must be positive, one for each choice"

    @property
    def candidates(self) -> Ints:
        """All columns that some choice delivers."""
        return np.unique(self.tells[self.tells >= 0]).astype(np.intp)

    def taken(self, gain: Floats) -> Ints:
        """The node for each row, from what each of ``candidates`` gains; the first of those that gain equally much.

        The gain of a purchase is that of its best column.
        """
        place_of = {int(column): place for place, column in enumerate(self.candidates)}
        best = [
            gain[:, [place_of[int(one)] for one in tells if one >= 0]].max(axis=1) for tells in self.tells
        ]
        taken: Ints = self.nodes[(np.column_stack(best) / self.prices).argmax(axis=1)]
        return taken

    def choose(
        self, among: Neighbours, codes: NDArray[np.uint8], columns: Ints, sharpness: float
    ) -> tuple[Floats | None, Ints]:
        """Masses of the classes around some rows, None where they were not needed, and the node for each row."""
        if len(self.nodes) == 1:
            return None, np.full(len(codes), self.nodes[0], dtype=np.intp)
        taken, by_gain = np.empty(len(codes), dtype=np.intp), np.ones(len(codes), dtype=bool)
        if len(self.tried):
            worth = among.means_around(codes, columns, sharpness, self.trials, self.worth)
            by_gain = worth.max(axis=1) <= 0.0
            taken = self.nodes[self.tried[worth.argmax(axis=1)]]
        if not by_gain.any():
            return None, taken
        masses, gain = among.look(codes[by_gain], columns, sharpness, self.candidates)
        taken[by_gain] = self.taken(gain)
        return (masses if by_gain.all() else None), taken


@dataclass(frozen=True, eq=False)
class NeighbourStage:
    """A node that predicts by kernel neighbours.

    Attributes
    ----------
    columns : ndarray
        Columns held here.
    among : Neighbours
        The training rows; all nodes of a chain share them.
    sharpness, pull : float
        Power of the kernels, and mass of the prior.
    calibration : ndarray
        What makes of a score one that means what it says.
    task : Task
        Applies the calibration.
    turn : NeighbourTurn, optional
        Where rows go on to; the next stage's only node without one.
    """

    columns: Ints
    among: Neighbours
    sharpness: float
    pull: float
    calibration: Floats
    task: Task
    turn: NeighbourTurn | None = None

    def problem(self, task: Task) -> str | None:
        """Why the node cannot serve a task, or None."""
        if self.among.n_classes != len(task.classes) or len(self.among.values) or self.task != task:
            return "neighbours must be about the classes of the chain"
        if not len(self.columns) or not np.isin(self.columns, self.among.columns).all():
            return "columns must be known of the neighbours"
        if not (0 < self.sharpness < 1e6 and self.pull > 0):
            return f"sharpness and pull must be positive; got {self.sharpness!r} and {self.pull!r}"
        problem = shape_problem("calibration", self.calibration, models_of(task).no_calibration.shape)
        return problem or (None if self.turn is None else self.turn.problem(self.among, self.columns))

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Answer by neighbours; what rows carry is left as it is."""
        block = block.toarray() if sparse.issparse(block) else np.asarray(block, dtype=np.float64)
        codes = self.among.code(block, self.columns)
        masses, turn = None, None
        if self.turn is not None:
            masses, turn = self.turn.choose(self.among, codes, self.columns, self.sharpness)
        if masses is None:
            masses, _ = self.among.look(codes, self.columns, self.sharpness)
        outputs = self.among.outputs(masses, self.pull)
        scores = self.task.calibrated(self.task.scores(outputs), self.calibration)
        return Visit(scores, None, carried, turn=turn)


@dataclass(frozen=True, eq=False)
class TurnByNeighbours:
    """Choice of the next node by neighbours, for a node that predicts by trees.

    Attributes
    ----------
    among : Neighbours
        The training rows; all nodes of a chain share them.
    columns : ndarray
        Columns held at the node.
    sharpness : float
        Power of the kernels.
    choice : NeighbourTurn
        The nodes to choose from.
    """

    among: Neighbours
    columns: Ints
    sharpness: float
    choice: NeighbourTurn

    @property
    def nodes(self) -> Ints:
        """Numbers of the nodes to choose from."""
        return self.choice.nodes

    def problem(self, columns: Ints) -> str | None:
        """Why rows that hold some columns cannot take this turn, or None."""
        if not np.array_equal(self.columns, columns) or not np.isin(columns, self.among.columns).all():
            return "columns of a turn must be those of its stage, and known of the neighbours"
        if not len(columns):
            return "a turn by neighbours needs at least one column that is held"
        if not 0 < self.sharpness < 1e6:
            return f"sharpness must be positive; got {self.sharpness!r}"
        return self.choice.problem(self.among, columns)

    def taken(self, block: Floats) -> Ints:
        """The node of the next stage for each row of a block."""
        return self.choice.choose(
            self.among, self.among.code(block, self.columns), self.columns, self.sharpness
        )[1]
