"""Out-of-fold evaluation of stages, and the one comparison by which a fit decides between candidates.

A :class:`Candidate` has, for rows that it has not seen, the quality, the cost and the expected loss of an answer at
every place. ``compare`` is the z-score of a mean difference on the same rows. Decisions differ only in which value of a
row counts: the quality of one answer, minus the mean loss of the stages, or the mean quality over budgets, where
operating points are chosen on one half of the folds and counted on the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Ints, Numbers
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.evidence.thresholds import MAX_TIED_GROUPS, sweep_prices
from thrifty.engine.tasks.task import Task
from thrifty.engine.trees import TreeEnsemble
from thrifty.engine.walk.policy import Policy
from thrifty.learners.cascade.problem import AnsweredProblem, TrainingSet
from thrifty.rows import uniforms

LEVEL = 0.5
"""z-score up to which two candidates are level (of 0, 0.5, 1 and 2, with test rows in view)."""

CLEARLY_BETTER = 2.0
"""z-score by which another structure, a learned gate or, on few rows, a size must be better (no command chose it; what
it lets pass: ``benchmarks/small_budgets.py switch``, and ``benchmarks/choices.py penalties`` of 0.3)."""

BEYOND_DOUBT = 3.0
"""z-score that leaves no question: one fold suffices for a size (tables of ``benchmarks/small_budgets.py`` with 300 to
2,000 rows: the sizes of all folds), and a fit warns that a stage beats the full model."""

N_BUDGETS, N_PRICES = 25, 30
"""Budgets of a comparison, each a constant factor more than the one before, and prices of its operating points (no
command chose them)."""

MAX_LOG_RATIO = 0.25
"""Largest logarithm of the overconfidence ratio (no command chose it; the ratio: ``choices.py stretch`` of 0.3)."""

ROWS_PER_TIED_GROUP = 20
"""Least mean size of those groups: on smaller ones the served model would overfit (no command chose it)."""


def compare(values: Numbers, others: Numbers, weight: Floats) -> float:
    """z-score of the mean by which values of rows exceed others of the same rows; McNemar's for right and wrong.

    The standard error is that of values which are as good in the mean. A row of weight two counts as two rows. Rounded,
    as the last bits of sums must decide nothing.
    """
    lead: Floats = np.subtract(values, others, dtype=np.float64)
    error = float(np.sqrt(np.average(np.square(lead), weights=weight) / weight.sum()))
    return round(float(np.average(lead, weights=weight)) / max(error, 1e-9), 6)


@dataclass(frozen=True, eq=False)
class StageScores:
    """Scores and costs of the rows of a fit at every stage.

    Attributes
    ----------
    out_of_fold : ndarray of shape (n_rows, n_stages, n_scores)
        Scores by models that have not seen the row.
    tied : ndarray of shape (n_rows, n_tied, n_scores)
        Scores of the served model at the first stages, at which rows form a few groups of identical inputs.
    ratio : ndarray of shape (n_stages,)
        Overconfidence ratio of each stage.
    costs : ndarray of shape (n_stages + 1,) or (n_rows, n_stages + 1)
        Cost of rows at each stage and, last, at the full model.
    sets : sequence of ndarray, optional
        As of ``Candidate``.
    by_resource : ndarray of shape (n_stages + 1, n_resources) or (n_rows, n_stages + 1, n_resources), optional
        Costs in each of several resources.
    rounds : ndarray of shape (n_stages + 1, n_stages + 1, n_resources), optional
        As of ``Evidence``.
    """

    out_of_fold: Floats
    tied: Floats
    ratio: Floats
    costs: Floats
    sets: Sequence[Ints] | None = None
    by_resource: Floats | None = None
    rounds: Floats | None = None

    def take(self, rows: Ints) -> "StageScores":
        """Some of the rows."""
        return replace(
            self,
            out_of_fold=self.out_of_fold[rows],
            tied=self.tied[rows],
            costs=self.costs if self.costs.ndim == 1 else self.costs[rows],
            by_resource=self.by_resource
            if self.by_resource is None or self.by_resource.ndim == 2
            else self.by_resource[rows],
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to serve, on the rows of a fit that are held out.

    Attributes
    ----------
    evidence : Evidence
        Gates, quality and costs at every place.
    loss : ndarray of shape (n_rows, n_stages + 1)
        Expected loss of an answer at every place, by which thresholds are chosen.
    calibrations : list of ndarray
        Calibration of each stage.
    blend : ndarray
        How the last stage's scores are blended with the full model's.
    served_scores : ndarray of shape (n_rows, n_stages, n_scores), optional
        Calibrated scores on the scale of the served model, which gates read.
    sets : sequence of ndarray, optional
        Columns that rows hold at each stage; None where no gate can be learned from them.
    score : ndarray of shape (n_rows, n_stages + 1), optional
        Quality by which operating points are chosen; None is that of the evidence, by labels.
    n_tied : int
        Leading stages whose scores and gates are those of the served model.
    grow_gates : callable, optional
        Grows the learned gate of each stage; None where the uncertainty of the task decides.
    """

    evidence: Evidence
    loss: Floats
    calibrations: list[Floats]
    blend: Floats
    served_scores: Floats | None = None
    sets: Sequence[Ints] | None = None
    score: Numbers | None = None
    n_tied: int = 0
    grow_gates: Callable[[], tuple[TreeEnsemble, ...]] | None = None

    def policy(self, rows: Ints | None = None) -> Policy:
        """Operating points by some of the rows, or all."""
        evidence, loss = self.evidence, self.loss
        score = evidence.quality if self.score is None else self.score
        if rows is not None:
            evidence, loss, score = evidence.take(rows), loss[rows], score[rows]
        return sweep_prices(evidence, loss, score, n_prices=N_PRICES)

    def quality_over_budgets(self, budgets: Floats, chosen_on: Ints, counted_on: Ints) -> Floats:
        """Mean quality of each counted row over budgets, by operating points (or mixes) of the other rows."""
        policy, counted = self.policy(chosen_on), self.evidence.take(counted_on)
        points = [counted.at_point(thresholds) for thresholds in policy.thresholds]
        quality = np.array([of_rows for _, _, of_rows in points], dtype=np.float64)
        cost = np.array([np.average(paid, weights=counted.weights) for _, paid, _ in points])
        # Budgets are compared with the cost on the rows that are counted.
        cost = np.maximum.accumulate(cost)
        place = np.interp(budgets, cost, np.arange(len(cost)))
        share = np.zeros(len(cost))
        lower = np.floor(place).astype(int)
        np.add.at(share, lower, 1 - (place - lower))
        np.add.at(share, np.minimum(lower + 1, len(cost) - 1), place - lower)
        return share @ quality / len(budgets)


