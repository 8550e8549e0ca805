"""Explanations of rows: purchases in their order, the answer of each stage, why the row stopped, and the savings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from thrifty.arrays import Bools, Floats, Ints
from thrifty.engine.purchases.readers import Reader, amounts_of
from thrifty.engine.purchases.receipts import answer_text, decision_text
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.stage import nodes_of
from thrifty.engine.walk.walk import Walk


@dataclass(frozen=True)
class StageView:
    """One stage of the explanation of a row.

    Attributes
    ----------
    bought : tuple of str
        Columns that were new at this stage, in the order of purchase.
    cost : float
        Cost of the row by the end of this stage.
    answer : object
        The answer that the stage would have given.
    probability : float
        Probability of that answer, by the stage.
    gate, threshold : float
        The row went on iff its gate score exceeded the threshold.
    point : {"", "cheaper", "dearer"}
        Operating point that decided, where two are mixed of which only one sends the row on: its key follows this one.
    """

    bought: tuple[str, ...]
    cost: float
    answer: Any
    probability: float
    gate: float
    threshold: float
    point: str = ""

    @property
    def goes_on(self) -> bool:
        """True if the row was sent on from this stage."""
        return self.gate > self.threshold


@dataclass(frozen=True)
class Explanation:
    """Explanation of one row: its stages, answer, cost and savings.

    Attributes
    ----------
    stages : tuple of StageView
        The stages it visited, in order.
    asked_full : bool
        Whether it went on to the full model.
    answer, probability : object, float
        The answer and its probability.
    cost, saved : float
        Cost of the row, and by how much less it is than that of the full model alone.
    """

    stages: tuple[StageView, ...]
    asked_full: bool
    answer: Any
    probability: float
    cost: float
    saved: float

    @property
    def bought(self) -> tuple[str, ...]:
        """Columns bought before the full model, in order."""
        return tuple(name for stage in self.stages for name in stage.bought)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON: no probability of numbers, infinity as text, a point only where it decided."""
        entries = asdict(self)
        for entry in (entries, *entries["stages"]):
            if np.isnan(entry["probability"]):
                del entry["probability"]
        for stage in entries["stages"]:
            if not stage["point"]:
                del stage["point"]
            stage["goes_on"] = stage["gate"] > stage["threshold"]
            if np.isinf(stage["threshold"]):
                stage["threshold"] = str(stage["threshold"])
        return entries

    def __str__(self) -> str:
        lines = []
        for number, stage in enumerate(self.stages):
            names = ", ".join(stage.bought) or "nothing new"
            why = decision_text(stage.probability, goes_on=stage.goes_on, point=stage.point)
            answer = answer_text(stage.answer, stage.probability)
            then = "goes on" if stage.goes_on else "stops"
            lines.append(f"stage {number}: {names} (paid {stage.cost:g}); {answer}; {why}, {then}")
        if self.asked_full:
            answer = answer_text(self.answer, self.probability)
            lines.append(f"full model: all that it reads (paid {self.cost:g}); {answer}")
        less = "less than" if self.saved >= 0 else "more than"
        lines.append(
            f"answered {answer_text(self.answer)} for {self.cost:g}, {abs(self.saved):g} {less} the full model"
        )
        return "\n".join(lines)


def explain_rows(chain: Chain, reader: Reader, names: Sequence[str]) -> list[Explanation]:
    """Explain the route of every row through a chain; the full model is called for the rows that reach it."""
    walk = chain.walk(reader)
    outputs, spent = chain.answer(reader, walk), chain.spent(reader, walk)
    answers, probability = chain.task.answers(outputs).tolist(), chain.task.confidence(outputs)
    views: list[list[StageView]] = [[] for _ in range(len(walk.route))]
    cost, total = _costs(chain, reader, len(walk.route))
    held = np.zeros((len(walk.route), chain.price_list.n_features), dtype=bool)
    _add_views(views, chain, reader, walk, held, names, cost, 0)
    return [
        Explanation(
            tuple(views[row]),
            bool(walk.route[row] == chain.n_stages),
            answers[row],
            float(probability[row]),
            float(spent[row]),
            float(total[row]) - float(spent[row]),
        )
        for row in range(len(walk.route))
    ]


def _costs(chain: Chain, reader: Reader, n_rows: int) -> tuple[Sequence[Floats], Floats]:
    """Cost of each row by the end of each stage, and at the full model alone."""
    prices = chain.price_list
    by_stage = chain.spent_by_stage(reader)
    if prices.by_row is None:
        return by_stage, np.full(n_rows, prices.cost_of_full)
    read = np.zeros((1, prices.n_features), dtype=bool)
    read[0, prices.read_by_full] = True
    amounts = amounts_of(prices, reader, np.arange(n_rows), np.repeat(read, n_rows, axis=0), chain.names)
    total = prices.cost_of_rows(read, np.ones(1, dtype=bool), amounts)
    return by_stage, total


def _add_views(
    views: list[list[StageView]],
    chain: Chain,
    reader: Reader,
    walk: Walk,
    held: Bools,
    names: Sequence[str],
    cost: Sequence[Floats],
    first: int,
) -> None:
    """Add the stages of one chain, and of the chain behind it, to the explanations; stages count from ``first``.

    ``held`` marks the columns that each row holds, and is updated.
    """
    policy, task, rows = chain.policy, chain.task, walk.rows
    follows = np.zeros(len(rows), dtype=bool)
    carried, node = chain.walker.carried_at_start(len(rows)), np.zeros(len(rows), dtype=np.intp)
    for place, stage in enumerate(chain.stages):
        visitors: Ints = np.flatnonzero(walk.route >= first + place)
        if place == policy.parting:
            follows[visitors] = policy.follows_upper(reader.keys(rows[visitors]))
        visit = chain.walker.visit_at(stage, reader, rows[visitors], carried[visitors], node[visitors])
        carried[visitors], at_node = visit.carried, node[visitors]
        node[visitors] = 0 if visit.turn is None else visit.turn
        outputs = task.outputs(visit.scores)
        gate = chain.walker.gate_of(visit)
        answers, sure = task.answers(outputs).tolist(), task.confidence(outputs)
        upper = follows[visitors]
        thresholds = np.broadcast_to(policy.thresholds_at(place, upper), len(visitors))
        at = first + place
        columns_of = [node.columns for node in nodes_of(stage)]
        for number, row in enumerate(rows[visitors]):
            columns = columns_of[at_node[number] if len(columns_of) > 1 else 0]
            new, held[row, columns] = columns[~held[row, columns]], True
            views[row].append(
                StageView(
                    tuple(str(names[column]) for column in new),
                    float(cost[at][row]),
                    answers[number],
                    float(sure[number]),
                    float(gate[number]),
                    float(thresholds[number]),
                    policy.deciding_point(place, gate[number], follows_upper=bool(upper[number])),
                )
            )
    if chain.behind and walk.behind is not None:
        n_before = first + chain.n_own_stages
        inner = replace(walk.behind, route=walk.behind.route + n_before)
        _add_views(views, chain.behind, reader, inner, held, names, cost, n_before)
