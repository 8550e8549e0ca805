"""Measures of operating points besides the mean score: recalls, log-loss, AUC and errors, with bootstrap intervals.

Which measures there are depends on the evidence: the classes of rows, and which answers are right, are enough for
accuracy, balanced accuracy and recalls; log-loss, AUC and errors need the scores of the answers, which a fitted
estimator does not keep, and which ``frontier.on(evidence of rows)`` has.

The recall of a class is the share of its rows that are answered with it; ``within_floors`` finds the best point whose
recalls reach given floors. Rows that follow one of two points by chance have the mean of their recalls, so that cost,
score and recalls are linear between neighbours: the best mix is one of the points, the one that just spends the budget,
or one that just reaches a floor.

The bootstrap is paired: rows are drawn with replacement, and all points are averaged over the same draws, because two
points that are right on mostly the same rows differ by far less than each of them varies. A draw is the number of times
each row was taken, so all points of a system are averaged with one matrix product. Draws come in blocks, the same for
the same seed and number of rows, so memory is bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtrit

from thrifty.arrays import Bools, Floats, Ints, Labels
from thrifty.engine.evidence.evidence import Evidence, PointAnswers
from thrifty.engine.tasks.classes import ClassTask
from thrifty.engine.tasks.task import ERRORS, Task, mean_error
from thrifty.engine.walk.policy import SLACK, Policy
from thrifty.errors import InvalidInputError, InvalidParameterError

MIN_PROBABILITY = 1e-15
"""Probabilities are clipped here, so that one overconfident mistake does not make the log-loss infinite."""


SCORE_WIDENING = 1.2
"""Factor on the standard error of an expected score: the served stages differ from the evaluated copies."""


def mean_and_variance(values: Floats, shares: Sequence[float]) -> tuple[Floats, Floats]:
    """Mean of each row over points that it follows with some probabilities, and the variance by which point it is."""
    pairs = combinations(zip(shares, values, strict=True), 2)
    mean = sum(share * of_point for share, of_point in zip(shares, values, strict=True))
    variance = sum(share * other * np.square(upper - lower) for (share, lower), (other, upper) in pairs)
    return np.asarray(mean), np.asarray(variance)


def score_interval(evidence: Evidence, policy: Policy, score: float, level: float) -> tuple[float, float]:
    """Confidence interval of the mean score of many new rows at the point in force, around its expected score.

    Variances of the mean over the rows of the evidence and of its correction by ``optimism`` add up. Where answers are
    right or wrong the former has the form of Agresti and Coull (1998, The American Statistician 52), which adds about
    two rows of each kind, so that rows without a mistake do not promise a score of one.
    """
    weight, (shares, points) = evidence.weights, zip(*policy.in_force, strict=True)
    in_force = policy.thresholds[list(points)]
    quality = [evidence.at_point(point)[2] for point in in_force]
    n_rows = float(weight.sum() ** 2 / np.square(weight).sum())
    quantile = float(stdtrit(max(n_rows - 1.0, 1.0), (1 + level) / 2))
    middle, n_more, ends = score, 0.0, (-np.inf, np.inf)
    if quality[0].dtype == bool:
        n_more, ends = quantile**2, (0.0, 1.0)
        middle = (n_rows * float(np.clip(score, *ends)) + n_more / 2) / (n_rows + n_more)
        variance = middle * (1 - middle)
    else:
        mixed, drawn = mean_and_variance(np.array(quality, dtype=np.float64), shares)
        around = np.square(mixed - np.average(mixed, weights=weight))
        variance = float(np.average(around + drawn, weights=weight))
    error = float(np.average(evidence.optimism_at(in_force)[:, 1], weights=shares))
    margin = quantile * float(np.sqrt(SCORE_WIDENING**2 * variance / (n_rows + n_more) + error**2))
    return max(middle - margin, ends[0]), min(middle + margin, ends[1])


def banded(
    rows: "ClassRows | NumberRows", names: Sequence[str], *, level: float, n_boot: int, seed: int
) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Value and both ends of the percentile interval of some measures, each of shape (n_points,).

    Rows are drawn once for all points. A class without rows has no recall, and balanced accuracy is the mean over the
    others; a resample that lacks a class is treated alike.
    """
    check_bootstrap(level, n_boot)
    once = rows.under(np.ones((rows.n_rows, 1)), names)
    drawn = {name: np.empty((len(once[name]), n_boot)) for name in names}
    for place, counts in draws_of(rows.n_rows, n_boot, seed):
        for name, values in rows.under(counts, names).items():
            drawn[name][:, place] = values
    # A resample without a class has no recall of it.
    ends = {
        name: [tails(of_point[~np.isnan(of_point)], level) for of_point in values]
        for name, values in drawn.items()
    }
    return {name: (once[name][:, 0], *np.array(pairs).T) for name, pairs in ends.items()}


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows that are answered with labels, at some operating points.

    Attributes
    ----------
    right : ndarray of shape (n_points, n_rows)
        Whether each answer is right, or the probability of that where two points are mixed.
    strata : ndarray of shape (n_rows,)
        Number of the class of each row.
    labels : tuple
        Labels of the classes.
    outputs : list of n_points ndarrays of shape (n_rows, n_classes), optional
        Probabilities, where they are known.
    """

    right: Floats
    strata: Ints
    labels: tuple[Any, ...]
    outputs: list[Floats] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.strata)

    @cached_property
    def by_class(self) -> dict[int, Ints]:
        """Rows of each class that some row has."""
        return {int(number): np.flatnonzero(self.strata == number) for number in np.unique(self.strata)}

    @cached_property
    def log_losses(self) -> Floats:
        """Log-loss of each answer, shape (n_points, n_rows)."""
        assert self.outputs is not None  # only asked for where they are known
        of_class = np.array([outputs[np.arange(self.n_rows), self.strata] for outputs in self.outputs])
        losses: Floats = -np.log(np.maximum(of_class, MIN_PROBABILITY))
        return losses

    @property
    def names(self) -> list[str]:
        """Names of the measures."""
        of_outputs = (
            [] if self.outputs is None else ["log-loss", *(["AUC"] if len(self.by_class) > 1 else [])]
        )
        return ["accuracy", "balanced accuracy", *of_outputs, *self._recall_names]

    @property
    def _recall_names(self) -> list[str]:
        return [f"recall of {self.labels[number]!r}" for number in self.by_class]

    def under(self, counts: Floats, names: Sequence[str]) -> dict[str, Floats]:
        """Some of the measures under weights of shape (n_rows, n_weightings): (n_points, n_weightings) each."""
        total = counts.sum(axis=0)
        values = {"accuracy": self.right @ counts / total}
        if not {"accuracy", "log-loss", "AUC"}.issuperset(names):
            with np.errstate(invalid="ignore"):
                recalls = [
                    self.right[:, rows] @ counts[rows] / counts[rows].sum(axis=0)
                    for rows in self.by_class.values()
                ]
            values["balanced accuracy"] = np.nanmean(recalls, axis=0)
            values |= dict(zip(self._recall_names, recalls, strict=True))
        if "log-loss" in names:
            values["log-loss"] = self.log_losses @ counts / total
        if "AUC" in names:
            values["AUC"] = np.array([self._auc(outputs, counts) for outputs in self.outputs or ()])
        return {name: values[name] for name in names}

    def _auc(self, outputs: Floats, counts: Floats) -> Floats:
        """AUC of one point; of several classes the mean, each against the rest."""
        present = list(self.by_class)[1:] if len(self.by_class) == 2 == outputs.shape[1] else self.by_class
        areas = [_areas(self.strata == number, outputs[:, number], counts) for number in present]
        mean: Floats = np.nanmean(areas, axis=0)
        return mean


@dataclass(frozen=True, eq=False)
class NumberRows:
    """Rows that are answered with numbers: absolute errors (n_points, n_rows), and targets, in the user's unit."""

    errors: Floats
    y: Floats

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def names(self) -> list[str]:
        """Names of the measures."""
        return ["R2", *ERRORS]

    def under(self, counts: Floats, names: Sequence[str]) -> dict[str, Floats]:
        """Some of the measures under weights of shape (n_rows, n_weightings): (n_points, n_weightings) each."""
        total = counts.sum(axis=0)
        powers = {name: self.errors**power @ counts / total for name, power in ERRORS.items()}
        values = {name: mean_error(powers[name], power) for name, power in ERRORS.items()}
        centred = self.y - self.y.mean()
        spread = centred**2 @ counts / total - (centred @ counts / total) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            values["R2"] = np.where(spread > 0.0, 1.0 - powers["RMSE"] / spread, np.nan)
        return {name: values[name] for name in names}


