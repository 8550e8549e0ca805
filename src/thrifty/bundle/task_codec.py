"""What a file says about answers: labels and what mistakes between them cost, numbers, or the order of documents."""

from dataclasses import replace
from typing import Any

import numpy as np

from thrifty.arrays import Labels
from thrifty.bundle.fields import Fields, Packer
from thrifty.errors import InvalidInputError
from thrifty.tasks.classes import classification
from thrifty.tasks.mistakes import CostMatrix, read_loss
from thrifty.tasks.ranking import GRADIENTS, MEASURES, RankingTask
from thrifty.tasks.regression import RegressionTask
from thrifty.tasks.task import Task

__all__ = ["MOST_CLASSES", "pack_loss", "pack_task", "unpack_classes", "unpack_task"]

MOST_CLASSES = 100_000


def pack_task(task: Task, packer: Packer) -> dict[str, Any]:
    """What an answer is, where the labels do not say it."""
    if not isinstance(task, RegressionTask):
        return {}
    numbers = {name: packer.value(getattr(task, name)) for name in ("centre", "spread", "tolerance")}
    if isinstance(task, RankingTask):
        words = {"gradients": task.gradients, "measure": task.measure, "k": task.k}
        return {"task": {"kind": "order", **words, **numbers}}
    if task.kind == "pinball":
        numbers["quantile"] = packer.value(task.quantile)
    return {"task": {"kind": "number", "error": task.kind, **numbers}}


def pack_loss(task: Task, packer: Packer) -> Any:
    """What answers lose, as it was given: a name, or a matrix of costs."""
    mistakes = getattr(task, "mistakes", None)
    if mistakes is None:
        return "error"
    return packer.floats(mistakes.costs) if isinstance(mistakes, CostMatrix) else mistakes.kind


def unpack_task(fields: Fields) -> Task:
    """What an answer is: a number, where the file says so, else one of its labels."""
    if not fields.has("task"):
        return _unpack_labels_task(fields)
    part = fields.inside("task")
    kind = part.text("kind")
    if kind not in ("number", "order"):
        raise part.refusal("kind", "be number or order", kind)
    centre, spread, tolerance = part.number("centre"), part.number("spread"), part.number("tolerance")
    if not (np.isfinite([centre, spread, tolerance]).all() and spread > 0 and tolerance >= 0):
        raise part.refusal("spread", "be positive, and all numbers finite", spread)
    if kind == "order":
        return _unpack_ranking(part, RankingTask("squared", centre, spread, tolerance))
    error = part.text("error")
    if error not in ("squared", "absolute", "pinball"):
        raise part.refusal("error", "be squared, absolute or pinball", error)
    if error == "pinball":
        quantile = part.number("quantile")
        if not 0.0 < quantile < 1.0:
            raise part.refusal("quantile", "lie between 0 and 1", quantile)
        return RegressionTask("pinball", centre, spread, tolerance, quantile)
    return RegressionTask("squared" if error == "squared" else "absolute", centre, spread, tolerance)


def _unpack_ranking(part: Fields, task: RankingTask) -> RankingTask:
    """The same gains, with what trees lower and how an order is judged."""
    gradients, measure, k = part.text("gradients"), part.text("measure"), part.raw("k")
    if gradients not in GRADIENTS:
        raise part.refusal("gradients", f"be one of {', '.join(GRADIENTS)}", gradients)
    if measure not in MEASURES:
        raise part.refusal("measure", f"be one of {', '.join(MEASURES)}", measure)
    if type(k) is not int or k < 1:
        raise part.refusal("k", "be a whole number of at least 1", k)
    return replace(task, gradients=gradients, measure=measure, k=k)


def _unpack_labels_task(fields: Fields) -> Task:
    """The task of some labels, and what answers lose; files of earlier versions count errors."""
    task = classification(unpack_classes(fields))
    if not fields.has("loss"):
        return task
    loss, n_classes = fields.value("loss"), len(task.classes)
    if not isinstance(loss, str):
        loss = fields.array("loss", np.float64, (n_classes, n_classes))
    try:
        return replace(task, mistakes=read_loss(loss, task.classes))
    except InvalidInputError as error:
        raise fields.refusal("loss", "be a loss", error) from None


def unpack_classes(fields: Fields) -> Labels:
    """Distinct labels, two of them or more."""
    classes = fields.value("classes")
    if not isinstance(classes, np.ndarray) or classes.ndim != 1 or not 2 <= len(classes) <= MOST_CLASSES:
        raise fields.refusal("classes", f"be from two to {MOST_CLASSES} labels", classes)
    plain = all(isinstance(label, str | int | float | np.generic) for label in classes.tolist())
    if not plain or len(set(classes.tolist())) < len(classes):
        raise fields.refusal("classes", "be distinct labels", classes[:5].tolist())
    return classes
