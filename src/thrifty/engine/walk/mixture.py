"""Mixtures: class probabilities from any set of columns, and what a further column is expected to tell.

Every class is a mixture of components within which columns are independent (latent classes; with one component for each
class that is naive Bayes):

    p(class c, x_S) = sum over components k of c of   share_k * prod over j in S of p_k(level of x_j)

Columns that a row does not hold are left out of the product, so that one table of levels serves every set of columns,
and nothing is learned for a set, as a tree of purchases with hundreds of nodes needs. The same products give the chance
of each level of a further column, and the class probabilities behind it. The *gain* of a column is the expected fall of
the Gini impurity, 1 - sum of squared probabilities (Breiman and others, 1984), of the classes or, where a class has
contexts in which columns mean different things, of these: so a column that only says which context it is comes first.

Products, sums and a logarithm by a series of fixed order: a row has the same bits on every processor.
"""

from dataclasses import dataclass
from functools import cached_property
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
from thrifty.jit import lean, lean_kernel

MAX_LEVELS = 64
"""Levels of a column, missing counted; a fit makes fewer."""

NEGLIGIBLE = 1e-4
"""Probability below which components are ignored in the gain of a column."""

FLOOR = 1e-4
"""Weight of the prior in the probabilities of classes: none is zero."""

SERIES = 23
"""Powers of the series of the logarithm, which then ends below the last bit."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Components of all classes.

    Attributes
    ----------
    columns : ndarray of shape (n_columns,)
        Columns of the table that are known.
    ends : ndarray
        Upper ends of all levels but the last of each column, ascending, columns one after the other.
    offsets : ndarray of shape (n_columns + 1,)
        ``ends[offsets[j]:offsets[j + 1]]`` belongs to column ``j``.
    share : ndarray of shape (n_components,)
        Share of each component.
    label : ndarray of shape (n_components,), int32
        Class of each component, ascending.
    group : ndarray of shape (n_components,), int32
        What a row should be known to be of, ascending: the class, or a context of the class.
    tables : ndarray of shape (n_levels of all columns, n_components), float32
        Chance of each level in each component; the last level of a column is "missing".
    n_classes : int
        Number of classes.
    """

    columns: Ints
    ends: Floats
    offsets: NDArray[np.int64]
    share: Floats
    label: NDArray[np.int32]
    group: NDArray[np.int32]
    tables: NDArray[np.float32]
    n_classes: int

    def validate(self) -> "Mixture":
        """Refuse arrays that do not fit together. Returns itself."""
        n_columns, offsets, share = len(self.columns), self.offsets, self.share
        rises = (
            offsets.shape == (n_columns + 1,)
            and offsets[0] == 0
            and offsets[-1] == len(self.ends)
            and bool(np.all(offsets[1:] >= offsets[:-1]))
        )
        fits = (
            rises
            and self.columns.ndim == self.ends.ndim == share.ndim == 1
            and len(np.unique(self.columns)) == n_columns
            and self.tables.shape == (len(self.ends) + 2 * n_columns, len(share))
            and self.label.shape == self.group.shape == share.shape
        )
        # Behind the last end of a column comes the first of the next one.
        follows = (
            np.delete(
                np.diff(self.ends), offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(self.ends))] - 1
            )
            if rises
            else self.ends
        )
        if not fits or np.any(self.n_levels > MAX_LEVELS) or not np.all(follows > 0):
            raise InvalidInputError("levels of a mixture must be those of its columns.")
        labels = np.arange(self.n_classes)
        if self.n_classes < 2 or not np.array_equal(np.unique(self.label), labels):
            raise InvalidInputError(f"components of a mixture must be of each of {self.n_classes} classes.")
        if (
            np.any(np.diff(self.label) < 0)
            or np.any(np.diff(self.group) < 0)
            or not (np.all(share > 0) and np.all(self.tables > 0))
        ):
            raise InvalidInputError("components of a mixture must have positive chances, class by class.")
        return self

    @property
    def n_levels(self) -> NDArray[np.int64]:
        """Levels of each column, missing counted."""
        return np.diff(self.offsets) + 2

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First row of each column in ``tables``."""
        return np.r_[0, np.cumsum(self.n_levels)[:-1]]

    @cached_property
    def by_component(self) -> NDArray[np.float32]:
        """``tables`` with a line for each component, in which the levels of a column are neighbours."""
        return np.ascontiguousarray(self.tables.T)

    @cached_property
    def prior(self) -> Floats:
        """Share of each class."""
        counts = np.bincount(self.label, self.share, minlength=self.n_classes)
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

    def look(
        self, codes: NDArray[np.uint8], columns: Ints, candidates: Ints | None = None
    ) -> tuple[Floats, Floats]:
        """Scores of some rows, and the expected gain of further columns.

        Parameters
        ----------
        codes : ndarray of shape (n_rows, n_columns)
            Levels of what is held.
        columns : ndarray
            The columns that are held.
        candidates : ndarray, optional
            Columns that may be bought.

        Returns
        -------
        scores : ndarray of shape (n_rows, n_scores)
            Logarithms of the probabilities of classes; of two classes the log-odds of the second.
        gain : ndarray of shape (n_rows, n_candidates)
            By how much the impurity is expected to fall once a candidate is known.
        """
        wanted = self.places(np.empty(0, dtype=np.intp) if candidates is None else candidates)
        all_rows: Any = slice(None)
        if len(codes) > 1:  # at the first purchases most rows hold what others hold
            codes, all_rows = np.unique(codes, axis=0, return_inverse=True)
        scores, gain = np.empty((len(codes), self.n_classes)), np.empty((len(codes), len(wanted)))
        held, codes = self.starts[self.places(columns)], np.ascontiguousarray(codes)
        tables = self.tables, self.by_component, self.share, self.label, self.group, self.prior
        parts, near = np.empty((2, len(self.share))), np.empty(len(self.share), dtype=np.int64)
        wanted_levels, sums = (self.starts[wanted], self.n_levels[wanted]), np.empty((3, MAX_LEVELS))
        components(*tables, held, codes, *wanted_levels, parts, near, sums, scores, gain)
        if self.n_classes == 2:
            scores = scores[:, 1:] - scores[:, :1]
        all_rows = all_rows if isinstance(all_rows, slice) else all_rows.ravel()
        return scores[all_rows], gain[all_rows]


@lean
def log_of(value: float) -> float:
    """Natural logarithm of a positive number: its power of two, and a series in (m - 1) / (m + 1) of what is left."""
    power = 0.0
    while value < 0.7071067811865476:
        value *= 2.0
        power -= 1.0
    while value > 1.4142135623730951:
        value *= 0.5
        power += 1.0
    ratio = (value - 1.0) / (value + 1.0)
    square, total = ratio * ratio, 0.0
    for n in range(SERIES, 0, -2):
        total = total * square + 1.0 / n
    return 2.0 * ratio * total + power * 0.6931471805599453


@lean_kernel
def components(
    tables: Any,
    by_component: Any,
    share: Any,
    label: Any,
    group: Any,
    prior: Any,
    held: Any,
    codes: Any,
    wanted: Any,
    n_levels: Any,
    parts: Any,
    near: Any,
    sums: Any,
    scores: Any,
    gain: Any,
) -> None:
    """Write the logarithms of the probabilities of the classes of each row, and the gain of each wanted column."""
    n, n_classes = len(share), len(prior)
    weight, of_near = parts[0], parts[1]
    for row in range(len(codes)):
        for k in range(n):
            weight[k] = share[k]
        for c in range(len(held)):
            at = held[c] + codes[row, c]
            for k in range(n):
                weight[k] *= tables[at, k]
        total = 0.0
        for k in range(n):
            total += weight[k]
        scale = 1.0 / total if total > 0.0 else 0.0
        for k in range(n_classes):
            scores[row, k] = FLOOR * prior[k]
        n_near = 0
        for k in range(n):
            weight[k] *= scale
            scores[row, label[k]] += weight[k]
            if weight[k] > NEGLIGIBLE:
                near[n_near], of_near[n_near] = k, weight[k]
                n_near += 1
        for k in range(n_classes):
            scores[row, k] = log_of(scores[row, k])
        now = impurity_kept(group, near, of_near, n_near)
        for c in range(len(wanted)):
            after = expected_kept(by_component, group, near, of_near, n_near, wanted[c], n_levels[c], sums)
            gain[row, c] = max(after - now, 0.0)


@lean
def impurity_kept(group: Any, near: Any, weight: Any, n_near: int) -> float:
    """Sum of the squared masses of groups over their sum; components are listed group by group."""
    total, squares, mass, current = 0.0, 0.0, 0.0, -1
    for i in range(n_near):
        if group[near[i]] != current:
            squares += mass * mass
            total += mass
            mass, current = 0.0, group[near[i]]
        mass += weight[i]
    squares += mass * mass
    total += mass
    return squares / total if total > 0.0 else 0.0


@lean
def expected_kept(
    by_component: Any,
    group: Any,
    near: Any,
    weight: Any,
    n_near: int,
    start: int,
    n_levels: int,
    sums: Any,
) -> float:
    """``impurity_kept`` behind each level of a column, summed over its levels, which are computed side by side."""
    total, squares, mass = sums[0], sums[1], sums[2]
    for level in range(n_levels):
        total[level] = squares[level] = mass[level] = 0.0
    for i in range(n_near):
        k, of_one = near[i], weight[i]
        chance = by_component[k, start : start + n_levels]
        for level in range(n_levels):
            mass[level] += of_one * chance[level]
        if i + 1 == n_near or group[near[i + 1]] != group[k]:
            for level in range(n_levels):
                squares[level] += mass[level] * mass[level]
                total[level] += mass[level]
                mass[level] = 0.0
    for level in range(n_levels):
        mass[level] = squares[level] / total[level]
    after = 0.0
    for level in range(n_levels if n_near > 0 else 0):
        after += mass[level]
    return after


@dataclass(frozen=True, eq=False)
class TurnByGain:
    """Choice of the node of the next stage: the largest expected gain per unit of price.

    Attributes
    ----------
    nodes : ndarray of shape (n_choices,)
        Numbers of the nodes to choose from.
    tells : ndarray of shape (n_choices, max_columns), int
        Columns that each choice delivers and the mixture knows, -1 where there are no more.
    prices : ndarray of shape (n_choices,)
        What each choice costs.
    """

    nodes: Ints
    tells: NDArray[np.int64]
    prices: Floats

    def problem(self, mixture: Mixture) -> str | None:
        """Why a node of a mixture cannot take this turn, or None."""
        n_choices, tells = len(self.nodes), self.tells
        if not n_choices or not are_columns(self.nodes, MAX_NODES):
            return f"nodes of a turn must be distinct numbers in [0, {MAX_NODES})"
        if tells.ndim != 2 or len(tells) != n_choices or not np.all(tells.max(axis=1, initial=-1) >= 0):
            return "each choice of a turn must tell a column"
        if not ((tells == -1) | np.isin(tells, mixture.columns)).all():
            return "columns that a turn tells must be known of the mixture"
        is_right = self.prices.shape == (n_choices,) and np.all(self.prices > 0)
        return None if is_right else "prices of a turn must be positive, one for each choice"

    @cached_property
    def candidates(self) -> Ints:
        """All columns that some choice delivers; none where there is only one."""
        is_choice = len(self.nodes) > 1
        return np.unique(self.tells[self.tells >= 0])[: None if is_choice else 0].astype(np.intp)

    @cached_property
    def _of_choices(self) -> list[Ints]:
        """Places in ``candidates`` of what each choice delivers."""
        return [np.flatnonzero(np.isin(self.candidates, tells)) for tells in self.tells]

    def taken(self, gain: Floats) -> Ints:
        """The node for each row, from what each of ``candidates`` gains; the first of those that gain equally much.

        The gain of a purchase is that of its best column.
        """
        if len(self.nodes) == 1:
            return np.full(len(gain), self.nodes[0], dtype=np.intp)
        best = [gain[:, own].max(axis=1) for own in self._of_choices]
        taken: Ints = self.nodes[(np.column_stack(best) / self.prices).argmax(axis=1)]
        return taken


@dataclass(frozen=True, eq=False)
class MixtureStage:
    """A node that predicts by a mixture.

    Attributes
    ----------
    columns : ndarray
        Columns held here.
    mixture : Mixture
        Components; all nodes of a chain share them.
    calibration : ndarray
        Calibration of the scores.
    task : Task
        Applies the calibration.
    turn : TurnByGain, optional
        Choice of the node of the next stage; its only node without one.
    """

    columns: Ints
    mixture: Mixture
    calibration: Floats
    task: Task
    turn: TurnByGain | None = None

    def problem(self, task: Task) -> str | None:
        """Why the node cannot serve a task, or None."""
        if self.mixture.n_classes != len(task.classes) or self.task != task:
            return "a mixture must be of the classes of the chain"
        if not np.isin(self.columns, self.mixture.columns).all():
            return "columns must be known of the mixture"
        problem = shape_problem("calibration", self.calibration, models_of(task).no_calibration.shape)
        return problem or (None if self.turn is None else self.turn.problem(self.mixture))

    def visit(self, block: Any, carried: Floats) -> Visit:
        """Answer by the mixture; what rows carry is left as it is."""
        block = block.toarray() if sparse.issparse(block) else np.asarray(block, dtype=np.float64)
        codes = self.mixture.code(block, self.columns)
        scores, gain = self.mixture.look(
            codes, self.columns, None if self.turn is None else self.turn.candidates
        )
        turn = None if self.turn is None else self.turn.taken(gain)
        return Visit(self.task.calibrated(scores, self.calibration), None, carried, turn=turn)
