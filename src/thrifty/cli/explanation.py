"""What explanations say: in words for people, as numbers for programs."""

from dataclasses import asdict
from typing import Any

import numpy as np

from thrifty.chain.explain import Explanation, StageView
from thrifty.cli.console import number, quantity
from thrifty.tables.formats import listed

__all__ = ["explanation_in_words", "explanation_numbers"]


def explanation_in_words(row: int, found: Explanation) -> list[str]:
    """The way of one row, a sentence per stage."""
    lines = [f"Row {row}"]
    for place, stage in enumerate(found.stages):
        bought = f"buys {listed(stage.bought, 12)}" if stage.bought else "buys nothing new"
        lines.append(
            f"  Stage {place} {bought} ({quantity(stage.cost)} spent so far) and says "
            f"{_said(stage.answer, stage.probability)}: {_verdict(stage)}."
        )
    if found.asked_full:
        lines.append(
            f"  The full model reads the rest of its columns ({quantity(found.cost)} spent in all) and the answer is "
            f"{_said(found.answer, found.probability)}."
        )
    lines.append(f"  Answer: {_said(found.answer)} for {quantity(found.cost)}, {_saved(found.saved)}.")
    return lines


def _said(answer: Any, probability: float = np.nan) -> str:
    """A label with its probability, or a number, which has none."""
    if isinstance(answer, float) and np.isnan(probability):
        return number(answer)
    return f"{answer!r}" if np.isnan(probability) else f"{answer!r} with probability {probability:.3f}"


def _verdict(stage: StageView) -> str:
    if np.isinf(stage.threshold):
        return "every row goes on from here" if stage.goes_on else "every row that gets here stops"
    if np.isnan(stage.probability):
        # A number does not say how sure it is: its gate says what going on would gain.
        return f"more would {'help, so the row goes on' if stage.goes_on else 'help little, so the row stops here'}"
    return "not sure enough, so the row goes on" if stage.goes_on else "sure enough, so the row stops here"


def _saved(saved: float) -> str:
    if saved == 0:
        return "what the full model costs"
    return f"{quantity(abs(saved))} {'less' if saved > 0 else 'more'} than the full model alone"


def explanation_numbers(row: int, found: Explanation) -> dict[str, Any]:
    """The way of one row, for programs; an infinite threshold is text."""
    facts = {"row": row, **asdict(found)}
    for said in (facts, *facts["stages"]):
        if np.isnan(said["probability"]):
            del said["probability"]
    for stage in facts["stages"]:
        stage["goes_on"] = stage["gate"] > stage["threshold"]
        if not np.isfinite(stage["threshold"]):
            stage["threshold"] = str(stage["threshold"])
    return facts