def answered_rows(
    task: Task | None, first: Evidence, answers: Sequence[PointAnswers]
) -> ClassRows | NumberRows | None:
    """Answers to the rows of some evidence, at one or more points, as measures need them; None where unknown."""
    scores = [of_point.scores for of_point in answers if of_point.scores is not None]
    has_scores = len(scores) == len(answers)
    if task is not None and not isinstance(task, ClassTask):
        if not has_scores or first.target is None:
            return None
        errors = np.array([task.errors(first.target, of_point) for of_point in scores])
        return NumberRows(errors, np.asarray(task.decode(first.target)))
    strata: Ints | None = None if first.strata is None else first.strata.astype(np.intp)
    if strata is None and task is not None and first.target is not None:
        strata = task.strata(first.target)
    if strata is None or any(of_point.right is None for of_point in answers):
        return None
    labels = tuple(range(int(strata.max()) + 1)) if task is None else tuple(task.classes.tolist())
    outputs = [task.outputs(of_point) for of_point in scores] if task is not None and has_scores else None
    return ClassRows(
        np.array([of_point.right for of_point in answers], dtype=np.float64), strata, labels, outputs
    )


def measured_rows(points: Sequence[tuple[Evidence, Floats]], task: Task | None) -> ClassRows | NumberRows:
    """Answers to the rows at some points of systems; raises an error where the evidence allows no measure."""
    first = points[0][0]
    if first.unit is not None:
        raise InvalidInputError(
            "a frontier of rankings is scored by the measure of its queries already, and there is no other one. Its "
            "`score` is their mean, and `band` its interval."
        )
    rows = answered_rows(task, first, [evidence.answers_at(point) for evidence, point in points])
    if rows is None:
        reason = (
            "balanced accuracy and recall need the class of each row, and this evidence does not hold it"
            if task is None or isinstance(task, ClassTask)
            else "errors of numbers need the targets and the answers, which a fitted estimator does not keep"
        )
        raise InvalidInputError(
            f"{reason}. Ask the frontier of labelled rows: `frontier.on([evidence_of(estimator, X, y)])`."
        )
    return rows