def compare_over_budgets(problem: AnsweredProblem, candidate: Candidate, other: Candidate) -> float:
    """z-score by which a candidate is ahead: points chosen on one half of the folds and counted on the other."""
    problem = problem.evaluated
    costs = [each.evidence.cost for each in (other, candidate)]
    costs = [cost if cost.ndim == 1 else cost.mean(axis=0) for cost in costs]
    positive = np.concatenate(costs)
    if not (positive > 0).any():
        return 0.0
    dearest = float(max(cost[-1] for cost in costs))
    budgets = np.geomspace(float(positive[positive > 0].min()), dearest, N_BUDGETS)
    halves = [np.concatenate(problem.folds[half::2]) for half in (0, 1)]
    quality, others = np.zeros((2, problem.n_rows))
    for chosen_on, counted_on in (halves, halves[::-1]):
        quality[counted_on] = candidate.quality_over_budgets(budgets, chosen_on, counted_on)
        others[counted_on] = other.quality_over_budgets(budgets, chosen_on, counted_on)
    return compare(quality, others, problem.weight)


def evaluate_stages(problem: AnsweredProblem, stages: StageScores) -> Candidate:
    """Calibrate out-of-fold scores and blend the last with the full model; gates are the uncertainty of the task.

    The candidate has the rows that some fold holds out.
    """
    if problem.evaluated is not problem:
        problem, stages = problem.evaluated, stages.take(problem.evaluated_rows)
    task = problem.task
    calibrations, scores = calibrate(problem, stages.out_of_fold)
    blend, answer, belief = choose_blend(problem, scores[:, -1])
    evidence, loss = stage_evidence(problem, stages.costs, scores, answer, belief)
    full_quality = task.quality_of_scores(problem.y, problem.full_scores)
    if not is_worth_asking(evidence.quality, full_quality, problem.weight):
        loss[:, -1] = 1.0 + loss.max()
    served_scores = scores_on_served_scale(task, stages, calibrations, scores)
    gate = np.column_stack([task.uncertainty(served_scores[:, stage]) for stage in range(scores.shape[1])])
    evidence = replace(evidence, gate=gate, full_quality=full_quality, full_scores=problem.full_scores)
    evidence = replace(evidence, costs=stages.by_resource, rounds=stages.rounds)
    n_tied = stages.tied.shape[1]
    return Candidate(evidence, loss, calibrations, blend, served_scores, sets=stages.sets, n_tied=n_tied)


def calibrate(rows: TrainingSet, scores: Floats) -> tuple[list[Floats], Floats]:
    """Calibration of each stage, and the calibrated scores, shape (n_rows, n_stages, n_scores)."""
    calibrations, calibrated = [], np.empty_like(scores)
    for stage in range(scores.shape[1]):
        calibrations.append(rows.task.calibrate(scores[:, stage], rows.y, rows.weight))
        calibrated[:, stage] = rows.task.calibrated(scores[:, stage], calibrations[-1])
    return calibrations, calibrated


