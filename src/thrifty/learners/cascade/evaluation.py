"""Out-of-fold evaluation of stages: calibration, the blend with the full model, gates."""

from dataclasses import dataclass, replace

import numpy as np

from thrifty.arrays import Floats, Numbers
from thrifty.engine.evidence.evidence import Evidence
from thrifty.learners.cascade.gates import LearnedGates, RowNodes, choose_gates, scores_on_served_scale
from thrifty.learners.cascade.problem import CascadeProblem, calibrate, stage_evidence, z_score

__all__ = [
    "MAX_LOG_RATIO",
    "MIN_Z_OF_WARNING",
    "StageEvaluation",
    "choose_blend",
    "evaluate_stages",
    "is_worth_asking",
    "overconfidence_ratio",
    "paired_z_score",
]

MAX_LOG_RATIO = 0.25
"""Largest logarithm of the overconfidence ratio."""

MIN_Z_OF_WARNING = 3.0
"""z-score by which a stage must beat the full model before a fit warns."""


@dataclass(frozen=True, eq=False)
class StageEvaluation:
    """Out-of-fold evidence of stages, before operating points are chosen."""

    calibrations: list[Floats]
    blend: Floats
    scores: Floats
    answer: Floats
    belief: Floats
    evidence: Evidence
    loss: Floats
    gates: LearnedGates | None

    @property
    def candidate(self) -> tuple[Evidence, Floats, Numbers]:
        """Evidence, loss and quality for comparisons of structures: quality by labels, as each has its own belief."""
        return self.evidence, self.loss, self.evidence.quality


def evaluate_stages(
    problem: CascadeProblem,
    raw: Floats,
    served: Floats,
    ratio: Floats,
    costs: Floats,
    row_nodes: RowNodes | None,
) -> StageEvaluation:
    """Calibrate held-out scores, blend the last with the full model, and learn gates.

    Parameters
    ----------
    raw : ndarray of shape (n_rows, n_stages, n_scores)
        Held-out scores.
    served : ndarray of shape (n_rows, n_tied, n_scores)
        Scores of the served model at the first stages, at which rows form a few groups of identical inputs.
    ratio : ndarray of shape (n_stages,)
        Overconfidence ratio of each stage.
    costs : ndarray
        Cost of rows at each stage and, last, at the full model.
    row_nodes : RowNodes, optional
        Columns that rows hold at each stage; None learns no gates.
    """
    task = problem.task
    calibrations, scores = calibrate(task, raw, problem.y, problem.weight)
    blend, answer, belief = choose_blend(problem, scores[:, -1])
    evidence, loss = stage_evidence(problem, costs, scores, answer, belief)
    full_quality = task.quality_of_scores(problem.y, problem.full_scores)
    evidence = replace(evidence, full_quality=full_quality, full_scores=problem.full_scores)
    if not is_worth_asking(evidence.quality, full_quality, problem.weight):
        loss[:, -1] = 1.0 + loss.max()
    settled = scores_on_served_scale(problem, served, calibrations, scores, ratio)
    doubts = np.column_stack([task.uncertainty(settled[:, stage]) for stage in range(scores.shape[1])])
    evidence = replace(evidence, gate=doubts)
    gates = None
    if row_nodes is not None:
        problem.progress("learning gates", 0, 1)
        gates = choose_gates(problem, row_nodes, evidence, loss, settled, served.shape[1])
        problem.progress("learning gates", 1, 1)
    if gates is not None:
        evidence = replace(evidence, gate=gates.held_out)
    return StageEvaluation(calibrations, blend, scores, answer, belief, evidence, loss, gates)


def overconfidence_ratio(own: Floats, of_copies: Floats) -> Floats:
    """Ratio of in-sample margins of the served model to those of the models of the folds, at each stage.

    The served model is grown on more rows, so that penalties shrink its leaves less: its margins are larger, on its
    training rows and on new ones alike. Only margins on training rows are known of both. A ratio below one is raised
    to one: with more rows, trees follow single training rows less, which lowers margins there and nowhere else. The
    ratio changes slowly from stage to stage and is noisy on few rows, so that neighbouring stages are averaged.
    """
    grown = (own > 0) & (of_copies > 0)
    logs = np.where(grown, np.log(np.where(grown, own, 1.0) / np.where(grown, of_copies, 1.0)), 0.0)
    around = np.convolve(np.r_[logs[:1], logs, logs[-1:]], np.full(3, 1 / 3), "valid")
    ratio: Floats = np.exp(np.clip(around, 0.0, MAX_LOG_RATIO))
    return ratio


def choose_blend(problem: CascadeProblem, last: Floats) -> tuple[Floats, Floats, Floats]:
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
    task, full = problem.task, problem.full_scores
    belief = np.empty_like(last)
    for fold in problem.folds:
        rest = np.ones(len(last), dtype=bool)
        rest[fold] = False
        weights = task.blend_weights(last[rest], full[rest], problem.y[rest], problem.weight[rest])
        belief[fold] = task.blended(weights, last[fold], full[fold])
    if _is_better(problem, belief, full):
        return task.blend_weights(last, full, problem.y, problem.weight), belief, belief
    return task.full_alone, full, belief


def is_worth_asking(quality: Numbers, full_quality: Numbers, weight: Floats) -> bool:
    """Whether the answer with the full model is better than that of the last stage, which mostly holds all columns.

    Where the full model by itself is clearly worse than the last stage, the blend must be clearly better: a call that
    costs nothing extra would otherwise be made for a few lucky rows.

    Parameters
    ----------
    quality : ndarray of shape (n_rows, n_stages + 1)
        Quality of the answer of every stage and, last, of the answer with the full model.
    full_quality : ndarray of shape (n_rows,)
        Quality of the full model's own answer.
    weight : ndarray of shape (n_rows,)
        Weights of rows, used where quality has more than two values.
    """
    blend, last = quality[:, -1], quality[:, -2]
    return paired_z_score(blend, last, weight) > (
        1.0 if paired_z_score(last, full_quality, weight) > MIN_Z_OF_WARNING else 0.0
    )


def paired_z_score(one: Numbers, other: Numbers, weight: Floats) -> float:
    """z-score of the mean difference in quality of two models on the same rows; McNemar's for right and wrong."""
    if one.dtype != bool and not _is_two_valued(one, other):  # errors of different size, not right or wrong
        return z_score(np.asarray(one - other, dtype=np.float64), weight)
    gains, losses = int((one > other).sum()), int((other > one).sum())
    return float((gains - losses) / np.sqrt(max(gains + losses, 1)))


def _is_two_valued(one: Numbers, other: Numbers) -> bool:
    both = np.concatenate([one, other])
    return bool(np.isin(both, [both.min(), both.max()]).all())


def _is_better(problem: CascadeProblem, one: Floats, other: Floats) -> bool:
    task, loss, weight = problem.task, problem.task.loss(problem.y), problem.weight
    losses = [float(np.average(loss.values(scores), weights=weight)) for scores in (one, other)]
    quality = [
        float(np.average(task.quality_of_scores(problem.y, scores), weights=weight))
        for scores in (one, other)
    ]
    return losses[0] < losses[1] - 1e-9 and quality[0] >= quality[1] - 1e-12