def _areas(is_second: Bools, scores: Floats, counts: Floats) -> Floats:
    """Area under the ROC curve for each weighting: the share of pairs that are in order, ties counting half."""
    _, of_row = np.unique(scores, return_inverse=True)
    order = np.argsort(of_row, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(of_row[order]) > 0])
    second, first = (
        np.add.reduceat(np.where(side[:, None], counts, 0.0)[order], starts, axis=0)
        for side in (is_second, ~is_second)
    )
    below = np.cumsum(first, axis=0) - 0.5 * first
    with np.errstate(invalid="ignore"):
        areas: Floats = (second * below).sum(axis=0) / (second.sum(axis=0) * first.sum(axis=0))
    return areas


# -- recalls ---------------------------------------------------------------------------------------


def with_classes(evidence: Evidence, task: Any) -> Evidence:
    """The evidence with the class of every row and, where quality is another number, the answers that are right.

    One byte per row for up to 256 classes, and one more per row and place where answers are not just right or wrong.
    """
    if not isinstance(task, ClassTask) or evidence.target is None or evidence.scores is None:
        return evidence
    strata = task.strata(evidence.target).astype(np.min_scalar_type(len(task.classes) - 1))
    right = None
    if evidence.quality.dtype != bool:
        places = range(evidence.scores.shape[1])
        right = np.column_stack([task.best(evidence.scores[:, place]) == strata for place in places])
    return replace(evidence, strata=strata, right=right)