def choose_blend(problem: AnsweredProblem, last: Floats) -> tuple[Floats, Floats, Floats]:
    """Choose whether the full model answers alone or blended with the last stage.

    They are blended if, on folds that the weights were not fitted on, the blend has a smaller loss and at least the
    same quality.

    Returns
    -------
    weights : ndarray
        The blend.
    answer, belief : ndarray of shape (n_rows, n_scores)
        Held-out scores of that answer, and of the blend whether or not it is the answer.
    """
    task, full, y, weight = problem.task, problem.full_scores, problem.y, problem.weight
    belief = np.empty_like(last)
    for fold in problem.folds:
        rest = np.ones(len(last), dtype=bool)
        rest[fold] = False
        belief[fold] = task.blended(
            task.blend_weights(last[rest], full[rest], y[rest], weight[rest]), last[fold], full[fold]
        )
    fall_of_loss = compare(problem.loss.values(full), problem.loss.values(belief), weight)
    quality, of_full = task.quality_of_scores(y, belief), task.quality_of_scores(y, full)
    if fall_of_loss > 0.0 and compare(quality, of_full, weight) >= 0.0:
        return task.blend_weights(last, full, y, weight), belief, belief
    return task.full_alone, full, belief


def stage_evidence(
    problem: AnsweredProblem, costs: Floats, scores: Floats, answer: Floats, belief: Floats
) -> tuple[Evidence, Floats]:
    """Evidence of every stage and, last, of the full model (blended or not), on held-out rows, and expected losses.

    The expected loss of an answer is its probability of being wrong by the best available belief, not whether the row's
    label contradicts it. Both have the same mean, but the first varies far less: thresholds fitted to a few lucky
    labels would not generalise.

    Parameters
    ----------
    costs : ndarray of shape (n_stages + 1,) or (n_rows, n_stages + 1)
        Cost of a row at each stage and, last, at the full model.
    scores : ndarray of shape (n_rows, n_stages, n_scores)
        Calibrated scores of the stages.
    answer, belief : ndarray of shape (n_rows, n_scores)
        Scores of the answer with the full model, and of the best belief.
    """
    task = problem.task
    places = [*(scores[:, stage] for stage in range(scores.shape[1])), answer]
    quality: Numbers = np.column_stack([task.quality_of_scores(problem.y, place) for place in places])  # type: ignore[assignment]  # numpy widens a union
    loss = np.column_stack([task.expected_loss(place, belief) for place in places])
    gate = np.column_stack([task.uncertainty(place) for place in places[:-1]])
    evidence = Evidence(
        gate,
        quality,
        costs,
        weight=problem.weight,
        target=problem.y,
        scores=np.stack(places, axis=1),
        tolerance=task.tolerance,
    )
    return evidence, loss


def is_worth_asking(quality: Numbers, full_quality: Numbers, weight: Floats) -> bool:
    """True if the answer with the full model is better than that of the last stage, which mostly holds all columns.

    Where the full model by itself is worse than the last stage beyond doubt, the blend must be better by more than
    noise: a call that costs nothing extra would otherwise be made for a few lucky rows.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_stages + 1)
        Quality of the answer of every stage and, last, of the answer with the full model.
    full_quality : ndarray of shape (n_rows,)
        Quality of the full model's own answer.
    weight : ndarray of shape (n_rows,)
        Weights of rows.
    """
    blend, last = quality[:, -1], quality[:, -2]
    is_worse = compare(last, full_quality, weight) > BEYOND_DOUBT
    return compare(blend, last, weight) > (CLEARLY_BETTER / 2 if is_worse else 0.0)


def overconfidence_ratio(served: Floats, of_folds: Floats) -> Floats:
    """Ratio of in-sample margins of the served model to those of the models of the folds, at each stage.

    The served model is grown on more rows, so that penalties shrink its leaves less: its margins are larger, on its
    training rows and on new ones alike. Only margins on training rows are known of both. A ratio below one is raised
    to one: with more rows, trees follow single training rows less, which lowers margins there and nowhere else. The
    ratio changes slowly from stage to stage and is noisy on few rows, so that neighbouring stages are averaged.
    """
    grown = (served > 0) & (of_folds > 0)
    logs = np.where(grown, np.log(np.where(grown, served, 1.0) / np.where(grown, of_folds, 1.0)), 0.0)
    around = np.convolve(np.r_[logs[:1], logs, logs[-1:]], np.full(3, 1 / 3), "valid")
    return np.exp(np.clip(around, 0.0, MAX_LOG_RATIO))


def n_tied_stages(rows: TrainingSet, sets: Sequence[Ints]) -> int:
    """Number of leading stages at which rows form a few large groups of identical inputs."""
    max_groups = min(MAX_TIED_GROUPS, rows.n_rows // ROWS_PER_TIED_GROUP)
    for stage, columns in enumerate(sets):
        if len(np.unique(uniforms(rows.table.codes[:, rows.table.places(columns)]))) > max_groups:
            return stage
    return len(sets)


def scores_on_served_scale(
    task: Task, stages: StageScores, calibrations: Sequence[Floats], scores: Floats
) -> Floats:
    """Calibrated scores times the overconfidence ratio; at tied stages those of the served model.

    Scores of regression, which carry no uncertainty, are not scaled.
    """
    served = scores * stages.ratio[:, None] if task.has_uncertainty else scores.copy()
    for stage in range(stages.tied.shape[1]):
        served[:, stage] = task.calibrated(stages.tied[:, stage], calibrations[stage])
    return served
