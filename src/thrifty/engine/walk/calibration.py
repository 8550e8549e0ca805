"""Calibration of what models say about their own answers: evidence becomes the probability that an answer is right."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Floats, Ints
from thrifty.errors import InvalidInputError

UNPARSED, UNCOMPARED = -1, -2
"""Codes of an answer that could not be parsed, and of one that is taken but not compared with others."""

_FORMS = {0: "one number for each answer", 1: "a predicted number"}
_SUM_TOLERANCE = 0.02
"""How far class probabilities may be from a sum of 1: log-probabilities in half precision are."""


def class_probabilities(given: Any, name: str = "evidence") -> Floats:
    """Class probabilities along the last axis, from probabilities or their logarithms; NaN where one is missing.

    A last axis of one holds numbers that were predicted, which stay as they are.
    """
    chance = np.asarray(given, dtype=np.float64)
    if chance.shape[-1:] == (1,):
        return chance
    if (chance < 0.0).any():
        chance = np.exp(chance)
    total = chance.sum(axis=-1)  # NaN where one is missing, which stays
    wrong = np.abs(total - 1.0) > _SUM_TOLERANCE
    if wrong.any():
        raise InvalidInputError(
            f"{name} with classes must hold class probabilities, which add up to 1, or their logarithms; got a sum of "
            f"{total[wrong][0]:.3g}. Give one number for each answer instead."
        )
    result: Floats = chance / total[..., None]
    return result


@dataclass(frozen=True, eq=False)
class Calibration:
    """Monotone maps from the evidence of each model to the probability that its answer is right.

    Attributes
    ----------
    knots : tuple of ndarray of shape (2, n_knots)
        For each model evidence, rising, and the probability there; linear in between and constant outside. Of
        predicted numbers the expected quality there, which need not be monotone.
    missing : ndarray of shape (n_models,)
        Probability where evidence is missing.
    n_classes : int
        Evidence is a probability for each of so many classes, or with 1 a predicted number; 0 where it is a confidence.
    missed : ndarray of shape (n_models, n_classes), optional
        How often a model that is wrong misses each class, times the share of what its largest probability leaves that
        goes by it; the rest of what is left keeps the model's proportions.
    """

    knots: tuple[Floats, ...]
    missing: Floats
    n_classes: int = 0
    missed: Floats | None = None

    def of_numbers(self, model: int, evidence: Floats) -> Floats:
        """Probability that the answers of a model are right, by one number for each."""
        right = np.interp(evidence, *self.knots[model])
        confidence: Floats = np.where(np.isfinite(evidence), right, self.missing[model])
        return confidence

    def of_classes(self, model: int, chance: Floats) -> tuple[Floats, Floats, Ints]:
        """Confidence, calibrated class probabilities and classes of the answers of a model.

        The largest probability is calibrated. What it leaves goes to the other classes by their proportions, and by
        how often the model misses each: a model that was not trained on a class does not rule it out.
        """
        if self.n_classes == 1:
            return self.of_numbers(model, chance[:, 0]), chance, np.full(len(chance), UNCOMPARED)
        # A sum over the classes was the divisor: all of them are missing, or none.
        missing, rows = np.isnan(chance[:, 0]), np.arange(len(chance))
        answer = chance.argmax(axis=1)
        top = chance[rows, answer]
        confidence = self.of_numbers(model, top)
        others = chance / np.maximum(1.0 - top, 1e-9)[:, None]
        if self.missed is not None:
            missed = self.missed[model]
            others = others * (1.0 - missed.sum()) + missed
            others[rows, answer] = 0.0
            others /= np.maximum(others.sum(axis=1), 1e-9)[:, None]
        scaled: Floats = others * (1.0 - confidence)[:, None]
        scaled[rows, answer] = confidence
        if missing.any():
            scaled[missing] = 1.0 / self.n_classes
            answer[missing] = UNCOMPARED
        return confidence, scaled, answer

    def of_log(self, evidence: Floats, answers: Ints | None) -> tuple[Floats, Floats | None, Ints | None]:
        """Confidence, class probabilities and answers of a log of all models; see ``Log``."""
        n_models = len(self.knots)
        if not self.n_classes:
            columns = [self.of_numbers(model, evidence[:, model]) for model in range(n_models)]
            return np.column_stack(columns), None, answers
        parts = [self.of_classes(model, evidence[:, model]) for model in range(n_models)]
        confidence, classes, codes = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        if answers is not None:
            codes = np.where(answers < 0, answers, codes)
        return confidence, classes, codes

    def take(self, models: Ints) -> "Calibration":
        """The maps of these models only."""
        missed = None if self.missed is None else self.missed[models]
        knots = tuple(self.knots[model] for model in models)
        return replace(self, knots=knots, missing=self.missing[models], missed=missed)

    def with_model(self, quality: float) -> "Calibration":
        """The maps with that of a further model, of which no evidence is known."""
        constant = np.array([[0.0], [quality]])
        missed = None if self.missed is None else np.pad(self.missed, ((0, 1), (0, 0)))
        return replace(
            self, knots=(*self.knots, constant), missing=np.append(self.missing, quality), missed=missed
        )

    def validate(self) -> "Calibration":
        """Refuse knots that are no monotone map."""
        for knots in self.knots:
            if knots.ndim != 2 or len(knots) != 2 or not knots.size or (np.diff(knots[0]) <= 0).any():
                raise InvalidInputError("knots of a calibration must be pairs of numbers, the first rising.")
        missed = self.missed is None or self.missed.shape == (len(self.knots), self.n_classes)
        if self.missing.shape != (len(self.knots),) or self.n_classes < 0 or not missed:
            raise InvalidInputError("a calibration must know each model where evidence is missing.")
        return self

    def check_shape(self, evidence: Floats, models: Sequence[str]) -> None:
        """Refuse evidence of another form than that of the fit."""
        n_classes = evidence.shape[-1] if evidence.ndim == 3 else 0
        if n_classes != self.n_classes:
            forms = [_FORMS.get(n, f"probabilities of {n} classes") for n in (self.n_classes, n_classes)]
            raise InvalidInputError(
                f"evidence of {', '.join(models)} must be {forms[0]}, as in fit; got {forms[1]}."
            )