def recalls_at(evidence: Evidence, points: Floats, n_classes: int) -> Floats:
    """Recall of every class at some points, shape (n_points, n_classes); every row with its weight."""
    right = evidence.quality if evidence.right is None else evidence.right
    if evidence.strata is None or right.dtype != bool:
        raise InvalidInputError(
            "recall needs the class of each row that the operating points were evaluated on, and this evidence does "
            "not hold it. Use the evidence of a fitted classifier."
        )
    total = np.bincount(evidence.strata, evidence.weights, n_classes)
    hits, by_right = np.empty((len(points), n_classes)), replace(evidence, quality=right)
    for place, point in enumerate(points):
        _, _, is_right = by_right.at_point(point)
        hits[place] = np.bincount(evidence.strata, evidence.weights * is_right, n_classes)
    # A class without rows among these is never missed.
    recalls: Floats = np.divide(hits, total, out=np.ones_like(hits), where=total > 0)
    return recalls


def check_floors(min_recall: Any, classes: Labels) -> dict[int, float]:
    """Least recall by number of the class, from a dict by label, checked."""
    if not isinstance(min_recall, Mapping) or not min_recall:
        raise InvalidParameterError(
            "min_recall",
            f"must be a dict from labels to the least share of their rows to be found, such as "
            f"{{{classes.tolist()[-1]!r}: 0.9}}; got {min_recall!r}.",
        )
    labels, floors = classes.tolist(), {}
    for label, floor in min_recall.items():
        if label not in labels:
            raise InvalidParameterError(
                "min_recall", f"names {label!r}, which is not one of the labels {labels}."
            )
        if not isinstance(floor, int | float | np.number) or isinstance(floor, bool) or not 0 <= floor <= 1:
            raise InvalidParameterError("min_recall", f"of {label!r} must lie in [0, 1]; got {floor!r}.")
        floors[labels.index(label)] = float(floor)
    return floors


def within_floors(
    policy: Policy,
    recalls: Floats,
    floors: Mapping[int, float],
    budget: float | None,
    price: float | None,
    classes: Labels,
    *,
    mix: bool = True,
) -> Policy:
    """The policy at the best point, or ``mix`` of two, within a budget whose recalls reach the floors.

    Without a budget it is the cheapest one, or where mistakes have a ``price`` the one of least total cost.

    Parameters
    ----------
    recalls : ndarray of shape (n_points, n_classes)
        Recall of every class at the points of the policy.
    """
    mixes = _corners(policy, recalls, floors, budget)
    mixes = mixes if mix else mixes[mixes[:, 1] == 0.0]
    lower, share = mixes[:, 0].astype(np.intp), mixes[:, 1]
    upper = np.minimum(lower + 1, len(policy) - 1)
    cost = (1 - share) * policy.cost[lower] + share * policy.cost[upper]
    score = (1 - share) * policy.score[lower] + share * policy.score[upper]
    reached = (1 - share)[:, None] * recalls[lower] + share[:, None] * recalls[upper]
    affordable = np.ones(len(cost), dtype=bool) if budget is None else cost <= budget * (1 + SLACK)
    if not affordable.any():
        policy.within(float(budget or 0.0))  # refuses, naming the cost of the cheapest point
    least = np.array(list(floors.values()))
    limited = reached[:, list(floors)]
    allowed = np.flatnonzero(affordable & (limited >= least - SLACK).all(axis=1))
    if not len(allowed):
        raise _out_of_reach(limited[affordable], cost[affordable], floors, budget, classes)
    wanted = -score if budget is not None else cost if price is None else cost - score
    best = allowed[np.lexsort((cost[allowed], wanted[allowed]))[0]]
    return policy.at(lower[best], upper[best], share[best])


