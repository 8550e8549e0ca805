"""Why a row stopped where it did: what was bought in which order, what each stage said, and what was saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from thrifty.chain.cascade_system import CascadeSystem
from thrifty.chain.sources import TableReader

__all__ = ["Explanation", "StageView", "explain_rows"]


@dataclass(frozen=True)
class StageView:
    """One stage as one row met it.

    Attributes
    ----------
    bought : tuple of str
        Columns that were new at this stage, in the order of purchase.
    cost : float
        Paid by the end of this stage.
    answer : object
        The label that the stage would have given.
    probability : float
        Its probability of the second class.
    gate, threshold : float
        The row went on iff its gate score exceeded the threshold.
    """

    bought: tuple[str, ...]
    cost: float
    answer: Any
    probability: float
    gate: float
    threshold: float

    @property
    def goes_on(self) -> bool:
        """Whether the row was sent on from here."""
        return self.gate > self.threshold


@dataclass(frozen=True)
class Explanation:
    """The way of one row.

    Attributes
    ----------
    stages : tuple of StageView
        The stages it visited, in order.
    asked_full : bool
        Whether it went on to f0.
    answer, probability : object, float
        What was answered, and the probability of the second class.
    cost, saved : float
        What the row paid, and how much less that is than f0 for everybody.
    """

    stages: tuple[StageView, ...]
    asked_full: bool
    answer: Any
    probability: float
    cost: float
    saved: float

    @property
    def bought(self) -> tuple[str, ...]:
        """Columns bought before f0, in order."""
        return tuple(name for stage in self.stages for name in stage.bought)

    def __str__(self) -> str:
        lines = []
        for number, stage in enumerate(self.stages):
            names = ", ".join(stage.bought) or "nothing new"
            verdict = "not sure enough, goes on" if stage.goes_on else "sure enough, stops"
            lines.append(
                f"stage {number}: {names} (paid {stage.cost:g}); {stage.answer!r} with probability "
                f"{_of_answer(stage.probability):.3f}; {verdict}"
            )
        if self.asked_full:
            lines.append(
                f"f0: everything (paid {self.cost:g}); {self.answer!r} with probability "
                f"{_of_answer(self.probability):.3f}"
            )
        lines.append(f"answered {self.answer!r} for {self.cost:g}, {self.saved:g} less than f0")
        return "\n".join(lines)


def explain_rows(system: CascadeSystem, reader: TableReader, names: Sequence[str]) -> list[Explanation]:
    """Every row's way through the cascade; f0 is asked about the rows that reach it."""
    walk = system.walk(reader)
    positive = system.answer(reader, walk)
    gate, log_odds = system.every_stage(reader)
    thresholds = system.thresholds_in_force(reader, walk)
    costs, labels = system.cost_by_route, system.label(positive)
    new = _new_columns(system, names)
    explanations = []
    for row in range(reader.n_samples):
        route = int(walk.route[row])
        probability = np.asarray(expit(log_odds[row]), dtype=np.float64)
        answers = system.label(probability).tolist()
        stages = tuple(
            StageView(
                new[place],
                float(costs[place]),
                answers[place],
                float(probability[place]),
                float(gate[row, place]),
                float(thresholds[row, place]),
            )
            for place in range(min(route + 1, system.n_stages))
        )
        cost = float(costs[route])
        saved = system.price_list.cost_of_everything - cost
        asked = route == system.n_stages
        explanations.append(Explanation(stages, asked, labels[row].item(), float(positive[row]), cost, saved))
    return explanations


def _new_columns(system: CascadeSystem, names: Sequence[str]) -> list[tuple[str, ...]]:
    held: set[int] = set()
    new = []
    for step in system.steps:
        columns = [int(column) for column in step.columns if int(column) not in held]
        held.update(columns)
        new.append(tuple(str(names[column]) for column in columns))
    return new


def _of_answer(positive: float) -> float:
    return max(positive, 1.0 - positive)
