"""Which task some labels pose."""

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from thrifty.arrays import Labels
from thrifty.errors import InvalidInputError
from thrifty.tasks.binary import BinaryTask
from thrifty.tasks.mistakes import Mistakes
from thrifty.tasks.multiclass import MulticlassTask

__all__ = ["classification", "classification_of", "one_class"]


def classification(classes: Labels, mistakes: Mistakes | None = None) -> BinaryTask | MulticlassTask:
    """The task of answering with one of these labels, which are two or more, where answers lose so much."""
    return BinaryTask(classes, mistakes) if len(classes) == 2 else MulticlassTask(classes, mistakes)


def classification_of(y: Any, *, several: bool = True) -> BinaryTask | MulticlassTask:
    """The task that some labels pose, or a refusal where there are too few of them, or more than two of several."""
    try:
        check_classification_targets(y)
        classes = np.unique(y)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must hold distinct labels of one kind: {error}") from error
    if len(classes) > 2 and not several:
        raise InvalidInputError(
            f"Only binary classification is supported. The type of the target is {type_of_target(y)}, "
            f"with {len(classes)} classes. Make it one class against the rest, or use BudgetedClassifier, which "
            f"answers with any number of classes."
        )
    if len(classes) < 2:
        raise one_class(classes)
    return classification(classes)


def one_class(classes: Labels) -> InvalidInputError:
    """The refusal of labels that leave nothing to learn."""
    return InvalidInputError(
        f"y must hold two classes or more; got 1 class, {classes.tolist()}. A classifier can't train on one class."
    )