def _corners(policy: Policy, recalls: Floats, floors: Mapping[int, float], budget: float | None) -> Floats:
    """Candidates for the best mix, each a point and a share of the next: points, the budget, and the floors."""
    mixes = [(float(place), 0.0) for place in range(len(policy))]
    for place in range(len(policy) - 1):
        limits = [(policy.cost, budget)] if budget is not None else []
        limits += [(recalls[:, number], floor) for number, floor in floors.items()]
        for values, limit in limits:
            step = float(values[place + 1] - values[place])
            share = (limit - float(values[place])) / step if step else 0.0
            if 0.0 < share < 1.0:
                mixes.append((float(place), share))
    return np.array(mixes)


def _out_of_reach(
    recalls: Floats, cost: Floats, floors: Mapping[int, float], budget: float | None, classes: Labels
) -> InvalidInputError:
    """Error naming the point that misses the floors by least."""
    short = (np.array(list(floors.values())) - recalls).max(axis=1)
    nearest = int(np.lexsort((cost, short))[0])
    labels = [classes.tolist()[number] for number in floors]
    wanted = ", ".join(f"{label!r}: {floor:g}" for label, floor in zip(labels, floors.values(), strict=True))
    reached = ", ".join(
        f"{label!r}: {recall:.4g}" for label, recall in zip(labels, recalls[nearest], strict=True)
    )
    within = "" if budget is None else f" within a budget of {budget!r}"
    return InvalidParameterError(
        "min_recall",
        f"of {{{wanted}}} is not reached{within}: the point that comes nearest has {{{reached}}} at a mean cost "
        f"of {float(cost[nearest]):.6g}, on rows that its models have not seen. Ask for less, raise the budget, or fit "
        f"with a larger class_weight, or with a loss in which missing that class costs more.",
    )


# -- bootstrap -------------------------------------------------------------------------------------


_CELLS = 2**18
"""Rows times draws in one block: 2 MB of counts, which fit into a processor's cache."""


def check_bootstrap(level: float, n_boot: int) -> None:
    """Check that the level is in (0, 1), and that there are enough draws for its tails."""
    if not 0 < level < 1:
        raise InvalidInputError(
            f"level must lie between 0 and 1; got {level!r}. It is the share a band holds."
        )
    min_boot = int(np.ceil(2 / (1 - level)))
    if n_boot < min_boot:
        raise InvalidInputError(
            f"n_boot must be at least {min_boot} for a band of level {level:g}: with fewer draws none falls outside "
            f"it; got {n_boot!r}."
        )


def tails(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Percentile interval of the draws along the last axis; reorders the draws in place."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=-1, overwrite_input=True)
    return low, high


def resampled(
    evidence: Sequence[Evidence], source: Ints, thresholds: Floats, *, n_boot: int, seed: int
) -> tuple[Floats, Floats]:
    """Mean cost and mean score of each point under each draw, each of shape (n_points, n_boot).

    ``thresholds`` has one line per point, as long as the system with the most stages needs.
    """
    averages = []
    for place in np.unique(source):
        points = np.flatnonzero(source == place)
        system = evidence[place]
        averages.append((points, system.averages(thresholds[points, : system.n_parameters])))
    cost, score = np.empty((2, len(source), n_boot))
    for draws, counts in draws_of(evidence[0].n_units, n_boot, seed):
        for points, average in averages:
            means = average.under(counts)
            cost[points, draws], score[points, draws] = means.cost, means.score
    return cost, score


def draws_of(n_rows: int, n_boot: int, seed: int) -> Iterator[tuple[slice, Floats]]:
    """Counts of each row in each draw, of shape (n_rows, draws in the block), and the place of the block."""
    rng = np.random.default_rng(seed)
    size = max(1, _CELLS // n_rows)
    for start in range(0, n_boot, size):
        width = min(size, n_boot - start)
        taken = rng.integers(0, n_rows, size=(n_rows, width))
        taken *= width
        taken += np.arange(width)
        counts = np.bincount(taken.reshape(-1), minlength=n_rows * width)
        yield slice(start, start + width), counts.reshape(n_rows, width).astype(np.float64)
