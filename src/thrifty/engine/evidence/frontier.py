"""Frontiers: the efficient operating points of systems, each with a higher score than every cheaper point.

A frontier is *chosen* on one set of rows and may then be scored on others (``on``). The points stay as chosen, and so
does the point of each budget: choosing again by the scores of the new rows would bias them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from thrifty.arrays import Bools, Floats, Ints, Words, finite_numbers
from thrifty.engine.evidence.evidence import Evidence, Means, means_at
from thrifty.engine.evidence.measures import banded, check_bootstrap, measured_rows, resampled, tails
from thrifty.engine.plots import draw_frontier
from thrifty.engine.prices.billing import check_amount
from thrifty.engine.tasks.task import Task
from thrifty.engine.walk.policy import SLACK
from thrifty.errors import InvalidInputError

_MEANS = ("cost", "share", "score")
_LINES = 11
"""Budgets that a table of measures has lines for, unless others are asked for."""
_POINTS = 1024
"""Points whose resampled means are held at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """Efficient operating points of many systems, by rising cost; make one with ``from_evidence``.

    Attributes
    ----------
    evidence : tuple of Evidence
        The systems, on the rows that ``means`` are about.
    source : ndarray of shape (n_points,)
        The system each point belongs to.
    thresholds : ndarray of shape (n_points, n_stages)
        One threshold per stage of the point's system, or the number of its rule; systems with fewer stages leave NaN
        behind theirs.
    means : Means
        Cost, share sent and score of each point on these rows; also as ``cost``, ``share`` and ``score``.
    chosen : Means
        Means on the rows the points were chosen on: cost and score rise from point to point.
    held_out : bool
        Whether these rows are others than those the points were chosen on.
    compares_with_full : bool
        Whether the score is "not worse than the full model" instead of "right".
    seen : tuple of ndarray
        Fingerprints of the rows that the systems were fitted on and the points chosen on, as far as they are known.
    task : Task, optional
        Kind of answer, which ``measures`` and ``plot`` need: labels or numbers, and the prices of mistakes.
    """

    evidence: tuple[Evidence, ...]
    source: Ints
    thresholds: Floats
    means: Means
    chosen: Means
    held_out: bool = False
    compares_with_full: bool = False
    seen: tuple[Words, ...] = ()
    task: Task | None = None

    @classmethod
    def from_evidence(
        cls,
        evidence: Sequence[Evidence],
        *,
        against_full: bool = False,
        task: Task | None = None,
        every_point: bool = False,
    ) -> Self:
        """Keep the efficient ones among all operating points of some systems on the same rows.

        Parameters
        ----------
        evidence : sequence of Evidence
            One per fitted system.
        against_full : bool, default=False
            Score a row by whether the answer is not worse than the full model's, instead of whether it is right: the
            frontier a certificate of "loses at most so much against the full model" walks along.
        task : Task, optional
            Kind of answer, ``estimator.chain_.task``; the ``frontier_`` of an estimator has it.
        every_point : bool, default=False
            Keep points that are not efficient on these rows, too: dearer ones may be safer on others.
        """
        sources = _sources(evidence, against_full)
        points = [system.every_point() for system in sources]
        source = np.repeat(np.arange(len(points)), [len(thresholds) for thresholds, _ in points])
        widest = max(system.n_parameters for system in sources)
        thresholds = np.concatenate(
            [
                np.pad(part, ((0, 0), (0, widest - part.shape[1])), constant_values=np.nan)
                for part, _ in points
            ]
        )
        means = Means(*(np.concatenate([getattr(part, name) for _, part in points]) for name in _MEANS))
        # Costs that differ in their last digits only are equal; counts of right answers are exact as they are.
        scale = float(np.abs(means.cost).max()) or 1.0
        cost = np.round(means.cost / scale, 12)
        kept = np.argsort(cost, kind="stable") if every_point else efficient(cost, means.score)
        means = Means(means.cost[kept], means.share[kept], means.score[kept])
        seen = tuple(keys for system in sources for keys in system.known_rows)
        return cls(sources, source[kept], thresholds[kept], means, means, False, against_full, seen, task)

    def on(self, evidence: Sequence[Evidence]) -> Self:
        """The very same points, same system and same thresholds, on other rows.

        They may not be efficient there; they are kept as chosen, in the same order.

        Parameters
        ----------
        evidence : sequence of Evidence
            Of the same systems in the same order as this frontier was made from.
        """
        sources = _sources(evidence, self.compares_with_full)
        if len(sources) != len(self.evidence):
            raise InvalidInputError(
                f"the frontier was made from {len(self.evidence)} systems; got the evidence of {len(sources)}. "
                f"Give that of the same systems, in the same order."
            )
        used = np.unique(self.source)
        for place in used:
            if sources[place].identity != self.evidence[place].identity:
                raise InvalidInputError(
                    f"evidence[{place}] must be of the same system as the frontier's; expected "
                    f"{self.evidence[place].identity}, got {sources[place].identity}. Keep the order of the systems."
                )
        means = means_at(sources, self.source, self.thresholds)
        # Only the same rows give the same numbers row by row.
        held_out = any(
            not np.array_equal(getattr(sources[place], name), getattr(self.evidence[place], name))
            for place in used
            for name in ("gate", "quality")
        )
        fitted_on = tuple(system.seen for system in sources if system.seen is not None)
        return replace(self, evidence=sources, means=means, held_out=held_out, seen=(*self.seen, *fitted_on))

    # -- points of budgets and scores -----------------------------------------------------------------------------

    def best(self, *, budget: float) -> "OperatingPoint":
        """The point for a mean cost of at most ``budget``: the best-scoring one on the rows it was chosen on."""
        return self[int(self.within(np.array([check_amount("budget", budget)]))[0])]

    def cheapest(self, *, score: float | None = None, loss: float | None = None) -> "OperatingPoint":
        """The cheapest point that reaches a score, or loses little, on the rows it was chosen on.

        Parameters
        ----------
        score : float, optional
            Least mean score.
        loss : float, optional
            By how much the mean score may be lower than that of the full model, with a standard error of the
            difference to spare: the cheapest of many points that seem good enough is one that was lucky.
        """
        if score is None and loss is not None:
            return self._cheapest_within(float(finite_numbers("loss", [loss], (1,))[0]))
        if score is None or loss is not None:
            raise InvalidInputError(
                f"cheapest takes either a score or a loss; got score={score!r} and loss={loss!r}."
            )
        wanted = float(finite_numbers("score", [score], (1,))[0])
        place = int(np.searchsorted(self.chosen.score, wanted - SLACK * abs(wanted)))
        if place < len(self):
            return self[place]
        dearest = (
            f"the best point scores {self.chosen.score[-1]:.6g}, at a mean cost of {self.chosen.cost[-1]:.6g}"
        )
        raise InvalidInputError(
            f"no point reaches a score of {score!r}: {dearest}. Ask for less, or add systems."
        )

    def _cheapest_within(self, loss: float) -> "OperatingPoint":
        if self.held_out:
            raise InvalidInputError(
                "a loss is looked for on the rows that the points were chosen on; these are others. Ask the frontier "
                "of the fit, and look at the same point here."
            )
        least = np.inf
        for point in self:
            lead, error = self.evidence[point.source].lead_over_full(np.array(point.thresholds))
            least = min(least, error - lead)
            if least <= loss + SLACK:
                return point
        raise InvalidInputError(
            f"no point loses at most {loss!r} with a standard error to spare: the least is {least:.6g}. Ask for more."
        )

    def band(self, level: float = 0.95, *, n_boot: int = 1000, seed: int = 0) -> "Band":
        """Bootstrap intervals over rows of each point's score and cost; see ``thrifty.engine.evidence.measures``.

        The points are held as they are. On the rows they were chosen on their scores are too good, and the band
        does not correct that: ask for the band of ``frontier.on(other_rows)``.
        """
        check_bootstrap(level, n_boot)
        ends = np.empty((4, len(self)))
        # Points of one system stay together: each block of them pays for a pass over the system's rows.
        order = np.argsort(self.source, kind="stable")
        for start in range(0, len(order), _POINTS):
            block = order[start : start + _POINTS]
            cost, score = resampled(
                self.evidence, self.source[block], self.thresholds[block], n_boot=n_boot, seed=seed
            )
            ends[:2, block] = tails(score, level)
            ends[2:, block] = tails(cost, level)
        return Band(level, *ends)

    def _scores_drawn(self, places: Ints, n_boot: int, seed: int) -> Floats:
        """Score at each place under each draw; a point that serves several budgets is averaged once."""
        points, of_budget = np.unique(places, return_inverse=True)
        source, thresholds = self.source[points], self.thresholds[points]
        return resampled(self.evidence, source, thresholds, n_boot=n_boot, seed=seed)[1][of_budget]

    def compare(
        self,
        others: Mapping[str, "Frontier"],
        budgets: ArrayLike,
        *,
        level: float = 0.95,
        n_boot: int = 1000,
        seed: int = 0,
    ) -> dict[str, "Comparison"]:
        """Score of this frontier minus that of each other one at the same budgets, with paired bootstrap bands.

        Parameters
        ----------
        others : dict of str to Frontier
            Frontiers on the same rows, in the same order of rows.
        budgets : array-like of shape (n_budgets,)
            Every frontier uses, for each budget, the point that ``best`` gives.
        level, n_boot, seed
            Share of the draws an interval holds, number of draws, and their seed.
        """
        check_bootstrap(level, n_boot)
        budgets = np.array([check_amount("budgets", budget) for budget in np.ravel(np.asarray(budgets))])
        if budgets.size == 0:
            raise InvalidInputError("budgets must hold at least one budget; got none.")
        sizes = {name: other.n_rows for name, other in others.items() if other.n_rows != self.n_rows}
        if sizes:
            raise InvalidInputError(
                f"frontiers must be compared on the same rows; this one has {self.n_rows}, the others {sizes}."
            )
        places = self.within(budgets)
        drawn = self._scores_drawn(places, n_boot, seed)
        comparisons = {}
        for name, other in others.items():
            try:
                theirs = other.within(budgets)
            except InvalidInputError as error:
                raise InvalidInputError(f"others[{name!r}]: {error}") from None
            difference = self.score[places] - other.score[theirs]
            draws = drawn - other._scores_drawn(theirs, n_boot, seed)
            mean_low, mean_high = tails(draws.mean(axis=0), level)
            low, high = tails(draws, level)
            comparisons[name] = Comparison(
                budgets=budgets,
                difference=difference,
                low=low,
                high=high,
                cost_difference=self.cost[places] - other.cost[theirs],
                mean=float(difference.mean()),
                mean_low=float(mean_low),
                mean_high=float(mean_high),
                level=level,
            )
        return comparisons

    def losses_against_full(self, rows: Bools | None = None) -> Ints:
        """Number of these rows, or of some, on which the full model is right and the point wrong, for each point."""
        rows = None if rows is not None and rows.all() else rows
        if rows is not None and not rows.any():
            return np.zeros(len(self), dtype=np.intp)
        if self.compares_with_full and rows is None:
            score = self.score
        else:
            evidence: Sequence[Evidence] = self.evidence
            if not self.compares_with_full:
                used = set(self.source.tolist())
                evidence = [
                    system.against_full() if place in used else system
                    for place, system in enumerate(evidence)
                ]
            score = means_at(evidence, self.source, self.thresholds, rows).score
        n_rows = self.n_rows if rows is None else int(rows.sum())
        return np.rint(n_rows * (1.0 - score)).astype(np.intp)

    def sums(self, of_rows: Sequence[Floats], rows: Bools) -> Floats:
        """Sum over some rows, for each point, of numbers that are known for each system, row and place of an answer."""
        evidence = [
            replace(system, quality=each) for system, each in zip(self.evidence, of_rows, strict=True)
        ]
        return means_at(evidence, self.source, self.thresholds, rows).score * int(rows.sum())

    def plot(self, ax: Any = None, **line: Any) -> Any:
        """Draw score against mean cost on matplotlib axes and return them; ``line`` goes to ``ax.plot``.

        Where mistakes have prices, the second axis is their cost, and the point of least total cost is marked.
        """
        steps = not (self.held_out or self.is_mixed)
        if self.is_priced:
            names = ("mean cost of tests per row", "mean cost of mistakes per row")
            return draw_frontier(
                ax, self.cost, -self.score, names, steps=steps, least=self.least_total, **line
            )
        name = "mean score" if self.task is None else self.task.quality_name
        if self.compares_with_full:
            name = "share of rows not worse than the full model"
        return draw_frontier(ax, self.cost, self.score, ("mean cost per row", name), steps=steps, **line)

    @property
    def costs(self) -> Floats | None:
        """Mean cost of each point in each of several resources, (n_points, n_resources); None where there is one."""
        first, *others = self.evidence
        return None if others or first.costs is None or self.held_out else first.mean_costs(self.thresholds)

    @property
    def is_mixed(self) -> bool:
        """True if a budget between two points is spent: they are those of one cascade."""
        first, *others = self.evidence
        return not others and first.points is not None and first.n_stages > 0 and not first.is_fixed

    @property
    def is_priced(self) -> bool:
        """True if the score is minus the cost of mistakes."""
        priced = self.task is not None and self.task.mistake_price is not None
        return priced and not self.compares_with_full

    @property
    def least_total(self) -> int:
        """Place of the point whose tests and mistakes cost least together, by the rows of the choice."""
        # A choice by the totals of other rows would be made on them.
        return int(np.argmin(self.chosen.cost - self.chosen.score))

    def to_frame(self) -> Any:
        """Return a pandas data frame with one line per point, and one column per number and per setting."""
        pd, threshold = _pandas("to_frame"), self.threshold.astype(object)
        missing = np.isnan(self.threshold)
        threshold[missing] = None
        columns: dict[str, Any] = {
            "cost": self.cost,
            "score": self.score,
            "share": self.share,
            "threshold": threshold if missing.any() else self.threshold,
            "n_features": np.array([len(system.features) for system in self.evidence])[self.source],
            "source": self.source,
            "chosen_cost": self.chosen.cost,
            "chosen_score": self.chosen.score,
        }
        systems = [self.evidence[place] for place in self.source]
        names = dict.fromkeys(
            name for place in np.unique(self.source) for name in self.evidence[place].settings
        )
        for name in names:
            columns[f"setting.{name}"] = pd.Series([system.settings.get(name) for system in systems])
        return pd.DataFrame(columns)

    def measures(
        self,
        budgets: ArrayLike | None = None,
        *,
        level: float = 0.95,
        n_boot: int = 1000,
        seed: int = 0,
    ) -> Any:
        """Return a pandas data frame of all that can be measured at the points of some budgets.

        Columns are ``budget``, ``cost`` and, each with its bootstrap interval over rows in ``..._low`` and
        ``..._high``, accuracy, balanced accuracy and the recall of every class; log-loss and AUC where the scores of
        the answers are known, which they are after ``on([evidence_of(estimator, X, y)])``. For numbers it is R2, RMSE
        and MAE, after ``on``.

        Parameters
        ----------
        budgets : array-like of shape (n_budgets,), optional
            One line for each; by default eleven from the cheapest point to the dearest.
        level, n_boot, seed
            Share of the draws an interval holds, number of draws, and their seed.
        """
        if self.compares_with_full:
            raise InvalidInputError(
                "this frontier counts answers that are not worse than the full model's, not those that are right. Ask "
                "one made without against_full."
            )
        low, high = self.chosen.cost[0], self.chosen.cost[-1]
        asked = np.linspace(low, high, _LINES) if budgets is None else np.asarray(budgets, dtype=float)
        asked = np.array([check_amount("budgets", budget) for budget in np.ravel(asked)])
        of_budgets = self.within(asked)
        places = np.unique(of_budgets)
        systems = [self.evidence[source] for source in self.source[places]]
        points = [
            (system, self.thresholds[place, : system.n_parameters])
            for place, system in zip(places, systems, strict=True)
        ]
        rows = measured_rows(points, self.task)
        columns = {"budget": asked, "cost": self.cost[of_budgets]}
        for name, ends in banded(rows, rows.names, level=level, n_boot=n_boot, seed=seed).items():
            value, low, high = (end[np.searchsorted(places, of_budgets)] for end in ends)
            columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
        return _pandas("measures").DataFrame(columns)

    def within(self, budgets: Floats) -> Ints:
        """Place of the point for each budget: the dearest it affords on the rows the points were chosen on."""
        place = np.searchsorted(self.chosen.cost, budgets * (1 + SLACK), side="right") - 1
        if (place < 0).any():
            cheapest = f"{self.chosen.cost[0]:.6g}, the mean cost of the cheapest point"
            raise InvalidInputError(
                f"budget must be at least {cheapest} (its score is {self.chosen.score[0]:.6g}); "
                f"got {float(budgets.min())!r}. Raise the budget, or add systems that buy less."
            )
        return place

    # -- numbers -------------------------------------------------------------------------------

    @property
    def cost(self) -> Floats:
        """Mean cost per row of each point, on these rows."""
        return self.means.cost

    @property
    def score(self) -> Floats:
        """Mean score of each point, on these rows."""
        return self.means.score

    @property
    def share(self) -> Floats:
        """Share of rows that each point sends on, on these rows; NaN where points are rules."""
        return self.means.share

    @property
    def n_rows(self) -> int:
        """Rows, or queries, that the numbers are means over."""
        return self.evidence[0].n_units

    @property
    def threshold(self) -> Floats:
        """Threshold of each point whose system has a single gate; NaN for the others."""
        single = np.array([system.n_stages == 1 and not system.is_fixed for system in self.evidence])
        return np.where(single[self.source], self.thresholds[:, 0], np.nan)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> "Iterator[OperatingPoint]":
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: int) -> "OperatingPoint":
        source = int(self.source[place])
        system = self.evidence[source]
        n_parameters = 0 if system.is_fixed else system.n_parameters
        return OperatingPoint(
            cost=float(self.means.cost[place]),
            score=float(self.means.score[place]),
            share=None if np.isnan(share := self.means.share[place]) else float(share),
            source=source,
            features=system.features,
            settings=dict(system.settings),
            chosen_cost=float(self.chosen.cost[place]),
            chosen_score=float(self.chosen.score[place]),
            thresholds=tuple(self.thresholds[place, :n_parameters].tolist()),
        )

    def __repr__(self) -> str:
        rows = f"{self.n_rows:,} {'other ' if self.held_out else ''}{self.evidence[0].unit_name}"
        points = f"{len(self):,} point{'' if len(self) == 1 else 's'}"
        systems = f"{len(self.evidence):,} system{'' if len(self.evidence) == 1 else 's'}"
        cheap, dear = self[int(np.argmin(self.cost))], self[int(np.argmax(self.cost))]
        return (
            f"Frontier({points} of {systems} on {rows}: "
            f"score {cheap.score:.4f} at cost {cheap.cost:.4g} to {dear.score:.4f} at {dear.cost:.4g})"
        )


def _sources(evidence: Sequence[Evidence], against_full: bool) -> tuple[Evidence, ...]:
    sources = tuple(evidence)
    if not sources:
        raise InvalidInputError("a frontier needs the evidence of at least one system; got none.")
    sizes = sorted({system.n_units for system in sources})
    if len(sizes) > 1:
        raise InvalidInputError(
            f"the systems of a frontier must be evaluated on the same rows; got evidence of {sizes} rows."
        )
    return tuple(system.against_full() for system in sources) if against_full else sources


# -- bands and comparisons -------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """Percentile intervals of each point of a frontier, point by point.

    Attributes
    ----------
    level : float
        Share of the resamples that an interval holds.
    score_low, score_high, cost_low, cost_high : ndarray of shape (n_points,)
        Ends of the intervals.
    """

    level: float
    score_low: Floats
    score_high: Floats
    cost_low: Floats
    cost_high: Floats


@dataclass(frozen=True)
class Comparison:
    """Score of one frontier minus that of another at the same budgets, on the same rows.

    Attributes
    ----------
    budgets : ndarray of shape (n_budgets,)
        Limits of the mean cost, on the rows that the points were chosen on.
    difference, low, high : ndarray of shape (n_budgets,)
        Difference of the scores, and the ends of its paired bootstrap interval at each budget.
    cost_difference : ndarray of shape (n_budgets,)
        Mean cost of the first minus that of the second on these rows: a better score may have been paid for.
    mean, mean_low, mean_high : float
        Mean difference over the budgets, and the ends of its interval.
    level : float
        Share of the resamples that an interval holds.
    """

    budgets: Floats
    difference: Floats
    low: Floats
    high: Floats
    cost_difference: Floats
    mean: float
    mean_low: float
    mean_high: float
    level: float

    def __str__(self) -> str:
        name = f"mean difference over {len(self.budgets)} budgets" if len(self.budgets) > 1 else "difference"
        interval = f"{100 * self.level:g} % interval {self.mean_low:+.4f} to {self.mean_high:+.4f}"
        return f"{name} {self.mean:+.4f} ({interval}) for {self.cost_difference.mean():+.2f} in mean cost"


# -- operating points ------------------------------------------------------------------------------


def efficient(cost: ArrayLike, score: ArrayLike) -> Ints:
    """Indices of the efficient points, by rising cost; each scores higher than every cheaper one.

    One sort and one running maximum: n log n for n points.
    """
    cost, score = np.asarray(cost, dtype=np.float64), np.asarray(score, dtype=np.float64)
    order = np.lexsort((-score, cost))
    best_before = np.r_[-np.inf, np.maximum.accumulate(score[order])[:-1]]
    kept: Ints = order[score[order] > best_before]
    return kept


@dataclass(frozen=True)
class OperatingPoint:
    """A fitted system at one threshold per stage, with its numbers on the rows of a frontier.

    Attributes
    ----------
    cost, score, share : float
        Mean cost per row, mean score (accuracy, where answers are right or wrong) and share of rows sent on; None
        where the point is a rule.
    source : int
        Place of its system in the list the frontier was made from.
    features : tuple of int
        Columns that its cheap part buys.
    settings : dict
        Parameters of the fit of its system.
    chosen_cost, chosen_score : float
        Cost and score on the rows the point was chosen on, which may be those of ``cost`` and ``score``.
    thresholds : tuple of float
        One threshold per stage, or the number of a rule; empty where the point is a system as it is.
    """

    cost: float
    score: float
    share: float | None
    source: int
    features: tuple[int, ...]
    settings: dict[str, Any] = field(hash=False)
    chosen_cost: float
    chosen_score: float
    thresholds: tuple[float, ...] = ()

    @property
    def threshold(self) -> float | None:
        """The gate's threshold; None where the point is not a threshold of one gate."""
        return self.thresholds[0] if len(self.thresholds) == 1 else None

    @property
    def n_features(self) -> int:
        """Number of columns that its cheap part buys."""
        return len(self.features)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for a JSON file, which knows no infinite numbers."""
        thresholds = [value if np.isfinite(value) else str(value) for value in self.thresholds]
        single = thresholds[0] if len(thresholds) == 1 else None
        return asdict(self) | {"features": list(self.features), "threshold": single, "thresholds": thresholds}


# -- data frames ------------------------------------------------------------------------------------


def _pandas(method: str) -> Any:
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise InvalidInputError(f"{method} needs pandas; install it with `pip install pandas`.") from None
    return pd
